# Processes of servers stopped at random under load (test/lib/pauses.pl), as in all long tests.
# PMHASH_PAUSES=0 leaves it out.

package PmhashPauses;

use v5.36;

use Exporter 'import';
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(
  start_pauses
  end_pauses
  pauses
);

my $program = dirname(__FILE__) . '/../pauses.pl';
my %paused;    # how often, by kind of process
my $n = 0;

# From now on these servers have pauses, also after they have been started again.
sub start_pauses (@nodes)
{
	my $file = "$PostgreSQL::Test::Utils::tmp_check/pauses_$$." . ++$n;

	return if ($ENV{PMHASH_PAUSES} // '1') eq '0';
	return { file => $file,
		run => IPC::Run::start([ $^X, $program, int(rand(1 << 30)), $file, map { $_->data_dir } @nodes ]) };
}

# No process is stopped any more.
sub end_pauses ($pauses)
{
	return if !defined $pauses;
	$pauses->{run}->signal('TERM');
	$pauses->{run}->finish;
	if (-e $pauses->{file})
	{
		/^(.*) \d+$/ && $paused{$1}++ foreach split /\n/, slurp_file($pauses->{file});
		unlink $pauses->{file};
	}
	return;
}

# How many there were, and of what, in a line that begins with their number.
sub pauses
{
	my $sum = 0;

	$sum += $_ foreach values %paused;
	return "$sum pauses (" . join(', ', map { "$_ $paused{$_}" } sort keys %paused) . ')';
}

1;
