# Debian: postgresql-@OLD@
# pg_upgrade from the version of an older Debian: copies of the files, then links.
# Index files are not taken over; the rebuilder makes them anew.

try_pg_upgrade()
{
	local new=$bindir old=${old_bindir-}

	if [ -z "$old" ]; then
		say_bad "no older server is installed"
		return 1
	fi
	upgrade_to copied "$old" "$new" --copy
	upgrade_to linked "$old" "$new" --link
	bindir=$new
}

upgrade_to()				# name old-programs new-programs option
{
	local name=$1 old=$2 new=$3 before

	bindir=$old
	make_server "old_$name" "" && make_database shop && make_items || return 1
	sql -c "ALTER TABLE item SET (autovacuum_enabled = off)" -c "DELETE FROM item WHERE id % 7 = 0"
	same_answers "$name: before"
	before=$(value "SELECT count(*), sum(hashtext(i::text)::int8) FROM item i")
	stop_server "old_$name"

	bindir=$new
	# from 18 on initdb switches checksums on, which older versions did not
	[ "$major" -lt 18 ] || initdb_options=--no-data-checksums
	make_server "new_$name" "" && stop_server "new_$name"
	initdb_options=
	mkdir -p "$scratch/run_$name"
	check "$name: pg_upgrade" upgrade_run "$name" "$old" "$new" "$4" || return 1
	start_server "new_$name"
	PGDATABASE=shop
	is "$name: rows" "$before" "$(value "SELECT count(*), sum(hashtext(i::text)::int8) FROM item i")"
	all_valid "$name"
	same_answers "$name: after"
	stop_server "new_$name"
}

upgrade_run()
{
	cd "$scratch/run_$1" || return 1
	env -u PGHOST -u PGPORT -u PGDATABASE "$3/pg_upgrade" -U postgres -b "$2" -B "$3" \
		-d "$scratch/old_$1/data" -D "$scratch/new_$1/data" -s "$scratch/run_$1" -p 55998 -P 55999 "$4"
}
