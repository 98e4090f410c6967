# The lock file of the pool is not as the server has left it.  One that can't be written is
# locked all the same; where there is none to be locked the directory is, which other
# servers find locked, too.  What is in the file's place neither holds the start up nor is
# used.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
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

# event: the lock file cannot be written when the server starts (mode, `chattr +i`)
$node->stop;
chmod(0400, $lock) or die $!;
$node->start;
used('mode 0400');
$node->stop;
chmod(0600, $lock) or die $!;
{
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{NO_WRITE} = $lock;
	my $from = -s $node->logfile;
	$node->start;
	used('immutable');
	$node->restart;
	used('immutable, once more');
	$node->stop;
	unlike(slurp_file($node->logfile, $from), qr/locked instead/, 'immutable: it is locked itself');
}

# event: the lock file cannot be made or read, or is no file (a directory, a link, a fifo), when the server starts
# trouble: LOG: `pmhash: could not open file ".../lock": ...`
sub without_file
{
	my ($how, $reason) = @_;
	my $from = -s $node->logfile;

	$node->start;
	used($how);
	my $log = slurp_file($node->logfile, $from);
	like($log, qr/LOG:  pmhash: \Q$reason\E\n.*DETAIL:  The directory is locked instead\..*HINT:  Remove what stands there/s,
		"$how: the log says so");
	unlike($log, qr/not trusted any more|is disabled/, '... and nothing else is wrong');
	$node->stop;
	return;
}
chmod(0, $lock) or die $!;
without_file('mode 0', "could not open file \"$lock\": Permission denied");
chmod(0600, $lock) or die $!;
rename($lock, "$lock.away") or die $!;
foreach my $mode (0600, 0400)
{
	mkfifo($lock, $mode) or die $!;
	without_file(sprintf('a fifo, %o', $mode), "\"$lock\" is not a file");
	unlink($lock) or die $!;
}
my $before = slurp_file("$lock.away");
symlink("$lock.away", $lock) or die $!;
without_file('a link', "could not open file \"$lock\": Too many levels of symbolic links");
is(slurp_file("$lock.away"), $before, 'a link: nothing is written through it');
unlink($lock) or die $!;
{
	local $ENV{LD_PRELOAD} = $shim;
	local $ENV{NO_WRITE} = $lock;
	local $ENV{NO_WRITE_ERROR} = ENOSPC;
	without_file('no space for it', "could not open file \"$lock\": No space left on device");
}
ok(!-e $lock, 'no space for it: there is none');
mkdir($lock) or die $!;
without_file('a directory', "\"$lock\" is not a file");

# no life without one is trusted that has not ended in order, not even if there is one again
# trust: no-lock-file
my $doubt = qr/has, or had, no lock file/;
foreach my $then ('without', 'with')
{
	my $from = -s $node->logfile;

	$node->start;
	$node->safe_psql('postgres', 'INSERT INTO t VALUES (8)');
	crash($node);
	rmdir($lock) or die $! if $then eq 'with';
	$node->start;
	like(slurp_file($node->logfile, $from), $doubt, "killed without a lock file, started $then one: not trusted");
	comes_back($node, "killed without a lock file, started $then one");
	used("killed without a lock file, started $then one");
	$node->stop;
}

# others find it locked, whether there is a file in the meantime or not
unlink($lock) or die $!;
mkdir($lock) or die $!;
my $twin = PostgreSQL::Test::Cluster->new('twin');
PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir, $twin->data_dir);
chmod(0700, $twin->data_dir);
$twin->append_conf('postgresql.conf', "pmhash.directory = '" . pool($node) . "'\nport = " . $twin->port
	  . "\nunix_socket_directories = '" . $twin->host . "'");
$node->start;
foreach my $there ('a directory', 'nothing')
{
	rmdir($lock) or die $! if $there eq 'nothing';
	$twin->start;
	like(index_state($twin, 't_k'), qr/^disabled: directory ".*" is in use by another server/, "another server, $there in the file's place");
	$twin->stop;
}
used('another server has tried to start');
restart_in_place($node);
$twin->start;
like(index_state($twin, 't_k'), qr/is in use by another server/, 'another server, the first restarted in place');
$twin->stop;
$node->stop;

# event: no descriptor is to be had for a moment when the server starts
rename("$lock.away", $lock) or die $!;
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
$node->start;
used('the file again');
$node->stop;
done_testing();
