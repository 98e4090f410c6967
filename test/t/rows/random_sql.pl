# Random joins and transactions.

use v5.36;
use PmhashJoinFuzz;
use PmhashSqlFuzz;
use PostgreSQL::Test::Utils;
use Test::More;

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

	my $figures = "$queries queries, $joined of them by joins, $scanned by lists, $paged page by page, $changes changes, seed $seed";
	note($figures);
	diag($figures) if $seconds > 60;
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
