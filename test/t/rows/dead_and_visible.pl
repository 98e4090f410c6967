# Crashes and what scans do without VACUUM: entries found dead are not removed
# before the WAL that made their rows dead is on disk, and index-only scans
# answer as sequential scans do, with all-visible pages and a crash in between.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# no process writes WAL of its own accord; hint bits need no flush where a page
# carries the LSN of a later record
my $node = new_server('dead', no_wal_flushes());
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE d (k int4, v int4);
INSERT INTO d SELECT i % 100, i FROM generate_series(1, 20000) i;
CREATE INDEX d_k ON d USING pmhash (k);
CREATE INDEX d_v ON d USING pmhash (v);
CHECKPOINT;
SQL

# Index plans only, of one kind.
my $by_index = <<SQL;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SQL

foreach my $round (1 .. 4)
{
	my ($low, $high) = ($round * 10, $round * 10 + 9);

	# what is written, flushed or not, survives our kind of crash
	hold_wal_writer($node);

	# Each page gets a later record than the commit of the deletion, so that
	# the scans may call its rows dead; they do so several times over.
	my $remaining = $node->safe_psql('postgres', <<SQL);
$by_index
DELETE FROM d WHERE k BETWEEN $low AND $high;
UPDATE d SET v = v WHERE k % 10 = 0 AND k NOT BETWEEN $low AND $high;
SELECT count(d.v) FROM generate_series($low, $high) g JOIN d ON d.k = g;
SELECT count(d.k) FROM generate_series($low, $high) g JOIN d ON d.k = g;
SELECT count(d.v) FROM generate_series($low, $high) g JOIN d ON d.k = g;
SQL
	is($remaining, "0\n0\n0", "round $round: deleted");
	crash($node);
	$node->start;
	is( $node->safe_psql('postgres',
			"SELECT count(*) FROM d WHERE k BETWEEN $low AND $high"),
		2000, "round $round: the deletion is lost");
	same_answers($node, 'd', 'k', 'd_k', "unflushed deletion, round $round");
	same_answers($node, 'd', 'v', 'd_v', "unflushed deletion, round $round");
}
$node->append_conf('postgresql.conf', <<CONF);
synchronous_commit = on
wal_writer_delay = 200ms
CONF
$node->restart;

# what they are to do when nothing stands against it
my $entries = $node->safe_psql('postgres', <<SQL);
DELETE FROM d WHERE k < 50;
SELECT count(*) FROM d;
SQL
for my $attempt (1 .. 100)
{
	$node->safe_psql('postgres',
		"$by_index SELECT count(d.v) FROM generate_series(0, 99) g JOIN d ON d.k = g");
	last
	  if $entries eq
	  $node->safe_psql('postgres', "SELECT entries FROM pmhash_stats('d_k')");
	usleep(50_000);
}
is($node->safe_psql('postgres', "SELECT entries FROM pmhash_stats('d_k')"),
	$entries, 'dead entries go');

# kill -9 under load: index-only scans, dead entries, VACUUM
$node->safe_psql('postgres', <<SQL);
CREATE TABLE l (k int4, v int4);
INSERT INTO l SELECT i % 500, i FROM generate_series(1, 10000) i;
CREATE INDEX l_k ON l USING pmhash (k);
CREATE INDEX l_v ON l USING btree (v);
VACUUM ANALYZE l;
SQL
my $tmp = $PostgreSQL::Test::Utils::tmp_check;
append_to_file("$tmp/scans.sql", $by_index . <<'SQL');
\set k random(0, 499)
UPDATE l SET v = v + 1 WHERE k = :k;
SELECT count(*) FROM l WHERE k = :k;
SELECT count(v) FROM l WHERE k = :k;
DELETE FROM l WHERE k = :k AND v % 7 = 0;
INSERT INTO l SELECT :k, i FROM generate_series(1, 3) i;
SELECT k, count(*) FROM l WHERE k = ANY (ARRAY[:k, :k + 1, :k + 2]) GROUP BY k;
SQL
append_to_file("$tmp/lazy_scans.sql",
	"SET synchronous_commit = off;\n" . slurp_file("$tmp/scans.sql"));
append_to_file("$tmp/vacuum_l.sql", "VACUUM l;\n\\sleep 20 ms\n");

foreach my $cycle (1 .. ($ENV{PMHASH_CRASH_CYCLES} // 4))
{
	my @output = ('', '', '');
	my @load = (
		start_pgbench($node, \$output[0], '-c', '2', '-T', '60', '-f', "$tmp/scans.sql"),
		start_pgbench($node, \$output[1], '-c', '2', '-T', '60', '-f', "$tmp/lazy_scans.sql"),
		start_pgbench($node, \$output[2], '-c', '1', '-T', '60', '-f', "$tmp/vacuum_l.sql"));

	usleep(500_000 + rand(1_000_000));
	crash($node);
	$_->finish foreach @load;
	unlike(join('', @output), qr/ERROR:/, "cycle $cycle: no error before the crash");
	$node->start;
	same_answers($node, 'l', 'k', 'l_k', "cycle $cycle");

	# the key alone: all of them, by index-only scans, before and after VACUUM
	foreach my $when ('after the crash', 'after VACUUM')
	{
		my $plan = $node->safe_psql('postgres',
			"$by_index EXPLAIN SELECT k FROM l WHERE k = 1");
		like($plan, qr/^Index Only Scan using l_k/, "cycle $cycle, $when: plan");
		is( $node->safe_psql('postgres', <<SQL),
$by_index
SELECT g, (SELECT count(*) FROM l WHERE k = g) FROM generate_series(0, 510) g
EXCEPT ALL
SELECT g, c.n FROM generate_series(0, 510) g, LATERAL (SELECT count(*) FROM l WHERE k + 0 = g) c(n)
SQL
			'', "cycle $cycle, $when: index-only scans");
		$node->safe_psql('postgres', 'VACUUM l');
	}
}
$node->stop;
done_testing();
