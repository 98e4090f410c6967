# The kernel cannot write back what is in the page cache: it says so once, and
# from then on the page may be gone at any time.  Whatever is in the index files
# is not believed any more.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $failed_state = 'the kernel has failed to write something back, or may have';
my $node = new_faulty_server('writes');
my $files = 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash_indexes';

$node->safe_psql('postgres', invalid_fixture());

sub faults
{
	my ($calls, $n, $for, $error) = @_;

	$for //= 1;
	$error //= 5;
	return set_faults($node, calls => $calls, error => $error, fail_for => $for, fail_at => $n);
}

# event: the kernel fails to write back pages of the pool's file system, while the server runs
# ---- noticed with the next checkpoint; a session that has the files open as well ----
my $session = $node->background_psql('postgres');
$session->query_safe('SET enable_seqscan = off; INSERT INTO t VALUES (-1, -1); SELECT * FROM t WHERE k = -1');
my $before = $node->safe_psql('postgres', $files);
my $from = -s $node->logfile;
rebuild_off($node);
faults('syncfs', 1);
$node->safe_psql('postgres', 'CHECKPOINT');
$node->wait_for_log(qr/index files in .* are not trusted: the file system of directory .* has failed to write something back: Input/, $from);
faults('syncfs', 0);
# trust: syncfs
is($session->query_safe('EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k = -1') =~ /Index/ ? 'index' : 'no index', 'no index',
	'a session that has the file open');
is($session->query_safe('SELECT count(*) FROM t WHERE k = -1'), '1', 'and its answer');
$session->quit;
stays_invalid($node, $failed_state, 'failed write');

# and after a crash, a shutdown
crash($node);
$node->start;
stays_invalid($node, $failed_state, 'failed write, crash');
$node->restart;
like(index_state($node, 'o_k'), qr/^invalid/, 'failed write, shutdown');
rebuild_on($node);
all_come_back($node, 'failed write');
isnt($node->safe_psql('postgres', $files), $before, 'the files are new ones');

# ---- the pool directory is not where it was; processes that have its files open go on ----
my $pool = pool($node);
$from = -s $node->logfile;
rename($pool, "$pool.away") or die $!;
faults('syncfs', 1);
$node->safe_psql('postgres', 'CHECKPOINT');
$node->wait_for_log(qr/index files in .* are not trusted: the file system of directory .* has failed to write something back: Input/, $from);
ok(!-e $pool, 'the pool directory is away: nothing is made in its place');
fails_like($node, 'REINDEX INDEX t_k', qr/is disabled/, 'failed write, the pool directory is away');
rename("$pool.away", $pool) or die $!;
rebuild_off($node);
faults('syncfs', 0);
$node->restart;
like(index_state($node, 'o_k'), qr/^invalid/, 'failed write, the pool directory was away');
rebuild_on($node);
all_come_back($node, 'failed write, the pool directory was away');

# ---- while the launcher has files written back it takes part in what all processes must ----
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('postgres', "CREATE TABLE many$_ (k int4); CREATE INDEX ON many$_ USING pmhash (k)") foreach 1 .. 8;
$node->append_conf('postgresql.conf', "pmhash_faults.action = slow\npmhash_faults.process = 'pmhash launcher'");
faults('sync_file_range', 1, 1000);
$from = -s $node->logfile;
$node->safe_psql('postgres', 'CHECKPOINT');
$node->wait_for_log(qr/pmhash_faults: call 1 of sync_file_range/, $from);
$node->safe_psql('postgres', 'DROP DATABASE other');
my @calls = slurp_file($node->logfile, $from) =~ /pmhash_faults: call \d+ of sync_file_range/g;
cmp_ok(scalar(@calls), '<', 8, 'DROP DATABASE does not wait until all files are written back');
$node->append_conf('postgresql.conf', "pmhash_faults.action = fail\npmhash_faults.process = ''");
faults('syncfs', 0);
$node->safe_psql('postgres', "DROP TABLE many$_") foreach 1 .. 8;

# ---- no launcher: the first process that uses an index asks ----
sub is_noticed
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	ok($node->poll_query_until('postgres', "SELECT state ~ '^invalid' FROM pmhash_indexes WHERE index = 't_k'"), $name);
	stays_invalid($node, $failed_state, $name);
	return;
}
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
rebuild_off($node);
$node->restart;
is(index_state($node, 't_k'), 'valid', 'no launcher: valid');
faults('syncfs', 1);
is(index_state($node, 't_k'), 'valid', 'no launcher: not asked before a checkpoint');
$node->safe_psql('postgres', 'CHECKPOINT');
# trust: no-launcher
is_noticed('no launcher');
faults('syncfs', 0);
$node->safe_psql('postgres', 'REINDEX TABLE t; REINDEX TABLE o; REINDEX TABLE ex');
crash($node);
faults('syncfs', 1);
$node->start;
is_noticed('no launcher, after a crash');
faults('syncfs', 0);
$node->safe_psql('postgres', 'REINDEX TABLE t; REINDEX TABLE o; REINDEX TABLE ex');

# nor in single-user mode
crash($node);
faults('syncfs', 1);
like(die_in_start($node, 'SELECT count(*) FROM t WHERE k = 1'), qr/not trusted: the file system .* has failed to write something back/,
	'single-user mode');
faults('syncfs', 0);
$node->start;
stays_invalid($node, $failed_state, 'single-user mode');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
rebuild_on($node);
$node->restart;
all_come_back($node, 'with a launcher again');

# event: the kernel fails to write back pages of the pool's file system, at a clean shutdown
sub fails_at_shutdown
{
	my ($calls, $n, $for, $name, $error) = @_;
	my $from = -s $node->logfile;

	rebuild_off($node);
	faults($calls, $n, $for, $error);
	$node->safe_psql('postgres', 'SELECT 1');
	$node->stop;
	like(slurp_file($node->logfile, $from), qr/could not write the files in .* back: /, "$name: log");
	$node->append_conf('postgresql.conf', 'pmhash_faults.fail_at = 0');
	$node->start;
	stays_invalid($node, $failed_state, $name);
	rebuild_on($node);
	all_come_back($node, $name);
	return;
}

# all files at once
# trust: shutdown-syncfs
fails_at_shutdown('syncfs', 1, 1, 'shutdown', 5);

# and other things that a device says
fails_at_shutdown('syncfs', 1, 1, 'shutdown, ENODATA', 61);
fails_at_shutdown('syncfs', 1, 1, 'shutdown, ETIMEDOUT', 110);

# file by file, where the kernel is an old one or cannot be asked: two calls for the
# control file, uname, those of the index files
# trust: fsync
fails_at_shutdown('uname fsync', 3, 2, 'shutdown, old kernel', 5);
fails_at_shutdown('uname fsync', 3, 2, 'shutdown, old kernel, ETIMEDOUT', 110);
$node->stop;
done_testing();
