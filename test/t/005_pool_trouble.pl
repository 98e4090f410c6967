# A pool directory that is not what it should be: the server starts, queries do
# without the indexes, rows can be written, direct uses are ERRORs that name
# index and directory; a repair brings the indexes back, with those rows.
# (Single files: 021.)

use strict;
use warnings;

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
CREATE TABLE ex (k int4, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO ex VALUES (1);
SQL
my $select = 'SET enable_seqscan = off; SELECT * FROM t WHERE k = 1';

# The planner leaves a disabled index alone; a sequential scan answers.
sub disabled
{
	my ($message, $name) = @_;

	is($node->safe_psql('postgres', $select), '1|1', "$name, SELECT");
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (0, 0)');
	fails_like($node, 'INSERT INTO ex VALUES (0)', qr/"ex_k".*$message/s, "$name, INSERT with a constraint");
	fails_like($node, 'REINDEX INDEX t_k', qr/"t_k".*$message/s, "$name, REINDEX");
	fails_like($node, "SELECT * FROM pmhash_stats('t_k')", qr/"t_k".*$message/s, "$name, pmhash_stats");
	fails_like($node, 'CREATE INDEX ON t USING pmhash (v)', $message, "$name, CREATE INDEX");
	is($node->safe_psql('postgres', "SELECT state FROM pmhash_indexes WHERE index = 't_k'"),
		'disabled', "$name, pmhash_indexes");
	return;
}

sub repaired
{
	my ($name) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pmhash_indexes WHERE state <> 'valid'")
	  or die "indexes are not rebuilt";
	same_answers($node, 't', 'k', 't_k', $name);
	same_answers($node, 'o', 'k', 'o_k', $name);
	fails_like($node, 'INSERT INTO ex VALUES (1)', qr/violates exclusion constraint "ex_k"/, "$name, constraint");
	return;
}

# ---- the directory ----
$node->stop;
rename($pool, "$pool.away") or die;
$node->start;
is($node->safe_psql('postgres', $select), '1|1', 'pool directory gone, SELECT');
repaired('pool directory gone');
rmtree("$pool.away");

$node->stop;
chmod(0500, $pool);
$node->start;
disabled(qr/\Q$pool\E.*HINT/s, 'read-only pool directory');
$node->stop;
chmod(0700, $pool);
$node->start;
repaired('read-only pool directory repaired');

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
repaired('the own pool again');

# ---- the control file ----
$node->stop;
open(my $control, '+<:raw', "$pool/control") or die;
seek($control, 20, 0);
print $control "\xff" x 8;
close($control);
$node->start;
is($node->safe_psql('postgres', $select), '1|1', 'damaged control file, SELECT');
repaired('damaged control file');
$node->stop;
done_testing();
