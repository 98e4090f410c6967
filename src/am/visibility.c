/*-------------------------------------------------------------------------
 *
 * visibility.c
 *	  Index-only scans, and the heap pages that scans visit.
 *
 * An index-only scan returns a key without a visit to its row if the row's page
 * is all-visible.  A TID may be removed and used again by VACUUM between our
 * reading of it and that look at the visibility map, since no pin or lock holds
 * VACUUM back; the removal epoch says whether that can have happened.  See
 * src/README, "Scans and VACUUM".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/itup.h"
#include "access/tupmacs.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cluster/heap_table.h"

#include "scan.h"

/* ---- heap pages ---- */

/* The heap page that was visited last, still pinned, or InvalidBuffer. */
Buffer
pmhash_visited_heap_page(IndexScanDesc scan)
{
	if (scan->xs_heapfetch == NULL ||
		!pmhash_is_heap_table(scan->heapRelation))
		return InvalidBuffer;
	return ((IndexFetchHeapData *) scan->xs_heapfetch)->xs_cbuf;
}

/*
 * A row of this page of the table is about to be taken without a visit, as the page is
 * all-visible.  For serializable transactions: lock the page in place of the row, and
 * say whether it is all-visible still.
 *
 * The lock first, then the map: a later deletion of the row meets our lock; after an
 * earlier one the page is not all-visible any more, and the visit to the row finds
 * the conflict.  (The executor's own scans have it the other way round.)  Missed is only
 * a deletion that has looked for locks and not cleared the bit yet: README, "Index-only
 * scans".
 *
 * map: as for visibilitymap_get_status.
 */
bool
pmhash_lock_all_visible(Relation heap, BlockNumber block, Snapshot snapshot, Buffer *map)
{
	bool		all_visible;

	PMH_STOP_POINT("all_visible");
	PredicateLockPage(heap, block, snapshot);
	all_visible = VM_ALL_VISIBLE(heap, block, map);
	PMH_STOP_POINT("all_visible_locked");
	return all_visible;
}

/* ---- index-only scans ---- */

/*
 * Does the current element's TID, in scan->xs_heaptid, lead to a row that the
 * snapshot sees?  Notes it if it is dead to all.
 */
static bool
row_is_visible(IndexScanDesc scan, PmhashScan *so)
{
	ItemPointerData tid = scan->xs_heaptid; /* changed by the look-up */
	bool		call_again = false;
	bool		all_dead = false;
	bool		found;

	if (so->slot == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(so->context);

		so->slot = table_slot_create(scan->heapRelation, NULL);
		MemoryContextSwitchTo(old);
	}
	found = table_index_fetch_tuple(scan->xs_heapfetch, &tid,
									scan->xs_snapshot, so->slot,
									&call_again, &all_dead);
	ExecClearTuple(so->slot);
	if (all_dead && !scan->xactStartedInRecovery)
		pmhash_scan_note_dead(scan, so);
	return found;
}

/*
 * May the executor take the current element for a row if it finds its page
 * all-visible a moment later?  Its look at the visibility map comes after
 * VACUUM may have given the TID away, so we have to know it here: either the
 * page is all-visible and the TID was not given away until after we looked, or
 * the row itself is visible.
 */
bool
pmhash_scan_may_return(IndexScanDesc scan, PmhashScan *so)
{
	BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);

	PMH_STOP_POINT("scan_before_visibility");
	if (VM_ALL_VISIBLE(scan->heapRelation, block, &so->visibility_map) &&
		pmhash_removal_epoch(so->file) == so->epoch &&
		(likely(!IsolationIsSerializable()) ||
		 pmhash_lock_all_visible(scan->heapRelation, block, scan->xs_snapshot,
								 &so->visibility_map)))
		return true;
	return row_is_visible(scan, so);
}

/*
 * Put the key that the current element was found by into xs_itup.  An index
 * tuple of one column of fixed length is its header and the datum; it is
 * allocated once per scan and filled again whenever the key changes.
 */
void
pmhash_scan_return_key(IndexScanDesc scan, PmhashScan *so)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(scan->indexRelation), 0);
	uint64		hash = pmhash_scan_hash(so);
	Datum		key;
	char	   *data;

	Assert(so->keys->can_return && column->attlen > 0);
	if (scan->xs_itup == NULL)
	{
		Size		size = MAXALIGN(IndexInfoFindDataOffset(0) + column->attlen);

		scan->xs_itup = MemoryContextAllocZero(so->context, size);
		scan->xs_itup->t_info = size;
		scan->xs_itupdesc = RelationGetDescr(scan->indexRelation);
	}
	else if (hash == so->key_hash)
		return;

	key = pmhash_keys_unhash(so->keys, hash);
	data = (char *) scan->xs_itup + IndexInfoFindDataOffset(0);
	if (column->attbyval)
		store_att_byval(data, key, column->attlen);
	else
	{
		memcpy(data, DatumGetPointer(key), column->attlen);
		pfree(DatumGetPointer(key));
	}
	so->key_hash = hash;
}
