/*-------------------------------------------------------------------------
 *
 * place.h
 *	  Where a segment is, and its buckets.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_PLACE_H
#define PMH_PLACE_H

#include "bucket.h"
#include "element.h"
#include "handle.h"
#include "layout.h"
#include "lock.h"
#include "pm.h"
#include "table.h"

/*
 * Where a segment is.  Buckets are numbered 0 .. hashing - 1, then the two of
 * the stash (hashing, hashing + 1).
 */
typedef struct PmhPlace
{
	uint64_t	dirword;
	uint64_t	elem;
	uint64_t	index;			/* of the element in the directory */
	uint64_t	main;			/* offset of the main part */
	uint64_t	ext;			/* offset of the extension, or 0 */
	uint32_t	hashing;		/* N */
	uint32_t	buckets;		/* N + PMH_STASH_BUCKETS */
	PmhStripe  *stripe;
} PmhPlace;

/* Which table it belongs to. */
static inline PmhSide
pmh_place_side(const PmhPlace *p)
{
	return (PmhSide) (p->index >> pmh_dirword_depth(p->dirword));
}

/* A place, and the versions from before it was last seen to be current. */
typedef struct PmhSnapshot
{
	PmhPlace	place;
	uint64_t	version[PMH_VERSIONS];
} PmhSnapshot;

static inline uint64_t
pmh_bucket_offset(const PmhTable *t, const PmhPlace *p, uint32_t bucket)
{
	uint32_t	in_main = pmh_in_main(t);

	if (bucket < in_main && bucket < p->hashing)
		return p->main + (uint64_t) bucket * PMH_BUCKET_SIZE;
	if (bucket < p->hashing)
		return p->ext + (uint64_t) (bucket - in_main) * PMH_BUCKET_SIZE;
	return p->main + (uint64_t) (in_main + bucket - p->hashing) * PMH_BUCKET_SIZE;
}

static inline PmhBucket *
pmh_bucket(const PmhTable *t, const PmhPlace *p, uint32_t bucket)
{
	return (PmhBucket *) pmh_at(t, pmh_bucket_offset(t, p, bucket));
}

/*
 * Which of a stripe's versions: the remainder, computed with fewer instructions
 * than a compiler does that has to be right above twice the largest M too.
 */
static inline uint32_t
pmh_version_of(uint32_t bucket)
{
	uint32_t	quotient = bucket * (65536 / PMH_VERSIONS + 1) >> 16;

	return bucket - quotient * PMH_VERSIONS;
}

static inline uint64_t *
pmh_bucket_version(const PmhPlace *p, uint32_t bucket)
{
	return &p->stripe->version[pmh_version_of(bucket)];
}

static inline uint32_t
pmh_home_bucket(uint64_t hash, uint32_t hashing)
{
	return (pmh_hash_home_bits(hash) * hashing) >> 16;
}

static inline uint32_t
pmh_alt_bucket(uint64_t hash, uint32_t hashing, uint32_t home)
{
	uint32_t	alt = (pmh_hash_alt_bits(hash) * (hashing - 1)) >> 16;

	return alt + (alt >= home);
}

/*
 * Fill the rest of a place in from its element.  False if that does not lie
 * within the bound (pmh_locate_in finds out why).
 */
static inline bool
pmh_place_decode(const PmhTable *t, PmhPlace *p)
{
	uint64_t	block = pmh_elem_main_block(p->elem);
	uint32_t	units = pmh_elem_units(p->elem);

	p->main = block << pmh_block_shift(t);
	p->ext = units == 0 ? 0 : pmh_elem_ext_unit(p->elem) << (pmh_block_shift(t) - 3);
	p->hashing = pmh_in_main(t) + units * pmh_unit_buckets(t);
	p->buckets = p->hashing + PMH_STASH_BUCKETS;
	p->stripe = pmh_segment_stripe(t->locks, t->file_id, block);
	return block > 1 &&
		p->main + pmh_block_size(t) <= t->file.bound &&
		p->ext + ((uint64_t) units << (pmh_block_shift(t) - 3)) <= t->file.bound;
}

/* Is the place still what the directory says? */
static inline bool
pmh_place_current(const PmhTable *t, const PmhPlace *p)
{
	const uint64_t *dir = (const uint64_t *) pmh_at(t, pmh_dirword_offset(p->dirword));

	pmh_read_fence();
	return pm_load_acquire(&dir[p->index]) == p->elem &&
		pm_load_acquire(&pmh_live(t)->dirword) == p->dirword;
}

static inline size_t
pmh_max_segment_size(const PmhTable *t)
{
	return (size_t) 2 * pmh_segment_buckets(t) * PMH_BUCKET_SIZE;
}

#endif							/* PMH_PLACE_H */
