# A standby is stopped, killed, started without the library, promoted, made a standby
# again: where its files are up to date they are used at once, else built again, and
# never wrong.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $built = qr/has been built on this standby/;
my $primary = new_primary('primary');

# another directory than the primary's by default: of no consequence
my $elsewhere = PostgreSQL::Test::Utils::tempdir() . '/pool';
my $standby = new_standby($primary, 'standby', <<CONF);
pmhash.directory = '$elsewhere'
restart_after_crash = on
CONF

sub wait_for_both
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $name) = @_;

	wait_for_state($node, $_, qr/^valid$/, "$name: $_") foreach qw(t_k t_s);
	return;
}

sub no_findings
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $name) = @_;

	return is($node->safe_psql('postgres', q(SELECT pmhash_check('t_k'), pmhash_check('t_s'))),
		'|', "$name: pmhash_check");
}

sub change
{
	my ($node, $n) = @_;

	$node->safe_psql('postgres', <<SQL);
INSERT INTO t SELECT i % 4000, 'change ' || i % 50, i FROM generate_series(1, 700) i;
UPDATE t SET k = k + $n WHERE n % 19 = $n % 19;
DELETE FROM t WHERE n % 23 = $n % 23;
VACUUM t;
INSERT INTO t SELECT i % 4000, 'changed ' || i % 50, i FROM generate_series(1, 700) i;
SQL
	return;
}

wait_for_both($standby, 'built in a directory of its own');
is(scalar(index_files($elsewhere)), 2, 'there they are');

# ---- clean restarts, with changes while it is down ----

foreach my $how ('fast', 'immediate')
{
	# trust: standby-applied
	my $position = log_position($standby);

	change($primary, 1);
	caught_up($primary, $standby);
	$standby->stop($how);
	change($primary, 2);
	$standby->start;
	caught_up($primary, $standby);
	wait_for_both($standby, "restart after $how");
	compare_in_snapshot($standby, "restart after $how: answers");
	no_findings($standby, "restart after $how");
	unlike(logged_since($standby, $position), $built, "restart after $how: nothing is built");
}

# ---- killed in the middle of replay ----

my $bench = $primary->basedir . '/restart_load.sql';
append_to_file($bench, <<'SQL');
\set k random(1, 2000)
\set n random(1, 1000000)
INSERT INTO t SELECT :k + i, 'text ' || :k % 500, :n FROM generate_series(1, 40) i;
UPDATE t SET k = k + 1 WHERE k = :k;
DELETE FROM t WHERE k BETWEEN :k + 5 AND :k + 9;
SQL
my $output = '';
my $load = start_pgbench($primary, \$output, '-c', '3', '-T', '40', '-f', $bench);
my $position = log_position($standby);
foreach my $round (1 .. 8)
{
	usleep(500_000 + int(rand(700_000)));
	$primary->safe_psql('postgres', 'VACUUM t') if $round % 2 == 0;
	$standby->safe_psql('postgres', 'CHECKPOINT') if $round % 3 == 0;
	crash($standby);
	usleep(300_000);
	$standby->start;
	caught_up($primary, $standby);
	wait_for_both($standby, "killed, round $round");
	compare_in_snapshot($standby, "killed, round $round: answers");
}
$load->signal('TERM');
$load->finish;
caught_up($primary, $standby);
no_findings($standby, 'killed in replay');
unlike(logged_since($standby, $position), $built, 'killed in replay: nothing is built');

# ---- the library is absent for a while ----

foreach my $checkpoint (0, 1)
{
	my $name = $checkpoint ? 'absent past a restartpoint' : 'absent for a short time';

	$position = log_position($standby);
	$standby->stop;
	$standby->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	$standby->start;
	change($primary, 3 + $checkpoint);
	$primary->safe_psql('postgres', 'CHECKPOINT');
	caught_up($primary, $standby);
	$standby->safe_psql('postgres', 'CHECKPOINT') if $checkpoint;
	is($standby->safe_psql('postgres', 'SELECT count(*) > 0 FROM t WHERE k = 5'), 't',
		"$name: the server is up");
	$standby->stop($checkpoint ? 'fast' : 'immediate');
	$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'pmhash'\n");
	$standby->start;
	caught_up($primary, $standby);
	wait_for_both($standby, $name);
	compare_in_snapshot($standby, "$name: answers");
	no_findings($standby, $name);
}
# trust: standby-without
like(logged_since($standby, $position), qr/replayed WAL without the pool/,
	'what WAL has not been applied to is not trusted');

# ---- clean switchover, to and fro ----

my @old_files = index_files(pool($primary));
change($primary, 5);
$primary->stop('fast');
$position = log_position($standby);
$standby->promote;
compare_in_snapshot($standby, 'switchover: the new primary');
change($standby, 6);
compare_in_snapshot($standby, 'switchover: the new primary after changes');
unlike(logged_since($standby, $position), qr/has been rebuilt|could not rebuild|not trusted/, 'switchover: nothing is rebuilt');

my $old_position = log_position($primary);
$primary->enable_streaming($standby);
$primary->start;
caught_up($standby, $primary);
wait_for_both($primary, 'switchover: the old primary follows');
compare_in_snapshot($primary, 'switchover: its answers');
no_findings($primary, 'switchover');

# the files it had were made at another time than those of the new primary (S4)
like(logged_since($primary, $old_position), $built, 'switchover: it has built its files anew');
is_deeply([ index_files(pool($primary)) ], \@old_files, 'switchover: under the same names');

change($standby, 7);
$standby->stop('fast');
$primary->promote;
compare_in_snapshot($primary, 'and back: answers');
change($primary, 8);
no_findings($primary, 'and back');
unlike(logged_since($primary, $old_position), qr/has been rebuilt|could not rebuild|not trusted/, 'and back: nothing is rebuilt');
$standby->enable_streaming($primary);
$standby->start;
caught_up($primary, $standby);
wait_for_both($standby, 'and back: the other one follows');
compare_in_snapshot($standby, 'and back: its answers');

# ---- a primary that is made a standby, and promoted before there is another one ----

$old_position = log_position($primary);
$primary->stop('fast');
$primary->set_standby_mode;
$primary->start;
# trust: standby-demoted
wait_for_both($primary, 'a standby without a primary');
compare_in_snapshot($primary, 'a standby without a primary: answers');
$primary->promote;
compare_in_snapshot($primary, 'promoted again: answers');
change($primary, 10);
no_findings($primary, 'promoted again');
unlike(logged_since($primary, $old_position), qr/has been rebuilt|could not rebuild|not trusted|has been built/, 'promoted again: with the files that it had');
$standby->poll_query_until('postgres', 'SELECT pg_last_wal_replay_lsn() IS NOT NULL');
caught_up($primary, $standby);
wait_for_both($standby, 'promoted again: the other one follows');
compare_in_snapshot($standby, 'promoted again: its answers');

# ---- a primary that crashed becomes a standby: not trusted ----

change($primary, 9);
caught_up($primary, $standby);
crash($primary);
$standby->promote;
$primary->enable_streaming($standby);
$old_position = log_position($primary);
$primary->start;
# trust: standby-crashed
like(logged_since($primary, $old_position), qr/not shut down cleanly as a primary/,
	'crashed: not trusted');
caught_up($standby, $primary);
wait_for_both($primary, 'crashed: built again');
like(logged_since($primary, $old_position), $built, 'crashed: really');
compare_in_snapshot($primary, 'crashed: answers');

# ---- a standby that is not promoted but loses its signal: not trusted ----

$primary->stop;

# and it was at two builds, of indexes that have gone since
my @left_over = map { ((index_files(pool($primary)))[0] =~ m{^(.*)/})[0] . "/00000000000000aa.$_" } qw(new delta);

append_to_file($_, 'x') foreach @left_over;
unlink($primary->data_dir . '/standby.signal') or die $!;
$old_position = log_position($primary);
$primary->start;
is_deeply([ grep { -e } @left_over ], [], 'signal removed: what the builds have made is removed');
# trust: standby-signal
like(logged_since($primary, $old_position), qr/was a standby and has not been promoted/,
	'signal removed: not trusted');
$primary->poll_query_until('postgres', "SELECT count(*) = 2 FROM pmhash_indexes WHERE state = 'valid'")
  or die 'not rebuilt';
compare_in_snapshot($primary, 'signal removed: answers');
$primary->stop;
$standby->stop;

done_testing();
