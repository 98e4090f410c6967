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
$node->stop;
done_testing();
