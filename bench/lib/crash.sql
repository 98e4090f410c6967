--
-- crash.sql: does each index say what the table says?
--
-- Variable: keys_lost (first number of the keys whose transaction was open
-- when the server was killed).
--
-- Each question is asked twice, with plans that use no index and with plans
-- that use the pmhash index.
--
CREATE TABLE bench.crash_question
(
	question	text,
	query		text,
	index		text
);

INSERT INTO bench.crash_question VALUES
	('is each row of the large table found, once',
	 'SELECT count(*) || '' rows, sum '' || sum(hashtextextended(t.v, 0))
	  FROM bench.item AS p JOIN bench.item AS t ON t.k = p.k', 'item_index'),
	('is any row of the open transaction found',
	 'SELECT count(t.v) || '' rows''
	  FROM generate_series(' || :keys_lost || ', ' || :keys_lost || ' + 99999) AS n
		JOIN bench.item AS t ON t.k = bench.key(n, 1)', 'item_index'),
	('what is the balance of all accounts',
	 'SELECT count(*) || '' accounts, '' || sum(a.abalance)
	  FROM pgbench_accounts AS p JOIN pgbench_accounts AS a ON a.aid = p.aid',
	 'accounts_index'),
	('what is the balance of all tellers',
	 'SELECT count(*) || '' tellers, '' || sum(t.tbalance)
	  FROM pgbench_tellers AS p JOIN pgbench_tellers AS t ON t.tid = p.tid',
	 'tellers_index'),
	('what was booked',
	 'SELECT count(*) || '' bookings, '' || coalesce(sum(h.delta), 0)
	  FROM (SELECT DISTINCT aid FROM pgbench_history) AS p
		JOIN pgbench_history AS h ON h.aid = p.aid', 'history_index');

SET enable_indexscan = off;
SET enable_bitmapscan = off;
SET enable_indexonlyscan = off;
SELECT bench.ask('a sequential scan', question, query, NULL)
	FROM bench.crash_question;

RESET enable_indexscan;
RESET enable_bitmapscan;
RESET enable_indexonlyscan;
SET max_parallel_workers_per_gather = 0;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET pmhash.enable_join = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
SET enable_material = off;
SELECT bench.ask('pmhash after the crash', question, query, index)
	FROM bench.crash_question;

-- Each row has one entry, each entry has its row: the product's own check.
SELECT pmhash.check(format('%I.%I', schema, index)::regclass) FROM pmhash.indexes;

-- pgbench's own invariant: what was booked is what the accounts have.
SELECT bench.confirm('the accounts', 'sum of what was booked',
		(SELECT sum(abalance)::text FROM pgbench_accounts));
SELECT bench.confirm('the history', 'sum of what was booked',
		(SELECT coalesce(sum(delta), 0)::text FROM pgbench_history));
