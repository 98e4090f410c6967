#!/bin/bash
#
# long_list.sh: one key of ten million rows
#
# With btree and pmhash on the key: CREATE INDEX, EXISTS and LIMIT by = and by = ANY
# (median of 100), how long a query over all rows goes on after its cancel (longest of
# 10), a query over all rows of which one in a hundred is dead, once and once more, an
# insert that comes by meanwhile (median and longest of all), and VACUUM, once of a
# quarter of the table and once of all of it.
#
#   long_list.sh BINDIR [ROWS [METHOD...]]
#
# BINDIR: programs of a server that has pmhash installed.  10,000,000 rows and both
# methods by default.  All else is done in a temporary directory and removed at the end.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"

[ $# -ge 1 ] && [ -x "$1/postgres" ] || die "usage: $0 BINDIR [ROWS [METHOD...]]"
bindir=$1
rows=${2:-10000000}
shift $(($# < 2 ? $# : 2))
methods=${*:-btree pmhash}

make_work_directory long_list $((rows / 5 + 2000000)) cluster
cluster_create "$work/cluster" "$bindir" pmhash
cluster_start
sql -c 'CREATE EXTENSION pmhash'
sql >/dev/null <<-SQL
	CREATE PROCEDURE many(query text, n int, INOUT ms float8) LANGUAGE plpgsql AS \$\$
	DECLARE
		took float8[];
		began timestamptz;
	BEGIN
		FOR i IN 1..n LOOP
			began := clock_timestamp();
			EXECUTE query;
			took := took || 1000 * extract(epoch FROM clock_timestamp() - began)::float8;
		END LOOP;
		ms := (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t) FROM unnest(took) t);
	END \$\$;
SQL

figure()					# name unit value
{
	printf '| %-6s | %-52s | %10s %s |\n' "$method" "$1" "$3" "$2"
}

# Milliseconds that a query takes, the median of 100 times
median()					# name query
{
	figure "$1" ms "$(sql -c 'SET enable_seqscan = off' -c "CALL many(\$q\$$2\$q\$, 100, 0)" | awk '{ printf "%.3f", $1 }')"
}

seconds()					# sql...
{
	local start

	start=$(now)
	sql "$@" >/dev/null
	elapsed "$start" "$(now)"
}

# Look through all rows, with inserts of the same key beside it.
look_through()					# name
{
	local took

	echo "INSERT INTO l VALUES (1, 0);" | as_account tee "$work/cluster/insert.sql" >/dev/null
	as_account "$bindir/pgbench" -n -c 1 -T 600 -R 200 --log --log-prefix="$work/cluster/insert" \
		-f "$work/cluster/insert.sql" >/dev/null 2>&1 &
	took=$(seconds -c 'SET enable_seqscan = off' -c 'SET enable_bitmapscan = off' \
		-c 'SELECT count(v) FROM l WHERE k = 1')
	sql -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'" >/dev/null
	wait $! || true
	figure "$1" s "$took"
	figure "$1: an insert meanwhile, median" ms \
		"$(cat "$work"/cluster/insert.[0-9]* | awk '{ print $3 - $7 }' | sort -n | awk '{ a[NR] = $1 } END { printf "%.3f", a[int((NR + 1) / 2)] / 1000 }')"
	figure "$1: an insert meanwhile, longest" ms \
		"$(cat "$work"/cluster/insert.[0-9]* | awk '{ print $3 - $7 }' | sort -n | awk '{ a[NR] = $1 } END { printf "%.3f", a[NR] / 1000 }')"
	rm -f "$work"/cluster/insert.[0-9]*
}

measure()
{
	sql >/dev/null <<-SQL
		DROP TABLE IF EXISTS l;
		CREATE TABLE l (k int, v int);
		INSERT INTO l SELECT 1, i FROM generate_series(1, $rows) i;
		VACUUM ANALYZE l;
		CHECKPOINT;
	SQL
	figure 'CREATE INDEX' s "$(seconds -c "CREATE INDEX l_k ON l USING $method (k)")"
	median 'EXISTS, k = 1' 'SELECT EXISTS (SELECT v FROM l WHERE k = 1)'
	median 'EXISTS, k = ANY' "SELECT EXISTS (SELECT v FROM l WHERE k = ANY ('{1,2,3}'))"
	median 'LIMIT 10, k = ANY' "SELECT v FROM l WHERE k = ANY ('{1,2,3}') LIMIT 10"
	figure 'count(v), k = ANY: goes on after its cancel, longest' ms "$(cancel_latency)"
	sql -c "DELETE FROM l WHERE v % 100 = 7" -c "SELECT pg_sleep(1)" >/dev/null
	look_through 'all rows, one in a hundred dead'
	look_through 'all rows, once more'
	sql -c "DELETE FROM l WHERE v % 20 = 3 AND v <= $rows / 4" >/dev/null
	figure 'VACUUM, one in 20 dead of a quarter' s "$(seconds -c 'VACUUM (TRUNCATE OFF) l')"
	sql -c "DELETE FROM l WHERE v % 20 = 13" >/dev/null
	figure 'VACUUM, one in 20 dead of all' s "$(seconds -c 'VACUUM (TRUNCATE OFF) l')"
}

# The longest of ten: from the timeout of 50 ms to the error
cancel_latency()
{
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		sql <<-SQL 2>/dev/null || true
			\\set ON_ERROR_STOP 0
			SET enable_seqscan = off;
			SET max_parallel_workers_per_gather = 0;
			SET statement_timeout = 50;
			SELECT extract(epoch FROM clock_timestamp()) AS began \\gset
			SELECT count(v) FROM l WHERE k = ANY ('{1,2,3}');
			SET statement_timeout = 0;
			SELECT 'after ' || 1000 * (extract(epoch FROM clock_timestamp()) - :began) - 50;
		SQL
	done | awk '/^after / && $2 > most { most = $2 } END { printf "%.1f", most }'
}

echo
echo "| index  | $rows rows of one key | |"
echo "|---|---|---:|"
for method in $methods; do
	measure
done
