# A database is dropped, and another one is made with its OID, of a template that is an
# older copy of it: stubs of the new one name files of the dropped one, with the same
# database in them.  These have what the old one had in the end, and must not be used.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $oid = 20001;
my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
my $missing = 'invalid: it does not exist';

my $node = new_primary('number', "pmhash.rebuild = off\npmhash.cleaner_naptime = 3600\n");
my $standby = new_standby($node, 'number_standby', "pmhash.rebuild = on\n");

sub state_of
{
	my ($server) = @_;
	return $server->safe_psql('app', "SELECT state FROM pmhash_indexes WHERE index = 'x_k'");
}

# Its rows 1 to 100 go to gold.  Afterwards their TIDs have other keys.
sub make_and_change
{
	$node->safe_psql('postgres', "CREATE DATABASE app OID = $oid");
	install_extension($node, 'app');
	$node->safe_psql('app', <<SQL);
CREATE TABLE x (k int4) WITH (autovacuum_enabled = off);
INSERT INTO x SELECT generate_series(1, 100);
CREATE INDEX x_k ON x USING pmhash (k) WITH (wal = on);
SQL
	is(state_of($node), 'valid', 'the first one: valid');
	if ($standby)
	{
		caught_up($node, $standby);
		$standby->poll_query_until('app', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'")
		  or die 'no file on the standby';
	}
	$node->safe_psql('postgres', 'CREATE DATABASE gold TEMPLATE app IS_TEMPLATE true ALLOW_CONNECTIONS false');
	$node->safe_psql('app', 'DELETE FROM x; VACUUM x; INSERT INTO x SELECT generate_series(1001, 1100)');
	return;
}

sub make_again
{
	my ($strategy) = @_;

	$node->safe_psql('postgres', 'DROP DATABASE app');
	$node->safe_psql('postgres', "CREATE DATABASE app TEMPLATE gold OID = $oid STRATEGY $strategy");
	return;
}

sub is_as_gold
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($server, $name) = @_;

	is($server->safe_psql('app', "$by_index SELECT count(*), min(k), max(k) FROM x WHERE k = ANY (ARRAY(SELECT generate_series(1, 2000)))"),
		'100|1|100', "$name: rows that an index scan may find");
	return;
}

sub drop_gold
{
	$node->safe_psql('postgres', 'ALTER DATABASE gold IS_TEMPLATE false');
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach ('gold', 'app');
	return;
}

# ---- a standby, on which a drop is noticed once an hour ----
# event: `CREATE DATABASE ... TEMPLATE ... OID` with the OID of a dropped database
make_and_change();
make_again('wal_log');
caught_up($node, $standby);
is_as_gold($standby, 'standby');
ok(!(grep { /\.pmh$/ } index_files(pool($standby) . "/$oid")) || state_of($standby) ne 'valid', 'standby: no old file is used');
is(state_of($node), $missing, 'primary');
is_as_gold($node, 'primary');
$node->safe_psql('app', 'REINDEX INDEX x_k');
caught_up($node, $standby);
$standby->poll_query_until('app', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'")
  or die 'no new file on the standby';
is_as_gold($standby, 'standby, its own new file');

# replayed once more it takes nothing away that has been made since
# (another file of the index would have its name; the link keeps the inode from being used again)
my $file = $standby->safe_psql('app', 'SELECT file FROM pmhash_indexes');
my $kept = $standby->basedir . '/kept';
link($file, $kept) or die $!;
$standby->stop;
$standby->start;
$standby->poll_query_until('app', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 'x_k'");
is((stat($file))[1], (stat($kept))[1], 'standby, started again: the same file');
is_as_gold($standby, 'standby, started again');

# it is moved: its files are kept
$node->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''");
# (its last record, at which a standby ends all sessions, comes after its commit and is
# flushed with the next one: dbcommands.c, movedb)
$node->safe_psql('postgres', 'ALTER DATABASE app SET TABLESPACE elsewhere');
$node->safe_psql('postgres', 'SELECT txid_current()');
caught_up($node, $standby);
is(state_of($standby), 'valid', 'standby, ALTER DATABASE SET TABLESPACE: valid');
is((stat($file))[1], (stat($kept))[1], 'standby, ALTER DATABASE SET TABLESPACE: kept');
$node->safe_psql('postgres', 'ALTER DATABASE app SET TABLESPACE pg_default');
$standby->stop;
$standby = undef;
drop_gold();

# ---- no launcher: nothing else removes what a dropped database has left ----
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
foreach my $strategy ('wal_log', 'file_copy')
{
	make_and_change();
	make_again($strategy);
	is(state_of($node), $missing, "no launcher, $strategy: not valid");
	is_as_gold($node, "no launcher, $strategy");
	drop_gold();
}

# ---- what is left cannot be removed ----
make_and_change();
$node->safe_psql('postgres', 'DROP DATABASE app');
chmod(0500, pool($node) . "/$oid") or die $!;
my $create = "CREATE DATABASE app TEMPLATE gold OID = $oid";
# trouble: `could not remove index files of a dropped database with OID ...`
fails_like($node, $create, qr/could not remove index files of a dropped database with OID $oid/, 'it cannot be removed');
chmod(0700, pool($node) . "/$oid") or die $!;
rename(pool($node), pool($node) . '.away') or die $!;
fails_like($node, $create, qr/has been unmounted, removed or replaced/, 'the pool is away');
$node->safe_psql('postgres', 'CREATE DATABASE of_no_concern');
rename(pool($node) . '.away', pool($node)) or die $!;
$node->safe_psql('postgres', $create);
is(state_of($node), $missing, 'the pool is back');
is_as_gold($node, 'the pool is back');
drop_gold();

# ---- the pool is refused for a server life, and is as it was in the next one ----
my $counted = q(SELECT inserts + group_entries FROM pmhash_stat_indexes WHERE index = 'x_k');
make_and_change();
is($node->safe_psql('app', $counted), '100', 'it has counters');
$node->stop;
$node->append_conf('postgresql.conf', "pmhash.directory = '" . $node->data_dir . "/inside'");
$node->start;
make_again('wal_log');
$node->stop;
$node->append_conf('postgresql.conf', "pmhash.directory = ''");
$node->start;
isnt(state_of($node), 'valid', 'after a life without the pool: not valid');
is($node->safe_psql('app', $counted), '0', 'after a life without the pool: no counters of the dropped one');
is_as_gold($node, 'after a life without the pool');
$node->stop;
done_testing();
