/*-------------------------------------------------------------------------
 *
 * directory.c
 *	  From a hash to its segment, and the three changes of the directory:
 *	  new segments, another strategy, doubling.
 *
 * Extendible directory on the most significant bits: CCEH, section 4; Pea
 * Hash, section 3.1.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "segment.h"

#define COPY_ELEMENTS	512		/* elements doubled at a time */

_Static_assert((sizeof(uint64_t) << PMH_MAX_DEPTH) / PMH_BLOCK_SIZE <=
			   PMH_LONGEST_EXTENT,
			   "the largest directory is an extent of blocks that cannot exist");

/*
 * A place lies beyond the bound: the file has grown, or it is corrupt, or outdated (what
 * was read may be no directory any more).  The file never becomes shorter: so beyond its
 * end, too, is damage, if the place is what the directory says.
 */
static PmhResult
locate_outside(PmhTable *t, const PmhPlace *p)
{
	PmhResult	result = PMH_OK;

	if (!pmh_place_current(t, p))
		return PMH_RETRY;
	if (pmh_elem_size(p->elem) == 0)
		return pmh_fail(t, PMH_ERR_CORRUPT, 0,
						pmh_dirword_offset(p->dirword) + p->index * sizeof(uint64_t),
						"A directory element names no segment.");
	PMH_STOP_POINT("outside_before_span");
	if (pmh_elem_has_main(p->elem))
		result = pmh_check_span(t, p->main, PMH_BLOCK_SIZE);
	if (result == PMH_OK && p->ext != 0)
		result = pmh_check_span(t, p->ext,
								pmh_elem_units(p->elem) * PMH_UNIT_SIZE);
	return result == PMH_OK ? PMH_RETRY : result;
}

/* Is the word whole, and the directory within the bound?  PMH_ERR_CORRUPT, else pmh_check_span. */
static PmhResult
check_dirword(PmhTable *t, uint64_t dirword)
{
	if (dirword != pmh_seal(dirword, PMH_DIRWORD_BITS))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
						"What the header says of the directory is damaged.");
	return pmh_check_span(t, pmh_dirword_offset(dirword),
						  pmh_directory_size(pmh_dirword_depth(dirword)));
}

PmhResult
pmh_locate(PmhTable *t, uint64_t hash, PmhPlace *p)
{
	for (;;)
	{
		uint64_t	dirword = pm_load_acquire(&pmh_live(t)->dirword);
		uint32_t	depth = pmh_dirword_depth(dirword);
		PmhResult	result;

		/*
		 * Once it is seen to lie within the bound, which is never lowered while the file is
		 * open, that need not be checked again.  No other one has the same word, so what is
		 * read there counts as long as that is the directory's.
		 */
		if (dirword != t->seen_dirword && (result = check_dirword(t, dirword)) != PMH_OK)
			return result;
		t->seen_dirword = dirword;
		t->seen_offset = pmh_dirword_offset(dirword);
		t->seen_elements = pmh_directory_elements(depth);
		p->dirword = dirword;
		p->index = pmh_hash_prefix(hash, depth);
		PMH_STOP_POINT("locate_before_element");
		p->elem = pm_load_acquire((uint64_t *) pmh_at(t, t->seen_offset) + p->index);
		if (pmh_place_decode(t, p))
			return PMH_OK;
		result = locate_outside(t, p);
		if (result != PMH_RETRY)
			return result;
	}
}

bool
pmh_elem_sane(uint64_t elem, uint64_t index,
			  uint32_t depth, uint64_t blocks)
{
	uint64_t	main_block = pmh_elem_main_block(elem);
	bool		has_main = pmh_elem_has_main(elem);
	uint32_t	units = pmh_elem_units(elem);
	uint32_t	local = pmh_elem_depth(elem);

	PMH_ASSERT(index < pmh_directory_elements(depth));
	if (local > depth || (index & ((UINT64_C(1) << (depth - local)) - 1)) != 0)
		return false;
	if (!pmh_strategy_exists(pmh_elem_strategy(elem)) || !pmh_elem_whole(elem))
		return false;
	if (has_main ? main_block >= blocks || pmh_space_is_map_block(main_block) :
		main_block != 0)
		return false;
	for (uint32_t i = 0; i < units; i++)
	{
		uint64_t	unit = pmh_elem_ext_unit(elem) + i;
		uint64_t	block = unit / PMH_UNITS_PER_BLOCK;

		if (block >= blocks ||
			(pmh_space_reserved(block) >> unit % PMH_UNITS_PER_BLOCK & 1) != 0)
			return false;
	}
	return has_main || units > 0;
}

/*
 * For a writer, which holds the segment's lock: what a flipped bit has made of an element
 * must not be written to, nor to its neighbours.  And for a walk over all segments: it would
 * pass by the one that the element has named.
 */
static PmhResult
check_whole(PmhTable *t, const PmhPlace *p)
{
	uint64_t	offset = pmh_dirword_offset(p->dirword) + p->index * sizeof(uint64_t);

	/* (In block 0 no main part can be: it would be freed one day, and the header with it.) */
	if (unlikely(!pmh_elem_whole(p->elem) ||
				 (pmh_elem_has_main(p->elem) && pmh_elem_main_block(p->elem) == 0)))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, offset, "Directory element %llu is damaged.",
						(unsigned long long) p->index);
	/* What is computed with the difference of the depths would be nonsense. */
	if (unlikely(pmh_elem_depth(p->elem) > pmh_dirword_depth(p->dirword)))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, offset,
						"A directory element is deeper than the directory.");
	return PMH_OK;
}

PmhResult
pmh_snapshot(PmhTable *t, uint64_t hash, PmhSnapshot *snap)
{
	for (;;)
	{
		PmhResult	result = pmh_locate(t, hash, &snap->place);

		if (result == PMH_NEED)
		{
			result = pmh_provide(t);
			if (result == PMH_OK)
				continue;
		}
		if (result != PMH_OK)
			return result;
		for (unsigned i = 0; i < PMH_VERSIONS; i++)
			snap->version[i] = pmh_version_load(&snap->place.stripe->version[i]);
		if (pmh_place_current(t, &snap->place))
			return check_whole(t, &snap->place);
	}
}

/*
 * Have the buckets of a hash on their way while the lock is taken.  Has to be
 * inline: a compiler may leave out the call of a function that only prefetches.
 */
static inline void __attribute__((always_inline))
prefetch_buckets(const PmhTable *t, const PmhPlace *place, uint64_t hash)
{
	uint32_t	home = pmh_home_bucket(hash, place->hashing);

	__builtin_prefetch(place->stripe, 1);
	for (unsigned line = 0; line < PMH_BUCKET_SIZE / PMH_LINE; line++)
		__builtin_prefetch(pmh_bucket(t, place, home)->bytes + line * PMH_LINE, 1);
	__builtin_prefetch(pmh_bucket(t, place, pmh_alt_bucket(hash, place->hashing, home)),
					   1);
}

/*
 * Those that are needed are in memory before it is taken: nobody is to wait for a lock
 * while its holder waits for the disk.
 */
static inline void
touch_buckets(const PmhTable *t, const PmhPlace *place, uint64_t hash)
{
	uint32_t	home = pmh_home_bucket(hash, place->hashing);
	uint32_t	state = pmh_bucket_state(pmh_bucket(t, place, home));

	if (pmh_state_balances(state) || (state & pmh_filter_bit(hash)) != 0)
		(void) pmh_bucket_state(pmh_bucket(t, place,
										   pmh_alt_bucket(hash, place->hashing, home)));
	if ((state & PMH_STATE_STASHED) != 0)
		(void) pmh_bucket_state(pmh_bucket(t, place, place->hashing));
}

/* Lock the segment of hash, waiting for the lock or not. */
static inline PmhResult
lock_segment(PmhTable *t, uint64_t hash, PmhPlace *place, bool wait)
{
	PmhResult	result;

	PMH_ASSERT(!t->space_held);
	for (;;)
	{
		result = pmh_locate(t, hash, place);
		if (result == PMH_NEED && wait)
		{
			result = pmh_provide(t);
			if (result == PMH_OK)
				continue;
		}
		if (result != PMH_OK)
			return result;
		prefetch_buckets(t, place, hash);
		if (wait && !t->file.persist)	/* else there are locks already */
			touch_buckets(t, place, hash);
		PMH_STOP_POINT("segment_before_lock");
		if (!(wait ? pmh_lock_or_cancel(&place->stripe->lock) :
			  pmh_trylock(&place->stripe->lock)))
			return wait ? pmh_fail_cancelled(t) : PMH_RETRY;
		if (pmh_place_current(t, place))
			break;
		pmh_unlock(&place->stripe->lock);
	}
	result = check_whole(t, place);
	if (unlikely(result != PMH_OK))
		pmh_unlock(&place->stripe->lock);
	PMH_ASSERT(result != PMH_OK || pmh_is_locked(&place->stripe->lock));
	return result;
}

PmhResult
pmh_segment_lock(PmhTable *t, uint64_t hash, PmhPlace *place)
{
	return lock_segment(t, hash, place, true);
}

PmhResult
pmh_segment_trylock(PmhTable *t, uint64_t hash, PmhPlace *place)
{
	return lock_segment(t, hash, place, false);
}

PmhResult
pmh_segment_lock_or_leave(PmhTable *t, uint64_t hash, bool wait, PmhPlace *place)
{
	PmhResult	result = PMH_RETRY;

	if (wait)
		return pmh_segment_lock(t, hash, place);
	for (unsigned i = 0; i < PMH_LOCK_TRIES && result == PMH_RETRY; i++)
	{
		result = pmh_segment_trylock(t, hash, place);
		if (result == PMH_RETRY)
			pmh_pause();
		if (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK)
			result = PMH_RETRY;
	}
	return result == PMH_RETRY ? PMH_BUSY : result;
}

/* Store elements and make them durable. */
static void
store_elements(PmhTable *t, uint64_t dirword, uint64_t first,
					uint64_t count, uint64_t low, uint64_t high)
{
	uint64_t   *dir = (uint64_t *) pmh_at(t, pmh_dirword_offset(dirword)) + first;

	PMH_ASSERT(count > 0 && first % count == 0 &&
			   first + count <= pmh_directory_elements(pmh_dirword_depth(dirword)));
	PMH_ASSERT(pmh_elem_whole(low) && pmh_elem_whole(high));
	for (uint64_t i = 0; i < count; i++)
	{
		PMH_STOP_POINT(i == 0 ? "elements_before_first" : "elements_between");
		pm_store64(&dir[i], i < count / 2 ? low : high);
	}
	pm_flush(&t->file, dir, count * sizeof(uint64_t));
	pm_fence(&t->file);
}

/*
 * There is no log.  A crash leaves any of the new elements among the old ones, in any order,
 * since they are of more than one cache line.  But until all of them are durable the caller
 * holds the stripes of all segments concerned, so nobody changes one, and old and new have
 * the same entries, durably; and no space is freed.  So either will do for recovery, as long
 * as it is complete: one whole, or two halves that were stored together (stride_directory).
 *
 * The directory lock keeps a doubling from copying elements in between, and a second process
 * from its own: so there are never two updates that are not durable.  Readers may find either.
 * The old segments' versions change after all elements have, before the space is freed.
 */
PmhResult
pmh_directory_publish(PmhTable *t, const PmhPlace *place, uint64_t low, uint64_t high)
{
	uint32_t	local = pmh_elem_depth(place->elem);
	uint32_t	above;			/* by so many bits the directory is deeper */
	uint64_t	dirword;
	uint32_t	depth;
	PmhResult	result;

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock));
	PMH_ASSERT(pmh_is_locked(&pmh_segment_stripe(t->locks, t->file_id,
												 pmh_elem_main_block(low))->lock));
	PMH_ASSERT(pmh_is_locked(&pmh_segment_stripe(t->locks, t->file_id,
												 pmh_elem_main_block(high))->lock));
	PMH_ASSERT(local <= pmh_elem_depth(low) && pmh_elem_depth(low) == pmh_elem_depth(high));
	pmh_lock(&t->file_lock->directory);
	dirword = pm_load_acquire(&pmh_live(t)->dirword);	/* it may have been doubled */
	depth = pmh_dirword_depth(dirword);
	above = depth - local;
	/* It never becomes smaller, so the page has been lost. */
	if (depth < pmh_elem_depth(low))
		result = pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
						  "The directory is smaller than a segment of it needs.");
	else
		result = check_dirword(t, dirword);
	if (result == PMH_OK)
		store_elements(t, dirword,
					   place->index >> (pmh_dirword_depth(place->dirword) - local) << above,
					   UINT64_C(1) << above, low, high);
	pmh_unlock(&t->file_lock->directory);
	return result;
}

PmhResult
pmh_directory_strategy(PmhTable *t, PmhPlace *place, PmhStrategy strategy)
{
	uint64_t	change = (uint64_t) (pmh_elem_strategy(place->elem) ^ strategy);
	uint64_t	elem = pmh_elem_seal(place->elem ^ change << PMH_ELEM_STRATEGY_SHIFT);
	PmhResult	result = pmh_directory_publish(t, place, elem, elem);

	PMH_ASSERT(strategy > pmh_elem_strategy(place->elem) && pmh_elem_strategy(elem) == strategy);
	if (result != PMH_OK)
		return result;
	place->elem = elem;
	pmh_count(&pmh_run(t)->strategy_changes, 1);
	return PMH_OK;
}

uint64_t
pmh_directory_blocks(uint32_t depth)
{
	if (depth <= PMH_SMALL_DIR_DEPTH)
		return 0;
	return (pmh_directory_size(depth) + PMH_BLOCK_SIZE - 1) >> PMH_BLOCK_SHIFT;
}

/* Write every element of the directory at 'from' twice to 'to'. */
static void
copy_doubled(PmhTable *t, uint64_t from, uint64_t to, uint64_t count)
{
	const uint64_t *old = pmh_at(t, from);
	uint64_t   *copy = pmh_at(t, to);
	uint64_t	chunk[2 * COPY_ELEMENTS];

	PMH_ASSERT(pmh_within(t, to, 2 * count * sizeof(uint64_t)));
	PMH_ASSERT(pmh_is_locked(&t->file_lock->directory));
	for (uint64_t done = 0; done < count; done += COPY_ELEMENTS)
	{
		uint64_t	n = count - done < COPY_ELEMENTS ? count - done : COPY_ELEMENTS;

		for (uint64_t i = 0; i < n; i++)
			chunk[2 * i] = chunk[2 * i + 1] = pm_load(&old[done + i]);
		pm_copy(&t->file, &copy[2 * done], chunk, 2 * n * sizeof(uint64_t));
	}
	pm_fence(&t->file);
}

uint64_t
pmh_small_directory(const PmhTable *t)
{
	uint64_t	current = pmh_dirword_offset(pm_load_acquire(&pmh_live(t)->dirword));

	return PMH_SMALL_DIR_OFFSET(current == PMH_SMALL_DIR_OFFSET(0));
}

/*
 * Double the directory into the space at 'to'.  PMH_OK; PMH_RETRY if its depth is not 'depth'
 * any more; PMH_NEED.
 */
static PmhResult
double_into(PmhTable *t, uint32_t depth, uint64_t to)
{
	PmhLive    *live = pmh_live(t);
	uint64_t	dirword;
	uint64_t	from;
	PmhResult	result;

	PMH_ASSERT(to % PMH_LINE == 0);
	if (!pmh_lock_or_cancel(&t->file_lock->directory))
		return pmh_fail_cancelled(t);
	dirword = pm_load_acquire(&live->dirword);
	from = pmh_dirword_offset(dirword);
	if (pmh_dirword_depth(dirword) != depth)
		result = PMH_RETRY;
	else
		result = check_dirword(t, dirword); /* before it is copied and its space is free */
	if (result == PMH_OK)
	{
		copy_doubled(t, from, to, pmh_directory_elements(depth));
		PMH_STOP_POINT("double_before_dirword");
		pm_store64(&live->dirword, pmh_seal_dirword(to, depth + 1));
		PMH_STOP_POINT("double_after_dirword");
		pm_flush(&t->file, &live->dirword, sizeof(uint64_t));
		pm_fence(&t->file);
	}
	pmh_unlock(&t->file_lock->directory);

	if (result == PMH_OK && depth > PMH_SMALL_DIR_DEPTH)
		pmh_space_free_extent(t, from, pmh_directory_blocks(depth));
	return result;
}

PmhResult
pmh_directory_double(PmhTable *t, uint32_t depth)
{
	uint64_t	nblocks = pmh_directory_blocks(depth + 1);

	PMH_ASSERT(!t->space_held);
	for (;;)
	{
		uint64_t	to = pmh_small_directory(t);
		PmhResult	result = PMH_OK;

		if (nblocks > 0)
			result = pmh_space_alloc_extent(t, nblocks, &to);
		if (result == PMH_OK)
		{
			result = double_into(t, depth, to);
			if (result == PMH_OK)
				pmh_count(&pmh_run(t)->doublings, 1);
			else if (nblocks > 0)
				pmh_space_free_extent(t, to, nblocks);
		}
		if (result == PMH_RETRY)
			return PMH_OK;		/* another process was faster */
		if (result == PMH_NEED)
		{
			result = pmh_provide(t);
			if (result == PMH_OK)
				continue;
		}
		return result;
	}
}
