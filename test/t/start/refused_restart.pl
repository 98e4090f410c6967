# Starts that are refused or die.

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# ======== refused restart ========

# A child has crashed, WAL is lost, and whatever the restart of the server does
# for the pool fails: each call of the operating system in turn, once and for
# good.  The server runs on, with the pool or without; it is shut down and started;
# the TIDs of the lost rows are used again.  No reader may meet an entry of a lost
# row, and none of a living one may be missing: an index is right or not used.
#
# PMHASH_FAULTS=all tries every call, otherwise some of each kind.
{
	my $node = new_faulty_server('refused', <<CONF);
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
bgwriter_lru_maxpages = 0
checkpoint_timeout = 1h
CONF
	my $unused = 0;    # keys from here on are new

	$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4, v text);
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE elsewhere (k int4);
CREATE TABLE quiet (k int4);
CREATE INDEX quiet_k ON quiet USING pmhash (k);
INSERT INTO quiet SELECT generate_series(1, 100);
CHECKPOINT;
SQL

	# Faults in the postmaster once it restarts the server, and in all that it then
	# starts.
	sub faults
	{
		my ($calls, $n, $for, $error) = @_;

		return set_faults($node, calls => $calls, at_restart => 'on', fail_for => $for,
			error => $error, fail_at => $n);
	}

	# Lose 21 rows that are in the index, by the crash of a backend.
	sub lose_rows
	{
		my ($name, @faults) = @_;
		my $from = -s $node->logfile;
		my ($session, $pid);

		if (@faults)
		{
			faults(@faults);
		}
		else
		{
			# the launcher notes within two seconds that a checkpoint was this run's
			$node->safe_psql('postgres', 'CHECKPOINT');
			sleep(2);
		}

		# what comes now is not flushed
		$session = $node->background_psql('postgres', on_error_stop => 0);
		$pid = $session->query_safe('SELECT pg_backend_pid()');
		$session->query_safe("BEGIN; INSERT INTO t SELECT g, 'lost' FROM generate_series($unused, $unused + 20) g");
		kill('KILL', $pid);
		eval { $session->quit };
		for (my $i = 0; $i < 600; $i++)
		{
			last if slurp_file($node->logfile, $from) =~ /ready to accept connections/
			  && slurp_file($node->logfile, $from) =~ /pmhash(?:: undo journal|: index files in .* not trusted| is disabled|: could not)/;
			usleep(50_000);
		}
		return slurp_file($node->logfile, $from);
	}

	# What any look into t by its index gives beside what a sequential scan does.
	sub compare
	{
		my ($name) = @_;
		my $keys = "generate_series(0, $unused + 99) g WHERE";

		is($node->safe_psql('postgres', <<SQL), '0|0', "$name: keys found that are not there, and missed");
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SELECT (SELECT count(*) FROM $keys EXISTS (SELECT FROM t WHERE t.k = g OFFSET 0)
			AND g NOT IN (SELECT k + 0 FROM t)),
	(SELECT count(*) FROM $keys NOT EXISTS (SELECT FROM t WHERE t.k = g OFFSET 0)
			AND g IN (SELECT k + 0 FROM t))
SQL
		return;
	}

	# One round; the faults are as for faults().  Returns the log of the restart.
	sub round_of
	{
		my ($name, @faults) = @_;
		my $log = lose_rows($name, @faults);

		set_faults($node, fail_at => 0);
		# a row that is left out of an index would have its file thrown away
		$node->safe_psql('postgres', 'INSERT INTO elsewhere SELECT generate_series(1, 100)');
		compare("$name, in that run");
		$node->stop('fast');
		$node->start;
		$node->safe_psql('postgres', "INSERT INTO t SELECT g, 'later' FROM generate_series($unused + 50, $unused + 99) g");
		compare("$name, in the next");
		is($node->safe_psql('postgres', 'CALL wait_until_valid()'), '', "$name: valid") || diag($log);
		all_checked($node, $name);
		$unused += 100;
		return $log;
	}

	# ---- nothing fails: the entries of lost rows are taken out, nothing is rebuilt ----
	my $files = $node->safe_psql('postgres', 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash.indexes');
	like(round_of('no fault'), qr/undo journal: \d+ records, .* [1-9]\d* entries taken out/, 'no fault: taken out');
	is($node->safe_psql('postgres', 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash.indexes'), $files,
		'no fault: nothing is rebuilt');

	# event: a child crashes and the restart cannot write to the pool
	# ---- the disk is full, for all that wants new space and for all that is written ----
	my $log = round_of('no new space', 'posix_fallocate', 1, 1_000_000, 28);
	like($log, qr/undo journal: \d+ records, .* [1-9]\d* entries taken out/, 'no new space: a start needs none');
	is($node->safe_psql('postgres', 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash.indexes'), $files,
		'no new space: nothing is rebuilt');
	# trust: token-gone
	$log = round_of('nothing can be written', 'pwrite', 1, 1_000_000, 28);
	like($log, qr/pmhash is disabled: .*No space left on device/, 'nothing can be written: disabled');

	# ---- one call, and all calls from there on ----
	if (($ENV{PMHASH_FAULTS} // '') eq 'all')
	{
		foreach my $for (1, 1_000_000)
		{
			for (my $n = 1; $n < 200; $n++)
			{
				$log = round_of("call $n, $for times", 'io', $n, $for, 5);
				last if $log !~ /pmhash_faults: call/;
			}
		}
	}
	else
	{
		round_of("$_->[0], call $_->[1], $_->[2] times", @$_, 5)
		  foreach ([ 'pwrite', 2, 1 ], [ 'fsync', 4, 1 ], [ 'fsync', 1, 1_000_000 ], [ 'io', 5, 1 ], [ 'io', 20, 1_000_000 ]);
	}

	# event: neither the pool nor pmhash's file in the data directory can be written
	# ---- the mark of trust cannot be taken away either, nor is there another way ----
	$log = round_of('nothing can be done', 'system', 1, 1_000_000, 5);
	like($log, qr/LOG: .*pmhash can neither use its pool nor give it up: could not/, 'nothing can be done: log');
	$node->stop;
}

# ======== start dies ========

# A server has crashed, and a start dies before it has used pmhash.  That start may have
# written WAL where lost WAL had been, which the next one replays or skips: so the end of its
# own replay tells nothing of what was lost, and it trusts nothing.  A start that has not come
# as far as to change anything costs nothing after an orderly end.
{
	my $node = new_server('twice', "wal_writer_delay = 10s\nwal_writer_flush_after = 0\npmhash.cleaner_naptime = 600\n");
	my $pg_control = $node->data_dir . '/global/pg_control';

	$node->start;
	install_extension($node);
	$node->safe_psql('postgres', invalid_fixture());

	# The first record after the checkpoint of a clean shutdown is that of a row
	# in an empty table, and it is not flushed.
	sub lose_one_row
	{
		my ($table) = @_;

		$node->safe_psql('postgres', "CREATE TABLE $table (k int4); CREATE INDEX ${table}_k ON $table USING pmhash (k)");
		# With checksums (the default since PostgreSQL 18) hint bits make WAL: all are
		# set before the start, so that no WAL comes after its checkpoint.
		$node->safe_psql('postgres', 'VACUUM');
		$node->stop;
		$node->start;
		my $session = $node->background_psql('postgres', on_error_stop => 0);
		hold_wal_writer($node);
		$session->query_safe("BEGIN; INSERT INTO $table VALUES (77777)");
		crash($node);
		eval { $session->quit };
		return;
	}

	# Start it.  The lost row's place is given to another one.
	sub not_trusted
	{
		my ($table, $name) = @_;
		my $from = -s $node->logfile;

		$node->start;
		like(slurp_file($node->logfile, $from), qr/not trusted: the last start went down before it used the pool/, "$name: not trusted");
		like(index_state($node, "${table}_k"), qr/^invalid/, "$name: invalid");
		$node->safe_psql('postgres', "INSERT INTO $table VALUES (5)");
		is($node->safe_psql('postgres', "SELECT ctid FROM $table"), '(0,1)', "$name: the place is used again");
		rebuild_on($node);
		all_come_back($node, $name);
		is($node->safe_psql('postgres', "SET enable_seqscan = off; SELECT string_agg(k::text, ',') FROM $table WHERE k IN (5, 77777)"), '5',
			"$name: the new row, and not the lost one");
		rebuild_off($node);
		return;
	}

	rebuild_off($node);
	lose_one_row('lost');
	$node->start;
	is(index_state($node, 'lost_k'), 'valid', 'no start dies: kept');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM lost WHERE k = 77777'), '0', 'no start dies: no lost row');

	# event: a crash, and the next start is killed before it has used pmhash (during recovery, for instance)
	foreach my $known (1, 0)
	{
		my $table = "lost$known";
		my $name = $known ? 'the checkpoint is known' : 'the checkpoint is only in WAL';

		lose_one_row($table);
		copy($pg_control, "$pg_control.before") or die $!;
		like(die_in_start($node), qr/redo is not required/, "$name: there is nothing to replay");
		copy("$pg_control.before", $pg_control) or die $! if !$known;
		unlink("$pg_control.before");
		# trust: used
		not_trusted($table, $name);
	}

	# event: clean shutdown, and starts that fail (an error in `pg_hba.conf`, for instance) or are killed before the server runs
	$node->stop;
	my $hba = $node->data_dir . '/pg_hba.conf';
	rename($hba, "$hba.away") or die $!;
	is($node->start(fail_ok => 1), 0, "a start fails: $_") foreach 1, 2;
	rename("$hba.away", $hba) or die $!;
	my $from = -s $node->logfile;
	$node->start;
	unlike(slurp_file($node->logfile, $from), qr/not trusted/, 'failed starts after an orderly end: trusted');
	is($node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), 'valid', 'failed starts after an orderly end: valid');
	$node->stop;
}

done_testing();
