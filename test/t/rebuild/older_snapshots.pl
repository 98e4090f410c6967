# Snapshots that are older than an index is valid, or its file.

use v5.36;
use PmhashInvalid;
use PmhashTest;

# ======== older snapshots ========

# A rebuild waits for no snapshot.  One that is older than what has been rebuilt does without
# the index for good, whatever its transaction has planned before; all that are taken since
# use it at once, also while an open transaction gives all of them the same old xmin.
{
	my $node = new_server('older', "max_prepared_transactions = 2");

	start_with_extension($node, <<'SQL');
CREATE TABLE t (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i % 100, i FROM generate_series(0, 999) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL

	my ($old, $new) = map { $node->background_psql('postgres', on_error_stop => 0) } 0 .. 1;
	my $parallel = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
	my %queries = (
		rows => 'SELECT count(*) FROM t WHERE k = 5 AND v >= 0',
		keys => 'SELECT count(*) FROM t WHERE k = 5',
		pages => 'SELECT count(*) FROM t WHERE k = ANY (ARRAY[5, 6]) AND v >= 0');
	my %wanted = (rows => 10, keys => 10, pages => 20);

	foreach my $session ($old, $new)
	{
		$session->query_safe('SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan');
		$session->query_safe("PREPARE $_ AS $queries{$_}; EXECUTE $_") foreach sort keys %queries;
	}

	# Rows that the old session sees go, and the index is rebuilt.
	sub lose_and_rebuild ($name)
	{
		$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 5');
		unlink(index_file($node, 't_k')) or die;
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (-1, -1)');
		wait_until($node, "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'", "$name: the rebuild waits");
		return;
	}

	# A test: the old session misses nothing, by new plans, by those of before, in a worker.  One
	# that cannot go through the table says that it is to be tried again; then that helps.
	sub sees_all ($name)
	{
		foreach my $query (sort keys %queries)
		{
			is($old->query_safe($queries{$query}), $wanted{$query}, "$name, $query: a new plan");
			foreach my $mode ('off', 'on')
			{
				$old->query_safe("SET $parallel = $mode; SAVEPOINT s");
				my $answer = $old->query("EXECUTE $query");
				if ($old->{stderr} ne '')
				{
					like($old->{stderr}, qr/ERROR:  pmhash index "t_k" is younger than the snapshot/, "$name, $query: to be tried again");
					$old->{stderr} = '';
					$answer = $old->query_safe("ROLLBACK TO s; EXECUTE $query");
				}
				is($answer, $wanted{$query}, "$name, $query: a plan of before, $parallel = $mode");
			}
		}
		return;
	}

	# A test: a session goes by the index, and sees what is there now.
	sub uses_index ($session, $name, $rows)
	{
		like($session->query_safe("EXPLAIN (COSTS OFF) EXECUTE rows"), qr/t_k/, "$name goes by the index");
		is($session->query_safe('EXECUTE rows'), $rows, "$name sees what is there");
		return;
	}

	# A transaction with an id is open all the time, a prepared one, so all snapshots have its xmin.
	$node->safe_psql('postgres', "BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'open'");
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
	my $xmin = $old->query_safe('SELECT pg_snapshot_xmin(pg_current_snapshot())');
	lose_and_rebuild('an old snapshot');
	is($new->query_safe('SELECT pg_snapshot_xmin(pg_current_snapshot())'), $xmin, 'new snapshots have the same xmin');
	uses_index($new, 'a new one', 0);
	sees_all('an old snapshot');
	$old->query("SAVEPOINT c; SELECT pmhash.check('t_k')");
	like($old->{stderr}, qr/cannot be checked using the transaction's snapshot/, 'nor is the index checked by it');
	$old->{stderr} = '';
	$old->query_safe('ROLLBACK TO c; COMMIT');

	# VACUUM takes rows out, others come in their places; then a second rebuild.
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
	$node->safe_psql('postgres', "COMMIT PREPARED 'open'");
	$old->query_safe('COMMIT');
	$node->safe_psql('postgres', 'VACUUM t');
	$node->safe_psql('postgres', 'INSERT INTO t SELECT 5, i FROM generate_series(1, 10) i');
	# (until snapshots have another xmin its plan without the index may stay)
	uses_index($old, 'the same session, afterwards', 10);
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
	lose_and_rebuild('once more');
	sees_all('once more');
	uses_index($new, 'a new one, once more', 0);

	# What has begun goes on with the file that there was.  VACUUM cleans the new one only: the
	# visibility map says nothing of what the old one leads to.
	$old->query_safe('COMMIT');
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE o AS SELECT 5 AS k FROM generate_series(1, 3);
INSERT INTO t SELECT 5, i FROM generate_series(1, 1000) i;
VACUUM ANALYZE t;
DELETE FROM t WHERE k = 5 AND v % 2 = 0;
SQL
	my $rows = $node->safe_psql('postgres', 'SELECT count(*) FILTER (WHERE k = 5) FROM t');
	$old->query_safe('SET enable_hashjoin = off; SET enable_mergejoin = off; BEGIN');
	$old->query_safe("DECLARE c1 CURSOR FOR SELECT k FROM t WHERE k = 5; FETCH c1");
	$old->query_safe("DECLARE c2 CURSOR FOR SELECT t.k FROM o JOIN t USING (k); FETCH c2");
	like($old->query_safe('EXPLAIN SELECT k FROM t WHERE k = 5'), qr/Index Only Scan using t_k/, 'an index-only scan');
	like($old->query_safe('EXPLAIN SELECT t.k FROM o JOIN t USING (k)'), qr/pmhash join/, 'an index-only join');
	unlink(index_file($node, 't_k')) or die;
	comes_back($node, 'under open cursors');
	$node->safe_psql('postgres', 'VACUUM t');
	is(() = $old->query_safe('FETCH ALL c1') =~ /5/g, $rows - 1, 'an index-only scan goes on');
	is(() = $old->query_safe('FETCH ALL c2') =~ /5/g, 3 * $rows - 1, 'an index-only join goes on');
	$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 5');

	# The file outlives a crash; what comes after it is served.
	$old->query_safe('COMMIT');
	$_->quit foreach $old, $new;
	crash_and_start($node);
	is(index_state($node, 't_k'), 'valid', 'after a crash');
	like($node->safe_psql('postgres', "SET enable_seqscan = off; EXPLAIN (COSTS OFF) $queries{rows}"), qr/t_k/, 'a snapshot of after the crash');
	is($node->safe_psql('postgres', q{SELECT pmhash.check('t_k')}), '', 'check');
	$node->stop;
}

# ======== not waited for ========

# Snapshots that CREATE INDEX CONCURRENTLY does not wait for: those of
# autovacuum, of an event trigger in the last transaction of CREATE INDEX CONCURRENTLY, of
# the worker that runs users' functions, and what takes one over from these, or while
# CONCURRENTLY waits; nor does that wait for a logical slot that is being made.  None of
# them misses a row: by an index that has become valid meanwhile each gets what it gets by
# a scan of the table.
{
	my $node = new_server('not_waited_for', "autovacuum = on\nautovacuum_naptime = 1\nwal_level = logical\nmax_wal_senders = 4\nmax_replication_slots = 4");

	start_with_extension($node);

	# In a worker a gate stops, as long as the lock is held, and says what it sees afterwards.
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i % 100, i FROM generate_series(0, 999) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE FUNCTION watch() RETURNS void STABLE LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE waited boolean := false;
BEGIN
	WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 7) LOOP
		IF NOT waited THEN RAISE LOG 'gate: exported %', pg_export_snapshot(); END IF;
		waited := true;
		PERFORM pg_sleep(0.05);
	END LOOP;
	IF waited THEN RAISE LOG 'gate: sees % rows and %', (SELECT count(*) FROM public.t WHERE t.k = 5), (SELECT count(*) FROM public.w WHERE w.k = 5); END IF;
END $$;
CREATE FUNCTION gate(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM pg_stat_activity WHERE pid = pg_backend_pid() AND backend_type IN ('pmhash worker', 'autovacuum worker')) THEN
		PERFORM public.watch();
	END IF;
	RETURN k;
END $$;
CREATE FUNCTION on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM public.watch(); END';
CREATE TABLE a (k int4) WITH (autovacuum_enabled = off);
INSERT INTO a SELECT generate_series(1, 100);
CREATE INDEX a_gate ON a USING pmhash (gate(k));
CREATE TABLE c (k int4) WITH (autovacuum_analyze_threshold = 10, autovacuum_analyze_scale_factor = 0);
CREATE INDEX c_gate ON c (gate(k));
CREATE TABLE u (k int4) WITH (autovacuum_enabled = off);
CREATE TABLE w (k int4, v int4);
SQL

	my ($lock, $old, $taker, $builder) = map { $node->background_psql('postgres', on_error_stop => 0) } 0 .. 3;

	$taker->query_safe('SET enable_seqscan = off');

	# By an index, if there is one that the planner takes, and by a scan of the table.
	sub sees_all_now ($session, $table, $name)
	{
		my $query = "SELECT count(*) FROM $table WHERE k = 5";

		is($session->query_safe("$query; $query AND v >= 0"), "10\n10", $name);
		is($session->query_safe("SET enable_seqscan = on; SELECT count(*) FROM $table WHERE k + 0 = 5; SET enable_seqscan = off"), '10', "$name, by the table");
		return;
	}

	sub take_over ($session, $snapshot)
	{
		$session->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'");
		return;
	}

	sub last_line ($session, $query)
	{
		my $result = $session->query_safe($query);

		return ($result =~ /([^\n]*)\z/)[0];
	}

	# ---- taken over while CONCURRENTLY waits ----
	# event: a snapshot is older than the index, or than its rebuild

	# A command makes an index of the table valid; a snapshot that it waits for is handed on.
	sub concurrently ($command, $table, $index)
	{
		my $pid = last_line($old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM u; SELECT pg_backend_pid()");

		$node->safe_psql('postgres', "DELETE FROM $table WHERE k = 5");
		$builder->query_until(qr/begun/, "\\echo begun\n$command;\n");
		$node->poll_query_until('postgres', <<SQL) or die "$command does not wait";
SELECT EXISTS (SELECT FROM pg_stat_progress_create_index p
	WHERE phase = 'waiting for old snapshots' AND $pid = ANY (pg_blocking_pids(p.pid)))
SQL
		take_over($taker, last_line($old, 'SELECT pg_export_snapshot()'));
		$old->query_safe('COMMIT');
		$builder->query_safe('SELECT 1');
		is($node->safe_psql('postgres', "SELECT indisvalid FROM pg_index WHERE indexrelid = '$index'::regclass"), 't', "$command is done");
		sees_all_now($taker, $table, $command);
		is($taker->query_safe("SELECT usable, reason FROM pmhash.explain('$index')"),
			'f|the snapshot of this transaction is older than the index or its last rebuild', "$command: explained");
		$taker->query("SELECT pmhash.check('$index')");
		like($taker->{stderr}, qr/cannot be checked using the transaction's snapshot/, "$command: no check by this snapshot");
		$taker->{stderr} = '';
		$taker->query_safe('ROLLBACK');
		is(index_state($node, $index), 'valid', "$command: nor one that condemns the index");
		like($taker->query_safe("EXPLAIN (COSTS OFF) SELECT count(*) FROM $table WHERE k = 5"),
			qr/$index/, "$command: the next transaction uses it");
		$node->safe_psql('postgres', "INSERT INTO $table SELECT 5, i FROM generate_series(1, 10) i");
		return;
	}

	foreach my $kind ('', 'UNLOGGED')
	{
		$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS w, p;
CREATE $kind TABLE w (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO w SELECT i % 100, i FROM generate_series(0, 999) i;
CREATE TABLE p (k int4, v int4) PARTITION BY RANGE (v);
CREATE $kind TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10000) WITH (autovacuum_enabled = off);
INSERT INTO p SELECT i % 100, i FROM generate_series(0, 999) i;
CREATE INDEX p_k ON p USING pmhash (k);
SQL
		concurrently('CREATE INDEX CONCURRENTLY w_k ON w USING pmhash (k)', 'w', 'w_k');
		concurrently('REINDEX INDEX CONCURRENTLY w_k', 'w', 'w_k');
		concurrently('REINDEX INDEX CONCURRENTLY p_1_k_idx', 'p', 'p_1_k_idx');
	}

	# ---- the snapshot of a place in WAL that is long past ----

	# A process that makes a logical slot is stopped before it shows its snapshot.
	my $walsender = $node->background_psql('postgres', replication => 'database', on_error_stop => 0);

	$node->safe_psql('postgres', 'DROP INDEX w_k');
	$walsender->query_safe('SET enable_seqscan = off');
	$walsender->query_safe('BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ');
	$old->query_safe('BEGIN; INSERT INTO u VALUES (-1)');
	$walsender->query_until(qr/begun/, "\\echo begun\nCREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput USE_SNAPSHOT;\n");
	wait_until($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event = 'transactionid')}, 'no slot is being made');
	my $walsender_pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'});
	kill('STOP', $walsender_pid) or die $!;
	$old->query_safe('COMMIT');
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->safe_psql('postgres', 'DELETE FROM w WHERE k = 5');
	$node->safe_psql('postgres', 'CREATE INDEX CONCURRENTLY w_s ON w USING pmhash (k)');
	kill('CONT', $walsender_pid) or die $!;
	like($walsender->query_safe('SELECT 1'), qr/pgoutput\n1$/, 'the slot is made');
	sees_all_now($walsender, 'w', 'a process that has made a slot');
	$walsender->query_safe('COMMIT');
	$walsender->quit;

	# ---- taken over, and the transaction changes the index's row of pg_index ----
	if ($node->pg_version >= 18)
	{
		$node->safe_psql('postgres', 'CREATE TABLE r (k int4 NOT NULL); INSERT INTO r SELECT generate_series(1, 1000)');
		$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM u');
		$node->safe_psql('postgres', 'DELETE FROM r WHERE k = 5');
		$builder->query_until(qr/begun/, "\\echo begun\nCREATE UNIQUE INDEX CONCURRENTLY r_k ON r USING pmhash (k);\n");
		wait_until($node, q{SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE phase = 'waiting for old snapshots')}, 'it does not wait');
		take_over($taker, last_line($old, 'SELECT pg_export_snapshot()'));
		$old->query_safe('COMMIT');
		$builder->query_safe('SELECT 1');
		$taker->query_safe('ALTER TABLE r REPLICA IDENTITY USING INDEX r_k');
		is($taker->query_safe('SELECT count(*) FROM r WHERE k = 5'), '1', 'a row of pg_index that the transaction itself has changed');
		$taker->query_safe('ROLLBACK');
		is($taker->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE r2 (k int4 NOT NULL); CREATE UNIQUE INDEX r2_k ON r2 USING pmhash (k);
			ALTER TABLE r2 REPLICA IDENTITY USING INDEX r2_k; INSERT INTO r2 VALUES (1); SELECT k FROM r2 WHERE k = 1; ROLLBACK'), '1', '... of its own index');
	}

	# ---- those that a rebuild passes by ----

	my $parallel = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';

	# What the gate has said since $offset.
	my $offset;
	sub gate_says ($pattern)
	{
		my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
		my $said;

		until (defined $said)
		{
			($said) = substr(slurp_file($node->logfile), $offset) =~ $pattern;
			die "no $pattern in the log" if time > $deadline;
			usleep(20_000);
		}
		return $said;
	}

	# A process comes to the gate; rows that its snapshot sees go, t_k is lost and made anew, and
	# w_g made by CONCURRENTLY, if that does not wait for the process.
	sub at_the_gate ($name, $come, $concurrently = undef)
	{
		my $snapshot;

		$node->safe_psql('postgres', 'DROP INDEX IF EXISTS w_s, w_g; INSERT INTO w SELECT 5, i FROM generate_series(1, 10) i');
		$lock->query_safe('SELECT pg_advisory_lock(7)');
		$offset = -s $node->logfile;
		$come->();
		$snapshot = gate_says(qr/gate: exported (\S+)/);
		$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 5; DELETE FROM w WHERE k = 5');
		$node->safe_psql('postgres', 'SET session_replication_role = replica; CREATE INDEX CONCURRENTLY w_g ON w USING pmhash (k)') if $concurrently;
		unlink(index_file($node, 't_k')) or die;
		wait_until($node, "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'", "$name is waited for");
		is($taker->query_safe('EXECUTE before'), '0', 'a plan with the new file');
		is($taker->query_safe("SET $parallel = on; EXECUTE in_worker; SET $parallel = off"), '0', 'the same in a parallel worker');
		take_over($taker, $snapshot);
		sees_all_now($taker, $_, "a session that takes over from $name, $_") foreach 't', 'w';
		is($taker->query_safe("EXECUTE $_"), '10', "a session that takes over from $name, by a plan: $_") foreach qw(before in_worker);
		$taker->query_safe('COMMIT');
		$lock->query_safe('SELECT pg_advisory_unlock(7)');
		is(gate_says(qr/gate: sees (.*)/), '10 rows and 10', "$name itself");
		comes_back($node, "after $name");
		like($taker->query_safe("EXPLAIN (COSTS OFF) EXECUTE $_"), qr/t_k/, "$name: the next transaction uses the index, by a plan: $_") foreach qw(before in_worker);
		$node->safe_psql('postgres', 'INSERT INTO t SELECT 5, i FROM generate_series(1, 10) i');
		return;
	}

	$taker->query_safe('SET plan_cache_mode = force_generic_plan');
	$taker->query_safe("PREPARE $_ AS SELECT count(*) FROM t WHERE k = 5") foreach qw(before in_worker);

	at_the_gate('the worker for functions', sub {
			unlink(index_file($node, 'a_gate')) or die;
			$node->safe_psql('postgres', 'INSERT INTO a VALUES (1)');
		});
	at_the_gate('autovacuum', sub {
			$node->safe_psql('postgres', 'INSERT INTO c SELECT generate_series(1, 100)');
		}, 1);
	$node->safe_psql('postgres', "CREATE EVENT TRIGGER e ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION on_ddl()");
	at_the_gate('an event trigger', sub {
			$builder->query_until(qr/begun/, "\\echo begun\nCREATE INDEX CONCURRENTLY u_k ON u (k);\n");
		}, 1);
	$builder->query_safe('SELECT 1');
	$_->quit foreach $lock, $old, $taker, $builder;
	$node->stop;
}

done_testing();
