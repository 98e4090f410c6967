/*-------------------------------------------------------------------------
 *
 * segment.h
 *	  The directory and its segments, and what is done with the entries in them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_SEGMENT_H
#define PMH_SEGMENT_H

#include "list.h"

/* ---- directory.c: find, lock and publish segments; double the directory ---- */

/*
 * Find the segment of hash.  PMH_OK, PMH_NEED (map further), or PMH_ERR_CORRUPT.
 * Nothing is locked: the place may be outdated already.
 */
extern PmhResult pmh_locate(PmhTable *t, uint64_t hash, PmhPlace *place);

/*
 * Reader: locate the segment of hash and take the versions of its buckets.
 * Maps further as needed.  PMH_OK or a real error.
 */
extern PmhResult pmh_snapshot(PmhTable *t, uint64_t hash, PmhSnapshot *snap);

/* Has nothing a reader of this bucket relied on changed since the snapshot? */
static inline bool
pmh_snapshot_valid(const PmhSnapshot *snap, uint32_t bucket)
{
	return pmh_version_same(pmh_bucket_version(&snap->place, bucket),
							snap->version[bucket % PMH_VERSIONS]);
}

/*
 * The condition for following a pointer slot: to be checked after loading the
 * version of the buffer, so that this version is from before a free.  (The
 * version of the bucket alone would not do: after a split it is the new
 * segment's versions that tell.)  The place first: if it is current and the
 * version has not changed after that, the segment was there all the time.  The
 * other way round it may have been moved away in between, and back again.
 */
static inline bool
pmh_snapshot_current(const PmhTable *t, const PmhSnapshot *snap, uint32_t bucket)
{
	if (!pmh_place_current(t, &snap->place))
		return false;
	PMH_STOP_POINT("current_between_checks");
	return pmh_snapshot_valid(snap, bucket);
}

/*
 * Writer: lock the segment of hash; the place is current until it is
 * unlocked.  PMH_OK (locked) or a real error.  pmh_segment_trylock gives
 * PMH_RETRY if it is locked, or PMH_NEED; the caller may hold others.
 */
extern PmhResult pmh_segment_lock(PmhTable *t, uint64_t hash, PmhPlace *place);
extern PmhResult pmh_segment_trylock(PmhTable *t, uint64_t hash, PmhPlace *place);

/* As pmh_segment_lock, but unless 'wait' it tries for a moment, then PMH_BUSY. */
extern PmhResult pmh_segment_lock_or_leave(PmhTable *t, uint64_t hash,
										   bool wait, PmhPlace *place);

static inline void
pmh_segment_unlock(const PmhPlace *place)
{
	pmh_unlock(&place->stripe->lock);
}

/*
 * Double the directory if its depth is still 'depth'.  No lock may be held;
 * takes the directory lock, and space.
 */
extern PmhResult pmh_directory_double(PmhTable *t, uint32_t depth);

/*
 * Blocks a directory of this depth takes: 0 if it stands in block 0; and the
 * offset for a small directory there that is not the current one's.
 */
extern uint64_t pmh_directory_blocks(uint32_t depth);
extern uint64_t pmh_small_directory(const PmhTable *t);

/*
 * Let all elements of the segment of 'place' say 'low' in the first half of their range and
 * 'high' in the second.  The range is that of the depth in place->elem.  The caller holds the
 * stripes of the old segments and of the new ones, which are durable.  PMH_OK or PMH_NEED
 * (nothing done).
 */
extern PmhResult pmh_directory_publish(PmhTable *t, const PmhPlace *place,
									   uint64_t low, uint64_t high);

/*
 * Change the strategy of a locked segment; place->elem follows.  PMH_OK or
 * PMH_NEED (nothing done).
 */
extern PmhResult pmh_directory_strategy(PmhTable *t, PmhPlace *place,
										PmhStrategy strategy);

/* Is the element possible in a directory of this depth and file length? */
extern bool pmh_elem_sane(uint64_t elem, uint64_t index,
						  uint32_t depth, uint64_t blocks);

/* ---- segment.c: entries of a locked segment ---- */

/* Entries of one key that stay in a bucket; the next one makes it a list. */
#define PMH_INLINE_MAX		6

/* Those that a bucket has, as a mask; 0 unless they are so many. */
static inline uint32_t
pmh_bucket_enough(const PmhBucket *b, uint64_t hash)
{
	uint32_t	state;
	int			pointer;
	uint32_t	mask;

	if (likely(pmh_bucket_match(b, pmh_hash_fingerprint(hash), &state) == 0))
		return 0;
	mask = pmh_bucket_find(b, hash, &state, &pointer);
	return pmh_mask_count(mask) >= PMH_INLINE_MAX ? mask : 0;
}

/* A full bucket compacts the largest group of equal hashes of this size. */
#define PMH_COMPACT_MIN		3

/*
 * Insert.  PMH_OK; PMH_RETRY: the segment has been replaced, unlock and start again;
 * PMH_NEED; or a real error.  Durable after the next pm_fence, which has to come before the
 * segment is unlocked.
 */
extern PmhResult pmh_segment_insert(PmhTable *t, PmhPlace *place, uint64_t hash,
									uint64_t value);

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

/* Their commit stores; durable after the next pm_fence.  None is pending then. */
extern void pmh_segment_commit(PmhTable *t, PmhPending *pending);

/*
 * The buckets of a locked segment that may hold entries of a hash, home first;
 * returns how many.
 */
extern unsigned pmh_segment_buckets_of(const PmhTable *t, const PmhPlace *place,
									   uint64_t hash, uint32_t bucket[4]);

/*
 * Where the list of a key hangs in its locked segment: the beginning of the path.  False if it
 * has none.
 */
extern bool pmh_segment_find_list(const PmhTable *t, const PmhPlace *place,
								  uint64_t hash, PmhListPath *path);

/* ---- a walk over all segments, of which it reads copies ---- */

/* Slots of the largest segment. */
#define PMH_SEGMENT_SLOTS	(PMH_MAX_SEGMENT_BYTES / PMH_BUCKET_SIZE * PMH_SLOTS)

/*
 * Entries of the segment at hand with a hash below 'from' have been in the walk before: in
 * the first half of a split whose second half the directory does not name yet, or in a
 * segment that has been merged with its buddy since.
 */
typedef struct PmhWalk
{
	PmhPosition at;				/* where the next segment begins */
	uint32_t	bits;			/* 2^bits points at equal distances are looked at */
	uint64_t	from;
	PmhSnapshot snap;			/* of the segment at hand, and ... */
	PmhBucket  *copy;			/* ... its buckets */
	uint64_t   *key;			/* the caller's: room for a hash of each slot */
} PmhWalk;

/* An entry of the copy. */
typedef struct PmhWalked
{
	uint64_t	hash;
	uint64_t	word;			/* of its slot */
	uint32_t	bucket;
} PmhWalked;

/*
 * Begin a walk over all segments (bits: PMH_MAX_DEPTH), or those that some points meet.
 * PMH_OK, PMH_ERR_NO_MEMORY.  pmh_walk_end frees its memory, always.
 */
extern PmhResult pmh_walk_begin(PmhTable *t, PmhWalk *walk, uint32_t bits);
extern void pmh_walk_end(PmhWalk *walk);

/*
 * Copy the segment at walk->at, and go on to the one after it, also if there is an error.
 * The snapshot's versions are those of the copy.  It is all of one state, but for
 * the last operation to count a version up before the copy began: of a put
 * that was under way then, the entry may be in the copy of its bucket and the
 * announcement not in that of its home.  No lock may be held.  PMH_OK or a real error.
 */
extern PmhResult pmh_walk_segment(PmhTable *t, PmhWalk *walk);

/*
 * Call visit() for each entry of the copy that counts, as long as it says PMH_OK.  (Compiled
 * for each of them.)
 */
typedef PmhResult (*PmhVisit) (PmhTable *t, void *arg, const PmhWalked *e);

static inline PmhResult __attribute__((always_inline))
pmh_walk_entries(PmhTable *t, const PmhWalk *walk, PmhVisit visit, void *arg)
{
	const PmhBucket *b = walk->copy;
	const uint32_t buckets = walk->snap.place.buckets;
	const uint64_t from = walk->from;
	PmhResult	result = PMH_OK;

	for (uint32_t i = 0; i < buckets; i++, b++)
	{
		for (uint32_t live = pmh_bucket_live(b); live != 0; live &= live - 1)
		{
			unsigned	slot = (unsigned) __builtin_ctz(live);
			uint64_t	word = pmh_slot_load_word(b, slot);
			const PmhWalked e = {pmh_slot_load_hash(b, slot, word), word, i};

			if (e.hash >= from && (result = visit(t, arg, &e)) != PMH_OK)
				return result;
		}
	}
	return result;
}

/* ---- segment_build.c: filling a segment in private memory, for splits and bulk load ---- */

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

/* Buckets of the largest segment. */
#define PMH_MAX_BUCKETS	(PMH_MAX_SIZE * PMH_UNIT_BUCKETS)

/*
 * A segment being built.  Entries are offered to their homes first; those with no room there
 * are kept.  Then pmh_build_complete makes the states, and finds room for these.
 */
typedef struct PmhBuild
{
	uint32_t	size;			/* in units */
	uint32_t	hashing;
	const uint8_t *order;		/* in which slots are filled */
	PmhStrategy strategy;		/* the simplest that holds what is in it */
	uint32_t	nkept;
	uint8_t		fill[PMH_MAX_BUCKETS];	/* entries in each bucket */
	_Alignas(PMH_LINE) PmhBucket bucket[PMH_MAX_BUCKETS];	/* by number */
	PmhItem		kept[PMH_MAX_BUCKETS * PMH_SLOTS];
} PmhBuild;

/*
 * What segments are built in, 130 KB, for whichever handle: no operation calls another one.
 * All of a bucket goes to the file, also what its free slots have.  (Tests have threads.)
 */
#ifdef PMH_THREADS
#define PMH_PER_THREAD	_Thread_local
#else
#define PMH_PER_THREAD
#endif
extern PMH_PER_THREAD PmhBuild pmh_workspace[2];

/* The slot that the next entry of a bucket takes. */
static inline uint32_t
pmh_build_slot(PmhBuild *build, uint32_t bucket)
{
	PMH_ASSERT(bucket < build->hashing + PMH_STASH_BUCKETS && build->fill[bucket] < PMH_SLOTS);
	return build->order[build->fill[bucket]++];
}

/* Keep an entry that its home has no room for. */
static inline void
pmh_build_keep(PmhBuild *build, uint64_t hash, uint64_t payload)
{
	build->kept[build->nkept++] = (PmhItem) {hash, payload};
}

/* Write a slot; the state follows later. */
static inline void
pmh_build_write(PmhBucket *b, uint32_t slot, uint64_t hash, uint64_t payload)
{
	PMH_ASSERT(slot < PMH_SLOTS);
	*(uint64_t *) (b->bytes + pmh_slot_word[slot]) = pmh_make_word(hash, payload);
	*(uint32_t *) (b->bytes + pmh_slot_mid[slot]) = (uint32_t) (hash >> 24);
	*(uint8_t *) (b->bytes + pmh_slot_top[slot]) = (uint8_t) (hash >> 56);
	*(uint8_t *) (b->bytes + PMH_SLOT_FINGERPRINT + slot) = pmh_hash_fingerprint(hash);
	if (unlikely(pmh_word_is_pointer(payload)))
		*(uint32_t *) b->bytes |= PMH_STATE_POINTERS;
}

/* The same with what a slot of another bucket, without a pointer, has. */
static inline void
pmh_build_copy(PmhBucket *to, uint32_t slot, uint64_t word, const PmhBucket *from,
			   unsigned from_slot)
{
	*(uint64_t *) (to->bytes + pmh_slot_word[slot]) = word;
	*(uint32_t *) (to->bytes + pmh_slot_mid[slot]) =
		pm_load((const uint32_t *) (from->bytes + pmh_slot_mid[from_slot]));
	*(uint8_t *) (to->bytes + pmh_slot_top[slot]) =
		pm_load((const uint8_t *) (from->bytes + pmh_slot_top[from_slot]));
	*(uint8_t *) (to->bytes + PMH_SLOT_FINGERPRINT + slot) =
		pm_load((const uint8_t *) (from->bytes + PMH_SLOT_FINGERPRINT + from_slot));
}

/* Put an entry into its home bucket, or keep it if that is full. */
static inline void
pmh_build_add(PmhBuild *build, uint64_t hash, uint64_t payload)
{
	uint32_t	home = pmh_home_bucket(hash, build->hashing);

	if (likely(build->fill[home] < PMH_SLOTS))
		pmh_build_write(&build->bucket[home], pmh_build_slot(build, home), hash, payload);
	else
		pmh_build_keep(build, hash, payload);
}

/* Start over with an empty segment of so many units. */
extern void pmh_build_begin(const PmhTable *t, PmhBuild *build, uint32_t size);

/*
 * Make the states agree with 'fill', and find room for what was kept.  False if that does not
 * fit, or takes more than 'percent' of the slots.
 */
extern bool pmh_build_complete(PmhBuild *build, uint32_t percent);

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
	PMH_ASSERT(size > 0 && size <= PMH_MAX_SIZE);
	return size * PMH_UNIT_BUCKETS * PMH_SLOTS;
}

/* ---- segment_resize.c: segments replaced by larger and smaller ones ---- */

/*
 * Sizes that a segment grows to, one after the other, before it is split.  The first is
 * what block 0 has room for beside the segment of an empty table.
 */
#define PMH_SMALL_SIZE		5
#define PMH_GROWN_SIZE		12

/* A segment is rebuilt with a smaller extension if it saves so many units. */
#define PMH_REDUCE_UNITS	2

/*
 * Replace two locked buddies by one segment, or (right is NULL) a locked segment by one with a
 * smaller extension.  It has a main part, as few units as possible, and entries take no more
 * than 'percent' of its slots.  PMH_OK: done, the places are void; PMH_NOT_FOUND: it does not
 * fit, or does not pay; PMH_NEED (nothing done).
 */
extern PmhResult pmh_segment_merge(PmhTable *t, const PmhPlace *left,
								   const PmhPlace *right, uint32_t percent);

/*
 * Publish pmh_workspace[0 .. n - 1] instead of one locked segment or (right not NULL) of two
 * buddies.  PMH_OK: the places are void; PMH_NEED (nothing done).
 */
extern PmhResult pmh_segment_replace(PmhTable *t, const PmhPlace *left,
									 const PmhPlace *right, unsigned n);

/*
 * Find space for a built segment, but for an extension that has some at ext_offset (else 0),
 * store it there and make its element.  PMH_OK, PMH_NEED.  'fresh' as for pmh_build_store.
 */
extern PmhResult pmh_segment_store(PmhTable *t, const PmhBuild *build, uint32_t depth,
								   uint64_t ext_offset, bool fresh, uint64_t *elem);

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

/* ---- entry.c: insert and delete one entry ---- */

/* As pmh_insert, but for pmh_conclude.  No lock may be held. */
extern PmhResult pmh_insert_one(PmhTable *t, uint64_t hash, uint64_t value,
								bool fence_first);

/* ---- lookup.c: read one key ---- */

#define PMH_PROBE_MAX	(4 * PMH_SLOTS)

/* Everything the buckets of a segment know of a key, all of one state. */
typedef struct PmhProbe
{
	uint32_t	n;				/* plain entries */
	uint64_t	list;			/* pointer payload of its list, or 0 */
	uint64_t	list_version;	/* of the list's first buffer: from before list
								 * was last seen to be current */
	uint64_t	value[PMH_PROBE_MAX];	/* as found: unsorted, maybe twice */
} PmhProbe;

/* PMH_OK or a real error; the list's first buffer is within the bound. */
extern PmhResult pmh_probe(PmhTable *t, uint64_t hash, PmhProbe *probe);

/* ---- group.c: many entries at a time ---- */

/* Take one pair out.  No lock may be held.  PMH_OK, PMH_NOT_FOUND, or a real error. */
extern PmhResult pmh_delete_one(PmhTable *t, uint64_t hash, uint64_t value);

/* ---- figures.c: figures about a table ---- */

/* Estimate what a walk counts, of lists only the entries.  PMH_OK or a real error. */
extern PmhResult pmh_estimate_fill(PmhTable *t, PmhStats *stats);

/* ---- read_ahead.c: pages of the file, read from disk before an operation waits for them ---- */

/* So many keys of a group are asked for together. */
#define PMH_ASK_KEYS	256

/*
 * These keys are next: n hashes, each 'stride' words after the one before.  If pages of
 * the file have to be read, have those of the first home buckets read at once, and for an
 * insert those of the alternatives, without waiting for them.  Returns for how many keys.
 */
extern size_t pmh_ask_for_homes(PmhTable *t, const uint64_t *hash, size_t stride,
								size_t n, bool alternatives);

/*
 * The same for what a home that has been read tells of: the alternative bucket, and the
 * list in the first slot of a mask.
 */
extern void pmh_ask_further(const PmhTable *t, uint64_t hash, const PmhHome *h,
							uint32_t mask);

/* The buffer of a list, and those that the pointers in a copy of n buckets lead to. */
extern void pmh_ask_for_buffer(PmhTable *t, uint64_t payload);
extern void pmh_ask_for_lists(PmhTable *t, const PmhBucket *copy, uint32_t n);

/* The segment at 'hash' is next: ask for it, and if it follows the last one for more. */
extern void pmh_ask_for_next_segments(PmhTable *t, uint64_t hash);

/*
 * Before a segment is locked for an insert (directory.c sees to the buckets of the hash):
 * load from the list that seems to be the key's, and if a larger segment seems to be
 * needed, from all of this one, so that no page is read from disk meanwhile.  What is
 * found may be outdated; then it is a page too many, or too few.
 */
extern void pmh_touch_for_insert(const PmhTable *t, uint64_t hash);

/* The same for all of a segment.  Returns the hash where the next one begins. */
extern uint64_t pmh_touch_segment(const PmhTable *t, uint64_t hash);

#endif							/* PMH_SEGMENT_H */
