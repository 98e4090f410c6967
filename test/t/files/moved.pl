# Tables and indexes that are moved to another tablespace.

use v5.36;
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;

# ======== moved and back ========

# A table is given another tablespace and gets rows there, and that is taken back: its
# old files know nothing of those rows, and give their TIDs to others.  (More transactions of
# this kind, without a standby: moved sequences.)  The index file,
# which has stayed where it was, must not lead to these.  It gets no entries of such rows:
# the index is invalid from the first on, and a constraint or a temporary index is an error.
{
	my $node = new_primary('primary', <<CONF);
allow_in_place_tablespaces = on
pmhash.rebuild = off
CONF
	my $standby = new_standby($node, 'standby', "pmhash.rebuild = on\n");
	my $major = $node->pg_version->major;
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
	my $move = 'ALTER TABLE m SET TABLESPACE a';
	my $row = q(INSERT INTO m VALUES (777, '777'));

	$node->safe_psql('postgres', q(SET allow_in_place_tablespaces = on; CREATE TABLESPACE a LOCATION ''));
	$node->safe_psql('postgres', q(SET allow_in_place_tablespaces = on; CREATE TABLESPACE b LOCATION ''));

	# A table of that kind whose last page has room.  Nothing looks at it before the rows
	# come that get TIDs anew: a look-up would remove what leads to none.
	sub table ($kind, $with = '')
	{
		return <<SQL;
CREATE $kind TABLE m (k int4, s text) WITH (autovacuum_enabled = off);
CREATE INDEX m_k ON m USING pmhash (k) @{[$with]};
CREATE INDEX m_s ON m USING pmhash (s) @{[$with]};
INSERT INTO m SELECT i, i FROM generate_series(1, 100) i;
SQL
	}

	# The same TIDs are given to other rows.
	my $others = 'INSERT INTO m SELECT i, i FROM generate_series(888, 908) i;';
	my $found = q(SELECT (SELECT count(*) FROM m WHERE k = 777), (SELECT count(*) FROM m WHERE s = '777'),
		(SELECT count(*) FROM m WHERE k = 888););

	my $states = q(SELECT string_agg(DISTINCT split_part(state, ':', 1), ' ') FROM pmhash.indexes WHERE index::text LIKE 'm\_%';);

	sub come_back ($on, $name)
	{
		rebuild_on($on);
		ok( $on->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid')),
			"$name: all valid");
		rebuild_off($on);
		return;
	}

	# Tests: rows that have been taken back are not found, before the indexes are rebuilt and
	# after that, nor on a standby.
	sub nothing_left ($name, $rows, $state = 'invalid')
	{
		my $wanted = "$rows|$rows|1";

		is($node->safe_psql('postgres', "$others $by_index $found $states"),
			"$wanted\n" . ($state), "$name: rows, state");
		come_back($node, $name);
		is($node->safe_psql('postgres', "$by_index $found SELECT pmhash.check('m_k'), pmhash.check('m_s')"),
			"$wanted\n|", "$name: rows by the indexes, pmhash.check");
		return if !defined $standby;
		caught_up($node, $standby);
		is($standby->safe_psql('postgres', "$by_index $found"), $wanted, "$name: rows on a standby");
		wait_for_state($standby, $_, qr/^valid/, "$name: $_ there again on it") foreach qw(m_k m_s);
		is($standby->safe_psql('postgres', "$by_index $found SELECT pmhash.check('m_k'), pmhash.check('m_s')"),
			"$wanted\n|", "$name: rows by its indexes, pmhash.check");
		return;
	}

	# One case: what a transaction does, how many rows 777 there are then, and the state.
	sub taken_back ($name, $sql, $rows, $state = 'invalid')
	{
		$node->safe_psql('postgres', table('') . $sql);
		nothing_left($name, $rows, $state);
		$node->safe_psql('postgres', 'DROP TABLE m');
		return;
	}

	# A server that dies while that is open.
	sub killed ($name, $sql, $with = '')
	{
		my $session;

		$node->safe_psql('postgres', table('', $with));
		$session = session_with($node, $sql, on_error_stop => 1);
		$node->safe_psql('postgres', 'INSERT INTO t VALUES (1)');
		crash($node);
		eval { $session->quit };
		$node->start;
		nothing_left($name, 0);
		$node->safe_psql('postgres', 'DROP TABLE m');
		return;
	}

	# event: `SET TABLESPACE` of a table, then rows, in one transaction
	taken_back('ROLLBACK', "BEGIN; $move; $row; ROLLBACK;", 0);
	taken_back('ROLLBACK TO', "BEGIN; SAVEPOINT s; $move; $row; ROLLBACK TO s; INSERT INTO m VALUES (1, 1); COMMIT;", 0);
	killed('killed', "BEGIN; $move; $row;");
	killed('killed, indexes moved', "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE a; ALTER INDEX m_s SET TABLESPACE b; $row;");

	# The indexes' stubs are those of before again.
	taken_back('indexes moved', "BEGIN; ALTER INDEX m_k SET TABLESPACE a; $move; ALTER INDEX m_s SET TABLESPACE b; $row; ROLLBACK;", 0);

	# ---- a session of the standby has the files mapped ----
	{
		my $session = $standby->background_psql('postgres', on_error_stop => 1);
		my $count = 'SELECT count(*) FROM m WHERE k = 777;';

		$node->safe_psql('postgres', table(''));
		wait_for_state($standby, 'm_k', qr/^valid/, 'standby: built');
		$session->query_safe($by_index);
		like($session->query_safe("EXPLAIN (COSTS OFF) $count"), qr/m_k/, 'standby: a session uses the index');
		is($session->query_safe($count), '0', 'standby: no row');
		replayed($node, $standby, "BEGIN; $move; $row; ROLLBACK; $others");
		is($session->query_safe($count), '0', 'standby: no row after ROLLBACK');
		$session->quit;
		$node->safe_psql('postgres', 'DROP TABLE m');
	}

	# ---- a session has a plan that uses the index, and could not do with the table alone ----
	{
		my $session = $node->background_psql('postgres', on_error_stop => 1);
		my $only = 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_bitmapscan = off;';

		$node->safe_psql('postgres', table(''));
		$session->query_safe("$only SET plan_cache_mode = force_generic_plan; PREPARE q (int) AS SELECT count(*) FROM m WHERE k = \$1");
		is($session->query_safe('EXECUTE q(7)'), '1', 'plans: one is made');
		$node->safe_psql('postgres', "BEGIN; $move; $row; ROLLBACK;");
		is($session->query_safe('EXECUTE q(7)'), '1', 'plans: another one is made');
		$session->quit;
		$node->safe_psql('postgres', 'DROP TABLE m');
	}

	# ---- it commits ----
	taken_back('committed', "BEGIN; $move; $row; COMMIT;", 1);
	{
		my $position = log_position($node);

		taken_back('committed, no rows', "BEGIN; $row; $move; DELETE FROM m WHERE k < 7; COMMIT;", 1, 'valid');
		unlike(logged_since($node, $position), qr/has been rebuilt/, 'committed, no rows: nothing was rebuilt');
	}

	# ---- emptied in place ----
	# PostgreSQL truncates the main forks of the indexes, which are not new.
	# event: `SET TABLESPACE` of a table, then `TRUNCATE`, in one transaction
	taken_back('emptied in place', "BEGIN; $move; TRUNCATE m; $row; ROLLBACK;", 0);
	taken_back('emptied in place, committed', "BEGIN; $move; TRUNCATE m; $row; COMMIT;", 1);

	# The index, which has a main fork of this transaction, is emptied in place by a level that
	# is rolled back: its stub names a file that is gone, and which this session has mapped.
	is($node->safe_psql('postgres', table('') . <<SQL), "0\n1\n1\n\n1", 'emptied in place, taken back: rows');
$by_index
BEGIN;
ALTER INDEX m_k SET TABLESPACE b;
SAVEPOINT s;
$move;
TRUNCATE m;
SELECT count(*) FROM m WHERE k = 7;
ROLLBACK TO s;
SELECT count(*) FROM m WHERE k = 7;
COMMIT;
SELECT count(*) FROM m WHERE k = 7;
REINDEX INDEX m_k;
SELECT pmhash.check('m_k');
SELECT count(*) FROM m WHERE k = 7;
DROP TABLE m;
SQL

	# Within it the indexes are not used.
	my $parallel = $major >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
	is($node->safe_psql('postgres', table('') . <<SQL), "f\n1\n2\n777", 'in the transaction');
CREATE FUNCTION uses(query text) RETURNS boolean LANGUAGE plpgsql AS \$\$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line LIKE '%m_k%' THEN RETURN true; END IF;
	END LOOP;
	RETURN false;
END \$\$;
SET enable_seqscan = off;
BEGIN; $move; $row;
SELECT uses('SELECT * FROM m WHERE k = 777');
SELECT count(*) FROM m WHERE k = 777;
$row;
SELECT count(*) FROM m WHERE k = 777;
COMMIT;
DROP TABLE m;
CREATE TABLE p (k int4);
CREATE INDEX p_k ON p USING pmhash (k) WHERE k > 7;
INSERT INTO p SELECT generate_series(1, 100);
BEGIN;
ALTER TABLE p SET TABLESPACE a;
INSERT INTO p VALUES (777);
SET $parallel = on;
SELECT k FROM p WHERE k = 777 AND k > 7;
COMMIT;
DROP TABLE p;
SQL

	# ---- tables of other kinds ----
	$node->safe_psql('postgres', table('UNLOGGED') . "BEGIN; $move; $row; ROLLBACK; $others");
	is($node->safe_psql('postgres', "$by_index $found $states"), "0|0|1\ninvalid", 'unlogged: rows, state');
	is($node->safe_psql('postgres', "DROP TABLE m; BEGIN; " . table('UNLOGGED') . "SAVEPOINT s; $move; $row; ROLLBACK TO s; COMMIT; $others $by_index $found"),
		'0|0|1', 'unlogged, made in the transaction: rows');
	$node->safe_psql('postgres', 'DROP TABLE m');
	my $cannot = qr/cannot use pmhash index "[mx]_k" because its table was moved in the same transaction.*files that the table had before.*REINDEX INDEX/s;
	fails_like($node, table('TEMP') . "BEGIN; $move; $row;", $cannot, 'temporary');
	is($node->safe_psql('postgres', table('TEMP') . "BEGIN; $move; ROLLBACK; BEGIN; $move; COMMIT; $row; BEGIN; $move; REINDEX TABLE m; $row; ROLLBACK; $others $by_index $found $states"),
		"1|1|1\nvalid", 'temporary, rows in another transaction, or after REINDEX');
	is($node->safe_psql('postgres', table('TEMP') . "BEGIN; $move; TRUNCATE m; ROLLBACK; $by_index SELECT count(*) FROM m WHERE k IN (7, 777); $states REINDEX TABLE m; SELECT pmhash.check('m_k')"),
		"1\ninvalid\n", 'temporary, emptied in place: rows');
	is($node->safe_psql('postgres', "CREATE TEMP TABLE m (k int4) ON COMMIT DELETE ROWS; CREATE INDEX m_k ON m USING pmhash (k);"
		  . "$move; BEGIN; SELECT count(*) FROM m; COMMIT; BEGIN; INSERT INTO m VALUES (888); $by_index SELECT count(*) FROM m WHERE k IN (777, 888); SELECT pmhash.check('m_k'); COMMIT"),
		"0\n1\n", 'temporary, emptied at commit: rows');
	# ... and so early that nothing but its index can be moved: it stays as good as it was
	is($node->safe_psql('postgres', "CREATE TEMP TABLE m (k int4) ON COMMIT DELETE ROWS; CREATE INDEX m_k ON m USING pmhash (k);"
		. "BEGIN; $move; COMMIT; $states BEGIN; INSERT INTO m SELECT generate_series(1, 9); $by_index SELECT count(*) FROM m WHERE k = 7; COMMIT; SELECT pmhash.check('m_k')"),
		"valid\n1\n", 'temporary, emptied at commit: valid');
	# the index gets its next file when the commit has been looked through: the one before goes with the next commit
	my $pool = pool($node);
	my $files = "SELECT count(*) FROM pg_database d, pg_ls_dir('$pool/' || d.oid) WHERE datname = current_database();";
	my ($before, $after) = split(/\n/, $node->safe_psql('postgres', 'CREATE TEMP TABLE m (k int4) ON COMMIT DELETE ROWS; CREATE INDEX m_k ON m USING pmhash (k);'
		. "BEGIN; INSERT INTO m VALUES (1); COMMIT; $files"
		. join('', map { "BEGIN; INSERT INTO m VALUES (1); ALTER INDEX m_k SET TABLESPACE $_; COMMIT;" } ('a', 'pg_default') x 3)
		. "BEGIN; SELECT FROM m; COMMIT; $files"));
	is($after, $before, 'temporary, emptied at commit: files');

	# ---- a serializable statement reads by the index after its first row has marked it ----
	# To try that again is of no use, which its SQLSTATE says; after REINDEX it can be done.
	my $verbose = "\\set VERBOSITY verbose\n";
	my $rows = "INSERT INTO m SELECT i, (SELECT s FROM m WHERE k = i) FROM generate_series(1, 9) i;";
	$node->safe_psql('postgres', table(''));
	fails_like($node, "$verbose $by_index BEGIN ISOLATION LEVEL SERIALIZABLE; $move; $rows", qr/55000: $cannot/, 'serializable: no row in it');
	is($node->safe_psql('postgres', "$by_index BEGIN ISOLATION LEVEL SERIALIZABLE; $move; REINDEX TABLE m; $rows SELECT count(*) FROM m WHERE k = 7; COMMIT; DROP TABLE m"), '2',
		'serializable: after REINDEX');

	# ---- constraints ----
	foreach my $kind ('EXCLUDE', $major >= 18 ? 'UNIQUE' : ())
	{
		my $taken = qr/conflicting key value|duplicate key value/;
		my $make = $kind eq 'EXCLUDE' ? 'CREATE TABLE x (k int4, CONSTRAINT x_k EXCLUDE USING pmhash (k WITH =));' :
		  'CREATE TABLE x (k int4); CREATE UNIQUE INDEX x_k ON x USING pmhash (k);';
		my $move_x = 'BEGIN; ALTER TABLE x SET TABLESPACE a;';

		$node->safe_psql('postgres', "$make INSERT INTO x SELECT generate_series(1, 100)");
		fails_like($node, "$move_x INSERT INTO x VALUES (777)", $cannot, "$kind: no row in it");
		fails_like($node, "$move_x TRUNCATE x; INSERT INTO x VALUES (777)", $cannot, "$kind: nor when it was emptied");
		fails_like($node, 'INSERT INTO x VALUES (777)', qr/"x_k" has no usable file.*REINDEX INDEX/s, "$kind: nor after ROLLBACK");
		$node->safe_psql('postgres', 'REINDEX INDEX x_k');
		fails_like($node, "BEGIN; TRUNCATE x; SAVEPOINT s; ALTER TABLE x SET TABLESPACE a; INSERT INTO x VALUES (777)", $cannot, "$kind: nor in a savepoint");
		is($node->safe_psql('postgres', 'INSERT INTO x VALUES (888); SELECT state FROM pmhash.indexes WHERE index = \'x_k\''), 'valid', "$kind: the index is still there");
		fails_like($node, "$move_x REINDEX INDEX x_k; INSERT INTO x VALUES (778); INSERT INTO x VALUES (779), (778)", $taken, "$kind: holds after REINDEX in it");
		$node->safe_psql('postgres', "$move_x COMMIT; INSERT INTO x VALUES (778)");
		fails_like($node, 'INSERT INTO x VALUES (778)', $taken, "$kind: holds after COMMIT");
		$node->safe_psql('postgres', 'DROP TABLE x');
	}

	# ---- it is open for long: its indexes are not taken for rebuilds that were broken off ----
	{
		my $session = $node->background_psql('postgres', on_error_stop => 1);
		my $position;

		$node->safe_psql('postgres', table(''));
		rebuild_on($node);
		$position = log_position($node);
		$session->query_safe("BEGIN; $move; $row;");
		sleep(7);    # the cleaner comes each second; a rebuild waits 5 s for a lock
		unlike(logged_since($node, $position), qr/could not rebuild/, 'open for long: no rebuild has failed');

		$session->query_safe('ROLLBACK');
		# (a try that was given up would put the next one off)
		ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid')), 'open for long: rebuilt after that');
		unlike(logged_since($node, $position), qr/could not rebuild/, 'open for long: at the first try');
		$session->quit;
		rebuild_off($node);
		$node->safe_psql('postgres', 'DROP TABLE m');
	}

	# ---- a standby that is promoted while it is open ----
	{
		my $session = $node->background_psql('postgres', on_error_stop => 1);

		$node->safe_psql('postgres', table(''));
		wait_for_state($standby, 'm_k', qr/^valid/, 'promoted: built before');
		$session->query_safe("BEGIN; $move; $row;");
		replayed($node, $standby, 'INSERT INTO t VALUES (1)');
		rebuild_off($standby);
		$standby->promote;
		$standby->safe_psql('postgres', $others);
		is($standby->safe_psql('postgres', "$by_index $found"), '0|0|1', 'promoted: rows');
		come_back($standby, 'promoted');
		is($standby->safe_psql('postgres', "$by_index $found"), '0|0|1', 'promoted: rows by the indexes');
		$session->quit;
		$standby->stop;
		undef $standby;
		$node->safe_psql('postgres', 'DROP TABLE m');
	}

	# ---- indexes that are not logged ----
	killed('killed, indexes moved', "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE a; ALTER INDEX m_s SET TABLESPACE b; $row;", 'WITH (wal = off)');

	# ---- the rows themselves are not in WAL ----
	restart_with($node, "wal_level = minimal\nmax_wal_senders = 0\n");
	taken_back('wal_level = minimal, ROLLBACK', "BEGIN; $move; $row; ROLLBACK;", 0);
	taken_back('wal_level = minimal, indexes moved', "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE a; ALTER INDEX m_s SET TABLESPACE b; $row; ROLLBACK;", 0);
	killed('wal_level = minimal, killed', "BEGIN; $move; $row;");
	taken_back('wal_level = minimal, indexes moved, COMMIT', "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE b; $row; COMMIT;", 1);
	{
		$node->safe_psql('postgres', table('') . "BEGIN; $move; ALTER INDEX m_k SET TABLESPACE b; $row; COMMIT;");
		crash_and_start($node);
		nothing_left('wal_level = minimal, killed after COMMIT', 1);
		$node->safe_psql('postgres', 'DROP TABLE m');
	}

	$node->stop;
}

# ======== moved sequences ========

# Statements that give a table or its indexes other files, two and three of them in one
# transaction, with savepoints that are rolled back and released in between, and what the
# index must be after that: invalid, if rows have been left out that an abort might have
# taken away without a trace; else valid.  Too many files given up is a fault as well: a
# transaction can't rebuild what it has locked.  (Random ones, of which the answers are looked
# at: files/ddl.pl, rows/random_sql.pl.)
{
	# A server with assertions takes some of these sequences for faults of its own where
	# wal_level is minimal, without pmhash as well (relcache.c, AssertPendingSyncConsistency).
	my $wal_level = `pg_config --configure` =~ /--enable-cassert/ ? 'replica' : 'minimal';
	my $node = new_server('sequences', <<CONF);
wal_level = $wal_level
max_wal_senders = 0
allow_in_place_tablespaces = on
pmhash.rebuild = off
pmhash.cleaner_naptime = 3600
CONF
	start_with_extension($node, "CREATE TABLESPACE a LOCATION ''; CREATE TABLESPACE b LOCATION '';");

	# An index file goes with the level that has made it; rows that come to another file of the
	# table than the one that it was made for are left out.
	my @sequences = (
		[ invalid => 'move, insert, savepoint, move, insert, rollback to, insert, commit' ],
		[ invalid => 'savepoint, move, savepoint, truncate, rollback to, insert, release, rollback to, insert, prepared' ],
		[ valid => 'move, savepoint, reindex, savepoint, reindex, insert, rollback to, insert, release, savepoint, insert, rollback to, insert, commit' ],
		[ invalid => 'savepoint, move, release, savepoint, cluster, insert, rollback to, savepoint, insert, release, prepared' ],
		[ valid => 'savepoint, truncate, savepoint, move, rollback to, insert, release, rollback to, insert, rollback' ],
		[ valid => 'truncate, insert, savepoint, cluster, insert, rollback to, insert, prepared' ],
		[ valid => 'cluster, insert, truncate, insert, savepoint, cluster, rollback to, truncate, insert, commit' ],
		[ valid => 'truncate, insert, cluster, insert, savepoint, truncate, rollback to, cluster, insert, rollback prepared' ],
		[ invalid => 'reindex, savepoint, move, savepoint, move, insert, rollback to, insert, release, savepoint, insert, rollback to, insert, prepared' ],
		[ valid => 'reindex, insert, alter, insert, savepoint, reindex, rollback to, alter, insert, prepared' ],
		[ valid => 'alter, insert, savepoint, reindex, insert, rollback to, insert, commit' ],
		[ valid => 'alter, savepoint, cluster, savepoint, cluster, insert, rollback to, insert, release, savepoint, insert, rollback to, insert, commit' ],
		[ invalid => 'savepoint, cluster, release, savepoint, move, insert, rollback to, savepoint, insert, release, prepared' ],
		[ valid => 'cluster, insert, savepoint, truncate, insert, rollback to, insert, rollback prepared' ],
		[ invalid => 'move index, insert, move, insert, savepoint, move index, rollback to, move, insert, rollback prepared' ],
		[ valid => 'insert, savepoint, move index, savepoint, alter, release, insert, rollback to, insert, rollback prepared' ]);

	# One of them as SQL.
	sub written
	{
		my ($words) = @_;
		my %now = (place => 'b', index => 'b', type => 'int4');
		my $rows = 100;
		my @before;    # of each savepoint
		my $other = sub { my ($what, $one, $two) = @_; return $now{$what} = $now{$what} eq $one ? $two : $one };
		my %sql = (
			'move' => sub { return 'ALTER TABLE m SET TABLESPACE ' . $other->('place', 'a', 'b') },
			'move index' => sub { return 'ALTER INDEX m_k SET TABLESPACE ' . $other->('index', 'a', 'b') },
			'alter' => sub { return 'ALTER TABLE m ALTER k TYPE ' . $other->('type', 'int8', 'int4') },
			'truncate' => sub { return 'TRUNCATE m' },
			'reindex' => sub { return 'REINDEX TABLE m' },
			'cluster' => sub { return 'CLUSTER m USING m_b' },
			'insert' => sub { $rows += 4; return "INSERT INTO m SELECT i, i FROM generate_series($rows - 3, $rows) i; SELECT compared()" },
			'savepoint' => sub { push @before, {%now}; return 'SAVEPOINT s' . @before },
			'rollback to' => sub { %now = %{ $before[-1] }; return 'ROLLBACK TO s' . @before },
			'release' => sub { pop @before; return 'RELEASE s' . (@before + 1) },
			'commit' => sub { return 'COMMIT' },
			'rollback' => sub { return 'ROLLBACK' },
			'prepared' => sub { return "PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'" },
			'rollback prepared' => sub { return "PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'" });

		return join('; ', 'BEGIN', map { $sql{$_}->() } split(/, /, $words)) . ';';
	}

	# Rows by the index (if it is there) and by a sequential scan.
	$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION compared() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE by_table text; by_index text;
BEGIN
	SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = on;
	EXECUTE 'SELECT count(*) || '' '' || coalesce(sum(v), 0) FROM m' INTO by_table;
	SET LOCAL enable_indexscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = off;
	EXECUTE 'SELECT count(*) || '' '' || coalesce(sum(v), 0) FROM m WHERE k = ANY (ARRAY(SELECT generate_series(1, 1000)))'
		INTO by_index;
	IF by_table <> by_index THEN
		RAISE WARNING 'table %, index %', by_table, by_index;
	END IF;
	RETURN by_table = by_index;
END $$;
SQL

	my $before = <<'SQL';
CREATE TABLE m (k int4, v int8) WITH (autovacuum_enabled = off);
CREATE INDEX m_k ON m USING pmhash (k);
CREATE INDEX m_b ON m (v);
INSERT INTO m SELECT i, i FROM generate_series(1, 100) i;
SQL
	my $after = <<'SQL';
INSERT INTO m SELECT i, i FROM generate_series(900, 940) i;
SELECT compared();
SELECT split_part(state, ':', 1) FROM pmhash.indexes WHERE index = 'm_k';
SELECT pmhash.check('m_k') WHERE (SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'm_k');
DELETE FROM m WHERE k % 2 = 0;
VACUUM m;
INSERT INTO m SELECT i, i FROM generate_series(941, 980) i;
SELECT compared();
SELECT pmhash.check('m_k') WHERE (SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'm_k');
DROP TABLE m;
SQL

	my ($sql, @wanted) = ('');
	foreach my $sequence (@sequences)
	{
		my ($state, $words) = @$sequence;
		my $compared = () = $words =~ /insert/g;

		$sql .= "$before\n\\echo @{[scalar(@wanted)]}:\n@{[written($words)]}\n$after\n";
		push @wanted, { name => $words, state => $state,
			says => join(' ', ('t') x ($compared + 1), $state, $state eq 'valid' ? ('', 't', '') : 't') };
	}

	my ($result, $stdout, $stderr) = $node->psql('postgres', $sql, on_error_stop => 0);
	my %says = map { my ($n, $text) = /^(\d+):\n(.*)/s; ($n => join(' ', split /\n/, $text, -1)) } split /^(?=\d+:\n)/m, "$stdout\n";
	is($stderr, '', 'no error, no warning');
	foreach my $n (0 .. $#wanted)
	{
		my $said = $says{$n} // '';

		$said =~ s/ $//;
		is($said, $wanted[$n]{says}, "$n: $wanted[$n]{name}");
	}
	$node->stop;
}

done_testing();
