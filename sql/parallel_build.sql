--
-- CREATE INDEX with parallel workers.
--
CREATE TABLE pb (k int8, t text COLLATE "C", dup int4, n int4);
INSERT INTO pb SELECT i, 'text number ' || i, i % 7, CASE WHEN i % 10 = 0 THEN i END
	FROM generate_series(1, 50000) i;
ALTER TABLE pb SET (parallel_workers = 2);
ANALYZE pb;

SET log_temp_files = -1;
SET client_min_messages = debug1;
CREATE INDEX pb_k ON pb USING pmhash (k);
CREATE INDEX pb_t ON pb USING pmhash (t);
CREATE INDEX pb_n ON pb USING pmhash (n);
CREATE INDEX pb_two ON pb USING pmhash (dup, t);
CREATE INDEX pb_part ON pb USING pmhash (k) WHERE dup = 3;
CREATE INDEX pb_expr ON pb USING pmhash ((k + 1));
-- all beyond memory, in workers and leader; few keys with many rows
SET maintenance_work_mem = '1MB';
CREATE INDEX pb_small ON pb USING pmhash (k);
CREATE INDEX pb_dup ON pb USING pmhash (dup);
RESET maintenance_work_mem;
-- other ways to build
REINDEX INDEX pb_k;
DROP INDEX pb_t;
CREATE INDEX CONCURRENTLY pb_t ON pb USING pmhash (t);
REINDEX INDEX CONCURRENTLY pb_n;
-- none where the server forbids it
CREATE FUNCTION pb_unsafe(int8) RETURNS int8 IMMUTABLE PARALLEL UNSAFE LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';
CREATE INDEX pb_unsafe ON pb USING pmhash (pb_unsafe(k));
SET max_parallel_maintenance_workers = 0;
CREATE INDEX pb_alone ON pb USING pmhash (k);
RESET max_parallel_maintenance_workers;
RESET client_min_messages;
-- some of it is more than memory holds though it is parted by eight bits: by more
CREATE TABLE pb_many AS SELECT CASE WHEN i % 12 > 0 THEN i ELSE 0 END AS k FROM generate_series(1, 900000) i;
SET maintenance_work_mem = '1MB';
CREATE INDEX pb_many_k ON pb_many USING pmhash (k);
RESET maintenance_work_mem;
SELECT entries FROM pmhash.stats('pb_many_k');
SELECT pmhash.check('pb_many_k', false);
DROP TABLE pb_many;

SELECT index, entries FROM unnest('{pb_k,pb_t,pb_n,pb_two,pb_part,pb_expr,pb_small,pb_dup,pb_unsafe,pb_alone}'::regclass[]) index,
	pmhash.stats(index);
SELECT index, pmhash.check(index) FROM unnest('{pb_k,pb_t,pb_n,pb_two,pb_part,pb_expr,pb_small,pb_dup,pb_unsafe,pb_alone}'::regclass[]) index;
DROP INDEX pb_k, pb_small, pb_alone;
SELECT * FROM every_key('pb', 't', 'pb_t');
SELECT * FROM every_key('pb', 'n', 'pb_n');
SELECT * FROM every_key('pb', 'dup', 'pb_dup');

-- an error in a worker, or in the leader: nothing is left
\set SHOW_CONTEXT never
CREATE FUNCTION pb_fails(int8) RETURNS int8 IMMUTABLE PARALLEL SAFE LANGUAGE sql AS 'SELECT 10 / ($1 - 49999)';
CREATE INDEX pb_fails ON pb USING pmhash (pb_fails(k));
ALTER TABLE pb ADD EXCLUDE USING pmhash (dup WITH =);
ALTER TABLE pb ADD CONSTRAINT pb_excl EXCLUDE USING pmhash (t WITH =);
INSERT INTO pb VALUES (0, 'text number 7', 0, 0);
SELECT count(*) FROM pmhash.indexes WHERE "table" = 'pb' AND state <> 'valid';
DROP TABLE pb;
