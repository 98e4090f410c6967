# Random types of keys and what they are made of, by index and by sequential scans, also
# after they have been altered: see PmhashTypeFuzz.pm.
#
# PMHASH_TYPE_FUZZ_SECONDS says how long (15), PMHASH_TYPE_FUZZ_SEED with which seed;
# without it the seed is another one each time, and is printed.
# long

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashTypeFuzz;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = $ENV{PMHASH_TYPE_FUZZ_SECONDS} // 15;
my $seed = $ENV{PMHASH_TYPE_FUZZ_SEED} // int(rand(1_000_000_000));
my $node = new_type_server();

is(fuzz_types($node, $seed, $seconds), '', "PMHASH_TYPE_FUZZ_SEED=$seed");
unlike(slurp_file($node->logfile), qr/PANIC:|was terminated by|TRAP/, 'the server has stayed up');
like(type_figures(), qr/\b[1-9][0-9]* $_/, "some were $_") foreach qw(refused compared altered constrained);
note(type_figures());
diag(type_figures()) if $seconds > 60;
$node->stop;
done_testing();
