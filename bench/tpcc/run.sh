#!/bin/bash
#
# run.sh: the transactions of TPC-C with btree and with pmhash, in one run
#
# Loads the same rows twice, once with btree indexes and once with pmhash on
# every equality access path, then runs the standard mix on each in turn.
# After each round it checks the consistency conditions of the specification,
# that every index was used and no table read otherwise, and every index
# against its table; what is wrong ends the run with exit status 1.  Prints
# one table and removes everything but the packages.
#
# Not a TPC-C result: no keying and think times, two warehouses, one machine.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --warehouses N   size of the database (default 2, about 100 MB each, twice)
		  --seconds S      of each round (default 20)
		  --clients C      terminals that never pause (default 4)
		  --rounds R       of each variant (default 3)
		  --help           this text
	USAGE
}

tree=$(cd "$(dirname "$0")/../.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"

warehouses=2
seconds=20
clients=4
rounds=3
read_options "warehouses seconds clients rounds" "" "$@"
need_numbers warehouses seconds clients rounds

# NURand's constants for last names, when loading and when running: clause
# 2.1.6.1 wants them to differ by 65 to 119, but not by 96 or 112.
c_last_load=100
c_last_run=173

load()
{
	local method

	progress "loading $warehouses warehouses, the same rows for both variants"
	sql -c "CREATE EXTENSION pmhash" -c "CREATE EXTENSION amcheck"
	run_sql tpcc/random.sql
	run_sql tpcc/record.sql
	run_sql tpcc/schema.sql -v schema=tpcc_load
	run_sql tpcc/load.sql -v warehouses="$warehouses" -v c_last="$c_last_load" >/dev/null
	for method in btree pmhash; do
		run_sql tpcc/schema.sql -v schema="$method"
		run_sql tpcc/variant.sql -v method="$method"
		run_sql tpcc/transactions.sql -v method="$method"
		check_consistency "$method"
	done
	sql -c "DROP SCHEMA tpcc_load CASCADE" 2>"$work/drop.log"
	sql -c "VACUUM (FREEZE, ANALYZE)" -c "CHECKPOINT"
}

check_consistency()				# method
{
	local found

	found=$(run_sql tpcc/consistency.sql -v method="$1")
	[ -z "$found" ] || die "variant $1:"$'\n'"$found"
}

check_indexes()					# method
{
	local found

	found=$(run_sql tpcc/indexes.sql -v method="$1")
	[ -z "$found" ] || die "variant $1:"$'\n'"$found"
}

# Transactions of a script, and their number per second, by pgbench's report.
script_figures()				# script
{
	awk -v script="/$1.pgbench" '
		/^SQL script/ { current = index($0, script) > 0 }
		current && / transactions \(/ { sub(/\)/, ""); print $2, $NF }' "$work/pgbench.log"
}

# Processor time of all backends that have ended, in microseconds.
backends_processor_time()
{
	awk -v ticks="$(getconf CLK_TCK)" '{ printf "%d", ($16 + $17) * 1e6 / ticks }' \
		"/proc/$(as_account head -n 1 "$cluster_dir/data/postmaster.pid")/stat"
}

# Run the mix on a variant.
run_mix()					# method round
{
	# Tables as small as warehouse would be read sequentially otherwise.  One
	# thread: pgbench's threads count the transactions of a script in common,
	# without a lock, so that with several some are not counted.
	PGOPTIONS="-c search_path=$1,public -c enable_seqscan=off" \
		as_account "$cluster_bindir/pgbench" -n -M prepared -c "$clients" -j 1 \
		-T "$seconds" --random-seed="$2" -D warehouses="$warehouses" -D c_last="$c_last_run" \
		-f scripts/new_order.pgbench@45 -f scripts/payment.pgbench@43 \
		-f scripts/order_status.pgbench@4 -f scripts/delivery.pgbench@4 \
		-f scripts/stock_level.pgbench@4 >"$work/pgbench.log" 2>&1 ||
		{
			cat "$work/pgbench.log" >&2
			die "variant $1: pgbench failed"
		}
}

# One round of one variant.
round()						# method round
{
	local orders_before payments_before orders payments lsn processor wal images
	local attempts attempts_rate reported all tps

	# Not timed: what the earlier rounds left dead, in tables and indexes.
	sql -c "VACUUM (ANALYZE)"
	read -r orders_before payments_before < <(sql -F ' ' -c "SELECT * FROM tpcc.progress('$1')")
	sql -c "SELECT pg_stat_reset(), pg_stat_reset_shared('wal')" >/dev/null
	lsn=$(sql -c "SELECT pg_current_wal_insert_lsn()")
	processor=$(backends_processor_time)
	run_mix "$1" "$2"
	processor=$(($(backends_processor_time) - processor))
	read -r wal images < <(sql -F ' ' -c "SELECT pg_current_wal_insert_lsn() - '$lsn', wal_fpi
		FROM pg_stat_wal")
	check_indexes "$1"
	check_consistency "$1"

	read -r orders payments < <(sql -F ' ' -c "SELECT * FROM tpcc.progress('$1')")
	orders=$((orders - orders_before)) payments=$((payments - payments_before))
	read -r attempts attempts_rate < <(script_figures new_order)
	read -r reported _ < <(script_figures payment)
	all=$(awk '/^number of transactions actually processed/ { print $NF }' "$work/pgbench.log")
	tps=$(awk '/^tps/ { print $3 }' "$work/pgbench.log")
	[ "$payments" -eq "$reported" ] ||
		die "variant $1: $reported payments were acknowledged, $payments are in the history"

	# One in a hundred is rolled back; more would be lost, fewer not rolled back.
	[ "$orders" -le "$attempts" ] && { [ "$attempts" -lt 5000 ] ||
		((orders * 1000 <= attempts * 997 && orders * 1000 >= attempts * 980)); } ||
		die "variant $1: $attempts New-Orders were sent, $orders have been entered"
	sql -c "INSERT INTO tpcc.round VALUES ('$1', $2,
		60.0 * $orders / ($attempts / $attempts_rate), 1 - $orders / $attempts.0, $tps,
		$processor / $all.0, $wal / $all.0, $images / $all.0)"
	progress "round $2, $1: $(sql -c "SELECT round(new_orders::numeric) FROM tpcc.round
		WHERE method = '$1' AND round = $2") New-Orders per minute, consistent"
}

report()
{
	echo
	echo "TPC-C's transactions, $warehouses warehouses, $clients clients without pauses, $rounds rounds of $seconds s each;"
	echo "$(nproc) cores, shared_buffers $(sql -c 'SHOW shared_buffers'), locale C, no checkpoint meanwhile."
	echo
	as_account "$cluster_bindir/psql" -X -q -P border=2 -P footer=off -v ON_ERROR_STOP=1 \
		-f - <"$tree/bench/tpcc/report.sql"
	echo "After each of $((2 * rounds)) rounds: consistency conditions 1 to 10 and 12 hold, every acknowledged"
	echo "payment is there, every index was used and agrees with its table (pmhash.check, amcheck)."
	print_load
	echo "This is no TPC-C result: see bench/README.md."
}

prepare "" tpcc $((warehouses * 600000 + 2000000)) cluster scripts
for script in "$tree"/bench/tpcc/*.pgbench; do
	as_account tee "scripts/${script##*/}" <"$script" >/dev/null
done
start_cluster
load
for ((r = 1; r <= rounds; r++)); do
	# which one begins changes from round to round
	if ((r % 2)); then order="btree pmhash"; else order="pmhash btree"; fi
	for method in $order; do
		round "$method" "$r"
	done
done
report
