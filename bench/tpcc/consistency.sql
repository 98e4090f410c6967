--
-- consistency.sql: consistency conditions 1 to 10 and 12 (clause 3.3.2), and
-- keys that occur twice; one row for each that is violated
--
-- Variable: method, the schema.  Read by sequential scans: what the indexes
-- say is compared with the tables by other means.
--
SET search_path = :"method", public;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SET enable_bitmapscan = off;
SET work_mem = '256MB';
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

WITH
by_district AS
(
	SELECT d_w_id AS w, d_id AS d, d_next_o_id, d_ytd,
		max_o, max_no, min_no, new_orders, ol_cnt, lines, paid
	FROM district
		LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS max_o, sum(o_ol_cnt) AS ol_cnt
				   FROM orders GROUP BY 1, 2) AS o
			ON o_w_id = d_w_id AND o_d_id = d_id
		LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS max_no, min(no_o_id) AS min_no,
					   count(*) AS new_orders
				   FROM new_order GROUP BY 1, 2) AS no
			ON no_w_id = d_w_id AND no_d_id = d_id
		LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS lines
				   FROM order_line GROUP BY 1, 2) AS ol
			ON ol_w_id = d_w_id AND ol_d_id = d_id
		LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid
				   FROM history GROUP BY 1, 2) AS h
			ON h_w_id = d_w_id AND h_d_id = d_id
),
by_warehouse AS
(
	SELECT w_ytd, sum(d_ytd) AS district_ytd, sum(paid) AS paid
	FROM warehouse LEFT JOIN by_district ON w = w_id
	GROUP BY w_id, w_ytd
),
-- also orders without lines and lines without an order
by_order AS
(
	SELECT o_w_id AS w, o_d_id AS d, o_c_id AS c, o_carrier_id, o_ol_cnt, o_id,
		no_o_id, lines, delivered, amount
	FROM orders
		FULL JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS lines,
					   count(ol_delivery_d) AS delivered, sum(ol_amount) AS amount
				   FROM order_line GROUP BY 1, 2, 3) AS ol
			ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
		FULL JOIN new_order
			ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
),
by_customer AS
(
	SELECT c_balance, c_ytd_payment, coalesce(amount, 0) AS amount, coalesce(paid, 0) AS paid
	FROM customer
		LEFT JOIN (SELECT w, d, c, sum(amount) AS amount
				   FROM by_order WHERE o_carrier_id IS NOT NULL GROUP BY 1, 2, 3) AS o
			ON w = c_w_id AND d = c_d_id AND c = c_id
		LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid
				   FROM history GROUP BY 1, 2, 3) AS h
			ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
),
violation (condition, times) AS
(
	SELECT '1: W_YTD = sum(D_YTD)', count(*) FROM by_warehouse
		WHERE w_ytd IS DISTINCT FROM district_ytd
	UNION ALL
	SELECT '2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)', count(*) FROM by_district
		WHERE d_next_o_id - 1 IS DISTINCT FROM max_o OR max_no <> max_o
	UNION ALL
	SELECT '3: max(NO_O_ID) - min(NO_O_ID) + 1 = number of new orders', count(*) FROM by_district
		WHERE max_no - min_no + 1 <> new_orders
	UNION ALL
	SELECT '4: sum(O_OL_CNT) = number of order lines', count(*) FROM by_district
		WHERE ol_cnt IS DISTINCT FROM lines
	UNION ALL
	SELECT '5: O_CARRIER_ID is null if there is a new order', count(*) FROM by_order
		WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL) OR o_id IS NULL
	UNION ALL
	SELECT '6: O_OL_CNT = number of lines of the order', count(*) FROM by_order
		WHERE o_ol_cnt IS DISTINCT FROM lines
	UNION ALL
	SELECT '7: OL_DELIVERY_D is null if O_CARRIER_ID is', count(*) FROM by_order
		WHERE delivered <> CASE WHEN o_carrier_id IS NULL THEN 0 ELSE lines END
	UNION ALL
	SELECT '8: W_YTD = sum(H_AMOUNT)', count(*) FROM by_warehouse
		WHERE w_ytd IS DISTINCT FROM paid
	UNION ALL
	SELECT '9: D_YTD = sum(H_AMOUNT)', count(*) FROM by_district
		WHERE d_ytd IS DISTINCT FROM paid
	UNION ALL
	SELECT '10: C_BALANCE = sum(OL_AMOUNT) - sum(H_AMOUNT)', count(*) FROM by_customer
		WHERE c_balance <> amount - paid
	UNION ALL
	SELECT '12: C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT)', count(*) FROM by_customer
		WHERE c_balance + c_ytd_payment <> amount
	UNION ALL
	SELECT 'order lines are numbered from 1', count(*)
		FROM (SELECT 1 FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id
			  HAVING count(DISTINCT ol_number) <> count(*) OR max(ol_number) <> count(*)) AS t
	UNION ALL
	SELECT 'orders are unique', count(*) - count(DISTINCT (o_w_id, o_d_id, o_id)) FROM orders
	UNION ALL
	SELECT 'customers are unique', count(*) - count(DISTINCT (c_w_id, c_d_id, c_id)) FROM customer
	UNION ALL
	SELECT 'stock is unique', count(*) - count(DISTINCT (s_w_id, s_i_id)) FROM stock
	UNION ALL
	SELECT 'S_YTD = quantities ordered', abs(
		(SELECT sum(s_ytd) FROM stock) -
		(SELECT coalesce(sum(ol_quantity), 0) FROM order_line WHERE ol_o_id > 3000))
)
SELECT format('condition violated: %s (%s times)', condition, times)
FROM violation WHERE times <> 0;
COMMIT;
