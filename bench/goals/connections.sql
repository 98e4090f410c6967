--
-- connections.sql: tables with an index each, in which new sessions will look up rows
--
-- Variables: method, tables, table_rows.  A session's part is bench.look_up_each().
--
SET synchronous_commit = off;
SELECT format('DROP TABLE IF EXISTS bench.each_%s', t),
	format('CREATE TABLE bench.each_%s AS SELECT bench.key(n, %s) AS k, n AS v
			FROM generate_series(1::bigint, %s) AS n', t, t, :table_rows),
	format('CREATE INDEX each_%s_index ON bench.each_%s USING %I (k)', t, t, :'method'),
	format('VACUUM (ANALYZE) bench.each_%s', t)
FROM generate_series(1, :tables) AS t \gexec
SET enable_seqscan = off;
SELECT bench.require_plan('SELECT v FROM bench.each_1 WHERE k = 1', 'each_1_index');
CREATE TABLE IF NOT EXISTS bench.session (what text, value double precision);
TRUNCATE bench.session;

-- Ten rows of each.
CREATE OR REPLACE FUNCTION bench.look_up_each(tables int, table_rows int)
RETURNS void LANGUAGE plpgsql AS
$$
DECLARE
	began double precision := bench.processor_time();
	first double precision;
	found bigint;
	wanted bigint;
BEGIN
	FOR i IN 0 .. tables * 10 - 1 LOOP
		wanted := bench.pick(pg_backend_pid(), i, table_rows);
		EXECUTE format('SELECT v FROM bench.each_%s WHERE k = $1', 1 + i / 10)
			INTO found USING bench.key(wanted, 1 + i / 10);
		ASSERT found = wanted, 'WRONG ANSWER';
		first := coalesce(first, bench.processor_time() - began);
	END LOOP;
	INSERT INTO bench.session VALUES ('first_look_up', first * 1e6),
		('session', (bench.processor_time() - began) * 1e3),
		('page_tables', substring(pg_read_file('/proc/self/status') FROM 'VmPTE:\s+(\d+)')::int / 1024.0);
END
$$;
