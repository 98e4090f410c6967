# Races of a standby: an ERROR in replay just after a restart, before it has come as far as
# it was; readers that open a file while it is given up and built again, or find none; a
# sweeper that is still there when the standby has been promoted.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid qw(index_file);
use PmhashStandby;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $built = qr/has been built on this standby/;
my $primary = new_primary('primary', <<CONF, install_path => install_with_stop_points());
bgwriter_lru_maxpages = 0
pmhash.cleaner_naptime = 1000
CONF
my $standby = made_standby($primary, 'standby', <<CONF, install_path => $primary->{_install_path});
max_standby_streaming_delay = 300s
hot_standby_feedback = on
wal_receiver_status_interval = 1
CONF
my $points = use_stop_points($standby);
$standby->start;

sub replayed_and_valid
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	caught_up($primary, $standby);
	both_valid($standby, $name);
	return;
}

replayed_and_valid('begin');

# ---- an ERROR in replay, before the records that the files had ----

# Replay begins at the restartpoint; its first record raises an ERROR.  It goes on to the
# name, and not as far as it was.  A file that was built there would have to have all that
# comes up to there, and a restart would pass that over for it.
$primary->safe_psql('postgres', 'CHECKPOINT');
caught_up($primary, $standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
$primary->safe_psql('postgres', "SELECT pg_create_restore_point('here')");
$primary->safe_psql('postgres', "INSERT INTO t SELECT 20000 + i % 10, 'past the name', i FROM generate_series(1, 200) i");
caught_up($primary, $standby);
my $applied = $standby->safe_psql('postgres', 'SELECT applied_lsn FROM pmhash_standby()');
my $position = log_position($standby);
crash($standby);
$standby->append_conf('postgresql.conf', "recovery_target_name = 'here'\nrecovery_target_action = pause\n");
fail_at('redo_record');
$standby->start;
like(logged_since($standby, $position), qr/could not replay a record: error of the test at redo_record/, 'ERROR: there was one');
is($standby->safe_psql('postgres', "SELECT pg_last_wal_replay_lsn() < '$applied'"), 't',
	'ERROR: replay is not where it was');
foreach (1 .. 50)
{
	last if logged_since($standby, $position) =~ $built;
	usleep(100_000);
}
unlike(logged_since($standby, $position), $built, 'ERROR: nothing is built before it is');
crash($standby);
$standby->append_conf('postgresql.conf', "recovery_target_name = ''\n");
$standby->start;
replayed_and_valid('ERROR, replayed');
compare_in_snapshot($standby, 'ERROR, replayed: answers');
no_findings($standby, 'ERROR, replayed: pmhash_check');

# ---- a reader opens a file while that is given up and built again ----

# Its snapshot sees rows that the later file lacks.  It has not mapped the file yet, and
# other sessions have.
sub give_up
{
	my ($key) = @_;

	$primary->safe_psql('postgres', "DELETE FROM t WHERE k = $key");
	caught_up($primary, $standby);
	file_is_lost($standby, 't_k', "SELECT count(n) FROM t WHERE k = $key");
	return;
}

sub reader_held_at
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($point, $key, $name) = @_;

	$primary->safe_psql('postgres', "INSERT INTO t SELECT $key, 'seen', i FROM generate_series(1, 100) i");
	replayed_and_valid($name);
	my $session = start_and_hold($point, <<SQL, $name);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL pmhash.enable_pagescan = off;
SELECT count(n) FROM t WHERE k = $key;
COMMIT
SQL
	# until the primary knows of its snapshot, it may take away from catalogs what replay
	# would have to wait with
	sleep 3;
	return $session;
}

my $key = 40000;
foreach my $point ('open_before_life', 'open_before_map')
{
	my $name = "held at $point";
	my $session = reader_held_at($point, ++$key, $name);

	give_up($key);
	built_again($standby, 't_k', $name);
	release($point);
	is(finish($session), '100', "$name: all rows of its snapshot");
}
{
	# ... and looks when there is none: what it would map later is not what it looked for
	my $name = 'held while there is none';
	my $session = reader_held_at('open_before_life', ++$key, $name);

	give_up($key);
	hold('open_before_map');
	release('open_before_life');
	foreach (1 .. 30)
	{
		last if -e "$points/open_before_map.held";
		usleep(100_000);
	}
	unlink("$points/open_before_map");
	built_again($standby, 't_k', $name);
	release('open_before_map') if -e "$points/open_before_map.held";
	is(finish($session), '100', "$name: all rows of its snapshot");
}

# ---- what is said of a lost file is said when there is another one ----

# It has found no file, and is held up before it says so.
{
	my $name = 'late, opening';
	my $session = reader_held_at('open_before_map', ++$key, $name);

	give_up($key);
	hold('standby_before_lost');
	release('open_before_map');
	is_held('standby_before_lost', $name);
	built_again($standby, 't_k', $name);
	my @file = stat(index_file($standby, 't_k'));
	release('standby_before_lost');
	is(finish($session), '100', "$name: all rows of its snapshot");
	is(standby_state($standby, 't_k'), 'valid', "$name: the new file is not lost");
	is((stat(index_file($standby, 't_k')))[1], $file[1], "$name: nor has it been built again");
}

# ---- there is no file when a scan begins, and one when it says so ----

# Its plan is from before.  It is to be tried again: if the new file is for its snapshot it
# might have had it, else it may lack rows.
foreach my $gone (0, 1)
{
	my $name = $gone ? 'built too late' : 'built just now';
	my $session = $standby->background_psql('postgres', on_error_stop => 0);
	my $rows = 'SELECT k FROM t WHERE k = ' . ++$key;

	$primary->safe_psql('postgres', "INSERT INTO t SELECT $key, 'seen', i FROM generate_series(1, 100) i");
	replayed_and_valid($name);
	like(plan_of($standby, $rows, "$by{index}; "), qr/Index Only Scan using t_k/, "$name: plan");
	$session->query_safe("$by{index}; BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR $rows");
	sleep 3;
	$primary->safe_psql('postgres', "DELETE FROM t WHERE k = $key") if $gone;
	caught_up($primary, $standby);
	file_is_lost($standby, 't_k', 'SELECT k FROM t WHERE k = 0');
	hold('walk_before_error');
	$session->query_until(qr/begun/, "\\echo begun\nFETCH c;\n");
	is_held('walk_before_error', $name);
	built_again($standby, 't_k', $name);
	release('walk_before_error');
	$session->query('SELECT 1');
	like($session->{stderr}, $gone ? qr/ERROR:  pmhash index "t_k" is younger than the snapshot/ :
		  qr/ERROR:  pmhash index "t_k" has just been rebuilt/, "$name: what it says");
	$session->{stderr} = '';
	is($session->query_safe("ROLLBACK; SELECT count(*) FROM ($rows) r"), $gone ? 0 : 100, "$name: the next try");
	$session->quit;
}

compare_in_snapshot($standby, 'after these: answers');

# ---- a sweeper that is still there when the standby has been promoted ----

# The files are the primary's then: a damaged one is not removed without a mark in its stub.
$standby->stop;
hold('standby_sweeping');
$standby->start;
is_held('standby_sweeping', 'sweeper');
$primary->stop;
$position = log_position($standby);
$standby->promote;
$standby->safe_psql('postgres', q(SELECT pmhash_size('t_k')));
$standby->safe_psql('postgres', 'CREATE TABLE first_use (k integer); CREATE INDEX ON first_use USING pmhash (k)');
my @files = map { $standby->safe_psql('postgres', "SELECT file FROM pmhash_files() WHERE index = '$_'::regclass") } qw(t_k t_s);
truncate($_, 8192) || die "$_: $!" foreach @files;
release('standby_sweeping');
$standby->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'pmhash standby builder'") or die;
unlike(logged_since($standby, $position), qr/is given up on this server/, 'promoted: the sweeper gives nothing up');
is_deeply([ grep { !-e } @files ], [], 'promoted: nor does it remove anything');
$standby->safe_psql('postgres', "INSERT INTO t VALUES (50000, 'x', 1)");
$standby->poll_query_until('postgres', "SELECT bool_and(state = 'valid') FROM pmhash_indexes") or die;
compare_in_snapshot($standby, 'promoted, rebuilt: answers');

$standby->stop;
done_testing();
