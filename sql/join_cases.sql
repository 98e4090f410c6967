--
-- Joins by groups of keys (src/join), bad cases: what is counted, what EXPLAIN says,
-- memory, tables of one page, without all-visible pages, truncated after planning;
-- parallel workers; conditions that guard rows.
--
CREATE TABLE wanted (id int4, k int4, n numeric, pad text);
INSERT INTO wanted SELECT i, (i * 379) % 1200, (i * 379) % 1200, repeat('w', 200) FROM generate_series(1, 1000) i;
CREATE TABLE stock (k int4, v int4, n numeric, pad text);
INSERT INTO stock SELECT i, i % 10, i, repeat('x', 200) FROM generate_series(1, 1000) i;
INSERT INTO stock SELECT 1100 + i % 2, i, 0, 'many' FROM generate_series(1, 3000) i;
CREATE INDEX stock_k ON stock USING pmhash (k);
CREATE INDEX stock_n ON stock USING pmhash (n);
VACUUM ANALYZE wanted, stock;

-- ---- figures: those of a nested loop over the same index ----

-- Force the one or the other.
CREATE FUNCTION force(way text) RETURNS void LANGUAGE sql AS $$
SELECT set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false),
	set_config('enable_nestloop', (way = 'loop')::text, false), set_config('pmhash.enable_join', (way = 'join')::text, false),
	set_config('enable_memoize', 'off', false), set_config('enable_bitmapscan', 'off', false),
	set_config('enable_seqscan', 'on', false), set_config('max_parallel_workers_per_gather', '0', false)
$$;
-- The same by both ways; a nested loop lets go of a page after each key, a join only
-- before the next page, so it may count fewer.
CREATE FUNCTION counted_twice(query text, OUT scans int8, OUT read int8, OUT fetched int8, OUT by_join text) LANGUAGE plpgsql AS $$
DECLARE
	l int8[];
	j int8[];
BEGIN
	PERFORM force('loop');
	l := counted(query, 'stock_k'::regclass, 'stock'::regclass);
	PERFORM force('join');
	j := counted(query, 'stock_k'::regclass, 'stock'::regclass);
	scans := l[1]; read := l[2]; fetched := l[3];
	by_join := CASE WHEN j[1:3] <> l[1:3] OR j[6] <> l[6] THEN 'differs: ' || j::text || ' ' || l::text
		WHEN j[4] > l[4] OR j[4] <> j[5] THEN format('pages: %s, %s hits, nested loop %s', j[4], j[5], l[4])
		WHEN j[4] < l[4] THEN 'fewer pages'
		ELSE 'same' END;
END $$;
SELECT query, c.* FROM unnest(ARRAY[
	'SELECT count(s.pad) FROM wanted w JOIN stock s ON s.k = w.k WHERE w.k < 1000',
	'SELECT count(s.pad) FROM wanted w JOIN stock s ON s.k = w.k AND s.v = 3 WHERE w.k < 1000',
	'SELECT count(s.pad) FROM wanted w LEFT JOIN stock s ON s.k = w.k WHERE w.k < 1000',
	'SELECT count(s.pad) FROM wanted w JOIN stock s ON s.k = w.k WHERE w.k BETWEEN 1095 AND 1105',
	'SELECT count(*) FROM wanted w WHERE EXISTS (SELECT FROM stock s WHERE s.k = w.k AND s.v = 3)',
	'SELECT count(*) FROM wanted w WHERE NOT EXISTS (SELECT FROM stock s WHERE s.k = w.k AND s.v = 3) AND w.k < 1000',
	'SELECT count(s.k) FROM wanted w JOIN stock s ON s.k = w.k',
	'SELECT count(*) FROM wanted w WHERE NOT EXISTS (SELECT FROM stock s WHERE s.k = w.k)'
	]) query, counted_twice(query) c;

-- ---- EXPLAIN ----

SELECT force('join');
-- The part of a plan that is about the join, as JSON.
CREATE FUNCTION join_node(query text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, VERBOSE, FORMAT JSON) ' || query INTO plan;
	RETURN jsonb_path_query_first(plan, '$.**?(@."Custom Plan Provider" == "pmhash join")');
END $$;
SELECT key, value FROM jsonb_each(join_node('SELECT w.id, s.pad FROM wanted w LEFT JOIN stock s ON s.k = w.k AND s.v <> 3 WHERE s.v IS NULL OR w.id > 5'))
WHERE key NOT LIKE '%Time%' AND key NOT LIKE '%Cost%' AND key NOT LIKE '%Blocks%' AND key NOT LIKE 'Plan%'
	AND key NOT IN ('Plans', 'Memory Usage', 'Disabled', 'Actual Rows') ORDER BY key COLLATE "C";
-- pages: each one visited is one in BUFFERS; nearly all by their hints, once known
SELECT (j ->> 'Shared Hit Blocks')::int - (j #>> '{Plans,0,Shared Hit Blocks}')::int = (j ->> 'Heap Blocks')::int AS counted,
	(j ->> 'Heap Blocks')::int - (j ->> 'Heap Blocks by Hint')::int <= (SELECT relpages FROM pg_class WHERE oid = 'stock'::regclass) AS hinted,
	(j ->> 'Heap Blocks')::int > (SELECT relpages FROM pg_class WHERE oid = 'stock'::regclass) AS again
FROM join_node('SELECT w.id, s.pad FROM wanted w JOIN stock s ON s.k = w.k WHERE w.k < 1000') j;

-- ---- memory: work_mem is what it takes at most ----

CREATE FUNCTION memory(kb int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	j jsonb;
BEGIN
	PERFORM set_config('work_mem', kb || 'kB', true);
	j := join_node('SELECT s.v, x.pad FROM (SELECT w.*, g FROM wanted w, generate_series(1, 15) g OFFSET 0) x JOIN stock s ON s.k = x.k WHERE x.k < 1000');
	RETURN CASE WHEN (j ->> 'Memory Usage')::int > kb THEN (j ->> 'Memory Usage') || ' kB'
		WHEN (j ->> 'Memory Usage')::int < kb / 4 THEN 'hardly used: ' || (j ->> 'Memory Usage') || ' kB' ELSE 'kept' END;
END $$;
SELECT kb, memory(kb) FROM unnest(ARRAY[64, 100, 256, 1000, 4096]) kb;

-- ---- the table ----

-- no page is all-visible: each row is looked at; after VACUUM none
CREATE TABLE visible (k int4);
INSERT INTO visible SELECT generate_series(1, 1000);
CREATE INDEX visible_k ON visible USING pmhash (k);
ANALYZE visible;
SELECT j -> 'Index Only' AS index_only, j -> 'Heap Fetches' AS fetches, (j ->> 'Actual Rows')::numeric::int AS rows
FROM join_node('SELECT v.k FROM wanted w JOIN visible v ON v.k = w.k') j;
DELETE FROM visible WHERE k % 2 = 0;
SELECT j -> 'Heap Fetches' AS fetches, (j ->> 'Actual Rows')::numeric::int AS rows
FROM join_node('SELECT v.k FROM wanted w JOIN visible v ON v.k = w.k') j;
VACUUM visible;
SELECT j -> 'Heap Fetches' AS fetches, (j ->> 'Actual Rows')::numeric::int AS rows
FROM join_node('SELECT v.k FROM wanted w JOIN visible v ON v.k = w.k') j;

-- a table of a page, and one that has none any more
CREATE TABLE small (k int4, v text);
INSERT INTO small SELECT i, 'v' || i FROM generate_series(1, 5) i;
CREATE INDEX small_k ON small USING pmhash (k);
ANALYZE small;
SELECT pg_relation_size('small') / current_setting('block_size')::int AS pages;
PREPARE of_small AS SELECT w.id, s.v FROM wanted w JOIN small s ON s.k = w.k ORDER BY 1, 2;
EXECUTE of_small;
DELETE FROM small;
VACUUM small;
SELECT pg_relation_size('small') AS bytes;
EXECUTE of_small;
INSERT INTO small SELECT i, 'again' || i FROM generate_series(1, 5) i;
EXECUTE of_small;
TRUNCATE small;
EXECUTE of_small;

-- truncated between planning and execution, by VACUUM and by TRUNCATE; grown again
SET plan_cache_mode = force_generic_plan;
PREPARE of_stock AS SELECT count(*), sum(s.v), count(s.pad) FROM wanted w JOIN stock s ON s.k = w.k;
SELECT count(*) FROM plan('EXECUTE of_stock') line WHERE line LIKE '%pmhash join%';
EXECUTE of_stock;
DELETE FROM stock WHERE ctid > '(9,0)';
SELECT pg_relation_size('stock') AS bytes \gset
VACUUM stock;
SELECT pg_relation_size('stock') < :bytes AS truncated;
EXECUTE of_stock;
SELECT count(*), sum(s.v), count(s.pad) FROM wanted w JOIN stock s ON s.k + 0 = w.k;
INSERT INTO stock SELECT i, i % 10, i, repeat('y', 200) FROM generate_series(501, 1000) i;
EXECUTE of_stock;
SELECT count(*), sum(s.v), count(s.pad) FROM wanted w JOIN stock s ON s.k + 0 = w.k;
-- while a cursor is open: VACUUM leaves its rows, and TRUNCATE is refused
BEGIN;
DECLARE c CURSOR FOR SELECT w.id, s.k FROM wanted w JOIN stock s ON s.k = w.k WHERE w.k BETWEEN 995 AND 1000 ORDER BY w.k;
FETCH 2 FROM c;
TRUNCATE stock;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT w.id, s.k FROM wanted w JOIN stock s ON s.k = w.k WHERE w.k BETWEEN 995 AND 1000;
FETCH 2 FROM c;
-- blocks that were not there when it began
INSERT INTO stock SELECT 997, i, i, repeat('z', 500) FROM generate_series(1, 5000) i;
FETCH ALL FROM c;
ROLLBACK;
BEGIN;
TRUNCATE stock;
EXECUTE of_stock;
ROLLBACK;
EXECUTE of_stock;
RESET plan_cache_mode;
DEALLOCATE ALL;

-- ---- parallel workers ----

SELECT force('join');
SET max_parallel_workers_per_gather = 2;
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SELECT plan('SELECT count(*), sum(s.v) FROM wanted w JOIN stock s ON s.k = w.k');
SELECT count(*), sum(s.v) FROM wanted w JOIN stock s ON s.k = w.k;
SELECT count(*), sum(s.v) FROM wanted w LEFT JOIN stock s ON s.k = w.k;
SELECT count(*) FROM wanted w WHERE NOT EXISTS (SELECT FROM stock s WHERE s.k = w.k);
-- a worker's error is the statement's
\set VERBOSITY terse
SELECT count(1 / (w.k - 758)) FROM wanted w JOIN stock s ON s.k = w.k;
\set VERBOSITY default
SELECT force('loop');
SELECT count(*), sum(s.v) FROM wanted w JOIN stock s ON s.k = w.k;
SELECT count(*), sum(s.v) FROM wanted w LEFT JOIN stock s ON s.k = w.k;
SELECT count(*) FROM wanted w WHERE NOT EXISTS (SELECT FROM stock s WHERE s.k = w.k);
RESET min_parallel_table_scan_size;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;

-- ---- conditions that guard rows ----

-- an equality that may leak cannot come before the policy: numeric's, not integers'
SELECT oprcode::regproc, proleakproof FROM pg_operator o JOIN pg_proc p ON p.oid = oprcode
WHERE o.oid IN ('=(int4,int4)'::regoperator, '=(numeric,numeric)'::regoperator) ORDER BY 1;
CREATE ROLE join_guest;
ALTER TABLE stock ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON stock USING (v <> 5);
GRANT SELECT ON stock, wanted TO join_guest;
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM wanted WHERE id % 2 = 0;
GRANT SELECT ON barrier TO join_guest;
SELECT force('join');
SET ROLE join_guest;
SELECT plan('SELECT count(*) FROM wanted w JOIN stock s ON s.k = w.k');
SELECT count(*) FROM wanted w JOIN stock s ON s.k = w.k;
SELECT count(*) FROM plan('SELECT count(*) FROM wanted w JOIN stock s ON s.n = w.n') line WHERE line LIKE '%pmhash join%';
SELECT plan('SELECT count(*) FROM barrier w JOIN stock s ON s.k = w.k');
SELECT count(*) FROM barrier w JOIN stock s ON s.k = w.k;
RESET ROLE;
-- who the policy is not for
SELECT count(*) FROM plan('SELECT count(*) FROM wanted w JOIN stock s ON s.n = w.n') line WHERE line LIKE '%pmhash join%';
SELECT count(*) FROM wanted w JOIN stock s ON s.k = w.k;
DROP VIEW barrier;
DROP TABLE wanted, stock, visible, small;
DROP OWNED BY join_guest;
DROP ROLE join_guest;
DROP FUNCTION force(text), counted_twice(text), join_node(text), memory(int);
RESET ALL;
