/*-------------------------------------------------------------------------
 *
 * standby_fill.c
 *	  Filling the file of an index on a standby: scan and bulk load.
 *
 * What the scan has found is loaded as any build does (build.c).  What has happened to
 * entries meanwhile is in the delta, which is applied to the loaded file
 * (cluster/replay/standby_build.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/transam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "am/build.h"
#include "am/fetch.h"
#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/tools.h"
#include "cluster/queue/queue.h"

/*
 * The scan of a table from which a standby builds the file of an index.
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
 *	  tell; its INSERT came before its commit, so it is in the delta too, before the
 *	  end of the scan, and is made one of both (standby_build.c, apply_ops).
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
 */

/* ms, for which locks are held at a time: so long does replay of DDL wait for us. */
#define SLICE			200

/* What outlives transactions; see PmhashFiller. */
typedef struct PmhashStandbyFill
{
	MemoryContext context;		/* all of this */
	int			fillfactor;

	/* the scan, from slice to slice */
	TransactionId n0;
	PmhashBuildScan rows;		/* keys: of the slice; entries: found so far */
	BlockNumber next;
	BlockNumber end;			/* InvalidBlockNumber: not begun */
	TransactionId usable_xmin;	/* InvalidTransactionId: any */
} PmhashStandbyFill;

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
	PmhashStandbyFill *fill;
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
leave_out(PmhashStandbyFill *fill, TransactionId deleter)
{
	Assert(TransactionIdIsNormal(deleter));
	TransactionIdAdvance(deleter);
	if (!TransactionIdIsValid(fill->usable_xmin) ||
		TransactionIdFollows(deleter, fill->usable_xmin))
		fill->usable_xmin = deleter;
}

/*
 * Judge the members of the chain, aborted ones too.  False if it is to be left out.
 */
static bool
judge_chain(Slice *slice, Buffer buffer, Chain *chain)
{
	OffsetNumber member[MaxHeapTuplesPerPage];
	int			n = pmhash_chain_members(BufferGetPage(buffer), chain->root, member);
	bool		alive = false;

	chain->last = InvalidOffsetNumber;
	for (int i = 0; i < n; i++)
	{
		HeapTupleData tuple;
		TransactionId deleter;
		HTSV_Result state;

		pmhash_tuple_on_page(slice->heap, BufferGetPage(buffer), slice->block, member[i],
							 &tuple);
		state = HeapTupleSatisfiesVacuumHorizon(&tuple, buffer, &deleter);
		if (state == HEAPTUPLE_DEAD)
			continue;
		chain->last = member[i];
		chain->deleter = state == HEAPTUPLE_RECENTLY_DEAD ? deleter : InvalidTransactionId;
		if (state == HEAPTUPLE_RECENTLY_DEAD &&
			TransactionIdPrecedes(deleter, slice->fill->n0))
			leave_out(slice->fill, deleter);
		else
			alive = true;
	}
	Assert(!alive || OffsetNumberIsValid(chain->last));
	return alive;
}

/* Spool a chain, in the memory of a tuple. */
static void
spool_chain(Slice *slice, const Chain *chain)
{
	ExprContext *econtext = GetPerTupleExprContext(slice->estate);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	HeapTupleData tuple;

	pmhash_tuple_on_page(slice->heap, slice->copy.data, slice->block, chain->last, &tuple);
	if (TransactionIdIsValid(chain->deleter) && HeapTupleHasExternal(&tuple))
	{
		leave_out(slice->fill, chain->deleter);
		return;
	}
	ExecStoreHeapTuple(&tuple, slice->slot, false);
	econtext->ecxt_scantuple = slice->slot;
	if (slice->predicate != NULL && !ExecQual(slice->predicate, econtext))
		return;
	FormIndexDatum(slice->info, slice->slot, slice->estate, values, isnull);
	ItemPointerSetOffsetNumber(&tuple.t_self, chain->root);
	pmhash_spool_row(slice->index, &tuple.t_self, values, isnull, true,
					 &slice->fill->rows);
}

/* List the chains of a page, copy it, and spool them. */
static void
scan_page(Slice *slice, BlockNumber block)
{
	Buffer		buffer;
	Page		page;

	PushActiveSnapshot(GetLatestSnapshot());
	buffer = ReadBufferExtended(slice->heap, MAIN_FORKNUM, block, RBM_NORMAL,
								slice->strategy);
	page = BufferGetPage(buffer);
	slice->block = block;
	slice->n = 0;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page);
		 offset++)
	{
		Chain	   *chain = &slice->chain[slice->n];

		if (!pmhash_is_root(page, offset))
			continue;
		/* is a root that is no redirect one whose entry is to be found here? */
		if (ItemIdIsNormal(PageGetItemId(page, offset)))
		{
			HeapTupleData tuple;
			TransactionId xmin;
			TransactionId deleter;

			pmhash_tuple_on_page(slice->heap, page, block, offset, &tuple);
			xmin = HeapTupleHeaderGetXmin(tuple.t_data);
			if ((TransactionIdIsNormal(xmin) &&
				 TransactionIdFollowsOrEquals(xmin, slice->fill->n0)) ||
				HeapTupleSatisfiesVacuumHorizon(&tuple, buffer, &deleter) == HEAPTUPLE_DEAD)
				continue;
		}
		chain->root = offset;
		if (judge_chain(slice, buffer, chain))
			slice->n++;
	}
	if (slice->n > 0)
		memcpy(slice->copy.data, page, BLCKSZ);
	UnlockReleaseBuffer(buffer);
	for (int i = 0; i < slice->n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(GetPerTupleMemoryContext(slice->estate));

		spool_chain(slice, &slice->chain[i]);
		MemoryContextSwitchTo(old);
		ResetExprContext(GetPerTupleExprContext(slice->estate));
	}
	PopActiveSnapshot();
	/* else what the catalogs were read with would hold replay up */
	InvalidateCatalogSnapshot();
}

/* ---- slices ---- */

static PmhashStandbyFill *
begin_fill(TransactionId n0, PmhashSeed seed, Relation index)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext,
												  "pmhash standby build",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PmhashStandbyFill *fill = palloc0(sizeof(*fill));
	/* half of the memory is for what is being loaded */
	PmhashSpool *spool = pmhash_spool_make(context, (size_t) maintenance_work_mem * 1024 / 2,
										   0, PMHASH_SPOOL_BITS, NULL, NULL);

	pmhash_spool_outlive_transaction(spool);
	fill->context = context;
	fill->fillfactor = pmhash_fillfactor(index);
	fill->n0 = n0;
	fill->end = InvalidBlockNumber;
	pmhash_build_scan_init(&fill->rows, index, seed, spool);
	MemoryContextSwitchTo(old);
	return fill;
}

/*
 * Scan for a while.  In the rights of the table's owner, from before the index's
 * expressions are read; see reindex_index (index.c).  ERROR if the build is over, or what
 * an expression raises.
 */
static bool
scan_slice(PmhashStandbyFill **at, TransactionId n0, PmhashSeed seed, Relation heap,
		   Relation index)
{
	PmhashStandbyFill *fill = *at;
	int64		begun = pmhash_clock_ms();
	BlockNumber blocks = RelationGetNumberOfBlocks(heap);
	Slice	   *slice;
	PmhashCaller caller;

	Assert(IsTransactionState());	/* recovery may be over since a lock was waited for */
	Assert(CheckRelationLockedByMe(heap, AccessShareLock, true));
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (!pmhash_is_heap_table(heap))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" is no heap", RelationGetRelationName(heap))));
	if (fill == NULL)
		fill = *at = begin_fill(n0, seed, index);
	slice = palloc0(sizeof(Slice));
	pmhash_be_owner(heap, &caller);

	/*
	 * With a snapshot for functions that run before there is a row: those that are
	 * IMMUTABLE, of constants, run where expressions are simplified.
	 */
	PushActiveSnapshot(GetLatestSnapshot());
	slice->fill = fill;
	slice->heap = heap;
	slice->index = index;
	slice->info = BuildIndexInfo(index);
	slice->estate = CreateExecutorState();
	slice->predicate = ExecPrepareQual(slice->info->ii_Predicate, slice->estate);
	slice->slot = MakeSingleTupleTableSlot(RelationGetDescr(heap), &TTSOpsHeapTuple);
	slice->strategy = GetAccessStrategy(BAS_BULKREAD);
	fill->rows.keys = pmhash_keys_make(index, seed);
	PopActiveSnapshot();

	/* Pages that are added later have rows of transactions from N0 on, only. */
	fill->end = Min(fill->end, blocks);
	while (fill->next < fill->end && !pmhash_clock_past(begun, SLICE))
	{
		pmhash_give_way();
		if (!pmhash_standby_building())
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the build of index \"%s\" is over", RelationGetRelationName(index))));
		scan_page(slice, fill->next++);
	}
	ExecDropSingleTupleTableSlot(slice->slot);
	FreeExecutorState(slice->estate);
	FreeAccessStrategy(slice->strategy);
	fill->rows.keys = NULL;		/* it goes with the transaction */
	pmhash_be_caller(&caller);
	pfree(slice);
	pmhash_standby_progress(fill->next, fill->end, InvalidTransactionId);
	return fill->next >= fill->end;
}

static void
load(PmhashStandbyFill *fill, PmhashFile *file, TransactionId *usable_xmin)
{
	Assert(IsTransactionState() && !ActiveSnapshotSet());
	Assert(fill->next >= fill->end);
	pmhash_build_load(file, fill->fillfactor, &fill->rows); /* frees the spool */
	*usable_xmin = fill->usable_xmin;
	MemoryContextDelete(fill->context);
}

const PmhashFiller pmhash_standby_filler = {scan_slice, load};
