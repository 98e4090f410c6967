--
-- record.sql: where the runs note their figures
--
CREATE TABLE tpcc.round
(
	method		text NOT NULL,
	round		int NOT NULL,
	new_orders	float8 NOT NULL,	-- committed, per minute
	rolled_back	float8 NOT NULL,	-- share of the New-Orders
	tps			float8 NOT NULL,	-- all five kinds, per second
	processor	float8 NOT NULL,	-- microseconds of the backends per transaction
	wal			float8 NOT NULL,	-- bytes per transaction
	images		float8 NOT NULL,	-- full-page images per transaction
	PRIMARY KEY (method, round)
);

-- Orders ever entered and payments ever made, by what the tables say.
CREATE FUNCTION tpcc.progress(method text, OUT orders bigint, OUT payments bigint)
LANGUAGE plpgsql AS
$$
BEGIN
	EXECUTE format('SELECT (SELECT sum(d_next_o_id - 1) FROM %1$I.district),
						   (SELECT count(*) FROM %1$I.history)', method) INTO orders, payments;
END
$$;

-- Bytes of an index: pmhash keeps only a stub page where PostgreSQL looks.
CREATE FUNCTION tpcc.index_bytes(index regclass) RETURNS bigint LANGUAGE sql AS
$$
	SELECT CASE amname WHEN 'pmhash' THEN pmhash.size(c.oid) ELSE pg_relation_size(c.oid) END
	FROM pg_class AS c JOIN pg_am AS a ON a.oid = c.relam WHERE c.oid = index;
$$;
