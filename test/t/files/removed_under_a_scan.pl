# A file that is removed while a scan is under way, or has left dead entries to be removed:
# reads do what they do without it.  See t/files/removed_under_a_plan for what is found at their beginning.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('removed', 'pmhash.rebuild = off', install_path => install_with_stop_points());
my $points = use_stop_points($node);
$node->start;
install_extension($node);

# Key 1 has a long list, 2 a shorter one, 10 to 2009 a row each.  All that the session has
# to see later is in what it maps now; others then add what makes it map anew.
sub make_table
{
	my ($options) = @_;

	$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS t;
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT 1, i FROM generate_series(1, 6000) i;
INSERT INTO t SELECT 2, i FROM generate_series(1, 300) i;
INSERT INTO t SELECT i, i FROM generate_series(10, 2009) i;
CREATE INDEX t_k ON t USING pmhash (k) $options;
VACUUM ANALYZE t;
SQL
	return;
}

sub grow_and_remove
{
	my $file = index_file($node, 't_k');

	at_once('INSERT INTO t SELECT i, i FROM generate_series(100000, 130000) i; INSERT INTO t SELECT 1, i FROM generate_series(100000, 130000) i');
	unlink($file) or die "$file: $!";
	return;
}

# ---- scans ----

my $rows = 'SELECT count(*), count(DISTINCT ctid), sum(v) FROM t WHERE';
my $many = 'k = ANY (ARRAY(SELECT generate_series(1, 2009)))';
my @scans = (
	[ 'array', $by{index}, "$rows k IN (1, 10)", 'array_before_list', 'Index Scan using t_k ' ],
	[ 'array, bitmap', $by{bitmap}, "$rows k IN (1, 10)", 'array_before_list', 'Bitmap Index Scan on t_k' ],
	[ 'bitmap, batches', $by{bitmap}, "$rows k = 1", 'scan_between_batches', 'Bitmap Index Scan on t_k' ],
	[ 'array, batches', $by{index}, "$rows $many", 'scan_between_batches', 'Index Scan using t_k ' ],
	[ 'index scan', $by{index}, "$rows k = 1", 'scan_between_batches', 'Index Scan using t_k ' ],
	[ 'page scan', $by{pages}, "$rows k = 1", 'pages_between_batches', 'Custom Scan (pmhash page scan)' ],
	[ 'index-only scan', $by{index}, 'SELECT count(*) FROM t WHERE k IN (1, 10)', 'array_before_list', 'Index Only Scan using t_k' ],
	[
		'join', $by{join},
		'SELECT count(*), sum(v) FROM (SELECT o % 9 AS o FROM generate_series(1, 2009) o) o JOIN t ON k = o',
		'join_before_rows', 'Custom Scan (pmhash join)'
	]);

foreach my $scan (@scans)
{
	my ($name, $settings, $query, $point, $plan) = @$scan;

	make_table('');
	my $wanted = $node->safe_psql('postgres', "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off; $query");
	like($node->safe_psql('postgres', "$settings; EXPLAIN (COSTS OFF) $query"), qr/\Q$plan/, "$name: plan");
	my $session = start_and_hold($point, "$settings; $query", $name);
	grow_and_remove();
	release($point);
	is(finish($session), $wanted, "$name: the file that it has, or the table");
	is(index_state($node, 't_k'), 'invalid: it does not exist', "$name: marked");
}

# ---- entries found dead ----

my $dead = $node->background_psql('postgres', on_error_stop => 0);
$dead->query_safe("$by{index}; SET plan_cache_mode = force_generic_plan");

# Were they to be removed, by the session whose scan has found them?  They are of many
# segments, of which some stand elsewhere by then.
sub dead_ones_of_removed
{
	my ($name, $options) = @_;
	my $point = "$points/dead_before_removal";
	my $releaser;

	make_table($options);
	$node->safe_psql('postgres', 'DELETE FROM t WHERE k BETWEEN 11 AND 399');
	$dead->query_safe('PREPARE q AS SELECT v FROM t WHERE k = 10');
	is($dead->query_safe('EXECUTE q'), 10, "$name: before");
	$dead->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT v FROM t WHERE k = ANY (ARRAY(SELECT generate_series(11, 400)))');
	is($dead->query_safe('FETCH 1 FROM c'), 400, "$name: found");
	grow_and_remove();
	hold('dead_before_removal');
	$releaser = IPC::Run::start([ 'sh', '-c', "until rm '$point.held' 2>/dev/null; do sleep 0.05; done" ]);
	is($dead->query('CLOSE c; SELECT 1'), 1, "$name: what had nothing to hand out any more does not fail");
	is($dead->query('SELECT 2'), 2, "$name: the transaction goes on");
	is($dead->query('COMMIT; EXECUTE q'), 10, "$name: a scan begins, which is to remove them");
	is($dead->{stderr}, '', "$name: no error");
	is(index_state($node, 't_k'), 'invalid: it does not exist', "$name: marked");
	$dead->{stderr} = '';
	$dead->query_safe('DEALLOCATE q');
	$releaser->kill_kill;
	return !unlink($point);
}

# A scan that has met some process's old snapshot does not know them for dead.
foreach my $logged ('off', 'on')
{
	my $name = "dead entries, wal = $logged";
	my $tries = 10;

	$tries-- until $tries == 0 || dead_ones_of_removed($name, "WITH (wal = $logged)");
	isnt($tries, 0, "$name: they were to be removed");
}
$dead->quit;

# ---- VACUUM ----

make_table('');
$node->safe_psql('postgres', 'DELETE FROM t WHERE v % 3 = 0');
my $session = start_and_hold('vacuum_before_removal', 'VACUUM t', 'VACUUM');
grow_and_remove();
release('vacuum_before_removal');
like(finish($session), qr/has no usable file|^$/, 'VACUUM: it may fail once');
is(index_state($node, 't_k'), 'invalid: it does not exist', 'VACUUM: marked');
is(at_once('VACUUM t'), '', 'VACUUM: then it passes the index by');
$node->safe_psql('postgres', 'DELETE FROM t WHERE v > 1000; REINDEX INDEX t_k');
same_answers($node, 't', 'k', 't_k', 'made anew');
$node->stop;
done_testing();
