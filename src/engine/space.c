/*-------------------------------------------------------------------------
 *
 * space.c
 *	  File space: the unit map, growth of the file, value regions and the free
 *	  lists of value buffers.
 *
 * All of it but live.blocks and the list of value regions is volatile (see
 * src/README, "Space") and is guarded by the space lock of the file.  Space
 * beyond our own mapping is never handed out: a caller that asks for it gets
 * PMH_NEED, and pmh_provide() maps further where no lock is held.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MIN_GROWTH			((uint64_t) 64 * 1024)
#define MAX_GROWTH			((uint64_t) 64 * 1024 * 1024)
#define LARGE_PAGE			((uint64_t) 2 * 1024 * 1024)

/* How far the search for a partly used block goes before a whole one is taken. */
#define UNIT_SEARCH			4096

/* Blocks of the first value region, and of the largest. */
#define MIN_REGION_BLOCKS	4
#define MAX_REGION_BYTES	((uint64_t) 32 * 1024 * 1024)

#define BLOCK_USED			0xff

_Static_assert(MAX_REGION_BYTES / PMH_MIN_BLOCK <= PMH_LONGEST_RUN,
			   "the largest value region is a run of blocks that cannot exist");

static inline void
space_lock(PmhTable *t)
{
	if (!t->space_held)
		pmh_lock(&t->file_lock->space);
}

static inline void
space_unlock(PmhTable *t)
{
	if (!t->space_held)
		pmh_unlock(&t->file_lock->space);
}

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
usable_blocks(const PmhTable *t)
{
	uint64_t	blocks = pm_load_acquire(&pmh_live(t)->blocks);
	uint64_t	mapped = t->file.mapped >> t->block_shift;

	return blocks < mapped ? blocks : mapped;
}

/*
 * Blocks that may be given out: not those that a shrink is emptying.  The space
 * lock is held.
 */
static uint64_t
allocatable_blocks(const PmhTable *t)
{
	uint64_t	blocks = usable_blocks(t);
	uint64_t	limit = pm_load(&pmh_run(t)->shrink_limit);

	return limit != 0 && limit < blocks ? limit : blocks;
}

/*
 * There is no room below the limit of a shrink: those who need space now go
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

PmhResult
pmh_check_span(PmhTable *t, uint64_t offset, uint64_t len)
{
	uint64_t	bytes;

	if (offset <= t->file.mapped && len <= t->file.mapped - offset)
		return PMH_OK;
	bytes = pm_load_acquire(&pmh_live(t)->blocks) << t->block_shift;
	if (offset <= bytes && len <= bytes - offset)
	{
		t->need.map = true;
		return PMH_NEED;
	}
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, offset,
					"An offset points outside of the file.");
}

uint8_t *
pmh_space_map(const PmhTable *t, uint64_t block)
{
	uint64_t	zone_start = block & ~(pmh_block_size(t) - 1);
	uint64_t	map_block = zone_start == 0 ? 1 : zone_start;

	return (uint8_t *) pmh_at(t, (map_block << t->block_shift) + (block - zone_start));
}

/* Ask for a run of blocks: of the file, or only of our mapping. */
static PmhResult
need_blocks(PmhTable *t, uint64_t nblocks)
{
	if (usable_blocks(t) < pm_load(&pmh_live(t)->blocks))
		t->need.map = true;
	else
		t->need.blocks = nblocks;
	return PMH_NEED;
}

/*
 * First run of nblocks free blocks at or behind 'from', or 0.  Runs never
 * cross a map block, since that is in use.
 */
static uint64_t
find_run(const PmhTable *t, uint64_t from, uint64_t nblocks)
{
	uint64_t	limit = allocatable_blocks(t);
	uint64_t	zone_mask = pmh_block_size(t) - 1;
	uint64_t	run = 0;
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
			run = 0;
			block++;
			continue;
		}
		map = pmh_space_map(t, block);

		if (run == 0)
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
			if (++run == nblocks)
				return block + 1 - nblocks;
		}
		if (block < end)
			run = 0;
	}
	return 0;
}

/* Mark a run as used; the caller holds the space lock. */
static void
take_run(PmhTable *t, uint64_t block, uint64_t nblocks)
{
	PmhRun	   *run = pmh_run(t);

	for (uint64_t i = 0; i < nblocks; i++)
		pm_store8(pmh_space_map(t, block + i), BLOCK_USED);
	if (nblocks == 1)
		pm_store64(&run->space_hint, block + 1);
	pm_store64(&run->free_units, pm_load(&run->free_units) - nblocks * PMH_UNITS_PER_BLOCK);
}

PmhResult
pmh_space_alloc_run(PmhTable *t, uint64_t nblocks, uint64_t *offset)
{
	uint64_t	block;

	if (nblocks > PMH_LONGEST_RUN)
		return pmh_fail(t, PMH_ERR_TOO_LARGE, 0, 0,
						"No %llu blocks of a file can be next to each other.",
						(unsigned long long) nblocks);
	space_lock(t);
	do
		block = find_run(t, pm_load(&pmh_run(t)->space_hint), nblocks);
	while (block == 0 && give_up_shrink(t));
	if (block != 0)
		take_run(t, block, nblocks);
	space_unlock(t);

	if (block == 0)
		return need_blocks(t, nblocks);
	*offset = block << t->block_shift;
	return PMH_OK;
}

bool
pmh_space_try_run(PmhTable *t, uint64_t nblocks, uint64_t *offset)
{
	uint64_t	block;

	space_lock(t);
	block = find_run(t, pm_load(&pmh_run(t)->space_hint), nblocks);
	if (block != 0)
		take_run(t, block, nblocks);
	space_unlock(t);
	*offset = block << t->block_shift;
	return block != 0;
}

PmhResult
pmh_space_alloc_block(PmhTable *t, uint64_t *offset)
{
	return pmh_space_alloc_run(t, 1, offset);
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
find_units(const PmhTable *t, uint32_t units, int *at)
{
	uint64_t	hint = pm_load(&pmh_run(t)->unit_hint);
	uint64_t	limit = allocatable_blocks(t);

	if (limit > hint + UNIT_SEARCH)
		limit = hint + UNIT_SEARCH;
	for (uint64_t block = hint; block < limit; block++)
	{
		uint8_t		used = *pmh_space_map(t, block);

		if (used == 0 || used == BLOCK_USED || pmh_space_is_map_block(t, block))
			continue;
		*at = fit_units(used, units);
		if (*at >= 0)
			return block;
	}
	*at = 0;
	return find_run(t, pm_load(&pmh_run(t)->space_hint), 1);
}

PmhResult
pmh_space_alloc_units(PmhTable *t, uint32_t units, uint64_t *offset)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	block;
	int			at;

	space_lock(t);
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
	space_unlock(t);

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
pmh_space_free_run(PmhTable *t, uint64_t offset, uint64_t nblocks)
{
	uint64_t	block = offset >> t->block_shift;

	space_lock(t);
	for (uint64_t i = 0; i < nblocks; i++)
		free_in_block(t, block + i, BLOCK_USED);
	space_unlock(t);
}

void
pmh_space_free_block(PmhTable *t, uint64_t offset)
{
	pmh_space_free_run(t, offset, 1);
}

void
pmh_space_free_units(PmhTable *t, uint64_t offset, uint32_t units)
{
	uint64_t	block = offset >> t->block_shift;
	uint32_t	at = (uint32_t) ((offset & (pmh_block_size(t) - 1)) / pmh_unit_size(t));
	uint32_t	mask = ((1u << units) - 1) << at;

	space_lock(t);
	free_in_block(t, block, (uint8_t) mask);
	if (mask >> PMH_UNITS_PER_BLOCK != 0)
		free_in_block(t, block + 1, (uint8_t) (mask >> PMH_UNITS_PER_BLOCK));
	space_unlock(t);
}

/* ---- growth of the file ---- */

/* Where the file should end to have nblocks more in a row, and some reserve. */
static uint64_t
growth_target(const PmhTable *t, uint64_t blocks, uint64_t nblocks, bool reserve)
{
	uint64_t	zone = pmh_block_size(t);
	uint64_t	bytes = (blocks << t->block_shift) / 32;
	uint64_t	step = nblocks;
	uint64_t	end;

	if (bytes < MIN_GROWTH)
		bytes = MIN_GROWTH;
	if (bytes > MAX_GROWTH)
		bytes = MAX_GROWTH;
	if (reserve && bytes >> t->block_shift > step)
		step = bytes >> t->block_shift;

	end = blocks + step;
	if ((end - 1) / zone != blocks / zone || blocks % zone == 0)
	{
		/* A map block comes in between: let the run fit behind it. */
		uint64_t	map_block = (blocks + zone - 1) / zone * zone;

		if (end < map_block + 1 + nblocks)
			end = map_block + 1 + nblocks;
	}
	if (reserve && (end << t->block_shift) >= LARGE_PAGE)
	{
		uint64_t	align = LARGE_PAGE >> t->block_shift;

		end = (end + align - 1) / align * align;
	}
	return end < PMH_MAX_BLOCKS ? end : PMH_MAX_BLOCKS;
}

/* Make [from, to) of the map say "free", map blocks themselves "used". */
static uint64_t
init_map(PmhTable *t, uint64_t from, uint64_t to)
{
	uint64_t	free_blocks = 0;

	for (uint64_t block = from; block < to; block++)
	{
		bool		is_map = pmh_space_is_map_block(t, block);

		if (is_map)
			memset(pmh_at(t, block << t->block_shift), 0, pmh_block_size(t));
		pm_store8(pmh_space_map(t, block), is_map ? BLOCK_USED : 0);
		free_blocks += !is_map;
	}
	return free_blocks;
}

/* Let the file grow by a run of nblocks, or map what others have added. */
static PmhResult
grow_file(PmhTable *t, uint64_t nblocks)
{
	uint64_t	seen = t->file.mapped >> t->block_shift;
	uint64_t	blocks;
	uint64_t	end;
	uint64_t	free_blocks;
	PmhResult	result;

	if (!pmh_lock_or_cancel(&t->file_lock->grow))
		return pmh_fail_cancelled(t);
	blocks = pm_load_acquire(&pmh_live(t)->blocks);
	if (blocks > seen)
	{
		pmh_unlock(&t->file_lock->grow);
		return pm_remap(&t->file, blocks << t->block_shift, &t->error);
	}

	end = growth_target(t, blocks, nblocks, true);
	if (end < blocks + nblocks)
	{
		pmh_unlock(&t->file_lock->grow);
		return pmh_fail(t, PMH_ERR_TOO_LARGE, 0, 0,
						"The file has %llu MiB; it may have %llu, and more space is needed than is free in it.",
						(unsigned long long) (blocks << t->block_shift) >> 20,
						(unsigned long long) (PMH_MAX_BLOCKS << t->block_shift) >> 20);
	}
	result = pm_extend(&t->file, blocks << t->block_shift,
					   end << t->block_shift, &t->error);
	if (result == PMH_ERR_NO_SPACE)
	{
		/* Not enough for a reserve: try with what we must have. */
		end = growth_target(t, blocks, nblocks, false);
		result = pm_extend(&t->file, blocks << t->block_shift,
						   end << t->block_shift, &t->error);
	}
	if (result == PMH_OK)
		result = pm_remap(&t->file, end << t->block_shift, &t->error);
	if (result == PMH_OK)
	{
		PMH_STOP_POINT("grow_before_blocks");
		space_lock(t);
		free_blocks = init_map(t, blocks, end);
		pm_store64(&pmh_run(t)->free_units,
				   pm_load(&pmh_run(t)->free_units) + free_blocks * PMH_UNITS_PER_BLOCK);
		pm_store64(&pmh_live(t)->blocks, end);
		pm_flush(&t->file, &pmh_live(t)->blocks, sizeof(uint64_t));
		pm_fence(&t->file);
		space_unlock(t);
	}
	pmh_unlock(&t->file_lock->grow);
	return result;
}

/* ---- value buffers ---- */

static inline uint64_t
class_size(uint32_t class)
{
	return (uint64_t) PMH_LINE << class;
}

/* Put a buffer on its free list; the caller holds the space lock. */
static void
push_free(PmhTable *t, uint64_t offset, uint32_t class)
{
	uint64_t   *head = &pmh_run(t)->free_list[class];

	pm_store64((uint64_t *) pmh_at(t, offset), pm_load(head));
	pm_store64(head, offset);
}

/* Give a span to the free lists in the largest pieces that it holds. */
static void
push_span(PmhTable *t, uint64_t offset, uint64_t len)
{
	while (len >= PMH_LINE)
	{
		uint32_t	class = PMH_MAX_CLASS;

		while (class_size(class) > len)
			class--;
		push_free(t, offset, class);
		offset += class_size(class);
		len -= class_size(class);
	}
}

/* May a buffer be here?  As pmh_check_span. */
static PmhResult
check_buffer(PmhTable *t, uint64_t offset, uint32_t class)
{
	if (offset % PMH_LINE != 0 || offset < pmh_block_size(t))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, offset,
						"The free lists of value buffers are damaged.");
	return pmh_check_span(t, offset, class_size(class));
}

/* Take a buffer off its free list: PMH_OK, PMH_NOT_FOUND, PMH_NEED, corrupt. */
static PmhResult
pop_free(PmhTable *t, uint32_t class, uint64_t *offset)
{
	uint64_t   *head = &pmh_run(t)->free_list[class];
	PmhResult	result;

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

	if (pm_load(&run->region_end) - next < class_size(class))
		return PMH_NOT_FOUND;
	result = check_buffer(t, next, class);
	if (result == PMH_OK)
	{
		pm_store64(&run->region_next, next + class_size(class));
		*offset = next;
	}
	return result;
}

/* Take a buffer of a larger class and give back what is too much. */
static PmhResult
split_larger(PmhTable *t, uint32_t class, uint64_t *offset)
{
	for (uint32_t larger = class + 1; larger <= PMH_MAX_CLASS; larger++)
	{
		PmhResult	result = pop_free(t, larger, offset);

		if (result == PMH_OK)
			push_span(t, *offset + class_size(class),
					  class_size(larger) - class_size(class));
		if (result != PMH_NOT_FOUND)
			return result;
	}
	return PMH_NOT_FOUND;
}

PmhResult
pmh_value_alloc(PmhTable *t, uint32_t class, uint64_t *offset)
{
	PmhResult	result;

	space_lock(t);
	result = pmh_sweep_account_check(t);
	if (result != PMH_OK)
	{
		space_unlock(t);
		return result;
	}
	result = pop_free(t, class, offset);
	if (result == PMH_NOT_FOUND)
		result = bump_region(t, class, offset);
	if (result == PMH_NOT_FOUND)
		result = split_larger(t, class, offset);
	if (result == PMH_OK && pm_load(&pmh_run(t)->sweep_mark) != 0)
		pmh_sweep_account(t, *offset, class_size(class));
	space_unlock(t);

	if (result == PMH_NOT_FOUND)
	{
		t->need.value_region = true;
		t->need.value_class = class;
		result = PMH_NEED;
	}
	return result;
}

/* Is a place in the part of the file that a shrink is emptying? */
static bool
beyond_limit(const PmhTable *t, uint64_t offset)
{
	uint64_t	limit = pm_load(&pmh_run(t)->shrink_limit);

	return limit != 0 && offset >> t->block_shift >= limit;
}

void
pmh_value_free(PmhTable *t, uint64_t offset, uint32_t class)
{
	pmh_buffer_bump(t, offset);
	space_lock(t);
	PMH_STOP_POINT("value_free_locked");
	if (beyond_limit(t, offset) ||
		(t->ndiscard > 0 && t->discard_serial == pm_load(&pmh_run(t)->mark_serial) &&
		 pmh_region_of(t->discard, t->ndiscard, offset) != NULL))
		pmh_sweep_discard(t, offset, class_size(class));
	else
	{
		push_free(t, offset, class);
		if (pm_load(&pmh_run(t)->sweep_mark) != 0)
			pmh_sweep_account(t, offset, class_size(class));
	}
	space_unlock(t);
}

void
pmh_value_free_span(PmhTable *t, uint64_t offset, uint64_t len)
{
	space_lock(t);
	push_span(t, offset, len);
	space_unlock(t);
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
 * Blocks of the next region: half as many again as the newest has, but few for
 * the first after recovery.  What was free then is lost until a sweep finds it;
 * a restart now and then must not cost much space.
 */
static PmhResult
next_region_blocks(PmhTable *t, uint64_t newest, uint64_t *nblocks)
{
	const PmhRegion *region = pmh_at(t, newest << t->block_shift);
	uint64_t	most = MAX_REGION_BYTES >> t->block_shift;
	PmhResult	result;

	*nblocks = pm_load(&pmh_run(t)->region_blocks);
	if (*nblocks == 0 && newest != 0 && pm_load(&pmh_run(t)->region_end) != 0)
	{
		result = pmh_region_check(t, newest, pm_load(&pmh_live(t)->blocks));
		if (result != PMH_OK)
			return result;
		*nblocks = region->blocks + region->blocks / 2;
	}
	if (*nblocks < MIN_REGION_BLOCKS)
		*nblocks = MIN_REGION_BLOCKS;
	if (*nblocks > most)
		*nblocks = most;
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
	region.next = pm_load(&live->value_region);
	region.blocks = nblocks;
	region.crc = pmh_crc32c(&region, sizeof(region));
	pm_copy(&t->file, pmh_at(t, offset), &region, sizeof(region));
	pm_fence(&t->file);
	pm_store64(&live->value_region, offset >> t->block_shift);
	pm_flush(&t->file, &live->value_region, sizeof(uint64_t));
	pm_fence(&t->file);

	space_lock(t);
	pm_store64(&run->value_blocks, pm_load(&run->value_blocks) + nblocks);
	rest = pm_load(&run->region_next);
	rest_end = pm_load(&run->region_end);
	if (rest < rest_end)
		push_span(t, rest, rest_end - rest);
	pm_store64(&run->region_next, offset + PMH_LINE);
	pm_store64(&run->region_end, offset + (nblocks << t->block_shift));
	space_unlock(t);
}

/* Is the unused end of the newest region a possible one, and mapped here? */
static PmhResult
check_rest(PmhTable *t)
{
	uint64_t	next = pm_load(&pmh_run(t)->region_next);
	uint64_t	end = pm_load(&pmh_run(t)->region_end);

	if (next > end || next % PMH_LINE != 0 || end % PMH_LINE != 0)
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_RUN_OFFSET,
						"The unused part of the newest value region is impossible.");
	return pmh_check_span(t, next, end - next);
}

/* Provide a value region, unless there is room for a buffer of 'class' again. */
static PmhResult
provide_region(PmhTable *t, uint32_t class)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	newest;
	uint64_t	nblocks;
	uint64_t	offset;
	bool		full;
	PmhResult	result = PMH_OK;

	if (!pmh_lock_or_cancel(&t->file_lock->grow))
		return pmh_fail_cancelled(t);
	space_lock(t);
	full = pm_load(&run->region_end) - pm_load(&run->region_next) < class_size(class);
	if (full)
		result = check_rest(t);
	space_unlock(t);
	if (full)
	{
		newest = pm_load(&pmh_live(t)->value_region);
		if (result == PMH_OK)
			result = pmh_check_span(t, newest << t->block_shift, PMH_LINE);
		if (result == PMH_OK)
			result = next_region_blocks(t, newest, &nblocks);
		if (result == PMH_OK)
			result = pmh_space_alloc_run(t, nblocks, &offset);
		if (result == PMH_OK)
			publish_region(t, offset, nblocks);
	}
	pmh_unlock(&t->file_lock->grow);
	return result;
}

/* ---- giving back ---- */

/*
 * Find the region whose 'next' is 'block'; the grow lock is held.  PMH_OK,
 * PMH_NEED, or PMH_ERR_CORRUPT.
 */
static PmhResult
region_before(PmhTable *t, uint64_t block, uint64_t *before)
{
	uint64_t	left = pm_load(&pmh_live(t)->blocks);
	uint64_t	next;

	for (*before = pm_load(&pmh_live(t)->value_region);; *before = next)
	{
		PmhResult	result = pmh_check_span(t, *before << t->block_shift, PMH_LINE);

		if (result != PMH_OK)
			return result;
		next = pm_load(&((PmhRegion *) pmh_at(t, *before << t->block_shift))->next);
		if (next == block)
			return PMH_OK;
		if (next == 0 || left-- == 0)
			return pmh_fail(t, PMH_ERR_CORRUPT, 0, block << t->block_shift,
							"The value region at block %llu is not on the list of value regions.",
							(unsigned long long) block);
	}
}

void
pmh_region_redo_unlink(PmhTable *t)
{
	PmhLive    *live = pmh_live(t);
	uint64_t	word = pm_load(&live->region_unlink);
	PmhRegion  *before = pmh_at(t, (word >> PMH_UNLINK_BEFORE_SHIFT) << t->block_shift);
	const PmhRegion *region = pmh_at(t, (word & PMH_UNLINK_REGION_MASK) << t->block_shift);
	PmhRegion	header = *before;

	header.next = pm_load(&region->next);
	header.crc = 0;
	header.crc = pmh_crc32c(&header, sizeof(header));
	pm_store64(&before->next, header.next);
	PMH_STOP_POINT("unlink_region_before_crc");
	pm_store64(&before->crc, header.crc);
	pm_flush(&t->file, before, sizeof(*before));
	pm_fence(&t->file);
	PMH_STOP_POINT("unlink_region_before_log_clear");
	pm_store64(&live->region_unlink, 0);
	pm_flush(&t->file, &live->region_unlink, sizeof(uint64_t));
	pm_fence(&t->file);
}

/* Take a region off the list; the grow lock is held.  As region_before. */
static PmhResult
unlink_region(PmhTable *t, uint64_t block)
{
	PmhLive    *live = pmh_live(t);
	const PmhRegion *region = pmh_at(t, block << t->block_shift);
	uint64_t	before;
	PmhResult	result;

	if (pm_load(&live->value_region) == block)
	{
		pm_store64(&live->value_region, region->next);
		pm_flush(&t->file, &live->value_region, sizeof(uint64_t));
		pm_fence(&t->file);
		return PMH_OK;
	}
	result = region_before(t, block, &before);
	if (result != PMH_OK)
		return result;
	pm_store64(&live->region_unlink, before << PMH_UNLINK_BEFORE_SHIFT | block);
	pm_flush(&t->file, &live->region_unlink, sizeof(uint64_t));
	pm_fence(&t->file);
	PMH_STOP_POINT("unlink_region_logged");
	pmh_region_redo_unlink(t);
	return PMH_OK;
}

PmhResult
pmh_region_return(PmhTable *t, uint64_t block)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	offset = block << t->block_shift;
	PmhResult	result;

	PMH_STOP_POINT("region_return_before_lock");
	do
	{
		pmh_lock(&t->file_lock->grow);
		result = unlink_region(t, block);
		if (result == PMH_OK)
		{
			uint64_t	nblocks = ((const PmhRegion *) pmh_at(t, offset))->blocks;
			uint64_t	end = offset + (nblocks << t->block_shift);

			space_lock(t);
			pm_store64(&run->value_blocks, pm_load(&run->value_blocks) - nblocks);
			if (pm_load(&run->region_end) > offset && pm_load(&run->region_end) <= end)
			{
				/* It was the newest, all of it given away. */
				pm_store64(&run->region_next, 0);
				pm_store64(&run->region_end, 0);
			}
			space_unlock(t);
			pmh_space_free_run(t, offset, nblocks);
		}
		pmh_unlock(&t->file_lock->grow);
	} while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	return result;
}

static int
compare_spans(const void *a, const void *b)
{
	uint64_t	x = ((const PmhRegionSpan *) a)->from;
	uint64_t	y = ((const PmhRegionSpan *) b)->from;

	return (x > y) - (x < y);
}

/*
 * Walk the list of regions; the grow lock is held.  The first 'room' of them go
 * to span[]; *n tells how many there are.  As region_before.
 */
static PmhResult
list_regions(PmhTable *t, PmhRegionSpan *span, size_t room, size_t *n)
{
	uint64_t	left = pm_load(&pmh_live(t)->blocks);
	uint64_t	block = pm_load(&pmh_live(t)->value_region);

	for (*n = 0; block != 0; (*n)++)
	{
		const PmhRegion *region;
		PmhResult	result = pmh_check_span(t, block << t->block_shift, PMH_LINE);

		if (result != PMH_OK)
			return result;
		if (left-- == 0)
			return pmh_fail(t, PMH_ERR_CORRUPT, 0, block << t->block_shift,
							"The list of value regions runs in a circle.");
		region = pmh_at(t, block << t->block_shift);
		result = pmh_region_check(t, block, pm_load(&pmh_live(t)->blocks));
		if (result != PMH_OK)
			return result;
		if (*n < room)
			span[*n] = (PmhRegionSpan) {block << t->block_shift,
			(block + region->blocks) << t->block_shift, 0};
		block = pm_load(&region->next);
	}
	return PMH_OK;
}

PmhResult
pmh_regions(PmhTable *t, PmhRegionSpan **span, size_t *n)
{
	size_t		room = 0;
	PmhResult	result;

	*span = NULL;
	for (;;)
	{
		pmh_lock(&t->file_lock->grow);
		result = list_regions(t, *span, room, n);
		pmh_unlock(&t->file_lock->grow);
		if (result == PMH_NEED)
			result = pmh_provide(t);
		else if (result == PMH_OK && *n <= room)
			break;
		else if (result == PMH_OK)
		{
			room = 2 * *n;
			free(*span);
			*span = malloc(room * sizeof(PmhRegionSpan));
			if (*span == NULL)
				result = pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
								  "There is no memory for a list of value regions.");
		}
		if (result != PMH_OK)
		{
			free(*span);
			*span = NULL;
			return result;
		}
	}
	if (*n > 1)
		qsort(*span, *n, sizeof(PmhRegionSpan), compare_spans);
	return PMH_OK;
}

PmhRegionSpan *
pmh_region_of(PmhRegionSpan *span, size_t n, uint64_t offset)
{
	size_t		low = 0;
	size_t		high = n;

	while (low < high)
	{
		size_t		middle = (low + high) / 2;

		if (span[middle].to <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n && span[low].from <= offset ? &span[low] : NULL;
}

void
pmh_space_set_limit(PmhTable *t, uint64_t limit, uint64_t region_blocks)
{
	space_lock(t);
	pm_store64(&pmh_run(t)->shrink_limit, limit);
	pm_store64(&pmh_run(t)->region_blocks, region_blocks);
	space_unlock(t);
}

/* Behind the last block below 'blocks' that is not free; the space lock is held. */
static uint64_t
end_of_use(const PmhTable *t, uint64_t blocks)
{
	while (blocks > 2 && (pmh_space_is_map_block(t, blocks - 1) ||
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

	for (uint64_t block = from; block < to; block++)
	{
		if (!pmh_space_is_map_block(t, block))
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
	PmhResult	result = pmh_map_all(t);

	if (result != PMH_OK)
		return result;
	pmh_lock(&t->file_lock->grow);
	blocks = pm_load_acquire(&live->blocks);
	if (blocks << t->block_shift > t->file.mapped)
	{
		/* Another process needed more just now: so nothing is too much. */
		pmh_unlock(&t->file_lock->grow);
		return PMH_OK;
	}
	space_lock(t);
	end = end_of_use(t, blocks);
	if (end < keep)
		end = keep;
	if (end < blocks)
	{
		forget_units(t, end, blocks);
		pm_store64(&live->blocks, end);
		pm_flush(&t->file, &live->blocks, sizeof(uint64_t));
		pm_fence(&t->file);
	}
	pm_store64(&pmh_run(t)->shrink_limit, 0);
	pm_store64(&pmh_run(t)->region_blocks, 0);
	space_unlock(t);
	PMH_STOP_POINT("cut_before_punch");
	if (end < blocks)
		result = pm_punch(&t->file, end << t->block_shift,
						  blocks << t->block_shift, &t->error);
	pmh_unlock(&t->file_lock->grow);
	return result;
}

PmhResult
pmh_map_all(PmhTable *t)
{
	uint64_t	blocks;

	PMH_STOP_POINT("map_all_before_length");
	blocks = pm_load_acquire(&pmh_live(t)->blocks);
	if (blocks > PMH_MAX_BLOCKS)
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
						"The header says that the file has %llu blocks.",
						(unsigned long long) blocks);
	return pm_remap(&t->file, blocks << t->block_shift, &t->error);
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
	if (result == PMH_OK && need.blocks != 0)
		result = grow_file(t, need.blocks);
	if (result == PMH_OK && need.value_region)
	{
		while ((result = provide_region(t, need.value_class)) == PMH_NEED)
		{
			result = pmh_provide(t);
			if (result != PMH_OK)
				break;
		}
	}
	if (result == PMH_OK && need.doubling)
		result = pmh_directory_double(t, need.doubling_depth);
	return result;
}
