# A rebuild beside a process that wants the same processor: it rests again and again.
# And it holds the file that it has removed as long as it scans, so that no session that
# had it mapped has to free its pages.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid;
use PmhashStops;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('gives_way', undef, install_path => install_with_stop_points());
use_stop_points($node);
$node->append_conf('postgresql.conf', 'max_parallel_maintenance_workers = 0');
$node->start;
install_extension($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (k int4);
INSERT INTO t SELECT i FROM generate_series(1, 400000) i;
CREATE INDEX t_k ON t USING pmhash (k);
SQL

# Some processor that we may use.
my ($cpu) = `taskset -cp $$` =~ /: (\d+)/ or die 'taskset';

# The rebuilder, which is held at a point.
sub rebuilder
{
	return $node->safe_psql('postgres',
		q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'pmhash rebuilder'));
}

# How often it has let go of the processor by itself.
sub gave_up_processor
{
	my ($pid) = @_;
	my ($times) = slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	return $times;
}

# Removed files that it has open or mapped.
sub holds_removed
{
	my ($pid) = @_;
	return scalar(grep { (readlink($_) // '') =~ /\.pmh \(deleted\)$/ } glob("/proc/$pid/fd/*"));
}

# ---- one processor for all of them ----

my $file = index_file($node, 't_k');
# the file is there, and damaged: the rebuilder removes it
open my $damaged, '+<', $file or die "$file: $!";
syswrite($damaged, "\0" x 64) == 64 or die;
close $damaged or die;
$node->stop;
hold('rebuild_before_build');
hold('rebuild_before_stub');
$node->start;
system('taskset', '-cp', $cpu, slurp_file($node->data_dir . '/postmaster.pid') =~ /\A(\d+)/) == 0 or die;
my $hog = fork() // die "fork: $!";
if ($hog == 0)
{
	exec('taskset', '-c', $cpu, $^X, '-e', '$SIG{TERM} = "DEFAULT"; 1 while 1') or die;
}
$node->safe_psql('postgres', 'INSERT INTO t VALUES (0)');
is_held('rebuild_before_build');
my $pid = rebuilder();
my $before = gave_up_processor($pid);
is(holds_removed($pid), 1, 'the old file is held while the table is scanned');
release('rebuild_before_build');
is_held('rebuild_before_stub');
my $rests = gave_up_processor($pid) - $before;
cmp_ok($rests, '>=', 50, "the rebuild has rested ($rests)");
is(holds_removed($pid), 0, 'and not after it');
release('rebuild_before_stub');
kill 'TERM', $hog;
waitpid($hog, 0);

$node->poll_query_until('postgres', q(SELECT state = 'valid' FROM pmhash_indexes WHERE index = 't_k'))
  or die 'the index does not come back';
same_answers($node, 't', 'k', 't_k', 'rebuilt');
is($node->safe_psql('postgres', q(SELECT pmhash_check('t_k'))), '', 'pmhash_check');

done_testing();
