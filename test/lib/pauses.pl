# pauses.pl SEED FILE DATADIR...
#
# Stops processes of running servers at random for 0.05 to 3 seconds (SIGSTOP, SIGCONT), one at
# a time, never a postmaster, until it gets SIGTERM or its parent is gone.  A machine that is
# short of processors does that to them.  FILE has a line for each pause: what was stopped,
# and for how many milliseconds.  What others have stopped is left alone.

use strict;
use warnings;

use Time::HiRes qw(usleep);

my ($seed, $file, @directories) = @ARGV;
my $parent = getppid();
my $shortest = 0.05;
my $longest = 3;
my $over = 0;

# State and parent of a process, or nothing if it is gone.
sub state_of
{
	my ($pid) = @_;

	open(my $stat, '<', "/proc/$pid/stat") or return;
	my $line = <$stat> // '';
	return $line =~ /^\d+ \(.*\) (\S) (\d+) /;
}

# The processes of the servers that run now.
sub processes
{
	my %postmaster;

	foreach my $directory (@directories)
	{
		open(my $pid_file, '<', "$directory/postmaster.pid") or next;
		my $pid = <$pid_file> // '';
		$postmaster{$1} = 1 if $pid =~ /^(\d+)$/;
	}
	return grep {
		my ($state, $its_parent) = state_of($_);
		defined $state && $state !~ /[TtZX]/ && $postmaster{$its_parent}
	} map { /(\d+)/ } glob '/proc/[0-9]*';
}

# As ps shows it, without what changes: "walreceiver", "client backend".
sub kind_of
{
	my ($pid) = @_;

	open(my $cmdline, '<', "/proc/$pid/cmdline") or return 'gone';
	my $title = <$cmdline> // '';
	my @kinds = ('startup', 'walreceiver', 'walsender', 'walwriter', 'checkpointer', 'background writer', 'launcher', 'autovacuum worker', 'parallel worker', 'pmhash');

	foreach my $kind (@kinds)
	{
		return $title =~ /pmhash/ && $kind eq 'launcher' ? 'pmhash launcher' : $kind if $title =~ /\Q$kind/;
	}
	return $title =~ /^postgres:.*\[local\]/ ? 'client backend' : 'other';
}

$SIG{TERM} = $SIG{INT} = sub { $over = 1 };
$SIG{HUP} = 'IGNORE';
srand($seed);
open(my $log, '>', $file) or die "$file: $!";
$log->autoflush(1);
until ($over || getppid() != $parent)
{
	my @pids = processes();
	my $pid = $pids[ rand @pids ];

	if (defined $pid && kill('STOP', $pid))
	{
		my $seconds = $shortest * ($longest / $shortest)**rand();
		my $rest = $seconds;

		printf $log "%s %d\n", kind_of($pid), $seconds * 1000;
		for (; $rest > 0 && !$over && getppid() == $parent; $rest -= 0.05)
		{
			usleep(50_000);
		}
		kill('CONT', $pid);
	}
	usleep(rand(300_000)) if !$over;
}
