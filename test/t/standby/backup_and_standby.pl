# Data directories that come to life elsewhere: base backup without and with a
# copy of the pool, point-in-time recovery, snapshots of a running server, a
# promoted standby.  Each server starts, answers at once, rebuilds its indexes by
# itself and loses no row that was written meanwhile.

use strict;
use warnings;

use File::Path qw(rmtree);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('origin', "wal_level = replica\nmax_wal_senders = 4\npmhash.wal = off\n");
my $pool = pool($node);
my $apart = 'server and pool directory have not been together all the time since it was made';

$node->enable_archiving;
$node->start;
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());
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
$node->poll_query_until('postgres', "SELECT last_archived_wal >= '$last' FROM pg_stat_archiver")
  or die 'WAL is not archived';

# event: base backup without the pool
# ---- base backup, no pool ----
my $bare = PostgreSQL::Test::Cluster->new('bare');
$bare->init_from_backup($node, 'base');
$bare->append_conf('postgresql.conf', 'archive_mode = off');
rebuild_off($bare);
$bare->start;
stays_invalid($bare, 'it does not exist', 'backup without the pool');
rebuild_on($bare);
all_come_back($bare, 'backup without the pool');
$bare->stop;

# event: base backup with a copy of the pool
# ---- the same with a copy of the pool from another moment ----
my $with = PostgreSQL::Test::Cluster->new('with_pool');
$with->init_from_backup($node, 'base');
PostgreSQL::Test::RecursiveCopy::copypath($copied_pool, pool($with));
$with->append_conf('postgresql.conf', 'archive_mode = off');
rebuild_off($with);
$with->start;
# trust: signal
stays_invalid($with, $apart, 'backup with a copied pool');
rebuild_on($with);
all_come_back($with, 'backup with a copied pool');
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
rebuild_off($pitr);
$pitr->start;
$pitr->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
is($pitr->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 5000'), '1', 'recovered to the point');
is($pitr->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 1'), '0', 'and not beyond');
stays_invalid($pitr, $apart, 'point-in-time recovery');
rebuild_on($pitr);
all_come_back($pitr, 'point-in-time recovery');
crash($pitr);
$pitr->start;
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

sub put_back
{
	my ($directory) = @_;
	my ($name) = $directory =~ m,([^/]*)$,;

	rmtree($directory);
	PostgreSQL::Test::RecursiveCopy::copypath("$frozen/$name", $directory);
	chmod(0700, $directory);
	return;
}

sub more_rows
{
	$node->safe_psql('postgres', <<SQL);
DELETE FROM t WHERE k % 11 = 0;
INSERT INTO t SELECT i % 3000, i FROM generate_series(20000, 21000) i;
INSERT INTO o SELECT generate_series(10001, 11000);
SQL
	return;
}

# event: both put back, copied from a running server
mkdir($frozen);
my %piece = (
	'pool' => [$pool],
	'data directory' => [ $node->data_dir ],
	'both' => [ $pool, $node->data_dir ]);
foreach my $name (sort keys %piece)
{
	rebuild_on($node);
	$node->start;
	all_come_back($node, "before a snapshot, $name");
	snapshot();
	more_rows();
	# of a data directory alone two cases: rows that the journal remembers, and
	# WAL that was flushed and has not been replayed
	$node->safe_psql('postgres', 'VACUUM t, o') if $name ne 'both';
	crash($node);
	put_back($_) foreach @{ $piece{$name} };
	rebuild_off($node);
	$node->start;
	like(index_state($node, 'o_k'), qr/^invalid: \Q$apart\E/, "snapshot of a running server, $name: not trusted");
	stays_invalid($node, $apart, "snapshot of a running server, $name");
	rebuild_on($node);
	all_come_back($node, "snapshot of a running server, $name");
	$node->stop;
}
rebuild_on($node);

# entries that the journal remembers are taken out: the data directory is as
# after a crash at the moment of the snapshot
$node->append_conf('postgresql.conf', "pmhash.cleaner_naptime = 600\nwal_writer_delay = 10s");
$node->start;
all_come_back($node, 'before a snapshot, rows alone');
snapshot();
$node->safe_psql('postgres', 'INSERT INTO o SELECT generate_series(12001, 12100)');
crash($node);
put_back($node->data_dir);
my $from = -s $node->logfile;
rebuild_off($node);
$node->start;
ok($node->wait_for_log(qr/undo journal: .* [1-9]\d\d+ entries taken out|not trusted: (WAL that had been flushed was not replayed|.*the data directory is a copy)/, $from),
	'snapshot of the data directory of a running server, rows alone: entries taken out, or not trusted');
rebuild_on($node);
all_come_back($node, 'snapshot of the data directory of a running server, rows alone');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM o WHERE k BETWEEN 12001 AND 12100'), '0',
	'rows of the time after the snapshot');
$node->stop;

# event: standby
# ---- a standby: hidden during recovery, rebuilt when promoted ----
$node->start;
all_come_back($node, 'the origin');
$node->backup('later');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'later', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', 'INSERT INTO t SELECT 6000, i FROM generate_series(1, 100) i; VACUUM t; REINDEX INDEX t_v');
$node->wait_for_catchup($standby);
my $reader = $standby->background_psql('postgres');
is($reader->query_safe('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 6000'), '100',
	'standby answers');
is($standby->safe_psql('postgres', "SELECT DISTINCT state FROM pmhash_indexes"), 'absent: the index is not logged (storage parameter wal)',
	'its view');
rebuild_off($standby);
$standby->promote;
is($reader->query_safe('SELECT count(*) FROM t WHERE k = 6000'), '100',
	'a session that has lived through the promotion');
stays_invalid($standby, 'it does not exist', 'promoted standby');
rebuild_on($standby);
all_come_back($standby, 'promoted standby');
is($reader->query_safe('SELECT count(*) FROM t WHERE k = 6000'),
	$standby->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE k = 6000'),
	'the same session afterwards');
$reader->quit;
$standby->restart;
all_come_back($standby, 'promoted standby, restarted');
$standby->stop;

all_come_back($node, 'the origin after all');
$node->stop;

# ---- an incremental backup (17 and later), elsewhere and in the place of its origin ----
# Its full one is from before indexes got other stubs, and came and went.
sub incremental_backup
{
	my $summed = new_server('summed', "wal_level = replica\nmax_wal_senders = 4\nsummarize_wal = on\nautovacuum = off\n");
	my $full;

	$summed->append_conf('pg_hba.conf', "local replication all trust\n");
	$summed->start;
	install_extension($summed);
	$summed->safe_psql('postgres', invalid_fixture());
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
	rebuild_off($combined);
	$combined->start;
	stays_invalid($combined, 'it does not exist', 'incremental backup');
	rebuild_on($combined);
	all_come_back($combined, 'incremental backup');
	$combined->stop;

	# the data directory is put back, the pool is the one of the origin's end
	$summed->stop;
	rmtree($summed->data_dir);
	$summed->command_ok([ 'pg_combinebackup', '-o', $summed->data_dir,
			map { $summed->backup_dir . "/$_" } ('full', 'part') ],
		'combined in the place of its origin');
	rebuild_off($summed);
	$summed->start;
	stays_invalid($summed, $apart, 'incremental backup, put back');
	rebuild_on($summed);
	all_come_back($summed, 'incremental backup, put back');
	crash($summed);
	$summed->start;
	all_come_back($summed, 'incremental backup, put back, crashed');
	$summed->stop;
	return;
}

incremental_backup() if $node->pg_version >= 17;

# ---- a group that may read the data directory, in order to back it up (initdb -g) ----
my $shared = PostgreSQL::Test::Cluster->new('shared');
$shared->init(extra => ['--allow-group-access']);
$shared->append_conf('postgresql.conf', "shared_preload_libraries = 'pmhash'\n");
$shared->start;
install_extension($shared);
$shared->safe_psql('postgres', invalid_fixture());
ok(check_mode_recursive($shared->data_dir, 0750, 0640), 'the group may read all of the data directory');
$shared->restart;
ok(check_mode_recursive($shared->data_dir, 0750, 0640), 'after a restart, too');
is((stat(pool($shared)))[2] & 07777, 0700, 'and nothing of the pool');
$shared->stop;
ok(check_mode_recursive($shared->data_dir, 0750, 0640), 'and when it is down');
done_testing();
