# What logging of indexes must not do: give a standby an entry twice.

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

my $primary = new_primary('primary', "pmhash.wal = off\n");

# ---- CREATE INDEX CONCURRENTLY: a standby that builds before it is complete ----

# The scan of the index waits at a row of 0 as long as a session has the lock.
$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION wait_at(k int8) RETURNS int8 IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN WHILE k = 0 AND NOT pg_try_advisory_xact_lock(1) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN k; END';
CREATE TABLE c (k int8) WITH (autovacuum_enabled = off);
INSERT INTO c SELECT i % 50 FROM generate_series(0, 499) i;
SQL
my $standby = new_standby($primary, 'standby');
my $gate = $primary->background_psql('postgres');
my $holder = $primary->background_psql('postgres');
my $maker = $primary->background_psql('postgres');

$gate->query_safe('SELECT pg_advisory_lock(1)');
$maker->query_until(qr/begun/,
	"\\echo begun\nCREATE INDEX CONCURRENTLY c_w ON c USING pmhash (wait_at(k)) WITH (wal = on);\n");
$primary->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%' AND wait_event = 'PgSleep'")
  or die 'the scan does not wait';
$primary->safe_psql('postgres', 'INSERT INTO c VALUES (7)');
$holder->query_safe('BEGIN; LOCK TABLE c IN ROW EXCLUSIVE MODE');
$gate->query_safe('SELECT pg_advisory_unlock(1)');
$primary->poll_query_until('postgres',
	"SELECT indisready FROM pg_index WHERE indexrelid = 'c_w'::regclass")
  or die 'the first scan does not end';
caught_up($primary, $standby);
sleep 3;	# time enough for a build
is(standby_state($standby, 'c_w'), 'not valid: its CREATE INDEX or REINDEX has not been completed',
	'not built before it is complete');
$holder->query_safe('COMMIT');
$primary->poll_query_until('postgres',
	"SELECT indisvalid FROM pg_index WHERE indexrelid = 'c_w'::regclass")
  or die 'the index is not completed';
caught_up($primary, $standby);
wait_for_state($standby, 'c_w', qr/^valid$/, 'built when it is complete');
is($standby->safe_psql('postgres', "SELECT entries FROM pmhash_stats('c_w')"), 501,
	'each entry once');
is($standby->safe_psql('postgres', <<'SQL'), 11, 'each row once');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM c WHERE wait_at(k) = 7;
SQL

$_->quit foreach $gate, $holder, $maker;
done_testing();
