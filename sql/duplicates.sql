--
-- Keys with few, many and very many rows.
--
CREATE TABLE dup (k int4, v int4);

-- built over duplicates
INSERT INTO dup SELECT 1, i FROM generate_series(1, 100000) i;
INSERT INTO dup SELECT 2, i FROM generate_series(1, 5000) i;
INSERT INTO dup SELECT i / 3, i FROM generate_series(30, 30000) i;
CREATE INDEX dup_k ON dup USING pmhash (k);
ANALYZE dup;
SELECT * FROM answers('SELECT ctid FROM dup WHERE k = 1', 'dup_k');
SELECT * FROM answers('SELECT ctid FROM dup WHERE k = 2', 'dup_k');
SELECT * FROM every_key('dup', 'k', 'dup_k');

-- inserted into the index: each key in several goes, keys taking turns
INSERT INTO dup SELECT -(i % 10), i FROM generate_series(1, 20000) i;
INSERT INTO dup SELECT -11, i FROM generate_series(1, 100000) i;
INSERT INTO dup SELECT 2, i FROM generate_series(1, 300) i;
SELECT * FROM answers('SELECT ctid FROM dup WHERE k = -11', 'dup_k');
SELECT * FROM every_key('dup', 'k', 'dup_k');

-- part of them deleted, vacuumed, and filled again
DELETE FROM dup WHERE v % 2 = 0;
VACUUM dup;
SELECT * FROM every_key('dup', 'k', 'dup_k');
INSERT INTO dup SELECT i % 7, i FROM generate_series(1, 20000) i;
SELECT * FROM every_key('dup', 'k', 'dup_k');

-- a key that loses all its rows, then gets one again
DELETE FROM dup WHERE k = 1 OR k = -11;
VACUUM dup;
SELECT * FROM answers('SELECT ctid FROM dup WHERE k IN (1, -11)', 'dup_k');
INSERT INTO dup VALUES (1, 1), (-11, 1);
SELECT * FROM answers('SELECT ctid FROM dup WHERE k IN (1, -11)', 'dup_k');
SELECT * FROM every_key('dup', 'k', 'dup_k');

-- everything goes, then comes again
DELETE FROM dup;
VACUUM dup;
SELECT * FROM every_key('dup', 'k', 'dup_k');
INSERT INTO dup SELECT i % 100, i FROM generate_series(1, 50000) i;
SELECT * FROM every_key('dup', 'k', 'dup_k');

-- only one key in the whole index
CREATE TABLE dup_one (k text);
CREATE INDEX dup_one_k ON dup_one USING pmhash (k);
INSERT INTO dup_one SELECT 'the one' FROM generate_series(1, 30000);
SELECT * FROM answers('SELECT ctid FROM dup_one WHERE k = ''the one''', 'dup_one_k');
REINDEX INDEX dup_one_k;
SELECT * FROM answers('SELECT ctid FROM dup_one WHERE k = ''the one''', 'dup_one_k');

-- ends early: LIMIT in the middle of a long list
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM (SELECT k FROM dup_one WHERE k = 'the one' LIMIT 7) x;
SELECT count(*) FROM (SELECT k FROM dup_one WHERE k = 'the one' LIMIT 7 OFFSET 29990) x;
RESET enable_seqscan;
RESET enable_bitmapscan;

DROP TABLE dup, dup_one;
