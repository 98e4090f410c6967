# Kill cycles: a mixed load, a crash of some kind in the middle of it, a
# restart, and a look at everything.  Until the server is up again processes are stopped at
# random (PmhashPauses.pm).  Used by test/t/start/kill_cycles.pl, with
# few cycles in "make test" and many in "make soak".
#
# What is looked at after each crash:
#	- all indexes are valid, and none was rebuilt, if no start was killed: nothing may hide a loss;
#	- each index gives what a sequential scan gives, row by row, in plain,
#	  bitmap and index-only scans; pmhash.check has no finding;
#	- rows whose commit was acknowledged to a client are as that commit left
#	  them, prepared transactions are there and can be finished either way;
#	- the exclusion constraint holds.

package PmhashSoak;

use v5.36;

use Exporter 'import';
use File::Path qw(mkpath rmtree);
use PmhashPauses;
use PmhashTest;

our @EXPORT = qw(
  new_soak_server
  soak_checks
  soak_cycle
  soak_summary
  crash_kinds
);

# Rows of a cycle are numbered from its number times this.
my $run_size = 1_000_000;

# Prepared transactions that are left open at any time.
my $open_prepared = 8;

# ---- tables and checks ----

# The checks of all indexes that are listed in soak_indexes: table, columns,
# index, and whether it can be scanned alone.
my $checks = <<'SQL';
CREATE TABLE soak_indexes (tab text, columns text[], index text, alone bool);

-- How scans of an index differ from sequential ones: for each key (sql/setup.sql), and
-- index-only scans.
CREATE FUNCTION soak_scans(i soak_indexes) RETURNS text LANGUAGE sql AS $$
SELECT concat_ws(', ', by_index, by_bitmap, CASE WHEN i.alone THEN difference(rows_by('index', query, i.index), rows_by('seq', query, i.index)) END)
FROM every_key(i.tab::regclass, array_to_string(i.columns, ', '), i.index),
	format('SELECT count(*), sum(hashtextextended(t.%1$s::text, 0)) FROM (SELECT DISTINCT %1$s FROM %2$s OFFSET 0) d JOIN %2$s t ON t.%1$s = d.%1$s',
		   i.columns[1], i.tab) query
$$;

-- What is wrong with an index: one line for each finding.
CREATE FUNCTION soak_findings(i soak_indexes) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	said text := soak_scans(i);
	detail text;
BEGIN
	IF said !~ '^same(, same)+$' THEN
		RETURN NEXT format('%s: %s', i.index, said);
	END IF;
	BEGIN
		PERFORM pmhash.check(i.index);
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
		RETURN NEXT format('%s: pmhash.check: %s: %s', i.index, SQLERRM, detail);
	END;
END $$;
SQL

my $schema = <<'SQL';
CREATE TABLE load (k int8, d int4, t text, a int4, b text);
CREATE INDEX load_k ON load USING pmhash (k);
CREATE INDEX load_d ON load USING pmhash (d);
CREATE INDEX load_t ON load USING pmhash (t);
CREATE INDEX load_ab ON load USING pmhash (a, b);
INSERT INTO load SELECT i, i % 10, 'text ' || i, i % 100, 'b' || i % 70 FROM generate_series(1, 20000) i;
CREATE TABLE ack (id int8);
CREATE INDEX ack_id ON ack USING pmhash (id);
CREATE TABLE pre (k int8, v int4);
CREATE INDEX pre_k ON pre USING pmhash (k);
CREATE TABLE ex (k int4, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =));
CREATE UNLOGGED TABLE un (k int4);
CREATE INDEX un_k ON un USING pmhash (k);
CREATE TABLE side (k int4);
CREATE INDEX side_k ON side USING pmhash (k);
CREATE TABLE gone (k int8, d int4);
CREATE INDEX gone_k ON gone USING pmhash (k);
CREATE INDEX gone_d ON gone USING pmhash (d);
INSERT INTO gone SELECT i, i % 20 FROM generate_series(1, 40000) i;

INSERT INTO soak_indexes VALUES
	('load', '{k}', 'load_k', true), ('load', '{d}', 'load_d', true), ('load', '{t}', 'load_t', false),
	('load', '{a,b}', 'load_ab', false), ('ack', '{id}', 'ack_id', true), ('pre', '{k}', 'pre_k', true),
	('ex', '{k}', 'ex_k', true), ('un', '{k}', 'un_k', true), ('side', '{k}', 'side_k', true),
	('gone', '{k}', 'gone_k', true), ('gone', '{d}', 'gone_d', true);

CREATE FUNCTION soak_all_findings() RETURNS SETOF text
LANGUAGE sql AS $$
SELECT f FROM soak_indexes i, soak_findings(i) f
UNION ALL
SELECT 'ex: ' || count(*) || ' rows with key ' || k FROM ex GROUP BY k HAVING count(*) > 1
UNION ALL
SELECT index::text || ': state is ' || state FROM pmhash.indexes
WHERE state <> 'valid'
$$;
SQL

sub soak_checks
{
	return $checks;
}

# ---- the load ----

# Each client of the mixed load has a range of keys of its own, so that they do
# not wait for each other much; columns d, a and b bring all together.
my $own_key = "\\set k :base + 4000 * :client_id + random(1, 3900)\n\\set n random(1, 100)\n";
my $rows = "SELECT i, i % 10, 'text ' || i, i % 100, 'b' || i % 70 FROM generate_series(:k, :k + :n) i";

my %mixed = (
	'insert@6' => "${own_key}INSERT INTO load $rows;\n",
	'insert_one@4' => "${own_key}INSERT INTO load VALUES (:k, :n % 10, 'text ' || :k, :n, 'b');\n",
	'update_key@4' => "${own_key}UPDATE load SET k = k + 1, d = (d + 1) % 10, a = a + 1 WHERE k BETWEEN :k AND :k + 10;\n",
	'update_text@3' => "${own_key}UPDATE load SET t = 'text -' || :n WHERE k = :k;\n",
	'delete@6' => "${own_key}DELETE FROM load WHERE k BETWEEN :k AND :k + :n;\n",
	'abort@2' => "${own_key}BEGIN;\nINSERT INTO load $rows;\nUPDATE load SET d = 5 WHERE k = :k;\nROLLBACK;\n",
	'savepoint@3' => <<"SQL",
${own_key}BEGIN;
INSERT INTO load $rows;
SAVEPOINT one;
INSERT INTO load $rows;
UPDATE load SET k = k + 1, t = 'never' WHERE k = :k;
ROLLBACK TO one;
SAVEPOINT two;
DELETE FROM load WHERE k = :k + 1;
ROLLBACK TO two;
SAVEPOINT three;
UPDATE load SET k = k + 1 WHERE k = :k;
RELEASE three;
COMMIT;
SQL
	'copy@2' => "COPY load FROM ':copied';\n",
	'delete_copied@1' => "DELETE FROM load WHERE k BETWEEN 10000000 AND 10000000 + 199;\n",
	'exclusion@3' => <<"SQL",
\\set k random(1, 3000)
INSERT INTO ex SELECT i FROM generate_series(:k, :k + 20) i ON CONFLICT DO NOTHING;
DELETE FROM ex WHERE k = :k + 10;
SQL
	'exclusion_delete@1' => "\\set k random(1, 3000)\nDELETE FROM ex WHERE k = :k;\n",
	'unlogged@2' => <<"SQL",
\\set k random(1, 3000)
INSERT INTO un SELECT i FROM generate_series(:k, :k + 50) i;
DELETE FROM un WHERE k = :k + 25;
SQL
	'read@4' => <<"SQL",
$own_key
SELECT count(*) FROM load WHERE k = :k;
SELECT count(*) FROM load WHERE d = :n % 10;
SELECT count(*) FROM load WHERE k = ANY (ARRAY[:k, :k + 1, :k + 2, :n]);
SELECT count(*) FROM load WHERE a = :n AND b = 'b' || :n % 70;
SELECT count(*) FROM load WHERE t = 'text ' || :k;
SQL
);

# Transaction number n adds row n, changes the key of row n - 5 and deletes
# row n - 9.  pgbench's log tells which transactions were acknowledged.
my $acknowledged = <<'SQL';
\set n :n + 1
\set id :client_id * 100000 + :n
\set changed :id - 5
\set deleted :id - 9
BEGIN;
INSERT INTO ack VALUES (:run + :id);
UPDATE ack SET id = -id WHERE id = :run + :changed;
DELETE FROM ack WHERE id = -(:run + :deleted);
COMMIT;
SQL

# Transaction number n prepares p-n and finishes the one that was prepared
# some time before: even ones are committed, odd ones rolled back.
my $prepared = <<"SQL";
\\set n :n + 1
\\set id :run + :n
\\set old :id - $open_prepared
\\set commits (:old % 2) = 0
\\if :n > $open_prepared
\\if :commits
COMMIT PREPARED 'p-:old';
\\else
ROLLBACK PREPARED 'p-:old';
\\endif
\\endif
BEGIN;
INSERT INTO pre SELECT :id, i FROM generate_series(1, 30) i;
SAVEPOINT s;
INSERT INTO pre SELECT :id, i FROM generate_series(100, 130) i;
ROLLBACK TO s;
UPDATE pre SET k = -k WHERE k = :id AND v <= 10;
PREPARE TRANSACTION 'p-:id';
SQL

my $vacuum = <<'SQL';
VACUUM load;
\sleep 20 ms
VACUUM ack, pre, ex, un;
CHECKPOINT;
VACUUM (TRUNCATE OFF) load;
\sleep 50 ms
SQL

# Nearly all rows of a table go, and VACUUM shrinks its indexes, so slowly that
# a crash is likely to come in the middle.  Only rows go that every transaction
# sees as dead, hence the pause.
my $shrink = <<'SQL';
\set n random(1, 1000)
DELETE FROM gone WHERE (k + :n) % 20 <> 0;
\sleep 100 ms
VACUUM gone;
INSERT INTO gone SELECT :n + i, i % 20 FROM generate_series(1, 40000) i;
SQL
my $shrinking = '-c log_min_messages=debug1 -c vacuum_cost_delay=4ms -c vacuum_cost_limit=70';

my $ddl = <<'SQL';
BEGIN;
TRUNCATE side;
INSERT INTO side SELECT generate_series(1, 500);
COMMIT;
REINDEX INDEX side_k;
DROP INDEX IF EXISTS side_2;
CREATE INDEX side_2 ON side USING pmhash ((k % 7));
DROP INDEX side_2;
BEGIN;
CREATE INDEX side_3 ON side USING pmhash ((k % 9));
ROLLBACK;
INSERT INTO side SELECT generate_series(1, 100);
\sleep 50 ms
SQL

# Where scripts and pgbench's logs are: of one run, whichever server it is on.
my $directory;

sub write_scripts
{
	my %script = (%mixed, ack => $acknowledged, prepared => $prepared, vacuum => $vacuum,
		shrink => $shrink, ddl => $ddl);

	($directory) = @_;
	mkpath($directory);
	append_to_file("$directory/copied.data",
		join('', map { 10_000_000 + $_ . "\t" . $_ % 10 . "\tcopied $_\t$_\tb\n" } 0 .. 199));
	foreach my $key (keys %script)
	{
		my $text = $script{$key};
		my ($name) = split /@/, $key;

		$text =~ s/:copied/$directory\/copied.data/;
		append_to_file("$directory/$name.sql", $text);
	}
	return;
}

sub start_clients ($node, $name, $options, @arguments)
{
	my $output = '';

	local $ENV{PGAPPNAME} = "soak $name";
	local $ENV{PGOPTIONS} = "-c enable_seqscan=off $options";
	return {
		name => $name,
		output => \$output,
		process => start_pgbench($node, \$output, '-T', '600', '--max-tries=100', @arguments)
	};
}

# 'durable' are settings of those whose commits must not be lost.
sub start_load ($node, $cycle, $durable)
{
	my $run = $cycle * $run_size;
	my @mixed;

	foreach my $name (sort keys %mixed)
	{
		my ($file, $weight) = split /@/, $name;

		push @mixed, '-f', "$directory/$file.sql\@$weight";
	}
	rmtree("$directory/log");
	mkpath("$directory/log");
	return (
		start_clients($node, 'synchronous', '', '-c', '2', '-D', 'base=0', @mixed),
		start_clients($node, 'asynchronous', '-c synchronous_commit=off', '-c', '3', '-D', 'base=20000', @mixed),
		start_clients($node, 'acknowledged', $durable, '-c', '2', '-D', "run=$run", '-D', 'n=0',
			'-l', '--log-prefix', "$directory/log/ack", '-f', "$directory/ack.sql"),
		start_clients($node, 'prepared', $durable, '-c', '1', '-D', "run=$run", '-D', 'n=0',
			'-l', '--log-prefix', "$directory/log/prepared", '-f', "$directory/prepared.sql"),
		start_clients($node, 'vacuum', '', '-c', '1', '-f', "$directory/vacuum.sql"),
		start_clients($node, 'shrink', $shrinking, '-c', '1', '-f', "$directory/shrink.sql"),
		start_clients($node, 'ddl', '', '-c', '1', '-f', "$directory/ddl.sql"));
}

# Transactions acknowledged to each client, from pgbench's log.
sub count_acknowledged ($prefix)
{
	my %count;

	foreach my $file (glob "$directory/log/$prefix.*")
	{
		foreach my $line (split /\n/, slurp_file($file))
		{
			my ($client, $number) = split / /, $line;

			# a transaction that has failed is not acknowledged
			$count{$client}++ unless $line =~ /failed|skipped/;
		}
	}
	return %count;
}

# ---- a server for it ----

sub new_soak_server ($name, $settings = '')
{
	my $node = new_server($name, <<CONF . ($settings));
max_connections = 40
max_prepared_transactions = 20
max_wal_size = 64MB
checkpoint_timeout = 30s
wal_writer_delay = 1s
pmhash.journal_size = 64kB
log_statement = none
CONF
	$node->append_conf('pg_hba.conf', "local replication all trust\n");
	start_with_extension($node);
	$node->safe_psql('postgres', soak_checks());
	$node->safe_psql('postgres', $schema);
	write_scripts($node->basedir . '/soak');
	return $node;
}

# ---- crashes ----

# Stop the processes that flush WAL on their own account, and go on for a
# moment: what the asynchronous clients write now is in no file yet.
sub hold_wal_back ($node)
{
	my @pids = split /\n/, $node->safe_psql(
		'postgres', <<SQL);
SELECT pid FROM pg_stat_activity
WHERE backend_type IN ('walwriter', 'background writer', 'checkpointer', 'pmhash launcher')
	OR (application_name LIKE 'soak %' AND application_name <> 'soak asynchronous')
SQL

	kill('STOP', @pids);
	usleep(30_000 + rand(100_000));
	return;
}

# Start a dead server and kill all its processes while it recovers.
sub start_and_kill ($node)
{
	my $file = $node->data_dir . '/postmaster.pid';
	my $deadline = time + 30;
	my ($pid, @pids);

	unlink($file);
	system_log('pg_ctl', '-W', '-D', $node->data_dir, '-l', $node->logfile, 'start');
	until (defined $pid && $pid =~ /^\d+$/)
	{
		usleep(1_000);
		die "the server was not started" if time > $deadline;
		($pid) = split /\n/, slurp_file($file) if -s $file;
	}
	usleep(rand(150_000));
	kill('STOP', $pid);
	@pids = PmhashTest::children($pid);
	kill('KILL', $pid, @pids);
	PmhashTest::wait_until_dead($node, $pid, @pids);
	return;
}

sub crash_all ($node)
{
	crash($node);
	$node->start;
	return;
}

# Kill it again while it recovers, up to three times.
sub crash_in_recovery ($node)
{
	crash($node);
	start_and_kill($node) foreach 0 .. int(rand(3));
	$node->start;
	return;
}

# End one process in a bad way: the postmaster ends the others and starts
# recovery.
sub crash_one ($node, $signal)
{
	my $from = -s $node->logfile;
	my @pids = split /\n/, $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'soak %'");

	kill($signal, $pids[ rand @pids ]);
	$node->wait_for_log(qr/database system is ready to accept connections/, $from);
	return;
}

my %crash = (
	'kill -9 of all processes' => \&crash_all,
	'kill -9 of all, WAL held back' => sub { hold_wal_back($_[0]); crash_all($_[0]) },
	'kill -9 in recovery' => \&crash_in_recovery,
	'kill -9 in recovery, WAL held back' => sub { hold_wal_back($_[0]); crash_in_recovery($_[0]) },
	'kill -9 of a backend' => sub { crash_one($_[0], 'KILL') },
	'abort() of a backend, as PANIC does' => sub { crash_one($_[0], 'ABRT') },
	'immediate shutdown' => sub { $_[0]->stop('immediate'); $_[0]->start });

# The kinds of crashes, in the order of a run.
sub crash_kinds
{
	return (
		'kill -9 of all, WAL held back',
		'kill -9 of a backend',
		'kill -9 of all processes',
		'kill -9 in recovery, WAL held back',
		'immediate shutdown',
		'kill -9 of all processes',
		'kill -9 of all, WAL held back',
		'abort() of a backend, as PANIC does',
		'kill -9 in recovery',
		'kill -9 of all, WAL held back');
}

# ---- what must be there ----

# Rows of table ack after n transactions of a client.
sub expected_ack ($run, $client, $n)
{
	my $base = $run + 100_000 * $client;

	return join(',',
		sort { $a <=> $b } ((map { $base + $_ } grep { $_ > 0 } $n - 4 .. $n),
			(map { -($base + $_) } grep { $_ > 0 } $n - 8 .. $n - 5)));
}

# Each client's rows are as its last acknowledged transaction has left them,
# or the one after that, which may have been committed without its knowing.
sub check_acknowledged ($node, $run)
{
	my %count = count_acknowledged('ack');
	my $wrong = '';
	my $total = 0;

	foreach my $client (0, 1)
	{
		my $n = $count{$client} // 0;
		my $base = $run + 100_000 * $client;
		my $got = $node->safe_psql('postgres',
			"SELECT string_agg(id::text, ',' ORDER BY id) FROM ack WHERE abs(id) BETWEEN $base AND $base + 99999");

		$total += $n;
		$wrong .= "client $client, $n transactions: $got\n"
		  unless $got eq expected_ack($run, $client, $n) || $got eq expected_ack($run, $client, $n + 1);
	}
	return ($wrong, $total);
}

# Prepared transactions: those acknowledged and not finished are there, those
# finished are not; of committed ones all rows are there, of others none.
sub check_prepared ($node, $run)
{
	my %count = count_acknowledged('prepared');
	my $n = $count{0} // 0;
	my $wrong = '';
	my %open = map { $_ => 1 } split /\n/,
	  $node->safe_psql('postgres', "SELECT substr(gid, 3)::int8 - $run FROM pg_prepared_xacts");
	my %visible = map { split /\|/ } split /\n/,
	  $node->safe_psql('postgres',
		"SELECT abs(k) - $run, count(*) FILTER (WHERE (k < 0) = (v <= 10) AND v <= 30) FROM pre WHERE abs(k) > $run GROUP BY 1");

	foreach my $i (1 .. $n + 1)
	{
		my $finished = !$open{$i} && $i <= $n + 1 - $open_prepared;
		my $rows = $visible{$i} // 0;

		$wrong .= "p-$i is lost\n" if !$open{$i} && $i > $n + 1 - $open_prepared && $i <= $n;
		$wrong .= "p-$i is back\n" if $open{$i} && $i <= $n - $open_prepared;
		$wrong .= "p-$i: $rows rows\n" if $rows != ($finished && ($run + $i) % 2 == 0 ? 30 : 0);
	}
	return ($wrong, join(' ', sort { $a <=> $b } keys %open));
}

# Finish them, half of them either way; tell whether their rows are there.
sub finish_prepared ($node, $run, @open)
{
	my $wrong = '';

	foreach my $i (@open)
	{
		my $gid = $run + $i;
		my $even = $gid % 2 == 0;
		my $rows;

		$node->safe_psql('postgres', ($even ? 'COMMIT' : 'ROLLBACK') . " PREPARED 'p-$gid'");
		$rows = $node->safe_psql('postgres', "SELECT count(*) FROM pre WHERE abs(k) = $gid");
		$wrong .= "p-$i: $rows rows after it was finished\n" if $rows != ($even ? 30 : 0);
	}
	return $wrong;
}

# ---- a cycle ----

our %sum = (cycles => 0, acknowledged => 0, prepared => 0, undone => 0, undos => 0,
	shrinks => 0, shrinks_cut_off => 0, differences => 0);

# What the log since a place must not have: indexes given up or rebuilt would
# hide what is missing from them.
# (that of an unlogged table is rebuilt after each crash)
my $giving_up = qr/pmhash: index (?!"un_k").* has been rebuilt|could not rebuild|removed index file|are not trusted|PANIC:|pmhash is disabled/;

# What the log since a place tells of shrinks: how many have begun and ended.
sub shrinks_in_log ($node, $from)
{
	my $log = substr(slurp_file($node->logfile), $from);
	my $begun = () = $log =~ /shrinking index "gone_/g;
	my $ended = () = $log =~ /index "gone_\w" has been shrunk/g;

	return ($begun, $ended);
}

# Wait until VACUUM is shrinking an index, though not for ever.
sub wait_for_shrink ($node, $from)
{
	my $deadline = time + 10;
	my ($begun, $ended) = shrinks_in_log($node, $from);

	while ($begun == $ended && time < $deadline)
	{
		usleep(10_000);
		($begun, $ended) = shrinks_in_log($node, $from);
	}
	return;
}

# Count them; those that have not ended the crash has cut off.
sub count_shrinks ($node, $from)
{
	my ($begun, $ended) = shrinks_in_log($node, $from);

	$sum{shrinks} += $begun;
	$sum{shrinks_cut_off} += $begun - $ended;
	return;
}

sub all_findings ($node)
{
	my $findings = $node->safe_psql('postgres', 'SELECT * FROM soak_all_findings()');

	$findings =~ s/^un_k: state is empty\n?//m;
	return $findings;
}

sub soak_cycle
{
	my ($node, $cycle, $kind) = @_;
	my $name = "cycle $cycle, $kind";
	my $run = $cycle * $run_size;
	my $from = -s $node->logfile;
	my @load = start_load($node, $cycle, '');
	my $pauses = start_pauses($node);
	my ($log, $undone, $findings, $wrong, $acknowledged, $open);

	usleep(400_000 + rand(1_000_000));
	wait_for_shrink($node, $from) if $cycle % 4 == 0;
	$crash{$kind}->($node);
	end_pauses($pauses);
	$_->{process}->finish foreach @load;

	# the load has met no error before
	$wrong = join('', map { ${ $_->{output} } =~ /.*ERROR:.*/ ? "$_->{name}: $&\n" : '' } @load);

	# A start that was killed costs a rebuild.  That of pre_k waits for prepared transactions.
	my $rebuilt = sub {
		my ($but) = @_;
		return if $but ne '' && $kind !~ /in recovery/;
		wait_until($node, "SELECT bool_and(state = 'valid') FROM pmhash.indexes WHERE index <> '$but'", 'indexes are not rebuilt');
	};
	$rebuilt->('pre_k');

	# the launcher undoes; the first query waits for it, but an unlogged table's index for a worker
	$findings = all_findings($node) =~ s/^un_k: .*\n?//mgr;
	$log = substr(slurp_file($node->logfile), $from);
	if ($kind =~ /in recovery/)
	{
		$log =~ s/pmhash: index .* has been rebuilt|are not trusted: the last start went down before it used the pool//g;
		$log =~ s/could not rebuild index "pre_k": lock timeout//g;
		$findings =~ s/^pre_k: .*\n?//mg;
	}
	$wrong .= "log: $&\n" if $log =~ /.*$giving_up.*/;
	$undone = 0;
	$undone += $_ foreach $log =~ /(\d+) entries taken out/g;
	count_shrinks($node, $from);
	my ($lost, $n) = check_acknowledged($node, $run);
	$acknowledged = $n;
	$findings .= $lost;
	($lost, $open) = check_prepared($node, $run);
	$findings .= $lost;
	$findings .= finish_prepared($node, $run, split / /, $open);
	$rebuilt->('');
	$findings .= $node->safe_psql('postgres', "SELECT soak_findings(i) FROM soak_indexes i WHERE tab IN ('pre', 'un')");
	$node->safe_psql('postgres', 'DELETE FROM pre; DELETE FROM ack');

	$sum{cycles}++;
	$sum{acknowledged} += $acknowledged;
	$sum{prepared} += split / /, $open;
	$sum{undone} += $undone;
	$sum{undos}++ if $undone > 0;
	$sum{differences} += () = $findings =~ /[^\n]+/g;
	is($wrong . $findings, '', "$name: $acknowledged acknowledged, $undone entries undone");
	note(soak_summary());
	return;
}

# Figures so far, in one line.
sub soak_summary
{
	return "kill cycles: $sum{cycles} cycles, $sum{acknowledged} acknowledged transactions, "
	  . "$sum{prepared} prepared ones survived, undo in $sum{undos} cycles took out $sum{undone} entries, "
	  . "$sum{shrinks_cut_off} of $sum{shrinks} shrinks were cut off, " . pauses() . ', '
	  . "$sum{differences} differences";
}

1;
