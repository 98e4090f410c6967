--
-- Uniqueness by exclusion constraints.
--
CREATE TABLE ex (id int4, url text,
	CONSTRAINT ex_id EXCLUDE USING pmhash (id WITH =),
	CONSTRAINT ex_url EXCLUDE USING pmhash (url WITH =));
INSERT INTO ex SELECT i, 'http://example.org/' || i FROM generate_series(1, 1000) i;
INSERT INTO ex VALUES (1, 'new');
INSERT INTO ex VALUES (2000, 'http://example.org/7');
-- NULLs exclude nothing
INSERT INTO ex VALUES (NULL, NULL), (NULL, NULL);
-- a key that is gone may come back
DELETE FROM ex WHERE id = 5;
INSERT INTO ex VALUES (5, 'http://example.org/5');
UPDATE ex SET id = 6 WHERE id = 5;
UPDATE ex SET id = 5 WHERE id = 5;
BEGIN;
INSERT INTO ex VALUES (3000, 'twice');
INSERT INTO ex VALUES (3000, 'other');
ROLLBACK;
INSERT INTO ex VALUES (3000, 'twice');
-- within one statement
INSERT INTO ex VALUES (4000, 'a'), (4000, 'b');
SELECT count(*) FROM ex WHERE id = 4000;

-- ON CONFLICT DO NOTHING, with and without the constraint's name
INSERT INTO ex SELECT i, 'http://example.org/' || i FROM generate_series(990, 1010) i
	ON CONFLICT DO NOTHING;
INSERT INTO ex VALUES (1, 'something else') ON CONFLICT ON CONSTRAINT ex_id DO NOTHING;
INSERT INTO ex VALUES (5000, 'dup'), (5000, 'dup2') ON CONFLICT DO NOTHING;
SELECT url FROM ex WHERE id = 5000;
INSERT INTO ex VALUES (1, 'something else') ON CONFLICT ON CONSTRAINT ex_id DO UPDATE SET url = 'x';
SELECT * FROM every_key('ex', 'id', 'ex_id');
SELECT * FROM every_key('ex', 'url', 'ex_url');

-- values above what a btree takes
INSERT INTO ex VALUES (6000, (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i));
INSERT INTO ex SELECT 6001, url FROM ex WHERE id = 6000 ON CONFLICT DO NOTHING;
SELECT count(*), max(length(url)) FROM ex WHERE id IN (6000, 6001);
CREATE TABLE ex_long (url text, CONSTRAINT ex_long_url EXCLUDE USING pmhash (url WITH =));
-- from below btree's limit of 2704 bytes to far above; not to be compressed
INSERT INTO ex_long SELECT (SELECT string_agg(md5(i || ' ' || n), '') FROM generate_series(1, n) i)
	FROM generate_series(80, 300, 20) n;
SELECT count(*), min(length(url)), max(length(url)) FROM ex_long;
INSERT INTO ex_long SELECT url FROM ex_long ON CONFLICT DO NOTHING;
INSERT INTO ex_long SELECT left(url, -1) || '.' FROM ex_long ON CONFLICT DO NOTHING;
SELECT count(*), count(DISTINCT url) FROM ex_long;
DO $$
DECLARE
	long text;
BEGIN
	FOR long IN SELECT url FROM ex_long WHERE length(url) > 2704 ORDER BY length(url), url LOOP
		BEGIN
			INSERT INTO ex_long VALUES (long);
			RAISE 'accepted twice: % bytes', length(long);
		EXCEPTION WHEN exclusion_violation THEN NULL;
		END;
		BEGIN
			UPDATE ex_long SET url = long WHERE url <> long;
			RAISE 'made equal: % bytes', length(long);
		EXCEPTION WHEN exclusion_violation THEN NULL;
		END;
	END LOOP;
END $$;
SELECT * FROM every_key('ex_long', 'url', 'ex_long_url');
DROP TABLE ex_long;

-- added to a table that breaks it
ALTER TABLE ex DROP CONSTRAINT ex_id;
INSERT INTO ex VALUES (1, 'again');
ALTER TABLE ex ADD CONSTRAINT ex_id EXCLUDE USING pmhash (id WITH =);
DELETE FROM ex WHERE url = 'again';
ALTER TABLE ex ADD CONSTRAINT ex_id EXCLUDE USING pmhash (id WITH =);
INSERT INTO ex VALUES (1, 'again');
DROP TABLE ex;

-- deferrable
CREATE TABLE ex_defer (id int4, EXCLUDE USING pmhash (id WITH =) DEFERRABLE);
INSERT INTO ex_defer SELECT generate_series(1, 10);
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
UPDATE ex_defer SET id = id + 1;
INSERT INTO ex_defer VALUES (5);
DELETE FROM ex_defer WHERE id = 5;
COMMIT;
SELECT count(*), min(id), max(id) FROM ex_defer;
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO ex_defer VALUES (6);
COMMIT;
SELECT count(*) FROM ex_defer WHERE id = 6;
UPDATE ex_defer SET id = id + 1;
SELECT count(*), min(id), max(id) FROM ex_defer;
DROP TABLE ex_defer;

-- an arbiter has to be checked at once
CREATE TABLE ex_late (url text, CONSTRAINT ex_late_url EXCLUDE USING pmhash (url WITH =) DEFERRABLE INITIALLY DEFERRED);
INSERT INTO ex_late SELECT repeat('long ', 1000) || i FROM generate_series(1, 5) i;
INSERT INTO ex_late VALUES ('x') ON CONFLICT ON CONSTRAINT ex_late_url DO NOTHING;
INSERT INTO ex_late VALUES ('x') ON CONFLICT DO NOTHING;
-- equal until the end of the transaction, which fails, or does not
\set VERBOSITY terse
BEGIN;
INSERT INTO ex_late SELECT url FROM ex_late;
SELECT count(*), count(DISTINCT url) FROM ex_late;
COMMIT;
\set VERBOSITY default
BEGIN;
INSERT INTO ex_late SELECT url FROM ex_late;
DELETE FROM ex_late WHERE ctid IN (SELECT min(ctid) FROM ex_late GROUP BY url);
COMMIT;
SELECT count(*), count(DISTINCT url) FROM ex_late;
BEGIN;
INSERT INTO ex_late SELECT repeat('long ', 1000) || 1;
SET CONSTRAINTS ex_late_url DEFERRED;
SAVEPOINT s;
\set VERBOSITY terse
SET CONSTRAINTS ex_late_url IMMEDIATE;
\set VERBOSITY default
ROLLBACK;
SELECT count(*), count(DISTINCT url) FROM ex_late;
SELECT * FROM every_key('ex_late', 'url', 'ex_late_url');
DROP TABLE ex_late;

-- partial, several columns, expressions
CREATE TABLE ex_more (a int4, b text, active bool,
	CONSTRAINT ex_partial EXCLUDE USING pmhash (a WITH =) WHERE (active),
	CONSTRAINT ex_both EXCLUDE USING pmhash (a WITH =, (lower(b)) WITH =));
INSERT INTO ex_more VALUES (1, 'One', true), (1, 'Uno', false), (1, 'Eins', false);
INSERT INTO ex_more VALUES (1, 'Un', true);
INSERT INTO ex_more VALUES (1, 'ONE', false);
UPDATE ex_more SET active = true WHERE b = 'Uno';
INSERT INTO ex_more VALUES (2, 'ONE', true);
SELECT count(*) FROM ex_more;
DROP TABLE ex_more;

-- inherited by partitions when declared on each
CREATE TABLE ex_part (id int4) PARTITION BY LIST (id);
-- (by the whole table since PostgreSQL 17)
DO $$
BEGIN
	ALTER TABLE ex_part ADD CONSTRAINT ex_part_id EXCLUDE USING pmhash (id WITH =);
	CREATE TABLE ex_part_9 PARTITION OF ex_part FOR VALUES IN (9);
	INSERT INTO ex_part VALUES (9);
	BEGIN
		INSERT INTO ex_part VALUES (9);
		RAISE 'no conflict in a partition';
	EXCEPTION WHEN exclusion_violation THEN NULL;
	END;
	DROP TABLE ex_part_9;
	ALTER TABLE ex_part DROP CONSTRAINT ex_part_id;
	ASSERT current_setting('server_version_num')::int >= 170000;
EXCEPTION WHEN feature_not_supported THEN
	ASSERT current_setting('server_version_num')::int < 170000;
END $$;
CREATE TABLE ex_part_1 PARTITION OF ex_part FOR VALUES IN (1, 2);
ALTER TABLE ex_part_1 ADD CONSTRAINT ex_part_1_id EXCLUDE USING pmhash (id WITH =);
INSERT INTO ex_part VALUES (1), (2);
INSERT INTO ex_part VALUES (1);
DROP TABLE ex_part;
