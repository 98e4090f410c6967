# Invalid indexes, and their rebuilds.

use v5.36;

use File::Path qw(rmtree);
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;

# ======== invalid and rebuild ========

# Invalid indexes: queries go on at once, inserts are let through, constraints
# are kept, and the index comes back by itself with every row.
{
	my $node = new_server('invalid', "wal_level = replica\n");
	my $pool = pool($node);
	start_with_extension($node, invalid_fixture());

	# event: missing, damaged, cut off, unreadable, or another index's, when the server starts
	my $damaged = 0;
	# trust: identity
	foreach my $case (some_of(2, file_damage()))
	{
		my ($name, $reason, $damage) = @$case;
		my ($file, $other) = (index_file($node, 't_k'), index_file($node, 'o_k'));

		$node->stop;
		rebuild_off($node);
		$damage->($file, $other);
		$node->start;
		stays_invalid($node, $reason, $name);
		same_answers($node, 'o', 'k', 'o_k', "$name, another index");
		rebuild_on($node);
		comes_back($node, $name);
		$damaged++;
	}
	cmp_ok($damaged, '>=', 5, 'cases of damage');

	# event: removed while in use
	# ---- found while the server runs: by a query, by an insert ----
	my $session = session_with($node, 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');
	rebuild_off($node);
	unlink(index_file($node, 't_k')) or die;
	# another session meets it and leaves a row out; the first must not miss it
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1, -77)');
	is($session->query_safe('SELECT count(*) FROM t WHERE k = 1 AND v = -77'), '1',
		'a session that has the old file mapped sees what others have left out of it');
	stays_invalid($node, 'it does not exist', 'file removed while in use');
	rebuild_on($node);
	comes_back($node, 'file removed while in use');
	is($session->query_safe('SELECT count(*) FROM t WHERE k = 1 AND v = -77'), '1',
		'and after the rebuild');

	# event: back again after rows were written without the index
	# a file that was left out of comes back: it must not be taken for complete
	rebuild_off($node);
	my $file = index_file($node, 't_k');
	rename($file, "$file.away") or die;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (1, -78)');
	$node->stop('immediate');
	rename("$file.away", $file) or die;
	$node->start;
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1 AND v = -78'),
		'1', 'a row left out of a file that has come back');
	like(index_state($node, 't_k'), qr/^invalid/, 'the file that has come back is not used');
	rebuild_on($node);
	comes_back($node, 'file that has come back');

	# event: an exclusion constraint's index, or a unique one, is invalid
	# ---- an exclusion constraint is not skipped ----
	rebuild_off($node);
	unlink(index_file($node, 'ex_k')) or die;
	fails_like($node, 'INSERT INTO ex VALUES (50)', qr/"ex_k" has no usable file.*REINDEX/s, 'constraint, present key');
	fails_like($node, 'INSERT INTO ex VALUES (-1)', qr/"ex_k" has no usable file.*REINDEX/s, 'constraint, new key');
	$node->safe_psql('postgres', 'VACUUM ex');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM ex WHERE k = 50'), '1', 'constraint, query');
	# while a rebuild is on its way the error tells to try again
	my $reader = session_with($node, "BEGIN; LOCK TABLE ex IN ROW EXCLUSIVE MODE", on_error_stop => 0);
	rebuild_on($node);
	my ($status, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET lock_timeout = '60s'; INSERT INTO ex VALUES (-2)");
	like($stderr, qr/ERROR:  40001: .*"ex_k".*Try again/s, 'constraint, retryable error');
	$reader->query_safe('COMMIT');
	$reader->quit;
	all_come_back($node, 'constraint');

	# event: a plan was made before the index became invalid
	# ---- a cached plan ----
	my $cached = session_with($node, "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE p AS SELECT count(*) FROM t WHERE k = \$1; EXECUTE p(2)");
	rebuild_off($node);
	unlink(index_file($node, 't_k')) or die;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (2, -79)');
	is($cached->query_safe('EXECUTE p(2)'),
		$node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE k = 2'),
		'a prepared statement is planned again');
	rebuild_on($node);
	comes_back($node, 'cached plan');
	$cached->quit;
	$session->quit;

	# ---- writers that hold the rebuild up, then are waited for ----
	rebuild_off($node);
	unlink(index_file($node, 't_k')) or die;
	my $writer = session_with($node, 'BEGIN; INSERT INTO t SELECT 7000001, i FROM generate_series(1, 100) i');
	$node->safe_psql('postgres', "BEGIN; INSERT INTO t VALUES (7000002, 1); PREPARE TRANSACTION 'skipper'");
	rebuild_on($node);
	wait_until($node, "SELECT state LIKE 'rebuild failed: %lock timeout%next try at%' FROM pmhash.indexes WHERE index = 't_k'", 'the rebuild did not report its failure');
	pass('rebuild gives up after an open transaction and says so');
	$writer->query_safe('COMMIT');
	wait_until($node, "SELECT phase = 'waiting for writers before build' FROM pg_stat_progress_create_index", 'no new try');
	pass('a prepared transaction is waited for');
	is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM t WHERE k = 7000001'), 't',
		'queries go on meanwhile');
	is($node->safe_psql('postgres', "SET statement_timeout = '5s'; INSERT INTO t VALUES (7000004, 1) RETURNING k"),
		'7000004', 'and so do writers');
	$node->safe_psql('postgres', "COMMIT PREPARED 'skipper'");
	comes_back($node, 'writers');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7000001'), '100',
		'rows of the open transaction');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 7000002'), '1',
		'row of the prepared transaction');
	$writer->quit;

	# ---- one writer holds up its table's rebuilds together, and no others for longer ----
	rebuild_off($node);
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE held (a int, b int, c int, d int);
CREATE TABLE others (k int);
@{[map { "CREATE INDEX held_$_ ON held USING pmhash ($_);" } qw(a b c d)]}
CREATE INDEX others_k ON others USING pmhash (k);
SQL
	$writer = session_with($node, 'BEGIN; INSERT INTO held VALUES (1, 2, 3, 4)');
	unlink(map { index_file($node, $_) } 'others_k', map { "held_$_" } qw(a b c d));
	my $position = -s $node->logfile;
	rebuild_on($node);
	wait_until($node, "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'others_k'", 'not rebuilt');
	my ($before) = slurp_file($node->logfile, $position) =~ /(.*)index "others_k" of table "others" has been rebuilt/s;
	cmp_ok(scalar(() = $before =~ /could not rebuild index "held_/g), '<=', 1, 'a table that is held up is waited for once');
	$writer->query_safe('COMMIT');
	$writer->quit;
	$node->safe_psql('postgres', 'DROP TABLE held, others');

	# ---- unlogged, partitioned, temporary, in a schema with strange names ----
	$node->safe_psql('postgres', <<SQL);
CREATE UNLOGGED TABLE u (k int4);
INSERT INTO u SELECT generate_series(1, 1000);
CREATE INDEX u_k ON u USING pmhash (k);
CREATE TABLE p (k int4) PARTITION BY RANGE (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (500);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (500) TO (2000);
INSERT INTO p SELECT generate_series(1, 1000);
CREATE INDEX p_k ON p USING pmhash (k);
CREATE FUNCTION twice(i int4) RETURNS int4 IMMUTABLE LANGUAGE sql AS 'SELECT 2 * i';
CREATE TABLE e (k int4);
INSERT INTO e SELECT generate_series(1, 1000);
CREATE INDEX e_k ON e USING pmhash (twice(k)) WHERE k > 10;
SQL
	$node->stop;
	rmtree($pool);
	$node->start;
	all_come_back($node, 'pool removed');
	same_answers($node, 'u', 'k', 'u_k', 'unlogged');
	same_answers($node, 'p1', 'k', 'p1_k_idx', 'first partition');
	same_answers($node, 'p2', 'k', 'p2_k_idx', 'second partition');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT k FROM e WHERE twice(k) = 400 AND k > 10'),
		'200', 'expression and predicate');

	# trouble: LOG: `pmhash: index "..." of table "..." has been rebuilt`
	like(slurp_file($node->logfile), qr/LOG:  pmhash: index "t_k" of table "t" has been rebuilt.*it does not exist/s, 'log');
	crash_and_start($node);
	all_come_back($node, 'after a crash');
	same_answers($node, 't', 'k', 't_k', 'after a crash');
	$node->stop;
}

# ======== rebuilds ========

# The queue of rebuilds: constraints come first; what fails waits longer and
# longer, also with more failures than there are places to note them; users are
# given a hint what to do, and no more than they may know.  (Without a worker slot: rebuild_breaks.)
{
	my $places = $PmhashTest::places_of_rebuilds;
	my $failing = $places + 16;
	my $plain = 30;

	my $node = new_server('rebuilds', undef, install_path => install_with_stop_points());
	start_with_extension($node);
	my $pool = pool($node);

	sub lose_files
	{
		$node->stop if -e $node->data_dir . '/postmaster.pid';
		unlink(index_files($pool));
		return;
	}

	sub valid ($index)
	{
		return $node->poll_query_until('postgres',
			"SELECT state = 'valid' FROM pmhash.indexes WHERE index = '$index'");
	}

	# ---- an expression that depends on search_path; a constraint with another index ----
	$node->safe_psql('postgres', <<SQL);
CREATE ROLE owner;
CREATE ROLE stranger;
CREATE SCHEMA app AUTHORIZATION owner;
GRANT USAGE ON SCHEMA app TO PUBLIC;
SET search_path = app, public;
CREATE FUNCTION app.helper(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT \$1';
CREATE FUNCTION app.needs_path(int) RETURNS int IMMUTABLE LANGUAGE plpgsql
	AS 'BEGIN RETURN helper(\$1); END';
CREATE TABLE app.a_first (k int);
INSERT INTO app.a_first SELECT generate_series(1, 100);
CREATE INDEX a_first_k ON app.a_first USING pmhash (k);
CREATE TABLE app.secret (s text, k int,
	CONSTRAINT secret_k EXCLUDE USING pmhash ((needs_path(k)) WITH =));
INSERT INTO app.secret SELECT 'word ' || i, i FROM generate_series(1, 10) i;
CREATE FUNCTION app.number_of(text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN length(\$1); END';
CREATE INDEX secret_s ON app.secret USING pmhash (app.number_of(s));
CREATE OR REPLACE FUNCTION app.number_of(text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN \$1::int; END';
CREATE TABLE app.z_last (k int, CONSTRAINT z_last_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO app.z_last SELECT generate_series(1, 100);
ALTER TABLE app.secret OWNER TO owner;
-- what the owner of a database can do: workers are not to have that path
CREATE SCHEMA m;
GRANT USAGE ON SCHEMA m TO PUBLIC;
CREATE FUNCTION m.helper(k int) RETURNS int LANGUAGE plpgsql AS
	'BEGIN RAISE LOG ''in the rights of %'', current_user; RETURN k; END';
ALTER DATABASE postgres SET search_path = m, app, public;
SQL
	$node->safe_psql('postgres', "CREATE DATABASE wide TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
	install_extension($node, 'wide', <<SQL);
CREATE FUNCTION number_of(text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN length(\$1); END';
CREATE TABLE w AS SELECT 'word'::text AS s;
CREATE INDEX w_s ON w USING pmhash (number_of(s));
CREATE OR REPLACE FUNCTION number_of(text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN RAISE EXCEPTION \$\$%\$\$, \$\$?\$\$ || repeat(chr(228), 200); END';
SQL
	lose_files();
	my $offset = -s $node->logfile;
	$node->start;
	ok(valid('a_first_k'), 'an index that can be rebuilt is');
	my @order = logged_since($node, $offset) =~ /index "(z_last_k|a_first_k)" of table/g;
	is("@order", 'z_last_k a_first_k', 'the index of a constraint comes first');

	# after three tries it is not "try again" any more
	ok($node->poll_query_until('postgres', "SELECT state LIKE 'rebuild failed: function helper%' FROM pmhash.indexes WHERE index = 'secret_k'"),
		'the rebuild without search_path fails');
	unlike(logged_since($node, $offset), qr/in the rights of/, 'and calls no function of the path of the database');
	$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET search_path');
	my $wait = "SET search_path = app; SET pmhash.group_insert = on; INSERT INTO app.secret VALUES ('1', 99)";
	my ($stderr, $deadline) = ('', time + 60);
	do
	{
		(undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\n$wait");
	} while ($stderr !~ /55000/ && time < $deadline);
	like($stderr, qr/ERROR:  55000: pmhash index "secret_k" has no usable file/, 'SQLSTATE after failures');
	like($stderr, qr/HINT:  Its rebuild has failed \d+ times \(SQLSTATE 42883/, 'what to do');

	# ---- which roles may see what ----
	my $state = "SELECT state, file IS NULL FROM pmhash.indexes WHERE index = 'secret_s'";
	like($node->safe_psql('postgres', $state), qr/^rebuild failed: invalid input syntax.*"word \d+".*\|f$/, 'a superuser sees why');
	like($node->safe_psql('postgres', "SET ROLE owner; $state"), qr/"word \d+".*\|f$/, 'so does the owner');
	like($node->safe_psql('postgres', "GRANT pg_monitor TO stranger; SET ROLE stranger; $state"), qr/"word \d+".*\|f$/,
		'so does pg_monitor');
	like($node->safe_psql('postgres', "REVOKE pg_monitor FROM stranger; SET ROLE stranger; $state"),
		qr/^rebuild failed: SQLSTATE 22P02; next try at [^"]*\|t$/, 'others see neither rows nor paths');

	# a long message is cut after a whole character
	$state = "SELECT state FROM pmhash.indexes WHERE index = 'w_s'";
	ok($node->poll_query_until('wide', "SELECT state LIKE 'rebuild failed: ?' || chr(228) || '%' FROM pmhash.indexes WHERE index = 'w_s'"),
		'a long message');
	is($node->safe_psql('wide', "SET client_encoding = latin1; $state") =~ /^rebuild failed: \?\xe4{79};/ ? 'whole' : 'cut', 'whole',
		'a long message is cut after a whole character');

	# a superuser's statement that runs a function of another's index does not tell that one
	$node->safe_psql('postgres', <<SQL);
CREATE ROLE mallory;
CREATE SCHEMA hers AUTHORIZATION mallory;
SET ROLE mallory;
CREATE TABLE hers.seen (state text, file text, pool text);
CREATE FUNCTION hers.look() RETURNS int VOLATILE LANGUAGE plpgsql AS \$\$ BEGIN
	INSERT INTO hers.seen SELECT i.state, i.file, s.directory FROM pmhash.indexes i, pmhash.stat s WHERE i.index = 'secret_s';
	RETURN 0;
END \$\$;
CREATE FUNCTION hers.folded(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN hers.look() + \$1; END';
CREATE TABLE hers.m (k int);
INSERT INTO hers.m VALUES (1);
CREATE INDEX m_k ON hers.m (hers.folded(k));
TRUNCATE hers.seen;
RESET ROLE;
SQL
	foreach my $statement ('ANALYZE hers.m', 'REINDEX TABLE hers.m')
	{
		$node->safe_psql('postgres', $statement);
		like($node->safe_psql('postgres', 'SELECT DISTINCT state, file IS NULL, pool IS NULL FROM hers.seen'),
			qr/^rebuild failed: SQLSTATE 22P02; next try at [^"\n]*\|t\|t$/, "nor in a superuser's $statement");
		$node->safe_psql('postgres', 'TRUNCATE hers.seen');
	}
	$node->safe_psql('postgres', 'DROP OWNED BY mallory');
	$node->safe_psql('postgres', "ALTER FUNCTION app.needs_path(int) SET search_path = app; DROP TABLE app.a_first");
	$node->safe_psql('postgres', 'SET search_path = app; REINDEX INDEX app.secret_k');
	ok(valid('secret_k'), 'REINDEX, with the path set for the function');
	$node->safe_psql('postgres', "DROP SCHEMA app CASCADE");

	# ---- more failures than places ----
	$node->safe_psql('postgres', <<SQL);
CREATE FUNCTION fails(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN \$1; END';
DO \$\$ BEGIN
	FOR i IN 1 .. $failing LOOP
		EXECUTE format('CREATE TABLE f%s (k int); INSERT INTO f%s VALUES (1); CREATE INDEX f%s_k ON f%s USING pmhash (fails(k))', i, i, i, i);
	END LOOP;
END \$\$;
CREATE OR REPLACE FUNCTION fails(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
SQL
	$node->safe_psql('postgres',
		join('', map { "CREATE TABLE p$_ AS SELECT 1 AS k; CREATE INDEX p${_}_k ON p$_ USING pmhash (k);" } 1 .. $plain));
	lose_files();
	$offset = -s $node->logfile;
	$node->start;
	ok($node->poll_query_until('postgres', "SELECT count(*) >= $places - 2 FROM pmhash.indexes WHERE state ~ 'failed'"),
		'as many as there are places for have failed (another database has one, and one may be running)');
	my (%tries, $most);
	for ($deadline = time + 60; time < $deadline; usleep(100_000))
	{
		%tries = ();
		$tries{$_}++ foreach logged_since($node, $offset) =~ /could not rebuild index "(f\d+_k)"/g;
		($most) = sort { $b <=> $a } values %tries;
		last if keys %tries == $failing && $most >= 2;
	}
	is(scalar(keys %tries), $failing, 'each is tried');
	cmp_ok($most, '>=', 2, 'tried again');
	cmp_ok($most, '<=', 6, 'but after 1, 2, 4, 8 seconds');

	# plain indexes that are lost then have their turn, within a minute
	{
		my @plain = map { "p${_}_k" } 1 .. $plain;
		my @files = split(/\n/, $node->safe_psql('postgres', "SELECT file FROM pmhash.indexes WHERE index::text ~ '^p\\d+_k\$'"));
		my %rebuilt;

		# before that: the worker that tries the others may meet some at once
		$offset = -s $node->logfile;
		is(unlink(@files), $plain, 'plain indexes are lost');
		$deadline = time + 90;
		do
		{
			$node->safe_psql('postgres', join('', 'SET enable_seqscan = off;', map { "SELECT count(*) FROM p$_ WHERE k = 1;" } 1 .. $plain));
			sleep(1);
			%rebuilt = map { $_ => 1 } logged_since($node, $offset) =~ /index "(p\d+_k)" of table "p\d+" has been rebuilt/g;
		} while (keys %rebuilt < $plain && time < $deadline);
		is(join(' ', grep { !$rebuilt{$_} } @plain), '', 'plain indexes are rebuilt');
		ok($node->poll_query_until('postgres', "SELECT count(*) >= $places - 2 FROM pmhash.indexes WHERE state ~ 'failed|^rebuilding'"), 'while the others go on failing');
		$node->safe_psql('postgres', join('', map { "DROP TABLE p$_;" } 1 .. $plain));
	}
	$node->safe_psql('postgres', 'CREATE OR REPLACE FUNCTION fails(int) RETURNS int IMMUTABLE LANGUAGE sql AS $$SELECT $1$$');
	ok($node->poll_query_until('postgres', "SELECT count(*) = $failing FROM pmhash.indexes WHERE state = 'valid'"),
		'all come back when the cause has gone');

	$node->stop;
}

# ======== owner rights ========

# What the functions of an index do, they do in the rights of the table's owner, on
# whichever server and by whichever process: in builds on a standby, with their looks at
# expressions and predicate before the first row, in rebuilds with workers, in checks.
#
# An IMMUTABLE function of constants runs when the server simplifies an expression, which
# it does wherever an index's expressions are read.
{
	my $primary = new_primary('primary', <<CONF);
pmhash.wal = on
log_line_prefix = '%m [%p] %b: '
max_parallel_maintenance_workers = 2
min_parallel_table_scan_size = 8kB
CONF

	# The user that runs it is said in the log.  One reads a table, which needs a snapshot; so
	# does PL/pgSQL in all it does, but for what a volatile function in SQL calls.
	$primary->safe_psql('postgres', <<'SQL');
CREATE ROLE plain LOGIN;
CREATE SCHEMA plain AUTHORIZATION plain;
SET SESSION AUTHORIZATION plain;
CREATE FUNCTION plain.tell(what text) RETURNS integer VOLATILE PARALLEL SAFE LANGUAGE plpgsql AS $$
BEGIN
	RAISE LOG '% runs as % of %', what, current_user, session_user;
	RETURN 1;
END $$;
CREATE FUNCTION plain.through(what text) RETURNS integer VOLATILE PARALLEL SAFE LANGUAGE sql AS
	'SELECT 0; SELECT plain.tell(what)';
CREATE FUNCTION plain.folded(what text) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql AS
	'SELECT plain.through(what)';
CREATE TABLE plain.one (n integer);
INSERT INTO plain.one VALUES (1);
CREATE FUNCTION plain.reading(what text) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN RETURN plain.tell(what) * (SELECT n FROM plain.one); END';
CREATE TABLE plain.v (k integer, n integer) WITH (parallel_workers = 2);
INSERT INTO plain.v SELECT i % 100, i FROM generate_series(1, 5000) i;
CREATE INDEX v_k ON plain.v USING pmhash ((k + plain.folded('expression'))) WHERE k >= plain.folded('predicate');
CREATE INDEX v_n ON plain.v USING pmhash ((n + plain.reading('reader')));
SQL

	# Tests: in the log since then processes of these kinds say that the functions run as the
	# owner, and none as any other.
	sub runs_as_owner ($node, $position, $kind, @what)
	{
		my @said = grep { /\Q$kind\E: LOG:  +\w+ runs as/ } split(/\n/, logged_since($node, $position));

		foreach my $what (@what)
		{
			ok((grep { /$what runs as plain of / } @said) > 0, "$kind: $what runs");
		}
		is(join("\n", grep { !/runs as plain of / } @said), '', "$kind: as nobody but the owner");
		return;
	}

	# ---- a standby builds ----

	my $standby = new_standby($primary, 'standby');
	wait_for_state($standby, $_, qr/^valid$/, "standby: $_") foreach qw(v_k v_n);
	runs_as_owner($standby, 0, 'pmhash worker', qw(expression predicate reader));
	unlike(logged_since($standby, 0), qr/was terminated by signal/, 'standby: nothing has crashed');
	my $position = log_position($standby);
	is($standby->safe_psql('postgres', "SELECT pmhash.check('plain.v_k')"), '', 'standby: a superuser checks it');
	runs_as_owner($standby, $position, 'client backend', qw(expression predicate));

	# ---- the primary rebuilds and checks ----

	$position = log_position($primary);
	truncate($_, 8192) foreach database_files($primary, 'postgres');
	wait_for_state($primary, $_, qr/^valid$/, "rebuilt: $_") foreach qw(v_k v_n);
	runs_as_owner($primary, $position, 'pmhash worker', qw(expression predicate reader));
	$position = log_position($primary);
	is($primary->safe_psql('postgres', <<'SQL'), '', 'a superuser asks for all there is');
DO $$
BEGIN
	PERFORM pmhash.check('plain.v_k');
	PERFORM pmhash.stats('plain.v_k'), pmhash.size('plain.v_k'), pmhash.prewarm('plain.v_k');
	PERFORM pmhash.total_relation_size('plain.v');
	PERFORM * FROM pmhash.indexes;
	PERFORM * FROM pmhash.files();
END $$
SQL
	runs_as_owner($primary, $position, 'client backend', qw(expression predicate));
	$position = log_position($primary);
	$primary->safe_psql('postgres', $_)
	  foreach 'VACUUM (INDEX_CLEANUP ON) plain.v', 'ALTER INDEX plain.v_k SET (wal = off)', 'ALTER INDEX plain.v_k SET (wal = on)',
	  'REINDEX INDEX plain.v_k', 'REINDEX INDEX CONCURRENTLY plain.v_k';
	runs_as_owner($primary, $position, 'client backend', qw(expression predicate));
	# (a rebuild in the background may have none: pmhash_give_way_workers)
	runs_as_owner($primary, $position, 'parallel worker', qw(expression predicate));
	caught_up($primary, $standby);
	wait_for_state($standby, 'v_k', qr/^valid$/, 'standby, at last');

	runs_as_owner($standby, 0, 'pmhash worker');
	$_->stop foreach $standby, $primary;
}

done_testing();
