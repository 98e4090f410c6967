# Tables of other access methods.  One that has the handler of heap is a heap.  Of one that
# has not (test/lib/other_am) no page is read and nothing is taken for granted, and a TID
# that an entry can't hold is an error.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('tables');

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

$node->start;
install_extension($node);

# The library, compiled against this server.
my $library = $node->basedir . '/other_am';
chomp(my $headers = `pg_config --includedir-server`);
system_or_bail('gcc', '-Wall', '-O2', '-fPIC', '-shared', '-isystem', $headers, '-o',
	"$library.so", "$FindBin::RealBin/../../lib/other_am/other_am.c");

# Keys 0 to 99 with ten rows each, but for 7, which has many more.
sub fill
{
	my ($table, $am) = @_;

	return <<SQL;
CREATE TABLE $table (k int, v int) USING $am;
INSERT INTO $table SELECT i % 100, i FROM generate_series(1, 500) i;
CREATE INDEX ${table}_k ON $table USING pmhash (k);
INSERT INTO $table SELECT i % 100, i FROM generate_series(501, 1000) i;
INSERT INTO $table SELECT 7, i FROM generate_series(1001, 3000) i;
SQL
}

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;'
  . ' SET enable_mergejoin = off; SET enable_material = off;';
my $join = 'SELECT count(*), sum(v) FROM generate_series(0, 99) g JOIN %s ON k = g';
my $key = 'SELECT count(*), sum(v) FROM %s WHERE k = 7';

# A test: both are answered by index as without; returns the plans.
sub answers
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($table, $name, $settings) = @_;
	my $plans = '';

	foreach my $query (map { sprintf($_, $table) } $join, $key)
	{
		my $plan = sql("$settings $by_index EXPLAIN (COSTS OFF) $query");

		like($plan, qr/${table}_k/, "$name: by index");
		is(sql("$settings $by_index $query"), sql("SET enable_indexscan = off; SET enable_bitmapscan = off; SET pmhash.enable_join = off; SET pmhash.enable_pagescan = off; $query"), "$name: $query");
		$plans .= $plan;
	}
	return $plans;
}

# ---- the handler of heap under another name ----
sql('CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler');
sql(fill('h', 'heap2') . 'ANALYZE h');
like(answers('h', 'heap2', ''), qr/pmhash (?:join|page scan)/, 'heap2: pages are read');
sql('DELETE FROM h WHERE v % 3 = 0');
sql('VACUUM h');
answers('h', 'heap2, vacuumed', '');
is($node->psql('postgres', q(SELECT pmhash_check('h_k'))), 0, 'heap2: compared with its table');

# ---- another one ----
sql("CREATE FUNCTION other_am_handler(internal) RETURNS table_am_handler AS '$library' LANGUAGE C");
sql('CREATE ACCESS METHOD other TYPE TABLE HANDLER other_am_handler');
my $shift = "LOAD '$library'; SET other_am.shift = 30000;";
sql($shift . fill('o', 'other') . 'ANALYZE o');
unlike(answers('o', 'other', $shift), qr/pmhash (?:join|page scan)/, 'other: no pages are read');
is(sql("$shift $by_index SELECT count(*) FROM o WHERE k = ANY (ARRAY[1, 2, 7])"), '2030', 'other: several keys');
fails_like($node, q(SELECT pmhash_check('o_k')), qr/ERROR:  cannot compare an index with table "o"/, 'other: not compared');
is(sql(q(SELECT pmhash_check('o_k', false))), '', 'other: the file is sound');
is(sql('SELECT value_bytes > 0 FROM pmhash_stats($$o_k$$)'), 't', 'other: with lists');

# ---- TIDs that do not fit ----
# trouble: `row identifier (...) does not fit into index "..."`
my $refused = qr/ERROR:  row identifier \(0,32768\) does not fit into index "x_k"\nDETAIL:  Access method pmhash holds offsets from 1 to 32767\./;
my $most = "LOAD '$library'; SET other_am.shift = 32760;";
sql("$most CREATE TABLE x (k int) USING other; CREATE INDEX x_k ON x USING pmhash (k)");
sql("$most INSERT INTO x SELECT i FROM generate_series(1, 7) i");
is(sql("$most $by_index SELECT count(*) FROM x WHERE k = ANY (ARRAY[1, 7])"), '2', 'the greatest that fits');
fails_like($node, "$most INSERT INTO x VALUES (8)", $refused, 'INSERT');
is(sql("SELECT entries FROM pmhash_stats('x_k')"), '7', 'it is not stored');
sql("$most DROP INDEX x_k; INSERT INTO x VALUES (8)");
fails_like($node, "$most CREATE INDEX x_k ON x USING pmhash (k)", qr/row identifier \(0,327\d\d\) does not fit into index "x_k"/, 'CREATE INDEX');
$node->stop;
done_testing();
