# Entries that scans have found dead: how much WAL their removal waits for.  Of
# the heap page's WAL, all; of what comes after it, nothing.  All that were found
# go at once.  A data directory put back from before the deletion is noticed.

use strict;
use warnings;

use File::Path qw(rmtree);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashDead qw(quiet_wal use_for_dead flush_wal);
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# pages are half empty, so that no scan prunes any: that would be WAL of its own on them
my $node = new_server('dead_wal', quiet_wal());
$node->start;
install_extension($node);
use_for_dead($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE d (k int4, v int4) WITH (fillfactor = 50);
INSERT INTO d SELECT i % 4, i FROM generate_series(1, 12000) i;
CREATE INDEX d_k ON d USING pmhash (k);
CREATE TABLE other (v int4);
CHECKPOINT;
SQL

sub entries
{
	return $node->safe_psql('postgres', "SELECT entries FROM pmhash_stats('d_k')");
}

sub look_up
{
	my ($k) = @_;
	return $node->safe_psql('postgres', "SELECT count(v) FROM d WHERE k = $k");
}

# What makes rows of a key dead, and lets scans say so, though the commit is not
# flushed: a record on each of their pages that is later than all commits.  (Row
# locks, so that no page gets fuller; and the transaction goes on, because the
# server keeps one LSN for the commits of 32 transactions.)
sub delete_and_look_up
{
	my ($k) = @_;
	return (<<SQL, "3000\n0\n0\n0");
DELETE FROM d WHERE k = $k;
BEGIN;
SELECT count(*) FROM (SELECT v FROM d WHERE k = 0 FOR UPDATE) l;
SELECT count(v) FROM d WHERE k = $k;
SELECT count(v) FROM d WHERE k = $k;
SELECT count(v) FROM d WHERE k = $k;
ROLLBACK;
SQL
}

# WAL that is not flushed.  No commit: see above.
sub write_wal
{
	return $node->safe_psql('postgres', 'BEGIN; INSERT INTO other SELECT generate_series(1, 1000); ROLLBACK');
}

# Is the end of flushed WAL before that of WAL?
sub wal_is_behind
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;
	return is($node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()'),
		't', "$name: some WAL is not flushed");
}

# ---- dead entries are found while other sessions' WAL is not flushed ----
is(entries(), 12000, 'before');
hold_wal_writer($node);
$node->safe_psql('postgres', 'DELETE FROM d WHERE k = 1');
flush_wal();
write_wal();
wal_is_behind('flushed deletion');
is(look_up(1), 0, 'flushed deletion: no row');
is(entries(), 9000, 'flushed deletion: all entries have gone in one look-up');
wal_is_behind('flushed deletion, looked up');

# ---- dead entries are found whose deletion is not flushed ----
my ($sql, $answer) = delete_and_look_up(2);
is($node->safe_psql('postgres', $sql), $answer, 'deletion in memory: no row');
wal_is_behind('deletion in memory');
is(entries(), 9000, 'deletion in memory: entries stay');
flush_wal();
is(look_up(2), 0, 'deletion flushed: no row');
is(entries(), 6000, 'deletion flushed: all have gone in one look-up');

# the same within one session, which keeps what it has found until it may go
($sql, $answer) = delete_and_look_up(3);
is( $node->safe_psql('postgres', <<SQL),
$sql
SELECT entries FROM pmhash_stats('d_k');
SET synchronous_commit = on;
INSERT INTO other VALUES (0);
SELECT count(v) FROM d WHERE k = 7;
SQL
	"$answer\n6000\n0", 'one session');
is(entries(), 3000, 'one session: removed when the next scan begins, whatever it looks for');

# event: rows deleted with `synchronous_commit = off` are back after a crash, though scans have found them dead
# the launcher has to see the checkpoint
release_wal_writer($node);
$node->safe_psql('postgres', 'TRUNCATE d; INSERT INTO d SELECT i % 4, i FROM generate_series(1, 12000) i; CHECKPOINT');
hold_wal_writer($node);
($sql, $answer) = delete_and_look_up(2);
is($node->safe_psql('postgres', $sql), $answer, 'before the crash');
crash($node);
$node->start;
is($node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_seqscan = on; SELECT count(*) FROM d WHERE k = 2'),
	3000, 'the deletion is lost');
same_answers($node, 'd', 'k', 'd_k', 'rows that came back');

# The launcher flushes for those that wait, though no other process does.
my ($wal_writer) = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
$node->safe_psql('postgres', 'TRUNCATE d; INSERT INTO d SELECT i % 4, i FROM generate_series(1, 12000) i');
kill('STOP', $wal_writer);
($sql, $answer) = delete_and_look_up(3);
is( $node->safe_psql('postgres', <<SQL),
$sql
DO \$\$ BEGIN
	FOR i IN 1..1000 LOOP
		PERFORM pg_sleep(0.01);
		PERFORM v FROM d WHERE k = 7;
		EXIT WHEN (SELECT entries FROM pmhash_stats('d_k')) = 9000;
	END LOOP;
END \$\$;
SELECT entries FROM pmhash_stats('d_k');
SQL
	"$answer\n9000", 'the launcher flushes');
kill('CONT', $wal_writer);
$node->safe_psql('postgres', 'TRUNCATE d; INSERT INTO d SELECT i % 4, i FROM generate_series(1, 12000) i; CHECKPOINT');

# after a removal that has not waited for other WAL
hold_wal_writer($node);
$node->safe_psql('postgres', 'DELETE FROM d WHERE k = 1');
flush_wal();
$node->safe_psql('postgres', 'BEGIN; INSERT INTO d SELECT 1, i FROM generate_series(1, 500) i; ROLLBACK');
my $before = entries();
is(look_up(1), 0, 'rows that are rolled back');
my $after = entries();
cmp_ok($after, '<', $before - 2900, 'dead entries have gone whose WAL is flushed');
cmp_ok($after, '>', $before - 3000, 'and those of a page that has later WAL have not');
wal_is_behind('removal');
crash($node);
$node->start;
is(look_up(1), 0, 'the deletion has survived');
same_answers($node, 'd', 'k', 'd_k', 'after a removal');
is($node->safe_psql('postgres', 'SELECT state FROM pmhash_indexes'), 'valid', 'no index was given up');

# ---- the data directory is put back from before a deletion, with its times as a
# snapshot has them; dead entries have gone since ----
hold_wal_writer($node);
flush_wal();
my $data = $node->data_dir;
my $save = "$PostgreSQL::Test::Utils::tmp_check/save";
rmtree($save);
system_or_bail('cp', '-a', $data, $save);
$node->safe_psql('postgres', 'DELETE FROM d WHERE k = 3');
flush_wal();
write_wal();
$before = entries();
is(look_up(3), 0, 'before the data directory is put back');
is(entries(), $before - 3000, 'before the data directory is put back: entries have gone');
crash($node);
rmtree($data);
system_or_bail('cp', '-a', $save, $data);
rmtree($save);
chmod(0700, $data);
unlink("$data/postmaster.pid");
my $from = -s $node->logfile;
$node->start;
$node->wait_for_log(qr/are not trusted: WAL that had been flushed was not replayed/, $from);
is(look_up(3), 3000, 'the rows are back, and found');
$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash_indexes");
same_answers($node, 'd', 'k', 'd_k', 'data directory put back');
$node->stop;
done_testing();
