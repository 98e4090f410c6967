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
#include "error.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "lock.h"
#include "pm.h"
#include "segment.h"
#include "space.h"
#include "table.h"

/* A sample has segments at 2^SAMPLE_BITS points at equal distances in the space of hashes. */
#define SAMPLE_BITS		6

/* How a list is counted. */
typedef PmhResult (*CountList) (PmhTable *t, uint64_t hash, PmhFill *fill);

/* Exactly; it counts when all has been read. */
static PmhResult
count_list(PmhTable *t, uint64_t hash, PmhFill *fill)
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
	fill->lists += bytes > 0 ? fill->weight : 0;
	fill->list_entries += fill->weight * (double) entries;
	fill->list_bytes += fill->weight * (double) bytes;
	return PMH_OK;
}

/*
 * About how many values has a list?  Reads its last buffer; the others, as the index tells of
 * them, are taken to be full.
 */
static PmhResult
guess_list(PmhTable *t, uint64_t hash, PmhFill *fill)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = PMH_LIST_START;
	uint64_t	each = 0;		/* of what a slot of the level names */
	uint64_t	bytes = 0;		/* of the other buffers of values */
	uint32_t	n;
	PmhResult	result;

	do
		result = pmh_list_whole(t, hash, &at, value, &n);
	while (result == PMH_OK && at.met[0] == 0 && at.below != 0);
	if (result != PMH_OK)
		return result;
	if (at.met[0] == 0)
		return PMH_OK;
	for (unsigned level = 1; level <= PMH_MAX_LEVEL && at.met[level] != 0; level++)
	{
		for (uint32_t i = 0; i < pmh_index_slots(at.met[level]); i++)
		{
			uint64_t	word = pm_load(pmh_index_slot(t, at.met[level], i));

			if (word != 0 && (word & PMH_SLOT_POINTER) != at.met[level - 1])
				bytes += level > 1 ? each : pmh_class_bytes(pmh_pointer_class(word));
		}
		each = (level > 1 ? each : pmh_class_bytes(PMH_MAX_CLASS)) * PMH_MAX_INDEX_SLOTS;
	}
	fill->lists += fill->weight;
	fill->list_entries += fill->weight *
		(double) (n + bytes / PMH_VALUE_LINE * PMH_VALUES_PER_LINE);
	fill->list_bytes += fill->weight *
		(double) (bytes + pmh_class_bytes(pmh_pointer_class(at.met[0])));
	return PMH_OK;
}

/*
 * Count a bucket of a copy.  Entries with a hash below 'from' are left out: they have been
 * counted, in the first half of a split whose second half the directory does not name yet,
 * or in a segment that has been merged with its buddy since.
 */
static PmhResult
count_bucket(PmhTable *t, const PmhSnapshot *snap, const PmhBucket *b,
			 uint32_t bucket, uint64_t from, CountList how, PmhFill *fill)
{
	uint32_t	hashing = snap->place.hashing;
	double		weight = fill->weight;
	uint32_t	plain;
	uint32_t	pointers;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(bucket < snap->place.buckets && weight >= 1);
	pmh_bucket_kinds(b, &plain, &pointers);
	fill->slots += weight * PMH_SLOTS;
	fill->used_slots += weight * pmh_state_count(pmh_bucket_state(b));
	for (uint32_t m = plain | pointers; m != 0 && result == PMH_OK; m &= m - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(m);
		uint64_t	word = pmh_slot_load_word(b, slot);
		uint64_t	hash = pmh_slot_load_hash(b, slot, word);

		if (hash < from)
			continue;
		fill->plain += pmh_word_is_pointer(word) ? 0 : weight;
		fill->elsewhere += pmh_home_bucket(hash, hashing) != bucket ? weight : 0;
		fill->stash += bucket >= hashing ? weight : 0;
		if (pmh_word_is_pointer(word))
			result = how(t, hash, fill);
	}
	return result;
}

/*
 * Count all segments, or a sample of them.  PMH_CANCELLED if the caller's hook says so:
 * a table may have a million.
 *
 * The points of a sample meet a segment with a probability of 2^-depth, and so each one met
 * stands for 2^depth.  A segment that several of them meet is counted once (its lists may
 * be very long), and is all there is between them.
 */
static PmhResult
count(PmhTable *t, bool sample, CountList how, PmhFill *fill)
{
	PmhBucket  *copy = malloc(PMH_MAX_SEGMENT_BYTES);
	PmhPosition at = {0};
	PmhResult	result = PMH_OK;

	memset(fill, 0, sizeof(*fill));
	fill->min_depth = PMH_MAX_DEPTH;
	if (copy == NULL)
		return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory for a copy of a segment.");
	while (result == PMH_OK && !at.through)
	{
		PmhSnapshot snap;
		uint64_t	from = at.next;
		uint32_t	depth;
		PmhStrategy strategy;

		result = pmh_wait_cancelled() ? pmh_fail_cancelled(t) :
			pmh_segment_read(t, at.next, &snap, copy);
		if (result != PMH_OK)
			break;
		depth = pmh_elem_depth(snap.place.elem);
		strategy = pmh_elem_strategy(snap.place.elem);
		if (!pmh_strategy_exists(strategy))
		{
			result = pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
							  "A directory element has an impossible strategy.");
			break;
		}
		fill->min_depth = depth < fill->min_depth ? depth : fill->min_depth;
		fill->max_depth = depth > fill->max_depth ? depth : fill->max_depth;
		fill->weight = 1;
		if (sample && depth > SAMPLE_BITS)
		{
			fill->weight = (double) (UINT64_C(1) << (depth - SAMPLE_BITS));
			from = 0;
			depth = SAMPLE_BITS;
		}
		fill->segments += fill->weight;
		fill->of_strategy[strategy] += fill->weight;
		for (uint32_t b = 0; result == PMH_OK && b < snap.place.buckets; b++)
			result = count_bucket(t, &snap, &copy[b], b, from, how, fill);
		pmh_position_advance(&at, depth);
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
	PmhFill		fill;
	PmhResult	result;

	memset(stats, 0, sizeof(*stats));
	result = pmh_conclude(table, count(table, false, count_list, &fill));
	if (result != PMH_OK)
		return result;
	stats->segments = (uint64_t) fill.segments;
	stats->segments_single = (uint64_t) fill.of_strategy[PMH_SINGLE];
	stats->segments_two_choice = (uint64_t) fill.of_strategy[PMH_TWO_CHOICE];
	stats->segments_stash = (uint64_t) fill.of_strategy[PMH_STASH];
	stats->min_depth = fill.min_depth;
	stats->max_depth = fill.max_depth;
	stats->entries = (uint64_t) (fill.plain + fill.list_entries);
	stats->slots = (uint64_t) fill.slots;
	stats->used_slots = (uint64_t) fill.used_slots;
	stats->load_factor = fill.used_slots / fill.slots;
	stats->entries_elsewhere = (uint64_t) fill.elsewhere;
	stats->entries_stash = (uint64_t) fill.stash;
	stats->lists = (uint64_t) fill.lists;
	stats->list_entries = (uint64_t) fill.list_entries;
	stats->list_bytes = (uint64_t) fill.list_bytes;
	run = pmh_run(table);
	pmh_space_figures(table, &blocks, &free_units);
	stats->value_bytes = pm_load(&run->value_blocks) << PMH_BLOCK_SHIFT;
	stats->file_bytes = blocks << PMH_BLOCK_SHIFT;
	stats->used_bytes = stats->file_bytes - free_units * PMH_UNIT_SIZE;
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

PmhResult
pmh_estimate(PmhTable *table, uint64_t *entries, uint64_t *file_bytes)
{
	PmhFill		fill;
	PmhResult	result = count(table, true, guess_list, &fill);

	*file_bytes = pmh_blocks_with_space(table) << PMH_BLOCK_SHIFT;
	*entries = (uint64_t) (fill.plain + fill.list_entries);
	return pmh_conclude(table, result);
}

PmhResult
pmh_estimate_fill(PmhTable *t, PmhFill *fill)
{
	return count(t, true, count_list, fill);
}
