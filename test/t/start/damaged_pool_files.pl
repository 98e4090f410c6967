# Control file, journal, nonce and stubs damaged after a crash that has taken
# rows back: the server starts each time, answers right from the first query,
# and in the end every index is as it should be.
# (Index files: test/fuzz and 021.  The directory: 005.)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# only this test flushes WAL, so that a crash takes rows back
my $node = new_server('damaged', <<CONF);
synchronous_commit = off
wal_writer_delay = 10s
wal_writer_flush_after = 100MB
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
pmhash.journal_size = 64kB
CONF
my $pool = pool($node);
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i % 1000, i FROM generate_series(1, 2000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_v ON t USING pmhash (v);
SQL
my $stub = $node->data_dir . '/'
  . $node->safe_psql('postgres', "SELECT pg_relation_filepath('t_k')");

srand(4);

sub random_bytes
{
	my ($n) = @_;
	return pack('C*', map { int(rand(256)) } 1 .. $n);
}

# The journal of the run that has crashed.
sub journal
{
	my @journals = glob "$pool/journal*";
	is(scalar(@journals), 1, 'there is one journal');
	return $journals[0];
}

sub flip
{
	my ($file, $at) = @_;
	my $byte = ord(substr(slurp_file($file), $at, 1));

	patch_file($file, $at, chr($byte ^ 1 << int(rand(8))));
	return;
}

# A bit at this offset of each record of the journal that was ever written.
sub flip_records
{
	my ($file, $offset) = @_;
	my $bytes = slurp_file($file);

	for (my $at = 64; $at < length($bytes); $at += 64)
	{
		substr($bytes, $at + $offset, 1) = chr(ord(substr($bytes, $at + $offset, 1)) ^ 4)
		  if substr($bytes, $at + 60, 4) ne "\0\0\0\0";
	}
	patch_file($file, 0, $bytes);
	return;
}

# File, what is done to it, how.

my @damages = (
	[ 'control', 'empty', sub { truncate($_[0], 0) } ],
	[ 'control', 'half', sub { truncate($_[0], (-s $_[0]) / 2) } ],
	[ 'control', 'longer', sub { append_to_file($_[0], random_bytes(300)) } ],
	[ 'control', 'zeroes', sub { patch_file($_[0], 0, "\0" x -s $_[0]) } ],
	[ 'control', 'random', sub { patch_file($_[0], 0, random_bytes(-s $_[0])) } ],
	[ 'control', 'bit flipped in the eras', sub { flip($_[0], 144) } ],
	[ 'control', 'bit flipped in the journal\'s instance', sub { flip($_[0], 160) } ],
	[ 'control', 'a directory', sub { unlink($_[0]); mkdir($_[0]) } ],
	[ 'journal', 'missing', sub { unlink($_[0]) } ],
	[ 'journal', 'empty', sub { truncate($_[0], 0) } ],
	[ 'journal', 'only its header', sub { truncate($_[0], 64) } ],
	[ 'journal', 'cut in a record', sub { truncate($_[0], (-s $_[0]) - 100) } ],
	[ 'journal', 'longer', sub { append_to_file($_[0], random_bytes(1000)) } ],
	[ 'journal', 'random header', sub { patch_file($_[0], 0, random_bytes(64)) } ],
	[ 'journal', 'wrong magic number', sub { patch_file($_[0], 0, "\1") } ],
	[ 'journal', 'another instance', sub { patch_file($_[0], 8, random_bytes(8)) } ],
	[ 'journal', 'no records', sub { patch_file($_[0], 16, "\0" x 8) } ],
	[ 'journal', 'too many records', sub { patch_file($_[0], 16, "\xff" x 8) } ],
	[ 'journal', 'bit flipped in a record\'s TID', sub { flip_records($_[0], 16) } ],
	[ 'journal', 'bit flipped in a record\'s instance', sub { flip_records($_[0], 40) } ],
	[ 'nonce', 'empty', sub { truncate($_[0], 0) } ],
	[ 'nonce', 'random', sub { patch_file($_[0], 0, random_bytes(16)) } ],
	[ 'stub', 'zeroes', sub { patch_file($_[0], 0, "\0" x 8192) } ],
	[ 'stub', 'random contents', sub { patch_file($_[0], 24, random_bytes(64)) } ],
	[ 'stub', 'another file\'s id', sub { patch_file($_[0], 32, random_bytes(8)) } ],
	[ 'stub', 'another version', sub { patch_file($_[0], 28, "\x63") } ]);

# Rows in the table and entries in the indexes, then the former are lost.
sub lose_rows
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$node->safe_psql('postgres', 'CHECKPOINT');
	hold_wal_writer($node);
	$session->query_safe('BEGIN');
	$session->query_safe('INSERT INTO t SELECT -i, -i FROM generate_series(1, 400) i');
	crash($node);
	eval { $session->quit };
	return;
}

# trust: control
foreach my $damage (@damages)
{
	my ($what, $how, $do) = @$damage;
	my $name = "$what, $how";

	lose_rows();
	my %file = (
		control => "$pool/control",
		nonce => $node->data_dir . '/pmhash.nonce',
		stub => $stub);
	$do->($what eq 'journal' ? journal() : $file{$what});
	ok($node->start(fail_ok => 1), "$name: the server starts") or BAIL_OUT('no server');

	# no entry of a lost row leads anywhere, whether the index is used or not
	# trust: journal
	is( $node->safe_psql('postgres', <<SQL), '0', "$name: lost keys");
SET enable_seqscan = off;
INSERT INTO t SELECT 5000 + i, 5000 + i FROM generate_series(1, 450) i;
SELECT count(*) FROM generate_series(-450, -1) g, LATERAL (SELECT FROM t WHERE k = g OFFSET 0) x;
SQL
	if (-d "$pool/control")
	{
		# not ours to touch: pmhash is disabled until it has been put right
		$node->stop;
		rmdir("$pool/control") or die;
		$node->start;
	}
	# trust: record
	comes_back($node, $name);
	same_answers($node, 't', 'v', 't_v', $name);
	$node->safe_psql('postgres', 'DELETE FROM t WHERE k > 4999');
}

# ---- a damaged record is not met again by the lives that come after ----

# All have one file, and most do not write as far as to its last record.
sub spoil_last_record
{
	my ($file) = @_;

	patch_file($file, (-s $file) - 64, random_bytes(64));
	return;
}

sub restarted
{
	my ($name, $distrusted) = @_;
	my $from = -s $node->logfile;

	$node->start;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1, 1)');
	my $log = slurp_file($node->logfile, $from);
	my $said = qr/are not trusted: the undo journal is missing or damaged/;
	if ($distrusted)
	{
		like($log, $said, "$name: not trusted");
	}
	else
	{
		unlike($log, $said, "$name: trusted");
	}
	comes_back($node, $name);
	return;
}

foreach my $way ('met by a crash', 'after an orderly end')
{
	if ($way eq 'met by a crash')
	{
		crash($node);
		spoil_last_record(journal());
		restarted($way, 1);
	}
	else
	{
		$node->stop;
		spoil_last_record(journal());
		restarted($way, 0);
	}
	foreach my $again (1, 2)
	{
		crash($node);
		restarted("$way, crash $again", 0);
	}
}
$node->stop;
done_testing();
