--
-- Changes: UPDATE (HOT and not), DELETE, VACUUM, savepoints, TRUNCATE.
--
CREATE TABLE dml (k int8, v int4, pad text) WITH (fillfactor = 50);
CREATE INDEX dml_k ON dml USING pmhash (k);
INSERT INTO dml SELECT i, i, repeat('x', 20) FROM generate_series(1, 20000) i;
SELECT * FROM every_key('dml', 'k', 'dml_k');

-- HOT updates: index entries lead to the root of the chain
UPDATE dml SET v = v + 1;
SELECT pg_stat_force_next_flush();
SELECT n_tup_hot_upd > 15000 AS mostly_hot FROM pg_stat_user_tables WHERE relname = 'dml';
SELECT * FROM every_key('dml', 'k', 'dml_k');
UPDATE dml SET v = v + 1 WHERE k % 3 = 0;
SELECT * FROM every_key('dml', 'k', 'dml_k');
-- an index built over HOT chains
CREATE INDEX dml_k_later ON dml USING pmhash (k);
DROP INDEX dml_k;
SELECT * FROM every_key('dml', 'k', 'dml_k_later');
ALTER INDEX dml_k_later RENAME TO dml_k;
-- broken HOT chains: key changed in the same transaction that builds
BEGIN;
UPDATE dml SET k = -k WHERE k % 10 = 0;
CREATE INDEX dml_k2 ON dml USING pmhash (k, v);
COMMIT;
SELECT * FROM every_key('dml', 'k', 'dml_k');
SELECT * FROM answers('SELECT * FROM dml WHERE k = -100 AND v = (SELECT v FROM dml WHERE k = -100)', 'dml_k2');
DROP INDEX dml_k2;

-- key updates
UPDATE dml SET k = k + 1000000 WHERE k % 5 = 0;
SELECT * FROM every_key('dml', 'k', 'dml_k');
UPDATE dml SET k = NULL WHERE k % 7 = 0;
SELECT * FROM every_key('dml', 'k', 'dml_k');
UPDATE dml SET k = v WHERE k IS NULL;
SELECT * FROM every_key('dml', 'k', 'dml_k');

-- deletes, seen before and after VACUUM; space used again
DELETE FROM dml WHERE k % 2 = 1;
SELECT * FROM every_key('dml', 'k', 'dml_k');
VACUUM dml;
SELECT * FROM every_key('dml', 'k', 'dml_k');
INSERT INTO dml SELECT i, i, 'again' FROM generate_series(1, 20000) i;
SELECT * FROM every_key('dml', 'k', 'dml_k');
-- several rounds
DO $$
BEGIN
	FOR i IN 1..5 LOOP
		DELETE FROM dml WHERE k % 5 = i % 5;
		INSERT INTO dml SELECT j * 5 + i, j, 'round' FROM generate_series(1, 3000) j;
	END LOOP;
END $$;
VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) dml;
SELECT * FROM every_key('dml', 'k', 'dml_k');
VACUUM (INDEX_CLEANUP OFF) dml;
VACUUM (PARALLEL 2) dml;
SELECT * FROM every_key('dml', 'k', 'dml_k');
-- VACUUM counts what it removes
CREATE TABLE dml_count (k int8);
CREATE INDEX dml_count_k ON dml_count USING pmhash (k);
INSERT INTO dml_count SELECT generate_series(1, 10000);
DELETE FROM dml_count WHERE k <= 4000;
VACUUM dml_count;
SELECT reltuples FROM pg_class WHERE relname = 'dml_count_k';
DROP TABLE dml_count;

-- savepoints
BEGIN;
INSERT INTO dml VALUES (-1, 0, 'kept');
SAVEPOINT a;
INSERT INTO dml VALUES (-2, 0, 'lost');
SELECT * FROM answers('SELECT k, pad FROM dml WHERE k IN (-1, -2)', 'dml_k');
SAVEPOINT b;
DELETE FROM dml WHERE k = -1;
SELECT * FROM answers('SELECT k, pad FROM dml WHERE k IN (-1, -2)', 'dml_k');
ROLLBACK TO a;
SELECT * FROM answers('SELECT k, pad FROM dml WHERE k IN (-1, -2)', 'dml_k');
INSERT INTO dml VALUES (-2, 0, 'second');
RELEASE a;
COMMIT;
SELECT * FROM answers('SELECT k, pad FROM dml WHERE k IN (-1, -2)', 'dml_k');
-- an exception block is a savepoint as well
DO $$
BEGIN
	BEGIN
		INSERT INTO dml SELECT -3, i, 'lost' FROM generate_series(1, 100) i;
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		INSERT INTO dml VALUES (-3, 0, 'handler');
	END;
END $$;
SELECT * FROM answers('SELECT k, pad FROM dml WHERE k = -3', 'dml_k');
-- a large transaction that is rolled back, its entries swept by VACUUM
BEGIN;
INSERT INTO dml SELECT i, 0, 'never' FROM generate_series(100001, 130000) i;
ROLLBACK;
SELECT * FROM answers('SELECT * FROM dml WHERE k IN (100001, 115000, 130000)', 'dml_k');
VACUUM dml;
SELECT * FROM answers('SELECT * FROM dml WHERE k IN (100001, 115000, 130000)', 'dml_k');
SELECT * FROM every_key('dml', 'k', 'dml_k');

-- COPY
COPY dml FROM stdin;
500001	1	copied
500002	2	copied
500002	3	copied
\N	4	copied
\.
SELECT * FROM answers('SELECT * FROM dml WHERE k IN (500001, 500002)', 'dml_k');

-- ON CONFLICT on another index of the table
CREATE TABLE upsert (id int PRIMARY KEY, k int);
CREATE INDEX upsert_k ON upsert USING pmhash (k);
INSERT INTO upsert SELECT i, i FROM generate_series(1, 1000) i;
INSERT INTO upsert SELECT i, i FROM generate_series(500, 1500) i
	ON CONFLICT (id) DO UPDATE SET k = -excluded.k;
INSERT INTO upsert SELECT i, 7 FROM generate_series(1, 2000) i ON CONFLICT DO NOTHING;
SELECT * FROM every_key('upsert', 'k', 'upsert_k');
MERGE INTO upsert u USING (SELECT generate_series(1, 3000) AS id) s ON u.id = s.id
	WHEN MATCHED AND u.id % 2 = 0 THEN UPDATE SET k = 8
	WHEN MATCHED THEN DELETE
	WHEN NOT MATCHED THEN INSERT VALUES (s.id, 9);
SELECT * FROM every_key('upsert', 'k', 'upsert_k');
DROP TABLE upsert;

-- a foreign key that uses the index on the referencing side
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE);
CREATE INDEX child_id ON child USING pmhash (id);
INSERT INTO parent SELECT generate_series(1, 100);
INSERT INTO child SELECT i % 100 + 1 FROM generate_series(1, 1000) i;
DELETE FROM parent WHERE id <= 50;
UPDATE parent SET id = id + 1000;
SELECT * FROM every_key('child', 'id', 'child_id');
DROP TABLE child, parent;

DROP TABLE dml;
