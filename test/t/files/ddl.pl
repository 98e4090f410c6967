# What DDL makes of files; tablespaces.

use v5.36;
use PmhashInvalid;
use PmhashRandom;
use PmhashTest;

# ======== ddl ========

# Statements that give an index another main fork, another file, another table
# space or another OID, in any order and number within one transaction, rolled
# back in part or as a whole: index and sequential scan agree after each, and at
# the end of each transaction the pool has one file for each index, and a session
# has no file mapped that is gone.  First the cases that have failed once, then
# cases drawn at random.
#
# PMHASH_DDL_CASES sets how many; PMHASH_DDL_SEED the first one's seed.
{
	my $cases = $ENV{PMHASH_DDL_CASES} // 60;
	my $seed = $ENV{PMHASH_DDL_SEED} // 1;

	# No cleaner comes to help: what a transaction leaves over would stay.
	my $node = new_server('ddl', "pmhash.cleaner_naptime = 3600\nallow_in_place_tablespaces = on\n");
	my $pool = pool($node);
	start_with_extension($node, "CREATE TABLESPACE side LOCATION ''");

	# The files of a session's temporary tables are in the pool with the others, and
	# so is everything when it is looked at from one session.
	my $session;

	sub new_session
	{
		if ($session)
		{
			$session->quit;
			# the server process is some time at it
			wait_until($node, "SELECT count(*) = 0 FROM pg_class WHERE relnamespace::regnamespace::text LIKE 'pg_temp%'", 'temporary tables stay');
		}
		$session = session_with($node, 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET client_min_messages = error', on_error_stop => 0);
		$session->query_safe(<<'SQL');
CREATE TABLE IF NOT EXISTS wanted (files int);
CREATE OR REPLACE FUNCTION pg_temp.answers(t text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_index text;
	by_scan text;
BEGIN
	IF to_regclass(t) IS NULL THEN
		RETURN 'same';
	END IF;
	EXECUTE format('SELECT coalesce(string_agg(n::text, '','' ORDER BY i), '''') FROM generate_series(0, 12) i, LATERAL (SELECT count(*) AS n FROM %s WHERE k = i::text OFFSET 0) c', t) INTO by_index;
	EXECUTE format('SELECT coalesce(string_agg(n::text, '','' ORDER BY i), '''') FROM generate_series(0, 12) i, LATERAL (SELECT count(*) FILTER (WHERE k || '''' = i::text) AS n FROM %s OFFSET 0) c', t) INTO by_scan;
	RETURN CASE WHEN by_index = by_scan THEN 'same' ELSE by_index || ' by index, ' || by_scan || ' by scan' END;
END $$;
SQL
		return;
	}

	# Index files that a backend has mapped, those that are gone among them.
	sub mapped ($pid)
	{
		my (%there, %gone);

		foreach (split /\n/, slurp_file("/proc/$pid/maps"))
		{
			$there{$1} = 1 if m,(\S+\.pmh)$,;
			$gone{$1} = 1 if m,(\S+\.pmh) \(deleted\)$,;
		}
		return (scalar(keys %there), scalar(keys %gone));
	}

	# Everything is as it should be between two transactions.
	sub all_is_well ($name)
	{
		my @wrong;

		foreach my $table ('t', 'tt')
		{
			my $answer = $session->query_safe("SELECT pg_temp.answers('$table')");
			push @wrong, "$table: $answer" if $answer ne 'same';
		}
		my $states_query = "SELECT coalesce(string_agg(index || ' is ' || state, ', '), '') FROM pmhash.indexes WHERE state <> 'valid'";
		my $states = $session->query_safe($states_query);
		my $filled = time + 30;
		# a table was moved in a transaction, and got rows: its index is rebuilt; and so is one
		# that was moved beside a DROP
		while ($states =~ /its table was given|it does not exist|has not been filled|rebuild/ && time < $filled)
		{
			$session->query_safe('REINDEX TABLE tt') if $states =~ /tt_k2? is invalid/;
			usleep(20_000);
			$states = $session->query_safe($states_query);
		}
		push @wrong, $states if $states ne '';
		my $wanted = $session->query_safe("SELECT count(*) FROM pmhash.indexes");
		my $deadline = time + 30;
		my @files = index_files($pool);
		# what only the cleaner can judge takes a moment
		while (@files != $wanted && time < $deadline)
		{
			usleep(20_000);
			@files = index_files($pool);
		}
		push @wrong, scalar(@files) . " files for $wanted indexes" if @files != $wanted;
		my ($there, $gone) = mapped($session->query_safe('SELECT pg_backend_pid()'));
		push @wrong, "$gone files mapped that are gone" if $gone > 0;
		push @wrong, "$there files mapped for $wanted indexes" if $there > $wanted;
		return ok(!@wrong, $name) || diag(join('; ', @wrong));
	}

	sub make_tables
	{
		$session->query_safe(<<'SQL');
DROP TABLE IF EXISTS t;
DROP TABLE IF EXISTS tt;
CREATE TABLE t (k varchar(10), v int);
INSERT INTO t SELECT i % 10, i FROM generate_series(1, 100) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TEMP TABLE tt (k varchar(10), v int);
INSERT INTO tt SELECT i % 10, i FROM generate_series(1, 100) i;
CREATE INDEX tt_k ON tt USING pmhash (k);
SQL
		return;
	}

	# ---- cases that have failed ----

	# A no-op ALTER TYPE hands the main fork to a new index, SET TABLESPACE copies it:
	# the file belongs to the copy.
	my %known = (
		'ALTER TYPE, SET TABLESPACE' => <<SQL,
BEGIN;
ALTER TABLE t ALTER k TYPE varchar(20);
ALTER INDEX t_k SET TABLESPACE side;
COMMIT;
SQL
		'the other way round' => <<SQL,
BEGIN;
ALTER INDEX t_k SET TABLESPACE side;
ALTER TABLE t ALTER k TYPE varchar(20);
COMMIT;
SQL
		'twice, with a TRUNCATE' => <<SQL,
BEGIN;
ALTER TABLE t ALTER k TYPE varchar(20);
ALTER INDEX t_k SET TABLESPACE side;
ALTER TABLE t ALTER k TYPE varchar(30);
TRUNCATE t;
INSERT INTO t SELECT i % 7, i FROM generate_series(1, 50) i;
COMMIT;
SQL
		'TRUNCATE in a savepoint that is rolled back' => <<SQL,
BEGIN;
CREATE INDEX t_k2 ON t USING pmhash (k);
SAVEPOINT a;
TRUNCATE t;
ROLLBACK TO a;
COMMIT;
SQL
		'TRUNCATE of a temporary table' => 'TRUNCATE tt',
		'REINDEX of a temporary index' => 'REINDEX INDEX tt_k',
		'two TRUNCATEs of a temporary table' => 'BEGIN; TRUNCATE tt; TRUNCATE tt; COMMIT',
		'TRUNCATE, rolled back' => 'BEGIN; TRUNCATE tt; TRUNCATE t; ROLLBACK',
		'REINDEX' => 'REINDEX TABLE t',
		'SET TABLESPACE' => join('; ', map { "ALTER INDEX t_k SET TABLESPACE $_" } ('side', 'pg_default') x 4));

	new_session();
	foreach my $name (sort keys %known)
	{
		make_tables();
		$session->query_safe("SELECT pg_temp.answers('t'), pg_temp.answers('tt')");
		$session->query_safe($_) foreach split /\n/, $known{$name};
		all_is_well($name);
	}

	# ---- cases at random ----

	my $number = 0;

	sub statement
	{
		my $table = one_of('t', 'tt');

		return one_of(
			"TRUNCATE $table",
			"ALTER INDEX IF EXISTS ${table}_k SET TABLESPACE " . one_of('side', 'pg_default'),
			"ALTER TABLE $table SET TABLESPACE " . one_of('side', 'pg_default'),
			"ALTER TABLE $table ALTER k TYPE varchar(" . (20 + $number++) . ')',
			"ALTER TABLE $table ALTER k TYPE text",
			"REINDEX TABLE $table",
			"CREATE INDEX IF NOT EXISTS ${table}_k2 ON $table USING pmhash (k)",
			"DROP INDEX IF EXISTS ${table}_k2",
			"CREATE INDEX IF NOT EXISTS ${table}_b ON $table (v); CLUSTER $table USING ${table}_b",
			"INSERT INTO $table SELECT i % 12, i FROM generate_series(1, 40) i",
			"DELETE FROM $table WHERE v % 3 = 0",
			"SELECT pg_temp.answers('$table')",
			"DROP TABLE $table; CREATE " . ($table eq 'tt' ? 'TEMP ' : '')
			  . "TABLE $table (k varchar(10), v int); CREATE INDEX ${table}_k ON $table USING pmhash (k)");
	}

	# Some statements, some of them in savepoints that are released or rolled back.
	sub transaction
	{
		my @statements = ('BEGIN');
		my $depth = 0;

		foreach (0 .. between(0, 6))
		{
			if (rand() < 0.25)
			{
				push @statements, 'SAVEPOINT s' . ++$depth;
			}
			elsif ($depth > 0 && rand() < 0.33)
			{
				push @statements, one_of('RELEASE', 'ROLLBACK TO') . ' s' . $depth--;
			}
			push @statements, statement();
		}
		return (@statements, one_of('COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK'));
	}

	for my $case ($seed .. $seed + $cases - 1)
	{
		srand($case);
		$number = 0;
		if (($case - $seed) % 10 == 0)
		{
			new_session();
			make_tables();
		}
		my @statements = rand() < 0.33 ? statement() : transaction();
		$session->query($_) foreach @statements;
		all_is_well("case $case") || diag(join(";\n", @statements));
	}

	# ---- the end of the session ----
	my $temporary = "schema LIKE 'pg_temp%'";
	cmp_ok($session->query_safe("SELECT count(*) FROM pmhash.indexes WHERE $temporary"), '>', 0,
		'there are temporary indexes');
	$session->quit;
	wait_for_files($pool, $node->safe_psql('postgres', "SELECT count(*) FROM pmhash.indexes WHERE NOT $temporary"),
		'the files of temporary indexes go with the session');
	$node->safe_psql('postgres', 'DROP TABLE t');
	is(scalar(index_files($pool)), 0, 'no file is left');
	$node->stop;
}

# ======== tablespace ========

# SET TABLESPACE of indexes, tables and databases: the main fork goes, the
# index file stays where it is and goes on being valid, through crashes and
# cleaners.  (A database that is copied: start/restart_and_dump.)
{
	my $node = new_server('tablespace');
	my $location = PostgreSQL::Test::Utils::tempdir();
	mkdir("$location/$_") or die foreach ('a', 'b');
	$node->start;
	$node->safe_psql('postgres', "CREATE TABLESPACE $_ LOCATION '$location/$_'") foreach ('a', 'b');
	$node->safe_psql('postgres', 'CREATE DATABASE d');
	install_extension($node, 'd', invalid_fixture());
	$node->safe_psql('d', <<SQL);
CREATE UNLOGGED TABLE u (k int4);
CREATE INDEX u_k ON u USING pmhash (k);
INSERT INTO u SELECT generate_series(1, 500);
SQL

	sub files
	{
		return $node->safe_psql('d', 'SELECT string_agg(file, $$ $$ ORDER BY file) FROM pmhash.indexes');
	}

	# Nothing was rebuilt, and rebuilds are off: the same files, all answers.
	sub kept ($files, $name)
	{
		is($node->safe_psql('d', 'SELECT DISTINCT state FROM pmhash.indexes'), 'valid', "$name: valid");
		is(files(), $files, "$name: the same files");
		same_answers($node, 'u', 'k', 'u_k', "$name, unlogged", 'd');
		all_come_back($node, $name, 'd');
		return;
	}

	# event: `SET TABLESPACE`, of index, table or database
	rebuild_off($node);
	my $files = files();
	foreach my $command (
		'ALTER INDEX t_k SET TABLESPACE a',
		'BEGIN; ALTER INDEX t_v SET TABLESPACE a; ROLLBACK',
		'ALTER TABLE t SET TABLESPACE b',
		'ALTER TABLE u SET TABLESPACE a; ALTER INDEX u_k SET TABLESPACE b',
		'ALTER INDEX ALL IN TABLESPACE a SET TABLESPACE pg_default',
		'ALTER INDEX ex_k SET TABLESPACE b; ALTER INDEX ex_k SET TABLESPACE a',
		'ALTER TABLE ALL IN TABLESPACE a SET TABLESPACE pg_default; ALTER TABLE ALL IN TABLESPACE b SET TABLESPACE pg_default',
		'ALTER INDEX ALL IN TABLESPACE a SET TABLESPACE pg_default; ALTER INDEX ALL IN TABLESPACE b SET TABLESPACE pg_default')
	{
		change_rows($node, 'd');
		$node->safe_psql('d', $_) foreach $command =~ /BEGIN/ ? ($command) : split(/; /, $command);
		change_rows($node, 'd');
		kept($files, $command);
	}
	foreach my $undone ('BEGIN; DROP INDEX t_v; ROLLBACK', 'BEGIN; SAVEPOINT s; DROP INDEX t_v; ROLLBACK TO s; COMMIT')
	{
		$node->safe_psql('d', "$undone; ALTER INDEX t_k SET TABLESPACE b; ALTER INDEX t_k SET TABLESPACE pg_default");
		kept($files, "after $undone");
	}
	crash_and_start($node);
	# a crash takes the file of the unlogged index
	$node->safe_psql('d', 'INSERT INTO u SELECT generate_series(1, 500); REINDEX INDEX u_k');
	$files = files();
	all_come_back($node, 'crash after SET TABLESPACE', 'd');

	change_rows($node, 'd');
	$node->safe_psql('postgres', 'ALTER DATABASE d SET TABLESPACE b');
	kept($files, 'ALTER DATABASE');
	change_rows($node, 'd');
	crash_and_start($node);
	$node->safe_psql('d', 'INSERT INTO u SELECT generate_series(1, 500); REINDEX INDEX u_k');
	all_come_back($node, 'crash after ALTER DATABASE', 'd');
	$files = files();
	$node->safe_psql('postgres', 'ALTER DATABASE d SET TABLESPACE pg_default');
	kept($files, 'ALTER DATABASE, back');
	wait_for_files(pool($node), 5, 'the cleaner has left all files and nothing else');

	# REINDEX into another tablespace makes a new file and leaves no old one
	$node->safe_psql('d', 'REINDEX (TABLESPACE a) TABLE t; REINDEX (TABLESPACE b, CONCURRENTLY) INDEX t_k');
	all_come_back($node, 'REINDEX (TABLESPACE)', 'd');
	wait_for_files(pool($node), 5, 'REINDEX (TABLESPACE), files');

	# ---- moved by a transaction that gives another index another file ----
	# The file goes with the main fork in the old tablespace.
	$node->safe_psql('d', <<SQL);
CREATE TABLE m (k int4);
CREATE INDEX m_k ON m USING pmhash (k);
CREATE TABLE x (k int4);
CREATE INDEX x_k ON x USING pmhash (k);
INSERT INTO x SELECT generate_series(1, 500);
SQL
	$node->safe_psql('d', 'BEGIN; ALTER INDEX x_k SET TABLESPACE b; REINDEX INDEX m_k; COMMIT');
	like(index_state($node, 'x_k', 'd'), qr/^invalid: it does not exist/, 'moved beside a REINDEX: state');
	is(index_state($node, 'm_k', 'd'), 'valid', 'moved beside a REINDEX: the other one');
	rebuild_on($node);
	$node->poll_query_until('d', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'x_k'");
	rebuild_off($node);
	same_answers($node, 'x', 'k', 'x_k', 'moved beside a REINDEX, rebuilt', 'd');
	$node->safe_psql('d', 'DROP TABLE m, x');

	$node->stop;
}

# ======== removed beside writers ========

# docs/operations.md, "Removing pmhash": an index is dropped before the extension is, since
# that locks the table first.  DROP EXTENSION CASCADE locks the index first, as with any
# access method: a writer that has the table, and comes to the index, has a deadlock then.
{
	my $node = new_server('removed_beside', 'deadlock_timeout = 100ms');
	start_with_extension($node, 'CREATE TABLE t (k int4); CREATE INDEX t_k ON t USING pmhash (k)');

	my $writer = $node->background_psql('postgres');
	my $dropper = $node->background_psql('postgres');
	$writer->query_safe('BEGIN; LOCK TABLE t IN ROW EXCLUSIVE MODE');
	$dropper->query_until(qr/^begun$/m, "\\echo begun\nDROP INDEX t_k;\nDROP EXTENSION pmhash CASCADE;\n");
	$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted') or die;
	$writer->query_safe('INSERT INTO t SELECT generate_series(1, 100); COMMIT');
	$dropper->query_safe('SELECT');
	$_->quit foreach $writer, $dropper;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '100', 'removed beside writers: what was written is there');
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_extension WHERE extname = 'pmhash'"), '0', 'removed beside writers: the extension is gone');
	unlike(slurp_file($node->logfile), qr/deadlock detected/, 'removed beside writers: no deadlock');
	$node->stop;
}

done_testing();
