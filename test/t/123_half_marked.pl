# A primary that is killed while it marks a stub as invalid: what is in WAL then must not
# let standbys go on with a file that misses entries from there on.
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

# Nothing is put right in the background, so the stub stays as the crash has left it.
my $primary = new_primary('primary', <<CONF, install_path => install_with_stop_points());
pmhash.cleaner_naptime = 1000
pmhash.rebuild = off
wal_writer_delay = 10s
wal_writer_flush_after = 100MB
CONF
my $standby = new_standby($primary, 'standby', "pmhash.rebuild = on\n");

use_stop_points($primary);
$primary->safe_psql('postgres', 'CREATE TABLE other (k integer)');
wait_for_state($standby, $_, qr/^valid$/, "begin: $_") foreach qw(t_k t_s);

# It has the stub in its memory, and the file mapped.
my $count = 'SELECT count(*) FROM t WHERE k = 30000';
my $reader = $standby->background_psql('postgres', on_error_stop => 1);
$reader->query_safe('SET enable_seqscan = off');
like($reader->query_safe("EXPLAIN $count"), qr/t_k/, 'a session of the standby uses the index');
is($reader->query_safe($count), '0', 'it finds nothing');

# A session finds the file to be gone.  One of both records gets to disk, by the commit
# of another session.  (Only that file: if another one is given up on the standby all
# sessions there read all stubs again.)
my $file = $primary->safe_psql('postgres', q(SELECT file FROM pmhash_stats('t_k')));
unlink($file) or die "$file: $!";
my $writer = start_and_hold('stub_half_marked', "INSERT INTO t VALUES (30000, 'x', 1)", 'marking');
$primary->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
crash($primary);
finish($writer);
release('stub_half_marked');
$primary->start;
$primary->safe_psql('postgres', "INSERT INTO t SELECT 30000, 'x', i FROM generate_series(1, 100) i");
caught_up($primary, $standby);
is($reader->query_safe($count), '100', 'the session of the standby finds all rows that have come since');
$reader->quit;
is($standby->safe_psql('postgres', "SET enable_seqscan = off; $count"), '100', 'so does a new one');

# ---- and when it is rebuilt, it is there again ----

$primary->append_conf('postgresql.conf', "pmhash.rebuild = on\npmhash.cleaner_naptime = 1\n");
$primary->reload;
foreach my $node ($primary, $standby)
{
	wait_for_state($node, $_, qr/^valid$/, $node->name . ": $_ again") foreach qw(t_k t_s);
	caught_up($primary, $standby);
	compare_in_snapshot($node, $node->name . ': answers');
}
$_->stop foreach $standby, $primary;
done_testing();
