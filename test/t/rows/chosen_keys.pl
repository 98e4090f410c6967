# Keys chosen by one that knows the seed of an index file's XXH3, so that they agree in
# all bits that choose segment and buckets: the permutation after that parts them.  They
# take no more space than others, and answers are right.

use strict;
use warnings;
no warnings qw(portable);    # of 64-bit numbers

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use Test::More;

# XXH3 on 8 bytes (xxHash's specification): the multiplier's inverse, and what the
# default secret contributes.
my $inverse = 0x02AB9C720D1024AD;
my $secret = 0xC73AB174C5ECD5A2;

# The low 64 bits, as a number that is not negative
sub unsigned { return unpack('Q', pack('q', $_[0])); }

sub product
{
	my ($x, $y) = @_;
	use integer;    # without it a product beyond 64 bits is a floating point number
	my $product = $x * $y;
	no integer;
	return unsigned($product);
}

sub difference
{
	my ($x, $y) = @_;
	use integer;
	my $difference = $x - $y;
	no integer;
	return unsigned($difference);
}

sub rotate { return ($_[0] << $_[1]) | ($_[0] >> (64 - $_[1])); }

# The word that a hash comes of, but for what the seed does to it (src/am/keyhash.c).
sub unmix
{
	my ($h) = @_;

	$h ^= ($h >> 28) ^ ($h >> 56);
	$h = product($h, $inverse);
	$h ^= ($h >> 35) + 8;
	$h = product($h, $inverse);
	$h ^= rotate($h, 49) ^ rotate($h, 24);
	$h ^= rotate($h, 34) ^ rotate($h, 48);
	$h ^= rotate($h, 4) ^ rotate($h, 32);
	return rotate($h, 56);
}

# So many keys for a file: what XXH3 makes of them agrees in its first 40 bits.
sub chosen_keys
{
	my ($file, $n) = @_;
	my $seed = do
	{
		open(my $handle, '<:raw', $file) or die "$file: $!";
		sysseek($handle, 48 + 24, 0);    # src/engine/layout.h, src/cluster/identity.h
		sysread($handle, my $bytes, 8) == 8 or die "$file is too short";
		unpack('Q<', $bytes);
	};
	my $low = unpack('N', pack('V', $seed & 0xffffffff));
	my $flip = difference($secret, $seed ^ ($low << 32));

	return map { unpack('q', pack('Q', rotate(unmix(0xdeadbe0001 << 24 | $_ * 11 & 0xffffff) ^ $flip, 32))) } 0 .. $n - 1;
}

my $n = 12000;
my $node = new_primary('chosen_keys');
$node->safe_psql('postgres', <<SQL);
CREATE TABLE plain (k int8);
CREATE INDEX plain_k ON plain USING pmhash (k);
INSERT INTO plain SELECT generate_series(1, $n);
CREATE TABLE c (k int8, v int4) WITH (autovacuum_enabled = off);
CREATE INDEX c_k ON c USING pmhash (k) WITH (wal = on);
SQL
my @keys = chosen_keys(index_file($node, 'c_k'), $n);
$node->safe_psql('postgres', "INSERT INTO c SELECT k, i FROM unnest('{" . join(',', @keys) . "}'::int8[]) WITH ORDINALITY u (k, i)");
is($node->safe_psql('postgres', q(SELECT pmhash_size('c_k') <= 1.25 * pmhash_size('plain_k'))), 't', 'a file as small as for other keys');

sub right
{
	my ($server, $name) = @_;

	is($server->safe_psql('postgres', q(SELECT pmhash_check('c_k'))), '', "$name: pmhash_check");
	is($server->safe_psql('postgres', q(SELECT entries FROM pmhash_stats('c_k'))), $server->safe_psql('postgres', 'SELECT count(*) FROM c'), "$name: entries");
	same_answers($server, 'c', 'k', 'c_k', $name);
	return;
}

right($node, 'inserted');

# Both have the same hashes, so that what is logged finds the standby's entries.
my $standby = new_standby($node, 'chosen_keys_standby');
caught_up($node, $standby);
wait_for_state($standby, 'c_k', qr/^valid$/, 'the standby has its file');
$node->safe_psql('postgres', 'DELETE FROM c WHERE v % 3 = 0; VACUUM (INDEX_CLEANUP ON) c; INSERT INTO c SELECT k, -1 FROM c WHERE v % 3 = 1');
right($node, 'removed by VACUUM');
caught_up($node, $standby);
right($standby, 'standby');
$standby->stop;
$node->safe_psql('postgres', 'REINDEX INDEX c_k');
right($node, 'REINDEX');
$node->stop;
done_testing();
