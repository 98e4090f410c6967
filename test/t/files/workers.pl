# The background workers in unusual moments: the launcher at a shutdown and
# when it is terminated; the cleaner in a database with a damaged stub page.

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('workers');
$node->start;
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());

# what has been logged since a place in the log
sub logged
{
	my ($from) = @_;
	return substr(slurp_file($node->logfile), $from);
}

my $launcher_pid = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'";
my $launcher_runs = "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'";

# ---- shutdown ----
foreach my $mode ('fast', 'smart')
{
	ok($node->poll_query_until('postgres', $launcher_runs), "launcher runs before $mode shutdown");
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type ~ 'pmhash (rebuilder|cleaner)'");
	my $from = -s $node->logfile;
	$node->stop($mode);
	unlike(logged($from), qr/pmhash launcher/, "$mode shutdown: no word of the launcher");
	$node->start;
}

# ---- terminated by hand: it comes again, and does its work ----
ok($node->poll_query_until('postgres', $launcher_runs), 'launcher runs');
my $old = $node->safe_psql('postgres', $launcher_pid);
$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM ($launcher_pid) l WHERE pid <> $old"),
	'a terminated launcher is started again');

# ---- damaged stub pages ----
rebuild_off($node);
my @damage = (
	[ 'wrong magic number', 't_k', 24, "\xff" x 4 ],
	[ 'damaged page header', 'ex_k', 8, "\xff" x 12 ],
	[ 'page of zeroes', 'o_k', 0, "\0" x 8192 ]);
my %file;
my $from;
foreach my $case (@damage)
{
	my ($name, $index, $offset, $bytes) = @$case;
	my $stub = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$index')");

	$file{$index} = index_file($node, $index);
	$node->stop;
	patch_file($stub, $offset, $bytes);
	$from = -s $node->logfile;
	$node->start;
}
wait_for_files(pool($node), 4, 'files before');

# what surely belongs to another index is removed, several sweeps long
my $kept = index_file($node, 't_v');
$node->safe_psql('postgres', 'REINDEX INDEX t_v');
wait_for_files(pool($node), 4, 'REINDEX beside damaged stubs');
ok(!-e $kept, 'the file of the reindexed index is gone');
$node->safe_psql('postgres', 'TRUNCATE t; INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i');
$node->safe_psql('postgres', 'REINDEX INDEX t_v');
wait_for_files(pool($node), 4, 'TRUNCATE and REINDEX');
ok(-e $file{$_}, "the file of $_ is kept") foreach ('ex_k', 'o_k');

# a file whose index is gone: with an unknown owner about, it stays
my $saved = $node->basedir . '/saved.pmh';
my $stray = index_file($node, 't_v') =~ s/[0-9a-f]{16}\.pmh$/00000000000000aa.pmh/r;
$node->safe_psql('postgres', 'CREATE TABLE gone (k int4); INSERT INTO gone VALUES (1); CREATE INDEX gone_k ON gone USING pmhash (k)');
File::Copy::copy(index_file($node, 'gone_k'), $saved);
$node->safe_psql('postgres', 'DROP TABLE gone');
File::Copy::copy($saved, $stray);
sleep(3);
ok(-e $stray, 'a file of no index that is known stays');

# one line of log for each, no failed cleaner
my $log = logged($from);
unlike($log, qr/ERROR:/, 'no sweep fails');
foreach my $index ('ex_k', 'o_k')
{
	my $count = () = $log =~ /could not determine which file index "$index" has/g;
	is($count, 1, "said once of $index");
}

# the indexes come back, and then everything left over goes
rebuild_on($node);
$node->safe_psql('postgres', 'TRUNCATE t; INSERT INTO t SELECT i % 3000, i FROM generate_series(1, 6000) i');
all_come_back($node, 'after damaged stubs');
wait_for_files(pool($node), 4, 'all old files are removed');
ok(!-e $stray, 'the stray one too');

$node->stop;
done_testing();
