# Logical decoding reads catalogs as of a place in WAL that may be long past, and a table may be
# a catalog to it (user_catalog_table).  An output plugin that reads one by its index
# (test/lib/reads_catalog) sees what it sees without: no rebuild has waited for it.  Nor has the
# build of a standby's file, from 16 on, where standbys decode.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_primary('decoding', "wal_level = logical\nmax_replication_slots = 4\n");
my $directory = $node->basedir;

# The plugin, compiled against this server.
chomp(my $headers = `pg_config --includedir-server`);
system_or_bail('gcc', '-Wall', '-O2', '-fPIC', '-shared', '-isystem', $headers, '-o',
	"$directory/reads_catalog.so", "$FindBin::RealBin/../../lib/reads_catalog/reads_catalog.c");
$node->append_conf('postgresql.conf', "dynamic_library_path = '$directory:\$libdir'\n");

# From 15.20 on plugins are named in the configuration.
if ($node->safe_psql('postgres', q(SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries')) > 0)
{
	$node->append_conf('postgresql.conf', "output_plugin_libraries = 'reads_catalog'\n");
}
$node->reload;

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# A test: at that place (a row of places) the plugin counts so many rows, by the index and
# without it.
sub counts
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($rows, $name, $where) = @_;

	is(($where // $node)->safe_psql('postgres', "SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL) LIMIT 1"),
		"by index $rows, by table $rows", $name);
	return;
}

sub ten_rows
{
	return sql('INSERT INTO settings SELECT 5, i FROM generate_series(1, 10) i');
}

sub dead_to_all_others
{
	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(v) FROM settings WHERE k = 5';

	sql('DELETE FROM settings WHERE k = 5');
	sql($by_index) foreach 1 .. 3;
	sql('VACUUM settings');
	sql($by_index) foreach 1 .. 3;
	return;
}

# The tables, with some rows.
sub begin
{
	my ($wal) = @_;

	return sql(<<SQL);
CREATE TABLE places (i int);
CREATE TABLE settings (k int4, v int) WITH (user_catalog_table = true, autovacuum_enabled = off);
INSERT INTO settings SELECT i, i FROM generate_series(100, 200) i;
CREATE INDEX settings_k ON settings USING pmhash (k) WITH (wal = $wal);
SQL
}

foreach my $wal ('on', 'off')
{
	begin($wal);
	sql(q{SELECT pg_create_logical_replication_slot('s', 'reads_catalog')});
	ten_rows();
	sql('INSERT INTO places VALUES (1)');
	counts(10, "wal = $wal: rows that are there");
	dead_to_all_others();
	counts(10, "wal = $wal: rows that are dead to all others");

	# A rebuild leaves them out.
	unlink(index_file($node, 'settings_k')) or die;
	sql('SELECT count(*) FROM settings WHERE k = 5');
	wait_for_state($node, 'settings_k', qr/^valid$/, "wal = $wal: rebuilt");
	counts(10, "wal = $wal: the index has been rebuilt since");
	sql('INSERT INTO settings VALUES (5, 11)');
	sql('INSERT INTO places VALUES (2)');
	is(sql("SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL)"),
		"by index 10, by table 10\nby index 1, by table 1", "wal = $wal: a later place, too");
	sql('REINDEX INDEX settings_k');
	counts(10, "wal = $wal: the index has been made anew since");

	# A walk does not know of which rows a partial index is.
	sql("DROP INDEX settings_k; CREATE INDEX settings_k ON settings USING pmhash (k) WITH (wal = $wal) WHERE v > 5");
	sql("SELECT pg_drop_replication_slot('s')");
	sql(q{SELECT pg_create_logical_replication_slot('s', 'reads_catalog')});
	sql('INSERT INTO places VALUES (3)');
	fails_like($node, "SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL)",
		qr/ERROR:  partial index "settings_k" cannot be used by logical decoding/, "wal = $wal: a partial index");
	sql("SELECT pg_drop_replication_slot('s'); DROP TABLE places, settings");
}

if ($node->pg_version >= 16)
{
	my $standby = new_standby($node, 'standby');
	my $maker = $standby->background_psql('postgres');

	begin('on');
	caught_up($node, $standby);
	$maker->query_until(qr/begun/, "\\echo begun\nSELECT pg_create_logical_replication_slot('s', 'reads_catalog');\n");
	$standby->poll_query_until('postgres', q(SELECT restart_lsn IS NOT NULL FROM pg_replication_slots)) or die 'no slot';
	sql('SELECT pg_log_standby_snapshot()');
	$maker->quit;
	ten_rows();
	sql('INSERT INTO places VALUES (1)');
	sql('DELETE FROM settings WHERE k = 5');
	caught_up($node, $standby);
	wait_for_state($standby, 'settings_k', qr/^valid$/, 'built on the standby');
	unlink(index_file($standby, 'settings_k')) or die;
	$standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM settings WHERE k = 5');
	wait_for_state($standby, 'settings_k', qr/^valid$/, '... and once more');
	counts(10, 'on the standby', $standby);
	$standby->promote;
	$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die;
	counts(10, '... promoted', $standby);
	$standby->restart;
	counts(10, '... and restarted', $standby);
	$standby->stop;
}
$node->stop;
done_testing();
