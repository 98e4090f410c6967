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
CREATE TABLE joins.ten (k bigint, pad text);
INSERT INTO joins.ten
	SELECT (g * 7919::bigint) % 10000019 % 10, repeat('x', 16) FROM generate_series(1, :rows) g;
CREATE TABLE joins.hit (k bigint);
INSERT INTO joins.hit
	SELECT ((1 + g * 104729::bigint % :rows) * 7919) % 10000019 FROM generate_series(1, :probes) g;
CREATE TABLE joins.miss (k bigint);
INSERT INTO joins.miss SELECT -k - 1 FROM joins.hit;
CREATE TABLE joins.some (k bigint);
INSERT INTO joins.some SELECT k FROM joins.hit LIMIT :probes / 10;
VACUUM (FREEZE, ANALYZE) joins.big, joins.many, joins.ten, joins.hit, joins.miss, joins.some;

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
		set_config('enable_nestloop', (way LIKE 'nested loop%' OR way = 'pmhash join')::text, false),
		set_config('cpu_index_tuple_cost', CASE way WHEN 'pmhash join' THEN '1000' ELSE '0.005' END, false),
		set_config('pmhash.enable_join', (way = 'pmhash join')::text, false),
		set_config('enable_seqscan', 'on', false), set_config('enable_material', 'off', false),
		set_config('enable_memoize', 'off', false), set_config('enable_bitmapscan', 'off', false),
		set_config('max_parallel_workers_per_gather', '0', false);
END $$;

-- All rows of one of ten values, by the index; instead of a hash join: by a sequential scan.
-- Once before that is timed: a session that has not met the table's buffers yet spends twice
-- as long on page faults as on the rows.
CREATE PROCEDURE joins.take_value(way text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM count(pad) FROM joins.ten;
	PERFORM set_config('enable_seqscan', (way = 'hash join')::text, false),
		set_config('enable_indexscan', (way <> 'hash join')::text, false);
	CALL joins.take('all rows of a value', way, 'SELECT count(pad) FROM joins.ten WHERE k = 3');
	PERFORM set_config('enable_seqscan', 'on', false), set_config('enable_indexscan', 'on', false);
END $$;

-- Keys that stand in the statement, which is how a program sends them: what reading them
-- takes counts.
CREATE PROCEDURE joins.take_constant(way text) LANGUAGE plpgsql AS $$
DECLARE
	keys text := (SELECT array_agg(k)::text FROM joins.some);
BEGIN
	CALL joins.take('= ANY (constant)', way,
		format('SELECT count(pad) FROM joins.big WHERE k = ANY (%L::bigint[])', keys));
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
	IF way <> 'nested loop, hash' THEN
		CALL joins.take_value(way);
		CALL joins.take_constant(way);
	END IF;
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
			WHEN m.figure = 'all rows of a value' THEN (SELECT count(*) FROM joins.ten WHERE k = 3)
			WHEN m.figure IN ('IN (sub-query)', '= ANY (constant)', 'hit, 10 rows a key') THEN (SELECT count(*) FROM joins.some)
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
ORDER BY array_position(ARRAY['hit', 'hit, 10 rows a key', 'miss', 'key only', 'IN (sub-query)',
	'= ANY (constant)', 'all rows of a value', 'LIMIT 1'], figure);
