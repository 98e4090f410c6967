--
-- Joins by groups of keys (src/join).  Plans are shown where they matter; answers
-- are compared with those of sequential scans.
--
CREATE TABLE outr (id int4, k int4, k8 int8, t text) WITH (autovacuum_enabled = off);
INSERT INTO outr
	SELECT i, CASE WHEN i % 7 = 0 THEN NULL ELSE i % 40 END, i % 40, 't' || i % 40
	FROM generate_series(1, 200) i;
CREATE TABLE inr (id int4, k int4, t text, v int4) WITH (autovacuum_enabled = off);
INSERT INTO inr
	SELECT i, CASE WHEN i % 11 = 0 THEN NULL ELSE i % 60 END, 't' || i % 60, i
	FROM generate_series(1, 600) i;
-- a key with far more rows than a group has room for
INSERT INTO inr SELECT 10000 + i, 5, 'many', i FROM generate_series(1, 5000) i;
CREATE INDEX inr_k ON inr USING pmhash (k);
CREATE INDEX inr_t ON inr USING pmhash (t);
VACUUM ANALYZE outr;
VACUUM ANALYZE inr;

SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
-- a nested loop counts what the index has for it, a join what is visited
SET cpu_index_tuple_cost = 1000;

-- Answers with the join and without: rows, none of them more often than in the other.
CREATE FUNCTION joined(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	used bool := false;
	n int8;
	more int8;
	less int8;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		used := used OR line LIKE '%Custom Scan (pmhash join)%';
	END LOOP;
	EXECUTE 'CREATE TEMP TABLE by_join AS SELECT q::text AS r FROM (' || query || ') q';
	PERFORM set_config('pmhash.enable_join', 'off', true), set_config('enable_indexscan', 'off', true),
		set_config('enable_indexonlyscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
		set_config('enable_hashjoin', 'on', true);
	EXECUTE 'CREATE TEMP TABLE by_seq AS SELECT q::text AS r FROM (' || query || ') q';
	SELECT count(*) FROM by_join INTO n;
	SELECT count(*) FROM (TABLE by_join EXCEPT ALL TABLE by_seq) x INTO more;
	SELECT count(*) FROM (TABLE by_seq EXCEPT ALL TABLE by_join) x INTO less;
	DROP TABLE by_join, by_seq;
	PERFORM set_config('pmhash.enable_join', 'on', true), set_config('enable_indexscan', 'on', true),
		set_config('enable_indexonlyscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
		set_config('enable_hashjoin', 'off', true);
	RETURN CASE WHEN NOT used THEN 'no join, ' ELSE '' END || n || ' rows' ||
		CASE WHEN more + less > 0 THEN format(', %s too many, %s missing', more, less) ELSE '' END;
END $$;

-- inner, left, semi and anti joins
SELECT plan('SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k');
SELECT plan('SELECT o.id, i.v FROM outr o LEFT JOIN inr i ON i.k = o.k AND i.v > o.id WHERE i.v IS NULL OR o.id > 5');
SELECT plan('SELECT o.id FROM outr o WHERE EXISTS (SELECT FROM inr i WHERE i.k = o.k AND i.v > o.id)');
SELECT plan('SELECT o.id FROM outr o WHERE NOT EXISTS (SELECT FROM inr i WHERE i.k = o.k)');
SELECT plan('SELECT i.v FROM inr i WHERE i.k IN (SELECT o.k FROM outr o)');
SELECT joined('SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k');
SELECT joined('SELECT o.id, i.v FROM outr o LEFT JOIN inr i ON i.k = o.k');
SELECT joined('SELECT o.id, i.v FROM outr o LEFT JOIN inr i ON i.k = o.k AND i.v > o.id WHERE i.v IS NULL OR o.id > 5');
SELECT joined('SELECT o.id FROM outr o WHERE EXISTS (SELECT FROM inr i WHERE i.k = o.k AND i.v > o.id)');
SELECT joined('SELECT o.id FROM outr o WHERE NOT EXISTS (SELECT FROM inr i WHERE i.k = o.k)');
SELECT joined('SELECT o.id FROM outr o WHERE NOT EXISTS (SELECT FROM inr i WHERE i.k = o.k AND i.v > o.id)');
SELECT joined('SELECT i.v FROM inr i WHERE i.k IN (SELECT o.k FROM outr o)');
-- what may be wanted of the table: system columns, the whole row, nothing
SELECT joined('SELECT i.ctid, i.tableoid::regclass, i, o FROM outr o LEFT JOIN inr i ON i.k = o.k AND i.v < 30');
SELECT joined('SELECT o.id, count(*), count(i) FROM outr o LEFT JOIN inr i ON i.k = o.k GROUP BY o.id');
SELECT joined('SELECT count(*) FROM outr o JOIN inr i ON i.k = o.k');
-- other types of the family, expressions, strings
SELECT joined('SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k8');
SELECT joined('SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k8 - 1');
SELECT joined('SELECT o.id, i.v FROM outr o JOIN inr i ON i.t = o.t AND i.v <> o.id');
SELECT joined('SELECT o.id, i.v FROM outr o LEFT JOIN inr i ON i.t = ''t'' || o.k');

-- index-only, and of pages that are not all-visible too
SELECT plan('SELECT o.id, i.k FROM outr o JOIN inr i ON i.k = o.k8');
SELECT joined('SELECT o.id, i.k FROM outr o JOIN inr i ON i.k = o.k8');
BEGIN;
UPDATE inr SET v = v + 1 WHERE id % 50 = 3;
UPDATE inr SET k = k + 1 WHERE id % 50 = 4;
DELETE FROM inr WHERE id % 50 = 5;
SELECT joined('SELECT o.id, i.k FROM outr o LEFT JOIN inr i ON i.k = o.k8');
SELECT joined('SELECT o.id FROM outr o WHERE EXISTS (SELECT FROM inr i WHERE i.k = o.k)');
ROLLBACK;

-- several columns, constants and parameters among them; partial; expressions
CREATE TABLE several (a int4, b text, c int8, d bool);
INSERT INTO several SELECT i % 20, 't' || i % 40, i, i % 3 = 0 FROM generate_series(1, 2000) i;
CREATE INDEX several_a_b ON several USING pmhash (a, b);
CREATE INDEX several_c ON several USING pmhash (c) WHERE d;
CREATE INDEX several_e ON several USING pmhash ((c % 100)) WHERE a > 3;
ANALYZE several;
SET enable_seqscan = off;
SELECT joined('SELECT o.id, s.c FROM outr o JOIN several s ON s.a = o.k AND s.b = o.t');
SELECT joined('SELECT o.id, s.c FROM outr o LEFT JOIN several s ON s.a = 7 AND s.b = o.t');
SELECT joined('SELECT o.id, s.c FROM outr o JOIN several s ON s.c = o.k AND s.d');
SELECT joined('SELECT o.id, s.c FROM outr o LEFT JOIN several s ON s.c = o.k AND s.d AND s.a <> 4');
SELECT joined('SELECT o.id, s.c FROM outr o JOIN several s ON s.c % 100 = o.k8 AND s.a > 5');
-- not all columns: that would be a sweep
SELECT count(*) FROM plan('SELECT o.id, s.c FROM outr o JOIN several s ON s.a = o.k') line WHERE line LIKE '%pmhash join%';
-- the predicate does not follow
SELECT count(*) FROM plan('SELECT o.id, s.c FROM outr o JOIN several s ON s.c = o.k') line WHERE line LIKE '%pmhash join%';
RESET enable_seqscan;

-- LIMIT reads hardly more than it needs
CREATE FUNCTION analyzed(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
		line := regexp_replace(explain_line(line), 'Memory Usage: [0-9]+ kB', 'Memory Usage: N kB');
		IF line IS NOT NULL THEN
			RETURN NEXT line;
		END IF;
	END LOOP;
END $$;
SELECT analyzed('SELECT o.id, i.v FROM outr o JOIN inr i ON i.t = o.t WHERE o.id > 100 LIMIT 1');
SELECT analyzed('SELECT o.id, i.v FROM outr o JOIN inr i ON i.t = o.t AND i.v % 7 <> 3 WHERE o.id > 100');
-- rescans
SELECT o.id, (SELECT count(*) FROM outr x JOIN inr i ON i.k = x.k WHERE x.id < o.id) FROM outr o WHERE o.id < 12 ORDER BY o.id;
SELECT o.id, l.* FROM outr o, LATERAL (SELECT sum(i.v), count(*) FROM outr x JOIN inr i ON i.k = x.k AND i.v > o.id WHERE x.k = o.k OFFSET 0) l WHERE o.id < 9 ORDER BY o.id;
SELECT o.id, l.v FROM outr o LEFT JOIN LATERAL (SELECT i.v FROM outr x JOIN inr i ON i.k = x.k WHERE x.id = o.id ORDER BY 1 LIMIT 2) l ON true WHERE o.id < 9 ORDER BY 1, 2;

-- cursors: FETCH, put away at COMMIT, scrolled (through a Material)
BEGIN;
DECLARE c CURSOR FOR SELECT o.id, i.id FROM outr o JOIN inr i ON i.t = o.t WHERE o.id IN (1, 2, 100) ORDER BY o.id, i.id;
FETCH 3 FROM c;
DECLARE s SCROLL CURSOR FOR SELECT o.id, i.id FROM outr o JOIN inr i ON i.t = o.t WHERE o.id < 3;
FETCH 2 FROM s;
FETCH BACKWARD 1 FROM s;
DECLARE h CURSOR WITH HOLD FOR SELECT o.id, i.id FROM outr o JOIN inr i ON i.t = o.t WHERE o.id < 3;
FETCH 1 FROM h;
-- rows that come while a cursor is open are not its rows
INSERT INTO inr VALUES (1, 1, 't1', 1);
FETCH 20 FROM c;
COMMIT;
FETCH 2 FROM h;
CLOSE h;
DELETE FROM inr WHERE id = 1 AND v = 1 AND k = 1 AND ctid <> (SELECT min(ctid) FROM inr WHERE id = 1);

-- what the transaction has queued is found, what it has taken back is not
BEGIN;
INSERT INTO inr SELECT 20000 + i, 3, 'queued', 20000 + i FROM generate_series(1, 100) i;
SAVEPOINT s;
INSERT INTO inr SELECT 30000 + i, 3, 'queued', 30000 + i FROM generate_series(1, 100) i;
SELECT count(*) FROM outr o JOIN inr i ON i.k = o.k WHERE o.id = 3 AND i.t = 'queued';
ROLLBACK TO s;
SELECT count(*) FROM outr o JOIN inr i ON i.k = o.k WHERE o.id = 3 AND i.t = 'queued';
ROLLBACK;

-- INSERT and CREATE TABLE AS may be fed; what EvalPlanQual might see again is not
SELECT plan('INSERT INTO outr SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k');
SELECT plan('CREATE TABLE fed AS SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k');
RESET cpu_index_tuple_cost;
SET enable_memoize = off;
CREATE FUNCTION uses_join(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line LIKE '%pmhash join%' THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN false;
END $$;
SELECT query, uses_join(query) FROM unnest(ARRAY[
	'SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k',
	'SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k FOR UPDATE',
	'SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k FOR SHARE OF o',
	'SELECT x.id FROM outr x, (SELECT o.id FROM outr o JOIN inr i ON i.k = o.k OFFSET 0) y WHERE x.id = y.id FOR UPDATE OF x',
	'UPDATE outr SET k8 = i.v FROM inr i WHERE i.k = outr.k',
	'UPDATE outr SET k8 = (SELECT max(i.v) FROM outr o JOIN inr i ON i.k = o.k WHERE o.id = outr.id)',
	'DELETE FROM outr WHERE EXISTS (SELECT FROM inr i WHERE i.k = outr.k)',
	'WITH w AS (SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k OFFSET 0) UPDATE outr SET k8 = w.v FROM w WHERE w.id = outr.id'
	]) query;
-- volatile conditions, the switch
SELECT query, uses_join(query) FROM unnest(ARRAY[
	'SELECT o.id, random() FROM outr o JOIN inr i ON i.k = o.k',
	'SELECT o.id FROM outr o JOIN inr i ON i.k = o.k AND random() < 0.5',
	'SELECT o.id FROM outr o JOIN inr i ON i.k = o.k + random()::int',
	'SELECT o.id FROM outr o JOIN inr i ON i.k = o.k AND i.v > random()',
	'SELECT o.id FROM outr o FULL JOIN inr i ON i.k = o.k'
	]) query;
SET pmhash.enable_join = off;
SELECT uses_join('SELECT o.id, i.v FROM outr o JOIN inr i ON i.k = o.k');
RESET pmhash.enable_join;

-- row security: what guards rows comes first
CREATE ROLE join_reader;
CREATE FUNCTION tell(v int4) RETURNS bool LANGUAGE plpgsql STABLE COST 0.0000001 AS $$
BEGIN
	RAISE NOTICE 'seen: %', v;
	RETURN true;
END $$;
CREATE TABLE guarded (k int4, v int4);
INSERT INTO guarded SELECT i % 3, i FROM generate_series(1, 9) i;
CREATE INDEX guarded_k ON guarded USING pmhash (k);
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON guarded USING (v % 2 = 0);
ANALYZE guarded;
GRANT SELECT ON guarded, outr TO join_reader;
SET ROLE join_reader;
SET enable_seqscan = off;
SET cpu_index_tuple_cost = 1000;
SELECT plan('SELECT g.v FROM outr o JOIN guarded g ON g.k = o.k AND tell(g.v) WHERE o.id = 1');
SELECT g.v FROM outr o JOIN guarded g ON g.k = o.k AND tell(g.v) WHERE o.id = 1 ORDER BY 1;
RESET ROLE;
RESET enable_seqscan;
DROP TABLE guarded;
DROP OWNED BY join_reader;
DROP ROLE join_reader;
DROP FUNCTION tell(int4);

-- statistics: an index scan for each key, as a nested loop counts
SET cpu_index_tuple_cost = 1000;
SELECT pg_stat_force_next_flush();
SELECT pg_stat_reset_single_table_counters('inr_k'::regclass);
SELECT count(i.v) FROM outr o JOIN inr i ON i.k = o.k WHERE o.id < 9 AND i.v < 100;
SELECT pg_stat_force_next_flush();
-- (dead entries may still be there, or not)
SELECT idx_scan, idx_tup_read >= idx_tup_fetch AS read, idx_tup_fetch FROM pg_stat_user_indexes WHERE indexrelname = 'inr_k';

-- a temporary table has buffers of another kind
CREATE TEMP TABLE temporary AS SELECT * FROM inr;
CREATE INDEX temporary_k ON temporary USING pmhash (k);
ANALYZE temporary;
SELECT joined('SELECT o.id, i.v FROM outr o LEFT JOIN temporary i ON i.k = o.k');
-- an empty table, and an outer one without rows
CREATE TABLE empty (k int4, v int4);
CREATE INDEX empty_k ON empty USING pmhash (k);
SET enable_seqscan = off;
SELECT joined('SELECT o.id, i.v FROM outr o LEFT JOIN empty i ON i.k = o.k');
SELECT joined('SELECT o.id, i.v FROM (SELECT * FROM outr WHERE id < 0) o LEFT JOIN inr i ON i.k = o.k');
RESET enable_seqscan;

-- work_mem is kept
SET work_mem = '64kB';
SELECT joined('SELECT o.id, i.v, o.t FROM outr o JOIN inr i ON i.t = o.t');
SELECT joined('SELECT o.id, o.v, i.v FROM inr o JOIN inr i ON i.t = o.t WHERE i.id < 1000');
RESET work_mem;
-- also if it becomes less than what the rows of an open cursor have taken
CREATE TABLE few (k int4);
INSERT INTO few SELECT generate_series(0, 6);
CREATE INDEX few_k ON few USING pmhash (k);
ANALYZE few;
DO $$
DECLARE
	c refcursor;
	n int8;
BEGIN
	OPEN c FOR SELECT g FROM generate_series(1, 20000) g JOIN few f ON f.k = g % 7;
	MOVE FORWARD 10000 FROM c;
	PERFORM set_config('work_mem', '64kB', true);
	MOVE FORWARD ALL FROM c;
	GET DIAGNOSTICS n = ROW_COUNT;
	RAISE NOTICE '% rows are left', n;
END $$;
DROP TABLE few;

-- outer rows are copied, which a nested loop does not do: wide ones cost
CREATE TABLE wide (k int4, t text);
INSERT INTO wide SELECT i, 't' FROM generate_series(1, 500) i;
CREATE TABLE narrow (k int4, v int4);
INSERT INTO narrow SELECT i, i FROM generate_series(1, 10000) i;
CREATE INDEX narrow_k ON narrow USING pmhash (k);
VACUUM ANALYZE wide, narrow;
RESET cpu_index_tuple_cost;
SELECT uses_join('SELECT w.t, n.v FROM wide w JOIN narrow n ON n.k = w.k') AS width_2;
UPDATE pg_statistic SET stawidth = 2000 WHERE starelid = 'wide'::regclass AND staattnum = 2;
SELECT uses_join('SELECT w.t, n.v FROM wide w JOIN narrow n ON n.k = w.k') AS width_2000;
UPDATE pg_statistic SET stawidth = 1000000 WHERE starelid = 'wide'::regclass AND staattnum = 2;
SELECT uses_join('SELECT w.t, n.v FROM wide w JOIN narrow n ON n.k = w.k') AS width_1000000;
SELECT uses_join('SELECT n.v FROM wide w JOIN narrow n ON n.k = w.k') AS not_wanted;
SET cpu_index_tuple_cost = 1000;
DROP TABLE wide, narrow;

-- to its user it is a nested loop over an index scan: it obeys what these obey, and is
-- still there where nothing else is
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
RESET cpu_index_tuple_cost;
CREATE TABLE probing (k int4, x int4);
INSERT INTO probing SELECT i * 97 % 20000, i FROM generate_series(1, 500) i;
CREATE TABLE probed (k int4, y int4, pad text);
INSERT INTO probed SELECT i, i, repeat('x', 100) FROM generate_series(1, 20000) i;
CREATE INDEX probed_k ON probed USING pmhash (k);
VACUUM ANALYZE probing, probed;
CREATE FUNCTION uses_join_without(variadic settings text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answers text := '';
	query text;
BEGIN
	PERFORM set_config(setting, 'off', true) FROM unnest(settings) setting;
	FOREACH query IN ARRAY ARRAY[
		'SELECT p.x, q.pad FROM probing p JOIN probed q USING (k)',
		'SELECT p.x, q.pad FROM probing p LEFT JOIN probed q USING (k)',
		'SELECT p.x FROM probing p WHERE EXISTS (SELECT FROM probed q WHERE q.k = p.k AND q.y > 7)',
		'SELECT p.x FROM probing p WHERE NOT EXISTS (SELECT FROM probed q WHERE q.k = p.k AND q.y > 7)']
	LOOP
		answers := concat_ws(' ', answers, CASE WHEN uses_join(query) THEN 'join' ELSE '-' END);
	END LOOP;
	PERFORM set_config(setting, 'on', true) FROM unnest(settings) setting;
	RETURN ltrim(answers);
END $$;
SELECT uses_join_without('enable_sort');
SELECT uses_join_without('enable_nestloop');
SELECT uses_join_without('enable_nestloop', 'enable_mergejoin');
SELECT uses_join_without('enable_nestloop', 'enable_hashjoin');
SELECT uses_join_without('enable_mergejoin', 'enable_hashjoin');
SELECT uses_join_without('enable_indexscan');
SELECT uses_join_without('enable_indexscan', 'enable_bitmapscan');
-- a page scan obeys as the index scan that it is
SET enable_seqscan = off;
SELECT plan('SELECT * FROM inr WHERE k = 5') LIMIT 1;
SET enable_indexscan = off;
SELECT plan('SELECT * FROM inr WHERE k = 5') LIMIT 1;
RESET enable_indexscan;
RESET enable_seqscan;
-- all that is left is disabled: the cheapest is taken all the same
CREATE TABLE only_way (k int4, v int4);
CREATE INDEX only_way_k ON only_way USING pmhash (k);
INSERT INTO only_way SELECT i, i FROM generate_series(1, 50000) i;
VACUUM ANALYZE only_way;
SET enable_nestloop = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET cpu_index_tuple_cost = 1000;
SELECT uses_join('SELECT p.x, q.v FROM probing p JOIN only_way q USING (k)');
SELECT count(*) FROM probing p JOIN only_way q USING (k);
DROP FUNCTION uses_join_without(text[]);
DROP TABLE probing, probed, only_way;

DROP FUNCTION joined(text), uses_join(text), analyzed(text);
DROP TABLE outr, inr, several, empty;
RESET ALL;
