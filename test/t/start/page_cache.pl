# Is what the last run has stored still in the page cache?  The id of the boot does not
# tell: the file system may have been unmounted in between, or lost its device, or been
# put back as a snapshot; and a container may get another id with each start.  What tells is
# a hint in the lock file's inode, which only the kernel's memory has.  Losing an inode needs root; so the hint is
# taken away here, which is all that the server could see of it.
# (test/lib/fs_shutdown.sh, for root, does it in earnest.)

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $F_GET_RW_HINT = 1035;
my $F_SET_RW_HINT = 1036;
my $lost = 'it was not written back, and what was in the page cache may be lost';
my $node = new_server('cache', "wal_writer_delay = 10s\nwal_writer_flush_after = 0\n");
my $pool = pool($node);

$node->start;
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());
rebuild_off($node);

sub hint
{
	my ($set) = @_;
	my $value = pack('Q', $set // 0);

	open(my $lock, '<', "$pool/lock") or die $!;
	fcntl($lock, defined $set ? $F_SET_RW_HINT : $F_GET_RW_HINT, $value) or die "fcntl: $!";
	close($lock);
	return unpack('Q', $value);
}

sub change
{
	my ($n) = @_;

	$node->safe_psql('postgres', "INSERT INTO t SELECT i % 3000, i FROM generate_series($n, $n + 500) i");
	return;
}

sub states
{
	return $node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash_indexes');
}

sub back_again
{
	my ($name) = @_;

	rebuild_on($node);
	all_come_back($node, $name);
	rebuild_off($node);
	return;
}

isnt(hint(), 0, 'the witness is there while the server runs');

# ---- all processes die: the inode stays ----
change(10_000);
crash($node);
isnt(hint(), 0, 'and when all are dead');
$node->start;
is(states(), 'valid', 'killed: kept');
back_again('killed');

# event: killed, and the pool's file system is unmounted and mounted again, or shut down by the kernel, before the start
change(20_000);
crash($node);
hint(0);
my $from = -s $node->logfile;
$node->start;
# trust: witness
like(slurp_file($node->logfile, $from), qr/the file system of the pool was unmounted, without a clean shutdown/, 'unmounted: log');
stays_invalid($node, $lost, 'unmounted');
isnt(hint(), 0, 'unmounted: the new run has its witness');
back_again('unmounted');

# event: clean shutdown, the pool's file system is unmounted and mounted again
change(30_000);
$node->stop;
hint(0);
$node->start;
is(states(), 'valid', 'unmounted after a clean shutdown: kept');

# event: the lock file is replaced after a crash
change(40_000);
crash($node);
copy("$pool/lock", "$pool/lock.copy") or die $!;
rename("$pool/lock.copy", "$pool/lock") or die $!;
$node->start;
# trust: lock-identity
like(states(), qr/^invalid/, 'the lock file is a copy: invalid');
back_again('the lock file is a copy');

# ---- a start that dies before it is done vouches for nothing ----
change(50_000);
crash($node);
hint(0);
die_in_start($node);
$node->start;
stays_invalid($node, 'a start of the server went down before it used the pool', 'unmounted, a start died');
back_again('unmounted, a start died');

# event: killed, and the container is started again with a boot id of its own
{
	local $ENV{LD_PRELOAD} = preloadable('other_boot_id');

	$node->restart;
	change(60_000);
	crash($node);
	$from = -s $node->logfile;
	$node->start;
	unlike(slurp_file($node->logfile, $from), qr/not trusted|went down/, 'another boot id: log');
	is(states(), 'valid', 'another boot id: kept');
	back_again('another boot id');
}
$node->stop;
done_testing();
