#!/bin/bash
#
# queue.sh: job queues and hot keys, where dead entries pile up
#
# Clients take a row that is ready out of a table (FOR UPDATE SKIP LOCKED) and
# put another one in, with btree, hash and pmhash on the status, synchronous_commit
# on and off, autovacuum on and off.  Prints for each: transactions a second, in
# the first and in the last fifth of the time and in all; how many TIDs a look-up
# has read; rows, and entries of the pmhash index, when it is over and the queue
# has been looked at a few times more.
#
# Then one row goes to and fro between three keys, found by its number, and each
# key is looked up: TIDs read and the time, of the first look-up and the median.
#
#   queue.sh BINDIR [SECONDS [CLIENTS [FLIPS [METHOD...]]]]
#
# BINDIR: programs of a server that has pmhash installed.  120 seconds each, 16
# clients, 200,000 flips (0: leave that part out) and all methods by default.  For a
# part of the queues: QUEUE_AUTOVACUUM=off, QUEUE_SYNC=on (synchronous_commit); QUEUE_WAL=on
# makes pmhash a logged index.  All else is done in a temporary directory and removed at the end.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"

[ $# -ge 1 ] && [ -x "$1/postgres" ] ||
	die "usage: $0 BINDIR [SECONDS [CLIENTS [FLIPS [METHOD...]]]]"
bindir=$1
seconds=${2:-120}
clients=${3:-16}
flips=${4:-200000}
shift $(($# < 4 ? $# : 4))
methods=${*:-btree hash pmhash}
ready=2000

make_work_directory queue 2000000 cluster
cluster_create "$work/cluster" "$bindir" pmhash
as_account tee -a "$work/cluster/data/postgresql.conf" >/dev/null <<-CONF
	autovacuum_naptime = 10
	max_connections = $((clients + 20))
	pmhash.wal = ${QUEUE_WAL:-on}
CONF
cluster_start
sql -c 'CREATE EXTENSION pmhash'

as_account tee "$work/cluster/pop.sql" >/dev/null <<-SQL
	DELETE FROM job WHERE ctid = (SELECT ctid FROM job WHERE status = 1 LIMIT 1 FOR UPDATE SKIP LOCKED);
	INSERT INTO job (status, payload) VALUES (1, 'what is to be done');
SQL

# A table with rows that are ready, and all else in the same state each time
fill()						# method
{
	sql >/dev/null <<-SQL
		DROP TABLE IF EXISTS job;
		CREATE TABLE job (status int, payload text);
		CREATE INDEX job_status ON job USING $1 (status);
		INSERT INTO job SELECT 1, 'what is to be done' FROM generate_series(1, $ready);
		VACUUM ANALYZE job;
		CHECKPOINT;
		SELECT pg_stat_reset();
	SQL
}

# TPS of the first and the last fifth, from pgbench's lines of progress
over_time()
{
	awk '/^progress:/ { tps[++n] = $4 }
		END {
			fifth = int((n + 4) / 5)
			for (i = 1; i <= fifth; i++) { first += tps[i]; last += tps[n - i + 1] }
			for (i = 1; i <= n; i++) all += tps[i]
			printf "%d %d %d", first / fifth, last / fifth, all / n
		}' "$work/cluster/pgbench.log"
}

# TIDs a look-up of the queue has read
tids_read()
{
	sql -c "SELECT pg_sleep(1)" >/dev/null
	sql -c "SELECT round(idx_tup_read::numeric / greatest(idx_scan, 1), 1)
		FROM pg_stat_user_indexes WHERE indexrelname = 'job_status'"
}

# Entries in the end, when what is done is flushed and looked at once more
entries()					# method
{
	[ "$1" = pmhash ] || { echo -; return; }
	for _ in 1 2 3; do
		sql >/dev/null <<-SQL
			SET enable_seqscan = off;
			SET enable_bitmapscan = off;
			SELECT payload FROM job WHERE status = 1 OFFSET 1000000;
			SELECT pg_sleep(0.3);
		SQL
	done
	sql -c "SELECT entries FROM pmhash.stats('job_status')"
}

one_queue()					# method synchronous_commit autovacuum
{
	sql -c "ALTER SYSTEM SET synchronous_commit = $2" -c "ALTER SYSTEM SET autovacuum = $3" \
		-c 'SELECT pg_reload_conf()' >/dev/null
	fill "$1"
	PGOPTIONS='-c enable_seqscan=off -c enable_bitmapscan=off' as_account "$bindir/pgbench" \
		-n -M prepared -c "$clients" -j 2 -T "$seconds" -P 1 \
		-f "$work/cluster/pop.sql" >"$work/cluster/pgbench.log" 2>&1 ||
		{ cat "$work/cluster/pgbench.log" >&2; die "pgbench failed"; }
	read -r first last all <<<"$(over_time)"
	printf '| %-6s | %-3s | %-3s | %6d | %6d | %6d | %8s | %5s | %7s |\n' \
		"$1" "$2" "$3" "$first" "$last" "$all" "$(tids_read)" \
		"$(sql -c 'SELECT count(*) FROM job')" "$(entries "$1")"
}

echo
echo "| index  | sync. commit | autovacuum | first TPS | last TPS | TPS | TIDs a look-up | rows | entries |"
echo "|---|---|---|---:|---:|---:|---:|---:|---:|"
for autovacuum in ${QUEUE_AUTOVACUUM-off on}; do
	for synchronous_commit in ${QUEUE_SYNC-on off}; do
		for method in $methods; do
			one_queue "$method" "$synchronous_commit" "$autovacuum"
		done
	done
done

[ "$flips" -gt 0 ] || exit 0
sql -c "ALTER SYSTEM RESET synchronous_commit" -c "ALTER SYSTEM SET autovacuum = off" \
	-c 'SELECT pg_reload_conf()' >/dev/null
sql >/dev/null <<-SQL
	CREATE TABLE flip (id int PRIMARY KEY, k int);
	CREATE FUNCTION flip(flips int) RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN
		FOR i IN 1..flips LOOP
			UPDATE flip SET k = i % 3 WHERE id = 1;
		END LOOP;
	END \$\$;
	CREATE PROCEDURE flips(flips int) LANGUAGE plpgsql AS \$\$ BEGIN
		FOR i IN 1..flips LOOP
			UPDATE flip SET k = i % 3 WHERE id = 1;
			COMMIT;
		END LOOP;
	END \$\$;
	CREATE TABLE looked_up (n int, ms float8, tids int8);
	CREATE PROCEDURE look_up(n int) LANGUAGE plpgsql AS \$\$
	DECLARE
		began timestamptz;
		tids int8;
	BEGIN
		SET LOCAL enable_seqscan = off;
		SET LOCAL enable_bitmapscan = off;
		tids := pg_stat_get_xact_tuples_returned('flip_k'::regclass);
		began := clock_timestamp();
		PERFORM id FROM flip WHERE k = n % 3;
		INSERT INTO looked_up VALUES (n, 1000 * extract(epoch FROM clock_timestamp() - began),
			pg_stat_get_xact_tuples_returned('flip_k'::regclass) - tids);
		COMMIT;
	END \$\$;
SQL
echo
echo "| index  | first look-up ms | TIDs read | median of 300 ms | TIDs read | entries |"
echo "|---|---:|---:|---:|---:|---:|"
for method in $methods; do
	sql -c 'DROP INDEX IF EXISTS flip_k' -c 'TRUNCATE flip, looked_up' -c 'INSERT INTO flip VALUES (1, 0)' \
		-c "CREATE INDEX flip_k ON flip USING $method (k)" -c "CALL flips($flips)" >/dev/null
	for n in $(seq 1 300); do echo "CALL look_up($n);"; done | sql >/dev/null
	count=-
	[ "$method" != pmhash ] || count=$(sql -c "SELECT entries FROM pmhash.stats('flip_k')")
	sql -F ' | ' -c "SELECT '| $method', (array_agg(round(ms::numeric, 3) ORDER BY n))[1], (array_agg(tids ORDER BY n))[1],
		round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 3),
		percentile_disc(0.5) WITHIN GROUP (ORDER BY tids), '$count |' FROM looked_up"
done
