# Readers, writers, VACUUM and REINDEX at the same time: a reader always finds
# every row of a key that is not changed, once, and never a row of a key that
# is not inserted.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = $ENV{PMHASH_CONCURRENT_SECONDS} // 12;
my $node = new_server('concurrent');
$node->start;
install_extension($node);

# Key k has k % 5 rows, key 1 has 2000; only keys above 1000000 change, which
# share directory segments and buckets with them.
$node->safe_psql('postgres', <<SQL);
CREATE TABLE c (k int8, t text);
CREATE INDEX c_k ON c USING pmhash (k);
CREATE INDEX c_t ON c USING pmhash (t);
INSERT INTO c SELECT k, 'key ' || k FROM generate_series(1, 10000) k, generate_series(1, k % 5);
INSERT INTO c SELECT 1, 'key 1' FROM generate_series(1, 1999);
VACUUM ANALYZE c;
CREATE FUNCTION wanted(k int8) RETURNS int8 LANGUAGE sql IMMUTABLE AS
	\$\$ SELECT CASE WHEN k = 1 THEN 2000 WHEN k BETWEEN 2 AND 10000 THEN k % 5 ELSE 0 END \$\$;
CREATE FUNCTION found(k int8, got int8) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
	IF got IS DISTINCT FROM wanted(k) THEN
		RAISE 'key %: % rows instead of %', k, got, wanted(k);
	END IF;
END \$\$;
SQL

my %script = (
	look_up => <<'SQL',
\set k random(-100, 10100)
SELECT found(:k, (SELECT count(*) FROM c WHERE k = :k));
SELECT found(:k, (SELECT count(DISTINCT ctid) FROM c WHERE t = 'key ' || :k));
SQL
	join => <<'SQL',
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off;
\set k random(-100, 9000)
SELECT found(g, n) FROM (SELECT g, (SELECT count(*) FROM c WHERE k = g) AS n FROM generate_series(:k, :k + 300) g) x;
SELECT found(1, count(*)) FROM c WHERE k = ANY ('{1,0,-1,-2,10001,10005,10010,1}');
SET enable_indexscan = off; SET enable_indexonlyscan = off;
SELECT found(g, n) FROM (SELECT g, (SELECT count(*) FROM c WHERE k = g) AS n FROM generate_series(:k, :k + 100) g) x;
SQL
	write => <<'SQL',
\set k random(1000000, 1100000)
\set n random(1, 500)
INSERT INTO c SELECT i, 'key ' || i FROM generate_series(:k, :k + :n) i;
UPDATE c SET k = k + 1 WHERE k BETWEEN :k AND :k + 20;
DELETE FROM c WHERE k BETWEEN :k + 100 AND :k + 300;
INSERT INTO c SELECT 1000000, 'key many' FROM generate_series(1, :n) i;
BEGIN;
INSERT INTO c SELECT i % 10000, 'key ' || i % 10000 FROM generate_series(:k, :k + :n) i;
ROLLBACK;
SQL
	vacuum => "VACUUM c;\n\\sleep 50 ms\n",
	# not over and over: REINDEX waits for the others' transactions
	reindex => "REINDEX INDEX CONCURRENTLY c_k;\n\\sleep 500 ms\nDELETE FROM c WHERE k = 1000000;\nREINDEX INDEX CONCURRENTLY c_t;\n\\sleep 500 ms\n");
my %clients = (look_up => 2, join => 1, write => 2, vacuum => 1, reindex => 1);
my (%run, %output);

foreach my $name (sort keys %script)
{
	my $file = $node->basedir . "/$name.sql";

	append_to_file($file, $script{$name});
	$output{$name} = '';
	$run{$name} = start_pgbench($node, \$output{$name}, '-c', $clients{$name},
		'-T', $seconds, '-f', $file);
}
foreach my $name (sort keys %run)
{
	ok($run{$name}->finish, "$name: no client failed");
	unlike($output{$name}, qr/ERROR/, "$name: no error");
	like($output{$name}, qr/transactions actually processed: [1-9]/, "$name: something was done");
}
same_answers($node, 'c', 'k', 'c_k', 'at the end');
same_answers($node, 'c', 't', 'c_t', 'at the end');
is($node->safe_psql('postgres', "SELECT count(found(k, n)) FROM (SELECT g AS k, (SELECT count(*) FROM c WHERE k = g) AS n FROM generate_series(-100, 10100) g) x"),
	'10201', 'every key that was not changed');
foreach my $index ('c_k', 'c_t')
{
	my ($status, $stdout, $stderr) = $node->psql('postgres', "SELECT pmhash_check('$index')");
	is($stderr, '', "pmhash_check of $index");
}
$node->stop;
done_testing();
