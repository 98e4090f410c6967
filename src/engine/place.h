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
	uint64_t	main;			/* offset of the main part, or 0 */
	uint64_t	ext;			/* offset of the other units, or 0 */
	uint64_t	first;			/* of bucket 0 */
	uint64_t	stash;			/* of the first bucket of the stash */
	uint32_t	hashing;		/* N */
	uint32_t	buckets;		/* N + PMH_STASH_BUCKETS */
	PmhStripe  *stripe;
} PmhPlace;

/* A place, and the versions from before it was last seen to be current. */
typedef struct PmhSnapshot
{
	PmhPlace	place;
	uint64_t	version[PMH_VERSIONS];
} PmhSnapshot;

static inline uint64_t
pmh_bucket_offset(const PmhPlace *p, uint32_t bucket)
{
	PMH_ASSERT(bucket < p->buckets);
	if (bucket >= p->hashing)
		return p->stash + (uint64_t) (bucket - p->hashing) * PMH_BUCKET_SIZE;
	if (bucket < PMH_IN_MAIN)
		return p->first + (uint64_t) bucket * PMH_BUCKET_SIZE;
	return p->ext + (uint64_t) (bucket - PMH_IN_MAIN) * PMH_BUCKET_SIZE;
}

static inline PmhBucket *
pmh_bucket(const PmhTable *t, const PmhPlace *p, uint32_t bucket)
{
	return (PmhBucket *) pmh_at(t, pmh_bucket_offset(p, bucket));
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

	PMH_ASSERT(home < hashing);
	return alt + (alt >= home);
}

/*
 * Fill the rest of a place in from its element.  False if that does not lie
 * within the bound (pmh_locate finds out why).
 */
static inline bool
pmh_place_decode(const PmhTable *t, PmhPlace *p)
{
	uint64_t	block = pmh_elem_main_block(p->elem);
	uint32_t	size = pmh_elem_size(p->elem);
	uint32_t	units = pmh_elem_units(p->elem);
	bool		has_main = pmh_elem_has_main(p->elem);

	p->main = has_main ? block << PMH_BLOCK_SHIFT : 0;
	p->ext = units == 0 ? 0 : pmh_elem_ext_unit(p->elem) << PMH_UNIT_SHIFT;
	p->first = has_main ? p->main : p->ext + PMH_STASH_BUCKETS * PMH_BUCKET_SIZE;
	p->stash = has_main ? p->main + PMH_IN_MAIN * PMH_BUCKET_SIZE : p->ext;
	p->buckets = size * PMH_UNIT_BUCKETS;
	p->hashing = p->buckets - PMH_STASH_BUCKETS;
	p->stripe = pmh_segment_stripe(t->locks, t->file_id, block);
	return size != 0 && p->main <= t->file.bound - PMH_BLOCK_SIZE &&
		p->ext <= t->file.bound - units * PMH_UNIT_SIZE;
}

/* A position in a walk over all segments, in the order of hashes.  Zero-initialise. */
typedef struct PmhPosition
{
	uint64_t	next;			/* where the next segment begins */
	bool		through;		/* there is none */
} PmhPosition;

/* Go on past the segment, of this depth, that has position->next. */
static inline void
pmh_position_advance(PmhPosition *position, uint32_t depth)
{
	position->next = pmh_segment_end(position->next, depth);
	position->through = position->next == 0;
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

/* The largest segment, in units; bytes that hold any. */
#define PMH_MAX_SIZE			((1 << PMH_ELEM_SIZE_BITS) - 1)
#define PMH_MAX_SEGMENT_BYTES	((size_t) (PMH_MAX_SIZE + 1) * PMH_UNIT_SIZE)

#endif							/* PMH_PLACE_H */
