# Statements that give a table or its indexes other files, two and three of them in one
# transaction, with savepoints that are rolled back and released in between: each
# sequence is run and a small model says what the index must be after it.  Invalid, if
# rows have been left out that an abort might have taken away without a trace; else
# valid.  Too many files given up is a fault as well: a transaction can't rebuild what it
# has locked.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

# A server with assertions takes some of these sequences for faults of its own where
# wal_level is minimal, without pmhash as well (relcache.c, AssertPendingSyncConsistency).
my $wal_level = `pg_config --configure` =~ /--enable-cassert/ ? 'replica' : 'minimal';
my $node = new_server('sequences', <<CONF);
wal_level = $wal_level
max_wal_senders = 0
allow_in_place_tablespaces = on
pmhash.rebuild = off
pmhash.cleaner_naptime = 3600
CONF
$node->start;
install_extension($node);
$node->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE $_ LOCATION ''")
  foreach qw(a b);

# ---- the model ----
#
# A level is a number, 0 is the time before the transaction.  Table: a list of files,
# each with the level that has made it; an abort of that level takes it away.  Index: the
# same of main forks, each with the index file that it names, and whether it is marked.
# An index file has the level whose abort removes it, and the table's file of that time.
my ($levels, $heap, $forks, $files, $next_level, $known, $place, $index_place, $type);

sub begin_model
{
	$levels = [1];
	$next_level = 2;
	$heap = [ { level => 0 } ];
	$files = [ { made => 0, table => 0 } ];
	$forks = [ { level => 0, file => $files->[0] } ];
	$known = 0;    # the level that the server knows the table's files by, or 0
	$place = [ [ 0, 'pg_default' ] ];
	$index_place = [ [ 0, 'pg_default' ] ];
	$type = [ [ 0, 'int4' ] ];
	return;
}

sub level { return $levels->[-1] }

sub set
{
	my ($list, $value) = @_;

	push @$list, [ level(), $value ];
	return;
}

sub new_heap
{
	push @$heap, { level => level() };
	$known = level();
	return;
}

sub new_index
{
	push @$files, { made => level(), table => $heap->[-1] };
	push @$forks, { level => level(), file => $files->[-1] };
	return;
}

sub emptied_in_place
{
	my $own_fork = $forks->[-1]{level} > 0;

	$forks->[-1]{file}{gone} = 1;
	push @$files, { made => $own_fork ? level() : 0, table => $heap->[-1] };
	$forks->[-1]{file} = $files->[-1];
	$forks->[-1]{marked} = !$own_fork;
	return;
}

sub abort_level
{
	my ($level) = @_;

	@$heap = grep { $_->{level} != $level } @$heap;
	@$forks = grep { $_->{level} != $level } @$forks;
	foreach my $file (@$files)
	{
		$file->{gone} = 1 if $file->{made} == $level;
	}
	foreach my $list ($place, $index_place, $type)
	{
		@$list = grep { $_->[0] != $level } @$list;
	}
	$known = 0 if $known == $level;
	return;
}

sub commit_level
{
	my ($level, $parent) = @_;

	foreach my $one (@$heap, @$forks)
	{
		$one->{level} = $parent if $one->{level} == $level;
	}
	foreach my $file (@$files)
	{
		$file->{made} = $parent if $file->{made} == $level;
	}
	foreach my $one (map { @$_ } $place, $index_place, $type)
	{
		$one->[0] = $parent if $one->[0] == $level;
	}
	$known = $parent if $known == $level;
	return;
}

# ---- the statements ----

my $rows = 0;

sub other_place
{
	my ($list) = @_;

	set($list, $list->[-1][1] eq 'a' ? 'b' : 'a');
	return $list->[-1][1];
}

# Each tells the model, and returns SQL.
my %statements = (
	'move' => sub {
		new_heap();
		return 'ALTER TABLE m SET TABLESPACE ' . other_place($place);
	},
	'move index' => sub {
		push @$forks, { %{ $forks->[-1] }, level => level() };
		return 'ALTER INDEX m_k SET TABLESPACE ' . other_place($index_place);
	},
	'truncate' => sub {
		if ($known == level())
		{
			emptied_in_place();
		}
		else
		{
			new_heap();
			new_index();
		}
		return 'TRUNCATE m';
	},
	'reindex' => sub {
		new_index();
		return 'REINDEX TABLE m';
	},
	'alter' => sub {
		set($type, $type->[-1][1] eq 'int4' ? 'int8' : 'int4');
		new_heap();
		new_index();
		return "ALTER TABLE m ALTER k TYPE $type->[-1][1]";
	},
	'cluster' => sub {
		new_heap();
		new_index();
		return 'CLUSTER m USING m_b';
	},
	'insert' => sub {
		my $file = $forks->[-1]{file};
		my $first = ++$rows;

		$rows += 3;
		if ($file->{gone})
		{
			$forks->[-1]{marked} = 1;
		}
		elsif ($heap->[-1]{level} > 0 && $file->{table} != $heap->[-1] && !($known && $file->{made} >= $known))
		{
			$forks->[-1]{marked} = 1;
			$file->{gone} = 1 if $forks->[-1]{level} > 0;
		}
		return "INSERT INTO m SELECT i, i FROM generate_series($first, $rows) i";
	},
	'compare' => sub { return 'SELECT compared()' },
	'savepoint' => sub {
		push @$levels, $next_level++;
		return 'SAVEPOINT s' . scalar(@$levels);
	},
	'rollback to' => sub {
		abort_level(level());
		$levels->[-1] = $next_level++;
		return 'ROLLBACK TO s' . scalar(@$levels);
	},
	'release' => sub {
		my $level = pop @$levels;

		commit_level($level, level());
		return 'RELEASE s' . (scalar(@$levels) + 1);
	});

# SQL of the end of a transaction.
sub end
{
	my ($how) = @_;

	while (@$levels > 1)
	{
		my $level = pop @$levels;

		commit_level($level, level());
	}
	if ($how eq 'prepared')
	{
		commit_level(1, 0);
		return "PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'";
	}
	if ($how eq 'commit')
	{
		commit_level(1, 0);
		return 'COMMIT';
	}
	abort_level(1);
	return $how eq 'rollback' ? 'ROLLBACK' : "PREPARE TRANSACTION 'p'; ROLLBACK PREPARED 'p'";
}

# ---- the sequences ----

my @changes = ('move', 'truncate', 'reindex', 'alter', 'cluster', 'move index');
my @ends = qw(commit rollback prepared rollback_prepared);
my @save = ('savepoint');
my @back = ('rollback to');
my @row = ('insert', 'compare');

# With one or two statements $x and $y; each is run to all four ends, by turns.
my @templates = (
	sub { my ($x, $y) = @_; return ($x, @row, @save, $y, @row, @back, @row) },
	# the server forgets by which level the table has got its files
	sub { my ($x, $y) = @_; return ($x, @save, $y, @back, @save, @row, @back, @row) },
	sub { my ($x, $y) = @_; return (@save, $x, 'release', @save, $y, @row, @back, @save, @row, 'release') },
	sub { my ($x, $y) = @_; return (@save, $x, @save, $y, @back, @row, 'release', @back, @row) },
	sub { my ($x, $y) = @_; return (@row, @save, $x, @save, $y, 'release', @row, @back, @row) },
	sub { my ($x, $y) = @_; return ($x, @row, $y, @row, @save, $x, @back, $y, @row) });
my @nested = (
	sub { my ($x, $y, $z) = @_; return ($x, @save, $y, @save, $z, @row, @back, @row, 'release', @save, @row, @back, @row) },
	sub { my ($x, $y, $z) = @_; return (@save, $x, @row, @save, $y, @save, $z, @back, @row, 'release', @back, @row, 'release', @row) });

my @sequences;
foreach my $x (@changes)
{
	foreach my $y (@changes)
	{
		push @sequences, $_->($x, $y) ? [ $_->($x, $y) ] : () foreach @templates;
		push @sequences, [ $nested[ @sequences % 2 ]->($x, $y, $changes[ @sequences % @changes ]) ];
	}
}

# One of them as SQL, with the name, what its comparisons are to say, and the state.
sub written
{
	my ($sequence, $how) = @_;
	my (@sql, $name, $state);

	$rows = 100;
	begin_model();
	push @sql, $statements{$_}->() foreach @$sequence;
	push @sql, end($how);
	$state = $forks->[-1]{marked} || $forks->[-1]{file}{gone} ? 'invalid' : 'valid';
	$name = join(', ', (grep { $_ ne 'compare' } @$sequence), $how);
	return ($name, join("; ", 'BEGIN', @sql) . ';', $state, scalar(grep { $_ eq 'compare' } @$sequence));
}

# Rows by the index (if it is there) and by a sequential scan.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION compared() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE by_table text; by_index text;
BEGIN
	SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = on;
	EXECUTE 'SELECT count(*) || '' '' || coalesce(sum(v), 0) FROM m' INTO by_table;
	SET LOCAL enable_indexscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = off;
	EXECUTE 'SELECT count(*) || '' '' || coalesce(sum(v), 0) FROM m WHERE k = ANY (ARRAY(SELECT generate_series(1, 1000)))'
		INTO by_index;
	IF by_table <> by_index THEN
		RAISE WARNING 'table %, index %', by_table, by_index;
	END IF;
	RETURN by_table = by_index;
END $$;
SQL

my $before = <<'SQL';
CREATE TABLE m (k int4, v int8) WITH (autovacuum_enabled = off);
CREATE INDEX m_k ON m USING pmhash (k);
CREATE INDEX m_b ON m (v);
INSERT INTO m SELECT i, i FROM generate_series(1, 100) i;
SQL
my $after = <<'SQL';
INSERT INTO m SELECT i, i FROM generate_series(900, 940) i;
SELECT compared();
SELECT split_part(state, ':', 1) FROM pmhash_indexes WHERE index = 'm_k';
SELECT pmhash_check('m_k') WHERE (SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'm_k');
DELETE FROM m WHERE k % 2 = 0;
VACUUM m;
INSERT INTO m SELECT i, i FROM generate_series(941, 980) i;
SELECT compared();
SELECT pmhash_check('m_k') WHERE (SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'm_k');
DROP TABLE m;
SQL

my ($sql, @wanted, $i) = ('');
foreach my $sequence (@sequences)
{
	my ($name, $transaction, $state, $compared) = written($sequence, $ends[ $i++ % @ends ]);

	$sql .= "$before\n\\echo @{[scalar(@wanted)]}:\n$transaction\n$after\n";
	push @wanted, { name => $name, state => $state,
		says => join(' ', ('t') x ($compared + 1), $state, $state eq 'valid' ? ('', 't', '') : 't') };
}

my ($result, $stdout, $stderr) = $node->psql('postgres', $sql, on_error_stop => 0);
my %says = map { my ($n, $text) = /^(\d+):\n(.*)/s; ($n => join(' ', split /\n/, $text, -1)) } split /^(?=\d+:\n)/m, "$stdout\n";
is($stderr, '', 'no error, no warning');
foreach my $n (0 .. $#wanted)
{
	my $said = $says{$n} // '';

	$said =~ s/ $//;
	is($said, $wanted[$n]{says}, "$n: $wanted[$n]{name}");
}
my %states;
$states{ $_->{state} }++ foreach @wanted;
cmp_ok($states{valid}, '>', 30, 'many indexes stay');
cmp_ok($states{invalid}, '>', 30, 'many do not');
$node->stop;
done_testing();
