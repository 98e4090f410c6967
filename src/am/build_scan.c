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

#include "access/parallel.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "optimizer/optimizer.h"
#include "storage/sharedfileset.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "build_scan.h"
#include "cluster/give_way.h"

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
	uint64		seed;
	size_t		memory;			/* bytes of entries for each participant */
	bool		by_page;		/* the blocks of range, not the table scan */
	bool		gives_way;		/* workers have to, as the leader does */
	PmhashBlockRange range;
	SharedFileSet files;
	WorkerResult worker[FLEXIBLE_ARRAY_MEMBER];
} Shared;

struct PmhashParallelScan
{
	ParallelContext *context;
	Snapshot	snapshot;
	Shared	   *shared;
	ParallelTableScanDesc table_scan;
	WalUsage   *wal_usage;
	BufferUsage *buffer_usage;
};

PGDLLEXPORT void pmhash_build_worker(dsm_segment *segment, shm_toc *toc);

/* ---- in each process ---- */

/*
 * Get a scan ready whose entries go to spool.  Memory is taken from the
 * current context.
 */
void
pmhash_build_scan_init(PmhashBuildScan *scan, Relation index, uint64 seed,
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
	PmhashBlockRange range;

	if (!pmhash_can_scan_pages(heap, indexInfo))
		return table_index_build_scan(heap, index, indexInfo, true, true,
									  pmhash_spool_row, scan, NULL);
	pmhash_block_range_init(&range, heap);
	return pmhash_scan_pages(heap, index, indexInfo, &range, true,
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
		return pmhash_scan_pages(heap, index, indexInfo, &shared->range, leader,
								 pmhash_spool_row, scan);
	return table_index_build_scan(heap, index, indexInfo, true, leader,
								  pmhash_spool_row, scan,
								  pmhash_beginscan_parallel(heap, table_scan));
}

static void
worker_file_name(char name[NAMEDATALEN], int worker)
{
	snprintf(name, NAMEDATALEN, "spool.%d", worker);
}

/* ---- worker ---- */

/* Scan a part of the table and leave the result where the leader finds it. */
static void
scan_as_worker(Relation heap, Relation index, Shared *shared,
			   ParallelTableScanDesc table_scan, WorkerResult *result)
{
	char		name[NAMEDATALEN];
	IndexInfo  *indexInfo = BuildIndexInfo(index);
	PmhashBuildScan scan;

	worker_file_name(name, ParallelWorkerNumber);
	indexInfo->ii_Concurrent = shared->concurrent;
	pmhash_build_scan_init(&scan, index, shared->seed,
						   pmhash_spool_make(CurrentMemoryContext,
											 shared->memory, 0,
											 PMHASH_SPOOL_BITS,
											 &shared->files.fs, name));
	result->rows = scan_part(heap, index, indexInfo, shared, table_scan, false,
							 &scan);
	pmhash_spool_export(scan.spool, &result->spool);
	pmhash_spool_free(scan.spool);
	result->entries = scan.entries;
	result->broken_hot_chain = indexInfo->ii_BrokenHotChain;
	memcpy(result->distinct, scan.distinct.hashesArr, DISTINCT_REGISTERS);
}

/*
 * Main function of a worker.  The leader holds strong locks on table and index;
 * ours are only for relcache and lock manager, so the weakest
 * do, whatever locks the build goes under.
 */
void
pmhash_build_worker(dsm_segment *segment, shm_toc *toc)
{
	Shared	   *shared = shm_toc_lookup(toc, KEY_SHARED, false);
	WalUsage   *wal_usage = shm_toc_lookup(toc, KEY_WAL_USAGE, false);
	BufferUsage *buffer_usage = shm_toc_lookup(toc, KEY_BUFFER_USAGE, false);
	Relation	heap;
	Relation	index;

	if (shared->gives_way)
		pmhash_give_way_from_now_on();
	debug_query_string = shm_toc_lookup(toc, KEY_QUERY_TEXT, true);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);
	SharedFileSetAttach(&shared->files, segment);
	heap = table_open(shared->heap, AccessShareLock);
	index = index_open(shared->index, AccessShareLock);

	InstrStartParallelQuery();
	scan_as_worker(heap, index, shared,
				   shm_toc_lookup(toc, KEY_TABLE_SCAN, false),
				   &shared->worker[ParallelWorkerNumber]);
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

/* Reserve the shared memory that fill_shared() will fill. */
static void
estimate_shared(ParallelContext *context, Relation heap, Snapshot snapshot)
{
	shm_toc_estimator *estimator = &context->estimator;
	int			workers = context->nworkers;

	shm_toc_estimate_chunk(estimator, shared_size(workers));
	shm_toc_estimate_chunk(estimator, table_parallelscan_estimate(heap, snapshot));
	shm_toc_estimate_chunk(estimator, mul_size(workers, sizeof(WalUsage)));
	shm_toc_estimate_chunk(estimator, mul_size(workers, sizeof(BufferUsage)));
	shm_toc_estimate_keys(estimator, 4);
	if (debug_query_string != NULL)
	{
		shm_toc_estimate_chunk(estimator, strlen(debug_query_string) + 1);
		shm_toc_estimate_keys(estimator, 1);
	}
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
			IndexInfo *indexInfo, uint64 seed, size_t memory)
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
	shared->gives_way = pmhash_gives_way();
	shared->by_page = pmhash_can_scan_pages(heap, indexInfo);
	pmhash_block_range_init(&shared->range, heap);
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

/* End of the parallel scan, also of one that could not begin. */
static void
leave_parallel_mode(PmhashParallelScan *parallel)
{
	if (IsMVCCSnapshot(parallel->snapshot))
		UnregisterSnapshot(parallel->snapshot);
	DestroyParallelContext(parallel->context);
	ExitParallelMode();
	pfree(parallel);
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
					  uint64 seed, size_t memory, int *participants)
{
	int			wanted = plan_create_index_workers(RelationGetRelid(heap),
												   RelationGetRelid(index));
	int			request = pmhash_give_way_workers(wanted);
	PmhashParallelScan *parallel;

	*participants = 1;
	if (request == 0)
		return NULL;

	parallel = palloc0(sizeof(PmhashParallelScan));
	EnterParallelMode();
	parallel->context = CreateParallelContext("pmhash", "pmhash_build_worker",
											  request);
	parallel->snapshot = indexInfo->ii_Concurrent ?
		RegisterSnapshot(GetTransactionSnapshot()) : SnapshotAny;
	estimate_shared(parallel->context, heap, parallel->snapshot);
	InitializeParallelDSM(parallel->context);
	if (parallel->context->seg != NULL)
	{
		fill_shared(parallel, heap, index, indexInfo, seed, memory);
		LaunchParallelWorkers(parallel->context);
	}
	if (parallel->context->nworkers_launched == 0)
	{
		leave_parallel_mode(parallel);
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

/* Add what a worker has found. */
static void
collect(PmhashBuildScan *scan, Shared *shared, int worker)
{
	WorkerResult *result = &shared->worker[worker];
	char		name[NAMEDATALEN];

	worker_file_name(name, worker);
	pmhash_spool_import(scan->spool, &shared->files.fs, name, &result->spool);
	scan->entries += result->entries;
	for (int i = 0; i < DISTINCT_REGISTERS; i++)
		scan->distinct.hashesArr[i] = Max(scan->distinct.hashesArr[i],
										  result->distinct[i]);
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

	rows = scan_part(heap, index, indexInfo, shared, parallel->table_scan, true,
					 scan);
	/* a worker that could not start must be an error, not a wait for ever */
	WaitForParallelWorkersToAttach(parallel->context);
	WaitForParallelWorkersToFinish(parallel->context);
	for (int i = 0; i < parallel->context->nworkers_launched; i++)
	{
		InstrAccumParallelQuery(&parallel->buffer_usage[i],
								&parallel->wal_usage[i]);
		collect(scan, shared, i);
		rows += shared->worker[i].rows;
		indexInfo->ii_BrokenHotChain |= shared->worker[i].broken_hot_chain;
	}
	return rows;
}

/* End it; the workers' files go with it, so the spool is freed before. */
void
pmhash_parallel_end(PmhashParallelScan *parallel)
{
	leave_parallel_mode(parallel);
}
