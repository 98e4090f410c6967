# Debian: sqlsmith
# sqlsmith: random queries over tables with pmhash indexes of many kinds.  The server
# must not go down, nothing internal may fail in pmhash, and the indexes must be
# right afterwards.  1,500 queries; --long: an hour of them.

try_sqlsmith()
{
	local target limit

	make_server smith "" "statement_timeout = 1s" "log_min_messages = error" \
		"log_error_verbosity = verbose" "pmhash.enable_join = on" &&
		make_database smith && make_items 3000 || return 1
	sqlsmith_tables || return 1
	target="host=127.0.0.1 port=$PGPORT user=postgres dbname=smith"
	limit=--max-queries=1500
	! $long || limit=--max-queries=100000000
	timeout --preserve-status -s INT "$(sqlsmith_seconds)" "$(command -v sqlsmith)" --target="$target" \
		--exclude-catalog --seed="${SQLSMITH_SEED:-1}" $limit >"$scratch/sqlsmith.out" 2>&1
	like "random queries are run" '^[1-9]' "$(sqlsmith_number)"
	is "the server does not go down" 0 "$(grep -c -E 'PANIC|terminated by signal|crash of another' "$scratch/smith/log")"
	is "no internal error of pmhash" "" "$(sqlsmith_internal)"
	PGOPTIONS="-c statement_timeout=0" same_answers "after it"
	echo "# sqlsmith: $(sqlsmith_number) statements, $(sqlsmith_plans) plans of pmhash's join"
	stop_server smith
}

sqlsmith_seconds()
{
	if $long; then echo 3600; else echo 150; fi
}

# Statements that came to the server, by its own count.
sqlsmith_number()
{
	value "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'smith'"
}

# Errors whose place is in a source of pmhash and whose SQLSTATE is that of an
# internal error.
sqlsmith_internal()
{
	grep -A 4 'ERROR:  XX[0-9]*:' "$scratch/smith/log" | grep -E 'LOCATION: .*pmhash' | sort | uniq -c
}

sqlsmith_plans()
{
	grep -c 'pmhash join' "$scratch/smith/log"
}

# Indexes of many types, partitions, partial and unlogged ones.
sqlsmith_tables()
{
	sql <<-'SQL'
		CREATE TABLE kinds (i2 int2, i4 int4, i8 int8, t text, v varchar(20), c char(5), b bool, o oid,
			f8 float8, n numeric, d date, ts timestamptz, u uuid, j jsonb, a int4[], nm name, by bytea, r int4range);
		INSERT INTO kinds SELECT g % 100, g % 300, g, 't' || g % 200, 'v' || g % 50, 'c' || g % 9, g % 2 = 0, g % 70,
			g / 4.0, g % 33, '2020-01-01'::date + g % 400, '2020-01-01'::timestamptz + g * interval '1 h',
			md5((g % 90)::text)::uuid, jsonb_build_object('k', g % 40), ARRAY[g % 20, g % 3], 'n' || g % 60,
			decode(md5((g % 80)::text), 'hex'), int4range(g % 30, g % 30 + 5)
		FROM generate_series(1, 2000) g;
		SELECT format('CREATE INDEX ON kinds USING pmhash (%I)', attname) FROM pg_attribute
			WHERE attrelid = 'kinds'::regclass AND attnum > 0 \gexec
		CREATE TABLE parts (k int4, t text) PARTITION BY HASH (k);
		CREATE TABLE parts0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE parts1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE INDEX ON parts USING pmhash (k);
		INSERT INTO parts SELECT g % 300, 'p' || g FROM generate_series(1, 2000) g;
		CREATE UNLOGGED TABLE loose (k int8);
		CREATE INDEX ON loose USING pmhash (k);
		INSERT INTO loose SELECT g % 400 FROM generate_series(1, 1000) g;
		VACUUM ANALYZE;
	SQL
}
