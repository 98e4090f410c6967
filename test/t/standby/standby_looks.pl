# A build that is due is found, whatever ends the builder that was to find it, and though
# WAL says nothing of it: builders that are terminated while they wait; a file
# that goes by WAL, with a transaction that fails then; an expression that fails with what
# a conflict has; a database that takes no connections.

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
my $builder = q(FROM pg_stat_activity WHERE backend_type = 'pmhash standby builder' AND query LIKE 'building%');

# ---- builders are terminated while they wait ----

# (no regular look comes meanwhile)
my $holder = $primary->background_psql('postgres');
$holder->query_safe('BEGIN; CREATE TABLE holds_builds (k int)');
my $standby = new_standby($primary, 'standby', "pmhash.cleaner_naptime = 100000\n");
foreach my $how ('pg_terminate_backend', 'pg_cancel_backend')
{
	ok($standby->poll_query_until('postgres', "SELECT count(*) = 2 $builder"), "$how: two builders wait for a transaction");
	my $pid = $standby->safe_psql('postgres', "SELECT min(pid) $builder");
	$standby->safe_psql('postgres', "SELECT $how($pid)");
	ok($standby->poll_query_until('postgres', "SELECT count(*) = 2 $builder AND pid <> $pid"), "$how: another one comes");
}
$holder->query_safe('ROLLBACK');
$holder->quit;
wait_for_state($standby, $_, qr/^valid$/, "terminated: $_ is built") foreach qw(t_k t_s);
$standby->append_conf('postgresql.conf', "pmhash.cleaner_naptime = 1\n");
$standby->reload;

# ---- WAL says that a file goes, and the transaction fails ----

# A write skew: the first to commit wins, and what the other one drops stays.
sleep 2;	# past the looks that the builds have requested
$primary->safe_psql('postgres', 'CREATE TABLE a (x int); CREATE TABLE b (x int); INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)');
my $one = $primary->background_psql('postgres', on_error_stop => 0);
my $two = $primary->background_psql('postgres', on_error_stop => 0);
$one->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE');
$two->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE');
$one->query_safe('SELECT sum(x) FROM a');
$two->query_safe('SELECT sum(x) FROM b');
$two->query_safe('INSERT INTO a VALUES (2)');
$one->query_safe('INSERT INTO b VALUES (2)');
$one->query_safe('DROP INDEX t_k');
$two->query_safe('COMMIT');
my $from = $primary->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
my $position = log_position($primary);
my $built = log_position($standby);
$one->query('COMMIT');
like(logged_since($primary, $position), qr/could not serialize access due to read\/write dependencies/, 'dropped in vain: the transaction fails');
$_->quit foreach $one, $two;
$primary->safe_psql('postgres', q(INSERT INTO t VALUES (50001, 'after', 1)));
install_wal_records($primary);
is($primary->safe_psql('postgres', "SELECT type FROM pmhash_wal_records('$from', pg_current_wal_flush_lsn()) ORDER BY record_start LIMIT 1"),
	'FILE_GONE', 'dropped in vain: WAL says that the file goes');
caught_up($primary, $standby);
ok($standby->wait_for_log(qr/"t_k" has been built/, $built), 'dropped in vain: the standby builds it again');
wait_for_state($standby, 't_k', qr/^valid$/, 'dropped in vain: it has it');
compare_in_snapshot($standby, 'dropped in vain: answers');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 50001'), '1', 'dropped in vain: what came later');

# ---- an expression fails with the SQLSTATE of a conflict: the others are built ----

# (One worker builds all that have expressions: it is to come to those after the first.)
$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION fails_on_standbys(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN IF pg_is_in_recovery() THEN RAISE ''not here'' USING ERRCODE = ''40001''; END IF; RETURN k; END';
CREATE TABLE e (k int, l int);
INSERT INTO e SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX e_f ON e USING pmhash (fails_on_standbys(k)) WITH (wal = on);
SQL
$primary->safe_psql('postgres', "CREATE INDEX e_l$_ ON e USING pmhash ((l + 0)) WITH (wal = on)") foreach 1 .. 4;
caught_up($primary, $standby);
wait_for_state($standby, "e_l$_", qr/^valid$/, "beside one that fails: e_l$_") foreach 1 .. 4;
unlike(standby_state($standby, 'e_f'), qr/^valid/, 'which has no file');
$primary->safe_psql('postgres', 'DROP TABLE e');

# ---- a database that takes no connections when it is its turn ----

$primary->safe_psql('postgres', 'CREATE DATABASE db1');
install_extension($primary, 'db1');
$primary->safe_psql('db1', 'CREATE TABLE x (k int); CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = on)');
$primary->safe_psql('postgres', 'ALTER DATABASE db1 ALLOW_CONNECTIONS off');
my $late = new_standby($primary, 'late');
both_valid($late, 'late');
sleep 1;
$primary->safe_psql('postgres', 'ALTER DATABASE db1 ALLOW_CONNECTIONS on');
caught_up($primary, $late);
ok($late->poll_query_until('db1', q(SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k')), 'no connections, and then some: built');

# ---- databases without indexes of ours are looked at once ----

$late->append_conf('postgresql.conf', "log_min_messages = debug1\n");
$late->reload;
$primary->safe_psql('postgres', 'CREATE DATABASE plain');
caught_up($primary, $late);
my $plain = $primary->safe_psql('postgres', q(SELECT oid FROM pg_database WHERE datname = 'plain'));
sleep 5;	# some regular looks
is(scalar(() = slurp_file($late->logfile) =~ /starting background worker process "pmhash standby builder for database $plain"/g), 1,
	'a database without the extension: looked at once');
$_->stop foreach $late, $standby, $primary;
done_testing();
