# The pool's control file has another system identifier than the server: the server has
# got another one, or the pool is what a cluster that was in its place has left.

use strict;
use warnings;

use Fcntl qw(:flock);
use File::Copy;
use File::Path qw(rmtree);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

my $taken_over = 'of another cluster is used by this one from now on';
my ($has_tool) = eval { run_command([ 'pg_createsubscriber', '--version' ]) };

# What pg_createsubscriber does: another system identifier in pg_control, and WAL of that.
sub change_identifier
{
	my ($node) = @_;
	my $file = $node->data_dir . '/global/pg_control';
	my $control = slurp_file($file);
	my ($crc_at) = grep { PmhashInvalid::crc32c(substr($control, 0, $_)) == unpack('V', substr($control, $_, 4)) }
	  map { $_ * 4 } 50 .. 100;

	die 'no CRC in pg_control' if !$crc_at;
	substr($control, 0, 8) = pack('Q<', unpack('Q<', $control) + 12345);
	substr($control, $crc_at, 4) = pack('V', PmhashInvalid::crc32c(substr($control, 0, $crc_at)));
	patch_file($file, 0, $control);
	return command_ok([ 'pg_resetwal', '-f', $node->data_dir ], 'pg_resetwal');
}

sub log_since
{
	my ($node, $from) = @_;
	return slurp_file($node->logfile, $from);
}

# ---- the server has got another identifier ----
my $node = new_server('identifier');
$node->start;
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());
$node->stop;
change_identifier($node);
my $from = -s $node->logfile;
rebuild_off($node);
$node->start;
# trust: identifier
stays_invalid($node, 'it belongs to another cluster', 'another identifier');
like(log_since($node, $from), qr/not trusted: the server has got another system identifier/, 'another identifier: the log says so');
rebuild_on($node);
all_come_back($node, 'another identifier');
$node->restart;
is(index_state($node, 't_k'), 'valid', 'another identifier: as ever from then on');

# the same with a pool that the setting names
my $elsewhere = $node->basedir . '/elsewhere';
$node->stop;
rename(pool($node), $elsewhere) or die $!;
$node->append_conf('postgresql.conf', "pmhash.directory = '$elsewhere'");
change_identifier($node);
$node->start;
all_come_back($node, 'another identifier, pmhash.directory is set');
$node->stop;
rename($elsewhere, pool($node)) or die $!;
$node->append_conf('postgresql.conf', "pmhash.directory = ''");

# ---- another cluster is made in the same place ----
# event: another cluster is created, or restored, in the place of an old one whose pool directory is still there (`rm -rf`, `initdb`; `pg_dropcluster`, `pg_createcluster`; a second try of `pg_upgrade`)
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE gone');
install_extension($node, 'gone');
$node->safe_psql('gone', 'CREATE TABLE t (k int4); CREATE INDEX t_k ON t USING pmhash (k)');
my $gone = pool($node) . '/' . $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'gone'");
my @before = index_files(pool($node));
$node->stop;
my $data = $node->data_dir;

# Data directories are moved; the pool stays where it is.
sub new_cluster
{
	rename($data, "$data.old") or die $!;
	system_or_bail('initdb', '-D', $data, '-A', 'trust', '-N');
	copy("$data.old/$_", "$data/$_") or die $! foreach ('postgresql.conf', 'pg_hba.conf');
	return;
}
new_cluster();

# not while a server has it locked
open(my $lock, '+<', pool($node) . '/lock') or die $!;
my $text = slurp_file(pool($node) . '/lock');
flock($lock, LOCK_EX | LOCK_NB) or die $!;
syswrite($lock, sprintf('%-15d', $$));
$from = -s $node->logfile;
$node->start;
like(log_since($node, $from), qr/pmhash is disabled: directory .* is in use by another server/, 'a server has it locked: disabled');
is(join(' ', index_files(pool($node))), "@before", 'a server has it locked: nothing is touched');
$node->stop;
sysseek($lock, 0, 0);
syswrite($lock, $text);
close($lock);

# nor if the setting names it
$from = -s $node->logfile;
$node->append_conf('postgresql.conf', "pmhash.directory = '" . pool($node) . "'");
$node->start;
like(log_since($node, $from), qr/pmhash is disabled: directory .* belongs to another cluster/, 'the setting names it: disabled');
is(join(' ', index_files(pool($node))), "@before", 'the setting names it: nothing is touched');
$node->stop;
$node->append_conf('postgresql.conf', "pmhash.directory = ''");

$from = -s $node->logfile;
$node->start;
like(log_since($node, $from), qr/$taken_over/, 'a new cluster: the log says so');
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());
all_come_back($node, 'a new cluster');
wait_for_files(pool($node), 4, 'a new cluster: nothing is left of the old one');
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_ls_dir('" . pool($node) . "') f WHERE f = '" . ($gone =~ s,.*/,,r) . "'")
  or die 'the directory of a database of the old cluster is still there';
$from = -s $node->logfile;
$node->restart;
unlike(log_since($node, $from), qr/$taken_over/, 'a new cluster: its own from then on');
is(index_state($node, 't_k'), 'valid', 'a new cluster, started again: valid');

# the one that was moved away comes back: it has lost nothing but its index files
$node->stop;
rename($data, "$data.new") or die $!;
rename("$data.old", $data) or die $!;
rebuild_off($node);
$from = -s $node->logfile;
$node->start;
like(log_since($node, $from), qr/$taken_over/, 'the old cluster is back: the log says so');
stays_invalid($node, 'it does not exist', 'the old cluster is back');
rebuild_on($node);
all_come_back($node, 'the old cluster is back');

# killed, and not shut down
crash($node);
rmtree("$data.old");
new_cluster();
$from = -s $node->logfile;
$node->start;
like(log_since($node, $from), qr/$taken_over/, 'the old cluster was killed: the log says so');
install_extension($node);
$node->safe_psql('postgres', invalid_fixture());
all_come_back($node, 'the old cluster was killed');
$node->stop;

# ---- a standby ----
my $primary = new_primary('identifier_primary', $has_tool ? "wal_level = logical\nmax_replication_slots = 10\n" : '');
$primary->safe_psql('postgres', 'CREATE TABLE ex (k int4 PRIMARY KEY, CONSTRAINT ex_k EXCLUDE USING pmhash (k WITH =)); INSERT INTO ex VALUES (1)');
my $standby = new_standby($primary, 'identifier_standby');
$standby->stop;
rmtree(pool($standby));
PostgreSQL::Test::RecursiveCopy::copypath(pool($node), pool($standby));
my @foreign = index_files(pool($standby));
$from = -s $standby->logfile;
$standby->start;
like(log_since($standby, $from), qr/$taken_over/, 'a standby: the log says so');
wait_for_state($standby, 't_k', qr/^valid$/, 'a standby: builds its files');
$standby->poll_query_until('postgres', "SELECT count(*) = 0 FROM unnest('{" . join(',', @foreign) . "}'::text[]) f WHERE (pg_stat_file(f, true)).size IS NOT NULL")
  or die 'files of another cluster are still there';

# event: `pg_createsubscriber`
if ($has_tool)
{
	$standby->stop;
	command_ok([ 'pg_createsubscriber', '-D', $standby->data_dir, '-P', $primary->connstr('postgres'),
			'-s', $standby->host, '-p', $standby->port, '-d', 'postgres' ], 'pg_createsubscriber');
}
else
{
	$standby->promote;
	$standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'no promotion';
	$standby->stop;
	change_identifier($standby);
}
$from = -s $standby->logfile;
$standby->start;
unlike(log_since($standby, $from), qr/pmhash is disabled/, 'pg_createsubscriber: not disabled');
wait_for_state($standby, $_, qr/^valid$/, "pg_createsubscriber: $_ comes back") foreach ('t_k', 't_s', 'ex_k');
compare_in_snapshot($standby, 'pg_createsubscriber: answers');
if ($has_tool)
{
	$primary->safe_psql('postgres', 'INSERT INTO ex VALUES (2)');
	ok($standby->poll_query_until('postgres', 'SELECT count(*) = 2 FROM ex'), 'pg_createsubscriber: the subscription applies rows');
}
$standby->stop;
$primary->stop;
done_testing();
