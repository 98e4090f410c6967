# The primary finds a page that cannot be what named an index's file, and marks it.  It
# does not know which file that was; a standby, whose page is sound, does, and must not go
# on answering from its own: rows come without records from there on.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan;';
my $primary = new_primary('primary', "pmhash.rebuild = off\npmhash.cleaner_naptime = 3600\n");
my $standby = new_standby($primary, 'standby', "pmhash.rebuild = on\npmhash.cleaner_naptime = 3600\n");
my $reader;

# A test: both servers have valid indexes.
sub all_valid
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	foreach my $node ($primary, $standby)
	{
		wait_for_state($node, $_, qr/^valid$/, "$name: $_ on " . $node->name) foreach qw(t_k t_s);
		caught_up($primary, $standby);
	}
	return;
}

sub rebuilds
{
	my ($node, $on) = @_;

	$node->append_conf('postgresql.conf', "pmhash.rebuild = $on\n");
	$node->reload;
	return;
}

sub file_of
{
	my ($index) = @_;
	return $standby->safe_psql('postgres', "SELECT file FROM pmhash_indexes WHERE index = '$index'");
}

# Overwrite the page that names t_k's file, on these servers.
sub overwrite
{
	my ($bytes, @nodes) = @_;
	my $page = $primary->safe_psql('postgres', q(SELECT pg_relation_filepath('t_k')));

	$_->stop foreach @nodes;
	patch_file($_->data_dir . "/$page", 0, substr($bytes x 8192, 0, 8192)) foreach @nodes;
	$_->start foreach @nodes;
	return;
}

# A session of the standby that has read the page.
sub begin_reading
{
	$reader = $standby->background_psql('postgres', on_error_stop => 1);
	$reader->query_safe("$by_index PREPARE p(int) AS SELECT count(*) FROM t WHERE k = \$1");
	$reader->query_safe('EXECUTE p(5)');
	return;
}

# A test: it finds what is there.
sub finds
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($key, $name) = @_;

	caught_up($primary, $standby);
	return is($reader->query_safe("EXECUTE p($key)"),
		$primary->safe_psql('postgres', "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE k = $key"),
		"$name: rows with key $key");
}

# ---- an insert marks it ----

all_valid('begin');
my $file = file_of('t_k');
my $other = file_of('t_s');
my $inode = (stat($other))[1];
begin_reading();
like($reader->query_safe('EXPLAIN EXECUTE p(5)'), qr/t_k/, 'begin: the index is used');
overwrite("\0", $primary);
$primary->safe_psql('postgres', "INSERT INTO t VALUES (5, 'x', 0)");
finds(5, 'zeroes, a row comes');
ok(!-e $file, 'zeroes: the file of that index is given up');
is((stat($other))[1], $inode, 'zeroes: no other is');
$reader->quit;
rebuilds($primary, 'on');
$primary->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = 5");
all_valid('zeroes, rebuilt');

# ---- a rebuild does, and waits for a writer then ----

begin_reading();
like($reader->query_safe('EXPLAIN EXECUTE p(5)'), qr/t_k/, 'garbage: the index is used');
overwrite('x', $primary);
my $writer = $primary->background_psql('postgres', on_error_stop => 1);
$writer->query_safe('BEGIN; LOCK TABLE t IN ROW EXCLUSIVE MODE');
$primary->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = 5");
$primary->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE phase = 'waiting for writers before build'")
  or die 'no rebuild';
$primary->safe_psql('postgres', "INSERT INTO t VALUES (5, 'x', 0)");
finds(5, 'garbage, a row comes');
$_->quit foreach $reader, $writer;
all_valid('garbage, rebuilt');
compare_in_snapshot($standby, 'garbage, rebuilt: answers');

# ---- the standby's page does not tell either: all files of the database go ----

rebuilds($primary, 'off');
overwrite("\0", $primary, $standby);
$other = file_of('t_s');
$inode = (stat($other))[1];
my $kept = $standby->basedir . '/kept';
link($other, $kept) or die $!;    # so that no other gets its inode
my $from = log_position($standby);
$primary->safe_psql('postgres', "INSERT INTO t VALUES (5, 'x', 0)");
caught_up($primary, $standby);
like(logged_since($standby, $from), qr/LOG: .*all index files of database \d+ are given up on this server/, 'both: log');
wait_for_state($standby, 't_s', qr/^valid$/, 'both: t_s is built again');
isnt((stat(file_of('t_s')))[1], $inode, 'both: it is another file');
rebuilds($primary, 'on');
$primary->safe_psql('postgres', "$by_index SELECT count(*) FROM t WHERE k = 5");
all_valid('both, rebuilt');
compare_in_snapshot($standby, 'both, rebuilt: answers');
$standby->stop;
$primary->stop;
done_testing();
