# Entries of dead rows: who may see their rows, what removes them, and what of that has to wait for WAL.

use v5.36;

use File::Path qw(rmtree);
use PmhashDead;
use PmhashFaults;
use PmhashTest;

# ======== dead entries wal ========

# Entries that scans have found dead wait for the WAL that there was then (known_dead), and a crash
# may take the deletion back.  A data directory put back from before the deletion is noticed.
{
	my $node = new_server('dead_wal', quiet_wal());
	start_with_extension($node);
	use_for_dead($node, 'with tables');

	sub entries
	{
		return sql("SELECT entries FROM pmhash.stats('d_k')");
	}

	sub look_up ($k)
	{
		return sql("SELECT count(v) FROM d WHERE k = $k");
	}

	# Is the end of flushed WAL before that of WAL?
	sub wal_is_behind ($name)
	{
		return is(sql('SELECT pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()'), 't', "$name: some WAL is not flushed");
	}

	# Entries of a key whose rows are dead go when all WAL is flushed that there was when they
	# were found.
	sub look_up_and_remove ($k)
	{
		my $n = look_up($k);

		flush_wal();
		return $n + look_up($k);
	}

	# event: rows deleted with `synchronous_commit = off` are back after a crash, though scans have found them dead
	# the launcher has to see the checkpoint
	sql('CALL make_table(); CHECKPOINT');
	hold_wal_writer($node);
	delete_and_look_up(2);
	wal_is_behind('deletion in memory');
	is(entries(), 4000, 'deletion in memory: entries stay');
	crash_and_start($node);
	is(sql('SET enable_indexscan = off; SET enable_seqscan = on; SELECT count(*) FROM d WHERE k = 2'), 1000, 'the deletion is lost');
	is(sql('SELECT count(*) FROM d WHERE k = 2'), 1000, 'and all are visible to index-only scans');
	same_answers($node, 'd', 'k', 'd_k', 'rows that came back');

	# The launcher flushes for those that wait, though no other process does.
	my ($wal_writer) = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
	sql('CALL make_table()');
	kill('STOP', $wal_writer);
	delete_and_look_up(3);
	is( sql(<<'SQL'), 3000, 'the launcher flushes');
DO $$ BEGIN
	FOR i IN 1..1000 LOOP
		PERFORM pg_sleep(0.01);
		PERFORM v FROM d WHERE k = 7;
		EXIT WHEN (SELECT entries FROM pmhash.stats('d_k')) = 3000;
	END LOOP;
END $$;
SELECT entries FROM pmhash.stats('d_k');
SQL
	kill('CONT', $wal_writer);
	sql('CALL make_table(); CHECKPOINT');

	# after a removal
	hold_wal_writer($node);
	sql('DELETE FROM d WHERE k = 1');
	my $before = entries();
	is(look_up_and_remove(1), 0, 'rows that are deleted');
	is(entries(), $before - 1000, 'their entries have gone');
	# WAL that is not flushed (a commit would wake the WAL writer)
	sql('BEGIN; INSERT INTO other SELECT generate_series(1, 1000); ROLLBACK');
	wal_is_behind('removal');
	crash_and_start($node);
	is(look_up(1), 0, 'the deletion has survived');
	same_answers($node, 'd', 'k', 'd_k', 'after a removal');
	is(sql('SELECT state FROM pmhash.indexes'), 'valid', 'no index was given up');

	# ---- the data directory is put back from before a deletion, with its times as a
	# snapshot has them; dead entries have gone since ----
	hold_wal_writer($node);
	flush_wal();
	my $data = $node->data_dir;
	my $save = $node->basedir . "/save";
	rmtree($save);
	system_or_bail('cp', '-a', $data, $save);
	sql('DELETE FROM d WHERE k = 3');
	$before = entries();
	is(look_up_and_remove(3), 0, 'before the data directory is put back');
	is(entries(), $before - 1000, 'before the data directory is put back: entries have gone');
	crash($node);
	rmtree($data);
	system_or_bail('cp', '-a', $save, $data);
	rmtree($save);
	chmod(0700, $data);
	unlink("$data/postmaster.pid");
	my $from = -s $node->logfile;
	$node->start;
	$node->wait_for_log(qr/are not trusted: WAL that had been flushed was not replayed/, $from);
	is(look_up(3), 1000, 'the rows are back, and found');
	$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash.indexes");
	same_answers($node, 'd', 'k', 'd_k', 'data directory put back');
	$node->stop;
}

# ======== removal waits for wal ========

# WAL that never reaches the disk.  Deleted rows come back with a crash: VACUUM
# must not have taken their entries.  Inserted rows are gone, and their TIDs
# are used again: their entries must go too.
{
	# only this test flushes WAL
	my $node = new_faulty_server('removal', no_wal_flushes() . <<CONF);
pmhash.journal_size = 16MB
CONF
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE r (k int4, d int4);
INSERT INTO r SELECT i, i % 10 FROM generate_series(1, 20000) i;
CREATE INDEX r_k ON r USING pmhash (k);
CREATE INDEX r_d ON r USING pmhash (d);
CHECKPOINT;
SQL

	# event: rows deleted with `synchronous_commit = off` are back after a crash, though `VACUUM` was at work
	foreach my $round (1 .. 4)
	{
		hold_wal_writer($node);
		$node->safe_psql('postgres', <<SQL);
DELETE FROM r WHERE k % 4 = $round - 1;
VACUUM (TRUNCATE OFF) r;
SQL
		crash_and_start($node);
		same_answers($node, 'r', 'k', 'r_k', "VACUUM, round $round");
		same_answers($node, 'r', 'd', 'r_d', "VACUUM, round $round");
	}

	# The same with the crash in the middle of bulk delete: PANIC, or SIGKILL of the
	# backend, when it asks for the n-th time whether to pause after it has flushed
	# WAL for the removal.  By then some segments have lost entries, others not yet.
	# In the end, to see that WAL is really lost here, the same with the flush left
	# out: the deleted rows are back, and the next start notices that it was lied to.
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE s (k int4, d int4);
INSERT INTO s SELECT i, i % 10 FROM generate_series(1, 20000) i;
CREATE INDEX s_k ON s USING pmhash (k);
CREATE INDEX s_d ON s USING pmhash (d);
CHECKPOINT;
SQL
	sub crash_inside ($round, $action, $place, $flush)
	{
		my $from = -s $node->logfile;
		my ($status, $stdout, $stderr) = $node->psql('postgres', <<SQL);
\\set ON_ERROR_STOP 0
SET synchronous_commit = off;
DELETE FROM s WHERE k % 5 = $round;
SET pmhash_faults.calls = 'vacuum_delay_point';
SET pmhash_faults.after = 'XLogFlush';
SET pmhash_faults.flush = $flush;
SET pmhash_faults.action = $action;
SET pmhash_faults.fail_at = $place;
VACUUM (TRUNCATE OFF) s;
SQL
		isnt($status, 0, "round $round: the server went down in VACUUM");
		$node->wait_for_log(qr/database system is ready to accept connections/, $from);
		my $log = substr(slurp_file($node->logfile), $from);
		like($log, qr/pmhash_faults: call $place of vacuum_delay_point/, "round $round: in bulk delete");
		like($log, $action eq 'panic' ? qr/PANIC:/ : qr/terminated by signal 9/, "round $round: by $action");
		return;
	}

	my @inside = ([ 'panic', 1 ], [ 'kill', 5 ], [ 'panic', 20 ]);
	foreach my $round (0 .. $#inside)
	{
		crash_inside($round, @{ $inside[$round] }, 'on');
		same_answers($node, 's', 'k', 's_k', "inside bulk delete, round $round");
		same_answers($node, 's', 'd', 's_d', "inside bulk delete, round $round");
		is($node->safe_psql('postgres', "SELECT pmhash.check('s_k'), pmhash.check('s_d')"), '|', "round $round: pmhash.check");
		is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT state, ',') FROM pmhash.indexes"), 'valid', "round $round: no index was given up");
	}
	# (a server with assertions notes no WAL as flushed that is not)
	if ($node->safe_psql('postgres', 'SHOW debug_assertions') eq 'off')
	{
		my $from = -s $node->logfile;
		hold_wal_writer($node);
		crash_inside(3, 'panic', 20, 'off');
		is($node->safe_psql('postgres', 'SELECT count(*) FROM s WHERE k % 5 = 3'), '4000', 'without the flush the rows are back');
		$node->wait_for_log(qr/are not trusted: WAL that had been flushed was not replayed/, $from);
	}
	$node->safe_psql('postgres', 'DROP TABLE s');

	# event: a crash loses rows of transactions that were not flushed, and their places in the table are used again
	# Rows of a transaction in progress: entries in the index, and in the journal,
	# but nothing in WAL.  Commits would wake the WAL writer.
	$node->safe_psql('postgres', 'TRUNCATE r; INSERT INTO r SELECT i, i % 10 FROM generate_series(1, 20000) i; CHECKPOINT');
	sub lose_rows ($round, $taken_out)
	{
		my $session = $node->background_psql('postgres', on_error_stop => 0);

		# what came before is on disk: whether the WAL writer has been woken by then
		# is another matter in each version
		$node->safe_psql('postgres', 'CHECKPOINT');
		hold_wal_writer($node);
		$session->query_safe('BEGIN');
		$session->query_safe('INSERT INTO r SELECT -i, i % 10 FROM generate_series(1, 5000) i');
		$session->query_safe('UPDATE r SET k = k + 100000 WHERE k BETWEEN 1 AND 3000');
		# what a statement has queued is put into the indexes before they are read
		$session->query_safe('SET enable_seqscan = off; SELECT count(*) FROM r WHERE k = -1; SELECT count(*) FROM r WHERE d = 1');
		my $from = -s $node->logfile;
		crash($node);
		eval { $session->quit };
		$node->start;
		same_answers($node, 'r', 'k', 'r_k', "rows lost, round $round");
		same_answers($node, 'r', 'd', 'r_d', "rows lost, round $round");
		$node->wait_for_log(qr/$taken_out entries taken out/, $from);

		# their TIDs are used again, for other keys and for the same
		$node->safe_psql('postgres', <<SQL);
INSERT INTO r SELECT 200000 + $round * 10000 + i, i % 10 FROM generate_series(1, 7000) i;
INSERT INTO r SELECT -i, i % 10 FROM generate_series(1, 1000) i;
SQL
		same_answers($node, 'r', 'k', 'r_k', "TIDs used again, round $round");
		same_answers($node, 'r', 'd', 'r_d', "TIDs used again, round $round");
		is( $node->safe_psql(
				'postgres', <<SQL),
SELECT by_index, by_bitmap
FROM answers('SELECT g, r.ctid FROM generate_series(-6000, 104000) g LEFT JOIN r ON r.k = g', 'r_k')
SQL
			'same|same', "lost keys, round $round");
		is( $node->safe_psql('postgres', <<SQL),
VACUUM r;
SELECT entries - (SELECT count(*) FROM r) FROM pmhash.stats('r_k');
DELETE FROM r WHERE k < 0;
SQL
			'0', "entries, round $round");
		return;
	}

	lose_rows($_, '16000') foreach 1 .. 3;

	# a journal that is full many times over: inserts wait for a flush
	$node->stop;
	start_with($node, 'pmhash.journal_size = 64kB');
	lose_rows(4, '[0-9]+');
	$node->stop;
	$node->start;

	# A session that vacuums table after table flushes what other transactions have written before it.
	$node->safe_psql('postgres', <<SQL) foreach 1 .. 3;
CREATE TABLE f$_ (k int4);
INSERT INTO f$_ SELECT i FROM generate_series(1, 1000) i;
CREATE INDEX ON f$_ USING pmhash (k);
SQL
	$node->safe_psql('postgres', 'DELETE FROM f1; DELETE FROM f2; DELETE FROM f3 WHERE k > 1');
	sub lsn ($session, $what)
	{
		return $session->query_safe("SELECT pg_current_wal_${what}_lsn() - '0/0'");
	}

	hold_wal_writer($node);
	my $vacuum = $node->background_psql('postgres');
	my $deleter = $node->background_psql('postgres');
	$vacuum->query_safe('VACUUM (TRUNCATE OFF) f1');
	$vacuum->query_safe('VACUUM (TRUNCATE OFF) f2');
	$vacuum->query_safe('INSERT INTO f1 SELECT i FROM generate_series(1, 1000) i');
	$vacuum->query_safe('DELETE FROM f1');
	$deleter->query_safe('BEGIN; DELETE FROM f3');
	$vacuum->query_safe('VACUUM (TRUNCATE OFF) f1');
	$deleter->query_safe('COMMIT');
	my $end = lsn($deleter, 'insert');
	$vacuum->query_safe('VACUUM (TRUNCATE OFF) f3');
	cmp_ok(lsn($vacuum, 'flush'), '>=', $end, 'after the end of a transaction that was under way: it is flushed');
	$vacuum->query_safe('INSERT INTO f2 VALUES (1)');
	$vacuum->query_safe('VACUUM (TRUNCATE OFF) f1');
	$deleter->query_safe('DELETE FROM f2');
	$end = lsn($deleter, 'insert');
	$vacuum->query_safe('VACUUM (TRUNCATE OFF) f2');
	cmp_ok(lsn($vacuum, 'flush'), '>=', $end, 'after a transaction that has begun since: likewise');
	$vacuum->quit;
	$deleter->quit;
	release_wal_writer($node);
	$node->stop;
}

# ======== vacuum takes over ========

# VACUUM's dead row pointers are taken over whole, in whatever form the server
# keeps them (an array, a TidStore, one shared by parallel workers), and its callback
# is not called for each entry; that of CREATE INDEX CONCURRENTLY is.
{
	my $node = new_server('takeover', <<CONF);
log_min_messages = debug1
min_parallel_index_scan_size = 0
max_parallel_maintenance_workers = 2
CONF
	start_with_extension($node);
	# rows of one block are some, of another one all dead; others have one row
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4, d int4, pad text);
INSERT INTO t SELECT i, i % 10, '' FROM generate_series(1, 30000) i;
INSERT INTO t SELECT i, i % 10, repeat('x', 5000) FROM generate_series(30001, 30200) i;
ALTER TABLE t ALTER pad SET STORAGE PLAIN;
INSERT INTO t SELECT i, i % 10, repeat('x', 7000) FROM generate_series(30201, 30400) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_d ON t USING pmhash (d);
SQL

	# What the server says of each index while it does something: the rows taken over
	sub taken_over ($sql)
	{
		my $from = -s $node->logfile;
		my %said;

		$node->safe_psql('postgres', $sql);
		my $log = slurp_file($node->logfile, $from);
		push @{ $said{$1} }, $2
		  while $log =~ /DEBUG:  index "(\w+)": took over (\d+) dead TIDs from VACUUM/g;
		return \%said;
	}

	foreach my $case (
		[ 'one process', 'PARALLEL 0', 'k % 3 = 1 OR k BETWEEN 5000 AND 9000 OR k IN (30100, 30300)' ],
		[ 'parallel workers', 'PARALLEL 2', 'k % 3 = 2 OR k BETWEEN 12000 AND 16000' ])
	{
		my ($name, $option, $condition) = @$case;
		my $dead = $node->safe_psql('postgres', "SELECT count(*) FROM t WHERE $condition");

		$node->safe_psql('postgres', "DELETE FROM t WHERE $condition");
		is_deeply(taken_over("VACUUM ($option) t"), { t_k => [$dead], t_d => [$dead] }, "$name: taken over");
		is($node->safe_psql('postgres', "SELECT sum(entries) FROM unnest('{t_k,t_d}'::regclass[]) i, pmhash.stats(i)"),
			$node->safe_psql('postgres', 'SELECT 2 * count(*) FROM t'), "$name: entries of both");
		is($node->safe_psql('postgres', "SELECT pmhash.check('t_k'), pmhash.check('t_d')"), '|', "$name: pmhash.check");
		# the rows' places are used again
		$node->safe_psql('postgres', "INSERT INTO t SELECT 100000 + i, i % 10, '' FROM generate_series(1, $dead) i");
		same_answers($node, 't', 'k', 't_k', $name);
		same_answers($node, 't', 'd', 't_d', $name);
	}

	# another caller of bulk delete
	$node->safe_psql('postgres', 'DELETE FROM t WHERE d < 9');
	is_deeply(taken_over('CREATE INDEX CONCURRENTLY t_again ON t USING pmhash (k)'), {}, 'CREATE INDEX CONCURRENTLY');
	$node->safe_psql('postgres', 'VACUUM t');
	same_answers($node, 't', 'k', 't_again', 'CREATE INDEX CONCURRENTLY');
	is($node->safe_psql('postgres', "SELECT pmhash.check('t_again')"), '', 'CREATE INDEX CONCURRENTLY: pmhash.check');
	$node->stop;
}

done_testing();
