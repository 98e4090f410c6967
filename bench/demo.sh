#!/bin/bash
#
# demo.sh: btree, hash and pmhash side by side, on a machine with nothing
#
# Installs Debian's packages (of the newest PostgreSQL that is installed or that
# apt has; PMHASH_PG_MAJOR names another one), builds pmhash, starts a throw-away cluster in a
# temporary directory, takes the same figures with a btree, a hash and a pmhash
# index on identical tables, each as it is by default, kills the server hard and shows that
# pmhash came back, prints a table and bars, and removes everything but the packages.  Every
# answer is compared with that of a sequential scan; one that differs ends the
# demo with exit status 1.
#
# Runs as root (the server then runs as "postgres") or as a user with sudo.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --rows N         rows of the table that is measured (default 5000000)
		  --quick          a small table: shows that everything works, no figures
		  --methods LIST   of "btree hash pmhash" (default: all)
		  --chart FILE     draw the bars as a PNG file, too (installs python3-matplotlib)
		  --keep           leave the cluster running and tell how to reach it
		  --help           this text
	USAGE
}

tree=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"
. "$tree/bench/lib/pgbench.sh"

rows=default
methods="btree hash pmhash"
chart=
quick=false
keep=false
read_options "rows methods chart" "quick keep" "$@"
[ -z "$chart" ] || chart=$(realpath -m "$chart")
keep_cluster=$keep
for method in $methods; do
	case $method in
		btree|hash|pmhash) ;;
		*) die "no such method: $method" ;;
	esac
done

if $quick; then
	rows=${rows/#default/200000} runs=2 scale=1 pgbench_seconds=1
else
	rows=${rows/#default/5000000} runs=3 scale=20 pgbench_seconds=4
fi
[[ $rows =~ ^[1-9][0-9]{5,8}$ ]] || die "--rows: a number from 100000 to 999999999"
probes=$((rows / 25))
keys=$((rows / 100))
fresh=$((rows / 5 / runs))
after_checkpoint=$((rows / 50))
text_rows=$((rows / 5))
text_probes=$((text_rows / 10))
accounts=$((scale * 100000))
keys_lost=1000000000000
clients=$(nproc)
# Transactions a second of pgbench's point selects through a method.
measure_pgbench()				# method
{
	local tps

	index_accounts "$1"
	run_lib accounts.sql -v method="$1" -v indexed=true -v accounts="$accounts"
	tps=$(select_tps "$clients" "$pgbench_seconds" "$scale")
	sql -c "SELECT bench.record('$1', 'select', $tps)" -c "DROP INDEX accounts_index" >/dev/null
}

measure()					# method indexed
{
	progress "measuring $1"
	run_lib item.sql -v item_file="$work/cluster/item.copy"
	run_lib method.sql -v method="$1" -v indexed="$2" -v rows="$rows" \
		-v runs="$runs" -v probes="$probes" -v keys="$keys" -v fresh="$fresh" -v after_checkpoint="$after_checkpoint" \
		-v text_rows="$text_rows" -v text_probes="$text_probes"
	if $2; then
		measure_pgbench "$1"
	else
		run_lib accounts.sql -v method="$1" -v indexed=false -v accounts="$accounts"
	fi
}

# With all three indexes on one column: which one does the planner take?
show_choice()
{
	local plan

	sql -c "CREATE TABLE choice AS SELECT k, v FROM bench.item LIMIT 100000" \
		-c "CREATE INDEX choice_btree ON choice USING btree (k)" \
		-c "CREATE INDEX choice_hash ON choice USING hash (k)" \
		-c "CREATE INDEX choice_pmhash ON choice USING pmhash (k)" \
		-c "VACUUM ANALYZE choice"
	plan=$(sql -c "EXPLAIN (COSTS OFF) SELECT v FROM choice WHERE k = 42")
	echo "With all three indexes on one column the planner takes this for an equality:"
	echo "$plan" | sed 's/^/  /'
	sql -c "DROP TABLE choice"
}

# Kill -9 of everything under load, then ask every index everything.
crash()
{
	local killed ready first load writer deadline

	progress "killing the server under load"
	sql -c "CREATE INDEX accounts_index ON pgbench_accounts USING pmhash (aid)" \
		-c "CREATE INDEX tellers_index ON pgbench_tellers USING pmhash (tid)" \
		-c "CREATE INDEX branches_index ON pgbench_branches USING pmhash (bid)" \
		-c "CREATE INDEX history_index ON pgbench_history USING pmhash (aid)" \
		-c "CHECKPOINT"
	as_account "$cluster_bindir/pgbench" -n -M prepared -c 4 -j 2 -T 300 -s "$scale" \
		>/dev/null 2>&1 &
	load=$!
	sql -c "BEGIN; INSERT INTO bench.item SELECT bench.key(n, 1), 'lost'
			FROM generate_series($keys_lost, $keys_lost + 99999) AS n;
			SELECT pg_sleep(300)" >/dev/null 2>&1 &
	writer=$!
	until [ "$(sql -c "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")" = 1 ]; do
		sleep 0.1
	done
	sleep "$pgbench_seconds"
	cluster_kill_hard
	wait "$load" "$writer" || true

	killed=$(now)
	deadline=$((SECONDS + 120))
	as_account "$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -l "$cluster_dir/log" -W start >/dev/null 2>&1
	until sql -c "SELECT 1" >/dev/null 2>&1; do
		# (no start of another one meanwhile: this one may not have its lock file yet)
		[ "$SECONDS" -lt "$deadline" ] ||
			{
				tail -n 30 "$cluster_dir/log" >&2
				die "the server does not start"
			}
		sleep 0.02
	done
	ready=$(now)
	sql -c "SET enable_seqscan = off" \
		-c "SELECT count(v) FROM bench.item WHERE k = bench.key(1, 1)" >/dev/null
	first=$(now)

	progress "comparing every answer after the crash"
	echo
	echo "After kill -9 of the whole server under load (pgbench and an open transaction of"
	echo "100,000 rows): ready for connections in $(elapsed "$killed" "$ready") s, the first connection and"
	echo "answer through pmhash in $(elapsed "$ready" "$first") s.  Answers of pmhash and of sequential scans alike:"
	run_lib crash.sql -v keys_lost="$keys_lost"
	sql -c "SELECT format('  %s? %s', question, answer) FROM bench.crash_question JOIN bench.answer USING (question)"
	sql -c "SELECT format('  pmhash.check: all %s indexes are sound', count(*)) FROM pmhash.indexes WHERE state = 'valid'"
}

report()
{
	echo
	echo "$rows rows of bigint and text in random order, $probes probes a run, median of $runs runs;"
	echo "$(nproc) cores, shared_buffers $(sql -c 'SHOW shared_buffers'), warm, locale C, checkpoints held off but where the table says so."
	echo
	as_account "$cluster_bindir/psql" -X -q -P border=2 -P footer=off -v ON_ERROR_STOP=1 \
		-f - <"$tree/bench/lib/report.sql"
	echo
	echo "better: pmhash against the better of btree and hash.  Bars: less is better."
	print_load
	echo "Absolute figures drift from machine to machine and from hour to hour; compare within a run."
	sql -c "SELECT sum(confirmed) || ' answers were compared with those of sequential scans; all were the same.'
			FROM bench.answer"
	! $quick || echo "--quick: the figures of so small a table say little."
}

# what is wrong with it is better said now than when everything is installed
scratch_parent >/dev/null || die "no scratch directory"
install_server ${chart:+python3-matplotlib} || die "no server, or not what it takes to build"
bindir=${pg_config%/*}
make_work_directory demo $((rows * 8 / 10 + scale * 50000 + 500000)) cluster
preload=
case " $methods " in
	*" pmhash "*)
		build "$pg_config"
		preload=pmhash
		;;
esac

progress "starting a cluster in $work"
cluster_create "$work/cluster" "$bindir" "$preload"
cluster_start

progress "loading $rows rows, and pgbench at scale $scale"
sql -c "CREATE EXTENSION pg_prewarm"
[ -z "$preload" ] || sql -c "CREATE EXTENSION pmhash"
run_lib measure.sql
run_lib metrics.sql -v keys="$keys" -v text_rows="$text_rows" -v clients="$clients"
run_lib load.sql -v rows="$rows" -v item_file="$work/cluster/item.copy" -v runs="$runs" \
	-v probes="$probes" -v keys="$keys" -v fresh="$fresh" -v after_checkpoint="$after_checkpoint"
run_lib load_text.sql -v runs="$runs" -v text_rows="$text_rows" -v text_probes="$text_probes"
load_pgbench "$scale"

position=0
for method in none $methods; do
	sql -c "INSERT INTO bench.method VALUES ($((position++)), '$method')"
done
measure none false
for method in $methods; do
	measure "$method" true
done

if [ -n "$preload" ]; then
	if [ "$methods" = "btree hash pmhash" ]; then
		show_choice
	fi
	crash
fi
report
if [ -n "$chart" ]; then
	sql -c "COPY (SELECT label, unit, method, value FROM bench.metric JOIN bench.result USING (metric)
			WHERE charted AND method <> 'none' ORDER BY position, method) TO STDOUT (FORMAT csv, HEADER)" >figures.csv
	# Debian's python3 is the one that has matplotlib
	/usr/bin/python3 -B "$tree/bench/report/demo.py" figures.csv "$chart"
	echo "The chart is in \"$chart\"."
fi
