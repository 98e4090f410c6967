#!/bin/bash
#
# exclusion.sh: what unique values cost, by EXCLUDE USING pmhash and by UNIQUE
# with btree
#
# The same urls are inserted into two tables, in one statement, one by one, and
# with ON CONFLICT DO NOTHING where half of them are there already; short urls
# of 80 bytes, longer ones that a btree can still hold, and such as it cannot.
# Prints the median time of three rounds by operation, WAL and index size, and
# removes everything.  A round in which a value is in a table twice, or is
# missing, ends the run with exit status 1.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --rows N         short urls (default 200000); a tenth as many long ones
		  --rounds R       of each variant (default 3)
		  --help           this text
	USAGE
}

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/test/lib/packages.sh"
. "$tree/bench/lib/cluster.sh"
. "$tree/bench/lib/scratch.sh"

rows=200000
rounds=3
while [ $# -gt 0 ]; do
	case $1 in
		--rows|--rounds)
			case ${2-} in
				''|0*|*[!0-9]*) die "$1 needs a number above zero" ;;
			esac
			declare "${1#--}=$2"
			shift
			;;
		--help) usage; exit 0 ;;
		*) usage >&2; exit 2 ;;
	esac
	shift
done
[ "$rows" -ge 1000 ] || die "--rows must be 1000 at least"

read -r load_before _ </proc/loadavg

install_server || die "no server, or not what it takes to build"
make_work_directory exclusion $((rows * 8 + 2000000)) cluster
build "$pg_config"
progress "starting a cluster in $work"
cluster_create "$work/cluster" "$bindir" pmhash
cluster_start
run_sql exclusion.sql >/dev/null
for ((r = 1; r <= rounds; r++)); do
	# which one begins changes from round to round
	if ((r % 2)); then order="btree pmhash"; else order="pmhash btree"; fi
	for bytes in 80 1000 2500 6000; do
		for method in $order; do
			[ "$method $bytes" != "btree 6000" ] || continue
			n=$((bytes == 80 ? rows : rows / 10))
			sql -c "CALL unique_urls.round('$method', $bytes, $n)"
		done
	done
	progress "round $r is over"
done

echo
echo "Unique urls, $rows of 80 bytes and $((rows / 10)) of each other length, medians of $rounds rounds;"
echo "$(nproc) cores, shared_buffers $(sql -c 'SHOW shared_buffers'), locale C, no checkpoint meanwhile."
echo
as_account "$cluster_bindir/psql" -X -q -P border=2 -P footer=off -v ON_ERROR_STOP=1 \
	-c "SELECT * FROM unique_urls.report"
echo "Load average when it began: $load_before (of other programs; they spoil figures)."
