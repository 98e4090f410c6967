# Numbers of databases and files that are used again.

use v5.36;
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;

# ======== same number ========

# A temporary index whose main fork has the number of a permanent index's: the
# server looks for such numbers among relations of the same kind only.  The file of
# neither is ever taken for that of the other, nor removed with it.
{
	my $node = new_server('number', "pmhash.cleaner_naptime = 3600\n");
	my $pool = pool($node);
	start_with_extension($node, <<SQL);
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING pmhash (k);
SQL

	# A number that is no OID, so that a new index may get it: its OID is its number.
	$node->safe_psql('postgres', 'REINDEX INDEX t_k');
	my $number = $node->safe_psql('postgres', "SELECT relfilenode FROM pg_class WHERE relname = 't_k'");
	$node->stop;
	system_or_bail('pg_resetwal', '-o', $number - 60, $node->data_dir);
	$node->start;
	ok($node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'"),
		'the index is there');
	is($node->safe_psql('postgres', "SELECT relfilenode FROM pg_class WHERE relname = 't_k'"), $number,
		'with the same main fork');

	my $session = $node->background_psql('postgres');
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
	my $count = 'SELECT count(*) FROM';
	$session->query_safe("$by_index; SET client_min_messages = error");
	is($session->query_safe("$count t WHERE k = 5"), '1', 'the permanent index is open');
	is($session->query_safe(<<SQL), $number, 'a temporary index has its number');
CREATE TEMP TABLE tt (k int4);
INSERT INTO tt SELECT i % 10 + 2000 FROM generate_series(1, 100) i;
DO \$\$ BEGIN
	LOOP
		CREATE INDEX tt_k ON tt USING pmhash (k);
		EXIT WHEN (SELECT relfilenode FROM pg_class WHERE relname = 'tt_k') >= $number;
		DROP INDEX tt_k;
	END LOOP;
END \$\$;
SELECT relfilenode FROM pg_class WHERE relname = 'tt_k';
SQL

	sub right ($name)
	{
		is($session->query_safe("$count t WHERE k = 5"), '1', "$name: the permanent index finds its row");
		is($session->query_safe("$count t WHERE k = 2005"), '0', "$name: and no other");
		is($session->query_safe("$count tt WHERE k = 2005"), '10', "$name: the temporary index finds its rows");
		is($session->query_safe("$count tt WHERE k = 5"), '0', "$name: and no other");
		is(scalar(index_files($pool)), 2, "$name: files");
		return;
	}

	right('both open');
	$session->query_safe('INSERT INTO t VALUES (2005), (5); INSERT INTO tt VALUES (5), (2005)');
	$session->query_safe(q{DELETE FROM t WHERE k = 2005 OR (k = 5 AND ctid > '(0,100)'); DELETE FROM tt WHERE k = 5 OR (k = 2005 AND ctid > '(0,100)')});
	right('rows in each');
	foreach my $change ('REINDEX INDEX tt_k', 'REINDEX INDEX t_k')
	{
		$session->query_safe("BEGIN; $change; ROLLBACK");
		right("$change, rolled back");
	}

	# The drop of one is not taken for a hand-over of its main fork.
	$session->query_safe('DROP INDEX tt_k');
	is(scalar(index_files($pool)), 1, 'the file of the temporary index goes with it');
	is($session->query_safe("$count t WHERE k = 5"), '1', 'the permanent index has its own');
	is($session->query_safe('SELECT state FROM pmhash.indexes'), 'valid', 'and is valid');
	$session->quit;
	$node->stop;
}

# ======== same database number ========

# A database is dropped, and another one is made with its OID, of a template that is an
# older copy of it: stubs of the new one name files of the dropped one, with the same
# database in them.  These have what the old one had in the end, and must not be used.
{
	my $oid = 20001;
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
	my $missing = 'invalid: it does not exist';

	my $node = new_primary('number2', "pmhash.rebuild = off\npmhash.cleaner_naptime = 3600\n");
	my $standby = new_standby($node, 'number_standby', "pmhash.rebuild = on\n");

	# Its rows 1 to 100 go to gold.  Afterwards their TIDs have other keys.
	sub make_and_change
	{
		$node->safe_psql('postgres', "CREATE DATABASE app OID = $oid");
		install_extension($node, 'app', <<SQL);
CREATE TABLE x (k int4) WITH (autovacuum_enabled = off);
INSERT INTO x SELECT generate_series(1, 100);
CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = on);
SQL
		is(index_state($node, 'x_k', 'app'), 'valid', 'the first one: valid');
		if ($standby)
		{
			caught_up($node, $standby);
			$standby->poll_query_until('app', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'x_k'")
			  or die 'no file on the standby';
		}
		$node->safe_psql('postgres', 'CREATE DATABASE gold TEMPLATE app IS_TEMPLATE true ALLOW_CONNECTIONS false');
		$node->safe_psql('app', 'DELETE FROM x; VACUUM x; INSERT INTO x SELECT generate_series(1001, 1100)');
		return;
	}

	sub make_again ($strategy)
	{
		$node->safe_psql('postgres', 'DROP DATABASE app');
		$node->safe_psql('postgres', "CREATE DATABASE app TEMPLATE gold OID = $oid STRATEGY $strategy");
		return;
	}

	sub is_as_gold ($server, $name)
	{
		is($server->safe_psql('app', "$by_index SELECT count(*), min(k), max(k) FROM x WHERE k = ANY (ARRAY(SELECT generate_series(1, 2000)))"),
			'100|1|100', "$name: rows that an index scan may find");
		return;
	}

	sub drop_gold
	{
		$node->safe_psql('postgres', 'ALTER DATABASE gold IS_TEMPLATE false');
		$node->safe_psql('postgres', "DROP DATABASE $_") foreach ('gold', 'app');
		return;
	}

	# ---- a standby, on which a drop is noticed once an hour ----
	# event: `CREATE DATABASE ... TEMPLATE ... OID` with the OID of a dropped database
	make_and_change();
	make_again('wal_log');
	caught_up($node, $standby);
	is_as_gold($standby, 'standby');
	ok(!(grep { /\.pmh$/ } index_files(pool($standby) . "/$oid")) || index_state($standby, 'x_k', 'app') ne 'valid', 'standby: no old file is used');
	is(index_state($node, 'x_k', 'app'), $missing, 'primary');
	is_as_gold($node, 'primary');
	$node->safe_psql('app', 'REINDEX INDEX x_k');
	caught_up($node, $standby);
	$standby->poll_query_until('app', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'x_k'")
	  or die 'no new file on the standby';
	is_as_gold($standby, 'standby, its own new file');

	# replayed once more it takes nothing away that has been made since
	# (another file of the index would have its name; the link keeps the inode from being used again)
	my $file = $standby->safe_psql('app', 'SELECT file FROM pmhash.indexes');
	my $kept = $standby->basedir . '/kept';
	link($file, $kept) or die $!;
	$standby->stop;
	$standby->start;
	$standby->poll_query_until('app', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 'x_k'");
	is((stat($file))[1], (stat($kept))[1], 'standby, started again: the same file');
	is_as_gold($standby, 'standby, started again');

	# it is moved: its files are kept
	$node->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''");
	# (its last record, at which a standby ends all sessions, comes after its commit and is
	# flushed with the next one: dbcommands.c, movedb)
	$node->safe_psql('postgres', 'ALTER DATABASE app SET TABLESPACE elsewhere');
	replayed($node, $standby, 'SELECT txid_current()');
	is(index_state($standby, 'x_k', 'app'), 'valid', 'standby, ALTER DATABASE SET TABLESPACE: valid');
	is((stat($file))[1], (stat($kept))[1], 'standby, ALTER DATABASE SET TABLESPACE: kept');
	$node->safe_psql('postgres', 'ALTER DATABASE app SET TABLESPACE pg_default');
	$standby->stop;
	$standby = undef;
	drop_gold();

	# ---- no launcher: nothing else removes what a dropped database has left ----
	restart_with($node, 'max_worker_processes = 0');
	foreach my $strategy ('wal_log', 'file_copy')
	{
		make_and_change();
		make_again($strategy);
		is(index_state($node, 'x_k', 'app'), $missing, "no launcher, $strategy: not valid");
		is_as_gold($node, "no launcher, $strategy");
		drop_gold();
	}

	# ---- what is left cannot be removed ----
	make_and_change();
	$node->safe_psql('postgres', 'DROP DATABASE app');
	chmod(0500, pool($node) . "/$oid") or die $!;
	my $create = "CREATE DATABASE app TEMPLATE gold OID = $oid";
	# trouble: `could not remove index files of a dropped database with OID ...`
	fails_like($node, $create, qr/could not remove index files of a dropped database with OID $oid/, 'it cannot be removed');
	chmod(0700, pool($node) . "/$oid") or die $!;
	rename(pool($node), pool($node) . '.away') or die $!;
	fails_like($node, $create, qr/has been unmounted, removed or replaced/, 'the pool is away');
	fails_like($node, 'CREATE DATABASE other', qr/has been unmounted, removed or replaced/, 'the pool is away, another one');
	rename(pool($node) . '.away', pool($node)) or die $!;
	$node->safe_psql('postgres', $create);
	is(index_state($node, 'x_k', 'app'), $missing, 'the pool is back');
	is_as_gold($node, 'the pool is back');
	drop_gold();

	# ---- the pool is refused for a server life, and is as it was in the next one ----
	make_and_change();
	$node->stop;
	start_with($node, "pmhash.directory = '" . $node->data_dir . "/inside'");
	make_again('wal_log');
	$node->stop;
	start_with($node, "pmhash.directory = ''");
	isnt(index_state($node, 'x_k', 'app'), 'valid', 'after a life without the pool: not valid');
	is_as_gold($node, 'after a life without the pool');
	$node->stop;
}

done_testing();
