# Debian: postgresql-@MAJOR@-pgaudit postgresql-@MAJOR@-pg-qualstats postgresql-@MAJOR@-plpgsql-check
# Extensions that look at statements and plans, all preloaded at once: pgaudit,
# pg_stat_statements, pg_qualstats, plpgsql_check, auto_explain.

try_watchers()
{
	make_server watched "pgaudit, pg_stat_statements, pg_qualstats, plpgsql_check, auto_explain" \
		"pgaudit.log = 'all'" "pg_qualstats.sample_rate = 1" "auto_explain.log_min_duration = 0" \
		"auto_explain.log_analyze = on" "log_min_messages = log" "pg_stat_statements.track_planning = on" &&
		make_database watched && make_items || return 1
	sql -c "CREATE EXTENSION pgaudit" -c "CREATE EXTENSION pg_stat_statements" \
		-c "CREATE EXTENSION pg_qualstats" -c "CREATE EXTENSION plpgsql_check" || return 1
	watched_queries >"$scratch/answers"
	is "answers" "500 t 20 t" "$(tr '\n' ' ' <"$scratch/answers" | sed 's/ $//')"
	watched_pgaudit
	watched_statements
	watched_qualstats
	watched_plpgsql
	same_answers "with all of them"
	stop_server watched
}

# Look-ups, and a join by groups of keys, each beside what a sequential scan says.
watched_queries()
{
	sql <<-'SQL'
		SELECT pg_stat_statements_reset() IS NULL \g /dev/null
		SELECT pg_qualstats_reset() \g /dev/null
		SET enable_seqscan = off;
		CREATE TEMP TABLE probe AS SELECT 'sku-' || md5(g::text) AS sku FROM generate_series(1, 1000, 2) g;
		ANALYZE probe;
		SET enable_hashjoin = off; SET enable_mergejoin = off;
		SELECT count(*) FROM probe JOIN item USING (sku);
		SELECT (SELECT count(*) FROM item WHERE grp = 7) = (SELECT count(*) FROM item WHERE grp + 0 = 7);
		SELECT count(*) FROM item WHERE sku IN (SELECT 'sku-' || md5(g::text) FROM generate_series(1, 20) g);
		SELECT count(*) > 0 FROM item WHERE price = 950 AND price > 900;
	SQL
}

watched_pgaudit()
{
	like "pgaudit: the look-ups are logged" "READ,SELECT,,,SELECT count\(\*\) FROM probe JOIN item" \
		"$(grep 'AUDIT: ' "$scratch/watched/log")"
	sql -c "CREATE INDEX audited ON item USING pmhash (note)" -c "DROP INDEX audited"
	like "pgaudit: CREATE INDEX is logged" 'DDL,CREATE INDEX,INDEX,public.audited' \
		"$(grep 'AUDIT: ' "$scratch/watched/log")"
	like "auto_explain: the plan names the index" 'item_sku' "$(grep -A 30 'plan:' "$scratch/watched/log")"
}

watched_statements()
{
	is "pg_stat_statements: calls and rows" "1 1" "$(value "SELECT calls || ' ' || rows FROM pg_stat_statements
		WHERE query LIKE 'SELECT count(*) FROM probe JOIN item%'")"
}

watched_qualstats()
{
	is "pg_qualstats: the conditions of index scans are seen" t "$(value "SELECT count(*) > 0 FROM pg_qualstats() q
		JOIN pg_attribute a ON a.attrelid = q.lrelid AND a.attnum = q.lattnum
		WHERE a.attrelid = 'item'::regclass AND a.attname = 'grp'")"
	check "pg_qualstats: the advisor runs" sql -c "SELECT pg_qualstats_index_advisor(min_filter := 1)"
}

watched_plpgsql()
{
	sql <<-'SQL'
		CREATE FUNCTION sound(wanted text) RETURNS bigint LANGUAGE plpgsql AS $$
		DECLARE n bigint;
		BEGIN
			PERFORM pmhash.check('item_sku');
			SELECT count(*) INTO n FROM item WHERE sku = wanted;
			RETURN n + (SELECT entries FROM pmhash.stats('item_sku'));
		END $$;
		CREATE FUNCTION unsound() RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM no_such_column FROM item WHERE sku = 'x';
		END $$;
	SQL
	is "plpgsql_check: nothing to say of a sound function" "" \
		"$(value "SELECT plpgsql_check_function('sound(text)')")"
	like "plpgsql_check: a mistake is found" 'no_such_column' \
		"$(value "SELECT plpgsql_check_function('unsound()')")"
}
