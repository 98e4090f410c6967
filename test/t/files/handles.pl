# What a transaction has in its hands stays mapped, however many files it needs:
# a handle that a queue of entries, a scan, a cursor or a build still has is never
# closed under it.  And what has no owner any more goes: files of temporary tables
# that are emptied at each commit, and the calls that look for them.  Where files are is not shown to all users.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $many = 1010;    # more than keep their pages (1,000), and than stay mapped
my $node = new_faulty_server('handles', <<CONF);
max_locks_per_transaction = 512
pmhash.mapped_files = 900
pmhash.cleaner_naptime = 3600
CONF
my $pool = pool($node);

# $many tables with an index each, and one that everything here is about.
$node->safe_psql('postgres', <<SQL);
CREATE TABLE h (k int, v int);
INSERT INTO h SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX h_k ON h USING pmhash (k);
CREATE TABLE r (k int, v int);
CREATE INDEX r_k ON r USING pmhash (k);
CREATE TABLE p (k int) PARTITION BY LIST (k);
DO \$\$ BEGIN
	FOR i IN 1 .. $many LOOP
		EXECUTE format('CREATE TABLE p_%s PARTITION OF p FOR VALUES IN (%s)', i, i);
	END LOOP;
END \$\$;
CREATE FUNCTION map_many() RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN
	FOR i IN 1 .. $many LOOP
		EXECUTE format('INSERT INTO p_%s VALUES (%s)', i, i);
	END LOOP;
END \$\$;
CREATE FUNCTION by_index(key int) RETURNS bigint LANGUAGE plpgsql
SET enable_seqscan = off AS \$\$ BEGIN
	RETURN (SELECT count(*) FROM h WHERE k = key);
END \$\$;
SQL
my $session = $node->background_psql('postgres', on_error_stop => 0);

sub run_sql
{
	my ($sql) = @_;
	my $answer = $session->query($sql);

	is($session->{stderr}, '', "no error: $sql");
	$session->{stderr} = '';
	return $answer;
}

# ---- one transaction that has more mapped than are kept, and builds more ----
run_sql('SET enable_seqscan = off');
run_sql('CREATE INDEX p_k ON p USING pmhash (k)');
is(scalar(index_files($pool)), $many + 2, 'an index each');
run_sql('BEGIN');
run_sql('DECLARE scan CURSOR FOR SELECT v FROM h WHERE k = ANY (ARRAY(SELECT generate_series(1, 1000)))');
run_sql('DECLARE kept CURSOR WITH HOLD FOR SELECT v FROM h WHERE k = ANY (ARRAY(SELECT generate_series(1, 1000)))');
run_sql('FETCH 3 FROM scan');
run_sql('FETCH 3 FROM kept');
run_sql('INSERT INTO r SELECT 7, i FROM generate_series(1, 500) i');
run_sql('SAVEPOINT r');
run_sql('TRUNCATE r');
run_sql('REINDEX INDEX r_k');
run_sql('SELECT map_many()');
run_sql('ROLLBACK TO r');
run_sql('INSERT INTO h SELECT 5000, i FROM generate_series(1, 500) i');
run_sql('SAVEPOINT a');
run_sql('SELECT map_many()');
run_sql('INSERT INTO h SELECT 5001, i FROM generate_series(1, 500) i');
run_sql('ROLLBACK TO a');
run_sql('SELECT map_many()');
run_sql('CREATE INDEX p_k2 ON p USING pmhash (k)');
is(scalar(my @rows = split /\n/, run_sql('FETCH ALL FROM scan')), 997, 'the cursor goes on with the file it has');
run_sql('COMMIT');
is(scalar(@rows = split /\n/, run_sql('FETCH ALL FROM kept')), 997, 'so does the one that outlives the transaction');
run_sql('CLOSE kept');
is(run_sql('SELECT by_index(5000), by_index(5001)'), '500|0', 'and so does the queue');
is(run_sql("SELECT count(*) FROM r WHERE k = 7"), '500', 'that of a file that came back, too');

# ---- a function of the index that is being built inserts into its table ----
# The queue has the new file then, which the build has done with before.  (The other
# index is there since INSERT looks for indexes only where relhasindex is set.  From
# PostgreSQL 17 on search_path is pg_catalog while an index is built.)
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE e (k int, v int);
INSERT INTO e VALUES (1, 1);
CREATE INDEX e_v ON e (v);
CREATE FUNCTION inserts() RETURNS void LANGUAGE sql AS
'INSERT INTO public.e SELECT 2, i FROM generate_series(1, 100) i';
CREATE FUNCTION calls_insert(key int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
	IF key = 1 THEN
		PERFORM public.inserts();
	END IF;
	RETURN key;
END $$;
SQL
run_sql('BEGIN');
run_sql('SELECT map_many()');
my $built = $session->query('CREATE INDEX e_k ON e USING pmhash (calls_insert(k))');
$session->{stderr} = '';
$session->query('COMMIT');
# (Its rows may be in the index twice then: the function is not what it says it is.)
is($session->query('SELECT count(*) FROM e'), '101', 'a build whose function inserts: the server lives');
$session->{stderr} = '';
run_sql('DROP TABLE e');

# ---- commits do not look for files that have gone for ever ----
# What an invalidation has made suspect is looked for once.

sub stats_of_commits
{
	my ($n) = @_;

	run_sql("SET pmhash_faults.calls = 'stat'; SET pmhash_faults.fail_at = 2000000000");
	run_sql("DO \$\$ BEGIN FOR i IN 1 .. $n LOOP PERFORM 1; COMMIT; END LOOP; END \$\$");
	my ($calls) = split / /, run_sql('SELECT pmhash_faults_report()');
	run_sql('SET pmhash_faults.fail_at = 0');
	return $calls;
}

run_sql('SELECT map_many()');
stats_of_commits(200);
is(stats_of_commits(200), 0, 'commits with files mapped: no stat');
run_sql('BEGIN; CREATE TEMP TABLE gone (k int); CREATE INDEX ON gone USING pmhash (k); ROLLBACK');
cmp_ok(stats_of_commits(200), '<=', 1, 'after an aborted CREATE INDEX');
$node->safe_psql('postgres', 'ANALYZE p');
cmp_ok(my $looks = stats_of_commits(200), '<=', $many + 2, 'after invalidations of all: one for each');
cmp_ok($looks, '>', 0, 'they are counted');
is(stats_of_commits(200), 0, 'and no more');
# (More than 200 files are left to the cleaner, which is waited for: as long as files go,
# what is suspect is looked for again.)
$node->safe_psql('postgres', 'TRUNCATE h; TRUNCATE p');
wait_for_files($pool, $node->safe_psql('postgres', 'SELECT count(*) FROM pmhash_indexes'),
	'the files have gone');
cmp_ok(stats_of_commits(200), '<=', $many + 2, 'after what another session has removed');
is(stats_of_commits(200), 0, 'and no more after that');

# ---- temporary tables that are emptied at each commit ----
# With as much mapped as is kept, each new file that a build has done with is
# unmapped for the next, and forgotten when its index is invalidated.
run_sql('SELECT map_many()');
run_sql(<<SQL);
DO \$\$ BEGIN
	FOR i IN 1 .. 20 LOOP
		EXECUTE format('CREATE TEMP TABLE tt_%s (k int) ON COMMIT DELETE ROWS', i);
		EXECUTE format('CREATE INDEX ON tt_%s USING pmhash (k)', i);
	END LOOP;
END \$\$
SQL
my $before = index_files($pool);
run_sql('INSERT INTO tt_1 VALUES (1)') foreach 1 .. 2;
is(scalar(index_files($pool)), $before, 'a file for each index');
$session->quit;

# ---- where the files are is not shown to all users, in errors either ----
$node->append_conf('postgresql.conf', 'pmhash.rebuild = off');
$node->reload;
$node->safe_psql('postgres', <<SQL);
CREATE ROLE stranger;
CREATE ROLE owner;
CREATE ROLE monitor IN ROLE pg_monitor;
CREATE TABLE x (k int, CONSTRAINT x_k EXCLUDE USING pmhash (k WITH =));
ALTER TABLE x OWNER TO owner;
GRANT SELECT, INSERT ON x TO stranger, monitor;
SQL
my $file = $node->safe_psql('postgres', "SELECT file FROM pmhash_indexes WHERE index = 'x_k'");
my ($name) = $file =~ m,^\Q$pool\E/(\d+/\w+\.pmh)$, or die $file;
my $offset = -s $node->logfile;
foreach my $what ('missing', 'damaged')
{
	if ($what eq 'missing')
	{
		rename($file, "$file.away") or die "$file: $!";
	}
	else
	{
		rename("$file.away", $file) or die "$file: $!";
		$node->safe_psql('postgres', 'REINDEX INDEX x_k');
		$file = $node->safe_psql('postgres', "SELECT file FROM pmhash_indexes WHERE index = 'x_k'");
		($name) = $file =~ m,^\Q$pool\E/(\d+/\w+\.pmh)$, or die $file;
		append_to_file("$file.new", 'x' x 8192);
		rename("$file.new", $file) or die "$file: $!";
	}
	foreach my $role ('stranger', 'owner', 'monitor')
	{
		my ($status, $stdout, $stderr) = $node->psql('postgres', "SET ROLE $role; INSERT INTO x VALUES (1)");
		my $path = $role eq 'stranger' ? $name : $file;

		like($stderr, qr/"x_k" has no usable file.*File "\Q$path\E" cannot be used/s, "$what: what a $role may see");
	}
	like(slurp_file($node->logfile, $offset), qr/DETAIL:  File "\Q$name\E" cannot be used.*\n\s*The path is "\Q$file\E"\.\n/,
		"$what: the log has the whole path");
}

$node->stop;
done_testing();
