# A file that is removed while a session has it mapped, and a plan: what others have added
# can be read on, by the mapping.  What has to make it longer cannot: a scan does not miss
# rows of its own transaction that cannot get in, but walks through the table, or is an error
# that says to try again.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('removed');
$node->start;
install_extension($node);

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
sub make_table
{
	my ($columns) = @_;

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
		my $session = $node->background_psql('postgres', on_error_stop => 0);
		$session->query_safe("SET enable_seqscan = off; $settings{$kind}; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query");
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
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan; PREPARE q AS SELECT count(v) FROM t WHERE k IN (3, 7)');
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
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan');
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

# Whoever is about to read applies the queue, and what it has opened lacks them then.
my $lateral = 'SELECT count(x.v) FROM generate_series(1002951, 1003000) g, LATERAL (SELECT v FROM t WHERE k = g OFFSET 0) x';
my @own = (
	[ 'index scan', 50, $lateral, 'SET enable_bitmapscan = off; SET pmhash.enable_pagescan = off', 'Index Scan' ],
	[ 'bitmap scan', 50, $lateral, 'SET enable_indexscan = off; SET pmhash.enable_pagescan = off', 'Bitmap Index Scan' ],
	[ 'page scan', undef, 'SELECT count(v) FROM t WHERE k = 1003000', 'SET enable_bitmapscan = off', 'pmhash page scan' ],
	[ 'join', undef, 'SELECT count(t.v) FROM generate_series(1002951, 1003000) g JOIN t ON t.k = g', 'SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off', 'pmhash join' ],
	[ 'pmhash_stats', undef, q(SELECT entries FROM pmhash_stats('t_k')), '', '' ],
	[ 'pmhash_check', undef, q(SELECT pmhash_check('t_k')), '', '' ]);
foreach my $own (@own)
{
	my ($name, $wanted, $query, $set, $plan) = @$own;
	$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS t;
CREATE TABLE t (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, i FROM generate_series(1, 100000) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL
	$session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe("SET enable_seqscan = off; $set; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query");
	$session->query_safe('EXECUTE q');
	like($session->query_safe('EXPLAIN EXECUTE q'), qr/$plan/, "own rows, $name: planned");
	rebuild_off($node);
	unlink(index_file($node, 't_k')) or die;
	$session->query_safe('BEGIN; INSERT INTO t SELECT 1000000 + i, i FROM generate_series(1, 3000) i');
	my $answer = $session->query('EXECUTE q');
	if (defined($wanted))
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
done_testing();
