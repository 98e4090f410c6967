--
-- report.sql: both variants side by side, then their indexes
--
-- Ratios above 1 are in favour of pmhash.
--
CREATE VIEW tpcc.index_size AS
	SELECT n.nspname AS method, t.relname AS "table", c.relname AS index, a.amname AS am,
		tpcc.index_bytes(c.oid) AS bytes
	FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		JOIN pg_index AS i ON i.indexrelid = c.oid JOIN pg_class AS t ON t.oid = i.indrelid
	WHERE n.nspname IN ('btree', 'pmhash');

CREATE VIEW tpcc.median AS
	SELECT method,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY new_orders) AS new_orders,
		min(new_orders) AS least, max(new_orders) AS most,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY tps) AS tps,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY wal) AS wal,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY images) AS images,
		avg(rolled_back) AS rolled_back,
		(SELECT sum(bytes) FROM tpcc.index_size AS s WHERE s.method = r.method) AS bytes
	FROM tpcc.round AS r GROUP BY method;

SELECT label AS "median of the rounds", f.btree, f.pmhash,
	CASE f.better WHEN 0 THEN '-'
		ELSE to_char(CASE f.better WHEN 1 THEN f.p / f.b ELSE f.b / f.p END, 'FM990.00') || ' x'
		END AS better
FROM tpcc.median AS b, tpcc.median AS p, LATERAL
(
	VALUES
	(1, 'New-Orders per minute (tpmC-like)', to_char(b.new_orders, 'FM999,999,990'),
		to_char(p.new_orders, 'FM999,999,990'), 1, b.new_orders, p.new_orders),
	(2, '  least and most of a round', to_char(b.least, 'FM999,990') || ' ' || to_char(b.most, 'FM999,990'),
		to_char(p.least, 'FM999,990') || ' ' || to_char(p.most, 'FM999,990'), 0, 0, 0),
	(3, 'transactions per second, all kinds', to_char(b.tps, 'FM999,990'),
		to_char(p.tps, 'FM999,990'), 1, b.tps, p.tps),
	(4, 'WAL per transaction', to_char(b.wal, 'FM999,990') || ' B',
		to_char(p.wal, 'FM999,990') || ' B', 2, b.wal, p.wal),
	(5, '  full-page images in it, per transaction', to_char(b.images, 'FM990.000'),
		to_char(p.images, 'FM990.000'), 0, 0, 0),
	(6, 'New-Orders rolled back', to_char(b.rolled_back * 100, 'FM990.00') || ' %',
		to_char(p.rolled_back * 100, 'FM990.00') || ' %', 0, 0, 0),
	(7, 'all indexes, at the end', to_char(b.bytes / 1e6, 'FM999,990.0') || ' MB',
		to_char(p.bytes / 1e6, 'FM999,990.0') || ' MB', 2, b.bytes, p.bytes)
) AS f (n, label, btree, pmhash, better, b, p)
WHERE b.method = 'btree' AND p.method = 'pmhash'
ORDER BY n;

SELECT "table", index,
	coalesce(max(to_char(bytes / 1e6, 'FM999,990.00')) FILTER (WHERE method = 'btree'), '-')
		AS "MB, variant btree",
	max(to_char(bytes / 1e6, 'FM999,990.00') || CASE am WHEN 'btree' THEN ' (btree)' ELSE '' END)
		FILTER (WHERE method = 'pmhash') AS "MB, variant pmhash"
FROM tpcc.index_size GROUP BY 1, 2 ORDER BY 1, 2;
