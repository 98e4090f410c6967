# What others change at any moment is read once, and what was read is what counts.
#
# What a scan has found dead, and the list of its file has room for less: other sessions
# empty the list, or give it up, at the moment between the look at its room and what is
# done with that.  No more is logged and noted than was found: what is past that in
# memory may be rows that live.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashDead;
use PmhashStops;
use PmhashTest;
use Test::More;

my $node = new_server('read_once', quiet_wal() . "wal_level = replica\n", install_path => install_with_stop_points());
use_stop_points($node);
$node->start;
install_extension($node);
install_wal_records($node);
use_for_dead($node, 'with tables');

# A table with rows of keys 0, 1 and 3 that live, and of others: so many of key 2, and ten
# of key 4.  Key 0 has a row on each page.
sub make_rows
{
	my ($table, $n) = @_;
	return sql(<<SQL);
CREATE TABLE $table (k int4, v int4) WITH (fillfactor = 50);
INSERT INTO $table
	SELECT CASE WHEN i % 50 = 0 THEN 0 WHEN i % 10 = 1 THEN 1 WHEN i % 50 < 10 THEN 3 ELSE 5 END, i FROM generate_series(1, 8000) i;
UPDATE $table SET k = 2 WHERE v IN (SELECT v FROM $table WHERE k = 5 ORDER BY v LIMIT $n);
UPDATE $table SET k = 4 WHERE v IN (SELECT v FROM $table WHERE k = 5 ORDER BY v LIMIT 10);
VACUUM FULL $table;
CREATE INDEX ${table}_k ON $table USING pmhash (k) WITH (wal = on);
SQL
}

# Rows of some keys are deleted, and their pages get a later record each, so that scans
# may call them dead though none of this is flushed (PmhashDead).  A session holds the
# locks that are these records: the server keeps one LSN for the commits of 32.
sub delete_rows
{
	my ($keys, @tables) = @_;
	my $locker = $node->background_psql('postgres');

	sql(join(';', map { "DELETE FROM $_ WHERE k IN ($keys)" } @tables));
	$locker->query_safe(join(';', 'BEGIN', map { "DO 'BEGIN PERFORM v FROM $_ WHERE k = 0 FOR UPDATE; END'" } @tables));
	return $locker;
}

# How many entries the records of removals have from a place on.
sub removed_since
{
	my ($from) = @_;
	flush_wal();
	return sql("SELECT string_agg(entries::text, ' ' ORDER BY record_start) FROM pmhash_wal_records('$from', 'FFFFFFFF/0') WHERE type = 'DELETE'");
}

sub end_of_wal
{
	return sql('SELECT pg_current_wal_insert_lsn()');
}

make_rows('ring', 4091);
hold_wal_writer($node);
my $locker = delete_rows('2, 4', 'ring');
is(sql('SELECT count(v) FROM ring WHERE k = 2'), 0, 'rows that are dead');
is(reads('SELECT count(v) FROM ring WHERE k = 2', 'ring_k'), "0\n0", 'all of them are known');
my $from = end_of_wal();
my $session = start_and_hold('dead_room', 'SELECT count(v) FROM ring WHERE k = 4', 'a scan that finds ten more');
flush_wal();
is(sql('SELECT count(v) FROM ring WHERE k = 7'), 0, 'another takes all there is');
release('dead_room');
is(finish($session), 0, 'the scan that was held');
is(sql('SELECT count(v) FROM ring WHERE k = 1; SELECT count(v) FROM ring WHERE k = 3'), "800\n1280", 'no row that lives is known to be dead');
is(removed_since($from), 5, 'what there was room for is logged, and nothing else');
same_answers($node, 'ring', 'k', 'ring_k', 'more room');
$locker->query_safe('ROLLBACK');
$locker->quit;

# ---- both lists are others', and become free ----

# Of 17 files there are three with the same two lists (dead_list.c: 16 lists in pairs).
sql(join(';', map { <<SQL } 1 .. 17));
CREATE TABLE p$_ (k int4, v int4) WITH (fillfactor = 50);
INSERT INTO p$_ SELECT i % 5, i FROM generate_series(1, 50) i;
CREATE INDEX p${_}_k ON p$_ USING pmhash (k) WITH (wal = on)
SQL
my %tables;
foreach (split /\n/, sql(q(SELECT "table" || ' ' || file FROM pmhash_indexes WHERE "table" LIKE 'p%')))
{
	my ($table, $digit) = /^(p\d+) .*([0-9a-f])\.pmh$/ or die "not a file: $_";
	push @{ $tables{ hex($digit) >> 1 } }, $table;
}
my ($first, $second, $third) = @{ (grep { @$_ >= 3 } values %tables)[0] };
$locker = delete_rows(4, $first, $second, $third);
is(reads("SELECT count(v) FROM $_ WHERE k = 4; SELECT count(v) FROM $_ WHERE k = 4", "${_}_k"), "0\n0\n10", 'one has a list')
  foreach $first, $second;
is(reads("SELECT count(v) FROM $third WHERE k = 4; SELECT count(v) FROM $third WHERE k = 4", "${third}_k"), "0\n0\n20",
	'the third has none');
$from = end_of_wal();
$session = start_and_hold('dead_room', "SELECT count(v) FROM $third WHERE k = 4", 'a scan without a list');
flush_wal();
release('dead_room');
is(finish($session), 0, 'the scan without a list');
is(sql(join(';', map { "SELECT count(v) FROM $third WHERE k = $_" } 0 .. 3)), join("\n", (10) x 4), 'no row that lives is known to be dead');
is(removed_since($from), '', 'nothing is logged for which there was no list');
$locker->quit;

release_wal_writer($node);
$node->stop;
done_testing();
