#!/bin/bash
#
# shards.sh: a table on three servers, joined by postgres_fdw: what do pmhash and hash
# indexes on the servers give to queries that come by a fourth one?
#
# Writes shards.csv into the results directory (figure, method, rows, value, unit):
#   look-up     by one key: goes to one server
#   IN list     of 100 keys: the whole list goes to all three
#   join        of the orders of one day with their items: done by the servers
#               (enable_partitionwise_join), which is looked at in the plan
#   insert      of a row
#
# Runs as root (the servers then run as "postgres") or as a user with sudo.

set -euo pipefail
shopt -s inherit_errexit

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"
. "$tree/bench/lib/options.sh"
. "$tree/bench/lib/report.sh"

usage()
{
	cat <<-USAGE
		usage: $0 [OPTION...]
		  --rows N         rows of the table (default 300000)
		  --clients N      (default 2)
		  --seconds S      for each figure (default 5)
		  --results DIR    where shards.csv goes (default bench/results)
		  --help           this text
	USAGE
}

rows=300000
clients=2
seconds=5
results=$tree/bench/results
read_options "rows clients seconds results" "" "$@"
need_numbers rows clients seconds
shards="0 1 2"
methods="hash pmhash"

# ---- four servers ----

# psql on a server: front, or the number of a shard
on()							# server psql-argument...
{
	local server=$1

	shift
	PGHOST=$work/$server sql "$@"
}

start_server()					# server
{
	cluster_create "$work/$1" "$bindir" pmhash
	as_account tee -a "$work/$1/data/postgresql.conf" >/dev/null <<-'CONF'
		shared_buffers = 256MB
		enable_partitionwise_join = on
		enable_partitionwise_aggregate = on
	CONF
	cluster_start
	on "$1" -c 'CREATE EXTENSION pmhash' -c 'CREATE EXTENSION postgres_fdw'
}

stop_servers()
{
	local server

	for server in front $shards; do
		cluster_dir=$work/$server cluster_stop
	done
}

# ---- tables ----

columns_item='k bigint NOT NULL, name text'
columns_ord='k bigint NOT NULL, day int, n int'

# The shard's part of both tables.  It has a parent of the same name, so that it can
# be asked which rows are its own.
fill_shard()					# number
{
	local table

	for table in item ord; do
		declare -n columns=columns_$table
		on "$1" -c "CREATE TABLE $table ($columns) PARTITION BY HASH (k)" \
			-c "CREATE TABLE ${table}_part PARTITION OF $table FOR VALUES WITH (MODULUS 3, REMAINDER $1)"
	done
	on "$1" -c "INSERT INTO item_part SELECT n, 'item ' || n FROM generate_series(1::bigint, $rows) n
			WHERE satisfies_hash_partition('item'::regclass, 3, $1, n)" \
		-c "INSERT INTO ord_part SELECT k, n / 1000, n FROM (
				SELECT n, 1 + abs(hashint8(n)::bigint) % $rows AS k FROM generate_series(1::bigint, $rows) n) o
			WHERE satisfies_hash_partition('ord'::regclass, 3, $1, k)" \
		-c 'CREATE INDEX ON ord_part (day)' -c 'VACUUM ANALYZE'
}

join_shards()
{
	local table shard

	for shard in $shards; do
		on front -c "CREATE SERVER shard_$shard FOREIGN DATA WRAPPER postgres_fdw
				OPTIONS (host '$work/$shard', port '$PGPORT', dbname '$PGDATABASE', async_capable 'true', use_remote_estimate 'true')" \
			-c "CREATE USER MAPPING FOR CURRENT_USER SERVER shard_$shard OPTIONS (user '$PGUSER')"
	done
	for table in item ord; do
		declare -n columns=columns_$table
		on front -c "CREATE TABLE $table ($columns) PARTITION BY HASH (k)"
		for shard in $shards; do
			on front -c "CREATE FOREIGN TABLE ${table}_$shard PARTITION OF $table
				FOR VALUES WITH (MODULUS 3, REMAINDER $shard)
				SERVER shard_$shard OPTIONS (table_name '${table}_part')"
		done
		on front -c "ANALYZE $table"
	done
}

index_shards()					# method
{
	local shard

	for shard in $shards; do
		on "$shard" -c 'DROP INDEX IF EXISTS item_k, ord_k' \
			-c "CREATE INDEX item_k ON item_part USING $1 (k)" \
			-c "CREATE INDEX ord_k ON ord_part USING $1 (k)" -c 'ANALYZE'
	done
}

# ---- figures ----

scripts()
{
	as_account tee "$work/scripts/look-up" >/dev/null <<-SCRIPT
		\set k random(1, $rows)
		SELECT name FROM item WHERE k = :k;
	SCRIPT
	as_account tee "$work/scripts/IN list" >/dev/null <<-SCRIPT
		\set k random(1, $rows)
		SELECT count(name) FROM item WHERE k = ANY (ARRAY(SELECT 1 + (:k + i * 7919) % $rows FROM generate_series(1, 100) i));
	SCRIPT
	as_account tee "$work/scripts/join" >/dev/null <<-SCRIPT
		\set day random(1, $((rows / 1000 > 1 ? rows / 1000 - 1 : 1)))
		SELECT count(i.name), sum(o.n) FROM ord o JOIN item i ON i.k = o.k WHERE o.day = :day;
	SCRIPT
	as_account tee "$work/scripts/insert" >/dev/null <<-SCRIPT
		\set k random($rows + 1, 2000000000)
		INSERT INTO ord VALUES (:k, 0, 1);
	SCRIPT
}

# A join that is not done by the servers would measure something else.
check_join()
{
	local plan

	plan=$(on front -c 'EXPLAIN (VERBOSE, COSTS OFF) SELECT count(i.name), sum(o.n) FROM ord o JOIN item i ON i.k = o.k WHERE o.day = 1')
	grep -q 'Relations:.*INNER JOIN' <<<"$plan" || die "the join is not pushed down: $plan"
}

# All methods have to give the same.
answers()
{
	on front -c 'SELECT count(i.name), sum(o.n) FROM ord o JOIN item i ON i.k = o.k WHERE o.day BETWEEN 1 AND 3' \
		-c "SELECT count(*), sum(k) FROM item WHERE k = ANY (ARRAY(SELECT i * 31 FROM generate_series(1, 2000) i))"
}

measure()						# method
{
	local figure value got

	check_join
	got=$(answers)
	[ -z "${wanted-}" ] || [ "$got" = "$wanted" ] || die "$1 gives $got, not $wanted"
	wanted=$got
	for figure in look-up 'IN list' join insert; do
		value=$(PGHOST=$work/front as_account "$bindir/pgbench" -n -c "$clients" -T "$seconds" \
			-f "$work/scripts/$figure" 2>"$work/pgbench.err" | awk '/^tps/ { printf "%.0f", $3 }')
		[ -n "$value" ] || die "$(tail -n 3 "$work/pgbench.err")"
		note "$figure" "$1" "$rows" "$value" "1/s"
	done
	for shard in $shards; do
		on "$shard" -c 'DELETE FROM ord_part WHERE day = 0 AND n = 1 AND k > '"$rows" -c 'VACUUM ord_part'
	done
}

make_results
# shellcheck disable=SC2086
prepare "" shards $((rows * 4 + 1000000)) front $shards scripts
stop_others=stop_servers
progress "starting four servers in $work"
for server in $shards front; do
	start_server "$server"
done
for shard in $shards; do
	fill_shard "$shard"
done
join_shards
scripts
begin_figures shards
for method in $methods; do
	index_shards "$method"
	measure "$method"
done
progress "done: $figures"
