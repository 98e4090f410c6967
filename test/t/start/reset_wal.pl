# What the server does without the pool knowing of it: WAL that is thrown away,
# pg_control put back from before, runs without the library that leave no
# trace in postmaster.opts.  Rows that were in the index get lost, and others take
# their places: no index may be taken for up to date then.

use strict;
use warnings;

use File::Copy;
use File::Path qw(rmtree);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $apart = 'server and pool directory have not been together all the time since it was made';
my $node = new_server('reset', <<CONF);
wal_writer_delay = 10s
wal_writer_flush_after = 0
checkpoint_timeout = 1h
fsync = on
wal_keep_size = 256MB
CONF
my $data = $node->data_dir;
my $pg_control = "$data/global/pg_control";

$node->start;
install_extension($node);
rebuild_off($node);

# A table with 100 rows, and 20 more that will be lost; a crash.  'also': SQL whose
# WAL is flushed, after the checkpoint.
sub crash_with_rows
{
	my ($table, $also) = @_;
	my $session;

	$node->safe_psql('postgres', <<SQL);
CREATE TABLE $table (k int4, v text);
CREATE INDEX ${table}_k ON $table USING pmhash (k);
INSERT INTO $table SELECT g, 'keep' FROM generate_series(1, 100) g;
CHECKPOINT;
SQL
	copy($pg_control, "$pg_control.before") or die $!;
	sleep(2);
	$node->safe_psql('postgres', $also) if defined $also;
	$session = $node->background_psql('postgres', on_error_stop => 0);
	hold_wal_writer($node);
	$session->query_safe("BEGIN; INSERT INTO $table SELECT g, 'lost' FROM generate_series(1001, 1015) g");
	crash($node);
	eval { $session->quit };
	return;
}

# The same with rows whose WAL was flushed, and is thrown away afterwards.
sub crash_with_committed_rows
{
	my ($table) = @_;

	$node->safe_psql('postgres', <<SQL);
CREATE TABLE $table (k int4, v text);
CREATE INDEX ${table}_k ON $table USING pmhash (k);
INSERT INTO $table SELECT g, 'keep' FROM generate_series(1, 100) g;
CHECKPOINT;
INSERT INTO $table SELECT g, 'lost' FROM generate_series(1001, 1015) g;
SQL
	crash($node);
	return;
}

sub not_trusted
{
	my ($table, $name, $reason) = @_;

	$node->start;
	is(index_state($node, "${table}_k"), 'invalid: ' . ($reason // $apart), "$name: invalid");
	return right($table, $name);
}

# After 20 more rows the index gives what the table has, used or not.
sub right
{
	my ($table, $name) = @_;

	$node->safe_psql('postgres', "INSERT INTO $table SELECT g, 'other' FROM generate_series(5001, 5015) g");
	is($node->safe_psql('postgres', <<SQL), '0', "$name: keys found that are not there");
SET enable_seqscan = off; SET enable_bitmapscan = off;
SELECT count(*) FROM generate_series(1001, 1015) g
WHERE EXISTS (SELECT FROM $table t WHERE t.k = g OFFSET 0) AND g NOT IN (SELECT k + 0 FROM $table)
SQL
	$node->safe_psql('postgres', "REINDEX INDEX ${table}_k");
	return;
}

sub reset_wal
{
	unlink("$data/postmaster.pid");
	command_ok([ 'pg_resetwal', '-f', $data ], 'pg_resetwal');
	return;
}

# A start without the library that no postmaster makes, ended in order or killed.
sub single_user
{
	my ($how) = @_;
	my $input = "CREATE TABLE without_$how (k int4)\nINSERT INTO without_$how SELECT generate_series(1, 1000)\nCHECKPOINT\n"
	  . "INSERT INTO without_$how SELECT generate_series(1, 1000)\n";
	my $output = '';
	my $timer = IPC::Run::timer(60);
	my $single = IPC::Run::start([ 'postgres', '--single', '-c', 'shared_preload_libraries=', '-D', $data, 'postgres' ],
		'<', \$input, '>&', \$output, $timer);

	unlink("$data/postmaster.pid");
	$single->pump until ($output =~ s/backend>/backend>/g) > 4 || $timer->is_expired;
	$single->signal('KILL') if $how eq 'killed';
	eval { $single->finish };
	unlink("$data/postmaster.pid");
	return;
}

# ---- nothing of the kind: kept ----
crash_with_rows('t0');
$node->start;
is(index_state($node, 't0_k'), 'valid', 'only a crash: valid');
right('t0', 'only a crash');

# event: `pg_resetwal` after a crash
crash_with_rows('t1');
reset_wal();
# trust: shut-down
not_trusted('t1', 'pg_resetwal');
like(slurp_file($node->logfile), qr/not trusted: the server was shut down without the pool, or its WAL was reset/,
	'pg_resetwal: the log says so');
crash_with_committed_rows('t2');
reset_wal();
not_trusted('t2', 'pg_resetwal, committed rows');

# event: `pg_wal` is emptied, then `pg_resetwal`
crash_with_committed_rows('t3');
unlink(glob "$data/pg_wal/0*");
reset_wal();
not_trusted('t3', 'pg_wal emptied');

# after a clean shutdown nothing is lost by it, but that cannot be known
$node->stop;
reset_wal();
# trust: ended-token
not_trusted('t0', 'pg_resetwal after a clean shutdown');

# event: `pg_control` is put back from before
# the older checkpoint is of the same run: more is replayed, to the same end
crash_with_rows('t4');
copy("$pg_control.before", $pg_control) or die $!;
$node->start;
is(index_state($node, 't4_k'), 'valid', 'older pg_control: valid');
right('t4', 'older pg_control');
copy($pg_control, "$pg_control.before") or die $!;
$node->stop;
copy($pg_control, "$pg_control.ended") or die $!;
copy("$pg_control.before", $pg_control) or die $!;
not_trusted('t4', 'pg_control from before a clean shutdown');

# event: killed, then started in single-user mode without the library
foreach my $how ('ended', 'killed')
{
	crash_with_rows("t5$how");
	single_user($how);
	# trust: redo
	not_trusted("t5$how", "single-user mode, $how");
	is($node->safe_psql('postgres', "SELECT count(*) FROM without_$how"), '2000', "single-user mode, $how: it has run");
}

# a start of ours has died between
crash_with_rows('t6');
die_in_start($node);
reset_wal();
not_trusted('t6', 'a start died, pg_resetwal', 'a start of the server went down before it used the pool');

# A server without the library that writes WAL past that of the lost rows, and is killed.
sub run_without_library
{
	my ($table, $sql) = @_;

	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	$node->start;
	$node->safe_psql('postgres', "CREATE TABLE $table AS SELECT generate_series(1, 1000) AS i; $sql");
	crash($node);
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");
	return;
}

# It dies before pg_control has its first checkpoint: that is as the crash left it, but
# replay goes past the rows that were lost.  postmaster.opts tells.
crash_with_rows('t7');
copy($pg_control, "$pg_control.before") or die $!;
run_without_library('without_t7', '');
copy("$pg_control.before", $pg_control) or die $!;
# trust: opts
not_trusted('t7', 'a start without the library that dies before its checkpoint is in pg_control');

# event: `pg_control` is put back from an earlier run
crash_with_rows('t11', 'CHECKPOINT');
copy("$pg_control.before", "$pg_control.life") or die $!;
$node->start;
crash_with_rows('t12');
copy("$pg_control.life", $pg_control) or die $!;
# trust: older
not_trusted('t12', 'pg_control of an earlier run');
$node->stop;
done_testing();
