# A standby that is killed while it builds the file of an index, at each step of
# that; and the same steps held while the primary goes on.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashStandbyBuild;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $install = install_with_stop_points();
my $primary = new_primary('stops_primary', "pmhash.wal = on\n", install_path => $install);

$primary->safe_psql('postgres', <<'SQL');
CREATE FUNCTION slowly(k int8) RETURNS int8 IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN IF k = 0 THEN PERFORM pg_sleep(0.1); END IF; RETURN k; END';
CREATE TABLE a (k int8, v int4) WITH (fillfactor = 60, autovacuum_enabled = off);
INSERT INTO a SELECT i % 500, i FROM generate_series(0, 4999) i;
CREATE INDEX a_k ON a USING pmhash (k);
CREATE INDEX a_slow ON a USING pmhash (slowly(k));
SQL
my $standby = made_standby($primary, 'stops_standby', "max_standby_streaming_delay = 300s\n", install_path => $install);
use_stop_points($standby);
$standby->start;

sub all_right
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	built($primary, $standby, $name);
	same_as_heap($standby, 'a', 'k', 'a_k', $name);
	is($standby->safe_psql('postgres', <<SQL), '0', "$name: a_slow") if $name =~ /scanning/;
SET enable_seqscan = off; SET enable_bitmapscan = off;
SELECT count(*) FROM (SELECT k, count(*) FROM a WHERE k > 0 GROUP BY 1) wanted (k, n),
	LATERAL (SELECT count(*) FROM a WHERE slowly(k) = wanted.k) got (n) WHERE got.n <> wanted.n
SQL
	return;
}

all_right('begin');
foreach my $point (qw(standby_begun standby_waited standby_scanning standby_scanned
	standby_loaded standby_caught_up standby_published))
{
	my $index = $point eq 'standby_scanning' ? 'a_slow' : 'a_k';

	foreach my $kill (0, 1)
	{
		my $name = ($kill ? 'killed' : 'held') . " at $point";

		hold($point);
		$primary->safe_psql('postgres', "REINDEX INDEX $index");
		is_held($point, $name);
		write_all_ways($primary, 'a');
		caught_up($primary, $standby);
		if ($kill)
		{
			crash($standby);
			release($point);
			$standby->start;
			write_all_ways($primary, 'a');
		}
		else
		{
			release($point);
		}
		all_right($name);
	}
}

# the worker alone is killed: all processes of the server start again
hold('standby_loaded');
$primary->safe_psql('postgres', 'REINDEX INDEX a_k');
is_held('standby_loaded', 'the builder alone');
my $builder = $standby->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash standby builder' AND query LIKE 'building%'");
like($builder, qr/^\d+$/, 'one builder is at work');
kill('KILL', $builder) if $builder =~ /^\d+$/;
usleep(200_000);
release('standby_loaded');
write_all_ways($primary, 'a');
wait_until_up($standby) or die 'the standby does not come back';
all_right('the builder is killed');

# ... or terminated, and promoted in the middle
hold('standby_scanned');
$primary->safe_psql('postgres', 'REINDEX INDEX a_k');
is_held('standby_scanned', 'promotion');
write_all_ways($primary, 'a');
caught_up($primary, $standby);
$primary->stop;
$standby->promote;
release('standby_scanned');
ok($standby->poll_query_until('postgres', "SELECT bool_and(state = 'valid') FROM pmhash_indexes"),
	'promoted during a build: rebuilt as a primary does');
$standby->safe_psql('postgres', 'INSERT INTO a SELECT i % 500, i FROM generate_series(1, 300) i');
same_as_heap($standby, 'a', 'k', 'a_k', 'promoted during a build');
unlike(slurp_file($standby->logfile), qr/could not build index|could not replay|PANIC|TRAP/,
	'nothing failed on the standby');
$standby->stop;
done_testing();
