--
-- Entries that scans have found dead are removed, those that a snapshot may
-- still need are not.
--
CREATE TABLE dead (k int4, v int4);
CREATE INDEX dead_k ON dead USING pmhash (k);
-- keeps updates from being HOT
CREATE INDEX dead_v ON dead USING btree (v);
INSERT INTO dead SELECT i % 10, i FROM generate_series(1, 3000) i;

-- How many entries the index has after scans of all keys: repeated until there
-- are as few as wanted, for some seconds: WAL that others write may have to be
-- flushed first, and the background worker has a snapshot at times.
CREATE FUNCTION entries_after_scans(index regclass, wanted int8, query text) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	entries int8;
BEGIN
	FOR i IN 1..500 LOOP
		EXECUTE query;
		SELECT s.entries INTO entries FROM pmhash.stats(index) s;
		EXIT WHEN entries <= wanted;
		PERFORM pg_sleep(0.02);
	END LOOP;
	RETURN entries;
END $$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;

-- updates leave an entry each
DO $$ BEGIN
	FOR i IN 1..5 LOOP
		UPDATE dead SET v = v + 10000;
		COMMIT;
	END LOOP;
END $$;
SELECT entries FROM pmhash.stats('dead_k');
SELECT entries_after_scans('dead_k', 3000, 'SELECT v FROM generate_series(0, 9) g JOIN dead ON k = g');
SELECT * FROM every_key('dead', 'k', 'dead_k');

-- an index-only scan finds them as well, = ANY too
UPDATE dead SET v = v + 10000;
SELECT plan('SELECT k FROM dead WHERE k = ANY (''{0,1,2,3,4,5,6,7,8,9}'')');
SELECT entries_after_scans('dead_k', 3000, 'SELECT k FROM dead WHERE k = ANY (''{0,1,2,3,4,5,6,7,8,9}'')');
UPDATE dead SET v = v + 10000;
SELECT entries_after_scans('dead_k', 3000, 'SELECT count(*) FROM generate_series(0, 9) g JOIN dead ON k = g');
SELECT * FROM every_key('dead', 'k', 'dead_k');

-- rolled back, too
BEGIN;
INSERT INTO dead SELECT i % 10, i FROM generate_series(1, 2000) i;
SELECT entries FROM pmhash.stats('dead_k');
-- not by one's own transaction: it may go on
SELECT count(*) FROM generate_series(0, 9) g JOIN dead ON k = g;
SAVEPOINT s;
DELETE FROM dead WHERE k = 3;
SELECT count(*) FROM dead WHERE k = 3;
ROLLBACK TO s;
SELECT count(*) FROM dead WHERE k = 3;
ROLLBACK;
SELECT entries_after_scans('dead_k', 3000, 'SELECT count(*) FROM generate_series(0, 9) g JOIN dead ON k = g');
SELECT * FROM every_key('dead', 'k', 'dead_k');

-- a key without rows
DELETE FROM dead WHERE k = 4;
SELECT entries_after_scans('dead_k', 2700, 'SELECT count(*) FROM dead WHERE k = 4');
SELECT count(*) FROM dead WHERE k = 4;
INSERT INTO dead SELECT 4, i FROM generate_series(1, 300) i;
VACUUM dead;
INSERT INTO dead SELECT 4, i FROM generate_series(1, 300) i;
SELECT entries FROM pmhash.stats('dead_k');
SELECT * FROM every_key('dead', 'k', 'dead_k');

-- unlogged and temporary tables have no WAL to wait for
CREATE UNLOGGED TABLE dead_unlogged (k int4, v int4);
CREATE INDEX dead_unlogged_k ON dead_unlogged USING pmhash (k);
INSERT INTO dead_unlogged SELECT 1, i FROM generate_series(1, 1000) i;
DELETE FROM dead_unlogged WHERE v > 10;
SELECT entries_after_scans('dead_unlogged_k', 10, 'SELECT count(*) FROM dead_unlogged WHERE k = 1');
CREATE TEMP TABLE dead_temp (k int4, v int4);
CREATE INDEX dead_temp_k ON dead_temp USING pmhash (k);
INSERT INTO dead_temp SELECT 1, i FROM generate_series(1, 1000) i;
DELETE FROM dead_temp WHERE v > 10;
SELECT entries_after_scans('dead_temp_k', 10, 'SELECT count(*) FROM dead_temp WHERE k = 1');

-- many of one key: how many look-ups does it take?
CREATE TABLE dead_queue (k int4, v int4);
CREATE INDEX dead_queue_k ON dead_queue USING pmhash (k);
INSERT INTO dead_queue SELECT 1, i FROM generate_series(1, 65100) i;
DELETE FROM dead_queue WHERE v > 100;
DO $$
DECLARE
	before int8;
	entries int8 := 65100;
	lookups int := 0;
BEGIN
	FOR i IN 1..1000 LOOP
		before := entries;
		PERFORM count(v) FROM dead_queue WHERE k = 1;
		SELECT s.entries INTO entries FROM pmhash.stats('dead_queue_k') s;
		-- (others' snapshots, or WAL, may keep them for a while)
		lookups := lookups + (entries < before)::int;
		-- No look-up finds more than this; one may remove as well what those
		-- before it have found, and left to wait for WAL.
		IF 65100 - entries > 16384 * i THEN
			RAISE WARNING '% look-ups have removed % entries', i, 65100 - entries;
		END IF;
		EXIT WHEN entries = 100;
		PERFORM pg_sleep(0.01) WHERE entries = before;
	END LOOP;
	IF entries <> 100 OR lookups > 12 THEN
		RAISE WARNING '% look-ups have left % entries', lookups, entries;
	END IF;
END $$;
SELECT count(v) FROM dead_queue WHERE k = 1;

RESET ALL;
DROP FUNCTION entries_after_scans;
DROP TABLE dead, dead_unlogged, dead_temp, dead_queue;
