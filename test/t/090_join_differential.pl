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

my $seconds = $ENV{PMHASH_JOIN_FUZZ_SECONDS} // 15;
my $seed = $ENV{PMHASH_JOIN_FUZZ_SEED} // int(rand(1_000_000_000));
my $node = new_join_server();
my $found = fuzz_joins($node, $seed, $seconds);
my ($queries, $joined, $changes) = join_figures();

is($found, '', "PMHASH_JOIN_FUZZ_SEED=$seed");
cmp_ok($joined, '>', $queries / 2, 'most queries were answered by the join');
unlike(slurp_file($node->logfile), qr/PANIC:|was terminated by|TRAP/, 'the server has stayed up');
my $figures = "$queries queries, $joined of them by joins, $changes changes, seed $seed";
note($figures);
diag($figures) if $seconds > 60;
$node->stop;
done_testing();
