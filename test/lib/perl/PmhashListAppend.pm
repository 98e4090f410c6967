# Clients that append to lists and add to sets by pmhash indexes, on a primary, and read them
# there and on its synchronous standby, each in transactions of several such operations; what
# they have done is a history for PmhashAnomalies.pm.
#
# A list is a row, found by the index of an exclusion constraint, or a unique one (18); each
# append makes a row version with new index entries.  A set is as many rows as it has
# elements.  Each client has plans of one kind; VACUUM, REINDEX CONCURRENTLY and pauses of
# processes (PmhashPauses.pm) go on meanwhile.

package PmhashListAppend;

use strict;
use warnings;

use Exporter 'import';
use PmhashAnomalies;
use PmhashPauses;
use PmhashPortals;
use PmhashRandom;
use PmhashStandby qw(caught_up wait_for_state);
use PmhashTest;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(usleep);

our @EXPORT = qw(
  new_append_pair
  append_history
);

my $settings = <<'CONF';
wal_level = replica
max_wal_senders = 8
hot_standby = on
hot_standby_feedback = on
max_standby_streaming_delay = 1s
wal_receiver_status_interval = 1s
synchronous_commit = remote_apply
pmhash.wal = on
deadlock_timeout = 50ms
autovacuum = on
autovacuum_naptime = 1
log_statement = none
CONF

# ---- tables and statements ----

my $schema = <<'SQL';
CREATE TABLE lists (k int4, n int4, v int4[], CONSTRAINT lists_k EXCLUDE USING pmhash (k WITH =));
CREATE INDEX lists_n ON lists USING pmhash (n);
CREATE TABLE items (k int4, e int4);
CREATE INDEX items_k ON items USING pmhash (k);
CREATE INDEX items_e ON items USING pmhash (e);
SQL
my $schema_18 = <<'SQL';
CREATE TABLE uniques (k int4, n int4, v int4[]);
CREATE UNIQUE INDEX uniques_k ON uniques USING pmhash (k);
CREATE INDEX uniques_n ON uniques USING pmhash (n);
SQL

# Each with its number of parameters; T is the table.
my %sql = (
	one => [ 1, 'SELECT k, v FROM T WHERE k = $1' ],
	any => [ 3, 'SELECT k, v FROM T WHERE k = ANY (ARRAY[$1, $2, $3])' ],
	joined => [ 3, 'SELECT t.k, t.v FROM (VALUES ($1), ($2), ($3)) x(k) JOIN T t ON t.k = x.k' ],
	lock => [ 1, 'SELECT k, v FROM T WHERE k = $1 FOR UPDATE' ],
	update => [ 2, 'UPDATE T SET v = v || $2, n = n + 1 WHERE k = $1 RETURNING k, v' ],
	insert => [ 2, 'INSERT INTO T VALUES ($1, 1, ARRAY[$2])' ],
	take => [ 1, 'DELETE FROM T WHERE k = $1 RETURNING k, v' ],
	put => [ 3, 'INSERT INTO T VALUES ($1, $2, $3)' ],
	merge => [ 2, 'MERGE INTO T t USING (VALUES ($1)) x(k) ON t.k = x.k WHEN MATCHED THEN UPDATE SET v = t.v || $2, n = t.n + 1 '
		  . 'WHEN NOT MATCHED THEN INSERT VALUES ($1, 1, ARRAY[$2])' ],
	upsert => [ 2, 'INSERT INTO T AS t VALUES ($1, 1, ARRAY[$2]) ON CONFLICT (k) DO UPDATE SET v = t.v || $2, n = t.n + 1 RETURNING k, v' ],
	see_one => [ 1, 'SELECT k, e FROM items WHERE k = $1' ],
	see_any => [ 3, 'SELECT k, e FROM items WHERE k = ANY (ARRAY[$1, $2, $3])' ],
	see_joined => [ 3, 'SELECT t.k, t.e FROM (VALUES ($1), ($2), ($3)) x(k) JOIN items t ON t.k = x.k' ],
	add => [ 2, 'INSERT INTO items VALUES ($1, $2)' ],
	away => [ 1, 'UPDATE items SET k = -k WHERE k = $1' ],
	back => [ 1, 'UPDATE items SET k = -k WHERE k = - $1' ]);

# Kinds of plans, one for each client.
my @ways = (
	'SET enable_bitmapscan = off; SET pmhash.enable_join = off; SET pmhash.enable_pagescan = off',
	'SET enable_indexscan = off; SET pmhash.enable_join = off; SET pmhash.enable_pagescan = off',
	'SET enable_bitmapscan = off; SET cpu_index_tuple_cost = 1000',
	'SET enable_bitmapscan = off; SET pmhash.enable_join = off');

# Errors that say that the transaction is to be tried again.
my $try_again = qr/could not serialize access|deadlock detected|violates exclusion constraint|duplicate key value|conflict with recovery/;

# How many lists, and sets, are in use at a time, and when one is full.
my $in_use = 6;
my %full = (l => 30, u => 30, s => 12);
my %table = (l => 'lists', u => 'uniques');

# ---- a client ----

my %c;    # this process: its session, what it has of keys, its file

sub now
{
	return Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC());
}

# Run a statement: its rows.  Dies of an error.
sub ask
{
	my ($kind, $name, @arguments) = @_;
	my (undef, $sql) = @{ $sql{$name} };
	my $answer;

	if ($c{prepares})
	{
		$sql = "EXECUTE ${name}_$kind(" . join(', ', @arguments) . ')';
	}
	else
	{
		$sql =~ s/\$(\d)/$arguments[$1 - 1]/g;
		$sql =~ s/\bT\b/$table{$kind}/ if $kind ne 's';
	}
	$answer = $c{session}->run($sql);
	die "$answer\n" if $answer =~ /^ERROR: /m;
	return map { [ split /\|/ ] } split /\n/, $answer;
}

sub prepare_all
{
	foreach my $name (sort keys %sql)
	{
		foreach my $kind ($name =~ /^(?:see|add|away|back)/ ? 's' : @{ $c{lists} })
		{
			my ($n, $sql) = @{ $sql{$name} };
			my $types = join(', ', ('int4') x $n);

			next if $name eq 'upsert' && $kind ne 'u';
			$types = 'int4, int4, int4[]' if $name eq 'put';
			$sql =~ s/\bT\b/$table{$kind}/ if $kind ne 's';
			my $answer = $c{session}->run("PREPARE ${name}_$kind($types) AS $sql");
			die $answer if $answer ne '';
		}
	}
	return;
}

# A key of those in use, by its number.
sub some_key
{
	my ($kind) = @_;
	return $c{first}{$kind} + between(0, $in_use - 1);
}

# A read is noted; a key that is full is used no longer, nor those before it.
sub note_read
{
	my ($kind, $k, @elements) = @_;

	push @{ $c{ops} }, [ $kind eq 's' ? 'see' : 'read', "$kind$k", \@elements ];
	$c{first}{$kind} = $k + 1 if @elements >= $full{$kind} && $k >= $c{first}{$kind};
	return;
}

sub note_rows_of_lists
{
	my ($kind, @rows) = @_;

	note_read($kind, $_->[0], $_->[1] =~ /\d+/g) foreach @rows;
	return;
}

# Read one key, or several in one statement.
sub read_some
{
	my ($kind) = @_;
	my $how = one_of(qw(one any joined));
	my @keys = $how eq 'one' ? some_key($kind) : do { my $k = some_key($kind); map { $k + $_ } 0 .. 2 };
	my %elements = map { $_ => [] } @keys;

	push @{ $elements{ $_->[0] } }, $_->[1] =~ /\d+/g foreach ask($kind, ($kind eq 's' ? 'see_' : '') . $how, @keys);
	note_read($kind, $_, @{ $elements{$_} }) foreach @keys;
	return;
}

sub append_one
{
	my ($kind) = @_;
	my $k = some_key($kind);
	my $element = ++$c{element};
	my $way = one_of(qw(update update take merge lock), $kind eq 'u' ? qw(upsert upsert upsert) : ());
	my @rows;

	if ($way eq 'lock')
	{
		@rows = ask($kind, 'lock', $k);
		@rows ? note_rows_of_lists($kind, @rows) : note_read($kind, $k);
		$way = 'update';
	}
	@rows = ask($kind, $way, $k, $way eq 'take' ? () : $element);
	note_rows_of_lists($kind, @rows) if $way eq 'take';
	push @{ $c{ops} }, [ 'append', "$kind$k", $element ];
	if ($way eq 'take' && @rows)
	{
		my @elements = ($rows[0][1] =~ /\d+/g, $element);

		ask($kind, 'put', $k, scalar(@elements), "'{" . join(',', @elements) . "}'");
	}
	elsif ($way =~ /take|update/ && !@rows)
	{
		ask($kind, 'insert', $k, $element);
	}
	note_rows_of_lists($kind, @rows) if $way =~ /update|upsert/;
	return;
}

# Elements of a set: one or two; or all its rows go under another key, and back.
sub add_some
{
	my $k = some_key('s');

	if (rand() < .15)
	{
		ask('s', $_, $k) foreach qw(away back);
		return;
	}
	for (1 .. between(1, 2))
	{
		push @{ $c{ops} }, [ 'add', "s$k", ++$c{element} ];
		ask('s', 'add', $k, $c{element});
	}
	return;
}

sub operation
{
	my $kind = one_of('s', 's', @{ $c{lists} });

	if ($c{server} eq 'standby' || rand() < .5) { read_some($kind); }
	else { $kind eq 's' ? add_some() : append_one($kind); }
	return;
}

# Operations that are taken back: of a transaction that has failed, for the history.
sub taken_back
{
	my $kept = $c{ops};

	$c{ops} = [];
	$c{session}->run('SAVEPOINT s');
	my $error = eval { operation(); 1 } ? '' : $@;
	put_down('fail', 0, @{ $c{ops} });
	$c{ops} = $kept;
	die $error if $error ne '';
	$c{session}->run('ROLLBACK TO s');
	return;
}

# A line of the history.
sub put_down
{
	my ($status, $begin, @ops) = @_;

	@ops = grep { $_->[0] =~ /append|add/ } @ops if $status eq 'fail';
	print { $c{file} } join("\t", "$c{server}$c{n}-" . ++$c{transactions}, $c{server}, $status, $begin, now(),
		map { join(':', $_->[0], $_->[1], ref $_->[2] ? join(',', @{ $_->[2] }) : $_->[2]) } @ops), "\n";
	return;
}

sub run_transaction
{
	my $begin = now();
	my $status = 'fail';

	$c{ops} = [];
	eval {
		$c{session}->run("BEGIN ISOLATION LEVEL $c{level}" . ($c{server} eq 'standby' ? ' READ ONLY' : ''));
		for (1 .. between(1, 5))
		{
			rand() < .05 && $c{server} eq 'primary' ? taken_back() : operation();
		}
		$status = 'info';
		if (rand() < .05)
		{
			$c{session}->run('ROLLBACK');
			$status = 'fail';
		}
		else
		{
			my $answer = $c{session}->run('COMMIT');

			$status = $answer =~ /ERROR/ ? 'fail' : 'ok';
			die "$answer\n" if $answer ne '';
		}
		1;
	} or do {
		my $error = $@;
		my $is_lost = $error =~ /^connection lost/ && $c{server} eq 'standby';

		# a session that is idle in a transaction is ended where another is told to try again
		print { $c{file} } $is_lost ? "maintenance\tended\n" : $error =~ $try_again ? '' : "unexpected\t$error";
		$is_lost ? new_session() : $c{session}->run('ROLLBACK');
	};
	put_down($status, $begin, @{ $c{ops} });
	return;
}

sub new_session
{
	$c{session} = PmhashPortals->new($c{node});
	$c{session}->run("SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; "
		  . $ways[ $c{n} % @ways ]);
	return;
}

# What a client does, until it is time.
sub client
{
	my ($node, %parameters) = @_;

	%c = (%parameters, node => $node, transactions => 0, element => $parameters{n} * 10_000_000 + $parameters{round} * 1_000_000);
	$c{first} = { map { $_ => $c{round} * 100_000 + 1 } qw(l u s) };
	open($c{file}, '>', $c{path}) or die "$c{path}: $!";
	new_session();
	$c{prepares} = $c{server} eq 'primary' && rand() < .5;
	prepare_all() if $c{prepares};
	run_transaction() while now() < $c{until};
	$c{session}->put('X', '');
	close($c{file}) or die "$c{path}: $!";
	return;
}

# Row versions and entries go, indexes are made anew.
sub maintenance
{
	my ($node, %parameters) = @_;
	my $session = PmhashPortals->new($node);

	open(my $file, '>', $parameters{path}) or die "$parameters{path}: $!";
	$session->run("SET lock_timeout = '5s'");
	while (now() < $parameters{until})
	{
		my $what = one_of(('VACUUM lists, items') x 15, 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) items', 'CHECKPOINT',
			map { "REINDEX INDEX CONCURRENTLY $_" } qw(items_k items_e lists_n), $node->pg_version >= 18 ? 'uniques_k' : ());
		my $said = $session->run($what);

		print $file "unexpected\t$what: $said\n" if $said =~ /ERROR/ && $said !~ /deadlock detected|lock timeout/;
		print $file "maintenance\t$what\n";
		usleep(rand(300_000));
	}
	$session->put('X', '');
	close($file);
	return;
}

# ---- a history ----

# A primary, its synchronous standby, and the tables.
sub new_append_pair
{
	my $primary = new_server('append_primary', $settings, allows_streaming => 1);
	my $standby = PostgreSQL::Test::Cluster->new('append_standby');

	$primary->start;
	install_extension($primary);
	$primary->safe_psql('postgres', $schema);
	$primary->safe_psql('postgres', $schema_18) if $primary->pg_version >= 18;
	$primary->backup('base');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'\n");
	$primary->reload;
	$primary->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'") or die;
	wait_for_state($standby, $_, qr/^(?:valid|empty)$/, "standby: $_") foreach qw(lists_k items_k);
	return ($primary, $standby);
}

# A process of its own; what it dies of is in its file.
sub start_process
{
	my ($work, $node, %parameters) = @_;
	my $pid = fork() // die "fork: $!";

	return $pid if $pid != 0;
	$SIG{INT} = $SIG{TERM} = 'DEFAULT';
	$SIG{PIPE} = 'IGNORE';
	srand($parameters{seed});
	eval { $work->($node, %parameters); 1 } or do {
		my $error = $@;

		$c{file}->flush if defined $c{file};
		append_to_file($parameters{path}, "unexpected\t$parameters{server} $parameters{n}: $error\n");
	};
	POSIX::_exit(0);
}

# The lines of a file as transactions; figures, by the first word, and what was not expected are added.
sub read_history
{
	my ($path, $history, $figures, $unexpected) = @_;

	foreach my $line (split /\n/, slurp_file($path))
	{
		my ($id, $server, $status, $begin, $end, @ops) = split /\t/, $line;
		my %t = (id => $id, server => $server, status => $status, begin => $begin, end => $end, ops => []);

		if ($id eq 'unexpected')
		{
			push @$unexpected, $server;
			next;
		}
		if ($id eq 'maintenance')
		{
			$figures->{ lc($server =~ /^(\w+)/ ? $1 : '') }++;
			next;
		}
		foreach my $op (@ops)
		{
			my ($kind, $key, $value) = split /:/, $op, 3;

			push @{ $t{ops} }, [ $kind, $key, $kind =~ /read|see/ ? [ split /,/, $value ] : $value ];
			$figures->{$kind}++ if $status eq 'ok';
		}
		$figures->{"$server $status"}++ if @ops;
		push @$history, \%t;
	}
	return;
}

# All keys of a round at its end, by index or by table.
sub read_all
{
	my ($node, $server, $by_index, $round, $kinds, $last) = @_;
	my $begin = now();
	my %values;
	my $rows = $node->safe_psql('postgres', ($by_index ? 'SET enable_seqscan = off; ' : 'SET enable_indexscan = off; SET enable_bitmapscan = off; ')
		  . 'SET enable_hashjoin = off; SET enable_mergejoin = off; '
		  . join(' UNION ALL ', map {
			my ($key, $kind) = ($by_index ? 't.k = g' : 't.k + 0 = g', $_);
			my ($table, $value) = $kind eq 's' ? ('items', 't.e::text') : ($table{$kind}, q(array_to_string(t.v, ' ')));

			"SELECT '$kind' || g, $value FROM generate_series($round * 100000 + 1, $last->{$kind}) g JOIN $table t ON $key"
		  } @$kinds));

	foreach my $row (split /\n/, $rows)
	{
		my ($key, $value) = split /\|/, $row;

		push @{ $values{$key} }, split / /, $value;
	}
	my @ops = map {
		my $kind = $_;
		map { [ $kind eq 's' ? 'see' : 'read', "$kind$_", $values{"$kind$_"} // [] ] } $round * 100_000 + 1 .. $last->{$kind}
	} @$kinds;

	return { id => "last of $server" . ($by_index ? '' : ', by table'), server => $server, status => 'ok',
		begin => $begin, end => now(), ops => \@ops };
}

# Scans of the tables, by table and by index, so far.
sub scans
{
	my ($node) = @_;
	return split /\|/, $node->safe_psql('postgres', "SELECT sum(seq_scan), sum(idx_scan) FROM pg_stat_user_tables WHERE relname IN ('lists', 'items', 'uniques')");
}

# Clients on both servers for so many seconds, under a level.  Returns the figures, and
# findings as text, '' if nothing is wrong.
sub append_history
{
	my ($primary, $standby, $level, $seconds, $round) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir();
	my @lists = $primary->pg_version >= 18 ? qw(l u) : qw(l);
	my %common = (round => $round, lists => \@lists, until => now() + $seconds);
	my @before = map { [ scans($_) ] } $primary, $standby;
	my (@pids, %figures, @history, @unexpected, %last);
	my $start = sub {
		my ($work, $node, %more) = @_;
		push @pids, start_process($work, $node, %common, %more, path => "$directory/" . @pids, seed => rand(1 << 30));
	};

	$start->(\&client, $primary, server => 'primary', level => $level, n => $_) foreach 1 .. 5;
	$start->(\&client, $standby, server => 'standby', level => 'repeatable read', n => $_) foreach 6 .. 8;
	$start->(\&maintenance, $primary, server => 'primary', n => 9);
	my $pauses = start_pauses($primary, $standby);

	waitpid($_, 0) foreach @pids;
	end_pauses($pauses);
	read_history("$directory/$_", \@history, \%figures, \@unexpected) foreach 0 .. $#pids;
	foreach my $op (map { @{ $_->{ops} } } @history)
	{
		my ($kind, $k) = $op->[1] =~ /^(.)(\d+)$/;

		$last{$kind} = $k if $k > ($last{$kind} // 0);
	}
	caught_up($primary, $standby);
	push @history, map { read_all(@$_, $round, [ 's', @lists ], \%last) }
	  [ $primary, 'primary', 1 ], [ $primary, 'primary', 0 ], [ $standby, 'standby', 1 ];
	my $found = anomalies(\@history, $level);
	my $edges = dependencies();
	my @after = map { [ scans($_) ] } $primary, $standby;

	$figures{"$_ dependencies"} = $edges->{$_} foreach keys %$edges;
	foreach my $i (0, 1)
	{
		my $name = (qw(primary standby))[$i];

		@figures{ "$name scans by table", "$name scans by index" } = map { $after[$i][$_] - $before[$i][$_] } 0, 1;
	}
	my $said = join('', map { "unexpected: $_\n" } @unexpected[ 0 .. ($#unexpected > 9 ? 9 : $#unexpected) ]);

	foreach my $anomaly (sort keys %$found)
	{
		$said .= "---- $anomaly ----\n" . join("\n", @{ $found->{$anomaly} }) . "\n";
	}
	return (\%figures, $said);
}

1;
