# Debian: postgresql-@MAJOR@-partman
# pg_partman: partitions that it makes have the parent's pmhash indexes, old ones go
# with theirs.

try_partman()
{
	local create

	make_server partman "" && make_database partman && installed pg_partman || return 1
	sql -c "CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman" \
		-c "CREATE TABLE event (id bigint, at timestamptz NOT NULL, tag text) PARTITION BY RANGE (at)" \
		-c "CREATE INDEX event_id ON event USING pmhash (id)" \
		-c "CREATE INDEX event_tag ON event USING pmhash (tag)" || return 1
	# up to version 4 the kind of partitioning had to be named
	if [[ $(value "SELECT extversion FROM pg_extension WHERE extname = 'pg_partman'") == 4* ]]; then
		create="SELECT partman.create_parent('public.event', 'at', 'native', 'daily', p_premake := 3)"
	else
		create="SELECT partman.create_parent('public.event', 'at', '1 day', p_premake := 3)"
	fi
	check "create_parent" sql -c "$create"
	sql -c "INSERT INTO event SELECT g, now() + g % 4 * interval '1 day', 'tag ' || g % 77
		FROM generate_series(1, 10000) g"
	is "each partition has both indexes" t "$(value "SELECT count(*) = 2 * (SELECT count(*) FROM pg_inherits
		WHERE inhparent = 'event'::regclass) AND count(*) > 8 FROM pmhash.indexes")"
	same_answers "partitions"

	sql -c "UPDATE partman.part_config SET retention = '1 hour', retention_keep_table = false, premake = 6" \
		-c "CALL partman.run_maintenance_proc()" || return 1
	is "maintenance makes further ones, with indexes" t "$(value "SELECT count(*) = 2 * (SELECT count(*)
		FROM pg_inherits WHERE inhparent = 'event'::regclass) FROM pmhash.indexes")"
	check "partition_data_proc: rows of the default partition" partman_default
	same_answers "after maintenance"
	stop_server partman
}

partman_default()
{
	sql -c "INSERT INTO event SELECT g, now() + interval '20 days', 'late' FROM generate_series(1, 500) g" \
		-c "CALL partman.partition_data_proc('public.event')" &&
		[ "$(value "SELECT count(*) FROM event WHERE tag = 'late'")" = 500 ]
}
