--
-- MERGE that finds its rows by pmhash: the table afterwards is the same as without
-- the index.
--
CREATE TABLE merged (id int4, k int4, v int4, t text);
CREATE TABLE source (k int4, v int4);
CREATE FUNCTION fill() RETURNS void LANGUAGE sql AS $$
	TRUNCATE merged, source;
	INSERT INTO merged SELECT i, i % 500, 0, 'row ' || i FROM generate_series(1, 2000) i;
	INSERT INTO merged VALUES (2001, NULL, 0, 'null');
	INSERT INTO source SELECT i * 7, i FROM generate_series(1, 100) i;
	INSERT INTO source VALUES (NULL, 200);
$$;
SELECT fill();
CREATE INDEX merged_k ON merged USING pmhash (k);
VACUUM ANALYZE merged, source;

-- Plans of one kind: 'loop', 'bitmap', 'join', or without the index.
CREATE FUNCTION by_way(way text) RETURNS void LANGUAGE sql AS $$
SELECT set_config('enable_seqscan', (way = 'table')::text, false), set_config('enable_hashjoin', (way = 'table')::text, false), set_config('enable_mergejoin', (way = 'table')::text, false),
	set_config('enable_indexscan', (way IN ('loop', 'join'))::text, false), set_config('enable_bitmapscan', (way = 'bitmap')::text, false),
	set_config('enable_indexonlyscan', (way IN ('loop', 'join'))::text, false),
	set_config('cpu_index_tuple_cost', CASE way WHEN 'join' THEN '1000' ELSE '0.005' END, false),
	set_config('pmhash.enable_join', (way = 'join')::text, false), set_config('enable_material', 'off', false),
	set_config('enable_memoize', 'off', false), set_config('max_parallel_workers_per_gather', '0', false)
$$;
CREATE FUNCTION contents() RETURNS text LANGUAGE sql AS $$
SELECT count(*) || ' rows, ' || sum(v) || ', ' || md5(string_agg(m::text, ' ' ORDER BY m::text)) FROM merged m
$$;
-- What a statement makes of the table by each way, and which ways use the index.
CREATE FUNCTION merge_by_each_way(statement text, OUT rows text, OUT by_loop text, OUT by_bitmap text, OUT by_join text) LANGUAGE plpgsql AS $$
DECLARE
	way text;
	wanted text;
	got text;
	line text;
	said jsonb := '{}';
BEGIN
	FOREACH way IN ARRAY '{table,loop,bitmap,join}'::text[] LOOP
		PERFORM by_way('table'), fill(), by_way(way);
		got := 'by table';
		FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || statement LOOP
			IF line ~ 'merged_k' THEN
				got := CASE WHEN got ~ 'join' OR line ~ 'Index Name' THEN 'by join' ELSE 'by index' END;
			END IF;
		END LOOP;
		EXECUTE statement;
		PERFORM by_way('table');
		IF way = 'table' THEN
			wanted := contents();
		ELSIF contents() <> wanted THEN
			got := got || ', differs: ' || contents();
		END IF;
		said := said || jsonb_build_object(way, got);
	END LOOP;
	rows := regexp_replace(wanted, ', \w+$', '');
	by_loop := said->>'loop'; by_bitmap := said->>'bitmap'; by_join := said->>'join';
END $$;

SELECT m.* FROM unnest(ARRAY[
	'MERGE INTO merged m USING source s ON m.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v',
	'MERGE INTO merged m USING source s ON m.k = s.k WHEN MATCHED THEN DELETE',
	'MERGE INTO merged m USING source s ON m.k = s.k WHEN NOT MATCHED THEN INSERT VALUES (5000, s.k, s.v, ''new'')',
	'MERGE INTO merged m USING source s ON m.k = s.k WHEN MATCHED AND m.id < 700 THEN UPDATE SET k = m.k + 1, v = s.v '
		'WHEN MATCHED AND m.id > 1500 THEN DELETE WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED AND s.v % 2 = 0 THEN INSERT VALUES (5000, s.k, s.v, ''new'')',
	'MERGE INTO merged m USING source s ON m.k = s.k AND m.v = 0 AND m.id % 3 = 0 WHEN MATCHED THEN UPDATE SET k = -m.k WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)',
	'MERGE INTO merged m USING (SELECT k, sum(v) AS v FROM source GROUP BY k) s ON m.k = s.k WHEN MATCHED THEN UPDATE SET v = m.v + s.v',
	'MERGE INTO merged m USING (VALUES (7), (14), (5000)) s(k) ON m.k = s.k WHEN MATCHED THEN UPDATE SET v = 1, t = t || s.k WHEN NOT MATCHED THEN INSERT VALUES (1, s.k, 9, NULL)',
	'MERGE INTO merged m USING (SELECT 7 AS k) s ON m.k = s.k WHEN MATCHED THEN UPDATE SET v = v + 1 WHEN NOT MATCHED THEN INSERT VALUES (1, s.k, 1, NULL)',
	-- the source is looked up, and the target read
	'MERGE INTO source s USING (SELECT * FROM merged WHERE k = ANY (''{7,14,21,1000}'') AND id < 500) m ON m.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v + m.id',
	-- a join of ours is not to be executed again when a row has changed (EvalPlanQual): nowhere in the statement
	'WITH s AS MATERIALIZED (SELECT a.id, s.v FROM source s JOIN merged a ON a.k = s.k) MERGE INTO merged m USING s ON m.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v + 1'
	]) statement, merge_by_each_way(statement) m;

-- a row of the target that two of the source match
SELECT by_way('table'), fill(), by_way('loop');
INSERT INTO source VALUES (7, 1000);
MERGE INTO merged m USING source s ON m.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v;
SELECT by_way('bitmap');
MERGE INTO merged m USING source s ON m.k = s.k WHEN MATCHED THEN DELETE;
SELECT by_way('table');

-- rows that the transaction has inserted itself, and taken back; the rows that MERGE
-- inserts are not its own target
SELECT fill();
BEGIN;
INSERT INTO merged SELECT 3000 + i, 504 + i % 7, 0, 'queued' FROM generate_series(1, 70) i;
SAVEPOINT s;
INSERT INTO merged SELECT 4000 + i, 504 + i % 7, 0, 'gone' FROM generate_series(1, 70) i;
ROLLBACK TO s;
SELECT by_way('loop');
MERGE INTO merged m USING source s ON m.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (6000, s.k, s.v, 'merged');
MERGE INTO merged m USING source s ON m.k = s.k WHEN MATCHED AND m.id = 6000 THEN UPDATE SET v = m.v + 1 WHEN MATCHED AND m.t = 'queued' THEN DELETE;
SELECT by_way('table');
SELECT count(*), count(*) FILTER (WHERE t = 'queued'), sum(v) FROM merged WHERE k >= 500;
ROLLBACK;

-- a trigger that looks up what the statement has written so far
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.t := (SELECT count(*) FROM merged WHERE k = NEW.k);
	RETURN NEW;
END $$;
CREATE TRIGGER look BEFORE INSERT OR UPDATE ON merged FOR EACH ROW EXECUTE FUNCTION look();
SELECT by_way('loop');
MERGE INTO merged m USING (SELECT g AS k FROM unnest('{7,7000,7000,7000}'::int4[]) g) s ON m.k = s.k
	WHEN MATCHED THEN UPDATE SET k = 7000 WHEN NOT MATCHED THEN INSERT VALUES (7000, s.k, 0, NULL);
SELECT id, k, t FROM merged WHERE k = 7000 ORDER BY id, t;
DROP TRIGGER look ON merged;
SELECT by_way('table');

-- partitions, between which rows go
CREATE TABLE parted (k int4, v int4) PARTITION BY RANGE (k);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (100) TO (1000);
CREATE INDEX parted_k ON parted USING pmhash (k);
INSERT INTO parted SELECT i % 200, 0 FROM generate_series(1, 2000) i;
VACUUM ANALYZE parted;
SELECT by_way('loop');
MERGE INTO parted p USING source s ON p.k = s.k WHEN MATCHED AND s.k < 100 THEN UPDATE SET k = p.k + 100, v = 1
	WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.k < 300 THEN INSERT VALUES (s.k, 2);
SELECT by_way('table');
SELECT tableoid::regclass, count(*), sum(v), sum(k) FROM parted GROUP BY 1 ORDER BY 1;
SELECT * FROM every_key('parted', 'k', 'parted_1_k_idx');
SELECT * FROM every_key('merged', 'k', 'merged_k');
SELECT pmhash.check('merged_k'), pmhash.check('parted_1_k_idx'), pmhash.check('parted_2_k_idx');
RESET ALL;
DROP TABLE merged, source, parted;
DROP FUNCTION fill, by_way, contents, merge_by_each_way, look;
