# Files that go while they are in use.

use v5.36;

use File::Path qw(rmtree);
use PmhashInvalid;
use PmhashStops;
use PmhashTest;
use IPC::Run;

# ======== removed under a plan ========

# A file that is removed while a session has it mapped, and a plan: what others have added
# can be read on, by the mapping.  What has to make it longer cannot: a scan does not miss
# rows of its own transaction that cannot get in, but walks through the table, or is an error
# that says to try again.
{
	my $node = new_server('removed');
	start_with_extension($node);

	# event: removed while a session has it mapped
	my %scans = (
		one => 'SELECT count(v) FROM t WHERE k = 150000',
		several => 'SELECT count(v) FROM t WHERE k IN (3, 150000, 199999, 7)',
		all => 'SELECT count(v) FROM t WHERE k = 150000');
	my %columns = (one => 'k', several => 'k', all => 'k, v');
	my %settings = (
		one => 'SET enable_bitmapscan = off',
		several => 'SET enable_bitmapscan = off',
		all => 'SET enable_indexscan = off');

	# A table of 100 rows, with an index on these columns.
	sub make_table ($columns)
	{
		$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS t;
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX t_k ON t USING pmhash ($columns);
SQL
		return;
	}

	foreach my $kind (sort keys %scans)
	{
		foreach my $column ('v', 'k')
		{
			(my $query = $scans{$kind}) =~ s/count\(v\)/count($column)/;
			make_table($columns{$kind});
			my $session = session_with($node, "SET enable_seqscan = off; $settings{$kind}; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query", on_error_stop => 0);
			is($session->query_safe('EXECUTE q'), $kind eq 'several' ? 2 : 0, "$kind, $column: before");
			rebuild_off($node);
			$node->safe_psql('postgres', 'INSERT INTO t SELECT i, i FROM generate_series(101, 200000) i');
			$session->query_safe('BEGIN; SELECT FROM t LIMIT 0; SAVEPOINT s');    # it has all locks from before
			unlink(index_file($node, 't_k')) or die;
			my $answer = $session->query('EXECUTE q');
			is($answer, $kind eq 'several' ? 4 : 1, "$kind, $column: all rows");
			is($session->{stderr}, '', "$kind, $column: no error");
			is(index_state($node, 't_k'), 'invalid: it does not exist', "$kind, $column: marked");
			rebuild_on($node);
			$session->query('COMMIT');
			$session->quit;
		}
	}

	# ---- a long list that others have added ----

	make_table('k');
	my $session = session_with($node, 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan; PREPARE q AS SELECT count(v) FROM t WHERE k IN (3, 7)', on_error_stop => 0);
	is($session->query_safe('EXECUTE q'), 2, 'a list: before');
	rebuild_off($node);
	$node->safe_psql('postgres', 'INSERT INTO t SELECT 7, i FROM generate_series(1, 300000) i');
	unlink(index_file($node, 't_k')) or die;
	is($session->query('EXECUTE q'), 300002, 'a list: all rows');
	rebuild_on($node);
	$session->quit;

	# ---- the pool is not mounted any more, and a file of it is mapped ----

	my $pool = pool($node);

	make_table('k');
	$session = session_with($node, 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan', on_error_stop => 0);
	$session->query_safe('PREPARE q AS SELECT count(k) FROM t WHERE k = 150000; PREPARE w AS SELECT count(v) FROM t WHERE k = 150000');
	is($session->query_safe('EXECUTE q; EXECUTE w'), "0\n0", 'unmounted: before');
	$node->safe_psql('postgres', 'INSERT INTO t SELECT i, i FROM generate_series(101, 200000) i');
	rename($pool, "$pool.away") or die;
	is($session->query($_), 1, "unmounted: $_") foreach ('EXECUTE w', 'EXECUTE q');
	$session->{stderr} = '';
	rename("$pool.away", $pool) or die;
	is($session->query_safe('EXECUTE q; EXECUTE w'), "1\n1", 'mounted again');
	$session->quit;

	# ---- the session's own rows wait in a queue, and do not all go in any more ----

	# Whoever is about to read applies the queue, and what it has opened lacks them then: name,
	# answer of the table, may there be an error instead, ...
	my $lateral = 'SELECT count(x.v) FROM generate_series(1002951, 1003000) g, LATERAL (SELECT v FROM t WHERE k = g OFFSET 0) x';
	my @own = (
		[ 'index scan', 50, 0, $lateral, 'SET enable_bitmapscan = off; SET pmhash.enable_pagescan = off', 'Index Scan' ],
		[ 'bitmap scan', 50, 0, $lateral, 'SET enable_indexscan = off; SET pmhash.enable_pagescan = off', 'Bitmap Index Scan' ],
		[ 'page scan', 1, 1, 'SELECT count(v) FROM t WHERE k = 1003000', 'SET enable_bitmapscan = off', 'pmhash page scan' ],
		[ 'join', 50, 1, 'SELECT count(t.v) FROM generate_series(1002951, 1003000) g JOIN t ON t.k = g', 'SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off', 'pmhash join' ],
		[ 'pmhash.stats', undef, 1, q(SELECT entries FROM pmhash.stats('t_k')), '', '' ],
		[ 'pmhash.check', undef, 1, q(SELECT pmhash.check('t_k')), '', '' ]);
	foreach my $own (@own)
	{
		my ($name, $wanted, $may_raise, $query, $set, $plan) = @$own;
		$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS t;
CREATE TABLE t (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, i FROM generate_series(1, 100000) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL
		$session = session_with($node, "SET enable_seqscan = off; $set; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query", on_error_stop => 0);
		$session->query_safe('EXECUTE q');
		like($session->query_safe('EXPLAIN (COSTS OFF) EXECUTE q'), qr/$plan/, "own rows, $name: planned");
		rebuild_off($node);
		unlink(index_file($node, 't_k')) or die;
		$session->query_safe('BEGIN; INSERT INTO t SELECT 1000000 + i, i FROM generate_series(1, 3000) i');
		my $answer = $session->query('EXECUTE q');
		# (when somebody else has marked the index meanwhile, the statement is planned anew and
		# the table answers here too)
		if (defined($wanted) && !($may_raise && $session->{stderr} =~ /ERROR/))
		{
			is($answer, $wanted, "own rows, $name: the table instead");
		}
		else
		{
			like($session->{stderr}, qr/ERROR:  pmhash index "t_k" has no usable file/, "own rows, $name: not without the index");
		}
		$session->query('ROLLBACK');
		is(index_state($node, 't_k'), 'invalid: it does not exist', "own rows, $name: marked");
		rebuild_on($node);
		$session->quit;
	}
	$node->stop;
}

# ======== removed under a scan ========

# A file that is removed while a scan is under way, or has left dead entries to be removed:
# reads do what they do without it.  What is found at
# their beginning is the matter of the section before this one.
{
	my $node = new_server('removed2', 'pmhash.rebuild = off', install_path => install_with_stop_points());
	my $points = use_stop_points($node);
	start_with_extension($node);

	# Key 1 has a long list, 2 a shorter one, 10 to 2009 a row each.  All that the session has
	# to see later is in what it maps now; others then add what makes it map anew.
	sub make_table_of_removed_under_a_scan ($options)
	{
		$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS t;
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT 1, i FROM generate_series(1, 6000) i;
INSERT INTO t SELECT 2, i FROM generate_series(1, 300) i;
INSERT INTO t SELECT i, i FROM generate_series(10, 2009) i;
CREATE INDEX t_k ON t USING pmhash (k) $options;
VACUUM ANALYZE t;
SQL
		return;
	}

	sub grow_and_remove
	{
		my $file = index_file($node, 't_k');

		at_once('INSERT INTO t SELECT i, i FROM generate_series(100000, 130000) i; INSERT INTO t SELECT 1, i FROM generate_series(100000, 130000) i');
		unlink($file) or die "$file: $!";
		return;
	}

	# ---- scans ----

	my $rows = 'SELECT count(*), count(DISTINCT ctid), sum(v) FROM t WHERE';
	my $many = 'k = ANY (ARRAY(SELECT generate_series(1, 2009)))';
	my @scans = (
		[ 'array', $by{index}, "$rows k IN (1, 10)", 'array_before_list', 'Index Scan using t_k ' ],
		[ 'array, bitmap', $by{bitmap}, "$rows k IN (1, 10)", 'array_before_list', 'Bitmap Index Scan on t_k' ],
		[ 'bitmap, batches', $by{bitmap}, "$rows k = 1", 'scan_between_batches', 'Bitmap Index Scan on t_k' ],
		[ 'array, batches', $by{index}, "$rows $many", 'scan_between_batches', 'Index Scan using t_k ' ],
		[ 'index scan', $by{index}, "$rows k = 1", 'scan_between_batches', 'Index Scan using t_k ' ],
		[ 'page scan', $by{pages}, "$rows k = 1", 'pages_between_batches', 'Custom Scan (pmhash page scan)' ],
		[ 'index-only scan', $by{index}, 'SELECT count(*) FROM t WHERE k IN (1, 10)', 'array_before_list', 'Index Only Scan using t_k' ],
		[
			'join', $by{join},
			'SELECT count(*), sum(v) FROM (SELECT o % 9 AS o FROM generate_series(1, 2009) o) o JOIN t ON k = o',
			'join_before_rows', 'Custom Scan (pmhash join)'
		]);

	foreach my $scan (@scans)
	{
		my ($name, $settings, $query, $point, $plan) = @$scan;

		make_table_of_removed_under_a_scan('');
		my $wanted = $node->safe_psql('postgres', "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off; $query");
		like($node->safe_psql('postgres', "$settings; EXPLAIN (COSTS OFF) $query"), qr/\Q$plan/, "$name: plan");
		my $session = start_and_hold($point, "$settings; $query", $name);
		grow_and_remove();
		release($point);
		is(finish($session), $wanted, "$name: the file that it has, or the table");
		is(index_state($node, 't_k'), 'invalid: it does not exist', "$name: marked");
	}

	# ---- entries found dead ----

	my $dead = session_with($node, "$by{index}; SET plan_cache_mode = force_generic_plan", on_error_stop => 0);

	# Were they to be removed, by the session whose scan has found them?  They are of many
	# segments, of which some stand elsewhere by then.
	sub dead_ones_of_removed ($name, $options)
	{
		my $point = "$points/dead_before_removal";
		my $releaser;

		make_table_of_removed_under_a_scan($options);
		$node->safe_psql('postgres', 'DELETE FROM t WHERE k BETWEEN 11 AND 399');
		$dead->query_safe('PREPARE q AS SELECT v FROM t WHERE k = 10');
		is($dead->query_safe('EXECUTE q'), 10, "$name: before");
		$dead->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT v FROM t WHERE k = ANY (ARRAY(SELECT generate_series(11, 400)))');
		is($dead->query_safe('FETCH 1 FROM c'), 400, "$name: found");
		grow_and_remove();
		hold('dead_before_removal');
		$releaser = IPC::Run::start([ 'sh', '-c', "until rm '$point.held' 2>/dev/null; do sleep 0.05; done" ]);
		is($dead->query('CLOSE c; SELECT 1'), 1, "$name: what had nothing to hand out any more does not fail");
		is($dead->query('SELECT 2'), 2, "$name: the transaction goes on");
		is($dead->query('COMMIT; EXECUTE q'), 10, "$name: a scan begins, which is to remove them");
		is($dead->{stderr}, '', "$name: no error");
		is(index_state($node, 't_k'), 'invalid: it does not exist', "$name: marked");
		$dead->{stderr} = '';
		$dead->query_safe('DEALLOCATE q');
		$releaser->kill_kill;
		return !unlink($point);
	}

	# A scan that has met some process's old snapshot does not know them for dead.
	foreach my $logged ('off', 'on')
	{
		my $name = "dead entries, wal = $logged";
		my $tries = 10;

		$tries-- until $tries == 0 || dead_ones_of_removed($name, "WITH (wal = $logged)");
		isnt($tries, 0, "$name: they were to be removed");
	}
	$dead->quit;

	# ---- VACUUM ----

	make_table_of_removed_under_a_scan('');
	$node->safe_psql('postgres', 'DELETE FROM t WHERE v % 3 = 0');
	my $session = start_and_hold('vacuum_before_removal', 'VACUUM t', 'VACUUM');
	grow_and_remove();
	release('vacuum_before_removal');
	like(finish($session), qr/has no usable file|^$/, 'VACUUM: it may fail once');
	is(index_state($node, 't_k'), 'invalid: it does not exist', 'VACUUM: marked');
	is(at_once('VACUUM t'), '', 'VACUUM: then it passes the index by');
	$node->safe_psql('postgres', 'DELETE FROM t WHERE v > 1000; REINDEX INDEX t_k');
	same_answers($node, 't', 'k', 't_k', 'made anew');
	$node->stop;
}

# ======== in use ========

# Damage while the server runs: to files that are not in use just now, which the
# cleaner finds; and to a bucket, which pmhash.check finds.
{
	my $node = new_server('in_use');
	my $pool = pool($node);
	start_with_extension($node, invalid_fixture());
	my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

	# Wait for a line of the log; no session looks at an index meanwhile.
	sub wait_for_rebuild ($index, $from, $name)
	{
		return ok($node->wait_for_log(qr/index "$index" of table "\w+" has been rebuilt/, $from), "$name: rebuilt though it is not in use");
	}

	# event: removed, damaged or cut off while not in use
	# ---- files that are not in use ----
	foreach my $case (file_damage())
	{
		my ($name, $reason, $damage) = @$case;
		my @files = (index_file($node, 't_k'), index_file($node, 'o_k'));
		my $log = -s $node->logfile;

		$damage->(@files);
		wait_for_rebuild('t_k', $log, $name);
		# one that is being overwritten may be met half-way
		$reason = qr/\Q$reason\E/;
		$reason = qr/$reason|it is damaged/ if $name eq 'file of another index';
		like(slurp_file($node->logfile, $log), qr/The file it had before could not be used: $reason/,
			"$name: reason");
		comes_back($node, $name);
	}

	# all files of a database
	{
		my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'postgres'");
		my $log = -s $node->logfile;

		rmtree("$pool/$oid");
		wait_for_rebuild($_, $log, "directory of a database, $_") foreach qw(t_k t_v o_k ex_k);
		all_come_back($node, 'directory of a database');
	}

	# ---- findings of pmhash.check ----
	$node->safe_psql('postgres', 'CREATE INDEX o_v ON o USING pmhash (k) WITH (fillfactor = 98); DROP INDEX o_k');
	{
		my $session = session_with($node, 'SET enable_seqscan = off; SELECT count(*) FROM o WHERE k = 1');
		my $file = index_file($node, 'o_v');
		my $check = "BEGIN; SELECT pmhash.check('o_v'); ROLLBACK";

		is($node->psql('postgres', $check), 0, 'sound before');
		rebuild_off($node);
		# buckets that no writer leaves so
		patch_file($file, first_segment($file), "\xa5" x 16384);
		# trouble: `file "..." of index "..." is damaged`
		fails_like($node, $check, qr/ERROR:  file "\S+" of index "o_v" is damaged/, 'damaged buckets: found');
		# trouble: `pmhash index "..." has no usable file`
		fails_like($node, $check, qr/ERROR:  pmhash index "o_v" has no usable file\n.*it is damaged/, 'damaged buckets: once more');
		is($session->query_safe('SELECT count(*) FROM generate_series(1, 5000) i JOIN o ON o.k = i'), '5000',
			'damaged buckets: not in use');

		# the mark is undone neither with the statement nor by a crash after it
		$session->quit;
		crash_and_start($node);
		is(index_state($node, 'o_v'), 'invalid: it is damaged', 'damaged buckets: still invalid after a crash');
		rebuild_on($node);
		wait_until($node, "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'o_v'", 'not rebuilt');
		same_answers($node, 'o', 'k', 'o_v', 'damaged buckets, rebuilt');
		is($node->psql('postgres', $check), 0, 'damaged buckets: sound after');
	}

	$node->stop;
}

# ======== idle sessions ========

# The space of a file that another session drops is free at once, though idle sessions have
# it mapped: DROP, REINDEX, TRUNCATE.
{
	my @names = ('dropped', 'emptied', 'anew');
	my $node = new_server('idle');

	start_with_extension($node, join(' ', map { "CREATE TABLE $_ (k int); INSERT INTO $_ VALUES (1); CREATE INDEX ${_}_k ON $_ USING pmhash (k);" } 'kept', @names));

	my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
	foreach my $session (@sessions)
	{
		$session->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off');
		$session->query_safe("SELECT count(*) FROM $_ WHERE k = 1") foreach 'kept', @names;
	}
	$sessions[1]->query_safe('BEGIN; SELECT 1');
	my @files = map { my $file = index_file($node, "${_}_k"); open(my $handle, '<', $file) or die "$file: $!"; $handle } @names;

	$node->safe_psql('postgres', 'BEGIN; DROP TABLE dropped; ROLLBACK');
	is(join(' ', grep { -s $_ == 0 } @files), '', 'nothing is cut off by an abort');
	$node->safe_psql('postgres', $_) foreach 'DROP TABLE dropped', 'TRUNCATE emptied', 'REINDEX INDEX anew_k';
	is(join(' ', map { (stat($_))[12] } @files), '0 0 0', 'the blocks of what has been removed are free');
	foreach my $session (@sessions)
	{
		is($session->query_safe('SELECT (SELECT count(*) FROM kept WHERE k = 1), (SELECT count(*) FROM emptied WHERE k = 1), (SELECT count(*) FROM anew WHERE k = 1)'),
			'1|0|1', 'the session goes on');
	}
	$sessions[1]->query_safe('COMMIT');

	# ... and nobody keeps what its own abort has removed
	my $pid = $sessions[0]->query_safe('SELECT pg_backend_pid()');
	$sessions[0]->query_safe('BEGIN; CREATE INDEX again_k ON kept USING pmhash (k); SELECT count(*) FROM kept WHERE k = 1; ROLLBACK');
	unlike(slurp_file("/proc/$pid/maps"), qr/\.pmh \(deleted\)/, 'no file is mapped that an abort has removed');

	# ... nor what an index had that has handed it on, when the new one's is rebuilt
	$node->safe_psql('postgres', q(CREATE TABLE handed (k text); INSERT INTO handed VALUES ('1'); CREATE INDEX handed_k ON handed USING pmhash (k)));
	$_->query_safe(q(SELECT count(*) FROM handed WHERE k = '1')) foreach @sessions;
	$node->safe_psql('postgres', 'ALTER TABLE handed ALTER k TYPE varchar');
	unlink(index_file($node, 'handed_k'));
	$node->psql('postgres', q(SELECT pmhash.check('handed_k')));
	wait_until($node, q(SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'handed_k'), 'not rebuilt');
	foreach my $session (@sessions)
	{
		$pid = $session->query_safe('SELECT pg_backend_pid()');
		unlike(slurp_file("/proc/$pid/maps"), qr/\.pmh \(deleted\)/, 'no file is mapped of an index that has handed it on');
	}
	$_->quit foreach @sessions;
	$node->stop;
}

done_testing();
