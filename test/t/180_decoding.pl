# Logical decoding reads catalogs as of a place in WAL that may be long past, and a table may be
# a catalog to it (user_catalog_table).  An output plugin that reads one by its index
# (test/lib/reads_catalog) sees what it sees without: no rebuild has waited for it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('decoding', "wal_level = logical\nmax_replication_slots = 4\n");
my $directory = $node->basedir;

# The plugin, compiled against this server.
chomp(my $headers = `pg_config --includedir-server`);
system_or_bail('gcc', '-Wall', '-O2', '-fPIC', '-shared', '-isystem', $headers, '-o',
	"$directory/reads_catalog.so", "$FindBin::RealBin/../lib/reads_catalog/reads_catalog.c");
$node->append_conf('postgresql.conf', "dynamic_library_path = '$directory:\$libdir'\n");
$node->start;
install_extension($node);

# From 15.20 on plugins are named in the configuration.
if ($node->safe_psql('postgres', q(SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries')) > 0)
{
	$node->append_conf('postgresql.conf', "output_plugin_libraries = 'reads_catalog'\n");
	$node->reload;
}

sub sql
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# A test: at that place (a row of t) the plugin counts so many rows, by the index and without it.
sub counts
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($rows, $name) = @_;

	is(sql("SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL) LIMIT 1"),
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

foreach my $wal ('on', 'off')
{
	sql(<<SQL);
CREATE TABLE t (i int);
CREATE TABLE settings (k int4, v int) WITH (user_catalog_table = true, autovacuum_enabled = off);
INSERT INTO settings SELECT i, i FROM generate_series(100, 200) i;
CREATE INDEX settings_k ON settings USING pmhash (k) WITH (wal = $wal);
SQL
	sql(q{SELECT pg_create_logical_replication_slot('s', 'reads_catalog')});
	ten_rows();
	sql('INSERT INTO t VALUES (1)');
	counts(10, "wal = $wal: rows that are there");
	dead_to_all_others();
	counts(10, "wal = $wal: rows that are dead to all others");

	# A rebuild leaves them out.
	unlink(index_file($node, 'settings_k')) or die;
	sql('SELECT count(*) FROM settings WHERE k = 5');
	$node->poll_query_until('postgres', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'settings_k'")
	  or die 'the index is not rebuilt';
	counts(10, "wal = $wal: the index has been rebuilt since");
	sql('INSERT INTO settings VALUES (5, 11)');
	sql('INSERT INTO t VALUES (2)');
	is(sql("SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL)"),
		"by index 10, by table 10\nby index 1, by table 1", "wal = $wal: a later place, too");
	sql('REINDEX INDEX settings_k');
	counts(10, "wal = $wal: the index has been made anew since");

	# A walk does not know of which rows a partial index is.
	sql("DROP INDEX settings_k; CREATE INDEX settings_k ON settings USING pmhash (k) WITH (wal = $wal) WHERE v > 5");
	sql("SELECT pg_drop_replication_slot('s')");
	sql(q{SELECT pg_create_logical_replication_slot('s', 'reads_catalog')});
	sql('INSERT INTO t VALUES (3)');
	fails_like($node, "SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL)",
		qr/ERROR:  partial index "settings_k" cannot be used by logical decoding/, "wal = $wal: a partial index");
	sql("SELECT pg_drop_replication_slot('s'); DROP TABLE t, settings");
}
$node->stop;
done_testing();
