/*-------------------------------------------------------------------------
 *
 * region.c
 *	  Value regions: the list of them, and giving one back.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "crc.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "live.h"
#include "lock.h"
#include "pm.h"
#include "recover.h"
#include "region.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"

/*
 * Find the region whose 'next' is 'block'; the grow lock is held.  PMH_OK,
 * PMH_NEED, or PMH_ERR_CORRUPT.
 */
static PmhResult
region_before(PmhTable *t, uint64_t block, uint64_t *before)
{
	uint64_t	left = pmh_blocks(t);
	uint64_t	next;

	for (*before = pmh_newest_region(t);; *before = next)
	{
		PmhResult	result = pmh_check_span(t, *before << PMH_BLOCK_SHIFT, PMH_LINE);

		if (result != PMH_OK)
			return result;
		next = pm_load(&((PmhRegion *) pmh_at(t, *before << PMH_BLOCK_SHIFT))->next);
		if (next == block)
			return PMH_OK;
		if (next == 0 || left-- == 0)
			return pmh_fail(t, PMH_ERR_CORRUPT, 0, block << PMH_BLOCK_SHIFT,
							"The value region at block %llu is not on the list of "
							"value regions.",
							(unsigned long long) block);
	}
}

void
pmh_region_redo_unlink(PmhTable *t)
{
	PmhLive    *live = pmh_live(t);
	uint64_t	word = pm_load(&live->region_unlink);
	PmhRegion  *before = pmh_at(t, (word >> PMH_UNLINK_BEFORE_SHIFT) << PMH_BLOCK_SHIFT);
	const PmhRegion *region =
		pmh_at(t, (word & PMH_UNLINK_REGION_MASK) << PMH_BLOCK_SHIFT);
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
	const PmhRegion *region = pmh_at(t, block << PMH_BLOCK_SHIFT);
	uint64_t	before;
	PmhResult	result = pmh_check_live_words(t);

	if (result != PMH_OK)
		return result;
	if (pmh_newest_region(t) == block)
	{
		pm_store64(&live->value_region, pmh_seal_region(region->next));
		pm_flush(&t->file, &live->value_region, sizeof(uint64_t));
		pm_fence(&t->file);
		return PMH_OK;
	}
	result = region_before(t, block, &before);
	/* It gets a new checksum, which may not be that of a damaged one. */
	if (result == PMH_OK)
		result = pmh_region_check(t, before, pmh_blocks(t));
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
	uint64_t	offset = block << PMH_BLOCK_SHIFT;
	PmhResult	result;

	PMH_STOP_POINT("region_return_before_lock");
	do
	{
		pmh_lock(&t->file_lock->grow);
		result = unlink_region(t, block);
		if (result == PMH_OK)
		{
			uint64_t	nblocks = ((const PmhRegion *) pmh_at(t, offset))->blocks;
			uint64_t	end = offset + (nblocks << PMH_BLOCK_SHIFT);

			pmh_space_lock(t);
			pm_store64(&run->value_blocks, pm_load(&run->value_blocks) - nblocks);
			if (pm_load(&run->region_end) > offset && pm_load(&run->region_end) <= end)
			{
				/* It was the newest, all of it given away. */
				pm_store64(&run->region_next, 0);
				pm_store64(&run->region_end, 0);
			}
			pmh_space_unlock(t);
			pmh_space_free_extent(t, offset, nblocks);
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
 * Walk the list of regions; the grow lock is held.  The first 'room' of those
 * that pmh_regions gives go to span[]; *n tells how many there are.  As
 * region_before.
 */
static PmhResult
list_regions(PmhTable *t, uint64_t first, PmhRegionSpan *span, size_t room, size_t *n)
{
	uint64_t	left = pmh_blocks(t);
	uint64_t	block = pmh_newest_region(t);
	bool		newer = first != PMH_NEWEST_REGION;

	for (*n = 0; block != 0;)
	{
		const PmhRegion *region;
		PmhResult	result = pmh_check_span(t, block << PMH_BLOCK_SHIFT, PMH_LINE);

		if (result != PMH_OK)
			return result;
		if (left-- == 0)
			return pmh_fail(t, PMH_ERR_CORRUPT, 0, block << PMH_BLOCK_SHIFT,
							"The list of value regions runs in a circle.");
		region = pmh_at(t, block << PMH_BLOCK_SHIFT);
		result = pmh_region_check(t, block, pmh_blocks(t));
		if (result != PMH_OK)
			return result;
		newer = newer && block != first;
		if (!newer && *n < room)
			span[*n] = (PmhRegionSpan) {block << PMH_BLOCK_SHIFT,
			(block + region->blocks) << PMH_BLOCK_SHIFT, 0};
		if (!newer)
			(*n)++;
		block = pm_load(&region->next);
	}
	return PMH_OK;
}

PmhResult
pmh_regions(PmhTable *t, uint64_t first, PmhRegionSpan **span, size_t *n)
{
	size_t		room = 0;
	PmhResult	result;

	*span = NULL;
	for (;;)
	{
		if (!pmh_lock_or_cancel(&t->file_lock->grow))
			result = pmh_fail_cancelled(t);
		else
		{
			result = list_regions(t, first, *span, room, n);
			pmh_unlock(&t->file_lock->grow);
		}
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
