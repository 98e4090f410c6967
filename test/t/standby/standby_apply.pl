# A standby follows: it builds the files of logged indexes, applies what the primary
# does to them, answers as its own tables do in each snapshot, and goes on as a
# primary at once.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $primary = new_primary('primary');
my $standby = new_standby($primary, 'standby');

# ---- built, used, shown ----

wait_for_state($standby, $_, qr/^valid$/, "$_ is built") foreach qw(t_k t_s);
caught_up($primary, $standby);
like(plan_of($standby, 'SELECT * FROM t WHERE k = 5'), qr/t_k/, 'plans use it');
like(plan_of($standby, 'SELECT k FROM t WHERE k = 5', 'SET enable_bitmapscan = off; SET enable_seqscan = off; '),
	qr/Index Only Scan using t_k/, 'plans use it for index-only scans');
compare_in_snapshot($standby, 'right after the build');
no_findings($standby, 'pmhash_check finds nothing');
is($standby->safe_psql('postgres', q(SELECT entries FROM pmhash_stats('t_k'))), 10000,
	'pmhash_stats counts');
is($standby->safe_psql('postgres', 'SELECT live, building FROM pmhash_standby()'), '2|0',
	'pmhash_standby() counts files');
is($primary->safe_psql('postgres', 'SELECT pmhash_standby() IS NULL'), 't',
	'and is NULL on a primary');

# ---- everything that changes entries ----

$primary->safe_psql('postgres', <<SQL);
INSERT INTO t SELECT i, 'text ' || i % 1000, i FROM generate_series(5000, 5999) i;
INSERT INTO t VALUES (7, 'text 7', 1);
UPDATE t SET k = k + 10000 WHERE n % 11 = 0;
DELETE FROM t WHERE n % 13 = 0;
BEGIN; INSERT INTO t SELECT 42, 'gone', i FROM generate_series(1, 500) i; ROLLBACK;
VACUUM t;
INSERT INTO t SELECT i, 'again ' || i % 100, i FROM generate_series(20000, 21999) i;
SQL
caught_up($primary, $standby);
compare_in_snapshot($standby, 'after inserts, updates, deletes, VACUUM');
no_findings($standby, 'pmhash_check finds nothing afterwards');
is($standby->safe_psql('postgres', q(SELECT entries FROM pmhash_stats('t_k'))),
	$primary->safe_psql('postgres', q(SELECT entries FROM pmhash_stats('t_k'))),
	'as many entries as on the primary');

# ---- new, replaced, dropped indexes; on and off ----

$primary->safe_psql('postgres', <<SQL);
CREATE TABLE u (k bigint);
INSERT INTO u SELECT i % 500 FROM generate_series(1, 5000) i;
CREATE INDEX u_k ON u USING pmhash (k) WITH (wal = on);
CREATE INDEX u_off ON u USING pmhash (k) WITH (wal = off);
REINDEX INDEX t_s;
SQL
caught_up($primary, $standby);
wait_for_state($standby, 'u_k', qr/^valid$/, 'a new index is built');
wait_for_state($standby, 't_s', qr/^valid$/, 'so is one that was reindexed');
like(standby_state($standby, 'u_off'), qr/^absent/, 'one that is not logged is not');
compare_in_snapshot($standby, 'after REINDEX');
$primary->safe_psql('postgres', 'ALTER INDEX u_off SET (wal = on); ALTER INDEX u_k SET (wal = off); REINDEX TABLE u');
caught_up($primary, $standby);
wait_for_state($standby, 'u_off', qr/^valid$/, 'until it is logged');
wait_for_state($standby, 'u_k', qr/^absent/, 'and the other way');
$primary->safe_psql('postgres', 'INSERT INTO u SELECT i FROM generate_series(1, 300) i');
caught_up($primary, $standby);
is($standby->safe_psql('postgres', q(SELECT by_index FROM every_key('u', 'k', 'u_off'))), 'same',
	'its answers');
my @before = index_files(pool($standby));
$primary->safe_psql('postgres', 'DROP TABLE u');
caught_up($primary, $standby);
wait_for_files(pool($standby), @before - 1, 'the file of a dropped index goes');

# ---- what is logged if nothing is said ----

is($primary->safe_psql('postgres', 'SHOW pmhash.wal'), 'on', 'default: logged');
$primary->safe_psql('postgres', <<'SQL');
CREATE INDEX t_said_nothing ON t USING pmhash (n);
CREATE INDEX t_said_off ON t USING pmhash (n) WITH (wal = off);
SQL
caught_up($primary, $standby);
wait_for_state($standby, 't_said_nothing', qr/^valid$/, 'default: the standby has it');
like(standby_state($standby, 't_said_off'), qr/^absent: the index is not logged/, 'default: not if it says off');
$primary->safe_psql('postgres', 'DROP INDEX t_said_nothing, t_said_off');

# ---- under load, in each snapshot ----

my $bench = $primary->basedir . '/standby_load.sql';
append_to_file($bench, <<'SQL');
\set k random(1, 2000)
\set n random(1, 1000000)
INSERT INTO t VALUES (:k, 'text ' || :k % 500, :n);
UPDATE t SET k = k + 1 WHERE k = :k;
UPDATE t SET n = n + 1 WHERE k = :k + 1;
DELETE FROM t WHERE k = :k + 5;
SQL
my $output = '';
my $load = start_pgbench($primary, \$output, '-c', '4', '-T', '25', '-f', $bench);
my $rounds = 0;
my $until = time + 22;
while (time < $until)
{
	last if !compare_in_snapshot($standby, 'under load, round ' . ++$rounds);
	$primary->safe_psql('postgres', 'VACUUM t') if $rounds % 3 == 0;
	$primary->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = ANY (ARRAY(SELECT generate_series(1, 2000)))')
	  if $rounds % 3 == 1;
}
$load->finish;
like($output, qr/transactions actually processed/, 'the load has run') or diag($output);
caught_up($primary, $standby);
compare_in_snapshot($standby, 'after the load');
no_findings($standby, 'pmhash_check finds nothing after the load');

# ---- promotion: at once, without a rebuild ----

my @files = index_files(pool($standby));
my $position = log_position($standby);
my $session = $standby->background_psql('postgres', on_error_stop => 1);
$session->query_safe("SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5");
$standby->promote;
like(plan_of($standby, 'SELECT * FROM t WHERE k = 5'), qr/t_k/, 'promoted: plans use it at once');
compare_in_snapshot($standby, 'promoted: the same answers');
$session->query_safe("INSERT INTO t VALUES (424242, 'by an old session', 1)");
$session->quit;
is($standby->safe_psql('postgres', "SELECT s FROM t WHERE k = 424242"), 'by an old session',
	'what a session of before inserts is found');
$standby->safe_psql('postgres', <<SQL);
INSERT INTO t SELECT i, 'new ' || i % 10, i FROM generate_series(30000, 31000) i;
DELETE FROM t WHERE k % 17 = 0;
VACUUM t;
INSERT INTO t SELECT i, 'newer ' || i % 10, i FROM generate_series(40000, 41000) i;
SQL
compare_in_snapshot($standby, 'promoted: after changes');
no_findings($standby, 'pmhash_check finds nothing on the new primary');
is_deeply([ index_files(pool($standby)) ], \@files, 'the files are the same');
unlike(logged_since($standby, $position), qr/has been rebuilt|could not rebuild|not trusted/, 'nothing was rebuilt');

# ---- and it crashes ----

crash($standby);
$standby->start;
compare_in_snapshot($standby, 'crashed right after: the same answers');
is_deeply([ index_files(pool($standby)) ], \@files, 'and the same files');
$standby->stop;
$primary->stop;

done_testing();
