# Builders of a standby: what holds them up, where they look.

use v5.36;
use PmhashStandby;
use PmhashTest;

# An index whose build takes 0.1 s a row on a standby, of so many rows.
sub slow_on_standbys ($primary, $rows)
{
	$primary->safe_psql('postgres', <<SQL);
CREATE FUNCTION slowly(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN IF pg_is_in_recovery() THEN PERFORM pg_sleep(0.1); END IF; RETURN k; END';
CREATE TABLE m (k int, filler text) WITH (fillfactor = 10);
INSERT INTO m SELECT i, repeat('x', 700) FROM generate_series(1, $rows) i;
CREATE INDEX m_k ON m USING pmhash (slowly(k)) WITH (wal = on);
SQL
	return;
}

# ======== held builders ========

# What holds up the build of one index on a standby holds up no other: a table that is
# locked on the primary, before the build and in the middle of it (its transaction does, as
# any that writes, and the state says so); functions in expressions that never end.
{
	my $primary = new_primary('primary');
	my $builders = q(FROM pg_stat_activity WHERE backend_type = 'pmhash worker');

	$primary->safe_psql('postgres', 'CREATE DATABASE db1');
	install_extension($primary, 'db1');

	# (no regular look comes meanwhile)
	my $standby = new_standby($primary, 'standby', "pmhash.cleaner_naptime = 100000\nmax_standby_streaming_delay = 1s\n");
	both_valid($standby, 'at first');

	# ---- a table that is locked on the primary, with indexes that are there already ----

	my $holder = $primary->background_psql('postgres');
	my $locked = q(SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND mode = 'AccessExclusiveLock' AND granted);
	$holder->query_safe('BEGIN; LOCK TABLE t');
	$primary->safe_psql('postgres', 'CREATE TABLE u1 (k int); INSERT INTO u1 SELECT generate_series(1, 100); CREATE INDEX u1_k ON u1 USING pmhash (k) WITH (wal = on)');
	$primary->safe_psql('db1', 'CREATE TABLE x (k int); INSERT INTO x SELECT generate_series(1, 100); CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = on)');
	caught_up($primary, $standby);
	my $waits = q{SELECT state LIKE 'building (0 _), waiting for transaction%' FROM pmhash.indexes WHERE index = };
	ok($standby->poll_query_until('postgres', "$waits 'u1_k'"), 'beside a locked table: its turn comes');
	ok($standby->poll_query_until('db1', "$waits 'x_k'"), 'beside a locked table: another database');
	is($standby->safe_psql('postgres', $locked), '1', 'which is still locked');

	# ---- a standby that begins meanwhile: no WAL names what is to be built ----

	my $late = new_standby($primary, 'late', "pmhash.cleaner_naptime = 100000\n");
	ok($late->poll_query_until('postgres', "$waits 'u1_k'"), 'another standby: the same');
	is(standby_state($late, 't_k'), 'to be built', 'another standby: an index of the locked table');
	$holder->query_safe('COMMIT');
	caught_up($primary, $_) foreach $standby, $late;
	wait_for_state($late, $_, qr/^valid$/, "another standby: the lock is gone: $_") foreach qw(t_k t_s u1_k);
	$late->stop;
	wait_for_state($standby, 'u1_k', qr/^valid$/, 'the lock is gone');
	ok($standby->poll_query_until('db1', q(SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'x_k')), 'the lock is gone: another database');

	# ---- locked in the middle of the build: it ends, is no failure, and begins anew ----

	slow_on_standbys($primary, 50);
	caught_up($primary, $standby);
	ok($standby->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pmhash.indexes WHERE index = 'm_k' AND state LIKE 'building%')), 'in the middle: it is being built');
	$holder->query_safe('BEGIN; LOCK TABLE m');
	# the lock's record is not flushed by itself (XLogBackgroundFlush: whole pages, commits)
	$primary->safe_psql('postgres', 'CREATE TABLE flushes ()');
	ok($standby->poll_query_until('postgres', q(SELECT state = 'to be built' FROM pmhash.indexes WHERE index = 'm_k')), 'in the middle: the build ends');
	is($standby->safe_psql('postgres', "SELECT count(*) $builders"), '0', 'and its worker');
	$holder->query_safe('COMMIT');
	wait_for_state($standby, 'm_k', qr/^valid$/, 'in the middle: the lock is gone: built');

	# ---- an index that is made or rebuilt in other ways than by one transaction ----

	replayed($primary, $standby, 'CREATE INDEX CONCURRENTLY u1_c ON u1 USING pmhash (k) WITH (wal = on)');
	wait_for_state($standby, 'u1_c', qr/^valid$/, 'CREATE INDEX CONCURRENTLY');
	replayed($primary, $standby, 'REINDEX INDEX CONCURRENTLY u1_c');
	wait_for_state($standby, 'u1_c', qr/^valid$/, 'REINDEX CONCURRENTLY');
	unlink(grep { $_ =~ $primary->safe_psql('postgres', q(SELECT substring(file from '[0-9a-f]{16}') FROM pmhash.files() WHERE index = 'u1_c'::regclass)) } index_files(pool($primary))) or die;
	$primary->safe_psql('postgres', 'INSERT INTO u1 VALUES (101)');
	wait_for_state($primary, 'u1_c', qr/^valid$/, 'a file is lost: rebuilt on the primary');
	caught_up($primary, $standby);
	wait_for_state($standby, 'u1_c', qr/^valid$/, 'a file is lost on the primary: built again');
	$primary->safe_psql('postgres', 'DROP INDEX u1_c');

	# ---- expressions that never end, on standbys ----

	my $gate = session_with($standby, 'SELECT pg_advisory_lock(7)');
	$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION sleeps(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	WHILE pg_is_in_recovery() AND NOT pg_try_advisory_xact_lock_shared(7) LOOP PERFORM pg_sleep(0.2); END LOOP;
	RETURN k;
END $$;
SQL
	foreach my $n (1 .. 3)
	{
		$primary->safe_psql('postgres', "CREATE TABLE h$n (k int); INSERT INTO h$n VALUES (1); CREATE INDEX h${n}_k ON h$n USING pmhash (sleeps(k)) WITH (wal = on)");
		usleep(700_000);
	}
	replayed($primary, $standby, 'CREATE INDEX h1_p ON h1 USING pmhash (k) WITH (wal = on) WHERE sleeps(k) = 1');
	ok($standby->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pmhash.indexes WHERE index ~ '^h\d_' AND state LIKE 'building%')), 'an expression: one index is being built');
	$primary->safe_psql('postgres', "CREATE INDEX u1_p$_ ON u1 USING pmhash (k) WITH (wal = on)") foreach 1 .. 3;
	$primary->safe_psql('db1', 'CREATE INDEX x_p ON x USING pmhash (k) WITH (wal = on)');
	caught_up($primary, $standby);
	wait_for_state($standby, "u1_p$_", qr/^valid$/, "beside an expression: u1_p$_") foreach 1 .. 3;
	ok($standby->poll_query_until('db1', q(SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'x_p')), 'beside an expression: another database');
	is($standby->safe_psql('postgres', q(SELECT count(*) FROM pmhash.indexes WHERE index ~ '^h\d_' AND state = 'valid')), '0', 'which has not ended');
	like($standby->safe_psql('postgres', "SELECT query $builders AND state = 'active'"), qr/^building the file of pmhash index public\.h\d_[kp]$/,
		'pg_stat_activity names the index');

	# Ended by hand, and held up again; a conflict with replay takes turns as well.
	$standby->safe_psql('postgres', "SELECT pg_terminate_backend(pid) $builders");
	ok($standby->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pmhash.indexes WHERE index ~ '^h\d_' AND state LIKE 'building%')), 'ended by hand: another one comes');
	$gate->query_safe('SELECT pg_advisory_unlock(7)');
	wait_for_state($standby, $_, qr/^valid$/, "the gate is open: $_") foreach qw(h1_k h2_k h3_k h1_p);
	$gate->quit;
	$holder->quit;
	compare_in_snapshot($standby, 'answers');

	$_->stop foreach $standby, $primary;
}

# ======== standby looks ========

# A build that is due is found, whatever ends the builder that was to find it, and though
# WAL says nothing of it: builders that are terminated while they wait; a file
# that goes by WAL, with a transaction that fails then; an expression that fails with what
# a conflict has; a database that takes no connections.
{
	my $primary = new_primary('primary2');
	my $builder = q(FROM pg_stat_activity WHERE backend_type = 'pmhash worker' AND query LIKE 'building%');

	# ---- builders are terminated while they wait ----

	# (no regular look comes meanwhile)
	my $holder = session_with($primary, 'BEGIN; CREATE TABLE holds_builds (k int)');
	my $standby = new_standby($primary, 'standby2', "pmhash.cleaner_naptime = 100000\n");
	foreach my $how ('pg_terminate_backend', 'pg_cancel_backend')
	{
		ok($standby->poll_query_until('postgres', "SELECT count(*) = 2 $builder"), "$how: two builders wait for a transaction");
		my $pid = $standby->safe_psql('postgres', "SELECT min(pid) $builder");
		$standby->safe_psql('postgres', "SELECT $how($pid)");
		ok($standby->poll_query_until('postgres', "SELECT count(*) = 2 $builder AND pid <> $pid"), "$how: another one comes");
	}
	$holder->query_safe('ROLLBACK');
	$holder->quit;
	wait_for_state($standby, $_, qr/^valid$/, "terminated: $_ is built") foreach qw(t_k t_s);
	reload_with($standby, "pmhash.cleaner_naptime = 1\n");

	# ---- WAL says that a file goes, and the transaction fails ----

	# A write skew: the first to commit wins, and what the other one drops stays.
	sleep 2;	# past the looks that the builds have requested
	$primary->safe_psql('postgres', 'CREATE TABLE a (x int); CREATE TABLE b (x int); INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)');
	my $one = $primary->background_psql('postgres', on_error_stop => 0);
	my $two = $primary->background_psql('postgres', on_error_stop => 0);
	$one->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE');
	$two->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE');
	$one->query_safe('SELECT sum(x) FROM a');
	$two->query_safe('SELECT sum(x) FROM b');
	$two->query_safe('INSERT INTO a VALUES (2)');
	$one->query_safe('INSERT INTO b VALUES (2)');
	$one->query_safe('DROP INDEX t_k');
	$two->query_safe('COMMIT');
	my $from = $primary->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	my $position = log_position($primary);
	my $built = log_position($standby);
	$one->query('COMMIT');
	like(logged_since($primary, $position), qr/could not serialize access due to read\/write dependencies/, 'dropped in vain: the transaction fails');
	$_->quit foreach $one, $two;
	$primary->safe_psql('postgres', q(INSERT INTO t VALUES (50001, 'after', 1)));
	install_wal_records($primary);
	is($primary->safe_psql('postgres', "SELECT type FROM pmhash_wal_records('$from', pg_current_wal_flush_lsn()) ORDER BY record_start LIMIT 1"),
		'FILE_GONE', 'dropped in vain: WAL says that the file goes');
	caught_up($primary, $standby);
	ok($standby->wait_for_log(qr/"t_k" has been built/, $built), 'dropped in vain: the standby builds it again');
	wait_for_state($standby, 't_k', qr/^valid$/, 'dropped in vain: it has it');
	compare_in_snapshot($standby, 'dropped in vain: answers');
	is($standby->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 50001'), '1', 'dropped in vain: what came later');

	# ---- an expression fails with the SQLSTATE of a conflict: the others are built ----

	# (One worker builds all that have expressions: it is to come to those after the first.)
	$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION fails_on_standbys(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN IF pg_is_in_recovery() THEN RAISE ''not here'' USING ERRCODE = ''40001''; END IF; RETURN k; END';
CREATE TABLE e (k int, l int);
INSERT INTO e SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX e_f ON e USING pmhash (fails_on_standbys(k)) WITH (wal = on);
SQL
	$primary->safe_psql('postgres', "CREATE INDEX e_l$_ ON e USING pmhash ((l + 0)) WITH (wal = on)") foreach 1 .. 4;
	caught_up($primary, $standby);
	wait_for_state($standby, "e_l$_", qr/^valid$/, "beside one that fails: e_l$_") foreach 1 .. 4;
	unlike(standby_state($standby, 'e_f'), qr/^valid/, 'which has no file');
	$primary->safe_psql('postgres', 'DROP TABLE e');

	# ---- a database that takes no connections when it is its turn ----

	$primary->safe_psql('postgres', 'CREATE DATABASE db1');
	install_extension($primary, 'db1', 'CREATE TABLE x (k int); CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = on)');
	$primary->safe_psql('postgres', 'ALTER DATABASE db1 ALLOW_CONNECTIONS off');
	my $late = new_standby($primary, 'late2');
	both_valid($late, 'late');
	sleep 1;
	replayed($primary, $late, 'ALTER DATABASE db1 ALLOW_CONNECTIONS on');
	ok($late->poll_query_until('db1', q(SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'x_k')), 'no connections, and then some: built');

	# ---- databases without indexes of ours are looked at once ----

	reload_with($late, "log_min_messages = debug1\n");
	replayed($primary, $late, 'CREATE DATABASE plain');
	my $plain = $primary->safe_psql('postgres', q(SELECT oid FROM pg_database WHERE datname = 'plain'));
	sleep 5;	# some regular looks
	is(scalar(() = slurp_file($late->logfile) =~ /starting background worker process "pmhash worker for database $plain"/g), 1,
		'a database without the extension: looked at once');
	$_->stop foreach $late, $standby, $primary;
}

# ======== handed on ========

# A snapshot of a standby is handed on while replay waits for the session that has it, before
# the entries of rows that it sees are removed: replay goes on when that session is over, and
# does not look again.  The one that has taken it over sees all its rows nevertheless, on the
# standby and after its promotion, and condemns no index.
{
	my $primary = new_primary('primary3');
	my $standby = new_standby($primary, 'standby3', "max_standby_streaming_delay = -1\n");
	my $old = $standby->background_psql('postgres', on_error_stop => 0);
	my $taker = $standby->background_psql('postgres', on_error_stop => 0);
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexscan = on';
	my $by_table = 'SET enable_seqscan = on; SET enable_indexscan = off; SET enable_bitmapscan = off';
	my $query = 'SELECT count(v) FROM q WHERE k = 7';

	# A test: the session sees that many rows, by a plan of before, by a new one, and by the table.
	sub sees ($rows, $name)
	{
		is($taker->query_safe("$by_index; EXECUTE before"), $rows, "$name: a plan of before");
		is($taker->query_safe($query), $rows, "$name: by the index, if it may");
		is($taker->query_safe("$by_table; $query"), $rows, "$name: by the table");
		return;
	}

	$primary->safe_psql('postgres', <<SQL);
CREATE TABLE q (k int4, v int4) WITH (autovacuum_enabled = off);
CREATE INDEX q_k ON q USING pmhash (k) WITH (wal = on);
INSERT INTO q SELECT 7, i FROM generate_series(1, 30) i;
INSERT INTO q VALUES (1, 1);
SQL
	caught_up($primary, $standby);
	wait_for_state($standby, 'q_k', qr/^valid$/, 'q_k is built on the standby');
	$taker->query_safe("SET plan_cache_mode = force_generic_plan; $by_index; PREPARE before AS $query; EXECUTE before");

	my $snapshot = $old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
	gone_with_entries($primary);
	wait_until($standby, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'startup' AND wait_event = 'RecoveryConflictSnapshot')}, 'replay does not wait');
	$taker->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'");
	$old->query_safe('COMMIT');
	caught_up($primary, $standby);
	is($standby->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('q_k'))), 1, 'the entries have gone');
	sees(30, 'on the standby');
	$taker->query("SAVEPOINT s; SELECT pmhash.check('q_k')");
	like($taker->{stderr}, qr/cannot be checked using the transaction's snapshot/, 'no check by this snapshot');
	$taker->{stderr} = '';
	$taker->query_safe('ROLLBACK TO s');
	is(standby_state($standby, 'q_k'), 'valid', 'nor one that condemns the index');

	$standby->promote;
	sees(30, 'promoted');
	$taker->query_safe('COMMIT');
	sees(0, 'promoted, by another snapshot');
	like($taker->query_safe("$by_index; EXPLAIN (COSTS OFF) $query"), qr/q_k/, 'that uses the index');
	$_->quit foreach $old, $taker;
	$standby->stop;
	$primary->stop;
}

# ======== promoted amid a build ========

# A build waits for a lock that replay holds for the primary, and the end of recovery is what
# releases it: the build is over, and the new primary makes the file itself.
{
	my $primary = new_primary('primary4');

	slow_on_standbys($primary, 100);
	my $standby = new_standby($primary, 'standby4', "max_standby_streaming_delay = 1s\n");
	my $holder = $primary->background_psql('postgres', on_error_stop => 0);

	ok($standby->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pmhash.indexes WHERE index = 'm_k' AND state LIKE 'building%')), 'promoted: a build is under way');
	$holder->query_safe('BEGIN; LOCK TABLE m; SELECT pg_current_xact_id()');
	$primary->safe_psql('postgres', 'CREATE TABLE flushes ()');
	ok($standby->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE relation = 'm'::regclass AND NOT granted AND
		pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash worker')}), 'promoted: it waits for a lock');
	$standby->promote;
	wait_for_state($standby, $_, qr/^valid$/, "promoted: $_ is there") foreach qw(m_k t_k t_s);
	is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM m WHERE slowly(k) = 7'), '1', 'promoted: a row is found');
	is($standby->safe_psql('postgres', q(SELECT pmhash.check('m_k'))), '', 'promoted: pmhash.check');
	unlike(logged_since($standby, 0), qr/TRAP:|PANIC:|was terminated by/, 'promoted: no process has failed');
	$holder->quit;
	$_->stop foreach $standby, $primary;
}

done_testing();
