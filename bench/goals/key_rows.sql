--
-- key_rows.sql: bytes per entry where each key has some rows, as foreign keys have:
-- the number of rows of a key is drawn at random around key_rows.  Built, and inserted
-- row by row, in random order, into an empty index.
--
-- Variables: method, rows, key_rows.
--
CREATE TABLE bench.key_rows AS
	SELECT bench.key(bench.pick(n, 12, :rows / :key_rows), 1) AS k
	FROM generate_series(1::bigint, :rows) AS n;
CREATE INDEX key_rows_index ON bench.key_rows USING :method (k);
SELECT bench.sample(1, :'method', 'rows_' || :key_rows || '_built',
	bench.index_bytes('bench.key_rows_index')::double precision / :rows);
DROP INDEX bench.key_rows_index;

CREATE TABLE bench.key_rows_grown (k bigint);
CREATE INDEX key_rows_index ON bench.key_rows_grown USING :method (k);
INSERT INTO bench.key_rows_grown SELECT k FROM bench.key_rows;
SELECT bench.sample(1, :'method', 'rows_' || :key_rows || '_inserted',
	bench.index_bytes('bench.key_rows_index')::double precision / :rows);
DROP TABLE bench.key_rows, bench.key_rows_grown;
