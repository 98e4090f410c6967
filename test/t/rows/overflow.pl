# Keys chosen by one that knows an index file's seed: their entries go to the overflow
# table.  Whatever happens to it (disk full, VACUUM and scans that remove, shrinks, cursors
# in the middle, crashes) index and table agree, and the file stays small.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashCrowd;
use PmhashFaults;
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_faulty_server('overflow', <<CONF);
synchronous_commit = on
wal_writer_delay = 10s
wal_writer_flush_after = 100MB
checkpoint_timeout = 1h
max_prepared_transactions = 2
CONF

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# Make crowd number $where of the file that c_k has now: table 'keys'.
sub make_crowd
{
	my ($where, $n) = @_;
	my @keys = crowd_keys(index_file($node, 'c_k'), $where, $n);

	sql("DELETE FROM keys WHERE crowd = $where; INSERT INTO keys SELECT $where, i, k FROM unnest('{" .
		join(',', @keys) . "}'::int8[]) WITH ORDINALITY u (k, i)");
	return;
}

sub entries
{
	return sql(q(SELECT entries FROM pmhash_stats('c_k')));
}

sub right_answers
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	same_answers($node, 'c', 'k', 'c_k', $name);
	return is(sql(q(SELECT pmhash_check('c_k'))), '', "$name: pmhash_check");
}

# The same, and there are as many entries as rows.
sub agree
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	right_answers($name);
	return is(entries(), sql('SELECT count(*) FROM c'), "$name: entries");
}

my $crowd = 12000;

sql(<<SQL);
CREATE TABLE keys (crowd int4, i int4, k int8);
CREATE TABLE other (v text);
CREATE TABLE c (k int8, v int4) WITH (autovacuum_enabled = off, fillfactor = 60);
INSERT INTO c SELECT i, 0 FROM generate_series(1, 2000) i;
CREATE INDEX c_k ON c USING pmhash (k);
CREATE TABLE plain (k int8);
CREATE INDEX plain_k ON plain USING pmhash (k);
INSERT INTO plain SELECT i FROM generate_series(1, 2000 + $crowd) i;
SQL

# ---- they overflow, and the file is no larger than for other keys ----

my $file = index_file($node, 'c_k');
make_crowd($_, $crowd) foreach 1 .. 3;
sql('INSERT INTO c SELECT k, 1 FROM keys WHERE crowd = 1');
cmp_ok(overflows($file), '>', $crowd / 2, 'entries are in the overflow table');
is(sql(q(SELECT pmhash_size('c_k') <= 2 * pmhash_size('plain_k'))), 't', 'a small file');
agree('crowd');

# ---- the disk is full while it grows ----

foreach my $queue ('on', 'off')
{
	my $rows = sql('SELECT count(*) FROM c');
	my ($status, $stdout, $stderr) = $node->psql('postgres', <<SQL);
SET pmhash.group_insert = $queue;
BEGIN;
INSERT INTO c SELECT -i, 2 FROM generate_series(1, 20) i;
SET pmhash_faults.calls = 'posix_fallocate';
SET pmhash_faults.fail_for = 2000000000;
SET pmhash_faults.fail_at = 1;
DO 'BEGIN INSERT INTO c SELECT k, 2 FROM keys WHERE crowd = 2; PERFORM count(*) FROM c WHERE k = 5;
	EXCEPTION WHEN disk_full THEN INSERT INTO other VALUES (sqlerrm); END';
SET pmhash_faults.fail_at = 0;
INSERT INTO other VALUES (split_part(pmhash_faults_report(), ' ', 2));
COMMIT;
SQL

	is($stderr, '', "full, queue $queue: the transaction commits");
	is(sql(q(SELECT count(*), bool_or(v LIKE 'could not%file%') FROM other)), '2|t', "full, queue $queue: the error was caught");
	is(sql('SELECT count(*) FROM c'), $rows + 20, "full, queue $queue: rows");
	right_answers("full, queue $queue");
	sql('TRUNCATE other; VACUUM (INDEX_CLEANUP ON) c');
	agree("full, queue $queue, VACUUM");
	sql('DELETE FROM c WHERE v = 2');
}
sql('VACUUM (INDEX_CLEANUP ON) c; INSERT INTO c SELECT k, 2 FROM keys WHERE crowd = 2');
agree('there is room again');

# ---- readers stand in the middle while it grows, shrinks and is emptied ----

# A cursor on some keys of crowd 1, each in a batch of its own; what it has still to give
# is what its snapshot sees.
sub open_cursor
{
	my $reader = $node->background_psql('postgres');

	$reader->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off; SET cursor_tuple_fraction = 0');
	$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$reader->query_safe("DECLARE x CURSOR FOR SELECT k, v FROM c WHERE k = ANY (ARRAY(SELECT k FROM keys WHERE crowd = 1 AND i % 3 = 0))");
	$reader->query_safe('FETCH 100 FROM x');
	return $reader;
}

my $wanted = $crowd / 3;
my $reader = open_cursor();
my $before = sql(q(SELECT pmhash_size('c_k')));
sql('INSERT INTO c SELECT k, 3 FROM keys WHERE crowd = 3; INSERT INTO c SELECT k, 4 FROM keys WHERE crowd = 1');
cmp_ok(sql(q(SELECT pmhash_size('c_k'))), '>', $before, 'it grows under a cursor');
is(scalar(() = $reader->query_safe('FETCH ALL FROM x') =~ /^-?\d+\|1$/mg), $wanted - 100, 'it grows: all rows');
$reader->quit;

sql('DELETE FROM c WHERE v > 1 OR k IN (SELECT k FROM keys WHERE crowd = 1 AND i % 3 > 0)');
$before = sql(q(SELECT pmhash_size('c_k')));
$reader = open_cursor();
sql('VACUUM (INDEX_CLEANUP ON) c');
cmp_ok(sql(q(SELECT pmhash_size('c_k'))), '<', $before, 'it shrinks under a cursor');
is(scalar(() = $reader->query_safe('FETCH ALL FROM x') =~ /^-?\d+\|1$/mg), $wanted - 100, 'it shrinks: all rows');
$reader->quit;
sql('VACUUM (INDEX_CLEANUP ON) c');    # the reader had a page pinned
agree('shrunk');

$reader = open_cursor();
sql('DELETE FROM c');
sql('VACUUM (INDEX_CLEANUP ON) c; INSERT INTO c SELECT k, 5 FROM keys WHERE crowd = 2');
is(scalar(() = $reader->query_safe('FETCH ALL FROM x') =~ /^-?\d+\|1$/mg), $wanted - 100, 'it is emptied: all rows');
$reader->quit;
sql('DELETE FROM c WHERE v = 5; VACUUM (INDEX_CLEANUP ON) c');
is(entries(), 0, 'nothing is left');
agree('emptied');
sql('INSERT INTO c SELECT k, 1 FROM keys WHERE crowd = 1');
agree('filled again');

# ---- scans remove dead entries ----

for (1 .. 8)
{
	sql('DELETE FROM c WHERE k IN (SELECT k FROM keys WHERE crowd = 1 AND i <= 300); INSERT INTO c SELECT k, 1 FROM keys WHERE crowd = 1 AND i <= 300');
}
# each takes out some
my $scan = 'SELECT count(v) FROM c WHERE k = ANY (ARRAY(SELECT k FROM keys WHERE crowd = 1 AND i <= 300))';
foreach (1 .. 20)
{
	sql(join('; ', 'SET enable_seqscan = off; SET enable_bitmapscan = off', ($scan) x 20));
	last if entries() == $crowd;
}
is(entries(), $crowd, 'scans have removed all that was dead');
agree('removed by scans');

# ---- the server dies ----

sub dies
{
	my ($name, $how) = @_;
	my $rows = sql('SELECT count(*) FROM c');
	my $had = index_file($node, 'c_k');

	sql('CHECKPOINT');
	hold_wal_writer($node);
	sql('SET synchronous_commit = off; INSERT INTO c SELECT k, 9 FROM keys WHERE crowd = 2');
	$how->();
	is(sql('SELECT count(*) FROM c'), $rows, "$name: rows are lost");
	agree($name);
	sql('INSERT INTO c SELECT k, 7 FROM keys WHERE crowd = 3');
	is(sql('SELECT count(*) FROM (SELECT k FROM keys WHERE crowd = 2 OFFSET 0) x JOIN c USING (k)'), 0, "$name: no entry of theirs finds others");
	agree("$name, TIDs used again");
	is(index_file($node, 'c_k'), $had, "$name: the file that it had");
	return sql('DELETE FROM c WHERE v = 7; VACUUM (INDEX_CLEANUP ON) c');
}

dies('killed', sub { crash($node); $node->start; });
dies('restarted in place', sub { restart_in_place($node); });

# ---- prepared, rolled back ----

sql("BEGIN; INSERT INTO c SELECT k, 8 FROM keys WHERE crowd = 2; PREPARE TRANSACTION 'p'");
sql('BEGIN; INSERT INTO c SELECT k, 8 FROM keys WHERE crowd = 3; ROLLBACK');
$node->stop('immediate');
$node->start;
sql("COMMIT PREPARED 'p'");
sql('VACUUM (INDEX_CLEANUP ON) c');
agree('prepared, and rolled back');

# ---- another file has another seed ----

unlink(index_file($node, 'c_k')) or die;
sql("INSERT INTO c VALUES (0, 0)");
$node->poll_query_until('postgres', q(SELECT bool_and(state = 'valid') FROM pmhash_indexes)) or die 'it does not come back';
$file = index_file($node, 'c_k');
is(overflows($file), 0, 'rebuilt: they do not overflow there');
agree('rebuilt');
sql('REINDEX INDEX c_k');
agree('REINDEX');
make_crowd(1, $crowd);
sql('INSERT INTO c SELECT k, 1 FROM keys WHERE crowd = 1; CHECKPOINT');
cmp_ok(overflows(index_file($node, 'c_k')), '>', $crowd / 2, 'REINDEX: new ones do');
$node->stop;
$node->start;
agree('shut down and started');
$node->stop;

# ---- a standby ----

my $primary = new_primary('overflow_primary');
$node = $primary;
sql(<<SQL);
CREATE TABLE keys (crowd int4, i int4, k int8);
CREATE TABLE c (k int8, v int4) WITH (autovacuum_enabled = off);
INSERT INTO c SELECT i, 0 FROM generate_series(1, 2000) i;
CREATE INDEX c_k ON c USING pmhash (k) WITH (wal = on);
SQL
make_crowd($_, $crowd) foreach 1 .. 2;
sql('INSERT INTO c SELECT k, 1 FROM keys WHERE crowd = 1');
my $standby = new_standby($primary, 'overflow_standby');

sub standby_agrees
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	$node = $primary;
	right_answers("$name, primary");
	caught_up($primary, $standby);
	wait_for_state($standby, 'c_k', qr/^valid$/, "$name: the standby has its file");
	$node = $standby;
	agree("$name, standby");
	$node = $primary;
	return;
}

standby_agrees('built');
sql('INSERT INTO c SELECT k, 2 FROM keys WHERE crowd = 2');
standby_agrees('inserted');
cmp_ok(overflows(index_file($standby, 'c_k')), '>', $crowd / 2, 'they overflow on the standby');
sql('DELETE FROM c WHERE v = 1 OR v = 2 AND k % 3 = 0; VACUUM (INDEX_CLEANUP ON) c');
standby_agrees('removed by VACUUM');
sql('INSERT INTO c SELECT k, 3 FROM keys WHERE crowd = 1');
$standby->stop('immediate');
sql('DELETE FROM c WHERE v = 3 AND k % 2 = 0; VACUUM (INDEX_CLEANUP ON) c; INSERT INTO c SELECT k, 4 FROM keys WHERE crowd = 2');
$standby->start;
standby_agrees('standby killed');
$primary->stop('immediate');
$standby->promote;
$node = $standby;
agree('promoted');
is(sql(q(SELECT state FROM pmhash_indexes WHERE index = 'c_k')), 'valid', 'promoted: its file is used');
sql('INSERT INTO c SELECT k, 5 FROM keys WHERE crowd = 1; DELETE FROM c WHERE v = 4; VACUUM (INDEX_CLEANUP ON) c');
agree('promoted, and changed');
$node->stop;
done_testing();
