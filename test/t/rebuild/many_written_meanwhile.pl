# Sessions write more rows of one key while an index is rebuilt than its rebuild may have in
# memory: what they have put into the new file goes by in pieces, and each row is in it once.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid qw(index_file);
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $install = install_with_stop_points();
my $node = new_server('meanwhile', <<CONF, install_path => $install);
maintenance_work_mem = 1MB
max_parallel_maintenance_workers = 0
CONF
$node->start;
install_extension($node);
use_stop_points($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int, v int) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
INSERT INTO t SELECT 0, i FROM generate_series(1, 40000) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL

hold('rebuild_before_build');
unlink(index_file($node, 't_k')) or die;
$node->safe_psql('postgres', 'INSERT INTO t VALUES (1001, 1)');
is_held('rebuild_before_build', 'a rebuild');

# Half a megabyte is 32,768 entries.  The scan meets all of these rows as well.
$node->safe_psql('postgres', 'INSERT INTO t SELECT 0, i FROM generate_series(1, 100000) i; INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i');
hold('build_present_piece');
release('rebuild_before_build');
is_held('build_present_piece', 'more than fits in memory');
hold('build_present_piece');
release('build_present_piece');
is_held('build_present_piece', 'two pieces of it are not all');
release('build_present_piece');
$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 't_k'")
  or fail('the index is rebuilt');
my $log = slurp_file($node->logfile);
unlike($log, qr/could not rebuild/, 'by the first try');
is($node->safe_psql('postgres', "SELECT pmhash_check('t_k')"), '', 'nothing is missing, and nothing twice');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*), count(DISTINCT ctid) FROM t WHERE k = 0'), '140000|140000', 'all rows of the key');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7'), '2', 'and of another one');
is($node->safe_psql('postgres', 'SELECT entries FROM pmhash_stats(\'t_k\')'), '142001', 'entries in the file');
$node->stop;
done_testing();
