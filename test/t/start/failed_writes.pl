# Writes that fail, and a pool that is given up.

use v5.36;

use Errno qw(EINVAL EIO);
use PmhashFaults;
use PmhashInvalid;
use PmhashTest;

# ======== failed writes ========

# The kernel cannot write back what is in the page cache: it says so once, and
# from then on the page may be gone at any time.  Whatever is in the index files
# is not believed any more.
{
	my $failed_state = 'the kernel has failed to write something back, or may have';
	my $node = new_faulty_server('writes');
	my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash.indexes';

	$node->safe_psql('postgres', invalid_fixture());

	sub faults ($calls, $n, $for = 1, $error = 5)
	{
		return set_faults($node, calls => $calls, error => $error, fail_for => $for, fail_at => $n);
	}

	# event: the kernel fails to write back pages of the pool's file system, while the server runs
	# ---- noticed with the next checkpoint; a session that has the files open as well ----
	my $session = session_with($node, 'SET enable_seqscan = off; INSERT INTO t VALUES (-1, -1); SELECT * FROM t WHERE k = -1');
	my $before = $node->safe_psql('postgres', $files);
	my $from = -s $node->logfile;
	rebuild_off($node);
	faults('syncfs', 1);
	checkpoint_and_ask($node);
	$node->wait_for_log(qr/index files in .* are not trusted: the file system of directory .* has failed to write something back: Input/, $from);
	faults('syncfs', 0);
	# trust: syncfs
	is($session->query_safe('EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k = -1') =~ /Index/ ? 'index' : 'no index', 'no index',
		'a session that has the file open');
	is($session->query_safe('SELECT count(*) FROM t WHERE k = -1'), '1', 'and its answer');
	$session->quit;
	stays_invalid($node, $failed_state, 'failed write');

	# and after a crash, a shutdown
	crash_and_start($node);
	stays_invalid($node, $failed_state, 'failed write, crash');
	$node->restart;
	like(index_state($node, 'o_k'), qr/^invalid/, 'failed write, shutdown');
	all_rebuilt($node, 'failed write');
	isnt($node->safe_psql('postgres', $files), $before, 'the files are new ones');

	# ---- the pool directory is not where it was; processes that have its files open go on ----
	my $pool = pool($node);
	$from = -s $node->logfile;
	rename($pool, "$pool.away") or die $!;
	faults('syncfs', 1);
	checkpoint_and_ask($node);
	$node->wait_for_log(qr/index files in .* are not trusted: the file system of directory .* has failed to write something back: Input/, $from);
	ok(!-e $pool, 'the pool directory is away: nothing is made in its place');
	fails_like($node, 'REINDEX INDEX t_k', qr/is disabled/, 'failed write, the pool directory is away');
	rename("$pool.away", $pool) or die $!;
	rebuild_off($node);
	faults('syncfs', 0);
	$node->restart;
	like(index_state($node, 'o_k'), qr/^invalid/, 'failed write, the pool directory was away');
	all_rebuilt($node, 'failed write, the pool directory was away');

	# ---- while the launcher has files written back it takes part in what all processes must ----
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('postgres', "CREATE TABLE many$_ (k int4); CREATE INDEX ON many$_ USING pmhash (k)") foreach 1 .. 8;
	$node->append_conf('postgresql.conf', "pmhash_faults.action = slow\npmhash_faults.process = 'pmhash launcher'");
	faults('sync_file_range', 1, 1000);
	$from = -s $node->logfile;
	checkpoint_and_ask($node);
	$node->wait_for_log(qr/pmhash_faults: call 1 of sync_file_range/, $from);
	$node->safe_psql('postgres', 'DROP DATABASE other');
	my @calls = slurp_file($node->logfile, $from) =~ /pmhash_faults: call \d+ of sync_file_range/g;
	cmp_ok(scalar(@calls), '<', 8, 'DROP DATABASE does not wait until all files are written back');
	$node->append_conf('postgresql.conf', "pmhash_faults.action = fail\npmhash_faults.process = ''");
	faults('syncfs', 0);
	$node->safe_psql('postgres', "DROP TABLE many$_") foreach 1 .. 8;

	# ---- no launcher: the first process that uses an index asks ----
	sub is_noticed ($name)
	{
		ok($node->poll_query_until('postgres', "SELECT state ~ '^invalid' FROM pmhash.indexes WHERE index = 't_k'"), $name);
		stays_invalid($node, $failed_state, $name);
		return;
	}
	$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
	rebuild_off($node);
	$node->restart;
	is(index_state($node, 't_k'), 'valid', 'no launcher: valid');
	faults('syncfs', 1);
	is(index_state($node, 't_k'), 'valid', 'no launcher: not asked before a checkpoint');
	checkpoint_and_ask($node);
	# trust: no-launcher
	is_noticed('no launcher');
	faults('syncfs', 0);
	$node->safe_psql('postgres', 'REINDEX TABLE t; REINDEX TABLE o; REINDEX TABLE ex');
	crash($node);
	faults('syncfs', 1);
	$node->start;
	hours_pass($node);
	is_noticed('no launcher, after a crash');
	faults('syncfs', 0);
	$node->safe_psql('postgres', 'REINDEX TABLE t; REINDEX TABLE o; REINDEX TABLE ex');

	# nor in single-user mode
	crash($node);
	faults('syncfs', 1);
	like(die_in_start($node, 'SELECT count(*) FROM t WHERE k = 1'), qr/not trusted: the file system .* has failed to write something back/,
		'single-user mode');
	faults('syncfs', 0);
	$node->start;
	stays_invalid($node, $failed_state, 'single-user mode');
	$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
	rebuild_on($node);
	$node->restart;
	all_come_back($node, 'with a launcher again');

	# event: the kernel fails to write back pages of the pool's file system, at a clean shutdown
	sub fails_at_shutdown ($calls, $n, $for, $name, $error)
	{
		my $from = -s $node->logfile;

		rebuild_off($node);
		faults($calls, $n, $for, $error);
		$node->safe_psql('postgres', 'SELECT 1');
		$node->stop;
		like(slurp_file($node->logfile, $from), qr/could not write the files in .* back: /, "$name: log");
		start_with($node, 'pmhash_faults.fail_at = 0');
		invalid_then_back($node, $failed_state, $name);
		return;
	}

	# all files at once
	# trust: shutdown-syncfs
	fails_at_shutdown('syncfs', 1, 1, 'shutdown', 5);

	# and other things that a device says
	fails_at_shutdown('syncfs', 1, 1, "shutdown, $_->[0]", $_->[1]) foreach some_of(2, [ 'ENODATA', 61 ], [ 'ETIMEDOUT', 110 ]);

	# file by file, where the kernel is an old one or cannot be asked: two calls for the
	# control file, uname, those of the index files
	# trust: fsync
	fails_at_shutdown('uname fsync', 3, 2, "shutdown, old kernel, $_->[0]", $_->[1]) foreach some_of(2, [ 'EIO', 5 ], [ 'ETIMEDOUT', 110 ]);
	$node->stop;
}

# ======== given up ========

# A run has to give its pool up, and what it would do to say so fails, one way
# after the other: whatever is left is enough.  And what an undo meets by want of
# something that comes back does not cost an index.
{
	my $apart = 'server and pool directory have not been together all the time since it was made';
	my $failed_write = 'the kernel has failed to write something back, or may have';
	my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash.indexes';
	my $node = new_faulty_server('given_up', <<CONF);
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
bgwriter_lru_maxpages = 0
checkpoint_timeout = 1h
CONF

	$node->safe_psql('postgres', invalid_fixture());

	# Faults in the launcher, from the n-th call on.
	sub faults_of_given_up ($calls, $n, $for, $error, $restart, $process = 'pmhash launcher')
	{
		return set_faults($node, calls => $calls, process => $process, at_restart => $restart,
			error => $error, fail_for => $for, fail_at => $n);
	}

	# None from the next start on.
	sub no_faults
	{
		return $node->append_conf('postgresql.conf', 'pmhash_faults.fail_at = 0');
	}

	# The launcher gives the pool up; then there are no faults.  without_hints: the inode of
	# the lock file cannot say so, as on a file system that knows no hints, so that the server
	# alone knows.
	sub give_pool_up
	{
		my $without_hints = shift;
		my $calls = 'syncfs pwrite unlink ftruncate';
		my $from = -s $node->logfile;

		faults_of_given_up($without_hints ? "fcntl $calls" : $calls, 1, 1_000_000, $without_hints ? EINVAL : EIO,
			'off');
		checkpoint_and_ask($node);
		$node->wait_for_log(qr/pmhash is disabled: could not write/, $from);
		usleep(300_000);
		set_faults($node, fail_at => 0);
		return;
	}

	sub token
	{
		return $node->data_dir . '/pmhash.nonce';
	}

	# ---- the kernel fails to write something back, and that cannot be noted ----
	# The control file cannot be written; so the token goes.  If that stays, the inode of
	# the lock file says it.  Ends: an orderly one, and a crash.
	foreach my $way ([ 'control file', 'syncfs pwrite', 0, 'shutdown' ],
		[ 'control file, token', 'syncfs pwrite unlink ftruncate', 1, 'crash' ])
	{
		my ($name, $calls, $has_token, $end) = @$way;
		my $from;

		$node->restart if $end eq 'crash';
		rebuild_off($node);
		$from = -s $node->logfile;
		faults_of_given_up($calls, 1, 1_000_000, 5, 'off');
		checkpoint_and_ask($node);
		$node->wait_for_log(qr/pmhash is disabled: could not write/, $from);
		usleep(300_000);    # what comes after that message
		is(-e token() ? 1 : 0, $has_token, "$name, $end: token");
		unlike(slurp_file($node->logfile, $from), qr/PANIC|can neither/, "$name, $end: log");
		set_faults($node, fail_at => 0);
		# The pool can be written again, and no process does.
		$node->safe_psql('postgres', 'INSERT INTO o VALUES (9000); DELETE FROM o WHERE k = 9000');
		sleep(2);    # naptimes
		is(-e token() ? 1 : 0, $has_token, "$name, $end: token, when all could be written again");
		$end eq 'crash' ? $node->stop('immediate') : $node->stop;
		$node->start;
		invalid_then_back($node, $has_token ? $failed_write : $apart, "$name, $end");
	}

	# ---- nothing can be written or removed: the inode of the lock file says it; nor that ----
	foreach my $way ([ 'immediate', 'pwrite fsync ftruncate unlink mmap' ], [ 'fast', 'pwrite fsync ftruncate unlink mmap' ],
		[ 'fast', 'system' ])
	{
		my ($end, $calls) = @$way;
		my $name = "withdrawn, $calls, $end";
		my $from = -s $node->logfile;
		my $session;

		$node->restart;
		rebuild_off($node);
		faults_of_given_up($calls, 1, 1_000_000, 5, 'on', '');
		$session = $node->background_psql('postgres', on_error_stop => 0);
		$session->query_safe('BEGIN; INSERT INTO o SELECT generate_series(6000, 6020)');
		kill('KILL', $session->query_safe('SELECT pg_backend_pid()'));
		eval { $session->quit };
		$node->wait_for_log($calls eq 'system' ? qr/pmhash can neither use its pool nor give it up: could not/ : qr/pmhash is disabled: could not use file/, $from);
		wait_until_up($node);
		# event: a child crashes and the restart cannot write to the pool
		is(witness($node), 4, "$name: hint") if $calls ne 'system';
		is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM o WHERE k BETWEEN 6000 AND 6020'),
			0, "$name: rows of the crash");
		no_faults();
		$node->stop($end);
		$from = -s $node->logfile;
		$node->start;
		like(slurp_file($node->logfile, $from), qr/not trusted: the server had to give them up/, "$name: log") if $calls ne 'system';
		# event: neither the pool nor pmhash's file in the data directory can be written
		invalid_then_back($node, $calls eq 'system' ? $apart : $failed_write, $name);
	}

	# ---- given up, and an orderly end ----
	foreach my $without_hints (0, 1)
	{
		my $name = 'given up, at the end' . ($without_hints ? ', without hints' : '');

		rebuild_off($node);
		give_pool_up($without_hints);
		$node->stop;
		$node->start;
		# trust: given-up-at-end
		invalid_then_back($node, $without_hints ? $apart : $failed_write, $name);
	}

	# ---- given up; then a backend crashes, and the next life has a launcher ----
	{
		rebuild_off($node);
		give_pool_up();
		rebuild_on($node);
		restart_in_place($node);
		all_come_back($node, 'given up, then a crash in place');
	}

	# ---- the end of the postmaster: it has no shared memory any more ----
	{
		my $from = -s $node->logfile;

		rebuild_off($node);
		$node->append_conf('postgresql.conf', "pmhash_faults.after = 'syncfs'");
		faults_of_given_up('syncfs pwrite unlink ftruncate', 1, 1_000_000, 5, 'off', '');
		$node->stop;
		unlike(slurp_file($node->logfile, $from), qr/signal|can neither/, 'given up at the end: log');
		like(slurp_file($node->logfile, $from), qr/could not write the files in .* back/, 'given up at the end: why');
		ok(!-e $node->data_dir . '/postmaster.pid', 'given up at the end: the postmaster ends');
		is(witness($node), 4, 'given up at the end: hint');
		no_faults();
		start_with($node, "pmhash_faults.after = ''");
		invalid_then_back($node, $failed_write, 'given up at the end');
	}

	# ---- a file that the undo cannot look at may be there tomorrow ----
	foreach my $case ('directory', 'stat')
	{
		my $from = -s $node->logfile;
		my $path = index_file($node, 'o_k');
		my ($directory) = $path =~ m{(.*)/};

		checkpoint_and_ask($node);
		my $session = session_with($node, 'BEGIN; INSERT INTO o SELECT generate_series(6000, 6020)');
		$node->stop('immediate');
		eval { $session->quit };
		if ($case eq 'directory')
		{
			chmod(0, $directory);
			$node->start;
			$node->wait_for_log(qr/could not remove file|entries taken out/, $from);
			is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM o WHERE k BETWEEN 6000 AND 6020 OR k = 6000'), '0', "unreachable $case: meanwhile");
			chmod(0700, $directory);
		}
		else
		{
			faults_of_given_up('stat', 2, 3, 5, 'off');    # the first: is the pool there?
			$node->start;
		}
		$node->wait_for_log(qr/undo journal: .* entries taken out/, $from);
		like(slurp_file($node->logfile, $from), qr/undo journal: \d+ records, .* [1-9]\d* entries taken out/, "unreachable $case: taken out");
		set_faults($node, fail_at => 0);
		is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', "unreachable $case: all valid");
		all_checked($node, "unreachable $case");
		$node->restart;    # at_restart counts from there
	}

	# ---- the undo lacks a descriptor, or memory: for the journal, for a file ----
	# A row is lost that has an entry; the launcher fails, a session succeeds.
	foreach my $case (some_of(2, [ 'journal', 1, 24 ], [ 'file', 2, 24 ], [ 'file', 2, 12 ], [ 'file', 2, 4 ]))
	{
		my ($what, $n, $error) = @$case;
		my $name = "undo, $what, error $error";
		my $before = $node->safe_psql('postgres', $files);
		my $from = -s $node->logfile;
		my ($session, $pid);

		checkpoint_and_ask($node);
		faults_of_given_up('open', $n, 1, $error, 'on');
		$session = $node->background_psql('postgres', on_error_stop => 0);
		$pid = $session->query_safe('SELECT pg_backend_pid()');
		$session->query_safe('BEGIN; INSERT INTO o SELECT generate_series(6000, 6020)');
		kill('KILL', $pid);
		eval { $session->quit };
		$node->wait_for_log(qr/ERROR: .*pmhash could not use file ".*" to take out what a crash has lost/, $from);
		wait_until_up($node);
		is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM o WHERE k BETWEEN 6000 AND 6020 OR k = 6000'), '0',
			"$name: lost rows");
		$node->safe_psql('postgres', 'INSERT INTO o VALUES (7000); DELETE FROM o WHERE k = 7000');
		like(slurp_file($node->logfile, $from), qr/undo journal: \d+ records, .* [1-9]\d* entries taken out/, "$name: taken out in the end");
		unlike(slurp_file($node->logfile, $from), qr/removed index file|not trusted/, "$name: no file is given up");
		is($node->safe_psql('postgres', $files), $before, "$name: nothing is rebuilt");
		set_faults($node, fail_at => 0);
		$node->restart;    # at_restart counts from there
	}
	all_checked($node, 'in the end');

	# ---- a crash at once after a checkpoint costs nothing ----

	# Whoever has asked for the checkpoint: the kernel is asked now and then.
	my $before = $node->safe_psql('postgres', $files);
	foreach my $i ('CHECKPOINT', 'CREATE DATABASE forced STRATEGY file_copy')
	{
		$node->safe_psql('postgres', 'INSERT INTO o VALUES (8000)');
		$node->safe_psql('postgres', $i);
		crash_and_start($node);
		is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', "checkpoint, crash $i");
		is($node->safe_psql('postgres', $files), $before, "checkpoint, crash $i: nothing is rebuilt");
	}
	$node->stop;
}

done_testing();
