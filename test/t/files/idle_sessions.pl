# An idle session lets go of files that have been removed, or their space would not be
# free before it does something: DROP, REINDEX, TRUNCATE, each by another session.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $each = 20;    # more than are looked after at the end of a transaction (16)
my $node = new_server('idle');

$node->start;
install_extension($node);
$node->safe_psql('postgres', join(' ', map { "CREATE TABLE $_ (k int); INSERT INTO $_ VALUES (1); CREATE INDEX ${_}_k ON $_ USING pmhash (k);" }
	'kept', 'emptied', 'anew', map { "dropped_$_" } 1 .. $each));

# Index files that a process has mapped: those that are there, or not any more.
sub mapped
{
	my ($pid, $removed) = @_;
	my %files = map { m{(/\S+\.pmh)( \(deleted\))?$} && !!$2 == $removed ? ($1 => 1) : () } split /\n/, slurp_file("/proc/$pid/maps");

	return scalar(keys %files);
}

my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
my @pids = map { $_->query_safe('SELECT pg_backend_pid()') } @sessions;
foreach my $session (@sessions)
{
	$session->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off');
	$session->query_safe("SELECT count(*) FROM $_ WHERE k = 1")
	  foreach 'kept', 'emptied', 'anew', map { "dropped_$_" } 1 .. $each;
}
is(join(' ', map { mapped($_, 0) } @pids), join(' ', ($each + 3) x 2), 'all are mapped');
$sessions[1]->query_safe('BEGIN; SELECT 1');

$node->safe_psql('postgres', join(' ', map { "DROP TABLE dropped_$_;" } 1 .. $each));
$node->safe_psql('postgres', 'TRUNCATE emptied');
$node->safe_psql('postgres', 'REINDEX INDEX anew_k');
my $deadline = time + 30;
usleep(50_000) while mapped($pids[0], 1) > 0 && time < $deadline;
is(mapped($pids[0], 1), 0, 'what has been removed is unmapped');
is(mapped($pids[0], 0), 1, 'what has not been is kept');
is($node->safe_psql('postgres', "SELECT state FROM pg_stat_activity WHERE pid = $pids[0]"), 'idle', 'by an idle session');

# in a transaction: at its end
is($sessions[1]->query_safe('SELECT count(*) FROM kept WHERE k = 1'), '1', 'in a transaction');
$sessions[1]->query_safe('COMMIT');
usleep(50_000) while mapped($pids[1], 1) > 0 && time < $deadline;
is(mapped($pids[1], 1), 0, 'in a transaction: at its end');
is($sessions[0]->query_safe("SELECT (SELECT count(*) FROM kept WHERE k = 1), (SELECT count(*) FROM emptied WHERE k = 1), (SELECT count(*) FROM anew WHERE k = 1)"),
	'1|0|1', 'the session goes on');
$_->quit foreach @sessions;
$node->stop;
done_testing();
