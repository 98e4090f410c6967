--
-- Cumulative counters, sizes, prewarming, and who may what.
--
CREATE TABLE counted (k int4, g int4);
INSERT INTO counted SELECT i, i % 10 FROM generate_series(1, 10000) i;
CREATE INDEX counted_k ON counted USING pmhash (k);
CREATE INDEX counted_kg ON counted USING pmhash (k, g);
-- what has been counted since the last call
CREATE TABLE seen (counter text, n bigint);
CREATE FUNCTION counted() RETURNS TABLE (counter text, n bigint) LANGUAGE sql AS $$
	WITH now AS MATERIALIZED (
		SELECT key, value::bigint FROM pmhash.stat s, jsonb_each_text(to_jsonb(s))
		WHERE key NOT IN ('state', 'directory', 'directory_free_bytes', 'disabled_reason', 'launcher', 'journal_bytes')),
	gone AS (DELETE FROM seen RETURNING *),
	noted AS (INSERT INTO seen SELECT * FROM now)
	SELECT key, value - coalesce(gone.n, 0) FROM now LEFT JOIN gone ON gone.counter = key
	WHERE value <> coalesce(gone.n, 0) ORDER BY key $$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET pmhash.enable_join = off;
VACUUM ANALYZE counted;
SELECT count(*) IS NOT NULL AS noted FROM counted();

-- look-ups: alone, in groups, all of the index
SELECT g FROM counted WHERE k = 77;
SELECT * FROM counted();
SELECT count(*) FROM counted WHERE k = ANY (ARRAY(SELECT generate_series(1, 1000)));
SELECT counter, CASE counter WHEN 'group_lookups' THEN (n > 1)::int ELSE n END AS n FROM counted();
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SELECT count(*) FROM counted WHERE k = 78;
RESET enable_bitmapscan;
RESET enable_indexscan;
SELECT * FROM counted();
BEGIN;
DROP INDEX counted_k;
SELECT count(*) FROM counted WHERE k = 78;
ROLLBACK;
SELECT * FROM counted();
-- a transaction's own come when it is over, and an aborted one's too
BEGIN;
SELECT g FROM counted WHERE k = 78;
SELECT * FROM counted();
SAVEPOINT s;
SELECT g FROM counted WHERE k = 79;
ROLLBACK TO s;
ROLLBACK;
SELECT * FROM counted();

-- inserts, alone and in groups; removals
INSERT INTO counted VALUES (-1, 1), (-2, 2), (-3, NULL);
SELECT * FROM counted();
INSERT INTO counted SELECT 20000 + i, 0 FROM generate_series(1, 5000) i;
SELECT sum(n) AS inserted, sum((counter = 'group_entries')::int * n) > 9800 AS in_groups FROM counted() WHERE counter IN ('inserts', 'group_entries');
DELETE FROM counted WHERE k BETWEEN 1 AND 1000;
VACUUM counted;
SELECT counter, n FROM counted() WHERE counter LIKE '%removed' OR counter = 'table_scans';

-- joins look keys up in groups
CREATE TABLE grown (k int8);
CREATE INDEX grown_k ON grown USING pmhash (k);
INSERT INTO grown SELECT generate_series(1, 20000);
SELECT count(*) IS NOT NULL AS noted FROM counted();
SET pmhash.enable_join = on;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET cpu_index_tuple_cost = 1000;
SELECT count(*) FROM generate_series(1, 3000) s JOIN grown ON k = s;
SELECT n FROM counted() WHERE counter = 'group_keys';
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET cpu_index_tuple_cost;
RESET pmhash.enable_join;
CREATE TABLE parts (k int4) PARTITION BY HASH (k);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX parts_k ON parts USING pmhash (k);

-- the server
SELECT state, directory <> '' AS directory, directory_free_bytes > 0 AS free, disabled_reason, launcher, journal_bytes > 0 AS journal,
	lookups > 0 AS lookups FROM pmhash.stat;

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
SELECT state, directory, directory_free_bytes, disabled_reason, launcher FROM pmhash.stat;
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
DROP TABLE counted, seen, grown, parts;
DROP FUNCTION counted();
