--
-- indexes.sql: what the last run of a variant did to its indexes
--
-- Variable: method, the schema.  One row for each finding.  Statistics were
-- reset before the run, and this stands before anything that reads the tables.
--
SET search_path = :"method", public;

SELECT format('index "%s" was not used', indexrelname)
FROM pg_stat_user_indexes WHERE schemaname = :'method' AND idx_scan = 0;

SELECT format('table "%s" was read sequentially (%s times)', relname, seq_scan)
FROM pg_stat_user_tables WHERE schemaname = :'method' AND seq_scan > 0;

-- Every index against its table; an error tells what is wrong.
SELECT FROM
(
	SELECT CASE amname WHEN 'pmhash' THEN pmhash.check(c.oid)::text
		ELSE bt_index_check(c.oid, true)::text END AS checked
	FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam
	WHERE c.relnamespace = :'method'::regnamespace AND c.relkind = 'i'
	OFFSET 0
) AS t WHERE checked IS NULL;
