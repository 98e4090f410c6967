/*-------------------------------------------------------------------------
 *
 * build_scan.c
 *	  The scan of the table for an index build, alone or with workers.
 *
 * The server decides how many workers an index build may have only for btree
 * (index.c, index_build); we call plan_create_index_workers, and follow
 * nbtsort.c in how they are started and ended.  Workers hash and partition what
 * they scan; so does the leader.  Workers know nothing of the index file but
 * the seed of its hash.  They hand their spools over in shared temporary files
 * (spool.c) and are gone before the leader loads.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/parallel.h"
#include "access/table.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "optimizer/optimizer.h"
#include "pgstat.h"
#include "storage/sharedfileset.h"
#include "tcop/tcopprot.h"
#include "utils/backend_progress.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "am/build.h"
#include "am/fetch.h"
#include "cluster/base/relations.h"
#include "cluster/queue/queue.h"

/*
 * The scan of a heap for an index build, a page at a time.
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
 */

/* Blocks that a process takes from a range at a time. */
#define PIECE			256

/* Tuples ahead of the one at hand that are prefetched. */
#define PREFETCH		12

/* Blocks of a table, given out a piece at a time to all processes that scan it. */
typedef struct BlockRange
{
	BlockNumber nblocks;
	pg_atomic_uint64 next;		/* not given out yet */
} BlockRange;

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

/* May an index on heap be built page by page? */
static bool
can_scan_pages(Relation heap, IndexInfo *indexInfo)
{
	Assert(indexInfo->ii_Concurrent || CheckRelationLockedByMe(heap, ShareLock, true));
	return pmhash_is_heap_table(heap) &&
		!indexInfo->ii_Concurrent &&
		indexInfo->ii_Expressions == NIL &&
		indexInfo->ii_Predicate == NIL;
}

static inline HeapTupleHeader
tuple_at(Page page, OffsetNumber offset)
{
	return (HeapTupleHeader) PageGetItem(page, PageGetItemId(page, offset));
}

/* Hand a tuple's columns to the callback, with the root of its HOT chain. */
static void
pass_tuple(PageScan *scan, QuietPage *quiet, BlockNumber block, OffsetNumber offset)
{
	IndexInfo  *info = scan->indexInfo;
	TupleDesc	columns = RelationGetDescr(scan->heap);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	HeapTupleData tuple;

	pmhash_tuple_on_page(scan->heap, quiet->page, block, offset, &tuple);
	for (int i = 0; i < info->ii_NumIndexAttrs; i++)
		values[i] = pmhash_column(&tuple, info->ii_IndexAttrNumbers[i], columns,
								 &isnull[i]);
	if (HeapTupleIsHeapOnly(&tuple))
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
									 block, offset, RelationGetRelationName(scan->heap))));
		ItemPointerSetOffsetNumber(&tuple.t_self, quiet->root[offset - 1]);
	}
	scan->callback(scan->index, &tuple.t_self, values, isnull, true, scan->state);
}

/* Read a page.  False, and nothing is passed on, if it is not quiet. */
static bool
scan_quiet_page(PageScan *scan, BlockNumber block)
{
	QuietPage	quiet;
	OffsetNumber last;
	bool		all_visible;
	bool		is_quiet = true;

	quiet.buffer = ReadBufferExtended(scan->heap, MAIN_FORKNUM, block,
									  RBM_NORMAL, scan->access);
	quiet.page = BufferGetPage(quiet.buffer);
	quiet.n = 0;
	quiet.roots_known = false;
	LockBuffer(quiet.buffer, BUFFER_LOCK_SHARE);
	last = PageGetMaxOffsetNumber(quiet.page);
	all_visible = PageIsAllVisible(quiet.page);
	for (OffsetNumber offset = FirstOffsetNumber; is_quiet && offset <= last; offset++)
	{
		if (!ItemIdIsNormal(PageGetItemId(quiet.page, offset)))
			continue;
		if (!all_visible)
		{
			HeapTupleHeader tuple = tuple_at(quiet.page, offset);

			/* do the hint bits alone say that it is alive? */
			is_quiet = HeapTupleHeaderXminCommitted(tuple) &&
				(tuple->t_infomask & HEAP_XMAX_INVALID) != 0;
		}
		quiet.offset[quiet.n++] = offset;
	}
	LockBuffer(quiet.buffer, BUFFER_LOCK_UNLOCK);
	for (int i = 0; is_quiet && i < quiet.n; i++)
	{
		if (i + PREFETCH < quiet.n)
			__builtin_prefetch(tuple_at(quiet.page, quiet.offset[i + PREFETCH]));
		pgstat_count_heap_getnext(scan->heap);
		pass_tuple(scan, &quiet, block, quiet.offset[i]);
	}
	if (is_quiet)
		scan->rows += quiet.n;
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

/*
 * Scan what is left of range, together with all processes that share it: each
 * piece of it is scanned by one of them, and pages that are not quiet wait for their
 * neighbours.  Calls callback for every row as table_index_build_scan would; returns how
 * many there were.  progress: count blocks in pg_stat_progress_create_index.
 */
static double
scan_blocks(Relation heap, Relation index, IndexInfo *indexInfo,
				  BlockRange *range, bool progress,
				  IndexBuildCallback callback, void *state)
{
	PageScan	scan = {0};
	uint64		from;

	Assert(pmhash_is_heap_table(heap) && !indexInfo->ii_Concurrent);
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

		for (BlockNumber block = (BlockNumber) from; block < to; block++)
		{
			CHECK_FOR_INTERRUPTS();
			if (scan_quiet_page(&scan, block))
				scan_noisy_pages(&scan);
			else if (scan.noisy_n++ == 0)
				scan.noisy_from = block;
		}
		scan_noisy_pages(&scan);
		if (progress)
			pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, to);
	}
	if (scan.access != NULL)
		FreeAccessStrategy(scan.access);
	return scan.rows;
}

/* Registers are bytes, the error of the estimate is 1.6 % */
#define DISTINCT_REGISTER_BITS	12
#define DISTINCT_REGISTERS		(1 << DISTINCT_REGISTER_BITS)

/* Rows between two looks at whether others want the processor. */
#define ROWS_AT_A_TIME	64

#define KEY_SHARED			UINT64CONST(0x706d680000000001)
#define KEY_TABLE_SCAN		UINT64CONST(0x706d680000000002)
#define KEY_QUERY_TEXT		UINT64CONST(0x706d680000000003)
#define KEY_WAL_USAGE		UINT64CONST(0x706d680000000004)
#define KEY_BUFFER_USAGE	UINT64CONST(0x706d680000000005)

/* The file of a worker's spool. */
#define SPOOL_NAME		"spool.%d"

/* What a worker leaves for the leader. */
typedef struct WorkerResult
{
	double		rows;
	double		entries;
	bool		broken_hot_chain;
	PmhashSpoolExport spool;
	uint8		distinct[DISTINCT_REGISTERS];
} WorkerResult;

typedef struct Shared
{
	Oid			heap;
	Oid			index;
	bool		concurrent;
	PmhashSeed	seed;
	size_t		memory;			/* bytes of entries for each participant */
	bool		by_page;		/* the blocks of range, not the table scan */
	bool		gives_way;		/* workers have to, as the leader does */
	BlockRange range;
	SharedFileSet files;
	WorkerResult worker[FLEXIBLE_ARRAY_MEMBER];
} Shared;

typedef struct PmhashParallelScan
{
	ParallelContext *context;
	Snapshot	snapshot;
	Shared	   *shared;
	ParallelTableScanDesc table_scan;
	WalUsage   *wal_usage;
	BufferUsage *buffer_usage;
} PmhashParallelScan;

PGDLLEXPORT void pmhash_build_worker(dsm_segment *segment, shm_toc *toc);

/*
 * Get a scan ready whose entries go to spool.  Memory is taken from the
 * current context.
 */
void
pmhash_build_scan_init(PmhashBuildScan *scan, Relation index, PmhashSeed seed,
					   PmhashSpool *spool)
{
	scan->keys = pmhash_keys_make(index, seed);
	scan->spool = spool;
	scan->rows = 0;
	scan->entries = 0;
	initHyperLogLog(&scan->distinct, DISTINCT_REGISTER_BITS);
}

/* IndexBuildCallback: spool one row. */
void
pmhash_spool_row(Relation index, ItemPointer tid, Datum *values, bool *isnull,
				 bool tupleIsAlive, void *state)
{
	PmhashBuildScan *scan = state;
	uint64		hash;

	if (++scan->rows % ROWS_AT_A_TIME == 0)
		pmhash_give_way();
	if (!pmhash_keys_hash(scan->keys, values, isnull, &hash))
		return;
	pmhash_spool_add(scan->spool, hash, pmhash_entry_value(index, tid));
	addHyperLogLog(&scan->distinct, (uint32) hash);
	scan->entries++;
}

/* Scan the whole table, alone.  Returns the number of its rows. */
double
pmhash_build_scan(Relation heap, Relation index, IndexInfo *indexInfo,
				  PmhashBuildScan *scan)
{
	BlockRange	range = {.nblocks = RelationGetNumberOfBlocks(heap)};

	if (!can_scan_pages(heap, indexInfo))
		return table_index_build_scan(heap, index, indexInfo, true, true,
									  pmhash_spool_row, scan, NULL);
	pg_atomic_init_u64(&range.next, 0);
	return scan_blocks(heap, index, indexInfo, &range, true,
							 pmhash_spool_row, scan);
}

/*
 * Take part in a scan that is shared, page by page or by the server's parallel
 * scan.  Returns the number of the rows that were this process's share.
 */
static double
scan_part(Relation heap, Relation index, IndexInfo *indexInfo, Shared *shared,
		  ParallelTableScanDesc table_scan, bool leader, PmhashBuildScan *scan)
{
	if (shared->by_page)
		return scan_blocks(heap, index, indexInfo, &shared->range, leader,
								 pmhash_spool_row, scan);
	return table_index_build_scan(heap, index, indexInfo, true, leader,
								  pmhash_spool_row, scan,
								  pmhash_beginscan_parallel(heap, table_scan));
}

/*
 * Main function of a worker: scan a part of the table and leave the result where the leader
 * finds it.  The leader holds strong locks on table and index; ours are only for relcache
 * and lock manager, so the weakest do, whatever locks the build goes under.
 */
void
pmhash_build_worker(dsm_segment *segment, shm_toc *toc)
{
	Shared	   *shared = shm_toc_lookup(toc, KEY_SHARED, false);
	WalUsage   *wal_usage = shm_toc_lookup(toc, KEY_WAL_USAGE, false);
	BufferUsage *buffer_usage = shm_toc_lookup(toc, KEY_BUFFER_USAGE, false);
	WorkerResult *result = &shared->worker[ParallelWorkerNumber];
	char		name[NAMEDATALEN];
	Relation	heap;
	Relation	index;
	IndexInfo  *indexInfo;
	PmhashBuildScan scan;

	Assert(IsParallelWorker());
	pmhash_gives_way = shared->gives_way;
	debug_query_string = shm_toc_lookup(toc, KEY_QUERY_TEXT, true);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);
	SharedFileSetAttach(&shared->files, segment);
	heap = table_open(shared->heap, AccessShareLock);
	index = index_open(shared->index, AccessShareLock);
	indexInfo = BuildIndexInfo(index);
	indexInfo->ii_Concurrent = shared->concurrent;
	snprintf(name, sizeof(name), SPOOL_NAME, ParallelWorkerNumber);

	InstrStartParallelQuery();
	pmhash_build_scan_init(&scan, index, shared->seed,
						   pmhash_spool_make(CurrentMemoryContext,
											 shared->memory, 0,
											 PMHASH_SPOOL_BITS,
											 &shared->files.fs, name));
	result->rows = scan_part(heap, index, indexInfo, shared,
							 shm_toc_lookup(toc, KEY_TABLE_SCAN, false), false, &scan);
	pmhash_spool_export(scan.spool, &result->spool);
	pmhash_spool_free(scan.spool);
	result->entries = scan.entries;
	result->broken_hot_chain = indexInfo->ii_BrokenHotChain;
	memcpy(result->distinct, scan.distinct.hashesArr, DISTINCT_REGISTERS);
	InstrEndParallelQuery(&buffer_usage[ParallelWorkerNumber],
						  &wal_usage[ParallelWorkerNumber]);

	index_close(index, AccessShareLock);
	table_close(heap, AccessShareLock);
}

/* ---- leader ---- */

static Size
shared_size(int workers)
{
	return add_size(offsetof(Shared, worker),
					mul_size(workers, sizeof(WorkerResult)));
}

static void *
share(ParallelContext *context, uint64 key, Size size)
{
	void	   *memory = shm_toc_allocate(context->toc, size);

	shm_toc_insert(context->toc, key, memory);
	return memory;
}

/* Fill shared memory. */
static void
fill_shared(PmhashParallelScan *parallel, Relation heap, Relation index,
			IndexInfo *indexInfo, PmhashSeed seed, size_t memory)
{
	ParallelContext *context = parallel->context;
	int			workers = context->nworkers;
	Shared	   *shared = share(context, KEY_SHARED, shared_size(workers));

	memset(shared, 0, shared_size(workers));
	shared->heap = RelationGetRelid(heap);
	shared->index = RelationGetRelid(index);
	shared->concurrent = indexInfo->ii_Concurrent;
	shared->seed = seed;
	shared->memory = memory / (workers + 1);
	shared->gives_way = pmhash_gives_way;
	shared->by_page = can_scan_pages(heap, indexInfo);
	shared->range.nblocks = RelationGetNumberOfBlocks(heap);
	pg_atomic_init_u64(&shared->range.next, 0);
	SharedFileSetInit(&shared->files, context->seg);
	parallel->shared = shared;
	parallel->table_scan = share(context, KEY_TABLE_SCAN,
								 table_parallelscan_estimate(heap, parallel->snapshot));
	table_parallelscan_initialize(heap, parallel->table_scan, parallel->snapshot);
	parallel->wal_usage = share(context, KEY_WAL_USAGE,
								mul_size(workers, sizeof(WalUsage)));
	parallel->buffer_usage = share(context, KEY_BUFFER_USAGE,
								   mul_size(workers, sizeof(BufferUsage)));
	if (debug_query_string != NULL)
		strcpy(share(context, KEY_QUERY_TEXT, strlen(debug_query_string) + 1),
			   debug_query_string);
}

/*
 * Start workers for the scan of a build, if the server grants some: as many
 * as a btree would get, by the size of the table, its parallel_workers,
 * max_parallel_maintenance_workers and maintenance_work_mem, but not too many in
 * the background.
 *
 * memory: bytes of entries that all participants may hold together.
 * *participants: among how many it is divided, the leader included.
 * NULL (and 1) if the leader is to scan alone.
 */
PmhashParallelScan *
pmhash_parallel_begin(Relation heap, Relation index, IndexInfo *indexInfo,
					  PmhashSeed seed, size_t memory, int *participants)
{
	int			wanted = plan_create_index_workers(RelationGetRelid(heap),
												   RelationGetRelid(index));
	int			request = pmhash_give_way_workers(wanted);
	PmhashParallelScan *parallel;
	shm_toc_estimator *estimator;

	*participants = 1;
	if (request == 0)
		return NULL;

	parallel = palloc0(sizeof(PmhashParallelScan));
	EnterParallelMode();
	parallel->context = CreateParallelContext("pmhash", "pmhash_build_worker",
											  request);
	parallel->snapshot = indexInfo->ii_Concurrent ?
		RegisterSnapshot(GetTransactionSnapshot()) : SnapshotAny;

	/* the shared memory that fill_shared will fill */
	estimator = &parallel->context->estimator;
	shm_toc_estimate_chunk(estimator, shared_size(request));
	shm_toc_estimate_chunk(estimator, table_parallelscan_estimate(heap, parallel->snapshot));
	shm_toc_estimate_chunk(estimator, mul_size(request, sizeof(WalUsage)));
	shm_toc_estimate_chunk(estimator, mul_size(request, sizeof(BufferUsage)));
	shm_toc_estimate_keys(estimator, 4);
	if (debug_query_string != NULL)
	{
		shm_toc_estimate_chunk(estimator, strlen(debug_query_string) + 1);
		shm_toc_estimate_keys(estimator, 1);
	}
	InitializeParallelDSM(parallel->context);
	if (parallel->context->seg != NULL)
	{
		fill_shared(parallel, heap, index, indexInfo, seed, memory);
		LaunchParallelWorkers(parallel->context);
	}
	if (parallel->context->nworkers_launched == 0)
	{
		pmhash_parallel_end(parallel);
		return NULL;
	}
	ereport(DEBUG1,
			(errmsg_internal("scanning table \"%s\" for index \"%s\" with %d parallel workers",
							 RelationGetRelationName(heap),
							 RelationGetRelationName(index),
							 parallel->context->nworkers_launched)));
	*participants = request + 1;
	return parallel;
}

/*
 * Take part in the scan, wait for the workers, and gather what they have
 * spooled.  Returns the number of the table's rows.
 */
double
pmhash_parallel_scan(PmhashParallelScan *parallel, Relation heap,
					 Relation index, IndexInfo *indexInfo,
					 PmhashBuildScan *scan)
{
	Shared	   *shared = parallel->shared;
	double		rows;

	Assert(shared != NULL && parallel->context->nworkers_launched > 0);
	rows = scan_part(heap, index, indexInfo, shared, parallel->table_scan, true,
					 scan);
	/* a worker that could not start must be an error, not a wait for ever */
	WaitForParallelWorkersToAttach(parallel->context);
	WaitForParallelWorkersToFinish(parallel->context);
	for (int i = 0; i < parallel->context->nworkers_launched; i++)
	{
		WorkerResult *result = &shared->worker[i];
		char		name[NAMEDATALEN];

		InstrAccumParallelQuery(&parallel->buffer_usage[i],
								&parallel->wal_usage[i]);
		snprintf(name, sizeof(name), SPOOL_NAME, i);
		pmhash_spool_import(scan->spool, &shared->files.fs, name, &result->spool);
		scan->entries += result->entries;
		for (int r = 0; r < DISTINCT_REGISTERS; r++)
			scan->distinct.hashesArr[r] = Max(scan->distinct.hashesArr[r],
											  result->distinct[r]);
		rows += result->rows;
		indexInfo->ii_BrokenHotChain |= result->broken_hot_chain;
	}
	return rows;
}

/*
 * End of the parallel scan, also of one that could not begin.  The workers' files go with
 * it, so the spool is freed before.
 */
void
pmhash_parallel_end(PmhashParallelScan *parallel)
{
	Assert(IsInParallelMode());
	if (IsMVCCSnapshot(parallel->snapshot))
		UnregisterSnapshot(parallel->snapshot);
	DestroyParallelContext(parallel->context);
	ExitParallelMode();
	pfree(parallel);
}
