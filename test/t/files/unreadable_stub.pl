# The page of an index's main fork that names its file cannot be read: an error of the
# disk.  What does away with that page works nevertheless: REINDEX, DROP INDEX, DROP
# TABLE, TRUNCATE; and so does DDL on other indexes of the table.

use strict;
use warnings;

use File::Copy qw(copy);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid qw(index_file);
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $shim = preloadable('read_error');
my $bad = "$PostgreSQL::Test::Utils::tmp_check/bad_inodes";

my $node = new_server('unreadable', <<CONF);
pmhash.rebuild = off
max_prepared_transactions = 2
CONF
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE a (k int, v int);
INSERT INTO a SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX a_k ON a USING pmhash (k);
CREATE INDEX a_v ON a USING pmhash (v);
CREATE TABLE b (k int);
CREATE INDEX b_k ON b USING pmhash (k);
CREATE TABLE c (k int);
INSERT INTO c SELECT i FROM generate_series(1, 100) i;
CREATE INDEX c_k ON c USING pmhash (k);
CREATE TABLE d (k int);
CREATE INDEX d_k ON d USING pmhash (k);
SQL
my $pool = pool($node);
my ($status, $stdout, $stderr);
is(scalar(index_files($pool)), 5, 'five files');

# The files whose pages are bad, when the server has started.
sub restart_with_bad
{
	my @inodes = map { (stat($node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$_')")))[1] } @_;
	$node->stop;
	open(my $out, '>', $bad) or die "$bad: $!";
	print $out "$_\n" foreach @inodes;
	close($out) or die "$bad: $!";
	$node->start;
	return;
}

# It works, whatever was read before.
sub works
{
	my ($sql, $what) = @_;
	my ($status, $stdout, $stderr) = $node->psql('postgres', $sql);

	is($status, 0, $what) or diag($stderr);
	return $stdout;
}

{
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{READ_ERRORS} = $bad;

	restart_with_bad('a_k', 'b_k', 'c_k', 'd_k');
	($status, $stdout, $stderr) = $node->psql('postgres', 'SELECT pmhash_check(\'a_k\')');
	like($stderr, qr/could not read blocks? 0(\.\.0)? in file .*: Input\/output error/, 'the page cannot be read');
	works('REINDEX INDEX a_v', 'REINDEX of the other index of the table');
	works('DROP INDEX a_v', 'DROP of it');
	works('REINDEX INDEX a_k', 'REINDEX');
	is(works('SET enable_seqscan = off; SELECT v FROM a WHERE k = 7', 'the index is used again'), '7', 'the row is found');
	works('SELECT pmhash_check(\'a_k\')', 'it is as the table says');
	works('DROP INDEX b_k', 'DROP INDEX');
	works('TRUNCATE c', 'TRUNCATE');
	works('INSERT INTO c VALUES (1)', 'a row after that');
	is(works('SET enable_seqscan = off; SELECT count(*) FROM c WHERE k = 1', 'found'), '1', 'once');
	works("BEGIN; DROP TABLE d; PREPARE TRANSACTION 'd'", 'DROP TABLE, prepared');
	works("COMMIT PREPARED 'd'", 'and committed');
}

# What had no known owner is removed by the cleaner.
$node->stop;
unlink($bad);
$node->start;
$node->poll_query_until('postgres', "SELECT count(*) = 2 FROM pg_ls_dir('$pool/' || (SELECT oid FROM pg_database WHERE datname = 'postgres'))")
  or fail('the files of old are removed');
is(scalar(index_files($pool)), 2, 'two files are left');
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT state, ',') FROM pmhash_indexes"), 'valid', 'all indexes are valid');

# A main fork that is not there: the cleaner goes on, and what does away with it works.
my $fork = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('c_k')");
$node->stop;
unlink($fork) or die "$fork: $!";
my $from = -s $node->logfile;
$node->start;
ok($node->wait_for_log(qr/LOG: .*"c_k" has: No such file or directory/, $from) , 'the cleaner says so');
sleep(3);    # naptimes
unlike(slurp_file($node->logfile, $from), qr/ERROR/, 'and does not fail of it');
works('DROP INDEX c_k', 'DROP INDEX without a main fork');
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_ls_dir('$pool/' || (SELECT oid FROM pg_database WHERE datname = 'postgres'))")
  or fail('its file is removed');

# A main fork that may not be opened: it is shown, the cleaner goes on with what belongs to
# others, and what would do away with it is refused.
$node->safe_psql('postgres', 'CREATE INDEX a_v ON a USING pmhash (v)');
my $old = index_file($node, 'a_v');
copy($old, "$old.copy") or die "$old: $!";
$node->safe_psql('postgres', 'REINDEX INDEX a_v');
$fork = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('a_k')");
$node->stop;
rename("$old.copy", $old) or die "$old: $!";
chmod(0, $fork) or die "$fork: $!";
$from = -s $node->logfile;
$node->start;
is($node->safe_psql('postgres', "SELECT string_agg(index || ' ' || state, ', ' ORDER BY index) FROM pmhash_indexes"), 'a_k unreadable, a_v valid',
	'a fork that may not be opened is shown');
$node->poll_query_until('postgres', "SELECT pg_stat_file('$old', true) IS NULL")
  or fail('a file that belongs to another index is removed');
like(slurp_file($node->logfile, $from), qr/LOG: .*"a_k" has: Permission denied/, 'the cleaner says so');
unlike(slurp_file($node->logfile, $from), qr/ERROR/, 'and does not fail of it');
($status, $stdout, $stderr) = $node->psql('postgres', 'DROP INDEX a_k');
like($stderr, qr/^\S+ ERROR: .*could not open file .*: Permission denied/, 'DROP INDEX is refused: after its commit the server would PANIC');
chmod(0600, $fork) or die "$fork: $!";
works('DROP INDEX a_k', 'DROP INDEX when it may be opened again');

# What is replaced by a transaction need not be an index: no page is taken for empty
# because it can't be read, in case the commit fails.
$node->safe_psql('postgres', <<SQL);
CREATE TABLE r (k int);
CREATE INDEX r_k ON r USING pmhash (k);
INSERT INTO r VALUES (1), (2);
CREATE TABLE skew (n int);
INSERT INTO skew VALUES (1), (2);
SQL
$fork = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('r')");
my $checked = $node->safe_psql('postgres', 'SHOW data_checksums') eq 'on';
$node->stop;
system_or_bail('pg_checksums', '--enable', '-D', $node->data_dir) if !$checked;
open(my $file, '+<:raw', $fork) or die "$fork: $!";
seek($file, 8000, 0);
print $file "\xff";
close($file) or die "$fork: $!";
$node->start;
my ($one, $other) = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
$one->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(n) FROM skew; TRUNCATE r; INSERT INTO skew VALUES (3);');
$other->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(n) FROM skew; INSERT INTO skew VALUES (4); COMMIT;');
$one->query('COMMIT;');
$_->quit foreach $one, $other;
is($node->safe_psql('postgres', 'SELECT sum(n) FROM skew'), '7', 'the TRUNCATE has failed');
($status, $stdout, $stderr) = $node->psql('postgres', 'SELECT count(*) FROM r');
like($stderr, qr/ERROR: .*invalid page in block 0/, 'the page is as bad as before, and not empty');
$node->stop;
done_testing();
