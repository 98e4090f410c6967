--
-- CREATE INDEX reads pages whose rows are all alive by itself, and leaves the
-- others to the server (build_pages.c).  A btree, which the server scans for,
-- must find the same rows.
--
CREATE TABLE bp (id int4, k int8, t text COLLATE "C") WITH (autovacuum_enabled = off, fillfactor = 70);
INSERT INTO bp SELECT i, CASE WHEN i % 50 > 0 THEN i % 1200 END, 'text number ' || i
	FROM generate_series(1, 4000) i;

-- Build both, alone and with workers, and compare: entries, whether old
-- snapshots may use the index, and every look-up.
CREATE FUNCTION same_as_btree(key text, columns text DEFAULT NULL, OUT workers int,
							  OUT entries text, OUT old_snapshots text, OUT lookups text)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	b record;
	h record;
BEGIN
	EXECUTE format('CREATE INDEX bp_b ON bp USING btree (%s) WHERE %s IS NOT NULL',
				   coalesce(columns, key), key);
	SELECT reltuples, indcheckxmin INTO b FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
		WHERE c.oid = 'bp_b'::regclass;
	DROP INDEX bp_b;
	FOREACH workers IN ARRAY '{0,2}'::int[] LOOP
		EXECUTE format('ALTER TABLE bp SET (parallel_workers = %s)', workers);
		EXECUTE format('CREATE INDEX bp_h ON bp USING pmhash (%s)', coalesce(columns, key));
		SELECT reltuples, indcheckxmin INTO h FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
			WHERE c.oid = 'bp_h'::regclass;
		entries := CASE WHEN h.reltuples = b.reltuples THEN 'same'
						ELSE format('%s, btree %s', h.reltuples, b.reltuples) END;
		old_snapshots := CASE WHEN h.indcheckxmin = b.indcheckxmin THEN 'same' ELSE 'other' END;
		PERFORM pmhash.check('bp_h');
		IF h.indcheckxmin OR columns IS NOT NULL THEN
			lookups := 'none';
		ELSE
			SELECT CASE WHEN e.by_index = 'same' AND e.by_bitmap = 'same' AND e.rows > 0 THEN 'same' ELSE e::text END
				INTO lookups FROM every_key('bp', key, 'bp_h') e;
		END IF;
		DROP INDEX bp_h;
		RETURN NEXT;
	END LOOP;
END $$;

-- not yet looked at by any process; then all-visible
SELECT * FROM same_as_btree('k');
VACUUM bp;
SELECT * FROM same_as_btree('k');
SELECT * FROM same_as_btree('t');
SELECT * FROM same_as_btree('k', 'k, t');
SELECT * FROM same_as_btree('t', 't, k, id');
-- a column that the older rows do not store
ALTER TABLE bp ADD late int4 DEFAULT 7;
SELECT * FROM same_as_btree('late');
-- rows that are only locked, on all-visible pages and on others
BEGIN;
SELECT count(*) FROM (SELECT FROM bp WHERE id % 7 = 0 FOR UPDATE) AS locked;
SELECT * FROM same_as_btree('k');
COMMIT;
-- rows of our own transaction, deleted ones, and HOT chains that it has begun
BEGIN;
INSERT INTO bp SELECT i, i, 'new ' || i FROM generate_series(4001, 4200) i;
DELETE FROM bp WHERE id BETWEEN 1200 AND 1600;
SELECT * FROM same_as_btree('k');
UPDATE bp SET t = 'changed' WHERE id % 3 = 0 AND id < 800;
SELECT * FROM same_as_btree('k');
COMMIT;
-- dead rows on some pages; then pruned, with redirects to heap-only rows
UPDATE bp SET t = 'changed again' WHERE id BETWEEN 2000 AND 2400;
SELECT entries, old_snapshots FROM same_as_btree('k');
VACUUM bp;
SELECT count(*) > 0 AS redirected FROM bp WHERE t = 'changed again';
SELECT * FROM same_as_btree('k');
SELECT * FROM same_as_btree('id');
-- what an aborted transaction leaves
BEGIN;
INSERT INTO bp SELECT i, i, 'aborted' FROM generate_series(1, 1000) i;
UPDATE bp SET k = -k WHERE id % 11 = 0;
ROLLBACK;
SELECT * FROM same_as_btree('k');
SELECT * FROM same_as_btree('k');
-- long values, out of line
INSERT INTO bp SELECT -i, i, repeat(md5(i::text), 400) FROM generate_series(1, 20) i;
ALTER TABLE bp ALTER t SET STORAGE EXTERNAL;
INSERT INTO bp SELECT -i, i, repeat(md5(i::text), 400) FROM generate_series(21, 40) i;
VACUUM bp;
CREATE INDEX bp_t ON bp USING pmhash (t);
SELECT * FROM every_key('bp', 't', 'bp_t');
DROP TABLE bp;
-- empty; temporary; unlogged
CREATE TABLE bp (k int4);
CREATE INDEX bp_empty ON bp USING pmhash (k);
CREATE TEMP TABLE bp_temp AS SELECT i % 100 AS k FROM generate_series(1, 5000) i;
CREATE INDEX bp_temp_k ON bp_temp USING pmhash (k);
SELECT * FROM every_key('bp_temp', 'k', 'bp_temp_k');
CREATE UNLOGGED TABLE bp_unlogged AS SELECT i % 100 AS k FROM generate_series(1, 5000) i;
CREATE INDEX bp_unlogged_k ON bp_unlogged USING pmhash (k);
SELECT * FROM every_key('bp_unlogged', 'k', 'bp_unlogged_k');
DROP TABLE bp, bp_temp, bp_unlogged;
DROP FUNCTION same_as_btree;
