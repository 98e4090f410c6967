# The kernel says once that it has failed to write something back.  The process that
# learns of it may die before it has written that down; and the pool stays locked.

use strict;
use warnings;

use Fcntl qw(:flock);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $failed_state = 'the kernel has failed to write something back, or may have';
my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash_indexes';
my $node = new_faulty_server('asked');
my $lock = pool($node) . '/lock';

use constant { ASKING => 4, WITNESS => 5 };

$node->safe_psql('postgres', invalid_fixture());

# A test, after a start: the witness is there.  The launcher asks once, which may take long
# where others write much.
sub witness_is_back
{
	my ($name) = @_;

	for (my $i = 0; $i < 6000 && witness($node) == ASKING; $i++)
	{
		usleep(10_000);
	}
	return is(witness($node), WITNESS, "$name: the witness is back");
}

sub faults
{
	my ($calls, $action, $process, $restart, $at) = @_;

	return set_faults($node, calls => $calls, action => $action, process => $process,
		at_restart => $restart, error => 5, fail_for => 1, fail_at => $at);
}

# ---- without faults the witness comes back, and a crash costs nothing ----
my $before = $node->safe_psql('postgres', $files);
$node->safe_psql('postgres', 'CHECKPOINT');
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
$node->psql('postgres', 'CHECKPOINT');
$node->wait_for_log(qr/database system is shut down/, $from);
is(witness($node), ASKING, 'killed while it asks: the witness is away');
$node->{_pid} = undef;
faults('syncfs', 'fail', '', 'off', 0);
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$from = -s $node->logfile;
$node->start;
# trust: asking
like(slurp_file($node->logfile, $from), qr/not trusted: the server went down while it asked whether all had been written back/,
	'killed while it asks: log');
stays_invalid($node, $failed_state, 'killed while it asks');
rebuild_on($node);
all_come_back($node, 'killed while it asks');

# Before it asks, it has all written, which is what takes long: killed then, nothing is lost.
$before = $node->safe_psql('postgres', $files);
$node->append_conf('postgresql.conf', 'restart_after_crash = off');
faults('sync_file_range', 'kill', 'pmhash launcher', 'off', 1);
$from = -s $node->logfile;
$node->psql('postgres', 'CHECKPOINT');
$node->wait_for_log(qr/database system is shut down/, $from);
is(witness($node), WITNESS, 'killed while all is written: the witness is there');
$node->{_pid} = undef;
faults('syncfs', 'fail', '', 'off', 0);
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->start;
is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', 'killed while all is written');
is($node->safe_psql('postgres', $files), $before, 'killed while all is written: nothing is rebuilt');

# the same as above, and the postmaster is still there: it asks once more
$before = $node->safe_psql('postgres', $files);
set_witness($node, ASKING);
restart_in_place($node);
is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', 'killed while it asks, in place, nothing has failed');
is($node->safe_psql('postgres', $files), $before, 'killed while it asks, in place: nothing is rebuilt');
witness_is_back('killed while it asks, in place');
rebuild_off($node);
faults('syncfs', 'fail', '', 'on', 1);
set_witness($node, ASKING);
like(restart_in_place($node), qr/not trusted: the file system has failed to write something back/,
	'killed while it asks, in place: log');
faults('syncfs', 'fail', '', 'off', 0);
# trust: asked-again
stays_invalid($node, $failed_state, 'killed while it asks, in place');
rebuild_on($node);
all_come_back($node, 'killed while it asks, in place');

# ---- a start whose own syncfs reports a failed write, and that dies before it asks ----
$node->append_conf('postgresql.conf', "fsync = on\nrecovery_init_sync_method = syncfs");
$before = $node->safe_psql('postgres', $files);
crash($node);
$node->start;
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
rebuild_on($node);
all_come_back($node, 'syncfs at start, a failed write');
crash($node);
faults('syncfs', 'kill', '', 'off', 1);
ok(!$node->start(fail_ok => 1), 'syncfs at start, killed in it');
unlink($node->data_dir . '/postmaster.pid');
is(witness($node), ASKING, 'syncfs at start, killed in it: the witness is away');
faults('syncfs', 'fail', '', 'off', 0);
rebuild_off($node);
$node->start;
stays_invalid($node, $failed_state, 'syncfs at start, killed in it');
rebuild_on($node);
all_come_back($node, 'syncfs at start, killed in it');
$node->append_conf('postgresql.conf', "fsync = off\nrecovery_init_sync_method = fsync");
$node->reload;

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

	$node->append_conf('postgresql.conf', "fsync = off\nmax_wal_size = 32MB\nmin_wal_size = 32MB");
	faults('syncfs', 'slow', 'pmhash launcher', 'off', 1);
	$node->append_conf('postgresql.conf', 'pmhash_faults.fail_for = 1000');
	$node->reload;
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->wait_for_log(qr/pmhash_faults: call 1 of syncfs/, $first);
	foreach (1 .. 4)
	{
		server_checkpoint();
		usleep(1_000_000);
	}
	is(scalar(() = slurp_file($node->logfile, $first) =~ /pmhash_faults: call \d+ of syncfs/g), 1, 'four checkpoints: it is not asked again');
	$node->safe_psql('postgres', 'CHECKPOINT');
	ok($node->wait_for_log(qr/pmhash_faults: call 2 of syncfs/, $first), 'a CHECKPOINT of a user: it is');
	# (and while it is asked, one more CHECKPOINT is not forgotten)
	$node->safe_psql('postgres', 'CHECKPOINT');
	ok($node->wait_for_log(qr/pmhash_faults: call 3 of syncfs/, $first), 'a CHECKPOINT during the question: once more');
	witness_is_back('slow questions');
	$node->append_conf('postgresql.conf', 'pmhash_faults.fail_for = 1');
	faults('syncfs', 'fail', '', 'off', 0);
}

# ... but after five minutes in any case, here 0.3 seconds: 1,000 times as long would be 17 minutes
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
	like(slurp_file($node->logfile, $first), qr/pmhash_faults: call \d+ of syncfs/, 'slow questions: asked every five minutes');
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
	$node->safe_psql('postgres', 'CHECKPOINT');
	ok($node->wait_for_log(qr/not trusted: a process failed while it asked for failed writes/, $from), 'failed while it asked: log');
	stays_invalid($node, $failed_state, 'failed while it asked');
	is(witness($node), WITNESS, 'failed while it asked: the witness is back');
	rebuild_on($node);
	all_come_back($node, 'failed while it asked');
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
stays_invalid($node, $failed_state, 'killed at its end');
rebuild_on($node);
all_come_back($node, 'killed at its end');

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
done_testing();
