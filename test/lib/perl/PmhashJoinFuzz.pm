# Random queries with joins that pmhash can do: each is run with the join forced,
# with it off, and by sequential scans alone, and the answers are compared.  Others have
# lists of keys and keys of many rows: by plain scans, by bitmaps, and by sequential
# scans.  Between queries rows come, change and go, in subtransactions too, and VACUUM
# comes by; beside_change() has that happen while a cursor is open.  Keys are of many types,
# and of most there are values that are equal though written otherwise.

package PmhashJoinFuzz;

use v5.36;

use Exporter 'import';
use PmhashRandom qw(one_of);
use PmhashTest;
use Time::HiRes qw(time);

our @EXPORT = qw(new_join_server fuzz_joins join_figures);

# Columns: some NULL, some keys many rows, one key a list of thousands.  (A collation that
# takes "A" for "a" is there if the server has ICU.)
my $tables = <<'SQL';
SELECT 'CREATE COLLATION folded (provider = icu, locale = ''und-u-ks-level2'', deterministic = false)'
WHERE EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i') \gexec
SELECT 'CREATE COLLATION folded FROM "C"' WHERE to_regcollation('folded') IS NULL \gexec
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (x int, y text);
CREATE TYPE span AS RANGE (subtype = text, collation = folded);
CREATE DOMAIN short AS varchar(4) COLLATE folded;
CREATE TYPE nested AS (p pair, w short, ns numeric[]);
CREATE TABLE a (id int, k int, k2 bigint, s smallint, t text, c char(6), f float8, b bool, m mood, n numeric, co pair, ar int[],
	w short, sp span, ms nummultirange, ne nested, tz timetz, iv interval, j jsonb);
CREATE TABLE b (gone int, LIKE a);
CREATE TABLE d (LIKE a, gone text);
ALTER TABLE b DROP COLUMN gone;
ALTER TABLE d DROP COLUMN gone;
CREATE UNLOGGED TABLE u (LIKE a);

CREATE FUNCTION add_rows(tab text, first int, n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %I SELECT g,
		CASE WHEN x %% 11 = 0 THEN NULL WHEN x %% 13 = 0 THEN 7 ELSE x %% 700 END,
		CASE WHEN x %% 17 = 0 THEN NULL ELSE x %% 500 END,
		(x %% 300)::smallint,
		CASE WHEN x %% 19 = 0 THEN NULL ELSE ''t'' || x %% 400 END,
		''c'' || x %% 90,
		CASE x %% 50 WHEN 0 THEN float8 ''-0'' WHEN 1 THEN 0 WHEN 2 THEN float8 ''nan'' ELSE x %% 60 END,
		x %% 3 = 0,
		(ARRAY[''sad'', ''ok'', ''happy''])[1 + x %% 3]::mood,
		x %% 200 / CASE WHEN x %% 2 = 0 THEN 1.0 ELSE 1.00 END,
		CASE WHEN x %% 23 <> 0 THEN row(CASE WHEN x %% 5 > 0 THEN x %% 120 END, ''y'' || x %% 3)::pair END,
		ARRAY[x %% 150, NULL, x %% 2],
		CASE x %% 3 WHEN 0 THEN ''w'' WHEN 1 THEN ''W'' END || x %% 80,
		span((ARRAY[''a'', ''A'', NULL])[1 + x %% 3], ''b'' || x %% 40, (ARRAY[''[]'', ''[)''])[1 + x %% 2]),
		nummultirange(numrange(x %% 30, x %% 30 + 1.0), numrange(NULL, CASE WHEN x %% 7 = 0 THEN -5.00 ELSE -5 END)),
		CASE WHEN x %% 29 <> 0 THEN row(row(x %% 10, NULL), (ARRAY[''v'', ''V''])[1 + x %% 2], ARRAY[1.0 * (x %% 20), NULL, 1.00])::nested END,
		(timetz ''00:00+00'' + (x %% 24) * interval ''1 hour'') AT TIME ZONE make_interval(hours => x %% 3),
		make_interval(months => x %% 12, days => 30 * (x %% 2)),
		jsonb_build_object(''a'', x %% 90 / (ARRAY[1.0, 1.00])[1 + x %% 2], ''b'', ARRAY[x %% 2, 0])
		FROM (SELECT g, abs(hashint4(g * 31 + %s)) AS x FROM generate_series(%s, %s) g) s',
		tab, length(tab), first, first + n - 1);
END $$;
SELECT add_rows('a', 1, 400), add_rows('b', 1, 3000), add_rows('d', 1, 1500), add_rows('u', 1, 700);
INSERT INTO d SELECT g, 33, 33, 33, 'hot', 'hot', 33, true, 'ok', 33, (33, 'hot')::pair, ARRAY[33],
	'hot', span('hot', 'hot', '[]'), '{[33,33]}', ((33, 'hot'), 'hot', '{33}')::nested, '00:33+00', '33 days', '33' FROM generate_series(5001, 6500) g;
ALTER TABLE b ADD twice bigint GENERATED ALWAYS AS (k * 2) STORED;
-- rows from before a column came, and partitions with other orders of columns
ALTER TABLE a ADD late int DEFAULT 5;
ALTER TABLE b ADD late int DEFAULT 5;
ALTER TABLE d ADD late int DEFAULT 5;
ALTER TABLE u ADD late int DEFAULT 5;
CREATE TABLE p (LIKE a) PARTITION BY HASH (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES WITH (MODULUS 2, REMAINDER 0);
DO $$ BEGIN
	EXECUTE (SELECT format('CREATE TABLE p2 (%s)', string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum DESC))
		FROM pg_attribute WHERE attrelid = 'a'::regclass AND attnum > 0);
END $$;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO p SELECT * FROM a WHERE id <= 150;

CREATE INDEX b_k ON b USING pmhash (k);
CREATE INDEX b_t ON b USING pmhash (t);
CREATE INDEX b_n ON b USING pmhash (n);
CREATE INDEX b_c ON b USING pmhash (c);
CREATE INDEX b_k2_s ON b USING pmhash (k2, s);
CREATE INDEX b_twice ON b USING pmhash (twice);
CREATE INDEX b_co ON b USING pmhash (co);
CREATE INDEX d_ar ON d USING pmhash (ar);
CREATE INDEX d_k2 ON d USING pmhash (k2);
CREATE INDEX d_k_t ON d USING pmhash (k, t);
CREATE INDEX d_upper ON d USING pmhash (upper(t));
CREATE INDEX d_f ON d USING pmhash (f);
CREATE INDEX d_m_b ON d USING pmhash (m, b, k);
CREATE INDEX b_w ON b USING pmhash (w);
CREATE INDEX b_w_c ON b USING pmhash (w COLLATE "C");
CREATE INDEX b_sp ON b USING pmhash (sp);
CREATE INDEX d_ms ON d USING pmhash (ms);
CREATE INDEX b_ne ON b USING pmhash (ne);
CREATE INDEX b_tz_iv ON b USING pmhash (tz, iv);
CREATE INDEX d_j ON d USING pmhash (j);
CREATE INDEX u_s ON u USING pmhash (s) WHERE id > 100;
CREATE INDEX u_k ON u USING pmhash (k) WHERE b;
CREATE INDEX u_mod ON u USING pmhash ((k % 37));

-- rows of a query, in an order, under settings
CREATE FUNCTION answer(settings text[], query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
	i int;
BEGIN
	FOR i IN 1 .. array_length(settings, 1) BY 2 LOOP
		PERFORM set_config(settings[i], settings[i + 1], true);
	END LOOP;
	EXECUTE format('SELECT count(*) || '': '' || coalesce(string_agg(r, E''\n'' ORDER BY r COLLATE "C"), '''')
		FROM (SELECT q::text AS r FROM (%s) q) s', query) INTO result;
	RETURN result;
END $$;

-- rows of a query by a cursor that turns back on its way
CREATE FUNCTION by_cursor(query text, ahead int, back int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	r record;
BEGIN
	OPEN c SCROLL FOR EXECUTE query;
	MOVE FORWARD ahead FROM c;
	MOVE BACKWARD back FROM c;
	MOVE FORWARD ahead FROM c;
	MOVE ABSOLUTE 0 FROM c;
	LOOP
		FETCH c INTO r;
		EXIT WHEN NOT FOUND;
		RETURN NEXT r::text;
	END LOOP;
	CLOSE c;
END $$;

-- how many rows a query has, and a sum of them, by a cursor that stays open while the
-- transaction changes tables, which it takes back in the end
CREATE FUNCTION beside_change(query text, change text, ahead int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	r record;
	n int := 0;
	sum bigint := 0;
	more bool;
BEGIN
	OPEN c NO SCROLL FOR EXECUTE query;
	FETCH c INTO r;
	more := FOUND;
	BEGIN
		EXECUTE change;
		WHILE more AND n < ahead LOOP
			n := n + 1;
			sum := sum + hashtext(r::text);
			FETCH c INTO r;
			more := FOUND;
		END LOOP;
		RAISE EXCEPTION 'back';
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;
	WHILE more LOOP
		n := n + 1;
		sum := sum + hashtext(r::text);
		FETCH c INTO r;
		more := FOUND;
	END LOOP;
	CLOSE c;
	RETURN n || ' ' || sum;
END $$;

CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	result text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF, VERBOSE) ' || query LOOP
		result := result || line || E'\n';
	END LOOP;
	RETURN result;
END $$;
SQL

my @join_off = ('pmhash.enable_join' => 'off');
my @seq = (
	@join_off,
	enable_seqscan => 'on',
	enable_indexscan => 'off',
	enable_indexonlyscan => 'off',
	enable_bitmapscan => 'off',
	enable_hashjoin => 'on',
	enable_mergejoin => 'on',
	cpu_index_tuple_cost => 0.005,
	max_parallel_workers_per_gather => 0);
my @by_index = (
	enable_seqscan => 'on',
	enable_indexscan => 'on',
	enable_indexonlyscan => 'on',
	enable_bitmapscan => 'on',
	enable_hashjoin => 'off',
	enable_mergejoin => 'off');

my ($queries, $joined, $lists, $scanned, $paged, $changes) = (0, 0, 0, 0, 0, 0);

# A server with the tables, started.
sub new_join_server
{
	# so few that pages are hardly ever where they were, or enough for all
	my $node = new_server('join', 'shared_buffers = ' . one_of('1MB', '32MB') . "\n" . <<'CONF');
fsync = off
max_parallel_workers = 4
min_parallel_table_scan_size = 0
CONF

	$node->start;
	$node->safe_psql('postgres', "CREATE DATABASE wide TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
	$node->safe_psql('wide', 'CREATE EXTENSION pmhash');
	$node->safe_psql('wide', $tables);
	$node->safe_psql('wide', 'VACUUM ANALYZE');
	return $node;
}

# ---- queries ----

# Conditions that bind the columns of an index of an inner table: [table, condition]
# with o for the outer row and i for the inner one.
my @bindings = (
	[ 'b', 'i.k = o.k' ],
	[ 'b', 'o.k = i.k' ],
	[ 'b', 'i.k = o.k2' ],
	[ 'b', 'i.k = o.s' ],
	[ 'b', 'i.k = o.k + 1' ],
	[ 'b', 'i.k = coalesce(o.k, 7)' ],
	[ 'b', 'i.t = o.t' ],
	[ 'b', "i.t = 't' || o.s" ],
	[ 'b', 'i.n = o.n' ],
	[ 'b', 'i.n = o.k' ],
	[ 'b', 'i.c = o.c' ],
	[ 'b', 'i.k2 = o.k2 AND i.s = o.s' ],
	[ 'b', 'i.k2 = o.k AND i.s = 12' ],
	[ 'b', 'i.twice = o.k2' ],
	[ 'b', 'i.co = o.co' ],
	[ 'b', "i.co = row(o.s, 'y1')::pair" ],
	[ 'd', 'i.ar = o.ar' ],
	[ 'd', 'i.ar = ARRAY[o.k, NULL, 1]' ],
	[ 'b', 'i.s = o.s AND i.k2 = o.s' ],
	[ 'd', 'i.k2 = o.k2' ],
	[ 'd', 'i.k2 = o.k' ],
	[ 'd', 'i.k = o.k AND i.t = o.t' ],
	[ 'd', "i.k = o.k AND i.t = 'hot'" ],
	[ 'd', 'upper(i.t) = upper(o.t)' ],
	[ 'd', 'i.f = o.f' ],
	[ 'd', 'i.m = o.m AND i.b = o.b AND i.k = o.k' ],
	[ 'b', 'i.w = o.w' ],
	[ 'b', 'i.w = o.w COLLATE "C"' ],
	[ 'b', "i.w = upper('w' || o.s % 80)" ],
	[ 'b', 'i.sp = o.sp' ],
	[ 'd', 'i.ms = o.ms' ],
	[ 'b', 'i.ne = o.ne' ],
	[ 'b', "i.ne = row(o.co, o.w, ARRAY[o.n])::nested" ],
	[ 'b', 'i.tz = o.tz AND i.iv = o.iv' ],
	[ 'd', 'i.j = o.j' ],
	[ 'u', 'i.s = o.s AND i.id > 100' ],
	[ 'u', 'i.s = o.k AND i.id > 250' ],
	[ 'u', 'i.k = o.k AND i.b' ],
	[ 'u', 'i.k % 37 = o.s % 37' ],
);

my @filters = (
	'i.id < o.id', 'i.id % 3 = 1', 'i.t IS NOT NULL', "i.t <> o.t", 'o.id % 2 = 0',
	'i.f > o.f', "i.c LIKE 'c1%'", 'i.k = o.k', 'i.b', 'NOT o.b',
	'i.id = (SELECT max(x.id) FROM a x WHERE x.k = i.k)',
	'(i.n < 150 OR o.n IS NULL)', 'i.k IS NOT DISTINCT FROM o.k', '(i.t = o.t OR i.k = o.s)', 'i.late = 5',
	'i.id IN (SELECT x.id FROM a x WHERE x.b)', '(i.co).x > o.s', 'coalesce(i.s, 3) = ANY (o.ar)',
	'i.s NOT IN (SELECT x.s FROM u x WHERE x.s IS NOT NULL AND x.id < 80)');

my @outers = (
	'a', 'a', 'a', 'u',
	'(SELECT * FROM b WHERE id % 9 = 4)',
	'(SELECT * FROM d WHERE id % 3 = 1 AND id < 5010)',
	'(SELECT * FROM a WHERE id % 5 = 2)',
	'(SELECT * FROM a ORDER BY k, id LIMIT 40)',
	'(SELECT x.* FROM a x JOIN d y ON x.id = y.id)',
	'p', 'p', '(SELECT x.* FROM p x JOIN p y ON x.id = y.id)',
	'(SELECT x.* FROM a x LEFT JOIN u y ON x.s = y.s AND y.id > 600 WHERE x.id < 200)',
	'(SELECT * FROM a UNION ALL SELECT * FROM u WHERE id < 50)',
	'(SELECT id, k, k2, s, t, c, f, b, m, n, co, ar, w, sp, ms, ne, tz, iv, j, 5 AS late FROM (VALUES '
	  . '(1, 7, 7::bigint, 7::smallint, \'t7\', \'c7\'::char(6), 7::float8, true, \'ok\'::mood, 7.0, (7, \'y1\')::pair, ARRAY[7, NULL, 1]), '
	  . '(2, NULL, 33, 33, \'hot\', \'hot\', 0, false, \'sad\', NULL, (33, \'hot\')::pair, ARRAY[33])) v (id, k, k2, s, t, c, f, b, m, n, co, ar), '
	  . '(SELECT w, sp, ms, ne, tz, iv, j FROM a LIMIT 3) w)',
);

my @columns = (
	'o.id', 'i.id', 'i.k', 'i.t', 'o.t', 'i.n', 'o.k + i.id', 'i.ctid', 'i.tableoid',
	'i', 'o', 'i.co', '(i.co).y', 'i.late', 'i.ar', 'o.ar', 'length(i.t)', 'i.f', 'i.m', 'i.w', 'i.sp', 'o.ne', 'i.iv', 'coalesce(i.s, -1)', 'i.c', '(i.k2, o.k2)');

sub conditions ($binding)
{
	my @list = ($binding->[1]);

	push @list, one_of(@filters) while rand() < 0.3;
	return join(' AND ', @list);
}

sub targets ($outer_only)
{
	my @list = map { one_of(@columns) } 1 .. 1 + int(rand(4));

	@list = map { s/\bi\b/o/gr } @list if $outer_only;
	@list = map { s/o\.(?:ctid|tableoid)/o.id/gr } @list;
	my $n = 0;
	return join(', ', map { $n++; "$_ AS c$n" } @list);
}

sub join_query
{
	my $binding = one_of(@bindings);
	my $outer = one_of(@outers) . ' o';
	my $on = conditions($binding);
	my $where = rand() < 0.3 ? ' WHERE ' . one_of('i.id IS NULL', 'i.k > 100', 'o.id > 50',
		'coalesce(i.n, 3) > 2', "i.t = 't5' OR i.k IS NULL") : '';
	my $kind = int(rand(7));
	my $inner = $binding->[0];

	return 'SELECT ' . targets(0) . " FROM $outer JOIN $inner i ON $on$where" if $kind <= 1;
	return 'SELECT ' . targets(0) . " FROM $outer LEFT JOIN $inner i ON $on$where" if $kind <= 2;
	return 'SELECT ' . targets(1) . " FROM $outer WHERE EXISTS (SELECT 1 FROM $inner i WHERE $on)"
	  if $kind == 3;
	return 'SELECT ' . targets(1) . " FROM $outer WHERE NOT EXISTS (SELECT 1 FROM $inner i WHERE $on)"
	  if $kind == 4;
	return "SELECT count(*) AS n, sum(i.id) AS s, min(o.t) AS m FROM $outer "
	  . one_of('', 'LEFT ') . "JOIN $inner i ON $on$where"
	  if $kind == 5;
	return 'SELECT i.id, i.k, i.t FROM ' . "$inner i WHERE "
	  . one_of('i.k IN (SELECT o.k FROM a o WHERE o.id % 7 = 1)',
		'i.t IN (SELECT o.t FROM a o)',
		'i.k2 IN (SELECT o.k FROM d o WHERE o.b)',
		'i.k = ANY (ARRAY[1, 2, 7, 33, NULL, 7])');
}

# Joins of joins, sub-queries that run again and again, and LIMIT.
sub nested_query
{
	my ($x, $y) = (one_of(@bindings), one_of(grep { $_->[0] ne 'd' } @bindings));
	my $kind = int(rand(7));
	my ($first, $second) = (conditions($x), conditions($y));

	$second =~ s/\bi\./j./g;
	return "SELECT o.id, i.id AS i, j.id AS j FROM a o "
	  . one_of('', 'LEFT ') . "JOIN $x->[0] i ON $first "
	  . one_of('', 'LEFT ') . "JOIN $y->[0] j ON $second WHERE o.id < 40"
	  if $kind == 0;
	return "SELECT o.id, l.n FROM a o, LATERAL (SELECT count(*) AS n FROM a z JOIN $y->[0] j ON "
	  . ($second =~ s/\bo\./z./gr) . ' WHERE z.s = o.s OFFSET 0) l WHERE o.id < 10'
	  if $kind == 1;
	return "SELECT o.id, (SELECT sum(j.id) FROM u z JOIN $y->[0] j ON "
	  . ($second =~ s/\bo\./z./gr) . ' WHERE z.k = o.k) AS s FROM a o WHERE o.id < 10'
	  if $kind == 2;
	return "SELECT count(*) AS n FROM (SELECT o.id, i.id AS i FROM a o JOIN $x->[0] i ON $first LIMIT "
	  . int(rand(50)) . ') l'
	  if $kind == 3;
	# expressions that an outer join may make null are computed below it
	return 'SELECT o.id, l.* FROM a o LEFT JOIN (SELECT z.s AS ks, coalesce(j.t, z.t) AS tt, '
	  . "(j.id, z.id) AS r, 7 AS seven FROM u z JOIN $y->[0] j ON " . ($second =~ s/\bo\./z./gr)
	  . ') l ON l.ks = o.s WHERE o.id < 30'
	  if $kind == 4;
	# the rows of one round are the outer rows of the next
	return 'WITH RECURSIVE r (k, id, d) AS (SELECT k, id, 0 FROM a WHERE id < 8 '
	  . one_of('UNION', 'UNION ALL') . ' SELECT i.s::int, i.id, d + 1 FROM r '
	  . one_of('', 'LEFT ') . 'JOIN b i ON i.k = r.k AND i.id % 3 <> r.id % 3 WHERE d < 3 AND r.k <> 7) '
	  . 'SELECT k, d, count(*) AS n, sum(id) AS s FROM r GROUP BY k, d'
	  if $kind == 5;
	return "SELECT o.k, count(*) AS n FROM (SELECT DISTINCT k, k2, s, t, c, f, b, m, n, id, co, ar, w, sp, ms, ne, tz, iv, j FROM a) o "
	  . "LEFT JOIN $x->[0] i ON $first GROUP BY o.k HAVING count(i.id) <> 1";
}

# ---- lists of keys, keys of many rows ----

sub pick { return map { one_of(@_) } 1 .. 1 + int(rand(rand() < 0.2 ? 400 : 8)); }

# Numbers, some twice, some NULL, of which some are keys; or what a sub-query gives.
sub numbers
{
	my $type = one_of('int', 'int', 'bigint', 'smallint');
	my $column = one_of('k', 's', 'k2');

	return "ARRAY[" . join(', ', pick(7, 33, 'NULL', map { int(rand(750)) } 1 .. 200)) . "]::${type}[]"
	  if rand() < 0.6;
	return "(SELECT array_agg(o.$column) FROM a o WHERE o.id % " . one_of(2, 7, 50) . " = 1)::${type}[]";
}

sub texts
{
	return "ARRAY[" . join(', ', pick('NULL', "'hot'", map { "'t" . int(rand(420)) . "'" } 1 .. 100)) . ']'
	  if rand() < 0.6;
	return '(SELECT array_agg(o.t) FROM a o WHERE o.id % ' . one_of(2, 7, 50) . ' = 1)::text[]';
}

# Conditions on columns with an index: [table, condition].
sub list
{
	my $n = int(rand(20));

	return [ 'b', 'i.k = ANY (' . numbers() . ')' ] if $n <= 2;
	return [ 'b', 'i.t = ANY (' . texts() . ')' ] if $n == 3;
	return [ 'b', 'i.k2 = ANY (' . numbers() . ') AND i.s = ANY (' . numbers() . ')' ] if $n == 4;
	return [ 'b', 'i.s = 12 AND i.k2 = ANY (' . numbers() . ')' ] if $n == 5;
	return [ 'b', 'i.n = ANY (' . numbers() . '::numeric[])' ] if $n == 6;
	return [ 'd', 'i.k2 = ANY (' . numbers() . ')' ] if $n <= 8;
	return [ 'd', 'upper(i.t) = ANY (' . one_of("'{HOT,T7,NULL}'", "'{HOT}'", 'ARRAY[upper(\'t5\')]') . ')' ]
	  if $n == 9;
	return [ 'd', 'i.k = ANY (' . numbers() . ') AND i.t = ANY (' . texts() . ')' ] if $n == 10;
	return [ 'u', 'i.id > 100 AND i.s = ANY (' . numbers() . ')' ] if $n == 11;
	return [ 'u', 'i.k % 37 = ANY (' . numbers() . '::int[])' ] if $n == 12;
	return [ 'b', "i.w = ANY ('{W7,w12,v3,NULL}')" ] if $n == 13;
	return [ 'b', 'i.sp = ANY ((SELECT array_agg(o.sp) FROM a o WHERE o.id % ' . one_of(7, 50) . ' = 1)::span[])' ] if $n == 14;
	return one_of(
		[ 'd', 'i.k2 = 33' ], [ 'b', 'i.k = 7' ], [ 'd', 'i.f = 33' ], [ 'd', "upper(i.t) = 'HOT'" ],
		[ 'd', "i.k = 33 AND i.t = 'hot'" ], [ 'd', "i.m = 'ok' AND i.b AND i.k = 33" ], [ 'b', 'i.k = (SELECT 7)' ],
		[ 'd', 'i.k2 = 33 AND i.id % 2 = 0 AND i.k2 = 33::smallint' ]);
}

sub list_query
{
	my ($table, $condition) = @{ list() };
	my $where = $condition . (rand() < 0.3 ? ' AND ' . one_of('i.id % 3 = 1', 'i.f > 20', 'i.b') : '');
	my $kind = int(rand(8));
	my $rows = 'SELECT ' . one_of('i.id, i.k, i.t', 'i.k', 'i.k2', 'i', 'i.ctid, i.n') . " FROM $table i WHERE $where";

	return $rows if $kind <= 2;
	return "SELECT count(*) AS n, sum(i.id) AS s FROM $table i WHERE $where" if $kind == 3;
	return 'SELECT count(*) AS n FROM (' . $rows . ' LIMIT ' . int(rand(200)) . ') l' if $kind == 4;
	return "SELECT c FROM by_cursor(\$c\$$rows\$c\$, " . int(rand(300)) . ', ' . int(rand(300)) . ') c'
	  if $kind == 5;
	# again and again, with other keys and often not to the end
	return 'SELECT o.id, l.* FROM a o, LATERAL (SELECT count(*) AS n FROM (SELECT FROM d i WHERE i.k2 = ANY (ARRAY['
	  . one_of('o.k2, 33, o.k', 'o.k2, o.k, o.s', '33')
	  . ']) LIMIT ' . one_of(1, 'o.id * 3', 'o.s * 20') . ') c OFFSET 0) l WHERE o.id < 25'
	  if $kind == 6;
	return "SELECT o.id, EXISTS (SELECT FROM $table i WHERE $where AND i.id > o.id) AS e FROM a o WHERE o.id < 25";
}

# ---- changes ----

sub change
{
	my $table = one_of('a', 'b', 'd', 'u');
	my $id = 1 + int(rand(4000));
	my $n = 1 + int(rand(100));
	my $statement = one_of(
		"UPDATE $table SET k = k + 1 WHERE id BETWEEN $id AND $id + $n",
		"UPDATE $table SET n = n + 1, b = NOT b WHERE id BETWEEN $id AND $id + $n",
		"UPDATE $table SET t = 't' || s, id = id WHERE id % 50 = $id % 50",
		"DELETE FROM $table WHERE id BETWEEN $id AND $id + $n / 4",
		"UPDATE b SET n = n + 1, s = s WHERE k = ANY (" . numbers() . ')',
		"DELETE FROM d WHERE k2 = ANY (ARRAY[$id % 500, 33]) AND id % 97 = $id % 97",
		"SELECT add_rows('$table', $id, $n)");

	$changes++;
	return "$statement;\n" if rand() < 0.7;
	return "SAVEPOINT s;\n$statement;\n" . one_of('ROLLBACK TO s', 'RELEASE s') . ";\n";
}

# The rows of a query by a cursor, with a change under way between its first rows.  It is of
# a part of them: what is taken back stays in the table, and one that grows to ten times its
# size has no page scans.
sub beside_change
{
	my ($query) = @_;
	my $table = one_of('a', 'b', 'd', 'u', 'p');
	my $some = 'id % 11 = ' . int(rand(11));
	my $change = one_of(
		"UPDATE $table SET k = k + 1, k2 = k2 - 1, t = t || '' WHERE $some", "DELETE FROM $table WHERE id % 2 = 0",
		"INSERT INTO $table (id, k, k2, s, t, b) SELECT id, k, k2, s, t, b FROM $table WHERE $some",
		"UPDATE $table SET n = n + 1 WHERE $some; DELETE FROM $table WHERE k = 33; UPDATE $table SET f = 1 WHERE id % 13 = 1");

	return "SELECT beside_change(\$c\$$query\$c\$, \$c\$$change\$c\$, " . int(rand(100)) . ') AS c';
}

# ---- comparison ----

# Settings under which the join is done, in a random mood.
sub forced
{
	return (
		@by_index,
		'pmhash.enable_join' => 'on',
		cpu_index_tuple_cost => 1000,
		work_mem => one_of('64kB', '4MB'),
		geqo_threshold => one_of(2, 12),
		enable_partitionwise_join => one_of('on', 'off'),
		enable_memoize => one_of('on', 'off'),
		max_parallel_workers_per_gather => rand() < 0.1 ? 2 : 0,
		parallel_setup_cost => 0,
		parallel_tuple_cost => 0);
}

sub array
{
	return 'ARRAY[' . join(', ', map { "'$_'" } @_) . ']';
}

# Settings under which a list is scanned, plainly or by a bitmap.
sub scanned
{
	my ($plain) = @_;

	return (
		@join_off,
		'pmhash.enable_pagescan' => one_of('on', 'on', 'off'),
		enable_seqscan => 'off',
		enable_indexscan => $plain,
		enable_indexonlyscan => $plain,
		enable_bitmapscan => $plain eq 'on' ? 'off' : 'on',
		cpu_index_tuple_cost => 0.005,
		work_mem => one_of('64kB', '4MB'),
		max_parallel_workers_per_gather => rand() < 0.1 ? 2 : 0,
		parallel_setup_cost => 0,
		parallel_tuple_cost => 0);
}

# A statement that gives a row for each query whose answers differ.
sub comparison ($query, $is_list)
{
	my $text = "\$q\$$query\$q\$";
	my @on = $is_list ? scanned('on') : forced();
	my @off = $is_list ? scanned('off') :
	  (@join_off, @by_index, cpu_index_tuple_cost => 0.005, max_parallel_workers_per_gather => 0);

	return 'WITH j AS MATERIALIZED (SELECT answer(' . array(@on) . ", $text) AS rows, "
	  . "plan_of($text) AS plan), "
	  . 'n AS MATERIALIZED (SELECT answer(' . array(@off) . ", $text) AS rows), "
	  . 's AS MATERIALIZED (SELECT answer(' . array(@seq) . ", $text) AS rows) "
	  . "SELECT CASE WHEN j.rows = s.rows AND n.rows = s.rows THEN 'same' "
	  . "ELSE 'DIFFERS ' || (j.rows = s.rows) || (n.rows = s.rows) || ' ' || $text || E'\\n' || plan "
	  . "|| 'join: ' || left(j.rows, 300) || E'\\nseq: ' || left(s.rows, 300) END "
	  . ($is_list ? "|| CASE WHEN plan LIKE '%page scan%' THEN ' paged' ELSE '' END || ' list' || CASE WHEN plan LIKE '%Index%' OR plan LIKE '%by_cursor%' THEN ' scanned' ELSE '' END"
		: "|| CASE WHEN plan LIKE '%pmhash join%' THEN ' joined' ELSE '' END")
	  . " FROM j, n, s;\n";
}

# Queries and changes in a transaction, for psql.
sub script ($n)
{
	my $text = "BEGIN;\n";

	for (1 .. $n)
	{
		my $kind = rand();

		$text .= $kind < 0.35 ? comparison(list_query(), 1)
		  : $kind < 0.38 ? comparison(beside_change(join_query()), 0)
		  : comparison($kind < 0.85 ? join_query() : nested_query(), 0);
		$text .= change() if rand() < 0.15;
		$text .= "COMMIT;\nBEGIN;\n" if rand() < 0.05;
	}
	return $text . one_of('COMMIT', 'ROLLBACK') . ";\n" . (rand() < 0.3 ? "VACUUM;\n" : '')
	  . (rand() < 0.1 ? "ANALYZE;\n" : '');
}

# Compare answers for so many seconds; returns what differs, '' if nothing does.
sub fuzz_joins ($node, $seed, $seconds)
{
	my $end = time() + $seconds;

	# and on a slow machine until there are enough lists to say something of them
	srand($seed);
	while (time() < $end || $lists < 150)
	{
		my ($out, $err);
		my $script = script(40);
		my $status = $node->psql('wide', $script,
			stdout => \$out, stderr => \$err, on_error_stop => 1);

		return "psql: $err" if $status != 0;
		$queries += () = $out =~ /^(?:same|DIFFERS)/mg;
		$joined += () = $out =~ / joined$/mg;
		$lists += () = $out =~ / list(?: scanned)?$/mg;
		$scanned += () = $out =~ / list scanned$/mg;
		$paged += () = $out =~ / paged list/mg;
		return $out =~ s/^same.*\n?//mgr if $out =~ /DIFFERS/;
	}
	return '';
}

# How many queries; of those with joins how many by ours; of those with lists how many
# by an index, and of these page by page; how many changes.
sub join_figures
{
	return ($queries, $joined, $lists, $scanned, $paged, $changes);
}

1;
