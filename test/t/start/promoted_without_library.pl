# A primary is shut down, started and killed before it has used pmhash.  Then it becomes the
# standby of another server, without the library, is promoted, and killed before pg_control
# has a checkpoint of that life.  What it has there is the checkpoint of before, and the
# tables have rows that no index file of it has.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $old = new_primary('old', "checkpoint_timeout = 1h\n");
my $new = new_standby($old, 'new');

caught_up($old, $new);
$old->stop;
die_in_start($old);
$new->promote;
$new->safe_psql('postgres', q(INSERT INTO t SELECT i % 3000, 'new', i FROM generate_series(1, 3000) i));

$old->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$old->enable_streaming($new);
$old->start;
caught_up($new, $old);
kill('STOP', $old->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer')));
$old->promote;
crash($old);

my ($control) = run_command([ 'pg_controldata', $old->data_dir ]);
like($control, qr/Latest checkpoint's TimeLineID:\s+1\n/, 'no checkpoint of the promoted life');
$old->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");

# event: started and killed, then a standby without the library that is promoted and killed
# trust: timeline-at-start
my $from = -s $old->logfile;
$old->start;
like(slurp_file($old->logfile, $from), qr/not trusted: the server is on another timeline/, 'not trusted');
wait_for_state($old, 't_k', qr/^valid$/, 'rebuilt');
same_answers($old, 't', 'k', 't_k', 'rows of the other server');
$_->stop foreach $old, $new;
done_testing();
