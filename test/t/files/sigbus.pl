# Files that are cut off under a running server.  Touching what is missing
# raises SIGBUS: the statement fails, nothing else does, the index is invalid
# for all, and comes back.

use v5.36;
use PmhashInvalid;
use PmhashTest;

# the cleaner must not be faster than we are
my $node = new_server('sigbus', <<CONF);
pmhash.cleaner_naptime = 3600
min_parallel_table_scan_size = 0
parallel_setup_cost = 0
parallel_tuple_cost = 0
CONF
start_with_extension($node, invalid_fixture());
$node->safe_psql('postgres', <<SQL);
CREATE TABLE many (k int4, v int4);
INSERT INTO many SELECT i % 3000, 0 FROM generate_series(1, 20000) i;
ANALYZE many;
ANALYZE t;
SQL

my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my $lost = qr/ERROR: .*(could not use file "\S+" of index "t_k"\n.*bus error|index "t_k" has no usable file)/s;

# Sessions that live through all of it.
my %session;
my %pid;
foreach my $name (qw(reader writer other))
{
	$session{$name} = $node->background_psql('postgres', on_error_stop => 0);
	$session{$name}->set_query_timer_restart;
	$pid{$name} = $session{$name}->query_safe('SELECT pg_backend_pid()');
	$session{$name}->query_safe(<<SQL);
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
SET enable_material = off;
SET enable_memoize = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
PREPARE one AS SELECT count(*) FROM t WHERE k = \$1;
PREPARE several AS SELECT count(*) FROM t WHERE k = ANY (\$1);
PREPARE bitmap AS SELECT count(*) FROM t WHERE k = \$1 OR v = \$1;
PREPARE parallel_join AS SELECT count(t.v) FROM many JOIN t USING (k);
PREPARE add_rows AS INSERT INTO t SELECT \$1, i FROM generate_series(1, \$2) i;
SQL
}

# A test: a statement of a session fails because of the fault.
sub loses ($who, $sql, $name)
{
	$session{$who}->query($sql);
	like($session{$who}->{stderr}, $lost, "$name: message");
	$session{$who}->{stderr} = '';
	return;
}

# Use the index in all sessions, so that they have it mapped, and cut it off.
sub cut ($size, $index = 't_k')
{
	my $file = index_file($node, $index);

	foreach my $who (values %session)
	{
		$who->query_safe("SET max_parallel_workers_per_gather = 0; EXECUTE one(1); EXECUTE add_rows(1, 1)");
	}
	truncate($file, $size) or die "$file: $!";
	return;
}

# Nothing was noticed but the error; the index is invalid, then comes back.
sub everybody_lives ($name, $reason = 'it cannot be read')
{
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started,
		"$name: the server has not been restarted");
	foreach my $who (sort keys %session)
	{
		is( $session{$who}->query_safe('SELECT pg_backend_pid()'),
			$pid{$who}, "$name: session $who is alive");
		is( $session{$who}->query_safe('EXECUTE one(1)'),
			$node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE k = 1'),
			"$name: session $who answers");
	}
	stays_invalid($node, $reason, $name);
	rebuild_on($node);
	comes_back($node, $name);
	same_answers($node, 't', 'v', 't_v', "$name, another index");
	rebuild_off($node);
	return;
}

rebuild_off($node);

# event: cut off under a session that uses it, or its medium fails (`SIGBUS`)
# ---- readers ----
my @readers = (
	[ 'look-up', 'EXECUTE one(7)' ],
	[ 'array', 'EXECUTE several(ARRAY[7, 8, 9])' ],
	[ 'bitmap scan', 'EXECUTE bitmap(7)' ],
	[ 'planning', 'SELECT count(*) FROM t WHERE k = 1234' ],
	[ 'pmhash.stats', "SELECT * FROM pmhash.stats('t_k')" ],
	[ 'pmhash.check', "SELECT pmhash.check('t_k')" ],
	[ 'vacuum', 'VACUUM (INDEX_CLEANUP on) t' ]);
foreach my $case (some_of(2, @readers))
{
	my ($name, $sql) = @$case;

	$node->safe_psql('postgres', 'DELETE FROM t WHERE k = 2999') if $name eq 'vacuum';
	cut(4096);
	loses('reader', $sql, $name);
	everybody_lives($name);
}

# Once more within a second of the first error, and by a session that has asked for the
# rebuild before: nobody else asks for the second one.
rebuild_on($node);
foreach my $time (1, 2)
{
	cut(4096);
	loses('reader', 'EXECUTE one(7)', "again: $time");
	ok( $node->poll_query_until(
			'postgres', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'"),
		"again: rebuilt for the time $time");
}
comes_back($node, 'again');
rebuild_off($node);

# parallel workers: one that opens the file only now sees that it is too short
# and does without it; one that inherits nothing else may meet the fault
cut(4096);
# PostgreSQL 16 has given the variable another name
my $force = $node->safe_psql('postgres',
	"SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
my $sum = $session{reader}->query(
	"SET max_parallel_workers_per_gather = 2; SET $force = on; EXECUTE parallel_join");
my $parallel_error = $session{reader}->{stderr};
$session{reader}->{stderr} = '';
$session{reader}->query_safe("RESET $force");
$sum =~ s/\s+\z//;
ok($parallel_error =~ $lost || $sum eq $node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(t.v) FROM many JOIN t USING (k)'),
	'parallel workers: the error or the answer') or diag("$sum $parallel_error");
is($session{reader}->query_safe('SELECT pg_backend_pid()'), $pid{reader}, 'parallel workers: alive');
rebuild_on($node);
comes_back($node, 'parallel workers');
rebuild_off($node);

# the header as well
cut(0);
loses('reader', 'EXECUTE one(7)', 'empty file');
everybody_lives('empty file');

# ---- writers ----
cut(4096);
loses('writer', 'EXECUTE add_rows(123456, 10)', 'insert');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 123456'), '0', 'insert: the statement has failed');
everybody_lives('insert');

cut(4096);
loses('writer', 'UPDATE t SET k = 123456 WHERE v = 3000', 'update');
everybody_lives('update');

# entries that wait for the commit
cut(4096);
$session{writer}->query('BEGIN; EXECUTE add_rows(123457, 5000); COMMIT');
# trouble: `could not use file "..." of index "..."`
like($session{writer}->{stderr}, $lost, 'long insert: message');
$session{writer}->{stderr} = '';
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 123457'), '0', 'long insert: the transaction has failed');
everybody_lives('long insert');

# a savepoint saves the rest of the transaction, which goes on without the index
cut(4096);
$session{writer}->query_safe('BEGIN; INSERT INTO o VALUES (-5); SAVEPOINT s');
loses('writer', 'EXECUTE add_rows(123458, 1)', 'savepoint');
$session{writer}->query_safe('ROLLBACK TO s; EXECUTE add_rows(123458, 7); COMMIT');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 123458'), '7', 'savepoint: rows written without the index');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM o WHERE k = -5'), '1', 'savepoint: row written before');
everybody_lives('savepoint');

# ---- the mark outlives a crash right after the error ----
cut(4096);
loses('reader', 'EXECUTE one(7)', 'crash');
$_->quit foreach values %session;
crash_and_start($node);
like(index_state($node, 't_k'), qr/^invalid: it cannot be read$/, 'crash right after the error: the index is marked');
all_rebuilt($node, 'crash right after the error');

# event: the undo journal is removed or cut off while the server runs, or its medium fails
# ---- the undo journal ----
my $journal = pool($node) . '/journal';
my $user = $node->background_psql('postgres', on_error_stop => 0);
my $pid = $user->query_safe('SELECT pg_backend_pid()');
$user->query_safe('INSERT INTO t VALUES (1, -99)');
truncate($journal, 4096) or die;
$user->query("INSERT INTO t SELECT 5000000, i FROM generate_series(1, 100) i");
# trouble: `could not use the pmhash undo journal "..."`
like($user->{stderr}, qr/could not use the pmhash undo journal.*bus error/s, 'journal: message');
$user->{stderr} = '';
is($user->query_safe('SELECT pg_backend_pid()'), $pid, 'journal: the session is alive');
like(index_state($node, 't_k'), qr/^disabled: undo journal "\S+" was lost/, 'journal: pmhash is disabled');
$user->query_safe("INSERT INTO t SELECT 5000001, i FROM generate_series(1, 100) i");
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5000001'), '100',
	'journal: rows are written without the index');
fails_like($node, 'INSERT INTO ex VALUES (-7)', qr/"ex_k" cannot be used: pmhash is disabled.*undo journal.*was lost/s, 'journal: constraint');
like(slurp_file($node->logfile), qr/LOG:  pmhash is disabled: undo journal "\S+" was lost/, 'journal: log');
$user->quit;
crash_and_start($node);
all_come_back($node, 'journal');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 5000001'), '100',
	'journal: and are in the index after the restart');

$node->stop;
done_testing();
