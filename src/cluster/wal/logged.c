/*-------------------------------------------------------------------------
 *
 * logged.c
 *	  Logged indexes on a primary: which files are logged, and what is logged of them.
 *
 * The storage parameter "wal" says what is wanted, the GUC pmhash.wal what is
 * wanted where it says nothing.  That is settled when a file is made, for its life,
 * and stands in the stub and in the file's identity.
 *
 * A standby builds from its own heap.  Rows of transactions that it has seen begun
 * before it came to the stub it waits for and finds there; of all others it takes
 * the entries from WAL, and does not look.  So the rule is: if a row's heap record
 * stands in WAL after the stub, its entry does too.  It does, as the file has been
 * logged from its beginning.  With wal_level = minimal nothing is, but no standby
 * replays such WAL (xlog.c, CheckRequiredParameterValues).
 *
 * src/README, "Standbys", has the order of entries and their records (P1 to P6).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam_xlog.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"

#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/base/tid_value.h"
#include "cluster/cluster.h"
#include "cluster/wal/dead_tids.h"
#include "cluster/wal/logged.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/undo_journal.h"
#include "cluster/wal/wal_record.h"

#if PG_VERSION_NUM >= 160000
#define advance_horizon(tuple, horizon) \
	HeapTupleHeaderAdvanceConflictHorizon(tuple, horizon)
#else
#define advance_horizon(tuple, horizon) \
	HeapTupleHeaderAdvanceLatestRemovedXid(tuple, horizon)
#endif

/* ---- what is wanted ---- */

/* Are changes of a file that is made for this index to be logged?  Raises no error. */
bool
pmhash_wants_wal(Relation index)
{
	const PmhashOptions *options = (const PmhashOptions *) index->rd_options;

	if (!RelationIsPermanent(index))
		return false;
	if (options == NULL || options->wal == PMHASH_WAL_BY_DEFAULT)
		return pmhash_wal;
	return options->wal == PMHASH_WAL_ON;
}

/*
 * pmhash_tell_of_wal
 *		A storage parameter of an index has been changed: what it says of logging is done
 *		when the index gets another file.
 */
void
pmhash_tell_of_wal(Relation index)
{
	PmhashStub	stub;

	if (!pmhash_is_index(index) || RELATION_IS_OTHER_TEMP(index) ||
		!pmhash_stub_read(index, &stub) || stub.file_id == 0 ||
		(stub.flags & PMHASH_STUB_INVALID) != 0 ||
		pmhash_wants_wal(index) == ((stub.flags & PMHASH_STUB_LOGGED) != 0))
		return;
	ereport(NOTICE,
			(pmhash_wants_wal(index) ?
			 errmsg("index \"%s\" is not logged before it is rebuilt",
					RelationGetRelationName(index)) :
			 errmsg("index \"%s\" is logged until it is rebuilt",
					RelationGetRelationName(index)),
			 errhint("Use REINDEX INDEX CONCURRENTLY to have it rebuilt now.")));
}

/* ---- entries ---- */

/*
 * Nothing can raise an error between entry and record: the engine raises none, and
 * writing WAL is a critical section of its own (xlog.c, XLogInsertRecord).  An
 * interrupt would be a transaction that goes on to commit after all, as one that
 * catches a cancel does, with an entry that standbys lack.
 */
PmhResult
pmhash_insert_and_log(PmhashFile *file, const PmhEntry *entries, int n, size_t *done)
{
	PmhResult	result;

	Assert(n >= 1 && n <= PMHASH_WAL_MAX_ENTRIES);
	Assert(file->logged && file->journaled && !RecoveryInProgress());
	Assert(IsTransactionState() && CritSectionCount == 0);
	if (n == 1)
	{
		result = pmh_insert(file->table, entries[0].hash, entries[0].value, file->journaled);
		*done = result == PMH_OK;
	}
	else
		result = pmh_insert_group(file->table, entries, n, file->journaled, done);
	PMH_STOP_POINT("insert_before_wal");
	if (*done > 0)
	{
		HOLD_INTERRUPTS();
		(void) pmhash_wal_log(&(PmhashWalRecord) {
			.type = PMHASH_WAL_INSERT, .file_id = file->file_id, .count = (uint16) *done
		}, entries, InvalidBuffer);
		RESUME_INTERRUPTS();
	}
	PMH_STOP_POINT("insert_after_wal");
	return result;
}

/*
 * Log the removal of entries; returns the end of the last record, up to which WAL is
 * to be flushed before they go.  VACUUM gives no horizon: it removes entries of line pointers
 * that pruning has made dead, whose record had the conflict (btree relies on the same;
 * nbtpage.c, _bt_delitems_vacuum).
 */
XLogRecPtr
pmhash_log_deletes(const PmhashFile *file, TransactionId horizon, const PmhEntry *entries,
				   int n)
{
	XLogRecPtr	end = InvalidXLogRecPtr;

	Assert(n >= 1 && file->logged && !RecoveryInProgress());
	for (int i = 0; i < n; i += PMHASH_WAL_MAX_ENTRIES)
		end = pmhash_wal_log(&(PmhashWalRecord) {
			.type = PMHASH_WAL_DELETE, .file_id = file->file_id,
			.database = MyDatabaseId, .horizon = horizon,
			.count = (uint16) Min(n - i, PMHASH_WAL_MAX_ENTRIES)
		}, &entries[i], InvalidBuffer);
	return end;
}

/* The same of all entries of rows: they are gone from a standby with the records. */
XLogRecPtr
pmhash_log_dead_tids(const PmhashFile *file, const PmhashDeadTids *set)
{
	XLogRecPtr	end = InvalidXLogRecPtr;
	ListCell   *lc;

	Assert(file->logged && set->records != NIL);
	foreach(lc, set->records)
	{
		int			from = lfirst_int(lc);
		int			to = lnext(set->records, lc) == NULL ? set->made.len :
			lfirst_int(lnext(set->records, lc));

		end = pmhash_wal_log(&(PmhashWalRecord) {
			.type = PMHASH_WAL_DEAD, .file_id = file->file_id, .database = MyDatabaseId,
			.pieces = set->pieces + from, .size = to - from
		}, NULL, InvalidBuffer);
	}
	return end;
}

/* ---- conflict horizons ---- */

/*
 * Which snapshots of standbys still see rows that are dead here?
 *
 * The executor says that a row is dead to all, and not since when.  A standby
 * has snapshots of its own; before it removes the entry it has to end those that see
 * the row.  So a process that removes an entry itself, not after pruning, reads the rows'
 * headers again, as heap_index_delete_tuples does for btree's known-dead items
 * (heapam.c).  That function is not used: it takes a line pointer that VACUUM has
 * freed meanwhile for damage of the index, and we hold nothing that VACUUM waits
 * for; the caller looks at the removal epoch afterwards instead.
 */

/*
 * Advance the horizon by the members of the HOT chain that begins at a line pointer.
 * Of one that is dead the pruning has logged it.
 */
static void
visit_chain(Page page, OffsetNumber offset, TransactionId *horizon)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	TransactionId previous_xmax = InvalidTransactionId;

	while (offset >= FirstOffsetNumber && offset <= last)
	{
		ItemId		item = PageGetItemId(page, offset);
		HeapTupleHeader tuple;

		if (ItemIdIsRedirected(item))
		{
			offset = ItemIdGetRedirect(item);
			continue;
		}
		if (!ItemIdIsNormal(item))
			return;
		tuple = (HeapTupleHeader) PageGetItem(page, item);
		if (TransactionIdIsValid(previous_xmax) &&
			!TransactionIdEquals(HeapTupleHeaderGetXmin(tuple), previous_xmax))
			return;
		advance_horizon(tuple, horizon);
		if (!HeapTupleHeaderIsHotUpdated(tuple))
			return;
		offset = ItemPointerGetOffsetNumber(&tuple->t_ctid);
		previous_xmax = HeapTupleHeaderGetUpdateXid(tuple);
	}
}

/*
 * The latest transaction whose effect a snapshot must see for all rows of these
 * entries to be dead to it; InvalidTransactionId: to every snapshot.  All rows are
 * dead to all here, as far as their TIDs have not been given away since.
 * False if the table is not a heap, of whose rows nothing is known.  ERROR if a page can't be read.
 */
bool
pmhash_conflict_horizon(Relation heap, const PmhEntry *entries, int n,
						TransactionId *horizon)
{
	BlockNumber nblocks;
	Buffer		buffer = InvalidBuffer;

	Assert(n >= 1 && IsTransactionState() && !RecoveryInProgress());
	Assert(CheckRelationLockedByMe(heap, AccessShareLock, true));
	if (!pmhash_is_heap_table(heap))
		return false;
	*horizon = InvalidTransactionId;
	nblocks = RelationGetNumberOfBlocks(heap);
	for (int i = 0; i < n; i++)
	{
		BlockNumber block = pmhash_value_to_block(entries[i].value);

		if (block >= nblocks)
			continue;
		buffer = ReleaseAndReadBuffer(buffer, heap, block);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		visit_chain(BufferGetPage(buffer), pmhash_value_to_offset(entries[i].value), horizon);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	}
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
	return true;
}
