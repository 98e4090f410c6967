--
-- small.sql: many tables of 400 rows, as chunks are: bytes of an index, and a VACUUM of
-- all after a tenth is deleted; one table whose keys are all changed, five times
--
-- Variables: method, indexed, round, chunks, churn_rows.
--
SELECT bench.force_index(:indexed);
SET synchronous_commit = off;
DROP TABLE IF EXISTS bench.churn;
SELECT format('DROP TABLE IF EXISTS bench.chunk_%s', c),
	format('CREATE TABLE bench.chunk_%s (k bigint, v bigint)', c),
	CASE WHEN :indexed THEN
		format('CREATE INDEX chunk_%s_index ON bench.chunk_%s USING %I (k)', c, c, :'method') END,
	format('INSERT INTO bench.chunk_%s SELECT bench.key(n, %s), n FROM generate_series(1::bigint, 400) AS n', c, c),
	format('DELETE FROM bench.chunk_%s WHERE v %% 10 = 0', c)
FROM generate_series(1, :chunks) AS c \gexec
RESET synchronous_commit;
SELECT 'VACUUM ' || string_agg('bench.chunk_' || c, ', ') AS vacuum
FROM generate_series(1, :chunks) AS c \gset
SELECT clock_timestamp() AS moment \gset
:vacuum;
SELECT bench.sample(:round, :'method', 'chunks_vacuum', bench.since(:'moment'));

CREATE TABLE bench.churn AS
	SELECT bench.key(n, 20) AS k, n AS v FROM generate_series(1::bigint, :churn_rows) AS n;
\if :indexed
SELECT bench.sample(:round, :'method', 'chunk_size',
	avg(bench.index_bytes(format('bench.chunk_%s_index', c)::regclass)))
FROM generate_series(1, :chunks) AS c;
CREATE INDEX churn_index ON bench.churn USING :method (k);
\endif
VACUUM (ANALYZE) bench.churn;
SELECT format('UPDATE bench.churn SET k = bench.key(v, 20 + %s)', i), 'VACUUM bench.churn'
FROM generate_series(1, 5) AS i \gexec
\if :indexed
SELECT bench.sample(:round, :'method', 'churn_size',
	bench.index_bytes('bench.churn_index')::double precision / :churn_rows);
\endif
SELECT bench.ask(:'method', 'which rows have the keys of a churned table',
	format('SELECT count(*) || '' rows, sum '' || sum(t.v) FROM generate_series(1::bigint, %s) AS n
			JOIN bench.churn AS t ON t.k = bench.key(n, 25)', :churn_rows),
	CASE WHEN :indexed THEN 'churn_index' END);
