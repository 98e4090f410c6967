# Inserts of one key into a unique index (PostgreSQL 18 and later), held at the steps
# of unique.c while another session does what would let a duplicate pass.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $patience = 60;
my $node = new_server('uniq_stops', undef, install_path => install_with_stop_points());
plan(skip_all => 'unique indexes are for 18 and later') if $node->pg_version < 18;
my $points = $node->data_dir . '/stop_points';
mkdir $points or die "$points: $!";

# Have the next process that comes by a point held there.
sub hold
{
	my ($point) = @_;

	append_to_file("$points/$point", '');
	return;
}

# A test: a process is held.
sub is_held
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($point, $name) = @_;
	my $deadline = time + $patience;

	usleep(2_000) while !-e "$points/$point.held" && time < $deadline;
	return ok(-e "$points/$point.held", "$name: held at $point");
}

sub release
{
	my ($point) = @_;

	unlink("$points/$point.held") or die "$points/$point.held: $!";
	return;
}

# ---- sessions in the background ----

# Run SQL with psql; the handle is for finish().
sub start_session
{
	my ($sql) = @_;
	my %session = (output => '');

	$session{run} = IPC::Run::start(
		[
			$node->installed_command('psql'), '-XAtq', '-h', $node->host, '-p', $node->port,
			'-d', 'postgres', '-v', 'ON_ERROR_STOP=1', '-c', $sql
		],
		'<', \undef, '>', \$session{output}, '2>&1');
	return \%session;
}

# Wait for its end; gives what it has printed.
sub finish
{
	my ($session) = @_;

	$session->{run}->finish;
	chomp $session->{output};
	return $session->{output};
}

# Run SQL in the background up to a point.
sub start_and_hold
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($point, $sql, $name) = @_;

	hold($point);
	my $session = start_session($sql);
	is_held($point, $name);
	return $session;
}

# A statement that must not wait for whom we hold.
sub at_once
{
	my ($sql) = @_;

	return $node->safe_psql('postgres', "SET statement_timeout = '${patience}s'; $sql");
}


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

# ---- ON CONFLICT: both put their entries in, and one of them sees the other ----
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
