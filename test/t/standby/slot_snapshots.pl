# A logical slot that is made on a standby hands out a snapshot (from 16 on).  It is as of a
# place in WAL that may be long past by then, no transaction has it before, and it does not
# say that it is of a standby: a session that imports it sees all its rows nevertheless, before the
# promotion and after it, also by plans that were made for others.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_primary('primary', "wal_level = logical\n");

plan(skip_all => 'standbys have logical slots from 16 on') if $primary->pg_version < 16;

my $standby = new_standby($primary, 'standby', "max_standby_streaming_delay = -1\n");
my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
my $by_table = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off';
my $query = 'SELECT count(v) FROM %s WHERE k = 7';
my @walsenders;

# Begin to make a slot on the standby: it has a place in WAL, and waits for what comes.  With
# an option, and what the process is to do before.
sub begin_slot
{
	my ($option, @before) = @_;
	my $walsender = $standby->background_psql('postgres', replication => 'database', on_error_stop => 0);
	my $slot = 's' . @walsenders;

	push @walsenders, $walsender;
	$walsender->query_safe($_) foreach @before;
	$option //= '';
	$walsender->query_until(qr/begun/, "\\echo begun\nCREATE_REPLICATION_SLOT $slot TEMPORARY LOGICAL pgoutput $option;\n");
	$standby->poll_query_until('postgres', "SELECT restart_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name = '$slot'")
	  or die 'no slot';
	return $walsender;
}

# The snapshot that comes with it, which lasts as long as the process says nothing else.
sub slot_snapshot
{
	my ($walsender) = @_;
	my ($name) = $walsender->query_until(qr/\|[^|]+\|pgoutput/, '') =~ /\|([^|]+)\|pgoutput/;

	return $name;
}

# A test: a session that imports the snapshot sees that many rows of the table, by index and without it.
sub sees
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($table, $snapshot, $rows, $name) = @_;
	my $import = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'; ";
	my $count = sprintf($query, $table);

	is($standby->safe_psql('postgres', "$_; $import; $count"), $rows, "$name: $_") foreach $by_table, $by_index;
	return;
}

$primary->safe_psql('postgres', <<SQL);
CREATE TABLE p (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO p SELECT i, i FROM generate_series(8, 100) i;
INSERT INTO p SELECT 7, i FROM generate_series(1, 30) i;
CREATE TABLE q (k int4, v int4) WITH (autovacuum_enabled = off);
CREATE INDEX q_k ON q USING pmhash (k) WITH (wal = on);
INSERT INTO q SELECT 7, i FROM generate_series(1, 30) i;
SQL
caught_up($primary, $standby);
wait_for_state($standby, 'q_k', qr/^valid$/, 'q_k is built on the standby');

# A process that makes a slot is stopped.  When it hands its snapshot out, entries of rows
# that this sees have been removed, and there was no process to wait for.
my $writer = $primary->background_psql('postgres', on_error_stop => 0);
$writer->query_safe('BEGIN; INSERT INTO q VALUES (1, 1)');    # the slot is not made before it is over
caught_up($primary, $standby);
my $late = begin_slot();

# Another one is to have the snapshot itself, and a parallel worker for a plan of before.
my $user = begin_slot('USE_SNAPSHOT', "$by_index; SET debug_parallel_query = on; SET plan_cache_mode = force_generic_plan",
	'PREPARE in_worker AS ' . sprintf($query, 'q'), 'EXECUTE in_worker', 'BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ');
my @processes = split(/\n/, $standby->safe_psql('postgres', q{SELECT active_pid FROM pg_replication_slots}));

kill('STOP', @processes) == 2 or die $!;
$writer->query_safe('COMMIT');
$writer->quit;
$primary->safe_psql('postgres', 'SELECT pg_log_standby_snapshot()');
gone_with_entries($primary);
caught_up($primary, $standby);
is($standby->safe_psql('postgres', q(SELECT entries FROM pmhash_stats('q_k'))), 1, 'the entries have gone');
kill('CONT', @processes) == 2 or die $!;
my $removed_since = slot_snapshot($late);
sees('q', $removed_since, 30, 'removed since, on the standby');

# A test: the process that has made a slot sees all rows, in its worker too.
sub user_sees
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	is($user->query_safe('EXECUTE in_worker'), 30, "$name, in a parallel worker");
	is($user->query_safe(sprintf($query, 'q')), 30, "$name, by a new plan");
	return;
}

like($user->query_safe('SELECT 1'), qr/pgoutput\n1$/, 'the slot is made');
user_sees('a process that has made a slot');

# A build of an index leaves out rows that were deleted before, and that a snapshot sees.
my $slot = begin_slot();
$primary->safe_psql('postgres', 'SELECT pg_log_standby_snapshot()');
my $built_since = slot_snapshot($slot);
$primary->safe_psql('postgres', 'DELETE FROM p WHERE k = 7');
$primary->safe_psql('postgres', 'CREATE INDEX p_k ON p USING pmhash (k) WITH (wal = on)');
caught_up($primary, $standby);
wait_for_state($standby, 'p_k', qr/^valid$/, 'p_k is built on the standby');
sees('p', $built_since, 30, 'built since, on the standby');

$standby->promote;
$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
sees('p', $built_since, 30, 'built since, promoted');
sees('q', $removed_since, 30, 'removed since, promoted');
user_sees('the same, promoted');

# A plan that was made for others goes through the table.
my $session = $standby->background_psql('postgres', on_error_stop => 0);
my $import = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$built_since'";
$session->query_safe("$by_index; SET plan_cache_mode = force_generic_plan; PREPARE q AS " . sprintf($query, 'p'));
is($session->query_safe('EXECUTE q'), 0, 'a snapshot of its own');
like($session->query_safe('EXPLAIN EXECUTE q'), qr/Index Scan using p_k/, 'by the index');
is($session->query_safe("$import; EXECUTE q"), 30, 'an older snapshot, by that plan');
$session->query_safe('COMMIT');
like($session->query_safe('EXPLAIN ' . sprintf($query, 'p')), qr/Index Scan using p_k/, 'others go by the index');
$session->quit;
$_->quit foreach @walsenders;
$standby->stop;
$primary->stop;
done_testing();
