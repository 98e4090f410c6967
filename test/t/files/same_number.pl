# A temporary index whose main fork has the number of a permanent index's: the
# server looks for such numbers among relations of the same kind only.  The file of
# neither is ever taken for that of the other, nor removed with it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('number', "pmhash.cleaner_naptime = 3600\n");
my $pool = pool($node);
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING pmhash (k);
SQL

# A number that is no OID, so that a new index may get it: its OID is its number.
$node->safe_psql('postgres', 'REINDEX INDEX t_k');
my $number = $node->safe_psql('postgres', "SELECT relfilenode FROM pg_class WHERE relname = 't_k'");
$node->stop;
system_or_bail('pg_resetwal', '-o', $number - 60, $node->data_dir);
$node->start;
ok($node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 't_k'"),
	'the index is there');
is($node->safe_psql('postgres', "SELECT relfilenode FROM pg_class WHERE relname = 't_k'"), $number,
	'with the same main fork');

my $session = $node->background_psql('postgres');
my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
my $count = 'SELECT count(*) FROM';
$session->query_safe("$by_index; SET client_min_messages = error");
is($session->query_safe("$count t WHERE k = 5"), '1', 'the permanent index is open');
is($session->query_safe(<<SQL), $number, 'a temporary index has its number');
CREATE TEMP TABLE tt (k int4);
INSERT INTO tt SELECT i % 10 + 2000 FROM generate_series(1, 100) i;
DO \$\$ BEGIN
	LOOP
		CREATE INDEX tt_k ON tt USING pmhash (k);
		EXIT WHEN (SELECT relfilenode FROM pg_class WHERE relname = 'tt_k') >= $number;
		DROP INDEX tt_k;
	END LOOP;
END \$\$;
SELECT relfilenode FROM pg_class WHERE relname = 'tt_k';
SQL

sub right
{
	my ($name) = @_;

	is($session->query_safe("$count t WHERE k = 5"), '1', "$name: the permanent index finds its row");
	is($session->query_safe("$count t WHERE k = 2005"), '0', "$name: and no other");
	is($session->query_safe("$count tt WHERE k = 2005"), '10', "$name: the temporary index finds its rows");
	is($session->query_safe("$count tt WHERE k = 5"), '0', "$name: and no other");
	is(scalar(index_files($pool)), 2, "$name: files");
	return;
}

right('both open');
$session->query_safe('INSERT INTO t VALUES (2005), (5); INSERT INTO tt VALUES (5), (2005)');
$session->query_safe(q{DELETE FROM t WHERE k = 2005 OR (k = 5 AND ctid > '(0,100)'); DELETE FROM tt WHERE k = 5 OR (k = 2005 AND ctid > '(0,100)')});
right('rows in each');
foreach my $change ('REINDEX INDEX tt_k', 'REINDEX INDEX t_k')
{
	$session->query_safe("BEGIN; $change; ROLLBACK");
	right("$change, rolled back");
}

# The drop of one is not taken for a hand-over of its main fork.
$session->query_safe('DROP INDEX tt_k');
is(scalar(index_files($pool)), 1, 'the file of the temporary index goes with it');
is($session->query_safe("$count t WHERE k = 5"), '1', 'the permanent index has its own');
is($session->query_safe('SELECT state FROM pmhash_indexes'), 'valid', 'and is valid');
$session->quit;
$node->stop;
done_testing();
