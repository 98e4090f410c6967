# Processes held at stop points: SERIALIZABLE, and what readers without locks see of writers.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# ======== serializable stops ========

# SERIALIZABLE transactions whose index-only joins and scans take rows of all-visible pages
# without a visit: held there while another one deletes the row, and reads what they
# are going to change.  One of the two fails.
{
	my $node = new_server('serializable', undef, install_path => install_with_stop_points());
	use_stop_points($node);
	$node->start;
	install_extension($node);
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE item (k int4, v int4);
INSERT INTO item SELECT i, 0 FROM generate_series(1, 1000) i;
CREATE INDEX item_k ON item USING pmhash (k);
CREATE TABLE wanted (k int4);
INSERT INTO wanted VALUES (1), (11);
CREATE TABLE seen (v int4);
INSERT INTO seen VALUES (0);
ANALYZE;
SQL

	my $refused = qr/could not serialize access due to read\/write dependencies/;
	my $by_join = 'SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1000; SET max_parallel_workers_per_gather = 0';
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
	my @readers = (
		[ 'join', $by_join, 'SELECT count(*) FROM wanted WHERE EXISTS (SELECT FROM item WHERE item.k = wanted.k)', 'Index Only: true', 2 ],
		[ 'scan', $by_index, 'SELECT count(*) FROM item WHERE k = 1', 'Index Only Scan using item_k', 1 ]);
	my $delete = 'BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT v FROM seen; DELETE FROM item WHERE k = 1; COMMIT';

	foreach my $reader (@readers)
	{
		my ($name, $settings, $query, $plan, $count) = @$reader;
		my $begin = "BEGIN ISOLATION LEVEL SERIALIZABLE; $settings";

		$node->safe_psql('postgres', 'VACUUM ANALYZE item, wanted');
		like($node->safe_psql('postgres', "$begin; EXPLAIN (COSTS OFF) $query"), qr/\Q$plan/, "$name: plan");

		# past the look at the visibility map, and once more when the page is locked
		foreach my $point ('all_visible', 'all_visible_locked')
		{
			$node->safe_psql('postgres', 'VACUUM item');
			my $session = start_and_hold($point, "$begin; $query; UPDATE seen SET v = v + 1; COMMIT", "$name, $point");
			my $locked = $node->safe_psql('postgres',
				"SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND locktype = 'page' AND relation = 'item'::regclass");

			is($locked, $point eq 'all_visible' ? '0' : '1', "$name, $point: the page is locked then, and not before");
			is($node->safe_psql('postgres', $delete), '0', "$name, $point: the other one deletes the row");
			release($point);
			like(finish($session), qr/^$count\n.*$refused/s, "$name, $point: the reader sees it, and fails as it writes");
			is($node->safe_psql('postgres', 'SELECT v FROM seen'), '0', "$name, $point: it has written nothing");

			# and without the other one
			$node->safe_psql('postgres', 'INSERT INTO item VALUES (1, 0); VACUUM item');
			$session = start_and_hold($point, "$begin; $query; UPDATE seen SET v = v + 1; COMMIT", "$name alone, $point");
			release($point);
			is(finish($session), $count, "$name alone, $point: goes on");
			$node->safe_psql('postgres', 'UPDATE seen SET v = 0');
		}
	}

	# ---- an index is marked as invalid: who sees the mark may leave rows out ----
	# By then sessions that have the file open know of it, and what has been read through it
	# is guarded by a lock of the table.
	rebuild_off($node);
	$node->safe_psql('postgres', 'VACUUM item');
	{
		my $file = $node->safe_psql('postgres', q(SELECT file FROM pmhash.indexes WHERE index = 'item_k'));
		my $user = $node->background_psql('postgres', on_error_stop => 1);
		my $reader = $node->background_psql('postgres', on_error_stop => 1);
		my $count = 'SELECT count(*) FROM item WHERE k = 7777';
		my $session;

		$user->query_safe($by_index);
		is($user->query_safe($count), '0', 'marked: a session has the file open');
		$reader->query_safe("BEGIN ISOLATION LEVEL SERIALIZABLE; $by_index");
		is($reader->query_safe('SELECT count(*) FROM item WHERE k = 1'), '1', 'marked: a transaction has read through it');
		unlink($file) or die "$file: $!";
		$session = start_and_hold('stub_let_go', 'INSERT INTO item VALUES (1001, 0)', 'marked');
		is( $node->safe_psql('postgres', q(SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND locktype = 'relation' AND relation = 'item'::regclass)),
			'1', 'marked: the table is locked');
		$node->safe_psql('postgres', 'INSERT INTO item VALUES (7777, 0)');
		is($user->query_safe($count), '1', 'marked: that session finds a row that has been left out');
		release('stub_let_go');
		finish($session);
		$reader->quit;
		$user->quit;
	}
	$node->stop;
}

# ======== barriers ========

# What walks through a whole index for long takes note of barriers that are for all
# processes (ProcSignalBarrier): DROP DATABASE of any database waits for each process to
# close its files, and returns before the walk ends.
#
# The library is built with its stop points for this, as in rows/stop_points.pl.
{
	my $point = 'segment_before_validation';
	my $node = new_server('barriers', "autovacuum = off\n", install_path => install_with_stop_points());
	use_stop_points($node);
	$node->start;
	install_extension($node);
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int);
INSERT INTO t SELECT i FROM generate_series(1, 20000) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL
	cmp_ok($node->safe_psql('postgres', q(SELECT segments FROM pmhash.stats('t_k'))), '>', 2, 'some segments');

	foreach my $walk (qw(pmhash.check pmhash.stats))
	{
		$node->safe_psql('postgres', 'CREATE DATABASE other');
		my $walker = start_and_hold($point, "SELECT $walk('t_k') IS NULL", $walk);
		my $drop = start_session('DROP DATABASE other');
		ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'DROP%' AND wait_event = 'ProcSignalBarrier')),
			"$walk: DROP DATABASE waits for it");
		hold($point);
		release($point);
		is_held($point, "$walk, one segment on");
		ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'DROP%' AND pid <> pg_backend_pid())),
			"$walk: DROP DATABASE is through");
		release($point);
		is(finish($drop), '', "$walk: it has dropped it");
		like(finish($walker), qr/^[tf]$/, "$walk: it comes to its end");
	}
	$node->stop;
}

done_testing();
