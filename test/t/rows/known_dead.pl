# Rows whose deletion a scan has noticed: entries that are known to be dead.

use v5.36;
use PmhashDead;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# ======== known dead ========

# Entries known to be dead whose removal waits for WAL: scans pass over them without a
# visit, any scan removes them when they may go, and nothing is passed over that is not
# dead: rows of other files that share a list, rows of a transaction that is not over.  (Rows
# that got their TIDs, rows that came back with a crash: the next section.)
{
	my $node = new_server('known_dead', quiet_wal() . <<CONF);
wal_level = replica
max_prepared_transactions = 2
CONF
	start_with_extension($node);
	use_for_dead($node, 'with tables');

	sub entries
	{
		my ($index) = @_;
		return sql(sprintf("SELECT entries FROM pmhash.stats('%s')", $index // 'd_k'));
	}

	# ---- they are not visited again ----

	sql('CALL make_table()');
	hold_wal_writer($node);
	is(delete_and_look_up(2), '', 'look-up of rows whose deletion is not flushed');
	is(entries(), 4000, 'nothing is removed');
	is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'another session reads none of their TIDs');
	is(reads('SELECT count(*) FROM d WHERE k = 2'), "0\n0", 'nor does an index-only scan');
	is(reads('SELECT count(v) FROM d WHERE k = ANY (ARRAY[2, 1])'), "1000\n1000", 'nor = ANY');
	is(reads('SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = on; SELECT count(v) FROM d WHERE k = 2'),
		"0\n0", 'nor a bitmap scan');
	is( sql(<<SQL),
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT v FROM d WHERE k = ANY (ARRAY[2, 3]) AND v < 20;
MOVE FORWARD ALL IN c;
FETCH BACKWARD 2 FROM c;
FETCH FORWARD 1 FROM c;
COMMIT;
SQL
		"19\n15\n19", 'a cursor that turns back');
	is(entries(), 4000, 'still nothing is removed');
	flush_wal();
	is(reads('SELECT count(v) FROM d WHERE k = 7'), "0\n0", 'after a flush');
	is(entries(), 3000, 'the next scan removes them, whichever scan found them and whatever it looks for');

	# ---- a queue: scans begin in different places, and have all rows ----

	# Only those that pass over what is locked: each scan of a query that says so.  $q: a
	# query beside them in the same statement.
	sub firsts ($lock, $q = 'SELECT 1')
	{
		my $with = join(', ', map { "f$_ AS MATERIALIZED (SELECT ctid FROM d WHERE k = 1 LIMIT 1 $lock)" } 1 .. 20);
		my $all = join(' UNION ALL ', map { "SELECT ctid FROM f$_" } 1 .. 20);

		return "WITH q AS MATERIALIZED ($q), $with SELECT count(DISTINCT first) FROM ($all) AS f(first) WHERE (SELECT count(*) FROM q) >= 0";
	}

	# The same of a function, which is called by a statement with q.
	sub firsts_of ($function, $q)
	{
		return "WITH q AS MATERIALIZED ($q) SELECT count(DISTINCT $function()) FROM generate_series(1, 20) WHERE (SELECT count(*) FROM q) >= 0";
	}
	my $firsts = firsts('FOR UPDATE SKIP LOCKED');
	my $all = 'SELECT count(v), count(DISTINCT v), sum(v) FROM d WHERE k = 1';
	sql('CALL make_table()');
	my $wanted_rows = sql('SET enable_indexscan = off; SET enable_seqscan = on; ' . $all);
	is(sql($firsts), 1, 'nothing is known to be dead: all begin in the same place');
	is(delete_and_look_up(2), '', 'rows of another key are known to be dead');
	cmp_ok(sql($firsts), '>', 4, 'scans begin in different places');
	is(sql(firsts('FOR UPDATE')), 1, 'but for those that wait: two might do so crosswise');
	my $elsewhere = 'SELECT v FROM other LIMIT 1 FOR UPDATE SKIP LOCKED';
	is(sql(firsts('FOR UPDATE', $elsewhere)), 1, 'also if the statement passes over what is locked in another table');
	is(sql(firsts('FOR UPDATE', 'SELECT v FROM d WHERE k = 3 LIMIT 1 FOR UPDATE SKIP LOCKED')), 1, 'or in another scan of the same');
	sql(<<'SQL');
CREATE FUNCTION waits() RETURNS tid LANGUAGE plpgsql AS
	'BEGIN RETURN (SELECT ctid FROM d WHERE k = 1 LIMIT 1 FOR UPDATE); END';
CREATE FUNCTION skips() RETURNS tid LANGUAGE plpgsql AS
	'BEGIN RETURN (SELECT ctid FROM d WHERE k = 1 LIMIT 1 FOR UPDATE SKIP LOCKED); END';
SQL
	is(sql(firsts_of('waits', $elsewhere)), 1, 'or is one of a function that is called by such a statement');
	cmp_ok(sql(firsts_of('skips', 'SELECT 1')), '>', 4, 'a function can read a queue');
	is(sql(join(';', ($all) x 5)), join("\n", ($wanted_rows) x 5), 'and have all rows once');
	my $locked = 'SELECT count(v), count(DISTINCT v), sum(v) FROM (SELECT v FROM d WHERE k = 1 FOR UPDATE SKIP LOCKED) l';
	is(sql(join(';', ($locked) x 5)), join("\n", ($wanted_rows) x 5), 'as have those that begin anywhere');
	is( sql(<<'SQL'), "1000\n16", 'as has a cursor, batch by batch');
BEGIN;
DECLARE c CURSOR FOR SELECT v FROM d WHERE k = 1;
CREATE TEMP TABLE got (v int4);
DO $$ DECLARE
	c refcursor := 'c';
	one int4;
BEGIN
	LOOP
		FETCH c INTO one;
		EXIT WHEN NOT FOUND;
		INSERT INTO got VALUES (one);
	END LOOP;
END $$;
SELECT count(DISTINCT v) FROM got;
COMMIT;
BEGIN;
CREATE TEMP TABLE popped (v int4);
DO $$ BEGIN
	FOR i IN 1 .. 16 LOOP
		INSERT INTO popped SELECT v FROM d WHERE k = 1 AND v NOT IN (SELECT v FROM popped) LIMIT 1 FOR UPDATE SKIP LOCKED;
	END LOOP;
END $$;
SELECT count(DISTINCT v) FROM popped;
ROLLBACK;
SQL
	foreach (1 .. 3)
	{
		my ($once, $again) = split /\n/, sql('BEGIN; DECLARE c SCROLL CURSOR FOR SELECT v FROM d WHERE k = 1; FETCH 1 FROM c; MOVE 500 IN c; FETCH FIRST FROM c; COMMIT');
		is($again, $once, 'a cursor that is rewound has the same first row');
	}
	flush_wal();
	is(reads('SELECT count(v) FROM d WHERE k = 7'), "0\n0", 'after a flush');
	is(sql($firsts), 1, 'nothing is known any more: all begin in the same place again');

	# ---- the table is emptied in place, and its TIDs begin anew ----

	is( sql(<<'SQL'), "0\n0\n0\n1000", 'TRUNCATE in the transaction of CREATE TABLE');
BEGIN;
CREATE TABLE fresh (k int4, v int4);
CREATE INDEX fresh_k ON fresh USING pmhash (k);
SAVEPOINT s;
INSERT INTO fresh SELECT 1, i FROM generate_series(1, 1000) i;
ROLLBACK TO s;
SELECT count(v) FROM fresh WHERE k = 1;
SELECT count(v) FROM fresh WHERE k = 1;
SELECT count(v) FROM fresh WHERE k = 1;
TRUNCATE fresh;
INSERT INTO fresh SELECT 1, i FROM generate_series(1, 1000) i;
SELECT count(v) FROM fresh WHERE k = 1;
COMMIT;
SQL

	# ---- transactions that are not over, or in parts ----

	sql('CALL make_table()');
	is( sql(<<'SQL'), "0\n1000", 'an aborted subtransaction beside rows of the same page and key');
BEGIN;
SAVEPOINT s;
INSERT INTO d SELECT 9, i FROM generate_series(1, 1000) i;
ROLLBACK TO s;
SELECT count(v) FROM d WHERE k = 9;
INSERT INTO d SELECT 9, i FROM generate_series(1, 1000) i;
SELECT count(v) FROM d WHERE k = 9;
COMMIT;
SQL
	is(sql('SELECT count(v) FROM d WHERE k = 9'), 1000, 'and after its commit');
	sql("BEGIN; DELETE FROM d WHERE k = 1; PREPARE TRANSACTION 'p'");
	is(sql('SELECT count(v) FROM d WHERE k = 1; SELECT count(v) FROM d WHERE k = 1'), "1000\n1000",
		'a deletion that is prepared');
	sql("ROLLBACK PREPARED 'p'");
	is(sql('SELECT count(v) FROM d WHERE k = 1; SELECT count(v) FROM d WHERE k = 1'), "1000\n1000",
		'and rolled back');
	sql("BEGIN; INSERT INTO d SELECT 10, i FROM generate_series(1, 1000) i; PREPARE TRANSACTION 'p'");
	is(sql('SELECT count(v) FROM d WHERE k = 10; SELECT count(v) FROM d WHERE k = 10'), "0\n0",
		'an insert that is prepared');
	sql("COMMIT PREPARED 'p'");
	is(sql('SELECT count(v) FROM d WHERE k = 10'), 1000, 'and committed');

	# an older snapshot sees rows that are deleted; HOT chains, of which all is dead or not
	my $old = session_with($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(v) FROM d WHERE k = 3');
	sql('UPDATE d SET v = v + 1 WHERE k = 1');
	is(delete_and_look_up(3), '', 'beside an older snapshot');
	is(sql('SELECT count(v) FROM d WHERE k = 3'), 0, 'a newer one sees no row');
	is($old->query_safe('SELECT count(v) FROM d WHERE k = 3'), 1000, 'the older one sees all');
	$old->quit;
	is(delete_and_look_up(1), '', 'rows that were updated in place');
	is(reads('SELECT count(v) FROM d WHERE k = 1'), "0\n0", 'their chains are dead');
	same_answers($node, 'd', 'k', 'd_k', 'transactions');

	# ---- files that share lists ----

	my $tables = 40;
	sql(join(';', map { <<SQL } 1 .. $tables));
CREATE TABLE s$_ (k int4, v int4) WITH (fillfactor = 50);
INSERT INTO s$_ SELECT i % 2, i FROM generate_series(1, 400) i;
CREATE INDEX s${_}_k ON s$_ USING pmhash (k)
SQL
	my $look_at_all = join(';', map { "SELECT count(v) FROM s$_ WHERE k = 1; SELECT count(v) FROM s$_ WHERE k = 0" } 1 .. $tables);
	sql(join(';', map { "DELETE FROM s$_ WHERE k = 1 AND v > $_" } 1 .. $tables));
	my $locks = join(';', map { "DO 'BEGIN PERFORM v FROM s$_ WHERE k = 0 FOR UPDATE; END'" } 1 .. $tables);
	my $wanted = join("\n", map { int(($_ + 1) / 2) . "\n200" } 1 .. $tables);
	is(sql("BEGIN; $locks; $look_at_all; $look_at_all; ROLLBACK"), "$wanted\n$wanted", 'many files');
	flush_wal();
	is(sql("$look_at_all"), $wanted, 'many files, flushed');
	is( sql(join(';', map { "SELECT entries FROM pmhash.stats('s${_}_k')" } 1 .. $tables)),
		join("\n", map { 200 + int(($_ + 1) / 2) } 1 .. $tables), 'many files: all that is dead has gone');

	# ---- a look-up does a little of it ----

	# 4,000 keys of one row, all dead; nothing waits for WAL
	release_wal_writer($node);
	sql('CREATE TABLE few (k int, v int); INSERT INTO few SELECT i, i FROM generate_series(1, 4000) i; CREATE INDEX few_k ON few USING pmhash (k)');
	sql('DELETE FROM few');
	flush_wal();
	my $look = 'SELECT count(v) FROM few WHERE k = 1';
	my $left = q(SELECT entries FROM pmhash.stats('few_k'));
	my @left = grep { $_ > 0 } split /\n/,
	  sql(join(';', 'SELECT count(v) FROM few WHERE k = ANY (ARRAY(SELECT generate_series(1, 4000)))', $left, ("$look; $left") x 60));
	my @removed = map { ($_ == 0 ? 4000 : $left[$_ - 1]) - $left[$_] } 0 .. $#left;
	is(scalar(grep { $_ > 160 } @removed), 0, 'a look-up takes few of 4,000 dead out') or diag("@removed");

	# what the first one has pruned is flushed now
	my $rest = '';
	for (1 .. 200)
	{
		flush_wal();
		($rest) = sql("$look; $left") =~ /(\d+)\z/;
		last if $rest == 0;
	}
	is($rest, 0, 'others take out the rest');
	$node->stop;
}

# ======== known dead breaks ========

# Entries known to be dead beside what could make the knowledge wrong: a process
# that has taken some and comes no further, while VACUUM gives their TIDs to other rows
# or the server dies; isolation levels; subtransactions; joins; transactions that began
# during recovery and are still there after a promotion.
{
	my $settings = quiet_wal() . "wal_level = replica\n";
	my $node = new_server('known_dead_breaks', $settings, install_path => install_with_stop_points());
	my $points = use_stop_points($node);
	start_with_extension($node);
	use_for_dead($node, 'with tables');

	# A new table; no list of a file from before waits for anything.
	sub fresh_table
	{
		flush_wal();
		return sql('CALL make_table()');
	}

	# A session is held when it has taken out of the list what it may remove.
	sub hold_removal ($query)
	{
		return start_and_hold('dead_before_removal', $query, 'removal');
	}

	sub go_on ($session, $rows)
	{
		release('dead_before_removal');
		return is(finish($session), $rows, 'the session that was held');
	}

	hold_wal_writer($node);

	# ---- taken out of the list and not removed yet, while their TIDs become others' ----

	fresh_table();
	delete_and_look_up(2);
	is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'they are known');
	flush_wal();
	my $session = hold_removal('SELECT count(v) FROM d WHERE k = 1');
	is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'still known while they are being removed');
	sql('VACUUM d; INSERT INTO d SELECT 2, -i FROM generate_series(1, 1000) i');
	is( sql(<<SQL), 't', 'rows have their TIDs');
SET enable_seqscan = on;
SELECT count(*) > 900 FROM d WHERE k = 2 AND ctid < (SELECT max(ctid) FROM d WHERE k = 1)
SQL
	is(sql('SELECT count(v) FROM d WHERE k = 2'), 1000, 'they are found');
	is(sql('SELECT count(*) FROM d WHERE k = 2'), 1000, 'by the index alone');
	is(sql('SET enable_indexscan = off; SET enable_bitmapscan = on; SELECT count(v) FROM d WHERE k = 2'), 1000, 'by a bitmap');
	same_answers($node, 'd', 'k', 'd_k', 'while the removal is held');
	go_on($session, 1000);
	same_answers($node, 'd', 'k', 'd_k', 'when it has gone on');
	is(sql(q(SELECT pmhash.check('d_k'))), '', 'pmhash.check');

	# ---- of what waits for WAL, what may go goes, and nothing else ----

	fresh_table();
	delete_and_look_up(2);
	sql('DELETE FROM d WHERE k = 3 AND v % 8 = 3');
	my $cursor = session_with($node, 'BEGIN; DECLARE c CURSOR FOR SELECT v FROM d WHERE k = 3; FETCH 1 FROM c');
	flush_wal();
	# later records on their pages, which nothing flushes
	$cursor->query_safe('DECLARE l CURSOR FOR SELECT v FROM d WHERE v % 4 = 0 FOR UPDATE; MOVE ALL IN l; MOVE ALL IN c; CLOSE c');
	is(sql('SELECT count(v) FROM d WHERE k = 1'), 1000, 'a scan comes by');
	is(sql(q(SELECT entries FROM pmhash.stats('d_k'))), 3000, 'it has removed what was flushed, and not the rest');
	cmp_ok(reads('SELECT count(v) FROM d WHERE k = 3') =~ s/^500\n//r, '<', 520, 'most of which is known still');
	$cursor->query_safe('COMMIT');
	$cursor->quit;

	# ---- an exclusion constraint is checked by what is there ----

	sql(<<SQL);
CREATE TABLE e (k int4, v int4, CONSTRAINT e_k EXCLUDE USING pmhash (k WITH =)) WITH (fillfactor = 50);
INSERT INTO e SELECT i, i FROM generate_series(1, 1000) i;
DELETE FROM e WHERE k % 2 = 1;
BEGIN;
DO 'BEGIN PERFORM v FROM e WHERE k = ANY (ARRAY(SELECT 2 * i FROM generate_series(1, 500) i)) FOR UPDATE; END';
DO 'BEGIN PERFORM v FROM e WHERE k = ANY (ARRAY(SELECT 2 * i - 1 FROM generate_series(1, 500) i)); END';
ROLLBACK;
SQL
	flush_wal();
	$session = hold_removal('SELECT count(v) FROM e WHERE k = 2');
	sql('VACUUM e; INSERT INTO e SELECT 2 * i - 1, 0 FROM generate_series(1, 500) i');
	fails_like($node, 'INSERT INTO e VALUES (501, 0)', qr/conflicting key value/, 'exclusion constraint');
	go_on($session, 1);
	is(sql('SET enable_seqscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off; SELECT count(*), count(DISTINCT k) FROM e'),
		'1000|1000', 'exclusion constraint: no key twice');

	# ---- subtransactions ----

	fresh_table();
	is( sql(<<SQL), "1000\n0\n1000\n1000", 'a deletion that is taken back was never dead');
BEGIN;
SELECT count(v) FROM d WHERE k = 2;
SAVEPOINT s;
DELETE FROM d WHERE k = 2;
SELECT count(v) FROM d WHERE k = 2;
ROLLBACK TO s;
SELECT count(v) FROM d WHERE k = 2;
COMMIT;
SELECT count(v) FROM d WHERE k = 2;
SQL
	sql('DELETE FROM d WHERE k = 2');
	is( sql(<<SQL), "0\n0", 'what a subtransaction found that is rolled back stays known');
BEGIN;
DO 'BEGIN PERFORM v FROM d WHERE k = 0 FOR UPDATE; END';
SAVEPOINT s;
DO 'BEGIN PERFORM v FROM d WHERE k = 2; END';
ROLLBACK TO s;
SAVEPOINT s;
DO 'BEGIN PERFORM v / 0 FROM d WHERE k = 3; EXCEPTION WHEN division_by_zero THEN NULL; END';
ROLLBACK TO s;
SELECT count(v) FROM d WHERE k = 2;
SELECT tids_read('d_k') - 1000 - 1000 - 1;
COMMIT;
SQL
	is(sql('SELECT count(v) FROM d WHERE k = 3'), 1000, 'nothing else is');
	same_answers($node, 'd', 'k', 'd_k', 'subtransactions');

	# ---- isolation levels ----

	foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
	{
		fresh_table();
		my $older = session_with($node, "BEGIN ISOLATION LEVEL $level; SELECT count(v) FROM d WHERE k = 1");
		delete_and_look_up(2);
		is($older->query_safe('SELECT count(v) FROM d WHERE k = 2'), $level eq 'READ COMMITTED' ? 0 : 1000, "$level: a transaction from before");
		$older->quit;
		delete_and_look_up(2);
		is(reads("SET TRANSACTION ISOLATION LEVEL $level; SELECT count(v) FROM d WHERE k = 2"), "0\n0", "$level: none is visited");
	}

	# A serializable transaction that passes over all rows of a key has read the key.
	my $reader = $node->background_psql('postgres', on_error_stop => 0);
	my $writer = $node->background_psql('postgres', on_error_stop => 0);
	$_->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE') foreach $reader, $writer;
	is($reader->query_safe(q(SELECT count(v) FROM d WHERE k = 2; SELECT tids_read('d_k'))), "0\n0", 'serializable: the reader visits none');
	$writer->query_safe('SELECT count(*) FROM other; INSERT INTO d VALUES (2, 0)');
	$reader->query('INSERT INTO other VALUES (1)');
	$writer->query('COMMIT');
	$reader->query('COMMIT');
	like($reader->{stderr} . $writer->{stderr}, qr/could not serialize access/, 'serializable: a row with that key is a conflict');
	$_->quit foreach $reader, $writer;

	# ---- joins ----

	fresh_table();
	sql('CREATE TABLE o AS SELECT i % 3 + 1 AS k FROM generate_series(1, 300) i; ANALYZE o');
	my $by_join = 'SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL cpu_index_tuple_cost = 1000; SET LOCAL enable_seqscan = on';
	my $join = 'SELECT count(d.v) FROM o JOIN d USING (k)';
	cmp_ok(reads("$by_join; $join WHERE o.k + 0 = 2") =~ s/^.*\n//r, '>=', 1000, 'a join reads TIDs');
	delete_and_look_up(2);
	is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'they are known');
	like(sql("BEGIN; $by_join; EXPLAIN $join"), qr/pmhash join/, 'plan of a join');
	is(sql("BEGIN; $by_join; $join"), 200000, 'a join passes over them');
	is(reads("$by_join; $join WHERE o.k + 0 = 2"), "0\n0", 'a join visits none of them');
	flush_wal();
	$session = hold_removal('SELECT count(v) FROM d WHERE k = 1');
	sql('VACUUM d; INSERT INTO d SELECT 2, -i FROM generate_series(1, 1000) i');
	is(sql('SELECT count(v) FROM d WHERE k = 2'), 1000, 'others have their TIDs');
	is(sql("BEGIN; $by_join; $join"), 300000, 'a join finds them');
	go_on($session, 1000);

	# ---- the server dies while some are taken out and not removed ----

	release_wal_writer($node);
	sql('CALL make_table(); CHECKPOINT');
	hold_wal_writer($node);
	delete_and_look_up(2);
	flush_wal();
	$session = hold_removal('SELECT count(v) FROM d WHERE k = 1');
	delete_and_look_up(3);
	is(sql('SELECT count(v) FROM d WHERE k = 3'), 0, 'rows whose deletion is not flushed');
	crash($node);
	finish($session);
	unlink("$points/dead_before_removal.held");
	$node->start;
	is(sql('SELECT count(v) FROM d WHERE k = 2'), 0, 'after a crash: what was flushed is dead');
	is(sql('SELECT count(v) FROM d WHERE k = 3'), 1000, 'what was not is back');
	same_answers($node, 'd', 'k', 'd_k', 'crash');
	is(sql(q(SELECT pmhash.check('d_k'))), '', 'crash: pmhash.check');
	is(sql(q(SELECT count(*) FROM pmhash.indexes WHERE state <> 'valid')), 0, 'no index was given up');
	$node->stop;

	# ---- transactions that began during recovery ----

	$node = new_primary('dead_primary', $settings);
	use_for_dead($node, 'with tables');
	sql(q(CALL make_table('WITH (wal = on)')));
	my $primary = $node;
	my $standby = new_standby($primary, 'dead_standby');
	wait_for_state($standby, 'd_k', qr/^valid$/, 'the standby has its file');
	sql('DELETE FROM d WHERE k IN (1, 2)');
	flush_wal();
	caught_up($primary, $standby);
	my %old = map { $_ => $standby->background_psql('postgres') } ('READ COMMITTED', 'REPEATABLE READ');
	is($old{$_}->query_safe("BEGIN ISOLATION LEVEL $_; SELECT count(v) FROM d WHERE k = 2"), 0, "recovery, $_: before") foreach sort keys %old;
	$primary->stop;
	$standby->promote;
	$node = $standby;
	use_for_dead($node);
	wait_for_state($node, 'd_k', qr/^valid$/, 'promoted: the file is used');
	# the checkpoint that a promotion asks for flushes WAL as it comes to the pages of d
	sql('CHECKPOINT');
	hold_wal_writer($node);
	my $look = <<SQL;
BEGIN;
DO 'BEGIN PERFORM v FROM d WHERE k = 0 FOR UPDATE; END';
DO 'BEGIN PERFORM v FROM d WHERE k = 2; END';
COMMIT;
SQL
	sql($look);
	is(reads('SELECT count(v) FROM d WHERE k = 2'), "0\n0", 'promoted: they are known');
	foreach my $level (sort keys %old)
	{
		my $session = $old{$level};
		my $count = "SELECT tids_read('d_k')";
		my $before = $session->query_safe($count);

		is($session->query_safe('SELECT count(v) FROM d WHERE k = 2'), 0, "recovery, $level: after");
		is($session->query_safe($count) - $before, 1000, "recovery, $level: it visits them");
		is($session->query_safe('SELECT count(v) FROM d WHERE k = 1'), 0, "recovery, $level: others that are dead");
		is($session->query_safe('SELECT count(v) FROM d WHERE k = 3'), 1000, "recovery, $level: rows that it sees");
	}
	is(reads('SELECT count(v) FROM d WHERE k = 1'), "0\n1000", 'they have put nothing into the list');
	$_->query_safe('COMMIT') foreach values %old;
	my $read = $old{'READ COMMITTED'}->query_safe("SELECT tids_read('d_k')");
	is($old{'READ COMMITTED'}->query_safe("SELECT count(v) FROM d WHERE k = 2; SELECT tids_read('d_k') - $read"), "0\n0",
		'their next transactions pass over them');
	$_->quit foreach values %old;
	release_wal_writer($node);
	same_answers($node, 'd', 'k', 'd_k', 'promoted');
	$node->stop;
}

done_testing();
