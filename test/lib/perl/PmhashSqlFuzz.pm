# Differential fuzzing in SQL: random transactions while calls of pmhash fail, the
# file system is full or the statement is cancelled, and errors are caught by
# savepoints and EXCEPTION blocks.  The judge is the sequential scan in the same
# snapshot, and pmhash.check.  Now and then the server dies in a transaction, or just
# after it: mostly one that has moved the table and its indexes, so that the crash is what
# takes the moves back.  The database is moved, too.  Beside the table fz, where duplicates
# are right, there is fu, whose keys are unique by indexes of pmhash (before PostgreSQL 18:
# by exclusion constraints): whatever fails, no key may be there twice.
#
# Three sessions, driven one statement at a time (but for the moment when one of
# them is held in the middle of an INSERT ... ON CONFLICT):
#	writer	a random transaction
#	other	statements of its own in between, VACUUM, what takes TIDs over
#	judge	looks at everything when the transaction is over; what was given up is made anew
# Everything follows from the seed, but for when a statement_timeout strikes.

package PmhashSqlFuzz;

use v5.36;

use Exporter 'import';
use IPC::Run;
use PmhashFaults;
use PmhashRandom;
use PmhashTest;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(
  new_fuzz_server
  fuzz_transactions
  fuzz_figures
);

my $most_rows = 5000;
my $patience = 120;    # seconds for a statement
my $most_copied = 3000;
my $death_each = $ENV{PMHASH_SQL_FUZZ_DEATH_EACH} || 12;    # transactions
my $numbers;           # a file of so many rows to be copied
my $arbiter;           # what ON CONFLICT ... DO UPDATE may name for fu, if anything

# SQLSTATEs of errors that are right: what is injected (disk full, no memory,
# cancel), what the transactions do to each other, and what comes after an error.
my $expected = qr/^(53100|53200|57014|40001|40P01|55P03|23505|25P02|3B001|34000|24000|P0001|25001|42704|55006|23P01)$/;

my %figures = (transactions => 0, statements => 0, errors => 0, failed => 0, committed => 0, judged => 0, killed => 0, moves => 0, anew => 0, crashes => 0, databases_moved => 0);

# ---- the server ----

# Keys that are equal and have other bytes (numeric, lower), long ones in TOAST, a predicate
# that rows come to fulfil.
sub unique_schema ($node)
{
	my @indexes = $node->pg_version >= 18
	  ? ('CREATE UNIQUE INDEX fu_n ON fu USING pmhash (n);',
		'CREATE UNIQUE INDEX fu_t ON fu USING pmhash (lower(t)) WHERE v >= 0;')
	  : ('ALTER TABLE fu ADD CONSTRAINT fu_n EXCLUDE USING pmhash (n WITH =);',
		'ALTER TABLE fu ADD CONSTRAINT fu_t EXCLUDE USING pmhash (lower(t) WITH =) WHERE (v >= 0);');

	return join("\n", 'CREATE TABLE fu (n numeric, t text, v int4 DEFAULT 0);', @indexes,
		'INSERT INTO soak_indexes VALUES (\'fu\', \'{n}\', \'fu_n\', false);', '');
}

sub schema
{
	return <<'SQL';
CREATE SEQUENCE ids START 1000000;
-- waits while the other session wants it to: see held_conflict
CREATE FUNCTION held(v int4) RETURNS int4 IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF v = 99 THEN
		PERFORM pg_advisory_lock_shared(1);
		PERFORM pg_advisory_unlock_shared(1);
	END IF;
	RETURN v;
END $$;
CREATE TYPE pair AS (k int8, v int4);
CREATE TABLE fz (id int8 DEFAULT nextval('ids'), k int8, t varchar(30) DEFAULT 't0', v int4 DEFAULT 0,
	p pair GENERATED ALWAYS AS (ROW(k, v)::pair) STORED);
CREATE INDEX fz_held ON fz (held(v));
CREATE UNIQUE INDEX fz_id ON fz (id);
CREATE INDEX fz_k ON fz USING pmhash (k);
CREATE INDEX fz_t ON fz USING pmhash (t);
CREATE INDEX fz_kv ON fz USING pmhash (k, v) WITH (wal = off);
CREATE INDEX fz_p ON fz USING pmhash (p);
CREATE TABLE fp (k int8, v int4) PARTITION BY LIST (v);
SELECT format('CREATE TABLE fp%s PARTITION OF fp FOR VALUES IN (%s)', i, i) FROM generate_series(0, 3) i \gexec
CREATE INDEX ON fp USING pmhash (k);
INSERT INTO soak_indexes VALUES ('fz', '{k}', 'fz_k', true), ('fz', '{t}', 'fz_t', false), ('fz', '{k,v}', 'fz_kv', false),
	('fz', '{p}', 'fz_p', false);
INSERT INTO soak_indexes SELECT format('fp%s', i), '{k}', format('fp%s_k_idx', i), true FROM generate_series(0, 3) i;

-- Does a condition give the same rows by index and by sequential scan?
CREATE FUNCTION differ(tab text, condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT count(*) || '' rows, sum '' || coalesce(sum(hashtextextended(ROW(x.tableoid, x.ctid, x.*)::text, 0)), 0) FROM %s x WHERE %s', tab, condition);
	wanted text;
	got text;
BEGIN
	PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'off', true),
			set_config('enable_bitmapscan', 'off', true);
	EXECUTE query INTO wanted;
	PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', 'on', true);
	EXECUTE query INTO got;
	IF got IS NOT DISTINCT FROM wanted THEN
		PERFORM set_config('enable_indexscan', 'off', true), set_config('enable_bitmapscan', 'on', true);
		EXECUTE query INTO got;
	END IF;
	PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'on', true),
			set_config('enable_bitmapscan', 'on', true);
	RETURN CASE WHEN got IS DISTINCT FROM wanted THEN format('finding: %s WHERE %s: %s, sequential scan %s', tab, condition, got, wanted) END;
END $$;
-- What is wrong: pmhash.check of all indexes, every key by every kind of scan of one.
CREATE FUNCTION judge(one int4) RETURNS SETOF text LANGUAGE sql AS $$
SELECT 'finding: ' || f FROM check_findings('^f[zpu]') f
UNION ALL
SELECT 'finding: ' || f FROM (SELECT i FROM soak_indexes i OFFSET one LIMIT 1) o (i), soak_findings(o.i) f
UNION ALL
SELECT format('finding: %s is there %s times', n, count(*)) FROM fu GROUP BY n HAVING n IS NOT NULL AND count(*) > 1
UNION ALL
SELECT format('finding: %s is there %s times', left(lower(t), 20), count(*)) FROM fu WHERE v >= 0 GROUP BY lower(t) HAVING count(*) > 1
UNION ALL
SELECT format('finding: %s is %s', index, state) FROM pmhash.indexes WHERE state <> 'valid'
$$;
SQL
}

sub new_fuzz_server
{
	my $node = new_faulty_server('sql_fuzz', "max_prepared_transactions = 5\nallow_in_place_tablespaces = on\n");

	$node->safe_psql('postgres', "CREATE TABLESPACE $_ LOCATION ''") foreach qw(place_a place_b place_c place_d);
	$node->safe_psql('postgres', unique_schema($node) . schema());
	$arbiter = $node->pg_version >= 18 ? '(n)' : '';
	# (A program would do, but a cancel kills it too: which error is first is chance.)
	$numbers = $node->basedir . '/numbers';
	append_to_file($numbers, join('', map { "$_\n" } 1 .. $most_copied));
	return $node;
}

# ---- sessions ----

sub new_session ($node)
{
	my $session = { in => '', out => '', n => 0 };

	$session->{timer} = IPC::Run::timeout($patience);
	$session->{psql} = IPC::Run::start(
		[ $node->installed_command('psql'), '-XAtq', '-v', 'VERBOSITY=sqlstate', $node->connstr('postgres') ],
		'<', \$session->{in}, '>', \$session->{out}, '2>&1', $session->{timer});	# in one pipe: errors come before =DONE
	run_sql($session, 'SET client_min_messages = error; SET lock_timeout = 300;');
	return $session;
}

# Give a session something to do.
sub begin_sql ($session, $sql)
{
	$session->{n}++;
	$session->{log} .= "$sql\n";
	$session->{in} .= "$sql\n\\echo =DONE $session->{n}=\n";
	$session->{psql}->pump_nb;
	return;
}

# Those of a server that has died, or whose database is moved, are made anew.
sub end_sessions ($s)
{
	foreach my $session (values %$s)
	{
		$session->{in} .= "\\q\n";
		eval { $session->{psql}->finish };
	}
	return;
}

sub begin_sessions ($node, $s)
{
	foreach my $name (keys %$s)
	{
		my $log = $s->{$name}{log};

		$s->{$name} = new_session($node);
		$s->{$name}{log} = $log;
		$s->{$name}{finding} = '';
	}
	return;
}

# Wait until it has been done; returns what it has said.
sub answer_of ($session)
{
	my $done = "=DONE $session->{n}=\n";
	my $said;

	$session->{timer}->start($patience);
	$session->{psql}->pump until $session->{out} =~ /\Q$done\E/;
	$session->{timer}->reset;
	$said = substr($session->{out}, 0, index($session->{out}, $done));
	$session->{out} = '';
	$session->{log} .= join('', map { "-- $_\n" } split(/\n/, $said));
	return $said;
}

# Both; returns the SQLSTATE of the last error, or ''.
sub run_sql ($session, $sql)
{
	begin_sql($session, $sql);
	return after($session, answer_of($session));
}

# Look at what a session has said.
sub after ($session, $said)
{
	my $state = '';

	$figures{statements}++;
	foreach my $line (split /\n/, $said)
	{
		$session->{finding} .= "$line\n" if $line =~ /^finding:|PANIC|FATAL|server closed/;
		next unless $line =~ /ERROR:  (\w+)/;
		$state = $1;
		$figures{errors}++;
		next if $session->{refused} && $state eq '0A000';
		$session->{finding} .= "unexpected error: $line\n" if $state !~ $expected;
	}
	return $state;
}

# ---- statements ----

# Rows to be inserted: columns id, k, t, v; many keys or few.
sub rows
{
	my ($id) = @_;
	my $n = one_of(1, between(1, 30), between(17, 300), between(200, 1500), between(1000, 3000));
	my $key = sprintf('(i * 7919 + %d) %% %d', between(0, 1000), one_of(1, 5, 50, 1000, 100000));

	return sprintf('SELECT %s, %s, \'t\' || i %% %d, i %% 4 FROM generate_series(1, %d) i',
		$id, $key, one_of(3, 200, 10000), $n);
}

my $fresh = 'nextval(\'ids\')';
my $colliding = 'i * 3';

sub insert
{
	return insert_unique() if rand() < .4;
	return one_of(
		'INSERT INTO fz ' . rows($fresh),
		'INSERT INTO fz ' . rows($fresh),
		'INSERT INTO fp SELECT k, v FROM (' . rows($fresh) . ') r (id, k, t, v)',
		'WITH i AS (INSERT INTO fz ' . rows($fresh) . ' RETURNING k) SELECT \'rows\' WHERE (SELECT count(*) FROM i) < 0',
		"COPY fz (k) FROM '$numbers' WHERE k <= " . between(1, $most_copied),
		'INSERT INTO fz ' . rows($colliding) . ' ON CONFLICT DO NOTHING',
		'INSERT INTO fz ' . rows($colliding) . ' ON CONFLICT (id) DO UPDATE SET k = excluded.k + 1, t = fz.t') . ';';
}

# Rows with unique keys, of which some are there: columns n, t, v
sub unique_rows
{
	my $n = one_of(1, between(1, 40), between(17, 300));
	my $first = one_of(between(0, 300), between(0, 300), 1_000_000 + int(rand(1_000_000)));

	return sprintf('SELECT i::numeric(12,%d), %s(repeat(\'Key \' || i || \' \', %d)), %d FROM generate_series(%d, %d) i',
		between(0, 3), one_of('upper', 'lower'), one_of(1, 1, 200), one_of(0, 0, -1), $first, $first + $n - 1);
}

sub insert_unique
{
	my $rows = unique_rows();
	my $update = $arbiter ? "ON CONFLICT $arbiter DO UPDATE SET " . one_of('v = -1 - fu.v', 'n = excluded.n * 1.0', 't = upper(fu.t)') : '';

	return one_of("INSERT INTO fu $rows", "INSERT INTO fu $rows ON CONFLICT DO NOTHING", "INSERT INTO fu $rows $update",
		"MERGE INTO fu USING ($rows) s (n, t, v) ON fu.n = s.n WHEN MATCHED THEN UPDATE SET t = s.t, n = s.n WHEN NOT MATCHED THEN INSERT VALUES (s.n, s.t, s.v)") . ';';
}

sub change_unique
{
	my $some = 'n BETWEEN ' . between(0, 300) . ' AND ' . between(0, 400);

	return one_of("DELETE FROM fu WHERE $some", "UPDATE fu SET n = n * 1.00 WHERE $some", "UPDATE fu SET n = n + 1 WHERE $some",
		"UPDATE fu SET t = upper(t) WHERE $some", "UPDATE fu SET v = -1 - v WHERE $some",
		"UPDATE fu SET n = n + 5000, t = t || 'x' WHERE $some", 'DELETE FROM fu WHERE n > 300') . ';';
}

sub change
{
	return change_unique() if rand() < .3;
	my $some = one_of('k % 7 = ' . between(0, 6), 'k = ' . between(0, 50), 'v = ' . between(0, 3), 'id % 3 = 0');

	return one_of("DELETE FROM fz WHERE $some", "UPDATE fz SET k = k + 1 WHERE $some", "UPDATE fz SET v = (v + 1) % 4 WHERE $some",
		'UPDATE fp SET v = (v + 1) % 4 WHERE k % 5 = 1', 'DELETE FROM fp WHERE k % 4 = 0') . ';';
}

sub read_some
{
	my $k = between(0, 60);

	return one_of(
		"SELECT differ('fz', 'k = $k');",
		"SELECT differ('fz', 't = ''t$k''');",
		"SELECT differ('fz', 'k = $k AND v = ' || $k % 4);",
		"SELECT differ('fz', 'k = ANY (ARRAY(SELECT generate_series(0, $k)))');",
		"SELECT differ('fz', 'k IN (SELECT y.k FROM fp y WHERE y.v = 1)');",
		"SELECT differ('fp', 'EXISTS (SELECT FROM fz y WHERE y.k = x.k OFFSET 0)');",
		"SELECT differ('fp', 'k = $k');",
		"SELECT differ('fu', 'n = $k');",
		"SET enable_seqscan = off; SELECT 'rows' FROM fz WHERE k = ANY ('{1,2,3,$k}') AND id < 0 LIMIT 3; RESET enable_seqscan;");
}

# A block that catches what goes wrong in it: of itself, by division, by a fault.
sub block ($depth)
{
	my $inner = $depth < 2 && rand() < .4 ? block($depth + 1) : insert();
	my $first = rand() < .5 ? insert() : '';
	my $bad = one_of('', 'PERFORM 1 / 0;', 'RAISE \'of itself\';', ('PERFORM differ(\'fz\', \'k = 5\');') x 2);

	$_ =~ s/SELECT 'rows' WHERE/SELECT count(*) FROM (SELECT) x WHERE/ foreach ($first, $inner);
	$_ =~ s/^WITH i AS \((INSERT.*) RETURNING k\).*/$1;/s foreach ($first, $inner);
	return "$first BEGIN $inner $bad EXCEPTION WHEN OTHERS THEN NULL; END;";
}

# Its rows get files that know nothing of what was there before, should it be taken back.
sub move_table
{
	$figures{moves}++;
	return 'ALTER TABLE fz SET TABLESPACE ' . one_of(qw(place_a place_b pg_default)) . ';';
}

sub move_index
{
	$figures{moves}++;
	return 'ALTER INDEX ' . one_of(qw(fz_k fz_kv fz_p)) . ' SET TABLESPACE ' . one_of(qw(place_a place_b pg_default)) . ';';
}

sub move
{
	return rand() < .75 ? move_table() : move_index();
}

# A type that keys are made of is to be changed: that is refused, if nothing else is.
sub alter_type ($session)
{
	my $state;

	$session->{refused} = 1;
	$state = run_sql($session, one_of('ALTER TYPE pair ADD ATTRIBUTE w int4;', 'ALTER TYPE pair DROP ATTRIBUTE v CASCADE;'));
	$session->{refused} = 0;
	$session->{finding} .= "a type in keys was altered\n" if $state eq '';
	return $state;
}

sub structure
{
	return move() if rand() < .14;
	return one_of('REINDEX INDEX fz_k;', 'TRUNCATE fp;', 'REINDEX TABLE fz;', 'REINDEX TABLE fu;', 'TRUNCATE fu;', 'ALTER TABLE fz ALTER t TYPE varchar(' . between(30, 90) . ');',
		'TRUNCATE fz;', 'DROP INDEX fz_kv; CREATE INDEX fz_kv ON fz USING pmhash (k, v) WITH (wal = off);');
}

# Calls that fail from now on: the first of the engine's and so on, or any.
sub faults_on
{
	my $for = one_of(1, 2_000_000_000);

	return 'SET statement_timeout = ' . between(1, 40) . ';' if rand() < .1;
	return sprintf('SET pmhash_faults.calls = %s; SET pmhash_faults.fail_for = %d; SET pmhash_faults.fail_at = %d;',
		rand() < .2 ? ('memory', 1, between(1, 60))
		: (one_of('posix_fallocate', 'posix_fallocate', 'malloc', 'calloc', 'realloc', 'aligned_alloc', 'aligned_alloc'), $for, between(1, 3)));
}

my $faults_off = 'SET pmhash_faults.fail_at = 0; SET statement_timeout = 0;';

# INSERT ... ON CONFLICT in the writer, held in the middle; meanwhile the other
# session takes one of its keys, so that the writer's row is killed.  Then VACUUM
# gives its TID away.
sub held_conflict ($s)
{
	my $base = 500_000 + 100 * int(rand(1000));
	my $row = between(18, 60);
	my $deadline = time + 5;
	my $state;

	run_sql($s->{other}, 'SELECT FROM pg_advisory_lock(1);');
	begin_sql($s->{writer}, "INSERT INTO fz SELECT $base + i, i, 'held', CASE i WHEN $row THEN 99 ELSE 0 END FROM generate_series(1, 60) i "
		  . one_of('ON CONFLICT DO NOTHING;', 'ON CONFLICT (id) DO UPDATE SET t = \'updated\';'));
	for (;;)
	{
		begin_sql($s->{judge}, 'SELECT count(*) FROM pg_locks WHERE locktype = \'advisory\' AND NOT granted;');
		last if answer_of($s->{judge}) =~ /^1$/m;
		$s->{writer}{psql}->pump_nb;
		last if time > $deadline || $s->{writer}{out} =~ /=DONE/;
		usleep(5_000);
	}
	run_sql($s->{other}, "INSERT INTO fz VALUES ($base + $row, -1, 'taken', 0);");
	run_sql($s->{other}, 'SELECT FROM pg_advisory_unlock(1);');
	$state = after($s->{writer}, answer_of($s->{writer}));
	$figures{killed}++ if $state eq '';
	run_sql($s->{other}, 'VACUUM (INDEX_CLEANUP on) fz;');
	run_sql($s->{other}, 'INSERT INTO fz ' . rows($fresh) . ';');
	return $state;
}

# Rows are inserted, and something else fails before they have been read.  The
# error is caught.
sub caught_fault ($s)
{
	my $w = $s->{writer};
	my $state = run_sql($w, insert());

	return $state if $state ne '';
	if (rand() < .5)
	{
		run_sql($w, faults_on() . ' DO $$ BEGIN ' . block(1) . ' END $$;');
		return run_sql($w, $faults_off);
	}
	run_sql($w, 'SAVEPOINT caught; ' . faults_on());
	run_sql($w, rand() < .7 ? read_some() : insert());
	run_sql($w, 'ROLLBACK TO caught;');
	mend_btrees($s, $w);
	return run_sql($w, rand() < .8 ? $faults_off : '');
}

# ---- transactions ----

sub other_session ($s)
{
	run_sql($s->{other}, one_of('VACUUM fz;', 'VACUUM (INDEX_CLEANUP on) fz; VACUUM fp, fu;', insert(), change(), read_some()));
	return '';
}

# The next statement of the writer; returns the SQLSTATE.
sub next_statement ($s, $points)
{
	my $w = $s->{writer};
	my $r = rand();

	return run_sql($w, insert()) if $r < .20;
	return caught_fault($s) if $r < .30;
	return run_sql($w, read_some()) if $r < .42;
	return run_sql($w, change()) if $r < .48;
	return run_sql($w, 'DO $$ BEGIN ' . block(0) . ' END $$;') if $r < .58;
	return other_session($s) if $r < .66;
	return held_conflict($s) if $r < .68;
	return run_sql($w, structure()) if $r < .70;
	return run_sql($w, move()) if $r < .73;
	return alter_type($w) if $r < .74;
	if ($r < .80)
	{
		push @$points, 's' . @$points;
		return run_sql($w, "SAVEPOINT $points->[-1];");
	}
	return run_sql($w, faults_on()) if $r < .90;
	return run_sql($w, $faults_off) if $r < .94;
	return run_sql($w, 'CLOSE ALL; DECLARE c CURSOR FOR SELECT id FROM fz WHERE k = ANY (ARRAY(SELECT generate_series(0, 40))); FETCH 1 c \\g /dev/null') if $r < .97;
	return '' if !@$points;
	return run_sql($w, 'RELEASE ' . pop(@$points) . ';');
}

# An error has come: go on after a savepoint, or not.
sub recover ($s, $points)
{
	return 0 if !@$points || rand() < .05;
	splice(@$points, between(1, scalar @$points)) if rand() < .3;
	run_sql($s->{writer}, $faults_off) if rand() < .5;
	return 0 if run_sql($s->{writer}, "ROLLBACK TO $points->[-1]; " . (rand() < .5 ? $faults_off : '')) ne '';
	mend_btrees($s, $s->{writer});
	return 1;
}

# The server dies with the transaction open, prepared, or just committed.  Its WAL may be
# on disk by then, and its pages.
sub die_and_start ($node, $s)
{
	my $w = $s->{writer};
	my $r = rand();
	my $log_start = -s $node->logfile;
	my $checkpoint;
	my %found;

	run_sql($w, $faults_off);
	if ($r < .25) { run_sql($w, 'PREPARE TRANSACTION \'fz\';') }
	elsif ($r < .35) { run_sql($w, 'SET synchronous_commit = off; COMMIT;') }
	elsif ($r < .45) { run_sql($w, 'COMMIT;') }
	run_sql($s->{other}, "INSERT INTO fp VALUES (-1, 1);") if rand() < .7;
	run_sql($s->{other}, 'CHECKPOINT;') if rand() < .2;
	$figures{crashes}++;
	$found{$_} = $s->{$_}{finding} foreach keys %$s;
	rand() < .5 ? crash($node) : $node->stop('immediate');
	end_sessions($s);
	$node->start;
	begin_sessions($node, $s);
	$s->{$_}{finding} = $found{$_} foreach keys %$s;
	run_sql($s->{writer}, 'SELECT \'' . one_of('COMMIT', 'ROLLBACK') . ' PREPARED \'\'fz\'\'\' FROM pg_prepared_xacts \\gexec');
	return;
}

# A transaction that moves the table and some indexes, gets rows, and so on, with levels
# that are taken back; and the death of the server.
sub move_and_die
{
	my ($node, $s) = @_;
	my $w = $s->{writer};
	my $depth = 0;
	my @steps = (move_table(), map { move_index() } 1 .. between(0, 3));

	run_sql($w, insert()) if rand() < .3;
	run_sql($w, 'BEGIN;');
	@steps = reverse(@steps) if rand() < .5;
	push @steps, 'INSERT INTO fz ' . rows($fresh) . ';';
	push @steps, one_of(move(), insert(), structure()) for 1 .. between(0, 3);
	while (@steps)
	{
		my $r = rand();
		my $sql = $r < .15 ? 'SAVEPOINT d' . ++$depth . ';'
		  : $r < .25 && $depth > 0 ? one_of('ROLLBACK TO', 'RELEASE') . ' d' . $depth-- . ';' : shift(@steps);
		my $state = run_sql($w, $sql);

		last if $state ne '' && ($depth == 0 || run_sql($w, 'ROLLBACK TO d' . $depth-- . ';') ne '');
		mend_btrees($s, $w) if $sql =~ /^ROLLBACK TO/ || $state ne '';
	}
	die_and_start($node, $s);
	return;
}

# The database gets other files; those of its indexes are elsewhere, and stay.
sub move_database ($node, $s)
{
	my $from = $node->safe_psql('postgres', q(SELECT spcname FROM pg_database d JOIN pg_tablespace t ON t.oid = dattablespace WHERE datname = 'postgres'));

	end_sessions($s);
	# (Not while a worker of pmhash is connected to it.)
	$figures{databases_moved}++
	  if $node->psql('template1', 'ALTER DATABASE postgres SET TABLESPACE ' . ($from eq 'place_c' ? 'place_d' : 'place_c')) == 0;
	begin_sessions($node, $s);
	return;
}

sub end_transaction ($s)
{
	my $w = $s->{writer};
	my $r = rand();
	my $state;

	run_sql($w, $faults_off) if rand() < .7;
	if ($r < .12)
	{
		$state = run_sql($w, 'PREPARE TRANSACTION \'fz\';');
		run_sql($w, $faults_off);
		run_sql($w, 'SELECT \'' . one_of('COMMIT', 'ROLLBACK') . ' PREPARED \'\'fz\'\'\' FROM pg_prepared_xacts \\gexec');
	}
	else
	{
		$state = run_sql($w, $r < .25 ? 'ROLLBACK;' : 'COMMIT;');
	}
	$figures{committed}++ if $state eq '' && ($r < .12 || $r >= .25);
	run_sql($w, "ROLLBACK; $faults_off");
	return;
}

# Indexes that were given up are made anew.
sub make_anew ($s)
{
	for (1 .. 50)
	{
		begin_sql($s->{judge}, 'SELECT count(*) FROM pmhash.indexes WHERE state NOT IN (\'valid\', \'empty\');');
		return if answer_of($s->{judge}) =~ /^0$/m;
		$figures{anew}++;
		run_sql($s->{other}, 'SELECT \'REINDEX INDEX \' || index FROM pmhash.indexes WHERE state NOT IN (\'valid\', \'empty\') \gexec');
	}
	return;
}

# A move of the table may have been taken back.  The server's own indexes have entries then
# of rows that came meanwhile (src/README, "Moved tables", says how): they lead to other rows, or to where the
# table ends no more.  Until here no other session has seen that.
sub mend_btrees ($s, $session)
{
	return if $s->{writer}{log} !~ /ALTER TABLE fz SET TABLESPACE/;
	run_sql($session, "$faults_off REINDEX INDEX fz_id; REINDEX INDEX fz_held;");
	return;
}

# Of a table that was moved, and that was taken back, indexes may be given up.
sub judge ($s)
{
	mend_btrees($s, $s->{other});
	if ($s->{writer}{log} =~ /SET TABLESPACE/)
	{
		run_sql($s->{judge}, "SELECT differ('fz', $_);") foreach "'k = ANY (ARRAY(SELECT generate_series(0, 999)))'", "'t = ANY (ARRAY(SELECT ''t'' || generate_series(0, 199)))'";
		make_anew($s);
	}
	run_sql($s->{judge}, 'SELECT judge(' . between(0, 8) . ');');
	return;
}

# One transaction and the judgement; returns what was found, or ''.
sub one_transaction ($node, $s)
{
	my $n = $figures{transactions};

	$_->{log} = $_->{finding} = '' foreach values %$s;
	if ($n % $death_each == 1 % $death_each) { move_and_die($node, $s) }
	else { random_transaction($node, $s, $n % (2 * $death_each) == $death_each) }
	move_database($node, $s) if $n % (3 * $death_each) == 2 * $death_each;
	judge($s);
	$figures{transactions}++;
	$figures{judged}++;
	run_sql($s->{other}, sprintf('SELECT %s FROM fz HAVING count(*) > %d \gexec',
			one_of("'TRUNCATE fz, fp, fu'", "unnest('{DELETE FROM fz,DELETE FROM fp,VACUUM (INDEX_CLEANUP ON) fz}'::text[])"), $most_rows));
	return join('', map { $s->{$_}{finding} ne '' ? "$_: $s->{$_}{finding}" : '' } sort keys %$s);
}

sub random_transaction ($node, $s, $dies)
{
	my @points;

	run_sql($s->{writer}, 'BEGIN ISOLATION LEVEL ' . one_of(('READ COMMITTED') x 4, 'REPEATABLE READ', 'SERIALIZABLE') . ';');
	for (my $n = between(1, 14); $n > 0; $n--)
	{
		my $state = next_statement($s, \@points);

		last if $state ne '' && !recover($s, \@points);
	}
	$dies ? die_and_start($node, $s) : end_transaction($s);
	return;
}

# Random transactions for so many seconds; returns what the first that went wrong
# has found, with the statements of all sessions, or ''.
sub fuzz_transactions ($node, $seed, $seconds)
{
	my $end = time + $seconds;
	my $latest = time + 6 * $seconds;
	my %s = map { $_ => new_session($node) } qw(writer other judge);
	my $found = '';

	# on a slow machine until there has been what is to be there (t/rows/random_sql.pl)
	srand($seed);
	while ($found eq '' && (time < $end || (time < $latest && fuzz_figures() =~ / 0 (moves|crashes)/)))
	{
		$found = one_transaction($node, \%s);
	}
	$found .= join('', map { "---- $_\n$s{$_}{log}" } qw(writer other judge)) if $found ne '';
	end_sessions(\%s);
	return $found;
}

sub fuzz_figures
{
	return join(', ', map { "$figures{$_} $_" } qw(transactions committed statements errors killed moves anew crashes databases_moved));
}

1;
