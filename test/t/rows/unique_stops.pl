# Inserts of one key into a unique index (PostgreSQL 18 and later), held at the steps
# of unique.c while another session does what would let a duplicate pass.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('uniq_stops', undef, install_path => install_with_stop_points());
plan(skip_all => 'unique indexes are for 18 and later') if $node->pg_version < 18;
use_stop_points($node);

my $duplicate = qr/duplicate key value violates unique constraint "u_k"/;
my $scan = 'SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off';

sub one_row
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	is($node->safe_psql('postgres', "$scan; SELECT count(*) FROM u WHERE k = 1"), '1', "$name: one row");
	is($node->safe_psql('postgres', "SELECT pmhash_check('u_k')"), '', "$name: pmhash_check");
	$node->safe_psql('postgres', 'DELETE FROM u; VACUUM u');
	return;
}

$node->start;
install_extension($node);
$node->safe_psql('postgres', 'CREATE TABLE u (k int4, who text); CREATE UNIQUE INDEX u_k ON u USING pmhash (k)');

# ---- one has looked, and found nothing: the other does not get in between ----
hold('unique_before_insert');
my $first = start_session("INSERT INTO u VALUES (1, 'first')");
is_held('unique_before_insert', 'nothing there');
my $second = start_session("INSERT INTO u VALUES (1, 'second')");
ok($node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%second%' AND wait_event_type = 'LWLock' AND wait_event = 'pmhash_keys'"),
	'nothing there: the second waits for the key');
is($node->safe_psql('postgres', "INSERT INTO u VALUES (2, 'other'), (3, 'keys'), (4, 'too'); SELECT count(*) FROM u"), '3', 'others do not');
release('unique_before_insert');
is(finish($first), '', 'nothing there: the first is in');
like(finish($second), $duplicate, 'nothing there: the second is not');
one_row('nothing there');

# ---- a dead row of the key is looked at; a new one comes meanwhile ----
$node->safe_psql('postgres', "INSERT INTO u VALUES (1, 'dead'); DELETE FROM u");
hold('unique_before_look');
$first = start_session("INSERT INTO u VALUES (1, 'first')");
is_held('unique_before_look', 'dead row');
$node->safe_psql('postgres', "INSERT INTO u VALUES (1, 'new')");
release('unique_before_look');
like(finish($first), $duplicate, 'dead row: a new one is met');
one_row('dead row');

# ---- the dead row has been looked at; its TID goes to a new one ----
my $tid = $node->safe_psql('postgres', "INSERT INTO u VALUES (1, 'dead') RETURNING ctid");
$node->safe_psql('postgres', 'DELETE FROM u');
hold('unique_looked');
$first = start_session("INSERT INTO u VALUES (1, 'first')");
is_held('unique_looked', 'TID used again');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on, TRUNCATE off) u');
is($node->safe_psql('postgres', "INSERT INTO u VALUES (1, 'new') RETURNING ctid"), $tid, 'TID used again: it is');
release('unique_looked');
like(finish($first), $duplicate, 'TID used again: the new row is met');
one_row('TID used again');

# ---- ON CONFLICT: both are about to put their entries in, and one of them sees the other ----
hold('unique_before_insert');
$first = start_session("INSERT INTO u VALUES (1, 'first') ON CONFLICT (k) DO UPDATE SET who = u.who || ' and first'");
is_held('unique_before_insert', 'ON CONFLICT');
$second = start_session("INSERT INTO u VALUES (1, 'second') ON CONFLICT (k) DO UPDATE SET who = u.who || ' and second'");
ok($node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%''second%' AND wait_event = 'pmhash_keys'"),
	'ON CONFLICT: the second waits for the key');
release('unique_before_insert');
is(finish($first), '', 'ON CONFLICT: the first');
is(finish($second), '', 'ON CONFLICT: the second');
is($node->safe_psql('postgres', 'SELECT who FROM u'), 'first and second', 'ON CONFLICT: both in turn');
one_row('ON CONFLICT');
$node->stop;
done_testing();
