# A pool directory or an index file that is not what it should be: the server
# starts, each use is an ERROR that names index and file, REINDEX or a repair
# brings the index back.

use strict;
use warnings;

use File::Copy;
use File::Path qw(rmtree);
use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('trouble');
my $pool = pool($node);
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i, i FROM generate_series(1, 5000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE o (k int4);
INSERT INTO o SELECT generate_series(1, 5000);
CREATE INDEX o_k ON o USING pmhash (k);
SQL
my $select = 'SET enable_seqscan = off; SELECT * FROM t WHERE k = 1';

sub file_of
{
	my ($index) = @_;
	return $node->safe_psql('postgres', "SELECT file FROM pmhash_stats('$index')");
}

sub patch
{
	my ($file, $offset, $bytes) = @_;

	open(my $fh, '+<:raw', $file) or die "$file: $!";
	seek($fh, $offset, 0);
	print $fh $bytes;
	close($fh);
	return;
}

# The planner leaves a disabled index alone; a sequential scan answers.
sub disabled
{
	my ($message, $name) = @_;

	is($node->safe_psql('postgres', $select), '1|1', "$name, SELECT");
	fails_like($node, 'INSERT INTO t VALUES (1, 1)', qr/"t_k".*$message/s, "$name, INSERT");
	fails_like($node, 'REINDEX INDEX t_k', qr/"t_k".*$message/s, "$name, REINDEX");
	fails_like($node, "SELECT * FROM pmhash_stats('t_k')", qr/"t_k".*$message/s, "$name, pmhash_stats");
	fails_like($node, 'CREATE INDEX ON t USING pmhash (v)', $message, "$name, CREATE INDEX");
	is($node->safe_psql('postgres', "SELECT state FROM pmhash_indexes WHERE index = 't_k'"),
		'disabled', "$name, pmhash_indexes");
	return;
}

sub each_use_fails
{
	my ($message, $name, $state) = @_;

	fails_like($node, $select, $message, "$name, SELECT");
	fails_like($node, 'INSERT INTO t VALUES (1, 1)', $message, "$name, INSERT");
	fails_like($node, "SELECT * FROM pmhash_stats('t_k')", $message, "$name, pmhash_stats");
	is($node->safe_psql('postgres', "SELECT state FROM pmhash_indexes WHERE index = 't_k'"),
		$state, "$name, pmhash_indexes");
	same_answers($node, 'o', 'k', 'o_k', "$name, another index");
	return;
}

sub reindex_helps
{
	my ($name) = @_;

	$node->safe_psql('postgres', 'REINDEX INDEX t_k');
	same_answers($node, 't', 'k', 't_k', "$name, REINDEX");
	is($node->safe_psql('postgres', "SELECT state FROM pmhash_indexes WHERE index = 't_k'"),
		'valid', "$name, pmhash_indexes after REINDEX");
	return;
}

# ---- single files, changed while the server is down ----
my @damage = (
	[ 'damaged header', 'damaged', sub { patch($_[0], 16, "\xff" x 16) } ],
	[ 'no magic number', 'damaged', sub { patch($_[0], 0, "\0" x 8) } ],
	[ 'unknown format version', 'damaged', sub { patch($_[0], 8, "\x63") } ],
	[ 'damaged identity', 'damaged', sub { patch($_[0], 100, "\x63") } ],
	[ 'damaged live words', 'damaged', sub { patch($_[0], 512, "\xff" x 8) } ],
	[ 'truncated file', 'damaged', sub { truncate($_[0], 20000) } ],
	[ 'empty file', 'damaged', sub { truncate($_[0], 0) } ],
	[ 'missing file', 'missing', sub { unlink($_[0]) } ],
	[ 'file of another index', 'foreign', sub { copy($_[1], $_[0]) } ],
	[ 'unreadable file', 'unreadable', sub { chmod(0, $_[0]) } ]);
foreach my $case (@damage)
{
	my ($name, $state, $damage) = @$case;
	my ($file, $other) = (file_of('t_k'), file_of('o_k'));

	$node->stop;
	$damage->($file, $other);
	$node->start;
	each_use_fails(qr/"t_k".*\Q$file\E|\Q$file\E.*"t_k"/s, $name, $state);
	reindex_helps($name);
}

# ---- the directory ----
$node->stop;
rename($pool, "$pool.away") or die;
$node->start;
fails_like($node, $select, qr/"t_k".*\Q$pool\E/s, 'pool directory gone, SELECT');
fails_like($node, 'INSERT INTO t VALUES (1, 1)', qr/"t_k".*\Q$pool\E/s, 'pool directory gone, INSERT');
$node->safe_psql('postgres', 'REINDEX INDEX o_k');
reindex_helps('pool directory gone');
same_answers($node, 'o', 'k', 'o_k', 'pool directory gone');
rmtree("$pool.away");

$node->stop;
chmod(0500, $pool);
$node->start;
disabled(qr/\Q$pool\E.*HINT/s, 'read-only pool directory');
$node->stop;
chmod(0700, $pool);
$node->start;
same_answers($node, 't', 'k', 't_k', 'read-only pool directory repaired');

# not a directory; not a pool; not absolute
my $file = "$PostgreSQL::Test::Utils::tmp_check/not_a_directory";
append_to_file($file, 'x');
my $foreign = "$PostgreSQL::Test::Utils::tmp_check/somebodys_home";
mkdir($foreign);
chmod(0755, $foreign);
append_to_file("$foreign/letter.txt", 'dear');
foreach my $directory ($file, $foreign, 'relative/path', "$foreign/no/such/parent")
{
	$node->append_conf('postgresql.conf', "pmhash.directory = '$directory'");
	$node->restart;
	disabled(qr/\Q$directory\E/, "pmhash.directory = $directory");
}
is(slurp_file("$foreign/letter.txt"), 'dear', 'what stood there is left alone');
is(scalar(my @entries = glob "$foreign/*"), 1, 'and nothing was added');
is((stat($foreign))[2] & 0777, 0755, 'nor its mode changed');

# the pool of another cluster: while that one runs, and when it does not
my $neighbour = new_server('neighbour');
$neighbour->start;
install_extension($neighbour);
$neighbour->safe_psql('postgres',
	'CREATE TABLE n (k int4); INSERT INTO n SELECT generate_series(1, 1000); CREATE INDEX n_k ON n USING pmhash (k)');
my $theirs = pool($neighbour);
$node->append_conf('postgresql.conf', "pmhash.directory = '$theirs'");
$node->restart;
disabled(qr/\Q$theirs\E/, 'pool in use by another server');
same_answers($neighbour, 'n', 'k', 'n_k', 'the owner');
$node->stop;
$neighbour->stop;
$node->start;
disabled(qr/\Q$theirs\E.*another cluster/, 'pool of another cluster');
$neighbour->start;
same_answers($neighbour, 'n', 'k', 'n_k', 'the owner again');
$neighbour->stop;

# back at home
$node->append_conf('postgresql.conf', "pmhash.directory = ''");
$node->restart;
same_answers($node, 't', 'k', 't_k', 'the own pool again');
same_answers($node, 'o', 'k', 'o_k', 'the own pool again');

# ---- the control file ----
$node->stop;
patch("$pool/control", 20, "\xff" x 8);
$node->start;
fails_like($node, $select, qr/"t_k"/, 'damaged control file');
reindex_helps('damaged control file');
$node->stop;
done_testing();
