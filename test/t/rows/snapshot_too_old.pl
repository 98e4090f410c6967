# old_snapshot_threshold (PostgreSQL 15 and 16): rows are taken from under a snapshot, and a
# query is to say so, never to find fewer.  Plans do without our indexes then; a constraint
# is checked by its index all the same.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('too_old');
plan skip_all => 'no old_snapshot_threshold' if $node->pg_version >= 17;

# 0: five seconds
$node->append_conf('postgresql.conf', "old_snapshot_threshold = 0\nsynchronous_commit = on\n");
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (k int4, v text, EXCLUDE USING pmhash (v WITH =));
INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 1000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE other (v int4);
VACUUM ANALYZE;
DELETE FROM t WHERE k = 400;
SQL

my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('SET enable_seqscan = off; BEGIN ISOLATION LEVEL REPEATABLE READ');
unlike($session->query_safe('EXPLAIN SELECT * FROM t WHERE k = 500'), qr/t_k/, 'no plan uses the index');
unlike($session->query_safe("EXPLAIN SELECT * FROM t a JOIN t b USING (k) WHERE a.v = 'row 1'"), qr/t_k|pmhash/, 'nor does a join');
is($session->query_safe('SELECT count(v) FROM t WHERE k = 500'), '1', 'before: there is the row');

# event: `old_snapshot_threshold` (PostgreSQL 15, 16) lets rows be removed that a snapshot still needs
$node->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
sleep(6);
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) t');
is($node->safe_psql('postgres', q(SELECT entries FROM pmhash_stats('t_k'))), '999', 'VACUUM has removed the entry');
$session->query('SELECT count(v) FROM t WHERE k = 500');
like($session->{stderr}, qr/ERROR:  snapshot too old/, 'the snapshot is too old');
$session->quit;

fails_like($node, q(INSERT INTO t VALUES (1, 'row 7')), qr/violates exclusion constraint/, 'a constraint is checked');
$node->append_conf('postgresql.conf', 'old_snapshot_threshold = -1');
$node->restart;
like($node->safe_psql('postgres', 'SET enable_seqscan = off; EXPLAIN SELECT * FROM t WHERE k = 500'), qr/t_k/, 'not set: plans use it');
same_answers($node, 't', 'k', 't_k', 'not set');
$node->stop;
done_testing();
