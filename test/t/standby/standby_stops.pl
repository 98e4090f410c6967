# kill -9 of a standby in the middle of a record, and a standby that is restarted and does
# not come as far as it was.  (Of the primary between entry, record and flush: wal_order,
# dead_rows.)
# long

use v5.36;
use PmhashInvalid qw(rebuild_on);
use PmhashStandby;
use PmhashStops;
use PmhashTest;

my $built = qr/has been built on this standby|not trusted|is given up/;
my $primary = new_primary('primary', <<CONF, install_path => install_with_stop_points());
wal_writer_delay = 10s
bgwriter_lru_maxpages = 0
pmhash.cleaner_naptime = 1000
CONF
my $standby = made_standby($primary, 'standby', "max_standby_streaming_delay = 300s\n",
	install_path => $primary->{_install_path});
use_stop_points($standby);
$standby->start;

# A test: answers and pmhash.check, on each of these.
sub all_right ($name, @nodes)
{
	foreach my $node (@nodes)
	{
		compare_in_snapshot($node, "$name: answers of " . $node->name);
		no_findings($node, "$name: pmhash.check of " . $node->name);
	}
	return;
}

both_valid($standby, 'begin');

# ---- files of past eras are removed at the start, and built again under the same names ----

$standby->stop;
unlink($standby->data_dir . '/pmhash.nonce') or die $!;
my ($stranger) = map { s{[^/]*$}{00000000000000aa.pmh}r } index_files(pool($standby));
append_to_file($stranger, 'x');
$standby->start;
ok(!-e $stranger, 'past eras: removed');
both_valid($standby, 'past eras');
is(scalar(index_files(pool($standby))), 2, 'past eras: what has been built is there');

# ---- a scan goes on with a file that is given up ----

# It has read entries of dead rows, or will; then VACUUM gives their TIDs away, their pages
# become all-visible, and what says so in WAL is of no file that is kept here any more
# (removal.c, pmhash_removal_none_since).  What it reads first and last is alive, on all-visible pages, so
# it has no page pinned that VACUUM's replay would wait for.
$primary->safe_psql('postgres', $_) foreach (
	'CREATE TABLE e (k int, n int) WITH (autovacuum_enabled = off)',
	'INSERT INTO e SELECT 7 + i % 2, i FROM generate_series(1, 30000) i',
	'CREATE INDEX e_k ON e USING pmhash (k) WITH (wal = on)',
	'VACUUM ANALYZE e');
caught_up($primary, $standby);
wait_for_state($standby, 'e_k', qr/^valid$/, 'given up: built');
replayed($primary, $standby, 'DELETE FROM e WHERE k = 7 AND n BETWEEN 10000 AND 20000');
{
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
	my $count = 'SELECT count(*) FROM e WHERE k = 7';
	my $session;

	like(plan_of($standby, $count, $by_index), qr/Index Only Scan using e_k/, 'given up: an index-only scan');
	$session = start_and_hold('scan_between_batches', "$by_index $count", 'given up: between two batches');
	file_is_lost($standby, 'e_k', $count);
	unlike(standby_state($standby, 'e_k'), qr/^valid/, 'given up: it is');
	hold('scan_before_visibility');
	release('scan_between_batches');
	is_held('scan_before_visibility', 'given up: the next batch has been read');
	replayed($primary, $standby, 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) e');
	is($standby->safe_psql('postgres',
			"SELECT reltuples < 25000 AND relallvisible = relpages FROM pg_class WHERE relname = 'e'"), 't',
		'given up: all pages are all-visible');
	release('scan_before_visibility');
	is(finish($session), '9999', 'given up: no row that is gone is found');
	rebuild_on($standby);
}
$primary->safe_psql('postgres', 'DROP TABLE e');

# ---- a check goes on with a file that is given up ----

# It has entries of dead rows, whose TIDs VACUUM gives away; none is removed from it any more.
# trouble: `index "..." has got another file while it was checked`
$primary->safe_psql('postgres', $_) foreach (
	'CREATE TABLE e (k int) WITH (autovacuum_enabled = off)',
	'INSERT INTO e SELECT generate_series(1, 1000)',
	'CREATE INDEX e_k ON e USING pmhash (k) WITH (wal = on)');
caught_up($primary, $standby);
wait_for_state($standby, 'e_k', qr/^valid$/, 'given up under a check: built');
replayed($primary, $standby, 'DELETE FROM e WHERE k % 10 = 7');
{
	my $session = start_and_hold('check_before_entries', q(SELECT pmhash.check('e_k')), 'given up under a check: the rows are checked');

	unlink(database_files($standby, 'postgres')) or die;
	$standby->safe_psql('postgres', "SET enable_seqscan = off; SELECT count(*) FROM e WHERE k = 5; SELECT count(*) FROM t WHERE k = 5; SELECT count(*) FROM t WHERE s = 'text 5'");
	wait_for_state($standby, 'e_k', qr/^valid$/, 'given up under a check: built again');
	both_valid($standby, 'given up under a check');
	replayed($primary, $standby, 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) e');
	release('check_before_entries');
	like(finish($session), qr/^ERROR:  index "e_k" has got another file while it was checked/, 'given up under a check: it has no findings');
}
$primary->safe_psql('postgres', 'DROP TABLE e');

# ---- the standby is killed in the middle of a record ----

my %records = (
	'one entry' => "INSERT INTO t VALUES (77, 'one', 1)",
	'a group' => "INSERT INTO t SELECT i % 30, 'group ' || i % 40, i FROM generate_series(1, 100) i",
	'a removal' => 'VACUUM (INDEX_CLEANUP ON) t');

foreach my $point (qw(redo_before_entries redo_applied))
{
	foreach my $what (sort keys %records)
	{
		my $name = "$point, $what";
		my $position;

		replayed($primary, $standby, 'DELETE FROM t WHERE k = (SELECT min(k) FROM t)');
		$position = log_position($standby);
		hold($point);
		$primary->safe_psql('postgres', $records{$what});
		is_held($point, $name);
		crash($standby);
		release($point);
		$standby->start;
		replayed($primary, $standby, $records{$what});
		all_right($name, $standby);
		is($standby->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('t_k'))),
			$primary->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('t_k'))),
			"$name: as many entries as on the primary");
		unlike(logged_since($standby, $position), $built, "$name: nothing is built");
	}
}

# ---- a standby does not come as far as it was ----

# Consistency comes at the last restartpoint, and then it is held up at the next
# commit.  The files have what came after that, the tables have not.
my $position = log_position($standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
replayed($primary, $standby, 'CHECKPOINT');
$standby->safe_psql('postgres', 'CHECKPOINT');
$primary->safe_psql('postgres', $_) foreach (
	'DELETE FROM t WHERE k BETWEEN 20 AND 60',
	'VACUUM (INDEX_CLEANUP ON) t',
	"INSERT INTO t SELECT 5000 + i % 10, 'later', i FROM generate_series(1, 200) i");
caught_up($primary, $standby);
my $applied = $standby->safe_psql('postgres', 'SELECT applied_lsn FROM pmhash.standby()');
crash($standby);
start_with($standby, "recovery_min_apply_delay = '1h'\n");
is($standby->safe_psql('postgres', "SELECT pg_last_wal_replay_lsn() < '$applied'"), 't',
	'held up: it is not where it was');
is($standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) > 0 FROM t WHERE k BETWEEN 20 AND 60 AND k = ANY (ARRAY(SELECT generate_series(20, 60)))'),
	't', 'held up: rows that have been deleted since are found');
isnt(standby_state($standby, 't_k'), 'valid', 'held up: the index is not used');
unlike(plan_of($standby, 'SELECT * FROM t WHERE k = 30', 'SET enable_seqscan = off;'), qr/t_k/, 'held up: nor by plans');
reload_with($standby, "recovery_min_apply_delay = 0\n");
caught_up($primary, $standby);
both_valid($standby, 'as far as it was');
all_right('as far as it was', $standby);
unlike(logged_since($standby, $position), $built, 'as far as it was: nothing is built');

# Kill a start at a stop point.  With a test.
sub killed_start ($point, $name)
{
	hold($point);
	system_log($standby->installed_command('pg_ctl'), '-W', '-D', $standby->data_dir, '-l', $standby->logfile, 'start');
	is_held($point, $name);
	$standby->_update_pid(1);
	crash($standby);
	release($point);
	return;
}

# Starts are killed when the control file of the pool has the server life that begins.
{
	my $position = log_position($standby);

	use_stop_points($standby);
	$standby->stop('fast');
	killed_start('pool_taken', 'a start that is killed');
	killed_start('pool_taken', 'the next one');
	$primary->safe_psql('postgres', "INSERT INTO t SELECT 93, 'killed', i FROM generate_series(1, 100) i");
	$standby->start;
	caught_up($primary, $standby);
	both_valid($standby, 'after starts that were killed');
	all_right('after starts that were killed', $standby);
	unlike(logged_since($standby, $position), $built, 'after starts that were killed: nothing is built');
}
$_->stop foreach $standby, $primary;
done_testing();
