/*-------------------------------------------------------------------------
 *
 * home.h
 *	  The home bucket of a hash, found as look-ups find it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_HOME_H
#define PMH_HOME_H

#include "bucket.h"
#include "element.h"
#include "handle.h"
#include "layout.h"
#include "lock.h"
#include "place.h"
#include "pm.h"
#include "table.h"

/*
 * The home bucket of a hash as a look-up finds it: the little of a PmhPlace that
 * nearly all of them need.
 */
typedef struct PmhHome
{
	const char *base;			/* of the mapping */
	uint64_t	dirword;
	const uint64_t *at;			/* the element, and ... */
	uint64_t	elem;			/* ... what it was */
	const PmhBucket *bucket;
	const uint64_t *version;	/* of the bucket */
} PmhHome;

/* Buckets of the segment of an element that hash values go to. */
static inline uint32_t __attribute__((always_inline))
pmh_elem_hashing(uint64_t elem)
{
	return pmh_elem_size(elem) * PMH_UNIT_BUCKETS - PMH_STASH_BUCKETS;
}

/*
 * The offset of one of these.  Whether a bucket is in the extension, which cannot
 * be foreseen, takes no branch; and all of a small segment is as an extension is (see
 * layout.h): no bucket of it has a number below -PMH_STASH_BUCKETS.
 */
static inline uint64_t __attribute__((always_inline))
pmh_elem_bucket_offset(uint64_t elem, uint32_t number)
{
	uint64_t	block = pmh_elem_main_block(elem);
	uint64_t	unit = elem >> PMH_ELEM_EXT_SHIFT &
		((UINT64_C(1) << PMH_ELEM_EXT_BITS) - 1);
	uint64_t	offset = unit * PMH_UNIT_SIZE - PMH_IN_MAIN * PMH_BUCKET_SIZE;
	int64_t		below = (int64_t) number - PMH_IN_MAIN;
	int64_t		has_main =	/* the highest bit of the size */
		(int64_t) (elem << (64 - PMH_ELEM_SIZE_SHIFT - PMH_ELEM_SIZE_BITS));
	uint64_t	in_main = (uint64_t) ((below & has_main) >> 63);	/* all bits or none */

	offset += (block * PMH_BLOCK_SIZE - offset) & in_main;
	return offset + (uint64_t) number * PMH_BUCKET_SIZE;
}

/*
 * Find the home bucket of hash in the directory that was seen last.  False if
 * the bucket does not lie within the bound, or the element cannot be one
 * (pmh_locate finds out why).  As there, nothing is locked.  Whether the
 * directory is the right one is left to pmh_home_current, which has to look at
 * dirword anyway: an element of one that is not any more leads to nothing that
 * would be believed.
 *
 * Every look-up goes through here, and how early the next one's can begin is a
 * matter of the registers that the processor has for what lies between: so it is
 * written for few instructions.
 */
static inline bool __attribute__((always_inline))
pmh_home_find(const PmhTable *t, uint64_t hash, PmhHome *h)
{
	uint64_t	index = (uint64_t) (((unsigned __int128) hash * t->seen_elements) >> 64);
	uint64_t	elem;
	uint64_t	block;
	uint32_t	number;
	uint64_t	offset;

	h->base = t->file.base;
	h->dirword = t->seen_dirword;
	h->at = (const uint64_t *) (h->base + t->seen_offset) + index;
	PMH_ASSERT(pmh_within(t, t->seen_offset, (index + 1) * sizeof(uint64_t)));
	elem = h->elem = pm_load_acquire(h->at);
	block = pmh_elem_main_block(elem);
	number = pmh_home_bucket(hash, pmh_elem_hashing(elem));
	offset = pmh_elem_bucket_offset(elem, number);
	h->bucket = (const PmhBucket *) (h->base + offset);
	h->version = &t->locks->stripe[(t->file_id + block) & t->stripe_mask]
		.version[pmh_version_of(number)];
	/* (A damaged element may have an offset below 0.) */
	return pmh_elem_size(elem) != 0 && offset <= t->file.bound - PMH_BUCKET_SIZE;
}

/* The alternative bucket beside a home that was found, for a prefetch: unchecked. */
static inline const PmhBucket *
pmh_home_alternative(const PmhTable *t, uint64_t hash, const PmhHome *h)
{
	uint32_t	hashing = pmh_elem_hashing(h->elem);
	uint32_t	number = pmh_alt_bucket(hash, hashing, pmh_home_bucket(hash, hashing));

	return pmh_unchecked(t, pmh_elem_bucket_offset(h->elem, number));
}

/* Prefetch the directory element of a hash. */
static inline void __attribute__((always_inline))
pmh_prefetch_element(const PmhTable *t, uint64_t hash)
{
	const uint64_t *dir = (const uint64_t *) pmh_unchecked(t, t->seen_offset);

	__builtin_prefetch(&dir[((unsigned __int128) hash * t->seen_elements) >> 64]);
}

/*
 * Is it what the directory says?  To be called after a load of the version.
 *
 * The directory word is looked at after the element: it has never come a second time, so
 * the directory was the right one when the element was loaded.
 */
static inline bool
pmh_home_current(const PmhHome *h)
{
	const PmhLive *live = (const PmhLive *) (const void *) (h->base + PMH_LIVE_OFFSET);

	pmh_read_fence();
	return pm_load_acquire(h->at) == h->elem &&
		pm_load_acquire(&live->dirword) == h->dirword;
}

#endif							/* PMH_HOME_H */
