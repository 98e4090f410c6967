# A server life takes the journal of an earlier one over, and looks at all of it.  A page
# that cannot be read there is no error: it gets a journal of its own.  (The file is cut
# short meanwhile, which raises the same signal.)
#
# The library is built with its stop points for this, as in 012_stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('journals', "wal_level = replica\nmax_wal_senders = 4\n", install_path => install_with_stop_points(), allows_streaming => 1);
my $points = use_stop_points($node);
$node->append_conf('pg_hba.conf', "local replication all trust\n");
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4);
CREATE INDEX t_k ON t USING pmhash (k);
INSERT INTO t SELECT generate_series(1, 1000);
SQL
my $pool = pool($node);
$node->stop;
ok(-e "$pool/journal.spare", 'there is a journal to be taken over');

my $from = -s $node->logfile;
hold('spare_taken');
$node->start;
my $session = start_session('INSERT INTO t VALUES (1001)');
is_held('spare_taken', 'the first process');
my @journal = grep { !/\.spare$/ } glob("$pool/journal.*");
is(@journal, 1, 'it has taken that over');
my $size = -s $journal[0];
truncate($journal[0], 4096) or die;
release('spare_taken');
is(finish($session), '', 'a row goes in');
@journal = grep { !/\.spare$/ } glob("$pool/journal.*");
is(-s $journal[0], $size, 'the journal is a new one');
unlike(slurp_file($node->logfile, $from), qr/undo journal/, 'nothing is said of it');

$node->stop('immediate');
$from = -s $node->logfile;
$node->start;
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1001'), 1, 'after a crash');
is(index_state($node, 't_k'), 'valid', '... the index is trusted');
unlike(slurp_file($node->logfile, $from), qr/are not trusted/, '... by its journal');

# ---- a standby keeps one, so that it needs no space when it is promoted ----

my $standby = new_standby($node, 'journals_standby', undef, install_path => $node->{_install_path});
my $spare = pool($standby) . '/journal.spare';

sub spare_has
{
	my ($bytes, $name) = @_;
	return ok($standby->poll_query_until('postgres', "SELECT (pg_stat_file('$spare', true)).size = $bytes"), $name);
}
spare_has($size, 'a standby has a journal to be taken over');
my $inode = (stat($spare))[1];
$standby->restart;
is((stat($spare))[1], $inode, '... and keeps it');
$standby->append_conf('postgresql.conf', 'pmhash.journal_size = 1MB');
$standby->restart;
spare_has(1024 * 1024 + 64, '... of the size that it needs');
wait_for_state($standby, 't_k', qr/^valid$/, '... and its index');
$inode = (stat($spare))[1];
$standby->promote;
$standby->safe_psql('postgres', 'INSERT INTO t VALUES (1002)');
@journal = glob(pool($standby) . '/journal.*');
is(scalar(@journal), 1, 'promoted: it has one journal');
is((stat($journal[0]))[1], $inode, '... which is that');
is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1002'), 1, '... and a row goes in');
$_->stop foreach $standby, $node;

# ---- no room for the larger one that is asked for: a smaller one is better than none ----
$inode = (stat("$pool/journal.spare"))[1];
$node->append_conf('postgresql.conf', 'pmhash.journal_size = 64MB');
foreach my $how ('fast', 'immediate')
{
	start_with_small_files($node);
	my ($status, $stdout, $stderr) = $node->psql('postgres', 'INSERT INTO t SELECT generate_series(2001, 60000)');
	is($stderr, '', "no room for a larger journal ($how): rows go in");
	@journal = glob("$pool/journal.*");
	is_deeply([ map { (stat($_))[1] } @journal ], [$inode], '... with the one that was there');
	$node->stop($how);
}
start_with_small_files($node);
is(index_state($node, 't_k'), 'valid', '... and it is read after a crash');
$node->safe_psql('postgres', 'INSERT INTO t VALUES (1003)');
$node->restart;
$node->safe_psql('postgres', 'INSERT INTO t VALUES (1003)');
@journal = glob("$pool/journal.*");
is_deeply([ map { -s $_ } @journal ], [ 64 * 1024 * 1024 + 64 ], 'with room it has the size that was asked for');
$node->safe_psql('postgres', 'DELETE FROM t WHERE k > 2000; VACUUM t');
$node->stop;

# ---- nor is there room for one that is smaller, or that a start has lost ----
my $rows = 1003;

# Rows go in, with the journal that was there, and those of before are there.
sub goes_on
{
	my ($inode, $bytes, $name) = @_;
	my ($status, $stdout, $stderr) = $node->psql('postgres', 'INSERT INTO t VALUES (' . ++$rows . ')');

	is($stderr, '', "$name: a row goes in");
	@journal = glob("$pool/journal.*");
	is_deeply([ map { (stat($_))[1] } @journal ], [$inode], '... with the journal that was there') if defined $inode;
	is_deeply([ map { -s $_ } @journal ], [$bytes], '... of its size');
	is(index_state($node, 't_k'), 'valid', '... the index is trusted');
	same_answers($node, 't', 'k', 't_k', '... and right');
	return;
}

sub mb
{
	my ($n) = @_;
	return $n * 1024 * 1024 + 64;
}

$inode = (stat("$pool/journal.spare"))[1];
$node->append_conf('postgresql.conf', 'pmhash.journal_size = 50MB');
start_with_small_files($node);
goes_on($inode, mb(50), 'a smaller one is asked for');
$node->stop;

# It is killed with the spare one in its hands; between the undo and that.
foreach my $point ('spare_taken', 'undo_written')
{
	start_with_small_files($node);
	goes_on($inode, mb(50), "before $point");
	$point eq 'undo_written' ? crash($node) : $node->stop;
	hold($point);
	start_with_small_files($node);
	is_held($point, 'the first process');
	crash($node);
	release($point);
	start_with_small_files($node);
	goes_on($inode, mb(50), "killed at $point");
	$node->stop;
}

# No descriptor is to be had for it at first.
{
	local $ENV{LD_PRELOAD} = preloadable('no_write');
	local $ENV{NO_OPEN} = "$pool/journal.";
	local $ENV{NO_OPEN_TIMES} = "$PostgreSQL::Test::Utils::tmp_check/times";
	append_to_file($ENV{NO_OPEN_TIMES}, 'xx');
	my $from_here = -s $node->logfile;
	start_with_small_files($node);
	goes_on($inode, mb(50), 'no descriptor');
	is(-s $ENV{NO_OPEN_TIMES}, 0, '... twice');
	unlike(slurp_file($node->logfile, $from_here), qr/undo journal has/, '... and nothing is said of its size');
	$node->stop;
}

# A file that has no space is none to be kept.
my $sparse = "$pool/journal.0123456789abcdef";
append_to_file($sparse, '');
truncate($sparse, mb(52)) or die;
my $sparse_inode = (stat($sparse))[1];
start_with_small_files($node);
goes_on($inode, mb(50), 'a file without space is there, too');
isnt($inode, $sparse_inode, '... which is another');
$node->stop;

# The first use fails with the spare one in its hands: the control file can't be written.
# That is no better before there is room, and then it gets what was asked for.
$node->append_conf('postgresql.conf', 'pmhash.journal_size = 64MB');
foreach my $how ('there is no room yet', 'there is room')
{
	hold('spare_taken');
	start_with_small_files($node);
	is_held('spare_taken', 'the first process');
	rename("$pool/control.tmp", "$pool/control.away") or die;
	mkdir("$pool/control.tmp") or die;
	release('spare_taken');
	fails_like($node, 'INSERT INTO t VALUES (0)', qr/could not be made ready: could not write file/, "the first use fails; $how");
	my $early = $node->background_psql('postgres', on_error_stop => 0);
	$early->query_safe('SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE early AS SELECT count(*) FROM t WHERE k = 1');
	is($early->query_safe('EXECUTE early'), 1, '... a plan does without the index');
	unlike($early->query_safe('EXPLAIN EXECUTE early'), qr/t_k/, '... which it has not');
	if ($how eq 'there is room')
	{
		# a child may end meanwhile, and those that begin are as the postmaster
		limit_file_size($node->{_pid}, 'unlimited');
		PostgreSQL::Test::Utils::system_log('prlimit', '--pid', $_, '--fsize=unlimited:') foreach PmhashTest::children($node->{_pid});
	}
	rmdir("$pool/control.tmp") or die;
	rename("$pool/control.away", "$pool/control.tmp") or die;
	goes_on($how eq 'there is room' ? (undef, mb(64)) : ($inode, mb(50)), $how);
	like($early->query_safe('EXPLAIN EXECUTE early'), qr/t_k/, '... and that plan is not kept');
	$early->quit;
	$node->stop;
}
done_testing();
