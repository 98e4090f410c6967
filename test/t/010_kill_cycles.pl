# The server is killed in every way under a mixed load, again and again.
# SOAK_CYCLES says how often; see PmhashSoak.pm for load and checks.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib/perl";
use PmhashSoak;
use PmhashTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $cycles = $ENV{SOAK_CYCLES} // 10;
my $seed = $ENV{SOAK_SEED} // time;
my @kinds = crash_kinds();
my $node;

# an orderly end, so that the server is stopped
local $SIG{INT} = local $SIG{TERM} = sub { exit(1) };
note("SOAK_SEED=$seed");
srand($seed);
$node = new_soak_server('cycles');
for (my $cycle = 1; $cycle <= $cycles; $cycle++)
{
	soak_cycle($node, $cycle, $kinds[ ($cycle - 1) % @kinds ]);
}

# a journal that never had to undo anything has not been tested
cmp_ok(PmhashSoak::undone(), '>', 0, 'the undo journal was needed');
cmp_ok(PmhashSoak::shrinks_cut_off(), '>', 0, 'VACUUM was shrinking when the server was killed');

# nothing is left over but the files of the indexes
is( $node->safe_psql('postgres', <<SQL),
DROP INDEX IF EXISTS side_2;
INSERT INTO un VALUES (1);
VACUUM load;
SELECT entries - (SELECT count(*) FROM load) FROM pmhash_stats('load_k');
SQL
	'0', 'entries after VACUUM');
wait_for_files(pool($node), 11, 'no file is left over');
diag(soak_summary());
$node->stop;
done_testing();
