# The tables of what happened and what pmhash does (docs/events.md), and of
# messages and their cure (docs/troubleshooting.md), say what is tested: each row
# has a test that is tagged "# event:" or "# trouble:" with the text of its first
# column, and each tag has a row.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../../..";

# First columns of the rows, in order, of all tables with this header in a document.
sub rows_of
{
	my ($document, $header) = @_;
	my $columns = $header =~ tr/|// - 1;
	my $inside = 0;
	my @rows;

	foreach my $line (split(/\n/, slurp_file("$top/docs/$document")))
	{
		if ($line eq $header) { $inside = 1; }
		elsif ($line !~ /^\|/) { $inside = 0; }
		elsif ($line =~ /^\|-/) { next; }
		elsif ($inside)
		{
			my @cells = split(/ \| /, substr($line, 2, -2), -1);

			is(scalar(@cells), $columns, "$document: cells of: $cells[0]")
			  if @cells != $columns;
			push @rows, $cells[0];
		}
	}
	return @rows;
}

# Tags of a kind and the files they stand in.  After a tag there has to be a test.
sub tags_of_tests
{
	my ($kind) = @_;
	my %files;

	foreach my $path (glob "$FindBin::RealBin/../*/*.pl")
	{
		my ($file) = $path =~ m,([^/]*/[^/]*)$,;
		my (undef, @parts) = split(/^\s*# $kind: /m, slurp_file($path));
		my $next = '';

		next if $file eq 'rules/events.pl';
		foreach my $part (reverse @parts)
		{
			my ($tag, $code) = split(/\n/, $part, 2);

			# several tags may stand on top of each other
			$code =~ s/^\s*# (?:event|trouble): .*\n//mg;
			$next = $code if $code =~ /\S/;
			push @{ $files{$tag} }, $file;
			like($next, qr/^\s*\w+\(.*['"]/m, "$file: something is tested: $tag");
		}
	}
	return %files;
}

# Does each row have its test, and each tag its row?
sub compare
{
	my ($kind, $document, $header, $at_least) = @_;
	my @rows = rows_of($document, $header);
	my %files = tags_of_tests($kind);
	my %row = map { $_ => 1 } @rows;

	cmp_ok(scalar(@rows), '>=', $at_least, "$document has its tables");
	is(scalar(keys %row), scalar(@rows), "$document: nothing stands there twice");
	ok($files{$_}, "tested: $_") foreach @rows;
	ok($row{$_}, "in $document: $_ (@{ $files{$_} })") foreach sort keys %files;
}

compare('event', 'events.md', '| what happened | what pmhash does | what you do |', 75);
compare('trouble', 'troubleshooting.md', '| message | meaning and cure |', 19);
done_testing();
