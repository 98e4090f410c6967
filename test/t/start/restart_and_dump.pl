# What takes seconds, beside the suites of SQL: restarts, dumps, a server without the library, databases made of a template.

use v5.36;

use FindBin;
use IPC::Run;
use PmhashInvalid;
use PmhashTest;

# ======== restart and dump ========

# Prepared transactions across restarts and crashes, dump and restore.
{
	my $node = new_server('restart');
	my $pool = pool($node);
	start_with_extension($node, <<SQL);
CREATE TABLE t (k int4, d int4);
INSERT INTO t SELECT i, i % 7 FROM generate_series(1, 20000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_d ON t USING pmhash (d) WITH (fillfactor = 70);
CREATE UNLOGGED TABLE u (k int4);
CREATE INDEX u_k ON u USING pmhash (k);
INSERT INTO u SELECT generate_series(1, 1000);
CREATE TABLE ex (k int4, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO ex SELECT generate_series(1, 100);
SQL

	wait_for_files($pool, 4, 'files');

	# ---- prepared transactions ----
	# event: the server is killed with prepared transactions
	foreach my $how ('stop', 'crash')
	{
		$node->safe_psql('postgres', <<SQL);
BEGIN;
INSERT INTO t SELECT i, 100 FROM generate_series(100001, 103000) i;
DELETE FROM t WHERE k <= 100;
PREPARE TRANSACTION 'rows';
SQL
		$node->safe_psql('postgres', <<SQL);
BEGIN;
CREATE TABLE p_$how (k int4);
INSERT INTO p_$how SELECT generate_series(1, 1000);
CREATE INDEX p_${how}_k ON p_$how USING pmhash (k);
PREPARE TRANSACTION 'index';
SQL
		$node->safe_psql('postgres', <<SQL);
BEGIN;
CREATE TABLE lost (k int4);
CREATE INDEX lost_k ON lost USING pmhash (k);
PREPARE TRANSACTION 'lost';
SQL
		my $files = () = index_files($pool);
		if ($how eq 'stop') { $node->stop; }
		else { crash($node); }
		$node->start;
		sleep 3;    # for the cleaner to make a mistake
		wait_for_files($pool, $files, "$how: files of prepared transactions");
		same_answers($node, 't', 'k', 't_k', "$how: rows prepared");
		$node->safe_psql('postgres', "COMMIT PREPARED 'rows'");
		same_answers($node, 't', 'k', 't_k', "$how: rows committed");
		is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 102000'),
			$how eq 'stop' ? '1' : '2', "$how: a prepared row");
		$node->safe_psql('postgres', "COMMIT PREPARED 'index'");
		same_answers($node, "p_$how", 'k', "p_${how}_k", "$how: prepared index");
		$node->safe_psql('postgres', "ROLLBACK PREPARED 'lost'");
		wait_for_files($pool, $files - 1, "$how: file of a prepared index rolled back");
		$node->safe_psql('postgres', 'INSERT INTO u VALUES (1)');
	}

	# ---- exclusion constraints are kept through crashes ----
	crash_and_start($node);
	fails_like($node, 'INSERT INTO ex VALUES (50)', qr/violates exclusion constraint "ex_k"/, 'exclusion constraint after a crash');
	$node->safe_psql('postgres', 'INSERT INTO ex VALUES (101)');

	# ---- dump and restore ----
	# event: `pg_dump` and restore
	my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump";
	$node->command_ok([ 'pg_dump', '-Fd', '-j', '2', '-f', $dump, 'postgres' ], 'pg_dump');
	$node->command_like([ 'pg_restore', '-f', '-', $dump ], qr/CREATE INDEX t_d ON public.t USING pmhash \(d\) WITH \(fillfactor='70'\)/, 'index in the dump');
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	$node->command_ok([ 'pg_restore', '-e', '-j', '2', '-d', 'restored', $dump ], 'restore');
	same_answers($node, 't', 'k', 't_k', 'restored', 'restored');
	same_answers($node, 't', 'd', 't_d', 'restored', 'restored');
	fails_like($node, 'INSERT INTO ex VALUES (50)', qr/violates exclusion constraint "ex_k"/, 'restored exclusion constraint', 'restored');
	is( $node->safe_psql('restored', "SELECT count(*) FROM pmhash.indexes WHERE state <> 'valid'"),
		'0', 'restored indexes are valid');

	$node->stop;
}

# ======== no preload ========

# Without shared_preload_libraries the server starts, and every use of a
# pmhash index is an ERROR with the hint: nothing is skipped.
{
	my $node = new_server('preload');
	start_with_extension($node, <<SQL);
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE unindexed (k int4);
INSERT INTO unindexed VALUES (1);
CREATE TABLE dropped (k int4);
CREATE INDEX dropped_k ON dropped USING pmhash (k);
SQL
	wait_for_files(pool($node), 2, 'files');
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	$node->restart;

	# event: the library is not in `shared_preload_libraries`
	my $hint = qr/not preloaded.*HINT:  Add pmhash to shared_preload_libraries/s;
	my $named = qr/pmhash index "t_k" cannot be used: the pmhash library is not preloaded.*HINT:  Add pmhash to shared_preload_libraries/s;
	# trouble: `pmhash index "..." cannot be used: the pmhash library is not preloaded`
	fails_like($node, 'INSERT INTO t VALUES (0, 0)', $named, 'INSERT');
	fails_like($node, 'UPDATE t SET k = k + 1 WHERE v = 1', $named, 'UPDATE of the key');
	fails_like($node, "COPY t FROM PROGRAM 'echo 1 1' (DELIMITER ' ')", $named, 'COPY');
	fails_like($node, 'REINDEX INDEX t_k', $named, 'REINDEX');
	fails_like($node, 'CREATE INDEX u_k ON unindexed USING pmhash (k)', $hint, 'CREATE INDEX');
	fails_like($node, 'CREATE UNLOGGED TABLE ul (k int4); CREATE INDEX ul_k ON ul USING pmhash (k)', $hint, 'CREATE INDEX, unlogged');
	fails_like($node, q(SELECT * FROM pmhash.stats('t_k')), $named, 'pmhash.stats');
	$node->safe_psql('postgres', 'DELETE FROM t WHERE v > 900');
	fails_like($node, 'VACUUM t', $named, 'VACUUM');

	# what does not touch the file works; the planner does not take the index
	# whatever else is disabled
	foreach my $scan (qw(indexscan bitmapscan indexonlyscan tidscan))
	{
		my $settings = "SET enable_seqscan = off; SET enable_$scan = off;";

		is($node->safe_psql('postgres', "$settings SELECT count(*) FROM t WHERE k = 1"),
			'1', "sequential scan, no $scan");
		is($node->safe_psql('postgres', "$settings SELECT count(*) FROM t a JOIN t b USING (k)"),
			'900', "join, no $scan");
		unlike($node->safe_psql('postgres', "$settings EXPLAIN (COSTS OFF) SELECT count(*) FROM t WHERE k = 1; EXPLAIN (COSTS OFF) SELECT count(*) FROM t a JOIN t b USING (k)"),
			qr/t_k/, "plan, no $scan");
	}
	is($node->safe_psql('postgres', "SELECT state, usable, reason FROM pmhash.indexes, pmhash.explain('t_k') WHERE index = 't_k'"),
		'disabled: pmhash is not preloaded|f|the state of the index is "disabled: pmhash is not preloaded"', 'state, and explained');
	like($node->safe_psql('postgres', 'EXPLAIN SELECT FROM t'), qr/^Index Not Usable: t_k \(pmhash\): .*not preloaded"$/m, '... as EXPLAIN says')
	  if $node->pg_version >= 18;
	$node->safe_psql('postgres', 'DROP TABLE dropped');

	# With the library: what the server has done meanwhile, and how it ended, is not
	# known.
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");
	$node->restart;
	wait_until($node, "SELECT bool_and(state = 'valid') FROM pmhash.indexes", 'not rebuilt');
	same_answers($node, 't', 'k', 't_k', 'preloaded again');
	$node->safe_psql('postgres', 'VACUUM t; INSERT INTO t SELECT i, i FROM generate_series(2000, 3000) i');
	same_answers($node, 't', 'k', 't_k', 'preloaded again, changed');
	wait_for_files(pool($node), 1, 'file of the table dropped meanwhile');
	$node->stop;
}

# ======== template ========

# CREATE DATABASE TEMPLATE, both strategies: the copy has stubs, but no files.
{
	my $node = new_server('template');
	$node->start;
	$node->safe_psql('postgres', 'CREATE DATABASE original');
	install_extension($node, 'original', invalid_fixture());
	$node->safe_psql('original', 'CREATE UNLOGGED TABLE u (k int4); INSERT INTO u SELECT generate_series(1, 500); CREATE INDEX u_k ON u USING pmhash (k)');

	# event: `CREATE DATABASE ... TEMPLATE` with strategy `wal_log` or `file_copy`
	foreach my $strategy ('wal_log', 'file_copy')
	{
		rebuild_off($node);
		$node->safe_psql('postgres', "CREATE DATABASE copy_$strategy TEMPLATE original STRATEGY $strategy");
		stays_invalid($node, 'it does not exist', $strategy, "copy_$strategy");
		all_rebuilt($node, $strategy, "copy_$strategy");
		same_answers($node, 'u', 'k', 'u_k', "$strategy, unlogged", "copy_$strategy");

		# no session has to use the database for that
		$node->safe_psql('postgres', "CREATE DATABASE unused_$strategy TEMPLATE original STRATEGY $strategy");
		my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'unused_$strategy'");
		wait_for_files(pool($node) . "/$oid", 5, "$strategy, before the first session");
		all_come_back($node, "$strategy, unused", "unused_$strategy");
		all_come_back($node, "$strategy, the original", 'original');
	}
	$node->safe_psql('postgres', 'DROP DATABASE copy_wal_log');
	all_come_back($node, 'after DROP DATABASE', 'copy_file_copy');
	$node->stop;
}

# ======== restored without pmhash ========

# The recipe of docs/operations.md for a server without pmhash, as it stands there: the
# restored database has all rows and constraints, and nothing of pmhash.
{
	my ($recipe) = slurp_file("$FindBin::RealBin/../../../docs/operations.md") =~
	  /^## Restoring without pmhash\n.*?^```bash\n(.*?)^```$/ms or die 'docs/operations.md has no recipe';

	my $node = new_server('without');
	my $unique = $node->pg_version < 18 ? '' : 'UNIQUE';

	$node->start;
	$node->safe_psql('postgres', 'CREATE DATABASE origin');
	# the rows of "plain" look like what is edited
	$node->safe_psql('origin', <<SQL);
CREATE EXTENSION pmhash;
CREATE TABLE plain (line text);
INSERT INTO plain VALUES ('CREATE INDEX i ON t USING pmhash (k) WITH (wal=''on'')'), ('CREATE EXTENSION pmhash');
CREATE TABLE t (k int8, v text, w int, EXCLUDE USING pmhash (v WITH =) WHERE (w > 0) DEFERRABLE);
INSERT INTO t SELECT g, 'v' || g, g FROM generate_series(1, 1000) AS g;
CREATE $unique INDEX t_k ON t USING pmhash (k) WITH (wal = off);
CREATE INDEX t_v ON t USING pmhash (lower(v)) WITH (fillfactor = 50, wal = on) WHERE w > 5;
CREATE INDEX t_w ON t USING pmhash (w, k) WITH (wal = on, fillfactor = 60);
CREATE INDEX t_pattern ON t USING pmhash (v text_pattern_ops);
CREATE OPERATOR CLASS own_ops FOR TYPE int4 USING pmhash AS
	OPERATOR 1 =, FUNCTION 1 hashint4extended(int4, int8);
SQL
	# The second time to hash: of one column, and not unique, but a key is too long for a btree.
	foreach my $method ('btree', 'hash')
	{
		$node->safe_psql('origin', "DROP INDEX t_k, t_w; INSERT INTO t VALUES (1001, (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 300) AS g), 7)")
		  if $method eq 'hash';

		my $dump = $node->basedir . '/shop.dump';
		$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('origin') ], 'a dump');

		my $output = '';
		{
			local $ENV{PGHOST} = $node->host;
			local $ENV{PGPORT} = $node->port;
			local $ENV{PATH} = $node->config_data('--bindir') . ":$ENV{PATH}";

			ok(IPC::Run::run([ 'bash', '-e', '-o', 'pipefail', '-c', "cd '" . $node->basedir . "'\n" . $recipe =~ s/USING btree/USING $method/r ],
					'<', \undef, '>&', \$output), "the recipe, $method") or diag($output);
		}
		unlike($output, qr/ERROR|error:/, 'without an error');

		foreach my $query ("SELECT md5(string_agg(t::text, ' ' ORDER BY k)) FROM t",
			"SELECT string_agg(line, ' ' ORDER BY line) FROM plain")
		{
			is($node->safe_psql('shop', $query), $node->safe_psql('origin', $query), 'the same rows');
		}
		my $wanted = $node->safe_psql('origin',
			"SELECT string_agg(indexdef, chr(10) ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'public'");
		$wanted =~ s/USING pmhash/USING $method/g;
		$wanted =~ s/ WITH \(wal='?off'?\)//g;
		$wanted =~ s/, wal='?on'?//g;
		$wanted =~ s/wal='?on'?, //g;
		is($node->safe_psql('shop',
				"SELECT string_agg(indexdef, chr(10) ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'public'"),
			$wanted, "the same indexes, of $method");
		like($wanted, $method eq 'hash' ? qr/WITH \(fillfactor='?50'?\)/ : qr/WITH \(fillfactor='?50'?\).*WITH \(fillfactor='?60'?\)/s, 'and their storage parameters');
		is($node->safe_psql('shop', q{SELECT (SELECT count(*) FROM pg_extension WHERE extname = 'pmhash') +
				(SELECT count(*) FROM pg_opclass WHERE opcname = 'own_ops')}), '0', 'nothing of pmhash');
		fails_like($node, "INSERT INTO t VALUES (2000, 'v7', 7)", qr/violates exclusion constraint/, 'the constraint', 'shop');
		$node->safe_psql('postgres', 'DROP DATABASE shop');
	}

	$node->stop;
}

done_testing();
