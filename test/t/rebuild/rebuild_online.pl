# A rebuild holds no session up: writers of all kinds go on while the table is being
# scanned, their rows are in the new file once, transactions that are older than
# it do without, and what happens in between is survived.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $at_once = "SET statement_timeout = '20s'";
my $node = new_server('rebuild_online', "max_prepared_transactions = 5\n");

$node->start;
install_extension($node);

# wait_at(0) stops a scan as long as a session has the advisory lock (and is not
# subject to lock_timeout).
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION wait_at(k int8) RETURNS int8 IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN WHILE k = 0 AND NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN k; END';
CREATE TABLE t (k int8, v int4) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i % 500, i FROM generate_series(0, 4999) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_w ON t USING pmhash (wait_at(k)) WHERE v >= 0;
CREATE TABLE ex (k int8, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO ex SELECT generate_series(1, 100);
SQL

my $gate = $node->background_psql('postgres');
my $reader = $node->background_psql('postgres');

# The scan of t_w's rebuild waits at its first row.
sub start_held_rebuild
{
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	unlink(index_file($node, 't_w')) or die;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1000, 1)');
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder' AND wait_event = 'PgSleep'")
	  or die 'the rebuild does not wait';
	return;
}

sub release_rebuild
{
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	return;
}

# By the index and without it, and pmhash_check.
sub all_right
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	$node->poll_query_until('postgres', "SELECT bool_and(state = 'valid') FROM pmhash_indexes")
	  or die "$name: an index does not come back";
	is($node->safe_psql('postgres', "SELECT pmhash_check('t_w'), pmhash_check('t_k')"), '|', "$name: check");
	my $by_index = $node->safe_psql('postgres',
		"SET enable_seqscan = off; SELECT i, n, s, d FROM generate_series(1, 1600) i, LATERAL (SELECT count(*), sum(v), count(DISTINCT ctid) FROM t WHERE wait_at(k) = i AND v >= 0) a (n, s, d) WHERE n > 0 ORDER BY i");
	my $by_scan = $node->safe_psql('postgres',
		"SELECT wait_at(k), count(*), sum(v), count(DISTINCT ctid) FROM t WHERE v >= 0 AND k BETWEEN 1 AND 1600 GROUP BY 1 ORDER BY 1");
	ok($by_index eq $by_scan && $by_index ne '', "$name: same rows by the index and by a scan");
	return;
}

# ---- writers while the table is scanned ----
start_held_rebuild();
is(index_state($node, 't_w'), 'rebuilding', 'state');
is($node->safe_psql('postgres', "$at_once; INSERT INTO t VALUES (1001, 1); UPDATE t SET k = 1002 WHERE v = 7; DELETE FROM t WHERE v = 8; SELECT count(*) FROM t WHERE k = 1001"),
	'1', 'INSERT, UPDATE and DELETE do not wait');
$node->safe_psql('postgres', "$at_once; INSERT INTO t SELECT 1003 + i % 3, i FROM generate_series(1, 3000) i");
$node->safe_psql('postgres', "$at_once; BEGIN; INSERT INTO t SELECT 1010, i FROM generate_series(1, 100) i; SAVEPOINT a; INSERT INTO t SELECT 1011, i FROM generate_series(1, 100) i; ROLLBACK TO a; COMMIT");
$node->safe_psql('postgres', "$at_once; BEGIN; INSERT INTO t SELECT 1012, i FROM generate_series(1, 100) i; PREPARE TRANSACTION 'meanwhile'");
$node->safe_psql('postgres', "$at_once; BEGIN; INSERT INTO t VALUES (1013, 1); ROLLBACK");
$node->safe_psql('postgres', "$at_once; INSERT INTO ex VALUES (1000)");
my $late = $node->background_psql('postgres');
$late->query_safe('BEGIN; INSERT INTO t SELECT 1014, i FROM generate_series(1, 50) i');
release_rebuild();
all_right('writers during the scan');
$late->query_safe('INSERT INTO t SELECT 1014, i FROM generate_series(51, 100) i; COMMIT');
$late->quit;
$node->safe_psql('postgres', "COMMIT PREPARED 'meanwhile'");
all_right('and those that go on after it');

# ---- snapshots older than the rebuild ----
# What they see and new ones do not is not in the new file.
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
my $count = $reader->query_safe('SELECT count(*) FROM t WHERE wait_at(k) = 77 AND v >= 0');
cmp_ok($count, '>', 0, 'rows for the old snapshot');
# cursors that are put away when it has been lost, and after the new file has come to be
my $held = $node->background_psql('postgres');
$held->query_safe("SET enable_seqscan = off; SET pmhash.enable_pagescan = off; BEGIN");
$held->query_safe("DECLARE $_->[0] $_->[1] CURSOR WITH HOLD FOR SELECT v FROM t WHERE wait_at(k) = 77 AND v >= 0; FETCH 1 FROM $_->[0]")
  foreach [ 'h', 'SCROLL' ], [ 'n', 'NO SCROLL' ];
$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 77');
unlink(index_file($node, 't_w')) or die;
$node->safe_psql('postgres', 'INSERT INTO t VALUES (1000, 1)');
all_right('beside an old snapshot');
is($reader->query_safe("SET enable_seqscan = off; SELECT count(*) FROM t WHERE wait_at(k) = 77 AND v >= 0"),
	$count, 'an old snapshot keeps its answer');
is($node->safe_psql('postgres', "$at_once; INSERT INTO t VALUES (1100, 1); DELETE FROM t WHERE k = 78; SELECT count(*) FROM t WHERE k = 1100"),
	'1', 'writers do not wait');
$node->safe_psql('postgres', "$at_once; VACUUM t; INSERT INTO t SELECT 1101, i FROM generate_series(1, 500) i");
is($reader->query_safe("SELECT count(*) FROM t WHERE wait_at(k) = 77 AND v >= 0"), $count, 'again');
$held->query_safe('COMMIT');
is($held->query_safe('MOVE ABSOLUTE 0 IN h; FETCH ALL FROM h') =~ tr/\n// + 1, $count, 'a cursor WITH HOLD, read again from the beginning');
is($held->query_safe('FETCH ALL FROM n') =~ tr/\n// + 2, $count, 'and one that has gone on');
$held->quit;
$reader->query_safe('COMMIT');
all_right('after the old snapshot');

# ---- a crash, and an end of the worker, in the middle ----
start_held_rebuild();
$node->safe_psql('postgres', "$at_once; INSERT INTO t SELECT 1300, i FROM generate_series(1, 100) i");
crash($node);
$node->start;
$gate = $node->background_psql('postgres');
$node->safe_psql('postgres', "INSERT INTO t SELECT 1301, i FROM generate_series(1, 100) i");
all_right('a crash during the scan');
start_held_rebuild();
# (it shows for a second, until the next try: too short for a psql each time one looks)
$node->safe_psql('postgres', <<'SQL');
DO $$
BEGIN
	PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder';
	FOR i IN 1 .. 18000 LOOP
		IF EXISTS (SELECT FROM pmhash_indexes WHERE index = 't_w' AND state LIKE 'rebuild failed: the worker was terminated%') THEN
			RETURN;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RAISE 'no failure shown';
END $$;
SQL
$node->safe_psql('postgres', "$at_once; INSERT INTO t SELECT 1302, i FROM generate_series(1, 100) i; DELETE FROM t WHERE k = 79");
$node->safe_psql('postgres', "$at_once; VACUUM t");
$node->safe_psql('postgres', "$at_once; INSERT INTO t SELECT 1303, i FROM generate_series(1, 100) i");
release_rebuild();
all_right('a worker that is terminated, then VACUUM');

# ---- DDL of the table waits and then finds what it expects ----
start_held_rebuild();
my $ddl = $node->background_psql('postgres');
$ddl->query_until(qr/begun/, "\\echo begun\nREINDEX INDEX t_w;\n");
release_rebuild();
all_right('REINDEX in the middle');
$ddl->quit;

# ---- a constraint's index ----
rebuild_off($node);
unlink(index_file($node, 'ex_k')) or die;
$reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN; LOCK TABLE ex IN ROW EXCLUSIVE MODE');
rebuild_on($node);
my (undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\n$at_once; INSERT INTO ex VALUES (50)");
like($stderr, qr/ERROR:  40001: /, 'a constraint is not skipped');
$reader->query_safe('COMMIT');
$reader->quit;
all_right('constraint');
fails_like($node, 'INSERT INTO ex VALUES (50)', qr/conflicting key value/, 'the constraint holds again');

# ---- many rebuilds under load ----
# Writers go on, and so do look-ups by plans that were made when the file was there, but for
# those that need more of the file than is mapped after they have handed out rows: 40001.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION tried_again(statement text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		BEGIN
			EXECUTE statement;
			RETURN;
		EXCEPTION WHEN serialization_failure THEN
			PERFORM pg_sleep(0.01);
		END;
	END LOOP;
END $$;
SQL
my $script = "$PostgreSQL::Test::Utils::tmp_check/online_load.sql";
append_to_file($script, <<'SQL');
\set k random(1, 500)
INSERT INTO t VALUES (:k, :k);
SELECT tried_again('UPDATE t SET k = k + 1 WHERE k = :k AND v = :k');
SELECT tried_again('DELETE FROM t WHERE k = :k + 5 AND v % 7 = 1');
BEGIN;
INSERT INTO t SELECT :k, i FROM generate_series(1, 40) i;
SAVEPOINT a;
INSERT INTO t VALUES (:k, 1);
ROLLBACK TO a;
END;
SQL
$gate->quit;
my $output;
my $load = start_pgbench($node, \$output, '-c', '3', '-T', '8', '-f', $script);
foreach my $round (1 .. 6)
{
	sleep 1;
	unlink(index_file($node, 't_w'), index_file($node, 't_k'));
	$node->safe_psql('postgres', 'VACUUM t') if $round % 2;
}
ok($load->finish, 'no statement failed') or diag($output);
all_right('six rebuilds of two indexes under load');
$node->stop;
done_testing();
