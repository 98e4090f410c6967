# Subscribers of logical replication.

use v5.36;
use PmhashInvalid;
use PmhashStops;
use PmhashTest;

# ======== subscriber waits ========

# A subscriber that finds rows by pmhash indexes (PostgreSQL 18 and later), by a unique one
# that is the replica identity and by all columns (REPLICA IDENTITY FULL), NULLs among them:
# it has the publisher's rows, whatever hashes are equal.  While others write, too, it waits
# for a transaction only if that decides about a row which it is to
# change, and goes on without an index that is invalid or not built yet.  The rows of
# others that it has to find are found before those have committed.
{
	my $publisher = new_server('publisher', "wal_level = logical\nmax_wal_senders = 4\nlogical_decoding_work_mem = 64kB\n");
	plan(skip_all => 'other access methods may do this in 18 and later') if $publisher->pg_version < 18;
	my $subscriber = new_server('subscriber', "wal_level = replica\ntrack_commit_timestamp = on\n", install_path => install_with_stop_points());
	use_stop_points($subscriber);

	# All strings of a length have one hash.
	my $class = <<'SQL';
CREATE FUNCTION by_length(text, int8) RETURNS int8 IMMUTABLE STRICT LANGUAGE sql RETURN length($1);
CREATE OPERATOR CLASS by_length_ops FOR TYPE text USING pmhash AS OPERATOR 1 =, FUNCTION 1 by_length;
SQL
	my $tables = <<'SQL';
CREATE TABLE bare (k int4, t text);
ALTER TABLE bare REPLICA IDENTITY FULL;
CREATE TABLE same (id text NOT NULL, v int4) WITH (fillfactor = 50);
CREATE UNIQUE INDEX same_id ON same USING pmhash (id by_length_ops);
ALTER TABLE same REPLICA IDENTITY USING INDEX same_id;
CREATE TABLE seat (id text);
CREATE TABLE many (id text NOT NULL, v int4);
CREATE UNIQUE INDEX many_id ON many USING pmhash (id by_length_ops);
ALTER TABLE many REPLICA IDENTITY USING INDEX many_id;
CREATE TABLE word (id text NOT NULL, v int4);
CREATE UNIQUE INDEX word_id ON word USING pmhash (id);
ALTER TABLE word REPLICA IDENTITY USING INDEX word_id;
CREATE TABLE item (k int4, t text);
ALTER TABLE item REPLICA IDENTITY FULL;
CREATE TABLE pair (a int4, b text, c int4);
ALTER TABLE pair REPLICA IDENTITY FULL;
SQL

	foreach my $node ($publisher, $subscriber)
	{
		start_with_extension($node, $class . $tables);
	}
	$publisher->safe_psql('postgres', <<'SQL');
INSERT INTO bare SELECT nullif(i % 50, 0), 'row ' || i FROM generate_series(1, 500) i;
INSERT INTO same SELECT lpad(i::text, 5), i FROM generate_series(1, 20) i;
INSERT INTO many SELECT lpad(i::text, 5), i FROM generate_series(1, 500) i;
INSERT INTO word SELECT 'word ' || i, i FROM generate_series(1, 2000) i;
INSERT INTO item SELECT nullif(i % 50, 0), 'row ' || i FROM generate_series(1, 2000) i;
INSERT INTO pair SELECT i % 20, nullif('b' || i % 7, 'b0'), i FROM generate_series(1, 2000) i;
CREATE TABLE parted (k int4, t text);
ALTER TABLE parted REPLICA IDENTITY FULL;
CREATE TABLE keyed (id int4, k int4, t text);
ALTER TABLE keyed REPLICA IDENTITY FULL;
CREATE PUBLICATION pub FOR ALL TABLES;
SQL
	$subscriber->safe_psql('postgres', <<'SQL');
CREATE INDEX bare_k ON bare USING pmhash (k);
CREATE INDEX item_k ON item USING pmhash (k);
CREATE INDEX pair_ab ON pair USING pmhash (a, b);
ALTER TABLE seat ADD EXCLUDE USING pmhash (id by_length_ops WITH =) DEFERRABLE;
CREATE TABLE parted (k int4, t text) PARTITION BY LIST (k);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES IN (1, 7) PARTITION BY LIST (k);
CREATE TABLE parted_7 PARTITION OF parted_low FOR VALUES IN (7);
CREATE INDEX parted_k ON parted USING pmhash (k);
CREATE TABLE keyed (id int4 PRIMARY KEY, k int4, t text);
CREATE INDEX keyed_k ON keyed USING pmhash (k);
SQL
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION sub CONNECTION 'host=" . $publisher->host . ' port=' . $publisher->port . " dbname=postgres' PUBLICATION pub WITH (streaming = parallel)");
	$subscriber->wait_for_subscription_sync($publisher, 'sub');

	# A test: a query on the subscriber gives this, soon.
	sub soon ($query, $expected, $name)
	{
		my $deadline = time + 20;
		my $result;

		do
		{
			$result = $subscriber->safe_psql('postgres', $query);
			usleep(50_000) if $result ne $expected;
		} while ($result ne $expected && time < $deadline);
		return is($result, $expected, $name);
	}

	sub same_rows ($name, @tables)
	{
		$publisher->wait_for_catchup('sub');
		foreach my $table (@tables ? @tables : ('bare', 'same', 'seat'))
		{
			my $rows = "SELECT count(*), sum(hashtextextended(t::text, 1)), sum(hashtextextended(t::text, 2)) FROM $table t";

			is($subscriber->safe_psql('postgres', $rows), $publisher->safe_psql('postgres', $rows), "$name: $table");
		}
		is($subscriber->safe_psql('postgres', 'SELECT sum(apply_error_count) FROM pg_stat_subscription_stats'), '0', "$name: no error");
		return;
	}

	# A transaction of the subscriber's own has done this, and stays open during a change
	# of the publisher's, which arrives.  (It is prepared: no session is needed for that.)
	sub beside_open ($local, $change, $query, $expected, $name)
	{
		$subscriber->safe_psql('postgres', "BEGIN; $local; PREPARE TRANSACTION 'open'");
		$publisher->safe_psql('postgres', $change);
		soon($query, $expected, $name);
		$subscriber->safe_psql('postgres', "ROLLBACK PREPARED 'open'");
		$publisher->wait_for_catchup('sub');
		return;
	}

	# ---- by each kind of index ----
	my @all = ('many', 'word', 'item', 'pair');
	same_rows('copied', @all);
	$publisher->safe_psql('postgres', <<'SQL');
UPDATE many SET v = v + 1000 WHERE v % 3 = 0;
UPDATE many SET id = '9' || substr(id, 2) WHERE v % 5 = 0;
DELETE FROM many WHERE v % 7 = 0;
UPDATE word SET v = -v WHERE v % 3 = 0;
UPDATE word SET id = id || 'x' WHERE v % 5 = 0;
DELETE FROM word WHERE v % 7 = 0;
UPDATE item SET t = t || ' changed' WHERE k IS NULL;
DELETE FROM item WHERE k IS NULL AND t LIKE '%5 changed';
UPDATE item SET k = NULL WHERE k = 7;
UPDATE item SET k = 7 WHERE k IS NULL AND t LIKE '%00 changed';
DELETE FROM item WHERE k = 9;
UPDATE pair SET c = -c WHERE b IS NULL;
UPDATE pair SET b = NULL WHERE b = 'b3';
DELETE FROM pair WHERE a = 4 AND b IS NULL;
SQL
	same_rows('changed', @all);
	$subscriber->safe_psql('postgres', "SELECT pg_stat_force_next_flush()");
	foreach my $index ('many_id', 'word_id', 'item_k', 'pair_ab')
	{
		ok($subscriber->poll_query_until('postgres', "SELECT idx_scan > 0 FROM pg_stat_user_indexes WHERE indexrelname = '$index'"),
			"$index has been used");
	}
	is($subscriber->safe_psql('postgres', "SELECT pmhash.check('many_id'), pmhash.check('word_id'), pmhash.check('item_k'), pmhash.check('pair_ab')"),
		'|||', 'pmhash.check');

	# ---- rows of others that are met on the way ----
	beside_open("INSERT INTO bare VALUES (1, 'local')",
		"INSERT INTO bare VALUES (NULL, 'new'); UPDATE bare SET t = 'newer' WHERE t = 'new'",
		"SELECT count(*) FROM bare WHERE t = 'newer'", '1', 'a walk for NULL: a row with another key');
	beside_open("INSERT INTO bare VALUES (NULL, 'local')",
		"INSERT INTO bare VALUES (NULL, 'new 2'); DELETE FROM bare WHERE t = 'new 2'",
		"SELECT count(*) FROM bare WHERE t = 'new 2'", '0', 'a walk for NULL: another row');
	beside_open("INSERT INTO bare VALUES (1, 'local')",
		"INSERT INTO bare VALUES (1, 'new 3'); UPDATE bare SET t = 'newer 3' WHERE t = 'new 3'",
		"SELECT count(*) FROM bare WHERE t = 'newer 3'", '1', 'one key: another row');
	beside_open("INSERT INTO same VALUES ('local', 0)",
		"INSERT INTO same VALUES ('other', 0); UPDATE same SET v = 5 WHERE id = 'other'",
		"SELECT v FROM same WHERE id = 'other'", '5', 'replica identity: another key of the hash');
	beside_open("INSERT INTO seat VALUES ('local')", "INSERT INTO seat VALUES ('other')",
		'SELECT count(*) FROM seat', '1', 'exclusion constraint: another key of the hash');
	same_rows('beside open transactions');

	# ---- a large transaction, streamed to a parallel worker: its rows are in the table ----
	my $large = session_with($publisher, 'BEGIN');
	$large->query_safe("INSERT INTO bare SELECT 1, repeat('large', 20) || i FROM generate_series(1, 3000) i");
	soon("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'logical replication parallel worker'", '1', 'a transaction is streamed');
	soon("SELECT pg_relation_size('bare') > 100000", 't', 'its rows come in');
	$publisher->safe_psql('postgres', "INSERT INTO bare VALUES (1, 'small'); UPDATE bare SET t = 'smaller' WHERE t = 'small'");
	soon("SELECT count(*) FROM bare WHERE t = 'smaller'", '1', 'a small one that ends before it');
	$large->query_safe('COMMIT');
	$large->quit;
	same_rows('streamed');

	# ---- a row that is to be changed, of a transaction that is open ----
	$subscriber->safe_psql('postgres', "BEGIN; UPDATE same SET v = 0 WHERE id = 'other'; PREPARE TRANSACTION 'open'");
	$publisher->safe_psql('postgres', "UPDATE same SET v = 6 WHERE id = 'other'");
	my $waits = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'logical replication apply worker' AND wait_event_type = 'Lock'";
	soon($waits, '1', 'its own row: the worker waits');
	$subscriber->safe_psql('postgres', "COMMIT PREPARED 'open'");
	same_rows('its own row');
	$subscriber->safe_psql('postgres', "DELETE FROM same WHERE id = 'other'; BEGIN; INSERT INTO same VALUES ('other', 0); PREPARE TRANSACTION 'open'");
	$publisher->safe_psql('postgres', "UPDATE same SET v = 7 WHERE id = 'other'");
	soon($waits, '1', 'its own row, new: the worker waits');
	$subscriber->safe_psql('postgres', "COMMIT PREPARED 'open'");
	same_rows('its own row, new');

	# ---- rows of a transaction that is open, of which the entries might wait in its queue ----

	# How often the worker has read the whole table.
	sub walks
	{
		return $subscriber->safe_psql('postgres', 'SELECT table_scans FROM pmhash.stat');
	}

	# A session brings rows which the subscriber has not; the last of them, from the 17th on,
	# is deleted on the publisher.  $then: what is done before that.
	sub finds_new_rows ($table, $name, $then = undef)
	{
		my $rows = "INSERT INTO $table SELECT 7, 'q' || i FROM generate_series(1, 40) i";

		$publisher->safe_psql('postgres', $rows);
		$publisher->wait_for_catchup('sub');
		$subscriber->safe_psql('postgres', "DELETE FROM $table WHERE t LIKE 'q%'");
		my $session = session_with($subscriber, "BEGIN; $rows");
		$subscriber->safe_psql('postgres', $then) if defined $then;
		$publisher->safe_psql('postgres', "DELETE FROM $table WHERE t = 'q40'");
		soon($waits, '1', "$name: the worker waits");
		$session->query_safe('COMMIT');
		$session->quit;
		$publisher->wait_for_catchup('sub');
		is($subscriber->safe_psql('postgres', "SELECT count(*), bool_or(t = 'q40') FROM $table WHERE t LIKE 'q%'"), '39|f', "$name: the row is deleted");
		return;
	}

	foreach my $case ([ 'bare', 'a table' ], [ 'parted', 'a partition' ])
	{
		my ($table, $what) = @$case;
		my $before = walks();

		finds_new_rows($table, "$what of a subscription");
		is(walks(), $before, "$what of a subscription: by the index");
	}

	# A table with a key is looked up by that.
	my $keyed = "INSERT INTO keyed SELECT i, 7, 'q' || i FROM generate_series(1, 40) i";
	$publisher->safe_psql('postgres', $keyed);
	$publisher->wait_for_catchup('sub');
	my $before = $subscriber->safe_psql('postgres', 'SELECT group_entries FROM pmhash.stat');
	$subscriber->safe_psql('postgres', "DELETE FROM keyed; $keyed");
	is($subscriber->safe_psql('postgres', "SELECT group_entries - $before FROM pmhash.stat"), '24', 'a table with a key: group insert');
	$publisher->safe_psql('postgres', "DELETE FROM keyed WHERE id = 40");
	$publisher->wait_for_catchup('sub');
	is($subscriber->safe_psql('postgres', 'SELECT count(*), max(id) FROM keyed'), '39|39', 'a table with a key: changes arrive');

	# The session has filled its queue before the table is one of a subscription.
	foreach my $node ($publisher, $subscriber)
	{
		$node->safe_psql('postgres', 'CREATE TABLE late (k int4, t text); ALTER TABLE late REPLICA IDENTITY FULL');
	}
	$subscriber->safe_psql('postgres', 'CREATE INDEX late_k ON late USING pmhash (k)');

	# Before that, queues that end in all ways: none of them counts any more.
	my $queue = 'INSERT INTO late SELECT 7, i FROM generate_series(1, 40) i';
	$subscriber->safe_psql('postgres', <<SQL);
BEGIN; $queue; ROLLBACK;
BEGIN; SAVEPOINT a; $queue; ROLLBACK TO a; SAVEPOINT b; $queue; RELEASE b; ROLLBACK;
BEGIN; SAVEPOINT a; $queue; SAVEPOINT b; $queue; ROLLBACK TO b; COMMIT;
BEGIN; $queue; PREPARE TRANSACTION 'queue'; ROLLBACK PREPARED 'queue';
BEGIN; $queue; TRUNCATE late; $queue; COMMIT;
DO 'BEGIN $queue; PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END';
SET work_mem = 64; INSERT INTO late SELECT i, i FROM generate_series(1, 100000) i;
TRUNCATE late;
SQL
	$subscriber->psql('postgres', "BEGIN; $queue; SELECT 1 / 0") for 1 .. 2;
	$subscriber->psql('postgres', "BEGIN; $queue; SELECT pg_terminate_backend(pg_backend_pid())");
	my $by_index = walks();
	finds_new_rows('late', 'subscribed meanwhile', 'ALTER SUBSCRIPTION sub REFRESH PUBLICATION WITH (copy_data = false)');
	cmp_ok(walks(), '>', $by_index, 'subscribed meanwhile: by the table');
	my $by_table = walks();
	$publisher->safe_psql('postgres', "UPDATE late SET t = 'new' WHERE t = 'q39'");
	soon("SELECT count(*) FROM late WHERE t = 'new'", '1', 'no queue any more: changes arrive');
	is(walks(), $by_table, 'no queue any more: by the index');
	finds_new_rows('late', 'subscribed before');
	is(walks(), $by_table, 'subscribed before: by the index');

	# ---- a row that fits is of a transaction that fails, before the worker visits it ----
	$publisher->safe_psql('postgres', "INSERT INTO same VALUES ('held', 1)");
	$publisher->wait_for_catchup('sub');
	$subscriber->safe_psql('postgres', "DELETE FROM same WHERE id = 'held'; BEGIN; INSERT INTO same VALUES ('held', 2); PREPARE TRANSACTION 'open'");
	hold('scan_row_fits');
	$publisher->safe_psql('postgres', "UPDATE same SET v = 3 WHERE id = 'held'");
	is_held('scan_row_fits', 'the worker');
	$subscriber->safe_psql('postgres', "ROLLBACK PREPARED 'open'");
	$subscriber->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on, TRUNCATE off) same');
	$subscriber->safe_psql('postgres', "INSERT INTO same SELECT 'another ' || i, i FROM generate_series(1, 300) i");
	release('scan_row_fits');
	$publisher->wait_for_catchup('sub');
	is($subscriber->safe_psql('postgres', "SELECT count(*), sum(v) FROM same WHERE id LIKE 'another %'"), '300|45150', 'its place has gone to no other row, which would be changed');
	is($subscriber->safe_psql('postgres', "SELECT count(*) FROM same WHERE id = 'held'"), '0', 'there is no row to be changed');
	$subscriber->safe_psql('postgres', "DELETE FROM same WHERE id LIKE 'another %'");
	$publisher->safe_psql('postgres', "DELETE FROM same WHERE id = 'held'");
	same_rows('a row that has gone');

	# ---- a row that is met dies before its key is read, and its rows in TOAST with it ----
	$_->safe_psql('postgres', 'ALTER TABLE same ALTER id SET STORAGE EXTERNAL') foreach ($publisher, $subscriber);
	sub row_dies ($change, $expected, $name)
	{
		$subscriber->safe_psql('postgres', "BEGIN; INSERT INTO same VALUES (repeat('local', 1000), 0); PREPARE TRANSACTION 'open'");
		hold('row_key_in_progress');
		$publisher->safe_psql('postgres', $change);
		is_held('row_key_in_progress', $name);
		$subscriber->safe_psql('postgres', "ROLLBACK PREPARED 'open'");
		$subscriber->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on, TRUNCATE off) same');
		release('row_key_in_progress');
		soon("SELECT v FROM same WHERE id = repeat('other', 1000)", $expected, "$name: there is no error");
		same_rows($name);
		return;
	}
	# (its place comes before that of the other row)
	$subscriber->safe_psql('postgres', "INSERT INTO same VALUES (repeat('local', 1000), 0); DELETE FROM same WHERE length(id) = 5000");
	row_dies("INSERT INTO same VALUES (repeat('other', 1000), 1)", '1', 'a new row');
	beside_open("INSERT INTO same VALUES (repeat('local', 1000), 0)", "UPDATE same SET v = 2 WHERE length(id) = 5000",
		'SELECT v FROM same WHERE length(id) = 5000', '2', 'replica identity: another key of the hash, in TOAST');
	row_dies("UPDATE same SET v = 3 WHERE length(id) = 5000", '3', 'a row to be changed');

	# ---- an index that is being built ----
	$subscriber->safe_psql('postgres', "DROP INDEX bare_k; BEGIN; LOCK TABLE bare IN ROW EXCLUSIVE MODE; PREPARE TRANSACTION 'open'");
	my $build = start_session('CREATE INDEX CONCURRENTLY bare_k ON bare USING pmhash (k)');
	soon("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%' AND wait_event_type = 'Lock'", '1', 'a build waits for writers');
	$publisher->safe_psql('postgres', "UPDATE bare SET t = t || ' built' WHERE k = 2; DELETE FROM bare WHERE k IS NULL AND t LIKE '%00'");
	soon("SELECT count(*) FROM bare WHERE t LIKE '% built'", '10', 'not built yet: changes arrive');
	same_rows('not built yet');
	$subscriber->safe_psql('postgres', "COMMIT PREPARED 'open'");
	is(finish($build), '', 'the build');

	# ---- indexes that are invalid ----
	rebuild_off($subscriber);
	my @lost = map { index_file($subscriber, $_) } 'bare_k', 'same_id';
	$subscriber->stop('immediate');
	unlink(@lost);
	$subscriber->start;
	$publisher->safe_psql('postgres', <<'SQL');
UPDATE bare SET t = t || ' invalid' WHERE k = 3 OR k IS NULL;
DELETE FROM bare WHERE k = 4;
UPDATE same SET v = v + 100 WHERE v = 11;
DELETE FROM same WHERE v = 12;
SQL
	soon("SELECT count(*) FROM bare WHERE t LIKE '% invalid'", '16', 'invalid: changes arrive');
	soon("SELECT count(*) FROM same WHERE v = 111", '1', 'invalid, by replica identity: changes arrive');
	same_rows('invalid');
	is(index_state($subscriber, $_), 'invalid: it does not exist', "$_ is still invalid") foreach ('bare_k', 'same_id');
	rebuild_on($subscriber);
	ok($subscriber->poll_query_until('postgres', "SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid'"), 'rebuilt');
	$publisher->safe_psql('postgres', "UPDATE bare SET k = 5 WHERE k = 6; UPDATE same SET id = 'again' WHERE v = 13");
	same_rows('rebuilt');
	all_checked($subscriber, 'at the end');

	# ---- a row that is there already: the conflict is found by the index ----
	$subscriber->safe_psql('postgres', "INSERT INTO word VALUES ('taken', 1)");
	$publisher->safe_psql('postgres', "INSERT INTO word VALUES ('taken', 2)");
	ok($subscriber->poll_query_until('postgres', "SELECT apply_error_count > 0 FROM pg_stat_subscription_stats"),
		'a key that the subscriber has is a conflict');
	$subscriber->safe_psql('postgres', "DELETE FROM word WHERE id = 'taken'");
	$publisher->wait_for_catchup('sub');
	is($subscriber->safe_psql('postgres', "SELECT v FROM word WHERE id = 'taken'"), '2', 'and goes in when it has gone');

	# ---- rows that have been deleted are told from those that never were there (PostgreSQL 19) ----
	sub deleted_meanwhile ($n, $name)
	{
		$subscriber->safe_psql('postgres', 'SELECT pg_stat_reset_subscription_stats(NULL)');
		$publisher->safe_psql('postgres', "UPDATE many SET v = 1 WHERE id IN ('gone $n', 'none $n', 'nope $n'); UPDATE word SET v = 1 WHERE id = 'gone $n'; UPDATE item SET t = 'new' WHERE t = 'gone $n'");
		$subscriber->safe_psql('postgres', "DELETE FROM $_ = 'gone $n'") foreach ('many WHERE id', 'word WHERE id', 'item WHERE t');
		$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION sub ENABLE');
		return soon("SELECT confl_update_deleted || ' ' || confl_update_missing || ' ' || apply_error_count FROM pg_stat_subscription_stats", '3 2 0', "$name: rows that have been deleted");
	}

	sub disable
	{
		$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION sub DISABLE');
		wait_until($subscriber, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'logical replication%worker'", 'the worker works on');
		return;
	}

	if ($subscriber->pg_version->major >= 19)
	{
		$publisher->safe_psql('postgres', <<'SQL');
INSERT INTO many SELECT w || i, 0 FROM unnest(ARRAY['gone ', 'none ', 'nope ']) w, generate_series(1, 2) i;
INSERT INTO word VALUES ('gone 1', 0), ('gone 2', 0);
INSERT INTO item VALUES (NULL, 'gone 1'), (NULL, 'gone 2');
SQL
		$publisher->wait_for_catchup('sub');
		$subscriber->safe_psql('postgres', "DELETE FROM many WHERE id LIKE 'no%'");
		disable();
		$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION sub SET (retain_dead_tuples = true)');
		wait_until($subscriber, "SELECT count(xmin) = 1 FROM pg_replication_slots WHERE slot_name = 'pg_conflict_detection'", 'no slot for conflicts');
		deleted_meanwhile(1, 'valid');
		disable();
		rebuild_off($subscriber);
		@lost = map { index_file($subscriber, $_) } 'many_id', 'word_id', 'item_k';
		$subscriber->stop('immediate');
		unlink(@lost);
		$subscriber->start;
		deleted_meanwhile(2, 'invalid');
	}

	$subscriber->stop;
	$publisher->stop;
}

done_testing();
