# The background rebuild of an invalid index has parallel workers, as REINDEX has, but
# no more than that half of the processors are at work.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";

use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('parallel_rebuild', "log_min_messages = debug1\n");

$node->start;
install_extension($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (k int8, v int4);
INSERT INTO t SELECT i, i FROM generate_series(1, 30000) i;
ALTER TABLE t SET (parallel_workers = 2);
CREATE INDEX t_k ON t USING pmhash (k);
SQL
unlink(index_file($node, 't_k')) or die;
my $offset = -s $node->logfile;
$node->restart;
comes_back($node, 'with workers');
my $half = int(`getconf _NPROCESSORS_ONLN` / 2);
my $workers = $half > 2 ? 2 : $half - 1;
my $log = slurp_file($node->logfile, $offset);
if ($workers > 0)
{
	like($log, qr/scanning table "t" for index "t_k" with $workers parallel workers/, "by $workers workers");
}
else
{
	unlike($log, qr/scanning table "t" for index "t_k" with/, 'by none');
}
$offset = -s $node->logfile;
$node->safe_psql('postgres', 'REINDEX INDEX t_k');
like(slurp_file($node->logfile, $offset), qr/scanning table "t" for index "t_k" with 2 parallel workers/, 'REINDEX: by two');
$node->stop;
done_testing();
