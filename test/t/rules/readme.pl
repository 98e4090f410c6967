# The examples of README.md, from "Installation" on, and of docs/, one after another
# as they stand there: they fail only where it says so, and print what it says.
# Commands for a shell are executed in docs/ only: README's are those of
# test/first_steps.sh.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use IPC::Run;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# Blocks of SQL and of commands, each with its section and the block of output
# after it, if there is one.
sub examples
{
	my ($text, $languages) = @_;
	my @examples;
	my $section = '';

	while ($text =~ /^#+ ([^\n]*)\n|^( *)```($languages)\n(.*?)^\2```\n(?:\2```\n(.*?)^\2```\n)?/msg)
	{
		if (defined $1)
		{
			$section = $1;
			next;
		}
		push @examples, { section => $section, language => $3, text => $4, output => $5 };
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

my $top = "$FindBin::RealBin/../../..";
my $node = new_server('readme', slurp_file("$FindBin::RealBin/../../regress.conf"));
my %output;
my $n = 0;

# Run one example; returns what it prints.
sub run_example
{
	my ($example) = @_;
	my $output;

	if ($example->{language} eq 'sql')
	{
		IPC::Run::run([ $node->installed_command('psql'), '-X', '-d', $node->connstr('postgres') ],
			'<', \$example->{text}, '>&', \$output) or die 'psql failed';
	}
	else
	{
		local $ENV{PGDATA} = $node->data_dir;
		local $ENV{POOL} = $node->data_dir . '.pmhash';
		local $ENV{NEW_POOL} = $node->basedir . '/new_pool';

		# the second example begins with what the first has done
		$ENV{POOL} = $ENV{NEW_POOL} if -d $ENV{NEW_POOL};
		ok(IPC::Run::run([ 'sh', '-e', '-c', $example->{text} ], '<', \undef, '>&', \$output),
			"$example->{section}: commands") or diag($output);
		$node->_update_pid(1);
		$node->poll_query_until('postgres',
			"SELECT count(*) > 0 AND bool_and(state = 'valid') FROM pmhash.indexes")
		  or die 'indexes do not become valid';
	}
	return $output;
}

sub execute
{
	my ($document, $text, $languages) = @_;

	foreach my $example (examples($text, $languages))
	{
		my $name = ++$n . ", $document, $example->{section}";
		my $output = run_example($example);
		my (@found, @missing);

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
}

$node->start;
my $readme = slurp_file("$top/README.md");
$readme =~ s/^.*?(?=^## Installation)//ms or die 'README.md has no section "Installation"';
execute('README.md', $readme, 'sql');
# operations.md ends with the removal of the extension
my @documents = qw(usage types monitoring events standbys shards tools applications troubleshooting operations);
is_deeply([ sort map { m,([^/]*)\.md$, } glob "$top/docs/*.md" ], [ sort @documents ],
	'all documents are executed');
execute("$_.md", slurp_file("$top/docs/$_.md"), 'sql|sh') foreach @documents;
cmp_ok($n, '>=', 20, 'there are examples');

# what comments say
like($output{'Lists of keys, index-only scans, dead rows'}, qr/Index Only Scan/, 'index-only scan');
my ($before, $after) = $output{'After mass deletes'} =~ /\bsize\b.*?(\d+)\n.*\bsize\b.*?(\d+)\n/s;
cmp_ok($after, '<', $before / 2, 'a shrunk index');
like($output{'Alerts'}, qr/^\(0 rows\)\n.*^\(0 rows\)/ms, 'no alert');
like(slurp_file($node->logfile) . slurp_file($node->basedir . '/log'),
	qr/are not trusted/, 'a new pool directory: rebuilt');

# links between the documents
foreach my $document ('README.md', map { "docs/$_.md" } @documents)
{
	my ($folder) = "$top/$document" =~ m,^(.*/),;
	my $text = slurp_file("$top/$document");

	while ($text =~ /\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)
	{
		my ($file, $anchor) = ($1, $2);
		my $target = $file eq '' ? "$top/$document" : "$folder$file";

		ok(-e $target, "$document: $file is there") || next;
		next if !defined $anchor;
		my @anchors = map { my $line = lc; $line =~ s/[^a-z0-9 _-]//g; $line =~ tr/ /-/; $line }
		  slurp_file($target) =~ /^#+ (.*)$/mg;
		ok((grep { $_ eq $anchor } @anchors), "$document: $file#$anchor is there");
	}
}

$node->stop;
done_testing();
