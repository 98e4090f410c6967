# What holds up the build of one index on a standby holds up no other: a table that is
# locked on the primary, before the build and in the middle of it (its transaction does, as
# any that writes, and the state says so); functions in expressions that never end.

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
my $builders = q(FROM pg_stat_activity WHERE backend_type = 'pmhash standby builder');

$primary->safe_psql('postgres', 'CREATE DATABASE db1');
install_extension($primary, 'db1');

# (no regular look comes meanwhile)
my $standby = new_standby($primary, 'standby', "pmhash.cleaner_naptime = 100000\nmax_standby_streaming_delay = 1s\n");
both_valid($standby, 'at first');

# ---- a table that is locked on the primary, with indexes that are there already ----

my $holder = $primary->background_psql('postgres');
my $locked = q(SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND mode = 'AccessExclusiveLock' AND granted);
$holder->query_safe('BEGIN; LOCK TABLE t');
$primary->safe_psql('postgres', 'CREATE TABLE u1 (k int); INSERT INTO u1 SELECT generate_series(1, 100); CREATE INDEX u1_k ON u1 USING pmhash (k) WITH (wal = on)');
$primary->safe_psql('db1', 'CREATE TABLE x (k int); INSERT INTO x SELECT generate_series(1, 100); CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = on)');
caught_up($primary, $standby);
my $waits = q{SELECT state LIKE 'building (0 _), waiting for transaction%' FROM pmhash_indexes WHERE index = };
ok($standby->poll_query_until('postgres', "$waits 'u1_k'"), 'beside a locked table: its turn comes');
ok($standby->poll_query_until('db1', "$waits 'x_k'"), 'beside a locked table: another database');
is($standby->safe_psql('postgres', $locked), '1', 'which is still locked');

# ---- a standby that begins meanwhile: no WAL names what is to be built ----

my $late = new_standby($primary, 'late', "pmhash.cleaner_naptime = 100000\n");
ok($late->poll_query_until('postgres', "$waits 'u1_k'"), 'another standby: the same');
is(standby_state($late, 't_k'), 'to be built', 'another standby: an index of the locked table');
$holder->query_safe('COMMIT');
caught_up($primary, $_) foreach $standby, $late;
wait_for_state($late, $_, qr/^valid$/, "another standby: the lock is gone: $_") foreach qw(t_k t_s u1_k);
$late->stop;
wait_for_state($standby, 'u1_k', qr/^valid$/, 'the lock is gone');
ok($standby->poll_query_until('db1', q(SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k')), 'the lock is gone: another database');

# ---- locked in the middle of the build: it ends, is no failure, and begins anew ----

$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION slowly(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN IF pg_is_in_recovery() THEN PERFORM pg_sleep(0.1); END IF; RETURN k; END';
CREATE TABLE m (k int, filler text) WITH (fillfactor = 10);
INSERT INTO m SELECT i, repeat('x', 700) FROM generate_series(1, 50) i;
CREATE INDEX m_k ON m USING pmhash (slowly(k)) WITH (wal = on);
SQL
caught_up($primary, $standby);
ok($standby->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pmhash_indexes WHERE index = 'm_k' AND state LIKE 'building%')), 'in the middle: it is being built');
$holder->query_safe('BEGIN; LOCK TABLE m');
# the lock's record is not flushed by itself (XLogBackgroundFlush: whole pages, commits)
$primary->safe_psql('postgres', 'CREATE TABLE flushes ()');
ok($standby->poll_query_until('postgres', q(SELECT state = 'to be built' FROM pmhash_indexes WHERE index = 'm_k')), 'in the middle: the build ends');
is($standby->safe_psql('postgres', "SELECT count(*) $builders"), '0', 'and its worker');
$holder->query_safe('COMMIT');
wait_for_state($standby, 'm_k', qr/^valid$/, 'in the middle: the lock is gone: built');

# ---- expressions that never end, on standbys ----

my $gate = $standby->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(7)');
$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION sleeps(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	WHILE pg_is_in_recovery() AND NOT pg_try_advisory_xact_lock_shared(7) LOOP PERFORM pg_sleep(0.2); END LOOP;
	RETURN k;
END $$;
SQL
foreach my $n (1 .. 3)
{
	$primary->safe_psql('postgres', "CREATE TABLE h$n (k int); INSERT INTO h$n VALUES (1); CREATE INDEX h${n}_k ON h$n USING pmhash (sleeps(k)) WITH (wal = on)");
	usleep(700_000);
}
$primary->safe_psql('postgres', 'CREATE INDEX h1_p ON h1 USING pmhash (k) WITH (wal = on) WHERE sleeps(k) = 1');
caught_up($primary, $standby);
ok($standby->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pmhash_indexes WHERE index ~ '^h\d_' AND state LIKE 'building%')), 'an expression: one index is being built');
$primary->safe_psql('postgres', "CREATE INDEX u1_p$_ ON u1 USING pmhash (k) WITH (wal = on)") foreach 1 .. 3;
$primary->safe_psql('db1', 'CREATE INDEX x_p ON x USING pmhash (k) WITH (wal = on)');
caught_up($primary, $standby);
wait_for_state($standby, "u1_p$_", qr/^valid$/, "beside an expression: u1_p$_") foreach 1 .. 3;
ok($standby->poll_query_until('db1', q(SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_p')), 'beside an expression: another database');
is($standby->safe_psql('postgres', q(SELECT count(*) FROM pmhash_indexes WHERE index ~ '^h\d_' AND state = 'valid')), '0', 'which has not ended');
like($standby->safe_psql('postgres', "SELECT query $builders AND state = 'active'"), qr/^building the file of pmhash index public\.h\d_[kp]$/,
	'pg_stat_activity names the index');

# Ended by hand, and held up again; a conflict with replay takes turns as well.
$standby->safe_psql('postgres', "SELECT pg_terminate_backend(pid) $builders");
ok($standby->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pmhash_indexes WHERE index ~ '^h\d_' AND state LIKE 'building%')), 'ended by hand: another one comes');
$gate->query_safe('SELECT pg_advisory_unlock(7)');
wait_for_state($standby, $_, qr/^valid$/, "the gate is open: $_") foreach qw(h1_k h2_k h3_k h1_p);
$gate->quit;
$holder->quit;
compare_in_snapshot($standby, 'answers');

$_->stop foreach $standby, $primary;
done_testing();
