# Invalid indexes: queries go on at once, inserts are let through, constraints
# are kept, and the index comes back by itself with every row.

use strict;
use warnings;

use File::Path qw(rmtree);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_server('invalid', "wal_level = replica\n");
my $pool = pool($node);
$node->start;
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());

# event: missing, damaged, cut off, unreadable, or another index's, when the server starts
my $damaged = 0;
# trust: identity
foreach my $case (file_damage())
{
	my ($name, $reason, $damage) = @$case;
	my ($file, $other) = (index_file($node, 't_k'), index_file($node, 'o_k'));

	$node->stop;
	rebuild_off($node);
	$damage->($file, $other);
	$node->start;
	stays_invalid($node, $reason, $name);
	same_answers($node, 'o', 'k', 'o_k', "$name, another index");
	rebuild_on($node);
	comes_back($node, $name);
	$damaged++;
}
cmp_ok($damaged, '>', 5, 'cases of damage');

# event: removed while in use
# ---- found while the server runs: by a query, by an insert ----
my $session = $node->background_psql('postgres');
$session->query_safe('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');
rebuild_off($node);
unlink(index_file($node, 't_k')) or die;
# another session meets it and leaves a row out; the first must not miss it
$node->safe_psql('postgres', 'INSERT INTO t VALUES (1, -77)');
is($session->query_safe('SELECT count(*) FROM t WHERE k = 1 AND v = -77'), '1',
	'a session that has the old file mapped sees what others have left out of it');
stays_invalid($node, 'it does not exist', 'file removed while in use');
rebuild_on($node);
comes_back($node, 'file removed while in use');
is($session->query_safe('SELECT count(*) FROM t WHERE k = 1 AND v = -77'), '1',
	'and after the rebuild');

# event: back again after rows were written without the index
# a file that was left out of comes back: it must not be taken for complete
rebuild_off($node);
my $file = index_file($node, 't_k');
rename($file, "$file.away") or die;
$node->safe_psql('postgres', 'INSERT INTO t VALUES (1, -78)');
$node->stop('immediate');
rename("$file.away", $file) or die;
$node->start;
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1 AND v = -78'),
	'1', 'a row left out of a file that has come back');
like(index_state($node, 't_k'), qr/^invalid/, 'the file that has come back is not used');
rebuild_on($node);
comes_back($node, 'file that has come back');

# event: an exclusion constraint's index, or a unique one, is invalid
# ---- an exclusion constraint is not skipped ----
rebuild_off($node);
unlink(index_file($node, 'ex_k')) or die;
fails_like($node, 'INSERT INTO ex VALUES (50)', qr/"ex_k" has no usable file.*REINDEX/s, 'constraint, present key');
fails_like($node, 'INSERT INTO ex VALUES (-1)', qr/"ex_k" has no usable file.*REINDEX/s, 'constraint, new key');
$node->safe_psql('postgres', 'VACUUM ex');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ex WHERE k = 50'), '1', 'constraint, query');
# while a rebuild is on its way the error tells to try again
my $reader = $node->background_psql('postgres', on_error_stop => 0);
$reader->query_safe("BEGIN; LOCK TABLE ex IN ROW EXCLUSIVE MODE");
rebuild_on($node);
my ($status, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET lock_timeout = '60s'; INSERT INTO ex VALUES (-2)");
like($stderr, qr/ERROR:  40001: .*"ex_k".*Try again/s, 'constraint, retryable error');
$reader->query_safe('COMMIT');
$reader->quit;
all_come_back($node, 'constraint');

# event: a plan was made before the index became invalid
# ---- a cached plan ----
my $cached = $node->background_psql('postgres');
$cached->query_safe("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE p AS SELECT count(*) FROM t WHERE k = \$1; EXECUTE p(2)");
rebuild_off($node);
unlink(index_file($node, 't_k')) or die;
$node->safe_psql('postgres', 'INSERT INTO t VALUES (2, -79)');
is($cached->query_safe('EXECUTE p(2)'),
	$node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE k = 2'),
	'a prepared statement is planned again');
rebuild_on($node);
comes_back($node, 'cached plan');
$cached->quit;
$session->quit;

# ---- a plan that is older than the index's invalidity ----
# A cursor is planned when it is declared and begins to scan when it is fetched
# from.  A writer keeps the rebuild waiting.
$node->safe_psql('postgres', <<SQL);
CREATE INDEX t_part ON t USING pmhash (k) WHERE v > 0;
INSERT INTO t SELECT 7000010, i FROM generate_series(1, 1000) i;
ANALYZE t;
SQL
my $planned = $node->background_psql('postgres', on_error_stop => 0);
my $holder = $node->background_psql('postgres');
$_->set_query_timer_restart foreach $planned, $holder;
my $expected = $node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT sum(k::int8 * v), count(*) FROM t WHERE k IN (7, 8)');

# Wait until the session with the cursor has read the configuration file.
sub wait_for_setting
{
	my ($value) = @_;

	foreach (1 .. 1000)
	{
		return if $planned->query_safe('SHOW pmhash.rebuild') eq $value;
		usleep(20_000);
	}
	die "pmhash.rebuild is not $value";
}

# Declare a cursor, let its index become invalid, fetch.
sub fetch_late
{
	my ($settings, $query, $index, $rebuild) = @_;

	rebuild_off($node);
	wait_for_setting('off');
	$planned->query_safe("\\set VERBOSITY verbose\nSET enable_seqscan = off; $settings");
	$planned->query_safe("BEGIN; DECLARE c NO SCROLL CURSOR FOR $query");
	$holder->query_safe('BEGIN; LOCK TABLE t IN ROW EXCLUSIVE MODE');
	unlink(index_file($node, $index)) or die;
	# a process that leaves a row out marks the index for all
	$holder->query_safe('INSERT INTO t VALUES (7000003, 1)');
	like(index_state($node, $index), qr/^(invalid|rebuild)/, "old plan: $index is invalid");
	rebuild_on($node) if $rebuild;
	wait_for_setting('on') if $rebuild;
	my $rows = $planned->query('FETCH ALL FROM c');
	my $error = $planned->{stderr};
	$planned->{stderr} = '';
	$planned->query_safe('ROLLBACK; RESET ALL');
	$holder->query_safe('ROLLBACK');
	rebuild_on($node);
	$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = '$index'")
	  or die "$index does not come back";
	comes_back($node, "old plan, $query") if $index eq 't_k';
	return ($rows, $error);
}

my $sum = 'SELECT sum(k::int8 * v), count(*) FROM t WHERE k = ANY (ARRAY[7, 8])';
foreach my $case (
	[ 'index scan', 'SET enable_bitmapscan = off' ],
	[ 'bitmap scan', 'SET enable_indexscan = off' ])
{
	$node->safe_psql('postgres', 'DROP INDEX IF EXISTS t_part');
	my ($rows, $error) = fetch_late($case->[1], $sum, 't_k', 0);

	is("$rows$error", $expected, "old plan, $case->[0]: exact answer");
}
{
	my ($rows, $error) = fetch_late(
		'SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; SET pmhash.enable_join = off',
		'SELECT sum(t.k::int8 * v), count(*) FROM (VALUES (7), (8), (NULL)) AS key (k) JOIN t USING (k)',
		't_k', 0);

	is("$rows$error", $expected, 'old plan, nested loop: exact answer');
}
foreach my $rebuild (0, 1)
{
	my $state = $rebuild ? '40001' : '55000';
	my (undef, $error) = fetch_late('SET enable_indexscan = on; SET enable_bitmapscan = off',
		'SELECT k FROM t WHERE k = 7', 't_k', $rebuild);

	like($error, qr/ERROR:  $state: pmhash index "t_k" has no usable file/,
		"old plan, index-only scan: error $state");
	(undef, $error) = fetch_late('SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1000',
		'SELECT t.v FROM (VALUES (7), (8), (NULL)) AS key (k) JOIN t USING (k)', 't_k', $rebuild);
	like($error, qr/ERROR:  $state: pmhash index "t_k" has no usable file/,
		"old plan, join: error $state");
	(undef, $error) = fetch_late('SET enable_bitmapscan = off',
		'SELECT v FROM t WHERE k = 7000010', 't_k', $rebuild);
	like($error, qr/ERROR:  $state: pmhash index "t_k" has no usable file/,
		"old plan, page scan: error $state");
	$node->safe_psql('postgres', 'DROP INDEX t_k; CREATE INDEX t_part ON t USING pmhash (k) WHERE v > 0');
	(undef, $error) = fetch_late('SET enable_bitmapscan = off',
		'SELECT v FROM t WHERE k = 7 AND v > 0', 't_part', $rebuild);
	like($error, qr/ERROR:  $state: pmhash index "t_part" has no usable file/,
		"old plan, partial index: error $state");
	$node->safe_psql('postgres', 'DROP INDEX t_part; CREATE INDEX t_k ON t USING pmhash (k)');
}
$planned->quit;
$holder->quit;

# ---- writers that hold the rebuild up, then are waited for ----
rebuild_off($node);
unlink(index_file($node, 't_k')) or die;
my $writer = $node->background_psql('postgres');
$writer->query_safe('BEGIN; INSERT INTO t SELECT 7000001, i FROM generate_series(1, 100) i');
$node->safe_psql('postgres', "BEGIN; INSERT INTO t VALUES (7000002, 1); PREPARE TRANSACTION 'skipper'");
rebuild_on($node);
$node->poll_query_until('postgres',
	"SELECT state LIKE 'rebuild failed: %lock timeout%next try at%' FROM pmhash_indexes WHERE index = 't_k'")
  or die 'the rebuild did not report its failure';
pass('rebuild gives up after an open transaction and says so');
$writer->query_safe('COMMIT');
$node->poll_query_until('postgres',
	"SELECT phase = 'waiting for writers before build' FROM pg_stat_progress_create_index")
  or die 'no new try';
pass('a prepared transaction is waited for');
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM t WHERE k = 7000001'), 't',
	'queries go on meanwhile');
is($node->safe_psql('postgres', "SET statement_timeout = '5s'; INSERT INTO t VALUES (7000004, 1) RETURNING k"),
	'7000004', 'and so do writers');
$node->safe_psql('postgres', "COMMIT PREPARED 'skipper'");
comes_back($node, 'writers');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7000001'), '100',
	'rows of the open transaction');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7000002'), '1',
	'row of the prepared transaction');
$writer->quit;

# ---- a rebuild under load ----
my $script = "$PostgreSQL::Test::Utils::tmp_check/invalid_load.sql";
append_to_file($script, <<'SQL');
\set k random(1, 3000)
INSERT INTO t VALUES (:k, :k);
UPDATE t SET k = k + 1 WHERE k = :k AND v = :k;
DELETE FROM t WHERE k = :k + 5;
SELECT count(*) FROM t WHERE k = :k;
SQL
foreach my $round (1 .. 3)
{
	my $output;
	my $load = start_pgbench($node, \$output, '-c', '3', '-T', '4', '-f', $script);

	sleep 1;
	unlink(index_file($node, 't_k')) or die;
	sleep 1;
	$node->safe_psql('postgres', 'VACUUM t');
	ok($load->finish, "round $round: no statement failed") or diag($output);
	comes_back($node, "round $round under load");
}

# ---- unlogged, partitioned, temporary, in a schema with strange names ----
$node->safe_psql('postgres', <<SQL);
CREATE UNLOGGED TABLE u (k int4);
INSERT INTO u SELECT generate_series(1, 1000);
CREATE INDEX u_k ON u USING pmhash (k);
CREATE TABLE p (k int4) PARTITION BY RANGE (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (500);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (500) TO (2000);
INSERT INTO p SELECT generate_series(1, 1000);
CREATE INDEX p_k ON p USING pmhash (k);
CREATE FUNCTION twice(i int4) RETURNS int4 IMMUTABLE LANGUAGE sql AS 'SELECT 2 * i';
CREATE TABLE e (k int4);
INSERT INTO e SELECT generate_series(1, 1000);
CREATE INDEX e_k ON e USING pmhash (twice(k)) WHERE k > 10;
SQL
$node->stop;
rmtree($pool);
$node->start;
all_come_back($node, 'pool removed');
same_answers($node, 'u', 'k', 'u_k', 'unlogged');
same_answers($node, 'p1', 'k', 'p1_k_idx', 'first partition');
same_answers($node, 'p2', 'k', 'p2_k_idx', 'second partition');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT k FROM e WHERE twice(k) = 400 AND k > 10'),
	'200', 'expression and predicate');

# event: a rebuild is terminated or fails
# ---- progress and the end of a worker in the middle ----
like(slurp_file($node->logfile), qr/index "t_k" of table "t" has been rebuilt.*it does not exist/s, 'log');
rebuild_off($node);
$node->safe_psql('postgres', "CREATE FUNCTION slowly(i int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN i; END'");
$node->safe_psql('postgres', 'CREATE TABLE s (k int4); INSERT INTO s SELECT generate_series(1, 100); CREATE INDEX s_k ON s USING pmhash (slowly(k))');
unlink(index_file($node, 's_k')) or die;
rebuild_on($node);
$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM s WHERE slowly(k) = 1 AND k = 1');
$node->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE index_relid = 's_k'::regclass AND command = 'REINDEX CONCURRENTLY' AND phase LIKE 'building index%'")
  or die 'no progress shown';
pass('progress');
is(index_state($node, 's_k'), 'rebuilding', 'state while it is being rebuilt');
is($node->safe_psql('postgres', 'SELECT count(*) FROM s WHERE k = 1'), '1', 'the table can be read meanwhile');
is($node->safe_psql('postgres', "SET statement_timeout = '5s'; INSERT INTO s VALUES (101) RETURNING k"), '101', 'and written');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder'");
$node->poll_query_until('postgres', "SELECT state LIKE 'rebuild failed: the worker was terminated%' FROM pmhash_indexes WHERE index = 's_k'")
  or die 'no failure shown';
pass('end of the worker');
all_come_back($node, 'after the end of the worker');
crash($node);
$node->start;
all_come_back($node, 'after a crash');
same_answers($node, 't', 'k', 't_k', 'after a crash');
$node->stop;
done_testing();
