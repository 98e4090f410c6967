--
-- Entries of long statements wait in a queue and go into the table in groups;
-- no reader may notice.
--
CREATE TABLE gi (k int8, t text);
CREATE INDEX gi_k ON gi USING pmhash (k);
CREATE INDEX gi_t ON gi USING pmhash (t);
CREATE VIEW gi_both AS SELECT k.rows, k.by_index, k.by_bitmap, t.by_index AS text_by_index
	FROM every_key('gi', 'k', 'gi_k') k, every_key('gi', 't', 'gi_t') t;

-- one transaction that reads what it has just written
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 2000) i;
SELECT * FROM gi_both;
SELECT entries FROM pmhash.stats('gi_k');
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 1000) i;
SELECT entries FROM pmhash.stats('gi_t');
COMMIT;
SELECT * FROM gi_both;

-- read in another statement than the next of this session: applied at commit
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(2001, 2500) i;
SELECT entries FROM pmhash.stats('gi_k');
SELECT * FROM gi_both;

-- more than a queue holds
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(10001, 60000) i;
SELECT entries FROM pmhash.stats('gi_k');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM generate_series(10001, 60000) i
	WHERE EXISTS (SELECT 1 FROM gi WHERE k = i OFFSET 0);
RESET enable_seqscan;
RESET enable_bitmapscan;
DELETE FROM gi WHERE k > 10000;
VACUUM gi;

-- a statement whose rows are looked for while it runs
CREATE FUNCTION gi_seen(int8) RETURNS int8 LANGUAGE plpgsql VOLATILE
	SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN RETURN (SELECT count(*) FROM gi WHERE k = $1); END $$;
CREATE TABLE gi_log (i int8, before int8);
CREATE FUNCTION gi_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.k % 100 = 0 THEN
		INSERT INTO gi_log VALUES (NEW.k, gi_seen(NEW.k - 1));
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER gi_t1 BEFORE INSERT ON gi FOR EACH ROW EXECUTE FUNCTION gi_trigger();
INSERT INTO gi SELECT i, 'y' || i FROM generate_series(5001, 5500) i;
DROP TRIGGER gi_t1 ON gi;
SELECT * FROM gi_log;

-- by a trigger that has the new rows as a table, in a recursion, after COMMIT AND CHAIN
CREATE FUNCTION gi_after() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	RAISE INFO 'found % of %', (SELECT count(*) FROM new_rows n WHERE EXISTS (SELECT FROM gi WHERE k = n.k OFFSET 0)),
		(SELECT count(*) FROM new_rows);
	RETURN NULL;
END $$;
CREATE TRIGGER gi_t2 AFTER INSERT ON gi REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION gi_after();
BEGIN;
INSERT INTO gi SELECT i, 'z' FROM generate_series(80001, 80500) i;
WITH RECURSIVE r (k) AS (VALUES (80001::int8) UNION ALL SELECT gi_seen(r.k) + r.k FROM r WHERE gi_seen(r.k) > 0)
	SELECT max(k) FROM r;
COMMIT AND CHAIN;
SELECT gi_seen(80500);
INSERT INTO gi SELECT i, 'z' FROM generate_series(80501, 81000) i;
ROLLBACK AND CHAIN;
SELECT gi_seen(80500), gi_seen(80501);
COMMIT;
DROP TRIGGER gi_t2 ON gi;
DROP FUNCTION gi_after;
DELETE FROM gi WHERE k > 80000;

-- UPDATE and COPY
UPDATE gi SET k = k - 3000 WHERE k BETWEEN 5001 AND 5500;
SELECT * FROM gi_both;
COPY gi (k) FROM PROGRAM 'seq 2601 2700';
SELECT * FROM gi_both;

-- subtransactions
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
SAVEPOINT a;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 200) i;
SAVEPOINT b;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 400) i;
ROLLBACK TO b;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 800) i;
RELEASE b;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 50) i;
SAVEPOINT c;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 25) i;
RELEASE a;
SAVEPOINT d;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 30) i;
ROLLBACK TO d;
COMMIT;
SELECT * FROM gi_both;
DO $$
BEGIN
	FOR round IN 1..40 LOOP
		INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 40) i;
		BEGIN
			INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 40) i;
			IF round % 2 = 0 THEN
				RAISE 'even';
			END IF;
		EXCEPTION WHEN raise_exception THEN
			INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 20) i;
		END;
	END LOOP;
END $$;
SELECT * FROM gi_both;
-- what waits when a subtransaction is aborted is dropped: of 500 rows, all but
-- the first 16, which are inserted at once
BEGIN;
SELECT entries AS before FROM pmhash.stats('gi_k') \gset
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
SAVEPOINT a;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 500) i;
ROLLBACK TO a;
SELECT entries - :before AS entries FROM pmhash.stats('gi_k');
ROLLBACK;

-- what a transaction may do to table and index after an insert
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
REINDEX INDEX gi_k;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
COMMIT;
SELECT * FROM gi_both;
SELECT pmhash.check('gi_k'), pmhash.check('gi_t');
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
TRUNCATE gi;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 300) i;
TRUNCATE gi;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 200) i;
COMMIT;
SELECT * FROM gi_both;
SELECT entries FROM pmhash.stats('gi_k');
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
DROP INDEX gi_t;
CREATE INDEX gi_t ON gi USING pmhash (t);
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
ALTER TABLE gi ALTER k TYPE int4;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
CREATE TABLE gi_new (k int8);
CREATE INDEX ON gi_new USING pmhash (k);
INSERT INTO gi_new SELECT generate_series(1, 100);
TRUNCATE gi_new;
INSERT INTO gi_new SELECT generate_series(1, 70);
COMMIT;
SELECT * FROM gi_both;
SELECT pmhash.check('gi_k'), pmhash.check('gi_t'), pmhash.check('gi_new_k_idx');
BEGIN;
INSERT INTO gi_new SELECT generate_series(1, 100);
DROP TABLE gi_new;
COMMIT;

-- PREPARE, or COMMIT if that is not possible here (max_prepared_transactions)
SELECT current_setting('max_prepared_transactions')::int > 0 AS two_phase \gset
BEGIN;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
\if :two_phase
PREPARE TRANSACTION 'gi';
COMMIT PREPARED 'gi';
\else
COMMIT;
\endif
SELECT * FROM gi_both;

-- an open cursor, a cursor opened later
BEGIN;
SET LOCAL enable_seqscan = off;
DECLARE early CURSOR FOR SELECT count(*) FROM gi WHERE k = 7;
INSERT INTO gi SELECT 7, 'x7' FROM generate_series(1, 100);
DECLARE late CURSOR FOR SELECT count(*) FROM gi WHERE k = 7;
INSERT INTO gi SELECT 7, 'x7' FROM generate_series(1, 100);
FETCH early;
FETCH late;
SELECT count(*) FROM gi WHERE k = 7;
ROLLBACK;

-- parallel workers look rows up that their leader has inserted
CREATE TABLE gi_keys (k int8) WITH (parallel_workers = 2);
INSERT INTO gi_keys SELECT generate_series(1, 20000);
ANALYZE gi_keys;
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL enable_hashjoin = off;
SET LOCAL pmhash.enable_join = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL enable_material = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL parallel_leader_participation = off;
INSERT INTO gi SELECT i + 10000, 'z' FROM generate_series(1, 3000) i;
EXPLAIN (COSTS OFF) SELECT count(gi.t) FROM gi_keys JOIN gi ON gi.k = gi_keys.k WHERE gi_keys.k > 10000;
SELECT count(gi.t) FROM gi_keys JOIN gi ON gi.k = gi_keys.k WHERE gi_keys.k > 10000;
ROLLBACK;

-- Statements that build indexes start workers without a plan.  The leader takes its
-- time here and looks nothing up itself, so that all is left to them.  (A volatile function
-- sees what a statement has inserted itself as well.)
CREATE TABLE gi_u (k int8, v int8);
CREATE INDEX gi_u_k ON gi_u USING pmhash (k);
CREATE FUNCTION gi_read(int8) RETURNS int8 VOLATILE PARALLEL SAFE LANGUAGE plpgsql AS $$
BEGIN RETURN (SELECT v FROM public.gi_u WHERE k = $1); END $$;
CREATE FUNCTION gi_v(int8) RETURNS int8 IMMUTABLE PARALLEL SAFE COST 100000 LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM pg_stat_activity WHERE pid = pg_backend_pid() AND leader_pid IS NULL) THEN
		PERFORM pg_sleep(0.03);
		RETURN 0;
	END IF;
	RETURN coalesce(public.gi_read($1), -1);
END $$;
CREATE FUNCTION gi_fill() RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM public.gi_u) THEN
		INSERT INTO public.gi_u SELECT i, i FROM generate_series(1, 1000) i;
	END IF;
	RETURN 1;
END $$;
-- a row on each page
CREATE TABLE gi_big (x int8, pad text);
ALTER TABLE gi_big ALTER pad SET STORAGE PLAIN;
INSERT INTO gi_big SELECT i + 100, repeat('x', 5000) FROM generate_series(1, 100) i;
CREATE INDEX gi_big_x ON gi_big (x);
CREATE MATERIALIZED VIEW gi_copy AS SELECT x, repeat('y', 5000) AS pad FROM gi_big WITH NO DATA;
ALTER MATERIALIZED VIEW gi_copy ALTER pad SET STORAGE PLAIN;
-- Keys of gi_v in the index made by a statement, which is undone then.
CREATE FUNCTION gi_built(statement text, tab regclass, method text, OUT missed int8, OUT "by workers" bool) LANGUAGE plpgsql AS $$
DECLARE
	by_workers int8;
BEGIN
	IF statement !~ '^CREATE' THEN
		EXECUTE format('CREATE INDEX gi_made ON %s USING %s (gi_v(x)) WHERE x > 0', tab, method);
	END IF;
	DELETE FROM gi_u;
	IF statement !~ 'gi_fill' THEN
		PERFORM gi_fill();
	END IF;
	EXECUTE format(statement, method);
	EXECUTE format('SELECT (SELECT count(*) FROM %1$s WHERE gi_v(x) = -1 AND x > 0),
		count(*) FROM generate_series(101, 200) i WHERE EXISTS (SELECT FROM %1$s WHERE gi_v(x) = i AND x > 0 OFFSET 0)', tab)
		INTO missed, by_workers;
	"by workers" := by_workers > 0;
	RAISE 'undo';
EXCEPTION WHEN raise_exception THEN
	RETURN;
END $$;
BEGIN;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL max_parallel_maintenance_workers = 2;
SET LOCAL maintenance_work_mem = '256MB';
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT statement, method, b.* FROM unnest(ARRAY['btree', 'pmhash']) method, unnest(
	ARRAY['CREATE INDEX gi_made ON gi_big USING %s (gi_v(x)) WHERE x > 0', 'REINDEX INDEX gi_made', 'REINDEX TABLE gi_big',
		'CLUSTER gi_big USING gi_big_x', 'ALTER TABLE gi_big SET UNLOGGED',
		'ALTER TABLE gi_big ADD filled int8 DEFAULT gi_fill()', 'REFRESH MATERIALIZED VIEW gi_copy'],
	ARRAY['gi_big', 'gi_big', 'gi_big', 'gi_big', 'gi_big', 'gi_big', 'gi_copy']::regclass[]) s (statement, tab),
	gi_built(statement, tab, method) b ORDER BY method, statement COLLATE "C";
COMMIT;
DROP MATERIALIZED VIEW gi_copy;
DROP TABLE gi_big, gi_u;
DROP FUNCTION gi_built, gi_v, gi_read, gi_fill;

-- never for constraints, nor under SERIALIZABLE; nor when it is off
CREATE TABLE gi_x (k int8, EXCLUDE USING pmhash (k WITH =));
INSERT INTO gi_x SELECT i % 100 FROM generate_series(1, 200) i;
SELECT entries > 16 AS "at once" FROM pmhash.stats('gi_x_k_excl');
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
COMMIT;
SELECT * FROM gi_both;
SET pmhash.group_insert = off;
INSERT INTO gi SELECT i, 'x' || i FROM generate_series(1, 100) i;
SELECT * FROM gi_both;
RESET pmhash.group_insert;

-- temporary and unlogged tables
CREATE TEMPORARY TABLE gi_temp (k int8) ON COMMIT DELETE ROWS;
CREATE INDEX gi_temp_k ON gi_temp USING pmhash (k);
BEGIN;
INSERT INTO gi_temp SELECT generate_series(1, 100);
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM gi_temp WHERE k = 50;
COMMIT;
SELECT entries FROM pmhash.stats('gi_temp_k');
CREATE UNLOGGED TABLE gi_unlogged (k int8);
CREATE INDEX gi_unlogged_k ON gi_unlogged USING pmhash (k);
INSERT INTO gi_unlogged SELECT generate_series(1, 100);
SELECT entries FROM pmhash.stats('gi_unlogged_k');
SELECT pmhash.check('gi_k'), pmhash.check('gi_t'), pmhash.check('gi_unlogged_k');

-- Which statements' rows wait: entries that are in the table when a statement of
-- 500 rows is undone before a queue has been applied.  The first 16 are put
-- there at once; all, if its rows may become dead while it runs (ON CONFLICT), or
-- nothing is known of what it does.
CREATE FUNCTION gi_at_once(statement text, index regclass = 'gi_k') RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	before int8 := (SELECT entries FROM pmhash.stats(index));
BEGIN
	BEGIN
		EXECUTE statement;
		RAISE 'undo';
	EXCEPTION WHEN raise_exception THEN
		RETURN (SELECT entries - before FROM pmhash.stats(index));
	END;
END $$;
TRUNCATE gi;
ALTER TABLE gi ADD PRIMARY KEY (k);
CREATE FUNCTION gi_block(k int8) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 / (k % 2);
	RETURN k;
EXCEPTION WHEN division_by_zero THEN
	RETURN k;
END $$;
CREATE TABLE gi_parts (k int8, n int4) PARTITION BY LIST (n);
CREATE TABLE gi_part0 PARTITION OF gi_parts FOR VALUES IN (0);
CREATE TABLE gi_part1 PARTITION OF gi_parts FOR VALUES IN (1);
CREATE INDEX ON gi_parts USING pmhash (k);
CREATE TABLE gi_from AS SELECT i AS k, 'x' || i AS t FROM generate_series(1, 500) i;
SELECT gi_at_once('INSERT INTO gi SELECT * FROM gi_from') AS plain,
	gi_at_once('INSERT INTO gi SELECT gi_block(k), t FROM gi_from') AS subtransactions,
	gi_at_once('WITH i AS (INSERT INTO gi SELECT * FROM gi_from RETURNING k) SELECT count(*) FROM i') AS "with",
	gi_at_once('WITH i AS (INSERT INTO gi SELECT * FROM gi_from) SELECT 1') AS unread,
	gi_at_once('COPY gi (k) FROM PROGRAM ''seq 1 500''') AS copy,
	gi_at_once('INSERT INTO gi_parts SELECT k, 1 FROM gi_from', 'gi_part1_k_idx') AS partition,
	gi_at_once('COPY gi_parts FROM PROGRAM ''seq -f "%.0f,1" 1 500'' (FORMAT csv)', 'gi_part1_k_idx') AS copy_partition;
INSERT INTO gi SELECT * FROM gi_from;
INSERT INTO gi_parts SELECT k, 0 FROM gi_from;
-- a loop over gi_k would read it, and so have put in what is queued
SET enable_nestloop = off;
SELECT gi_at_once('UPDATE gi SET k = k + 1000') AS "update",
	gi_at_once('UPDATE gi_parts SET n = 1', 'gi_part1_k_idx') AS other_partition,
	gi_at_once('MERGE INTO gi USING gi_from f ON gi.k = f.k + 1000 WHEN NOT MATCHED THEN INSERT VALUES (f.k + 1000, f.t)') AS merge;
RESET enable_nestloop;
TRUNCATE gi;
SELECT gi_at_once('INSERT INTO gi SELECT * FROM gi_from ON CONFLICT DO NOTHING') AS nothing,
	gi_at_once('INSERT INTO gi SELECT * FROM gi_from ON CONFLICT (k) DO UPDATE SET t = ''y''') AS "update",
	gi_at_once('WITH i AS (INSERT INTO gi SELECT * FROM gi_from ON CONFLICT DO NOTHING) SELECT 1') AS "with",
	gi_at_once('WITH i AS (INSERT INTO gi_parts SELECT k, 1 FROM gi_from) INSERT INTO gi SELECT * FROM gi_from ON CONFLICT DO NOTHING') AS two;
-- the rows that DO UPDATE changes are plain ones, but of such a statement
INSERT INTO gi SELECT * FROM gi_from;
SELECT gi_at_once('INSERT INTO gi SELECT * FROM gi_from ON CONFLICT (k) DO UPDATE SET k = gi.k + 1000') AS changed;
SELECT * FROM gi_both;

-- What waits takes no more memory than work_mem together, however many tables
-- there are, and gives it back.
CREATE TABLE gi_many (k int8, n int4) PARTITION BY LIST (n);
SELECT format('CREATE TABLE gi_many%s PARTITION OF gi_many FOR VALUES IN (%s)', i, i) FROM generate_series(0, 63) i \gexec
CREATE INDEX ON gi_many USING pmhash (k);
CREATE VIEW gi_memory AS SELECT coalesce(sum(total_bytes), 0) AS bytes FROM pg_backend_memory_contexts WHERE name ~ '^pmhash (insert queues|queued entries)';
SET work_mem = '1MB';
BEGIN;
INSERT INTO gi_many SELECT i, i % 64 FROM generate_series(1, 100000) i;
SELECT bytes BETWEEN 100000 AND 1100000 AS capped FROM gi_memory;
SAVEPOINT a;
INSERT INTO gi_many SELECT i, i % 64 FROM generate_series(1, 100000) i;
SELECT bytes BETWEEN 100000 AND 1100000 AS capped FROM gi_memory;
RELEASE a;
SELECT bytes < 1100000 AS capped FROM gi_memory;
-- each partition is read, so none has anything left to wait
SELECT sum(entries) FROM pg_inherits, pmhash.stats(inhrelid) WHERE inhparent = 'gi_many_k_idx'::regclass;
SELECT bytes < 50000 AS "given back" FROM gi_memory;
INSERT INTO gi_many SELECT i, i % 64 FROM generate_series(1, 10000) i;
COMMIT;
SELECT bytes FROM gi_memory;
RESET work_mem;
SELECT sum(entries) AS entries, count(pmhash.check(inhrelid)) AS checked FROM pg_inherits, pmhash.stats(inhrelid) WHERE inhparent = 'gi_many_k_idx'::regclass;

DROP TABLE gi, gi_log, gi_keys, gi_x, gi_temp, gi_unlogged, gi_parts, gi_from, gi_many CASCADE;
DROP VIEW gi_memory;
DROP FUNCTION gi_block;
