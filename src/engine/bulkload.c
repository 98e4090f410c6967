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
 * store of dirword.
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

/* Values that are copied until it is asked whether to go on. */
#define AT_ONCE			32768

/* A pair with this flag has a list's pointer payload for its value. */
#define IS_LIST				PMH_WORD_POINTER

/* A segment that has been written. */
typedef struct BulkSegment
{
	uint64_t	prefix;			/* as many hash bits as the element's depth */
	uint64_t	elem;
} BulkSegment;

struct PmhBulk
{
	PmhTable   *table;
	uint32_t	depth;			/* of a segment range, as given to the caller */
	uint32_t	fill;			/* most that a segment is loaded, percent */
	uint32_t	most;			/* entries of the largest segment at that load */
	uint64_t	expected;		/* keys */
	BulkSegment *segment;	/* the segments so far, in any order */
	size_t		nsegments;
	size_t		segment_room;
	PmhValues	values;			/* room for those of one key */
	uint32_t   *seen;			/* hash set of one range: position + 1 */
	uint32_t	seen_size;		/* a power of two */
	uint64_t	ext_next;		/* rest of the extent for extensions, in units */
	uint64_t	ext_end;
};

/* A range of hashes and its entries. */
typedef struct Range
{
	PmhEntry   *entry;
	size_t		n;
	uint32_t	depth;
	uint64_t	prefix;			/* of 'depth' bits */
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
take_extension(PmhBulk *bulk, uint32_t units, uint64_t *unit)
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
	*unit = bulk->ext_next;
	bulk->ext_next += units;
	return PMH_OK;
}

/* Write what has been built, and note its element. */
static PmhResult
write_segment(PmhBulk *bulk, uint32_t depth, uint64_t prefix)
{
	PmhTable   *t = bulk->table;
	const PmhBuild *build = &pmh_workspace[0];
	BulkSegment *segment;
	uint32_t	units = build->size % PMH_UNITS_PER_BLOCK;
	uint64_t	main_offset = 0;
	uint64_t	ext_unit = 0;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(depth <= PMH_MAX_DEPTH && prefix >> depth == 0);
	if (!pmh_reserve((void **) &bulk->segment, bulk->nsegments, 1,
					 &bulk->segment_room, sizeof(BulkSegment)))
		return no_memory(bulk->table);
	if (build->size >= PMH_UNITS_PER_BLOCK)
		result = pmh_provide_extent(t, 1, &main_offset);
	if (result == PMH_OK && units > 0 && main_offset != 0 && bulk->depth > FEW_SEGMENTS_DEPTH)
		result = take_extension(bulk, units, &ext_unit);
	else if (result == PMH_OK && units > 0)
	{
		uint64_t	offset = 0;

		while ((result = pmh_space_alloc_units(t, units, &offset)) == PMH_NEED &&
			   (result = pmh_provide(t)) == PMH_OK)
			;
		ext_unit = offset / PMH_UNIT_SIZE;
	}
	if (result != PMH_OK)
	{
		if (main_offset != 0)
			pmh_space_free_extent(t, main_offset, 1);
		return result;
	}

	PMH_ASSERT(build->size < PMH_UNITS_PER_BLOCK ? ext_unit != 0 : main_offset != 0);
	segment = &bulk->segment[bulk->nsegments++];
	segment->prefix = prefix;
	segment->elem = pmh_make_elem(main_offset >> PMH_BLOCK_SHIFT, ext_unit,
								  build->size, depth, build->strategy);
	pmh_build_store(t, build, segment->elem, true);
	return PMH_OK;
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
	uint32_t	mask = bulk->seen_size - 1;

	PMH_ASSERT(range->n < bulk->seen_size);
	memset(bulk->seen, 0, bulk->seen_size * sizeof(uint32_t));
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

/*
 * Make a list of the values of n entries of one hash.  The file may have to grow for it
 * many times: what is made of it stays, and each time it is asked whether to go on.
 */
static PmhResult
make_list(PmhBulk *bulk, const PmhEntry *entry, size_t n, uint64_t *payload)
{
	PmhTable   *t = bulk->table;
	PmhListMade made = {0};
	PmhResult	result;

	PMH_ASSERT(n >= LIST_MIN);
	result = pmh_values_reserve(t, &bulk->values, n);
	if (result != PMH_OK)
		return result;
	for (size_t i = 0; i < n; i++)
	{
		if (i % AT_ONCE == AT_ONCE - 1 && pmh_wait_cancelled())
			return pmh_fail_cancelled(t);
		PMH_ASSERT(entry[i].hash == entry->hash);
		bulk->values.value[i] = entry[i].value;
	}
	while ((result = pmh_list_make(t, entry->hash, bulk->values.value, n, &made)) == PMH_NEED)
	{
		result = pmh_wait_cancelled() ? pmh_fail_cancelled(t) : pmh_provide(t);
		if (result != PMH_OK)
			break;
	}
	*payload = made.head;
	PMH_ASSERT(result != PMH_OK || (made.head != 0 && made.values == n));
	return result;
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
			uint64_t	payload = 0;
			PmhResult	result = make_list(bulk, &entry[i], n, &payload);

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

	PMH_ASSERT(range->depth <= PMH_MAX_DEPTH && range->prefix >> range->depth == 0);
	if (pmh_wait_cancelled())
		return pmh_fail_cancelled(bulk->table);
	if (range->n == 0)
		return PMH_OK;			/* fill_gaps sees to it */
	if (!range->listed &&
		(range->n <= bulk->most ? has_duplicates(bulk, range) : range->depth >= bulk->depth))
		result = make_lists(bulk, range);
	for (uint32_t size = 1; result == PMH_OK && size <= PMH_MAX_SIZE &&
		 range->n <= bulk->most; size++)
	{
		if (size > PMH_SMALL_SIZE && size < PMH_UNITS_PER_BLOCK)
			continue;
		if (fits_segment(bulk, range, size))
			return write_segment(bulk, range->depth, range->prefix);
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
			range->depth + bits, range->prefix << bits | d, range->listed};

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
	b->seen_size = 2;
	while (b->seen_size < 2 * b->most)
		b->seen_size *= 2;
	b->seen = malloc(b->seen_size * sizeof(uint32_t));
	if (b->seen == NULL)
	{
		free(b);
		return no_memory(table);
	}
	pm_hold(&table->file);
	*depth = b->depth;
	*bulk = b;
	return PMH_OK;
}

PmhResult
pmh_bulk_partition(PmhBulk *bulk, uint32_t partition_bits, uint64_t partition,
				   PmhEntry *entries, size_t n)
{
	PmhTable   *t = bulk->table;
	Range		range = {entries, n, partition_bits, partition, false};
	PmhResult	result = PMH_OK;

	PMH_ASSERT(partition_bits <= bulk->depth && partition >> partition_bits == 0);
	/* More than a tenth more entries than keys: it may be that few of them are left. */
	if (n - n / 10 > bulk->expected >> partition_bits)
		result = make_lists(bulk, &range);
	if (result == PMH_OK)
		result = write_range(bulk, &range);
	return pmh_conclude(t, result);
}

/* Enter segments [from, nsegments) into a directory in memory. */
static void
enter_segments(const PmhBulk *bulk, size_t from, uint64_t *dir, uint32_t depth)
{
	PMH_ASSERT(from <= bulk->nsegments && depth <= PMH_MAX_DEPTH);
	for (size_t i = from; i < bulk->nsegments; i++)
	{
		uint32_t	above = depth - pmh_elem_depth(bulk->segment[i].elem);
		uint64_t	first = bulk->segment[i].prefix << above;

		for (uint64_t k = 0; k < UINT64_C(1) << above; k++)
			dir[first + k] = bulk->segment[i].elem;
	}
}

/* Is the aligned piece of 2^above elements at 'first' without a segment? */
static bool
is_gap(const uint64_t *dir, uint64_t first, uint32_t above)
{
	PMH_ASSERT((first & ((UINT64_C(1) << above) - 1)) == 0);
	for (uint64_t i = first; i < first + (UINT64_C(1) << above); i++)
	{
		if (dir[i] != 0)
			return false;
	}
	return true;
}

/* Empty segments where no partition had anything. */
static PmhResult
fill_gaps(PmhBulk *bulk, uint64_t *dir, uint32_t depth)
{
	PmhTable   *t = bulk->table;

	for (uint64_t i = 0; i < UINT64_C(1) << depth; i++)
	{
		uint32_t	above = 0;
		size_t		before = bulk->nsegments;
		PmhResult	result;

		if (dir[i] != 0)
			continue;
		while (above < depth && (i & ((UINT64_C(2) << above) - 1)) == 0 &&
			   is_gap(dir, i, above + 1))
			above++;
		pmh_build_begin(t, &pmh_workspace[0], 1);
		result = write_segment(bulk, depth - above, i >> above);
		if (result != PMH_OK)
			return result;
		enter_segments(bulk, before, dir, depth);
	}
	return PMH_OK;
}

/* Write the directory and let dirword name it. */
static PmhResult
publish(PmhBulk *bulk, const uint64_t *dir, uint32_t depth)
{
	PmhTable   *t = bulk->table;
	uint64_t	nblocks = pmh_directory_blocks(depth);
	uint64_t	to = pmh_small_directory(t);
	PmhPlace	empty;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(depth <= PMH_MAX_DEPTH);
	if (nblocks > 0)
		result = pmh_provide_extent(t, nblocks, &to);
	if (result == PMH_OK)
		result = pmh_segment_lock(t, 0, &empty);
	if (result != PMH_OK)
		return result;

	pm_copy(&t->file, pmh_at(t, to), dir, pmh_directory_size(depth));
	pm_fence(&t->file);
	pm_store64(&pmh_live(t)->dirword, to / 64 | (uint64_t) depth << PMH_DIRWORD_DEPTH_SHIFT);
	pm_flush(&t->file, &pmh_live(t)->dirword, sizeof(uint64_t));
	pm_fence(&t->file);
	pmh_segment_retire(t, &empty);
	pmh_segment_unlock(&empty);
	return PMH_OK;
}

static void
free_bulk(PmhBulk *bulk)
{
	pm_let_go(&bulk->table->file);
	free(bulk->segment);
	pmh_values_free(&bulk->values);
	free(bulk->seen);
	free(bulk);
}

PmhResult
pmh_bulk_finish(PmhBulk *bulk)
{
	PmhTable   *t = bulk->table;
	uint64_t	block = 0;
	uint64_t	spare = 0;
	uint32_t	depth = 0;
	uint64_t   *dir;
	PmhResult	result;

	for (size_t i = 0; i < bulk->nsegments; i++)
	{
		if (pmh_elem_depth(bulk->segment[i].elem) > depth)
			depth = pmh_elem_depth(bulk->segment[i].elem);
	}
	dir = calloc(pmh_directory_elements(depth), sizeof(uint64_t));
	if (dir == NULL)
		result = no_memory(bulk->table);
	else
	{
		enter_segments(bulk, 0, dir, depth);
		result = fill_gaps(bulk, dir, depth);
		if (result == PMH_OK)
			result = publish(bulk, dir, depth);
		free(dir);
	}
	result = pmh_conclude(t, result);
	if (result != PMH_OK)
	{
		pmh_bulk_abandon(bulk);
		return result;
	}
	free_extension_rest(bulk);
	free_bulk(bulk);
	/*
	 * The file was made longer ahead of use, and to whole large pages.  What cannot be
	 * given back stays: all that has been loaded is there.
	 */
	while (pmh_space_punch(t, &block, &spare) == PMH_OK)
		continue;
	return pmh_conclude(t, PMH_OK);
}

/* Value lists that were made, one in part perhaps, are found by the next sweep. */
void
pmh_bulk_abandon(PmhBulk *bulk)
{
	PmhTable   *t = bulk->table;

	for (size_t i = 0; i < bulk->nsegments; i++)
		pmh_segment_free(t, bulk->segment[i].elem);
	free_extension_rest(bulk);
	if (pm_load(&pmh_run(t)->value_blocks) != 0)
		pmh_value_lose(t);
	free_bulk(bulk);
}
