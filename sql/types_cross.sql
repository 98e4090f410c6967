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

-- dates and timestamps have families of their own, as in core's hash
CREATE TABLE crossing (d date, ts timestamp);
INSERT INTO crossing SELECT '2000-01-01'::date + i, '2000-01-01'::date + i FROM generate_series(0, 9) i;
CREATE INDEX crossing_d ON crossing USING pmhash (d);
SELECT * FROM answers('SELECT * FROM crossing WHERE d = ''2000-01-05''::date', 'crossing_d');
SELECT * FROM answers('SELECT * FROM crossing WHERE d = ''2000-01-05''::timestamp', 'crossing_d');
DROP TABLE crossing;
