# Logged indexes: statements that fail in the middle, and the error is caught.  What
# is in the file is in WAL, each entry once; nothing else is.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashFaults;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_faulty_server('wal_faults', "wal_level = logical\nmax_wal_senders = 2\nfsync = off\npmhash.wal = on\n");
install_wal_records($node);

# Logical decoding reads all of it in the end.
$node->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('s', 'test_decoding')");

# The file system is full from here on; has space again.  A cancel comes instead.
my ($full, $space, $cancel) = @from_here{qw(full space cancel)};
my $by_index = "SET enable_seqscan = off; SET enable_bitmapscan = off;\n";
my $load = "INSERT INTO q SELECT i, 'text ' || i FROM generate_series(1, 5000) i;\n";
my $read = "SAVEPOINT s; SELECT count(*) FROM q WHERE k = 77; ROLLBACK TO s;\n";

# A test: the statements fail with these SQLSTATEs, and afterwards the entries in WAL
# are as many as those in the file, all different.
sub case_is
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, $states, $rows, $sql) = @_;

	$node->safe_psql('postgres', <<SQL);
DROP TABLE IF EXISTS q;
CREATE TABLE q (k int8, t varchar(20));
CREATE INDEX q_k ON q USING pmhash (k);
SQL
	my $from = $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');

	is(errors_of($node, $sql), $states, "$name: errors");
	$node->safe_psql('postgres', 'CREATE TABLE IF NOT EXISTS flush (); DROP TABLE flush');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM q'), $rows, "$name: rows");
	my ($entries, $logged, $different) = split(/\|/, $node->safe_psql('postgres', <<SQL));
SELECT (SELECT entries FROM pmhash_stats('q_k')), count(*), count(DISTINCT (hash, tid))
FROM pmhash_wal_records('$from', 'FFFFFFFF/0') r, unnest(hashes, tids) e (hash, tid)
WHERE r.type = 'INSERT'
SQL
	is("$logged $different", "$entries $entries", "$name: entries in WAL");
	cmp_ok($entries, '>=', $rows, "$name: one for each row");
	return;
}

case_is('all is well', '', 5000, "BEGIN; $load COMMIT;");
case_is('full until the end', '53100 53100', 0, "$by_index BEGIN; $load $full $read COMMIT;");
cmp_ok($node->safe_psql('postgres', "SELECT entries FROM pmhash_stats('q_k')"), '>', 16,
	'some groups went in before it was full');
case_is('full in a savepoint', '53100', 5000, "$by_index BEGIN; $load $full $read $space COMMIT;");
# (the rows of the inner level are queued when the outer one's have gone in)
case_is('full, twice', '53100', 5100,
	"$by_index BEGIN; $load $full $read $space INSERT INTO q SELECT i, 'new' FROM generate_series(1, 100) i; $full $read $space COMMIT;");
case_is('full, the level is aborted', '53100', 5000,
	"$by_index BEGIN; $load SAVEPOINT a; INSERT INTO q SELECT i, 'new' FROM generate_series(1, 3000) i; $full $read $space ROLLBACK TO a; COMMIT;");
case_is('cancelled', '57014', 5000, "$by_index BEGIN; $load $cancel $read $space COMMIT;");
case_is('full, rows one by one', '53100', 4000, <<SQL);
DO \$\$
BEGIN
	FOR i IN 1 .. 4000 LOOP
		INSERT INTO q VALUES (i, '');
	END LOOP;
END \$\$;
$full INSERT INTO q SELECT i, 'new' FROM generate_series(1, 20000) i; $space
SQL

# the records are nothing to logical decoding, with an index made by the way
$node->safe_psql('postgres', "SELECT count(*) FROM pg_logical_slot_get_changes('s', NULL, NULL)");
$node->safe_psql('postgres', "CREATE INDEX q_t ON q USING pmhash (t); INSERT INTO q VALUES (-1, 'decoded'); CHECKPOINT; INSERT INTO q VALUES (-2, 'decoded')");
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_logical_slot_get_changes('s', NULL, NULL) WHERE data ~ 'table public.q: INSERT'"),
	'2', 'logical decoding');
$node->stop;

done_testing();
