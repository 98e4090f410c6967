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

-- The server drops it when it has shut down the triggers of the transaction: a
-- subtransaction begun there has the next ones write to memory that has been given back.
CREATE FUNCTION subtransactions() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	SET CONSTRAINTS ALL DEFERRED;
	INSERT INTO refers VALUES (1);
	PERFORM pg_notify('x', i || repeat('A', 200)) FROM generate_series(1, 1000) i;
	BEGIN
		BEGIN
			INSERT INTO refers VALUES (2);
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
		END;
	EXCEPTION WHEN OTHERS THEN
	END;
	RETURN 'alive';
END $$;
CREATE TABLE referred (i int4 PRIMARY KEY);
INSERT INTO referred SELECT generate_series(1, 10);
CREATE TABLE refers (i int4 REFERENCES referred DEFERRABLE);
BEGIN;
CREATE TEMP TABLE tmp (k int4) ON COMMIT DROP;
CREATE INDEX tmp_k ON tmp USING pmhash (k);
SELECT file FROM pmhash.indexes WHERE index = 'tmp_k' \gset
COMMIT;
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO refers VALUES (1);
SELECT count(pg_notify('x', i || repeat('A', 200))) FROM generate_series(1, 1000) i;
RELEASE b;
RELEASE a;
COMMIT;
SELECT pg_stat_file(:'file', true) IS NULL AS removed;
-- serializable; made in a subtransaction
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM refers;
SAVEPOINT a;
CREATE TEMP TABLE tmp (k int4) ON COMMIT DROP;
CREATE INDEX tmp_k ON tmp USING pmhash (k);
SELECT file FROM pmhash.indexes WHERE index = 'tmp_k' \gset
RELEASE a;
COMMIT;
SELECT subtransactions();
SELECT pg_stat_file(:'file', true) IS NULL AS removed;
-- the subtransaction rolled back
BEGIN;
SAVEPOINT a;
CREATE TEMP TABLE tmp (k int4) ON COMMIT DROP;
CREATE INDEX tmp_k ON tmp USING pmhash (k);
SELECT file FROM pmhash.indexes WHERE index = 'tmp_k' \gset
ROLLBACK TO a;
COMMIT;
SELECT subtransactions();
SELECT pg_stat_file(:'file', true) IS NULL AS removed;
-- at PREPARE TRANSACTION, which fails for it
BEGIN;
CREATE TEMP TABLE tmp (k int4) ON COMMIT DROP;
CREATE INDEX tmp_k ON tmp USING pmhash (k);
PREPARE TRANSACTION 'temporary';
SELECT subtransactions();
-- emptied at commit, and dropped with all others
CREATE TEMP TABLE tmp (k int4) ON COMMIT DELETE ROWS;
CREATE INDEX tmp_k ON tmp USING pmhash (k);
BEGIN;
INSERT INTO tmp SELECT i FROM generate_series(1, 100) i;
COMMIT;
SELECT subtransactions();
SELECT file FROM pmhash.indexes WHERE index = 'tmp_k' \gset
DISCARD TEMP;
SELECT subtransactions();
SELECT pg_stat_file(:'file', true) IS NULL AS removed;
-- dropped by a deferred trigger
CREATE FUNCTION drop_tmp() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN DROP TABLE tmp; RETURN NULL; END';
CREATE CONSTRAINT TRIGGER last AFTER INSERT ON referred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION drop_tmp();
CREATE TEMP TABLE tmp (k int4);
CREATE INDEX tmp_k ON tmp USING pmhash (k);
SELECT file FROM pmhash.indexes WHERE index = 'tmp_k' \gset
INSERT INTO referred VALUES (11);
SELECT subtransactions();
SELECT pg_stat_file(:'file', true) IS NULL AS removed;
CREATE TABLE tmp (k int4);
CREATE INDEX tmp_k ON tmp USING pmhash (k);
BEGIN;
INSERT INTO referred VALUES (12);
TRUNCATE tmp;
COMMIT;
SELECT subtransactions();
SELECT count(*) FROM refers;
DROP TABLE referred, refers;
DROP FUNCTION subtransactions, drop_tmp;

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
