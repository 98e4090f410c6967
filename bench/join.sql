-- Tables and functions of bench/join.sh.  psql variables: rows, probes.
CREATE EXTENSION pmhash;
CREATE SCHEMA joins;

-- keys in no order: 10000019 is a prime beyond the most rows
CREATE TABLE joins.big (k bigint, pad text);
INSERT INTO joins.big
	SELECT (g * 7919::bigint) % 10000019, repeat('x', 16) FROM generate_series(1, :rows) g;
CREATE TABLE joins.many (k bigint, pad text);
INSERT INTO joins.many
	SELECT (g * 7919::bigint) % 10000019 % (:rows / 10), repeat('x', 16)
	FROM generate_series(1, :rows) g;
CREATE TABLE joins.hit (k bigint);
INSERT INTO joins.hit
	SELECT ((1 + g * 104729::bigint % :rows) * 7919) % 10000019 FROM generate_series(1, :probes) g;
CREATE TABLE joins.miss (k bigint);
INSERT INTO joins.miss SELECT -k - 1 FROM joins.hit;
CREATE TABLE joins.some (k bigint);
INSERT INTO joins.some SELECT k FROM joins.hit LIMIT :probes / 10;
VACUUM (FREEZE, ANALYZE) joins.big, joins.many, joins.hit, joins.miss, joins.some;

CREATE TABLE joins.result (figure text, way text, seconds float8, answer text);

-- Run a query; note its time and answer.
CREATE PROCEDURE joins.take(figure text, way text, query text) LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
	answer text;
BEGIN
	EXECUTE query INTO answer;
	INSERT INTO joins.result
		VALUES (figure, way, extract(epoch FROM clock_timestamp() - began), answer);
END $$;

-- One way of joining and no other, where there is a choice.
CREATE PROCEDURE joins.choose(way text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('enable_hashjoin', (way = 'hash join')::text, false),
		set_config('enable_mergejoin', (way = 'merge join')::text, false),
		set_config('enable_nestloop', (way LIKE 'nested loop%')::text, false),
		set_config('pmhash.enable_join', (way = 'pmhash join')::text, false),
		set_config('enable_seqscan', 'on', false), set_config('enable_material', 'off', false),
		set_config('enable_memoize', 'off', false), set_config('enable_bitmapscan', 'off', false),
		set_config('max_parallel_workers_per_gather', '0', false);
END $$;

-- Each figure once.  Rows of the outer table alone are taken off in the report.
CREATE PROCEDURE joins.round(way text) LANGUAGE plpgsql AS $$
BEGIN
	CALL joins.choose(way);
	CALL joins.take('hit', way, 'SELECT count(b.pad) FROM joins.hit p JOIN joins.big b ON b.k = p.k');
	CALL joins.take('hit, 10 rows a key', way, 'SELECT count(b.pad) FROM joins.some p JOIN joins.many b ON b.k = p.k');
	CALL joins.take('miss', way, 'SELECT count(*) FROM joins.miss p WHERE NOT EXISTS (SELECT FROM joins.big b WHERE b.k = p.k)');
	CALL joins.take('IN (sub-query)', way, 'SELECT count(b.pad) FROM joins.big b WHERE b.k IN (SELECT k FROM joins.some)');
	CALL joins.take('key only', way, 'SELECT count(b.k) FROM joins.hit p JOIN joins.big b ON b.k = p.k');
	CALL joins.take('LIMIT 1', way, 'SELECT count(*) FROM (SELECT b.pad FROM joins.hit p JOIN joins.big b ON b.k = p.k LIMIT 1) l');
END $$;

-- What it takes to read the outer tables.
CREATE PROCEDURE joins.outer_alone() LANGUAGE plpgsql AS $$
BEGIN
	CALL joins.take('hit', 'outer', 'SELECT count(k) FROM joins.hit');
	CALL joins.take('hit, 10 rows a key', 'outer', 'SELECT count(k) FROM joins.some');
	CALL joins.take('miss', 'outer', 'SELECT count(k) FROM joins.miss');
	CALL joins.take('IN (sub-query)', 'outer', 'SELECT count(k) FROM (SELECT DISTINCT k FROM joins.some) d');
	CALL joins.take('key only', 'outer', 'SELECT count(k) FROM joins.hit');
END $$;

CREATE VIEW joins.median AS
SELECT figure, way, percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS seconds
FROM joins.result GROUP BY figure, way;

-- Nanoseconds per key, less the outer table.
CREATE VIEW joins.per_key AS
SELECT m.figure, m.way,
	(m.seconds - coalesce(o.seconds, 0)) * 1e9 /
		CASE WHEN m.figure = 'LIMIT 1' THEN 1
			WHEN m.figure IN ('IN (sub-query)', 'hit, 10 rows a key') THEN (SELECT count(*) FROM joins.some)
			ELSE (SELECT count(*) FROM joins.hit) END AS ns
FROM joins.median m LEFT JOIN joins.median o ON o.figure = m.figure AND o.way = 'outer'
WHERE m.way <> 'outer';

CREATE VIEW joins.report AS
SELECT figure,
	round(max(ns) FILTER (WHERE way = 'nested loop, btree')) AS btree,
	round(max(ns) FILTER (WHERE way = 'nested loop, hash')) AS hash,
	round(max(ns) FILTER (WHERE way = 'nested loop, pmhash')) AS pmhash,
	round(max(ns) FILTER (WHERE way = 'hash join')) AS "hash join",
	round(max(ns) FILTER (WHERE way = 'pmhash join')) AS "pmhash join",
	round((max(ns) FILTER (WHERE way = 'nested loop, pmhash') /
		max(ns) FILTER (WHERE way = 'pmhash join'))::numeric, 1) AS "times pmhash",
	round((max(ns) FILTER (WHERE way = 'nested loop, btree') /
		max(ns) FILTER (WHERE way = 'pmhash join'))::numeric, 1) AS "times btree"
FROM joins.per_key GROUP BY figure
ORDER BY array_position(ARRAY['hit', 'hit, 10 rows a key', 'miss', 'key only', 'IN (sub-query)', 'LIMIT 1'], figure);

-- ---- does the planner choose well? ----

CREATE TABLE joins.grid (outer_rows bigint, inner_rows bigint, per_key int, hits int,
	way text, plan text, seconds float8);

CREATE FUNCTION joins.plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	plan text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		plan := coalesce(plan, substring(line FROM '(pmhash join|Hash Join|Merge Join|Nested Loop)'));
	END LOOP;
	RETURN plan;
END $$;

-- A point: what the planner takes by itself, and each other way.
CREATE PROCEDURE joins.point(n_outer bigint, n_inner bigint, per_key int, hits int) LANGUAGE plpgsql AS $$
DECLARE
	query text := 'SELECT count(i.pad) FROM joins.o JOIN joins.i USING (k)';
	w text;
	began timestamptz;
	ignored text;
BEGIN
	DROP TABLE IF EXISTS joins.o, joins.i;
	CREATE TABLE joins.i AS SELECT (g * 7919) % 10000019 % (n_inner / per_key) AS k, repeat('x', 16) AS pad
		FROM generate_series(1, n_inner) g;
	CREATE TABLE joins.o AS SELECT (g * 104729) % 10000019 % (n_inner / per_key) * CASE WHEN g % 100 < hits THEN 1 ELSE -1 END AS k
		FROM generate_series(1, n_outer) g;
	CREATE INDEX ON joins.i USING pmhash (k);
	ANALYZE joins.o;
	ANALYZE joins.i;
	COMMIT;
	EXECUTE 'SELECT count(pad) FROM joins.i' INTO ignored;
	FOREACH w IN ARRAY ARRAY['chosen', 'hash join', 'merge join', 'nested loop, pmhash', 'pmhash join'] LOOP
		IF w = 'chosen' THEN
			PERFORM set_config(name, 'on', false) FROM unnest('{enable_hashjoin,enable_mergejoin,enable_nestloop,pmhash.enable_join,enable_material,enable_memoize,enable_bitmapscan}'::text[]) name;
		ELSE
			CALL joins.choose(w);
		END IF;
		FOR run IN 1 .. 3 LOOP
			began := clock_timestamp();
			EXECUTE query INTO ignored;
			INSERT INTO joins.grid VALUES (n_outer, n_inner, per_key, hits, w, joins.plan_of(query),
				extract(epoch FROM clock_timestamp() - began));
		END LOOP;
	END LOOP;
END $$;

CREATE VIEW joins.regrets AS
WITH m AS (SELECT outer_rows, inner_rows, per_key, hits, way, min(plan) AS plan,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS seconds
	FROM joins.grid GROUP BY 1, 2, 3, 4, 5)
SELECT outer_rows, inner_rows, per_key, hits || ' %' AS hits,
	max(plan) FILTER (WHERE way = 'chosen') AS chosen,
	round(1000 * max(seconds) FILTER (WHERE way = 'chosen')::numeric, 1) AS ms,
	round(1000 * max(seconds) FILTER (WHERE way = 'hash join')::numeric, 1) AS "hash join",
	round(1000 * max(seconds) FILTER (WHERE way = 'merge join')::numeric, 1) AS "merge join",
	round(1000 * max(seconds) FILTER (WHERE way LIKE 'nested%')::numeric, 1) AS "nested loop",
	round(1000 * max(seconds) FILTER (WHERE way = 'pmhash join')::numeric, 1) AS "pmhash join",
	round((max(seconds) FILTER (WHERE way = 'chosen') /
		min(seconds) FILTER (WHERE way NOT IN ('chosen', 'pmhash join')))::numeric, 2) AS "of best other"
FROM m GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;
