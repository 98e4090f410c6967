# READ COMMITTED: a statement that waits for a row that another transaction has changed
# goes on with what became of it (EvalPlanQual).  Statements that lock or change rows, and
# what stands beside them in their query, wait for each of several changes: by pmhash's
# index scans and joins, and by sequential scans.  What they return, and what the tables
# hold in the end, has to be the same.

use strict;
use warnings;

use FindBin;
use IO::Select;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashPortals;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'no Unix-domain sockets' if !$PostgreSQL::Test::Utils::use_unix_sockets;

my $node = new_server('eval_plan_qual', "fsync = off\njit = off\nmax_parallel_workers_per_gather = 0\n");
$node->start;
install_extension($node);
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
done_testing();
