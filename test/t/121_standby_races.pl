# A standby whose replay fails just after a restart, before it has come as far as it was.
#
# The library is built with its stop points for this, as in 012_stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
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
my $standby = PostgreSQL::Test::Cluster->new('standby', install_path => $primary->{_install_path});

$primary->backup('base');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = 300s\n");
use_stop_points($standby);
$standby->start;

sub both_valid
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	caught_up($primary, $standby);
	wait_for_state($standby, $_, qr/^valid$/, "$name: $_") foreach qw(t_k t_s);
	return;
}

both_valid('begin');

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
both_valid('ERROR, replayed');
compare_in_snapshot($standby, 'ERROR, replayed: answers');
is($standby->safe_psql('postgres', q(SELECT pmhash_check('t_k'), pmhash_check('t_s'))), '|', 'ERROR, replayed: pmhash_check');

$standby->stop;
$primary->stop;
done_testing();
