# The primary is lost in every way under a mixed load, again and again, and the
# standby takes over: with the same rows by index as by sequential scan, at once, and
# without a rebuild.  FAILOVER_CYCLES says how often, FAILOVER_KIND in which way only;
# see PmhashFailover.pm.
# long

use v5.36;
use PmhashFailover;
use PmhashTest;

my $cycles = $ENV{FAILOVER_CYCLES} // 3;
my $seed = $ENV{SOAK_SEED} // time;
my @kinds = defined $ENV{FAILOVER_KIND} ? $ENV{FAILOVER_KIND} : failover_kinds();

# an orderly end, so that the servers are stopped
local $SIG{INT} = local $SIG{TERM} = sub { exit(1) };
note("SOAK_SEED=$seed");
srand($seed);
my ($primary, $standby) = new_pair();
for (my $cycle = 1; $cycle <= $cycles; $cycle++)
{
	failover_cycle($primary, $standby, $cycle, $kinds[ ($cycle - 1) % @kinds ]);
	($primary, $standby) = ($standby, $primary);
}

# what has not been compared is not the same
cmp_ok($PmhashFailover::sum{compared}, '>', 0, 'there were comparisons on the standby under load');
diag(failover_summary());
$standby->stop;
$primary->stop;
done_testing();
