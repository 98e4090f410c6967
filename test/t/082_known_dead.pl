# Entries known to be dead whose removal waits for WAL: scans pass over them without a
# visit, any scan removes them when they may go, and nothing is passed over that is not
# dead: rows that got their TIDs, rows that came back with a crash, rows of other
# files that share a list, rows of a transaction that is not over.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# no process flushes WAL of its own accord; pages are half empty, so that no scan
# prunes any
my $node = new_server('known_dead', <<CONF);
wal_level = replica
pmhash.wal = off
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 100MB
wal_buffers = 64MB
shared_buffers = 128MB
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
max_prepared_transactions = 2
enable_seqscan = off
enable_bitmapscan = off
CONF
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE other (v int4);
CREATE FUNCTION tids_read(index regclass) RETURNS int8 LANGUAGE sql AS
	'SELECT pg_stat_get_xact_tuples_returned($1)';
CREATE PROCEDURE make_table() LANGUAGE plpgsql AS $$ BEGIN
	DROP TABLE IF EXISTS d;
	CREATE TABLE d (k int4, v int4) WITH (fillfactor = 50);
	INSERT INTO d SELECT i % 4, i FROM generate_series(1, 4000) i;
	CREATE INDEX d_k ON d USING pmhash (k);
END $$;
SQL

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

sub flush_wal
{
	return sql('SET synchronous_commit = on; INSERT INTO other VALUES (0)');
}

sub entries
{
	my ($index) = @_;
	return sql(sprintf("SELECT entries FROM pmhash_stats('%s')", $index // 'd_k'));
}

# Rows of a key are deleted, and their pages get a later record each, so that scans may
# call them dead though none of this is flushed; a scan does so.  (The transaction of
# the look-up goes on, because the server keeps one LSN for the commits of 32.)
sub delete_and_look_up
{
	my ($k, $then) = @_;
	return sql(<<SQL);
DELETE FROM d WHERE k = $k;
BEGIN;
DO 'BEGIN PERFORM v FROM d WHERE k = 0 FOR UPDATE; END';
DO 'BEGIN PERFORM v FROM d WHERE k = $k; END';
@{[ $then // '' ]}
ROLLBACK;
SQL
}

# The TIDs that a query reads of an index
sub reads
{
	my ($query, $index) = @_;
	return sql(sprintf("BEGIN; %s; SELECT tids_read('%s'); COMMIT", $query, $index // 'd_k'));
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
is(entries(), 3000, 'the next scan removes them, whoever found them and whatever it looks for');

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

# ---- a file begins, and ceases, to be logged while something waits ----

foreach my $logged ('on', 'off')
{
	sql('CALL make_table()');
	sql("ALTER INDEX d_k SET (wal = " . ($logged eq 'on' ? 'off' : 'on') . ")");
	is(delete_and_look_up(2), '', "wal = $logged: before");
	sql("ALTER INDEX d_k SET (wal = $logged)");
	is(sql('SELECT count(v) FROM d WHERE k = 2'), 0, "wal = $logged");
	for (1 .. 4)
	{
		flush_wal();
		is(sql('SELECT count(v) FROM d WHERE k = 2'), 0, "wal = $logged, flushed");
		last if entries() == 3000;
	}
	is(entries(), 3000, "wal = $logged: they go");
	same_answers($node, 'd', 'k', 'd_k', "wal = $logged");
}

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
