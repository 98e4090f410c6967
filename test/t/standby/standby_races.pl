# Processes of a standby that meet; and the space that it needs.
# long

use v5.36;
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# ======== standby races ========

# Races of a standby: an ERROR in replay just after a restart, before it has come as far as
# it was; readers that open a file while it is given up and built again, or find none.
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

	$_->stop foreach $standby, $primary;
}

# ======== turned off ========

# A builder of a standby ends when pmhash.rebuild is turned off, before the next index.
{
	my $primary = new_primary('primary2', undef, install_path => install_with_stop_points());
	my $standby = made_standby($primary, 'standby2', '', install_path => $primary->{_install_path});
	my $workers = q(FROM pg_stat_activity WHERE backend_type = 'pmhash worker');
	my $missing = q(SELECT count(*) FROM pmhash.indexes WHERE state <> 'valid');

	use_stop_points($standby);
	$standby->start;
	caught_up($primary, $standby);
	both_valid($standby, 'turned off, begin');
	$standby->stop;
	# (one worker, in all, builds indexes with expressions)
	$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE v (k int);
INSERT INTO v SELECT i % 100 FROM generate_series(1, 1000) i;
CREATE INDEX v_k1 ON v USING pmhash ((k + 1)) WITH (wal = on);
CREATE INDEX v_k2 ON v USING pmhash ((k + 2)) WITH (wal = on);
SQL
	hold('standby_begun');
	$standby->start;
	is_held('standby_begun', 'turned off');
	caught_up($primary, $standby);
	ok($standby->poll_query_until('postgres', $missing, '2'), 'two are missing');
	$standby->append_conf('postgresql.conf', "pmhash.rebuild = off\n");
	$standby->reload;
	ok($standby->poll_query_until('postgres', q(SELECT current_setting('pmhash.rebuild') = 'off')), 'turned off');
	release('standby_begun');
	ok($standby->poll_query_until('postgres', "SELECT count(*) = 0 $workers"), 'turned off: it ends');
	is($standby->safe_psql('postgres', $missing), '1', 'turned off: before the next index');

	# the launcher has nothing to do then, and does nothing
	my $launcher = $standby->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'));
	my $woken = sub { return (slurp_file("/proc/$launcher/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m)[0]; };
	my $before = $woken->();
	sleep 3;
	cmp_ok($woken->() - $before, '<', 100, 'turned off: the launcher sleeps');
	is($standby->safe_psql('postgres', "SELECT count(*) $workers"), '0', 'turned off: none is started');
	$standby->append_conf('postgresql.conf', "pmhash.rebuild = on\n");
	$standby->reload;
	ok($standby->poll_query_until('postgres', $missing, '0'), 'turned on: built');

	$_->stop foreach $standby, $primary;
}

# ======== standby space ========

# What is free in the files of a standby is found again after a restart, when the primary has
# vacuumed the table: a standby that is restarted again and again, and never promoted, does not
# need more space each time.
{
	my $rounds = load_time(6);
	my $lists = 200;
	my $primary = new_primary('primary3', '', install_path => install_with_stop_points());
	my $standby = made_standby($primary, 'standby3', '', install_path => $primary->{_install_path});
	use_stop_points($standby);
	$standby->start;

	# Keys with lists of 120 rows, each in a buffer of its own.
	sub fill ($round)
	{
		return "INSERT INTO v SELECT $round * 1000 + i % $lists FROM generate_series(1, $lists * 120) i; ";
	}

	# Half of them, spread over all that there are, go; or a few rows.
	sub thin_out
	{
		my ($round, $few) = @_;
		my $which = $few ? 'k = (SELECT min(k) FROM v)' : "k % 2 = $round % 2";

		return "DELETE FROM v WHERE $which; VACUUM (INDEX_CLEANUP ON) v; ";
	}

	sub figure ($node, $name)
	{
		return $node->safe_psql('postgres', "SELECT $name FROM pmhash.stats('v_k')");
	}

	$primary->safe_psql('postgres', 'CREATE TABLE v (k int) WITH (autovacuum_enabled = off); ' . fill(0)
		  . 'CREATE INDEX v_k ON v USING pmhash (k) WITH (wal = on);');
	caught_up($primary, $standby);
	wait_for_state($standby, 'v_k', qr/^valid$/, 'built');

	# ---- restarted again and again ----

	# Much is dead, and then little: the entries are logged, and no record has a sweep for them.
	my $most = 0;
	foreach my $round (1 .. $rounds)
	{
		$primary->safe_psql('postgres', $_) foreach split /(?<=;) /, thin_out($round);
		caught_up($primary, $standby);
		$standby->stop($round % 2 ? 'immediate' : 'fast');
		$standby->start;
		$primary->safe_psql('postgres', $_) foreach split /(?<=;) /, thin_out($round, 1) . fill($round);
		caught_up($primary, $standby);
		$most = figure($primary, 'value_bytes') if figure($primary, 'value_bytes') > $most;
		note("round $round: primary ", figure($primary, 'value_bytes'), ', standby ', figure($standby, 'value_bytes'));
	}
	cmp_ok(figure($primary, 'list_bytes'), '>', 200_000, 'there are lists');
	cmp_ok(figure($standby, 'value_bytes'), '<=', 1.25 * $most, 'the standby needs no more than the primary');
	same_as_heap($standby, 'v', 'k', 'v_k', 'restarted');

	# ---- beside readers; killed in the middle: the next one begins anew ----

	foreach my $few (0, 1)
	{
		my $name = $few ? 'a little vacuumed' : 'much vacuumed';

		$standby->restart;
		hold('redo_sweeping');
		$primary->safe_psql('postgres', $_) foreach split /(?<=;) /, thin_out(0, $few);
		is_held('redo_sweeping', $name);
		same_as_heap($standby, 'v', 'k', 'v_k', "$name, beside it");
		$standby->stop('immediate');
		release('redo_sweeping');
		$standby->start;
		$primary->safe_psql('postgres', fill(20 + $few));
		caught_up($primary, $standby);
		same_as_heap($standby, 'v', 'k', 'v_k', "$name, killed");
	}

	# ---- promoted before: VACUUM does it ----

	$standby->restart;
	my $position = log_position($standby);
	$standby->promote;
	$standby->safe_psql('postgres', $_) foreach split /(?<=;) /, thin_out(0) . fill(30) . thin_out(1) . fill(31);
	same_as_heap($standby, 'v', 'k', 'v_k', 'promoted');
	unlike(logged_since($standby, $position), qr/has been rebuilt|not trusted|is given up|has been built/, 'promoted: nothing is built');
	$_->stop foreach $standby, $primary;
}

done_testing();
