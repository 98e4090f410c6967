# Databases without pmhash do not notice that it is preloaded: none of its processes
# connects to them.  What shows it are the statistics of a database, which any process
# creates that was connected, as in PostgreSQL's own 029_stats_restart.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('others');
$node->start;

sub oid_of
{
	my ($database) = @_;
	return $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");
}

# Looked at from postgres, so not of postgres.
sub visited
{
	my ($database) = @_;
	return $node->safe_psql('postgres', "SELECT pg_stat_have_stats('database', " . oid_of($database) . ', 0)');
}

# plain: nothing; other_am: an access method of another library's; past: had pmhash;
# renamed: has it under another name; mine: as usual.  In the order in which they are
# looked at.
my @without = ('template1', 'plain', 'other_am', 'past');
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach ('plain', 'other_am', 'past', 'renamed', 'mine');
$node->safe_psql('other_am', 'CREATE ACCESS METHOD other TYPE INDEX HANDLER hashhandler');
install_extension($node, $_) foreach ('past', 'renamed', 'mine');
$node->safe_psql($_, 'CREATE TABLE t (k int4); INSERT INTO t SELECT generate_series(1, 1000); CREATE INDEX t_k ON t USING pmhash (k)')
	foreach ('past', 'mine');
$node->safe_psql('renamed', <<SQL);
CREATE ACCESS METHOD another TYPE INDEX HANDLER pmhash_handler;
CREATE OPERATOR CLASS int4_ops DEFAULT FOR TYPE int4 USING another AS OPERATOR 1 =, FUNCTION 1 hashint4extended(int4, int8);
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING another (k);
SQL
$node->safe_psql('past', 'DROP EXTENSION pmhash CASCADE');
wait_for_files(pool($node) . '/' . oid_of('past'), 0, 'files of the dropped indexes go');

sub start_and_look
{
	my ($name, @untouched) = @_;

	$node->start;
	ok($node->poll_query_until('postgres', "SELECT pg_stat_have_stats('database', " . oid_of('mine') . ', 0)'),
		"$name: a database with indexes is visited");
	sleep(3);    # two more rounds of the cleaner
	is(visited($_), 'f', "$name: $_ is not visited") foreach (@untouched);
	return;
}

foreach my $round (1, 2)
{
	# without a replay that reads blocks, which makes statistics on PostgreSQL 18
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->stop('immediate');    # which discards statistics
	start_and_look("killed $round", @without);
}

# the pool has gone: every index is found, by whatever name
$node->stop('immediate');
system_or_bail('rm', '-rf', pool($node));
start_and_look('without a pool', @without);
foreach my $database ('mine', 'renamed')
{
	ok($node->poll_query_until($database, "SELECT pmhash_size('t_k') > 10000"), "without a pool: the index of $database is rebuilt");
	is($node->safe_psql($database, 'SELECT count(*) FROM t WHERE k = 77'), '1', "$database: a row");
}

# what cannot be found out from outside
my $pg_am = $node->data_dir . '/' . $node->safe_psql('plain', "SELECT pg_relation_filepath('pg_am')");
$node->safe_psql('postgres', 'CHECKPOINT');
$node->stop('immediate');
my $header = substr(slurp_file($pg_am), 0, 24);
patch_file($pg_am, 8, "\xff" x 12);
my $from = -s $node->logfile;
start_and_look('a damaged catalog', 'template1', 'other_am', 'past');
$node->wait_for_log(qr/LOG: .*pmhash could not determine from outside whether database ${\oid_of('plain')} has indexes: invalid page in block 0/, $from);
$node->stop('immediate');
patch_file($pg_am, 0, $header);

# a lock on a catalog keeps no process waiting
$node->start;
my $session = $node->background_psql('plain', on_error_stop => 1);
$session->query_safe('BEGIN; LOCK TABLE pg_catalog.pg_proc IN ACCESS EXCLUSIVE MODE') if $session->can('query_safe');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'"), 'a lock: the launcher starts');
$node->safe_psql('mine', 'REINDEX INDEX t_k');
wait_for_files(pool($node) . '/' . oid_of('mine'), 1, 'a lock: the launcher works');
$session->quit;

$node->stop;
done_testing();
