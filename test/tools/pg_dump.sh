# Debian: postgresql-@MAJOR@
# pg_dump and pg_restore: one script, and a directory in parallel; all at once, and
# section by section.

try_pg_dump()
{
	make_server dump "" && make_database source && make_items || return 1
	same_answers "before"

	check "pg_dump, plain" "$bindir/pg_dump" -f "$scratch/plain.sql" source
	sql -d postgres -c "CREATE DATABASE plain"
	check "psql reads it" sql -d plain -1 -f "$scratch/plain.sql"
	PGDATABASE=plain
	same_answers "restored by psql"

	check "pg_dump -j 2" "$bindir/pg_dump" -Fd -j 2 -f "$scratch/directory" source
	sql -d postgres -c "CREATE DATABASE parallel"
	check "pg_restore -j 2" "$bindir/pg_restore" -e -j 2 -d parallel "$scratch/directory"
	PGDATABASE=parallel
	same_answers "restored in parallel"

	restore_sections
	stop_server dump
}

restore_sections()
{
	local section

	sql -d postgres -c "CREATE DATABASE sections"
	PGDATABASE=sections
	for section in pre-data data; do
		check "pg_restore --section=$section" "$bindir/pg_restore" -e --section=$section \
			-d sections "$scratch/directory"
	done
	is "no index before post-data" 0 "$(value "SELECT count(*) FROM pmhash.indexes")"
	check "pg_restore --section=post-data" "$bindir/pg_restore" -e -j 2 --section=post-data \
		-d sections "$scratch/directory"
	same_answers "restored by sections"
	check "pg_dump --schema-only of both is the same" same_schema source sections
}

same_schema()				# database database
{
	local one other

	# (a key for \restrict, where there is one, is another each time)
	one=$("$bindir/pg_dump" -s "$1" | grep -v '^\\\(un\)\?restrict') &&
		other=$("$bindir/pg_dump" -s "$2" | grep -v '^\\\(un\)\?restrict') && [ "$one" = "$other" ]
}
