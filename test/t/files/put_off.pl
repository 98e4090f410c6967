# Cleanings that are put off: a database that can't be cleaned for long is tried less and
# less often, and does not make another one wait that is put off for the first time.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = new_server('put_off', "log_min_messages = debug1\npmhash.cleaner_naptime = 3600\n");
my %oid;

$node->start;
foreach my $database (qw(long short))
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	install_extension($node, $database);
	$node->safe_psql($database, 'CREATE TABLE t (k int); CREATE INDEX t_k ON t USING pmhash (k); CREATE TABLE o (k int); CREATE INDEX o_k ON o USING pmhash (k);');
	$oid{$database} = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");
}
sleep(3);         # the first look of a new server is over

# Have a file that no index owns while an index is locked; wait until that was looked at.
sub put_off
{
	my ($database) = @_;
	my $from = -s $node->logfile;
	my $session = $node->background_psql($database, on_error_stop => 1);

	$session->query_safe('BEGIN; LOCK TABLE t; REINDEX INDEX t_k;');
	$node->safe_psql($database, "BEGIN; DROP INDEX o_k; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'");
	$node->wait_for_log(qr/unregistering background worker "pmhash cleaner for database $oid{$database}"/, $from);
	return $session;
}

sub tried
{
	my ($database) = @_;
	return scalar(() = slurp_file($node->logfile) =~ /starting background worker process "pmhash cleaner for database $oid{$database}"/g);
}

my $long = put_off('long');
my $begun = time;
usleep(20_000) while tried('long') < 5 && time < $begun + 30;
cmp_ok(time - $begun, '>', 5, 'tried again after 1, 2, 4 s: longer each time');
$begun = time;
my $short = put_off('short');
$short->query_safe('ROLLBACK');
$short->quit;
usleep(20_000) while scalar(database_files($node, 'short')) > 1 && time < $begun + 60;
my $took = time - $begun;
is(scalar(database_files($node, 'short')), 1, 'the file of the other database is gone');
cmp_ok($took, '<', 4, "after its own pause, not after that of the first ($took s)");
cmp_ok(scalar(database_files($node, 'long')), '>=', 2, 'in the first one it is still there');
$long->query_safe('ROLLBACK');
$long->quit;
$node->stop;
done_testing();
