#!/bin/bash
#
# rebuild.sh: what do writers notice of the rebuild of an invalid index?
#
# A table with a pmhash index, and clients of pgbench that write to it one row at
# a time.  After a while the index file is damaged, so the index is rebuilt; the
# clients go on all the time, and for as long after it.  Writes into the results
# directory latencies (p50, p99, p99.9, longest) before, during and after the
# rebuild, the same by second, and a chart.  Exit status 1 if a transaction
# fails, or if index and table do not agree in the end.
#
# Runs as root (the server then runs as "postgres") or as a user with sudo.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"
. "$tree/bench/lib/report.sh"

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --rows LIST      of the table (default "10000000")
		  --clients N      that write (default 2)
		  --seconds S      of load before each rebuild, and after it (default 20)
		  --results DIR    where the report goes (default bench/results)
		  --help           this text
	USAGE
}

rows="10000000"
clients=2
seconds=20
results=$tree/bench/results
read_options "rows clients seconds results" "" "$@"
need_list rows
need_numbers clients seconds
describe_machine()
{
	machine_lines
	printf 'clients,%s\n' "$clients"
}

# All of it on disk, so that nothing is written out while latencies are taken
# that would not be in steady state.
load_table()					# rows
{
	sql -c "DROP TABLE IF EXISTS item" \
		-c "CREATE TABLE item (id int8 GENERATED ALWAYS AS IDENTITY, k int8)" \
		-c "INSERT INTO item (k) SELECT hashint8extended(n, 0) FROM generate_series(1::int8, $1) AS n" \
		-c "ALTER TABLE item ADD PRIMARY KEY (id)" \
		-c "CREATE INDEX item_k ON item USING pmhash (k)" \
		-c "VACUUM ANALYZE item" -c "CHECKPOINT"
	sync -f "$work"
}

# Damage the index file, and wait until the index is back.  A new session's insert
# notices; the rebuilder removes the file.  Sets begun and ended.
rebuild()
{
	local file

	file=$(sql -c "SELECT file FROM pmhash.indexes WHERE index = 'item_k'")
	begun=$(now)
	as_account dd if=/dev/zero of="$file" bs=64 count=1 conv=notrunc status=none
	sql -c 'INSERT INTO item (k) VALUES (0)'
	until [ "$(sql -c "SELECT state FROM pmhash.indexes WHERE index = 'item_k'")" = valid ]; do
		sleep 0.1
	done
	ended=$(now)
}

# The clients, all the time; their log has a line for each transaction.
run_load()						# rows
{
	local pgbench stopped

	as_account "$bindir/pgbench" -n -M prepared -c "$clients" -j "$clients" -T 1000000 \
		-D "rows=$1" -l --log-prefix="$work/log/item" -f "$work/scripts/write.pgbench" \
		>"$work/pgbench.log" 2>&1 &
	pgbench=$!
	sleep "$seconds"
	rebuild
	sleep "$seconds"
	stopped=$(sql -c "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE application_name = 'pgbench'")
	wait "$pgbench" || true
	[ "$stopped" = "$clients" ] ||
		die "a transaction has failed: $(grep -m 1 ERROR "$work/pgbench.log" || tail -n 3 "$work/pgbench.log")"
}

# What the log tells, into the tables of the report.
note_latencies()				# rows
{
	cat "$work"/log/item.* |
		sql -c "COPY rebuild.latency (client, number, us, script, second, fraction) FROM STDIN (DELIMITER ' ')"
	as_account find "$work/log" -type f -delete
	sql -c "CALL rebuild.note($1, $begun, $ended)"
}

# A table of the report as a file.
save_table()					# name columns-to-order-by
{
	sql -c "COPY (SELECT * FROM rebuild.$1 ORDER BY $2) TO STDOUT (FORMAT csv, HEADER)"
}

measure()						# rows
{
	progress "$1 rows: loading"
	load_table "$1"
	progress "$1 rows: writing, rebuilding, writing"
	run_load "$1"
	note_latencies "$1"
	sql -c "SELECT pmhash.check('item_k')" >/dev/null
}

make_results
# shellcheck disable=SC2086
prepare python3-matplotlib rebuild $(($(largest_of $rows) / 5 + 3000000)) cluster scripts log
start_cluster
sql -c 'CREATE EXTENSION pmhash'
run_sql rebuild.sql
as_account tee "$work/scripts/write.pgbench" >/dev/null <<-'SCRIPT'
	\set id random(1, :rows)
	\set k random(1, 1000000000)
	INSERT INTO item (k) VALUES (:k);
	UPDATE item SET k = :k WHERE id = :id;
SCRIPT
for n in $rows; do
	measure "$n"
done
describe_machine >"$results/machine_rebuild.csv"
save_table phase 'rows, since' >"$results/rebuild.csv"
save_table by_second 'rows, second' >"$results/rebuild_seconds.csv"
progress "table and chart"
# Debian's python3 is the one that has matplotlib.
/usr/bin/python3 -B "$tree/bench/report/report.py" "$results"
sql -P format=aligned -P tuples_only=off -P footer=off -c 'SELECT * FROM rebuild.phase ORDER BY rows, since'
progress "done: $results"
