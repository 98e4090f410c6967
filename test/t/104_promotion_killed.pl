# A server is killed in each moment between the end of its replay as a standby and the
# first use of pmhash as a primary.  It goes on with the files that it had; not if it
# has replayed other WAL since, or has run without the library.
#
# The library is built with its stop points for this, as in 012_stop_points.pl.

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $primary = new_primary('primary', "autovacuum = off\n", install_path => install_with_stop_points());
my $n_standbys = 0;
$primary->backup('base');

# A standby with both files, after some changes, and its stop points.
sub standby_with_files
{
	my ($settings) = @_;
	my $node = PostgreSQL::Test::Cluster->new('standby' . ++$n_standbys,
		install_path => $primary->{_install_path});

	$node->init_from_backup($primary, 'base', has_streaming => 1);
	$node->append_conf('postgresql.conf', $settings) if defined $settings;
	mkdir $node->data_dir . '/stop_points' or die $!;
	$node->start;
	wait_for_state($node, $_, qr/^valid$/, $node->name . ": $_") foreach qw(t_k t_s);
	$primary->safe_psql('postgres', <<SQL);
INSERT INTO t SELECT i % 3000, 'more ' || i % 40, i FROM generate_series(1, 500) i;
UPDATE t SET k = k + 1 WHERE n % 17 = $n_standbys;
DELETE FROM t WHERE n % 29 = $n_standbys;
VACUUM t;
SQL
	caught_up($primary, $node);
	return $node;
}

# Promote it, and have a process held at that point.  A test.
sub promote_up_to
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $point) = @_;
	my $file = $node->data_dir . "/stop_points/$point";
	my $deadline = time + 60;

	append_to_file($file, '');
	kill('USR1', $node->{_pid}) if open(my $signal, '>', $node->data_dir . '/promote');
	usleep(5_000) until -e "$file.held" || time > $deadline;
	return ok(-e "$file.held", $node->name . ": held at $point");
}

sub kill_it
{
	my ($node) = @_;

	crash($node);
	unlink(glob($node->data_dir . '/stop_points/*'));
	return;
}

# Tests: both indexes are there at once, with the right answers, before and after
# changes, and nothing was built.
sub goes_on
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $name, $position) = @_;

	is($node->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 'f', "$name: a primary");
	like(plan_of($node, 'SELECT * FROM t WHERE k = 5', 'SET enable_seqscan = off;'), qr/t_k/,
		"$name: the index is used at once");
	compare_in_snapshot($node, "$name: answers");
	$node->safe_psql('postgres', <<'SQL');
DELETE FROM t WHERE k BETWEEN 100 AND 120;
VACUUM (INDEX_CLEANUP ON) t;
INSERT INTO t SELECT 7000 + i % 30, 'reused', i FROM generate_series(1, 300) i;
SQL
	compare_in_snapshot($node, "$name: answers after changes");
	no_findings($node, "$name: pmhash_check");
	unlike(logged_since($node, $position), qr/has been rebuilt|could not rebuild|not trusted|has been built|is given up/, "$name: nothing is built");
	return;
}

# Tests: the files are not trusted, and the answers are right.
sub builds_anew
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $name, $position, $why) = @_;

	like(logged_since($node, $position), $why, "$name: it says why");
	both_valid($node, $name);
	like(logged_since($node, $position), qr/has been rebuilt/, "$name: rebuilt");
	compare_in_snapshot($node, "$name: answers");
	no_findings($node, "$name: pmhash_check");
	return;
}

# ---- killed at each point ----

# promoted_before_use: nothing has been done.  promoted_before_role: what is not LIVE
# has been removed.  With other rows on the new timeline, whose transactions are over
# or not: none of a table with such an index can be.
foreach my $point (qw(promoted_before_use promoted_before_role))
{
	my $node = standby_with_files();
	my $position = log_position($node);

	# what no place is of must not come back with the promotion
	append_to_file(pool($node) . '/' . (split m,/,, (index_files(pool($node)))[0])[-2] . '/00000000000000aa.delta', 'x');
	promote_up_to($node, $point);
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	$node->safe_psql('postgres', 'CREATE TABLE other AS SELECT i FROM generate_series(1, 1000) i');
	kill_it($node);
	$node->start;
	goes_on($node, "killed, $point", $position);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM other'), '1000', "killed, $point: what was committed is there");
	crash($node);
	$node->start;
	goes_on($node, "killed, $point, and as a primary", $position);
	is(scalar(glob(pool($node) . '/*/*.delta')), undef, "killed, $point: what is no index file has gone");
	$node->stop;
}

# ---- killed when its own first checkpoint is complete ----

{
	# trust: promoted-own
	my $node = standby_with_files();
	my $position = log_position($node);

	promote_up_to($node, 'promoted_before_use');
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	$node->safe_psql('postgres', 'CREATE TABLE other AS SELECT i FROM generate_series(1, 1000) i');
	$node->safe_psql('postgres', 'CHECKPOINT') foreach 1 .. 2;
	$node->safe_psql('postgres', 'INSERT INTO other VALUES (0)');
	kill_it($node);
	$node->start;
	goes_on($node, 'killed after a checkpoint', $position);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM other'), '1001', 'killed after a checkpoint: rows');
	$node->stop;
}

# ---- killed after a checkpoint that comes after much WAL ----

# To look through all of it would keep the server from starting.
{
	# trust: promoted-much
	my $node = standby_with_files();
	my $position = log_position($node);

	promote_up_to($node, 'promoted_before_use');
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	$node->safe_psql('postgres', 'CREATE TABLE other AS SELECT i FROM generate_series(1, 1000) i');
	$node->safe_psql('postgres', q(SELECT pg_logical_emit_message(false, 'much', 'WAL'); SELECT pg_switch_wal())) foreach 1 .. 5;
	$node->safe_psql('postgres', 'CHECKPOINT') foreach 1 .. 2;
	kill_it($node);
	$node->start;
	builds_anew($node, 'killed after much WAL', $position, qr/has written much WAL since it was promoted/);
	$node->stop;
}

# ---- killed again, while it replays and when that is over ----

{
	my $node = standby_with_files();
	my $position = log_position($node);

	promote_up_to($node, 'promoted_before_use');
	kill_it($node);
	foreach my $point (qw(begin_of_replay end_of_replay begin_of_replay))
	{
		my $file = $node->data_dir . "/stop_points/$point";
		my $deadline = time + 60;

		append_to_file($file, '');
		system_log($node->installed_command('pg_ctl'), '-W', '-D', $node->data_dir, '-l', $node->logfile, 'start');
		usleep(5_000) until -e "$file.held" || time > $deadline;
		ok(-e "$file.held", "killed again: held at $point");
		$node->_update_pid(1);
		kill_it($node);
	}
	$node->start;
	goes_on($node, 'killed again', $position);
	$node->stop;
}

# ---- a child is killed: the postmaster starts anew in place ----

{
	my $node = standby_with_files("restart_after_crash = on\n");
	my $position = log_position($node);

	promote_up_to($node, 'promoted_before_use');
	my $pid = $node->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'));
	unlink(glob($node->data_dir . '/stop_points/promoted_before_use'));
	append_to_file($node->data_dir . '/stop_points/promoted_before_use', '');
	kill('KILL', $pid);
	unlink(glob($node->data_dir . '/stop_points/*'));
	usleep(500_000);
	wait_until_up($node);
	goes_on($node, 'restarted in place', $position);
	$node->stop;
}

# ---- the signal file is still there: a standby as before ----

{
	my $node = standby_with_files();
	my $position = log_position($node);

	promote_up_to($node, 'end_of_replay');
	kill_it($node);
	unlink($node->data_dir . '/promote');
	$node->start;
	is($node->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 't', 'signal is there: a standby');
	$primary->safe_psql('postgres', q(INSERT INTO t SELECT i, 'later', i FROM generate_series(1, 200) i));
	caught_up($primary, $node);
	both_valid($node, 'signal is there');
	compare_in_snapshot($node, 'signal is there: answers');
	unlike(logged_since($node, $position), qr/has been rebuilt|could not rebuild|not trusted|has been built|is given up/, 'signal is there: nothing is built');

	# where replay ended is forgotten: it has gone on
	$node->stop('immediate');
	unlink($node->data_dir . '/standby.signal') or die $!;
	$position = log_position($node);
	$node->start;
	builds_anew($node, 'signal removed later', $position, qr/was a standby and has not been promoted/);
	$node->stop;
}

# ---- killed when the signal file has gone, before there is a new timeline ----

# The server itself removes the file just after the end of replay.  It comes up on the
# old timeline: the end of WAL must be where replay has ended.
foreach my $more (0, 1)
{
	my $name = $more ? 'no signal, and more WAL' : 'no signal yet no timeline';
	my $node = standby_with_files();
	my $position;

	promote_up_to($node, 'end_of_replay');
	kill_it($node);
	unlink($node->data_dir . '/standby.signal') or die $!;
	unlink($node->data_dir . '/promote');
	if ($more)
	{
		# trust: promoted-end
		my $from = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_lsn())');
		$primary->safe_psql('postgres', q(INSERT INTO t SELECT i, 'past the end', i FROM generate_series(1, 200) i));
		is($primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_flush_lsn())'), $from, "$name: in the same file");
		copy($primary->data_dir . "/pg_wal/$from", $node->data_dir . "/pg_wal/$from") or die $!;
	}
	$position = log_position($node);
	$node->start;
	is($node->safe_psql('postgres', q(SELECT count(*) FROM t WHERE s = 'past the end')), $more ? '200' : '0', "$name: rows");
	if ($more)
	{
		builds_anew($node, $name, $position, qr/they have what WAL says up to/);
	}
	else
	{
		goes_on($node, $name, $position);
	}
	$node->stop;
}

# ---- less WAL than was replayed, and as much of its own, of another kind ----

# The start that finds less goes on without the files, is killed before it has used any,
# and its own WAL ends just where the standby's had.
{
	# trust: promoted-forgotten
	my $name = 'as much WAL of its own';
	my $node = standby_with_files();
	my $begin = $primary->safe_psql('postgres', 'CHECKPOINT; SELECT pg_switch_wal(); SELECT pg_current_wal_insert_lsn()');
	($begin) = reverse split /\n/, $begin;
	$primary->safe_psql('postgres', q(INSERT INTO t SELECT 8000 + i % 50, 'lost', i FROM generate_series(1, 600) i));
	caught_up($primary, $node);
	promote_up_to($node, 'end_of_replay');
	my $end = $node->safe_psql('postgres', 'SELECT pg_last_wal_replay_lsn()');
	my $segment = $primary->safe_psql('postgres', "SELECT pg_walfile_name('$end')");
	my $offset = $primary->safe_psql('postgres', "SELECT file_offset FROM pg_walfile_name_offset('$begin')");
	is($primary->safe_psql('postgres', "SELECT pg_walfile_name('$begin')"), $segment, "$name: in one file");
	kill_it($node);
	unlink($node->data_dir . '/standby.signal') or die $!;
	unlink($node->data_dir . '/promote');
	my $path = $node->data_dir . "/pg_wal/$segment";
	open(my $wal, '+<:raw', $path) or die "$path: $!";
	seek($wal, $offset, 0);
	print $wal "\0" x ((-s $path) - $offset);
	close($wal) or die "$path: $!";

	my $position = log_position($node);
	append_to_file($node->data_dir . '/stop_points/promoted_before_use', '');
	$node->start;
	wait_until_up($node);
	# a transaction with a message; after the first of them the others have all alike
	my $emit = sub { my ($n) = @_; return "SELECT pg_logical_emit_message(true, 'm', repeat('x', $n))"; };
	my $at = sub { return $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn() - \'0/0\''); };
	my $to = $node->safe_psql('postgres', "SELECT '$end'::pg_lsn - '0/0'");
	$node->safe_psql('postgres', $emit->(320));
	my $from = $at->();
	$node->safe_psql('postgres', $emit->(320));
	my $base = $at->() - $from - 320;
	$from = $at->();
	my $pages = int($to / 8192) - int($from / 8192);
	$node->safe_psql('postgres', $emit->($to - $from - $base - 24 * $pages));
	is($at->(), $to, "$name: it ends there");
	kill_it($node);
	$node->start;
	is($node->safe_psql('postgres', q(SELECT count(*) FROM t WHERE s = 'lost')), '0', "$name: rows");
	$node->safe_psql('postgres', q(INSERT INTO t SELECT 9000 + i % 50, 'instead', i FROM generate_series(1, 600) i));
	builds_anew($node, $name, $position, qr/has not been promoted in its last life/);
	nothing_under_old_keys($node, $name, map { 8000 + $_ } 0 .. 49);
	$node->stop;
}

# ---- without the library in between ----

{
	# trust: promoted-opts
	my $node = standby_with_files();
	my $position = log_position($node);

	promote_up_to($node, 'promoted_before_use');
	kill_it($node);
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	$node->start;
	$node->stop('immediate');
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pmhash'\n");
	$node->start;
	builds_anew($node, 'without the library', $position, qr/has run without the pool since it was promoted/);
	$node->stop;
}

# ---- in single-user mode in between, which leaves postmaster.opts as it is ----

# The last checkpoint is that of its recovery, or an online one, as of a promoted life.
foreach my $statement (undef, 'CHECKPOINT')
{
	# trust: promoted-checkpoint
	my $name = 'single-user mode' . (defined $statement ? ", $statement" : '');
	my $node = standby_with_files();
	my $position = log_position($node);

	promote_up_to($node, 'promoted_before_use');
	kill_it($node);
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	unlink($node->data_dir . '/postmaster.pid');
	unlike(die_in_start($node, $statement), qr/ERROR|FATAL/, "$name: it has run");
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pmhash'\n");
	$node->start;
	builds_anew($node, $name, $position, qr/has run without the pool since it was promoted/);
	$node->stop;
}

# ---- the history of the timeline says another place ----

{
	# trust: promoted-fork
	my $node = standby_with_files();
	my $position = log_position($node);
	my $history = $node->data_dir . '/pg_wal/00000002.history';
	my $text;

	promote_up_to($node, 'promoted_before_use');
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	kill_it($node);
	$text = slurp_file($history);
	like($text, qr/^1\t0\//, 'the history of timeline 2');
	$text =~ s{^1\t0/(\w+)}{"1\t0/" . sprintf('%X', hex($1) - 8)}e;
	unlink($history);
	append_to_file($history, $text);
	$node->start;
	builds_anew($node, 'another fork', $position, qr/on another timeline than the one it was promoted to/);
	$node->stop;
}

# ---- the first use fails at first: the files are kept ----

{
	my $node = standby_with_files();
	my $position = log_position($node);

	chmod(0500, pool($node)) or die $!;
	$node->promote;
	sleep 1;
	like(logged_since($node, $position), qr/could not use the pmhash undo journal/, 'first use: it has failed');
	chmod(0700, pool($node)) or die $!;
	$node->safe_psql('postgres', q(INSERT INTO t VALUES (1, 'first use', 1)));
	goes_on($node, 'first use fails', $position);
	$node->stop;
}

$primary->stop;
done_testing();
