--
-- Expressions compiled (JIT) in what pmhash executes and below it: joins, scans of several
-- kinds, of themselves and below Gather, in workers and in the leader.
--
CREATE TABLE jit_outer (id int4, k int4, s text, n numeric, pad text);
INSERT INTO jit_outer SELECT i, i % 700, 'text ' || i % 400, i % 300, repeat('o', 100) FROM generate_series(1, 3000) i;
INSERT INTO jit_outer VALUES (0, NULL, NULL, NULL, NULL);
CREATE TABLE jit_inner (id int4, k int4, s text, n numeric, v int4, w float8);
INSERT INTO jit_inner SELECT i, i % 500, 'text ' || i % 1000, i % 250, i % 13, i / 7.0 FROM generate_series(1, 4000) i;
INSERT INTO jit_inner VALUES (0, NULL, NULL, NULL, NULL, NULL);
CREATE INDEX jit_k ON jit_inner USING pmhash (k);
CREATE INDEX jit_v ON jit_inner USING pmhash (v);
CREATE INDEX jit_s ON jit_inner USING pmhash (s);
CREATE INDEX jit_sum ON jit_inner USING pmhash ((k + v));
CREATE INDEX jit_some ON jit_inner USING pmhash (n) WHERE v < 9;
ALTER TABLE jit_inner DROP COLUMN id;
ALTER TABLE jit_inner ADD COLUMN later int4 DEFAULT 5;
VACUUM ANALYZE jit_outer, jit_inner;

-- Plans of one kind, all expressions compiled: 'join', 'loop', 'bitmap', 'pages'; 'table' has
-- neither index nor compiler.
CREATE FUNCTION by_way(way text, workers int4) RETURNS void LANGUAGE sql AS $$
SELECT set_config('enable_seqscan', (way IN ('table', 'join') OR workers > 0)::text, false), set_config('enable_hashjoin', (way = 'table')::text, false), set_config('enable_mergejoin', (way = 'table')::text, false),
	set_config('enable_indexscan', (way IN ('loop', 'join', 'pages'))::text, false), set_config('enable_bitmapscan', (way = 'bitmap')::text, false),
	set_config('enable_indexonlyscan', (way IN ('loop', 'join'))::text, false),
	set_config('cpu_index_tuple_cost', CASE way WHEN 'join' THEN '1000' ELSE '0.005' END, false),
	set_config('pmhash.enable_join', (way = 'join')::text, false), set_config('pmhash.enable_pagescan', (way = 'pages')::text, false),
	set_config('enable_material', 'off', false), set_config('enable_memoize', 'off', false),
	set_config('max_parallel_workers_per_gather', workers::text, false), set_config('min_parallel_table_scan_size', '0', false),
	set_config('parallel_setup_cost', '0', false), set_config('parallel_tuple_cost', '0', false),
	set_config('jit', (way <> 'table')::text, false), set_config('jit_above_cost', '0', false),
	set_config('jit_inline_above_cost', '-1', false), set_config('jit_optimize_above_cost', '-1', false)
$$;
-- The rows of a query by one way, what of ours is in the plan, whether it has workers, and
-- whether something has been compiled if there is a compiler.
CREATE FUNCTION by_jit(way text, workers int4, query text, OUT rows text, OUT used text) LANGUAGE plpgsql AS $$
DECLARE
	line text;
	plan text := '';
BEGIN
	PERFORM by_way(way, workers);
	EXECUTE format('SELECT count(*) || '' rows, '' || coalesce(md5(string_agg(q::text, '' '' ORDER BY q::text)), '''') FROM (%s) q', query) INTO rows;
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		plan := plan || line;
	END LOOP;
	PERFORM by_way('table', 0);
	used := concat_ws(', ', CASE WHEN plan ~ 'pmhash join' THEN 'join' WHEN plan ~ 'Bitmap Index Scan on jit_' THEN 'bitmap' WHEN plan ~ 'Index (Only )?Scan using jit_' THEN 'index' WHEN plan ~ 'page scan' THEN 'pages' END,
		CASE WHEN plan ~ 'Workers Launched: [12]' THEN 'workers' END,
		CASE WHEN (plan ~ 'JIT:') <> pg_jit_available() THEN 'compiler not as it should be' END);
END $$;
-- The same by each way, alone and with workers.
CREATE FUNCTION by_each_way(query text, OUT rows text, OUT by_join text, OUT by_loop text, OUT other text, OUT with_workers text) LANGUAGE plpgsql AS $$
DECLARE
	wanted text;
	r record;
	said jsonb := '{}';
BEGIN
	wanted := (by_jit('table', 0, query)).rows;
	FOR r IN SELECT name, b.rows, b.used FROM (VALUES ('join', 'join', 0), ('loop', 'loop', 0), ('bitmap', 'bitmap', 0), ('pages', 'pages', 0), ('workers', 'join', 2), ('workers_loop', 'loop', 2)) w(name, way, n), by_jit(way, n, query) b LOOP
		said := said || jsonb_build_object(r.name, r.used || CASE WHEN r.rows <> wanted THEN ', differs: ' || r.rows ELSE '' END);
	END LOOP;
	rows := regexp_replace(wanted, ', \w*$', '');
	by_join := said->>'join'; by_loop := said->>'loop'; other := concat_ws('; ', said->>'bitmap', said->>'pages');
	with_workers := concat_ws('; ', said->>'workers', said->>'workers_loop');
END $$;
SET client_min_messages = warning;

-- joins: conditions and output of all kinds, columns that were dropped and added
SELECT w.* FROM unnest(ARRAY[
	'SELECT o.id, i.v FROM jit_outer o JOIN jit_inner i ON i.k = o.k',
	'SELECT o.id * 2 + i.v, upper(i.s), i.w / (1 + abs(i.w)), i.later FROM jit_outer o JOIN jit_inner i ON i.k = o.k AND i.v > o.id % 5 AND i.s LIKE ''%7'' WHERE o.id % 3 = 0',
	'SELECT o.id, i.v, i.later FROM jit_outer o LEFT JOIN jit_inner i ON i.k = o.k AND i.v + o.id % 7 = 9',
	'SELECT o.id, o.pad FROM jit_outer o WHERE EXISTS (SELECT FROM jit_inner i WHERE i.k = o.k AND i.v < o.id % 4)',
	'SELECT o.id FROM jit_outer o WHERE NOT EXISTS (SELECT FROM jit_inner i WHERE i.s = o.s AND i.w > o.id)',
	'SELECT o.id, i.k FROM jit_outer o JOIN jit_inner i ON i.s = o.s',
	'SELECT o.id, i.s FROM jit_outer o JOIN jit_inner i ON i.k + i.v = o.k',
	'SELECT o.id, i.w FROM jit_outer o JOIN jit_inner i ON i.n = o.n AND i.v < 9',
	'SELECT o.id, i.k FROM jit_outer o JOIN jit_inner i ON i.k = o.k + 1 AND i.k = abs(o.k + 1) AND o.id < 900',
	'SELECT o.k, count(*), sum(i.w::numeric), max(i.s) FROM jit_outer o JOIN jit_inner i ON i.k = o.k GROUP BY o.k HAVING sum(i.v) > 40',
	'SELECT o.id, i.v, j.v AS v2 FROM jit_outer o JOIN jit_inner i ON i.k = o.k JOIN jit_inner j ON j.s = o.s AND j.v = i.v WHERE o.id < 500'
	]) query, by_each_way(query) w;

-- the join's node below Gather
SELECT by_way('join', 2);
SET jit = off;
SELECT plan('SELECT o.id * 2 + i.v, upper(i.s) FROM jit_outer o JOIN jit_inner i ON i.k = o.k AND i.v > o.id % 5');
SET jit = on;
-- only the workers; only the leader; a worker's error, raised by compiled code
SET parallel_leader_participation = off;
SELECT count(*), sum(o.id * 2 + i.v) FROM jit_outer o JOIN jit_inner i ON i.k = o.k AND i.v > o.id % 5;
RESET parallel_leader_participation;
\set VERBOSITY terse
SELECT count(*), sum(100 / (i.v - 3)) FROM jit_outer o JOIN jit_inner i ON i.k = o.k AND i.v > o.id % 5;
\set VERBOSITY default
SET max_parallel_workers = 0;
SELECT count(*), sum(o.id * 2 + i.v) FROM jit_outer o JOIN jit_inner i ON i.k = o.k AND i.v > o.id % 5;
RESET max_parallel_workers;

-- scans with conditions, below nothing and in a rescan
SELECT w.* FROM unnest(ARRAY[
	'SELECT k + v AS x, s FROM jit_inner WHERE v = 7 AND w > k AND s LIKE ''%7''',
	'SELECT v, s FROM jit_inner WHERE k = 77 AND v % 2 = 0 AND s LIKE ''%7''',
	'SELECT v * 3 + later AS x FROM jit_inner WHERE k = ANY (ARRAY[3, 4, 5, 5, NULL, 499, 7777]) AND w > 100',
	'SELECT o.id, (SELECT sum(i.v + o.id) FROM jit_inner i WHERE i.k = o.k AND i.w > o.id) FROM jit_outer o WHERE o.id < 400'
	]) query, LATERAL (SELECT rows, by_loop, other FROM by_each_way(query)) w;

-- a cursor, and a statement that is kept; inlined and optimized
SELECT by_way('join', 0);
SET jit_inline_above_cost = 0;
SET jit_optimize_above_cost = 0;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT o.id, i.v + o.id AS x FROM jit_outer o JOIN jit_inner i ON i.k = o.k AND i.v > 10 WHERE o.id IN (5, 6, 7) ORDER BY 1, 2;
FETCH 2 FROM c;
DELETE FROM jit_inner WHERE k = 6;
COMMIT;
FETCH ALL FROM c;
CLOSE c;
SET plan_cache_mode = force_generic_plan;
PREPARE p(int4) AS SELECT count(*), sum(i.v + $1) FROM jit_outer o JOIN jit_inner i ON i.k = o.k AND i.v > $1;
EXECUTE p(3);
EXECUTE p(11);
DEALLOCATE p;
RESET ALL;
DROP TABLE jit_outer, jit_inner;
DROP FUNCTION by_way, by_jit, by_each_way;
