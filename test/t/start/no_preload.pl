# Without shared_preload_libraries the server starts, and every use of a
# pmhash index is an ERROR with the hint: nothing is skipped.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('preload');
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
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
my $named = qr/"t_k".*HINT:  Add pmhash to shared_preload_libraries/s;
fails_like($node, 'INSERT INTO t VALUES (0, 0)', $named, 'INSERT');
fails_like($node, 'UPDATE t SET k = k + 1 WHERE v = 1', $named, 'UPDATE of the key');
fails_like($node, "COPY t FROM PROGRAM 'echo 1 1' (DELIMITER ' ')", $named, 'COPY');
fails_like($node, 'REINDEX INDEX t_k', $named, 'REINDEX');
fails_like($node, 'CREATE INDEX u_k ON unindexed USING pmhash (k)', $hint, 'CREATE INDEX');
fails_like($node, 'CREATE UNLOGGED TABLE ul (k int4); CREATE INDEX ul_k ON ul USING pmhash (k)', $hint, 'CREATE INDEX, unlogged');
fails_like($node, q(SELECT * FROM pmhash_stats('t_k')), $named, 'pmhash_stats');
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
	unlike($node->safe_psql('postgres', "$settings EXPLAIN SELECT count(*) FROM t WHERE k = 1; EXPLAIN SELECT count(*) FROM t a JOIN t b USING (k)"),
		qr/t_k/, "plan, no $scan");
}
is($node->safe_psql('postgres', "SELECT state FROM pmhash_indexes WHERE index = 't_k'"),
	'disabled: pmhash is not preloaded', 'state');
$node->safe_psql('postgres', 'DROP TABLE dropped');

# With the library: what the server has done meanwhile, and how it ended, is not
# known.
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");
$node->restart;
$node->poll_query_until('postgres', "SELECT bool_and(state = 'valid') FROM pmhash_indexes")
  or die 'not rebuilt';
same_answers($node, 't', 'k', 't_k', 'preloaded again');
$node->safe_psql('postgres', 'VACUUM t; INSERT INTO t SELECT i, i FROM generate_series(2000, 3000) i');
same_answers($node, 't', 'k', 't_k', 'preloaded again, changed');
wait_for_files(pool($node), 1, 'file of the table dropped meanwhile');
$node->stop;
done_testing();
