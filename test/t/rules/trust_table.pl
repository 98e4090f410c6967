# test/TRUST.md has a table of all facts that a start relies on, each with the test
# that shows what happens if it is not so.  Each of those is there, tagged
# "# trust:" with its name, and each tag is in the table; after a tag something
# is tested.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $top = "$FindBin::RealBin/../../..";
my %table;
my %tagged;

foreach my $line (split(/\n/, slurp_file("$top/test/TRUST.md")))
{
	$table{$1}++ if $line =~ m{\s+([a-z]+/\w+:[\w-]+|crash/\w+)$};
}
foreach my $path (glob "$FindBin::RealBin/../*/*.pl")
{
	my ($file) = $path =~ m,([^/]*/[^/]*)\.pl$,;
	my (undef, @parts) = split(/^\s*# trust: /m, slurp_file($path));

	next if $file eq 'rules/trust_table';
	foreach my $part (@parts)
	{
		my ($tag, $code) = split(/\n/, $part, 2);

		$tagged{"$file:$tag"}++;
		like($code, qr/^[^#]*\b(is|isnt|like|unlike|ok|\w+_ok|cmp_ok|disabled|repaired|not_trusted|stays_invalid|invalid_then_rebuilt|comes_back|all_come_back|back_again|right|doubted|nothing_comes_back|fails_at_shutdown|builds_anew)\(/m,
			"$file: something is tested: $tag");
	}
}
foreach my $program (grep { m,^crash/, } keys %table)
{
	ok(-e "$top/test/$program.c", "there is $program.c");
	$tagged{$program} = 1;
}

cmp_ok(scalar(keys %table), '>=', 25, 'test/TRUST.md has its table');
is($table{$_}, 1, "once in test/TRUST.md: $_") foreach sort keys %tagged;
is($tagged{$_} // 0, 1, "tested once: $_") foreach sort keys %table;
done_testing();
