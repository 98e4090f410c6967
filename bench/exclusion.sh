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
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"

rows=200000
rounds=3
read_options "rows rounds" "" "$@"
need_numbers rows rounds
[ "$rows" -ge 1000 ] || die "--rows must be 1000 at least"

prepare "" exclusion $((rows * 8 + 2000000)) cluster
start_cluster
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
print_load
