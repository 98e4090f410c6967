# Processes held at named points, while others do what would hurt.
# long

use v5.36;
use PmhashInvalid;
use PmhashStops;
use PmhashTest;

# ======== stop points ========

# Processes held at named points, while others do what would hurt: scans
# between two batches, VACUUM between judging and removing, inserts between
# journal and entry, and what waits for a writer that has the engine's locks.  (Readers beside
# stopped writers: engine/stop_readers, stop_between.)
# (Rebuilds: rebuild/rebuild_stops.)
#
# The library is built once more for this, with its stop points
# (test/lib/stop_points.c), and installed into a server of its own.
# PMHASH_STOP_INSTALL names a directory where that is kept for the next time.
{
	# ---- a server whose library has stop points ----
	my $node = new_server('stops', undef, install_path => install_with_stop_points());
	my $points = use_stop_points($node);

	# ---- the table ----

	# Keys 1 and 2 have lists, keys 10 .. 2009 a row each; t_kg is there for
	# conditions on both columns.
	sub make_table
	{
		$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS t;
CREATE TABLE t (k int8, g int4, v int4);
INSERT INTO t SELECT 1, i % 100, i FROM generate_series(1, 6000) i;
INSERT INTO t SELECT 2, i % 100, i FROM generate_series(1, 300) i;
INSERT INTO t SELECT i, i % 100, i FROM generate_series(10, 2009) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_kg ON t USING pmhash (k, g);
VACUUM ANALYZE t;
SQL
		return;
	}

	# Everything that could disturb a reader: dead rows are vacuumed,
	# their TIDs are used again by rows with the same keys, segments are split,
	# lists grow.  VACUUM must get through.
	sub disturb
	{
		at_once('DELETE FROM t WHERE v % 10 = 1');
		at_once('VACUUM t');
		at_once('INSERT INTO t SELECT k, g, -v FROM t WHERE v % 10 = 2');
		at_once('INSERT INTO t SELECT 100000 + i, i % 100, -i FROM generate_series(1, 4000) i');
		at_once('VACUUM t');
		at_once('INSERT INTO t SELECT 1 + i % 2, i % 100, -i FROM generate_series(1, 1000) i');
		return;
	}

	sub all_is_well ($name)
	{
		same_answers($node, 't', 'k', 't_k', $name);
		foreach my $index ('t_k', 't_kg')
		{
			my ($status, $stdout, $stderr) = $node->psql('postgres', "SELECT pmhash.check('$index')");
			is($stderr, '', "$name: pmhash.check of $index");
		}
		return;
	}

	start_with_extension($node);
	make_table();

	# ---- scans held between batches ----

	my $rows = 'SELECT count(*), count(DISTINCT ctid), sum(v) FROM t WHERE';
	my $keys = 'k = ANY (ARRAY(SELECT generate_series(1, 2009)))';
	my @scans = (
		[ 'index scan', $by{index}, "$rows k = 1", 'scan_between_batches', 'Index Scan using t_k ' ],
		[ 'page scan', $by{pages}, "$rows k = 1", 'pages_between_batches', 'Custom Scan (pmhash page scan)' ],
		[ 'page scan, page', $by{pages}, "$rows k = 1", 'pages_before_page', 'Custom Scan (pmhash page scan)' ],
		[ 'bitmap scan', $by{bitmap}, "$rows k = 1", 'scan_between_batches', 'Bitmap Index Scan on t_k' ],
		[ 'array', $by{index}, "$rows $keys", 'scan_between_batches', 'Index Scan using t_k ' ],
		[ 'array, bitmap', $by{bitmap}, "$rows $keys", 'scan_between_batches', 'Bitmap Index Scan on t_k' ],
		[
			'sweep', "SET work_mem = '64kB'; $by{index}; UPDATE pg_index SET indisvalid = false WHERE indexrelid = 't_k'::regclass",
			"$rows $keys AND g = ANY (ARRAY(SELECT generate_series(0, 99)))",
			'scan_between_batches', 'Index Scan using t_kg'
		],
		[ 'index-only scan', $by{index}, 'SELECT count(*), sum(k) FROM t WHERE k = 1', 'scan_between_batches', 'Index Only Scan using t_k' ],
		[ 'index-only scan, visibility', $by{index}, 'SELECT count(*), sum(k) FROM t WHERE k = 1', 'scan_before_visibility', 'Index Only Scan using t_k' ],
		[ 'index-only scan, array', $by{index}, "SELECT count(*), sum(k) FROM t WHERE $keys", 'scan_before_visibility', 'Index Only Scan using t_k' ],
		[
			'join', $by{join}, 'SELECT count(*), count(DISTINCT t.ctid), sum(v) FROM generate_series(1, 2009) o JOIN t ON k = o',
			'join_before_rows', 'Custom Scan (pmhash join)'
		],
		[ 'index-only join', $by{join}, 'SELECT count(*), sum(k) FROM generate_series(1, 9) o JOIN t ON k = o', 'join_before_rows', 'Index Only: true' ],
		[
			'index-only join, visibility', $by{join}, 'SELECT count(*), sum(k) FROM generate_series(1, 9) o LEFT JOIN t ON k = o',
			'join_before_visibility', 'Index Only: true'
		]);

	foreach my $scan (some_of(3, @scans))
	{
		my ($name, $settings, $query, $point, $plan) = @$scan;
		my $begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; $settings";

		make_table();
		# dead to all, but still in the index
		$node->safe_psql('postgres', 'DELETE FROM t WHERE v % 10 = 0');
		my $wanted = $node->safe_psql('postgres',
			"SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; $query");
		like($node->safe_psql('postgres', "$begin; EXPLAIN (COSTS OFF) $query"), qr/\Q$plan/, "$name: plan");

		my $session = start_and_hold($point, "$begin; $query", $name);
		disturb();
		release($point);
		is(finish($session), $wanted, "$name: the rows of its snapshot, each once");
		all_is_well($name);
	}

	# ---- pages that become all-visible while TIDs of rows that have gone are held ----

	foreach my $scan (grep { $_->[3] =~ /_visibility$/ } @scans)
	{
		my ($name, $settings, $query, $point) = @$scan;

		make_table();
		$node->safe_psql('postgres', 'DELETE FROM t WHERE v % 10 = 0');
		my $wanted = $node->safe_psql('postgres',
			"SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; $query");
		my $session = start_and_hold($point, "BEGIN ISOLATION LEVEL REPEATABLE READ; $settings; $query", $name);

		at_once('VACUUM t');
		is($node->safe_psql('postgres', "SELECT relallvisible = relpages FROM pg_class WHERE oid = 't'::regclass"),
			't', "$name: all pages are all-visible");
		release($point);
		is(finish($session), $wanted, "$name: no row that has gone");
	}

	# ---- dead entries: found by a scan, whose TIDs then become other rows' ----

	my $numbers = start_numbers();
	make_table();
	$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 2 AND v % 2 = 0');
	my $scan_dead = "$by{index}; SELECT sum(v) FROM t WHERE k = 2";
	my $session = start_and_hold('dead_before_removal',
		join('; ', $scan_dead, ($scan_dead, 'SELECT pg_sleep(0.3)') x 5), 'dead entries');
	disturb();
	release('dead_before_removal');
	finish($session);
	all_is_well('dead entries');

	# 2000 of them take many steps, between which no process is kept out; a scan that has
	# taken too long, as it was held, leaves the rest to the next one of its session.
	# That one is held where it goes on.
	my $look_up = 'PERFORM sum(v) FROM t WHERE k = ANY (ARRAY(SELECT generate_series(10, 2009)))';
	my $left = "(SELECT entries FROM pmhash.stats('t_k'))";
	my $until = sub {
		my ($condition) = @_;
		return "DO \$\$ BEGIN FOR i IN 1..1000 LOOP $look_up; EXIT WHEN $condition; PERFORM pg_sleep(0.01); END LOOP; END \$\$";
	};
	foreach my $disturbed (0, 1)
	{
		my $name = 'dead entries, in steps' . ($disturbed ? ', disturbed' : '');

		make_table();
		$node->safe_psql('postgres', 'DELETE FROM t WHERE k BETWEEN 10 AND 2009');
		$session = start_and_hold('dead_before_removal',
			join('; ', $by{index}, $until->("$left < 8300"), "SELECT $left",
				$until->($disturbed ? 'i = 20' : "$left = 6300"), "SELECT $left"), $name);
		hold('dead_before_removal');
		release('dead_before_removal');
		is_held('dead_before_removal', "$name: after the first step");
		my $after_one = at_once("SELECT $left");
		cmp_ok($after_one, '<', 8300, "$name: some have gone");
		cmp_ok($after_one, '>', 8300 - 500, "$name: not many");
		disturb() if $disturbed;
		usleep(10_000);
		release('dead_before_removal');
		my ($after_two, $at_the_end) = split(/\n/, finish($session));
		if (!$disturbed)
		{
			# (none, or one more step: what waited for WAL is a batch of its own)
			cmp_ok($after_two, '>', $after_one - 500, "$name: not many more at once");
			is($at_the_end, 6300, "$name: later scans have taken out the rest");
		}
		all_is_well($name);
	}
	$numbers->kill_kill;

	# ---- VACUUM held between judging and removing, and before it is through ----
	# (Cancelled and killed there: standby/dead_rows.)

	foreach my $point ('vacuum_before_removal', 'vacuum_before_epoch')
	{
		make_table();
		$node->safe_psql('postgres', 'DELETE FROM t WHERE v % 3 = 0');
		$session = start_and_hold($point, 'VACUUM t', 'VACUUM');
		at_once('INSERT INTO t SELECT 100000 + i, i % 100, -i FROM generate_series(1, 4000) i');
		at_once('INSERT INTO t SELECT k, g, -v FROM t WHERE v % 3 = 1');
		at_once('DELETE FROM t WHERE v % 7 = 0');
		same_answers($node, 't', 'k', 't_k', "VACUUM held at $point");
		release($point);
		is(finish($session), '', "VACUUM held at $point: it gets through");
		all_is_well("VACUUM held at $point");
		$node->safe_psql('postgres', 'VACUUM t');
		all_is_well("VACUUM held at $point, and another one");
	}

	# ---- inserts held between journal and entry, and before the conflict check ----

	# One row goes in at once, a hundred as a group.
	foreach my $case ([ 'insert_after_journal', 1 ], [ 'group_after_journal', 100 ])
	{
		my ($point, $n) = @$case;
		my $insert = "INSERT INTO t SELECT 7777, 0, i FROM generate_series(1, $n) i";
		my $of_key = "$by{index}; SELECT count(*) FROM t WHERE k = 7777";

		make_table();
		$session = start_and_hold($point, $insert, $point);
		at_once('INSERT INTO t VALUES (7777, 0, -1)');
		is(at_once($of_key), '1', "$point: the other's row is there");
		disturb();
		release($point);
		is(finish($session), '', "$point: it goes on");
		is(at_once($of_key), $n + 1, "$point: all rows are there");
		all_is_well($point);

		# its row may be durable, its transaction is not
		$session = start_and_hold($point, $insert, "$point, crash");
		at_once('INSERT INTO t VALUES (7777, 0, -2)');
		crash($node);
		finish($session);
		unlink("$points/$point.held");
		$node->start;
		is(at_once($of_key), $n + 2, "$point, crash: the rows that were committed");
		at_once('VACUUM t');
		all_is_well("$point, crash");
	}

	# An exclusion constraint: each inserts before it looks, so one finds the other.
	foreach my $point ('insert_after_journal', 'insert_before_conflict_check')
	{
		$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS ex;
CREATE TABLE ex (k int4, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =));
SQL
		my $first = start_and_hold($point, 'INSERT INTO ex VALUES (5)', "exclusion, $point");
		my $second = start_session('INSERT INTO ex VALUES (5)');

		# if the first one's entry is there the second waits for its end
		usleep(300_000);
		release($point);
		my $errors = finish($first) . finish($second);
		like($errors, qr/conflicting key value violates exclusion constraint|deadlock detected/,
			"exclusion, $point: one of two fails");
		is($node->safe_psql('postgres', 'SELECT count(*) FROM ex'), '1', "exclusion, $point: one row");
	}

	# Serializable: two read what the other inserts.  The first is held in its
	# insert, before or after the entry; the second does all it has to do.
	foreach my $point ('insert_after_journal', 'insert_before_conflict_check')
	{
		foreach my $settings ($by{index}, $by{bitmap})
		{
			my $begin = "$settings; BEGIN ISOLATION LEVEL SERIALIZABLE";

			make_table();
			my $first = start_and_hold($point,
				"$begin; SELECT count(*) FROM t WHERE k = 5001; INSERT INTO t VALUES (5002, 0, 1); COMMIT",
				"serializable, $point");
			my ($status, $stdout, $stderr) = $node->psql('postgres',
				"$begin; SELECT count(*) FROM t WHERE k = 5002; INSERT INTO t VALUES (5001, 0, 1); COMMIT");
			release($point);
			like(finish($first) . $stderr, qr/could not serialize access/, "serializable, $point: one of two fails");
			is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k > 5000'), '1',
				"serializable, $point: one row");
		}
	}

	# ---- processes that wait for a held writer: it shows, and can be cancelled ----

	my $new_keys = 'INSERT INTO t SELECT 100000 + i, i % 100, -i FROM generate_series(1, 20000) i';

	make_table();
	$session = start_and_hold('put_before_commit', $new_keys, 'wait');
	my $waiting = start_session($new_keys);
	ok($node->poll_query_until('postgres',
			"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'INSERT INTO t SELECT 100000%' AND wait_event_type = 'Extension'"),
		'a process that waits for a lock of the engine has a wait event');
	cmp_ok($node->safe_psql('postgres', 'SELECT lock_waits FROM pmhash.stat'), '>', 0, 'it is counted');
	$node->safe_psql('postgres',
		"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO t SELECT 100000%' AND wait_event_type = 'Extension'");
	like(finish($waiting), qr/canceling statement due to user request/, 'and hears a cancel');
	like(finish(start_session("SET statement_timeout = '1s'; $new_keys")),
		qr/canceling statement due to statement timeout/, 'or a timeout');
	release('put_before_commit');
	is(finish($session), '', 'the held writer goes on');
	all_is_well('waits given up');

	$node->stop;
}

# ======== serializable stops ========

# SERIALIZABLE transactions whose index-only joins and scans take rows of all-visible pages
# without a visit: held there while another one deletes the row, and reads what they
# are going to change.  One of the two fails.
{
	my $node = new_server('serializable', undef, install_path => install_with_stop_points());
	use_stop_points($node);
	start_with_extension($node, <<'SQL');
CREATE TABLE item (k int4, v int4);
INSERT INTO item SELECT i, 0 FROM generate_series(1, 1000) i;
CREATE INDEX item_k ON item USING pmhash (k);
CREATE TABLE wanted (k int4);
INSERT INTO wanted VALUES (1), (11);
CREATE TABLE seen (v int4);
INSERT INTO seen VALUES (0);
ANALYZE;
SQL

	my $refused = qr/could not serialize access due to read\/write dependencies/;
	my $by_join = 'SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1000; SET max_parallel_workers_per_gather = 0';
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
	my @readers = (
		[ 'join', $by_join, 'SELECT count(*) FROM wanted WHERE EXISTS (SELECT FROM item WHERE item.k = wanted.k)', 'Index Only: true', 2 ],
		[ 'scan', $by_index, 'SELECT count(*) FROM item WHERE k = 1', 'Index Only Scan using item_k', 1 ]);
	my $delete = 'BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT v FROM seen; DELETE FROM item WHERE k = 1; COMMIT';

	foreach my $reader (@readers)
	{
		my ($name, $settings, $query, $plan, $count) = @$reader;
		my $begin = "BEGIN ISOLATION LEVEL SERIALIZABLE; $settings";

		$node->safe_psql('postgres', 'VACUUM ANALYZE item, wanted');
		like($node->safe_psql('postgres', "$begin; EXPLAIN (COSTS OFF) $query"), qr/\Q$plan/, "$name: plan");

		# past the look at the visibility map, and once more when the page is locked
		foreach my $point ('all_visible', 'all_visible_locked')
		{
			$node->safe_psql('postgres', 'VACUUM item');
			my $session = start_and_hold($point, "$begin; $query; UPDATE seen SET v = v + 1; COMMIT", "$name, $point");
			my $locked = $node->safe_psql('postgres',
				"SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND locktype = 'page' AND relation = 'item'::regclass");

			is($locked, $point eq 'all_visible' ? '0' : '1', "$name, $point: the page is locked then, and not before");
			is($node->safe_psql('postgres', $delete), '0', "$name, $point: the other one deletes the row");
			release($point);
			like(finish($session), qr/^$count\n.*$refused/s, "$name, $point: the reader sees it, and fails as it writes");
			is($node->safe_psql('postgres', 'SELECT v FROM seen'), '0', "$name, $point: it has written nothing");

			# and without the other one
			$node->safe_psql('postgres', 'INSERT INTO item VALUES (1, 0); VACUUM item');
			$session = start_and_hold($point, "$begin; $query; UPDATE seen SET v = v + 1; COMMIT", "$name alone, $point");
			release($point);
			is(finish($session), $count, "$name alone, $point: goes on");
			$node->safe_psql('postgres', 'UPDATE seen SET v = 0');
		}
	}

	# ---- an index is marked as invalid: who sees the mark may leave rows out ----
	# By then sessions that have the file open know of it, and what has been read through it
	# is guarded by a lock of the table.
	rebuild_off($node);
	$node->safe_psql('postgres', 'VACUUM item');
	{
		my $file = $node->safe_psql('postgres', q(SELECT file FROM pmhash.indexes WHERE index = 'item_k'));
		my $user = $node->background_psql('postgres', on_error_stop => 1);
		my $reader = $node->background_psql('postgres', on_error_stop => 1);
		my $count = 'SELECT count(*) FROM item WHERE k = 7777';
		my $session;

		$user->query_safe($by_index);
		is($user->query_safe($count), '0', 'marked: a session has the file open');
		$reader->query_safe("BEGIN ISOLATION LEVEL SERIALIZABLE; $by_index");
		is($reader->query_safe('SELECT count(*) FROM item WHERE k = 1'), '1', 'marked: a transaction has read through it');
		unlink($file) or die "$file: $!";
		$session = start_and_hold('stub_let_go', 'INSERT INTO item VALUES (1001, 0)', 'marked');
		is( $node->safe_psql('postgres', q(SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND locktype = 'relation' AND relation = 'item'::regclass)),
			'1', 'marked: the table is locked');
		$node->safe_psql('postgres', 'INSERT INTO item VALUES (7777, 0)');
		is($user->query_safe($count), '1', 'marked: that session finds a row that has been left out');
		release('stub_let_go');
		finish($session);
		$reader->quit;
		$user->quit;
	}
	$node->stop;
}

# ======== barriers ========

# What walks through a whole index for long takes note of barriers that are for all
# processes (ProcSignalBarrier): DROP DATABASE of any database waits for each process to
# close its files, and returns before the walk ends.
{
	my $point = 'segment_before_validation';
	my $node = new_server('barriers', "autovacuum = off\n", install_path => install_with_stop_points());
	use_stop_points($node);
	start_with_extension($node, <<SQL);
CREATE TABLE t (k int);
INSERT INTO t SELECT i FROM generate_series(1, 20000) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL
	cmp_ok($node->safe_psql('postgres', q(SELECT segments FROM pmhash.stats('t_k'))), '>', 2, 'some segments');

	foreach my $walk (qw(pmhash.check pmhash.stats))
	{
		$node->safe_psql('postgres', 'CREATE DATABASE other');
		my $walker = start_and_hold($point, "SELECT $walk('t_k') IS NULL", $walk);
		my $drop = start_session('DROP DATABASE other');
		ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'DROP%' AND wait_event = 'ProcSignalBarrier')),
			"$walk: DROP DATABASE waits for it");
		hold($point);
		release($point);
		is_held($point, "$walk, one segment on");
		ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'DROP%' AND pid <> pg_backend_pid())),
			"$walk: DROP DATABASE is through");
		release($point);
		is(finish($drop), '', "$walk: it has dropped it");
		like(finish($walker), qr/^[tf]$/, "$walk: it comes to its end");
	}
	$node->stop;
}

done_testing();
