--
-- transactions.sql: the five transactions (clauses 2.4 to 2.8) in PL/pgSQL
--
-- Variables: method, btree or pmhash, is also the schema.
--
-- Arguments are what a terminal would send; the scripts *.pgbench make them.
-- Isolation is READ COMMITTED: rows that are changed are locked first, in an
-- order that cannot lead to a deadlock.
--
SET search_path = :"method", public;
SELECT :'method' = 'pmhash' AS is_pmhash \gset

--
-- New-Order (2.4).  Of the arrays the first in_ol_cnt elements count.  An
-- item that does not exist, always the last one in item order, rolls
-- everything back; total is NULL then.
--
CREATE PROCEDURE new_order(in_w int, in_d int, in_c int, in_ol_cnt int,
						   in_items int[], in_supplies int[], in_quantities int[],
						   INOUT total numeric DEFAULT 0)
LANGUAGE plpgsql AS
$$
DECLARE
	warehouse_tax numeric;
	district_tax numeric;
	customer record;
	o int;
	line record;
	item record;
	stock record;
	unused boolean := false;
BEGIN
	SELECT w_tax INTO STRICT warehouse_tax FROM warehouse WHERE w_id = in_w;
	UPDATE district SET d_next_o_id = d_next_o_id + 1
		WHERE d_w_id = in_w AND d_id = in_d
		RETURNING d_tax, d_next_o_id - 1 INTO STRICT district_tax, o;
	SELECT c_discount, c_last, c_credit INTO STRICT customer
		FROM customer WHERE c_w_id = in_w AND c_d_id = in_d AND c_id = in_c;
	INSERT INTO orders VALUES (o, in_d, in_w, in_c, now(), NULL, in_ol_cnt,
		(in_w = ALL (in_supplies[1 : in_ol_cnt]))::int);
	INSERT INTO new_order VALUES (o, in_d, in_w);

	FOR line IN
		SELECT n, in_items[n] AS i, in_supplies[n] AS supply, in_quantities[n] AS quantity
		FROM generate_series(1, in_ol_cnt) AS n
		ORDER BY i, supply
	LOOP
		SELECT i_price, i_name, i_data INTO item FROM item WHERE i_id = line.i;
		IF NOT FOUND THEN
			unused := true;
			EXIT;
		END IF;
		UPDATE stock
			SET s_quantity = s_quantity - line.quantity +
					CASE WHEN s_quantity >= line.quantity + 10 THEN 0 ELSE 91 END,
				s_ytd = s_ytd + line.quantity,
				s_order_cnt = s_order_cnt + 1,
				s_remote_cnt = s_remote_cnt + (line.supply <> in_w)::int
			WHERE s_w_id = line.supply AND s_i_id = line.i
			RETURNING s_quantity, s_data,
				CASE in_d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
					WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
					WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
					ELSE s_dist_10 END AS dist
			INTO STRICT stock;
		INSERT INTO order_line VALUES (o, in_d, in_w, line.n, line.i, line.supply, NULL,
			line.quantity, line.quantity * item.i_price, stock.dist);
		total := total + line.quantity * item.i_price;
	END LOOP;

	IF unused THEN
		ROLLBACK;
		total := NULL;
	ELSE
		total := total * (1 - customer.c_discount) * (1 + warehouse_tax + district_tax);
	END IF;
END
$$;

-- The customer of a name: the middle one by first name (2.5.2.2).
CREATE FUNCTION customer_by_name(in_w int, in_d int, in_name int)
RETURNS int LANGUAGE plpgsql STABLE AS
$$
DECLARE
	ids int[];
BEGIN
	SELECT array_agg(c_id ORDER BY c_first) INTO ids
		FROM customer
		WHERE c_w_id = in_w AND c_d_id = in_d AND c_last = tpcc.last_name(in_name);
	IF ids IS NULL THEN
		RAISE EXCEPTION 'no customer of district % of warehouse % is named %',
			in_d, in_w, tpcc.last_name(in_name);
	END IF;
	RETURN ids[(cardinality(ids) + 1) / 2];
END
$$;

-- Payment (2.5), by customer number or, if that is 0, by name.
CREATE FUNCTION payment(in_w int, in_d int, in_c_w int, in_c_d int, in_c int,
						in_name int, in_amount numeric)
RETURNS numeric LANGUAGE plpgsql AS
$$
DECLARE
	c int := in_c;
	warehouse_name text;
	district_name text;
	balance numeric;
BEGIN
	UPDATE warehouse SET w_ytd = w_ytd + in_amount WHERE w_id = in_w
		RETURNING w_name INTO STRICT warehouse_name;
	UPDATE district SET d_ytd = d_ytd + in_amount WHERE d_w_id = in_w AND d_id = in_d
		RETURNING d_name INTO STRICT district_name;
	IF c = 0 THEN
		c := customer_by_name(in_c_w, in_c_d, in_name);
	END IF;
	UPDATE customer
		SET c_balance = c_balance - in_amount,
			c_ytd_payment = c_ytd_payment + in_amount,
			c_payment_cnt = c_payment_cnt + 1,
			c_data = CASE c_credit
				WHEN 'BC' THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, in_d, in_w,
											  in_amount, c_data), 500)
				ELSE c_data END
		WHERE c_w_id = in_c_w AND c_d_id = in_c_d AND c_id = c
		RETURNING c_balance INTO STRICT balance;
	INSERT INTO history VALUES (c, in_c_d, in_c_w, in_d, in_w, now(), in_amount,
		warehouse_name || '    ' || district_name);
	RETURN balance;
END
$$;

-- Order-Status (2.6): the lines of the customer's newest order.
CREATE FUNCTION order_status(in_w int, in_d int, in_c int, in_name int)
RETURNS SETOF order_line LANGUAGE plpgsql STABLE AS
$$
DECLARE
	c int := in_c;
	customer record;
	newest record;
BEGIN
	IF c = 0 THEN
		c := customer_by_name(in_w, in_d, in_name);
	END IF;
	SELECT c_balance, c_first, c_middle, c_last INTO STRICT customer
		FROM customer WHERE c_w_id = in_w AND c_d_id = in_d AND c_id = c;
	SELECT o_id, o_entry_d, o_carrier_id INTO STRICT newest
		FROM orders WHERE o_w_id = in_w AND o_d_id = in_d AND o_c_id = c
		ORDER BY o_id DESC LIMIT 1;
	RETURN QUERY SELECT * FROM order_line
		WHERE ol_w_id = in_w AND ol_d_id = in_d AND ol_o_id = newest.o_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'order % of district % of warehouse % has no lines',
			newest.o_id, in_d, in_w;
	END IF;
END
$$;

-- Delivery (2.7), of all districts at once; the number of orders delivered.
CREATE FUNCTION delivery(in_w int, in_carrier int)
RETURNS int LANGUAGE plpgsql AS
$$
DECLARE
	o int;
	c int;
	amount numeric;
	delivered int := 0;
BEGIN
	FOR d IN 1 .. 10 LOOP
		SELECT no_o_id INTO o FROM new_order
			WHERE no_w_id = in_w AND no_d_id = d
			ORDER BY no_o_id LIMIT 1 FOR UPDATE;
		CONTINUE WHEN NOT FOUND;
		DELETE FROM new_order WHERE no_w_id = in_w AND no_d_id = d AND no_o_id = o;
		UPDATE orders SET o_carrier_id = in_carrier
			WHERE o_w_id = in_w AND o_d_id = d AND o_id = o
			RETURNING o_c_id INTO STRICT c;
		WITH line AS
		(
			UPDATE order_line SET ol_delivery_d = now()
			WHERE ol_w_id = in_w AND ol_d_id = d AND ol_o_id = o
			RETURNING ol_amount
		)
		SELECT sum(ol_amount) INTO STRICT amount FROM line;
		UPDATE customer
			SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
			WHERE c_w_id = in_w AND c_d_id = d AND c_id = c;
		delivered := delivered + 1;
	END LOOP;
	RETURN delivered;
END
$$;

--
-- Stock-Level (2.8): how many items of the last 20 orders run short.  Orders
-- of a district are numbered without gaps, so the range is also a list of 20
-- keys.
--
\if :is_pmhash
CREATE FUNCTION stock_level(in_w int, in_d int, in_threshold int)
RETURNS bigint LANGUAGE plpgsql STABLE AS
$$
DECLARE
	next_o int;
BEGIN
	SELECT d_next_o_id INTO STRICT next_o FROM district WHERE d_w_id = in_w AND d_id = in_d;
	RETURN (SELECT count(DISTINCT s_i_id)
			FROM order_line JOIN stock ON s_w_id = in_w AND s_i_id = ol_i_id
			WHERE ol_w_id = in_w AND ol_d_id = in_d
				AND ol_o_id = ANY (ARRAY(SELECT generate_series(next_o - 20, next_o - 1)))
				AND s_quantity < in_threshold);
END
$$;
\else
CREATE FUNCTION stock_level(in_w int, in_d int, in_threshold int)
RETURNS bigint LANGUAGE plpgsql STABLE AS
$$
DECLARE
	next_o int;
BEGIN
	SELECT d_next_o_id INTO STRICT next_o FROM district WHERE d_w_id = in_w AND d_id = in_d;
	RETURN (SELECT count(DISTINCT s_i_id)
			FROM order_line JOIN stock ON s_w_id = in_w AND s_i_id = ol_i_id
			WHERE ol_w_id = in_w AND ol_d_id = in_d
				AND ol_o_id >= next_o - 20 AND ol_o_id < next_o
				AND s_quantity < in_threshold);
END
$$;
\endif
