#!/bin/bash
#
# cold.sh: memory shorter than the index, and ample memory after a restart
#
# Three tables of the same random keys, with an index by btree, hash and pmhash, in one
# server in a memory cgroup (version 1 or 2), pmhash as it is by default.
#
# Short memory: the cgroup has the bytes of pmhash's index over each of --ratios, and what
# the processes take.  Read-ahead of the device is each of --ahead (KiB).  The caches are
# dropped, then each method's operations are run until memory is full, and measured:
# look-ups of one row, of none, a join by the index, and INSERTs of 100 rows.  Ample memory:
# the server is stopped, the caches are dropped, it starts, and 100,000 rows are looked up.
#
# And what the planner takes for a join with pmhash's table, beside each other way, with
# effective_cache_size as it is; in the first round.
#
# Writes cold.csv and cold.md into the results directory: medians of the rounds.  Root only.

set -euo pipefail

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --rows N         of each table (default 20000000)
		  --keys N         looked up, joined, inserted in a round (default 5000)
		  --rounds R       (default 3)
		  --ratios "R..."  tenths of the memory that the index takes (default "15 30")
		  --ahead "K..."   read-ahead of the device, KiB (default "128 2560")
		  --joins "N..."   keys of the joins that are planned (default "1000 30000 300000")
		  --results DIR    (default bench/results)
		  --help           this text
	USAGE
}

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"
. "$tree/bench/lib/report.sh"

rows=20000000
keys=5000
rounds=3
ratios="15 30"
ahead="128 2560"
joins="1000 30000 300000"
results=$tree/bench/results
methods="btree hash pmhash"
group=
queue=
queue_before=
read_options "rows keys rounds ratios ahead joins results" "" "$@"
need_numbers rows keys rounds
need_list ratios
need_list ahead
need_list joins
[ "$(id -u)" -eq 0 ] || die "needs root: it makes a cgroup, drops caches and sets the device's read-ahead"

# What the processes of the server take beside caches.
processes_mb=48

# ---- the cgroup ----

# A group of our own below the one that we are in.
make_group()
{
	local base own

	if [ -d /sys/fs/cgroup/memory ]; then
		base=/sys/fs/cgroup/memory
		own=$(awk -F: '$2 == "memory" { print $3 }' /proc/self/cgroup)
		limit_file=memory.limit_in_bytes
	else
		base=/sys/fs/cgroup
		own=
		echo +memory >"$base/cgroup.subtree_control"
		limit_file=memory.max
	fi
	[ -d "$base$own" ] || own=
	group=$base$own/pmhash-cold.$$
	mkdir "$group"
}

# Megabytes for all that is in the group.
limit_memory()					# MB
{
	echo $(($1 * 1048576)) >"$group/$limit_file"
}

undo()
{
	[ -z "$queue_before" ] || echo "$queue_before" >"$queue"
	cluster_stop
	[ -z "$group" ] || rmdir "$group" || true
}
stop_others=undo

start_in_group()
{
	# shellcheck disable=SC2016
	sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" \
		runuser -u "$(account)" -- "$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -l "$cluster_dir/log" \
		-w -t 120 start >/dev/null || die "the server does not start"
}

stop_server()
{
	as_account "$cluster_bindir/pg_ctl" -D "$cluster_dir/data" -m fast -w stop >/dev/null
}

drop_caches()
{
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# ---- the tables ----

make_tables()
{
	local method

	sql <<-SQL
		CREATE EXTENSION pmhash;
		CREATE TABLE result (ratio int, ahead int, method text, what text, value float8);
		CREATE FUNCTION key_of(n bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
			AS 'SELECT hashint8extended(n, 7)';
	SQL
	for method in $methods; do
		sql <<-SQL
			CREATE TABLE t_$method (k bigint, v int);
			INSERT INTO t_$method SELECT key_of(n), n FROM generate_series(1, $rows) n;
			CREATE INDEX i_$method ON t_$method USING $method (k);
			VACUUM (FREEZE, ANALYZE) t_$method;
		SQL
		progress "$method: the table is there"
	done
	sql <<-'SQL'
		CHECKPOINT;
		-- bytes that this process has had read from the device
		CREATE FUNCTION bytes_read() RETURNS bigint LANGUAGE sql
			AS $$ SELECT substring(pg_read_file('/proc/self/io') from 'read_bytes: (\d+)')::bigint $$;

		-- One by one; from the first key on, or of such that are not there.  Microseconds a key.
		CREATE FUNCTION look_up(method text, n int, most bigint, beyond bigint, OUT us float8, OUT kib float8)
		LANGUAGE plpgsql AS $$
		DECLARE
			began timestamptz := clock_timestamp();
			before bigint := bytes_read();
			found int;
		BEGIN
			FOR i IN 1 .. n LOOP
				EXECUTE format('SELECT v FROM t_%s WHERE k = $1', method) INTO found
					USING key_of(beyond + 1 + (random() * (most - 1))::bigint);
				IF (found IS NULL) <> (beyond > 0) THEN RAISE 'wrong answer'; END IF;
			END LOOP;
			us := extract(epoch FROM clock_timestamp() - began) * 1e6 / n;
			kib := (bytes_read() - before) / 1024.0 / n;
		END $$;
		CREATE FUNCTION join_keys(method text, n int, most bigint, OUT us float8)
		LANGUAGE plpgsql AS $$
		DECLARE
			began timestamptz;
			found bigint;
		BEGIN
			DROP TABLE IF EXISTS outer_keys;
			CREATE TEMP TABLE outer_keys AS
				SELECT key_of(1 + (random() * (most - 1))::bigint) AS k FROM generate_series(1, n);
			ANALYZE outer_keys;
			began := clock_timestamp();
			EXECUTE format('SELECT count(t.v) FROM outer_keys o JOIN t_%s t ON t.k = o.k', method) INTO found;
			us := extract(epoch FROM clock_timestamp() - began) * 1e6 / n;
			IF found <> n THEN RAISE 'wrong answer'; END IF;
		END $$;
		-- The hash join last: it reads the table, and so empties the memory.
		CREATE PROCEDURE plan_joins(ratio int, ahead int, n int, most bigint, memory text) LANGUAGE plpgsql AS $$
		DECLARE
			way text;
		BEGIN
			FOREACH way IN ARRAY ARRAY['nested loop', 'pmhash join', 'planned', 'hash join'] LOOP
				PERFORM set_config(name, (way = 'planned' OR way = ANY (ways))::text, false)
				FROM (VALUES ('enable_hashjoin', ARRAY['hash join']), ('enable_mergejoin', '{}'),
					('enable_memoize', '{}'), ('enable_material', '{}'), ('pmhash.enable_join', ARRAY['pmhash join']),
					('enable_nestloop', ARRAY['nested loop', 'pmhash join'])) AS s (name, ways);
				PERFORM set_config('effective_cache_size', memory, false), set_config('max_parallel_workers_per_gather', '0', false),
					set_config('cpu_index_tuple_cost', CASE way WHEN 'pmhash join' THEN '1000' ELSE '0.005' END, false);
				INSERT INTO result SELECT ratio, ahead, way, format('planned join: %s keys, ms', n), us * n / 1000
					FROM join_keys('pmhash', n, most);
			END LOOP;
		END $$;
		-- Milliseconds of each INSERT of 100 rows.
		CREATE PROCEDURE insert_rows(method text, n int, first bigint, INOUT ms float8[])
		LANGUAGE plpgsql AS $$
		DECLARE
			began timestamptz;
		BEGIN
			ms := '{}';
			FOR i IN 0 .. n - 1 LOOP
				began := clock_timestamp();
				EXECUTE format('INSERT INTO t_%s SELECT key_of(n), 0 FROM generate_series($1, $1 + 99) n', method)
					USING first + i * 100;
				COMMIT;
				ms := ms || extract(epoch FROM clock_timestamp() - began)::float8 * 1000;
			END LOOP;
		END $$;
	SQL
	index_mb=$(sql -c "SELECT pmhash.size('i_pmhash') / 1048576")
}

# The ways of btree and hash are nested loops.
plans="SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
	SET enable_memoize = off; SET enable_material = off; SET max_parallel_workers_per_gather = 0;
	SET synchronous_commit = off;"

next_new=$((4 * rows))			# keys that have not been inserted yet

# In memory that is full: first as many operations as fill it, unmeasured.
measure_short()					# ratio ahead method
{
	local fill=$((index_mb * 1048576 / $1 * 10 / 4096 / 2))

	sql >/dev/null <<-SQL
		$plans
		SELECT look_up('$3', $fill, $rows, 3 * $rows);
		SELECT look_up('$3', $keys, $rows, 3 * $rows);
		CREATE TEMP TABLE r AS SELECT * FROM look_up('$3', $keys, $rows, 3 * $rows);
		INSERT INTO result SELECT $1, $2, '$3', 'miss, us', us FROM r
			UNION ALL SELECT $1, $2, '$3', 'read by a miss, KiB', kib FROM r
			UNION ALL SELECT $1, $2, '$3', 'look-up, us', us FROM look_up('$3', $keys, $rows, 0)
			UNION ALL SELECT $1, $2, '$3', 'join, us', us FROM join_keys('$3', $keys, $rows);
		CALL insert_rows('$3', $((keys / 25)), $next_new, NULL) \\gset
		INSERT INTO result SELECT $1, $2, '$3', w, v FROM (SELECT
			percentile_disc(0.5) WITHIN GROUP (ORDER BY m) AS half,
			percentile_disc(0.99) WITHIN GROUP (ORDER BY m) AS late FROM unnest(:'ms'::float8[]) m) p,
			LATERAL (VALUES ('insert of 100, ms', half), ('insert of 100, p99, ms', late)) AS x (w, v);
	SQL
	next_new=$((next_new + keys * 4))
}

take_short()
{
	local ratio kib method r n

	for ratio in $ratios; do
		for kib in $ahead; do
			echo "$kib" >"$queue"
			for ((r = 1; r <= rounds; r++)); do
				for method in $methods; do
					stop_server
					drop_caches
					limit_memory $((index_mb * 10 / ratio + processes_mb))
					start_in_group
					measure_short "$ratio" "$kib" "$method"
				done
				[ "$r" -gt 1 ] || for n in $joins; do
					sql -c "CALL plan_joins($ratio, $kib, $n, $rows, '$((index_mb * 10 / ratio + processes_mb))MB')"
				done
			done
			progress "the index takes $ratio tenths of memory, read-ahead $kib KiB"
		done
	done
}

take_restarts()
{
	local kib method r

	limit_memory $((rows / 1000 * 400 / 1024 + 1024))
	for kib in $ahead; do
		echo "$kib" >"$queue"
		for ((r = 1; r <= rounds; r++)); do
			for method in $methods; do
				stop_server
				drop_caches
				start_in_group
				sql >/dev/null -c "$plans" -c "INSERT INTO result SELECT 0, $kib, '$method',
					'first 100,000 look-ups, s', us / 10 FROM look_up('$method', 100000, $rows, 0)"
			done
		done
		progress "restarts, read-ahead $kib KiB"
	done
}

# ---- all of it ----

make_group
make_results
prepare python3-matplotlib cold $((rows / 2)) cluster
start_cluster
as_account tee -a "$cluster_dir/data/postgresql.conf" >/dev/null <<-CONF
	shared_buffers = 16MB
	pmhash.wal = on
CONF
device=$(stat -c '%Hd:%Ld' "$work")
queue=/sys/class/bdi/$device/read_ahead_kb
[ -w "$queue" ] || die "\"$queue\" cannot be written"
make_tables
queue_before=$(cat "$queue")
take_short
take_restarts

machine_lines >"$results/machine_cold.csv"
begin_figures cold
sql >>"$figures" -c "COPY (SELECT regexp_replace(what, ', \w+\$', ': ') || CASE ratio
		WHEN 0 THEN 'ample memory, restarted' ELSE 'index ' || (ratio / 10.0)::numeric(4, 1) || ' x memory' END
		|| ', read-ahead ' || ahead, method, $rows, value, substring(what FROM '\w+\$')
	FROM result ORDER BY ratio = 0, ratio, ahead, what) TO STDOUT (FORMAT csv)"
make_report
cat "$results/cold.md"
