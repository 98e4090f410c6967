# The launcher and its workers: databases that cannot be used, what waits, how often they come; orphans
# beside rebuilds.

use v5.36;

use File::Copy qw(copy);
use PmhashFaults;
use PmhashInvalid;
use PmhashStops;
use PmhashTest;
use Time::HiRes qw(time usleep);

# ======== workers ========

# A worker in a database with damaged stub pages.
{
	my $node = new_server('workers');
	start_with_extension($node, invalid_fixture());

	# ---- damaged stub pages ----
	rebuild_off($node);
	my @damage = (
		[ 'wrong magic number', 't_k', 24, "\xff" x 4 ],
		[ 'damaged page header', 'ex_k', 8, "\xff" x 12 ],
		[ 'page of zeroes', 'o_k', 0, "\0" x 8192 ]);
	my %file;
	my $from;
	foreach my $case (@damage)
	{
		my ($name, $index, $offset, $bytes) = @$case;
		my $stub = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$index')");

		$file{$index} = index_file($node, $index);
		$node->stop;
		patch_file($stub, $offset, $bytes);
		$from = -s $node->logfile;
		$node->start;
	}
	wait_for_files(pool($node), 4, 'files before');

	# what a transaction replaces is removed, and nothing else
	my $kept = index_file($node, 't_v');
	$node->safe_psql('postgres', 'REINDEX INDEX t_v');
	wait_for_files(pool($node), 4, 'REINDEX beside damaged stubs');
	ok(!-e $kept, 'the file of the reindexed index is gone');
	$node->safe_psql('postgres', 'TRUNCATE t; INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i');
	$node->safe_psql('postgres', 'REINDEX INDEX t_v');
	sleep(3);    # naptimes
	ok(-e $file{$_}, "the file of $_ is kept") foreach ('ex_k', 'o_k');
	unlike(slurp_file($node->logfile, $from), qr/ERROR:/, 'no visit fails');

	# the indexes come back, and then everything left over goes
	rebuild_on($node);
	$node->safe_psql('postgres', 'TRUNCATE t; INSERT INTO t SELECT i % 3000, i FROM generate_series(1, 6000) i');
	all_come_back($node, 'after damaged stubs');
	wait_for_files(pool($node), 4, 'all old files are removed');

	# ---- a page that the server would not read is not believed ----
	my $named = index_file($node, 'ex_k');
	my $page = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('ex_k')");
	rebuild_off($node);
	$node->stop;
	patch_file($page, 8, "\xff" x 12);    # of its header
	patch_file($page, 32, "\xff" x 8);    # the name of the file
	$node->start;
	sleep(5);    # naptimes
	ok(-e $named, 'a damaged page that names another file: its own is kept');
	$node->stop;
}

# ======== damaged catalog ========

# The row of an index in pg_index is missing: the server itself cannot open that index.  It
# keeps nobody from seeing to the others: a worker reads its stub all the same, removes what
# no index owns and keeps this one's; others are rebuilt, and shown.  If it is to be opened, that
# is a rebuild that has failed.  When the row is there again, so is the index, and what was
# invalid meanwhile is rebuilt without anybody's meeting it.
{
	my $node = new_server('catalog', "pmhash.cleaner_naptime = 1\n");
	start_with_extension($node, <<SQL);
CREATE TABLE a (k int, v int);
INSERT INTO a SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX a_k ON a USING pmhash (k);
CREATE TABLE b (k int);
INSERT INTO b SELECT i FROM generate_series(1, 100) i;
CREATE INDEX b_k ON b USING pmhash (k);
CREATE INDEX b_old ON b USING pmhash (k);
CREATE TABLE saved AS SELECT * FROM pg_index WHERE indexrelid = 'a_k'::regclass;
SQL
	my $kept = index_file($node, 'a_k');
	my $lost = index_file($node, 'b_k');
	my $old = index_file($node, 'b_old');
	copy($old, "$old.copy") or die "$old: $!";
	$node->safe_psql('postgres', 'REINDEX INDEX b_old');
	my $states = "SELECT string_agg(index || ' ' || state, ', ' ORDER BY index::text) FROM pmhash.indexes";

	# ---- the row is missing; of another index the file, and a file is left over ----

	$node->safe_psql('postgres', "DELETE FROM pg_index WHERE indexrelid = 'a_k'::regclass");
	$node->stop;
	rename("$old.copy", $old) or die "$old: $!";
	unlink($lost) or die "$lost: $!";
	my $from = -s $node->logfile;
	$node->start;
	$node->poll_query_until('postgres', "SELECT pg_stat_file('$old', true) IS NULL")
	  or fail('a file that belongs to another index is removed');
	ok($node->wait_for_log(qr/index "b_k" of table "b" has been rebuilt/, $from), 'another index is rebuilt');
	sleep(3);    # naptimes
	is($node->safe_psql('postgres', $states), 'b_k valid, b_old valid', 'the others are shown');
	ok(-e $kept, 'its own file is kept');
	my $log = slurp_file($node->logfile, $from);
	unlike($log, qr/ERROR/, 'and no worker ends of it');
	my $tries = () = $log =~ /could not rebuild index with OID \d+: cache lookup failed for index/g;
	ok($tries >= 1 && $tries <= 4, "it is tried with pauses ($tries tries)");
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM b WHERE k = 7'), '1', 'the other index answers');

	# ---- the row is there again ----

	$node->safe_psql('postgres', 'INSERT INTO pg_index SELECT * FROM saved');
	is($node->safe_psql('postgres', $states), 'a_k valid, b_k valid, b_old valid', 'all are valid');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT v FROM a WHERE k = 7'), '7', 'the row is found');
	$node->safe_psql('postgres', "SELECT pmhash.check('a_k')");

	# ---- missing while the index's stub is in shared buffers, and its file is good ----

	is($node->safe_psql('postgres', "BEGIN; DELETE FROM pg_index WHERE indexrelid = 'a_k'::regclass; SELECT count(*) FROM pmhash.files() WHERE index = 'a_k'::regclass; ROLLBACK"),
		'0', 'not shown as valid');

	# ---- missing when a worker comes, and nobody else looks ----

	$node->safe_psql('postgres', "DELETE FROM pg_index WHERE indexrelid = 'a_k'::regclass");
	$node->stop;
	$node->append_conf('postgresql.conf', 'pmhash.cleaner_naptime = 86400');
	unlink($kept) or die "$kept: $!";
	$from = -s $node->logfile;
	$node->start;
	ok($node->wait_for_log(qr/could not rebuild index with OID \d+: cache lookup failed for index/, $from), 'a rebuild that has failed');
	$node->safe_psql('postgres', 'INSERT INTO pg_index SELECT * FROM saved');
	ok($node->wait_for_log(qr/index "a_k" of table "a" has been rebuilt/, $from), 'it is tried again');
	$node->stop;
}

# ======== locked database ========

# A database that nothing can connect to for hours: it is renamed in a transaction that
# stays open, is the template of another one, or a catalog of it is locked.  Nothing in
# the other databases waits for that, nor does the launcher.
{
	my $patience = 20;
	my $node = new_faulty_server('locked');
	my $launcher = "FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'";

	$node->safe_psql('postgres', 'CREATE DATABASE d');
	install_extension($node, 'd');
	my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'd'");
	$node->safe_psql($_, invalid_fixture()) foreach ('postgres', 'd');

	# A test: a query comes to give 't', though what is locked stays so.
	sub soon ($query, $name, $database = 'postgres')
	{
		return ok($node->poll_query_until($database, $query), $name);
	}

	# A test: a file is lost in a database, and there is another one soon.
	sub lost_and_rebuilt ($name)
	{
		my $file = index_file($node, 't_k');

		unlink($file) or die "$file: $!";
		$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');
		return soon("SELECT state = 'valid' AND file <> '$file' FROM pmhash.indexes WHERE index = 't_k'",
			"$name: a file lost in another database is rebuilt");
	}

	sub lose_in_d
	{
		my $file = index_file($node, 't_k', 'd');

		rebuild_off($node);
		unlink($file) or die "$file: $!";
		$node->safe_psql('d', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');
		like(index_state($node, 't_k', 'd'), qr/^invalid/, 'an index of the database is invalid');
		return;
	}

	# Stop a worker while it waits for a lock in d: its process id.  Not before it waits, as
	# it may then hold locks of the server's that all processes need.
	sub held_worker
	{
		my $deadline = time + $patience;

		while (time < $deadline)
		{
			foreach my $pid (PmhashTest::children($node->{_pid}))
			{
				open(my $file, '<', "/proc/$pid/cmdline") or next;    # gone meanwhile
				next if <$file> !~ /pmhash worker for database $oid/;
				next if $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted") eq '0';
				return $pid if kill('STOP', $pid);
			}
			usleep(5_000);
		}
		die 'no worker';
	}

	# event: a database is locked for long: `ALTER DATABASE` in an open transaction, `CREATE DATABASE ... TEMPLATE`, a lock on its catalogs
	lose_in_d();
	my $session = session_with($node, 'BEGIN; ALTER DATABASE d RENAME TO e');
	rebuild_on($node);
	lost_and_rebuilt('ALTER DATABASE') foreach 1 .. 2;
	is($node->safe_psql('postgres', "SELECT wait_event $launcher AND wait_event = 'BgWorkerShutdown'"), '',
		'ALTER DATABASE: the launcher waits for no worker');
	$session->query_safe('ROLLBACK');
	soon("SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'", 'ALTER DATABASE: rebuilt when that is over', 'd');

	# A catalog is locked: that shows only to a worker that connects.  It gives up.
	lose_in_d();
	my $there = $node->background_psql('d');
	$there->query_safe('BEGIN; LOCK TABLE pg_class');
	my $from = -s $node->logfile;
	rebuild_on($node);
	lost_and_rebuilt('pg_class locked');
	$node->wait_for_log(qr/lock timeout/, $from);

	# A worker that is held up there, for whatever reason: meanwhile the launcher notices that
	# the kernel has failed to write something back, and has others rebuild.
	my $worker = held_worker();
	my $error = 'has failed to write something back: Input';
	$from = -s $node->logfile;
	set_faults($node, calls => 'syncfs', error => 5, fail_for => 1, fail_at => 1);
	checkpoint_and_ask($node);
	my $deadline = time + $patience;
	usleep(100_000) while slurp_file($node->logfile, $from) !~ /$error/ && time < $deadline;
	like(slurp_file($node->logfile, $from), qr/$error/, 'a worker is held up: a failed write is noticed');
	set_faults($node, calls => 'syncfs', error => 5, fail_for => 1, fail_at => 0);
	lost_and_rebuilt('a worker is held up');
	ok(kill('CONT', $worker), 'it was the same worker all the time');

	$there->query_safe('ROLLBACK');
	$there->quit;
	all_come_back($node, 'all is over', 'd');
	all_come_back($node, 'all is over, another database');

	# The launcher ends when it is terminated, also while a worker waits for a lock.
	$session->query_safe('BEGIN; ALTER DATABASE d RENAME TO e');
	my $pid = $node->safe_psql('postgres', "SELECT pid $launcher");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	soon("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'the launcher ends when it is terminated');
	$session->query_safe('ROLLBACK');
	$session->quit;
	$node->stop;
}

# ======== other databases ========

# Databases without pmhash are connected to once, at a start, and then left alone; whatever
# the name of the access method, indexes are found.
{
	my $node = new_server('others', "log_min_messages = debug1\n");
	$node->start;

	sub oid_of ($database)
	{
		return $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");
	}

	# How many workers there have been in a database since a place in the log.
	sub visits ($database, $from)
	{
		my $oid = oid_of($database);

		return scalar(() = slurp_file($node->logfile, $from) =~ /starting background worker process "pmhash \w+ for database $oid"/g);
	}

	# plain: nothing; other_am: an access method of another library's; past: had pmhash;
	# renamed: has it under another name; mine: as usual.
	$node->safe_psql('postgres', "CREATE DATABASE $_") foreach ('plain', 'other_am', 'past', 'renamed', 'mine');
	$node->safe_psql('other_am', 'CREATE ACCESS METHOD other TYPE INDEX HANDLER hashhandler');
	install_extension($node, $_) foreach ('past', 'renamed', 'mine');
	$node->safe_psql($_, 'CREATE TABLE t (k int4); INSERT INTO t SELECT generate_series(1, 1000); CREATE INDEX t_k ON t USING pmhash (k)')
		foreach ('past', 'mine');
	$node->safe_psql('renamed', <<SQL);
CREATE ACCESS METHOD another TYPE INDEX HANDLER pmhash_handler;
CREATE OPERATOR CLASS int4_ops DEFAULT FOR TYPE int4 USING another AS OPERATOR 1 =, FUNCTION 1 hashint4extended(int4, int8);
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING another (k);
SQL
	$node->safe_psql('past', 'DROP EXTENSION pmhash CASCADE');
	wait_for_files(pool($node) . '/' . oid_of('past'), 0, 'files of the dropped indexes go');

	sub start_and_look ($name, $most = undef)
	{
		my $from = -s $node->logfile;

		$node->start;
		$node->poll_query_until('postgres', "SELECT pg_stat_have_stats('database', " . oid_of('mine') . ', 0)') or die $name;
		sleep(5);    # some more visits
		cmp_ok(visits('mine', $from), '>', 2, "$name: a database with indexes is visited");
		is(visits($_, $from), 1, "$name: $_ is visited once") foreach ('template1', 'plain', 'other_am');
		return;
	}

	$node->stop('immediate');
	start_and_look('killed');

	# the pool has gone: every index is found, by whatever name
	$node->stop('immediate');
	system_or_bail('rm', '-rf', pool($node));
	start_and_look('without a pool');
	foreach my $database ('mine', 'renamed')
	{
		ok($node->poll_query_until($database, "SELECT pmhash.size('t_k') > 10000"), "without a pool: the index of $database is rebuilt");
		is($node->safe_psql($database, 'SELECT count(*) FROM t WHERE k = 77'), '1', "$database: a row");
	}

	# a lock on a catalog keeps no process waiting
	my $session = $node->background_psql('plain', on_error_stop => 1);
	$session->query_safe('BEGIN; LOCK TABLE pg_catalog.pg_proc IN ACCESS EXCLUSIVE MODE') if $session->can('query_safe');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'");
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'"), 'a lock: the launcher starts');
	$node->safe_psql('mine', 'REINDEX INDEX t_k');
	wait_for_files(pool($node) . '/' . oid_of('mine'), 1, 'a lock: the launcher works');
	$session->quit;

	$node->stop;
}

# ======== put off ========

# Cleanings that are put off: a database that can't be cleaned for long is tried less and
# less often, and does not make another one wait that is put off for the first time.
{
	my $node = new_server('put_off', "log_min_messages = debug1\npmhash.cleaner_naptime = 3600\n");
	my %oid;

	$node->start;
	foreach my $database (qw(long short))
	{
		$node->safe_psql('postgres', "CREATE DATABASE $database");
		install_extension($node, $database, 'CREATE TABLE t (k int); CREATE INDEX t_k ON t USING pmhash (k); CREATE TABLE o (k int); CREATE INDEX o_k ON o USING pmhash (k);');
		$oid{$database} = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");
	}
	sleep(3);         # the first look of a new server is over

	# Have a file that no index owns while an index is locked; wait until that was looked at.
	sub put_off ($database)
	{
		my $from = -s $node->logfile;
		my $session = $node->background_psql($database, on_error_stop => 1);

		$session->query_safe('BEGIN; LOCK TABLE t; REINDEX INDEX t_k;');
		$node->safe_psql($database, "BEGIN; DROP INDEX o_k; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'");
		$node->wait_for_log(qr/unregistering background worker "pmhash worker for database $oid{$database}"/, $from);
		return $session;
	}

	sub tried ($database)
	{
		return scalar(() = slurp_file($node->logfile) =~ /starting background worker process "pmhash worker for database $oid{$database}"/g);
	}

	my $long = put_off('long');
	my $begun = time;
	usleep(20_000) while tried('long') < 5 && time < $begun + 30;
	cmp_ok(time - $begun, '>', 5, 'tried again after 1, 2, 4 s: longer each time');
	$begun = time;
	my $short = put_off('short');
	$short->query_safe('ROLLBACK');
	$short->quit;
	usleep(20_000) while scalar(database_files($node, 'short')) > 1 && time < $begun + 60;
	my $took = time - $begun;
	is(scalar(database_files($node, 'short')), 1, 'the file of the other database is gone');
	cmp_ok($took, '<', 7, "after its own pause, not after that of the first ($took s)");
	cmp_ok(scalar(database_files($node, 'long')), '>=', 2, 'in the first one it is still there');
	$long->query_safe('ROLLBACK');
	$long->quit;

	# ---- rebuilds are off: queries that meet an invalid index ask for nobody ----
	rebuild_off($node);
	unlink(index_file($node, 't_k', 'short')) or die;
	my $before = tried('short');
	foreach (1 .. 20)
	{
		$node->safe_psql('short', 'SET enable_seqscan = off; SELECT * FROM t WHERE k = 1');
		usleep(150_000);
	}
	is(tried('short'), $before, 'rebuilds are off: no worker comes');
	$node->stop;
}

# ======== stream of requests ========

# Each COMMIT PREPARED asks for a cleaning.  A stream of them keeps the launcher neither from
# its other work nor starting workers without a pause.
{
	my $seconds = 12;
	my $node = new_server('stream', "max_prepared_transactions = 10\nlog_min_messages = debug1\nlog_statement = none\n");

	start_with_extension($node, <<SQL);
CREATE TABLE t (k int);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE plain (k int);
SQL

	my $script = $node->basedir . '/two_phase.sql';
	append_to_file($script, <<'SQL');
BEGIN;
INSERT INTO plain VALUES (:client_id);
PREPARE TRANSACTION 'p:client_id';
COMMIT PREPARED 'p:client_id';
SQL
	my $load = IPC::Run::start(
		[ 'pgbench', '-n', '-c', 4, '-R', 150, '-T', $seconds, '-f', $script, $node->connstr('postgres') ],
		'>', \my $said, '2>', \my $errors);
	my $from = -s $node->logfile;
	my $began = time;

	# two seconds of it first, so that the stream has begun
	sleep(2);
	my $file = $node->safe_psql('postgres', "SELECT file FROM pmhash.indexes WHERE index = 't_k'");
	truncate($file, 0) or die "$file: $!";
	$node->psql('postgres', 'SET enable_seqscan = off; SELECT * FROM t WHERE k = 1');
	ok($node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'"), 'valid again');
	cmp_ok(time - $began, '<', $seconds, 'beside the stream');
	$load->finish;
	like($said, qr/number of transactions actually processed: [1-9]\d\d/, 'a stream');
	my $workers = () = slurp_file($node->logfile, $from) =~ /starting background worker process "pmhash worker/g;
	cmp_ok($workers, '>', 0, 'workers');
	cmp_ok($workers, '<=', 2 * $seconds, 'no more than one a second, and those that the clock calls for');
	all_checked($node, 'in the end');
	$node->stop;
}

# ======== worker stops ========

# A worker removes orphans beside another one's rebuild (of an index with an expression, which
# is for another kind of worker): it lists files, asks for their makers, reads stubs and
# removes, each of these before a step of the rebuild, or past it.  The file that is being
# filled is no orphan at any moment, and the index comes back with the first try.
{
	my $node = new_server('worker_stops', undef, install_path => install_with_stop_points());
	use_stop_points($node);
	start_with_extension($node, <<SQL);
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i % 500, i FROM generate_series(1, 5000) i;
CREATE INDEX t_k ON t USING pmhash ((k + 0));
CREATE PROCEDURE workers_come_by() LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.5); END';
SQL

	sub times_in_log ($pattern)
	{
		return scalar(() = slurp_file($node->logfile) =~ /$pattern/g);
	}

	my $rebuilt = 0;

	sub came_back ($name)
	{
		wait_until($node, q(SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'), "$name: the index does not come back");
		is(times_in_log(qr/index "t_k" of table "t" has been rebuilt/), ++$rebuilt, "$name: rebuilt once");
		is(times_in_log(qr/could not rebuild index/), 0, "$name: at the first try");
		$node->safe_psql('postgres', 'CALL workers_come_by()');
		ok(-e index_file($node, 't_k'), "$name: its file is there");
		is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k + 0 = 7'),
			$node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 7'), "$name: rows");
		return is($node->safe_psql('postgres', q(SELECT pmhash.check('t_k'))), '', "$name: pmhash.check");
	}

	# Workers come on request, or by the launcher's clock.
	sub hold_worker ($point, $name)
	{
		hold($point);
		$node->safe_psql('postgres', 'BEGIN; CREATE TABLE x (k int4); CREATE INDEX ON x USING pmhash (k); ROLLBACK');
		return is_held($point, $name);
	}

	my @looking = qw(worker_listed worker_before_stubs worker_before_removal);
	my @rebuilding = qw(rebuild_marked rebuild_before_build rebuild_before_stub rebuild_before_valid);

	# ---- a worker that looks at files before a step of the rebuild, and at stubs after it ----

	foreach my $pair (some_of(4, map { my $step = $_; map { [ $step, $_ ] } @looking } @rebuilding))
	{
		my ($step, $worker) = @$pair;
		my $name = "rebuild at $step, worker at $worker";

		hold($step);
		# a session finds that the file has gone, and a rebuild begins
		unlink(index_file($node, 't_k')) or die;
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (7, -7)');
		is_held($step, $name);
		hold_worker($worker, $name);
		release($step);
		$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'") or die $name;
		release($worker);
		came_back($name);
	}

	# ---- the launcher has seen that a database is gone; then there is another one with its OID ----

	my $oid = 20001;
	$node->safe_psql('postgres', "CREATE DATABASE other OID = $oid");
	install_extension($node, 'other', 'CREATE TABLE t (k int4); CREATE INDEX t_k ON t USING pmhash (k)');
	$node->safe_psql('postgres', 'CALL workers_come_by()');
	hold('launcher_before_dropped');
	$node->safe_psql('postgres', 'DROP DATABASE other');
	is_held('launcher_before_dropped', 'a database is dropped');
	$node->safe_psql('postgres', "CREATE DATABASE other OID = $oid");
	is(scalar(index_files(pool($node) . "/$oid")), 0, 'another one with its OID: nothing is left of the first');
	install_extension($node, 'other', 'CREATE TABLE t (k int4); INSERT INTO t SELECT generate_series(1, 100); CREATE INDEX t_k ON t USING pmhash (k)');
	my $file = index_file($node, 't_k', 'other');
	release('launcher_before_dropped');
	$node->safe_psql('postgres', 'CALL workers_come_by()');
	ok(-e $file, 'another one with its OID: its file is there');
	is(index_state($node, 't_k', 'other'), 'valid', 'another one with its OID: valid');
	wait_for_files(pool($node) . "/$oid", 1, 'another one with its OID: one file');
	$node->safe_psql('postgres', 'DROP DATABASE other');
	wait_for_files(pool($node) . "/$oid", 0, 'dropped again: none');

	# ---- how long transactions may take is not for workers, nor for the launcher ----

	SKIP:
	{
		skip 'no transaction_timeout', 1 if $node->pg_version < 17;

		# (the server's own background workers may well be ended by it)
		my $ended = qr/background worker "pmhash[^"]*" \(PID \d+\) exited with exit code [1-9]/;
		my $before = times_in_log($ended);

		reload_with($node, 'transaction_timeout = 1ms');
		foreach (0 .. 1)
		{
			hold('worker_listed');
			is_held('worker_listed', 'transaction_timeout');
			sleep(1);
			release('worker_listed');
		}
		is(times_in_log($ended), $before, 'transaction_timeout: no worker is ended');
	}
	$node->stop;
}

done_testing();
