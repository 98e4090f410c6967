# Where syncfs() is not known to report failed writes (overlayfs, another file system, one
# that cannot be found out), each file of the pool is asked by itself.
# test/lib/overlay.sh, for root, has a real overlay on a device that fails.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use constant { ASKING => 4, WITNESS => 5, OVERLAY => 0x794c7630, NFS => 0x6969, FUSE => 0x65735546 };
use constant { EXT4 => 0xEF53, XFS => 0x58465342, TMPFS => 0x01021994 };

my $failed_state = 'the kernel has failed to write something back, or may have';
my $not_written = qr/index files in .* are not trusted: the kernel has failed to write file ".*" back: Input/;
my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash_indexes';
my $node = new_faulty_server('each');

$node->safe_psql('postgres', invalid_fixture());

# On this file system these calls fail: of the launcher once it asks, if not said otherwise.
sub faults
{
	my ($file_system, $calls, %other) = @_;

	return set_faults($node, file_system => $file_system, calls => $calls, error => 5, after => 'fstatfs',
		process => 'pmhash launcher', action => 'fail', fail_for => 1, fail_at => 1, %other);
}

sub no_faults
{
	return faults($_[0], 'fsync', fail_at => 0);
}

# A checkpoint, after which the kernel is asked.  Returns what is said from then on, once
# it matches, or it is late.
sub checkpoint
{
	my ($wanted) = @_;
	my $from = -s $node->logfile;

	$node->safe_psql('postgres', 'CHECKPOINT');
	for (my $i = 0; $i < 200 && slurp_file($node->logfile, $from) !~ $wanted; $i++)
	{
		usleep(100_000);
	}
	return slurp_file($node->logfile, $from);
}

# ---- where it is known to, no file is asked; else the first thing is a file ----
foreach my $case ([ 'ext4', EXT4, 'syncfs' ], [ 'xfs', XFS, 'syncfs' ], [ 'tmpfs', TMPFS, 'syncfs' ],
	[ 'NFS', NFS, 'fsync' ], [ 'FUSE', FUSE, 'fsync' ], [ 'overlayfs', OVERLAY, 'fsync' ])
{
	my ($name, $file_system, $call) = @$case;

	faults($file_system, 'fsync syncfs', action => 'skip');
	like(checkpoint(qr/call 1 of fsync syncfs/), qr/call 1 of fsync syncfs \($call\)/, "$name: $call");
}

# All files of the pool are asked, the journal among them: each once, and then syncfs is.
my @all = grep { -f } glob(pool($node) . '/*'), glob(pool($node) . '/*/*.pmh');
faults(OVERLAY, 'fsync syncfs', action => 'skip', fail_for => 1000);
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
faults(OVERLAY, 'fsync', fail_for => scalar(@all));
$said = checkpoint($not_written);
checkpoint(qr/checkpoint complete/);
sleep(1);
is(scalar(() = slurp_file($node->logfile) =~ /$not_written/g), 1, 'all files have failed: said once');

# trust: overlay
stays_invalid($node, $failed_state, 'failed write');
is(witness($node), WITNESS, 'failed write: the witness is back');
no_faults(OVERLAY);
crash($node);
$node->start;
stays_invalid($node, $failed_state, 'failed write, crash');
rebuild_on($node);
all_come_back($node, 'failed write');
isnt($node->safe_psql('postgres', $files), $before, 'the files are new ones');

# ---- what file system it is cannot be found out ----
rebuild_off($node);
faults(0, 'fstatfs fsync', fail_for => 2);
like(checkpoint($not_written), $not_written, 'not known: log');
# trust: unknown-file-system
stays_invalid($node, $failed_state, 'not known');
rebuild_on($node);
no_faults(OVERLAY);
all_come_back($node, 'not known');

# ---- at a clean shutdown ----
rebuild_off($node);
faults(OVERLAY, 'fsync', process => '');
my $from = -s $node->logfile;
$node->stop;
like(slurp_file($node->logfile, $from), qr/could not write the files in .* back: Input/, 'shutdown: log');
no_faults(OVERLAY);
$node->start;
# trust: shutdown-overlay
stays_invalid($node, $failed_state, 'shutdown');
rebuild_on($node);
all_come_back($node, 'shutdown');

# ---- the process that asks is killed, and has taken the answer along ----
rebuild_off($node);
$node->append_conf('postgresql.conf', 'restart_after_crash = off');
faults(OVERLAY, 'fsync', action => 'kill');
$from = -s $node->logfile;
$node->psql('postgres', 'CHECKPOINT');
$node->wait_for_log(qr/database system is shut down/, $from);
is(witness($node), ASKING, 'killed while it asks: the witness is away');
$node->{_pid} = undef;
no_faults(OVERLAY);
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->start;
stays_invalid($node, $failed_state, 'killed while it asks');
rebuild_on($node);
all_come_back($node, 'killed while it asks');

# the same, and the postmaster is still there: it cannot ask once more
rebuild_off($node);
set_witness($node, ASKING);
like(restart_in_place($node), qr/not trusted: a process died while it asked whether all had been written back/,
	'killed while it asks, in place: log');
# trust: asked-once
stays_invalid($node, $failed_state, 'killed while it asks, in place');
rebuild_on($node);
all_come_back($node, 'killed while it asks, in place');

# syncfs is believed, but does not speak for a file on another device: nothing is known to
# have failed.
SKIP:
{
	my $elsewhere = "/dev/shm/pmhash_134.$$";
	my $link = pool($node) . '/elsewhere';
	my $said;

	skip('no other file system', 2)
	  if !eval { append_to_file($elsewhere, 'x'); 1 } || (stat $elsewhere)[0] == (stat pool($node))[0];
	rebuild_off($node);
	no_faults(EXT4);
	symlink($elsewhere, $link) or die $!;
	set_witness($node, ASKING);
	$said = restart_in_place($node);
	like($said, qr/not trusted: a process died while it asked whether all had been written back/, 'another device: log');
	# the witness is away, and no process is known to have asked
	set_witness($node, 0);
	$said = restart_in_place($node);
	like($said, qr/not trusted: it is not known whether all has been written back/, 'another device, no witness: log');
	unlink($link, $elsewhere);
	no_faults(OVERLAY);
	rebuild_on($node);
	all_come_back($node, 'another device');
}

# ---- between two files the launcher takes part in what all processes must ----
$node->safe_psql('postgres', 'CREATE DATABASE other');
$before = $node->safe_psql('postgres', $files);
faults(OVERLAY, 'fsync', action => 'slow', fail_for => 1000);
$from = -s $node->logfile;
$node->safe_psql('postgres', 'CHECKPOINT');
$node->wait_for_log(qr/call 1 of fsync/, $from);
$node->safe_psql('postgres', 'DROP DATABASE other');
my @calls = slurp_file($node->logfile, $from) =~ /call \d+ of fsync/g;
cmp_ok(scalar(@calls), '<', scalar(@all), 'DROP DATABASE does not wait until all files are asked');
no_faults(OVERLAY);
$node->restart;
is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', 'shutdown while it asks');
is($node->safe_psql('postgres', $files), $before, 'shutdown while it asks: nothing is rebuilt');
$node->stop;
done_testing();
