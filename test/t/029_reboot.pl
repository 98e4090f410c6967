# The machine was booted again: what that means for files in the page cache
# (class cache) and for persistent memory (class dax), after a clean shutdown
# and after none.  A boot is told by its id, which the test changes in the
# control file; what is in the page cache survives here, so the decision is
# tested and not the loss.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $power = 'the operating system went down before it was written back';

# A server with rows in t that its last checkpoint does not know of.
sub change
{
	my ($node) = @_;

	$node->safe_psql('postgres', <<SQL);
DELETE FROM t WHERE k % 7 = 0;
VACUUM t;
INSERT INTO t SELECT i % 3000, i FROM generate_series(10000, 11000) i;
SQL
	return;
}

# Rows that are lost with a crash: WAL that nobody has flushed.  Their entries
# are in the index file by then.
sub lose_rows
{
	my ($node) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query_safe('BEGIN; INSERT INTO t SELECT 77777, i FROM generate_series(1, 50) i');
	crash($node);
	eval { $session->quit };
	return;
}

sub classes
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT string_agg(DISTINCT durability, $$,$$) FROM pmhash_indexes');
}

# wal_writer_delay: nobody flushes the WAL of rows that are to be lost
my $settings = "wal_writer_delay = 10s\nwal_writer_flush_after = 0\npmhash.sweep_naptime = 600\n";

# ---- class cache ----
my $cache = new_server('cache', $settings);
my $pool = pool($cache);
$cache->start;
install_extension($cache);
$cache->safe_psql('postgres', invalid_fixture());
is(classes($cache), 'cache', 'class');

# event: clean shutdown, reboot, start
change($cache);
my $files = join(' ', index_files($pool));
$cache->stop;
pretend_reboot($pool);
rebuild_off($cache);
$cache->start;
is($cache->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash_indexes'), 'valid', 'cache, clean shutdown: valid');
is(join(' ', index_files($pool)), $files, 'cache, clean shutdown: the same files');
all_come_back($cache, 'cache, clean shutdown');

# event: power failure, crash or reset of the operating system
change($cache);
lose_rows($cache);
pretend_reboot($pool);
my $from = -s $cache->logfile;
$cache->start;
like(slurp_file($cache->logfile, $from), qr/the operating system went down without a clean shutdown/, 'cache, unclean: log');
stays_invalid($cache, $power, 'cache, unclean');
rebuild_on($cache);
all_come_back($cache, 'cache, unclean');
change($cache);
crash($cache);
$cache->start;
all_come_back($cache, 'cache, unclean, then a crash');

# an immediate shutdown is no clean one
change($cache);
$cache->stop('immediate');
pretend_reboot($pool);
rebuild_off($cache);
$cache->start;
stays_invalid($cache, $power, 'cache, immediate shutdown');
rebuild_on($cache);
all_come_back($cache, 'cache, immediate shutdown');

# Killed, booted, started without the library and shut down in order: what
# was in the page cache is as lost as before.
change($cache);
crash($cache);
pretend_reboot($pool);
$cache->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$cache->start;
$cache->stop;
$cache->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");
rebuild_off($cache);
$cache->start;
stays_invalid($cache, $power, 'cache, unclean, a start without the library');
rebuild_on($cache);
all_come_back($cache, 'cache, unclean, a start without the library');

# Two boots, the second start before anything was rebuilt.
change($cache);
crash($cache);
pretend_reboot($pool);
rebuild_off($cache);
$cache->start;
crash($cache);
pretend_reboot($pool);
$cache->start;
stays_invalid($cache, $power, 'cache, unclean twice');
rebuild_on($cache);
all_come_back($cache, 'cache, unclean twice');
$cache->stop;

# ---- class dax: libpmem is made to believe in persistent memory ----
$ENV{PMEM_IS_PMEM_FORCE} = 1;
my $dax = new_server('dax', $settings);
$pool = pool($dax);
$dax->start;
install_extension($dax);
$dax->safe_psql('postgres', invalid_fixture());
is(classes($dax), 'dax', 'class');
rebuild_off($dax);

change($dax);
$dax->stop;
pretend_reboot($pool);
$dax->start;
is($dax->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash_indexes'), 'valid', 'dax, clean shutdown: valid');
all_come_back($dax, 'dax, clean shutdown');

change($dax);
$files = join(' ', index_files($pool));
lose_rows($dax);
pretend_reboot($pool);
$from = -s $dax->logfile;
$dax->start;
is($dax->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash_indexes'), 'valid', 'dax, unclean: valid');
is(join(' ', index_files($pool)), $files, 'dax, unclean: the same files');
like(slurp_file($dax->logfile, $from), qr/undo journal: \d+ records, .* (50|[1-9]\d\d+) entries taken out/,
	'dax, unclean: entries of lost rows are taken out');
all_come_back($dax, 'dax, unclean');
is($dax->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 77777'), '0',
	'dax, unclean: no lost row');
$dax->stop;

# The same files on a machine that takes them for page cache: they have been
# through a reboot, and what libpmem says today counts.
delete $ENV{PMEM_IS_PMEM_FORCE};
$dax->start;
stays_invalid($dax, $power, 'once dax, now cache');
rebuild_on($dax);
all_come_back($dax, 'once dax, now cache');
is(classes($dax), 'cache', 'class');
$dax->stop;
done_testing();
