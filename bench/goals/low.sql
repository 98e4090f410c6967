--
-- low.sql: a column of 10 distinct values; everything but VACUUM
--
-- Variables: method, indexed, round, low_rows, low_fresh.
-- Leaves bench.low, half of its rows deleted, and its index.
--
SELECT bench.force_index(:indexed);
\if :indexed
\set index '\'low_index\''
\else
\set index NULL
\endif
DROP TABLE IF EXISTS bench.low;
CREATE TABLE bench.low AS
	SELECT bench.pick(n, 7, 10)::int AS k, n::int AS v
	FROM generate_series(1::bigint, :low_rows) AS n;
VACUUM (ANALYZE) bench.low;
\if :indexed
SELECT clock_timestamp() AS moment \gset
CREATE INDEX low_index ON bench.low USING :method (k);
SELECT bench.sample(:round, :'method', 'low_build', bench.since(:'moment'));
SELECT bench.sample(:round, :'method', 'low_size',
	bench.index_bytes('bench.low_index')::double precision / :low_rows);
SELECT pg_prewarm('bench.low_index');
\endif
SELECT bench.ask(:'method', 'which rows have low value 3',
	'SELECT count(*) || '' rows, sum '' || sum(v) FROM bench.low WHERE k = 3', :index);
SELECT bench.ask(:'method', format('which rows have low value %s', :round + 3),
	format('SELECT count(*) || '' rows, sum '' || sum(v) FROM bench.low WHERE k = %s', :round + 3),
	:index) AS spent \gset
SELECT bench.ask(:'method', format('how many rows have low value %s', :round + 3),
	format('SELECT count(*)::text FROM bench.low WHERE k = %s', :round + 3), :index) AS spent_count \gset
\if :indexed
SELECT bench.sample(:round, :'method', 'low_lookup', :spent * 1e9 / count(*)),
	bench.sample(:round, :'method', 'low_count', :spent_count * 1e9 / count(*))
FROM bench.low WHERE k = :round + 3;
\endif

SELECT clock_timestamp() AS moment \gset
INSERT INTO bench.low
	SELECT bench.pick(n, 10, 10)::int, -n::int FROM generate_series(1::bigint, :low_fresh) AS n;
SELECT bench.sample(:round, :'method', 'low_insert', bench.since(:'moment') * 1e6 / :low_fresh);
DELETE FROM bench.low WHERE v & 1 = 0;
