--
-- Comparisons across the types of a family.
--
CREATE TABLE crossing (i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, t text, n name);
INSERT INTO crossing
	SELECT v, v, v, v, v, 'x' || v, 'x' || v
	FROM unnest('{-32768,-32767,-129,-128,-1,0,1,127,128,255,256,32766,32767}'::int4[]) v;
INSERT INTO crossing (i4, i8, f4, f8)
	SELECT v, v, v, v
	FROM unnest('{-2147483648,-32769,32768,65535,65536,2147483647}'::int4[]) v;
INSERT INTO crossing (i8, f8)
	SELECT v, v
	FROM unnest('{-9223372036854775808,-4294967297,-4294967296,-2147483649,2147483648,4294967295,4294967296,9223372036854775807}'::int8[]) v;
INSERT INTO crossing (f4, f8)
	VALUES ('-0', '0'), ('0', '-0'), ('NaN', 'NaN'), ('Infinity', '-Infinity'),
		   (0.1, 0.1), (0.5, 0.5), ('1e-45', '1e-45'), ('3.4e38', '3.4e38');
-- the processor's own NaN has other bits than the one that is read
INSERT INTO crossing (f4, f8)
	VALUES ('Infinity'::float4 - 'Infinity'::float4, 'Infinity'::float8 - 'Infinity'::float8);
INSERT INTO crossing (t, n) VALUES ('', ''), ('x ', 'x'), ('x', 'x '), (repeat('y', 63), repeat('y', 63)), (repeat('y', 64), repeat('y', 63));

CREATE INDEX crossing_i2 ON crossing USING pmhash (i2);
CREATE INDEX crossing_i4 ON crossing USING pmhash (i4);
CREATE INDEX crossing_i8 ON crossing USING pmhash (i8);
CREATE INDEX crossing_f4 ON crossing USING pmhash (f4);
CREATE INDEX crossing_f8 ON crossing USING pmhash (f8);
CREATE INDEX crossing_t ON crossing USING pmhash (t);
CREATE INDEX crossing_n ON crossing USING pmhash (n COLLATE "C");

-- every value of every column against every other column's index
SELECT outside, inside, a.*
FROM (VALUES ('i2', 'i4'), ('i2', 'i8'), ('i4', 'i2'), ('i4', 'i8'), ('i8', 'i2'), ('i8', 'i4'),
			 ('f4', 'f8'), ('f8', 'f4')) p (outside, inside),
	 answers(format('SELECT o.%1$I, c.%2$I, c.ctid FROM (SELECT %1$I FROM crossing OFFSET 0) o JOIN crossing c ON c.%2$I = o.%1$I',
					outside, inside), 'crossing_' || inside) a;
-- names and texts compare under one collation only
SELECT * FROM answers('SELECT o.n, c.t, c.ctid FROM (SELECT n FROM crossing OFFSET 0) o JOIN crossing c ON c.t = o.n COLLATE "default"', 'crossing_t');
SELECT * FROM answers('SELECT o.t, c.n, c.ctid FROM (SELECT t FROM crossing OFFSET 0) o JOIN crossing c ON c.n = o.t COLLATE "C"', 'crossing_n');

-- constants that are out of range of the column's type
SELECT * FROM answers('SELECT i2 FROM crossing WHERE i2 = 65536', 'crossing_i2');
SELECT * FROM answers('SELECT i2 FROM crossing WHERE i2 = 4294967296', 'crossing_i2');
SELECT * FROM answers('SELECT i2 FROM crossing WHERE i2 = (-32768)::int8', 'crossing_i2');
SELECT * FROM answers('SELECT i4 FROM crossing WHERE i4 = 4294967295', 'crossing_i4');
SELECT * FROM answers('SELECT i4 FROM crossing WHERE i4 = (-1)::int8', 'crossing_i4');
SELECT * FROM answers('SELECT f4 FROM crossing WHERE f4 = 0.1::float8', 'crossing_f4');
SELECT * FROM answers('SELECT f4 FROM crossing WHERE f4 = ''-0''::float8', 'crossing_f4');
SELECT * FROM answers('SELECT f8 FROM crossing WHERE f8 = ''NaN''::float4', 'crossing_f8');
-- two arguments of different types in one scan
SELECT * FROM answers('SELECT i4 FROM crossing WHERE i4 = (SELECT 128::int8) AND i4 = (SELECT 128::int2)', 'crossing_i4');
-- lists of another type
SELECT * FROM answers('SELECT i4 FROM crossing WHERE i4 = ANY (''{1,127,4294967295,NULL,127,-2147483648}''::int8[])', 'crossing_i4');
SELECT * FROM answers('SELECT i8 FROM crossing WHERE i8 = ANY (''{1,127,NULL,127,-32768}''::int2[])', 'crossing_i8');
-- no family has these: a sequential scan
SELECT * FROM answers('SELECT i4 FROM crossing WHERE i4 = 1.0', 'crossing_i4');
SELECT * FROM answers('SELECT i4 FROM crossing WHERE i4 = 1::oid', 'crossing_i4');
DROP TABLE crossing;

--
-- Dates and timestamps: one is brought to the type of the column in the session's zone.
--
CREATE TABLE moments (d date, ts timestamp, tz timestamptz, k int4);
-- days on which clocks were changed, at midnight most of them; Apia had no 2011-12-30
CREATE TABLE changes AS
	SELECT unnest('{2011-12-30,2018-02-18,2018-11-04,2020-10-04,2020-03-22,2021-03-28,2021-10-31,2023-03-30,2023-04-28}'::date[]) AS day;
INSERT INTO moments (d) SELECT day + i FROM changes, generate_series(-1, 2) i;
INSERT INTO moments (ts) SELECT day + i * interval '30 min' FROM changes, generate_series(-6, 54, 2) i;
INSERT INTO moments (ts) SELECT day + i * interval '30 min' FROM changes, generate_series(-3, 9, 2) i;
INSERT INTO moments (tz)
	SELECT (day + i * interval '30 min') AT TIME ZONE 'UTC' FROM changes, generate_series(-52, 52, 2) i;
INSERT INTO moments (tz)
	SELECT (day + i * interval '30 min') AT TIME ZONE 'UTC' FROM changes, generate_series(-3, 15, 2) i;
INSERT INTO moments (d, ts, tz)
	VALUES ('-infinity', '-infinity', '-infinity'), ('infinity', 'infinity', 'infinity'), (NULL, NULL, NULL),
		   ('2000-01-01', '2000-01-01', '2000-01-01 00:00+00'), ('1999-12-31', '1999-12-31 23:59:59.999999', '1999-12-31 23:59:59.999999+00'),
		   ('4714-11-24 BC', '4714-11-24 BC', '4714-11-24 00:00+00 BC'),
		   ('4714-11-25 BC', '4714-11-24 12:00 BC', '4714-11-24 12:00+00 BC'),
		   ('294276-12-31', '294276-12-31', '294276-12-31 00:00+00'),
		   ('294277-01-01', '294276-12-31 12:00', '294276-12-31 12:00+00'),
		   ('5874897-12-31', '294276-12-31 23:59:59.999999', '294276-12-31 10:00+00');
UPDATE moments SET k = 1;
CREATE INDEX moments_d ON moments USING pmhash (d);
CREATE INDEX moments_ts ON moments USING pmhash (ts);
CREATE INDEX moments_tz ON moments USING pmhash (tz);
VACUUM ANALYZE moments;

-- every value against every other column's index, and all of them as a list, in each zone.
-- (Compared with the operators alone: after a gap a btree does not find all, and a merge
-- join fails, as timestamps and the instants that they are equal to are ordered otherwise.)
CREATE FUNCTION moments_answer(zone text, OUT outside text, OUT inside text, OUT rows int, OUT by_index text, OUT by_bitmap text,
							   OUT listed int, OUT list_by_index text, OUT list_by_bitmap text)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	wanted text[];
	query text;
	index text;
BEGIN
	PERFORM set_config('TimeZone', zone, true);
	FOR outside, inside IN VALUES ('ts', 'd'), ('tz', 'd'), ('d', 'ts'), ('tz', 'ts'), ('d', 'tz'), ('ts', 'tz') LOOP
		index := 'moments_' || inside;
		EXECUTE format('SELECT array_agg(q::text) FROM (SELECT o.%1$I, c.%2$I, c.ctid FROM moments o, moments c WHERE o.%1$I IS NOT NULL AND c.%2$I IS NOT NULL AND (c.%2$I = o.%1$I) IS TRUE) q',
					   outside, inside) INTO wanted;
		query := format('SELECT o.%1$I, c.%2$I, c.ctid FROM (SELECT %1$I FROM moments OFFSET 0) o JOIN moments c ON c.%2$I = o.%1$I',
						outside, inside);
		rows := cardinality(wanted);
		by_index := index_difference(query, index, wanted);
		by_bitmap := difference(rows_by('bitmap', query, index), wanted);
		EXECUTE format('SELECT array_agg(q::text) FROM (SELECT c.%2$I FROM moments c WHERE c.%2$I IS NOT NULL AND EXISTS (SELECT FROM moments o WHERE o.%1$I IS NOT NULL AND (c.%2$I = o.%1$I) IS TRUE)) q',
					   outside, inside) INTO wanted;
		query := format('SELECT %2$I FROM moments WHERE %2$I = ANY (ARRAY(SELECT %1$I FROM moments))', outside, inside);
		listed := cardinality(wanted);
		list_by_index := index_difference(query, index, wanted);
		list_by_bitmap := difference(rows_by('bitmap', query, index), wanted);
		RETURN NEXT;
	END LOOP;
END $$;
SELECT zone, a.*
FROM unnest('{UTC,Pacific/Apia,America/Sao_Paulo,Africa/Cairo,Asia/Beirut,America/Asuncion,Europe/Berlin,Pacific/Kiritimati,Etc/GMT+12,"FOO-100BAR-101,M3.2.0,M11.1.0"}'::text[]) zone,
	 moments_answer(zone) a;

-- two dates, and two timestamps, at one instant
SET TimeZone = 'Pacific/Apia';
SELECT d FROM moments WHERE d = '2011-12-30 10:00+00'::timestamptz ORDER BY d;
SET TimeZone = 'Europe/Berlin';
SELECT ts FROM moments WHERE ts = '2021-03-28 01:30+00'::timestamptz ORDER BY ts;
-- an instant that clocks showed twice is the second one
SELECT tz AT TIME ZONE 'UTC' AS utc FROM moments WHERE tz = '2021-10-31 02:30'::timestamp;

-- plans: look-ups, by the index alone; joins; of several values equal to one none
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT * FROM plan('SELECT tz FROM moments WHERE tz = ''2021-10-31 02:30''::timestamp');
SELECT * FROM plan('SELECT k FROM moments WHERE tz = ''2021-10-31''::date');
SELECT * FROM plan('SELECT k FROM moments WHERE ''2021-10-31 00:00''::timestamp = d');
SELECT * FROM plan('SELECT k FROM moments WHERE ts = ANY (''{2021-10-31 02:30+02,2021-10-31 02:30+01}''::timestamptz[])');
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
SELECT * FROM plan('SELECT count(c.k) FROM (SELECT ts FROM moments OFFSET 0) o JOIN moments c ON c.tz = o.ts');
SELECT * FROM plan('SELECT count(c.k) FROM (SELECT tz FROM moments OFFSET 0) o JOIN moments c ON c.ts = o.tz');
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
RESET enable_memoize;
SELECT * FROM pmhash.explain('moments_tz', 'tz = ''2021-10-31 02:30''::timestamp');
SELECT * FROM pmhash.explain('moments_ts', 'ts = now()');

-- a generic plan, whose time zone is that of each execution
SET plan_cache_mode = force_generic_plan;
PREPARE by_timestamp(timestamp) AS SELECT tz AT TIME ZONE 'UTC' AS utc FROM moments WHERE tz = $1;
PREPARE by_list(timestamp[]) AS SELECT count(tz) FROM moments WHERE tz = ANY ($1);
PREPARE by_instant(timestamptz) AS SELECT d FROM moments WHERE d = $1 ORDER BY d;
SELECT * FROM plan('EXECUTE by_timestamp(''2021-03-28 02:30'')');
EXECUTE by_timestamp('2021-03-28 02:30');
EXECUTE by_list('{2021-03-28 02:30,2021-03-28 03:30}');
EXECUTE by_instant('2011-12-30 10:00+00');
SET TimeZone = 'UTC';
EXECUTE by_timestamp('2021-03-28 02:30');
EXECUTE by_list('{2021-03-28 02:30,2021-03-28 03:30}');
EXECUTE by_instant('2011-12-30 10:00+00');
SET TimeZone = 'Pacific/Apia';
EXECUTE by_timestamp('2021-03-28 02:30');
EXECUTE by_instant('2011-12-30 10:00+00');
-- in a parallel worker, too
SELECT set_config(CASE WHEN current_setting('server_version_num')::int < 160000
				  THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END, 'on', false);
EXECUTE by_timestamp('2021-03-28 02:30');
EXECUTE by_instant('2011-12-30 10:00+00');
SELECT set_config(CASE WHEN current_setting('server_version_num')::int < 160000
				  THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END, 'off', false);
DEALLOCATE ALL;
RESET plan_cache_mode;
-- a function that gives another argument to each rescan
SELECT day, (SELECT count(*) FROM moments WHERE tz = day + time '12:00'), (SELECT count(*) FROM moments WHERE d = day + time '00:00')
FROM changes ORDER BY day;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- several columns, one of which several keys are equal to
DROP INDEX moments_d;
CREATE INDEX moments_two ON moments USING pmhash (d, k);
SELECT * FROM answers('SELECT d, k FROM moments WHERE d = ''2011-12-30 10:00+00''::timestamptz AND k = ANY (''{0,1}''::int8[])', 'moments_two');
SELECT * FROM answers('SELECT d, k FROM moments WHERE d = ''2011-12-31 00:00''::timestamp AND k = 1::int8', 'moments_two');
SELECT * FROM answers('SELECT d, k FROM moments WHERE d = ''2011-12-31 00:01''::timestamp AND k = 1::int8', 'moments_two');
-- unique by the column's own type
CREATE TABLE moment_once (tz timestamptz, EXCLUDE USING pmhash (tz WITH =));
INSERT INTO moment_once VALUES ('2021-10-31 02:30'::timestamp);
INSERT INTO moment_once VALUES ('2021-10-31 02:30'::timestamp);
SET TimeZone = 'UTC';
INSERT INTO moment_once VALUES ('2021-10-31 02:30'::timestamp);
RESET TimeZone;
DROP FUNCTION moments_answer;
DROP TABLE moments, moment_once, changes;
