--
-- = ANY over keys with short and with long lists: the first rows come soon, all
-- come once, and many in the order of the heap.
--
CREATE TABLE lists (k int4, n int4);
-- keys 0 .. 63 have k * k rows, keys 1001 .. 1100 one each, mixed with each other
INSERT INTO lists SELECT k, n FROM generate_series(0, 63) k, generate_series(1, k * k) n ORDER BY n, k;
INSERT INTO lists SELECT k, 0 FROM generate_series(1001, 1100) k;
CREATE INDEX lists_k ON lists USING pmhash (k);
VACUUM ANALYZE lists;

CREATE VIEW by_any AS SELECT q.name, a.* FROM (VALUES
	('all', 'SELECT * FROM lists WHERE k = ANY (ARRAY(SELECT generate_series(-5, 1200)))'),
	('short', 'SELECT * FROM lists WHERE k = ANY (ARRAY(SELECT generate_series(0, 12)))'),
	('long', 'SELECT * FROM lists WHERE k = ANY (''{63,62,61,60,59}'')'),
	('one long', 'SELECT * FROM lists WHERE k = ANY (''{63,1001,1002,1003,1004,1005,1006,1007,1008,1009,1010,1011}'')'),
	('repeated', 'SELECT * FROM lists WHERE k = ANY (''{63,63,50,50,7,7,7,NULL}'')'),
	('other type', 'SELECT * FROM lists WHERE k = ANY (''{63,18,17,4611686018427387904}''::int8[])'),
	('key', 'SELECT k FROM lists WHERE k = ANY (ARRAY(SELECT generate_series(10, 60)))'),
	('nothing', 'SELECT * FROM lists WHERE k = ANY (''{0,-1,5000}'')')) AS q (name, query),
	answers(q.query, 'lists_k') a;
SELECT * FROM by_any;

SET enable_seqscan = off;
SET enable_bitmapscan = off;
-- LIMIT and EXISTS, from every place where a batch may end
SELECT sum(n) AS rows, sum(n) = sum(least(g * 97, 85344)) AS "as many as asked for" FROM generate_series(1, 100) g,
	LATERAL (SELECT count(*) AS n FROM (SELECT FROM lists WHERE k = ANY (ARRAY(SELECT generate_series(0, 63))) LIMIT g * 97) s) l;
SELECT count(*) FROM generate_series(0, 63) g WHERE EXISTS (SELECT 1 FROM lists WHERE k IN (g, 63 - g) OFFSET 0);
-- what the first row takes: a small batch, whatever the lists
CREATE VIEW scan_memory AS SELECT sum(total_bytes) AS bytes FROM pg_backend_memory_contexts WHERE name = 'pmhash scan';
BEGIN;
DECLARE c CURSOR FOR SELECT n FROM lists WHERE k = ANY (ARRAY(SELECT generate_series(50, 63)));
FETCH c \gset
SELECT bytes < 20000 AS small FROM scan_memory;
MOVE 40000 c;
SELECT bytes > 20000 AS larger FROM scan_memory;
MOVE ALL c;
COMMIT;

-- many rows come in the order of the heap: batches of 16384 of them and more, so
-- the page goes back a few times only, though there are many keys
CREATE FUNCTION steps_back() RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	at int8 := -1;
	page int8;
	steps int8 := 0;
BEGIN
	FOR page IN SELECT (ctid::text::point)[0] FROM lists WHERE k = ANY (ARRAY(SELECT generate_series(0, 1200))) LOOP
		steps := steps + (page < at)::int;
		at := page;
	END LOOP;
	RETURN steps;
END $$;
SELECT steps_back() < 20 AS "in order";

-- rows that go while they are read, and dead entries
BEGIN;
DECLARE c CURSOR FOR SELECT k FROM lists WHERE k = ANY (ARRAY(SELECT generate_series(0, 63)));
MOVE 1000 c;
SAVEPOINT a;
DELETE FROM lists WHERE k % 3 = 0;
INSERT INTO lists SELECT k, -1 FROM generate_series(0, 63) k, generate_series(1, 30);
MOVE ALL c;
COMMIT;
SELECT count(*) FROM lists WHERE k = ANY (ARRAY(SELECT generate_series(0, 63)));
VACUUM lists;
SELECT * FROM by_any;
SELECT pmhash.check('lists_k');
DROP VIEW by_any, scan_memory;
DROP FUNCTION steps_back;
DROP TABLE lists;

--
-- Pages of the rows that come next are pinned by the scan itself (scan_ahead.c): each
-- counts once, as visited by the executor, and is pruned.
--
CREATE TABLE ahead (k int4, n int4) WITH (fillfactor = 50);
INSERT INTO ahead SELECT g % 10, g FROM generate_series(1, 4000) g;
CREATE INDEX ahead_k ON ahead USING pmhash (k);
VACUUM ANALYZE ahead;
SET enable_bitmapscan = off;
SET enable_seqscan = off;
SET pmhash.enable_pagescan = off;
-- (of the table alone: a server that forgets catalog entries reads catalogs meanwhile)
CREATE FUNCTION visits_of(query text) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	before int8 := pg_stat_get_xact_blocks_fetched('ahead'::regclass);
BEGIN
	EXECUTE query;
	RETURN pg_stat_get_xact_blocks_fetched('ahead'::regclass) - before;
END $$;
SELECT visits_of('SELECT sum(n) FROM ahead WHERE k = 3') BETWEEN relpages AND 2 * relpages AS "one key",
	visits_of('SELECT sum(n) FROM ahead WHERE k = ANY (ARRAY[1, 2, 3, NULL, 3])') BETWEEN relpages AND 4 * relpages AS "some keys",
	visits_of('SELECT sum(n) FROM (SELECT n FROM ahead WHERE k = 3 LIMIT 20) l') < relpages AS "LIMIT"
FROM pg_class WHERE oid = 'ahead'::regclass;
UPDATE ahead SET n = n + 1;
SELECT sum(n) FROM ahead WHERE k = 3;
SELECT pg_stat_force_next_flush();
SELECT pg_stat_get_tuples_hot_updated('ahead'::regclass) > 3000 AS "mostly HOT",
	pg_stat_get_dead_tuples('ahead'::regclass) < 1000 AS "pruned";
-- by a cursor that turns back, before and after rows are prefetched
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT n FROM ahead WHERE k = 3;
MOVE 3 c;
MOVE BACKWARD 2 c;
MOVE 200 c;
MOVE BACKWARD 150 c;
MOVE ALL c;
MOVE BACKWARD ALL c;
MOVE ALL c;
COMMIT;
-- other keys each time, and mostly not to the end
SELECT sum(n) AS rows FROM generate_series(0, 49) g,
	LATERAL (SELECT count(*) AS n FROM (SELECT FROM ahead WHERE k = g % 11 LIMIT g * 10) s) l;
-- rows that are locked, and changed, while they are found
SELECT count(*) FROM (SELECT FROM ahead WHERE k IN (1, 3, 5) FOR UPDATE) l;
UPDATE ahead SET k = k + 1 WHERE k = ANY ('{3,4,5}');
SELECT k, count(*) FROM ahead WHERE k = ANY ('{3,4,5,6}') GROUP BY k ORDER BY k;
RESET pmhash.enable_pagescan;
DROP FUNCTION visits_of;
DROP TABLE ahead;
