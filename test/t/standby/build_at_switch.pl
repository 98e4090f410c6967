# A build on a standby that begins in the very record in which replay comes to a new
# primary: its file is of that one, and stays when that one vacuums.  (Of 220 failovers
# in test/soak two had an index that was given up for this, and was not there when it was
# their turn.)
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

my $old = new_primary('old', "wal_log_hints = on\n", install_path => install_with_stop_points());
my $new = new_standby($old, 'new', undef, install_path => $old->{_install_path});

both_valid($new, 'before');

# ---- the two change places ----

$old->stop('fast');
$new->promote;
$old->enable_streaming($new);
use_stop_points($old);
hold('redo_new_timeline');
$old->start;
is_held('redo_new_timeline', 'the first record of the new primary');

# A build begins between the end of one primary's records and the first of the other's.
wait_for_state($old, $_, qr/^(building|valid)/, "in that record: $_") foreach qw(t_k t_s);
release('redo_new_timeline');
both_valid($old, 'after it');

# ---- the new primary vacuums ----

my $position = log_position($old);

$new->safe_psql('postgres', $_) foreach ('DELETE FROM t WHERE n % 3 = 0', 'VACUUM (INDEX_CLEANUP on) t',
	"INSERT INTO t SELECT i % 3000, 'more ' || i % 1000, i FROM generate_series(1, 3000) i");
caught_up($new, $old);
unlike(logged_since($old, $position), qr/is given up on this server|has been built on this standby/, 'nothing is given up');
is(standby_state($old, $_), 'valid', "vacuumed: $_") foreach qw(t_k t_s);
compare_in_snapshot($old, 'vacuumed: answers');
no_findings($old, 'vacuumed: pmhash_check');

$old->stop;
$new->stop;
done_testing();
