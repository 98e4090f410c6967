/*-------------------------------------------------------------------------
 *
 * segment.c
 *	  One segment: where an entry goes, what is done when it does not fit, and
 *	  consistent copies.
 *
 * The three strategies and their order: Pea Hash, section 3.2.  Growth in
 * steps of a half, late balancing and the filter bits are ours; src/README,
 * "Structure", says why.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "build.h"

/*
 * Of the entries that do not fit a bucket of which others are in the overflow
 * table, one in so many makes us look whether a larger segment would help now.
 */
#define TRY_EVERY			16

/* Where the hashes of a segment differ is asked of one bucket in so many. */
#define ASK_BUCKET			4

/* A half of a split that is fuller than this gets a larger segment. */
#define SPLIT_LOAD_PERCENT	85

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
	target->hash = hash;
	target->home = pmh_home_bucket(hash, place->hashing);
	target->alt = pmh_alt_bucket(hash, place->hashing, target->home);
	target->home_bucket = pmh_bucket(t, place, target->home);
	target->alt_bucket = pmh_bucket(t, place, target->alt);
}

/*
 * The buckets that may hold entries of a hash by the filters of its home, home
 * first.  Returns how many.
 */
static inline unsigned
buckets_of(const PmhPlace *place, const Target *target, uint32_t list[4])
{
	uint32_t	state = pmh_bucket_state(target->home_bucket);
	unsigned	n = 0;

	list[n++] = target->home;
	if ((state & pmh_filter_bit(target->hash)) != 0)
		list[n++] = target->alt;
	if ((state & PMH_STATE_STASHED) != 0)
	{
		for (uint32_t i = 0; i < PMH_STASH_BUCKETS; i++)
			list[n++] = place->hashing + i;
	}
	return n;
}

/*
 * May there be entries of a hash in the overflow table?  (In that table itself
 * only damage sets the mark.)
 */
static inline bool
has_overflowed(const PmhPlace *place, const Target *target)
{
	return (pmh_bucket_state(target->home_bucket) & PMH_STATE_OVERFLOWED) != 0 &&
		pmh_place_side(place) == PMH_PRIMARY;
}

/* ---- lists ---- */

/* Let a pointer slot name what a list has become, and free what it was. */
static void
follow_list(PmhTable *t, const PmhPlace *place, uint32_t bucket, unsigned slot,
			uint64_t old, uint64_t new_payload)
{
	if (new_payload == old)
		return;
	if (new_payload == 0)
		pmh_bucket_unpoint(t, place, bucket, slot);
	else
		pmh_bucket_repoint(t, place, bucket, slot, new_payload);
	pmh_list_retire(t, old, new_payload);
}

/* Append to the list behind a pointer slot.  PMH_OK, PMH_NEED, corrupt. */
static PmhResult
append_to_list(PmhTable *t, const PmhPlace *place, uint32_t bucket,
			   uint32_t mask, unsigned slot, uint64_t hash, uint64_t value,
			   bool fence_first, bool fence)
{
	PmhBucket  *b = pmh_bucket(t, place, bucket);
	uint32_t	shadowed = mask & ~(UINT32_C(1) << slot);
	uint64_t	payload = pmh_word_payload(pmh_slot_load_word(b, slot));
	uint64_t	new_payload;
	PmhResult	result;

	if (shadowed != 0)
		pmh_bucket_clear(t, place, bucket, shadowed, false);
	result = pmh_list_append(t, hash, payload, value, fence_first, fence, &new_payload);
	if (result == PMH_OK)
		follow_list(t, place, bucket, slot, payload, new_payload);
	return result;
}

unsigned
pmh_segment_buckets_of(const PmhTable *t, const PmhPlace *place, uint64_t hash,
					   uint32_t bucket[4])
{
	Target		target;

	set_target(t, place, hash, &target);
	return buckets_of(place, &target, bucket);
}

bool
pmh_segment_find_list(const PmhTable *t, const PmhPlace *place, uint64_t hash,
					  PmhListSlot *at)
{
	Target		target;
	uint32_t	list[4];
	unsigned	n;

	set_target(t, place, hash, &target);
	n = buckets_of(place, &target, list);
	for (unsigned i = 0; i < n; i++)
	{
		PmhBucket  *b = pmh_bucket(t, place, list[i]);
		uint32_t	state;
		int			pointer;

		(void) pmh_bucket_find(b, hash, &state, &pointer);
		if (pointer < 0)
			continue;
		at->bucket = list[i];
		at->slot = (unsigned) pointer;
		at->payload = pmh_word_payload(pmh_slot_load_word(b, at->slot));
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

/*
 * Append to the key's list, wherever its pointer is.  PMH_NOT_FOUND: none.  With
 * 'pending' the caller fences behind it; PMH_RETRY: that bucket is pending.
 */
static PmhResult
append_if_list(PmhTable *t, const PmhPlace *place, const Target *target,
			   uint64_t value, bool fence_first, const PmhPending *pending)
{
	uint32_t	list[4];
	unsigned	n = buckets_of(place, target, list);

	for (unsigned i = 0; i < n; i++)
	{
		PmhBucket  *b = pmh_bucket(t, place, list[i]);
		uint32_t	state = pmh_bucket_state(b);
		uint32_t	mask;
		int			pointer;

		if ((state & PMH_STATE_POINTERS) == 0)
			continue;
		mask = pmh_bucket_find(b, target->hash, &state, &pointer);
		if (pointer < 0)
			continue;
		if (pending != NULL && is_pending(pending, b))
			return PMH_RETRY;
		return append_to_list(t, place, list[i], mask, (unsigned) pointer,
							  target->hash, value, fence_first, pending == NULL);
	}
	return PMH_NOT_FOUND;
}

/* ---- compaction ---- */

/* Quick and mostly right: do three entries of the bucket share a fingerprint? */
static bool
may_have_group(const PmhBucket *b)
{
	uint64_t	once[4] = {0};
	uint64_t	twice[4] = {0};

	for (unsigned slot = 0; slot < PMH_SLOTS; slot++)
	{
		uint8_t		fp = pm_load((const uint8_t *) (b->bytes + 4 + slot));
		uint64_t	bit = UINT64_C(1) << (fp & 63);

		if ((twice[fp >> 6] & bit) != 0)
			return true;
		twice[fp >> 6] |= once[fp >> 6] & bit;
		once[fp >> 6] |= bit;
	}
	return false;
}

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
		PmhListSlot at;

		PMH_STOP_POINT("group_before_find");
		mask = pmh_bucket_find(b, h, &state, &pointer);

		/* Its own slot in any case: the page may just have been lost. */
		rest &= ~(mask | UINT32_C(1) << slot);
		if (pointer < 0 &&
			pmh_mask_count(mask) >= PMH_COMPACT_MIN &&
			pmh_mask_count(mask) > pmh_mask_count(best) &&
			!pmh_segment_find_list(t, place, h, &at))
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

	mask = pmh_bucket_find(b, target->hash, &state, &pointer);
	if (pmh_mask_count(mask) + 1 >= PMH_COMPACT_MIN)
	{
		result = pmh_bucket_compact(t, place, bucket, target->hash, mask, &value);
		*inserted = result == PMH_OK;
		return result;
	}
	if (!may_have_group(b))
		return PMH_NOT_FOUND;
	mask = largest_group(t, place, bucket, &hash);
	if (mask == 0)
		return PMH_NOT_FOUND;
	return pmh_bucket_compact(t, place, bucket, hash, mask, NULL);
}

/* ---- larger segments ---- */

static bool
has_lists(const PmhTable *t, const PmhPlace *place)
{
	uint32_t	any = 0;

	for (uint32_t i = 0; i < place->buckets; i++)
		any |= pmh_bucket_state(pmh_bucket(t, place, i));
	return (any & PMH_STATE_POINTERS) != 0;
}

/*
 * Hashes at home in a bucket may be in the overflow table: so say all buckets of
 * the new segment that they are at home in there.
 */
static void
carry_overflow(PmhBuild *build, uint32_t bucket, uint32_t hashing)
{
	/* First home bits of this bucket, and of the one behind it. */
	uint32_t	from = ((bucket << 16) + hashing - 1) / hashing;
	uint32_t	behind = (((bucket + 1) << 16) + hashing - 1) / hashing;
	uint32_t	last = ((behind - 1) * build->hashing) >> 16;

	for (uint32_t i = (from * build->hashing) >> 16; i <= last; i++)
		*(uint32_t *) build->bucket[i].bytes |= PMH_STATE_OVERFLOWED;
}

/*
 * Deal the live entries of a segment out to one (split = 0) or two (split = 1)
 * segments being built.
 * Entries with no room at home, or none where they would be seen, are kept in
 * t->overflow, behind noverflow[].
 */
static void
deal_out(PmhTable *t, const PmhPlace *place, unsigned split,
		 size_t noverflow[2])
{
	uint32_t	shift = 63 - pmh_elem_depth(place->elem);
	bool		lists = has_lists(t, place);

	for (uint32_t i = 0; i < place->buckets; i++)
	{
		const PmhBucket *b = pmh_bucket(t, place, i);
		uint32_t	state = pmh_bucket_state(b);
		uint32_t	live = pmh_bucket_live(b, state);

		for (unsigned half = 0; half <= split && (state & PMH_STATE_OVERFLOWED) != 0; half++)
			carry_overflow(t->build[half], i, place->hashing);
#pragma GCC unroll 18
		for (unsigned slot = 0; slot < PMH_SLOTS; slot++)
		{
			uint64_t	word = pmh_slot_load_word(b, slot);
			uint64_t	hash = pmh_slot_load_hash(b, slot, word);
			unsigned	half = (unsigned) (hash >> shift) & split;
			uint64_t	payload = word & (PMH_WORD_PAYLOAD | PMH_WORD_POINTER);
			PmhListSlot at;

			if ((live & (UINT32_C(1) << slot)) == 0)
				continue;
			/* Its own bucket has no pointer of this hash: it is not shadowed. */
			if (unlikely(lists) && !pmh_word_is_pointer(word) &&
				pmh_segment_find_list(t, place, hash, &at))
				payload |= PMH_ITEM_BESIDE_LIST;
			if ((payload & PMH_ITEM_BESIDE_LIST) != 0 ||
				!pmh_build_home(t->build[half], hash, payload))
			{
				PmhItem    *item = &t->overflow[half][noverflow[half]++];

				item->hash = hash;
				item->payload = payload;
			}
		}
	}
}

/*
 * The same, with every entry in the bucket number it has now, under the same
 * strategy.  That always fits: for hashes that no other arrangement holds.
 */
static void
deal_out_unchanged(PmhTable *t, const PmhPlace *place)
{
	uint32_t	shift = 63 - pmh_elem_depth(place->elem);

	for (unsigned half = 0; half < 2; half++)
	{
		pmh_build_begin(t, t->build[half], pmh_elem_units(place->elem));
		t->build[half]->strategy = pmh_elem_strategy(place->elem);
	}
	for (uint32_t i = 0; i < place->buckets; i++)
	{
		const PmhBucket *b = pmh_bucket(t, place, i);
		uint32_t	state = pmh_bucket_state(b);
		uint32_t	filters = state & (PMH_STATE_STASHED | PMH_STATE_OVERFLOWED |
									   PMH_STATE_ELSEWHERE);

		for (unsigned half = 0; half < 2; half++)
			*(uint32_t *) t->build[half]->bucket[i].bytes |= filters;
		for (uint32_t live = pmh_bucket_live(b, state); live != 0; live &= live - 1)
		{
			unsigned	slot = (unsigned) __builtin_ctz(live);
			uint64_t	word = pmh_slot_load_word(b, slot);
			uint64_t	hash = pmh_slot_load_hash(b, slot, word);

			pmh_build_put(t->build[(hash >> shift) & 1], i, hash,
						  word & (PMH_WORD_PAYLOAD | PMH_WORD_POINTER));
		}
	}
	for (unsigned half = 0; half < 2; half++)
		(void) pmh_build_settle(t->build[half]);
}

/*
 * Build one segment of 'units' with all entries of one (right NULL) or of two
 * buddies; false if they do not fit.
 */
static bool
build_one(PmhTable *t, const PmhPlace *left, const PmhPlace *right,
		  uint32_t units)
{
	size_t		noverflow[2] = {0, 0};

	pmh_build_begin(t, t->build[0], units);
	deal_out(t, left, 0, noverflow);
	if (right != NULL)
		deal_out(t, right, 0, noverflow);
	return pmh_build_overflow(t->build[0], t->overflow[0], noverflow[0]);
}

/* Build the two halves, each of the smallest size that leaves it some room. */
static void
build_halves(PmhTable *t, const PmhPlace *place)
{
	uint32_t	units[2] = {0, 0};
	size_t		noverflow[2];

	while (units[0] <= PMH_MAX_UNITS && units[1] <= PMH_MAX_UNITS)
	{
		bool		fits = true;

		noverflow[0] = noverflow[1] = 0;
		pmh_build_begin(t, t->build[0], units[0]);
		pmh_build_begin(t, t->build[1], units[1]);
		deal_out(t, place, 1, noverflow);
		for (unsigned half = 0; half < 2; half++)
		{
			PmhBuild   *build = t->build[half];
			uint64_t	slots = pmh_build_slots(t, units[half]);

			if ((pmh_build_settle(build) + noverflow[half]) * 100 > slots * SPLIT_LOAD_PERCENT ||
				!pmh_build_overflow(build, t->overflow[half], noverflow[half]))
			{
				units[half]++;
				fits = false;
			}
		}
		if (fits)
			return;
	}
	deal_out_unchanged(t, place);
}

/* Place a built segment in the file and make its element.  PMH_OK, PMH_NEED. */
static PmhResult
place_built(PmhTable *t, const PmhBuild *build, uint32_t depth, uint64_t *elem)
{
	uint64_t	main_offset = 0;
	uint64_t	ext_offset = 0;
	PmhResult	result;

	result = pmh_space_alloc_block(t, &main_offset);
	if (result == PMH_OK && build->units > 0)
		result = pmh_space_alloc_units(t, build->units, &ext_offset);
	if (result != PMH_OK)
	{
		if (main_offset != 0)
			pmh_space_free_block(t, main_offset);
		return result;
	}
	pmh_build_store(t, build, main_offset, ext_offset, false);
	*elem = pmh_make_elem(main_offset >> t->block_shift,
						  ext_offset / pmh_unit_size(t), build->units, depth,
						  build->strategy);
	return PMH_OK;
}

PmhResult
pmh_overflow_begin(PmhTable *t)
{
	PmhBuild   *build = t->build[0];
	PmhResult	result;

	do
	{
		uint64_t	elem;

		pmh_build_begin(t, build, 0);
		result = place_built(t, build, 0, &elem);
		if (result == PMH_OK)
		{
			pm_fence(&t->file);
			PMH_STOP_POINT("overflow_before_entering");
			result = pmh_directory_enter_overflow(t, elem);
			if (result != PMH_OK)
				pmh_segment_free(t, elem);
		}
	} while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	return result == PMH_RETRY ? PMH_OK : result;
}

void
pmh_segment_free(PmhTable *t, uint64_t elem)
{
	uint32_t	units = pmh_elem_units(elem);

	pmh_space_free_block(t, pmh_elem_main_block(elem) << t->block_shift);
	if (units > 0)
		pmh_space_free_units(t, pmh_elem_ext_unit(elem) * pmh_unit_size(t), units);
}

void
pmh_segment_retire(PmhTable *t, const PmhPlace *place)
{
	PMH_STOP_POINT("retire_before_versions");
	for (unsigned i = 0; i < PMH_VERSIONS; i++)
		pmh_version_bump(&place->stripe->version[i]);
	PMH_STOP_POINT("retire_before_free");
	pmh_segment_free(t, place->elem);
	PMH_STOP_POINT("retire_after_free");
}

/* Publish t->build[0 .. n - 1] instead of the segment.  PMH_RETRY, PMH_NEED. */
static PmhResult
replace_segment(PmhTable *t, const PmhPlace *place, unsigned n)
{
	uint32_t	depth = pmh_elem_depth(place->elem) + (n == 2);
	uint64_t	elem[2];
	PmhResult	result;

	result = place_built(t, t->build[0], depth, &elem[0]);
	if (result != PMH_OK)
		return result;
	elem[1] = elem[0];
	if (n == 2)
	{
		result = place_built(t, t->build[1], depth, &elem[1]);
		if (result != PMH_OK)
		{
			pmh_segment_free(t, elem[0]);
			return result;
		}
	}
	pm_fence(&t->file);
	PMH_STOP_POINT("replace_before_publish");
	result = pmh_directory_publish(t, place, elem[0], elem[1]);
	if (result != PMH_OK)
	{
		for (unsigned i = 0; i < n; i++)
			pmh_segment_free(t, elem[i]);
		return result;
	}
	pmh_segment_retire(t, place);
	pmh_count(n == 2 ? &pmh_run(t)->splits : &pmh_run(t)->grows, 1);
	return PMH_RETRY;
}

/* Entries of a locked segment that count: what a copy of it would hold. */
static uint32_t
count_live(const PmhTable *t, const PmhPlace *place)
{
	uint32_t	n = 0;

	for (uint32_t i = 0; i < place->buckets; i++)
	{
		const PmhBucket *b = pmh_bucket(t, place, i);

		n += pmh_mask_count(pmh_bucket_live(b, pmh_bucket_state(b)));
	}
	return n;
}

/*
 * Do the entries of a segment differ in the next hash bit?  Asks some buckets: of
 * 250 random hashes six standard deviations lie between.
 */
static bool
halves_even(const PmhTable *t, const PmhPlace *place)
{
	uint32_t	shift = 63 - pmh_elem_depth(place->elem);
	uint32_t	n = 0;
	uint32_t	second = 0;

	for (uint32_t i = 0; i < place->buckets; i += ASK_BUCKET)
	{
		const PmhBucket *b = pmh_bucket(t, place, i);

		for (uint32_t left = pmh_bucket_state(b) & PMH_STATE_OCCUPIED; left != 0; left &= left - 1)
		{
			unsigned	slot = (unsigned) __builtin_ctz(left);

			second += pmh_slot_load_hash(b, slot, pmh_slot_load_word(b, slot)) >> shift & 1;
			n++;
		}
	}
	return pmh_halves_even(n, second);
}

/*
 * Is it for want of space that a segment of the primary table has no room for an
 * entry, and would growing, or splitting it, help?  If not, its hashes have too
 * much in common.
 */
static bool
is_full(const PmhTable *t, const PmhPlace *place)
{
	return count_live(t, place) * 100 >= place->buckets * PMH_SLOTS * PMH_FULL_PERCENT;
}

static bool
split_helps(const PmhTable *t, const PmhPlace *place)
{
	uint32_t	depth = pmh_elem_depth(place->elem);

	if (depth < PMH_SMALL_DIR_DEPTH)
		return true;			/* segments so far up are few, whatever they hold */
	return (depth < pmh_dirword_depth(place->dirword) || pmh_directory_warranted(t, depth + 1)) &&
		halves_even(t, place);
}

/*
 * The segment is full: let it grow, else split it.  PMH_RETRY when that is
 * done, PMH_NEED, PMH_CROWDED, PMH_ERR_TOO_LARGE (in the overflow table, whose
 * hashes are as random as its key is secret).
 */
static PmhResult
enlarge(PmhTable *t, const PmhPlace *place)
{
	uint32_t	units = pmh_elem_units(place->elem);
	uint32_t	depth = pmh_elem_depth(place->elem);
	bool		primary = pmh_place_side(place) == PMH_PRIMARY;

	if (primary && !PMH_SPLITS_ANYWAY && !is_full(t, place))
		return PMH_CROWDED;
	if (units == 0 && build_one(t, place, NULL, PMH_GROW_UNITS))
		return replace_segment(t, place, 1);

	if (primary && (PMH_SPLITS_ANYWAY ? depth == PMH_MAX_DEPTH : !split_helps(t, place)))
		return PMH_CROWDED;
	if (depth == PMH_MAX_DEPTH)
	{
		if (units < PMH_MAX_UNITS && build_one(t, place, NULL, PMH_MAX_UNITS))
			return replace_segment(t, place, 1);
		return pmh_fail(t, PMH_ERR_TOO_LARGE, 0, place->main,
						"A segment of the greatest depth is full.");
	}
	if (depth == pmh_dirword_depth(place->dirword))
	{
		t->need.doubling = true;
		t->need.doubling_depth = depth;
		return PMH_NEED;
	}
	build_halves(t, place);
	return replace_segment(t, place, 2);
}

/* ---- smaller segments ---- */

/*
 * Build a segment of one or two in which they take no more than 'percent' of
 * the slots, in as few units as possible and fewer than 'below'.  False: there
 * is none.
 */
static bool
build_smallest(PmhTable *t, const PmhPlace *left, const PmhPlace *right,
			   uint32_t percent, uint32_t below)
{
	uint64_t	n = count_live(t, left);

	if (right != NULL)
		n += count_live(t, right);
	for (uint32_t units = 0; units < below; units++)
	{
		if (n * 100 <= (uint64_t) pmh_build_slots(t, units) * percent &&
			build_one(t, left, right, units))
			return true;
	}
	return false;
}

/*
 * Publish t->build[0] instead of one segment or of two buddies.  PMH_OK,
 * PMH_NEED (nothing done).
 */
static PmhResult
replace_by_one(PmhTable *t, const PmhPlace *left, const PmhPlace *right)
{
	PmhPlace	whole = *left;
	uint64_t	elem;
	PmhResult	result;

	result = place_built(t, t->build[0],
						 pmh_elem_depth(left->elem) - (right != NULL), &elem);
	if (result != PMH_OK)
		return result;
	pm_fence(&t->file);
	PMH_STOP_POINT("merge_before_publish");
	whole.elem = elem;			/* its depth tells the range */
	result = pmh_directory_publish(t, &whole, elem, elem);
	if (result != PMH_OK)
	{
		pmh_segment_free(t, elem);
		return result;
	}
	PMH_STOP_POINT("merge_before_retire");
	pmh_segment_retire(t, left);
	if (right != NULL)
		pmh_segment_retire(t, right);
	pmh_count(&pmh_run(t)->merges, 1);
	return PMH_OK;
}

PmhResult
pmh_segment_merge(PmhTable *t, const PmhPlace *left, const PmhPlace *right,
				  uint32_t percent)
{
	if (!build_smallest(t, left, right, percent, PMH_GROW_UNITS + 1))
		return PMH_NOT_FOUND;
	return replace_by_one(t, left, right);
}

PmhResult
pmh_segment_reduce(PmhTable *t, const PmhPlace *place, uint32_t percent)
{
	uint32_t	units = pmh_elem_units(place->elem);

	if (units < PMH_REDUCE_UNITS ||
		!build_smallest(t, place, NULL, percent, units - PMH_REDUCE_UNITS + 1))
		return PMH_NOT_FOUND;
	return replace_by_one(t, place, NULL);
}

PmhResult
pmh_segment_move(PmhTable *t, const PmhPlace *place)
{
	uint32_t	units = pmh_elem_units(place->elem);
	uint64_t	main_offset;
	uint64_t	ext_offset = 0;
	uint64_t	elem;
	PmhResult	result = pmh_space_alloc_block(t, &main_offset);

	if (result != PMH_OK)
		return result;
	if (units > 0)
		result = pmh_space_alloc_units(t, units, &ext_offset);
	if (result != PMH_OK)
	{
		pmh_space_free_block(t, main_offset);
		return result;
	}
	pm_copy(&t->file, pmh_at(t, main_offset), pmh_at(t, place->main),
			pmh_block_size(t));
	if (units > 0)
		pm_copy(&t->file, pmh_at(t, ext_offset), pmh_at(t, place->ext),
				units * pmh_unit_size(t));
	pm_fence(&t->file);
	elem = pmh_make_elem(main_offset >> t->block_shift,
						 ext_offset / pmh_unit_size(t), units,
						 pmh_elem_depth(place->elem),
						 pmh_elem_strategy(place->elem));
	PMH_STOP_POINT("move_before_publish");
	result = pmh_directory_publish(t, place, elem, elem);
	if (result == PMH_OK)
		pmh_segment_retire(t, place);
	else
		pmh_segment_free(t, elem);
	return result;
}

/* ---- insert ---- */

/* The bucket a new entry goes to, or -1 if there is no room for it. */
static int64_t
choose_bucket(const PmhTable *t, const PmhPlace *place, const Target *target)
{
	PmhStrategy strategy = pmh_elem_strategy(place->elem);
	unsigned	home_fill = pmh_state_count(pmh_bucket_state(target->home_bucket));
	unsigned	alt_fill;

	if (home_fill < PMH_BALANCE_FROM ||
		(strategy == PMH_SINGLE && home_fill < PMH_SLOTS))
		return target->home;
	if (strategy == PMH_SINGLE)
		return -1;

	alt_fill = pmh_state_count(pmh_bucket_state(target->alt_bucket));
	if (alt_fill < home_fill)
		return target->alt;
	if (home_fill < PMH_SLOTS)
		return target->home;

	if (strategy == PMH_STASH)
	{
		for (uint32_t i = 0; i < PMH_STASH_BUCKETS; i++)
		{
			if (!pmh_state_full(pmh_bucket_state(pmh_bucket(t, place, place->hashing + i))))
				return place->hashing + i;
		}
	}
	return -1;
}

/* What the home of an entry has to tell of it if it goes to this bucket. */
static uint32_t
announcement(const PmhPlace *place, const Target *target, uint32_t bucket)
{
	if (bucket >= place->hashing)
		return PMH_STATE_STASHED;
	return bucket != target->home ? pmh_filter_bit(target->hash) : 0;
}

/*
 * Entries of its key that a bucket has, as a mask; 0 unless they are so many that
 * the next one makes them a list.
 */
static uint32_t
enough_for_list(const PmhTable *t, const PmhPlace *place, const Target *target,
				uint32_t bucket)
{
	uint32_t	state;
	int			pointer;
	uint32_t	mask = pmh_bucket_find(pmh_bucket(t, place, bucket), target->hash,
									   &state, &pointer);

	return pmh_mask_count(mask) >= PMH_INLINE_MAX ? mask : 0;
}

/* Insert into a bucket with room.  PMH_OK, PMH_NEED. */
static PmhResult
insert_into(PmhTable *t, const PmhPlace *place, const Target *target,
			uint32_t bucket, uint64_t value, bool fence_first)
{
	uint32_t	mask = enough_for_list(t, place, target, bucket);
	uint32_t	announce = announcement(place, target, bucket);

	if (mask != 0)
		return pmh_bucket_compact(t, place, bucket, target->hash, mask, &value);
	pmh_bucket_put(t, place, bucket, target->hash,
				   pmh_make_word(target->hash, value),
				   announce != 0 ? target->home_bucket : NULL, announce,
				   fence_first);
	return PMH_OK;
}

/* Let the home tell that entries of it are in the overflow table, durably. */
static void
announce_overflow(PmhTable *t, PmhBucket *home)
{
	PMH_STOP_POINT("overflow_before_announcing");
	pmh_bucket_set_state(home, pmh_bucket_state(home) | PMH_STATE_OVERFLOWED);
	pm_flush(&t->file, home, PMH_LINE);
	pm_fence(&t->file);
	PMH_STOP_POINT("overflow_after_announcing");
}

/*
 * There is no room for an entry.  PMH_OK: try again, or *inserted; PMH_RETRY,
 * PMH_NEED, PMH_CROWDED, or a real error.
 */
static PmhResult
make_room(PmhTable *t, PmhPlace *place, const Target *target, uint64_t value,
		  bool *inserted)
{
	PmhStrategy strategy = pmh_elem_strategy(place->elem);
	PmhResult	result;

	/* Whether more can be done is not tried for each of those that do not fit. */
	if (strategy == PMH_STASH && value % TRY_EVERY != 0 &&
		has_overflowed(place, target))
		return PMH_CROWDED;
	result = compact_full(t, place, target->home, target, value, inserted);
	if (result == PMH_NOT_FOUND && strategy != PMH_SINGLE)
		result = compact_full(t, place, target->alt, target, value, inserted);
	if (result != PMH_NOT_FOUND)
		return result;

	if (strategy < PMH_STASH)
		return pmh_directory_strategy(t, place, strategy + 1);
	result = enlarge(t, place);
	if (result == PMH_CROWDED)
		announce_overflow(t, target->home_bucket);
	return result;
}

PmhResult
pmh_segment_insert(PmhTable *t, PmhPlace *place, uint64_t hash, uint64_t value,
				   bool fence_first)
{
	Target		target;
	bool		inserted = false;
	PmhResult	result;

	set_target(t, place, hash, &target);
	result = append_if_list(t, place, &target, value, fence_first, NULL);
	if (result != PMH_NOT_FOUND)
		return result;

	do
	{
		int64_t		bucket = choose_bucket(t, place, &target);

		if (bucket >= 0)
			return insert_into(t, place, &target, (uint32_t) bucket, value,
							   fence_first);
		result = make_room(t, place, &target, value, &inserted);
	} while (result == PMH_OK && !inserted);
	return result;
}

PmhResult
pmh_segment_prepare(PmhTable *t, const PmhPlace *place, uint64_t hash,
					uint64_t value, PmhPending *pending)
{
	Target		target;
	int64_t		bucket;
	uint32_t	announce;
	bool		ordered = false;
	PmhResult	result;

	set_target(t, place, hash, &target);
	result = append_if_list(t, place, &target, value, false, pending);
	if (result != PMH_NOT_FOUND)
		return result;

	bucket = choose_bucket(t, place, &target);
	if (bucket < 0)
		return PMH_NOT_FOUND;
	if (is_pending(pending, pmh_bucket(t, place, (uint32_t) bucket)))
		return PMH_RETRY;
	if (enough_for_list(t, place, &target, (uint32_t) bucket) != 0)
		return PMH_NOT_FOUND;

	announce = announcement(place, &target, (uint32_t) bucket);
	pending->bucket[pending->n] = pmh_bucket(t, place, (uint32_t) bucket);
	pending->change[pending->n] =
		pmh_bucket_prepare(t, place, (uint32_t) bucket, hash,
						   pmh_make_word(hash, value),
						   announce != 0 ? target.home_bucket : NULL, announce,
						   &ordered);
	pending->ordered |= ordered;
	pending->n++;
	return PMH_OK;
}

/* ---- delete ---- */

/* Take (hash, value) out of one bucket or the list behind it. */
static PmhResult
delete_from(PmhTable *t, const PmhPlace *place, uint32_t bucket, uint64_t hash,
			uint64_t value, bool wait, bool fence)
{
	PmhBucket  *b = pmh_bucket(t, place, bucket);
	uint32_t	state;
	int			pointer;
	uint32_t	mask = pmh_bucket_find(b, hash, &state, &pointer);

	if (pointer >= 0)
	{
		uint64_t	payload = pmh_word_payload(pmh_slot_load_word(b, (unsigned) pointer));
		uint64_t	new_payload;
		PmhResult	result;

		result = pmh_list_remove(t, hash, payload, value, wait, &new_payload);
		if (result == PMH_OK)
			follow_list(t, place, bucket, (unsigned) pointer, payload, new_payload);
		return result;
	}
	for (; mask != 0; mask &= mask - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(mask);

		if (pmh_word_payload(pmh_slot_load_word(b, slot)) == value)
		{
			pmh_bucket_clear(t, place, bucket, UINT32_C(1) << slot, fence);
			return PMH_OK;
		}
	}
	return PMH_NOT_FOUND;
}

PmhResult
pmh_segment_delete(PmhTable *t, const PmhPlace *place, uint64_t hash,
				   uint64_t value, bool wait, bool fence)
{
	Target		target;
	uint32_t	list[4];
	unsigned	n;

	set_target(t, place, hash, &target);
	n = buckets_of(place, &target, list);
	for (unsigned i = 0; i < n; i++)
	{
		PmhResult	result = delete_from(t, place, list[i], hash, value, wait,
										 fence);

		if (result != PMH_NOT_FOUND)
			return result;
	}
	return has_overflowed(place, &target) ? PMH_CROWDED : PMH_NOT_FOUND;
}

/* ---- consistent copies ---- */

/* Copy a line of a bucket by racing loads. */
static inline void
copy_line(PmhBucket *to, const PmhBucket *from, unsigned line)
{
	const uint64_t *src = (const uint64_t *) (from->bytes + line * PMH_LINE);
	uint64_t   *dst = (uint64_t *) (to->bytes + line * PMH_LINE);

	for (unsigned i = 0; i < PMH_LINE / sizeof(uint64_t); i++)
		dst[i] = __atomic_load_n(&src[i], __ATOMIC_ACQUIRE);
}

/* Copy a bucket; of lines without an occupied slot nobody reads the copy. */
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
pmh_segment_read_in(PmhTable *t, PmhSide side, uint64_t hash, PmhSnapshot *snap,
					PmhBucket *copy)
{
	for (;;)
	{
		bool		same = true;
		PmhResult	result = pmh_snapshot_in(t, side, hash, snap);

		if (result != PMH_OK)
			return result;
		for (uint32_t i = 0; i < snap->place.buckets; i++)
		{
			copy_bucket(&copy[i], pmh_bucket(t, &snap->place, i));
			PMH_STOP_POINT("segment_between_buckets");
		}
		PMH_STOP_POINT("segment_before_validation");
		for (uint32_t i = 0; i < PMH_VERSIONS; i++)
			same = same && pmh_snapshot_valid(snap, i);
		if (same)
			return PMH_OK;
	}
}
