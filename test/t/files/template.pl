# CREATE DATABASE TEMPLATE, both strategies: the copy has stubs, but no files.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('template');
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE original');
install_extension($node, 'original');
$node->safe_psql('original', invalid_fixture());
$node->safe_psql('original', 'CREATE UNLOGGED TABLE u (k int4); INSERT INTO u SELECT generate_series(1, 500); CREATE INDEX u_k ON u USING pmhash (k)');

# event: `CREATE DATABASE ... TEMPLATE` with strategy `wal_log` or `file_copy`
foreach my $strategy ('wal_log', 'file_copy')
{
	rebuild_off($node);
	$node->safe_psql('postgres', "CREATE DATABASE copy_$strategy TEMPLATE original STRATEGY $strategy");
	stays_invalid($node, 'it does not exist', $strategy, "copy_$strategy");
	rebuild_on($node);
	all_come_back($node, $strategy, "copy_$strategy");
	same_answers($node, 'u', 'k', 'u_k', "$strategy, unlogged", "copy_$strategy");

	# no session has to use the database for that
	$node->safe_psql('postgres', "CREATE DATABASE unused_$strategy TEMPLATE original STRATEGY $strategy");
	my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'unused_$strategy'");
	wait_for_files(pool($node) . "/$oid", 5, "$strategy, before the first session");
	all_come_back($node, "$strategy, unused", "unused_$strategy");
	all_come_back($node, "$strategy, the original", 'original');
}
$node->safe_psql('postgres', 'DROP DATABASE copy_wal_log');
all_come_back($node, 'after DROP DATABASE', 'copy_file_copy');
$node->stop;
done_testing();
