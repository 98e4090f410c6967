# At each step of a rebuild: the worker, the server, the postmaster alone are killed, it is
# stopped at once, the worker is cancelled and terminated; the index, the table, the
# database are dropped, rewritten, moved.  What is there afterwards is rebuilt and answers
# right, and no file is left of what is not.
#
# Each case takes its turn with one of the points; PMHASH_STOPS=all: each with all of them.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_server('rebuild_stops', <<CONF, install_path => install_with_stop_points());
allow_in_place_tablespaces = on
wal_level = replica
CONF
use_stop_points($node);
$node->start;
install_extension($node);
install_extension($node, 'template1');
$node->safe_psql('postgres', "CREATE TABLESPACE aside LOCATION ''");

my @points = qw(rebuild_marked rebuild_before_build rebuild_before_stub rebuild_before_valid);
my $cases = 0;

sub builder
{
	return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder' AND query LIKE 'rebuilding%'");
}

# A table with two indexes, x_k of which has lost its file and is being rebuilt up to a point.
sub start_rebuild
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($point, $database, $name) = @_;
	my $logged = $cases++ % 2 ? 'on' : 'off';

	$node->safe_psql($database, <<SQL);
CREATE TABLE x (k int, v int);
INSERT INTO x SELECT i % 100, i FROM generate_series(1, 400) i;
CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = $logged);
CREATE INDEX x_v ON x USING pmhash (v);
SQL
	hold($point);
	unlink(index_file($node, 'x_k', $database)) or die $!;
	$node->safe_psql($database, 'INSERT INTO x VALUES (5, 1000)');
	return is_held($point, $name);
}

# Tests of what there should be at the end of a case; then the table goes.
sub all_right
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, $database) = @_;
	my $there = $node->safe_psql($database, "SELECT count(*) FROM pg_class WHERE relname = 'x_k'");
	my $db = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = '$database'");

	if ($there)
	{
		$node->safe_psql($database, 'INSERT INTO x SELECT i % 7, i FROM generate_series(2000, 2050) i');
		ok($node->poll_query_until($database, "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'"), "$name: rebuilt")
		  || diag($node->safe_psql($database, 'SELECT index, state FROM pmhash_indexes'));
		same_answers($node, 'x', 'k', 'x_k', $name, $database);
		all_checked($node, $name, $database);
	}
	wait_for_files(pool($node) . "/$db", $node->safe_psql($database, 'SELECT count(*) FROM pmhash_indexes'), "$name: files");
	$node->safe_psql($database, 'DROP TABLE IF EXISTS x');
	return;
}

# ---- ends of processes ----

my %ends = (
	ends_of('worker', \&builder),
	'crash, WAL lost' => sub {
		stop_outside_ask($node, split(/\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'pmhash launcher', 'checkpointer', 'background writer')")));
		$node->safe_psql('postgres', <<SQL);
SET synchronous_commit = off;
INSERT INTO x SELECT 200 + i % 100, i FROM generate_series(4000, 4100) i;
UPDATE x SET k = k + 1000 WHERE k % 10 = 4;
SQL
		crash($node);
		return sub { $node->start };
	});

my $turn = 0;
foreach my $end (sort keys %ends)
{
	foreach my $point (points_of($turn++, @points))
	{
		my $name = "$end at $point";

		start_rebuild($point, 'postgres', $name);
		my $then = $ends{$end}->();
		release($point);
		$then->() if defined $then;
		all_right($name, 'postgres');
	}
}

# ---- statements ----

my %statements = (
	'DROP TABLE' => 'DROP TABLE x',
	'DROP INDEX' => 'DROP INDEX x_k',
	'DROP INDEX CONCURRENTLY' => 'DROP INDEX CONCURRENTLY x_k',
	'TRUNCATE' => 'TRUNCATE x',
	'TRUNCATE, rolled back' => 'BEGIN; TRUNCATE x; ROLLBACK',
	'VACUUM FULL' => 'VACUUM FULL x',
	'VACUUM' => 'VACUUM x',
	'REINDEX' => 'REINDEX INDEX x_k',
	'REINDEX CONCURRENTLY' => 'REINDEX INDEX CONCURRENTLY x_k',
	'index moved' => 'ALTER INDEX x_k SET TABLESPACE aside',
	'index moved, rolled back' => 'BEGIN; ALTER INDEX x_k SET TABLESPACE aside; ROLLBACK',
	'table moved' => 'ALTER TABLE x SET TABLESPACE aside',
	'rewritten' => 'ALTER TABLE x ALTER k TYPE bigint',
	'unlogged' => 'ALTER TABLE x SET UNLOGGED');

foreach my $statement (sort keys %statements)
{
	foreach my $point (points_of($turn++, @points))
	{
		my $name = "$statement at $point";

		start_rebuild($point, 'postgres', $name);
		my $session = start_session($statements{$statement});
		$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'active' AND application_name = 'psql' AND wait_event_type IS DISTINCT FROM 'Lock' AND pid <> pg_backend_pid()");
		release($point);
		is(finish($session), '', "$name: done");
		all_right($name, 'postgres');
	}
}

# ---- the database ----

foreach my $point (points_of($turn++, @points))
{
	my $name = "DROP DATABASE at $point";

	$node->safe_psql('postgres', 'CREATE DATABASE db1');
	my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'db1'");
	start_rebuild($point, 'db1', $name);
	my $session = start_session('DROP DATABASE db1 WITH (FORCE)');
	usleep(300_000);
	release($point);
	is(finish($session), '', "$name: done");
	wait_for_files(pool($node) . "/$oid", 0, "$name: no file is left");
}

# ---- nothing goes on for ever ----

my $from = -s $node->logfile;
sleep(3);
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE '%rebuilder'"), '0', 'no rebuilder is left');
unlike(slurp_file($node->logfile, $from), qr/rebuilding|rebuilt|rebuild index/, 'and nothing is rebuilt');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal (?!9\b)\d+:/, 'nothing failed');
$node->stop;
done_testing();
