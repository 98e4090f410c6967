# Debian has no package of it (12, 13): tried by hand, with a server that has it installed
#	PG_CONFIG=... test/tools/run.sh pg_hint_plan
# A join by groups of keys is a nested loop over an index scan to hints, a page scan an
# index scan.

# hinted NAME HINT PATTERN QUERY: its plan
hinted()
{
	like "$1" "$3" "$(value "/*+ $2 */ EXPLAIN (COSTS off) $4" | tr '\n' ' ')"
}

try_pg_hint_plan()
{
	local order query key only='^([^p]|p[^m]|pm[^h])*$'

	query='SELECT a.x, b.pad FROM a JOIN b USING (k)'
	key='SELECT * FROM c WHERE k = 5'
	make_server hint "" && make_database hint && sql <<-'SQL' || return 1
		CREATE TABLE a (k int, x int);
		INSERT INTO a SELECT (g * 97) % 200000, g FROM generate_series(1, 2000) g;
		CREATE TABLE b (k int, pad text);
		INSERT INTO b SELECT g, repeat('x', 100) FROM generate_series(1, 200000) g;
		CREATE INDEX b_k ON b USING pmhash (k);
		CREATE INDEX b_btree ON b (k);
		CREATE TABLE c AS SELECT g / 200 AS k, g AS y FROM generate_series(1, 20000) g;
		CREATE INDEX c_k ON c USING pmhash (k);
		VACUUM ANALYZE a, b, c;
	SQL
	for order in 'pmhash, pg_hint_plan' 'pg_hint_plan, pmhash'; do
		sql -c "ALTER SYSTEM SET shared_preload_libraries = $order" &&
			stop_server hint && start_server hint && use_server hint hint || return 1
		hinted "$order: no hint" '' 'pmhash join' "$query"
		hinted "$order: NestLoop" 'NestLoop(a b)' 'pmhash join' "$query"
		hinted "$order: HashJoin" 'HashJoin(a b)' 'Hash Join' "$query"
		hinted "$order: MergeJoin" 'MergeJoin(a b)' 'Merge Join' "$query"
		hinted "$order: NoNestLoop" 'NoNestLoop(a b)' '(Hash|Merge) Join' "$query"
		hinted "$order: Leading, this way" 'Leading((a b))' 'pmhash join' "$query"
		hinted "$order: Leading, the other way" 'Leading((b a))' "$only" "$query"
		hinted "$order: IndexScan" 'IndexScan(b b_k)' 'pmhash join' "$query"
		hinted "$order: IndexScan, another index" 'IndexScan(b b_btree)' "$only" "$query"
		hinted "$order: NoIndexScan" 'NoIndexScan(b)' "$only" "$query"
		hinted "$order: BitmapScan" 'BitmapScan(b b_k) NestLoop(a b)' 'Bitmap Index Scan on b_k' "$query"
		hinted "$order: SeqScan" 'SeqScan(b)' 'Seq Scan on b' "$query"
		hinted "$order: index-only" '' 'Index Only: true' 'SELECT a.x, b.k FROM a JOIN b USING (k)'
		hinted "$order: NoIndexOnlyScan" 'NoIndexOnlyScan(b)' 'pmhash join\) +Join Type: Inner +Inner Table: b +Index Name: b_k +Index Cond' \
			'SELECT a.x, b.k FROM a JOIN b USING (k)'
		hinted "$order: page scan" '' 'pmhash page scan' "$key"
		hinted "$order: SeqScan of one key" 'SeqScan(c)' 'Seq Scan on c' "$key"
		hinted "$order: BitmapScan of one key" 'BitmapScan(c)' 'Bitmap Index Scan on c_k' "$key"
		hinted "$order: IndexScan of one key" 'IndexScan(c)' '(pmhash page scan|Index Scan using c_k)' "$key"
	done
	same_answers "beside it"
	stop_server hint
}
