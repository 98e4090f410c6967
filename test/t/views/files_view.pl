# pmhash_indexes says what is there, and not what a session or shared buffers know of it:
# files that are gone, replaced, cut off, damaged or not to be read, main forks that are
# gone; to each role what it may know; without waiting for a lock; and it leaves none of
# the pages that it has looked at mapped.

use strict;
use warnings;

use File::Copy qw(copy);
use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashInvalid qw(index_file);
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_server('files_view', <<CONF);
pmhash.rebuild = off
pmhash.cleaner_naptime = 3600
CONF
$node->start;
install_extension($node);
my @indexes = map { "${_}_k" } qw(cut damaged fork gone locked others plain unreadable);
foreach my $index (@indexes, 'unlogged_k')
{
	my $table = $index =~ s/_k$//r;
	my $kind = $table eq 'unlogged' ? 'UNLOGGED' : '';

	$node->safe_psql('postgres', <<SQL);
CREATE $kind TABLE $table (k int4, v int4);
INSERT INTO $table SELECT i, i FROM generate_series(1, 100) i;
CREATE INDEX $index ON $table USING pmhash (k);
SQL
}
$node->safe_psql('postgres', 'CREATE ROLE other');

my $states = q(SELECT string_agg(index || ': ' || state, E'\n' ORDER BY index) FROM pmhash_indexes);
my $all_valid = join("\n", map { "$_: valid" } sort @indexes, 'unlogged_k');
my %file = map { $_ => index_file($node, $_) } @indexes;

is($node->safe_psql('postgres', $states), $all_valid, 'all are valid');
is($node->safe_psql('postgres', "SELECT DISTINCT durability FROM pmhash_indexes"), 'cache', 'durability');
foreach my $index (@indexes)
{
	my ($length, $blocks) = (stat($file{$index}))[7, 12];

	is($node->safe_psql('postgres', "SELECT bytes FROM pmhash_indexes WHERE index = '$index'"),
		$length < 512 * $blocks ? $length : 512 * $blocks, "$index: bytes");
}
is($node->safe_psql('postgres', 'SET ROLE other; SELECT count(*), count(file), count(bytes), min(state) FROM pmhash_indexes'),
	'9|0|9|valid', 'another role does not see where the files are');
is($node->safe_psql('postgres', 'GRANT pg_monitor TO other; SET ROLE other; SELECT count(file) FROM pmhash_indexes'),
	'9', 'one that monitors does');
is($node->safe_psql('postgres', "CREATE TEMP TABLE x (k int4); CREATE INDEX x_k ON x USING pmhash (k); SELECT state FROM pmhash_indexes WHERE index = 'x_k'"),
	'valid', 'a temporary index of our own');

# The cleaner's first round is over when a file that no index has is gone.  It is there
# before the server starts: afterwards the round might be over already.
$node->safe_psql('postgres', 'CREATE TABLE o (k int4); CREATE INDEX o_k ON o USING pmhash (k)');
my $orphan = index_file($node, 'o_k');
copy($orphan, "$orphan.copy") or die;
$node->safe_psql('postgres', 'DROP TABLE o');
$node->stop;
rename("$orphan.copy", $orphan) or die;
$node->start;
$node->poll_query_until('postgres', "SELECT pg_stat_file('$orphan', true) IS NULL") or die;

# A session that has planned with an index, and one that has used it.
my $planner = $node->background_psql('postgres');
$planner->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off');
like($planner->query_safe("EXPLAIN (COSTS OFF) SELECT v FROM $_ WHERE k = 5"), qr/Index Scan using ${_}_k/, "plan: $_")
	foreach qw(gone plain);
my $user = $node->background_psql('postgres');
is($user->query_safe('SET enable_seqscan = off; SELECT v FROM plain WHERE k = 5'), 5, 'a session uses an index');

# What happens to files; none of this is looked for by others (no cleaner comes).
unlink($file{gone_k}) or die;
copy($file{plain_k}, $file{others_k}) or die;
truncate($file{cut_k}, 10000) or die;
open(my $out, '+<', $file{damaged_k}) or die;
print $out 'x' x 200;
close($out) or die;
chmod(0, $file{unreadable_k}) or die;
my $fork = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('fork_k')");
rename($fork, "$fork.away") or die;
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE locked; DROP INDEX locked_k');

my $wanted = <<'STATES';
cut_k: invalid: it is damaged
damaged_k: invalid: it is damaged
fork_k: invalid: it has no stub page
gone_k: invalid: it does not exist
locked_k: locked
others_k: invalid: it belongs to another index
plain_k: valid
unlogged_k: valid
unreadable_k: invalid: it cannot be read
STATES
chomp $wanted;
is($node->safe_psql('postgres', $states), $wanted, 'what has happened is seen');
is($planner->query_safe($states), $wanted, 'by a session that knows the indexes from planning, too');
is($user->query_safe($states), $wanted, 'and by one that has used one of them');
is($node->safe_psql('postgres', "SELECT count(durability) FROM pmhash_indexes"), 2, 'durability is shown of valid ones');

# Put back, they are what they were.
$locker->query_safe('ROLLBACK');
$_->quit foreach $locker, $planner, $user;
chmod(0600, $file{unreadable_k}) or die;
rename("$fork.away", $fork) or die;
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT state, ',') FROM pmhash_indexes WHERE index IN ('unreadable_k', 'fork_k', 'locked_k')"),
	'valid', 'what is put back is valid');
$node->safe_psql('postgres', "REINDEX INDEX $_") foreach qw(cut_k damaged_k others_k gone_k);
is($node->safe_psql('postgres', $states), $all_valid, 'all are valid again');

# Of many indexes: what a session has of shared memory afterwards.
my $many = 600;
$node->append_conf('postgresql.conf', "shared_buffers = 128MB");
$node->restart;
$node->safe_psql('postgres', <<SQL);
CREATE TABLE p (k int4) PARTITION BY LIST (k);
DO \$\$ BEGIN
	FOR i IN 1 .. $many LOOP
		EXECUTE format('CREATE TABLE p_%s PARTITION OF p FOR VALUES IN (%s)', i, i);
	END LOOP;
END \$\$;
CREATE INDEX ON p USING pmhash (k);
SQL
my $looker = $node->background_psql('postgres');

sub shared_memory
{
	my ($query) = @_;
	my $answer = $looker->query_safe($query);
	my ($kb) = slurp_file('/proc/' . $looker->query_safe('SELECT pg_backend_pid()') . '/status') =~ /^RssShmem:\s+(\d+) kB/m;
	return ($answer, $kb);
}
my ($sizes, $before) = shared_memory('SELECT count(*) FROM pg_index WHERE pg_relation_size(indexrelid) > 0');
my ($valid, $after) = shared_memory(q(SELECT count(*) FROM pmhash_indexes WHERE state = 'valid'));
is($valid, $many + @indexes + 1, 'all of them are valid');
cmp_ok($after - $before, '<', 2000, 'kB of shared memory that are mapped afterwards, beyond what pg_relation_size takes');
$looker->quit;
$node->stop;
done_testing();
