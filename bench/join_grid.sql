-- The grid of bench/join.sh: what the planner takes by itself, beside each other way.
CREATE EXTENSION IF NOT EXISTS pmhash;
CREATE EXTENSION pg_prewarm;
CREATE SCHEMA IF NOT EXISTS joins;
CREATE TABLE joins.grid (kind text, cached bool, workers int, outer_rows bigint,
	inner_rows bigint, per_key int, hits int, way text, plan text, ms float8, answer text);

-- A prime from which on multiples run through all numbers below it.
CREATE FUNCTION joins.prime(n bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
SELECT min(p) FROM unnest(ARRAY[2, 11, 101, 1009, 10007, 30011, 100003, 300007, 1000003, 10000019]) p WHERE p > n
$$;

-- The inner table: the same key three times, for an index of each method.
CREATE PROCEDURE joins.make_inner(n bigint, per_key int) LANGUAGE plpgsql AS $$
DECLARE
	name text := format('joins.i_%s_%s', n, per_key);
BEGIN
	IF to_regclass(name) IS NOT NULL THEN
		RETURN;
	END IF;
	EXECUTE format('CREATE UNLOGGED TABLE %s AS SELECT k AS kp, k AS kb, k AS kh, repeat(''x'', 16) AS pad '
		'FROM (SELECT (g * 7919) %% %s %% %s AS k FROM generate_series(1::bigint, %s) g) s',
		name, joins.prime(n), n / per_key, n);
	EXECUTE format('CREATE INDEX ON %s USING pmhash (kp)', name);
	EXECUTE format('CREATE INDEX ON %s USING btree (kb)', name);
	EXECUTE format('CREATE INDEX ON %s USING hash (kh)', name);
	COMMIT;
END $$;

-- The outer table: keys in no order, hits % of which are there, others below zero.
CREATE PROCEDURE joins.make_outer(n bigint, keys bigint, hits int) LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS joins.o;
	EXECUTE format('CREATE UNLOGGED TABLE joins.o AS SELECT CASE WHEN g %% 100 < %s THEN k ELSE -k - 1 END AS k '
		'FROM (SELECT g, (g * 104729) %% %s %% %s AS k FROM generate_series(1::bigint, %s) g) s',
		hits, joins.prime(keys), keys, n);
	ANALYZE joins.o;
END $$;

-- The queries: rows, keys alone, keys that are not there, or as in TPC-H's Q13 how
-- many rows each key has; by a column's index.
CREATE FUNCTION joins.query_of(kind text, inner_table text, col text) RETURNS text LANGUAGE sql AS $$
SELECT CASE kind
	WHEN 'rows' THEN format('SELECT count(i.pad) FROM joins.o JOIN %s i ON i.%s = o.k', inner_table, col)
	WHEN 'keys' THEN format('SELECT count(i.%2$s) FROM joins.o JOIN %1$s i ON i.%2$s = o.k', inner_table, col)
	WHEN 'left' THEN format('SELECT max(n) FROM (SELECT o.k, count(i.pad) AS n FROM joins.o LEFT JOIN %s i ON i.%s = o.k AND i.pad NOT LIKE ''%%special%%requests%%'' GROUP BY o.k) c', inner_table, col)
	WHEN 'anti' THEN format('SELECT count(*) FROM joins.o WHERE NOT EXISTS (SELECT FROM %s i WHERE i.%s = o.k)', inner_table, col)
END
$$;

-- Allow a way, or all of them; returns the column to use.
CREATE FUNCTION joins.allow(way text, workers int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	nested bool := way LIKE 'nested loop%' OR way = 'memoize';
	own bool := way = 'chosen';
BEGIN
	PERFORM set_config('enable_hashjoin', (own OR way = 'hash join')::text, false),
		set_config('enable_mergejoin', (own OR way = 'merge join')::text, false),
		set_config('enable_nestloop', (own OR nested OR way = 'pmhash join')::text, false),
		set_config('cpu_index_tuple_cost', CASE WHEN way = 'pmhash join' AND NOT own THEN '1000' ELSE '0.005' END, false),
		set_config('pmhash.enable_join', (own OR way = 'pmhash join')::text, false),
		set_config('enable_material', (own OR way = 'merge join')::text, false),
		set_config('enable_memoize', (own OR way = 'memoize')::text, false),
		set_config('enable_bitmapscan', own::text, false),
		set_config('enable_seqscan', 'on', false),
		set_config('max_parallel_workers_per_gather', workers::text, false);
	RETURN CASE WHEN way = 'nested loop, btree' THEN 'kb'
		WHEN way = 'nested loop, hash' THEN 'kh' ELSE 'kp' END;
END $$;

CREATE FUNCTION joins.plan_lines(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	plan text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		plan := plan || line || E'\n';
	END LOOP;
	RETURN plan;
END $$;

-- Milliseconds: of this process's processor, or of the clock.
CREATE FUNCTION joins.now_ms(by_clock bool) RETURNS float8 LANGUAGE plpgsql AS $$
BEGIN
	IF by_clock THEN
		RETURN extract(epoch FROM clock_timestamp()) * 1000;
	END IF;
	RETURN split_part(pg_read_file('/proc/self/schedstat', 0, 100), ' ', 1)::float8 / 1e6;
END $$;

-- Run a query and note how long it took: again and again if it is short.  Where
-- nothing is waited for that is processor time, which is steadier.
CREATE PROCEDURE joins.time_it(p joins.grid, query text, again bool) LANGUAGE plpgsql AS $$
DECLARE
	by_clock bool := NOT p.cached OR p.workers > 0;
	began float8;
	n int := 0;
	ms float8;
BEGIN
	p.plan := joins.plan_lines(query);
	began := joins.now_ms(by_clock);
	LOOP
		EXECUTE query INTO p.answer;
		n := n + 1;
		ms := joins.now_ms(by_clock) - began;
		EXIT WHEN NOT again OR ms > 20;
	END LOOP;
	p.ms := ms / n;
	INSERT INTO joins.grid SELECT p.*;
END $$;

CREATE PROCEDURE joins.one_way(kind text, cached bool, workers int, n_outer bigint, n_inner bigint, per_key int, hits int, way text) LANGUAGE plpgsql AS $$
DECLARE
	col text := joins.allow(way, workers);
	name text := format('joins.i_%s_%s', n_inner, per_key);
	p joins.grid;
BEGIN
	p := (kind, cached, workers, n_outer, n_inner, per_key, hits, way, NULL, NULL, NULL);
	CALL joins.time_it(p, joins.query_of(kind, name, col), cached);
END $$;

-- Have everything cached.
CREATE PROCEDURE joins.warm(inner_table regclass) LANGUAGE sql AS $$
SELECT pg_prewarm(c.oid) FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.oid IN (inner_table, to_regclass('joins.o')) OR
	i.indrelid = inner_table AND c.relam IN (SELECT oid FROM pg_am WHERE amname IN ('btree', 'hash'))
$$;

-- The same by all ways, in turn, so many times; what takes longer than a tenth of a
-- second only once.  Nested loops of core with ten million keys are left out.
CREATE PROCEDURE joins.all_ways(kind text, workers int, n_outer bigint, n_inner bigint, per_key int, hits int, rounds int) LANGUAGE plpgsql AS $$
DECLARE
	w text;
BEGIN
	CALL joins.make_outer(n_outer, n_inner / per_key, hits);
	CALL joins.warm(format('joins.i_%s_%s', n_inner, per_key)::regclass);
	FOR r IN 1 .. rounds LOOP
		FOREACH w IN ARRAY ARRAY['chosen', 'hash join', 'merge join', 'nested loop, btree', 'nested loop, hash', 'nested loop, pmhash', 'memoize', 'pmhash join'] LOOP
			CONTINUE WHEN n_outer >= 10000000 AND (w LIKE 'nested%' OR w = 'memoize');
			CONTINUE WHEN EXISTS (SELECT FROM joins.grid g WHERE g.way = w AND g.ms > 100 * (1 + 4 * (w IN ('chosen', 'pmhash join', 'hash join'))::int) AND
				(g.kind, g.workers, g.outer_rows, g.inner_rows, g.per_key, g.hits) =
				(all_ways.kind, all_ways.workers, n_outer, n_inner, all_ways.per_key, all_ways.hits));
			CALL joins.one_way(kind, true, workers, n_outer, n_inner, per_key, hits, w);
			COMMIT;
		END LOOP;
	END LOOP;
END $$;

-- Runs of the same plan are one figure, whatever way they were meant to be.
CREATE VIEW joins.by_plan AS
SELECT kind, cached, workers, outer_rows, inner_rows, per_key, hits, plan,
	percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms,
	bool_or(way = 'chosen') AS chosen, array_agg(DISTINCT way) AS ways
FROM joins.grid GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;

CREATE VIEW joins.regrets AS
SELECT kind, cached, workers, outer_rows, inner_rows, per_key, hits,
	max(substring(plan FROM '(pmhash join|(Hash|Merge)( (Left|Right|Anti|Right Anti|Semi))? Join|Nested Loop|Memoize)')) FILTER (WHERE chosen) AS chosen,
	max(ms) FILTER (WHERE chosen) AS ms,
	min(ms) FILTER (WHERE 'hash join' = ANY (ways)) AS "hash join",
	min(ms) FILTER (WHERE 'merge join' = ANY (ways)) AS "merge join",
	min(ms) FILTER (WHERE 'nested loop, btree' = ANY (ways)) AS "nested loop, btree",
	min(ms) FILTER (WHERE 'nested loop, hash' = ANY (ways)) AS "nested loop, hash",
	min(ms) FILTER (WHERE 'nested loop, pmhash' = ANY (ways)) AS "nested loop, pmhash",
	min(ms) FILTER (WHERE 'memoize' = ANY (ways)) AS memoize,
	min(ms) FILTER (WHERE 'pmhash join' = ANY (ways)) AS "pmhash join",
	max(ms) FILTER (WHERE chosen) / min(ms) FILTER (WHERE ways && ARRAY['hash join', 'merge join', 'nested loop, btree', 'nested loop, hash', 'nested loop, pmhash', 'memoize']) AS "of others",
	max(ms) FILTER (WHERE chosen) / min(ms) AS "of all"
FROM joins.by_plan GROUP BY 1, 2, 3, 4, 5, 6, 7;
