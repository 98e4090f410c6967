# Failover cycles: a primary and its standby under a mixed load, the primary is
# lost in some way, the standby is promoted and looked at at once, the old one is
# attached again, and it is its turn.  Used by test/t/standby/failover.pl, with few
# cycles in "make test" and many in "make soak-failover".
#
# Before each cycle the standby has built its files: those that it had as a primary are
# given up (rule S4), after a clean switchover when the new primary first vacuums.  What is
# looked at:
#	- on the standby under load, within one snapshot: index, bitmap and index-only
#	  scans against sequential ones, all the time;
#	- on the new primary at once: the same for each index, pmhash.check, rows whose
#	  commit was acknowledged by the synchronous standby, prepared transactions;
#	- no index has been given up, built or rebuilt, and each has the file that it
#	  had on the old primary, except for those that DDL replaces all the time.
#
# The load is the one of the kill cycles (PmhashSoak.pm), and more DDL.  Until the standby is
# promoted processes of both servers are stopped at random (PmhashPauses.pm).

package PmhashFailover;

use v5.36;

use Exporter 'import';
use PmhashPauses;
use PmhashSoak;
use PmhashStandby qw(caught_up new_standby rewind);
use PmhashTest;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(
  new_pair
  failover_cycle
  failover_kinds
  failover_summary
);

# Commits of clients whose acknowledged rows must survive wait for the standby;
# those of others, the test's own among them, do not.
my $settings = <<'CONF';
wal_level = replica
wal_log_hints = on
max_wal_senders = 8
wal_keep_size = 128MB
hot_standby = on
max_standby_streaming_delay = 500ms
max_standby_archive_delay = 500ms
wal_receiver_status_interval = 1s
wal_retrieve_retry_interval = 100ms
synchronous_standby_names = '*'
synchronous_commit = local
pmhash.wal = on
CONF

my $durable = '-c synchronous_commit=on';

# Indexes that DDL replaces, or turns off and on: what they have is compared, but
# their files come and go.  The others are called steady.
my $more = <<'SQL';
CREATE TABLE turned (k int4);
CREATE INDEX turned_k ON turned USING pmhash (k);
INSERT INTO turned SELECT i % 300 FROM generate_series(1, 3000) i;
INSERT INTO soak_indexes VALUES ('turned', '{k}', 'turned_k', true);
CREATE FUNCTION steady() RETURNS SETOF soak_indexes
LANGUAGE sql STABLE AS $$
SELECT * FROM soak_indexes WHERE tab NOT IN ('side', 'turned', 'un')
$$;

-- Compares a steady index, chosen at random, within the snapshot of the transaction.
-- Plans may do without it, if the snapshot is too old for its file.
CREATE FUNCTION soak_compare_here() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	i soak_indexes;
	said text;
BEGIN
	SELECT * INTO i FROM steady() ORDER BY random() LIMIT 1;
	said := soak_scans(i);
	IF said ~ 'missing' THEN
		RAISE EXCEPTION 'DIFFERENCE: %: %', i.index, said;
	ELSIF said ~ 'same' THEN
		RAISE LOG 'soak: compared %', i.index;
	END IF;
END $$;

CREATE FUNCTION soak_steady_findings() RETURNS SETOF text
LANGUAGE sql AS $$
SELECT f FROM steady() i, soak_findings(i) f
UNION ALL
SELECT 'ex: ' || count(*) || ' rows with key ' || k FROM ex GROUP BY k HAVING count(*) > 1
UNION ALL
SELECT p.index::text || ': state is ' || p.state FROM pmhash.indexes p JOIN steady() i ON p.index = i.index
WHERE p.state <> 'valid'
$$;
SQL

my $turn = <<'SQL';
\set k random(1, 300)
INSERT INTO turned SELECT i % 300 FROM generate_series(:k, :k + 100) i;
DELETE FROM turned WHERE k = :k;
\set what random(1, 60)
\if :what = 1
ALTER INDEX turned_k SET (wal = off);
REINDEX INDEX turned_k;
\elif :what <= 3
ALTER INDEX turned_k SET (wal = on);
REINDEX INDEX turned_k;
\elif :what <= 5
VACUUM turned;
\endif
SQL

my $compare = <<'SQL';
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT soak_compare_here();
COMMIT;
SQL

our %sum = (cycles => 0, promotions => 0, acknowledged => 0, compared => 0, differences => 0,
	attached => 0);

# Where the scripts of this module are.
my $scripts;

# ---- the two servers ----

sub new_pair
{
	my $primary = new_soak_server('one', $settings);
	$primary->safe_psql('postgres', $more);
	$scripts = $primary->basedir . '/soak';
	append_to_file("$scripts/turn.sql", $turn);
	append_to_file("$scripts/compare.sql", $compare);
	return ($primary, new_standby($primary, 'two'));
}

# What psql says to a query.  On a standby replay may cancel it.
sub value ($node, $query)
{
	my ($status, $stdout, $stderr);

	foreach (1 .. 50)
	{
		($status, $stdout, $stderr) = $node->psql('postgres', $query, on_error_stop => 1);
		last if "$stdout$stderr" !~ /conflict with recovery/;
	}
	die "$query: $stderr" if $status != 0;
	return $stdout;
}

# The standby has all steady indexes, and commits wait for it.
sub wait_for_standby ($primary, $standby)
{
	wait_until($primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'",
		'a synchronous standby');
	caught_up($primary, $standby);
	wait_until($standby, "SELECT bool_and(p.state = 'valid') FROM pmhash.indexes p JOIN steady() i ON p.index = i.index",
		'the indexes of the standby');
	return;
}

sub steady_files ($node)
{
	return value($node, "SELECT string_agg(p.index || ' ' || regexp_replace(p.file, '.*/', ''), ', ' ORDER BY 1) FROM pmhash.indexes p JOIN steady() i ON p.index = i.index");
}

# ---- ways to lose a primary; each ends with the standby promoted ----

# An old primary that has stopped cleanly, with all it did on the standby, is
# attached as it is.  All others have gone on past the promotion, perhaps.
sub kill_primary ($primary, $standby)
{
	crash($primary);
	$standby->promote;
	return 'rewind';
}

sub kill_with_wal_held_back ($primary, $standby)
{
	PmhashSoak::hold_wal_back($primary);
	return kill_primary($primary, $standby);
}

sub stop_immediately ($primary, $standby)
{
	$primary->stop('immediate');
	$standby->promote;
	return 'rewind';
}

sub switch_over ($primary, $standby)
{
	# a primary with no standby that listens stops with WAL that no other server has
	wait_until($primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'", 'streaming');
	$primary->stop('fast');
	$standby->promote;
	return 'attach';
}

# The primary goes on for a while when no standby hears it any more.
sub cut_off ($primary, $standby)
{
	reload_with($standby, "primary_conninfo = ''\n");
	usleep(200_000);
	$standby->promote;
	usleep(200_000 + rand(500_000));
	$primary->stop(rand() < 0.5 ? 'fast' : 'immediate');
	return 'rewind';
}

sub kill_both ($primary, $standby)
{
	if (rand() < 0.5) { crash($primary); crash($standby); }
	else { crash($standby); crash($primary); }
	$standby->start;
	$standby->promote;
	return 'rewind';
}

sub kill_standby_before ($primary, $standby)
{
	crash($standby);
	usleep(rand(500_000));
	$standby->start;
	usleep(rand(1_000_000));
	return kill_primary($primary, $standby);
}

sub kill_promoted ($primary, $standby)
{
	kill_primary($primary, $standby);

	# before the first use, or after it (src/README, "Standbys")
	usleep(rand(200_000)) if rand() < 0.5;
	crash_and_start($standby);
	return 'rewind';
}

# What has been received, and not replayed, comes before the promotion.
sub kill_with_replay_late ($primary, $standby)
{
	value($standby, 'SELECT pg_wal_replay_pause()');
	usleep(200_000 + rand(500_000));
	return kill_primary($primary, $standby);
}

sub restart_standby_before ($primary, $standby)
{
	value($standby, 'CHECKPOINT');
	$standby->restart;
	usleep(rand(500_000));
	return rand() < 0.5 ? switch_over($primary, $standby) : kill_primary($primary, $standby);
}

my %lose = (
	'kill -9' => \&kill_primary,
	'kill -9, WAL held back' => \&kill_with_wal_held_back,
	'immediate shutdown' => \&stop_immediately,
	'switchover' => \&switch_over,
	'cut off' => \&cut_off,
	'kill -9 of both' => \&kill_both,
	'kill -9 of the standby before' => \&kill_standby_before,
	'kill -9, and of the promoted one' => \&kill_promoted,
	'kill -9, replay late' => \&kill_with_replay_late,
	'restart of the standby before' => \&restart_standby_before);

# The kinds, in the order of a run.
sub failover_kinds
{
	return ('kill -9', 'switchover', 'kill -9 of both', 'cut off', 'immediate shutdown',
		'kill -9, replay late', 'switchover', 'kill -9 of the standby before',
		'kill -9, WAL held back', 'kill -9, and of the promoted one',
		'restart of the standby before');
}

# ---- back again ----

# The old primary follows the new one.
sub attach_again ($old, $new, $how)
{
	if ($how eq 'rewind')
	{
		value($new, 'CHECKPOINT');
		rewind($old, $new, 'attached again');
	}
	$old->enable_streaming($new);
	$old->start;
	wait_for_standby($new, $old);
	return;
}

# ---- what must be there ----

# Indexes whose files come and go have no part in these.
my $of_steady = qr/index "(?!side|turned|un_)\w+"/;
my $built = qr/pmhash: $of_steady has been built on this standby/;
my $bad = qr/pmhash: $of_steady.* has been rebuilt|could not rebuild index|could not build $of_steady|
	could not replay|is given up on this server|are not trusted|pmhash is disabled|PANIC:|TRAP:|
	was terminated by signal (?:6|11)\b/x;

# Lines of the log since a place that must not be there.
sub bad_lines ($node, $from, $pattern)
{
	return join('', map { $node->name . ": $_\n" }
		grep { /$pattern/ } split /\n/, slurp_file($node->logfile, $from));
}

# Differences that were found on the standby under load.
sub seen_on_standby ($node, $from, $readers)
{
	my $log = slurp_file($node->logfile, $from);

	$sum{compared} += () = $log =~ /soak: compared \w+/g;
	return join('', map { "on the standby: $_\n" } $log =~ /ERROR:\s+(DIFFERENCE.*)/g)
	  . join('', map { "on the standby: $_\n" } grep { !/terminat|conflict with recovery|connection|starting up|shutting down/ } $$readers =~ /ERROR:.*/g);
}

# The files that a primary has taken with it are good until the new one vacuums: they
# are compared.  Then they end, and not in the middle of the next cycle, when a build
# that is not complete would be a rebuild after the promotion.  Each table has a row that
# is dead: without one VACUUM leaves the indexes alone, and of few it puts them off.
sub end_files_of_before ($old, $new)
{
	my $from = -s $old->logfile;
	my $findings = value($old, 'SELECT * FROM soak_steady_findings()');
	my $indexes = value($new, 'SELECT count(*) FROM steady()');
	my $built_again;

	value($new, "DELETE FROM $_ WHERE ctid = (SELECT min(ctid) FROM $_)") foreach qw(load ex gone);
	value($new, 'BEGIN; INSERT INTO gone VALUES (0, 0); ROLLBACK'); # dead, whatever is prepared
	value($new, 'VACUUM (INDEX_CLEANUP ON) load, ack, pre, ex, gone');
	wait_for_standby($new, $old);
	$built_again = () = slurp_file($old->logfile, $from) =~ /$built/g;
	$findings .= "\n$built_again of $indexes files have been built again" if $built_again != $indexes;
	return join('', map { "attached again: $_\n" } grep { $_ ne '' } split /\n/, $findings);
}

# All that is to be compared on the new primary, at once.
sub findings_at_once ($node, $run)
{
	my ($lost, $n) = PmhashSoak::check_acknowledged($node, $run);
	my $findings = value($node, 'SELECT * FROM soak_steady_findings()');
	my ($unprepared, $open) = PmhashSoak::check_prepared($node, $run);

	$sum{acknowledged} += $n;
	$findings .= "\n" if $findings ne '';
	return $findings . $lost . $unprepared . PmhashSoak::finish_prepared($node, $run, split / /, $open)
	  . value($node, "SELECT soak_findings(i) FROM steady() i WHERE tab = 'pre'");
}

# The others, when they have a file again.
sub findings_of_others ($node)
{
	wait_until($node, "SELECT count(*) = 0 FROM pmhash.indexes WHERE state <> 'valid'",
		'the indexes that DDL replaces');
	return value($node, "SELECT soak_findings(i) FROM soak_indexes i WHERE tab IN ('side', 'turned', 'un')");
}

# ---- a cycle ----

sub start_everything ($primary, $standby, $cycle)
{
	my $readers = '';

	return (\$readers,
		start_pgbench($standby, \$readers, '-T', '600', '--max-tries=1000', '-c', '2', '-f', "$scripts/compare.sql"),
		PmhashSoak::start_load($primary, $cycle, $durable),
		PmhashSoak::start_clients($primary, 'turn', '', '-c', '1', '-f', "$scripts/turn.sql"));
}

# One cycle; the standby is the primary afterwards.
sub failover_cycle ($primary, $standby, $cycle, $kind)
{
	my $name = "cycle $cycle, $kind";
	my $run = $cycle * 1_000_000;
	my ($from, $files, $readers, $reading, @load, $how, $wrong, $pauses);

	wait_for_standby($primary, $standby);
	$from = -s $standby->logfile;
	$files = steady_files($primary);
	($readers, $reading, @load) = start_everything($primary, $standby, $cycle);
	$pauses = start_pauses($primary, $standby);
	usleep(700_000 + rand(1_500_000));
	$how = $lose{$kind}->($primary, $standby);
	end_pauses($pauses);

	# killed again before it has used the pool as a primary it trusts nothing (src/README, "Standbys")
	my $rebuilt = slurp_file($standby->logfile, $from) =~ /has not used the pool as a primary/;
	wait_until($standby, "SELECT bool_and(state = 'valid') FROM pmhash.indexes WHERE index <> 'pre_k'", 'rebuilds') if $rebuilt;
	$wrong = findings_at_once($standby, $run);
	$wrong =~ s/^pre_k: .*\n?//mg if $rebuilt;
	$reading->signal('TERM');
	$_->finish foreach $reading, map { $_->{process} } @load;

	$wrong .= join('', map { ${ $_->{output} } =~ /.*ERROR:.*/ ? "$_->{name}: $&\n" : '' } @load);
	$wrong .= seen_on_standby($standby, $from, $readers);
	$wrong .= bad_lines($standby, $from, qr/$bad|$built/) if !$rebuilt;
	$wrong .= "files are not those of before: $files, now " . steady_files($standby) . "\n"
	  if !$rebuilt && steady_files($standby) ne $files;
	$wrong .= findings_of_others($standby);
	value($standby, 'DELETE FROM pre; DELETE FROM ack; DELETE FROM load WHERE k > 20000');
	attach_again($primary, $standby, $how);
	if ($how eq 'attach')
	{
		$wrong .= end_files_of_before($primary, $standby);
		$sum{attached}++;
	}
	$sum{cycles}++;
	$sum{differences} += () = $wrong =~ /[^\n]+/g;
	is($wrong, '', $name);
	note(failover_summary());
	return;
}

# Figures so far, in one line.
sub failover_summary
{
	return "failover cycles: $sum{cycles} promotions, $sum{acknowledged} acknowledged transactions, "
	  . "$sum{compared} comparisons on the standby under load, "
	  . "$sum{attached} clean switchovers, " . pauses() . ", $sum{differences} differences";
}

1;
