# The queue of rebuilds: constraints come first; what fails waits longer and
# longer, also with more failures than there are places to note them; users are
# given a hint what to do, and no more than they may know; so are those without a worker slot.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $places = 1024;
my $failing = 1100;
my $plain = 30;

my $node = new_server('rebuilds', "max_locks_per_transaction = 256\n");
$node->start;
install_extension($node);
my $pool = pool($node);

# Lose all index files while the server is down.
sub lose_files
{
	$node->stop if -e $node->data_dir . '/postmaster.pid';
	unlink(index_files($pool));
	return;
}

sub log_since
{
	my ($offset) = @_;

	return substr(slurp_file($node->logfile), $offset);
}

sub valid
{
	my ($index) = @_;

	return $node->poll_query_until('postgres',
		"SELECT state = 'valid' FROM pmhash_indexes WHERE index = '$index'");
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
install_extension($node, 'wide');
$node->safe_psql('wide', <<SQL);
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
my @order = log_since($offset) =~ /index "(z_last_k|a_first_k)" of table/g;
is("@order", 'z_last_k a_first_k', 'the index of a constraint comes first');

# after three tries it is not "try again" any more
ok($node->poll_query_until('postgres', "SELECT state LIKE 'rebuild failed: function helper%' FROM pmhash_indexes WHERE index = 'secret_k'"),
	'the rebuild without search_path fails');
unlike(log_since($offset), qr/in the rights of/, 'and calls no function of the path of the database');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET search_path');
my $wait = "SET search_path = app; SET pmhash.group_insert = on; INSERT INTO app.secret VALUES ('1', 99)";
my ($stderr, $deadline) = ('', time + 60);
do
{
	(undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\n$wait");
} while ($stderr !~ /55000/ && time < $deadline);
like($stderr, qr/ERROR:  55000: pmhash index "secret_k" has no usable file/, 'SQLSTATE after failures');
like($stderr, qr/HINT:  Its rebuild has failed \d+ times \(SQLSTATE 42883.*ALTER FUNCTION \.\.\. SET search_path/,
	'what to do');
like(log_since($offset), qr/HINT:  A function that the index calls may depend on search_path/, 'the log tells it as well');

# ---- which roles may see what ----
my $state = "SELECT state, file IS NULL FROM pmhash_indexes WHERE index = 'secret_s'";
like($node->safe_psql('postgres', $state), qr/^rebuild failed: invalid input syntax.*"word \d+".*\|f$/, 'a superuser sees why');
like($node->safe_psql('postgres', "SET ROLE owner; $state"), qr/"word \d+".*\|f$/, 'so does the owner');
like($node->safe_psql('postgres', "GRANT pg_monitor TO stranger; SET ROLE stranger; $state"), qr/"word \d+".*\|f$/,
	'so does pg_monitor');
like($node->safe_psql('postgres', "REVOKE pg_monitor FROM stranger; SET ROLE stranger; $state"),
	qr/^rebuild failed: SQLSTATE 22P02; next try at [^"]*\|t$/, 'others see neither rows nor paths');

# a long message loses its middle, in whole characters: why it failed stands at the end
$state = "SELECT state FROM pmhash_indexes WHERE index = 'w_s'";
ok($node->poll_query_until('wide', "SELECT state LIKE 'rebuild failed: ?' || chr(228) || '%' FROM pmhash_indexes WHERE index = 'w_s'"),
	'a long message');
is($node->safe_psql('wide', "SET client_encoding = latin1; $state") =~ /^rebuild failed: \?\xe4{23}\.\.\.\xe4{53};/ ? 'whole' : 'cut', 'whole',
	'a long message loses its middle, in whole characters');

# a superuser's statement that runs a function of another's index does not tell that one
$node->safe_psql('postgres', <<SQL);
CREATE ROLE mallory;
CREATE SCHEMA hers AUTHORIZATION mallory;
SET ROLE mallory;
CREATE TABLE hers.seen (state text, file text, pool text);
CREATE FUNCTION hers.look() RETURNS int VOLATILE LANGUAGE plpgsql AS \$\$ BEGIN
	INSERT INTO hers.seen SELECT i.state, i.file, s.directory FROM public.pmhash_indexes i, public.pmhash_stat s WHERE i.index = 'secret_s';
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
ok($node->poll_query_until('postgres', "SELECT count(*) = $places FROM pmhash_indexes WHERE state ~ 'failed'"),
	'as many as there are places for have failed');
sleep(12);
my %tries;
$tries{$_}++ foreach log_since($offset) =~ /could not rebuild index "(f\d+_k)"/g;
is(scalar(keys %tries), $failing, 'each is tried');
my ($most) = sort { $b <=> $a } values %tries;
cmp_ok($most, '>=', 2, 'tried again');
cmp_ok($most, '<=', 6, 'but after 1, 2, 4, 8 seconds');

# plain indexes that are lost then have their turn, within a minute
{
	my @plain = map { "p${_}_k" } 1 .. $plain;
	my @files = split(/\n/, $node->safe_psql('postgres', "SELECT file FROM pmhash_indexes WHERE index::text ~ '^p\\d+_k\$'"));
	my %rebuilt;

	# before that: the worker that tries the others may meet some at once
	$offset = -s $node->logfile;
	is(unlink(@files), $plain, 'plain indexes are lost');
	$deadline = time + 90;
	do
	{
		$node->safe_psql('postgres', join('', 'SET enable_seqscan = off;', map { "SELECT count(*) FROM p$_ WHERE k = 1;" } 1 .. $plain));
		sleep(1);
		%rebuilt = map { $_ => 1 } log_since($offset) =~ /index "(p\d+_k)" of table "p\d+" has been rebuilt/g;
	} while (keys %rebuilt < $plain && time < $deadline);
	is(join(' ', grep { !$rebuilt{$_} } @plain), '', 'plain indexes are rebuilt');
	ok($node->poll_query_until('postgres', "SELECT count(*) = $places FROM pmhash_indexes WHERE state ~ 'failed|^rebuilding'"), 'while the others go on failing');
	$node->safe_psql('postgres', join('', map { "DROP TABLE p$_;" } 1 .. $plain));
}
$node->safe_psql('postgres', 'CREATE OR REPLACE FUNCTION fails(int) RETURNS int IMMUTABLE LANGUAGE sql AS $$SELECT $1$$');
ok($node->poll_query_until('postgres', "SELECT count(*) = $failing FROM pmhash_indexes WHERE state = 'valid'"),
	'all come back when the cause has gone');

# ---- no slot for a worker, and none even for the launcher ----
# The server's own logical replication launcher takes one.
my %missing = (
	1 => 'no pmhash launcher is running to rebuild it',
	2 => 'no slot is free for a worker to rebuild it');
foreach my $slots (1, 2)
{
	lose_files();
	$node->append_conf('postgresql.conf', "max_worker_processes = $slots\nmax_parallel_workers = 0\n");
	$offset = -s $node->logfile;
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM f1 WHERE fails(k) = 1'), '1', "$slots slots: queries do without");
	ok($node->poll_query_until('postgres',
			"SELECT state LIKE 'invalid: %; $missing{$slots} (see max_worker_processes)' FROM pmhash_indexes WHERE index = 'f1_k'"),
		"$slots slots: the view tells");
}
sleep(7);
# trouble: LOG: `pmhash: no slot is free for a background worker`
is(scalar(() = log_since($offset) =~ /no slot is free for a background worker/g), 1, 'and the log, once');
$node->stop;
done_testing();
