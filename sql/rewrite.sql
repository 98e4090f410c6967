--
-- Commands that give an index a new file.
--
CREATE TABLE rw (k int4, t text);
INSERT INTO rw SELECT i, 'x' || i FROM generate_series(1, 5000) i;
CREATE INDEX rw_k ON rw USING pmhash (k);
CREATE INDEX rw_t ON rw USING pmhash (t);

-- REINDEX
REINDEX INDEX rw_k;
SELECT * FROM every_key('rw', 'k', 'rw_k');
REINDEX TABLE rw;
SELECT * FROM every_key('rw', 'k', 'rw_k');
SELECT * FROM every_key('rw', 't', 'rw_t');
REINDEX INDEX CONCURRENTLY rw_k;
SELECT * FROM every_key('rw', 'k', 'rw_k');
REINDEX TABLE CONCURRENTLY rw;
SELECT * FROM every_key('rw', 't', 'rw_t');
BEGIN;
INSERT INTO rw SELECT i, 'y' || i FROM generate_series(5001, 6000) i;
REINDEX INDEX rw_k;
SELECT * FROM every_key('rw', 'k', 'rw_k');
ROLLBACK;
SELECT * FROM every_key('rw', 'k', 'rw_k');
BEGIN;
SAVEPOINT a;
REINDEX TABLE rw;
INSERT INTO rw SELECT i, 'y' || i FROM generate_series(5001, 6000) i;
ROLLBACK TO a;
REINDEX INDEX rw_k;
INSERT INTO rw SELECT i, 'z' || i FROM generate_series(5001, 6000) i;
COMMIT;
SELECT * FROM every_key('rw', 'k', 'rw_k');
SELECT * FROM every_key('rw', 't', 'rw_t');

-- CREATE INDEX CONCURRENTLY; an index that fails to build stays invalid
CREATE INDEX CONCURRENTLY rw_cic ON rw USING pmhash (k);
SELECT * FROM every_key('rw', 'k', 'rw_cic');
INSERT INTO rw VALUES (0, 'zero');
CREATE INDEX CONCURRENTLY rw_bad ON rw USING pmhash ((10 / k));
SELECT indisvalid FROM pg_index WHERE indexrelid = 'rw_bad'::regclass;
DROP INDEX CONCURRENTLY rw_bad;
DROP INDEX CONCURRENTLY rw_cic;

-- CREATE INDEX rolled back, whole and in part; created and dropped in one go
BEGIN;
CREATE INDEX rw_abort ON rw USING pmhash (k);
SELECT * FROM every_key('rw', 'k', 'rw_abort') WHERE by_index = 'same';
ROLLBACK;
BEGIN;
CREATE INDEX rw_keep ON rw USING pmhash (k);
SAVEPOINT a;
CREATE INDEX rw_abort ON rw USING pmhash (t);
ROLLBACK TO a;
CREATE INDEX rw_dropped ON rw USING pmhash (t);
DROP INDEX rw_dropped;
COMMIT;
SELECT relname FROM pg_class WHERE relname IN ('rw_keep', 'rw_abort', 'rw_dropped');
DROP INDEX rw_k;
SELECT * FROM every_key('rw', 'k', 'rw_keep');
ALTER INDEX rw_keep RENAME TO rw_k;
-- DROP rolled back
BEGIN;
DROP INDEX rw_k;
ROLLBACK;
SELECT * FROM every_key('rw', 'k', 'rw_k');

-- VACUUM FULL, CLUSTER on another index, ALTER TABLE with rewrite
DELETE FROM rw WHERE k % 3 = 0;
VACUUM FULL rw;
SELECT * FROM every_key('rw', 'k', 'rw_k');
CREATE INDEX rw_btree ON rw (t);
CLUSTER rw USING rw_btree;
SELECT * FROM every_key('rw', 'k', 'rw_k');
SELECT * FROM every_key('rw', 't', 'rw_t');
DROP INDEX rw_btree;
ALTER TABLE rw ALTER k TYPE int8;
SELECT * FROM every_key('rw', 'k', 'rw_k');
SELECT * FROM answers('SELECT * FROM rw WHERE k = 4999', 'rw_k');
ALTER TABLE rw ALTER k TYPE text;
SELECT * FROM every_key('rw', 'k', 'rw_k');
ALTER TABLE rw ALTER k TYPE varchar(40);	-- without rewrite: the file stays
SELECT * FROM every_key('rw', 'k', 'rw_k');
SELECT * FROM answers('SELECT * FROM rw WHERE k = ''4999''', 'rw_k');
INSERT INTO rw SELECT i, 'w' || i FROM generate_series(10001, 10100) i;
SELECT * FROM every_key('rw', 'k', 'rw_k');
ALTER TABLE rw ALTER k TYPE int4 USING k::int4;
ALTER TABLE rw ALTER t TYPE text COLLATE "C";
SELECT * FROM every_key('rw', 'k', 'rw_k');
SELECT * FROM every_key('rw', 't', 'rw_t');
-- a type that pmhash cannot index: refused, the old index stays
ALTER TABLE rw ALTER k TYPE point USING point(k, k);
SELECT * FROM every_key('rw', 'k', 'rw_k');

-- SET LOGGED and UNLOGGED
ALTER TABLE rw SET UNLOGGED;
SELECT relpersistence FROM pg_class WHERE relname = 'rw_k';
SELECT * FROM every_key('rw', 'k', 'rw_k');
INSERT INTO rw SELECT i, 'v' || i FROM generate_series(20001, 20100) i;
SELECT * FROM every_key('rw', 'k', 'rw_k');
ALTER TABLE rw SET LOGGED;
SELECT relpersistence FROM pg_class WHERE relname = 'rw_k';
SELECT * FROM every_key('rw', 'k', 'rw_k');

-- tablespaces
SET allow_in_place_tablespaces = true;
CREATE TABLESPACE pmhash_space LOCATION '';
ALTER INDEX rw_k SET TABLESPACE pmhash_space;
SELECT * FROM every_key('rw', 'k', 'rw_k');
INSERT INTO rw SELECT i, 'u' || i FROM generate_series(30001, 30100) i;
SELECT * FROM every_key('rw', 'k', 'rw_k');
ALTER TABLE rw SET TABLESPACE pmhash_space;
SELECT * FROM every_key('rw', 'k', 'rw_k');
REINDEX (TABLESPACE pg_default) INDEX rw_k;
SELECT * FROM every_key('rw', 'k', 'rw_k');
BEGIN;
ALTER INDEX rw_k SET TABLESPACE pmhash_space;
INSERT INTO rw VALUES (40000, 'back and forth');
ROLLBACK;
SELECT * FROM every_key('rw', 'k', 'rw_k');
SELECT * FROM answers('SELECT * FROM rw WHERE k = 40000', 'rw_k');
CREATE INDEX rw_space ON rw USING pmhash (k) TABLESPACE pmhash_space;
DROP INDEX rw_k;
SELECT * FROM every_key('rw', 'k', 'rw_space');
ALTER TABLE rw SET TABLESPACE pg_default;
ALTER INDEX rw_space SET TABLESPACE pg_default;
DROP TABLESPACE pmhash_space;

-- TRUNCATE: committed, rolled back, in the transaction that made the table,
-- where the index is built again on the same file number
TRUNCATE rw;
SELECT * FROM every_key('rw', 'k', 'rw_space');
INSERT INTO rw SELECT i, 'x' || i FROM generate_series(1, 1000) i;
BEGIN;
TRUNCATE rw;
INSERT INTO rw VALUES (1, 'one');
SELECT * FROM every_key('rw', 'k', 'rw_space');
ROLLBACK;
SELECT * FROM every_key('rw', 'k', 'rw_space');
BEGIN;
CREATE TABLE rw_new (k int4);
CREATE INDEX rw_new_k ON rw_new USING pmhash (k);
INSERT INTO rw_new SELECT generate_series(1, 1000);
TRUNCATE rw_new;
INSERT INTO rw_new SELECT generate_series(1, 10);
SELECT * FROM every_key('rw_new', 'k', 'rw_new_k');
SAVEPOINT a;
TRUNCATE rw_new;
INSERT INTO rw_new SELECT generate_series(1, 5);
SELECT * FROM every_key('rw_new', 'k', 'rw_new_k');
ROLLBACK TO a;
SELECT * FROM every_key('rw_new', 'k', 'rw_new_k');
TRUNCATE rw_new;
INSERT INTO rw_new SELECT generate_series(1, 20);
COMMIT;
SELECT * FROM every_key('rw_new', 'k', 'rw_new_k');
DROP TABLE rw_new;

-- system catalogues and indexes named for one another are left alone
DROP TABLE rw;
