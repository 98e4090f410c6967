--
-- Temporary and unlogged tables.
--
CREATE TEMP TABLE tmp (k int4, v int4);
CREATE INDEX tmp_k ON tmp USING pmhash (k);
INSERT INTO tmp SELECT i % 1000, i FROM generate_series(1, 10000) i;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
DELETE FROM tmp WHERE v % 2 = 0;
VACUUM tmp;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
TRUNCATE tmp;
INSERT INTO tmp VALUES (1, 1);
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
REINDEX TABLE tmp;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
BEGIN;
DROP TABLE tmp;
ROLLBACK;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
DROP TABLE tmp;

-- ON COMMIT DELETE ROWS: built again on the same file number at each commit
CREATE TEMP TABLE tmp (k int4, v int4) ON COMMIT DELETE ROWS;
CREATE INDEX tmp_k ON tmp USING pmhash (k);
BEGIN;
INSERT INTO tmp SELECT i % 1000, i FROM generate_series(1, 10000) i;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
COMMIT;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
BEGIN;
INSERT INTO tmp SELECT i, i FROM generate_series(1, 10) i;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
SAVEPOINT a;
INSERT INTO tmp SELECT i, i FROM generate_series(1, 10) i;
ROLLBACK TO a;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
ROLLBACK;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
BEGIN;
INSERT INTO tmp SELECT i, i FROM generate_series(1, 100) i;
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
COMMIT;
DROP TABLE tmp;

-- ON COMMIT DROP
BEGIN;
CREATE TEMP TABLE tmp (k int4) ON COMMIT DROP;
INSERT INTO tmp SELECT i % 10 FROM generate_series(1, 100) i;
CREATE INDEX tmp_k ON tmp USING pmhash (k);
SELECT * FROM every_key('tmp', 'k', 'tmp_k');
COMMIT;
SELECT count(*) FROM pg_class WHERE relname = 'tmp_k';

-- unlogged
CREATE UNLOGGED TABLE unl (k int8, v int4);
CREATE INDEX unl_k ON unl USING pmhash (k);
INSERT INTO unl SELECT i % 1000, i FROM generate_series(1, 10000) i;
SELECT * FROM every_key('unl', 'k', 'unl_k');
DELETE FROM unl WHERE v % 2 = 0;
VACUUM unl;
SELECT * FROM every_key('unl', 'k', 'unl_k');
REINDEX TABLE unl;
SELECT * FROM every_key('unl', 'k', 'unl_k');
TRUNCATE unl;
INSERT INTO unl VALUES (1, 1);
SELECT * FROM every_key('unl', 'k', 'unl_k');
DROP TABLE unl;
