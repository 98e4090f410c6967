--
-- vacuum.sql: VACUUM of a table with dead rows, while another session is at
-- bench.watch_vacuum; its time, and the WAL of the index without images of pages
--
-- Variables: method, indexed, round, metric (where its time goes), relation,
-- question and query (to be asked after it; the plan must use "index").
--
SELECT bench.force_index(:indexed);
\if :indexed
\set plan_index :'index'
\else
\set plan_index NULL
\endif
CALL bench.await_watcher();
SELECT pg_current_wal_flush_lsn() AS lsn, clock_timestamp() AS moment \gset
VACUUM (INDEX_CLEANUP) :relation;
SELECT bench.sample(:round, :'method', :'metric', bench.since(:'moment'));
-- pmhash's records are XLOG/NOOP
SELECT bench.sample(:round, :'method', :'metric' || '_wal', coalesce(sum(record_size), 0))
FROM pg_get_wal_stats(:'lsn', pg_current_wal_flush_lsn(), true)
WHERE "resource_manager/record_type" ~ '^(Btree|Hash)/|/NOOP';
INSERT INTO bench.vacuumed VALUES (:'relation');
SELECT bench.ask(:'method', :'question', :'query', :plan_index);
