# Rebuilds held at stop points.
# long

use v5.36;

use File::Path qw(rmtree);
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# ======== rebuild stops ========

# At each step of a rebuild: the worker, the server, the postmaster alone are killed, it is
# stopped at once, the worker is cancelled and terminated; the index, the table, the
# database are dropped, rewritten, moved.  What is there afterwards is rebuilt and answers
# right, and no file is left of what is not.
#
# Each case takes its turn with one of the points; PMHASH_STOPS=all: each with all of them.
{
	my $node = new_server('rebuild_stops', <<CONF, install_path => install_with_stop_points());
allow_in_place_tablespaces = on
wal_level = replica
CONF
	use_stop_points($node);
	start_with_extension($node);
	install_extension($node, 'template1');
	$node->safe_psql('postgres', "CREATE TABLESPACE aside LOCATION ''");

	my @points = qw(rebuild_marked rebuild_before_build rebuild_before_stub rebuild_before_valid);
	my $cases = 0;

	sub builder
	{
		return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash worker' AND query LIKE 'rebuilding%'");
	}

	# A table with two indexes, x_k of which has lost its file and is being rebuilt up to a point.
	sub start_rebuild ($point, $database, $name)
	{
		my $logged = $cases++ % 2 ? 'on' : 'off';

		$node->safe_psql($database, <<SQL);
CREATE TABLE x (k int, v int);
INSERT INTO x SELECT i % 100, i FROM generate_series(1, 400) i;
CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = $logged);
CREATE INDEX x_v ON x USING pmhash (v);
SQL
		hold($point);
		unlink(index_file($node, 'x_k', $database)) or die $!;
		$node->safe_psql($database, 'INSERT INTO x VALUES (5, 1000)');
		return is_held($point, $name);
	}

	# Tests of what there should be at the end of a case; then the table goes.
	sub all_right ($name, $database)
	{
		my $there = $node->safe_psql($database, "SELECT count(*) FROM pg_class WHERE relname = 'x_k'");
		my $db = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");

		if ($there)
		{
			$node->safe_psql($database, 'INSERT INTO x SELECT i % 7, i FROM generate_series(2000, 2050) i');
			ok($node->poll_query_until($database, "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'x_k'"), "$name: rebuilt")
			  || diag($node->safe_psql($database, 'SELECT index, state FROM pmhash.indexes'));
			same_answers($node, 'x', 'k', 'x_k', $name, $database);
			all_checked($node, $name, $database);
		}
		wait_for_files(pool($node) . "/$db", $node->safe_psql($database, 'SELECT count(*) FROM pmhash.indexes'), "$name: files");
		$node->safe_psql($database, 'DROP TABLE IF EXISTS x');
		return;
	}

	# ---- ends of processes ----

	my %ends = (
		ends_of('worker', \&builder),
		'crash, WAL lost' => sub {
			kill('STOP', split(/\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'pmhash launcher', 'checkpointer', 'background writer')")));
			$node->safe_psql('postgres', <<SQL);
SET synchronous_commit = off;
INSERT INTO x SELECT 200 + i % 100, i FROM generate_series(4000, 4100) i;
UPDATE x SET k = k + 1000 WHERE k % 10 = 4;
SQL
			crash($node);
			return sub { $node->start };
		});

	my $turn = 0;
	foreach my $end (sort keys %ends)
	{
		foreach my $point (points_of($turn++, @points))
		{
			my $name = "$end at $point";

			start_rebuild($point, 'postgres', $name);
			my $then = $ends{$end}->();
			release($point);
			$then->() if defined $then;
			all_right($name, 'postgres');
		}
	}

	# ---- statements ----

	my %statements = (
		%statements_on_x,
		'VACUUM' => 'VACUUM x',
		'index moved, rolled back' => 'BEGIN; ALTER INDEX x_k SET TABLESPACE aside; ROLLBACK');

	foreach my $statement (some_of(4, sort keys %statements))
	{
		foreach my $point (points_of($turn++, @points))
		{
			my $name = "$statement at $point";

			start_rebuild($point, 'postgres', $name);
			my $session = start_session($statements{$statement});
			$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'active' AND application_name = 'psql' AND wait_event_type IS DISTINCT FROM 'Lock' AND pid <> pg_backend_pid()");
			release($point);
			is(finish($session), '', "$name: done");
			all_right($name, 'postgres');
		}
	}

	# ---- the database ----

	foreach my $point (points_of($turn++, @points))
	{
		my $name = "DROP DATABASE at $point";

		$node->safe_psql('postgres', 'CREATE DATABASE db1');
		my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'db1'");
		start_rebuild($point, 'db1', $name);
		my $session = start_session('DROP DATABASE db1 WITH (FORCE)');
		usleep(300_000);
		release($point);
		is(finish($session), '', "$name: done");
		wait_for_files(pool($node) . "/$oid", 0, "$name: no file is left");
	}

	# ---- nothing goes on for ever ----

	my $from = -s $node->logfile;
	sleep(3);
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pmhash worker'"), '0', 'no worker is left');
	unlike(slurp_file($node->logfile, $from), qr/rebuilding|rebuilt|rebuild index/, 'and nothing is rebuilt');
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal (?!9\b)\d+:/, 'nothing failed');
	$node->stop;
}

# ======== many written meanwhile ========

# Sessions write more rows of one key while an index is rebuilt than its rebuild may have in
# memory: what they have put into the new file goes by in pieces, and each row is in it once.
{
	my $install = install_with_stop_points();
	my $node = new_server('meanwhile', <<CONF, install_path => $install);
maintenance_work_mem = 1MB
max_parallel_maintenance_workers = 0
CONF
	start_with_extension($node);
	use_stop_points($node);
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int, v int) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
INSERT INTO t SELECT 0, i FROM generate_series(1, 40000) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL

	hold('rebuild_before_build');
	unlink(index_file($node, 't_k')) or die;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1001, 1)');
	is_held('rebuild_before_build', 'a rebuild');

	# Half a megabyte is 32,768 entries.  The scan meets all of these rows as well.
	$node->safe_psql('postgres', 'INSERT INTO t SELECT 0, i FROM generate_series(1, 100000) i; INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i');
	hold('build_present_piece');
	release('rebuild_before_build');
	is_held('build_present_piece', 'more than fits in memory');
	hold('build_present_piece');
	release('build_present_piece');
	is_held('build_present_piece', 'two pieces of it are not all');
	release('build_present_piece');
	$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'")
	  or fail('the index is rebuilt');
	my $log = slurp_file($node->logfile);
	unlike($log, qr/could not rebuild/, 'by the first try');
	is($node->safe_psql('postgres', "SELECT pmhash.check('t_k')"), '', 'nothing is missing, and nothing twice');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*), count(DISTINCT ctid) FROM t WHERE k = 0'), '140000|140000', 'all rows of the key');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7'), '2', 'and of another one');
	is($node->safe_psql('postgres', 'SELECT entries FROM pmhash.stats(\'t_k\')'), '142001', 'entries in the file');
	$node->stop;
}

# ======== gives way ========

# A rebuild beside a process that wants the same processor: it rests again and again.
{
	my $node = new_server('gives_way', undef, install_path => install_with_stop_points());
	use_stop_points($node);
	$node->append_conf('postgresql.conf', 'max_parallel_maintenance_workers = 0');
	start_with_extension($node, <<SQL);
CREATE TABLE t (k int4);
INSERT INTO t SELECT i FROM generate_series(1, 400000) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL

	# Some processor that we may use.
	my ($cpu) = `taskset -cp $$` =~ /: (\d+)/ or die 'taskset';

	# The worker, which is held at a point.
	sub worker
	{
		return $node->safe_psql('postgres',
			q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash worker'));
	}

	# How often it has let go of the processor by itself.
	sub gave_up_processor ($pid)
	{
		my ($times) = slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
		return $times;
	}

	# ---- one processor for all of them ----

	my $file = index_file($node, 't_k');
	# the file is there, and damaged: the rebuild removes it
	open my $damaged, '+<', $file or die "$file: $!";
	syswrite($damaged, "\0" x 64) == 64 or die;
	close $damaged or die;
	$node->stop;
	hold('rebuild_before_build');
	hold('rebuild_before_stub');
	$node->start;
	system('taskset', '-cp', $cpu, slurp_file($node->data_dir . '/postmaster.pid') =~ /\A(\d+)/) == 0 or die;
	my $hog = fork() // die "fork: $!";
	if ($hog == 0)
	{
		exec('taskset', '-c', $cpu, $^X, '-e', '$SIG{TERM} = "DEFAULT"; 1 while 1') or die;
	}
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (0)');
	is_held('rebuild_before_build');
	my $pid = worker();
	my $before = gave_up_processor($pid);
	release('rebuild_before_build');
	is_held('rebuild_before_stub');
	my $rests = gave_up_processor($pid) - $before;
	cmp_ok($rests, '>=', 50, "the rebuild has rested ($rests)");
	release('rebuild_before_stub');
	kill 'TERM', $hog;
	waitpid($hog, 0);

	wait_until($node, q(SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'), 'the index does not come back');
	same_answers($node, 't', 'k', 't_k', 'rebuilt');
	is($node->safe_psql('postgres', q(SELECT pmhash.check('t_k'))), '', 'pmhash.check');
}

# ======== one unreadable ========

# One index that a standby's builder cannot look at, or cannot begin with, keeps no other
# one of its database from being built: its main fork cannot be read, which is said; an error
# before the build has begun.  It is built when that is over.  Nor does an error in the last
# step of a build leave a lock held.
{
	my $install = install_with_stop_points();
	my $primary = new_primary('primary', '', install_path => $install);
	my @others = map { "o_$_" } 1 .. 4;
	$primary->safe_psql('postgres', 'CREATE TABLE o (k int); INSERT INTO o SELECT i FROM generate_series(1, 100) i');
	$primary->safe_psql('postgres', "CREATE INDEX $_ ON o USING pmhash (k) WITH (wal = on)") foreach @others;
	my $standby = new_standby($primary, 'standby', "pmhash.cleaner_naptime = 1\n", install_path => $install);
	use_stop_points($standby);

	sub all_valid ($name, @indexes)
	{
		wait_for_state($standby, $_, qr/^valid$/, "$name: $_") foreach @indexes;
		return;
	}

	# Have all of them built anew; in between something is done.  Returns where the log was.
	sub build_anew ($change)
	{
		$standby->stop;
		rmtree(pool($standby));
		$change->();
		my $position = log_position($standby);
		$standby->start;
		return $position;
	}

	sub count_of ($pattern, $text)
	{
		return scalar(() = $text =~ /$pattern/g);
	}

	# ---- a main fork that cannot be read ----

	all_valid('at first', qw(t_k t_s), @others);
	my $fork = $standby->data_dir . '/' . $standby->safe_psql('postgres', q(SELECT pg_relation_filepath('t_k')));
	my $position = build_anew(sub { chmod(0, $fork) or die "$fork: $!" });
	all_valid('beside one that is unreadable', 't_s', @others);
	is(standby_state($standby, 't_k'), 'unreadable', 'which is shown');
	sleep 3;    # some more visits
	my $log = logged_since($standby, $position);
	is(count_of(qr/LOG: .*could not build index "t_k" on this standby: could not open file .*: Permission denied/, $log) > 0, 1, 'said');
	unlike($log, qr/ERROR/, 'no builder fails of it');
	chmod(0600, $fork) or die "$fork: $!";
	all_valid('readable again', 't_k');
	compare_in_snapshot($standby, 'answers');

	# ---- an error before a build has begun ----

	$position = build_anew(sub { fail_at('standby_begins') });
	all_valid('after an error', qw(t_k t_s), @others);
	$log = logged_since($standby, $position);
	like($log, qr/\[(\d+)\] .*could not build index "\w+" on this standby: error of the test.*\[\1\] .*has been built/s,
		'the same builder goes on with the next index');
	is(count_of(qr/error of the test/, $log), 1, 'said once');
	unlike($log, qr/ERROR/, 'no builder fails of it');

	# ---- an error while a build is published, with the lock that replay needs ----

	$position = build_anew(sub { fail_at('standby_publishing') });
	ok($standby->wait_for_log(qr/could not build index "\w+" on this standby: error of the test/, $position),
		'an error in the last step: the build is given up');
	all_valid('and is tried again', qw(t_k t_s), @others);
	compare_in_snapshot($standby, 'answers after that');
	$_->stop foreach $standby, $primary;
}

done_testing();
