# All that can be done to indexes at once, and VACUUM of long lists.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;

# ======== mix ========

# Sixteen clients do everything at once that can be done to indexes while
# people work with a table; then all indexes are compared with the tables and
# checked.  Then once more, and the server is killed in the middle of it.
#
# PMHASH_LOADS: how many times as long.
{
	my $seconds = load_time(6);
	my $node = new_server('mix', "synchronous_commit = off\n");
	start_with_extension($node);

	# Keys 1 .. 1000 have k % 5 rows, for good (they may be updated), -1 has 2000, others
	# up to 1000 have none; all above come and go.  In e no key is there twice.
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE m (k int8, v int4, t text);
INSERT INTO m SELECT k, 0, 'key ' || k FROM generate_series(1, 1000) k, generate_series(1, k % 5);
INSERT INTO m SELECT -1, 0, 'key -1' FROM generate_series(1, 2000);
CREATE INDEX m_k ON m USING pmhash (k);
CREATE INDEX m_t ON m USING pmhash (t);
CREATE INDEX m_kv ON m USING pmhash (k, v);
CREATE INDEX m_some ON m USING pmhash (v) WHERE v > 0;
CREATE TABLE e (k int4, n int4, CONSTRAINT e_k EXCLUDE USING pmhash (k WITH =));
VACUUM ANALYZE m;
CREATE FUNCTION found(k int8, got int8) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
	IF got IS DISTINCT FROM (CASE WHEN k = -1 THEN 2000 WHEN k < 0 THEN 0 ELSE k % 5 END) THEN
		RAISE 'key %: % rows', k, got;
	END IF;
END \$\$;
SQL

	# [ clients, script ]
	my %work = (
		index_only => [ 1, <<'SQL' ],
SET enable_seqscan = off; SET enable_bitmapscan = off;
\set k random(1, 1000)
SELECT found(:k, count(*)) FROM m WHERE k = :k;
SELECT found(g, (SELECT count(*) FROM m WHERE k = g)) FROM generate_series(greatest(:k - 20, 1), :k) g;
SQL
		index => [ 1, <<'SQL' ],
SET enable_seqscan = off; SET enable_bitmapscan = off;
\set k random(-100, 1000)
SELECT found(:k, count(DISTINCT ctid)) FROM m WHERE t = 'key ' || :k;
SELECT found(:k, count(v)) FROM m WHERE k = :k;
SELECT found(-1, count(DISTINCT ctid)) FROM m WHERE k = ANY ('{-1,-2,-3,-4,-1}');
SET enable_hashjoin = off; SET enable_mergejoin = off;
SELECT found(g, (SELECT count(*) FROM m WHERE k = g)) FROM generate_series(:k - 100, :k) g;
SQL
		bitmap => [ 1, <<'SQL' ],
SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off;
\set k random(-100, 1000)
SELECT found(:k, count(*)) FROM m WHERE k = :k;
SELECT found(:k, count(*)) FROM m WHERE t = 'key ' || :k AND k = :k;
SQL
		array => [ 1, <<'SQL' ],
SET enable_seqscan = off; SET enable_bitmapscan = off;
\set k random(1, 900)
SELECT found(g, n) FROM generate_series(:k, :k + 100) g
	LEFT JOIN LATERAL (SELECT count(*) AS n FROM m WHERE k = ANY (ARRAY[g, g, -3, -2])) c ON true;
SELECT found(g, coalesce(n, 0)) FROM generate_series(:k, :k + 100) g
	LEFT JOIN (SELECT k, count(*) AS n FROM m WHERE k = ANY (ARRAY(SELECT generate_series(:k, :k + 100))) GROUP BY k) c ON k = g;
SQL
		insert => [ 2, <<'SQL' ],
\set k random(2000, 20000)
\set n random(1, 200)
INSERT INTO m VALUES (:k, 1, 'key ' || :k);
INSERT INTO m SELECT i, :n, 'key ' || i FROM generate_series(:k, :k + :n) i;
INSERT INTO m SELECT 2000, i, 'many' FROM generate_series(1, :n) i;
DELETE FROM m WHERE k BETWEEN :k + 1 AND :k + 150;
SQL
		update => [ 2, <<'SQL' ],
\set k random(2000, 20000)
\set p random(1, 1000)
UPDATE m SET k = k + 1, t = 'moved' WHERE k BETWEEN :k AND :k + 5;
UPDATE m SET v = v + 1 WHERE k = :p;
UPDATE m SET v = -v, t = t || '' WHERE k = :p;
DELETE FROM m WHERE k = 2000 AND v % 7 = :p % 7;
SQL
		savepoint => [ 1, <<'SQL' ],
\set k random(2000, 20000)
\set end random(1, 2)
BEGIN;
INSERT INTO m VALUES (:k, 1, 'outer');
SAVEPOINT a;
INSERT INTO m SELECT i, 0, 'undone' FROM generate_series(1, 100) i;
UPDATE m SET k = -k WHERE k = :k;
SAVEPOINT b;
INSERT INTO m SELECT i, 0, 'undone' FROM generate_series(1, 40) i;
ROLLBACK TO a;
INSERT INTO m SELECT i, 2, 'inner' FROM generate_series(:k, :k + 40) i;
SAVEPOINT c;
INSERT INTO m SELECT i, 3, 'inner' FROM generate_series(:k, :k + 20) i;
RELEASE c;
\if :end = 1
COMMIT;
\else
ROLLBACK;
\endif
SQL
		two_phase => [ 2, <<'SQL' ],
\set k random(2000, 20000)
\set end random(1, 2)
BEGIN;
INSERT INTO m SELECT i, 4, 'prepared' FROM generate_series(:k, :k + 30) i;
UPDATE m SET v = v + 1 WHERE k BETWEEN :k AND :k + 3;
PREPARE TRANSACTION 'mix :client_id';
\if :end = 1
COMMIT PREPARED 'mix :client_id';
\else
ROLLBACK PREPARED 'mix :client_id';
\endif
SQL
		exclusion => [ 2, <<'SQL' ],
\set k random(1, 300)
\set l random(1, 300)
INSERT INTO e VALUES (:k, 1) ON CONFLICT DO NOTHING;
DO $$ BEGIN INSERT INTO e VALUES (:l, 2); EXCEPTION WHEN exclusion_violation THEN NULL; END $$;
DO $$ BEGIN UPDATE e SET k = :k WHERE k = :l; EXCEPTION WHEN exclusion_violation THEN NULL; END $$;
DELETE FROM e WHERE k BETWEEN :k AND :k + 3;
SQL
		serializable => [ 1, <<'SQL' ],
\set k random(30000, 30010)
\set l random(30000, 30010)
BEGIN ISOLATION LEVEL SERIALIZABLE;
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM m WHERE k = :k;
INSERT INTO m VALUES (:l, 5, 'serializable');
DELETE FROM m WHERE k = :k;
COMMIT;
SQL
		vacuum => [ 1, <<'SQL' ],
VACUUM m;
VACUUM e;
INSERT INTO m SELECT 100000 + i, i % 1000, 'soon gone ' || i FROM generate_series(1, 30000) i;
DELETE FROM m WHERE k > 100000;
\sleep 100 ms
VACUUM m;
SQL
		build => [ 1, <<'SQL' ]);
REINDEX INDEX CONCURRENTLY m_k;
CREATE INDEX CONCURRENTLY IF NOT EXISTS m_new ON m USING pmhash (k, t);
REINDEX INDEX CONCURRENTLY m_t;
DROP INDEX CONCURRENTLY IF EXISTS m_new;
REINDEX INDEX CONCURRENTLY m_kv;
SQL

	my $clients = 0;
	$clients += $_->[0] foreach values %work;
	is($clients, 16, 'clients');

	foreach my $name (keys %work)
	{
		append_to_file($node->basedir . "/$name.sql", $work{$name}[1]);
	}

	# Start all, for so many seconds: what each is doing, and its output, by name.
	# A transaction that loses to others, as in a deadlock, tries again.
	sub start_all
	{
		my ($duration) = @_;
		my (%run, %output);

		foreach my $name (sort keys %work)
		{
			$output{$name} = '';
			local $ENV{PGOPTIONS} = $name eq 'vacuum' ? '-c log_min_messages=debug1' : '';
			$run{$name} = start_pgbench($node, \$output{$name}, '--max-tries=0',
				'-c', $work{$name}[0], '-T', $duration, '-f', $node->basedir . "/$name.sql");
		}
		return (\%run, \%output);
	}

	# Indexes against tables.
	sub all_is_well
	{
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my ($name) = @_;

		same_answers($node, 'm', 'k', 'm_k', $name);
		same_answers($node, 'm', 't', 'm_t', $name);
		same_answers($node, 'e', 'k', 'e_k', $name);
		is($node->safe_psql('postgres',
				'SELECT by_index, by_bitmap FROM answers($$SELECT ctid FROM m WHERE v = 1 AND v > 0$$, $$m_some$$)'),
			'same|same', "$name: m_some");
		is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT k) FROM e'), '0',
			"$name: no key twice under the constraint");
		is($node->safe_psql('postgres',
				'SELECT count(found(g, (SELECT count(*) FROM m WHERE k = g))) FROM generate_series(-100, 1000) g'),
			'1101', "$name: rows that stay");
		foreach my $index ('m_k', 'm_t', 'm_kv', 'm_some', 'e_k')
		{
			my ($status, $stdout, $stderr) = $node->psql('postgres', "SELECT pmhash.check('$index')");
			is($stderr, '', "$name: pmhash.check of $index");
		}
		return;
	}

	my ($run, $output) = start_all($seconds);
	foreach my $name (sort keys %work)
	{
		ok($run->{$name}->finish, "$name: no client failed") || diag($output->{$name});
		like($output->{$name}, qr/transactions actually processed: [1-9]/, "$name: something was done");
	}
	all_is_well('at the end');
	my $shrinks = () = slurp_file($node->logfile) =~ /index "m_\w+" has been shrunk/g;
	cmp_ok($shrinks, '>', 0, 'VACUUM has shrunk indexes meanwhile');
	diag("$shrinks shrinks");

	my $lsn = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	($run, $output) = start_all(600);
	ok($node->poll_query_until('postgres', "SELECT count(*) >= 17 FROM pg_stat_activity WHERE backend_type = 'client backend'") &&
		$node->poll_query_until('postgres', "SELECT pg_current_wal_insert_lsn() - '$lsn' > 8e6"),
		'all are at work');
	crash($node);
	$run->{$_}->finish foreach keys %$run;
	$node->start;
	foreach my $gid (split /\n/, $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts'))
	{
		$node->safe_psql('postgres', "COMMIT PREPARED '$gid'");
	}
	$node->safe_psql('postgres', 'DROP INDEX IF EXISTS m_new');
	all_is_well('after a crash');
	$node->stop;
}

# ======== long lists ========

# VACUUM of long lists, again and again: where a list needs new space in the middle is
# another place with each index, since each has hashes of its own.  A step that is done
# once more there is no circle (it was taken for one in 5 of 100).  PMHASH_LOADS: how
# many times as often.
#
# And a VACUUM that naps after each step, in a list that others make longer: the list's
# first buffer is soon in a part of the file that was not there when the VACUUM came by (the
# server crashed in 3 of 4 rounds).
{
	my $rounds = load_time(12);
	my $node = new_server('long_lists', "fsync = off\nmax_wal_size = 4GB\n");
	start_with_extension($node);

	my @failed;
	foreach my $round (1 .. $rounds)
	{
		my ($status, undef, $error) = $node->psql('postgres', <<'SQL', on_error_stop => 1);
CREATE TABLE d (k int4, v int4);
INSERT INTO d SELECT 1, i FROM generate_series(1, 100000) i;
INSERT INTO d SELECT 2, i FROM generate_series(1, 5000) i;
INSERT INTO d SELECT i / 3, i FROM generate_series(30, 30000) i;
CREATE INDEX d_k ON d USING pmhash (k);
INSERT INTO d SELECT -(i % 10), i FROM generate_series(1, 20000) i;
INSERT INTO d SELECT -11, i FROM generate_series(1, 100000) i;
INSERT INTO d SELECT 2, i FROM generate_series(1, 300) i;
DELETE FROM d WHERE v % 2 = 0;
VACUUM d;
SQL
		push @failed, "$round: $error" if $status != 0;
		$node->safe_psql('postgres', q(SELECT pmhash.check('d_k'))) if $status == 0 && $round % 20 == 0;
		$node->safe_psql('postgres', 'DROP TABLE d');
	}
	is(join("\n", @failed), '', "VACUUM of long lists, $rounds times");

	# ---- a VACUUM that naps ----

	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE slow (k int4) WITH (autovacuum_enabled = off);
CREATE INDEX slow_k ON slow USING pmhash (k);
SQL

	foreach my $round (1 .. 3)
	{
		$node->safe_psql('postgres', <<'SQL');
INSERT INTO slow SELECT 1 FROM generate_series(1, 300000);
DELETE FROM slow WHERE random() < .999;
SQL
		my $vacuum = $node->background_psql('postgres', on_error_stop => 0);
		$vacuum->query_until(qr/begun/, "\\echo begun\n" .
			"SET vacuum_cost_delay = '10ms'; SET vacuum_cost_limit = 100;\n" .
			"VACUUM slow;\n\\echo vacuumed\n");
		$node->safe_psql('postgres',
			'INSERT INTO slow SELECT CASE WHEN g % 3 = 0 THEN 1 ELSE g END FROM generate_series(1, 60000) g')
		  foreach 1 .. 8;
		$vacuum->query_until(qr/vacuumed/, '');
		$vacuum->quit;
		my (undef, undef, $error) = $node->psql('postgres', q(SELECT pmhash.check('slow_k')));
		is($error, '', "round $round of a VACUUM that naps");
	}
}

# ======== vacuum takes over ========

# VACUUM's dead row pointers are taken over whole, in whatever form the server
# keeps them (an array, a TidStore, one shared by parallel workers), and its callback
# is not called for each entry; that of CREATE INDEX CONCURRENTLY is.
{
	my $node = new_server('takeover', <<CONF);
log_min_messages = debug1
min_parallel_index_scan_size = 0
max_parallel_maintenance_workers = 2
CONF
	start_with_extension($node);
	# rows of one block are some, of another one all dead; others have one row
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4, d int4, pad text);
INSERT INTO t SELECT i, i % 10, '' FROM generate_series(1, 30000) i;
INSERT INTO t SELECT i, i % 10, repeat('x', 5000) FROM generate_series(30001, 30200) i;
ALTER TABLE t ALTER pad SET STORAGE PLAIN;
INSERT INTO t SELECT i, i % 10, repeat('x', 7000) FROM generate_series(30201, 30400) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_d ON t USING pmhash (d);
SQL

	# What the server says of each index while it does something: the rows taken over
	sub taken_over
	{
		my ($sql) = @_;
		my $from = -s $node->logfile;
		my %said;

		$node->safe_psql('postgres', $sql);
		my $log = slurp_file($node->logfile, $from);
		push @{ $said{$1} }, $2
		  while $log =~ /DEBUG:  index "(\w+)": took over (\d+) dead TIDs from VACUUM/g;
		return \%said;
	}

	foreach my $case (
		[ 'one process', 'PARALLEL 0', 'k % 3 = 1 OR k BETWEEN 5000 AND 9000 OR k IN (30100, 30300)' ],
		[ 'parallel workers', 'PARALLEL 2', 'k % 3 = 2 OR k BETWEEN 12000 AND 16000' ])
	{
		my ($name, $option, $condition) = @$case;
		my $dead = $node->safe_psql('postgres', "SELECT count(*) FROM t WHERE $condition");

		$node->safe_psql('postgres', "DELETE FROM t WHERE $condition");
		is_deeply(taken_over("VACUUM ($option) t"), { t_k => [$dead], t_d => [$dead] }, "$name: taken over");
		is($node->safe_psql('postgres', "SELECT sum(entries) FROM unnest('{t_k,t_d}'::regclass[]) i, pmhash.stats(i)"),
			$node->safe_psql('postgres', 'SELECT 2 * count(*) FROM t'), "$name: entries of both");
		is($node->safe_psql('postgres', "SELECT pmhash.check('t_k'), pmhash.check('t_d')"), '|', "$name: pmhash.check");
		# the rows' places are used again
		$node->safe_psql('postgres', "INSERT INTO t SELECT 100000 + i, i % 10, '' FROM generate_series(1, $dead) i");
		same_answers($node, 't', 'k', 't_k', $name);
		same_answers($node, 't', 'd', 't_d', $name);
	}

	# another caller of bulk delete
	$node->safe_psql('postgres', 'DELETE FROM t WHERE d < 9');
	is_deeply(taken_over('CREATE INDEX CONCURRENTLY t_again ON t USING pmhash (k)'), {}, 'CREATE INDEX CONCURRENTLY');
	$node->safe_psql('postgres', 'VACUUM t');
	same_answers($node, 't', 'k', 't_again', 'CREATE INDEX CONCURRENTLY');
	is($node->safe_psql('postgres', "SELECT pmhash.check('t_again')"), '', 'CREATE INDEX CONCURRENTLY: pmhash.check');
	$node->stop;
}

done_testing();
