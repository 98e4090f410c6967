--
-- Options, statistics functions, the view.
--
CREATE TABLE st (k int8, d int4);
INSERT INTO st SELECT i, i % 3 FROM generate_series(1, 20000) i;
CREATE INDEX st_k ON st USING pmhash (k);
CREATE INDEX st_d ON st USING pmhash (d);
CREATE INDEX st_empty ON st USING pmhash (k) WHERE k < 0;

-- exact figures
SELECT entries, lists, list_entries, durability, file LIKE '%.pmh' AS file,
	   bytes > 0 AND used_bytes <= bytes AS bytes,
	   load_factor BETWEEN 0.3 AND 1 AS load_factor,
	   segments = segments_single + segments_two_choice + segments_stash AS segments,
	   min_depth <= max_depth AND max_depth <= global_depth AS depth
FROM pmhash.stats('st_k');
SELECT entries, lists, list_entries, list_bytes BETWEEN 120000 AND 250000 AS list_bytes,
	   value_bytes >= list_bytes AS value_bytes
FROM pmhash.stats('st_d');
SELECT entries, load_factor, bytes < 1024 * 1024 AS small FROM pmhash.stats('st_empty');
SELECT entries FROM pmhash.stats('st_k'::regclass::oid);

-- growth shows
INSERT INTO st SELECT i FROM generate_series(20001, 60000) i;
SELECT entries, splits > 0 AS splits, grows > 0 AS grows, load_factor BETWEEN 0.5 AND 1 AS load_factor
FROM pmhash.stats('st_k');
DELETE FROM st WHERE k <= 10000;
SELECT entries FROM pmhash.stats('st_k');
VACUUM st;
SELECT entries FROM pmhash.stats('st_k');
SELECT entries, lists FROM pmhash.stats('st_d');

-- bytes: file and stub
SELECT pmhash.size('st_k') - pg_relation_size('st_k') = bytes AS sum FROM pmhash.stats('st_k');
SELECT pmhash.size('st_k') > pmhash.size('st_empty') AS more;

-- an empty index and one of few rows: no larger if it is built than if it has grown
CREATE TABLE st_few (k int4, u int4);
CREATE INDEX st_few_k ON st_few USING pmhash (k);
CREATE INDEX st_few_u ON st_few USING pmhash (u);
CREATE VIEW st_few_sizes AS
SELECT pmhash.size('st_few_k') - pg_relation_size('st_few_k') AS k, pmhash.size('st_few_u') - pg_relation_size('st_few_u') AS u;
TABLE st_few_sizes;
INSERT INTO st_few SELECT i % 88, i FROM generate_series(1, 353) i;
TABLE st_few_sizes;
REINDEX TABLE st_few;
TABLE st_few_sizes;
SELECT pmhash.check('st_few_k'), pmhash.check('st_few_u');
TRUNCATE st_few;
TABLE st_few_sizes;
DROP TABLE st_few CASCADE;

-- the view: all indexes of the database, one row each
SELECT schema, "table", index, durability, bytes > 0 AS bytes, file IS NOT NULL AS file, state
FROM pmhash.indexes WHERE "table" = 'st' ORDER BY index;
SELECT count(*) = (SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
				   WHERE amname = 'pmhash' AND relkind = 'i') AS complete
FROM pmhash.indexes;
SELECT count(DISTINCT file) = count(*) AS each_its_own FROM pmhash.indexes;

-- the view is for all users, the exact figures for those that may read the table
CREATE ROLE st_nobody;
SET ROLE st_nobody;
SELECT count(*) FROM pmhash.indexes WHERE "table" = 'st';
SELECT pmhash.size('st_empty') > 0 AS size;
RESET ROLE;
DROP ROLE st_nobody;

-- partitioned and temporary indexes
CREATE TABLE st_part (k int4) PARTITION BY LIST (k);
CREATE TABLE st_part_1 PARTITION OF st_part FOR VALUES IN (1);
CREATE INDEX st_part_k ON st_part USING pmhash (k);
INSERT INTO st_part VALUES (1);
SELECT entries FROM pmhash.stats('st_part_1_k_idx');
SELECT entries FROM pmhash.stats('st_part_k');
SELECT pmhash.size('st_part_k');
SELECT index, state FROM pmhash.indexes WHERE "table" LIKE 'st_part%' ORDER BY index;
DROP TABLE st_part;

-- fillfactor: the lower, the larger after the build; kept for REINDEX
CREATE INDEX st_full ON st USING pmhash (k) WITH (fillfactor = 98);
CREATE INDEX st_half ON st USING pmhash (k) WITH (fillfactor = 50);
SELECT f.load_factor > 0.8 AS "full", h.load_factor BETWEEN 0.3 AND 0.6 AS half,
	   h.segments > f.segments AS larger
FROM pmhash.stats('st_full') f, pmhash.stats('st_half') h;
SELECT reloptions FROM pg_class WHERE relname = 'st_half';
ALTER INDEX st_half SET (fillfactor = 90);
REINDEX INDEX st_half;
SELECT load_factor > 0.7 AS fuller FROM pmhash.stats('st_half');
ALTER INDEX st_half RESET (fillfactor);
SELECT reloptions FROM pg_class WHERE relname = 'st_half';

-- the settings and their prefix
SELECT name, context, unit FROM pg_settings WHERE name LIKE 'pmhash.%' ORDER BY name;
SET pmhash.no_such_setting = 1;
SET pmhash.journal_size = 128;

-- what the planner reads in the catalogue is the truth
VACUUM st;
SELECT c.relname, c.reltuples = s.entries AS reltuples
FROM pg_class c, pmhash.stats(c.oid) s
WHERE c.relname IN ('st_k', 'st_d', 'st_empty') ORDER BY 1;

DROP TABLE st;
