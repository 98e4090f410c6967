# Starts after pg_resetwal, and of a cluster with another identifier.

use v5.36;

use Fcntl qw(:flock);
use File::Copy;
use File::Path qw(rmtree);
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::RecursiveCopy;

# ======== reset wal ========

# What the server does without the pool knowing of it: WAL that is thrown away,
# pg_control put back from before, runs without the library that no postmaster makes.  Rows that were in the index get lost, and others take
# their places: no index may be taken for up to date then.
{
	my $apart = 'server and pool directory have not been together all the time since it was made';
	my $node = new_server('reset', <<CONF);
wal_writer_delay = 10s
wal_writer_flush_after = 0
checkpoint_timeout = 1h
fsync = on
CONF
	my $data = $node->data_dir;
	my $pg_control = "$data/global/pg_control";

	start_with_extension($node);
	rebuild_off($node);

	# A table with 100 rows, and 20 more that will be lost; a crash.  'also': SQL whose
	# WAL is flushed, after the checkpoint.
	sub crash_with_rows ($table, $also = undef)
	{
		my $session;

		$node->safe_psql('postgres', <<SQL);
CREATE TABLE $table (k int4, v text);
CREATE INDEX ${table}_k ON $table USING pmhash (k);
INSERT INTO $table SELECT g, 'keep' FROM generate_series(1, 100) g;
CHECKPOINT;
SQL
		copy($pg_control, "$pg_control.before") or die $!;
		$node->safe_psql('postgres', $also) if defined $also;
		$session = $node->background_psql('postgres', on_error_stop => 0);
		hold_wal_writer($node);
		$session->query_safe("BEGIN; INSERT INTO $table SELECT g, 'lost' FROM generate_series(1001, 1015) g");
		crash($node);
		eval { $session->quit };
		return;
	}

	sub not_trusted ($table, $name, $reason = undef)
	{
		$node->start;
		is(index_state($node, "${table}_k"), 'invalid: ' . ($reason // $apart), "$name: invalid");
		return right($table, $name);
	}

	# After 20 more rows the index gives what the table has, used or not.
	sub right ($table, $name)
	{
		$node->safe_psql('postgres', "INSERT INTO $table SELECT g, 'other' FROM generate_series(5001, 5015) g");
		is($node->safe_psql('postgres', <<SQL), '0', "$name: keys found that are not there");
SET enable_seqscan = off; SET enable_bitmapscan = off;
SELECT count(*) FROM generate_series(1001, 1015) g
WHERE EXISTS (SELECT FROM $table t WHERE t.k = g OFFSET 0) AND g NOT IN (SELECT k + 0 FROM $table)
SQL
		$node->safe_psql('postgres', "REINDEX INDEX ${table}_k");
		return;
	}

	sub reset_wal
	{
		unlink("$data/postmaster.pid");
		command_ok([ 'pg_resetwal', '-f', $data ], 'pg_resetwal');
		return;
	}

	# A start without the library that no postmaster makes, ended in order or killed.
	sub single_user ($how)
	{
		my $input = "CREATE TABLE without_$how (k int4)\nINSERT INTO without_$how SELECT generate_series(1, 1000)\nCHECKPOINT\n"
		  . "INSERT INTO without_$how SELECT generate_series(1, 1000)\n";
		my $output = '';
		my $timer = IPC::Run::timer(60);
		my $single = IPC::Run::start([ 'postgres', '--single', '-c', 'shared_preload_libraries=', '-D', $data, 'postgres' ],
			'<', \$input, '>&', \$output, $timer);

		unlink("$data/postmaster.pid");
		$single->pump until ($output =~ s/backend>/backend>/g) > 4 || $timer->is_expired;
		$single->signal('KILL') if $how eq 'killed';
		eval { $single->finish };
		unlink("$data/postmaster.pid");
		return;
	}

	# ---- nothing of the kind: kept ----
	crash_with_rows('t0');
	$node->start;
	is(index_state($node, 't0_k'), 'valid', 'only a crash: valid');
	right('t0', 'only a crash');

	# event: `pg_resetwal` after a crash
	crash_with_rows('t1');
	reset_wal();
	# trust: shut-down
	not_trusted('t1', 'pg_resetwal');
	like(slurp_file($node->logfile), qr/not trusted: the server was shut down without the pool, or its WAL was reset/,
		'pg_resetwal: the log says so');

	# event: `pg_wal` is emptied, then `pg_resetwal`
	crash_with_rows('t3');
	unlink(glob "$data/pg_wal/0*");
	reset_wal();
	not_trusted('t3', 'pg_wal emptied');

	# after a clean shutdown nothing is lost by it, but that cannot be known
	$node->stop;
	reset_wal();
	not_trusted('t0', 'pg_resetwal after a clean shutdown');

	# event: `pg_control` is put back from before
	# the older checkpoint is of the same run: more is replayed, to the same end
	crash_with_rows('t4');
	copy("$pg_control.before", $pg_control) or die $!;
	$node->start;
	is(index_state($node, 't4_k'), 'valid', 'older pg_control: valid');
	right('t4', 'older pg_control');
	copy($pg_control, "$pg_control.before") or die $!;
	$node->stop;
	copy($pg_control, "$pg_control.ended") or die $!;
	copy("$pg_control.before", $pg_control) or die $!;
	not_trusted('t4', 'pg_control from before a clean shutdown');

	# event: killed, then started in single-user mode without the library
	foreach my $how ('ended', 'killed')
	{
		crash_with_rows("t5$how");
		single_user($how);
		# trust: life-mark
		not_trusted("t5$how", "single-user mode, $how");
		is($node->safe_psql('postgres', "SELECT count(*) FROM without_$how"), '2000', "single-user mode, $how: it has run");
	}

	# a start of ours has died between
	crash_with_rows('t6');
	die_in_start($node);
	reset_wal();
	not_trusted('t6', 'a start died, pg_resetwal', 'a start of the server went down before it used the pool');

	crash_with_rows('t11', 'CHECKPOINT');
	copy("$pg_control.before", "$pg_control.life") or die $!;
	$node->start;
	crash_with_rows('t12');
	copy("$pg_control.life", $pg_control) or die $!;
	# more is replayed, to the same end
	$node->start;
	is(index_state($node, 't12_k'), 'valid', 'pg_control of an earlier run: valid');
	right('t12', 'pg_control of an earlier run');
	$node->stop;
}

# ======== other identifier ========

# The pool's control file has another system identifier than the server: the server has
# got another one, or the pool is what a cluster that was in its place has left.
{
	my $taken_over = 'of another cluster is used by this one from now on';
	my ($has_tool) = eval { run_command([ 'pg_createsubscriber', '--version' ]) };

	# What pg_createsubscriber does: another system identifier in pg_control, and WAL of that.
	sub change_identifier ($node)
	{
		my $file = $node->data_dir . '/global/pg_control';
		my $control = slurp_file($file);
		my ($crc_at) = grep { PmhashInvalid::crc32c(substr($control, 0, $_)) == unpack('V', substr($control, $_, 4)) }
		  map { $_ * 4 } 50 .. 100;

		die 'no CRC in pg_control' if !$crc_at;
		substr($control, 0, 8) = pack('Q<', unpack('Q<', $control) + 12345);
		substr($control, $crc_at, 4) = pack('V', PmhashInvalid::crc32c(substr($control, 0, $crc_at)));
		patch_file($file, 0, $control);
		return command_ok([ 'pg_resetwal', '-f', $node->data_dir ], 'pg_resetwal');
	}

	# ---- the server has got another identifier ----
	my $node = new_server('identifier');
	start_with_extension($node, invalid_fixture());
	$node->stop;
	change_identifier($node);
	my $from = -s $node->logfile;
	start_without_rebuilds($node);
	# trust: identifier
	stays_invalid($node, 'it belongs to another cluster', 'another identifier');
	like(logged_since($node, $from), qr/not trusted: the server has got another system identifier/, 'another identifier: the log says so');
	all_rebuilt($node, 'another identifier');
	$node->restart;
	is(index_state($node, 't_k'), 'valid', 'another identifier: as ever from then on');

	# the same with a pool that the setting names
	my $elsewhere = $node->basedir . '/elsewhere';
	$node->stop;
	rename(pool($node), $elsewhere) or die $!;
	$node->append_conf('postgresql.conf', "pmhash.directory = '$elsewhere'");
	change_identifier($node);
	$node->start;
	all_come_back($node, 'another identifier, pmhash.directory is set');
	$node->stop;
	rename($elsewhere, pool($node)) or die $!;
	$node->append_conf('postgresql.conf', "pmhash.directory = ''");

	# ---- another cluster is made in the same place ----
	# event: another cluster is created, or restored, in the place of an old one whose pool directory is still there (`rm -rf`, `initdb`; `pg_dropcluster`, `pg_createcluster`; a second try of `pg_upgrade`)
	$node->start;
	$node->safe_psql('postgres', 'CREATE DATABASE gone');
	install_extension($node, 'gone', 'CREATE TABLE t (k int4); CREATE INDEX t_k ON t USING pmhash (k)');
	my $gone = pool($node) . '/' . $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'gone'");
	my @before = index_files(pool($node));
	$node->stop;
	my $data = $node->data_dir;

	# Data directories are moved; the pool stays where it is.
	sub new_cluster
	{
		rename($data, "$data.old") or die $!;
		system_or_bail('initdb', '-D', $data, '-A', 'trust', '-N');
		copy("$data.old/$_", "$data/$_") or die $! foreach ('postgresql.conf', 'pg_hba.conf');
		return;
	}
	new_cluster();

	# not while a server has it locked
	open(my $lock, '+<', pool($node) . '/lock') or die $!;
	flock($lock, LOCK_EX | LOCK_NB) or die $!;
	$from = -s $node->logfile;
	$node->start;
	like(logged_since($node, $from), qr/pmhash is disabled: directory .* is in use by another server/, 'a server has it locked: disabled');
	is(join(' ', index_files(pool($node))), "@before", 'a server has it locked: nothing is touched');
	$node->stop;
	close($lock);

	# nor if the setting names it
	$from = -s $node->logfile;
	start_with($node, "pmhash.directory = '" . pool($node) . "'");
	like(logged_since($node, $from), qr/pmhash is disabled: directory .* belongs to another cluster/, 'the setting names it: disabled');
	is(join(' ', index_files(pool($node))), "@before", 'the setting names it: nothing is touched');
	$node->stop;
	$node->append_conf('postgresql.conf', "pmhash.directory = ''");

	$from = -s $node->logfile;
	$node->start;
	like(logged_since($node, $from), qr/$taken_over/, 'a new cluster: the log says so');
	install_extension($node);
	$node->safe_psql('postgres', invalid_fixture());
	all_come_back($node, 'a new cluster');
	wait_for_files(pool($node), 4, 'a new cluster: nothing is left of the old one');
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_ls_dir('" . pool($node) . "') f WHERE f = '" . ($gone =~ s,.*/,,r) . "'")
	  or die 'the directory of a database of the old cluster is still there';
	$from = -s $node->logfile;
	$node->restart;
	unlike(logged_since($node, $from), qr/$taken_over/, 'a new cluster: its own from then on');
	is(index_state($node, 't_k'), 'valid', 'a new cluster, started again: valid');

	# the one that was moved away comes back: it has lost nothing but its index files
	$node->stop;
	rename($data, "$data.new") or die $!;
	rename("$data.old", $data) or die $!;
	rebuild_off($node);
	$from = -s $node->logfile;
	$node->start;
	like(logged_since($node, $from), qr/$taken_over/, 'the old cluster is back: the log says so');
	invalid_then_back($node, 'it does not exist', 'the old cluster is back');

	# killed, and not shut down
	crash($node);
	rmtree("$data.old");
	new_cluster();
	$from = -s $node->logfile;
	$node->start;
	like(logged_since($node, $from), qr/$taken_over/, 'the old cluster was killed: the log says so');
	install_extension($node);
	$node->safe_psql('postgres', invalid_fixture());
	all_come_back($node, 'the old cluster was killed');
	$node->stop;

	# ---- a standby ----
	my $primary = new_primary('identifier_primary', $has_tool ? "wal_level = logical\nmax_replication_slots = 10\n" : '');
	$primary->safe_psql('postgres', 'CREATE TABLE ex (k int4 PRIMARY KEY, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =)); INSERT INTO ex VALUES (1)');
	my $standby = new_standby($primary, 'identifier_standby');
	$standby->stop;
	rmtree(pool($standby));
	PostgreSQL::Test::RecursiveCopy::copypath(pool($node), pool($standby));
	my @foreign = index_files(pool($standby));
	$from = -s $standby->logfile;
	$standby->start;
	like(logged_since($standby, $from), qr/$taken_over/, 'a standby: the log says so');
	wait_for_state($standby, 't_k', qr/^valid$/, 'a standby: builds its files');
	$standby->poll_query_until('postgres', "SELECT count(*) = 0 FROM unnest('{" . join(',', @foreign) . "}'::text[]) f WHERE (pg_stat_file(f, true)).size IS NOT NULL")
	  or die 'files of another cluster are still there';

	# event: `pg_createsubscriber`
	if ($has_tool)
	{
		$standby->stop;
		command_ok([ 'pg_createsubscriber', '-D', $standby->data_dir, '-P', $primary->connstr('postgres'),
				'-s', $standby->host, '-p', $standby->port, '-d', 'postgres' ], 'pg_createsubscriber');
	}
	else
	{
		$standby->promote;
		$standby->stop;
		change_identifier($standby);
	}
	$from = -s $standby->logfile;
	$standby->start;
	unlike(logged_since($standby, $from), qr/pmhash is disabled/, 'pg_createsubscriber: not disabled');
	wait_for_state($standby, $_, qr/^valid$/, "pg_createsubscriber: $_ comes back") foreach ('t_k', 't_s', 'ex_k');
	compare_in_snapshot($standby, 'pg_createsubscriber: answers');
	if ($has_tool)
	{
		$primary->safe_psql('postgres', 'INSERT INTO ex VALUES (2)');
		ok($standby->poll_query_until('postgres', 'SELECT count(*) = 2 FROM ex'), 'pg_createsubscriber: the subscription applies rows');
	}
	$standby->stop;
	$primary->stop;
}

done_testing();
