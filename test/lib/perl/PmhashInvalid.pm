# What the tests of invalid indexes share: tables, ways to make a file unfit,
# and the two assertions of each case: nothing fails or goes wrong while the
# index is invalid, and it comes back by itself.
#
# Tables: t with two indexes of which t_k is the victim; ex with an exclusion
# constraint; o is left alone.

package PmhashInvalid;

use v5.36;

use Exporter 'import';
use File::Copy;
use PmhashTest;

our @EXPORT = qw(
  invalid_fixture
  change_rows
  index_file
  index_state
  patch_file
  first_segment
  file_damage
  rebuild_off
  rebuild_on
  start_without_rebuilds
  stays_invalid
  comes_back
  all_come_back
  all_rebuilt
  invalid_then_back
  all_checked
  patch_control
  pretend_reboot
);

sub invalid_fixture
{
	return <<SQL;
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i % 3000, i FROM generate_series(1, 6000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE INDEX t_v ON t USING pmhash (v);
CREATE TABLE o (k int4);
INSERT INTO o SELECT generate_series(1, 5000);
CREATE INDEX o_k ON o USING pmhash (k);
CREATE TABLE ex (k int4, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO ex SELECT generate_series(1, 1000);
SQL
}

# Change rows of t, so that the files of before and after differ, and the last checkpoint
# does not know of some.
sub change_rows ($node, $database = 'postgres')
{
	$node->safe_psql($database, <<SQL);
DELETE FROM t WHERE k % 7 = 0;
VACUUM t;
INSERT INTO t SELECT i % 3000, i FROM generate_series(10000, 11000) i;
SQL
	return;
}

sub index_file ($node, $index, $database = 'postgres')
{
	return $node->safe_psql($database,
		"SELECT file FROM pmhash.indexes WHERE index = '$index'");
}

sub index_state ($node, $index, $database = 'postgres')
{
	return $node->safe_psql($database,
		"SELECT state FROM pmhash.indexes WHERE index = '$index'");
}

# Overwrite bytes of a file.
sub patch_file ($file, $offset, $bytes)
{
	open(my $fh, '+<:raw', $file) or die "$file: $!";
	seek($fh, $offset, 0);
	print $fh $bytes;
	close($fh);
	return;
}

# Where in an index file its first segment begins.
sub first_segment ($file)
{
	my $bytes = slurp_file($file, 0);
	my $directory = (unpack('Q<', substr($bytes, 256, 8)) & ((1 << 42) - 1)) * 64;

	my $element = unpack('Q<', substr($bytes, $directory, 8));

	# 16 KiB and more, or some units of 2 KiB
	return ($element & ((1 << 24) - 1)) * 16384 if $element >> 54 & 1;
	return (($element >> 24 & ((1 << 27) - 1)) - 8) * 2048;
}

# Ways to make a file unfit, for a server that is down: name, what the view
# says, and a sub that is given the file and another index's.
sub file_damage
{
	my $damaged = 'it is damaged';

	return (
		[ 'damaged header', $damaged, sub { patch_file($_[0], 16, "\xff" x 16) } ],
		[ 'no magic number', $damaged, sub { patch_file($_[0], 0, "\0" x 8) } ],
		[ 'unknown format version', 'it was made by another version of pmhash', sub { patch_file($_[0], 8, "\x63") } ],
		[ 'damaged identity', $damaged, sub { patch_file($_[0], 100, "\x63") } ],
		[ 'damaged live words', $damaged, sub { patch_file($_[0], 256, "\xff" x 8) } ],
		[ 'truncated file', $damaged, sub { truncate($_[0], 20000) } ],
		[ 'empty file', $damaged, sub { truncate($_[0], 0) } ],
		[ 'missing file', 'it does not exist', sub { unlink($_[0]) } ],
		[ 'file of another index', 'it belongs to another index', sub { copy($_[1], $_[0]) } ],
		[ 'unreadable file', 'it cannot be read', sub { chmod(0, $_[0]) } ]);
}

sub rebuild_off ($node)
{
	$node->append_conf('postgresql.conf', 'pmhash.rebuild = off');
	$node->reload if $node->{_pid};
	return;
}

sub rebuild_on ($node)
{
	$node->append_conf('postgresql.conf', 'pmhash.rebuild = on');
	$node->reload if $node->{_pid};
	return;
}

sub start_without_rebuilds ($node)
{
	rebuild_off($node);
	$node->start;
	return;
}

# t_k is invalid for a reason, and rebuilds are switched off: queries answer
# without it, rows can be written, VACUUM runs.
sub stays_invalid ($node, $reason, $name, $database = 'postgres')
{
	is($node->safe_psql($database, <<SQL), 't', "$name: query");
SET enable_seqscan = off;
SELECT count(*) FROM t WHERE k = 1 \\gset by_
SET enable_seqscan = on;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SELECT count(*) = :by_count FROM t WHERE k = 1;
SQL
	like($node->safe_psql($database, <<SQL), qr/^invalid: \Q$reason\E$/, "$name: state");
INSERT INTO t SELECT i, -i FROM generate_series(1, 50) i;
UPDATE t SET k = k + 1 WHERE v BETWEEN 100 AND 150;
DELETE FROM t WHERE v BETWEEN 200 AND 250;
VACUUM t;
INSERT INTO t SELECT i, i FROM generate_series(200, 250) i;
SELECT state FROM pmhash.indexes WHERE index = 't_k';
SQL
	fails_like($node, 'SELECT * FROM pmhash.stats(\'t_k\')', qr/"t_k".*\Q$reason\E.*REINDEX/s,
		"$name, direct use", $database);
	return;
}

# Wait until no index of a database is invalid.
sub wait_until_valid ($node, $database)
{
	return $node->poll_query_until($database,
		"SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid'");
}

# A test: these indexes, as table_column, are used and have what the table has, and
# pmhash.check finds nothing; this SQL says what else there should be.
sub right_and_sound ($node, $name, $database, $checks, @indexes)
{
	my $sql = join('', map { my ($table, $key) = split /_/;
			"SELECT '$_', by_index, by_bitmap FROM every_key('$table', '$key', '$_');\n" } @indexes);
	my ($status, $stdout, $stderr) = $node->psql($database, $sql . $checks);

	return is("$status $stdout$stderr", '0 ' . join("\n", map { "$_|same|same" } @indexes) . "\nt",
		"$name: @indexes right and sound");
}

# t_k comes back by itself, is used, and has what the table has.
sub comes_back ($node, $name, $database = 'postgres')
{
	ok(wait_until_valid($node, $database), "$name: rebuilt")
	  || diag($node->safe_psql($database, 'SELECT * FROM pmhash.indexes'));
	return right_and_sound($node, $name, $database, "SELECT pmhash.check('t_k') IS NOT NULL;", 't_k');
}

my $all_checked = 'SELECT count(*) > 0 FROM pmhash.files() i, LATERAL (SELECT pmhash.check(i.index)) c;';

# A test: pmhash.check finds nothing in any index of a database.
sub all_checked ($node, $name, $database = 'postgres')
{
	my ($status, $stdout, $stderr) = $node->psql($database, $all_checked);

	return is("$status $stdout$stderr", '0 t', "$name: pmhash.check of all indexes");
}

# All indexes do, and the constraint holds.
sub all_come_back ($node, $name, $database = 'postgres')
{
	ok(wait_until_valid($node, $database), "$name: rebuilt")
	  || diag($node->safe_psql($database, 'SELECT * FROM pmhash.indexes'));
	right_and_sound($node, $name, $database, $all_checked, qw(t_k t_v o_k ex_k));
	fails_like($node, 'INSERT INTO ex VALUES (50)',
		qr/violates exclusion constraint "ex_k"/, "$name, constraint", $database);
	return;
}

# They do when rebuilds are on again.
sub all_rebuilt ($node, $name, $database = 'postgres')
{
	rebuild_on($node);
	return all_come_back($node, $name, $database);
}

# t_k is invalid for a reason as long as rebuilds are off, and all come back when they are on.
sub invalid_then_back ($node, $reason, $name)
{
	stays_invalid($node, $reason, $name);
	return all_rebuilt($node, $name);
}

# CRC-32C, bit by bit.
sub crc32c ($bytes)
{
	my $crc = 0xffffffff;

	foreach my $byte (unpack('C*', $bytes))
	{
		$crc ^= $byte;
		$crc = ($crc >> 1) ^ ($crc & 1 ? 0x82f63b78 : 0) for 1 .. 8;
	}
	return $crc ^ 0xffffffff;
}

# Change bytes of a pool's control file, for a server that is down.
sub patch_control ($pool, $offset, $bytes)
{
	my $file = "$pool/control";
	my $control = slurp_file($file);

	substr($control, $offset, length($bytes)) = $bytes;
	substr($control, 12, 4) = pack('V', 0);
	substr($control, 12, 4) = pack('V', crc32c($control));
	return patch_file($file, 0, $control);
}

# Let a pool look as after another boot of the machine, for a server that is down: its lock
# file's inode has no marker.
sub pretend_reboot ($pool)
{
	return PmhashTest::lock_hint($pool, 1036);
}

1;
