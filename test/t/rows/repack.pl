# REPACK (PostgreSQL 19) of a table whose indexes are pmhash's, one of them the identity
# by which CONCURRENTLY finds the rows that others have changed meanwhile.

use v5.36;
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

my $node = new_server('repack', "wal_level = logical\nmax_wal_senders = 4\n", allows_streaming => 1);
plan(skip_all => 'there is REPACK since 19') if $node->pg_version->major < 19;
$node->append_conf('pg_hba.conf', "local replication all trust\n");

# Each build of the index t_held waits for whoever has this lock.
start_with_extension($node, <<'SQL');
CREATE FUNCTION held(i int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql
	AS 'BEGIN PERFORM pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1); RETURN i; END';
CREATE TABLE t (id text NOT NULL, k int4, v int4);
CREATE UNIQUE INDEX t_id ON t USING pmhash (id);
ALTER TABLE t REPLICA IDENTITY USING INDEX t_id;
CREATE INDEX t_k ON t USING pmhash (k) WITH (wal = on);
CREATE INDEX t_order ON t (v);
INSERT INTO t SELECT 'row ' || i, i % 500, i FROM generate_series(1, 10000) i;
DELETE FROM t WHERE v % 3 = 0;
CREATE TABLE twin AS TABLE t;
SQL
use_stop_points($node);
my $standby = new_standby($node, 'standby');

sub all_right ($name)
{
	is($node->safe_psql('postgres', '(TABLE t EXCEPT ALL TABLE twin) UNION ALL (TABLE twin EXCEPT ALL TABLE t)'), '', "$name: rows");
	same_answers($node, 't', 'id', 't_id', $name);
	same_answers($node, 't', 'k', 't_k', $name);
	all_checked($node, $name);
	fails_like($node, "INSERT INTO t VALUES ('row 1', 0, 0)", qr/violates unique constraint "t_id"/, "$name: a key that is there");
	return;
}

# event: `REPACK`, `REPACK (CONCURRENTLY)` (PostgreSQL 19)
$node->safe_psql('postgres', 'REPACK t');
all_right('REPACK');
$node->safe_psql('postgres', 'REPACK t USING INDEX t_order');
all_right('REPACK in the order of a btree');
fails_like($node, 'REPACK t USING INDEX t_k', qr/cannot cluster on index "t_k"/, 'in the order of an index that has none');

# Of both tables, between the copy of the rows and the end of REPACK.
my @changes = map { ($_, s/\bt\b/twin/r) } (
	"UPDATE t SET v = -v WHERE k % 5 = 0",
	"UPDATE t SET k = k + 500 WHERE v % 7 = 0",
	"UPDATE t SET id = id || ' moved' WHERE v % 11 = 0",
	"UPDATE t SET v = v + 1 WHERE id LIKE '% moved'",
	"DELETE FROM t WHERE v % 13 = 0",
	"INSERT INTO t SELECT 'row ' || i, i % 500, i FROM generate_series(11001, 12000) i",
	"DELETE FROM t WHERE v BETWEEN 11001 AND 11100",
	"INSERT INTO t SELECT 'row ' || i, i, i FROM generate_series(11001, 11050) i");
my $none = "BEGIN; DELETE FROM t WHERE v % 2 = 0; INSERT INTO t SELECT 'none ' || i, i, i FROM generate_series(1, 500) i; ROLLBACK";
$node->safe_psql('postgres', 'CREATE INDEX t_held ON t (held(v))');
foreach my $round (1, 2)
{
	my $name = "CONCURRENTLY, $round";
	my $writer = session_with($node, 'SELECT pg_advisory_lock(1)');
	my $repack = start_session('REPACK (CONCURRENTLY) t');

	wait_until($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'REPACK%' AND wait_event = 'advisory'", 'REPACK does not wait');
	$writer->query_safe($_) foreach (@changes, $none);
	$writer->query_safe("SELECT pg_advisory_unlock(1)");
	$writer->quit;
	is(finish($repack), '', $name);
	all_right($name);
	@changes = map { s/row /again /r } @changes;
}
$node->safe_psql('postgres', "INSERT INTO t VALUES ('row last', 1, 1); INSERT INTO twin VALUES ('row last', 1, 1)");
$node->wait_for_catchup($standby);
wait_for_state($standby, 't_k', qr/^valid$/, 'standby');
same_answers($standby, 't', 'k', 't_k', 'standby');
crash_and_start($node);
all_right('after a crash');
is($node->safe_psql('postgres', "SELECT count(*) FROM pmhash.indexes WHERE state <> 'valid'"), '0', 'no index was rebuilt');
$standby->stop;
$node->stop;
done_testing();
