# A cleaner beside a rebuild: it lists files, asks for their makers, reads stubs and
# removes, each of these before a step of the rebuild, or past it.  The file that is being
# filled is no orphan at any moment, and the index comes back with the first try.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('cleaner_stops', undef, install_path => install_with_stop_points());
use_stop_points($node);
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4, v int4);
INSERT INTO t SELECT i % 500, i FROM generate_series(1, 5000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE PROCEDURE cleaners_come_by() LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.5); END';
SQL

# A session finds that the file has gone, and a rebuilder begins.
sub lose_file
{
	unlink(index_file($node, 't_k')) or die;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (7, -7)');
	return;
}

sub times_in_log
{
	my ($pattern) = @_;
	return scalar(() = slurp_file($node->logfile) =~ /$pattern/g);
}

my $rebuilt = 0;

sub came_back
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name) = @_;

	$node->poll_query_until('postgres', q(SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'))
	  or die "$name: the index does not come back";
	is(times_in_log(qr/index "t_k" of table "t" has been rebuilt/), ++$rebuilt, "$name: rebuilt once");
	is(times_in_log(qr/could not rebuild index/), 0, "$name: at the first try");
	$node->safe_psql('postgres', 'CALL cleaners_come_by()');
	ok(-e index_file($node, 't_k'), "$name: its file is there");
	same_answers($node, 't', 'k', 't_k', $name);
	return is($node->safe_psql('postgres', q(SELECT pmhash.check('t_k'))), '', "$name: pmhash.check");
}

# Cleaners come on request, or by the launcher's clock.
sub hold_cleaner
{
	my ($point, $name) = @_;

	hold($point);
	$node->safe_psql('postgres', 'BEGIN; CREATE TABLE x (k int4); CREATE INDEX ON x USING pmhash (k); ROLLBACK');
	return is_held($point, $name);
}

my @cleaning = qw(cleaner_listed cleaner_before_stubs cleaner_before_removal);
my @rebuilding = qw(rebuild_marked rebuild_before_build rebuild_before_stub rebuild_before_valid);

# ---- a cleaner that looks at files before a step of the rebuild, and at stubs after it ----

foreach my $step (@rebuilding)
{
	foreach my $cleaner (@cleaning)
	{
		my $name = "rebuild at $step, cleaner at $cleaner";

		hold($step);
		lose_file();
		is_held($step, $name);
		hold_cleaner($cleaner, $name);
		release($step);
		$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash.indexes WHERE index = 't_k'") or die $name;
		release($cleaner);
		came_back($name);
	}
}

# ---- the launcher has seen that a database is gone; then there is another one with its OID ----

my $oid = 20001;
$node->safe_psql('postgres', "CREATE DATABASE other OID = $oid");
install_extension($node, 'other');
$node->safe_psql('other', 'CREATE TABLE t (k int4); CREATE INDEX t_k ON t USING pmhash (k)');
$node->safe_psql('postgres', 'CALL cleaners_come_by()');
hold('launcher_before_dropped');
$node->safe_psql('postgres', 'DROP DATABASE other');
is_held('launcher_before_dropped', 'a database is dropped');
$node->safe_psql('postgres', "CREATE DATABASE other OID = $oid");
is(scalar(index_files(pool($node) . "/$oid")), 0, 'another one with its OID: nothing is left of the first');
install_extension($node, 'other');
$node->safe_psql('other', 'CREATE TABLE t (k int4); INSERT INTO t SELECT generate_series(1, 100); CREATE INDEX t_k ON t USING pmhash (k)');
my $file = index_file($node, 't_k', 'other');
release('launcher_before_dropped');
$node->safe_psql('postgres', 'CALL cleaners_come_by()');
ok(-e $file, 'another one with its OID: its file is there');
is(index_state($node, 't_k', 'other'), 'valid', 'another one with its OID: valid');
wait_for_files(pool($node) . "/$oid", 1, 'another one with its OID: one file');
$node->safe_psql('postgres', 'DROP DATABASE other');
wait_for_files(pool($node) . "/$oid", 0, 'dropped again: none');

# ---- how long transactions may take is not for the cleaner, nor for the launcher ----

SKIP:
{
	skip 'no transaction_timeout', 1 if $node->pg_version < 17;
	$node->append_conf('postgresql.conf', 'transaction_timeout = 1ms');
	$node->reload;
	foreach (0 .. 1)
	{
		hold('cleaner_listed');
		is_held('cleaner_listed', 'transaction_timeout');
		sleep(1);
		release('cleaner_listed');
	}
	is(times_in_log(qr/transaction timeout/), 0, 'transaction_timeout: the cleaner is not ended');
}
$node->stop;
done_testing();
