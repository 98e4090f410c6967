# A pool or a data directory that was put back from another moment: the server starts, answers
# at once, rebuilds.

use v5.36;

use File::Copy;
use File::Path qw(rmtree);
use PmhashInvalid;
use PmhashTest;
use PostgreSQL::Test::RecursiveCopy;

my $apart = 'server and pool directory have not been together all the time since it was made';
my $node = new_server('put_back');
my $pool = pool($node);
my $data = $node->data_dir;
my $save = $node->basedir . "/save";

start_with_extension($node, invalid_fixture());

sub copy_tree ($from, $to)
{
	rmtree($to);
	PostgreSQL::Test::RecursiveCopy::copypath($from, $to);
	chmod(0700, $to);
	return;
}

# Start with rebuilds off, look, switch them on, wait.
sub invalid_then_rebuilt ($reason, $name)
{
	start_without_rebuilds($node);
	invalid_then_back($node, $reason, $name);
	return;
}

# event: snapshot of the pool directory alone, put back
# ---- an older pool under a newer data directory ----
$node->stop;
copy_tree($pool, $save);
$node->start;
change_rows($node);
$node->stop;
# trust: nonce
copy_tree($save, $pool);
invalid_then_rebuilt($apart, 'older pool');

# event: snapshot of the data directory alone, put back
# ---- an older data directory under a newer pool ----
foreach my $how ('shut down', 'killed')
{
	$node->stop;
	copy_tree($data, $save);
	$node->start;
	change_rows($node);
	$how eq 'killed' ? crash($node) : $node->stop;
	copy_tree($save, $data);
	invalid_then_rebuilt($apart, "older data directory, $how");
}

# event: a pool in memory, copied to a disk after a clean shutdown, and back after the reboot
# ---- a copy from after a clean shutdown, in the place of a pool that is gone ----
change_rows($node);
my $files = join(' ', index_files($pool));
$node->stop;
copy_tree($pool, $save);
rmtree($pool);
copy_tree($save, $pool);
rebuild_off($node);
$node->start;
is($node->safe_psql('postgres', 'SELECT DISTINCT state FROM pmhash.indexes'), 'valid', 'copy of a clean pool: valid');
is(join(' ', index_files($pool)), $files, 'copy of a clean pool: the same files');
rebuild_on($node);
all_come_back($node, 'copy of a clean pool');
# the server has run since
crash($node);
rmtree($pool);
copy_tree($save, $pool);
invalid_then_rebuilt($apart, 'copy of a clean pool, after a crash');

# ---- an older copy of the pool, taken while the server ran ----
$node->stop;
$node->start;
copy_tree($pool, $save);
change_rows($node);
$node->stop;
copy_tree($save, $pool);
invalid_then_rebuilt($apart, 'pool of earlier in the run, after a shutdown');

# after a crash the nonce says so, which is renewed every cleaner_naptime
copy_tree($pool, $save);
my $nonce = slurp_file("$data/pmhash.nonce");
change_rows($node);
wait_while(sub { slurp_file("$data/pmhash.nonce") eq $nonce }, 60);
crash($node);
copy_tree($save, $pool);
invalid_then_rebuilt($apart, 'pool of earlier in the run, after a crash');

# event: put back from an older copy
# ---- an older copy of one file ----
my $older = 'it is an older copy';
my $one = "$save.one";

# Copy the file of t_k, of the server that runs or is shut down now; put the copy in its
# place again.
sub save_file ($stopped = 0)
{
	my $file = index_file($node, 't_k');

	$node->stop if $stopped;
	copy($file, $one) or die;
	return $file;
}

sub put_back ($file)
{
	copy($one, $file) or die;
	return;
}

my $file = save_file();
change_rows($node);
$node->stop;
put_back($file);
# trust: stamp
invalid_then_rebuilt($older, 'file of earlier in the run, after a shutdown');

$file = save_file(1);
$node->start;
change_rows($node);
$node->stop;
put_back($file);
invalid_then_rebuilt($older, 'file of the last shutdown but one');

$file = save_file(1);
$node->start;
$node->stop;
$node->start;
change_rows($node);
crash($node);
put_back($file);
invalid_then_rebuilt($older, 'file of the last shutdown but one, after a crash');

# no session looks at it in one run: the shutdown must not make it a good one
$file = save_file(1);
$node->start;
change_rows($node);
$node->stop;
put_back($file);
start_without_rebuilds($node);
$node->stop;
invalid_then_rebuilt($older, 'older file that is not used in one run');

# the same file: nothing is wrong
$file = save_file(1);
put_back($file);
start_without_rebuilds($node);
# event: clean shutdown, start
is(index_state($node, 't_k'), 'valid', 'the file of the last shutdown');
crash_and_start($node);
is(index_state($node, 't_k'), 'valid', 'and after a crash');
$node->stop('immediate');
$node->start;
# event: immediate shutdown
is(index_state($node, 't_k'), 'valid', 'and after two');
all_rebuilt($node, 'the file of the last shutdown');

# event: both put back, copied from a server that was shut down
# ---- both together: nothing is wrong ----
$node->stop;
copy_tree($data, $save);
copy_tree($pool, "$save.pool");
$node->start;
change_rows($node);
$node->stop;
copy_tree($save, $data);
copy_tree("$save.pool", $pool);
start_without_rebuilds($node);
is(index_state($node, 't_k'), 'valid', 'both put back together');
all_rebuilt($node, 'both put back together');

# event: killed again during a rebuild
# ---- two crashes, the second while indexes are being rebuilt ----
crash($node);
pretend_reboot($pool);
$node->start;
crash_and_start($node);
all_come_back($node, 'crash in a rebuild');
$node->stop;

# ---- two nonces count: only checkpoints tell the moments ----
# The old nonce counts until the new one is in both places, and it is renewed
# every cleaner_naptime.
$node->append_conf('postgresql.conf', 'pmhash.cleaner_naptime = 600');

sub copy_running
{
	copy_tree($data, $save);
	unlink("$save/postmaster.pid");
	return;
}

# With the older data directory its files are not trusted; with what is there they are.
sub start_again ($put_back, $name)
{
	if ($put_back)
	{
		copy_tree($save, $data);
		invalid_then_rebuilt($apart, "$name, older data directory");
		return;
	}
	start_without_rebuilds($node);
	is(index_state($node, 't_k'), 'valid', $name);
	same_answers($node, 't', 'k', 't_k', $name);
	rebuild_on($node);
	return;
}

# the new one cannot be written at shutdown
foreach my $put_back (0, 1)
{
	my $from = -s $node->logfile;

	$node->start;
	copy_running();
	change_rows($node);
	chmod(0400, "$data/pmhash.nonce") or die $!;
	$node->stop;
	chmod(0600, "$data/pmhash.nonce") or die $!;
	like(slurp_file($node->logfile, $from), qr/could not write file ".*pmhash\.nonce"/,
		'nonce not written at shutdown');
	start_again($put_back, 'nonce not written at shutdown');
	$node->stop;
}

# several renewals fail at the token, one after the other: it has the old one still
foreach my $put_back (0, 1)
{
	my $from = -s $node->logfile;
	my $failed = 0;

	start_with($node, 'pmhash.cleaner_naptime = 1');
	copy_running();
	chmod(0400, "$data/pmhash.nonce") or die $!;
	for (my $try = 0; $try < 600 && $failed < 3; $try++)
	{
		change_rows($node);
		usleep(100_000);
		$failed = () = slurp_file($node->logfile, $from) =~ /could not write file ".*pmhash\.nonce"/g;
	}
	cmp_ok($failed, '>=', 3, 'the nonce is not written, several times');
	$node->append_conf('postgresql.conf', 'pmhash.cleaner_naptime = 600');
	$node->stop;
	chmod(0600, "$data/pmhash.nonce") or die $!;
	start_again($put_back, 'nonce not written several times');
	$node->stop;
}
done_testing();
