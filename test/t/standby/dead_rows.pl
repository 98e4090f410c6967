# VACUUM of many rows: their TIDs are in WAL, once, and a standby finds the entries itself.
# In the library with stop points a record of dead rows has a kilobyte, and the set of dead
# TIDs less memory.

use v5.36;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

my @library = (install_path => install_with_stop_points());
my $primary = new_primary('primary', "wal_writer_delay = 10s\npmhash.cleaner_naptime = 1000\n", @library);
my @indexes = qw(d_k d_v d_part d_one);

sub sql
{
	return $primary->safe_psql('postgres', $_[0]);
}

# Types of an index's records from a place on, those of equal neighbours once.
sub types ($from, $index)
{
	return sql("SELECT pmhash_wal_types('$from', substring(file from '([0-9a-f]{16})\\.pmh')) FROM pmhash.files() WHERE index = '$index'::regclass");
}

# Tests: the entries are those of the primary, and answers those of the table.
sub same ($standby, $name)
{
	my $entries = 'SELECT ' . join(', ', map { "(SELECT entries FROM pmhash.stats('$_'))" } @indexes);

	caught_up($primary, $standby) if $primary != $standby;
	wait_for_state($standby, $_, qr/^valid$/, "$name: $_") foreach @indexes;
	is($standby->safe_psql('postgres', $entries), sql($entries), "$name: entries");
	is($standby->safe_psql('postgres', join('; ', map { "SELECT pmhash.check('$_')" } @indexes)), "\n\n\n", "$name: pmhash.check");
	is($standby->safe_psql('postgres', q(SELECT by_index FROM every_key('d', 'k', 'd_k'))), 'same', "$name: answers");
	is($standby->safe_psql('postgres', q(SELECT by_index FROM every_key('d', 'v', 'd_v'))), 'same', "$name: answers, NULL keys");
	return;
}

# Half of the rows go, and others come in their places later.
my $round = 0;

sub half_dies
{
	$round++;
	sql("DELETE FROM d WHERE k % 2 = $round % 2");
	return;
}

sub places_are_taken
{
	sql("INSERT INTO d SELECT 10000 * $round + 2 * i + $round % 2, nullif(i % 100, 7) FROM generate_series(1, 4000) i");
	return;
}

sub flushed
{
	sql('SET synchronous_commit = on; CREATE TABLE flush (); DROP TABLE flush');
	return sql('SELECT pg_current_wal_flush_lsn()');
}

install_wal_records($primary);
sql(<<SQL);
CREATE TABLE d (k int, v int) WITH (autovacuum_enabled = off);
INSERT INTO d SELECT i, nullif(i % 100, 7) FROM generate_series(1, 8000) i;
CREATE INDEX d_k ON d USING pmhash (k);
CREATE INDEX d_v ON d USING pmhash (v);
CREATE INDEX d_part ON d USING pmhash (k) WHERE v % 5 = 0;
CREATE INDEX d_one ON d USING pmhash (k) WHERE v = 1 AND k % 200 = 1;
CREATE INDEX d_off ON d USING pmhash (k) WITH (wal = off);
SQL
my $standby = new_standby($primary, 'standby', undef, @library);
same($standby, 'begin');

# ---- what is written ----

my $vacuum = 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) d';
my $from = flushed();
my $tids = sql("SELECT string_agg(ctid::text, ' ' ORDER BY ctid) FROM d WHERE k % 2 = 1");

half_dies();
sql($vacuum);
flushed();
is(types($from, $_), 'DEAD SWEPT', "half of the rows: $_") foreach qw(d_k d_v d_part);
is(types($from, 'd_one'), 'DELETE SWEPT', 'few of them are in the index');
is(types($from, 'd_off'), '', 'it is not logged');
is(sql(<<SQL), "$tids|t|t", 'the TIDs of the dead rows, in several records, a byte for an entry at most');
SELECT string_agg(tid::text, ' ' ORDER BY tid), count(DISTINCT record_start) > 1, sum(record_length) FILTER (WHERE n = 1) < count(*)
FROM (SELECT *, row_number() OVER (PARTITION BY record_start) AS n FROM pmhash_wal_records('$from', 'FFFFFFFF/0'), unnest(tids) tid
	WHERE type = 'DEAD' AND file_id = (SELECT substring(file from '([0-9a-f]{16})\\.pmh') FROM pmhash.files() WHERE index = 'd_k'::regclass)) r
SQL
same($standby, 'half of the rows');
places_are_taken();
same($standby, 'half of the rows, their places are taken');

sql('DELETE FROM d WHERE k % 100 = 2');
$from = flushed();
sql($vacuum);
flushed();
is(types($from, $_), 'DELETE SWEPT', "few rows: $_") foreach qw(d_k d_v);
same($standby, 'few rows');

# no memory for the dead TIDs: VACUUM's callback is asked (of a row a block there would be
# more records of a kilobyte than pays, so entries are logged in both cases)
sql(<<SQL);
CREATE TABLE sparse (k int, pad text) WITH (fillfactor = 10, autovacuum_enabled = off);
INSERT INTO sparse SELECT i, repeat('x', 700) FROM generate_series(1, 9000) i;
CREATE INDEX sparse_k ON sparse USING pmhash (k);
SQL
caught_up($primary, $standby);
wait_for_state($standby, 'sparse_k', qr/^valid$/, 'no memory: begin');
foreach my $memory ('1MB', '64MB')
{
	sql("DELETE FROM sparse WHERE k % 2 = length('$memory') % 2");
	$from = flushed();
	my ($status, $stdout, $stderr) = $primary->psql('postgres',
		"SET client_min_messages = debug1; SET maintenance_work_mem = '$memory'; VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) sparse");
	is($stderr =~ /took over (\d+) dead TIDs/ ? $1 : 'none', $memory eq '1MB' ? 'none' : '4500', "$memory: TIDs");
	flushed();
	is(types($from, 'sparse_k'), 'DELETE SWEPT', "$memory: records");
	caught_up($primary, $standby);
	is($_->safe_psql('postgres', q(SELECT entries, pmhash.check('sparse_k') FROM pmhash.stats('sparse_k'))),
		$memory eq '1MB' ? '4500|' : '0|', "$memory: " . $_->name) foreach $primary, $standby;
}
sql('DROP TABLE sparse');

# ---- the buffers of a list: it is walked through for each removal from it, so that is one ----

my $points = use_stop_points($primary);

sql(<<SQL);
CREATE TABLE list (k int, v int) WITH (autovacuum_enabled = off);
INSERT INTO list SELECT 1, i FROM generate_series(1, 60000) i;
CREATE INDEX list_k ON list USING pmhash (k) WITH (wal = off);
DELETE FROM list WHERE v % 2 = 0;
SQL
my $session = start_and_hold('vacuum_before_removal', 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) list', 'a list');
hold('vacuum_before_removal');
release('vacuum_before_removal');
is(finish($session), '', 'a list: VACUUM ends');
ok(unlink("$points/vacuum_before_removal"), 'a list: one removal');
is(sql("SELECT entries, pmhash.check('list_k') FROM pmhash.stats('list_k')"), '30000|', 'a list: entries');
sql('DROP TABLE list');

# ---- the primary: cancelled, and killed, before it removes ----

foreach my $point (qw(vacuum_after_log vacuum_after_flush))
{
	foreach my $how (qw(cancelled killed))
	{
		my $name = "$how at $point";
		my $session;
		my $before;

		half_dies();
		$from = flushed();
		$before = sql(q(SELECT entries FROM pmhash.stats('d_k')));
		$session = start_and_hold($point, $vacuum, $name);
		is(sql(q(SELECT entries FROM pmhash.stats('d_k'))), $before, "$name: nothing is removed");
		is(types($from, 'd_k'), $point eq 'vacuum_after_log' ? '' : 'DEAD', "$name: on disk");
		if ($how eq 'killed')
		{
			crash($primary);
			release($point);
			eval { $session->{run}->finish };
			$primary->start;
		}
		else
		{
			sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = '$vacuum' AND pid <> pg_backend_pid()");
			release($point);
			like(finish($session), qr/canceling statement/, $name);
		}
		sql($vacuum);
		same($standby, $name);
		places_are_taken();
		same($standby, "$name, places are taken");
	}
}

# ---- the standby: killed while it sweeps ----

use_stop_points($standby);
foreach my $point (qw(redo_before_entries redo_sweeping redo_applied))
{
	my $name = "standby killed at $point";
	my $position = log_position($standby);

	half_dies();
	caught_up($primary, $standby);
	hold($point);
	sql($vacuum);
	places_are_taken();
	is_held($point, $name);
	crash($standby);
	release($point);
	$standby->start;
	same($standby, $name);
	unlike(logged_since($standby, $position), qr/has been built on this standby|not trusted|is given up/, "$name: nothing is built");
}

# stopped: it does not wait for the end of the sweep
my $name = 'standby stopped while it sweeps';
my $position = log_position($standby);

half_dies();
caught_up($primary, $standby);
hold('redo_sweeping');
sql($vacuum);
places_are_taken();
is_held('redo_sweeping', $name);
$standby->command_ok([ 'pg_ctl', '-D', $standby->data_dir, '-m', 'fast', '-W', 'stop' ], $name);
$standby->wait_for_log(qr/received fast shutdown request/, $position);
hold('redo_applied');
release('redo_sweeping');
$standby->wait_for_log(qr/database system is shut down/, $position);
$standby->stop('fast', fail_ok => 1);
unlink(use_stop_points($standby) . '/redo_applied') or die "it has not ended in the sweep: $!";
$standby->start;
same($standby, $name);
unlike(logged_since($standby, $position), qr/has been built on this standby|not trusted|is given up/, "$name: nothing is built");

# ---- while the standby builds ----

foreach my $point (qw(standby_begun standby_waited standby_scanned standby_loaded standby_caught_up))
{
	my $name = "held at $point";

	half_dies();
	hold($point);
	sql('REINDEX INDEX d_k');
	is_held($point, $name);
	sql($vacuum);
	places_are_taken();
	half_dies();
	sql($vacuum);
	caught_up($primary, $standby);
	release($point);
	same($standby, $name);
	places_are_taken();
	same($standby, "$name, places are taken");
}

# ---- promoted right after ----

sql('DROP INDEX d_off');		# a promoted standby would build it, and use it
half_dies();
sql($vacuum);
caught_up($primary, $standby);
$position = log_position($standby);
$primary->stop('immediate');
$standby->promote;
$primary = $standby;
places_are_taken();
same($standby, 'promoted');
unlike(logged_since($standby, $position), qr/has been rebuilt|not trusted/, 'promoted: nothing is rebuilt');
half_dies();
sql($vacuum);
same($standby, 'promoted, VACUUM');
$standby->stop;

done_testing();
