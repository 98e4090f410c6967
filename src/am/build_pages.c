/*-------------------------------------------------------------------------
 *
 * build_pages.c
 *	  The scan of a heap for an index build, a page at a time.
 *
 * The server's scan for index builds (heapam_handler.c,
 * heapam_index_build_range_scan) locks the page anew for every tuple, finds out
 * whether the tuple is dead to all, and puts it into a slot to get at its
 * columns.  That is two to three times the cost of a plain sequential scan, and
 * more than everything else that a build does.  All of it is for tuples that
 * may be in the middle of a change, and nearly every page has none: those are
 * read here, under one lock; the others are left to the server's scan.
 *
 * A page is quiet if each of its tuples is alive beyond doubt: the page says
 * that it is all-visible, or the tuple's hint bits say that its inserter has
 * committed and that it has not been deleted.  HeapTupleSatisfiesVacuum answers
 * HEAPTUPLE_LIVE to such a tuple, and the server's scan then counts it, and
 * indexes it under the TID of the root of its HOT chain; so do we.  It can't
 * change under us: the build holds a lock on the table that keeps writers and
 * VACUUM out, and our pin keeps pruning out.
 *
 * Not for concurrent builds, which go by a snapshot; not for expressions and
 * predicates, which want the executor.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/backend_progress.h"
#include "utils/rel.h"

#include "cluster/heap_table.h"

#include "build_scan.h"

/* Blocks that a process takes from a range at a time. */
#define PIECE			256

/* Tuples ahead of the one at hand that are prefetched. */
#define PREFETCH		12

/* What does not change from page to page. */
typedef struct PageScan
{
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;
	IndexBuildCallback callback;
	void	   *state;
	BufferAccessStrategy access;
	double		rows;
	BlockNumber noisy_from;		/* blocks left to the server's scan, */
	BlockNumber noisy_n;		/* and how many */
} PageScan;

/* The tuples of a page, as line pointers that will not change. */
typedef struct QuietPage
{
	Buffer		buffer;
	Page		page;
	int			n;
	OffsetNumber offset[MaxHeapTuplesPerPage];
	OffsetNumber root[MaxHeapTuplesPerPage];	/* by offset, from 1 on */
	bool		roots_known;
} QuietPage;

/*
 * May an index on heap be built page by page?  The caller of the build holds
 * ShareLock or a stronger one on heap, unless the build is concurrent.
 */
bool
pmhash_can_scan_pages(Relation heap, IndexInfo *indexInfo)
{
	return pmhash_is_heap_table(heap) &&
		!indexInfo->ii_Concurrent &&
		indexInfo->ii_Expressions == NIL &&
		indexInfo->ii_Predicate == NIL;
}

/* All blocks that heap has now. */
void
pmhash_block_range_init(PmhashBlockRange *range, Relation heap)
{
	range->nblocks = RelationGetNumberOfBlocks(heap);
	pg_atomic_init_u64(&range->next, 0);
}

/* ---- one page ---- */

static inline HeapTupleHeader
tuple_at(Page page, OffsetNumber offset)
{
	return (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, offset));
}

/* Do the hint bits alone say that a tuple is alive? */
static inline bool
is_hinted_live(HeapTupleHeader tuple)
{
	return HeapTupleHeaderXminCommitted(tuple) &&
		(tuple->t_infomask & HEAP_XMAX_INVALID) != 0;
}

/*
 * List the tuples of a page, whose buffer is locked.  False if the page is not
 * quiet.
 */
static bool
list_tuples(QuietPage *quiet)
{
	Page		page = quiet->page;
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	bool		all_visible = PageIsAllVisible(page);

	quiet->n = 0;
	quiet->roots_known = false;
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		if (!ItemIdIsNormal(PageGetItemId(page, offset)))
			continue;
		if (!all_visible && !is_hinted_live(tuple_at(page, offset)))
			return false;
		quiet->offset[quiet->n++] = offset;
	}
	return true;
}

/* The root of the HOT chain that a heap-only tuple is in. */
static OffsetNumber
root_of(PageScan *scan, QuietPage *quiet, OffsetNumber offset)
{
	if (!quiet->roots_known)
	{
		LockBuffer(quiet->buffer, BUFFER_LOCK_SHARE);
		heap_get_root_tuples(quiet->page, quiet->root);
		LockBuffer(quiet->buffer, BUFFER_LOCK_UNLOCK);
		quiet->roots_known = true;
	}
	if (!OffsetNumberIsValid(quiet->root[offset - 1]))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg_internal("failed to find parent tuple for heap-only tuple at (%u,%u) in table \"%s\"",
								 BufferGetBlockNumber(quiet->buffer), offset,
								 RelationGetRelationName(scan->heap))));
	return quiet->root[offset - 1];
}

/* Hand a tuple's columns to the callback. */
static void
pass_tuple(PageScan *scan, QuietPage *quiet, BlockNumber block, OffsetNumber offset)
{
	IndexInfo  *info = scan->indexInfo;
	TupleDesc	columns = RelationGetDescr(scan->heap);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	HeapTupleData tuple;

	tuple.t_data = tuple_at(quiet->page, offset);
	tuple.t_len = ItemIdGetLength(PageGetItemId(quiet->page, offset));
	tuple.t_tableOid = RelationGetRelid(scan->heap);
	ItemPointerSet(&tuple.t_self, block, offset);
	for (int i = 0; i < info->ii_NumIndexAttrs; i++)
		values[i] = pmhash_column(&tuple, info->ii_IndexAttrNumbers[i], columns,
								  &isnull[i]);
	if (HeapTupleIsHeapOnly(&tuple))
		ItemPointerSetOffsetNumber(&tuple.t_self, root_of(scan, quiet, offset));
	scan->callback(scan->index, &tuple.t_self, values, isnull, true, scan->state);
}

static void
pass_tuples(PageScan *scan, QuietPage *quiet, BlockNumber block)
{
	for (int i = 0; i < quiet->n; i++)
	{
		if (i + PREFETCH < quiet->n)
			__builtin_prefetch(tuple_at(quiet->page, quiet->offset[i + PREFETCH]));
		pgstat_count_heap_getnext(scan->heap);
		pass_tuple(scan, quiet, block, quiet->offset[i]);
	}
	scan->rows += quiet->n;
}

/* Read a page.  False, and nothing is passed on, if it is not quiet. */
static bool
scan_quiet_page(PageScan *scan, BlockNumber block)
{
	QuietPage	quiet;
	bool		is_quiet;

	quiet.buffer = ReadBufferExtended(scan->heap, MAIN_FORKNUM, block,
									  RBM_NORMAL, scan->access);
	quiet.page = BufferGetPage(quiet.buffer);
	LockBuffer(quiet.buffer, BUFFER_LOCK_SHARE);
	is_quiet = list_tuples(&quiet);
	LockBuffer(quiet.buffer, BUFFER_LOCK_UNLOCK);
	if (is_quiet)
		pass_tuples(scan, &quiet, block);
	ReleaseBuffer(quiet.buffer);
	return is_quiet;
}

/* ---- many pages ---- */

/* Have the server scan the blocks that were left to it. */
static void
scan_noisy_pages(PageScan *scan)
{
	if (scan->noisy_n == 0)
		return;
	scan->rows += table_index_build_range_scan(scan->heap, scan->index,
											   scan->indexInfo, false, false,
											   false, scan->noisy_from,
											   scan->noisy_n, scan->callback,
											   scan->state, NULL);
	scan->noisy_n = 0;
}

/* Scan blocks [from, to).  Pages that are not quiet wait for their neighbours. */
static void
scan_piece(PageScan *scan, BlockNumber from, BlockNumber to)
{
	for (BlockNumber block = from; block < to; block++)
	{
		CHECK_FOR_INTERRUPTS();
		if (scan_quiet_page(scan, block))
		{
			scan_noisy_pages(scan);
			continue;
		}
		if (scan->noisy_n == 0)
			scan->noisy_from = block;
		scan->noisy_n++;
	}
	scan_noisy_pages(scan);
}

/*
 * Scan what is left of range, together with all processes that share it: each
 * piece of it is scanned by one of them.  Calls callback for every
 * row as table_index_build_scan would; returns how many there were.  progress:
 * count blocks in pg_stat_progress_create_index.  Only if pmhash_can_scan_pages.
 */
double
pmhash_scan_pages(Relation heap, Relation index, IndexInfo *indexInfo,
				  PmhashBlockRange *range, bool progress,
				  IndexBuildCallback callback, void *state)
{
	PageScan	scan = {0};
	uint64		from;

	scan.heap = heap;
	scan.index = index;
	scan.indexInfo = indexInfo;
	scan.callback = callback;
	scan.state = state;
	/* as heapam.c, initscan: a table that is large does not wash others out */
	if (!RelationUsesLocalBuffers(heap) && range->nblocks > (BlockNumber) NBuffers / 4)
		scan.access = GetAccessStrategy(BAS_BULKREAD);
	if (progress)
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL, range->nblocks);
	pgstat_count_heap_scan(heap);

	while ((from = pg_atomic_fetch_add_u64(&range->next, PIECE)) < range->nblocks)
	{
		BlockNumber to = Min(from + PIECE, range->nblocks);

		scan_piece(&scan, (BlockNumber) from, to);
		if (progress)
			pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, to);
	}
	if (scan.access != NULL)
		FreeAccessStrategy(scan.access);
	return scan.rows;
}
