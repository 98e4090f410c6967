# A standby loses a file and builds it again, under the same id, while a query goes on that
# has the lost one mapped.  When that query needs a part of it that it has not mapped, it is
# the lost one that is removed: nothing is said of the new one.  Nor past a promotion.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid qw(index_file);
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_primary('primary');
$primary->safe_psql('postgres', <<SQL);
CREATE TABLE r (k int4, v int4);
INSERT INTO r SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX r_k ON r USING pmhash (k) WITH (wal = on);
SQL
my $standby = new_standby($primary, 'standby');
wait_for_state($standby, 'r_k', qr/^valid$/, 'built');

# its scan is begun anew for each key
sub begun_query
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $session = $standby->background_psql('postgres', on_error_stop => 0);

	$session->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off; SET pmhash.enable_pagescan = off');
	$session->query_safe(<<SQL);
BEGIN ISOLATION LEVEL REPEATABLE READ;
DECLARE c CURSOR FOR SELECT count(x.v) OVER (ROWS CURRENT ROW)
	FROM generate_series(1, 50) g, LATERAL (SELECT v FROM r WHERE k = g OFFSET 0) x;
SQL
	is($session->query_safe('FETCH c'), 1, 'the query has begun');
	return $session;
}

# The query goes on, and the file is the one that it was.
sub goes_on
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($session, $inode, $name) = @_;

	is($session->query('FETCH ALL FROM c'), join("\n", (1) x 49), "$name: the query has all its rows");
	is($session->{stderr}, '', "$name: ... and no error");
	$session->query('COMMIT');
	$session->quit;
	is(standby_state($standby, 'r_k'), 'valid', "$name: the new file is not lost");
	$standby->safe_psql('postgres', 'SELECT pg_sleep(2)');
	is((stat(index_file($standby, 'r_k')))[1], $inode, "$name: nor built again");
	return;
}

my $session = begun_query();
my $promoted = begun_query();

$primary->safe_psql('postgres', 'INSERT INTO r SELECT i, i FROM generate_series(1001, 200000) i');
caught_up($primary, $standby);
my $position = log_position($standby);
unlink(index_file($standby, 'r_k')) or die;
is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT v FROM r WHERE k = 150000'), '150000', 'met by another session');
ok($standby->wait_for_log(qr/has been built on this standby/, $position), 'built again');
wait_for_state($standby, 'r_k', qr/^valid$/, 'valid again');
my @life = stat(index_file($standby, 'r_k'));

goes_on($session, $life[1], 'standby');

# on a primary the stub would be marked
$primary->stop;
$standby->promote;
$standby->safe_psql('postgres', q(SELECT pmhash_size('r_k')));
goes_on($promoted, $life[1], 'promoted');

$standby->stop;
done_testing();
