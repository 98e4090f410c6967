# No slot is free for the workers that rebuild and build indexes: the error is one to
# try again (40001) only as long as that will help, and the views say what is missing.

use strict;
use warnings;

use File::Path qw(rmtree);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $enough = "max_worker_processes = 16\n";
my $node = new_primary('slots', $enough);
my $pool = pool($node);
$node->safe_psql('postgres', 'DROP TABLE t');
$node->safe_psql('postgres', invalid_fixture());

sub sqlstate_of
{
	my ($server, $sql) = @_;
	my (undef, undef, $stderr) = $server->psql('postgres', "\\set VERBOSITY verbose\n$sql");

	return $stderr =~ /ERROR:  (\w{5}): / ? $1 : "none: $stderr";
}

# ---- "try again" only if there is a worker to rebuild it ----
# (the server's own logical replication launcher takes one, ours the other one)
my $by_hand = qr/HINT:  No background worker of pmhash can run to rebuild it \(see max_worker_processes\); REINDEX INDEX/;
foreach my $slots (1, 2)
{
	my $insert = 'INSERT INTO ex VALUES (-1)';

	$node->append_conf('postgresql.conf', "max_worker_processes = $slots\nmax_parallel_workers = 0");
	$node->stop;
	unlink(grep { -f } glob("$pool/*/*.pmh"));
	$node->start;
	is(sqlstate_of($node, $insert), '40001', 'no slot, but for a moment so far') if $slots == 2;
	if ($slots == 2)
	{
		my $deadline = time + 60;

		sleep 1 while sqlstate_of($node, $insert) eq '40001' && time < $deadline;
	}
	is(sqlstate_of($node, $insert), '55000', "$slots slots: not to be tried again");
	fails_like($node, $insert, $by_hand, "$slots slots");
}
$node->append_conf('postgresql.conf', $enough);
$node->restart;
all_come_back($node, 'with slots');

# ---- a standby ----
my $standby = new_standby($node, 'slots_standby');
my $standbys = pool($standby);
wait_for_state($standby, 'ex_k', qr/^valid$/, 'the standby has its files');
unlink(index_file($standby, 'ex_k')) or die;
is(standby_state($standby, 'ex_k'), 'invalid: it does not exist', 'a file is gone on a standby that has its launcher');
$standby->stop;
# no slot but that of core's launcher (a standby needs as many as its primary)
$node->append_conf('postgresql.conf', 'max_worker_processes = 1');
$node->restart;
$standby->start;
caught_up($node, $standby);
$standby->stop;
rmtree($standbys);
$standby->append_conf('postgresql.conf', "max_worker_processes = 1\nmax_parallel_workers = 0");
$standby->start;
wait_for_state($standby, 'ex_k', qr/^to be built; no pmhash launcher is running \(see max_worker_processes\)$/,
	'a standby without a slot for its launcher');
$standby->stop;
$node->stop;
done_testing();
