--
-- VACUUM of a table that has a row a block, whose places are given away, in little memory
-- and in more (standby/dead_rows.pl: in less than the dead TIDs need)
--
CREATE TABLE sparse (k int8, pad text) WITH (fillfactor = 10, autovacuum_enabled = false);
INSERT INTO sparse SELECT i, repeat('x', 700) FROM generate_series(1, 14400) i;
CREATE INDEX sparse_k ON sparse USING pmhash (k);

-- pg_class has the pages of the stub, which are what the server looks at itself, until VACUUM
-- says how large the file is (JDBC, VACUUM VERBOSE)
SELECT relpages, reltuples FROM pg_class WHERE relname = 'sparse_k';

-- those dead rows stay which a transaction of before might see: autovacuum's, for one
CREATE PROCEDURE wait_for_others() LANGUAGE plpgsql AS $$
BEGIN
	WHILE EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL))
	LOOP
		PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
	END LOOP;
END $$;

-- in little memory
SET maintenance_work_mem = '1MB';
DELETE FROM sparse WHERE k % 3 = 0;
CALL wait_for_others();
VACUUM sparse;
SELECT entries FROM pmhash.stats('sparse_k');
INSERT INTO sparse SELECT i, repeat('y', 700) FROM generate_series(20001, 24800) i;
SELECT pmhash.check('sparse_k');
SELECT * FROM every_key('sparse', 'k', 'sparse_k');

-- in more
RESET maintenance_work_mem;
DELETE FROM sparse WHERE k % 3 = 1;
CALL wait_for_others();
VACUUM sparse;
SELECT entries, reltuples, relpages = ceil(pmhash.size('sparse_k') / 8192.0) - 1 AS same
FROM pmhash.stats('sparse_k'), pg_class WHERE relname = 'sparse_k';
INSERT INTO sparse SELECT i, repeat('z', 700) FROM generate_series(30001, 34800) i;
SELECT pmhash.check('sparse_k');
SELECT * FROM every_key('sparse', 'k', 'sparse_k');

ANALYZE sparse;
SELECT relpages, reltuples FROM pg_class WHERE relname = 'sparse_k';
REINDEX INDEX sparse_k;
SELECT relpages, reltuples FROM pg_class WHERE relname = 'sparse_k';
DROP TABLE sparse;
