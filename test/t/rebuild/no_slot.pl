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

# ---- one slot for all: the end of each worker is the next one's turn ----
# Cleaners of some databases are due all the time, and come before users' functions.
$node->safe_psql('postgres', 'CREATE INDEX o_e ON o USING pmhash ((k + 1))');
$node->safe_psql('postgres', $_) foreach map { "CREATE DATABASE one_$_ TEMPLATE postgres" } 1 .. 8;
$node->append_conf('postgresql.conf', "max_worker_processes = 3\npmhash.cleaner_naptime = 1");
$node->restart;
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
$node->append_conf('postgresql.conf', "pmhash.cleaner_naptime = 60\n$enough");
$node->restart;

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
