/*-------------------------------------------------------------------------
 *
 * segment.c
 *	  One segment: where an entry goes, what is done when it does not fit, and
 *	  walks over all of them.
 *
 * The three strategies and their order: Pea Hash, section 3.2.  Growth in
 * steps of a half, late balancing and the filter bits are ours; src/README,
 * "Segments and strategies", says why.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "segment.h"

/* A hash and its buckets in a locked segment. */
typedef struct Target
{
	uint64_t	hash;
	uint32_t	home;
	uint32_t	alt;
	PmhBucket  *home_bucket;
	PmhBucket  *alt_bucket;
} Target;

static inline void
set_target(const PmhTable *t, const PmhPlace *place, uint64_t hash, Target *target)
{
	PMH_ASSERT(place->hashing > 1);
	target->hash = hash;
	target->home = pmh_home_bucket(hash, place->hashing);
	target->alt = pmh_alt_bucket(hash, place->hashing, target->home);
	target->home_bucket = pmh_bucket(t, place, target->home);
	target->alt_bucket = pmh_bucket(t, place, target->alt);
}

/* ---- lists ---- */

unsigned
pmh_segment_buckets_of(const PmhTable *t, const PmhPlace *place, uint64_t hash,
					   uint32_t bucket[4])
{
	uint32_t	home = pmh_home_bucket(hash, place->hashing);
	uint32_t	state = pmh_bucket_state(pmh_bucket(t, place, home));
	unsigned	n = 0;

	bucket[n++] = home;
	if ((state & pmh_filter_bit(hash)) != 0)
		bucket[n++] = pmh_alt_bucket(hash, place->hashing, home);
	for (uint32_t i = 0; (state & PMH_STATE_STASHED) != 0 && i < PMH_STASH_BUCKETS; i++)
		bucket[n++] = place->hashing + i;
	return n;
}

bool
pmh_segment_find_list(const PmhTable *t, const PmhPlace *place, uint64_t hash,
					  PmhListPath *path)
{
	uint32_t	bucket[4];
	unsigned	n = pmh_segment_buckets_of(t, place, hash, bucket);

	for (unsigned i = 0; i < n; i++)
	{
		const PmhBucket *b = pmh_bucket(t, place, bucket[i]);
		uint32_t	state = pmh_bucket_state(b);
		int			pointer;

		if ((state & PMH_STATE_POINTERS) == 0)
			continue;
		(void) pmh_bucket_find(b, hash, &state, &pointer);
		if (pointer < 0)
			continue;
		*path = (PmhListPath) {
			.head = pmh_word_payload(pmh_slot_load_word(b, (unsigned) pointer)),
			.place = place, .bucket = bucket[i], .bucket_slot = (unsigned) pointer
		};
		return true;
	}
	return false;
}

/* Is a commit of this bucket pending? */
static bool
is_pending(const PmhPending *pending, const PmhBucket *b)
{
	for (unsigned i = 0; i < pending->n; i++)
	{
		if (pending->bucket[i] == b)
			return true;
	}
	return false;
}

/* ---- compaction ---- */

/*
 * The largest group of plain entries of one hash that may become a list, as a
 * mask; 0 if none has PMH_COMPACT_MIN.
 */
static uint32_t
largest_group(const PmhTable *t, const PmhPlace *place, uint32_t bucket,
			  uint64_t *hash)
{
	const PmhBucket *b = pmh_bucket(t, place, bucket);
	uint32_t	rest = pmh_bucket_state(b) & PMH_STATE_OCCUPIED;
	uint32_t	best = 0;

	*hash = 0;
	while (rest != 0)
	{
		unsigned	slot = (unsigned) __builtin_ctz(rest);
		uint64_t	h = pmh_slot_load_hash(b, slot, pmh_slot_load_word(b, slot));
		uint32_t	state;
		int			pointer;
		uint32_t	mask;
		PmhListPath path;

		PMH_STOP_POINT("group_before_find");
		mask = pmh_bucket_find(b, h, &state, &pointer);

		/* Its own slot in any case: the page may just have been lost. */
		rest &= ~(mask | UINT32_C(1) << slot);
		if (pointer < 0 &&
			pmh_mask_count(mask) >= PMH_COMPACT_MIN &&
			pmh_mask_count(mask) > pmh_mask_count(best) &&
			!pmh_segment_find_list(t, place, h, &path))
		{
			best = mask;
			*hash = h;
		}
	}
	return best;
}

/*
 * Make room in a full bucket by compaction.  If it is the group of the entry
 * to be inserted, this goes into the list at once and *inserted is set.
 * PMH_OK, PMH_NOT_FOUND (nothing to compact), PMH_NEED.
 */
static PmhResult
compact_full(PmhTable *t, const PmhPlace *place, uint32_t bucket,
			 const Target *target, uint64_t value, bool *inserted)
{
	PmhBucket  *b = pmh_bucket(t, place, bucket);
	uint32_t	state;
	int			pointer;
	uint64_t	hash;
	uint32_t	mask;
	PmhResult	result;

	PMH_ASSERT(bucket < place->hashing && !*inserted);
	mask = pmh_bucket_find(b, target->hash, &state, &pointer);
	if (pmh_mask_count(mask) + 1 >= PMH_COMPACT_MIN)
	{
		result = pmh_bucket_compact(t, place, bucket, target->hash, mask, &value);
		*inserted = result == PMH_OK;
		return result;
	}
	mask = largest_group(t, place, bucket, &hash);
	if (mask == 0)
		return PMH_NOT_FOUND;
	return pmh_bucket_compact(t, place, bucket, hash, mask, NULL);
}

/* ---- insert ---- */

/* The bucket a new entry goes to, or -1 if there is no room for it. */
static int64_t
choose_bucket(const PmhTable *t, const PmhPlace *place, const Target *target)
{
	PmhStrategy strategy = pmh_elem_strategy(place->elem);
	uint32_t	home = pmh_bucket_state(target->home_bucket);

	if (!pmh_state_balances(home))
		return target->home;
	if (pmh_strategy_has_alternative(strategy) &&
		pmh_state_count(pmh_bucket_state(target->alt_bucket)) < pmh_state_count(home))
		return target->alt;
	if (!pmh_state_full(home))
		return target->home;
	for (uint32_t b = place->hashing; pmh_strategy_has_stash(strategy) && b < place->buckets; b++)
	{
		if (!pmh_state_full(pmh_bucket_state(pmh_bucket(t, place, b))))
			return b;
	}
	return -1;
}

/* What the home of an entry has to tell of it if it goes to this bucket. */
static uint32_t
announcement(const PmhPlace *place, const Target *target, uint32_t bucket)
{
	PMH_ASSERT(bucket < place->buckets);
	if (bucket >= place->hashing)
		return PMH_STATE_STASHED;
	return bucket != target->home ? pmh_filter_bit(target->hash) : 0;
}

/*
 * There is no room for an entry, or it makes those of its key a list.  PMH_OK: try again, or
 * *inserted; PMH_RETRY, PMH_NEED, or a real error.
 */
static PmhResult
make_room(PmhTable *t, PmhPlace *place, const Target *target, uint64_t value,
		  bool *inserted)
{
	PmhStrategy strategy = pmh_elem_strategy(place->elem);
	int64_t		bucket = choose_bucket(t, place, target);
	PmhResult	result;

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock) && !*inserted);
	if (bucket >= 0)
	{
		uint32_t	mask = pmh_bucket_enough(pmh_bucket(t, place, (uint32_t) bucket),
											 target->hash);

		if (mask == 0)
			return PMH_OK;			/* its page has just been lost */
		result = pmh_bucket_compact(t, place, (uint32_t) bucket, target->hash, mask, &value);
		*inserted = result == PMH_OK;
		return result;
	}
	result = compact_full(t, place, target->home, target, value, inserted);
	if (result == PMH_NOT_FOUND && pmh_strategy_has_alternative(strategy))
		result = compact_full(t, place, target->alt, target, value, inserted);
	if (result != PMH_NOT_FOUND)
		return result;

	switch (strategy)
	{
		case PMH_SINGLE:
			return pmh_directory_strategy(t, place, PMH_TWO_CHOICE);
		case PMH_TWO_CHOICE:
			return pmh_directory_strategy(t, place, PMH_STASH);
		case PMH_STASH:
			break;
	}
	return pmh_segment_enlarge(t, place);
}

PmhResult
pmh_segment_prepare(PmhTable *t, const PmhPlace *place, uint64_t hash,
					uint64_t value, PmhPending *pending)
{
	Target		target;
	int64_t		chosen;
	uint32_t	bucket;
	PmhBucket  *b;
	PmhListPath path;

	PMH_ASSERT(value <= PMH_VALUE_MAX && pmh_is_locked(&place->stripe->lock));
	if (pmh_segment_find_list(t, place, hash, &path))
		return is_pending(pending, pmh_bucket(t, place, path.bucket)) ? PMH_RETRY :
			pmh_list_append(t, &path, hash, value);

	set_target(t, place, hash, &target);
	chosen = choose_bucket(t, place, &target);
	if (chosen < 0)
		return PMH_NOT_FOUND;
	bucket = (uint32_t) chosen;
	b = pmh_bucket(t, place, bucket);
	if (is_pending(pending, b))
		return PMH_RETRY;
	if (pmh_bucket_enough(b, hash) != 0)
		return PMH_NOT_FOUND;
	pending->bucket[pending->n] = b;
	pending->change[pending->n++] =
		pmh_bucket_prepare(t, b, pmh_bucket_version(place, bucket), hash,
						   pmh_make_word(hash, value), target.home_bucket,
						   announcement(place, &target, bucket), &pending->ordered);
	return PMH_OK;
}

void
pmh_segment_commit(PmhTable *t, PmhPending *pending)
{
	PMH_ASSERT(pending->n <= PMH_GROUP_MAX);
	if (pending->ordered)
		pm_fence(&t->file);
	for (unsigned i = 0; i < pending->n; i++)
		pmh_bucket_commit(t, pending->bucket[i], pending->change[i]);
	pending->n = 0;
	pending->ordered = false;
}

PmhResult
pmh_segment_insert(PmhTable *t, PmhPlace *place, uint64_t hash, uint64_t value)
{
	PmhPending	pending;
	Target		target;
	bool		inserted = false;
	PmhResult	result;

	pending.n = 0;
	pending.ordered = false;
	do
	{
		result = pmh_segment_prepare(t, place, hash, value, &pending);
		pmh_segment_commit(t, &pending);
		if (result != PMH_NOT_FOUND)
			return result;
		set_target(t, place, hash, &target);
		result = make_room(t, place, &target, value, &inserted);
	} while (result == PMH_OK && !inserted);
	return result;
}

/* ---- walks ---- */

/* Copy a line of a bucket by racing loads. */
static inline void
copy_line(PmhBucket *to, const PmhBucket *from, unsigned line)
{
	const uint64_t *src = (const uint64_t *) (from->bytes + line * PMH_LINE);
	uint64_t   *dst = (uint64_t *) (to->bytes + line * PMH_LINE);

	PMH_ASSERT(line < PMH_BUCKET_SIZE / PMH_LINE);
#pragma GCC unroll 8
	for (unsigned i = 0; i < PMH_LINE / sizeof(uint64_t); i++)
		dst[i] = __atomic_load_n(&src[i], __ATOMIC_ACQUIRE);
}

/* Copy a bucket; of lines without an occupied slot the copy is not read. */
static void
copy_bucket(PmhBucket *to, const PmhBucket *from)
{
	uint32_t	occupied;

	copy_line(to, from, 0);
	occupied = (pmh_bucket_state(to) & PMH_STATE_OCCUPIED) >> PMH_LINE0_SLOTS;
	for (unsigned line = 1; occupied != 0; line++, occupied >>= PMH_LINE_SLOTS)
	{
		PMH_STOP_POINT("segment_between_lines");
		if ((occupied & ((1u << PMH_LINE_SLOTS) - 1)) != 0)
			copy_line(to, from, line);
	}
}

PmhResult
pmh_walk_segment(PmhTable *t, PmhWalk *walk)
{
	PmhSnapshot *snap = &walk->snap;
	uint64_t	hash = walk->at.next;
	uint32_t	depth;
	bool		same = false;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(!walk->at.through);
	while (!same && (result = pmh_snapshot(t, hash, snap)) == PMH_OK)
	{
		pmh_ask_for_next_segments(t, hash);
		for (uint32_t i = 0; i < snap->place.buckets; i++)
		{
			copy_bucket(&walk->copy[i], pmh_bucket(t, &snap->place, i));
			PMH_STOP_POINT("segment_between_buckets");
		}
		PMH_STOP_POINT("segment_before_validation");
		same = true;
		for (uint32_t i = 0; i < PMH_VERSIONS; i++)
			same = same && pmh_snapshot_valid(snap, i);
	}
	/* (Of a damaged element the depth is unknown: on to the next one.) */
	depth = result == PMH_OK ? pmh_elem_depth(snap->place.elem) :
		pmh_dirword_depth(pm_load_acquire(&pmh_live(t)->dirword));
	walk->from = depth > walk->bits ? 0 : hash;
	pmh_position_advance(&walk->at, depth > walk->bits ? walk->bits : depth);
	if (result != PMH_OK)
		return result;
	pmh_ask_for_lists(t, walk->copy, snap->place.buckets);
	return PMH_OK;
}

PmhResult
pmh_walk_begin(PmhTable *t, PmhWalk *walk, uint32_t bits)
{
	memset(walk, 0, sizeof(*walk));
	walk->bits = bits;
	walk->copy = malloc(PMH_MAX_SEGMENT_BYTES);
	walk->key = malloc(PMH_SEGMENT_SLOTS * sizeof(uint64_t));
	if (walk->copy != NULL && walk->key != NULL)
		return PMH_OK;
	pmh_walk_end(walk);
	return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0, "There is no memory for a copy of a segment.");
}

void
pmh_walk_end(PmhWalk *walk)
{
	free(walk->copy);
	free(walk->key);
	walk->copy = NULL;
	walk->key = NULL;
}
