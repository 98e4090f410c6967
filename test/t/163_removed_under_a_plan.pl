# A file that is removed while a session has a part of it mapped, and a plan: what the
# session needs of the rest, which others have added since, it cannot get any more.  A scan
# that has handed out nothing yet walks through the table; what cannot is an error that
# says to try again.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('removed');
$node->start;
install_extension($node);

# event: removed while a session has a part of it mapped
my %scans = (
	one => 'SELECT count(v) FROM t WHERE k = 150000',
	several => 'SELECT count(v) FROM t WHERE k IN (3, 150000, 199999, 7)',
	all => 'SELECT count(v) FROM t WHERE k = 150000');
my %columns = (one => 'k', several => 'k', all => 'k, v');
my %settings = (
	one => 'SET enable_bitmapscan = off',
	several => 'SET enable_bitmapscan = off',
	all => 'SET enable_indexscan = off');

foreach my $kind (sort keys %scans)
{
	foreach my $column ('v', 'k')
	{
		(my $query = $scans{$kind}) =~ s/count\(v\)/count($column)/;
		my $index_only = $column eq 'k' && $kind ne 'all';
		$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS t;
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX t_k ON t USING pmhash ($columns{$kind});
SQL
		my $session = $node->background_psql('postgres', on_error_stop => 0);
		$session->query_safe("SET enable_seqscan = off; $settings{$kind}; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query");
		is($session->query_safe('EXECUTE q'), $kind eq 'several' ? 2 : 0, "$kind, $column: before");
		rebuild_off($node);
		$node->safe_psql('postgres', 'INSERT INTO t SELECT i, i FROM generate_series(101, 200000) i');
		unlink(index_file($node, 't_k')) or die;
		my $answer = $session->query('EXECUTE q');
		my $wanted = $kind eq 'several' ? 4 : 1;
		if ($index_only)
		{
			like($session->{stderr}, qr/ERROR:  pmhash index "t_k" has no usable file/, "$kind, $column: not without the index");
		}
		else
		{
			is($answer, $wanted, "$kind, $column: the table instead");
		}
		is(index_state($node, 't_k'), 'invalid: it does not exist', "$kind, $column: marked");
		rebuild_on($node);
		$session->quit;
	}
}
$node->stop;
done_testing();
