--
-- Partitioned and inherited tables.
--
CREATE TABLE part (region int4, k int8, t text) PARTITION BY LIST (region);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2) PARTITION BY RANGE (k);
CREATE TABLE part_2_low PARTITION OF part_2 FOR VALUES FROM (MINVALUE) TO (5000);
CREATE TABLE part_2_high PARTITION OF part_2 FOR VALUES FROM (5000) TO (MAXVALUE);
INSERT INTO part SELECT i % 2 + 1, i, 'x' || i % 100 FROM generate_series(1, 10000) i;
CREATE INDEX part_k ON part USING pmhash (k);
CREATE INDEX part_t ON part USING pmhash (t);
SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'part_k'::regclass ORDER BY 1;

-- attached later, with and without an index of its own
CREATE TABLE part_3 (region int4, k int8, t text);
CREATE INDEX part_3_own ON part_3 USING pmhash (k);
INSERT INTO part_3 SELECT 3, i, 'x' || i % 100 FROM generate_series(1, 1000) i;
ALTER TABLE part ATTACH PARTITION part_3 FOR VALUES IN (3);
CREATE TABLE part_default PARTITION OF part DEFAULT;
INSERT INTO part SELECT i, i, 'x' FROM generate_series(1, 100) i;
ANALYZE part;
SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'part_k'::regclass ORDER BY 1;

SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT plan('SELECT * FROM part WHERE k = 77');
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT * FROM answers('SELECT * FROM part WHERE k = 77', 'part_1_k_idx');
SELECT * FROM answers('SELECT * FROM part WHERE k = 77', 'part_3_own');
SELECT * FROM every_key('part', 'k', 'part_2_high_k_idx');
SELECT * FROM every_key('part', 't', 'part_2_low_t_idx');

-- rows that move, partitions that go
UPDATE part SET region = 3 - region WHERE region IN (1, 2) AND k % 3 = 0;
SELECT * FROM every_key('part', 'k', 'part_1_k_idx');
ALTER TABLE part DETACH PARTITION part_1;
SELECT * FROM every_key('part', 'k', 'part_default_k_idx');
SELECT * FROM every_key('part_1', 'k', 'part_1_k_idx');
TRUNCATE part;
INSERT INTO part SELECT 2, i, 'y' FROM generate_series(4990, 5010) i;
SELECT * FROM every_key('part', 'k', 'part_2_low_k_idx');
REINDEX TABLE part;
SELECT * FROM every_key('part', 'k', 'part_2_low_k_idx');

-- index on the parent only, then on the rest
CREATE TABLE part_only (k int4) PARTITION BY HASH (k);
CREATE TABLE part_only_0 PARTITION OF part_only FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE part_only_1 PARTITION OF part_only FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO part_only SELECT generate_series(1, 1000);
CREATE INDEX part_only_k ON ONLY part_only USING pmhash (k);
SELECT indisvalid FROM pg_index WHERE indexrelid = 'part_only_k'::regclass;
CREATE INDEX CONCURRENTLY part_only_0_k ON part_only_0 USING pmhash (k);
CREATE INDEX CONCURRENTLY part_only_1_k ON part_only_1 USING pmhash (k);
ALTER INDEX part_only_k ATTACH PARTITION part_only_0_k;
ALTER INDEX part_only_k ATTACH PARTITION part_only_1_k;
SELECT indisvalid FROM pg_index WHERE indexrelid = 'part_only_k'::regclass;
SELECT * FROM every_key('part_only', 'k', 'part_only_1_k');
DROP INDEX part_only_k;
SELECT count(*) FROM pg_class WHERE relname LIKE 'part_only%k';

DROP TABLE part, part_1, part_only;

-- inheritance: indexes are each table's own
CREATE TABLE inh (k int4, v text);
CREATE TABLE inh_child (extra int4) INHERITS (inh);
CREATE INDEX inh_k ON inh USING pmhash (k);
CREATE INDEX inh_child_k ON inh_child USING pmhash (k);
INSERT INTO inh SELECT i, 'parent' FROM generate_series(1, 1000) i;
INSERT INTO inh_child SELECT i, 'child', i FROM generate_series(500, 1500) i;
ANALYZE inh;
SELECT * FROM answers('SELECT * FROM inh WHERE k = 700', 'inh_k');
SELECT * FROM answers('SELECT * FROM inh WHERE k = 700', 'inh_child_k');
SELECT * FROM every_key('inh', 'k', 'inh_child_k');
UPDATE inh SET k = k + 10000 WHERE k % 2 = 0;
SELECT * FROM every_key('inh', 'k', 'inh_k');
DROP TABLE inh CASCADE;
