/*-------------------------------------------------------------------------
 *
 * bucket.c
 *	  Changing one bucket of a locked segment: each function is one operation
 *	  with one commit store (the state word or a slot word).
 *
 * The order of stores, flushes and fences, and what a crash leaves, is
 * in src/README.  Idea of the in-line-0 commit and of entry moving: Pea Hash,
 * section 3.4.
 *
 *-------------------------------------------------------------------------
 */
#include "list.h"

/* A list that compaction makes has room for so many values: a cache line. */
#define FIRST_VALUES	(2 * PMH_VALUES_PER_LINE)

/* Slots of the other lines, as masks. */
static const uint32_t line_mask[4] = {
	0x00007, 0x000f8, 0x01f00, 0x3e000
};

/*
 * Entry moving: fill free slots of a line with entries of line 0, so that the
 * next insert needs only line 0.  Returns the change of the state.
 */
static uint32_t
move_from_line0(PmhBucket *b, uint32_t state, uint32_t free_slots)
{
	uint32_t	change = 0;

	PMH_ASSERT((free_slots & (state | PMH_LINE0_MASK)) == 0);
	for (unsigned from = 0; from < PMH_LINE0_SLOTS && free_slots != 0; from++)
	{
		unsigned	to = (unsigned) __builtin_ctz(free_slots);
		uint64_t	word;

		if ((state & (UINT32_C(1) << from)) == 0)
			continue;
		word = pmh_slot_load_word(b, from);
		pmh_slot_store(b, to, pmh_slot_load_hash(b, from, word), word);
		free_slots &= free_slots - 1;
		change |= UINT32_C(1) << from | UINT32_C(1) << to;
	}
	return change;
}

/* The slot a new entry goes to if every line costs the same: the lowest. */
static uint32_t
fill_lowest(PmhBucket *b, uint64_t hash, uint64_t word, uint32_t free_slots)
{
	unsigned	slot = (unsigned) __builtin_ctz(free_slots);

	PMH_ASSERT(free_slots != 0);
	pmh_slot_store(b, slot, hash, word);
	return UINT32_C(1) << slot;
}

/*
 * The entry goes to the emptiest line after line 0, and entries of line 0 with it.  Flushed,
 * to be fenced before the state.
 */
static uint32_t
fill_other_line(PmhTable *t, PmhBucket *b, uint64_t hash, uint64_t word,
				uint32_t state, uint32_t free_slots)
{
	unsigned	line = 1;
	uint32_t	room;
	uint32_t	change;

	PMH_ASSERT((free_slots & PMH_STATE_OCCUPIED & ~PMH_LINE0_MASK) != 0);
	for (unsigned i = 2; i < 4; i++)
	{
		if (pmh_mask_count(free_slots & line_mask[i]) >
			pmh_mask_count(free_slots & line_mask[line]))
			line = i;
	}
	room = free_slots & line_mask[line];
	change = fill_lowest(b, hash, word, room);
	change ^= move_from_line0(b, state, room & ~change);
	pm_flush(&t->file, b->bytes + line * PMH_LINE, PMH_LINE);
	return change;
}

uint32_t
pmh_bucket_prepare(PmhTable *t, PmhBucket *b, uint64_t *version, uint64_t hash,
				   uint64_t word, PmhBucket *home, uint32_t announce, bool *ordered)
{
	uint32_t	state = pmh_bucket_state(b);
	uint32_t	free_slots = ~state & PMH_STATE_OCCUPIED;
	uint32_t	change;

	PMH_ASSERT(free_slots != 0);
	PMH_ASSERT((announce & (PMH_STATE_OCCUPIED | PMH_STATE_POINTERS)) == 0);
	pmh_version_bump(version);

	if ((pmh_bucket_state(home) & announce) != announce)
	{
		PMH_STOP_POINT("put_before_announcing");
		pm_commit32(&t->file, pmh_bucket_state_at(home),
					pmh_bucket_state(home) | announce);
		*ordered = true;
	}

	/* An entry in line 0 needs no flush of its own. */
	if (t->file.persist && (free_slots & PMH_LINE0_MASK) == 0)
	{
		change = fill_other_line(t, b, hash, word, state, free_slots);
		*ordered = true;
	}
	else
		change = fill_lowest(b, hash, word, free_slots);
	return change | (pmh_word_is_pointer(word) ? PMH_STATE_POINTERS & ~state : 0);
}

void
pmh_bucket_commit(PmhTable *t, PmhBucket *b, uint32_t change)
{
	PMH_ASSERT(change != 0);
	PMH_STOP_POINT("put_before_commit");
	pm_commit32(&t->file, pmh_bucket_state_at(b), pmh_bucket_state(b) ^ change);
	PMH_STOP_POINT("put_after_commit");
}

/* Store the word of an occupied slot and make it durable. */
static void
commit_word(PmhTable *t, PmhBucket *b, unsigned slot, uint64_t word)
{
	pm_commit64(&t->file, pmh_slot_word_at(b, slot), word);
	pm_fence(&t->file);
}

void
pmh_bucket_repoint(PmhTable *t, const PmhPlace *place, uint32_t bucket,
				   unsigned slot, uint64_t payload)
{
	PmhBucket  *b = pmh_bucket(t, place, bucket);
	uint64_t	word = pmh_slot_load_word(b, slot);

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock) && payload != 0);
	PMH_ASSERT(slot < PMH_SLOTS && payload <= PMH_WORD_PAYLOAD);
	pmh_version_bump(pmh_bucket_version(place, bucket));
	PMH_STOP_POINT("repoint_before_word");
	commit_word(t, b, slot, (word & ~PMH_WORD_PAYLOAD) | payload);
	PMH_STOP_POINT("repoint_after_word");
	pmh_version_bump(pmh_bucket_version(place, bucket));
}

void
pmh_bucket_unpoint(PmhTable *t, const PmhPlace *place, uint32_t bucket,
				   unsigned slot)
{
	PmhBucket  *b = pmh_bucket(t, place, bucket);
	uint64_t	hash = pmh_slot_load_hash(b, slot, pmh_slot_load_word(b, slot));
	uint64_t   *version = pmh_bucket_version(place, bucket);
	uint32_t	state;
	int			pointer;
	uint32_t	mask = pmh_bucket_find(b, hash, &state, &pointer) | UINT32_C(1) << slot;

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock) && slot < PMH_SLOTS);
	pmh_bucket_take(&t->file, b, version, state, mask);
	pm_fence(&t->file);
	PMH_STOP_POINT("unpoint_after_clear");
	pmh_version_bump(version);
}

/*
 * Make the plain entries 'mask' (all of hash, at least one) and, if given,
 * one more value one (key, pointer) slot.  Durable on return.  PMH_OK or
 * PMH_NEED (nothing done).  Pea Hash, section 3.3, without its log: from the
 * store of the word on, the entries left over are shadowed.
 */
PmhResult
pmh_bucket_compact(PmhTable *t, const PmhPlace *place, uint32_t bucket,
				   uint64_t hash, uint32_t mask, const uint64_t *extra)
{
	PmhBucket  *b = pmh_bucket(t, place, bucket);
	unsigned	slot = (unsigned) __builtin_ctz(mask);
	uint64_t	value[PMH_SLOTS + 1];
	uint64_t	payload;
	uint32_t	class;
	size_t		n = 0;
	PmhResult	result;

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock));
	PMH_ASSERT(mask != 0 && (mask & ~PMH_STATE_OCCUPIED) == 0);
	PMH_ASSERT(extra == NULL || *extra <= PMH_VALUE_MAX);
	for (uint32_t m = mask; m != 0; m &= m - 1)
		value[n++] = pmh_word_payload(pmh_slot_load_word(b, (unsigned) __builtin_ctz(m)));
	if (extra != NULL)
		value[n++] = *extra;
	/*
	 * A key whose rows come one by one will have more: a smaller buffer would soon
	 * be copied, and stay unused.
	 */
	class = pmh_buffer_class_for(n < FIRST_VALUES ? FIRST_VALUES : n);
	result = pmh_buffer_make(t, hash, class, value, n, &payload);
	if (result != PMH_OK)
		return result;
	pm_fence(&t->file);
	pmh_version_bump(pmh_bucket_version(place, bucket));
	PMH_STOP_POINT("compact_before_telling");
	if ((pmh_bucket_state(b) & PMH_STATE_POINTERS) == 0)
	{
		pm_commit32(&t->file, pmh_bucket_state_at(b),
					pmh_bucket_state(b) | PMH_STATE_POINTERS);
		pm_fence(&t->file);
		/* No reader is to believe a pointer beside a state that tells of none. */
		pmh_version_bump(pmh_bucket_version(place, bucket));
	}
	PMH_STOP_POINT("compact_before_word");
	commit_word(t, b, slot, pmh_make_word(hash, payload | PMH_WORD_POINTER));
	PMH_STOP_POINT("compact_after_word");
	mask &= ~(UINT32_C(1) << slot);
	if (mask != 0)
	{
		pm_commit32(&t->file, pmh_bucket_state_at(b), pmh_bucket_state(b) & ~mask);
		pm_fence(&t->file);
	}
	pmh_count(&pmh_run(t)->compactions, 1);
	return PMH_OK;
}
