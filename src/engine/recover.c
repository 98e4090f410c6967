/*-------------------------------------------------------------------------
 *
 * recover.c
 *	  Make the volatile parts of a file true again after the system went down.
 *
 * src/README, "Recovery".  Everything is checked before it is followed, since
 * this is the first to see a damaged file.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "segment.h"

/* ---- the directory ---- */

static PmhResult
fail_element(PmhTable *t, uint64_t i)
{
	return pmh_fail(t, PMH_ERR_CORRUPT, 0,
					pmh_dirword_offset(pmh_live(t)->dirword) + i * sizeof(uint64_t),
					"Directory element %llu is damaged.", (unsigned long long) i);
}

/*
 * Let all elements of a range say the same.  Before anything is stored all are checked (not
 * 'store'): if the element that others are to have were damaged, so would be these.  *differ:
 * some of them do not say the same.
 *
 * A crash may leave elements of what a segment was replaced by, or of what replaced it, beside
 * its own (pmh_directory_publish).  All elements of a range get what the first one is that the
 * walk comes by.  If that is a half, the walk comes by the other half next: either it is
 * named there, too, or the whole is, and then the range of this begins before i.
 */
static PmhResult
stride_directory(PmhTable *t, bool store, bool *differ)
{
	uint64_t	dirword = pmh_live(t)->dirword;
	uint64_t	blocks = pmh_blocks(t);
	uint32_t	depth = pmh_dirword_depth(dirword);
	uint64_t   *dir = pmh_at(t, pmh_dirword_offset(dirword));
	uint64_t	size = pmh_directory_elements(depth);
	uint64_t	end;

	for (uint64_t i = 0; i < size; i = end)
	{
		uint64_t	elem = dir[i];
		uint32_t	local = pmh_elem_depth(elem);
		uint64_t	span;
		uint64_t	first;
		bool		changed = false;

		if (local > depth)
			return fail_element(t, i);
		span = UINT64_C(1) << (depth - local);
		first = i & ~(span - 1);
		end = first + span;
		if (!pmh_elem_sane(elem, first, depth, blocks))
			return fail_element(t, i);
		for (uint64_t j = first; j < end; j++)
		{
			if (!pmh_elem_whole(dir[j]) || pmh_elem_depth(dir[j]) + 1 < local ||
				pmh_elem_depth(dir[j]) > local + 1)
				return fail_element(t, j);
			if (likely(dir[j] == elem))
				continue;
			*differ = changed = true;
			if (store)
				pm_store64(&dir[j], elem);
		}
		if (store && changed)
			pm_flush(&t->file, &dir[first], span * sizeof(uint64_t));
	}
	pm_fence(&t->file);
	return PMH_OK;
}

/* ---- the space map ---- */

/* Mark n units from 'unit' on as used; corrupt if one of them already is, or there is none. */
static PmhResult
mark_units(PmhTable *t, uint64_t unit, uint64_t n)
{
	uint64_t	all = pmh_blocks(t) * PMH_UNITS_PER_BLOCK;
	uint64_t	next;

	PMH_ASSERT(n > 0);
	if (unit >= all || n > all - unit)
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, unit << PMH_UNIT_SHIFT,
						"A structure reaches beyond the end of the file.");
	for (uint64_t end = unit + n; unit < end; unit = next)
	{
		uint64_t	block = unit / PMH_UNITS_PER_BLOCK;
		uint8_t    *map = pmh_space_map(t, block);
		uint32_t	mask;

		next = (block + 1) * PMH_UNITS_PER_BLOCK < end ? (block + 1) * PMH_UNITS_PER_BLOCK : end;
		mask = ((1u << (next - unit)) - 1) << unit % PMH_UNITS_PER_BLOCK;
		if ((*map & mask) != 0)
			return pmh_fail(t, PMH_ERR_CORRUPT, 0, block << PMH_BLOCK_SHIFT,
							"Two structures claim the same space.");
		pm_store8(map, (uint8_t) (*map | mask));
	}
	pm_store64(&pmh_run(t)->free_units, pmh_run(t)->free_units - n);
	return PMH_OK;
}

/* An empty map: only the header and the map blocks are in use. */
static void
clear_map(PmhTable *t)
{
	uint64_t	blocks = pmh_blocks(t);
	uint64_t	free_units = 0;

	memset(pmh_space_map(t, 0), 0, PMH_HEADER_MAP_BLOCKS);
	for (uint64_t block = 0; block < blocks; block++)
	{
		uint8_t		reserved = pmh_space_reserved(block);

		if (reserved == PMH_BLOCK_USED)
			memset(pmh_at(t, block << PMH_BLOCK_SHIFT), 0, PMH_ZONE_BLOCKS);
		if (reserved != 0)
			pm_store8(pmh_space_map(t, block), reserved);
		free_units += PMH_UNITS_PER_BLOCK - pmh_mask_count(reserved);
	}
	pm_store64(&pmh_run(t)->free_units, free_units);
}

/*
 * Mark blocks by their kinds.  Value blocks are of an earlier life: all that is in them
 * counts as used until a walk has found out what is.
 */
static PmhResult
mark_kinds(PmhTable *t)
{
	PmhRun	   *run = pmh_run(t);
	uint64_t	blocks = pmh_blocks(t);
	PmhResult	result = PMH_OK;

	for (uint64_t block = 0; block < blocks && result == PMH_OK; block++)
	{
		uint8_t    *kind = pmh_space_kind(t, block);

		if (*kind == 0)
			continue;
		switch (*kind & PMH_KIND_MASK)
		{
			case 0:
				pm_store8(kind, 0);
				break;
			case PMH_KIND_VALUES:
				result = mark_units(t, block * PMH_UNITS_PER_BLOCK, PMH_UNITS_PER_BLOCK);
				pm_store8(kind, PMH_KIND_VALUES | PMH_ROOM_OLD);
				run->value_blocks++;
				break;
			case PMH_KIND_PUNCHED:
				result = mark_units(t, block * PMH_UNITS_PER_BLOCK, PMH_UNITS_PER_BLOCK);
				pm_store8(kind, PMH_KIND_PUNCHED);
				run->punched_blocks++;
				break;
			default:
				return pmh_fail(t, PMH_ERR_CORRUPT, 0, block << PMH_BLOCK_SHIFT,
								"The kind of block %llu is damaged in the space map.",
								(unsigned long long) block);
		}
	}
	run->old_blocks = run->value_blocks;
	return result;
}

/* Rebuild the space map and everything else that is volatile. */
static PmhResult
rebuild_run(PmhTable *t)
{
	const PmhLive *live = pmh_live(t);
	PmhRun	   *run = pmh_run(t);
	uint32_t	depth = pmh_dirword_depth(live->dirword);
	uint64_t	offset = pmh_dirword_offset(live->dirword);
	const uint64_t *dir = pmh_at(t, offset);
	PmhResult	result = PMH_OK;

	PMH_ASSERT(run->instance == 0);
	memset(run, 0, sizeof(*run));
	clear_map(t);
	if (depth > PMH_SMALL_DIR_DEPTH)
		result = mark_units(t, offset >> PMH_UNIT_SHIFT,
							pmh_directory_blocks(depth) * PMH_UNITS_PER_BLOCK);
	for (uint64_t i = 0; i < pmh_directory_elements(depth) && result == PMH_OK;
		 i += UINT64_C(1) << (depth - pmh_elem_depth(dir[i])))
	{
		uint32_t	units = pmh_elem_units(dir[i]);

		if (pmh_elem_has_main(dir[i]))
			result = mark_units(t, pmh_elem_main_block(dir[i]) * PMH_UNITS_PER_BLOCK,
								PMH_UNITS_PER_BLOCK);
		if (result == PMH_OK && units > 0)
			result = mark_units(t, pmh_elem_ext_unit(dir[i]), units);
	}
	if (result == PMH_OK)
		result = mark_kinds(t);
	return result;
}

PmhResult
pmh_recover(PmhTable *t)
{
	bool		differ = false;
	PmhResult	result;

	/* Nobody can have made it longer since we mapped it.  Pages: see pm.c, "its length". */
	if (pmh_whole_pages(pmh_blocks(t) << PMH_BLOCK_SHIFT) > t->file.bound)
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
						"The file is shorter than its header says, or was used with smaller "
						"pages of memory.");
	pm_store64(&pmh_run(t)->instance, 0);

	/*
	 * After a process was killed we see stores that it had not flushed.  Power loss would
	 * take them back, from under what is built on them.
	 */
	result = pm_sync(&t->file, &t->error);
	if (result == PMH_OK)
		result = stride_directory(t, false, &differ);
	if (result == PMH_OK && differ)
		result = stride_directory(t, true, &differ);
	if (result == PMH_OK)
		result = rebuild_run(t);
	if (result == PMH_OK)
		pm_store64(&pmh_run(t)->instance, t->instance);
	return result;
}
