/*-------------------------------------------------------------------------
 *
 * segment_build.c
 *	  Filling a segment in private memory.
 *
 * Entries go home as long as there is room there; what is left over goes to alternative
 * buckets, and what is left then to the stash.  So a segment starts with the simplest
 * strategy that holds it, and with the fewest entries away from home.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "segment.h"

PMH_PER_THREAD PmhBuild pmh_workspace[2];

/* From line 0, or from the one after it on. */
static const uint8_t slot_order[] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 0, 1, 2
};

_Static_assert(sizeof(slot_order) == PMH_SLOTS + PMH_LINE0_SLOTS, "some slots are never filled");

void
pmh_build_begin(const PmhTable *t, PmhBuild *build, uint32_t size)
{
	size_t		buckets = size * PMH_UNIT_BUCKETS;

	PMH_ASSERT(size > 0 && size <= PMH_MAX_SIZE);
	build->size = size;
	build->hashing = size * PMH_UNIT_BUCKETS - PMH_STASH_BUCKETS;
	build->strategy = PMH_SINGLE;
	build->nkept = 0;

	/* Where flushes count, inserts to come should find line 0 free. */
	build->order = slot_order + (t->file.persist ? PMH_LINE0_SLOTS : 0);
	/* Of a slot that is not occupied nothing is read: it keeps what it has. */
	for (size_t i = 0; i < buckets; i++)
		*pmh_bucket_state_at(&build->bucket[i]) = 0;
	memset(build->fill, 0, buckets);
}

/* The state bits of a bucket with so many entries. */
static inline uint32_t
occupied(const PmhBuild *build, unsigned fill)
{
	uint64_t	bits = ((UINT64_C(1) << fill) - 1) << build->order[0];

	PMH_ASSERT(fill <= PMH_SLOTS);
	return (uint32_t) (bits | bits >> PMH_SLOTS) & PMH_STATE_OCCUPIED;
}

/* Put an item into a bucket that has its state and room. */
static void
add_item(PmhBuild *build, uint32_t bucket, uint64_t hash, uint64_t payload)
{
	pmh_build_write(&build->bucket[bucket], pmh_build_slot(build, bucket), hash,
					payload & ~PMH_ITEM_BESIDE_LIST);
	*(uint32_t *) build->bucket[bucket].bytes |= occupied(build, build->fill[bucket]);
}

/* Is there room in a bucket for an item, where it would be seen? */
static bool
may_take(const PmhBuild *build, uint32_t bucket, const PmhItem *item)
{
	uint32_t	state;
	int			pointer;

	PMH_ASSERT(bucket < build->hashing + PMH_STASH_BUCKETS);
	if (build->fill[bucket] >= PMH_SLOTS)
		return false;
	if ((item->payload & PMH_ITEM_BESIDE_LIST) == 0)
		return true;
	(void) pmh_bucket_find(&build->bucket[bucket], item->hash, &state, &pointer);
	return pointer < 0;
}

static void
raise_strategy(PmhBuild *build, PmhStrategy strategy)
{
	PMH_ASSERT(pmh_strategy_exists(strategy));
	if (build->strategy < strategy)
		build->strategy = strategy;
}

/*
 * Home and alternative of an item are full.  If an entry of its home can go to
 * its own alternative (the emptiest such), let it, and take its slot.
 */
static bool
displace(PmhBuild *build, const PmhItem *item, uint32_t home)
{
	PmhBucket  *b = &build->bucket[home];
	unsigned	best_fill = PMH_SLOTS;
	unsigned	best_slot = 0;
	uint32_t	best_alt = 0;
	PmhItem		moved;
	uint64_t	word;

	PMH_ASSERT(home < build->hashing);
	if ((item->payload & PMH_ITEM_BESIDE_LIST) != 0)
		return false;
	for (unsigned slot = 0; slot < PMH_SLOTS; slot++)
	{
		uint32_t	alt;

		word = pmh_slot_load_word(b, slot);
		moved.hash = pmh_slot_load_hash(b, slot, word);
		moved.payload = PMH_ITEM_BESIDE_LIST;
		if (pmh_word_is_pointer(word) ||
			pmh_home_bucket(moved.hash, build->hashing) != home)
			continue;
		alt = pmh_alt_bucket(moved.hash, build->hashing, home);
		if (build->fill[alt] < best_fill && may_take(build, alt, &moved))
		{
			best_fill = build->fill[alt];
			best_slot = slot;
			best_alt = alt;
		}
	}
	if (best_fill == PMH_SLOTS)
		return false;

	word = pmh_slot_load_word(b, best_slot);
	moved.hash = pmh_slot_load_hash(b, best_slot, word);
	add_item(build, best_alt, moved.hash, pmh_word_payload(word));
	*(uint32_t *) b->bytes |= pmh_filter_bit(moved.hash);
	pmh_build_write(b, best_slot, item->hash, item->payload);
	raise_strategy(build, PMH_TWO_CHOICE);
	return true;
}

/* If a bucket has room for an item, put it there, and let its home tell of it. */
static bool
put_item(PmhBuild *build, const PmhItem *item, uint32_t bucket, uint32_t home,
		 uint32_t announce, PmhStrategy strategy)
{
	if (!may_take(build, bucket, item))
		return false;
	add_item(build, bucket, item->hash, item->payload);
	*(uint32_t *) build->bucket[home].bytes |= announce;
	raise_strategy(build, strategy);
	return true;
}

/* Find room for an item: home, alternative, stash. */
static bool
find_room(PmhBuild *build, const PmhItem *item)
{
	uint32_t	home = pmh_home_bucket(item->hash, build->hashing);
	uint32_t	alt = pmh_alt_bucket(item->hash, build->hashing, home);
	uint32_t	stash = build->hashing;

	return put_item(build, item, home, home, 0, PMH_SINGLE) ||
		put_item(build, item, alt, home, pmh_filter_bit(item->hash), PMH_TWO_CHOICE) ||
		displace(build, item, home) ||
		put_item(build, item, stash, home, PMH_STATE_STASHED, PMH_STASH) ||
		put_item(build, item, stash + 1, home, PMH_STATE_STASHED, PMH_STASH);
}

bool
pmh_build_complete(PmhBuild *build, uint32_t percent)
{
	const PmhItem *kept = build->kept;
	uint32_t	entries = build->nkept;

	for (uint32_t i = 0; i < build->hashing + PMH_STASH_BUCKETS; i++)
	{
		*(uint32_t *) build->bucket[i].bytes |= occupied(build, build->fill[i]);
		entries += build->fill[i];
	}
	if (entries * 100 > pmh_build_slots(build->size) * percent)
		return false;

	/* All pointers must have their slots before what stands beside them. */
	for (int beside = 0; beside < 2; beside++)
	{
		for (size_t i = 0; i < build->nkept; i++)
		{
			if (((kept[i].payload & PMH_ITEM_BESIDE_LIST) != 0) == beside &&
				!find_room(build, &kept[i]))
				return false;
		}
	}
	return true;
}

void
pmh_build_store(PmhTable *t, const PmhBuild *build, uint64_t elem, bool fresh)
{
	PmhPlace	place = {.elem = elem};
	uint32_t	at_first = build->hashing < PMH_IN_MAIN ? build->hashing : PMH_IN_MAIN;
	bool		mapped = pmh_place_decode(t, &place);

	PMH_ASSERT(mapped && place.hashing == build->hashing);
	(void) mapped;
	pm_copy_to_space(&t->file, pmh_at(t, place.first), build->bucket,
					 at_first * PMH_BUCKET_SIZE, fresh);
	pm_copy_to_space(&t->file, pmh_at(t, place.stash), &build->bucket[build->hashing],
					 PMH_STASH_BUCKETS * PMH_BUCKET_SIZE, fresh);
	if (at_first < build->hashing)
		pm_copy_to_space(&t->file, pmh_at(t, place.ext), &build->bucket[at_first],
						 (build->hashing - at_first) * PMH_BUCKET_SIZE, fresh);
}
