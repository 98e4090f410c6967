--
-- The extension, and what the other tests compare answers with.
--
CREATE EXTENSION pmhash;

-- Rows of a query as text, found by one kind of scan; NULL if the plan for
-- that kind does not use the index.
CREATE FUNCTION rows_by(kind text, query text, index text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
	line text;
	uses_index bool := false;
	result text[];
BEGIN
	PERFORM set_config('enable_seqscan', (kind = 'seq')::text, true),
			set_config('enable_indexscan', (kind IN ('index', 'join', 'pages'))::text, true),
			set_config('enable_indexonlyscan', (kind IN ('index', 'join'))::text, true),
			set_config('enable_bitmapscan', (kind = 'bitmap')::text, true),
			set_config('enable_hashjoin', (kind = 'seq')::text, true),
			set_config('enable_mergejoin', (kind = 'seq')::text, true), set_config('enable_nestloop', (kind <> 'seq')::text, true),
			set_config('cpu_index_tuple_cost', CASE kind WHEN 'join' THEN '1000' ELSE '0.005' END, true),
			set_config('pmhash.enable_pagescan', (kind = 'pages')::text, true),
			set_config('pmhash.enable_join', (kind = 'join')::text, true),
			set_config('enable_material', (kind = 'seq')::text, true);
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		uses_index := uses_index OR
			line ~ ((CASE kind WHEN 'bitmap' THEN 'Bitmap Index Scan on '
					 WHEN 'join' THEN 'Index Name: '
					 WHEN 'pages' THEN 'Index Name: '
					 ELSE 'Index.* using ' END) || index || '\M');
	END LOOP;
	IF uses_index OR kind = 'seq' THEN
		EXECUTE format('SELECT coalesce(array_agg(q::text), ''{}'') FROM (%s) q', query)
			INTO result;
	END IF;
	PERFORM set_config(name, 'on', true)
	FROM unnest('{enable_seqscan,enable_indexscan,enable_indexonlyscan,enable_bitmapscan,enable_hashjoin,enable_mergejoin,pmhash.enable_join,pmhash.enable_pagescan,enable_material}'::text[]) name;
	PERFORM set_config('cpu_index_tuple_cost', '0.005', true);
	RETURN result;
END $$;

-- How two results differ, row by row, whatever their order.
CREATE FUNCTION difference(got text[], wanted text[]) RETURNS text
LANGUAGE sql AS $$
SELECT CASE
	WHEN got IS NULL THEN 'not used'
	-- (as many rows, with the same sum of 64-bit hashes)
	WHEN (SELECT row(count(*), sum(hashtextextended(r, 0))) FROM unnest(got) r) IS NOT DISTINCT FROM
		 (SELECT row(count(*), sum(hashtextextended(r, 0))) FROM unnest(wanted) r) THEN 'same'
	ELSE (SELECT format('%s missing, %s extra', missing, extra)
		  FROM (SELECT count(*) AS missing FROM (SELECT unnest(wanted) EXCEPT ALL SELECT unnest(got)) m) m,
			   (SELECT count(*) AS extra FROM (SELECT unnest(got) EXCEPT ALL SELECT unnest(wanted)) e) e) END
$$;

-- How the rows of an index scan differ from others, and those of a join and of page
-- scans by the same index, where the query is one that can be done so.
CREATE FUNCTION index_difference(query text, index text, wanted text[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	joined text[] := rows_by('join', query, index);
	paged text[] := rows_by('pages', query, index);
	by_join text;
	by_pages text;
BEGIN
	IF joined IS NOT NULL THEN
		by_join := difference(joined, wanted);
	END IF;
	IF paged IS NOT NULL THEN
		by_pages := difference(paged, wanted);
	END IF;
	RETURN difference(rows_by('index', query, index), wanted) ||
		CASE WHEN by_join <> 'same' THEN ', by join: ' || by_join ELSE '' END ||
		CASE WHEN by_pages <> 'same' THEN ', by pages: ' || by_pages ELSE '' END;
END $$;

-- A query by sequential scan, and whether index and bitmap scans of the index
-- give the same rows.
CREATE FUNCTION answers(query text, index text,
						OUT rows int, OUT by_index text, OUT by_bitmap text)
LANGUAGE plpgsql AS $$
DECLARE
	wanted text[] := rows_by('seq', query, index);
BEGIN
	rows := cardinality(wanted);
	by_index := index_difference(query, index, wanted);
	by_bitmap := difference(rows_by('bitmap', query, index), wanted);
END $$;

-- The same for a look-up of every key that a table holds: all its rows with
-- a key that is not null, each exactly once.  A key is a column, or several: 'a, b'.
CREATE FUNCTION every_key(tab regclass, key text, index text,
						  OUT rows int, OUT by_index text, OUT by_bitmap text)
LANGUAGE plpgsql AS $$
DECLARE
	columns text;
	probe text;
	wanted text[];
BEGIN
	-- their number and the sum of hashes of where they are; if these differ, one by one
	FOREACH columns IN ARRAY ARRAY['count(*), sum(hashtidextended(t.ctid, t.tableoid::int8))', 't.tableoid, t.ctid'] LOOP
		wanted := rows_by('seq', format('SELECT %s FROM %s t WHERE (%s) IS NOT NULL', columns, tab, key), index);
		probe := format('SELECT %s FROM (SELECT DISTINCT %s FROM %3$s OFFSET 0) d JOIN %3$s t ON %s', columns, key, tab,
						(SELECT string_agg(format('t.%1$s = d.%1$s', c), ' AND ') FROM regexp_split_to_table(key, ', ') c));
		rows := coalesce(rows, substring(wanted[1] FROM '[0-9]+')::int);
		by_index := index_difference(probe, index, wanted);
		by_bitmap := difference(rows_by('bitmap', probe, index), wanted);
		EXIT WHEN concat(by_index, by_bitmap) !~ 'missing';
	END LOOP;
END $$;

-- A line of EXPLAIN in the words of PostgreSQL 15, or NULL if that says nothing:
-- later versions name sub-queries (17, and 19 in another way), and tell whether a node is disabled, how
-- often an index was searched, and rows with decimals (18).
CREATE FUNCTION explain_line(line text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
SELECT regexp_replace(regexp_replace(regexp_replace(line,
		'\(InitPlan (1|expr_1)\)\.col1', '$0', 'g'),
		'InitPlan (1 \(returns \$0\)|expr_1)$', 'InitPlan 1'),
		'(actual rows=[0-9]+)\.00 ', '\1 ')
WHERE line !~ '^ *(Disabled: true|Index Searches: [0-9]+)$'
$$;

-- The plan of a query, without costs.
CREATE FUNCTION plan(query text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		line := explain_line(line);
		IF line IS NOT NULL THEN
			RETURN NEXT line;
		END IF;
	END LOOP;
END $$;
-- What a query adds to: scans of an index, entries read, rows fetched, pages of its table
-- read and found; and its answer.
CREATE FUNCTION counted(query text, i oid, t oid) RETURNS int8[] LANGUAGE plpgsql AS $$
DECLARE
	before int8[];
	answer text;
BEGIN
	before := ARRAY[pg_stat_get_xact_numscans(i), pg_stat_get_xact_tuples_returned(i),
		pg_stat_get_xact_tuples_fetched(i), pg_stat_get_xact_blocks_fetched(t), pg_stat_get_xact_blocks_hit(t)];
	EXECUTE query INTO answer;
	RETURN ARRAY[pg_stat_get_xact_numscans(i) - before[1], pg_stat_get_xact_tuples_returned(i) - before[2],
		pg_stat_get_xact_tuples_fetched(i) - before[3], pg_stat_get_xact_blocks_fetched(t) - before[4],
		pg_stat_get_xact_blocks_hit(t) - before[5], answer::int8];
END $$;
