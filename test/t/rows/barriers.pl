# What walks through a whole index for long takes note of barriers that are for all
# processes (ProcSignalBarrier): DROP DATABASE of any database waits for each process to
# close its files, and returns before the walk ends.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $point = 'segment_before_validation';
my $node = new_server('barriers', "autovacuum = off\n", install_path => install_with_stop_points());
use_stop_points($node);
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int);
INSERT INTO t SELECT i FROM generate_series(1, 20000) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL
cmp_ok($node->safe_psql('postgres', q(SELECT segments FROM pmhash_stats('t_k'))), '>', 2, 'some segments');

foreach my $walk (qw(pmhash_check pmhash_stats))
{
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	my $walker = start_and_hold($point, "SELECT $walk('t_k') IS NULL", $walk);
	my $drop = start_session('DROP DATABASE other');
	ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'DROP%' AND wait_event = 'ProcSignalBarrier')),
		"$walk: DROP DATABASE waits for it");
	hold($point);
	release($point);
	is_held($point, "$walk, one segment on");
	ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'DROP%' AND pid <> pg_backend_pid())),
		"$walk: DROP DATABASE is through");
	release($point);
	is(finish($drop), '', "$walk: it has dropped it");
	like(finish($walker), qr/^[tf]$/, "$walk: it comes to its end");
}
$node->stop;
done_testing();
