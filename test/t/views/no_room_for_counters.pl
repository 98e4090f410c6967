# An index that finds no row for its counters takes no exclusive lock to learn that, at
# the end of each of its transactions: others that count, or read counters, go on.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStops;
use PmhashTest;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_server('full', 'pmhash.tracked_indexes = 1', install_path => install_with_stop_points());

use_stop_points($node);
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE a (k int); CREATE INDEX a_k ON a USING pmhash (k); INSERT INTO a VALUES (1);
CREATE TABLE b (k int); CREATE INDEX b_k ON b USING pmhash (k); INSERT INTO b VALUES (1);
SQL

# What becomes of a session that looks something up: it 'waits' for a lock, or has its
# answer, and with that its transaction's end: it 'ends'.
sub fate
{
	my ($session) = @_;

	for (;;)
	{
		return 'waits' if $node->safe_psql('postgres',
			"SELECT wait_event_type FROM pg_stat_activity WHERE application_name = 'looks up'") eq 'LWLock';
		$session->{run}->pump_nb if $session->{run}->pumpable;
		return 'ends' if $session->{output} ne '';
		usleep(10_000);
	}
}

# A test: a look-up by the second index ends while another process reads counters.
sub ends_beside_reader
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;
	my $reader = start_and_hold('counters_read', 'SELECT true FROM pmhash_stat', $name);
	my $session = start_session(q(SET application_name = 'looks up'; SET enable_seqscan = off;)
		  . ' SET enable_bitmapscan = off; SELECT count(*) FROM b WHERE k = 1');

	is(fate($session), 'ends', "$name: the look-up waits for no lock");
	release('counters_read');
	is(finish($reader), 't', "$name: the counters are read");
	is(finish($session), '1', "$name: the look-up");
	return;
}

is($node->safe_psql('postgres', 'SELECT tracked_indexes FROM pmhash_stat'), '1', 'one has a row');
ends_beside_reader('no room');
$node->append_conf('postgresql.conf', 'pmhash.tracked_indexes = 0');
$node->restart;
ends_beside_reader('no rows at all');
cmp_ok($node->safe_psql('postgres', 'SELECT not_tracked FROM pmhash_stat'), '>', 0, 'it is counted as not tracked');
$node->stop;
done_testing();
