# A subscriber that finds rows by a pmhash index (PostgreSQL 18 and later): by a
# unique one that is the replica identity, and by all columns (REPLICA IDENTITY FULL),
# NULLs among them.  It has the publisher's rows, whatever hashes are equal.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $publisher = new_server('publisher', "wal_level = logical\nmax_wal_senders = 4\n");
plan(skip_all => 'other access methods may do this in 18 and later') if $publisher->pg_version < 18;
my $subscriber = new_server('subscriber', "wal_level = replica\n");

# All strings of a length have one hash.
my $class = <<'SQL';
CREATE FUNCTION by_length(text, int8) RETURNS int8 IMMUTABLE STRICT LANGUAGE sql RETURN length($1);
CREATE OPERATOR CLASS by_length_ops FOR TYPE text USING pmhash AS OPERATOR 1 =, FUNCTION 1 by_length;
SQL
my $tables = <<'SQL';
CREATE TABLE same (id text NOT NULL, v int4);
CREATE UNIQUE INDEX same_id ON same USING pmhash (id by_length_ops);
ALTER TABLE same REPLICA IDENTITY USING INDEX same_id;
CREATE TABLE word (id text NOT NULL, v int4);
CREATE UNIQUE INDEX word_id ON word USING pmhash (id);
ALTER TABLE word REPLICA IDENTITY USING INDEX word_id;
CREATE TABLE bare (k int4, t text);
ALTER TABLE bare REPLICA IDENTITY FULL;
CREATE TABLE pair (a int4, b text, c int4);
ALTER TABLE pair REPLICA IDENTITY FULL;
SQL

foreach my $node ($publisher, $subscriber)
{
	$node->start;
	install_extension($node);
	$node->safe_psql('postgres', $class . $tables);
}
$publisher->safe_psql('postgres', <<'SQL');
INSERT INTO same SELECT lpad(i::text, 5), i FROM generate_series(1, 500) i;
INSERT INTO word SELECT 'word ' || i, i FROM generate_series(1, 2000) i;
INSERT INTO bare SELECT nullif(i % 50, 0), 'row ' || i FROM generate_series(1, 2000) i;
INSERT INTO pair SELECT i % 20, nullif('b' || i % 7, 'b0'), i FROM generate_series(1, 2000) i;
CREATE PUBLICATION pub FOR ALL TABLES;
SQL
$subscriber->safe_psql('postgres', 'CREATE INDEX bare_k ON bare USING pmhash (k); CREATE INDEX pair_ab ON pair USING pmhash (a, b)');
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION sub CONNECTION 'host=" . $publisher->host . ' port=' . $publisher->port . " dbname=postgres' PUBLICATION pub");
$subscriber->wait_for_subscription_sync($publisher, 'sub');

sub same_rows
{
	my ($name) = @_;

	$publisher->wait_for_catchup('sub');
	foreach my $table ('same', 'word', 'bare', 'pair')
	{
		my $rows = "SELECT count(*), sum(hashtextextended(t::text, 1)), sum(hashtextextended(t::text, 2)) FROM $table t";

		is($subscriber->safe_psql('postgres', $rows), $publisher->safe_psql('postgres', $rows), "$name: $table");
	}
	is($subscriber->safe_psql('postgres', 'SELECT sum(apply_error_count) FROM pg_stat_subscription_stats'), '0', "$name: no error");
	return;
}

same_rows('copied');
$publisher->safe_psql('postgres', <<'SQL');
UPDATE same SET v = v + 1000 WHERE v % 3 = 0;
UPDATE same SET id = '9' || substr(id, 2) WHERE v % 5 = 0;
DELETE FROM same WHERE v % 7 = 0;
UPDATE word SET v = -v WHERE v % 3 = 0;
UPDATE word SET id = id || 'x' WHERE v % 5 = 0;
DELETE FROM word WHERE v % 7 = 0;
UPDATE bare SET t = t || ' changed' WHERE k IS NULL;
DELETE FROM bare WHERE k IS NULL AND t LIKE '%5 changed';
UPDATE bare SET k = NULL WHERE k = 7;
UPDATE bare SET k = 7 WHERE k IS NULL AND t LIKE '%00 changed';
DELETE FROM bare WHERE k = 9;
UPDATE pair SET c = -c WHERE b IS NULL;
UPDATE pair SET b = NULL WHERE b = 'b3';
DELETE FROM pair WHERE a = 4 AND b IS NULL;
SQL
same_rows('changed');
$subscriber->safe_psql('postgres', "SELECT pg_stat_force_next_flush()");
foreach my $index ('same_id', 'word_id', 'bare_k', 'pair_ab')
{
	ok($subscriber->poll_query_until('postgres', "SELECT idx_scan > 0 FROM pg_stat_user_indexes WHERE indexrelname = '$index'"),
		"$index has been used");
}
is($subscriber->safe_psql('postgres', "SELECT pmhash_check('same_id'), pmhash_check('word_id'), pmhash_check('bare_k'), pmhash_check('pair_ab')"),
	'|||', 'pmhash_check');

# a row that is there already: the conflict is found by the index
$subscriber->safe_psql('postgres', "INSERT INTO word VALUES ('taken', 1)");
$publisher->safe_psql('postgres', "INSERT INTO word VALUES ('taken', 2)");
ok($subscriber->poll_query_until('postgres', "SELECT apply_error_count > 0 FROM pg_stat_subscription_stats"),
	'a key that the subscriber has is a conflict');
$subscriber->safe_psql('postgres', "DELETE FROM word WHERE id = 'taken'");
$publisher->wait_for_catchup('sub');
is($subscriber->safe_psql('postgres', "SELECT v FROM word WHERE id = 'taken'"), '2', 'and goes in when it has gone');
done_testing();
