# The server is killed in every way under a mixed load, again and again.
# SOAK_CYCLES says how often; see PmhashSoak.pm for load and checks.  In the end what
# power loss can do besides: volatile parts of the files hold anything.
# long

use v5.36;
use PmhashSoak;
use PmhashTest;

my $cycles = $ENV{SOAK_CYCLES} // 10;
my $seed = $ENV{SOAK_SEED} // time;
my @kinds = crash_kinds();
my $node;

# an orderly end, so that the server is stopped
local $SIG{INT} = local $SIG{TERM} = sub { exit(1) };
note("SOAK_SEED=$seed");
srand($seed);
$node = new_soak_server('cycles');

# event: `kill -9` of the whole server under load
for (my $cycle = 1; $cycle <= $cycles; $cycle++)
{
	soak_cycle($node, $cycle, $kinds[ ($cycle - 1) % @kinds ]);
}

# a journal that never had to undo anything has not been tested
cmp_ok($PmhashSoak::sum{undone}, '>', 0, 'the undo journal was needed');
cmp_ok($PmhashSoak::sum{shrinks_cut_off}, '>', 0, 'VACUUM was shrinking when the server was killed');

# Keys whose rows are gone lead nowhere, least of all beyond the table's end.
is($node->safe_psql('postgres', <<SQL), 't|same|same', 'keys without rows');
SET pmhash.enable_join = off;
SELECT rows > 20000, by_index, by_bitmap
FROM answers('SELECT g, l.ctid FROM generate_series(-100, 30000) g LEFT JOIN load l ON l.k = g', 'load_k')
SQL

# After power loss the lines of a file that are volatile (src/engine/layout.h:
# the run area, the space map) may be anything, also if the one that names the
# run has survived.  Nothing is believed that another run has left there.
crash($node);
foreach my $file (index_files(pool($node)))
{
	open(my $out, '+<:raw', $file) or die "$file: $!";
	foreach my $volatile ([ 512 + 64, 960 ], [ 1024, 1536 ])
	{
		seek($out, $volatile->[0], 0) or die;
		print $out "\0" x ($volatile->[1] - $volatile->[0]);
	}
	close($out) or die;
}
$node->start;
$node->safe_psql('postgres',
	"INSERT INTO load SELECT i, i % 10, 'more ' || i % 20000, i % 100, 'b' FROM generate_series(20000, 60000) i");
is($node->safe_psql('postgres', "SELECT soak_findings(i) FROM soak_indexes i WHERE tab = 'load'"),
	'', 'volatile lines lost');

# nothing is left over but the files of the indexes
is( $node->safe_psql('postgres', <<SQL),
DROP INDEX IF EXISTS side_2;
INSERT INTO un VALUES (1);
VACUUM load;
SELECT entries - (SELECT count(*) FROM load) FROM pmhash.stats('load_k');
SQL
	'0', 'entries after VACUUM');
wait_for_files(pool($node), 11, 'no file is left over');
diag(soak_summary());
$node->stop;
done_testing();
