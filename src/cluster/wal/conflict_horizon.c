/*-------------------------------------------------------------------------
 *
 * conflict_horizon.c
 *	  Which snapshots of standbys still see rows that are dead here?
 *
 * The executor says that a row is dead to all, and not since when.  A standby
 * has snapshots of its own; before it removes the entry it has to end those that see
 * the row.  So a process that removes an entry itself, not after pruning, reads the rows'
 * headers again, as heap_index_delete_tuples does for btree's known-dead items
 * (heapam.c).  That function is not used: it takes a line pointer that VACUUM has
 * freed meanwhile for damage of the index, and we hold nothing that VACUUM waits
 * for; the caller looks at the removal epoch afterwards instead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam_xlog.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"

#include "cluster/base/relations.h"
#include "cluster/base/tid_value.h"
#include "cluster/cluster.h"
#include "cluster/wal/logged.h"

#if PG_VERSION_NUM >= 160000
#define advance_horizon(tuple, horizon) \
	HeapTupleHeaderAdvanceConflictHorizon(tuple, horizon)
#else
#define advance_horizon(tuple, horizon) \
	HeapTupleHeaderAdvanceLatestRemovedXid(tuple, horizon)
#endif

static int
compare_values(const void *a, const void *b)
{
	uint64		va = ((const PmhEntry *) a)->value;
	uint64		vb = ((const PmhEntry *) b)->value;

	return va < vb ? -1 : va > vb;
}

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

/* Advance it by entries[0 .. n), all of one block. */
static void
visit_block(Relation heap, const PmhEntry *entries, int n, TransactionId *horizon)
{
	Buffer		buffer = ReadBuffer(heap, pmhash_value_to_block(entries[0].value));

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	for (int i = 0; i < n; i++)
		visit_chain(BufferGetPage(buffer), pmhash_value_to_offset(entries[i].value),
					horizon);
	UnlockReleaseBuffer(buffer);
}

/*
 * The latest transaction whose effect a snapshot must see for all rows of these
 * entries to be dead to it; InvalidTransactionId: to every snapshot.  All rows are
 * dead to all here, as far as their TIDs have not been given away since.
 * False if the table is not a heap, of whose rows nothing is known.  The caller
 * holds a lock on the table.  ERROR if a page can't be read.
 */
bool
pmhash_conflict_horizon(Relation heap, const PmhEntry *entries, int n,
						TransactionId *horizon)
{
	PmhEntry   *sorted;
	BlockNumber nblocks;
	int			next;

	if (!pmhash_is_heap_table(heap))
		return false;
	*horizon = InvalidTransactionId;
	sorted = palloc(n * sizeof(PmhEntry));
	memcpy(sorted, entries, n * sizeof(PmhEntry));
	qsort(sorted, n, sizeof(PmhEntry), compare_values);
	nblocks = RelationGetNumberOfBlocks(heap);
	for (int i = 0; i < n; i = next)
	{
		BlockNumber block = pmhash_value_to_block(sorted[i].value);

		for (next = i + 1; next < n; next++)
		{
			if (pmhash_value_to_block(sorted[next].value) != block)
				break;
		}
		if (block < nblocks)
			visit_block(heap, &sorted[i], next - i, horizon);
	}
	pfree(sorted);
	return true;
}
