#!/bin/bash
#
# join.sh: batched index joins beside nested loops and hash joins
#
# A table of random keys is joined with keys that are all there, and with keys of
# which none is, by nested loops over btree, hash and pmhash, by a hash join and by
# pmhash's own join: nanoseconds per key, less what reading the keys takes; medians.
# Everything is cached.  With --grid, too: what the planner chooses by itself, beside
# each other way, at many sizes, and with nothing cached; join.csv, join.md and join.png
# in the results directory.  An answer that differs from others ends the run with exit
# status 1.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --rows N         of the table (default 10000000, the most)
		  --probes N       keys to be joined with it (default 1000000)
		  --rounds R       of each way (default 3)
		  --grid           what the planner chooses, as well
		  --only-grid      no more than that
		  --results DIR    where the report of the grid goes (default bench/results)
		  --help           this text
	USAGE
}

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"
. "$tree/bench/lib/report.sh"

# Three tables of 580 MB; and what a sequential scan reads is kept up to a quarter of this.
shared_buffers_most=4096
rows=10000000
probes=1000000
rounds=3
grid=false
only_grid=false
results=$tree/bench/results
read_options "rows probes rounds results" "grid only-grid" "$@"
need_numbers rows probes rounds
! $only_grid || grid=true
[ "$rows" -le 10000000 ] || die "--rows must be 10000000 at most"
[ "$probes" -ge 100 ] || die "--probes must be 100 at least"

# Index the tables by a method, and have them cached.  Not the ten values by hash: its
# chains of pages take a time in proportion to the square of the rows.  (And a hash index
# has no = ANY of its own.)
index_by()					# method
{
	sql <<-SQL
		DROP INDEX IF EXISTS joins.big_k, joins.many_k, joins.ten_k;
		CREATE INDEX big_k ON joins.big USING $1 (k);
		CREATE INDEX many_k ON joins.many USING $1 (k);
		$([ "$1" = hash ] || echo "CREATE INDEX ten_k ON joins.ten USING $1 (k);")
		ANALYZE joins.big;
		SELECT count(pad) FROM joins.big \g /dev/null
		SELECT count(pad) FROM joins.many \g /dev/null
		SELECT count(pad) FROM joins.ten \g /dev/null
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

# Ways of joining beside each other: the figures of README.md.
take_figures()
{
	local r wrong

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
	echo "Joins with $rows rows, $probes keys (a tenth for IN, = ANY and 10 rows a key), nanoseconds per key"
	echo "(LIMIT 1: of the statement; all rows of a value: per row), medians of $rounds rounds; $(nproc) cores, shared_buffers $(sql -c 'SHOW shared_buffers')."
	echo
	table "SELECT * FROM joins.report"
}

# ---- the grid ----

# kind:outer:inner:per_key:hits:workers
small_points="rows:1:1000:1:100:0 rows:1:1000000:1:100:0 rows:1000:1000:1:100:0
	rows:1000:10000:1:100:0 rows:1000:10000:10:100:0 rows:100:1000000:1000:100:0
	rows:1000:1000000:1:0:0 rows:1000:1000000:1:100:0 rows:1000:1000000:10:100:0
	keys:1000:10000:1:100:0 keys:1000:1000000:1:100:0 anti:1000:10000:1:0:0
	anti:1000:1000000:10:100:0 rows:100000:1000:1:100:0 rows:100000:10000:1:100:0
	rows:100000:10000:10:100:0 rows:100000:100000:1:100:0 rows:100000:1000000:1:0:0
	rows:100000:1000000:1:10:0 rows:100000:1000000:1:100:0 rows:100000:1000000:10:100:0
	rows:10000:10000:10:100:0 rows:10000:300000:1:100:0 rows:30000:30000:1:100:0
	rows:30000:300000:10:100:0 rows:10000:300000:30:100:0 rows:300000:300000:1:100:0
	rows:300000:1000000:1:100:0 rows:300000:10000:10:100:0
	rows:1000:1000000:1000:100:0 left:100000:1000000:10:100:0 keys:100000:10000:1:100:0
	keys:100000:1000000:1:100:0 anti:100000:1000000:1:50:0 anti:100000:1000000:10:10:0
	rows:1000000:10000:1:100:0 rows:1000000:10000:10:100:0 rows:1000000:1000000:1:10:0
	rows:1000000:1000000:1:100:0 anti:1000000:1000000:1:0:0 keys:1000000:1000000:1:100:0
	rows:100000:1000000:1:100:2 rows:1000000:10000:1:100:2 rows:1000000:1000000:1:100:2
	left:100000:1000000:10:100:2"
large_points="rows:1:10000000:1:100:0 rows:1000:10000000:1:100:0 rows:100000:10000000:1:10:0
	rows:100000:10000000:1:100:0 rows:1000:10000000:1000:100:0 rows:1000000:10000000:1:10:0
	rows:1000000:10000000:1:100:0 anti:1000000:10000000:1:0:0 rows:10000000:10000:1:100:0
	rows:10000000:1000000:1:100:0 rows:10000000:10000000:1:100:0 rows:1000000:10000000:1:100:2"
cold_points="rows:1000:1000000:1:100:0 rows:10000:1000000:1:100:0 rows:100000:1000000:1:100:0
	rows:100000:1000000:1:0:0 rows:10000:1000000:10:100:0"

# The inner tables that points need.
make_inner_tables()				# point...
{
	local inner per_key

	printf '%s\n' "$@" | cut -d : -f 3,4 | sort -u | while IFS=: read -r inner per_key; do
		sql -c "CALL joins.make_inner($inner, $per_key)" </dev/null
	done
	sql -c 'VACUUM ANALYZE'
}

cached_points()					# point...
{
	local kind n_outer n_inner per_key hits workers point

	for point in "$@"; do
		IFS=: read -r kind n_outer n_inner per_key hits workers <<<"$point"
		sql -c "CALL joins.all_ways('$kind', $workers, $n_outer, $n_inner, $per_key, $hits, $rounds)"
		progress "grid: $point"
	done
}

# Start the server anew, and have no page of the tables and of the pool cached by it or by
# the kernel.
cool_down()						# file...
{
	local file pool

	pool=$(sql -c 'SELECT file FROM pmhash.files() WHERE file IS NOT NULL')
	as_account "$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -m fast -w stop >/dev/null
	for file in $pool "${@/#/$cluster_dir/data/}"; do
		as_account dd of="$file" conv=notrunc,fdatasync oflag=nocache \
			count=0 status=none </dev/null
	done
	cluster_start
}

# The same, nothing cached, but for the outer table and the catalogs.
cold_points()					# point...
{
	local kind n_outer n_inner per_key hits workers point files way r

	for point in "$@"; do
		IFS=: read -r kind n_outer n_inner per_key hits workers <<<"$point"
		sql -c "CALL joins.make_outer($n_outer, $n_inner / $per_key, $hits)" -c CHECKPOINT
		files=$(sql -c "SELECT pg_relation_filepath(oid) FROM pg_class
			WHERE relname ~ '^i_${n_inner}_${per_key}(_k[bh]_idx)?\$'")
		for ((r = 1; r <= rounds; r++)); do
			for way in chosen 'hash join' 'merge join' 'nested loop, btree' 'nested loop, hash' \
				'nested loop, pmhash' memoize 'pmhash join'; do
				# files: words
				cool_down $files
				sql -c 'SELECT count(*) FROM joins.o' >/dev/null \
					-c "CALL joins.one_way('$kind', false, $workers, $n_outer, $n_inner, $per_key, $hits, '$way')"
			done
		done
		progress "grid, not cached: $point"
	done
}

take_grid()
{
	run_sql join_grid.sql
	make_inner_tables $small_points $cold_points
	cached_points $small_points
	cold_points $cold_points
	if [ "$rows" -eq 10000000 ]; then
		make_inner_tables $large_points
		cached_points $large_points
	fi
	wrong=$(sql -c "SELECT count(*) FROM (SELECT FROM joins.grid
		GROUP BY kind, outer_rows, inner_rows, per_key, hits HAVING count(DISTINCT answer) > 1) w")
	[ "$wrong" = 0 ] || die "answers differ in the grid"
	machine_lines >"$results/machine_join.csv"
	sql -c "COPY (SELECT * FROM joins.regrets ORDER BY kind DESC, cached DESC, workers, outer_rows,
		inner_rows, per_key, hits) TO STDOUT (FORMAT csv, HEADER)" >"$results/join.csv"
	make_report
	cat "$results/join.md"
}

make_results
prepare "$(! $grid || echo python3-matplotlib)" join $((rows / 5 + 2000000)) cluster
start_cluster
$only_grid || take_figures
if $grid; then take_grid; fi
print_load
