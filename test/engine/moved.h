/*-------------------------------------------------------------------------
 *
 * moved.h
 *	  A segment is copied to other space, as what replaces segments does.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_MOVED_H
#define PMH_MOVED_H

#include <string.h>

#include "bucket.h"
#include "handle.h"
#include "layout.h"
#include "segment.h"
#include "space.h"
#include "unit.h"

/* Move the segment of a hash. */
static inline void
move_segment(PmhTable *t, uint64_t hash)
{
	PmhResult	result;

	do
	{
		PmhBuild   *build = &pmh_workspace[0];
		PmhPlace	place;

		REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
		pmh_build_begin(t, build, pmh_elem_size(place.elem));
		build->strategy = pmh_elem_strategy(place.elem);
		for (uint32_t i = 0; i < place.buckets; i++)
			memcpy(&build->bucket[i], pmh_bucket(t, &place, i), PMH_BUCKET_SIZE);
		result = pmh_segment_replace(t, &place, NULL, 1);
		pmh_segment_unlock(&place);
	} while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	REQUIRE(result == PMH_OK);
}

#endif							/* PMH_MOVED_H */
