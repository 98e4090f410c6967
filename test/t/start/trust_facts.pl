# Facts of the control file and of the journal, each made false by itself, that
# no other test has alone (test/TRUST.md).

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $apart = 'server and pool directory have not been together all the time since it was made';
my $node = new_server('facts');
my $pool = pool($node);
my $pg_control = $node->data_dir . '/global/pg_control';

$node->start;
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());

# The server is down, and something has been changed: it says so, and is right.
sub doubted
{
	my ($log, $name) = @_;
	my $from = -s $node->logfile;

	rebuild_off($node);
	$node->start;
	$node->wait_for_log(qr/are not trusted: $log/, $from);
	stays_invalid($node, $apart, $name);
	rebuild_on($node);
	all_come_back($node, $name);
	return;
}

sub journal
{
	return "$pool/journal";
}

# trust: timeline
crash($node);
is(ord(substr(slurp_file("$pool/control"), 76, 4)), 1, 'timeline 1 stands there');
patch_control($pool, 76, pack('V', 7));
doubted('the server is on another timeline', 'another timeline');

# trust: flushed
crash($node);
patch_file(journal(), 24, pack('Q', 2**47));
doubted('WAL that had been flushed was not replayed', 'flushed WAL is missing');

# trust: clean-checkpoint
# the token of the clean shutdown could not be written, so that of the run counts
my $token = $node->data_dir . '/pmhash.nonce';
unlink("$token.tmp");
mkdir("$token.tmp") or die $!;
$node->stop;
rmdir("$token.tmp") or die $!;
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$node->start;
$node->stop;
is(system('pg_resetwal', '-f', $node->data_dir), 0, 'pg_resetwal');
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");
doubted('the server has run without the pool since it was shut down', 'another shutdown');
$node->stop;
done_testing();
