#!/bin/bash
#
# series.sh: the engine by itself: everything that the report tells of it
#
#   series.sh [--quick] [--keys N] --results DIR
#
# Builds pmh_bench and pmh_count, and runs them on a tmpfs (/dev/shm) with
# flushes and fences as for persistent memory; as root once more on one with
# pages of 2 MB.  Writes into DIR engine.csv (all
# figures, "label,operation,workers,figure,value") and courses of time:
# engine_growth.csv, engine_latency.csv, engine_filter.csv.

set -euo pipefail

tree=$(cd "$(dirname "$0")/../.." && pwd)
keys=20000000
repeats=3
results=
while [ $# -gt 0 ]; do
	case $1 in
		--quick) keys=2000000 repeats=1 ;;
		--keys) keys=${2?--keys needs a number}; shift ;;
		--results) results=${2?--results needs a directory}; shift ;;
		*) echo "usage: $0 [--quick] [--keys N] --results DIR" >&2; exit 2 ;;
	esac
	shift
done
case $keys in
	*[!0-9]*) echo "${0##*/}: --keys needs a number" >&2; exit 2 ;;
esac
[ "$keys" -ge 2000000 ] || { echo "${0##*/}: --keys: at least 2000000" >&2; exit 2; }
command -v valgrind >/dev/null || { echo "${0##*/}: valgrind is needed" >&2; exit 1; }
[ -d "$results" ] || { echo "${0##*/}: --results: no such directory" >&2; exit 2; }
results=$(cd "$results" && pwd)

work=$(mktemp -d)
file=$(mktemp -u /dev/shm/pmh_bench.XXXXXX)
trap 'umount "$work/large" 2>/dev/null || true; rm -rf "$work" "$file" "${file}_ab"' EXIT
trap 'exit 130' INT TERM HUP

# From a copy of the sources: the tree is left as it is.
cp -r --parents "$tree/src/engine" "$tree/bench/engine" "$work"
make -s -C "$work$tree/bench/engine" clean
make -s -j2 -C "$work$tree/bench/engine" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
programs=$work$tree/bench/engine
first=

run()						# label program argument...
{
	local label=$1 program=$2

	shift 2
	printf '[%4ds] engine: %s %s\n' "$SECONDS" "$label" "$*"
	"$programs/$program" --file "$file" --force-pmem --prefault --reserve "$reserve" \
		--label "$label" \
		--figures "$results/engine.csv" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}

# The engine's first version (edd8e36) in a directory of its own, if its history is here:
# the goals are ratios to it, of the same machine and the same minutes.
build_first()
{
	first=$work/first
	mkdir "$first"
	if ! git -c safe.directory="$tree" -C "$tree" archive edd8e36 src/engine bench/engine 2>/dev/null | tar -x -C "$first" 2>/dev/null; then
		echo "${0##*/}: no history with edd8e36: nothing is compared with it" >&2
		first=
		return
	fi
	make -s -j2 -C "$first/bench/engine" pmh_bench >"$work/log" 2>&1 &&
		make -s -j2 -C "$programs" build/engine.so ENGINE="$tree/src/engine" >>"$work/log" 2>&1 &&
		make -s -j2 -C "$programs" ENGINE="$first/src/engine" BUILD="$first/shared" \
			"$first/shared/engine.so" >>"$work/log" 2>&1 ||
		{ cat "$work/log" >&2; exit 1; }
}

# Both versions in one process, by slices of operations in rotation.
compare_with_first()
{
	[ -n "$first" ] || return 0
	printf '[%4ds] engine: beside the first version\n' "$SECONDS"
	mkdir "${file}_ab"
	"$programs/pmh_ab" -n "$keys" -d "${file}_ab" -s $((keys / 40)) \
		-o insert,hit,miss,dependent-hit,dependent-miss,delete,group-insert,group-hit,group-delete \
		first="$first/shared/engine.so" this="$programs/build/engine.so" >"$work/ab" 2>"$work/log" ||
		{ cat "$work/log" >&2; exit 1; }
	rm -rf "${file}_ab"
	awk '$1 == "space" { print "ab,space,1," $2 "_bytes," $5; next }
		{ print "ab," $1 ",1," $2 "_mops," $3 } $2 == "this" { print "ab," $1 ",1,ratio," $6 }' \
		"$work/ab" >>"$results/engine.csv"
}

# As "run", with the first version's program.
run_first()					# label argument...
{
	local label=$1

	[ -n "$first" ] || return 0
	shift
	programs=$first/bench/engine run "$label" pmh_bench "$@"
}

# Every access to memory of a few thousand operations, to count lines.
trace_lines()				# keys
{
	run "lines" pmh_bench --keys "$1" --keep --op group-insert
	printf '[%4ds] engine: lines of single operations, by valgrind\n' "$SECONDS"
	valgrind --tool=lackey --trace-mem=yes --log-fd=1 "$programs/pmh_bench" --file "$file" \
		--existing --force-pmem --keys "$1" --op trace 2>"$work/log" |
		/usr/bin/python3 -B "$programs/trace_lines.py" "$results/engine.csv" ||
		{ cat "$work/log" >&2; exit 1; }
}

build_first
echo "label,operation,workers,figure,value" >"$results/engine.csv"
rm -f "$results"/engine_*.csv
# As the published tables were measured: space and pages are there beforehand.
reserve=$((keys * 24))
for ((i = 1; i <= repeats; i++)); do
	run "single" pmh_bench --keys "$keys" \
		--op machine,insert,hit,miss,floor,group,group-miss,recover,delete,machine
	run "group" pmh_bench --keys "$keys" --op group-insert,group-delete
	run "two" pmh_bench --keys "$keys" --threads 2 --op insert,hit,miss,group,delete
	run "timeline" pmh_bench --keys "$keys" --op timeline,pauses --csv "$results/engine_latency.csv"
	run "mixed" pmh_bench --keys "$keys" --op mixed
	compare_with_first
	for values in 10 1; do
		run "zipf_$values" pmh_bench --keys $((keys / 2)) --values-each "$values" --op zipf
		run_first "first_zipf_$values" --keys $((keys / 2)) --values-each "$values" --op zipf
	done
done
# Pages of 2 MB, as file systems on persistent memory map them.
small=$file
if mkdir "$work/large" && mount -t tmpfs -o huge=always,size=$((keys * 48)) none "$work/large"; then
	file=$work/large/pmh_bench
	for ((i = 1; i <= repeats; i++)); do
		run "large" pmh_bench --keys "$keys" --op insert,hit,miss,floor,group,group-miss,delete
		run "large" pmh_bench --keys "$keys" --op group-insert,group-delete
	done
	file=$small
	umount "$work/large"
else
	echo "${0##*/}: no tmpfs with large pages can be mounted: no figures with them" >&2
fi
# From here on the file grows with what is put into it.
reserve=0
for ((i = 1; i <= repeats; i++)); do
	run "unreserved" pmh_bench --keys "$keys" --op insert,timeline
done
run "growth" pmh_bench --keys "$keys" --op grow --csv "$results/engine_growth.csv"
run_first "first_growth" --keys "$keys" --op grow
for thetas in 0,0.2 0.4,0.5 0.6,0.8 0.9,0.99; do
	run "skew" pmh_bench --keys $((keys / 2)) --theta "$thetas" --op grow-zipf
done
for size in $((keys / 20)) $((keys / 10)) $((keys / 4)) $((keys / 2)) "$keys" $((keys * 2)); do
	run "recovery_$size" pmh_bench --keys "$size" --op group-insert,recover,recover,recover
done
run "filter" pmh_bench --keys "$keys" --op filter --csv "$results/engine_filter.csv"
run "count" pmh_count --keys $((keys / 10)) --op insert,hit,miss,delete
run "count" pmh_count --keys $((keys / 10)) --op group-insert,group-delete
trace_lines $((keys / 10))
