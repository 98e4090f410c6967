# Page scans only go forward: they are in no plan that a cursor may turn back, whoever
# opens it.  A module of the server's own or a procedural language prepares a query
# without a word on cursors (SPI_prepare), and may open one on it, which the server then
# makes scrollable if its plan is (ts_stat does the first two).  And they are where no
# cursor can turn back.  Which plan it is the server says itself (debug_print_plan).

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('page_scan_cursors', "enable_seqscan = off\nenable_bitmapscan = off\n");
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE d (k int4, v int4, words tsvector);
INSERT INTO d SELECT i % 5, i, to_tsvector('simple', 'w' || i % 3) FROM generate_series(1, 5000) i;
CREATE INDEX d_k ON d USING pmhash (k);
VACUUM ANALYZE d;
SQL

# The scans in the plans that are made while a query runs.
sub scans
{
	my ($query) = @_;
	my $plans = '';

	$node->psql('postgres', "SET client_min_messages = log; SET debug_print_plan = on; $query", stderr => \$plans, on_error_die => 1);
	my %scans = map { $_ => 1 } $plans =~ /\{(CUSTOMSCAN|INDEXSCAN)\b/g;
	return join(' ', sort keys %scans);
}

sub do_block
{
	return "DO \$\$ DECLARE c refcursor; x int8; r record; BEGIN $_[0] END \$\$";
}

# ---- by a cursor that may go backward ----

is(scans("SELECT count(*) FROM ts_stat('SELECT words FROM d WHERE k = 1')"), 'INDEXSCAN', 'SPI_prepare and a cursor');
is(scans("SELECT count(*) FROM ts_stat('SELECT words FROM d WHERE k = 1 UNION ALL SELECT words FROM d WHERE k = 2')"), 'INDEXSCAN', 'of a query in parts');
is(scans('BEGIN; DECLARE c CURSOR FOR SELECT v FROM d WHERE k = 1; FETCH 2 FROM c; FETCH BACKWARD 1 FROM c; COMMIT'), 'INDEXSCAN', 'DECLARE CURSOR');
is(scans(do_block("OPEN c FOR SELECT v FROM d WHERE k = 1; FETCH c INTO x; FETCH c INTO x; FETCH BACKWARD FROM c INTO x;")), 'INDEXSCAN', 'a cursor of PL/pgSQL');

# ---- where nothing goes backward ----

is(scans('SELECT v FROM d WHERE k = 1'), 'CUSTOMSCAN', 'a statement');
is(scans('PREPARE p AS SELECT v FROM d WHERE k = 1; EXECUTE p'), 'CUSTOMSCAN', 'EXECUTE');
is(scans('BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT v FROM d WHERE k = 1; FETCH 2 FROM c; COMMIT'), 'CUSTOMSCAN', 'NO SCROLL');
is(scans(do_block('FOR x IN SELECT v FROM d WHERE k = 1 LOOP END LOOP;')), 'CUSTOMSCAN', 'PL/pgSQL: a loop');
is(scans(do_block('FOR x IN EXECUTE \'SELECT v FROM d WHERE k = 1\' LOOP END LOOP;')), 'CUSTOMSCAN', 'PL/pgSQL: a loop over EXECUTE');
is(scans(do_block('PERFORM v FROM d WHERE k = 1;')), 'CUSTOMSCAN', 'PL/pgSQL: a statement');
is(scans(do_block('x := (SELECT sum(v) FROM d WHERE k = 1);')), 'CUSTOMSCAN', 'PL/pgSQL: an assignment');
is(scans(do_block('x := (SELECT v FROM d WHERE k = 1 LIMIT 1 OFFSET 900);')), 'CUSTOMSCAN', 'PL/pgSQL: an assignment of a row');
is(scans(do_block('x := sum(v) FROM d WHERE k = 1;')), 'CUSTOMSCAN', 'PL/pgSQL: an assignment of an aggregate');
is(scans('BEGIN; DECLARE c SCROLL CURSOR FOR SELECT sum(v) FROM d WHERE k = 1; FETCH 1 FROM c; FETCH BACKWARD 1 FROM c; COMMIT'), 'CUSTOMSCAN', 'below an aggregate');
is($node->safe_psql('postgres', 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT sum(v) FROM d WHERE k = 1; FETCH 1 FROM c; FETCH 1 FROM c; FETCH BACKWARD 1 FROM c; FETCH FIRST FROM c; COMMIT'),
	"2498500\n2498500\n2498500", 'which is turned back');

$node->stop;
done_testing();
