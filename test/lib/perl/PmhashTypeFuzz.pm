# Random types: strings under several collations, numbers, addresses and so on, and what is
# made of them, arrays, ranges by several orders, composite types and domains, some levels
# deep.  Values are few, and many of them equal though written otherwise.  For each pair of
# values that "=" takes for equal, nested loops of sequential scans say so, there has to be
# a row by each kind of scan of an index, and for others none; an exclusion constraint (and
# from PostgreSQL 18 on a unique index) lets one of equal values in.  Then the types, the
# columns and the operator families are altered, as far as that is not refused, and all is
# compared again.

package PmhashTypeFuzz;

use strict;
use warnings;

use Exporter 'import';
use PmhashRandom;
use PmhashTest;
use Time::HiRes qw(time);

our @EXPORT = qw(new_type_server fuzz_types type_figures);

my %figures = (types => 0, impossible => 0, refused => 0, compared => 0, skipped => 0, unused => 0, altered => 0, constrained => 0);

# SQLSTATEs with which an index is refused: types that cannot be hashed at all (42704,
# 42883), or by core's function (0A000).
my $refused_states = qr/(?:0A000|42704|42883)/;

# ---- the server ----

my $functions = <<'SQL';
SELECT format('CREATE EXTENSION %1$s;
	CREATE OPERATOR CLASS %1$s_ops DEFAULT FOR TYPE %1$s USING pmhash AS
	OPERATOR 1 =, FUNCTION 1 %1$s_hash_extended(%1$s, bigint);', name)
FROM pg_available_extensions WHERE name IN ('citext', 'hstore') \gexec
SELECT 'CREATE COLLATION nocase (provider = icu, locale = ''und-u-ks-level2'', deterministic = false);
	CREATE COLLATION bare (provider = icu, locale = ''und-u-ks-level1'', deterministic = false);
	CREATE COLLATION strict_icu (provider = icu, locale = ''und'');'
WHERE EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i' AND collname <> 'unicode') \gexec

-- an order of integers with an equality of its own
CREATE FUNCTION same_mod(int4, int4) RETURNS bool IMMUTABLE STRICT LANGUAGE sql
	AS 'SELECT mod($1, 10) = mod($2, 10)';
CREATE FUNCTION cmp_mod(int4, int4) RETURNS int4 IMMUTABLE STRICT LANGUAGE sql
	AS 'SELECT btint4cmp(mod($1, 10), mod($2, 10))';
CREATE FUNCTION hash_mod(int4, int8) RETURNS int8 IMMUTABLE STRICT LANGUAGE sql
	AS 'SELECT hashint4extended(mod($1, 10), $2)';
CREATE OPERATOR %% (leftarg = int4, rightarg = int4, function = same_mod, commutator = %%, restrict = eqsel, join = eqjoinsel);
CREATE OPERATOR CLASS mod_order FOR TYPE int4 USING btree AS OPERATOR 3 %%, FUNCTION 1 cmp_mod(int4, int4);
CREATE OPERATOR CLASS mod_ops FOR TYPE int4 USING pmhash AS OPERATOR 1 %%, FUNCTION 1 hash_mod(int4, int8);

-- executes a statement; the SQLSTATE of its error, or ''
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN '';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;

-- How the rows of a query by an index differ from those of the other one by sequential scans.
CREATE FUNCTION compare(reference text, query text, index text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	wanted text[];
	by_index text;
	by_bitmap text;
BEGIN
	BEGIN
		wanted := rows_by('seq', reference, index);
	EXCEPTION WHEN OTHERS THEN
		RETURN format('skipped: %s', SQLERRM);
	END;
	by_index := index_difference(query, index, wanted);
	by_bitmap := difference(rows_by('bitmap', query, index), wanted);
	IF by_index = 'same' AND by_bitmap = 'same' THEN
		RETURN 'same';
	ELSIF replace(replace(by_index || by_bitmap, 'not used', ''), 'same', '') = '' THEN
		RETURN 'unused: ' || query;
	END IF;
	RETURN format('finding: %s: %s rows, by index %s, by bitmap %s', query, cardinality(wanted), by_index, by_bitmap);
EXCEPTION WHEN undefined_function THEN
	RETURN format('refused: %s', SQLERRM);	-- by an index that has lost its function
WHEN OTHERS THEN
	RETURN format('finding: %s: %s %s', query, SQLSTATE, SQLERRM);
END $$;

-- The first row of a query that compares answers of plans that are kept, or an error that is
-- not one of types that do not fit any more.
CREATE FUNCTION by_kept_plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n int;
BEGIN
	PERFORM set_config('enable_indexscan', 'on', true), set_config('enable_bitmapscan', 'on', true);
	EXECUTE query INTO n;
	RETURN CASE WHEN n IS NOT NULL THEN format('finding: kept plan: key %s: %s', n, query) ELSE 'same' END;
EXCEPTION WHEN syntax_error_or_access_rule_violation OR datatype_mismatch OR undefined_function OR
	undefined_table OR undefined_object OR indeterminate_collation OR collation_mismatch OR numeric_value_out_of_range OR object_not_in_prerequisite_state THEN
	RETURN format('skipped: %s', SQLERRM);
WHEN OTHERS THEN
	RETURN format('finding: %s %s', SQLSTATE, SQLERRM);
END $$;

-- What pmhash.check says of the index, if it is there and can be used.
CREATE FUNCTION check_tz() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pmhash.check(to_regclass('tz_k')) WHERE to_regclass('tz_k') IS NOT NULL;
	RETURN NULL;
EXCEPTION WHEN undefined_function THEN
	RETURN NULL;
WHEN OTHERS THEN
	RETURN SQLERRM;
END $$;

-- Puts each value into a table with a constraint; what is wrong then, or ''.
CREATE FUNCTION constrained(tab text, operator text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n int;
	found text;
BEGIN
	FOR n IN EXECUTE 'SELECT n FROM v1 ORDER BY n' LOOP
		BEGIN
			EXECUTE format('INSERT INTO %s SELECT v, n FROM v1 WHERE n = $1', tab) USING n;
		EXCEPTION WHEN exclusion_violation OR unique_violation THEN
			NULL;
		END;
	END LOOP;
	PERFORM set_config('enable_indexscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
		set_config('pmhash.enable_join', 'off', true);
	EXECUTE format('SELECT format(''finding: %1$s: %%s and %%s are equal'', a.n, b.n)
		FROM %1$s a JOIN %1$s b ON a.n < b.n AND (a.k %2$s b.k) IS TRUE LIMIT 1', tab, operator) INTO found;
	IF found IS NULL THEN
		EXECUTE format('SELECT format(''finding: %1$s: %%s is not there'', n) FROM v1
			WHERE v IS NOT NULL AND NOT EXISTS (SELECT FROM %1$s b WHERE (b.k %2$s v1.v) IS TRUE) AND (v %2$s v) IS TRUE LIMIT 1', tab, operator) INTO found;
	END IF;
	RETURN coalesce(found, 'constrained');
EXCEPTION WHEN OTHERS THEN
	RETURN format('skipped: %s', SQLERRM);
END $$;
SQL

# A server with the functions in a database in UTF-8, started.
sub new_type_server
{
	my $node = new_server('types', "fsync = off\n");

	$node->start;
	$node->safe_psql('postgres', "CREATE DATABASE wide TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
	install_extension($node, 'wide');
	$node->safe_psql('wide', $functions);
	return $node;
}

# ---- types ----

# Types with values of which some are equal.
my %base = (
	int2 => [qw(-32768 -1 0 1 2 11 32767)],
	int4 => [qw(-2147483648 -1 0 1 2 11 12 21 65536 2147483647)],
	int8 => [qw(-9223372036854775808 -1 0 1 2 11 4294967296 4294967297 2147483648)],
	numeric => [qw(0 -0 0.000 1 1.0 1.00 10 1e1 10.00 NaN Infinity 0.1 0.10 100000000000000000000 1e20)],
	'numeric(8,2)' => [qw(0 0.001 1 1.0 1.004 NaN 10)],
	float4 => [qw(0 -0 1 NaN Infinity 0.1 1e-45)],
	float8 => [qw(0 -0 1 NaN Infinity 0.1 5e-324)],
	money => [qw(0 0.01 -0.01 1)],
	oid => [qw(0 1 4294967295 2147483648)],
	regclass => [qw(pg_class pg_type pg_proc)],
	bool => [qw(t f)],
	'"char"' => [ 'a', 'b', '', '\200' ],
	date => [qw(2000-01-01 2000-01-02 infinity -infinity 1999-12-31)],
	time => [qw(00:00 00:00:00.000001 24:00)],
	timetz => [qw(00:00+00 01:00+01 02:00+02 24:00+00 00:00+01)],
	timestamp => [ '2000-01-01', '2000-01-01 00:00:00.000001', 'infinity', '2000-01-01 00:00:00' ],
	'timestamp(0)' => [ '2000-01-01', '2000-01-01 00:00:00.4', 'infinity' ],
	timestamptz => [ '2000-01-01 00:00+00', '2000-01-01 01:00+01', '2000-01-01 00:00+01', 'infinity' ],
	interval => [ '1 month', '30 days', '720 hours', '1 year', '360 days', '1 day', '24 hours', '0', '1 day -24 hours' ],
	inet => [qw(10.0.0.1 10.0.0.1/32 10.0.0.1/8 10.0.0.0/8 ::1 ::1/128 ::ffff:10.0.0.1)],
	cidr => [qw(10.0.0.0/8 10 10.0.0.1/32 ::/0 0.0.0.0/0)],
	macaddr => [qw(08:00:2b:01:02:03 08-00-2b-01-02-03 ff:ff:ff:ff:ff:ff)],
	macaddr8 => [qw(08:00:2b:01:02:03:04:05 08:00:2b:ff:fe:01:02:03 ff:ff:ff:ff:ff:ff:ff:ff)],
	uuid => [qw(a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 A0EEBC999C0B4EF8BB6D6BB9BD380A11 00000000-0000-0000-0000-000000000000)],
	bytea => [ '', '\x00', '\x0000', '\x61' ],
	xid => [qw(0 1 4294967295)],
	xid8 => [qw(0 1 4294967296)],
	pg_lsn => [qw(0/0 0/1 1/0)],
	tid => [ '(0,1)', '(1,0)', '(1,1)' ],
	jsonb => [ '1', '1.0', '[1]', '[1.00]', '{"a": 1, "b": [2, 0.0]}', '{"b": [2.0, 0], "a": 1.0}', 'null', '"a"', '{}', '[]', '[{}]' ],
	text => [ '', 'a', 'A', 'a ', 'b', '\u00e9', '\u00c9', 'e', 'e\u0301', 'ab', 'aB', '\u00df', 'ss' ],
	'varchar(3)' => [ '', 'a', 'A', 'a ', '\u00e9', '\u00c9', 'e', 'e\u0301', 'ab', 'aB' ],
	bpchar => [ '', ' ', 'a', 'A', 'a ', 'a  ', '\u00e9', '\u00c9', 'ab', 'aB' ],
	'char(3)' => [ '', 'a', 'A', 'a ', '\u00e9', '\u00c9', 'ab', 'aB' ],
	name => [ '', 'a', 'A', 'a ', '\u00e9', '\u00c9', 'ab', 'aB' ],
	citext => [ '', 'a', 'A', 'a ', 'b', '\u00e9', '\u00c9', 'ab', 'aB' ],
	hstore => [ '', 'a=>1', 'a=>1,b=>2', 'b=>2,a=>1', 'a=>NULL' ],
	mood => [qw(sad ok happy)],
	# not hashed at all
	bit => [qw(0 1)],
	tsvector => [ 'a b', 'b a' ],
	point => ['(0,0)'],
);
my @names = sort keys %base;
my @collated = ('text', 'varchar(3)', 'bpchar', 'char(3)', 'name', 'citext');
my @numbers = qw(int2 int4 int8 float4 float8);

my $made;     # types of this round
my @ddl;      # statements that make them

# (\u0301 and the like are characters, whatever the encoding of this file.)
sub literal { my ($value) = @_; return $value =~ /\\u/ ? "E'$value'" : "E'" . ($value =~ s/([\\'])/\\$1/gr) . "'"; }

# Values of an expression type: as many of the list.
sub some { my ($n, @list) = @_; return map { one_of(@list) } 1 .. $n; }

sub collation
{
	return one_of('', '', 'COLLATE nocase', 'COLLATE nocase', 'COLLATE bare', 'COLLATE "C"', 'COLLATE strict_icu');
}

sub base_type
{
	my $name = rand() < .4 ? one_of(@collated) : one_of(@names);

	return {
		type => $name,
		kind => 'base',
		collatable => (scalar grep { $_ eq $name } @collated) > 0,
		values => [ map { literal($_) . "::$name" } @{ $base{$name} } ]
	};
}

sub array_of
{
	my ($of) = @_;
	my $type = "$of->{type}\[]";
	my @v = @{ $of->{values} };
	my @values = ("'{}'::$type");

	$type = "$1\[]" if $type =~ /^(.*)\[\]\[\]$/;
	push @values, map { 'ARRAY[' . join(', ', some(between(1, 2), @v, 'NULL')) . "]::$type" } 1 .. 9;
	push @values, map { "ARRAY[$_]::$type" } some(3, @v);
	push @values, map { "array_fill($_, '{1}', '{0}')::$type" } some(1, @v);
	push @values, map { "ARRAY[ARRAY[$_]]::$type" } some(2, @v);
	return { type => $type, kind => 'array', collatable => $of->{collatable}, values => \@values };
}

sub range_of
{
	my ($of) = @_;
	my $type = 'fz.r' . ++$made;
	my @v = @{ $of->{values} };
	my $class = $of->{type} eq 'int4' ? one_of('', '', 'mod_order')
	  : $of->{type} =~ /^(text|varchar\(3\))$/ ? one_of('', '', 'text_pattern_ops')
	  : $of->{kind} eq 'composite' ? one_of('', 'record_image_ops') : '';
	my $multi = rand() < .3;
	my @values;

	push @ddl, "CREATE TYPE $type AS RANGE (subtype = $of->{type}, multirange_type_name = fz.m$made"
	  . ($class ? ", subtype_opclass = $class" : '')
	  . ($of->{collatable} && rand() < .7 ? collation() =~ s/COLLATE (\S+)/, collation = $1/r : '') . ')';
	push @values, map { "$type($_->[0], $_->[1], '" . one_of('[]', '[)', '(]', '[]') . "')" }
	  map { [ some(2, @v, 'NULL') ] } 1 .. 14;
	push @values, map { "$type($_, $_, '[]')" } some(6, @v);
	push @values, "'empty'::$type";
	if ($multi)
	{
		my @ranges = @values;

		$type = "fz.m$made";
		@values = ("'{}'::$type", map { "$type(" . join(', ', some(between(1, 2), @ranges)) . ')' } 1 .. 14);
	}
	return { type => $type, kind => 'range', collatable => 0, values => \@values };
}

sub row_of
{
	my (@of) = @_;
	my $type = 'fz.c' . ++$made;
	my @values = map { my $n = $_; 'ROW(' . join(', ', map { one_of(@{ $_->{values} }, 'NULL') } @of) . ")::$type" } 1 .. 14;

	push @ddl, "CREATE TYPE $type AS (gone int4, " . join(', ', map { "a$_ $of[$_]{type} " . ($of[$_]{collatable} ? collation() : '') } 0 .. $#of) . ')';
	push @ddl, "ALTER TYPE $type DROP ATTRIBUTE gone";
	push @values, "ROW(" . join(', ', map { 'NULL' } @of) . ")::$type";
	return { type => $type, kind => 'composite', collatable => 0, values => \@values };
}

sub domain_of
{
	my ($of) = @_;
	my $type = 'fz.d' . ++$made;

	push @ddl, "CREATE DOMAIN $type AS $of->{type} " . ($of->{collatable} ? collation() : '');
	return { type => $type, kind => "domain of $of->{kind}", collatable => $of->{collatable}, values => [ map { "($_)::$type" } @{ $of->{values} } ] };
}

sub random_type
{
	my ($depth) = @_;
	my $r = rand();

	return base_type() if $depth == 0 || $r < .3;
	return array_of(random_type($depth - 1)) if $r < .5;
	return range_of(random_type($depth - 1)) if $r < .66;
	return row_of(map { random_type($depth - 1) } 1 .. between(1, 2)) if $r < .84;
	return domain_of(random_type($depth - 1));
}

# ---- queries ----

sub quoted { my ($sql) = @_; return "\$q\$$sql\$q\$"; }

sub try { my ($sql) = @_; return 'SELECT try(' . quoted($sql) . ')'; }

sub comparison
{
	my ($reference, $query) = @_;

	return 'SELECT compare(' . quoted($reference) . ', ' . quoted($query) . ", 'tz_k');\n";
}

# Queries for an index of these columns by this operator, with what its predicate says.
sub queries
{
	my ($t, $op) = @_;
	my @columns = @{ $t->{columns} };
	my $where = $t->{where} ? " AND t.id % 3 > 0" : '';
	my $key = $t->{key};
	my @v = (@{ $columns[0]{values} }, map { "(SELECT v FROM v1 WHERE n = $_)" } 1 .. @{ $columns[0]{values} });
	my $sql = '';

	if (@columns > 1)
	{
		return comparison("SELECT o.n, p.n AS m, t.id FROM v1 o, v2 p, tz t WHERE (t.k1 = o.v) IS TRUE AND (t.k2 = p.v) IS TRUE$where",
				"SELECT o.n, o.m, t.id FROM (SELECT o.n, o.v, p.n AS m, p.v AS w FROM v1 o, v2 p OFFSET 0) o JOIN tz t ON t.k1 = o.v AND t.k2 = o.w$where")
		  . comparison('SELECT t.id FROM v1 o, v2 p, tz t WHERE o.n = 3 AND p.n = 2 AND (t.k1 = o.v) IS TRUE AND (t.k2 = p.v) IS TRUE' . $where,
			"SELECT t.id FROM tz t WHERE t.k1 = (SELECT v FROM v1 WHERE n = 3) AND t.k2 = (SELECT v FROM v2 WHERE n = 2)$where");
	}
	$sql .= 'SELECT by_kept_plan(' . quoted("SELECT o.n FROM v1 o WHERE kept_plan(o.n) <> (SELECT count(*) FROM tz t WHERE ($key $op o.v) IS TRUE$where)") . ");\n";
	$sql .= comparison("SELECT o.n, t.id FROM v1 o, tz t WHERE ($key $op o.v) IS TRUE$where",
		"SELECT o.n, t.id FROM (SELECT n, v FROM v1 OFFSET 0) o JOIN tz t ON $key $op o.v$where");
	$sql .= comparison("SELECT $key FROM tz t WHERE ($key $op $_) IS TRUE$where", "SELECT $key FROM tz t WHERE $key $op $_$where") foreach some(2, @v);
	if (rand() < .5)
	{
		my @list = some(between(1, 4), @v, 'NULL');

		$sql .= comparison("SELECT t.id FROM tz t WHERE (" . join(' OR ', map { "($key $op $_) IS TRUE" } @list) . ")$where",
			"SELECT t.id FROM tz t WHERE $key $op ANY (ARRAY[" . join(', ', @list) . "]::$columns[0]{type}\[])$where")
		  if $columns[0]{kind} !~ /array/ && grep { $_ ne 'NULL' } @list;
		$sql .= comparison("SELECT t.id FROM tz t WHERE (" . join(' OR ', map { "($key $op $_) IS TRUE" } @list) . ")$where",
			"SELECT t.id FROM tz t WHERE (" . join(' OR ', map { "$key $op $_" } @list) . ")$where");
	}
	# (The server makes the rows of v1 unique under their own collation, whatever that of "=".)
	$sql .= comparison("SELECT t.id FROM tz t WHERE EXISTS (SELECT FROM v1 WHERE n % 2 = 0 AND ($key $op v) IS TRUE)$where",
		"SELECT t.id FROM tz t WHERE EXISTS (SELECT FROM v1 WHERE n % 2 = 0 AND $key $op v)$where")
	  if $t->{like} && rand() < .3;
	$sql .= comparison("SELECT o.n FROM v1 o WHERE NOT EXISTS (SELECT FROM tz t WHERE ($key $op o.v) IS TRUE$where)",
		"SELECT o.n FROM v1 o WHERE NOT EXISTS (SELECT FROM tz t WHERE $key $op o.v$where)") if rand() < .3;
	$sql .= comparison("SELECT o.n, count(t.id) FROM v1 o LEFT JOIN tz t ON ($key $op o.v) IS TRUE$where GROUP BY 1",
		"SELECT o.n, count(t.id) FROM v1 o LEFT JOIN tz t ON $key $op o.v$where GROUP BY 1") if rand() < .3;
	if ($op eq '=' && grep { $_ eq $columns[0]{type} } @numbers)
	{
		my $other = one_of(@numbers);

		$sql .= comparison("SELECT o.n, t.id FROM v1 o, tz t WHERE ($key = o.v::float8::$other) IS TRUE AND abs(o.v) < 30000$where",
			"SELECT o.n, t.id FROM (SELECT n, v::float8::$other AS v FROM v1 WHERE abs(v) < 30000 OFFSET 0) o JOIN tz t ON $key = o.v$where");
	}
	return $sql;
}

# ---- rounds ----

# Makes tz (id, k1, k2) with an index tz_k, and v1 and v2 with the values of its columns.
sub tables
{
	my ($t) = @_;
	my @columns = @{ $t->{columns} };
	my $sql = '';

	foreach my $c (1 .. @columns)
	{
		my $column = $columns[ $c - 1 ];

		$sql .= try("CREATE TABLE v$c (n int4 GENERATED ALWAYS AS IDENTITY, v $column->{type} $column->{collation})") . ";\n";
		$sql .= try("INSERT INTO v$c (v) VALUES ($_)") . ";\n" foreach @{ $column->{values} }, 'NULL';
	}
	my $defined = join(', ', map { "k$_ $columns[$_ - 1]{type} $columns[$_ - 1]{collation}" } 1 .. @columns);
	my $rows = @columns == 1 ? 'SELECT v FROM v1' : 'SELECT a.v, b.v FROM v1 a, v2 b';

	$sql .= try("CREATE TABLE tz (id int4 GENERATED ALWAYS AS IDENTITY, $defined)") . ";\n";
	my $keys = join(', ', map { "k$_" } 1 .. @columns);
	my $fill = try("INSERT INTO tz ($keys) $rows") . ";\n";
	my $index = join(', ', @columns == 1 ? "$t->{expression} $t->{index_collation} $t->{class}" : $keys);

	return $sql . $fill . "SELECT 'index ' || try(" . quoted("CREATE INDEX tz_k ON tz USING pmhash ($index)" . ($t->{where} ? ' WHERE id % 3 > 0' : '')) . ") AS made \\gset\n"
	  . "SELECT :'made' = 'index ' AS usable \\gset\nSELECT :'made';\n\\if :usable\n" . $fill . try("INSERT INTO tz ($keys) VALUES (" . join(', ', map { one_of(@{ $_->{values} }) } @columns) . ')') . ";\n"
	  . try(kept_plan($t, $keys)) . ";\n";
}

# A function that counts rows with a key of v1 by a plan that it keeps.
sub kept_plan
{
	my ($t, $keys) = @_;

	return '' if @{ $t->{columns} } > 1;
	return "CREATE FUNCTION kept_plan(int4) RETURNS int8 LANGUAGE plpgsql SET enable_seqscan = off AS "
	  . "'BEGIN RETURN (SELECT count(*) FROM fz.tz t WHERE $t->{key} $t->{operator} (SELECT v FROM fz.v1 WHERE n = \$1)"
	  . ($t->{where} ? ' AND t.id % 3 > 0' : '') . "); END'";
}

# What may be altered below an index, each kept from going wrong by a refusal or by a rebuild.
sub alterations
{
	my ($t) = @_;
	my $type = $t->{columns}[0]{type};
	my @composite = map { /^CREATE TYPE (fz\.c\d+)/ ? $1 : () } @ddl;
	my @list = ('REINDEX TABLE tz', 'ALTER TYPE mood ADD VALUE IF NOT EXISTS \'merry\' BEFORE \'ok\'', 'CREATE TABLE t2 AS TABLE tz',
		map { "ALTER TABLE tz ALTER k1 TYPE $type $_; ALTER TABLE v1 ALTER v TYPE $type $_" } $t->{columns}[0]{collatable} ? map { collation() } 1 .. 3 : '');

	push @list, map { ("ALTER TYPE $_ ADD ATTRIBUTE more int4", "ALTER TYPE $_ DROP ATTRIBUTE a0", "ALTER TYPE $_ ALTER ATTRIBUTE a0 TYPE text COLLATE \"C\"") } @composite;
	push @list, map { "ALTER TABLE tz ALTER k1 TYPE $_" } qw(text bpchar name citext) if $t->{columns}[0]{collatable};
	push @list, map { "ALTER TABLE tz ALTER k1 TYPE $_" } qw(int4 int8 oid numeric) if $type =~ /^(int|oid)/;
	push @list, family_alterations() if $t->{class} eq 'fz.loose_ops';
	return @list;
}

my $add = 'ALTER OPERATOR FAMILY loose_ops USING pmhash ADD';

sub family_alterations
{
	my $drop = 'ALTER OPERATOR FAMILY loose_ops USING pmhash DROP';

	return (("$drop FUNCTION 1 (int4, int4)") x 2, "$drop OPERATOR 1 (int4, int4)",
		"$add FUNCTION 1 (int4, int4) hashint4extended(int4, int8)", ("$add FUNCTION 1 (int4, int4) hash_mod(int4, int8)") x 2,
		"$add OPERATOR 1 = (int4, int4)", "$add OPERATOR 1 %% (int4, int4)");
}

# An operator class that has nothing of its own: its family can lose what it needs.
sub loose_class
{
	push @ddl, 'CREATE OPERATOR FAMILY fz.loose_ops USING pmhash',
	  "$add OPERATOR 1 = (int4, int4), FUNCTION 1 (int4, int4) " . one_of('hashint4extended', 'hash_mod') . '(int4, int8)',
	  'CREATE OPERATOR CLASS fz.loose_ops FOR TYPE int4 USING pmhash FAMILY fz.loose_ops AS STORAGE int4';
	return 'fz.loose_ops';
}

sub operator_class
{
	my ($type) = @_;

	return one_of(sub { '' }, sub { 'mod_ops' }, \&loose_class)->() if $type eq 'int4';
	return one_of('', '', 'varchar_ops', 'text_pattern_ops') if $type =~ /^(text|varchar\(3\))$/;
	return one_of('', 'bpchar_pattern_ops') if $type =~ /^(bpchar|char\(3\))$/;
	return '';
}

# Tables that let one of equal values in (before PostgreSQL 18 no unique index is made).
sub constraints
{
	my ($t) = @_;
	my $table = "(k $t->{columns}[0]{type} $t->{columns}[0]{collation}, n int4";

	return try("CREATE TABLE ex $table, EXCLUDE USING pmhash (k $t->{class} WITH $t->{operator}))") . ";\n"
	  . try("CREATE TABLE un $table); CREATE UNIQUE INDEX ON un USING pmhash (k $t->{class})") . ";\n"
	  . "SELECT constrained(tab, '$t->{operator}') FROM unnest('{ex,un}'::text[]) tab WHERE to_regclass(tab) IS NOT NULL;\n";
}

my $begin = "SET search_path = fz, public; SET client_min_messages = error;\n";

# The statements of a round for psql.
sub round
{
	my %t;
	my $op;
	my $sql = $begin . "DROP SCHEMA IF EXISTS fz CASCADE; CREATE SCHEMA fz;\n";

	($made, @ddl) = (0, "CREATE TYPE fz.mood AS ENUM ('sad', 'ok', 'happy')");
	$t{columns} = [ map { my $type = random_type(3); $type->{collation} = $type->{collatable} ? collation() : ''; $type } 1 .. one_of(1, 1, 1, 2) ];
	$t{class} = operator_class($t{columns}[0]{type});
	$t{where} = rand() < .2;
	$t{index_collation} = $t{columns}[0]{collatable} && rand() < .2 ? collation() : '';
	$t{expression} = one_of('k1', 'k1', 'k1', 'coalesce(k1, k1)');
	$t{key} = ($t{expression} =~ s/k1/t.k1/gr) . " $t{index_collation}";
	$t{expression} = "($t{expression})" if $t{expression} ne 'k1';
	$t{operator} = $op = $t{class} eq 'mod_ops' ? '%%' : '=';
	$t{like} = $t{index_collation} eq '';

	$sql .= try($_) . ";\n" foreach @ddl;
	$sql .= tables(\%t) . queries(\%t, $op);
	$sql .= constraints(\%t) if @{ $t{columns} } == 1 && $t{index_collation} eq '';
	$t{like} = 0;
	foreach my $alteration (some(between(1, 4), alterations(\%t)))
	{
		$sql .= "SELECT 'altered ' || try(" . quoted($alteration) . ");\n" . (rand() < .5 ? "\\c -\n$begin" : '');
		$sql .= try('INSERT INTO tz (k1) SELECT v FROM v1') . ";\n" if rand() < .5;
		$sql .= queries(\%t, $op) if rand() < .6;
	}
	return $sql . "SELECT 'finding: ' || f FROM check_tz() f;\n\\endif\n";
}

# Random types for so many seconds; returns the statements of the first round that has found
# something, with that, or ''.
sub fuzz_types
{
	my ($node, $seed, $seconds) = @_;
	my $end = time() + $seconds;
	my $latest = time() + 6 * $seconds;

	# on a slow machine until there has been what is to be there (t/rows/random_sql.pl)
	srand($seed);
	while (time() < $end || (time() < $latest && type_figures() =~ /\b0 (altered|constrained|refused)/))
	{
		my ($out, $err);
		my $script = round();
		my $status = $node->psql('wide', $script, stdout => \$out, stderr => \$err, on_error_stop => 0);

		$figures{types}++;
		$figures{impossible} += () = $out =~ /^index 42P01/mg;	# no such type
		$figures{refused} += () = $out =~ /^index $refused_states/mg;
		$figures{compared} += () = $out =~ /^same$/mg;
		$figures{skipped} += () = $out =~ /^skipped/mg;
		$figures{unused} += () = $out =~ /^unused/mg;
		$figures{altered} += () = $out =~ /^altered $/mg;
		$figures{constrained} += () = $out =~ /^constrained$/mg;
		return "$script---- " . join("\n", $out =~ /^(?:finding|index [^\n]).*$/mg) . "\n$err" if $out =~ /^finding|^index (?!$refused_states|42P01)\S/m || $err =~ /\S/;
	}
	return '';
}

sub type_figures
{
	return join(', ', map { "$figures{$_} $_" } sort keys %figures);
}

1;
