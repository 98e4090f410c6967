# WAL that never reaches the disk.  Deleted rows come back with a crash: VACUUM
# must not have taken their entries.  Inserted rows are gone, and their TIDs
# are used again: their entries must go too.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# only this test flushes WAL
my $node = new_faulty_server('removal', no_wal_flushes() . <<CONF);
pmhash.journal_size = 16MB
CONF
$node->safe_psql('postgres', <<SQL);
CREATE TABLE r (k int4, d int4);
INSERT INTO r SELECT i, i % 10 FROM generate_series(1, 20000) i;
CREATE INDEX r_k ON r USING pmhash (k);
CREATE INDEX r_d ON r USING pmhash (d);
CHECKPOINT;
SQL

# event: rows deleted with `synchronous_commit = off` are back after a crash, though `VACUUM` was at work
foreach my $round (1 .. 4)
{
	hold_wal_writer($node);
	$node->safe_psql('postgres', <<SQL);
DELETE FROM r WHERE k % 4 = $round - 1;
VACUUM (TRUNCATE OFF) r;
SQL
	crash($node);
	$node->start;
	same_answers($node, 'r', 'k', 'r_k', "VACUUM, round $round");
	same_answers($node, 'r', 'd', 'r_d', "VACUUM, round $round");
}

# The same with the crash in the middle of bulk delete: PANIC, or SIGKILL of the
# backend, when it asks for the n-th time whether to pause after it has flushed
# WAL for the removal.  By then some segments have lost entries, others not yet.
# In the end, to see that WAL is really lost here, the same with the flush left
# out: the deleted rows are back, and the next start notices that it was lied to.
$node->safe_psql('postgres', <<SQL);
CREATE TABLE s (k int4, d int4);
INSERT INTO s SELECT i, i % 10 FROM generate_series(1, 20000) i;
CREATE INDEX s_k ON s USING pmhash (k);
CREATE INDEX s_d ON s USING pmhash (d);
CHECKPOINT;
SQL
sub crash_inside
{
	my ($round, $action, $place, $flush) = @_;
	my $from = -s $node->logfile;
	my ($status, $stdout, $stderr) = $node->psql('postgres', <<SQL);
\\set ON_ERROR_STOP 0
SET synchronous_commit = off;
DELETE FROM s WHERE k % 5 = $round;
SET pmhash_faults.calls = 'vacuum_delay_point';
SET pmhash_faults.after = 'XLogFlush';
SET pmhash_faults.flush = $flush;
SET pmhash_faults.action = $action;
SET pmhash_faults.fail_at = $place;
VACUUM (TRUNCATE OFF) s;
SQL
	isnt($status, 0, "round $round: the server went down in VACUUM");
	$node->wait_for_log(qr/database system is ready to accept connections/, $from);
	my $log = substr(slurp_file($node->logfile), $from);
	like($log, qr/pmhash_faults: call $place of vacuum_delay_point/, "round $round: in bulk delete");
	like($log, $action eq 'panic' ? qr/PANIC:/ : qr/terminated by signal 9/, "round $round: by $action");
	return;
}

my @inside = ([ 'panic', 1 ], [ 'kill', 5 ], [ 'panic', 20 ]);
foreach my $round (0 .. $#inside)
{
	crash_inside($round, @{ $inside[$round] }, 'on');
	same_answers($node, 's', 'k', 's_k', "inside bulk delete, round $round");
	same_answers($node, 's', 'd', 's_d', "inside bulk delete, round $round");
	is($node->safe_psql('postgres', "SELECT pmhash_check('s_k'), pmhash_check('s_d')"), '|', "round $round: pmhash_check");
	is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT state, ',') FROM pmhash_indexes"), 'valid', "round $round: no index was given up");
}
my $from = -s $node->logfile;
hold_wal_writer($node);
crash_inside(3, 'panic', 20, 'off');
is($node->safe_psql('postgres', 'SELECT count(*) FROM s WHERE k % 5 = 3'), '4000', 'without the flush the rows are back');
$node->wait_for_log(qr/are not trusted: WAL that had been flushed was not replayed/, $from);
$node->safe_psql('postgres', 'DROP TABLE s');

# event: a crash loses rows of transactions that were not flushed, and their places in the table are used again
# Rows of a transaction in progress: entries in the index, and in the journal,
# but nothing in WAL.  Commits would wake the WAL writer.
$node->safe_psql('postgres', 'TRUNCATE r; INSERT INTO r SELECT i, i % 10 FROM generate_series(1, 20000) i; CHECKPOINT');
sub lose_rows
{
	my ($round, $taken_out) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	# what came before is on disk: whether the WAL writer has been woken by then
	# is another matter in each version
	$node->safe_psql('postgres', 'CHECKPOINT');
	hold_wal_writer($node);
	$session->query_safe('BEGIN');
	$session->query_safe('INSERT INTO r SELECT -i, i % 10 FROM generate_series(1, 5000) i');
	$session->query_safe('UPDATE r SET k = k + 100000 WHERE k BETWEEN 1 AND 3000');
	# what a statement has queued is put into the indexes before they are read
	$session->query_safe('SET enable_seqscan = off; SELECT count(*) FROM r WHERE k = -1; SELECT count(*) FROM r WHERE d = 1');
	my $from = -s $node->logfile;
	crash($node);
	eval { $session->quit };
	$node->start;
	same_answers($node, 'r', 'k', 'r_k', "rows lost, round $round");
	same_answers($node, 'r', 'd', 'r_d', "rows lost, round $round");
	$node->wait_for_log(qr/$taken_out entries taken out/, $from);

	# their TIDs are used again, for other keys and for the same
	$node->safe_psql('postgres', <<SQL);
INSERT INTO r SELECT 200000 + $round * 10000 + i, i % 10 FROM generate_series(1, 7000) i;
INSERT INTO r SELECT -i, i % 10 FROM generate_series(1, 1000) i;
SQL
	same_answers($node, 'r', 'k', 'r_k', "TIDs used again, round $round");
	same_answers($node, 'r', 'd', 'r_d', "TIDs used again, round $round");
	is( $node->safe_psql(
			'postgres', <<SQL),
SELECT by_index, by_bitmap
FROM answers('SELECT g, r.ctid FROM generate_series(-6000, 104000) g LEFT JOIN r ON r.k = g', 'r_k')
SQL
		'same|same', "lost keys, round $round");
	is( $node->safe_psql('postgres', <<SQL),
VACUUM r;
SELECT entries - (SELECT count(*) FROM r) FROM pmhash_stats('r_k');
DELETE FROM r WHERE k < 0;
SQL
		'0', "entries, round $round");
	return;
}

lose_rows($_, '16000') foreach 1 .. 3;

# a journal that is full many times over: inserts wait for a flush
$node->stop;
$node->append_conf('postgresql.conf', 'pmhash.journal_size = 64kB');
$node->start;
lose_rows(4, '[0-9]+');
$node->stop;
$node->start;

# A session that vacuums table after table flushes no more often than there is something
# to wait for: not again while no transaction has begun or ended since.
$node->safe_psql('postgres', <<SQL);
CREATE TABLE f1 (k int4);
CREATE TABLE f2 (k int4);
CREATE TABLE f3 (k int4);
INSERT INTO f1 SELECT i FROM generate_series(1, 1000) i;
INSERT INTO f2 SELECT i FROM generate_series(1, 1000) i;
INSERT INTO f3 SELECT i FROM generate_series(1, 1000) i;
CREATE INDEX ON f1 USING pmhash (k);
CREATE INDEX ON f2 USING pmhash (k);
CREATE INDEX ON f3 USING pmhash (k);
DELETE FROM f1;
DELETE FROM f2;
DELETE FROM f3 WHERE k > 1;
SQL
sub lsn
{
	my ($session, $what) = @_;
	return $session->query_safe("SELECT pg_current_wal_${what}_lsn() - '0/0'");
}

hold_wal_writer($node);
my $vacuum = $node->background_psql('postgres');
my $deleter = $node->background_psql('postgres');
$vacuum->query_safe('VACUUM (TRUNCATE OFF) f1');
my $end = lsn($vacuum, 'insert');
$vacuum->query_safe('VACUUM (TRUNCATE OFF) f2');
cmp_ok(lsn($vacuum, 'flush'), '<', $end + 1, 'the next table: nothing has to be flushed again');
$vacuum->query_safe('INSERT INTO f1 SELECT i FROM generate_series(1, 1000) i');
$vacuum->query_safe('DELETE FROM f1');
$deleter->query_safe('BEGIN; DELETE FROM f3');
$vacuum->query_safe('VACUUM (TRUNCATE OFF) f1');
$deleter->query_safe('COMMIT');
$end = lsn($deleter, 'insert');
$vacuum->query_safe('VACUUM (TRUNCATE OFF) f3');
cmp_ok(lsn($vacuum, 'flush'), '>=', $end, 'after the end of a transaction that was under way: it is flushed');
$vacuum->query_safe('INSERT INTO f2 VALUES (1)');
$vacuum->query_safe('VACUUM (TRUNCATE OFF) f1');
$deleter->query_safe('DELETE FROM f2');
$end = lsn($deleter, 'insert');
$vacuum->query_safe('VACUUM (TRUNCATE OFF) f2');
cmp_ok(lsn($vacuum, 'flush'), '>=', $end, 'after a transaction that has begun since: likewise');
$vacuum->quit;
$deleter->quit;
release_wal_writer($node);
$node->stop;
done_testing();
