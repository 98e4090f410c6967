# Pools that cannot be used, and their lock file.

use v5.36;

use File::Path qw(rmtree);
use PmhashFaults;
use PmhashInvalid;
use PmhashTest;
use POSIX qw(ENODEV ENOSPC mkfifo);
use PostgreSQL::Test::RecursiveCopy;

# ======== pool trouble ========

# A pool directory that is not what it should be: the server starts, queries do
# without the indexes, rows can be written, direct uses are ERRORs that name
# index and directory; a repair brings the indexes back, with those rows.
{
	my $node = new_faulty_server('trouble');
	my $pool = pool($node);
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i, i FROM generate_series(1, 5000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE o (k int4);
INSERT INTO o SELECT generate_series(1, 5000);
CREATE INDEX o_k ON o USING pmhash (k);
CREATE TABLE ex (k int4, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO ex VALUES (1);
SQL
	my $select = 'SET enable_seqscan = off; SELECT * FROM t WHERE k = 1';

	# The planner leaves a disabled index alone; a sequential scan answers.
	sub disabled ($message, $name)
	{
		is($node->safe_psql('postgres', $select), '1|1', "$name, SELECT");
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (0, 0)');
		fails_like($node, 'INSERT INTO ex VALUES (0)', qr/"ex_k".*$message/s, "$name, INSERT with a constraint");
		fails_like($node, 'REINDEX INDEX t_k', qr/"t_k".*$message/s, "$name, REINDEX");
		fails_like($node, "SELECT * FROM pmhash.stats('t_k')", qr/"t_k".*$message/s, "$name, pmhash.stats");
		fails_like($node, 'CREATE INDEX ON t USING pmhash (v)', $message, "$name, CREATE INDEX");
		my ($status, $stdout, $stderr) = $node->psql('postgres', 'INSERT INTO ex VALUES (0)');
		my ($reason) = $stderr =~ /^DETAIL:  The reason is: (.*)\.$/m;
		is($node->safe_psql('postgres', "SELECT state FROM pmhash.indexes WHERE index = 't_k'"),
			"disabled: $reason; when that is repaired the server has to be restarted", "$name, pmhash.indexes");
		return;
	}

	sub repaired ($name)
	{
		wait_until($node, "SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid'", "indexes are not rebuilt");
		same_answers($node, 't', 'k', 't_k', $name);
		same_answers($node, 'o', 'k', 'o_k', $name);
		all_checked($node, $name);
		fails_like($node, 'INSERT INTO ex VALUES (1)', qr/violates exclusion constraint "ex_k"/, "$name, constraint");
		return;
	}

	# event: deleted or emptied while the server is down
	# ---- the directory ----
	$node->stop;
	rename($pool, "$pool.away") or die;
	$node->start;
	is($node->safe_psql('postgres', $select), '1|1', 'pool directory gone, SELECT');
	repaired('pool directory gone');
	rmtree("$pool.away");

	# event: read-only, not writable, not a directory or not a pool, when the server starts
	$node->stop;
	chmod(0500, $pool);
	$node->start;
	disabled(qr/\Q$pool\E.*HINT/s, 'read-only pool directory');
	$node->stop;
	chmod(0700, $pool);
	$node->start;
	repaired('read-only pool directory repaired');

	# not a directory; not a pool; not absolute
	my $file = "$PostgreSQL::Test::Utils::tmp_check/not_a_directory";
	append_to_file($file, 'x');
	my $foreign = "$PostgreSQL::Test::Utils::tmp_check/somebodys_home";
	mkdir($foreign);
	chmod(0755, $foreign);
	append_to_file("$foreign/letter.txt", 'dear');
	# event: inside the data directory, when the server starts
	my $inside = $node->data_dir . '/pool';
	foreach my $directory ($file, $foreign, 'relative/path', "$foreign/no/such/parent", $inside, $node->data_dir . '/../pgdata/base')
	{
		restart_with($node, "pmhash.directory = '$directory'");
		disabled(qr/\Q$directory\E/, "pmhash.directory = $directory");
	}
	ok(!-e $inside, 'no pool was made inside the data directory');
	is(slurp_file("$foreign/letter.txt"), 'dear', 'what stood there is left alone');
	is(scalar(my @entries = glob "$foreign/*"), 1, 'and nothing was added');
	is((stat($foreign))[2] & 0777, 0755, 'nor its mode changed');

	# event: other users can write to it when the server starts
	# trust: open-to-others
	my $open = "$PostgreSQL::Test::Utils::tmp_check/open_to_all";
	mkdir($open);
	chmod(0777, $open);
	symlink("$foreign/letter.txt", "$open/lock") or die $!;
	restart_with($node, "pmhash.directory = '$open'");
	disabled(qr/other users can write in directory "\Q$open\E"/, 'open to all');
	is(slurp_file("$foreign/letter.txt"), 'dear', 'open to all: nothing is written through a link');
	unlink("$open/lock") or die $!;
	chmod(0700, $open);
	$node->restart;
	repaired('not open any more');
	# as Kubernetes does it
	$node->stop;
	chmod(02770, $open, grep { -d $_ } glob("$open/*"));
	$node->start;
	disabled(qr/other users can write in directory "\Q$open\E"/, 'open to a group');
	$node->stop;
	chmod(0700, $open);
	$node->start;
	repaired('open to a group no more');

	# event: on a file system that cannot map files
	{
		set_faults($node, calls => 'mmap', error => ENODEV, fail_for => 1_000_000_000, fail_at => 1);
		$node->restart;
		my $from = -s $node->logfile;
		disabled(qr/the file system of directory "\Q$open\E" cannot map files/, 'cannot map');
		$node->safe_psql('postgres', 'UPDATE t SET v = v WHERE k = 2; DELETE FROM t WHERE k = 3; VACUUM t');
		is($node->safe_psql('postgres', 'SELECT disabled_reason FROM pmhash.stat'), "the file system of directory \"$open\" cannot map files", 'cannot map: pmhash.stat');
		is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 3'), '0', 'cannot map: tables work');
		sleep(12);
		unlike(slurp_file($node->logfile, $from), qr/"pmhash launcher".*exited/, 'cannot map: the launcher stays');
	}
	set_faults($node, fail_at => 0);
	$node->restart;
	repaired('can map again');

	# the pool of another cluster: while that one runs, and when it does not
	$PmhashTest::own_initdb = 1;    # another system identifier
	my $neighbour = new_server('neighbour');
	start_with_extension($neighbour);
	$neighbour->safe_psql('postgres',
		'CREATE TABLE n (k int4); INSERT INTO n SELECT generate_series(1, 1000); CREATE INDEX n_k ON n USING pmhash (k)');
	my $theirs = pool($neighbour);
	# event: in use by another server
	restart_with($node, "pmhash.directory = '$theirs'");
	disabled(qr/\Q$theirs\E/, 'pool in use by another server');
	same_answers($neighbour, 'n', 'k', 'n_k', 'the owner');
	# event: replaced by the directory of another cluster
	$node->stop;
	$neighbour->stop;
	$node->start;
	# trust: other-cluster
	disabled(qr/\Q$theirs\E.*another cluster/, 'pool of another cluster');
	$neighbour->start;
	same_answers($neighbour, 'n', 'k', 'n_k', 'the owner again');
	$neighbour->stop;

	# back at home
	restart_with($node, "pmhash.directory = ''");
	repaired('the own pool again');

	# event: its control file is damaged
	# ---- the control file ----
	$node->stop;
	open(my $control, '+<:raw', "$pool/control") or die;
	seek($control, 20, 0);
	print $control "\xff" x 8;
	close($control);
	$node->start;
	is($node->safe_psql('postgres', $select), '1|1', 'damaged control file, SELECT');
	repaired('damaged control file');

	# ---- moved, with the setting and without ----
	my $elsewhere = "$PostgreSQL::Test::Utils::tmp_check/elsewhere";
	my $states = 'SELECT string_agg(DISTINCT state, $$, $$) FROM pmhash.indexes';

	sub move_setting ($directory)
	{
		$node->append_conf('postgresql.conf', "pmhash.directory = '$directory'");
		$node->append_conf('postgresql.conf', 'pmhash.rebuild = off');
		return;
	}

	sub rebuild ($name)
	{
		reload_with($node, 'pmhash.rebuild = on');
		repaired($name);
		return;
	}

	# event: moved, and `pmhash.directory` changed with it
	$node->stop;
	rename($pool, $elsewhere) or die;
	move_setting($elsewhere);
	$node->start;
	is($node->safe_psql('postgres', $states), 'valid', 'directory moved and pmhash.directory changed');
	rebuild('directory moved and pmhash.directory changed');

	# event: `pmhash.directory` changed
	$node->stop;
	move_setting('');
	$node->start;
	is($node->safe_psql('postgres', $states), 'invalid: it does not exist', 'pmhash.directory changed');
	$node->safe_psql('postgres', 'INSERT INTO t SELECT i, i FROM generate_series(5001, 5500) i');
	rebuild('pmhash.directory changed');
	is(scalar(@entries = index_files($elsewhere)), 3, 'pmhash.directory changed: the files in the old place are left');

	# the stubs name files of the new place; one index is as it was
	$node->stop;
	move_setting($elsewhere);
	$node->start;
	unlike($node->safe_psql('postgres', $states), qr/^valid/, 'pmhash.directory changed back');
	rebuild('pmhash.directory changed back');
	wait_for_files($elsewhere, 3, 'pmhash.directory changed back: files');
	$node->stop;
	rmtree($pool);
	rename($elsewhere, $pool) or die;
	move_setting('');
	$node->start;
	rebuild('at home again');

	# ---- unmounted, removed, replaced while the server runs ----
	# For an unmounted file system stands an empty directory, as its mount point.

	# Wait until the launcher has just renewed the nonce, and with it the control file, as it does
	# each second: it looks at the directory before it writes there, so what is put in its place
	# between the two gets a control file.
	sub wait_for_nonce
	{
		my $nonce = slurp_file($node->data_dir . '/pmhash.nonce');

		$node->safe_psql('postgres', q(SELECT pg_logical_emit_message(false, 'pmhash', 'renew')));
		wait_while(sub { slurp_file($node->data_dir . '/pmhash.nonce') eq $nonce }, 10);
		usleep(200_000);
		return;
	}

	# Sessions old and new read and write all the while; nothing is made in what
	# stands in the pool's place.
	sub lost_while_running ($name, $lose, $in_its_place)
	{
		my $reader = $node->background_psql('postgres');
		my $writer = $node->background_psql('postgres');
		my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 7');

		$reader->query_safe($select);
		$writer->query_safe('INSERT INTO t VALUES (7, 7)');
		$lose->();
		is($reader->query_safe('SELECT count(*) FROM t WHERE k = 7'), $before + 1, "$name: a session that has it mapped reads");
		$writer->query_safe('INSERT INTO t VALUES (7, 8)');
		is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7'), $before + 2,
			"$name: a new session reads");
		$reader->query_safe('INSERT INTO t VALUES (7, 9)');
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (7, 10)');
		$node->safe_psql('postgres', 'DELETE FROM t WHERE v = 8; VACUUM t');
		is($_->query_safe('SELECT count(*) FROM t WHERE k = 7'), $before + 3, "$name: and sees all rows")
		  foreach ($reader, $writer);
		fails_like($node, "\\set VERBOSITY verbose\nINSERT INTO ex VALUES (0)", qr/55000: .*"ex_k" has no usable file.*HINT:  (?:Put the directory of pmhash back, or restart the server|Its rebuild has failed)/s, "$name: constraint");
		# trouble: `the directory of pmhash has been unmounted, removed or replaced`
		fails_like($node, 'CREATE INDEX t_v ON t USING pmhash (v)', qr/the directory of pmhash has been unmounted, removed or replaced.*HINT/s, "$name: CREATE INDEX");
		wait_until($node, "SELECT state ~ 'rebuild failed: the directory of pmhash' FROM pmhash.indexes WHERE index = 't_k'", 'the rebuild has not failed');
		is(join(' ', glob("$pool/*")), $in_its_place, "$name: nothing is made in its place");
		$reader->quit;
		$writer->quit;
		return;
	}

	my $away = "$pool.away";
	my $unmount = sub { wait_for_nonce(); rename($pool, $away) or die; mkdir($pool) or die };
	my $mount = sub { rmdir($pool) or die; rename($away, $pool) or die };

	# A plan without the index is gone when a transaction that writes something has begun.
	my $reader = session_with($node, 'SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan');
	$unmount->();
	$reader->query_safe('PREPARE early AS SELECT * FROM o WHERE k = 7');
	is($reader->query_safe('EXECUTE early'), 7, 'unmounted for a moment: a plan without an index');
	$mount->();
	$node->safe_psql('postgres', 'SELECT pg_current_xact_id()');
	like($reader->query_safe('EXPLAIN (COSTS OFF) EXECUTE early'), qr/o_k/, 'mounted again at once: that plan is not kept');
	$reader->quit;

	# event: unmounted while the server runs
	my $untouched = index_file($node, 'o_k');
	lost_while_running('unmounted', $unmount, '');
	my $session = session_with($node, 'SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE o AS SELECT * FROM o WHERE k = 7');
	is($session->query_safe('EXECUTE o'), 7, 'unmounted: a plan without an index');
	$mount->();
	repaired('mounted again');
	is(index_file($node, 'o_k'), $untouched, 'mounted again: an index that no row was left out of was not rebuilt');
	like($session->query_safe('EXPLAIN (COSTS OFF) EXECUTE o'), qr/o_k/, 'mounted again: that plan is not kept');
	$session->quit;
	$node->stop;
	$node->start;
	repaired('mounted again, restarted');

	# event: not mounted when the server starts
	# unmounted when the server is killed and started; mounted again for the next
	$unmount->();
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (8, 8)');
	crash_and_start($node);
	repaired('unmounted, killed, started');
	$node->stop;
	rmtree($pool);
	rename($away, $pool) or die;
	$node->start;
	repaired('mounted again, after a start without');

	# event: deleted or emptied while the server runs
	# removed: the next start makes a new one, and so does the end of any child
	lost_while_running('removed', sub { wait_for_nonce(); rmtree($pool) }, '');
	$node->restart;
	repaired('removed, restarted');
	lost_while_running('emptied', sub { wait_for_nonce(); rmtree($pool, { keep_root => 1 }) }, '');
	restart_in_place($node);
	repaired('emptied, one backend killed');

	# replaced by another cluster's, which stays as it is
	my $neighbour_control = slurp_file("$theirs/control");
	lost_while_running('replaced', sub {
			wait_for_nonce();
			rename($pool, $away) or die;
			rename($theirs, $pool) or die;
			sleep(2);    # a worker visits the database
		},
		join(' ', map { "$pool/$_" } sort map { s,.*/,,r } glob "$theirs/*"));
	$node->stop;
	is(slurp_file("$pool/control"), $neighbour_control, 'replaced: the other pool is not marked');
	rename($pool, $theirs) or die;
	rename($away, $pool) or die;
	$node->start;
	repaired('replaced, the own one put back');
	$neighbour->start;
	same_answers($neighbour, 'n', 'k', 'n_k', 'the owner of the other one');
	$neighbour->stop;

	# event: read-only while the server runs
	# ---- read-only while the server runs ----
	my ($database) = map { s,/[^/]*$,,r } index_files($pool);
	chmod(0500, $pool, $database);
	my $late = session_with($node, 'INSERT INTO t SELECT 9, i FROM generate_series(1, 500) i');
	is($late->query_safe('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 9'),
		$node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE k = 9'),
		'read-only directories: files that are there are read and written');
	$late->quit;
	fails_like($node, 'CREATE INDEX t_v ON t USING pmhash (v)', qr/"t_v": Permission denied/, 'read-only directories, CREATE INDEX');
	$node->safe_psql('postgres', 'DROP INDEX o_k');
	chmod(0700, $pool, $database);
	wait_for_files($pool, 2, 'DROP INDEX in a read-only directory: the cleaner removes the file later');
	$node->safe_psql('postgres', 'CREATE INDEX o_k ON o USING pmhash (k)');
	repaired('writable again');

	# ---- two servers, one a copy of the other, on one pool ----
	$node->stop;
	my $twin = PostgreSQL::Test::Cluster->new('twin');
	PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir, $twin->data_dir);
	chmod(0700, $twin->data_dir);
	$twin->append_conf('postgresql.conf', "pmhash.directory = '$pool'\nport = " . $twin->port
		  . "\nunix_socket_directories = '" . $twin->host . "'");
	$node->start;
	$twin->start;
	like($twin->safe_psql('postgres', $states), qr/^disabled: directory "\Q$pool\E" is in use by another server/, 'a copy of the server, while the first runs');
	is($twin->safe_psql('postgres', $select), '1|1', 'a copy of the server, SELECT');
	repaired('the first of two');
	$twin->stop;
	restart_in_place($node);
	$twin->start;
	like($twin->safe_psql('postgres', $states), qr/is in use by another server/, 'a copy of the server, the first restarted in place');
	$node->stop;
	$twin->restart;
	unlike($twin->safe_psql('postgres', $states), qr/^disabled/, 'a copy of the server, when the first is down');
	$twin->poll_query_until('postgres', "SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid'") or die;
	same_answers($twin, 't', 'k', 't_k', 'a copy of the server');
	$twin->safe_psql('postgres', 'INSERT INTO t SELECT 11, i FROM generate_series(1, 500) i');
	$twin->stop;
	$node->start;
	repaired('the first of two, after the copy has used its pool');
	$node->stop;
}

# ======== lock file ========

# The lock file of the pool is not as the server has left it.  Without one that can be written
# and locked pmhash is disabled; what is in its place neither holds the start up nor is used.
{
	my $node = new_faulty_server('lock_file');
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING pmhash (k);
SQL
	my $lock = pool($node) . '/lock';

	sub used ($name)
	{
		ok($node->poll_query_until('postgres', q(SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k')),
			"$name: the index is valid");
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (7)');
		same_answers($node, 't', 'k', 't_k', $name);
		return;
	}

	# event: the lock file cannot be created, written or locked, or is not a file (a directory, a link, a fifo), when the server starts
	# trouble: LOG: `pmhash is disabled: could not open file ".../lock": ...`
	$node->stop;
	sub refused ($how, $reason)
	{
		my $from = -s $node->logfile;

		$node->start;
		like(slurp_file($node->logfile, $from), qr/LOG:  pmhash is disabled: \Q$reason\E\n/, "$how: the log says so");
		is(index_state($node, 't_k'), "disabled: $reason; when that is repaired the server has to be restarted", "$how: disabled");
		is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 8'), '1', '... queries do without');
		$node->stop;
		return;
	}
	chmod(0400, $lock) or die $!;
	refused('mode 0400', "could not open file \"$lock\": Permission denied");
	chmod(0600, $lock) or die $!;
	$node->start;
	used('mode 0600 again');
	$node->stop;
	rename($lock, "$lock.away") or die $!;
	mkfifo($lock, 0600) or die $!;
	refused('a fifo', "\"$lock\" is not a file");
	unlink($lock) or die $!;
	my $before = slurp_file("$lock.away");
	symlink("$lock.away", $lock) or die $!;
	refused('a link', "could not open file \"$lock\": Too many levels of symbolic links");
	is(slurp_file("$lock.away"), $before, 'a link: nothing is written through it');
	unlink($lock) or die $!;
	set_faults($node, calls => 'open', error => ENOSPC, fail_at => 1);
	refused('no space for it', "could not open file \"$lock\": No space left on device");
	set_faults($node, fail_at => 0);
	ok(!-e $lock, 'no space for it: there is none');
	mkdir($lock) or die $!;
	refused('a directory', "could not open file \"$lock\": Is a directory");
	rmdir($lock) or die $!;
	rename("$lock.away", $lock) or die $!;
	$node->start;
	used('the file again');
	$node->stop;
}

done_testing();
