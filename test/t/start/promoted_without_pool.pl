# A standby is promoted while its pool is away: the file system is not mounted any more, or
# the directory is gone.  Rows can be written, as on a primary that has lost it; constraints
# say what has to be done.  When it is back the indexes come back by themselves.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_primary('primary');

$primary->safe_psql('postgres', 'DROP TABLE t');
$primary->safe_psql('postgres', invalid_fixture());
$primary->safe_psql('postgres', 'CREATE TABLE r (k int4); INSERT INTO r SELECT generate_series(1, 1000); CREATE INDEX r_k ON r USING pmhash (k)');

# event: unmounted while the server is a standby, which is then promoted
foreach my $how ('absent', 'empty', 'killed')
{
	my $standby = new_standby($primary, "standby_$how");
	my $pool = pool($standby);
	my $writes = 'INSERT INTO t SELECT i % 3000, i FROM generate_series(1, 3000) i; DELETE FROM t WHERE k % 7 = 3';

	wait_for_state($standby, $_, qr/^valid$/, "$how: $_") foreach qw(t_k t_v o_k ex_k r_k);
	my $session = $standby->background_psql('postgres', on_error_stop => 0);
	$session->query_safe('SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE q AS SELECT count(v) FROM t WHERE k = 5');
	is($session->query_safe('EXECUTE q'), 2, "$how: a plan with an index");
	rename($pool, "$pool.away") or die;
	mkdir($pool) or die if $how eq 'empty';
	$standby->promote;
	$session->query('EXECUTE q');
	is($session->query_safe('EXECUTE q'), 2, "$how: one of before fails once at most");
	my ($status, $stdout, $stderr) = $standby->psql('postgres', $writes);
	is($stderr, '', "$how: rows are written");
	$standby->psql('postgres', 'VACUUM t');
	$standby->psql('postgres', $writes);
	is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5'), 4, "$how: rows are read");
	fails_like($standby, 'INSERT INTO ex VALUES (0)', qr/directory "\Q$pool\E" has been unmounted, removed or replaced.*HINT:  Put it back, or restart the server/s, "$how: a constraint");
	is(join(' ', glob("$pool/*")), '', "$how: nothing is made in its place");
	rmdir($pool) if $how eq 'empty';
	crash($standby) if $how eq 'killed';
	rename("$pool.away", $pool) or die;
	my $from = -s $standby->logfile;
	$standby->start if $how eq 'killed';
	$standby->safe_psql('postgres', $writes);
	all_come_back($standby, "$how: put back");
	same_answers($standby, 'r', 'k', 'r_k', "$how: put back");
	# (After a life that is killed before the first use all are rebuilt.)
	unlike(slurp_file($standby->logfile, $from), qr/index "r_k" of table "r" has been rebuilt/, "$how: what was not written to is kept") if $how ne 'killed';
	eval { $session->quit };
	$standby->safe_psql('postgres', $writes);
	crash($standby);
	$standby->start;
	all_come_back($standby, "$how: killed");
	$standby->stop;
}
$primary->stop;

# The same where there is no launcher, which would have tried the pool first.
my $alone = new_primary('alone', "max_worker_processes = 0\n");
my $promoted = new_standby($alone, 'promoted');
my $key = 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5';
my $rows = $alone->safe_psql('postgres', $key);

rename(pool($promoted), pool($promoted) . '.away') or die;
$promoted->promote;
is($promoted->safe_psql('postgres', $key), $rows, 'no launcher: rows are read at once');
rename(pool($promoted) . '.away', pool($promoted)) or die;
is($promoted->safe_psql('postgres', $key), $rows, 'no launcher: put back');
$_->stop foreach $promoted, $alone;
done_testing();
