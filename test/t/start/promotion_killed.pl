# A server is killed between its promotion and the first use of pmhash as a primary: its
# files are not trusted.  If the first use only fails at first they are kept.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $primary = new_primary('primary', "autovacuum = off\n", install_path => install_with_stop_points());
my $n_standbys = 0;
$primary->backup('base');

# A standby with both files, after some changes, and its stop points.
sub standby_with_files
{
	my ($settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new('standby' . ++$n_standbys,
		install_path => $primary->{_install_path});

	$node->init_from_backup($primary, 'base', has_streaming => 1);
	$node->append_conf('postgresql.conf', $settings) if defined $settings;
	mkdir $node->data_dir . '/stop_points' or die $!;
	$node->start;
	wait_for_state($node, $_, qr/^valid$/, $node->name . ": $_") foreach qw(t_k t_s);
	$primary->safe_psql('postgres', <<SQL);
INSERT INTO t SELECT i % 3000, 'more ' || i % 40, i FROM generate_series(1, 500) i;
UPDATE t SET k = k + 1 WHERE n % 17 = $n_standbys;
DELETE FROM t WHERE n % 29 = $n_standbys;
VACUUM t;
SQL
	caught_up($primary, $node);
	return $node;
}

# Promote it, and have a process held at that point.  A test.
sub promote_up_to
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $point) = @_;
	my $file = $node->data_dir . "/stop_points/$point";
	my $deadline = time + 60;

	append_to_file($file, '');
	kill('USR1', $node->{_pid}) if open(my $signal, '>', $node->data_dir . '/promote');
	usleep(5_000) until -e "$file.held" || time > $deadline;
	return ok(-e "$file.held", $node->name . ": held at $point");
}

sub kill_it
{
	my ($node) = @_;

	crash($node);
	unlink(glob($node->data_dir . '/stop_points/*'));
	return;
}

# Tests: both indexes are there at once, with the right answers, before and after
# changes, and nothing was built.
sub goes_on
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $name, $position) = @_;

	is($node->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 'f', "$name: a primary");
	like(plan_of($node, 'SELECT * FROM t WHERE k = 5', 'SET enable_seqscan = off;'), qr/t_k/,
		"$name: the index is used at once");
	compare_in_snapshot($node, "$name: answers");
	$node->safe_psql('postgres', <<'SQL');
DELETE FROM t WHERE k BETWEEN 100 AND 120;
VACUUM (INDEX_CLEANUP ON) t;
INSERT INTO t SELECT 7000 + i % 30, 'reused', i FROM generate_series(1, 300) i;
SQL
	compare_in_snapshot($node, "$name: answers after changes");
	no_findings($node, "$name: pmhash_check");
	unlike(logged_since($node, $position), qr/has been rebuilt|could not rebuild|not trusted|has been built|is given up/, "$name: nothing is built");
	return;
}

# Tests: the files are not trusted, and the answers are right.
sub builds_anew
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $name, $position, $why) = @_;

	like(logged_since($node, $position), $why, "$name: it says why");
	both_valid($node, $name);
	like(logged_since($node, $position), qr/has been rebuilt/, "$name: rebuilt");
	compare_in_snapshot($node, "$name: answers");
	no_findings($node, "$name: pmhash_check");
	return;
}

# ---- killed at each point ----

# promoted_before_use: nothing has been done.  promoted_before_role: what is not LIVE
# has been removed.
# event: a standby is promoted and killed before it has used pmhash as a primary (its launcher does so some milliseconds after the promotion)
foreach my $point (qw(promoted_before_use promoted_before_role))
{
	my $node = standby_with_files();
	my $position = log_position($node);

	promote_up_to($node, $point);
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	$node->safe_psql('postgres', 'CREATE TABLE other AS SELECT i FROM generate_series(1, 1000) i');
	kill_it($node);
	$node->start;
	# trust: promoted
	builds_anew($node, "killed, $point", $position, qr/the server was a standby and has not used the pool as a primary/);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM other'), '1000', "killed, $point: what was committed is there");
	$position = log_position($node);
	crash($node);
	$node->start;
	goes_on($node, "killed, $point, and as a primary", $position);
	$node->stop;
}

# ---- the standby's signal is removed by hand ----

{
	my $node = standby_with_files();
	my $position = log_position($node);

	$node->stop('immediate');
	unlink($node->data_dir . '/standby.signal') or die $!;
	$node->start;
	builds_anew($node, 'signal removed', $position, qr/the server was a standby and has not used/);
	$node->stop;
}

# ---- the first use fails at first: the files are kept ----

{
	my $node = standby_with_files();
	my $position = log_position($node);

	chmod(0500, pool($node)) or die $!;
	$node->promote;
	sleep 1;
	like(logged_since($node, $position), qr/pmhash could not be made ready: could not write file/, 'first use: it has failed');
	chmod(0700, pool($node)) or die $!;
	$node->safe_psql('postgres', q(INSERT INTO t VALUES (1, 'first use', 1)));
	goes_on($node, 'first use fails', $position);
	$node->stop;
}

$primary->stop;
done_testing();
