--
-- item.sql: the table that is measured, made afresh, without an index
--
-- Variables: item_file (see load.sql).
--
DROP TABLE IF EXISTS bench.item;
BEGIN;
CREATE TABLE bench.item (k bigint, v text);
COPY bench.item FROM :'item_file' (FORMAT binary, FREEZE);
COMMIT;
ANALYZE bench.item;
SELECT pg_prewarm('bench.item');
CHECKPOINT;
