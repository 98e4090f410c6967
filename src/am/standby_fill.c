/*-------------------------------------------------------------------------
 *
 * standby_fill.c
 *	  Filling the file of an index on a standby: scan, fold, bulk load.
 *
 * The scan spools what it finds in the table.  Replay has put what
 * has happened to entries meanwhile into the delta: it is spooled too, into the same
 * partitions.  The fold goes through these one by one.  The last operation on an
 * entry decides, which is a pair of hash and TID: what the scan has found is dropped
 * if there is one, and what was inserted last is added.  So what both have comes out
 * once, and what was deleted and inserted again as it is in the end.
 *
 * What the fold gives is loaded as any build does (build.c).  Operations that come
 * after the fold has begun are applied to the loaded file (cluster/replay/standby_build.c).
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
 */

/* Operations or entries read at a time. */
#define BATCH			4096

/* Operations of a partition after which those that do not count any more go: 8 MB. */
#define CHUNK			(1 << 18)

/* ms, for which locks are held at a time: so long does replay of DDL wait for us. */
#define SLICE			200

/* What outlives transactions; see PmhashFiller. */
typedef struct PmhashStandbyFill
{
	const PmhashStandbyBuild *build;
	MemoryContext context;		/* all of this */
	size_t		memory;			/* bytes that a spool may take */
	int			fillfactor;

	/* the scan, from slice to slice */
	TransactionId n0;
	PmhashBuildScan rows;		/* keys: of the slice; entries: found so far */
	BlockNumber next;
	BlockNumber end;			/* InvalidBlockNumber: not begun */
	TransactionId usable_xmin;	/* InvalidTransactionId: any */

	PmhashSpool *found;			/* by the scan */
	PmhashSpool *delta;			/* values with PMHASH_DELTA_DELETE */
	PmhashSpool *folded;
	uint64		folded_n;
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

static PmhashSpool *
make_spool(PmhashStandbyFill *fill)
{
	PmhashSpool *spool = pmhash_spool_make(fill->context, fill->memory, 0,
										   PMHASH_SPOOL_BITS, NULL, NULL);

	pmhash_spool_outlive_transaction(spool);
	return spool;
}

static PmhashStandbyFill *
begin_fill(const PmhashStandbyBuild *build, Relation index)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext,
												  "pmhash standby build",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PmhashStandbyFill *fill = palloc0(sizeof(*fill));

	fill->build = build;
	fill->context = context;
	/* two spools at a time, and what is being loaded */
	fill->memory = (size_t) maintenance_work_mem * 1024 / 4;
	fill->fillfactor = pmhash_fillfactor(index);
	fill->n0 = XidFromFullTransactionId(build->n0);
	fill->end = InvalidBlockNumber;
	fill->found = make_spool(fill);
	pmhash_build_scan_init(&fill->rows, index, build->of.seed, fill->found);
	MemoryContextSwitchTo(old);
	return fill;
}

/*
 * Scan for a while.  In the rights of the table's owner, from before the index's
 * expressions are read; see reindex_index (index.c).  ERROR if the build is over, or what
 * an expression raises.
 */
static bool
scan_slice(PmhashStandbyFill **at, const PmhashStandbyBuild *build, Relation heap,
		   Relation index)
{
	PmhashStandbyFill *fill = *at;
	int64		begun = pmhash_clock_ms();
	BlockNumber blocks = RelationGetNumberOfBlocks(heap);
	Slice	   *slice;
	PmhashCaller caller;

	Assert(IsTransactionState() && RecoveryInProgress());
	Assert(CheckRelationLockedByMe(heap, AccessShareLock, true));
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (!pmhash_is_heap_table(heap))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" is no heap", RelationGetRelationName(heap))));
	if (fill == NULL)
		fill = *at = begin_fill(build, index);
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
	fill->rows.keys = pmhash_keys_make(index, build->of.seed);
	PopActiveSnapshot();

	/* Pages that are added later have rows of transactions from N0 on, only. */
	fill->end = Min(fill->end, blocks);
	while (fill->next < fill->end && !pmhash_clock_past(begun, SLICE))
	{
		pmhash_give_way();
		if (!pmhash_standby_building(build))
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
	pmhash_standby_progress(build, PMHASH_PHASE_SCANNING, fill->next, fill->end,
							InvalidTransactionId);
	return fill->next >= fill->end;
}

/* ---- the fold ---- */

/* The last operation on an entry. */
typedef struct Last
{
	PmhEntry	entry;
	uint64		number;			/* within its partition */
	bool		inserted;
} Last;

/* By entry, and the newest first. */
static int
compare_operations(const Last *a, const Last *b)
{
	int			order = pmhash_compare_entries(&a->entry, &b->entry);

	if (order != 0)
		return order;
	return a->number > b->number ? -1 : 1;
}

#define ST_SORT sort_operations
#define ST_ELEMENT_TYPE Last
#define ST_COMPARE(a, b) compare_operations(a, b)
#define ST_SCOPE static
#define ST_CHECK_FOR_INTERRUPTS
#define ST_DEFINE
#include "lib/sort_template.h"

/* Sort, and leave the last operation on each entry; returns how many there are. */
static size_t
keep_last(Last *last, size_t n)
{
	size_t		kept = 0;

	sort_operations(last, n);
	for (size_t i = 0; i < n; i++)
	{
		if (kept == 0 ||
			pmhash_compare_entries(&last[kept - 1].entry, &last[i].entry) != 0)
			last[kept++] = last[i];
	}
	return kept;
}

/*
 * The last operation on each entry of a partition, sorted; *n of them, or NULL.  All
 * of a key are in one partition, and there may be many that come and go while a build
 * waits (a job queue): so memory is taken for those that count, not for all.
 */
static Last *
last_operations(PmhashStandbyFill *fill, int partition, size_t *n)
{
	uint64		all = fill->delta->partition_n[partition];
	size_t		capacity = Min(all, CHUNK);
	PmhEntry   *batch;
	Last	   *last;

	*n = 0;
	Assert(partition >= 0 && partition < PMHASH_SPOOL_PARTITIONS);
	if (all == 0)
		return NULL;
	batch = MemoryContextAlloc(fill->context, BATCH * sizeof(PmhEntry));
	last = MemoryContextAllocHuge(fill->context, capacity * sizeof(Last));
	for (uint64 at = 0; at < all; at += BATCH)
	{
		size_t		count = Min(BATCH, all - at);

		pmhash_give_way();
		if (*n + count > capacity)
		{
			*n = keep_last(last, *n);
			if (*n > capacity / 2)
			{
				capacity *= 2;
				last = repalloc_huge(last, capacity * sizeof(Last));
			}
		}
		pmhash_spool_take(fill->delta, partition, batch, count);
		for (size_t i = 0; i < count; i++)
			last[(*n)++] = (Last) {
				.entry = {batch[i].hash, batch[i].value & ~PMHASH_DELTA_DELETE},
				.inserted = (batch[i].value & PMHASH_DELTA_DELETE) == 0,
				.number = at + i
			};
	}
	*n = keep_last(last, *n);
	pfree(batch);
	return last;
}

static void
add_folded(PmhashStandbyFill *fill, const PmhEntry *entry)
{
	pmhash_spool_add(fill->folded, entry->hash, entry->value);
	fill->folded_n++;
}

/* What the scan has found in a partition, but for what has an operation; and those. */
static void
fold_partition(PmhashStandbyFill *fill, int partition)
{
	PmhEntry   *batch = MemoryContextAlloc(fill->context, BATCH * sizeof(PmhEntry));
	size_t		n;
	Last	   *last = last_operations(fill, partition, &n);

	while (fill->found->partition_n[partition] > 0)
	{
		uint64		count = Min(BATCH, fill->found->partition_n[partition]);

		pmhash_give_way();
		pmhash_spool_take(fill->found, partition, batch, count);
		for (uint64 i = 0; i < count; i++)
		{
			if (n == 0 ||
				bsearch(&batch[i], last, n, sizeof(Last), pmhash_compare_entries) == NULL)
				add_folded(fill, &batch[i]);
		}
	}
	pfree(batch);
	for (size_t i = 0; i < n; i++)
	{
		if (!last[i].inserted)
			continue;
		add_folded(fill, &last[i].entry);
		addHyperLogLog(&fill->rows.distinct, (uint32) last[i].entry.hash);
	}
	if (last != NULL)
		pfree(last);
}

/*
 * Make one spool of both, and fill the file of that.  Returns how many operations of the
 * delta are in it.
 */
static uint64
load(PmhashStandbyFill *fill, PmhashFile *file, TransactionId *usable_xmin)
{
	PmhashDeltaOp *ops = MemoryContextAlloc(fill->context, BATCH * sizeof(PmhashDeltaOp));
	uint64		length = pmhash_standby_delta_length(fill->build);	/* as it is now */
	uint64		operations = 0;
	char		reason[PMHASH_REASON_SIZE];
	PmhashBuildScan rows;

	Assert(IsTransactionState() && !ActiveSnapshotSet());
	Assert(fill->next >= fill->end && fill->delta == NULL);
	fill->delta = make_spool(fill);
	while (operations < length)
	{
		size_t		n = Min(BATCH, length - operations);

		pmhash_give_way();
		if (!pmhash_standby_read_delta(fill->build, operations, ops, n, reason))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("could not read the delta of a build: %s", reason)));
		for (size_t i = 0; i < n; i++)
			pmhash_spool_add(fill->delta, ops[i].hash, ops[i].value);
		operations += n;
	}
	pfree(ops);
	fill->folded = make_spool(fill);
	for (int i = 0; i < PMHASH_SPOOL_PARTITIONS; i++)
	{
		fold_partition(fill, i);
		pmhash_standby_progress(fill->build, PMHASH_PHASE_LOADING, i + 1,
								2 * PMHASH_SPOOL_PARTITIONS, InvalidTransactionId);
	}
	pmhash_spool_free(fill->found);
	pmhash_spool_free(fill->delta);
	rows = fill->rows;
	rows.spool = fill->folded;
	rows.entries = fill->folded_n;
	pmhash_build_load(file, fill->fillfactor, &rows);	/* frees that spool */
	*usable_xmin = fill->usable_xmin;
	MemoryContextDelete(fill->context);
	return operations;
}

const PmhashFiller pmhash_filler = {scan_slice, load};
