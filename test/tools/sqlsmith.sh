# Debian: sqlsmith
# sqlsmith: random queries over tables with pmhash indexes of many kinds.  The server
# must not go down, nothing internal may fail in pmhash, and the indexes must be
# right afterwards.  Two minutes; --long: an hour.  (Many of its queries are joins without
# end, for each of which it waits a second: hence small tables.)

try_sqlsmith()
{
	local target scans="SELECT sum(idx_scan) FROM pg_stat_user_indexes JOIN pmhash.indexes
		ON (schemaname, indexrelname) = (schema, index)"

	make_server smith "" "log_min_messages = error" "log_error_verbosity = verbose" "enable_seqscan = off" \
		"enable_hashjoin = off" "enable_mergejoin = off" &&
		make_database smith && make_items 300 && sqlsmith_tables || return 1
	target="host=127.0.0.1 port=$PGPORT user=postgres dbname=smith"
	timeout --preserve-status -s INT "$(sqlsmith_seconds)" "$(command -v sqlsmith)" --target="$target" \
		--exclude-catalog --seed="${SQLSMITH_SEED:-1}" >"$scratch/sqlsmith.out" 2>&1
	sed 's/^/# /' <(tail -n 3 "$scratch/sqlsmith.out" | cut -c 1-200)
	like "random queries are run" '^[1-9][0-9]' "$(sqlsmith_number)"
	like "pmhash indexes have been read" '^[1-9]' "$(value "$scans")"
	is "the server does not go down" 0 "$(grep -c -E 'PANIC|terminated by signal|crash of another' "$scratch/smith/log")"
	is "no internal error of pmhash" "" "$(sqlsmith_internal)"
	echo "# $(sqlsmith_number) statements, $(value "$scans") scans of pmhash indexes"
	same_answers "after it"
	stop_server smith
}

sqlsmith_seconds()
{
	if $long; then echo 3600; else echo 120; fi
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

# Indexes of many types, partitions, partial and unlogged ones.  sqlsmith hardly ever
# writes an equality of its own: it finds them in views, of all kinds of scans and joins.
sqlsmith_tables()
{
	sql <<-'SQL'
		CREATE TABLE kinds (i2 int2, i4 int4, i8 int8, t text, v varchar(20), c char(5), b bool, o oid,
			f8 float8, n numeric, d date, ts timestamptz, u uuid, j jsonb, a int4[], nm name, by bytea, r int4range);
		INSERT INTO kinds SELECT g % 100, g % 300, g, 't' || g % 200, 'v' || g % 50, 'c' || g % 9, g % 2 = 0, g % 70,
			g / 4.0, g % 33, '2020-01-01'::date + g % 400, '2020-01-01'::timestamptz + g * interval '1 h',
			md5((g % 90)::text)::uuid, jsonb_build_object('k', g % 40), ARRAY[g % 20, g % 3], 'n' || g % 60,
			decode(md5((g % 80)::text), 'hex'), int4range(g % 30, g % 30 + 5)
		FROM generate_series(1, 200) g;
		SELECT format('CREATE INDEX ON kinds USING pmhash (%I)', attname) FROM pg_attribute
			WHERE attrelid = 'kinds'::regclass AND attnum > 0 \gexec
		CREATE TABLE parts (k int4, t text) PARTITION BY HASH (k);
		CREATE TABLE parts0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE parts1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE INDEX ON parts USING pmhash (k);
		INSERT INTO parts SELECT g % 300, 'p' || g FROM generate_series(1, 300) g;
		CREATE UNLOGGED TABLE loose (k int8);
		CREATE INDEX ON loose USING pmhash (k);
		INSERT INTO loose SELECT g % 400 FROM generate_series(1, 300) g;
		CREATE VIEW one AS SELECT * FROM kinds WHERE t = 't7' OR i4 = 8;
		CREATE VIEW listed AS SELECT * FROM kinds WHERE i8 = ANY ('{1,2,3,70,NULL,7000}');
		CREATE VIEW joined AS SELECT k.t, k.i4, k.u, i.sku, i.price FROM kinds k JOIN item i ON i.grp = k.i4;
		CREATE VIEW outside AS SELECT p.k, p.t, k.n, k.d FROM parts p LEFT JOIN kinds k ON k.i4 = p.k AND k.b;
		CREATE VIEW without AS SELECT * FROM item i WHERE NOT EXISTS (SELECT FROM loose l WHERE l.k = i.id);
		CREATE VIEW within AS SELECT * FROM parts WHERE k IN (SELECT i4 FROM kinds WHERE b);
		CREATE VIEW counted AS SELECT id, (SELECT count(*) FROM parts p WHERE p.k = i.grp) AS n FROM item i;
		VACUUM ANALYZE;
	SQL
}
