# A copy of a database has stubs that name files of the original.  Whatever is done to its
# indexes, no server takes these files for the copy's.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashStandbyBuild;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $state = "SELECT state FROM pmhash_indexes WHERE index = 'x_k'";

# no process marks what it finds unless it is asked to use it
my $primary = new_primary('primary', "pmhash.rebuild = off\npmhash.cleaner_naptime = 3600\n");

sub make_original
{
	my ($name) = @_;

	$primary->safe_psql('postgres', "CREATE DATABASE $name");
	install_extension($primary, $name);
	$primary->safe_psql($name, <<SQL);
CREATE TABLE x (k int) WITH (autovacuum_enabled = off);
INSERT INTO x SELECT i % 10 FROM generate_series(1, 1000) i;
CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = on);
SQL
	return;
}

sub wait_valid
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $database, $name) = @_;

	return ok($node->poll_query_until($database, "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'"), "$name: $database is valid");
}

# A test: what queries on the table of a database find that may use the index.
sub finds
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $database, $wanted, $name) = @_;

	return is($node->safe_psql($database, 'SET enable_seqscan = off; SET enable_bitmapscan = off; '
			  . 'SELECT count(*) FROM x WHERE k = 3'), $wanted, "$name: rows in $database");
}

# ---- the file of the original is there when a copy's index is altered ----

make_original('d1');
my $standby = new_standby($primary, 'first', "pmhash.rebuild = on\n");
wait_valid($standby, 'd1', 'first');
my $file = $standby->safe_psql('d1', 'SELECT file FROM pmhash_indexes');
my $kept = $standby->basedir . '/kept';
link($file, $kept) or die $!;    # so that no other gets its inode
$primary->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''");
my %change = (
	wal_log => 'ALTER INDEX x_k SET (fillfactor = 80)',
	file_copy => 'ALTER INDEX x_k RENAME TO x_k2; ALTER INDEX x_k2 RENAME TO x_k',
	elsewhere => 'ALTER INDEX x_k SET TABLESPACE elsewhere');
foreach my $name (sort keys %change)
{
	my $strategy = $name eq 'elsewhere' ? 'wal_log' : $name;

	$primary->safe_psql('postgres', "CREATE DATABASE by_$name TEMPLATE d1 STRATEGY $strategy");
	$primary->safe_psql("by_$name", $change{$name});
	caught_up($primary, $standby);
	$standby->safe_psql("by_$name", 'SET enable_seqscan = off; EXPLAIN SELECT * FROM x WHERE k = 3');
	is((stat($file))[1], (stat($kept))[1], "$name: the original's file is still there");
	isnt($standby->safe_psql("by_$name", $state), 'valid', "$name: the copy has none");
	finds($standby, "by_$name", 100, $name);
}
is($standby->safe_psql('d1', $state), 'valid', 'and in use');

# the copy gets its own
$primary->safe_psql('by_wal_log', 'REINDEX INDEX x_k; DELETE FROM x WHERE k = 3; VACUUM x');
caught_up($primary, $standby);
wait_valid($standby, 'by_wal_log', 'REINDEX');
finds($standby, 'by_wal_log', 0, 'REINDEX');
finds($standby, 'd1', 100, 'REINDEX');
is((stat($file))[1], (stat($kept))[1], 'REINDEX: the original has what it had');
$standby->stop;

# ---- a standby comes to the copy first ----

# no other database keeps the builders
$primary->safe_psql('postgres', $_)
  foreach (map { "DROP DATABASE $_" } 'd1', map { "by_$_" } keys %change), 'DROP TABLESPACE elsewhere', 'DROP TABLE t';

# y_k shows that a builder has been there.
make_original('d3');
$primary->safe_psql('postgres', 'CREATE DATABASE d4 TEMPLATE d3');
$primary->safe_psql('d4', <<SQL);
ALTER INDEX x_k SET (fillfactor = 80);
CREATE TABLE y (k int);
CREATE INDEX y_k ON y USING pmhash (k) WITH (wal = on);
SQL

# A standby whose builders come to the copy while the table of the original is locked.
sub standby_with_copy_first
{
	my ($name) = @_;
	my $session = $primary->background_psql('d3', on_error_stop => 1);
	my $node;

	$session->query_safe('BEGIN; LOCK TABLE x');
	$node = new_standby($primary, $name, "pmhash.rebuild = on\n");
	$node->poll_query_until('d4', q(SELECT bool_or(state LIKE 'building%') FROM pmhash_indexes)) or die 'nothing is built';
	$session->query_safe('COMMIT');
	$session->quit;
	$node->poll_query_until('d4', q(SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'y_k')) or die 'y_k is not built';
	return $node;
}

$standby = standby_with_copy_first('second');
wait_valid($standby, 'd3', 'copy first');
$primary->safe_psql('d3', 'DELETE FROM x WHERE k = 3; VACUUM x');
caught_up($primary, $standby);
finds($standby, 'd4', 100, 'copy first');
$standby->promote;
finds($standby, 'd4', 100, 'copy first, promoted');
finds($standby, 'd3', 0, 'copy first, promoted');
same_as_heap($standby, 'x', 'k', 'x_k', 'copy first, promoted: the original', 'd3');
$standby->stop;
$primary->stop;
done_testing();
