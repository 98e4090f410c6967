# A crash loses WAL, and so much that there is nothing to replay; the next start
# dies when its end-of-recovery checkpoint is in WAL, and pg_control does or does
# not know of it.  The start after that replays or skips WAL that stands where
# lost WAL had been, so its own end of replay tells nothing of what was lost; that of
# the one that died was saved, though no resource manager was called.
#
# And several starts die one after the other, each with a checkpoint of its own where
# its own replay has ended.

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('twice', "wal_writer_delay = 10s\nwal_writer_flush_after = 0\npmhash.cleaner_naptime = 600\n");
my $pg_control = $node->data_dir . '/global/pg_control';

$node->start;
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());

# The first record after the checkpoint of a clean shutdown is that of a row
# in an empty table, and it is not flushed.
sub lose_one_row
{
	my ($table) = @_;

	$node->safe_psql('postgres', "CREATE TABLE $table (k int4); CREATE INDEX ${table}_k ON $table USING pmhash (k)");
	# With checksums (the default since PostgreSQL 18) hint bits make WAL: all are
	# set before the start, so that no WAL comes after its checkpoint.
	$node->safe_psql('postgres', 'VACUUM');
	$node->stop;
	$node->start;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	hold_wal_writer($node);
	$session->query_safe("BEGIN; INSERT INTO $table VALUES (77777)");
	crash($node);
	eval { $session->quit };
	return;
}

# The lost row's place is given to another one.  Nothing has to be rebuilt.
sub nothing_comes_back
{
	my ($table, $name) = @_;

	is(index_state($node, "${table}_k"), 'valid', "$name: valid at once");
	is(index_state($node, 't_k'), 'valid', "$name: so are others");

	$node->safe_psql('postgres', "INSERT INTO $table VALUES (5)");
	is($node->safe_psql('postgres', "SELECT ctid FROM $table"), '(0,1)', "$name: the place is used again");
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k = 77777"), '0',
		"$name: no lost row");
	rebuild_on($node);
	all_come_back($node, $name);
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k = 5"), '1',
		"$name: the new row");
	rebuild_off($node);
	return;
}

rebuild_off($node);
# event: a crash loses all WAL since the last checkpoint, and the next start is killed after its end-of-recovery checkpoint
foreach my $known (1, 0)
{
	my $table = "lost$known";
	my $name = $known ? 'the checkpoint is known' : 'the checkpoint is only in WAL';
	my $from;

	lose_one_row($table);
	copy($pg_control, "$pg_control.before") or die $!;
	like(die_in_start($node), qr/redo is not required/, "$name: there is nothing to replay");
	copy("$pg_control.before", $pg_control) or die $! if !$known;
	unlink("$pg_control.before");
	$from = -s $node->logfile;
	$node->start;
	$known
	  ? unlike(slurp_file($node->logfile, $from), qr/redo starts/, "$name: skipped")
	  : like(slurp_file($node->logfile, $from), qr/redo starts/, "$name: replayed");
	# trust: end
	nothing_comes_back($table, $name);
}

# event: starts are killed one after the other, each after its end-of-recovery checkpoint
sub die_one_after_the_other
{
	my ($name) = @_;
	my $from = -s $node->logfile;

	like(die_in_start($node), qr/^backend>/m, "$name: start $_") foreach (1 .. 3);
	$node->start;
	# trust: replayed-to
	unlike(slurp_file($node->logfile, $from), qr/not trusted/, "$name: trusted");
	return;
}

lose_one_row('lost_often');
die_one_after_the_other('nothing to replay');
nothing_comes_back('lost_often', 'nothing to replay');

$node->stop;
die_one_after_the_other('an orderly end');
is(index_state($node, 'lost_often_k'), 'valid', 'an orderly end: valid');

$node->safe_psql('postgres', 'INSERT INTO lost_often SELECT 6 FROM generate_series(1, 1000)');
crash($node);
die_one_after_the_other('much to replay');
is(index_state($node, 'lost_often_k'), 'valid', 'much to replay: valid');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM lost_often WHERE k = 6'), '1000',
	'much to replay: all are there');

done_testing();
