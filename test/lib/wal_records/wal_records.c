/*-------------------------------------------------------------------------
 *
 * wal_records.c
 *	  For tests: what logged indexes have written to WAL, as an SQL function.
 *
 * pg_waldump and pg_walinspect show these records as XLOG/NOOP (XLOG/FPI, those that
 * come with a stub's page), and nothing of what is in them.  WAL is read as
 * pg_walinspect does: up to what has been flushed (in recovery: replayed), with no slot
 * that would keep it, so a range that has been recycled is an ERROR.
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
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
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

#define WAL_RECORDS_COLUMNS	11

/* ---- reading ---- */

/* How far WAL can be read. */
static XLogRecPtr
end_of_readable_wal(void)
{
	return RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : GetFlushRecPtr(NULL);
}

/*
 * A reader whose next record is the first one at or after start; NULL if there is
 * none before end.  ERROR if WAL there cannot be read.
 */
static XLogReaderState *
begin_reading(XLogRecPtr start, XLogRecPtr end)
{
	ReadLocalXLogPageNoWaitPrivate *read = palloc0(sizeof(*read));
	XLogReaderState *reader;
	char	   *reason = NULL;

	/* the very first page of WAL has no record before its end */
	if (start < XLOG_BLCKSZ)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("could not read WAL at LSN %X/%X", LSN_FORMAT_ARGS(start))));
	if (start >= end)
		return NULL;
	reader = XLogReaderAllocate(wal_segment_size, NULL,
								XL_ROUTINE(.page_read = &read_local_xlog_page_no_wait,
										   .segment_open = &wal_segment_open,
										   .segment_close = &wal_segment_close),
								read);
	if (reader == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Failed while allocating a WAL reading processor.")));
	if (FIND_NEXT_RECORD(reader, start, &reason) != InvalidXLogRecPtr)
		return reader;
	if (!read->end_of_wal)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not find a valid record in WAL after %X/%X",
						LSN_FORMAT_ARGS(start)),
				 reason != NULL ? errdetail_internal("%s", reason) : 0));
	return NULL;
}

/* Go on to the next record that ends at or before end; false: there is none. */
static bool
read_next(XLogReaderState *reader, XLogRecPtr end)
{
	ReadLocalXLogPageNoWaitPrivate *private_data = reader->private_data;
	char	   *message;

	if (XLogReadRecord(reader, &message) != NULL)
		return reader->EndRecPtr <= end;
	if (!private_data->end_of_wal)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read WAL at %X/%X%s%s",
						LSN_FORMAT_ARGS(reader->EndRecPtr),
						message ? ": " : "", message ? message : "")));
	return false;
}

/* ---- rows ---- */

static const char *
type_name(const PmhashWalRecord *record)
{
	switch ((PmhashWalType) record->type)
	{
		case PMHASH_WAL_INSERT:
			return "INSERT";
		case PMHASH_WAL_DELETE:
			return "DELETE";
		case PMHASH_WAL_FILE_NEW:
			return "FILE_NEW";
		case PMHASH_WAL_FILE_GONE:
			return "FILE_GONE";
		case PMHASH_WAL_SWEPT:
			return "SWEPT";
		case PMHASH_WAL_DEAD:
			return "DEAD";
	}
	return "UNKNOWN";
}

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

/* What is in a record that we understand; the other columns are NULL. */
static void
fill_contents(const PmhashWalRecord *record, Datum *value, bool *isnull)
{
	int			i = 4;

	isnull[i] = false;
	value[i++] = CStringGetTextDatum(type_name(record));
	isnull[i] = false;
	value[i++] = CStringGetTextDatum(psprintf("%016" PRIx64, record->file_id));
	isnull[i] = false;
	value[i++] = Int32GetDatum(record->count);
	isnull[i] = !OidIsValid(record->database);
	value[i++] = ObjectIdGetDatum(record->database);
	isnull[i] = !TransactionIdIsValid(record->horizon);
	value[i++] = TransactionIdGetDatum(record->horizon);
	if (record->count > 0)
	{
		isnull[i] = isnull[i + 1] = false;
		entries_of(record, &value[i], &value[i + 1]);
	}
	if (record->size > 0)
	{
		value[6] = Int32GetDatum(tids_of(record, &value[i + 1]));
		isnull[i + 1] = false;
	}
}

/* The row of a record, if it is one of ours. */
static void
put_row(const ReturnSetInfo *result, XLogReaderState *reader)
{
	Datum		value[WAL_RECORDS_COLUMNS] = {0};
	bool		isnull[WAL_RECORDS_COLUMNS];
	PmhashWalRecord record;
	PmhashWalVerdict verdict;

	verdict = pmhash_wal_decode(reader, &record);
	if (verdict == PMHASH_WAL_NOT_OURS)
		return;
	memset(isnull, true, sizeof(isnull));
	isnull[0] = isnull[1] = isnull[2] = isnull[3] = false;
	value[0] = LSNGetDatum(reader->ReadRecPtr);
	value[1] = LSNGetDatum(reader->EndRecPtr);
	value[2] = TransactionIdGetDatum(XLogRecGetXid(reader));
	value[3] = Int32GetDatum((int32) XLogRecGetTotalLen(reader));
	if (verdict == PMHASH_WAL_OURS)
		fill_contents(&record, value, isnull);
	else
	{
		isnull[4] = false;
		value[4] = CStringGetTextDatum("UNKNOWN");
	}
	tuplestore_putvalues(result->setResult, result->setDesc, value, isnull);
}

/*
 * pmhash_wal_records(start_lsn, end_lsn) returns setof record
 *
 * The records of logged indexes, of all databases, that begin at or after start_lsn
 * and end at or before end_lsn, or the end of readable WAL if that is earlier.
 * ERROR if WAL can't be read.
 */
Datum
pmhash_wal_records(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	XLogRecPtr	readable = end_of_readable_wal();
	XLogRecPtr	end = PG_GETARG_LSN(1);
	XLogReaderState *reader;
	MemoryContext context;
	MemoryContext old;

	end = Min(end, readable);
	pmhash_materialized(fcinfo);
	if (result->setDesc->natts != WAL_RECORDS_COLUMNS)
		elog(ERROR, "unexpected result type of pmhash_wal_records");
	reader = begin_reading(PG_GETARG_LSN(0), end);
	if (reader == NULL)
		return (Datum) 0;
	context = AllocSetContextCreate(CurrentMemoryContext, "pmhash WAL record",
									ALLOCSET_DEFAULT_SIZES);
	while (read_next(reader, end))
	{
		CHECK_FOR_INTERRUPTS();
		old = MemoryContextSwitchTo(context);
		put_row(result, reader);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	XLogReaderFree(reader);
	return (Datum) 0;
}
