-- Tables and functions of bench/tpch.sh.
CREATE EXTENSION pmhash;
CREATE EXTENSION pg_prewarm;
CREATE TABLE region (r_regionkey int PRIMARY KEY, r_name char(25), r_comment varchar(152));
CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name char(25), n_regionkey int, n_comment varchar(152));
CREATE TABLE supplier (s_suppkey int PRIMARY KEY, s_name char(25), s_address varchar(40), s_nationkey int,
	s_phone char(15), s_acctbal numeric(15, 2), s_comment varchar(101));
CREATE TABLE customer (c_custkey int PRIMARY KEY, c_name varchar(25), c_address varchar(40), c_nationkey int,
	c_phone char(15), c_acctbal numeric(15, 2), c_mktsegment char(10), c_comment varchar(117));
CREATE TABLE part (p_partkey int PRIMARY KEY, p_name varchar(55), p_mfgr char(25), p_brand char(10),
	p_type varchar(25), p_size int, p_container char(10), p_retailprice numeric(15, 2), p_comment varchar(23));
CREATE TABLE partsupp (ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost numeric(15, 2),
	ps_comment varchar(199), PRIMARY KEY (ps_partkey, ps_suppkey));
CREATE TABLE orders (o_orderkey bigint PRIMARY KEY, o_custkey int, o_orderstatus char(1),
	o_totalprice numeric(15, 2), o_orderdate date, o_orderpriority char(15), o_clerk char(15),
	o_shippriority int, o_comment varchar(79));
CREATE TABLE lineitem (l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int,
	l_quantity numeric(15, 2), l_extendedprice numeric(15, 2), l_discount numeric(15, 2), l_tax numeric(15, 2),
	l_returnflag char(1), l_linestatus char(1), l_shipdate date, l_commitdate date, l_receiptdate date,
	l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44), PRIMARY KEY (l_orderkey, l_linenumber));

CREATE SCHEMA tpch;
CREATE TABLE tpch.size (method text, index text, bytes bigint, rows bigint);
CREATE TABLE tpch.result (query text, method text, workers int, ms float8, answer text, plan text);

-- Each foreign key by an index of that method, instead of those that there are.
CREATE PROCEDURE tpch.index_by(method text) LANGUAGE plpgsql AS $$
DECLARE
	name text;
	keys text;
	n int := 0;
BEGIN
	FOR name IN SELECT relname FROM pg_class WHERE relname LIKE 'foreign\_%' AND relkind = 'i' LOOP
		EXECUTE 'DROP INDEX ' || name;
	END LOOP;
	FOREACH keys IN ARRAY ARRAY['nation:n_regionkey', 'supplier:s_nationkey', 'customer:c_nationkey',
		'partsupp:ps_partkey', 'partsupp:ps_suppkey', 'orders:o_custkey', 'lineitem:l_orderkey',
		'lineitem:l_partkey', 'lineitem:l_suppkey', 'lineitem:l_partkey, l_suppkey'] LOOP
		n := n + 1;
		EXECUTE format('CREATE INDEX foreign_%s ON %I USING %I (%s)', n, split_part(keys, ':', 1), method,
			split_part(keys, ':', 2));
		EXECUTE format('INSERT INTO tpch.size SELECT %L, %L, %s(''foreign_%s''), count(*) FROM %I', method, keys,
			CASE method WHEN 'pmhash' THEN 'pmhash.size' ELSE 'pg_relation_size' END, n, split_part(keys, ':', 1));
	END LOOP;
END $$;

-- Have all cached that fits.
CREATE PROCEDURE tpch.warm() LANGUAGE sql AS $$
SELECT pg_prewarm(c.oid) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
WHERE c.relnamespace = 'public'::regnamespace AND a.amname IN ('heap', 'btree')
$$;

-- Run a query; note its time, answer and plan.
CREATE PROCEDURE tpch.take(name text, how text, query text) LANGUAGE plpgsql AS $$
DECLARE
	r tpch.result;
	line text;
	began timestamptz;
BEGIN
	r := (name, how, current_setting('max_parallel_workers_per_gather'), NULL, NULL, '');
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		r.plan := r.plan || line || E'\n';
	END LOOP;
	began := clock_timestamp();
	EXECUTE format('SELECT count(*) || '' rows, '' || coalesce(md5(string_agg(q::text, E''\n'' ORDER BY q::text COLLATE "C")), '''') FROM (%s) q', query)
		INTO r.answer;
	r.ms := extract(epoch FROM clock_timestamp() - began) * 1000;
	INSERT INTO tpch.result SELECT r.*;
END $$;

CREATE VIEW tpch.median AS
SELECT query, workers, method, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms, count(DISTINCT answer) AS answers,
	bool_or(plan LIKE '%pmhash join%') AS joined, bool_or(plan LIKE '%using foreign\_%' OR plan LIKE '%on foreign\_%') AS scanned
FROM tpch.result GROUP BY 1, 2, 3;

-- The goal: no more than btree's in all.
CREATE VIEW tpch.sizes AS
SELECT coalesce(split_part(index, ':', 2), 'all') AS "foreign key",
	round(sum(rows) FILTER (WHERE method = 'pmhash')) AS rows,
	round(sum(bytes) FILTER (WHERE method = 'btree') / 1048576.0, 1) AS "btree, MB",
	round(sum(bytes) FILTER (WHERE method = 'pmhash') / 1048576.0, 1) AS "pmhash, MB",
	round(sum(bytes) FILTER (WHERE method = 'pmhash') / sum(bytes) FILTER (WHERE method = 'btree'), 2) AS "of btree"
FROM tpch.size GROUP BY ROLLUP (index) ORDER BY index;

CREATE VIEW tpch.report AS
SELECT p.query, p.workers, round(b.ms) AS btree, round(p.ms) AS pmhash, round((p.ms / b.ms)::numeric, 2) AS "of btree",
	CASE WHEN p.joined THEN 'pmhash join' WHEN p.scanned THEN 'index scans' ELSE '' END AS uses
FROM tpch.median p JOIN tpch.median b USING (query, workers)
WHERE p.method = 'pmhash' AND b.method = 'btree' ORDER BY p.workers, p.query;
