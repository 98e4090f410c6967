/*-------------------------------------------------------------------------
 *
 * standby_fill.c
 *	  Filling the file of an index on a standby: scan, fold, bulk load.
 *
 * The scan (standby_scan.c) spools what it finds in the table.  Replay has put what
 * has happened to entries meanwhile into the delta: it is spooled too, into the same
 * partitions.  The fold goes through these one by one.  The last operation on an
 * entry decides, which is a pair of hash and TID: what the scan has found is dropped
 * if there is one, and what was inserted last is added.  So what both have comes out
 * once, and what was deleted and inserted again as it is in the end.
 *
 * What the fold gives is loaded as any build does (build.c).  Operations that come
 * after the fold has begun are applied to the loaded file (cluster/standby_build.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "am/am.h"
#include "am/sort_entries.h"
#include "am/standby_fill.h"
#include "am/standby_scan.h"
#include "cluster/durable.h"
#include "cluster/give_way.h"

/* Operations or entries read at a time. */
#define BATCH			4096

/* Operations of a partition after which those that do not count any more go: 8 MB. */
#define CHUNK			(1 << 18)

struct PmhashStandbyFill
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
};

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
		pmhash_standby_scan_init(&fill->scan, fill->build, index, fill->found);
		MemoryContextSwitchTo(old);
		fill->fillfactor = pmhash_fillfactor(index);
		fill->begun = true;
	}
	done = pmhash_standby_scan_slice(&fill->scan, heap, index);
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

/* Append operations to last[n], of which the first has this number. */
static void
append_operations(Last *last, const PmhEntry *batch, size_t n, uint64 number)
{
	for (size_t i = 0; i < n; i++)
	{
		last[i].entry.hash = batch[i].hash;
		last[i].entry.value = batch[i].value & ~PMHASH_DELTA_DELETE;
		last[i].inserted = (batch[i].value & PMHASH_DELTA_DELETE) == 0;
		last[i].number = number + i;
	}
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
		append_operations(&last[*n], batch, count, at);
		*n += count;
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
