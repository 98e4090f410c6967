# Kinds of standbys.

use v5.36;
use PmhashStandby;
use PmhashTest;

# ======== standby setups ========

# Logged indexes in the setups that are in use: standbys of standbys, synchronous and
# delayed ones, base backups under load, indexes that are turned on and off, promotions
# where some are off.
{
	my $primary = new_primary('primary');
	my $near = new_standby($primary, 'near');
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';

	# ---- a base backup under load, a standby of a standby ----

	my $bench = load_of_t($primary, 20);
	both_valid($near, 'near');
	my $output = '';
	my $load = start_pgbench($primary, \$output, '-c', '3', '-R', '40', '-T', '600', '-f', $bench);
	my $busy = new_standby($primary, 'busy');
	both_valid($busy, 'made under load');
	compare_in_snapshot($busy, "made under load, round $_") foreach 1 .. 3;
	my $far = new_standby($near, 'far');
	both_valid($far, 'standby of a standby');
	compare_in_snapshot($far, "standby of a standby, round $_") foreach 1 .. 3;

	# ---- turned off and on under load ----

	foreach my $round (1 .. load_time(3))
	{
		$primary->safe_psql('postgres', $_) foreach 'ALTER INDEX t_k SET (wal = off)', 'REINDEX INDEX CONCURRENTLY t_k';
		usleep(rand(200_000));
		$primary->safe_psql('postgres', $_) foreach 'ALTER INDEX t_k SET (wal = on)', 'REINDEX INDEX CONCURRENTLY t_k';
		usleep(rand(400_000));
	}
	both_right($near, 'turned off and on under load');
	$load->signal('TERM');
	$load->finish;
	foreach my $node ($near, $busy, $far)
	{
		caught_up($primary, $node);
		both_right($node, $node->name . ', after the load');
	}
	$busy->stop;

	# ---- synchronous: what has been committed is found there at once ----

	reload_with($primary, "synchronous_standby_names = 'near'\n");
	wait_until($primary, "SELECT sync_state = 'sync' FROM pg_stat_replication WHERE application_name = 'near'", 'not synchronous');
	my $missing = 0;
	foreach my $i (1 .. 30)
	{
		$primary->safe_psql('postgres', "SET synchronous_commit = remote_apply; INSERT INTO t VALUES (900000 + $i, 'sync', $i)");
		$missing++ if $near->safe_psql('postgres', "$by_index; SELECT count(n) FROM t WHERE k = 900000 + $i") != 1;
	}
	is($missing, 0, 'remote_apply: each row is found by index when its commit returns');
	reload_with($primary, "synchronous_standby_names = ''\n");

	# ---- delayed ----

	my $delayed = new_standby($primary, 'delayed', "recovery_min_apply_delay = '3s'\n");
	both_valid($delayed, 'delayed');
	$primary->safe_psql('postgres', "INSERT INTO t SELECT 910000, 'delayed', i FROM generate_series(1, 10) i; DELETE FROM t WHERE k = 5");
	compare_in_snapshot($delayed, 'delayed: answers of before');
	is($delayed->safe_psql('postgres', "$by_index; SELECT count(n) FROM t WHERE k = 910000"), '0', 'delayed: not yet');
	caught_up($primary, $delayed);
	is($delayed->safe_psql('postgres', "$by_index; SELECT count(n) FROM t WHERE k = 910000"), '10', 'delayed: now');
	both_right($delayed, 'delayed');
	$delayed->stop;

	# ---- promoted: what is logged is there at once (standby_restart), what is not is rebuilt ----

	$primary->safe_psql('postgres', <<'SQL');
ALTER INDEX t_s SET (wal = off);
REINDEX INDEX t_s;
CREATE UNLOGGED TABLE u (k int);
CREATE INDEX u_k ON u USING pmhash (k) WITH (wal = on);
INSERT INTO u SELECT generate_series(1, 100);
SQL
	caught_up($primary, $near);
	wait_for_state($near, 't_s', qr/^absent: the index is not logged/, 'off: absent on a standby');
	wait_for_state($_, 't_k', qr/^valid$/, 'on: there on ' . $_->name) foreach $near, $far;
	unlike(standby_state($near, 'u_k'), qr/^valid/, 'unlogged: absent on a standby');
	$primary->stop('fast');
	$near->promote;
	$near->safe_psql('postgres', 'INSERT INTO u VALUES (5)');
	is($near->safe_psql('postgres', "$by_index; SELECT count(*) FROM u WHERE k = 5"), '1', 'promoted: the unlogged one begins empty');
	both_right($near, 'the new primary');
	caught_up($near, $far);
	wait_for_state($far, 't_k', qr/^valid$/, 'the standby of the new primary');
	$near->safe_psql('postgres', 'ALTER INDEX t_s SET (wal = on); REINDEX INDEX t_s');
	change_t($near, 5, 700, 300);
	caught_up($near, $far);
	both_right($far, 'the standby of the new primary, vacuumed');

	$_->stop foreach $far, $near;
}

# ======== other standbys ========

# After a promotion the other standbys go on with their files until the new primary
# vacuums, and one of them may be promoted before that.  (One that was ahead of the new
# primary: killed_in_record.)
{
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
	my $given_up = qr/has been built|given up|not trusted|rebuil/;

	# ---- two failovers in a row, without a VACUUM in between ----

	# 'early' has entries of dead rows that 'late' lacks.  It follows, is promoted itself,
	# and has the TIDs given away.
	my $first = new_primary('first');
	my ($early, $late) = early_and_late($first);
	my $position = log_position($early);
	crash($first);
	$late->promote;
	follow($early, $late);
	caught_up($late, $early);
	$late->safe_psql('postgres', <<'SQL');
INSERT INTO t SELECT 8000 + i % 9, 'second', i FROM generate_series(1, 90) i;
DELETE FROM t WHERE k = 9;
UPDATE t SET k = 8100 WHERE k = 10;
SQL
	caught_up($late, $early);
	both_valid($early, 'under the second primary');
	nothing_under_old_keys($early, 'under the second primary', 5, 6, 7, 9, 10);
	crash($late);
	$early->promote;
	nothing_under_old_keys($early, 'the third primary', 5, 6, 7, 9, 10);
	$early->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) t');
	$early->safe_psql('postgres', q(INSERT INTO t SELECT 9000, 'reused', i FROM generate_series(1, 40) i));
	nothing_under_old_keys($early, 'the third primary, TIDs used again', 5, 6, 7, 9, 10);
	unlike(logged_since($early, $position), $given_up, 'nothing is built all the time');
	$early->stop;
}

done_testing();
