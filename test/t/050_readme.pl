# The examples of README.md, from "Installation" on, one after another as they
# stand there: they fail only where it says so, and print what it says.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use IPC::Run;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# Blocks of SQL, each with its section and the block of output after it, if
# there is one.
sub examples
{
	my ($text) = @_;
	my @examples;
	my $section = '';

	$text =~ s/^.*?(?=^## Installation)//ms or die 'README.md has no section "Installation"';
	while ($text =~ /^#+ ([^\n]*)\n|^( *)```sql\n(.*?)^\2```\n(?:\2```\n(.*?)^\2```\n)?/msg)
	{
		if (defined $1)
		{
			$section = $1;
			next;
		}
		push @examples, { section => $section, sql => $3, output => $4 };
	}
	return @examples;
}

# Lines without what differs from run to run: widths, names of files, numbers.
sub plain_lines
{
	my ($text) = @_;
	my @lines = split /\n/, $text;

	foreach (@lines)
	{
		s/\S+\.pmh/FILE/g;
		s/^[-+]+$/LINE/;
		s/\b[0-9]+\b/N/g;
		s/\s+/ /g;
		s/^ | $//g;
	}
	return grep { $_ ne '' } @lines;
}

my $node = new_server('readme', slurp_file("$FindBin::RealBin/../regress.conf"));
my %output;
my $n = 0;

$node->start;
foreach my $example (examples(slurp_file("$FindBin::RealBin/../../README.md")))
{
	my $name = ++$n . ', ' . $example->{section};
	my ($output, @found, @missing);

	IPC::Run::run([ $node->installed_command('psql'), '-X', '-d', $node->connstr('postgres') ],
		'<', \$example->{sql}, '>&', \$output) or die 'psql failed';
	$output{ $example->{section} } .= $output;

	@found = plain_lines($output);
	foreach my $line (plain_lines($example->{output} // ''))
	{
		push @missing, $line if !grep { $_ eq $line } @found;
	}
	is("@missing", '', "$name: output") || diag($output) if defined $example->{output};
	unlike($output, qr/^(?:ERROR|FATAL|WARNING)/m, "$name: no error")
	  if ($example->{output} // '') !~ /^ERROR/;
}
cmp_ok($n, '>=', 15, 'there are examples');

# what comments say
like($output{'Lists of keys, index-only scans, dead rows'}, qr/Index Only Scan/, 'index-only scan');
my ($before, $after) = $output{'After mass deletes'} =~ /pmhash_size.*?(\d+)\n.*pmhash_size.*?(\d+)\n/s;
cmp_ok($after, '<', $before / 2, 'a shrunk index');

$node->stop;
done_testing();
