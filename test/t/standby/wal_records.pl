# Records of WAL: what they hold.  (Of statements that fail: rows/insert_queue.)

use v5.36;
use PmhashStandby;
use PmhashTest;

# ======== wal records ========

# Logged indexes: which records a primary writes, how long they are and in which
# order they stand in WAL; and that a server without the library passes over them.
{
	my $settings = <<CONF;
wal_level = replica
max_wal_senders = 2
fsync = off
checkpoint_timeout = 1h
pmhash.wal = off
CONF
	my $node = new_server('primary', $settings);
	start_with_extension($node);
	install_wal_records($node);

	sub sql ($sql)
	{
		return $node->safe_psql('postgres', $sql);
	}

	# Everything up to here is on disk.
	my $flush = q(SET synchronous_commit = on; DO $$ BEGIN PERFORM pg_logical_emit_message(true, 'flush', ''); END $$;);

	# The same; the place in WAL.
	sub lsn
	{
		return sql("$flush SELECT pg_current_wal_flush_lsn()");
	}

	# A query on the records from a place on.
	sub records ($from, $query)
	{
		return sql("$flush SELECT $query FROM pmhash_wal_records('$from', pg_current_wal_flush_lsn()) r");
	}

	sub file_of ($index)
	{
		return sql("SELECT substring(file from '([0-9a-f]{16})\\.pmh') FROM pmhash.files() WHERE index = '$index'::regclass");
	}

	# Types of a file's records, those of equal neighbours once.
	sub types ($from, $file)
	{
		return sql("$flush SELECT pmhash_wal_types('$from', '$file')");
	}

	my $from;
	my $file;

	# ---- bytes ----

	$from = lsn();
	sql(<<SQL);
CREATE TABLE t (k int8, v int8);
CREATE INDEX t_k ON t USING pmhash (k) WITH (wal = on);
SQL
	$file = file_of('t_k');
	is(records($from, 'type, record_length, database = (SELECT oid FROM pg_database WHERE datname = current_database()), file_id'),
		"FILE_NEW|50|t|$file", 'CREATE INDEX');
	$from = lsn();
	sql("INSERT INTO t VALUES ($_, $_)") foreach 1 .. 20;
	is(records($from, 'count(*), min(record_length), max(record_length), sum(entries)'),
		'20|56|56|20', 'rows alone: 56 bytes each');
	is(sql("SELECT count(*) FROM (SELECT tids[1] tid, row_number() OVER (ORDER BY record_start) n FROM pmhash_wal_records('$from', '" . lsn() . "')) r JOIN t ON t.v = r.n AND t.ctid = r.tid"),
		'20', 'their TIDs');

	# right after a checkpoint the heap's page comes as an image, and nothing of ours
	sql('CHECKPOINT');
	$from = lsn();
	sql('INSERT INTO t VALUES (21, 21)');
	is(records($from, 'record_length'), '56', 'after a checkpoint: 56 bytes');
	{
		my $to = lsn();
		my $relation = sql("SELECT CASE dattablespace WHEN 0 THEN 1663 ELSE dattablespace END || '/' || oid || '/' || pg_relation_filenode('t_k') FROM pg_database WHERE datname = current_database()");
		my ($stdout, $stderr) =
		  run_command([ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-s', $from, '-e', $to, '-R', $relation ]);

		unlike($stdout, qr/^rmgr:/m, "no block of the index is in WAL ($relation)");
		($stdout, $stderr) =
		  run_command([ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-s', $from, '-e', $to, '-r', 'XLOG' ]);
		like($stdout, qr/NOOP/, 'pg_waldump shows a NOOP');
	}

	$from = lsn();
	sql('INSERT INTO t SELECT i, i FROM generate_series(100, 20099) i');
	is(records($from, 'sum(entries)'), '20000', 'a statement of many rows: all entries');
	my $bytes = records($from, 'sum((record_length + 7) / 8 * 8)::float8 / sum(entries)');
	cmp_ok($bytes, '<=', 16, "bytes a row: $bytes");
	$from = lsn();
	$node->psql('postgres', "COPY t FROM PROGRAM 'seq -f \"%.0f,1\" 30000 39999' (FORMAT csv)");
	$bytes = records($from, 'sum((record_length + 7) / 8 * 8)::float8 / sum(entries)');
	cmp_ok($bytes, '<=', 16, "COPY: bytes a row: $bytes");

	sql('CHECKPOINT');
	$from = lsn();
	sql('INSERT INTO t SELECT i, i FROM generate_series(40000, 49999) i');
	is(records($from, 'sum(entries)'), '10000', 'many rows after a checkpoint: all entries');
	$bytes = records($from, 'sum((record_length + 7) / 8 * 8)::float8 / sum(entries)');
	cmp_ok($bytes, '<=', 16, "many rows after a checkpoint: bytes a row: $bytes");

	# nothing is logged of an index that is not to be
	foreach my $kind (
		[ 'wal = off', 'TABLE', 'WITH (wal = off)' ],
		[ 'pmhash.wal = off', 'TABLE', '' ],
		[ 'unlogged', 'UNLOGGED TABLE', 'WITH (wal = on)' ],
		[ 'temporary', 'TEMP TABLE', 'WITH (wal = on)' ])
	{
		my ($name, $table, $with) = @$kind;

		$from = lsn();
		sql(<<SQL);
CREATE $table n (k int8);
CREATE INDEX n_k ON n USING pmhash (k) $with;
INSERT INTO n VALUES (1);
INSERT INTO n SELECT generate_series(2, 1000);
DELETE FROM n WHERE k > 500;
VACUUM n;
SET enable_seqscan = off;
SELECT count(*) FROM n WHERE k = 1;
REINDEX INDEX n_k;
DROP TABLE n;
SQL
		is(records($from, 'count(*)'), '0', "nothing: $name");
	}

	# ---- order ----

	# P2: the entries of a transaction are in WAL before its commit
	sub commit_of ($from, $xid)
	{
		my ($stdout) = run_command(
			[ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-s', $from, '-e', lsn(), '-r', 'Transaction', '-x', $xid ]);
		$stdout =~ /lsn: ([0-9A-F]+\/[0-9A-F]+).*(?:COMMIT|PREPARE)/ or return '';
		return $1;
	}

	foreach my $way (
		[ 'alone', 'INSERT INTO t VALUES (-1, -1);' ],
		[ 'in a queue', 'INSERT INTO t SELECT -i, i FROM generate_series(1, 1000) i;' ],
		[ 'with savepoints', 'SAVEPOINT a; INSERT INTO t SELECT -i, i FROM generate_series(1, 1000) i; RELEASE a;' ])
	{
		my ($name, $insert) = @$way;
		$from = lsn();
		my $xid = sql("BEGIN; SELECT pg_current_xact_id(); $insert COMMIT");
		my $commit = commit_of($from, $xid);

		is(records($from, "count(*) > 0, bool_and(record_end <= '$commit')"), 't|t',
			"entries before the commit: $name");
	}
	$from = lsn();
	my $prepared = sql("BEGIN; SELECT pg_current_xact_id(); INSERT INTO t SELECT -i, i FROM generate_series(1, 1000) i; PREPARE TRANSACTION 'p'");
	is(records($from, 'sum(entries)'), '1000', 'entries before PREPARE');
	sql("COMMIT PREPARED 'p'");

	# a statement that fails in the middle: what is in the file is in WAL
	$from = lsn();
	sql('CREATE TABLE half (k int8); CREATE INDEX half_k ON half USING pmhash (k) WITH (wal = on)');
	$node->psql('postgres', 'INSERT INTO half SELECT 100 / (20000 - i) FROM generate_series(1, 20001) i');
	is(sql("SELECT entries FROM pmhash.stats('half_k')"),
		sql("SELECT coalesce(sum(entries), 0) FROM pmhash_wal_records('$from', '" . lsn() . "') WHERE type = 'INSERT'"),
		'an aborted statement: entries in the file are those in WAL');
	cmp_ok(sql("SELECT entries FROM pmhash.stats('half_k')"), '>', 0, 'and there are some');

	# P3: VACUUM logs what it removes, then that it is over, then frees TIDs
	sql('DELETE FROM t WHERE k BETWEEN 100 AND 10099');
	$from = lsn();
	sql('VACUUM t');
	is(types($from, $file), 'DEAD SWEPT', 'VACUUM');
	is(records($from, "sum(entries), count(horizon), count(DISTINCT database)"), '10000|0|1',
		'VACUUM: all rows, no horizon');
	{
		my ($first) = run_command(
			[ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-s', $from, '-e', lsn(), '-r', 'Heap2' ]);
		my ($freed) = $first =~ /lsn: ([0-9A-F]+\/[0-9A-F]+)[^\n]*(?:Heap2\/VACUUM |PRUNE_VACUUM_CLEANUP|desc: VACUUM )/;

		isnt($freed // '', '', 'TIDs are freed');
		is(records($from, "bool_and(record_end <= '$freed')"), 't', 'after the records');
	}
	sql("SELECT pmhash.check('t_k')");

	# P4: what scans remove, with the deleter as horizon
	sql('CREATE TABLE dead (k int8, v int8) WITH (fillfactor = 50); CREATE INDEX dead_k ON dead USING pmhash (k) WITH (wal = on)');
	sql('INSERT INTO dead SELECT 1, i FROM generate_series(1, 500) i');
	my $dead = file_of('dead_k');
	$from = lsn();
	my $deleter = sql('BEGIN; SELECT pg_current_xact_id(); DELETE FROM dead; COMMIT');
	scans_leave($node, 'dead', 1, 0, 'scans have removed what is dead');
	is(sql("SELECT count(DISTINCT tid) FROM pmhash_wal_records('$from', '" . lsn() . "'), unnest(tids) tid WHERE type = 'DELETE' AND file_id = '$dead'"),
		'500', 'and have logged it');
	my $horizons = sql("SELECT DISTINCT coalesce(horizon::text, 'none') FROM pmhash_wal_records('$from', '" . lsn() . "') WHERE type = 'DELETE' AND file_id = '$dead'");
	is($horizons, $deleter, 'with the transaction that made them dead');

	# ---- files ----

	# event: `ALTER INDEX ... SET (wal = on)`, or `off`
	sql('CREATE TABLE a (k int8, v int8); INSERT INTO a SELECT i, i FROM generate_series(1, 1000) i; CREATE INDEX a_k ON a USING pmhash (k)');

	# A test: what a statement says, and what an insert after it writes.
	sub says_and_writes ($name, $statement, $says, $types)
	{
		my ($result, $stdout, $stderr) = $node->psql('postgres', $statement);
		my $before = lsn();

		like($stderr, $says, "$name: what it says");
		sql('INSERT INTO a VALUES (0, 0)');
		is(types($before, file_of('a_k')), $types, "$name: what is logged");
		return;
	}

	says_and_writes('wal = on', 'ALTER INDEX a_k SET (wal = on)', qr/NOTICE:  index "a_k" is not logged before it is rebuilt\nHINT: .*REINDEX/, '');
	says_and_writes('other parameters', 'ALTER INDEX a_k SET (fillfactor = 90)', qr/^$/, '');
	says_and_writes('wal = on, and back', 'ALTER INDEX a_k RESET (wal)', qr/^$/, '');
	says_and_writes('wal = on, rebuilt', 'ALTER INDEX a_k SET (wal = on); REINDEX INDEX a_k', qr/NOTICE/, 'INSERT');
	says_and_writes('wal = off', 'ALTER INDEX a_k SET (wal = off)', qr/NOTICE:  index "a_k" is logged until it is rebuilt\nHINT: .*REINDEX/, 'INSERT');
	says_and_writes('wal = off, rebuilt', 'REINDEX INDEX CONCURRENTLY a_k', qr/^$/, '');
	says_and_writes('of a table', 'ALTER TABLE a SET (fillfactor = 90)', qr/^$/, '');
	sql('ALTER INDEX a_k SET (wal = on); REINDEX INDEX a_k');
	fails_like($node, 'ALTER INDEX a_k SET (wal = maybe)', qr/invalid value for enum option "wal": maybe/, 'other values');
	my $a;

	# made in a transaction that is prepared
	$from = lsn();
	sql("BEGIN; REINDEX INDEX a_k; PREPARE TRANSACTION 'made'; COMMIT PREPARED 'made'");
	$a = file_of('a_k');
	is(types($from, $a), 'FILE_NEW', 'prepared');

	# the configuration changes: files that are there stay as they are
	sql('CREATE TABLE g (k int8); CREATE INDEX g_k ON g USING pmhash (k)');
	my $g = file_of('g_k');
	$from = lsn();
	$node->adjust_conf('postgresql.conf', 'pmhash.wal', 'on');
	$node->reload;
	sql('INSERT INTO g VALUES (0)');
	is(types($from, $g), '', 'pmhash.wal = on: not of a file that is there');
	$node->adjust_conf('postgresql.conf', 'pmhash.wal', 'off');
	$node->reload;

	# files that come and go with transactions
	sub new_and_old ($name, $statement, $more = '')
	{
		my $old = file_of('a_k');
		my $before = lsn();

		$node->safe_psql('postgres', $statement);
		my $new = file_of('a_k');
		isnt($new, $old, "$name: another file");
		is(types($before, $old) . ' | ' . types($before, $new), 'FILE_GONE | FILE_NEW' . ($more),
			"$name: records");
		return;
	}

	new_and_old('REINDEX', 'REINDEX INDEX a_k');
	new_and_old('REINDEX CONCURRENTLY', 'REINDEX INDEX CONCURRENTLY a_k', ' SWEPT');
	new_and_old('TRUNCATE', 'TRUNCATE a');
	sql('INSERT INTO a SELECT i, i FROM generate_series(1, 1000) i');
	new_and_old('VACUUM FULL', 'VACUUM FULL a');
	new_and_old('CLUSTER', 'CREATE INDEX a_v ON a (v); CLUSTER a USING a_v');
	new_and_old('ALTER TYPE', 'ALTER TABLE a ALTER k TYPE int4');
	new_and_old('in a subtransaction', 'BEGIN; SAVEPOINT s; REINDEX INDEX a_k; RELEASE s; COMMIT');

	$a = file_of('a_k');
	$from = lsn();
	sql('BEGIN; SAVEPOINT s; REINDEX INDEX a_k; ROLLBACK TO s; TRUNCATE a; ROLLBACK');
	is(records($from, "count(*) FILTER (WHERE type <> 'FILE_NEW')"), '0', 'rolled back: nothing of files that there are');
	mkdir($node->basedir . '/space') or die;
	sql("CREATE TABLESPACE space LOCATION '" . $node->basedir . "/space'");
	$from = lsn();
	sql('ALTER INDEX a_k SET TABLESPACE space');
	is(file_of('a_k') . records($from, 'count(*)'), "${a}0", 'SET TABLESPACE: the same file, and nothing in WAL');
	sql('INSERT INTO a VALUES (0, 0)');
	is(types($from, $a), 'INSERT', 'which goes on being logged');
	$from = lsn();
	sql('ALTER TABLE a SET UNLOGGED');
	is(types($from, $a), 'FILE_GONE', 'SET UNLOGGED');
	$from = lsn();
	sql('INSERT INTO a VALUES (0, 0)');
	is(records($from, 'count(*)'), '0', 'unlogged: nothing');
	sql('ALTER TABLE a SET LOGGED');
	is(types($from, file_of('a_k')), 'FILE_NEW', 'SET LOGGED');
	$a = file_of('a_k');
	$from = lsn();
	sql('DROP INDEX CONCURRENTLY a_k');
	is(types($from, $a), 'FILE_GONE', 'DROP INDEX CONCURRENTLY');
	$from = lsn();
	sql('CREATE INDEX CONCURRENTLY a_k ON a USING pmhash (k) WITH (wal = on)');
	is(types($from, file_of('a_k')), 'FILE_NEW SWEPT', 'CREATE INDEX CONCURRENTLY, which lists TIDs by a bulk delete');
	$a = file_of('a_k');
	$from = lsn();
	sql('DROP TABLE a');
	is(types($from, $a), 'FILE_GONE', 'DROP TABLE');
	sql('DROP TABLESPACE space');
	$from = lsn();
	sql('BEGIN; CREATE TABLE c (k int8); CREATE INDEX c_k ON c USING pmhash (k) WITH (wal = on); INSERT INTO c VALUES (1); TRUNCATE c; COMMIT');
	is(types($from, file_of('c_k')), 'FILE_NEW', 'made, truncated: the last file');
	is(records($from, "string_agg(type, ' ' ORDER BY record_start) FILTER (WHERE type <> 'INSERT')"),
		'FILE_NEW', 'and nothing of the one before, which no standby has');

	$from = lsn();
	sql("BEGIN; CREATE INDEX c_k2 ON c USING pmhash (k) WITH (wal = on); PREPARE TRANSACTION 'c'");
	is(records($from, 'type'), 'FILE_NEW', 'prepared');
	sql("COMMIT PREPARED 'c'; INSERT INTO c VALUES (2)");
	is(types($from, file_of('c_k2')), 'FILE_NEW INSERT', 'COMMIT PREPARED: nothing more');

	# standbys look for an index when its transaction has committed
	$from = lsn();
	my $made = sql('BEGIN; SELECT pg_current_xact_id(); CREATE INDEX c_k3 ON c USING pmhash (k) WITH (wal = on); COMMIT');
	my $visible = commit_of($from, $made);
	is(records($from, "type, record_start > '$visible'"), 'FILE_NEW|t', 'FILE_NEW comes after the commit');

	# P6: a session that leaves an entry out logs FILE_GONE before; a worker is not there to do so
	$file = file_of('t_k');
	$node->adjust_conf('postgresql.conf', 'pmhash.cleaner_naptime', '1000');
	$node->reload;
	sleep(2);
	$from = lsn();
	my ($path) = grep { /$file/ } index_files(pool($node));
	unlink($path) or die "$path: $!";
	my $skipped = sql('BEGIN; SELECT pg_current_xact_id(); INSERT INTO t VALUES (77, 77); COMMIT');
	my $commit = commit_of($from, $skipped);
	is(sql("SELECT type, record_end <= '$commit' FROM pmhash_wal_records('$from', '" . lsn() . "') WHERE file_id = '$file'"),
		'FILE_GONE|t', 'file lost: its end is in WAL before the commit');
	$node->adjust_conf('postgresql.conf', 'pmhash.cleaner_naptime', '1');
	$node->reload;
	wait_while(sub { sql("SELECT state FROM pmhash.indexes WHERE index = 't_k'") ne 'valid' }, 60);
	isnt(file_of('t_k'), $file, 'rebuilt');
	is(types($from, file_of('t_k')), 'FILE_NEW', 'rebuilt: its new file is logged');
	$from = lsn();
	sql('INSERT INTO t VALUES (78, 78)');
	is(types($from, file_of('t_k')), 'INSERT', 'and entries of it');
	same_answers($node, 't', 'k', 't_k', 'after the rebuild');

	# ---- a server without the library ----

	# event: a server without the library replays records of logged indexes
	my $plain = made_standby($node, 'plain');
	start_with($plain, "shared_preload_libraries = ''\n");
	sql('INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i; DELETE FROM t WHERE k < 500; VACUUM t; INSERT INTO t VALUES (1, 1)');
	my $rows = sql('SELECT count(*), sum(k) FROM t');
	$node->wait_for_catchup($plain);
	is($plain->safe_psql('postgres', 'SET enable_indexscan = off; SELECT count(*), sum(k) FROM t'), $rows,
		'a standby without the library follows');
	$plain->promote;
	is($plain->safe_psql('postgres', 'SELECT count(*), sum(k) FROM t'), $rows, 'and is promoted');
	$plain->stop;
	crash($node);
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	ok($node->start(fail_ok => 1), 'it starts after a crash');
	is($node->safe_psql('postgres', 'SELECT count(*), sum(k) FROM t'), $rows, 'and has the rows');
	$node->stop;
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");
	$node->start;

	# the same with wal_level = minimal: nothing is written, whatever the index says
	$node->adjust_conf('postgresql.conf', 'wal_level', 'minimal');
	$node->adjust_conf('postgresql.conf', 'max_wal_senders', '0');
	$node->restart;
	$from = lsn();
	sql('CREATE TABLE m (k int8); CREATE INDEX m_k ON m USING pmhash (k) WITH (wal = on); INSERT INTO m VALUES (1)');
	sql('REINDEX INDEX t_k; INSERT INTO t VALUES (1, 1)');
	is(records($from, 'count(*)'), '0', 'wal_level = minimal: nothing');
	my $m = file_of('m_k');
	$node->adjust_conf('postgresql.conf', 'wal_level', 'replica');
	$from = lsn();
	$node->restart;
	sql('INSERT INTO m VALUES (1)');
	is(types($from, $m), 'INSERT', 'replica again: what was made meanwhile is logged');
	$node->stop;
}

done_testing();
