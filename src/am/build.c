/*-------------------------------------------------------------------------
 *
 * build.c
 *	  CREATE INDEX and REINDEX: scan the table, partition by hash, bulk load.
 *
 * The table scan spools (hash, TID) pairs into PARTITIONS partitions by their
 * top hash bits.  Partitions are kept in memory as lists of chunks; when they
 * exceed maintenance_work_mem all are written out, each to a temporary file
 * of its own, and collecting goes on.  No estimate of the table's size is
 * needed: a partition that turns out too large for memory is partitioned
 * again by the next hash bits when its turn comes.
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

#include "access/tableam.h"
#include "commands/progress.h"
#include "lib/hyperloglog.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "storage/buffile.h"
#include "utils/backend_progress.h"
#include "utils/memutils.h"

#include "am.h"

/* A spool has at most so many partitions, and the first one has. */
#define PARTITION_BITS	8
#define PARTITIONS		(1 << PARTITION_BITS)

/* Chunk sizes in bytes: a partition's first, and what doubling ends at. */
#define FIRST_CHUNK		256
#define LAST_CHUNK		8192

/* Entries read back or inserted at a time. */
#define REST_ENTRIES	4096

/* For expected_slots(): see there; registers are bytes, the error is 1.6 % */
#define KEY_SLOTS		6
#define DISTINCT_REGISTER_BITS	12

/* Subphases of "building index"; PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE is 1 */
#define PHASE_SCAN		2
#define PHASE_LOAD		3
#define PHASE_REST		4

typedef struct Chunk
{
	struct Chunk *next;			/* older chunk of the same partition */
	uint32		n;
	uint32		capacity;
	PmhEntry	entry[FLEXIBLE_ARRAY_MEMBER];
} Chunk;

typedef struct Partition
{
	Chunk	   *chunk;			/* newest, or NULL */
	BufFile    *file;			/* what has been written out, or NULL */
	uint64		n;				/* entries in file and chunks */
} Partition;

/* All entries whose hashes begin with the same 'bits' bits, partitioned. */
typedef struct Spool
{
	int			bits;			/* bits above those that tell the partition */
	int			partition_bits;
	size_t		bytes;			/* of chunks in memory */
	Partition	partition[PARTITIONS];
} Spool;

/* A file of entries to be inserted after the bulk load. */
typedef struct Rest
{
	BufFile    *file;			/* positioned at the first of them */
	uint64		n;
} Rest;

typedef struct BuildState
{
	Relation	index;
	PmhashFile *file;
	PmhashKeys *keys;
	MemoryContext context;		/* all memory of the build */
	Spool	   *spool;
	size_t		memory;			/* bytes that entries may take */
	double		tuples;			/* entries spooled */
	double		loaded;			/* of these, already in the table */
	hyperLogLogState distinct;	/* of their hashes */

	/* while loading */
	PmhBulk    *bulk;
	uint32		depth;			/* the engine's */
	PmhEntry   *load;			/* a partition, all in one piece */
	size_t		load_capacity;
	List	   *rest;			/* of Rest */
} BuildState;

/* ---- spool ---- */

static Spool *
make_spool(BuildState *build, int bits, int partition_bits)
{
	Spool	   *spool = MemoryContextAllocZero(build->context, sizeof(Spool));

	spool->bits = bits;
	spool->partition_bits = partition_bits;
	return spool;
}

static int
partition_of(const Spool *spool, uint64 hash)
{
	return (hash << spool->bits) >> (64 - spool->partition_bits);
}

/* Write a partition's chunks to its file and free them. */
static void
write_partition(Partition *partition)
{
	Chunk	   *chunk = partition->chunk;

	if (chunk == NULL)
		return;
	if (partition->file == NULL)
		partition->file = BufFileCreateTemp(false);
	while (chunk != NULL)
	{
		Chunk	   *next = chunk->next;

		BufFileWrite(partition->file, chunk->entry,
					 chunk->n * sizeof(PmhEntry));
		pfree(chunk);
		chunk = next;
	}
	partition->chunk = NULL;
}

static void
write_spool(Spool *spool)
{
	for (int i = 0; i < 1 << spool->partition_bits; i++)
	{
		CHECK_FOR_INTERRUPTS();
		write_partition(&spool->partition[i]);
	}
	spool->bytes = 0;
}

/* Give a partition a new chunk, writing the spool out first if memory is full. */
static void
add_chunk(BuildState *build, Spool *spool, Partition *partition)
{
	size_t		size = FIRST_CHUNK;
	Chunk	   *chunk;

	if (spool->bytes >= build->memory)
		write_spool(spool);
	if (partition->chunk != NULL)
		size = Min(LAST_CHUNK, 2 * (offsetof(Chunk, entry) +
									partition->chunk->capacity * sizeof(PmhEntry)));

	chunk = MemoryContextAlloc(build->context, size);
	chunk->next = partition->chunk;
	chunk->n = 0;
	chunk->capacity = (size - offsetof(Chunk, entry)) / sizeof(PmhEntry);
	partition->chunk = chunk;
	spool->bytes += size;
}

static inline void
spool_entry(BuildState *build, Spool *spool, uint64 hash, uint64 value)
{
	Partition  *partition = &spool->partition[partition_of(spool, hash)];
	PmhEntry   *entry;

	if (partition->chunk == NULL ||
		partition->chunk->n == partition->chunk->capacity)
		add_chunk(build, spool, partition);
	entry = &partition->chunk->entry[partition->chunk->n++];
	entry->hash = hash;
	entry->value = value;
	partition->n++;
}

/* IndexBuildCallback: spool one row. */
static void
spool_row(Relation index, ItemPointer tid, Datum *values, bool *isnull,
		  bool tupleIsAlive, void *state)
{
	BuildState *build = state;
	uint64		hash;

	if (!pmhash_keys_hash(build->keys, values, isnull, &hash))
		return;

	spool_entry(build, build->spool, hash, pmhash_tid_to_value(tid));
	addHyperLogLog(&build->distinct, (uint32) hash);
	build->tuples++;
}

/* ---- loading ---- */

/* Read n entries from a partition's file to dst. */
static void
read_entries(BufFile *file, PmhEntry *dst, size_t n)
{
	size_t		bytes = n * sizeof(PmhEntry);

#if PG_VERSION_NUM >= 160000
	BufFileReadExact(file, dst, bytes);
#else
	if (BufFileRead(file, dst, bytes) != bytes)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from temporary file of index build")));
#endif
}

static void
rewind_file(BufFile *file)
{
	if (BufFileSeek(file, 0, 0, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not rewind temporary file of index build")));
}

/* Make load[] large enough for n entries; what was in it is lost. */
static void
reserve_load(BuildState *build, size_t n)
{
	if (n <= build->load_capacity)
		return;
	if (build->load != NULL)
		pfree(build->load);
	build->load_capacity = 0;
	build->load = MemoryContextAllocHuge(build->context, n * sizeof(PmhEntry));
	build->load_capacity = n;
}

/* Append all entries of a partition to load[] at 'at', and drop it. */
static void
gather_partition(BuildState *build, Partition *partition, size_t at)
{
	PmhEntry   *dst = build->load + at;

	while (partition->chunk != NULL)
	{
		Chunk	   *chunk = partition->chunk;

		memcpy(dst, chunk->entry, chunk->n * sizeof(PmhEntry));
		dst += chunk->n;
		partition->n -= chunk->n;
		partition->chunk = chunk->next;
		pfree(chunk);
	}
	if (partition->file != NULL)
	{
		rewind_file(partition->file);
		read_entries(partition->file, dst, partition->n);
		BufFileClose(partition->file);
		partition->file = NULL;
	}
	partition->n = 0;
}

/* Hand load[0 .. n) to the engine as the range 'range' of 'bits' hash bits. */
static void
load_range(BuildState *build, uint32 bits, uint64 range, size_t n)
{
	PmhResult	result;

	CHECK_FOR_INTERRUPTS();
	if (n == 0)
		return;
	result = pmh_bulk_partition(build->bulk, bits, range, build->load, n);
	if (result != PMH_OK)
		pmhash_engine_error(build->index, build->file, result);
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

/* Note what is left of a partition, from where its file is positioned. */
static void
keep_rest(BuildState *build, Partition *partition, uint64 n)
{
	MemoryContext old = MemoryContextSwitchTo(build->context);
	Rest	   *rest = palloc(sizeof(Rest));

	rest->file = partition->file;
	rest->n = n;
	build->rest = lappend(build->rest, rest);
	MemoryContextSwitchTo(old);

	partition->file = NULL;
	partition->n = 0;
}

/*
 * Load a range made of 'count' partitions that do not fit in memory though
 * the engine would have it no smaller: load as much as fits, and keep the
 * rest for later.
 */
static void
load_first_part(BuildState *build, Partition *partition, int count,
				uint32 bits, uint64 range)
{
	uint64		limit = load_limit(build);
	uint64		at = 0;

	reserve_load(build, limit);
	for (int i = 0; i < count; i++)
	{
		uint64		n = Min(partition[i].n, limit - at);

		if (partition[i].n == 0)
			continue;
		rewind_file(partition[i].file);
		read_entries(partition[i].file, build->load + at, n);
		at += n;
		keep_rest(build, &partition[i], partition[i].n - n);
	}
	load_range(build, bits, range, at);
}

/* Load a range made of 'count' partitions, n entries, which fit in memory. */
static void
load_whole(BuildState *build, Partition *partition, int count,
		   uint32 bits, uint64 range, uint64 n)
{
	uint64		at = 0;

	reserve_load(build, n);
	for (int i = 0; i < count; i++)
	{
		uint64		here = partition[i].n;

		gather_partition(build, &partition[i], at);
		at += here;
	}
	load_range(build, bits, range, n);
}

static void load_spool(BuildState *build, Spool *spool, uint64 prefix);

/* Into how many bits to partition n entries so that the parts fit in memory. */
static int
bits_to_fit(const BuildState *build, uint64 n)
{
	int			bits = 1;

	while (bits < PARTITION_BITS && n >> bits > load_limit(build) / 2)
		bits++;
	return bits;
}

/* Partition a partition again by the next hash bits, and load that. */
static void
load_in_pieces(BuildState *build, Partition *partition, int bits, uint64 range)
{
	Spool	   *spool = make_spool(build, bits,
								   bits_to_fit(build, partition->n));

	reserve_load(build, REST_ENTRIES);
	rewind_file(partition->file);
	while (partition->n > 0)
	{
		size_t		n = Min(partition->n, REST_ENTRIES);

		CHECK_FOR_INTERRUPTS();
		read_entries(partition->file, build->load, n);
		for (size_t i = 0; i < n; i++)
			spool_entry(build, spool, build->load[i].hash,
						build->load[i].value);
		partition->n -= n;
	}
	BufFileClose(partition->file);
	partition->file = NULL;

	write_spool(spool);
	load_spool(build, spool, range);
	pfree(spool);
}

/*
 * Load a spool whose hashes all begin with 'prefix'.
 *
 * Where the engine's depth has fewer bits than our partitions, several of
 * them make one range.
 */
static void
load_spool(BuildState *build, Spool *spool, uint64 prefix)
{
	int			partitions = 1 << spool->partition_bits;
	int			bits = Min(spool->bits + spool->partition_bits,
						   (int) build->depth);
	int			own_bits = bits - spool->bits;
	int			step = partitions >> own_bits;

	for (int first = 0; first < partitions; first += step)
	{
		Partition  *partition = &spool->partition[first];
		uint64		range = (prefix << own_bits) | (first / step);
		uint64		n = 0;

		for (int i = 0; i < step; i++)
			n += partition[i].n;

		if (n <= load_limit(build))
			load_whole(build, partition, step, bits, range, n);
		else if (bits < (int) build->depth)
			load_in_pieces(build, partition, bits, range);
		else
			load_first_part(build, partition, step, bits, range);
	}
}

/* Insert what the bulk load has left over. */
static void
insert_rest(BuildState *build)
{
	ListCell   *lc;

	foreach(lc, build->rest)
	{
		Rest	   *rest = lfirst(lc);

		while (rest->n > 0)
		{
			size_t		n = Min(rest->n, REST_ENTRIES);
			size_t		done;
			PmhResult	result;

			CHECK_FOR_INTERRUPTS();
			read_entries(rest->file, build->load, n);
			result = pmh_insert_group(build->file->table, build->load, n,
									  false, &done);
			if (result != PMH_OK)
				pmhash_engine_error(build->index, build->file, result);
			rest->n -= n;
			build->loaded += n;
			pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE,
										 (int64) build->loaded);
		}
		BufFileClose(rest->file);
	}
}

/*
 * Slots that the entries will need.  Keys with more than KEY_SLOTS rows go to
 * value lists and take one slot; what matters is that a table of a million
 * rows and ten keys does not get a directory for a million slots.  It is a
 * hint: the engine copes with more or less than it was told.
 */
static uint64
expected_slots(BuildState *build)
{
	double		keys = estimateHyperLogLog(&build->distinct);
	double		slots = keys * KEY_SLOTS;

	return (uint64) Min(slots, build->tuples);
}

/* Bulk load the spool into the table. */
static void
load_table(BuildState *build)
{
	PmhResult	result;

	result = pmh_bulk_begin(build->file->table, expected_slots(build),
							pmhash_fillfactor(build->index), &build->depth,
							&build->bulk);
	if (result != PMH_OK)
		pmhash_engine_error(build->index, build->file, result);

	PG_TRY();
	{
		load_spool(build, build->spool, 0);
	}
	PG_CATCH();
	{
		pmh_bulk_abandon(build->bulk);
		PG_RE_THROW();
	}
	PG_END_TRY();

	result = pmh_bulk_finish(build->bulk);
	if (result != PMH_OK)
		pmhash_engine_error(build->index, build->file, result);
}

/* ---- callbacks ---- */

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

/* Scan the table into the spool; returns the number of rows in the table. */
static double
scan_table(BuildState *build, Relation heap, IndexInfo *indexInfo)
{
	double		rows;

	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_SCAN);
	rows = table_index_build_scan(heap, build->index, indexInfo, true, true,
								  spool_row, build, NULL);
	if (build->tuples > load_limit(build))
		write_spool(build->spool);
	return rows;
}

/* Load what scan_table has spooled. */
static void
load_all(BuildState *build)
{
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_LOAD);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL,
								 (int64) build->tuples);
	if (build->tuples > 0)
		load_table(build);
	if (build->rest != NIL)
	{
		pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_REST);
		insert_rest(build);
	}
}

static void
init_build(BuildState *build, Relation index)
{
	MemoryContext old;

	memset(build, 0, sizeof(*build));
	build->index = index;
	build->context = AllocSetContextCreate(CurrentMemoryContext,
										   "pmhash build",
										   ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(build->context);
	build->file = pmhash_file_create(index);
	build->keys = pmhash_keys_make(index, build->file->seed);
	build->spool = make_spool(build, 0, PARTITION_BITS);
	initHyperLogLog(&build->distinct, DISTINCT_REGISTER_BITS);
	MemoryContextSwitchTo(old);

	/* half for the spool, half for the part of it that is being loaded */
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
 */
IndexBuildResult *
pmhash_build(Relation heap, Relation index, struct IndexInfo *indexInfo)
{
	BuildState	build;
	IndexBuildResult *result;

	init_build(&build, index);
	result = palloc(sizeof(IndexBuildResult));
	result->heap_tuples = scan_table(&build, heap, indexInfo);
	result->index_tuples = build.tuples;
	load_all(&build);
	MemoryContextDelete(build.context);
	return result;
}

/* ambuildempty: the init fork of an unlogged index. */
void
pmhash_buildempty(Relation index)
{
	pmhash_file_create_init(index);
}
