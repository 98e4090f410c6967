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

#include "am/am.h"
#include "am/build.h"
#include "am/fetch.h"
#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/tools.h"
#include "cluster/queue/queue.h"
#include "cluster/replay/standby_delta.h"

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

/* A scan, from slice to slice. */
typedef struct PmhashStandbyScan
{
	const PmhashStandbyBuild *build;
	TransactionId n0;
	PmhashBuildScan rows;		/* keys: of the slice; entries: found so far */
	BlockNumber next;
	BlockNumber end;			/* InvalidBlockNumber: not begun */
	TransactionId usable_xmin;	/* InvalidTransactionId: any */
} PmhashStandbyScan;

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
	Assert(TransactionIdIsNormal(deleter));
	TransactionIdAdvance(deleter);
	if (!TransactionIdIsValid(scan->usable_xmin) ||
		TransactionIdFollows(deleter, scan->usable_xmin))
		scan->usable_xmin = deleter;
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
			TransactionIdPrecedes(deleter, slice->scan->n0))
			leave_out(slice->scan, deleter);
		else
			alive = true;
	}
	Assert(!alive || OffsetNumberIsValid(chain->last));
	return alive;
}

/* Is a root that is no redirect one whose entry is to be found here? */
static bool
is_old_root(Slice *slice, Buffer buffer, OffsetNumber offset)
{
	HeapTupleData tuple;
	TransactionId xmin;
	TransactionId deleter;

	pmhash_tuple_on_page(slice->heap, BufferGetPage(buffer), slice->block, offset, &tuple);
	xmin = HeapTupleHeaderGetXmin(tuple.t_data);
	if (TransactionIdIsNormal(xmin) &&
		TransactionIdFollowsOrEquals(xmin, slice->scan->n0))
		return false;
	return HeapTupleSatisfiesVacuumHorizon(&tuple, buffer, &deleter) != HEAPTUPLE_DEAD;
}

/* List the chains of a page, and copy it. */
static void
read_page(Slice *slice, BlockNumber block)
{
	Buffer		buffer = ReadBufferExtended(slice->heap, MAIN_FORKNUM, block,
											RBM_NORMAL, slice->strategy);
	Page		page = BufferGetPage(buffer);

	slice->block = block;
	slice->n = 0;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page);
		 offset++)
	{
		Chain	   *chain = &slice->chain[slice->n];

		if (!pmhash_is_root(page, offset) ||
			(ItemIdIsNormal(PageGetItemId(page, offset)) &&
			 !is_old_root(slice, buffer, offset)))
			continue;
		chain->root = offset;
		if (judge_chain(slice, buffer, chain))
			slice->n++;
	}
	if (slice->n > 0)
		memcpy(slice->copy.data, page, BLCKSZ);
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

	pmhash_tuple_on_page(slice->heap, slice->copy.data, slice->block, chain->last, &tuple);
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
 * Scan for a while.  True when the table has been scanned.
 *
 * In a transaction, with AccessShareLock on both relations, which are to be unlocked
 * after each slice.  In the rights of the table's owner, from before the index's
 * expressions are read; see reindex_index (index.c).  ERROR if the build is over, or what
 * an expression raises.
 */
static bool
standby_scan_slice(PmhashStandbyScan *scan, Relation heap, Relation index)
{
	Slice	   *slice;
	PmhashCaller caller;
	bool		going_on;

	if (!pmhash_is_heap_table(heap))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" is no heap", RelationGetRelationName(heap))));
	slice = palloc0(sizeof(Slice));
	pmhash_be_owner(heap, &caller);

	/*
	 * With a snapshot for functions that run before there is a row: those that are
	 * IMMUTABLE, of constants, run where expressions are simplified.
	 */
	PushActiveSnapshot(GetLatestSnapshot());
	begin_slice(slice, scan, heap, index);
	PopActiveSnapshot();
	going_on = scan_pages(slice);
	end_slice(slice);
	pmhash_be_caller(&caller);
	pfree(slice);
	if (!going_on)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the build of index \"%s\" is over", RelationGetRelationName(index))));
	return scan->next >= scan->end;
}

/* Operations or entries read at a time. */
#define BATCH			4096

/* Operations of a partition after which those that do not count any more go: 8 MB. */
#define CHUNK			(1 << 18)

typedef struct PmhashStandbyFill
{
	const PmhashStandbyBuild *build;
	MemoryContext context;		/* all of this */
	size_t		memory;			/* bytes that a spool may take */
	bool		begun;			/* the scan */
	int			fillfactor;
	PmhashStandbyScan scan;
	PmhashSpool *found;			/* by the scan; NULL: none, as of the others */
	PmhashSpool *delta;			/* values with PMHASH_DELTA_DELETE */
	PmhashSpool *folded;
	uint64		folded_n;
	uint64		operations;		/* of the delta that have been folded */
} PmhashStandbyFill;

/* ---- begin and end ---- */

static PmhashSpool *
make_spool(PmhashStandbyFill *fill)
{
	PmhashSpool *spool = pmhash_spool_make(fill->context, fill->memory, 0,
										   PMHASH_SPOOL_BITS, NULL, NULL);

	pmhash_spool_outlive_transaction(spool);
	return spool;
}

static PmhashStandbyFill *
begin_fill(const PmhashStandbyBuild *build)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pmhash standby build",
												  ALLOCSET_DEFAULT_SIZES);
	PmhashStandbyFill *fill = MemoryContextAllocZero(context, sizeof(*fill));

	fill->build = build;
	fill->context = context;
	/* two spools at a time, and what is being loaded */
	fill->memory = (size_t) maintenance_work_mem * 1024 / 4;
	return fill;
}

static void
free_spool(PmhashSpool **spool)
{
	if (*spool != NULL)
		pmhash_spool_free(*spool);
	*spool = NULL;
}

static void
end_fill(PmhashStandbyFill *fill)
{
	free_spool(&fill->found);
	free_spool(&fill->delta);
	free_spool(&fill->folded);
	MemoryContextDelete(fill->context);
}

static bool
scan_slice(PmhashStandbyFill *fill, Relation heap, Relation index)
{
	bool		done;

	if (!fill->begun)
	{
		MemoryContext old = MemoryContextSwitchTo(fill->context);

		fill->found = make_spool(fill);
		fill->scan.build = fill->build;
		fill->scan.n0 = XidFromFullTransactionId(fill->build->n0);
		fill->scan.end = InvalidBlockNumber;
		pmhash_build_scan_init(&fill->scan.rows, index, fill->build->of.seed, fill->found);
		MemoryContextSwitchTo(old);
		fill->fillfactor = pmhash_fillfactor(index);
		fill->begun = true;
	}
	done = standby_scan_slice(&fill->scan, heap, index);
	pmhash_standby_progress(fill->build, PMHASH_PHASE_SCANNING, fill->scan.next,
							fill->scan.end, InvalidTransactionId);
	return done;
}

static TransactionId
usable_xmin(const PmhashStandbyFill *fill)
{
	return fill->scan.usable_xmin;
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

static int
compare_to_entry(const void *key, const void *element)
{
	return pmhash_compare_entries(key, &((const Last *) element)->entry);
}

/* Read the delta, as long as it is now. */
static void
spool_delta(PmhashStandbyFill *fill)
{
	PmhashDeltaOp *ops = MemoryContextAlloc(fill->context, BATCH * sizeof(PmhashDeltaOp));
	uint64		length = pmhash_standby_delta_length(fill->build);
	char		reason[PMHASH_REASON_SIZE];

	while (fill->operations < length)
	{
		size_t		n;

		pmhash_give_way();
		if (!pmhash_standby_read_delta(fill->build, fill->operations, ops,
									   Min(BATCH, length - fill->operations), &n, reason))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("could not read the delta of a build: %s", reason)));
		for (size_t i = 0; i < n; i++)
			pmhash_spool_add(fill->delta, ops[i].hash, ops[i].value);
		fill->operations += n;
	}
	pfree(ops);
}

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

/* What the scan has found in a partition, but for what has an operation. */
static void
fold_found(PmhashStandbyFill *fill, int partition, const Last *last, size_t n)
{
	PmhEntry   *batch = MemoryContextAlloc(fill->context, BATCH * sizeof(PmhEntry));

	while (fill->found->partition_n[partition] > 0)
	{
		uint64		count = Min(BATCH, fill->found->partition_n[partition]);

		pmhash_give_way();
		pmhash_spool_take(fill->found, partition, batch, count);
		for (uint64 i = 0; i < count; i++)
		{
			if (n == 0 ||
				bsearch(&batch[i], last, n, sizeof(Last), compare_to_entry) == NULL)
				add_folded(fill, &batch[i]);
		}
	}
	pfree(batch);
}

static void
fold_partition(PmhashStandbyFill *fill, int partition)
{
	size_t		n;
	Last	   *last = last_operations(fill, partition, &n);

	fold_found(fill, partition, last, n);
	for (size_t i = 0; i < n; i++)
	{
		if (!last[i].inserted)
			continue;
		add_folded(fill, &last[i].entry);
		addHyperLogLog(&fill->scan.rows.distinct, (uint32) last[i].entry.hash);
	}
	if (last != NULL)
		pfree(last);
}

/* Make one spool of both. */
static void
fold(PmhashStandbyFill *fill)
{
	Assert(fill->begun && fill->delta == NULL && fill->folded == NULL);
	fill->delta = make_spool(fill);
	spool_delta(fill);
	fill->folded = make_spool(fill);
	for (int i = 0; i < PMHASH_SPOOL_PARTITIONS; i++)
	{
		fold_partition(fill, i);
		pmhash_standby_progress(fill->build, PMHASH_PHASE_LOADING, i + 1,
								2 * PMHASH_SPOOL_PARTITIONS, InvalidTransactionId);
	}
	free_spool(&fill->found);
	free_spool(&fill->delta);
}

/* Fill file; returns how much of the delta is in it. */
static uint64
load(PmhashStandbyFill *fill, PmhashFile *file)
{
	PmhashBuildScan rows;

	fold(fill);
	rows = fill->scan.rows;
	rows.spool = fill->folded;
	rows.entries = fill->folded_n;
	fill->folded = NULL;		/* freed by what comes, or with the context */
	pmhash_build_load(file, fill->fillfactor, &rows);
	return fill->operations;
}

const PmhashFiller pmhash_filler = {
	.begin = begin_fill,
	.scan = scan_slice,
	.load = load,
	.usable_xmin = usable_xmin,
	.end = end_fill
};
