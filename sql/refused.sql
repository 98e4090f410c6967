--
-- What pmhash cannot do is refused, clearly, and nothing is lost.
--
CREATE TABLE refused (k int8, t text, p point, x xml, j json);
INSERT INTO refused SELECT i, 'x' || i FROM generate_series(1, 1000) i;
CREATE INDEX refused_k ON refused USING pmhash (k);

-- (possible since PostgreSQL 18: see unique)
DO $$
BEGIN
	CREATE UNIQUE INDEX refused_unique ON refused USING pmhash (t);
	ASSERT current_setting('server_version_num')::int >= 180000;
	DROP INDEX refused_unique;
EXCEPTION WHEN feature_not_supported THEN
	ASSERT current_setting('server_version_num')::int < 180000;
	ASSERT sqlerrm = 'access method "pmhash" does not support unique indexes';
END $$;
CREATE INDEX ON refused USING pmhash (k) INCLUDE (t);
-- (PostgreSQL 19 shows the place as well)
DO $$
DECLARE
	column_order text;
BEGIN
	FOREACH column_order IN ARRAY '{k DESC, k NULLS FIRST}'::text[] LOOP
		BEGIN
			EXECUTE format('CREATE INDEX ON refused USING pmhash (%s)', column_order);
		EXCEPTION WHEN feature_not_supported THEN
			RAISE NOTICE '%: %', column_order, sqlerrm;
		END;
	END LOOP;
END $$;
ALTER TABLE refused ADD PRIMARY KEY USING INDEX refused_k;
ALTER TABLE refused ADD UNIQUE USING INDEX refused_k;
CLUSTER refused USING refused_k;

-- types without equality or without a hash function
CREATE INDEX ON refused USING pmhash (p);
CREATE INDEX ON refused USING pmhash (x);
CREATE INDEX ON refused USING pmhash (j);
-- operator classes of other access methods, and unknown ones
CREATE INDEX ON refused USING pmhash (k text_pattern_ops);
CREATE INDEX ON refused USING pmhash (k no_such_ops);

-- options
CREATE INDEX ON refused USING pmhash (k) WITH (fillfactor = 5);
CREATE INDEX ON refused USING pmhash (k) WITH (fillfactor = 101);
CREATE INDEX ON refused USING pmhash (k) WITH (fillfactor = 'full');
CREATE INDEX ON refused USING pmhash (k) WITH (no_such_option = 1);
ALTER INDEX refused_k SET (fillfactor = 0);

-- exclusion with anything but equality
ALTER TABLE refused ADD EXCLUDE USING pmhash (k WITH <>);
ALTER TABLE refused ADD EXCLUDE USING pmhash (k WITH <);

-- expressions that fail while the index is built leave nothing
CREATE INDEX refused_expr ON refused USING pmhash ((1 / (k - 500)));
SELECT count(*) FROM pg_class WHERE relname LIKE 'refused_expr%';

-- system columns, too many columns
CREATE INDEX ON refused USING pmhash (ctid);

-- the functions: no index, an index of another kind, a table, NULL
CREATE INDEX refused_btree ON refused USING btree (k);
SELECT pmhash.size('refused_btree');
SELECT pmhash.size('refused');
SELECT pmhash.size('no_such_index');
SELECT pmhash.size(0);
SELECT pmhash.size(NULL);
SELECT pmhash.stats('refused_btree');
SELECT pmhash.stats('refused');
SELECT pmhash.stats(NULL);

-- after all that
SELECT * FROM every_key('refused', 'k', 'refused_k');
INSERT INTO refused SELECT i FROM generate_series(2001, 3000) i;
DROP INDEX refused_btree;
SELECT * FROM every_key('refused', 'k', 'refused_k');
DROP TABLE refused;
