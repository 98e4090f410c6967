# The lock file of the pool is not as the server has left it.  Without one that can be written
# and locked pmhash is disabled; what is in its place neither holds the start up nor is used.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashTest;
use POSIX qw(mkfifo ENOSPC);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

my $shim = preloadable('no_write');

my $node = new_server('lock_file');
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4);
INSERT INTO t SELECT generate_series(1, 1000);
CREATE INDEX t_k ON t USING pmhash (k);
SQL
my $lock = pool($node) . '/lock';

sub used
{
	my ($name) = @_;

	is(index_state($node, 't_k'), 'valid', "$name: the index is trusted");
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (7)');
	same_answers($node, 't', 'k', 't_k', $name);
	return;
}

# event: the lock file cannot be created, written or locked, or is not a file (a directory, a link, a fifo), when the server starts
# trouble: LOG: `pmhash is disabled: could not open file ".../lock": ...`
$node->stop;
sub refused
{
	my ($how, $reason) = @_;
	my $from = -s $node->logfile;

	$node->start;
	like(slurp_file($node->logfile, $from), qr/LOG:  pmhash is disabled: \Q$reason\E\n/, "$how: the log says so");
	is(index_state($node, 't_k'), "disabled: $reason; when that is repaired the server has to be restarted", "$how: disabled");
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 8'), '1', '... queries do without');
	$node->stop;
	return;
}
chmod(0400, $lock) or die $!;
refused('mode 0400', "could not open file \"$lock\": Permission denied");
chmod(0600, $lock) or die $!;
$node->start;
used('mode 0600 again');
$node->stop;
rename($lock, "$lock.away") or die $!;
mkfifo($lock, 0600) or die $!;
refused('a fifo', "\"$lock\" is not a file");
unlink($lock) or die $!;
my $before = slurp_file("$lock.away");
symlink("$lock.away", $lock) or die $!;
refused('a link', "could not open file \"$lock\": Too many levels of symbolic links");
is(slurp_file("$lock.away"), $before, 'a link: nothing is written through it');
unlink($lock) or die $!;
{
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{NO_WRITE} = $lock;
	local $ENV{NO_WRITE_ERROR} = ENOSPC;
	refused('no space for it', "could not open file \"$lock\": No space left on device");
}
ok(!-e $lock, 'no space for it: there is none');
mkdir($lock) or die $!;
refused('a directory', "could not open file \"$lock\": Is a directory");
rmdir($lock) or die $!;
rename("$lock.away", $lock) or die $!;

# others find it locked
my $twin = PostgreSQL::Test::Cluster->new('twin');
PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir, $twin->data_dir);
chmod(0700, $twin->data_dir);
$twin->append_conf('postgresql.conf', "pmhash.directory = '" . pool($node) . "'\nport = " . $twin->port
	  . "\nunix_socket_directories = '" . $twin->host . "'");
$node->start;
used('the file again');
$twin->start;
like(index_state($twin, 't_k'), qr/^disabled: directory ".*" is in use by another server/, 'another server');
$twin->stop;
used('another server has tried to start');
restart_in_place($node);
$twin->start;
like(index_state($twin, 't_k'), qr/is in use by another server/, 'another server, the first restarted in place');
$twin->stop;
$node->stop;

# event: there is no free descriptor for a moment when the server starts
{
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{NO_OPEN} = pool($node);
	local $ENV{NO_OPEN_TIMES} = "$PostgreSQL::Test::Utils::tmp_check/times";
	append_to_file($ENV{NO_OPEN_TIMES}, 'x' x 10);
	my $from = -s $node->logfile;
	$node->start;
	used('no descriptors for a moment');
	is(-s $ENV{NO_OPEN_TIMES}, 0, 'no descriptors for a moment: ten times');
	unlike(slurp_file($node->logfile, $from), qr/pmhash(:| is)/, 'no descriptors for a moment: nothing is said of it');
	$node->stop;
}
done_testing();
