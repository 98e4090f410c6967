# Entries known to be dead (082) beside what could make the knowledge wrong: a process
# that has taken some and comes no further, while VACUUM gives their TIDs to other rows
# or the server dies; isolation levels; subtransactions; joins; transactions that began
# during recovery and are still there after a promotion.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashDead;
use PmhashStandby;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $settings = quiet_wal() . "wal_level = replica\n";
my $node = new_server('known_dead_breaks', $settings, install_path => install_with_stop_points());
my $points = use_stop_points($node);
$node->start;
install_extension($node);
use_for_dead($node, 'with tables');

# A new table; no list of a file from before waits for anything.
sub fresh_table
{
	flush_wal();
	return sql('CALL make_table()');
}

# A session is held when it has taken out of the list what it may remove.
sub hold_removal
{
	my ($query) = @_;
	return start_and_hold('dead_before_removal', $query, 'removal');
}

# It goes on, and gets so many rows.
sub go_on
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($session, $rows) = @_;

	release('dead_before_removal');
	return is(finish($session), $rows, 'the session that was held');
}

hold_wal_writer($node);

# ---- taken out of the list and not removed yet, while their TIDs become others' ----

fresh_table();
delete_and_look_up(2);
is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'they are known');
flush_wal();
my $session = hold_removal('SELECT count(v) FROM d WHERE k = 1');
is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'still known while they are being removed');
sql('VACUUM d; INSERT INTO d SELECT 2, -i FROM generate_series(1, 1000) i');
is( sql(<<SQL), 't', 'rows have their TIDs');
SET enable_seqscan = on;
SELECT count(*) > 900 FROM d WHERE k = 2 AND ctid < (SELECT max(ctid) FROM d WHERE k = 1)
SQL
is(sql('SELECT count(v) FROM d WHERE k = 2'), 1000, 'they are found');
is(sql('SELECT count(*) FROM d WHERE k = 2'), 1000, 'by the index alone');
is(sql('SET enable_indexscan = off; SET enable_bitmapscan = on; SELECT count(v) FROM d WHERE k = 2'), 1000, 'by a bitmap');
same_answers($node, 'd', 'k', 'd_k', 'while the removal is held');
go_on($session, 1000);
same_answers($node, 'd', 'k', 'd_k', 'when it has gone on');
is(sql(q(SELECT pmhash_check('d_k'))), '', 'pmhash_check');

# ---- of what waits for WAL, what may go goes, and nothing else ----

fresh_table();
delete_and_look_up(2);
sql('DELETE FROM d WHERE k = 3 AND v % 8 = 3');
my $cursor = $node->background_psql('postgres');
$cursor->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT v FROM d WHERE k = 3; FETCH 1 FROM c');
flush_wal();
# later records on their pages, which nothing flushes
$cursor->query_safe('DECLARE l CURSOR FOR SELECT v FROM d WHERE v % 4 = 0 FOR UPDATE; MOVE ALL IN l; MOVE ALL IN c; CLOSE c');
is(sql('SELECT count(v) FROM d WHERE k = 1'), 1000, 'a scan comes by');
is(sql(q(SELECT entries FROM pmhash_stats('d_k'))), 3000, 'it has removed what was flushed, and not the rest');
cmp_ok(reads('SELECT count(v) FROM d WHERE k = 3') =~ s/^500\n//r, '<', 520, 'most of which is known still');
$cursor->query_safe('COMMIT');
$cursor->quit;

# ---- an exclusion constraint is checked by what is there ----

sql(<<SQL);
CREATE TABLE e (k int4, v int4, CONSTRAINT e_k EXCLUDE USING pmhash (k WITH =)) WITH (fillfactor = 50);
INSERT INTO e SELECT i, i FROM generate_series(1, 1000) i;
DELETE FROM e WHERE k % 2 = 1;
BEGIN;
DO 'BEGIN PERFORM v FROM e WHERE k = ANY (ARRAY(SELECT 2 * i FROM generate_series(1, 500) i)) FOR UPDATE; END';
DO 'BEGIN PERFORM v FROM e WHERE k = ANY (ARRAY(SELECT 2 * i - 1 FROM generate_series(1, 500) i)); END';
ROLLBACK;
SQL
flush_wal();
$session = hold_removal('SELECT count(v) FROM e WHERE k = 2');
sql('VACUUM e; INSERT INTO e SELECT 2 * i - 1, 0 FROM generate_series(1, 500) i');
fails_like($node, 'INSERT INTO e VALUES (501, 0)', qr/conflicting key value/, 'exclusion constraint');
go_on($session, 1);
is(sql('SET enable_seqscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off; SELECT count(*), count(DISTINCT k) FROM e'),
	'1000|1000', 'exclusion constraint: no key twice');

# ---- subtransactions ----

fresh_table();
is( sql(<<SQL), "1000\n0\n1000\n1000", 'a deletion that is taken back was never dead');
BEGIN;
SELECT count(v) FROM d WHERE k = 2;
SAVEPOINT s;
DELETE FROM d WHERE k = 2;
SELECT count(v) FROM d WHERE k = 2;
ROLLBACK TO s;
SELECT count(v) FROM d WHERE k = 2;
COMMIT;
SELECT count(v) FROM d WHERE k = 2;
SQL
sql('DELETE FROM d WHERE k = 2');
is( sql(<<SQL), "0\n0", 'what a subtransaction found that is rolled back stays known');
BEGIN;
DO 'BEGIN PERFORM v FROM d WHERE k = 0 FOR UPDATE; END';
SAVEPOINT s;
DO 'BEGIN PERFORM v FROM d WHERE k = 2; END';
ROLLBACK TO s;
SAVEPOINT s;
DO 'BEGIN PERFORM v / 0 FROM d WHERE k = 3; EXCEPTION WHEN division_by_zero THEN NULL; END';
ROLLBACK TO s;
SELECT count(v) FROM d WHERE k = 2;
SELECT tids_read('d_k') - 1000 - 1000 - 1;
COMMIT;
SQL
is(sql('SELECT count(v) FROM d WHERE k = 3'), 1000, 'nothing else is');
same_answers($node, 'd', 'k', 'd_k', 'subtransactions');

# ---- isolation levels ----

foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	fresh_table();
	my $older = $node->background_psql('postgres');
	$older->query_safe("BEGIN ISOLATION LEVEL $level; SELECT count(v) FROM d WHERE k = 1");
	delete_and_look_up(2);
	is($older->query_safe('SELECT count(v) FROM d WHERE k = 2'), $level eq 'READ COMMITTED' ? 0 : 1000, "$level: a transaction from before");
	$older->quit;
	delete_and_look_up(2);
	is(reads("SET TRANSACTION ISOLATION LEVEL $level; SELECT count(v) FROM d WHERE k = 2"), "0\n0", "$level: none is visited");
}

# A serializable transaction that passes over all rows of a key has read the key.
my $reader = $node->background_psql('postgres', on_error_stop => 0);
my $writer = $node->background_psql('postgres', on_error_stop => 0);
$_->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE') foreach $reader, $writer;
is($reader->query_safe(q(SELECT count(v) FROM d WHERE k = 2; SELECT tids_read('d_k'))), "0\n0", 'serializable: the reader visits none');
$writer->query_safe('SELECT count(*) FROM other; INSERT INTO d VALUES (2, 0)');
$reader->query('INSERT INTO other VALUES (1)');
$writer->query('COMMIT');
$reader->query('COMMIT');
like($reader->{stderr} . $writer->{stderr}, qr/could not serialize access/, 'serializable: a row with that key is a conflict');
$_->quit foreach $reader, $writer;

# ---- joins ----

fresh_table();
sql('CREATE TABLE o AS SELECT i % 3 + 1 AS k FROM generate_series(1, 300) i; ANALYZE o');
my $by_join = 'SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL cpu_index_tuple_cost = 1000; SET LOCAL enable_seqscan = on';
my $join = 'SELECT count(d.v) FROM o JOIN d USING (k)';
cmp_ok(reads("$by_join; $join WHERE o.k + 0 = 2") =~ s/^.*\n//r, '>=', 1000, 'a join reads TIDs');
delete_and_look_up(2);
is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'they are known');
like(sql("BEGIN; $by_join; EXPLAIN $join"), qr/pmhash join/, 'plan of a join');
is(sql("BEGIN; $by_join; $join"), 200000, 'a join passes over them');
is(reads("$by_join; $join WHERE o.k + 0 = 2"), "0\n0", 'a join visits none of them');
flush_wal();
$session = hold_removal('SELECT count(v) FROM d WHERE k = 1');
sql('VACUUM d; INSERT INTO d SELECT 2, -i FROM generate_series(1, 1000) i');
is(sql('SELECT count(v) FROM d WHERE k = 2'), 1000, 'others have their TIDs');
is(sql("BEGIN; $by_join; $join"), 300000, 'a join finds them');
go_on($session, 1000);

# ---- the server dies while some are taken out and not removed ----

release_wal_writer($node);
sql('CALL make_table(); CHECKPOINT');
hold_wal_writer($node);
delete_and_look_up(2);
flush_wal();
$session = hold_removal('SELECT count(v) FROM d WHERE k = 1');
delete_and_look_up(3);
is(sql('SELECT count(v) FROM d WHERE k = 3'), 0, 'rows whose deletion is not flushed');
crash($node);
finish($session);
unlink("$points/dead_before_removal.held");
$node->start;
is(sql('SELECT count(v) FROM d WHERE k = 2'), 0, 'after a crash: what was flushed is dead');
is(sql('SELECT count(v) FROM d WHERE k = 3'), 1000, 'what was not is back');
same_answers($node, 'd', 'k', 'd_k', 'crash');
is(sql(q(SELECT pmhash_check('d_k'))), '', 'crash: pmhash_check');
is(sql(q(SELECT count(*) FROM pmhash_indexes WHERE state <> 'valid')), 0, 'no index was given up');
$node->stop;

# ---- transactions that began during recovery ----

$node = new_primary('dead_primary', $settings);
use_for_dead($node, 'with tables');
sql(q(CALL make_table('WITH (wal = on)')));
my $primary = $node;
my $standby = new_standby($primary, 'dead_standby');
wait_for_state($standby, 'd_k', qr/^valid$/, 'the standby has its file');
sql('DELETE FROM d WHERE k IN (1, 2)');
flush_wal();
caught_up($primary, $standby);
my %old = map { $_ => $standby->background_psql('postgres') } ('READ COMMITTED', 'REPEATABLE READ');
is($old{$_}->query_safe("BEGIN ISOLATION LEVEL $_; SELECT count(v) FROM d WHERE k = 2"), 0, "recovery, $_: before") foreach sort keys %old;
$primary->stop;
$standby->promote;
$node = $standby;
use_for_dead($node);
wait_for_state($node, 'd_k', qr/^valid$/, 'promoted: the file is used');
# the checkpoint that a promotion asks for flushes WAL as it comes to the pages of d
sql('CHECKPOINT');
hold_wal_writer($node);
my $look = <<SQL;
BEGIN;
DO 'BEGIN PERFORM v FROM d WHERE k = 0 FOR UPDATE; END';
DO 'BEGIN PERFORM v FROM d WHERE k = 2; END';
COMMIT;
SQL
sql($look);
is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'promoted: they are known');
foreach my $level (sort keys %old)
{
	my $session = $old{$level};
	my $count = "SELECT tids_read('d_k')";
	my $before = $session->query_safe($count);

	is($session->query_safe('SELECT count(v) FROM d WHERE k = 2'), 0, "recovery, $level: after");
	is($session->query_safe($count) - $before, 1000, "recovery, $level: it visits them");
	is($session->query_safe('SELECT count(v) FROM d WHERE k = 1'), 0, "recovery, $level: others that are dead");
	is($session->query_safe('SELECT count(v) FROM d WHERE k = 3'), 1000, "recovery, $level: rows that it sees");
}
is(reads('SELECT count(v) FROM d WHERE k = 1'), "0\n1000", 'they have put nothing into the list');
$_->query_safe('COMMIT') foreach values %old;
my $read = $old{'READ COMMITTED'}->query_safe("SELECT tids_read('d_k')");
is($old{'READ COMMITTED'}->query_safe("SELECT count(v) FROM d WHERE k = 2; SELECT tids_read('d_k') - $read"), "0\n0",
	'their next transactions pass over them');
$_->quit foreach values %old;
release_wal_writer($node);
same_answers($node, 'd', 'k', 'd_k', 'promoted');
$node->stop;
done_testing();
