#!/bin/bash
#
# partitions.sh: a table of many partitions with an index each, and a server that
# may open few files.
#
# For pmhash and for btree, one after the other: makes the index on all partitions,
# writes to all in one statement, plans and runs a query over all in a new session,
# and once more in the same one, vacuums, has many clients work on single partitions,
# stops and starts the server and drops the table.  Prints seconds, memory of a
# session and descriptors beside each other; exit status 1 if anything has failed, an
# answer is wrong, or pmhash is not within 1.5 times of btree.
#
# Memory is taken three times: what is resident (each page of shared buffers and of
# index files that the session has touched counts whole), the session's share of that
# (PSS: a page of two processes counts half in each), and what is its own.
#
# With --figures the two methods can be measured one by one: figures are added to that
# file, and the table is printed when it has both.
#
# Builds pmhash; runs as root (the server as "postgres") or as a user with sudo.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --side N         N * N partitions (default 100)
		  --clients N      connections at once (default 300)
		  --descriptors N  ulimit -n of the server (default 1024)
		  --method METHOD  pmhash or btree alone
		  --figures FILE   where figures are kept, added to those that are there
		  --help           this text
	USAGE
}

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"

side=100
clients=300
descriptors=1024
method=
figures=
factor=1.5
read_options "side clients descriptors method figures" "" "$@"
need_numbers side clients descriptors
methods=${method:-pmhash btree}
partitions=$((side * side))
rows=$((partitions * 5))

note()						# what value
{
	echo "$method $1 $2" >>"${figures:-$work/result}"
}

# Run SQL in a session of its own; note how long the statement took and what memory
# the session has then.
timed()						# what settings statement
{
	local start pid out

	start=$(now)
	out=$(sql <<-SQL
		$2
		SELECT extract(epoch FROM clock_timestamp()) AS began \\gset
		$3 \\g $work/answer
		SELECT 'took ' || extract(epoch FROM clock_timestamp()) - :began;
		SELECT pg_backend_pid() AS pid \\gset
		\\setenv BACKEND :pid
		\\! cat /proc/\$BACKEND/status /proc/\$BACKEND/smaps_rollup; ls /proc/\$BACKEND/fd | wc -l
	SQL
	) || die "$method, $1 has failed"
	note "$1" "$(awk '/^took / { print $2 }' <<<"$out")"
	note "$1:MB" "$(awk '/^Rss(Anon|File|Shmem):/ { kb += $2 } END { print kb / 1024 }' <<<"$out")"
	note "$1:share-MB" "$(awk '/^Pss:/ { print $2 / 1024 }' <<<"$out")"
	note "$1:own-MB" "$(awk '/^RssAnon:/ { print $2 / 1024 }' <<<"$out")"
	note "$1:descriptors" "$(tail -n 1 <<<"$out")"
	progress "$method: $1 ($(elapsed "$start" "$(now)") s)"
}

answer_is()					# wanted
{
	[ "$(cat "$work/answer")" = "$1" ] || die "$method: the answer is $(cat "$work/answer"), it should be $1"
}

make_table()
{
	sql >/dev/null <<-SQL
		CREATE TABLE p (k int, v int) PARTITION BY HASH (k);
		DO \$\$ BEGIN
			FOR i IN 0 .. $side - 1 LOOP
				EXECUTE format('CREATE TABLE p_%s PARTITION OF p FOR VALUES WITH (MODULUS $side, REMAINDER %s) PARTITION BY HASH (v)', i, i);
				FOR j IN 0 .. $side - 1 LOOP
					EXECUTE format('CREATE TABLE p_%s_%s PARTITION OF p_%s FOR VALUES WITH (MODULUS $side, REMAINDER %s)', i, j, i, j);
				END LOOP;
				COMMIT;
			END LOOP;
		END \$\$;
	SQL
}

# Many sessions, each on partitions of its own choice.
run_clients()
{
	local start

	start=$(now)
	as_account "$cluster_bindir/pgbench" -n -c "$clients" -j 2 -t 20 -f "$work/scripts/clients.pgbench" \
		>"$work/clients.log" 2>&1 || die "$method: clients have failed: $(tail -n 3 "$work/clients.log")"
	note clients "$(elapsed "$start" "$(now)")"
	progress "$method: $clients clients"
}

restart()
{
	local start

	start=$(now)
	as_account "$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -m fast -w -t 600 stop >/dev/null
	note shutdown "$(elapsed "$start" "$(now)")"
	start=$(now)
	start_limited
	note start "$(elapsed "$start" "$(now)")"
	progress "$method: stopped and started"
}

start_limited()
{
	as_account bash -c "ulimit -n $descriptors && exec \"\$@\"" - \
		"$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -l "$cluster_dir/log" -w -t 300 start >/dev/null ||
		die "the server does not start: $(tail -n 3 "$cluster_dir/log")"
}

measure()
{
	local all='SET enable_partition_pruning = off; SET enable_seqscan = off;'
	local count='SELECT count(*) FROM p WHERE k = 5'

	make_table
	sql -c CHECKPOINT
	timed create '' "CREATE INDEX p_k ON p USING $method (k)"
	timed insert '' "INSERT INTO p SELECT i, (i::bigint * 7919) % 1000003 FROM generate_series(1, $rows) AS i"
	timed plan "$all" "EXPLAIN (COSTS OFF) $count"
	[ "$(grep -c 'p_[0-9_]*_k_idx' "$work/answer")" -ge "$partitions" ] || die "$method: the plan leaves indexes out"
	timed query "$all" "$count"
	answer_is 1
	timed query-again "$all $count;" "$count"
	answer_is 1
	if [ "$method" = pmhash ]; then
		timed catalog '' "SELECT count(*) FILTER (WHERE state <> 'valid') FROM pmhash.indexes"
		answer_is 0
	else
		timed catalog '' "SELECT count(*) FILTER (WHERE pg_relation_size(indexrelid) < 0) FROM pg_index"
	fi
	sql -c "DELETE FROM p WHERE v % 7 = 0"
	timed vacuum '' 'VACUUM p'
	run_clients
	restart
	timed query-after-start "$all" "$count"
	timed drop '' 'DROP TABLE p'
}

report()
{
	echo
	echo "$partitions partitions with an index each, ulimit -n $descriptors, $clients clients; seconds."
	echo "MB: a session's resident memory afterwards, its share of it, and what is its own."
	echo
	awk -v factor="$factor" '
		!($2 in place) { place[$2] = ++n; name[n] = $2 }
		{ value[$1, $2] = $3 }
		END {
			printf "%-26s %12s %12s %8s\n", "", "pmhash", "btree", "ratio"
			for (i = 1; i <= n; i++) {
				a = value["pmhash", name[i]]
				b = value["btree", name[i]]
				ratio = b > 0 ? a / b : 0
				held = name[i] !~ /^start$|^catalog|:descriptors$/
				if (held && ratio > factor)
					bad = 1
				mark = (held && ratio > factor) ? " *" : ""
				printf "%-26s %12.3f %12.3f %8.2f%s\n", name[i], a, b, ratio, mark
			}
			if (bad)
				printf "\n* not within %s times of btree.\n", factor
			exit bad
		}' "${figures:-$work/result}"
}

has_both()
{
	[ "$(cut -d ' ' -f 1 "${figures:-$work/result}" | sort -u | wc -l)" = 2 ]
}

prepare "" partitions $((partitions * 200 + 1500000)) cluster scripts
as_account tee "$work/scripts/clients.pgbench" >/dev/null <<-SQL
	\\set k random(1, $rows)
	INSERT INTO p VALUES (:k, :k);
	SELECT count(*) FROM p WHERE k = :k AND v = :k;
SQL
progress "starting a cluster in $work"
cluster_create "$work/cluster" "$bindir" pmhash
as_account tee -a "$cluster_dir/data/postgresql.conf" >/dev/null <<-CONF
	max_connections = $((clients + 20))
	max_locks_per_transaction = 512
	max_parallel_workers_per_gather = 0
CONF
start_limited
sql -c "CREATE EXTENSION pmhash"
for method in $methods; do
	measure
done
! grep -E 'Too many open files|terminated by signal|could not rebuild|has been rebuilt' "$cluster_dir/log" ||
	die "the server has run short"
print_load
! has_both || report
