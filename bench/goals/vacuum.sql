--
-- vacuum.sql: VACUUM of a table of which half is deleted, while another session
-- is at bench.watch_vacuum
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
SELECT clock_timestamp() AS moment \gset
VACUUM :relation;
SELECT bench.sample(:round, :'method', :'metric', bench.since(:'moment'));
INSERT INTO bench.vacuumed VALUES (:'relation');
SELECT bench.ask(:'method', :'question', :'query', :plan_index);
