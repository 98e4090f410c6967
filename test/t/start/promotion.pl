# Promotions: without the library, without a pool, killed, of a copy on persistent memory.

use v5.36;
use PmhashFaults;
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# ======== new primary ========

# A standby takes over: what other standbys have built before, snapshots that were
# taken before, and a server that has come of pg_rewind.
{
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';

	# ---- standbys that have built at different times ----

	# The early one has entries of rows that are dead when the late one builds.  The late
	# one is promoted; its VACUUM finds no entries of these rows and logs none.
	my $first = new_primary('first', "wal_log_hints = on\n");
	my ($early, $late) = early_and_late($first);
	caught_up($first, $late);
	$first->stop('fast');
	$late->promote;
	follow($early, $late);
	# until the new primary vacuums, also past a restart, it goes on with what it has
	my $switched = log_position($early);
	caught_up($late, $early);
	both_valid($early, 'early, at once');
	nothing_under_old_keys($early, 'early, at once', 5, 6, 7);
	$early->restart;
	caught_up($late, $early);
	both_valid($early, 'early, restarted');
	nothing_under_old_keys($early, 'early, restarted', 5, 6, 7);
	unlike(logged_since($early, $switched), qr/has been built|given up|not trusted/, 'early: nothing is built');
	my $reuse = <<'SQL';
VACUUM t;
INSERT INTO t SELECT 9000, 'new', i FROM generate_series(1, 20) i;
SQL
	$late->safe_psql('postgres', $reuse);
	nothing_under_old_keys($late, 'the new primary', 5, 6, 7);
	caught_up($late, $early);
	both_valid($early, 'early, of the new primary');
	nothing_under_old_keys($early, 'early, of the new primary', 5, 6, 7);
	like(logged_since($early, $switched), qr/given up on this server: it was made under another primary.*has been built/s,
		'early: built when the new primary has vacuumed');

	# event: another standby is promoted, also in a clean switchover
	like(logged_since($early, 0), qr/are of timeline 1, and WAL is of timeline 2 now/, 'it says so');

	# ---- the old primary, which had them too, after a clean switchover ----

	$first->enable_streaming($late);
	$first->start;
	caught_up($late, $first);
	both_valid($first, 'the old primary');
	nothing_under_old_keys($first, 'the old primary', 5, 6, 7);

	# ---- a snapshot that is older than a file, kept through a promotion ----

	# (as many rows that the planner would take page scans and joins, which have no table to
	# go to where an index scan has it)
	replayed($late, $first, "INSERT INTO t SELECT 8, 'many', i FROM generate_series(1, 300) i; ANALYZE t");
	my $session = session_with($first, 'BEGIN ISOLATION LEVEL REPEATABLE READ', on_error_stop => 1);
	my $seen = $session->query_safe('SELECT count(n) FROM t WHERE k = 8');
	cmp_ok($seen, '>', 0, 'snapshot: there are rows');
	replayed($late, $first, 'DELETE FROM t WHERE k = 8');
	file_is_lost($first, 't_k', 'SELECT count(n) FROM t WHERE k = 8');
	built_again($first, 't_k', 'snapshot');
	both_valid($first, 'snapshot: built again after a deletion');
	$late->stop('fast');
	$first->promote;
	$session->query_safe("$by_index; SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1000");
	is($session->query_safe('SELECT count(n) FROM t WHERE k = 8'), $seen,
		'snapshot: it sees after the promotion what it has seen before');
	is($session->query_safe('SELECT count(n) FROM (VALUES (8), (NULL)) v (k) JOIN t USING (k)'), $seen, 'snapshot: and by a join');
	$session->query_safe('COMMIT');
	is($session->query_safe('SELECT count(n) FROM t WHERE k = 8'), '0', 'snapshot: the next one does not');
	like($session->query_safe('EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k = 8'), qr/t_k/, 'snapshot: by the index');
	$session->quit;

	# ---- after pg_rewind, killed before the first restartpoint ----

	# The backup label takes pg_control back to before the checkpoint that it has at first.
	$late->start;
	$late->safe_psql('postgres', 'INSERT INTO t VALUES (1, \'lost\', 1)');
	$first->safe_psql('postgres', "INSERT INTO t SELECT i, 'more', i FROM generate_series(1, 100) i; CHECKPOINT");
	crash($late);
	rewind($late, $first, 'late');
	$late->enable_streaming($first);
	$late->start;
	caught_up($first, $late);
	both_valid($late, 'rewound');
	my $position = log_position($late);
	crash_and_start($late);
	caught_up($first, $late);
	both_right($late, 'rewound and killed');
	unlike(logged_since($late, $position), qr/not trusted|has been built/, 'rewound and killed: with its files');
	$late->promote;
	compare_in_snapshot($late, 'rewound and promoted: answers');
	unlike(logged_since($late, $position), qr/rebuil/, 'rewound and promoted: nothing is rebuilt');

	$_->stop foreach $early, $late, $first;
}

# ======== promoted without library ========

# A primary is shut down, started and killed before it has used pmhash.  Then it becomes the
# standby of another server, without the library, is promoted, and killed before pg_control
# has a checkpoint of that life.  What it has there is the checkpoint of before, and the
# tables have rows that no index file of it has.
{
	my $old = new_primary('old', "checkpoint_timeout = 1h\n");
	my $new = new_standby($old, 'new');

	caught_up($old, $new);
	$old->stop;
	die_in_start($old);
	$new->promote;
	$new->safe_psql('postgres', q(INSERT INTO t SELECT i % 3000, 'new', i FROM generate_series(1, 9000) i));

	$old->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	$old->enable_streaming($new);
	$old->start;
	caught_up($new, $old);
	# (From 19 on a promotion waits for all processes; its checkpoint takes 0.1 s a page.)
	kill('STOP', $old->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer')))
	  if $old->pg_version->major < 19;
	$old->promote;
	crash($old);

	my ($control) = run_command([ 'pg_controldata', $old->data_dir ]);
	like($control, qr/Latest checkpoint's TimeLineID:\s+1\n/, 'no checkpoint of the promoted life');
	$old->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");

	# event: started and killed, then a standby without the library that is promoted and killed
	like(log_of_start($old), qr/not trusted: the server has run without the pool since it was shut down/, 'not trusted');
	wait_for_state($old, 't_k', qr/^valid$/, 'rebuilt');
	same_answers($old, 't', 'k', 't_k', 'rows of the other server');
	$_->stop foreach $old, $new;
}

# ======== promoted without pool ========

# A standby is promoted while its pool is away: the file system is not mounted any more, or
# the directory is gone.  Rows can be written, as on a primary that has lost it; constraints
# say what has to be done.  When it is back the indexes come back by themselves.
{
	my $primary = new_primary('primary');

	$primary->safe_psql('postgres', 'DROP TABLE t');
	$primary->safe_psql('postgres', invalid_fixture());
	$primary->safe_psql('postgres', 'CREATE TABLE r (k int4); INSERT INTO r SELECT generate_series(1, 1000); CREATE INDEX r_k ON r USING pmhash (k)');

	# event: unmounted while the server is a standby, which is then promoted
	foreach my $how ('absent', 'empty, killed')
	{
		my $killed = $how =~ /killed/;
		my $standby = new_standby($primary, 'standby_away');
		my $pool = pool($standby);
		my $writes = 'INSERT INTO t SELECT i % 3000, i FROM generate_series(1, 3000) i; DELETE FROM t WHERE k % 7 = 3';

		wait_for_state($standby, $_, qr/^valid$/, "$how: $_") foreach qw(t_k t_v o_k ex_k r_k);
		my $session = session_with($standby, 'SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE q AS SELECT count(v) FROM t WHERE k = 5', on_error_stop => 0);
		is($session->query_safe('EXECUTE q'), 2, "$how: a plan with an index");
		rename($pool, "$pool.away") or die;
		mkdir($pool) or die if $killed;
		$standby->promote;
		$session->query('EXECUTE q');
		is($session->query_safe('EXECUTE q'), 2, "$how: one of before fails once at most");
		my ($status, $stdout, $stderr) = $standby->psql('postgres', $writes);
		is($stderr, '', "$how: rows are written");
		$standby->psql('postgres', 'VACUUM t');
		$standby->psql('postgres', $writes);
		is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5'), 4, "$how: rows are read");
		fails_like($standby, 'INSERT INTO ex VALUES (0)', qr/the directory of pmhash has been unmounted, removed or replaced.*HINT:  Put it back, or restart the server/s, "$how: a constraint");
		is(join(' ', glob("$pool/*")), '', "$how: nothing is made in its place");
		rmdir($pool) if $killed;
		crash($standby) if $killed;
		rename("$pool.away", $pool) or die;
		my $from = -s $standby->logfile;
		$standby->start if $killed;
		$standby->safe_psql('postgres', $writes);
		all_come_back($standby, "$how: put back");
		same_answers($standby, 'r', 'k', 'r_k', "$how: put back");
		# (After a life that is killed before the first use all are rebuilt.)
		unlike(slurp_file($standby->logfile, $from), qr/index "r_k" of table "r" has been rebuilt/, "$how: what was not written to is kept") if !$killed;
		eval { $session->quit };
		$standby->safe_psql('postgres', $writes);
		crash_and_start($standby);
		all_come_back($standby, "$how: killed");
		$standby->stop;
	}
	$primary->stop;

	# The same where there is no launcher, which would have tried the pool first.
	my $alone = new_primary('alone', "max_worker_processes = 0\n");
	my $promoted = new_standby($alone, 'promoted');
	my $key = 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5';
	my $rows = $alone->safe_psql('postgres', $key);

	rename(pool($promoted), pool($promoted) . '.away') or die;
	$promoted->promote;
	is($promoted->safe_psql('postgres', $key), $rows, 'no launcher: rows are read at once');
	rename(pool($promoted) . '.away', pool($promoted)) or die;
	is($promoted->safe_psql('postgres', $key), $rows, 'no launcher: put back');
	$_->stop foreach $promoted, $alone;
}

# ======== start cannot list ========

# A standby is started, and a directory of its pool cannot be read to the end: what has not
# been seen there may be files that have missed records, so none is trusted.
{
	my $primary = new_primary('primary4', "autovacuum = off\n");
	my $library = PmhashFaults::build_library($primary->basedir);
	my $node = new_standby($primary, 'standby', <<CONF);
shared_preload_libraries = 'pmhash, $library'
CONF

	# Calls 1 and 2 list the pool, in whatever order its names come.
	foreach my $call (1, 2)
	{
		my $from = -s $node->logfile;

		both_valid($node, "call $call");
		restart_with($node, <<CONF);
pmhash_faults.calls = 'readdir'
pmhash_faults.error = 5
pmhash_faults.fail_at = $call
CONF
		like(slurp_file($node->logfile, $from), qr/not trusted: could not read or remove the files in .*: Input\/output error/, "call $call: log");
		reload_with($node, "pmhash_faults.fail_at = 0\n");
		both_valid($node, "call $call: built again");
		like(logged_since($node, $from), qr/has been built on this standby/, "call $call: really");
	}
	$node->promote;
	wait_for_state($node, $_, qr/^valid$/, "promoted: $_") foreach qw(t_k t_s);
	same_answers($node, 't', 'k', 't_k', 'promoted');
	$_->stop foreach $node, $primary;
}

# ======== promotion killed ========

# A server is killed between its promotion and the first use of pmhash as a primary: its
# files are not trusted.  If the first use only fails at first they are kept.
{
	my $primary = new_primary('primary5', "autovacuum = off\n", install_path => install_with_stop_points());
	my $n_standbys = 0;

	# A standby with both files, after some changes, and its stop points.
	sub standby_with_files ($settings = undef)
	{
		my $node = made_standby($primary, 'killed' . ++$n_standbys, $settings, install_path => $primary->{_install_path});

		use_stop_points($node);
		$node->start;
		wait_for_state($node, $_, qr/^valid$/, $node->name . ": $_") foreach qw(t_k t_s);
		$primary->safe_psql('postgres', <<SQL);
INSERT INTO t SELECT i % 3000, 'more ' || i % 40, i FROM generate_series(1, 500) i;
UPDATE t SET k = k + 1 WHERE n % 17 = $n_standbys;
DELETE FROM t WHERE n % 29 = $n_standbys;
VACUUM t;
SQL
		caught_up($primary, $node);
		return $node;
	}

	# Tests: both indexes are there at once, with the right answers, before and after
	# changes, and nothing was built.
	sub goes_on ($node, $name, $position)
	{
		is($node->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 'f', "$name: a primary");
		like(plan_of($node, 'SELECT * FROM t WHERE k = 5', 'SET enable_seqscan = off;'), qr/t_k/,
			"$name: the index is used at once");
		compare_in_snapshot($node, "$name: answers");
		$node->safe_psql('postgres', <<'SQL');
DELETE FROM t WHERE k BETWEEN 100 AND 120;
VACUUM (INDEX_CLEANUP ON) t;
INSERT INTO t SELECT 7000 + i % 30, 'reused', i FROM generate_series(1, 300) i;
SQL
		compare_in_snapshot($node, "$name: answers after changes");
		no_findings($node, "$name: pmhash.check");
		# (A worker that looks at the index while pmhash can't be made ready says that only.)
		unlike(logged_since($node, $position), qr/has been rebuilt|could not rebuild(?!.*: pmhash could not be made ready)|not trusted|has been built|is given up/, "$name: nothing is built");
		return;
	}

	# Tests: the files are not trusted, and the answers are right.
	sub builds_anew ($node, $name, $position, $why)
	{
		like(logged_since($node, $position), $why, "$name: it says why");
		both_valid($node, $name);
		like(logged_since($node, $position), qr/has been rebuilt/, "$name: rebuilt");
		compare_in_snapshot($node, "$name: answers");
		no_findings($node, "$name: pmhash.check");
		return;
	}

	# ---- killed at each point ----

	# promoted_before_use: nothing has been done.  promoted_before_role: what is not LIVE
	# has been removed.
	# event: a standby is promoted and killed before it has used pmhash as a primary (its launcher does so some milliseconds after the promotion)
	foreach my $point (qw(promoted_before_use promoted_before_role))
	{
		my $node = standby_with_files();
		my $position = log_position($node);

		# (pg_ctl would wait for its end)
		hold($point);
		append_to_file($node->data_dir . '/promote', '');
		kill('USR1', $node->{_pid});
		is_held($point, $node->name);
		$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
		$node->safe_psql('postgres', 'CREATE TABLE other AS SELECT i FROM generate_series(1, 1000) i');
		crash($node);
		release($point);
		$node->start;
		# trust: promoted
		builds_anew($node, "killed, $point", $position, qr/the server was a standby and has not used the pool as a primary/);
		is($node->safe_psql('postgres', 'SELECT count(*) FROM other'), '1000', "killed, $point: what was committed is there");
		$position = log_position($node);
		crash_and_start($node);
		goes_on($node, "killed, $point, and as a primary", $position);
		$node->stop;
	}

	# ---- the first use fails at first: the files are kept ----

	{
		my $node = standby_with_files();
		my $position = log_position($node);

		chmod(0400, pool($node) . '/control') or die $!;
		$node->promote;
		sleep 1;
		like(logged_since($node, $position), qr/pmhash could not be made ready: could not write file/, 'first use: it has failed');
		chmod(0600, pool($node) . '/control') or die $!;
		$node->safe_psql('postgres', q(INSERT INTO t VALUES (1, 'first use', 1)));
		goes_on($node, 'first use fails', $position);
		$node->stop;
	}

	$primary->stop;
}

# ======== dax promoted ========

# A primary on persistent memory becomes a standby, is promoted, and killed before it uses
# pmhash; then the power goes.  It has files of indexes that are not logged, which lack
# what was replayed: that its journal had been on persistent memory, when it was a primary,
# does not make them good.
#
# As in start/reboot.pl persistent memory is made believe, and a boot takes the marker away.
{
	my $shim = preloadable('map_sync');
	local $ENV{LD_PRELOAD} = $shim;

	my @library = (install_path => install_with_stop_points());
	my $primary = new_primary('primary6', "pmhash.wal = on\npmhash.rebuild = off\n", @library);
	$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE o (k integer) WITH (autovacuum_enabled = off);
INSERT INTO o SELECT i % 500 FROM generate_series(1, 5000) i;
CREATE INDEX o_k ON o USING pmhash (k) WITH (wal = off);
SQL
	is($primary->safe_psql('postgres', 'SELECT DISTINCT durability FROM pmhash.indexes'), 'dax', 'class');
	$primary->stop;

	# a copy of data directory and pool, which follows it
	my $copy = cold_copy($primary, 'copy', @library);
	$primary->start;
	$copy->start;
	wait_for_state($copy, 't_k', qr/^valid$/, 'the copy has its files');
	replayed($primary, $copy, 'INSERT INTO o SELECT 7 FROM generate_series(1, 100)');
	$primary->stop;

	use_stop_points($copy);
	hold('promoted_before_use');
	$copy->promote;
	is_held('promoted_before_use', 'the first use');
	crash($copy);
	unlink($copy->data_dir . '/stop_points/promoted_before_use.held');
	pretend_reboot(pool($copy));
	$copy->start;
	isnt($copy->safe_psql('postgres', q(SELECT state FROM pmhash.indexes WHERE index = 'o_k')), 'valid', 'what is not logged is not valid');
	is($copy->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM o WHERE k = 7'),
		'110', 'all rows are found');
	reload_with($copy, "pmhash.rebuild = on\n");
	wait_for_state($copy, $_, qr/^valid$/, "$_ is rebuilt") foreach qw(o_k t_k t_s);
	same_answers($copy, 'o', 'k', 'o_k', 'rebuilt');
	$copy->stop;
}

done_testing();
