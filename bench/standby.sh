#!/bin/bash
#
# standby.sh: what do logged indexes cost, and what do standbys have of them?
#
# A primary and a standby on one machine.  Writes into the results directory
# (standby.csv; figure, method, rows, value, unit):
#   WAL        bytes of the index for a row: alone, in a statement of many rows, and
#              alone right after a checkpoint; without the table's own
#   inserts    rows a second, in a statement of many rows and one by one
#   replay     rows a second that have waited, seconds of a VACUUM that has waited, and the
#              standby's lag under clients
#   build      seconds from REINDEX with wal = on until the standby has it;
#              and what replay is beside it, in percent of what it is alone (only of
#              tables so large that the build lasts for longer than that)
#   promotion  milliseconds from the end of recovery to the first answer by the index,
#              in a new session
#
# Runs as root (the server then runs as "postgres") or as a user with sudo.

set -euo pipefail
shopt -s inherit_errexit

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"
. "$tree/bench/lib/report.sh"

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --rows LIST      tables that the standby builds an index of (default "1000000")
		  --batch N        rows of the statements that are timed (default 500000)
		  --clients N      that write while lag is taken (default 2)
		  --seconds S      of that, and of inserts one by one (default 10)
		  --results DIR    where standby.csv goes (default bench/results)
		  --help           this text
	USAGE
}

rows="1000000"
batch=500000
clients=2
seconds=10
results=$tree/bench/results
read_options "rows batch clients seconds results" "" "$@"
need_list rows
need_numbers batch clients seconds
methods="btree hash pmhash"

# ---- two servers ----

# psql on the standby
on_standby()
{
	PGPORT=5433 sql "$@"
}

start_standby()
{
	as_account "$bindir/pg_basebackup" -D "$work/standby/data" -R --checkpoint=fast
	as_account tee -a "$work/standby/data/postgresql.conf" >/dev/null <<-CONF
		port = 5433
		max_standby_streaming_delay = -1
	CONF
	as_account "$bindir/pg_ctl" -D "$work/standby/data" -l "$work/standby/log" -w start >/dev/null ||
		die "the standby does not start: $(tail -n 3 "$work/standby/log")"
}

stop_standby()
{
	[ ! -f "$work/standby/data/postmaster.pid" ] ||
		as_account "$bindir/pg_ctl" -D "$work/standby/data" -m immediate -w stop >/dev/null 2>&1 || true
}

# Wait until the standby has replayed all there is.
catch_up()
{
	local lsn

	lsn=$(sql -c 'SELECT pg_current_wal_flush_lsn()')
	until [ "$(on_standby -c "SELECT pg_last_wal_replay_lsn() >= '$lsn'")" = t ]; do
		sleep 0.02
	done
}

wait_for_index()				# index
{
	until [ "$(on_standby -c "SELECT state FROM pmhash.indexes WHERE index = '$1'")" = valid ]; do
		sleep 0.05
	done
}

# ---- figures ----

lsn()
{
	sql -c 'SELECT pg_current_wal_insert_lsn()'
}

# A table w with an index of a kind: a method, "off" (pmhash, not logged), or none.
make_table()					# kind
{
	sql -c 'DROP TABLE IF EXISTS w' -c 'CREATE TABLE w (k int8)'
	case $1 in
		none) ;;
		off) sql -c 'CREATE INDEX w_k ON w USING pmhash (k) WITH (wal = off)' ;;
		pmhash) sql -c 'CREATE INDEX w_k ON w USING pmhash (k) WITH (wal = on)' ;;
		*) sql -c "CREATE INDEX w_k ON w USING $1 (k)" ;;
	esac
}

# Bytes of WAL that statements write.
bytes_of()						# psql argument...
{
	local from

	from=$(lsn)
	sql "$@"
	sql -c "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$from')"
}

# Rows that come alone, each in a transaction.
alone()							# rows
{
	echo "DO \$\$ BEGIN FOR i IN 1 .. $1 LOOP
		INSERT INTO w VALUES (hashint8extended(i, 77)); COMMIT; END LOOP; END \$\$"
}

measure_wal()
{
	local kind many one fresh base_many=0 base_one=0 base_fresh=0

	for kind in none $methods; do
		make_table "$kind"
		many=$(bytes_of -c "INSERT INTO w SELECT hashint8extended(n, 0) FROM generate_series(1, $batch) n")
		sql -c 'CHECKPOINT'
		fresh=$(bytes_of -c 'SET synchronous_commit = off' -c "$(alone 200)")
		one=$(bytes_of -c 'SET synchronous_commit = off' -c "$(alone 5000)")
		if [ "$kind" = none ]; then
			base_many=$many base_one=$one base_fresh=$fresh
			continue
		fi
		note "WAL, many rows" "$kind" "$batch" "$(awk "BEGIN { printf \"%.1f\", ($many - $base_many) / $batch }")" "bytes/row"
		note "WAL, alone after a checkpoint" "$kind" 200 "$(awk "BEGIN { printf \"%.1f\", ($fresh - $base_fresh) / 200 }")" "bytes/row"
		note "WAL, alone" "$kind" 5000 "$(awk "BEGIN { printf \"%.1f\", ($one - $base_one) / 5000 }")" "bytes/row"
	done
}

measure_inserts()
{
	local kind begun tps

	for kind in none off $methods; do
		make_table "$kind"
		begun=$(now)
		sql -c "INSERT INTO w SELECT hashint8extended(n, 0) FROM generate_series(1, $batch) n"
		note "inserts, many rows" "$kind" "$batch" "$(awk "BEGIN { printf \"%.0f\", $batch / $(elapsed "$begun" "$(now)") }")" "rows/s"
		tps=$(PGOPTIONS='-c synchronous_commit=off' as_account "$bindir/pgbench" -n -M prepared -c 1 -T "$seconds" \
			-f "$work/scripts/insert.pgbench" | awk '/^tps/ { printf "%.0f", $3 }')
		note "inserts, alone" "$kind" 1 "$tps" "rows/s"
	done
}

# Seconds in which the standby replays what has waited.
replay_seconds()				# psql argument...
{
	local begun

	on_standby -c 'SELECT pg_wal_replay_pause()' >/dev/null
	sql "$@"
	sleep 1
	begun=$(now)
	on_standby -c 'SELECT pg_wal_replay_resume()' >/dev/null
	catch_up
	elapsed "$begun" "$(now)"
}

replay_rate()					# rows
{
	awk "BEGIN { printf \"%.0f\", $1 / $(replay_seconds -c \
		"INSERT INTO w SELECT hashint8extended(n, 0) FROM generate_series(1, $1) n") }"
}

measure_replay()
{
	local kind

	for kind in none $methods; do
		make_table "$kind"
		catch_up
		[ "$kind" != pmhash ] || wait_for_index w_k
		note "replay" "$kind" "$batch" "$(replay_rate "$batch")" "rows/s"
	done
}

# Of a VACUUM of half the rows, then of a thousand.
measure_vacuum_replay()
{
	local kind

	for kind in none $methods; do
		make_table "$kind"
		sql -c "INSERT INTO w SELECT hashint8extended(n, 0) FROM generate_series(1, $batch) n" \
			-c 'DELETE FROM w WHERE k & 1 = 0'
		catch_up
		[ "$kind" != pmhash ] || wait_for_index w_k
		note "replay of VACUUM, half dead" "$kind" "$batch" "$(replay_seconds -c 'VACUUM w')" s
		sql -c "DELETE FROM w WHERE abs(k) % ($batch / 1000) = 1"
		catch_up
		note "replay of VACUUM, few dead" "$kind" "$batch" "$(replay_seconds -c 'VACUUM (INDEX_CLEANUP) w')" s
	done
}

measure_lag()
{
	local kind pgbench i

	for kind in none $methods; do
		make_table "$kind"
		catch_up
		PGOPTIONS='-c synchronous_commit=off' as_account "$bindir/pgbench" -n -M prepared -c "$clients" -T "$seconds" \
			-f "$work/scripts/insert.pgbench" >"$work/pgbench.log" 2>&1 &
		pgbench=$!
		as_account rm -f "$work/lag"
		for ((i = 0; i < seconds * 5; i++)); do
			sql -c "SELECT coalesce(extract(epoch FROM replay_lag), 0) * 1000 FROM pg_stat_replication"
			sleep 0.15
		done >"$work/lag"
		wait "$pgbench" || die "$(tail -n 3 "$work/pgbench.log")"
		note "inserts while lag is taken" "$kind" 1 "$(awk '/^tps/ { printf "%.0f", $3 }' "$work/pgbench.log")" "rows/s"
		note "lag, median" "$kind" 1 \
			"$(sort -n "$work/lag" | awk '{ v[NR] = $1 } END { printf "%.1f", v[int((NR + 1) / 2)] }')" ms
	done
}

# What b_k is on the standby.
state_of_b()
{
	on_standby -c "SELECT state FROM pmhash.indexes WHERE index = 'b_k'"
}

# Percent of a rate that another is.
percent_of()					# rate other
{
	awk "BEGIN { printf \"%.1f\", 100 * $2 / $1 }"
}

median_of_three()				# number...
{
	printf '%s\n' "$@" | sort -n | sed -n 2p
}

# Replay beside a session that does nothing but read b: what a processor at work beside
# it costs it anyway.  Sets rate.
replay_beside_reader()
{
	local reader

	on_standby -c 'SET max_parallel_workers_per_gather = 0' \
		-c "DO \$\$ BEGIN LOOP PERFORM count(*) FROM b; END LOOP; END \$\$" >/dev/null 2>&1 &
	reader=$!
	sleep 0.5
	rate=$(replay_rate "$batch")
	on_standby -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO%count(*) FROM b%'
		AND pid <> pg_backend_pid()" >/dev/null
	wait "$reader" || true
}

# Replay of rows of w, which has an index as well, with a build of b_k and without, in
# turn; the median of three.
measure_replay_beside_build()	# rows-of-b
{
	local round alone rate builds=() readers=()

	make_table pmhash
	catch_up
	wait_for_index w_k
	for round in 1 2 3; do
		alone=$(replay_rate "$batch")
		replay_beside_reader
		readers+=("$(percent_of "$alone" "$rate")")
		sql -c 'ALTER INDEX b_k SET (wal = off)' -c 'REINDEX INDEX b_k'
		catch_up
		sql -c 'ALTER INDEX b_k SET (wal = on)' -c 'REINDEX INDEX b_k'
		until [[ $(state_of_b) == building* ]]; do
			sleep 0.02
		done
		builds+=("$(percent_of "$alone" "$(replay_rate "$batch")")")
		if [[ $(state_of_b) != building* ]]; then
			progress "the build of $1 rows is over too soon to say what replay is beside it"
			wait_for_index b_k
			return
		fi
		wait_for_index b_k
	done
	note "replay beside a reader" none "$1" "$(median_of_three "${readers[@]}")" "% of alone"
	note "replay beside a build" pmhash "$1" "$(median_of_three "${builds[@]}")" "% of alone"
}

measure_build()
{
	local n begun

	for n in $rows; do
		sql -c 'DROP TABLE IF EXISTS b' -c 'CREATE TABLE b (k int8)' \
			-c "INSERT INTO b SELECT hashint8extended(n, 0) FROM generate_series(1, $n) n" \
			-c 'CREATE INDEX b_k ON b USING pmhash (k) WITH (wal = off)' -c 'VACUUM ANALYZE b'
		catch_up
		begun=$(now)
		sql -c 'ALTER INDEX b_k SET (wal = on)' -c 'REINDEX INDEX b_k'
		wait_for_index b_k
		note "build" pmhash "$n" "$(elapsed "$begun" "$(now)")" s
		measure_replay_beside_build "$n"
	done
}

# A session waits on the standby for the end of recovery; then a new one asks.
measure_promotion()
{
	local waiter ready begun answer

	catch_up
	on_standby -c "DO \$\$ BEGIN WHILE pg_is_in_recovery() LOOP PERFORM pg_sleep(0.001); END LOOP; END \$\$" &
	waiter=$!
	begun=$(now)
	sql -c 'CHECKPOINT'
	cluster_stop
	as_account "$bindir/pg_ctl" -D "$work/standby/data" -W promote >/dev/null
	wait "$waiter"
	ready=$(now)
	answer=$(on_standby -c 'SET enable_seqscan = off' -c "EXPLAIN (COSTS OFF) SELECT * FROM b WHERE k = hashint8extended(5, 0)" \
		-c "SELECT count(*) FROM b WHERE k = hashint8extended(5, 0)")
	note "promotion to first answer" pmhash "$n" "$(awk "BEGIN { printf \"%.0f\", 1000 * $(elapsed "$ready" "$(now)") }")" ms
	grep -q b_k <<<"$answer" || die "the index was not used: $answer"
}

make_results
# shellcheck disable=SC2086
prepare python3-matplotlib standby $(($(largest_of $rows $batch) / 2 + 4000000)) cluster scripts standby
progress "starting two servers in $work"
cluster_create "$work/cluster" "$bindir" pmhash
as_account tee -a "$work/cluster/data/postgresql.conf" >/dev/null <<-'CONF'
	wal_level = replica
	max_wal_senders = 4
	wal_keep_size = 4GB
CONF
as_account tee "$work/scripts/insert.pgbench" >/dev/null <<-'SCRIPT'
	\set k random(1, 1000000000)
	INSERT INTO w VALUES (:k);
SCRIPT
cluster_start
sql -c 'CREATE EXTENSION pmhash'
stop_others=stop_standby
start_standby
begin_figures standby
machine_lines >"$results/machine_standby.csv"
measure_wal
measure_inserts
measure_replay
measure_vacuum_replay
measure_lag
measure_build
n=${rows##* }
measure_promotion
make_report
progress "done: $figures"
