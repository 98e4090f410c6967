# Stubs that others have copied, or that cannot be read.

use v5.36;

use File::Copy qw(copy);
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;

# ======== copied stubs ========

# A copy of a database has stubs that name files of the original.  Whatever is done to its
# indexes, no server takes these files for the copy's.
{
	my $state = "SELECT state FROM pmhash.indexes WHERE index = 'x_k'";

	# no process marks what it finds unless it is asked to use it
	my $primary = new_primary('primary', "pmhash.rebuild = off\npmhash.cleaner_naptime = 3600\n");

	sub make_original ($name)
	{
		$primary->safe_psql('postgres', "CREATE DATABASE $name");
		install_extension($primary, $name, <<SQL);
CREATE TABLE x (k int) WITH (autovacuum_enabled = off);
INSERT INTO x SELECT i % 10 FROM generate_series(1, 1000) i;
CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = on);
SQL
		return;
	}

	sub wait_valid ($node, $database, $name)
	{
		return ok($node->poll_query_until($database, "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'x_k'"), "$name: $database is valid");
	}

	# A test: what queries on the table of a database find that may use the index.
	sub finds ($node, $database, $wanted, $name)
	{
		return is($node->safe_psql($database, 'SET enable_seqscan = off; SET enable_bitmapscan = off; '
				  . 'SELECT count(*) FROM x WHERE k = 3'), $wanted, "$name: rows in $database");
	}

	# ---- the file of the original is there when a copy's index is altered ----

	make_original('d1');
	my $standby = new_standby($primary, 'first', "pmhash.rebuild = on\n");
	wait_valid($standby, 'd1', 'first');
	my $file = $standby->safe_psql('d1', 'SELECT file FROM pmhash.indexes');
	my $kept = $standby->basedir . '/kept';
	link($file, $kept) or die $!;    # so that no other gets its inode
	$primary->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''");
	my %change = (
		wal_log => 'ALTER INDEX x_k SET (fillfactor = 80)',
		file_copy => 'ALTER INDEX x_k RENAME TO x_k2; ALTER INDEX x_k2 RENAME TO x_k',
		elsewhere => 'ALTER INDEX x_k SET TABLESPACE elsewhere');
	foreach my $name (sort keys %change)
	{
		my $strategy = $name eq 'elsewhere' ? 'wal_log' : $name;

		$primary->safe_psql('postgres', "CREATE DATABASE by_$name TEMPLATE d1 STRATEGY $strategy");
		$primary->safe_psql("by_$name", $change{$name});
		caught_up($primary, $standby);
		$standby->safe_psql("by_$name", 'SET enable_seqscan = off; EXPLAIN SELECT * FROM x WHERE k = 3');
		is((stat($file))[1], (stat($kept))[1], "$name: the original's file is still there");
		isnt($standby->safe_psql("by_$name", $state), 'valid', "$name: the copy has none");
		finds($standby, "by_$name", 100, $name);
	}
	is($standby->safe_psql('d1', $state), 'valid', 'and in use');

	# the copy gets its own
	$primary->safe_psql('by_wal_log', 'REINDEX INDEX x_k; DELETE FROM x WHERE k = 3; VACUUM x');
	caught_up($primary, $standby);
	wait_valid($standby, 'by_wal_log', 'REINDEX');
	finds($standby, 'by_wal_log', 0, 'REINDEX');
	finds($standby, 'd1', 100, 'REINDEX');
	is((stat($file))[1], (stat($kept))[1], 'REINDEX: the original has what it had');
	$standby->stop;

	# ---- a standby comes to the copy first ----

	# no other database keeps the builders
	$primary->safe_psql('postgres', $_)
	  foreach (map { "DROP DATABASE $_" } 'd1', map { "by_$_" } keys %change), 'DROP TABLESPACE elsewhere', 'DROP TABLE t';

	# y_k shows that a builder has been there.
	make_original('d3');
	$primary->safe_psql('postgres', 'CREATE DATABASE d4 TEMPLATE d3');
	$primary->safe_psql('d4', <<SQL);
ALTER INDEX x_k SET (fillfactor = 80);
CREATE TABLE y (k int);
CREATE INDEX y_k ON y USING pmhash (k) WITH (wal = on);
SQL

	# A standby whose builders come to the copy while the table of the original is locked.
	sub standby_with_copy_first ($name)
	{
		my $session = $primary->background_psql('d3', on_error_stop => 1);
		my $node;

		$session->query_safe('BEGIN; LOCK TABLE x');
		$node = new_standby($primary, $name, "pmhash.rebuild = on\n");
		$node->poll_query_until('d4', q(SELECT bool_or(state LIKE 'building%') FROM pmhash.indexes)) or die 'nothing is built';
		$session->query_safe('COMMIT');
		$session->quit;
		$node->poll_query_until('d4', q(SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'y_k')) or die 'y_k is not built';
		return $node;
	}

	$standby = standby_with_copy_first('second');
	wait_valid($standby, 'd3', 'copy first');
	$primary->safe_psql('d3', 'DELETE FROM x WHERE k = 3; VACUUM x');
	caught_up($primary, $standby);
	finds($standby, 'd4', 100, 'copy first');
	$standby->promote;
	finds($standby, 'd4', 100, 'copy first, promoted');
	finds($standby, 'd3', 0, 'copy first, promoted');
	same_as_heap($standby, 'x', 'k', 'x_k', 'copy first, promoted: the original', 'd3');
	$standby->stop;
	$primary->stop;
}

# ======== unreadable stub ========

# The page of an index's main fork that names its file cannot be read: an error of the
# disk.  What does away with that page works nevertheless: REINDEX, DROP INDEX, DROP
# TABLE, TRUNCATE; and so does DDL on other indexes of the table.
{
	my $shim = preloadable('read_error');
	my $bad = "$PostgreSQL::Test::Utils::tmp_check/bad_inodes";

	my $node = new_server('unreadable', <<CONF);
pmhash.rebuild = off
max_prepared_transactions = 2
CONF
	start_with_extension($node, <<SQL);
CREATE TABLE a (k int, v int);
INSERT INTO a SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX a_k ON a USING pmhash (k);
CREATE INDEX a_v ON a USING pmhash (v);
CREATE TABLE b (k int);
CREATE INDEX b_k ON b USING pmhash (k);
CREATE TABLE c (k int);
INSERT INTO c SELECT i FROM generate_series(1, 100) i;
CREATE INDEX c_k ON c USING pmhash (k);
CREATE TABLE d (k int);
CREATE INDEX d_k ON d USING pmhash (k);
SQL
	my $pool = pool($node);
	my ($status, $stdout, $stderr);
	is(scalar(index_files($pool)), 5, 'five files');

	# It works, whatever was read before.
	sub works ($sql, $what)
	{
		my ($status, $stdout, $stderr) = $node->psql('postgres', $sql);

		is($status, 0, $what) or diag($stderr);
		return $stdout;
	}

	{
		local $ENV{LD_PRELOAD} = $shim;
		local $ENV{READ_ERRORS} = $bad;

		my @inodes = map { (stat($node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$_')")))[1] } qw(a_k b_k c_k d_k);
		$node->stop;
		append_to_file($bad, join('', map { "$_\n" } @inodes));
		$node->start;
		($status, $stdout, $stderr) = $node->psql('postgres', 'SELECT pmhash.check(\'a_k\')');
		like($stderr, qr/could not read blocks? 0(\.\.0)? in file .*: Input\/output error/, 'the page cannot be read');
		works('REINDEX INDEX a_v', 'REINDEX of the other index of the table');
		works('DROP INDEX a_v', 'DROP of it');
		works('REINDEX INDEX a_k', 'REINDEX');
		is(works('SET enable_seqscan = off; SELECT v FROM a WHERE k = 7', 'the index is used again'), '7', 'the row is found');
		works('SELECT pmhash.check(\'a_k\')', 'it is as the table says');
		works('DROP INDEX b_k', 'DROP INDEX');
		works('TRUNCATE c', 'TRUNCATE');
		works('INSERT INTO c VALUES (1)', 'a row after that');
		is(works('SET enable_seqscan = off; SELECT count(*) FROM c WHERE k = 1', 'found'), '1', 'once');
		works("BEGIN; DROP TABLE d; PREPARE TRANSACTION 'd'", 'DROP TABLE, prepared');
		works("COMMIT PREPARED 'd'", 'and committed');
	}

	# What had no known owner is removed by a worker.
	$node->stop;
	unlink($bad);
	$node->start;
	$node->poll_query_until('postgres', "SELECT count(*) = 2 FROM pg_ls_dir('$pool/' || (SELECT oid FROM pg_database WHERE datname = 'postgres'))")
	  or fail('the files of old are removed');
	is(scalar(index_files($pool)), 2, 'two files are left');
	is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT state, ',') FROM pmhash.indexes"), 'valid', 'all indexes are valid');

	# A main fork that is not there: workers go on, and what does away with it works.
	my $fork = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('c_k')");
	$node->stop;
	unlink($fork) or die "$fork: $!";
	my $from = -s $node->logfile;
	$node->start;
	sleep(5);    # naptimes
	unlike(slurp_file($node->logfile, $from), qr/ERROR/, 'no worker fails of it');
	works('DROP INDEX c_k', 'DROP INDEX without a main fork');
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_ls_dir('$pool/' || (SELECT oid FROM pg_database WHERE datname = 'postgres'))")
	  or fail('its file is removed');

	# A main fork that may not be opened: it is shown, and files are kept that may be its own.
	# (To do away with it would be a PANIC, as with any relation of the server.)
	$node->safe_psql('postgres', 'CREATE INDEX a_v ON a USING pmhash (v)');
	my $old = index_file($node, 'a_v');
	copy($old, "$old.copy") or die "$old: $!";
	$node->safe_psql('postgres', 'REINDEX INDEX a_v');
	$fork = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('a_k')");
	$node->stop;
	rename("$old.copy", $old) or die "$old: $!";
	chmod(0, $fork) or die "$fork: $!";
	$from = -s $node->logfile;
	$node->start;
	is($node->safe_psql('postgres', "SELECT string_agg(index || ' ' || state, ', ' ORDER BY index) FROM pmhash.indexes"), 'a_k unreadable, a_v valid',
		'a fork that may not be opened is shown');
	sleep(5);    # naptimes
	unlike(slurp_file($node->logfile, $from), qr/ERROR/, 'no worker fails of it');
	ok(-e $old, 'a file of no index that is known stays');
	chmod(0600, $fork) or die "$fork: $!";
	$node->poll_query_until('postgres', "SELECT pg_stat_file('$old', true) IS NULL")
	  or fail('that file is removed when all indexes are known');
	works('DROP INDEX a_k', 'DROP INDEX when it may be opened again');

	# What is replaced by a transaction need not be an index: no page is taken for empty
	# because it can't be read, in case the commit fails.
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE r (k int);
CREATE INDEX r_k ON r USING pmhash (k);
INSERT INTO r VALUES (1), (2);
CREATE TABLE skew (n int);
INSERT INTO skew VALUES (1), (2);
SQL
	$fork = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('r')");
	my $checked = $node->safe_psql('postgres', 'SHOW data_checksums') eq 'on';
	$node->stop;
	system_or_bail('pg_checksums', '--enable', '-D', $node->data_dir) if !$checked;
	open(my $file, '+<:raw', $fork) or die "$fork: $!";
	seek($file, 8000, 0);
	print $file "\xff";
	close($file) or die "$fork: $!";
	$node->start;
	my ($one, $other) = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
	$one->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(n) FROM skew; TRUNCATE r; INSERT INTO skew VALUES (3);');
	$other->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(n) FROM skew; INSERT INTO skew VALUES (4); COMMIT;');
	$one->query('COMMIT;');
	$_->quit foreach $one, $other;
	is($node->safe_psql('postgres', 'SELECT sum(n) FROM skew'), '7', 'the TRUNCATE has failed');
	($status, $stdout, $stderr) = $node->psql('postgres', 'SELECT count(*) FROM r');
	like($stderr, qr/ERROR: .*invalid page in block 0/, 'the page is as bad as before, and not empty');
	$node->stop;
}

# ======== unreadable on primary ========

# The primary finds a page that cannot be what named an index's file, and marks it.  It
# does not know which file that was; a standby, whose page is sound, does, and must not go
# on answering from its own: rows come without records from there on.
{
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan;';
	my $primary = new_primary('primary4', "pmhash.rebuild = off\npmhash.cleaner_naptime = 3600\n");
	my $standby = new_standby($primary, 'standby4', "pmhash.rebuild = on\npmhash.cleaner_naptime = 3600\n");
	my $reader;

	sub all_valid ($name)
	{
		foreach my $node ($primary, $standby)
		{
			wait_for_state($node, $_, qr/^valid$/, "$name: $_ on " . $node->name) foreach qw(t_k t_s);
			caught_up($primary, $standby);
		}
		return;
	}

	# Overwrite the page that names t_k's file, on these servers.
	sub overwrite ($bytes, @nodes)
	{
		my $page = $primary->safe_psql('postgres', q(SELECT pg_relation_filepath('t_k')));

		$_->stop foreach @nodes;
		patch_file($_->data_dir . "/$page", 0, substr($bytes x 8192, 0, 8192)) foreach @nodes;
		$_->start foreach @nodes;
		return;
	}

	# A session of the standby that has read the page.
	sub begin_reading
	{
		$reader = session_with($standby, "$by_index PREPARE p(int) AS SELECT count(*) FROM t WHERE k = \$1", on_error_stop => 1);
		$reader->query_safe('EXECUTE p(5)');
		return;
	}

	sub finds_what_is_there ($key, $name)
	{
		caught_up($primary, $standby);
		return is($reader->query_safe("EXECUTE p($key)"),
			$primary->safe_psql('postgres', "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE k = $key"),
			"$name: rows with key $key");
	}

	# ---- an insert marks it ----

	all_valid('begin');
	my $file = index_file($standby, 't_k');
	begin_reading();
	like($reader->query_safe('EXPLAIN (COSTS OFF) EXECUTE p(5)'), qr/t_k/, 'begin: the index is used');
	overwrite("\0", $primary);
	$primary->safe_psql('postgres', "INSERT INTO t VALUES (5, 'x', 0)");
	finds_what_is_there(5, 'zeroes, a row comes');
	ok(!-e $file, 'zeroes: the file of that index is given up');
	$reader->quit;
	rebuild_on($primary);
	$primary->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = 5");
	all_valid('zeroes, rebuilt');

	# ---- a rebuild does, and waits for a writer then ----

	begin_reading();
	like($reader->query_safe('EXPLAIN (COSTS OFF) EXECUTE p(5)'), qr/t_k/, 'garbage: the index is used');
	overwrite('x', $primary);
	my $writer = session_with($primary, 'BEGIN; LOCK TABLE t IN ROW EXCLUSIVE MODE', on_error_stop => 1);
	$primary->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = 5");
	wait_until($primary, "SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE phase = 'waiting for writers before build'", 'no rebuild');
	$primary->safe_psql('postgres', "INSERT INTO t VALUES (5, 'x', 0)");
	finds_what_is_there(5, 'garbage, a row comes');
	$_->quit foreach $reader, $writer;
	all_valid('garbage, rebuilt');
	compare_in_snapshot($standby, 'garbage, rebuilt: answers');

	# ---- WAL does not say which file that was: all files of the database go ----

	rebuild_off($primary);
	overwrite("\0", $primary, $standby);
	my $other = index_file($standby, 't_s');
	my $inode = (stat($other))[1];
	my $kept = $standby->basedir . '/kept';
	link($other, $kept) or die $!;    # so that no other gets its inode
	my $from = log_position($standby);
	replayed($primary, $standby, "INSERT INTO t VALUES (5, 'x', 0)");
	like(logged_since($standby, $from), qr/LOG: .*all index files of database \d+ are given up on this server/, 'both: log');
	wait_for_state($standby, 't_s', qr/^valid$/, 'both: t_s is built again');
	isnt((stat(index_file($standby, 't_s')))[1], $inode, 'both: it is another file');
	rebuild_on($primary);
	$primary->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = 5");
	all_valid('both, rebuilt');
	compare_in_snapshot($standby, 'both, rebuilt: answers');
	$standby->stop;
	$primary->stop;
}

done_testing();
