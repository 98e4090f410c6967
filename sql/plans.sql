--
-- Prepared statements, cursors, parallel query.
--
CREATE TABLE plans (k int4, g int4, t text);
INSERT INTO plans SELECT i, i % 100, 'x' || i FROM generate_series(1, 20000) i;
CREATE INDEX plans_k ON plans USING pmhash (k);
CREATE INDEX plans_g ON plans USING pmhash (g);
VACUUM ANALYZE plans;

-- generic plans: the key comes at execution
SET plan_cache_mode = force_generic_plan;
PREPARE by_k(int4) AS SELECT k, t FROM plans WHERE k = $1;
PREPARE by_list(int4[]) AS SELECT k, t FROM plans WHERE k = ANY ($1) ORDER BY k;
EXPLAIN (COSTS OFF) EXECUTE by_k(1);
EXECUTE by_k(1);
EXECUTE by_k(20000);
EXECUTE by_k(-1);
EXECUTE by_k(NULL);
EXECUTE by_list('{3,2,1,3}');
EXECUTE by_list(NULL);
-- the plan outlives a new file and a dropped index
REINDEX INDEX plans_k;
EXECUTE by_k(1);
REINDEX INDEX CONCURRENTLY plans_k;
EXECUTE by_k(1);
VACUUM FULL plans;
EXECUTE by_k(1);
DROP INDEX plans_k;
EXECUTE by_k(1);
CREATE INDEX plans_k ON plans USING pmhash (k);
EXPLAIN (COSTS OFF) EXECUTE by_k(1);
EXECUTE by_k(1);
DEALLOCATE ALL;
RESET plan_cache_mode;

-- plpgsql keeps plans too
CREATE FUNCTION plans_sum(low int4, high int4) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
	total int8 := 0;
	one int4;
BEGIN
	FOR i IN low..high LOOP
		SELECT k INTO STRICT one FROM plans WHERE k = i;
		total := total + one;
	END LOOP;
	RETURN total;
END $$;
SELECT plans_sum(1, 1000), plans_sum(19001, 20000);

-- cursors; MOVE tells how far it got
SET enable_seqscan = off;
SET enable_bitmapscan = off;
\set QUIET off
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT g FROM plans WHERE g = 5;
FETCH 3 FROM c;
MOVE FORWARD ALL IN c;
FETCH BACKWARD 2 FROM c;
FETCH ABSOLUTE 1 FROM c;
FETCH LAST FROM c;
FETCH FIRST FROM c;
CLOSE c;
DECLARE c NO SCROLL CURSOR FOR SELECT g FROM plans WHERE g = 5;
MOVE 10 IN c;
-- what comes after the cursor was opened is not for it, what goes stays
DELETE FROM plans WHERE g = 5;
INSERT INTO plans SELECT -1, 5, 'later' FROM generate_series(1, 1000);
MOVE FORWARD ALL IN c;
ROLLBACK;
BEGIN;
DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT g FROM plans WHERE g = 6;
FETCH 1 FROM h;
COMMIT;
MOVE FORWARD ALL IN h;
FETCH BACKWARD 1 FROM h;
CLOSE h;
-- WHERE CURRENT OF
BEGIN;
DECLARE c CURSOR FOR SELECT k FROM plans WHERE k = 77 FOR UPDATE;
FETCH c;
UPDATE plans SET t = 'current' WHERE CURRENT OF c;
COMMIT;
SELECT * FROM plans WHERE k = 77;
-- a savepoint rolled back under an open cursor
BEGIN;
SAVEPOINT a;
DECLARE c CURSOR FOR SELECT g FROM plans WHERE g = 7;
FETCH 1 FROM c;
SAVEPOINT b;
INSERT INTO plans VALUES (0, 7, 'x');
ROLLBACK TO b;
MOVE FORWARD ALL IN c;
ROLLBACK TO a;
COMMIT;
\set QUIET on
RESET enable_seqscan;
RESET enable_bitmapscan;

-- parallel query: the index is probed in workers
CREATE TABLE plans_outer AS SELECT i AS k FROM generate_series(1, 30000) i;
ANALYZE plans_outer;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
SET pmhash.enable_join = off;
SELECT plan('SELECT count(p.t) FROM plans_outer o JOIN plans p ON p.k = o.k');
SELECT count(p.t), sum(p.k) FROM plans_outer o JOIN plans p ON p.k = o.k;
-- with uncommitted rows of the leader's transaction
BEGIN;
INSERT INTO plans SELECT i, 1000, 'x' FROM generate_series(20001, 25000) i;
SELECT count(p.t), sum(p.k) FROM plans_outer o JOIN plans p ON p.k = o.k;
ROLLBACK;
SELECT count(p.t), sum(p.k) FROM plans_outer o JOIN plans p ON p.k = o.k;
-- the same by joins of ours: each worker looks up the keys of its part
RESET pmhash.enable_join;
SELECT plan('SELECT count(p.t) FROM plans_outer o JOIN plans p ON p.k = o.k');
BEGIN;
INSERT INTO plans SELECT i, 1000, 'x' FROM generate_series(20001, 25000) i;
SELECT count(p.t), sum(p.k) FROM plans_outer o JOIN plans p ON p.k = o.k;
ROLLBACK;
-- a parallel bitmap heap scan: the leader reads the index
SET enable_seqscan = off;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT plan('SELECT count(t) FROM plans WHERE g = ANY (''{1,2,3,4,5,6,7,8,9}'')');
SELECT count(t) FROM plans WHERE g = ANY ('{1,2,3,4,5,6,7,8,9}');
RESET ALL;

DROP FUNCTION plans_sum;
DROP TABLE plans, plans_outer;

-- Lists in several columns whose product is larger than work_mem: looked up in
-- parts, and only if the table is small is it read through instead.
CREATE TABLE product (a int, b text, c int8);
INSERT INTO product SELECT i % 300, 'b' || i / 300, i % 7 FROM generate_series(1, 90000) i;
INSERT INTO product SELECT * FROM product WHERE a % 50 = 3;
INSERT INTO product SELECT 4, 'b4', 4 FROM generate_series(1, 30000);
INSERT INTO product VALUES (NULL, 'b1', 1), (1, NULL, 1);
CREATE INDEX product_ab ON product USING pmhash (a, b);
CREATE INDEX product_abc ON product USING pmhash (a, c, b);
CREATE TABLE product_small AS SELECT * FROM product LIMIT 1000;
CREATE INDEX product_small_ab ON product_small USING pmhash (a, b);
ANALYZE product, product_small;
CREATE FUNCTION some_a(n int) RETURNS int[] LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(i % 250 ORDER BY i % 7) || NULL::int FROM generate_series(1, n) i';
CREATE FUNCTION some_b(n int) RETURNS text[] LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(''b'' || i % 260 ORDER BY i % 11) || NULL::text FROM generate_series(-20, n) i';
SET work_mem = '64kB';
-- (some versions keep the rows of answers() in files when memory is that small)
SET log_temp_files = -1;
SET jit = off;
SET client_min_messages = debug1;
SELECT * FROM answers('SELECT * FROM product WHERE a = ANY (some_a(240)) AND b = ANY (some_b(230))', 'product_ab');
SELECT * FROM answers('SELECT * FROM product WHERE a = ANY (some_a(1000)) AND b = ANY (some_b(900))', 'product_ab');
DROP INDEX product_ab;
SELECT * FROM answers('SELECT * FROM product WHERE a = ANY (some_a(100)) AND b = ANY (some_b(100)) AND c = ANY (''{1,3,5,NULL,3}''::int8[])', 'product_abc');
SELECT * FROM answers('SELECT * FROM product WHERE a = ANY (some_a(240)) AND b = ANY (some_b(230)) AND c = 4', 'product_abc');
-- parts that begin anew: a rescan in the middle of one
SELECT g, (SELECT count(*) FROM (SELECT FROM product WHERE a = ANY (some_a(100 + g)) AND b = ANY (some_b(150)) AND c = ANY ('{1,2,3}'::int8[]) LIMIT g * 1000 OFFSET 0) s)
	FROM generate_series(1, 3) g;
-- with nothing to multiply
SELECT * FROM answers('SELECT * FROM product WHERE a = ANY (some_a(240)) AND b = ANY (some_b(230)) AND c = ANY (''{NULL}''::int8[])', 'product_abc');
SELECT * FROM answers('SELECT * FROM product_small WHERE a = ANY (some_a(240)) AND b = ANY (some_b(230))', 'product_small_ab');
RESET client_min_messages;
RESET log_temp_files;
RESET work_mem;
DROP TABLE product, product_small;
DROP FUNCTION some_a, some_b;

-- memory shorter than table and index: pages of the index are read again and again
CREATE TABLE read_again (k int4, v int4);
INSERT INTO read_again SELECT hashint4(i), i FROM generate_series(1, 50000) i;
CREATE INDEX read_again_k ON read_again USING pmhash (k);
CREATE TABLE read_keys AS SELECT k FROM read_again WHERE v % 4 = 0;
VACUUM ANALYZE read_again, read_keys;
SET max_parallel_workers_per_gather = 0;
EXPLAIN (COSTS OFF) SELECT count(r.k) FROM read_keys JOIN read_again r USING (k);
SET effective_cache_size = '1MB';
EXPLAIN (COSTS OFF) SELECT count(r.k) FROM read_keys JOIN read_again r USING (k);
EXPLAIN (COSTS OFF) SELECT v FROM read_again WHERE k = 1;
RESET effective_cache_size;
RESET max_parallel_workers_per_gather;
DROP TABLE read_again, read_keys;
