# Why replay has given a file up is kept by the startup process, which is in no database,
# and shown by a session that is in one: what is cut out of it, the middle, ends with
# whole characters all the same.  So does the reason for which pmhash is disabled, which is
# the postmaster's.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashStandby;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_server('primary', "max_wal_senders = 4\nwal_level = replica\n", allows_streaming => 1);
$primary->append_conf('pg_hba.conf', "local replication all trust\n");
$primary->start;
$primary->safe_psql('postgres', "CREATE DATABASE wide TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
install_extension($primary, 'wide');
$primary->safe_psql('wide', <<SQL);
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 100);
CREATE INDEX t_k ON t USING pmhash (k) WITH (wal = on);
SQL
my $standby = made_standby($primary, 'standby');
my $state = "SELECT state FROM pmhash_indexes WHERE index = 't_k'";

# of a character of two bytes the one or the other
foreach my $end ('', 'x')
{
	my $pool = "$PostgreSQL::Test::Utils::tmp_check/" . ("\xc3\xa4" x 60) . $end;

	$standby->append_conf('postgresql.conf', "pmhash.rebuild = on\npmhash.directory = '$pool'");
	$standby->start;
	$standby->poll_query_until('wide', "SELECT state = 'valid' FROM pmhash_indexes WHERE index = 't_k'") or die;
	$standby->append_conf('postgresql.conf', 'pmhash.rebuild = off');
	$standby->restart;
	chmod(0, $_) foreach index_files($pool);
	$primary->safe_psql('wide', 'INSERT INTO t VALUES (1)');
	caught_up($primary, $standby);
	my ($status, $stdout, $stderr) = $standby->psql('wide', "SET client_encoding = latin1; $state");
	is($stderr, '', "monitoring can read the view, path with '$end'");
	like($stdout, qr/^build failed: could not open file ".*\.\.\.\xe4+\Q$end\E\/[^"]*": Permission denied/, '... and why');
	$standby->stop;
}

# pmhash is disabled for a reason with a path longer than 512 bytes
$primary->stop;
foreach my $end ('', 'x')
{
	my $pool = $PostgreSQL::Test::Utils::tmp_check . ("/" . "\xc3\xa4" x 100) x 3 . "/p$end";

	$primary->append_conf('postgresql.conf', "pmhash.directory = '$pool'");
	$primary->start;
	my ($status, $stdout, $stderr) = $primary->psql('wide', "SET client_encoding = latin1; $state");
	is($stderr, '', "disabled: monitoring can read the view, path with '$end'");
	like($stdout, qr/^disabled: could not create directory ".*\.\.\.\xe4.*\/p$end": No such file or directory/, '... and why');
	($status, $stdout, $stderr) = $primary->psql('wide', "SET client_encoding = latin1; REINDEX INDEX t_k");
	like($stderr, qr/DETAIL:  The reason is: could not create directory ".*No such file or directory\./, '... and so can a session');
	$primary->stop;
}
done_testing();
