-- PmhashTest.pm, install_wal_records, puts the path of the library in.
CREATE FUNCTION pmhash_wal_records(
	IN start_lsn pg_lsn,
	IN end_lsn pg_lsn,
	OUT record_start pg_lsn,
	OUT record_end pg_lsn,
	OUT record_length int4,
	OUT type text,
	OUT file_id text,
	OUT entries int4,
	OUT database oid,
	OUT horizon xid,
	OUT hashes int8[],
	OUT tids tid[])
RETURNS SETOF record
AS 'LIBRARY', 'pmhash_wal_records'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- Types of the records of a file that are on disk, from a place on, those of equal neighbours once.
CREATE FUNCTION pmhash_wal_types(start_lsn pg_lsn, file text) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(type, ' ' ORDER BY record_start) FROM
	(SELECT type, record_start, lag(type) OVER (ORDER BY record_start) AS before
	FROM pmhash_wal_records(start_lsn, pg_current_wal_flush_lsn()) WHERE file_id = file) r
WHERE before IS DISTINCT FROM type
$$;
