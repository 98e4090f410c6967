# Executor nodes: what a join holds, rows that others have changed meanwhile, cursors.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashPortals;
use PmhashTest;
use IO::Select;

# ======== join buffers ========

# Joins by groups of keys with shared buffers that hold a small part of the table: the
# hints where its pages are are wrong all the time, and pages are read ahead.  And
# joins that are cancelled: how soon.
{
	my $node = new_server('join_buffers', <<'CONF');
shared_buffers = 16MB
fsync = off
CONF
	my $by_join = 'SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1000';
	my $by_hash = 'SET pmhash.enable_join = off; SET enable_nestloop = off; SET enable_indexscan = off; SET enable_bitmapscan = off';

	$node->start;
	$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION pmhash;
CREATE TABLE t (k int, v int, pad text);
INSERT INTO t SELECT (i * 7919::int8) % 60000, i, repeat('x', 600) FROM generate_series(1, 60000) i;
INSERT INTO t SELECT 70000 + i % 3, i, repeat('y', 600) FROM generate_series(1, 6000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE o AS SELECT i AS id, (i * 104729::int8 % 90000)::int AS k FROM generate_series(1, 40000) i;
INSERT INTO o SELECT -i, 70000 + i FROM generate_series(0, 3) i;
VACUUM ANALYZE;
SQL
	cmp_ok($node->safe_psql('postgres', "SELECT pg_relation_size('t') / 1048576"), '>', 40, 'the table is larger than shared buffers');

	# ---- answers, and hints that are wrong ----

	my @queries = (
		'SELECT count(*), sum(t.v), sum(length(pad)), sum(o.id) FROM o JOIN t USING (k)',
		'SELECT count(*), count(t.v), sum(length(pad)), sum(o.id) FROM o LEFT JOIN t ON t.k = o.k AND t.v % 5 <> 2',
		'SELECT count(*), sum(o.id) FROM o WHERE NOT EXISTS (SELECT FROM t WHERE t.k = o.k AND t.v % 7 = 1)');

	sub figures
	{
		my ($settings, $query) = @_;
		my $plan = $node->safe_psql('postgres', "$by_join; $settings; EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) $query");

		like($plan, qr/Custom Scan \(pmhash join\)/, "$query: plan");
		return map { $plan =~ /$_: ([0-9]+)/ ? $1 : die "no $_ in $plan" } ('Heap Blocks', 'Heap Blocks by Hint');
	}

	foreach my $settings ('SET effective_io_concurrency = 1', 'SET effective_io_concurrency = 0', "SET work_mem = '64kB'")
	{
		foreach my $query (@queries)
		{
			my $wanted = $node->safe_psql('postgres', "$by_hash; $query");
			my ($blocks, $hinted) = figures($settings, $query);

			is($node->safe_psql('postgres', "$by_join; $settings; $query"), $wanted, "$settings: $query");
			cmp_ok($blocks - $hinted, '>', 8000, 'pages were not where they had been');
			cmp_ok($hinted, '>', 0, 'but some were');
		}
	}

	# ---- all rows of a key, page by page ----

	# reads free of charge: else they are nearly all of the cost, and the planner sees no difference
	my $by_pages = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0;
		SET random_page_cost = 0; SET seq_page_cost = 0';

	foreach my $settings ('SET effective_io_concurrency = 1', 'SET effective_io_concurrency = 0', "SET work_mem = '64kB'")
	{
		foreach my $query ('SELECT count(pad), sum(v), sum(length(pad)) FROM t WHERE k = 70001',
			'SELECT count(*), sum(a.v) FROM t a, t b WHERE a.k = 70000 AND b.k = 70002 AND a.v % 50 = 0')
		{
			like($node->safe_psql('postgres', "$by_pages; $settings; EXPLAIN $query"), qr/pmhash page scan/, "$query: plan");
			is($node->safe_psql('postgres', "$by_pages; $settings; $query"), $node->safe_psql('postgres', "$by_hash; $query"), "$settings: $query");
		}
	}

	# ---- sessions that take each other's buffers, and change rows ----

	# v goes up by one everywhere, once for each round that is committed
	my @sessions = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 3;
	$_->query_safe("$by_join; CREATE TEMP TABLE wrong (what text)") foreach @sessions;
	my $check = <<'SQL';
DO $$
DECLARE
	joined text;
	alone text;
BEGIN
	FOR i IN 1 .. 4 LOOP
		SELECT count(*) || ' ' || sum(t.v) || ' ' || count(pad) INTO joined FROM o JOIN t USING (k);
		PERFORM set_config('enable_hashjoin', 'on', true), set_config('pmhash.enable_join', 'off', true);
		SELECT count(*) || ' ' || sum(t.v) || ' ' || count(pad) INTO alone FROM o JOIN t USING (k);
		PERFORM set_config('enable_hashjoin', 'off', true), set_config('pmhash.enable_join', 'on', true);
		IF joined <> alone THEN
			INSERT INTO wrong VALUES (joined || ' <> ' || alone);
		END IF;
	END LOOP;
END $$
SQL
	for my $round (1 .. 2)
	{
		# the sessions' queries are sent at once, and waited for afterwards
		foreach my $session (@sessions)
		{
			$session->{stdin} .= "BEGIN ISOLATION LEVEL REPEATABLE READ;\n$check;\nCOMMIT;\n";
			$session->{run}->pump_nb();
		}
		$node->safe_psql('postgres', "UPDATE t SET v = v + 1 WHERE k % 4 = $round; DELETE FROM t WHERE k % 100 = $round");
		is($_->query_safe('SELECT count(*) FROM wrong'), '0', "round $round: answers of one snapshot") foreach @sessions;
		$node->safe_psql('postgres', 'VACUUM t');
	}
	$_->quit foreach @sessions;
	is($node->safe_psql('postgres', "$by_join; $queries[0]"), $node->safe_psql('postgres', "$by_hash; $queries[0]"),
		'the same in the end');

	# ---- cancelled within 50 ms ----

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

	is($node->safe_psql('postgres', "SELECT pmhash.check('t_k')"), '', 'the index is well');
	$node->stop;
}

# ======== eval plan qual ========

# READ COMMITTED: a statement that waits for a row that another transaction has changed
# goes on with what became of it (EvalPlanQual).  Statements that lock or change rows, and
# what stands beside them in their query, wait for each of several changes: by pmhash's
# index scans and joins, and by sequential scans.  What they return, and what the tables
# hold in the end, has to be the same.
SKIP:
{
	skip 'no Unix-domain sockets', 1 if !$PostgreSQL::Test::Utils::use_unix_sockets;

	my $node = new_server('eval_plan_qual', "fsync = off\njit = off\nmax_parallel_workers_per_gather = 0\n");
	start_with_extension($node);
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE o (id int PRIMARY KEY, k int, v int);
CREATE TABLE i (id int PRIMARY KEY, k int, v int);
CREATE TABLE t (id int PRIMARY KEY, k int, v int);
CREATE FUNCTION fill() RETURNS void LANGUAGE sql AS $$
	DELETE FROM o; DELETE FROM i; DELETE FROM t;
	INSERT INTO o SELECT g, g, 0 FROM generate_series(1, 20) g;
	INSERT INTO i SELECT g, g % 10, 0 FROM generate_series(1, 100) g;
	INSERT INTO t SELECT g, g % 10, 0 FROM generate_series(1, 20) g;
$$;
SELECT fill();
CREATE INDEX o_k ON o USING pmhash (k);
CREATE INDEX i_k ON i USING pmhash (k);
CREATE INDEX t_k ON t USING pmhash (k);
VACUUM ANALYZE o, i, t;
CREATE FUNCTION contents() RETURNS text LANGUAGE sql AS $$
	SELECT (SELECT string_agg(o::text, ' ' ORDER BY id) FROM o) || (SELECT string_agg(i::text, ' ' ORDER BY id) FROM i)
		|| coalesce((SELECT string_agg(t::text, ' ' ORDER BY id) FROM t), '')
$$;
SQL

	my %way = (
		'by index' => 'SET enable_seqscan = off; SET enable_bitmapscan = off',
		'by bitmap' => 'SET enable_seqscan = off; SET enable_indexscan = off',
		'by join' => 'SET cpu_index_tuple_cost = 1000; SET enable_bitmapscan = off');
	my $no_index = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; '
	  . 'SET enable_hashjoin = on; SET enable_mergejoin = on; SET pmhash.enable_join = off; SET pmhash.enable_pagescan = off';

	# of the row that is locked, of the other side, of both; the key, and back; away
	my @changes = (
		'UPDATE i SET v = v + 1 WHERE k IN (3, 4)',
		'UPDATE i SET k = 99 WHERE k = 3; UPDATE i SET k = 3 WHERE k = 99',
		'UPDATE o SET k = 4 WHERE id = 3; UPDATE i SET k = 5 WHERE k = 4 AND id % 3 = 1',
		'DELETE FROM i WHERE k = 3 AND id < 50; DELETE FROM o WHERE id = 4',
		'UPDATE t SET k = k + 1, v = v + 1',
		'UPDATE t SET v = 1; UPDATE i SET v = v + 5 WHERE k = 3; UPDATE o SET v = 7, k = 3 WHERE id = 3');

	my $sums = 'c AS MATERIALIZED (SELECT o.k, count(*) AS n, sum(i.v) AS s FROM o JOIN i ON i.k = o.k GROUP BY 1)';
	my @statements = (
		'SELECT o.id, i.id AS i, i.v FROM o JOIN i ON i.k = o.k WHERE o.id < 6 FOR UPDATE',
		'SELECT o.id, i.id AS i FROM o LEFT JOIN i ON i.k = o.k AND i.v = 0 WHERE o.id < 6 FOR SHARE OF o',
		'SELECT o.id FROM o WHERE NOT EXISTS (SELECT FROM i WHERE i.k = o.k AND i.v = 0) FOR UPDATE',
		'SELECT id, k, v FROM i WHERE k = ANY (ARRAY[3, 4]) AND v < 3 FOR NO KEY UPDATE',
		'SELECT id, k, v FROM i WHERE k = 3 FOR UPDATE SKIP LOCKED',
		'UPDATE t SET v = i.v + 100 FROM i WHERE i.k = t.k AND i.id BETWEEN 10 AND 19 RETURNING t.*, i.id, i.v',
		'UPDATE t SET v = (SELECT sum(i.v) FROM o JOIN i ON i.k = o.k WHERE o.k = t.k) RETURNING *',
		'DELETE FROM i WHERE k IN (SELECT k FROM o WHERE id < 5) RETURNING id',
		'MERGE INTO i USING o ON o.k = i.k WHEN MATCHED AND i.v = 0 THEN UPDATE SET v = o.v + 50 WHEN MATCHED AND i.id < 50 THEN DELETE',
		"WITH $sums, u AS (UPDATE t SET v = (SELECT n + s FROM c WHERE c.k = t.k) RETURNING *) SELECT * FROM u",
		"WITH $sums, u AS (UPDATE t SET v = c.n + c.s FROM c WHERE c.k = t.k RETURNING t.*) SELECT * FROM u",
		'SELECT s.id, i.id AS i FROM (SELECT * FROM o WHERE k IN (3, 4) FOR UPDATE) s JOIN i ON i.k = s.k',
		'INSERT INTO t SELECT o.id, i.k, i.v FROM o JOIN i ON i.k = o.k WHERE i.id < 10 ON CONFLICT (id) DO UPDATE '
		  . 'SET v = excluded.v + 1000 + (SELECT count(*) FROM o a JOIN i b ON b.k = a.k WHERE a.id = t.id) RETURNING *');

	my ($changer, $waiter, $watcher) = map { PmhashPortals->new($node) } 1 .. 3;
	my $pid = $waiter->run('SELECT pg_backend_pid()');
	my ($waited, $joined) = (0, 0);

	# What a statement returns that meets the change under way, and the tables after it.
	sub after_change
	{
		my ($settings, $statement, $change) = @_;

		$waiter->run("RESET ALL; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; $settings");
		$changer->run('SELECT fill()');
		$changer->run("BEGIN; $change");
		$waiter->put('Q', "$statement\0");
		$waiter->{socket}->flush;
		# until it waits, or has answered
		my $answered = IO::Select->new($waiter->{socket});
		for (1 .. 1000)
		{
			my $is_waiting = $watcher->run("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND wait_event_type = 'Lock'");

			$waited += $is_waiting;
			last if $is_waiting || $answered->can_read(0.02);
		}
		$changer->run('COMMIT');
		my $rows = join(' ', sort split(/\n/, $waiter->answer));
		return "$rows, tables " . $changer->run('SELECT md5(contents())');
	}

	foreach my $statement (@statements)
	{
		my @differ;

		foreach my $change (@changes)
		{
			my $expected = after_change($no_index, $statement, $change);

			foreach my $way (sort keys %way)
			{
				my $got = after_change($way{$way}, $statement, $change);

				push @differ, "$way after $change: $got\nexpected: $expected\n" if $got ne $expected;
			}
		}
		is(join('', @differ), '', $statement);
		$joined++ if $waiter->run("RESET ALL; SET enable_hashjoin = off; SET enable_mergejoin = off; $way{'by join'}; EXPLAIN $statement") =~ /pmhash join/;
	}
	cmp_ok($waited, '>', @statements * @changes, 'many have waited');
	cmp_ok($joined, '>=', 3, 'some with a join of ours beside what is locked');
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
	sub seen_is
	{
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my ($name, $statements, $seen, $execute) = @_;

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
