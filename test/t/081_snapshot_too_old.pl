# old_snapshot_threshold (PostgreSQL 15 and 16): a scan whose snapshot is too old
# says so, as core does, when rows that it sees may have lost their entries, be it
# by VACUUM, by scans, by pruning or by a new index; it never has fewer rows.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('too_old');
plan skip_all => 'no old_snapshot_threshold' if $node->pg_version >= 17;

# 0: five seconds
$node->append_conf('postgresql.conf', <<CONF);
old_snapshot_threshold = 0
synchronous_commit = on
enable_bitmapscan = off
CONF
$node->start;
install_extension($node);
my @tables = qw(by_vacuum by_scan by_list waiting by_pruning by_reindex by_new_entry);
foreach my $table (@tables, 'unchanged')
{
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE $table (k int4, v text);
INSERT INTO $table SELECT i, 'row ' || i FROM generate_series(1, 1000) i;
CREATE INDEX ${table}_k ON $table USING pmhash (k);
SQL
}
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE other (v int4);
CREATE FUNCTION answer(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n text;
BEGIN
	EXECUTE query INTO n;
	RETURN n;
EXCEPTION WHEN snapshot_too_old THEN
	RETURN SQLERRM;
END $$;
VACUUM ANALYZE;
SQL

# Files that share one of cluster/shared.h's words for the last removal get errors for each
# other's removals.  Make indexes until no two of these do.
sub separate_files
{
	my ($words) = slurp_file("$FindBin::RealBin/../../src/cluster/shared.h") =~ /^#define PMHASH_REMOVAL_EPOCHS\s+(\d+)$/m
	  or die 'PMHASH_REMOVAL_EPOCHS not found';
	my (%taken, @together);
	foreach my $table (@tables, 'unchanged')
	{
		my ($file_id) = index_file($node, "${table}_k") =~ m{/([0-9a-f]{16})\.pmh$} or die 'which file?';
		push @together, $table if $taken{ hex(substr($file_id, 8)) % $words }++;
	}
	$node->safe_psql('postgres', "REINDEX INDEX ${_}_k") foreach @together;
	return !@together;
}
1 until separate_files();

sub entries
{
	my ($table) = @_;
	return $node->safe_psql('postgres', "SELECT entries FROM pmhash_stats('${table}_k')");
}

sub look_up_dead
{
	my ($table) = @_;
	return $node->safe_psql('postgres', "SET enable_seqscan = off; SELECT count(v) FROM $table WHERE k = 400");
}

# The same with WAL of its page that is not flushed: the entry goes into the list.
sub put_into_list
{
	my ($table) = @_;
	return $node->safe_psql('postgres', <<SQL);
SET enable_seqscan = off;
BEGIN;
SELECT FROM $table WHERE k = 401 FOR UPDATE;
SELECT count(v) FROM $table WHERE k = 400;
ROLLBACK;
SQL
}

# Rows that are dead before the snapshot is taken, so that removing them takes
# nothing from it.  (The server takes rows from under a snapshot by the minute;
# that would be a long test.  What is tested is what a page of core's indexes has
# its LSN for: something has been removed since the snapshot was taken.)
$node->safe_psql('postgres', "DELETE FROM $_ WHERE k = 400") foreach grep { $_ ne "by_new_entry" } @tables;

# one snapshot for all: errors are caught in subtransactions
my $session = $node->background_psql('postgres');
$session->query_safe('SET enable_seqscan = off; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(v) FROM unchanged WHERE k = 1');
sub old_answer
{
	my ($table, $columns, $k) = @_;
	return $session->query_safe(sprintf("SELECT answer('SELECT count($columns) FROM $table WHERE k = %d')", $k // 500));
}
foreach my $table (@tables)
{
	next if $table eq 'by_reindex';    # REINDEX would wait for the session
	is(old_answer($table, 'v'), 1, "$table: before");
}
$node->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
sleep(6);

# event: `old_snapshot_threshold` (PostgreSQL 15, 16) lets rows be taken from under a snapshot
$node->safe_psql('postgres', 'VACUUM by_vacuum');
is(entries('by_vacuum'), 999, 'VACUUM has removed the entry');
$node->safe_psql('postgres', 'SELECT count(v) FROM by_scan; INSERT INTO other VALUES (1)');
look_up_dead('by_scan');
is(entries('by_scan'), 999, 'a scan has removed the entry at once');
hold_wal_writer($node);
put_into_list('by_list');
is(entries('by_list'), 1000, 'a scan has put the entry into the list');
$node->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
look_up_dead('by_list');
is(entries('by_list'), 999, 'another has removed it');
$node->safe_psql('postgres', 'SELECT count(v) FROM by_pruning');
is(entries('by_pruning'), 1000, 'pruning removes no entry');
$node->safe_psql('postgres', 'REINDEX INDEX by_reindex_k');
is(entries('by_reindex'), 999, 'the new index lacks the dead row');
$node->safe_psql('postgres', 'UPDATE by_new_entry SET v = v WHERE k = 900');
put_into_list('waiting');
is(entries('waiting'), 1000, 'an entry that stays in the list, where scans pass over it');

my %wanted = map { $_ => 'snapshot too old' } @tables;
delete $wanted{by_new_entry};
is(old_answer($_, 'v'), $wanted{$_}, "$_: too old") foreach sort keys %wanted;
is(old_answer($_, 'k'), $wanted{$_}, "$_: too old for a scan of the index alone")
	foreach qw(by_vacuum by_scan by_list waiting by_pruning by_reindex);
is(old_answer('by_pruning', 'k', 400), 'snapshot too old',
	'by_pruning: a scan of the index alone visits the page, finds no row, and nothing after it');
# The server tests pages that are visited; here none is, and only what is noted of
# removals tells.
my @without_visit = qw(by_vacuum by_scan by_list waiting);
foreach my $table (@without_visit)
{
	is(old_answer($table, 'v', 400), 'snapshot too old', "$table: the row that has gone");
	is(old_answer($table, 'k', 400), 'snapshot too old', "$table: the same, by the index alone");
}
is(old_answer('unchanged', 'v'), 1, 'unchanged table');
is(old_answer('by_new_entry', 'v'), 1, 'a table in which nothing was removed near the row');
$session->query_safe('SET enable_bitmapscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off');
is(old_answer($_, 'v'), 'snapshot too old', "$_: too old for a bitmap scan") foreach qw(by_vacuum by_scan by_list waiting by_reindex);
is(old_answer($_, 'v', 400), 'snapshot too old', "$_: the row that has gone, by a bitmap") foreach @without_visit;
is(entries('waiting'), 1000, 'it was in the list all the time');
release_wal_writer($node);
$session->quit;
is($node->safe_psql('postgres', "SET enable_seqscan = off; SELECT answer('SELECT count(v) FROM $_ WHERE k = 501')"), 1, "$_: a new snapshot")
	foreach @tables;
$node->stop;
done_testing();
