# What the tests of builds on a standby share.

package PmhashStandbyBuild;

use strict;
use warnings;

use Exporter 'import';
use PmhashStandby;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  built
  compare
  same_as_heap
  uses_index
  write_all_ways
);

# A test: the standby gets to have all indexes of a database.
sub built
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($primary, $standby, $name, $database) = @_;

	$database //= 'postgres';
	caught_up($primary, $standby);
	return ok($standby->poll_query_until($database,
		"SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid'"),
		"$name: all built")
	  || diag($standby->safe_psql($database, 'SELECT index, state FROM pmhash.indexes'));
}

# What index, bitmap and index-only scans give for each key, against what is in the
# table, in one snapshot; and what pmhash.check finds.  A snapshot may be too old
# for a file that has just been built: then with a later one.
sub compare
{
	my ($standby, $table, $key, $index, $database) = @_;
	my $deadline = time + 60;
	my $said;

	do
	{
		my ($status, $stdout, $stderr) = $standby->psql($database // 'postgres', <<SQL);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT by_index, by_bitmap FROM every_key('$table', '$key', '$index');
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT count(*) FROM (SELECT $key, count(*) FROM $table WHERE $key IS NOT NULL GROUP BY 1) wanted (k, n),
	LATERAL (SELECT count(*) FROM $table WHERE $key = wanted.k) got (n) WHERE got.n <> wanted.n;
COMMIT;
SELECT pmhash.check('$index');
SQL
		$said = "$status $stdout$stderr";
	  } while ($said =~ /^0 not used|conflict with recovery/ && time < $deadline);
	return $said;
}

# The same as a test.
sub same_as_heap
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($standby, $table, $key, $index, $name, $database) = @_;

	return is(compare($standby, $table, $key, $index, $database),
		"0 same|same\n0\n", "$name: $index");
}

# A test: a query has a plan with this index.
sub uses_index
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($standby, $query, $index) = @_;

	return like($standby->safe_psql('postgres', "EXPLAIN $query"), qr/\b$index\b/,
		"EXPLAIN shows $index");
}

# What hurts if it is forgotten, or comes twice: rows of a table (k, v) that are inserted,
# deleted, updated in place, and TIDs that are freed and given to other keys.
sub write_all_ways
{
	my ($primary, $table, $database) = @_;

	$primary->safe_psql($database // 'postgres', $_) foreach (
		"DELETE FROM $table WHERE k % 50 = 7",
		"UPDATE $table SET v = v + 1 WHERE k % 50 = 8",
		"UPDATE $table SET k = k + 1 WHERE k % 50 = 9",
		"BEGIN; INSERT INTO $table SELECT 1000, i FROM generate_series(1, 100) i; ROLLBACK",
		"VACUUM $table",
		"INSERT INTO $table SELECT i % 500 + 1, i FROM generate_series(1, 300) i",
		"BEGIN; INSERT INTO $table SELECT 1001, i FROM generate_series(1, 30) i; DELETE FROM $table WHERE k = 1001; COMMIT");
	return;
}

1;
