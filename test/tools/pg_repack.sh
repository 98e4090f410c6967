# Debian: postgresql-@MAJOR@-repack
# pg_repack: a whole table while others write, and its indexes alone.

try_pg_repack()
{
	make_server repack "" && make_database repack && make_items || return 1
	installed pg_repack && sql -c "CREATE EXTENSION pg_repack" || return 1
	sql -c "DELETE FROM item WHERE id % 3 = 0"
	check "a table" repack -t item
	same_answers "after a table"
	sql -c "DELETE FROM item WHERE id % 5 = 0"
	check "indexes alone" repack -t item --only-indexes
	same_answers "after indexes alone"
	check "one index" repack -i item_grp
	same_answers "after one index"
	repack_beside_writers
	stop_server repack
}

repack()
{
	local program

	program=$(command -v pg_repack || echo "$bindir/pg_repack")
	"$program" --no-superuser-check -d repack "$@" || return 1
}

repack_beside_writers()
{
	local writers

	cat >"$scratch/writes.sql" <<-'SQL'
		\set id random(1, 20000)
		UPDATE item SET price = price + 1, grp = (grp + 1) % 500 WHERE id = :id;
		INSERT INTO item SELECT 20000 + :client_id * 1000000 + coalesce((SELECT max(id) % 1000000 FROM item
			WHERE id BETWEEN 20000 + :client_id * 1000000 AND 999999 + 20000 + :client_id * 1000000), 0) + 1, 'new', :id, 950, 'w'
			ON CONFLICT DO NOTHING;
		DELETE FROM item WHERE id = :id + 7;
	SQL
	"$bindir/pgbench" -n -c 4 -T 12 -f "$scratch/writes.sql" repack >"$scratch/pgbench.log" 2>&1 &
	writers=$!
	sleep 1
	check "a table beside writers" repack -t item
	check "indexes beside writers" repack -t item --only-indexes
	check "the writers had no error" wait "$writers"
	same_answers "after that"
}
