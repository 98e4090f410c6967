# Processes of a standby that meet; sweepers, and the space that they give back.
# long

use v5.36;
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# ======== standby races ========

# Races of a standby: an ERROR in replay just after a restart, before it has come as far as
# it was; readers that open a file while it is given up and built again, or find none; a
# sweeper that is still there when the standby has been promoted.
{
	my $built = qr/has been built on this standby/;
	my $primary = new_primary('primary', <<CONF, install_path => install_with_stop_points());
bgwriter_lru_maxpages = 0
pmhash.cleaner_naptime = 1000
CONF
	my $standby = made_standby($primary, 'standby', <<CONF, install_path => $primary->{_install_path});
max_standby_streaming_delay = 300s
hot_standby_feedback = on
wal_receiver_status_interval = 1
CONF
	my $points = use_stop_points($standby);
	$standby->start;

	sub replayed_and_valid ($name)
	{
		caught_up($primary, $standby);
		both_valid($standby, $name);
		return;
	}

	replayed_and_valid('begin');

	# ---- an ERROR in replay, before the records that the files had ----

	# Replay begins at the restartpoint; its first record raises an ERROR.  It goes on to the
	# name, and not as far as it was.  A file that was built there would have to have all that
	# comes up to there, and a restart would pass that over for it.
	replayed($primary, $standby, 'CHECKPOINT');
	$standby->safe_psql('postgres', 'CHECKPOINT');
	$primary->safe_psql('postgres', "SELECT pg_create_restore_point('here')");
	replayed($primary, $standby, "INSERT INTO t SELECT 20000 + i % 10, 'past the name', i FROM generate_series(1, 200) i");
	my $applied = $standby->safe_psql('postgres', 'SELECT applied_lsn FROM pmhash.standby()');
	my $position = log_position($standby);
	crash($standby);
	$standby->append_conf('postgresql.conf', "recovery_target_name = 'here'\nrecovery_target_action = pause\n");
	fail_at('redo_record');
	$standby->start;
	like(logged_since($standby, $position), qr/are not trusted: error of the test at redo_record/, 'ERROR: there was one');
	is($standby->safe_psql('postgres', "SELECT pg_last_wal_replay_lsn() < '$applied'"), 't',
		'ERROR: replay is not where it was');
	wait_while(sub { logged_since($standby, $position) !~ $built }, 5);
	unlike(logged_since($standby, $position), $built, 'ERROR: nothing is built before it is');
	crash($standby);
	start_with($standby, "recovery_target_name = ''\n");
	replayed_and_valid('ERROR, replayed');
	compare_in_snapshot($standby, 'ERROR, replayed: answers');
	no_findings($standby, 'ERROR, replayed: pmhash.check');

	# ---- a reader opens a file while that is given up and built again ----

	# Its snapshot sees rows that the later file lacks.  It has not mapped the file yet, and
	# other sessions have.  (The planner maps the files of all indexes of a table: this one has
	# no other.)
	$primary->safe_psql('postgres', 'CREATE TABLE r (k int4, n int4); CREATE INDEX r_k ON r USING pmhash (k)');

	sub give_up ($key)
	{
		replayed($primary, $standby, "DELETE FROM r WHERE k = $key");
		file_is_lost($standby, 'r_k', "SELECT count(n) FROM r WHERE k = $key");
		return;
	}

	sub insert_seen ($key, $name)
	{
		replayed($primary, $standby, "INSERT INTO r SELECT $key, i FROM generate_series(1, 100) i");
		return wait_for_state($standby, 'r_k', qr/^valid$/, "$name: begin");
	}

	sub reader_held_at ($point, $key, $name)
	{
		insert_seen($key, $name);
		my $session = start_and_hold($point, <<SQL, $name);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL pmhash.enable_pagescan = off;
SELECT count(n) FROM r WHERE k = $key;
COMMIT
SQL
		# until the primary knows of its snapshot, it may take away from catalogs what replay
		# would have to wait with
		sleep 3;
		return $session;
	}

	my $key = 40000;
	{
		my $name = 'held before it maps';
		my $session = reader_held_at('open_before_map', ++$key, $name);

		give_up($key);
		built_again($standby, 'r_k', $name);
		release('open_before_map');
		is(finish($session), '100', "$name: all rows of its snapshot");
	}

	# A plan that is kept has the executor map the file: one that is in the making by then.
	{
		my $name = 'held, and one is made';
		my $session = $standby->background_psql('postgres', on_error_stop => 0);

		insert_seen(++$key, $name);
		$session->query_safe("SET plan_cache_mode = force_generic_plan; $by{index}; PREPARE p AS SELECT k FROM r WHERE k = $key; EXECUTE p");
		replayed($primary, $standby, 'ALTER INDEX r_k SET (fillfactor = 80)');
		hold('open_before_map');
		$session->query_until(qr/begun/, "BEGIN ISOLATION LEVEL REPEATABLE READ;\n\\echo begun\nEXECUTE p;\n");
		is_held('open_before_map', $name);
		sleep 3;
		give_up($key);
		hold('standby_loaded');
		rebuild_on($standby);
		is_held('standby_loaded', $name);
		release('open_before_map');
		my $rows = $session->query('COMMIT');
		like($session->{stderr}, qr/ERROR:  .*(has no usable file|younger than the snapshot)/, "$name: an ERROR") or diag($rows);
		$session->quit;
		release('standby_loaded');
		built_again($standby, 'r_k', $name);
	}

	# ---- what is said of a lost file is said when there is another one ----

	# It has found no file, and is held up before it says so.
	{
		my $name = 'late, opening';
		my $session = reader_held_at('open_before_map', ++$key, $name);

		give_up($key);
		hold('standby_before_lost');
		release('open_before_map');
		is_held('standby_before_lost', $name);
		built_again($standby, 'r_k', $name);
		my @file = stat(index_file($standby, 'r_k'));
		release('standby_before_lost');
		is(finish($session), '100', "$name: all rows of its snapshot");
		is(standby_state($standby, 'r_k'), 'valid', "$name: the new file is not lost");
		is((stat(index_file($standby, 'r_k')))[1], $file[1], "$name: nor has it been built again");
	}

	# ---- there is no file when a scan begins, and one when it says so ----

	# Its plan is from before.  It is to be tried again: if the new file is for its snapshot it
	# might have had it, else it may lack rows.
	foreach my $gone (0, 1)
	{
		my $name = $gone ? 'built too late' : 'built just now';
		my $session = $standby->background_psql('postgres', on_error_stop => 0);
		my $rows = 'SELECT k FROM t WHERE k = ' . ++$key;

		$primary->safe_psql('postgres', "INSERT INTO t SELECT $key, 'seen', i FROM generate_series(1, 100) i");
		replayed_and_valid($name);
		like(plan_of($standby, $rows, "$by{index}; "), qr/Index Only Scan using t_k/, "$name: plan");
		$session->query_safe("$by{index}; BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR $rows");
		sleep 3;
		$primary->safe_psql('postgres', "DELETE FROM t WHERE k = $key") if $gone;
		caught_up($primary, $standby);
		file_is_lost($standby, 't_k', 'SELECT k FROM t WHERE k = 0');
		hold('walk_before_error');
		$session->query_until(qr/begun/, "\\echo begun\nFETCH c;\n");
		is_held('walk_before_error', $name);
		built_again($standby, 't_k', $name);
		release('walk_before_error');
		$session->query('SELECT 1');
		like($session->{stderr}, qr/ERROR:  pmhash index "t_k" is younger than the snapshot/, "$name: what it says");
		$session->{stderr} = '';
		is($session->query_safe("ROLLBACK; SELECT count(*) FROM ($rows) r"), $gone ? 0 : 100, "$name: the next try");
		$session->quit;
	}

	compare_in_snapshot($standby, 'after these: answers');

	# ---- a sweeper that is still there when the standby has been promoted ----

	# The files are the primary's then: a damaged one is not removed without a mark in its stub.
	$standby->stop;
	hold('standby_sweeping');
	$standby->start;
	is_held('standby_sweeping', 'sweeper');
	$primary->stop;
	$position = log_position($standby);
	$standby->promote;
	$standby->safe_psql('postgres', q(SELECT pmhash.size('t_k')));
	$standby->safe_psql('postgres', 'CREATE TABLE first_use (k integer); CREATE INDEX ON first_use USING pmhash (k)');
	my @files = map { $standby->safe_psql('postgres', "SELECT file FROM pmhash.files() WHERE index = '$_'::regclass") } qw(t_k t_s);
	truncate($_, 8192) || die "$_: $!" foreach @files;
	release('standby_sweeping');
	$standby->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'pmhash worker'") or die;
	unlike(logged_since($standby, $position), qr/is given up on this server/, 'promoted: the sweeper gives nothing up');
	is_deeply([ grep { !-e } @files ], [], 'promoted: nor does it remove anything');
	$standby->safe_psql('postgres', "INSERT INTO t VALUES (50000, 'x', 1)");
	$standby->poll_query_until('postgres', "SELECT bool_and(state = 'valid') FROM pmhash.indexes") or die;
	compare_in_snapshot($standby, 'promoted, rebuilt: answers');

	$standby->stop;
}

# ======== standby sweeps ========

# Builders of a standby look for free space in files after a restart, until they have been
# everywhere, and not while pmhash.rebuild is turned off.
{
	my @databases = map { "db$_" } 1 .. 4;
	my $primary = new_primary('primary2', '', install_path => install_with_stop_points());
	my $standby = made_standby($primary, 'standby2', "log_min_messages = debug1\n",
		install_path => $primary->{_install_path});
	my $workers = q(FROM pg_stat_activity WHERE backend_type = 'pmhash worker');
	my %file;

	use_stop_points($standby);
	$standby->start;

	# Keys with lists, in buffers that a restart has to find again.
	foreach my $database (@databases)
	{
		$primary->safe_psql('postgres', "CREATE DATABASE $database");
		install_extension($primary, $database, <<'SQL');
CREATE TABLE v (k int);
CREATE INDEX v_k ON v USING pmhash (k) WITH (wal = on);
INSERT INTO v SELECT i % 100 FROM generate_series(1, 12000) i;
SQL
		($file{$database}) = $primary->safe_psql($database,
			q(SELECT file FROM pmhash.files() WHERE index = 'v_k'::regclass)) =~ m{/(\w+)\.pmh$};
	}

	sub all_built ($name)
	{
		caught_up($primary, $standby);
		foreach my $database ('postgres', @databases)
		{
			ok($standby->poll_query_until($database, q(SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid')),
				"$name: all of $database are built");
		}
		return;
	}

	# A test: the files of these databases are swept.
	sub swept ($position, $name, @of)
	{
		ok($standby->wait_for_log(qr/found what is free in pmhash file $file{$_}/, $position), "$name: $_ is swept")
		  foreach @of;
		return;
	}

	all_built('begin');

	# ---- restarted ----

	my $position = log_position($standby);
	$standby->stop('immediate');
	$primary->safe_psql('db1', 'CREATE TABLE a (k int); INSERT INTO a SELECT i % 100 FROM generate_series(1, 1000) i; CREATE INDEX a_k ON a USING pmhash (k) WITH (wal = on)');
	$standby->start;
	all_built('restarted, with an index that is missing');
	swept($position, 'restarted', @databases);

	# ---- pmhash.rebuild is turned off meanwhile ----

	$position = log_position($standby);
	$standby->stop('immediate');
	hold('standby_sweeping');
	$standby->start;
	is_held('standby_sweeping', 'turned off');
	reload_with($standby, "pmhash.rebuild = off\n");
	ok($standby->poll_query_until('postgres', q(SELECT current_setting('pmhash.rebuild') = 'off')), 'turned off');
	release('standby_sweeping');
	ok($standby->poll_query_until('postgres', "SELECT count(*) = 0 $workers"), 'turned off: it ends');

	# the launcher has nothing to do then, and does nothing
	my $launcher = $standby->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'));
	my $woken = sub { return (slurp_file("/proc/$launcher/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m)[0]; };
	$primary->safe_psql('db4', 'CREATE INDEX v_k2 ON v USING pmhash ((k + 1)) WITH (wal = on)');
	caught_up($primary, $standby);
	my $before = $woken->();
	sleep 3;
	cmp_ok($woken->() - $before, '<', 100, 'turned off: the launcher sleeps');
	is($standby->safe_psql('postgres', "SELECT count(*) $workers"), '0', 'turned off: none is started');
	reload_with($standby, "pmhash.rebuild = on\n");
	swept($position, 'turned on', @databases);
	all_built('turned on');

	# ---- a database that takes no connections holds up no other ----

	replayed($primary, $standby, 'ALTER DATABASE db1 ALLOW_CONNECTIONS off');
	$position = log_position($standby);
	$standby->restart;
	swept($position, 'one without connections', @databases[1 .. 3]);
	$primary->safe_psql('postgres', 'ALTER DATABASE db1 ALLOW_CONNECTIONS on');
	swept($position, 'with connections again', 'db1');

	$_->stop foreach $standby, $primary;
}

# ======== standby space ========

# What is free in the files of a standby is found again after a restart, beside replay:
# a standby that is restarted again and again, and never promoted, needs no more space
# than the primary.
{
	my $rounds = load_time(2);
	my $lists = 200;
	my $primary = new_primary('primary3', '', install_path => install_with_stop_points());
	my $standby = made_standby($primary, 'standby3', "log_min_messages = debug1\n",
		install_path => $primary->{_install_path});
	use_stop_points($standby);
	$standby->start;

	# Keys with lists of 120 rows, each in a buffer of its own.
	sub fill ($round)
	{
		return "INSERT INTO v SELECT $round * 1000 + i % $lists FROM generate_series(1, $lists * 120) i; ";
	}

	# Half of them, spread over all that there are, go.
	sub thin_out ($round)
	{
		return "DELETE FROM v WHERE k % 2 = $round % 2; VACUUM (INDEX_CLEANUP ON) v; ";
	}

	sub figure ($node, $name)
	{
		return $node->safe_psql('postgres', "SELECT $name FROM pmhash.stats('v_k')");
	}

	my $sweeper = q(FROM pg_stat_activity WHERE backend_type = 'pmhash worker' AND query LIKE 'looking for free space%');

	# The files that have been swept since, when no sweeper is at work any more.
	sub swept_files ($position)
	{
		my %files;

		wait_until($standby, "SELECT count(*) = 0 $sweeper", 'a sweeper does not end');
		$files{$_} = 1 foreach logged_since($standby, $position) =~ /found what is free in pmhash file (\w+)/g;
		return keys %files;
	}

	# A test: the file has been swept since.
	sub swept_of_standby_space ($position, $name)
	{
		my ($id) = $primary->safe_psql('postgres', "SELECT file FROM pmhash.files() WHERE index = 'v_k'::regclass") =~ m{/(\w+)\.pmh$};

		return ok($standby->wait_for_log(qr/found what is free in pmhash file $id/, $position), "$name: swept");
	}

	$primary->safe_psql('postgres', 'CREATE TABLE v (k int) WITH (autovacuum_enabled = off); ' . fill(0)
		  . 'CREATE INDEX v_k ON v USING pmhash (k) WITH (wal = on);');
	caught_up($primary, $standby);
	wait_for_state($standby, 'v_k', qr/^valid$/, 'built');

	# ---- restarted again and again ----

	my $most = 0;
	foreach my $round (1 .. $rounds)
	{
		my $how = $round % 2 ? 'immediate' : 'fast';
		my $position;

		replayed($primary, $standby, $_) foreach split /(?<=;) /, thin_out($round);
		$standby->stop($how);
		$position = log_position($standby);
		$standby->start;
		swept_of_standby_space($position, "round $round, $how");
		replayed($primary, $standby, fill($round));
		$most = figure($primary, 'value_bytes') if figure($primary, 'value_bytes') > $most;
		note("round $round: primary ", figure($primary, 'value_bytes'), ', standby ', figure($standby, 'value_bytes'));
	}
	cmp_ok(figure($primary, 'list_bytes'), '>', 200_000, 'there are lists');
	cmp_ok(figure($standby, 'value_bytes'), '<=', 1.25 * $most, 'the standby needs no more than the primary');
	same_as_heap($standby, 'v', 'k', 'v_k', 'restarted');

	# ---- beside replay that takes buffers and gives them back ----

	$standby->stop('immediate');
	hold('standby_sweeping');
	my $position = log_position($standby);
	$standby->start;
	is_held('standby_sweeping', 'beside replay');
	$primary->safe_psql('postgres', $_)
	  foreach split /(?<=;) /, fill(20) . thin_out(0) . fill(21) . thin_out(1) . fill(22);
	caught_up($primary, $standby);
	same_as_heap($standby, 'v', 'k', 'v_k', 'beside replay');
	release('standby_sweeping');
	swept_of_standby_space($position, 'beside replay');
	my @files = swept_files($position);
	replayed($primary, $standby, fill(23));
	same_as_heap($standby, 'v', 'k', 'v_k', 'beside replay, afterwards');

	# ---- the sweeper is ended in the middle: the next one begins anew, by itself ----

	$standby->stop('immediate');
	hold('standby_sweeping');
	$standby->start;
	is_held('standby_sweeping', 'ended');
	$position = log_position($standby);
	my $ended = $standby->safe_psql('postgres', "SELECT pid $sweeper");
	$standby->safe_psql('postgres', "SELECT pg_terminate_backend($ended)");
	release('standby_sweeping');
	wait_until($standby, "SELECT count(*) = 0 $sweeper AND pid = $ended", 'the sweeper does not end');
	unlike(logged_since($standby, $position), qr/found what is free in pmhash file.*terminating background worker/s, 'ended: in the middle');
	# whichever it was in the middle of
	ok($standby->wait_for_log(qr/found what is free in pmhash file $_/, $position), "ended: $_ is swept") foreach @files;
	swept_of_standby_space($position, 'ended');

	# ---- promoted in the middle: VACUUM does it ----

	$standby->stop('immediate');
	hold('standby_sweeping');
	$position = log_position($standby);
	$standby->start;
	is_held('standby_sweeping', 'promoted');
	$standby->promote;
	$standby->safe_psql('postgres', $_) foreach split /(?<=;) /, thin_out(0) . fill(30);
	release('standby_sweeping');
	$standby->safe_psql('postgres', $_) foreach split /(?<=;) /, thin_out(1) . fill(31);
	same_as_heap($standby, 'v', 'k', 'v_k', 'promoted');
	unlike(logged_since($standby, $position), qr/has been rebuilt|not trusted|is given up|has been built/, 'promoted: nothing is built');
	$_->stop foreach $standby, $primary;
}

done_testing();
