# Rows of other kinds of tables, of keys that are chosen to meet; snapshots that are too old.

use v5.36;

use FindBin;
use PmhashInvalid;
use PmhashTest;

# ======== other tables ========

# Tables of other access methods.  One that has the handler of heap is a heap.  Of one that
# has not (test/lib/other_am) no page is read and nothing is taken for granted, and a TID
# that an entry can't hold is an error.
{
	my $node = new_server('tables');

	sub sql ($sql)
	{
		return $node->safe_psql('postgres', $sql);
	}

	start_with_extension($node);

	my $library = server_library($node->basedir . '/other_am', 'other_am/other_am.c');

	# Keys 0 to 99 with ten rows each, but for 7, which has many more.
	sub fill ($table, $am)
	{
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
	sub answers_of_other_tables ($table, $name, $settings)
	{
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
	like(answers_of_other_tables('h', 'heap2', ''), qr/pmhash (?:join|page scan)/, 'heap2: pages are read');
	sql('DELETE FROM h WHERE v % 3 = 0');
	sql('VACUUM h');
	answers_of_other_tables('h', 'heap2, vacuumed', '');
	is($node->psql('postgres', q(SELECT pmhash.check('h_k'))), 0, 'heap2: compared with its table');

	# ---- another one ----
	sql("CREATE FUNCTION other_am_handler(internal) RETURNS table_am_handler AS '$library' LANGUAGE C");
	sql('CREATE ACCESS METHOD other TYPE TABLE HANDLER other_am_handler');
	my $shift = "LOAD '$library'; SET other_am.shift = 30000;";
	sql($shift . fill('o', 'other') . 'ANALYZE o');
	unlike(answers_of_other_tables('o', 'other', $shift), qr/pmhash (?:join|page scan)/, 'other: no pages are read');
	is(sql("$shift $by_index SELECT count(*) FROM o WHERE k = ANY (ARRAY[1, 2, 7])"), '2030', 'other: several keys');
	fails_like($node, q(SELECT pmhash.check('o_k')), qr/ERROR:  cannot compare an index with table "o"/, 'other: not compared');
	is(sql(q(SELECT pmhash.check('o_k', false))), '', 'other: the file is sound');
	is(sql('SELECT value_bytes > 0 FROM pmhash.stats($$o_k$$)'), 't', 'other: with lists');

	# ---- TIDs that do not fit ----
	# trouble: `row identifier (...) does not fit into index "..."`
	my $refused = qr/ERROR:  row identifier \(0,32768\) does not fit into index "x_k"\nDETAIL:  Access method pmhash holds offsets from 1 to 32767\./;
	my $most = "LOAD '$library'; SET other_am.shift = 32760;";
	sql("$most CREATE TABLE x (k int) USING other; CREATE INDEX x_k ON x USING pmhash (k)");
	sql("$most INSERT INTO x SELECT i FROM generate_series(1, 7) i");
	is(sql("$most $by_index SELECT count(*) FROM x WHERE k = ANY (ARRAY[1, 7])"), '2', 'the greatest that fits');
	fails_like($node, "$most INSERT INTO x VALUES (8)", $refused, 'INSERT');
	is(sql("SELECT entries FROM pmhash.stats('x_k')"), '7', 'it is not stored');
	sql("$most DROP INDEX x_k; INSERT INTO x VALUES (8)");
	fails_like($node, "$most CREATE INDEX x_k ON x USING pmhash (k)", qr/row identifier \(0,327\d\d\) does not fit into index "x_k"/, 'CREATE INDEX');
	$node->stop;
}

# ======== chosen keys ========

# Keys chosen by one that knows the seed of an index file's XXH3, so that they agree in
# all bits that choose segment and buckets: the permutation after that parts them.  They
# take no more space than others, and answers are right.
{
	my $src = "$FindBin::RealBin/../../../src";
	my $n = 12000;
	my $node = new_server('chosen_keys');
	start_with_extension($node, <<SQL);
CREATE TABLE plain (k int8);
CREATE INDEX plain_k ON plain USING pmhash (k);
INSERT INTO plain SELECT generate_series(1, $n);
CREATE TABLE c (k int8, v serial) WITH (autovacuum_enabled = off);
CREATE INDEX c_k ON c USING pmhash (k);
SQL

	# Keys for a file: what XXH3 makes of them agrees in its first 40 bits.
	my $chosen_keys = $node->basedir . '/chosen_keys';
	append_to_file("$chosen_keys.c", <<C);
#include <inttypes.h>
#include <stdio.h>
#include "am/keyhash.h"

int
main(void)
{
	uint64_t	seed;

	fseek(stdin, 48 + 24, SEEK_SET);	/* src/engine/layout.h, src/cluster/base/shared.h */
	if (fread(&seed, sizeof(seed), 1, stdin) != 1)
		return 1;
	for (uint64_t i = 0; i < $n; i++)
		printf("%" PRId64 "\\n", (int64_t) pmhash_unhash_word(UINT64_C(0xdeadbe0001) << 24 | i * 11, pmhash_hash_flip(seed)));
	return 0;
}
C
	system_or_bail('gcc', '-O2', '-I', $src, '-o', $chosen_keys, "$chosen_keys.c", "$src/am/keyhash.c");
	$node->safe_psql('postgres', "COPY c (k) FROM PROGRAM '$chosen_keys < @{[index_file($node, 'c_k')]}'");
	is($node->safe_psql('postgres', q(SELECT pmhash.size('c_k') <= 1.25 * pmhash.size('plain_k'))), 't', 'a file as small as for other keys');

	sub right ($name)
	{
		is($node->safe_psql('postgres', q(SELECT pmhash.check('c_k'))), '', "$name: pmhash.check");
		is($node->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('c_k'))), $node->safe_psql('postgres', 'SELECT count(*) FROM c'), "$name: entries");
		same_answers($node, 'c', 'k', 'c_k', $name);
		return;
	}

	right('inserted');

	$node->safe_psql('postgres', 'DELETE FROM c WHERE v % 3 = 0; VACUUM (INDEX_CLEANUP ON) c; INSERT INTO c SELECT k, -1 FROM c WHERE v % 3 = 1');
	right('removed by VACUUM');
	$node->safe_psql('postgres', 'REINDEX INDEX c_k');
	right('REINDEX');
	$node->stop;
}

# ======== snapshot too old ========

# old_snapshot_threshold (PostgreSQL 15 and 16): rows are taken from under a snapshot, and a
# query is to say so, never to find fewer.  Plans do without our indexes then; a constraint
# is checked by its index all the same.
SKIP:
{
	my $node = new_server('too_old');
	skip 'no old_snapshot_threshold', 1 if $node->pg_version >= 17;

	# 0: five seconds
	$node->append_conf('postgresql.conf', "old_snapshot_threshold = 0\nsynchronous_commit = on\n");
	start_with_extension($node, <<'SQL');
CREATE TABLE t (k int4, v text, EXCLUDE USING pmhash (v WITH =));
INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 1000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE other (v int4);
VACUUM ANALYZE;
DELETE FROM t WHERE k = 400;
SQL

	my $session = session_with($node, 'SET enable_seqscan = off; BEGIN ISOLATION LEVEL REPEATABLE READ', on_error_stop => 0);
	unlike($session->query_safe('EXPLAIN SELECT * FROM t WHERE k = 500'), qr/t_k/, 'no plan uses the index');
	unlike($session->query_safe("EXPLAIN SELECT * FROM t a JOIN t b USING (k) WHERE a.v = 'row 1'"), qr/t_k|pmhash/, 'nor does a join');
	is($session->query_safe('SELECT count(v) FROM t WHERE k = 500'), '1', 'before: there is the row');

	# event: `old_snapshot_threshold` (PostgreSQL 15, 16) lets rows be removed that a snapshot still needs
	$node->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
	sleep(6);
	$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) t');
	is($node->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('t_k'))), '999', 'VACUUM has removed the entry');
	$session->query('SELECT count(v) FROM t WHERE k = 500');
	like($session->{stderr}, qr/ERROR:  snapshot too old/, 'the snapshot is too old');
	$session->quit;

	fails_like($node, q(INSERT INTO t VALUES (1, 'row 7')), qr/violates exclusion constraint/, 'a constraint is checked');
	restart_with($node, 'old_snapshot_threshold = -1');
	like($node->safe_psql('postgres', 'SET enable_seqscan = off; EXPLAIN SELECT * FROM t WHERE k = 500'), qr/t_k/, 'not set: plans use it');
	same_answers($node, 't', 'k', 't_k', 'not set');
	$node->stop;
}

done_testing();
