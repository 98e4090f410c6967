--
-- VACUUM, whose verdicts are kept in a map of the table (37 bytes a block),
-- or looked up while removing if that is more than half of maintenance_work_mem
--
-- A row a block.
CREATE TABLE sparse (k int8, pad text) WITH (fillfactor = 10, autovacuum_enabled = false);
INSERT INTO sparse SELECT i, repeat('x', 700) FROM generate_series(1, 14400) i;
CREATE INDEX sparse_k ON sparse USING pmhash (k);
SELECT pg_relation_size('sparse') / current_setting('block_size')::int * 37 > 512 * 1024 AS map_is_large;

-- without the map; the rows' places are given away
SET maintenance_work_mem = '1MB';
DELETE FROM sparse WHERE k % 3 = 0;
VACUUM sparse;
SELECT entries FROM pmhash.stats('sparse_k');
INSERT INTO sparse SELECT i, repeat('y', 700) FROM generate_series(20001, 24800) i;
SELECT pmhash.check('sparse_k');
SELECT * FROM every_key('sparse', 'k', 'sparse_k');

-- with it
RESET maintenance_work_mem;
DELETE FROM sparse WHERE k % 3 = 1;
VACUUM sparse;
SELECT entries FROM pmhash.stats('sparse_k');
INSERT INTO sparse SELECT i, repeat('z', 700) FROM generate_series(30001, 34800) i;
SELECT pmhash.check('sparse_k');
SELECT * FROM every_key('sparse', 'k', 'sparse_k');

DROP TABLE sparse;
