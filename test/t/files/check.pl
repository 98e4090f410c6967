# pmhash.check: finds each kind of disagreement, and cries wolf over nothing while
# others are at work.

use v5.36;
use PmhashInvalid;
use PmhashTest;

# How long the load runs, in seconds.
my $load_time = load_time(5);

my $node = new_server('check', <<CONF);
autovacuum_naptime = 1
autovacuum_vacuum_scale_factor = 0.01
autovacuum_vacuum_cost_delay = 0
pmhash.rebuild = off
CONF
start_with_extension($node);

# ---- index and table disagree ----

# event: a bucket or entry is wrong
# What is done without the index, and what must be found.  Row k of the
# first page is the one with the key k, and the TID of row 6 is free, unless it is used again.
my $no_entry = qr/Row \(\d+,\d+\) has no entry \(its hash is [0-9a-f]{16}\)\./;
my %cases = (
	missing => [ 'INSERT INTO missing VALUES (9000)', $no_entry ],
	other_key => [ 'DELETE FROM other_key WHERE k = 6; VACUUM other_key; INSERT INTO other_key VALUES (9000)',
		qr/$no_entry\nThere is an entry for row \(0,6\), whose key is another one or not to be indexed/ ],
	gone => [ 'DELETE FROM gone WHERE k = 6; VACUUM gone', qr/There is an entry for row \(0,6\), which does not exist/ ],
	heap_only => [ 'DELETE FROM heap_only WHERE k = 6; VACUUM heap_only; UPDATE heap_only SET v = 1 WHERE k = 8',
		qr/There is an entry for row \(0,6\), which is a heap-only tuple/ ],
	beyond => [ 'DELETE FROM beyond WHERE k > 10; VACUUM beyond',
		qr/There is an entry for row \(\d+,\d+\), which is beyond the end of the table/ ]);

foreach my $table (sort keys %cases)
{
	my $rows = $table eq 'beyond' ? 5000 : 100;

	$node->safe_psql('postgres', <<SQL);
CREATE TABLE $table (k int4, v int4) WITH (autovacuum_enabled = off);
INSERT INTO $table SELECT i, 0 FROM generate_series(1, $rows) i;
CREATE INDEX ${table}_i ON $table USING pmhash (k);
SELECT pmhash.check('${table}_i');
SQL
	# While the server takes an index for one that is not ready yet, a table is changed without
	# it.  (Damage within a file: engine/check_damage.)
	my $ready = "WHERE indexrelid = '${table}_i'::regclass";
	$node->safe_psql('postgres', "UPDATE pg_index SET indisready = false $ready; $cases{$table}->[0]");
	$node->safe_psql('postgres', "UPDATE pg_index SET indisready = true $ready");
}

# Invalid it is for good, also where a rollback gives the index the main fork of before: that
# has no mark, so the file is removed.
my %moved = (
	missing => 'BEGIN; ALTER INDEX missing_i SET TABLESPACE moved;',
	gone => 'BEGIN; SAVEPOINT s; ALTER INDEX gone_i SET TABLESPACE moved; RELEASE s; ALTER INDEX gone_i SET TABLESPACE pg_default;');
$node->safe_psql('postgres', q(SET allow_in_place_tablespaces = on; CREATE TABLESPACE moved LOCATION ''));
foreach my $table (sort keys %cases)
{
	my ($status, $stdout, $stderr) = $node->psql('postgres',
		"\\set VERBOSITY verbose\n" . ($moved{$table} // '') . "SELECT pmhash.check('${table}_i')");

	isnt($status, 0, "$table: found");
	# trouble: `index "..." does not agree with table "..."`
	like($stderr, qr/ERROR:  XX002: index "${table}_i" does not agree with table "$table"\nDETAIL:  (?:.*\n)*?$cases{$table}->[1](?:.*\n)*HINT/, "$table: message");
	like($node->safe_psql('postgres', "SELECT state FROM pmhash.indexes WHERE index = '${table}_i'"),
		$moved{$table} ? qr/^invalid: it does not exist/ : qr/^invalid: it is damaged/, "$table: marked");
	is($node->psql('postgres', "REINDEX INDEX ${table}_i; SELECT pmhash.check('${table}_i')"), 0, "$table: sound after REINDEX");
}

# ---- a damaged file ----

my $file = index_file($node, 'gone_i');
$node->stop;
patch_file($file, 256, "\xff" x 8);    # the word that says where the directory is
$node->start;
fails_like($node, "\\set VERBOSITY verbose\nSELECT pmhash.check('gone_i')",
	qr/ERROR:  XX002: (?:pmhash index "\S+" has no usable file|file "\S+" of index)/, 'a damaged file');

# ---- nothing is found where nothing is wrong, whatever goes on ----

# (till here its snapshots would have kept rows that VACUUM was to remove)
reload_with($node, 'autovacuum = on');
$node->safe_psql('postgres', <<SQL);
CREATE TABLE busy (k int8, w int4, d int4, t text COLLATE "C", p int4)
	WITH (fillfactor = 70, toast_tuple_target = 128);
ALTER TABLE busy ALTER t SET STORAGE EXTERNAL;
INSERT INTO busy SELECT i, i, i % 5, repeat(md5((i % 3000)::text), 1 + i % 20), i
	FROM generate_series(1, 30000) i;
CREATE INDEX busy_k ON busy USING pmhash (k);
CREATE INDEX busy_d ON busy USING pmhash (d);
CREATE INDEX busy_t ON busy USING pmhash (t);
CREATE INDEX busy_two ON busy USING pmhash (d, p);
CREATE INDEX busy_part ON busy USING pmhash (p) WHERE d = 2;
CREATE INDEX busy_expr ON busy USING pmhash ((k % 1000), lower(t));
SQL
my %script = (
	hot => 'UPDATE busy SET w = w + 1 WHERE k = :k;',
	key => 'UPDATE busy SET k = :new, p = :k WHERE k = :k;',
	toast => q{UPDATE busy SET t = repeat(md5(:new::text), 10), d = :new % 5 WHERE k = :k;},
	replace => q{BEGIN; DELETE FROM busy WHERE k = :k; INSERT INTO busy VALUES (:k, 0, :new % 5, repeat(md5(:k::text), 3), :k); END;},
	insert => q{INSERT INTO busy SELECT :new + i, 0, i % 5, 'new', i FROM generate_series(1, 10) i;},
	delete => 'DELETE FROM busy WHERE k > 30000 AND k BETWEEN :new AND :new + 20000;',
	rollback => q{BEGIN; INSERT INTO busy SELECT :new, 0, :new % 5, repeat(md5(:new::text), 10), i FROM generate_series(1, 5) i; UPDATE busy SET w = 0, p = 0 WHERE k = :k; ROLLBACK;},
	savepoint => q{BEGIN; UPDATE busy SET w = -w WHERE k = :k; SAVEPOINT s; UPDATE busy SET d = 7 WHERE k = :k; INSERT INTO busy VALUES (:new, 1, 1, 'sub', 1); ROLLBACK TO s; UPDATE busy SET w = 7 WHERE k = :k; END;},
	vacuum => 'VACUUM busy;');
my @options = ('-c', '4', '-R', '300', '--max-tries=10', '-T', $load_time + 60);
foreach my $name (sort keys %script)
{
	my $path = $node->basedir . "/$name.sql";

	append_to_file($path,
		"\\set k random(1, 30000)\n\\set new random(30001, 1000000)\n$script{$name}\n");
	push @options, '-f', $path . ($name eq 'vacuum' ? '@1' : $name eq 'hot' ? '@400' : '@100');
}

my $output = '';
my $load = start_pgbench($node, \$output, @options);
my $deadline = time + $load_time;
my $checks = 0;
my $failures = 0;
my @settings = (
	'',
	q{SET maintenance_work_mem = '1MB';},
	'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM busy; SELECT pg_sleep(1);',
	q{BEGIN; UPDATE busy SET w = 0, k = -k WHERE k < 100; SET enable_seqscan = off;});
while (time < $deadline || ($checks < 6 && time < $deadline + 30))
{
	my $setting = $settings[$checks % @settings];
	my ($status, $stdout, $stderr) = $node->psql('postgres', <<SQL);
$setting
SELECT pmhash.check(indexrelid) FROM pg_index WHERE indrelid = 'busy'::regclass;
SQL

	# what our UPDATE meets is no matter
	next if $stderr =~ /could not serialize|deadlock detected/;
	$checks++;
	next if $status == 0;
	$failures++;
	diag($stderr);
}
is($failures, 0, 'no findings under load');
cmp_ok($checks, '>=', 4, 'there was time to check');
ok($load->pumpable, 'the load was there all the time');
$load->signal('TERM');
$load->finish;
unlike($output, qr/aborted|ERROR/, 'the load had no errors');
note($output, "$checks checks");
is( $node->psql('postgres',
		"SELECT pmhash.check(indexrelid) FROM pg_index WHERE indrelid = 'busy'::regclass"),
	0, 'no findings after it');

fails_like(
	$node,
	q{SET statement_timeout = '1ms'; SELECT pmhash.check('busy_k')},
	qr/canceling statement due to statement timeout/,
	'interrupted');

$node->stop;
done_testing();
