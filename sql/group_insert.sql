--
-- Entries of long statements wait in a queue and go into the table in groups;
-- nobody may notice.
--
CREATE TABLE gi (k int8, t text);
CREATE INDEX gi_k ON gi USING pmhash (k);
CREATE INDEX gi_t ON gi USING pmhash (t);
CREATE VIEW gi_both AS SELECT k.rows, k.by_index, k.by_bitmap, t.by_index AS text_by_index
	FROM every_key('gi', 'k', 'gi_k') k, every_key('gi', 't', 'gi_t') t;

-- one transaction that reads what it has just written
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 2000) i;
SELECT * FROM gi_both;
SELECT entries FROM pmhash_stats('gi_k');
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 1000) i;
SELECT entries FROM pmhash_stats('gi_t');
COMMIT;
SELECT * FROM gi_both;

-- read in another statement than the next of this session: applied at commit
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(2001, 2500) i;
SELECT entries FROM pmhash_stats('gi_k');
SELECT * FROM gi_both;

-- more than a queue holds
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(10001, 60000) i;
SELECT entries FROM pmhash_stats('gi_k');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM generate_series(10001, 60000) i
	WHERE EXISTS (SELECT 1 FROM gi WHERE k = i OFFSET 0);
RESET enable_seqscan;
RESET enable_bitmapscan;
DELETE FROM gi WHERE k > 10000;
VACUUM gi;

-- a statement whose rows are looked for while it runs
CREATE FUNCTION gi_seen(int8) RETURNS int8 LANGUAGE plpgsql VOLATILE
	SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN RETURN (SELECT count(*) FROM gi WHERE k = $1); END $$;
CREATE TABLE gi_log (i int8, before int8);
CREATE FUNCTION gi_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.k % 100 = 0 THEN
		INSERT INTO gi_log VALUES (NEW.k, gi_seen(NEW.k - 1));
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER gi_t1 BEFORE INSERT ON gi FOR EACH ROW EXECUTE FUNCTION gi_trigger();
INSERT INTO gi SELECT i, 'y' || i FROM generate_series(5001, 5500) i;
DROP TRIGGER gi_t1 ON gi;
SELECT * FROM gi_log;

-- UPDATE and COPY
UPDATE gi SET k = k - 3000 WHERE k BETWEEN 5001 AND 5500;
SELECT * FROM gi_both;
COPY gi (k) FROM PROGRAM 'seq 2601 2700';
SELECT * FROM gi_both;

-- subtransactions
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
SAVEPOINT a;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 200) i;
SAVEPOINT b;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 400) i;
ROLLBACK TO b;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 800) i;
RELEASE b;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 50) i;
SAVEPOINT c;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 25) i;
RELEASE a;
SAVEPOINT d;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 30) i;
ROLLBACK TO d;
COMMIT;
SELECT * FROM gi_both;
DO $$
BEGIN
	FOR round IN 1..40 LOOP
		INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 40) i;
		BEGIN
			INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 40) i;
			IF round % 2 = 0 THEN
				RAISE 'even';
			END IF;
		EXCEPTION WHEN raise_exception THEN
			INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 20) i;
		END;
	END LOOP;
END $$;
SELECT * FROM gi_both;
-- what waits when a subtransaction is aborted is dropped: of 500 rows, all but
-- the first 16, which are inserted at once
BEGIN;
SELECT entries AS before FROM pmhash_stats('gi_k') \gset
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
SAVEPOINT a;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 500) i;
ROLLBACK TO a;
SELECT entries - :before AS entries FROM pmhash_stats('gi_k');
ROLLBACK;

-- what a transaction may do to table and index behind an insert
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
REINDEX INDEX gi_k;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
COMMIT;
SELECT * FROM gi_both;
SELECT pmhash_check('gi_k'), pmhash_check('gi_t');
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
TRUNCATE gi;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 300) i;
TRUNCATE gi;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 200) i;
COMMIT;
SELECT * FROM gi_both;
SELECT entries FROM pmhash_stats('gi_k');
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
DROP INDEX gi_t;
CREATE INDEX gi_t ON gi USING pmhash (t);
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
ALTER TABLE gi ALTER k TYPE int4;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
CREATE TABLE gi_new (k int8);
CREATE INDEX ON gi_new USING pmhash (k);
INSERT INTO gi_new SELECT generate_series(1, 100);
TRUNCATE gi_new;
INSERT INTO gi_new SELECT generate_series(1, 70);
COMMIT;
SELECT * FROM gi_both;
SELECT pmhash_check('gi_k'), pmhash_check('gi_t'), pmhash_check('gi_new_k_idx');
BEGIN;
INSERT INTO gi_new SELECT generate_series(1, 100);
DROP TABLE gi_new;
COMMIT;

-- PREPARE
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
PREPARE TRANSACTION 'gi';
COMMIT PREPARED 'gi';
SELECT * FROM gi_both;

-- an open cursor, a cursor opened later
BEGIN;
SET LOCAL enable_seqscan = off;
DECLARE early CURSOR FOR SELECT count(*) FROM gi WHERE k = 7;
INSERT INTO gi SELECT 7, 'x7' FROM generate_series(1, 100);
DECLARE late CURSOR FOR SELECT count(*) FROM gi WHERE k = 7;
INSERT INTO gi SELECT 7, 'x7' FROM generate_series(1, 100);
FETCH early;
FETCH late;
SELECT count(*) FROM gi WHERE k = 7;
ROLLBACK;

-- parallel workers look rows up that their leader has inserted
CREATE TABLE gi_keys (k int8) WITH (parallel_workers = 2);
INSERT INTO gi_keys SELECT generate_series(1, 20000);
ANALYZE gi_keys;
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL enable_material = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL parallel_leader_participation = off;
INSERT INTO gi SELECT i + 10000, 'z' FROM generate_series(1, 3000) i;
EXPLAIN (COSTS OFF) SELECT count(gi.t) FROM gi_keys JOIN gi ON gi.k = gi_keys.k WHERE gi_keys.k > 10000;
SELECT count(gi.t) FROM gi_keys JOIN gi ON gi.k = gi_keys.k WHERE gi_keys.k > 10000;
ROLLBACK;

-- never for constraints, nor under SERIALIZABLE; nor when it is off
CREATE TABLE gi_x (k int8, EXCLUDE USING pmhash (k WITH =));
INSERT INTO gi_x SELECT i % 100 FROM generate_series(1, 200) i;
SELECT entries > 16 AS "at once" FROM pmhash_stats('gi_x_k_excl');
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
COMMIT;
SELECT * FROM gi_both;
SET pmhash.group_insert = off;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
SELECT * FROM gi_both;
RESET pmhash.group_insert;

-- temporary and unlogged tables
CREATE TEMPORARY TABLE gi_temp (k int8) ON COMMIT DELETE ROWS;
CREATE INDEX gi_temp_k ON gi_temp USING pmhash (k);
BEGIN;
INSERT INTO gi_temp SELECT generate_series(1, 100);
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM gi_temp WHERE k = 50;
COMMIT;
SELECT entries FROM pmhash_stats('gi_temp_k');
CREATE UNLOGGED TABLE gi_unlogged (k int8);
CREATE INDEX gi_unlogged_k ON gi_unlogged USING pmhash (k);
INSERT INTO gi_unlogged SELECT generate_series(1, 100);
SELECT entries FROM pmhash_stats('gi_unlogged_k');
SELECT pmhash_check('gi_k'), pmhash_check('gi_t'), pmhash_check('gi_unlogged_k');

DROP TABLE gi, gi_log, gi_keys, gi_x, gi_temp, gi_unlogged CASCADE;
