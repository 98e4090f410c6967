# What a rebuild must not do to others, and what it lacks.

use v5.36;

use File::Path qw(rmtree);
use PmhashFaults;
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;

# ======== rebuild beside writers ========

# What a rebuild beside writers must not do to others: cancel their transactions by
# a deadlock, read as a serializable transaction, take back an index that it has
# just finished, let two serializable transactions miss each other, fail inserts
# when the file system is full.
{
	my $node = new_faulty_server('rebuild_breaks', "default_transaction_isolation = serializable\n");
	my $rc = 'SET default_transaction_isolation = \'read committed\'';

	# wait_at(0) waits as long as a session has the advisory lock.
	$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION wait_at(k int8) RETURNS int8 IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN WHILE k = 0 AND NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN k; END';
CREATE TABLE t (k int8, v int4);
INSERT INTO t SELECT i % 500, i FROM generate_series(0, 4999) i;
CREATE INDEX t_w ON t USING pmhash (wait_at(k)) WHERE v >= 0;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE f (k int8, v int4);
INSERT INTO f SELECT i, i FROM generate_series(0, 99) i;
CREATE INDEX f_w ON f USING pmhash (wait_at(k));
CREATE TABLE s (k int8);
CREATE INDEX s_gate ON s (wait_at(k));
CREATE INDEX s_k ON s USING pmhash (k);
INSERT INTO s SELECT generate_series(1, 100);
CREATE TABLE x (v int4);
SQL
	my $gate = $node->background_psql('postgres');

	sub start_held_rebuild ($index, $table)
	{
		$gate->query_safe('SELECT pg_advisory_lock(1)');
		unlink(index_file($node, $index)) or die;
		$node->safe_psql('postgres', "$rc; INSERT INTO $table VALUES (1000, 1)");
		wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash worker' AND wait_event = 'PgSleep'", 'the rebuild does not wait');
		return;
	}

	sub release
	{
		$gate->query_safe('SELECT pg_advisory_unlock(1)');
		return;
	}

	sub all_valid ($name)
	{
		wait_until($node, "SELECT bool_and(state = 'valid') FROM pmhash.indexes", "$name: an index does not come back");
		is($node->safe_psql('postgres', "SELECT pmhash.check('t_w'), pmhash.check('t_k'), pmhash.check('s_k')"), '||', "$name: check");
		return;
	}

	# Times that an index has been rebuilt, by the log.
	sub rebuilds ($index)
	{
		return scalar(() = slurp_file($node->logfile) =~ /index "\Q$index\E" of table "\w+" has been rebuilt/g);
	}

	# ---- it reads as others do, whatever the default is ----
	start_held_rebuild('t_w', 't');
	is($node->safe_psql('postgres',
			"SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE mode = 'SIReadLock' AND backend_type = 'pmhash worker'"),
		'0', 'no serializable rebuild');

	release();
	all_valid('serializable by default');

	# What a rebuild says whose file an insert has marked: it sees the mark, or it wants to
	# map more of the file and the cleaner has removed it already (invalid.c, raise_removed).
	my $noticed = qr/new file of index "f_w" became unusable|could not rebuild index "f_w": pmhash index "f_w" has no usable file/;

	# ---- full while the file is being filled: inserts go on ----
	# Growing fails in this session only; f has no other index, which would need it too.
	foreach my $queue ('on', 'off')
	{
		my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM f');

		start_held_rebuild('f_w', 'f');
		is($node->safe_psql('postgres', <<SQL), 't', "group_insert $queue: growing has failed, inserts have not");
$rc;
SET pmhash.group_insert = $queue;
SET pmhash_faults.calls = 'posix_fallocate';
SET pmhash_faults.fail_for = 2000000000;
SET pmhash_faults.fail_at = 1;
INSERT INTO f SELECT 2000 + i, 1 FROM generate_series(1, 100000) i;
SET pmhash_faults.fail_at = 0;
SELECT split_part(pmhash_faults_report(), ' ', 2)::int > 0;
SQL
		is($node->safe_psql('postgres', "$rc; INSERT INTO f VALUES (1001, 1); SELECT count(*) FROM f"),
			$before + 100002, "group_insert $queue: rows");
		release();
		all_valid("group_insert $queue, full while being filled");
		like(slurp_file($node->logfile), $noticed, "group_insert $queue: noticed");
		is($node->safe_psql('postgres', "SELECT count(*), pmhash.check('f_w') FROM f WHERE wait_at(k) BETWEEN 2001 AND 102000"),
			($queue eq 'on' ? 100000 : 200000) . '|', "group_insert $queue: check");
	}

	# ---- a writer that wants a lock on the table while it is waited for ----
	my $writer = session_with($node, "$rc; BEGIN; INSERT INTO t VALUES (1, 1)", on_error_stop => 0);
	unlink(index_file($node, 't_k')) or die;
	$node->safe_psql('postgres', "$rc; INSERT INTO t VALUES (1000, 1)");
	wait_until($node, "SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE phase = 'waiting for writers before build'", 'writers are not waited for');
	usleep(1_500_000);    # deadlock_timeout of the rebuild has passed
	$writer->query("LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE");
	is($writer->{stderr}, '', 'no deadlock');
	is($writer->query('SELECT count(*) FROM t WHERE k = 1 AND v = 1'), '2', 'its transaction goes on');
	$writer->query('COMMIT');
	$writer->quit;
	all_valid('a writer that locks the table');

	# ---- a failure of one index says nothing of the one before ----
	# No file can be made when the first of two is being filled.
	my ($first, $second) = ('t_w', 'f_w');
	my $directory = index_file($node, $first) =~ s{/[^/]+\z}{}r;
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	unlink(index_file($node, $first), index_file($node, $second)) == 2 or die;
	$node->safe_psql('postgres', "$rc; INSERT INTO t VALUES (1000, 1); INSERT INTO f VALUES (1000, 1)");
	wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash worker' AND wait_event = 'PgSleep'", 'the rebuild does not wait');
	($first, $second) = ($second, $first)
	  if $node->safe_psql('postgres', 'SELECT index_relid::regclass FROM pg_stat_progress_create_index') ne $first;
	my $before = rebuilds($first);
	my $file = index_file($node, $first);
	chmod(0500, $directory) or die;
	release();
	wait_until($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'pmhash worker'", 'the rebuild does not end');
	chmod(0700, $directory) or die;
	like(slurp_file($node->logfile), qr/could not rebuild index "$second"/, 'the next index has failed');
	all_valid('an index that fails after another');
	is(rebuilds($first) - $before, 1, 'the one before is not rebuilt again');
	is(index_file($node, $first), $file, 'it keeps its file');

	# ---- serializable transactions, one of which has the old file ----
	# The reader's lock is moved to the table between the writer's two checks: the
	# writer has opened the file by its first row and waits in its second one.
	sub write_skew ($name, $read, $read_on, $write, $while)
	{
		my $reader = $node->background_psql('postgres', on_error_stop => 0);
		my $other = $node->background_psql('postgres', on_error_stop => 0);

		$reader->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_material = off; SET enable_memoize = off');
		$reader->query_safe("BEGIN; $read");
		$other->query_safe('BEGIN; SELECT count(*) FROM x');
		$while->($other, $write);
		$reader->query($read_on) if $read_on ne '';
		$reader->query('INSERT INTO x VALUES (1)');
		$other->query('COMMIT');
		$reader->query('COMMIT');
		like($reader->{stderr} . $other->{stderr}, qr/could not serialize access/, $name);
		$reader->quit;
		$other->quit;
		$node->safe_psql('postgres', "$rc; TRUNCATE x; DELETE FROM s WHERE k IN (0, 50)");
		all_valid($name);
		return;
	}

	sub mark_s
	{
		unlink(index_file($node, 's_k')) or die;
		$node->safe_psql('postgres', "$rc; INSERT INTO s VALUES (1000)");
		return;
	}

	write_skew('a row that goes into the old file', 'SELECT count(*) FROM s WHERE k = 0', '',
		'INSERT INTO s VALUES (2000), (0)',
		sub {
			my ($other, $write) = @_;
			$gate->query_safe('SELECT pg_advisory_lock(1)');
			$other->query_until(qr/begun/, "\\echo begun\n$write;\n");
			wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event = 'PgSleep'", 'the writer does not wait');
			mark_s();
			release();
		});
	# It has opened the file by a look-up that needs no lock: the first key is NULL.
	write_skew('a reader that goes on reading the old file',
		'DECLARE c CURSOR FOR SELECT g, (SELECT count(*) FROM s WHERE k = nullif(g, 1)) FROM generate_series(1, 100) g; FETCH 1 FROM c',
		'FETCH ALL FROM c', 'INSERT INTO s VALUES (50)',
		sub {
			my ($other, $write) = @_;
			mark_s();
			$other->query_safe("$write; COMMIT");
		});
	$gate->quit;
	$node->stop;
}

# ======== no slot ========

# No slot is free for the workers that rebuild and build indexes: the error is one to
# try again (40001) only as long as that will help, and the views say what is missing.
{
	my $enough = "max_worker_processes = 16\n";
	my $node = new_primary('slots', $enough);
	my $pool = pool($node);
	$node->safe_psql('postgres', 'DROP TABLE t');
	$node->safe_psql('postgres', invalid_fixture());

	sub sqlstate_of ($server, $sql)
	{
		my (undef, undef, $stderr) = $server->psql('postgres', "\\set VERBOSITY verbose\n$sql");

		return $stderr =~ /ERROR:  (\w{5}): / ? $1 : "none: $stderr";
	}

	# ---- "try again" only if there is a worker to rebuild it ----
	# (the server's own logical replication launcher takes one, ours the other one)
	my %missing = (
		1 => 'no pmhash launcher is running to rebuild it',
		2 => 'no slot is free for a worker to rebuild it');
	my $by_hand = qr/HINT:  No background worker of pmhash can run to rebuild it \(see max_worker_processes\); REINDEX INDEX/;
	foreach my $slots (1, 2)
	{
		my $insert = 'INSERT INTO ex VALUES (-1)';
		my $from = -s $node->logfile;

		$node->append_conf('postgresql.conf', "max_worker_processes = $slots\nmax_parallel_workers = 0");
		$node->stop;
		unlink(grep { -f } glob("$pool/*/*.pmh"));
		$node->start;
		is(sqlstate_of($node, $insert), '40001', 'no slot, but for a moment so far') if $slots == 2;
		my $deadline = time + 60;
		sleep 1 while sqlstate_of($node, $insert) eq '40001' && time < $deadline;
		# trouble: LOG: `pmhash: no slot is free for a background worker`
		is(scalar(() = slurp_file($node->logfile, $from) =~ /no slot is free for a background worker/g), 1, 'the log tells, once') if $slots == 2;
		is(sqlstate_of($node, $insert), '55000', "$slots slots: not to be tried again");
		fails_like($node, $insert, $by_hand, "$slots slots");
		ok($node->poll_query_until('postgres',
				"SELECT state LIKE 'invalid: %; $missing{$slots} (see max_worker_processes)' FROM pmhash.indexes WHERE index = 'ex_k'"),
			"$slots slots: the view tells");
		is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1'), '2', "$slots slots: queries do without");
	}
	restart_with($node, $enough);
	all_come_back($node, 'with slots');

	# ---- one slot for all: the end of each worker is the next one's turn ----
	# Cleaners of some databases are due all the time, and come before users' functions.
	$node->safe_psql('postgres', 'CREATE INDEX o_e ON o USING pmhash ((k + 1))');
	$node->safe_psql('postgres', $_) foreach map { "CREATE DATABASE one_$_ TEMPLATE postgres" } 1 .. 8;
	restart_with($node, "max_worker_processes = 3\npmhash.cleaner_naptime = 1");
	all_come_back($node, 'with one slot');
	ok($node->poll_query_until("one_$_", "SELECT bool_and(state = 'valid') FROM pmhash.indexes"), "those of database $_") foreach 1 .. 8;
	my $offset = -s $node->logfile;
	unlink(index_file($node, 'o_e')) or die;
	$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM o WHERE k + 1 = 7');
	my $by = time + 30;
	sleep 1 while index_state($node, 'o_e') ne 'valid' && time < $by;
	is(index_state($node, 'o_e'), 'valid', 'and one with an expression');
	unlike(slurp_file($node->logfile, $offset), qr/slot (?:is free )?for a background worker/, 'nothing is said of slots, as there is one');
	$node->safe_psql('postgres', $_) foreach map { "DROP DATABASE one_$_" } 1 .. 8;
	restart_with($node, "pmhash.cleaner_naptime = 60\n$enough");

	# ---- a standby ----
	my $standby = new_standby($node, 'slots_standby');
	my $standbys = pool($standby);
	wait_for_state($standby, 'ex_k', qr/^valid$/, 'the standby has its files');
	unlink(index_file($standby, 'ex_k')) or die;
	is(standby_state($standby, 'ex_k'), 'invalid: it does not exist', 'a file is gone on a standby that has its launcher');
	$standby->stop;
	# no slot but that of core's launcher (a standby needs as many as its primary)
	restart_with($node, 'max_worker_processes = 1');
	$standby->start;
	caught_up($node, $standby);
	$standby->stop;
	rmtree($standbys);
	start_with($standby, "max_worker_processes = 1\nmax_parallel_workers = 0");
	wait_for_state($standby, 'ex_k', qr/^to be built; no pmhash launcher is running to build it \(see max_worker_processes\)$/,
		'a standby without a slot for its launcher');
	is(sqlstate_of($standby, "SELECT pmhash.check('ex_k')"), '55000', '... on which nothing is to be tried again');
	$standby->stop;
	$node->stop;
}

done_testing();
