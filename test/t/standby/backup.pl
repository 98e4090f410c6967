# Backups, copies of data directories, pg_rewind.

use v5.36;

use File::Path qw(rmtree);
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::RecursiveCopy;

# ======== backup and standby ========

# Data directories that come to life elsewhere: base backup without and with a
# copy of the pool, point-in-time recovery, snapshots of a running server.  Each server starts, answers at once, rebuilds its indexes by
# itself and loses no row that was written meanwhile.
{
	my $node = new_server('origin', "wal_level = replica\nmax_wal_senders = 4\npmhash.wal = off\n");
	my $pool = pool($node);
	my $apart = 'server and pool directory have not been together all the time since it was made';

	$node->enable_archiving;
	start_with_extension($node, invalid_fixture());
	$node->backup('base');
	my $copied_pool = "$PostgreSQL::Test::Utils::tmp_check/copied_pool";
	PostgreSQL::Test::RecursiveCopy::copypath($pool, $copied_pool,
		filterfn => sub { return $_[0] ne 'lock' });
	$node->safe_psql('postgres', <<SQL);
INSERT INTO t SELECT i, -i FROM generate_series(3000, 4000) i;
DELETE FROM t WHERE k < 100;
VACUUM t;
INSERT INTO t SELECT i, i FROM generate_series(5000, 5099) i;
SELECT pg_create_restore_point('here');
INSERT INTO t SELECT 1, i FROM generate_series(1, 100) i;
SQL
	my $last = $node->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_lsn())');
	$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
	wait_until($node, "SELECT last_archived_wal >= '$last' FROM pg_stat_archiver", 'WAL is not archived');

	# event: base backup without the pool
	# ---- base backup, no pool ----
	my $bare = PostgreSQL::Test::Cluster->new('bare');
	$bare->init_from_backup($node, 'base');
	$bare->append_conf('postgresql.conf', 'archive_mode = off');
	start_without_rebuilds($bare);
	invalid_then_back($bare, 'it does not exist', 'backup without the pool');
	$bare->stop;

	# event: base backup with a copy of the pool
	# ---- the same with a copy of the pool from another moment ----
	my $with = PostgreSQL::Test::Cluster->new('with_pool');
	$with->init_from_backup($node, 'base');
	PostgreSQL::Test::RecursiveCopy::copypath($copied_pool, pool($with));
	$with->append_conf('postgresql.conf', 'archive_mode = off');
	start_without_rebuilds($with);
	# trust: signal
	invalid_then_back($with, $apart, 'backup with a copied pool');
	$with->restart;
	all_come_back($with, 'backup with a copied pool, restarted');
	$with->stop;

	# event: point-in-time recovery
	# ---- point-in-time recovery, with the pool of the end ----
	$node->stop;
	my $pitr = PostgreSQL::Test::Cluster->new('pitr');
	$pitr->init_from_backup($node, 'base', has_restoring => 1, standby => 0);
	PostgreSQL::Test::RecursiveCopy::copypath($pool, pool($pitr),
		filterfn => sub { return $_[0] ne 'lock' });
	$pitr->append_conf('postgresql.conf', <<CONF);
recovery_target_name = 'here'
recovery_target_action = promote
archive_mode = off
CONF
	start_without_rebuilds($pitr);
	$pitr->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
	is($pitr->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 5000'), '1', 'recovered to the point');
	is($pitr->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 1'), '0', 'and not beyond');
	invalid_then_back($pitr, $apart, 'point-in-time recovery');
	crash_and_start($pitr);
	all_come_back($pitr, 'point-in-time recovery, crashed');
	$pitr->stop;

	# ---- snapshots of a running server, put back after a crash of the same run ----
	# All processes are stopped while they are made, so each is of one moment.
	my $frozen = "$PostgreSQL::Test::Utils::tmp_check/frozen";

	sub snapshot
	{
		my @pids = ($node->{_pid}, PmhashTest::children($node->{_pid}));

		kill('STOP', @pids);
		foreach my $directory ($node->data_dir, $pool)
		{
			my ($name) = $directory =~ m,([^/]*)$,;

			rmtree("$frozen/$name");
			PostgreSQL::Test::RecursiveCopy::copypath($directory, "$frozen/$name",
				filterfn => sub { return $_[0] ne 'postmaster.pid' });
		}
		kill('CONT', @pids);
		return;
	}

	sub put_back ($directory)
	{
		my ($name) = $directory =~ m,([^/]*)$,;

		rmtree($directory);
		PostgreSQL::Test::RecursiveCopy::copypath("$frozen/$name", $directory);
		chmod(0700, $directory);
		return;
	}

	# event: both put back, copied from a running server
	# (One of them alone: t/start/put_back.)
	mkdir($frozen);
	$node->start;
	all_come_back($node, 'before a snapshot');
	snapshot();
	$node->safe_psql('postgres', <<SQL);
DELETE FROM t WHERE k % 11 = 0;
INSERT INTO t SELECT i % 3000, i FROM generate_series(20000, 21000) i;
INSERT INTO o SELECT generate_series(10001, 11000);
SQL
	crash($node);
	put_back($_) foreach $pool, $node->data_dir;
	start_without_rebuilds($node);
	like(index_state($node, 'o_k'), qr/^invalid: \Q$apart\E/, 'snapshot of a running server: not trusted');
	invalid_then_back($node, $apart, 'snapshot of a running server');
	$node->stop;
	rebuild_on($node);

	$node->start;
	all_come_back($node, 'the origin after all');
	$node->stop;

	# ---- an incremental backup (17 and later), elsewhere and in the place of its origin ----
	# Its full one is from before indexes got other stubs, and came and went.
	sub incremental_backup
	{
		my $summed = new_server('summed', "wal_level = replica\nmax_wal_senders = 4\nsummarize_wal = on\nautovacuum = off\n");
		my $full;

		$summed->append_conf('pg_hba.conf', "local replication all trust\n");
		start_with_extension($summed, invalid_fixture());
		$summed->backup('full');
		$full = $summed->backup_dir . '/full/backup_manifest';
		$summed->safe_psql('postgres', $_) foreach (
			'INSERT INTO t SELECT i % 3000, -i FROM generate_series(1, 3000) i',
			'REINDEX INDEX t_k',
			'REINDEX INDEX CONCURRENTLY t_v',
			'DROP INDEX o_k',
			'TRUNCATE ex',
			'INSERT INTO ex SELECT generate_series(1, 900)',
			'VACUUM FULL o',
			'CREATE INDEX o_k ON o USING pmhash (k)',
			'DELETE FROM t WHERE k % 7 = 0',
			'VACUUM t');
		command_ok([ $summed->installed_command('pg_basebackup'), '-D', $summed->backup_dir . '/part',
				'-c', 'fast', '--no-sync', '--incremental', $full, '-d', $summed->connstr('postgres') ],
			'an incremental backup');
		$summed->safe_psql('postgres', 'INSERT INTO t SELECT 1, i FROM generate_series(1, 100) i');

		my $combined = PostgreSQL::Test::Cluster->new('combined');
		$combined->init_from_backup($summed, 'part', combine_with_prior => ['full']);
		start_without_rebuilds($combined);
		invalid_then_back($combined, 'it does not exist', 'incremental backup');
		$combined->stop;

		# the data directory is put back, the pool is the one of the origin's end
		$summed->stop;
		rmtree($summed->data_dir);
		$summed->command_ok([ 'pg_combinebackup', '-o', $summed->data_dir,
				map { $summed->backup_dir . "/$_" } ('full', 'part') ],
			'combined in the place of its origin');
		start_without_rebuilds($summed);
		invalid_then_back($summed, $apart, 'incremental backup, put back');
		crash_and_start($summed);
		all_come_back($summed, 'incremental backup, put back, crashed');
		$summed->stop;
		return;
	}

	incremental_backup() if $node->pg_version >= 17;

	# ---- a group that may read the data directory, in order to back it up (initdb -g) ----
	my $shared = PostgreSQL::Test::Cluster->new('shared');
	$shared->init(extra => ['--allow-group-access']);
	$shared->append_conf('postgresql.conf', "shared_preload_libraries = 'pmhash'\n");
	start_with_extension($shared, invalid_fixture());
	ok(check_mode_recursive($shared->data_dir, 0750, 0640), 'the group may read all of the data directory');
	$shared->restart;
	ok(check_mode_recursive($shared->data_dir, 0750, 0640), 'after a restart, too');
	is((stat(pool($shared)))[2] & 07777, 0700, 'and nothing of the pool');
	$shared->stop;
	ok(check_mode_recursive($shared->data_dir, 0750, 0640), 'and when it is down');
}

# ======== cold copies ========

# Copies of a server that was shut down, with its pool, that follow it and take over.
# They have files of indexes that are not logged, too, which no record keeps up to date.
{
	my $primary = new_primary('primary', "pmhash.wal = on\n");

	# o_k is not logged; nothing happens to u_k, which is.
	$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE o (k integer, n integer) WITH (autovacuum_enabled = off);
INSERT INTO o SELECT i % 500, i FROM generate_series(1, 5000) i;
CREATE INDEX o_k ON o USING pmhash (k) WITH (wal = off);
CREATE TABLE u (k integer);
INSERT INTO u SELECT i % 50 FROM generate_series(1, 500) i;
CREATE INDEX u_k ON u USING pmhash (k);
SQL
	$primary->stop;

	sub all_valid ($node, $name)
	{
		$node->poll_query_until('postgres', "SELECT bool_and(state = 'valid') FROM pmhash.indexes WHERE index IN ('o_k', 'u_k')")
		  or diag("$name: not all valid");
		foreach (['o', 'k', 'o_k'], ['u', 'k', 'u_k'])
		{
			same_answers($node, @$_, $name);
			is($node->safe_psql('postgres', "SELECT pmhash.check('$_->[2]')"), '', "$name: pmhash.check of $_->[2]");
		}
		return;
	}

	# Has it been built, or rebuilt, since then?
	sub is_made_anew ($node, $position, $index)
	{
		return logged_since($node, $position) =~ /index "$index"(?: of table "\w+")? has been (?:re)?built/;
	}

	my @copies = map { cold_copy($primary, $_) } qw(at_once restarted killed);

	# ---- one that is promoted before anyone has written ----

	my $alone = cold_copy($primary, 'alone');
	start_with($alone, "primary_conninfo = ''\n");
	$alone->poll_query_until('postgres', 'SELECT pg_is_in_recovery()') or die;
	$alone->promote;
	all_valid($alone, 'alone');
	# event: both put back, copied from a server that was shut down
	ok(!is_made_anew($alone, 0, 'u_k'), 'alone: u_k is what it was');
	# (whether others have written to what is not logged is not known)
	ok(is_made_anew($alone, 0, 'o_k'), 'alone: o_k is rebuilt');
	$alone->stop;

	# ---- others follow it while it goes on ----

	$primary->start;
	$_->start foreach @copies;
	$primary->safe_psql('postgres', $_)
	  foreach 'DELETE FROM o WHERE k < 100', 'VACUUM o', 'INSERT INTO o SELECT 1000 + i % 100, i FROM generate_series(1, 3000) i';
	foreach my $node (@copies)
	{
		caught_up($primary, $node);
		wait_for_state($node, 'u_k', qr/^valid$/, $node->name . ': u_k');
		like(standby_state($node, 'o_k'), qr/^absent/, $node->name . ': o_k is not used');
		# builders have looked at the stubs
		$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'pmhash worker'") or die;
	}
	$primary->stop;
	my ($at_once, $restarted, $killed) = @copies;
	# none looks again before the promotion
	restart_with($restarted, "pmhash.rebuild = off\n");
	crash_and_start($killed);
	foreach my $node (@copies)
	{
		my $name = $node->name;

		wait_for_state($node, 'u_k', qr/^valid$/, "$name: u_k, alone");
		$node->promote;
		reload_with($node, "pmhash.rebuild = on\n");
		all_valid($node, $name);
		ok(is_made_anew($node, 0, 'o_k'), "$name: what was not logged is rebuilt");
		ok(!is_made_anew($node, 0, 'u_k'), "$name: what was logged is not");
		$node->restart;
		all_valid($node, "$name, restarted");
		$node->stop;
	}
}

# ======== rewind ========

# pg_rewind: the old primary is taken back to where the promoted standby left
# it, and follows that one.  Its pool has entries of rows that it has lost, so
# none of its files may be believed again; a standby also removes them.
{
	my $apart = 'server and pool directory have not been together all the time since it was made';

	# A primary and its standby, called a pair; wal_log_hints since pg_rewind asks
	# for that or for checksums.
	my $first = new_server('first', "wal_level = replica\nmax_wal_senders = 4\nwal_log_hints = on\nwal_keep_size = 512MB\npmhash.wal = off\n");
	start_with_extension($first, invalid_fixture());
	my $second = new_standby($first, 'second');

	# Promote one server, let both go on apart: rows under the same TIDs.  Only the
	# old primary changes o, so that stub stays the same on both sides while the
	# new one rebuilds nothing.
	sub part ($old, $new)
	{
		$old->wait_for_catchup($new);
		rebuild_off($new);
		$new->promote;
		$old->safe_psql('postgres', <<SQL);
DELETE FROM t WHERE k % 5 = 0;
DELETE FROM o WHERE k % 5 = 0;
VACUUM t, o;
INSERT INTO t SELECT 20000 + i, i FROM generate_series(1, 3000) i;
INSERT INTO o SELECT 20000 + i FROM generate_series(1, 3000) i;
SQL
		$new->safe_psql('postgres', <<SQL);
DELETE FROM t WHERE k % 5 = 0;
VACUUM t;
INSERT INTO t SELECT 30000 + i, i FROM generate_series(1, 3000) i;
CHECKPOINT;
SQL
		return;
	}

	# ---- the old primary follows, then takes over ----
	part($first, $second);
	$first->stop;
	rewind($first, $second, 'shut down');
	all_rebuilt($second, 'the new primary');
	$first->enable_streaming($second);
	$first->set_standby_mode;
	# event: `pg_rewind`, the server then follows as a standby
	cmp_ok(scalar(index_files(pool($first))), '>', 3, 'the old primary has files');
	my $from = -s $first->logfile;
	start_without_rebuilds($first);
	$second->wait_for_catchup($first);
	is($first->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k > 20000'), '3000', 'it has the rows of the new primary');
	is($first->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k BETWEEN 20001 AND 30000'), '0', 'and none of its own');
	# event: standby
	is($first->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), 'absent: the index is not logged (storage parameter wal)', 'no index while it follows');
	# trouble: `pmhash index "..." cannot be used during recovery`
	fails_like($first, "SELECT pmhash.stats('t_k')", qr/pmhash index "t_k" cannot be used during recovery/, 'nor to be asked for');
	like(slurp_file($first->logfile, $from), qr/not trusted: the data directory has been restored from a backup, or rewound/,
		'its pool is not trusted');
	wait_for_files(pool($first), 0, 'a standby removes files that are not trusted');

	# event: promotion of a standby
	$second->stop;
	$first->promote;
	invalid_then_back($first, 'it does not exist', 'the rewound server, promoted');

	# ---- the same after kill -9 of the old primary; on its own timeline at once ----
	# The other one comes back as a standby of this first; it needs no pg_rewind.
	$second->enable_streaming($first);
	$second->set_standby_mode;
	rebuild_on($second);
	$second->start;
	part($first, $second);
	$first->safe_psql('postgres', 'INSERT INTO t SELECT 40000 + i, i FROM generate_series(1, 3000) i');
	crash($first);
	rewind($first, $second, 'killed');
	# event: `pg_rewind`, the server then runs alone
	rebuild_off($first);
	$first->append_conf('postgresql.conf', <<CONF);
restore_command = 'cp @{[ $second->data_dir ]}/pg_wal/%f %p'
recovery_target_timeline = latest
CONF
	$from = -s $first->logfile;
	$first->start;
	$first->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
	is($first->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k > 40000'), '0', 'killed: none of the rows that were lost');
	like(slurp_file($first->logfile, $from), qr/not trusted: the data directory has been restored from a backup, or rewound/, 'killed, runs alone: its pool is not trusted');
	# the cleaner of the other one may have marked its stub, which has come with the blocks
	like(index_state($first, 'o_k'), qr/^invalid: (\Q$apart\E|it does not exist)$/, 'killed, runs alone: file of an index that only one side has used');
	invalid_then_back($first, 'it does not exist', 'killed, runs alone');
	crash_and_start($first);
	all_come_back($first, 'killed, runs alone, killed again');
	$first->stop;
	all_rebuilt($second, 'the other one after all');
	$second->stop;
}

done_testing();
