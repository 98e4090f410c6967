--
-- Which roles may look at what.
--
CREATE ROLE regress_pmhash_owner;
CREATE ROLE regress_pmhash_reader;
CREATE ROLE regress_pmhash_stranger;
CREATE ROLE regress_pmhash_monitor IN ROLE pg_monitor;
CREATE TABLE private (k int4);
INSERT INTO private SELECT generate_series(1, 100);
CREATE INDEX private_k ON private USING pmhash (k);
ALTER TABLE private OWNER TO regress_pmhash_owner;
GRANT SELECT ON private TO regress_pmhash_reader;

SET ROLE regress_pmhash_owner;
SELECT entries FROM pmhash.stats('private_k');
SET ROLE regress_pmhash_reader;
SELECT entries FROM pmhash.stats('private_k');
SET ROLE regress_pmhash_monitor;
SELECT entries FROM pmhash.stats('private_k');
SET ROLE regress_pmhash_stranger;
SELECT entries FROM pmhash.stats('private_k');
SELECT k FROM private WHERE k = 5;
-- size and state are for all users, as pg_relation_size and pg_class are; where the
-- file is, for the owner and pg_monitor
SELECT pmhash.size('private_k') > 0;
SELECT index, state, file IS NULL AS hidden FROM pmhash.indexes WHERE "table" = 'private';
SET ROLE regress_pmhash_owner;
SELECT index, state, file IS NULL AS hidden FROM pmhash.indexes WHERE "table" = 'private';
SET ROLE regress_pmhash_monitor;
SELECT index, state, file IS NULL AS hidden FROM pmhash.indexes WHERE "table" = 'private';
-- only superusers make operator classes
RESET ROLE;
GRANT CREATE ON SCHEMA public TO regress_pmhash_stranger;
SET ROLE regress_pmhash_stranger;
CREATE OPERATOR CLASS stranger_ops FOR TYPE int4 USING pmhash AS
	OPERATOR 1 =, FUNCTION 1 hashint4extended(int4, int8);
RESET ROLE;
REVOKE CREATE ON SCHEMA public FROM regress_pmhash_stranger;

-- row security: what the index finds is filtered like anything else
ALTER TABLE private ENABLE ROW LEVEL SECURITY;
CREATE POLICY even ON private FOR SELECT TO regress_pmhash_reader USING (k % 2 = 0);
ANALYZE private;
SET ROLE regress_pmhash_reader;
SET enable_seqscan = off;
SELECT plan('SELECT k FROM private WHERE k = 5');
SELECT k FROM private WHERE k = 5;
SELECT k FROM private WHERE k = 6;
SELECT k FROM private WHERE k IN (1, 2, 3, 4);
RESET enable_seqscan;
RESET ROLE;

DROP TABLE private;
DROP ROLE regress_pmhash_owner, regress_pmhash_reader, regress_pmhash_stranger, regress_pmhash_monitor;
