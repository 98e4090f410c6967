# Unique indexes (18 and later).

use v5.36;
use PmhashInvalid;
use PmhashStandby;
use PmhashStops;
use PmhashTest;

# ======== unique ========

# Unique indexes (PostgreSQL 18 and later): of many sessions that insert a key one gets it
# and none dies of a deadlock; prepared transactions, an index that is invalid, a standby that
# takes over.  There is never a key in two rows.  (Under loads of all kinds,
# and killed: random_sql.)
{
	my $node = new_server('uniq', <<CONF);
max_connections = 120
max_prepared_transactions = 5
deadlock_timeout = 100ms
wal_level = replica
max_wal_senders = 4
wal_keep_size = 512MB
hot_standby = on
CONF
	plan(skip_all => 'unique indexes are for 18 and later') if $node->pg_version < 18;
	$node->append_conf('pg_hba.conf', "local replication all trust\n");
	start_with_extension($node, <<'SQL');
CREATE TABLE u (k int8, v int4, url text) WITH (autovacuum_enabled = off);
CREATE UNIQUE INDEX u_k ON u USING pmhash (k) WITH (wal = on);
CREATE UNIQUE INDEX u_url ON u USING pmhash (lower(url)) WITH (wal = on);
CREATE INDEX u_v ON u (v);
CREATE TABLE won (k int8);
CREATE FUNCTION try_insert(key int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO u VALUES (key, 0, 'http://example.org/' || key);
	INSERT INTO won VALUES (key);
EXCEPTION WHEN unique_violation THEN NULL;
END $$;
SQL
	my $scan = 'SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off';

	# No key in two rows, by a sequential scan; the indexes know the rows.
	sub all_unique ($server, $name)
	{
		is($server->safe_psql('postgres', "$scan; SELECT count(*) - count(DISTINCT k), count(url) - count(DISTINCT lower(url)) FROM u"),
			'0|0', "$name: each key is in one row");
		is($server->safe_psql('postgres', "SELECT pmhash.check('u_k'), pmhash.check('u_url')"), '|', "$name: pmhash.check");
		same_answers($server, 'u', 'k', 'u_k', $name);
		return;
	}

	sub script
	{
		my ($name, $text) = @_;
		my $file = "$PostgreSQL::Test::Utils::tmp_check/$name.sql";

		PostgreSQL::Test::Utils::append_to_file($file, $text);
		return $file;
	}

	# ---- 64 sessions, the same keys in the same order ----
	my $log_start = -s $node->logfile;
	my $race = script('race', "\\set k :k + 1\nSELECT try_insert(:k);\n");
	my $output = '';
	my $bench = start_pgbench($node, \$output, '-c', 64, '-j', 2, '-t', 150, '-D', 'k=0', '-f', $race);
	ok($bench->finish, '64 sessions insert the same keys') or diag($output);
	is($node->safe_psql('postgres', "$scan; SELECT count(*), count(DISTINCT k), min(k), max(k) FROM won"),
		'150|150|1|150', 'each key has been won once');
	is($node->safe_psql('postgres', "$scan; SELECT count(*) FROM u"), '150', 'and is in one row');
	all_unique($node, 'race');
	is(() = slurp_file($node->logfile, $log_start) =~ /deadlock detected/g, 0, 'no deadlock');

	# ---- prepared transactions ----
	$node->safe_psql('postgres', "BEGIN; INSERT INTO u VALUES (5000, 0, 'p'); PREPARE TRANSACTION 'p'");
	my $waits = "SET lock_timeout = '200ms'; INSERT INTO u VALUES (5000, 1, 'q')";
	fails_like($node, $waits, qr/lock timeout/, 'prepared transaction');
	$node->restart;
	fails_like($node, $waits, qr/lock timeout/, 'prepared transaction, past a restart');
	$node->safe_psql('postgres', "COMMIT PREPARED 'p'");
	fails_like($node, $waits, qr/duplicate key value violates unique constraint "u_k"/, 'COMMIT PREPARED');

	# ---- an invalid index: no row goes in unchecked ----
	rebuild_off($node);
	unlink(index_file($node, 'u_k')) or die;
	my $before = $node->safe_psql('postgres', "$scan; SELECT count(*) FROM u");
	foreach my $sql ('INSERT INTO u VALUES (5000)', 'INSERT INTO u VALUES (5000) ON CONFLICT DO NOTHING',
		'INSERT INTO u VALUES (5000) ON CONFLICT (k) DO UPDATE SET v = 1', 'INSERT INTO u VALUES (6000)',
		'UPDATE u SET k = 5000 WHERE k <> 5000')
	{
		fails_like($node, $sql, qr/index "u_k"/, "invalid index: $sql");
	}
	is($node->safe_psql('postgres', "$scan; SELECT count(*) FROM u"), $before, 'invalid index: no row');
	my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nALTER SYSTEM SET pmhash.rebuild = on;\nINSERT INTO u VALUES (5000)");
	like($err, qr/55000|40001/, 'its SQLSTATE');
	rebuild_on($node);
	$node->poll_query_until('postgres', "SELECT bool_and(state = 'valid') FROM pmhash.indexes") or die;
	fails_like($node, 'INSERT INTO u VALUES (5000)', qr/duplicate key value violates unique constraint "u_k"/, 'rebuilt');
	all_unique($node, 'rebuilt');

	# ---- a standby that takes over when the primary is killed ----
	my $standby = new_standby($node, 'uniq_standby');
	caught_up($node, $standby);
	wait_for_state($standby, $_, qr/^valid$/, "$_ on the standby") foreach qw(u_k u_url);
	my $keys = script('keys', "\\set k random(1, 3000)\nINSERT INTO u VALUES (:k, 0, 'http://example.org/' || :k) ON CONFLICT DO NOTHING;\nDELETE FROM u WHERE k = :k + 1;\nSELECT try_insert(:k + 2);\n");
	$output = '';
	$bench = start_pgbench($node, \$output, '-c', 8, '-j', 2, '-T', 30, '-f', $keys);
	sleep 2;
	crash($node);
	$bench->finish;
	$standby->promote;
	my $key = $standby->safe_psql('postgres', "$scan; SELECT max(k) FROM u");
	fails_like($standby, "INSERT INTO u VALUES ($key)", qr/duplicate key value violates unique constraint "u_k"/, 'promoted, at once');
	all_unique($standby, 'promoted');
	$standby->stop;
}

# ======== unique stops ========

# Inserts of one key into a unique index (PostgreSQL 18 and later), held at the steps
# of unique.c while another session does what would let a duplicate pass.
{
	my $node = new_server('uniq_stops', undef, install_path => install_with_stop_points());
	use_stop_points($node);

	my $duplicate = qr/duplicate key value violates unique constraint "u_k"/;
	my $scan = 'SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off';

	sub one_row ($name)
	{
		is($node->safe_psql('postgres', "$scan; SELECT count(*) FROM u WHERE k = 1"), '1', "$name: one row");
		is($node->safe_psql('postgres', "SELECT pmhash.check('u_k')"), '', "$name: pmhash.check");
		$node->safe_psql('postgres', 'DELETE FROM u; VACUUM u');
		return;
	}

	start_with_extension($node, 'CREATE TABLE u (k int4, who text); CREATE UNIQUE INDEX u_k ON u USING pmhash (k)');

	# ---- one has looked, and found nothing: the other does not get in between ----
	hold('unique_before_insert');
	my $first = start_session("INSERT INTO u VALUES (1, 'first')");
	is_held('unique_before_insert', 'nothing there');
	my $second = start_session("INSERT INTO u VALUES (1, 'second')");
	ok($node->poll_query_until('postgres',
			"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%second%' AND wait_event_type = 'LWLock' AND wait_event = 'pmhash_keys'"),
		'nothing there: the second waits for the key');
	is($node->safe_psql('postgres', "INSERT INTO u VALUES (2, 'other'), (3, 'keys'), (4, 'too'); SELECT count(*) FROM u"), '3', 'others do not');
	release('unique_before_insert');
	is(finish($first), '', 'nothing there: the first is in');
	like(finish($second), $duplicate, 'nothing there: the second is not');
	one_row('nothing there');

	# ---- a dead row of the key is looked at; a new one comes meanwhile ----
	$node->safe_psql('postgres', "INSERT INTO u VALUES (1, 'dead'); DELETE FROM u");
	hold('unique_before_look');
	$first = start_session("INSERT INTO u VALUES (1, 'first')");
	is_held('unique_before_look', 'dead row');
	$node->safe_psql('postgres', "INSERT INTO u VALUES (1, 'new')");
	release('unique_before_look');
	like(finish($first), $duplicate, 'dead row: a new one is met');
	one_row('dead row');

	# ---- the dead row has been looked at; its TID goes to a new one ----
	my $tid = $node->safe_psql('postgres', "INSERT INTO u VALUES (1, 'dead') RETURNING ctid");
	$node->safe_psql('postgres', 'DELETE FROM u');
	hold('unique_looked');
	$first = start_session("INSERT INTO u VALUES (1, 'first')");
	is_held('unique_looked', 'TID used again');
	$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on, TRUNCATE off) u');
	is($node->safe_psql('postgres', "INSERT INTO u VALUES (1, 'new') RETURNING ctid"), $tid, 'TID used again: it is');
	release('unique_looked');
	like(finish($first), $duplicate, 'TID used again: the new row is met');
	one_row('TID used again');

	# ---- ON CONFLICT: both are about to put their entries in, and one of them sees the other ----
	hold('unique_before_insert');
	$first = start_session("INSERT INTO u VALUES (1, 'first') ON CONFLICT (k) DO UPDATE SET who = u.who || ' and first'");
	is_held('unique_before_insert', 'ON CONFLICT');
	$second = start_session("INSERT INTO u VALUES (1, 'second') ON CONFLICT (k) DO UPDATE SET who = u.who || ' and second'");
	ok($node->poll_query_until('postgres',
			"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%''second%' AND wait_event = 'pmhash_keys'"),
		'ON CONFLICT: the second waits for the key');
	release('unique_before_insert');
	is(finish($first), '', 'ON CONFLICT: the first');
	is(finish($second), '', 'ON CONFLICT: the second');
	is($node->safe_psql('postgres', 'SELECT who FROM u'), 'first and second', 'ON CONFLICT: both in turn');
	one_row('ON CONFLICT');
	$node->stop;
}

done_testing();
