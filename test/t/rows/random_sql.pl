# Random joins, types and transactions.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../lib/perl";
use PmhashJoinFuzz;
use PmhashSqlFuzz;
use PmhashTypeFuzz;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# ======== join differential ========

# Random joins and lists of keys, with pmhash's own join forced, with it off, and by
# sequential scans: see PmhashJoinFuzz.pm.
#
# PMHASH_JOIN_FUZZ_SECONDS says how long (15), PMHASH_JOIN_FUZZ_SEED with which
# seed; without it the seed is another one each time, and is printed.
# long
{
	my $seconds = $ENV{PMHASH_JOIN_FUZZ_SECONDS} // 15;
	my $seed = $ENV{PMHASH_JOIN_FUZZ_SEED} // int(rand(1_000_000_000));
	srand($seed);
	my $node = new_join_server();
	my $found = fuzz_joins($node, $seed, $seconds);
	my ($queries, $joined, $lists, $scanned, $paged, $changes) = join_figures();

	is($found, '', "PMHASH_JOIN_FUZZ_SEED=$seed");
	cmp_ok($joined, '>', ($queries - $lists) / 2, 'most joins were done by ours');
	cmp_ok($scanned, '>', $lists / 2, 'most lists were scanned by an index');
	cmp_ok($paged, '>', $lists / 50, 'and many keys page by page');
	unlike(slurp_file($node->logfile), qr/PANIC:|was terminated by|TRAP/, 'the server has stayed up');

	# ---- a join that is under way can be cancelled ----
	# One key of 2,000 rows, three times: 8,000,000,000 combinations, which end in the result
	# or in a condition that needs all three tables.
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE hot (k int, id int);
INSERT INTO hot SELECT 33, g FROM generate_series(1, 2000) g;
CREATE INDEX hot_k ON hot USING pmhash (k);
VACUUM ANALYZE hot;
SQL
	my $endless = 'SELECT count(*) FROM hot o JOIN hot i ON i.k = o.k JOIN hot j ON j.k = i.k';
	foreach my $query ($endless, "$endless WHERE o.id + i.id + j.id < 0",
		'SELECT count(*) FROM generate_series(1, 1000000000) g WHERE NOT EXISTS (SELECT FROM b WHERE b.k = g + 10000)')
	{
		my ($out, $err);
		my $began = time();

		$node->psql('postgres', <<SQL, stdout => \$out, stderr => \$err, timeout => 60);
SET enable_hashjoin = off; SET enable_mergejoin = off; SET cpu_index_tuple_cost = 1000;
SET enable_material = off; SET seq_page_cost = 1000;
SET max_parallel_workers_per_gather = 0;
EXPLAIN (COSTS OFF) $query;
SET statement_timeout = 200;
$query;
SQL
		like($out, qr/pmhash join/, 'endless: plan');
		like($err, qr/canceling statement due to statement timeout/, 'endless: cancelled');
		cmp_ok(time() - $began, '<', 5, 'endless: soon, also where others are at work');
	}
	my $figures = "$queries queries, $joined of them by joins, $scanned by lists, $paged page by page, $changes changes, seed $seed";
	note($figures);
	diag($figures) if $seconds > 60;
	$node->stop;
}

# ======== type differential ========

# Random types of keys and what they are made of, by index and by sequential scans, also
# after they have been altered: see PmhashTypeFuzz.pm.
#
# PMHASH_TYPE_FUZZ_SECONDS says how long (15), PMHASH_TYPE_FUZZ_SEED with which seed;
# without it the seed is another one each time, and is printed.
# long
{
	my $seconds = $ENV{PMHASH_TYPE_FUZZ_SECONDS} // 15;
	my $seed = $ENV{PMHASH_TYPE_FUZZ_SEED} // int(rand(1_000_000_000));
	my $node = new_type_server();

	is(fuzz_types($node, $seed, $seconds), '', "PMHASH_TYPE_FUZZ_SEED=$seed");
	unlike(slurp_file($node->logfile), qr/PANIC:|was terminated by|TRAP/, 'the server has stayed up');
	like(type_figures(), qr/\b[1-9][0-9]* $_/, "some were $_") foreach qw(refused compared altered constrained);
	note(type_figures());
	diag(type_figures()) if $seconds > 60;
	$node->stop;
}

# ======== sql fuzz ========

# Random transactions with savepoints, EXCEPTION blocks and ON CONFLICT while calls
# fail: see PmhashSqlFuzz.pm.
#
# PMHASH_SQL_FUZZ_SECONDS says how long (20), PMHASH_SQL_FUZZ_SEED with which
# seed; without it the seed is another one each time, and is printed.
# PMHASH_SQL_FUZZ_DEATH_EACH: transactions from one death of the server to the next (12).
# long
{
	my $seconds = $ENV{PMHASH_SQL_FUZZ_SECONDS} // 20;
	my $seed = $ENV{PMHASH_SQL_FUZZ_SEED} // int(rand(1_000_000_000));
	my $node = new_fuzz_server();
	my $found = fuzz_transactions($node, $seed, $seconds);

	# event: an error in the middle of a transaction is caught by a savepoint or an `EXCEPTION` block
	is($found, '', "PMHASH_SQL_FUZZ_SEED=$seed");
	# (Of the server itself: a child that something else kills is not one.)
	unlike(slurp_file($node->logfile), qr/PANIC:|\(PID \d+\) was terminated by|TRAP/, 'the server has stayed up');
	like(fuzz_figures(), qr{ [1-9][0-9]* moves}, 'the table was moved');
	like(fuzz_figures(), qr{ [1-9][0-9]* crashes}, 'the server has died with a table moved');
	note(fuzz_figures());
	diag(fuzz_figures()) if $seconds > 60;
	$node->stop;
}

done_testing();
