# A table that rows are only added to: what its index had free among the value buffers is
# found again after a restart, by the VACUUM that such tables get as well, though that has
# no dead rows to remove.  ANALYZE does not look for it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $keys = 2000;
my $node = new_server('insert_only', 'log_min_messages = debug1');

# Rows of so many keys, from this one on.
sub insert
{
	my ($first, $n, $rows) = @_;

	$node->safe_psql('postgres', "INSERT INTO v SELECT $first + i % $n FROM generate_series(1, $n * $rows) i");
	return;
}

sub value_bytes { return $node->safe_psql('postgres', q(SELECT value_bytes FROM pmhash_stats('v_k'))); }

# How often something free has been looked for since the log was that long.
sub looks
{
	my ($position) = @_;
	my @looks = slurp_file($node->logfile, $position) =~ /DEBUG: .*looking for free space in index "v_k"/g;

	return scalar(@looks);
}

$node->start;
install_extension($node);
$node->safe_psql('postgres', 'CREATE TABLE v (k int); CREATE INDEX v_k ON v USING pmhash (k)');
insert(0, $keys, 20);
my $position = -s $node->logfile;
$node->safe_psql('postgres', 'VACUUM v');
is(looks($position), 0, 'what is free is known');

foreach my $how ('fast', 'immediate')
{
	# lists that grow leave what they were in
	insert(0, $keys, $how eq 'fast' ? 20 : 40);
	$node->stop($how);
	$node->start;
	$position = -s $node->logfile;
	$node->safe_psql('postgres', 'ANALYZE v');
	is(looks($position), 0, "$how: ANALYZE does not look");
	my $before = value_bytes();
	$node->safe_psql('postgres', 'VACUUM v');
	is(looks($position), 1, "$how: VACUUM looks");
	insert($how eq 'fast' ? 10_000 : 20_000, $keys / 4, 20);
	cmp_ok(value_bytes(), '<=', $before, "$how: new lists are where old ones were");
	$node->safe_psql('postgres', 'VACUUM v');
	is(looks($position), 1, "$how: once");
	is($node->safe_psql('postgres', q(SELECT pmhash_check('v_k'))), '', "$how: the index is sound");
}
$node->stop;
done_testing();
