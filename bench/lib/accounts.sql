--
-- accounts.sql: check that an index on pgbench_accounts answers rightly
--
-- Variables: method, indexed, accounts.
--
\if :indexed
\set index '\'accounts_index\''
SET max_parallel_workers_per_gather = 0;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET pmhash.enable_join = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
SET enable_material = off;
\else
\set index NULL
\endif
SELECT bench.ask(:'method', 'which pgbench accounts are found',
	'SELECT count(*) || '' rows, sum '' || sum(a.aid::bigint * a.bid)
	 FROM generate_series(1, 50000) AS n
		JOIN pgbench_accounts AS a ON a.aid = bench.pick(n, 5, ' || :accounts || ')::int',
	:index);
