/*-------------------------------------------------------------------------
 *
 * build.c
 *	  Filling a segment in private memory.
 *
 * Entries go home as long as there is room there; what is left over goes to
 * alternative buckets, and what is left then to the stash.  So a segment
 * starts with the simplest strategy that holds it, and with the fewest
 * entries away from home.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "build.h"

PmhBuild *
pmh_build_alloc(const PmhTable *t)
{
	PmhBuild   *build = calloc(1, sizeof(PmhBuild));

	if (build == NULL)
		return NULL;
	build->bucket = aligned_alloc(PMH_LINE, pmh_max_segment_size(t));
	build->fill = malloc(2 * (size_t) t->segment_buckets);
	if (build->bucket == NULL || build->fill == NULL)
	{
		pmh_build_free(build);
		return NULL;
	}
	return build;
}

void
pmh_build_free(PmhBuild *build)
{
	if (build == NULL)
		return;
	free(build->bucket);
	free(build->fill);
	free(build);
}

void
pmh_build_begin(const PmhTable *t, PmhBuild *build, uint32_t units)
{
	size_t		buckets = t->segment_buckets + units * t->unit_buckets;

	build->in_main = t->segment_buckets - PMH_STASH_BUCKETS;
	build->units = units;
	build->hashing = build->in_main + units * t->unit_buckets;
	build->entries = 0;
	build->strategy = PMH_SINGLE;

	/* Where flushes count, inserts to come should find line 0 free. */
	build->first_slot = t->file.persist ? PMH_LINE0_SLOTS : 0;
	memset(build->bucket, 0, buckets * PMH_BUCKET_SIZE);
	memset(build->fill, 0, buckets);
}

/* Is there room in a bucket for an item, where it would be seen? */
static bool
may_take(const PmhBuild *build, uint32_t bucket, const PmhItem *item)
{
	uint32_t	state;
	int			pointer;

	if (build->fill[bucket] >= PMH_SLOTS)
		return false;
	if ((item->payload & PMH_ITEM_BESIDE_LIST) == 0)
		return true;
	(void) pmh_bucket_find(pmh_build_bucket(build, bucket), item->hash, &state, &pointer);
	return pointer < 0;
}

static void
raise_strategy(PmhBuild *build, PmhStrategy strategy)
{
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
	PmhBucket  *b = pmh_build_bucket(build, home);
	unsigned	best_fill = PMH_SLOTS;
	unsigned	best_slot = 0;
	uint32_t	best_alt = 0;
	PmhItem		moved;
	uint64_t	word;

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
	pmh_build_put(build, best_alt, moved.hash, pmh_word_payload(word));
	*(uint32_t *) b->bytes |= pmh_filter_bit(moved.hash);
	pmh_build_fill_slot(build, b, best_slot, item->hash, item->payload);
	build->entries--;			/* one of the two was there before */
	raise_strategy(build, PMH_TWO_CHOICE);
	return true;
}

/* Find a place for one item: home, alternative, stash; false if there is none. */
static bool
place_item(PmhBuild *build, const PmhItem *item)
{
	uint64_t	payload = item->payload & ~PMH_ITEM_BESIDE_LIST;
	uint32_t	home = pmh_home_bucket(item->hash, build->hashing);
	uint32_t	alt = pmh_alt_bucket(item->hash, build->hashing, home);
	uint32_t   *home_state = (uint32_t *) pmh_build_bucket(build, home)->bytes;

	if (may_take(build, home, item))
	{
		pmh_build_put(build, home, item->hash, payload);
		return true;
	}
	if (may_take(build, alt, item))
	{
		pmh_build_put(build, alt, item->hash, payload);
		*home_state |= pmh_filter_bit(item->hash);
		raise_strategy(build, PMH_TWO_CHOICE);
		return true;
	}
	if (displace(build, item, home))
		return true;
	for (uint32_t i = 0; i < PMH_STASH_BUCKETS; i++)
	{
		if (may_take(build, build->hashing + i, item))
		{
			pmh_build_put(build, build->hashing + i, item->hash, payload);
			*home_state |= PMH_STATE_STASHED;
			raise_strategy(build, PMH_STASH);
			return true;
		}
	}
	return false;
}

bool
pmh_build_overflow(PmhBuild *build, const PmhItem *item, size_t n)
{
	/* All pointers must have their places before what stands beside them. */
	for (int beside = 0; beside < 2; beside++)
	{
		for (size_t i = 0; i < n; i++)
		{
			if (((item[i].payload & PMH_ITEM_BESIDE_LIST) != 0) == beside &&
				!place_item(build, &item[i]))
				return false;
		}
	}
	return true;
}

void
pmh_build_store(PmhTable *t, const PmhBuild *build, uint64_t main_offset,
				uint64_t ext_offset)
{
	pm_copy(&t->file, pmh_at(t, main_offset), build->bucket, pmh_block_size(t));
	if (build->units > 0)
		pm_copy(&t->file, pmh_at(t, ext_offset),
				&build->bucket[build->in_main + PMH_STASH_BUCKETS],
				build->units * pmh_unit_size(t));
}
