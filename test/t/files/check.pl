# pmhash.check: finds each kind of damage, and cries wolf over nothing while
# others are at work.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;

# How long the load runs, in seconds.
my $load_time = load_time(5);

my $node = new_server('check', <<CONF);
autovacuum = on
autovacuum_naptime = 1
autovacuum_vacuum_scale_factor = 0.01
autovacuum_vacuum_cost_delay = 0
pmhash.rebuild = off
CONF
start_with_extension($node);

# ---- index files, as src/engine/layout.h describes them ----

use constant {
	SLOTS => 18,
	VALUE_MASK => (1 << 47) - 1,
	POINTER => 1 << 47
};

# where the parts of a slot are in its bucket (bucket.h)
my @top = (22, 23, 24, 64, 65, 66, 67, 25, 128, 129, 130, 131, 26, 192, 193, 194, 195, 27);
my @fingerprint = (4 .. 21);
my @mid = (28, 32, 36, map { my $line = 64 * $_; map { $line + 4 + 4 * $_ } 0 .. 4 } 1 .. 3);
my @word = (40, 48, 56, map { my $line = 64 * $_; map { $line + 24 + 8 * $_ } 0 .. 4 } 1 .. 3);

sub get
{
	my ($file, $format, $offset) = @_;
	return unpack("\@$offset $format", $$file);
}

sub put
{
	my ($file, $format, $offset, $value) = @_;
	my $bytes = pack($format, $value);

	substr($$file, $offset, length $bytes) = $bytes;
	return;
}

# The directory: where it is and how many elements it has.
sub directory
{
	my ($file) = @_;
	my $word = get($file, 'Q<', 256);
	return (($word & ((1 << 42) - 1)) * 64, 1 << (($word >> 42) & 31));
}

# Offsets of all buckets.
sub buckets
{
	my ($file) = @_;
	my $block = 16384;
	my ($directory, $elements) = directory($file);
	my %seen;
	my @buckets;

	foreach my $i (0 .. $elements - 1)
	{
		my $element = get($file, 'Q<', $directory + 8 * $i);
		my $unit = $block / 8;
		my $size = ($element >> 51) & 15;
		my $main = ($element & ((1 << 24) - 1)) * $block;
		my $extension = (($element >> 24) & ((1 << 27) - 1)) * $unit;

		# a small segment has no main part, and its units are shifted (layout.h)
		$extension -= 8 * $unit if $size < 8;
		next if $seen{"$main $extension"}++;
		push @buckets, map { $main + 256 * $_ } 0 .. $block / 256 - 1 if $size >= 8;
		push @buckets, map { $extension + 256 * $_ } 0 .. $size % 8 * $unit / 256 - 1;
	}
	return @buckets;
}

# The plain entry of a row that has room beside it: bucket, slot, free slot, TID.
# Rows of the first page that nothing has happened to.
sub victim
{
	my ($file) = @_;

	foreach my $bucket (buckets($file))
	{
		my $state = get($file, 'L<', $bucket);
		my ($free) = grep { !($state >> $_ & 1) } 0 .. SLOTS - 1;

		next if !defined $free;
		foreach my $slot (grep { $state >> $_ & 1 } 0 .. SLOTS - 1)
		{
			my $word = get($file, 'Q<', $bucket + $word[$slot]);
			my $value = $word & VALUE_MASK;

			return ($bucket, $slot, $free, $value)
			  if !($word & POINTER) && $value >= 10 && $value <= 50;
		}
	}
	die 'no entry has room beside it';
}

sub tid
{
	my ($value) = @_;
	return sprintf '(%d,%d)', $value >> 15, $value & 0x7fff;
}

# Change a part of an entry; the TID of its row.
sub change
{
	my ($file, $format, $part, $bits) = @_;
	my ($bucket, $slot, undef, $value) = victim($file);
	my $offset = $bucket + $part->[$slot];

	put($file, $format, $offset, get($file, $format, $offset) ^ $bits);
	return tid($value);
}

# Put an entry beside that of a row, with the same hash, and with this value.
sub add_beside
{
	my ($file, $new) = @_;
	my ($bucket, $slot, $free, $value) = victim($file);
	my $word = get($file, 'Q<', $bucket + $word[$slot]);

	$new = $value if !defined $new;
	put($file, 'Q<', $bucket + $word[$free], ($word & ~VALUE_MASK) | $new);
	put($file, 'L<', $bucket + $mid[$free], get($file, 'L<', $bucket + $mid[$slot]));
	put($file, 'C', $bucket + $top[$free], get($file, 'C', $bucket + $top[$slot]));
	put($file, 'C', $bucket + $fingerprint[$free],
		get($file, 'C', $bucket + $fingerprint[$slot]));
	put($file, 'L<', $bucket, get($file, 'L<', $bucket) | 1 << $free);
	return tid($value);
}

# The first value line of the only value list.
sub value_line
{
	my ($file) = @_;
	my @lines;

	foreach my $bucket (buckets($file))
	{
		my $state = get($file, 'L<', $bucket);

		foreach my $slot (grep { $state >> $_ & 1 } 0 .. SLOTS - 1)
		{
			my $word = get($file, 'Q<', $bucket + $word[$slot]);
			my $pointer = $word & VALUE_MASK;

			next if !($word & POINTER);
			# the first slot of an index, after its header (layout.h)
			$pointer = get($file, 'Q<', ($pointer >> 7) * 16 + 32) & (1 << 41) - 1 while $pointer >> 5 & 3;
			# after a header, which is a line as well
			push @lines, ($pointer >> 7) * 16 + 32;
		}
	}
	die 'not one list' if @lines != 1;
	die 'not two values' if (get($file, 'S<', $lines[0]) & 3) != 3;
	return $lines[0];
}

# ---- damage ----

# event: a bucket or entry is wrong
# What is done to a file, telling the row concerned, and what must be found
# (ROW stands for that row).
my $disagrees = 'ERROR:  XX002: index "\w+" does not agree with table "\w+"\nDETAIL:  ';
my $damaged = 'ERROR:  XX002: file "\S+" of index "\w+" is damaged\nDETAIL:  ';
my $hash = '[0-9a-f]{16}';
my %damage = (
	fingerprint => [
		sub {
			my ($file) = @_;
			my ($bucket, $slot, undef, $value) = victim($file);
			my $old = get($file, 'C', $bucket + $fingerprint[$slot]);

			# one that has the same filter bit
			my ($new) = grep { $_ * 12 >> 8 == $old * 12 >> 8 } map { $old ^ $_ } 1, 2, 4;
			put($file, 'C', $bucket + $fingerprint[$slot], $new);
			return tid($value);
		},
		"${disagrees}Row ROW has no entry \\(its hash is $hash\\)\\.\nThere is an entry for row ROW, whose key is another one or not to be indexed \\(hash $hash\\)\\.\nHINT"
	],
	home => [
		sub { return change($_[0], 'Q<', \@word, 1 << 63) },
		"${damaged}Slot \\d+ of the bucket at offset \\d+ holds an entry in "
	],
	segment => [
		sub { return change($_[0], 'C', \@top, 0x80) },
		"${damaged}Slot \\d+ of the bucket at offset \\d+ holds an entry of another segment"
	],
	removed => [
		sub {
			my ($file) = @_;
			my ($bucket, $slot, undef, $value) = victim($file);

			put($file, 'L<', $bucket, get($file, 'L<', $bucket) & ~(1 << $slot));
			return tid($value);
		},
		"${disagrees}Row ROW has no entry \\(its hash is $hash\\)\\.\nHINT"
	],
	twice => [
		sub { return add_beside($_[0]) },
		"${disagrees}Row ROW has more than one entry with hash $hash\\.\nHINT"
	],
	other_row => [
		sub { return add_beside($_[0], 9) },
		"${disagrees}There is an entry for row \\(0,9\\), whose key is another one or not to be indexed \\(hash $hash\\)\\.\nHINT"
	],
	deleted_row => [
		sub { return add_beside($_[0], 6) },
		"${disagrees}There is an entry for row \\(0,6\\), which does not exist \\(hash $hash\\)\\.\nHINT"
	],
	no_line_pointer => [
		sub { return add_beside($_[0], 1000) },
		"${disagrees}There is an entry for row \\(0,1000\\), which does not exist \\(hash $hash\\)\\.\nHINT"
	],
	no_offset => [
		sub { return add_beside($_[0], 1 << 15) },
		"${disagrees}There is an entry for row \\(1,0\\), which does not exist \\(hash $hash\\)\\.\nHINT"
	],
	heap_only => [
		sub { return add_beside($_[0], 51) },
		"${disagrees}There is an entry for row \\(0,51\\), which is a heap-only tuple \\(hash $hash\\)\\.\nHINT"
	],
	beyond => [
		sub { return add_beside($_[0], 1_000_000 << 15 | 1) },
		"${disagrees}There is an entry for row \\(1000000,1\\), which is beyond the end of the table \\(hash $hash\\)\\.\nHINT"
	],
	list_lost => [
		sub {
			my ($file) = @_;
			my $line = value_line($file);
			my $value = get($file, 'L<', $line + 4) | get($file, 'S<', $line + 2) << 32;

			put($file, 'S<', $line, get($file, 'S<', $line) & ~1);
			return tid($value);
		},
		"${disagrees}Row ROW has no entry \\(its hash is $hash\\)\\.\nHINT"
	],
	list_twice => [
		sub {
			my ($file) = @_;
			my $line = value_line($file);
			my $value = get($file, 'L<', $line + 4) | get($file, 'S<', $line + 2) << 32;

			put($file, 'L<', $line + 8, get($file, 'L<', $line + 4));
			put($file, 'S<', $line + 12, get($file, 'S<', $line + 2));
			return tid($value);
		},
		"${disagrees}(?=[^H]*Row ROW has more than one entry with hash $hash\\.)[^H]*Row \\(\\d+,\\d+\\) has no entry"
	],
	element => [
		sub {
			my ($file) = @_;
			my ($directory, $elements) = directory($file);
			my $last = get($file, 'Q<', $directory + 8 * ($elements - 1));

			# all of the last segment get an impossible depth
			foreach my $i (0 .. $elements - 1)
			{
				put($file, 'Q<', $directory + 8 * $i, $last | 31 << 55)
				  if get($file, 'Q<', $directory + 8 * $i) == $last;
			}
			return '';
		},
		'ERROR:  XX002: (pmhash index "\S+" has no usable file|file "\S+" of index)'
	]);
my @kinds = sort keys %damage;

foreach my $kind (@kinds)
{
	my $key = $kind =~ /^list/ ? 'd' : 'k';

	# in the first page: row 6 is no more, row 8 has moved to a heap-only tuple
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE $kind (k int4, v int4, d int4);
INSERT INTO $kind SELECT i, 0, 1 FROM generate_series(1, 50) i;
CREATE INDEX ${kind}_i ON $kind USING pmhash ($key);
UPDATE $kind SET v = 1 WHERE k = 8;
DELETE FROM $kind WHERE k = 6;
INSERT INTO $kind SELECT i, 0, 1 FROM generate_series(51, 5000) i;
VACUUM $kind;
SELECT pmhash.check('${kind}_i');
SQL
}
is($node->safe_psql('postgres', 'SELECT ctid FROM beyond WHERE k IN (5, 8) ORDER BY k'),
	"(0,5)\n(0,51)", 'rows are where we think they are');

my %path = map { split /=/ } split /\n/, $node->safe_psql('postgres',
	q{SELECT "table" || '=' || file FROM pmhash.indexes});
$node->stop;
foreach my $kind (@kinds)
{
	my $file = slurp_file($path{$kind}, 0);
	my $row = $damage{$kind}->[0]->(\$file);

	$damage{$kind}->[1] =~ s/ROW/\Q$row\E/g;
	open(my $handle, '+<:raw', $path{$kind}) or die "$path{$kind}: $!";
	print $handle $file;
	close($handle) or die "$path{$kind}: $!";
}
$node->start;

# Invalid it is for good, also where a rollback gives the index the main fork of before: that
# has no mark, so the file is removed.
my %moved = (
	removed => 'BEGIN; ALTER INDEX removed_i SET TABLESPACE moved;',
	twice => 'BEGIN; SAVEPOINT s; ALTER INDEX twice_i SET TABLESPACE moved; RELEASE s; ALTER INDEX twice_i SET TABLESPACE pg_default;');
$node->safe_psql('postgres', q(SET allow_in_place_tablespaces = on; CREATE TABLESPACE moved LOCATION ''));
foreach my $kind (@kinds)
{
	my ($status, $stdout, $stderr) = $node->psql('postgres',
		"\\set VERBOSITY verbose\n" . ($moved{$kind} // '') . "SELECT pmhash.check('${kind}_i')");

	isnt($status, 0, "$kind: found");
	like($stderr, qr/$damage{$kind}->[1]/, "$kind: message");
	like($node->safe_psql('postgres', "SELECT state FROM pmhash.indexes WHERE index = '${kind}_i'"),
		$moved{$kind} ? qr/^invalid: it does not exist/ : qr/^invalid: it is damaged/, "$kind: marked");
}
foreach my $kind (@kinds)
{
	is( $node->psql('postgres',
			"REINDEX INDEX ${kind}_i; SELECT pmhash.check('${kind}_i')"),
		0, "$kind: sound after REINDEX");
}

# ---- nothing is found where nothing is wrong, whatever goes on ----

$node->safe_psql('postgres', <<SQL);
CREATE TABLE busy (k int8, w int4, d int4, t text COLLATE "C", p int4)
	WITH (fillfactor = 70, toast_tuple_target = 128);
ALTER TABLE busy ALTER t SET STORAGE EXTERNAL;
INSERT INTO busy SELECT i, i, i % 5, repeat(md5((i % 3000)::text), 1 + i % 20), i
	FROM generate_series(1, 30000) i;
CREATE INDEX busy_k ON busy USING pmhash (k);
CREATE INDEX busy_d ON busy USING pmhash (d);
CREATE INDEX busy_t ON busy USING pmhash (t);
CREATE INDEX busy_two ON busy USING pmhash (d, p);
CREATE INDEX busy_part ON busy USING pmhash (p) WHERE d = 2;
CREATE INDEX busy_expr ON busy USING pmhash ((k % 1000), lower(t));
SQL
my %script = (
	hot => 'UPDATE busy SET w = w + 1 WHERE k = :k;',
	key => 'UPDATE busy SET k = :new, p = :k WHERE k = :k;',
	toast => q{UPDATE busy SET t = repeat(md5(:new::text), 10), d = :new % 5 WHERE k = :k;},
	replace => q{BEGIN; DELETE FROM busy WHERE k = :k; INSERT INTO busy VALUES (:k, 0, :new % 5, repeat(md5(:k::text), 3), :k); END;},
	insert => q{INSERT INTO busy SELECT :new + i, 0, i % 5, 'new', i FROM generate_series(1, 10) i;},
	delete => 'DELETE FROM busy WHERE k > 30000 AND k BETWEEN :new AND :new + 20000;',
	rollback => q{BEGIN; INSERT INTO busy SELECT :new, 0, :new % 5, repeat(md5(:new::text), 10), i FROM generate_series(1, 5) i; UPDATE busy SET w = 0, p = 0 WHERE k = :k; ROLLBACK;},
	savepoint => q{BEGIN; UPDATE busy SET w = -w WHERE k = :k; SAVEPOINT s; UPDATE busy SET d = 7 WHERE k = :k; INSERT INTO busy VALUES (:new, 1, 1, 'sub', 1); ROLLBACK TO s; UPDATE busy SET w = 7 WHERE k = :k; END;},
	vacuum => 'VACUUM busy;');
my @options = ('-c', '4', '-R', '300', '--max-tries=10', '-T', $load_time + 60);
foreach my $name (sort keys %script)
{
	my $path = $node->basedir . "/$name.sql";

	append_to_file($path,
		"\\set k random(1, 30000)\n\\set new random(30001, 1000000)\n$script{$name}\n");
	push @options, '-f', $path . ($name eq 'vacuum' ? '@1' : $name eq 'hot' ? '@400' : '@100');
}

my $output = '';
my $load = start_pgbench($node, \$output, @options);
my $deadline = time + $load_time;
my $checks = 0;
my $failures = 0;
my @settings = (
	'',
	q{SET maintenance_work_mem = '1MB';},
	'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM busy; SELECT pg_sleep(1);',
	q{BEGIN; UPDATE busy SET w = 0, k = -k WHERE k < 100; SET enable_seqscan = off;});
while (time < $deadline || ($checks < 6 && time < $deadline + 30))
{
	my $setting = $settings[$checks % @settings];
	my ($status, $stdout, $stderr) = $node->psql('postgres', <<SQL);
$setting
SELECT pmhash.check(indexrelid) FROM pg_index WHERE indrelid = 'busy'::regclass;
SQL

	# what our UPDATE meets is no matter
	next if $stderr =~ /could not serialize|deadlock detected/;
	$checks++;
	next if $status == 0;
	$failures++;
	diag($stderr);
}
is($failures, 0, 'no findings under load');
cmp_ok($checks, '>=', 4, 'there was time to check');
ok($load->pumpable, 'the load was there all the time');
$load->signal('TERM');
$load->finish;
unlike($output, qr/aborted|ERROR/, 'the load had no errors');
note($output, "$checks checks");
is( $node->psql('postgres',
		"SELECT pmhash.check(indexrelid) FROM pg_index WHERE indrelid = 'busy'::regclass"),
	0, 'no findings after it');

fails_like(
	$node,
	q{SET statement_timeout = '1ms'; SELECT pmhash.check('busy_k')},
	qr/canceling statement due to statement timeout/,
	'interrupted');

$node->stop;
done_testing();
