--
-- load_text.sql: long keys and what is probed for among them
--
-- Variables: text_rows, runs, text_probes (of a run).  Needs load.sql.
--
CREATE FUNCTION bench.url(n bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$
	SELECT 'https://shop.example.org/i/' || md5(n::text) || '.html';
$$;

CREATE TABLE bench.page AS
	SELECT bench.url(n) AS url, n FROM generate_series(1::bigint, :text_rows) AS n;

SELECT format('CREATE TABLE bench.url_probe_%s AS
	SELECT bench.url(bench.pick(n, 3, %s)) AS hit
	FROM generate_series(%s::bigint, %s) AS n',
	run, :text_rows, 1 + (run - 1) * :text_probes, run * :text_probes)
FROM generate_series(1, :runs) AS run \gexec

VACUUM (ANALYZE, FREEZE);
