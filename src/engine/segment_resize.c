/*-------------------------------------------------------------------------
 *
 * segment_resize.c
 *	  A segment is replaced by a larger one, by two, or by a smaller one.
 *
 * Instead of the locked segment others are built in private memory, written to free
 * space and published by one directory update; see src/README, "Segments and strategies".
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "segment.h"

/* A half of a split that is fuller than this gets a larger segment. */
#define SPLIT_LOAD_PERCENT	85

/* ---- larger segments ---- */

/* One entry that takes more than a copy of its slot, in bucket i. */
static void __attribute__((noinline))
deal_entry(PmhTable *t, const PmhPlace *place, uint32_t i, unsigned slot, PmhBuild *build,
		   bool lists)
{
	const PmhBucket *b = pmh_bucket(t, place, i);
	uint64_t	word = pmh_slot_load_word(b, slot);
	uint64_t	hash = pmh_slot_load_hash(b, slot, word);
	uint64_t	payload = word & (PMH_WORD_PAYLOAD | PMH_WORD_POINTER);
	PmhListPath path;

	/* Its own bucket has no pointer of this hash: it is not shadowed. */
	if (lists && !pmh_word_is_pointer(word) &&
		pmh_segment_find_list(t, place, hash, &path))
		pmh_build_keep(build, hash, payload | PMH_ITEM_BESIDE_LIST);
	else
		pmh_build_add(build, hash, payload);
}

/*
 * Deal the live entries of a segment out to pmh_workspace[0], or (split = 1) to both; if there
 * are no lists, slots are copied as they are.  An insert waits for it: so it is compiled for
 * either, and written for few instructions.
 */
static inline void __attribute__((always_inline))
deal_out(PmhTable *t, const PmhPlace *place, const unsigned split)
{
	PmhBuild   *const build[] = {&pmh_workspace[0], &pmh_workspace[split]};
	const uint32_t shift = 63 - 24 - pmh_elem_depth(place->elem);	/* hash bits from 24 on */
	bool		lists = false;

	PMH_ASSERT(split <= 1 && pmh_is_locked(&place->stripe->lock));
	for (uint32_t i = 0; i < place->buckets; i++)
		lists |= (pmh_bucket_state(pmh_bucket(t, place, i)) & PMH_STATE_POINTERS) != 0;
	for (uint32_t i = 0; i < place->buckets; i++)
	{
		const PmhBucket *b = pmh_bucket(t, place, i);
		const uint32_t live = pmh_bucket_live(b);

#pragma GCC unroll 18
		for (unsigned slot = 0; slot < PMH_SLOTS; slot++)
		{
			PmhBuild   *to = build[0];
			uint64_t	word;
			uint32_t	home;

			if ((live & (UINT32_C(1) << slot)) == 0)
				continue;
			if (split == 1)
				to = build[pmh_slot_load_high(b, slot) >> shift & 1];
			word = pmh_slot_load_word(b, slot);
			home = pmh_home_bucket(pmh_word_hash(word), to->hashing);
			if (likely(!lists && to->fill[home] < PMH_SLOTS))
				pmh_build_copy(&to->bucket[home], pmh_build_slot(to, home), word, b, slot);
			else
				deal_entry(t, place, i, slot, to, lists);
		}
	}
}

/*
 * Build one segment of this size with all entries of one (right NULL) or of two
 * buddies; false if they do not fit.
 */
static bool
build_one(PmhTable *t, const PmhPlace *left, const PmhPlace *right,
		  uint32_t size)
{
	pmh_build_begin(t, &pmh_workspace[0], size);
	for (const PmhPlace *place = left; place != NULL; place = place == left ? right : NULL)
		deal_out(t, place, 0);
	return pmh_build_complete(&pmh_workspace[0], 100);
}

/*
 * Build the two halves, each of the smallest size that leaves it some room.  If there is none,
 * each as the segment is, without the other's entries: for hashes that no other arrangement
 * holds.
 */
static void
build_halves(PmhTable *t, const PmhPlace *place)
{
	const uint32_t shift = 63 - 24 - pmh_elem_depth(place->elem);
	uint32_t	size[2] = {PMH_UNITS_PER_BLOCK, PMH_UNITS_PER_BLOCK};
	bool		fits = false;

	while (!fits && size[0] <= PMH_MAX_SIZE && size[1] <= PMH_MAX_SIZE)
	{
		fits = true;
		for (unsigned half = 0; half < 2; half++)
			pmh_build_begin(t, &pmh_workspace[half], size[half]);
		deal_out(t, place, 1);
		for (unsigned half = 0; half < 2; half++)
		{
			if (pmh_build_complete(&pmh_workspace[half], SPLIT_LOAD_PERCENT))
				continue;
			size[half]++;
			fits = false;
		}
	}
	for (unsigned half = 0; half < 2 && !fits; half++)
	{
		PmhBuild   *build = &pmh_workspace[half];

		pmh_build_begin(t, build, pmh_elem_size(place->elem));
		build->strategy = pmh_elem_strategy(place->elem);
		for (uint32_t i = 0; i < place->buckets; i++)
		{
			const PmhBucket *b = pmh_bucket(t, place, i);
			uint32_t	live = pmh_bucket_live(b);

			memcpy(&build->bucket[i], b, sizeof(PmhBucket));
			for (unsigned slot = 0; slot < PMH_SLOTS; slot++)
			{
				if ((pmh_slot_load_high(b, slot) >> shift & 1) != half)
					live &= ~(UINT32_C(1) << slot);
			}
			*pmh_bucket_state_at(&build->bucket[i]) =
				(pmh_bucket_state(b) & ~PMH_STATE_OCCUPIED) | live;
		}
	}
}

PmhResult
pmh_segment_store(PmhTable *t, const PmhBuild *build, uint32_t depth, uint64_t ext_offset,
				  bool fresh, uint64_t *elem)
{
	uint32_t	units = build->size % PMH_UNITS_PER_BLOCK;
	uint64_t	main_offset = 0;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(build->size > 0 && build->size <= PMH_MAX_SIZE);
	if (build->size >= PMH_UNITS_PER_BLOCK)
		result = pmh_space_alloc_extent(t, 1, &main_offset);
	if (result == PMH_OK && units > 0 && ext_offset == 0)
		result = pmh_space_alloc_units(t, units, &ext_offset);
	if (result != PMH_OK)
	{
		if (main_offset != 0)
			pmh_space_free_extent(t, main_offset, 1);
		return result;
	}
	*elem = pmh_make_elem(main_offset >> PMH_BLOCK_SHIFT, ext_offset / PMH_UNIT_SIZE,
						  build->size, depth, build->strategy);
	pmh_build_store(t, build, *elem, fresh);
	return PMH_OK;
}

/* Free the space that an element names: nothing refers to it. */
static void
free_segment(PmhTable *t, uint64_t elem)
{
	uint32_t	units = pmh_elem_units(elem);

	PMH_ASSERT(pmh_elem_size(elem) != 0 && pmh_elem_whole(elem));
	if (pmh_elem_has_main(elem))
		pmh_space_free_extent(t, pmh_elem_main_block(elem) << PMH_BLOCK_SHIFT, 1);
	if (units > 0)
		pmh_space_free_units(t, pmh_elem_ext_unit(elem) * PMH_UNIT_SIZE, units);
}

void
pmh_segment_retire(PmhTable *t, const PmhPlace *place)
{
	PMH_ASSERT(pmh_is_locked(&place->stripe->lock));
	PMH_STOP_POINT("retire_before_versions");
	for (unsigned i = 0; i < PMH_VERSIONS; i++)
		pmh_version_bump(&place->stripe->version[i]);
	PMH_STOP_POINT("retire_before_free");
	free_segment(t, place->elem);
	PMH_STOP_POINT("retire_after_free");
}

/*
 * Lock the stripe of a segment that is stored but not published, unless it is one of those
 * that are locked already.  No process waits for a stripe while it holds another one: if
 * somebody has this one, PMH_NEED, to wait for it with nothing locked.
 */
static PmhResult
lock_stored(PmhTable *t, uint64_t elem, PmhStripe **held, unsigned *nheld)
{
	PmhStripe  *stripe = pmh_segment_stripe(t->locks, t->file_id, pmh_elem_main_block(elem));

	for (unsigned i = 0; i < *nheld; i++)
	{
		if (held[i] == stripe)
			return PMH_OK;
	}
	if (!pmh_trylock(&stripe->lock))
	{
		t->need.lock = &stripe->lock;
		return PMH_NEED;
	}
	held[(*nheld)++] = stripe;
	return PMH_OK;
}

/*
 * The stripes of the new segments are held until the directory names these durably: see
 * pmh_directory_publish.
 */
PmhResult
pmh_segment_replace(PmhTable *t, const PmhPlace *left, const PmhPlace *right, unsigned n)
{
	uint32_t	depth = pmh_elem_depth(left->elem) + (n == 2) - (right != NULL);
	uint32_t	size = pmh_elem_size(left->elem);
	PmhPlace	whole = *left;
	uint64_t	elem[2];
	PmhStripe  *held[4] = {left->stripe, right != NULL ? right->stripe : left->stripe};
	unsigned	nheld = 2;
	unsigned	stored = 0;
	PmhResult	result = PMH_OK;

	PMH_ASSERT((n == 1 || (n == 2 && right == NULL)));
	PMH_ASSERT(pmh_is_locked(&left->stripe->lock));
	PMH_ASSERT(right == NULL || pmh_elem_depth(right->elem) == pmh_elem_depth(left->elem));
	while (stored < n && result == PMH_OK)
	{
		result = pmh_segment_store(t, &pmh_workspace[stored], depth, 0, false, &elem[stored]);
		if (result == PMH_OK)
			result = lock_stored(t, elem[stored++], held, &nheld);
	}
	pm_fence(&t->file);			/* before it is published, or freed */
	if (result == PMH_OK)
	{
		if (right != NULL)
			whole.elem = elem[0];	/* its depth tells the range */
		PMH_STOP_POINT("replace_before_publish");
		result = pmh_directory_publish(t, &whole, elem[0], elem[n - 1]);
	}
	PMH_STOP_POINT("replace_before_retire");
	while (nheld > 2)
		pmh_unlock(&held[--nheld]->lock);
	if (result == PMH_OK)
	{
		pmh_segment_retire(t, left);
		if (right != NULL)
			pmh_segment_retire(t, right);
	}
	else
	{
		while (stored > 0)
			free_segment(t, elem[--stored]);
		return result;
	}
	if (n == 2)
		pmh_count(&pmh_run(t)->splits, 1);
	else if (right == NULL && pmh_elem_size(elem[0]) > size)
		pmh_count(&pmh_run(t)->grows, 1);
	else
		pmh_count(&pmh_run(t)->merges, 1);
	return PMH_OK;
}

/* Entries of a locked segment that count: what a copy of it would hold. */
static uint32_t
count_live(const PmhTable *t, const PmhPlace *place)
{
	uint32_t	n = 0;

	for (uint32_t i = 0; i < place->buckets; i++)
		n += pmh_mask_count(pmh_bucket_live(pmh_bucket(t, place, i)));
	return n;
}

PmhResult
pmh_segment_enlarge(PmhTable *t, const PmhPlace *place)
{
	static const uint32_t sizes[] = {
		PMH_SMALL_SIZE, PMH_UNITS_PER_BLOCK, PMH_GROWN_SIZE
	};
	uint32_t	size = pmh_elem_size(place->elem);
	uint32_t	depth = pmh_elem_depth(place->elem);
	bool		grown = false;
	PmhResult	result;

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock));
	for (unsigned i = 0; i < 3 && size <= PMH_UNITS_PER_BLOCK && !grown; i++)
		grown = sizes[i] > size && build_one(t, place, NULL, sizes[i]);
	if (!grown && depth == PMH_MAX_DEPTH)
		return pmh_fail(t, PMH_ERR_TOO_LARGE, 0, place->main,
						"A segment of the greatest depth is full.");
	if (!grown && depth == pmh_dirword_depth(place->dirword))
	{
		t->need.doubling = true;
		t->need.doubling_depth = depth;
		return PMH_NEED;
	}
	if (!grown)
		build_halves(t, place);
	result = pmh_segment_replace(t, place, NULL, grown ? 1 : 2);
	return result == PMH_OK ? PMH_RETRY : result;
}

/* ---- smaller segments ---- */

PmhResult
pmh_segment_merge(PmhTable *t, const PmhPlace *left, const PmhPlace *right, uint32_t percent)
{
	const uint32_t below = right != NULL ? PMH_GROWN_SIZE + 1 :
		pmh_elem_size(left->elem) - PMH_REDUCE_UNITS + 1;
	uint32_t	size = PMH_UNITS_PER_BLOCK;
	uint64_t	n = count_live(t, left);

	PMH_ASSERT(percent > 0 && pmh_is_locked(&left->stripe->lock));
	PMH_ASSERT(right == NULL || pmh_is_locked(&right->stripe->lock));
	PMH_ASSERT(right == NULL || pmh_elem_depth(left->elem) > 0);
	if (right != NULL)
		n += count_live(t, right);
	for (; size < below; size++)
	{
		if (n * 100 <= (uint64_t) pmh_build_slots(size) * percent &&
			build_one(t, left, right, size))
			return pmh_segment_replace(t, left, right, 1);
	}
	return PMH_NOT_FOUND;
}
