/*-------------------------------------------------------------------------
 *
 * value_space.c
 *	  Space for value buffers: their free lists, and the newest value region.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "buffer.h"
#include "crc.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "live.h"
#include "lock.h"
#include "pm.h"
#include "reclaim.h"
#include "recover.h"
#include "region.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"
#include "value_space.h"

/*
 * The part of all for one value region, blocks of the least, bytes of the largest.  Small
 * regions waste more of their end: the least one is a quarter of all as long as they are
 * few, and one for large buffers has room for several.
 */
#define REGION_PART			8
#define LEAST_REGION_PART	4
#define LEAST_REGION_BLOCKS	4
#define MAX_REGION_BYTES	((uint64_t) 32 * 1024 * 1024)

_Static_assert(MAX_REGION_BYTES / PMH_BLOCK_SIZE <= PMH_LONGEST_EXTENT,
			   "the largest value region is an extent of blocks that cannot exist");

/* Put a buffer on its free list; the caller holds the space lock. */
static void
push_free(PmhTable *t, uint64_t offset, uint32_t class)
{
	uint64_t   *head = &pmh_run(t)->free_list[class];

	pm_store64((uint64_t *) pmh_at(t, offset), pm_load(head));
	pm_store64(head, offset);
}

/* The largest class that a span at 'offset', of a grain or more, has room for. */
static uint32_t
class_for_span(uint64_t offset, uint64_t len)
{
	uint32_t	class = PMH_MAX_CLASS;

	while (class > 0 &&
		   (pmh_class_bytes(class) > len || !pmh_class_may_be_at(class, offset)))
		class--;
	return class;
}

/* Give a span to the free lists in the largest pieces that it holds. */
static void
push_span(PmhTable *t, uint64_t offset, uint64_t len)
{
	while (len >= PMH_GRAIN)
	{
		uint32_t	class = class_for_span(offset, len);

		push_free(t, offset, class);
		offset += pmh_class_bytes(class);
		len -= pmh_class_bytes(class);
	}
}

/* May a buffer be here?  As pmh_check_span. */
static PmhResult
check_buffer(PmhTable *t, uint64_t offset, uint32_t class)
{
	if (!pmh_class_may_be_free_at(class, offset) || offset < PMH_BLOCK_SIZE)
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, offset,
						"The free lists of value buffers are damaged.");
	return pmh_check_span(t, offset, pmh_class_bytes(class));
}

/* Take a buffer off its free list: PMH_OK, PMH_NOT_FOUND, PMH_NEED, corrupt. */
static PmhResult
pop_free(PmhTable *t, uint32_t class, uint64_t *offset)
{
	uint64_t   *head = &pmh_run(t)->free_list[class];
	PmhResult	result;

	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	*offset = pm_load(head);
	if (*offset == 0)
		return PMH_NOT_FOUND;
	result = check_buffer(t, *offset, class);
	if (result == PMH_OK)
		pm_store64(head, pm_load((uint64_t *) pmh_at(t, *offset)));
	return result;
}

/* Take a buffer from the unused end of the newest region. */
static PmhResult
bump_region(PmhTable *t, uint32_t class, uint64_t *offset)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	next = pm_load(&run->region_next);
	PmhResult	result;

	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	if (pm_load(&run->region_end) - next < pmh_class_bytes(class))
		return PMH_NOT_FOUND;
	result = check_buffer(t, next, class);
	if (result == PMH_OK)
	{
		pm_store64(&run->region_next, next + pmh_class_bytes(class));
		*offset = next;
	}
	return result;
}

/*
 * Take a buffer of a larger class and give back what is too much.  Not of the odd
 * class: no other one may be where these may.
 */
static PmhResult
split_larger(PmhTable *t, uint32_t class, uint64_t *offset)
{
	for (uint32_t larger = class + 1; larger <= PMH_MAX_CLASS; larger++)
	{
		PmhResult	result = larger == PMH_ODD_CLASS ? PMH_NOT_FOUND :
			pop_free(t, larger, offset);

		if (result == PMH_OK)
			push_span(t, *offset + pmh_class_bytes(class),
					  pmh_class_bytes(larger) - pmh_class_bytes(class));
		if (result != PMH_NOT_FOUND)
			return result;
	}
	return PMH_NOT_FOUND;
}

/* A buffer that is no part of another one: PMH_OK, PMH_NOT_FOUND, PMH_NEED, corrupt. */
static PmhResult
take_whole(PmhTable *t, uint32_t class, uint64_t *offset)
{
	PmhResult	result = pop_free(t, class, offset);

	if (result == PMH_NOT_FOUND)
		result = bump_region(t, class, offset);
	if (result == PMH_NOT_FOUND)
		result = split_larger(t, class, offset);
	return result;
}

/*
 * A buffer of the odd class: one of the two in three lines, so that there is nothing
 * between them.
 */
static PmhResult
take_odd(PmhTable *t, uint64_t *offset)
{
	PmhResult	result = pop_free(t, PMH_ODD_CLASS, offset);

	if (result != PMH_NOT_FOUND)
		return result;
	result = take_whole(t, PMH_PAIR_CLASS, offset);
	if (result == PMH_OK)
		push_free(t, *offset + pmh_class_bytes(PMH_ODD_CLASS), PMH_ODD_CLASS);
	return result;
}

/* The class that is taken from a region for one of this class. */
static uint32_t
class_to_take(uint32_t class)
{
	return class == PMH_ODD_CLASS ? PMH_PAIR_CLASS : class;
}

PmhResult
pmh_value_alloc(PmhTable *t, uint32_t class, uint64_t *offset)
{
	PmhResult	result;

	PMH_ASSERT(class >= PMH_LEAST_CLASS && class <= PMH_MAX_CLASS);
	pmh_space_lock_to_give(t);
	result = pmh_reclaim_account_check(t);
	if (result != PMH_OK)
	{
		pmh_space_unlock(t);
		return result;
	}
	result = class == PMH_ODD_CLASS ? take_odd(t, offset) :
		take_whole(t, class, offset);
	if (result == PMH_OK && pm_load(&pmh_run(t)->reclaim_mark) != 0)
		(void) pmh_reclaim_account(t, *offset, pmh_class_bytes(class));
	pmh_space_unlock(t);

	if (result == PMH_NOT_FOUND)
	{
		t->need.value_region = true;
		t->need.value_class = class;
		result = PMH_NEED;
	}
	return result;
}

/* Is an offset in the part of the file that a shrink is emptying? */
static bool
beyond_limit(const PmhTable *t, uint64_t offset)
{
	uint64_t	limit = pm_load(&pmh_run(t)->shrink_limit);

	return limit != 0 && offset >> PMH_BLOCK_SHIFT >= limit;
}

/* Does a shrink give up the space that this offset is in? */
static bool
is_given_up(const PmhTable *t, uint64_t offset)
{
	return beyond_limit(t, offset) ||
		(t->ndiscard > 0 && t->discard_serial == pm_load(&pmh_run(t)->mark_serial) &&
		 pmh_region_of(t->discard, t->ndiscard, offset) != NULL);
}

void
pmh_value_free(PmhTable *t, uint64_t offset, uint32_t class)
{
	uint64_t	bytes = pmh_class_bytes(class);

	pmh_buffer_bump(t, offset);
	pmh_space_lock(t);
	PMH_STOP_POINT("value_free_locked");
	if (is_given_up(t, offset) ||
		(pm_load(&pmh_run(t)->reclaim_mark) != 0 &&
		 !pmh_reclaim_account(t, offset, bytes)))
		pmh_reclaim_discard(t, offset, bytes);
	else
		push_free(t, offset, class);
	pmh_space_unlock(t);
}

void
pmh_value_lose(PmhTable *t)
{
	pmh_space_lock(t);
	pmh_reclaim_lose(t);
	pmh_space_unlock(t);
}

void
pmh_value_free_span(PmhTable *t, uint64_t offset, uint64_t len)
{
	pmh_space_lock(t);
	push_span(t, offset, len);
	pmh_space_unlock(t);
}

void
pmh_value_forget_free(PmhTable *t)
{
	PmhRun	   *run = pmh_run(t);

	for (uint32_t class = 0; class < PMH_CLASSES; class++)
		pm_store64(&run->free_list[class], 0);
	pm_store64(&run->region_next, pm_load(&run->region_end));
}

/*
 * Blocks of the next region: half as many again as the newest has, but no more than a
 * part of all that there are, which is what is not used yet at the most; and few for
 * the first after recovery.  What was free then is lost until a reclaim finds it; a
 * restart now and then must not cost much space.
 */
static PmhResult
next_region_blocks(PmhTable *t, uint64_t newest, uint32_t class, uint64_t *nblocks)
{
	const PmhRegion *region = pmh_at(t, newest << PMH_BLOCK_SHIFT);
	uint64_t	most = MAX_REGION_BYTES >> PMH_BLOCK_SHIFT;
	uint64_t	all = pm_load(&pmh_run(t)->value_blocks);
	uint64_t	least = LEAST_REGION_BLOCKS;
	PmhResult	result;

	*nblocks = pm_load(&pmh_run(t)->region_blocks);
	if (*nblocks != 0)
		least = (PMH_LINE + pmh_class_bytes(class) + PMH_BLOCK_SIZE - 1) >>
			PMH_BLOCK_SHIFT;
	else if (all / LEAST_REGION_PART < LEAST_REGION_BLOCKS &&
			 pmh_class_bytes(class) <= PMH_BLOCK_SIZE / LEAST_REGION_BLOCKS)
		least = 1 + all / LEAST_REGION_PART;
	if (*nblocks == 0 && newest != 0 && pm_load(&pmh_run(t)->region_end) != 0)
	{
		result = pmh_region_check(t, newest, pmh_blocks(t));
		if (result != PMH_OK)
			return result;
		*nblocks = region->blocks + region->blocks / 2;
		if (*nblocks > all / REGION_PART)
			*nblocks = all / REGION_PART;
	}
	if (*nblocks < least)
		*nblocks = least;
	if (*nblocks > most)
		*nblocks = most;
	PMH_ASSERT(PMH_LINE + pmh_class_bytes(class) <= *nblocks << PMH_BLOCK_SHIFT);
	return PMH_OK;
}

/* Make the blocks at 'offset' the newest value region; grow lock held. */
static void
publish_region(PmhTable *t, uint64_t offset, uint64_t nblocks)
{
	PmhRun	   *run = pmh_run(t);
	PmhLive    *live = pmh_live(t);
	PmhRegion	region;
	uint64_t	rest;
	uint64_t	rest_end;

	memset(&region, 0, sizeof(region));
	region.magic = PMH_REGION_MAGIC;
	region.next = pmh_newest_region(t);
	region.blocks = nblocks;
	region.crc = pmh_crc32c(&region, sizeof(region));
	pm_copy(&t->file, pmh_at(t, offset), &region, sizeof(region));
	pm_fence(&t->file);
	pm_store64(&live->value_region, pmh_seal_region(offset >> PMH_BLOCK_SHIFT));
	pm_flush(&t->file, &live->value_region, sizeof(uint64_t));
	pm_fence(&t->file);

	pmh_space_lock(t);
	pm_store64(&run->value_blocks, pm_load(&run->value_blocks) + nblocks);
	rest = pm_load(&run->region_next);
	rest_end = pm_load(&run->region_end);
	if (rest < rest_end)
		push_span(t, rest, rest_end - rest);
	pm_store64(&run->region_next, offset + PMH_LINE);
	pm_store64(&run->region_end, offset + (nblocks << PMH_BLOCK_SHIFT));
	pmh_space_unlock(t);
}

/* Is the unused end of the newest region a possible one, and mapped here? */
static PmhResult
check_rest(PmhTable *t)
{
	uint64_t	next = pm_load(&pmh_run(t)->region_next);
	uint64_t	end = pm_load(&pmh_run(t)->region_end);

	if (next > end || next % PMH_VALUE_LINE != 0 || end % PMH_VALUE_LINE != 0)
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_RUN_OFFSET,
						"The unused part of the newest value region is impossible.");
	return pmh_check_span(t, next, end - next);
}

PmhResult
pmh_region_provide(PmhTable *t, uint32_t class)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	newest;
	uint64_t	nblocks;
	uint64_t	offset;
	bool		full;
	PmhResult	result = PMH_OK;

	if (!pmh_lock_or_cancel(&t->file_lock->grow))
		return pmh_fail_cancelled(t);
	pmh_space_lock(t);
	full = pm_load(&run->region_end) - pm_load(&run->region_next) <
		pmh_class_bytes(class_to_take(class));
	if (full)
		result = check_rest(t);
	pmh_space_unlock(t);
	if (full)
	{
		newest = pmh_newest_region(t);
		if (result == PMH_OK)
			result = pmh_check_live_words(t);
		if (result == PMH_OK)
			result = pmh_check_span(t, newest << PMH_BLOCK_SHIFT, PMH_LINE);
		if (result == PMH_OK)
			result = next_region_blocks(t, newest, class, &nblocks);
		if (result == PMH_OK)
			result = pmh_space_alloc_extent(t, nblocks, &offset);
		if (result == PMH_OK)
			publish_region(t, offset, nblocks);
	}
	pmh_unlock(&t->file_lock->grow);
	return result;
}
