# Files that a standby builds: of which tables, keys, databases, beside what.

use v5.36;

use File::Path qw(rmtree);
use PmhashStandby;
use PmhashTest;

# ======== standby build ========

# A standby builds the files of logged indexes itself, from its own copy of the
# tables, while replay goes on: what it has then is what it would have had from the
# beginning.
{
	my $primary = new_primary('build_primary', "pmhash.wal = on\n");
	my $standby = new_standby($primary, 'build_standby', "max_standby_streaming_delay = 300s\n");

	sub on_primary ($sql)
	{
		return $primary->safe_psql('postgres', $sql);
	}

	sub all_built ($name, @tables)
	{
		built($primary, $standby, $name);
		same_as_heap($standby, @$_, $name) foreach @tables;
		return;
	}

	# ---- rows of all kinds that are there before ----
	on_primary(<<'SQL');
CREATE TABLE a (k int8, v int4, d text) WITH (fillfactor = 60, autovacuum_enabled = off);
INSERT INTO a SELECT i % 2000, i, 'row ' || i FROM generate_series(0, 19999) i;
DELETE FROM a WHERE v % 13 = 0;
UPDATE a SET d = d || '!' WHERE v % 7 = 0;
BEGIN; INSERT INTO a SELECT i % 2000, i FROM generate_series(0, 999) i; ROLLBACK;
BEGIN; UPDATE a SET d = 'never' WHERE v % 11 = 0; ROLLBACK;
CREATE INDEX a_k ON a USING pmhash (k);
CREATE INDEX a_d ON a USING pmhash (v) WHERE d IS NOT NULL;
CREATE INDEX a_e ON a USING pmhash ((k % 100));
CREATE TABLE other (n int);
SQL
	my @a = ('a', 'k', 'a_k');
	all_built('CREATE INDEX', \@a);
	like(plan_of($standby, 'SELECT count(*) FROM a WHERE k = 77'), qr/\ba_k\b/, 'EXPLAIN shows a_k');
	my $by_scan = 'SET enable_indexscan = off; SET enable_bitmapscan = off;';
	foreach my $query ('SELECT count(*), sum(v) FROM a WHERE k % 100 = 7', 'SELECT count(*) FROM a WHERE v = 4242 AND d IS NOT NULL')
	{
		is($standby->safe_psql('postgres', "SET enable_seqscan = off; $query"),
			$standby->safe_psql('postgres', "$by_scan $query"), $query);
	}

	# ---- the builder waits for transactions that are older, and replay goes on ----
	my $old = $primary->background_psql('postgres');

	sub hold_builders
	{
		$old->query_safe('BEGIN; INSERT INTO other VALUES (1)');
		return;
	}

	sub is_waiting ($index, $name)
	{
		return wait_for_state($standby, $index, qr/^building \(0 %\), waiting for transaction \d+$/, $name);
	}

	hold_builders();
	on_primary('REINDEX INDEX a_k');
	is_waiting('a_k', 'waits for an old transaction');
	is($standby->safe_psql('postgres', <<SQL), '0', 'without lock and snapshot');
SELECT count(*) FROM pg_stat_activity a
WHERE backend_type = 'pmhash worker' AND (backend_xmin IS NOT NULL
	OR EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'relation'))
SQL
	on_primary(<<'SQL');
INSERT INTO a SELECT 3000 + i % 10, i FROM generate_series(1, 500) i;
UPDATE a SET d = d || '?' WHERE v % 17 = 0;
UPDATE a SET k = k + 5000 WHERE v % 19 = 0;
DELETE FROM a WHERE v % 5 = 1;
BEGIN; INSERT INTO a SELECT 3100, i FROM generate_series(1, 300) i; ROLLBACK;
BEGIN; SAVEPOINT s; INSERT INTO a SELECT 3200, i FROM generate_series(1, 300) i; ROLLBACK TO s;
INSERT INTO a SELECT 3201, i FROM generate_series(1, 300) i; COMMIT;
SQL
	$old->query_safe('COMMIT');
	all_built('writes while it waits', \@a);

	# TIDs that are freed and given to other keys, before and after N0
	on_primary('DELETE FROM a WHERE v % 3 = 0; VACUUM a');
	hold_builders();
	on_primary('REINDEX INDEX a_k');
	is_waiting('a_k', 'waits again');
	# (of aborted transactions, as the old one keeps VACUUM from removing others)
	foreach my $key (6000, 6100, 6000)
	{
		on_primary("SET pmhash.group_insert = off; BEGIN; INSERT INTO a SELECT $key + i % 100, i FROM generate_series(1, 3000) i; ROLLBACK");
		on_primary('VACUUM a');
	}
	on_primary('INSERT INTO a SELECT 7000 + i % 100, i FROM generate_series(1, 3000) i');

	# and one key of many operations
	foreach (1 .. 2)
	{
		on_primary('BEGIN; INSERT INTO a SELECT 8000, i FROM generate_series(1, 100000) i; ROLLBACK');
		on_primary('VACUUM a');
	}
	on_primary('INSERT INTO a SELECT 8000, i FROM generate_series(1, 500) i');
	$old->query_safe('COMMIT');
	all_built('TIDs used again', \@a);

	# ---- prepared transactions, and a pool that is lost ----
	on_primary(<<'SQL');
BEGIN; INSERT INTO a SELECT 8000, i FROM generate_series(1, 200) i;
UPDATE a SET d = 'prepared' WHERE v % 23 = 0; PREPARE TRANSACTION 'p1';
BEGIN; INSERT INTO a SELECT 8001, i FROM generate_series(1, 200) i; PREPARE TRANSACTION 'p2';
SQL
	caught_up($primary, $standby);
	$standby->stop;
	rmtree(pool($standby));
	$standby->start;
	ok($standby->poll_query_until('postgres', "SELECT bool_or(state ~ '^building .0 %., waiting for transaction') FROM pmhash.indexes"),
		'a lost pool, and prepared transactions');
	on_primary("COMMIT PREPARED 'p1'");
	on_primary("ROLLBACK PREPARED 'p2'");
	all_built('prepared transactions', \@a);

	# an index of a prepared transaction, which is found at a visit
	on_primary("BEGIN; CREATE INDEX a_v ON a USING pmhash (v); PREPARE TRANSACTION 'p3'");
	caught_up($primary, $standby);
	on_primary("COMMIT PREPARED 'p3'");
	all_built('an index of a prepared transaction', [ 'a', 'v', 'a_v' ]);
	on_primary('DROP INDEX a_v');

	# and in a database where the standby has found none, so that it is not looked at for files
	on_primary('CREATE DATABASE apart');
	$primary->safe_psql('apart', <<'SQL');
CREATE EXTENSION pmhash;
CREATE TABLE p (k int4);
BEGIN; CREATE INDEX p_k ON p USING pmhash (k); PREPARE TRANSACTION 'p4';
SQL
	caught_up($primary, $standby);
	sleep(3);    # some visits
	$primary->safe_psql('apart', "COMMIT PREPARED 'p4'");
	ok($standby->poll_query_until('apart', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'p_k'"),
		'an index of a prepared transaction, the first one in its database');

	# entries that scans have removed before the build, of rows that are still there: VACUUM
	# frees their line pointers later, and says nothing of it
	on_primary('CREATE TABLE g (k int4) WITH (autovacuum_enabled = off); INSERT INTO g SELECT i % 10 FROM generate_series(1, 2000) i; CREATE INDEX g_k ON g USING pmhash (k)');
	on_primary('DELETE FROM g WHERE k = 7');
	$old->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off');
	foreach (1 .. 300)
	{
		$old->query_safe('SELECT count(*) FROM g WHERE k = 7');
		last if on_primary("SELECT entries FROM pmhash.stats('g_k')") == 1800;
		usleep(100_000);
	}
	is(on_primary("SELECT entries FROM pmhash.stats('g_k')"), '1800', 'scans have removed entries');
	caught_up($primary, $standby);
	$standby->stop;
	rmtree(pool($standby));
	$standby->start;
	built($primary, $standby, 'a pool that is lost after that');
	on_primary('VACUUM g');
	on_primary('INSERT INTO g SELECT 100 + i % 5 FROM generate_series(1, 200) i');
	on_primary('VACUUM g');
	caught_up($primary, $standby);
	is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM g WHERE k = 7'), '0',
		'their TIDs have other keys now');
	same_as_heap($standby, 'g', 'k', 'g_k', 'entries removed by scans');

	# rows locked by several, then updated: multixacts
	my @lockers = map { $primary->background_psql('postgres') } 1 .. 2;
	$_->query_safe('BEGIN; SELECT count(*) FROM (SELECT FROM a WHERE v % 29 = 0 FOR KEY SHARE) s') foreach @lockers;
	on_primary("UPDATE a SET d = 'locked' WHERE v % 58 = 0");
	$_->query_safe('COMMIT') foreach @lockers;
	on_primary('REINDEX INDEX a_k');
	$_->quit foreach @lockers;
	all_built('multixacts', \@a);

	# ---- values out of line ----
	on_primary(<<'SQL');
CREATE TABLE toasted (k text, n int) WITH (autovacuum_enabled = off);
ALTER TABLE toasted ALTER k SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT repeat(md5((i % 50)::text), 100), i FROM generate_series(1, 400) i;
DELETE FROM toasted WHERE n % 4 = 0;
CREATE INDEX toasted_k ON toasted USING pmhash (k);
SQL
	my @toasted = ('toasted', 'k', 'toasted_k');
	hold_builders();
	on_primary('REINDEX INDEX toasted_k');
	is_waiting('toasted_k', 'values out of line: waits');
	on_primary('DELETE FROM toasted WHERE n % 4 = 1; UPDATE toasted SET n = n + 1000 WHERE n % 4 = 2');
	$old->query_safe('COMMIT');
	on_primary('VACUUM toasted');
	on_primary('INSERT INTO toasted SELECT repeat(md5(i::text), 100), i FROM generate_series(30, 130) i');
	all_built('values out of line', \@toasted);

	# ---- DDL is replayed while builders wait ----
	my $tablespace = PostgreSQL::Test::Utils::tempdir_short();
	on_primary("SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''");
	on_primary("CREATE TABLE d$_ (k int8, v int4); INSERT INTO d$_ SELECT i % 100, i FROM generate_series(1, 3000) i; CREATE INDEX d${_}_k ON d$_ USING pmhash (k)")
	  foreach 1 .. 6;
	all_built('tables for DDL', map { [ "d$_", 'k', "d${_}_k" ] } 1 .. 6);
	hold_builders();
	on_primary("REINDEX INDEX d${_}_k") foreach 1 .. 3;
	is_waiting('d1_k', 'before DDL');
	on_primary(<<'SQL');
DROP TABLE d1;
TRUNCATE d2;
INSERT INTO d2 SELECT i % 7, i FROM generate_series(1, 50) i;
REINDEX INDEX d3_k;
ALTER INDEX d4_k SET TABLESPACE elsewhere;
ALTER TABLE d5 SET TABLESPACE elsewhere;
ALTER TABLE d6 ALTER k TYPE int4;
INSERT INTO d4 SELECT 200 + i % 7, i FROM generate_series(1, 50) i;
INSERT INTO d5 SELECT 200 + i % 7, i FROM generate_series(1, 50) i;
SQL
	caught_up($primary, $standby);
	pass('DDL is replayed while builders wait');
	$old->query_safe('COMMIT');
	all_built('DDL', map { [ "d$_", 'k', "d${_}_k" ] } 2 .. 6);

	# ---- many indexes, three at a time ----
	on_primary('CREATE TABLE m (' . join(', ', map { "c$_ int" } 1 .. 20) . ')');
	on_primary('INSERT INTO m SELECT ' . join(', ', map { "i % (40 + $_)" } 1 .. 20) . ' FROM generate_series(1, 4000) i');
	hold_builders();
	on_primary("CREATE INDEX m_c$_ ON m USING pmhash (c$_)") foreach 1 .. 20;
	ok($standby->poll_query_until('postgres', "SELECT count(*) = 3 FROM pmhash.indexes WHERE state LIKE 'building%'"),
		'three indexes are built at a time');
	is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pmhash worker'"), '3',
		'by three builders');
	$old->query_safe('COMMIT');
	$old->quit;
	all_built('twenty indexes', map { [ 'm', "c$_", "m_c$_" ] } (1, 10, 20));

	# ---- another database ----
	on_primary('CREATE DATABASE db1');
	install_extension($primary, 'db1', 'CREATE TABLE x (k int); INSERT INTO x SELECT i % 10 FROM generate_series(1, 1000) i; CREATE INDEX x_k ON x USING pmhash (k)');
	built($primary, $standby, 'another database', 'db1');
	same_as_heap($standby, 'x', 'k', 'x_k', 'another database', 'db1');
	my $directory = pool($standby) . '/' . on_primary("SELECT oid FROM pg_database WHERE datname = 'db1'");
	ok(-d $directory, 'it has a directory');
	on_primary('DROP DATABASE db1');
	caught_up($primary, $standby);
	wait_while(sub { -e $directory }, 30);
	ok(!-e $directory, 'a dropped database leaves nothing on the standby');

	# ---- again and again, under load ----
	my $output;
	my $load = start_pgbench($primary, \$output, '-c', '2', '-R', '60', '-T', load_time(4) + 2, '-f', load_of_t($primary, 20));
	my $begun = time;
	my $rounds = 0;
	while (time - $begun < load_time(4))
	{
		on_primary('REINDEX INDEX t_k');
		built($primary, $standby, 'under load, round ' . ++$rounds);
		same_as_heap($standby, 't', 'k', 't_k', "under load, round $rounds");
		on_primary('VACUUM t');
		same_as_heap($standby, 't', 'k', 't_k', "under load, after VACUUM, round $rounds");
	}
	ok($load->finish, 'no statement failed') or diag($output);
	caught_up($primary, $standby);
	all_built('after the load', [ 't', 'k', 't_k' ]);

	unlike(slurp_file($standby->logfile), qr/could not build index|could not replay|PANIC|TRAP|was terminated by signal/,
		'nothing failed on the standby');
	$standby->stop;
	$primary->stop;
}

# ======== standby keys ========

# Standbys: keys that are made of values out of line while VACUUM takes these away, and
# scans, which change nothing.  (Copies of databases: files/stubs, files/numbers.)
{
	my $primary = new_primary('primary', "pmhash.wal = on\n");
	my $standby = new_standby($primary, 'standby', "test.slow = on\n");

	sub setting ($line)
	{
		reload_with($standby, "$line\n");
		return;
	}

	# ---- keys of values out of line, which VACUUM takes away while they are made ----

	# The value is read after the pause, so the chunks are looked for when replay has had
	# the time to come to the VACUUM.  With a long delay replay waits for the builder's
	# snapshot, with none it cancels the builder again and again.
	$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION slow_key(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('test.slow', true) = 'on' THEN
		PERFORM pg_sleep(0.02);
	END IF;
	RETURN substr(t, 1, 40);
END $$;
CREATE TABLE long_one (k text, n int) WITH (autovacuum_enabled = off);
ALTER TABLE long_one ALTER k SET STORAGE EXTERNAL;
INSERT INTO long_one SELECT repeat(md5((i % 70)::text), 100), i FROM generate_series(1, 500) i;
SQL
	foreach my $delay ('60s', '0')
	{
		my $position = log_position($standby);
		my $rounds = 0;

		setting("max_standby_streaming_delay = $delay");
		setting('test.slow = on');
		$primary->safe_psql('postgres', <<'SQL');
DROP INDEX IF EXISTS long_one_key;
CREATE INDEX long_one_key ON long_one USING pmhash (slow_key(k));
SQL
		wait_until($standby, "SELECT state LIKE 'building%' FROM pmhash.indexes WHERE index = 'long_one_key'", 'it is not built');
		# A build that was cancelled pauses before it begins anew, longer each time.
		for (my $round = 1; $round <= 6 || ($rounds < 3 && $round <= 150); $round++)
		{
			my ($r13, $r17) = ($round % 13, $round % 17);

			$primary->safe_psql('postgres', $_) foreach (
				"DELETE FROM long_one WHERE n % 13 = $r13",
				'VACUUM long_one',
				"INSERT INTO long_one SELECT repeat(md5((i % 90)::text), 100), i FROM generate_series(1, 40) i",
				"UPDATE long_one SET k = repeat(md5((n % 60)::text), 100) WHERE n % 17 = $r17");
			$rounds++ if $standby->safe_psql('postgres', "SELECT state FROM pmhash.indexes WHERE index = 'long_one_key'") =~ /^building/;
			usleep(100_000);
		}
		cmp_ok($rounds, '>=', 1, "delay $delay: the table was vacuumed beside the build");
		setting('test.slow = off');
		built($primary, $standby, "delay $delay");
		is($standby->safe_psql('postgres', <<'SQL'), "0\n", "delay $delay: by index as in the table");
SET enable_bitmapscan = off;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM (SELECT slow_key(k) AS key, count(*) FROM long_one GROUP BY 1) wanted,
	LATERAL (SELECT count(*) FROM long_one WHERE slow_key(k) = wanted.key) got (n) WHERE got.n <> wanted.count;
COMMIT;
SELECT pmhash.check('long_one_key');
SQL
		like(plan_of($standby, "SELECT * FROM long_one WHERE slow_key(k) = 'x'", 'SET enable_seqscan = off;'), qr/long_one_key/,
			"delay $delay: plans use it");
		unlike(logged_since($standby, $position), qr/missing chunk|unexpected chunk|could not build/, "delay $delay: all chunks were there");
	}

	# ---- scans on a standby change nothing ----

	setting('max_standby_streaming_delay = 60s');
	replayed($primary, $standby, 'DELETE FROM t WHERE k < 50');
	my $entries = q(SELECT entries FROM pmhash.stats('t_k'));
	my $before = $standby->safe_psql('postgres', $entries);
	$standby->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_bitmapscan = off; '
		  . 'SELECT count(n) FROM t WHERE k = ANY (ARRAY(SELECT generate_series(1, 49))); ' x 20);
	is($standby->safe_psql('postgres', $entries), $before, 'scans: the entries of dead rows stay');
	replayed($primary, $standby, 'VACUUM t');
	cmp_ok($standby->safe_psql('postgres', $entries), '<', $before, 'scans: VACUUM of the primary removes them');

	$standby->stop;
	$primary->stop('immediate');
}

# ======== logged and others ========

# What logging of indexes must not do: give a standby an entry twice.
{
	my $primary = new_primary('primary4', "pmhash.wal = off\n");

	# ---- CREATE INDEX CONCURRENTLY: a standby that builds before it is complete ----

	# The scan of the index waits at a row of 0 as long as a session has the lock.
	$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION wait_at(k int8) RETURNS int8 IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN WHILE k = 0 AND NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN k; END';
CREATE TABLE c (k int8) WITH (autovacuum_enabled = off);
INSERT INTO c SELECT i % 50 FROM generate_series(0, 499) i;
SQL
	my $standby = new_standby($primary, 'standby4');
	my $gate = $primary->background_psql('postgres');
	my $holder = $primary->background_psql('postgres');
	my $maker = $primary->background_psql('postgres');

	$gate->query_safe('SELECT pg_advisory_lock(1)');
	$maker->query_until(qr/begun/,
		"\\echo begun\nCREATE INDEX CONCURRENTLY c_w ON c USING pmhash (wait_at(k)) WITH (wal = on);\n");
	wait_until($primary, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%' AND wait_event = 'PgSleep'", 'the scan does not wait');
	$primary->safe_psql('postgres', 'INSERT INTO c VALUES (7)');
	$holder->query_safe('BEGIN; LOCK TABLE c IN ROW EXCLUSIVE MODE');
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	wait_until($primary, "SELECT indisready FROM pg_index WHERE indexrelid = 'c_w'::regclass", 'the first scan does not end');
	caught_up($primary, $standby);
	sleep 3;	# time enough for a build
	is(standby_state($standby, 'c_w'), 'not valid: its CREATE INDEX or REINDEX has not been completed',
		'not built before it is complete');
	$holder->query_safe('COMMIT');
	wait_until($primary, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'c_w'::regclass", 'the index is not completed');
	caught_up($primary, $standby);
	wait_for_state($standby, 'c_w', qr/^valid$/, 'built when it is complete');
	is($standby->safe_psql('postgres', "SELECT entries FROM pmhash.stats('c_w')"), 501,
		'each entry once');
	is($standby->safe_psql('postgres', <<'SQL'), 11, 'each row once');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM c WHERE wait_at(k) = 7;
SQL

	$_->quit foreach $gate, $holder, $maker;
}

done_testing();
