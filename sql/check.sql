--
-- pmhash.check: silent where all is well.  What it finds in damaged files is
-- for the TAP test.
--
-- One call for each of a table's indexes; both forms.
CREATE FUNCTION check_all(tab regclass) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
	index regclass;
BEGIN
	FOR index IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
				 JOIN pg_am a ON a.oid = c.relam
				 WHERE i.indrelid = tab AND a.amname = 'pmhash' ORDER BY c.relname LOOP
		PERFORM pmhash.check(index);
		PERFORM pmhash.check(index, false);
		RETURN NEXT index;
	END LOOP;
END $$;

CREATE TABLE ck (k int8, d int4, t text COLLATE "C", n numeric, half int4);
INSERT INTO ck
	SELECT i, i % 7, 'value ' || i % 500, i / 3::numeric, CASE WHEN i % 2 = 0 THEN i END
	FROM generate_series(1, 20000) i;
CREATE INDEX ck_k ON ck USING pmhash (k);
CREATE INDEX ck_d ON ck USING pmhash (d);			-- long lists
CREATE INDEX ck_t ON ck USING pmhash (t);			-- short lists, rechecked
CREATE INDEX ck_n ON ck USING pmhash (n);
CREATE INDEX ck_half ON ck USING pmhash (half);		-- NULLs are not indexed
CREATE INDEX ck_two ON ck USING pmhash (d, half);	-- these are
CREATE INDEX ck_part ON ck USING pmhash (k) WHERE d = 3;
CREATE INDEX ck_expr ON ck USING pmhash (lower(t), (k % 10));
CREATE INDEX ck_none ON ck USING pmhash (k) WHERE k < 0;
SELECT check_all('ck');

-- rows that come, change and go
INSERT INTO ck SELECT i, i % 7, 'value ' || i % 500, i, i FROM generate_series(20001, 30000) i;
UPDATE ck SET d = d + 100, k = -k WHERE k % 5 = 0;
UPDATE ck SET half = NULL WHERE k % 11 = 0;
DELETE FROM ck WHERE k % 13 = 0;
SELECT check_all('ck');
VACUUM ck;
SELECT check_all('ck');
INSERT INTO ck SELECT i, i % 7, 'again ' || i % 50, i, i FROM generate_series(40001, 45000) i;
SELECT check_all('ck');

-- what was rolled back has left entries, and VACUUM takes them out
BEGIN;
INSERT INTO ck SELECT i, 1, 'rolled back', i, i FROM generate_series(50001, 52000) i;
SELECT check_all('ck');
SAVEPOINT s;
UPDATE ck SET k = k + 100000 WHERE d = 1;
SELECT check_all('ck');
ROLLBACK TO s;
SELECT check_all('ck');
DELETE FROM ck WHERE d = 2;
SELECT check_all('ck');
ROLLBACK;
SELECT check_all('ck');
VACUUM ck;
SELECT check_all('ck');

-- batches smaller than the index
SET maintenance_work_mem = '1MB';
INSERT INTO ck SELECT i, 5, 'many', i, i FROM generate_series(100001, 170000) i;
SELECT check_all('ck');
RESET maintenance_work_mem;
DROP TABLE ck;

-- HOT chains: redirected, dead, and older than the index
CREATE TABLE ck_hot (k int4, v int4, w int4) WITH (fillfactor = 50);
INSERT INTO ck_hot SELECT i, i, i FROM generate_series(1, 2000) i;
CREATE INDEX ck_hot_k ON ck_hot USING pmhash (k);
UPDATE ck_hot SET v = v + 1;
SELECT check_all('ck_hot');
UPDATE ck_hot SET v = v + 1 WHERE k % 2 = 0;
SELECT count(*) FROM ck_hot WHERE v > k + 1;	-- prunes
SELECT check_all('ck_hot');
BEGIN;
UPDATE ck_hot SET v = -v;
SELECT check_all('ck_hot');
ROLLBACK;
SELECT check_all('ck_hot');
-- a column that was changed in HOT chains, and in this transaction
BEGIN;
UPDATE ck_hot SET w = -w WHERE k % 3 = 0;
CREATE INDEX ck_hot_w ON ck_hot USING pmhash (w);
SELECT check_all('ck_hot');
COMMIT;
SELECT check_all('ck_hot');
UPDATE ck_hot SET v = 0 WHERE k % 3 = 0;
SELECT check_all('ck_hot');
DELETE FROM ck_hot WHERE k % 4 = 0;
SELECT count(*) FROM ck_hot;
SELECT check_all('ck_hot');
VACUUM (INDEX_CLEANUP OFF) ck_hot;
SELECT check_all('ck_hot');
VACUUM ck_hot;
SELECT check_all('ck_hot');
-- line pointers that are used again
INSERT INTO ck_hot SELECT i, i, i FROM generate_series(5001, 5500) i;
SELECT check_all('ck_hot');
VACUUM FULL ck_hot;
SELECT check_all('ck_hot');
DROP TABLE ck_hot;

-- long values, in TOAST, of rows that are no more
CREATE TABLE ck_toast (t text COLLATE "C");
ALTER TABLE ck_toast ALTER t SET STORAGE EXTERNAL;
CREATE INDEX ck_toast_t ON ck_toast USING pmhash (t);
INSERT INTO ck_toast SELECT repeat(md5(i::text), 200) FROM generate_series(1, 200) i;
BEGIN;
INSERT INTO ck_toast SELECT repeat(md5(i::text), 200) FROM generate_series(201, 240) i;
ROLLBACK;
-- from a page with room, which is not pruned
DELETE FROM ck_toast WHERE ctid IN (SELECT ctid FROM ck_toast ORDER BY ctid DESC LIMIT 30);
SELECT check_all('ck_toast');
-- their chunks go, the rows stay
SELECT reltoastrelid::regclass AS toast FROM pg_class WHERE relname = 'ck_toast' \gset
VACUUM :toast;
SELECT check_all('ck_toast');
DROP TABLE ck_toast;

-- added and dropped columns
CREATE TABLE ck_cols (a int4, b int4);
INSERT INTO ck_cols SELECT i, i FROM generate_series(1, 100) i;
ALTER TABLE ck_cols ADD COLUMN c int4 DEFAULT 5;
ALTER TABLE ck_cols DROP COLUMN a;
CREATE INDEX ck_cols_c ON ck_cols USING pmhash (c);
CREATE INDEX ck_cols_b ON ck_cols USING pmhash (b);
INSERT INTO ck_cols SELECT i, i FROM generate_series(101, 200) i;
SELECT check_all('ck_cols');
DROP TABLE ck_cols;

-- exclusion constraints, empty, unlogged and temporary tables
CREATE TABLE ck_excl (k int4, EXCLUDE USING pmhash (k WITH =));
INSERT INTO ck_excl SELECT generate_series(1, 1000);
INSERT INTO ck_excl VALUES (5);
INSERT INTO ck_excl VALUES (5), (1001) ON CONFLICT DO NOTHING;
SELECT check_all('ck_excl');
DROP TABLE ck_excl;
CREATE UNLOGGED TABLE ck_unlogged (k int4);
CREATE INDEX ck_unlogged_k ON ck_unlogged USING pmhash (k);
SELECT check_all('ck_unlogged');
INSERT INTO ck_unlogged SELECT generate_series(1, 1000);
SELECT check_all('ck_unlogged');
DROP TABLE ck_unlogged;
CREATE TEMP TABLE ck_temp (k int4) ON COMMIT DELETE ROWS;
CREATE INDEX ck_temp_k ON ck_temp USING pmhash (k);
BEGIN;
INSERT INTO ck_temp SELECT generate_series(1, 1000);
SELECT check_all('ck_temp');
COMMIT;
SELECT check_all('ck_temp');
DROP TABLE ck_temp;

-- an index that does not agree: the function is not immutable after all
CREATE FUNCTION ck_lie(i int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql
	AS 'BEGIN RETURN i + 1; END';
CREATE TABLE ck_lied (k int4);
INSERT INTO ck_lied SELECT generate_series(1, 3);
CREATE INDEX ck_lied_k ON ck_lied USING pmhash (ck_lie(k));
CREATE INDEX ck_lied_part ON ck_lied USING pmhash (k) WHERE ck_lie(k) > 3;
SELECT check_all('ck_lied');
CREATE OR REPLACE FUNCTION ck_lie(i int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql
	AS 'BEGIN RETURN i; END';
-- without the hashes, which differ from run to run
CREATE FUNCTION check_fails(index regclass, OUT message text, OUT detail text, OUT state text)
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pmhash.check(index);
EXCEPTION WHEN index_corrupted THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, state = RETURNED_SQLSTATE;
	SELECT string_agg(regexp_replace(line, '[0-9a-f]{16}', '...'), E'\n' ORDER BY line COLLATE "C")
	INTO detail FROM regexp_split_to_table(detail, '\n') line;
END $$;
SELECT * FROM check_fails('ck_lied_part');
SELECT * FROM check_fails('ck_lied_k');
INSERT INTO ck_lied SELECT generate_series(4, 100);
REINDEX TABLE ck_lied;
SELECT check_all('ck_lied');
CREATE OR REPLACE FUNCTION ck_lie(i int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql
	AS 'BEGIN RETURN -i; END';
SELECT message, detail LIKE '%The check ended here; there may be more.%' AS ended FROM check_fails('ck_lied_k');
DROP TABLE ck_lied;

-- refused
CREATE TABLE ck_bad (k int4) PARTITION BY HASH (k);
CREATE TABLE ck_bad_1 PARTITION OF ck_bad FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE INDEX ck_bad_k ON ck_bad USING pmhash (k);
CREATE INDEX ck_bad_btree ON ck_bad_1 (k);
SELECT pmhash.check('ck_bad_k');
SELECT pmhash.check('ck_bad_1_k_idx');
SELECT pmhash.check('ck_bad_btree');
SELECT pmhash.check('ck_bad_1');
\set VERBOSITY sqlstate
SELECT pmhash.check(0);
\set VERBOSITY default
SELECT pmhash.check(0);
SELECT pmhash.check(NULL) IS NULL;
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ck_bad_1_k_idx'::regclass;
SELECT pmhash.check('ck_bad_1_k_idx');
DROP TABLE ck_bad;

-- for superusers and whom they grant it to; functions run as the table's owner
CREATE ROLE regress_pmhash_checker;
CREATE ROLE regress_pmhash_checked;
CREATE FUNCTION ck_who(i int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF i = 1 THEN
		RAISE NOTICE 'as %', current_user;
	END IF;
	RETURN i;
END $$;
CREATE TABLE ck_owned (k int4);
ALTER TABLE ck_owned OWNER TO regress_pmhash_checked;
INSERT INTO ck_owned SELECT generate_series(1, 10);
CREATE INDEX ck_owned_k ON ck_owned USING pmhash (ck_who(k));
SET ROLE regress_pmhash_checker;
SELECT pmhash.check('ck_owned_k');
RESET ROLE;
GRANT EXECUTE ON FUNCTION pmhash.check(regclass, boolean) TO regress_pmhash_checker;
SET ROLE regress_pmhash_checker;
SELECT pmhash.check('ck_owned_k');
SELECT current_user;
RESET ROLE;
REVOKE EXECUTE ON FUNCTION pmhash.check(regclass, boolean) FROM regress_pmhash_checker;
DROP TABLE ck_owned;
DROP ROLE regress_pmhash_checker, regress_pmhash_checked;

-- under an old snapshot
CREATE TABLE ck_iso (k int4, v int4);
INSERT INTO ck_iso SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX ck_iso_k ON ck_iso USING pmhash (k);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM ck_iso;
UPDATE ck_iso SET k = k + 1000 WHERE k < 10;
SELECT check_all('ck_iso');
COMMIT;
DROP TABLE ck_iso;
