--
-- workloads.sql: keys of other kinds than random integers
--
-- Variables: work_rows, work_fresh, work_probes.
--
-- For each workload: tables rows_NAME and fresh_rows_NAME of its key columns
-- and a payload, and probe sets hit_NAME and miss_NAME of the key columns.
-- Keys looked up are all different, whatever their frequency.
--

-- Graph edges and zipf: rank 0 .. n - 1 of a zipf distribution, from u in
-- [0, 1).  J. Gray et al.: Quickly generating billion-record synthetic
-- databases, SIGMOD 1994.
CREATE TABLE bench.zipf
(
	theta	double precision PRIMARY KEY,
	n		bigint NOT NULL,
	zetan	double precision NOT NULL
);
INSERT INTO bench.zipf
	SELECT theta, :work_rows / 10, sum(i ^ -theta)
	FROM unnest(ARRAY[0.5, 0.8, 0.99]::double precision[]) AS theta,
		generate_series(1, :work_rows / 10) AS i
	GROUP BY theta;

CREATE FUNCTION bench.zipf_rank(u double precision, n bigint, theta double precision,
								zetan double precision)
RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$
	SELECT CASE
		WHEN u * zetan < 1 THEN 0
		WHEN u * zetan < 1 + 0.5 ^ theta THEN 1
		ELSE least(n - 1, floor(n * (1 + (1 - (2.0 / n) ^ (1 - theta)) /
			(1 - (1 + 0.5 ^ theta) / zetan) * (u - 1)) ^ (1 / (1 - theta)))::bigint)
		END;
$$;

-- A number in [0, 1).
CREATE FUNCTION bench.uniform(n bigint, stream int)
RETURNS double precision LANGUAGE sql IMMUTABLE AS
$$
	SELECT (hashint8extended(n, stream) >> 11 & 9007199254740991) / 9007199254740992.0::double precision;
$$;

--
-- name, key columns, and the expressions that give them for row n and for a
-- key that is not there.
--
CREATE TABLE bench.workload
(
	position	int GENERATED ALWAYS AS IDENTITY,
	name		text PRIMARY KEY,
	columns		text[] NOT NULL,
	present		text NOT NULL,
	absent		text NOT NULL
);
INSERT INTO bench.workload (name, columns, present, absent) VALUES
	('uniform', '{k}', 'bench.key(n, 11) AS k', 'bench.key(n, 12) AS k');
INSERT INTO bench.workload (name, columns, present, absent)
	SELECT 'zipf_' || translate(theta::text, '.', ''), '{k}',
		format('bench.key(bench.zipf_rank(bench.uniform(n, 13), %s, %s, %s), 11) AS k',
			   n, theta, zetan),
		'bench.key(n, 12) AS k'
	FROM bench.zipf ORDER BY theta;
-- Chung-Lu: both ends of an edge by weight, the weight of vertex i being
-- i ^ -0.8: degrees follow a power law with exponent 2.25.  Sixteen edges a
-- vertex; the index is on the source.
INSERT INTO bench.workload (name, columns, present, absent) VALUES
	('graph', '{source}',
	 format('bench.key(floor(%s * bench.uniform(n, 14) ^ 5)::bigint, 11) AS source,
			 bench.key(floor(%s * bench.uniform(n, 15) ^ 5)::bigint, 11) AS target',
			:work_rows / 16, :work_rows / 16),
	 'bench.key(n, 12) AS source'),
	('url', '{url}',
	 '''https://shop.example.org/catalogue/items/'' || md5(n::text) || ''/1.html'' AS url',
	 '''https://shop.example.org/catalogue/items/'' || md5((-n)::text) || ''/1.html'' AS url'),
	('uuid', '{id}', 'md5(n::text)::uuid AS id', 'md5((-n)::text)::uuid AS id'),
	('composite', '{customer,number}',
	 'bench.pick(n, 16, 100000)::int AS customer, n AS number',
	 'bench.pick(n, 16, 100000)::int AS customer, -n AS number');

SELECT format('CREATE TABLE bench.rows_%1$s AS SELECT %2$s, n AS payload
				FROM generate_series(1::bigint, %3$s) AS n', name, present, :work_rows),
	format('CREATE TABLE bench.fresh_rows_%1$s AS SELECT %2$s, n AS payload
			FROM generate_series(%3$s + 1::bigint, %3$s + %4$s) AS n',
		   name, present, :work_rows, :work_fresh),
	format('CREATE TABLE bench.miss_%1$s AS SELECT %2$s
			FROM generate_series(1::bigint, %3$s) AS n', name, absent, :work_probes),
	format('CREATE TABLE bench.hit_%1$s AS SELECT %2$s FROM bench.rows_%1$s
			GROUP BY %2$s ORDER BY hashtextextended(concat(%2$s), 0) LIMIT %3$s',
		   name, array_to_string(columns, ', '), :work_probes)
FROM bench.workload ORDER BY position \gexec

-- How many keys a probe set has.
CREATE TABLE bench.probe_count
(
	probe_set	text PRIMARY KEY,
	n			bigint NOT NULL
);
SELECT format('INSERT INTO bench.probe_count SELECT %1$L, count(*) FROM bench.%1$s',
	kind || '_' || name)
FROM bench.workload, unnest(ARRAY['hit', 'miss']) AS kind \gexec

DO $$
BEGIN
	IF EXISTS (SELECT FROM bench.rows_url WHERE octet_length(url) <> 80) THEN
		RAISE EXCEPTION 'a URL has not 80 bytes';
	END IF;
END
$$;
VACUUM (ANALYZE, FREEZE);
