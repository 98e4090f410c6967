-- The table that most tools are tried on: indexes of several kinds, and a btree.
CREATE TABLE item (id bigint PRIMARY KEY, sku text NOT NULL, grp int, price numeric, note text);
INSERT INTO item
	SELECT g, 'sku-' || md5(g::text), CASE WHEN g % 10 = 0 THEN NULL ELSE g % 500 END,
		g % 1000, repeat('x', (g % 50)::int)
	FROM generate_series(1, :rows) AS g;
CREATE INDEX item_sku ON item USING pmhash (sku);
CREATE INDEX item_grp ON item USING pmhash (grp);
CREATE INDEX item_upper ON item USING pmhash (upper(sku));
CREATE INDEX item_dear ON item USING pmhash (price) WHERE price > 900;
CREATE INDEX item_btree ON item USING btree (left(note, 3));
ANALYZE item;
