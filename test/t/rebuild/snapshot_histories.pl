# Random histories of snapshots over indexes that are lost, rebuilt, made and dropped, with a
# standby and its promotion: PmhashHistories.pm.
#
# SNAPSHOTS_SEEDS says which seeds (1-3, or 4), SNAPSHOTS_STEPS how many steps each.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashHistories;
use Test::More;

my $steps = $ENV{SNAPSHOTS_STEPS} || 45;
my ($first, $last) = ($ENV{SNAPSHOTS_SEEDS} || '1-2') =~ /^(\d+)(?:-(\d+))?$/ or die 'SNAPSHOTS_SEEDS';

foreach my $seed ($first .. $last // $first)
{
	is(snapshot_history($seed, $steps), '', "SNAPSHOTS_SEEDS=$seed SNAPSHOTS_STEPS=$steps") or last;
}

my $figures = history_figures();
my $said = join(', ', map { "$figures->{$_} $_" } sort keys %$figures);

# A searcher that asks nothing finds nothing.
my @wanted = qw(old_answers old_without old_rows kept_answers retries slot_looks late_slots handed_on);
push @wanted, 'late_slots_of_standbys' if standbys_have_slots();
cmp_ok($figures->{$_}, '>', 0, "$_: $figures->{$_}") foreach @wanted;
diag($said);
diag('standbys have no logical slots before 16: none of those') if !standbys_have_slots();
done_testing();
