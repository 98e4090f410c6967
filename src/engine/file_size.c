/*-------------------------------------------------------------------------
 *
 * file_size.c
 *	  The space of a file: growth, holes, and what a caller is provided with that
 *	  may only be had without locks.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "segment.h"

/*
 * A file grows by a 32nd of its length ahead of use, but by no more than MAX_GROWTH; a
 * small one by an eighth, as long as that is less than FAST_GROWTH.
 */
#define FAST_GROWTH			((uint64_t) 64 * 1024)
#define MAX_GROWTH			((uint64_t) 64 * 1024 * 1024)
#define LARGE_PAGE			((uint64_t) 2 * 1024 * 1024)

/* How many blocks to get where nblocks are needed. */
static uint64_t
blocks_to_get(uint64_t blocks, uint64_t nblocks, bool reserve)
{
	uint64_t	bytes = (blocks << PMH_BLOCK_SHIFT) / 32;

	PMH_ASSERT(nblocks > 0);
	if (bytes < FAST_GROWTH)
		bytes = 4 * bytes < FAST_GROWTH ? 4 * bytes : FAST_GROWTH;
	if (bytes > MAX_GROWTH)
		bytes = MAX_GROWTH;
	return reserve && bytes >> PMH_BLOCK_SHIFT > nblocks ? bytes >> PMH_BLOCK_SHIFT : nblocks;
}

/* Where the file should end to have nblocks more in a row, and some reserve. */
static uint64_t
growth_target(uint64_t blocks, uint64_t nblocks, bool reserve)
{
	uint64_t	map_block = PMH_HEADER_MAP_BLOCKS;
	uint64_t	end = blocks + blocks_to_get(blocks, nblocks, reserve);

	PMH_ASSERT(nblocks <= PMH_LONGEST_EXTENT);
	/* If a map block comes in between, let the extent fit after it. */
	if (blocks > map_block)
		map_block = (blocks + PMH_ZONE_BLOCKS - 1) & ~(PMH_ZONE_BLOCKS - 1);
	if (end > map_block && end < map_block + 1 + nblocks)
		end = map_block + 1 + nblocks;
	if (reserve && (end << PMH_BLOCK_SHIFT) >= LARGE_PAGE)
	{
		uint64_t	align = LARGE_PAGE >> PMH_BLOCK_SHIFT;

		end = (end + align - 1) / align * align;
	}
	return end < PMH_MAX_BLOCKS ? end : PMH_MAX_BLOCKS;
}

static void
add_to(uint64_t *counter, uint64_t by)
{
	pm_store64(counter, pm_load(counter) + by);
}

/* ---- blocks whose space is given back, and taken again ---- */

/*
 * A block is marked as punched, durably, before its space goes back to the file system, and
 * the mark goes when it has space again, durably, and before it is given out.  So what is
 * stored to has space, also after a crash: a store to a hole takes some, and if there is none
 * that is SIGBUS.  Readers that have come too late may read a hole.  The map says of such a
 * block that it is in use, so that nobody looks for space there.
 *
 * All of it under the grow lock: who holds it may believe a mark.
 */

static bool
is_punched(const PmhTable *t, uint64_t block)
{
	return pm_load(pmh_space_kind(t, block)) == PMH_KIND_PUNCHED;
}

/* Mark [from, to), of one zone, as punched or not, durably. */
static void
mark_punched(PmhTable *t, uint64_t from, uint64_t to, bool punched)
{
	PMH_ASSERT(pmh_is_locked(&t->file_lock->grow) && pmh_is_locked(&t->file_lock->space));
	PMH_ASSERT(from < to && pmh_space_zone_end(from) == pmh_space_zone_end(to - 1));
	for (uint64_t block = from; block < to; block++)
	{
		PMH_ASSERT(is_punched(t, block) != punched || pm_is_lost(&t->file));
		pm_store8(pmh_space_kind(t, block), punched ? PMH_KIND_PUNCHED : 0);
	}
	pm_flush(&t->file, pmh_space_kind(t, from), to - from);
	pm_fence(&t->file);
}

/*
 * The first nblocks punched blocks in a row, and some reserve, if there are so many:
 * [*from, *to).  False: there are none.
 */
static bool
find_punched(const PmhTable *t, uint64_t nblocks, bool reserve, uint64_t *from, uint64_t *to)
{
	uint64_t	blocks = pmh_blocks(t);
	uint64_t	wanted = blocks_to_get(blocks, nblocks, reserve);
	uint64_t	found = 0;

	PMH_ASSERT(nblocks > 0 && pmh_is_locked(&t->file_lock->grow));
	if (pm_load(&pmh_run(t)->punched_blocks) == 0)
		return false;
	for (*to = 0; *to < blocks && found < wanted; (*to)++)
	{
		if (is_punched(t, *to))
			found++;
		else if (found >= nblocks)
			break;
		else
			found = 0;
	}
	*from = *to - found;
	return found >= nblocks;
}

/* [from, to) have space: punched ones again, or (from the end of the file on) new ones. */
static void
take_over(PmhTable *t, uint64_t from, uint64_t to, bool punched)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	free_blocks = 0;

	PMH_ASSERT(pmh_is_locked(&t->file_lock->grow));
	PMH_ASSERT(punched || from == pmh_blocks(t) || pm_is_lost(&t->file));
	PMH_ASSERT(from < to && pmh_within(t, 0, to << PMH_BLOCK_SHIFT));
	pmh_space_lock(t);
	if (punched)
	{
		mark_punched(t, from, to, false);
		add_to(&run->punched_blocks, from - to);
		PMH_STOP_POINT("unpunch_before_free");
	}
	/* The map says "free", of map blocks themselves "used".  Kinds are 0. */
	for (uint64_t block = from; block < to; block++)
	{
		bool		is_map = pmh_space_is_map_block(block);

		if (is_map)
			memset(pmh_at(t, block << PMH_BLOCK_SHIFT), 0, PMH_BLOCK_SIZE);
		pm_store8(pmh_space_map(t, block), is_map ? PMH_BLOCK_USED : 0);
		free_blocks += !is_map;
	}
	if (from < pm_load(&run->space_hint))
		pm_store64(&run->space_hint, from);
	add_to(&run->free_units, free_blocks * PMH_UNITS_PER_BLOCK);
	if (!punched)
	{
		pm_store64(&pmh_live(t)->blocks, pmh_seal_blocks(to));
		pm_flush(&t->file, &pmh_live(t)->blocks, sizeof(uint64_t));
		pm_fence(&t->file);
	}
	pmh_space_unlock(t);
}

/* Whatever a damaged map says. */
static bool
is_free(const PmhTable *t, uint64_t block)
{
	return (pm_load(pmh_space_map(t, block)) | pm_load(pmh_space_kind(t, block)) |
			pmh_space_reserved(block)) == 0;
}

/*
 * Punch the first run of free blocks in [*block, stop), a zone, but for the first *spare free
 * ones; *block is where to go on.
 */
static PmhResult
punch_run(PmhTable *t, uint64_t *block, uint64_t stop, uint64_t *spare)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	from = *block;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(pmh_within(t, 0, stop << PMH_BLOCK_SHIFT));
	PMH_ASSERT(*block < stop && pmh_is_locked(&t->file_lock->grow));
	pmh_space_lock(t);
	for (; from < stop && (*spare > 0 || !is_free(t, from)); from++)
		*spare -= is_free(t, from);
	for (*block = from; *block < stop && is_free(t, *block); (*block)++)
		pm_store8(pmh_space_map(t, *block), PMH_BLOCK_USED);
	if (*block > from)
	{
		add_to(&run->free_units, (from - *block) * PMH_UNITS_PER_BLOCK);
		add_to(&run->punched_blocks, *block - from);
		mark_punched(t, from, *block, true);
	}
	pmh_space_unlock(t);
	if (*block > from)
	{
		PMH_STOP_POINT("punch_before_hole");
		result = pm_punch(&t->file, from << PMH_BLOCK_SHIFT, *block << PMH_BLOCK_SHIFT, &t->error);
	}
	/* What cannot be given back has the mark all the same. */
	return result == PMH_ERR_NO_FILE || result == PMH_ERR_LOST ? result : PMH_OK;
}

PmhResult
pmh_space_punch(PmhTable *t, uint64_t *block, uint64_t *spare)
{
	PmhResult	result;

	PMH_ASSERT(!t->space_held);
	PMH_STOP_POINT("punch_before_lock");
	if (!pmh_lock_or_cancel(&t->file_lock->grow))
		return pmh_fail_cancelled(t);
	result = pmh_map_all(t);
	if (result == PMH_OK)
	{
		uint64_t	blocks = pmh_blocks(t);
		uint64_t	stop = pmh_space_zone_end(*block);

		result = *block >= blocks ? PMH_DONE :
			punch_run(t, block, stop < blocks ? stop : blocks, spare);
	}
	pmh_unlock(&t->file_lock->grow);
	return result;
}

/* Get the file space for nblocks in a row: where some was given back, or at its end. */
static PmhResult
get_space(PmhTable *t, uint64_t nblocks)
{
	uint64_t	blocks = pmh_blocks(t);
	PmhResult	result;

	PMH_ASSERT(pmh_is_locked(&t->file_lock->grow) && nblocks > 0);
	for (bool reserve = true;; reserve = false)
	{
		uint64_t	from;
		uint64_t	to;
		PmhError	ignored;
		bool		punched = find_punched(t, nblocks, reserve, &from, &to);

		if (!punched)
		{
			from = blocks;
			to = growth_target(blocks, nblocks, reserve);
		}
		if (to < from + nblocks)
			return pmh_fail(t, PMH_ERR_TOO_LARGE, 0, 0,
							"The file has %llu MiB; it may have %llu, and more space is "
							"needed than is free in it.",
							(unsigned long long) (blocks << PMH_BLOCK_SHIFT) >> 20,
							(unsigned long long) (PMH_MAX_BLOCKS << PMH_BLOCK_SHIFT) >> 20);
		result = pm_extend(&t->file, from << PMH_BLOCK_SHIFT, to << PMH_BLOCK_SHIFT,
						   &t->error);
		if (result == PMH_OK)
			result = pm_raise_bound(&t->file, to << PMH_BLOCK_SHIFT, &t->error);
		if (result == PMH_OK)
		{
			PMH_STOP_POINT("grow_before_blocks");
			take_over(t, from, to, punched);
			return PMH_OK;
		}
		if (result != PMH_ERR_NO_SPACE)
			return result;
		/* ext4 has kept all there was, in vain: others may need it. */
		(void) pm_punch(&t->file, from << PMH_BLOCK_SHIFT, to << PMH_BLOCK_SHIFT, &ignored);
		if (!reserve)
			return result;
		/* Not enough for a reserve: try with what we must have. */
	}
}

PmhResult
pmh_map_all(PmhTable *t)
{
	uint64_t	end;

	PMH_ASSERT(!t->space_held);
	PMH_STOP_POINT("map_all_before_length");
	end = pmh_file_end(t);
	if (end == 0)
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
						"What the header says of the length of the file is damaged.");
	return pm_raise_bound(&t->file, end, &t->error);
}

PmhResult
pmh_provide(PmhTable *t)
{
	PmhNeed		need = t->need;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(!t->space_held);
	/* Among zeroes there may be no end of needs. */
	if (pm_is_lost(&t->file))
		return pmh_fail_lost(t);
	memset(&t->need, 0, sizeof(t->need));
	PMH_STOP_POINT("provide_before_map");
	if (need.map)
		result = pmh_map_all(t);
	if (result == PMH_OK && need.blocks != 0)
	{
		if (!pmh_lock_or_cancel(&t->file_lock->grow))
			return pmh_fail_cancelled(t);
		result = pmh_map_all(t);	/* is the length a sound one? */
		/* Unless others have changed what it has since it was seen. */
		if (result == PMH_OK && pmh_blocks_with_space(t) == need.seen)
			result = get_space(t, need.blocks);
		pmh_unlock(&t->file_lock->grow);
	}
	if (result == PMH_OK && need.lock != NULL)
	{
		if (!pmh_lock_or_cancel(need.lock))
			return pmh_fail_cancelled(t);
		pmh_unlock(need.lock);
	}
	if (result == PMH_OK && need.doubling)
		result = pmh_directory_double(t, need.doubling_depth);
	PMH_ASSERT(result <= PMH_CANCELLED);
	return result;
}

PmhResult
pmh_provide_if_possible(PmhTable *t, bool *no_space)
{
	PmhResult	result;

	PMH_ASSERT(!t->space_held);
	if (*no_space)				/* the kernel has said so: only map */
		t->need.blocks = 0;
	result = pmh_provide(t);
	if (result != PMH_ERR_NO_SPACE && result != PMH_ERR_TOO_LARGE)
		return result;
	*no_space = true;
	return PMH_OK;
}

PmhResult
pmh_provide_extent(PmhTable *t, uint64_t nblocks, uint64_t *offset)
{
	PmhResult	result;

	while ((result = pmh_space_alloc_extent(t, nblocks, offset)) == PMH_NEED &&
		   (result = pmh_provide(t)) == PMH_OK)
		;
	return result;
}
