# A session by the protocol itself, without a psql, which takes longer to start than most
# statements of a test take; message by message where that is wanted: a portal is bound, other
# statements come, then it is executed.  For servers of a test, psql() and poll_query_until()
# are made of it.
#
# (Section "Frontend/Backend Protocol" of PostgreSQL's manual: message formats.)

package PmhashSession;

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use Test::More ();
use Time::HiRes qw(usleep);

# A session of the superuser, who needs no password.
sub new
{
	my ($class, $node, $database) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $socket = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path)
	  or die "could not connect to $path: $!";
	my $self = bless({ socket => $socket, messages => [] }, $class);
	local $SIG{PIPE} = 'IGNORE';
	my $parameters = pack('N', 3 << 16) . join("\0", user => scalar(getpwuid($<)), database => $database // 'postgres',
		application_name => $ENV{PGAPPNAME} // 'psql') . "\0\0";

	print $socket pack('N', length($parameters) + 4), $parameters;
	$self->receive;
	return $self;
}

sub put
{
	my ($self, $type, $body) = @_;
	local $SIG{PIPE} = 'IGNORE';

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

# The fields of an error or notice.
sub fields
{
	my ($body) = @_;
	return map { substr($_, 0, 1) => substr($_, 1) } split(/\0/, $body);
}

# All until the session is ready again: rows, errors and notices, each with its type.
sub receive
{
	my ($self) = @_;

	$self->{messages} = [];
	for (;;)
	{
		my ($type, $length) = unpack('aN', $self->get(5));
		my $body = $self->get($length - 4);

		push @{ $self->{messages} }, [ $type, $body ] if $type =~ /[DEN]/;
		return @{ $self->{messages} } if $type eq 'Z';
	}
}

# The same as rows that psql -At shows, and errors.
sub answer
{
	my ($self) = @_;
	my @lines;

	foreach my $message ($self->receive)
	{
		my ($type, $body) = @$message;

		push @lines, columns($body) if $type eq 'D';
		push @lines, "ERROR: $1" if $type eq 'E' && $body =~ /\0M([^\0]*)/;
	}
	return join("\n", @lines);
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

# The end, and that of the server's process, unless something holds it.
sub quit
{
	my ($self) = @_;

	$self->put('X', '');
	IO::Select->new($self->{socket})->can_read(5);
	return close($self->{socket});
}

# ---- in the place of psql ----

# The statements of a script, as psql divides it; none if there is something for psql alone.
sub statements_of
{
	my ($sql) = @_;
	my @statements = ('');
	my $depth = 0;

	return if $sql =~ /\\|\bATOMIC\b|\bCOPY\b.*\b(?:STDIN|STDOUT)\b/is;
	while ($sql =~ /\G('[^']*'|"[^"]*"|\$(\w*)\$.*?\$\g2\$|--[^\n]*|\/\*.*?\*\/|[^'"\$\/();-]+|.)/gs)
	{
		my $token = $1;

		$depth += $token eq '(' ? 1 : $token eq ')' ? -1 : 0;
		$statements[-1] .= $token;
		push @statements, '' if $token eq ';' && $depth == 0;
	}
	return map { s/^\s+//r } grep { /[^\s;]/ } @statements;
}

# What psql says of an error or notice.
sub said
{
	my ($body) = @_;
	my %field = fields($body);

	return join("\n", "psql:<stdin>:1: $field{S}:  $field{M}",
		map { defined $field{ $_->[0] } ? "$_->[1]:  $field{$_->[0]}" : () }
		  [ D => 'DETAIL' ], [ H => 'HINT' ], $field{S} =~ /NOTICE|WARNING/ ? () : [ W => 'CONTEXT' ]) . "\n";
}

my $lost = <<SAID;
psql:<stdin>:1: server closed the connection unexpectedly
	This probably means the server terminated abnormally
	before or while processing the request.
psql:<stdin>:1: error: connection to server was lost
SAID

# Run statements; returns psql's status, its output and its errors.
sub run_statements
{
	my ($self, $stop, @statements) = @_;
	my (@rows, $status);
	my $errors = '';

	foreach my $statement (@statements)
	{
		$self->put('Q', "$statement\0");
		my $is_there = eval { $self->receive; 1 };
		my @messages = @{ $self->{messages} };
		my $has_failed = !$is_there || grep { $_->[0] eq 'E' } @messages;

		$errors .= said($_->[1]) foreach grep { $_->[0] ne 'D' } @messages;
		push @rows, map { columns($_->[1]) } grep { $_->[0] eq 'D' && !$has_failed } @messages;
		$errors .= $lost if !$is_there;
		$status = !$is_there ? 2 : $has_failed && $stop ? 3 : 0;
		last if $status;
	}
	chomp $errors;
	return ($status // 0, join("\n", @rows), $errors);
}

my $psql = \&PostgreSQL::Test::Cluster::psql;

{
	no warnings 'redefine';

	*PostgreSQL::Test::Cluster::psql = sub {
		my ($node, $database, $sql, %parameters) = @_;
		my $is_other = grep { !/^(?:stdout|stderr|on_error_stop|on_error_die)$/ } keys %parameters;
		my @statements = $is_other || $ENV{PGOPTIONS} ? () : statements_of($sql);
		my $session = @statements ? eval { PmhashSession->new($node, $database) } : undef;

		goto &$psql if !$session || grep { $_->[0] eq 'E' } @{ $session->{messages} };
		my ($status, $stdout, $stderr) = $session->run_statements($parameters{on_error_stop} // 1, @statements);
		$session->quit;
		die "error running SQL: '$stderr' with sql '$sql'" if $status && $parameters{on_error_die};
		${ $parameters{stdout} } = $stdout if $parameters{stdout};
		${ $parameters{stderr} } = $stderr if $parameters{stderr};
		return wantarray ? ($status, $stdout, $stderr) : $status;
	};

	# (A session for all tries: it has no snapshot in between.)
	*PostgreSQL::Test::Cluster::poll_query_until = sub {
		my ($node, $database, $query, $expected) = @_;
		my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
		my ($session, $answer);

		do
		{
			$session //= eval { PmhashSession->new($node, $database) };
			$answer = $session ? eval { $session->run($query) } : undef;
			if (defined $answer && $answer eq ($expected // 't'))
			{
				$session->quit;
				return 1;
			}
			undef $session if !defined $answer;
			usleep(20_000);
		} while (time < $deadline);
		Test::More::diag("timed out: $query\nlast answer: " . ($answer // 'none'));
		return 0;
	};
}

1;
