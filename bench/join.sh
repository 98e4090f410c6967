#!/bin/bash
#
# join.sh: joins by groups of keys beside nested loops and hash joins
#
# A table of random keys is joined with keys that are all there, and with keys of
# which none is, by nested loops over btree, hash and pmhash, by a hash join and by
# pmhash's own join: nanoseconds per key, less what reading the keys takes; medians.
# Everything is cached.  With --grid, too: what the planner chooses by itself at
# some sizes, beside each other way.  An answer that differs from others ends the run
# with exit status 1.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --rows N         of the table (default 10000000, the most)
		  --probes N       keys to be joined with it (default 1000000)
		  --rounds R       of each way (default 3)
		  --grid           what the planner chooses, as well
		  --help           this text
	USAGE
}

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/test/lib/packages.sh"
. "$tree/bench/lib/cluster.sh"
. "$tree/bench/lib/scratch.sh"

rows=10000000
probes=1000000
rounds=3
grid=false
while [ $# -gt 0 ]; do
	case $1 in
		--rows|--probes|--rounds)
			case ${2-} in
				''|0*|*[!0-9]*) die "$1 needs a number above zero" ;;
			esac
			declare "${1#--}=$2"
			shift
			;;
		--grid) grid=true ;;
		--help) usage; exit 0 ;;
		*) usage >&2; exit 2 ;;
	esac
	shift
done
[ "$rows" -le 10000000 ] || die "--rows must be 10000000 at most"
[ "$probes" -ge 100 ] || die "--probes must be 100 at least"

read -r load_before _ </proc/loadavg

# Index both tables by a method, and have them cached.
index_by()					# method
{
	sql <<-SQL
		DROP INDEX IF EXISTS joins.big_k, joins.many_k;
		CREATE INDEX big_k ON joins.big USING $1 (k);
		CREATE INDEX many_k ON joins.many USING $1 (k);
		ANALYZE joins.big;
		SELECT count(pad) FROM joins.big \g /dev/null
		SELECT count(pad) FROM joins.many \g /dev/null
	SQL
}

# All ways that there are with the present index, so many rounds.
take()						# way...
{
	local way r

	for ((r = 1; r <= rounds; r++)); do
		for way in "$@"; do
			sql -c "CALL joins.round('$way')"
		done
	done
	progress "$*: done"
}

table()						# query
{
	as_account "$cluster_bindir/psql" -X -q -P border=2 -P footer=off -v ON_ERROR_STOP=1 -c "$1"
}

install_server || die "no server, or not what it takes to build"
make_work_directory join $((rows / 5 + 2000000)) cluster
build "$pg_config"
progress "starting a cluster in $work"
cluster_create "$work/cluster" "$bindir" pmhash
cluster_start
run_sql join.sql -v rows="$rows" -v probes="$probes" >/dev/null
progress "the tables are there"
for ((r = 1; r <= rounds; r++)); do sql -c "CALL joins.outer_alone()"; done
index_by btree
take "nested loop, btree"
index_by hash
take "nested loop, hash"
index_by pmhash
take "nested loop, pmhash" "pmhash join" "hash join"

wrong=$(sql -c "SELECT string_agg(figure, ', ') FROM
	(SELECT figure FROM joins.result WHERE way <> 'outer'
	 GROUP BY figure HAVING count(DISTINCT answer) > 1) w")
[ -z "$wrong" ] || die "answers differ: $wrong"

echo
echo "Joins with $rows rows, $probes keys (a tenth for IN and for 10 rows a key), nanoseconds per key"
echo "(LIMIT 1: of the statement), medians of $rounds rounds; $(nproc) cores, shared_buffers $(sql -c 'SHOW shared_buffers')."
echo
table "SELECT * FROM joins.report"
if $grid; then
	for n_outer in 1000 100000 1000000; do
		for n_inner in 10000 1000000; do
			for per_key in 1 10; do
				sql -c "CALL joins.point($n_outer, $n_inner, $per_key, 100)"
			done
		done
		sql -c "CALL joins.point($n_outer, 1000000, 1, 10)"
		progress "grid: $n_outer outer rows are done"
	done
	echo
	echo "What the planner chooses, in milliseconds"
	echo
	table "SELECT * FROM joins.regrets"
fi
echo "Load average when it began: $load_before (of other programs; they spoil figures)."
