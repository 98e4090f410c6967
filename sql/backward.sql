--
-- Cursors that go backward: the rows in reverse that it has given, whatever
-- the scan is.
--
CREATE TABLE back (k int4, g int4, t text);
INSERT INTO back SELECT i, i % 5, 'row ' || i FROM generate_series(1, 60000) i;
CREATE INDEX back_k ON back USING pmhash (k);
CREATE INDEX back_g ON back USING pmhash (g);
CREATE INDEX back_gt ON back USING pmhash (g, t);
VACUUM ANALYZE back;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET max_parallel_workers_per_gather = 0;

-- Go to and fro in a cursor, by steps of all sizes, beyond both ends too, and
-- compare with what it gave when it went forward.
CREATE FUNCTION to_and_fro(query text, steps int, begin_with_last bool DEFAULT false)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	row_text text;
	seen text[];
	n int;
	at int := 0;
	step int;
	wrong int := 0;
BEGIN
	PERFORM setseed(0.5);
	OPEN c SCROLL FOR EXECUTE query;
	IF begin_with_last THEN
		FETCH LAST FROM c INTO row_text;
		MOVE ABSOLUTE 0 FROM c;
	END IF;
	LOOP
		FETCH c INTO row_text;
		EXIT WHEN NOT FOUND;
		seen[at + 1] := row_text;
		at := at + 1;
	END LOOP;
	n := at;
	at := n + 1;
	FOR i IN 1..steps LOOP
		step := CASE WHEN random() < 0.5 THEN trunc(random() * 7) - 3
			ELSE trunc(random() * 3 * n) - 1.5 * n END;
		CONTINUE WHEN step = 0;
		row_text := NULL;
		FETCH RELATIVE step FROM c INTO row_text;
		at := least(greatest(at + step, 0), n + 1);
		IF row_text IS DISTINCT FROM seen[at] THEN
			wrong := wrong + 1;
		END IF;
	END LOOP;
	CLOSE c;
	RETURN format('%s rows, %s of them different, %s wrong', n,
		(SELECT count(DISTINCT s) FROM unnest(seen) s), wrong);
END $$;

SELECT to_and_fro('SELECT t FROM back WHERE k = 5', 40);
SELECT to_and_fro('SELECT t FROM back WHERE k = -5', 40);
SELECT to_and_fro('SELECT t FROM back WHERE g = 3', 60);
SELECT to_and_fro('SELECT t FROM back WHERE g = 3', 60, true);
-- index-only
SELECT plan('SELECT k FROM back WHERE k = ANY (''{1,2,3}'')');
SELECT to_and_fro('SELECT k FROM back WHERE k = ANY (ARRAY(SELECT generate_series(3, 5000)))', 60);
UPDATE back SET t = t WHERE k BETWEEN 1000 AND 2000;
SELECT to_and_fro('SELECT k FROM back WHERE k = ANY (ARRAY(SELECT generate_series(3, 5000)))', 60, true);
-- = ANY with keys that have many rows, and none
SELECT to_and_fro('SELECT t FROM back WHERE g = ANY (''{1,4,77}'')', 40);
SELECT to_and_fro('SELECT t FROM back WHERE k = ANY (''{}'')', 10);
SELECT to_and_fro('SELECT t FROM back WHERE k = NULL', 10);
-- LIMIT, and several scans one after the other
SELECT to_and_fro('SELECT t FROM back WHERE g = 2 LIMIT 100 OFFSET 33', 60);
SELECT plan('SELECT t FROM back WHERE g = 2 UNION ALL SELECT t FROM back WHERE k = 9 UNION ALL SELECT t FROM back WHERE g = 3');
SELECT to_and_fro('SELECT t FROM back WHERE g = 2 UNION ALL SELECT t FROM back WHERE k = 9 UNION ALL SELECT t FROM back WHERE g = 3', 40);
-- the index from end to end
SET enable_indexonlyscan = off;
BEGIN;
DROP INDEX back_g;
SELECT plan('SELECT t FROM back WHERE g = 3');
SELECT to_and_fro('SELECT t FROM back WHERE g = 3', 30);
ROLLBACK;
RESET enable_indexonlyscan;
-- more than work_mem holds
SET work_mem = '64kB';
SELECT to_and_fro('SELECT t FROM back WHERE g = 3', 40);
SELECT to_and_fro('SELECT k FROM back WHERE k = ANY (ARRAY(SELECT generate_series(3, 20000)))', 40);
RESET work_mem;

-- no SCROLL, as with btree and hash
\set QUIET off
BEGIN;
DECLARE c CURSOR FOR SELECT g FROM back WHERE g = 1;
MOVE BACKWARD 1 IN c;
FETCH 1 FROM c;
MOVE BACKWARD 1 IN c;
MOVE FORWARD 7000 IN c;
MOVE BACKWARD 6000 IN c;
MOVE FORWARD ALL IN c;
MOVE BACKWARD ALL IN c;
MOVE 5 IN c;
-- what is deleted meanwhile, and removed, is still there for the cursor
SAVEPOINT s;
DELETE FROM back WHERE g = 1;
MOVE BACKWARD 3 IN c;
ROLLBACK TO s;
MOVE FORWARD ALL IN c;
MOVE BACKWARD ALL IN c;
CLOSE c;
DECLARE c NO SCROLL CURSOR FOR SELECT g FROM back WHERE g = 1;
MOVE 2 IN c;
MOVE BACKWARD 1 IN c;
ROLLBACK;
SELECT pg_indexam_has_property(oid, 'can_unique') = (current_setting('server_version_num')::int >= 180000) AS can_unique_from_18, pg_index_has_property('back_k', 'backward_scan') AS backward_scan
FROM pg_am WHERE amname = 'pmhash';
-- a cursor over a sort, a hash join or a nested loop is not our business
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT b.t FROM generate_series(1, 3) s JOIN back b ON b.k = s;
FETCH ALL FROM c;
FETCH BACKWARD ALL FROM c;
ROLLBACK;

-- only scans that can be turned back remember: 16 bytes for each of 12000 rows
CREATE FUNCTION remembers() RETURNS bool LANGUAGE sql VOLATILE AS
	$$ SELECT max(used_bytes) > 100000 FROM pg_backend_memory_contexts WHERE name = 'pmhash scan' $$;
CREATE FUNCTION query_in_function() RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	answer bool;
BEGIN
	SELECT bool_or(CASE WHEN k % 1000 = 3 THEN remembers() END) INTO answer FROM back WHERE g = 3;
	RETURN answer;
END $$;
CREATE FUNCTION loop_in_function() RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	r record;
	answer bool;
BEGIN
	FOR r IN SELECT CASE WHEN k % 1000 = 3 THEN remembers() END AS answer FROM back WHERE g = 3 LOOP
		answer := coalesce(answer, false) OR coalesce(r.answer, false);
	END LOOP;
	RETURN answer;
END $$;
CREATE FUNCTION answer_of_cursor(c refcursor) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	one bool;
	answer bool;
BEGIN
	LOOP
		FETCH c INTO one;
		EXIT WHEN NOT FOUND;
		answer := coalesce(answer, false) OR coalesce(one, false);
	END LOOP;
	CLOSE c;
	RETURN answer;
END $$;
CREATE FUNCTION in_cursor(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
BEGIN
	OPEN c SCROLL FOR EXECUTE query;
	RETURN answer_of_cursor(c);
END $$;
SELECT in_cursor('SELECT CASE WHEN k % 1000 = 3 THEN remembers() END FROM back WHERE g = 3') AS cursor,
	in_cursor('SELECT CASE WHEN k % 1000 = 3 THEN remembers() END FROM back WHERE k = 7 UNION ALL
		(SELECT CASE WHEN k % 1000 = 3 THEN remembers() END FROM back WHERE g = 3 LIMIT 100000)') AS below_append,
	in_cursor('SELECT CASE WHEN k % 1000 = 3 THEN remembers() END AS r FROM back WHERE g = 3 ORDER BY r NULLS FIRST') AS below_sort,
	in_cursor('SELECT (SELECT bool_or(CASE WHEN k % 1000 = 3 THEN remembers() END) FROM back WHERE g = 3) FROM back WHERE k = 7') AS in_subplan,
	in_cursor('SELECT query_in_function() FROM back WHERE k = 7') AS in_function,
	in_cursor('SELECT loop_in_function() FROM back WHERE k = 7') AS in_loop;
BEGIN;
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT CASE WHEN k % 1000 = 3 THEN remembers() END AS held FROM back WHERE g = 3;
MOVE 100 IN c;
COMMIT;
SELECT answer_of_cursor('c') AS held;
DROP FUNCTION query_in_function, loop_in_function, in_cursor, answer_of_cursor, remembers;

-- rewound, what was given before comes first again, however the list has changed
CREATE TABLE rewound (k int4, v int4);
INSERT INTO rewound SELECT 1, i FROM generate_series(1, 3000) i;
CREATE INDEX rewound_k ON rewound USING pmhash (k);
CREATE FUNCTION after_rewind(n int) RETURNS TABLE (rows bigint, "different" bigint, "as before" bool)
LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	v int4;
	before int4[];
	later int4[];
BEGIN
	OPEN c SCROLL FOR SELECT r.v FROM rewound r WHERE k = 1;
	FOR i IN 1 .. n LOOP
		FETCH c INTO v;
		before := before || v;
	END LOOP;
	INSERT INTO rewound SELECT 1, -i FROM generate_series(1, 500) i;
	MOVE ABSOLUTE 0 FROM c;
	LOOP
		FETCH c INTO v;
		EXIT WHEN NOT FOUND;
		later := later || v;
	END LOOP;
	CLOSE c;
	DELETE FROM rewound r WHERE r.v < 0;
	RETURN QUERY SELECT count(*), count(DISTINCT u), later[1:n] = before FROM unnest(later) u;
END $$;
SELECT n, a.* FROM unnest(ARRAY[1, 50, 700, 1300, 2999]) n, LATERAL after_rewind(n) a;
DROP FUNCTION after_rewind;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT v FROM rewound WHERE k = 1;
MOVE 700 IN c;
INSERT INTO rewound SELECT 1, -i FROM generate_series(1, 500) i;
COMMIT;
CREATE FUNCTION rest_of_cursor(c refcursor) RETURNS SETOF int4 LANGUAGE plpgsql AS $$
DECLARE
	v int4;
BEGIN
	LOOP
		FETCH c INTO v;
		EXIT WHEN NOT FOUND;
		RETURN NEXT v;
	END LOOP;
	MOVE ABSOLUTE 0 FROM c;
	FOR i IN 1 .. 700 LOOP
		FETCH c INTO v;
		RETURN NEXT v;
	END LOOP;
END $$;
SELECT count(*), count(DISTINCT r), min(r) FROM rest_of_cursor('c') r;
CLOSE c;
DROP FUNCTION rest_of_cursor;
DROP TABLE rewound;
\set QUIET on
RESET ALL;
DROP FUNCTION to_and_fro;
DROP TABLE back;
