-- The tables that are under load while the power is cut, in each cluster.
\i /dax/setup.sql

-- Rows of one client's transactions: unique keys, keys with many duplicates
-- (value lists), keys that need a recheck.
CREATE TABLE t (id int8, d int4, s text, filler text);
INSERT INTO t
	SELECT -i, i % 40, 'old ' || i, repeat('x', 40) FROM generate_series(1, 4000) i;
CREATE INDEX t_id ON t USING pmhash (id);
CREATE INDEX t_d ON t USING pmhash (d);
CREATE INDEX t_s ON t USING pmhash (s);

-- A constraint.
CREATE TABLE e (id int8, CONSTRAINT e_id EXCLUDE USING pmhash (id WITH =));

-- What was done: a row for each transaction that was acknowledged to the client.
CREATE TABLE done (client int4, n int8);
CREATE INDEX done_n ON done USING pmhash (n);

-- What stands in prepared transactions.
CREATE TABLE kept (id int8);
CREATE INDEX kept_id ON kept USING pmhash (id);

-- One transaction's work: new rows, duplicates, updates and deletions of own
-- and of old rows.
CREATE FUNCTION work(c int4, number int8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t
		SELECT number * 10 + i, 40 * random() * random(), 'key ' || number * 10 + i, 'client ' || c
		FROM generate_series(0, 4) i;
	UPDATE t SET d = 40 * random(), s = s || '+'
		WHERE id = (number - 1 - (20 * random())::int) * 10 + (4 * random())::int;
	DELETE FROM t WHERE id = (number - 1 - (50 * random())::int) * 10 + (4 * random())::int;
	DELETE FROM t WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM t WHERE d = (40 * random())::int LIMIT 3 FOR UPDATE SKIP LOCKED));
	INSERT INTO e VALUES (number);
	DELETE FROM e WHERE id = number - 30;
	INSERT INTO done VALUES (c, number);
END $$;
