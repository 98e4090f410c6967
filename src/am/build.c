/*-------------------------------------------------------------------------
 *
 * build.c
 *	  CREATE INDEX and REINDEX: scan the table, partition by hash, bulk load.
 *
 * The table scan (build_scan.c), with parallel workers or without, spools
 * (hash, TID) pairs into partitions by their top hash bits (spool.c).  No
 * estimate of the table's size is needed: a partition that turns out too large
 * for memory is partitioned again by the next hash bits when its turn comes.
 *
 * Partitions are loaded in ascending order of hash (pmh_bulk_partition), as
 * large ranges as the depth that the engine has chosen allows.  A range of
 * that depth that does not fit in memory has a few keys with very many rows:
 * its first part is loaded, the rest is inserted the ordinary way at the end.
 *
 * Neither undo journal nor sync is needed here: see src/README, "Builds".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/index.h"
#include "catalog/pg_opfamily.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "utils/backend_progress.h"
#include "utils/memutils.h"

#include "am/build.h"
#include "cluster/queue/queue.h"
#include "engine/stop_point.h"

#define REST_ENTRIES	4096	/* read back at a time */
#define INSERT_GROUP	1024	/* inserted at a time: some 100 us */

/* Subphases of "building index"; PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE is 1 */
#define PHASE_SCAN		2
#define PHASE_LOAD		3
#define PHASE_REST		4

typedef struct BuildState
{
	Relation	index;			/* NULL: of a standby, which holds no lock on it */
	PmhashFile *file;
	int			fillfactor;
	MemoryContext context;		/* all memory of the build */
	size_t		memory;			/* bytes that spooled entries may take */
	PmhashBuildScan scan;
	double		loaded;			/* entries already in the file */
	bool		beside_writers; /* of others, into the same file */
	PmhashBuildUnique *unique;	/* NULL: keys may come twice */

	/* while loading */
	PmhBulk    *bulk;
	uint32		depth;			/* the engine's */
	PmhEntry   *load;			/* a partition, all in one piece */
	size_t		load_capacity;
	BufFile    *rest;			/* entries to insert afterwards, or NULL */
	uint64		rest_n;
} BuildState;

/* ---- loading ---- */

/* ERROR unless the engine has done what it was asked for. */
static void
check_result(BuildState *build, PmhResult result)
{
	if (result != PMH_OK && build->index == NULL)
		pmhash_standby_engine_error(build->file, result);
	pmhash_check_result(build->index, build->file, result);
}

/*
 * Make load[] large enough for n entries; what was in it is lost.  (An error in between
 * ends the build, so the pointer that it leaves is not used.)
 */
static void
reserve_load(BuildState *build, size_t n)
{
	build->load = pmhash_reserve(build->context, build->load, &build->load_capacity, n,
								 sizeof(PmhEntry));
}

/* Count n entries as loaded. */
static void
count_loaded(BuildState *build, uint64 n)
{
	build->loaded += n;
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE,
								 (int64) build->loaded);
}

/* Entries that may be in load[] at once. */
static uint64
load_limit(const BuildState *build)
{
	return build->memory / sizeof(PmhEntry);
}

/*
 * Load a range made of 'count' partitions: as much of it as fits in memory.  What does
 * not, though the engine would have the range no smaller, is kept for later.
 */
static void
load_partitions(BuildState *build, PmhashSpool *spool, int first, int count, uint32 bits,
				uint64 n)
{
	uint64		limit = load_limit(build);
	uint64		most = Min(n, limit);
	uint64		at = 0;

	reserve_load(build, most);
	for (int i = first; i < first + count; i++)
	{
		uint64		here = Min(spool->partition_n[i], most - at);

		pmhash_spool_take(spool, i, build->load + at, here);
		at += here;
	}
	Assert(at == most);
	pmhash_give_way();
	if (build->unique != NULL && most > 0)
		pmhash_build_unique_check(build->unique, build->load, most);
	check_result(build, pmh_bulk_partition(build->bulk, bits, build->load, most));
	count_loaded(build, most);
	if (most == n)
		return;

	/* put what is left aside */
	if (build->rest == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(build->context);

		build->rest = BufFileCreateTemp(false);
		MemoryContextSwitchTo(old);
	}
	reserve_load(build, REST_ENTRIES);
	for (int i = first; i < first + count; i++)
	{
		while (spool->partition_n[i] > 0)
		{
			uint64		here = Min(spool->partition_n[i], REST_ENTRIES);

			pmhash_give_way();
			pmhash_spool_take(spool, i, build->load, here);
			BufFileWrite(build->rest, build->load, here * sizeof(PmhEntry));
			if (build->unique != NULL)
				pmhash_build_unique_remember(build->unique, build->load, here);
			build->rest_n += here;
		}
	}
}

/*
 * Load a spool whose hashes all begin with the same 'spool->bits' bits.
 *
 * Where the engine's depth has fewer bits than our partitions, several of
 * them make one range.  A partition that does not fit in memory is partitioned again by the
 * next hash bits, if the engine's depth has more.
 */
static void
load_spool(BuildState *build, PmhashSpool *spool)
{
	int			partitions = 1 << spool->partition_bits;
	int			bits = Min(spool->bits + spool->partition_bits,
						   (int) build->depth);
	int			own_bits = bits - spool->bits;
	int			step = partitions >> own_bits;

	Assert(own_bits >= 0 && step >= 1);
	for (int first = 0; first < partitions; first += step)
	{
		uint64		n = 0;
		PmhashSpool *pieces;
		int			piece_bits = 1;

		for (int i = first; i < first + step; i++)
			n += spool->partition_n[i];
		if (n <= load_limit(build) || bits == (int) build->depth)
		{
			load_partitions(build, spool, first, step, bits, n);
			continue;
		}

		/* the pieces are to fit in memory */
		Assert(step == 1);
		while (piece_bits < PMHASH_SPOOL_BITS && n >> piece_bits > load_limit(build) / 2)
			piece_bits++;
		pieces = pmhash_spool_make(build->context, build->memory, bits, piece_bits, NULL,
								   NULL);
		reserve_load(build, REST_ENTRIES);
		while (spool->partition_n[first] > 0)
		{
			n = Min(spool->partition_n[first], REST_ENTRIES);
			pmhash_give_way();
			pmhash_spool_take(spool, first, build->load, n);
			for (uint64 i = 0; i < n; i++)
				pmhash_spool_add(pieces, build->load[i].hash, build->load[i].value);
		}
		pmhash_spool_write(pieces);
		load_spool(build, pieces);
		pmhash_spool_free(pieces);
	}
}

/* Insert load[0 .. n) in groups. */
static void
insert_load(BuildState *build, size_t n)
{
	Assert(n <= build->load_capacity);
	for (size_t at = 0; at < n; at += INSERT_GROUP)
	{
		size_t		done;

		pmhash_give_way();
		check_result(build, pmh_insert_group(build->file->table, &build->load[at],
											 Min(INSERT_GROUP, n - at), false, &done));
	}
}

/*
 * Bulk load the spool into the file.
 *
 * The engine is told how many slots the entries will need at least: one for each key.
 * Keys with four rows and more have a value list and take no more than that.  It is a
 * hint.  If others take more, the engine cuts what it is given further, and into segments
 * that are full; had more been foreseen than are needed, segments would not be.
 */
static void
load_table(BuildState *build)
{
	double		keys = estimateHyperLogLog(&build->scan.distinct);

	Assert(!build->beside_writers && build->loaded == 0);
	check_result(build, pmh_bulk_begin(build->file->table,
									   (uint64) Min(keys, build->scan.entries),
									   build->fillfactor, &build->depth, &build->bulk));
	PG_TRY();
	{
		load_spool(build, build->scan.spool);
	}
	PG_CATCH();
	{
		pmh_bulk_abandon(build->bulk);
		PG_RE_THROW();
	}
	PG_END_TRY();
	check_result(build, pmh_bulk_finish(build->bulk));
}

/* ambuildphasename: names of the subphases, for pg_stat_progress_create_index */
char *
pmhash_buildphasename(int64 phase)
{
	switch (phase)
	{
		case PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE:
			return "initializing";
		case PHASE_SCAN:
			return "scanning table";
		case PHASE_LOAD:
			return "loading partitions";
		case PHASE_REST:
			return "inserting remaining duplicates";
		default:
			return NULL;
	}
}

/* ---- loading beside writers ---- */

/*
 * What others have put into one partition before it is loaded, sorted: a piece of it, if
 * that is more than fits in memory.
 */
typedef struct Present
{
	PmhEntry   *entry;
	size_t		n;
} Present;

/*
 * Spool what is in the file already.  To be called after the scan: each entry
 * of a row that the scan has seen is in by now if its inserter has made one,
 * since an inserter makes it before it commits.
 */
static PmhashSpool *
spool_present(BuildState *build)
{
	PmhashSpool *present = pmhash_spool_make(build->context, build->memory, 0,
											 PMHASH_SPOOL_BITS, NULL, NULL);
	PmhSweep	sweep;
	PmhResult	result = pmh_sweep_begin_reading(build->file->table, &sweep);

	check_result(build, result);
	PG_TRY();
	{
		while ((result = pmh_sweep_next(build->file->table, &sweep)) == PMH_OK)
		{
			pmhash_give_way();
			for (size_t i = 0; i < sweep.n; i++)
				pmhash_spool_add(present, sweep.entries[i].hash, sweep.entries[i].value);
		}
		if (result != PMH_DONE)
			check_result(build, result);
	}
	PG_FINALLY();
	{
		pmh_sweep_end(&sweep);
	}
	PG_END_TRY();
	return present;
}

/*
 * Take a piece of a partition of what is present.  The first one is the largest, and
 * later ones take its place.
 */
static void
take_present(BuildState *build, PmhashSpool *spool, int i, Present *present)
{
	uint64		limit = load_limit(build);

	Assert(i >= 0 && i < PMHASH_SPOOL_PARTITIONS);
	present->n = Min(spool->partition_n[i], limit);
	if (present->n == 0)
		return;
	if (present->entry == NULL)
		present->entry = MemoryContextAllocHuge(build->context,
												present->n * sizeof(PmhEntry));
	pmhash_spool_take(spool, i, present->entry, present->n);
	pmhash_sort_entries(present->entry, present->n);
}

/* Drop from load[0 .. n) what is present; returns how many are left. */
static size_t
drop_present(BuildState *build, const Present *present, size_t n)
{
	size_t		left = 0;

	if (present->n == 0)
		return n;
	for (size_t i = 0; i < n; i++)
	{
		if (bsearch(&build->load[i], present->entry, present->n,
					sizeof(PmhEntry), pmhash_compare_entries) == NULL)
			build->load[left++] = build->load[i];
	}
	return left;
}

/*
 * Insert a partition but for what is present.  Writers may have inserted any number of
 * rows, and all of one key: what is present goes by in pieces that fit in memory, and the
 * partition is gone through once for each: what is not in it goes to another spool.
 */
static void
insert_absent(BuildState *build, PmhashSpool *present, int i)
{
	PmhashSpool *spool = build->scan.spool;
	uint64		limit = load_limit(build);
	uint64		n;
	uint64		left;
	Present		here = {NULL, 0};

	take_present(build, present, i, &here);
	while (present->partition_n[i] > 0)
	{
		PmhashSpool *absent = pmhash_spool_make(build->context, build->memory, 0,
												PMHASH_SPOOL_BITS, NULL, NULL);

		while ((n = Min(spool->partition_n[i], limit)) > 0)
		{
			pmhash_give_way();
			reserve_load(build, n);
			pmhash_spool_take(spool, i, build->load, n);
			left = drop_present(build, &here, n);
			for (uint64 j = 0; j < left; j++)
				pmhash_spool_add(absent, build->load[j].hash, build->load[j].value);
			count_loaded(build, n - left);
		}
		PMH_STOP_POINT("build_present_piece");
		if (spool != build->scan.spool)
			pmhash_spool_free(spool);
		spool = absent;
		take_present(build, present, i, &here);
	}
	/* in the order of the heap, not of the hash: so all segments fill evenly */
	while ((n = Min(spool->partition_n[i], limit)) > 0)
	{
		reserve_load(build, n);
		pmhash_spool_take(spool, i, build->load, n);
		insert_load(build, drop_present(build, &here, n));
		count_loaded(build, n);
	}
	if (spool != build->scan.spool)
		pmhash_spool_free(spool);
	if (here.entry != NULL)
		pfree(here.entry);
}

/* Load what the scan has spooled. */
static void
load_all(BuildState *build)
{
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_LOAD);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL,
								 (int64) build->scan.entries);
	/* what is loaded next needs memory as well */
	if (build->scan.entries > load_limit(build))
		pmhash_spool_write(build->scan.spool);
	if (build->scan.entries > 0 && build->beside_writers)
	{
		PmhashSpool *present = spool_present(build);

		for (int i = 0; i < PMHASH_SPOOL_PARTITIONS; i++)
			insert_absent(build, present, i);
		pmhash_spool_free(present);
	}
	else if (build->scan.entries > 0)
		load_table(build);
	pmhash_spool_free(build->scan.spool);
	if (build->rest == NULL)
		return;

	/* what the bulk load has left over */
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_REST);
	Assert(build->rest_n > 0 && build->load_capacity >= REST_ENTRIES);
	pmhash_temp_seek(build->rest, 0, 0);
	while (build->rest_n > 0)
	{
		uint64		n = Min(build->rest_n, REST_ENTRIES);

		pmhash_temp_read(build->rest, build->load, n * sizeof(PmhEntry));
		insert_load(build, n);
		build->rest_n -= n;
		count_loaded(build, n);
	}
	BufFileClose(build->rest);
	if (build->unique != NULL)
		pmhash_build_unique_check_remembered(build->unique, build->file);
}

/* Scan the table and load its entries; returns the number of its rows. */
static double
scan_and_load(BuildState *build, Relation heap, IndexInfo *indexInfo)
{
	MemoryContext old = MemoryContextSwitchTo(build->context);
	Relation	index = build->index;
	PmhashSeed	seed = build->file->seed;
	PmhashParallelScan *parallel;
	int			participants;
	double		rows;

	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_SCAN);
	parallel = pmhash_parallel_begin(heap, index, indexInfo, seed,
									 build->memory, &participants);
	pmhash_build_scan_init(&build->scan, index, seed,
						   pmhash_spool_make(build->context,
											 build->memory / participants, 0,
											 PMHASH_SPOOL_BITS, NULL, NULL));
	MemoryContextSwitchTo(old);

	if (parallel != NULL)
		rows = pmhash_parallel_scan(parallel, heap, index, indexInfo,
									&build->scan);
	else
		rows = pmhash_build_scan(heap, index, indexInfo, &build->scan);
	load_all(build);
	if (parallel != NULL)
		pmhash_parallel_end(parallel);
	return rows;
}

/* Memory for a build: half for the spool, half for the part of it that is being loaded. */
static void
init_build(BuildState *build, Relation index)
{
	memset(build, 0, sizeof(*build));
	build->index = index;
	build->context = AllocSetContextCreate(CurrentMemoryContext, "pmhash build",
										   ALLOCSET_DEFAULT_SIZES);
	build->memory = (size_t) maintenance_work_mem * 1024 / 2;
}

/*
 * ambuild: fill a new index from the table.
 *
 * Called with a lock on the table that keeps writers out, or by CREATE INDEX
 * CONCURRENTLY, where other backends start to insert when we have committed.
 * May be called again for the same main fork (TRUNCATE in the transaction
 * that made the table): pmhash_file_create makes a new file then.  Any ERROR
 * leaves it to the end of the transaction to remove the file.
 *
 * What keys are hashed by stays what it is until the transaction ends.
 * Row types: not for rows with parts that the server drops by itself, as what is left of
 * them has other hashes (key_types.c).  Hash functions and equalities: who adds one to a
 * family (validate.c) waits, and finds this index in the catalogs then.  Before they are
 * looked up.
 */
IndexBuildResult *
pmhash_build(Relation heap, Relation index, struct IndexInfo *indexInfo)
{
	BuildState	build;
	IndexBuildResult *result;
	MemoryContext old;
	AttrNumber	temporary = pmhash_lock_row_types(index);

	Assert(CheckRelationLockedByMe(heap, ShareUpdateExclusiveLock, true));
	/* a NULL in the first column has no entry; the server leaves it to us to say so */
	if (indexInfo->ii_Unique && indexInfo->ii_NullsNotDistinct)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" does not support NULLS NOT DISTINCT", "pmhash")));
	if (temporary != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column %d of index \"%s\" contains a composite type with an attribute of a temporary type",
						temporary, RelationGetRelationName(index)),
				 errdetail("The hash of a key is made of all its attributes, and a temporary type takes them with it when it is dropped.")));
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		LockDatabaseObject(OperatorFamilyRelationId, index->rd_opfamily[i], 0,
						   AccessShareLock);

	/*
	 * Is this CREATE INDEX, not REINDEX, nor a table that is being emptied, by TRUNCATE or
	 * ON COMMIT DELETE ROWS?  CONCURRENTLY builds in another transaction than that which
	 * has made the index; REINDEX CONCURRENTLY, too.
	 */
	if (indexInfo->ii_Concurrent ||
		(index->rd_createSubid != InvalidSubTransactionId &&
		 !ReindexIsProcessingIndex(RelationGetRelid(index)) &&
		 pmhash_made_for(index) == 0))
		pmhash_warn_of_equality(index);
	init_build(&build, index);
	old = MemoryContextSwitchTo(build.context);
	build.file = pmhash_file_create(index);
	build.fillfactor = pmhash_fillfactor(index);
	MemoryContextSwitchTo(old);
	if (indexInfo->ii_Unique)
	{
		build.unique = pmhash_build_unique_make(build.context, heap, index);
		build.memory -= build.memory / 5;	/* a hash beside each entry loaded */
	}
	result = palloc(sizeof(IndexBuildResult));
	result->heap_tuples = scan_and_load(&build, heap, indexInfo);
	result->index_tuples = build.scan.entries;
	MemoryContextDelete(build.context);
	return result;
}

/*
 * Fill the file of an index that is being rebuilt while others insert into it
 * (rebuild.c): every row that a snapshot taken in here sees gets its entry,
 * once.  The caller has waited until every transaction that may write to the table without
 * inserting into this file is over.  ERROR leaves a file that is incomplete.
 */
void
pmhash_build_beside_writers(Relation heap, Relation index,
							struct IndexInfo *indexInfo, PmhashFile *file)
{
	BuildState	build;

	Assert(file != NULL);
	Assert(CheckRelationLockedByMe(heap, ShareUpdateExclusiveLock, true));
	Assert(CheckRelationLockedByMe(index, ShareUpdateExclusiveLock, true));
	init_build(&build, index);
	build.file = file;
	build.beside_writers = true;
	build.fillfactor = pmhash_fillfactor(index);
	indexInfo->ii_Concurrent = true;
	(void) scan_and_load(&build, heap, indexInfo);
	MemoryContextDelete(build.context);
}

/*
 * Load the spool of a scan into an empty file, and free the spool: the second half
 * of a build, with no lock on any relation.
 */
void
pmhash_build_load(PmhashFile *file, int fillfactor, const PmhashBuildScan *scan)
{
	BuildState	build;

	init_build(&build, NULL);
	build.file = file;
	build.fillfactor = fillfactor;
	build.scan = *scan;
	load_all(&build);
	MemoryContextDelete(build.context);
}

