/*-------------------------------------------------------------------------
 *
 * shrink.c
 *	  Giving space back after mass deletes.
 *
 * See src/README, "Shrinking".  A walk in hash order merges buddies that fit in one segment,
 * and gives segments with much room smaller extensions; then a pass in the order of the file
 * punches what is free (file_size.c).  Lists that lose much are rewritten as they do (group.c).
 *
 * Merging of buddies is the inverse of the split of extendible hashing (Fagin et al., 1979);
 * that all is published as splits are is ours.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "segment.h"

#define MERGED_PERCENT		70

/* Files of fewer blocks are left alone. */
#define SMALL_FILE_BLOCKS	16

/* Merging pays if the load is below this share of what it would come to. */
#define LOW_LOAD			0.65

/* Blocks that are left free, besides a share of the file. */
#define SPARE_BLOCKS		4

/*
 * Free space pays if it is this share of the file, and more than what is left
 * over when the file grows: that is never more than half.
 */
#define MUCH_FREE			0.25
#define MOSTLY_FREE			0.5
#define GROWTH_REST			(4.0 * 1024 * 1024)

/* What a step along segments costs: two are read, and may be written. */
#define SEGMENT_STEP_BYTES	(2 * PMH_BLOCK_SIZE)

/* ---- merging ---- */

/*
 * Merge a locked segment, the left one of its pair, with its buddy.  As
 * pmh_segment_merge; also PMH_NOT_FOUND if the buddy is split further or busy.
 */
static PmhResult
merge_with_buddy(PmhTable *t, const PmhPlace *left, uint64_t start,
				 uint32_t percent)
{
	uint32_t	depth = pmh_elem_depth(left->elem);
	PmhPlace	right;
	PmhResult	result;
	bool		same_stripe;

	PMH_ASSERT(depth > 0 && pmh_is_locked(&left->stripe->lock));
	PMH_ASSERT((pmh_hash_prefix(start, depth) & 1) == 0);
	result = pmh_locate(t, start | pmh_segment_span(depth), &right);
	if (result != PMH_OK)
		return result;
	same_stripe = right.stripe == left->stripe;
	if (pmh_elem_depth(right.elem) != depth ||
		(!same_stripe && !pmh_trylock(&right.stripe->lock)))
		return PMH_NOT_FOUND;
	result = PMH_NOT_FOUND;
	if (pmh_place_current(t, &right) && pmh_elem_whole(right.elem))
		result = pmh_segment_merge(t, left, &right, percent);
	if (!same_stripe)
		pmh_segment_unlock(&right);
	return result;
}

/*
 * A segment of 'depth' has come into being at shrink->at.  Look at it once more;
 * if it is the right one of a pair, begin with the other.
 */
static PmhResult
look_back(PmhTable *t, PmhShrink *shrink, uint32_t depth)
{
	PmhPlace	buddy;
	PmhResult	result;

	PMH_ASSERT(depth <= PMH_MAX_DEPTH);
	shrink->at.next = pmh_segment_start(shrink->at.next, depth);
	if (depth == 0 || (pmh_hash_prefix(shrink->at.next, depth) & 1) == 0)
		return PMH_OK;
	result = pmh_locate(t, shrink->at.next - pmh_segment_span(depth), &buddy);
	if (result == PMH_OK && pmh_elem_depth(buddy.elem) == depth)
		shrink->at.next -= pmh_segment_span(depth);
	return result == PMH_NEED ? PMH_OK : result;
}

/* One segment: merge it, or give it a smaller extension, or pass it by. */
static PmhResult
merge_step(PmhTable *t, PmhShrink *shrink)
{
	PmhPlace	place;
	uint64_t	start;
	uint32_t	depth;
	bool		merged = false;
	PmhResult	result;

	PMH_ASSERT(!shrink->at.through);
	start = pmh_touch_segment(t, shrink->at.next);
	(void) pmh_touch_segment(t, start); /* its buddy */
	result = pmh_segment_lock(t, shrink->at.next, &place);
	if (result != PMH_OK)
		return result;
	depth = pmh_elem_depth(place.elem);
	start = pmh_segment_start(shrink->at.next, depth);
	result = PMH_NOT_FOUND;
	if (depth > 0 && (pmh_hash_prefix(start, depth) & 1) == 0)
		result = merge_with_buddy(t, &place, start, shrink->percent);
	if (result == PMH_OK)
		merged = true;
	else if (result == PMH_NOT_FOUND)
		result = pmh_segment_merge(t, &place, NULL, shrink->percent);
	pmh_segment_unlock(&place);

	if (result == PMH_NEED)
	{
		result = pmh_provide_if_possible(t, &shrink->no_space);
		if (result != PMH_OK || !shrink->no_space)
			return result;
		result = PMH_NOT_FOUND; /* others may do with what is free: pass it by */
	}
	if (result != PMH_OK && result != PMH_NOT_FOUND)
		return result;
	if (merged)
		return look_back(t, shrink, depth - 1);
	pmh_position_advance(&shrink->at, depth);
	return PMH_OK;
}

/* ---- the public face ---- */

/* Would a shrink come to anything? */
static PmhResult
look_whether_it_pays(PmhTable *t, uint32_t percent, bool *pays)
{
	uint64_t	blocks;
	uint64_t	free_units;
	double		all_bytes;
	double		free_bytes;
	PmhStats	stats;
	PmhResult	result;

	*pays = false;
	pmh_space_figures(t, &blocks, &free_units);
	if (blocks <= SMALL_FILE_BLOCKS)
		return PMH_OK;
	free_bytes = (double) free_units * (double) PMH_UNIT_SIZE;
	all_bytes = (double) (blocks << PMH_BLOCK_SHIFT);
	result = pmh_estimate_fill(t, &stats);
	if (result != PMH_OK)
		return result;
	*pays = (stats.segments > 1 &&
			 (double) stats.used_slots < (double) stats.slots * percent / 100 * LOW_LOAD) ||
		(free_bytes > all_bytes * MUCH_FREE &&
		 (free_bytes > GROWTH_REST || free_bytes > all_bytes * MOSTLY_FREE));
	return PMH_OK;
}

static uint64_t
file_bytes(const PmhTable *t)
{
	return pmh_blocks_with_space(t) << PMH_BLOCK_SHIFT;
}

PmhResult
pmh_shrink_begin(PmhTable *table, int fill_percent, PmhShrink *shrink)
{
	bool		pays;
	PmhResult	result;

	memset(shrink, 0, sizeof(*shrink));
	shrink->percent = fill_percent < MERGED_PERCENT ? (uint32_t) fill_percent : MERGED_PERCENT;
	shrink->bytes_before = shrink->bytes_after = file_bytes(table);
	result = pmh_conclude(table, look_whether_it_pays(table, shrink->percent, &pays));
	return result == PMH_OK && !pays ? PMH_DONE : result;
}

/* Punch free blocks next, except the first ones: new entries will need them. */
static void
end_merging(PmhTable *t, PmhShrink *shrink)
{
	uint64_t	blocks;
	uint64_t	free_units;

	PMH_ASSERT(shrink->at.through && shrink->block == 0);
	pmh_space_figures(t, &blocks, &free_units);
	shrink->spare = (blocks - free_units / PMH_UNITS_PER_BLOCK) / 32 + SPARE_BLOCKS;
}

PmhResult
pmh_shrink_step(PmhTable *table, PmhShrink *shrink)
{
	PmhResult	result;

	PMH_ASSERT(shrink->percent > 0 && shrink->percent <= MERGED_PERCENT);
	if (shrink->at.through)
		result = pmh_space_punch(table, &shrink->block, &shrink->spare);
	else
	{
		result = merge_step(table, shrink);
		shrink->bytes_seen += SEGMENT_STEP_BYTES;
		if (shrink->at.through)
			end_merging(table, shrink);
	}
	shrink->bytes_after = file_bytes(table);
	return pmh_conclude(table, result);
}
