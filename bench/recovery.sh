#!/bin/bash
#
# recovery.sh: how long does a server take to its first answer through pmhash
# after kill -9 of everything under load, and how much of that is pmhash's?
#
# For tables of several sizes: kills the server under load a few times, starts
# it and takes the time from the start of the postmaster to the first answer
# through the index.  Then the same on the same table without the index and
# without the library.  The difference of the medians is what pmhash costs; it
# must be below 50 ms and not grow with the table.  Also measures how long the
# rebuild of a lost index keeps writers waiting.  Prints one table; exit status 1
# if a difference is larger or an answer is wrong.
#
# Runs as root (the server then runs as "postgres") or as a user with sudo.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --sizes LIST     entries (default "1000000 10000000 50000000")
		  --kills N        of each size, with pmhash and without (default 7)
		  --seconds S      of load before each kill (default 2)
		  --help           this text
	USAGE
}

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"

sizes="1000000 10000000 50000000"
kills=7
seconds=2
read_options "sizes kills seconds" "" "$@"
need_list sizes
need_numbers kills seconds
limit_ms=50
rate=400		# transactions a second, of ...
batch=50		# ... so many rows
# Restart with pmhash preloaded, or with nothing.
preload()					# library
{
	as_account "$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -m fast -w stop >/dev/null
	echo "shared_preload_libraries = '$1'" | as_account tee -a "$cluster_dir/data/postgresql.conf" >/dev/null
	cluster_start
}

# A table of one bigint, random keys, and its index; all of it on disk, so that
# nothing else is written while it is measured.
load_table()					# rows
{
	sql -c "DROP TABLE IF EXISTS item" \
		-c "CREATE TABLE item AS SELECT hashint8extended(n, 0) AS k FROM generate_series(1::bigint, $1) AS n" \
		-c "CREATE INDEX item_k ON item USING pmhash (k)" \
		-c "VACUUM item" -c "CHECKPOINT"
	sync -f "$work"
}

# Load the server for a while, then kill it.  The load is held to a rate, so
# that there is as much WAL with the index as without.  Commits do not wait
# for WAL: at any moment there are rows that a crash loses.
kill_under_load()
{
	local load

	sql -c "CHECKPOINT"
	PGOPTIONS='-c synchronous_commit=off' as_account "$cluster_bindir/pgbench" -n -M prepared \
		-c 4 -j 1 -R "$rate" -T 300 -f "$work/scripts/load.pgbench" >/dev/null 2>&1 &
	load=$!
	sleep "$seconds"
	cluster_kill_hard
	wait "$load" || true
}

# Start the server and ask it; prints milliseconds to the answer and the answer.
start_and_ask()					# query
{
	local start answer

	as_account rm -f "$cluster_dir/data/postmaster.pid"
	start=$(now)
	as_account "$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -l "$cluster_dir/log" -W start >/dev/null
	answer=$(as_account perl "$work/scripts/first_answer.pl" "$cluster_dir/data" \
		"$cluster_dir/.s.PGSQL.$PGPORT" "$PGUSER" "$PGDATABASE" "$1") || die "the server does not answer"
	awk -v start="$start" -v answer="$answer" \
		'BEGIN { split(answer, a); printf "%.1f %s\n", (a[1] - start) * 1000, a[2] }'
}

# The last line of the log that has a text.
last_in_log()					# text
{
	{ grep -F "$1" "$cluster_dir/log" || true; } | tail -n 1
}

# Kill and start the server some times; prints a line each: milliseconds.  With
# pmhash also: entries that its undo has taken out.  Before crash recovery the
# server fsyncs all of its files: what the disk takes for that is not measured.
measure()					# query answer-wanted with-pmhash
{
	local i ms answer undone

	for ((i = 0; i < kills; i++)); do
		kill_under_load
		sync -f "$work"
		read -r ms answer < <(start_and_ask "$1")
		[ "$answer" = "$2" ] || die "the answer is \"$answer\", it should be \"$2\""
		undone=
		if $3; then
			undone=$(last_in_log 'pmhash: undo journal' | sed -n 's/.*, \([0-9]*\) entries taken out.*/\1/p')
			[ -n "$undone" ] || die "no undo in the log"
		fi
		echo "$ms $undone"
	done
}

# Median of the first column, and the range.
median()					# file
{
	sort -n "$1" | awk '{ v[NR] = $1 }
		END { m = (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2
			printf "%.1f %.1f %.1f\n", m, v[1], v[NR] }'
}

# Remove the index file, and print the seconds until the index is back.  EXPLAIN
# is enough to notice.
rebuild_seconds()
{
	local file start

	file=$(sql -c "SELECT file FROM pmhash.indexes WHERE index = 'item_k'")
	as_account rm "$file"
	start=$(now)
	sql -c "EXPLAIN SELECT count(*) FROM item WHERE k = 1" >/dev/null
	until [ "$(sql -c "SELECT state FROM pmhash.indexes WHERE index = 'item_k'")" = valid ]; do
		sleep 0.05
	done
	elapsed "$start" "$(now)"
}

# One size: fills a line of the table.
measure_size()					# rows
{
	local with without undone bytes rebuild

	progress "loading $1 rows"
	load_table "$1"
	bytes=$(sql -c "SELECT pg_size_pretty(pmhash.size('item_k'))")
	sql -c "EXPLAIN (COSTS OFF) SELECT count(*) FROM item WHERE k = hashint8extended(1, 0)" | grep -q item_k ||
		die "the plan does not use the index"
	progress "killing it $kills times with pmhash"
	measure "SELECT count(*) FROM item WHERE k = hashint8extended(1, 0)" 1 true >"$work/with"
	progress "checking the index"
	sql -c "SELECT pmhash.check('item_k')" >/dev/null
	rebuild=$(rebuild_seconds)
	sql -c "DROP INDEX item_k"
	preload ''
	progress "killing it $kills times without"
	measure "SELECT count(*) FROM (SELECT 1 FROM item LIMIT 1) AS one" 1 false >"$work/without"
	preload pmhash

	undone=$(awk '{ n += $2 } END { print n }' "$work/with")
	[ "$undone" -gt 0 ] || die "no kill has lost an entry: there was no load"
	with=$(median "$work/with")
	without=$(median "$work/without")
	echo "$1 $bytes $with $without $undone $rebuild" >>"$work/result"
}

report()
{
	echo
	echo "Milliseconds from the start of the postmaster to the first answer after kill -9 of all"
	echo "processes, under load ($((rate * batch)) rows a second); median (least-most) of $kills kills; class cache."
	echo
	awk -v limit="$limit_ms" '
		BEGIN { printf "%12s %9s %20s %20s %12s %8s %10s\n", "entries", "index",
			"with pmhash", "without", "difference", "undone", "rebuild" }
		{
			with = sprintf("%.0f (%.0f-%.0f)", $4, $5, $6)
			without = sprintf("%.0f (%.0f-%.0f)", $7, $8, $9)
			printf "%12d %6d %s %20s %20s %9.1f ms %8d %8.1f s\n", $1, $2, $3, with, without,
				$4 - $7, $10, $11
			if ($4 - $7 >= limit)
				bad = 1
		}
		END {
			printf "\nundone: entries whose rows the kills have lost, taken out before the answer, in all.\n"
			printf "rebuild: from the loss of the index file until the index is valid again.\n"
			if (bad)
				printf "A difference is not below %d ms.\n", limit
			exit bad
		}' "$work/result"
}

# shellcheck disable=SC2086
prepare "" recovery $(($(largest_of $sizes) / 1000 * 100 + 1500000)) cluster scripts
as_account tee scripts/load.pgbench >/dev/null <<-SQL
	\\set k random(1, 1000000000)
	INSERT INTO item SELECT hashint8extended(:k + n, 1) FROM generate_series(1, $batch) AS n;
SQL
as_account tee scripts/first_answer.pl <"$tree/bench/lib/first_answer.pl" >/dev/null
progress "starting a cluster in $work"
cluster_create "$work/cluster" "$bindir" pmhash
as_account tee -a "$cluster_dir/data/postgresql.conf" >/dev/null <<-CONF
	wal_level = minimal
	max_wal_senders = 0
	enable_seqscan = off
CONF
cluster_start
sql -c "CREATE EXTENSION pmhash"
for size in $sizes; do
	measure_size "$size"
done
print_load
report
