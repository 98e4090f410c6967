# The causes that docs/troubleshooting.md names for a plan without the index, each with
# its cure.  With enable_seqscan off the plan has the index if it can.

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

# words of the row, an index, conditions that cannot use it, the same ones cured
foreach my $case (
	[ 'the condition is not `=`', 'item_id', [ 'id < 5', 'id BETWEEN 1 AND 2', 'id IS NULL' ], [ 'id = 5', 'id IN (1, 2)' ] ],
	[ 'the query does not imply its `WHERE`', 'item_part', [ 'price = 950 + (random() * 0)::int' , 'price = (SELECT 950)' ],
		[ 'price = (SELECT 950) AND price > 900', 'price = 950' ] ],
	[ 'the query writes it differently', 'item_lower', [ "lower(trim(sku)) = 'a'" ], [ "lower(sku) = 'a'" ] ],
	[ 'another collation than the index', 'item_sku', [ q{sku = 'a' COLLATE "C"} ], [ "sku = 'a'" ] ],
	[ 'the query changes the column', 'item_id', [ "id::text = '5'", 'id = 5.0::numeric' ], [ 'id = 5.0::numeric::bigint', 'id = 5::smallint' ] ],
	[ 'a `char(n)` column with `text`', 'item_code', [ "code = '5'::text" ], [ "code = '5'::text::bpchar", "code = '5'" ] ],
	[ 'a `timestamptz` column compared with', 'item_at', [ 'at = localtimestamp', 'at = current_date' ],
		[ 'at = localtimestamp::timestamptz', 'at = current_date::timestamptz', 'at = now()' ] ])
{
	my ($words, $index, $without, $with) = @$case;

	like($document, qr/^\| .*\Q$words\E.* \|$/m, "in the document: $words");
	unlike(plan_of($_), qr/\b$index\b/, "without the index: $_") foreach @$without;
	like(plan_of($_), qr/\b$index\b/, "by the index: $_") foreach @$with;
}

like($document, qr/^\| .*the query leaves one of them out.* \|$/m, 'in the document: a column is left out');
unlike($node->safe_psql('postgres', 'EXPLAIN SELECT * FROM item WHERE price = 5'), qr/item_two/, 'not worth it');
like(plan_of('price = 5'), qr/item_two/, 'possible all the same');
$node->safe_psql('postgres', 'DROP INDEX item_id');
like(plan_of('price = 5 AND id = 5'), qr/item_two/, 'all columns');

$node->stop;
done_testing();
