# Whom a rebuild waits for in the end: sessions with an older snapshot, also one that takes
# it over in the very moment in which its owner ends; not those that have begun since.  And
# it does not wait for ever, for a logical slot that is not made: others have their turn.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use POSIX ();
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_server('older', "wal_level = logical\nmax_wal_senders = 4\nmax_replication_slots = 4");

$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE other');
foreach my $database ('postgres', 'other')
{
	install_extension($node, $database);
	$node->safe_psql($database, <<'SQL');
CREATE TABLE t (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i % 100, i FROM generate_series(0, 999) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL
}

my ($writer, $old, $new, $observer) =
  map { $node->background_psql('postgres', on_error_stop => 0) } 0 .. 3;
my $with_snapshot = 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t';

# What is true when the rebuilder waits for this event.
sub waits
{
	my ($condition) = @_;

	return "EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder' AND $condition)";
}

my $valid = q{(SELECT state = 'valid' FROM pmhash_indexes WHERE index = 't_k')};

# Until one of these is true; by a session that is connected already.
sub poll
{
	my ($name, @conditions) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	while ($observer->query_safe('SELECT ' . join(' OR ', @conditions)) ne 't')
	{
		die "$name: not seen" if time > $deadline;
		usleep(20_000);
	}
	return;
}

# A session with a snapshot is being waited for, and rows that it sees are gone.
sub wait_for_old
{
	my ($key) = @_;
	my $pid = $old->query_safe("$with_snapshot; SELECT pg_backend_pid()");

	$pid =~ s/.*\n//s;
	$node->safe_psql('postgres', "DELETE FROM t WHERE k = $key");
	unlink(index_file($node, 't_k')) or die;
	poll('the wait for the old snapshot', $valid, waits("wait_event = 'virtualxid' AND $pid = ANY (pg_blocking_pids(pid))"));
	is(index_state($node, 't_k'), 'rebuilding', 'an old snapshot is waited for');
	return;
}

# A transaction with an id is open all the time, so all snapshots have the same xmin: one
# that has been taken since is not waited for.
$writer->query_safe('BEGIN; SELECT pg_current_xact_id()');
wait_for_old(5);
my $new_pid = $new->query_safe("$with_snapshot; SELECT pg_backend_pid()");
$new_pid =~ s/.*\n//s;
$old->query_safe('COMMIT');
poll('the end of the rebuild', $valid, waits("wait_event = 'virtualxid' AND $new_pid = ANY (pg_blocking_pids(pid))"));
is(index_state($node, 't_k'), 'valid', 'a new snapshot is not waited for');
$new->query_safe('COMMIT');
$writer->query_safe('COMMIT');
comes_back($node, 'an id that is open all the time');

# A slot is not made as long as that transaction is open, and the rebuilder waits for the
# slot.  There is one rebuilder for all databases.
my ($in, $out, $error) = ("CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput;\n", '', '');
my $psql;

$writer->query_safe('BEGIN; SELECT pg_current_xact_id()');
$psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' replication=database', '-f', '-' ],
	'<', \$in, '>', \$out, '2>', \$error);
$psql->pump while length $in;
poll('a slot that is being made', q{EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event = 'transactionid')});
unlink(index_file($node, 't_k')) or die;
poll('the wait for the slot', $valid, waits("wait_event IN ('Extension', 'PmhashLogicalSlot')"));
unlink(index_file($node, 't_k', 'other')) or die;
comes_back($node, 'another database', 'other');
is(index_state($node, 't_k') eq 'valid', '', 'the slot is still waited for');
$writer->query_safe('COMMIT');
$psql->pump until $out =~ /pgoutput/ || $error ne "";
$in .= "IDENTIFY_SYSTEM;\n\\q\n";
$psql->finish;
comes_back($node, 'after the slot');

# A session takes the snapshot over: it has found its owner, and is stopped before it says
# that it has the snapshot itself; the owner ends.  It is made to share
# ProcArrayLock, as in 18.6; in 15.20 and 17.12 nobody else can look then.
sub stop_in_import
{
	my ($pid, $mark) = @_;
	my $run = IPC::Run::start(
		[
			'gdb', '-nx', '-batch', '-p', $pid,
			'-ex', 'handle all nostop noprint pass',
			'-ex', 'break ProcArrayInstallImportedXmin',
			'-ex', "shell touch $mark.attached",
			'-ex', 'continue',
			'-ex', 'delete',
			'-ex', 'tbreak *LWLockAcquire',
			'-ex', 'continue',
			'-ex', 'set var $rsi = 1',
			'-ex', 'break TransactionIdPrecedesOrEquals',
			'-ex', 'continue',
			'-ex', 'delete',
			'-ex', "shell touch $mark.held; while test -e $mark.held && kill -0 $$; do sleep 0.02; done",
			'-ex', 'detach'
		],
		'<', \undef, '>', \my $output, '2>&1');
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	usleep(20_000) while $run->pumpable && !-e "$mark.attached" && time < $deadline;
	return $run;
}

SKIP:
{
	skip 'no gdb', 1 if !IPC::Run::run([ 'sh', '-c', 'gdb --version' ], '>', '/dev/null', '2>', '/dev/null');
	skip 'another machine', 1 if (POSIX::uname())[4] ne 'x86_64';
	skip 'the server calls no such function', 1 if $node->pg_version >= 19;

	my $mark = $node->data_dir . '/import';
	my $name;
	my ($sql, $rows, $wrong) = ("SELECT pg_backend_pid();\nBEGIN ISOLATION LEVEL REPEATABLE READ;\n", '', '');
	my $importer = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', '-' ],
		'<', \$sql, '>', \$rows, '2>', \$wrong);

	$importer->pump until $rows =~ /(\d+)\n/;
	my $gdb = stop_in_import($1, $mark);
	if (!-e "$mark.attached" || !$gdb->pumpable)
	{
		$importer->finish;
		skip 'gdb cannot do that here', 1;
	}
	wait_for_old(7);
	$node->safe_psql('postgres', 'SELECT pg_current_xact_id()');	# or its own would be as old
	$name = $old->query_safe('SELECT pg_export_snapshot()');
	$sql .= "\\echo now\nSET TRANSACTION SNAPSHOT '$name';\nSET enable_seqscan = off;\nSELECT 'rows', count(*) FROM t WHERE k = 7;\n";
	$importer->pump until $rows =~ /now/;
	usleep(20_000) while $gdb->pumpable && !-e "$mark.held";
	ok(-e "$mark.held", 'it is stopped');
	$old->query_safe('COMMIT');
	poll('a rebuild that looks around', $valid, waits("wait_event = 'ProcArray'"));
	unlink("$mark.held");
	$gdb->finish;
	$importer->pump until $rows =~ /rows\|(\d+)\n/ || $wrong ne '';
	is($wrong, '', 'it has the snapshot');
	is($1, 10, 'it sees all rows');
	$sql .= "\\q\n";
	$importer->finish;
	comes_back($node, 'handed over in that moment');
}
$_->quit for $writer, $old, $new, $observer;
$node->stop;
done_testing();
