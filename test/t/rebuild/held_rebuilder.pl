# A function in an index expression that never ends holds up rebuilds of indexes with
# expressions, and of its own table's other indexes, of which none is tried in vain; no other,
# whenever that is lost.  It reads no index that has become valid since its snapshot was taken.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('held');
$node->start;
install_extension($node);
my $rebuilders = q(FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder');

$node->safe_psql('postgres', 'CREATE DATABASE db1');
install_extension($node, 'db1');

# It never ends for workers, as long as the gate is locked.
sub gated
{
	my ($database) = @_;

	$node->safe_psql($database, <<'SQL');
CREATE FUNCTION gate(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE waited boolean := false;
BEGIN
	WHILE EXISTS (SELECT FROM pg_stat_activity WHERE pid = pg_backend_pid() AND backend_type = 'pmhash rebuilder') AND
		EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 7) LOOP PERFORM pg_sleep(0.1); waited := true; END LOOP;
	IF waited THEN RAISE LOG 'the gate sees % rows', (SELECT count(*) FROM public.d WHERE d.k = 5); END IF;
	RETURN k;
END $$;
CREATE TABLE a (k int);
INSERT INTO a SELECT generate_series(1, 100);
CREATE INDEX a_gate ON a USING pmhash (gate(k));
CREATE INDEX a_k ON a USING pmhash (k);
CREATE TABLE b (k int, CONSTRAINT b_gate EXCLUDE USING pmhash (gate(k) WITH =));
INSERT INTO b SELECT generate_series(1, 100);
CREATE INDEX b_k ON b USING pmhash (k);
CREATE TABLE p (k int);
INSERT INTO p SELECT generate_series(1, 100);
CREATE INDEX p_k ON p USING pmhash (k) WHERE k > 10;
CREATE TABLE c (k int, CONSTRAINT c_k EXCLUDE USING pmhash (k WITH =));
INSERT INTO c SELECT generate_series(1, 100);
CREATE TABLE d (k int);
INSERT INTO d SELECT generate_series(1, 100);
CREATE INDEX d_k ON d USING pmhash (k);
SQL
	return;
}

sub state_of
{
	my ($index, $database) = @_;

	return $node->safe_psql($database // 'postgres', "SELECT state FROM pmhash_indexes WHERE index = '$index'");
}

sub comes_to_be_valid
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($index, $database, $name) = @_;

	return ok($node->poll_query_until($database, "SELECT state = 'valid' FROM pmhash_indexes WHERE index = '$index'"), "$name: $database, $index")
	  || diag($node->safe_psql($database, 'SELECT index, state FROM pmhash_indexes'));
}

gated($_) foreach qw(postgres db1);
$node->stop;
unlink(index_files(pool($node)));
$node->append_conf('postgresql.conf', 'pmhash.rebuild = off');
$node->start;
my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(7)');
$node->append_conf('postgresql.conf', 'pmhash.rebuild = on');
$node->reload;

foreach my $database (qw(postgres db1))
{
	comes_to_be_valid($_, $database, 'while an expression does not end') foreach qw(c_k d_k a_k b_k);
}
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 $rebuilders AND wait_event = 'PgSleep'"), 'one rebuilder is in the function');
like($node->safe_psql('postgres', "SELECT query $rebuilders"), qr/^rebuilding pmhash index public\.b_gate$/,
	'pg_stat_activity names the index, which is that of the constraint');
isnt(state_of($_), 'valid', "$_ is not there") foreach qw(a_gate b_gate);
is($node->safe_psql('postgres', 'INSERT INTO c VALUES (1000) RETURNING k'), '1000', 'a table with another constraint can be written');

# Of the table that the function is at: nothing fails, and nothing is tried in vain.
my $database = $node->safe_psql('postgres', "SELECT datname $rebuilders");
my $other = $database eq 'db1' ? 'postgres' : 'db1';
my $offset = -s $node->logfile;
$node->safe_psql($database, 'DELETE FROM d WHERE k = 5');
foreach my $lost ([ $database, 'b' ], [ $database, 'd' ], [ $other, 'd' ])
{
	my ($where, $table) = @$lost;

	unlink($node->safe_psql($where, "SELECT file FROM pmhash_indexes WHERE index = '${table}_k'")) or die;
	$node->safe_psql($where, "SET enable_seqscan = off; SELECT count(*) FROM $table WHERE k = 1");
}
comes_to_be_valid('d_k', $other, 'lost meanwhile, another database');
comes_to_be_valid('d_k', $database, 'lost meanwhile, another table');
sleep 7;
like(state_of('b_k', $database), qr/^invalid/, 'of its own table: not yet');
is(scalar(() = substr(slurp_file($node->logfile), $offset) =~ /could not rebuild/g), 0, 'of its own table: no failure');

# Another launcher knows nothing of the rebuilder: the next one for expressions leaves.
$node->safe_psql('postgres', q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pmhash launcher'));
ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pmhash launcher')),
	'another launcher has come');
$node->safe_psql($_, "SET enable_seqscan = off; SELECT count(*) FROM p WHERE k > 10 AND k = 20") foreach ($other, $database);
sleep 3;
is($node->safe_psql('postgres', "SELECT count(*) $rebuilders AND query ~ 'gate'"), '1', 'still one that runs functions');

$gate->query_safe('SELECT pg_advisory_unlock(7)');
$gate->quit;
foreach my $database (qw(postgres db1))
{
	comes_to_be_valid($_, $database, 'the gate is open') foreach qw(a_gate b_gate p_k);
}
comes_to_be_valid('b_k', $database, 'the gate is open');
like(substr(slurp_file($node->logfile), $offset), qr/the gate sees 1 rows/, 'it reads rows that its snapshot sees, which no entry leads to');
my @failures = substr(slurp_file($node->logfile), $offset) =~ /(could not rebuild .*)/g;
is("@failures", '', 'no failure at all');

# As docs/operations.md says: it is ended, and the index dropped before the next try.
$gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(7)');
unlink($node->safe_psql('postgres', "SELECT file FROM pmhash_indexes WHERE index = 'a_gate'")) or die;
$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM a WHERE gate(k) = 1');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 $rebuilders AND wait_event = 'PgSleep' AND query ~ 'a_gate'"), 'it is in the function again');
is($node->safe_psql('postgres', q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type ~ '^pmhash (rebuilder|standby builder)' AND query ~ 'a_gate')),
	't', 'it is told to end');
is($node->safe_psql('postgres', q(SET lock_timeout = '10s'; DROP INDEX a_gate; SELECT 'dropped')), 'dropped', 'the index is dropped then');
$gate->quit;
$node->stop;
done_testing();
