/*-------------------------------------------------------------------------
 *
 * segment.h
 *	  Entries of a locked segment (segment.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_SEGMENT_H
#define PMH_SEGMENT_H

#include "bucket.h"
#include "error.h"
#include "place.h"
#include "table.h"

/* Entries of one key that stay in a bucket; the next one makes it a list. */
#define PMH_INLINE_MAX		6

/* A full bucket compacts the largest group of equal hashes of this size. */
#define PMH_COMPACT_MIN		3

/*
 * Reader: copy a whole segment out: snap->place.buckets buckets in the order
 * of their numbers into 'copy' (room for PMH_MAX_SEGMENT_BYTES).  The
 * snapshot's versions are those of the copy.  It is all of one state, but for
 * the last operation to count a version up before the copy began: of a put
 * that was under way then, the entry may be in the copy of its bucket and the
 * announcement not in that of its home.
 */
extern PmhResult pmh_segment_read(PmhTable *t, uint64_t hash,
									 PmhSnapshot *snap, PmhBucket *copy);

/* How pmh_segment_delete goes about it: 0, or any of these. */
typedef enum PmhDeleteFlags
{
	PMH_DELETE_WAIT = 1 << 0,	/* for locks */
	PMH_DELETE_FENCE = 1 << 1	/* until it is durable */
} PmhDeleteFlags;

/*
 * Insert, delete.  PMH_OK, PMH_NOT_FOUND (delete); PMH_RETRY: the segment has
 * been replaced, unlock and start again; PMH_NEED; PMH_FAR, PMH_BUSY (delete, as
 * pmh_list_remove); or a real error.  Inserts are durable on return, deletes with
 * PMH_DELETE_FENCE, else after the next pm_fence, which has to come before the segment is
 * unlocked.
 * PMH_DELETE_WAIT as 'wait' of pmh_list_remove; a caller that does without it calls
 * pmh_space_release afterwards.
 */
extern PmhResult pmh_segment_insert(PmhTable *t, PmhPlace *place, uint64_t hash,
									uint64_t value, bool fence_first);
extern PmhResult pmh_segment_delete(PmhTable *t, const PmhPlace *place,
									uint64_t hash, uint64_t value, unsigned how);

/* Entries that a group works on together, each in a locked segment. */
#define PMH_GROUP_MAX	16

/*
 * Entries of a group that stand in their slots and wait for the commit stores of
 * their buckets, which no two of them share.
 */
typedef struct PmhPending
{
	unsigned	n;
	bool		ordered;		/* a fence has to come first */
	PmhBucket  *bucket[PMH_GROUP_MAX];
	uint32_t	change[PMH_GROUP_MAX];
} PmhPending;

/*
 * Insert into a locked segment as far as that is one commit store.  PMH_OK: added
 * to 'pending', or in the key's list (durable after the next pm_fence);
 * PMH_RETRY: the bucket is pending, commit first; PMH_NOT_FOUND: it takes
 * pmh_segment_insert; PMH_NEED; or a real error.
 */
extern PmhResult pmh_segment_prepare(PmhTable *t, const PmhPlace *place,
									 uint64_t hash, uint64_t value,
									 PmhPending *pending);

/*
 * The buckets of a locked segment that may hold entries of a hash, home first;
 * returns how many.
 */
extern unsigned pmh_segment_buckets_of(const PmhTable *t, const PmhPlace *place,
									   uint64_t hash, uint32_t bucket[4]);

/* Where the list of a key hangs in its locked segment. */
typedef struct PmhListSlot
{
	uint32_t	bucket;
	unsigned	slot;
	uint64_t	payload;		/* of the pointer */
} PmhListSlot;

/* False if the key has no list. */
extern bool pmh_segment_find_list(const PmhTable *t, const PmhPlace *place,
								  uint64_t hash, PmhListSlot *at);

#endif							/* PMH_SEGMENT_H */
