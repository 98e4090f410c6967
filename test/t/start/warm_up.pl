# Index files are read into memory as a whole when the server starts, if there is room.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('warm', "log_min_messages = debug1\nautovacuum = off\n");
my $pool = pool($node);

$node->start;
install_extension($node);
$node->safe_psql('postgres', q(
	CREATE TABLE small (k int);
	INSERT INTO small SELECT generate_series(1, 100);
	CREATE INDEX small_k ON small USING pmhash (k);
	CREATE TABLE large (k int);
	INSERT INTO large SELECT generate_series(1, 200000);
	CREATE INDEX large_k ON large USING pmhash (k);));
my %file;
@file{ 'small', 'large' } = sort { -s $a <=> -s $b } index_files($pool);

# Parts of a file that are in memory; undef: they cannot be had out of it, or nobody tells.
sub resident
{
	my ($table) = @_;
	my ($pages) = `fincore --bytes --noheadings --output RES $file{$table} 2>/dev/null` =~ /(\d+)/;

	return defined $pages ? $pages / -s $file{$table} : undef;
}

# Start with this setting and no index file in memory; what the worker says.
sub start_cold
{
	my ($setting) = @_;

	$node->stop;
	$node->append_conf('postgresql.conf', "pmhash.warm_up = $setting\n");
	system_or_bail('dd', "of=$_", 'conv=notrunc,fdatasync', 'oflag=nocache', 'count=0', 'status=none')
	  for values %file;
	my $cold = (resident('large') // 1) == 0;
	my $at = -s $node->logfile;
	$node->start;
	return ('', $cold) if $setting eq '0';
	$node->wait_for_log(qr/pmhash: read \d+ files into memory/, $at);
	my ($line) = slurp_file($node->logfile, $at) =~ /pmhash: (read \d+ files into memory, \d+ bytes; left \d+)/;
	return ($line, $cold);
}

my ($all, $cold) = start_cold(-1);
my ($bytes) = $all =~ /, (\d+) bytes; left 0$/;
cmp_ok($bytes // 0, '>', 0.7 * -s $file{large}, 'a file that fits is read as a whole, but for what has not been written');
SKIP:
{
	skip 'what is in memory is not known here', 1 if !$cold;
	cmp_ok(resident('large'), '>', 0.7, 'and is in memory then');
}

my ($few) = start_cold('3MB');
like($few, qr/; left 1$/, 'one that does not fit is not');
SKIP:
{
	skip 'what is in memory is not known here', 1 if !$cold;
	cmp_ok(resident('large'), '<', 0.2, 'nor does it come there by itself');
}

start_cold(0);
is($node->safe_psql('postgres', q(SET enable_seqscan = off; SELECT count(*) FROM large WHERE k = 7)), '1', 'the index is used');
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pmhash warmer')), '0', 'no worker without memory for it');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'all went well');
$node->stop;
done_testing();
