/*-------------------------------------------------------------------------
 *
 * space.c
 *	  File space: the unit map, from which blocks, units and extents are given out.
 *
 * It is volatile (see src/README, "Space") and is guarded by the space lock of the
 * file.  Space beyond our own mapping is never handed out: a caller that asks for it
 * gets PMH_NEED, and pmh_provide() maps the file anew where no lock is held.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "live.h"
#include "lock.h"
#include "pm.h"
#include "space.h"
#include "table.h"

/* How far the search for a partly used block goes before a whole one is taken. */
#define UNIT_SEARCH			4096

bool
pmh_space_trylock(PmhTable *t)
{
	t->space_held = pmh_trylock(&t->file_lock->space);
	return t->space_held;
}

void
pmh_space_release(PmhTable *t)
{
	if (t->space_held)
		pmh_unlock(&t->file_lock->space);
	t->space_held = false;
}

/* Blocks that exist and are mapped here. */
static uint64_t
usable_blocks(PmhTable *t)
{
	uint64_t	blocks = pmh_blocks(t);

	if (pmh_reaches(t, 0, blocks << t->block_shift))
		return blocks;
	return t->file.bound >> t->block_shift;
}

/*
 * Blocks that may be given out: not those that a shrink is emptying.  The space
 * lock is held.
 */
static uint64_t
allocatable_blocks(PmhTable *t)
{
	uint64_t	blocks = usable_blocks(t);
	uint64_t	limit = pm_load(&pmh_run(t)->shrink_limit);

	return limit != 0 && limit < blocks ? limit : blocks;
}

/*
 * There is no room below the limit of a shrink: those that need space now go
 * before it.  False if there is no limit that matters.  The space lock is held.
 */
static bool
give_up_shrink(PmhTable *t)
{
	if (allocatable_blocks(t) == usable_blocks(t))
		return false;
	pm_store64(&pmh_run(t)->shrink_limit, 0);
	return true;
}

uint8_t *
pmh_space_map(const PmhTable *t, uint64_t block)
{
	uint64_t	zone_start = block & ~(pmh_block_size(t) - 1);
	uint64_t	map_block = zone_start == 0 ? 1 : zone_start;

	return (uint8_t *) pmh_at(t, (map_block << t->block_shift) + (block - zone_start));
}

/* Ask for an extent of blocks: of the file, or only of our mapping. */
static PmhResult
need_blocks(PmhTable *t, uint64_t nblocks)
{
	if (usable_blocks(t) < pmh_blocks(t))
		t->need.map = true;
	else
		t->need.blocks = nblocks;
	return PMH_NEED;
}

/*
 * First extent of nblocks free blocks at or after 'from', or 0.  Extents never
 * cross a map block, since that is in use.
 */
static uint64_t
find_extent(PmhTable *t, uint64_t from, uint64_t nblocks)
{
	uint64_t	limit = allocatable_blocks(t);
	uint64_t	zone_mask = pmh_block_size(t) - 1;
	uint64_t	free_blocks = 0;
	uint64_t	block = from <= limit ? from : 0;	/* hints may be damaged */

	while (block < limit)
	{
		uint64_t	zone_end = (block | zone_mask) + 1;
		uint64_t	end = zone_end < limit ? zone_end : limit;
		const uint8_t *map;
		const uint8_t *free_byte;

		if (pmh_space_is_map_block(t, block))
		{
			/* Whatever a damaged map says. */
			free_blocks = 0;
			block++;
			continue;
		}
		map = pmh_space_map(t, block);

		if (free_blocks == 0)
		{
			free_byte = memchr(map, 0, end - block);
			if (free_byte == NULL)
			{
				block = end;
				continue;
			}
			block += (uint64_t) (free_byte - map);
			map = free_byte;
		}
		for (; block < end && *map == 0; block++, map++)
		{
			if (++free_blocks == nblocks)
				return block + 1 - nblocks;
		}
		if (block < end)
			free_blocks = 0;
	}
	return 0;
}

/* Mark an extent as used; the caller holds the space lock. */
static void
take_extent(PmhTable *t, uint64_t block, uint64_t nblocks)
{
	PmhRun	   *run = pmh_run(t);

	for (uint64_t i = 0; i < nblocks; i++)
		pm_store8(pmh_space_map(t, block + i), PMH_BLOCK_USED);
	if (nblocks == 1)
		pm_store64(&run->space_hint, block + 1);
	pm_store64(&run->free_units,
			   pm_load(&run->free_units) - nblocks * PMH_UNITS_PER_BLOCK);
}

PmhResult
pmh_space_alloc_extent(PmhTable *t, uint64_t nblocks, uint64_t *offset)
{
	uint64_t	block;

	if (nblocks > PMH_LONGEST_EXTENT)
		return pmh_fail(t, PMH_ERR_TOO_LARGE, 0, 0,
						"No %llu blocks of a file can be next to each other.",
						(unsigned long long) nblocks);
	pmh_space_lock_to_give(t);
	do
		block = find_extent(t, pm_load(&pmh_run(t)->space_hint), nblocks);
	while (block == 0 && give_up_shrink(t));
	if (block != 0)
		take_extent(t, block, nblocks);
	pmh_space_unlock(t);

	if (block == 0)
		return need_blocks(t, nblocks);
	*offset = block << t->block_shift;
	return PMH_OK;
}

bool
pmh_space_try_extent(PmhTable *t, uint64_t nblocks, uint64_t *offset)
{
	uint64_t	block;

	pmh_space_lock_to_give(t);
	block = find_extent(t, pm_load(&pmh_run(t)->space_hint), nblocks);
	if (block != 0)
		take_extent(t, block, nblocks);
	pmh_space_unlock(t);
	*offset = block << t->block_shift;
	return block != 0;
}

void
pmh_space_figures(PmhTable *t, uint64_t *blocks, uint64_t *free_units)
{
	do
	{
		*blocks = pmh_blocks(t);
		*free_units = pm_load_acquire(&pmh_run(t)->free_units);
	} while (pmh_blocks(t) != *blocks);
	if (*free_units > *blocks * PMH_UNITS_PER_BLOCK)
		*free_units = *blocks * PMH_UNITS_PER_BLOCK;
}

PmhResult
pmh_space_alloc_block(PmhTable *t, uint64_t *offset)
{
	return pmh_space_alloc_extent(t, 1, offset);
}

/* Position of 'units' adjacent free units in a map byte, or -1. */
static int
fit_units(uint8_t used, uint32_t units)
{
	unsigned	want = (1u << units) - 1;

	for (unsigned at = 0; at + units <= PMH_UNITS_PER_BLOCK; at++)
	{
		if ((used & (want << at)) == 0)
			return (int) at;
	}
	return -1;
}

/*
 * The block to take units from: partly used ones first, near the hint, else a
 * whole one; 0 if there is none.  *at tells where in it.
 */
static uint64_t
find_units(PmhTable *t, uint32_t units, int *at)
{
	uint64_t	hint = pm_load(&pmh_run(t)->unit_hint);
	uint64_t	limit = allocatable_blocks(t);

	if (limit > hint + UNIT_SEARCH)
		limit = hint + UNIT_SEARCH;
	for (uint64_t block = hint; block < limit; block++)
	{
		uint8_t		used = *pmh_space_map(t, block);

		if (used == 0 || used == PMH_BLOCK_USED || pmh_space_is_map_block(t, block))
			continue;
		*at = fit_units(used, units);
		if (*at >= 0)
			return block;
	}
	*at = 0;
	return find_extent(t, pm_load(&pmh_run(t)->space_hint), 1);
}

PmhResult
pmh_space_alloc_units(PmhTable *t, uint32_t units, uint64_t *offset)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	block;
	int			at;

	pmh_space_lock_to_give(t);
	do
		block = find_units(t, units, &at);
	while (block == 0 && give_up_shrink(t));
	if (block != 0)
	{
		uint8_t    *map = pmh_space_map(t, block);

		pm_store8(map, (uint8_t) (*map | ((1u << units) - 1) << at));
		pm_store64(&run->unit_hint, block);
		pm_store64(&run->free_units, pm_load(&run->free_units) - units);
	}
	pmh_space_unlock(t);

	if (block == 0)
		return need_blocks(t, 1);
	*offset = (block << t->block_shift) + (uint64_t) at * pmh_unit_size(t);
	return PMH_OK;
}

/* Free some units of a block; the caller holds the space lock. */
static void
free_in_block(PmhTable *t, uint64_t block, uint8_t units_mask)
{
	PmhRun	   *run = pmh_run(t);
	uint8_t    *map = pmh_space_map(t, block);
	uint8_t		used = (uint8_t) (*map & ~units_mask);

	pm_store8(map, used);
	if (used == 0)
	{
		if (block < pm_load(&run->space_hint))
			pm_store64(&run->space_hint, block);
	}
	else if (block < pm_load(&run->unit_hint))
		pm_store64(&run->unit_hint, block);
	pm_store64(&run->free_units,
			   pm_load(&run->free_units) + pmh_mask_count(units_mask));
}

void
pmh_space_free_extent(PmhTable *t, uint64_t offset, uint64_t nblocks)
{
	uint64_t	block = offset >> t->block_shift;

	pmh_space_lock(t);
	for (uint64_t i = 0; i < nblocks; i++)
		free_in_block(t, block + i, PMH_BLOCK_USED);
	pmh_space_unlock(t);
}

void
pmh_space_free_block(PmhTable *t, uint64_t offset)
{
	pmh_space_free_extent(t, offset, 1);
}

void
pmh_space_free_units(PmhTable *t, uint64_t offset, uint32_t units)
{
	uint64_t	block = offset >> t->block_shift;
	uint32_t	at = (uint32_t) ((offset & (pmh_block_size(t) - 1)) / pmh_unit_size(t));
	uint32_t	mask = ((1u << units) - 1) << at;

	pmh_space_lock(t);
	free_in_block(t, block, (uint8_t) mask);
	if (mask >> PMH_UNITS_PER_BLOCK != 0)
		free_in_block(t, block + 1, (uint8_t) (mask >> PMH_UNITS_PER_BLOCK));
	pmh_space_unlock(t);
}
