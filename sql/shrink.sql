-- After mass deletes VACUUM gives space back, and the index stays right.
CREATE TABLE shrink (id bigint, kind int, name text) WITH (autovacuum_enabled = false);
INSERT INTO shrink SELECT i, i % 40, 'name ' || i FROM generate_series(1, 200000) i;
CREATE INDEX shrink_id ON shrink USING pmhash (id);
CREATE INDEX shrink_kind ON shrink USING pmhash (kind);
CREATE INDEX shrink_name ON shrink USING pmhash (name);
CREATE TEMP TABLE sizes AS
  SELECT relname, pmhash.size(oid) AS bytes FROM pg_class WHERE relname LIKE 'shrink\_%';

-- nothing to be gained
VACUUM shrink;
SELECT relname, pmhash.size(relname::regclass) <= bytes AS no_larger FROM sizes ORDER BY 1;

DELETE FROM shrink WHERE id % 10 <> 0;
-- not unless it is wanted
SET pmhash.vacuum_shrink = off;
VACUUM shrink;
SELECT relname, pmhash.size(relname::regclass) < bytes AS smaller FROM sizes ORDER BY 1;
RESET pmhash.vacuum_shrink;
VACUUM shrink;
SELECT relname, pmhash.size(relname::regclass) < bytes / 4 AS much_smaller
  FROM sizes ORDER BY 1;
SELECT relname, pmhash.check(relname::regclass) FROM sizes ORDER BY 1;
SET enable_seqscan = off;
SELECT count(*) FROM shrink WHERE id = ANY (ARRAY(SELECT generate_series(1, 200000)));
SELECT count(*), min(id), max(id) FROM shrink WHERE kind = 10;
SELECT count(*) FROM shrink WHERE kind = 11;
SELECT id FROM shrink WHERE name = 'name 777770';
SELECT id FROM shrink WHERE name = 'name 77770';

-- it grows again, into what it has given away
INSERT INTO shrink SELECT i, i % 40, 'name ' || i FROM generate_series(200001, 400000) i;
SELECT count(*) FROM shrink WHERE id = ANY (ARRAY(SELECT generate_series(1, 400000)));
SELECT relname, pmhash.check(relname::regclass) FROM sizes ORDER BY 1;

-- most and then all of it taken out
DO $$
BEGIN
  FOR i IN 0..9 LOOP
    DELETE FROM shrink WHERE id / 10 % 10 <= i;
    COMMIT;
  END LOOP;
END $$;
VACUUM shrink;
SELECT relname, pmhash.size(relname::regclass) < 1000000 AS small FROM sizes ORDER BY 1;
INSERT INTO shrink VALUES (1, 1, 'name 1');
SELECT id FROM shrink WHERE id = 1;
SELECT id FROM shrink WHERE kind = 1;
SELECT relname, pmhash.check(relname::regclass) FROM sizes ORDER BY 1;

-- an index that was made loose is left loose, until that changes
INSERT INTO shrink SELECT i, 0, NULL FROM generate_series(2, 100000) i;
CREATE INDEX shrink_loose ON shrink USING pmhash (id) WITH (fillfactor = 20);
UPDATE sizes SET bytes = pmhash.size('shrink_loose');
VACUUM shrink;
SELECT DISTINCT pmhash.size('shrink_loose') = bytes AS as_before FROM sizes;
ALTER INDEX shrink_loose SET (fillfactor = 90);
VACUUM shrink;
SELECT DISTINCT pmhash.size('shrink_loose') < bytes / 2 AS smaller FROM sizes;
SELECT pmhash.check('shrink_loose');
DROP TABLE shrink;
