# Random histories of snapshots and of indexes: which snapshots an index file serves is
# decided at run time, so many snapshots of all kinds are kept while rows go and indexes are
# lost, rebuilt, made and dropped, on a primary and a streaming standby, with restarts and a
# promotion in the middle.  After each step each snapshot is asked, by index and by
# sequential scan: the same rows, or an error that says to try again.
#
# A history follows from its seed, but for what runs in the background: how far a rebuild
# or replay is.  Each step has random numbers of its own, so what one draws more or less
# does not change the steps after it.

package PmhashHistories;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PmhashInvalid;
use PmhashPauses;
use PmhashRandom;
use PmhashStandby;
use PmhashTest;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(
  snapshot_history
  history_figures
  standbys_have_slots
);

my $patience = 60;     # seconds for a statement
my $keys = 10;         # of a table
my $most_holders = 7;  # of a server
my @tables = qw(a b u);    # u is not logged, and not on a standby

# SQLSTATEs that are right: try again, a lock, a cancel, a server that goes down, a
# snapshot that is too old, an index that is gone meanwhile.
my $expected = qr/^(40001|40P01|55P03|57014|57P01|57P02|72000|55000|42704|(?:42P01|XX000) (?:relation with OID|could not open relation))/;

# What has been done; answers: scans by the index; old: by a snapshot from before the
# table's indexes changed last; without: the planner did without it; late_slots: hand out a
# snapshot of before that; handed_on: while it was waited for.
my %figures = map { $_ => 0 } qw(histories steps looks answers old_answers old_without old_rows kept_answers retries
  slot_looks late_slots late_slots_of_standbys handed_on errors gone checks refused_checks);

# Statements that sessions have plans of, with a table and a key.  An index-only scan cannot go
# through the table if the index turns out to be too young: its session has to try again.
my $rows = "SELECT count(*) || ' rows, sum ' || coalesce(sum(v), 0) FROM %s WHERE %s";
my %plans = (kept => $rows, par => $rows, only => "SELECT count(*) || ' rows' FROM %s WHERE %s");

my %w;    # the history: servers, snapshots, what is open

# ---- what the servers have ----

sub schema
{
	return <<'SQL';
CREATE FUNCTION scans(indexes oid[]) RETURNS int8 STABLE LANGUAGE sql
AS 'SELECT coalesce(sum(pg_stat_get_xact_numscans(o)), 0)::int8 FROM unnest(indexes) o';

-- Rows with these keys by each kind of scan and by the table: how many of them, which kinds
-- have used an index, and what is wrong.
CREATE FUNCTION look(tab text, indexes oid[], keys int4[]) RETURNS text STABLE LANGUAGE plpgsql SET search_path = public AS $$
DECLARE
	single text := 'x.k = ' || keys[1];
	several text := format('x.k = ANY (%L)', keys);
	sig text := 'count(*) || '' rows, sum '' || coalesce(sum(hashtextextended(ROW(x.ctid, x.*)::text, 0)), 0)';
	kind text;
	query text;
	wanted text;
	got text;
	rows int := 0;
	used int := 0;
	before int8;
	wrong text := '';
BEGIN
	FOREACH kind IN ARRAY '{index,any,bitmap,only,join,pages}'::text[] LOOP
		query := CASE kind
			WHEN 'index' THEN format('SELECT %s FROM %s x WHERE %s', sig, tab, single)
			WHEN 'only' THEN format('SELECT count(*) || '' rows'' FROM %s x WHERE %s', tab, several)
			WHEN 'join' THEN format('SELECT %s FROM (SELECT unnest(%L::int4[]) q OFFSET 0) d JOIN %s x ON x.k = d.q', sig, keys, tab)
			ELSE format('SELECT %s FROM %s x WHERE %s', sig, tab, several) END;
		PERFORM set_config('enable_' || n, 'off', true) FROM unnest('{indexscan,indexonlyscan,bitmapscan}'::text[]) n;
		PERFORM set_config('enable_seqscan', 'on', true);
		EXECUTE replace(query, 'x.k =', 'x.k + 0 =') INTO wanted;
		PERFORM set_config('enable_seqscan', 'off', true),
			set_config('enable_indexscan', (kind NOT IN ('bitmap'))::text, true),
			set_config('enable_indexonlyscan', (kind IN ('only', 'join'))::text, true),
			set_config('enable_bitmapscan', (kind = 'bitmap')::text, true),
			set_config('enable_hashjoin', 'off', true),
			set_config('enable_mergejoin', 'off', true),
			set_config('cpu_index_tuple_cost', CASE kind WHEN 'join' THEN '1000' ELSE '0.005' END, true),
			set_config('pmhash.enable_join', (kind = 'join')::text, true),
			set_config('pmhash.enable_pagescan', (kind = 'pages')::text, true);
		before := scans(indexes);
		EXECUTE query INTO got;
		used := used + (scans(indexes) > before)::int;
		IF got IS DISTINCT FROM wanted THEN
			wrong := wrong || format(' %s: %s, by the table %s;', kind, got, wanted);
		END IF;
		rows := greatest(rows, substring(wanted FROM '^\d+')::int);
	END LOOP;
	RETURN format('look: %s rows, %s by index;%s', rows, used, wrong);
END $$;

CREATE TABLE a (k int4, v int4) WITH (autovacuum_enabled = off, fillfactor = 70);
CREATE TABLE b (k int4, v int4) WITH (autovacuum_enabled = off);
CREATE UNLOGGED TABLE u (k int4, v int4) WITH (autovacuum_enabled = off);
CREATE INDEX a_k ON a USING pmhash (k) WITH (wal = on);
CREATE INDEX b_k ON b USING pmhash (k) WITH (wal = on);
CREATE INDEX u_k ON u USING pmhash (k);
CREATE TABLE w (k int4) WITH (autovacuum_enabled = off);
SQL
}

# Logical slots, from 16 on.
sub standbys_have_slots
{
	return $w{node}{primary}->pg_version >= 16;
}

# ---- sessions ----

sub new_session
{
	my ($server, $options) = @_;
	my %session = (in => '', out => '', error => '', n => 0, dead => 0, server => $server);

	# all but the first word of a connection string is shown as the application
	$session{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $w{node}{$server}->connstr('postgres') . ($options // ''), '-f', '-' ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{error});
	$session{in} = "\\set VERBOSITY verbose\n";
	push @{ $w{sessions} }, \%session;
	return \%session;
}

# A statement is on its way.
sub begin_sql
{
	my ($session, $sql) = @_;

	$session->{n}++;
	$session->{out} = $session->{error} = '';
	$session->{in} .= "$sql\n;\n\\echo =DONE $session->{n}\n\\warn =DONE $session->{n}\n";
	pump($session);
	return;
}

sub pump
{
	my ($session) = @_;

	eval { $session->{run}->pump_nb; 1 } or $session->{dead} = 1;
	$session->{dead} = 1 if !$session->{run}->pumpable;
	return;
}

# Is it over?
sub is_done
{
	my ($session) = @_;

	pump($session) if !$session->{dead};
	return $session->{dead}
	  || ($session->{out} =~ /^=DONE $session->{n}$/m && $session->{error} =~ /^=DONE $session->{n}$/m);
}

# Wait for the end of the statement: what it gives, and the error.
sub answer_of
{
	my ($session, $seconds) = @_;
	my $deadline = time + ($seconds // $patience);

	while (!is_done($session))
	{
		if (time > $deadline)
		{
			$w{finding} .= "no answer in time\n";
			$session->{dead} = 1;
			last;
		}
		usleep(300);
	}
	$session->{out} =~ s/^=DONE.*\n?//m;
	$session->{error} =~ s/^=DONE.*\n?//m;
	$session->{out} =~ s/\n+\z//;
	return ($session->{out}, $session->{error});
}

sub run_sql
{
	my ($session, $sql) = @_;

	begin_sql($session, $sql);
	return answer_of($session);
}

# One that must not fail but for reasons that are expected; returns what it gives, or undef.
sub try_sql
{
	my ($session, $sql) = @_;
	my ($out, $error) = run_sql($session, $sql);

	return $out if !$session->{dead} && $error !~ /(ERROR|FATAL|PANIC):/;
	note_error($error, $sql);
	return;
}

sub note_error
{
	my ($error, $sql) = @_;
	my ($state) = $error =~ /(?:ERROR|FATAL|PANIC):  (.*)/;

	$figures{errors}++;
	$w{error} = $error;
	return if !defined $state && $w{going_down};
	$state = 'connection lost' if !defined $state;
	$state =~ s/^(\w{5}): /$1 /;
	push @{ $w{log} }, "    $state (" . substr($sql, 0, 60) . ')';
	$w{finding} .= "$sql: $error\n" if $state !~ $expected && $state ne 'connection lost';
	return;
}

# A session for statements of the driver itself; a lock is not waited for for long.
sub driver
{
	my ($server) = @_;
	my $session = $w{driver}{$server};

	if (!defined $session || $session->{dead})
	{
		$session = $w{driver}{$server} = new_session($server);
		run_sql($session, "SET lock_timeout = '300ms'; SET statement_timeout = '20s'");
	}
	return $session;
}

sub drive
{
	my ($server, $sql) = @_;
	return try_sql(driver($server), $sql);
}

# By a session of its own, which tells the statistics of what it has done when it ends.
sub once
{
	my ($server, $sql) = @_;
	my $session = new_session($server);

	try_sql($session, "SET lock_timeout = '300ms'; SET statement_timeout = '20s'; $sql");
	end_session($session);
	return;
}

# Its plans, of itself and parallel ones, are made for the indexes as they are now.
sub make_plans
{
	my ($session) = @_;
	my $parallel = $session->{parallel};

	foreach my $table (grep { $session->{has_plans}{$_} } tables_of($session->{server}))
	{
		try_sql($session, "EXECUTE kept_$table(1); EXECUTE only_$table(1)");
		try_sql($session, "SET $parallel = on; EXECUTE par_$table(1); SET $parallel = off") if defined $parallel;
	}
	return;
}

# A session that is in no transaction, with plans of before.
sub idle_session
{
	my ($server) = @_;
	my $session = shift @{ $w{idle}{$server} };

	if (!defined $session || $session->{dead})
	{
		$session = new_session($server);
		# (One that has had parallel workers is the leader of a group for good.)
		$session->{parallel} = $w{node}{$server}->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode' if rand() < .5;
		run_sql($session, "SET lock_timeout = '300ms'; SET statement_timeout = '30s'; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off");
		foreach my $table (tables_of($server))
		{
			# (Not if the table is locked.)
			$session->{has_plans}{$table} = !grep {
				!defined try_sql($session, "PREPARE ${_}_$table(int4) AS " . sprintf($plans{$_}, $table, 'k = $1'))
			} sort keys %plans;
		}
	}
	make_plans($session) if rand() < .8;
	return $session;
}

sub end_session
{
	my ($session) = @_;

	@{ $w{sessions} } = grep { $_ != $session } @{ $w{sessions} };
	if (is_done($session) && !$session->{dead})
	{
		eval { $session->{in} .= "\\q\n"; $session->{run}->finish };
		return;
	}
	# its process notices (client_connection_check_interval)
	eval { $session->{run}->kill_kill(grace => 2) };
	return;
}

# ---- random choices ----

sub some_keys
{
	my ($n) = @_;
	return join(',', map { between(0, $keys - 1) } 1 .. $n);
}

sub servers
{
	return grep { defined $w{node}{$_} } qw(primary standby left);
}

sub tables_of
{
	my ($server) = @_;
	return $server eq 'primary' && !$w{promoted} ? @tables : qw(a b);
}

sub holders_of
{
	my ($server, @states) = @_;
	my %wanted = map { $_ => 1 } @states ? @states : 'live';
	return grep { $_->{server} eq $server && $wanted{ $_->{state} } } @{ $w{holders} };
}

# ---- snapshots ----

sub new_holder
{
	my ($server, $kind, $session, %more) = @_;
	my %holder = (name => "$kind" . ++$w{names}, server => $server, kind => $kind, session => $session,
		state => 'live', born => $w{step}, focus => rand() < .4 ? one_of(tables_of($server)) : '', %more);

	push @{ $w{holders} }, \%holder;
	return \%holder;
}

# What a finding says of it.
sub described
{
	my ($holder) = @_;
	return "$holder->{name} ($holder->{kind}, $holder->{server}, since step $holder->{born})";
}

sub has_room
{
	my ($server) = @_;
	return holders_of($server, qw(live making stopped)) < $most_holders;
}

# A transaction with a snapshot of its own, or with one that it takes over.
sub open_snapshot
{
	my ($server, $kind, $import) = @_;
	my $session = idle_session($server);
	my $level = rand() < .85 || $server ne 'primary' ? 'REPEATABLE READ' : 'SERIALIZABLE';
	my $take = defined $import ? "SET TRANSACTION SNAPSHOT '$import';" : '';
	my ($out, $error);

	$level = 'REPEATABLE READ' if defined $import;
	($out, $error) = run_sql($session, "BEGIN ISOLATION LEVEL $level; $take SELECT pg_export_snapshot(); SAVEPOINT s");
	if ($session->{dead} || $error =~ /ERROR|FATAL/)
	{
		run_sql($session, 'ROLLBACK') if !$session->{dead};
		push @{ $w{idle}{$server} }, $session if !$session->{dead};
		push @{ $w{log} }, "    not opened: " . ($error =~ /(ERROR.*)/)[0] if $error =~ /ERROR/;
		return;
	}
	return new_holder($server, $kind, $session, snapshot => $out =~ /(\S+)\s*\z/);
}

sub close_holder
{
	my ($holder) = @_;
	my $session = $holder->{session};

	@{ $w{holders} } = grep { $_ != $holder } @{ $w{holders} };
	kill('CONT', $holder->{pid}) if $holder->{state} eq 'stopped';
	if (defined $holder->{slot} || $session->{dead})
	{
		end_session($session);
		return;
	}
	run_sql($session, one_of('COMMIT', 'ROLLBACK'));
	push @{ $w{idle}{ $holder->{server} } }, $session if !$session->{dead};
	return;
}

# A logical slot whose snapshot is exported, or is that of its process.
sub begin_slot
{
	my ($server, $use) = @_;
	my $session = new_session($server, ' replication=database');
	my $name = 's' . ++$w{names};
	my $holder = new_holder($server, $use ? 'use' : 'slot', $session, state => 'making', slot => $name);

	run_sql($session, 'SET enable_seqscan = off');
	run_sql($session, 'BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ') if $use;
	begin_sql($session, "CREATE_REPLICATION_SLOT $name TEMPORARY LOGICAL pgoutput" . ($use ? ' USE_SNAPSHOT' : ''));
	return $holder;
}

# Has its slot been made?
sub look_at_slot
{
	my ($holder) = @_;
	my $session = $holder->{session};
	my ($out, $error);

	return if $holder->{state} ne 'making' || !is_done($session);
	($out, $error) = answer_of($session);
	if ($session->{dead} || $error =~ /ERROR|FATAL/)
	{
		push @{ $w{log} }, "    no slot: " . ($error =~ /((?:ERROR|FATAL).*)/)[0] if $error =~ /ERROR|FATAL/;
		close_holder($holder);
		return;
	}
	($holder->{snapshot}) = $out =~ /\|([^|]+)\|pgoutput/ if $holder->{kind} eq 'slot';
	run_sql($session, 'SAVEPOINT s') if $holder->{kind} eq 'use';
	$holder->{state} = 'live';
	push @{ $w{log} }, "    $holder->{name} is made";
	return;
}

# Its process is stopped when it has its place in WAL, and waits: for an open transaction, or,
# on a standby, for what comes.  (It has no lock in memory then, without which all would stop.)
sub stop_slot
{
	my ($holder) = @_;
	my $deadline = time + 5;
	my $pid;

	do
	{
		$pid = drive($holder->{server}, <<SQL);
SELECT active_pid FROM pg_replication_slots JOIN pg_stat_activity ON pid = active_pid
WHERE slot_name = '$holder->{slot}' AND restart_lsn IS NOT NULL AND wait_event ~* '^(transactionid|WalSenderWaitForWal)\$'
SQL
		look_at_slot($holder);
		return 0 if $holder->{state} ne 'making' || $holder->{session}{dead} || time > $deadline;
		usleep(2_000) if ($pid // '') eq '';
	} while (($pid // '') eq '');
	return 0 if !kill('STOP', $pid);
	$holder->{pid} = $pid;
	$holder->{state} = 'stopped';
	return 1;
}

sub go_on
{
	my ($holder) = @_;

	kill('CONT', $holder->{pid});
	$holder->{state} = 'making';
	return;
}

# ---- looks ----

# The indexes of a table, as they are now.
sub indexes_of
{
	my ($server, $table) = @_;
	return drive($server, "SELECT coalesce(array_agg(indexrelid), '{}') FROM pg_index JOIN pg_class i ON i.oid = indexrelid JOIN pg_am a ON a.oid = relam WHERE indrelid = '$table'::regclass AND amname = 'pmhash'");
}

# What a snapshot gives is judged.
sub judge
{
	my ($holder, $table, $said) = @_;
	my ($rows, $used, $wrong) = $said =~ /look: (\d+) rows, (\d+) by index;(.*)/;
	my $old = $holder->{born} <= ($w{changed}{ $holder->{server} }{$table} // -1);

	$figures{looks}++;
	if (!defined $rows || $wrong ne '')
	{
		$w{finding} .= described($holder) . ", table $table: $said\n";
		return;
	}
	$figures{answers} += $used;
	return if !$old;
	$figures{old_answers} += $used;
	$figures{old_without}++ if $used == 0;
	$figures{old_rows}++ if $rows > 0;
	return;
}

# Ask this snapshot; after an error that says so, again.
sub ask
{
	my ($holder, $sql, $name) = @_;
	my $session = $holder->{session};
	my ($out, $error);

	for my $try (1 .. 4)
	{
		my ($state, $message);

		($out, $error) = run_sql($session, $sql);
		if ($session->{dead})
		{
			note_error($error, "$holder->{name}, $name");
			$figures{gone}++;
			close_holder($holder);
			return;
		}
		return $out if $error !~ /ERROR:/;
		($state, $message) = $error =~ /ERROR:  (\w{5}): (.*)/;
		run_sql($session, 'ROLLBACK TO s');
		return if $name eq 'check' && $message =~ /cannot be checked using the transaction's snapshot|has no usable file/;
		if (!defined $state || $state ne '40001' || $message !~ /pmhash index/)
		{
			note_error($error, "$holder->{name}, $name");
			return;
		}
		$figures{retries}++;
	}
	$w{finding} .= described($holder) . ", $name: tried again in vain: $error\n";
	return;
}

# The plans that were made before, for other snapshots.
sub ask_by_plans
{
	my ($holder, $table, $indexes, $key) = @_;
	my $parallel = $holder->{session}{parallel};

	foreach my $plan ('kept', 'only', defined $parallel ? 'par' : ())
	{
		my $wanted = ask($holder, sprintf($plans{$plan}, $table, "k + 0 = $key"), 'by the table') // return;
		my $setting = $plan eq 'par' ? $parallel : 'enable_indexonlyscan';
		my $got = ask($holder, "SET LOCAL $setting = on; SELECT 'scans', scans('$indexes'); EXECUTE ${plan}_$table($key);"
			  . " SELECT 'scans', scans('$indexes'); SET LOCAL $setting = off", "plan $plan");
		my ($before, $rows, $after);

		return if !defined $got;
		($before, $rows, $after) = $got =~ /^scans\|(\d+)\n(.*)\nscans\|(\d+)$/;
		$figures{kept_answers}++ if defined $after && $after > $before;
		$w{finding} .= described($holder) . ", table $table, plan $plan, key $key: $got, by the table $wanted\n"
		  if !defined $rows || $rows ne $wanted;
	}
	return;
}

# A cursor goes on with the file that it has had from the start.
sub ask_cursor
{
	my ($holder) = @_;
	my $cursor = $holder->{cursor};
	my ($out, $wanted);

	return if !defined $cursor;
	$holder->{cursor} = undef;
	$out = ask($holder, 'FETCH ALL c', 'cursor');
	return if !defined $out;
	$wanted = ask($holder, "SELECT k, v FROM $cursor->{table} WHERE k + 0 = ANY ('{$cursor->{keys}}')", 'by the table');
	return if !defined $wanted;
	$out = join("\n", sort split(/\n/, "$cursor->{first}\n$out"));
	$out =~ s/^\n+//;
	$wanted = join("\n", sort split(/\n/, $wanted));
	$w{finding} .= "$holder->{name}, cursor on $cursor->{table}: $out, by the table: $wanted\n" if $out ne $wanted;
	return;
}

sub ask_check
{
	my ($holder, $indexes) = @_;
	my ($oid) = $indexes =~ /(\d+)/;
	my $out;

	return if !defined $oid;
	$figures{checks}++;
	$out = ask($holder, "SELECT pmhash.check(${oid}::regclass)", 'check');
	$figures{refused_checks}++ if !defined $out;
	return;
}

sub look
{
	my ($holder, $table, $indexes) = @_;
	my $some = some_keys(5);
	my $said;

	$said = ask($holder, "SELECT look('$table', '$indexes', '{$some}')", "table $table");
	judge($holder, $table, $said) if defined $said;
	return if $holder->{kind} eq 'use' || $holder->{session}{dead};
	$figures{slot_looks}++ if $holder->{kind} eq 'slot';
	ask_by_plans($holder, $table, $indexes, between(0, $keys - 1)) if rand() < .7 && $holder->{session}{has_plans}{$table};
	ask_cursor($holder) if rand() < .2 && !$holder->{session}{dead};
	ask_check($holder, $indexes) if rand() < .15 && !$holder->{session}{dead};
	return;
}

# All snapshots of all servers, and new ones.
sub look_around
{
	foreach my $server (servers())
	{
		my %indexes;

		look_at_slot($_) foreach holders_of($server, 'making');
		foreach my $table (tables_of($server))
		{
			$indexes{$table} = indexes_of($server, $table) // '{}';
			my $said = drive($server, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT look('$table', '$indexes{$table}', '{" . some_keys(5) . "}'); COMMIT");
			judge({ name => 'new', kind => 'new', born => $w{step} + 1, server => $server }, $table, $said) if defined $said;
			drive($server, 'ROLLBACK') if !defined $said;
		}
		foreach my $holder (holders_of($server))
		{
			my @wanted = $holder->{focus} ne '' ? $holder->{focus} : grep { rand() > .35 } tables_of($server);

			$holder->{kind} eq 'slot' ? look_by_import($holder, \%indexes, @wanted) : look_at_tables($holder, \%indexes, @wanted);
		}
	}
	return;
}

sub look_at_tables
{
	my ($holder, $indexes, @wanted) = @_;

	foreach my $table (@wanted)
	{
		look($holder, $table, $indexes->{$table});
		last if defined $holder->{session} && $holder->{session}{dead};
	}
	return;
}

# A slot's snapshot is exported, so another session has to take it over, for as long as it looks.
sub look_by_import
{
	my ($slot, $indexes, @wanted) = @_;
	my $holder = open_snapshot($slot->{server}, 'slot', $slot->{snapshot});

	if (!defined $holder)
	{
		push @{ $w{log} }, "    $slot->{name} has gone";
		$figures{gone}++;
		close_holder($slot);
		return;
	}
	$holder->{name} .= " by $slot->{name}";
	$holder->{born} = $slot->{born};
	look_at_tables($holder, $indexes, @wanted);
	close_holder($holder) if grep { $_ == $holder } holders_of($slot->{server});
	return;
}

# ---- servers ----

# The standby has replayed all, or is held up by a snapshot that it has to keep.
sub try_to_catch_up
{
	my ($seconds) = @_;
	my $deadline = time + $seconds;
	my $lsn;

	return 1 if !defined $w{node}{standby};
	drive('primary', "SET synchronous_commit = local; SELECT pg_logical_emit_message(true, 'pmhash', 'here')");
	$lsn = drive('primary', 'SELECT pg_current_wal_flush_lsn()') // return 0;
	while (time < $deadline)
	{
		return 1 if (drive('standby', "SELECT pg_last_wal_replay_lsn() >= '$lsn'") // '') eq 't';
		usleep(10_000);
	}
	return 0;
}

# The oldest snapshot that may hold replay up ends; or a slot, which replay wants to end as
# well (from 16 on), but for that its process has to go on.
sub end_oldest_of_standby
{
	my ($oldest) = (holders_of('standby', 'stopped'), sort { ($a->{kind} eq 'slot') <=> ($b->{kind} eq 'slot') } holders_of('standby'));

	close_holder($oldest) if defined $oldest;
	return;
}

# It is held up: the oldest snapshot that holds it up ends.
sub catch_up
{
	return 'no standby' if !defined $w{node}{standby};
	for my $turn (0 .. 10)
	{
		return $turn ? "after $turn snapshots had ended" : 'done' if try_to_catch_up(2);
		end_oldest_of_standby();
	}
	$w{finding} .= "the standby does not catch up\n";
	return 'not done';
}

sub forget_server
{
	my ($server) = @_;

	kill('CONT', $_->{pid}) foreach holders_of($server, 'stopped');
	$w{going_down} = 1;
	return;
}

# What was connected is not any more.
sub sessions_are_gone
{
	my ($server) = @_;
	my @gone = grep { $_->{server} eq $server } @{ $w{sessions} };

	@{ $w{holders} } = grep { $_->{server} ne $server } @{ $w{holders} };

	foreach my $session (@gone)
	{
		$session->{dead} = 1;
		end_session($session);
	}
	$w{idle}{$server} = [];
	delete $w{driver}{$server};
	delete @w{qw(writer builder)} if $server eq 'primary';
	$w{going_down} = 0;
	return;
}

sub restart
{
	my ($server, $how) = @_;
	my $node = $w{node}{$server};

	forget_server($server);
	$how eq 'crash' ? crash($node) : $node->stop($how);
	sessions_are_gone($server);
	$node->start;
	$w{changed}{$server}{$_} = $w{step} foreach @tables;
	return;
}

# A file of a table's index is lost, and that is noticed.
sub lose_file
{
	my ($server, $table) = @_;
	my $file = drive($server, "SELECT min(file) FROM pmhash.indexes WHERE index IN (SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = '$table'::regclass)") // '';
	my $done = $file ne '' && unlink($file);

	# one that has it mapped would not see that
	once($server, "SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k = 1");
	$w{changed}{$server}{$table} = $w{step};
	return $done ? 'lost' : 'not there';
}

# Wait until the indexes are valid, or until it is clear that this takes longer.
sub settle
{
	my ($server, $seconds) = @_;
	my $deadline = time + $seconds;
	my $of = join('', tables_of($server));
	my $states;

	do
	{
		usleep(20_000);
		look_at_slot($_) foreach holders_of($server, 'making');
		$states = drive($server, "SELECT string_agg(index || ' ' || state, ', ') FROM pmhash.indexes WHERE index ~ '^[$of]_' AND state NOT IN ('valid', 'empty')");
		return 'all valid' if defined $states && $states eq '' && (!defined $w{builder} || is_done($w{builder}));
	} while (time < $deadline);
	return (defined $states ? $states : '') . (defined $w{builder} && !is_done($w{builder}) ? ' in the background' : '');
}

# ---- steps ----

my %ddl = (
	create => 'CREATE INDEX %4$s %2$s ON %1$s USING pmhash (k) WITH (wal = on)',
	reindex => 'REINDEX INDEX %4$s %3$s',
	drop => 'DROP INDEX %4$s %3$s',
	table => 'REINDEX TABLE %4$s %1$s');

# DDL of a table's index; what is concurrent may wait for snapshots, so it is left alone.
sub change_index
{
	my ($table, $what, $concurrently) = @_;
	my $index = drive('primary', "SELECT min(indexrelid::regclass::text) FROM pg_index WHERE indrelid = '$table'::regclass") // '';
	my $sql;

	if (defined $w{builder} && !is_done($w{builder}))
	{
		end_waited_for(0);
		settle('primary', 1);
		return 'one is being made' if !is_done($w{builder});
	}
	$what = 'create' if $index eq '';
	$sql = sprintf($ddl{$what}, $table, "${table}_k" . ++$w{names}, $index, $concurrently ? 'CONCURRENTLY' : '');
	$sql =~ s/ WITH .*// if $table eq 'u';
	$w{changed}{$_}{$table} = $w{step} foreach qw(primary standby);
	if (!$concurrently)
	{
		return "$sql: " . (defined drive('primary', $sql) ? 'done' : 'not done');
	}
	if (!defined $w{builder} || $w{builder}{dead})
	{
		$w{builder} = new_session('primary');
		run_sql($w{builder}, "SET statement_timeout = '30s'");
	}
	begin_sql($w{builder}, $sql);
	usleep(30_000);
	return $sql;
}

# What an interrupted CONCURRENTLY has left behind.
sub drop_invalid
{
	my $left = drive('primary', 'SELECT string_agg(indexrelid::regclass::text, \',\') FROM pg_index WHERE NOT indisvalid') // '';

	drive('primary', "DROP INDEX $left") if $left ne '' && (!defined $w{builder} || is_done($w{builder}));
	return;
}

sub delete_rows
{
	my ($table) = @_;
	return "DELETE FROM $table WHERE k IN (" . some_keys(between(1, 5)) . ')';
}

sub insert_rows
{
	my ($table) = @_;
	return "INSERT INTO $table SELECT i % $keys, i FROM generate_series(1, " . between(12, 60) . ') i';
}

# No VACUUM while a slot is being made on the standby: what it says of pages, that all see all
# their rows, is not so for the snapshot that comes with it, whatever the scan (heapam.c).
sub change_rows_of
{
	my ($table) = @_;
	my @vacuum = ("VACUUM (INDEX_CLEANUP on) $table", "VACUUM $table");

	return one_of(
		insert_rows($table), delete_rows($table), delete_rows($table) . '; ' . insert_rows($table),
		"UPDATE $table SET k = (k + 1) % $keys WHERE k IN (" . some_keys(2) . ')',
		"UPDATE $table SET v = v + 1 WHERE k IN (" . some_keys(2) . ')',
		"BEGIN; " . delete_rows($table) . '; ROLLBACK',
		"TRUNCATE $table; " . insert_rows($table),
		holders_of('standby', qw(making stopped)) ? () : @vacuum, "VACUUM FULL $table",
		"SET enable_seqscan = off; " . "SELECT count(v) FROM $table WHERE k = ANY (ARRAY(SELECT generate_series(0, $keys))); SELECT pg_sleep(0.03); " x 2);
}

# Those whom a rebuild waits for end: transactions, and slots that are being made, for which
# CONCURRENTLY does not wait.
sub end_waited_for
{
	my ($slots) = @_;
	my @ended = holders_of('primary', 'live', $slots ? qw(making stopped) : ());

	end_writer();
	end_prepared() for 1 .. 4;
	close_holder($_) foreach @ended;
	return @ended ? 'end ' . join(', ', map { $_->{name} } @ended) . '; ' : '';
}

# The heart of it: rows go, and an index becomes valid that has no entries of them.
sub turn
{
	my $server = defined $w{node}{standby} && rand() < .35 ? 'standby' : 'primary';
	my $table = one_of(tables_of($server));
	my $delete = delete_rows($table);
	my $r = rand();
	my $said = rand() < .8 ? $server eq 'primary' ? end_waited_for($r < .5) : (end_writer() // '') : '';
	my $how;

	drive('primary', $delete);
	try_to_catch_up(2) if $server eq 'standby';
	if ($server eq 'standby' || $r < .5) { $how = 'file ' . lose_file($server, $table) }
	elsif ($r < .7) { $how = change_index($table, 'drop', 0) . '; ' . change_index($table, 'create', rand() < .7) }
	else { $how = change_index($table, 'reindex', rand() < .8) }
	$how .= '; ' . settle($server, 1);
	if ($how !~ /all valid$/ && $server eq 'primary' && rand() < .7)
	{
		$how .= '; ' . end_waited_for(1) . settle($server, 1);
	}
	$how .= '; ' . (slot_goes_on() // 'no slot') if $server eq 'primary' && $r > .5 && rand() < .6;
	if ($server eq 'primary' && has_room($server) && rand() < .6)
	{
		my $slot = one_of(grep { $_->{kind} eq 'slot' } holders_of($server));
		my $to = defined $slot ? open_snapshot($server, 'import', $slot->{snapshot}) : undef;

		$how .= "; $to->{name} takes over from $slot->{name}" if defined $to;
	}
	return "$said$server: $delete; $how";
}

# A snapshot that is waited for is handed on.
sub hand_on
{
	my ($server) = @_;
	my @from = grep { $_->{kind} =~ /^rr|^import|^slot/ && defined $_->{snapshot} } holders_of($server);
	my $from = one_of(@from) // return;
	my $to = open_snapshot($server, 'import', $from->{snapshot}) // return;

	close_holder($from);
	settle($server, 1);
	return "$server: $from->{name} is handed on to $to->{name}";
}

# Until CONCURRENTLY waits for this holder's transaction, if it does.
sub is_waited_for
{
	my ($holder) = @_;
	my ($pid) = run_sql($holder->{session}, 'SELECT pg_backend_pid()');
	my $deadline = time + 3;

	return 0 if $pid !~ /^\d+$/;
	while (time < $deadline)
	{
		return 1 if (drive('primary', <<SQL) // '') eq 't';
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'virtualxid' AND $pid = ANY (pg_blocking_pids(pid)))
SQL
		usleep(5_000);
	}
	return 0;
}

# The same while CONCURRENTLY waits for it, which does not wait for who has it next.
sub hand_on_past_concurrently
{
	my $table = one_of(tables_of('primary'));
	my $said = end_waited_for(rand() < .5);
	my $from = open_snapshot('primary', 'rr') // return;
	my $to;

	drive('primary', delete_rows($table));
	$said .= change_index($table, 'drop', 0) . '; ' if rand() < .5;
	$said .= change_index($table, one_of('create', 'reindex'), 1);
	if (is_waited_for($from))
	{
		$to = open_snapshot('primary', 'import', $from->{snapshot});
		close_holder($from);
		$figures{handed_on}++ if defined $to;
	}
	return "$said: " . (defined $to ? "$from->{name} is handed on to $to->{name}; " : 'not handed on; ') . settle('primary', 1);
}

sub take_over
{
	my ($server) = @_;
	my $from = one_of(grep { defined $_->{snapshot} } holders_of($server)) // return;
	my $to = has_room($server) ? open_snapshot($server, 'import', $from->{snapshot}) : undef;

	return if !defined $to;
	return "$server: $to->{name} takes over from $from->{name}";
}

# A transaction with an id is open: snapshots are as old, and slots wait for it.
sub begin_writer
{
	return if defined $w{writer};
	$w{writer} = new_session('primary');
	run_sql($w{writer}, "BEGIN; INSERT INTO w VALUES (1); " . (rand() < .5 ? insert_rows('a') : ''));
	return 1;
}

sub end_writer
{
	my @ends = @_ ? @_ : ('COMMIT', 'ROLLBACK', "PREPARE TRANSACTION 'p" . ++$w{names} . "'");
	my $writer = delete $w{writer} // return;
	my $said = one_of(@ends);

	run_sql($writer, $said);
	end_session($writer);
	return $said;
}

sub end_prepared
{
	my $name = drive('primary', 'SELECT min(gid) FROM pg_prepared_xacts') // '';

	return if $name eq '';
	drive('primary', one_of('COMMIT', 'ROLLBACK') . " PREPARED '$name'");
	return "$name ends";
}

# (A slot is not made before all open transactions with an id are over.)
sub slot
{
	my ($server) = @_;
	my $late = rand() < .6;
	my $use = rand() < .4;
	my $holder;
	my $said = '';

	return if !has_room($server) || $server eq 'standby' && !(standbys_have_slots() && try_to_catch_up(1));
	if ($late)
	{
		begin_writer();
		try_to_catch_up(1) if $server eq 'standby';
	}
	$holder = begin_slot($server, $use);
	if ($late)
	{
		$said = stop_slot($holder) ? 'stopped' : 'not stopped';
		$said .= ', writer: ' . (end_writer() // '') if rand() < .7;
	}
	else
	{
		usleep(50_000);
	}
	if ($holder->{state} ne 'stopped')
	{
		standby_snapshot();
		look_at_slot($holder);
	}
	return "$server: $holder->{name} $said: $holder->{state}";
}

# Slots of a standby wait for it.
sub standby_snapshot
{
	drive('primary', 'SELECT pg_log_standby_snapshot()') if standbys_have_slots();
	try_to_catch_up(1);
	return;
}

sub slot_goes_on
{
	my $holder = one_of(map { holders_of($_, 'stopped') } servers()) // return;

	standby_snapshot() if $holder->{server} eq 'standby';
	return go_on_to_end($holder, 1);
}

# It goes on, and is made, or until it is clear that this takes longer.
sub go_on_to_end
{
	my ($holder, $seconds) = @_;
	my $deadline = time + $seconds;

	go_on($holder) if $holder->{state} eq 'stopped';
	do
	{
		usleep(5_000);
		look_at_slot($holder);
	} while ($holder->{state} eq 'making' && !$holder->{session}{dead} && time < $deadline);
	return "$holder->{name} goes on: $holder->{state}";
}

# A slot has its place in WAL, then rows go, and CONCURRENTLY, which does not wait for it,
# makes an index valid without them; after that the slot is made.  CHECKPOINT writes down
# which transactions run (none): by that place the slot's snapshot is as of then.
sub late_slot
{
	my $table = one_of(tables_of('primary'));
	my $said = end_waited_for(1) . "$table: ";
	my $holder;

	drive('primary', insert_rows($table));
	$said .= change_index($table, 'drop', 0) . '; ' if rand() < .5;
	begin_writer();
	$holder = begin_slot('primary', rand() < .6);
	$holder->{focus} = $table;
	return "$said$holder->{name} is not stopped" if !stop_slot($holder);
	end_writer('COMMIT', 'ROLLBACK');
	drive('primary', 'CHECKPOINT');
	drive('primary', delete_rows($table));
	$said .= change_index($table, one_of('create', 'reindex'), 1) . '; ' . settle('primary', 10);
	$figures{late_slots}++ if $said =~ /all valid$/;
	return "$said; " . go_on_to_end($holder, 5);
}

# Rows of a table go, and scans that find them dead remove their entries; no page is pruned.
sub entries_go
{
	my ($table) = @_;
	my $delete = delete_rows($table);
	my $all_keys = join(',', 0 .. $keys - 1);
	my $index = drive('primary', "SELECT min(indexrelid::regclass::text) FROM pg_index WHERE indrelid = '$table'::regclass");
	my $deadline = time + 5;

	return 'no index' if ($index // '') eq '';
	drive('primary', $delete);
	while (time < $deadline)
	{
		drive('primary', removing_scans($table, "ANY ('{$all_keys}')"));
		return "$delete; entries are gone"
		  if (drive('primary', "SELECT entries = (SELECT count(*) FROM $table) FROM pmhash.stats('$index')") // '') eq 't';
	}
	return "$delete; entries are left";
}

# The same on a standby (from 16 on): entries of rows that slots' snapshots see are removed
# before these are made.  The primary must not know of them (hot_standby_feedback), nor prune
# the rows, so its pages have room.
sub late_slots_of_standby
{
	my $node = $w{node}{standby} // return;
	my $table = one_of(qw(a b));
	my ($said, @slots);

	return if !standbys_have_slots();
	$said = end_waited_for(1) . "standby, $table: ";
	close_holder($_) foreach holders_of('standby', qw(live making stopped));
	$node->append_conf('postgresql.conf', "hot_standby_feedback = off\n");
	$node->reload;
	drive('primary', "TRUNCATE $table; " . insert_rows($table));
	$said .= catch_up() . ', ' . settle('standby', 10);
	begin_writer();
	try_to_catch_up(2);
	@slots = map { begin_slot('standby', $_) } 0, 1;
	foreach my $slot (@slots)
	{
		$slot->{focus} = $table;
		$said .= "; $slot->{name} is not stopped" if !stop_slot($slot);
	}
	end_writer('COMMIT', 'ROLLBACK');
	standby_snapshot();
	$said .= '; ' . entries_go($table);
	try_to_catch_up(3);
	$figures{late_slots_of_standbys}++ if $said =~ /entries are gone$/;
	return "$said; " . join('; ', map { go_on_to_end($_, 5) } @slots);
}

sub open_cursor
{
	my ($server) = @_;
	my $holder = one_of(grep { $_->{kind} =~ /^rr|^import/ && !defined $_->{cursor} } holders_of($server)) // return;
	my $table = one_of(tables_of($server));
	my $some = join(',', sort { $a <=> $b } keys %{ { map { $_ => 1 } split(/,/, some_keys(3)) } });
	my $first = ask($holder, "CLOSE ALL; DECLARE c CURSOR FOR SELECT k, v FROM $table WHERE k = ANY ('{$some}'); FETCH 1 c", 'cursor');

	return if !defined $first;
	# it has to outlast what the other questions take back
	ask($holder, 'RELEASE s; SAVEPOINT s', 'savepoint');
	$holder->{cursor} = { table => $table, keys => $some, first => $first };
	return "$server: $holder->{name} has a cursor on $table";
}

# A standby has a file that is not for snapshots as old as those that replay begins with
# after a restart.
sub delayed_restart
{
	my $node = $w{node}{standby} // return;
	my $table = one_of(qw(a b));
	my $said;

	catch_up();
	drive('primary', insert_rows($table));
	drive('primary', 'CHECKPOINT');
	catch_up();
	drive('standby', 'CHECKPOINT');
	drive('primary', delete_rows($table));
	catch_up();
	lose_file('standby', $table);
	$said = settle('standby', 2);
	forget_server('standby');
	crash($node);
	sessions_are_gone('standby');
	$node->append_conf('postgresql.conf', "recovery_min_apply_delay = '1h'\n");
	$node->start;
	open_snapshot('standby', 'rr') for 1 .. 2;
	$node->append_conf('postgresql.conf', "recovery_min_apply_delay = 0\n");
	$node->reload;
	$w{changed}{standby}{$_} = $w{step} foreach @tables;
	return "standby, $table: $said; crash, replay is late; " . (try_to_catch_up(3) ? 'replayed' : 'held up') . '; ' . settle('standby', 2);
}

# Before a promotion: snapshots of the standby that are older than its files.
sub prepare_promotion
{
	my $said = catch_up();

	return $said if rand() < .2;
	end_waited_for(1);
	standbys_have_slots() && rand() < .6 ? begin_slot('standby', rand() < .3) : open_snapshot('standby', 'rr') for 1 .. 3;
	standby_snapshot();
	look_at_slot($_) foreach holders_of('standby', 'making');
	foreach my $table (qw(a b))
	{
		drive('primary', delete_rows($table));
		try_to_catch_up(1);
		lose_file('standby', $table);
	}
	return "$said; rows and files go: " . settle('standby', 2);
}

# The standby is promoted, and the old primary lost, or left alone, or rebuilt.
sub promote
{
	my $node = $w{node}{standby};
	my $old = $w{node}{primary};
	my $r = rand();
	my $said = prepare_promotion();
	my $turns = 0;
	my $deadline;

	if ($r < .4)
	{
		forget_server('primary');
		$old->stop('immediate');
		sessions_are_gone('primary');
	}
	$node->safe_psql('postgres', 'SELECT pg_promote(false)');
	$deadline = time + 4;
	while ((drive('standby', 'SELECT pg_is_in_recovery()') // '') ne 'f')
	{
		usleep(20_000);
		next if time < $deadline;
		die 'no promotion' if $turns++ > 20;
		end_oldest_of_standby();
		$deadline = time + 2;
	}
	return "promotion ($said)" . new_roles($r < .4 ? undef : $old);
}

sub new_roles
{
	my ($old) = @_;
	my %was = %{ $w{node} };

	$w{promoted} = 1;
	if (defined $old)
	{
		end_session($w{writer}) if defined $w{writer};
		end_session($w{builder}) if defined $w{builder};
	}
	delete @w{qw(writer builder)};
	foreach my $part (qw(node driver idle changed))
	{
		$w{$part}{left} = delete $w{$part}{primary};
		$w{$part}{primary} = delete $w{$part}{standby};
	}
	$w{node}{left} = $old;
	foreach my $thing (@{ $w{holders} }, @{ $w{sessions} })
	{
		$thing->{server} = { primary => 'left', standby => 'primary' }->{ $thing->{server} } // $thing->{server};
	}
	# changes of before count for them, too
	$w{changed}{primary}{$_} = $w{step} foreach @tables;
	push @{ $w{nodes} }, $was{standby};
	return defined $old ? ', the old one is left' : ', the old one is gone';
}

# There is a standby again.
sub another_standby
{
	return if defined $w{node}{standby} || !$w{promoted};
	if (defined $w{node}{left})
	{
		forget_server('left');
		$w{node}{left}->stop('immediate');
		sessions_are_gone('left');
		delete $w{node}{left};
	}
	$w{node}{standby} = new_standby($w{node}{primary}, "again$w{seed}", $w{standby_settings});
	push @{ $w{nodes} }, $w{node}{standby};
	$w{idle}{standby} = [];
	return 'another standby; ' . settle('standby', 3);
}

sub on_some_server
{
	my ($primary, $sub) = @_;
	my $server = defined $w{node}{standby} && rand() > $primary ? 'standby' : 'primary';

	return $sub->($server);
}

# What can be done, and how often.  A step that is not possible is none.
my @steps = (
	[ 12, \&turn ],
	[ 8, sub { my $sql = change_rows_of(one_of(tables_of('primary'))); drive('primary', $sql); $sql } ],
	[ 4, sub { my ($t, $s) = (one_of(qw(a b)), one_of('primary', 'standby')); defined $w{node}{$s} ? "$s, $t: " . lose_file($s, $t) : undef } ],
	[ 3, sub { change_index(one_of(tables_of('primary')), one_of(keys_of_ddl()), rand() < .6) } ],
	[ 5, sub { on_some_server(.5, sub { has_room($_[0]) ? do { my $h = open_snapshot($_[0], 'rr'); "$_[0]: " . ($h ? $h->{name} : 'none') } : undef }) } ],
	[ 6, sub { on_some_server(.6, \&take_over) } ],
	[ 3, sub { on_some_server(.5, \&hand_on) } ],
	[ 4, \&hand_on_past_concurrently ],
	[ 4, sub { my $h = one_of(map { holders_of($_) } servers()) // return; close_holder($h); "end of $h->{name}" } ],
	[ 2, sub { begin_writer() ? 'writer begins' : undef } ],
	[ 4, sub { my $said = end_writer() // return; "writer: $said" } ],
	[ 3, \&end_prepared ],
	[ 7, sub { on_some_server(.5, \&slot) } ],
	[ 5, \&slot_goes_on ],
	[ 1, \&late_slot ],
	[ 1, \&late_slots_of_standby ],
	[ 3, sub { on_some_server(.5, \&open_cursor) } ],
	[ 1, sub { defined $w{node}{standby} ? do { restart('standby', my $how = one_of('fast', 'immediate', 'crash')); "standby: $how restart" } : undef } ],
	[ .7, sub { my $how = one_of('fast', 'immediate', 'crash'); restart('primary', $how); "primary: $how restart" } ],
	[ 2, \&delayed_restart ],
	[ 2, sub { 'catch up: ' . catch_up() } ],
	[ 1, sub { drive('primary', 'CHECKPOINT'); 'CHECKPOINT' } ],
	[ 1, \&another_standby ]);

# What each history has, at this part of its steps.
my @in_each = ([ .15, \&late_slot ], [ .3, \&hand_on_past_concurrently ], [ .5, \&late_slots_of_standby ], [ .6, \&promote ]);

sub keys_of_ddl
{
	return sort keys %ddl;
}

sub one_step
{
	for (1 .. 5)
	{
		my $total = 0;
		my $said;

		$total += $_->[0] foreach @steps;
		my $r = rand($total);
		foreach my $step (@steps)
		{
			$r -= $step->[0];
			next if $r >= 0;
			$said = $step->[1]->();
			last;
		}
		return $said if defined $said;
	}
	return 'nothing';
}

# ---- histories ----

sub begin_history
{
	my ($seed) = @_;
	my $delay = one_of(qw(-1 -1 1s));

	%w = (seed => $seed, step => 0, names => 0, holders => [], sessions => [], log => [], finding => '', node => {}, going_down => 0);
	$w{standby_settings} = "max_standby_streaming_delay = $delay\nbgwriter_lru_maxpages = 0\nhot_standby_feedback = " . one_of('on', 'off') . "\n";
	push @{ $w{log} }, $w{standby_settings} =~ s/\n/, /gr;
	$w{node}{primary} = new_primary("primary$seed", <<CONF);
wal_level = logical
max_replication_slots = 20
max_wal_senders = 20
max_connections = 60
max_worker_processes = 20
autovacuum = on
autovacuum_naptime = 1
log_statement = none
client_connection_check_interval = 100
CONF
	$w{node}{primary}->safe_psql('postgres', schema());
	$w{node}{standby} = new_standby($w{node}{primary}, "standby$seed", $w{standby_settings});
	$w{nodes} = [ values %{ $w{node} } ];
	drive('primary', insert_rows($_) . '; ' . insert_rows($_)) foreach @tables;
	catch_up();
	settle('standby', 20);
	return;
}

# All snapshots end; then all indexes are valid, and have what the tables have.
sub end_history
{
	foreach my $server (servers())
	{
		go_on($_) foreach holders_of($server, 'stopped');
		close_holder($_) foreach holders_of($server, qw(live making));
	}
	end_session(delete $w{writer}) if defined $w{writer};
	end_prepared() for 1 .. 4;
	answer_of(delete $w{builder}) if defined $w{builder};
	drop_invalid();
	catch_up();
	foreach my $server (grep { $_ ne 'left' } servers())
	{
		my $states = settle($server, 60);
		my $out;

		$w{finding} .= "in the end, $server: $states\n" if $states ne 'all valid';
		$out = drive($server, "SELECT pmhash.check(index::regclass) FROM pmhash.indexes WHERE index ~ '^[abu]_' AND state = 'valid'");
		$w{finding} .= "in the end, $server: pmhash.check: $w{error}\n" if !defined $out;
	}
	return;
}

sub stop_servers
{
	my @all = @{ $w{sessions} };

	$w{going_down} = 1;
	kill('CONT', map { $_->{pid} } grep { $_->{state} eq 'stopped' } @{ $w{holders} });
	end_session($_) foreach @all;
	foreach my $node (reverse @{ $w{nodes} })
	{
		my $log = slurp_file($node->logfile);

		$node->stop('immediate') if defined $node->{_pid};
		$w{finding} .= $node->name . ": $1\n" if $log =~ /(.*(?:PANIC:|TRAP|terminated by signal (?:6|11)|XX001|XX002).*)/;
	}
	return;
}

sub run_steps
{
	my ($seed, $steps) = @_;

	for my $n (1 .. $steps)
	{
		my $at = @{ $w{log} };
		my ($step) = grep { $n == int($steps * $_->[0]) } @in_each;
		my $said;

		srand($seed * 10007 + $n);
		$w{step} = $n;
		$said = defined $step ? $step->[1]->() : undef;
		$said //= one_step();
		splice(@{ $w{log} }, $at, 0, "$n: $said");
		drop_invalid() if rand() < .3;
		look_around();
		$figures{steps}++;
		note(join("\n", @{ $w{log} }[ $at .. $#{ $w{log} } ]));
		last if $w{finding} ne '';
	}
	return;
}

# One history of so many steps.  Returns what is wrong, with all steps, or ''.
sub snapshot_history
{
	my ($seed, $steps) = @_;

	srand($seed);
	begin_history($seed);
	my $pauses = start_pauses(@{ $w{nodes} });

	eval { run_steps($seed, $steps); 1 } or $w{finding} .= $@;
	end_pauses($pauses);
	srand($seed * 10007);
	end_history() if $w{finding} eq '';
	stop_servers();
	$figures{histories}++;
	return $w{finding} eq '' ? '' : "$w{finding}---- steps ----\n" . join("\n", @{ $w{log} }, '');
}

sub history_figures
{
	return \%figures;
}

1;
