--
-- Row types that keys are made of: their attributes decide what a key's hash is, and
-- which rows are equal, so they stay as they are while there is such an index.
--
CREATE SCHEMA kept;
CREATE TYPE kept.pair AS (a int4, b int4);
CREATE TABLE keyed (p kept.pair, CONSTRAINT keyed_p EXCLUDE USING pmhash (p WITH =));
INSERT INTO keyed VALUES (ROW (1, 2)), (ROW (1, 3));
-- the rows that are there have other hashes
-- event: `ALTER TYPE ... ADD` or `DROP ATTRIBUTE`, or columns of a table whose rows are keys
ALTER TYPE kept.pair ADD ATTRIBUTE c int4;
INSERT INTO keyed VALUES (ROW (1, 2));
ALTER TYPE kept.pair DROP ATTRIBUTE b;
ALTER TYPE kept.pair ADD ATTRIBUTE c int4, DROP ATTRIBUTE a CASCADE;
SELECT * FROM answers('SELECT * FROM keyed WHERE p = ROW (1, 2)::kept.pair', 'keyed_p');
INSERT INTO keyed VALUES (ROW (1, 2));
-- another name changes nothing
ALTER TYPE kept.pair RENAME ATTRIBUTE b TO second;
ALTER TYPE kept.pair RENAME ATTRIBUTE second TO b;
SELECT * FROM answers('SELECT * FROM keyed WHERE p = ROW (1, 2)::kept.pair', 'keyed_p');
-- an error that is caught leaves nothing to be refused later
DO $$
BEGIN
	ALTER TYPE kept.pair ADD ATTRIBUTE c int4;
EXCEPTION WHEN feature_not_supported THEN
	RAISE NOTICE 'refused: %', SQLERRM;
END $$;
BEGIN;
SAVEPOINT s;
ALTER TYPE kept.pair DROP ATTRIBUTE a;
ROLLBACK TO s;
CREATE TYPE kept.other AS (x int4);
ALTER TYPE kept.other ADD ATTRIBUTE y int4;
COMMIT;
SELECT attname FROM pg_attribute WHERE attrelid = 'kept.pair'::regclass ORDER BY attnum;
-- without the index it is allowed, in the transaction that drops it, too
BEGIN;
ALTER TABLE keyed DROP CONSTRAINT keyed_p;
ALTER TYPE kept.pair ADD ATTRIBUTE c int4;
ALTER TABLE keyed ADD CONSTRAINT keyed_p EXCLUDE USING pmhash (p WITH =);
INSERT INTO keyed VALUES (ROW (1, 4, NULL));
ALTER TYPE kept.pair ADD ATTRIBUTE d int4;
ROLLBACK;
ALTER TABLE keyed DROP CONSTRAINT keyed_p;
ALTER TYPE kept.pair ADD ATTRIBUTE c int4;
ALTER TABLE keyed ADD CONSTRAINT keyed_p EXCLUDE USING pmhash (p WITH =);
INSERT INTO keyed VALUES (ROW (1, 2, NULL));
SELECT * FROM answers('SELECT * FROM keyed WHERE p = ROW (1, 2, NULL)::kept.pair', 'keyed_p');
SELECT pmhash.check('keyed_p');
-- rows that become equal: the constraint finds them
ALTER TABLE keyed DROP CONSTRAINT keyed_p;
ALTER TYPE kept.pair DROP ATTRIBUTE b;
ALTER TABLE keyed ADD CONSTRAINT keyed_p EXCLUDE USING pmhash (p WITH =);
DROP TABLE keyed;

-- What some minor versions of the server refuse themselves, in other words.
CREATE FUNCTION refused(text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE $1;
	RETURN false;
EXCEPTION WHEN feature_not_supported THEN
	RETURN true;
END $$;

-- Wherever the type is in the key.
CREATE FUNCTION key_of(text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'CREATE TABLE keyed (id int4, k ' || $1 || ')';
	CREATE INDEX keyed_k ON keyed USING pmhash (id, k);
	BEGIN
		ALTER TYPE kept.core ADD ATTRIBUTE z int4;
		ALTER TYPE kept.core DROP ATTRIBUTE z;
		RETURN NEXT 'added and dropped';
	EXCEPTION WHEN feature_not_supported THEN
		RETURN NEXT SQLERRM;
	END;
	DROP TABLE keyed;
	ALTER TYPE kept.core ADD ATTRIBUTE z int4;
	ALTER TYPE kept.core DROP ATTRIBUTE z;
END $$;
CREATE TYPE kept.core AS (a int4, b text);
CREATE DOMAIN kept.of_core AS kept.core;
CREATE DOMAIN kept.of_array AS kept.of_core[];
CREATE TYPE kept.outer AS (i kept.core, n int4);
CREATE TYPE kept.arrays AS (i kept.of_array, n int4);
CREATE TYPE kept.cores AS RANGE (subtype = kept.core);
SELECT key_of('kept.core');
SELECT key_of('kept.core[]');
SELECT key_of('kept.of_core');
SELECT key_of('kept.of_array');
SELECT key_of('kept.outer');
SELECT key_of('kept.arrays[]');
SELECT key_of('kept.cores');
SELECT key_of('kept.cores[]');
SELECT key_of((SELECT rngmultitypid::regtype::text FROM pg_range WHERE rngtypid = 'kept.cores'::regtype));
SELECT key_of('int4');
-- in the key, not in the row
CREATE TABLE beside (id int4, i kept.core);
CREATE INDEX ON beside USING pmhash (id);
CREATE INDEX ON beside USING btree (i);
CREATE INDEX ON beside USING pmhash (((i).a));
ALTER TYPE kept.core ADD ATTRIBUTE c int4, ADD ATTRIBUTE d int4;
ALTER TYPE kept.core DROP ATTRIBUTE c;
DROP TABLE beside;
-- expressions, temporary tables, partitions (the parent has no hashes)
CREATE FUNCTION kept.make(int4) RETURNS kept.core LANGUAGE sql IMMUTABLE AS 'SELECT NULL::kept.core';
CREATE TABLE made (id int4);
CREATE INDEX made_k ON made USING pmhash (kept.make(id));
ALTER TYPE kept.core DROP ATTRIBUTE a;
SELECT refused('ALTER TYPE kept.core ALTER ATTRIBUTE a TYPE numeric');
SELECT refused('ALTER TYPE kept.core ALTER ATTRIBUTE b TYPE text COLLATE "C"');
DROP TABLE made;
ALTER TYPE kept.core ALTER ATTRIBUTE a TYPE int8;
CREATE TEMP TABLE for_now (i kept.core);
CREATE INDEX for_now_i ON for_now USING pmhash (i);
ALTER TYPE kept.core DROP ATTRIBUTE a;
DROP TABLE for_now;
CREATE TABLE divided (id int4, i kept.core) PARTITION BY LIST (id);
CREATE INDEX divided_i ON divided USING pmhash (i);
ALTER TYPE kept.core ADD ATTRIBUTE c int4;
ALTER TYPE kept.core DROP ATTRIBUTE c;
CREATE TABLE divided_1 PARTITION OF divided FOR VALUES IN (1);
ALTER TYPE kept.core ADD ATTRIBUTE c int4;
DROP TABLE divided;

-- Row types of tables and views.
CREATE TABLE kept.base (a int4, b int4);
ALTER TABLE kept.base ADD COLUMN d text;
CREATE TABLE kept.child (c int4) INHERITS (kept.base);
CREATE VIEW kept.seen AS SELECT 1 AS a;
CREATE TABLE rows_of (t kept.child, v kept.seen);
CREATE INDEX rows_of_t ON rows_of USING pmhash (t);
CREATE INDEX rows_of_v ON rows_of USING pmhash (v);
ALTER TABLE kept.base ADD COLUMN e int4;
ALTER TABLE ONLY kept.base DROP COLUMN b;
ALTER TABLE kept.base DROP COLUMN a;
ALTER TABLE kept.child ADD COLUMN e int4;
CREATE OR REPLACE VIEW kept.seen AS SELECT 1 AS a, 2 AS b;
-- the row of the table itself
CREATE TABLE kept.alone (a int4, d text);
CREATE INDEX alone_row ON kept.alone USING pmhash ((alone.*));
INSERT INTO kept.alone VALUES (1);
ALTER TABLE kept.alone ADD COLUMN f int4;
SELECT refused('ALTER TABLE kept.alone ADD COLUMN f int4 DEFAULT 5');
ALTER TABLE kept.alone DROP COLUMN a;
SELECT refused('ALTER TABLE kept.alone ALTER COLUMN d TYPE text COLLATE "C"');
ALTER TABLE kept.alone ALTER COLUMN d SET STATISTICS 10;
ALTER TABLE kept.alone ALTER COLUMN d SET DEFAULT 'x';
SELECT * FROM answers('SELECT * FROM kept.alone WHERE alone.* = ROW (1, NULL)::kept.alone', 'alone_row');
DROP INDEX kept.alone_row;
ALTER TABLE kept.alone DROP COLUMN a;
-- an attribute goes with its type: the index need not
CREATE TYPE kept.part AS (x int4);
CREATE TYPE kept.whole AS (p kept.part, n int4);
CREATE TABLE wholes (w kept.whole);
CREATE INDEX wholes_w ON wholes USING pmhash (w);
DROP TYPE kept.part CASCADE;
-- unless all goes at once
SET client_min_messages = warning;
BEGIN;
DROP TYPE kept.part, kept.whole CASCADE;
ROLLBACK;
-- an attribute of a temporary type may go at any time
CREATE TEMP TABLE passing (x int4);
CREATE DOMAIN pg_temp.passing_int AS int4;
CREATE TYPE kept.holds AS (n int4, p passing[]);
CREATE TYPE kept.holds_domain AS (n int4, d pg_temp.passing_int);
CREATE TABLE kept.holding (h kept.holds, d kept.holds_domain, r passing);
CREATE INDEX holding_h ON kept.holding USING pmhash (h);
CREATE INDEX holding_d ON kept.holding USING pmhash (d);
CREATE INDEX holding_r ON kept.holding USING pmhash (r);
-- what one level lets pass another one looks for
CREATE TABLE kept.levels (p kept.whole);
CREATE INDEX levels_p ON kept.levels USING pmhash (p);
DROP INDEX wholes_w;
CREATE FUNCTION kept.hides() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	DROP INDEX kept.levels_p;
	RAISE EXCEPTION 'taken back';
EXCEPTION WHEN raise_exception THEN
	RAISE NOTICE '%', SQLERRM;
END $$;
CREATE EVENT TRIGGER hides ON ddl_command_end WHEN tag IN ('ALTER TYPE') EXECUTE FUNCTION kept.hides();
SET client_min_messages = notice;
ALTER TYPE kept.whole ADD ATTRIBUTE z int4;
SET client_min_messages = warning;
DROP EVENT TRIGGER hides;
ALTER TABLE wholes SET SCHEMA kept;
ALTER TABLE rows_of SET SCHEMA kept;
DROP SCHEMA kept CASCADE;
DROP FUNCTION key_of, refused;
-- a table whose row type is in no key: pg_class, which may be long, is not read from end to end
CREATE TABLE alone (a int4);
CREATE INDEX alone_a ON alone USING pmhash (a);
BEGIN;
SELECT pg_stat_get_xact_numscans('pg_class'::regclass) AS before \gset
ALTER TABLE alone ADD COLUMN b int4;
ALTER TABLE alone DROP COLUMN b;
SELECT pg_stat_get_xact_numscans('pg_class'::regclass) - :before AS scans;
COMMIT;
DROP TABLE alone;
-- an operator class of its own
CREATE TYPE own AS (a int4, b int4);
CREATE TABLE owned (o own);
CREATE OPERATOR CLASS own_ops DEFAULT FOR TYPE own USING pmhash
	AS OPERATOR 1 = (record, record), FUNCTION 1 hash_record_extended(record, int8);
CREATE INDEX owned_o ON owned USING pmhash (o);
ALTER TYPE own ADD ATTRIBUTE c int4;
DROP TABLE owned;
DROP TYPE own CASCADE;
