# Files that their indexes do not follow any more.

use v5.36;
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# ======== half marked ========

# A file that its index does not follow any more: the mark in the stub and what standbys
# learn of it are one record.  What a standby or a crash finds of both must never let it
# go on with a file, or make one, that misses entries from there on.
{
	# Nothing is put right in the background, so the stub stays as it was left.
	my @library = (install_path => install_with_stop_points());
	my $primary = new_primary('primary', <<CONF, @library);
pmhash.cleaner_naptime = 1000
pmhash.rebuild = off
pmhash.wal = on
allow_in_place_tablespaces = on
wal_writer_delay = 10s
wal_writer_flush_after = 100MB
CONF
	$primary->safe_psql('postgres', $_) foreach (
		'CREATE TABLE other (k integer)',
		'CREATE TABLE g (k integer)',
		'INSERT INTO g SELECT i % 100 FROM generate_series(1, 1000) i',
		'CREATE INDEX g_k ON g USING pmhash (k)');
	my $standby = new_standby($primary, 'standby', <<CONF, @library);
pmhash.rebuild = on
pmhash.cleaner_naptime = 1
CONF
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
	my $key = 30000;
	my $reader;

	use_stop_points($primary);
	wait_for_state($standby, $_, qr/^valid$/, "begin: $_") foreach qw(t_k t_s g_k);

	# A session of the standby has the stub in its memory, and the file mapped; then that
	# file goes on the primary.  (Only that one: if another one is given up on the standby all
	# sessions there read all stubs again.)
	sub file_goes ($name)
	{
		my $count = 'SELECT count(*) FROM t WHERE k = ' . ++$key;
		my $file = index_file($primary, 't_k');

		$reader = session_with($standby, $by_index, on_error_stop => 1);
		like($reader->query_safe("EXPLAIN (COSTS OFF) $count"), qr/t_k/, "$name: a session of the standby uses the index");
		is($reader->query_safe($count), '0', "$name: it finds nothing");
		unlink($file) or die "$file: $!";
		return $count;
	}

	# Rows come, of which the primary may make no entries.
	sub rows_are_found ($name, $count)
	{
		replayed($primary, $standby, "INSERT INTO t SELECT $key, 'x', i FROM generate_series(1, 100) i");
		is($reader->query_safe($count), '100', "$name: the session of the standby finds all rows that have come since");
		$reader->quit;
		is($standby->safe_psql('postgres', "$by_index $count"), '100', "$name: so does a new one");
		return;
	}

	# Builders of the standby come by every second, and may have built it again.
	sub builders_come_by ($position)
	{
		wait_while(sub { logged_since($standby, $position) !~ /has been built/ }, 4);
		return;
	}

	sub is_rebuilt ($name)
	{
		reload_with($primary, "pmhash.rebuild = on\npmhash.cleaner_naptime = 1\n");
		foreach my $node ($primary, $standby)
		{
			wait_for_state($node, $_, qr/^valid$/, "$name: $_ again on " . $node->name) foreach qw(t_k t_s);
			caught_up($primary, $standby);
			compare_in_snapshot($node, "$name: answers of " . $node->name);
		}
		reload_with($primary, "pmhash.rebuild = off\npmhash.cleaner_naptime = 1000\n");
		return;
	}

	# ---- the primary is killed while it marks the stub ----

	# What there is gets to disk by the commit of another session.
	foreach my $point (qw(stub_before_mark stub_marked))
	{
		my $name = "killed at $point";
		my $count = file_goes($name);
		my $writer = start_and_hold($point, "INSERT INTO t VALUES ($key, 'x', 1)", $name);

		$primary->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
		crash($primary);
		finish($writer);
		release($point);
		$primary->start;
		rows_are_found($name, $count);
		is_rebuilt($name);
	}

	# ---- the same of a table that was moved, and of its index ----

	# The crash gives them the files of before back, with a stub that has no mark.
	$primary->safe_psql('postgres', q(SET allow_in_place_tablespaces = on; CREATE TABLESPACE moved LOCATION ''));
	foreach my $point (qw(stub_before_mark stub_marked))
	{
		my $name = "moved, killed at $point";
		my $move = 'BEGIN; ALTER TABLE m SET TABLESPACE moved; ALTER INDEX m_k SET TABLESPACE moved; INSERT INTO m VALUES (777); COMMIT';
		my $check = "$by_index SELECT (SELECT count(*) FROM m WHERE k = 777), (SELECT count(*) FROM m WHERE k = 888)";
		my $writer;

		$primary->safe_psql('postgres',
			'CREATE TABLE m (k integer); INSERT INTO m SELECT generate_series(1, 100); CREATE INDEX m_k ON m USING pmhash (k)');
		$writer = start_and_hold($point, $move, $name);
		$primary->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
		crash($primary);
		finish($writer);
		release($point);
		$primary->start;
		$primary->safe_psql('postgres', 'INSERT INTO m SELECT 888');
		is($primary->safe_psql('postgres', $check), '0|1', "$name: rows");
		is($primary->safe_psql('postgres', "$check; SELECT pmhash.check('m_k')"), "0|1\n", "$name: pmhash.check");
		$primary->safe_psql('postgres', 'DROP TABLE m');
	}

	# ---- a standby that has replayed just so far ----

	# A worker marks it: it has no transaction id yet, which a builder would wait for, and has
	# said nothing else in WAL of the index.
	{
		my $name = 'standby at the mark';
		my $count = file_goes($name);
		my $position = log_position($standby);

		hold('stub_marked');
		reload_with($primary, "pmhash.rebuild = on\npmhash.cleaner_naptime = 1\n");
		is_held('stub_marked', $name);
		replayed($primary, $standby, 'INSERT INTO other VALUES (1)');
		builders_come_by($position);
		is($reader->query_safe($count), '0', "$name: the session has read the stub again");
		release('stub_marked');
		rows_are_found($name, $count);
		is_rebuilt($name);
	}

	# ---- a standby has the page of that record, and has not given the file up ----

	{
		my $name = 'in the middle of the record';
		my $count = file_goes($name);
		my $position = log_position($standby);

		use_stop_points($standby);
		hold('redo_page_restored');
		reload_with($primary, "pmhash.rebuild = on\npmhash.cleaner_naptime = 1\n");
		is_held('redo_page_restored', $name);
		builders_come_by($position);
		unlike(logged_since($standby, $position), qr/has been built/, "$name: nothing is built");
		release('redo_page_restored');
		rows_are_found($name, $count);
		is_rebuilt($name);
	}

	$_->stop foreach $standby, $primary;
}

# ======== lost twice ========

# A standby loses a file and builds it again, under the same id, while a query goes on that
# has the lost one mapped.  When that query needs a part of it that it has not mapped, it is
# the lost one that is removed: nothing is said of the new one.  Nor past a promotion.
{
	my $primary = new_primary('primary2');
	$primary->safe_psql('postgres', <<SQL);
CREATE TABLE r (k int4, v int4);
INSERT INTO r SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX r_k ON r USING pmhash (k) WITH (wal = on);
SQL
	my $standby = new_standby($primary, 'standby2');
	wait_for_state($standby, 'r_k', qr/^valid$/, 'built');

	# its scan is begun anew for each key
	sub begun_query
	{
		my $session = $standby->background_psql('postgres', on_error_stop => 0);

		$session->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off; SET pmhash.enable_pagescan = off');
		$session->query_safe(<<SQL);
BEGIN ISOLATION LEVEL REPEATABLE READ;
DECLARE c CURSOR FOR SELECT count(x.v) OVER (ROWS CURRENT ROW)
	FROM generate_series(1, 50) g, LATERAL (SELECT v FROM r WHERE k = g OFFSET 0) x;
SQL
		is($session->query_safe('FETCH c'), 1, 'the query has begun');
		return $session;
	}

	# The query goes on, and the file is the one that it was.
	sub goes_on ($session, $inode, $name)
	{
		is($session->query('FETCH ALL FROM c'), join("\n", (1) x 49), "$name: the query has all its rows");
		is($session->{stderr}, '', "$name: ... and no error");
		$session->query('COMMIT');
		$session->quit;
		is(standby_state($standby, 'r_k'), 'valid', "$name: the new file is not lost");
		$standby->safe_psql('postgres', 'SELECT pg_sleep(2)');
		is((stat(index_file($standby, 'r_k')))[1], $inode, "$name: nor built again");
		return;
	}

	my $session = begun_query();
	my $promoted = begun_query();

	replayed($primary, $standby, 'INSERT INTO r SELECT i, i FROM generate_series(1001, 200000) i');
	my $position = log_position($standby);
	unlink(index_file($standby, 'r_k')) or die;
	is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT v FROM r WHERE k = 150000'), '150000', 'met by another session');
	ok($standby->wait_for_log(qr/has been built on this standby/, $position), 'built again');
	wait_for_state($standby, 'r_k', qr/^valid$/, 'valid again');
	my @life = stat(index_file($standby, 'r_k'));

	goes_on($session, $life[1], 'standby');

	# on a primary the stub would be marked
	$primary->stop;
	$standby->promote;
	$standby->safe_psql('postgres', q(SELECT pmhash.size('r_k')));
	goes_on($promoted, $life[1], 'promoted');

	$standby->stop;
}

done_testing();
