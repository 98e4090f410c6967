--
-- variant.sql: rows and indexes of one variant
--
-- Variables: method, btree or pmhash, is also the schema.
--
-- What is looked up by equality has an index of the method.  Uniqueness is a
-- primary key with btree, an exclusion constraint with pmhash.  Where btree
-- would order the rows as well it gets the column for that.
--
SET search_path = :"method", public;
SET synchronous_commit = off;
SELECT :'method' = 'pmhash' AS is_pmhash \gset

INSERT INTO warehouse SELECT * FROM tpcc_load.warehouse ORDER BY w_id;
INSERT INTO district SELECT * FROM tpcc_load.district ORDER BY d_w_id, d_id;
INSERT INTO customer SELECT * FROM tpcc_load.customer;
INSERT INTO history SELECT * FROM tpcc_load.history;
INSERT INTO new_order SELECT * FROM tpcc_load.new_order ORDER BY no_w_id, no_d_id, no_o_id;
INSERT INTO orders SELECT * FROM tpcc_load.orders ORDER BY o_w_id, o_d_id, o_id;
INSERT INTO order_line SELECT * FROM tpcc_load.order_line;
INSERT INTO item SELECT * FROM tpcc_load.item;
INSERT INTO stock SELECT * FROM tpcc_load.stock;

-- Delivery wants the oldest new order of a district: order, so a btree in
-- both variants.
ALTER TABLE new_order ADD CONSTRAINT new_order_oldest PRIMARY KEY (no_w_id, no_d_id, no_o_id);

\if :is_pmhash
ALTER TABLE warehouse ADD CONSTRAINT warehouse_key EXCLUDE USING pmhash (w_id WITH =);
ALTER TABLE district ADD CONSTRAINT district_key EXCLUDE USING pmhash (d_w_id WITH =, d_id WITH =);
ALTER TABLE customer ADD CONSTRAINT customer_key
	EXCLUDE USING pmhash (c_w_id WITH =, c_d_id WITH =, c_id WITH =);
ALTER TABLE item ADD CONSTRAINT item_key EXCLUDE USING pmhash (i_id WITH =);
ALTER TABLE stock ADD CONSTRAINT stock_key EXCLUDE USING pmhash (s_w_id WITH =, s_i_id WITH =);
ALTER TABLE orders ADD CONSTRAINT orders_key
	EXCLUDE USING pmhash (o_w_id WITH =, o_d_id WITH =, o_id WITH =);

-- Order lines are read by order, never singly.  An index with ol_number
-- would serve nothing but uniqueness, which consistency.sql sees after.
CREATE INDEX order_line_key ON order_line USING pmhash (ol_w_id, ol_d_id, ol_o_id);

-- The new order that is deleted is looked up by its key; unique already.
CREATE INDEX new_order_key ON new_order USING pmhash (no_w_id, no_d_id, no_o_id);

CREATE INDEX customer_name ON customer USING pmhash (c_w_id, c_d_id, c_last);

-- The newest order of a customer: a customer has few, the newest is picked
-- from them.
CREATE INDEX orders_customer ON orders USING pmhash (o_w_id, o_d_id, o_c_id);
\else
ALTER TABLE warehouse ADD CONSTRAINT warehouse_key PRIMARY KEY (w_id);
ALTER TABLE district ADD CONSTRAINT district_key PRIMARY KEY (d_w_id, d_id);
ALTER TABLE customer ADD CONSTRAINT customer_key PRIMARY KEY (c_w_id, c_d_id, c_id);
ALTER TABLE item ADD CONSTRAINT item_key PRIMARY KEY (i_id);
ALTER TABLE stock ADD CONSTRAINT stock_key PRIMARY KEY (s_w_id, s_i_id);
ALTER TABLE orders ADD CONSTRAINT orders_key PRIMARY KEY (o_w_id, o_d_id, o_id);
ALTER TABLE order_line ADD CONSTRAINT order_line_key
	PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
\endif
