# The life of a server and its indexes.

use v5.36;

use PmhashInvalid;
use PmhashTest;

# ======== life cycle ========

# Index files come and go with their indexes, through commits, aborts,
# prepared transactions, crashes and dropped databases.
{
	# no cleaner hides at first what transactions leave
	my $node = new_server('life', "pmhash.cleaner_naptime = 600\n");
	my $pool = pool($node);
	start_with_extension($node);
	$node->safe_psql('postgres',
		'CREATE TABLE t (k int4); INSERT INTO t SELECT generate_series(1, 1000)');

	sub run ($sql, $files, $name)
	{
		$node->safe_psql('postgres', $sql);
		return wait_for_files($pool, $files, $name);
	}

	# Files that go with a transaction are gone when it has ended.
	sub at_once ($sql, $files, $name)
	{
		$node->safe_psql('postgres', $sql);
		return is(scalar(index_files($pool)), $files, $name);
	}

	# ---- modes ----
	run('CREATE INDEX t_k ON t USING pmhash (k)', 1, 'CREATE INDEX');
	my $mode = sub { sprintf('%04o', (stat($_[0]))[2] & 07777) };
	is($mode->($pool), '0700', 'mode of the pool directory');
	is($mode->((index_files($pool))[0]), '0600', 'mode of an index file');
	(my $database = (index_files($pool))[0]) =~ s,/[^/]*$,,;
	is($mode->($database), '0700', 'mode of the database directory');
	is($mode->("$pool/control"), '0600', 'mode of the control file');

	# event: rolled back or failed `CREATE INDEX`, `DROP INDEX`, `DROP DATABASE`
	# ---- transactions ----
	at_once('DROP INDEX t_k', 0, 'DROP INDEX');
	at_once('BEGIN; CREATE INDEX t_k ON t USING pmhash (k); ROLLBACK', 0, 'rolled back CREATE INDEX');
	at_once(<<SQL, 1, 'CREATE INDEX rolled back in part');
BEGIN;
CREATE INDEX t_k ON t USING pmhash (k);
SAVEPOINT a;
CREATE INDEX t_k2 ON t USING pmhash (k);
ROLLBACK TO a;
COMMIT;
SQL
	at_once(<<SQL, 1, 'subtransaction that aborts with its parent');
BEGIN;
SAVEPOINT a;
CREATE INDEX t_k2 ON t USING pmhash (k);
RELEASE a;
ROLLBACK;
SQL
	at_once('BEGIN; DROP INDEX t_k; ROLLBACK', 1, 'rolled back DROP INDEX');
	same_answers($node, 't', 'k', 't_k', 'rolled back DROP INDEX');
	fails_like($node, 'CREATE INDEX t_fail ON t USING pmhash ((1 / (k - 500)))', qr/division by zero/,
		'CREATE INDEX that fails');
	is(scalar(index_files($pool)), 1, 'CREATE INDEX that fails, files');
	reload_with($node, 'pmhash.cleaner_naptime = 1');

	# event: `REINDEX`, `VACUUM FULL`, `CLUSTER`, `TRUNCATE`, `ALTER TYPE`
	# ---- new files for old (more of it: files/ddl) ----
	foreach my $command (
		'REINDEX INDEX CONCURRENTLY t_k',
		'VACUUM FULL t',
		'TRUNCATE t; INSERT INTO t SELECT generate_series(1, 1000)',
		'ALTER TABLE t ALTER k TYPE int8',
		'CREATE INDEX t_order ON t (k); CLUSTER t USING t_order; DROP INDEX t_order',
		'ALTER TABLE t SET UNLOGGED',
		'ALTER TABLE t SET LOGGED',
		'BEGIN; CREATE TABLE n (k int4); CREATE INDEX n_k ON n USING pmhash (k);'
		  . ' TRUNCATE n; TRUNCATE n; DROP TABLE n; COMMIT',
		'CREATE INDEX CONCURRENTLY t_c ON t USING pmhash (k); DROP INDEX CONCURRENTLY t_c',)
	{
		# one command a transaction, where a semicolon does not say otherwise
		my @commands = $command =~ /BEGIN/ ? ($command) : split(/; /, $command);
		$node->safe_psql('postgres', $_) foreach @commands;
		wait_for_files($pool, 1, $command);
		same_answers($node, 't', 'k', 't_k', $command);
	}
	run('DROP TABLE t', 0, 'DROP TABLE');

	# ---- prepared transactions ----
	$node->safe_psql('postgres',
		'CREATE TABLE t (k int4); INSERT INTO t SELECT generate_series(1, 1000)');
	run("BEGIN; CREATE INDEX t_k ON t USING pmhash (k); PREPARE TRANSACTION 'p'", 1, 'prepared CREATE INDEX');
	run("ROLLBACK PREPARED 'p'", 0, 'rolled back prepared CREATE INDEX');
	run("BEGIN; CREATE INDEX t_k ON t USING pmhash (k); PREPARE TRANSACTION 'p'", 1, 'prepared CREATE INDEX');
	sleep 3;    # for the cleaner to make a mistake
	run("COMMIT PREPARED 'p'", 1, 'committed prepared CREATE INDEX');
	same_answers($node, 't', 'k', 't_k', 'committed prepared CREATE INDEX');
	run("BEGIN; DROP INDEX t_k; PREPARE TRANSACTION 'p'", 1, 'prepared DROP INDEX');
	run("ROLLBACK PREPARED 'p'", 1, 'rolled back prepared DROP INDEX');
	same_answers($node, 't', 'k', 't_k', 'rolled back prepared DROP INDEX');
	run("BEGIN; DROP INDEX t_k; PREPARE TRANSACTION 'p'", 1, 'prepared DROP INDEX');
	run("COMMIT PREPARED 'p'", 0, 'committed prepared DROP INDEX');

	# ---- temporary tables ----
	my $temp = session_with($node, 'CREATE TEMP TABLE tmp (k int4)');
	$temp->query_safe('CREATE INDEX tmp_k ON tmp USING pmhash (k)');
	$temp->query_safe('INSERT INTO tmp SELECT generate_series(1, 1000)');
	sleep 3;
	is(scalar(index_files($pool)), 1, 'file of a temporary index');
	is($temp->query_safe('SELECT by_index FROM every_key($$tmp$$, $$k$$, $$tmp_k$$)'),
		'same', 'temporary index');
	$temp->quit;
	wait_for_files($pool, 0, 'file of a temporary index after its session');

	# a session that is killed takes its temporary index along
	$temp = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $temp->query_safe('SELECT pg_backend_pid()');
	$temp->query_safe('CREATE TEMP TABLE tmp (k int4)');
	$temp->query_safe('CREATE INDEX tmp_k ON tmp USING pmhash (k)');
	is(scalar(index_files($pool)), 1, 'file of a temporary index');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 10000)");
	wait_for_files($pool, 0, 'file of a temporary index after pg_terminate_backend');
	eval { $temp->quit };

	# A copy says that a process has made it which has gone: it is removed.  One that says the
	# same as the original is taken for what that session has made.
	$temp = session_with($node, 'CREATE TEMP TABLE tmp (k int4); CREATE INDEX tmp_k ON tmp USING pmhash (k)');
	my ($own) = index_files($pool);
	my ($same, $left) = map { $own =~ s/[0-9a-f]{16}(?=\.pmh$)/$_/r } 'fedcba9876543210', 'fedcba9876543211';
	foreach my $copy ($same, $left)
	{
		system_or_bail('cp', '--sparse=always', $own, "$copy.new");
		if ($copy eq $left)
		{
			my $format = substr(slurp_file("$copy.new"), 0, 192);

			substr($format, 48 + 88, 4) = pack('V', $pid);    # owner_pid, src/cluster/base/shared.h
			substr($format, 28, 4) = pack('V', 0);
			substr($format, 28, 4) = pack('V', PmhashInvalid::crc32c($format));
			PmhashInvalid::patch_file("$copy.new", 0, $format);
		}
		rename("$copy.new", $copy) or die "$copy: $!";
	}
	wait_for_files($pool, 2, 'the file of a session that has ended');
	is(join(' ', index_files($pool)), join(' ', sort $own, $same), 'and no other');
	$temp->quit;
	wait_for_files($pool, 0, 'all of them when the session has ended');

	# ---- crashes ----
	# event: crash during `CREATE INDEX`, or a session with temporary indexes is killed
	# CREATE INDEX that has not committed, temporary and unlogged indexes
	$node->safe_psql('postgres', <<SQL);
CREATE INDEX t_k ON t USING pmhash (k);
CREATE UNLOGGED TABLE u (k int4);
CREATE INDEX u_k ON u USING pmhash (k);
INSERT INTO u SELECT generate_series(1, 1000);
SQL
	$temp = session_with($node, 'CREATE TEMP TABLE tmp (k int4)', on_error_stop => 0);
	$temp->query_safe('CREATE INDEX tmp_k ON tmp USING pmhash (k)');
	$temp->query_safe('BEGIN');
	$temp->query_safe('CREATE INDEX t_open ON t USING pmhash (k)');
	is(scalar(index_files($pool)), 4, 'files before a crash');
	crash($node);
	eval { $temp->quit };
	$node->start;
	# event: unlogged table after a crash, or a promotion
	is($node->safe_psql('postgres', 'SELECT count(*) FROM u'), '0', 'unlogged table after a crash');
	same_answers($node, 't', 'k', 't_k', 'after a crash');
	$node->safe_psql('postgres', 'INSERT INTO u SELECT generate_series(1, 500)');
	same_answers($node, 'u', 'k', 'u_k', 'unlogged index after a crash');
	wait_for_files($pool, 2, 'files after a crash');
	# event: a backend is killed, as by the out-of-memory killer, or crashes
	# one backend dies; the others are restarted
	restart_in_place($node);
	same_answers($node, 't', 'k', 't_k', 'after a crash of one backend');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM u'), '0', 'unlogged table after a crash of one backend');
	$node->safe_psql('postgres', 'INSERT INTO u SELECT generate_series(1, 500)');
	same_answers($node, 'u', 'k', 'u_k', 'unlogged index after a crash of one backend');
	wait_for_files($pool, 2, 'files after a crash of one backend');

	# DROP and crash at once
	$node->safe_psql('postgres', 'DROP INDEX t_k');
	crash_and_start($node);
	wait_for_files($pool, 1, 'DROP INDEX, then a crash');
	run('DROP TABLE t, u', 0, 'all dropped');

	# ---- databases ----
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	install_extension($node, 'other');
	$node->safe_psql('other',
		'CREATE TABLE t (k int4); INSERT INTO t SELECT generate_series(1, 1000); CREATE INDEX t_k ON t USING pmhash (k); CREATE INDEX t_k2 ON t USING pmhash ((-k))');
	wait_for_files($pool, 2, 'indexes of another database');
	same_answers($node, 't', 'k', 't_k', 'another database', 'other');
	$node->safe_psql('postgres', 'DROP DATABASE other');
	wait_for_files($pool, 0, 'DROP DATABASE');
	# The launcher removes it right after the last file.
	my $deadline = time + 60;
	my $others = sub { grep { -d } grep { !/\Q$database\E$/ } glob "$pool/[0-9]*" };
	usleep(50_000) while $others->() && time < $deadline;
	ok(!$others->(), 'the directory went with the database');

	$node->stop;
	ok($node->start, 'start with an empty pool');
	$node->stop;
}

# ======== by itself ========

# What pmhash gets over: a pool that could not be written or read when the server was started,
# starts that fail, and a clock that is set back.
{
	my $shim = preloadable('step_clock');
	$ENV{STEP_CLOCK} = "$PostgreSQL::Test::Utils::tmp_check/step";
	my $node = new_server('itself');
	my $pool = pool($node);
	my $token = $node->data_dir . '/pmhash.nonce';

	start_with_extension($node, invalid_fixture());

	# event: not writable, on a read-only file system, or with an unreadable control file (mode, disk error, no descriptor), when the server starts; later it is usable again
	foreach my $case ([ 'not writable', $pool, 0500, qr/./ ],
		[ 'control file not readable', "$pool/control", 0, qr{could not read file "\Q$pool\E/control": Permission denied} ])
	{
		my ($what, $path, $mode, $why) = @$case;

		foreach my $how ('shut down', 'killed')
		{
			my $name = "$what, $how before";
			my $was = (stat($path))[2] & 0777;

			$how eq 'killed' ? crash($node) : $node->stop;
			chmod($mode, $path) or die $!;
			$node->start;
			like(index_state($node, 't_k'), qr{^disabled: $why}, "$name: disabled");
			# trust: token-gone
			ok(!-e $token, "$name: no mark of trust");
			$node->safe_psql('postgres', 'INSERT INTO t SELECT 7, i FROM generate_series(1, 20) i');
			fails_like($node, 'INSERT INTO ex VALUES (2000)', qr/HINT: .*restart the server/, "$name: a constraint");
			chmod($was, $path) or die $!;
			$node->restart;
			all_come_back($node, $name);
			crash_and_start($node);
			is($node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), 'valid', "$name: killed");
		}
	}

	# ---- a run that could not use the pool and has ended in order as well ----
	my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash.indexes';
	my $before = $node->safe_psql('postgres', $files);
	$node->stop;
	rename($pool, "$pool.away") or die $!;
	append_to_file($pool, 'in the way');
	$node->start;
	$node->safe_psql('postgres', 'CREATE TABLE meanwhile AS SELECT generate_series(1, 1000) AS i; CHECKPOINT');
	$node->restart;
	$node->stop;
	unlink($pool);
	rename("$pool.away", $pool) or die $!;
	$node->start;
	is($node->safe_psql('postgres', $files), $before, 'disabled for two runs, each shut down: kept');
	all_come_back($node, 'disabled for two runs, each shut down');

	# and one that has not
	$node->stop;
	rename($pool, "$pool.away") or die $!;
	append_to_file($pool, 'in the way');
	start_without_rebuilds($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	crash($node);
	unlink($pool);
	rename("$pool.away", $pool) or die $!;
	$node->start;
	like($node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), qr/^invalid/, 'disabled for a run that was killed: not trusted');
	all_rebuilt($node, 'disabled for a run that was killed');
	$node->stop;

	# event: clean shutdown, and starts that fail (an error in `pg_hba.conf`, for instance) or are killed before the server runs
	my $hba = $node->data_dir . '/pg_hba.conf';
	rename($hba, "$hba.away") or die $!;
	is($node->start(fail_ok => 1), 0, "a start fails: $_") foreach 1, 2;
	rename("$hba.away", $hba) or die $!;
	unlike(log_of_start($node), qr/not trusted/, 'failed starts after an orderly end: trusted');
	is($node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), 'valid', 'failed starts after an orderly end: valid');
	$node->stop;

	# event: the clock is set back
	{
		local $ENV{LD_PRELOAD} = $shim;
		$node->start;
	}
	my $time = $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())::int8');
	append_to_file($ENV{STEP_CLOCK}, '');
	cmp_ok($node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())::int8'), '<', $time - 3000, 'the clock is set back');
	my $nonce = slurp_file($token);
	for (my $i = 0; $i < 100 && slurp_file($token) eq $nonce; $i++)
	{
		$node->safe_psql('postgres', "INSERT INTO t VALUES (8, $i)");
		usleep(100_000);
	}
	isnt(slurp_file($token), $nonce, 'the nonce is renewed all the same');
	$node->stop;
}

# ======== warm up ========

# Index files are read into memory as a whole when the server starts, if there is room.
{
	my $node = new_server('warm', "log_min_messages = debug1\nautovacuum = off\n");
	my $pool = pool($node);

	start_with_extension($node, q(
		CREATE TABLE small (k int);
		INSERT INTO small SELECT generate_series(1, 100);
		CREATE INDEX small_k ON small USING pmhash (k);
		CREATE TABLE large (k int);
		INSERT INTO large SELECT generate_series(1, 200000);
		CREATE INDEX large_k ON large USING pmhash (k);));
	my %file;
	@file{ 'small', 'large' } = sort { -s $a <=> -s $b } index_files($pool);

	# Parts of a file that are in memory; undef: they cannot be had out of it, or nobody tells.
	sub resident ($table)
	{
		my ($pages) = `fincore --bytes --noheadings --output RES $file{$table} 2>/dev/null` =~ /(\d+)/;

		return defined $pages ? $pages / -s $file{$table} : undef;
	}

	# Start with this setting and no index file in memory; what the worker says.
	sub start_cold ($setting)
	{
		$node->stop;
		$node->append_conf('postgresql.conf', "pmhash.warm_up = $setting\n");
		system_or_bail('dd', "of=$_", 'conv=notrunc,fdatasync', 'oflag=nocache', 'count=0', 'status=none')
		  for values %file;
		my $cold = (resident('large') // 1) == 0;
		my $at = -s $node->logfile;
		$node->start;
		return ('', $cold) if $setting eq '0';
		$node->wait_for_log(qr/pmhash: read \d+ files into memory/, $at);
		my ($line) = slurp_file($node->logfile, $at) =~ /pmhash: (read \d+ files into memory, \d+ bytes; left \d+)/;
		return ($line, $cold);
	}

	my ($all, $cold) = start_cold(-1);
	my ($bytes) = $all =~ /, (\d+) bytes; left 0$/;
	cmp_ok($bytes // 0, '>', 0.7 * -s $file{large}, 'a file that fits is read as a whole, but for what has not been written');
	SKIP:
	{
		skip 'what is in memory is not known here', 1 if !$cold;
		cmp_ok(resident('large'), '>', 0.7, 'and is in memory then');
	}

	my ($few) = start_cold('3MB');
	like($few, qr/; left 1$/, 'one that does not fit is not');
	SKIP:
	{
		skip 'what is in memory is not known here', 1 if !$cold;
		cmp_ok(resident('large'), '<', 0.2, 'nor does it come there by itself');
	}

	start_cold(0);
	is($node->safe_psql('postgres', q(SET enable_seqscan = off; SELECT count(*) FROM large WHERE k = 7)), '1', 'the index is used');
	is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pmhash warmer')), '0', 'no worker without memory for it');
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'all went well');
	$node->stop;
}

done_testing();
