# The server is killed while it asks the kernel for failed writes, for each file system and file.

use v5.36;

use Fcntl qw(:flock);
use PmhashFaults;
use PmhashInvalid;
use PmhashTest;
use constant { ASKING => 4, WITNESS => 5, OVERLAY => 0x794c7630, NFS => 0x6969, FUSE => 0x65735546 };
use constant { EXT4 => 0xEF53, XFS => 0x58465342, TMPFS => 0x01021994 };

# ======== asked and killed ========

# The kernel says once that it has failed to write something back.  The process that
# learns of it may die before it has written that down; and the pool stays locked.
{
	my $failed_state = 'the kernel has failed to write something back, or may have';
	my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash.indexes';
	my $node = new_faulty_server('asked');
	my $lock = pool($node) . '/lock';

	$node->safe_psql('postgres', invalid_fixture());

	# A test, after a start: the witness is there.  The launcher asks once, which may take long
	# where others write much.
	sub witness_is_back ($name)
	{
		wait_while(sub { witness($node) == ASKING }, 60);
		return is(witness($node), WITNESS, "$name: the witness is back");
	}

	sub faults ($calls, $action, $process, $restart, $at)
	{
		return set_faults($node, calls => $calls, action => $action, process => $process,
			at_restart => $restart, error => 5, fail_for => 1, fail_at => $at);
	}

	# ---- without faults the witness comes back, and a crash costs nothing ----
	my $before = $node->safe_psql('postgres', $files);
	checkpoint_and_ask($node);
	sleep(1);
	is(witness($node), WITNESS, 'asked: the witness is back');
	$node->stop('immediate');
	$node->start;
	is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', 'asked, crash');
	is($node->safe_psql('postgres', $files), $before, 'asked, crash: nothing is rebuilt');

	# event: `kill -9` (or an immediate shutdown that has to kill after 5 seconds) while the server asks the kernel whether everything was written back (at a checkpoint, at the end of a shutdown)
	# the launcher, and with it the whole server
	$node->append_conf('postgresql.conf', 'restart_after_crash = off');
	rebuild_off($node);
	faults('syncfs', 'kill', 'pmhash launcher', 'off', 1);
	my $from = -s $node->logfile;
	checkpoint_and_ask($node);
	$node->wait_for_log(qr/database system is shut down/, $from);
	is(witness($node), ASKING, 'killed while it asks: the witness is away');
	$node->{_pid} = undef;
	faults('syncfs', 'fail', '', 'off', 0);
	$node->append_conf('postgresql.conf', 'restart_after_crash = on');
	# trust: asking
	like(log_of_start($node), qr/not trusted: the server had to give them up, or went down while it asked whether all had been written back/,
		'killed while it asks: log');
	invalid_then_back($node, $failed_state, 'killed while it asks');

	# Before it asks, it has all written, which is what takes long: killed then, nothing is lost.
	$before = $node->safe_psql('postgres', $files);
	$node->append_conf('postgresql.conf', 'restart_after_crash = off');
	faults('sync_file_range', 'kill', 'pmhash launcher', 'off', 1);
	$from = -s $node->logfile;
	checkpoint_and_ask($node);
	$node->wait_for_log(qr/database system is shut down/, $from);
	is(witness($node), WITNESS, 'killed while all is written: the witness is there');
	$node->{_pid} = undef;
	faults('syncfs', 'fail', '', 'off', 0);
	start_with($node, 'restart_after_crash = on');
	is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', 'killed while all is written');
	is($node->safe_psql('postgres', $files), $before, 'killed while all is written: nothing is rebuilt');

	# the witness is away, and no process is known to have asked
	rebuild_off($node);
	set_witness($node, 0);
	like(restart_in_place($node), qr/the operating system went down, or the file system of the pool was unmounted/, 'in place, no witness: log');
	all_rebuilt($node, 'in place, no witness');

	# ---- a start whose own syncfs reports a failed write, and that dies before it asks ----
	$node->append_conf('postgresql.conf', "fsync = on\nrecovery_init_sync_method = syncfs");
	$before = $node->safe_psql('postgres', $files);
	crash_and_start($node);
	is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', 'syncfs at start, nothing has failed');
	is($node->safe_psql('postgres', $files), $before, 'syncfs at start, nothing has failed: nothing is rebuilt');
	witness_is_back('syncfs at start');
	rebuild_off($node);
	crash($node);
	faults('syncfs', 'fail', '', 'off', 1);
	like(die_in_start($node), qr/not trusted: the file system has failed to write something back/,
		'syncfs at start, a failed write: log');
	faults('syncfs', 'fail', '', 'off', 0);
	$node->start;
	# trust: asked-before-start
	stays_invalid($node, 'a start of the server went down before it used the pool',
		'syncfs at start, a failed write');
	all_rebuilt($node, 'syncfs at start, a failed write');
	crash($node);
	faults('syncfs', 'kill', '', 'off', 1);
	ok(!$node->start(fail_ok => 1), 'syncfs at start, killed in it');
	unlink($node->data_dir . '/postmaster.pid');
	is(witness($node), ASKING, 'syncfs at start, killed in it: the witness is away');
	faults('syncfs', 'fail', '', 'off', 0);
	start_without_rebuilds($node);
	invalid_then_back($node, $failed_state, 'syncfs at start, killed in it');
	reload_with($node, "fsync = off\nrecovery_init_sync_method = fsync");

	# A checkpoint that the server makes by itself.
	sub server_checkpoint
	{
		my $redo = $node->safe_psql('postgres', 'SELECT redo_lsn FROM pg_control_checkpoint()');

		$node->safe_psql('postgres', 'INSERT INTO o VALUES (1); SELECT pg_switch_wal()') foreach 1 .. 3;
		$node->poll_query_until('postgres', "SELECT redo_lsn <> '$redo' FROM pg_control_checkpoint()") or die 'no checkpoint';
		return;
	}

	# ---- checkpoints come one after the other, and asking takes long: it is not asked as often ----
	{
		my $first = -s $node->logfile;

		$node->append_conf('postgresql.conf', "fsync = off\nmax_wal_size = 2MB\nmin_wal_size = 2MB");
		faults('syncfs', 'slow', 'pmhash launcher', 'off', 1);
		reload_with($node, 'pmhash_faults.fail_for = 1000');
		checkpoint_and_ask($node);
		$node->wait_for_log(qr/pmhash_faults: call 1 of syncfs/, $first);
		foreach (1 .. 4)
		{
			server_checkpoint();
			usleep(1_000_000);
		}
		$node->safe_psql('postgres', 'CHECKPOINT');
		usleep(1_000_000);
		is(scalar(() = slurp_file($node->logfile, $first) =~ /pmhash_faults: call \d+ of syncfs/g), 1, 'five checkpoints: it is not asked again');
		hours_pass($node);
		ok($node->wait_for_log(qr/(?:pmhash_faults: call \d+ of syncfs.*){2}/s, $first), 'hours later it is');
		witness_is_back('slow questions');
		$node->append_conf('postgresql.conf', 'pmhash_faults.fail_for = 1');
		faults('syncfs', 'fail', '', 'off', 0);
	}

	# ... but after an hour in any case, here 3.6 seconds: 2,000 times as long would be 23 days
	{
		my $first;

		$node->stop;
		faults('syncfs', 'slow', 'pmhash launcher', 'off', 1);
		$node->append_conf('postgresql.conf', 'pmhash_faults.fail_for = 1000');
		{
			local $ENV{LD_PRELOAD} = preloadable('fast_clock');
			$node->start;
		}
		$node->safe_psql('postgres', 'CHECKPOINT');
		usleep(3_000_000);
		$first = -s $node->logfile;
		foreach (1 .. 20)
		{
			server_checkpoint();
			usleep(500_000);
			last if slurp_file($node->logfile, $first) =~ /pmhash_faults: call \d+ of syncfs/;
		}
		like(slurp_file($node->logfile, $first), qr/pmhash_faults: call \d+ of syncfs/, 'slow questions: asked each hour');
		$node->append_conf('postgresql.conf', 'pmhash_faults.fail_for = 1');
		faults('syncfs', 'fail', '', 'off', 0);
		$node->restart;
		all_come_back($node, 'slow questions');
	}

	# the launcher has failed while it asked, and a new one comes
	{
		my $from = -s $node->logfile;

		rebuild_off($node);
		set_witness($node, ASKING);
		checkpoint_and_ask($node);
		ok($node->wait_for_log(qr/not trusted: a process failed while it asked for failed writes/, $from), 'failed while it asked: log');
		stays_invalid($node, $failed_state, 'failed while it asked');
		is(witness($node), WITNESS, 'failed while it asked: the witness is back');
		all_rebuilt($node, 'failed while it asked');
	}

	# the postmaster, at its end
	rebuild_off($node);
	faults('syncfs', 'kill', '', 'off', 1);
	$node->stop('fast', fail_ok => 1);
	is(witness($node), ASKING, 'killed at its end: the witness is away');
	unlink($node->data_dir . '/postmaster.pid');
	$node->{_pid} = undef;
	faults('syncfs', 'fail', '', 'off', 0);
	$node->start;
	invalid_then_back($node, $failed_state, 'killed at its end');

	# ---- the pool is refused: it stays locked ----
	$node->stop;
	chmod(0500, pool($node));
	$node->start;
	fails_like($node, 'REINDEX INDEX t_k', qr/is disabled/, 'read-only pool');
	{
		open(my $file, '<', $lock) or die "$lock: $!";
		ok(!flock($file, LOCK_EX | LOCK_NB), 'the pool stays locked while it cannot be used');
	}
	chmod(0700, pool($node));
	restart_in_place($node);
	all_come_back($node, 'restart in place');
	$node->stop;
}

# ======== each file asked ========

# Where syncfs() is not known to report failed writes (overlayfs, another file system, one
# that cannot be found out), each file of the pool is asked by itself.
{
	my $failed_state = 'the kernel has failed to write something back, or may have';
	my $not_written = qr/index files in .* are not trusted: the kernel has failed to write file ".*" back: Input/;
	my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash.indexes';
	my $node = new_faulty_server('each');

	$node->safe_psql('postgres', invalid_fixture());

	# On this file system these calls fail: of the launcher once it asks, if not said otherwise.
	sub faults_of_each_file_asked ($file_system, $calls, %other)
	{
		return set_faults($node, file_system => $file_system, calls => $calls, error => 5, after => 'fstatfs',
			process => 'pmhash launcher', action => 'fail', fail_for => 1, fail_at => 1, %other);
	}

	sub no_faults
	{
		return faults_of_each_file_asked($_[0], 'fsync', fail_at => 0);
	}

	# A checkpoint, after which the kernel is asked.  Returns what is said from then on, once
	# it matches, or it is late.
	sub checkpoint
	{
		my ($wanted) = @_;
		my $from = -s $node->logfile;

		checkpoint_and_ask($node);
		wait_while(sub { slurp_file($node->logfile, $from) !~ $wanted }, 20);
		return slurp_file($node->logfile, $from);
	}

	# ---- where it is known to, no file is asked; else the first thing is a file ----
	foreach my $case ([ 'ext4', EXT4, 'syncfs' ], [ 'xfs', XFS, 'syncfs' ], [ 'tmpfs', TMPFS, 'syncfs' ],
		[ 'NFS', NFS, 'fsync' ], [ 'FUSE', FUSE, 'fsync' ], [ 'overlayfs', OVERLAY, 'fsync' ])
	{
		my ($name, $file_system, $call) = @$case;

		faults_of_each_file_asked($file_system, 'fsync syncfs', action => 'skip');
		like(checkpoint(qr/call 1 of fsync syncfs/), qr/call 1 of fsync syncfs \($call\)/, "$name: $call");
	}

	# All files of the pool are asked, the journal among them: each once, and then syncfs is.
	my @all = grep { -f } glob(pool($node) . '/*'), glob(pool($node) . '/*/*.pmh');
	faults_of_each_file_asked(OVERLAY, 'fsync syncfs', action => 'skip', fail_for => 1000);
	my $said = checkpoint(qr/\(syncfs\)/);
	my ($asked) = $said =~ /^(.*?)\(syncfs\)/s;
	is(scalar(() = ($asked // '') =~ /\(fsync\)/g), scalar(@all), 'each file is asked');
	cmp_ok(scalar(grep { m{/journal$} } @all), '>', 0, 'there is a journal');
	sleep(1);
	is(witness($node), WITNESS, 'asked: the witness is back');

	# event: the same on a file system whose `syncfs()` does not report it, such as overlayfs
	# ---- noticed with the next checkpoint: said once, whatever the number of files ----
	my $before = $node->safe_psql('postgres', $files);
	rebuild_off($node);
	faults_of_each_file_asked(OVERLAY, 'fsync', fail_for => scalar(@all));
	$said = checkpoint($not_written);
	no_faults(OVERLAY);
	checkpoint(qr/checkpoint complete/);
	sleep(1);
	is(scalar(() = slurp_file($node->logfile) =~ /$not_written/g), 1, 'all files have failed: said once');

	# trust: overlay
	stays_invalid($node, $failed_state, 'failed write');
	is(witness($node), WITNESS, 'failed write: the witness is back');
	no_faults(OVERLAY);
	crash_and_start($node);
	stays_invalid($node, $failed_state, 'failed write, crash');
	all_rebuilt($node, 'failed write');
	isnt($node->safe_psql('postgres', $files), $before, 'the files are new ones');

	# ---- what file system it is cannot be found out ----
	rebuild_off($node);
	faults_of_each_file_asked(0, 'fstatfs fsync', fail_for => 2);
	like(checkpoint($not_written), $not_written, 'not known: log');
	# trust: unknown-file-system
	stays_invalid($node, $failed_state, 'not known');
	rebuild_on($node);
	no_faults(OVERLAY);
	all_come_back($node, 'not known');

	# ---- at a clean shutdown ----
	rebuild_off($node);
	faults_of_each_file_asked(OVERLAY, 'fsync', process => '');
	my $from = -s $node->logfile;
	$node->stop;
	like(slurp_file($node->logfile, $from), qr/could not write the files in .* back: Input/, 'shutdown: log');
	no_faults(OVERLAY);
	$node->start;
	# trust: shutdown-overlay
	invalid_then_back($node, $failed_state, 'shutdown');

	# ---- the process that asks is killed, and has taken the answer along; the postmaster is still there ----
	rebuild_off($node);
	set_witness($node, ASKING);
	like(restart_in_place($node), qr/not trusted: the server had to give them up, or went down while it asked whether all had been written back/,
		'killed while it asks, in place: log');
	# trust: asked-once
	invalid_then_back($node, $failed_state, 'killed while it asks, in place');

	# ---- between two files the launcher takes part in what all processes must ----
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$before = $node->safe_psql('postgres', $files);
	faults_of_each_file_asked(OVERLAY, 'fsync', action => 'slow', fail_for => 1000);
	$from = -s $node->logfile;
	checkpoint_and_ask($node);
	$node->wait_for_log(qr/call 1 of fsync/, $from);
	$node->safe_psql('postgres', 'DROP DATABASE other');
	my @calls = slurp_file($node->logfile, $from) =~ /call \d+ of fsync/g;
	cmp_ok(scalar(@calls), '<', scalar(@all), 'DROP DATABASE does not wait until all files are asked');
	no_faults(OVERLAY);
	$node->restart;
	is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', 'shutdown while it asks');
	is($node->safe_psql('postgres', $files), $before, 'shutdown while it asks: nothing is rebuilt');
	$node->stop;
}

done_testing();
