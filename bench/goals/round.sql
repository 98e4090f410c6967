--
-- round.sql: the figures of one method in one round but those of VACUUM and
-- pgbench, on the table of lib/item.sql
--
-- Variables: method, indexed (false for "none"), parallel (the method can build
-- with parallel workers), any_subquery (ask = ANY of a sub-query too), round,
-- rows, probes, keys, fresh: as for lib/load.sql; copy_round: whose fresh rows
-- are copied; copy_file: where the server keeps them.
-- Leaves bench.item, half of its rows deleted, and its index.
--
-- The answers of "none", which is asked first, come from sequential scans and
-- hash joins; those of all others are compared with them.
--
SELECT bench.force_index(:indexed);
\if :indexed
\set index '\'item_index\''
\else
\set index NULL
\endif

--
-- Build: wall clock; without parallel workers, then with those that the
-- planner grants.  A sequential scan beside it.
--
SELECT clock_timestamp() AS moment \gset
SELECT count(k) FROM bench.item;
SELECT bench.sample(:round, :'method', 'scan', bench.since(:'moment'));
\if :indexed
SET max_parallel_maintenance_workers = 0;
SELECT clock_timestamp() AS moment \gset
CREATE INDEX item_index ON bench.item USING :method (k);
SELECT bench.sample(:round, :'method', 'build_serial', bench.since(:'moment'));
\if :parallel
DROP INDEX bench.item_index;
RESET max_parallel_maintenance_workers;
SELECT clock_timestamp() AS moment \gset
CREATE INDEX item_index ON bench.item USING :method (k);
\endif
SELECT bench.sample(:round, :'method', 'build', bench.since(:'moment'));
SELECT bench.sample(:round, :'method', 'size',
	bench.index_bytes('bench.item_index')::double precision / :rows);
SELECT pg_prewarm('bench.item_index');
\endif

--
-- Probes: processor time of the join less that of a scan of the probe set
-- alone.  The row-exact questions come first, and warm the index.
--
SELECT bench.ask(:'method', format('which rows do the %ss of probe set %s find', kind, :round),
	format('SELECT count(*) || '' rows, sum '' || coalesce(sum(hashtextextended(t.v, 0)), 0)
			FROM bench.probe_%s AS p JOIN bench.item AS t ON t.k = p.%s', :round, kind),
	:index)
FROM unnest(ARRAY['hit', 'miss']) AS kind;
SELECT bench.ask(:'method', format('which keys do the hits of probe set %s find', :round),
	format('SELECT count(*) || '' rows, '' || bit_xor(t.k)
			FROM bench.probe_%s AS p JOIN bench.item AS t ON t.k = p.hit', :round),
	:index);

SELECT bench.ask(:'method', format('how many keys has probe set %s', :round),
	format('SELECT count(hit)::text FROM bench.probe_%s', :round), NULL) AS baseline \gset
SELECT bench.ask(:'method', format('what do the hits of probe set %s find', :round),
	format('SELECT count(t.v) || '' rows, '' || sum(octet_length(t.v)) || '' bytes''
			FROM bench.probe_%s AS p JOIN bench.item AS t ON t.k = p.hit', :round),
	:index) AS hit \gset
SELECT bench.ask(:'method', format('what do the misses of probe set %s find', :round),
	format('SELECT count(t.v) || '' rows''
			FROM bench.probe_%s AS p JOIN bench.item AS t ON t.k = p.miss', :round),
	:index) AS miss \gset
SELECT bench.ask(:'method', format('how many keys do the hits of probe set %s find', :round),
	format('SELECT count(t.k) || '' keys''
			FROM bench.probe_%s AS p JOIN bench.item AS t ON t.k = p.hit', :round),
	:index) AS only_hit \gset

\if :indexed
SELECT bench.sample(:round, :'method', 'hit', (:hit - :baseline) / :probes * 1e6);
SELECT bench.sample(:round, :'method', 'miss', (:miss - :baseline) / :probes * 1e6);
SELECT bench.sample(:round, :'method', 'only_hit', (:only_hit - :baseline) / :probes * 1e6);

SELECT bench.sample(:round, :'method', 'any_constant', 1e6 / :keys *
	bench.ask(:'method', format('what is = ANY of key array %s', :round),
		format('SELECT count(v) || '' rows, '' || sum(octet_length(v)) || '' bytes''
				FROM bench.item WHERE k = ANY (bench.keys(%s))', :round),
		:index));
\if :any_subquery
SELECT bench.sample(:round, :'method', 'any', 1e6 / :keys *
	bench.ask(:'method', format('what is = ANY of key array %s', :round),
		format('SELECT count(v) || '' rows, '' || sum(octet_length(v)) || '' bytes''
				FROM bench.item WHERE k = ANY ((SELECT bench.keys(%s))::bigint[])', :round),
		:index));
\endif
\else
SELECT bench.ask(:'method', format('what is = ANY of key array %s', :round),
	format('SELECT count(v) || '' rows, '' || sum(octet_length(v)) || '' bytes''
			FROM bench.item WHERE k IN (SELECT unnest(bench.keys(%s)))', :round),
	NULL);
\endif

--
-- Insert, and copy as much: wall clock.
--
SELECT pg_prewarm(format('bench.fresh_%s', :round)::regclass);
SELECT pg_current_wal_insert_lsn() AS lsn, clock_timestamp() AS moment \gset
INSERT INTO bench.item SELECT k, v FROM bench.fresh_:round;
SELECT bench.sample(:round, :'method', 'insert', bench.since(:'moment') * 1e6 / :fresh),
	bench.sample(:round, :'method', 'wal',
		(pg_current_wal_insert_lsn() - :'lsn')::double precision / :fresh);
SELECT clock_timestamp() AS moment \gset
COPY bench.item FROM :'copy_file' (FORMAT binary);
SELECT bench.sample(:round, :'method', 'copy', bench.since(:'moment') * 1e6 / :fresh);
SELECT bench.ask(:'method', format('which rows were inserted by %s', run),
	format('SELECT count(*) || '' rows, sum '' || sum(hashtextextended(t.v, 0))
			FROM bench.fresh_%s AS p JOIN bench.item AS t ON t.k = p.k', run),
	:index)
FROM unnest(ARRAY[:round, :copy_round]) AS run;

DELETE FROM bench.item WHERE k & 1 = 0;
SELECT bench.sample(:round, :'method', 'vacuum_dead', :ROW_COUNT);
