# A stub in a copy of a database that says that the original's file is its own, and logged:
# ALTER INDEX made such ones once, and they may be in a backup.  A standby uses no file for
# them that the original has, and keeps none up to date by the original's records.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# where the stub says whose database the file is of: after the header of the page
my $STUB_DATABASE = 24 + 56;

# no process marks what it finds unless it is asked to use it
my $primary = new_primary('primary', "pmhash.rebuild = off\npmhash.cleaner_naptime = 3600\n");

# pages are changed from outside
if ($primary->safe_psql('postgres', 'SHOW data_checksums') eq 'on')
{
	$primary->stop;
	system_or_bail('pg_checksums', '--disable', '-D', $primary->data_dir);
	$primary->start;
}
$primary->safe_psql('postgres', $_) foreach 'DROP TABLE t', 'CREATE DATABASE original';
install_extension($primary, 'original');
$primary->safe_psql('original', <<SQL);
CREATE TABLE x (k int) WITH (autovacuum_enabled = off);
INSERT INTO x SELECT i % 10 FROM generate_series(1, 1000) i;
CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = on);
SQL
my $standby = new_standby($primary, 'standby', "pmhash.rebuild = on\n");
$primary->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE original');
caught_up($primary, $standby);
ok($standby->poll_query_until('original', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'"), 'valid in the original');

my $oid = $primary->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'copy'");
my $page = $primary->safe_psql('copy', "SELECT pg_relation_filepath('x_k')");

sub finds
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($database, $wanted, $name) = @_;

	return is($standby->safe_psql($database, 'SET enable_seqscan = off; SET enable_bitmapscan = off; '
			  . 'SELECT count(*) FROM x WHERE k = 3'), $wanted, "$name: rows in $database");
}

# ---- the original's file is there ----

my $file = $standby->safe_psql('original', 'SELECT file FROM pmhash_indexes');
my $kept = $standby->basedir . '/kept';
link($file, $kept) or die $!;    # so that no other gets its inode
$primary->safe_psql('postgres', 'CHECKPOINT');
$standby->safe_psql('postgres', 'CHECKPOINT');
$_->stop foreach $standby, $primary;
patch_file($_->data_dir . "/$page", $STUB_DATABASE, pack('L', $oid)) foreach $primary, $standby;
$_->start foreach $primary, $standby;
caught_up($primary, $standby);
ok($standby->poll_query_until('original', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'"), 'started again: valid in the original');
finds('copy', 100, 'file there');
isnt($standby->safe_psql('copy', 'SELECT state FROM pmhash_indexes'), 'valid', 'it is not the file of the copy');
is($standby->safe_psql('original', 'SELECT state FROM pmhash_indexes'), 'valid', 'but of the original');
is((stat($file))[1], (stat($kept))[1], 'it has not been removed');
$standby->stop;

# ---- the copy's comes first ----

my $session = $primary->background_psql('original', on_error_stop => 1);
$session->query_safe('BEGIN; LOCK TABLE x');
$standby = new_standby($primary, 'second', "pmhash.rebuild = on\n");
$standby->poll_query_until('copy', q(SELECT state LIKE 'building%' FROM pmhash_indexes)) or die 'nothing is built';
$session->query_safe('COMMIT');
$session->quit;
$standby->poll_query_until('copy', q(SELECT state = 'valid' FROM pmhash_indexes)) or die 'it is not built';
isnt($standby->safe_psql('original', 'SELECT state FROM pmhash_indexes'), 'valid', 'it is not the file of the original');
$primary->safe_psql('original', 'DELETE FROM x WHERE k = 3; VACUUM x');
caught_up($primary, $standby);
finds('copy', 100, 'copy first');
finds('original', 0, 'copy first');
like(slurp_file($standby->logfile), qr/LOG: .* is given up on this server: a file of another database has the same id/, 'copy first: log');
$standby->stop;
$primary->stop;
done_testing();
