/*-------------------------------------------------------------------------
 *
 * value_space.c
 *	  Space for value buffers: value blocks, and the grains in them.
 *
 * See src/README, "Space", also for what is durable, and for what a walk along all lists marks
 * in blocks of an earlier life.  All of this is done under the space lock.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "list.h"

/*
 * How far the search for a block with room goes before a new one is taken, in blocks of which
 * the kind is looked at, and in those that are looked into.
 */
#define ROOM_SEARCH			4096
#define ROOM_TRIES			512

static PmhValueBlock *
block_at(const PmhTable *t, uint64_t block)
{
	return (PmhValueBlock *) pmh_at(t, block << PMH_BLOCK_SHIFT);
}

static bool
is_value_kind(uint8_t kind)
{
	return (kind & PMH_KIND_MASK) == PMH_KIND_VALUES;
}

/* Of a value block: what the kind byte says of room. */
static unsigned
room_of(const PmhTable *t, uint64_t block)
{
	return pm_load(pmh_space_kind(t, block)) & PMH_ROOM_MASK;
}

static void
set_room(PmhTable *t, uint64_t block, unsigned room)
{
	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	PMH_ASSERT(room <= PMH_ROOM_OLD);
	pm_store8(pmh_space_kind(t, block), (uint8_t) (PMH_KIND_VALUES | room));
}

/* ---- the bits of a block ---- */

/* Of some grains; a word at a time. */
static void
set_bits(uint64_t *words, uint32_t at, uint32_t grains, bool set)
{
	uint32_t	end = at + grains;
	uint32_t	n;

	PMH_ASSERT(at >= PMH_HEAD_GRAINS && end <= PMH_BLOCK_GRAINS);
	for (; at < end; at += n)
	{
		uint32_t	in_word = 64 - at % 64;
		uint64_t	word = pm_load(&words[at / 64]);
		uint64_t	bits;

		n = end - at < in_word ? end - at : in_word;
		bits = (n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1) << (at % 64);
		pm_store64(&words[at / 64], set ? word | bits : word & ~bits);
	}
}

/* The first grain from 'at' on that is used (or is not), or PMH_BLOCK_GRAINS. */
static uint32_t
next_grain(const uint64_t *words, uint32_t at, bool used)
{
	PMH_ASSERT(at <= PMH_BLOCK_GRAINS);
	while (at < PMH_BLOCK_GRAINS)
	{
		uint64_t	word = pm_load(&words[at / 64]);
		uint64_t	left = (used ? word : ~word) >> (at % 64);

		if (left != 0)
			return at + (uint32_t) __builtin_ctzll(left);
		at += 64 - at % 64;
	}
	return PMH_BLOCK_GRAINS;
}

/* Where a buffer of this class has room in a block; 0: nowhere. */
static uint32_t
find_room(const uint64_t *words, uint32_t class)
{
	uint32_t	grains = pmh_class_grains[class];
	uint32_t	at = PMH_HEAD_GRAINS;

	PMH_ASSERT(class >= PMH_LEAST_CLASS && class <= PMH_MAX_CLASS);
	for (;;)
	{
		uint32_t	end;

		at = next_grain(words, at, false);
		if (class != PMH_ODD_CLASS)
			at += at % 2;
		if (at + grains > PMH_BLOCK_GRAINS)
			return 0;
		end = next_grain(words, at, true);
		if (at + grains <= end)
			return at;
		at = end;
	}
}

/* The largest class that there may be room for around a grain that has become free. */
static uint32_t
room_around(const uint64_t *words, uint32_t at)
{
	uint32_t	class = PMH_MAX_CLASS;
	uint32_t	start = at;

	PMH_ASSERT((pm_load(&words[at / 64]) >> (at % 64) & 1) == 0);
	while (start % 64 != 0 && (pm_load(&words[start / 64]) >> ((start - 1) % 64) & 1) == 0)
		start--;
	/* Further back by whole words. */
	while (start % 64 == 0 && start > 0)
	{
		uint64_t	word = pm_load(&words[start / 64 - 1]);

		start -= word == 0 ? 64 : (uint32_t) __builtin_clzll(word);
		if (word != 0)
			break;
	}
	at = next_grain(words, at, true);
	while (class > 0 && start + pmh_class_grains[class] > at)
		class--;
	return class;
}

static bool
is_empty(const PmhValueBlock *b)
{
	uint64_t	any = pm_load(&b->used[0]) & ~((UINT64_C(1) << PMH_HEAD_GRAINS) - 1);

	for (uint32_t i = 1; i < PMH_GRAIN_WORDS; i++)
		any |= pm_load(&b->used[i]);
	return any == 0;
}

/* All grains used, or none; the head always. */
static void
fill_words(uint64_t *words, bool used)
{
	pm_store64(&words[0], used ? ~UINT64_C(0) : (UINT64_C(1) << PMH_HEAD_GRAINS) - 1);
	for (uint32_t i = 1; i < PMH_GRAIN_WORDS; i++)
		pm_store64(&words[i], used ? ~UINT64_C(0) : 0);
}

/* ---- blocks ---- */

/* Store what kind a block is, durably. */
static void
store_kind(PmhTable *t, uint64_t block, uint8_t kind)
{
	uint8_t    *at = pmh_space_kind(t, block);

	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	pm_store8(at, kind);
	pm_flush(&t->file, at, sizeof(*at));
	pm_fence(&t->file);
}

/* A block may have room for buffers up to a class. */
static void
note_room(PmhTable *t, uint64_t block, uint32_t class)
{
	uint64_t   *hint = pmh_run(t)->value_hint;

	PMH_ASSERT(class <= PMH_MAX_CLASS);
	if (room_of(t, block) < class)
		set_room(t, block, class);
	for (; class > 0; class--)
	{
		if (pm_load(&hint[class]) > block)
			pm_store64(&hint[class], block);
	}
}

/* Take a new value block.  PMH_OK, PMH_NEED. */
static PmhResult
take_block(PmhTable *t, uint64_t *block)
{
	PmhRun	   *run = pmh_run(t);
	PmhResult	result = pmh_space_take_extent(t, 1, block);

	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	if (result != PMH_OK)
		return result;
	fill_words(block_at(t, *block)->used, false);
	PMH_STOP_POINT("value_block_before_kind");
	store_kind(t, *block, PMH_KIND_VALUES);
	PMH_STOP_POINT("value_block_after_kind");
	pm_store64(&run->value_blocks, pm_load(&run->value_blocks) + 1);
	pm_store64(&run->newest_block, *block);
	for (uint32_t class = PMH_LEAST_CLASS; class <= PMH_MAX_CLASS; class++)
	{
		if (pm_load(&run->value_hint[class]) > *block)
			pm_store64(&run->value_hint[class], *block);
	}
	set_room(t, *block, PMH_MAX_CLASS);
	return PMH_OK;
}

/* Give back a value block that has no buffer. */
static void
give_block_back(PmhTable *t, uint64_t block)
{
	PmhRun	   *run = pmh_run(t);

	PMH_ASSERT(block > 0 && pmh_is_locked(&t->file_lock->space));
	store_kind(t, block, 0);
	PMH_STOP_POINT("value_block_before_free");
	pm_store64(&run->value_blocks, pm_load(&run->value_blocks) - 1);
	if (pm_load(&run->newest_block) == block)
		pm_store64(&run->newest_block, 0);
	pmh_space_put_block(t, block);
}

/* ---- allocation ---- */

/* The first block of [block, end) that may have room for a buffer, or 'end'. */
static uint64_t
next_with_room(const PmhTable *t, uint64_t block, uint64_t end, uint32_t class)
{
	while (block < end)
	{
		const uint8_t *kind = pmh_space_kind(t, block);
		uint64_t	stop = pmh_space_zone_end(block);

		if (stop > end)
			stop = end;
		for (; block < stop; block++, kind++)
		{
			if ((uint8_t) (pm_load(kind) - (PMH_KIND_VALUES | class)) <=
				PMH_MAX_CLASS - class)
				return block;
		}
	}
	return end;
}

/* Take a buffer in a block that may have room for it. */
static bool
take_in_block(PmhTable *t, uint64_t block, uint32_t class, uint64_t *offset)
{
	PmhValueBlock *b = block_at(t, block);
	uint32_t	at = find_room(b->used, class);

	PMH_ASSERT(at == 0 || at >= PMH_HEAD_GRAINS);
	if (at == 0)
	{
		set_room(t, block, class - 1);
		return false;
	}
	set_bits(b->used, at, pmh_class_grains[class], true);
	*offset = (block << PMH_BLOCK_SHIFT) + (uint64_t) at * PMH_GRAIN;
	return true;
}

/*
 * Take a buffer in one of the blocks from *hint on; it is where the next search begins
 * then.  Only so many are looked at; if there are more, the next search begins with the
 * newest block.
 */
static bool
take_near_hint(PmhTable *t, uint32_t class, uint64_t *hint, uint64_t *offset)
{
	uint64_t	blocks = pmh_space_allocatable(t);
	uint64_t	block = pm_load(hint);
	uint64_t	newest = pm_load(&pmh_run(t)->newest_block);
	uint64_t	end = block + ROOM_SEARCH < blocks ? block + ROOM_SEARCH : blocks;
	unsigned	tries = 0;

	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	while ((block = next_with_room(t, block, end, class)) < end)
	{
		if (tries++ == ROOM_TRIES)
		{
			end = block;
			break;
		}
		if (take_in_block(t, block, class, offset))
		{
			pm_store64(hint, block);
			return true;
		}
	}
	pm_store64(hint, end < blocks && newest > end ? newest : end);
	return false;
}

PmhResult
pmh_value_alloc(PmhTable *t, uint32_t class, uint64_t *offset)
{
	uint64_t   *hint = &pmh_run(t)->value_hint[class];
	uint64_t	block;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(class >= PMH_LEAST_CLASS && class <= PMH_MAX_CLASS);
	pmh_space_lock_to_give(t);
	/* Once more, if the search has come to the newest block. */
	if (!take_near_hint(t, class, hint, offset) &&
		(pm_load(hint) != pm_load(&pmh_run(t)->newest_block) ||
		 !take_near_hint(t, class, hint, offset)))
	{
		result = take_block(t, &block);
		if (result == PMH_OK)
			(void) take_in_block(t, block, class, offset);
	}
	pmh_space_unlock(t);
	return result;
}

/* A block of an earlier life is met for the first time: begin with its bits. */
static void
begin_bits(PmhTable *t, uint64_t block)
{
	PmhValueBlock *b = block_at(t, block);

	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	if (room_of(t, block) != PMH_ROOM_OLD)
		return;
	fill_words(b->used, true);
	fill_words(b->mark, false);
	set_room(t, block, PMH_ROOM_SEEN);
}

void
pmh_value_free(PmhTable *t, uint64_t offset, uint32_t class)
{
	uint64_t	block = offset >> PMH_BLOCK_SHIFT;
	uint32_t	at = (uint32_t) (offset % PMH_BLOCK_SIZE / PMH_GRAIN);
	PmhValueBlock *b = block_at(t, block);

	PMH_ASSERT(pmh_buffer_may_be_at(class, offset));
	pmh_buffer_bump(t, offset);
	(void) pm_load(&b->used[0]);	/* read the page, if it must be, before we lock */
	pmh_space_lock(t);
	PMH_STOP_POINT("value_free_locked");
	/* (A damaged pointer may lead anywhere.) */
	if (is_value_kind(pm_load(pmh_space_kind(t, block))))
	{
		begin_bits(t, block);
		set_bits(b->used, at, pmh_class_grains[class], false);
		if (room_of(t, block) != PMH_ROOM_SEEN)
		{
			if (is_empty(b))
				give_block_back(t, block);
			else
				note_room(t, block, room_around(b->used, at));
		}
	}
	pmh_space_unlock(t);
}

/* ---- walks ---- */

bool
pmh_value_space_is_known(const PmhTable *table)
{
	return pm_load(&pmh_run(table)->old_blocks) == 0;
}

/*
 * The next value block of an earlier life from one on; 0: there is none.  What the file has
 * become longer by since it was mapped is of this life.
 */
static uint64_t
next_old_block(PmhTable *t, uint64_t block)
{
	for (; block < pmh_blocks(t) && pmh_within(t, 0, (block + 1) << PMH_BLOCK_SHIFT); block++)
	{
		uint8_t		kind = pm_load(pmh_space_kind(t, block));

		if (is_value_kind(kind) && (kind & PMH_ROOM_MASK) >= PMH_ROOM_SEEN)
			return block;
	}
	return 0;
}

void
pmh_value_mark(PmhTable *t, uint64_t payload)
{
	uint64_t	offset = pmh_pointer_offset(payload);
	uint64_t	block = offset >> PMH_BLOCK_SHIFT;

	if (payload == 0 || room_of(t, block) < PMH_ROOM_SEEN)
		return;
	PMH_ASSERT(!t->space_held && pmh_buffer_may_be_at(pmh_pointer_class(payload), offset));
	pmh_lock(&t->file_lock->space);
	if (is_value_kind(pm_load(pmh_space_kind(t, block))))
	{
		begin_bits(t, block);
		if (room_of(t, block) == PMH_ROOM_SEEN)
			set_bits(block_at(t, block)->mark,
					 (uint32_t) (offset % PMH_BLOCK_SIZE / PMH_GRAIN),
					 pmh_class_grains[pmh_pointer_class(payload)], true);
	}
	pmh_unlock(&t->file_lock->space);
}

PmhResult
pmh_value_settle(PmhTable *t)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	block = 0;
	PmhResult	result;

	PMH_ASSERT(!t->space_held);
	/*
	 * Who had a stripe has freed by then what it had taken off a list.  (The locks are
	 * taken, not looked at: a holder that comes after us sees that we have been there, and
	 * no store of it was seen before.)  A segment that moves to a block past those looked at
	 * has not been there before.
	 */
	for (uint64_t i = 0; i < t->locks->nstripes && i < pmh_blocks(t); i++)
	{
		PmhStripe  *stripe = pmh_segment_stripe(t->locks, t->file_id, i);

		if (!pmh_lock_or_cancel(&stripe->lock))
			return pmh_fail_cancelled(t);
		pmh_unlock(&stripe->lock);
	}
	PMH_STOP_POINT("value_walk_settles");
	result = pmh_map_all(t);
	if (result != PMH_OK)
		return result;
	while ((block = next_old_block(t, block + 1)) != 0)
	{
		pmh_space_lock(t);
		if (is_value_kind(pm_load(pmh_space_kind(t, block))) &&
			room_of(t, block) >= PMH_ROOM_SEEN)
		{
			PmhValueBlock *b = block_at(t, block);

			begin_bits(t, block);
			for (uint32_t i = 0; i < PMH_GRAIN_WORDS; i++)
				pm_store64(&b->used[i], pm_load(&b->used[i]) & pm_load(&b->mark[i]));
			set_room(t, block, 0);
			pm_store64(&run->old_blocks, pm_load(&run->old_blocks) - 1);
			if (is_empty(b))
				give_block_back(t, block);
			else
				note_room(t, block, PMH_MAX_CLASS);
		}
		pmh_space_unlock(t);
	}
	return PMH_OK;
}
