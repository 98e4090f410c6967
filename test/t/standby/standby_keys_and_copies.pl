# Standbys: keys that are made of values out of line while VACUUM takes these away,
# copies of databases by either strategy, and scans, which change nothing.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashStandbyBuild;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $primary = new_primary('primary', "pmhash.wal = on\n");
my $standby = new_standby($primary, 'standby', "test.slow = on\n");

sub setting
{
	my ($line) = @_;

	$standby->append_conf('postgresql.conf', "$line\n");
	$standby->reload;
	return;
}

# ---- keys of values out of line, which VACUUM takes away while they are made ----

# The value is read after the pause, so the chunks are looked for when replay has had
# the time to come to the VACUUM.  With a long delay replay waits for the builder's
# snapshot, with none it cancels the builder again and again.
$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION slow_key(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('test.slow', true) = 'on' THEN
		PERFORM pg_sleep(0.01);
	END IF;
	RETURN substr(t, 1, 40);
END $$;
CREATE TABLE long_one (k text, n int) WITH (autovacuum_enabled = off);
ALTER TABLE long_one ALTER k SET STORAGE EXTERNAL;
INSERT INTO long_one SELECT repeat(md5((i % 70)::text), 100), i FROM generate_series(1, 500) i;
SQL
foreach my $delay ('60s', '0')
{
	my $position = log_position($standby);
	my $rounds = 0;

	setting("max_standby_streaming_delay = $delay");
	setting('test.slow = on');
	$primary->safe_psql('postgres', <<'SQL');
DROP INDEX IF EXISTS long_one_key;
CREATE INDEX long_one_key ON long_one USING pmhash (slow_key(k));
SQL
	$standby->poll_query_until('postgres', "SELECT state LIKE 'building%' FROM pmhash_indexes WHERE index = 'long_one_key'")
	  or die 'it is not built';
	# A build that was cancelled pauses before it begins anew, longer each time.
	for (my $round = 1; $round <= 12 || ($rounds < 3 && $round <= 150); $round++)
	{
		my ($r13, $r17) = ($round % 13, $round % 17);

		$primary->safe_psql('postgres', $_) foreach (
			"DELETE FROM long_one WHERE n % 13 = $r13",
			'VACUUM long_one',
			"INSERT INTO long_one SELECT repeat(md5((i % 90)::text), 100), i FROM generate_series(1, 40) i",
			"UPDATE long_one SET k = repeat(md5((n % 60)::text), 100) WHERE n % 17 = $r17");
		$rounds++ if $standby->safe_psql('postgres', "SELECT state FROM pmhash_indexes WHERE index = 'long_one_key'") =~ /^building/;
		usleep(100_000);
	}
	cmp_ok($rounds, '>=', 3, "delay $delay: the table was vacuumed beside the build");
	setting('test.slow = off');
	built($primary, $standby, "delay $delay");
	is($standby->safe_psql('postgres', <<'SQL'), "0\n", "delay $delay: by index as in the table");
SET enable_bitmapscan = off;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM (SELECT slow_key(k) AS key, count(*) FROM long_one GROUP BY 1) wanted,
	LATERAL (SELECT count(*) FROM long_one WHERE slow_key(k) = wanted.key) got (n) WHERE got.n <> wanted.count;
COMMIT;
SELECT pmhash_check('long_one_key');
SQL
	like(plan_of($standby, "SELECT * FROM long_one WHERE slow_key(k) = 'x'", 'SET enable_seqscan = off;'), qr/long_one_key/,
		"delay $delay: plans use it");
	unlike(logged_since($standby, $position), qr/missing chunk|unexpected chunk|could not build/, "delay $delay: all chunks were there");
}

# ---- scans on a standby change nothing ----

setting('max_standby_streaming_delay = 60s');
$primary->safe_psql('postgres', 'DELETE FROM t WHERE k < 50');
caught_up($primary, $standby);
my $entries = q(SELECT entries FROM pmhash_stats('t_k'));
my $before = $standby->safe_psql('postgres', $entries);
$standby->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_bitmapscan = off; '
	  . 'SELECT count(n) FROM t WHERE k = ANY (ARRAY(SELECT generate_series(1, 49))); ' x 20);
is($standby->safe_psql('postgres', $entries), $before, 'scans: the entries of dead rows stay');
$primary->safe_psql('postgres', 'VACUUM t');
caught_up($primary, $standby);
cmp_ok($standby->safe_psql('postgres', $entries), '<', $before, 'scans: VACUUM of the primary removes them');

# ---- copies of databases ----

$primary->safe_psql('postgres', 'CREATE DATABASE original');
install_extension($primary, 'original');
$primary->safe_psql('original', <<'SQL');
CREATE TABLE x (k int);
INSERT INTO x SELECT i % 10 FROM generate_series(1, 1000) i;
CREATE INDEX x_k ON x USING pmhash (k);
CREATE UNLOGGED TABLE u (k int);
CREATE INDEX u_k ON u USING pmhash (k);
SQL
$standby->poll_query_until('original', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'") or die;
foreach my $strategy (qw(wal_log file_copy))
{
	my $copy = "by_$strategy";

	$primary->safe_psql('postgres', "CREATE DATABASE $copy TEMPLATE original STRATEGY $strategy");
	$primary->safe_psql($_, 'DELETE FROM x WHERE k = 3; VACUUM x; INSERT INTO x SELECT 11 FROM generate_series(1, 60)')
	  foreach 'original', $copy;
	foreach my $database ('original', $copy)
	{
		$primary->poll_query_until($database, "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'") or die;
		caught_up($primary, $standby);
		ok($standby->poll_query_until($database, "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'"),
			"$strategy: built in $database");
		same_as_heap($standby, 'x', 'k', 'x_k', "$strategy: $database", $database);
	}
	$primary->safe_psql('original', 'INSERT INTO x SELECT 3 FROM generate_series(1, 100)');
}
$standby->promote;
foreach my $database (qw(original by_wal_log by_file_copy))
{
	same_as_heap($standby, 'x', 'k', 'x_k', "promoted: $database", $database);
}
$standby->stop;
$primary->stop('immediate');
done_testing();
