/*-------------------------------------------------------------------------
 *
 * standby_scan.c
 *	  The scan of a table from which a standby builds the file of an index.
 *
 * It goes on beside replay, page by page under a share lock, and by no snapshot:
 * which entries the file is to have is a matter of line pointers, not of rows that
 * some snapshot sees.  N0 is the next transaction id when the delta began; all
 * transactions before it are over when the scan begins (standby_build.c).  Hence:
 *
 *	- An entry that was made before the delta belongs to a transaction before N0.
 *	  Its root line pointer is found here, unless VACUUM has freed it, or is about
 *	  to: then its DELETE is in the delta, or was replayed before that.
 *	- A root with xmin >= N0 is left out: its INSERT is in the delta, or will be.
 *	  If it has been frozen, or has become a redirect, it is taken, as that does not
 *	  tell; its INSERT came before its commit, so it is in the delta too, and the
 *	  fold makes one of both.
 *	- A root whose transaction was aborted is left out: no snapshot will see it, and
 *	  VACUUM may have removed its entry before the delta began, and be about to
 *	  free its line pointer, which WAL of ours does not say.
 *	- A chain of which all members were dead as of N0 (their deleters are before N0
 *	  and have committed) is left out for the same reason.  Snapshots that are older
 *	  than one of these deleters might see such a row: they must not use the file.
 *	- Any other chain is taken, with the key of its last member that is not aborted:
 *	  a HOT update that is newer than N0 keeps the chain alive, and has no INSERT.
 *
 * All this is modelled, and each rule is needed: test/models/standby_build.py.
 *
 * The tuples' states come from HeapTupleSatisfiesVacuumHorizon (heapam_visibility.c):
 * HEAPTUPLE_DEAD says that the inserter was aborted, HEAPTUPLE_RECENTLY_DEAD that the
 * deleter has committed, and which one it is; with multixacts too.
 *
 * Keys are taken from a copy of the page, with no lock and no pin, which would hold
 * replay up.  Values that are stored out of line need a snapshot, taken before the
 * page is read: as long as it is held, replay does not remove chunks of rows that
 * it sees, without cancelling us first.  A row whose deleter has committed by then
 * may have lost them; it is left out as if dead as of N0, with the same consequence
 * for older snapshots.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "storage/bufmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "am/standby_scan.h"
#include "cluster/as_owner.h"
#include "cluster/clock.h"
#include "cluster/give_way.h"
#include "cluster/heap_table.h"

/* ms, for which locks are held at a time: so long does replay of DDL wait for us. */
#define SLICE			200

/* A chain that is taken. */
typedef struct Chain
{
	OffsetNumber root;
	OffsetNumber last;			/* whose key it is */
	TransactionId deleter;		/* of the last one, if that has committed */
} Chain;

/* What a slice has of a page, and what lasts as long as the slice. */
typedef struct Slice
{
	PmhashStandbyScan *scan;
	Relation	heap;
	Relation	index;
	IndexInfo  *info;
	ExprState  *predicate;
	EState	   *estate;
	TupleTableSlot *slot;
	BufferAccessStrategy strategy;

	/* of the page at hand */
	BlockNumber block;
	int			n;
	Chain		chain[MaxHeapTuplesPerPage];
	PGAlignedBlock copy;
} Slice;

/* ---- which chains ---- */

/* Rows deleted by this transaction, which has committed, have been left out. */
static void
leave_out(PmhashStandbyScan *scan, TransactionId deleter)
{
	TransactionIdAdvance(deleter);
	if (!TransactionIdIsValid(scan->usable_xmin) ||
		TransactionIdFollows(deleter, scan->usable_xmin))
		scan->usable_xmin = deleter;
}

static void
get_tuple(Slice *slice, Page page, OffsetNumber offset, HeapTuple tuple)
{
	ItemId		lp = PageGetItemId(page, offset);

	tuple->t_data = (HeapTupleHeader) PageGetItem(page, lp);
	tuple->t_len = ItemIdGetLength(lp);
	tuple->t_tableOid = RelationGetRelid(slice->heap);
	ItemPointerSet(&tuple->t_self, slice->block, offset);
}

/*
 * Follow the chain from its first member on, as heap_hot_search_buffer (heapam.c)
 * does, but through aborted members as well.  False if it is to be left out.
 */
static bool
judge_chain(Slice *slice, Buffer buffer, OffsetNumber offset, Chain *chain)
{
	Page		page = BufferGetPage(buffer);
	TransactionId prior = InvalidTransactionId;
	bool		alive = false;

	chain->last = InvalidOffsetNumber;
	while (offset >= FirstOffsetNumber && offset <= PageGetMaxOffsetNumber(page) &&
		   ItemIdIsNormal(PageGetItemId(page, offset)))
	{
		HeapTupleData tuple;
		TransactionId deleter;
		HTSV_Result state;

		get_tuple(slice, page, offset, &tuple);
		if (TransactionIdIsValid(prior) &&
			!TransactionIdEquals(prior, HeapTupleHeaderGetXmin(tuple.t_data)))
			break;
		state = HeapTupleSatisfiesVacuumHorizon(&tuple, buffer, &deleter);
		if (state != HEAPTUPLE_DEAD)
		{
			chain->last = offset;
			chain->deleter = state == HEAPTUPLE_RECENTLY_DEAD ? deleter
				: InvalidTransactionId;
			if (state == HEAPTUPLE_RECENTLY_DEAD &&
				TransactionIdPrecedes(deleter, slice->scan->n0))
				leave_out(slice->scan, deleter);
			else
				alive = true;
		}
		if (!HeapTupleHeaderIsHotUpdated(tuple.t_data))
			break;
		prior = HeapTupleHeaderGetUpdateXid(tuple.t_data);
		offset = ItemPointerGetOffsetNumber(&tuple.t_data->t_ctid);
	}
	return alive;
}

/* Is a root that is no redirect one whose entry is to be found here? */
static bool
is_old_root(Slice *slice, Buffer buffer, OffsetNumber offset)
{
	HeapTupleData tuple;
	TransactionId xmin;
	TransactionId deleter;

	get_tuple(slice, BufferGetPage(buffer), offset, &tuple);
	if (HeapTupleHeaderIsHeapOnly(tuple.t_data))
		return false;
	xmin = HeapTupleHeaderGetXmin(tuple.t_data);
	if (TransactionIdIsNormal(xmin) &&
		TransactionIdFollowsOrEquals(xmin, slice->scan->n0))
		return false;
	return HeapTupleSatisfiesVacuumHorizon(&tuple, buffer, &deleter) != HEAPTUPLE_DEAD;
}

/* List the chains of a page, whose buffer is locked. */
static void
list_chains(Slice *slice, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	slice->n = 0;
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId		lp = PageGetItemId(page, offset);
		OffsetNumber first = offset;
		Chain	   *chain = &slice->chain[slice->n];

		if (ItemIdIsRedirected(lp))
			first = ItemIdGetRedirect(lp);
		else if (!ItemIdIsNormal(lp) || !is_old_root(slice, buffer, offset))
			continue;
		chain->root = offset;
		if (judge_chain(slice, buffer, first, chain))
			slice->n++;
	}
}

/* Copy a page and list its chains. */
static void
read_page(Slice *slice, BlockNumber block)
{
	Buffer		buffer = ReadBufferExtended(slice->heap, MAIN_FORKNUM, block,
											RBM_NORMAL, slice->strategy);

	slice->block = block;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	list_chains(slice, buffer);
	if (slice->n > 0)
		memcpy(slice->copy.data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
}

/* ---- their keys ---- */

/* Spool a chain, in the memory of a tuple. */
static void
spool_chain(Slice *slice, const Chain *chain)
{
	ExprContext *econtext = GetPerTupleExprContext(slice->estate);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	HeapTupleData tuple;

	get_tuple(slice, slice->copy.data, chain->last, &tuple);
	if (TransactionIdIsValid(chain->deleter) && HeapTupleHasExternal(&tuple))
	{
		leave_out(slice->scan, chain->deleter);
		return;
	}
	ExecStoreHeapTuple(&tuple, slice->slot, false);
	econtext->ecxt_scantuple = slice->slot;
	if (slice->predicate != NULL && !ExecQual(slice->predicate, econtext))
		return;
	FormIndexDatum(slice->info, slice->slot, slice->estate, values, isnull);
	ItemPointerSetOffsetNumber(&tuple.t_self, chain->root);
	pmhash_spool_row(slice->index, &tuple.t_self, values, isnull, true,
					 &slice->scan->rows);
}

static void
scan_page(Slice *slice, BlockNumber block)
{
	PushActiveSnapshot(GetLatestSnapshot());
	read_page(slice, block);
	for (int i = 0; i < slice->n; i++)
	{
		MemoryContext row = GetPerTupleMemoryContext(slice->estate);
		MemoryContext old = MemoryContextSwitchTo(row);

		spool_chain(slice, &slice->chain[i]);
		MemoryContextSwitchTo(old);
		ResetExprContext(GetPerTupleExprContext(slice->estate));
	}
	PopActiveSnapshot();
	/* else what the catalogs were read with would hold replay up */
	InvalidateCatalogSnapshot();
}

/* ---- slices ---- */

/*
 * pmhash_standby_scan_init
 *		Get a scan ready whose entries go to spool.
 *
 * Memory is taken from the current context, and must last as long as the scan.
 */
void
pmhash_standby_scan_init(PmhashStandbyScan *scan, const PmhashStandbyBuild *build,
						 Relation index, PmhashSpool *spool)
{
	memset(scan, 0, sizeof(*scan));
	scan->build = build;
	scan->n0 = XidFromFullTransactionId(build->n0);
	scan->end = InvalidBlockNumber;
	pmhash_build_scan_init(&scan->rows, index, build->of.seed, spool);
}

static void
begin_slice(Slice *slice, PmhashStandbyScan *scan, Relation heap, Relation index)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(heap);

	slice->scan = scan;
	slice->heap = heap;
	slice->index = index;
	slice->info = BuildIndexInfo(index);
	slice->estate = CreateExecutorState();
	slice->predicate = ExecPrepareQual(slice->info->ii_Predicate, slice->estate);
	slice->slot = MakeSingleTupleTableSlot(RelationGetDescr(heap), &TTSOpsHeapTuple);
	slice->strategy = GetAccessStrategy(BAS_BULKREAD);
	scan->rows.keys = pmhash_keys_make(index, scan->build->of.seed);

	/* Pages that are added later have rows of transactions from N0 on, only. */
	scan->end = Min(scan->end, blocks);
}

static void
end_slice(Slice *slice)
{
	ExecDropSingleTupleTableSlot(slice->slot);
	FreeExecutorState(slice->estate);
	FreeAccessStrategy(slice->strategy);
	slice->scan->rows.keys = NULL;	/* it went with the transaction */
}

/* Pages until the slice is over, or the table; false if the build is over. */
static bool
scan_pages(Slice *slice)
{
	PmhashStandbyScan *scan = slice->scan;
	int64		begun = pmhash_clock_ms();

	while (scan->next < scan->end && !pmhash_clock_past(begun, SLICE))
	{
		pmhash_give_way();
		if (!pmhash_standby_building(scan->build))
			return false;
		scan_page(slice, scan->next++);
	}
	return true;
}

/*
 * What the index's functions need that run before there is a row: those that are
 * IMMUTABLE, of constants, run where expressions are simplified, which is in
 * begin_slice already.
 */
static void
begin_with_snapshot(Slice *slice, PmhashStandbyScan *scan, Relation heap, Relation index)
{
	PushActiveSnapshot(GetLatestSnapshot());
	begin_slice(slice, scan, heap, index);
	PopActiveSnapshot();
}

/*
 * In the rights of the table's owner, from before the index's expressions are read; see
 * reindex_index (index.c).
 */
static bool
scan_as_owner(PmhashStandbyScan *scan, Relation heap, Relation index)
{
	Slice	   *slice = palloc0(sizeof(Slice));
	PmhashCaller caller;
	bool		going_on;

	pmhash_be_owner(heap, &caller);
	begin_with_snapshot(slice, scan, heap, index);
	going_on = scan_pages(slice);
	end_slice(slice);
	pmhash_be_caller(&caller);
	pfree(slice);
	return going_on;
}

/*
 * pmhash_standby_scan_slice
 *		Scan for a while.  True when the table has been scanned.
 *
 * In a transaction, with AccessShareLock on both relations, which are to be unlocked
 * after each slice.  ERROR if the build is over, or what an expression raises.
 */
bool
pmhash_standby_scan_slice(PmhashStandbyScan *scan, Relation heap, Relation index)
{
	if (!pmhash_is_heap_table(heap))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" is no heap", RelationGetRelationName(heap))));
	if (!scan_as_owner(scan, heap, index))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the build of index \"%s\" is over", RelationGetRelationName(index))));
	return scan->next >= scan->end;
}
