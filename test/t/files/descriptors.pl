# More index files than a process may have descriptors, and than a backend keeps
# mapped: everything works, nothing is called invalid, and no backend holds on to
# more than it may.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = 256;         # descriptors of a process; the server takes 250 at most
my $side = 34;
my $partitions = $side * $side;
my $mapped_at_most = 1000;

# The postmaster inherits the limit.
system_or_bail('prlimit', '--pid', $$, "--nofile=$limit:$limit");

my $node = new_server('descriptors', <<CONF);
max_locks_per_transaction = 512
pmhash.mapped_files = $mapped_at_most
enable_partition_pruning = off
log_min_messages = log
CONF
$node->start;
install_extension($node);
my $pool = pool($node);
$node->safe_psql('postgres', <<SQL);
CREATE TABLE p (k int, v int) PARTITION BY HASH (k);
DO \$\$ BEGIN
	FOR i IN 0 .. $side - 1 LOOP
		EXECUTE format('CREATE TABLE p_%s PARTITION OF p FOR VALUES WITH (MODULUS $side, REMAINDER %s) PARTITION BY HASH (v)', i, i);
		FOR j IN 0 .. $side - 1 LOOP
			EXECUTE format('CREATE TABLE p_%s_%s PARTITION OF p_%s FOR VALUES WITH (MODULUS $side, REMAINDER %s)', i, j, i, j);
		END LOOP;
	END LOOP;
END \$\$;
SQL

# What a session holds, by its process: descriptors, those of index files, and
# index files mapped.
sub holdings
{
	my ($session) = @_;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my @targets = grep { defined } map { readlink } glob "/proc/$pid/fd/*";
	my %mapped = map { m,(\S+\.pmh)$, ? ($1 => 1) : () } split /\n/, slurp_file("/proc/$pid/maps");

	return (scalar(@targets), scalar(grep { /\.pmh$/ } @targets), scalar(keys %mapped));
}

sub holds_little
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($session, $name) = @_;
	my ($all, $ours, $mapped) = holdings($session);

	cmp_ok($all, '<', $limit, "$name: descriptors");
	is($ours, 0, "$name: none of them is an index file's");
	cmp_ok($mapped, '<=', $mapped_at_most, "$name: index files mapped");
	return $mapped;
}

# ---- one transaction that makes them all, one that writes to all ----
my $session = $node->background_psql('postgres');
$session->query_safe('CREATE INDEX p_k ON p USING pmhash (k)');
is(scalar(index_files($pool)), $partitions, 'CREATE INDEX: a file for each partition');
holds_little($session, 'CREATE INDEX');
$session->query_safe("INSERT INTO p SELECT i % 5000, (i::bigint * 7919) % 1000003 FROM generate_series(1, 20000) i");
is(holds_little($session, 'INSERT'), $mapped_at_most, 'INSERT: as many are kept as may be');
$session->quit;

# ---- plans, queries, parallel ones too ----
my $explain = 'SET enable_seqscan = off; EXPLAIN (COSTS OFF) SELECT count(*) FROM p WHERE k = 5';
my $count = 'SELECT count(*) FROM p WHERE k = 5';
$session = $node->background_psql('postgres');
foreach my $round (1, 2)
{
	my $plan = $session->query_safe($explain);

	is(scalar(() = $plan =~ /Index (?:Only )?Scan (?:using|on) p_\d+_\d+_k_idx/g), $partitions,
		"plan $round uses every index");
	is($session->query_safe("SET enable_seqscan = off; $count"), '4', "query $round");
}
holds_little($session, 'query');
is($session->query_safe(<<SQL), '4', 'parallel query in that session');
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
$count
SQL
is($session->query_safe("SELECT state, durability, count(*) FROM pmhash_indexes GROUP BY 1, 2"),
	"valid|cache|$partitions", 'pmhash_indexes');
holds_little($session, 'pmhash_indexes');
$session->quit;

# ---- many sessions at once, more files than each keeps ----
my @sessions = map { $node->background_psql('postgres') } 1 .. 8;
$_->query_safe("SET enable_seqscan = off; $count") foreach @sessions;
foreach my $i (0 .. $#sessions)
{
	$sessions[$i]->query_safe("INSERT INTO p SELECT 5, i * 8 + $i FROM generate_series(1, 100) i");
}
is($_->query_safe($count), '804', 'sessions side by side') foreach @sessions;
holds_little($sessions[0], 'one of several sessions');
$_->quit foreach @sessions;

# ---- upkeep ----
$node->safe_psql('postgres', 'DELETE FROM p WHERE v % 2 = 0');
$node->safe_psql('postgres', 'VACUUM p');
my $left = $node->safe_psql('postgres', 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; ' . $count);
is($node->safe_psql('postgres', "SET enable_seqscan = off; $count"), $left, 'VACUUM');
$node->restart;
is($node->safe_psql('postgres', "SET enable_seqscan = off; $count"), $left, 'restart');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', "SET enable_seqscan = off; $count"), $left, 'crash');
is($node->safe_psql('postgres', "SELECT state, count(*) FROM pmhash_indexes GROUP BY 1"),
	"valid|$partitions", 'all are valid in the end');

# ---- many files that go at once: 200 with the transaction, the others by a cleaner;
# all with the transaction where no cleaner is to be expected ----
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
$node->safe_psql('postgres', 'CREATE INDEX p_v ON p USING pmhash (v); DROP INDEX p_v');
is(scalar(index_files($pool)), $partitions, 'DROP INDEX without a launcher: no file is left');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
my $out = $node->safe_psql('postgres', <<SQL);
BEGIN; DROP TABLE p; ROLLBACK;
SELECT count(*) FILTER (WHERE state <> 'valid') FROM pmhash_indexes;
DROP TABLE p;
SQL
is($out, '0', 'DROP TABLE that is rolled back');
wait_for_files($pool, 0, 'DROP TABLE: no file is left');

my $log = slurp_file($node->logfile);
unlike($log, qr/Too many open files|terminated by signal (?!9)|has been rebuilt|could not rebuild/,
	'nothing has run short');
$node->stop;
done_testing();
