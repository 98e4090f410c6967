/*-------------------------------------------------------------------------
 *
 * file_size.c
 *	  The length of a file: growth, cut, and what a caller is provided with that
 *	  may only be had without locks.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "compiler.h"
#include "directory.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "live.h"
#include "lock.h"
#include "pm.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"

/*
 * A file grows by a 32nd of its length ahead of use, but by no more than MAX_GROWTH; a
 * small one by an eighth, as long as that is less than FAST_GROWTH.
 */
#define FAST_GROWTH			((uint64_t) 64 * 1024)
#define MAX_GROWTH			((uint64_t) 64 * 1024 * 1024)
#define LARGE_PAGE			((uint64_t) 2 * 1024 * 1024)

PmhResult
pmh_check_live_words(PmhTable *t)
{
	const PmhLive *live = pmh_live(t);

	PMH_ASSERT(pmh_is_locked(&t->file_lock->grow));
	if (pmh_live_whole(pm_load(&live->blocks)))
		return PMH_OK;
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET + offsetof(PmhLive, blocks),
					"What the header says of blocks in use is damaged.");
}

/* Where the file should end to have nblocks more in a row, and some reserve. */
static uint64_t
growth_target(uint64_t blocks, uint64_t nblocks, bool reserve)
{
	uint64_t	bytes = (blocks << PMH_BLOCK_SHIFT) / 32;
	uint64_t	step = nblocks;
	uint64_t	map_block = PMH_HEADER_MAP_BLOCKS;
	uint64_t	end;

	if (bytes < FAST_GROWTH)
		bytes = 4 * bytes < FAST_GROWTH ? 4 * bytes : FAST_GROWTH;
	if (bytes > MAX_GROWTH)
		bytes = MAX_GROWTH;
	if (reserve && bytes >> PMH_BLOCK_SHIFT > step)
		step = bytes >> PMH_BLOCK_SHIFT;

	/* If a map block comes in between, let the extent fit after it. */
	end = blocks + step;
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

/* Make [from, to) of the map say "free", map blocks themselves "used".  Kinds are 0. */
static uint64_t
init_map(PmhTable *t, uint64_t from, uint64_t to)
{
	uint64_t	free_blocks = 0;

	PMH_ASSERT(pmh_is_locked(&t->file_lock->grow) && pmh_is_locked(&t->file_lock->space));
	PMH_ASSERT(from < to && pmh_within(t, 0, to << PMH_BLOCK_SHIFT));
	for (uint64_t block = from; block < to; block++)
	{
		bool		is_map = pmh_space_is_map_block(block);

		if (is_map)
			memset(pmh_at(t, block << PMH_BLOCK_SHIFT), 0, PMH_BLOCK_SIZE);
		pm_store8(pmh_space_map(t, block), is_map ? PMH_BLOCK_USED : 0);
		free_blocks += !is_map;
	}
	return free_blocks;
}

/* Let the file grow by an extent of nblocks, unless it has other than 'seen' by now. */
static PmhResult
grow_file(PmhTable *t, uint64_t nblocks, uint64_t seen)
{
	uint64_t	blocks;
	uint64_t	end;
	uint64_t	free_blocks;
	PmhResult	result;

	if (!pmh_lock_or_cancel(&t->file_lock->grow))
		return pmh_fail_cancelled(t);
	result = pmh_check_live_words(t);
	blocks = pmh_blocks(t);
	/* Its page was lost in between. */
	if (result == PMH_OK && blocks == 0)
		result = pmh_fill_lost(&t->error, &t->file);
	if (result != PMH_OK || blocks != seen)
	{
		pmh_unlock(&t->file_lock->grow);
		return result != PMH_OK ? result :
			pm_raise_bound(&t->file, blocks << PMH_BLOCK_SHIFT, &t->error);
	}

	end = growth_target(blocks, nblocks, true);
	if (end < blocks + nblocks)
	{
		pmh_unlock(&t->file_lock->grow);
		return pmh_fail(t, PMH_ERR_TOO_LARGE, 0, 0,
						"The file has %llu MiB; it may have %llu, and more space is "
						"needed than is free in it.",
						(unsigned long long) (blocks << PMH_BLOCK_SHIFT) >> 20,
						(unsigned long long) (PMH_MAX_BLOCKS << PMH_BLOCK_SHIFT) >> 20);
	}
	result = pm_extend(&t->file, blocks << PMH_BLOCK_SHIFT,
					   end << PMH_BLOCK_SHIFT, &t->error);
	if (result == PMH_ERR_NO_SPACE)
	{
		uint64_t	reserve = end;
		PmhError	ignored;

		/* Not enough for a reserve: try with what we must have. */
		end = growth_target(blocks, nblocks, false);
		result = pm_extend(&t->file, blocks << PMH_BLOCK_SHIFT,
						   end << PMH_BLOCK_SHIFT, &t->error);
		/* ext4 has kept all there was, in vain: others may need it. */
		(void) pm_punch(&t->file, (result == PMH_OK ? end : blocks) << PMH_BLOCK_SHIFT,
						reserve << PMH_BLOCK_SHIFT, &ignored);
	}
	if (result == PMH_OK)
		result = pm_raise_bound(&t->file, end << PMH_BLOCK_SHIFT, &t->error);
	if (result == PMH_OK)
	{
		PMH_STOP_POINT("grow_before_blocks");
		pmh_space_lock(t);
		free_blocks = init_map(t, blocks, end);
		pm_store64(&pmh_run(t)->free_units,
				   pm_load(&pmh_run(t)->free_units) + free_blocks * PMH_UNITS_PER_BLOCK);
		pm_store64(&pmh_live(t)->blocks, pmh_seal_blocks(end));
		pm_flush(&t->file, &pmh_live(t)->blocks, sizeof(uint64_t));
		pm_fence(&t->file);
		pmh_space_unlock(t);
	}
	pmh_unlock(&t->file_lock->grow);
	return result;
}

void
pmh_space_set_limit(PmhTable *t, uint64_t limit)
{
	pmh_space_lock(t);
	pm_store64(&pmh_run(t)->shrink_limit, limit);
	pmh_space_unlock(t);
}

/* Past the last block below 'blocks' that is not free; the space lock is held. */
static uint64_t
end_of_use(const PmhTable *t, uint64_t blocks)
{
	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	while (blocks > 1 && (pmh_space_is_map_block(blocks - 1) ||
						  *pmh_space_map(t, blocks - 1) == 0))
		blocks--;
	return blocks;
}

/* Forget the free units of [from, to), which is no part of the file any more. */
static void
forget_units(PmhTable *t, uint64_t from, uint64_t to)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	units = 0;

	PMH_ASSERT(from < to && pmh_is_locked(&t->file_lock->space));
	for (uint64_t block = from; block < to; block++)
	{
		if (!pmh_space_is_map_block(block))
			units += PMH_UNITS_PER_BLOCK;
	}
	pm_store64(&run->free_units, pm_load(&run->free_units) - units);
	if (pm_load(&run->space_hint) > from)
		pm_store64(&run->space_hint, from);
	if (pm_load(&run->unit_hint) > from)
		pm_store64(&run->unit_hint, from);
}

PmhResult
pmh_space_cut(PmhTable *t, uint64_t keep)
{
	PmhLive    *live = pmh_live(t);
	uint64_t	blocks;
	uint64_t	end;
	PmhResult	result;

	PMH_STOP_POINT("cut_before_map");
	result = pmh_map_all(t);
	if (result != PMH_OK)
	{
		pmh_space_set_limit(t, 0);
		return result;
	}
	PMH_STOP_POINT("cut_before_lock");
	pmh_lock(&t->file_lock->grow);
	blocks = pmh_blocks(t);
	result = pmh_check_live_words(t);
	if (result == PMH_OK)
		result = pmh_check_span(t, 0, blocks << PMH_BLOCK_SHIFT);
	if (result != PMH_OK)
	{
		/* If none is damaged, another process needed more: so nothing is too much. */
		pmh_unlock(&t->file_lock->grow);
		pmh_space_set_limit(t, 0);
		return result == PMH_NEED ? PMH_OK : result;
	}
	pmh_space_lock(t);
	end = end_of_use(t, blocks);
	if (end < keep)
		end = keep;
	if (end < blocks)
	{
		forget_units(t, end, blocks);
		pm_store64(&live->blocks, pmh_seal_blocks(end));
		pm_flush(&t->file, &live->blocks, sizeof(uint64_t));
		pm_fence(&t->file);
	}
	pm_store64(&pmh_run(t)->shrink_limit, 0);
	pmh_space_unlock(t);
	PMH_STOP_POINT("cut_before_punch");
	if (end < blocks)
		result = pm_punch(&t->file, end << PMH_BLOCK_SHIFT,
						  blocks << PMH_BLOCK_SHIFT, &t->error);
	pmh_unlock(&t->file_lock->grow);
	/* The cut is done.  What cannot be given back stays until the next recovery. */
	return result == PMH_ERR_NO_FILE || result == PMH_ERR_LOST ? result : PMH_OK;
}

PmhResult
pmh_map_all(PmhTable *t)
{
	uint64_t	end;

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

	/* Among zeroes there may be no end of needs. */
	if (pm_is_lost(&t->file))
		return pmh_fail_lost(t);
	memset(&t->need, 0, sizeof(t->need));
	/*
	 * That may come to nothing, if the file has been cut since.  The caller
	 * looks again, and says so itself if what it finds is damage.
	 */
	PMH_STOP_POINT("provide_before_map");
	if (need.map)
		result = pmh_map_all(t);
	if (result == PMH_OK && need.workspace)
		result = pmh_workspace_take(t);
	if (result == PMH_OK && need.blocks != 0)
		result = grow_file(t, need.blocks, need.seen);
	if (result == PMH_OK && need.doubling)
		result = pmh_directory_double(t, need.doubling_depth);
	return result;
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
