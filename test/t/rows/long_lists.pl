# VACUUM of long lists, again and again: where a list needs new space in the middle is
# another place with each index, since each has hashes of its own.  A step that is done
# once more there is no circle (it was taken for one in 5 of 100).  PMHASH_LIST_ROUNDS:
# how many; make test-all has 100.
#
# And a VACUUM that naps after each step, in a list that others make longer: the list's
# first buffer is soon in a part of the file that was not there when the VACUUM came by (the
# server crashed in 3 of 4 rounds).

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use Test::More;

my $rounds = $ENV{PMHASH_LIST_ROUNDS} || 12;
my $node = new_server('long_lists', "fsync = off\nmax_wal_size = 4GB\n");
$node->start;
install_extension($node);

my @failed;
foreach my $round (1 .. $rounds)
{
	my ($status, undef, $error) = $node->psql('postgres', <<'SQL', on_error_stop => 1);
CREATE TABLE d (k int4, v int4);
INSERT INTO d SELECT 1, i FROM generate_series(1, 100000) i;
INSERT INTO d SELECT 2, i FROM generate_series(1, 5000) i;
INSERT INTO d SELECT i / 3, i FROM generate_series(30, 30000) i;
CREATE INDEX d_k ON d USING pmhash (k);
INSERT INTO d SELECT -(i % 10), i FROM generate_series(1, 20000) i;
INSERT INTO d SELECT -11, i FROM generate_series(1, 100000) i;
INSERT INTO d SELECT 2, i FROM generate_series(1, 300) i;
DELETE FROM d WHERE v % 2 = 0;
VACUUM d;
SQL
	push @failed, "$round: $error" if $status != 0;
	$node->safe_psql('postgres', q(SELECT pmhash_check('d_k'))) if $status == 0 && $round % 20 == 0;
	$node->safe_psql('postgres', 'DROP TABLE d');
}
is(join("\n", @failed), '', "VACUUM of long lists, $rounds times");

# ---- a VACUUM that naps ----

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE slow (k int4) WITH (autovacuum_enabled = off);
CREATE INDEX slow_k ON slow USING pmhash (k);
SQL

foreach my $round (1 .. 3)
{
	$node->safe_psql('postgres', <<'SQL');
INSERT INTO slow SELECT 1 FROM generate_series(1, 300000);
DELETE FROM slow WHERE random() < .999;
SQL
	my $vacuum = $node->background_psql('postgres', on_error_stop => 0);
	$vacuum->query_until(qr/begun/, "\\echo begun\n" .
		"SET vacuum_cost_delay = '10ms'; SET vacuum_cost_limit = 100;\n" .
		"VACUUM slow;\n\\echo vacuumed\n");
	$node->safe_psql('postgres',
		'INSERT INTO slow SELECT CASE WHEN g % 3 = 0 THEN 1 ELSE g END FROM generate_series(1, 60000) g')
	  foreach 1 .. 8;
	$vacuum->query_until(qr/vacuumed/, '');
	$vacuum->quit;
	my (undef, undef, $error) = $node->psql('postgres', q(SELECT pmhash_check('slow_k')));
	is($error, '', "round $round of a VACUUM that naps");
}
done_testing();
