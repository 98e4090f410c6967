# What the functions of an index do, they do in the rights of the table's owner, on
# whichever server and by whichever process: in builds on a standby, with their looks at
# expressions and predicate before the first row, in rebuilds with workers, in checks.
#
# An IMMUTABLE function of constants runs when the server simplifies an expression, which
# it does wherever an index's expressions are read.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_primary('primary', <<CONF);
pmhash.wal = on
log_line_prefix = '%m [%p] %b: '
max_parallel_maintenance_workers = 2
min_parallel_table_scan_size = 8kB
CONF

# The user that runs it is said in the log.  One reads a table, which needs a snapshot; so
# does PL/pgSQL in all it does, but for what a volatile function in SQL calls.
$primary->safe_psql('postgres', <<'SQL');
CREATE ROLE plain LOGIN;
CREATE SCHEMA plain AUTHORIZATION plain;
SET SESSION AUTHORIZATION plain;
CREATE FUNCTION plain.tell(what text) RETURNS integer VOLATILE PARALLEL SAFE LANGUAGE plpgsql AS $$
BEGIN
	RAISE LOG '% runs as % of %', what, current_user, session_user;
	RETURN 1;
END $$;
CREATE FUNCTION plain.through(what text) RETURNS integer VOLATILE PARALLEL SAFE LANGUAGE sql AS
	'SELECT 0; SELECT plain.tell(what)';
CREATE FUNCTION plain.folded(what text) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql AS
	'SELECT plain.through(what)';
CREATE TABLE plain.one (n integer);
INSERT INTO plain.one VALUES (1);
CREATE FUNCTION plain.reading(what text) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS
	'BEGIN RETURN plain.tell(what) * (SELECT n FROM plain.one); END';
CREATE TABLE plain.v (k integer, n integer) WITH (parallel_workers = 2);
INSERT INTO plain.v SELECT i % 100, i FROM generate_series(1, 5000) i;
CREATE INDEX v_k ON plain.v USING pmhash ((k + plain.folded('expression'))) WHERE k >= plain.folded('predicate');
CREATE INDEX v_n ON plain.v USING pmhash ((n + plain.reading('reader')));
SQL

# Tests: in the log since then processes of these kinds say that the functions run as the
# owner, and none as any other.
sub runs_as_owner
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($node, $position, $kind, @what) = @_;
	my @said = grep { /\Q$kind\E: LOG:  +\w+ runs as/ } split(/\n/, logged_since($node, $position));

	foreach my $what (@what)
	{
		ok((grep { /$what runs as plain of / } @said) > 0, "$kind: $what runs");
	}
	is(join("\n", grep { !/runs as plain of / } @said), '', "$kind: as nobody but the owner");
	return;
}

# ---- a standby builds ----

my $standby = new_standby($primary, 'standby');
wait_for_state($standby, $_, qr/^valid$/, "standby: $_") foreach qw(v_k v_n);
runs_as_owner($standby, 0, 'pmhash standby builder', qw(expression predicate reader));
unlike(logged_since($standby, 0), qr/was terminated by signal/, 'standby: nothing has crashed');
my $position = log_position($standby);
is($standby->safe_psql('postgres', "SELECT pmhash_check('plain.v_k')"), '', 'standby: a superuser checks it');
runs_as_owner($standby, $position, 'client backend', qw(expression predicate));

# ---- the primary rebuilds and checks ----

$position = log_position($primary);
truncate($_, 8192) foreach database_files($primary, 'postgres');
wait_for_state($primary, $_, qr/^valid$/, "rebuilt: $_") foreach qw(v_k v_n);
runs_as_owner($primary, $position, 'pmhash rebuilder', qw(expression predicate reader));
$position = log_position($primary);
is($primary->safe_psql('postgres', <<'SQL'), '', 'a superuser asks for all there is');
DO $$
BEGIN
	PERFORM pmhash_check('plain.v_k');
	PERFORM pmhash_stats('plain.v_k'), pmhash_size('plain.v_k'), pmhash_prewarm('plain.v_k');
	PERFORM pmhash_total_relation_size('plain.v');
	PERFORM * FROM pmhash_indexes;
	PERFORM * FROM pmhash_files();
END $$
SQL
runs_as_owner($primary, $position, 'client backend', qw(expression predicate));
$position = log_position($primary);
$primary->safe_psql('postgres', $_)
  foreach 'VACUUM (INDEX_CLEANUP ON) plain.v', 'ALTER INDEX plain.v_k SET (wal = off)', 'ALTER INDEX plain.v_k SET (wal = on)',
  'REINDEX INDEX plain.v_k', 'REINDEX INDEX CONCURRENTLY plain.v_k';
runs_as_owner($primary, $position, 'client backend', qw(expression predicate));
# (a rebuild in the background may have none: pmhash_give_way_workers)
runs_as_owner($primary, $position, 'parallel worker', qw(expression predicate));
caught_up($primary, $standby);
wait_for_state($standby, 'v_k', qr/^valid$/, 'standby, at last');

runs_as_owner($standby, 0, 'pmhash standby builder');
$_->stop foreach $standby, $primary;
done_testing();
