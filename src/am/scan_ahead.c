/*-------------------------------------------------------------------------
 *
 * scan_ahead.c
 *	  The heap pages of a plain index scan: prefetched, and found by hints.
 *
 * The executor visits a row as soon as its TID is handed out, and waits for some
 * cache lines, one after the other.  The TIDs that come next are in the batch: their
 * lines are prefetched meanwhile (fetch.c).  The longest wait, for the buffer table,
 * is left out for a page that has been met before: we pin it by a hint, in the place
 * where the heap's access method keeps the page it has pinned
 * (heapam_handler.c, heapam_index_fetch_tuple).  That finds its page there and has
 * only to lock it.  So it serves all plans with an index scan in them, whatever the
 * executor does with the row.
 *
 * How far ahead grows with the rows handed out, so that LIMIT and EXISTS prefetch,
 * and read from disk, at most two pages for each one that is visited.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "utils/rel.h"

#include "cluster/heap_table.h"

#include "scan.h"

/*
 * Rows at the beginning of a scan, and of a batch, that are not worth the trouble: a
 * queue takes one row and passes by some ten that others have locked.
 */
#define FIRST_ROWS	24
#define LEAST_BATCH	8

/* Is the heap one of whose pages we know how they are pinned and laid out? */
static bool
is_plain_heap(IndexScanDesc scan)
{
	return scan->xs_heapfetch != NULL &&
		pmhash_is_heap_table(scan->heapRelation) &&
		!RelationUsesLocalBuffers(scan->heapRelation);
}

/* Get ready, once for all rescans.  False if it can't be done for this table. */
static bool
begin_fetch(IndexScanDesc scan, PmhashScan *so)
{
	if (so->fetch == NULL && is_plain_heap(scan))
	{
		so->fetch = MemoryContextAlloc(so->context, sizeof(PmhashFetch));
		pmhash_fetch_begin(so->fetch, so->context, scan->heapRelation,
						   scan->indexRelation, scan->xs_snapshot);
	}
	return so->fetch != NULL;
}

/* Bring the pipe to the element being handed out, in the batch that there is now. */
static void
set_pipe(PmhashScan *so)
{
	PmhashPipe *pipe = &so->pipe;

	if (pipe->value == NULL)
		pmhash_pipe_begin(pipe, so->batch, so->batch_n, so->batch_shift, 0);
	pipe->next = so->batch_next - 1;
	pipe->distance = Min(so->rows_ahead, PMHASH_FETCH_DISTANCE);
	so->rows_ahead++;
}

/*
 * pmhash_scan_ahead
 *		The current element is about to be handed out, and visited: prefetch for
 *		those that come after it, and pin its page.
 *
 * Nothing is done for rows that an invalid index has from the table itself.
 */
void
pmhash_scan_ahead(IndexScanDesc scan, PmhashScan *so)
{
	IndexFetchHeapData *heap = (IndexFetchHeapData *) scan->xs_heapfetch;
	Buffer		pinned;

	if (so->rows_ahead < FIRST_ROWS || so->batch_n < LEAST_BATCH)
	{
		so->rows_ahead++;
		return;
	}
	if (so->kind == SCAN_TABLE || !begin_fetch(scan, so))
		return;
	set_pipe(so);
	pmhash_fetch_ahead(so->fetch, &so->pipe);
	pinned = heap->xs_cbuf;
	heap->xs_cbuf = InvalidBuffer;	/* not ours any more if there is an error */
#if PG_VERSION_NUM >= 190000
	heap->xs_blk = InvalidBlockNumber;
#endif
	heap->xs_cbuf = pmhash_fetch_page(so->fetch, pinned, pmhash_scan_value(so));
#if PG_VERSION_NUM >= 190000
	/* by this the heap knows which block it has pinned (heapam_indexscan.c) */
	heap->xs_blk = BufferGetBlockNumber(heap->xs_cbuf);
#endif
}
