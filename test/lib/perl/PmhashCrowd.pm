# Keys that overflow: int8 keys whose hashes agree in all bits that choose segment and
# buckets, made for one index file.  Whoever can read the file can do that: its seed
# is in there, and the hash of a word can be undone (src/am/keyhash.c).

package PmhashCrowd;

use strict;
use warnings;
no warnings qw(portable);    # of 64-bit numbers

use Exporter 'import';
use PmhashTest;

our @EXPORT = qw(
  crowd_keys
  overflows
);

# Where things are in a file: src/engine/layout.h, src/cluster/identity.h.
my $seed_offset = 64 + 24;
my $overflows_offset = 1024 + 448;

# XXH3 on 8 bytes (xxHash's specification): the multiplier's inverse, and what the
# default secret contributes.
my $inverse = 0x02AB9C720D1024AD;
my $secret = 0xC73AB174C5ECD5A2;

sub read_word
{
	my ($file, $offset) = @_;

	open(my $handle, '<:raw', $file) or die "$file: $!";
	sysseek($handle, $offset, 0) or die "$file: $!";
	sysread($handle, my $bytes, 8) == 8 or die "$file is too short";
	close($handle);
	return unpack('Q<', $bytes);
}

# How many entries have gone to the overflow table of a file since the last recovery.
sub overflows
{
	my ($file) = @_;
	return read_word($file, $overflows_offset);
}

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

# The word that a hash comes of, but for what the seed does to it.
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

# So many keys of a crowd in a file: hashes with the same 40 bits.  Another 'where' is
# another crowd.
sub crowd_keys
{
	my ($file, $where, $n) = @_;
	my $seed = read_word($file, $seed_offset);
	my $low = unpack('N', pack('V', $seed & 0xffffffff));
	my $flip = difference($secret, $seed ^ ($low << 32));
	my @keys;

	foreach my $i (0 .. $n - 1)
	{
		my $hash = (0xdeadbe0000 + $where << 24) | ($i * 11 & 0xffffff);

		push @keys, unpack('q', pack('Q', rotate(unmix($hash) ^ $flip, 32)));
	}
	return @keys;
}

1;
