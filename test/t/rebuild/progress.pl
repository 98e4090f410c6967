# pg_stat_progress_create_index while an index is being built: each phase is
# seen, with figures that fit.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $rows = 1_000_000;
my $node = new_server('progress', "max_parallel_maintenance_workers = 0\n");
$node->start;
install_extension($node);

is($node->safe_psql('postgres', <<SQL),
SELECT string_agg(pg_indexam_progress_phasename(am.oid, n), ', ' ORDER BY n)
FROM pg_am am, generate_series(1, 10) n WHERE amname = 'pmhash'
SQL
	'initializing, scanning table, loading partitions, inserting remaining duplicates', 'names of the phases');

# wait_at stops a build at one row, as long as a session has the lock.
$node->safe_psql('postgres', <<SQL);
CREATE TABLE seen (phase text, blocks_total bigint, blocks_done bigint, tuples_total bigint, tuples_done bigint);
CREATE FUNCTION wait_at(k int8) RETURNS int8 IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN IF k = 1500 THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN k; END';
CREATE TABLE small (k int8);
INSERT INTO small SELECT generate_series(1, 2000);
CREATE TABLE large (k int8);
INSERT INTO large SELECT i % 2 FROM generate_series(1, $rows) i;
CREATE PROCEDURE watch(target text) LANGUAGE plpgsql AS \$\$
BEGIN
	LOOP
		INSERT INTO seen
			SELECT phase, blocks_total, blocks_done, tuples_total, tuples_done
			FROM pg_stat_progress_create_index WHERE relid = target::regclass;
		EXIT WHEN to_regclass(target || '_k') IS NOT NULL;
		COMMIT;
	END LOOP;
END \$\$;
SQL

# ---- the scan, stopped ----
my $lock = $node->background_psql('postgres');
$lock->query_safe('SELECT pg_advisory_lock(1)');
my $builder = $node->background_psql('postgres');
$builder->query_until(qr/begun/, "\\echo begun\nCREATE INDEX small_k ON small USING pmhash (wait_at(k));\n");
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
  or die 'the build does not wait';
is($node->safe_psql('postgres', <<SQL),
SELECT command, phase, blocks_total, blocks_done BETWEEN 1 AND blocks_total, relid::regclass
FROM pg_stat_progress_create_index
SQL
	"CREATE INDEX|building index: scanning table|@{[ $node->safe_psql('postgres', q(SELECT pg_relation_size('small') / 8192)) ]}|t|small",
	'in the middle of the scan');
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$builder->quit;
$lock->quit;
is($node->safe_psql('postgres', "SELECT * FROM answers('SELECT ctid FROM small WHERE wait_at(k) = 1500', 'small_k')"),
	'1|same|same', 'the index that was watched');

# ---- all phases, watched: two keys in too little memory for a partition ----
# On a busy machine the watcher may sleep through a phase: then once more.
my @phases = ('scanning table', 'loading partitions', 'inserting remaining duplicates');
my $times_seen = "SELECT count(*) FROM seen WHERE phase = 'building index: ";
foreach my $try (1 .. 10)
{
	my $watcher = $node->background_psql('postgres');
	$watcher->query_until(qr/begun/, "\\echo begun\nCALL watch('large');\n");
	$node->safe_psql('postgres', "SET maintenance_work_mem = '1MB'; CREATE INDEX large_k ON large USING pmhash (k)");
	$watcher->quit;
	last if !grep { $node->safe_psql('postgres', "$times_seen$_'") == 0 } @phases;
	$node->safe_psql('postgres', 'DROP INDEX large_k') if $try < 10;
}
cmp_ok($node->safe_psql('postgres', "$times_seen$_'"), '>', 0, "seen: $_") foreach @phases;
is($node->safe_psql('postgres', 'SELECT count(*) FROM seen WHERE blocks_done > blocks_total OR tuples_done > tuples_total'),
	'0', 'never more done than there is');
is($node->safe_psql('postgres', "SELECT max(tuples_total) FROM seen WHERE phase <> 'building index: scanning table'"),
	$rows, 'tuples in all');
is($node->safe_psql('postgres', "SELECT * FROM answers('SELECT count(*) FROM large WHERE k = 1', 'large_k')"),
	'1|same|same', 'the other one');
is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT pmhash_check(i::regclass) FROM unnest('{small_k,large_k}'::text[]) i) c"),
	'2', 'pmhash_check');
$node->stop;
done_testing();
