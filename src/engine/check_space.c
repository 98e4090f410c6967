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
#include "reclaim.h"
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
pmh_check_in_region(const PmhCheck *c, uint64_t offset, uint64_t len)
{
	const PmhRegionSpan *region = pmh_region_of(c->region, c->nregions, offset);

	return region != NULL && offset >= region->from + PMH_LINE &&
		offset + len <= region->to;
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

PmhResult
pmh_check_regions(PmhCheck *c)
{
	PmhResult	result = pmh_regions(c->t, PMH_NEWEST_REGION, &c->region, &c->nregions);

	if (result != PMH_OK)
	{
		c->nregions = 0;
		return pmh_check_absorb(c, result);
	}
	for (size_t i = 0; i < c->nregions; i++)
		pmh_check_claim_extent(c, c->region[i].from >> PMH_BLOCK_SHIFT,
							   (c->region[i].to - c->region[i].from) >> PMH_BLOCK_SHIFT,
							   "A value region");
	return PMH_OK;
}

static void
check_free_list(PmhCheck *c, uint32_t class)
{
	uint64_t	offset = pm_load(&pmh_run(c->t)->free_list[class]);

	while (offset != 0)
	{
		if (!pmh_class_may_be_free_at(class, offset) ||
			!pmh_check_in_region(c, offset, pmh_class_bytes(class)))
		{
			pmh_check_finding(c, offset,
							  "A free value buffer of class %u at offset %llu is in no "
							  "value region.",
							  class, (unsigned long long) offset);
			return;
		}
		if (!pmh_check_claim_bytes(c, offset, pmh_class_bytes(class)))
		{
			pmh_check_finding(c, offset,
							  "The free value buffer at offset %llu is in use or free "
							  "twice.",
							  (unsigned long long) offset);
			return;
		}
		offset = pm_load((uint64_t *) pmh_at(c->t, offset));
	}
}

/* The part of the newest region that was never used. */
static void
check_region_rest(PmhCheck *c)
{
	uint64_t	next = pm_load(&pmh_run(c->t)->region_next);
	uint64_t	end = pm_load(&pmh_run(c->t)->region_end);

	if (next == end)
		return;
	if (next > end || next % PMH_VALUE_LINE != 0 ||
		!pmh_check_in_region(c, next, end - next))
		pmh_check_finding(c, PMH_RUN_OFFSET,
						  "The unused part of the newest value region is impossible.");
	else if (!pmh_check_claim_bytes(c, next, end - next))
		pmh_check_finding(c, next,
						  "The unused part of the newest value region is in use.");
}

/* Is everything in the value regions either in use or free? */
static void
check_lost_values(PmhCheck *c)
{
	uint64_t	lost = 0;
	uint64_t	where = 0;

	for (size_t i = 0; i < c->nregions; i++)
	{
		uint64_t	end = c->region[i].to / PMH_GRAIN;
		uint64_t	n;

		for (uint64_t grain = (c->region[i].from + PMH_LINE) / PMH_GRAIN; grain < end;
			 grain += n)
		{
			uint64_t	left = grain_bits(grain, end, &n) & ~c->grains[grain / 64];

			if (left != 0 && lost == 0)
				where = (grain & ~UINT64_C(63)) + (uint64_t) __builtin_ctzll(left);
			lost += (uint64_t) __builtin_popcountll(left);
		}
	}
	if (lost > 0)
		pmh_check_finding(c, where * PMH_GRAIN,
						  "%llu bytes of value regions are neither in use nor free.",
						  (unsigned long long) (lost * PMH_GRAIN));
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
	bool		known = pm_load(&pmh_run(c->t)->value_space_known) != 0;
	uint64_t	block;
	uint64_t	nblocks;

	for (unsigned n = 0; pmh_reclaim_map_extent(c->t, n, &block, &nblocks); n++)
	{
		if (nblocks == 0)
			pmh_check_finding(c, PMH_RUN_OFFSET,
							  "The mark map of a sweep is in an impossible place.");
		pmh_check_claim_extent(c, block, nblocks, "The mark map of a sweep");
	}
	for (uint32_t class = 0; class < PMH_CLASSES; class++)
		check_free_list(c, class);
	check_region_rest(c);
	if (known)
		check_lost_values(c);
	check_space_map(c);
}
