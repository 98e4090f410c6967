# docs/troubleshooting.md says of every state of pmhash.indexes, and of every reason why a
# file is not used, what it means and what to do: it has those of the sources, and no others.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../../..";
my $document = slurp_file("$top/docs/troubleshooting.md");

# The strings of a source file that are shown: neither those of #include, comments, comparisons
# and messages, nor what is never a state.
sub strings_of
{
	my ($file) = @_;
	my $text = slurp_file("$top/src/cluster/$file");
	my %other = map { $_ => 1 } ('', 'cache', 'dax', 'SQLSTATE ...');
	my %strings;

	$text =~ s,/\*.*?\*/,,sg;
	$text =~ s/^#.*$//mg;
	$text =~ s/(?:strn?cmp|strlen|elog)\(.*?[;&|]//sg;
	foreach my $string ($text =~ /"((?:[^"\\]|\\.)*)"/g)
	{
		$string =~ s/(?:%s)+/.../g;
		$string =~ s/%[du]/n/g;
		$string =~ s/%%/%/g;
		$strings{$string} = 1 if !$other{$string};
	}
	return %strings;
}

# The first cells of the table with this header.
sub rows_of
{
	my ($header) = @_;
	my ($table) = $document =~ /^\Q$header\E\n\|[-|]+\n((?:\|.*\n)+)/m or die "no table: $header";
	my %rows;

	foreach my $line (split /\n/, $table)
	{
		my ($first, @others) = split / \| /, substr($line, 2, -2), -1;

		is(scalar(grep { /\S/ } @others), 2, "meaning and action: $first");
		foreach my $name ($first =~ /`([^`]+)`/g)
		{
			ok(!$rows{$name}++, "once: $name");
		}
	}
	return %rows;
}

sub same
{
	my ($rows, $strings, $what) = @_;

	cmp_ok(scalar(keys %$strings), '>=', 15, "$what are found in the sources");
	ok($rows->{$_}, "$what: in the document: $_") foreach sort keys %$strings;
	ok($strings->{$_}, "$what: in the sources: $_") foreach sort keys %$rows;
}

my %states = (strings_of('views/files_view.c'));
same({ rows_of('| state | meaning | action |') }, \%states, 'states');
my ($reasons) = slurp_file("$top/src/cluster/open/invalid.c") =~ /^pmhash_reason_text\(.*?^\{(.*?)^\}/ms or die;
same({ rows_of('| reason | meaning | action |') }, { map { $_ => 1 } $reasons =~ /"([^"]+)"/g }, 'reasons');

done_testing();
