# Snapshots on standbys, of slots, and after a promotion; historic ones.

use v5.36;

use PmhashInvalid;
use PmhashStandby;
use PmhashTest;

# ======== promoted snapshot ========

# A snapshot that was taken on a standby, and lives on after its promotion, is older than
# what the standby's index file serves: statements that have it do without the index, also
# those whose plan was made for others.
{
	# What a session answers, or its error.
	sub answer ($session, $sql)
	{
		$session->{stderr} = '';
		return $session->query($sql) . $session->{stderr};
	}

	# A plan without the index, which is made when that is not to be used; later others have it.
	sub plan_without ($session, $name, $query, $rows)
	{
		is(answer($session, "SET plan_cache_mode = force_generic_plan; PREPARE $name AS $query; EXECUTE $name"), $rows, "$name: the rows");
		unlike($session->query_safe("EXPLAIN (COSTS OFF) EXECUTE $name"), qr/p_k/, "$name: without the index");
		return;
	}

	sub plan_has_index ($session, $name)
	{
		return like($session->query_safe("EXPLAIN EXECUTE $name"), qr/Index Only Scan using p_k/, "$name: the plan is not kept");
	}

	my $primary = new_primary('primary');
	my $standby = new_standby($primary, 'standby', "max_standby_streaming_delay = -1\n");
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
	my $query = 'SELECT count(*) FROM p WHERE k = 7';

	$primary->safe_psql('postgres', <<SQL);
CREATE TABLE p (k int4) WITH (autovacuum_enabled = off);
INSERT INTO p SELECT i FROM generate_series(1, 5000) i;
INSERT INTO p SELECT 7 FROM generate_series(1, 99) i;
SQL
	caught_up($primary, $standby);

	# Whoever builds the index now leaves out what is dead, so it is not for older snapshots.
	my $keeper = $standby->background_psql('postgres', on_error_stop => 0);
	my $one = $standby->background_psql('postgres', on_error_stop => 0);
	is($one->query_safe("$by_index; BEGIN ISOLATION LEVEL REPEATABLE READ; $query"), 100, 'another one has an old snapshot');
	my $snapshot = $keeper->query_safe("$by_index; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()");
	is($keeper->query_safe($query), 100, 'the rows of an old snapshot');
	$primary->safe_psql('postgres', 'DELETE FROM p WHERE k = 7');
	replayed($primary, $standby, 'CREATE INDEX p_k ON p USING pmhash (k) WITH (wal = on)');
	wait_for_state($standby, 'p_k', qr/^valid$/, 'built on the standby');
	is($keeper->query_safe($query), 100, 'the same on the standby');
	plan_without($one, 'on_standby', $query, 100);
	$one->query_safe('COMMIT');
	plan_has_index($one, 'on_standby');
	$one->quit;

	# A plan that was made for others says why it does not go by the index, and is made anew.
	# trouble: `pmhash index "..." is younger than the snapshot`
	my $younger = qr/ERROR:  pmhash index "p_k" is younger than the snapshot\nDETAIL:  It may lack rows that the snapshot sees, or has just been rebuilt, and the statement has been planned with it\.\nHINT:  Try again: the statement is planned anew\.\s*$/;
	my $other = $standby->background_psql('postgres', on_error_stop => 0);
	my $exported = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'";
	$other->query_safe("$by_index; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query; EXECUTE q");
	like(answer($other, "$exported; EXECUTE q"), $younger, 'an older plan on the standby');
	is(answer($other, "ROLLBACK; $exported; EXECUTE q"), '100', 'the same, tried again');
	$other->quit;

	# That is so in the same transaction, too, which has all locks from before; also if it is a
	# parallel worker that meets it.
	my $parallel = $primary->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
	foreach my $mode ('off', 'on')
	{
		$other = session_with($standby, "$by_index; SET $parallel = $mode; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query; EXECUTE q", on_error_stop => 0);
		$other->query_safe("$exported; SELECT FROM p LIMIT 0; SAVEPOINT s");
		like(answer($other, 'EXECUTE q'), qr/^psql:\S+ ERROR:  pmhash index "p_k" is younger than the snapshot/, "$parallel = $mode: an older plan, in a subtransaction");
		is(answer($other, 'ROLLBACK TO s; EXECUTE q'), '100', "$parallel = $mode: the same, tried again in this transaction");
		$other->quit;
	}

	# It is no finding either that the index lacks these rows.
	# trouble: `index "..." cannot be checked using the transaction's snapshot`
	my $unfit = qr/ERROR:  index "p_k" cannot be checked using the transaction's snapshot/;
	like(answer($keeper, "SAVEPOINT s; SELECT pmhash.check('p_k')"), $unfit, 'not checked with that snapshot');
	is(answer($keeper, "ROLLBACK TO s; SELECT pmhash.check('p_k', false)"), '', 'but the file alone');

	$standby->promote;
	is(answer($keeper, "SAVEPOINT s; $query"), '100', 'the same after the promotion');
	$keeper->query('ROLLBACK TO s');
	like(answer($keeper, "SELECT pmhash.check('p_k')"), $unfit, 'not checked after the promotion');
	is(answer($keeper, "ROLLBACK TO s; SELECT pmhash.check('p_k', false)"), '', 'but the file alone');
	is(standby_state($standby, 'p_k'), 'valid', 'and it is left alone');
	is($standby->safe_psql('postgres', q(SELECT pmhash.check('p_k'))), '', 'with another snapshot: no findings');

	my $import = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'";
	my $session = session_with($standby, "$by_index; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query", on_error_stop => 0);
	is($session->query_safe('EXECUTE q'), 0, 'a snapshot of its own');
	like($session->query_safe('EXPLAIN EXECUTE q'), qr/Index Only Scan using p_k/, 'by the index');

	# What was planned before is an error that says to try again; then that helps.
	$session->query("$import; EXECUTE q");
	like($session->{stderr}, $younger, 'an old snapshot, an older plan: not by the index');
	$session->query('ROLLBACK');
	is(answer($session, "$import; EXECUTE q"), '100', 'an old snapshot, tried again');
	$session->query('ROLLBACK');
	is(answer($session, 'EXECUTE q'), '0', 'a snapshot of its own, by that plan');

	# What is planned with the snapshot has another plan at once.
	is(answer($session, "$import; $query"), '100', 'an old snapshot, planned with it');
	$session->query('COMMIT');
	like($session->query_safe("EXPLAIN $query"), qr/Index Only Scan using p_k/, 'others go by the index');
	plan_without($keeper, 'after_promotion', $query, 100);
	$keeper->query_safe('COMMIT');
	plan_has_index($keeper, 'after_promotion');
	$session->quit;
	$keeper->quit;
	$standby->stop;

	# The same of a file that was built before a restart, after which replay begins before that.
	my $again = new_standby($primary, 'again', "max_standby_streaming_delay = -1\nbgwriter_lru_maxpages = 0\n");
	wait_for_state($again, 'p_k', qr/^valid$/, 'restarted: built');
	replayed($primary, $again, 'INSERT INTO p SELECT 7 FROM generate_series(1, 50) i; CHECKPOINT');
	$again->safe_psql('postgres', 'CHECKPOINT');
	replayed($primary, $again, 'DELETE FROM p WHERE k = 7');
	unlink(index_file($again, 'p_k')) or die;
	is($again->safe_psql('postgres', "$by_index; $query"), 0, 'restarted: the file is missed');
	wait_for_state($again, 'p_k', qr/^valid$/, 'restarted: built once more');
	crash($again);
	start_with($again, "recovery_min_apply_delay = '1h'\n");
	$keeper = $again->background_psql('postgres', on_error_stop => 0);
	is($keeper->query_safe("$by_index; BEGIN ISOLATION LEVEL REPEATABLE READ; $query"), 50, 'restarted: the rows of an old snapshot');
	$one = session_with($again, $by_index, on_error_stop => 0);
	plan_without($one, 'before_replay', $query, 50);
	reload_with($again, "recovery_min_apply_delay = 0\n");
	caught_up($primary, $again);
	wait_for_state($again, 'p_k', qr/^valid$/, 'restarted: the file is in use again');
	is($keeper->query_safe($query), 50, 'restarted: the same rows');
	plan_has_index($one, 'before_replay');
	$one->quit;
	$again->promote;
	is($keeper->query_safe($query), 50, 'restarted: the same rows after the promotion');
	is($again->safe_psql('postgres', "$by_index; $query"), 0, 'restarted: none for others');
	like($again->safe_psql('postgres', "$by_index; EXPLAIN $query"), qr/Index Only Scan using p_k/, 'restarted: they go by the index');
	$keeper->quit;
	$again->stop;
	$primary->stop;
}

# ======== slot snapshots ========

# A logical slot that is made on a standby hands out a snapshot (from 16 on).  It is as of a
# place in WAL that may be long past by then, no transaction has it before, and it does not
# say that it is of a standby: a session that imports it sees all its rows nevertheless, before the
# promotion and after it, also by plans that were made for others.
SKIP:
{
	my $primary = new_primary('primary2', "wal_level = logical\n");

	skip 'standbys have logical slots from 16 on', 1 if $primary->pg_version < 16;

	my $standby = new_standby($primary, 'standby2', "max_standby_streaming_delay = -1\n");
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
	my $by_table = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off';
	my $query = 'SELECT count(v) FROM %s WHERE k = 7';
	my @walsenders;

	# Begin to make a slot on the standby: it has a place in WAL, and waits for what comes.  With
	# an option, and what the process is to do before.
	sub begin_slot ($option = '', @before)
	{
		my $walsender = $standby->background_psql('postgres', replication => 'database', on_error_stop => 0);
		my $slot = 's' . @walsenders;

		push @walsenders, $walsender;
		$walsender->query_safe($_) foreach @before;
		$walsender->query_until(qr/begun/, "\\echo begun\nCREATE_REPLICATION_SLOT $slot TEMPORARY LOGICAL pgoutput $option;\n");
		wait_until($standby, "SELECT restart_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name = '$slot'", 'no slot');
		return $walsender;
	}

	# The snapshot that comes with it, which lasts as long as the process says nothing else.
	sub slot_snapshot ($walsender)
	{
		my ($name) = $walsender->query_until(qr/\|[^|]+\|pgoutput/, '') =~ /\|([^|]+)\|pgoutput/;

		return $name;
	}

	# A test: a session that imports the snapshot sees that many rows of the table, by index and without it.
	sub sees ($table, $snapshot, $rows, $name)
	{
		my $import = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'; ";
		my $count = sprintf($query, $table);

		is($standby->safe_psql('postgres', "$_; $import; $count"), $rows, "$name: $_") foreach $by_table, $by_index;
		return;
	}

	$primary->safe_psql('postgres', <<SQL);
CREATE TABLE p (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO p SELECT i, i FROM generate_series(8, 100) i;
INSERT INTO p SELECT 7, i FROM generate_series(1, 30) i;
CREATE TABLE q (k int4, v int4) WITH (autovacuum_enabled = off);
CREATE INDEX q_k ON q USING pmhash (k) WITH (wal = on);
INSERT INTO q SELECT 7, i FROM generate_series(1, 30) i;
SQL
	caught_up($primary, $standby);
	wait_for_state($standby, 'q_k', qr/^valid$/, 'q_k is built on the standby');

	# A process that makes a slot is stopped.  When it hands its snapshot out, entries of rows
	# that this sees have been removed, and there was no process to wait for.
	my $writer = $primary->background_psql('postgres', on_error_stop => 0);
	$writer->query_safe('BEGIN; INSERT INTO q VALUES (1, 1)');    # the slot is not made before it is over
	caught_up($primary, $standby);
	my $late = begin_slot();

	# Another one is to have the snapshot itself, and a parallel worker for a plan of before.
	my $user = begin_slot('USE_SNAPSHOT', "$by_index; SET debug_parallel_query = on; SET plan_cache_mode = force_generic_plan",
		'PREPARE in_worker AS ' . sprintf($query, 'q'), 'EXECUTE in_worker', 'BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ');
	my @processes = split(/\n/, $standby->safe_psql('postgres', q{SELECT active_pid FROM pg_replication_slots}));

	kill('STOP', @processes) == 2 or die $!;
	$writer->query_safe('COMMIT');
	$writer->quit;
	$primary->safe_psql('postgres', 'SELECT pg_log_standby_snapshot()');
	gone_with_entries($primary);
	caught_up($primary, $standby);
	is($standby->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('q_k'))), 1, 'the entries have gone');
	kill('CONT', @processes) == 2 or die $!;
	my $removed_since = slot_snapshot($late);
	sees('q', $removed_since, 30, 'removed since, on the standby');

	# A test: the process that has made a slot sees all rows, in its worker too.
	sub user_sees ($name)
	{
		is($user->query_safe('EXECUTE in_worker'), 30, "$name, in a parallel worker");
		is($user->query_safe(sprintf($query, 'q')), 30, "$name, by a new plan");
		return;
	}

	like($user->query_safe('SELECT 1'), qr/pgoutput\n1$/, 'the slot is made');
	user_sees('a process that has made a slot');

	# A build of an index leaves out rows that were deleted before, and that a snapshot sees.
	my $slot = begin_slot();
	$primary->safe_psql('postgres', 'SELECT pg_log_standby_snapshot()');
	my $built_since = slot_snapshot($slot);
	$primary->safe_psql('postgres', 'DELETE FROM p WHERE k = 7');
	replayed($primary, $standby, 'CREATE INDEX p_k ON p USING pmhash (k) WITH (wal = on)');
	wait_for_state($standby, 'p_k', qr/^valid$/, 'p_k is built on the standby');
	sees('p', $built_since, 30, 'built since, on the standby');

	$standby->promote;
	sees('p', $built_since, 30, 'built since, promoted');
	sees('q', $removed_since, 30, 'removed since, promoted');
	user_sees('the same, promoted');

	# A plan that was made for others goes through the table.
	my $session = $standby->background_psql('postgres', on_error_stop => 0);
	my $import = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$built_since'";
	$session->query_safe("$by_index; SET plan_cache_mode = force_generic_plan; PREPARE q AS " . sprintf($query, 'p'));
	is($session->query_safe('EXECUTE q'), 0, 'a snapshot of its own');
	like($session->query_safe('EXPLAIN EXECUTE q'), qr/Index Scan using p_k/, 'by the index');
	is($session->query_safe("$import; EXECUTE q"), 30, 'an older snapshot, by that plan');
	$session->query_safe('COMMIT');
	like($session->query_safe('EXPLAIN ' . sprintf($query, 'p')), qr/Index Scan using p_k/, 'others go by the index');
	$session->quit;
	$_->quit foreach @walsenders;
	$standby->stop;
	$primary->stop;
}

# ======== standby rows taken ========

# A standby has files of so many logged indexes (4,096; fewer in the library with stop
# points), of all databases together.  An index that finds no place says so, as does the log,
# once; it does without, and gets one when there is.
{
	my $places = $PmhashTest::places_of_files;
	my @library = (install_path => install_with_stop_points());
	my $primary = new_primary('primary3', '', @library);

	my $standby = new_standby($primary, 'standby3', "pmhash.cleaner_naptime = 5\n", @library);
	$primary->safe_psql('postgres', 'CREATE TABLE many (k int) PARTITION BY LIST (k); CREATE INDEX ON many USING pmhash (k) WITH (wal = on)');
	$primary->safe_psql('postgres', join(";\n", map { "CREATE TABLE many_$_ PARTITION OF many FOR VALUES IN ($_); INSERT INTO many_$_ VALUES ($_)" } 1 .. $places));
	ok($standby->wait_for_log(qr/no more than $places logged indexes can have files/), 'all places are taken');
	$primary->safe_psql('postgres', 'CREATE DATABASE db1');
	install_extension($primary, 'db1');
	$primary->safe_psql('db1', "CREATE TABLE x$_ (k int); INSERT INTO x$_ VALUES (1); CREATE INDEX x${_}_k ON x$_ USING pmhash (k) WITH (wal = on)") foreach 1 .. 2;
	caught_up($primary, $standby);
	like($standby->safe_psql('db1', "SELECT state FROM pmhash.indexes WHERE index = 'x${_}_k'"),
		qr/^no place: this standby has files of $places logged indexes/, "no place for x${_}_k") foreach 1 .. 2;
	my @said = logged_since($standby, 0) =~ /(no more than $places logged indexes can have files)/g;
	is(scalar(@said), 1, 'the log says so, once');
	is($standby->safe_psql('db1', 'SET enable_seqscan = off; SELECT count(*) FROM x1 WHERE k = 1'), '1', 'queries do without');

	replayed($primary, $standby, join(";\n", map { "DROP TABLE many_$_" } 1 .. $places));
	ok($standby->poll_query_until('db1', "SELECT count(*) = 2 FROM pmhash.indexes WHERE state = 'valid'"), 'there is a place again')
	  || diag($standby->safe_psql('db1', 'SELECT index, state FROM pmhash.indexes'));
	$_->stop foreach $standby, $primary;
}

# ======== decoding ========

# Logical decoding reads catalogs as of a place in WAL that may be long past, and a table may be
# a catalog to it (user_catalog_table).  An output plugin that reads one by its index
# (test/lib/reads_catalog) sees what it sees without: no rebuild has waited for it.  Nor has the
# build of a standby's file, from 16 on, where standbys decode.
{
	my $node = new_primary('decoding', "wal_level = logical\nmax_replication_slots = 4\n");
	my $directory = $node->basedir;

	server_library("$directory/reads_catalog", 'reads_catalog/reads_catalog.c');
	$node->append_conf('postgresql.conf', "dynamic_library_path = '$directory:\$libdir'\n");

	# From 15.20 on plugins are named in the configuration.
	if ($node->safe_psql('postgres', q(SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries')) > 0)
	{
		$node->append_conf('postgresql.conf', "output_plugin_libraries = 'reads_catalog'\n");
	}
	$node->reload;

	sub sql ($sql)
	{
		return $node->safe_psql('postgres', $sql);
	}

	# A test: at that place (a row of places) the plugin counts so many rows, by the index and
	# without it.
	sub counts ($rows, $name, $where = undef)
	{
		is(($where // $node)->safe_psql('postgres', "SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL) LIMIT 1"),
			"by index $rows, by table $rows", $name);
		return;
	}

	sub ten_rows
	{
		return sql('INSERT INTO settings SELECT 5, i FROM generate_series(1, 10) i');
	}

	# The tables, with some rows.
	sub begin ($wal)
	{
		return sql(<<SQL);
CREATE TABLE places (i int);
CREATE TABLE settings (k int4, v int) WITH (user_catalog_table = true, autovacuum_enabled = off);
INSERT INTO settings SELECT i, i FROM generate_series(100, 200) i;
CREATE INDEX settings_k ON settings USING pmhash (k) WITH (wal = $wal);
SQL
	}

	foreach my $wal ('on', 'off')
	{
		begin($wal);
		sql(q{SELECT pg_create_logical_replication_slot('s', 'reads_catalog')});
		ten_rows();
		sql('INSERT INTO places VALUES (1)');
		counts(10, "wal = $wal: rows that are there");
		my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; ' . 'SELECT count(v) FROM settings WHERE k = 5; ' x 3;
		sql($_) foreach 'DELETE FROM settings WHERE k = 5', $by_index, 'VACUUM settings', $by_index;
		counts(10, "wal = $wal: rows that are dead to all others");

		# A rebuild leaves them out.
		unlink(index_file($node, 'settings_k')) or die;
		sql('SELECT count(*) FROM settings WHERE k = 5');
		wait_for_state($node, 'settings_k', qr/^valid$/, "wal = $wal: rebuilt");
		counts(10, "wal = $wal: the index has been rebuilt since");
		sql('INSERT INTO settings VALUES (5, 11)');
		sql('INSERT INTO places VALUES (2)');
		is(sql("SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL)"),
			"by index 10, by table 10\nby index 1, by table 1", "wal = $wal: a later place, too");
		sql('REINDEX INDEX settings_k');
		counts(10, "wal = $wal: the index has been made anew since");

		# A walk does not know of which rows a partial index is.
		sql("DROP INDEX settings_k; CREATE INDEX settings_k ON settings USING pmhash (k) WITH (wal = $wal) WHERE v > 5");
		sql("SELECT pg_drop_replication_slot('s')");
		sql(q{SELECT pg_create_logical_replication_slot('s', 'reads_catalog')});
		sql('INSERT INTO places VALUES (3)');
		fails_like($node, "SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL)",
			qr/ERROR:  partial index "settings_k" cannot be used by logical decoding/, "wal = $wal: a partial index");
		sql("SELECT pg_drop_replication_slot('s'); DROP TABLE places, settings");
	}

	if ($node->pg_version >= 16)
	{
		my $standby = new_standby($node, 'standby4');
		my $maker = $standby->background_psql('postgres');

		begin('on');
		caught_up($node, $standby);
		$maker->query_until(qr/begun/, "\\echo begun\nSELECT pg_create_logical_replication_slot('s', 'reads_catalog');\n");
		$standby->poll_query_until('postgres', q(SELECT restart_lsn IS NOT NULL FROM pg_replication_slots)) or die 'no slot';
		sql('SELECT pg_log_standby_snapshot()');
		$maker->quit;
		ten_rows();
		sql('INSERT INTO places VALUES (1)');
		sql('DELETE FROM settings WHERE k = 5');
		caught_up($node, $standby);
		wait_for_state($standby, 'settings_k', qr/^valid$/, 'built on the standby');
		unlink(index_file($standby, 'settings_k')) or die;
		$standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM settings WHERE k = 5');
		wait_for_state($standby, 'settings_k', qr/^valid$/, '... and once more');
		counts(10, 'on the standby', $standby);
		$standby->promote;
		counts(10, '... promoted', $standby);
		$standby->restart;
		counts(10, '... and restarted', $standby);
		$standby->stop;
	}
	$node->stop;
}

done_testing();
