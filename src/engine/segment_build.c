/*-------------------------------------------------------------------------
 *
 * segment_build.c
 *	  Filling a segment in private memory.
 *
 * Entries go home as long as there is room there; what is left over goes to alternative
 * buckets, and what is left then to the stash.  So a segment starts with the simplest
 * strategy that holds it, and with the fewest entries away from home.
 *
 * The memory for it, some 130 KB, is not part of a handle: a process may have thousands of
 * these, and builds seldom.  An operation borrows it and gives it back for the next one, of
 * whichever handle.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"
#include "segment.h"
#include "table.h"

/* ---- memory ---- */

typedef struct PmhWorkspace
{
	PmhBuild	build[2];
	PmhItem    *overflow[2];
} PmhWorkspace;

/* One that is free just now, or NULL. */
static PmhWorkspace *spare;

static void
free_workspace(PmhWorkspace *w)
{
	if (w == NULL)
		return;
	for (unsigned i = 0; i < 2; i++)
	{
		free(w->build[i].bucket);
		free(w->build[i].fill);
		free(w->overflow[i]);
	}
	free(w);
}

static PmhWorkspace *
make_workspace(void)
{
	size_t		buckets = PMH_MAX_SEGMENT_BYTES / PMH_BUCKET_SIZE;
	PmhWorkspace *w = calloc(1, sizeof(PmhWorkspace));
	bool		complete = w != NULL;

	for (unsigned i = 0; i < 2 && w != NULL; i++)
	{
		w->build[i].bucket = aligned_alloc(PMH_LINE, PMH_MAX_SEGMENT_BYTES);
		if (w->build[i].bucket != NULL)
			memset(w->build[i].bucket, 0, PMH_MAX_SEGMENT_BYTES);
		w->build[i].fill = malloc(buckets);
		w->overflow[i] = malloc(buckets * PMH_SLOTS * sizeof(PmhItem));
		complete &= w->build[i].bucket != NULL && w->build[i].fill != NULL &&
			w->overflow[i] != NULL;
	}
	if (!complete)
	{
		free_workspace(w);
		return NULL;
	}
	return w;
}

PmhResult
pmh_workspace_take(PmhTable *t)
{
	PmhWorkspace *w;

	if (t->workspace != NULL)
		return PMH_OK;
	w = __atomic_exchange_n(&spare, NULL, __ATOMIC_ACQ_REL);
	if (w == NULL)
		w = make_workspace();
	if (w == NULL)
		return pmh_fail(t, PMH_ERR_NO_MEMORY, ENOMEM, 0,
						"There is no memory to build a segment in.");
	t->workspace = w;
	for (unsigned i = 0; i < 2; i++)
	{
		t->build[i] = &w->build[i];
		t->overflow[i] = w->overflow[i];
	}
	return PMH_OK;
}

void
pmh_workspace_give_back(PmhTable *t)
{
	PmhWorkspace *w = t->workspace;

	if (w == NULL)
		return;
	t->workspace = NULL;
	for (unsigned i = 0; i < 2; i++)
	{
		t->build[i] = NULL;
		t->overflow[i] = NULL;
	}
	free_workspace(__atomic_exchange_n(&spare, w, __ATOMIC_ACQ_REL));
}

/* ---- building ---- */

void
pmh_build_begin(const PmhTable *t, PmhBuild *build, uint32_t size)
{
	size_t		buckets = size * PMH_UNIT_BUCKETS;

	PMH_ASSERT(size > 0 && size <= PMH_MAX_SIZE);
	build->size = size;
	build->hashing = size * PMH_UNIT_BUCKETS - PMH_STASH_BUCKETS;
	build->strategy = PMH_SINGLE;

	/* Where flushes count, inserts to come should find line 0 free. */
	build->first_slot = t->file.persist ? PMH_LINE0_SLOTS : 0;
	/* Of a slot that is not occupied nothing is read: it keeps what it has. */
	for (size_t i = 0; i < buckets; i++)
		*pmh_bucket_state_at(&build->bucket[i]) = 0;
	memset(build->fill, 0, buckets);
}

/* The state bits of a bucket with so many entries. */
static inline uint32_t
occupied(const PmhBuild *build, unsigned fill)
{
	uint64_t	bits = ((UINT64_C(1) << fill) - 1) << build->first_slot;

	PMH_ASSERT(fill <= PMH_SLOTS);
	return (uint32_t) (bits | bits >> PMH_SLOTS) & PMH_STATE_OCCUPIED;
}

uint32_t
pmh_build_settle(PmhBuild *build)
{
	uint32_t	entries = 0;

	for (uint32_t i = 0; i < build->hashing + PMH_STASH_BUCKETS; i++)
	{
		*(uint32_t *) build->bucket[i].bytes |= occupied(build, build->fill[i]);
		entries += build->fill[i];
	}
	return entries;
}

/* Put an item into a bucket that is settled and has room. */
static void
add_item(PmhBuild *build, uint32_t bucket, uint64_t hash, uint64_t payload)
{
	pmh_build_put(build, bucket, hash, payload & ~PMH_ITEM_BESIDE_LIST);
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

/* Find room for an item: home, alternative, stash. */
static bool
find_room(PmhBuild *build, const PmhItem *item)
{
	uint32_t	home = pmh_home_bucket(item->hash, build->hashing);
	uint32_t	alt = pmh_alt_bucket(item->hash, build->hashing, home);
	uint32_t   *home_state = (uint32_t *) build->bucket[home].bytes;

	if (may_take(build, home, item))
	{
		add_item(build, home, item->hash, item->payload);
		return true;
	}
	if (may_take(build, alt, item))
	{
		add_item(build, alt, item->hash, item->payload);
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
			add_item(build, build->hashing + i, item->hash, item->payload);
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
	(void) pmh_build_settle(build);

	/* All pointers must have their slots before what stands beside them. */
	for (int beside = 0; beside < 2; beside++)
	{
		for (size_t i = 0; i < n; i++)
		{
			if (((item[i].payload & PMH_ITEM_BESIDE_LIST) != 0) == beside &&
				!find_room(build, &item[i]))
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
