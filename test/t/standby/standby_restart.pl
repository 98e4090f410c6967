# Standbys that are restarted, and what their files' headers say.

use v5.36;

use PmhashInvalid qw(pretend_reboot);
use PmhashStandby;
use PmhashTest;

# ======== standby restart ========

# A standby is stopped, killed, started without the library, promoted, made a standby
# again: where its files are up to date they are used at once, else built again, and
# never wrong.
{
	my $built = qr/has been built on this standby/;
	my $primary = new_primary('primary');

	# another directory than the primary's by default: of no consequence
	my $elsewhere = PostgreSQL::Test::Utils::tempdir() . '/pool';
	my $standby = new_standby($primary, 'standby', <<CONF);
pmhash.directory = '$elsewhere'
restart_after_crash = on
CONF

	# ---- built, used, shown ----

	both_valid($standby, 'built in a directory of its own');
	is(scalar(index_files($elsewhere)), 2, 'there they are');
	caught_up($primary, $standby);
	like(plan_of($standby, 'SELECT * FROM t WHERE k = 5'), qr/t_k/, 'plans use it');
	like(plan_of($standby, 'SELECT k FROM t WHERE k = 5', 'SET enable_bitmapscan = off; SET enable_seqscan = off; '),
		qr/Index Only Scan using t_k/, 'plans use it for index-only scans');
	compare_in_snapshot($standby, 'right after the build');
	is($standby->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('t_k'))), 10000, 'pmhash.stats counts');
	is($standby->safe_psql('postgres', 'SELECT live, building FROM pmhash.standby()'), '2|0', 'pmhash.standby() counts files');
	is($primary->safe_psql('postgres', 'SELECT pmhash.standby() IS NULL'), 't', 'and is NULL on a primary');

	# ---- what is logged if nothing is said ----

	is($primary->safe_psql('postgres', 'SHOW pmhash.wal'), 'on', 'default: logged');
	$primary->safe_psql('postgres', <<'SQL');
CREATE INDEX t_said_nothing ON t USING pmhash (n);
CREATE INDEX t_said_off ON t USING pmhash (n) WITH (wal = off);
SQL
	caught_up($primary, $standby);
	wait_for_state($standby, 't_said_nothing', qr/^valid$/, 'default: the standby has it');
	my $off = 'the state of the index is "absent: the index is not logged (storage parameter wal)"';
	is($standby->safe_psql('postgres', "SELECT usable, reason FROM unnest('{t_said_nothing,t_said_off}'::regclass[]) AS i, pmhash.explain(i)"),
		"t|\nf|$off", 'default: not if it says off');
	like($standby->safe_psql('postgres', 'EXPLAIN SELECT FROM t WHERE n = 1'), qr/^Index Not Usable: t_said_off \(pmhash\): \Q$off\E$/m, '... as EXPLAIN says')
	  if $standby->pg_version >= 18;
	$primary->safe_psql('postgres', 'DROP INDEX t_said_nothing, t_said_off');

	# ---- clean restarts, with changes while it is down ----

	foreach my $how ('fast', 'immediate')
	{
		# trust: standby-applied
		my $position = log_position($standby);

		change_t($primary, 1, 700);
		caught_up($primary, $standby);
		$standby->stop($how);
		change_t($primary, 2, 700);
		$standby->start;
		caught_up($primary, $standby);
		both_right($standby, "restart after $how");
		unlike(logged_since($standby, $position), $built, "restart after $how: nothing is built");
	}

	# ---- killed in the middle of replay ----

	my $bench = load_of_t($primary, 40);
	my $output = '';
	my $load = start_pgbench($primary, \$output, '-c', '3', '-R', '40', '-T', load_time(40), '-f', $bench);
	my $position = log_position($standby);
	foreach my $round (1 .. load_time(4))
	{
		usleep(500_000 + int(rand(700_000)));
		$primary->safe_psql('postgres', 'VACUUM t') if $round % 2 == 0;
		$standby->safe_psql('postgres', 'CHECKPOINT') if $round % 3 == 0;
		crash($standby);
		usleep(300_000);
		$standby->start;
		caught_up($primary, $standby);
		both_valid($standby, "killed, round $round");
		compare_in_snapshot($standby, "killed, round $round: answers");
	}
	$load->signal('TERM');
	$load->finish;
	caught_up($primary, $standby);
	no_findings($standby, 'killed in replay: pmhash.check');
	unlike(logged_since($standby, $position), $built, 'killed in replay: nothing is built');

	# ---- the library is absent for a while ----

	foreach my $checkpoint (0, 1)
	{
		my $name = $checkpoint ? 'absent past a restartpoint' : 'absent for a short time';

		$position = log_position($standby);
		$standby->stop;
		start_with($standby, "shared_preload_libraries = ''\n");
		change_t($primary, 3 + $checkpoint, 700);
		replayed($primary, $standby, 'CHECKPOINT');
		$standby->safe_psql('postgres', 'CHECKPOINT') if $checkpoint;
		is($standby->safe_psql('postgres', 'SELECT count(*) > 0 FROM t WHERE k = 5'), 't',
			"$name: the server is up");
		$standby->stop($checkpoint ? 'fast' : 'immediate');
		start_with($standby, "shared_preload_libraries = 'pmhash'\n");
		caught_up($primary, $standby);
		both_right($standby, $name);
	}
	# trust: standby-without
	like(logged_since($standby, $position), qr/replayed WAL without the pool/,
		'what WAL has not been applied to is not trusted');

	# ---- clean switchover, to and fro ----

	my @old_files = index_files(pool($primary));
	change_t($primary, 5, 700);
	my $session = session_with($standby, "SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5", on_error_stop => 1);
	$primary->stop('fast');
	$position = log_position($standby);
	$standby->promote;
	like(plan_of($standby, 'SELECT * FROM t WHERE k = 5'), qr/t_k/, 'switchover: plans use it at once');
	compare_in_snapshot($standby, 'switchover: the new primary');
	$session->query_safe("INSERT INTO t VALUES (424242, 'by an old session', 1)");
	$session->quit;
	is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT s FROM t WHERE k = 424242'), 'by an old session',
		'switchover: what a session of before inserts is found');
	unlike(logged_since($standby, $position), qr/has been rebuilt|could not rebuild|not trusted/, 'switchover: nothing is rebuilt');

	# the files that it had are good until the new primary vacuums (S4)
	my $old_position = log_position($primary);
	$primary->enable_streaming($standby);
	$primary->start;
	replayed($standby, $primary, "INSERT INTO t VALUES (7, 'switched', 1)");
	both_right($primary, 'switchover: the old primary follows');
	unlike(logged_since($primary, $old_position), $built, 'switchover: it builds nothing');

	change_t($standby, 6, 700);
	compare_in_snapshot($standby, 'switchover: the new primary after changes');
	caught_up($standby, $primary);
	both_right($primary, 'switchover, vacuumed: the old primary follows');
	like(logged_since($primary, $old_position), $built, 'switchover, vacuumed: it has built its files anew');
	is_deeply([ index_files(pool($primary)) ], \@old_files, 'switchover: under the same names');

	change_t($standby, 7, 700);
	$standby->stop('fast');
	$primary->promote;
	compare_in_snapshot($primary, 'and back: answers');
	change_t($primary, 8, 700);
	no_findings($primary, 'and back: pmhash.check');
	unlike(logged_since($primary, $old_position), qr/has been rebuilt|could not rebuild|not trusted/, 'and back: nothing is rebuilt');
	$standby->enable_streaming($primary);
	$standby->start;
	caught_up($primary, $standby);
	both_right($standby, 'and back: the other one follows');

	# ---- a primary that is made a standby, and promoted before there is another one ----

	$old_position = log_position($primary);
	$primary->stop('fast');
	$primary->set_standby_mode;
	$primary->start;
	# trust: standby-demoted
	both_right($primary, 'a standby without a primary');
	$primary->promote;
	compare_in_snapshot($primary, 'promoted again: answers');
	change_t($primary, 10, 700);
	no_findings($primary, 'promoted again: pmhash.check');
	unlike(logged_since($primary, $old_position), qr/has been rebuilt|could not rebuild|not trusted|has been built/, 'promoted again: with the files that it had');
	$standby->poll_query_until('postgres', 'SELECT pg_last_wal_replay_lsn() IS NOT NULL');
	caught_up($primary, $standby);
	both_right($standby, 'promoted again: the other one follows');

	# ---- not readable (hot_standby = off), and promoted so ----

	# What was built before follows all the same; one that never was readable builds nothing,
	# and is rebuilt when it is a primary.
	my $dark = new_standby($primary, 'dark');
	both_valid($dark, 'not readable: built before');
	my @dark_files = index_files(pool($dark));
	restart_with($dark, "hot_standby = off\n");
	$position = log_position($dark);
	my $darker = new_standby($primary, 'darker', "hot_standby = off\n");
	change_t($primary, 11, 700);
	$primary->wait_for_catchup($_->name) foreach $dark, $darker;
	$dark->connect_fails('dbname=postgres', 'not readable: it is not', expected_stderr => qr/FATAL/);
	is_deeply([ index_files(pool($darker)) ], [], 'not readable: nothing is built');
	foreach my $node ($dark, $darker)
	{
		$node->promote;
		wait_until($node, "SELECT count(*) = 2 FROM pmhash.indexes WHERE state = 'valid'", 'not valid');
		compare_in_snapshot($node, 'not readable, promoted: answers of ' . $node->name);
		change_t($node, 12, 700);
		no_findings($node, 'not readable, promoted: ' . $node->name);
	}
	unlike(logged_since($dark, $position), qr/rebuil|not trusted|has been built/, 'not readable, promoted: with the files that it had');
	is_deeply([ index_files(pool($dark)) ], \@dark_files, 'not readable, promoted: the same ones');
	like(logged_since($darker, 0), qr/has been rebuilt/, 'never readable, promoted: rebuilt');
	$_->stop foreach $dark, $darker;

	# ---- the page cache is lost: nothing is, if it was stopped in order ----

	foreach my $how ('fast', 'immediate')
	{
		$position = log_position($standby);
		$standby->stop($how);
		pretend_reboot($elsewhere);
		change_t($primary, 13, 700);
		$standby->start;
		caught_up($primary, $standby);
		both_right($standby, "page cache lost, $how");
		if ($how eq 'fast')
		{
			unlike(logged_since($standby, $position), $built, "page cache lost, $how: nothing is built");
		}
		else
		{
			like(logged_since($standby, $position), qr/was unmounted, without.*has been built/s, "page cache lost, $how: built again");
		}
	}

	# ---- a primary that crashed becomes a standby: not trusted ----

	change_t($primary, 9, 700);
	caught_up($primary, $standby);
	crash($primary);
	$standby->promote;
	$primary->enable_streaming($standby);
	$old_position = log_position($primary);
	$primary->start;
	# trust: standby-crashed
	like(logged_since($primary, $old_position), qr/not shut down cleanly as a primary/,
		'crashed: not trusted');
	caught_up($standby, $primary);
	both_valid($primary, 'crashed: built again');
	like(logged_since($primary, $old_position), $built, 'crashed: really');
	compare_in_snapshot($primary, 'crashed: answers');

	# ---- a standby that is not promoted but loses its signal: not trusted ----

	$primary->stop;

	# and it was at a build, of an index that has gone since
	my ($left_over) = map { s{[^/]*$}{00000000000000aa.delta}r } index_files(pool($primary));

	append_to_file($left_over, 'x');
	unlink($primary->data_dir . '/standby.signal') or die $!;
	$old_position = log_position($primary);
	$primary->start;
	ok(!-e $left_over, 'signal removed: what the build has made is removed');
	# trust: standby-signal
	like(logged_since($primary, $old_position), qr/was a standby and has not used the pool as a primary/,
		'signal removed: not trusted');
	wait_until($primary, "SELECT count(*) = 2 FROM pmhash.indexes WHERE state = 'valid'", 'not rebuilt');
	compare_in_snapshot($primary, 'signal removed: answers');
	$primary->stop;
	$standby->stop;
}

# ======== notes damaged ========

# Bits are flipped in what the header of a file of a standby says of it, while the standby is
# down: that file alone is built anew.
{
	my $damaged = qr/the header of index file ".*" is damaged/;
	my $built = qr/has been built on this standby/;
	my $primary = new_primary('primary2');
	my $standby = new_standby($primary, 'standby2');
	my $round = 0;

	# The word of a file's note at an offset, with a bit flipped.
	sub flip_at ($path, $at, $bit)
	{
		open(my $file, '+<:raw', $path) or die "$path: $!";
		sysseek($file, 960 + $at, 0);
		sysread($file, my $bytes, 8) == 8 or die;
		sysseek($file, 960 + $at, 0);
		syswrite($file, pack('Q<', unpack('Q<', $bytes) ^ (1 << $bit))) == 8 or die;
		close($file);
		return;
	}

	both_valid($standby, 'built');

	# trust: note
	# event: a bit flips in what a standby keeps in the header of an index file
	foreach my $part (some_of(2, [ 'begun', 0, 16 ], [ 'begun, high', 0, 40 ], [ 'begun, its check', 0, 1 ],
			[ 'timeline', 16, 0 ], [ 'timeline, its check', 16, 32 ],
			[ 'usable_xmin', 24, 33 ], [ 'table', 32, 3 ], [ 'made under', 32, 32 ], [ 'crc', 40, 31 ]))
	{
		my ($name, $at, $bit) = @$part;
		my $position = log_position($standby);
		my $log;

		change_t($primary, ++$round, 300);
		caught_up($primary, $standby);
		$standby->stop($round % 4 ? 'fast' : 'immediate');
		flip_at((index_files(pool($standby)))[$round % 2], $at, $bit);
		change_t($primary, ++$round, 300);
		$standby->start;
		caught_up($primary, $standby);
		both_right($standby, $name);
		$log = logged_since($standby, $position);
		like($log, $damaged, "$name: said");
		is(scalar(() = $log =~ /$built/g), 1, "$name: one is built anew");
	}
	$standby->stop;
	$primary->stop;
}

# ======== kept message ========

# Why replay has given a file up is kept by the startup process, which is in no database,
# and shown by a session that is in one: it is cut after a whole character all the same.  The
# reason for which pmhash is disabled, which is the postmaster's, is shown whole.
{
	my $primary = new_server('primary3', "max_wal_senders = 4\nwal_level = replica\n", allows_streaming => 1);
	$primary->append_conf('pg_hba.conf', "local replication all trust\n");
	$primary->start;
	$primary->safe_psql('postgres', "CREATE DATABASE wide TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
	install_extension($primary, 'wide', <<SQL);
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 100);
CREATE INDEX t_k ON t USING pmhash (k) WITH (wal = on);
SQL
	my $standby = made_standby($primary, 'standby3');
	my $state = "SELECT state FROM pmhash.indexes WHERE index = 't_k'";

	# of a character of two bytes the one or the other
	foreach my $end ('', 'x')
	{
		my $pool = "$PostgreSQL::Test::Utils::tmp_check/$end" . "\xc3\xa4" x 60;

		start_with($standby, "pmhash.rebuild = on\npmhash.directory = '$pool'");
		$standby->poll_query_until('wide', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'") or die;
		$standby->append_conf('postgresql.conf', 'pmhash.rebuild = off');
		$primary->safe_psql('wide', 'CHECKPOINT');    # replay has nothing to apply again, and maps nothing
		caught_up($primary, $standby);
		$standby->restart;
		chmod(0, $_) foreach index_files($pool);
		$primary->safe_psql('wide', 'INSERT INTO t VALUES (1)');
		caught_up($primary, $standby);
		my ($status, $stdout, $stderr) = $standby->psql('wide', "SET client_encoding = latin1; $state");
		is($stderr, '', "monitoring can read the view, path with '$end'");
		like($stdout, qr/^build failed: could not open file "[^"]*\xe4; next try/, '... and why');
		$standby->stop;
	}

	# pmhash is disabled for a reason with a path longer than 512 bytes
	$primary->stop;
	foreach my $end ('', 'x')
	{
		my $pool = $PostgreSQL::Test::Utils::tmp_check . ("/" . "\xc3\xa4" x 100) x 3 . "/p$end";

		start_with($primary, "pmhash.directory = '$pool'");
		my ($status, $stdout, $stderr) = $primary->psql('wide', "SET client_encoding = latin1; $state");
		is($stderr, '', "disabled: monitoring can read the view, path with '$end'");
		like($stdout, qr/^disabled: could not create directory "[^"]*\xe4\/p$end": No such file or directory/, '... and why');
		($status, $stdout, $stderr) = $primary->psql('wide', "SET client_encoding = latin1; REINDEX INDEX t_k");
		like($stderr, qr/DETAIL:  The reason is: could not create directory ".*No such file or directory\./, '... and so can a session');
		$primary->stop;
	}
}

done_testing();
