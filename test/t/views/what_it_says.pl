# What the log, the views and the planner say, and why an index is not used.

use v5.36;

use File::Copy qw(copy);
use FindBin;
use IPC::Run;
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;

# ======== what it says ========

# What a DBA reads when something needs one: the states that the views show, and the
# hints, where a wrong word costs the most.  And a pool of another version of pmhash.
{
	my $node = new_primary('says');
	my $pool = pool($node);
	$node->safe_psql('postgres', 'DROP TABLE t');
	$node->safe_psql('postgres', invalid_fixture());

	# ---- an index that the server itself does without ----
	$node->safe_psql('postgres', <<SQL);
CREATE FUNCTION fails_at(int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN IF \$1 = 5000 THEN RAISE EXCEPTION ''no''; END IF; RETURN \$1; END';
SQL
	fails_like($node, 'CREATE INDEX CONCURRENTLY o_f ON o USING pmhash (fails_at(k))', qr/ERROR:  no/, 'CREATE INDEX CONCURRENTLY fails');
	$node->safe_psql('postgres', 'DELETE FROM o WHERE k = 5000; VACUUM o');
	# event: `CREATE INDEX CONCURRENTLY` or `REINDEX CONCURRENTLY` fails
	is(index_state($node, 'o_f'), 'not valid: its CREATE INDEX or REINDEX has not been completed', 'and what it leaves is not valid');
	$node->safe_psql('postgres', "REINDEX INDEX o_f; UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'o_f'::regclass");
	is(index_state($node, 'o_f'), 'not valid: its CREATE INDEX or REINDEX has not been completed', 'nor is one with a whole file');
	$node->safe_psql('postgres', 'DROP INDEX o_f');

	# One that is given up before it has a file: nothing rebuilds it, so nothing says so.
	{
		my $writer = session_with($node, 'BEGIN; INSERT INTO o VALUES (5001)');
		my $builder = IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'), '-c', 'CREATE INDEX CONCURRENTLY o_f ON o USING pmhash (k)' ],
			'<', \undef, '>', '/dev/null', '2>', '/dev/null');
		my $waiting = "FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%' AND wait_event_type = 'Lock'";

		$node->poll_query_until('postgres', "SELECT count(*) = 1 $waiting") or die;
		$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) $waiting");
		IPC::Run::finish($builder);
		$writer->query_safe('ROLLBACK');
		$writer->quit;
		is(index_state($node, 'o_f'), 'not valid: its CREATE INDEX or REINDEX has not been completed', 'without a file, neither');
		fails_like($node, "SELECT pmhash.stats('o_f')", qr/"o_f" has no usable file.*HINT:  REINDEX INDEX makes a new file\.\s*$/s, 'what has to be done');
		$node->safe_psql('postgres', 'DROP INDEX o_f');
	}

	# ---- in the log at a start ----
	$node->stop;
	unlike(log_of_start($node), qr/resource manager/, 'nothing is said of resource managers');

	# ---- the default place cannot be made, as where the data directory is a mount point ----
	{
		my $mounted = new_server('mounted');
		my ($parent) = $mounted->data_dir =~ m,(.*)/,;

		chmod(0500, $parent) or die $!;
		start_with_extension($mounted);
		is($mounted->safe_psql('postgres', 'SELECT disabled_reason FROM pmhash.stat'),
			'could not create directory "' . pool($mounted) . '": Permission denied; "pmhash.directory" can name another one', 'mount point');
		chmod(0700, $parent) or die $!;
		$mounted->stop;
	}

	# ---- a transaction whose key locks guard nothing any more ----
	{
		my $session = $node->background_psql('postgres', on_error_stop => 0);

		rebuild_off($node);
		$session->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET pmhash.enable_join = off;
			BEGIN ISOLATION LEVEL SERIALIZABLE; DECLARE c CURSOR FOR SELECT t.v FROM generate_series(1, 9) g JOIN t ON t.k = g; FETCH 1 FROM c');
		unlink(index_file($node, 't_k')) or die;
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (1, -5)');
		$session->query('FETCH ALL FROM c');
		# trouble: `could not serialize access because index "..." has become invalid`
		like($session->{stderr}, qr/ERROR:  could not serialize access because index "t_k" has become invalid/, 'serializable');
		$session->quit;
		rebuild_on($node);
		comes_back($node, 'serializable');
	}

	# ---- a pool directory that cannot be made ----
	# (for the mount point of a disk that is not mounted, which is root's, stands a directory
	# in which nothing may be made)
	my $mount_point = "$PostgreSQL::Test::Utils::tmp_check/mount_point";
	mkdir($mount_point) or die;
	chmod(0555, $mount_point) or die;
	$node->append_conf('postgresql.conf', "pmhash.directory = '$mount_point/pmhash'");
	my $from = -s $node->logfile;
	$node->restart;
	# trouble: LOG: `pmhash is disabled: ...`
	like(slurp_file($node->logfile, $from), qr/LOG:  (?:\w{5}: )?pmhash is disabled: could not create directory/, 'a mount point without its disk: log');
	# event: not mounted when the server starts, and the server cannot write to the mount point
	# trouble: `pmhash index "..." cannot be used: pmhash is disabled`
	fails_like($node, 'INSERT INTO ex VALUES (-1)', qr/pmhash index "ex_k" cannot be used: pmhash is disabled.*could not create directory.*HINT:  Repair this and restart the server/s,
		'a mount point without its disk');
	fails_like($node, $_, qr/cannot be used: pmhash is disabled/, "disabled: $_")
	  foreach ('TRUNCATE ex', 'VACUUM FULL ex', 'REINDEX TABLE ex', 'ALTER TABLE ex ALTER k TYPE int8');
	is($node->safe_psql('postgres', 'BEGIN; DROP INDEX o_k; TRUNCATE o; ROLLBACK; SELECT count(*) FROM o'), '4999', 'disabled: without the index it works');
	is($node->safe_psql('postgres', 'SET ROLE pg_read_all_data; SELECT DISTINCT state FROM pmhash.indexes'), 'disabled', 'disabled: to others');
	chmod(0755, $mount_point) or die;
	$node->restart;
	all_come_back($node, 'mounted, restarted');
	$node->append_conf('postgresql.conf', "pmhash.directory = ''");
	$node->stop;
	chmod(0700, $mount_point);

	# ---- one that cannot even be opened, so that it is not locked ----
	chmod(0000, $pool) or die;
	# event: cannot be opened when the server starts (because of its mode, for instance)
	like(log_of_start($node), qr/pmhash is disabled: could not open directory "\Q$pool\E": Permission denied\n.*DETAIL: .* until the server is restarted\./, 'not opened: log');
	like(index_state($node, 'o_k'), qr/^disabled: could not open directory .*; when that is repaired the server has to be restarted$/, 'not opened: pmhash.indexes');
	fails_like($node, 'INSERT INTO ex VALUES (-1)', qr/could not open directory.*HINT:  Repair this and restart the server/s, 'not opened: error');
	chmod(0700, $pool) or die;
	$node->safe_psql('postgres', 'SELECT pg_sleep(3)');
	like(index_state($node, 'o_k'), qr/^disabled/, 'not opened: as it says');
	$node->restart;
	all_come_back($node, 'not opened, restarted');
	$node->stop;

	# ---- another version of pmhash ----
	# trust: other-version
	patch_control($pool, 8, pack('V', 99));
	# event: another version of pmhash has used the pool directory
	# trouble: LOG: `pmhash: index files in "..." are not trusted`
	like(log_of_start($node), qr/LOG:  pmhash: index files in ".*" are not trusted: another version of pmhash has used them/,
		'a pool of another version: log');
	all_come_back($node, 'a pool of another version');

	# ---- no library ----
	# (as other tests use it just now, it is the handler that has it by another name; found
	# without =, which PostgreSQL 18 can't plan then)
	sub library_is ($name)
	{
		return $node->safe_psql('postgres', "UPDATE pg_proc SET probin = '\$libdir/$name' WHERE position('pmhash_handler' IN proname) > 0");
	}
	library_is('no_pmhash');
	restart_with($node, "shared_preload_libraries = ''");
	# event: the library is not installed, or cannot be loaded
	# trouble: `could not access file "..."`
	fails_like($node, $_, qr/ERROR:  could not access file "(\$libdir\/)?no_pmhash"/, "no library: $_")
	  foreach ('SELECT count(*) FROM t', 'INSERT INTO t VALUES (1, 1)', 'DROP TABLE t', 'DROP INDEX t_k');
	my ($dumped, $why) = ('', '');
	IPC::Run::run([ $node->installed_command('pg_dump'), '-d', $node->connstr('postgres') ], '>', \$dumped, '2>', \$why);
	like($why, qr/could not access file/, 'no library: pg_dump');
	is($node->safe_psql('postgres', 'CREATE TABLE other (k int4); SELECT count(*) FROM other'), '0', 'no library: other tables');
	my $equal = 'SELECT count(*) FROM other WHERE k = 1';
	if ($node->pg_version >= 18)
	{
		# lsyscache.c, get_mergejoin_opfamilies: the handler of each method that has the operator
		fails_like($node, $equal, qr/ERROR:  could not access file/, 'no library, 18: = of other tables');
	}
	else
	{
		is($node->safe_psql('postgres', $equal), '0', 'no library: = of other tables');
	}
	is($node->safe_psql('template1', 'SELECT count(*) FROM pg_class WHERE oid = 1259'), '1', 'no library: other databases');
	library_is('pmhash');
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'no_pmhash'");
	$node->stop;
	ok(!$node->start(fail_ok => 1), 'no library, and preloaded: no start');
	start_with($node, "shared_preload_libraries = 'pmhash'");
	all_come_back($node, 'the library is back');

	# ---- a standby ----
	my $standby = new_standby($node, 'says_standby');
	my $standbys = pool($standby);
	wait_for_state($standby, 'ex_k', qr/^valid$/, 'the standby has its files');
	{
		my $writer = $node->background_psql('postgres');
		my $stats = "SELECT pmhash.stats('ex_k')";

		# the build waits for that
		$writer->query_safe('BEGIN; INSERT INTO o VALUES (-3)');
		caught_up($node, $standby);
		rebuild_off($standby);
		unlink(index_file($standby, 'ex_k')) or die;
		$standby->psql('postgres', $stats);
		fails_like($standby, $stats, qr/"ex_k" has no usable file.*HINT:  Turn pmhash\.rebuild on/s, 'a standby that builds no files');
		rebuild_on($standby);
		wait_for_state($standby, 'ex_k', qr/waiting for transaction/, 'a standby that waits');
		fails_like($standby, $stats, qr/"ex_k" has no usable file.*HINT:  Try again when this standby has built its file in the background\.\s*$/s, 'a standby that waits');
		$writer->query_safe('ROLLBACK');
		$writer->quit;
		wait_for_state($standby, 'ex_k', qr/^valid$/, 'the standby has its files again');
	}
	$standby->stop;
	chmod(0500, $standbys);
	$from = -s $standby->logfile;
	$standby->start;
	# event: read-only or not writable when a standby starts
	like(slurp_file($standby->logfile, $from), qr/pmhash is disabled: .*\n.*DETAIL:  Queries do without index files, .* until the server is restarted/,
		'a standby whose pool cannot be written: log');
	fails_like($standby, "SELECT pmhash.stats('ex_k')", qr/pmhash is disabled.*HINT:  Repair this and restart the server/s,
		'a standby whose pool cannot be written: nothing tries again');
	$standby->stop;
	chmod(0700, $standbys);
	$node->stop;
}

# ======== files view ========

# pmhash.indexes says what is there, and not what a session or shared buffers know of it:
# files that are gone, replaced, cut off, damaged or not to be read, main forks that are
# gone; to each role what it may know; without waiting for a lock; and it leaves none of
# the pages that it has looked at mapped.
{
	my $node = new_server('files_view', <<CONF);
pmhash.rebuild = off
pmhash.cleaner_naptime = 3600
CONF
	start_with_extension($node);
	my @indexes = map { "${_}_k" } qw(cut damaged fork gone locked others plain unreadable);
	foreach my $index (@indexes, 'unlogged_k')
	{
		my $table = $index =~ s/_k$//r;
		my $kind = $table eq 'unlogged' ? 'UNLOGGED' : '';

		$node->safe_psql('postgres', <<SQL);
CREATE $kind TABLE $table (k int4, v int4);
INSERT INTO $table SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX $index ON $table USING pmhash (k);
SQL
	}
	$node->safe_psql('postgres', 'CREATE ROLE other');

	my $states = q(SELECT string_agg(index || ': ' || state, E'\n' ORDER BY index) FROM pmhash.indexes);
	my $all_valid = join("\n", map { "$_: valid" } sort @indexes, 'unlogged_k');
	my %file = map { $_ => index_file($node, $_) } @indexes;

	is($node->safe_psql('postgres', $states), $all_valid, 'all are valid');
	is($node->safe_psql('postgres', "SELECT DISTINCT durability FROM pmhash.indexes"), 'cache', 'durability');
	foreach my $index (@indexes)
	{
		my ($length, $blocks) = (stat($file{$index}))[7, 12];

		is($node->safe_psql('postgres', "SELECT bytes FROM pmhash.indexes WHERE index = '$index'"),
			$length < 512 * $blocks ? $length : 512 * $blocks, "$index: bytes");
	}
	is($node->safe_psql('postgres', 'SET ROLE other; SELECT count(*), count(file), count(bytes), min(state) FROM pmhash.indexes'),
		'9|0|9|valid', 'another role does not see where the files are');
	is($node->safe_psql('postgres', 'GRANT pg_monitor TO other; SET ROLE other; SELECT count(file) FROM pmhash.indexes'),
		'9', 'one that monitors does');
	is($node->safe_psql('postgres', "CREATE TEMP TABLE x (k int4); CREATE INDEX x_k ON x USING pmhash (k); SELECT state FROM pmhash.indexes WHERE index = 'x_k'"),
		'valid', 'a temporary index of our own');

	# The cleaner's first round is over when a file that no index has is gone.  It is there
	# before the server starts: afterwards the round might be over already.
	$node->safe_psql('postgres', 'CREATE TABLE o (k int4); CREATE INDEX o_k ON o USING pmhash (k)');
	my $orphan = index_file($node, 'o_k');
	copy($orphan, "$orphan.copy") or die;
	$node->safe_psql('postgres', 'DROP TABLE o');
	$node->stop;
	rename("$orphan.copy", $orphan) or die;
	$node->start;
	$node->poll_query_until('postgres', "SELECT pg_stat_file('$orphan', true) IS NULL") or die;

	# A session that has planned with an index, and one that has used it.
	my $planner = session_with($node, 'SET enable_seqscan = off; SET enable_bitmapscan = off');
	like($planner->query_safe("EXPLAIN (COSTS OFF) SELECT v FROM $_ WHERE k = 5"), qr/Index Scan using ${_}_k/, "plan: $_")
		foreach qw(gone plain);
	my $user = $node->background_psql('postgres');
	is($user->query_safe('SET enable_seqscan = off; SELECT v FROM plain WHERE k = 5'), 5, 'a session uses an index');

	# What happens to files; none of this is looked for by others (no cleaner comes).
	unlink($file{gone_k}) or die;
	copy($file{plain_k}, $file{others_k}) or die;
	truncate($file{cut_k}, 10000) or die;
	open(my $out, '+<', $file{damaged_k}) or die;
	print $out 'x' x 200;
	close($out) or die;
	chmod(0, $file{unreadable_k}) or die;
	my $fork = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('fork_k')");
	rename($fork, "$fork.away") or die;
	my $locker = session_with($node, 'BEGIN; LOCK TABLE locked; DROP INDEX locked_k');

	my $wanted = <<'STATES';
cut_k: invalid: it is damaged
damaged_k: invalid: it is damaged
fork_k: invalid: it has no stub page
gone_k: invalid: it does not exist
locked_k: locked
others_k: invalid: it belongs to another index
plain_k: valid
unlogged_k: valid
unreadable_k: invalid: it cannot be read
STATES
	chomp $wanted;
	is($node->safe_psql('postgres', $states), $wanted, 'what has happened is seen');
	is($planner->query_safe($states), $wanted, 'by a session that knows the indexes from planning, too');
	is($user->query_safe($states), $wanted, 'and by one that has used one of them');
	is($node->safe_psql('postgres', "SELECT count(durability) FROM pmhash.indexes"), 2, 'durability is shown of valid ones');

	# Put back, they are what they were.
	$locker->query_safe('ROLLBACK');
	$_->quit foreach $locker, $planner, $user;
	chmod(0600, $file{unreadable_k}) or die;
	rename("$fork.away", $fork) or die;
	is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT state, ',') FROM pmhash.indexes WHERE index IN ('unreadable_k', 'fork_k', 'locked_k')"),
		'valid', 'what is put back is valid');
	$node->safe_psql('postgres', "REINDEX INDEX $_") foreach qw(cut_k damaged_k others_k gone_k);
	is($node->safe_psql('postgres', $states), $all_valid, 'all are valid again');
	$node->stop;
}

# ======== why not used ========

# The causes that docs/troubleshooting.md names for a plan without the index, each with
# its cure.  With enable_seqscan off the plan has the index if it can.  pmhash.explain says
# the same, and why.
{
	my $document = slurp_file("$FindBin::RealBin/../../../docs/troubleshooting.md");
	my $node = new_server('why');

	start_with_extension($node, <<SQL);
CREATE TABLE item (id int8, sku text, code char(5), price numeric, at timestamptz);
INSERT INTO item SELECT g, 'sku-' || g, g % 100, g, now() FROM generate_series(1, 1000) AS g;
CREATE INDEX item_id ON item USING pmhash (id);
CREATE INDEX item_sku ON item USING pmhash (sku);
CREATE INDEX item_lower ON item USING pmhash (lower(sku));
CREATE INDEX item_code ON item USING pmhash (code);
CREATE INDEX item_at ON item USING pmhash (at);
CREATE INDEX item_two ON item USING pmhash (price, id);
CREATE INDEX item_part ON item USING pmhash (price) WHERE price > 900;
ANALYZE item;
SQL

	sub plan_from ($condition)
	{
		return $node->safe_psql('postgres', "SET enable_seqscan = off; EXPLAIN (COSTS OFF) SELECT * FROM item WHERE $condition");
	}

	sub explained ($index, $condition, $before = '')
	{
		return $node->safe_psql('postgres', ($before) .
			"SELECT usable, coalesce(reason, '-') FROM pmhash.explain('$index', \$c\$$condition\$c\$)");
	}

	my $is_changed = qr/column "\w+" is not compared itself, but an expression of it, or not by "=", or only under OR/;
	my $lacks = qr/column "\w+" is compared by operator =\([\w ]+,[\w ]+\), which operator family "\w+" does not have/;

	# words of the row, an index, conditions that cannot use it, the same ones cured, what
	# pmhash.explain says of the former
	foreach my $case (
		[ 'the condition is not `=`', 'item_id', [ 'id < 5', 'id BETWEEN 1 AND 2', 'id IS NULL' ], [ 'id = 5', 'id IN (1, 2)' ],
			qr/column "id" is (?:not compared itself|compared by operator [<>]=?\(bigint,integer\), which)/ ],
		[ 'the query does not imply its `WHERE`', 'item_part', [ 'price = 950 + (random() * 0)::int' , 'price = (SELECT 950)' ],
			[ 'price = (SELECT 950) AND price > 900', 'price = 950' ],
			qr/the condition does not imply the predicate of the index/ ],
		[ 'the query writes it differently', 'item_lower', [ "lower(trim(sku)) = 'a'" ], [ "lower(sku) = 'a'" ], qr/column "lower" is not compared/ ],
		[ 'another collation than the index', 'item_sku', [ q{sku = 'a' COLLATE "C"} ], [ "sku = 'a'" ],
			qr/column "sku" is compared under another collation than that of the index/ ],
		[ 'the query changes the column', 'item_id', [ "id::text = '5'", 'id = 5.0::numeric' ], [ 'id = 5.0::numeric::bigint', 'id = 5::smallint' ], qr/$is_changed|$lacks/ ],
		[ 'a `char(n)` column with `text`', 'item_code', [ "code = '5'::text" ], [ "code = '5'::text::bpchar", "code = '5'" ], $lacks ])
	{
		my ($words, $index, $without, $with, $reason) = @$case;

		like($document, qr/^\| .*\Q$words\E.* \|$/m, "in the document: $words");
		unlike(plan_from($_), qr/\b$index\b/, "without the index: $_") foreach @$without;
		like(plan_from($_), qr/\b$index\b/, "by the index: $_") foreach @$with;
		like(explained($index, $_), qr/^f\|$reason/, "explained: $_") foreach @$without;
		like(explained($index, $_), qr/^t\|/, "explained: $_") foreach @$with;
	}
	foreach my $condition ('at = localtimestamp', 'at = current_date', "current_date::timestamp = at", 'at = now()')
	{
		like(plan_from($condition), qr/\bitem_at\b/, "by the index: $condition");
		like(explained('item_at', $condition), qr/^t\|/, "explained: $condition");
	}

	like($document, qr/^\| .*the query leaves one of them out.* \|$/m, 'in the document: a column is left out');
	unlike($node->safe_psql('postgres', 'EXPLAIN SELECT * FROM item WHERE price = 5'), qr/item_two/, 'not worth it');
	like(plan_from('price = 5'), qr/item_two/, 'possible all the same');
	$node->safe_psql('postgres', 'DROP INDEX item_id');
	like(plan_from('price = 5 AND id = 5'), qr/item_two/, 'all columns');

	# ---- pmhash.explain: an index alone, parameters, other indexes, settings, no condition ----
	is(explained('item_two', 'price = $1 AND id = $2'), 't|-', 'explained: parameters');
	is(explained('item_two', 'price = 5'), 'f|column "id" is not compared', 'explained: a column is left out');
	$node->safe_psql('postgres', 'CREATE INDEX item_btree ON item (sku, id)');
	is(explained('item_sku', "sku = 'sku-1' AND sku IS NOT NULL"), 't|-', 'explained: chosen');
	like(explained('item_sku', "sku = 'sku-1' AND id = 1"), qr/^t\|/, 'explained: beside a btree');
	like(explained('item_code', "code = '5' OR code = '6'"), qr/^t\|/, 'explained: OR');
	like(explained('item_code', "code = '5' OR price = 6"), qr/^f\|$is_changed/, 'explained: OR with another column');
	is(explained('item_sku', "sku = 'sku-1'", 'SET enable_indexscan = off; SET enable_bitmapscan = off; DROP INDEX item_btree; '),
		't|enable_indexscan and enable_bitmapscan are off', 'explained: settings');
	is($node->safe_psql('postgres', "SELECT usable, reason IS NULL FROM pmhash.explain('item_sku')"), 't|t', 'explained: no condition');
	fails_like($node, "SELECT pmhash.explain('item_sku', '$_->[0]')", $_->[1], "not explained: $_->[0]")
	  foreach ([ 'true); DROP TABLE item; SELECT (1', qr/the condition is not one expression/ ],
		[ 'nothing = 1', qr/column "nothing" does not exist/ ], [ 'id =', qr/syntax error/ ]);
	fails_like($node, "SELECT pmhash.explain('pg_class_oid_index')", qr/is not a pmhash index/, 'not explained: another method');
	fails_like($node, 'SELECT pmhash.explain(NULL)', qr/no pmhash index is named/, 'not explained: none');
	$node->safe_psql('postgres', 'CREATE ROLE nobody');
	fails_like($node, "SET ROLE nobody; SELECT pmhash.explain('item_sku')", qr/permission denied for table item/, 'not explained: to others');

	# ---- pmhash.explain: page scans and joins by this index or another; functions; children ----
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE p (a int, b int);
INSERT INTO p SELECT i % 100, i % 50 FROM generate_series(1, 40000) AS i;
CREATE INDEX p_a ON p USING pmhash (a);
CREATE INDEX p_b ON p USING pmhash (b);
CREATE TABLE q (x int PRIMARY KEY);
INSERT INTO q SELECT generate_series(1, 1000);
ANALYZE p, q;
CREATE FUNCTION one() RETURNS int STABLE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT x FROM q WHERE x = 1); END';
SQL
	like($node->safe_psql('postgres', 'EXPLAIN SELECT FROM p WHERE a = 1 AND b = 1'), qr/pmhash page scan.*p_a/s, 'page scan');
	is(explained('p_a', 'a = 1 AND b = 1'), 't|-', 'explained: page scan');
	like(explained('p_b', 'a = 1 AND b = 1'), qr/^t\|the planner takes another plan/, 'explained: page scan by another index');
	like($node->safe_psql('postgres', 'EXPLAIN SELECT FROM p WHERE a IN (SELECT x FROM q WHERE x < 3)'), qr/pmhash join.*p_a/s, 'join');
	is(explained('p_a', 'a IN (SELECT x FROM q WHERE x < 3)'), 't|-', 'explained: join');
	is( $node->safe_psql('postgres', <<SQL), "t\n1\nt", 'explained: plans made by functions meanwhile are not kept');
SELECT usable FROM pmhash.explain('p_a', 'a = one()');
BEGIN;
SELECT one();
SELECT idx_scan > 0 FROM pg_stat_xact_user_tables WHERE relname = 'q';
COMMIT;
SQL
	$node->safe_psql('postgres', 'CREATE TABLE p_child () INHERITS (p)');
	is(explained('p_a', 'a = 1'), 't|-', 'explained: a table with children');
	$node->append_conf('postgresql.conf', 'pmhash.rebuild = off');
	unlink index_file($node, 'item_sku') or die;
	$node->restart;
	is(explained('item_sku', "sku = 'sku-1'"), 'f|the state of the index is "invalid: it does not exist"', 'explained: invalid');

	# ---- EXPLAIN: of the tables in a plan, to those that may read them; in any format ----
	$node->safe_psql('postgres', <<SQL);
CREATE VIEW through AS SELECT * FROM item;
GRANT SELECT ON through TO nobody;
CREATE TABLE parts (a int4, k int8) PARTITION BY LIST (a);
CREATE TABLE part (gone int4, k int8, a int4);
ALTER TABLE part DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION part FOR VALUES IN (1);
CREATE INDEX parts_k ON parts USING pmhash (k);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'part_k_idx'::regclass;
CREATE FUNCTION plan_of(query text) RETURNS SETOF text PARALLEL SAFE LANGUAGE plpgsql AS 'BEGIN RETURN QUERY EXECUTE query; END';
SQL
	is(explained('part_k_idx', 'k = 1'), 'f|the state of the index is "not valid: its CREATE INDEX or REINDEX has not been completed"', 'explained: not valid');
	my $where = "WHERE sku = 'sku-1'";
	my $why = 'item_sku (pmhash): the state of the index is "invalid: it does not exist"';
	my %said = map { $_ => "Index Not Usable: $why" } "EXPLAIN SELECT FROM item $where", 'EXPLAIN SELECT FROM item JOIN item AS other USING (sku)',
	  "EXPLAIN (ANALYZE, VERBOSE) UPDATE item SET id = id $where", "EXPLAIN INSERT INTO p SELECT id FROM item $where",
	  "EXPLAIN WITH u AS (UPDATE item SET id = id $where RETURNING id) INSERT INTO p SELECT id FROM u",
	  "EXPLAIN CREATE TABLE copied AS SELECT FROM item $where", "EXPLAIN DECLARE c CURSOR FOR SELECT FROM item $where",
	  'SET plan_cache_mode = force_generic_plan; PREPARE p(text) AS SELECT FROM item WHERE sku = $1; EXPLAIN EXECUTE p(0)',
	  "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY; EXPLAIN SELECT FROM through $where";
	$said{"EXPLAIN (FORMAT XML) SELECT FROM item $where"} = "<Item>$why</Item>";
	$said{"EXPLAIN (FORMAT JSON) SELECT FROM item $where"} = '"Indexes Not Usable": ["' . $why =~ s/"/\\"/gr . '"]';
	$said{'EXPLAIN SELECT FROM parts WHERE k = 1'} = 'Index Not Usable: part_k_idx (pmhash): the state of the index is "not valid:';
	%said = () if $node->pg_version < 18;
	foreach my $query (sort keys %said)
	{
		is(scalar(() = $node->safe_psql('postgres', $query) =~ /\Q$said{$query}\E/g), 1, "said once: $query");
	}
	unlike($node->safe_psql('postgres', "EXPLAIN $_"), qr/Usable/, "not said: $_")
	  foreach 'INSERT INTO item SELECT * FROM item AS other WHERE false', 'SELECT FROM p WHERE a = 1', "(COSTS OFF) SELECT FROM item $where";
	my $parallel = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
	my $nested = $node->safe_psql('postgres', "SET $parallel = on; SELECT plan_of('EXPLAIN SELECT FROM item $where')" =~ s/'sku-1'/''sku-1''/r);
	like($nested, qr/on item/, 'in a parallel worker');
	unlike($nested, qr/Usable/, '... not said');
	unlike($node->safe_psql('postgres', "SET ROLE nobody; EXPLAIN SELECT FROM through $where"), qr/item_sku/, 'not said to others');

	$node->stop;
}

done_testing();
