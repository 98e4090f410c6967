# Rows of the transaction itself, of other kinds of tables, of keys that are chosen to meet; snapshots that are too old.

use v5.36;

use FindBin;
use PmhashInvalid;
use PmhashStandby;
use PmhashTest;
use IPC::Run;

# ======== own rows ========

# A transaction reads what it has inserted: each way to read rows, in some of the states
# that its entries may be in (waiting, put in, of a level that was undone, of an index
# that has another file by now), against a twin of the database without pmhash and
# without index scans.  Each of the ways is met in several states, and by each kind of plan in
# turn.
{
	my $node = new_server('own_rows', <<CONF);
allow_in_place_tablespaces = on
max_parallel_workers = 8
statement_timeout = 60s
CONF

	$node->start;
	$node->safe_psql('postgres', "CREATE TABLESPACE side LOCATION ''");

	# ---- the tables, and functions that read and write them ----

	my $fill = <<'SQL';
INSERT INTO t (k, v, s) SELECT i, i % 7, 's' || i % 50 FROM generate_series(1, 300) i;
INSERT INTO p SELECT i, i % 7 FROM generate_series(1, 300) i;
INSERT INTO pa SELECT i, 0 FROM generate_series(1, 1100) i;
INSERT INTO ch SELECT i, 0 FROM generate_series(1, 300) i;
INSERT INTO chn SELECT i, 0 FROM generate_series(1, 300) i;
INSERT INTO chd SELECT i, 0 FROM generate_series(1, 300) i;
SQL
	my $empty = 'TRUNCATE t, p, pa, ch, chn, chd, un, log, ex, exd RESTART IDENTITY';

	my $schema = <<'SQL';
CREATE EXTENSION pmhash;
CREATE PROCEDURE until_valid() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 600 LOOP
		EXIT WHEN NOT EXISTS (SELECT FROM pmhash.indexes WHERE state <> 'valid');
		COMMIT;
		PERFORM pg_sleep(0.05);
		COMMIT;
	END LOOP;
END $$;
CREATE TABLE t (id serial, k int8, v int4, s text) WITH (autovacuum_enabled=off);
CREATE INDEX t_k ON t USING %AM% (k);
CREATE INDEX t_v ON t USING %AM% (v);
CREATE INDEX t_s ON t USING %AM% (s);
CREATE INDEX t_kv ON t USING %AM% (k, v);
CREATE INDEX t_e ON t USING %AM% ((k % 100));
CREATE INDEX t_p ON t USING %AM% (v) WHERE s = 'new';
CREATE TABLE p (k int8, v int4) PARTITION BY LIST (v);
CREATE TABLE p0 PARTITION OF p FOR VALUES IN (0,1,2);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (3,4,5,6);
CREATE TABLE pd PARTITION OF p DEFAULT;
CREATE INDEX p_k ON p USING %AM% (k);
CREATE TABLE keys (k int8) WITH (parallel_workers=2);
INSERT INTO keys SELECT generate_series(990,1100);
INSERT INTO keys SELECT generate_series(1,50);
INSERT INTO keys VALUES (NULL);
CREATE TABLE pa (id int8 PRIMARY KEY, x int4);
CREATE TABLE ch (pid int8 REFERENCES pa ON DELETE CASCADE ON UPDATE CASCADE, w int4);
CREATE INDEX ch_pid ON ch USING %AM% (pid);
CREATE TABLE chn (pid int8 REFERENCES pa ON DELETE SET NULL, w int4);
CREATE INDEX chn_pid ON chn USING %AM% (pid);
CREATE TABLE chd (pid int8 REFERENCES pa DEFERRABLE INITIALLY DEFERRED, w int4);
CREATE INDEX chd_pid ON chd USING %AM% (pid);
CREATE TABLE ex (k int8, EXCLUDE USING %EX% (k WITH =));
CREATE TABLE exd (k int8, EXCLUDE USING %EX% (k WITH =) DEFERRABLE INITIALLY DEFERRED);
CREATE UNLOGGED TABLE un (k int8, v int4);
CREATE INDEX un_k ON un USING %AM% (k);
CREATE TABLE log (m text);
CREATE FUNCTION fv(a int8) RETURNS int8 VOLATILE PARALLEL SAFE LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM t WHERE k = a); END $$;
CREATE FUNCTION fs(a int8) RETURNS int8 STABLE PARALLEL SAFE LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM t WHERE k = a); END $$;
-- (17 and later: in an index expression it sees no other schemas)
CREATE FUNCTION fi(a int8) RETURNS int8 IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM public.t WHERE k = a); END $$;
CREATE FUNCTION qv(a int8) RETURNS int8 VOLATILE PARALLEL SAFE LANGUAGE sql AS 'SELECT count(*) FROM t WHERE k = a';
CREATE FUNCTION qs(a int8) RETURNS int8 STABLE PARALLEL SAFE LANGUAGE sql AS 'SELECT count(*) FROM t WHERE k = a';
CREATE FUNCTION qset(a int8) RETURNS SETOF t VOLATILE PARALLEL SAFE LANGUAGE sql AS 'SELECT * FROM t WHERE k = a';
CREATE FUNCTION qsets(a int8) RETURNS SETOF t STABLE PARALLEL SAFE LANGUAGE sql AS 'SELECT * FROM t WHERE k = a';
CREATE FUNCTION ins(a int8) RETURNS int8 VOLATILE LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t (k,v,s) SELECT a, 90, 'ins' FROM generate_series(1,20); RETURN a; END $$;
CREATE FUNCTION insx(a int8) RETURNS int8 VOLATILE LANGUAGE plpgsql AS $$ BEGIN
  BEGIN INSERT INTO t (k,v,s) SELECT a, 91, 'insx' FROM generate_series(1,20); PERFORM 1/(a % 2); EXCEPTION WHEN division_by_zero THEN NULL; END; RETURN a; END $$;
SQL

	# ---- rows that wait when the transaction goes on ----

	my $load = q{INSERT INTO t (k,v,s) SELECT 1000 + i % 40, i % 7, CASE WHEN i % 5=0 THEN 'new' ELSE 's' || i % 50 END FROM generate_series(1,400) i;
		INSERT INTO p SELECT 1000 + i % 40, i % 9 FROM generate_series(1,400) i;
		INSERT INTO ch SELECT 1000 + i % 40, i FROM generate_series(1,200) i;
		INSERT INTO chn SELECT 1000 + i % 40, i FROM generate_series(1,200) i;
		INSERT INTO chd SELECT 1000 + i % 40, i FROM generate_series(1,200) i;
		INSERT INTO un SELECT 1000 + i % 40, i FROM generate_series(1,200) i;};
	(my $more = $load) =~ s/i % 40/i % 37/g;

	my @states = (
		[ plain => q{BEGIN; $load } ],
		[ sp => q{BEGIN; $load SAVEPOINT s1; $more RELEASE s1;} ],
		[ sprb => q{BEGIN; $load SAVEPOINT s1; $more ROLLBACK TO s1; $more} ],
		[ spopen => q{BEGIN; SAVEPOINT s1; $load SAVEPOINT s2; $more} ],
		[ sprb2 => q{BEGIN; SAVEPOINT s1; $load SAVEPOINT s2; $more RELEASE s2; SAVEPOINT s3; $load ROLLBACK TO s3;} ],
		[ mem => q{BEGIN; SET LOCAL work_mem='64kB'; INSERT INTO t (k,v,s) SELECT 20000+i, 1, 'x' FROM generate_series(1,7000) i; $load } ],
		[ upd => q{BEGIN; $load UPDATE t SET v = v+1 WHERE id % 3 = 0; UPDATE t SET k = k+1 WHERE id % 5 = 0; UPDATE t SET id = -id WHERE id % 7 = 0; DELETE FROM t WHERE id % 11 = 0; UPDATE ch SET pid=pid+1 WHERE w % 3 = 0;} ],
		[ newidx => q{BEGIN; $load DROP INDEX t_k, ch_pid, p_k; $more CREATE INDEX t_k ON t USING %AM% (k); CREATE INDEX ch_pid ON ch USING %AM% (pid); CREATE INDEX p_k ON p USING %AM% (k); $more} ],
		[ trunc => q{BEGIN; $load TRUNCATE t, p, ch; $more} ],
		[ trunc2 => q{BEGIN; SAVEPOINT a; $load TRUNCATE t, p, ch; $load ROLLBACK TO a; $more} ],
		[ reidx => q{BEGIN; $load SAVEPOINT a; REINDEX TABLE t; $more ROLLBACK TO a; $more} ],
		[ reidx2 => q{BEGIN; $load SAVEPOINT a; REINDEX TABLE t; REINDEX TABLE ch; $more RELEASE a; $more} ],
		[ moved => q{BEGIN; $load ALTER INDEX t_k SET TABLESPACE side; ALTER TABLE ch SET TABLESPACE side; $more} ],
		[ moved2 => q{BEGIN; $load ALTER TABLE t SET TABLESPACE side; ALTER INDEX t_kv SET TABLESPACE side; $more SAVEPOINT a; ALTER TABLE t SET TABLESPACE pg_default; $load ROLLBACK TO a; $more} ],
		[ copy => q{BEGIN; COPY t (k,v,s) FROM PROGRAM 'seq -f "%.0f,2,new" 1000 1050' (FORMAT csv); COPY t (k,v,s) FROM PROGRAM 'seq -f "%.0f,2,s5" 1000 1050' (FORMAT csv); COPY p FROM PROGRAM 'seq -f "%.0f,2" 1000 1050' (FORMAT csv); COPY ch FROM PROGRAM 'seq -f "%.0f,2" 1000 1050' (FORMAT csv);} ],
		[ ctei => q{BEGIN; WITH i AS (INSERT INTO t (k,v,s) SELECT 1000 + i % 40, i % 7, 's' || i % 50 FROM generate_series(1,400) i RETURNING k,v), j AS (INSERT INTO p SELECT * FROM i RETURNING k, v) INSERT INTO ch SELECT * FROM j;} ],
		[ rr => q{BEGIN ISOLATION LEVEL REPEATABLE READ; $load } ],
		[ ser => q{BEGIN ISOLATION LEVEL SERIALIZABLE; $load } ],
		[ trig => q{BEGIN; CREATE FUNCTION tro() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t (k,v,s) SELECT NEW.m::int8, g % 7, 's' || g % 50 FROM generate_series(1,20) g; INSERT INTO p SELECT NEW.m::int8, g % 7 FROM generate_series(1,20) g; INSERT INTO ch SELECT NEW.m::int8, g FROM generate_series(1,20) g; RETURN NULL; END $$; CREATE TRIGGER tro BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION tro(); INSERT INTO log SELECT g::text FROM generate_series(1000,1030) g; DROP TRIGGER tro ON log;} ],
		[ dox => q{BEGIN; DO $$ BEGIN FOR r IN 1..6 LOOP INSERT INTO t (k,v,s) SELECT 1000 + i % 40, i % 7, 's' || i % 50 FROM generate_series(1,100) i; BEGIN INSERT INTO t (k,v,s) SELECT 1000 + i % 40, i % 7, 'new' FROM generate_series(1,100) i; INSERT INTO ch SELECT 1000 + i % 40, i FROM generate_series(1,100) i; INSERT INTO p SELECT 1000 + i % 40, 1 FROM generate_series(1,100) i; PERFORM 1/(r % 3); EXCEPTION WHEN division_by_zero THEN INSERT INTO t (k,v,s) SELECT 1005, 5, 's5' FROM generate_series(1,r); END; END LOOP; END $$;} ],
	);
	foreach my $state (@states)
	{
		$state->[1] =~ s/\$load/$load/g;
		$state->[1] =~ s/\$more/$more/g;
	}

	# ---- kinds of plans ----

	my $no_join = 'SET LOCAL pmhash.enable_join = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;';
	my $only_index = "$no_join SET LOCAL enable_bitmapscan = off; SET LOCAL pmhash.enable_pagescan = off;";
	my $only_join = 'SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_bitmapscan = off;';
	my $only_bitmap = "$no_join SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL pmhash.enable_pagescan = off;";
	my $parallel = 'SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL min_parallel_table_scan_size = 0;'
	  . ' SET LOCAL min_parallel_index_scan_size = 0; SET LOCAL enable_material = off; SET LOCAL enable_memoize = off;'
	  . ' SET LOCAL parallel_leader_participation = off;'
	  . q( DO $$ BEGIN PERFORM set_config(name, 'on', true) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query'); END $$;);
	my @plans = (
		[ 'index scan' => "$only_index SET LOCAL enable_indexonlyscan = off;" ],
		[ 'index-only' => $only_index ],
		[ 'bitmap' => $only_bitmap ],
		[ 'page scan' => 'SET LOCAL enable_bitmapscan = off;' ],
		[ 'join' => $only_join ],
		[ 'workers, index scan' => "$only_index $parallel" ],
		[ 'workers, bitmap' => "$only_bitmap $parallel" ],
		[ 'workers, join' => "$only_join $parallel" ]);
	# (Indexes of other methods miss rows, or find wrong ones, when a table has been moved back:
	# src/README, "Moved tables".  Those of the twin are there to be altered.)
	my $without_index = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;';

	# ---- ways to read ----

	my @readers = (
		[ point => q{SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ pointio => q{SELECT count(k) FROM t WHERE k=1005;} ],
		[ any => q{SELECT count(*), sum(v) FROM t WHERE k = ANY('{1001,1005,1039,7,5000}');} ],
		[ manyany => q{SELECT count(*), sum(v) FROM t WHERE k = ANY(ARRAY(SELECT generate_series(1,1200)::int8));} ],
		[ or => q{SELECT count(*), sum(v) FROM t WHERE (k=1005 OR k=1006 OR s='new') AND v<100;} ],
		[ and => q{SELECT count(*), sum(k) FROM t WHERE k=1005 AND s='s5';} ],
		[ andid => q{SELECT count(*), sum(k) FROM t WHERE v=5 AND id>250;} ],
		[ text => q{SELECT count(*), sum(k) FROM t WHERE s='s5';} ],
		[ kv => q{SELECT count(*), sum(k) FROM t WHERE k=1005 AND v=4;} ],
		[ expr => q{SELECT count(*), sum(k) FROM t WHERE k % 100 = 5;} ],
		[ partial => q{SELECT count(*), sum(k) FROM t WHERE s='new' AND v=3;} ],
		[ jin => q{SELECT count(*), sum(t.v) FROM keys JOIN t ON t.k=keys.k;} ],
		[ jio => q{SELECT count(*), sum(t.k) FROM keys JOIN t ON t.k=keys.k;} ],
		[ jleft => q{SELECT count(*), sum(t.v) FROM keys LEFT JOIN t ON t.k=keys.k;} ],
		[ jsemi => q{SELECT count(*), sum(keys.k) FROM keys WHERE EXISTS (SELECT 1 FROM t WHERE t.k=keys.k AND t.v<6);} ],
		[ janti => q{SELECT count(*), sum(keys.k) FROM keys WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.k=keys.k AND t.v<6);} ],
		[ jpart => q{SELECT count(*), sum(p.v) FROM keys JOIN p ON p.k=keys.k;} ],
		[ pany => q{SELECT count(*), sum(v) FROM p WHERE k IN (1001,1005,1039,7,5000);} ],
		[ jtwo => q{SELECT count(*), sum(t.v+p.v) FROM keys JOIN t ON t.k=keys.k JOIN p ON p.k=t.k;} ],
		[ lat => q{SELECT count(*), sum(x.v) FROM generate_series(990,1040) g, LATERAL (SELECT v FROM t WHERE k=g OFFSET 0) x;} ],
		[ scalar => q{SELECT sum((SELECT count(*) FROM t WHERE t.k=keys.k)) FROM keys;} ],
		[ fv => q{SELECT sum(fv(k)) FROM keys;} ],
		[ fs => q{SELECT sum(fs(k)) FROM keys;} ],
		[ fi => q{SELECT sum(fi(k)), fi(1005) FROM keys;} ],
		[ qv => q{SELECT sum(qv(k)) FROM keys;} ],
		[ qs => q{SELECT sum(qs(k)) FROM keys;} ],
		[ qset => q{SELECT count(*), sum((q).v) FROM (SELECT qset(k) q FROM keys OFFSET 0) z;} ],
		[ qsets => q{SELECT count(*), sum(q.v) FROM keys, qsets(k) q;} ],
		[ un => q{SELECT count(*), sum(un.v) FROM keys JOIN un ON un.k=keys.k;} ],
		[ chj => q{SELECT count(*), sum(ch.w) FROM keys JOIN ch ON ch.pid=keys.k;} ],
		[ delcas => q{SET CONSTRAINTS ALL IMMEDIATE; ALTER TABLE chd DROP CONSTRAINT chd_pid_fkey; DELETE FROM pa WHERE id BETWEEN 1003 AND 1010; SELECT count(*) FROM ch; SELECT count(*), count(pid) FROM chn;} ],
		[ updcas => q{SET CONSTRAINTS ALL IMMEDIATE; ALTER TABLE chn DROP CONSTRAINT chn_pid_fkey; ALTER TABLE chd DROP CONSTRAINT chd_pid_fkey; UPDATE pa SET id = id + 5000 WHERE id BETWEEN 1003 AND 1010; SELECT count(*), sum(pid) FROM ch;} ],
		[ deldef => q{DELETE FROM pa WHERE id=1004 AND x=0; SET CONSTRAINTS ALL IMMEDIATE; SELECT 'survived';} ],
		[ addfk => q{ALTER TABLE ch ADD CONSTRAINT f2 FOREIGN KEY (pid) REFERENCES pa NOT VALID; ALTER TABLE ch VALIDATE CONSTRAINT f2; SELECT count(*) FROM ch WHERE pid=1004;} ],
		[ excl => q{INSERT INTO ex SELECT generate_series(1,40); SAVEPOINT e; INSERT INTO ex VALUES (20); ROLLBACK TO e; SELECT count(*) FROM ex WHERE k=20;} ],
		[ excld => q{INSERT INTO exd SELECT generate_series(1,40); SAVEPOINT e; INSERT INTO exd VALUES (20); SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK TO e; SELECT count(*) FROM exd WHERE k=20;} ],
		[ update => q{UPDATE t SET v=v+1 WHERE k=1005; SELECT count(*), sum(v) FROM t WHERE k=1005; DELETE FROM t WHERE k IN (1006,1007); SELECT count(*) FROM t WHERE k BETWEEN 1000 AND 1040;} ],
		[ updfrom => q{UPDATE t SET v=100 FROM keys WHERE t.k=keys.k; SELECT count(*) FROM t WHERE v=100; DELETE FROM t USING keys WHERE t.k=keys.k; SELECT count(*) FROM t;} ],
		[ forupd => q{SELECT sum(v) FROM (SELECT v FROM t WHERE k=1005 FOR UPDATE) z; SELECT sum(v) FROM (SELECT v FROM t WHERE k=1006 FOR UPDATE SKIP LOCKED) z;} ],
		[ merge => q{MERGE INTO t USING keys ON t.k=keys.k WHEN MATCHED THEN UPDATE SET v=v+1000 WHEN NOT MATCHED AND keys.k IS NOT NULL THEN INSERT (k,v,s) VALUES (keys.k, 1, 'm'); SELECT count(*), sum(v) FROM t WHERE s='m'; SELECT count(*), sum(v) FROM t;} ],
		[ insself => q{INSERT INTO t (k,v,s) SELECT k,v+50,s FROM t WHERE k IN (1001,1002,1003); SELECT count(*), sum(v) FROM t WHERE k=1002;} ],
		[ cte => q{WITH i AS (INSERT INTO t (k,v,s) SELECT g, 77, 'cte' FROM generate_series(1000,1060) g RETURNING k) SELECT (SELECT count(*) FROM t WHERE k=1005), (SELECT count(*) FROM i JOIN t ON t.k=i.k), count(*), sum(fv(k)) >= 0 FROM i; SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ ctefv => q{WITH i AS MATERIALIZED (INSERT INTO t (k,v,s) SELECT g, 77, 'cte' FROM generate_series(1000,1060) g RETURNING k) SELECT sum(f) FROM (SELECT (SELECT count(*) FROM i) c, fv(1005) f OFFSET 0) z;} ],
		[ cur => q{DECLARE c CURSOR FOR SELECT k,v FROM t WHERE k IN (1004,1005) ORDER BY 1,2; FETCH 2 c; INSERT INTO t (k,v,s) SELECT 1005, 55, 'c' FROM generate_series(1,40); FETCH ALL c; CLOSE c; SELECT count(*) FROM t WHERE k=1005;} ],
		[ curscroll => q{DECLARE c SCROLL CURSOR FOR SELECT k FROM t WHERE k=1005; FETCH 1 c; INSERT INTO t (k,v,s) SELECT 1005, 55, 'c' FROM generate_series(1,40); MOVE ALL c; FETCH BACKWARD 1 c; MOVE FIRST c; FETCH ALL c; DECLARE d SCROLL CURSOR FOR SELECT k FROM t WHERE k=1005; MOVE LAST d; FETCH ABSOLUTE 3 d; FETCH ABSOLUTE 40 d; FETCH ABSOLUTE -1 d;} ],
		[ curunread => q{DECLARE c CURSOR FOR SELECT k FROM t WHERE k=1005; SAVEPOINT a; INSERT INTO t (k,v,s) SELECT 1005, 55, 'c' FROM generate_series(1,40); ROLLBACK TO a; FETCH ALL c; INSERT INTO t (k,v,s) SELECT 1005, 55, 'c' FROM generate_series(1,40); SAVEPOINT b; DECLARE d CURSOR FOR SELECT count(*) FROM t WHERE k=1005; RELEASE b; INSERT INTO t (k,v,s) SELECT 1005, 55, 'c' FROM generate_series(1,40); FETCH d;} ],
		[ forloop => q{DO $$ DECLARE r record; n int := 0; m int := 0; BEGIN FOR r IN SELECT k FROM t WHERE k IN (1004,1005,1006) ORDER BY k LOOP n := n+1; INSERT INTO t (k,v,s) SELECT r.k, 60, 'l' FROM generate_series(1,20); m := m + (SELECT count(*) FROM t WHERE k=r.k AND v=60); END LOOP; INSERT INTO log VALUES (n || ' ' || m); END $$; SELECT * FROM log;} ],
		[ forloopx => q{DO $$ DECLARE r record; n int := 0; m int := 0; BEGIN FOR r IN SELECT k FROM t WHERE k IN (1004,1005,1006) ORDER BY k LOOP n := n+1; BEGIN INSERT INTO t (k,v,s) SELECT r.k, 60, 'l' FROM generate_series(1,20); m := m + (SELECT count(*) FROM t WHERE k=r.k AND v=60); IF n % 2 = 0 THEN RAISE 'x'; END IF; EXCEPTION WHEN raise_exception THEN m := m + 1000*(SELECT count(*) FROM t WHERE k=r.k AND v=60); END; END LOOP; INSERT INTO log VALUES (n || ' ' || m); END $$; SELECT * FROM log;} ],
		[ insfn => q{SELECT sum(ins(k)) FROM keys WHERE k BETWEEN 1000 AND 1010; SELECT count(*) FROM t WHERE k=1005; SELECT count(*) FROM t WHERE v=90; SELECT sum(insx(k)) FROM keys WHERE k BETWEEN 1000 AND 1010; SELECT count(*) FROM t WHERE k=1004; SELECT count(*) FROM t WHERE k=1005; SELECT count(*) FROM t WHERE v=91;} ],
		[ insfnsame => q{INSERT INTO t (k,v,s) SELECT insx(k), fv(k), 'z' FROM keys WHERE k BETWEEN 1000 AND 1040; SELECT count(*), sum(v) FROM t WHERE k=1005; SELECT count(*), sum(v) FROM t WHERE s='z'; SELECT count(*) FROM t WHERE k IN (1004,1005,1006);} ],
		[ trigrow => q{CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF TG_WHEN='AFTER' AND NEW.k % 10 = 0 THEN INSERT INTO log VALUES (NEW.k || ' ' || (SELECT count(*) FROM t WHERE k=NEW.k) || ' ' || fv(NEW.k-1)); END IF; RETURN NEW; END $$; CREATE TRIGGER a AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION tr(); CREATE TRIGGER b BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION tr(); INSERT INTO t (k,v,s) SELECT g, 1, 'tr' FROM generate_series(1000,1060) g; SELECT * FROM log ORDER BY 1;} ],
		[ trigstmt => q{CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log SELECT count(*) || ' ' || coalesce(sum(t.v),0) FROM n JOIN t ON t.k=n.k; INSERT INTO log SELECT sum(fv(k))::text FROM n; RETURN NULL; END $$; CREATE TRIGGER a AFTER INSERT ON t REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION tr(); INSERT INTO t (k,v,s) SELECT g, 1, 'tr' FROM generate_series(1000,1060) g; SELECT * FROM log ORDER BY 1; COPY t (k,v,s) FROM PROGRAM 'seq -f "%.0f,2,cp" 1000 1100' (FORMAT csv); SELECT * FROM log ORDER BY 1;} ],
		[ trigdef => q{CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (NEW.k || ' ' || (SELECT count(*) FROM t WHERE k=NEW.k)); IF NEW.k=1005 THEN INSERT INTO t (k,v,s) SELECT 1006, 8, 'd' FROM generate_series(1,30); END IF; RETURN NEW; END $$; CREATE CONSTRAINT TRIGGER a AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.s='tr') EXECUTE FUNCTION tr(); INSERT INTO t (k,v,s) SELECT g, 1, 'tr' FROM generate_series(1000,1030) g; SET CONSTRAINTS ALL IMMEDIATE; SELECT * FROM log ORDER BY 1; SELECT count(*) FROM t WHERE k=1006;} ],
		[ mkidx => q{CREATE INDEX made ON keys USING %AM% ((fi(k))); SELECT count(*) FROM keys WHERE fi(k) > 0; SELECT count(*) FROM keys WHERE fi(k) = (SELECT max(fi(k)) FROM keys); CREATE INDEX made2 ON t USING %AM% (k, s); SELECT count(*), sum(v) FROM t WHERE k=1005 AND s='s5';} ],
		[ reidx => q{REINDEX TABLE t; SELECT count(*), sum(v) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ reidxrb => q{SAVEPOINT r; REINDEX INDEX t_k; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); ROLLBACK TO r; SELECT count(*), sum(v) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ cluster => q{CREATE INDEX t_id ON t (id); CLUSTER t USING t_id; SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ analyze => q{ANALYZE t; SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ rewrite => q{ALTER TABLE t ALTER v TYPE int8; SELECT count(*), sum(v) FROM t WHERE k=1005; ALTER TABLE t ADD y int8 DEFAULT fv(1005); SELECT count(*), sum(y) FROM t WHERE k=1006;} ],
		[ unlog => q{ALTER TABLE t SET UNLOGGED; SELECT count(*), sum(v) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); ALTER TABLE t SET LOGGED; SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ tspc => q{ALTER INDEX t_k SET TABLESPACE side; SELECT count(*), sum(v) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); ALTER TABLE t SET TABLESPACE side; SELECT count(*), sum(v) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ tspcrb => q{SAVEPOINT a; ALTER TABLE t SET TABLESPACE side; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*), sum(v) FROM t WHERE k=1005; ROLLBACK TO a; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ attach => q{CREATE TABLE p2 (k int8, v int4); INSERT INTO p2 SELECT g, 10 FROM generate_series(1000,1040) g; CREATE INDEX p2k ON p2 USING %AM% (k); INSERT INTO p2 SELECT g, 10 FROM generate_series(1000,1040) g; ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (10); SELECT count(*), sum(v) FROM p WHERE k=1005; INSERT INTO p SELECT g, 10 FROM generate_series(1000,1040) g; ALTER TABLE p DETACH PARTITION p2; SELECT count(*), sum(v) FROM p2 WHERE k=1005; SELECT count(*), sum(v) FROM p WHERE k=1005;} ],
		[ partmove => q{UPDATE p SET v = 5 WHERE v = 1; SELECT count(*), sum(v) FROM p WHERE k IN (1001,1002,1003,1007,1008); SELECT count(*), sum(v) FROM p1 WHERE k=1001;} ],
		[ trunc => q{TRUNCATE t; SELECT count(*) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*) FROM t WHERE k=1005;} ],
		[ truncrb => q{SAVEPOINT a; TRUNCATE t; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*) FROM t WHERE k=1005; ROLLBACK TO a; SELECT count(*), sum(v) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*) FROM t WHERE k=1005;} ],
		[ dropidx => q{SAVEPOINT a; DROP INDEX t_k; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*), sum(v) FROM t WHERE k=1005; ROLLBACK TO a; SELECT count(*), sum(v) FROM t WHERE k=1005; DROP INDEX t_k; CREATE INDEX t_k ON t USING %AM% (k); INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ matview => q{CREATE MATERIALIZED VIEW mv AS SELECT k, count(*) c FROM t GROUP BY k; CREATE UNIQUE INDEX mvu ON mv (k); CREATE INDEX mvk ON mv USING %AM% (k); INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); REFRESH MATERIALIZED VIEW CONCURRENTLY mv; SELECT * FROM mv WHERE k=1005; REFRESH MATERIALIZED VIEW mv; SELECT * FROM mv WHERE k=1005;} ],
		[ ctas => q{CREATE TABLE ct AS SELECT t.* FROM keys JOIN t ON t.k=keys.k; SELECT count(*), sum(v) FROM ct; CREATE INDEX ON ct USING %AM% (k); INSERT INTO ct SELECT * FROM ct; SELECT count(*), sum(v) FROM ct WHERE k=1005;} ],
		[ copyto => q{COPY (SELECT count(*), sum(t.v) FROM keys JOIN t ON t.k=keys.k) TO STDOUT;} ],
		[ prep => q{PREPARE q(int8) AS SELECT count(*), sum(v) FROM t WHERE k=$1; SET LOCAL plan_cache_mode=force_generic_plan; EXECUTE q(1005); INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); EXECUTE q(1005); SAVEPOINT z; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); EXECUTE q(1005); ROLLBACK TO z; EXECUTE q(1005); DEALLOCATE q;} ],
		[ toggle => q{SET LOCAL pmhash.group_insert=off; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*), sum(v) FROM t WHERE k=1005; SET LOCAL pmhash.group_insert=on; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SET LOCAL pmhash.group_insert=off; SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ temp => q{CREATE TEMP TABLE tt (k int8, v int4); CREATE INDEX ON tt USING %AM% (k); INSERT INTO tt SELECT g % 20, g FROM generate_series(1,400) g; SELECT count(*), sum(v) FROM tt WHERE k=5; SAVEPOINT a; INSERT INTO tt SELECT g % 20, g FROM generate_series(1,400) g; ROLLBACK TO a; SELECT count(*), sum(v) FROM tt WHERE k=5; TRUNCATE tt; INSERT INTO tt SELECT g % 20, g FROM generate_series(1,400) g; SELECT count(*), sum(v) FROM tt WHERE k=5;} ],
		[ onconf => q{ALTER TABLE t ADD CONSTRAINT tid UNIQUE (id); INSERT INTO t (id,k,v,s) SELECT g, 1005, 5, 'oc' FROM generate_series(1,40) g ON CONFLICT (id) DO UPDATE SET k=1005, s='oc'; SELECT count(*), sum(v) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ rules => q{CREATE RULE r AS ON INSERT TO log DO ALSO SELECT count(*) FROM t WHERE k=1005; INSERT INTO log VALUES ('x'); CREATE VIEW vw AS SELECT * FROM t WHERE k=1005; UPDATE vw SET v=0; SELECT count(*), sum(v) FROM vw;} ],
		[ chk => q{ALTER TABLE keys ADD CONSTRAINT ck CHECK (fi(k) < 10000); ALTER TABLE log ADD CHECK (fi(m::int8) > 0) NOT VALID; SAVEPOINT a; INSERT INTO log VALUES ('1005'); INSERT INTO log VALUES ('8888'); ROLLBACK TO a; SELECT 'ok';} ],
		[ gen => q{CREATE TABLE g (k int8, c int8 GENERATED ALWAYS AS (fi(k)) STORED); INSERT INTO g VALUES (1005),(1006); SELECT c FROM g ORDER BY k; ALTER TABLE g ADD d int8 GENERATED ALWAYS AS (fi(k)) STORED; SELECT sum(d) FROM g;} ],
		[ whold => q{DECLARE h CURSOR WITH HOLD FOR SELECT count(*), sum(v) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); DECLARE h2 CURSOR WITH HOLD FOR SELECT count(*), sum(t.v) FROM keys JOIN t ON t.k=keys.k; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); COMMIT; FETCH h; FETCH h2; CLOSE ALL; SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ chain => q{COMMIT AND CHAIN; SELECT count(*), sum(v) FROM t WHERE k=1005; INSERT INTO t (k,v,s) SELECT 1005, 3, 'r' FROM generate_series(1,40); ROLLBACK AND CHAIN; SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ twoph => q{PREPARE TRANSACTION '%AM%x'; COMMIT PREPARED '%AM%x'; SELECT count(*), sum(v) FROM t WHERE k=1005;} ],
		[ commit => q{COMMIT; SELECT count(*), sum(v) FROM t WHERE k=1005; SELECT count(*), sum(t.v) FROM keys JOIN t ON t.k=keys.k; SELECT count(*), sum(p.v) FROM keys JOIN p ON p.k=keys.k;} ],
		[ proc => q{COMMIT; DO $$ DECLARE r record; n int := 0; m int := 0; BEGIN FOR r IN SELECT k FROM t WHERE k IN (1004,1005,1006) ORDER BY k LOOP n := n+1; INSERT INTO t (k,v,s) SELECT r.k, 60, 'l' FROM generate_series(1,20); IF n % 2 = 0 THEN COMMIT; ELSIF n % 3 = 0 THEN ROLLBACK; END IF; m := m + (SELECT count(*) FROM t WHERE k=r.k AND v=60); INSERT INTO t (k,v,s) SELECT r.k, 61, 'l' FROM generate_series(1,20); END LOOP; INSERT INTO log VALUES (n || ' ' || m); END $$; SELECT * FROM log; SELECT count(*) FROM t WHERE k IN (1004,1005,1006);} ],
		[ sets => q{SET CONSTRAINTS ALL DEFERRED; INSERT INTO chd SELECT 5000+g, 0 FROM generate_series(1,30) g; INSERT INTO pa SELECT 5000+g, 0 FROM generate_series(1,30) g; SET CONSTRAINTS ALL IMMEDIATE; DELETE FROM pa WHERE id=5003;} ],
		[ loopall => q{DROP INDEX t_k; DO $$ DECLARE r record; n int := 0; m int := 0; BEGIN FOR r IN SELECT k FROM t WHERE k = 1005 LOOP n := n+1; IF n < 6 THEN INSERT INTO t (k,v,s) SELECT 1005, 60+i%3, 'l' FROM generate_series(1,600) i; INSERT INTO t (k,v,s) SELECT 40000+i, 60, 'l' FROM generate_series(1,2000) i; END IF; m := m + (SELECT count(*) FROM t WHERE k=r.k AND v=60); END LOOP; INSERT INTO log VALUES (n || ' ' || m); END $$; SELECT * FROM log; SELECT count(*) FROM t WHERE k=1005;} ],
		[ looplong => q{INSERT INTO t (k,v,s) SELECT 1005, 6, 'l' FROM generate_series(1,3000) i; DO $$ DECLARE r record; n int := 0; m int := 0; BEGIN FOR r IN SELECT k FROM t WHERE k = ANY('{1005,1006,1007}') LOOP n := n+1; IF n % 700 = 1 THEN INSERT INTO t (k,v,s) SELECT 1005, 60, 'l' FROM generate_series(1,600) i; DELETE FROM t WHERE k=1005 AND v=60 AND id % 3 = 0; INSERT INTO t (k,v,s) SELECT 40000+i, 60, 'l' FROM generate_series(1,2000) i; m := m + (SELECT count(*) FROM t WHERE k=1005 AND v=60); END IF; END LOOP; INSERT INTO log VALUES (n || ' ' || (m > 0)); END $$; SELECT * FROM log; SELECT count(*) FROM t WHERE k=1005 AND v < 60;} ],
		[ loopjoin => q{DO $$ DECLARE r record; n int := 0; m int := 0; BEGIN FOR r IN SELECT t.k FROM keys JOIN t ON t.k=keys.k WHERE keys.k > 900 LOOP n := n+1; IF n < 6 THEN INSERT INTO t (k,v,s) SELECT 990+i%100, 60, 'l' FROM generate_series(1,2600) i; END IF; END LOOP; INSERT INTO log VALUES (n || ' ' || m); END $$; SELECT * FROM log; SELECT count(*) FROM t WHERE k=1005;} ],
		[ recurs => q{WITH RECURSIVE r(n, k) AS (SELECT 1, 1000::int8 UNION SELECT n+1, t.k+1 FROM r JOIN t ON t.k=r.k WHERE n < 300 AND t.v < 3) SELECT count(*), max(k) FROM r;} ],
	);

	# ---- the cells ----

	my @cells;
	my $each = ($ENV{PMHASH_CASES} // '') eq 'all' ? 16 : 64;

	# Some of the readers in each state, with one kind of plan each time.
	for my $s (0 .. $#states)
	{
		for my $r (0 .. $#readers)
		{
			push @cells, [ $states[$s], $readers[$r], $plans[ @cells % @plans ] ]
			  if ($s * 5 + $r) % $each == 0;
		}
	}

	# All cells in one session of a database; returns what each has said, SQLSTATEs of errors
	# among it.
	sub answers ($database, $method, $constraint_method, $setting = undef)
	{
		my $script = "SET client_min_messages = error;\n\\set VERBOSITY sqlstate\n"
		  . ($setting // 'SET enable_seqscan = off;') . "\n";
		my $answer = '';

		$node->safe_psql('postgres', "CREATE DATABASE $database");
		(my $tables = $schema) =~ s/%AM%/$method/g;
		$tables =~ s/%EX%/$constraint_method/g;
		$node->safe_psql($database, $tables . $fill . 'ANALYZE');
		foreach my $cell (@cells)
		{
			my ($state, $reader, $plan) = @$cell;
			my $sql = "$state->[1] " . (defined($setting) ? '' : $plan->[1]) . " $reader->[1]";

			$script .= "\\echo ===\n$sql\nROLLBACK;\n\\o /dev/null\n";
			$script .= $sql =~ /\bCOMMIT\b|\bPREPARE TRANSACTION\b/ ? "$empty; $fill" : "SELECT setval('t_id_seq', 300);\n";
			$script .= "CALL until_valid();\n" if $sql =~ /TABLESPACE/;
			$script .= "\\o\n";
		}
		$script =~ s/%AM%/$method/g;
		IPC::Run::run([ $node->installed_command('psql'), '-XAtq', $node->connstr($database) ],
			'<', \$script, '>&', \$answer);
		$answer =~ s/^psql:<stdin>:\d+: //mg;
		return split(/^===\n/m, $answer);
	}

	my (undef, @ours) = answers('ours', 'pmhash', 'pmhash');
	my (undef, @twins) = answers('twin', 'brin', 'btree', $without_index);

	is(scalar(@ours), scalar(@cells), 'all cells have been answered');
	is(join('', grep { /ERROR:  42/ } @ours), '', 'no statement is wrong');
	for my $i (0 .. $#cells)
	{
		my ($state, $reader, $plan) = map { $_->[0] } @{ $cells[$i] };

		is($ours[$i], $twins[$i], "$state, $reader, $plan");
	}
	is($node->safe_psql('ours', 'SELECT count(pmhash.check(index)) FROM pmhash.files()'),
		$node->safe_psql('ours', 'SELECT count(*) FROM pmhash.files()'), 'pmhash.check');
	$node->stop;
}

# ======== other tables ========

# Tables of other access methods.  One that has the handler of heap is a heap.  Of one that
# has not (test/lib/other_am) no page is read and nothing is taken for granted, and a TID
# that an entry can't hold is an error.
{
	my $node = new_server('tables');

	sub sql ($sql)
	{
		return $node->safe_psql('postgres', $sql);
	}

	start_with_extension($node);

	# The library, compiled against this server.
	my $library = $node->basedir . '/other_am';
	chomp(my $headers = `pg_config --includedir-server`);
	system_or_bail('gcc', '-Wall', '-O2', '-fPIC', '-shared', '-isystem', $headers, '-o',
		"$library.so", "$FindBin::RealBin/../../lib/other_am/other_am.c");

	# Keys 0 to 99 with ten rows each, but for 7, which has many more.
	sub fill ($table, $am)
	{
		return <<SQL;
CREATE TABLE $table (k int, v int) USING $am;
INSERT INTO $table SELECT i % 100, i FROM generate_series(1, 500) i;
CREATE INDEX ${table}_k ON $table USING pmhash (k);
INSERT INTO $table SELECT i % 100, i FROM generate_series(501, 1000) i;
INSERT INTO $table SELECT 7, i FROM generate_series(1001, 3000) i;
SQL
	}

	my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;'
	  . ' SET enable_mergejoin = off; SET enable_material = off;';
	my $join = 'SELECT count(*), sum(v) FROM generate_series(0, 99) g JOIN %s ON k = g';
	my $key = 'SELECT count(*), sum(v) FROM %s WHERE k = 7';

	# A test: both are answered by index as without; returns the plans.
	sub answers_of_other_tables ($table, $name, $settings)
	{
		my $plans = '';

		foreach my $query (map { sprintf($_, $table) } $join, $key)
		{
			my $plan = sql("$settings $by_index EXPLAIN (COSTS OFF) $query");

			like($plan, qr/${table}_k/, "$name: by index");
			is(sql("$settings $by_index $query"), sql("SET enable_indexscan = off; SET enable_bitmapscan = off; SET pmhash.enable_join = off; SET pmhash.enable_pagescan = off; $query"), "$name: $query");
			$plans .= $plan;
		}
		return $plans;
	}

	# ---- the handler of heap under another name ----
	sql('CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler');
	sql(fill('h', 'heap2') . 'ANALYZE h');
	like(answers_of_other_tables('h', 'heap2', ''), qr/pmhash (?:join|page scan)/, 'heap2: pages are read');
	sql('DELETE FROM h WHERE v % 3 = 0');
	sql('VACUUM h');
	answers_of_other_tables('h', 'heap2, vacuumed', '');
	is($node->psql('postgres', q(SELECT pmhash.check('h_k'))), 0, 'heap2: compared with its table');

	# ---- another one ----
	sql("CREATE FUNCTION other_am_handler(internal) RETURNS table_am_handler AS '$library' LANGUAGE C");
	sql('CREATE ACCESS METHOD other TYPE TABLE HANDLER other_am_handler');
	my $shift = "LOAD '$library'; SET other_am.shift = 30000;";
	sql($shift . fill('o', 'other') . 'ANALYZE o');
	unlike(answers_of_other_tables('o', 'other', $shift), qr/pmhash (?:join|page scan)/, 'other: no pages are read');
	is(sql("$shift $by_index SELECT count(*) FROM o WHERE k = ANY (ARRAY[1, 2, 7])"), '2030', 'other: several keys');
	fails_like($node, q(SELECT pmhash.check('o_k')), qr/ERROR:  cannot compare an index with table "o"/, 'other: not compared');
	is(sql(q(SELECT pmhash.check('o_k', false))), '', 'other: the file is sound');
	is(sql('SELECT value_bytes > 0 FROM pmhash.stats($$o_k$$)'), 't', 'other: with lists');

	# ---- TIDs that do not fit ----
	# trouble: `row identifier (...) does not fit into index "..."`
	my $refused = qr/ERROR:  row identifier \(0,32768\) does not fit into index "x_k"\nDETAIL:  Access method pmhash holds offsets from 1 to 32767\./;
	my $most = "LOAD '$library'; SET other_am.shift = 32760;";
	sql("$most CREATE TABLE x (k int) USING other; CREATE INDEX x_k ON x USING pmhash (k)");
	sql("$most INSERT INTO x SELECT i FROM generate_series(1, 7) i");
	is(sql("$most $by_index SELECT count(*) FROM x WHERE k = ANY (ARRAY[1, 7])"), '2', 'the greatest that fits');
	fails_like($node, "$most INSERT INTO x VALUES (8)", $refused, 'INSERT');
	is(sql("SELECT entries FROM pmhash.stats('x_k')"), '7', 'it is not stored');
	sql("$most DROP INDEX x_k; INSERT INTO x VALUES (8)");
	fails_like($node, "$most CREATE INDEX x_k ON x USING pmhash (k)", qr/row identifier \(0,327\d\d\) does not fit into index "x_k"/, 'CREATE INDEX');
	$node->stop;
}

# ======== chosen keys ========

# Keys chosen by one that knows the seed of an index file's XXH3, so that they agree in
# all bits that choose segment and buckets: the permutation after that parts them.  They
# take no more space than others, and answers are right.
{
	no warnings qw(portable);    # of 64-bit numbers

	# XXH3 on 8 bytes (xxHash's specification): the multiplier's inverse, and what the
	# default secret contributes.
	my $inverse = 0x02AB9C720D1024AD;
	my $secret = 0xC73AB174C5ECD5A2;

	# The low 64 bits, as a number that is not negative
	sub unsigned { return unpack('Q', pack('q', $_[0])); }

	sub product ($x, $y)
	{
		use integer;    # without it a product beyond 64 bits is a floating point number
		my $product = $x * $y;
		no integer;
		return unsigned($product);
	}

	sub difference ($x, $y)
	{
		use integer;
		my $difference = $x - $y;
		no integer;
		return unsigned($difference);
	}

	sub rotate { return ($_[0] << $_[1]) | ($_[0] >> (64 - $_[1])); }

	# The word that a hash comes of, but for what the seed does to it (src/am/keyhash.c).
	sub unmix ($h)
	{
		$h ^= ($h >> 28) ^ ($h >> 56);
		$h = product($h, $inverse);
		$h ^= ($h >> 35) + 8;
		$h = product($h, $inverse);
		$h ^= rotate($h, 49) ^ rotate($h, 24);
		$h ^= rotate($h, 34) ^ rotate($h, 48);
		$h ^= rotate($h, 4) ^ rotate($h, 32);
		return rotate($h, 56);
	}

	# So many keys for a file: what XXH3 makes of them agrees in its first 40 bits.
	sub chosen_keys ($file, $n)
	{
		my $seed = do
		{
			open(my $handle, '<:raw', $file) or die "$file: $!";
			sysseek($handle, 48 + 24, 0);    # src/engine/layout.h, src/cluster/base/identity.h
			sysread($handle, my $bytes, 8) == 8 or die "$file is too short";
			unpack('Q<', $bytes);
		};
		my $low = unpack('N', pack('V', $seed & 0xffffffff));
		my $flip = difference($secret, $seed ^ ($low << 32));

		return map { unpack('q', pack('Q', rotate(unmix(0xdeadbe0001 << 24 | $_ * 11 & 0xffffff) ^ $flip, 32))) } 0 .. $n - 1;
	}

	my $n = 12000;
	my $node = new_primary('chosen_keys');
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE plain (k int8);
CREATE INDEX plain_k ON plain USING pmhash (k);
INSERT INTO plain SELECT generate_series(1, $n);
CREATE TABLE c (k int8, v int4) WITH (autovacuum_enabled = off);
CREATE INDEX c_k ON c USING pmhash (k) WITH (wal = on);
SQL
	my @keys = chosen_keys(index_file($node, 'c_k'), $n);
	$node->safe_psql('postgres', "INSERT INTO c SELECT k, i FROM unnest('{" . join(',', @keys) . "}'::int8[]) WITH ORDINALITY u (k, i)");
	is($node->safe_psql('postgres', q(SELECT pmhash.size('c_k') <= 1.25 * pmhash.size('plain_k'))), 't', 'a file as small as for other keys');

	sub right ($server, $name)
	{
		is($server->safe_psql('postgres', q(SELECT pmhash.check('c_k'))), '', "$name: pmhash.check");
		is($server->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('c_k'))), $server->safe_psql('postgres', 'SELECT count(*) FROM c'), "$name: entries");
		same_answers($server, 'c', 'k', 'c_k', $name);
		return;
	}

	right($node, 'inserted');

	# Both have the same hashes, so that what is logged finds the standby's entries.
	my $standby = new_standby($node, 'chosen_keys_standby');
	caught_up($node, $standby);
	wait_for_state($standby, 'c_k', qr/^valid$/, 'the standby has its file');
	$node->safe_psql('postgres', 'DELETE FROM c WHERE v % 3 = 0; VACUUM (INDEX_CLEANUP ON) c; INSERT INTO c SELECT k, -1 FROM c WHERE v % 3 = 1');
	right($node, 'removed by VACUUM');
	caught_up($node, $standby);
	right($standby, 'standby');
	$standby->stop;
	$node->safe_psql('postgres', 'REINDEX INDEX c_k');
	right($node, 'REINDEX');
	$node->stop;
}

# ======== snapshot too old ========

# old_snapshot_threshold (PostgreSQL 15 and 16): rows are taken from under a snapshot, and a
# query is to say so, never to find fewer.  Plans do without our indexes then; a constraint
# is checked by its index all the same.
SKIP:
{
	my $node = new_server('too_old');
	skip 'no old_snapshot_threshold', 1 if $node->pg_version >= 17;

	# 0: five seconds
	$node->append_conf('postgresql.conf', "old_snapshot_threshold = 0\nsynchronous_commit = on\n");
	start_with_extension($node, <<'SQL');
CREATE TABLE t (k int4, v text, EXCLUDE USING pmhash (v WITH =));
INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 1000) i;
CREATE INDEX t_k ON t USING pmhash (k);
CREATE TABLE other (v int4);
VACUUM ANALYZE;
DELETE FROM t WHERE k = 400;
SQL

	my $session = session_with($node, 'SET enable_seqscan = off; BEGIN ISOLATION LEVEL REPEATABLE READ', on_error_stop => 0);
	unlike($session->query_safe('EXPLAIN SELECT * FROM t WHERE k = 500'), qr/t_k/, 'no plan uses the index');
	unlike($session->query_safe("EXPLAIN SELECT * FROM t a JOIN t b USING (k) WHERE a.v = 'row 1'"), qr/t_k|pmhash/, 'nor does a join');
	is($session->query_safe('SELECT count(v) FROM t WHERE k = 500'), '1', 'before: there is the row');

	# event: `old_snapshot_threshold` (PostgreSQL 15, 16) lets rows be removed that a snapshot still needs
	$node->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
	sleep(6);
	$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP on) t');
	is($node->safe_psql('postgres', q(SELECT entries FROM pmhash.stats('t_k'))), '999', 'VACUUM has removed the entry');
	$session->query('SELECT count(v) FROM t WHERE k = 500');
	like($session->{stderr}, qr/ERROR:  snapshot too old/, 'the snapshot is too old');
	$session->quit;

	fails_like($node, q(INSERT INTO t VALUES (1, 'row 7')), qr/violates exclusion constraint/, 'a constraint is checked');
	restart_with($node, 'old_snapshot_threshold = -1');
	like($node->safe_psql('postgres', 'SET enable_seqscan = off; EXPLAIN SELECT * FROM t WHERE k = 500'), qr/t_k/, 'not set: plans use it');
	same_answers($node, 't', 'k', 't_k', 'not set');
	$node->stop;
}

done_testing();
