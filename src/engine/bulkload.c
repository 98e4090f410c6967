/*-------------------------------------------------------------------------
 *
 * bulkload.c
 *	  Fill an empty table from entries that come ordered by their top hash
 *	  bits.
 *
 * A partition is cut into segment ranges by further hash bits, where they stand.  Where a
 * range fits a segment it is built in private memory at the load wanted and written once,
 * sequentially.  Many entries of one key become a list: before a partition is cut if there
 * are many such keys, so that few segments hold what is left, else in the ranges that have
 * any.  The directory is made from the segments' elements at the end and published by one
 * store of dirword.  What a load that is abandoned has written stays in use.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "segment.h"
#include "sort.h"

/*
 * A segment is as large as it takes to be loaded no more than this above the
 * load wanted, which makes that the average.
 */
#define FILL_SLACK		3

/* Extensions are cut from extents of so many blocks, unless the segments are few. */
#define EXTENSION_BLOCKS	16
#define FEW_SEGMENTS_DEPTH	4

/*
 * Values of one key from this number on become a list.  (Three take as much space in
 * slots of their own, and one look less.)
 */
#define LIST_MIN		4

/* Room for twice the entries of a segment. */
#define SEEN			8192

_Static_assert(2 * PMH_MAX_SIZE * PMH_UNIT_BUCKETS * PMH_SLOTS < SEEN,
			   "a hash set is too full");

/* A pair with this flag has a list's pointer payload for its value. */
#define IS_LIST				PMH_WORD_POINTER

struct PmhBulk
{
	PmhTable   *table;
	uint32_t	depth;			/* of a segment range, as given to the caller */
	uint32_t	fill;			/* most that a segment is loaded, percent */
	uint32_t	most;			/* entries of the largest segment at that load */
	uint64_t	expected;		/* keys */
	uint64_t   *elem;			/* of the segments so far, in the order of hashes */
	size_t		nsegments;
	size_t		elem_room;
	uint64_t	ext_next;		/* rest of the extent for extensions, in units */
	uint64_t	ext_end;
	uint32_t	seen[SEEN];		/* hash set of one range: position + 1 */
};

/* A range of hashes and its entries. */
typedef struct Range
{
	PmhEntry   *entry;
	size_t		n;
	uint32_t	depth;
	bool		listed;			/* they are sorted, and make_lists has been here */
} Range;

static PmhResult
no_memory(PmhTable *t)
{
	return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
					"There is no memory for the bulk load.");
}

/* ---- segments ---- */

/* Free the rest of the extent for extensions. */
static void
free_extension_rest(PmhBulk *bulk)
{
	PmhTable   *t = bulk->table;

	PMH_ASSERT(bulk->ext_next <= bulk->ext_end);
	for (; bulk->ext_next < bulk->ext_end; bulk->ext_next++)
		pmh_space_free_units(t, bulk->ext_next * PMH_UNIT_SIZE, 1);
}

/* Space for an extension: units of an extent of our own, packed. */
static PmhResult
take_extension(PmhBulk *bulk, uint32_t units, uint64_t *ext_offset)
{
	PmhTable   *t = bulk->table;

	PMH_ASSERT(units > 0 && units < PMH_UNITS_PER_BLOCK);
	while (bulk->ext_end - bulk->ext_next < units)
	{
		uint64_t	offset;
		PmhResult	result = pmh_provide_extent(t, EXTENSION_BLOCKS, &offset);

		if (result != PMH_OK)
			return result;
		if (bulk->ext_end == offset / PMH_UNIT_SIZE)
		{
			bulk->ext_end += EXTENSION_BLOCKS * PMH_UNITS_PER_BLOCK;
			continue;
		}
		free_extension_rest(bulk);
		bulk->ext_next = offset / PMH_UNIT_SIZE;
		bulk->ext_end = bulk->ext_next + EXTENSION_BLOCKS * PMH_UNITS_PER_BLOCK;
	}
	*ext_offset = bulk->ext_next * PMH_UNIT_SIZE;
	bulk->ext_next += units;
	return PMH_OK;
}

/* Write what has been built, and note its element. */
static PmhResult
write_segment(PmhBulk *bulk, uint32_t depth)
{
	PmhTable   *t = bulk->table;
	const PmhBuild *build = &pmh_workspace[0];
	uint64_t	ext_offset = 0;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(depth <= PMH_MAX_DEPTH);
	if (!pmh_reserve((void **) &bulk->elem, bulk->nsegments, 1, &bulk->elem_room,
					 sizeof(uint64_t)))
		return no_memory(t);
	if (build->size > PMH_UNITS_PER_BLOCK && bulk->depth > FEW_SEGMENTS_DEPTH)
		result = take_extension(bulk, build->size % PMH_UNITS_PER_BLOCK, &ext_offset);
	while (result == PMH_OK &&
		   (result = pmh_segment_store(t, build, depth, ext_offset, true,
									   &bulk->elem[bulk->nsegments])) == PMH_NEED)
		result = pmh_provide(t);
	bulk->nsegments += result == PMH_OK;
	return result;
}

/* Build a segment of this size; false if the range does not fit. */
static bool
fits_segment(PmhBulk *bulk, const Range *range, uint32_t size)
{
	PmhBuild   *build = &pmh_workspace[0];

	PMH_ASSERT(range->n <= bulk->most);
	if (range->n * 100 > (uint64_t) pmh_build_slots(size) * bulk->fill)
		return false;
	pmh_build_begin(bulk->table, build, size);
	for (size_t i = 0; i < range->n; i++)
		pmh_build_add(build, range->entry[i].hash, range->entry[i].value);
	return pmh_build_complete(build, 100);
}

/* ---- keys with many values ---- */

/* Has any hash of the range more than one entry?  Exact. */
static bool
has_duplicates(PmhBulk *bulk, const Range *range)
{
	uint32_t	mask = SEEN - 1;

	PMH_ASSERT(range->n < SEEN / 2);
	memset(bulk->seen, 0, sizeof(bulk->seen));
	for (size_t i = 0; i < range->n; i++)
	{
		uint64_t	hash = range->entry[i].hash;
		uint32_t	at = (uint32_t) (hash >> 8) & mask;

		while (bulk->seen[at] != 0)
		{
			if (range->entry[bulk->seen[at] - 1].hash == hash)
				return true;
			at = (at + 1) & mask;
		}
		bulk->seen[at] = (uint32_t) (i + 1);
	}
	return false;
}

/* Let every hash with LIST_MIN entries and more become one entry with a list. */
static PmhResult
make_lists(PmhBulk *bulk, Range *range)
{
	PmhEntry   *entry = range->entry;
	size_t		kept = 0;
	size_t		n;

	PMH_ASSERT(!range->listed);
	if (!pmh_sort_entries(entry, range->n, pmh_wait_cancelled))
		return pmh_fail_cancelled(bulk->table);
	for (size_t i = 0; i < range->n; i += n)
	{
		for (n = 1; i + n < range->n && entry[i + n].hash == entry[i].hash; n++)
			;
		if (n >= LIST_MIN)
		{
			uint64_t	payload;
			PmhResult	result = pmh_list_make(bulk->table, &entry[i], n, &payload);

			if (result != PMH_OK)
				return result;
			entry[kept].hash = entry[i].hash;
			entry[kept++].value = payload | IS_LIST;
			continue;
		}
		for (size_t k = 0; k < n; k++)
			entry[kept++] = entry[i + k];
	}
	range->n = kept;
	range->listed = true;
	return PMH_OK;
}

/* ---- ranges ---- */

/* Write a range: in one segment if it fits, else part by part. */
static PmhResult
write_range(PmhBulk *bulk, Range *range)
{
	size_t		start[PMH_DEAL_DIGITS + 1];
	uint32_t	bits = 1;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(range->depth <= PMH_MAX_DEPTH);
	PMH_ASSERT(range->n == 0 || pmh_hash_prefix(range->entry[0].hash, range->depth) ==
			   pmh_hash_prefix(range->entry[range->n - 1].hash, range->depth));
	if (pmh_wait_cancelled())
		return pmh_fail_cancelled(bulk->table);
	if (!range->listed &&
		(range->n <= bulk->most ? has_duplicates(bulk, range) : range->depth >= bulk->depth))
		result = make_lists(bulk, range);
	for (uint32_t size = 1; result == PMH_OK && size <= PMH_MAX_SIZE &&
		 range->n <= bulk->most; size++)
	{
		if (size > PMH_SMALL_SIZE && size < PMH_UNITS_PER_BLOCK)
			continue;
		if (fits_segment(bulk, range, size))
			return write_segment(bulk, range->depth);
	}
	if (result == PMH_OK && range->depth == PMH_MAX_DEPTH)
		result = pmh_fail(bulk->table, PMH_ERR_TOO_LARGE, 0, 0,
						  "What is to be loaded does not fit a segment of the greatest "
						  "depth.");
	if (result != PMH_OK)
		return result;

	/* In as many parts as there will be segments; in halves beyond the depth foreseen. */
	while (bits < PMH_DEAL_BITS && range->depth + bits < bulk->depth &&
		   range->n >> bits > bulk->most)
		bits++;
	if (!pmh_deal_entries(range->entry, range->n, 64 - range->depth - bits, bits, start,
						  pmh_wait_cancelled))
		return pmh_fail_cancelled(bulk->table);
	for (uint32_t d = 0; result == PMH_OK && d < UINT32_C(1) << bits; d++)
	{
		Range		part = {range->entry + start[d], start[d + 1] - start[d],
			range->depth + bits, range->listed};

		result = write_range(bulk, &part);
	}
	return result;
}

/* ---- the whole load ---- */

/* Smallest depth at which a range, and some more than expected, fits. */
static uint32_t
choose_depth(uint64_t expected, uint32_t most)
{
	uint32_t	depth = 0;

	PMH_ASSERT(most > 0);
	while (depth < PMH_MAX_DEPTH)
	{
		uint64_t	mean = expected >> depth;
		uint64_t	margin = 0;

		/* Four standard deviations. */
		while (margin * margin < 16 * mean)
			margin++;
		if (mean + margin <= most)
			break;
		depth++;
	}
	return depth;
}

PmhResult
pmh_bulk_begin(PmhTable *table, uint64_t expected, int fill_percent,
			   uint32_t *depth, PmhBulk **bulk)
{
	PmhBulk    *b = calloc(1, sizeof(PmhBulk));
	uint32_t	fill = (uint32_t) fill_percent + FILL_SLACK;

	*bulk = NULL;
	if (b == NULL)
		return no_memory(table);
	b->table = table;
	b->fill = fill < PMH_MAX_FILL ? fill : PMH_MAX_FILL;
	b->most = pmh_build_slots(PMH_MAX_SIZE) * b->fill / 100;
	b->expected = expected;
	b->depth = choose_depth(expected, b->most);
	pm_hold(&table->file);
	*depth = b->depth;
	*bulk = b;
	return PMH_OK;
}

PmhResult
pmh_bulk_partition(PmhBulk *bulk, uint32_t partition_bits, PmhEntry *entries, size_t n)
{
	PmhTable   *t = bulk->table;
	Range		range = {entries, n, partition_bits, false};
	PmhResult	result = PMH_OK;

	PMH_ASSERT(partition_bits <= bulk->depth && (n == 0 || entries != NULL));
	/* More than a tenth more entries than keys: it may be that few of them are left. */
	if (n - n / 10 > bulk->expected >> partition_bits)
		result = make_lists(bulk, &range);
	if (result == PMH_OK)
		result = write_range(bulk, &range);
	return pmh_conclude(t, result);
}

/* Write the directory and let dirword name it. */
static PmhResult
publish(PmhBulk *bulk)
{
	PmhTable   *t = bulk->table;
	uint64_t	to = pmh_small_directory(t);
	uint64_t	at = 0;
	uint32_t	depth = 0;
	uint64_t   *dir;
	PmhPlace	empty;
	PmhResult	result = PMH_OK;

	for (size_t i = 0; i < bulk->nsegments; i++)
	{
		if (pmh_elem_depth(bulk->elem[i]) > depth)
			depth = pmh_elem_depth(bulk->elem[i]);
	}
	dir = calloc(pmh_directory_elements(depth), sizeof(uint64_t));
	if (dir == NULL)
		return no_memory(t);
	for (size_t i = 0; i < bulk->nsegments; i++)
	{
		for (uint64_t n = pmh_directory_elements(depth - pmh_elem_depth(bulk->elem[i]));
			 n > 0; n--)
			dir[at++] = bulk->elem[i];
	}
	PMH_ASSERT(at == pmh_directory_elements(depth));	/* all partitions came */
	if (pmh_directory_blocks(depth) > 0)
		result = pmh_provide_extent(t, pmh_directory_blocks(depth), &to);
	if (result == PMH_OK)
		result = pmh_segment_lock(t, 0, &empty);
	if (result == PMH_OK)
	{
		pm_copy(&t->file, pmh_at(t, to), dir, pmh_directory_size(depth));
		pm_fence(&t->file);
		pm_store64(&pmh_live(t)->dirword, pmh_seal_dirword(to, depth));
		pm_flush(&t->file, &pmh_live(t)->dirword, sizeof(uint64_t));
		pm_fence(&t->file);
		pmh_segment_retire(t, &empty);
		pmh_segment_unlock(&empty);
	}
	free(dir);
	return result;
}

void
pmh_bulk_abandon(PmhBulk *bulk)
{
	pm_let_go(&bulk->table->file);
	free(bulk->elem);
	free(bulk);
}

PmhResult
pmh_bulk_finish(PmhBulk *bulk)
{
	PmhTable   *t = bulk->table;
	uint64_t	block = 0;
	uint64_t	spare = 0;
	PmhResult	result = pmh_conclude(t, publish(bulk));

	if (result == PMH_OK)
		free_extension_rest(bulk);
	pmh_bulk_abandon(bulk);
	if (result != PMH_OK)
		return result;
	/*
	 * The file was made longer ahead of use, and to whole large pages.  What cannot be
	 * given back stays: all that has been loaded is there.
	 */
	while (pmh_space_punch(t, &block, &spare) == PMH_OK)
		continue;
	return pmh_conclude(t, PMH_OK);
}
