# What is free in the files of a standby is found again after a restart, beside replay:
# a standby that is restarted again and again, and never promoted, needs no more space
# than the primary.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashStandbyBuild;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = 5;
my $lists = 200;
my $primary = new_primary('primary', '', install_path => install_with_stop_points());
my $standby = made_standby($primary, 'standby', "log_min_messages = debug1\n",
	install_path => $primary->{_install_path});
use_stop_points($standby);
$standby->start;

# Keys with lists of 120 rows, each in a buffer of its own.
sub fill
{
	my ($round) = @_;

	return "INSERT INTO v SELECT $round * 1000 + i % $lists FROM generate_series(1, $lists * 120) i; ";
}

# Half of them, spread over all that there are, go.
sub thin_out
{
	my ($round) = @_;
	return "DELETE FROM v WHERE k % 2 = $round % 2; VACUUM (INDEX_CLEANUP ON) v; ";
}

sub figure
{
	my ($node, $name) = @_;
	return $node->safe_psql('postgres', "SELECT $name FROM pmhash_stats('v_k')");
}

my $sweeper = q(FROM pg_stat_activity WHERE backend_type = 'pmhash standby sweeper');

# The files that have been swept since, when no sweeper is at work any more.
sub swept_files
{
	my ($position) = @_;
	my %files;

	$standby->poll_query_until('postgres', "SELECT count(*) = 0 $sweeper")
	  or die 'a sweeper does not end';
	$files{$_} = 1 foreach logged_since($standby, $position) =~ /found what is free in pmhash file (\w+)/g;
	return keys %files;
}

# A test: the file has been swept since.
sub swept
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($position, $name) = @_;
	my ($id) = $primary->safe_psql('postgres', "SELECT file FROM pmhash_files() WHERE index = 'v_k'::regclass") =~ m{/(\w+)\.pmh$};

	return ok($standby->wait_for_log(qr/found what is free in pmhash file $id/, $position), "$name: swept");
}

$primary->safe_psql('postgres', 'CREATE TABLE v (k int) WITH (autovacuum_enabled = off); ' . fill(0)
	  . 'CREATE INDEX v_k ON v USING pmhash (k) WITH (wal = on);');
caught_up($primary, $standby);
wait_for_state($standby, 'v_k', qr/^valid$/, 'built');

# ---- restarted again and again ----

my $most = 0;
foreach my $round (1 .. $rounds)
{
	my $how = $round % 2 ? 'immediate' : 'fast';
	my $position;

	$primary->safe_psql('postgres', $_) foreach split /(?<=;) /, thin_out($round);
	caught_up($primary, $standby);
	$standby->stop($how);
	$position = log_position($standby);
	$standby->start;
	swept($position, "round $round, $how");
	$primary->safe_psql('postgres', fill($round));
	caught_up($primary, $standby);
	$most = figure($primary, 'value_bytes') if figure($primary, 'value_bytes') > $most;
	note("round $round: primary ", figure($primary, 'value_bytes'), ', standby ', figure($standby, 'value_bytes'));
}
cmp_ok(figure($primary, 'list_bytes'), '>', 200_000, 'there are lists');
cmp_ok(figure($standby, 'value_bytes'), '<=', 1.25 * $most, 'the standby needs no more than the primary');
same_as_heap($standby, 'v', 'k', 'v_k', 'restarted');

# ---- beside replay that takes buffers and gives them back ----

$standby->stop('immediate');
hold('standby_sweeping');
my $position = log_position($standby);
$standby->start;
is_held('standby_sweeping', 'beside replay');
$primary->safe_psql('postgres', $_)
  foreach split /(?<=;) /, fill(20) . thin_out(0) . fill(21) . thin_out(1) . fill(22);
caught_up($primary, $standby);
same_as_heap($standby, 'v', 'k', 'v_k', 'beside replay');
release('standby_sweeping');
swept($position, 'beside replay');
my @files = swept_files($position);
$primary->safe_psql('postgres', fill(23));
caught_up($primary, $standby);
same_as_heap($standby, 'v', 'k', 'v_k', 'beside replay, afterwards');

# ---- the sweeper is ended in the middle: the next one begins anew, by itself ----

$standby->stop('immediate');
hold('standby_sweeping');
$standby->start;
is_held('standby_sweeping', 'ended');
$position = log_position($standby);
my $ended = $standby->safe_psql('postgres', "SELECT pid $sweeper");
$standby->safe_psql('postgres', "SELECT pg_terminate_backend($ended)");
release('standby_sweeping');
$standby->poll_query_until('postgres', "SELECT count(*) = 0 $sweeper AND pid = $ended")
  or die 'the sweeper does not end';
unlike(logged_since($standby, $position), qr/found what is free in pmhash file.*terminating background worker/s, 'ended: in the middle');
# whichever it was in the middle of
ok($standby->wait_for_log(qr/found what is free in pmhash file $_/, $position), "ended: $_ is swept") foreach @files;
swept($position, 'ended');

# ---- promoted in the middle: VACUUM does it ----

$standby->stop('immediate');
hold('standby_sweeping');
$position = log_position($standby);
$standby->start;
is_held('standby_sweeping', 'promoted');
$standby->promote;
$standby->safe_psql('postgres', $_) foreach split /(?<=;) /, thin_out(0) . fill(30);
release('standby_sweeping');
$standby->safe_psql('postgres', $_) foreach split /(?<=;) /, thin_out(1) . fill(31);
same_as_heap($standby, 'v', 'k', 'v_k', 'promoted');
unlike(logged_since($standby, $position), qr/has been rebuilt|not trusted|is given up|has been built/, 'promoted: nothing is built');
$_->stop foreach $standby, $primary;
done_testing();
