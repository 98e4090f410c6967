# A child has crashed, WAL is lost, and whatever the restart of the server does
# for the pool fails: each call of the operating system in turn, once and for
# good.  The server runs on, with the pool or without; it is shut down and started;
# the TIDs of the lost rows are used again.  No reader may meet an entry of a lost
# row, and none of a living one may be missing: an index is right or not used.
#
# PMHASH_FAULTS=all tries every call, otherwise some of each kind.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

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
my $files = $node->safe_psql('postgres', 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash_indexes');
like(round_of('no fault'), qr/undo journal: \d+ records, .* [1-9]\d* entries taken out/, 'no fault: taken out');
is($node->safe_psql('postgres', 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash_indexes'), $files,
	'no fault: nothing is rebuilt');

# event: a child crashes and the restart cannot write to the pool
# ---- the disk is full, for all that wants new space and for all that is written ----
my $log = round_of('no new space', 'posix_fallocate', 1, 1_000_000, 28);
like($log, qr/undo journal: \d+ records, .* [1-9]\d* entries taken out/, 'no new space: a start needs none');
is($node->safe_psql('postgres', 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash_indexes'), $files,
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
	  foreach ([ 'pwrite', 2, 1 ], [ 'fsync', 4, 1 ], [ 'renameat2', 1, 1_000_000 ], [ 'io', 5, 1 ], [ 'io', 20, 1_000_000 ]);
}

# event: neither the pool nor pmhash's file in the data directory can be written
# ---- the mark of trust cannot be taken away either, nor is there another way ----
$log = round_of('nothing can be done', 'system', 1, 1_000_000, 5);
like($log, qr/LOG: .*pmhash can neither use its pool nor give it up: could not/, 'nothing can be done: log');
$node->stop;
done_testing();
