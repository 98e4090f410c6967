# What psql does for the tests, without a process: a session of its own for each call, by the
# server's protocol.  Half of what "psql -c" costs is that it begins, and tests ask thousands
# of times.  PmhashTest has psql(), safe_psql() and poll_query_until() of all servers done so.
# What is for psql itself (its commands and variables, COPY FROM STDIN) goes there as before.
# (Section "Frontend/Backend Protocol" of PostgreSQL's manual: message formats.)

package PmhashClient;

use v5.36;

use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use Socket qw(MSG_NOSIGNAL);
use Time::HiRes qw(usleep);

my $by_psql = \&PostgreSQL::Test::Cluster::psql;

# Take over.
sub install
{
	no warnings 'redefine';
	*PostgreSQL::Test::Cluster::psql = \&psql;
	*PostgreSQL::Test::Cluster::poll_query_until = \&poll_query_until;
	return;
}

# The statements of a script, each with the number of the line that it ends in; undefined if
# something in it is for psql.
sub statements ($sql)
{
	my @statements;
	my ($text, $some, $depth) = ('', 0, 0);
	my $end = sub {
		push @statements, [ $text, 1 + (substr($sql, 0, pos($sql)) =~ tr/\n//) ] if $some;
		($text, $some) = ('', 0);
	};

	return undef if $sql =~ /\bSTDIN\b|\bBEGIN\s+ATOMIC\b/i;
	pos($sql) = 0;
	while ($sql =~ /\G(?:
			(\s+ | --[^\n]* | \/\*.*?\*\/)
			| (;)
			| ([()])
			| ( [eE]'(?:[^'\\]|\\.|'')*' | '[^']*' | "[^"]*"
				| (\$(?:[a-z_][a-z_0-9]*)?\$).*?\g5
				| [a-z_\x80-\xff][a-z_0-9\$\x80-\xff]* | :: | :(?=[=\d\]\s(]) | [^\\:] ))/gcsxi)
	{
		if (defined $2 && $depth == 0)
		{
			$end->();
			next;
		}
		$depth += $3 eq '(' ? 1 : -1 if defined $3;
		$text .= $&;
		$some = 1 if !defined $1;
	}
	return undef if pos($sql) < length($sql);
	$end->();
	return \@statements;
}

sub send_message ($socket, $type, $body)
{
	my $message = $type . pack('N', length($body) + 4) . $body;

	while (length($message) > 0)
	{
		my $sent = send($socket, $message, MSG_NOSIGNAL) // return 0;
		substr($message, 0, $sent) = '';
	}
	return 1;
}

sub receive ($socket, $length)
{
	my $bytes = '';

	while (length($bytes) < $length)
	{
		sysread($socket, $bytes, $length - length($bytes), length($bytes)) or return undef;
	}
	return $bytes;
}

# The type and the body of the next message; nothing if the connection is lost.
sub next_message ($socket)
{
	my $head = receive($socket, 5) // return;
	my ($type, $length) = unpack('a N', $head);
	my $body = receive($socket, $length - 4) // return;

	return ($type, $body);
}

# An error or a notice as psql shows it, but for the line of the statement.
sub message_text ($body, $is_error)
{
	my %field = map { substr($_, 0, 1) => substr($_, 1) } grep { $_ ne '' } split(/\0/, $body);
	my $text = "$field{S}:  $field{M}\n";

	$text .= "DETAIL:  $field{D}\n" if defined $field{D};
	$text .= "HINT:  $field{H}\n" if defined $field{H};
	$text .= "QUERY:  $field{q}\n" if defined $field{q};
	$text .= "CONTEXT:  $field{W}\n" if defined $field{W} && $is_error;
	return $text;
}

sub row_text ($body)
{
	my @values;
	my $at = 2;

	foreach (1 .. unpack('n', $body))
	{
		my $length = unpack('N', substr($body, $at, 4));

		$at += 4;
		push @values, $length == 0xffffffff ? '' : substr($body, $at, $length);
		$at += $length if $length != 0xffffffff;
	}
	return @values ? join('|', @values) . "\n" : '';
}

# Read up to the end of a statement, or of the beginning of a session: is the session good,
# and was there an error?  Adds to what the two strings have.
sub until_ready ($socket, $stdout, $stderr, $prefix)
{
	my $failed = 0;

	while (my ($type, $body) = next_message($socket))
	{
		return (1, $failed) if $type eq 'Z';
		$failed = 1 if $type eq 'E';
		$$stderr .= $prefix . message_text($body, $type eq 'E') if $type eq 'E' || $type eq 'N';
		$$stdout .= row_text($body) if $type eq 'D';
		$$stdout .= $body if $type eq 'd';
	}
	return (0, 1);
}

# Connect; undefined, and why, if that is refused.
sub connect_to ($node, $database, $stderr)
{
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $failed = "psql: error: connection to server on socket \"$path\" failed: ";
	my %startup = (user => $ENV{PGUSER} // scalar(getpwuid($>)), database => $database,
		application_name => $ENV{PGAPPNAME} // 'psql');
	my $body = pack('N', 196608) . join('', map { "$_\0$startup{$_}\0" } sort keys %startup) . "\0";
	my $socket = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $path);

	if (!defined $socket)
	{
		$$stderr .= "$failed$!\n";
		return undef;
	}
	send_message($socket, '', $body);
	my ($good) = until_ready($socket, \my $ignored, $stderr, $failed);
	$$stderr .= "${failed}server closed the connection unexpectedly\n" if !$good && $$stderr eq '';
	return $good ? $socket : undef;
}

# The exit status that psql would have.
sub run_statements ($node, $database, $statements, $stop, $stdout, $stderr)
{
	my $socket = connect_to($node, $database, $stderr) // return 2;

	foreach my $statement (@$statements)
	{
		my ($text, $line) = @$statement;
		my ($good, $failed);

		send_message($socket, 'Q', "$text\0");
		($good, $failed) = until_ready($socket, $stdout, $stderr, "psql:<stdin>:$line: ");
		if (!$good)
		{
			$$stderr .= "psql:<stdin>:$line: server closed the connection unexpectedly\n"
			  . "psql:<stdin>:$line: error: connection to server was lost\n";
			return 2;
		}
		return 3 if $failed && $stop;
	}
	# (when the other side is closed the process has gone, with all it had)
	if (send_message($socket, 'X', ''))
	{
		my $ready = '';

		vec($ready, fileno($socket), 1) = 1;
		sysread($socket, my $rest, 1) if select($ready, undef, undef, 5);
	}
	return 0;
}

# ---- message by message ----

# Ask these, each a type and a body, in a session; returns rows and errors.
sub ask ($socket, @messages)
{
	my ($stdout, $stderr) = ('', '');

	send_message($socket, splice(@messages, 0, 2)) while @messages;
	until_ready($socket, \$stdout, \$stderr, '');
	chomp($stdout, $stderr);
	return $stdout . $stderr;
}

sub run ($socket, $sql)
{
	return ask($socket, Q => "$sql\0");
}

# Bind a portal of that name to a query: its plan is made, and the executor is started.
sub bind_portal ($socket, $name, $query)
{
	return ask($socket, P => "\0$query\0" . pack('n', 0), B => "$name\0\0" . pack('nnn', 0, 0, 0), S => '');
}

# Execute it: all that is left of its rows, or so many.
sub execute_portal ($socket, $name, $most = 0)
{
	return ask($socket, E => "$name\0" . pack('N', $most), S => '');
}

# ---- in psql's place ----

# As PostgreSQL::Test::Cluster has it.
sub psql
{
	my ($node, $database, $sql, %options) = @_;
	my @others = grep { !/^(?:stdout|stderr|on_error_stop|on_error_die)$/ } keys %options;
	my $statements = @others || $node->host !~ m,^/, || $ENV{PGOPTIONS} ? undef : statements($sql);

	return $by_psql->(@_) if !defined $statements;

	my ($stdout, $stderr) = ('', '');
	foreach my $statement (@$statements)
	{
		utf8::encode($statement->[0]) if utf8::is_utf8($statement->[0]);
	}
	my $status = run_statements($node, $database, $statements, $options{on_error_stop} // 1, \$stdout, \$stderr);

	chomp($stdout, $stderr);
	die(($status == 2 ? "connection error: '$stderr'\n" : "error running SQL: '$stderr'\n") . "with sql '$sql'")
	  if $status != 0 && $options{on_error_die};
	${ $options{stdout} } = $stdout if ref $options{stdout};
	${ $options{stderr} } = $stderr if ref $options{stderr};
	return wantarray ? ($status, $stdout, $stderr) : $status;
}

# The same; the first look is soon repeated, later ones each tenth of a second.
sub poll_query_until ($node, $database, $query, $expected = 't')
{
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my ($status, $stdout, $stderr);

	for (my $pause = 10_000; time < $end; $pause = $pause < 50_000 ? 2 * $pause : 100_000)
	{
		($status, $stdout, $stderr) = psql($node, $database, $query);
		return 1 if $stdout eq $expected && $stderr eq '';
		usleep($pause);
	}
	Test::More::diag("poll_query_until timed out executing this query:\n$query\n"
		  . "expecting this output:\n$expected\nlast actual query output:\n$stdout\nwith stderr:\n$stderr");
	return 0;
}

1;
