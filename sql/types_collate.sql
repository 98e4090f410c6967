--
-- Collations under which different strings are equal.  Needs ICU and UTF-8;
-- without them there are none, and nothing to test.
--
SELECT getdatabaseencoding() <> 'UTF8' OR
	   NOT EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i' AND collname <> 'unicode')
	   AS skip_test \gset
\if :skip_test
\quit
\endif

CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION strict_icu (provider = icu, locale = 'und');
CREATE TABLE collated (id int4, t text COLLATE nocase, b char(10) COLLATE nocase,
					   n name COLLATE nocase, s text COLLATE strict_icu);
INSERT INTO collated
	SELECT i, v, v, v, v
	FROM unnest('{abc,ABC,Abc,abd,"",é,É,e,"ab ","AB"}'::text[]) WITH ORDINALITY u(v, i);
CREATE INDEX collated_t ON collated USING pmhash (t);
CREATE INDEX collated_b ON collated USING pmhash (b);
CREATE INDEX collated_n ON collated USING pmhash (n);
CREATE INDEX collated_s ON collated USING pmhash (s);
CREATE INDEX collated_two ON collated USING pmhash (t, s);
INSERT INTO collated SELECT id + 100, upper(t), upper(b), upper(n), s FROM collated;

SELECT * FROM answers('SELECT id FROM collated WHERE t = ''aBc''', 'collated_t');
SELECT * FROM answers('SELECT id FROM collated WHERE b = ''aBc''', 'collated_b');
SELECT * FROM answers('SELECT id FROM collated WHERE n = ''aBc''::text COLLATE nocase', 'collated_n');
SELECT * FROM answers('SELECT id FROM collated WHERE s = ''abc''', 'collated_s');
SELECT * FROM answers('SELECT id FROM collated WHERE t = ''ABC'' AND s = ''abc''', 'collated_two');
-- a name and a text, both ways (not beside a hash join: core's hash function of
-- names knows nothing of collations)
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT count(*), sum(c.id * 1000 + o.id) FROM collated o, collated c WHERE (c.n = o.t) IS TRUE;
SELECT count(*), sum(c.id * 1000 + o.id) FROM collated o, collated c WHERE (c.t = o.n) IS TRUE;
SELECT count(*), sum(c.id * 1000 + o.id) FROM collated o, collated c WHERE (c.b = o.b) IS TRUE;
SET enable_seqscan = off;
SELECT plan('SELECT count(*), sum(c.id * 1000 + o.id) FROM (SELECT id, t FROM collated OFFSET 0) o JOIN collated c ON c.n = o.t');
SELECT count(*), sum(c.id * 1000 + o.id) FROM (SELECT id, t FROM collated OFFSET 0) o JOIN collated c ON c.n = o.t;
SELECT count(*), sum(c.id * 1000 + o.id) FROM (SELECT id, n FROM collated OFFSET 0) o JOIN collated c ON c.t = o.n;
SELECT count(*), sum(c.id * 1000 + o.id) FROM (SELECT id, b FROM collated OFFSET 0) o JOIN collated c ON c.b = o.b;
SET pmhash.enable_join = off;
SELECT plan('SELECT count(*), sum(c.id * 1000 + o.id) FROM (SELECT id, t FROM collated OFFSET 0) o JOIN collated c ON c.n = o.t');
SELECT count(*), sum(c.id * 1000 + o.id) FROM (SELECT id, t FROM collated OFFSET 0) o JOIN collated c ON c.n = o.t;
SELECT count(*), sum(c.id * 1000 + o.id) FROM (SELECT id, n FROM collated OFFSET 0) o JOIN collated c ON c.t = o.n;
SELECT count(*), sum(c.id * 1000 + o.id) FROM (SELECT id, b FROM collated OFFSET 0) o JOIN collated c ON c.b = o.b;
RESET pmhash.enable_join;
RESET enable_seqscan;
RESET enable_hashjoin;
RESET enable_mergejoin;
-- every key (DISTINCT takes for one what the collation takes for equal)
SELECT * FROM every_key('collated', 't', 'collated_t');
SELECT * FROM every_key('collated', 's', 'collated_s');
-- another collation than the index's does not use it
SELECT * FROM answers('SELECT id FROM collated WHERE t = ''abc'' COLLATE "C"', 'collated_t');
-- the index's own collation counts, not the column's
CREATE INDEX collated_c ON collated USING pmhash (t COLLATE "C");
SELECT * FROM answers('SELECT id FROM collated WHERE t = ''abc'' COLLATE "C"', 'collated_c');
-- uniqueness by exclusion follows the collation, too
DELETE FROM collated WHERE id NOT IN (1, 4);
ALTER TABLE collated ADD CONSTRAINT collated_excl EXCLUDE USING pmhash (t WITH =);
INSERT INTO collated (id, t) VALUES (200, 'ABC');
INSERT INTO collated (id, t) VALUES (200, 'ABE');
DROP TABLE collated;
DROP COLLATION nocase;
DROP COLLATION strict_icu;
