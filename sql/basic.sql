--
-- Create, fill, ask; which plans the planner makes.
--
CREATE TABLE basic (id int8, k int8, k4 int4, t text, n numeric);
INSERT INTO basic
	SELECT i, i * 7919 % 100003, i % 5000, 'text ' || i % 20000, i % 1000 / 4.0
	FROM generate_series(1, 50000) i;
INSERT INTO basic VALUES (-1, NULL, NULL, NULL, NULL), (-2, NULL, 1, NULL, 1);

CREATE INDEX basic_k ON basic USING pmhash (k);
CREATE INDEX basic_k4 ON basic USING pmhash (k4);
CREATE INDEX basic_t ON basic USING pmhash (t);
CREATE INDEX basic_n ON basic USING pmhash (n);
CREATE INDEX basic_t_k ON basic USING pmhash (t, k);
VACUUM ANALYZE basic;

-- the index is there, and is what it says
SELECT c.relname, a.amname, c.relkind, c.relpersistence
FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relname = 'basic_k';

-- every row through every index
SELECT * FROM every_key('basic', 'k', 'basic_k');
SELECT * FROM every_key('basic', 'k4', 'basic_k4');
SELECT * FROM every_key('basic', 't', 'basic_t');
SELECT * FROM every_key('basic', 'n', 'basic_n');

-- single keys: there, not there, at the edges, NULL
SELECT * FROM answers('SELECT * FROM basic WHERE k = 7919', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = -5', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = 9223372036854775807', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k4 = 77', 'basic_k4');
SELECT * FROM answers('SELECT * FROM basic WHERE t = ''text 100''', 'basic_t');
SELECT * FROM answers('SELECT * FROM basic WHERE n = 1.50', 'basic_n');
SELECT * FROM answers('SELECT * FROM basic WHERE n = 1.5000', 'basic_n');
SELECT * FROM answers('SELECT * FROM basic WHERE k = (SELECT NULL::int8)', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE t = ''text 100'' AND k = 93385', 'basic_t_k');
SELECT * FROM answers('SELECT * FROM basic WHERE 7919 = k', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = 7919 AND k = 7919', 'basic_k');
-- (since PostgreSQL 17 the planner itself sees that two constants exclude each other)
SELECT rows, replace(by_index, 'not used', 'same') AS by_index, replace(by_bitmap, 'not used', 'same') AS by_bitmap
	FROM answers('SELECT * FROM basic WHERE k = 7919 AND k = 15838', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = (SELECT 7919) AND k = (SELECT 15838)', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = (SELECT 7919) AND k = (SELECT NULL::int8)', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = 7919 AND id > 1', 'basic_k');

-- lists: repeated keys, keys that are absent, NULLs, the empty list
SELECT * FROM answers('SELECT * FROM basic WHERE k = ANY (''{7919,15838,7919,-5,NULL,23757}'')', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k IN (7919, 15838, 23757)', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = ANY (''{NULL}''::int8[])', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = ANY ((SELECT ''{}''::int8[])::int8[])', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = ANY ((SELECT array_agg(i * 3) FROM generate_series(1, 5000) i)::int8[])', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE t = ANY ((SELECT array_agg(''text '' || i * 5) FROM generate_series(1, 500) i)::text[])', 'basic_t');
SELECT * FROM answers('SELECT * FROM basic WHERE k = ANY ((SELECT NULL::int8[])::int8[])', 'basic_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = ANY (''{7919,15838}'') AND k = ANY (''{15838,23757}'')', 'basic_k');

-- joins, semi-joins and anti-joins that probe the index
SELECT * FROM answers('SELECT b.* FROM generate_series(1, 1000) g JOIN basic b ON b.k = g * 11', 'basic_k');
SELECT * FROM answers('SELECT g FROM generate_series(1, 1000) g WHERE EXISTS (SELECT FROM basic b WHERE b.k = g * 11)', 'basic_k');
SELECT * FROM answers('SELECT g FROM generate_series(1, 1000) g WHERE NOT EXISTS (SELECT FROM basic b WHERE b.k = g * 11)', 'basic_k');
SELECT * FROM answers('SELECT g, b.id FROM generate_series(1, 1000) g LEFT JOIN basic b ON b.k = g * 11', 'basic_k');
-- with a NULL on the outer side
SELECT * FROM answers('SELECT b.* FROM (SELECT nullif(g, 5) AS v FROM generate_series(1, 10) g OFFSET 0) g JOIN basic b ON b.k4 = g.v', 'basic_k4');

-- the same names again as btree and hash: equality prefers pmhash
CREATE INDEX basic_k_btree ON basic USING btree (k);
CREATE INDEX basic_k_hash ON basic USING hash (k);
ANALYZE basic;
SELECT plan('SELECT * FROM basic WHERE k = 7919');
SELECT plan('SELECT * FROM basic WHERE k = ANY (''{7919,15838,23757}'')');
SET enable_hashjoin = off;
SET pmhash.enable_join = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
SELECT plan('SELECT count(b.t) FROM generate_series(1, 1000) g JOIN basic b ON b.k = g');
RESET enable_hashjoin;
RESET pmhash.enable_join;
RESET enable_mergejoin;
RESET enable_memoize;
-- and leaves to the others what it cannot do
SET enable_bitmapscan = off;
SELECT plan('SELECT * FROM basic WHERE k BETWEEN 5 AND 10');
SELECT plan('SELECT k FROM basic ORDER BY k LIMIT 3');
SELECT plan('SELECT * FROM basic WHERE k = 7919 ORDER BY k LIMIT 1');
SELECT plan('SELECT * FROM basic WHERE k IS NULL');
RESET enable_bitmapscan;
DROP INDEX basic_k_btree, basic_k_hash;

-- never chosen where it cannot answer, even when nothing else is left
SET enable_seqscan = off;
SELECT plan('SELECT * FROM basic WHERE k > 5');
SELECT plan('SELECT * FROM basic WHERE k IS NULL');
SELECT plan('SELECT * FROM basic WHERE k IS NOT NULL');
SELECT plan('SELECT * FROM basic WHERE k <> 5');
SELECT plan('SELECT k FROM basic ORDER BY k');
SELECT plan('SELECT count(*) FROM basic');
SELECT plan('SELECT * FROM basic WHERE t LIKE ''text 1%''');
SELECT plan('SELECT * FROM basic WHERE t = ''text 1'' COLLATE "POSIX"');
RESET enable_seqscan;

-- several columns: all of them, or else a walk over everything, which is right
-- but dear
SELECT * FROM answers('SELECT * FROM basic WHERE t = ''text 5'' AND k IN (1, 2, 39595)', 'basic_t_k');
DROP INDEX basic_t;
SELECT plan('SELECT * FROM basic WHERE t = ''text 5''');
SELECT * FROM answers('SELECT * FROM basic WHERE t = ''text 5''', 'basic_t_k');
SELECT * FROM answers('SELECT * FROM basic WHERE k = 39595', 'basic_t_k');

-- two indexes in one bitmap
SET enable_seqscan = off;
SET enable_indexscan = off;
SELECT plan('SELECT id FROM basic WHERE k = 7919 OR k4 = 78');
RESET enable_seqscan;
RESET enable_indexscan;
SELECT * FROM answers('SELECT id FROM basic WHERE k = 7919 OR k4 = 78', 'basic_k4');
SELECT * FROM answers('SELECT id FROM basic WHERE k4 = 2500 AND n = 0', 'basic_n');

-- inserts after the build, one by one and many, and an index that began empty
CREATE INDEX basic_empty ON basic USING pmhash (k) WHERE k < 0;
INSERT INTO basic VALUES (60001, -1, 1, 'new', 1);
INSERT INTO basic SELECT i, -i, i, 'new ' || i, i FROM generate_series(2, 5000) i;
SELECT * FROM answers('SELECT * FROM basic WHERE k = -1', 'basic_empty');
SELECT * FROM every_key('basic', 'k', 'basic_k');
SELECT * FROM every_key('basic', 'n', 'basic_n');
SELECT * FROM answers('SELECT * FROM basic WHERE k = -77 AND k < 0', 'basic_empty');

-- a scan that must remember where it is: forward only, with mark and rescan by the executor
SELECT * FROM answers('SELECT a.id, b.id FROM basic a JOIN basic b ON b.k4 = a.k4 WHERE a.k IN (7919, 15838)', 'basic_k4');

-- inserts seen by the same transaction at once, rolled back ones never
BEGIN;
INSERT INTO basic VALUES (70001, 123456789, 1, 'mine', 1);
SELECT * FROM answers('SELECT * FROM basic WHERE k = 123456789', 'basic_k');
ROLLBACK;
SELECT * FROM answers('SELECT * FROM basic WHERE k = 123456789', 'basic_k');

DROP TABLE basic;
