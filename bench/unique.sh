#!/bin/bash
#
# unique.sh: what a unique index costs, btree and pmhash (PostgreSQL 18 and later)
#
# The same rows with random keys go into a table with a unique index of each method in
# turn: in one statement, one row at a time, and with ON CONFLICT DO UPDATE, where half of
# the keys are there already.  Keys are integers, or texts of 1,000 bytes.  Prints
# microseconds a row, and of these the processor's, which other programs disturb less; the
# table's part is included in both, and shown alone as method "none".  WAL in bytes a
# row; the size of the index.  Ends with an error if a key is there twice or is missing.
#
#   unique.sh BINDIR [ROWS]
#
# BINDIR: programs of a server that has pmhash installed.  ROWS: integers that are in the
# table before, 3000000 by default; a tenth as many are inserted each time, and texts
# are a tenth of all that.  Everything else is done in a temporary directory and removed at the end.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"

[ $# -ge 1 ] && [ -x "$1/postgres" ] ||
	die "usage: $0 BINDIR [ROWS]"
bindir=$1
rows=${2:-3000000}

make_work_directory unique $((rows + 1000000)) cluster
cluster_create "$work/cluster" "$bindir" pmhash
cluster_start
sql <<-'SQL'
	CREATE EXTENSION pmhash;
	CREATE FUNCTION long_key(i int8) RETURNS text IMMUTABLE LANGUAGE sql
		RETURN repeat(md5(i::text), 31) || lpad(i::text, 8, '0');
SQL

# timed ROWS STATEMENT: microseconds a row, those of the processor, and bytes of WAL a row
timed()
{
	sql -v ON_ERROR_STOP=1 <<-SQL
		CREATE TEMP TABLE cpu (ticks int8);
		-- (a program's parent is the session's process)
		COPY cpu FROM PROGRAM 'awk "{ print \\\$14 + \\\$15 }" /proc/\$PPID/stat';
		CHECKPOINT;
		SELECT clock_timestamp() AS at, pg_current_wal_insert_lsn() AS lsn \gset
		$2
		SELECT clock_timestamp() AS end, pg_current_wal_insert_lsn() AS lsn_end \gset
		COPY cpu FROM PROGRAM 'awk "{ print \\\$14 + \\\$15 }" /proc/\$PPID/stat';
		SELECT format('%s %s %s', round(extract(epoch FROM :'end'::timestamptz - :'at') * 1000000 / $1, 2),
			round((max(ticks) - min(ticks)) * 1000000.0 / $(getconf CLK_TCK) / $1, 2),
			round((:'lsn_end'::pg_lsn - :'lsn') / $1)) FROM cpu;
	SQL
}

# measure METHOD TYPE KEY ROWS: KEY makes a key of a number i
measure()
{
	local method=$1 type=$2 key=$3 before=$4 more=$(($4 / 10)) bulk single upsert

	sql <<-SQL
		SET client_min_messages = warning;
		DROP TABLE IF EXISTS u;
		CREATE TABLE u (k $type, v int4);
		ALTER TABLE u ALTER k SET STORAGE PLAIN;
		INSERT INTO u SELECT $key, 0 FROM (SELECT g AS i FROM generate_series(1, $before) g ORDER BY hashint8(g)) g;
		$([ "$method" = none ] || echo "CREATE UNIQUE INDEX u_k ON u USING $method (k);")
		CREATE TABLE IF NOT EXISTS sink (k $type);
		DROP TABLE sink;
		CREATE TABLE sink AS SELECT g AS i FROM generate_series($before + 1, $before + 3 * $more) g ORDER BY hashint8(g);
		VACUUM ANALYZE u;
		VACUUM ANALYZE sink;
	SQL
	bulk=$(timed "$more" "INSERT INTO u SELECT $key, 1 FROM sink WHERE i <= $before + $more;")
	single=$(timed "$more" "DO \$\$ DECLARE i int8; BEGIN FOR i IN SELECT s.i FROM sink s WHERE s.i > $before + $more AND s.i <= $before + 2 * $more LOOP INSERT INTO u VALUES ($key, 1); END LOOP; END \$\$;")
	upsert='- - -'
	[ "$method" = none ] || upsert=$(timed "$((2 * more))" "INSERT INTO u SELECT $key, 2 FROM sink WHERE i > $before + $more ON CONFLICT (k) DO UPDATE SET v = u.v + 1;")
	[ "$method" = none ] || [ "$(sql -c "SET enable_indexscan = off; SET enable_indexonlyscan = off; SELECT count(*) || ' ' || count(DISTINCT k) FROM u")" = \
		"$((before + 3 * more)) $((before + 3 * more))" ] || die "$method: a key is missing or there twice"
	print_row "$method" "$type" $bulk $single $upsert \
		"$(sql -c "SELECT coalesce(round((CASE '$method' WHEN 'pmhash' THEN pmhash.size(i) ELSE pg_relation_size(i) END) / 1048576.0)::text, '-') FROM to_regclass('u_k') AS i")"
}

print_row()
{
	printf '%-8s %-5s %9s %6s %6s %9s %6s %6s %9s %6s %6s %6s\n' "$@"
}

print_row method type 'one us' cpu WAL 'rows us' cpu WAL 'upsert us' cpu WAL MB
for method in none btree pmhash btree pmhash; do
	measure "$method" int8 i "$rows"
done
for method in none btree pmhash btree pmhash; do
	measure "$method" text 'long_key(i)' $((rows / 10))
done
cluster_stop
