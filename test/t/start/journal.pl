# The pool has one file for the undo journals of all server lives, made with the pool: no life
# needs space for its own.  If a larger one is asked for, and there is no room, it stays.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('journals', "wal_level = replica\nmax_wal_senders = 4\n", install_path => install_with_stop_points(), allows_streaming => 1);
use_stop_points($node);
$node->append_conf('pg_hba.conf', "local replication all trust\n");
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4);
CREATE INDEX t_k ON t USING pmhash (k);
INSERT INTO t SELECT generate_series(1, 1000);
SQL
my $pool = pool($node);
my $rows = 1000;

sub mb
{
	my ($n) = @_;
	return $n * 1024 * 1024 + 64;
}

sub inode_of
{
	my ($server) = @_;
	return (stat(pool($server) . '/journal'))[1];
}

# Rows go in; the journal is that file, of that size.
sub goes_on
{
	my ($inode, $bytes, $name) = @_;
	my ($status, $stdout, $stderr) = $node->psql('postgres', 'INSERT INTO t VALUES (' . ++$rows . ')');

	is($stderr, '', "$name: a row goes in");
	is(inode_of($node), $inode, '... with the journal that was there');
	is(-s "$pool/journal", $bytes, '... of its size');
	is(join(' ', glob("$pool/journal*")), "$pool/journal", '... which is the only one');
	is(index_state($node, 't_k'), 'valid', '... the index is trusted');
	same_answers($node, 't', 'k', 't_k', '... and right');
	return;
}

my $inode = inode_of($node);
goes_on($inode, mb(2), 'first life');
$node->restart;
goes_on($inode, mb(2), 'restarted');
foreach (1, 2)
{
	crash($node);
	$node->start;
	goes_on($inode, mb(2), 'killed');
}

# ---- a standby has one, so that it needs no space when it is promoted ----
my $standby = new_standby($node, 'journals_standby', undef, install_path => $node->{_install_path});
my $its = inode_of($standby);
ok(defined $its, 'a standby has a journal');
wait_for_state($standby, 't_k', qr/^valid$/, '... and its index');
$standby->promote;
$standby->safe_psql('postgres', 'INSERT INTO t VALUES (0)');
is(inode_of($standby), $its, 'promoted: it uses it');
is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 0'), '1', '... and a row goes in');
$_->stop foreach $standby, $node;

# ---- other sizes ----
$node->append_conf('postgresql.conf', 'pmhash.journal_size = 64MB');
foreach my $how ('fast', 'immediate')
{
	start_with_small_files($node);
	my ($status, $stdout, $stderr) = $node->psql('postgres', 'INSERT INTO t SELECT generate_series(2001, 60000)');
	is($stderr, '', "no room for a larger journal ($how): many rows go in");
	like(slurp_file($node->logfile), qr/the undo journal has \d+ bytes instead of \d+: The operation that failed was/, '... and the log says so');
	goes_on($inode, mb(2), "no room for a larger journal ($how)");
	$node->stop($how);
}
start_with_small_files($node);
goes_on($inode, mb(2), 'it is read after a crash');
$node->restart;
goes_on($inode, 64 * 1024 * 1024 + 4096, 'with room it has the size that was asked for');
$node->append_conf('postgresql.conf', 'pmhash.journal_size = 1MB');
$node->restart;
goes_on($inode, 64 * 1024 * 1024 + 4096, 'a smaller one is asked for: the file stays');
crash($node);
$node->start;
goes_on($inode, 64 * 1024 * 1024 + 4096, 'a smaller one is asked for, killed');

# ---- the first use fails at first: the control file can't be written ----
$node->stop;
hold('journal_begun');
$node->start;
is_held('journal_begun', 'the first process');
rename("$pool/control.tmp", "$pool/control.away") or die $!;
mkdir("$pool/control.tmp") or die $!;
release('journal_begun');
fails_like($node, 'INSERT INTO t VALUES (0)', qr/could not be made ready: could not write file/, 'the first use fails');
my $early = $node->background_psql('postgres', on_error_stop => 0);
$early->query_safe('SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE early AS SELECT count(*) FROM t WHERE k = 1');
is($early->query_safe('EXECUTE early'), 1, '... a plan does without the index');
unlike($early->query_safe('EXPLAIN EXECUTE early'), qr/t_k/, '... which it has not');
rmdir("$pool/control.tmp") or die $!;
rename("$pool/control.away", "$pool/control.tmp") or die $!;
goes_on($inode, 64 * 1024 * 1024 + 4096, 'the next use');
like($early->query_safe('EXPLAIN EXECUTE early'), qr/t_k/, '... and that plan is not kept');
$early->quit;

# ---- something else stands in its place ----
crash($node);
rename("$pool/journal", "$pool/journal.away") or die $!;
mkdir("$pool/journal") or die $!;
$node->start;
like(index_state($node, 't_k'), qr/^disabled: could not use file "\Q$pool\E\/journal"/, 'no journal: disabled');
$node->stop;
rmdir("$pool/journal") or die $!;
rename("$pool/journal.away", "$pool/journal") or die $!;
$node->start;
comes_back($node, 'a journal again');
$node->stop;
done_testing();
