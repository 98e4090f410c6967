# The workers of a standby take turns: what looks for free space in files after a restart
# is one process at a time, leaves when a build waits for its slot or pmhash.rebuild is
# turned off, and is started again until it has been everywhere.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my @databases = map { "db$_" } 1 .. 4;
my $primary = new_primary('primary', "max_prepared_transactions = 2\n", install_path => install_with_stop_points());
my $standby = made_standby($primary, 'standby', "log_min_messages = debug1\n",
	install_path => $primary->{_install_path});
my $workers = q(FROM pg_stat_activity WHERE backend_type ~ 'pmhash standby (builder|sweeper)');
my $sweepers = q(FROM pg_stat_activity WHERE backend_type = 'pmhash standby sweeper');
my ($points, %file);

$points = use_stop_points($standby);
$standby->start;

# Keys with lists, in buffers that a restart has to find again.
foreach my $database (@databases)
{
	$primary->safe_psql('postgres', "CREATE DATABASE $database");
	install_extension($primary, $database);
	$primary->safe_psql($database, <<'SQL');
CREATE TABLE v (k int);
CREATE INDEX v_k ON v USING pmhash (k) WITH (wal = on);
INSERT INTO v SELECT i % 400 FROM generate_series(1, 48000) i;
SQL
	($file{$database}) = $primary->safe_psql($database,
		q(SELECT file FROM pmhash_files() WHERE index = 'v_k'::regclass)) =~ m{/(\w+)\.pmh$};
}

sub all_built
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	caught_up($primary, $standby);
	foreach my $database ('postgres', @databases)
	{
		ok($standby->poll_query_until($database, q(SELECT count(*) = 0 FROM pmhash_indexes WHERE state <> 'valid')),
			"$name: all of $database are built");
	}
	return;
}

# A test: the files of these databases are swept.
sub swept
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($position, $name, @of) = @_;

	ok($standby->wait_for_log(qr/found what is free in pmhash file $file{$_}/, $position), "$name: $_ is swept")
	  foreach @of;
	return;
}

# Start it, with a sweeper held, and have the next step of any held as well.
sub start_and_hold_sweeper
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	$standby->stop('immediate');
	hold('standby_sweeping');
	$standby->start;
	is_held('standby_sweeping', $name);
	hold('standby_sweeping');
	return;
}

# A test: no worker has come by since that was to be held.
sub none_has_come_by
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	return ok(-e "$points/standby_sweeping" && !-e "$points/standby_sweeping.held", $name);
}

all_built('begin');

# ---- one at a time, and builds find the other slots ----

my $position = log_position($standby);
start_and_hold_sweeper('one at a time');
sleep 3;	# time enough for others
is($standby->safe_psql('postgres', "SELECT count(*) $sweepers"), '1', 'one at a time: there is no other');
release('standby_sweeping') if !ok(-e "$points/standby_sweeping", 'one at a time: none has come by');
$primary->safe_psql('db1', 'CREATE TABLE a (k int); INSERT INTO a SELECT i % 100 FROM generate_series(1, 1000) i; CREATE INDEX a_k ON a USING pmhash (k) WITH (wal = on)');
caught_up($primary, $standby);
ok($standby->poll_query_until('db1', q(SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'a_k')),
	'one at a time: a build is done meanwhile');

# ---- it leaves when a build waits for its slot ----

# Builds wait for this transaction, each in its slot.
$primary->safe_psql('postgres', q(BEGIN; INSERT INTO t VALUES (-1, 'prepared', 1); PREPARE TRANSACTION 'old'));
$primary->safe_psql($databases[$_], 'CREATE TABLE b (k int); CREATE INDEX b_k ON b USING pmhash (k) WITH (wal = on)')
  foreach 0 .. 2;
caught_up($primary, $standby);
ok($standby->poll_query_until('postgres', "SELECT count(*) = 3 $workers"), 'three at a time');
my $building = q(SELECT count(*) FROM pmhash_indexes WHERE state LIKE 'building%');
my $begun = sub { my $n = 0; $n += $standby->safe_psql($_, $building) foreach @databases; return $n; };
is($begun->(), '2', 'it leaves: two builds have begun beside it');
sleep 3;	# the launcher, too, has to learn that the third one waits
release('standby_sweeping');
for (my $i = 0; $i < 200 && $begun->() < 3; $i++)
{
	usleep(50_000);
}
is($begun->(), '3', 'it leaves: the third begins');
is($standby->safe_psql('postgres', "SELECT count(*) $workers"), '3', 'it leaves: never more than three');
none_has_come_by('it leaves: before its next step');
unlink("$points/standby_sweeping");
$primary->safe_psql('postgres', q(ROLLBACK PREPARED 'old'));
all_built('it leaves');

# what was left is swept when there are slots again, with nothing to build
swept($position, 'and comes back', @databases);

# ---- pmhash.rebuild is turned off meanwhile ----

$position = log_position($standby);
start_and_hold_sweeper('turned off');
$standby->append_conf('postgresql.conf', "pmhash.rebuild = off\n");
$standby->reload;
ok($standby->poll_query_until('postgres', q(SELECT current_setting('pmhash.rebuild') = 'off')), 'turned off');
release('standby_sweeping');
ok($standby->poll_query_until('postgres', "SELECT count(*) = 0 $workers"), 'turned off: it ends');
none_has_come_by('turned off: before its next step');

# the launcher has nothing to do then, and does nothing
my $launcher = $standby->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'));
my $woken = sub { return (slurp_file("/proc/$launcher/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m)[0]; };
$primary->safe_psql('db4', 'CREATE INDEX v_k2 ON v USING pmhash ((k + 1)) WITH (wal = on)');
caught_up($primary, $standby);
my $before = $woken->();
sleep 3;
cmp_ok($woken->() - $before, '<', 100, 'turned off: the launcher sleeps');
none_has_come_by('turned off: none is started');
unlink("$points/standby_sweeping");
$standby->append_conf('postgresql.conf', "pmhash.rebuild = on\n");
$standby->reload;
swept($position, 'turned on', @databases);
all_built('turned on');

# ---- a database that takes no connections holds up no other ----

$primary->safe_psql('postgres', 'ALTER DATABASE db1 ALLOW_CONNECTIONS off');
caught_up($primary, $standby);
$position = log_position($standby);
$standby->restart;
swept($position, 'one without connections', @databases[1 .. 3]);
$primary->safe_psql('postgres', 'ALTER DATABASE db1 ALLOW_CONNECTIONS on');
swept($position, 'with connections again', 'db1');

$_->stop foreach $standby, $primary;
done_testing();
