--
-- Operator classes: none of core's is missing, what users make is checked and
-- works, and the planner's choice.
--

-- for every default hash operator class of core there is one of ours, with
-- the same name, type and family name (dates and timestamps have btree's family)
CREATE VIEW core_family AS
	SELECT oid, opfmethod, opfnamespace,
		   CASE WHEN opfname IN ('date_ops', 'timestamp_ops', 'timestamptz_ops') THEN 'datetime_ops'
		   ELSE opfname END AS opfname
	FROM pg_opfamily;
SELECT h.opcname, h.opcintype::regtype
FROM pg_opclass h
	 JOIN pg_am ha ON ha.oid = h.opcmethod AND ha.amname = 'hash'
	 JOIN core_family hf ON hf.oid = h.opcfamily
WHERE NOT EXISTS (
	SELECT FROM pg_opclass p
	JOIN pg_am pa ON pa.oid = p.opcmethod AND pa.amname = 'pmhash'
	JOIN pg_opfamily pf ON pf.oid = p.opcfamily
	WHERE p.opcname = h.opcname AND p.opcintype = h.opcintype AND
		  p.opcdefault = h.opcdefault AND pf.opfname = hf.opfname)
	AND h.opcnamespace = 'pg_catalog'::regnamespace;
-- and for every operator of core's hash families the same in ours
SELECT hf.opfname, ho.amopopr::regoperator
FROM pg_amop ho
	 JOIN pg_am ha ON ha.oid = ho.amopmethod AND ha.amname = 'hash'
	 JOIN core_family hf ON hf.oid = ho.amopfamily
WHERE NOT EXISTS (
	SELECT FROM pg_amop po
	JOIN pg_am pa ON pa.oid = po.amopmethod AND pa.amname = 'pmhash'
	JOIN pg_opfamily pf ON pf.oid = po.amopfamily
	WHERE pf.opfname = hf.opfname AND po.amopopr = ho.amopopr AND
		  po.amoplefttype = ho.amoplefttype AND po.amoprighttype = ho.amoprighttype)
	AND hf.opfnamespace = 'pg_catalog'::regnamespace;
-- and core's extended hash function of each type is ours, or, in PostgreSQL 18,
-- the same under another name: no type borrows one of another type any more
SELECT hf.opfname, hp.amproc::regprocedure
FROM pg_amproc hp
	 JOIN core_family hf ON hf.oid = hp.amprocfamily
	 JOIN pg_am ha ON ha.oid = hf.opfmethod AND ha.amname = 'hash'
WHERE hp.amprocnum = 2 AND NOT EXISTS (
	SELECT FROM pg_amproc pp
	JOIN pg_opfamily pf ON pf.oid = pp.amprocfamily
	JOIN pg_am pa ON pa.oid = pf.opfmethod AND pa.amname = 'pmhash'
	WHERE pf.opfname = hf.opfname AND pp.amproc = hp.amproc AND pp.amprocnum = 1 AND
		  pp.amproclefttype = hp.amproclefttype)
	AND hp.amproc::text NOT IN ('hashdateextended', 'hashboolextended', 'hashxidextended',
		'hashxid8extended', 'hashcidextended', 'hashbyteaextended', 'timestamptz_hash_extended')
	AND hf.opfnamespace = 'pg_catalog'::regnamespace;
-- and so are the operators across types of core's btree families
SELECT bf.opfname, bo.amopopr::regoperator
FROM pg_amop bo
	 JOIN pg_am ba ON ba.oid = bo.amopmethod AND ba.amname = 'btree'
	 JOIN pg_opfamily bf ON bf.oid = bo.amopfamily
WHERE bo.amopstrategy = 3 AND bo.amoplefttype <> bo.amoprighttype AND
	EXISTS (SELECT FROM pg_opclass p JOIN pg_am pa ON pa.oid = p.opcmethod AND pa.amname = 'pmhash'
			WHERE p.opcintype = bo.amoplefttype) AND
	NOT EXISTS (
	SELECT FROM pg_amop po
	JOIN pg_am pa ON pa.oid = po.amopmethod AND pa.amname = 'pmhash'
	JOIN pg_opfamily pf ON pf.oid = po.amopfamily
	WHERE pf.opfname = bf.opfname AND po.amopopr = bo.amopopr AND po.amopstrategy = 1 AND
		  po.amoplefttype = bo.amoplefttype AND po.amoprighttype = bo.amoprighttype)
	AND bf.opfnamespace = 'pg_catalog'::regnamespace;
DROP VIEW core_family;
-- what we have beyond that
SELECT p.opcname, p.opcintype::regtype
FROM pg_opclass p JOIN pg_am pa ON pa.oid = p.opcmethod AND pa.amname = 'pmhash'
WHERE NOT EXISTS (SELECT FROM pg_opclass h JOIN pg_am ha ON ha.oid = h.opcmethod AND ha.amname = 'hash'
				  WHERE h.opcname = p.opcname AND h.opcintype = p.opcintype);
-- all of them are valid
SELECT opcname FROM pg_opclass o JOIN pg_am a ON a.oid = o.opcmethod
WHERE amname = 'pmhash' AND NOT amvalidate(o.oid);

--
-- A type of one's own: hex strings, whatever their case, equal as numbers are.
--
SET client_min_messages = warning;
CREATE TYPE hexnum;
CREATE FUNCTION hexnum_in(cstring) RETURNS hexnum AS 'textin' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION hexnum_out(hexnum) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE hexnum (input = hexnum_in, output = hexnum_out, like = text);
RESET client_min_messages;
CREATE CAST (hexnum AS text) WITHOUT FUNCTION;
CREATE FUNCTION hexnum_eq(hexnum, hexnum) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT
	AS $$ BEGIN RETURN ltrim(lower($1::text), '0') = ltrim(lower($2::text), '0'); END $$;
CREATE FUNCTION hexnum_hash(hexnum, int8) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT
	AS $$ SELECT hashtextextended(ltrim(lower($1::text), '0'), $2) $$;
CREATE OPERATOR = (leftarg = hexnum, rightarg = hexnum, function = hexnum_eq,
				   commutator = =, restrict = eqsel, join = eqjoinsel);
CREATE TABLE hexes (k hexnum);
INSERT INTO hexes SELECT to_hex(i % 100)::hexnum FROM generate_series(1, 1000) i;
CREATE INDEX ON hexes USING pmhash (k);
CREATE OPERATOR CLASS hexnum_ops DEFAULT FOR TYPE hexnum USING pmhash AS
	OPERATOR 1 =, FUNCTION 1 hexnum_hash(hexnum, int8);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'hexnum_ops';
CREATE INDEX hexes_k ON hexes USING pmhash (k);
INSERT INTO hexes SELECT ('0' || upper(to_hex(i % 100)))::hexnum FROM generate_series(1, 100) i;
SELECT * FROM answers('SELECT * FROM hexes WHERE k = ''1F''', 'hexes_k');
SELECT * FROM answers('SELECT * FROM hexes WHERE k = ''001f''', 'hexes_k');
SELECT * FROM answers('SELECT * FROM hexes WHERE k = ANY (''{1,01,A,00b,NULL}''::hexnum[])', 'hexes_k');
SELECT * FROM answers('SELECT * FROM hexes WHERE k = ''fff''', 'hexes_k');

-- another type in the same family
CREATE FUNCTION hexnum_int_hash(int4, int8) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT
	AS $$ SELECT hexnum_hash(to_hex($1)::hexnum, $2) $$;
CREATE FUNCTION hexnum_eq_int(hexnum, int4) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT
	AS $$ BEGIN RETURN hexnum_eq($1, to_hex($2)::hexnum); END $$;
CREATE OPERATOR = (leftarg = hexnum, rightarg = int4, function = hexnum_eq_int,
				   restrict = eqsel, join = eqjoinsel);
ALTER OPERATOR FAMILY hexnum_ops USING pmhash ADD
	OPERATOR 1 = (hexnum, int4), FUNCTION 1 (int4, int4) hexnum_int_hash(int4, int8);
SELECT * FROM answers('SELECT * FROM hexes WHERE k = 31', 'hexes_k');
SELECT * FROM answers('SELECT h.* FROM generate_series(90, 110) g JOIN hexes h ON h.k = g', 'hexes_k');
-- not all pairs have operators: amvalidate says so
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'hexnum_ops';
-- the index needs its operator class
DROP OPERATOR CLASS hexnum_ops USING pmhash;
-- a hash function that fails: the INSERT does, and nothing else
CREATE OR REPLACE FUNCTION hexnum_hash(hexnum, int8) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT
	AS $$ SELECT hashtextextended(ltrim(lower($1::text), '0'), $2) / (CASE WHEN $1::text = 'bad' THEN 0 ELSE 1 END) $$;
INSERT INTO hexes VALUES ('bad');
-- one that returns NULL
CREATE OR REPLACE FUNCTION hexnum_hash(hexnum, int8) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT
	AS $$ SELECT CASE WHEN $1::text <> 'bad' THEN hashtextextended(ltrim(lower($1::text), '0'), $2) END $$;
\set VERBOSITY sqlstate
INSERT INTO hexes VALUES ('bad');
\set VERBOSITY default
SELECT count(*) FROM hexes;
SELECT * FROM answers('SELECT * FROM hexes WHERE k = ''1F''', 'hexes_k');
DROP TABLE hexes;
\set VERBOSITY terse
DROP TYPE hexnum CASCADE;
\set VERBOSITY default

--
-- Another equality on a type that is otherwise hashed by its bytes.
--
CREATE FUNCTION same_mod(int4, int4) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT
	AS $$ BEGIN RETURN mod($1, 10) = mod($2, 10); END $$;
CREATE FUNCTION hash_mod(int4, int8) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT
	AS $$ SELECT hashint4extended(mod($1, 10), $2) $$;
CREATE OPERATOR %% (leftarg = int4, rightarg = int4, function = same_mod,
					commutator = %%, restrict = eqsel, join = eqjoinsel);
CREATE OPERATOR CLASS mod_ops FOR TYPE int4 USING pmhash AS
	OPERATOR 1 %%, FUNCTION 1 hash_mod(int4, int8);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'mod_ops';
CREATE TABLE mods AS SELECT i AS k FROM generate_series(1, 200) i;
CREATE INDEX mods_k ON mods USING pmhash (k mod_ops);
INSERT INTO mods SELECT generate_series(201, 300);
SELECT * FROM answers('SELECT k FROM mods WHERE k %% 7', 'mods_k');
SELECT * FROM answers('SELECT k FROM mods WHERE k %% 1007', 'mods_k');
SELECT * FROM answers('SELECT k FROM mods WHERE k = 7', 'mods_k');
-- core's hash function under a coarser equality, for which it is good enough:
-- then it is the function that counts, not the bytes
CREATE FUNCTION same_int8(int8, int8) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT
	AS $$ BEGIN RETURN hashint8extended($1, 0) = hashint8extended($2, 0); END $$;
CREATE OPERATOR ~~~ (leftarg = int8, rightarg = int8, function = same_int8,
					 commutator = ~~~, restrict = eqsel, join = eqjoinsel);
CREATE OPERATOR CLASS folded_ops FOR TYPE int8 USING pmhash AS
	OPERATOR 1 ~~~, FUNCTION 1 hashint8extended(int8, int8);
CREATE TABLE folded (k int8);
INSERT INTO folded VALUES (1), (4294967296), (-4294967298), (2);
CREATE INDEX folded_k ON folded USING pmhash (k folded_ops);
SELECT k FROM folded WHERE k ~~~ 1 ORDER BY 1;
SELECT * FROM answers('SELECT k FROM folded WHERE k ~~~ 1', 'folded_k');
DROP TABLE mods, folded;

--
-- Ranges are compared by the operator class that orders their bounds; core's hash
-- function goes by the default equality of the bounds.
--
CREATE FUNCTION cmp_mod(int4, int4) RETURNS int4 LANGUAGE sql IMMUTABLE STRICT
	AS $$ SELECT btint4cmp(mod($1, 10), mod($2, 10)) $$;
CREATE OPERATOR CLASS mod_order FOR TYPE int4 USING btree AS
	OPERATOR 3 %%, FUNCTION 1 cmp_mod(int4, int4);
CREATE TYPE mod_range AS RANGE (subtype = int4, subtype_opclass = mod_order);
CREATE TYPE pattern_range AS RANGE (subtype = text, subtype_opclass = text_pattern_ops);
CREATE TYPE with_mod_range AS (i int4, r mod_range);
CREATE TABLE ordered (r mod_range, m mod_multirange, a mod_range[], c with_mod_range,
					  p pattern_range, pm pattern_multirange);
INSERT INTO ordered VALUES ('[1,3)', '{[1,3)}', '{"[1,3)"}', '(1,"[1,3)")', '[a,b)', '{[a,b)}'),
	('[11,23)', '{[11,23)}', '{"[11,23)"}', '(1,"[11,23)")', '[a,b)', '{[a,b)}');
SELECT count(*) FROM ordered WHERE r = '[1,3)' AND m = '{[1,3)}';
CREATE INDEX ON ordered USING pmhash (r);
CREATE INDEX ON ordered USING pmhash (m);
CREATE INDEX ON ordered USING pmhash (a);
CREATE INDEX ON ordered USING pmhash (c);
CREATE INDEX ordered_p ON ordered USING pmhash (p, pm);
SELECT * FROM answers('SELECT p FROM ordered WHERE p = ''[a,b)'' AND pm = ''{[a,b)}''', 'ordered_p');
DROP TABLE ordered;
DROP TYPE with_mod_range, mod_range, pattern_range;
DROP OPERATOR FAMILY mod_order USING btree CASCADE;
DROP FUNCTION cmp_mod;

--
-- What is not valid.
--
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 =;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'bad_ops';
CREATE TABLE bad (k int4);
INSERT INTO bad VALUES (1);
CREATE INDEX ON bad USING pmhash (k bad_ops);
DROP OPERATOR FAMILY bad_ops USING pmhash CASCADE;
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS FUNCTION 1 hash_mod(int4, int8);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'bad_ops';
DROP OPERATOR FAMILY bad_ops USING pmhash CASCADE;
-- A function of another form is called all the same: its result would be taken for a
-- hash, and a number for the address of a text.  hash() of one argument, of another
-- type, of text; one that returns something else, or many.
CREATE FUNCTION hash_to_numeric(int4, int8) RETURNS numeric
	RETURN $1;
CREATE FUNCTION hash_to_many(int4, int8) RETURNS SETOF int8 LANGUAGE sql IMMUTABLE
	AS 'SELECT 1::int8';
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 =, FUNCTION 1 hashint4(int4);
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 =, FUNCTION 1 hashint8extended(int8, int8);
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 =, FUNCTION 1 hashtextextended(text, int8);
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 =, FUNCTION 1 int4pl(int4, int4);
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 =, FUNCTION 1 hash_to_numeric(int4, int8);
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 =, FUNCTION 1 hash_to_many(int4, int8);
CREATE OPERATOR FAMILY bad_ops USING pmhash;
ALTER OPERATOR FAMILY bad_ops USING pmhash ADD FUNCTION 1 (int4, int4) hashint4(int4);
DROP OPERATOR FAMILY bad_ops USING pmhash;
DROP FUNCTION hash_to_numeric, hash_to_many;
-- which amvalidate says of one that is there nevertheless
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 =, FUNCTION 1 hash_mod(int4, int8);
BEGIN;
SET LOCAL allow_system_table_mods = on;
UPDATE pg_amproc SET amproc = 'hashint4(int4)'::regprocedure
WHERE amprocfamily = (SELECT oid FROM pg_opfamily WHERE opfname = 'bad_ops');
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'bad_ops';
UPDATE pg_amproc SET amproc = 'hashint8extended(int8,int8)'::regprocedure
WHERE amprocfamily = (SELECT oid FROM pg_opfamily WHERE opfname = 'bad_ops');
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'bad_ops';
ROLLBACK;
DROP OPERATOR FAMILY bad_ops USING pmhash CASCADE;
-- not "=", a second strategy, a second function, ordering, storage
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 + (int4, int4);
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 2 = (int4, int4);
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS FUNCTION 2 hash_mod(int4, int8);
CREATE OPERATOR CLASS bad_ops FOR TYPE point USING pmhash AS OPERATOR 1 <-> (point, point) FOR ORDER BY float_ops;
CREATE OPERATOR CLASS bad_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 =, FUNCTION 1 hash_mod(int4, int8), STORAGE int8;
-- types that are hashed differently cannot be in one family
ALTER OPERATOR FAMILY integer_ops USING pmhash ADD FUNCTION 1 (oid, oid) hashoidextended(oid, int8);
ALTER OPERATOR FAMILY mod_ops USING pmhash ADD FUNCTION 1 (int8, int8) hashint8extended(int8, int8);
ALTER OPERATOR FAMILY text_ops USING pmhash ADD FUNCTION 1 (bytea, bytea) hashvarlenaextended(internal, int8);
-- members of an operator class go with it
ALTER OPERATOR FAMILY integer_ops USING pmhash DROP FUNCTION 1 (int4, int4);
DROP TABLE bad;

--
-- The equality decides which way keys are hashed.  A family can lose it if it came
-- before the class; then there is no other way, but none.
--
CREATE OPERATOR FAMILY loose_ops USING pmhash;
CREATE OPERATOR CLASS loose_ops FOR TYPE int4 USING pmhash FAMILY loose_ops AS
	FUNCTION 1 hashint4extended(int4, int8);
CREATE TABLE loose AS SELECT i AS k FROM generate_series(1, 10) i;
CREATE INDEX loose_k ON loose USING pmhash (k loose_ops);
ALTER OPERATOR FAMILY loose_ops USING pmhash ADD OPERATOR 1 = (int4, int4);
SET client_min_messages = warning;
CREATE INDEX IF NOT EXISTS loose_k ON loose USING pmhash (k loose_ops);
\c -
SELECT * FROM answers('SELECT k FROM loose WHERE k = 5', 'loose_k');
DROP INDEX loose_k;
DROP OPERATOR FAMILY loose_ops USING pmhash CASCADE;
CREATE OPERATOR FAMILY loose_ops USING pmhash;
ALTER OPERATOR FAMILY loose_ops USING pmhash ADD OPERATOR 1 = (int4, int4),
	FUNCTION 1 (int4, int4) hashint4extended(int4, int8);
CREATE OPERATOR CLASS loose_ops FOR TYPE int4 USING pmhash FAMILY loose_ops AS STORAGE int4;
CREATE INDEX loose_k ON loose USING pmhash (k loose_ops);
ALTER OPERATOR FAMILY loose_ops USING pmhash DROP OPERATOR 1 (int4, int4);
\c -
INSERT INTO loose VALUES (11);
SELECT count(*) FROM loose WHERE k = 5;
-- the server does not know whether it is the same again
ALTER OPERATOR FAMILY loose_ops USING pmhash ADD OPERATOR 1 = (int4, int4);
ALTER OPERATOR FAMILY loose_ops USING pmhash ADD OPERATOR 1 %% (int4, int4);
CREATE OPERATOR CLASS loose_too FOR TYPE int4 USING pmhash FAMILY loose_ops AS OPERATOR 1 %%;
\c -
SELECT * FROM answers('SELECT k FROM loose WHERE k = 11', 'loose_k');
DROP INDEX loose_k;
ALTER OPERATOR FAMILY loose_ops USING pmhash ADD OPERATOR 1 = (int4, int4);
CREATE INDEX loose_k ON loose USING pmhash (k loose_ops);
ALTER OPERATOR FAMILY loose_ops USING pmhash ADD OPERATOR 1 %% (int4, int4);
INSERT INTO loose VALUES (11);
SELECT * FROM answers('SELECT k FROM loose WHERE k = 11', 'loose_k');
-- nor does it of the hash function
ALTER OPERATOR FAMILY loose_ops USING pmhash DROP FUNCTION 1 (int4, int4);
\c -
INSERT INTO loose VALUES (12);
ALTER OPERATOR FAMILY loose_ops USING pmhash ADD FUNCTION 1 (int4, int4) hash_mod(int4, int8);
CREATE OPERATOR CLASS loose_too FOR TYPE int4 USING pmhash FAMILY loose_ops AS
	FUNCTION 1 hash_mod(int4, int8);
\c -
SELECT * FROM answers('SELECT k FROM loose WHERE k = 11', 'loose_k');
-- without the index it gets one, which then is the one for all sessions, whatever function
-- they have known the class with
DROP INDEX loose_k;
DROP OPERATOR FAMILY loose_ops USING pmhash CASCADE;
CREATE OPERATOR FAMILY loose_ops USING pmhash;
ALTER OPERATOR FAMILY loose_ops USING pmhash ADD OPERATOR 1 = (int4, int4),
	FUNCTION 1 (int4, int4) hashint4extended(int4, int8);
CREATE OPERATOR CLASS loose_ops FOR TYPE int4 USING pmhash FAMILY loose_ops AS STORAGE int4;
CREATE INDEX loose_k ON loose USING pmhash (k loose_ops);
DROP INDEX loose_k;
ALTER OPERATOR FAMILY loose_ops USING pmhash DROP FUNCTION 1 (int4, int4);
ALTER OPERATOR FAMILY loose_ops USING pmhash ADD FUNCTION 1 (int4, int4) hash_mod(int4, int8);
CREATE INDEX loose_k ON loose USING pmhash (k loose_ops);
\c -
SELECT * FROM answers('SELECT k FROM loose WHERE k = 11', 'loose_k');
DROP TABLE loose;
DROP OPERATOR FAMILY loose_ops USING pmhash CASCADE;

--
-- A type without an operator class of its own gets that of a type it can be taken for:
-- with a warning, if its equality is another one.
--
SET client_min_messages = error;
CREATE TYPE caseless;
CREATE FUNCTION caseless_in(cstring) RETURNS caseless AS 'textin' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION caseless_out(caseless) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE caseless (input = caseless_in, output = caseless_out, like = text);
RESET client_min_messages;
CREATE CAST (caseless AS text) WITHOUT FUNCTION AS IMPLICIT;
CREATE TABLE folds (k caseless, d text);
-- it has no equality but that of text
CREATE INDEX ON folds USING pmhash (k);
CREATE FUNCTION caseless_eq(caseless, caseless) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT
	AS 'BEGIN RETURN lower($1::text) = lower($2::text); END';
CREATE FUNCTION caseless_cmp(caseless, caseless) RETURNS int4 LANGUAGE sql IMMUTABLE STRICT
	AS 'SELECT bttextcmp(lower($1::text), lower($2::text))';
CREATE FUNCTION caseless_hash_extended(caseless, int8) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT
	AS 'SELECT hashtextextended(lower($1::text), $2)';
CREATE OPERATOR = (leftarg = caseless, rightarg = caseless, function = caseless_eq,
				   commutator = =, restrict = eqsel, join = eqjoinsel);
CREATE OPERATOR CLASS caseless_ops DEFAULT FOR TYPE caseless USING btree AS
	OPERATOR 3 =, FUNCTION 1 caseless_cmp(caseless, caseless);
CREATE DOMAIN caseless_domain AS caseless;
CREATE INDEX folds_k ON folds USING pmhash (d, k);
CREATE INDEX ON folds USING pmhash ((k::caseless_domain));
CREATE INDEX CONCURRENTLY ON folds USING pmhash (k);
REINDEX INDEX folds_k;
-- once: not where a table is emptied, at COMMIT or within the transaction that has made it
CREATE TEMP TABLE folds_emptied (k caseless) ON COMMIT DELETE ROWS;
CREATE INDEX ON folds_emptied USING pmhash (k);
INSERT INTO folds_emptied VALUES ('a');
BEGIN;
CREATE TABLE folds_new (k caseless);
CREATE INDEX ON folds_new USING pmhash (k);
INSERT INTO folds_new VALUES ('a');
TRUNCATE folds_new;
REINDEX TABLE folds_new;
COMMIT;
DROP TABLE folds_new;
SELECT plan('SELECT * FROM folds WHERE d = ''x'' AND k = ''x''');
-- another equality that was chosen, and the type's own
CREATE INDEX ON folds USING pmhash (d text_pattern_ops);
CREATE OPERATOR CLASS caseless_ops DEFAULT FOR TYPE caseless USING pmhash AS
	OPERATOR 1 =, FUNCTION 1 caseless_hash_extended(caseless, int8);
CREATE INDEX folds_own ON folds USING pmhash (k);
CREATE INDEX ON folds USING pmhash (k text_ops);
INSERT INTO folds VALUES ('A'), ('a'), ('b');
SELECT * FROM answers('SELECT k FROM folds WHERE k = ''a''', 'folds_own');
\set VERBOSITY terse
DROP TYPE caseless CASCADE;
\set VERBOSITY default
DROP TABLE folds;

\set VERBOSITY terse
DROP FUNCTION same_mod, same_int8 CASCADE;
DROP FUNCTION hash_mod CASCADE;
\set VERBOSITY default

--
-- The planner's choice, with btree, hash and pmhash on the same column.
--
CREATE TABLE choice (u int8, d int4, t text, c int4, pad text);
INSERT INTO choice
	SELECT i, i % 100, md5(i::text), i / 500, repeat('x', 50)
	FROM generate_series(1, 20000) i;
CREATE INDEX choice_u_btree ON choice USING btree (u);
CREATE INDEX choice_u_hash ON choice USING hash (u);
CREATE INDEX choice_u_pmhash ON choice USING pmhash (u);
CREATE INDEX choice_d_btree ON choice USING btree (d);
CREATE INDEX choice_d_hash ON choice USING hash (d);
CREATE INDEX choice_d_pmhash ON choice USING pmhash (d);
CREATE INDEX choice_t_btree ON choice USING btree (t);
CREATE INDEX choice_t_hash ON choice USING hash (t);
CREATE INDEX choice_t_pmhash ON choice USING pmhash (t);
-- a column the table is ordered by, with many rows for each key
CREATE INDEX choice_c_btree ON choice USING btree (c);
CREATE INDEX choice_c_hash ON choice USING hash (c);
CREATE INDEX choice_c_pmhash ON choice USING pmhash (c);
CREATE INDEX choice_ud_btree ON choice USING btree (d, u);
CREATE INDEX choice_ud_pmhash ON choice USING pmhash (d, u);
CREATE INDEX choice_part_btree ON choice USING btree (u) WHERE d = 7;
CREATE INDEX choice_part_pmhash ON choice USING pmhash (u) WHERE d = 7;
VACUUM ANALYZE choice;
SELECT plan('SELECT pad FROM choice WHERE u = 5');
SELECT plan('SELECT pad FROM choice WHERE t = ''x''');
SELECT plan('SELECT pad FROM choice WHERE d = 5');
SELECT plan('SELECT pad FROM choice WHERE c = 5');
SELECT plan('SELECT pad FROM choice WHERE u IN (5, 6, 7)');
SELECT plan('SELECT pad FROM choice WHERE t = ANY (''{a,b}'')');
-- bitmaps
SET enable_indexscan = off;
SELECT plan('SELECT pad FROM choice WHERE u = 5');
SELECT plan('SELECT pad FROM choice WHERE c = 5');
SELECT plan('SELECT pad FROM choice WHERE u = 5 OR t = ''x''');
RESET enable_indexscan;
-- nested loops, also where all pages would soon be cached
SET enable_hashjoin = off;
SET pmhash.enable_join = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
SELECT plan('SELECT c.pad FROM generate_series(1, 5) g JOIN choice c ON c.u = g');
SELECT plan('SELECT c.pad FROM generate_series(1, 1000) g JOIN choice c ON c.u = g');
SELECT plan('SELECT c.pad FROM choice g JOIN choice c ON c.u = g.d');
SELECT plan('SELECT c.pad FROM choice g JOIN choice c ON c.t = g.pad');
RESET enable_hashjoin;
RESET pmhash.enable_join;
RESET enable_mergejoin;
RESET enable_memoize;
-- several columns: all of them
SELECT plan('SELECT pad FROM choice WHERE d = 5 AND u = 105');
-- partial: the smaller index is the better one
DROP INDEX choice_u_pmhash, choice_u_btree, choice_u_hash, choice_ud_pmhash, choice_ud_btree;
SELECT plan('SELECT pad FROM choice WHERE u = 5 AND d = 7');
SELECT plan('SELECT pad FROM choice WHERE u = 5');
-- what pmhash cannot do
SELECT plan('SELECT d FROM choice WHERE d < 1');
SELECT plan('SELECT d FROM choice ORDER BY d LIMIT 1');
SELECT plan('SELECT d FROM choice WHERE d IS NULL');
SELECT plan('SELECT pad FROM choice WHERE d <> ALL (''{1,2}'')');
-- only some of the columns: never while there is another way
DROP INDEX choice_d_btree, choice_d_hash, choice_d_pmhash;
CREATE INDEX choice_ud_pmhash ON choice USING pmhash (d, u);
SELECT plan('SELECT pad FROM choice WHERE d = 5');
SELECT plan('SELECT pad FROM choice WHERE u = 105');
SET enable_seqscan = off;
SELECT plan('SELECT pad FROM choice WHERE d = 5');
SELECT count(pad) FROM choice WHERE d = 5;
SELECT plan('SELECT pad FROM choice WHERE u = 105');
RESET enable_seqscan;
DROP TABLE choice;

--
-- Options.
--
CREATE TABLE filled AS SELECT i AS k FROM generate_series(1, 20000) i;
CREATE INDEX filled_10 ON filled USING pmhash (k) WITH (fillfactor = 10);
CREATE INDEX filled_default ON filled USING pmhash (k);
CREATE INDEX filled_100 ON filled USING pmhash (k) WITH (fillfactor = 100);
SELECT relname, reloptions FROM pg_class WHERE relname LIKE 'filled\_%' ORDER BY 1;
SELECT segments > 5 * (SELECT segments FROM pmhash.stats('filled_100')) AS sparse,
	   load_factor < 0.2 AS roughly_a_tenth
FROM pmhash.stats('filled_10');
SELECT load_factor > 0.85 AS full, entries FROM pmhash.stats('filled_default');
DROP INDEX filled_default, filled_100;
SELECT * FROM every_key('filled', 'k', 'filled_10');
INSERT INTO filled SELECT generate_series(20001, 100000);
SELECT * FROM every_key('filled', 'k', 'filled_10');
DROP INDEX filled_10;
CREATE INDEX filled_100 ON filled USING pmhash (k) WITH (fillfactor = 100);
SELECT * FROM every_key('filled', 'k', 'filled_100');
ALTER INDEX filled_100 SET (fillfactor = 20);
SELECT reloptions FROM pg_class WHERE relname = 'filled_100';
REINDEX INDEX filled_100;
SELECT * FROM every_key('filled', 'k', 'filled_100');
ALTER INDEX filled_100 RESET (fillfactor);
ALTER INDEX filled_100 SET (fillfactor = 9);
ALTER INDEX filled_100 SET (buckets = 9);
DROP TABLE filled;
