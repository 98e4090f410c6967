/*-------------------------------------------------------------------------
 *
 * segment_build.h
 *	  Filling a segment in private memory (segment_build.c), for splits and bulk load.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_SEGMENT_BUILD_H
#define PMH_SEGMENT_BUILD_H

#include "bucket.h"
#include "compiler.h"
#include "handle.h"
#include "layout.h"
#include "place.h"
#include "table.h"

/* An entry without a slot yet. */
typedef struct PmhItem
{
	uint64_t	hash;
	uint64_t	payload;		/* value or pointer, with the flag */
} PmhItem;

/*
 * In an item's payload: a plain entry of a key whose pointer slot is in another
 * bucket.  It must not come into the bucket of the pointer now, where it would
 * be shadowed.
 */
#define PMH_ITEM_BESIDE_LIST	(UINT64_C(1) << (PMH_VALUE_BITS + 1))

/*
 * A segment being built.  While entries are put into their homes only 'fill'
 * is kept; pmh_build_overflow (or pmh_build_settle) makes the states of it.
 */
typedef struct PmhBuild
{
	PmhBucket  *bucket;			/* by number; room for the largest segment */
	uint8_t    *fill;			/* entries in each */
	uint32_t	size;			/* in units */
	uint32_t	hashing;
	uint32_t	first_slot;		/* slots are filled from here on, cyclic */
	PmhStrategy strategy;		/* the simplest that holds what is in it */
} PmhBuild;

/* Write a slot; the state follows later. */
static inline void
pmh_build_write(PmhBucket *b, uint32_t slot, uint64_t hash, uint64_t payload)
{
	*(uint64_t *) (b->bytes + pmh_slot_word[slot]) = pmh_make_word(hash, payload);
	*(uint32_t *) (b->bytes + pmh_slot_mid[slot]) = (uint32_t) (hash >> 24);
	*(uint8_t *) (b->bytes + pmh_slot_top[slot]) = (uint8_t) (hash >> 56);
	*(uint8_t *) (b->bytes + PMH_SLOT_FINGERPRINT + slot) = pmh_hash_fingerprint(hash);
	if (unlikely(pmh_word_is_pointer(payload)))
		*(uint32_t *) b->bytes |= PMH_STATE_POINTERS;
}

/* Put an entry into a bucket that has room. */
static inline void
pmh_build_put(PmhBuild *build, uint32_t bucket, uint64_t hash, uint64_t payload)
{
	uint32_t	slot = build->first_slot + build->fill[bucket]++;

	if (slot >= PMH_SLOTS)
		slot -= PMH_SLOTS;
	pmh_build_write(&build->bucket[bucket], slot, hash, payload);
}

/* Put an entry into its home bucket; false if that is full. */
static inline bool
pmh_build_home(PmhBuild *build, uint64_t hash, uint64_t payload)
{
	uint32_t	home = pmh_home_bucket(hash, build->hashing);

	if (build->fill[home] >= PMH_SLOTS)
		return false;
	pmh_build_put(build, home, hash, payload);
	return true;
}

/* Start over with an empty segment of so many extension units. */
extern void pmh_build_begin(const PmhTable *t, PmhBuild *build, uint32_t size);

/* Make the states agree with 'fill'; returns the number of entries. */
extern uint32_t pmh_build_settle(PmhBuild *build);

/*
 * After all other entries have been offered to their homes: find room for
 * those that were turned away, and for those marked PMH_ITEM_BESIDE_LIST.
 * False if they do not fit.
 */
extern bool pmh_build_overflow(PmhBuild *build, const PmhItem *item, size_t n);

/*
 * Copy to the file, into the space that its element names, which is ours, and 'fresh' if
 * it has probably never been used; complete after pm_fence.
 */
extern void pmh_build_store(PmhTable *t, const PmhBuild *build, uint64_t elem,
							bool fresh);

/* Slots of a segment of a size. */
static inline uint32_t
pmh_build_slots(uint32_t size)
{
	return size * PMH_UNIT_BUCKETS * PMH_SLOTS;
}

#endif							/* PMH_SEGMENT_BUILD_H */
