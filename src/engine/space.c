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
#include "space.h"

/* How far the search for a partly used block goes before a whole one is taken. */
#define UNIT_SEARCH			4096

uint64_t
pmh_file_end(const PmhTable *t)
{
	uint64_t	word = pm_load_acquire(&pmh_live(t)->blocks);
	uint64_t	blocks = pmh_live_number(word);

	if (blocks > PMH_MAX_BLOCKS || word != pmh_seal(word, PMH_LIVE_CRC_SHIFT))
		return 0;
	return blocks << PMH_BLOCK_SHIFT;
}

/*
 * Is it within the bound, perhaps after a look at how long the file is now?  (live.blocks is
 * stored when the file has been made longer, and neither ever falls.  So a bound that was good
 * once stays so.)
 */
static bool
reaches(PmhTable *t, uint64_t offset, uint64_t len)
{
	uint64_t	end;

	if (likely(pmh_within(t, offset, len)))
		return true;
	/* Of a lost file we see no more: pmh_provide, which is asked then, says so. */
	end = pm_is_lost(&t->file) ? 0 : pmh_file_end(t);
	if (end > t->file.addresses)
		end = t->file.addresses;
#ifdef PMH_SHORT_MAPPINGS
	/* No further than was asked for, so that one that was not asked for is found out. */
	if (offset < end && len < end - offset)
		end = offset + len;
#endif
	if (end > t->file.bound)
		t->file.bound = end;
	return pmh_within(t, offset, len);
}

PmhResult
pmh_check_span(PmhTable *t, uint64_t offset, uint64_t len)
{
	uint64_t	bytes;

	if (likely(reaches(t, offset, len)))
		return PMH_OK;
	bytes = pmh_file_end(t);
	if (offset <= bytes && len <= bytes - offset)
	{
		t->need.map = true;
		return PMH_NEED;
	}
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, offset,
					"An offset points outside of the file.");
}

bool
pmh_space_trylock(PmhTable *t)
{
	PMH_ASSERT(!t->space_held);
	t->space_held = pmh_trylock(&t->file_lock->space);
	PMH_ASSERT(!t->space_held || pmh_is_locked(&t->file_lock->space));
	return t->space_held;
}

void
pmh_space_release(PmhTable *t)
{
	if (t->space_held)
		pmh_unlock(&t->file_lock->space);
	t->space_held = false;
}

uint64_t
pmh_space_allocatable(PmhTable *t)
{
	uint64_t	blocks = pmh_blocks(t);

	if (reaches(t, 0, blocks << PMH_BLOCK_SHIFT))
		return blocks;
	return t->file.bound >> PMH_BLOCK_SHIFT;
}

uint8_t *
pmh_space_map(const PmhTable *t, uint64_t block)
{
	uint64_t	zone_start = block & ~(PMH_ZONE_BLOCKS - 1);
	uint64_t	map_block = zone_start == 0 ? PMH_HEADER_MAP_BLOCKS : zone_start;

	PMH_ASSERT(block < PMH_MAX_BLOCKS);
	if (block < PMH_HEADER_MAP_BLOCKS)
		return (uint8_t *) pmh_at(t, PMH_HEADER_MAP_OFFSET + block);
	return (uint8_t *) pmh_at(t, (map_block << PMH_BLOCK_SHIFT) + (block - zone_start));
}

/*
 * Ask for an extent of blocks: of the file, or only of our mapping.  The space lock is
 * held: of those that find none there at the same time one gets the file more space.
 */
static PmhResult
need_blocks(PmhTable *t, uint64_t nblocks)
{
	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	PMH_ASSERT(nblocks > 0 && nblocks <= PMH_LONGEST_EXTENT);
	t->need.seen = pmh_blocks_with_space(t);
	if (pmh_space_allocatable(t) < pmh_blocks(t))
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
	uint64_t	limit = pmh_space_allocatable(t);
	uint64_t	free_blocks = 0;
	uint64_t	block = from <= limit ? from : 0;	/* hints may be damaged */

	PMH_ASSERT(nblocks > 0 && pmh_is_locked(&t->file_lock->space));
	while (block < limit)
	{
		uint64_t	zone_end = pmh_space_zone_end(block);
		uint64_t	end = zone_end < limit ? zone_end : limit;
		const uint8_t *map;
		const uint8_t *free_byte;

		if (pmh_space_is_map_block(block))
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

PmhResult
pmh_space_take_extent(PmhTable *t, uint64_t nblocks, uint64_t *block)
{
	PmhRun	   *run = pmh_run(t);

	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	PMH_ASSERT(nblocks > 0 && nblocks <= PMH_LONGEST_EXTENT);
	*block = find_extent(t, pm_load(&run->space_hint), nblocks);
	if (*block == 0)
		return need_blocks(t, nblocks);
	PMH_ASSERT(!pmh_space_is_map_block(*block));
	PMH_ASSERT(pmh_within(t, *block << PMH_BLOCK_SHIFT, nblocks << PMH_BLOCK_SHIFT));
	for (uint64_t i = 0; i < nblocks; i++)
		pm_store8(pmh_space_map(t, *block + i), PMH_BLOCK_USED);
	if (nblocks == 1)
		pm_store64(&run->space_hint, *block + 1);
	pm_store64(&run->free_units,
			   pm_load(&run->free_units) - nblocks * PMH_UNITS_PER_BLOCK);
	return PMH_OK;
}

PmhResult
pmh_space_alloc_extent(PmhTable *t, uint64_t nblocks, uint64_t *offset)
{
	PmhResult	result;
	uint64_t	block;

	PMH_ASSERT(nblocks > 0);
	if (nblocks > PMH_LONGEST_EXTENT)
		return pmh_fail(t, PMH_ERR_TOO_LARGE, 0, 0,
						"No %llu blocks of a file can be next to each other.",
						(unsigned long long) nblocks);
	pmh_space_lock_to_give(t);
	result = pmh_space_take_extent(t, nblocks, &block);
	pmh_space_unlock(t);
	*offset = block << PMH_BLOCK_SHIFT;
	return result;
}

void
pmh_space_figures(PmhTable *t, uint64_t *blocks, uint64_t *free_units)
{
	do
	{
		*blocks = pmh_blocks_with_space(t);
		*free_units = pm_load_acquire(&pmh_run(t)->free_units);
	} while (pmh_blocks_with_space(t) != *blocks);
	if (*free_units > *blocks * PMH_UNITS_PER_BLOCK)
		*free_units = *blocks * PMH_UNITS_PER_BLOCK;
}

/* Position of 'units' adjacent free units in a map byte, or -1. */
static int
fit_units(uint8_t used, uint32_t units)
{
	unsigned	want = (1u << units) - 1;

	PMH_ASSERT(units > 0 && units < PMH_UNITS_PER_BLOCK);
	for (unsigned at = 0; at + units <= PMH_UNITS_PER_BLOCK; at++)
	{
		if ((used & (want << at)) == 0)
			return (int) at;
	}
	return -1;
}

/*
 * The block to take units from: partly used ones first, near the hint, else a
 * whole one.  Where in it, or -1 if there is none.
 */
static int
find_units(PmhTable *t, uint32_t units, uint64_t *block)
{
	uint64_t	hint = pm_load(&pmh_run(t)->unit_hint);
	uint64_t	limit = pmh_space_allocatable(t);

	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	if (limit > hint + UNIT_SEARCH)
		limit = hint + UNIT_SEARCH;
	for (*block = hint; *block < limit; (*block)++)
	{
		uint8_t		used = *pmh_space_map(t, *block) | pmh_space_reserved(*block);
		int			at = used == 0 ? -1 : fit_units(used, units);

		if (at >= 0)
			return at;
	}
	*block = find_extent(t, pm_load(&pmh_run(t)->space_hint), 1);
	return *block != 0 ? 0 : -1;
}

PmhResult
pmh_space_alloc_units(PmhTable *t, uint32_t units, uint64_t *offset)
{
	PmhRun	   *run = pmh_run(t);
	PmhResult	result = PMH_OK;
	uint64_t	block;
	int			at;

	PMH_ASSERT(units > 0 && units < PMH_UNITS_PER_BLOCK);
	pmh_space_lock_to_give(t);
	at = find_units(t, units, &block);
	if (at < 0)
		result = need_blocks(t, 1);
	else
	{
		uint8_t    *map = pmh_space_map(t, block);

		pm_store8(map, (uint8_t) (*map | ((1u << units) - 1) << at));
		pm_store64(&run->unit_hint, block);
		pm_store64(&run->free_units, pm_load(&run->free_units) - units);
		*offset = (block << PMH_BLOCK_SHIFT) + (uint64_t) at * PMH_UNIT_SIZE;
	}
	pmh_space_unlock(t);
	return result;
}

/* Free some units of a block. */
static void
free_in_block(PmhTable *t, uint64_t block, uint8_t units_mask)
{
	PmhRun	   *run = pmh_run(t);
	uint8_t    *map = pmh_space_map(t, block);
	uint8_t		used = (uint8_t) (*map & ~units_mask);

	PMH_ASSERT(pmh_is_locked(&t->file_lock->space));
	PMH_ASSERT(units_mask != 0);
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
pmh_space_put_block(PmhTable *t, uint64_t block)
{
	PMH_ASSERT(block > 0 && !pmh_space_is_map_block(block));
	free_in_block(t, block, PMH_BLOCK_USED);
}

void
pmh_space_free_extent(PmhTable *t, uint64_t offset, uint64_t nblocks)
{
	uint64_t	block = offset >> PMH_BLOCK_SHIFT;

	PMH_ASSERT(offset % PMH_BLOCK_SIZE == 0 && block > 0);
	PMH_ASSERT(nblocks > 0 && nblocks <= PMH_LONGEST_EXTENT);
	pmh_space_lock(t);
	for (uint64_t i = 0; i < nblocks; i++)
		free_in_block(t, block + i, PMH_BLOCK_USED);
	pmh_space_unlock(t);
}

void
pmh_space_free_units(PmhTable *t, uint64_t offset, uint32_t units)
{
	uint64_t	block = offset >> PMH_BLOCK_SHIFT;
	uint32_t	at = (uint32_t) ((offset & (PMH_BLOCK_SIZE - 1)) / PMH_UNIT_SIZE);
	uint32_t	mask = ((1u << units) - 1) << at;

	PMH_ASSERT(offset % PMH_UNIT_SIZE == 0 && units > 0 && units < PMH_UNITS_PER_BLOCK);
	pmh_space_lock(t);
	free_in_block(t, block, (uint8_t) mask);
	if (mask >> PMH_UNITS_PER_BLOCK != 0)
		free_in_block(t, block + 1, (uint8_t) (mask >> PMH_UNITS_PER_BLOCK));
	pmh_space_unlock(t);
}
