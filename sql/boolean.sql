--
-- Boolean columns: b, NOT b, b = true, b IS TRUE are look-ups.
--
CREATE TABLE flags (b bool, k int4, id int4);
INSERT INTO flags SELECT CASE i % 50 WHEN 0 THEN true WHEN 1 THEN NULL ELSE false END, i % 100, i FROM generate_series(1, 5000) i;
CREATE INDEX flags_b ON flags USING pmhash (b);
CREATE INDEX flags_bk ON flags USING pmhash (b, k);
CREATE INDEX flags_expr ON flags USING pmhash ((id < 10));
VACUUM ANALYZE flags;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET pmhash.enable_pagescan = off;

SELECT plan('SELECT id FROM flags WHERE b');
SELECT plan('SELECT id FROM flags WHERE b = true');
SELECT plan('SELECT id FROM flags WHERE NOT b');
SELECT plan('SELECT id FROM flags WHERE b = false');
SELECT plan('SELECT id FROM flags WHERE b IS TRUE');
SELECT plan('SELECT id FROM flags WHERE id < 10');
-- all columns
SELECT plan('SELECT id FROM flags WHERE b AND k = 50');
SELECT plan('SELECT id FROM flags WHERE NOT b AND k = 7');
SELECT plan('SELECT id FROM flags WHERE b = true AND k = ANY (''{0,50}'')');
SELECT plan('SELECT b FROM flags WHERE b');
RESET enable_seqscan;
RESET enable_bitmapscan;

SELECT 'b' AS condition, * FROM answers('SELECT * FROM flags WHERE b', 'flags_b');
SELECT 'NOT b' AS condition, * FROM answers('SELECT * FROM flags WHERE NOT b', 'flags_b');
SELECT 'b = true' AS condition, * FROM answers('SELECT * FROM flags WHERE b = true', 'flags_b');
SELECT 'b IS FALSE' AS condition, * FROM answers('SELECT * FROM flags WHERE b IS FALSE', 'flags_b');
SELECT 'id < 10' AS condition, * FROM answers('SELECT * FROM flags WHERE id < 10', 'flags_expr');
SELECT 'b AND k = 50' AS condition, * FROM answers('SELECT * FROM flags WHERE b AND k = 50', 'flags_bk');
SELECT 'NOT b AND k = ANY' AS condition, * FROM answers('SELECT * FROM flags WHERE NOT b AND k = ANY (''{7,0,99}'')', 'flags_bk');
SELECT 'join' AS condition, * FROM answers('SELECT f.* FROM (VALUES (true, 50), (false, 7), (NULL, 1)) v(b, k) JOIN flags f ON f.b = v.b AND f.k = v.k', 'flags_bk');
-- a parameter, in a generic plan
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
PREPARE by_flag(bool, int4) AS SELECT count(*) FROM flags WHERE b = $1 AND k = $2;
EXECUTE by_flag(true, 50);
EXECUTE by_flag(false, 50);
EXECUTE by_flag(NULL, 50);
RESET ALL;
DROP TABLE flags;
