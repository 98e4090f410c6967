# VACUUM's dead row pointers are taken over whole, in whatever form the server
# keeps them (an array, a TidStore, one shared by parallel workers), and its callback
# is not called for each entry; that of CREATE INDEX CONCURRENTLY is.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('takeover', <<CONF);
log_min_messages = debug1
min_parallel_index_scan_size = 0
max_parallel_maintenance_workers = 2
CONF
$node->start;
install_extension($node);
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
	is($node->safe_psql('postgres', "SELECT sum(entries) FROM unnest('{t_k,t_d}'::regclass[]) i, pmhash_stats(i)"),
		$node->safe_psql('postgres', 'SELECT 2 * count(*) FROM t'), "$name: entries of both");
	is($node->safe_psql('postgres', "SELECT pmhash_check('t_k'), pmhash_check('t_d')"), '|', "$name: pmhash_check");
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
is($node->safe_psql('postgres', "SELECT pmhash_check('t_again')"), '', 'CREATE INDEX CONCURRENTLY: pmhash_check');
$node->stop;
done_testing();
