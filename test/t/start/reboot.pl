# What a start trusts: after a reboot, a lost page cache, and in general.

use v5.36;

use File::Copy;
use PmhashInvalid;
use PmhashTest;

# ======== reboot ========

# The machine was booted again: what that means for files in the page cache
# (class cache) and for persistent memory (class dax), after a clean shutdown
# and after none.  A boot takes the marker from the lock file's inode, as the test does;
# what is in the page cache survives here, so the decision is tested and not the loss.
{
	my $apart = 'server and pool directory have not been together all the time since it was made';
	my $power = 'it was not written back, and what was in the page cache may be lost';

	# Rows that are lost with a crash: WAL that was not flushed.  Their entries
	# are in the index file by then.
	sub lose_rows ($node)
	{
		my $session = $node->background_psql('postgres', on_error_stop => 0);

		hold_wal_writer($node);
		$session->query_safe('BEGIN; INSERT INTO t SELECT 77777, i FROM generate_series(1, 50) i');
		crash($node);
		eval { $session->quit };
		return;
	}

	sub classes ($node)
	{
		return $node->safe_psql('postgres', 'SELECT string_agg(DISTINCT durability, $$,$$) FROM pmhash.indexes');
	}

	# the WAL of rows that are to be lost is not flushed
	my $settings = "wal_writer_delay = 10s\nwal_writer_flush_after = 0\npmhash.cleaner_naptime = 600\n";

	# ---- class cache ----
	my $cache = new_server('cache', $settings);
	my $pool = pool($cache);
	start_with_extension($cache, invalid_fixture());
	is(classes($cache), 'cache', 'class');

	# event: clean shutdown, reboot, start
	# event: clean shutdown, the pool's file system is unmounted and mounted again
	change_rows($cache);
	my $files = join(' ', index_files($pool));
	$cache->stop;
	pretend_reboot($pool);
	start_without_rebuilds($cache);
	is($cache->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), 'valid', 'cache, clean shutdown: valid');
	is(join(' ', index_files($pool)), $files, 'cache, clean shutdown: the same files');
	all_come_back($cache, 'cache, clean shutdown');

	# event: power failure, crash or reset of the operating system
	# event: killed, and the pool's file system is unmounted and mounted again, or shut down by the kernel, before the start
	change_rows($cache);
	lose_rows($cache);
	pretend_reboot($pool);
	my $from = -s $cache->logfile;
	$cache->start;
	# trouble: LOG: `pmhash: the operating system went down, or the file system of the pool was unmounted, without a clean shutdown of the server`
	like(slurp_file($cache->logfile, $from), qr/the operating system went down, or the file system of the pool was unmounted, without a clean shutdown/, 'cache, unclean: log');
	# trust: eras
	invalid_then_back($cache, $power, 'cache, unclean');
	change_rows($cache);
	crash_and_start($cache);
	all_come_back($cache, 'cache, unclean, then a crash');

	# an immediate shutdown is no clean one
	change_rows($cache);
	$cache->stop('immediate');
	pretend_reboot($pool);
	start_without_rebuilds($cache);
	# trust: witness
	invalid_then_back($cache, $power, 'cache, immediate shutdown');

	# Killed, started without the library and shut down in order.  The rows that the crash has
	# lost are not in the table any more, but what that start has replayed is not known.
	# event: killed, then started without the library, then with it
	rebuild_off($cache);
	change_rows($cache);
	lose_rows($cache);
	$cache->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	$cache->start;
	$cache->safe_psql('postgres', 'CREATE TABLE meanwhile AS SELECT generate_series(1, 1000) AS i');
	$cache->stop;
	$cache->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");
	$cache->start;
	is($cache->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), "invalid: $apart",
		'killed, a start without the library: not trusted');
	is($cache->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 77777'), '0',
		'killed, a start without the library: no lost row');
	all_rebuilt($cache, 'killed, a start without the library');

	# Two boots, the second start before anything was rebuilt.  The process that finds the
	# index invalid marks it with the reason; of an index that no session has met it is that of
	# the last start.
	change_rows($cache);
	crash($cache);
	pretend_reboot($pool);
	start_without_rebuilds($cache);
	$cache->safe_psql('postgres', 'INSERT INTO t VALUES (1, 1)');
	crash($cache);
	pretend_reboot($pool);
	$cache->start;
	stays_invalid($cache, 'it was not written back, and what was in the page cache may be lost', 'cache, unclean twice');
	is(index_state($cache, 'o_k'), "invalid: $power", 'cache, unclean twice, not met in between');
	all_rebuilt($cache, 'cache, unclean twice');
	$cache->stop;

	# ---- class dax: we are made to believe in persistent memory ----
	my $shim = preloadable('map_sync');
	my %believe = (LD_PRELOAD => $shim);
	my $dax = new_server('dax', $settings);
	$pool = pool($dax);

	# Start it on a machine with persistent memory, or on one without.
	sub start_dax ($with)
	{
		local %ENV = $with ? (%ENV, %believe) : %ENV;

		$dax->start;
		return;
	}

	start_dax(1);
	install_extension($dax);
	$dax->safe_psql('postgres', invalid_fixture());
	is(classes($dax), 'dax', 'class');
	rebuild_off($dax);

	change_rows($dax);
	$dax->stop;
	pretend_reboot($pool);
	start_dax(1);
	is($dax->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), 'valid', 'dax, clean shutdown: valid');
	all_come_back($dax, 'dax, clean shutdown');

	change_rows($dax);
	$files = join(' ', index_files($pool));
	lose_rows($dax);
	pretend_reboot($pool);
	$from = -s $dax->logfile;
	start_dax(1);
	is($dax->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), 'valid', 'dax, unclean: valid');
	is(join(' ', index_files($pool)), $files, 'dax, unclean: the same files');
	like(slurp_file($dax->logfile, $from), qr/undo journal: \d+ records, .* [1-9]\d* entries taken out/,
		'dax, unclean: entries of lost rows are taken out');
	all_come_back($dax, 'dax, unclean');
	is($dax->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 77777'), '0',
		'dax, unclean: no lost row');
	$dax->stop;

	# The same files on a machine that takes them for page cache: they have been
	# through a reboot, and what the mapping says today counts.
	start_dax(0);
	invalid_then_back($dax, $power, 'once dax, now cache');
	is(classes($dax), 'cache', 'class');

	# And the other way: what was in page cache when the power went is not trusted
	# on persistent memory either.
	change_rows($dax);
	crash($dax);
	pretend_reboot($pool);
	rebuild_off($dax);
	start_dax(1);
	invalid_then_back($dax, $power, 'once cache, now dax');
	is(classes($dax), 'dax', 'class');
	$dax->stop;
}

# ======== page cache ========

# Is what the last run has stored still in the page cache?  The id of the boot does not
# tell: the file system may have been unmounted in between, or lost its device, or been
# put back as a snapshot; and a container may get another id with each start.  What tells is
# a hint in the lock file's inode, which only the kernel's memory has.
# (test/lib/fs_shutdown.sh, for root, does it in earnest.)
{
	my $node = new_server('cache2', "wal_writer_delay = 10s\nwal_writer_flush_after = 0\n");
	my $pool = pool($node);

	start_with_extension($node, invalid_fixture());
	rebuild_off($node);

	sub change ($n)
	{
		$node->safe_psql('postgres', "INSERT INTO t SELECT i % 3000, i FROM generate_series($n, $n + 500) i");
		return;
	}

	sub states
	{
		return $node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes');
	}

	sub back_again ($name)
	{
		all_rebuilt($node, $name);
		rebuild_off($node);
		return;
	}

	# event: the lock file is replaced after a crash
	change(40_000);
	crash($node);
	copy("$pool/lock", "$pool/lock.copy") or die $!;
	rename("$pool/lock.copy", "$pool/lock") or die $!;
	$node->start;
	# trust: lock-identity
	like(states(), qr/^invalid/, 'the lock file is a copy: invalid');
	back_again('the lock file is a copy');

	# event: a crash, and the next start is killed before it has used pmhash (during recovery, for instance)
	# ---- a start that dies before it is done vouches for nothing ----
	change(50_000);
	crash($node);
	pretend_reboot($pool);
	die_in_start($node);
	$node->start;
	# trust: used
	stays_invalid($node, 'a start of the server went down before it used the pool', 'unmounted, a start died');
	back_again('unmounted, a start died');

	# event: killed, and the container is started again with a boot id of its own
	{
		local $ENV{LD_PRELOAD} = preloadable('other_boot_id');

		$node->restart;
		change(60_000);
		crash($node);
		unlike(log_of_start($node), qr/not trusted|went down/, 'another boot id: log');
		is(states(), 'valid', 'another boot id: kept');
		back_again('another boot id');
	}
	$node->stop;
}

# ======== trust facts ========

# Facts of the control file and of the journal, each made false by itself, that
# no other test has alone (test/TRUST.md).
{
	my $apart = 'server and pool directory have not been together all the time since it was made';
	my $node = new_server('facts');
	my $pool = pool($node);
	my $pg_control = $node->data_dir . '/global/pg_control';

	start_with_extension($node, invalid_fixture());

	# The server is down, and something has been changed: it says so, and is right.
	sub doubted ($log, $name)
	{
		my $from = -s $node->logfile;

		start_without_rebuilds($node);
		$node->wait_for_log(qr/are not trusted: $log/, $from);
		invalid_then_back($node, $apart, $name);
		return;
	}

	sub journal
	{
		return "$pool/journal";
	}

	# trust: flushed
	crash($node);
	patch_file(journal(), 24, pack('Q', 2**47));
	doubted('WAL that had been flushed was not replayed', 'flushed WAL is missing');

	# trust: clean-checkpoint
	# the token of the clean shutdown could not be written, so that of the run counts
	my $token = $node->data_dir . '/pmhash.nonce';
	unlink("$token.tmp");
	mkdir("$token.tmp") or die $!;
	$node->stop;
	rmdir("$token.tmp") or die $!;
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
	$node->start;
	$node->stop;
	is(system('pg_resetwal', '-f', $node->data_dir), 0, 'pg_resetwal');
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'pmhash'");
	doubted('the server has run without the pool since it was shut down', 'another shutdown');
	$node->stop;
}

done_testing();
