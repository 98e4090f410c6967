--
-- workload.sql: one workload with one method in one round
--
-- Variables: method, indexed, round, name, columns (of the key, with commas),
-- match (the join condition of t and p), work_rows, work_fresh.
--
SELECT bench.force_index(:indexed);
\if :indexed
\set index '\'work_index\''
\else
\set index NULL
\endif
DROP TABLE IF EXISTS bench.work;
CREATE TABLE bench.work (LIKE bench.rows_:name);
INSERT INTO bench.work SELECT * FROM bench.rows_:name;
VACUUM (ANALYZE) bench.work;
\if :indexed
SELECT clock_timestamp() AS moment \gset
CREATE INDEX work_index ON bench.work USING :method (:columns);
SELECT bench.sample(:round, :'method', :'name' || '_build', bench.since(:'moment'));
SELECT bench.sample(:round, :'method', :'name' || '_size',
	bench.index_bytes('bench.work_index')::double precision / :work_rows);
SELECT pg_prewarm('bench.work_index');
\endif

-- The first time warms the index.
SELECT bench.ask(:'method', format('which rows do the %ss of workload %s find', kind, :'name'),
	format('SELECT count(*) || '' rows, sum '' || coalesce(sum(t.payload), 0)
			FROM bench.%s_%s AS p JOIN bench.work AS t ON %s', kind, :'name', :'match'),
	:index) AS warm
FROM unnest(ARRAY['hit', 'miss']) AS kind;
\if :indexed
SELECT bench.sample(:round, :'method', :'name' || '_' || kind,
	(bench.ask(:'method', format('which rows do the %ss of workload %s find', kind, :'name'),
		format('SELECT count(*) || '' rows, sum '' || coalesce(sum(t.payload), 0)
				FROM bench.%s_%s AS p JOIN bench.work AS t ON %s', kind, :'name', :'match'),
		:index) -
	 bench.ask(:'method', format('how many %ss has workload %s', kind, :'name'),
		format('SELECT count(*)::text FROM bench.%s_%s', kind, :'name'), NULL)) * 1e6 /
	(SELECT n FROM bench.probe_count WHERE probe_set = kind || '_' || :'name'))
FROM unnest(ARRAY['hit', 'miss']) AS kind;
\endif

SELECT pg_prewarm('bench.fresh_rows_' || :'name');
SELECT clock_timestamp() AS moment \gset
INSERT INTO bench.work SELECT * FROM bench.fresh_rows_:name;
SELECT bench.sample(:round, :'method', :'name' || '_insert',
	bench.since(:'moment') * 1e6 / :work_fresh);
SELECT bench.ask(:'method', format('which rows have the keys of workload %s after it', :'name'),
	format('SELECT count(*) || '' rows, sum '' || sum(t.payload)
			FROM bench.hit_%s AS p JOIN bench.work AS t ON %s', :'name', :'match'),
	:index);
