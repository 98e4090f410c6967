# first_answer.pl: wait for a server that is starting, then ask it
#
#   perl first_answer.pl DATA-DIRECTORY SOCKET USER DATABASE QUERY
#
# Prints when the answer was there, in seconds since 1970, and the first column
# of its first row.  Looks every millisecond whether postmaster.pid says
# "ready" (the eighth line; there must be none of an earlier start), since each
# try to connect would cost the server a process.  Speaks the protocol itself
# (version 3, no password), which takes less time than the start of psql.  Exit
# status 1 if there is no answer within two minutes.

use strict;
use warnings;

use IO::Socket::UNIX;
use Time::HiRes qw(time usleep);

my ($directory, $path, $user, $database, $query) = @ARGV;
my $deadline = time + 120;

sub is_ready
{
	open(my $file, '<', "$directory/postmaster.pid") or return 0;
	my @lines = <$file>;
	close($file);
	return @lines >= 8 && $lines[7] =~ /^ready/;
}

# One message: its type and its body.
sub message
{
	my ($socket) = @_;
	my ($head, $body) = ('', '');

	read($socket, $head, 5) == 5 or die "the server has hung up\n";
	my ($type, $length) = unpack('a N', $head);
	$length == 4 or read($socket, $body, $length - 4) == $length - 4
	  or die "the server has hung up\n";
	return ($type, $body);
}

# When the answer came, and the first column of its first row.
sub ask
{
	my $socket = IO::Socket::UNIX->new(Peer => $path) or die "$path: $!\n";
	my $startup = pack('N', 196608) . "user\0$user\0database\0$database\0\0";

	print $socket pack('N', 4 + length($startup)) . $startup;
	$socket->flush;
	for (;;)
	{
		my ($type, $body) = message($socket);

		die 'the server says: ' . join(' ', split(/\0/, $body)) . "\n" if $type eq 'E';
		return (time, substr($body, 6, unpack('x2 N', $body))) if $type eq 'D';
		if ($type eq 'Z')
		{
			print $socket 'Q' . pack('N', 5 + length($query)) . "$query\0";
			$socket->flush;
		}
	}
}

until (is_ready())
{
	die "the server is not ready\n" if time > $deadline;
	usleep(1000);
}
printf("%.6f %s\n", ask());
