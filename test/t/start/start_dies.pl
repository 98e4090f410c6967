# A server has crashed, and a start dies before it has used pmhash.  That start may have
# written WAL where lost WAL had been, which the next one replays or skips: so the end of its
# own replay tells nothing of what was lost, and it trusts nothing.  A start that has not come
# as far as to change anything costs nothing after an orderly end.

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
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

# Start it.  The lost row's place is given to another one.
sub not_trusted
{
	my ($table, $name) = @_;
	my $from = -s $node->logfile;

	$node->start;
	like(slurp_file($node->logfile, $from), qr/not trusted: the last start went down before it used the pool/, "$name: not trusted");
	like(index_state($node, "${table}_k"), qr/^invalid/, "$name: invalid");
	$node->safe_psql('postgres', "INSERT INTO $table VALUES (5)");
	is($node->safe_psql('postgres', "SELECT ctid FROM $table"), '(0,1)', "$name: the place is used again");
	rebuild_on($node);
	all_come_back($node, $name);
	is($node->safe_psql('postgres', "SET enable_seqscan = off; SELECT string_agg(k::text, ',') FROM $table WHERE k IN (5, 77777)"), '5',
		"$name: the new row, and not the lost one");
	rebuild_off($node);
	return;
}

rebuild_off($node);
lose_one_row('lost');
$node->start;
is(index_state($node, 'lost_k'), 'valid', 'no start dies: kept');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM lost WHERE k = 77777'), '0', 'no start dies: no lost row');

# event: a crash, and the next start is killed before it has used pmhash (during recovery, for instance)
foreach my $known (1, 0)
{
	my $table = "lost$known";
	my $name = $known ? 'the checkpoint is known' : 'the checkpoint is only in WAL';

	lose_one_row($table);
	copy($pg_control, "$pg_control.before") or die $!;
	like(die_in_start($node), qr/redo is not required/, "$name: there is nothing to replay");
	copy("$pg_control.before", $pg_control) or die $! if !$known;
	unlink("$pg_control.before");
	# trust: used
	not_trusted($table, $name);
}

# event: clean shutdown, and starts that fail (an error in `pg_hba.conf`, for instance) or are killed before the server runs
$node->stop;
my $hba = $node->data_dir . '/pg_hba.conf';
rename($hba, "$hba.away") or die $!;
is($node->start(fail_ok => 1), 0, "a start fails: $_") foreach 1, 2;
rename("$hba.away", $hba) or die $!;
my $from = -s $node->logfile;
$node->start;
unlike(slurp_file($node->logfile, $from), qr/not trusted/, 'failed starts after an orderly end: trusted');
is($node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash_indexes'), 'valid', 'failed starts after an orderly end: valid');
$node->stop;
done_testing();
