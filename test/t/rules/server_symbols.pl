# pmhash built with the headers of one minor release has to start on each other one of the
# major version: it uses no function or variable that the first one did not have.
# test/lib/server_symbols lists what that had of what pmhash uses.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my ($version) = `pg_config --version` =~ /^PostgreSQL (\d+)/ or die 'no pg_config';
my $library = (`pg_config --pkglibdir` =~ s,\n,,r) . "/pmhash.so";

my (%known, %majors);
foreach my $line (split(/\n/, slurp_file("$FindBin::RealBin/../../lib/server_symbols")))
{
	next if $line =~ /^#/;
	my ($name, @in) = split(/ /, $line);

	@in = (15 .. 18) if !@in;
	$known{$name} = { map { $_ => 1 } @in };
	$majors{$_} = 1 foreach @in;
}
plan skip_all => "the symbols of $version.0 are not known" if !$majors{$version};

# The C library's and libpmem's are versioned; those of libm the server brings along.
my @used = grep { !/@/ && !/^(?:log|sqrt)$/ }
  map { /^ +U (\S+)$/ ? $1 : () } split(/\n/, `nm -D --undefined-only '$library'`);
cmp_ok(scalar(@used), '>', 500, "nm: what $library takes from the server");
is_deeply([ grep { !$known{$_}{$version} } @used ], [], "all of it is in $version.0");
done_testing();
