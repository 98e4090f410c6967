/* pmhash--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pmhash" to load this file. \quit

-- The access method's function and the operator classes are in pg_catalog, as those of
-- the server's own methods are, so that a class is found by its name with any
-- search_path.  All else is in a schema of its own, where no tool takes it for a part
-- of an application's schema; what it is for says who may use it.
CREATE SCHEMA pmhash;
GRANT USAGE ON SCHEMA pmhash TO PUBLIC;

COMMENT ON SCHEMA pmhash IS
'functions and views about pmhash indexes';

-- Access method

CREATE FUNCTION pmhash_handler(internal)
RETURNS index_am_handler
AS 'MODULE_PATHNAME'
LANGUAGE C;

COMMENT ON FUNCTION pmhash_handler(internal) IS
'pmhash index access method handler';

CREATE ACCESS METHOD pmhash TYPE INDEX HANDLER pmhash_handler;

COMMENT ON ACCESS METHOD pmhash IS
'equality index in memory-mapped files, outside shared buffers';

-- Operator families and classes
--
-- For every hash operator class of core there is one here, with the same name
-- and the same operators, and those of btree's families; its support function 1 is core's extended hash
-- function.  An operator class of one's own needs these two things as well:
-- "=" as operator 1 and as function 1 a hash(type, bigint) returning bigint
-- (the second argument is a seed), which is equal for equal values.

-- Types of up to 8 bytes whose equality is equality of bytes.  The hash of such a
-- key gives the key: matches are not rechecked.

CREATE OPERATOR FAMILY integer_ops USING pmhash;
CREATE OPERATOR CLASS int2_ops DEFAULT FOR TYPE int2 USING pmhash FAMILY integer_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashint2extended(int2, int8);
CREATE OPERATOR CLASS int4_ops DEFAULT FOR TYPE int4 USING pmhash FAMILY integer_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashint4extended(int4, int8);
CREATE OPERATOR CLASS int8_ops DEFAULT FOR TYPE int8 USING pmhash FAMILY integer_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashint8extended(int8, int8);
ALTER OPERATOR FAMILY integer_ops USING pmhash ADD
	OPERATOR 1 = (int2, int4),
	OPERATOR 1 = (int2, int8),
	OPERATOR 1 = (int4, int2),
	OPERATOR 1 = (int4, int8),
	OPERATOR 1 = (int8, int2),
	OPERATOR 1 = (int8, int4);

CREATE OPERATOR FAMILY float_ops USING pmhash;
CREATE OPERATOR CLASS float4_ops DEFAULT FOR TYPE float4 USING pmhash FAMILY float_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashfloat4extended(float4, int8);
CREATE OPERATOR CLASS float8_ops DEFAULT FOR TYPE float8 USING pmhash FAMILY float_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashfloat8extended(float8, int8);
ALTER OPERATOR FAMILY float_ops USING pmhash ADD
	OPERATOR 1 = (float4, float8),
	OPERATOR 1 = (float8, float4);

CREATE OPERATOR CLASS oid_ops DEFAULT FOR TYPE oid USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashoidextended(oid, int8);
DO $$
BEGIN
	-- since PostgreSQL 19
	IF pg_catalog.to_regtype('pg_catalog.oid8') IS NOT NULL THEN
		CREATE OPERATOR CLASS oid8_ops DEFAULT FOR TYPE oid8 USING pmhash AS
			OPERATOR 1 =,
			FUNCTION 1 hashoid8extended(oid8, int8);
	END IF;
END $$;
CREATE OPERATOR CLASS bool_ops DEFAULT FOR TYPE bool USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashcharextended("char", int8);
CREATE OPERATOR CLASS char_ops DEFAULT FOR TYPE "char" USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashcharextended("char", int8);
CREATE OPERATOR CLASS time_ops DEFAULT FOR TYPE time USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 time_hash_extended(time, int8);
CREATE OPERATOR CLASS enum_ops DEFAULT FOR TYPE anyenum USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashenumextended(anyenum, int8);
CREATE OPERATOR CLASS xid_ops DEFAULT FOR TYPE xid USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashint4extended(int4, int8);
CREATE OPERATOR CLASS xid8_ops DEFAULT FOR TYPE xid8 USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashint8extended(int8, int8);
CREATE OPERATOR CLASS cid_ops DEFAULT FOR TYPE cid USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashint4extended(int4, int8);
CREATE OPERATOR CLASS tid_ops DEFAULT FOR TYPE tid USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashtidextended(tid, int8);
CREATE OPERATOR CLASS pg_lsn_ops DEFAULT FOR TYPE pg_lsn USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 pg_lsn_hash_extended(pg_lsn, int8);
CREATE OPERATOR CLASS macaddr_ops DEFAULT FOR TYPE macaddr USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashmacaddrextended(macaddr, int8);
CREATE OPERATOR CLASS macaddr8_ops DEFAULT FOR TYPE macaddr8 USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashmacaddr8extended(macaddr8, int8);
CREATE OPERATOR CLASS money_ops DEFAULT FOR TYPE money USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashint8extended(int8, int8);

-- One family, as of btree.  What is compared with a column of another type is converted
-- by the session's time zone when the scan begins.
CREATE OPERATOR FAMILY datetime_ops USING pmhash;
CREATE OPERATOR CLASS date_ops DEFAULT FOR TYPE date USING pmhash FAMILY datetime_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashint4extended(int4, int8);
CREATE OPERATOR CLASS timestamp_ops DEFAULT FOR TYPE timestamp USING pmhash FAMILY datetime_ops AS
	OPERATOR 1 =,
	FUNCTION 1 timestamp_hash_extended(timestamp, int8);
CREATE OPERATOR CLASS timestamptz_ops DEFAULT FOR TYPE timestamptz USING pmhash FAMILY datetime_ops AS
	OPERATOR 1 =,
	FUNCTION 1 timestamp_hash_extended(timestamp, int8);
ALTER OPERATOR FAMILY datetime_ops USING pmhash ADD
	OPERATOR 1 = (date, timestamp),
	OPERATOR 1 = (date, timestamptz),
	OPERATOR 1 = (timestamp, date),
	OPERATOR 1 = (timestamp, timestamptz),
	OPERATOR 1 = (timestamptz, date),
	OPERATOR 1 = (timestamptz, timestamp);

-- Longer types whose equality is equality of bytes (text: unless its collation
-- is non-deterministic).

CREATE OPERATOR FAMILY text_ops USING pmhash;
CREATE OPERATOR CLASS text_ops DEFAULT FOR TYPE text USING pmhash FAMILY text_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashtextextended(text, int8);
CREATE OPERATOR CLASS name_ops DEFAULT FOR TYPE name USING pmhash FAMILY text_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashnameextended(name, int8);
CREATE OPERATOR CLASS varchar_ops FOR TYPE text USING pmhash FAMILY text_ops AS
	STORAGE text;
ALTER OPERATOR FAMILY text_ops USING pmhash ADD
	OPERATOR 1 = (text, name),
	OPERATOR 1 = (name, text);

CREATE OPERATOR FAMILY text_pattern_ops USING pmhash;
CREATE OPERATOR CLASS text_pattern_ops FOR TYPE text USING pmhash FAMILY text_pattern_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashtextextended(text, int8);
CREATE OPERATOR CLASS varchar_pattern_ops FOR TYPE text USING pmhash FAMILY text_pattern_ops AS
	STORAGE text;

CREATE OPERATOR CLASS bpchar_ops DEFAULT FOR TYPE bpchar USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashbpcharextended(bpchar, int8);
CREATE OPERATOR CLASS bpchar_pattern_ops FOR TYPE bpchar USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashbpcharextended(bpchar, int8);
CREATE OPERATOR CLASS bytea_ops DEFAULT FOR TYPE bytea USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashvarlenaextended(internal, int8);
CREATE OPERATOR CLASS uuid_ops DEFAULT FOR TYPE uuid USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 uuid_hash_extended(uuid, int8);
CREATE OPERATOR CLASS timetz_ops DEFAULT FOR TYPE timetz USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 timetz_hash_extended(timetz, int8);
CREATE OPERATOR FAMILY network_ops USING pmhash;
CREATE OPERATOR CLASS inet_ops DEFAULT FOR TYPE inet USING pmhash FAMILY network_ops AS
	OPERATOR 1 =,
	FUNCTION 1 hashinetextended(inet, int8);
CREATE OPERATOR CLASS cidr_ops FOR TYPE inet USING pmhash FAMILY network_ops AS
	STORAGE inet;

-- All others, hashed by their hash function.

CREATE OPERATOR CLASS numeric_ops DEFAULT FOR TYPE numeric USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hash_numeric_extended(numeric, int8);
CREATE OPERATOR CLASS interval_ops DEFAULT FOR TYPE interval USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 interval_hash_extended(interval, int8);
CREATE OPERATOR CLASS jsonb_ops DEFAULT FOR TYPE jsonb USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 jsonb_hash_extended(jsonb, int8);
CREATE OPERATOR CLASS array_ops DEFAULT FOR TYPE anyarray USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hash_array_extended(anyarray, int8);
CREATE OPERATOR CLASS record_ops DEFAULT FOR TYPE record USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hash_record_extended(record, int8);
CREATE OPERATOR CLASS range_ops DEFAULT FOR TYPE anyrange USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hash_range_extended(anyrange, int8);
CREATE OPERATOR CLASS multirange_ops DEFAULT FOR TYPE anymultirange USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hash_multirange_extended(anymultirange, int8);
CREATE OPERATOR CLASS oidvector_ops DEFAULT FOR TYPE oidvector USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hashoidvectorextended(oidvector, int8);
CREATE OPERATOR CLASS aclitem_ops DEFAULT FOR TYPE aclitem USING pmhash AS
	OPERATOR 1 =,
	FUNCTION 1 hash_aclitem_extended(aclitem, int8);


-- Looking at indexes

-- Exact figures of one index, by walking through its file; no session is kept from
-- using it meanwhile.  For those that may SELECT from the table and for members
-- of pg_stat_scan_tables (and so of pg_monitor); to those that are neither the owner
-- of the index nor in pg_monitor the file's path begins in the pool.
CREATE FUNCTION pmhash.stats(index regclass,
	OUT file text,
	OUT durability text,
	OUT bytes bigint,
	OUT used_bytes bigint,
	OUT entries bigint,
	OUT load_factor float8,
	OUT global_depth int,
	OUT min_depth int,
	OUT max_depth int,
	OUT segments bigint,
	OUT segments_single bigint,
	OUT segments_two_choice bigint,
	OUT segments_stash bigint,
	OUT entries_elsewhere bigint,
	OUT entries_stash bigint,
	OUT lists bigint,
	OUT list_entries bigint,
	OUT list_bytes bigint,
	OUT value_bytes bigint,
	OUT splits bigint,
	OUT grows bigint,
	OUT doublings bigint,
	OUT compactions bigint,
	OUT strategy_changes bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'pmhash_stats'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION pmhash.stats(regclass) IS
'statistics of a pmhash index';

-- Bytes of one index on its storage, file and stub page together.  For
-- all users, as pg_relation_size is.
CREATE FUNCTION pmhash.size(index regclass)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pmhash_size'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION pmhash.size(regclass) IS
'disk space used by a pmhash index, in bytes';

-- Is the file sound, and does the index have exactly the rows of its table?  An
-- ERROR with the first findings if not.  For superusers and whom they grant it
-- to, as the functions of amcheck: it may keep the machine busy.
CREATE FUNCTION pmhash.check(index regclass, heapallindexed boolean DEFAULT true)
RETURNS void
AS 'MODULE_PATHNAME', 'pmhash_check'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

REVOKE ALL ON FUNCTION pmhash.check(regclass, boolean) FROM PUBLIC;

COMMENT ON FUNCTION pmhash.check(regclass, boolean) IS
'check the file of a pmhash index, and the index against its table';

-- The files that belong to pmhash indexes of this database.  For all users; where
-- a file is, for the owner of the index and for pg_monitor.
CREATE FUNCTION pmhash.files(
	OUT index regclass,
	OUT file text,
	OUT durability text,
	OUT bytes bigint,
	OUT state text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pmhash_files'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pmhash.files() IS
'files of the pmhash indexes of this database';

CREATE VIEW pmhash.indexes AS
	SELECT n.nspname AS schema,
		   t.relname AS "table",
		   c.relname AS index,
		   f.file,
		   f.durability,
		   f.bytes,
		   f.state
	FROM pg_catalog.pg_class c
		 JOIN pg_catalog.pg_am a ON a.oid = c.relam
		 JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		 JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
		 JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
		 LEFT JOIN pmhash.files() f ON f.index::pg_catalog.oid = c.oid
	WHERE a.amname = 'pmhash' AND c.relkind = 'i';

COMMENT ON VIEW pmhash.indexes IS
'all pmhash indexes of this database and the state they are in';

GRANT SELECT ON pmhash.indexes TO PUBLIC;

-- On a standby: how far it is with logged indexes.  NULL elsewhere.
CREATE FUNCTION pmhash.standby(
	OUT applied_lsn pg_lsn,
	OUT live integer,
	OUT building integer,
	OUT waiting integer)
RETURNS record
AS 'MODULE_PATHNAME', 'pmhash_standby'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pmhash.standby() IS
'how far a standby has applied the records of logged pmhash indexes';

-- Cumulative counters

-- Of this server; see the view.
CREATE FUNCTION pmhash.stat_server(
	OUT state text,
	OUT directory text,
	OUT directory_free_bytes bigint,
	OUT disabled_reason text,
	OUT launcher boolean,
	OUT journal_bytes bigint,
	OUT lookups bigint,
	OUT group_lookups bigint,
	OUT group_keys bigint,
	OUT full_scans bigint,
	OUT table_scans bigint,
	OUT inserts bigint,
	OUT group_inserts bigint,
	OUT group_entries bigint,
	OUT vacuum_removed bigint,
	OUT scan_removed bigint,
	OUT journal_waits bigint,
	OUT invalidations bigint,
	OUT rebuilds bigint,
	OUT rebuild_failures bigint,
	OUT lock_waits bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'pmhash_stat_server'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION pmhash.stat_server() IS
'state and cumulative counters of pmhash in this server';

-- For all users; directory, directory_free_bytes and disabled_reason for pg_monitor.
CREATE VIEW pmhash.stat AS
	SELECT * FROM pmhash.stat_server();

COMMENT ON VIEW pmhash.stat IS
'state and cumulative counters of pmhash in this server';

GRANT SELECT ON pmhash.stat TO PUBLIC;

-- pg_total_relation_size and the files of the pmhash indexes.  For all users, as that.
CREATE FUNCTION pmhash.total_relation_size(relation regclass)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pmhash_total_relation_size'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION pmhash.total_relation_size(regclass) IS
'disk space used by a table with its indexes, files of pmhash included, in bytes';

-- For those that may SELECT from the table, as pg_prewarm.
CREATE FUNCTION pmhash.prewarm(index regclass)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pmhash_prewarm'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION pmhash.prewarm(regclass) IS
'read the file of a pmhash index into the page cache; returns bytes read';

-- May the planner use an index now, for this condition of a query, and if not, why?
-- condition: as in WHERE; it may have parameters.  reason: also why another plan is
-- preferred.  Nothing is executed.  For those that may SELECT from the table.
CREATE FUNCTION pmhash.explain(index regclass, condition text DEFAULT NULL,
	OUT usable boolean,
	OUT reason text)
RETURNS record
AS 'MODULE_PATHNAME', 'pmhash_explain'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION pmhash.explain(regclass, text) IS
'whether the planner may use a pmhash index for a condition, and why not';

-- Indexes of this database that look as if they served equality alone: a scan finds no
-- more rows than a few keys have.  With ready statements: the first makes a pmhash index,
-- the others, once that has succeeded, put it in the place of the old one; what enforces
-- a constraint, or has columns of another equality, is left out.  For all users, of the
-- tables whose statistics they may see.
CREATE FUNCTION pmhash.candidates(
	OUT schema name,
	OUT "table" name,
	OUT index name,
	OUT method name,
	OUT scans bigint,
	OUT rows_per_scan numeric,
	OUT rows_per_key numeric,
	OUT bytes bigint,
	OUT pmhash_bytes bigint,
	OUT create_statement text,
	OUT swap_statements text)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH used AS (
		SELECT s.indexrelid, s.relid, s.schemaname, s.relname, s.indexrelname, s.idx_scan, s.idx_tup_read,
			i.indclass, i.indkey, i.indcollation, i.indpred, i.indrelid, i.indnkeyatts, a.amname, c.relam,
			greatest(c.reltuples::float8, 1) AS entries, pg_catalog.left(s.indexrelname,	-- 63 bytes at most
				56 + pg_catalog.length(s.indexrelname::text) - pg_catalog.octet_length(s.indexrelname::text)) || '_pmhash' AS name
		FROM pg_catalog.pg_stat_user_indexes s
			JOIN pg_catalog.pg_index i ON i.indexrelid = s.indexrelid
			JOIN pg_catalog.pg_class c ON c.oid = s.indexrelid
			JOIN pg_catalog.pg_am a ON a.oid = c.relam
		WHERE a.amname IN ('btree', 'hash') AND s.idx_scan > 0 AND c.relpersistence <> 't'
			AND i.indisvalid AND i.indisready AND NOT i.indisunique AND NOT i.indisreplident
			AND NOT i.indisclustered AND i.indnatts = i.indnkeyatts
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = s.indexrelid)
			AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhrelid = s.indexrelid)),
	-- a column is compared alike if a default class of ours has the same "="
	columns AS (
		SELECT u.indexrelid, pg_catalog.count(*) AS same,
			pg_catalog.string_agg(pg_catalog.pg_get_indexdef(u.indexrelid, n, false) || CASE
				WHEN u.indcollation[n - 1] NOT IN (0, coalesce(att.attcollation, 0))
				THEN ' COLLATE ' || u.indcollation[n - 1]::pg_catalog.regcollation ELSE '' END, ', ' ORDER BY n) AS list
		FROM used u CROSS JOIN LATERAL pg_catalog.generate_series(1, u.indnkeyatts) n
			JOIN LATERAL (SELECT u.indclass[n - 1] AS class, u.indkey[n - 1] AS attno) o ON true
			JOIN pg_catalog.pg_opclass old ON old.oid = o.class
			JOIN pg_catalog.pg_amop equal ON equal.amopfamily = old.opcfamily AND equal.amopmethod = u.relam
				AND equal.amoplefttype = old.opcintype AND equal.amoprighttype = old.opcintype
				AND equal.amopstrategy = CASE u.amname WHEN 'btree' THEN 3 ELSE 1 END
			JOIN pg_catalog.pg_am ours ON ours.amname = 'pmhash'
			JOIN pg_catalog.pg_opclass new ON new.opcmethod = ours.oid AND new.opcintype = old.opcintype
				AND new.opcdefault
			LEFT JOIN pg_catalog.pg_attribute att ON att.attrelid = u.indrelid AND att.attnum = o.attno
		WHERE EXISTS (SELECT FROM pg_catalog.pg_amop x WHERE x.amopfamily = new.opcfamily
				AND x.amopopr = equal.amopopr)
		GROUP BY u.indexrelid),
	-- rows of a key: of the column that has most values
	keys AS (
		SELECT u.indexrelid, pg_catalog.max(CASE WHEN d.n_distinct < 0 THEN -d.n_distinct * u.entries
				ELSE d.n_distinct END) AS n
		FROM used u JOIN pg_catalog.pg_stats d ON d.schemaname = u.schemaname
			AND (d.tablename = u.indexrelname OR d.tablename = u.relname AND d.attname IN (
				SELECT a.attname FROM pg_catalog.pg_attribute a
				WHERE a.attrelid = u.indrelid AND a.attnum = ANY (u.indkey::int2[])))
		GROUP BY u.indexrelid)
	SELECT u.schemaname, u.relname, u.indexrelname, u.amname, u.idx_scan,
		pg_catalog.round(u.idx_tup_read::numeric / u.idx_scan, 1),
		pg_catalog.round((u.entries / k.n)::numeric, 1),
		pg_catalog.pg_relation_size(u.indexrelid),
		-- 18 bytes a key; a row of a key that has several takes 9
		(16384 + least(k.n, u.entries) * 18 +
			CASE WHEN u.entries > 1.5 * k.n THEN u.entries * 9 ELSE 0 END)::bigint,
		pg_catalog.format('CREATE INDEX CONCURRENTLY %I ON %I.%I USING pmhash (%s)%s;',
			u.name, u.schemaname, u.relname, c.list,
			' WHERE ' || pg_catalog.pg_get_expr(u.indpred, u.indrelid)),
		pg_catalog.format(E'DROP INDEX CONCURRENTLY %1$I.%2$I;\nALTER INDEX %1$I.%3$I RENAME TO %2$I;',
			u.schemaname, u.indexrelname, u.name)
	FROM used u JOIN columns c ON c.indexrelid = u.indexrelid AND c.same = u.indnkeyatts
		JOIN keys k ON k.indexrelid = u.indexrelid AND k.n > 0
	WHERE u.amname = 'hash' OR u.idx_tup_read <= 2.0 * u.idx_scan * pg_catalog.ceil(u.entries / k.n)
	ORDER BY 8 DESC;
END;

COMMENT ON FUNCTION pmhash.candidates() IS
'indexes that a pmhash index could replace, with the statements for it';
