# A table is given another tablespace and gets rows there, and that is taken back: its
# old files know nothing of those rows, and give their TIDs to others.  The index file,
# which has stayed where it was, must not lead to these.  It gets no entries of such rows:
# the index is invalid from the first on, and a constraint or a temporary index is an error.

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

my $node = new_primary('primary', <<CONF);
allow_in_place_tablespaces = on
pmhash.rebuild = off
CONF
my $standby = new_standby($node, 'standby', "pmhash.rebuild = on\n");
my $major = $node->pg_version->major;
my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
my $move = 'ALTER TABLE m SET TABLESPACE a';
my $row = q(INSERT INTO m VALUES (777, '777'));

$node->safe_psql('postgres', q(SET allow_in_place_tablespaces = on; CREATE TABLESPACE a LOCATION ''));
$node->safe_psql('postgres', q(SET allow_in_place_tablespaces = on; CREATE TABLESPACE b LOCATION ''));

# A table of that kind whose last page has room.  Nothing looks at it before the rows
# come that get TIDs anew: a look-up would remove what leads to none.
sub table
{
	my ($kind, $with) = @_;
	return <<SQL;
CREATE $kind TABLE m (k int4, s text) WITH (autovacuum_enabled = off);
CREATE INDEX m_k ON m USING pmhash (k) @{[$with // '']};
CREATE INDEX m_s ON m USING pmhash (s) @{[$with // '']};
INSERT INTO m SELECT i, i FROM generate_series(1, 100) i;
SQL
}

# The same TIDs are given to other rows.
my $others = 'INSERT INTO m SELECT i, i FROM generate_series(888, 908) i;';
my $found = q(SELECT (SELECT count(*) FROM m WHERE k = 777), (SELECT count(*) FROM m WHERE s = '777'),
	(SELECT count(*) FROM m WHERE k = 888););

my $states = q(SELECT string_agg(DISTINCT split_part(state, ':', 1), ' ') FROM pmhash_indexes WHERE index::text LIKE 'm\_%';);

# A test: all indexes are there, after a while.
sub come_back
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($on, $name) = @_;

	rebuild_on($on);
	ok( $on->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pmhash_indexes WHERE state NOT IN ('valid', 'empty'))),
		"$name: all valid");
	rebuild_off($on);
	return;
}

# All indexes are there within ten seconds.
sub soon_valid
{
	local $PostgreSQL::Test::Utils::timeout_default = 10;

	return $node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pmhash_indexes WHERE state NOT IN ('valid', 'empty')));
}

# Tests: rows that have been taken back are not found, before the indexes are rebuilt and
# after that, nor on a standby.
sub nothing_left
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, $rows, $state) = @_;
	my $wanted = "$rows|$rows|1";

	is($node->safe_psql('postgres', "$others $by_index $found $states"),
		"$wanted\n" . ($state // 'invalid'), "$name: rows, state");
	come_back($node, $name);
	is($node->safe_psql('postgres', "$by_index $found SELECT pmhash_check('m_k'), pmhash_check('m_s')"),
		"$wanted\n|", "$name: rows by the indexes, pmhash_check");
	return if !defined $standby;
	caught_up($node, $standby);
	is($standby->safe_psql('postgres', "$by_index $found"), $wanted, "$name: rows on a standby");
	wait_for_state($standby, $_, qr/^valid/, "$name: $_ there again on it") foreach qw(m_k m_s);
	is($standby->safe_psql('postgres', "$by_index $found SELECT pmhash_check('m_k'), pmhash_check('m_s')"),
		"$wanted\n|", "$name: rows by its indexes, pmhash_check");
	return;
}

# One case: what a transaction does, how many rows 777 there are then, and the state.
sub taken_back
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, $sql, $rows, $state) = @_;

	$node->safe_psql('postgres', table('') . $sql);
	nothing_left($name, $rows, $state);
	$node->safe_psql('postgres', 'DROP TABLE m');
	return;
}

# A server that dies while that is open.
sub killed
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, $sql, $with) = @_;
	my $session;

	$node->safe_psql('postgres', table('', $with));
	$session = $node->background_psql('postgres', on_error_stop => 1);
	$session->query_safe($sql);
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1)');
	crash($node);
	eval { $session->quit };
	$node->start;
	nothing_left($name, 0);
	$node->safe_psql('postgres', 'DROP TABLE m');
	return;
}

# event: `SET TABLESPACE` of a table, then rows, in one transaction
taken_back('ROLLBACK', "BEGIN; $move; $row; ROLLBACK;", 0);
taken_back('ROLLBACK TO', "BEGIN; SAVEPOINT s; $move; $row; ROLLBACK TO s; INSERT INTO m VALUES (1, 1); COMMIT;", 0);
taken_back('many rows', "BEGIN; $move; INSERT INTO m SELECT 777, '777' FROM generate_series(1, 40); ROLLBACK;", 0);
taken_back('prepared', "BEGIN; $move; $row; PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p';", 0);
killed('killed', "BEGIN; $move; $row;");
killed('killed, indexes moved', "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE a; ALTER INDEX m_s SET TABLESPACE b; $row;");

taken_back('prepared and committed', "BEGIN; $move; $row; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p';", 1);

# Of two moves the second is taken back; so is one in between, which the server forgets.
taken_back('the second of two', "BEGIN; $move; $row; SAVEPOINT s; ALTER TABLE m SET TABLESPACE b; $row; ROLLBACK TO s; COMMIT;", 1);
taken_back('both of two', "BEGIN; $move; SAVEPOINT s; ALTER TABLE m SET TABLESPACE b; ROLLBACK TO s; $row; ROLLBACK;", 0);
taken_back('released', "BEGIN; SAVEPOINT s; $move; SAVEPOINT r; $row; RELEASE r; RELEASE s; ROLLBACK;", 0);

# A file that was made in the transaction stays when only the move is taken back.
taken_back('made before', "BEGIN; REINDEX TABLE m; SAVEPOINT s; $move; $row; ROLLBACK TO s; COMMIT;", 0);
taken_back('emptied before', "BEGIN; TRUNCATE m; SAVEPOINT s; $move; $row; ROLLBACK TO s; COMMIT;", 0);

# The indexes' stubs are those of before again.
taken_back('indexes moved', "BEGIN; ALTER INDEX m_k SET TABLESPACE a; $move; ALTER INDEX m_s SET TABLESPACE b; $row; ROLLBACK;", 0);
taken_back('indexes moved and taken back',
	"BEGIN; $move; SAVEPOINT s; ALTER INDEX m_k SET TABLESPACE a; ALTER INDEX m_s SET TABLESPACE b; $row; ROLLBACK TO s; ROLLBACK;", 0);
taken_back('REINDEX taken back', "BEGIN; $move; $row; SAVEPOINT s; REINDEX TABLE m; ROLLBACK TO s; ROLLBACK;", 0);

# ---- a session of the standby has the files mapped ----
{
	my $session = $standby->background_psql('postgres', on_error_stop => 1);
	my $count = 'SELECT count(*) FROM m WHERE k = 777;';

	$node->safe_psql('postgres', table(''));
	wait_for_state($standby, 'm_k', qr/^valid/, 'standby: built');
	$session->query_safe($by_index);
	like($session->query_safe("EXPLAIN $count"), qr/m_k/, 'standby: a session uses the index');
	is($session->query_safe($count), '0', 'standby: no row');
	$node->safe_psql('postgres', "BEGIN; $move; $row; ROLLBACK; $others");
	caught_up($node, $standby);
	is($session->query_safe($count), '0', 'standby: no row after ROLLBACK');
	$session->quit;
	$node->safe_psql('postgres', 'DROP TABLE m');
}

# ---- a session has a plan that uses the index, and could not do with the table alone ----
{
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	my $only = 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_bitmapscan = off;';

	$node->safe_psql('postgres', table(''));
	$session->query_safe("$only SET plan_cache_mode = force_generic_plan; PREPARE q (int) AS SELECT count(*) FROM m WHERE k = \$1");
	is($session->query_safe('EXECUTE q(7)'), '1', 'plans: one is made');
	$node->safe_psql('postgres', "BEGIN; $move; $row; ROLLBACK;");
	is($session->query_safe('EXECUTE q(7)'), '1', 'plans: another one is made');
	$session->quit;
	$node->safe_psql('postgres', 'DROP TABLE m');
}

# ---- it commits ----
foreach my $case (
	[ 'COMMIT', "BEGIN; $move; $row; COMMIT;", 'invalid' ],
	[ 'indexes moved', "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE b; $row; ALTER INDEX m_s SET TABLESPACE b; COMMIT;", 'invalid' ],
	[ 'type changed', "BEGIN; $move; $row; ALTER TABLE m ALTER s TYPE varchar; COMMIT;", 'invalid' ],
	[ 'REINDEX', "BEGIN; $move; REINDEX INDEX m_k; $row; COMMIT;", 'invalid valid' ],
	[ 'REINDEX after it', "BEGIN; $move; $row; REINDEX TABLE m; COMMIT;", 'valid' ],
	[ 'no rows', "BEGIN; $row; $move; DELETE FROM m WHERE k < 7; COMMIT;", 'valid' ],
	[ 'made in it', "BEGIN; TRUNCATE m; $move; $row; INSERT INTO m SELECT i, i FROM generate_series(1, 100) i; COMMIT;", 'valid' ],
	[ 'a change is taken back', "BEGIN; TRUNCATE m; SAVEPOINT s; TRUNCATE m; ROLLBACK TO s; $row; COMMIT;", 'valid' ])
{
	my ($name, $sql, $state) = @$case;
	my $position = log_position($node);

	taken_back("committed, $name", $sql, 1, $state);
	unlike(logged_since($node, $position), qr/has been rebuilt/, "committed, $name: nothing was rebuilt")
	  if $state eq 'valid';
}

# The index, which has a main fork of this transaction, is emptied in place by a level that
# is rolled back: its stub names a file that is gone, and which this session has mapped.
is($node->safe_psql('postgres', table('') . <<SQL), "0\n1\n1\n\n1", 'emptied in place, taken back: rows');
$by_index
BEGIN;
ALTER INDEX m_k SET TABLESPACE b;
SAVEPOINT s;
$move;
TRUNCATE m;
SELECT count(*) FROM m WHERE k = 7;
ROLLBACK TO s;
SELECT count(*) FROM m WHERE k = 7;
COMMIT;
SELECT count(*) FROM m WHERE k = 7;
REINDEX INDEX m_k;
SELECT pmhash_check('m_k');
SELECT count(*) FROM m WHERE k = 7;
DROP TABLE m;
SQL

# Within it the indexes are not used.
my $parallel = $major >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
is($node->safe_psql('postgres', table('') . <<SQL), "f\n1\n2\n777", 'in the transaction');
CREATE FUNCTION uses(query text) RETURNS boolean LANGUAGE plpgsql AS \$\$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
		IF line LIKE '%m_k%' THEN RETURN true; END IF;
	END LOOP;
	RETURN false;
END \$\$;
SET enable_seqscan = off;
BEGIN; $move; $row;
SELECT uses('SELECT * FROM m WHERE k = 777');
SELECT count(*) FROM m WHERE k = 777;
$row;
SELECT count(*) FROM m WHERE k = 777;
COMMIT;
DROP TABLE m;
CREATE TABLE p (k int4);
CREATE INDEX p_k ON p USING pmhash (k) WHERE k > 7;
INSERT INTO p SELECT generate_series(1, 100);
BEGIN;
ALTER TABLE p SET TABLESPACE a;
INSERT INTO p VALUES (777);
SET $parallel = on;
SELECT k FROM p WHERE k = 777 AND k > 7;
COMMIT;
DROP TABLE p;
SQL

# ---- tables of other kinds ----
$node->safe_psql('postgres', table('UNLOGGED') . "BEGIN; $move; $row; ROLLBACK; $others");
is($node->safe_psql('postgres', "$by_index $found $states"), "0|0|1\ninvalid", 'unlogged: rows, state');
is($node->safe_psql('postgres', "DROP TABLE m; BEGIN; " . table('UNLOGGED') . "SAVEPOINT s; $move; $row; ROLLBACK TO s; COMMIT; $others $by_index $found"),
	'0|0|1', 'unlogged, made in the transaction: rows');
$node->safe_psql('postgres', 'DROP TABLE m');
my $cannot = qr/cannot use pmhash index "[mx]_k" because its table was moved in the same transaction.*files that the table had before.*REINDEX INDEX/s;
fails_like($node, table('TEMP') . "BEGIN; $move; $row;", $cannot, 'temporary');
is($node->safe_psql('postgres', table('TEMP') . "BEGIN; $move; ROLLBACK; BEGIN; $move; COMMIT; $row; BEGIN; $move; REINDEX TABLE m; $row; ROLLBACK; $others $by_index $found $states"),
	"1|1|1\nvalid", 'temporary, rows in another transaction, or after REINDEX');
is($node->safe_psql('postgres', table('TEMP') . "BEGIN; $move; TRUNCATE m; ROLLBACK; $by_index SELECT count(*) FROM m WHERE k IN (7, 777); $states REINDEX TABLE m; SELECT pmhash_check('m_k')"),
	"1\ninvalid\n", 'temporary, emptied in place: rows');
is($node->safe_psql('postgres', "CREATE TEMP TABLE m (k int4) ON COMMIT DELETE ROWS; CREATE INDEX m_k ON m USING pmhash (k);"
	  . "$move; BEGIN; SELECT count(*) FROM m; COMMIT; BEGIN; INSERT INTO m VALUES (888); $by_index SELECT count(*) FROM m WHERE k IN (777, 888); SELECT pmhash_check('m_k'); COMMIT"),
	"0\n1\n", 'temporary, emptied at commit: rows');
# ... and so early that nothing but its index can be moved: it stays as good as it was
is($node->safe_psql('postgres', "CREATE TEMP TABLE m (k int4) ON COMMIT DELETE ROWS; CREATE INDEX m_k ON m USING pmhash (k);"
	. "BEGIN; $move; COMMIT; $states BEGIN; INSERT INTO m SELECT generate_series(1, 9); $by_index SELECT count(*) FROM m WHERE k = 7; COMMIT; SELECT pmhash_check('m_k')"),
	"valid\n1\n", 'temporary, emptied at commit: valid');

# ---- a serializable statement reads by the index after its first row has marked it ----
# To try that again is of no use, which its SQLSTATE says; after REINDEX it can be done.
my $verbose = "\\set VERBOSITY verbose\n";
my $rows = "INSERT INTO m SELECT i, (SELECT s FROM m WHERE k = i) FROM generate_series(1, 9) i;";
$node->safe_psql('postgres', table(''));
fails_like($node, "$verbose $by_index BEGIN ISOLATION LEVEL SERIALIZABLE; $move; $rows", qr/55000: $cannot/, 'serializable: no row in it');
is($node->safe_psql('postgres', "$by_index BEGIN ISOLATION LEVEL SERIALIZABLE; $move; REINDEX TABLE m; $rows SELECT count(*) FROM m WHERE k = 7; COMMIT; DROP TABLE m"), '2',
	'serializable: after REINDEX');

# ---- constraints ----
foreach my $kind ('EXCLUDE', $major >= 18 ? 'UNIQUE' : ())
{
	my $taken = qr/conflicting key value|duplicate key value/;
	my $make = $kind eq 'EXCLUDE' ? 'CREATE TABLE x (k int4, CONSTRAINT x_k EXCLUDE USING pmhash (k WITH =));' :
	  'CREATE TABLE x (k int4); CREATE UNIQUE INDEX x_k ON x USING pmhash (k);';
	my $move_x = 'BEGIN; ALTER TABLE x SET TABLESPACE a;';

	$node->safe_psql('postgres', "$make INSERT INTO x SELECT generate_series(1, 100)");
	fails_like($node, "$move_x INSERT INTO x VALUES (777)", $cannot, "$kind: no row in it");
	fails_like($node, "BEGIN; TRUNCATE x; SAVEPOINT s; ALTER TABLE x SET TABLESPACE a; INSERT INTO x VALUES (777)", $cannot, "$kind: nor in a savepoint");
	is($node->safe_psql('postgres', 'INSERT INTO x VALUES (888); SELECT state FROM pmhash_indexes WHERE index = \'x_k\''), 'valid', "$kind: the index is still there");
	fails_like($node, "$move_x REINDEX INDEX x_k; INSERT INTO x VALUES (778); INSERT INTO x VALUES (779), (778)", $taken, "$kind: holds after REINDEX in it");
	$node->safe_psql('postgres', "$move_x COMMIT; INSERT INTO x VALUES (778)");
	fails_like($node, 'INSERT INTO x VALUES (778)', $taken, "$kind: holds after COMMIT");
	$node->safe_psql('postgres', 'DROP TABLE x');
}

# ---- it is open for long: its indexes are not taken for rebuilds that were broken off ----
{
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	my $position;

	$node->safe_psql('postgres', table(''));
	rebuild_on($node);
	$position = log_position($node);
	$session->query_safe("BEGIN; $move; $row;");
	sleep(10);    # the cleaner comes each second; a rebuild waits 5 s for a lock
	unlike(logged_since($node, $position), qr/could not rebuild/, 'open for long: no rebuild has failed');

	# from here on only the end of the transaction asks for a rebuild
	$node->append_conf('postgresql.conf', 'pmhash.cleaner_naptime = 3600');
	$node->reload;
	sleep(3);
	$session->query_safe('ROLLBACK');
	ok(soon_valid(), 'open for long: rebuilt at once after that');
	unlike(logged_since($node, $position), qr/could not rebuild/, 'open for long: at the first try');
	$session->quit;
	rebuild_off($node);
	$node->append_conf('postgresql.conf', 'pmhash.cleaner_naptime = 1');
	$node->reload;
	$node->safe_psql('postgres', 'DROP TABLE m');
}

# ---- a standby that is promoted while it is open ----
{
	my $session = $node->background_psql('postgres', on_error_stop => 1);

	$node->safe_psql('postgres', table(''));
	wait_for_state($standby, 'm_k', qr/^valid/, 'promoted: built before');
	$session->query_safe("BEGIN; $move; $row;");
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1)');
	caught_up($node, $standby);
	rebuild_off($standby);
	$standby->promote;
	$standby->safe_psql('postgres', $others);
	is($standby->safe_psql('postgres', "$by_index $found"), '0|0|1', 'promoted: rows');
	come_back($standby, 'promoted');
	is($standby->safe_psql('postgres', "$by_index $found"), '0|0|1', 'promoted: rows by the indexes');
	$session->quit;
	$standby->stop;
	undef $standby;
	$node->safe_psql('postgres', 'DROP TABLE m');
}

# ---- indexes that are not logged ----
killed('killed, indexes moved', "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE a; ALTER INDEX m_s SET TABLESPACE b; $row;", 'WITH (wal = off)');

# ---- the rows themselves are not in WAL ----
$node->append_conf('postgresql.conf', "wal_level = minimal\nmax_wal_senders = 0\n");
$node->restart;
taken_back('wal_level = minimal, ROLLBACK', "BEGIN; $move; $row; ROLLBACK;", 0);
taken_back('wal_level = minimal, indexes moved', "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE a; ALTER INDEX m_s SET TABLESPACE b; $row; ROLLBACK;", 0);
killed('wal_level = minimal, killed', "BEGIN; $move; $row;");
taken_back('wal_level = minimal, indexes moved, COMMIT', "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE b; $row; COMMIT;", 1);
{
	$node->safe_psql('postgres', table('') . "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE b; $row; COMMIT;");
	crash($node);
	$node->start;
	nothing_left('wal_level = minimal, killed after COMMIT', 1);
	$node->safe_psql('postgres', 'DROP TABLE m');
}

$node->stop;
done_testing();
