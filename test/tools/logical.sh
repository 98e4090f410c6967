# Debian: postgresql-@MAJOR@
# Built-in logical replication: pmhash indexes of the subscriber follow what is
# applied, also where rows are found by REPLICA IDENTITY FULL.

try_logical()
{
	local address

	make_server publisher "" "wal_level = logical" && make_database shop && make_items || return 1
	sql -c "CREATE TABLE bare (k int, t text)" -c "ALTER TABLE bare REPLICA IDENTITY FULL" \
		-c "INSERT INTO bare SELECT g % 100, 'row ' || g FROM generate_series(1, 2000) g" \
		-c "INSERT INTO bare SELECT NULL, 'null ' || g FROM generate_series(1, 20) g" \
		-c "CREATE PUBLICATION everything FOR TABLE item, bare"
	address="host=127.0.0.1 port=$PGPORT user=postgres dbname=shop"
	make_server subscriber "" "wal_level = logical" && make_database shop && make_items 0 || return 1
	sql -c "CREATE TABLE bare (k int, t text)" -c "CREATE INDEX bare_k ON bare USING pmhash (k)" \
		-c "CREATE SUBSCRIPTION everything CONNECTION '$address' PUBLICATION everything"
	check "tables are copied" until_is 60 0 "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
	use_server subscriber shop
	same_answers "after the copy"

	use_server publisher shop
	sql -c "UPDATE item SET grp = grp + 1, sku = sku || 'x' WHERE id % 4 = 0" \
		-c "DELETE FROM item WHERE id % 9 = 0" \
		-c "INSERT INTO item SELECT g, 'new ' || g, g, 901 FROM generate_series(100001, 100500) g" \
		-c "BEGIN; UPDATE item SET price = 0; ROLLBACK" \
		-c "UPDATE bare SET k = k + 1 WHERE t LIKE '%7'" -c "DELETE FROM bare WHERE k = 50" \
		-c "UPDATE bare SET t = t || 'u' WHERE k IS NULL" -c "TRUNCATE item RESTART IDENTITY; INSERT INTO item
			SELECT g, 'again ' || g, g % 50, g % 1000 FROM generate_series(1, 5000) g"
	logical_caught_up
	stop_server subscriber && stop_server publisher
}

# Everything is applied; both have the same rows; the subscriber's indexes find them.
logical_caught_up()
{
	local place rows

	place=$(value "SELECT pg_current_wal_lsn()")
	check "all is applied" until_is 60 t \
		"SELECT coalesce(bool_and(replay_lsn >= '$place'), false) FROM pg_stat_replication WHERE application_name = 'everything'"
	rows=$(logical_rows)
	use_server subscriber shop
	is "both have the same rows" "$rows" "$(logical_rows)"
	is "no error while applying" 0 "$(value "SELECT sum(apply_error_count) FROM pg_stat_subscription_stats")"
	same_answers "after changes"
}

logical_rows()
{
	value "SELECT (SELECT count(*) || ' ' || sum(hashtext(i::text)::int8) FROM item i),
		(SELECT count(*) || ' ' || sum(hashtext(b::text)::int8) FROM bare b)"
}
