# Debian: postgresql-@MAJOR@-pglogical
# pglogical: a provider and a subscriber, pmhash indexes on both.

try_pglogical()
{
	local settings=("wal_level = logical" "track_commit_timestamp = on") address

	# minor releases of 2026 load only output plugins that are named
	if "$bindir/postgres" --describe-config | grep -q '^output_plugin_libraries'; then
		settings+=("output_plugin_libraries = 'pgoutput, pglogical_output'")
	fi
	make_server provider pglogical "${settings[@]}" && make_database shop && make_items || return 1
	installed pglogical && sql -c "CREATE EXTENSION pglogical" || return 1
	address="host=127.0.0.1 port=$PGPORT user=postgres dbname=shop"
	sql -o /dev/null -c "SELECT pglogical.create_node('provider', '$address')" \
		-c "SELECT pglogical.replication_set_add_table('default', 'item')" || return 1
	make_server receiver pglogical "${settings[@]}" && make_database shop && make_items 0 || return 1
	address="host=127.0.0.1 port=$PGPORT user=postgres dbname=shop"
	sql -o /dev/null -c "CREATE EXTENSION pglogical" -c "SELECT pglogical.create_node('receiver', '$address')" \
		-c "SELECT pglogical.create_subscription('sub', 'host=127.0.0.1 port=$((PGPORT - 1)) user=postgres dbname=shop')"
	check "the table is copied" until_is 60 20000 "SELECT count(*) FROM item"
	check "it replicates" until_is 60 replicating \
		"SELECT status FROM pglogical.show_subscription_status('sub')"
	same_answers "after the copy"

	use_server provider shop
	sql -c "UPDATE item SET grp = grp + 1, sku = sku || 'x' WHERE id % 4 = 0" \
		-c "DELETE FROM item WHERE id % 9 = 0" \
		-c "INSERT INTO item SELECT g, 'new ' || g, g, 901 FROM generate_series(100001, 100500) g"
	rows="SELECT count(*) || ' ' || sum(hashtext(i::text)::int8) FROM item i"
	wanted=$(value "$rows")
	use_server receiver shop
	check "changes are applied" until_is 60 "$wanted" "$rows"
	same_answers "after changes"
	stop_server receiver && stop_server provider
}
