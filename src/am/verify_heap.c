/*-------------------------------------------------------------------------
 *
 * verify_heap.c
 *	  Does an entry fit the row that it names?  The heap's side of pmhash_check.
 *
 * The keys of a row's HOT chain have to be read with care, since writers and
 * VACUUM may be at work on the table:
 *	 - A line pointer that is dead says nothing: legal, VACUUM is to come.
 *	 - Keys are computed from a copy of the page, after its lock has been
 *	   released, so values in TOAST must still be there.  They are for tuples which
 *	   are not removable under our snapshot's xmin, since no VACUUM, not of the
 *	   TOAST table either, works with a later horizon: its own was computed before
 *	   our snapshot was taken, from transactions running then, or it heeds our xmin.
 *	   Tuples that are dead by that measure, or of a transaction of another
 *	   backend that is still in progress (it may abort, and VACUUM come by), have
 *	   no key for us; they are "unknown".
 *	 - All members of a HOT chain have one key, except those that were there
 *	   when the index was built: the member then indexed, and all after it in
 *	   the chain, have the key of the entry; older ones may have others.
 *	   A live member (committed, not deleted, no update under way) is the last
 *	   of its chain that counts, so if there is one it must match, provided that
 *	   no known member does.  If no member is live, unknown ones may be what was
 *	   indexed; then the entry is legal.  If all are known, one must match.
 *
 * The predicate of a partial index is a part of the key in all this.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "verify.h"

/* What there is to know of a member of a HOT chain. */
typedef enum Knowledge
{
	TUPLE_NOT_SEEN = 0,			/* not classified yet */
	TUPLE_UNKNOWN,				/* its key cannot be read safely */
	TUPLE_KNOWN,				/* it can, but a newer one may count */
	TUPLE_LIVE					/* it can, and it is the current one */
} Knowledge;

struct PmhashHeapCheck
{
	Relation	heap;
	PmhashKeys *keys;
	Snapshot	snapshot;
	BufferAccessStrategy access;

	/* computing keys of rows */
	IndexInfo  *indexInfo;
	EState	   *estate;
	ExprContext *econtext;
	ExprState  *predicate;
	TupleTableSlot *slot;

	/* the heap page looked at last */
	PGAlignedBlock page;
	Knowledge	knowledge[MaxHeapTuplesPerPage + 1];	/* by offset */
};

/* ---- heap pages ---- */

static OffsetNumber
max_offset(PmhashHeapCheck *check)
{
	OffsetNumber most = PageGetMaxOffsetNumber((Page) check->page.data);

	return Min(most, MaxHeapTuplesPerPage);
}

/* The tuple at a line pointer, in any copy of the page. */
static void
get_tuple(PmhashHeapCheck *check, Page page, BlockNumber block, OffsetNumber offset,
		  HeapTuple tuple)
{
	ItemId		lp = PageGetItemId(page, offset);

	tuple->t_data = (HeapTupleHeader) PageGetItem(page, lp);
	tuple->t_len = ItemIdGetLength(lp);
	tuple->t_tableOid = RelationGetRelid(check->heap);
	ItemPointerSet(&tuple->t_self, block, offset);
}

/*
 * The offsets of the members of the HOT chain that begins at a line pointer
 * of the page copied last, which is normal or redirected; returns how many
 * (compare heap_get_root_tuples in access/heap/pruneheap.c).
 */
static int
chain_members(PmhashHeapCheck *check, OffsetNumber root, OffsetNumber *member)
{
	Page		page = (Page) check->page.data;
	OffsetNumber offset = root;
	TransactionId before = InvalidTransactionId;
	int			n = 0;

	if (ItemIdIsRedirected(PageGetItemId(page, root)))
		offset = ItemIdGetRedirect(PageGetItemId(page, root));

	while (offset >= FirstOffsetNumber && offset <= max_offset(check) &&
		   n < MaxHeapTuplesPerPage)
	{
		ItemId		lp = PageGetItemId(page, offset);
		HeapTupleHeader tuple;

		if (!ItemIdIsNormal(lp))
			break;
		tuple = (HeapTupleHeader) PageGetItem(page, lp);
		if (TransactionIdIsValid(before) &&
			!TransactionIdEquals(before, HeapTupleHeaderGetXmin(tuple)))
			break;
		member[n++] = offset;
		if (!HeapTupleHeaderIsHotUpdated(tuple))
			break;
		before = HeapTupleHeaderGetUpdateXid(tuple);
		offset = ItemPointerGetOffsetNumber(&tuple->t_ctid);
	}
	return n;
}

/* What is to be known of a tuple in a locked buffer. */
static Knowledge
classify(PmhashHeapCheck *check, Buffer buffer, BlockNumber block, OffsetNumber offset)
{
	HeapTupleData tuple;

	get_tuple(check, BufferGetPage(buffer), block, offset, &tuple);
	switch (HeapTupleSatisfiesVacuum(&tuple, check->snapshot->xmin, buffer))
	{
		case HEAPTUPLE_LIVE:
			return TUPLE_LIVE;
		case HEAPTUPLE_RECENTLY_DEAD:
		case HEAPTUPLE_DELETE_IN_PROGRESS:
			return TUPLE_KNOWN;
		case HEAPTUPLE_INSERT_IN_PROGRESS:
			if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple.t_data)))
				return TUPLE_KNOWN;
			return TUPLE_UNKNOWN;
		case HEAPTUPLE_DEAD:
			break;
	}
	return TUPLE_UNKNOWN;
}

/* Is the line pointer in use, and not dead? */
static bool
has_chain(PmhashHeapCheck *check, OffsetNumber root)
{
	ItemId		lp;

	if (root < FirstOffsetNumber || root > max_offset(check))
		return false;
	lp = PageGetItemId((Page) check->page.data, root);
	return ItemIdIsNormal(lp) || ItemIdIsRedirected(lp);
}

/*
 * Copy the page that n entries name, and classify the members of their
 * chains.  Returns the buffer, share-locked.
 */
Buffer
pmhash_check_read_page(PmhashHeapCheck *check, const PmhEntry *entry, size_t n)
{
	BlockNumber block = pmhash_value_to_block(entry->value);
	OffsetNumber member[MaxHeapTuplesPerPage];
	Buffer		buffer;

	buffer = ReadBufferExtended(check->heap, MAIN_FORKNUM, block, RBM_NORMAL,
								check->access);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(check->page.data, BufferGetPage(buffer), BLCKSZ);
	memset(check->knowledge, TUPLE_NOT_SEEN, sizeof(check->knowledge));
	for (size_t i = 0; i < n; i++)
	{
		OffsetNumber root = pmhash_value_to_offset(entry[i].value);
		int			members = has_chain(check, root) ?
			chain_members(check, root, member) : 0;

		for (int m = 0; m < members; m++)
		{
			if (check->knowledge[member[m]] == TUPLE_NOT_SEEN)
				check->knowledge[member[m]] =
					classify(check, buffer, block, member[m]);
		}
	}
	return buffer;
}

/* ---- entries ---- */

/* Does a tuple of the page copied last have an entry with this hash? */
static bool
tuple_has_hash(PmhashHeapCheck *check, BlockNumber block, OffsetNumber offset,
			   uint64 wanted)
{
	MemoryContext old = MemoryContextSwitchTo(check->econtext->ecxt_per_tuple_memory);
	HeapTupleData tuple;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	uint64		hash;
	bool		has = false;

	get_tuple(check, (Page) check->page.data, block, offset, &tuple);
	ExecStoreHeapTuple(&tuple, check->slot, false);
	if (ExecQual(check->predicate, check->econtext))
	{
		FormIndexDatum(check->indexInfo, check->slot, check->estate, values,
					   isnull);
		has = pmhash_keys_hash(check->keys, values, isnull, &hash) &&
			hash == wanted;
	}
	ExecClearTuple(check->slot);
	MemoryContextSwitchTo(old);
	ResetExprContext(check->econtext);
	return has;
}

/* Compare an entry with the members of its chain. */
static PmhashEntryCheck
compare_with_chain(PmhashHeapCheck *check, const PmhEntry *entry)
{
	OffsetNumber member[MaxHeapTuplesPerPage];
	int			n = chain_members(check, pmhash_value_to_offset(entry->value), member);
	bool		live = false;
	bool		unknown = false;

	for (int m = 0; m < n; m++)
	{
		Knowledge	knowledge = check->knowledge[member[m]];

		if (knowledge == TUPLE_UNKNOWN)
			unknown = true;
		else if (tuple_has_hash(check, pmhash_value_to_block(entry->value), member[m],
								entry->hash))
			return ENTRY_FITS;
		if (knowledge == TUPLE_LIVE)
			live = true;
	}
	if (n == 0)
		return ENTRY_WITHOUT_ROW;
	return unknown && !live ? ENTRY_FITS : ENTRY_OTHER_KEY;
}

/*
 * Compare an entry with the row that it names, in the page that
 * pmhash_check_read_page has copied.
 */
PmhashEntryCheck
pmhash_check_entry(PmhashHeapCheck *check, const PmhEntry *entry)
{
	Page		page = (Page) check->page.data;
	OffsetNumber root = pmhash_value_to_offset(entry->value);
	ItemId		lp;

	if (root < FirstOffsetNumber || root > max_offset(check))
		return ENTRY_WITHOUT_ROW;
	lp = PageGetItemId(page, root);
	if (ItemIdIsDead(lp))
		return ENTRY_FITS;
	if (!ItemIdIsUsed(lp))
		return ENTRY_WITHOUT_ROW;
	if (ItemIdIsNormal(lp) &&
		HeapTupleHeaderIsHeapOnly((HeapTupleHeader) PageGetItem(page, lp)))
		return ENTRY_HEAP_ONLY;
	return compare_with_chain(check, entry);
}

/* ---- begin and end ---- */

/*
 * pmhash_heap_check_begin
 *		Get ready to compare entries of index with rows of heap, a heap table.
 *
 * Memory comes from the current context.  snapshot: registered since before any
 * of the entries was read, and until pmhash_heap_check_end.  keys: those of the
 * index, with the seed of its file.
 */
PmhashHeapCheck *
pmhash_heap_check_begin(Relation heap, Relation index, PmhashKeys *keys,
						Snapshot snapshot)
{
	PmhashHeapCheck *check = palloc0(sizeof(PmhashHeapCheck));

	check->heap = heap;
	check->keys = keys;
	check->snapshot = snapshot;
	check->access = GetAccessStrategy(BAS_BULKREAD);
	check->indexInfo = BuildIndexInfo(index);
	check->estate = CreateExecutorState();
	check->econtext = GetPerTupleExprContext(check->estate);
	check->predicate = ExecPrepareQual(check->indexInfo->ii_Predicate,
									   check->estate);
	check->slot = MakeSingleTupleTableSlot(RelationGetDescr(heap),
										   &TTSOpsHeapTuple);
	check->econtext->ecxt_scantuple = check->slot;
	return check;
}

/* Give back all that the check holds. */
void
pmhash_heap_check_end(PmhashHeapCheck *check)
{
	ExecDropSingleTupleTableSlot(check->slot);
	FreeExecutorState(check->estate);
	FreeAccessStrategy(check->access);
	pfree(check);
}
