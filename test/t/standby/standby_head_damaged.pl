# Bits are flipped in <pool>/standby, the file in which a standby keeps what it has applied
# to which files, while the standby is down: what it says must not be believed then.  One
# copy of the head that is damaged is no loss, since there is another.

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $distrusted = qr/not trusted: it is not known how far this standby has applied WAL/;
my $built = qr/has been built on this standby/;
my $copy = 2048;    # from one copy of the head to the other
my $rows = 4096;    # the rows begin there

my $primary = new_primary('primary');
my $standby = new_standby($primary, 'standby');
my $kept = pool($standby) . '/standby';
my $round = 0;

# The word at an offset of the file.
sub word_at
{
	my ($at) = @_;

	open(my $file, '<:raw', $kept) or die "$kept: $!";
	sysseek($file, $at, 0);
	sysread($file, my $bytes, 8) == 8 or die;
	close($file);
	return unpack('Q<', $bytes);
}

sub flip_at
{
	my ($at, $bit) = @_;
	my $word = pack('Q<', word_at($at) ^ (1 << $bit));

	open(my $file, '+<:raw', $kept) or die "$kept: $!";
	sysseek($file, $at, 0);
	syswrite($file, $word) == 8 or die;
	close($file);
	return;
}

# The lowest bit from 14 on whose flip makes the word at that offset larger: by less than
# the WAL of a change.
sub raising_bit
{
	my ($at) = @_;
	my $word = word_at($at);

	return (grep { !($word & (1 << $_)) } 14 .. 60)[0];
}

# Stop the standby, flip bits (pairs of offset and bit, or a function that gives them),
# start it: what it answers must be what its tables say.  What it has written to its log.
sub damaged
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, $how, $flips) = @_;
	my $position = log_position($standby);

	change_t($primary, ++$round, 300);
	caught_up($primary, $standby);
	$standby->stop($how);
	flip_at(@$_) foreach $flips->();
	change_t($primary, ++$round, 300);
	$standby->start;
	caught_up($primary, $standby);
	both_valid($standby, $name);
	compare_in_snapshot($standby, "$name: answers");
	no_findings($standby, "$name: pmhash_check");
	return logged_since($standby, $position);
}

both_valid($standby, 'built');

# trust: head
# event: a bit flips in the files in which a standby keeps its state
foreach my $part ([ 'applied, raised', 16, sub { raising_bit(16) } ],
	[ 'applied, lowered', 16, sub { (grep { word_at(16) & (1 << $_) } 16 .. 40)[-1] } ],
	[ 'magic', 0, sub { 40 } ],
	[ 'version', 8, sub { 0 } ],
	[ 'rows', 8, sub { 40 } ],
	[ 'timeline', 24, sub { 0 } ],
	[ 'life', 24, sub { 40 } ],
	[ 'touched', 32, sub { raising_bit(32) } ],
	[ 'crc', 40, sub { 31 } ])
{
	my ($name, $at, $bit) = @$part;
	my $log = damaged("$name, both copies", $round % 4 ? 'fast' : 'immediate',
		sub { my $b = $bit->(); return ([ $at, $b ], [ $at + $copy, $b ]) });

	like($log, $distrusted, "$name, both copies: said");
	like($log, $built, "$name, both copies: all is built anew");
}

foreach my $i (0, 1)
{
	my $log = damaged("copy $i alone", $i ? 'fast' : 'immediate',
		sub { return [ 16 + $i * $copy, raising_bit(16) ] });

	unlike($log, qr/$distrusted|$built/, "copy $i alone: nothing is built");
}

# trust: put-back
# event: an older copy of the files in which a standby keeps its state is put back
my $older = "$kept.older";
damaged('an older one, copied', 'immediate', sub { copy($kept, $older) or die; return () });
my $put_back = damaged('an older one, put back', 'immediate', sub { copy($older, $kept) or die; return () });
like($put_back, $distrusted, 'an older one, put back: said');
like($put_back, $built, 'an older one, put back: all is built anew');

# ---- the rows: that file alone is built anew ----

foreach my $word (0 .. 3)
{
	my $log = damaged("word $word of a row", 'fast', sub {
		my $row = (grep { word_at($rows + 32 * $_) } 0 .. 9)[0];
		return [ $rows + 32 * $row + 8 * $word, $word + 33 ];
	});

	like($log, qr/1 entries of file ".*" are damaged/, "word $word of a row: said");
	is(scalar(() = $log =~ /$built/g), 1, "word $word of a row: one is built anew");
}
$standby->stop;
$primary->stop;
done_testing();
