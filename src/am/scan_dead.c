/*-------------------------------------------------------------------------
 *
 * scan_dead.c
 *	  Entries whose rows the executor has found dead to all transactions.
 *
 * A scan collects them and hands them over many at a time (cluster's
 * pmhash_dead_entries), by which they are removed, unless their TIDs may have
 * been given to other rows since they were read: the removal epoch says so.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "scan.h"

/* Have the entries collected so far removed. */
void
pmhash_scan_hand_over_dead(IndexScanDesc scan, PmhashScan *so)
{
	int			ready = so->nready;
	int			others = so->ndead - ready;

	so->ndead = so->nready = 0;
	if (ready > 0)
		pmhash_dead_entries(scan->indexRelation, so->file, so->dead_epoch,
							so->flushed, so->dead, ready);
	if (others > 0)
		pmhash_dead_entries(scan->indexRelation, so->file, so->dead_epoch,
							so->dead_lsn, so->dead + ready, others);
}

/*
 * The LSN of the heap page on which the current element's tuple has just been
 * judged, or InvalidXLogRecPtr if that is not at hand.  It is read with the page
 * locked: who changes it stores it in two halves.
 */
static XLogRecPtr
judged_page_lsn(IndexScanDesc scan, PmhashScan *so)
{
	Buffer		buffer = pmhash_visited_heap_page(scan);
	XLogRecPtr	lsn;

	if (!BufferIsValid(buffer) ||
		BufferGetBlockNumber(buffer) != pmhash_value_to_block(pmhash_scan_value(so)))
		return InvalidXLogRecPtr;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	lsn = BufferGetLSNAtomic(buffer);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return lsn;
}

/* Make room for another dead entry, up to PMHASH_DEAD_MAX. */
static void
reserve_dead(PmhashScan *so)
{
	if (so->ndead < so->dead_capacity)
		return;
	so->dead_capacity = Min(Max(so->dead_capacity * 2, 64), PMHASH_DEAD_MAX);
	if (so->dead == NULL)
		so->dead = MemoryContextAlloc(so->context,
									  so->dead_capacity * sizeof(PmhEntry));
	else
		so->dead = repalloc(so->dead, so->dead_capacity * sizeof(PmhEntry));
}

/* Add a dead entry whose heap page has this LSN; InvalidXLogRecPtr: unknown. */
static void
add_dead(PmhashScan *so, PmhEntry entry, XLogRecPtr lsn)
{
	bool		unknown = lsn == InvalidXLogRecPtr;

	if (so->ndead == 0)
		so->flushed = GetFlushRecPtr(NULL);
	if (!unknown && lsn <= so->flushed)
	{
		so->dead[so->ndead++] = so->dead[so->nready];
		so->dead[so->nready++] = entry;
		return;
	}
	if (so->ndead == so->nready)	/* the first of these */
		so->dead_lsn = lsn;
	else if (unknown || so->dead_lsn == InvalidXLogRecPtr)
		so->dead_lsn = InvalidXLogRecPtr;
	else
		so->dead_lsn = Max(so->dead_lsn, lsn);
	so->dead[so->ndead++] = entry;
}

/*
 * The current element's tuple is dead to everyone.  Collect entries until
 * there are enough, the epoch changes or the scan ends.
 *
 * What is gone through again, backward, has been noted when it was read.
 */
void
pmhash_scan_note_dead(IndexScanDesc scan, PmhashScan *so)
{
	PmhEntry	entry;

	if (so->batch_hashes == NULL || so->dead_enough || so->in_history)
		return;
	if (so->ndead > 0 && so->dead_epoch != so->epoch)
		pmhash_scan_hand_over_dead(scan, so);
	reserve_dead(so);
	so->dead_epoch = so->epoch;
	entry.hash = pmhash_scan_hash(so);
	entry.value = pmhash_scan_value(so);
	add_dead(so, entry, judged_page_lsn(scan, so));
	if (so->ndead == PMHASH_DEAD_MAX)
	{
		pmhash_scan_hand_over_dead(scan, so);
		so->dead_enough = true;
	}
}
