--
-- Page scans (src/join/pages_exec.c): all rows of one key, a page of the table under
-- one lock at a time.
--
CREATE TABLE pages (k int4, v int4, t text, n numeric);
INSERT INTO pages SELECT i % 5, i, 't' || i % 5, i % 5 FROM generate_series(1, 10000) i;
INSERT INTO pages SELECT 1000 + i, i, 'few', 1000 + i FROM generate_series(1, 1000) i;
INSERT INTO pages SELECT NULL, i FROM generate_series(1, 500) i;
CREATE INDEX pages_k ON pages USING pmhash (k);
CREATE INDEX pages_t ON pages USING pmhash (t);
CREATE INDEX pages_n_half ON pages USING pmhash ((n / 2));
CREATE INDEX pages_part ON pages USING pmhash (v) WHERE k = 3;
CREATE INDEX pages_kt ON pages USING pmhash (n, t);
VACUUM ANALYZE pages;
-- keys that are not known when the plan is made: each of five is one of many rows
CREATE TABLE pages_few AS SELECT * FROM pages WHERE k < 5;
CREATE INDEX pages_few_k ON pages_few USING pmhash (k);
VACUUM ANALYZE pages_few;

-- By index: whatever else there is would be dearer.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET max_parallel_workers_per_gather = 0;

-- A query by a page scan and by a sequential scan: how many rows, and is it the same?
CREATE FUNCTION by_pages(query text, settings text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	wanted text[];
	got text[];
	uses bool;
BEGIN
	SELECT bool_or(line LIKE '%pmhash page scan%') INTO uses FROM plan(query) line;
	EXECUTE format('SELECT array_agg(q::text) FROM (%s) q', query) INTO got;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE format('SELECT array_agg(q::text) FROM (%s) q', query) INTO wanted;
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_indexscan = on;
	RETURN CASE WHEN uses THEN '' ELSE 'not used, ' END || coalesce(cardinality(wanted), 0) || ' rows, ' ||
		coalesce(difference(got, wanted), 'same');
END $$;

-- ---- where it is used ----

SELECT plan('SELECT sum(v) FROM pages WHERE k = 3 AND v % 2 = 0');
SELECT plan('SELECT v FROM pages WHERE k = 3 LIMIT 5');
SELECT plan('SELECT v FROM pages WHERE k = 1500');
SELECT plan('SELECT count(*) FROM pages WHERE k = 3');
SELECT plan('SELECT v FROM pages WHERE k = ANY (''{3,4}'')');
SELECT plan('SELECT v FROM pages WHERE k = 3 FOR UPDATE');
SELECT plan('SELECT v FROM (SELECT * FROM pages WHERE k = 3) s FOR UPDATE');
SELECT plan('UPDATE pages SET v = 1 WHERE k = 3');
SELECT plan('INSERT INTO pages SELECT * FROM pages WHERE k = 3');
SELECT plan('WITH d AS (DELETE FROM pages WHERE k = 3 RETURNING v) SELECT sum(d.v) FROM d, pages p WHERE p.k = 2');
SET pmhash.enable_pagescan = off;
SELECT plan('SELECT sum(v) FROM pages WHERE k = 3');
RESET pmhash.enable_pagescan;
EXPLAIN (COSTS OFF, VERBOSE) SELECT p.v FROM pages p WHERE 3::int8 = k AND v > 5;
CREATE FUNCTION analyzed(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
		IF explain_line(line) IS NOT NULL THEN
			RETURN NEXT regexp_replace(explain_line(line), '(Heap Blocks.*): [1-9][0-9]*', '\1: some');
		END IF;
	END LOOP;
END $$;
SELECT analyzed('SELECT v FROM pages WHERE k = 3 AND v <= 5000');

-- ---- answers ----

CREATE FUNCTION all_by_pages() RETURNS TABLE (query text, answer text) LANGUAGE sql AS $$
SELECT q, by_pages(q) FROM unnest(ARRAY[
	'SELECT * FROM pages WHERE k = 3',
	'SELECT ctid, tableoid::regclass, xmin, v FROM pages WHERE k = 4',
	'SELECT v, t FROM pages WHERE k = 2 AND v % 7 = 1',
	'SELECT p FROM pages p WHERE k = 1::int8',
	'SELECT v FROM pages WHERE t = ''t2''',
	'SELECT v FROM pages WHERE n / 2 = 1.50',
	'SELECT v FROM pages WHERE n = 2 AND t = ''t2''',
	'SELECT length(t) FROM pages WHERE t = ''t3'' AND v % 3 = 1',
	'SELECT v FROM pages_few WHERE k = (SELECT 4)',
	'SELECT v FROM pages WHERE k = 2 AND k = 2::int8 AND v IS NOT NULL',
	'SELECT count(*), sum(v), min(t) FROM pages WHERE k = 0',
	'SELECT g, s.* FROM generate_series(0, 6) g, LATERAL (SELECT count(t), sum(v) FROM pages_few WHERE k = g OFFSET 0) s',
	'SELECT g, (SELECT sum(length(t) + v) FROM pages_few WHERE k = g AND n >= 0) FROM generate_series(0, 9, 3) g',
	'SELECT a.v, b.n FROM pages a, pages b WHERE a.k = 1 AND b.k = 1 AND a.v = b.v'
	]) q
$$;
SELECT * FROM all_by_pages();
-- nothing is all-visible: rows gone, changed in place (chains), changed otherwise
DELETE FROM pages WHERE v % 11 = 3;
DELETE FROM pages_few WHERE v % 7 = 3;
UPDATE pages SET n = n WHERE v % 5 = 2 AND v < 3000;
UPDATE pages SET t = t || '' WHERE v % 13 = 5;
UPDATE pages SET v = v + 1 WHERE k = 3 AND v > 9000;
SELECT * FROM all_by_pages();
-- again, without what a scan has removed or pruned
SELECT * FROM all_by_pages();
VACUUM pages;
SELECT * FROM all_by_pages();
-- rows that the transaction has queued, and taken back
BEGIN;
INSERT INTO pages SELECT 3, -i, 't3', 3 FROM generate_series(1, 700) i;
SELECT by_pages('SELECT * FROM pages WHERE k = 3');
SAVEPOINT s;
INSERT INTO pages SELECT 3, -i, 't3', 3 FROM generate_series(1, 700) i;
DELETE FROM pages WHERE k = 3 AND v % 2 = 0;
SELECT by_pages('SELECT * FROM pages WHERE k = 3');
ROLLBACK TO s;
SELECT by_pages('SELECT * FROM pages WHERE k = 3');
-- what a statement inserts it does not see
INSERT INTO pages SELECT k, v, 'copy', n FROM pages WHERE k = 3;
SELECT by_pages('SELECT * FROM pages WHERE k = 3');
ROLLBACK;
SELECT by_pages('SELECT * FROM pages WHERE k = 3');

-- pages of many rows, which take several turns; a key all of whose rows are on one page
CREATE TABLE narrow (k int4);
INSERT INTO narrow SELECT i / 2000 FROM generate_series(0, 5999) i;
INSERT INTO narrow SELECT 7 FROM generate_series(1, 100) i;
CREATE INDEX narrow_k ON narrow USING pmhash (k);
VACUUM ANALYZE narrow;
SELECT by_pages('SELECT ctid FROM narrow WHERE k = 1'), by_pages('SELECT ctid FROM narrow WHERE k = 7');
DELETE FROM narrow WHERE ctid::text ~ '[0369]\)$';
SELECT by_pages('SELECT ctid FROM narrow WHERE k = 1'), by_pages('SELECT ctid FROM narrow WHERE k = 7');
VACUUM narrow;
INSERT INTO narrow SELECT 1 FROM generate_series(1, 3000);
SELECT by_pages('SELECT ctid FROM narrow WHERE k = 1'), by_pages('SELECT ctid FROM narrow WHERE k = 7');

-- prepared statements; NULL; errors in the middle, caught
SET plan_cache_mode = force_generic_plan;
PREPARE of_key(int) AS SELECT count(v), sum(v) FROM pages_few WHERE k = $1;
SELECT plan('EXECUTE of_key(1)');
EXECUTE of_key(1);
EXECUTE of_key(NULL);
EXECUTE of_key(12345);
EXECUTE of_key(1500);
PREPARE failing(int) AS SELECT sum(1000 / (v - $1)) FROM pages_few WHERE k = 0;
DO $$
BEGIN
	FOR i IN 1..50 LOOP
		BEGIN
			EXECUTE format('EXECUTE failing(%s)', i * 5);
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END $$;
EXECUTE of_key(0);
RESET plan_cache_mode;
DEALLOCATE ALL;

-- the table has become smaller since the plan was made, or another one
-- (count(ctid) is count(*) to PostgreSQL 19)
PREPARE of_narrow AS SELECT count(ctid::text) FROM narrow WHERE k = 1;
SET plan_cache_mode = force_generic_plan;
EXECUTE of_narrow;
DELETE FROM narrow WHERE ctid >= '(5,1)';
VACUUM narrow;
SELECT count(*) FROM plan('EXECUTE of_narrow') line WHERE line LIKE '%page scan%';
EXECUTE of_narrow;
SELECT count(ctid) FROM narrow WHERE k + 0 = 1;
BEGIN;
TRUNCATE narrow;
EXECUTE of_narrow;
INSERT INTO narrow SELECT 1 FROM generate_series(1, 500);
EXECUTE of_narrow;
ROLLBACK;
EXECUTE of_narrow;
DEALLOCATE ALL;
RESET plan_cache_mode;

-- ---- cursors ----

BEGIN;
SELECT plan('DECLARE d CURSOR FOR SELECT * FROM pages WHERE k = 2');
DECLARE c CURSOR FOR SELECT * FROM pages WHERE k = 2;
MOVE 70 FROM c;
FETCH 2 FROM c;
UPDATE pages SET n = -1 WHERE CURRENT OF c;
FETCH 1 FROM c;
DELETE FROM pages WHERE CURRENT OF c;
SELECT k, v, n FROM pages WHERE k = 2 AND n = -1;
SAVEPOINT s;
FETCH BACKWARD 1 FROM c;
ROLLBACK TO s;
DECLARE scrolling SCROLL CURSOR WITH HOLD FOR SELECT v FROM pages WHERE k = 4;
MOVE 100 FROM scrolling;
FETCH 2 FROM scrolling;
FETCH BACKWARD 3 FROM scrolling;
COMMIT;
FETCH BACKWARD 2 FROM scrolling;
MOVE ALL FROM scrolling;
CLOSE scrolling;
SELECT by_pages('SELECT * FROM pages WHERE k = 2');

-- ---- other tables ----

CREATE TEMP TABLE pages_temp AS SELECT * FROM pages;
CREATE INDEX pages_temp_k ON pages_temp USING pmhash (k);
ANALYZE pages_temp;
SELECT by_pages('SELECT * FROM pages_temp WHERE k = 3');
CREATE TABLE parts (k int4, v int4, pad text) PARTITION BY RANGE (v);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (5000);
CREATE TABLE parts_2 (pad text, v int4, k int4);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (5000) TO (20000);
CREATE INDEX parts_k ON parts USING pmhash (k);
INSERT INTO parts SELECT k, v, t FROM pages WHERE k < 5 AND v >= 0;
VACUUM ANALYZE parts;
SELECT plan('SELECT sum(v) FROM parts WHERE k = 3');
SELECT by_pages('SELECT k, v, pad FROM parts WHERE k = 3'), by_pages('SELECT p FROM parts p WHERE k = 3 AND v > 100');
CREATE MATERIALIZED VIEW pages_view AS SELECT * FROM pages;
CREATE INDEX pages_view_k ON pages_view USING pmhash (k);
ANALYZE pages_view;
SELECT by_pages('SELECT * FROM pages_view WHERE k = 3');

-- ---- figures are those of an index scan; dead entries are noted ----

VACUUM pages;
SELECT count(v) FROM pages WHERE k = 1;
BEGIN;
SELECT counted('SELECT count(v) FROM pages WHERE k = 1', 'pages_k'::regclass, 'pages'::regclass) AS by_pages \gset
SET LOCAL pmhash.enable_pagescan = off;
SELECT counted('SELECT count(v) FROM pages WHERE k = 1', 'pages_k'::regclass, 'pages'::regclass) AS by_index \gset
SELECT :'by_pages'::int8[] = :'by_index'::int8[] AS same, (:'by_pages'::int8[])[1:3];
COMMIT;
CREATE UNLOGGED TABLE pages_dead AS SELECT i % 2 AS k, i AS v FROM generate_series(1, 4000) i;
CREATE INDEX pages_dead_k ON pages_dead USING pmhash (k);
ANALYZE pages_dead;
DELETE FROM pages_dead WHERE v > 1000;
CREATE FUNCTION left_by_pages(wanted int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	entries int8;
BEGIN
	FOR i IN 1..500 LOOP
		PERFORM sum(v) FROM pages_dead WHERE k = 1;
		SELECT s.entries INTO entries FROM pmhash.stats('pages_dead_k') s;
		EXIT WHEN entries <= wanted;
		PERFORM pg_sleep(0.02);
	END LOOP;
	RETURN entries;
END $$;
SELECT left_by_pages(2500);
SELECT by_pages('SELECT * FROM pages_dead WHERE k = 1');

-- ---- parallel workers ----

SET max_parallel_workers_per_gather = 2;
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET enable_material = off;
SET enable_memoize = off;
SET pmhash.enable_join = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_seqscan = on;
SELECT plan('SELECT count(*), sum(p.v) FROM pages_few f, pages p WHERE p.k = 3 AND p.t <> ''x'' AND f.v % 200 = 7');
SELECT count(*), sum(p.v) FROM pages_few f, pages p WHERE p.k = 3 AND p.t <> 'x' AND f.v % 200 = 7;
SET pmhash.enable_pagescan = off;
SELECT count(*), sum(p.v) FROM pages_few f, pages p WHERE p.k = 3 AND p.t <> 'x' AND f.v % 200 = 7;
RESET pmhash.enable_pagescan;
SET enable_seqscan = off;
RESET max_parallel_workers_per_gather;

-- ---- conditions that guard rows ----

CREATE ROLE pages_guest;
CREATE FUNCTION tell(v int4) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
	IF v > 9500 THEN RAISE NOTICE 'told %', v; END IF;
	RETURN true;
END $$;
ALTER TABLE pages ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON pages USING (v <= 9500);
GRANT SELECT ON pages TO pages_guest;
SET ROLE pages_guest;
SELECT plan('SELECT v FROM pages WHERE k = 3 AND tell(v)');
SELECT count(*), max(v) <= 9500 AS kept FROM pages WHERE k = 3 AND tell(v);
RESET ROLE;
SELECT pmhash.check('pages_k'), pmhash.check('narrow_k'), pmhash.check('pages_dead_k');
DROP TABLE pages_dead, parts, narrow, pages_few, pages CASCADE;
DROP ROLE pages_guest;
