-- Comparison of pmhash indexes with their tables.

-- How a query is answered: with sequential scans only, or with indexes only.
CREATE FUNCTION compare_by(how text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('enable_seqscan', (how = 'table')::text, true),
		set_config('enable_indexscan', (how = 'index')::text, true),
		set_config('enable_bitmapscan', (how = 'index')::text, true),
		set_config('enable_indexonlyscan', 'off', true),
		set_config('max_parallel_workers_per_gather', '0', true);
END $$;

-- Rows of up to so many keys of an index of one column, and of one key that is
-- nowhere: found by the index, one key at a time, and by one pass over the table.
CREATE FUNCTION compare_index(which regclass, greatest_number int DEFAULT 1000)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	tab regclass;
	key text := pg_get_indexdef(which, 1, true);
	type text := (SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = which AND attnum = 1);
	predicate text;
	found_by_table jsonb;
	found text;
	wanted record;
	plan json;
	n int := 0;
BEGIN
	SELECT indrelid, coalesce(' AND ' || pg_get_expr(indpred, indrelid), '') INTO tab, predicate
	FROM pg_index WHERE indexrelid = which;
	PERFORM compare_by('table');
	EXECUTE format('SELECT coalesce(jsonb_object_agg(k, f), ''{}'') FROM
			(SELECT (%1$s)::text AS k, count(*) || '' '' || sum(hashtext(t::text)::int8) AS f
			FROM ONLY %2$s t WHERE %1$s IS NOT NULL %3$s GROUP BY 1 ORDER BY hashtext((%1$s)::text) LIMIT %4$s) s',
		key, tab, predicate, greatest_number) INTO found_by_table;
	PERFORM compare_by('index');
	FOR wanted IN SELECT * FROM jsonb_each_text(found_by_table) LOOP
		IF n = 0 THEN
			EXECUTE format('EXPLAIN (FORMAT json) SELECT * FROM ONLY %s t WHERE %s = %L::%s %s',
				tab, key, wanted.key, type, predicate) INTO plan;
			IF position((SELECT format('"%s"', relname) FROM pg_class WHERE oid = which) IN plan::text) = 0 THEN
				RETURN format('%s: not used: %s', which, plan);
			END IF;
		END IF;
		EXECUTE format('SELECT count(*) || '' '' || sum(hashtext(t::text)::int8) FROM ONLY %s t WHERE %s = %L::%s %s',
			tab, key, wanted.key, type, predicate) INTO found;
		IF found IS DISTINCT FROM wanted.value THEN
			RETURN format('%s: key %s: table %s, index %s', which, wanted.key, wanted.value, found);
		END IF;
		n := n + 1;
	END LOOP;
	RETURN format('%s: same, %s keys', which, n);
END $$;

-- All pmhash indexes of the database that have a file: each valid, sound, the same
-- as its table.
CREATE FUNCTION compare_indexes() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	which record;
	result text;
BEGIN
	FOR which IN SELECT format('%I.%I', schema, index)::regclass AS index, state FROM pmhash.indexes ORDER BY 1 LOOP
		IF which.state <> 'valid' THEN
			RETURN NEXT format('%s: %s', which.index, which.state);
			CONTINUE;
		END IF;
		BEGIN
			PERFORM pmhash.check(which.index);
			RETURN NEXT compare_index(which.index);
		EXCEPTION WHEN OTHERS THEN
			RETURN NEXT format('%s: %s %s', which.index, SQLSTATE, SQLERRM);
		END;
	END LOOP;
END $$;
