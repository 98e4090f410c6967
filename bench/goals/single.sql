--
-- single.sql: rows that come alone, each in a transaction, by keys that ascend; what an
-- index beside a btree costs the planner
--
-- Variables: method, indexed, round, single_rows.
--
SET synchronous_commit = off;
SELECT 'DROP TABLE IF EXISTS bench.single, bench.single_keys',
	format('CREATE TABLE bench.single_keys AS SELECT %s AS k
			FROM generate_series(1::bigint, %s) AS n', key, :single_rows),
	'CREATE TABLE bench.single AS SELECT k FROM bench.single_keys WHERE false',
	CASE WHEN :indexed THEN format('CREATE INDEX ON bench.single USING %I (k)', :'method') END,
	format('DO $do$
		DECLARE
			r record;
			began double precision := bench.processor_time();
		BEGIN
			FOR r IN SELECT k FROM bench.single_keys LOOP
				INSERT INTO bench.single VALUES (r.k);
				COMMIT;
			END LOOP;
			PERFORM bench.sample(%s, %L, %L, (bench.processor_time() - began) * 1e6 / %s);
		END $do$', :round, :'method', 'single_' || name, :single_rows)
FROM (VALUES
	('serial', 'n'),
	-- version 7: milliseconds, four keys in each, then random bits
	('uuid_7', '(lpad(to_hex(1764547200000 + n / 4), 12, ''0'') || ''7'' || substr(md5(n::text), 1, 3) ||
		''8'' || substr(md5(n::text), 4, 15))::uuid')) AS kind (name, key) \gexec

CREATE TABLE IF NOT EXISTS bench.planned AS
	SELECT bench.key(n, 41) AS k, n AS v FROM generate_series(1::bigint, 10000) AS n;
CREATE INDEX IF NOT EXISTS planned_btree ON bench.planned USING btree (k);
\if :indexed
CREATE INDEX planned_beside ON bench.planned USING :method (k);
\endif
VACUUM (ANALYZE) bench.planned;
SELECT bench.processor_time() AS began \gset
DO $$
BEGIN
	FOR n IN 1 .. 20000 LOOP
		EXECUTE 'EXPLAIN SELECT v FROM bench.planned WHERE k = ' || n;
	END LOOP;
END $$;
SELECT bench.sample(:round, :'method', 'plan', (bench.processor_time() - :began) * 1e6 / 20000);
DROP INDEX IF EXISTS bench.planned_beside;
