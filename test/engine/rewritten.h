/*-------------------------------------------------------------------------
 *
 * rewritten.h
 *	  A buffer of a list rewritten, as a shrink does, but whether it pays or not.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_REWRITTEN_H
#define PMH_REWRITTEN_H

#include "buffer.h"
#include "directory.h"
#include "file_size.h"
#include "list_rewrite.h"
#include "segment.h"
#include "unit.h"

/* Rewrite one buffer of a list; returns where its values are now. */
static inline uint64_t
rewrite_buffer(PmhTable *t, uint64_t hash, uint64_t payload)
{
	PmhListStretch stretch = {.first = payload, .values = pmh_buffer_count(t, payload),
		.bytes = pmh_class_bytes(pmh_pointer_class(payload)),
	.after = pmh_buffer_next(t, payload)};
	PmhListSlot at;
	PmhPlace	place;
	uint64_t	made = 0;
	PmhResult	result;

	do
	{
		REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
		REQUIRE(pmh_segment_find_list(t, &place, hash, &at));
		stretch.before = 0;
		for (uint64_t p = at.payload; p != payload; p = pmh_buffer_next(t, p))
			stretch.before = p;
		result = pmh_list_rewrite(t, &place, &at, hash, &stretch, &made);
		pmh_segment_unlock(&place);
	} while (result == PMH_NEED && pmh_provide(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
	return made;
}

#endif							/* PMH_REWRITTEN_H */
