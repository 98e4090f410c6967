# What goes wrong on a standby costs it its index, for a while, and never its replay:
# a pool that can't be written, damaged files, a full disk, records of a newer
# version, a restart in the middle of a build, queries in conflict.

use v5.36;
use PmhashFaults;
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;

my $primary = new_primary('primary');
my $standby = new_standby($primary, 'standby', "max_standby_streaming_delay = 1s\n");
my $pool = pool($standby);

sub change ($n, $rows)
{
	$primary->safe_psql('postgres', <<SQL);
INSERT INTO t SELECT i, 'more ' || i % 100, i FROM generate_series(100000 * $n, 100000 * $n + $rows) i;
DELETE FROM t WHERE k % 37 = $n;
VACUUM t;
SQL
	caught_up($primary, $standby);
	return;
}

both_valid($standby, 'built');

# ---- a directory that can't be written when a file has to grow ----

my ($directory) = glob "$pool/[0-9]*";

# a test that dies here must not leave what the next run can't remove
END { chmod(0700, $directory) if defined $directory && -d $directory; }
chmod(0500, $directory) or die $!;
foreach my $file (index_files($pool))
{
	chmod(0400, $file) or die $!;
}
my $position = log_position($standby);
change(1, 30000);
like(logged_since($standby, $position), qr/is given up on this server/, 'unwritable: it says so');
is($standby->safe_psql('postgres', 'SELECT count(*) > 30000 FROM t'), 't', 'unwritable: replay goes on');
like(standby_state($standby, 't_k'), qr/^disabled: file .* can neither be used nor removed/, 'unwritable: the index is away');
unlike(plan_of($standby, 'SELECT * FROM t WHERE k = 5'), qr/t_k/, 'unwritable: plans do without');
replayed($primary, $standby, 'DELETE FROM t WHERE k BETWEEN 101000 AND 199999');
chmod(0700, $directory) or die $!;
$standby->restart;
both_right($standby, 'writable again');

# ---- for half an hour: builds are tried until it can be written again ----

# The clock of the server goes faster, and each reload makes its processes look at it.
# Databases are not looked through by and by (pmhash.cleaner_naptime), only for what is
# known to be wanted.
my $shim = preloadable('fast_clock');

$standby->append_conf('postgresql.conf', <<CONF);
pmhash.cleaner_naptime = 2000000
log_min_messages = debug1
CONF
$standby->stop;
{
	local $ENV{LD_PRELOAD} = $shim;
	$standby->start;
}
both_valid($standby, 'a fast clock');
chmod(0500, $directory) or die $!;
$position = log_position($standby);
replayed($primary, $standby, 'REINDEX INDEX t_k');

# However often it has failed.
my $tries = 0;
foreach (1 .. 600)
{
	$standby->reload;
	usleep(100_000);
	$tries = () = logged_since($standby, $position) =~ /no build of index "t_k"/g;
	last if $tries > 40;
}
cmp_ok($tries, '>', 40, 'unwritable for long: it is tried all the while');
like(standby_state($standby, 't_k'), qr/^build failed: .*Permission denied.*; next try at \d{4}-/, 'unwritable for long: it fails, and when the next try is');
chmod(0700, $directory) or die $!;
foreach (1 .. 100)
{
	last if standby_state($standby, 't_k') eq 'valid';
	$standby->reload;
	usleep(100_000);
}
both_valid($standby, 'unwritable for long: built in the end');
restart_with($standby, <<CONF);
pmhash.cleaner_naptime = 1
log_min_messages = warning
CONF

# ---- the primary has lost its file, and what it writes now is not logged ----

reload_with($primary, 'pmhash.rebuild = off');
unlink(index_file($primary, 't_k')) or die;
replayed($primary, $standby, q{INSERT INTO t VALUES (-1, 'lost', -1)});
is(standby_state($standby, 't_k'), 'absent: invalid on the primary: it does not exist', 'what the primary has lost');
reload_with($primary, 'pmhash.rebuild = on');
both_valid($standby, 'the primary has it again');

# ---- damaged and removed under a running standby ----

$position = log_position($standby);
truncate($_, 8192) foreach index_files($pool);
change(2, 3000);
is($standby->safe_psql('postgres', 'SELECT count(*) > 2900 FROM t WHERE k BETWEEN 200000 AND 203000'), 't', 'cut off: replay goes on');
both_right($standby, 'cut off: built again');

# ---- a session that has the old file mapped must not see it again ----

my $session = session_with($standby, 'SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan', on_error_stop => 1);
$session->query_safe('PREPARE p AS SELECT count(*) FROM t WHERE k = $1');
$session->query_safe('EXECUTE p(100005)');
unlink($_) foreach index_files($pool);
change(3, 3000);
$standby->safe_psql('postgres', q(SELECT count(*) FROM t WHERE k = 5));
replayed($primary, $standby, "INSERT INTO t VALUES (100005, 'later', 1)");
is($session->query_safe('EXECUTE p(100005)'),
	$primary->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 100005'),
	'removed: a session with the old file has the right answer');
both_right($standby, 'removed: built again');

# ---- conflicts: a snapshot that needs what a scan removes ----

$primary->safe_psql('postgres', <<SQL);
CREATE TABLE dead (k integer, v integer) WITH (fillfactor = 50);
CREATE INDEX dead_k ON dead USING pmhash (k) WITH (wal = on);
INSERT INTO dead SELECT 1, i FROM generate_series(1, 500) i;
SQL
wait_for_state($standby, 'dead_k', qr/^valid$/, 'conflict: built');
my $from = $primary->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
my $reader = session_with($standby, 'BEGIN ISOLATION LEVEL REPEATABLE READ', on_error_stop => 0);
$reader->query_safe('SELECT count(*) FROM t WHERE k = 1');
$position = log_position($standby);
$primary->safe_psql('postgres', 'DELETE FROM dead');
scans_leave($primary, 'dead', 1, 0, 'conflict: scans remove entries');
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
install_wal_records($primary);
is($primary->safe_psql('postgres', "SELECT count(*) > 0 FROM pmhash_wal_records('$from', pg_current_wal_flush_lsn()) WHERE type = 'DELETE' AND horizon IS NOT NULL"),
	't', 'conflict: the primary has removed entries, with a horizon');
caught_up($primary, $standby);
# (it is idle in its transaction, so it is its session that ends)
eval { $reader->query('SELECT count(*) FROM dead WHERE k = 1') };
like(logged_since($standby, $position), qr/due to conflict with recovery/,
	'conflict: the query that needs them is cancelled');
eval { $reader->quit };
is($standby->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('dead_k'))), '0',
	'conflict: they are gone here, too');

# ---- with hot_standby_feedback there is none: the primary keeps what they need ----

reload_with($standby, "hot_standby_feedback = on\nwal_receiver_status_interval = 1s\n");
wait_until($primary, 'SELECT backend_xmin IS NOT NULL FROM pg_stat_replication', 'no feedback');
replayed($primary, $standby, 'INSERT INTO dead SELECT 2, i FROM generate_series(1, 300) i');
my $fed = session_with($standby, 'SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN ISOLATION LEVEL REPEATABLE READ', on_error_stop => 0);
is($fed->query_safe('SELECT count(v) FROM dead WHERE k = 2'), '300', 'feedback: a query');
sleep 2;
$primary->safe_psql('postgres', 'DELETE FROM dead WHERE k = 2');
$primary->safe_psql('postgres', removing_scans('dead', 2)) foreach 1 .. 10;
$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) dead');
is($primary->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('dead_k'))), '300',
	'feedback: neither scans nor VACUUM have removed entries');
caught_up($primary, $standby);
is($fed->query_safe('SELECT count(v) FROM dead WHERE k = 2'), '300', 'feedback: the query finds its rows');
$fed->query_safe('COMMIT');
$fed->quit;
scans_leave($primary, 'dead', 2, 0, 'feedback: then they go');
reload_with($standby, "hot_standby_feedback = off\n");

both_right($standby, 'after the conflict');

# ---- records that this version does not know ----

{
	# a primary of the next version of the records
	my $future = new_primary('future', '',
		install_path => install_changed('-DPMHASH_WAL_VERSION=99', 'src/cluster/wal/wal_record.o'));
	my $older = new_standby($future, 'older');

	$position = 0;
	replayed($future, $older, "INSERT INTO t SELECT i, 'future', i FROM generate_series(1, 1000) i");
	my $log = logged_since($older, 0);
	my $count = () = $log =~ /WAL has a record that this version does not know/g;
	is($count, 1, 'newer records: said once');
	is($older->safe_psql('postgres', 'SELECT count(*) FROM t'), '11000', 'newer records: replay goes on');
	is($older->safe_psql('postgres', 'SELECT live FROM pmhash.standby()'), '0', 'newer records: no index');
	unlike(plan_of($older, 'SELECT * FROM t WHERE k = 5'), qr/t_k/, 'newer records: plans do without');

	# as the message says: with the primary's version
	$older->stop;
	$older->{_install_path} = $future->{_install_path};
	$older->start;
	caught_up($future, $older);
	wait_for_state($older, $_, qr/^valid$/, "newer records: $_ with the primary's version") foreach qw(t_k t_s);
	compare_in_snapshot($older, 'newer records: answers');
	$older->stop;
	$future->stop;
}

$standby->stop;
$primary->stop;

# ---- a full disk ----

sub free_bytes ($directory)
{
	return (split ' ', `df -B1 --output=avail "$directory"`)[-1];
}

SKIP:
{
	my $small = small_file_system();

	skip 'no small file system in PMHASH_SMALL_FS', 10 if !defined $small;
	my $source = new_primary('source');
	my $full = new_standby($source, 'full', "pmhash.directory = '$small/pool'\n");

	wait_for_state($full, 't_k', qr/^valid$/, 'full: built');
	append_to_file("$small/ballast", "\0" x (free_bytes($small) - 8 * 1024 * 1024));
	replayed($source, $full, "INSERT INTO t SELECT i, 's', i FROM generate_series(1, 400000) i");
	is($full->safe_psql('postgres', 'SELECT count(*) FROM t'), '410000', 'full: replay goes on');
	isnt(join(' ', map { standby_state($full, $_) } qw(t_k t_s)), 'valid valid', 'full: an index is away');
	replayed($source, $full, 'DELETE FROM t WHERE n > 1000; VACUUM FULL t');
	wait_for_state($full, 't_k', qr/^valid$/, 'full: it comes back when there is room');

	# a delta that grows while its build waits leaves the half of the space
	my $old_one = $source->background_psql('postgres');
	my $at = log_position($full);
	my $free;

	$old_one->query_safe('BEGIN; SELECT pg_current_xact_id()');
	$source->safe_psql('postgres', 'DROP INDEX t_s; REINDEX INDEX t_k');
	wait_for_state($full, 't_k', qr/^building/, 'delta: a build waits');
	caught_up($source, $full);

	# Looked up now: the files that have been dropped are removed by and by, and leave more.
	foreach (1 .. 5)
	{
		$free = free_bytes($small);
		$source->safe_psql('postgres', "INSERT INTO t SELECT i % 1000, 's', i FROM generate_series(1, "
			  . int($free / 16) . ') i');
		caught_up($source, $full);
		last if logged_since($full, $at) =~ /what is left of the file system/;
	}
	like(logged_since($full, $at), qr/a delta file has become larger than what is left of the file system/,
		'delta: it is given up before the disk is full');
	unlike(logged_since($full, $at), qr/No space left/, 'delta: which it never is');
	$source->safe_psql('postgres', 'TRUNCATE t');
	$old_one->quit;
	wait_for_state($full, 't_k', qr/^valid$/, 'delta: it is built in the end');

	$full->stop;
	$source->stop;
}

# ---- the kernel has failed to write back, and no file can be removed or marked ----

# Nor the token: the medium takes nothing any more.  What is left to say so is the inode of
# the lock file, also when all can be written again.
{
	my $source = new_primary('failing_source');
	my $failing = made_standby($source, 'failing', "checkpoint_timeout = 1h\n");
	my $library = PmhashFaults::build_library($failing->basedir);

	start_with($failing, "shared_preload_libraries = 'pmhash, $library'\n");
	both_valid($failing, 'failing: built');
	my $at = log_position($failing);
	set_faults($failing, calls => 'syncfs pwrite unlink truncate ftruncate open', process => 'pmhash launcher',
		at_restart => 'off', error => 5, fail_for => 1_000_000, fail_at => 1);
	replayed($source, $failing, 'INSERT INTO t SELECT 1, $$x$$, 1; CHECKPOINT');
	checkpoint_and_ask($failing);
	$failing->wait_for_log(qr/are not trusted: the file system/, $at);
	usleep(300_000);    # what comes after that message
	ok(-e $failing->data_dir . '/pmhash.nonce', 'failing: token');
	is(witness($failing), 4, 'failing: hint');
	set_faults($failing, fail_at => 0);
	$failing->stop('immediate');
	$at = log_position($failing);
	$failing->start;
	like(logged_since($failing, $at), qr/not trusted: the server had to give them up/, 'failing: log of the next start');
	both_valid($failing, 'failing: built again');
	$failing->stop;
	$source->stop;
}

done_testing();
