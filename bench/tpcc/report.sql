--
-- report.sql: both variants side by side, then their indexes
--
-- Ratios above 1 are in favour of pmhash.  They are medians, too: of what the
-- two had in the same round, one right after the other.
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
		percentile_cont(0.5) WITHIN GROUP (ORDER BY processor) AS processor,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY wal) AS wal,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY images) AS images,
		avg(rolled_back) AS rolled_back,
		(SELECT sum(bytes) FROM tpcc.index_size AS s WHERE s.method = r.method) AS bytes
	FROM tpcc.round AS r GROUP BY method;

CREATE VIEW tpcc.ratio AS
	SELECT
		percentile_cont(0.5) WITHIN GROUP (ORDER BY p.new_orders / b.new_orders) AS new_orders,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY p.tps / b.tps) AS tps,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY b.processor / p.processor) AS processor,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY b.wal / p.wal) AS wal
	FROM tpcc.round AS b JOIN tpcc.round AS p USING (round)
	WHERE b.method = 'btree' AND p.method = 'pmhash';

SELECT label AS "median of the rounds", f.btree, f.pmhash,
	coalesce(to_char(better, 'FM990.00') || ' x', '-') AS better
FROM tpcc.median AS b, tpcc.median AS p, tpcc.ratio AS r, LATERAL
(
	VALUES
	(1, 'New-Orders per minute (tpmC-like)', to_char(b.new_orders, 'FM999,999,990'),
		to_char(p.new_orders, 'FM999,999,990'), r.new_orders),
	(2, '  least .. most of a round',
		to_char(b.least, 'FM999,999,990') || ' .. ' || to_char(b.most, 'FM999,999,990'),
		to_char(p.least, 'FM999,999,990') || ' .. ' || to_char(p.most, 'FM999,999,990'), NULL),
	(3, 'transactions per second, all kinds', to_char(b.tps, 'FM999,990'),
		to_char(p.tps, 'FM999,990'), r.tps),
	(4, 'processor time of backends, per transaction', to_char(b.processor, 'FM999,990') || ' us',
		to_char(p.processor, 'FM999,990') || ' us', r.processor),
	(5, 'WAL per transaction', to_char(b.wal, 'FM999,990') || ' B',
		to_char(p.wal, 'FM999,990') || ' B', r.wal),
	(6, '  full-page images in it, per transaction', to_char(b.images, 'FM990.000'),
		to_char(p.images, 'FM990.000'), NULL),
	(7, 'New-Orders rolled back', to_char(b.rolled_back * 100, 'FM990.00') || ' %',
		to_char(p.rolled_back * 100, 'FM990.00') || ' %', NULL),
	(8, 'all indexes, at the end', to_char(b.bytes / 1e6, 'FM999,990.0') || ' MB',
		to_char(p.bytes / 1e6, 'FM999,990.0') || ' MB', b.bytes / p.bytes)
) AS f (n, label, btree, pmhash, better)
WHERE b.method = 'btree' AND p.method = 'pmhash'
ORDER BY n;

SELECT "table", index,
	coalesce(max(to_char(bytes / 1e6, 'FM999,990.00')) FILTER (WHERE method = 'btree'), '-')
		AS "MB, variant btree",
	max(to_char(bytes / 1e6, 'FM999,990.00') || CASE am WHEN 'btree' THEN ' (btree)' ELSE '' END)
		FILTER (WHERE method = 'pmhash') AS "MB, variant pmhash"
FROM tpcc.index_size GROUP BY 1, 2 ORDER BY 1, 2;
