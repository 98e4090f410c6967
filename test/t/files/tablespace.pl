# SET TABLESPACE of indexes, tables and databases: the main fork goes, the
# index file stays where it is and goes on being valid, through crashes and
# cleaners.  A database copied to another tablespace has its indexes rebuilt.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('tablespace');
my $location = PostgreSQL::Test::Utils::tempdir();
mkdir("$location/$_") or die foreach ('a', 'b', 'c');
$node->start;
$node->safe_psql('postgres', "CREATE TABLESPACE $_ LOCATION '$location/$_'") foreach ('a', 'b', 'c');
$node->safe_psql('postgres', 'CREATE DATABASE d');
install_extension($node, 'd');
$node->safe_psql('d', invalid_fixture());
$node->safe_psql('d', <<SQL);
CREATE UNLOGGED TABLE u (k int4);
CREATE INDEX u_k ON u USING pmhash (k);
INSERT INTO u SELECT generate_series(1, 500);
SQL

sub files
{
	return $node->safe_psql('d', 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash_indexes');
}

# Nothing was rebuilt, and rebuilds are off: the same files, all answers.
sub kept
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($files, $name) = @_;

	is($node->safe_psql('d', 'SELECT DISTINCT state FROM pmhash_indexes'), 'valid', "$name: valid");
	is(files(), $files, "$name: the same files");
	same_answers($node, 'u', 'k', 'u_k', "$name, unlogged", 'd');
	all_come_back($node, $name, 'd');
	return;
}

# event: `SET TABLESPACE`, of index, table or database
rebuild_off($node);
my $files = files();
foreach my $command (
	'ALTER INDEX t_k SET TABLESPACE a',
	'BEGIN; ALTER INDEX t_v SET TABLESPACE a; ROLLBACK',
	'ALTER TABLE t SET TABLESPACE b',
	'ALTER TABLE u SET TABLESPACE a; ALTER INDEX u_k SET TABLESPACE b',
	'ALTER INDEX ALL IN TABLESPACE a SET TABLESPACE pg_default',
	'ALTER INDEX ex_k SET TABLESPACE b; ALTER INDEX ex_k SET TABLESPACE a',
	'ALTER TABLE ALL IN TABLESPACE a SET TABLESPACE pg_default; ALTER TABLE ALL IN TABLESPACE b SET TABLESPACE pg_default',
	'ALTER INDEX ALL IN TABLESPACE a SET TABLESPACE pg_default; ALTER INDEX ALL IN TABLESPACE b SET TABLESPACE pg_default')
{
	change_rows($node, 'd');
	$node->safe_psql('d', $_) foreach $command =~ /BEGIN/ ? ($command) : split(/; /, $command);
	change_rows($node, 'd');
	kept($files, $command);
}
crash($node);
$node->start;
# a crash takes the file of the unlogged index
$node->safe_psql('d', 'INSERT INTO u SELECT generate_series(1, 500)');
$files = files();
all_come_back($node, 'crash after SET TABLESPACE', 'd');

change_rows($node, 'd');
$node->safe_psql('postgres', 'ALTER DATABASE d SET TABLESPACE b');
kept($files, 'ALTER DATABASE');
change_rows($node, 'd');
crash($node);
$node->start;
$node->safe_psql('d', 'INSERT INTO u SELECT generate_series(1, 500)');
all_come_back($node, 'crash after ALTER DATABASE', 'd');
$files = files();
$node->safe_psql('postgres', 'ALTER DATABASE d SET TABLESPACE pg_default');
kept($files, 'ALTER DATABASE, back');
wait_for_files(pool($node), 5, 'the cleaner has left all files and nothing else');

# REINDEX into another tablespace makes a new file and leaves no old one
$node->safe_psql('d', 'REINDEX (TABLESPACE a) TABLE t; REINDEX (TABLESPACE b, CONCURRENTLY) INDEX t_k');
all_come_back($node, 'REINDEX (TABLESPACE)', 'd');
wait_for_files(pool($node), 5, 'REINDEX (TABLESPACE), files');

# event: `SET TABLESPACE` of a table, then `TRUNCATE`, in one transaction
# ---- emptied in place in a transaction that has moved the table, and rolled back ----
# PostgreSQL truncates the main forks of the indexes, which are not new.
$node->safe_psql('d', <<SQL);
CREATE TABLE m (k int4);
CREATE INDEX m_k ON m USING pmhash (k);
INSERT INTO m SELECT generate_series(1, 500);
CREATE TABLE x (k int4, CONSTRAINT x_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO x SELECT generate_series(1, 500);
SQL
foreach my $end ('ROLLBACK', 'COMMIT')
{
	my $rows = $end eq 'COMMIT' ? 2 : 500;
	my $find = 'SET enable_seqscan = off; SELECT count(*) FROM m, generate_series(1, 500) i WHERE m.k = i';

	$node->safe_psql('d', <<SQL);
BEGIN;
ALTER TABLE m SET TABLESPACE a;
TRUNCATE m;
INSERT INTO m VALUES (3), (4);
$end;
SQL
	is($node->safe_psql('d', $find), $rows, "moved, emptied, $end: answers");
	like(index_state($node, 'm_k', 'd'), qr/^invalid: its table was given another tablespace/, "moved, emptied, $end: state");
	rebuild_on($node);
	$node->poll_query_until('d', "SELECT count(*) = 0 FROM pmhash_indexes WHERE state NOT IN ('valid', 'empty')");
	rebuild_off($node);
	is($node->safe_psql('d', $find), $rows, "moved, emptied, $end: answers by the index");
	same_answers($node, 'm', 'k', 'm_k', "moved, emptied, $end", 'd');
	$node->safe_psql('d', 'ALTER TABLE m SET TABLESPACE pg_default');
}

# A constraint can't be checked, until REINDEX.
my $move = 'BEGIN; ALTER TABLE x SET TABLESPACE a; TRUNCATE x;';
fails_like($node, "\\set VERBOSITY verbose\n$move INSERT INTO x VALUES (3)", qr/55000: cannot use pmhash index "x_k" because its table was moved.*REINDEX INDEX/s, 'moved, emptied, constraint: cannot be checked', 'd');
fails_like($node, 'INSERT INTO x VALUES (3)', qr/"x_k" has no usable file.*REINDEX INDEX/s, 'moved, emptied, constraint: nor after ROLLBACK', 'd');
fails_like($node, "$move REINDEX INDEX x_k; INSERT INTO x VALUES (3), (4); INSERT INTO x VALUES (5), (3)", qr/violates exclusion constraint "x_k"/, 'moved, emptied, REINDEX: holds', 'd');
rebuild_on($node);
$node->poll_query_until('d', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'");
rebuild_off($node);
same_answers($node, 'x', 'k', 'x_k', 'moved, emptied, rebuilt', 'd');
fails_like($node, 'INSERT INTO x VALUES (3)', qr/violates exclusion constraint "x_k"/, 'moved, emptied, rebuilt: holds', 'd');
$node->safe_psql('d', 'DROP TABLE m, x');

# ---- a copy in another tablespace ----
foreach my $strategy ('wal_log', 'file_copy')
{
	$node->safe_psql('postgres',
		"CREATE DATABASE copy_$strategy TEMPLATE d TABLESPACE c STRATEGY $strategy");
	stays_invalid($node, 'it does not exist', "copy by $strategy", "copy_$strategy");
}
rebuild_on($node);
all_come_back($node, "copy by $_", "copy_$_") foreach ('wal_log', 'file_copy');
all_come_back($node, 'the original', 'd');
$node->stop;
done_testing();
