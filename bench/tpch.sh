#!/bin/bash
#
# tpch.sh: TPC-H's queries with foreign keys indexed by btree and by pmhash
#
# Primary keys are btree's in both cases.  Tables and queries come from DuckDB's dbgen,
# by packages of PyPI, into a scratch directory.  Everything is cached as far as it fits;
# each query runs several times, without parallel workers and with two; medians of the
# clock in milliseconds.  An answer that differs ends the run with exit status 1.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --scale N        1 is 6 million rows of lineitem (default 1)
		  --rounds R       of each query (default 3)
		  --only LIST      queries, as "q03 q13" (default all)
		  --plans          print the plans with pmhash, as well
		  --help           this text
	USAGE
}

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"

# One version: an extension fits one DuckDB.
duckdb_version=1.4.4
scale=1
rounds=3
only=
plans=false
read_options "scale rounds only" "plans" "$@"
need_numbers rounds
[[ $scale =~ ^[0-9.]*[1-9][0-9.]*$ ]] || die "--scale needs a number above zero"

make_data()
{
	as_account python3 -m venv "$work/venv"
	as_account "$work/venv/bin/pip" install -q --no-cache-dir "duckdb==$duckdb_version" \
		"duckdb-ext-tpch==$duckdb_version.*" || die "no DuckDB to be had from PyPI"
	as_account "$work/venv/bin/python" -B - "$scale" "$work/data" <"$tree/bench/tpch_data.py"
	progress "the data is there"
}

load_data()
{
	local table

	run_sql tpch.sql
	for table in region nation supplier customer part partsupp orders lineitem; do
		sql -c "COPY $table FROM STDIN (FORMAT csv)" <"$work/data/$table.csv"
		as_account rm "$work/data/$table.csv"
	done
	sql -c 'VACUUM (FREEZE, ANALYZE)' -c CHECKPOINT
	progress "the tables are there"
}

# All queries once, in this order, as many rounds.
run_queries()					# method
{
	local file name r workers

	sql -c "CALL tpch.index_by('$1')" -c ANALYZE -c 'CALL tpch.warm()' -c CHECKPOINT
	for ((r = 1; r <= rounds; r++)); do
		for workers in 0 2; do
			for file in "$work"/data/q*.sql; do
				name=$(basename "$file" .sql)
				[ -z "$only" ] || [[ " $only " == *" $name "* ]] || continue
				sql -v query="$(cat "$file")" <<-SQL
					SET max_parallel_workers_per_gather = $workers;
					SET statement_timeout = '10min';
					CALL tpch.take('$name', '$1', :'query');
				SQL
			done
		done
		progress "$1: round $r"
	done
}

prepare python3-venv tpch "$(awk -v s="$scale" 'BEGIN { printf "%d", 6000000 * s + 2000000 }')" cluster data
make_data
start_cluster
load_data
run_queries btree
run_queries pmhash

wrong=$(sql -c "SELECT string_agg(query, ', ') FROM
	(SELECT query FROM tpch.result GROUP BY query HAVING count(DISTINCT answer) > 1) w")
[ -z "$wrong" ] || die "answers differ: $wrong"
echo
echo "TPC-H at scale $scale, milliseconds, medians of $rounds rounds; $(nproc) cores, shared_buffers $(sql -c 'SHOW shared_buffers')"
echo
as_account "$cluster_bindir/psql" -X -q -P border=2 -P footer=off -c 'SELECT * FROM tpch.report'
echo
echo "Foreign keys' indexes after CREATE INDEX; goal: pmhash's no larger than btree's in all"
echo
as_account "$cluster_bindir/psql" -X -q -P border=2 -P footer=off -c 'SELECT * FROM tpch.sizes'
! $plans || sql -c "SELECT DISTINCT ON (query, workers) query || ', ' || workers || E' workers\n' || plan
	FROM tpch.result WHERE method = 'pmhash' ORDER BY query, workers"
print_load
