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
	set_config('cpu_index_tuple_cost', CASE way WHEN 'join' THEN '1000' ELSE '0.005' END, false), set_config('pmhash.enable_join', (way = 'join')::text, false),
	set_config('enable_memoize', 'off', false), set_config('enable_material', 'off', false), set_config('enable_bitmapscan', 'off', false),
	set_config('enable_seqscan', 'on', false), set_config('max_parallel_workers_per_gather', '0', false)
$$;
-- The same by both ways; a nested loop lets go of a page after each key (until 18), a join
-- only before the next page, so it may count fewer.
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
-- pages: each one visited is counted once; nearly all by their hints, once known
BEGIN;
SELECT pg_stat_get_xact_blocks_fetched('stock'::regclass) AS before \gset
SELECT pg_stat_get_xact_blocks_fetched('stock'::regclass) - :before = (j ->> 'Heap Blocks')::int AS counted,
	(j ->> 'Heap Blocks')::int - (j ->> 'Heap Blocks by Hint')::int <= (SELECT relpages FROM pg_class WHERE oid = 'stock'::regclass) AS hinted,
	(j ->> 'Heap Blocks')::int > (SELECT relpages FROM pg_class WHERE oid = 'stock'::regclass) AS again
FROM join_node('SELECT w.id, s.pad FROM wanted w JOIN stock s ON s.k = w.k WHERE w.k < 1000') j;
COMMIT;

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
-- a key with very many rows: what its cursor remembers is counted
CREATE TABLE heavy (k int4);
INSERT INTO heavy SELECT CASE WHEN i <= 60000 THEN 1 ELSE i END FROM generate_series(1, 61000) i;
CREATE INDEX heavy_k ON heavy USING pmhash (k);
VACUUM ANALYZE heavy;
SELECT m[1] BETWEEN 1 AND 50 AS without, m[2] - m[1] BETWEEN 50 AND 500 AS more
FROM (SELECT array_agg((j ->> 'Memory Usage')::int ORDER BY n) FROM unnest('{60001,1}'::int[]) WITH ORDINALITY k (k, n),
	join_node(format('SELECT h.ctid FROM (SELECT g AS k FROM generate_series(%s, %s + 9) g OFFSET 0) x JOIN heavy h ON h.k = x.k', k, k)) j) a (m);

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
-- Gather below the join: outer rows come from workers
SELECT plan('SELECT count(*), sum(s.v) FROM (SELECT k FROM wanted LIMIT 100000) w JOIN stock s ON s.k = w.k');
SELECT count(*), sum(s.v) FROM (SELECT k FROM wanted LIMIT 100000) w JOIN stock s ON s.k = w.k;
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
-- ---- a materialized view that has no data ----

CREATE MATERIALIZED VIEW emptied AS SELECT i AS k, i % 10 AS v FROM generate_series(1, 1000) i;
CREATE INDEX emptied_k ON emptied USING pmhash (k);
CREATE INDEX emptied_v ON emptied USING pmhash (v);
ANALYZE emptied;
SELECT force('join');
SELECT count(m.v), sum(m.v) FROM wanted w JOIN emptied m ON m.k = w.k;
REFRESH MATERIALIZED VIEW emptied WITH NO DATA;
SELECT count(m.v), sum(m.v) FROM wanted w JOIN emptied m ON m.k = w.k;
SELECT count(m.v), count(*) FROM wanted w LEFT JOIN emptied m ON m.k = w.k;
SELECT count(*) FROM wanted w WHERE NOT EXISTS (SELECT FROM emptied m WHERE m.k = w.k);
CREATE TABLE from_emptied AS SELECT w.k, m.v FROM wanted w LEFT JOIN emptied m ON m.k = w.k;
SET enable_seqscan = off;
SELECT count(*) FROM emptied WHERE v = 3;
-- it may be explained, and a table made like it without rows
SELECT plan('SELECT count(m.v) FROM wanted w JOIN emptied m ON m.k = w.k');
SELECT count(*) FROM plan('CREATE TABLE from_emptied AS SELECT w.k, m.v FROM wanted w JOIN emptied m ON m.k = w.k') line WHERE line LIKE '%pmhash join%';
CREATE TABLE from_emptied AS SELECT w.k, m.v FROM wanted w JOIN emptied m ON m.k = w.k WITH NO DATA;
SELECT count(*) FROM from_emptied;
REFRESH MATERIALIZED VIEW emptied;
SELECT force('join');
SELECT count(m.v), sum(m.v) FROM wanted w JOIN emptied m ON m.k = w.k;
DROP TABLE from_emptied;
DROP MATERIALIZED VIEW emptied;

-- ---- memory of outer rows without a match, none of which is handed out ----

-- The last row is the only one; that query in its targets sees what the others have left.
CREATE FUNCTION left_by(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT CASE WHEN (SELECT max(total_bytes) FROM pg_backend_memory_contexts WHERE name = %L AND w.id > 0) < 1000000
		THEN %L ELSE %L END FROM nowhere w LEFT JOIN stock s ON s.k = w.k
		WHERE coalesce(s.pad, repeat(%L, 10000) || w.id) = repeat(%L, 10000) || 3000 AND %s',
		'ExprContext', 'given back', 'kept', 'x', 'x', condition);
	result text;
BEGIN
	IF NOT EXISTS (SELECT FROM plan(query) line WHERE line LIKE '%pmhash join%') THEN
		RAISE 'another plan';
	END IF;
	EXECUTE query INTO STRICT result;
	RETURN result;
END $$;
SELECT force('join');
CREATE TABLE nowhere (id int4, k int4);
INSERT INTO nowhere SELECT i, i + 100000 FROM generate_series(1, 3000) i;
ANALYZE nowhere;
SELECT left_by('true') AS "left", left_by('s.k IS NULL') AS anti;
UPDATE nowhere SET k = NULL;
ANALYZE nowhere;
SELECT left_by('true') AS "left, key is NULL", left_by('s.k IS NULL') AS anti;
DROP TABLE nowhere;
DROP FUNCTION left_by(text);

-- ---- fields of a RECORD have names that only the outer plan knows ----

CREATE FUNCTION pair_of(i int4, OUT key text, OUT value int4) RETURNS record LANGUAGE sql IMMUTABLE AS $$ SELECT 'k' || i, i $$;
CREATE FUNCTION record_plan(way text, query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM force(way);
	RETURN QUERY EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query;
END $$;
SELECT query, bool_or(line LIKE '%).key%') AS "key", bool_or(line LIKE '%).f1%') AS f1
FROM unnest(ARRAY[
	'SELECT (x.r).key, s.v FROM (SELECT w.k, pair_of(w.k) AS r FROM wanted w OFFSET 0) x JOIN stock s ON s.k = x.k',
	'SELECT s.v FROM (SELECT w.k, pair_of(w.k) AS r FROM wanted w OFFSET 0) x JOIN stock s ON s.k = x.k AND s.pad <> (x.r).key',
	'WITH x AS MATERIALIZED (SELECT w.k, pair_of(w.k) AS r FROM wanted w) SELECT (x.r).key, s.v FROM x JOIN stock s ON s.k = x.k',
	'SELECT (SELECT (x.r).key || t.k FROM stock t LIMIT 1), s.v FROM (SELECT w.k, pair_of(w.k) AS r FROM wanted w OFFSET 0) x JOIN stock s ON s.k = x.k',
	'SELECT y.key, s.v FROM wanted o LEFT JOIN (SELECT x.k, coalesce((x.r).key, ''none'') AS key FROM (SELECT w.k, pair_of(w.k) AS r FROM wanted w OFFSET 0) x) y ON y.k = o.k LEFT JOIN stock s ON s.k = o.k + coalesce(y.k, 0)'
	]) query, record_plan('join', query) line GROUP BY query ORDER BY query COLLATE "C";
-- others are as good as ever: of a type with a name, and a whole row
SELECT count(*) FROM plan('SELECT x, (x.w).k, s.v FROM (SELECT w, w.k FROM wanted w OFFSET 0) x JOIN stock s ON s.k = x.k') line WHERE line LIKE '%pmhash join%';
DROP FUNCTION pair_of(int4), record_plan(text, text);

-- ---- a sub-query that locks rows is not read ahead ----

SELECT force('join');
CREATE TABLE jobs (id int4, k int4);
INSERT INTO jobs SELECT i, i FROM generate_series(1, 20) i;
ANALYZE jobs;
CREATE FUNCTION locked(query text, OUT rows int8, OUT locked int8) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SELECT count(*) FROM (%s) q', query) INTO rows;
	locked := (SELECT count(*) FROM jobs WHERE xmax = pg_current_xact_id()::xid);
	UPDATE jobs SET id = id;
END $$;
SET cpu_index_tuple_cost = 1;
SELECT l.* FROM unnest(ARRAY[
	'SELECT * FROM (SELECT * FROM jobs ORDER BY id FOR UPDATE SKIP LOCKED) j JOIN stock s ON s.k = j.k LIMIT 2',
	'SELECT * FROM (SELECT * FROM (SELECT * FROM jobs ORDER BY id FOR SHARE) i OFFSET 0) j JOIN stock s ON s.k = j.k LIMIT 2',
	'WITH j AS (SELECT * FROM jobs ORDER BY id FOR UPDATE) SELECT * FROM j JOIN stock s ON s.k = j.k LIMIT 2'
	]) query, locked(query) l;
SET cpu_index_tuple_cost = 1000;
-- what changes rows is always read to its end
SELECT count(*) FROM plan('WITH j AS (DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE id < 5 FOR UPDATE) RETURNING k) SELECT * FROM j JOIN stock s ON s.k = j.k LIMIT 2') line
WHERE line LIKE '%pmhash join%';
DROP TABLE jobs;
DROP FUNCTION locked(text);

-- ---- more outer columns than a tuple can have ----

SELECT force('join');
DO $$
DECLARE
	one_row text := (SELECT string_agg('1 AS c' || i, ', ') FROM generate_series(1, 600) i);
	sums text := (SELECT string_agg(format('a.c%s + b.c%s + c.c%s + d.c%s', i, i, i, i), ' + ') FROM generate_series(1, 600) i);
	tab text;
	result int8;
BEGIN
	FOREACH tab IN ARRAY ARRAY['a', 'b', 'c', 'd'] LOOP
		EXECUTE format('CREATE TEMPORARY TABLE many_%s AS SELECT %s', tab, one_row);
	END LOOP;
	CREATE INDEX ON many_d USING pmhash (c1);
	PERFORM set_config('join_collapse_limit', '1', true);
	EXECUTE format('SELECT %s FROM many_a a JOIN many_b b ON b.c2 = a.c2 JOIN many_c c ON c.c3 = b.c3 JOIN many_d d ON d.c1 = c.c1', sums) INTO result;
	RAISE NOTICE 'sum: %', result;
END $$;

-- ---- aggregates below a join (PostgreSQL 19): it is not ours ----

CREATE TABLE parts (fk int4, v int4);
INSERT INTO parts SELECT i % 20, i FROM generate_series(1, 2000) i;
CREATE TABLE wholes (k int4, g int4);
INSERT INTO wholes SELECT i, i % 3 FROM generate_series(0, 999) i;
CREATE INDEX wholes_k ON wholes USING pmhash (k);
ANALYZE parts, wholes;
SELECT w.g, sum(p.v), count(*) FROM parts p JOIN wholes w ON w.k = p.fk GROUP BY w.g ORDER BY w.g;
DROP TABLE parts, wholes;

DROP TABLE wanted, stock, visible, small;
DROP OWNED BY join_guest;
DROP ROLE join_guest;
DROP FUNCTION force(text), counted_twice(text), join_node(text), memory(int);
RESET ALL;
