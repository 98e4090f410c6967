/*-------------------------------------------------------------------------
 *
 * figures.c
 *	  Statistics: exact by walking everything, and estimates from a sample.
 *
 * Both read as any reader does and hold no process up.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "buffer.h"
#include "directory.h"
#include "element.h"
#include "error.h"
#include "fail.h"
#include "figures.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "live.h"
#include "lock.h"
#include "place.h"
#include "pm.h"
#include "segment.h"
#include "space.h"
#include "table.h"

/* Segments the estimate looks at. */
#define SAMPLE_BITS		6

/* What one segment has, lists included. */
typedef struct SegmentCount
{
	uint64_t	slots;
	uint64_t	used_slots;
	uint64_t	plain;
	uint64_t	elsewhere;
	uint64_t	stash;
	uint64_t	lists;
	uint64_t	list_entries;
	uint64_t	list_bytes;
} SegmentCount;

/* How a list is counted. */
typedef PmhResult (*CountList) (PmhTable *t, uint64_t hash, SegmentCount *count);

/* Exactly; it counts when all has been read. */
static PmhResult
count_list(PmhTable *t, uint64_t hash, SegmentCount *count)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;
	uint64_t	entries = 0;
	uint64_t	bytes = 0;

	while (at.below != 0)
	{
		PmhListPosition before = at;
		uint32_t	n;
		PmhResult	result = pmh_list_whole(t, hash, &at, value, &n);

		if (result != PMH_OK)
			return result;
		entries += n;
		for (unsigned i = 0; i <= PMH_MAX_LEVEL; i++)
			bytes += i > 0 && at.met[i] == before.met[i] ? 0 :
				pmh_class_bytes(pmh_pointer_class(at.met[i]));
	}
	count->lists += bytes > 0;
	count->list_entries += entries;
	count->list_bytes += bytes;
	return PMH_OK;
}

/* Bytes of the other buffers of values of a list, after a step of a walk.  (A guess.) */
static uint64_t
others_bytes(const PmhTable *t, const uint64_t *met)
{
	uint64_t	each = 0;		/* of what a slot of the level names */
	uint64_t	bytes = 0;

	for (unsigned level = 1; level <= PMH_MAX_LEVEL && met[level] != 0; level++)
	{
		for (uint32_t i = 0; i < pmh_index_slots(met[level]); i++)
		{
			uint64_t	word = pm_load(pmh_index_slot(t, met[level], i));

			if (word != 0 && (word & PMH_SLOT_POINTER) != met[level - 1])
				bytes += level > 1 ? each : pmh_class_bytes(pmh_pointer_class(word));
		}
		each = (level > 1 ? each : pmh_class_bytes(PMH_MAX_CLASS)) * PMH_MAX_INDEX_SLOTS;
	}
	return bytes;
}

/*
 * About how many values has a list?  Reads its last buffer; the others, as the index tells of
 * them, are taken to be full.
 */
static PmhResult
guess_list(PmhTable *t, uint64_t hash, SegmentCount *count)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;
	uint64_t	bytes;
	uint32_t	n;
	PmhResult	result;

	do
		result = pmh_list_whole(t, hash, &at, value, &n);
	while (result == PMH_OK && at.met[0] == 0 && at.below != 0);
	if (result != PMH_OK)
		return result;
	if (at.met[0] == 0)
		return PMH_OK;
	bytes = others_bytes(t, at.met);
	count->lists++;
	count->list_entries += n + bytes / PMH_VALUE_LINE * PMH_VALUES_PER_LINE;
	count->list_bytes += bytes + pmh_class_bytes(pmh_pointer_class(at.met[0]));
	return PMH_OK;
}

/*
 * Entries with a hash below 'from' are left out: they have been counted, in the
 * first half of a split whose second half the directory does not name yet, or in
 * a segment that has been merged with its buddy since.
 */
static PmhResult
count_bucket(PmhTable *t, const PmhSnapshot *snap, const PmhBucket *b,
			 uint32_t bucket, uint64_t from, CountList how, SegmentCount *count)
{
	uint32_t	hashing = snap->place.hashing;
	uint32_t	plain;
	uint32_t	pointers;
	PmhResult	result = PMH_OK;

	pmh_bucket_kinds(b, &plain, &pointers);
	count->slots += PMH_SLOTS;
	count->used_slots += pmh_state_count(pmh_bucket_state(b));
	for (uint32_t m = plain | pointers; m != 0; m &= m - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(m);
		uint64_t	word = pmh_slot_load_word(b, slot);
		uint64_t	hash = pmh_slot_load_hash(b, slot, word);

		if (hash < from)
			continue;
		count->plain += !pmh_word_is_pointer(word);
		count->elsewhere += pmh_home_bucket(hash, hashing) != bucket;
		count->stash += bucket >= hashing;
		if (result == PMH_OK && pmh_word_is_pointer(word))
			result = how(t, hash, count);
	}
	return result;
}

/*
 * Count the segment of a hash, as far as its entries are not below 'from';
 * *elem tells about it.  PMH_CANCELLED if the caller's hook says so: a table may have
 * a million.
 */
static PmhResult
count_segment(PmhTable *t, uint64_t hash, uint64_t from,
			  PmhBucket *copy, CountList how, uint64_t *elem, SegmentCount *count)
{
	PmhSnapshot snap;
	PmhResult	result;

	if (pmh_wait_cancelled())
		return pmh_fail_cancelled(t);
	result = pmh_segment_read(t, hash, &snap, copy);
	memset(count, 0, sizeof(*count));
	for (uint32_t b = 0; result == PMH_OK && b < snap.place.buckets; b++)
		result = count_bucket(t, &snap, &copy[b], b, from, how, count);
	*elem = snap.place.elem;
	return result;
}

/* Count a segment by its strategy.  An element has room for one that is none. */
static PmhResult
count_strategy(PmhTable *t, PmhStats *stats, uint64_t elem)
{
	switch (pmh_elem_strategy(elem))
	{
		case PMH_SINGLE:
			stats->segments_single++;
			return PMH_OK;
		case PMH_TWO_CHOICE:
			stats->segments_two_choice++;
			return PMH_OK;
		case PMH_STASH:
			stats->segments_stash++;
			return PMH_OK;
	}
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
					"A directory element has an impossible strategy.");
}

static void
add_segment(PmhStats *stats, uint64_t elem, const SegmentCount *count)
{
	uint32_t	depth = pmh_elem_depth(elem);

	stats->segments++;
	if (stats->segments == 1 || depth < stats->min_depth)
		stats->min_depth = depth;
	if (depth > stats->max_depth)
		stats->max_depth = depth;
	stats->entries += count->plain + count->list_entries;
	stats->slots += count->slots;
	stats->used_slots += count->used_slots;
	stats->entries_elsewhere += count->elsewhere;
	stats->entries_stash += count->stash;
	stats->lists += count->lists;
	stats->list_entries += count->list_entries;
	stats->list_bytes += count->list_bytes;
}

static void *
segment_copy(PmhTable *t)
{
	void	   *copy = malloc(PMH_MAX_SEGMENT_BYTES);

	if (copy == NULL)
		(void) pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory for a copy of a segment.");
	return copy;
}

/* Walk all segments. */
static PmhResult
walk(PmhTable *t, CountList how, PmhStats *stats)
{
	PmhBucket  *copy = segment_copy(t);
	PmhPosition at = {0};
	PmhResult	result = copy == NULL ? PMH_ERR_NO_MEMORY : PMH_OK;

	while (result == PMH_OK && !at.through)
	{
		SegmentCount count;
		uint64_t	elem;

		result = count_segment(t, at.next, at.next, copy, how, &elem, &count);
		if (result != PMH_OK)
			break;
		result = count_strategy(t, stats, elem);
		if (result != PMH_OK)
			break;
		add_segment(stats, elem, &count);
		pmh_position_advance(&at, pmh_elem_depth(elem));
	}
	free(copy);
	return result;
}

PmhResult
pmh_stats(PmhTable *table, PmhStats *stats)
{
	const PmhRun *run;
	uint64_t	blocks;
	uint64_t	free_units;
	PmhResult	result;

	memset(stats, 0, sizeof(*stats));
	result = pmh_conclude(table, walk(table, count_list, stats));
	if (result != PMH_OK)
		return result;
	run = pmh_run(table);
	pmh_space_figures(table, &blocks, &free_units);
	stats->value_bytes = pm_load(&run->value_blocks) << PMH_BLOCK_SHIFT;
	stats->file_bytes = blocks << PMH_BLOCK_SHIFT;
	stats->used_bytes = stats->file_bytes - free_units * PMH_UNIT_SIZE;
	stats->load_factor = (double) stats->used_slots / (double) stats->slots;
	stats->global_depth = pmh_dirword_depth(pm_load(&pmh_live(table)->dirword));
	stats->splits = pm_load(&run->splits);
	stats->grows = pm_load(&run->grows);
	stats->doublings = pm_load(&run->doublings);
	stats->compactions = pm_load(&run->compactions);
	stats->strategy_changes = pm_load(&run->strategy_changes);
	stats->merges = pm_load(&run->merges);
	stats->value_space_known = pmh_value_space_is_known(table);
	return PMH_OK;
}

/*
 * Points at equal distances in the space of hashes meet a segment with a
 * probability of 2^-depth, and so each one met stands for 2^depth.  A segment that
 * several of them meet is counted once (its lists may be very long), and is all there
 * is between them.
 */
static double
stands_for(uint64_t elem)
{
	uint32_t	depth = pmh_elem_depth(elem);

	return depth < SAMPLE_BITS ? 1 :
		(double) (UINT64_C(1) << depth) / (1 << SAMPLE_BITS);
}

/* The point after this one that is not in the same segment. */
static uint64_t
next_point(uint64_t point, uint64_t elem)
{
	uint32_t	depth = pmh_elem_depth(elem);
	uint32_t	shared = depth < SAMPLE_BITS ? SAMPLE_BITS - depth : 0;

	return ((point >> shared) + 1) << shared;
}

/* Add what a segment has, as many times as it stands for. */
static void
add_weighted(PmhFill *fill, double weight, const SegmentCount *count)
{
	fill->segments += weight;
	fill->slots += weight * (double) count->slots;
	fill->used_slots += weight * (double) count->used_slots;
	fill->entries += weight * (double) (count->plain + count->list_entries);
	fill->lists += weight * (double) count->lists;
	fill->list_entries += weight * (double) count->list_entries;
	fill->list_bytes += weight * (double) count->list_bytes;
}

/* Count the segments at equal distances, for all. */
static PmhResult
sample(PmhTable *t, CountList how, PmhFill *fill)
{
	PmhBucket  *copy = segment_copy(t);
	uint64_t	point = 0;
	PmhResult	result = copy == NULL ? PMH_ERR_NO_MEMORY : PMH_OK;

	while (result == PMH_OK && point < 1 << SAMPLE_BITS)
	{
		SegmentCount count;
		uint64_t	elem;

		result = count_segment(t, point << (64 - SAMPLE_BITS), 0, copy, how,
							   &elem, &count);
		if (result != PMH_OK)
			break;
		add_weighted(fill, stands_for(elem), &count);
		point = next_point(point, elem);
	}
	free(copy);
	return result;
}

/* A sample of a large table; all of a small one. */
static PmhResult
estimate(PmhTable *t, CountList how, PmhFill *fill)
{
	uint32_t	depth = pmh_dirword_depth(pm_load_acquire(&pmh_live(t)->dirword));
	PmhStats	stats;
	PmhResult	result;

	memset(fill, 0, sizeof(*fill));
	if (depth > SAMPLE_BITS)
		return sample(t, how, fill);
	memset(&stats, 0, sizeof(stats));
	result = walk(t, how, &stats);
	fill->segments = (double) stats.segments;
	fill->slots = (double) stats.slots;
	fill->used_slots = (double) stats.used_slots;
	fill->entries = (double) stats.entries;
	fill->lists = (double) stats.lists;
	fill->list_entries = (double) stats.list_entries;
	fill->list_bytes = (double) stats.list_bytes;
	return result;
}

PmhResult
pmh_estimate(PmhTable *table, uint64_t *entries, uint64_t *file_bytes)
{
	PmhFill		fill;
	PmhResult	result;

	*file_bytes = pmh_blocks(table) << PMH_BLOCK_SHIFT;
	result = estimate(table, guess_list, &fill);
	*entries = (uint64_t) fill.entries;
	return pmh_conclude(table, result);
}

PmhResult
pmh_estimate_fill(PmhTable *t, PmhFill *fill)
{
	return estimate(t, count_list, fill);
}
