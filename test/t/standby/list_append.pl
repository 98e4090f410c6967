# Histories of clients on a primary and its synchronous standby, which reach their rows by
# pmhash indexes, have no anomaly that their isolation level forbids: PmhashListAppend.pm.
# Meanwhile processes of both servers are stopped at random.
#
# LIST_APPEND_SECONDS says how long (24; "make soak-append" 1,200), SOAK_SEED repeats the
# random choices, though not the timing.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashListAppend;
use PmhashPauses;
use Test::More;

my $seconds = $ENV{LIST_APPEND_SECONDS} || 24;
my $seed = $ENV{SOAK_SEED} // time;
my $rounds = 2 * int(($seconds + 59) / 60);
my %sum;

local $SIG{INT} = local $SIG{TERM} = sub { exit(1) };
note("SOAK_SEED=$seed");
srand($seed);
my ($primary, $standby) = new_append_pair();

foreach my $round (1 .. $rounds)
{
	my $level = $round % 2 ? 'serializable' : 'repeatable read';
	my ($figures, $findings) = append_history($primary, $standby, $level, $seconds / $rounds, $round);

	is($findings, '', "round $round, $level");
	$sum{$_} += $figures->{$_} foreach keys %$figures;
	last if $findings ne '';
}

# A history without conflicts has shown nothing, and one without the indexes nothing of them.
cmp_ok($sum{$_} // 0, '>', 0, $_)
  foreach 'primary ok', 'primary fail', 'standby ok', 'append', 'read', 'add', 'see', 'ww dependencies', 'wr dependencies', 'rw dependencies', 'vacuum';
# REINDEX reads a table twice, and the end of a round once; an index that is made anew takes a while
# on the standby.
cmp_ok($sum{'primary scans by table'}, '<=', 3 * $rounds + 2 * ($sum{reindex} // 0), 'primary: rows are found by index');
cmp_ok($sum{'primary scans by index'}, '>=', $sum{'primary ok'}, 'there are as many');
cmp_ok($sum{'standby scans by index'}, '>', 2 * $sum{'standby scans by table'}, 'standby: by index');
foreach my $node ($primary, $standby)
{
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);

	is(join("\n", $log =~ /.*(?:PANIC:|TRAP:|terminated by signal|XX00[012]).*/g), '', $node->name . ': log');
	my $ended = () = $log =~ /terminating connection due to conflict with recovery/g;

	is($ended, $node == $standby ? $sum{ended} // 0 : 0, $node->name . ': sessions that were ended');
	is($node->safe_psql('postgres', q(SELECT string_agg(index::text, ' ') FROM pmhash_indexes WHERE state NOT IN ('valid', 'empty'))), '', $node->name . ': all indexes are valid');
	$node->safe_psql('postgres', q(SELECT pmhash_check(index::regclass) FROM pmhash_indexes WHERE state = 'valid'));
}
my $pauses = pauses();
like($pauses, qr/^[1-9]/, $pauses) if ($ENV{PMHASH_PAUSES} // '1') ne '0';
diag(join(', ', map { "$sum{$_} $_" } sort keys %sum) . "; $pauses");
$standby->stop;
$primary->stop;
done_testing();
