# Executor nodes: joins that are cancelled, cursors.

use v5.36;
use PmhashPortals;
use PmhashTest;

# ======== cancelled joins ========

# Joins by groups of keys that are cancelled: how soon, also with a table that shared buffers
# hold a small part of.
{
	my $node = new_server('cancelled', "shared_buffers = 16MB\nfsync = off\n");
	my $by_join = 'SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1000';

	$node->start;
	$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION pmhash;
CREATE TABLE t (k int, v int, pad text);
INSERT INTO t SELECT i, i, repeat('x', 600) FROM generate_series(1, 60000) i;
INSERT INTO t SELECT 70000 + i % 3, i, repeat('y', 600) FROM generate_series(1, 6000) i;
CREATE INDEX t_k ON t USING pmhash (k);
VACUUM ANALYZE;
SQL

	# The best of some tries: others may be at work on this machine.
	my %endless = (
		'keys that are there' => 'SELECT count(t.pad) FROM generate_series(1, 1000000000) g JOIN t ON t.k = g % 60000',
		'keys that are not' => 'SELECT count(t.pad) FROM generate_series(1, 1000000000) g JOIN t ON t.k = -g',
		'keys with many rows' => 'SELECT count(t.v) FROM generate_series(1, 1000000000) g JOIN t ON t.k = 70000 + g % 3 AND t.v < 0',
		'a key, page by page' => "SELECT count(t.v) FROM generate_series(1, 1000000000) g, LATERAL (SELECT v FROM t WHERE k = 70000 AND v < -g OFFSET 0) t",
		'no rows for the filter' => 'SELECT count(t.v) FROM generate_series(1, 1000000000) g JOIN t ON t.k = g % 60000 AND t.v < 0');

	foreach my $name (sort keys %endless)
	{
		my $late = $node->safe_psql('postgres', <<SQL);
$by_join;
CREATE TEMP TABLE late (ms float8);
SET statement_timeout = 150;
@{[ join('', map { <<DO } 1 .. 5) ]}
DO \$\$
BEGIN
	PERFORM ($endless{$name});
EXCEPTION WHEN query_canceled THEN
	INSERT INTO late SELECT 1000 * extract(epoch FROM clock_timestamp() - statement_timestamp()) - 150;
END \$\$;
DO
SELECT CASE WHEN count(*) = 5 AND min(ms) < 50 THEN 'soon' ELSE count(*) || ' ' || min(ms) END FROM late;
SQL
		is($late, 'soon', "cancelled: $name");
	}

	$node->stop;
}

# ======== bound portals ========

# In the extended protocol the executor is started when a portal is bound, its parallel
# workers when it is executed.  In between the transaction may insert rows, which wait in
# the leader's memory: workers are to find them.
SKIP:
{
	skip 'no Unix-domain sockets', 1 if !$PostgreSQL::Test::Utils::use_unix_sockets;

	my $node = new_server('bound_portals', <<CONF);
allow_in_place_tablespaces = on
pmhash.rebuild = off
max_parallel_workers = 8
CONF

	# look: how many rows of u have the key a, and was it a worker that looked?  (In the leader
	# its own scan puts in what waits.)  It starts no workers itself.
	$node->start;
	$node->safe_psql('postgres', q(SET allow_in_place_tablespaces = on; CREATE TABLESPACE side LOCATION ''));
	$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION pmhash;
CREATE TABLE big (i int4) WITH (parallel_workers = 2);
INSERT INTO big SELECT generate_series(1, 2000);
ANALYZE big;
CREATE TABLE u (k int8) WITH (autovacuum_enabled = off);
CREATE INDEX u_k ON u USING pmhash (k);
CREATE FUNCTION look(a int8) RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL SAFE
	SET max_parallel_workers_per_gather = 0 AS $$
BEGIN
	RETURN (SELECT count(*) FROM u WHERE k = a) ||
		CASE WHEN pg_backend_pid() = current_setting('test.leader')::int4 THEN ' by the leader' ELSE ' by a worker' END;
END $$;
SQL

	my $session = PmhashPortals->new($node);
	$session->run(<<'SQL');
SELECT set_config('test.leader', pg_backend_pid()::text, false);
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET parallel_leader_participation = off; SET enable_bitmapscan = off;
SQL

	my $query = 'SELECT look(i % 100) AS seen, count(*) FROM big GROUP BY 1';
	my $insert = 'INSERT INTO u SELECT i % 100 FROM generate_series(1, 3000) i';

	# A test: statements after Bind, and what the portal sees then.
	sub seen_is ($name, $statements, $seen, $execute = undef)
	{
		$session->run('TRUNCATE u');
		$session->run('BEGIN');
		is($session->bind_portal('p', $query), '', "$name: bound");
		is($session->run($statements), '', "$name: statements");
		is($execute ? $execute->() : $session->execute_portal('p'), $seen, $name);
		is($session->run('COMMIT'), '', "$name: committed");
		return;
	}

	my $by_workers = '30 by a worker|2000';

	# Rows are inserted between Bind and Execute of a parallel query.
	seen_is('INSERT', $insert, $by_workers);
	seen_is('INSERT in a savepoint', "SAVEPOINT s; $insert", $by_workers);
	seen_is('COPY', "COPY u FROM PROGRAM 'seq 0 99'", '1 by a worker|2000');
	seen_is('TRUNCATE and INSERT', "TRUNCATE u; $insert", $by_workers);
	seen_is('REINDEX and INSERT', "REINDEX TABLE u; $insert", $by_workers);
	seen_is('the index moved, and INSERT', "ALTER INDEX u_k SET TABLESPACE side; $insert", $by_workers);
	seen_is('FETCH ALL', $insert, $by_workers, sub { $session->run('FETCH ALL FROM p') });

	# The index is invalid from the first row on.
	seen_is('the table moved, and INSERT', "ALTER TABLE u SET TABLESPACE side; $insert", $by_workers);

	# Some rows at a time need no workers, which would be asked for the rest later.
	$session->run('TRUNCATE u');
	$session->run('BEGIN');
	$session->bind_portal('p', 'SELECT look(i) FROM big WHERE i < 50');
	$session->run($insert);
	is($session->execute_portal('p', 1), '30 by the leader', 'one row');
	$session->run($insert);
	my %rest = map { $_ => 1 } split(/\n/, $session->execute_portal('p'));
	is(join(' ', keys %rest), '60 by the leader', 'the rest, after more rows');
	$session->run('COMMIT');

	$node->stop;
}

done_testing();
