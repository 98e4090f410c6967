--
-- Unique indexes (PostgreSQL 18 and later).
--
CREATE TABLE uniq (id int4, url text, note text);
CREATE UNIQUE INDEX uniq_id ON uniq USING pmhash (id);
CREATE UNIQUE INDEX uniq_url ON uniq USING pmhash (url);
INSERT INTO uniq SELECT i, 'http://example.org/' || i FROM generate_series(1, 1000) i;
DO $$
BEGIN
	INSERT INTO uniq VALUES (1, 'new');
EXCEPTION WHEN unique_violation THEN
	DECLARE
		state text; detail text; name text; tab text;
	BEGIN
		GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL,
			name = CONSTRAINT_NAME, tab = TABLE_NAME;
		RAISE INFO '% % % %', state, detail, name, tab;
	END;
END $$;
INSERT INTO uniq VALUES (1, 'new');
INSERT INTO uniq VALUES (2000, 'http://example.org/7');
-- NULLs are equal to none
INSERT INTO uniq VALUES (NULL, NULL), (NULL, NULL);
INSERT INTO uniq VALUES (NULL, NULL) ON CONFLICT (id) DO UPDATE SET note = 'never';
SELECT count(*), count(note) FROM uniq WHERE id IS NULL;
-- a key that is gone may come back
DELETE FROM uniq WHERE id = 5;
INSERT INTO uniq VALUES (5, 'http://example.org/5');
UPDATE uniq SET id = 6 WHERE id = 5;
UPDATE uniq SET id = 5 WHERE id = 5;
BEGIN;
INSERT INTO uniq VALUES (3000, 'twice');
INSERT INTO uniq VALUES (3000, 'other');
ROLLBACK;
INSERT INTO uniq VALUES (3000, 'twice');
-- in the order of the rows, as with btree
BEGIN;
UPDATE uniq SET id = id + 1 WHERE id <= 1000;
ROLLBACK;
UPDATE uniq SET id = id + 10000 WHERE id <= 1000;
UPDATE uniq SET id = id - 10000 WHERE id > 10000;
-- within one statement, and one of many rows
INSERT INTO uniq VALUES (4000, 'a'), (4000, 'b');
INSERT INTO uniq SELECT i % 1500 + 5000, 'many ' || i FROM generate_series(1, 2000) i;
SELECT count(*) FROM uniq WHERE id >= 4000;
COPY uniq FROM stdin;
8000	copied	\N
8001	copied too	\N
8000	again	\N
\.
SELECT count(*) FROM uniq WHERE id >= 4000;

-- ON CONFLICT: by columns, and by nothing
INSERT INTO uniq SELECT i, 'http://example.org/' || i FROM generate_series(990, 1010) i
	ON CONFLICT DO NOTHING;
INSERT INTO uniq VALUES (1, 'something else') ON CONFLICT (id) DO NOTHING;
INSERT INTO uniq VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET note = 'met ' || excluded.url RETURNING *;
INSERT INTO uniq VALUES (-1, 'http://example.org/2') ON CONFLICT (url) DO UPDATE SET note = 'by url' RETURNING id, note;
-- another index than the one that is named
INSERT INTO uniq VALUES (-1, 'http://example.org/2') ON CONFLICT (id) DO NOTHING;
INSERT INTO uniq SELECT 6000 + i % 10, 'row ' || i FROM generate_series(1, 100) i
	ON CONFLICT (id) DO NOTHING;
INSERT INTO uniq VALUES (6000, 'c'), (6000, 'd') ON CONFLICT (id) DO UPDATE SET note = 'twice';
INSERT INTO uniq VALUES (6100, 'c'), (6100, 'd') ON CONFLICT (id) DO UPDATE SET note = 'twice';
DO $$
BEGIN
	FOR i IN 1..3000 LOOP
		INSERT INTO uniq VALUES (7000 + i % 7, 'up ' || i) ON CONFLICT (id) DO UPDATE SET url = excluded.url, note = coalesce(uniq.note, '') || 'x';
	END LOOP;
END $$;
SELECT id, url, length(note) FROM uniq WHERE id BETWEEN 7000 AND 7006 ORDER BY id;
INSERT INTO uniq VALUES (1, 'y') ON CONFLICT ON CONSTRAINT uniq_id DO NOTHING;
MERGE INTO uniq USING (VALUES (1, 'merged'), (9000, 'merged')) v (id, url) ON uniq.id = v.id
	WHEN MATCHED THEN UPDATE SET url = v.url WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.url);
MERGE INTO uniq USING (VALUES (2, 'merged too')) v (id, url) ON uniq.id = v.id
	WHEN MATCHED THEN UPDATE SET url = v.url;
SELECT * FROM every_key('uniq', 'id', 'uniq_id');
SELECT * FROM every_key('uniq', 'url', 'uniq_url');

-- savepoints, and errors that are caught
BEGIN;
SAVEPOINT a;
INSERT INTO uniq VALUES (20000, 'gone');
ROLLBACK TO a;
INSERT INTO uniq VALUES (20000, 'stays');
SAVEPOINT b;
DELETE FROM uniq WHERE id = 20000;
INSERT INTO uniq VALUES (20000, 'gone too');
ROLLBACK TO b;
SAVEPOINT c;
INSERT INTO uniq VALUES (20000, 'no');
ROLLBACK TO c;
COMMIT;
DO $$
DECLARE
	taken int := 0;
BEGIN
	FOR i IN 1..200 LOOP
		BEGIN
			INSERT INTO uniq VALUES (30000 + i % 50, 'try ' || i);
		EXCEPTION WHEN unique_violation THEN taken := taken + 1;
		END;
	END LOOP;
	RAISE INFO '% of 200 were taken', taken;
END $$;
SELECT id, url FROM uniq WHERE id = 20000;

-- values above what a btree takes
CREATE TABLE uniq_long (url text);
CREATE UNIQUE INDEX uniq_long_url ON uniq_long USING pmhash (url);
INSERT INTO uniq_long SELECT (SELECT string_agg(md5(i || ' ' || n), '') FROM generate_series(1, n) i)
	FROM generate_series(80, 300, 20) n;
INSERT INTO uniq_long SELECT url FROM uniq_long ON CONFLICT (url) DO NOTHING;
INSERT INTO uniq_long SELECT left(url, -1) || '.' FROM uniq_long ON CONFLICT DO NOTHING;
SELECT count(*), count(DISTINCT url), max(length(url)) FROM uniq_long;
DROP TABLE uniq_long;

-- builds: a key that comes twice, alive or not
CREATE TABLE uniq_late (id int4, v text);
INSERT INTO uniq_late SELECT i, 'v' || i FROM generate_series(1, 20000) i;
INSERT INTO uniq_late VALUES (777, 'once more');
CREATE UNIQUE INDEX uniq_late_id ON uniq_late USING pmhash (id);
CREATE UNIQUE INDEX CONCURRENTLY uniq_late_id ON uniq_late USING pmhash (id);
SELECT indisunique, indisvalid FROM pg_index WHERE indexrelid = 'uniq_late_id'::regclass;
DROP INDEX uniq_late_id;
BEGIN;
DELETE FROM uniq_late WHERE v = 'once more';
CREATE UNIQUE INDEX uniq_late_id ON uniq_late USING pmhash (id);
ROLLBACK;
BEGIN;
SAVEPOINT a;
DELETE FROM uniq_late WHERE v = 'once more';
ROLLBACK TO a;
CREATE UNIQUE INDEX uniq_late_id ON uniq_late USING pmhash (id);
ROLLBACK;
DELETE FROM uniq_late WHERE v = 'once more';
UPDATE uniq_late SET v = v || '.';
-- (the rows of before are in the way of no build)
CREATE UNIQUE INDEX uniq_late_id ON uniq_late USING pmhash (id);
CREATE UNIQUE INDEX CONCURRENTLY uniq_late_v ON uniq_late USING pmhash (v);
REINDEX INDEX CONCURRENTLY uniq_late_id;
REINDEX TABLE uniq_late;
INSERT INTO uniq_late VALUES (1, 'new');
INSERT INTO uniq_late VALUES (100000, 'v1.');
-- a rewrite, and TRUNCATE
ALTER TABLE uniq_late ALTER id TYPE int8;
INSERT INTO uniq_late VALUES (1, 'new');
\set VERBOSITY terse
ALTER TABLE uniq_late ALTER id TYPE int8 USING id / 2;
\set VERBOSITY default
TRUNCATE uniq_late;
INSERT INTO uniq_late VALUES (1, 'new');
INSERT INTO uniq_late VALUES (1, 'newer');
SELECT * FROM uniq_late;
DROP TABLE uniq_late;

-- with workers, and in pieces that memory does not hold; several columns with NULLs
CREATE TABLE uniq_big (a int4, b int4, c text);
INSERT INTO uniq_big SELECT i, NULL, 'c' || i FROM generate_series(1, 60000) i;
INSERT INTO uniq_big SELECT 1, NULL, 'n' || i FROM generate_series(1, 20000) i;
SET maintenance_work_mem = '1MB';
SET max_parallel_maintenance_workers = 2;
ALTER TABLE uniq_big SET (parallel_workers = 2);
CREATE UNIQUE INDEX uniq_big_ab ON uniq_big USING pmhash (a, b);
CREATE UNIQUE INDEX uniq_big_c ON uniq_big USING pmhash (c);
INSERT INTO uniq_big VALUES (1, NULL, 'another'), (1, 2, 'third');
INSERT INTO uniq_big VALUES (1, 2, 'fourth');
DROP INDEX uniq_big_c;
INSERT INTO uniq_big VALUES (-1, NULL, 'c4711');
CREATE UNIQUE INDEX uniq_big_c ON uniq_big USING pmhash (c);
-- one key in more rows than memory holds: all but one are dead, or two are not
BEGIN;
INSERT INTO uniq_big SELECT -2, i, 'many' FROM generate_series(1, 60000) i;
DELETE FROM uniq_big WHERE c IN ('many', 'c4711');
INSERT INTO uniq_big VALUES (-2, 0, 'many');
SAVEPOINT s;
INSERT INTO uniq_big VALUES (-2, 1, 'many');
CREATE UNIQUE INDEX uniq_big_c ON uniq_big USING pmhash (c);
ROLLBACK TO s;
CREATE UNIQUE INDEX uniq_big_c ON uniq_big USING pmhash (c);
INSERT INTO uniq_big VALUES (-2, 1, 'many');
ROLLBACK;
RESET maintenance_work_mem;
RESET max_parallel_maintenance_workers;
DROP TABLE uniq_big;

-- partial, expressions, -0.0
CREATE TABLE uniq_more (a int4, b text, active bool, f float8);
CREATE UNIQUE INDEX uniq_partial ON uniq_more USING pmhash (a) WHERE active;
CREATE UNIQUE INDEX uniq_both ON uniq_more USING pmhash (a, lower(b));
CREATE UNIQUE INDEX uniq_float ON uniq_more USING pmhash (f);
INSERT INTO uniq_more VALUES (1, 'One', true), (1, 'Uno', false), (1, 'Eins', false);
INSERT INTO uniq_more VALUES (1, 'Un', true);
INSERT INTO uniq_more VALUES (1, 'ONE', false);
UPDATE uniq_more SET active = true WHERE b = 'Uno';
INSERT INTO uniq_more VALUES (2, 'ONE', true, 0.0);
INSERT INTO uniq_more VALUES (3, 'ONE', true, -0.0);
INSERT INTO uniq_more VALUES (1, 'un', true) ON CONFLICT (a) WHERE active DO UPDATE SET b = 'changed';
INSERT INTO uniq_more VALUES (1, 'EINS', false) ON CONFLICT (a, lower(b)) DO UPDATE SET b = 'also';
SELECT a, b, active FROM uniq_more ORDER BY a, b;
DROP TABLE uniq_more;

-- keys of one hash that are not equal
CREATE FUNCTION uniq_hash(text, int8) RETURNS int8 IMMUTABLE STRICT LANGUAGE sql RETURN length($1);
CREATE OPERATOR CLASS uniq_ops FOR TYPE text USING pmhash AS OPERATOR 1 =, FUNCTION 1 uniq_hash;
CREATE TABLE uniq_same (t text);
CREATE UNIQUE INDEX uniq_same_t ON uniq_same USING pmhash (t uniq_ops);
INSERT INTO uniq_same SELECT lpad(i::text, 4) FROM generate_series(1, 300) i;
INSERT INTO uniq_same VALUES ('  77');
INSERT INTO uniq_same VALUES ('  77') ON CONFLICT DO NOTHING;
REINDEX INDEX uniq_same_t;
DROP INDEX uniq_same_t;
INSERT INTO uniq_same VALUES ('  77');
CREATE UNIQUE INDEX uniq_same_t ON uniq_same USING pmhash (t uniq_ops);
DROP TABLE uniq_same;
DROP OPERATOR CLASS uniq_ops USING pmhash;
DROP FUNCTION uniq_hash;

-- partitions
CREATE TABLE uniq_part (id int4, v text) PARTITION BY HASH (id);
CREATE TABLE uniq_part_0 PARTITION OF uniq_part FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE uniq_part_1 PARTITION OF uniq_part FOR VALUES WITH (MODULUS 2, REMAINDER 1);
DO $$
BEGIN
	CREATE UNIQUE INDEX uniq_part_v ON uniq_part USING pmhash (v);
EXCEPTION WHEN feature_not_supported THEN
	RAISE NOTICE '%', lower(sqlerrm);	-- PostgreSQL 19 writes UNIQUE
END $$;
CREATE UNIQUE INDEX uniq_part_id ON uniq_part USING pmhash (id);
INSERT INTO uniq_part SELECT i, 'v' || i FROM generate_series(1, 100) i;
INSERT INTO uniq_part VALUES (7, 'no');
INSERT INTO uniq_part VALUES (7, 'up') ON CONFLICT (id) DO UPDATE SET v = excluded.v RETURNING *;
ALTER TABLE uniq_part DETACH PARTITION uniq_part_1;
ALTER TABLE uniq_part ATTACH PARTITION uniq_part_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT count(*) FROM pg_inherits WHERE inhparent = 'uniq_part_id'::regclass;
DROP TABLE uniq_part;

-- foreign keys that reference it
CREATE TABLE uniq_parent (id int4, code text);
CREATE UNIQUE INDEX uniq_parent_id ON uniq_parent USING pmhash (id);
CREATE UNIQUE INDEX uniq_parent_code ON uniq_parent USING pmhash (code);
INSERT INTO uniq_parent SELECT i, 'c' || i FROM generate_series(1, 100) i;
CREATE TABLE uniq_child (id int4 REFERENCES uniq_parent (id) ON UPDATE CASCADE ON DELETE CASCADE,
	code text REFERENCES uniq_parent (code) ON DELETE SET NULL);
INSERT INTO uniq_child SELECT i, 'c' || i FROM generate_series(1, 50) i;
INSERT INTO uniq_child VALUES (101, 'c1');
INSERT INTO uniq_child VALUES (1, 'no such');
UPDATE uniq_parent SET id = 1001 WHERE id = 1;
DELETE FROM uniq_parent WHERE id = 2;
SELECT count(*), max(id), count(code) FROM uniq_child;
-- an integer of another length
CREATE TABLE uniq_child_8 (id int8 REFERENCES uniq_parent (id));
INSERT INTO uniq_child_8 VALUES (3);
INSERT INTO uniq_child_8 VALUES (4294967299);
DELETE FROM uniq_parent WHERE id = 3;
DROP INDEX uniq_parent_id;
DROP TABLE uniq_child, uniq_child_8, uniq_parent;

-- what 18 does not let other access methods than btree do
ALTER TABLE uniq ADD UNIQUE USING INDEX uniq_id;
ALTER TABLE uniq ADD PRIMARY KEY USING INDEX uniq_id;
CREATE UNIQUE INDEX ON uniq USING pmhash (id) NULLS NOT DISTINCT;
CREATE UNIQUE INDEX ON uniq USING pmhash (id) INCLUDE (url);
CREATE INDEX uniq_not ON uniq USING pmhash (note) NULLS NOT DISTINCT;
-- replica identity
ALTER TABLE uniq REPLICA IDENTITY USING INDEX uniq_id;
DELETE FROM uniq WHERE id IS NULL;
ALTER TABLE uniq ALTER id SET NOT NULL;
ALTER TABLE uniq REPLICA IDENTITY USING INDEX uniq_id;
-- a materialized view
CREATE MATERIALIZED VIEW uniq_view AS SELECT id, url FROM uniq WHERE id <= 100;
CREATE UNIQUE INDEX uniq_view_id ON uniq_view USING pmhash (id);
DELETE FROM uniq WHERE id = 50;
UPDATE uniq SET url = 'another' WHERE id = 60;
REFRESH MATERIALIZED VIEW CONCURRENTLY uniq_view;
SELECT count(*), count(*) FILTER (WHERE url = 'another') FROM uniq_view;
DROP MATERIALIZED VIEW uniq_view;

-- keys are shown to those only who may see them
CREATE ROLE uniq_role;
CREATE TABLE uniq_hidden (id int4, open int4);
CREATE UNIQUE INDEX uniq_hidden_id ON uniq_hidden USING pmhash (id);
GRANT INSERT, SELECT (open) ON uniq_hidden TO uniq_role;
INSERT INTO uniq_hidden VALUES (1, 1);
SET ROLE uniq_role;
INSERT INTO uniq_hidden VALUES (1, 1);
RESET ROLE;
DROP TABLE uniq_hidden;
DROP ROLE uniq_role;

-- unlogged and temporary; prepared transactions
CREATE UNLOGGED TABLE uniq_unlogged (id int4);
CREATE UNIQUE INDEX ON uniq_unlogged USING pmhash (id);
INSERT INTO uniq_unlogged VALUES (1);
INSERT INTO uniq_unlogged VALUES (1);
CREATE TEMP TABLE uniq_temp (id int4) ON COMMIT DELETE ROWS;
CREATE UNIQUE INDEX ON uniq_temp USING pmhash (id);
BEGIN;
INSERT INTO uniq_temp VALUES (1);
INSERT INTO uniq_temp VALUES (1) ON CONFLICT DO NOTHING;
INSERT INTO uniq_temp VALUES (1);
ROLLBACK;
INSERT INTO uniq_temp VALUES (1);
INSERT INTO uniq_temp VALUES (1);
DROP TABLE uniq_unlogged, uniq_temp;
-- a row of a prepared transaction is waited for (max_prepared_transactions)
SELECT current_setting('max_prepared_transactions')::int > 0 AS two_phase \gset
BEGIN;
INSERT INTO uniq VALUES (50000, 'prepared');
\if :two_phase
PREPARE TRANSACTION 'uniq';
SET lock_timeout = '100ms';
DO $$
BEGIN
	INSERT INTO uniq VALUES (50000, 'waits');
	RAISE EXCEPTION 'did not wait';
EXCEPTION WHEN lock_not_available THEN
	NULL;
END
$$;
RESET lock_timeout;
ROLLBACK PREPARED 'uniq';
\else
ROLLBACK;
\endif
INSERT INTO uniq VALUES (50000, 'waits');
SELECT pmhash.check('uniq_id'), pmhash.check('uniq_url');
SELECT * FROM every_key('uniq', 'id', 'uniq_id');
DROP TABLE uniq;

-- what core has for btree and gist alone
CREATE TABLE uniq_temporal (id int4, at int4range, twice int8 GENERATED ALWAYS AS (id::int8 * 2) VIRTUAL);
CREATE INDEX ON uniq_temporal USING pmhash (twice);
ALTER TABLE uniq_temporal ADD EXCLUDE USING pmhash (id WITH =, at WITH &&);
CREATE UNIQUE INDEX uniq_temporal_at ON uniq_temporal USING pmhash (id, at);
ALTER TABLE uniq_temporal ADD UNIQUE USING INDEX uniq_temporal_at;
CREATE TABLE uniq_period (id int4, at int4range, FOREIGN KEY (id, PERIOD at) REFERENCES uniq_temporal (id, PERIOD at));
DROP TABLE uniq_temporal;
