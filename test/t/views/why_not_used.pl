# The causes that docs/troubleshooting.md names for a plan without the index, each with
# its cure.  With enable_seqscan off the plan has the index if it can.  pmhash.explain says
# the same, and why.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $document = slurp_file("$FindBin::RealBin/../../../docs/troubleshooting.md");
my $node = new_server('why');

$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE item (id int8, sku text, code char(5), price numeric, at timestamptz);
INSERT INTO item SELECT g, 'sku-' || g, g % 100, g, now() FROM generate_series(1, 1000) AS g;
CREATE INDEX item_id ON item USING pmhash (id);
CREATE INDEX item_sku ON item USING pmhash (sku);
CREATE INDEX item_lower ON item USING pmhash (lower(sku));
CREATE INDEX item_code ON item USING pmhash (code);
CREATE INDEX item_at ON item USING pmhash (at);
CREATE INDEX item_two ON item USING pmhash (price, id);
CREATE INDEX item_part ON item USING pmhash (price) WHERE price > 900;
ANALYZE item;
SQL

sub plan_of
{
	my ($condition) = @_;
	return $node->safe_psql('postgres', "SET enable_seqscan = off; EXPLAIN (COSTS OFF) SELECT * FROM item WHERE $condition");
}

sub explained
{
	my ($index, $condition, $before) = @_;
	return $node->safe_psql('postgres', ($before // '') .
		"SELECT usable, coalesce(reason, '-') FROM pmhash.explain('$index', \$c\$$condition\$c\$)");
}

my $is_changed = qr/column "\w+" is not compared itself, but an expression of it, or not by "=", or only under OR/;
my $lacks = qr/column "\w+" is compared by operator =\([\w ]+,[\w ]+\), which operator family "\w+" does not have/;

# words of the row, an index, conditions that cannot use it, the same ones cured, what
# pmhash.explain says of the former
foreach my $case (
	[ 'the condition is not `=`', 'item_id', [ 'id < 5', 'id BETWEEN 1 AND 2', 'id IS NULL' ], [ 'id = 5', 'id IN (1, 2)' ],
		qr/column "id" is (?:not compared itself|compared by operator [<>]=?\(bigint,integer\), which)/ ],
	[ 'the query does not imply its `WHERE`', 'item_part', [ 'price = 950 + (random() * 0)::int' , 'price = (SELECT 950)' ],
		[ 'price = (SELECT 950) AND price > 900', 'price = 950' ],
		qr/the condition does not imply the predicate of the index/ ],
	[ 'the query writes it differently', 'item_lower', [ "lower(trim(sku)) = 'a'" ], [ "lower(sku) = 'a'" ], qr/column "lower" is not compared/ ],
	[ 'another collation than the index', 'item_sku', [ q{sku = 'a' COLLATE "C"} ], [ "sku = 'a'" ],
		qr/column "sku" is compared under another collation than that of the index/ ],
	[ 'the query changes the column', 'item_id', [ "id::text = '5'", 'id = 5.0::numeric' ], [ 'id = 5.0::numeric::bigint', 'id = 5::smallint' ], qr/$is_changed|$lacks/ ],
	[ 'a `char(n)` column with `text`', 'item_code', [ "code = '5'::text" ], [ "code = '5'::text::bpchar", "code = '5'" ], $lacks ])
{
	my ($words, $index, $without, $with, $reason) = @$case;

	like($document, qr/^\| .*\Q$words\E.* \|$/m, "in the document: $words");
	unlike(plan_of($_), qr/\b$index\b/, "without the index: $_") foreach @$without;
	like(plan_of($_), qr/\b$index\b/, "by the index: $_") foreach @$with;
	like(explained($index, $_), qr/^f\|$reason/, "explained: $_") foreach @$without;
	like(explained($index, $_), qr/^t\|/, "explained: $_") foreach @$with;
}

foreach my $condition ('at = localtimestamp', 'at = current_date', "current_date::timestamp = at", 'at = now()')
{
	like(plan_of($condition), qr/\bitem_at\b/, "by the index: $condition");
	like(explained('item_at', $condition), qr/^t\|/, "explained: $condition");
}

like($document, qr/^\| .*the query leaves one of them out.* \|$/m, 'in the document: a column is left out');
unlike($node->safe_psql('postgres', 'EXPLAIN SELECT * FROM item WHERE price = 5'), qr/item_two/, 'not worth it');
like(plan_of('price = 5'), qr/item_two/, 'possible all the same');
$node->safe_psql('postgres', 'DROP INDEX item_id');
like(plan_of('price = 5 AND id = 5'), qr/item_two/, 'all columns');


# ---- pmhash.explain: an index alone, parameters, other indexes, settings, no condition ----
is(explained('item_two', 'price = $1 AND id = $2'), 't|-', 'explained: parameters');
is(explained('item_two', 'price = 5'), 'f|column "id" is not compared', 'explained: a column is left out');
$node->safe_psql('postgres', 'CREATE INDEX item_btree ON item (sku, id)');
is(explained('item_sku', "sku = 'sku-1' AND sku IS NOT NULL"), 't|-', 'explained: chosen');
like(explained('item_sku', "sku = 'sku-1' AND id = 1"), qr/^t\|/, 'explained: beside a btree');
like(explained('item_code', "code = '5' OR code = '6'"), qr/^t\|/, 'explained: OR');
like(explained('item_code', "code = '5' OR price = 6"), qr/^f\|$is_changed/, 'explained: OR with another column');
is(explained('item_sku', "sku = 'sku-1'", 'SET enable_indexscan = off; SET enable_bitmapscan = off; DROP INDEX item_btree; '),
	't|enable_indexscan and enable_bitmapscan are off', 'explained: settings');
is($node->safe_psql('postgres', "SELECT usable, reason IS NULL FROM pmhash.explain('item_sku')"), 't|t', 'explained: no condition');
fails_like($node, "SELECT pmhash.explain('item_sku', '$_->[0]')", $_->[1], "not explained: $_->[0]")
  foreach ([ 'true); DROP TABLE item; SELECT (1', qr/the condition is not one expression/ ],
	[ 'nothing = 1', qr/column "nothing" does not exist/ ], [ 'id =', qr/syntax error/ ]);
fails_like($node, "SELECT pmhash.explain('pg_class_oid_index')", qr/is not a pmhash index/, 'not explained: another method');
fails_like($node, 'SELECT pmhash.explain(NULL)', qr/no pmhash index is named/, 'not explained: none');
$node->safe_psql('postgres', 'CREATE ROLE nobody');
fails_like($node, "SET ROLE nobody; SELECT pmhash.explain('item_sku')", qr/permission denied for table item/, 'not explained: to others');

# ---- pmhash.explain: page scans and joins by this index or another; functions; children ----
$node->safe_psql('postgres', <<SQL);
CREATE TABLE p (a int, b int);
INSERT INTO p SELECT i % 100, i % 50 FROM generate_series(1, 40000) AS i;
CREATE INDEX p_a ON p USING pmhash (a);
CREATE INDEX p_b ON p USING pmhash (b);
CREATE TABLE q (x int PRIMARY KEY);
INSERT INTO q SELECT generate_series(1, 1000);
ANALYZE p, q;
CREATE FUNCTION one() RETURNS int STABLE LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT x FROM q WHERE x = 1); END';
SQL
like($node->safe_psql('postgres', 'EXPLAIN SELECT FROM p WHERE a = 1 AND b = 1'), qr/pmhash page scan.*p_a/s, 'page scan');
is(explained('p_a', 'a = 1 AND b = 1'), 't|-', 'explained: page scan');
like(explained('p_b', 'a = 1 AND b = 1'), qr/^t\|the planner takes another plan/, 'explained: page scan by another index');
like($node->safe_psql('postgres', 'EXPLAIN SELECT FROM p WHERE a IN (SELECT x FROM q WHERE x < 3)'), qr/pmhash join.*p_a/s, 'join');
is(explained('p_a', 'a IN (SELECT x FROM q WHERE x < 3)'), 't|-', 'explained: join');
is( $node->safe_psql('postgres', <<SQL), "t\n1\nt", 'explained: plans made by functions meanwhile are not kept');
SELECT usable FROM pmhash.explain('p_a', 'a = one()');
BEGIN;
SELECT one();
SELECT idx_scan > 0 FROM pg_stat_xact_user_tables WHERE relname = 'q';
COMMIT;
SQL
$node->safe_psql('postgres', 'CREATE TABLE p_child () INHERITS (p)');
is(explained('p_a', 'a = 1'), 't|-', 'explained: a table with children');
$node->append_conf('postgresql.conf', 'pmhash.rebuild = off');
unlink $node->safe_psql('postgres', "SELECT file FROM pmhash.stats('item_sku')") or die;
$node->restart;
is(explained('item_sku', "sku = 'sku-1'"), 'f|the state of the index is "invalid: it does not exist"', 'explained: invalid');

$node->stop;
done_testing();
