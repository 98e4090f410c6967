--
-- exclusion.sql: rounds of exclusion.sh
--
CREATE EXTENSION pmhash;
CREATE SCHEMA unique_urls;
SET search_path = unique_urls, public;

CREATE TABLE figure
(
	bytes		int NOT NULL,		-- of an url
	operation	text NOT NULL,
	method		text NOT NULL,
	ms			float8 NOT NULL,
	wal			float8 NOT NULL,	-- bytes per row
	index_bytes	bigint NOT NULL		-- after it
);

-- An url of so many bytes, which no compression makes shorter.
CREATE FUNCTION url(n bigint, bytes int) RETURNS text LANGUAGE sql IMMUTABLE AS
$$
	SELECT 'https://www.example.org/' || string_agg(md5(n || '/' || i), '')
	FROM generate_series(1, (bytes - 24 + 31) / 32) AS i
$$;

-- The urls of a round, made before anything is timed: n that are inserted
-- first, n / 10 that are inserted one by one, and n of which half are there.
CREATE PROCEDURE make_urls(bytes int, n int) LANGUAGE plpgsql AS
$$
BEGIN
	DROP TABLE IF EXISTS source;
	CREATE UNLOGGED TABLE source AS
		SELECT i, left(url(i, make_urls.bytes), make_urls.bytes) AS url
		FROM generate_series(1, n + n / 10 + n / 2) AS i;
	ANALYZE source;
END
$$;

CREATE PROCEDURE time_it(operation text, method text, bytes int, rows int, command text)
LANGUAGE plpgsql AS
$$
DECLARE
	lsn pg_lsn := pg_current_wal_insert_lsn();
	since timestamptz := clock_timestamp();
	ms float8;
	size bigint;
BEGIN
	EXECUTE command;
	ms := extract(epoch FROM clock_timestamp() - since) * 1000;
	SELECT CASE time_it.method WHEN 'pmhash' THEN pmhash.size(indexrelid)
		ELSE pg_relation_size(indexrelid) END
		INTO STRICT size FROM pg_index WHERE indrelid = 'page'::regclass;
	INSERT INTO figure VALUES (bytes, operation, method, ms,
		(pg_current_wal_insert_lsn() - lsn) / rows::float8, size);
	COMMIT;
END
$$;

CREATE PROCEDURE round(method text, bytes int, n int) LANGUAGE plpgsql AS
$$
DECLARE
	found bigint;
	different bigint;
BEGIN
	PERFORM set_config('search_path', 'unique_urls, public', false);
	CALL make_urls(bytes, n);
	DROP TABLE IF EXISTS page;
	CREATE TABLE page (url text, n int);
	IF method = 'pmhash' THEN
		ALTER TABLE page ADD EXCLUDE USING pmhash (url WITH =);
	ELSE
		ALTER TABLE page ADD UNIQUE (url);
	END IF;
	COMMIT;

	CALL time_it('INSERT ... SELECT', method, bytes, n,
		format('INSERT INTO page SELECT url, i FROM source WHERE i <= %s', n));
	CALL time_it('INSERT, one by one', method, bytes, n / 10, format(
		'DO $do$ DECLARE u text; BEGIN FOR u IN SELECT url FROM source WHERE i > %1$s AND i <= %1$s + %1$s / 10
			LOOP INSERT INTO page VALUES (u, 0); END LOOP; END $do$', n));
	CALL time_it('ON CONFLICT DO NOTHING, half are there', method, bytes, n, format(
		'INSERT INTO page SELECT url, i FROM source WHERE i <= %1$s / 2 OR i > %1$s + %1$s / 10
			ON CONFLICT DO NOTHING', n));

	SELECT count(*), count(DISTINCT page.url) INTO found, different FROM page;
	IF found <> n + n / 10 + n / 2 OR different <> found THEN
		RAISE '%: % rows, % different urls of % bytes', method, found, different, bytes;
	END IF;
	BEGIN
		INSERT INTO page SELECT url FROM source WHERE i = 1;
		RAISE '%: an url of % bytes was accepted twice', method, bytes;
	EXCEPTION
		WHEN unique_violation OR exclusion_violation THEN NULL;
	END;
END
$$;

CREATE VIEW median AS
	SELECT bytes, operation, method,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY wal) AS wal,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY index_bytes) / 1e6 AS mb
	FROM figure GROUP BY 1, 2, 3;

-- Ratios above 1 are in favour of pmhash.
CREATE VIEW report AS
	SELECT bytes, operation,
		coalesce(to_char(b.ms, 'FM999,990'), 'cannot') AS "btree ms",
		to_char(p.ms, 'FM999,990') AS "pmhash ms",
		coalesce(to_char(b.ms / p.ms, 'FM990.00') || ' x', '-') AS better,
		to_char(b.wal, 'FM999,990') AS "btree WAL/row",
		to_char(p.wal, 'FM999,990') AS "pmhash WAL/row",
		to_char(b.mb, 'FM999,990.0') AS "btree MB",
		to_char(p.mb, 'FM999,990.0') AS "pmhash MB"
	FROM (SELECT * FROM median WHERE method = 'pmhash') AS p
		LEFT JOIN (SELECT * FROM median WHERE method = 'btree') AS b USING (bytes, operation)
	ORDER BY bytes, operation DESC;
