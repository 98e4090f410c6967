#!/bin/bash
#
# oltp.sh: what an index costs a transaction of one row, in processor time
#
# One session inserts rows into a small table, each in a transaction of its own, then
# changes a key of as many, then deletes as many, with no index, with btree, hash and
# pmhash in turn, the last as it is by default and with wal = off ("unlogged"); with
# one index and with five, with prepared statements and without.
# synchronous_commit is off and the table is in shared buffers, so nothing is waited
# for.  The figure is the processor time of the backend (bench/lib/measure.sql); the
# index's part is that less the time with no index, within a round.  Prints medians
# over the rounds as a table.  Ends with an error if a look-up by an index differs from
# a sequential scan at the end.
#
#   oltp.sh BINDIR [STATEMENTS [ROUNDS]]
#
# BINDIR: programs of a server that has pmhash installed.  STATEMENTS: of each kind in
# each run, 5000 by default; the table has eight times as many rows.  ROUNDS: 5 by
# default.  Everything else is done in a temporary directory and removed at the end.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"

[ $# -ge 1 ] && [ -x "$1/postgres" ] ||
	die "usage: $0 BINDIR [STATEMENTS [ROUNDS]]"
bindir=$1
statements=${2:-5000}
rounds=${3:-5}
case $statements$rounds in
	*[!0-9]*) die "STATEMENTS and ROUNDS are numbers" ;;
esac
[ "$statements" -ge 100 ] && [ "$rounds" -ge 1 ] || die "at least 100 statements and 1 round"
warm=$((statements / 10))
methods="none btree hash pmhash unlogged"

make_work_directory oltp 1000000 cluster
cluster_create "$work/cluster" "$bindir" pmhash
cluster_start
run_lib measure.sql
sql -c 'CREATE EXTENSION pmhash' -c 'ALTER SYSTEM SET synchronous_commit = off' \
	-c 'SELECT pg_reload_conf()' >/dev/null

make_table()				# method indexes
{
	local using="USING $1" with= column

	[ "$1" != unlogged ] || { using='USING pmhash' with='WITH (wal = off)'; }
	sql <<-SQL
		DROP TABLE IF EXISTS account;
		CREATE TABLE account (k1 int4, k2 int4, k3 int4, k4 int4, k5 int4, v int4);
		INSERT INTO account
			SELECT h, h + 1, h + 2, h + 3, h + 4, i
			FROM (SELECT i, hashint4(i) / 2 AS h FROM generate_series(1, 8 * $statements) i) s;
	SQL
	if [ "$1" != none ]; then
		for ((column = 1; column <= $2; column++)); do
			sql -c "CREATE INDEX account_$column ON account $using (k$column) $with"
		done
	fi
	sql -c 'VACUUM ANALYZE account' -c CHECKPOINT
}

# Statements of one kind, one a line, for other rows than those of the other kinds:
# rows are found by their TIDs, so that nothing is looked up in an index.
write_statements()			# kind prepared number seed
{
	local call

	case $1-$2 in
		insert-no) call="'INSERT INTO account VALUES (%s, %s, %s, %s, %s, %s);', h, h + 1, h + 2, h + 3, h + 4, i" ;;
		insert-yes) call="'EXECUTE an_insert (%s);', h" ;;
		update-no) call="'UPDATE account SET k1 = %s WHERE ctid = ''%s'';', h, c" ;;
		update-yes) call="'EXECUTE an_update (%s, ''%s'');', h, c" ;;
		delete-no) call="'DELETE FROM account WHERE ctid = ''%s'';', c" ;;
		delete-yes) call="'EXECUTE a_delete (''%s'');', c" ;;
	esac
	sql -c "SELECT format($call)
		FROM (SELECT hashint4($4 + v) / 2 AS h, v + $4 AS i, ctid AS c
			FROM account WHERE v % 4 = $4 % 4 ORDER BY hashint4extended(v, $4) LIMIT $3) s"
}

# One session: each kind with some statements before, for caches and plans.
write_script()				# prepared
{
	local kind seed=100000001 all

	cat <<-'SQL'
		PREPARE an_insert (int4) AS INSERT INTO account VALUES ($1, $1 + 1, $1 + 2, $1 + 3, $1 + 4, 0);
		PREPARE an_update (int4, tid) AS UPDATE account SET k1 = $1 WHERE ctid = $2;
		PREPARE a_delete (tid) AS DELETE FROM account WHERE ctid = $1;
	SQL
	for kind in insert update delete; do
		all=$(write_statements "$kind" "$1" "$((warm + statements))" "$seed")
		[ "$(wc -l <<<"$all")" -ge "$statements" ] || die "too few rows for $kind"
		head -n "$warm" <<<"$all"
		echo 'SELECT bench.processor_time() AS before \gset'
		tail -n "+$((warm + 1))" <<<"$all"
		echo "SELECT '$kind', (bench.processor_time() - :before) * 1e6 / $(($(wc -l <<<"$all") - warm));"
		seed=$((seed + 1))
	done
}

# Each index must have every row of the table, and no other.
check_answers()				# method indexes
{
	local column

	[ "$1" != none ] || return 0
	for ((column = 1; column <= $2; column++)); do
		sql <<-SQL
			SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
			SELECT bench.confirm('$1', 'rows of $1 $2 $column $3',
				(SELECT format('%s %s', count(*), sum(v)) FROM account WHERE k$column IS NOT NULL));
			SELECT bench.require_plan('SELECT v FROM account WHERE k$column = 1', 'account_$column');
			SELECT bench.confirm('index', 'rows of $1 $2 $column $3',
				(SELECT format('%s %s', count(*), sum(f.v)) FROM (SELECT DISTINCT k$column AS k FROM account OFFSET 0) o,
					LATERAL (SELECT v FROM account a WHERE a.k$column = o.k OFFSET 0) f));
		SQL
	done >/dev/null
}

: >"$work/figures"
for ((round = 1; round <= rounds; round++)); do
	for indexes in 1 5; do
		for prepared in no yes; do
			for method in $methods; do
				make_table "$method" "$indexes"
				write_script "$prepared" >"$work/script"
				sql <"$work/script" | awk -F'|' -v key="$round $indexes $prepared $method" '{ print key, $1, $2 }' \
					>>"$work/figures"
				check_answers "$method" "$indexes" "$round $prepared"
			done
		done
	done
done

[ "$(wc -l <"$work/figures")" -eq $((rounds * 2 * 2 * $(wc -w <<<"$methods") * 3)) ] ||
	die "a figure is missing"

# Medians of each method's time, and of its difference to none within a round.
awk -v rounds="$rounds" '
	function median(n, i, j, t)		# of list[1 .. n]
	{
		for (i = 2; i <= n; i++)
			for (j = i; j > 1 && list[j - 1] > list[j]; j--)
			{
				t = list[j]; list[j] = list[j - 1]; list[j - 1] = t
			}
		return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
	}
	function total(method, r)
	{
		for (r = 1; r <= rounds; r++)
			list[r] = time[r, what, method]
		return median(rounds)
	}
	function part(method, r)
	{
		for (r = 1; r <= rounds; r++)
			list[r] = time[r, what, method] - time[r, what, "none"]
		return median(rounds)
	}
	{ time[$1, $5 " " $2 " " $3, $4] = $6; if (!(seen[$5 " " $2 " " $3]++)) order[++kinds] = $5 " " $2 " " $3 }
	END {
		print "| statement | indexes | prepared | none us | btree us | hash us | pmhash us | unlogged us | index: btree | hash | pmhash | unlogged | of btree | unlogged |"
		print "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
		for (k = 1; k <= kinds; k++)
		{
			what = order[k]
			split(what, w, " ")
			b = part("btree"); h = part("hash"); p = part("pmhash"); l = part("unlogged")
			printf "| %s | %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f | %.2f | %.2f | %s | %s |\n", w[1], w[2], w[3],
				total("none"), total("btree"), total("hash"), total("pmhash"), total("unlogged"), b, h, p, l,
				(b > 0.5 ? sprintf("%.2f", p / b) : "-"), (b > 0.5 ? sprintf("%.2f", l / b) : "-")
		}
	}' "$work/figures"
