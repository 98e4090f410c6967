# Every call that can fail is made to fail, one after another: allocations,
# and calls of the operating system.  The statement succeeds or is refused
# with an ordinary error, the session goes on, and every index is right.
#
# PMHASH_FAULTS=all tries every call ("make soak-faults"), otherwise each place in
# pmhash that calls come from is tried in some statements.
# long

use v5.36;
use PmhashFaults;
use PmhashPauses;
use PmhashTest;

# event: out of memory, descriptors, or an I/O error in any call
my $all = ($ENV{PMHASH_FAULTS} // '') eq 'all';
my $often = $all ? undef : 2;
my $node = new_faulty_server('faults');
my $pauses = $all ? start_pauses($node) : undef;

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE f (k int8, d int4, t text, v int4);
INSERT INTO f SELECT i, i % 3, 'text ' || i, i FROM generate_series(1, 300) i;
CREATE INDEX f_k ON f USING pmhash (k);
CREATE INDEX f_d ON f USING pmhash (d);
CREATE INDEX f_t ON f USING pmhash (t, d);
CREATE TABLE fx (k int4, CONSTRAINT fx_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO fx SELECT generate_series(1, 100);
INSERT INTO soak_indexes VALUES
	('f', '{k}', 'f_k', true), ('f', '{d}', 'f_d', true), ('f', '{t,d}', 'f_t', false),
	('fx', '{k}', 'fx_k', true), ('f', '{v}', 'f_new', true);
VACUUM f;
CREATE TABLE big (k int4, h int4, m macaddr);
INSERT INTO big SELECT i, i % 7, ('08:00:2b:00:0' || i % 7 || ':00')::macaddr FROM generate_series(1, 40000) i;
CREATE INDEX big_h ON big USING pmhash (h);
CREATE INDEX big_m ON big USING pmhash (m) WHERE k < 1000;
INSERT INTO soak_indexes VALUES ('big', '{h}', 'big_h', false);
CREATE TABLE sparse (k int8, pad text) WITH (fillfactor = 10);
INSERT INTO sparse SELECT i, repeat('x', 700) FROM generate_series(1, 14400) i;
CREATE INDEX sparse_k ON sparse USING pmhash (k);
INSERT INTO soak_indexes VALUES ('sparse', '{k}', 'sparse_k', true);
VACUUM sparse;
SQL

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
my $by_bitmap = 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off;';
my $churn = 'DELETE FROM f WHERE k > 250; INSERT INTO f SELECT i, i % 3, \'text \' || i FROM generate_series(251, 300) i;';
my @statements = (
	{ name => 'CREATE INDEX', before => 'DROP INDEX IF EXISTS f_new;', statements => ['CREATE INDEX f_new ON f USING pmhash (v)'] },
	{ name => 'CREATE INDEX in a subtransaction', before => 'DROP INDEX IF EXISTS f_new;',
		statements => [ 'BEGIN', 'SAVEPOINT s', 'CREATE INDEX f_new ON f USING pmhash (v)', 'ROLLBACK TO s', 'COMMIT' ] },
	{ name => 'CREATE INDEX CONCURRENTLY', before => 'DROP INDEX IF EXISTS f_new;',
		statements => ['CREATE INDEX CONCURRENTLY f_new ON f USING pmhash (v)'],
		after => "SELECT 'DROP INDEX f_new' FROM pg_index WHERE indexrelid = to_regclass('f_new') AND NOT indisvalid \\gexec" },
	{ name => 'DROP INDEX', before => 'DROP INDEX IF EXISTS f_new; CREATE INDEX f_new ON f USING pmhash (v);',
		statements => ['DROP INDEX f_new'], after => 'DROP INDEX IF EXISTS f_new;' },
	{ name => 'INSERT', statements => ["INSERT INTO f VALUES (1000, 1, 'x')"] },
	{ name => 'INSERT that makes the index grow', statements => ['INSERT INTO f SELECT i, 7, i::text FROM generate_series(1, 3000) i'],
		after => 'DELETE FROM f WHERE d = 7; VACUUM f;' },
	{ name => 'UPDATE', statements => ['UPDATE f SET k = k + 1, d = d + 1 WHERE k BETWEEN 10 AND 20'] },
	{ name => 'COPY', statements => ["COPY f (k, d, t) FROM PROGRAM 'seq -f \"%.0f\t5\tcopied\" 1 200'"], after => 'DELETE FROM f WHERE d = 5;' },
	{ name => 'INSERT under a constraint', before => 'DELETE FROM fx WHERE k > 100;',
		statements => ['INSERT INTO fx SELECT generate_series(100, 120) ON CONFLICT DO NOTHING'] },
	{ name => 'index scan', before => $by_index, statements => ['SELECT * FROM f WHERE k = 5'] },
	{ name => 'index scan of many', before => $by_index, statements => ['SELECT * FROM f WHERE d = 1'] },
	{ name => '= ANY', before => $by_index, statements => ["SELECT * FROM f WHERE k = ANY ('{1,2,3,4,5,6,7,8,9,299}')"] },
	{ name => 'two columns', before => $by_index, statements => ["SELECT * FROM f WHERE t = ANY ('{text 1,text 2}') AND d = ANY ('{0,1,2}')"] },
	{ name => 'leading column', before => $by_index, statements => ["SELECT * FROM f WHERE t = 'text 7'"] },
	{ name => 'index-only scan', before => 'VACUUM f;' . $by_index, statements => ['SELECT k FROM f WHERE k = 5'] },
	{ name => 'bitmap scan', before => $by_bitmap, statements => ['SELECT * FROM f WHERE d = 1 AND k = 4'] },
	{ name => 'nested loop', before => $by_index . 'SET enable_hashjoin = off; SET enable_mergejoin = off;',
		statements => ['SELECT count(*) FROM f a JOIN f b ON a.k = b.k'] },
	{ name => 'scan that finds dead entries', before => $churn . $by_index, statements => ['SELECT count(*) FROM f WHERE d = 1', 'SELECT count(*) FROM f WHERE d = 1'] },
	{ name => 'serializable scan', before => $by_index, statements => [ 'BEGIN ISOLATION LEVEL SERIALIZABLE', 'SELECT * FROM f WHERE k = 5', "INSERT INTO f VALUES (5, 1, 'y')", 'COMMIT' ] },
	{ name => 'VACUUM', before => $churn, statements => ['VACUUM f'] },
	{ name => 'VACUUM in little memory of a table of many blocks',
		before => "DELETE FROM sparse WHERE k > 14300; INSERT INTO sparse SELECT i, repeat('x', 700) FROM generate_series(14301, 14400) i; SET maintenance_work_mem = '1MB';",
		statements => ['VACUUM sparse'], checks => '^sparse' },
	{ name => 'REINDEX', statements => ['REINDEX INDEX f_k'] },
	{ name => 'REINDEX CONCURRENTLY', statements => ['REINDEX INDEX CONCURRENTLY f_k'],
		after => 'DROP INDEX IF EXISTS f_k_ccnew, f_k_ccold;' },
	{ name => 'TRUNCATE', statements => [ 'BEGIN', 'TRUNCATE f', "INSERT INTO f SELECT i, i % 3, 'text ' || i FROM generate_series(1, 300) i", 'COMMIT' ] },
	{ name => 'TRUNCATE of a new table', before => 'DROP TABLE IF EXISTS n;',
		statements => [ 'BEGIN', 'CREATE TABLE n (k int4)', 'CREATE INDEX n_k ON n USING pmhash (k)', 'TRUNCATE n', 'INSERT INTO n VALUES (1)', 'COMMIT' ] },
	{ name => 'DROP TABLE', before => 'CREATE TABLE IF NOT EXISTS n (k int4); CREATE INDEX IF NOT EXISTS n_k ON n USING pmhash (k);', statements => ['DROP TABLE n'] },
	{ name => 'temporary table', before => 'DROP TABLE IF EXISTS tt; CREATE TEMP TABLE tt (k int4) ON COMMIT DELETE ROWS; CREATE INDEX tt_k ON tt USING pmhash (k);',
		statements => [ 'BEGIN', 'INSERT INTO tt SELECT generate_series(1, 10)', 'SELECT * FROM tt WHERE k = 3', 'COMMIT', 'INSERT INTO tt VALUES (1)' ], after => 'DROP TABLE IF EXISTS tt;' },
	{ name => 'two-phase', before => '', statements => [ 'BEGIN', 'CREATE INDEX f_new ON f USING pmhash (v)', "PREPARE TRANSACTION 'p'", "COMMIT PREPARED 'p'" ],
		after => "SELECT count(*) AS n FROM pg_prepared_xacts \\gset\n\\if :n\nROLLBACK PREPARED 'p';\n\\endif\nDROP INDEX IF EXISTS f_new;" },
	{ name => 'pmhash.stats', statements => ["SELECT * FROM pmhash.stats('f_k')"] },
	{ name => 'pmhash.check', statements => ["SELECT pmhash.check('f_t')"] },
	{ name => 'pmhash.indexes', statements => ['SELECT * FROM pmhash.indexes'] },
	{ name => 'VACUUM with nothing to remove', before => 'VACUUM f;', statements => ['VACUUM f'] },
	{ name => 'CREATE INDEX in little memory', before => "DROP INDEX IF EXISTS big_new; SET maintenance_work_mem = '1MB';",
		statements => ['CREATE INDEX big_new ON big USING pmhash (h)'], checks => '^big', after => 'DROP INDEX IF EXISTS big_new;' },
	{ name => 'index scan of very many', before => $by_index, statements => ['SELECT sum(k) FROM big WHERE h = 3'], checks => '^none' },
	{ name => 'index-only scan of a type by reference', before => $by_index,
		statements => ["SELECT count(m) FROM big WHERE m = '08:00:2b:00:03:00' AND k < 1000"], checks => '^none' },
	{ name => 'VACUUM of long lists', before => 'DELETE FROM big WHERE k < 50; INSERT INTO big SELECT i, i % 7 FROM generate_series(1, 49) i;',
		statements => ['VACUUM big'], checks => '^big' },
	{ name => 'pmhash.check in little memory', before => "SET maintenance_work_mem = '1MB';", statements => ["SELECT pmhash.check('big_h')"], checks => '^none' },
	{ name => 'validation', statements => ["SELECT amvalidate(oid) FROM pg_opclass WHERE opcmethod = (SELECT oid FROM pg_am WHERE amname = 'pmhash')"], checks => '^none' },
	{ name => 'EXPLAIN', before => 'SET enable_seqscan = off;', statements => ["EXPLAIN SELECT * FROM f WHERE d = 1 AND t = 'x'"] });

foreach my $statement (@statements)
{
	fail_each($node, { %$statement, calls => 'memory', states => '53200' }, $often);
}
$node->safe_psql('postgres', 'DROP INDEX IF EXISTS f_new; DROP TABLE IF EXISTS n');
wait_for_files(pool($node), 7, 'allocations: no file is left over');

# event: a process can't open the undo journal for another reason
# An index file that can't be opened makes its index invalid: it is rebuilt,
# and meanwhile rows are written without it and queries do without it.
foreach my $statement (@statements)
{
	fail_each($node, { %$statement, calls => 'io', waits => 1, states => '58030|53100|53200|55000|40001|XX002' }, $often);
}
$node->safe_psql('postgres', 'DROP INDEX IF EXISTS f_new; DROP TABLE IF EXISTS n');
wait_for_files(pool($node), 7, 'input and output: no file is left over');

# ---- what is replaced, and is no index of ours, is not read if it is in shared buffers ----
# (As it is of an index of which this session does not know the file.)
$node->safe_psql('postgres', 'CREATE TABLE plain (k int4); CREATE INDEX plain_k ON plain USING pmhash (k); INSERT INTO plain VALUES (1)');
is( $node->safe_psql('postgres', <<SQL), '0', 'TRUNCATE of a table: no file is read');
SET pmhash_faults.calls = 'pread';
SET pmhash_faults.fail_at = 2000000000;
TRUNCATE plain;
SET pmhash_faults.fail_at = 0;
SELECT split_part(pmhash_faults_report(), ' ', 1);
SQL
$node->safe_psql('postgres', 'DROP TABLE plain');

# ---- background workers: what fails is tried again ----
sub worker_faults ($process, $calls, $n)
{
	reload_with($node, <<CONF);
pmhash_faults.process = '$process'
pmhash_faults.calls = '$calls'
pmhash_faults.fail_at = $n
CONF
	return;
}

foreach my $n ($all ? (1 .. 20, map { 25 * $_ } 1 .. 40) : (3, 60, 400))
{
	my $file = $node->safe_psql('postgres', "SELECT file FROM pmhash.indexes WHERE index = 'f_k'");
	my $from = -s $node->logfile;
	my $findings;

	worker_faults('pmhash worker', 'memory', $n);
	unlink($file);
	$node->safe_psql('postgres', "$by_index SELECT * FROM f WHERE k = 5");
	wait_while(sub { substr(slurp_file($node->logfile), $from) !~ /pmhash_faults: call $n |has been rebuilt/ }, 10);
	worker_faults('', 'memory', 0);
	$findings = $node->safe_psql('postgres', "CALL wait_until_valid(); SELECT * FROM check_findings('^f')");
	is($findings, '', "rebuilder, call $n");
}
my $files = index_files(pool($node));
foreach my $n ($all ? 1 .. 15 : (1, 5))
{
	worker_faults('pmhash worker', 'memory', $n);
	$node->safe_psql('postgres', 'REINDEX INDEX f_k');
	sleep(2);
	worker_faults('', 'memory', 0);
	wait_for_files(pool($node), $files, "cleaner, call $n");
}

end_pauses($pauses);

diag(fault_figures());
$node->stop;
done_testing();
