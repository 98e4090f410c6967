--
-- method.sql: all figures of one method but pgbench's, on the table of item.sql
--
-- Variables: method, indexed (false for "none"), rows, runs, probes, keys, fresh,
-- after_checkpoint: as for load.sql; text_rows, text_probes: as for load_text.sql.
-- Leaves bench.item, half of it deleted, and its index.
--
-- The answers of "none", which is asked first, come from sequential scans and
-- hash joins; those of all others are compared with them.
--

--
-- Build
--
\if :indexed
SELECT clock_timestamp() AS moment \gset
CREATE INDEX item_index ON bench.item USING :method (k);
SELECT bench.record(:'method', 'build', bench.since(:'moment'));
SELECT bench.record(:'method', 'size',
	bench.index_bytes('bench.item_index')::double precision / :rows);
SELECT pg_prewarm('bench.item_index');

\set item_index '\'item_index\''
\set page_index '\'page_index\''
SET max_parallel_workers_per_gather = 0;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET pmhash.enable_join = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
SET enable_material = off;
\else
\set item_index NULL
\set page_index NULL
\endif

--
-- Probes.  Their time is that of the join less that of a scan of the probe
-- set alone.  The row-exact questions come first, and warm the index.
--
SELECT bench.ask(:'method', format('which rows do the %ss of probe set %s find', kind, run),
	format('SELECT count(*) || '' rows, sum '' || coalesce(sum(hashtextextended(t.v, 0)), 0)
			FROM bench.probe_%s AS p JOIN bench.item AS t ON t.k = p.%s', run, kind),
	:item_index)
FROM generate_series(1, :runs) AS run, unnest(ARRAY['hit', 'miss']) AS kind;

SELECT bench.median_time(:'method', 'how many keys has probe set {run}',
	'SELECT count(hit)::text FROM bench.probe_{run}',
	NULL, :runs, 5) AS baseline \gset

SELECT bench.median_time(:'method', 'what do the hits of probe set {run} find',
	'SELECT count(t.v) || '' rows, '' || sum(octet_length(t.v)) || '' bytes''
	 FROM bench.probe_{run} AS p JOIN bench.item AS t ON t.k = p.hit',
	:item_index, :runs, 5) AS hit \gset
SELECT bench.median_time(:'method', 'what do the misses of probe set {run} find',
	'SELECT count(t.v) || '' rows''
	 FROM bench.probe_{run} AS p JOIN bench.item AS t ON t.k = p.miss',
	:item_index, :runs, 5) AS miss \gset

--
-- = ANY.  An array that the planner knows lets PostgreSQL hash it where
-- matches have to be checked again; one that it does not know is searched
-- from end to end for each of them.  Without an index it would be searched
-- for each row of the table: "none" is asked by a join.
--
\if :indexed
SELECT bench.record(:'method', 'hit', (:hit - :baseline) / :probes * 1e6);
SELECT bench.record(:'method', 'miss', (:miss - :baseline) / :probes * 1e6);

SELECT bench.record(:'method', 'any', 1e6 / :keys *
	bench.median_time(:'method', 'what is = ANY of key array {run}',
		'SELECT count(v) || '' rows, '' || sum(octet_length(v)) || '' bytes''
		 FROM bench.item WHERE k = ANY ((SELECT bench.keys({run}))::bigint[])',
		:item_index, :runs, 5));
SELECT bench.record(:'method', 'any_constant', 1e6 / :keys *
	bench.median_time(:'method', 'what is = ANY of key array {run}',
		'SELECT count(v) || '' rows, '' || sum(octet_length(v)) || '' bytes''
		 FROM bench.item WHERE k = ANY (bench.keys({run}))',
		:item_index, :runs, 5));
\else
SELECT bench.median_time(:'method', 'what is = ANY of key array {run}',
	'SELECT count(v) || '' rows, '' || sum(octet_length(v)) || '' bytes''
	 FROM bench.item WHERE k IN (SELECT unnest(bench.keys({run})))',
	NULL, :runs, 'infinity');
\endif

--
-- Insert, in several runs, and then a small part right after a checkpoint, when
-- each page that is touched for the first time goes to WAL as a whole.
--
SELECT pg_prewarm(format('bench.fresh_%s', run)::regclass) FROM generate_series(0, :runs) AS run;
SELECT pg_current_wal_insert_lsn() AS lsn \gset
SELECT bench.record(:'method', 'insert', bench.median_insert_time(:runs) * 1e6 / :fresh);
SELECT bench.record(:'method', 'wal',
	(pg_current_wal_insert_lsn() - :'lsn')::double precision / (:runs * :fresh));
CHECKPOINT;
SELECT pg_current_wal_insert_lsn() AS lsn \gset
INSERT INTO bench.item SELECT k, v FROM bench.fresh_0;
SELECT bench.record(:'method', 'wal_checkpoint',
	(pg_current_wal_insert_lsn() - :'lsn')::double precision / :after_checkpoint);

\if :indexed
SELECT bench.record(:'method', 'insert_index', r.value - none.value)
	FROM bench.result AS r, bench.result AS none
	WHERE r.metric = 'insert' AND r.method = :'method'
		AND none.metric = 'insert' AND none.method = 'none';
SELECT bench.record(:'method', 'growing',
	bench.size_while_growing(:'method', :rows / 5, 20));
\endif

SELECT bench.ask(:'method', format('which rows were inserted in run %s', run),
	format('SELECT count(*) || '' rows, sum '' || sum(hashtextextended(t.v, 0))
			FROM bench.fresh_%s AS p JOIN bench.item AS t ON t.k = p.k', run),
	:item_index)
FROM generate_series(0, :runs) AS run;

--
-- Vacuum
--
DELETE FROM bench.item WHERE k & 1 = 0;
SELECT clock_timestamp() AS moment \gset
VACUUM bench.item;
SELECT bench.record(:'method', 'vacuum', bench.since(:'moment'));
SELECT bench.ask(:'method',
	format('which rows do the hits of probe set %s find after half is deleted', run),
	format('SELECT count(*) || '' rows, sum '' || sum(hashtextextended(t.v, 0))
			FROM bench.probe_%s AS p JOIN bench.item AS t ON t.k = p.hit', run),
	:item_index)
FROM generate_series(1, :runs) AS run;

--
-- Long keys
--
\if :indexed
SELECT clock_timestamp() AS moment \gset
CREATE INDEX page_index ON bench.page USING :method (url);
SELECT bench.record(:'method', 'text_build', bench.since(:'moment'));
SELECT bench.record(:'method', 'text_size',
	bench.index_bytes('bench.page_index')::double precision / :text_rows);
SELECT pg_prewarm('bench.page'), pg_prewarm('bench.page_index');
SELECT bench.median_time(:'method', 'how many keys has url probe set {run}',
	'SELECT count(hit)::text FROM bench.url_probe_{run}',
	NULL, :runs, 5) AS baseline \gset
\endif
SELECT bench.median_time(:'method', 'what do the hits of url probe set {run} find',
	'SELECT count(t.n) || '' rows, sum '' || sum(t.n)
	 FROM bench.url_probe_{run} AS p JOIN bench.page AS t ON t.url = p.hit',
	:page_index, :runs, 5) AS hit \gset
\if :indexed
SELECT bench.record(:'method', 'text_hit', (:hit - :baseline) / :text_probes * 1e6);
DROP INDEX bench.page_index;
\endif
