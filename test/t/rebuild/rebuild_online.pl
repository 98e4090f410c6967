# Rebuilds beside writers: how far they are, what holds them up, what they may use.

use v5.36;
use FindBin;
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;

# ======== rebuild online ========

# A rebuild holds no session up: writers of all kinds go on while the table is being
# scanned, their rows are in the new file once, and what happens in between is survived.
{
	my $at_once = "SET statement_timeout = '20s'";
	my $node = new_server('rebuild_online', "max_prepared_transactions = 5\n");

	start_with_extension($node);

	# wait_at(0) stops a scan as long as a session has the advisory lock (and is not
	# subject to lock_timeout).
	$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION wait_at(k int8) RETURNS int8 IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN WHILE k = 0 AND NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN k; END';
CREATE TABLE t (k int8, v int4) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i % 500, i FROM generate_series(0, 4999) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_w ON t USING pmhash (wait_at(k)) WHERE v >= 0;
CREATE TABLE ex (k int8, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO ex SELECT generate_series(1, 100);
SQL

	my $gate = $node->background_psql('postgres');

	# The scan of t_w's rebuild waits at its first row.
	sub start_held_rebuild
	{
		$gate->query_safe('SELECT pg_advisory_lock(1)');
		unlink(index_file($node, 't_w')) or die;
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (1000, 1)');
		wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash worker' AND wait_event = 'PgSleep'", 'the rebuild does not wait');
		return;
	}

	sub release_rebuild
	{
		$gate->query_safe('SELECT pg_advisory_unlock(1)');
		return;
	}

	# By the index and without it, and pmhash.check.
	sub all_right ($name)
	{
		wait_until($node, "SELECT bool_and(state = 'valid') FROM pmhash.indexes", "$name: an index does not come back");
		is($node->safe_psql('postgres', "SELECT pmhash.check('t_w'), pmhash.check('t_k')"), '|', "$name: check");
		my $by_index = $node->safe_psql('postgres',
			"SET enable_seqscan = off; SELECT i, n, s, d FROM generate_series(1, 1600) i, LATERAL (SELECT count(*), sum(v), count(DISTINCT ctid) FROM t WHERE wait_at(k) = i AND v >= 0) a (n, s, d) WHERE n > 0 ORDER BY i");
		my $by_scan = $node->safe_psql('postgres',
			"SELECT wait_at(k), count(*), sum(v), count(DISTINCT ctid) FROM t WHERE v >= 0 AND k BETWEEN 1 AND 1600 GROUP BY 1 ORDER BY 1");
		ok($by_index eq $by_scan && $by_index ne '', "$name: same rows by the index and by a scan");
		return;
	}

	# ---- writers while the table is scanned ----
	start_held_rebuild();
	is(index_state($node, 't_w'), 'rebuilding', 'state');
	is($node->safe_psql('postgres', "SELECT command, phase FROM pg_stat_progress_create_index WHERE index_relid = 't_w'::regclass"),
		'REINDEX CONCURRENTLY|building index: scanning table', 'progress');
	is($node->safe_psql('postgres', "$at_once; INSERT INTO t VALUES (1001, 1); UPDATE t SET k = 1002 WHERE v = 7; DELETE FROM t WHERE v = 8; SELECT count(*) FROM t WHERE k = 1001"),
		'1', 'INSERT, UPDATE and DELETE do not wait');
	$node->safe_psql('postgres', "$at_once; INSERT INTO t SELECT 1003 + i % 3, i FROM generate_series(1, 3000) i");
	$node->safe_psql('postgres', "$at_once; BEGIN; INSERT INTO t SELECT 1010, i FROM generate_series(1, 100) i; SAVEPOINT a; INSERT INTO t SELECT 1011, i FROM generate_series(1, 100) i; ROLLBACK TO a; COMMIT");
	$node->safe_psql('postgres', "$at_once; BEGIN; INSERT INTO t SELECT 1012, i FROM generate_series(1, 100) i; PREPARE TRANSACTION 'meanwhile'");
	$node->safe_psql('postgres', "$at_once; BEGIN; INSERT INTO t VALUES (1013, 1); ROLLBACK");
	$node->safe_psql('postgres', "$at_once; INSERT INTO ex VALUES (1000)");
	my $late = session_with($node, 'BEGIN; INSERT INTO t SELECT 1014, i FROM generate_series(1, 50) i');
	release_rebuild();
	all_right('writers during the scan');
	$late->query_safe('INSERT INTO t SELECT 1014, i FROM generate_series(51, 100) i; COMMIT');
	$late->quit;
	$node->safe_psql('postgres', "COMMIT PREPARED 'meanwhile'");
	all_right('and those that go on after it');

	# ---- cursors that are put away when the file has been lost, and after the new one has come to be ----
	# (Older snapshots: older_snapshots.)
	my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE wait_at(k) = 77 AND v >= 0');
	cmp_ok($count, '>', 2, 'there are rows');
	my $held = session_with($node, "SET enable_seqscan = off; SET pmhash.enable_pagescan = off; BEGIN");
	$held->query_safe("DECLARE $_->[0] $_->[1] CURSOR WITH HOLD FOR SELECT v FROM t WHERE wait_at(k) = 77 AND v >= 0; FETCH 1 FROM $_->[0]")
	  foreach [ 'h', 'SCROLL' ], [ 'n', 'NO SCROLL' ];
	$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 77');
	unlink(index_file($node, 't_w')) or die;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1000, 1)');
	all_right('beside open cursors');
	$node->safe_psql('postgres', "$at_once; VACUUM t; INSERT INTO t SELECT 1101, i FROM generate_series(1, 500) i");
	$held->query_safe('COMMIT');
	is($held->query_safe('MOVE ABSOLUTE 0 IN h; FETCH ALL FROM h') =~ tr/\n// + 1, $count, 'a cursor WITH HOLD, read again from the beginning');
	is($held->query_safe('FETCH ALL FROM n') =~ tr/\n// + 2, $count, 'and one that has gone on');
	$held->quit;
	all_right('after the cursors');

	# ---- a crash, and an end of the worker, in the middle ----
	start_held_rebuild();
	$node->safe_psql('postgres', "$at_once; INSERT INTO t SELECT 1300, i FROM generate_series(1, 100) i");
	crash_and_start($node);
	$gate = $node->background_psql('postgres');
	$node->safe_psql('postgres', "INSERT INTO t SELECT 1301, i FROM generate_series(1, 100) i");
	all_right('a crash during the scan');
	start_held_rebuild();
	# (it shows for a second, until the next try, which has the table's lock that VACUUM wants:
	# too short for a psql each time)
	$node->safe_psql('postgres', <<'SQL' . <<SQL);
DO $$
BEGIN
	PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pmhash worker';
	FOR i IN 1 .. 18000 LOOP
		IF EXISTS (SELECT FROM pmhash.indexes WHERE index = 't_w' AND state LIKE 'rebuild failed: the worker was terminated%') THEN
			RETURN;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RAISE 'no failure shown';
END $$;
SQL
$at_once;
INSERT INTO t SELECT 1302, i FROM generate_series(1, 100) i;
DELETE FROM t WHERE k = 79;
VACUUM t;
INSERT INTO t SELECT 1303, i FROM generate_series(1, 100) i;
SQL
	release_rebuild();
	# event: a rebuild is terminated or fails
	all_right('a worker that is terminated, then VACUUM');

	# ---- DDL of the table waits and then finds what it expects ----
	start_held_rebuild();
	my $ddl = $node->background_psql('postgres');
	$ddl->query_until(qr/begun/, "\\echo begun\nREINDEX INDEX t_w;\n");
	release_rebuild();
	all_right('REINDEX in the middle');
	$ddl->quit;

	# ---- many rebuilds under load ----
	# Writers go on, and so do look-ups by plans that were made when the file was there, but for
	# those that need more of the file than is mapped after they have handed out rows: 40001.
	$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION tried_again(statement text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		BEGIN
			EXECUTE statement;
			RETURN;
		EXCEPTION WHEN serialization_failure THEN
			PERFORM pg_sleep(0.01);
		END;
	END LOOP;
END $$;
SQL
	my $script = "$PostgreSQL::Test::Utils::tmp_check/online_load.sql";
	append_to_file($script, <<'SQL');
\set k random(1, 500)
INSERT INTO t VALUES (:k, :k);
SELECT tried_again('UPDATE t SET k = k + 1 WHERE k = :k AND v = :k');
SELECT tried_again('DELETE FROM t WHERE k = :k + 5 AND v % 7 = 1');
BEGIN;
INSERT INTO t SELECT :k, i FROM generate_series(1, 40) i;
SAVEPOINT a;
INSERT INTO t VALUES (:k, 1);
ROLLBACK TO a;
END;
SQL
	$gate->quit;
	my $output;
	my $load = start_pgbench($node, \$output, '-c', '3', '-R', '100', '-T', '6', '-f', $script);
	foreach my $round (1 .. 4)
	{
		sleep 1;
		unlink(index_file($node, 't_w'), index_file($node, 't_k'));
		$node->safe_psql('postgres', 'VACUUM t') if $round % 2;
	}
	ok($load->finish, 'no statement failed') or diag($output);
	all_right('four rebuilds of two indexes under load');
	$node->stop;
}

# ======== held rebuilder ========

# A function in an index expression that never ends holds up rebuilds of indexes with
# expressions, and of its own table's other indexes; no other, whenever that is lost.  It reads no index that has become valid since its snapshot was taken.
{
	my $node = new_server('held');
	start_with_extension($node);
	my $rebuilders = q(FROM pg_stat_activity WHERE backend_type = 'pmhash worker');

	$node->safe_psql('postgres', 'CREATE DATABASE db1');
	install_extension($node, 'db1');

	# It never ends for workers, as long as the gate is locked.
	sub gated ($database)
	{
		$node->safe_psql($database, <<'SQL');
CREATE FUNCTION gate(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE waited boolean := false;
BEGIN
	WHILE EXISTS (SELECT FROM pg_stat_activity WHERE pid = pg_backend_pid() AND backend_type = 'pmhash worker') AND
		EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 7) LOOP PERFORM pg_sleep(0.1); waited := true; END LOOP;
	IF waited THEN RAISE LOG 'the gate sees % rows', (SELECT count(*) FROM public.d WHERE d.k = 5); END IF;
	RETURN k;
END $$;
CREATE TABLE a (k int);
INSERT INTO a SELECT generate_series(1, 100);
CREATE INDEX a_gate ON a USING pmhash (gate(k));
CREATE INDEX a_k ON a USING pmhash (k);
CREATE TABLE b (k int, CONSTRAINT b_gate EXCLUDE USING pmhash (gate(k) WITH =));
INSERT INTO b SELECT generate_series(1, 100);
CREATE INDEX b_k ON b USING pmhash (k);
CREATE TABLE p (k int);
INSERT INTO p SELECT generate_series(1, 100);
CREATE INDEX p_k ON p USING pmhash (k) WHERE k > 10;
CREATE TABLE c (k int, CONSTRAINT c_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO c SELECT generate_series(1, 100);
CREATE TABLE d (k int);
INSERT INTO d SELECT generate_series(1, 100);
CREATE INDEX d_k ON d USING pmhash (k);
SQL
		return;
	}

	sub comes_to_be_valid ($index, $database, $name)
	{
		return ok($node->poll_query_until($database, "SELECT state = 'valid' FROM pmhash.indexes WHERE index = '$index'"), "$name: $database, $index")
		  || diag($node->safe_psql($database, 'SELECT index, state FROM pmhash.indexes'));
	}

	gated($_) foreach qw(postgres db1);
	$node->stop;
	unlink(index_files(pool($node)));
	start_with($node, 'pmhash.rebuild = off');
	my $gate = session_with($node, 'SELECT pg_advisory_lock(7)');
	reload_with($node, 'pmhash.rebuild = on');

	foreach my $database (qw(postgres db1))
	{
		comes_to_be_valid($_, $database, 'while an expression does not end') foreach qw(c_k d_k a_k b_k);
	}
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 $rebuilders AND wait_event = 'PgSleep'"), 'one rebuilder is in the function');
	like($node->safe_psql('postgres', "SELECT query $rebuilders AND wait_event = 'PgSleep'"), qr/^rebuilding pmhash index public\.b_gate$/,
		'pg_stat_activity names the index, which is that of the constraint');
	isnt(index_state($node, $_), 'valid', "$_ is not there") foreach qw(a_gate b_gate);
	is($node->safe_psql('postgres', 'INSERT INTO c VALUES (1000) RETURNING k'), '1000', 'a table with another constraint can be written');

	# Of the table that the function is at: a rebuild waits for its lock a while, and fails.
	my $database = $node->safe_psql('postgres', "SELECT datname $rebuilders");
	my $other = $database eq 'db1' ? 'postgres' : 'db1';
	my $offset = -s $node->logfile;
	$node->safe_psql($database, 'DELETE FROM d WHERE k = 5');
	foreach my $lost ([ $database, 'b' ], [ $database, 'd' ], [ $other, 'd' ])
	{
		my ($where, $table) = @$lost;

		unlink($node->safe_psql($where, "SELECT file FROM pmhash.indexes WHERE index = '${table}_k'")) or die;
		$node->safe_psql($where, "SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k = 1");
	}
	comes_to_be_valid('d_k', $other, 'lost meanwhile, another database');
	comes_to_be_valid('d_k', $database, 'lost meanwhile, another table');
	ok($node->poll_query_until($database, "SELECT state ~ '^rebuild failed: canceling statement due to lock timeout' FROM pmhash.indexes WHERE index = 'b_k'"),
		'of its own table: not yet');

	# Another launcher knows nothing of the rebuilder: the next one for expressions leaves.
	$node->safe_psql('postgres', q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'));
	ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash launcher')),
		'another launcher has come');
	$node->safe_psql($_, "SET enable_seqscan = off; SELECT count(*) FROM p WHERE k > 10 AND k = 20") foreach ($other, $database);
	sleep 3;
	is($node->safe_psql('postgres', "SELECT count(*) $rebuilders AND query ~ 'gate'"), '1', 'still one that runs functions');

	# An index that waits behind it, as docs/troubleshooting.md says.
	$node->safe_psql($database, "SET statement_timeout = '60s'; REINDEX INDEX p_k");
	is(index_state($node, 'p_k', $database), 'valid', 'REINDEX INDEX does not wait its turn');

	$gate->query_safe('SELECT pg_advisory_unlock(7)');
	$gate->quit;
	foreach my $database (qw(postgres db1))
	{
		comes_to_be_valid($_, $database, 'the gate is open') foreach qw(a_gate b_gate p_k);
	}
	comes_to_be_valid('b_k', $database, 'the gate is open');
	like(substr(slurp_file($node->logfile), $offset), qr/the gate sees 1 rows/, 'it reads rows that its snapshot sees, which no entry leads to');
	my @failures = grep { !/ "b_k": canceling statement due to lock timeout/ } substr(slurp_file($node->logfile), $offset) =~ /(could not rebuild .*)/g;
	is("@failures", '', 'no other failure');

	# As docs/operations.md says: it is ended, and the index dropped before the next try.
	$gate = session_with($node, 'SELECT pg_advisory_lock(7)');
	unlink($node->safe_psql('postgres', "SELECT file FROM pmhash.indexes WHERE index = 'a_gate'")) or die;
	$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM a WHERE gate(k) = 1');
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 $rebuilders AND wait_event = 'PgSleep' AND query ~ 'a_gate'"), 'it is in the function again');
	is($node->safe_psql('postgres', q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^pmhash worker' AND query ~ 'a_gate')),
		't', 'it is told to end');
	is($node->safe_psql('postgres', q(SET lock_timeout = '60s'; DROP INDEX a_gate; SELECT 'dropped')), 'dropped', 'the index is dropped then');
	$gate->quit;
	$node->stop;
}

# ======== parallel rebuild ========

# The background rebuild of an invalid index has parallel workers, as REINDEX has, but
# no more than that half of the processors are at work.
{
	my $node = new_server('parallel_rebuild', "log_min_messages = debug1\n");

	start_with_extension($node, <<'SQL');
CREATE TABLE t (k int8, v int4);
INSERT INTO t SELECT i, i FROM generate_series(1, 30000) i;
ALTER TABLE t SET (parallel_workers = 2);
CREATE INDEX t_k ON t USING pmhash (k);
SQL
	unlink(index_file($node, 't_k')) or die;
	my $offset = -s $node->logfile;
	$node->restart;
	comes_back($node, 'with workers');
	my $half = int(`getconf _NPROCESSORS_ONLN` / 2);
	my $workers = $half > 2 ? 2 : $half - 1;
	my $log = slurp_file($node->logfile, $offset);
	if ($workers > 0)
	{
		like($log, qr/scanning table "t" for index "t_k" with $workers parallel workers/, "by $workers workers");
	}
	else
	{
		unlike($log, qr/scanning table "t" for index "t_k" with/, 'by none');
	}
	$offset = -s $node->logfile;
	$node->safe_psql('postgres', 'REINDEX INDEX t_k');
	like(slurp_file($node->logfile, $offset), qr/scanning table "t" for index "t_k" with 2 parallel workers/, 'REINDEX: by two');
	$node->stop;
}

# ======== progress ========

# pg_stat_progress_create_index while an index is being built: each phase is
# seen, with figures that fit.
{
	my $rows = 300_000;
	my $node = new_server('progress', "max_parallel_maintenance_workers = 0\n");
	start_with_extension($node);

	is($node->safe_psql('postgres', <<SQL),
SELECT string_agg(pg_indexam_progress_phasename(am.oid, n), ', ' ORDER BY n)
FROM pg_am am, generate_series(1, 10) n WHERE amname = 'pmhash'
SQL
		'initializing, scanning table, loading partitions, inserting remaining duplicates', 'names of the phases');

	# wait_at stops a build at one row, as long as a session has the lock.
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE seen (phase text, blocks_total bigint, blocks_done bigint, tuples_total bigint, tuples_done bigint);
CREATE FUNCTION wait_at(k int8) RETURNS int8 IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN IF k = 1500 THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN k; END';
CREATE TABLE small (k int8);
INSERT INTO small SELECT generate_series(1, 2000);
CREATE TABLE large (k int8);
INSERT INTO large SELECT i % 2 FROM generate_series(1, $rows) i;
CREATE PROCEDURE watch(target text) LANGUAGE plpgsql AS \$\$
BEGIN
	LOOP
		INSERT INTO seen
			SELECT phase, blocks_total, blocks_done, tuples_total, tuples_done
			FROM pg_stat_progress_create_index WHERE relid = target::regclass;
		EXIT WHEN to_regclass(target || '_k') IS NOT NULL;
		COMMIT;
	END LOOP;
END \$\$;
SQL

	# ---- the scan, stopped ----
	my $lock = session_with($node, 'SELECT pg_advisory_lock(1)');
	my $builder = $node->background_psql('postgres');
	$builder->query_until(qr/begun/, "\\echo begun\nCREATE INDEX small_k ON small USING pmhash (wait_at(k));\n");
	wait_until($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'the build does not wait');
	is($node->safe_psql('postgres', <<SQL),
SELECT command, phase, blocks_total, blocks_done BETWEEN 1 AND blocks_total, relid::regclass
FROM pg_stat_progress_create_index
SQL
		"CREATE INDEX|building index: scanning table|@{[ $node->safe_psql('postgres', q(SELECT pg_relation_size('small') / 8192)) ]}|t|small",
		'in the middle of the scan');
	$lock->query_safe('SELECT pg_advisory_unlock(1)');
	$builder->quit;
	is($node->safe_psql('postgres', "SELECT * FROM answers('SELECT ctid FROM small WHERE wait_at(k) = 1500', 'small_k')"),
		'1|same|same', 'the index that was watched');

	# ---- a rebuild, as docs/troubleshooting.md asks: percent, and the time left ----
	my ($asked) = slurp_file("$FindBin::RealBin/../../../docs/troubleshooting.md") =~ /^(SELECT index_relid::regclass.*?;)$/ms;
	$lock->query_safe('SELECT pg_advisory_lock(1)');
	unlink(index_file($node, 'small_k')) or die;
	$node->safe_psql('postgres', 'INSERT INTO small VALUES (1)');
	wait_until($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'the rebuild does not wait');
	like($node->safe_psql('postgres', $asked), qr/^small_k\|building index: scanning table\|\d+\|[1-9]\d\|00:00:\d\d/, 'a rebuild is seen');
	$lock->query_safe('SELECT pg_advisory_unlock(1)');
	$lock->quit;
	wait_until($node, "SELECT bool_and(state = 'valid') FROM pmhash.indexes", 'it does not come back');

	# ---- all phases, watched: two keys in too little memory for a partition ----
	# On a busy machine the watcher may sleep through a phase: then once more.
	my @phases = ('scanning table', 'loading partitions', 'inserting remaining duplicates');
	my $times_seen = "SELECT count(*) FROM seen WHERE phase = 'building index: ";
	foreach my $try (1 .. 10)
	{
		my $watcher = $node->background_psql('postgres');
		$watcher->query_until(qr/begun/, "\\echo begun\nCALL watch('large');\n");
		$node->safe_psql('postgres', "SET maintenance_work_mem = '1MB'; CREATE INDEX large_k ON large USING pmhash (k)");
		$watcher->quit;
		last if !grep { $node->safe_psql('postgres', "$times_seen$_'") == 0 } @phases;
		$node->safe_psql('postgres', 'DROP INDEX large_k') if $try < 10;
	}
	cmp_ok($node->safe_psql('postgres', "$times_seen$_'"), '>', 0, "seen: $_") foreach @phases;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM seen WHERE blocks_done > blocks_total OR tuples_done > tuples_total'),
		'0', 'never more done than there is');
	is($node->safe_psql('postgres', "SELECT max(tuples_total) FROM seen WHERE phase <> 'building index: scanning table'"),
		$rows, 'tuples in all');
	is($node->safe_psql('postgres', "SELECT * FROM answers('SELECT count(*) FROM large WHERE k = 1', 'large_k')"),
		'1|same|same', 'the other one');
	is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT pmhash.check(i::regclass) FROM unnest('{small_k,large_k}'::text[]) i) c"),
		'2', 'pmhash.check');
	$node->stop;
}

# ======== temp file limit ========

# Builds in the background need temporary files, as many bytes as the index has entries, and
# temp_file_limit is not for them, on a primary and on a standby; it is for those that call
# users' functions, and there it is said what to do.
{
	my $primary = new_primary('primary', "maintenance_work_mem = 1MB\nwork_mem = 64kB\n");

	$primary->safe_psql('postgres', <<SQL);
CREATE TABLE b (k int, v int);
INSERT INTO b SELECT i, i FROM generate_series(1, 100000) i;
CREATE INDEX b_k ON b USING pmhash (k);
CREATE INDEX b_e ON b USING pmhash ((k + 1));
SQL
	reload_with($primary, 'temp_file_limit = 1MB');

	my $limit = qr/temporary file size exceeds "?temp_file_limit/;
	my $standby = new_standby($primary, 'standby');

	wait_for_state($standby, 'b_k', qr/^valid$/, 'standby: built');
	wait_for_state($standby, 'b_e', $limit, "standby: not one with a function");

	# event: `temp_file_limit` is lower than a background build needs (16 bytes for each entry)
	unlink(index_file($primary, $_)) || die foreach qw(b_k b_e);
	$primary->safe_psql('postgres', 'INSERT INTO b VALUES (0, 0)');
	ok($primary->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'b_k'"), 'primary: rebuilt');
	wait_for_state($primary, 'b_e', $limit, 'primary: not one with a function');
	# trouble: LOG: `pmhash: could not rebuild index "..."`
	like(slurp_file($primary->logfile), qr/LOG:  pmhash: could not rebuild index "b_e": $limit/, 'primary: the log says so');
	$primary->safe_psql('postgres', 'ALTER DATABASE postgres SET temp_file_limit = -1');
	wait_for_state($primary, 'b_e', qr/^valid$/, 'primary: that helps');
	caught_up($primary, $standby);
	wait_for_state($standby, $_, qr/^valid$/, "standby: $_ helps") foreach qw(b_k b_e);
	same_answers($_, 'b', 'k', 'b_k', $_->name) foreach $primary, $standby;
	$_->stop foreach $standby, $primary;
}

done_testing();
