--
-- distinct.sql: bytes per entry of a column with 1,000 distinct values: built,
-- and when a fifth more has been inserted
--
-- Variables: method, rows.
--
CREATE TABLE IF NOT EXISTS bench.thousand AS
	SELECT bench.key(bench.pick(n, 8, 1000), 1) AS k FROM generate_series(1::bigint, :rows) AS n;
CREATE INDEX thousand_index ON bench.thousand USING :method (k);
SELECT bench.sample(1, :'method', 'thousand',
	bench.index_bytes('bench.thousand_index')::double precision / count(*))
FROM bench.thousand;
BEGIN;
INSERT INTO bench.thousand
	SELECT bench.key(bench.pick(n, 9, 1000), 1) FROM generate_series(1::bigint, :rows / 5) AS n;
SELECT bench.sample(1, :'method', 'thousand_grown',
	bench.index_bytes('bench.thousand_index')::double precision / count(*))
FROM bench.thousand;
COMMIT;
DROP TABLE bench.thousand;
