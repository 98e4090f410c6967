/*-------------------------------------------------------------------------
 *
 * table_walk.c
 *	  Scans of an index that has become invalid since their plan was made.
 *
 * The planner does not see an invalid index, and cached plans are made anew
 * when one becomes invalid.  What is left is a statement that was planned
 * before and is executed after that.  It gets the root of every HOT chain of
 * the table, to be rechecked: slow, but exact, and no statement fails.
 * Without it each such statement would fail, to be tried again, in the moment in which
 * pmhash_check, or a process that cannot read the file, condemns the index, though
 * its user has done nothing wrong and the table has all rows.
 *
 * Why it is exact: the snapshot was taken before the walk begins, so what it
 * sees is in blocks that exist by then, and each such row is in one HOT chain,
 * whose root is an ordinary tuple that is not heap-only, or a redirecting line
 * pointer, as long as any snapshot sees the row.  A TID that is given to another
 * row between our visit and the executor's leads to a row that the snapshot
 * does not see.  The executor then evaluates the conditions of the index scan
 * for each row (xs_recheck).
 *
 * That is not possible for
 *	- partial indexes: the planner has left out the conditions that the
 *	  predicate implies;
 *	- index-only scans: there is no index tuple to be rechecked;
 *	- snapshots other than MVCC: checks of exclusion constraints;
 *	- tables that are no heaps;
 *	- nested loops that would walk through a large table again and again.
 * They get the error for invalid indexes, whose SQLSTATE says to try again.
 *
 * Logical decoding always gets such a walk, and a subscriber if the index is invalid or
 * not built yet, if entries of others wait, or if it looks for NULLs, of which an index
 * has no entries (scan_replica.c).  They have the keys of each row compared before the
 * TID is handed out.  Neither the snapshot nor the size of the table matters then: this
 * is what they would do without the index, by the same snapshot
 * (RelationFindReplTupleSeq, systable_beginscan).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/table.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "cluster/heap_table.h"

#include "scan.h"

/* Pages that the walks of one scan read, before it is refused another one. */
#define MAX_PAGES	65536

struct PmhashTableWalk
{
	Relation	heap;
	Snapshot	snapshot;
	BufferAccessStrategy access;
	BlockNumber next;
	BlockNumber end;
	uint64		pages;			/* read by all walks of this scan */
};

/* May this scan be answered by a walk through the table? */
static bool
can_walk(IndexScanDesc scan, const PmhashTableWalk *walk, bool is_taken_as_is)
{
	return !scan->xs_want_itup &&
		RelationGetIndexPredicate(scan->indexRelation) == NIL &&
		pmhash_is_heap_table(walk->heap) &&
		(is_taken_as_is ||
		 (IsMVCCSnapshot(scan->xs_snapshot) && walk->pages <= MAX_PAGES));
}

/*
 * What a walk for logical decoding cannot do: it knows of the keys of the scan only, and
 * has none to hand out.
 */
static void
check_decoding(IndexScanDesc scan)
{
	bool		partial = RelationGetIndexPredicate(scan->indexRelation) != NIL;

	if (partial || scan->xs_want_itup)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg(partial ? "partial index \"%s\" cannot be used by logical decoding" :
						"index-only scan of index \"%s\" cannot be used by logical decoding",
						RelationGetRelationName(scan->indexRelation))));
}

/*
 * pmhash_table_walk
 *		Begin to walk through the table of a scan, whose index is invalid, or has
 *		no entries for what is looked for.
 *
 * walk is that of an earlier walk of the same scan, or NULL; context is the
 * memory of the scan; is_taken_as_is: see scan_replica.c.  ERROR if such a scan needs
 * the index.  Serializable transactions lock the whole table, as after a sequential
 * scan.
 */
PmhashTableWalk *
pmhash_table_walk(IndexScanDesc scan, PmhashTableWalk *walk, bool invalid,
				  bool is_taken_as_is, MemoryContext context)
{
	if (walk == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		walk = palloc0(sizeof(PmhashTableWalk));
		walk->heap = table_open(scan->indexRelation->rd_index->indrelid, NoLock);
		walk->access = GetAccessStrategy(BAS_BULKREAD);
		MemoryContextSwitchTo(old);
	}
	if (invalid && !can_walk(scan, walk, is_taken_as_is))
	{
		PMH_STOP_POINT("walk_before_error");
		pmhash_invalid_error(scan->indexRelation, scan->xs_snapshot);
	}
	if (pmhash_scan_is_of_decoding(scan))
		check_decoding(scan);
	if (!invalid && !pmhash_is_heap_table(walk->heap))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" has not all rows of its table, which is no heap",
						RelationGetRelationName(scan->indexRelation))));
	PredicateLockRelation(walk->heap, scan->xs_snapshot);
	walk->snapshot = scan->xs_snapshot;
	walk->next = 0;
	walk->end = RelationGetNumberOfBlocks(walk->heap);
	return walk;
}

/* The roots of HOT chains of a page as values, ascending; returns how many. */
static int
collect_roots(Page page, BlockNumber block, uint64 *values)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	ItemPointerData tid;
	int			n = 0;

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId		lp = PageGetItemId(page, offset);

		if (!ItemIdIsRedirected(lp) &&
			(!ItemIdIsNormal(lp) ||
			 HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, lp))))
			continue;
		ItemPointerSet(&tid, block, offset);
		values[n++] = pmhash_tid_to_value(&tid);
	}
	return n;
}

/*
 * The values of the next page into values[MaxHeapTuplesPerPage], ascending.
 * Returns how many, or -1 at the end of the table.
 */
int
pmhash_table_walk_next(PmhashTableWalk *walk, uint64 *values)
{
	Buffer		buffer;
	int			n;

	if (walk->next >= walk->end)
		return -1;
	buffer = ReadBufferExtended(walk->heap, MAIN_FORKNUM, walk->next, RBM_NORMAL,
								walk->access);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	n = collect_roots(BufferGetPage(buffer), walk->next, values);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	ReleaseBuffer(buffer);
	walk->next++;
	walk->pages++;
	return n;
}

/* The scan is over. */
void
pmhash_table_walk_end(PmhashTableWalk *walk)
{
	FreeAccessStrategy(walk->access);
	table_close(walk->heap, NoLock);
}
