/*-------------------------------------------------------------------------
 *
 * segment_resize.h
 *	  Segments replaced by larger and smaller ones (segment_resize.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_SEGMENT_RESIZE_H
#define PMH_SEGMENT_RESIZE_H

#include "error.h"
#include "place.h"
#include "table.h"

/*
 * Sizes that a segment grows to, one after the other, before it is split.  The first is
 * what block 0 has room for beside the segment of an empty table.
 */
#define PMH_SMALL_SIZE		5
#define PMH_GROWN_SIZE		12

/* A segment is rebuilt with a smaller extension if it saves so many units. */
#define PMH_REDUCE_UNITS	2

/*
 * Replace two locked buddies by one segment, or a locked segment by one with a
 * smaller extension.  Entries take no more than
 * 'percent' of the slots of what is made.  PMH_OK: done, the places are void;
 * PMH_NOT_FOUND: it does not fit, or does not pay; PMH_NEED (nothing done).
 */
extern PmhResult pmh_segment_merge(PmhTable *t, const PmhPlace *left,
								   const PmhPlace *right, uint32_t percent);
extern PmhResult pmh_segment_reduce(PmhTable *t, const PmhPlace *place,
									uint32_t percent);

/* Free the space that an element names: nothing refers to it. */
extern void pmh_segment_free(PmhTable *t, uint64_t elem);

/*
 * The locked segment of 'place' has been replaced in the directory: let its
 * readers notice, then free its space.
 */
extern void pmh_segment_retire(PmhTable *t, const PmhPlace *place);

/*
 * The segment is full: let it grow, else split it.  PMH_RETRY when that is done,
 * PMH_NEED; PMH_ERR_TOO_LARGE if it is one of the greatest depth.
 */
extern PmhResult pmh_segment_enlarge(PmhTable *t, const PmhPlace *place);

#endif							/* PMH_SEGMENT_RESIZE_H */
