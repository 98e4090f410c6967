-- pmhash.candidates: which indexes a pmhash index could replace
CREATE SCHEMA candidates;
SET search_path = candidates, public;
CREATE TABLE visit (id int8 PRIMARY KEY, page text, host text COLLATE "C", at timestamptz, "Odd" int4, doc jsonb);
INSERT INTO visit
	SELECT g, 'page-' || g, 'host-' || g % 100, timestamptz '2026-01-01' + g * interval '1 minute', g, '{}'
	FROM generate_series(1, 3000) AS g;
CREATE INDEX visit_page ON visit (page);
CREATE INDEX visit_at ON visit (at);
CREATE INDEX visit_host ON visit USING hash (host);
CREATE INDEX visit_lower ON visit (lower(page) COLLATE "C" DESC) WHERE id > 10;
CREATE INDEX "visit Odd" ON visit ("Odd", host);
CREATE INDEX visit_pattern ON visit (page text_pattern_ops);
CREATE INDEX visit_include ON visit (page) INCLUDE (id);
CREATE UNIQUE INDEX visit_unique ON visit (id, page);
CREATE INDEX visit_unused ON visit ("Odd");
ANALYZE visit;

-- all of them are used; that of at for a range
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE FUNCTION look(which text, condition text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	line text;
	found boolean := false;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN SELECT * FROM visit WHERE ' || condition LOOP
		found := found OR line LIKE '%using ' || which || ' on%';
	END LOOP;
	IF NOT found THEN
		RAISE EXCEPTION 'not by %: %', which, condition;
	END IF;
	EXECUTE 'SELECT count(*) FROM (SELECT * FROM visit WHERE ' || condition || ' OFFSET 0) AS x';
END $$;
BEGIN;
DROP INDEX visit_include, visit_pattern, visit_unique;
SELECT look('visit_page', $$page = 'page-17'$$);
ROLLBACK;
SELECT look('visit_at', $$at > '2026-01-02' AND at < '2026-01-03'$$);
SELECT look('visit_host', $$host = 'host-17'$$);
SELECT look('visit_lower', $$lower(page) COLLATE "C" = 'page-17' AND id > 10$$);
BEGIN;
DROP INDEX visit_unused, visit_host;
SELECT look('"visit Odd"', $$"Odd" = 17 AND host = 'host-17'$$);
ROLLBACK;
SELECT pg_stat_force_next_flush();
SELECT schema, "table", index, method, scans, rows_per_scan, rows_per_key, bytes > pmhash_bytes AS smaller,
	create_statement, swap_statements
	FROM pmhash.candidates() WHERE schema = 'candidates' ORDER BY index \gx

-- the statements do what they say
SELECT statement FROM pmhash.candidates() AS c,
	regexp_split_to_table(c.create_statement || E'\n' || c.swap_statements, E'\n') WITH ORDINALITY AS s(statement, n)
	WHERE c.schema = 'candidates' ORDER BY c.index, n \gexec
SELECT indexdef FROM pg_indexes WHERE schemaname = 'candidates' AND indexdef LIKE '%pmhash%' ORDER BY 1;
SELECT count(*) FROM pmhash.candidates() WHERE schema = 'candidates';
-- a long name, of characters of several bytes
DO $$ BEGIN EXECUTE format('CREATE INDEX %I ON visit (host, page)', repeat(chr(228), 31) || 'x'); END $$;
BEGIN;
DROP INDEX visit_page, visit_host, visit_include, visit_pattern;
SELECT look('"' || repeat(chr(228), 31) || 'x"', $$host = 'host-17' AND page = 'page-17'$$);
ROLLBACK;
SELECT pg_stat_force_next_flush();
SELECT octet_length(n) <= 63 AS short, n LIKE '%\_pmhash' AS named
	FROM pmhash.candidates() AS c, split_part(c.create_statement, '"', 2) AS n WHERE c.schema = 'candidates';
SET client_min_messages = warning;
DROP SCHEMA candidates CASCADE;
