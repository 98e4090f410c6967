/*-------------------------------------------------------------------------
 *
 * check_space.c
 *	  What the check finds out about space: what claims it, and what is free.
 *
 *-------------------------------------------------------------------------
 */
#include "buffer.h"
#include "check.h"
#include "error.h"
#include "fail.h"
#include "handle.h"
#include "layout.h"
#include "pm.h"
#include "space.h"
#include "table.h"

void
pmh_check_claim_units(PmhCheck *c, uint64_t block, uint32_t mask, const char *what)
{
	if (block >= c->blocks)
	{
		pmh_check_finding(c, block << PMH_BLOCK_SHIFT,
				"%s lies beyond the end of the file.", what);
		return;
	}
	if ((c->units[block] & mask) != 0)
		pmh_check_finding(c, block << PMH_BLOCK_SHIFT,
				"%s lies in block %llu, where something else is as well.",
				what, (unsigned long long) block);
	c->units[block] |= (uint8_t) mask;
}

void
pmh_check_claim_extent(PmhCheck *c, uint64_t block, uint64_t nblocks, const char *what)
{
	for (uint64_t i = 0; i < nblocks && i < c->blocks; i++)
		pmh_check_claim_units(c, block + i, 0xff, what);
}

bool
pmh_check_in_value_block(const PmhCheck *c, uint64_t offset)
{
	uint64_t	block = offset >> PMH_BLOCK_SHIFT;

	return block < c->blocks &&
		(pm_load(pmh_space_kind(c->t, block)) & PMH_KIND_MASK) == PMH_KIND_VALUES;
}

/*
 * The bits in c->grains of the grains from one on, as far as they are in one word;
 * *n: how many.
 */
static uint64_t
grain_bits(uint64_t grain, uint64_t end, uint64_t *n)
{
	uint64_t	in_word = 64 - grain % 64;

	*n = end - grain < in_word ? end - grain : in_word;
	return (*n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << *n) - 1) << (grain % 64);
}

bool
pmh_check_claim_bytes(PmhCheck *c, uint64_t offset, uint64_t len)
{
	uint64_t	end = (offset + len) / PMH_GRAIN;
	bool		free = true;
	uint64_t	n;

	for (uint64_t grain = offset / PMH_GRAIN; grain < end; grain += n)
	{
		uint64_t	bits = grain_bits(grain, end, &n);

		free = free && (c->grains[grain / 64] & bits) == 0;
		c->grains[grain / 64] |= bits;
	}
	return free;
}

void
pmh_check_kinds(PmhCheck *c)
{
	uint64_t	all = 0;
	uint64_t	old = 0;
	uint64_t	punched = 0;

	for (uint64_t block = 0; block < c->blocks; block++)
	{
		uint8_t		kind = pm_load(pmh_space_kind(c->t, block));

		if ((kind & PMH_KIND_MASK) == PMH_KIND_VALUES)
		{
			pmh_check_claim_units(c, block, PMH_BLOCK_USED, "A value block");
			all++;
			old += (kind & PMH_ROOM_MASK) >= PMH_ROOM_SEEN;
		}
		else if (kind == PMH_KIND_PUNCHED)
		{
			pmh_check_claim_units(c, block, PMH_BLOCK_USED, "A block without space");
			punched++;
		}
		else if (kind != 0)
			pmh_check_finding(c, block << PMH_BLOCK_SHIFT,
							  "The kind of block %llu is damaged in the space map.",
							  (unsigned long long) block);
	}
	if (all != pm_load(&pmh_run(c->t)->value_blocks) ||
		old != pm_load(&pmh_run(c->t)->old_blocks))
		pmh_check_finding(c, PMH_RUN_OFFSET,
						  "There are %llu value blocks, %llu of an earlier server life; the "
						  "header says something else.",
						  (unsigned long long) all, (unsigned long long) old);
	if (punched != pm_load(&pmh_run(c->t)->punched_blocks))
		pmh_check_finding(c, PMH_RUN_OFFSET,
						  "There are %llu blocks without space; the header says something "
						  "else.", (unsigned long long) punched);
}

/*
 * Do the bitmaps of a value block agree with the lists?  *lost: bytes that are marked as
 * used and belong to no list.
 */
static void
check_grains(PmhCheck *c, uint64_t block, uint64_t *lost)
{
	const PmhValueBlock *b = pmh_at(c->t, block << PMH_BLOCK_SHIFT);
	const uint64_t *found = &c->grains[block * PMH_GRAIN_WORDS];
	unsigned	room = pm_load(pmh_space_kind(c->t, block)) & PMH_ROOM_MASK;
	uint64_t	in_use = 0;

	if (room == PMH_ROOM_OLD)
		return;
	for (uint32_t i = 0; i < PMH_GRAIN_WORDS; i++)
	{
		uint64_t	head = i == 0 ? (UINT64_C(1) << PMH_HEAD_GRAINS) - 1 : 0;
		uint64_t	used = pm_load(&b->used[i]);

		in_use |= (found[i] | head) & ~used;
		if (room < PMH_ROOM_SEEN)
			*lost += PMH_GRAIN *
				(uint64_t) __builtin_popcountll(used & ~(found[i] | head));
	}
	if (in_use != 0)
		pmh_check_finding(c, block << PMH_BLOCK_SHIFT,
						  "Value block %llu says that something is free which is in use.",
						  (unsigned long long) block);
}

static void
check_all_grains(PmhCheck *c)
{
	uint64_t	lost = 0;
	uint64_t	where = 0;

	for (uint64_t block = 1; block < c->blocks; block++)
	{
		if (!pmh_check_in_value_block(c, block << PMH_BLOCK_SHIFT))
			continue;
		check_grains(c, block, &lost);
		if (lost > 0 && where == 0)
			where = block;
	}
	if (lost > 0 && pm_load(&pmh_run(c->t)->values_lost) == 0)
		pmh_check_finding(c, where << PMH_BLOCK_SHIFT,
						  "%llu bytes of value blocks are neither in use nor free.",
						  (unsigned long long) lost);
}

/* Does the space map say what we have found? */
static void
check_space_map(PmhCheck *c)
{
	uint64_t	free_units = 0;

	for (uint64_t block = 0; block < c->blocks; block++)
	{
		uint8_t		claimed = c->units[block];
		uint8_t		used = pm_load(pmh_space_map(c->t, block));

		if (pmh_space_reserved(block) != 0)
		{
			if ((claimed & pmh_space_reserved(block)) != 0)
				pmh_check_finding(c, block << PMH_BLOCK_SHIFT,
								  "Block %llu belongs to the space map and to "
								  "something else.",
								  (unsigned long long) block);
			claimed |= pmh_space_reserved(block);
		}
		if ((claimed & ~used) != 0)
			pmh_check_finding(c, block << PMH_BLOCK_SHIFT,
							  "Block %llu is in use, the space map says it is free.",
							  (unsigned long long) block);
		if ((used & ~claimed) != 0)
			pmh_check_finding(c, block << PMH_BLOCK_SHIFT,
							  "Block %llu is not in use, the space map says it is.",
							  (unsigned long long) block);
		free_units += PMH_UNITS_PER_BLOCK - (unsigned) __builtin_popcount(used);
	}
	if (free_units != pm_load(&pmh_run(c->t)->free_units))
		pmh_check_finding(c, PMH_RUN_OFFSET,
						  "The space map has %llu free units, the header says %llu.",
						  (unsigned long long) free_units,
						  (unsigned long long) pm_load(&pmh_run(c->t)->free_units));
}

void
pmh_check_space(PmhCheck *c)
{
	check_all_grains(c);
	check_space_map(c);
}
