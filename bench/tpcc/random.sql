--
-- random.sql: random values of TPC-C (clauses 2.1.6 and 4.3.2)
--
CREATE SCHEMA tpcc;

-- A number within [lo .. hi], each with the same probability.
CREATE FUNCTION tpcc.uniform(lo int, hi int) RETURNS int LANGUAGE sql VOLATILE AS
$$
	SELECT lo + floor(random() * (hi - lo + 1))::int;
$$;

-- NURand (2.1.6): non-uniform within [lo .. hi].
CREATE FUNCTION tpcc.nurand(a int, lo int, hi int, c int) RETURNS int LANGUAGE sql VOLATILE AS
$$
	SELECT ((tpcc.uniform(0, a) | tpcc.uniform(lo, hi)) + c) % (hi - lo + 1) + lo;
$$;

-- Random letters and digits, at least 80 of them.
CREATE FUNCTION tpcc.letters() RETURNS text LANGUAGE sql VOLATILE AS
$$
	SELECT translate(encode(sha512(float8send(random())), 'base64'), E'+/=\n', 'Mz');
$$;

-- A random a-string (4.3.2.2) of lo to hi characters, at most 80.
CREATE FUNCTION tpcc.astring(lo int, hi int) RETURNS text LANGUAGE sql VOLATILE AS
$$
	SELECT left(tpcc.letters(), tpcc.uniform(lo, hi));
$$;

-- A random n-string (4.3.2.2) of exactly "digits" digits, at most 16.
CREATE FUNCTION tpcc.nstring(digits int) RETURNS text LANGUAGE sql VOLATILE AS
$$
	SELECT left(lpad(floor(random() * 1e8)::int::text, 8, '0') ||
				lpad(floor(random() * 1e8)::int::text, 8, '0'), digits);
$$;

-- I_DATA and S_DATA: one in ten has "ORIGINAL" somewhere (4.3.3.1).
CREATE FUNCTION tpcc.item_data() RETURNS text LANGUAGE sql VOLATILE AS
$$
	SELECT CASE WHEN random() < 0.1
		THEN overlay(data PLACING 'ORIGINAL' FROM tpcc.uniform(1, length(data) - 7))
		ELSE data END
	FROM (SELECT tpcc.astring(26, 50) AS data OFFSET 0) AS plain;
$$;

-- C_LAST: three syllables for a number within [0 .. 999] (4.3.2.3).
CREATE FUNCTION tpcc.last_name(number int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
$$
DECLARE
	syllable CONSTANT text[] := '{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}';
BEGIN
	RETURN syllable[number / 100 + 1] || syllable[number / 10 % 10 + 1] ||
		syllable[number % 10 + 1];
END
$$;
