#!/bin/bash
#
# shrink.sh: bytes before and after deleting nine rows in ten and VACUUM
#
# A table with a unique bigint column, a column with few different values and a
# text column, with a pmhash index on each.  Prints for each index what
# pmhash.size says and what its file occupies (st_blocks), and how long DELETE
# and VACUUM took; before that, whether look-ups that went on during the VACUUM
# found just the rows that stay.
#
#   shrink.sh BINDIR [ROWS]
#
# BINDIR: programs of a server that has pmhash installed.  ROWS: 10 million by
# default.  Everything else is done in a temporary directory and removed at the
# end.

set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/bench/lib/scratch.sh"

[ $# -ge 1 ] && [ -x "$1/postgres" ] ||
	die "usage: $0 BINDIR [ROWS]"
bindir=$1
rows=${2:-10000000}

make_work_directory shrink $((rows / 5 + 1500000)) cluster
cluster_create "$work/cluster" "$bindir" pmhash
cluster_start
sql -c 'CREATE EXTENSION pmhash'

sql >/dev/null <<-SQL
	CREATE TABLE thing (id bigint, kind int, name text)
		WITH (autovacuum_enabled = off);
	INSERT INTO thing SELECT i, i % 1000, 'name-' || i
		FROM generate_series(1, $rows) AS i;
	CREATE INDEX thing_id ON thing USING pmhash (id);
	CREATE INDEX thing_kind ON thing USING pmhash (kind);
	CREATE INDEX thing_name ON thing USING pmhash (name);
	ALTER SYSTEM SET enable_seqscan = off;
	SELECT pg_reload_conf();
	VACUUM ANALYZE thing;
SQL

# name of the index, pmhash.size, bytes that its file occupies
sizes()
{
	local name size path

	sql -At -F ' ' <<-SQL |
		SELECT c.relname, pmhash.size(c.oid), f.file
		FROM pg_class c JOIN pmhash.files() f ON f.index = c.oid
		WHERE c.relname LIKE 'thing\\_%' ORDER BY 1
	SQL
	while read -r name size path; do
		echo "$name $size $(($(stat -c %b "$path") * 512))"
	done
}

seconds_of()					# SQL
{
	local begin

	begin=$(now)
	sql -c "$1" >/dev/null
	elapsed "$begin" "$(now)"
}

before=$(sizes)
delete=$(seconds_of 'DELETE FROM thing WHERE id % 10 <> 0')

# Look-ups by another session until the VACUUM is done: each finds its row if,
# and only if, that stays.
as_account tee "$work/look_up.sql" >/dev/null <<-SQL
	\\set n random(1, $rows)
	SELECT 1 / (count(*) = CASE WHEN :n % 10 = 0 THEN 1 ELSE 0 END)::int
		FROM thing WHERE id = :n;
	SELECT 1 / (count(*) = CASE WHEN :n % 10 = 0 THEN 1 ELSE 0 END)::int
		FROM thing WHERE name = 'name-' || :n;
SQL
as_account "$bindir/pgbench" -n -c 1 -T 100000 -f "$work/look_up.sql" \
	>"$work/look_up.log" 2>&1 &
reader=$!
vacuum=$(seconds_of 'VACUUM thing')
stopped=$(sql -At -c "SELECT count(pg_terminate_backend(pid))
	FROM pg_stat_activity WHERE application_name = 'pgbench'")
wait "$reader" || true
[ "$stopped" = 1 ] ||
	die "a look-up went wrong: $(tail -3 "$work/look_up.log")"
if grep -q 'division by zero' "$work/look_up.log"; then
	die "a look-up went wrong: $(tail -3 "$work/look_up.log")"
fi
after=$(sizes)

for index in id kind name; do
	sql -c "SELECT pmhash.check('thing_$index')" >/dev/null
done
[ "$(sql -At -c "SELECT count(*) FROM thing
	WHERE id = ANY (ARRAY(SELECT generate_series(1, $rows)))")" = $((rows / 10)) ] ||
	die 'rows are missing'

printf '%d rows; DELETE of nine in ten %s s, VACUUM %s s; look-ups meanwhile were right\n' \
	"$rows" "$delete" "$vacuum"
printf '%-12s %15s %15s %15s %15s %8s\n' index 'size before' 'on disk' 'size after' 'on disk' share
join <(echo "$before") <(echo "$after") |
	awk '{ printf "%-12s %15d %15d %15d %15d %7.1f%%\n", $1, $2, $3, $4, $5, 100 * $5 / $3 }'
