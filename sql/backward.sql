--
-- Cursors that go backward: with SCROLL only, as with gin and gist; then the rows in
-- reverse that they have given, whatever the scan is.
--
CREATE TABLE back (k int4, g int4, t text);
INSERT INTO back SELECT i, i % 5, 'row ' || i FROM generate_series(1, 20000) i;
CREATE INDEX back_k ON back USING pmhash (k);
CREATE INDEX back_g ON back USING pmhash (g);
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

SELECT to_and_fro('SELECT t FROM back WHERE g = 3', 60);
SELECT to_and_fro('SELECT t FROM back WHERE g = 3', 60, true);
SELECT to_and_fro('SELECT k FROM back WHERE k = ANY (ARRAY(SELECT generate_series(3, 5000)))', 60);
SELECT to_and_fro('SELECT t FROM back WHERE g = 2 LIMIT 100 OFFSET 33', 60);
SELECT plan('DECLARE c SCROLL CURSOR FOR SELECT t FROM back WHERE k = 5');
SELECT plan('DECLARE c CURSOR FOR SELECT t FROM back WHERE k = 5');
SELECT pg_indexam_has_property(oid, 'can_unique') = (current_setting('server_version_num')::int >= 180000) AS can_unique_from_18, pg_index_has_property('back_k', 'backward_scan') AS backward_scan
FROM pg_am WHERE amname = 'pmhash';

-- without SCROLL
\set QUIET off
BEGIN;
DECLARE c CURSOR FOR SELECT g FROM back WHERE g = 1;
MOVE 5 IN c;
FETCH BACKWARD 1 FROM c;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT g FROM back WHERE g = 1;
MOVE 5 IN c;
FETCH ABSOLUTE 2 FROM c;
ROLLBACK;
BEGIN;
DECLARE c CURSOR FOR SELECT g FROM back WHERE g = 1;
MOVE 5 IN c;
FETCH ABSOLUTE 7 FROM c;
MOVE FORWARD ALL IN c;
CLOSE c;
-- what is deleted meanwhile, and removed, is still there for the cursor
DECLARE c SCROLL CURSOR FOR SELECT g FROM back WHERE g = 1;
MOVE FORWARD ALL IN c;
DELETE FROM back WHERE g = 1;
MOVE BACKWARD ALL IN c;
MOVE FORWARD ALL IN c;
ROLLBACK;

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
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT v FROM rewound WHERE k = 1;
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
