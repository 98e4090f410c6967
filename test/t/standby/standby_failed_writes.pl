# A standby asks the kernel, too, whether it has written back what it should: after each
# restartpoint, at its start and at its end; and what it learns counts if it is promoted meanwhile.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashStandby;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $noticed = qr/index files in .* are not trusted: the file system of directory .* has failed to write something back: Input/;
my @library = (install_path => install_with_stop_points());
my $primary = new_primary('primary', undef, @library);
my $faults = PmhashFaults::build_library($primary->basedir);
my $standby = new_standby($primary, 'standby', <<CONF, @library);
shared_preload_libraries = 'pmhash, $faults'
pmhash_faults.calls = 'syncfs'
pmhash_faults.process = 'pmhash launcher'
pmhash_faults.error = 5
pmhash_faults.fail_for = 1
CONF

sub restartpoint
{
	$primary->safe_psql('postgres', 'CHECKPOINT');
	caught_up($primary, $standby);
	$standby->safe_psql('postgres', 'CHECKPOINT');
	return;
}

# A test: the log says so, within this time.
sub is_noticed
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, $position) = @_;

	for (my $i = 0; $i < 300 && logged_since($standby, $position) !~ $noticed; $i++)
	{
		usleep(100_000);
	}
	return like(logged_since($standby, $position), $noticed, "$name: log");
}

sub all_valid
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	both_valid($standby, $name);
	compare_in_snapshot($standby, "$name: answers");
	return;
}

# A test: another one has been built since.
sub is_built_again
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, $position) = @_;

	all_valid($name);
	return is(scalar(() = logged_since($standby, $position) =~ /has been built/g), 2, "$name: both are built again");
}

all_valid('begin');

# event: the kernel fails to write back pages of the pool's file system, on a standby
# ---- at a restartpoint; a session that has the files open as well ----
{
	my $position = log_position($standby);
	my $session = $standby->background_psql('postgres');

	$session->query_safe('SET enable_seqscan = off; SELECT * FROM t WHERE k = 17');
	$standby->append_conf('postgresql.conf', "pmhash.rebuild = off\n");
	set_faults($standby, fail_at => 1);
	$primary->safe_psql('postgres', "INSERT INTO t VALUES (40000, 'x', 1)");
	restartpoint();
	is_noticed('restartpoint', $position);
	# trust: standby-syncfs
	isnt(standby_state($standby, $_), 'valid', "restartpoint: $_") foreach qw(t_k t_s);
	unlike($session->query_safe('EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k = 40000'), qr/t_k/,
		'restartpoint: a session that has the file open');
	is($session->query_safe('SELECT count(*) FROM t WHERE k = 40000'), '1', 'restartpoint: and its answer');
	$session->quit;
	$standby->append_conf('postgresql.conf', "pmhash.rebuild = on\n");
	set_faults($standby, fail_at => 0);
	is_built_again('restartpoint', $position);
}

# it has been asked, and nothing has failed since: a crash costs nothing
{
	my $position = log_position($standby);

	restartpoint();
	crash($standby);
	$standby->start;
	caught_up($primary, $standby);
	all_valid('crash');
	unlike(logged_since($standby, $position), qr/not trusted|has been built/, 'crash: nothing is built');
}

# ---- at its start: the life before may not have had the time to ask ----
{
	my $position = log_position($standby);

	crash($standby);
	set_faults($standby, fail_at => 1);
	$standby->start;
	is_noticed('start', $position);
	is_built_again('start', $position);
}

# ---- at its end: what it says it has applied is not written back, whatever the errno ----
# Two calls for the control file come before.
{
	my $position = log_position($standby);

	caught_up($primary, $standby);
	set_faults($standby, calls => 'fsync', process => '', error => 110, fail_at => 3);
	$standby->stop;
	like(logged_since($standby, $position), qr/could not write the files in .* back: Connection timed out/, 'end: log');
	set_faults($standby, calls => 'syncfs', process => 'pmhash launcher', error => 5, fail_at => 0);
	$standby->start;
	# trust: standby-notes
	is_built_again('end', $position);
}

# ---- it is promoted while it is asked ----
{
	my $position = log_position($standby);

	set_faults($standby, fail_at => 0);
	use_stop_points($standby);
	hold('asked_for_failed_writes');
	set_faults($standby, fail_at => 1);
	restartpoint();
	is_held('asked_for_failed_writes', 'promoted');
	$standby->promote;
	$standby->safe_psql('postgres', "INSERT INTO t VALUES (40001, 'x', 1)");
	sleep(3);	# others, which are those of a primary by now, go on
	release('asked_for_failed_writes');
	is_noticed('promoted', $position);
	all_valid('promoted');
	like(logged_since($standby, $position), qr/"t_k" of table "t" has been rebuilt/, 'promoted: files are rebuilt');
	unlike(logged_since($standby, $position), qr/failed while it asked/, 'promoted: one after the other');
}
$_->stop foreach $standby, $primary;
done_testing();
