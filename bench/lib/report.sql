--
-- report.sql: the table of all figures, side by side, and bars of some
--
-- The last column says how many times better pmhash is than the better of the
-- other two.
--
CREATE FUNCTION bench.show(value double precision, unit text) RETURNS text LANGUAGE sql AS
$$
	SELECT CASE
		WHEN value IS NULL THEN '-'
		WHEN unit = 'tps' THEN to_char(value, 'FM999,999,990')
		WHEN unit = 'bytes' THEN to_char(value, 'FM999,990.0') || ' B'
		ELSE to_char(value, 'FM999,990.00') || ' ' || unit
	END;
$$;

WITH figure AS
(
	SELECT m.*,
		min(value) FILTER (WHERE method = 'none') AS none,
		min(value) FILTER (WHERE method = 'btree') AS btree,
		min(value) FILTER (WHERE method = 'hash') AS hash,
		min(value) FILTER (WHERE method = 'pmhash') AS pmhash
	FROM bench.metric AS m LEFT JOIN bench.result AS r USING (metric)
	GROUP BY m.metric
)
SELECT label AS "per row, key or probe",
	bench.show(none, unit) AS none,
	bench.show(btree, unit) AS btree,
	bench.show(hash, unit) AS hash,
	bench.show(pmhash, unit) AS pmhash,
	coalesce(to_char(CASE WHEN unit = 'tps' THEN pmhash / greatest(btree, hash)
					 WHEN pmhash > 0 THEN least(btree, hash) / pmhash END,
				'FM9,990.0') || ' x', '-') AS better
FROM figure ORDER BY position;

-- less is better in each of these
\pset format unaligned
\pset tuples_only on
SELECT CASE WHEN method = min(method) OVER chart THEN E'\n' || label || E'\n' ELSE '' END ||
	format('  %s %s %s', rpad(method, 6), repeat('#', greatest(1, round(48 * value / max(value) OVER chart)::int)),
		bench.show(value, unit))
FROM bench.metric JOIN bench.result USING (metric)
WHERE charted AND method <> 'none'
WINDOW chart AS (PARTITION BY metric)
ORDER BY position, method;
