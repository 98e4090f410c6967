# A session in the extended protocol, message by message: a portal is bound, other
# statements come, then it is executed.  psql can do these at once only.
#
# (Section "Frontend/Backend Protocol" of PostgreSQL's manual: message formats.)

package PmhashPortals;

use strict;
use warnings;

use IO::Socket::UNIX;

# A session of the superuser, who needs no password.
sub new
{
	my ($class, $node) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $socket = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path)
	  or die "could not connect to $path: $!";
	my $self = bless({ socket => $socket }, $class);
	my $user = getpwuid($<);
	my $parameters = pack('N', 3 << 16) . "user\0$user\0database\0postgres\0\0";

	print $socket pack('N', length($parameters) + 4), $parameters;
	$socket->flush;
	$self->answer;
	return $self;
}

sub put
{
	my ($self, $type, $body) = @_;

	print { $self->{socket} } $type, pack('N', length($body) + 4), $body;
	return;
}

sub get
{
	my ($self, $n) = @_;
	my $got = '';

	while (length($got) < $n)
	{
		read($self->{socket}, $got, $n - length($got), length($got)) or die 'connection lost';
	}
	return $got;
}

# The columns of a DataRow message.
sub columns
{
	my ($body) = @_;
	my ($n, @columns) = unpack('n', $body);
	my $at = 2;

	while ($n-- > 0)
	{
		my $length = unpack('N', substr($body, $at, 4));

		$at += 4;
		if ($length == 0xFFFFFFFF)
		{
			push @columns, '';
			next;
		}
		push @columns, substr($body, $at, $length);
		$at += $length;
	}
	return join('|', @columns);
}

# All until the session is ready again: rows as psql -At shows them, and errors.
sub answer
{
	my ($self) = @_;
	my @lines;

	$self->{socket}->flush;
	for (;;)
	{
		my ($type, $length) = unpack('aN', $self->get(5));
		my $body = $self->get($length - 4);

		push @lines, columns($body) if $type eq 'D';
		push @lines, "ERROR: $1" if $type eq 'E' && $body =~ /\0M([^\0]*)/;
		return join("\n", @lines) if $type eq 'Z';
	}
}

# Statements by the simple protocol; returns what they say.
sub run
{
	my ($self, $sql) = @_;

	$self->put('Q', "$sql\0");
	return $self->answer;
}

# Bind a portal of that name to a query: its plan is made, and the executor is started.
sub bind_portal
{
	my ($self, $name, $query) = @_;

	$self->put('P', "\0$query\0" . pack('n', 0));
	$self->put('B', "$name\0\0" . pack('nnn', 0, 0, 0));
	$self->put('S', '');
	return $self->answer;
}

# Execute it: all that is left of its rows, or so many.
sub execute_portal
{
	my ($self, $name, $most) = @_;

	$self->put('E', "$name\0" . pack('N', $most // 0));
	$self->put('S', '');
	return $self->answer;
}

1;
