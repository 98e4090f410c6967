# A snapshot of a standby is handed on while replay waits for the session that has it, before
# the entries of rows that it sees are removed: replay goes on when that session is over, and
# does not look again.  The one that has taken it over sees all its rows nevertheless, on the
# standby and after its promotion, and condemns no index.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_primary('primary');
my $standby = new_standby($primary, 'standby', "max_standby_streaming_delay = -1\n");
my $old = $standby->background_psql('postgres', on_error_stop => 0);
my $taker = $standby->background_psql('postgres', on_error_stop => 0);
my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexscan = on';
my $by_table = 'SET enable_seqscan = on; SET enable_indexscan = off; SET enable_bitmapscan = off';
my $query = 'SELECT count(v) FROM q WHERE k = 7';

# A test: the session sees that many rows, by a plan of before, by a new one, and by the table.
sub sees
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($rows, $name) = @_;

	is($taker->query_safe("$by_index; EXECUTE before"), $rows, "$name: a plan of before");
	is($taker->query_safe($query), $rows, "$name: by the index, if it may");
	is($taker->query_safe("$by_table; $query"), $rows, "$name: by the table");
	return;
}

$primary->safe_psql('postgres', <<SQL);
CREATE TABLE q (k int4, v int4) WITH (autovacuum_enabled = off);
CREATE INDEX q_k ON q USING pmhash (k) WITH (wal = on);
INSERT INTO q SELECT 7, i FROM generate_series(1, 30) i;
INSERT INTO q VALUES (1, 1);
SQL
caught_up($primary, $standby);
wait_for_state($standby, 'q_k', qr/^valid$/, 'q_k is built on the standby');
$taker->query_safe("SET plan_cache_mode = force_generic_plan; $by_index; PREPARE before AS $query; EXECUTE before");

my $snapshot = $old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
gone_with_entries($primary);
$standby->poll_query_until('postgres',
	q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'startup' AND wait_event = 'RecoveryConflictSnapshot')})
  or die 'replay does not wait';
$taker->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'");
$old->query_safe('COMMIT');
caught_up($primary, $standby);
is($standby->safe_psql('postgres', q(SELECT entries FROM pmhash_stats('q_k'))), 1, 'the entries have gone');
sees(30, 'on the standby');
$taker->query("SAVEPOINT s; SELECT pmhash_check('q_k')");
like($taker->{stderr}, qr/cannot be checked using the transaction's snapshot/, 'no check by this snapshot');
$taker->{stderr} = '';
$taker->query_safe('ROLLBACK TO s');
is(standby_state($standby, 'q_k'), 'valid', 'nor one that condemns the index');

$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
sees(30, 'promoted');
$taker->query_safe('COMMIT');
sees(0, 'promoted, by another snapshot');
like($taker->query_safe("$by_index; EXPLAIN $query"), qr/q_k/, 'that uses the index');
$_->quit foreach $old, $taker;
$standby->stop;
$primary->stop;
done_testing();
