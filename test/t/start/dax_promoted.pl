# A primary on persistent memory becomes a standby, is promoted, and killed before it uses
# pmhash; then the power goes.  It has files of indexes that are not logged, which lack
# what was replayed: that its journal had been on persistent memory, when it was a primary,
# does not make them good.
#
# As in start/reboot.pl persistent memory is made believe, and a boot takes the marker away.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

my $shim = preloadable('map_sync');
local $ENV{LD_PRELOAD} = $shim;
local $ENV{PMEM_IS_PMEM_FORCE} = 1;

my @library = (install_path => install_with_stop_points());
my $primary = new_primary('primary', "pmhash.wal = on\npmhash.rebuild = off\n", @library);
$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE o (k integer) WITH (autovacuum_enabled = off);
INSERT INTO o SELECT i % 500 FROM generate_series(1, 5000) i;
CREATE INDEX o_k ON o USING pmhash (k) WITH (wal = off);
SQL
is($primary->safe_psql('postgres', 'SELECT DISTINCT durability FROM pmhash_indexes'), 'dax', 'class');
$primary->stop;

# a copy of data directory and pool, which follows it
my $copy = PostgreSQL::Test::Cluster->new('copy', @library);
my $backup = $primary->backup_dir . '/copy';
mkdir $primary->backup_dir;
PostgreSQL::Test::RecursiveCopy::copypath($primary->data_dir, $backup);
unlink "$backup/postmaster.pid";
$copy->init_from_backup($primary, 'copy', has_streaming => 1);
PostgreSQL::Test::RecursiveCopy::copypath(pool($primary), pool($copy));
$primary->start;
$copy->start;
wait_for_state($copy, 't_k', qr/^valid$/, 'the copy has its files');
$primary->safe_psql('postgres', 'INSERT INTO o SELECT 7 FROM generate_series(1, 100)');
caught_up($primary, $copy);
$primary->stop;

use_stop_points($copy);
hold('promoted_before_use');
$copy->promote;
is_held('promoted_before_use', 'the first use');
crash($copy);
unlink($copy->data_dir . '/stop_points/promoted_before_use.held');
pretend_reboot(pool($copy));
$copy->start;
isnt($copy->safe_psql('postgres', q(SELECT state FROM pmhash_indexes WHERE index = 'o_k')), 'valid', 'what is not logged is not valid');
is($copy->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM o WHERE k = 7'),
	'110', 'all rows are found');
$copy->append_conf('postgresql.conf', "pmhash.rebuild = on\n");
$copy->reload;
wait_for_state($copy, $_, qr/^valid$/, "$_ is rebuilt") foreach qw(o_k t_k t_s);
same_answers($copy, 'o', 'k', 'o_k', 'rebuilt');
$copy->stop;
done_testing();
