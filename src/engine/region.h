/*-------------------------------------------------------------------------
 *
 * region.h
 *	  Value regions (region.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_REGION_H
#define PMH_REGION_H

#include "error.h"
#include "table.h"

/*
 * Take a value region of which nothing is in use, and nothing in a free list,
 * off their list, durably, and free its blocks.  No lock may be held.
 */
extern PmhResult pmh_region_return(PmhTable *t, uint64_t block);

/* Where a value region is. */
typedef struct PmhRegionSpan
{
	uint64_t	from;			/* offsets of its first and past its last byte */
	uint64_t	to;
	uint64_t	live;			/* bytes of buffers in it that lists have */
} PmhRegionSpan;

/* As 'first' of pmh_regions: from the newest region on. */
#define PMH_NEWEST_REGION	UINT64_C(0)

/*
 * The value region at the block 'first' and all that are older, ascending, in an
 * array to be freed by the caller; none if that is not on the list (any more).
 * PMH_OK or a real error.  No lock may be held.
 */
extern PmhResult pmh_regions(PmhTable *t, uint64_t first, PmhRegionSpan **span,
							 size_t *n);

/* The one of n that an offset lies in, or NULL. */
extern PmhRegionSpan *pmh_region_of(PmhRegionSpan *span, size_t n, uint64_t offset);

/* Do what live.region_unlink says (again, after a crash), and clear it. */
extern void pmh_region_redo_unlink(PmhTable *t);

#endif							/* PMH_REGION_H */
