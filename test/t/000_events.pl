# README.md's tables of what happened and what pmhash does say what is tested:
# each row has a test that is tagged "# event:" with the text of its first
# column, and each tag has a row.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../..";

# First columns of the rows, in order, of all tables with this header.
sub rows_of_readme
{
	my ($header) = @_;
	my $inside = 0;
	my @rows;

	foreach my $line (split(/\n/, slurp_file("$top/README.md")))
	{
		if ($line eq $header) { $inside = 1; }
		elsif ($line !~ /^\|/) { $inside = 0; }
		elsif ($inside && $line =~ /^\| (.*?) \| .* \| .* \|$/) { push @rows, $1; }
	}
	return @rows;
}

# Tags and the files they stand in.  After a tag there has to be a test.
sub tags_of_tests
{
	my %files;

	foreach my $path (glob "$FindBin::RealBin/*.pl")
	{
		my ($file) = $path =~ m,([^/]*)$,;
		my (undef, @parts) = split(/^\s*# event: /m, slurp_file($path));
		my $next = '';

		next if $file eq '000_events.pl';
		foreach my $part (reverse @parts)
		{
			my ($tag, $code) = split(/\n/, $part, 2);

			# several tags may stand on top of each other
			$next = $code if $code ne '';
			push @{ $files{$tag} }, $file;
			like($next, qr/^\s*\w+\(.*['"]/m, "$file: something is tested: $tag");
		}
	}
	return %files;
}

my @rows = rows_of_readme('| what happened | what pmhash does | what you do |');
my %files = tags_of_tests();
my %row = map { $_ => 1 } @rows;

cmp_ok(scalar(@rows), '>', 40, 'README.md has its tables');
is(scalar(keys %row), scalar(@rows), 'no event stands there twice');
ok($files{$_}, "tested: $_") foreach @rows;
ok($row{$_}, "in README.md: $_ (@{ $files{$_} })") foreach sort keys %files;
done_testing();
