#!/bin/bash
#
# run.sh: the benchmark: btree, hash and pmhash in one run, the engine by itself
#
# Installs Debian's packages, builds pmhash, starts a throw-away cluster in a
# temporary directory and takes each figure several times: in each round every
# method has its turn, so that a machine that drifts does so for all.  Every
# answer is compared with that of a sequential scan; one that differs ends the
# run with exit status 1.  Then the engine alone, on a tmpfs (engine/series.sh).
# What is measured goes to a directory: raw figures (CSV), tables (Markdown) and
# charts (PNG).
#
# Runs as root (the server then runs as "postgres") or as a user with sudo.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --quick          small tables, in some minutes; its results go to
		                   bench/results/quick
		  --rows N         rows of the table that is measured (default 10000000)
		  --rounds N       (default 3)
		  --parts LIST     of "postgresql engine standby join cold" (default: all; cold needs root)
		  --results DIR    (default bench/results)
		  --keep           leave the cluster running and tell how to reach it
		  --help           this text
	USAGE
}

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"
. "$tree/bench/lib/report.sh"
. "$tree/bench/lib/pgbench.sh"

quick=false
keep=false
rows=
rounds=3
parts="postgresql engine standby join cold"
results=
read_options "rows rounds parts results" "quick keep" "$@"
keep_cluster=$keep
if $quick; then
	rows=${rows:-500000} pgbench_seconds=1
	results=${results:-$tree/bench/results/quick}
else
	rows=${rows:-10000000} pgbench_seconds=4
	results=${results:-$tree/bench/results}
fi
for part in $parts; do
	case $part in
		postgresql|engine|standby|join|cold) ;;
		*) die "no such part: $part" ;;
	esac
done
need_numbers rows rounds
[ "$rows" -ge 100000 ] || die "--rows: at least 100000"
[ "$rounds" -le 7 ] || die "--rounds: 7 at most"

methods="btree hash pmhash"
probes=$((rows / 25))
keys=$((rows / 100))
fresh=$((rows / 5))
scale=$((rows / 100000))		# so that pgbench_accounts has as many rows
work_rows=$((rows / 10)) work_fresh=$((rows / 50)) work_probes=$((rows / 50))
low_rows=$((rows / 5)) low_fresh=$((rows / 50))
few_rows=$((rows * 2 / 5)) few_turn=0 chunks=1000 connections=100
! $quick || chunks=100 connections=20
[ "$rows" -ge 1000000 ] || work_rows=$((rows / 5))
[ "$low_rows" -le 500000 ] || low_rows=500000 low_fresh=50000
# "name,value" for the head of a part's report.
describe_machine()				# part
{
	local cpu

	cpu=$(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo)
	{
		printf 'date,%s\n' "$(date -u '+%F %H:%M UTC')"
		printf 'revision,%s\n' "$(revision)"
		printf 'processor,"%s, %s cores"\n' "${cpu:-$(uname -m)}" "$(nproc)"
		lscpu | awk -F': *' '/^L[123]d? cache/ { gsub(/,/, ";"); printf "%s,\"%s\"\n", $1, $2 }'
		awk '/^MemTotal/ { printf "memory,%.1f GiB\n", $2 / 1048576 }' /proc/meminfo
		printf 'kernel,%s\n' "$(uname -sr)"
		printf 'data directory on,%s\n' "$(df --output=fstype "${TMPDIR:-/tmp}" | tail -n 1)"
		printf 'load average before,%s\n' "$load_before"
		printf 'rows,%s\nrounds,%s\nprobes,%s\nkeys,%s\nfresh,%s\n' "$rows" "$rounds" "$probes" "$keys" "$fresh"
		printf 'scale,%s\nwork rows,%s\nlow rows,%s\n' "$scale" "$work_rows" "$low_rows"
		printf 'few rows,%s\nchunks,%s\nconnections,%s\n' "$few_rows" "$chunks" "$connections"
	} >"$results/machine_$1.csv"
}

# The other session of a VACUUM tells what it spends in the index.
vacuum()					# method indexed round metric relation index question query
{
	local watcher

	sql -c "SELECT bench.sample($3, '$1', '$4_index', bench.watch_vacuum('$5'))" >/dev/null &
	watcher=$!
	run_sql goals/vacuum.sql -v method="$1" -v indexed="$2" -v round="$3" -v metric="$4" \
		-v relation="$5" -v index="$6" -v question="$7" -v query="$8" >/dev/null
	wait "$watcher"
}

# One method, one round, the large table.
measure_round()				# method indexed round
{
	local copy_round=$(($3 % rounds + 1)) parallel=true any_subquery=true

	# Hash indexes are built by one process.  = ANY of a sub-query takes hash a
	# time in proportion to the square of the number of keys: once will do.
	if [ "$1" = hash ]; then
		parallel=false
		[ "$3" -eq 1 ] || any_subquery=false
	fi
	run_lib item.sql -v item_file="$work/cluster/item.copy"
	run_sql goals/round.sql -v method="$1" -v indexed="$2" -v parallel="$parallel" \
		-v any_subquery="$any_subquery" -v round="$3" -v rows="$rows" -v probes="$probes" \
		-v keys="$keys" -v fresh="$fresh" -v copy_round="$copy_round" \
		-v copy_file="$work/cluster/fresh_$copy_round.copy" >/dev/null
	vacuum "$1" "$2" "$3" vacuum bench.item item_index \
		"which rows do the hits of probe set $3 find after half is deleted" \
		"SELECT count(*) || ' rows, sum ' || sum(hashtextextended(t.v, 0))
			FROM bench.probe_$3 AS p JOIN bench.item AS t ON t.k = p.hit"
}

measure_low()					# method indexed round
{
	run_sql goals/low.sql -v method="$1" -v indexed="$2" -v round="$3" \
		-v low_rows="$low_rows" -v low_fresh="$low_fresh" >/dev/null
	vacuum "$1" "$2" "$3" low_vacuum bench.low low_index \
		"which rows have low value 3 after half is deleted" \
		"SELECT count(*) || ' rows, sum ' || sum(v) FROM bench.low WHERE k = 3"
}

# 1,000 dead rows of a large table, others in each turn.
measure_few()					# method indexed round
{
	local step=$((few_rows / 1000))

	few_turn=$((few_turn + 1))
	sql -c "CREATE TABLE IF NOT EXISTS bench.few AS
			SELECT bench.key(n, 51) AS k, n AS v FROM generate_series(1::bigint, $few_rows) AS n"
	! $2 || sql -c "CREATE INDEX few_index ON bench.few USING $1 (k)"
	sql -c "VACUUM (ANALYZE) bench.few" -c "DELETE FROM bench.few WHERE v % $step = $few_turn"
	vacuum "$1" "$2" "$3" few_vacuum bench.few few_index "which rows are not deleted by the thousand" \
		"SELECT count(*) || ' rows, sum ' || sum(t.v) FROM generate_series(1::bigint, 1000) AS n
			JOIN bench.few AS t ON t.k = bench.key(n * $step, 51)"
	sql -c "DROP INDEX IF EXISTS bench.few_index"
}

measure_small()				# method indexed round
{
	run_sql goals/small.sql -v method="$1" -v indexed="$2" -v round="$3" -v chunks="$chunks" \
		-v churn_rows=$((rows / 100)) >/dev/null
	run_sql goals/single.sql -v method="$1" -v indexed="$2" -v round="$3" \
		-v single_rows=$((rows / 100)) >/dev/null
}

# As many new connections as tables.
measure_connections()			# method indexed round
{
	$2 || return 0
	run_sql goals/connections.sql -v method="$1" -v tables="$connections" -v table_rows=$((rows / 1000)) >/dev/null
	as_account tee "$work/cluster/connections.pgbench" >/dev/null \
		<<<"SELECT bench.look_up_each($connections, $((rows / 1000)));"
	PGOPTIONS='-c enable_seqscan=off' as_account "$cluster_bindir/pgbench" -n -c "$connections" -t 1 \
		-f "$work/cluster/connections.pgbench" >/dev/null 2>"$work/pgbench.log" || die "$(tail -n 3 "$work/pgbench.log")"
	sql >/dev/null -c "SELECT bench.sample($3, '$1', what, percentile_cont(0.5) WITHIN GROUP (ORDER BY value))
		FROM bench.session GROUP BY what"
}

measure_pgbench()				# method round
{
	local n

	index_accounts "$1"
	run_lib accounts.sql -v method="$1" -v indexed=true -v accounts=$((scale * 100000))
	for n in 1 2; do
		sql -c "SELECT bench.sample($2, '$1', 'select_$n', $(select_tps $n "$pgbench_seconds" "$scale"))"
	done >/dev/null
	sql -c "DROP INDEX accounts_index"
}

measure_workloads()				# method indexed round
{
	local name columns match

	while IFS='|' read -r name columns match; do
		# There are no hash indexes on several columns.
		[ "$1/$columns" = "hash/${columns/,/}" ] || [ "$1" != hash ] || continue
		run_sql goals/workload.sql -v method="$1" -v indexed="$2" -v round="$3" -v name="$name" \
			-v columns="$columns" -v match="$match" -v work_rows="$work_rows" \
			-v work_fresh="$work_fresh" >/dev/null </dev/null
	done < <(sql -c "SELECT name, array_to_string(columns, ', '),
						(SELECT string_agg(format('t.%1\$s = p.%1\$s', c), ' AND ') FROM unnest(columns) AS c)
					FROM bench.workload ORDER BY position")
}

load_all()
{
	local round

	run_lib measure.sql
	run_sql goals/samples.sql >/dev/null
	run_lib load.sql -v rows="$rows" -v item_file="$work/cluster/item.copy" -v runs="$rounds" \
		-v probes="$probes" -v keys="$keys" -v fresh="$fresh" -v after_checkpoint=1
	for ((round = 1; round <= rounds; round++)); do
		sql -c "COPY bench.fresh_$round TO '$work/cluster/fresh_$round.copy' (FORMAT binary)"
	done
	run_sql goals/workloads.sql -v work_rows="$work_rows" -v work_fresh="$work_fresh" \
		-v work_probes="$work_probes" >/dev/null
	load_pgbench "$scale"
}

# Every method, each round, "none" first.
in_turn()					# function what
{
	local round method

	for ((round = 1; round <= rounds; round++)); do
		for method in none $methods; do
			progress "$2: round $round, $method"
			"$1" "$method" "$([ "$method" = none ] && echo false || echo true)" "$round"
		done
	done
}

measure_postgresql()
{
	local method round key_rows

	make_work_directory bench $((rows * 8 / 10 + scale * 20000 + 500000)) cluster
	build "$pg_config"
	progress "starting a cluster in $work"
	cluster_create "$work/cluster" "$bindir" pmhash
	as_account tee -a "$cluster_dir/data/postgresql.conf" >/dev/null <<<"max_connections = $((connections + 20))"
	cluster_start
	sql -c "CREATE EXTENSION pg_prewarm" -c "CREATE EXTENSION pg_walinspect" -c "CREATE EXTENSION pmhash"
	progress "loading $rows rows, the other workloads, and pgbench at scale $scale"
	load_all

	in_turn measure_round "table of $rows rows"
	run_lib accounts.sql -v method=none -v indexed=false -v accounts=$((scale * 100000))
	for ((round = 1; round <= rounds; round++)); do
		for method in $methods; do
			progress "pgbench: round $round, $method"
			measure_pgbench "$method" "$round"
		done
	done
	in_turn measure_low "10 distinct values"
	in_turn measure_workloads "other workloads"
	in_turn measure_few "1,000 dead of $few_rows rows"
	in_turn measure_small "small tables, single rows"
	in_turn measure_connections "new connections"
	for method in $methods; do
		progress "bytes per entry: $method"
		sql -c "SELECT bench.sample(1, '$method', 'growing',
					bench.size_while_growing('$method', $rows, 40))" >/dev/null
		run_sql goals/distinct.sql -v method="$method" -v rows="$rows" >/dev/null
		for key_rows in 10 30 1000; do
			run_sql goals/key_rows.sql -v method="$method" -v rows="$work_rows" \
				-v key_rows="$key_rows" >/dev/null
		done
	done
	sql -c "COPY (SELECT * FROM bench.sample ORDER BY metric, method, round) TO STDOUT (FORMAT csv, HEADER)" \
		>"$results/postgresql.csv"
	sql -c "COPY (SELECT 'version', version()
			UNION ALL SELECT name, current_setting(name) FROM pg_settings
				WHERE name IN ('shared_buffers', 'maintenance_work_mem', 'max_parallel_maintenance_workers')
			UNION ALL SELECT 'answers compared', sum(confirmed)::text FROM bench.answer
			UNION ALL SELECT 'rows of a hit, ' || probe_set,
				to_char(split_part(answer, ' ', 1)::float8 / n, 'FM990.0')
				FROM bench.probe_count JOIN bench.answer
					ON question = 'which rows do the hits of workload ' || substr(probe_set, 5) || ' find'
				WHERE probe_set LIKE 'hit%') TO STDOUT (FORMAT csv)" \
		>>"$results/machine_postgresql.csv"
}

# A script of its own, with the build of the first part.
other()						# option...
{
	$keep || cluster_stop
	progress "bench/$part.sh $*"
	bash "$tree/bench/$part.sh" "$@" --results "$results"
}

make_results
install_server python3-matplotlib valgrind || die "no server, or not what else it takes"
for part in $parts; do
	[[ $part != @(postgresql|engine) ]] || describe_machine "$part"
	case $part in
		postgresql) measure_postgresql ;;
		engine) bash "$tree/bench/engine/series.sh" $($quick && echo --quick) --results "$results" ;;
		standby) other --batch $((rows / 20)) --seconds "$pgbench_seconds" ;;
		join) other --only-grid --rows "$rows" --rounds "$rounds" ;;
		cold) [ "$(id -u)" -ne 0 ] || other --rows "$rows" --rounds "$rounds" --keys $((rows / 3000)) ;;
	esac
done
progress "tables and charts"
make_report
progress "done: $results"
