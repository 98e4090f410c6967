# Logged indexes: the order of entry, record and flush, at the moments between them.
# Processes are held there, others look, and the server is killed.

use v5.36;
use PmhashStops;
use PmhashTest;

# no process flushes WAL of its own accord for a while
my $node = new_server('order', <<CONF, install_path => install_with_stop_points());
wal_level = replica
synchronous_commit = on
wal_writer_delay = 10s
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
pmhash.cleaner_naptime = 1000
CONF
use_stop_points($node);

sub sql ($sql)
{
	return $node->safe_psql('postgres', $sql);
}

# Let a session go on from a point to its end; what it has printed.
sub go_on ($point, $session)
{
	release($point);
	return finish($session);
}

# kill -9 of the server, while a session is held; start it again.
sub crash_held ($point, $session)
{
	crash($node);
	release($point);
	eval { $session->{run}->finish };
	$node->start;
	return;
}

sub flush
{
	sql('SET synchronous_commit = on; CREATE TEMP TABLE flush (); DROP TABLE flush');
	return sql('SELECT pg_current_wal_flush_lsn()');
}

# Types and numbers of entries of what is on disk from a place on.
sub on_disk ($from)
{
	return join(' ', split(/\n/,
			sql("SELECT type || coalesce(nullif(entries, 0)::text, '') FROM pmhash_wal_records('$from', 'FFFFFFFF/0') ORDER BY record_start")));
}

sub entries
{
	return sql("SELECT entries FROM pmhash.stats('t_k')");
}

sub sound ($name)
{
	is(sql("SELECT state FROM pmhash.indexes WHERE index = 't_k'"), 'valid', "$name: valid");
	is(sql("SELECT pmhash.check('t_k')"), '', "$name: sound");
	return same_answers($node, 't', 'k', 't_k', $name);
}

start_with_extension($node);
install_wal_records($node);
sql(<<SQL);
CREATE TABLE t (k int4, v int4) WITH (fillfactor = 50);
INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX t_k ON t USING pmhash (k) WITH (wal = on);
SQL
my ($from, $session, $before);

# ---- P1: the entry, then its record ----

foreach my $insert (
	[ 'alone', 'INSERT INTO t VALUES (-1, -1)', 1 ],
	[ 'group', 'BEGIN; INSERT INTO t SELECT -i, i FROM generate_series(1, 116) i; COMMIT', 116 ])
{
	my ($name, $sql, $n) = @$insert;

	$before = entries();
	$from = flush();
	$session = start_and_hold('insert_before_wal', $sql);
	# of a group the first 16 rows come one by one
	is(entries(), $before + 1, "$name: the entry is there") if $n == 1;
	flush();
	is(on_disk($from), '', "$name: its record is not");
	is(go_on('insert_before_wal', $session), '', "$name: goes on");
	like(on_disk($from), qr/^INSERT1/, "$name: now it is");
	is(entries(), $before + $n, "$name: entries");
}
sound('inserts');

# a group that is held before its record: all of its entries are there
$before = entries();
$from = flush();
$session = start_and_hold('group_after_journal', 'INSERT INTO t SELECT -i, i FROM generate_series(1, 116) i');
hold('insert_before_wal');
release('group_after_journal');
is_held('insert_before_wal');
is(entries(), $before + 116, 'group: all entries are there');
flush();
is(on_disk($from), join(' ', ('INSERT1') x 16), 'group: the record is not');
go_on('insert_before_wal', $session);
is(on_disk($from), join(' ', ('INSERT1') x 16, 'INSERT100'), 'group: one record for all');

# killed between entry and record
$from = flush();
$session = start_and_hold('insert_before_wal', 'INSERT INTO t VALUES (-5, -5)');
flush();
crash_held('insert_before_wal', $session);
is(on_disk($from), '', 'killed between entry and record: no record');
sound('killed between entry and record, the row is in WAL');
$session = start_and_hold('insert_before_wal', 'INSERT INTO t VALUES (-5, -5)');
crash_held('insert_before_wal', $session);
sound('killed between entry and record, the row is lost');

# cancelled between entry and record, and committed all the same
sql(<<'SQL');
CREATE FUNCTION careless() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t VALUES (-6, -6);
EXCEPTION WHEN query_canceled THEN
	NULL;
END $$;
SQL
$from = flush();
$session = start_and_hold('insert_before_wal', 'SELECT careless()');
sql(q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT careless()' AND pid <> pg_backend_pid()));
go_on('insert_before_wal', $session);
flush();
is(on_disk($from), 'INSERT1', 'cancelled between entry and record: the record is there');

# ---- P3: the record, its flush, then the removal ----

# (killed and cancelled there: dead_rows)
sql('VACUUM t');				# scans remove entries of aborted rows only when they get to it
sql('DELETE FROM t WHERE k BETWEEN 1 AND 100');
$before = entries();
$from = flush();
$session = start_and_hold('vacuum_after_log', 'VACUUM t');
is(entries(), $before, 'VACUUM: logged and not removed');
is(on_disk($from), '', 'VACUUM: nor flushed');
hold('vacuum_after_flush');
release('vacuum_after_log');
is_held('vacuum_after_flush');
is(on_disk($from), 'DELETE100', 'VACUUM: the record is on disk');
is(entries(), $before, 'VACUUM: and nothing removed');
# killed then: the next one logs them again
crash_held('vacuum_after_flush', $session);
is(entries(), $before, 'killed before the removal: the entries are still there');
$from = flush();
sql('VACUUM t');
flush();
is(on_disk($from), 'DELETE100 SWEPT', 'the next VACUUM logs them again');
is(entries(), $before - 100, 'and removes them');
sound('VACUUM after that');

# ---- P4: scans ----

my $look = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(v) FROM t WHERE k = 300';

# VACUUM gives TIDs away between the horizon and the record of a scan
sql('DELETE FROM t WHERE k = 300');
$from = flush();
$session = start_and_hold('dead_before_log', $look);
sql('VACUUM t');
flush();
is(on_disk($from), 'DELETE1 SWEPT', 'VACUUM has removed what a scan is about to log');
is(go_on('dead_before_log', $session), '0', 'the scan goes on');
flush();
is(on_disk($from), 'DELETE1 SWEPT', 'and logs nothing');

# killed between the record of a scan and the removal
$look =~ s/300/301/;
sql('DELETE FROM t WHERE k = 301');
$before = entries();
$from = flush();
$session = start_and_hold('dead_before_removal', "$look; SELECT pg_sleep(0.5); " x 10);
like(on_disk($from), qr/^DELETE1$/, 'the record of a scan is on disk before it removes');
is(entries(), $before, 'and nothing is removed');
crash_held('dead_before_removal', $session);
is(entries(), $before, 'killed: the entry is still there');
sound('killed before the removal');
sql('VACUUM t');
is(entries(), $before - 1, 'VACUUM removes it');

$node->stop;

done_testing();
