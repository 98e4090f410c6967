# A standby that is killed within a record, or whose kernel fails to write.

use v5.36;

use File::Copy;
use PmhashFaults;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# ======== killed in record ========

# A standby that is killed in the middle of a record, and never gets that record again:
# recovery ends before it, or another server is the primary.  What its files have of the
# record is of rows that never were, or are still there.
{
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
	my $settings = "bgwriter_lru_maxpages = 0\n";
	my @library = (install_path => install_with_stop_points());
	my $primary = new_primary('primary', $settings, @library);

	$primary->safe_psql('postgres', 'DROP INDEX t_s');

	# A standby, stopped; its processes are held where these points are.
	sub standby_to_be_held ($name, @points)
	{
		my $node = new_standby($primary, $name, undef, @library);

		$node->stop;
		use_stop_points($node);
		hold($_) foreach @points;
		return $node;
	}

	# The standby has all there is, and `applied` is the end of a restore point, whose name is
	# returned.  Where pages have checksums a hint in one of the catalog may be written to WAL
	# after it, and moves `applied` on: but once only.
	sub set_restore_point ($node, $name)
	{
		my ($point, $end, $applied);

		for (my $i = 1; $i <= 20; $i++)
		{
			$point = "${name}_$i";
			$end = $primary->safe_psql('postgres', "SELECT pg_create_restore_point('$point')");
			$node->poll_query_until('postgres', "SELECT applied_lsn >= '$end' FROM pmhash.standby()") or die;
			$applied = $node->safe_psql('postgres', 'SELECT applied_lsn FROM pmhash.standby()');
			last if $applied eq $end;
		}
		is($applied, $end, "$name: applied");
		return $point;
	}

	# Kill it in the record that this statement writes, of which the file has the effects; or
	# the delta, and meanwhile ...
	sub kill_in_record ($node, $name, $statement, $meanwhile = undef)
	{
		my $point = defined $meanwhile ? 'redo_after_entries' : 'redo_applied';
		my $result;

		hold($point);
		$result = $primary->safe_psql('postgres', $statement);
		is_held($point, $name);
		$meanwhile->() if defined $meanwhile;
		crash($node);
		release($point);
		return $result;
	}

	# Recovery ends at that target, and the server is a primary.
	sub promote_at ($node, $target)
	{
		$node->append_conf('postgresql.conf', <<CONF);
primary_conninfo = ''
$target
recovery_target_action = 'promote'
CONF
		$node->start;
		$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
		return;
	}

	sub is_sound ($node, $name)
	{
		my ($status, $stdout, $stderr) = $node->psql('postgres', q(SELECT pmhash.check('t_k')));

		return is("$stdout$stderr", '', "$name: pmhash.check");
	}

	# Another row comes where the one was that never was, with that key.
	sub nothing_of_it ($node, $name, $key, $ctid, @readers)
	{
		is($node->safe_psql('postgres', "INSERT INTO t VALUES (70000, 'instead', 1) RETURNING ctid"), $ctid,
			"$name: another row where it was");
		foreach my $reader ($node, @readers)
		{
			caught_up($node, $reader) if $reader != $node;
			wait_for_state($reader, 't_k', qr/^valid$/, "$name: there again");
			is($reader->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = $key"), '0',
				"$name: nothing is found by the old key");
			is($reader->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = 70000"), '1',
				"$name: the other row is found");
			is_sound($reader, $name);
		}
		return;
	}

	# ---- recovery ends before the record ----

	{
		my $node = standby_to_be_held('insert');
		my ($ctid, $point);

		$node->start;
		wait_for_state($node, 't_k', qr/^valid$/, 'INSERT: begin');
		$primary->safe_psql('postgres', "INSERT INTO t VALUES (60001, 'before', 1)");
		$point = set_restore_point($node, 'before_insert');
		$ctid = kill_in_record($node, 'INSERT', q(INSERT INTO t VALUES (60002, 'never was', 1) RETURNING ctid));
		promote_at($node, "recovery_target_name = '$point'");
		# trust: begun
		nothing_of_it($node, 'INSERT', 60002, $ctid);
		$node->stop;
	}

	{
		my $node = standby_to_be_held('delete');
		my $point;

		$node->start;
		wait_for_state($node, 't_k', qr/^valid$/, 'DELETE: begin');
		$point = set_restore_point($node, 'before_delete');
		$primary->safe_psql('postgres', 'DELETE FROM t WHERE k = 60001');
		kill_in_record($node, 'DELETE', 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) t');
		promote_at($node, "recovery_target_name = '$point'");
		is($node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE k = 60001'),
			'1', 'DELETE: the row has not been deleted');
		wait_for_state($node, 't_k', qr/^valid$/, 'DELETE: there again');
		is($node->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = 60001"), '1', 'DELETE: the index has it');
		is_sound($node, 'DELETE');
		$node->stop;
	}

	# ---- the same of a file that was published in the middle of the record ----

	{
		my $node = standby_to_be_held('publish', 'standby_caught_up');
		my $from = $primary->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
		my $position;
		my $record;

		unlink($node->data_dir . '/pmhash.nonce') or die;	# nothing is trusted
		$node->start;
		is_held('standby_caught_up', 'published');
		kill_in_record($node, 'published', "INSERT INTO t VALUES (60003, 'lost', 1)",
			sub {
				release('standby_caught_up');
				wait_for_state($node, 't_k', qr/^valid$/, 'published: in the middle of the record');
			});
		install_wal_records($primary);
		$record = $primary->safe_psql('postgres',
			"SELECT record_start FROM pmhash_wal_records('$from', 'FFFFFFFF/0') WHERE type = 'INSERT'");
		$position = log_position($node);
		promote_at($node, "recovery_target_lsn = '$record'\nrecovery_target_inclusive = off");
		wait_for_state($node, 't_k', qr/^valid$/, 'published: there again');
		like(logged_since($node, $position), qr/"t_k" of table "t" has been rebuilt/, 'published: as another file');
		is_sound($node, 'published');
		$node->stop;
	}

	# ---- published within a record, which is applied again after a restart: once in all ----

	{
		my $node = standby_to_be_held('ends', 'standby_caught_up');
		my $position;

		unlink($node->data_dir . '/pmhash.nonce') or die;	# nothing is trusted
		$node->start;
		is_held('standby_caught_up', 'record ends');
		replayed($primary, $node, "INSERT INTO t VALUES (60005, 'first of the delta', 1)");
		hold('redo_after_entries');
		$primary->safe_psql('postgres', "INSERT INTO t VALUES (60006, 'once', 1)");
		is_held('redo_after_entries', 'record ends');
		release('standby_caught_up');
		wait_for_state($node, 't_k', qr/^valid$/, 'record ends: published');
		release('redo_after_entries');
		caught_up($primary, $node);
		$position = log_position($node);
		crash_and_start($node);
		caught_up($primary, $node);
		is($node->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = 60006"), '1', 'record ends: one row');
		is_sound($node, 'record ends');
		unlike(logged_since($node, $position), qr/not trusted|has been built/, 'record ends: the file that was there');
		$node->stop;
	}

	# ---- another primary, which has never had the record ----

	{
		my $node = standby_to_be_held('ahead');
		my $lagging = new_standby($primary, 'lagging', undef, @library);
		my $position = log_position($node);
		my $ctid;

		$node->start;
		wait_for_state($_, 't_k', qr/^valid$/, $_->name . ': begin') foreach $node, $lagging;
		set_restore_point($node, 'before_other');
		caught_up($primary, $lagging);
		reload_with($lagging, "primary_conninfo = ''\n");
		$lagging->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver') or die;

		# much of the old primary's WAL: the new one does not get there for long
		$ctid = kill_in_record($node, 'another primary', <<SQL);
INSERT INTO t SELECT 60004, string_agg(md5(i::text), ''), 1 FROM generate_series(1, 10000) i RETURNING ctid
SQL
		crash($primary);
		$lagging->promote;

		# as from an archive: else it reads its own files first, which have more of the old timeline
		copy($_, $node->data_dir . '/pg_wal') or die $! foreach glob($lagging->data_dir . '/pg_wal/00000002*');
		$node->enable_streaming($lagging);
		$node->start;
		wait_for_state($node, 't_k', qr/^valid$/, 'another primary: built again, which need not write for that');
		nothing_of_it($lagging, 'another primary', 60004, $ctid, $node);
		like(logged_since($node, $position), qr/WAL is of timeline 2 now\n.*DETAIL:  They are built again/,
			'another primary: files are given up at once');
		$_->stop foreach $node, $lagging;
	}
}

# ======== standby failed writes ========

# A standby asks the kernel, too, whether it has written back what it should: after each
# restartpoint, at its start and at its end; and what it learns counts if it is promoted meanwhile.
{
	my $noticed = qr/index files in .* are not trusted: the file system of directory .* has failed to write something back: Input/;
	my @library = (install_path => install_with_stop_points());
	my $primary = new_primary('primary2', '', @library);
	my $faults = PmhashFaults::build_library($primary->basedir);
	my $standby = new_standby($primary, 'standby', <<CONF, @library);
shared_preload_libraries = 'pmhash, $faults'
pmhash_faults.calls = 'syncfs'
pmhash_faults.process = 'pmhash launcher'
pmhash_faults.error = 5
pmhash_faults.fail_for = 1
CONF

	sub restartpoint
	{
		replayed($primary, $standby, 'CHECKPOINT');
		checkpoint_and_ask($standby);
		return;
	}

	# A test: the log says so, within this time.
	sub is_noticed ($name, $position)
	{
		wait_while(sub { logged_since($standby, $position) !~ $noticed }, 30);
		return like(logged_since($standby, $position), $noticed, "$name: log");
	}

	# A test: another one has been built since.
	sub is_built_again ($name, $position)
	{
		both_right($standby, $name);
		return is(scalar(() = logged_since($standby, $position) =~ /has been built/g), 2, "$name: both are built again");
	}

	both_right($standby, 'begin');

	# event: the kernel fails to write back pages of the pool's file system, on a standby
	# ---- at a restartpoint; a session that has the files open as well ----
	{
		my $position = log_position($standby);
		my $session = $standby->background_psql('postgres');

		$session->query_safe('SET enable_seqscan = off; SELECT * FROM t WHERE k = 17');
		$standby->append_conf('postgresql.conf', "pmhash.rebuild = off\n");
		set_faults($standby, fail_at => 1);
		$primary->safe_psql('postgres', "INSERT INTO t VALUES (40000, 'x', 1)");
		restartpoint();
		is_noticed('restartpoint', $position);
		# trust: standby-syncfs
		isnt(standby_state($standby, $_), 'valid', "restartpoint: $_") foreach qw(t_k t_s);
		unlike($session->query_safe('EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k = 40000'), qr/t_k/,
			'restartpoint: a session that has the file open');
		is($session->query_safe('SELECT count(*) FROM t WHERE k = 40000'), '1', 'restartpoint: and its answer');
		$session->quit;
		$standby->append_conf('postgresql.conf', "pmhash.rebuild = on\n");
		set_faults($standby, fail_at => 0);
		is_built_again('restartpoint', $position);
	}

	# it has been asked, and nothing has failed since: a crash costs nothing
	{
		my $position = log_position($standby);

		restartpoint();
		sleep(1);
		wait_while(sub { witness($standby) == 4 }, 30);    # it is being asked
		crash_and_start($standby);
		caught_up($primary, $standby);
		both_right($standby, 'crash');
		unlike(logged_since($standby, $position), qr/not trusted|has been built/, 'crash: nothing is built');
	}

	# ---- at its start: the life before may not have had the time to ask ----
	{
		my $position = log_position($standby);

		crash($standby);
		set_faults($standby, fail_at => 1);
		$standby->start;
		hours_pass($standby);
		is_noticed('start', $position);
		is_built_again('start', $position);
	}

	# ---- at its end: its files are not written back, whatever the errno ----
	# Two calls for the control file come before.
	{
		my $position = log_position($standby);

		caught_up($primary, $standby);
		set_faults($standby, calls => 'fsync', process => '', error => 110, fail_at => 3);
		$standby->stop;
		like(logged_since($standby, $position), qr/could not write the files in .* back: Connection timed out/, 'end: log');
		set_faults($standby, calls => 'syncfs', process => 'pmhash launcher', error => 5, fail_at => 0);
		$standby->start;
		is_built_again('end', $position);
	}

	# ---- it is promoted while it is asked (from PostgreSQL 19 on a promotion waits for that) ----
	if ($standby->pg_version->major < 19)
	{
		my $position = log_position($standby);

		set_faults($standby, fail_at => 0);
		use_stop_points($standby);
		hold('asked_for_failed_writes');
		set_faults($standby, fail_at => 1);
		restartpoint();
		is_held('asked_for_failed_writes', 'promoted');
		$standby->promote;
		$standby->safe_psql('postgres', "INSERT INTO t VALUES (40001, 'x', 1)");
		sleep(3);	# others, which are those of a primary by now, go on
		release('asked_for_failed_writes');
		is_noticed('promoted', $position);
		both_right($standby, 'promoted');
		like(logged_since($standby, $position), qr/"t_k" of table "t" has been rebuilt/, 'promoted: files are rebuilt');
		unlike(logged_since($standby, $position), qr/failed while it asked/, 'promoted: one after the other');
	}
	$_->stop foreach $standby, $primary;
}

done_testing();
