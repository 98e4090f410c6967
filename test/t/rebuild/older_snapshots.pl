# Snapshots that are older than a rebuilt index.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# ======== older snapshots ========

# Whom a rebuild waits for in the end: sessions with an older snapshot, also one that takes
# it over in the very moment in which its owner ends; not those that have begun since.  And
# it does not wait for ever, for a logical slot that is not made, or for sessions that end,
# or take snapshots over, one after the other: others have their turn.
{
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

	# What is true when the rebuilder, or another process, waits for this event.
	sub waits
	{
		my ($condition, $type) = @_;

		$type //= 'pmhash rebuilder';
		return "EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = '$type' AND $condition)";
	}

	my $waits_for_slot = waits("wait_event IN ('Extension', 'PmhashLogicalSlot')");
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

	# A session that need not answer at once: what it gets, and what it says.
	sub start_psql
	{
		my ($connection) = @_;
		my %session = (in => "SELECT 'pid', pg_backend_pid();\n", out => '', error => '');

		$session{run} = IPC::Run::start([ 'psql', '-XAtq', '-d', $connection, '-f', '-' ],
			'<', \$session{in}, '>', \$session{out}, '2>', \$session{error});
		says(\%session, qr/pid\|(\d+)\n/);
		($session{pid}) = $session{out} =~ /pid\|(\d+)\n/;
		return \%session;
	}

	sub says
	{
		my ($session, $pattern) = @_;

		$session->{run}->pump until $session->{out} =~ $pattern || $session->{error} ne '';
		return;
	}

	sub end_session
	{
		my ($session) = @_;

		$session->{in} .= "\\q\n";
		$session->{run}->finish;
		return;
	}

	sub start_walsender
	{
		my ($database) = @_;

		return start_psql($node->connstr($database) . ' replication=database');
	}

	# Begin to make a slot, that of the process.
	sub make_slot
	{
		my ($walsender) = @_;

		$walsender->{in} .= "\\echo now\nCREATE_REPLICATION_SLOT s$walsender->{pid} TEMPORARY LOGICAL pgoutput;\n";
		says($walsender, qr/now/);
		return;
	}

	# It is there; gives the snapshot that comes with it.
	sub slot_is_made
	{
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my ($walsender) = @_;

		says($walsender, qr/\|[^|]+\|pgoutput/);
		is($walsender->{error}, '', 'the slot is made');
		$walsender->{out} =~ /\|([^|]+)\|pgoutput/;
		return $1;
	}

	# Stop a process by gdb where it comes from this function by these commands.
	sub stop_at
	{
		my ($session, $function, @commands) = @_;
		my $mark = $node->data_dir . "/gdb.$session->{pid}";
		my $hold = "touch $mark.held; while test -e $mark.held && kill -0 $$; do sleep 0.02; done";
		my $run = IPC::Run::start(
			[
				'gdb', '-nx', '-batch', '-p', $session->{pid},
				map { ('-ex', $_) } 'handle all nostop noprint pass', "tbreak $function", "shell touch $mark.attached",
				'continue', @commands, 'delete', "shell $hold", 'detach'
			],
			'<', \undef, '>', \my $output, '2>&1');

		usleep(20_000) while $run->pumpable && !-e "$mark.attached";
		return { run => $run, mark => $mark };
	}

	sub is_stopped
	{
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my ($gdb, $name) = @_;

		usleep(20_000) while $gdb->{run}->pumpable && !-e "$gdb->{mark}.held";
		return ok(-e "$gdb->{mark}.held", "$name is stopped");
	}

	# It has the rows that have been deleted since.
	sub sees_all
	{
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my ($session, $key) = @_;

		$session->{in} .= "SET enable_seqscan = off;\nSELECT 'rows', count(*) FROM t WHERE k = $key;\n";
		says($session, qr/rows\|(\d+)\n/);
		is($session->{error}, '', 'it has the snapshot');
		like($session->{out}, qr/rows\|10\n/, 'it sees all rows');
		return;
	}

	sub go_on
	{
		my ($gdb) = @_;

		unlink("$gdb->{mark}.held");
		$gdb->{run}->finish;
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
	my $slot;

	$writer->query_safe('BEGIN; SELECT pg_current_xact_id()');
	$slot = start_walsender('postgres');
	make_slot($slot);
	poll('a slot that is being made', waits("wait_event = 'transactionid'", 'walsender'));
	unlink(index_file($node, 't_k')) or die;
	poll('the wait for the slot', $valid, $waits_for_slot);
	unlink(index_file($node, 't_k', 'other')) or die;
	comes_back($node, 'another database', 'other');
	is(index_state($node, 't_k') eq 'valid', '', 'the slot is still waited for');
	$writer->query_safe('COMMIT');
	slot_is_made($slot);
	end_session($slot);
	comes_back($node, 'after the slot');

	# Sessions with an older snapshot end one after the other, each while it is waited for.
	my %olds;
	foreach (1 .. 8)
	{
		my $session = $node->background_psql('postgres', on_error_stop => 0);
		my $pid = $session->query_safe("$with_snapshot; SELECT pg_backend_pid()");

		$pid =~ s/.*\n//s;
		$olds{$pid} = $session;
	}
	$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 9');
	unlink(index_file($node, 't_k')) or die;
	poll('the wait for them', $valid, waits("wait_event = 'virtualxid'"));
	unlink(index_file($node, 't_k', 'other')) or die;
	my $valid_there = 0;
	while (%olds && !$valid_there)
	{
		my $waited = q{(SELECT pg_blocking_pids(pid) FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder' AND wait_event = 'virtualxid')};
		my $pid = $observer->query_safe("SELECT min(p) FROM unnest($waited) p");

		for (my $try = 0; $try < 20 && !$valid_there; $try++)
		{
			usleep(20_000);
			$valid_there = index_state($node, 't_k', 'other') eq 'valid';
		}
		next if $valid_there || !exists $olds{$pid};
		$olds{$pid}->query_safe('COMMIT');
		(delete $olds{$pid})->quit;
	}
	cmp_ok(scalar(keys %olds), '>', 0, 'sessions that end one after the other: another database has its turn before');
	foreach my $session (values %olds)
	{
		$session->query_safe('COMMIT');
		$session->quit;
	}
	comes_back($node, 'when they are over');

	# Sessions take a snapshot over, a new one, each before the last one ends: each of them is
	# waited for, as all have the same xmin, but not for ever.
	$writer->query_safe('BEGIN; SELECT pg_current_xact_id()');
	wait_for_old(6);
	my $exported = $new->query_safe("$with_snapshot; SELECT pg_export_snapshot()");
	$exported =~ s/.*\n//s;
	my @takers = map { $node->background_psql('postgres', on_error_stop => 0) } 0 .. 1;
	sub take_over
	{
		my ($taker) = @_;
		my $pid = $taker->query_safe(
			"BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$exported'; SELECT pg_backend_pid()");

		$pid =~ s/.*\n//s;
		return $pid;
	}
	my $taker_pid = take_over($takers[0]);
	unlink(index_file($node, 't_k', 'other')) or die;
	$old->query_safe('COMMIT');
	my $other_valid = 0;
	for (my $turn = 0; $turn < 400 && !$other_valid; $turn++)
	{
		my $waited = waits("wait_event = 'virtualxid' AND $taker_pid = ANY (pg_blocking_pids(pid))");

		for (my $try = 0; $try < 20 && $observer->query_safe("SELECT $waited") ne 't'; $try++)
		{
			usleep(20_000);
		}
		$taker_pid = take_over($takers[($turn + 1) % 2]);
		usleep(100_000);
		$takers[$turn % 2]->query_safe('COMMIT');
		$other_valid = index_state($node, 't_k', 'other') eq 'valid';
	}
	ok($other_valid, 'snapshots that are taken over all the time: another database');
	is(index_state($node, 't_k') eq 'valid', '', 'they are still waited for');
	$_->quit foreach @takers;
	$_->query_safe('COMMIT') foreach $new, $writer;
	comes_back($node, 'snapshots that were taken over all the time');

	SKIP:
	{
		my $importer = start_psql($node->connstr('postgres'));
		my ($gdb, $name, $walsender, $other);

		# its registers are named as on x86-64
		skip 'no gdb', 1 if !IPC::Run::run([ 'sh', '-c', "gdb -nx -batch -p $importer->{pid} -ex 'info registers rsi' | grep rsi" ], '>', '/dev/null', '2>', '/dev/null');
		skip 'this server calls no such functions', 1 if $node->pg_version >= 19;

		# A session takes the snapshot over: it has found its owner, and is stopped before it
		# says that it has the snapshot itself; the owner ends.  It is made to share
		# ProcArrayLock, as in 18.6; in 15.20 and 17.12 nobody else can look then.
		$importer->{in} .= "BEGIN ISOLATION LEVEL REPEATABLE READ;\n\\echo begun\n";
		says($importer, qr/begun/);
		$gdb = stop_at($importer, 'ProcArrayInstallImportedXmin', 'tbreak *LWLockAcquire', 'continue',
			'set var $rsi = 1', 'tbreak TransactionIdPrecedesOrEquals', 'continue');
		# in less than lock_timeout: no other rebuilder can begin when it is stopped
		wait_for_old(7);
		$node->safe_psql('postgres', 'SELECT pg_current_xact_id()');	# or its own would be as old
		$name = $old->query_safe('SELECT pg_export_snapshot()');
		$importer->{in} .= "\\echo now\nSET TRANSACTION SNAPSHOT '$name';\n";
		says($importer, qr/now/);
		is_stopped($gdb, 'who takes the snapshot over');
		$old->query_safe('COMMIT');
		poll('a rebuild that looks around', $valid, waits("wait_event = 'ProcArray'"));
		go_on($gdb);
		sees_all($importer, 7);
		end_session($importer);
		comes_back($node, 'handed over in that moment');

		# A slot has its place in WAL, but is stopped before it has its xmin; when it gets
		# that, it is an old one, that of another slot.
		$writer->query_safe('BEGIN; SELECT pg_current_xact_id()');
		$other = start_walsender('other');
		make_slot($other);
		poll('a slot that is being made', waits("wait_event = 'transactionid'", 'walsender'));
		kill('STOP', $other->{pid}) or die $!;
		$writer->query_safe('COMMIT');
		$walsender = start_walsender('postgres');
		$gdb = stop_at($walsender, 'ReplicationSlotReserveWal', 'finish');
		make_slot($walsender);
		is_stopped($gdb, 'who makes the slot');
		$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 8');
		unlink(index_file($node, 't_k')) or die;
		poll('the wait for the slot', $valid, $waits_for_slot);
		is(index_state($node, 't_k'), 'rebuilding', 'a slot that has no xmin yet is waited for');
		go_on($gdb);
		$name = slot_is_made($walsender);
		$importer = start_psql($node->connstr('postgres'));
		$importer->{in} .= "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSET TRANSACTION SNAPSHOT '$name';\n";
		sees_all($importer, 8);
		end_session($importer);
		end_session($walsender);
		kill('CONT', $other->{pid}) or die $!;
		slot_is_made($other);
		end_session($other);
		comes_back($node, 'a slot without an xmin');
	}
	$_->quit for $writer, $old, $new, $observer;
	$node->stop;
}

# ======== imported snapshots ========

# A rebuild waits for snapshots that are older than its own scan.  One of those may be
# handed on while it waits (pg_export_snapshot): the session that has it then is no
# less to be waited for.  So is the session that takes one over from a logical slot.
{
	my $node = new_server('imported', "wal_level = logical\nmax_wal_senders = 4\nmax_replication_slots = 4");

	$node->start;
	install_extension($node);
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i % 100, i FROM generate_series(0, 999) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL

	my @sessions = map { $node->background_psql('postgres', on_error_stop => 0) } 0 .. 2;

	# Session $to takes the snapshot over from session $from.
	sub hand_on
	{
		my ($from, $to) = @_;
		my $name = $sessions[$from]->query_safe('SELECT pg_export_snapshot()');

		$sessions[$to]->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$name'");
		return;
	}

	# Until the rebuilder waits for a session; or it is over, having passed that by.
	sub waits_for
	{
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my ($session, $name) = @_;
		my $pid = $sessions[$session]->query_safe('SELECT pg_backend_pid()');

		$node->poll_query_until('postgres', <<SQL) or die 'no rebuild';
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder'
		AND wait_event = 'virtualxid' AND $pid = ANY (pg_blocking_pids(pid)))
	OR EXISTS (SELECT FROM pmhash_indexes WHERE state = 'valid')
SQL
		is(index_state($node, 't_k'), 'rebuilding', "$name is waited for");
		return;
	}

	# The session still has the rows that have been deleted since.
	sub sees_all_of_imported_snapshots
	{
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		my ($session, $name) = @_;

		is($sessions[$session]->query_safe('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5'),
			10, "$name sees all its rows");
		return;
	}

	# Handed on twice, and rows that it sees are deleted before the rebuild has scanned the table.
	$sessions[0]->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
	$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 5');
	unlink(index_file($node, 't_k')) or die;
	waits_for(0, 'the first one');
	hand_on(0, 1);
	$sessions[0]->query_safe('COMMIT');
	waits_for(1, 'the second one');
	sees_all_of_imported_snapshots(1, 'the second one');
	hand_on(1, 2);
	$sessions[1]->query_safe('COMMIT');
	waits_for(2, 'the third one');
	sees_all_of_imported_snapshots(2, 'the third one');
	$sessions[2]->query_safe('COMMIT');
	comes_back($node, 'afterwards');

	# A process that makes a logical slot is stopped when its snapshot is that of a place in
	# WAL already, but it has not got there: no transaction has it.
	my ($in, $out, $error) = ('', '', '');
	my $writer = $sessions[1];
	my ($walsender, $psql);

	$writer->query_safe('BEGIN; INSERT INTO t VALUES (-1)');
	$psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' replication=database', '-f', '-' ],
		'<', \$in, '>', \$out, '2>', \$error);
	$in = "CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput;\n";
	$psql->pump while length $in;
	$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'walsender' AND wait_event = 'transactionid')})
		or die 'no slot is being made';
	$walsender = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'});
	kill('STOP', $walsender) or die $!;
	$writer->query_safe('COMMIT');
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 6');
	unlink(index_file($node, 't_k')) or die;
	$node->poll_query_until('postgres', <<SQL) or die 'no rebuild';
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder'
		AND wait_event IN ('Extension', 'PmhashLogicalSlot'))
	OR EXISTS (SELECT FROM pmhash_indexes WHERE state = 'valid')
SQL
	is(index_state($node, 't_k'), 'rebuilding', 'a slot that is being made is waited for');
	kill('CONT', $walsender) or die $!;
	$psql->pump until $out =~ /\S+\|(\S+)\|pgoutput/ || $error ne "";
	my ($name) = $out =~ /\|([^|]+)\|pgoutput/;
	is($error, '', 'the slot is made');
	$sessions[2]->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$name'");
	is($sessions[2]->query_safe('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 6'),
		10, 'its snapshot sees all its rows');
	$in .= "IDENTIFY_SYSTEM;\n\\q\n";
	$psql->finish;
	is($sessions[2]->query_safe('SELECT count(*) FROM t WHERE k = 6'), 10, 'a second time');
	$sessions[2]->query_safe('COMMIT');
	comes_back($node, 'after the slot');
	$_->quit for @sessions;
	$node->stop;
}

done_testing();
