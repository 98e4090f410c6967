# What the TAP tests of standbys share: a primary with logged indexes, standbys of
# it, and comparisons on a standby within one snapshot.

package PmhashStandby;

use v5.36;

use Exporter 'import';
use PmhashInvalid;
use PmhashTest;

our @EXPORT = qw(
  new_primary
  made_standby
  new_standby
  cold_copy
  early_and_late
  standby_state
  wait_for_state
  both_valid
  both_right
  no_findings
  change_t
  load_of_t
  follow
  rewind
  caught_up
  replayed
  removing_scans
  scans_leave
  gone_with_entries
  compare_in_snapshot
  nothing_under_old_keys
  plan_of
  file_is_lost
  built_again
  log_position
  logged_since
  built
  compare
  same_as_heap
  write_all_ways
);

# A started primary with the extension and a table of some rows with two logged
# indexes: t_k on its integer key, which is exact, and t_s on a text.
sub new_primary ($name, $settings = '', %parameters)
{
	my $node = new_server($name, <<CONF . ($settings), allows_streaming => 1, %parameters);
wal_level = replica
max_wal_senders = 8
wal_keep_size = 512MB
hot_standby = on
CONF

	$node->append_conf('pg_hba.conf', "local replication all trust\n");
	start_with_extension($node);
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k integer, s text, n integer);
INSERT INTO t SELECT i % 3000, 'text ' || i % 1000, i FROM generate_series(1, 10000) i;
CREATE INDEX t_k ON t USING pmhash (k) WITH (wal = on);
CREATE INDEX t_s ON t USING pmhash (s) WITH (wal = on);
SQL
	return $node;
}

# A standby of it, made by a base backup, with an empty pool; it is not started.
sub made_standby
{
	my ($primary, $name, $settings, %parameters) = @_;
	my $unused = unused_name($name);
	my $backup = "for_$unused";
	my $node = PostgreSQL::Test::Cluster->new($unused, %parameters);

	$primary->backup($backup);
	{
		# (nobody else needs it)
		no warnings 'redefine';
		local *PostgreSQL::Test::RecursiveCopy::copypath = sub { rename($_[0], $_[1]) or die "$_[0]: $!" };
		$node->init_from_backup($primary, $backup, has_streaming => 1);
	}
	$node->append_conf('postgresql.conf', $settings) if defined $settings;
	return $node;
}

# The same, started.
sub new_standby
{
	my $node = made_standby(@_);

	$node->start;
	return $node;
}

# One made of the data directory of a primary that is down, with its pool; it is not started.
sub cold_copy ($primary, $name, %parameters)
{
	my $node = PostgreSQL::Test::Cluster->new($name, %parameters);
	my $backup = $primary->backup_dir . "/$name";

	mkdir $primary->backup_dir;
	PostgreSQL::Test::RecursiveCopy::copypath($primary->data_dir, $backup);
	unlink "$backup/postmaster.pid";
	$node->init_from_backup($primary, $name, has_streaming => 1);
	PostgreSQL::Test::RecursiveCopy::copypath(pool($primary), pool($node));
	return $node;
}

sub standby_state ($node, $index)
{
	return $node->safe_psql('postgres',
		"SELECT state FROM pmhash.indexes WHERE index = '$index'");
}

# A test: the index comes to that state (a pattern) on the standby.
sub wait_for_state ($node, $index, $wanted, $name)
{
	my $deadline = time + 60;
	my $state = standby_state($node, $index);

	while ($state !~ $wanted && time < $deadline)
	{
		usleep(100_000);
		$state = standby_state($node, $index);
	}
	return like($state, $wanted, $name);
}

# Tests: both indexes of t come to be valid on this server.
sub both_valid ($node, $name)
{
	wait_for_state($node, $_, qr/^valid$/, "$name: $_") foreach qw(t_k t_s);
	return;
}

# A test: pmhash.check finds nothing in either.
sub no_findings ($node, $name)
{
	return is($node->safe_psql('postgres', q(SELECT pmhash.check('t_k'), pmhash.check('t_s'))),
		'|', $name);
}

# Tests: they do, and answers and pmhash.check are right.
sub both_right ($node, $name)
{
	both_valid($node, $name);
	compare_in_snapshot($node, "$name: answers");
	no_findings($node, "$name: pmhash.check");
	return;
}

# The n-th change of some of the rows of t, with so many new ones before a VACUUM and,
# where rows have gone, after it (as many, by default).
sub change_t ($node, $n, $before, $after = $before)
{
	$node->safe_psql('postgres', <<SQL);
INSERT INTO t SELECT i % 4000, 'change ' || i % 50, i FROM generate_series(1, $before) i;
UPDATE t SET k = k + $n WHERE n % 19 = $n % 19;
DELETE FROM t WHERE n % 23 = $n % 23;
VACUUM t;
INSERT INTO t SELECT i % 4000, 'changed ' || i % 50, i FROM generate_series(1, $after) i;
SQL
	return;
}

# A script for pgbench: changes of t with so many new rows each, some taken back.  Its path.
sub load_of_t ($node, $rows)
{
	my $path = $node->basedir . '/load_of_t.sql';

	append_to_file($path, <<SQL);
\\set k random(1, 2000)
\\set n random(1, 1000000)
INSERT INTO t SELECT :k + i, 'text ' || :k % 500, :n FROM generate_series(1, $rows) i;
UPDATE t SET k = k + 1 WHERE k = :k;
DELETE FROM t WHERE k BETWEEN :k + 5 AND :k + 9;
BEGIN;
UPDATE t SET n = n + 1 WHERE k = :k + 2;
SAVEPOINT s;
INSERT INTO t VALUES (:k + 2, 'never', 1);
UPDATE t SET n = 0 WHERE k = :k + 2;
ROLLBACK TO s;
END;
BEGIN;
INSERT INTO t VALUES (:k + 3, 'never', 1);
DELETE FROM t WHERE k = :k + 4;
ROLLBACK;
SQL
	return $path;
}

# A standby follows another primary from now on.
sub follow ($node, $primary)
{
	reload_with($node, "primary_conninfo = '" . $primary->connstr . "'\n");
	return;
}

# Take a server that is down back to the other one's history; it keeps its port and name.
sub rewind ($old, $new, $name)
{
	my $conf = slurp_file($old->data_dir . '/postgresql.conf');

	command_ok([ 'pg_rewind', '--target-pgdata', $old->data_dir, '--no-sync',
			'--source-server', $new->connstr('postgres') ], "$name: pg_rewind");
	unlink($old->data_dir . '/postgresql.conf');
	append_to_file($old->data_dir . '/postgresql.conf', $conf);
	return;
}

# The standby has replayed all that the primary has done.  A transaction that has taken no
# number, as VACUUM's, is not flushed by its end (xact.c, RecordTransactionCommit); another
# that has one is, and all WAL in front of it.
sub caught_up ($primary, $standby)
{
	my $flushed = $primary->safe_psql('postgres', "SET synchronous_commit = local;"
		  . "SELECT pg_logical_emit_message(true, 'pmhash', 'caught_up');"
		  . 'SELECT pg_current_wal_flush_lsn()');
	my ($lsn) = $flushed =~ /(\S+)$/;

	wait_until($standby, "SELECT pg_last_wal_replay_lsn() >= '$lsn'::pg_lsn", "the standby does not catch up");
	return;
}

# The primary has done this, and the standby has replayed it.
sub replayed ($primary, $standby, $sql)
{
	$primary->safe_psql('postgres', $sql);
	caught_up($primary, $standby);
	return;
}

# Index scans that find rows of such a key dead and remove their entries: in between an LSN is
# flushed, and the backend that has found them comes by again.
sub removing_scans ($table, $key)
{
	my $scan = "SELECT count(v) FROM $table WHERE k = $key; SELECT pg_sleep(0.05); ";

	return 'SET enable_seqscan = off; SET enable_bitmapscan = off; ' . $scan x 3;
}

# A test: they leave so many in the table's index on k.
sub scans_leave ($node, $table, $key, $left, $name)
{
	my $entries = "SELECT entries FROM pmhash.stats('${table}_k')";

	for (my $i = 0; $i < 600 && $node->safe_psql('postgres', $entries) != $left; $i++)
	{
		$node->safe_psql('postgres', removing_scans($table, $key));
	}
	return is($node->safe_psql('postgres', $entries), $left, $name);
}

# Rows with k = 7 of q go, and their entries in q_k are removed by scans that find them dead;
# no page is pruned, so that whoever has an older snapshot still finds them in the table.
sub gone_with_entries ($primary)
{
	$primary->safe_psql('postgres', 'DELETE FROM q WHERE k = 7');
	return scans_leave($primary, 'q', 7, $primary->safe_psql('postgres', 'SELECT count(*) FROM q'), 'entries of dead rows are removed');
}

# The standby's file of an index has gone, and it finds that out; it builds no other before
# built_again.  'query' uses the index.
sub file_is_lost ($node, $index, $query)
{
	rebuild_off($node);
	unlink(index_file($node, $index)) or die;
	for (my $i = 0; $i < 600 && standby_state($node, $index) =~ /^(valid|invalid: it does not exist)/; $i++)
	{
		$node->safe_psql('postgres', "SET enable_seqscan = off; SET enable_bitmapscan = off; $query");
		usleep(100_000);
	}
	return;
}

# A test.
sub built_again ($node, $index, $name)
{
	rebuild_on($node);
	return wait_for_state($node, $index, qr/^valid$/, "$name: built again");
}

sub plan_of ($node, $query, $settings = '')
{
	return $node->safe_psql('postgres', ($settings) . "EXPLAIN (COSTS OFF) $query");
}

# A test: on this server, within one snapshot, each key of t gives the same rows by
# index scan, bitmap scan, index-only scan and = ANY as by a sequential scan.
sub compare_in_snapshot ($node, $name)
{
	my $only = 'SELECT t.k FROM (SELECT DISTINCT k FROM t OFFSET 0) d JOIN t ON t.k = d.k';
	my $any = 'SELECT n FROM t WHERE k = ANY (ARRAY(SELECT DISTINCT k FROM t WHERE k % 7 = 0))';
	my ($status, $stdout, $stderr) = $node->psql('postgres', <<SQL);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT by_index, by_bitmap FROM every_key('t', 'k', 't_k');
SELECT by_index, by_bitmap FROM every_key('t', 's', 't_s');
SELECT difference(rows_by('index', '$only', 't_k'), rows_by('seq', '$only', 't_k'));
SELECT difference(rows_by('index', '$any', 't_k'), rows_by('seq', '$any', 't_k'));
COMMIT;
SQL
	return is("$status $stdout $stderr", "0 same|same\nsame|same\nsame\nsame ", $name);
}

# Tests: these keys, of rows of t that are gone, lead to no other row, and all is sound.
sub nothing_under_old_keys ($node, $name, @keys)
{
	my $keys = join(', ', @keys);

	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_bitmapscan = off;'
			  . " SELECT count(*) FROM t WHERE k = ANY (ARRAY[$keys])"),
		'0', "$name: nothing has an old key");
	no_findings($node, "$name: pmhash.check");
	compare_in_snapshot($node, "$name: answers");
	return;
}

# Two standbys of a primary that have built at different times: the early one has entries
# of rows (with the keys 5, 6 and 7) that are dead when the late one builds.  With tests.
sub early_and_late ($primary)
{
	my $entries = q(SELECT entries FROM pmhash.stats('t_k'));
	my $early = new_standby($primary, 'early');

	both_valid($early, 'early');
	$primary->safe_psql('postgres', 'DELETE FROM t WHERE k IN (5, 6, 7)');
	my $late = new_standby($primary, 'late');
	both_valid($late, 'late');
	caught_up($primary, $early);
	cmp_ok($early->safe_psql('postgres', $entries), '>', $late->safe_psql('postgres', $entries),
		'the early one has entries that the late one lacks');
	return ($early, $late);
}

sub log_position ($node)
{
	return -s $node->logfile;
}

sub logged_since ($node, $position)
{
	return slurp_file($node->logfile, $position);
}

# ---- builds ----

# A test: the standby gets to have all indexes of a database.
sub built ($primary, $standby, $name, $database = 'postgres')
{
	caught_up($primary, $standby);
	return ok($standby->poll_query_until($database,
		"SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid'"),
		"$name: all built")
	  || diag($standby->safe_psql($database, 'SELECT index, state FROM pmhash.indexes'));
}

# What index, bitmap and index-only scans give for each key, against what is in the
# table, in one snapshot; and what pmhash.check finds.  A snapshot may be too old
# for a file that has just been built: then with a later one.
sub compare ($standby, $table, $key, $index, $database)
{
	my $deadline = time + 60;
	my $said;

	do
	{
		my ($status, $stdout, $stderr) = $standby->psql($database // 'postgres', <<SQL);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT by_index, by_bitmap FROM every_key('$table', '$key', '$index');
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT count(*) FROM (SELECT $key, count(*) FROM $table WHERE $key IS NOT NULL GROUP BY 1) wanted (k, n),
	LATERAL (SELECT count(*) FROM $table WHERE $key = wanted.k) got (n) WHERE got.n <> wanted.n;
COMMIT;
SELECT pmhash.check('$index');
SQL
		$said = "$status $stdout$stderr";
	  } while ($said =~ /^0 not used|conflict with recovery/ && time < $deadline);
	return $said;
}

# The same as a test.
sub same_as_heap ($standby, $table, $key, $index, $name, $database = undef)
{
	return is(compare($standby, $table, $key, $index, $database),
		"0 same|same\n0\n", "$name: $index");
}

# What hurts if it is forgotten, or comes twice: rows of a table (k, v) that are inserted,
# deleted, updated in place, and TIDs that are freed and given to other keys.
sub write_all_ways ($primary, $table, $database)
{
	$primary->safe_psql($database // 'postgres', $_) foreach (
		"DELETE FROM $table WHERE k % 50 = 7",
		"UPDATE $table SET v = v + 1 WHERE k % 50 = 8",
		"UPDATE $table SET k = k + 1 WHERE k % 50 = 9",
		"BEGIN; INSERT INTO $table SELECT 1000, i FROM generate_series(1, 100) i; ROLLBACK",
		"VACUUM $table",
		"INSERT INTO $table SELECT i % 500 + 1, i FROM generate_series(1, 300) i",
		"BEGIN; INSERT INTO $table SELECT 1001, i FROM generate_series(1, 30) i; DELETE FROM $table WHERE k = 1001; COMMIT");
	return;
}

1;
