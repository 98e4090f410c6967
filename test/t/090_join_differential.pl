# Random joins, with pmhash's own join forced, with it off, and by sequential scans:
# see PmhashJoinFuzz.pm.
#
# PMHASH_JOIN_FUZZ_SECONDS says how long (15), PMHASH_JOIN_FUZZ_SEED with which
# seed; without it the seed is another one each time, and is told.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashJoinFuzz;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $seconds = $ENV{PMHASH_JOIN_FUZZ_SECONDS} // 15;
my $seed = $ENV{PMHASH_JOIN_FUZZ_SEED} // int(rand(1_000_000_000));
my $node = new_join_server();
my $found = fuzz_joins($node, $seed, $seconds);
my ($queries, $joined, $changes) = join_figures();

is($found, '', "PMHASH_JOIN_FUZZ_SEED=$seed");
cmp_ok($joined, '>', $queries / 2, 'most queries were answered by the join');
unlike(slurp_file($node->logfile), qr/PANIC:|was terminated by|TRAP/, 'the server has stayed up');

# ---- a join that is under way can be cancelled ----
my $endless = 'SELECT count(*) FROM d o JOIN d i ON i.k2 = o.k2 JOIN d j ON j.k2 = i.k2';
foreach my $query ($endless, "$endless WHERE i.id < j.f",
	'SELECT count(*) FROM generate_series(1, 1000000000) g WHERE NOT EXISTS (SELECT FROM b WHERE b.k = g + 10000)')
{
	my ($out, $err);
	my $began = time();

	$node->psql('postgres', <<SQL, stdout => \$out, stderr => \$err, timeout => 60);
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_nestloop = off;
SET max_parallel_workers_per_gather = 0;
EXPLAIN (COSTS OFF) $query;
SET statement_timeout = 200;
$query;
SQL
	like($out, qr/pmhash join/, 'endless: plan');
	like($err, qr/canceling statement due to statement timeout/, 'endless: cancelled');
	cmp_ok(time() - $began, '<', 5, 'endless: soon, also where others are at work');
}
my $figures = "$queries queries, $joined of them by joins, $changes changes, seed $seed";
note($figures);
diag($figures) if $seconds > 60;
$node->stop;
done_testing();
