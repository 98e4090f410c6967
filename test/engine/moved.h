/*-------------------------------------------------------------------------
 *
 * moved.h
 *	  A segment is copied to other space, as what replaces segments does.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_MOVED_H
#define PMH_MOVED_H

#include "bucket.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"
#include "segment.h"
#include "space.h"
#include "unit.h"

/* Space for a copy of a segment; to->elem names it.  PMH_OK, PMH_NEED. */
static inline PmhResult
space_for_copy(PmhTable *t, const PmhPlace *place, PmhPlace *to)
{
	uint32_t	size = pmh_elem_size(place->elem);
	uint64_t	main_offset = 0;
	uint64_t	ext_offset = 0;
	PmhResult	result = PMH_OK;

	if (place->main != 0)
		result = pmh_space_alloc_extent(t, 1, &main_offset);
	if (result == PMH_OK && place->ext != 0)
		result = pmh_space_alloc_units(t, size % PMH_UNITS_PER_BLOCK, &ext_offset);
	if (result == PMH_OK)
		to->elem = pmh_make_elem(main_offset >> PMH_BLOCK_SHIFT, ext_offset / PMH_UNIT_SIZE, size,
								 pmh_elem_depth(place->elem), pmh_elem_strategy(place->elem));
	else if (main_offset != 0)
		pmh_space_free_extent(t, main_offset, 1);
	return result;
}

/* Move the segment of a hash. */
static inline void
move_segment(PmhTable *t, uint64_t hash)
{
	PmhResult	result;

	do
	{
		PmhPlace	place;
		PmhPlace	to;

		REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
		result = space_for_copy(t, &place, &to);
		if (result == PMH_OK)
		{
			REQUIRE(pmh_place_decode(t, &to));
			if (to.stripe != place.stripe && !pmh_trylock(&to.stripe->lock))
			{
				pmh_segment_free(t, to.elem);
				pmh_segment_unlock(&place);
				result = PMH_NEED;
				continue;
			}
			for (uint32_t i = 0; i < place.buckets; i++)
				pm_copy(&t->file, pmh_bucket(t, &to, i), pmh_bucket(t, &place, i), PMH_BUCKET_SIZE);
			pm_fence(&t->file);
			result = pmh_directory_publish(t, &place, to.elem, to.elem);
			if (to.stripe != place.stripe)
				pmh_segment_unlock(&to);
			if (result == PMH_OK)
				pmh_segment_retire(t, &place);
			else
				pmh_segment_free(t, to.elem);
		}
		pmh_segment_unlock(&place);
	} while (result == PMH_NEED && pmh_provide(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
}

#endif							/* PMH_MOVED_H */
