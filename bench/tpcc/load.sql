--
-- load.sql: the initial population (clause 4.3.3.1), in schema tpcc_load
--
-- Variables: warehouses; c_last, the constant of NURand for last names.
-- Both variants get copies of these rows.
--
SET search_path = tpcc_load;
SET synchronous_commit = off;
SELECT setseed(0.25);

INSERT INTO item
	SELECT i, tpcc.uniform(1, 10000), tpcc.astring(14, 24),
		tpcc.uniform(100, 10000) / 100.0, tpcc.item_data()
	FROM generate_series(1, 100000) AS i;

INSERT INTO warehouse
	SELECT w, tpcc.astring(6, 10), tpcc.astring(10, 20), tpcc.astring(10, 20),
		tpcc.astring(10, 20), upper(tpcc.astring(2, 2)), tpcc.nstring(4) || '11111',
		tpcc.uniform(0, 2000) / 10000.0, 300000.00
	FROM generate_series(1, :warehouses) AS w;

INSERT INTO stock
	SELECT i, w, tpcc.uniform(10, 100),
		substr(a, 1, 24), substr(a, 25, 24), substr(a, 49, 24),
		substr(b, 1, 24), substr(b, 25, 24), substr(b, 49, 24),
		substr(c, 1, 24), substr(c, 25, 24), substr(c, 49, 24),
		left(tpcc.letters(), 24), 0, 0, 0, tpcc.item_data()
	FROM (SELECT i, w, tpcc.letters() AS a, tpcc.letters() AS b, tpcc.letters() AS c
		  FROM generate_series(1, :warehouses) AS w, generate_series(1, 100000) AS i) AS row;

INSERT INTO district
	SELECT d, w, tpcc.astring(6, 10), tpcc.astring(10, 20), tpcc.astring(10, 20),
		tpcc.astring(10, 20), upper(tpcc.astring(2, 2)), tpcc.nstring(4) || '11111',
		tpcc.uniform(0, 2000) / 10000.0, 30000.00, 3001
	FROM generate_series(1, :warehouses) AS w, generate_series(1, 10) AS d;

INSERT INTO customer
	SELECT c, d_id, d_w_id, tpcc.astring(8, 16), 'OE',
		tpcc.last_name(CASE WHEN c <= 1000 THEN c - 1
					   ELSE tpcc.nurand(255, 0, 999, :c_last) END),
		tpcc.astring(10, 20), tpcc.astring(10, 20), tpcc.astring(10, 20),
		upper(tpcc.astring(2, 2)), tpcc.nstring(4) || '11111', tpcc.nstring(16), now(),
		CASE WHEN random() < 0.1 THEN 'BC' ELSE 'GC' END, 50000.00,
		tpcc.uniform(0, 5000) / 10000.0, -10.00, 10.00, 1, 0,
		left(tpcc.letters() || tpcc.letters() || tpcc.letters() || tpcc.letters() ||
			 tpcc.letters() || tpcc.letters() || tpcc.letters(), tpcc.uniform(300, 500))
	FROM district, generate_series(1, 3000) AS c;

INSERT INTO history
	SELECT c_id, c_d_id, c_w_id, c_d_id, c_w_id, now(), 10.00, tpcc.astring(12, 24)
	FROM customer;

-- Every customer has one order, in random order; the last 900 of a district
-- are not delivered yet.
INSERT INTO orders
	SELECT row_number() OVER (PARTITION BY c_w_id, c_d_id ORDER BY random()), c_d_id, c_w_id,
		c_id, now(), tpcc.uniform(1, 10), tpcc.uniform(5, 15), 1
	FROM customer;
UPDATE orders SET o_carrier_id = NULL WHERE o_id > 2100;

INSERT INTO order_line
	SELECT o_id, o_d_id, o_w_id, n, tpcc.uniform(1, 100000), o_w_id,
		CASE WHEN o_carrier_id IS NOT NULL THEN o_entry_d END, 5,
		CASE WHEN o_carrier_id IS NOT NULL THEN 0 ELSE tpcc.uniform(1, 999999) / 100.0 END,
		tpcc.astring(24, 24)
	FROM orders, generate_series(1, o_ol_cnt) AS n;

INSERT INTO new_order
	SELECT o_id, o_d_id, o_w_id FROM orders WHERE o_carrier_id IS NULL;
