# A database that nothing can connect to for hours: it is renamed in a transaction that
# stays open, is the template of another one, or a catalog of it is locked.  Nothing in
# the other databases waits for that, nor does the launcher.

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

my $patience = 20;
my $node = new_faulty_server('locked');
my $launcher = "FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'";

$node->safe_psql('postgres', 'CREATE DATABASE d');
install_extension($node, 'd');
my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'd'");
$node->safe_psql($_, invalid_fixture()) foreach ('postgres', 'd');

# A test: a query gives 't' within some seconds.
sub soon
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($query, $name, $database) = @_;
	my $deadline = time + $patience;

	usleep(100_000) while $node->safe_psql($database // 'postgres', $query) ne 't' && time < $deadline;
	return is($node->safe_psql($database // 'postgres', $query), 't', $name);
}

# A test: a file is lost in a database, and there is another one soon.
sub lost_and_rebuilt
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;
	my $file = index_file($node, 't_k');

	unlink($file) or die "$file: $!";
	$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');
	return soon("SELECT state = 'valid' AND file <> '$file' FROM pmhash_indexes WHERE index = 't_k'",
		"$name: a file lost in another database is rebuilt");
}

# In d an index is invalid, so that a rebuilder wants to go there as a cleaner does.
sub lose_in_d
{
	my $file = index_file($node, 't_k', 'd');

	rebuild_off($node);
	unlink($file) or die "$file: $!";
	$node->safe_psql('d', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');
	like(index_state($node, 't_k', 'd'), qr/^invalid/, 'an index of the database is invalid');
	return;
}

# Stop a cleaner while it waits for a lock in d: its process id.  Not before it waits, as
# it may then hold locks of the server's that all processes need.
sub held_cleaner
{
	my $deadline = time + $patience;

	while (time < $deadline)
	{
		foreach my $pid (PmhashTest::children($node->{_pid}))
		{
			open(my $file, '<', "/proc/$pid/cmdline") or next;    # gone meanwhile
			next if <$file> !~ /pmhash cleaner for database $oid/;
			next if $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted") eq '0';
			return $pid if kill('STOP', $pid);
		}
		usleep(5_000);
	}
	die 'no cleaner';
}

# event: a database is locked for long: `ALTER DATABASE` in an open transaction, `CREATE DATABASE ... TEMPLATE`, a lock on its catalogs
lose_in_d();
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN; ALTER DATABASE d RENAME TO e');
rebuild_on($node);
lost_and_rebuilt('ALTER DATABASE') foreach 1 .. 2;
my $from = -s $node->logfile;
sleep(2);    # some rounds of the launcher
is($node->safe_psql('postgres', "SELECT wait_event $launcher AND wait_event = 'BgWorkerShutdown'"), '',
	'ALTER DATABASE: the launcher waits for no worker');
unlike(slurp_file($node->logfile, $from), qr/lock timeout/, 'ALTER DATABASE: no worker is started to wait for the lock');
$session->query_safe('ROLLBACK');
soon("SELECT state = 'valid' FROM pmhash_indexes WHERE index = 't_k'", 'ALTER DATABASE: rebuilt when that is over', 'd');

# A catalog is locked: that shows only to a worker that connects.  It gives up.
lose_in_d();
my $there = $node->background_psql('d');
$there->query_safe('BEGIN; LOCK TABLE pg_class');
$from = -s $node->logfile;
rebuild_on($node);
lost_and_rebuilt('pg_class locked');
$node->wait_for_log(qr/lock timeout/, $from);

# A cleaner that is held up there, for whatever reason: meanwhile the launcher notices that
# the kernel has failed to write something back, and has others rebuild.
my $cleaner = held_cleaner();
my $error = 'has failed to write something back: Input';
$from = -s $node->logfile;
set_faults($node, calls => 'syncfs', error => 5, fail_for => 1, fail_at => 1);
$node->safe_psql('postgres', 'CHECKPOINT');
my $deadline = time + $patience;
usleep(100_000) while slurp_file($node->logfile, $from) !~ /$error/ && time < $deadline;
like(slurp_file($node->logfile, $from), qr/$error/, 'a cleaner is held up: a failed write is noticed');
set_faults($node, calls => 'syncfs', error => 5, fail_for => 1, fail_at => 0);
lost_and_rebuilt('a cleaner is held up');
ok(kill('CONT', $cleaner), 'it was the same cleaner all the time');

$there->query_safe('ROLLBACK');
$there->quit;
all_come_back($node, 'all is over', 'd');
all_come_back($node, 'all is over, another database');

# The launcher ends when it is terminated, also while a worker waits for a lock.
$session->query_safe('BEGIN; ALTER DATABASE d RENAME TO e');
my $pid = $node->safe_psql('postgres', "SELECT pid $launcher");
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
soon("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'the launcher ends when it is terminated');
$session->query_safe('ROLLBACK');
$session->quit;
$node->stop;
done_testing();
