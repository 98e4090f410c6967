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

/*
 * A segment of the primary table becomes larger only if it is so full, and is
 * split only if that leaves either half so much of its entries (percent).
 *
 * Hashes drawn at random fill .9 and more of a segment, keys with some twenty
 * values each, one after the other, .46 to .8, since what a bucket has of a key
 * stays beside its list; and halves of 600 entries are nearly ten standard
 * deviations away from such a share.  Hostile hashes can make segments so empty:
 * of a split of 12 units at .45 one half has 230 entries, which is .2 of 8 units,
 * and it takes as many new ones until the other half is split again.  That is
 * four times the space of others.
 */
#define PMH_FULL_PERCENT	45
#define PMH_SHARE_PERCENT	30

#ifdef PMH_RECORD
/* test/crash: with few entries, have segments do what otherwise takes a thousand. */
extern bool pmh_record_splits;
#define PMH_SPLITS_ANYWAY	pmh_record_splits
#else
#define PMH_SPLITS_ANYWAY	false
#endif

/* Of n entries, 'second' have a 1 for their next hash bit: is a split of use? */
static inline bool
pmh_halves_even(uint64_t n, uint64_t second)
{
	return second * 100 >= n * PMH_SHARE_PERCENT &&
		(n - second) * 100 >= n * PMH_SHARE_PERCENT;
}

/* A segment is rebuilt with a smaller extension if it saves so many units. */
#define PMH_REDUCE_UNITS	2

/*
 * Replace two locked buddies by one segment, a locked segment by one with a
 * smaller extension, or by a copy of it elsewhere.  Entries take no more than
 * 'percent' of the slots of what is made.  PMH_OK: done, the places are void;
 * PMH_NOT_FOUND: it does not fit, or does not pay; PMH_NEED (nothing done).
 */
extern PmhResult pmh_segment_merge(PmhTable *t, const PmhPlace *left,
								   const PmhPlace *right, uint32_t percent);
extern PmhResult pmh_segment_reduce(PmhTable *t, const PmhPlace *place,
									uint32_t percent);
extern PmhResult pmh_segment_move(PmhTable *t, const PmhPlace *place);

/* Free the space that an element names: nothing refers to it. */
extern void pmh_segment_free(PmhTable *t, uint64_t elem);

/*
 * The locked segment of 'place' has been replaced in the directory: let its
 * readers notice, then free its space.
 */
extern void pmh_segment_retire(PmhTable *t, const PmhPlace *place);

/* Make an empty overflow table if there is none.  No lock may be held. */
extern PmhResult pmh_overflow_begin(PmhTable *t);

/*
 * The segment is full: let it grow, else split it.  PMH_RETRY when that is
 * done, PMH_NEED, PMH_CROWDED, PMH_ERR_TOO_LARGE (in the overflow table, whose
 * hashes are as random as its key is secret).
 */
extern PmhResult pmh_segment_enlarge(PmhTable *t, const PmhPlace *place);

#endif							/* PMH_SEGMENT_RESIZE_H */
