# The lock file of the pool is not as the server has left it.  One that can't be written is
# locked all the same; what is no file at all neither holds the start up nor is used.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashInvalid;
use PmhashTest;
use POSIX qw(mkfifo);
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
	$node->start;
	used('immutable');
	$node->restart;
	used('immutable, once more');
	$node->stop;
}

# event: the lock file cannot be read, or is no file (a directory, a link, a fifo), when the server starts
sub refused
{
	my ($how, $reason) = @_;

	$node->start;
	is(index_state($node, 't_k'), "disabled: $reason", $how);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k = 1'), '1', "$how: SELECT");
	$node->stop;
	return;
}
chmod(0, $lock) or die $!;
refused('mode 0', "could not open file \"$lock\": Permission denied");
chmod(0600, $lock) or die $!;
rename($lock, "$lock.away") or die $!;
foreach my $mode (0600, 0400)
{
	mkfifo($lock, $mode) or die $!;
	refused(sprintf('a fifo, %o', $mode), "\"$lock\" is not a file");
	unlink($lock) or die $!;
}
mkdir($lock) or die $!;
refused('a directory', "\"$lock\" is not a file");
rmdir($lock) or die $!;
symlink("$lock.away", $lock) or die $!;
refused('a link', "could not open file \"$lock\": Too many levels of symbolic links");
unlink($lock) or die $!;
rename("$lock.away", $lock) or die $!;
$node->start;
used('the file again');
$node->stop;
done_testing();
