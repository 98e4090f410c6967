--
-- Every type that pmhash can index: each value is found by its index as by a
-- sequential scan, whether it was there when the index was built or came
-- later.
--

-- A table of one column of this type with these values, all of them twice and
-- some NULLs, with an index built half way.  Every row by a join with its own
-- keys, and every value once more as a constant.
CREATE FUNCTION check_type(typ text, vals text[], OUT type text, OUT rows int,
						   OUT by_index text, OUT by_bitmap text, OUT constants text)
LANGUAGE plpgsql AS $$
DECLARE
	v text;
	one record;
	wrong int := 0;
	unused int := 0;
BEGIN
	type := typ;
	EXECUTE format('CREATE TABLE typed (id int4 GENERATED ALWAYS AS IDENTITY, k %s)', typ);
	EXECUTE format('INSERT INTO typed (k) SELECT v::%s FROM unnest($1) WITH ORDINALITY u(v, n) WHERE n %% 2 = 0', typ)
		USING vals;
	INSERT INTO typed VALUES (DEFAULT, NULL);
	CREATE INDEX typed_k ON typed USING pmhash (k);
	EXECUTE format('INSERT INTO typed (k) SELECT v::%s FROM unnest($1) WITH ORDINALITY u(v, n) WHERE n %% 2 = 1', typ)
		USING vals;
	EXECUTE format('INSERT INTO typed (k) SELECT v::%s FROM unnest($1) u(v)', typ)
		USING vals;
	INSERT INTO typed VALUES (DEFAULT, NULL);
	SELECT e.rows, e.by_index, e.by_bitmap INTO rows, by_index, by_bitmap
	FROM every_key('typed', 'k', 'typed_k') e;
	FOREACH v IN ARRAY vals LOOP
		-- the key alone: where an index-only scan is possible this is one
		SELECT * INTO one FROM answers(format('SELECT k FROM typed WHERE k = %L::%s', v, typ), 'typed_k');
		IF one.by_index = 'not used' THEN
			unused := unused + 1;
		ELSIF one.by_index <> 'same' OR one.by_bitmap <> 'same' OR one.rows < 2 THEN
			wrong := wrong + 1;
		END IF;
	END LOOP;
	constants := format('%s right, %s wrong, %s unused',
						cardinality(vals) - wrong - unused, wrong, unused);
	DROP TABLE typed;
END $$;

-- integers and what looks like them
SELECT * FROM check_type('int2', '{-32768,-32767,-256,-1,0,1,255,256,32766,32767}');
SELECT * FROM check_type('int4', '{-2147483648,-2147483647,-65536,-32769,-1,0,1,32768,65535,65536,2147483646,2147483647}');
SELECT * FROM check_type('int8', '{-9223372036854775808,-9223372036854775807,-4294967296,-2147483649,-1,0,1,2147483648,4294967295,4294967296,9223372036854775806,9223372036854775807}');
SELECT * FROM check_type('int8', (SELECT array_agg((hashint8extended(i, 1) # (i << 40))::text) FROM generate_series(1, 200) i));
SELECT * FROM check_type('oid', '{0,1,2147483647,2147483648,4294967295}');
SELECT * FROM check_type('regclass', '{pg_class,pg_type,pg_proc}');
SELECT * FROM check_type('xid', '{0,1,2147483648,4294967295}');
SELECT * FROM check_type('cid', '{0,1,2147483648,4294967295}');
SELECT * FROM check_type('xid8', '{0,1,4294967296,18446744073709551615}');
SELECT * FROM check_type('money', '{-92233720368547758.08,-0.01,0,0.01,1,92233720368547758.07}');
-- the planner makes "k" of "k = true", and knows only core's own families to be of booleans
SELECT * FROM check_type('bool', '{f,t}');
SELECT * FROM check_type('"char"', '{a,Z,"","\\377","\\200","\\001"}');

-- dates and times
SELECT * FROM check_type('date', '{-infinity,4713-01-01 BC,1999-12-31,2000-01-01,2000-01-02,5874897-12-31,infinity}');
SELECT * FROM check_type('time', '{00:00,00:00:00.000001,12:34:56.789,23:59:59.999999,24:00}');
SELECT * FROM check_type('timetz', '{00:00+00,00:00+01,01:00+01,02:00+02,24:00-15:59,12:00:00.000001+05:30}');
SELECT * FROM check_type('timestamp', '{-infinity,4713-01-01 BC,2000-01-01,2000-01-01 00:00:00.000001,294276-12-31 23:59:59.999999,infinity}');
SELECT * FROM check_type('timestamptz', '{-infinity,2000-01-01 00:00+00,2000-01-01 01:00+01,2000-01-01 00:00:00.000001+00,294276-12-31 23:59:59.999999+00,infinity}');
SELECT * FROM check_type('interval', '{0,1 day,24 hours,30 days,1 month,720 hours,-1 day,1 year,360 days,178000000 years}');

-- addresses and identifiers
SELECT * FROM check_type('macaddr', '{00:00:00:00:00:00,00:00:00:00:00:01,01:00:00:00:00:00,08:00:2b:01:02:03,ff:ff:ff:ff:ff:ff}');
SELECT * FROM check_type('macaddr8', '{00:00:00:00:00:00:00:00,00:00:00:00:00:00:00:01,01:00:00:00:00:00:00:00,ff:ff:ff:ff:ff:ff:ff:ff}');
SELECT * FROM check_type('inet', '{10.0.0.1,10.0.0.1/8,10.0.0.1/32,10.0.0.0/8,::1,::1/64,::ffff:10.0.0.1,255.255.255.255}');
SELECT * FROM check_type('cidr', '{10.0.0.0/8,10.0.0.0/16,10.0.0.1/32,::/0,0.0.0.0/0,fe80::/10}');
SELECT * FROM check_type('uuid', '{00000000-0000-0000-0000-000000000000,00000000-0000-0000-0000-000000000001,01000000-0000-0000-0000-000000000000,ffffffff-ffff-ffff-ffff-ffffffffffff}');
SELECT * FROM check_type('pg_lsn', '{0/0,0/1,1/0,FFFFFFFF/FFFFFFFF}');
SELECT * FROM check_type('tid', '{"(0,0)","(0,1)","(1,0)","(4294967295,65535)","(65536,1)","(1,1)"}');

-- numbers: -0 = 0, NaN = NaN, scales do not matter
SELECT * FROM check_type('float4', '{0,-0,NaN,Infinity,-Infinity,1,-1,0.1,3.4e38,1e-45}');
SELECT * FROM check_type('float8', '{0,-0,NaN,Infinity,-Infinity,1,-1,0.1,1.7e308,5e-324}');
SELECT * FROM check_type('numeric', '{0,0.000,-0,NaN,Infinity,-Infinity,1,1.0,1.00000,100,1e2,0.1,1e1000,1e-1000,12345678901234567890.12345}');
SELECT * FROM check_type('numeric(10,2)', '{0,1,1.0,1.004,99999999.99}');

-- strings
SELECT * FROM check_type('text', '{"","a","a "," a","A","abcdefgh","abcdefghi","NULL"}');
SELECT * FROM check_type('text', (SELECT array_agg(repeat('x', i)) FROM generate_series(0, 300) i));
SELECT * FROM check_type('varchar(5)', '{"","a","a ","abcde"}');
SELECT * FROM check_type('char(5)', '{"","a","a ","abcde"," a"}');
SELECT * FROM check_type('bpchar', '{"","a","a   ","abcde"," a"}');
SELECT * FROM check_type('name', '{"","a","a ","A"}');
SELECT * FROM check_type('bytea', '{"","\\x00","\\x0000","\\x61","\\xff00ff"}');

-- containers
SELECT * FROM check_type('int4[]', '{"{}","{1}","{1,2}","{NULL}","{{1,2}}","[0:1]={1,2}"}');
SELECT * FROM check_type('text[]', '{"{}","{a}","{a,NULL}","{a,b}"}');
SELECT * FROM check_type('float8[]', '{"{0}","{-0}","{NaN}"}');
SELECT * FROM check_type('oidvector', '{"","1","1 2"}');
SELECT * FROM check_type('int4range', '{empty,"[1,2)","[1,1]","(,)","[5,)"}');
SELECT * FROM check_type('numrange', '{empty,"[1,2)","[1.0,2.00)","(,)"}');
SELECT * FROM check_type('tstzrange', '{empty,"[2000-01-01 00:00+00,2001-01-01 00:00+00)","[2000-01-01 01:00+01,2001-01-01 00:00+00)"}');
SELECT * FROM check_type('int4multirange', '{"{}","{[1,2)}","{[1,2),[5,9)}","{[1,3),[2,4)}","{[1,4)}"}');
SELECT * FROM check_type('jsonb', '{"null",1,1.0,"\"a\"","[]","{}","[1,2]","{\"a\": 1, \"b\": 2}","{\"b\": 2, \"a\": 1.00}"}');
SELECT * FROM check_type('aclitem', (SELECT array_agg(format(v, current_user, current_user)) FROM unnest('{=r/%I,%I=r/%I,%I=arwdDxt/%I}'::text[]) v));

-- types that users make
CREATE TYPE type_enum AS ENUM ('one', 'two', 'three');
CREATE DOMAIN type_domain AS int4 CHECK (VALUE > 0);
CREATE DOMAIN type_domain_text AS varchar(10);
CREATE DOMAIN type_domain_array AS int4[];
CREATE TYPE type_pair AS (a int4, b text);
CREATE DOMAIN type_domain_pair AS type_pair;
CREATE TYPE type_range AS RANGE (subtype = text);
ALTER TYPE type_enum ADD VALUE 'zero' BEFORE 'one';
SELECT * FROM check_type('type_enum', '{zero,one,two,three}');
SELECT * FROM check_type('type_domain', '{1,2,2147483647}');
SELECT * FROM check_type('type_domain_text', '{"",a,abc}');
SELECT * FROM check_type('type_domain_array', '{"{}","{1}"}');
SELECT * FROM check_type('type_pair', '{"(1,a)","(1,b)","(2,a)","(-1,\"\")"}');
SELECT * FROM check_type('type_domain_pair', '{"(1,a)","(2,a)"}');
SELECT * FROM check_type('type_range', '{empty,"[a,b)","[a,b]"}');
SELECT * FROM check_type('type_enum[]', '{"{}","{one}","{one,two}"}');

-- a record is "=" to another with NULLs in the same places
CREATE TABLE pairs (k type_pair);
INSERT INTO pairs VALUES ('(1,a)'), ('(1,)'), ('(,)'), (NULL);
CREATE INDEX pairs_k ON pairs USING pmhash (k);
INSERT INTO pairs SELECT * FROM pairs;
SELECT * FROM answers('SELECT * FROM pairs WHERE k = ''(1,)''::type_pair', 'pairs_k');
SELECT * FROM answers('SELECT * FROM pairs WHERE k = ''(,)''::type_pair', 'pairs_k');
SELECT * FROM answers('SELECT * FROM pairs WHERE k = ROW (1, ''a'')::type_pair', 'pairs_k');
DROP TABLE pairs;

-- record_ops needs hashable columns, as it does for hash
CREATE TYPE type_unhashable AS (p point);
CREATE TABLE unhashable (k type_unhashable);
INSERT INTO unhashable VALUES ('("(1,2)")');
CREATE INDEX ON unhashable USING pmhash (k);
DROP TABLE unhashable;

-- other operator classes than the default ones
CREATE TABLE classes (t text, v varchar, b bpchar, n cidr);
INSERT INTO classes SELECT 'x' || i, 'x' || i, 'x' || i || '  ', '10.0.0.0/8'::cidr FROM generate_series(1, 100) i;
CREATE INDEX classes_t ON classes USING pmhash (t varchar_ops);
CREATE INDEX classes_tp ON classes USING pmhash (v text_pattern_ops);
CREATE INDEX classes_vp ON classes USING pmhash (v varchar_pattern_ops);
CREATE INDEX classes_bp ON classes USING pmhash (b bpchar_pattern_ops);
CREATE INDEX classes_n ON classes USING pmhash (n cidr_ops);
SELECT * FROM every_key('classes', 't', 'classes_t');
SELECT * FROM every_key('classes', 'n', 'classes_n');
SELECT * FROM every_key('classes', 'b', 'classes_bp');
SELECT * FROM answers('SELECT * FROM classes WHERE b = ''x7''', 'classes_bp');
DROP INDEX classes_vp;
SELECT * FROM every_key('classes', 'v', 'classes_tp');
DROP TABLE classes;

-- keys of up to a megabyte: compressed, out of line, both and neither
CREATE TABLE long_keys (id int4, k text, b bytea);
ALTER TABLE long_keys ALTER COLUMN b SET STORAGE EXTERNAL;
INSERT INTO long_keys
	SELECT i, repeat(chr(65 + i % 26), 1 << (i % 21)) || i,
		   decode(repeat(md5(i::text), (1 << (i % 21)) / 16), 'hex')
	FROM generate_series(1, 63) i;
CREATE INDEX long_keys_k ON long_keys USING pmhash (k);
CREATE INDEX long_keys_b ON long_keys USING pmhash (b);
INSERT INTO long_keys SELECT id + 100, k, b FROM long_keys;
INSERT INTO long_keys
	SELECT 1000 + i, string_agg(md5(i || ',' || j), ''), NULL
	FROM generate_series(1, 5) i, generate_series(1, 32768) j GROUP BY i;
SELECT max(length(k)), max(pg_column_size(k)), max(length(b)) FROM long_keys;
SET enable_seqscan = off;
SELECT count(*) AS pairs, count(*) FILTER (WHERE found = wanted) AS right
FROM (SELECT array_agg(a.id ORDER BY a.id) AS wanted,
			 (SELECT array_agg(l.id ORDER BY l.id) FROM long_keys l WHERE l.k = a.k) AS found
	  FROM long_keys a GROUP BY a.k) s;
SET enable_bitmapscan = off;
SELECT plan('SELECT id FROM long_keys WHERE k = (SELECT ''x'')');
RESET enable_bitmapscan;
SELECT id FROM long_keys WHERE k = repeat('U', 1 << 20) || 20 ORDER BY 1;
SELECT id FROM long_keys WHERE k = repeat('U', 1 << 20) || 21;
SELECT o.id, (SELECT array_agg(l.id) FROM long_keys l WHERE l.b = o.b)
FROM long_keys o WHERE o.id IN (20, 41, 62) ORDER BY 1;
SELECT count(*) FROM long_keys WHERE k = ANY ((SELECT array_agg(k) FROM long_keys)::text[]);
RESET enable_seqscan;
DROP TABLE long_keys;

-- keys of different types in one index, with NULLs after the first column
CREATE TABLE several (a int4, b text, c numeric, d timestamptz, e int2, f uuid);
INSERT INTO several
	SELECT i % 50, CASE WHEN i % 7 > 0 THEN 'b' || i % 20 END, i % 3 / 2.0,
		   '2000-01-01 00:00+00'::timestamptz + i % 4 * interval '1 day',
		   CASE WHEN i % 5 > 0 THEN i % 11 END, md5((i % 2)::text)::uuid
	FROM generate_series(1, 3000) i;
INSERT INTO several VALUES (NULL, 'b1', 1, now(), 1, NULL);
CREATE INDEX several_all ON several USING pmhash (a, b, c, d, e, f);
CREATE INDEX several_ae ON several USING pmhash (e, a);
CREATE INDEX several_expr ON several USING pmhash (lower(b), (a + 1));
INSERT INTO several SELECT * FROM several WHERE a < 25;
ANALYZE several;
SELECT * FROM answers('SELECT * FROM several WHERE a = 1 AND b = ''b1'' AND c = 0.50 AND d = ''2000-01-02 00:00+00'' AND e = 1 AND f = md5(''1'')::uuid', 'several_all');
-- arguments of other types of the families, in any order
SELECT * FROM answers('SELECT * FROM several WHERE a = 7::int8 AND e = 7::int8', 'several_ae');
SELECT * FROM answers('SELECT s.* FROM (SELECT DISTINCT e::int8 AS e, a::int2 AS a FROM several) p JOIN several s ON s.a = p.a AND s.e = p.e', 'several_ae');
SELECT * FROM answers('SELECT * FROM several WHERE lower(b) = ''b3'' AND a + 1 = 4', 'several_expr');
-- each pair by its index, but those with a NULL
SELECT * FROM answers('SELECT s.* FROM (SELECT DISTINCT e, a FROM several) p JOIN several s ON s.a = p.a AND s.e = p.e', 'several_ae');
-- lists in several columns: all combinations
SELECT * FROM answers('SELECT * FROM several WHERE e = ANY (''{1,2,NULL,2}'') AND a IN (1, 2, 3, 12)', 'several_ae');
-- not all columns: never chosen on its merits, right when there is no other way
SELECT plan('SELECT * FROM several WHERE e = 3');
DROP INDEX several_all;
SELECT * FROM answers('SELECT * FROM several WHERE e = 3', 'several_ae');
SELECT * FROM answers('SELECT * FROM several WHERE e = ANY (''{1,2,NULL}'')', 'several_ae');
DROP INDEX several_ae;
SELECT * FROM answers('SELECT * FROM several WHERE lower(b) = ''b3''', 'several_expr');
CREATE INDEX several_be ON several USING pmhash (a, b);
SELECT * FROM answers('SELECT * FROM several WHERE a = 14', 'several_be');
SELECT * FROM answers('SELECT * FROM several WHERE a = 14 AND b IS NULL', 'several_be');
SELECT * FROM answers('SELECT * FROM several WHERE b = ''b1''', 'several_be');
DROP TABLE several;

DROP FUNCTION check_type;
DROP TYPE type_enum, type_pair, type_range, type_unhashable CASCADE;
DROP DOMAIN type_domain, type_domain_text, type_domain_array;
