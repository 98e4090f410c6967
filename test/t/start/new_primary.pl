# A standby takes over: what other standbys have built before, snapshots that were
# taken before, and a server that has come of pg_rewind.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';

# ---- standbys that have built at different times ----

# The early one has entries of rows that are dead when the late one builds.  The late
# one is promoted; its VACUUM finds no entries of these rows and logs none.
my $first = new_primary('first', "wal_log_hints = on\n");
my ($early, $late) = early_and_late($first);
caught_up($first, $late);
$first->stop('fast');
$late->promote;
follow($early, $late);
# until the new primary vacuums, also past a restart, it goes on with what it has
my $switched = log_position($early);
caught_up($late, $early);
both_valid($early, 'early, at once');
nothing_under_old_keys($early, 'early, at once', 5, 6, 7);
$early->restart;
caught_up($late, $early);
both_valid($early, 'early, restarted');
nothing_under_old_keys($early, 'early, restarted', 5, 6, 7);
unlike(logged_since($early, $switched), qr/has been built|given up|not trusted/, 'early: nothing is built');
my $reuse = <<'SQL';
VACUUM t;
INSERT INTO t SELECT 9000, 'new', i FROM generate_series(1, 20) i;
SQL
$late->safe_psql('postgres', $reuse);
nothing_under_old_keys($late, 'the new primary', 5, 6, 7);
caught_up($late, $early);
both_valid($early, 'early, of the new primary');
nothing_under_old_keys($early, 'early, of the new primary', 5, 6, 7);
like(logged_since($early, $switched), qr/given up on this server: it was made under another primary.*has been built/s,
	'early: built when the new primary has vacuumed');

# event: another standby is promoted, also in a clean switchover
like(logged_since($early, 0), qr/are of timeline 1, and WAL is of timeline 2 now/, 'it says so');

# ---- the old primary, which had them too, after a clean switchover ----

$first->enable_streaming($late);
$first->start;
caught_up($late, $first);
both_valid($first, 'the old primary');
nothing_under_old_keys($first, 'the old primary', 5, 6, 7);

# ---- a snapshot that is older than a file, kept through a promotion ----

# (as many rows that the planner would take page scans and joins, which have no table to
# go to where an index scan has it)
$late->safe_psql('postgres', "INSERT INTO t SELECT 8, 'many', i FROM generate_series(1, 300) i; ANALYZE t");
caught_up($late, $first);
my $session = $first->background_psql('postgres', on_error_stop => 1);
$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $seen = $session->query_safe('SELECT count(n) FROM t WHERE k = 8');
cmp_ok($seen, '>', 0, 'snapshot: there are rows');
$late->safe_psql('postgres', 'DELETE FROM t WHERE k = 8');
caught_up($late, $first);
file_is_lost($first, 't_k', 'SELECT count(n) FROM t WHERE k = 8');
built_again($first, 't_k', 'snapshot');
both_valid($first, 'snapshot: built again after a deletion');
$late->stop('fast');
$first->promote;
$session->query_safe("$by_index; SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1000");
is($session->query_safe('SELECT count(n) FROM t WHERE k = 8'), $seen,
	'snapshot: it sees after the promotion what it has seen before');
is($session->query_safe('SELECT count(n) FROM (VALUES (8), (NULL)) v (k) JOIN t USING (k)'), $seen, 'snapshot: and by a join');
$session->query_safe('COMMIT');
is($session->query_safe('SELECT count(n) FROM t WHERE k = 8'), '0', 'snapshot: the next one does not');
like($session->query_safe('EXPLAIN SELECT * FROM t WHERE k = 8'), qr/t_k/, 'snapshot: by the index');
$session->quit;

# ---- after pg_rewind, killed before the first restartpoint ----

# The backup label takes pg_control back to before the checkpoint that it has at first.
$late->start;
$late->safe_psql('postgres', 'INSERT INTO t VALUES (1, \'lost\', 1)');
$first->safe_psql('postgres', "INSERT INTO t SELECT i, 'more', i FROM generate_series(1, 100) i; CHECKPOINT");
crash($late);
my $conf = slurp_file($late->data_dir . '/postgresql.conf');
command_ok([ 'pg_rewind', '--target-pgdata', $late->data_dir, '--no-sync',
		'--source-server', $first->connstr('postgres') ], 'pg_rewind');
unlink($late->data_dir . '/postgresql.conf');
append_to_file($late->data_dir . '/postgresql.conf', $conf);
$late->enable_streaming($first);
$late->start;
caught_up($first, $late);
both_valid($late, 'rewound');
my $position = log_position($late);
crash($late);
$late->start;
caught_up($first, $late);
both_valid($late, 'rewound and killed');
compare_in_snapshot($late, 'rewound and killed: answers');
unlike(logged_since($late, $position), qr/not trusted|has been built/, 'rewound and killed: with its files');
$late->promote;
compare_in_snapshot($late, 'rewound and promoted: answers');
unlike(logged_since($late, $position), qr/rebuil/, 'rewound and promoted: nothing is rebuilt');

$_->stop foreach $early, $late, $first;
done_testing();
