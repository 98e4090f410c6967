# Entries known to be dead whose removal waits for WAL: scans pass over them without a
# visit, any scan removes them when they may go, and nothing is passed over that is not
# dead: rows that got their TIDs, rows that came back with a crash, rows of other
# files that share a list, rows of a transaction that is not over.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashDead;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('known_dead', quiet_wal() . <<CONF);
wal_level = replica
max_prepared_transactions = 2
CONF
$node->start;
install_extension($node);
use_for_dead($node, 'with tables');

sub entries
{
	my ($index) = @_;
	return sql(sprintf("SELECT entries FROM pmhash_stats('%s')", $index // 'd_k'));
}

# ---- they are not visited again ----

sql('CALL make_table()');
hold_wal_writer($node);
is(delete_and_look_up(2), '', 'look-up of rows whose deletion is not flushed');
is(entries(), 4000, 'nothing is removed');
is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'another session reads none of their TIDs');
is(reads('SELECT count(*) FROM d WHERE k = 2'), "0\n0", 'nor does an index-only scan');
is(reads('SELECT count(v) FROM d WHERE k = ANY (ARRAY[2, 1])'), "1000\n1000", 'nor = ANY');
is(reads('SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = on; SELECT count(v) FROM d WHERE k = 2'),
	"0\n0", 'nor a bitmap scan');
is( sql(<<SQL),
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT v FROM d WHERE k = ANY (ARRAY[2, 3]) AND v < 20;
MOVE FORWARD ALL IN c;
FETCH BACKWARD 2 FROM c;
FETCH FORWARD 1 FROM c;
COMMIT;
SQL
	"19\n15\n19", 'a cursor that turns back');
is(entries(), 4000, 'still nothing is removed');
flush_wal();
is(reads('SELECT count(v) FROM d WHERE k = 7'), "0\n0", 'after a flush');
is(entries(), 3000, 'the next scan removes them, whichever scan found them and whatever it looks for');

# ---- a queue: scans begin in different places, and have all rows ----

# Only those that pass over what is locked: each scan of a query that says so.  $q: a
# query beside them in the same statement.
sub firsts
{
	my ($lock, $q) = @_;
	my $with = join(', ', map { "f$_ AS MATERIALIZED (SELECT ctid FROM d WHERE k = 1 LIMIT 1 $lock)" } 1 .. 20);
	my $all = join(' UNION ALL ', map { "SELECT ctid FROM f$_" } 1 .. 20);

	$q //= 'SELECT 1';
	return "WITH q AS MATERIALIZED ($q), $with SELECT count(DISTINCT first) FROM ($all) AS f(first) WHERE (SELECT count(*) FROM q) >= 0";
}

# The same of a function, which is called by a statement with q.
sub firsts_of
{
	my ($function, $q) = @_;
	return "WITH q AS MATERIALIZED ($q) SELECT count(DISTINCT $function()) FROM generate_series(1, 20) WHERE (SELECT count(*) FROM q) >= 0";
}
my $firsts = firsts('FOR UPDATE SKIP LOCKED');
my $all = 'SELECT count(v), count(DISTINCT v), sum(v) FROM d WHERE k = 1';
sql('CALL make_table()');
my $wanted_rows = sql('SET enable_indexscan = off; SET enable_seqscan = on; ' . $all);
is(sql($firsts), 1, 'nothing is known to be dead: all begin in the same place');
is(delete_and_look_up(2), '', 'rows of another key are known to be dead');
cmp_ok(sql($firsts), '>', 4, 'scans begin in different places');
is(sql(firsts('FOR UPDATE')), 1, 'but for those that wait: two might do so crosswise');
my $elsewhere = 'SELECT v FROM other LIMIT 1 FOR UPDATE SKIP LOCKED';
is(sql(firsts('FOR UPDATE', $elsewhere)), 1, 'also if the statement passes over what is locked in another table');
is(sql(firsts('FOR UPDATE', 'SELECT v FROM d WHERE k = 3 LIMIT 1 FOR UPDATE SKIP LOCKED')), 1, 'or in another scan of the same');
sql(<<'SQL');
CREATE FUNCTION waits() RETURNS tid LANGUAGE plpgsql AS
	'BEGIN RETURN (SELECT ctid FROM d WHERE k = 1 LIMIT 1 FOR UPDATE); END';
CREATE FUNCTION skips() RETURNS tid LANGUAGE plpgsql AS
	'BEGIN RETURN (SELECT ctid FROM d WHERE k = 1 LIMIT 1 FOR UPDATE SKIP LOCKED); END';
SQL
is(sql(firsts_of('waits', $elsewhere)), 1, 'or is one of a function that is called by such a statement');
cmp_ok(sql(firsts_of('skips', 'SELECT 1')), '>', 4, 'a function can read a queue');
is(sql(join(';', ($all) x 5)), join("\n", ($wanted_rows) x 5), 'and have all rows once');
my $locked = 'SELECT count(v), count(DISTINCT v), sum(v) FROM (SELECT v FROM d WHERE k = 1 FOR UPDATE SKIP LOCKED) l';
is(sql(join(';', ($locked) x 5)), join("\n", ($wanted_rows) x 5), 'as have those that begin anywhere');
is( sql(<<'SQL'), "1000\n16", 'as has a cursor, batch by batch');
BEGIN;
DECLARE c CURSOR FOR SELECT v FROM d WHERE k = 1;
CREATE TEMP TABLE got (v int4);
DO $$ DECLARE
	c refcursor := 'c';
	one int4;
BEGIN
	LOOP
		FETCH c INTO one;
		EXIT WHEN NOT FOUND;
		INSERT INTO got VALUES (one);
	END LOOP;
END $$;
SELECT count(DISTINCT v) FROM got;
COMMIT;
BEGIN;
CREATE TEMP TABLE popped (v int4);
DO $$ BEGIN
	FOR i IN 1 .. 16 LOOP
		INSERT INTO popped SELECT v FROM d WHERE k = 1 AND v NOT IN (SELECT v FROM popped) LIMIT 1 FOR UPDATE SKIP LOCKED;
	END LOOP;
END $$;
SELECT count(DISTINCT v) FROM popped;
ROLLBACK;
SQL
sub fetched
{
	my ($how) = @_;
	return sql("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT v FROM d WHERE k = 1; $how; COMMIT");
}
foreach (1 .. 3)
{
	my ($once, $again) = split /\n/, fetched('FETCH 1 FROM c; MOVE 500 IN c; FETCH FIRST FROM c');
	is($again, $once, 'a cursor that is rewound has the same first row');
}
flush_wal();
is(reads('SELECT count(v) FROM d WHERE k = 7'), "0\n0", 'after a flush');
is(sql($firsts), 1, 'nothing is known any more: all begin in the same place again');

# ---- VACUUM gives their TIDs to other rows ----

sql('CALL make_table()');
is(delete_and_look_up(2), '', 'before VACUUM');
is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'before VACUUM: they are known');
sql('VACUUM d');
sql('INSERT INTO d SELECT 2, -i FROM generate_series(1, 1000) i');
is( sql(<<SQL), 't', 'rows have their TIDs');
SET enable_seqscan = on;
SELECT count(*) > 900 FROM d WHERE k = 2 AND ctid < (SELECT max(ctid) FROM d WHERE k = 1)
SQL
is(sql('SELECT count(v) FROM d WHERE k = 2'), 1000, 'and are found');
is(sql('SELECT count(*) FROM d WHERE k = 2'), 1000, 'by index-only scans');
same_answers($node, 'd', 'k', 'd_k', 'VACUUM');

# ---- the table is emptied in place, and its TIDs begin anew ----

is( sql(<<'SQL'), "0\n0\n0\n1000", 'TRUNCATE in the transaction of CREATE TABLE');
BEGIN;
CREATE TABLE fresh (k int4, v int4);
CREATE INDEX fresh_k ON fresh USING pmhash (k);
SAVEPOINT s;
INSERT INTO fresh SELECT 1, i FROM generate_series(1, 1000) i;
ROLLBACK TO s;
SELECT count(v) FROM fresh WHERE k = 1;
SELECT count(v) FROM fresh WHERE k = 1;
SELECT count(v) FROM fresh WHERE k = 1;
TRUNCATE fresh;
INSERT INTO fresh SELECT 1, i FROM generate_series(1, 1000) i;
SELECT count(v) FROM fresh WHERE k = 1;
COMMIT;
SQL

# ---- transactions that are not over, or in parts ----

sql('CALL make_table()');
is( sql(<<'SQL'), "0\n1000", 'an aborted subtransaction beside rows of the same page and key');
BEGIN;
SAVEPOINT s;
INSERT INTO d SELECT 9, i FROM generate_series(1, 1000) i;
ROLLBACK TO s;
SELECT count(v) FROM d WHERE k = 9;
INSERT INTO d SELECT 9, i FROM generate_series(1, 1000) i;
SELECT count(v) FROM d WHERE k = 9;
COMMIT;
SQL
is(sql('SELECT count(v) FROM d WHERE k = 9'), 1000, 'and after its commit');
sql("BEGIN; DELETE FROM d WHERE k = 1; PREPARE TRANSACTION 'p'");
is(sql('SELECT count(v) FROM d WHERE k = 1; SELECT count(v) FROM d WHERE k = 1'), "1000\n1000",
	'a deletion that is prepared');
sql("ROLLBACK PREPARED 'p'");
is(sql('SELECT count(v) FROM d WHERE k = 1; SELECT count(v) FROM d WHERE k = 1'), "1000\n1000",
	'and rolled back');
sql("BEGIN; INSERT INTO d SELECT 10, i FROM generate_series(1, 1000) i; PREPARE TRANSACTION 'p'");
is(sql('SELECT count(v) FROM d WHERE k = 10; SELECT count(v) FROM d WHERE k = 10'), "0\n0",
	'an insert that is prepared');
sql("COMMIT PREPARED 'p'");
is(sql('SELECT count(v) FROM d WHERE k = 10'), 1000, 'and committed');

# an older snapshot sees rows that are deleted; HOT chains, of which all is dead or not
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(v) FROM d WHERE k = 3');
sql('UPDATE d SET v = v + 1 WHERE k = 1');
is(delete_and_look_up(3), '', 'beside an older snapshot');
is(sql('SELECT count(v) FROM d WHERE k = 3'), 0, 'a newer one sees no row');
is($old->query_safe('SELECT count(v) FROM d WHERE k = 3'), 1000, 'the older one sees all');
$old->quit;
is(delete_and_look_up(1), '', 'rows that were updated in place');
is(reads('SELECT count(v) FROM d WHERE k = 1'), "0\n0", 'their chains are dead');
same_answers($node, 'd', 'k', 'd_k', 'transactions');

# ---- files that share lists ----

my $tables = 40;
sql(join(';', map { <<SQL } 1 .. $tables));
CREATE TABLE s$_ (k int4, v int4) WITH (fillfactor = 50);
INSERT INTO s$_ SELECT i % 2, i FROM generate_series(1, 400) i;
CREATE INDEX s${_}_k ON s$_ USING pmhash (k)
SQL
my $look_at_all = join(';', map { "SELECT count(v) FROM s$_ WHERE k = 1; SELECT count(v) FROM s$_ WHERE k = 0" } 1 .. $tables);
sql(join(';', map { "DELETE FROM s$_ WHERE k = 1 AND v > $_" } 1 .. $tables));
my $locks = join(';', map { "DO 'BEGIN PERFORM v FROM s$_ WHERE k = 0 FOR UPDATE; END'" } 1 .. $tables);
my $wanted = join("\n", map { int(($_ + 1) / 2) . "\n200" } 1 .. $tables);
is(sql("BEGIN; $locks; $look_at_all; $look_at_all; ROLLBACK"), "$wanted\n$wanted", 'many files');
flush_wal();
is(sql("$look_at_all"), $wanted, 'many files, flushed');
is( sql(join(';', map { "SELECT entries FROM pmhash_stats('s${_}_k')" } 1 .. $tables)),
	join("\n", map { 200 + int(($_ + 1) / 2) } 1 .. $tables), 'many files: all that is dead has gone');

# ---- a look-up does a little of it ----

# 4,000 keys of one row, all dead; nothing waits for WAL
release_wal_writer($node);
sql('CREATE TABLE few (k int, v int); INSERT INTO few SELECT i, i FROM generate_series(1, 4000) i; CREATE INDEX few_k ON few USING pmhash (k)');
sql('DELETE FROM few');
flush_wal();
my $look = 'SELECT count(v) FROM few WHERE k = 1';
my $left = q(SELECT entries FROM pmhash_stats('few_k'));
my @left = grep { $_ > 0 } split /\n/,
  sql(join(';', 'SELECT count(v) FROM few WHERE k = ANY (ARRAY(SELECT generate_series(1, 4000)))', $left, ("$look; $left") x 60));
my @removed = map { ($_ == 0 ? 4000 : $left[$_ - 1]) - $left[$_] } 0 .. $#left;
is(scalar(grep { $_ > 160 } @removed), 0, 'a look-up takes few of 4,000 dead out') or diag("@removed");
is(sql($left), 0, 'others take out the rest');
hold_wal_writer($node);

# ---- a crash: the deletion is lost, so are the lists ----

release_wal_writer($node);
sql('CALL make_table(); CHECKPOINT');
hold_wal_writer($node);
is(delete_and_look_up(2), '', 'before the crash');
is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'before the crash: they are known');
crash($node);
$node->start;
is(sql('SELECT count(v) FROM d WHERE k = 2'), 1000, 'the rows are back, and found');
same_answers($node, 'd', 'k', 'd_k', 'crash');
is(sql(q(SELECT count(*) FROM pmhash_indexes WHERE state <> 'valid')), 0, 'no index was given up');
$node->stop;
done_testing();
