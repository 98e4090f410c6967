# Rows whose entries wait in a queue, or are the only ones of their statement.

use v5.36;
use PmhashFaults;
use PmhashTest;

# ======== insert queue ========

# Rows that are queued when something fails, and the error is caught: by a
# savepoint or an EXCEPTION block.  As long as their transaction can commit they
# are not forgotten: either it commits and the index has each of them once, or
# the commit fails as well.  What is in the index's file is in WAL, each entry once.
{
	# (no worker finds a lost file before we do)
	my $node = new_faulty_server('insert_queue', <<CONF);
pmhash.rebuild = on
pmhash.cleaner_naptime = 3600
pmhash.wal = on
wal_level = logical
max_wal_senders = 2
fsync = off
CONF

	install_wal_records($node);
	$node->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('s', 'test_decoding')");

	$node->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE side LOCATION ''");

	# The file system is full from here on; has space again.
	my ($full, $space) = @from_here{qw(full space)};
	my $by_index = "SET enable_seqscan = off; SET enable_bitmapscan = off;\n";
	my $load = "INSERT INTO q SELECT i, 'text ' || i FROM generate_series(1, 5000) i;\n";

	# A test: on a new table with two indexes the statements fail with these
	# SQLSTATEs and leave so many rows, which both indexes find; pmhash.check looks for
	# entries that are there twice.  Those in WAL are as many as in q_k, if that still has its
	# file, all different.
	sub case_is ($name, $states, $rows, $sql)
	{
		my ($status, $stdout, $stderr, $from, $file);

		$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS q, other;
CREATE TABLE q (k int8, t varchar(20));
CREATE INDEX q_k ON q USING pmhash (k);
CREATE INDEX q_t ON q USING pmhash (t);
CREATE TABLE other (m text);
SQL
		($from, $file) = split(/\|/, $node->safe_psql('postgres',
			"SELECT pg_current_wal_flush_lsn(), substring(file from '([0-9a-f]{16})\\.pmh') FROM pmhash.files() WHERE index = 'q_k'::regclass"));
		is(errors_of($node, $sql), $states, "$name: errors");
		($status, $stdout, $stderr) = $node->psql('postgres', <<SQL);
CALL wait_until_valid();
SELECT count(*) FROM q;
CREATE TABLE flush (); DROP TABLE flush;
SELECT 'WAL', s.entries, r.* FROM pmhash.stats('q_k') s,
	(SELECT count(*), count(DISTINCT (hash, tid)) FROM pmhash_wal_records('$from', 'FFFFFFFF/0') w, unnest(hashes, tids) e (hash, tid)
	WHERE w.type = 'INSERT' AND file_id = '$file') r (logged, different)
WHERE (logged <> entries OR different <> entries OR entries < (SELECT count(*) FROM q))
	AND EXISTS (SELECT FROM pmhash.files() WHERE index = 'q_k'::regclass AND file LIKE '%$file%');
SELECT 'q_k', * FROM every_key('q', 'k', 'q_k') WHERE by_index || by_bitmap <> 'samesame';
SELECT 'q_t', * FROM every_key('q', 't', 'q_t') WHERE to_regclass('q_t') IS NOT NULL AND by_index || by_bitmap <> 'samesame';
SELECT pmhash.check(indexrelid) FROM pg_index WHERE indrelid = 'q'::regclass;
SQL
		return is(join(' ', $status, split(' ', "$stdout $stderr")), "0 $rows", "$name: rows");
	}

	# event: an error in the middle of a transaction is caught by a savepoint or an `EXCEPTION` block
	my $read_in_savepoint = "SAVEPOINT s; SELECT count(*) FROM q WHERE k = 77; ROLLBACK TO s;\n";
	case_is('savepoint, full until the end', '53100 53100', 0,
		"$by_index BEGIN; $load $full $read_in_savepoint COMMIT;");
	case_is('savepoint, space again', '53100', 5000,
		"$by_index BEGIN; $load $full $read_in_savepoint $space COMMIT;");
	case_is('savepoint, read again in the transaction', '53100 53100 25P02', 0,
		"$by_index BEGIN; $load $full $read_in_savepoint SELECT count(*) FROM q WHERE k = 77; SELECT 1; COMMIT;");
	# (what the outer level has queued is applied when the inner one begins to queue)
	case_is('two levels', '53100', 5000 + 15000,
		"$by_index BEGIN; $load SAVEPOINT a; INSERT INTO q SELECT i, 'new' FROM generate_series(1, 15000) i; $full $read_in_savepoint $space RELEASE a; COMMIT;");
	case_is('two levels, the inner one aborted', '53100', 5000,
		"$by_index BEGIN; $load SAVEPOINT a; INSERT INTO q SELECT i, 'new' FROM generate_series(1, 15000) i; $full $read_in_savepoint $space ROLLBACK TO a; COMMIT;");
	case_is('a level that commits fails with its own rows only', '53100', 5000,
		"BEGIN; $load SAVEPOINT o; SAVEPOINT a; INSERT INTO q SELECT i, 'new' FROM generate_series(1, 15000) i; $full RELEASE a; ROLLBACK TO o; $space COMMIT;");

	# EXCEPTION blocks: one that has nothing to do with the queue does not fail
	case_is('another table in a block', '', 5000, <<SQL);
$full
DO \$\$ BEGIN
	INSERT INTO q SELECT i, 'text ' || i FROM generate_series(1, 5000) i;
	BEGIN
		INSERT INTO other VALUES ('loaded');
	EXCEPTION WHEN OTHERS THEN
		RAISE SQLSTATE 'XX999';
	END;
	PERFORM set_config('pmhash_faults.fail_at', '0', false);
END \$\$;
SQL
	case_is('read in a block', '53100', 0, <<SQL);
$by_index $full
DO \$\$ BEGIN
	INSERT INTO q SELECT i, 'text ' || i FROM generate_series(1, 5000) i;
	BEGIN
		PERFORM * FROM q WHERE k = 77;
	EXCEPTION WHEN disk_full THEN
		INSERT INTO other VALUES ('ignored');
	END;
END \$\$;
SQL
	case_is('rows of a block: its own handler gets the error', '', 100, <<SQL);
$full
DO \$\$ BEGIN
	BEGIN
		INSERT INTO q SELECT i, 'text ' || i FROM generate_series(1, 5000) i;
	EXCEPTION WHEN disk_full THEN
		PERFORM set_config('pmhash_faults.fail_at', '0', false);
		INSERT INTO q SELECT i, 'few' FROM generate_series(1, 100) i;
	END;
END \$\$;
SQL
	case_is('COMMIT in a block', '', 10000, <<SQL);
$by_index
DO \$\$ BEGIN
	PERFORM set_config('pmhash_faults.calls', 'posix_fallocate', false), set_config('pmhash_faults.fail_for', '1000000', false);
	FOR round IN 1 .. 2 LOOP
		INSERT INTO q SELECT i, 'text ' || i FROM generate_series(1, 5000) i;
		PERFORM set_config('pmhash_faults.fail_at', '1', false);
		BEGIN
			PERFORM * FROM q WHERE k = 77;
			RAISE 'not full' USING ERRCODE = 'XX999';
		EXCEPTION WHEN disk_full THEN
		END;
		PERFORM set_config('pmhash_faults.fail_at', '0', false);
		COMMIT;
	END LOOP;
END \$\$;
SQL

	# others that apply
	case_is('a cursor', '53100', 5000,
		"$by_index BEGIN; $load DECLARE c CURSOR FOR SELECT * FROM q WHERE k = 77; $full SAVEPOINT s; FETCH c; ROLLBACK TO s; $space COMMIT;");
	case_is('pmhash.check', '53100', 5000,
		"BEGIN; $load $full SAVEPOINT s; SELECT pmhash.check('q_k'); ROLLBACK TO s; $space COMMIT;");
	case_is('pmhash.stats', '53100', 5000,
		"BEGIN; $load $full SAVEPOINT s; SELECT pmhash.stats('q_k'); ROLLBACK TO s; $space COMMIT;");
	case_is('a parallel plan', '53100', 5000, <<SQL);
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
BEGIN; $load $full SAVEPOINT s; SELECT count(*) FROM q; ROLLBACK TO s; $space COMMIT;
SQL
	case_is('a statement for which there is too much queued', '53100', 32000, <<SQL);
CREATE TABLE parts (k int8, n int4) PARTITION BY LIST (n);
SELECT format('CREATE TABLE parts%s PARTITION OF parts FOR VALUES IN (%s)', i, i) FROM generate_series(0, 99) i \\gexec
CREATE INDEX ON parts USING pmhash (k);
SET work_mem = 64;
BEGIN; INSERT INTO q SELECT i, 'text' FROM generate_series(1, 16000) i; $full
SAVEPOINT s; INSERT INTO parts SELECT i, i % 100 FROM generate_series(1, 100000) i; ROLLBACK TO s; $space
INSERT INTO parts SELECT i, i % 100 FROM generate_series(1, 100000) i;
INSERT INTO q SELECT i, 'text' FROM generate_series(1, 16000) i;
COMMIT;
SELECT pmhash.check(inhrelid) FROM pg_inherits WHERE inhparent = 'parts_k_idx'::regclass;
DROP TABLE parts;
SQL

	# A cancel while queued rows are applied.  It comes while the file grows,
	# so some groups are in and others are not, as a second session sees.
	my $cancel = $from_here{cancel};
	my $more = "INSERT INTO q SELECT i, 'more ' || i FROM generate_series(1, 3000) i;\n";
	my $seen = $node->basedir . '/seen';
	my $psql = join(' ', $node->installed_command('psql'), '-XAtq', '-h', $node->host, '-p', $node->port, '-d', 'postgres');
	my ($look, $look_t) = map { "\\! $psql -c \"SELECT entries FROM pmhash.stats('$_')\" >'$seen'\n" } ('q_k', 'q_t');

	# A test: as case_is, and $look (or $look_t: the queue made last is applied first
	# when all are) has found some entries of groups (the first 16 of a
	# statement do not wait), and fewer than $most.
	sub cancelled_in_the_middle ($name, $states, $rows, $most, $sql)
	{
		unlink $seen;
		case_is($name, $states, $rows, $sql);
		chomp(my $entries = slurp_file($seen));
		return ok($entries > 32 && $entries < $most, "$name: in the middle ($entries of $most)");
	}
	# event: a query is cancelled, a transaction or savepoint aborts
	cancelled_in_the_middle('cancelled in a savepoint', '57014', 5000, 5000,
		"$by_index BEGIN; $load $cancel $read_in_savepoint $look COMMIT;");
	cancelled_in_the_middle('cancelled in a savepoint, more rows after that', '57014', 8000, 5000,
		"$by_index BEGIN; $load $cancel $read_in_savepoint $look $more COMMIT;");
	cancelled_in_the_middle('cancelled at RELEASE', '57014', 5000, 20000,
		"BEGIN; $load SAVEPOINT o; SAVEPOINT a; INSERT INTO q SELECT i, 'more ' || i FROM generate_series(1, 15000) i; $cancel RELEASE a; $look_t ROLLBACK TO o; COMMIT;");
	cancelled_in_the_middle('cancelled at COMMIT', '57014', 0, 5000, "BEGIN; $load $cancel COMMIT; $look_t");
	cancelled_in_the_middle('cancelled by a full queue', '57014', 0, 20000,
		"BEGIN; SAVEPOINT a; $cancel INSERT INTO q SELECT i, 'more ' || i FROM generate_series(1, 20000) i; $look ROLLBACK TO a; COMMIT;");

	# PREPARE
	case_is('PREPARE, full', '53100 53100 42704', 0,
		"$by_index BEGIN; $load $full $read_in_savepoint PREPARE TRANSACTION 'p'; $space COMMIT PREPARED 'p';");

	# The file of a queue changes hands: what is in it counts only if an index of
	# the table has it when the transaction ends.
	case_is('the file goes to another tablespace, space again', '53100', 5000,
		"$by_index BEGIN; $load ALTER INDEX q_t SET TABLESPACE side; $full SAVEPOINT s; SELECT * FROM q WHERE t = 'text 1'; ROLLBACK TO s; $space COMMIT;");
	# What may build indexes has all put in first, where its workers look for it (by themselves:
	# group_insert); so nothing waits any more when a file goes to another index.
	case_is('indexes made anew, and that undone', '', 5000,
		"$by_index BEGIN; $load SAVEPOINT a; REINDEX TABLE q; ROLLBACK TO a; $full $read_in_savepoint $space COMMIT;");
	case_is('no space for another type, at COMMIT', '53100 53100', 0,
		"BEGIN; $load $full SAVEPOINT a; ALTER TABLE q ALTER t TYPE varchar(40); ROLLBACK TO a; COMMIT; $space");
	case_is('table emptied, and that undone', '53100 53100', 0,
		"$by_index BEGIN; $load SAVEPOINT a; TRUNCATE q; ROLLBACK TO a; $full $read_in_savepoint COMMIT;");
	case_is('table dropped', '53100 42P01', 0, <<SQL . 'CREATE TABLE q (k int8, t varchar(20)); CREATE INDEX q_k ON q USING pmhash (k);');
$by_index BEGIN; $load $full $read_in_savepoint DROP TABLE q; COMMIT; SELECT * FROM q; $space
SQL

	case_is('full, rows one by one', '53100', 4000, <<SQL);
DO \$\$ BEGIN
	FOR i IN 1 .. 4000 LOOP
		INSERT INTO q VALUES (i, '');
	END LOOP;
END \$\$;
$full INSERT INTO q SELECT i, 'new' FROM generate_series(1, 20000) i; $space
SQL

	# A page of the file is lost.  The index is invalid from then on, and
	# is rebuilt from the table, with our rows.
	my $file = "SELECT file AS path FROM pmhash.indexes WHERE index = 'q_k' \\gset\n";
	case_is('file lost', '58030', 5000,
		"$by_index $file BEGIN; $load \\setenv Q :path\n\\! truncate -s 4096 \"\$Q\"\n$read_in_savepoint COMMIT;");

	# The records are nothing to logical decoding, with an index made by the way.
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_logical_slot_get_changes('s', NULL, NULL)");
	$node->safe_psql('postgres', "CREATE INDEX q_again ON q USING pmhash (t); INSERT INTO q VALUES (-1, 'decoded'); CHECKPOINT; INSERT INTO q VALUES (-2, 'decoded')");
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_logical_slot_get_changes('s', NULL, NULL) WHERE data ~ 'table public.q: INSERT'"),
		'2', 'logical decoding');
	$node->stop;
}

# ======== insert only ========

# A table that rows are only added to: what its index had free among the value buffers is
# found again after a restart, by the VACUUM that such tables get as well, though that has
# no dead rows to remove.  ANALYZE does not look for it.
{
	my $keys = 2000;
	my $node = new_server('insert_only', 'log_min_messages = debug1');

	# Rows of so many keys, from this one on.
	sub insert
	{
		my ($first, $n, $rows) = @_;

		$node->safe_psql('postgres', "INSERT INTO v SELECT $first + i % $n FROM generate_series(1, $n * $rows) i");
		return;
	}

	sub value_bytes { return $node->safe_psql('postgres', q(SELECT value_bytes FROM pmhash.stats('v_k'))); }

	# How often something free has been looked for since the log was that long.
	sub looks ($position)
	{
		my @looks = slurp_file($node->logfile, $position) =~ /DEBUG: .*looking for free space in index "v_k"/g;

		return scalar(@looks);
	}

	start_with_extension($node, 'CREATE TABLE v (k int); CREATE INDEX v_k ON v USING pmhash (k)');
	insert(0, $keys, 20);
	my $position = -s $node->logfile;
	$node->safe_psql('postgres', 'VACUUM v');
	is(looks($position), 0, 'what is free is known');

	foreach my $how ('fast', 'immediate')
	{
		# lists that grow leave what they were in
		insert(0, $keys, $how eq 'fast' ? 20 : 40);
		$node->stop($how);
		$node->start;
		$position = -s $node->logfile;
		$node->safe_psql('postgres', 'ANALYZE v');
		is(looks($position), 0, "$how: ANALYZE does not look");
		my $before = value_bytes();
		$node->safe_psql('postgres', 'VACUUM v');
		is(looks($position), 1, "$how: VACUUM looks");
		insert($how eq 'fast' ? 10_000 : 20_000, $keys / 4, 20);
		# by themselves they take 90 kB; lists of 40 rows have left less
		cmp_ok(value_bytes(), '<', $before + 65_536, "$how: new lists are where old ones were") if $how eq 'immediate';
		$node->safe_psql('postgres', 'VACUUM v');
		is(looks($position), 1, "$how: once");
		is($node->safe_psql('postgres', q(SELECT pmhash.check('v_k'))), '', "$how: the index is sound");
	}
	$node->stop;
}

done_testing();
