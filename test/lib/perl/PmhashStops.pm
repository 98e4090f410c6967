# A server whose library has stop points: processes are held at them, and sessions run
# in the background up to one.

package PmhashStops;

use v5.36;

use Exporter 'import';
use IPC::Run;
use PmhashTest;

our @EXPORT = qw(
  %by
  %statements_on_x
  use_stop_points
  hold
  fail_at
  is_held
  release
  points_of
  ends_of
  start_session
  finish
  start_and_hold
  start_numbers
  at_once
);

# Settings that leave one kind of plan to look rows up by.
our %by = (
	pages => 'SET enable_seqscan = off; SET enable_bitmapscan = off',
	bitmap => 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off');
$by{index} = "$by{pages}; SET pmhash.enable_pagescan = off";
$by{join} = "$by{index}; SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1000";

# What may become of a table x whose index x_k is being built; there is a tablespace "aside".
our %statements_on_x = (
	'DROP TABLE' => 'DROP TABLE x',
	'DROP INDEX' => 'DROP INDEX x_k',
	'DROP INDEX CONCURRENTLY' => 'DROP INDEX CONCURRENTLY x_k',
	'TRUNCATE' => 'TRUNCATE x',
	'TRUNCATE, rolled back' => 'BEGIN; TRUNCATE x; ROLLBACK',
	'VACUUM FULL' => 'VACUUM FULL x',
	'REINDEX' => 'REINDEX INDEX x_k',
	'REINDEX CONCURRENTLY' => 'REINDEX INDEX CONCURRENTLY x_k',
	'index moved' => 'ALTER INDEX x_k SET TABLESPACE aside',
	'table moved' => 'ALTER TABLE x SET TABLESPACE aside',
	'rewritten' => 'ALTER TABLE x ALTER k TYPE bigint',
	'unlogged' => 'ALTER TABLE x SET UNLOGGED');

my $patience = 60;
my ($node, $points);

# All that follows is about this server, from now on, which has the library with stop points
# (PmhashTest, install_with_stop_points).  Returns the directory of its points.
sub use_stop_points
{
	($node) = @_;
	$points = $node->data_dir . '/stop_points';
	-d $points or mkdir $points or die "$points: $!";
	if (!-e "$points/armed")
	{
		append_to_file("$points/armed.new", '0');
		rename("$points/armed.new", "$points/armed") or die $!;
	}
	return $points;
}

# Whether any is wanted (stop_points.c).
sub arm ($is_wanted)
{
	open(my $armed, '+<', "$points/armed") or die "$points/armed: $!";
	syswrite($armed, $is_wanted ? '1' : '0');
	close($armed);
	return;
}

# Have the next process that comes by a point held there.
sub hold ($point)
{
	append_to_file("$points/$point", '');
	arm(1);
	return;
}

# Have the next process that comes by a point raise an ERROR there.
sub fail_at ($point)
{
	append_to_file("$points/$point.error", '');
	arm(1);
	return;
}

# A test: a process is held.
sub is_held ($point, $name = 'a process')
{
	my $deadline = time + $patience;

	usleep(2_000) while !-e "$points/$point.held" && time < $deadline;
	arm(0) if !grep { !/\/armed$|\.held$/ } glob "$points/*";
	return ok(-e "$points/$point.held", "$name: held at $point");
}

sub release ($point)
{
	unlink("$points/$point.held") or die "$points/$point.held: $!";
	return;
}

# ---- cases at many points ----

# The points, of these, at which the n-th case is tried: it takes its turn with one of
# them; PMHASH_STOPS=all: with all.
sub points_of ($n, @points)
{
	return ($ENV{PMHASH_STOPS} // '') eq 'all' ? @points : $points[$n % @points];
}

# Ways in which a process that is held comes to an end, alone or with its server; its pid is
# what $pid_of gives, and $what its name in theirs.  Each is called while it is held, and
# what it returns, if anything, when the point has been released.
sub ends_of ($what, $pid_of)
{
	my $server = $node;

	return (
		"$what killed" => sub {
			my $from = -s $server->logfile;

			kill('KILL', $pid_of->()) == 1 or die;
			$server->wait_for_log(qr/reinitializing/, $from);
			return sub { wait_until_up($server) };
		},
		"$what terminated" => sub {
			$server->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $pid_of->() . ')');
			return;
		},
		"$what cancelled" => sub {
			$server->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $pid_of->() . ')');
			return;
		},
		'stopped at once' => sub {
			$server->stop('immediate');
			return sub { $server->start };
		},
		'crash' => sub {
			crash($server);
			return sub { $server->start };
		},
		'postmaster killed' => sub {
			my $postmaster = $server->{_pid};
			my @pids = children($postmaster);

			kill('KILL', $postmaster) == 1 or die;
			return sub {
				wait_until_dead($server, $postmaster, @pids);
				$server->kill9;
				$server->start;
			};
		});
}

# ---- sessions in the background ----

# Run SQL with psql; the handle is for finish().
sub start_session ($sql)
{
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
sub finish ($session)
{
	$session->{run}->finish;
	chomp $session->{output};
	return $session->{output};
}

# Run SQL in the background up to a point.
sub start_and_hold ($point, $sql, $name = 'a process')
{
	hold($point);
	my $session = start_session($sql);
	is_held($point, $name);
	return $session;
}

# Transactions that get a number, ten a second, in the background.  A process finds out
# anew what is dead to all others only when numbers have gone on (procarray.c,
# GlobalVisTestShouldUpdate), and one of its looks may meet some process's old snapshot.
sub start_numbers
{
	my $statement = "SELECT pg_current_xact_id() \\watch 0.1\n";
	my $run = IPC::Run::start(
		[
			$node->installed_command('psql'), '-XAtq', '-h', $node->host, '-p', $node->port,
			'-d', 'postgres'
		],
		'<', \$statement, '>', '/dev/null', '2>&1');

	# it gets to read nothing before
	$run->pump while $statement ne '';
	return $run;
}

# A statement that must not wait for what we hold.
sub at_once ($sql)
{
	return $node->safe_psql('postgres', "SET statement_timeout = '${patience}s'; $sql");
}

1;
