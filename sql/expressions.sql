--
-- Indexes on expressions, and partial ones.
--
CREATE TABLE expr (id int4, name text, doc jsonb);
INSERT INTO expr
	SELECT i, 'Name ' || i % 3000, jsonb_build_object('key', i % 500, 'even', i % 2 = 0)
	FROM generate_series(1, 20000) i;
INSERT INTO expr VALUES (0, NULL, NULL);

CREATE INDEX expr_lower ON expr USING pmhash (lower(name));
CREATE INDEX expr_key ON expr USING pmhash ((doc ->> 'key'));
CREATE INDEX expr_half ON expr USING pmhash ((id / 2), lower(name));
CREATE INDEX expr_partial ON expr USING pmhash (id) WHERE id % 100 = 0;
CREATE INDEX expr_partial_text ON expr USING pmhash (name) WHERE doc @> '{"even": true}';
ANALYZE expr;

SELECT * FROM answers('SELECT * FROM expr WHERE lower(name) = ''name 77''', 'expr_lower');
SELECT * FROM answers('SELECT * FROM expr WHERE lower(name) = ''Name 77''', 'expr_lower');
SELECT * FROM answers('SELECT * FROM expr WHERE doc ->> ''key'' = ''77''', 'expr_key');
SELECT * FROM answers('SELECT * FROM expr WHERE id / 2 = 77 AND lower(name) = ''name 154''', 'expr_half');
SELECT * FROM answers('SELECT * FROM expr WHERE id = 300 AND id % 100 = 0', 'expr_partial');
SELECT * FROM answers('SELECT * FROM expr WHERE id = 301 AND id % 100 = 0', 'expr_partial');
-- the predicate does not follow: the index must not be used
SELECT * FROM answers('SELECT * FROM expr WHERE id = 300', 'expr_partial');
SELECT * FROM answers('SELECT * FROM expr WHERE name = ''Name 100'' AND doc @> ''{"even": true}''', 'expr_partial_text');

-- rows that enter and leave the predicate
UPDATE expr SET id = id + 1 WHERE id % 100 IN (0, 99);
INSERT INTO expr SELECT 30000 + i, 'NAME ' || i % 3000, '{"key": 1, "even": false}' FROM generate_series(1, 2000) i;
UPDATE expr SET doc = doc || '{"even": true}' WHERE id > 31000;
SELECT * FROM answers('SELECT * FROM expr WHERE id = ANY ((SELECT array_agg(i * 50) FROM generate_series(0, 800) i)::int4[]) AND id % 100 = 0', 'expr_partial');
SELECT * FROM answers('SELECT * FROM expr WHERE name = ''NAME 1500'' AND doc @> ''{"even": true}''', 'expr_partial_text');
SELECT * FROM answers('SELECT * FROM expr WHERE lower(name) = ''name 77''', 'expr_lower');
DELETE FROM expr WHERE id % 3 = 0;
VACUUM ANALYZE expr;
SELECT * FROM answers('SELECT * FROM expr WHERE id = ANY ((SELECT array_agg(i * 50) FROM generate_series(0, 800) i)::int4[]) AND id % 100 = 0', 'expr_partial');
SELECT * FROM answers('SELECT * FROM expr WHERE lower(name) = ANY ((SELECT array_agg(''name '' || i) FROM generate_series(0, 3000) i)::text[])', 'expr_lower');

-- the planner sees how small a partial index is, although its main fork is
-- one page, and prefers it
CREATE INDEX expr_id ON expr USING btree (id);
ANALYZE expr;
SELECT plan('SELECT * FROM expr WHERE id = 300 AND id % 100 = 0');

-- a function with a side road: the index expression calls SQL
CREATE FUNCTION expr_digest(text) RETURNS text LANGUAGE sql IMMUTABLE STRICT
	AS $$ SELECT md5($1) $$;
CREATE INDEX expr_md5 ON expr USING pmhash (expr_digest(name));
SELECT * FROM answers('SELECT * FROM expr WHERE expr_digest(name) = md5(''Name 100'')', 'expr_md5');

DROP TABLE expr;
DROP FUNCTION expr_digest;
