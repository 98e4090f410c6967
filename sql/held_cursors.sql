--
-- Cursors WITH HOLD: what they have not given yet is put away at COMMIT.  It is what their
-- snapshot saw, whatever became of the rows and of the index before and after.
--
CREATE TABLE held (k int4, v int4);
INSERT INTO held SELECT i % 40, i FROM generate_series(1, 4000) i;
CREATE INDEX held_k ON held USING pmhash (k);
CREATE TABLE held_keys (q int4, k int4);
INSERT INTO held_keys SELECT i, i FROM generate_series(3, 5) i;
VACUUM ANALYZE held, held_keys;

-- Kinds of plans, with a query of each; all have the rows of keys 3 to 5, or of one of them.
CREATE TABLE held_ways (way text, settings text, query text, node text);
INSERT INTO held_ways VALUES
	('index', 'enable_bitmapscan=off,pmhash.enable_pagescan=off', 'SELECT k, v FROM held WHERE k = 4', 'Index Scan using held_k'),
	('any', 'enable_bitmapscan=off,pmhash.enable_pagescan=off', 'SELECT k, v FROM held WHERE k = ANY (ARRAY[3, 4, 5])', 'Index Scan using held_k'),
	('only', 'enable_bitmapscan=off,pmhash.enable_pagescan=off', 'SELECT k FROM held WHERE k = 3', 'Index Only Scan using held_k'),
	('bitmap', 'enable_indexscan=off', 'SELECT k, v FROM held WHERE k = ANY (ARRAY[3, 4, 5])', 'Bitmap Index Scan on held_k'),
	('pages', 'enable_bitmapscan=off', 'SELECT k, v FROM held WHERE k = 4', 'page scan'),
	('join', 'cpu_index_tuple_cost=1000,enable_bitmapscan=off', 'SELECT h.k, h.v FROM held_keys q JOIN held h ON h.k = q.k', 'pmhash join'),
	('loop', 'pmhash.enable_join=off,enable_bitmapscan=off', 'SELECT h.k, h.v FROM held_keys q JOIN held h ON h.k = q.k', 'Index Scan using held_k');
CREATE FUNCTION by_settings(settings text) RETURNS void LANGUAGE sql AS $$
SELECT set_config(name, coalesce((SELECT split_part(s, '=', 2) FROM unnest(string_to_array(settings, ',')) s WHERE split_part(s, '=', 1) = name), value), false)
FROM (VALUES ('enable_seqscan', 'off'), ('enable_indexscan', 'on'), ('enable_bitmapscan', 'on'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'),
	('enable_material', 'off'), ('enable_memoize', 'off'), ('cpu_index_tuple_cost', '0.005'), ('pmhash.enable_join', 'on'), ('pmhash.enable_pagescan', 'on'),
	('max_parallel_workers_per_gather', '0')) d(name, value)
$$;

-- Rows that are left in the cursor of a way, or some of them, added to those it has given.
CREATE TABLE given (way text, k int4, v int4);
CREATE FUNCTION take(way text, n int4) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'held_' || way;
	r record;
BEGIN
	FOR i IN 1..n LOOP
		FETCH c INTO r;
		EXIT WHEN NOT FOUND;
		INSERT INTO given SELECT way, (to_jsonb(r)->>'k')::int4, (to_jsonb(r)->>'v')::int4;
	END LOOP;
END $$;
CREATE FUNCTION open_all(more text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	w held_ways;
	line text;
	used bool;
BEGIN
	FOR w IN SELECT * FROM held_ways LOOP
		PERFORM by_settings(w.settings);
		used := false;
		FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || w.query LOOP
			used := used OR line LIKE '%' || w.node || '%';
		END LOOP;
		EXECUTE format('DECLARE held_%s %s CURSOR WITH HOLD FOR %s', w.way, more, w.query);
		IF NOT used THEN RETURN NEXT w.way || ': has another plan'; END IF;
	END LOOP;
	PERFORM by_settings('');
END $$;
-- What each has given in the end: all rows of its keys, each once, and no others.
CREATE FUNCTION judge() RETURNS TABLE (way text, rows int8, wrong int8) LANGUAGE sql AS $$
SELECT way, count(*), count(*) FILTER (WHERE NOT (k BETWEEN 3 AND 5 AND (v BETWEEN 1 AND 4000 AND v % 40 = k OR way = 'only' AND v IS NULL)))
	+ count(v) - count(DISTINCT v)
FROM given GROUP BY way ORDER BY way
$$;

-- rows go and come after COMMIT, and the index is made anew, and dropped
BEGIN;
SELECT open_all('NO SCROLL');
SELECT count(take(way, 50)) FROM held_ways;
COMMIT;
DELETE FROM held WHERE v % 3 = 0;
UPDATE held SET k = 4 WHERE k = 20;
VACUUM held;
INSERT INTO held SELECT 4, i FROM generate_series(5001, 5100) i;
SELECT count(take(way, 10)) FROM held_ways;
REINDEX INDEX CONCURRENTLY held_k;
SELECT count(take(way, 10)) FROM held_ways;
DROP INDEX held_k;
TRUNCATE held;
SELECT count(take(way, 10000)) FROM held_ways;
SELECT * FROM judge();
CLOSE ALL;

-- the transaction changes rows itself before it commits; cursors have begun, or have not
TRUNCATE given;
INSERT INTO held SELECT i % 40, i FROM generate_series(1, 4000) i;
CREATE INDEX held_k ON held USING pmhash (k);
VACUUM ANALYZE held;
BEGIN;
SELECT open_all('NO SCROLL');
SELECT count(take(way, 50)) FROM held_ways WHERE way <> 'any';
DELETE FROM held WHERE v % 2 = 0;
UPDATE held SET k = 3 WHERE k = 30;
INSERT INTO held SELECT 4, i FROM generate_series(5001, 6000) i;
SAVEPOINT s;
INSERT INTO held SELECT 5, i FROM generate_series(5001, 6000) i;
ROLLBACK TO s;
SELECT count(take(way, 10)) FROM held_ways;
COMMIT;
VACUUM held;
SELECT count(take(way, 10000)) FROM held_ways;
SELECT * FROM judge();
CLOSE ALL;

-- scrolled: COMMIT reads all from the beginning
TRUNCATE given, held;
INSERT INTO held SELECT i % 40, i FROM generate_series(1, 4000) i;
VACUUM ANALYZE held;
BEGIN;
SELECT open_all('SCROLL');
SELECT count(take(way, 70)) FROM held_ways;
UPDATE held SET k = k + 1;
COMMIT;
VACUUM held;
REINDEX INDEX held_k;
TRUNCATE given;
MOVE ABSOLUTE 0 IN held_index;
MOVE ABSOLUTE 0 IN held_any;
MOVE ABSOLUTE 0 IN held_only;
MOVE ABSOLUTE 0 IN held_bitmap;
MOVE ABSOLUTE 0 IN held_pages;
MOVE ABSOLUTE 0 IN held_join;
MOVE ABSOLUTE 0 IN held_loop;
SELECT count(take(way, 10000)) FROM held_ways;
SELECT * FROM judge();
MOVE ABSOLUTE 21 IN held_only;
FETCH BACKWARD 2 FROM held_only;
CLOSE ALL;

-- a transaction that is rolled back takes its cursors with it; those of before stay
BEGIN;
DECLARE kept CURSOR WITH HOLD FOR SELECT count(*) FROM held WHERE k = 5;
COMMIT;
BEGIN;
DECLARE lost CURSOR WITH HOLD FOR SELECT k FROM held WHERE k = 5;
FETCH 1 FROM lost;
ROLLBACK;
FETCH 1 FROM kept;
FETCH 1 FROM lost;
CLOSE ALL;

SELECT pmhash.check('held_k');
RESET ALL;
DROP TABLE held, held_keys, held_ways, given;
DROP FUNCTION by_settings, take, open_all, judge;
