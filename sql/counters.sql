--
-- Cumulative counters, sizes, prewarming, and who may what.
--
CREATE TABLE counted (k int4, g int4);
INSERT INTO counted SELECT i, i % 10 FROM generate_series(1, 10000) i;
CREATE INDEX counted_k ON counted USING pmhash (k);
CREATE INDEX counted_kg ON counted USING pmhash (k, g);
CREATE FUNCTION counters(name text) RETURNS TABLE (counter text, n text) LANGUAGE sql AS $$
	SELECT key, value FROM pmhash.stat_indexes s, jsonb_each_text(to_jsonb(s))
	WHERE s.index = name AND value <> '0' AND
		key NOT IN ('indexrelid', 'schema', 'table', 'index', 'state', 'bytes', 'stats_reset')
	ORDER BY key $$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET pmhash.enable_join = off;
VACUUM ANALYZE counted;
SELECT pmhash.stat_reset();
SELECT index, state, bytes > 0 AS bytes, lookups, stats_reset > now() - interval '1 minute' AS reset FROM pmhash.stat_indexes WHERE "table" = 'counted' ORDER BY index;

-- look-ups: alone, in groups, all of the index
SELECT g FROM counted WHERE k = 77;
SELECT * FROM counters('counted_k');
SELECT count(*) FROM counted WHERE k = ANY (ARRAY(SELECT generate_series(1, 1000)));
SELECT n::int > 1 AS several FROM counters('counted_k') WHERE counter = 'group_lookups';
SELECT n FROM counters('counted_k') WHERE counter = 'group_keys';
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SELECT count(*) FROM counted WHERE k = 78;
RESET enable_bitmapscan;
RESET enable_indexscan;
SELECT n FROM counters('counted_k') WHERE counter = 'lookups';
BEGIN;
DROP INDEX counted_k;
SELECT count(*) FROM counted WHERE k = 78;
SELECT * FROM counters('counted_kg');
ROLLBACK;
SELECT * FROM counters('counted_kg');
-- a transaction's own come when it is over, and an aborted one's too
BEGIN;
SELECT g FROM counted WHERE k = 78;
SELECT n FROM counters('counted_k') WHERE counter = 'lookups';
SAVEPOINT s;
SELECT g FROM counted WHERE k = 79;
ROLLBACK TO s;
ROLLBACK;
SELECT n FROM counters('counted_k') WHERE counter = 'lookups';

-- inserts, alone and in groups; removals
SELECT pmhash.stat_reset('counted_k');
INSERT INTO counted VALUES (-1, 1), (-2, 2), (-3, NULL);
SELECT * FROM counters('counted_k');
INSERT INTO counted SELECT 20000 + i, 0 FROM generate_series(1, 5000) i;
SELECT sum(n::int) AS inserted, sum((counter = 'group_entries')::int * n::int) > 4900 AS in_groups FROM counters('counted_k') WHERE counter IN ('inserts', 'group_entries');
DELETE FROM counted WHERE k BETWEEN 1 AND 1000;
VACUUM counted;
SELECT counter, n FROM counters('counted_k') WHERE counter LIKE '%removed' OR counter = 'table_scans';

-- growth
CREATE TABLE grown (k int8);
CREATE INDEX grown_k ON grown USING pmhash (k);
INSERT INTO grown SELECT generate_series(1, 200000);
SELECT sum((counter = 'splits')::int * n::int) > 0 AS splits, sum((counter = 'grows')::int * n::int) > 0 AS grows, sum((counter = 'doublings')::int * n::int) > 0 AS doublings FROM counters('grown_k');
-- joins look keys up in groups
SET pmhash.enable_join = on;
SELECT pmhash.stat_reset('grown_k');
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET cpu_index_tuple_cost = 1000;
SELECT count(*) FROM generate_series(1, 3000) s JOIN grown ON k = s;
SELECT n FROM counters('grown_k') WHERE counter = 'group_keys';
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET cpu_index_tuple_cost;
RESET pmhash.enable_join;

-- an index that has gone is not shown; one of the same name begins anew
DROP INDEX grown_k;
SELECT count(*) FROM pmhash.stat_indexes WHERE index = 'grown_k';
CREATE INDEX grown_k ON grown USING pmhash (k);
SELECT * FROM counters('grown_k');
-- temporary, unlogged, partitioned
CREATE TEMP TABLE passing (k int4);
CREATE INDEX passing_k ON passing USING pmhash (k);
INSERT INTO passing VALUES (1);
SELECT * FROM counters('passing_k');
CREATE UNLOGGED TABLE loose (k int4);
CREATE INDEX loose_k ON loose USING pmhash (k);
INSERT INTO loose VALUES (1);
SELECT * FROM counters('loose_k');
CREATE TABLE parts (k int4) PARTITION BY HASH (k);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX parts_k ON parts USING pmhash (k);
INSERT INTO parts SELECT generate_series(1, 20);
SELECT count(*), sum(inserts + group_entries) FROM pmhash.stat_indexes WHERE "table" LIKE 'parts%';
SELECT pmhash.stat_reset('parts_k');
SELECT pmhash.stat_reset('counted');
\set VERBOSITY sqlstate
SELECT pmhash.stat_reset(0);
\set VERBOSITY default
SELECT pmhash.stat_reset(0);

-- the server
SELECT state, directory <> '' AS directory, directory_free_bytes > 0 AS free, disabled_reason, launcher, journal_bytes > 0 AS journal,
	lookups > 0 AS lookups, tracked_indexes > 0 AS tracked, max_tracked_indexes, not_tracked, stats_reset < now() AS reset FROM pmhash.stat;
SELECT pmhash.stat_reset_shared();
SELECT stats_reset > now() - interval '1 minute' AS reset FROM pmhash.stat;

-- sizes
SELECT pmhash.total_relation_size('counted') = pg_total_relation_size('counted') + sum(pmhash.size(i::regclass) - pg_relation_size(i::regclass)) AS total
FROM unnest('{counted_k,counted_kg}'::text[]) i;
SELECT pmhash.total_relation_size('counted_k') >= pmhash.size('counted_k') AS index, pmhash.total_relation_size('pg_class') = pg_total_relation_size('pg_class') AS other,
	pmhash.total_relation_size(0) AS none, pmhash.total_relation_size('parts') AS partitioned;

-- prewarming: all of the file that has blocks
SELECT pmhash.prewarm('counted_k') BETWEEN 100000 AND pmhash.size('counted_k') AS warmed, pmhash.prewarm(0) AS none;
SELECT pmhash.prewarm('counted');
SELECT pmhash.prewarm('parts_k');

-- rights
CREATE ROLE regress_pmhash_nobody;
GRANT CREATE, USAGE ON SCHEMA public TO regress_pmhash_nobody;
SET ROLE regress_pmhash_nobody;
SELECT index FROM pmhash.stat_indexes WHERE "table" = 'counted' ORDER BY index;
SELECT state, directory, directory_free_bytes, disabled_reason, launcher FROM pmhash.stat;
SELECT pmhash.stat_reset();
SELECT pmhash.stat_reset('counted_k');
SELECT pmhash.stat_reset_shared();
SELECT pmhash.prewarm('counted_k');
SELECT pmhash.total_relation_size('counted') > 0 AS size;
RESET ROLE;
GRANT SELECT ON counted TO regress_pmhash_nobody;
GRANT pg_monitor TO regress_pmhash_nobody;
SET ROLE regress_pmhash_nobody;
SELECT pmhash.prewarm('counted_k') > 0 AS warmed;
SELECT directory <> '' AS directory FROM pmhash.stat;
RESET ROLE;
REVOKE CREATE, USAGE ON SCHEMA public FROM regress_pmhash_nobody;
REVOKE SELECT ON counted FROM regress_pmhash_nobody;
DROP ROLE regress_pmhash_nobody;
RESET ALL;
DROP TABLE counted, grown, passing, loose, parts;
DROP FUNCTION counters;
