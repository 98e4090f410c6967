/*-------------------------------------------------------------------------
 *
 * old_space.h
 *	  A table as it is after a crash, as far as value blocks go.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OLD_SPACE_H
#define OLD_SPACE_H

#include "handle.h"
#include "space.h"
#include "unit.h"

/* Let all value blocks be of an earlier life, as after a crash.  Nobody may be at work. */
static inline void
fixture_forget_space(PmhTable *t)
{
	uint64_t	old = 0;

	REQUIRE(pmh_map_all(t) == PMH_OK);
	for (uint64_t block = 1; block < pmh_blocks(t); block++)
	{
		uint8_t    *kind = pmh_space_kind(t, block);

		if ((pm_load(kind) & PMH_KIND_MASK) != PMH_KIND_VALUES)
			continue;
		pm_store8(kind, PMH_KIND_VALUES | PMH_ROOM_OLD);
		old++;
	}
	pm_store64(&pmh_run(t)->old_blocks, old);
}

#endif							/* OLD_SPACE_H */
