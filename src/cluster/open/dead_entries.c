/*-------------------------------------------------------------------------
 *
 * dead_entries.c
 *	  Removal of entries that scans have found dead (kill_prior_tuple).
 *
 * src/README, "Dead entries", has the rule.  btree and hash mark such an entry with a hint bit
 * on its page.  We have no page whose write-out would wait for WAL, so we either remove an
 * entry for good or not at all.
 *
 * A read does not work long for others.  In a list of millions of values a removal may take
 * many milliseconds, most of all if another process has taken out what was found, for then
 * the list is walked to its end.  So a scan does one step, a tenth of a millisecond or less,
 * when it begins and one when it ends; the batch remembers where it is, and the next scan of
 * the index goes on from there.  A batch that no scan comes back to is replaced by another,
 * and is gone with the backend, or when the file is unmapped; what it has not removed is
 * found again.  (One of a session that is idle keeps its entries until VACUUM: space, but no
 * visits.)
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"

#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"
#include "cluster/queue/queue.h"
#include "cluster/wal/logged.h"
#include "cluster/wal/undo_journal.h"
#include "cluster/wal/wal_record.h"

/*
 * How much a scan has the engine do in a step, during which it holds the removal lock:
 * pieces as of pmh_removal_step, some 10 microseconds each.
 */
#define STEP_EFFORT			8

/* How many entries wait before a flush is requested, or for how long, in ms. */
#define MANY_WAIT			64
#define LONGEST_WAIT		10

/*
 * Of the time in which scans wait, the launcher spends one part in so many
 * flushing; and the pause in between is not shorter, in milliseconds, nor
 * longer.
 */
#define FLUSH_SHARE			5
#define SHORTEST_PAUSE		1
#define LONGEST_PAUSE		100

/* ---- flushing ---- */

/*
 * Request that WAL be flushed up to lsn, the end of a record, soon; no read waits for a
 * write.  What a reader waits for may be WAL that no one else is in a hurry to flush: that
 * of asynchronous commits, or of what the reader itself has pruned.  The WAL writer takes up
 * to three times wal_writer_delay, and in that time the list would be full and each look-up
 * of a hot key walk past thousands of entries.
 */
static void
request_flush(XLogRecPtr lsn)
{
	uint64		requested = pg_atomic_read_u64(&pmhash_shared->flush_wanted);

	XLogSetAsyncXactLSN(lsn);	/* in case there is no launcher just now */
	while (requested < lsn)
	{
		if (!pg_atomic_compare_exchange_u64(&pmhash_shared->flush_wanted,
											&requested, lsn))
			continue;
		if (requested == InvalidXLogRecPtr)
			pmhash_wake_launcher();
		return;
	}
}

/*
 * pmhash_flush_for_scans
 *		The launcher's part: flush what scans have requested, but not all the
 *		time.
 *
 * Returns after how many milliseconds it is to be called again at the latest,
 * or -1 if nothing has been requested.  What was requested during the pause,
 * and is not flushed by another process, is flushed at its end.
 */
long
pmhash_flush_for_scans(void)
{
	static int64 last = 0;		/* the end of the last flush */
	static int64 pause = SHORTEST_PAUSE;
	int64		now;
	uint64		lsn;

	if (pg_atomic_read_u64(&pmhash_shared->flush_wanted) == InvalidXLogRecPtr)
		return -1;
	now = pmhash_clock_ms();
	if (now - last <= pause)
		return (long) (last + pause + 1 - now);
	lsn = pg_atomic_exchange_u64(&pmhash_shared->flush_wanted, InvalidXLogRecPtr);
	XLogFlush(lsn);
	last = pmhash_clock_ms();
	pause = Min(Max((last - now) * (FLUSH_SHARE - 1), SHORTEST_PAUSE), LONGEST_PAUSE);
	return -1;
}

/* ---- batches ---- */

/*
 * Take some entries of a batch out, if their TIDs cannot have changed hands.
 * PMH_OK: some are left for later; PMH_DONE: the batch has been gone through.
 *
 * A scan must not wait for other processes here: what is in their way will be found again.
 */
static PmhResult
take_some_out(PmhashDeadBatch *batch)
{
	PmhResult	result = PMH_DONE;
	size_t		before = batch->removal.removed;

	if (!LWLockConditionalAcquire(pmhash_lwlock(PMHASH_REMOVAL_LOCK), LW_SHARED))
		return PMH_OK;
	if (pmhash_removal_epoch(batch->file) != batch->epoch)
	{
		LWLockRelease(pmhash_lwlock(PMHASH_REMOVAL_LOCK));
		return PMH_DONE;
	}
	result = pmh_removal_step(batch->file->table, &batch->removal, STEP_EFFORT);
	LWLockRelease(pmhash_lwlock(PMHASH_REMOVAL_LOCK));
	pmhash_count(PMHASH_SCAN_REMOVED, batch->removal.removed - before);
	return result;
}

/*
 * Do a step of a batch, which waits no longer.  That a file has been removed, of which this
 * needs more than the session has mapped, is no reason for a read to fail that has found all it
 * was looking for, or has not begun.  The index is invalid, and there is nothing to remove.
 */
static void
work_on(Relation index, PmhashDeadBatch *batch)
{
	PmhashFile *file = batch->file;
	PmhResult	result;

	PMH_STOP_POINT("dead_before_removal");
	result = take_some_out(batch);
	if (result == PMH_OK)
		return;
	pmhash_dead_batch_drop(file);
	if (result == PMH_ERR_NO_FILE)
		pmhash_index_lost_file(index, file);
	else if (result != PMH_DONE)
		pmhash_engine_error(index, file, result);
}

/* ---- batches of logged files ---- */

/*
 * Log the removal of entries, with a horizon for snapshots of standbys.  The end of
 * the last record, or InvalidXLogRecPtr: not now, as another process is in the way, or as
 * the TIDs may have changed hands by now.  What else can't be known is left to
 * VACUUM: rows of other tables than heaps.
 *
 * The horizon is right if the TIDs are still those rows' when it is there, which is
 * looked at under the removal lock; and so is the record then, as no TID is given
 * away, hence none of a new row logged, before the epoch advances.
 */
static XLogRecPtr
log_removal(Relation index, const PmhashFile *file, uint64 epoch,
			const PmhEntry *entries, int n)
{
	Relation	heap = relation_open(index->rd_index->indrelid, AccessShareLock);
	XLogRecPtr	end = InvalidXLogRecPtr;
	TransactionId horizon;
	bool		known = pmhash_conflict_horizon(heap, entries, n, &horizon);

	Assert(file->logged && n > 0);
	relation_close(heap, AccessShareLock);
	PMH_STOP_POINT("dead_before_log");
	if (!known ||
		!LWLockConditionalAcquire(pmhash_lwlock(PMHASH_REMOVAL_LOCK), LW_SHARED))
		return InvalidXLogRecPtr;
	if (pmhash_removal_epoch(file) == epoch)
		end = pmhash_log_deletes(file, horizon, entries, n);
	LWLockRelease(pmhash_lwlock(PMHASH_REMOVAL_LOCK));
	return end;
}

/*
 * Entries of a logged file have been handed over; see pmhash_dead_entries.  What the
 * list has, or has no room for, is not logged: it will be found again.
 */
static void
hand_over_logged(Relation index, PmhashFile *file, uint64 epoch,
				 const PmhEntry *entries, int n)
{
	PmhEntry   *fresh = palloc(n * sizeof(PmhEntry));
	XLogRecPtr	end;
	int			nfresh = 0;
	int			room;

	for (int i = 0; i < n; i++)
	{
		if (!pmhash_known_dead(file, entries[i].value))
			fresh[nfresh++] = entries[i];
	}
	room = pmhash_dead_list_room(file, epoch);	/* once: it changes */
	n = Min(nfresh, room);
	if (n > 0)
	{
		end = log_removal(index, file, epoch, fresh, n);
		if (end != InvalidXLogRecPtr)
			pmhash_dead_list_add(file, epoch, end, fresh, n);
	}
	pfree(fresh);
}

/* ---- work ---- */

/*
 * Take what may go out of the file's list and work on it.  It is known to be dead until
 * its batch is dropped; an error must not leave it so, with nothing that removes it.
 */
static void
work_on_list(Relation index, PmhashFile *file)
{
	PmhashDeadWaiting waiting;
	XLogRecPtr	flushed;
	XLogRecPtr	noted;
	PmhashDeadBatch *batch;
	PmhResult	result;

	if (likely(!pmhash_dead_list_look(file, &waiting)))
		return;
	flushed = GetFlushRecPtr(NULL);
	if (waiting.first > flushed)
	{
		if (waiting.n >= MANY_WAIT ||
			pmhash_clock_ms() - waiting.since >= LONGEST_WAIT)
			request_flush(waiting.last);
		return;
	}
	batch = MemoryContextAllocZero(TopMemoryContext, offsetof(PmhashDeadBatch, entry) +
								   waiting.n * sizeof(PmhEntry));
	batch->file = file;
	batch->n = pmhash_dead_list_take(file, flushed, &noted, batch->entry, waiting.n,
									 &batch->epoch);
	if (batch->n == 0)
	{
		pfree(batch);
		return;
	}
	pmhash_dead_batch_keep(batch);
	PG_TRY();
	{
		if (file->journaled)
			pmhash_journal_note_flushed(noted);
		result = pmh_removal_begin(file->table, batch->entry, batch->n, false, &batch->removal);
		if (result != PMH_OK)
			pmhash_engine_error(index, file, result);
	}
	PG_CATCH();
	{
		pmhash_dead_batch_drop(file);
		PG_RE_THROW();
	}
	PG_END_TRY();
	work_on(index, batch);
}

/*
 * pmhash_dead_entries_settle
 *		Work on what was found dead in a file and is still there.
 *
 * Called at the beginning of each scan; costs next to nothing if there is nothing.
 * Locks and errors as below.
 */
void
pmhash_dead_entries_settle(Relation index, PmhashFile *file)
{
	PmhashDeadBatch *batch = pmhash_dead_batch(file);

	if (unlikely(batch != NULL))
		work_on(index, batch);
	else if (unlikely(pmhash_any_known_dead(file)))
		work_on_list(index, file);
}

/*
 * pmhash_dead_entries
 *		Remove entries whose tuples are dead to all, now or later.
 *
 * The heap calls a tuple dead only by what its page says (heapam_visibility.c,
 * HeapTupleIsSurelyDead: hint bits; heapam.c, heap_hot_search_buffer: line pointers), and never
 * says more than survives a crash that keeps all WAL up to the page's LSN and all that was
 * flushed by then.  So they may go as soon as all WAL is flushed that there is now.
 *
 * n is at most PMHASH_DEAD_MAX.  epoch is the removal epoch that was there
 * before any of them was read.  Entries that are not there (any more) do not matter.
 * ERROR if the file is damaged, the journal cannot be used or there is no memory.
 */
void
pmhash_dead_entries(Relation index, PmhashFile *file, uint64 epoch,
					const PmhEntry *entries, int n)
{
	Assert(!RecoveryInProgress());
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	Assert(n <= PMHASH_DEAD_MAX);
	if (file->logged)
	{
		hand_over_logged(index, file, epoch, entries, n);
		return;
	}
	pmhash_dead_list_add(file, epoch, file->journaled ? pmhash_insert_end() : InvalidXLogRecPtr,
						 entries, n);
	pmhash_dead_entries_settle(index, file);	/* it may be flushed already */
}
