# Descriptors and mappings of files: how many, how they are opened, and how often read.

use v5.36;

use Fcntl qw(O_CREAT O_RDWR);
use PmhashDead;
use PmhashFaults;
use PmhashStops;
use PmhashTest;

# ======== descriptors ========

# More index files than a process may have descriptors, and than a backend keeps
# mapped: everything works, nothing is called invalid, and no backend holds on to
# more than it may.
{
	my $limit = 256;         # descriptors of a process; the server takes 250 at most
	my $side = 17;
	my $partitions = $side * $side;
	my $mapped_at_most = 240;

	# The postmaster inherits the limit.
	system_or_bail('prlimit', '--pid', $$, "--nofile=$limit:$limit");

	my $node = new_server('descriptors', <<CONF);
max_locks_per_transaction = 512
pmhash.mapped_files = $mapped_at_most
enable_partition_pruning = off
log_min_messages = log
CONF
	start_with_extension($node);
	my $pool = pool($node);
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE p (k int, v int) PARTITION BY HASH (k);
DO \$\$ BEGIN
	FOR i IN 0 .. $side - 1 LOOP
		EXECUTE format('CREATE TABLE p_%s PARTITION OF p FOR VALUES WITH (MODULUS $side, REMAINDER %s) PARTITION BY HASH (v)', i, i);
		FOR j IN 0 .. $side - 1 LOOP
			EXECUTE format('CREATE TABLE p_%s_%s PARTITION OF p_%s FOR VALUES WITH (MODULUS $side, REMAINDER %s)', i, j, i, j);
		END LOOP;
	END LOOP;
END \$\$;
SQL

	# What a session holds, by its process: descriptors, those of index files, and
	# index files mapped.
	sub holdings ($session)
	{
		my $pid = $session->query_safe('SELECT pg_backend_pid()');
		my @targets = grep { defined } map { readlink } glob "/proc/$pid/fd/*";
		my %mapped = map { m,(\S+\.pmh)$, ? ($1 => 1) : () } split /\n/, slurp_file("/proc/$pid/maps");

		return (scalar(@targets), scalar(grep { /\.pmh$/ } @targets), scalar(keys %mapped));
	}

	sub holds_little ($session, $name)
	{
		my ($all, $ours, $mapped) = holdings($session);

		cmp_ok($all, '<', $limit, "$name: descriptors");
		is($ours, 0, "$name: none of them is an index file's");
		cmp_ok($mapped, '<=', $mapped_at_most, "$name: index files mapped");
		return $mapped;
	}

	# ---- one transaction that makes them all, one that writes to all ----
	my $session = session_with($node, 'CREATE INDEX p_k ON p USING pmhash (k)');
	is(scalar(index_files($pool)), $partitions, 'CREATE INDEX: a file for each partition');
	holds_little($session, 'CREATE INDEX');
	$session->query_safe("INSERT INTO p SELECT i % 5000, (i::bigint * 7919) % 1000003 FROM generate_series(1, 20000) i");
	is(holds_little($session, 'INSERT'), $mapped_at_most * 3 / 4, 'INSERT: three quarters of what may be are kept');
	$session->quit;

	# ---- plans, queries, parallel ones too ----
	my $explain = 'SET enable_seqscan = off; EXPLAIN (COSTS OFF) SELECT count(*) FROM p WHERE k = 5';
	my $count = 'SELECT count(*) FROM p WHERE k = 5';
	$session = $node->background_psql('postgres');
	foreach my $round (1, 2)
	{
		my $plan = $session->query_safe($explain);

		is(scalar(() = $plan =~ /Index (?:Only )?Scan (?:using|on) p_\d+_\d+_k_idx/g), $partitions,
			"plan $round uses every index");
		is($session->query_safe("SET enable_seqscan = off; $count"), '4', "query $round");
	}
	holds_little($session, 'query');
	is($session->query_safe(<<SQL), '4', 'parallel query in that session');
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
$count
SQL
	is($session->query_safe("SELECT state, durability, count(*) FROM pmhash.indexes GROUP BY 1, 2"),
		"valid|cache|$partitions", 'pmhash.indexes');
	holds_little($session, 'pmhash.indexes');
	$session->quit;

	# ---- many sessions at once, more files than each keeps ----
	my @sessions = map { $node->background_psql('postgres') } 1 .. 8;
	$_->query_safe("SET enable_seqscan = off; $count") foreach @sessions;
	foreach my $i (0 .. $#sessions)
	{
		$sessions[$i]->query_safe("INSERT INTO p SELECT 5, i * 8 + $i FROM generate_series(1, 100) i");
	}
	is($_->query_safe($count), '804', 'sessions side by side') foreach @sessions;
	holds_little($sessions[0], 'one of several sessions');
	$_->quit foreach @sessions;

	# ---- upkeep ----
	$node->safe_psql('postgres', 'DELETE FROM p WHERE v % 2 = 0');
	$node->safe_psql('postgres', 'VACUUM p');
	my $left = $node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; ' . $count);
	is($node->safe_psql('postgres', "SET enable_seqscan = off; $count"), $left, 'VACUUM');
	$node->restart;
	is($node->safe_psql('postgres', "SET enable_seqscan = off; $count"), $left, 'restart');
	$node->stop('immediate');
	$node->start;
	is($node->safe_psql('postgres', "SET enable_seqscan = off; $count"), $left, 'crash');
	is($node->safe_psql('postgres', "SELECT state, count(*) FROM pmhash.indexes GROUP BY 1"),
		"valid|$partitions", 'all are valid in the end');

	# ---- many files that go at once: 200 with the transaction, the others by a cleaner;
	# all with the transaction where no cleaner is to be expected ----
	restart_with($node, 'max_worker_processes = 0');
	$node->safe_psql('postgres', 'CREATE INDEX p_v ON p USING pmhash (v); DROP INDEX p_v');
	is(scalar(index_files($pool)), $partitions, 'DROP INDEX without a launcher: no file is left');
	restart_with($node, 'max_worker_processes = 8');
	my $out = $node->safe_psql('postgres', <<SQL);
BEGIN; DROP TABLE p; ROLLBACK;
SELECT count(*) FILTER (WHERE state <> 'valid') FROM pmhash.indexes;
DROP TABLE p;
SQL
	is($out, '0', 'DROP TABLE that is rolled back');
	wait_for_files($pool, 0, 'DROP TABLE: no file is left');

	my $log = slurp_file($node->logfile);
	unlike($log, qr/Too many open files|terminated by signal (?!9)|has been rebuilt|could not rebuild/,
		'nothing has run short');
	$node->stop;
}

# ======== handles ========

# What a transaction has in its hands stays mapped, however many files it needs:
# a handle that a queue of entries, a scan, a cursor or a build still has is never
# closed under it.  And what has no owner any more goes: files of temporary tables
# that are emptied at each commit, and the calls that look for them.
{
	my $many = 130;    # more than stay mapped
	my $node = new_faulty_server('handles', <<CONF);
max_locks_per_transaction = 512
pmhash.mapped_files = 100
pmhash.cleaner_naptime = 3600
CONF
	my $pool = pool($node);

	# $many tables with an index each, and one that everything here is about.
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE h (k int, v int);
INSERT INTO h SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX h_k ON h USING pmhash (k);
CREATE TABLE r (k int, v int);
CREATE INDEX r_k ON r USING pmhash (k);
CREATE TABLE p (k int) PARTITION BY LIST (k);
DO \$\$ BEGIN
	FOR i IN 1 .. $many LOOP
		EXECUTE format('CREATE TABLE p_%s PARTITION OF p FOR VALUES IN (%s)', i, i);
	END LOOP;
END \$\$;
CREATE FUNCTION map_many() RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN
	FOR i IN 1 .. $many LOOP
		EXECUTE format('INSERT INTO p_%s VALUES (%s)', i, i);
	END LOOP;
END \$\$;
CREATE FUNCTION by_index(key int) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off AS \$\$ BEGIN
	RETURN (SELECT count(*) FROM h WHERE k = key);
END \$\$;
SQL
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	sub run_sql ($sql)
	{
		my $answer = $session->query($sql);

		is($session->{stderr}, '', "no error: $sql");
		$session->{stderr} = '';
		return $answer;
	}

	# ---- one transaction that has more mapped than are kept, and builds more ----
	run_sql('SET enable_seqscan = off');
	run_sql('CREATE INDEX p_k ON p USING pmhash (k)');
	is(scalar(index_files($pool)), $many + 2, 'an index each');
	run_sql('BEGIN');
	run_sql('DECLARE scan CURSOR FOR SELECT v FROM h WHERE k = ANY (ARRAY(SELECT generate_series(1, 1000)))');
	run_sql('DECLARE kept CURSOR WITH HOLD FOR SELECT v FROM h WHERE k = ANY (ARRAY(SELECT generate_series(1, 1000)))');
	run_sql('FETCH 3 FROM scan');
	run_sql('FETCH 3 FROM kept');
	run_sql('INSERT INTO r SELECT 7, i FROM generate_series(1, 500) i');
	run_sql('SAVEPOINT r');
	run_sql('TRUNCATE r');
	run_sql('REINDEX INDEX r_k');
	run_sql('SELECT map_many()');
	run_sql('ROLLBACK TO r');
	run_sql('INSERT INTO h SELECT 5000, i FROM generate_series(1, 500) i');
	run_sql('SAVEPOINT a');
	run_sql('SELECT map_many()');
	run_sql('INSERT INTO h SELECT 5001, i FROM generate_series(1, 500) i');
	run_sql('ROLLBACK TO a');
	run_sql('SELECT map_many()');
	run_sql('CREATE INDEX p_k2 ON p USING pmhash (k)');
	is(scalar(my @rows = split /\n/, run_sql('FETCH ALL FROM scan')), 997, 'the cursor goes on with the file it has');
	run_sql('COMMIT');
	is(scalar(@rows = split /\n/, run_sql('FETCH ALL FROM kept')), 997, 'so does the one that outlives the transaction');
	run_sql('CLOSE kept');
	is(run_sql('SELECT by_index(5000), by_index(5001)'), '500|0', 'and so does the queue');
	is(run_sql("SELECT count(*) FROM r WHERE k = 7"), '500', 'that of a file that came back, too');

	# ---- a function of the index that is being built inserts into its table ----
	# The queue has the new file then, too.  (The other
	# index is there since INSERT looks for indexes only where relhasindex is set.  From
	# PostgreSQL 17 on search_path is pg_catalog while an index is built.)
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE e (k int, v int);
INSERT INTO e VALUES (1, 1);
CREATE INDEX e_v ON e (v);
CREATE FUNCTION inserts() RETURNS void LANGUAGE sql AS
'INSERT INTO public.e SELECT 2, i FROM generate_series(1, 100) i';
CREATE FUNCTION calls_insert(key int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
	IF key = 1 THEN
		PERFORM public.inserts();
	END IF;
	RETURN key;
END $$;
SQL
	run_sql('BEGIN');
	run_sql('SELECT map_many()');
	my $built = $session->query('CREATE INDEX e_k ON e USING pmhash (calls_insert(k))');
	$session->{stderr} = '';
	$session->query('COMMIT');
	# (Its rows may be in the index twice then: the function is not what it says it is.)
	is($session->query('SELECT count(*) FROM e'), '101', 'a build whose function inserts: the server lives');
	$session->{stderr} = '';
	run_sql('DROP TABLE e');

	# ---- commits do not look for files that have gone ----

	# how often it is, if another session does something before these commits
	sub stats_of_commits ($n, $statement = undef)
	{
		run_sql("SET pmhash_faults.calls = 'stat'; SET pmhash_faults.fail_at = 2000000000");
		$node->safe_psql('postgres', $statement) if defined $statement;
		run_sql("DO \$\$ BEGIN FOR i IN 1 .. $n LOOP PERFORM 1; COMMIT; END LOOP; END \$\$");
		my ($calls) = split / /, run_sql('SELECT pmhash_faults_report()');
		run_sql('SET pmhash_faults.fail_at = 0');
		return $calls;
	}

	run_sql('SELECT map_many()');
	stats_of_commits(200);
	is(stats_of_commits(200), 0, 'commits with files mapped: no stat');
	run_sql('BEGIN; CREATE TEMP TABLE gone (k int); CREATE INDEX ON gone USING pmhash (k); ROLLBACK');
	cmp_ok(stats_of_commits(200), '<=', 1, 'after an aborted CREATE INDEX');
	is(stats_of_commits(200, 'ANALYZE p'), 0, 'nor after invalidations of all');
	is(stats_of_commits(200, 'TRUNCATE h; TRUNCATE p'), 0, 'nor after what another session has removed');
	wait_for_files($pool, $node->safe_psql('postgres', 'SELECT count(*) FROM pmhash.indexes'),
		'the files have gone');

	# ---- temporary tables that are emptied at each commit ----
	# With more mapped than is kept, and files forgotten when their indexes are invalidated.
	run_sql('SELECT map_many()');
	run_sql(<<SQL);
DO \$\$ BEGIN
	FOR i IN 1 .. 20 LOOP
		EXECUTE format('CREATE TEMP TABLE tt_%s (k int) ON COMMIT DELETE ROWS', i);
		EXECUTE format('CREATE INDEX ON tt_%s USING pmhash (k)', i);
	END LOOP;
END \$\$
SQL
	my $before = index_files($pool);
	run_sql('INSERT INTO tt_1 VALUES (1)') foreach 1 .. 2;
	is(scalar(index_files($pool)), $before, 'a file for each index');
	$session->quit;

	$node->stop;
}

# ======== direct io ========

# A server that does I/O past the page cache (debug_io_direct, PostgreSQL 16 and later): it
# requires aligned buffers, so all that writes or reads pages without shared buffers is
# met: init forks, and stubs that are looked at in their files.
SKIP:
{
	my $node = new_server('direct', '');
	skip 'PostgreSQL 16 or later is needed', 1 if $node->pg_version < 16;
	my $direct = eval { Fcntl::O_DIRECT() };
	skip 'no O_DIRECT here', 1
	  if !defined $direct || !sysopen(my $file, "$PostgreSQL::Test::Utils::tmp_check/direct", O_RDWR | O_CREAT | $direct);

	$node->append_conf('postgresql.conf', "debug_io_direct = 'data'\npmhash.rebuild = off");
	start_with_extension($node);
	is($node->safe_psql('postgres', 'SHOW debug_io_direct'), 'data', 'direct I/O');

	# ---- unlogged tables, of which a page is written past shared buffers ----

	foreach my $kind ('', 'UNLOGGED')
	{
		my $table = $kind ? 'unlogged' : 'logged';

		$node->safe_psql('postgres', <<SQL);
CREATE $kind TABLE $table (k int4);
INSERT INTO $table SELECT generate_series(1, 100);
CREATE INDEX ${table}_k ON $table USING pmhash (k);
SELECT pmhash.check('${table}_k');
SQL
	}
	is($node->safe_psql('postgres', "SELECT pg_relation_size('unlogged_k', 'init')"), '8192', 'an init fork');
	$node->stop('immediate');
	$node->start;
	is($node->safe_psql('postgres', 'INSERT INTO unlogged VALUES (7); SET enable_seqscan = off; SELECT count(*) FROM unlogged WHERE k = 7'),
		'1', 'and it serves after a crash');
	is($node->safe_psql('postgres', "SELECT state FROM pmhash.indexes WHERE index = 'unlogged_k'; REINDEX INDEX unlogged_k"),
		'invalid: a crash or a promotion has emptied its unlogged table', 'state after a crash');
	is($node->safe_psql('postgres', "ALTER TABLE logged SET UNLOGGED; SELECT pg_relation_size('logged_k', 'init')"), '8192', 'SET UNLOGGED');
	is($node->safe_psql('postgres', "ALTER TABLE logged SET LOGGED; SET enable_seqscan = off; SELECT count(*) FROM logged WHERE k = 7"), '1', 'SET LOGGED');

	# ---- stubs that are in no shared buffer ----

	$node->restart;
	wait_for_files(pool($node), 2, 'two files, when the one from before the crash is gone');
	is($node->safe_psql('postgres', "SELECT string_agg(index || ' ' || state, ', ' ORDER BY index) FROM pmhash.indexes"),
		'logged_k valid, unlogged_k valid', 'are shown');
	$node->restart;
	$node->safe_psql('postgres', 'TRUNCATE logged; DROP TABLE unlogged');
	is(scalar(index_files(pool($node))), 1, 'what is dropped and replaced goes at commit');
	unlike(slurp_file($node->logfile), qr/ERROR|PANIC|could not read/, 'nothing fails');
	$node->stop;
}

# ======== read once ========

# What others change at any moment is read once, and what was read is what counts.
#
# What a scan has found dead, and the list of its file has room for less: other sessions
# empty the list, or give it up, at the moment between the look at its room and what is
# done with that.  No more is logged and noted than was found: what is past that in
# memory may be rows that live.  And how far WAL can be read.
{
	my $node = new_server('read_once', quiet_wal() . "wal_level = replica\n", install_path => install_with_stop_points());
	use_stop_points($node);
	start_with_extension($node);
	install_wal_records($node);
	use_for_dead($node, 'with tables');

	# A table with rows of keys 0, 1 and 3 that live, and of others: so many of key 2, and ten
	# of key 4.  Key 0 has a row on each page.
	sub make_rows ($table, $n, $rows)
	{
		$rows //= 8000;
		return sql(<<SQL);
CREATE TABLE $table (k int4, v int4) WITH (fillfactor = 50);
INSERT INTO $table
	SELECT CASE WHEN i % 50 = 0 THEN 0 WHEN i % 10 = 1 THEN 1 WHEN i % 50 < 10 THEN 3 ELSE 5 END, i FROM generate_series(1, $rows) i;
UPDATE $table SET k = 2 WHERE v IN (SELECT v FROM $table WHERE k = 5 ORDER BY v LIMIT $n);
UPDATE $table SET k = 4 WHERE v IN (SELECT v FROM $table WHERE k = 5 ORDER BY v LIMIT 10);
VACUUM FULL $table;
CREATE INDEX ${table}_k ON $table USING pmhash (k) WITH (wal = on);
SQL
	}

	# Rows of some keys are deleted, and their pages get a later record each, so that scans
	# may call them dead though none of this is flushed (PmhashDead).  A session holds the
	# locks that are these records: the server keeps one LSN for the commits of 32.
	sub delete_rows ($keys, @tables)
	{
		my $locker = $node->background_psql('postgres');

		sql(join(';', map { "DELETE FROM $_ WHERE k IN ($keys)" } @tables));
		$locker->query_safe(join(';', 'BEGIN', map { "DO 'BEGIN PERFORM v FROM $_ WHERE k = 0 FOR UPDATE; END'" } @tables));
		return $locker;
	}

	# How many entries the records of removals have from a place on.
	sub removed_since ($from)
	{
		flush_wal();
		return sql("SELECT string_agg(entries::text, ' ' ORDER BY record_start) FROM pmhash_wal_records('$from', 'FFFFFFFF/0') WHERE type = 'DELETE'");
	}

	sub end_of_wal
	{
		return sql('SELECT pg_current_wal_insert_lsn()');
	}

	make_rows('ring', 16379, 24000);
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
	is(sql('SELECT count(v) FROM ring WHERE k = 1; SELECT count(v) FROM ring WHERE k = 3'), "2400\n3840", 'no row that lives is known to be dead');
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
	foreach (split /\n/, sql(q(SELECT "table" || ' ' || file FROM pmhash.indexes WHERE "table" LIKE 'p%')))
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
}

done_testing();
