# A snapshot that was taken on a standby, and lives on after its promotion, is older than
# what the standby's index file serves: statements that have it do without the index, also
# those whose plan was made for others.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# What a session answers, or its error.
sub answer
{
	my ($session, $sql) = @_;

	$session->{stderr} = '';
	return $session->query($sql) . $session->{stderr};
}

# A plan without the index, which is made when that is not to be used; later others have it.
sub plan_without
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($session, $name, $query, $rows) = @_;

	is(answer($session, "SET plan_cache_mode = force_generic_plan; PREPARE $name AS $query; EXECUTE $name"), $rows, "$name: the rows");
	unlike($session->query_safe("EXPLAIN EXECUTE $name"), qr/p_k/, "$name: without the index");
	return;
}

sub plan_has_index
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($session, $name) = @_;

	return like($session->query_safe("EXPLAIN EXECUTE $name"), qr/Index Only Scan using p_k/, "$name: the plan is not kept");
}

my $primary = new_primary('primary');
my $standby = new_standby($primary, 'standby', "max_standby_streaming_delay = -1\n");
my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
my $query = 'SELECT count(*) FROM p WHERE k = 7';

$primary->safe_psql('postgres', <<SQL);
CREATE TABLE p (k int4) WITH (autovacuum_enabled = off);
INSERT INTO p SELECT i FROM generate_series(1, 5000) i;
INSERT INTO p SELECT 7 FROM generate_series(1, 99) i;
SQL
caught_up($primary, $standby);

# Whoever builds the index now leaves out what is dead, so it is not for older snapshots.
my $keeper = $standby->background_psql('postgres', on_error_stop => 0);
my $one = $standby->background_psql('postgres', on_error_stop => 0);
is($one->query_safe("$by_index; BEGIN ISOLATION LEVEL REPEATABLE READ; $query"), 100, 'another one has an old snapshot');
my $snapshot = $keeper->query_safe("$by_index; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()");
is($keeper->query_safe($query), 100, 'the rows of an old snapshot');
$primary->safe_psql('postgres', 'DELETE FROM p WHERE k = 7');
$primary->safe_psql('postgres', 'CREATE INDEX p_k ON p USING pmhash (k) WITH (wal = on)');
caught_up($primary, $standby);
wait_for_state($standby, 'p_k', qr/^valid$/, 'built on the standby');
is($keeper->query_safe($query), 100, 'the same on the standby');
plan_without($one, 'on_standby', $query, 100);
$one->query_safe('COMMIT');
plan_has_index($one, 'on_standby');
$one->quit;

# A plan that was made for others says why it does not go by the index, and is made anew.
# trouble: `pmhash index "..." is younger than the snapshot`
my $younger = qr/ERROR:  pmhash index "p_k" is younger than the snapshot\nDETAIL:  It may lack rows that the snapshot sees, and the statement has been planned with it\.\nHINT:  Try again: the statement is planned anew\.\s*$/;
my $other = $standby->background_psql('postgres', on_error_stop => 0);
my $exported = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'";
$other->query_safe("$by_index; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query; EXECUTE q");
like(answer($other, "$exported; EXECUTE q"), $younger, 'an older plan on the standby');
is(answer($other, "ROLLBACK; $exported; EXECUTE q"), '100', 'the same, tried again');
$other->quit;

# That is so in the same transaction, too, which has all locks from before; also if it is a
# parallel worker that meets it.
my $parallel = $primary->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
foreach my $mode ('off', 'on')
{
	$other = $standby->background_psql('postgres', on_error_stop => 0);
	$other->query_safe("$by_index; SET $parallel = $mode; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query; EXECUTE q");
	$other->query_safe("$exported; SELECT FROM p LIMIT 0; SAVEPOINT s");
	like(answer($other, 'EXECUTE q'), qr/^psql:\S+ ERROR:  pmhash index "p_k" is younger than the snapshot/, "$parallel = $mode: an older plan, in a subtransaction");
	is(answer($other, 'ROLLBACK TO s; EXECUTE q'), '100', "$parallel = $mode: the same, tried again in this transaction");
	$other->quit;
}

# It is no finding either that the index lacks these rows.
# trouble: `index "..." cannot be checked using the transaction's snapshot`
my $unfit = qr/ERROR:  index "p_k" cannot be checked using the transaction's snapshot/;
like(answer($keeper, "SAVEPOINT s; SELECT pmhash_check('p_k')"), $unfit, 'not checked with that snapshot');
is(answer($keeper, "ROLLBACK TO s; SELECT pmhash_check('p_k', false)"), '', 'but the file alone');

$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
is(answer($keeper, "SAVEPOINT s; $query"), '100', 'the same after the promotion');
$keeper->query('ROLLBACK TO s');
like(answer($keeper, "SELECT pmhash_check('p_k')"), $unfit, 'not checked after the promotion');
is(answer($keeper, "ROLLBACK TO s; SELECT pmhash_check('p_k', false)"), '', 'but the file alone');
is(standby_state($standby, 'p_k'), 'valid', 'and it is left alone');
is($standby->safe_psql('postgres', q(SELECT pmhash_check('p_k'))), '', 'with another snapshot: no findings');

my $import = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'";
my $session = $standby->background_psql('postgres', on_error_stop => 0);
$session->query_safe("$by_index; SET plan_cache_mode = force_generic_plan; PREPARE q AS $query");
is($session->query_safe('EXECUTE q'), 0, 'a snapshot of its own');
like($session->query_safe('EXPLAIN EXECUTE q'), qr/Index Only Scan using p_k/, 'by the index');

# What was planned before is an error that says to try again; then that helps.
$session->query("$import; EXECUTE q");
like($session->{stderr}, $younger, 'an old snapshot, an older plan: not by the index');
$session->query('ROLLBACK');
is(answer($session, "$import; EXECUTE q"), '100', 'an old snapshot, tried again');
$session->query('ROLLBACK');
is(answer($session, 'EXECUTE q'), '0', 'a snapshot of its own, by that plan');

# What is planned with the snapshot has another plan at once.
is(answer($session, "$import; $query"), '100', 'an old snapshot, planned with it');
$session->query('COMMIT');
like($session->query_safe("EXPLAIN $query"), qr/Index Only Scan using p_k/, 'others go by the index');
plan_without($keeper, 'after_promotion', $query, 100);
$keeper->query_safe('COMMIT');
plan_has_index($keeper, 'after_promotion');
$session->quit;
$keeper->quit;
$standby->stop;

# The same of a file that was built before a restart, after which replay begins before that.
my $again = new_standby($primary, 'again', "max_standby_streaming_delay = -1\nbgwriter_lru_maxpages = 0\n");
wait_for_state($again, 'p_k', qr/^valid$/, 'restarted: built');
$primary->safe_psql('postgres', 'INSERT INTO p SELECT 7 FROM generate_series(1, 50) i; CHECKPOINT');
caught_up($primary, $again);
$again->safe_psql('postgres', 'CHECKPOINT');
$primary->safe_psql('postgres', 'DELETE FROM p WHERE k = 7');
caught_up($primary, $again);
unlink(index_file($again, 'p_k')) or die;
is($again->safe_psql('postgres', "$by_index; $query"), 0, 'restarted: the file is missed');
wait_for_state($again, 'p_k', qr/^valid$/, 'restarted: built once more');
crash($again);
$again->append_conf('postgresql.conf', "recovery_min_apply_delay = '1h'\n");
$again->start;
$keeper = $again->background_psql('postgres', on_error_stop => 0);
is($keeper->query_safe("$by_index; BEGIN ISOLATION LEVEL REPEATABLE READ; $query"), 50, 'restarted: the rows of an old snapshot');
$one = $again->background_psql('postgres', on_error_stop => 0);
$one->query_safe($by_index);
plan_without($one, 'before_replay', $query, 50);
$again->append_conf('postgresql.conf', "recovery_min_apply_delay = 0\n");
$again->reload;
caught_up($primary, $again);
wait_for_state($again, 'p_k', qr/^valid$/, 'restarted: the file is in use again');
is($keeper->query_safe($query), 50, 'restarted: the same rows');
plan_has_index($one, 'before_replay');
$one->quit;
$again->promote;
$again->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
is($keeper->query_safe($query), 50, 'restarted: the same rows after the promotion');
is($again->safe_psql('postgres', "$by_index; $query"), 0, 'restarted: none for others');
like($again->safe_psql('postgres', "$by_index; EXPLAIN $query"), qr/Index Only Scan using p_k/, 'restarted: they go by the index');
$keeper->quit;
$again->stop;
$primary->stop;
done_testing();
