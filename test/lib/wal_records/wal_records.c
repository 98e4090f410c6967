/*-------------------------------------------------------------------------
 *
 * wal_records.c
 *	  For tests: what logged indexes have written to WAL, as an SQL function.
 *
 * pg_waldump and pg_walinspect show these records as XLOG/NOOP (XLOG/FPI, those that
 * come with a stub's page), and nothing of what is in them.  WAL is read as
 * pg_walinspect does, on a primary: up to what has been flushed.
 *
 * PmhashTest.pm, install_wal_records, compiles it together with cluster/wal/wal_record.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <inttypes.h>

#include "access/rmgr.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/tuplestore.h"

#include "cluster/base/versions.h"
#include "cluster/base/tid_value.h"
#include "cluster/wal/wal_record.h"

/* From PostgreSQL 19 on it tells the reason if it finds nothing. */
#if PG_VERSION_NUM >= 190000
#define FIND_NEXT_RECORD(reader, start, reason) XLogFindNextRecord(reader, start, reason)
#else
#define FIND_NEXT_RECORD(reader, start, reason) ((void) (reason), XLogFindNextRecord(reader, start))
#endif

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(pmhash_wal_records);

#define WAL_RECORDS_COLUMNS	10

static const char *const type_names[] = {
	[PMHASH_WAL_INSERT] = "INSERT",
	[PMHASH_WAL_DELETE] = "DELETE",
	[PMHASH_WAL_FILE_NEW] = "FILE_NEW",
	[PMHASH_WAL_FILE_GONE] = "FILE_GONE",
	[PMHASH_WAL_SWEPT] = "SWEPT",
	[PMHASH_WAL_DEAD] = "DEAD"
};

/* The entries of a record as two arrays, of hashes and of TIDs. */
static void
entries_of(const PmhashWalRecord *record, Datum *hashes, Datum *tids)
{
	int			n = record->count;
	Datum	   *hash = palloc(Max(n, 1) * sizeof(Datum));
	Datum	   *tid = palloc(Max(n, 1) * sizeof(Datum));
	ItemPointer pointers = palloc(Max(n, 1) * sizeof(ItemPointerData));

	for (int i = 0; i < n; i++)
	{
		PmhEntry	entry = pmhash_wal_entry(record, i);

		pmhash_value_to_tid(entry.value, &pointers[i]);
		hash[i] = Int64GetDatum((int64) entry.hash);
		tid[i] = PointerGetDatum(&pointers[i]);
	}
	*hashes = PointerGetDatum(construct_array(hash, n, INT8OID, sizeof(int64),
											  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	*tids = PointerGetDatum(construct_array(tid, n, TIDOID, sizeof(ItemPointerData),
											false, TYPALIGN_SHORT));
}

/* The TIDs of a record of dead rows, which has no hashes; how many. */
static int
tids_of(const PmhashWalRecord *record, Datum *tids)
{
	ItemPointer pointers = palloc_array(ItemPointerData, record->size * 8);
	Datum	   *tid = palloc_array(Datum, record->size * 8);
	BlockNumber block = InvalidBlockNumber;
	uint32		at = 0;
	uint32		piece;
	int			n = 0;

	while ((piece = pmhash_wal_piece(record->pieces, record->size, &at, &block)) != 0)
	{
		for (int i = 0; i < record->pieces[piece] * 8; i++)
		{
			if ((record->pieces[piece + 1 + i / 8] & (1 << (i % 8))) == 0)
				continue;
			ItemPointerSet(&pointers[n], block, i);
			tid[n] = PointerGetDatum(&pointers[n]);
			n++;
		}
	}
	if (at != record->size)
		elog(ERROR, "a record of dead rows can't be read");
	*tids = PointerGetDatum(construct_array(tid, n, TIDOID, sizeof(ItemPointerData),
											false, TYPALIGN_SHORT));
	return n;
}

/* The row of a record, if it is one of ours. */
static void
put_row(const ReturnSetInfo *result, XLogReaderState *reader)
{
	PmhashWalRecord record;
	PmhashWalVerdict verdict = pmhash_wal_decode(reader, &record);
	Datum		value[WAL_RECORDS_COLUMNS] = {0};
	bool		isnull[WAL_RECORDS_COLUMNS] = {0};

	if (verdict == PMHASH_WAL_NOT_OURS)
		return;
	if (verdict != PMHASH_WAL_OURS)
		elog(ERROR, "a record of pmhash can't be read");
	value[0] = LSNGetDatum(reader->ReadRecPtr);
	value[1] = LSNGetDatum(reader->EndRecPtr);
	value[2] = Int32GetDatum((int32) XLogRecGetTotalLen(reader));
	value[3] = CStringGetTextDatum(type_names[record.type]);
	value[4] = CStringGetTextDatum(psprintf("%016" PRIx64, record.file_id));
	value[5] = Int32GetDatum(record.size > 0 ? tids_of(&record, &value[9]) : record.count);
	value[6] = ObjectIdGetDatum(record.database);
	isnull[6] = !OidIsValid(record.database);
	value[7] = TransactionIdGetDatum(record.horizon);
	isnull[7] = !TransactionIdIsValid(record.horizon);
	if (record.count > 0)
		entries_of(&record, &value[8], &value[9]);
	isnull[8] = record.count == 0;
	isnull[9] = record.count == 0 && record.size == 0;
	tuplestore_putvalues(result->setResult, result->setDesc, value, isnull);
}

/*
 * pmhash_wal_records(start_lsn, end_lsn) returns setof record
 *
 * The records of logged indexes, of all databases, that begin at or after start_lsn
 * and end at or before end_lsn, or where what has been flushed ends if that is earlier.
 */
Datum
pmhash_wal_records(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	XLogRecPtr	start = PG_GETARG_LSN(0);
	XLogRecPtr	flushed = GetFlushRecPtr(NULL);
	XLogRecPtr	end = Min(PG_GETARG_LSN(1), flushed);
	ReadLocalXLogPageNoWaitPrivate *read = palloc0(sizeof(*read));
	XLogReaderState *reader;
	char	   *message = NULL;
	bool		found;

	pmhash_materialized(fcinfo);
	reader = XLogReaderAllocate(wal_segment_size, NULL,
								XL_ROUTINE(.page_read = &read_local_xlog_page_no_wait,
										   .segment_open = &wal_segment_open,
										   .segment_close = &wal_segment_close),
								read);
	if (start >= end)
		return (Datum) 0;
	found = FIND_NEXT_RECORD(reader, start, &message) != InvalidXLogRecPtr;
	while (found && (found = XLogReadRecord(reader, &message) != NULL) && reader->EndRecPtr <= end)
		put_row(result, reader);
	if (!found && !read->end_of_wal)
		elog(ERROR, "could not read WAL from %X/%X on: %s", LSN_FORMAT_ARGS(start),
			 message != NULL ? message : "no record");
	XLogReaderFree(reader);
	return (Datum) 0;
}
