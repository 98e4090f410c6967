/*-------------------------------------------------------------------------
 *
 * entry.c
 *	  Insert and delete one entry: lock its segment, provide what is missing.
 *
 * Nearly all of them take a short way first: for a plain entry of the home bucket, the
 * alternative one, or the stash (inserts only).  See src/README, "Locks".
 *
 *-------------------------------------------------------------------------
 */

#include "segment.h"

/* ---- the short way ---- */

/* The two buckets of a hash in a segment that we have locked, and their versions. */
typedef struct Spot
{
	uint64_t	elem;
	PmhStripe  *stripe;
	PmhBucket  *home;
	PmhBucket  *alt;
	uint64_t   *home_version;
	uint64_t   *alt_version;
} Spot;

/*
 * Have the lines on their way while the lock is taken.  Has to be inline: a compiler
 * may leave out the call of a function that only prefetches.
 */
static inline void __attribute__((always_inline))
prefetch_spot(const Spot *spot)
{
	__builtin_prefetch(spot->stripe, 1);
	for (unsigned line = 0; line < PMH_BUCKET_SIZE / PMH_LINE; line++)
		__builtin_prefetch(spot->home->bytes + line * PMH_LINE, 1);
	__builtin_prefetch(spot->alt, 1);
}

/*
 * May the home bucket point to a list?  Then an insert has to go the long way, and need not
 * try the lock.  What seems to be the key's list is prefetched, as an insert waits for its
 * first line last.  The segment is not locked: a wrong answer costs time only.
 */
static inline bool __attribute__((always_inline))
needs_long_way(const PmhTable *t, const PmhBucket *home, uint64_t hash)
{
	uint32_t	state = pmh_bucket_state(home);
	uint32_t	mask;

	if (likely((state & PMH_STATE_POINTERS) == 0))
		return false;
	mask = pmh_bucket_match(home, pmh_hash_fingerprint(hash), &state);
	if (mask != 0)
	{
		uint64_t	word = pmh_slot_load_word(home, (unsigned) __builtin_ctz(mask));
		uint64_t	offset = pmh_pointer_offset(pmh_word_payload(word));

		if (pmh_word_is_pointer(word))
			__builtin_prefetch(pmh_unchecked(t, offset), 1);
	}
	return true;
}

/* The first of the two buckets of the stash; NULL if it is not within the bound. */
static PmhBucket *
stash_of(const PmhTable *t, const Spot *spot)
{
	PmhPlace	place;

	place.elem = spot->elem;
	return pmh_place_decode(t, &place) ? pmh_bucket(t, &place, place.hashing) : NULL;
}

/*
 * The alternative bucket and the stash too, if they are needed, are in memory before the
 * segment is locked.  (The home bucket has been looked at.)
 */
static inline void __attribute__((always_inline))
touch_others(const PmhTable *t, const Spot *spot, uint64_t hash)
{
	uint32_t	state = pmh_bucket_state(spot->home);
	const PmhBucket *stash;

	if (t->file.persist)
		return;
	if ((state & pmh_filter_bit(hash)) != 0 || pmh_state_balances(state))
		(void) pmh_bucket_state(spot->alt);
	if (unlikely((state & PMH_STATE_STASHED) != 0 || pmh_state_full(state)) &&
		(stash = stash_of(t, spot)) != NULL)
		(void) pmh_bucket_state(stash);
}

/*
 * Find the buckets of a hash, as look-ups do, and lock their segment if it is free.  False
 * (nothing locked) if that cannot be done at once, of which pmh_segment_lock finds out why,
 * or if it is of no use to an insert.
 */
static inline bool __attribute__((always_inline))
lock_spot(const PmhTable *t, uint64_t hash, bool insert, Spot *spot)
{
	PmhHome		h;
	uint32_t	hashing;
	uint32_t	number;
	uint64_t	alt_offset;

	if (unlikely(!pmh_home_find(t, hash, &h)))
		return false;
	hashing = pmh_elem_hashing(h.elem);
	number = pmh_home_bucket(hash, hashing);
	spot->elem = h.elem;
	spot->stripe = &t->locks->stripe[(t->file_id + pmh_elem_main_block(h.elem)) &
									 t->stripe_mask];
	spot->home = (PmhBucket *) (uintptr_t) h.bucket;
	spot->home_version = &spot->stripe->version[pmh_version_of(number)];
	number = pmh_alt_bucket(hash, hashing, number);
	alt_offset = pmh_elem_bucket_offset(h.elem, number);
	spot->alt = pmh_unchecked(t, alt_offset);
	spot->alt_version = &spot->stripe->version[pmh_version_of(number)];
	if (unlikely(!pmh_within(t, alt_offset, PMH_BUCKET_SIZE)))
		return false;
	prefetch_spot(spot);
	if (insert && unlikely(needs_long_way(t, spot->home, hash)))
		return false;
	touch_others(t, spot, hash);
	PMH_STOP_POINT("short_before_lock");
	if (unlikely(!pmh_trylock(&spot->stripe->lock)))
		return false;
	if (likely(pmh_home_current(&h) && pmh_elem_whole(h.elem) &&
			   pmh_elem_depth(h.elem) <= pmh_dirword_depth(h.dirword)))
		return true;
	pmh_unlock(&spot->stripe->lock);
	return false;
}

/* May a bucket of the stash have the list of a key? */
static bool
stash_has_lists(const PmhTable *t, const Spot *spot)
{
	const PmhBucket *stash = stash_of(t, spot);

	return stash == NULL ||
		((pmh_bucket_state(&stash[0]) | pmh_bucket_state(&stash[1])) &
		 PMH_STATE_POINTERS) != 0;
}

/* A bucket of the stash that has room, and its version; or NULL. */
static PmhBucket *
room_in_stash(const PmhTable *t, const Spot *spot, uint64_t **version)
{
	PmhBucket  *stash = stash_of(t, spot);
	uint32_t	i;

	PMH_ASSERT(pmh_is_locked(&spot->stripe->lock));
	if (stash == NULL || !pmh_strategy_has_stash(pmh_elem_strategy(spot->elem)))
		return NULL;
	i = pmh_state_full(pmh_bucket_state(stash));
	*version = &spot->stripe->version[pmh_version_of(pmh_elem_hashing(spot->elem) + i)];
	return pmh_state_full(pmh_bucket_state(&stash[i])) ? NULL : &stash[i];
}

/*
 * As pmh_segment_insert, where that is one put: no bucket of the key can have its
 * list, and the one that it goes to has room.  False: it is not, nothing is done.
 */
static inline bool __attribute__((always_inline))
put_short(PmhTable *t, const Spot *spot, uint64_t hash, uint64_t value, bool fence_first)
{
	uint32_t	state = pmh_bucket_state(spot->home);
	PmhBucket  *b = spot->home;
	uint64_t   *version = spot->home_version;
	uint32_t	announce = 0;
	bool		ordered = fence_first;
	uint32_t	change;

	PMH_ASSERT(pmh_is_locked(&spot->stripe->lock));
	if ((state & PMH_STATE_POINTERS) != 0 ||
		((state & pmh_filter_bit(hash)) != 0 &&
		 (pmh_bucket_state(spot->alt) & PMH_STATE_POINTERS) != 0) ||
		(unlikely((state & PMH_STATE_STASHED) != 0) && stash_has_lists(t, spot)))
		return false;
	if (unlikely(pmh_state_balances(state)))
	{
		if (pmh_strategy_has_alternative(pmh_elem_strategy(spot->elem)) &&
			pmh_state_count(pmh_bucket_state(spot->alt)) < pmh_state_count(state))
		{
			b = spot->alt;
			version = spot->alt_version;
			announce = pmh_filter_bit(hash);
		}
		else if (pmh_state_full(state))
		{
			b = room_in_stash(t, spot, &version);
			announce = PMH_STATE_STASHED;
		}
	}
	if (unlikely(b == NULL) || unlikely(pmh_bucket_enough(b, hash) != 0))
		return false;
	change = pmh_bucket_prepare(t, b, version, hash, pmh_make_word(hash, value), spot->home,
								announce, &ordered);
	if (ordered)
		pm_fence(&t->file);
	pmh_bucket_commit(t, b, change);
	pm_fence(&t->file);
	return true;
}

static inline bool
insert_short(PmhTable *t, uint64_t hash, uint64_t value, bool fence_first)
{
	Spot		spot;
	bool		done;

	if (!lock_spot(t, hash, true, &spot))
		return false;
	done = put_short(t, &spot, hash, value, fence_first);
	pmh_unlock(&spot.stripe->lock);
	return done;
}

/*
 * Take (hash, value) out of a bucket without pointers.  PMH_OK (durable after the
 * next pm_fence), PMH_NOT_FOUND, PMH_RETRY (it has pointers).
 */
static inline PmhResult
take_plain(const PmhTable *t, PmhBucket *b, uint64_t *version, uint64_t hash,
		   uint64_t value)
{
	uint32_t	state;
	uint32_t	mask = pmh_bucket_match(b, pmh_hash_fingerprint(hash), &state);

	if ((state & PMH_STATE_POINTERS) != 0)
		return PMH_RETRY;
	for (; mask != 0; mask &= mask - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(mask);
		uint64_t	word = pmh_slot_load_word(b, slot);

		if (pmh_word_payload(word) == value && pmh_slot_has_hash(b, slot, word, hash))
		{
			pmh_bucket_take(&t->file, b, version, state, UINT32_C(1) << slot);
			return PMH_OK;
		}
	}
	return PMH_NOT_FOUND;
}

/* Delete, if that finds a plain entry; false: nothing is done. */
static inline bool
delete_short(PmhTable *t, uint64_t hash, uint64_t value)
{
	Spot		spot;
	PmhResult	result;

	if (!lock_spot(t, hash, false, &spot))
		return false;
	result = take_plain(t, spot.home, spot.home_version, hash, value);
	if (result == PMH_NOT_FOUND &&
		(pmh_bucket_state(spot.home) & pmh_filter_bit(hash)) != 0)
		result = take_plain(t, spot.alt, spot.alt_version, hash, value);
	if (result == PMH_OK)
		pm_fence(&t->file);
	pmh_unlock(&spot.stripe->lock);
	return result == PMH_OK;
}

/* ---- one entry ---- */

PmhResult
pmh_insert_one(PmhTable *t, uint64_t hash, uint64_t value, bool fence_first)
{
	PmhResult	result;

	PMH_ASSERT(value <= PMH_VALUE_MAX && !t->space_held);
	if (likely(insert_short(t, hash, value, fence_first)))
		return PMH_OK;
	if (fence_first)
		pm_fence(&t->file);
	pmh_touch_for_insert(t, hash);

	/* The long way: wait for the lock, get what is missing, until it is done. */
	do
	{
		PmhPlace	place;

		result = pmh_segment_lock(t, hash, &place);
		if (result != PMH_OK)
			return result;
		result = pmh_segment_insert(t, &place, hash, value);
		/* Others may go on from it, or take a slot that is free, once it is unlocked. */
		pm_fence(&t->file);
		pmh_segment_unlock(&place);
		if (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK)
			result = PMH_RETRY;
	} while (result == PMH_RETRY);
	return result;
}

PmhResult
pmh_insert(PmhTable *table, uint64_t hash, uint64_t value, bool fence_first)
{
	return pmh_conclude(table, pmh_insert_one(table, hash, value, fence_first));
}

PmhResult
pmh_delete(PmhTable *table, uint64_t hash, uint64_t value)
{
	PmhResult	result = PMH_OK;

	PMH_ASSERT(!table->space_held);
	if (unlikely(!delete_short(table, hash, value)))
		result = pmh_delete_one(table, hash, value);
	return pmh_conclude(table, result);
}
