# Databases without pmhash are connected to once, at a start, and then left alone; whatever
# the name of the access method, indexes are found.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('others', "log_min_messages = debug1\n");
$node->start;

sub oid_of
{
	my ($database) = @_;
	return $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");
}

# How many workers there have been in a database since a place in the log.
sub visits
{
	my ($database, $from) = @_;
	my $oid = oid_of($database);

	return scalar(() = slurp_file($node->logfile, $from) =~ /starting background worker process "pmhash \w+ for database $oid"/g);
}

# plain: nothing; other_am: an access method of another library's; past: had pmhash;
# renamed: has it under another name; mine: as usual.
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
	my ($name, $most) = @_;
	my $from = -s $node->logfile;

	$node->start;
	$node->poll_query_until('postgres', "SELECT pg_stat_have_stats('database', " . oid_of('mine') . ', 0)') or die $name;
	sleep(5);    # some more rounds of the cleaner
	cmp_ok(visits('mine', $from), '>', 2, "$name: a database with indexes is visited");
	is(visits($_, $from), 1, "$name: $_ is visited once") foreach ('template1', 'plain', 'other_am');
	# its directory in the pool is looked after as well
	cmp_ok(visits('past', $from), '<=', 2, "$name: one that has had indexes as well");
	return;
}

$node->stop('immediate');
start_and_look('killed');

# the pool has gone: every index is found, by whatever name
$node->stop('immediate');
system_or_bail('rm', '-rf', pool($node));
start_and_look('without a pool');
foreach my $database ('mine', 'renamed')
{
	ok($node->poll_query_until($database, "SELECT pmhash_size('t_k') > 10000"), "without a pool: the index of $database is rebuilt");
	is($node->safe_psql($database, 'SELECT count(*) FROM t WHERE k = 77'), '1', "$database: a row");
}

# a lock on a catalog keeps no process waiting
my $session = $node->background_psql('plain', on_error_stop => 1);
$session->query_safe('BEGIN; LOCK TABLE pg_catalog.pg_proc IN ACCESS EXCLUSIVE MODE') if $session->can('query_safe');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'"), 'a lock: the launcher starts');
$node->safe_psql('mine', 'REINDEX INDEX t_k');
wait_for_files(pool($node) . '/' . oid_of('mine'), 1, 'a lock: the launcher works');
$session->quit;

$node->stop;
done_testing();
