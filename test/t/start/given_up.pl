# A run has to give its pool up, and what it would do to say so fails, one way
# after the other: whatever is left is enough.  And what an undo meets by want of
# something that comes back does not cost an index.

use strict;
use warnings;

use Errno qw(EINVAL EIO);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $apart = 'server and pool directory have not been together all the time since it was made';
my $failed_write = 'the kernel has failed to write something back, or may have';
my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash_indexes';
my $node = new_faulty_server('given_up', <<CONF);
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
bgwriter_lru_maxpages = 0
checkpoint_timeout = 1h
CONF

$node->safe_psql('postgres', invalid_fixture());

# Faults in the launcher, from the n-th call on.
sub faults
{
	my ($calls, $n, $for, $error, $restart, $process) = @_;

	$process //= 'pmhash launcher';
	return set_faults($node, calls => $calls, process => $process, at_restart => $restart,
		error => $error, fail_for => $for, fail_at => $n);
}

# None from the next start on.
sub no_faults
{
	return $node->append_conf('postgresql.conf', 'pmhash_faults.fail_at = 0');
}

# The launcher gives the pool up, and its journal says so; then there are no faults.
# without_hints: the launcher cannot withdraw the witness either, as on a file system
# that knows none, so that nothing else says it.
sub give_pool_up
{
	my $without_hints = shift;
	my $calls = 'syncfs pwrite unlink ftruncate';
	my $from = -s $node->logfile;

	faults($without_hints ? "fcntl $calls" : $calls, 1, 1_000_000, $without_hints ? EINVAL : EIO,
		'off');
	$node->safe_psql('postgres', 'CHECKPOINT');
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
# The control file cannot be written; so the token goes.  If that stays, the
# journal, which is mapped, is spoiled.  Ends: an orderly one, and a crash.
foreach my $way ([ 'control file', 'syncfs pwrite', 0 ],
	[ 'control file, token', 'syncfs pwrite unlink ftruncate', 1 ])
{
	foreach my $end ('shutdown', 'crash')
	{
		my ($name, $calls, $has_token) = @$way;
		my $from;

		$node->restart if $end eq 'crash';
		rebuild_off($node);
		$from = -s $node->logfile;
		faults($calls, 1, 1_000_000, 5, 'off');
		$node->safe_psql('postgres', 'CHECKPOINT');
		$node->wait_for_log(qr/pmhash is disabled: could not write/, $from);
		usleep(300_000);    # what comes after that message
		is(-e token() ? 1 : 0, $has_token, "$name, $end: token");
		unlike(slurp_file($node->logfile, $from), qr/PANIC|can neither/, "$name, $end: log");
		set_faults($node, fail_at => 0);
		# The pool can be written again, and no process does.
		$node->safe_psql('postgres', 'INSERT INTO o VALUES (9000); DELETE FROM o WHERE k = 9000');
		sleep(3);    # naptimes
		is(-e token() ? 1 : 0, $has_token, "$name, $end: token, when all could be written again");
		$end eq 'crash' ? $node->stop('immediate') : $node->stop;
		$node->start;
		stays_invalid($node, $has_token ? $failed_write : $apart, "$name, $end");
		rebuild_on($node);
		all_come_back($node, "$name, $end");
	}
}

# ---- nothing can be written or removed: the inode of the lock file says it ----
foreach my $end ('immediate', 'fast')
{
	my $from = -s $node->logfile;
	my $hint = pack('Q', 0);
	my $session;

	$node->restart;
	rebuild_off($node);
	faults('pwrite fsync ftruncate unlink rename renameat2 mmap', 1, 1_000_000, 5, 'on', '');
	$session = $node->background_psql('postgres', on_error_stop => 0);
	kill('KILL', $session->query_safe('SELECT pg_backend_pid()'));
	eval { $session->quit };
	$node->wait_for_log(qr/pmhash is disabled: could not use file/, $from);
	wait_until_up($node);
	open(my $lock, '<', pool($node) . '/lock') or die $!;
	fcntl($lock, 1035, $hint) or die "F_GET_RW_HINT: $!";
	close($lock);
	is(unpack('Q', $hint), 2, "revoked, $end: hint");
	no_faults();
	$node->stop($end);
	$from = -s $node->logfile;
	$node->start;
	# trust: revoked
	like(slurp_file($node->logfile, $from), qr/not trusted: the server had to give them up/, "revoked, $end: log");
	stays_invalid($node, $apart, "revoked, $end");
	rebuild_on($node);
	all_come_back($node, "revoked, $end");
}

# ---- only the journal says it, and at the end that cannot be looked at ----
foreach my $case ([ 'gone', 0 ], [ 'unreadable', 0 ], [ 'gone', 1 ], [ 'unreadable', 1 ])
{
	my ($way, $without_hints) = @$case;
	my $name = "journal $way at the end" . ($without_hints ? ', without hints' : '');
	my $journal;

	rebuild_off($node);
	give_pool_up($without_hints);
	$journal = pool($node) . '/journal';
	$way eq 'gone' ? rename($journal, "$journal.away") : chmod(0, $journal);
	$node->stop;
	$way eq 'gone' ? rename("$journal.away", $journal) : chmod(0600, $journal);
	$node->start;
	# trust: journal-at-end
	stays_invalid($node, $without_hints ? $apart : $failed_write, $name);
	rebuild_on($node);
	all_come_back($node, $name);
}

# ---- given up; then a backend crashes, and the next life has a launcher ----
{
	rebuild_off($node);
	give_pool_up();
	rebuild_on($node);
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $from = -s $node->logfile;
	kill('KILL', $session->query_safe('SELECT pg_backend_pid()'));
	eval { $session->quit };
	$node->wait_for_log(qr/database system is ready/, $from);
	wait_until_up($node);
	all_come_back($node, 'given up, then a crash in place');
}

# ---- the end of the postmaster: it has no shared memory any more ----
{
	my $from = -s $node->logfile;
	my $hint = pack('Q', 0);

	rebuild_off($node);
	$node->append_conf('postgresql.conf', "pmhash_faults.after = 'syncfs'");
	faults('syncfs pwrite unlink ftruncate', 1, 1_000_000, 5, 'off', '');
	$node->stop;
	unlike(slurp_file($node->logfile, $from), qr/signal|can neither/, 'given up at the end: log');
	like(slurp_file($node->logfile, $from), qr/could not write the files in .* back/, 'given up at the end: why');
	ok(!-e $node->data_dir . '/postmaster.pid', 'given up at the end: the postmaster ends');
	open(my $lock, '<', pool($node) . '/lock') or die $!;
	fcntl($lock, 1035, $hint) or die "F_GET_RW_HINT: $!";
	close($lock);
	is(unpack('Q', $hint), 2, 'given up at the end: hint');
	no_faults();
	$node->append_conf('postgresql.conf', "pmhash_faults.after = ''");
	$node->start;
	stays_invalid($node, $apart, 'given up at the end');
	rebuild_on($node);
	all_come_back($node, 'given up at the end');
}

# ---- a file that the undo cannot look at may be there tomorrow ----
foreach my $case ('directory', 'stat')
{
	my $from = -s $node->logfile;
	my $path = index_file($node, 'o_k');
	my ($directory) = $path =~ m{(.*)/};

	$node->safe_psql('postgres', 'CHECKPOINT');
	sleep(1);
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN; INSERT INTO o SELECT generate_series(6000, 6020)');
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
		faults('stat', 2, 3, 5, 'off');    # the first: is the pool there?
		$node->start;
	}
	$node->wait_for_log(qr/undo journal: .* entries taken out/, $from);
	like(slurp_file($node->logfile, $from), qr/undo journal: \d+ records, .* [1-9]\d* entries taken out/, "unreachable $case: taken out");
	set_faults($node, fail_at => 0);
	is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', "unreachable $case: all valid");
	all_checked($node, "unreachable $case");
	$node->restart;    # the launcher may not have learned the age of postmaster.opts
}

# ---- the undo lacks a descriptor, or memory: for the journal, for a file ----
# A row is lost that has an entry; the launcher fails, a session succeeds.
foreach my $case ([ 'journal', 1, 24 ], [ 'file', 2, 24 ], [ 'file', 2, 12 ], [ 'file', 2, 4 ])
{
	my ($what, $n, $error) = @$case;
	my $name = "undo, $what, error $error";
	my $before = $node->safe_psql('postgres', $files);
	my $from = -s $node->logfile;
	my ($session, $pid);

	$node->safe_psql('postgres', 'CHECKPOINT');
	sleep(1);
	faults('open', $n, 1, $error, 'on');
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

# Whoever says CHECKPOINT has it noted when that returns, however late the launcher is.
my $before = $node->safe_psql('postgres', $files);
foreach my $i (1 .. 3)
{
	my $launcher = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'");

	stop_outside_ask($node, $launcher);
	$node->safe_psql('postgres', "INSERT INTO o VALUES (8000 + $i); CHECKPOINT");
	crash($node);
	$node->start;
	is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', "checkpoint, crash $i");
	is($node->safe_psql('postgres', $files), $before, "checkpoint, crash $i: nothing is rebuilt");
}
$node->stop;
done_testing();
