/*-------------------------------------------------------------------------
 *
 * bulk_range.c
 *	  Ranges of a bulk load: cut until each fits a segment.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "bulkload.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "list_write.h"
#include "lock.h"
#include "segment.h"
#include "sort.h"
#include "table.h"

/*
 * Values of one key from this number on become a list.  (Three take as much space in
 * slots of their own, and one look less.)
 */
#define LIST_MIN		4

/* Values that are copied until it is asked whether to go on. */
#define AT_ONCE			32768

/* ---- keys with many values ---- */

/* Has any hash of the range more than one entry?  Exact. */
static bool
has_duplicates(PmhBulk *bulk, const PmhBulkRange *range)
{
	uint32_t	mask = bulk->seen_size - 1;

	memset(bulk->seen, 0, bulk->seen_size * sizeof(uint32_t));
	for (size_t i = 0; i < range->n; i++)
	{
		uint64_t	hash = range->entry[i].hash;
		uint32_t	at = (uint32_t) (hash >> 8) & mask;

		while (bulk->seen[at] != 0)
		{
			if (range->entry[bulk->seen[at] - 1].hash == hash)
				return true;
			at = (at + 1) & mask;
		}
		bulk->seen[at] = (uint32_t) (i + 1);
	}
	return false;
}

/*
 * Make a list of the values of n entries of one hash.  The file may have to grow for it
 * many times: what is made of it stays, and each time it is asked whether to go on.
 */
static PmhResult
make_list(PmhBulk *bulk, const PmhEntry *entry, size_t n, uint64_t *payload)
{
	PmhTable   *t = bulk->table;
	PmhListMade made = {0};
	PmhResult	result;

	if (!pmh_bulk_reserve((void **) &bulk->values, 0, n, &bulk->values_room,
						  sizeof(uint64_t)))
		return pmh_bulk_no_memory(bulk);
	for (size_t i = 0; i < n; i++)
	{
		if (i % AT_ONCE == AT_ONCE - 1 && pmh_wait_cancelled())
			return pmh_fail_cancelled(t);
		PMH_ASSERT(entry[i].hash == entry->hash);
		bulk->values[i] = entry[i].value;
	}
	while ((result = pmh_list_make(t, entry->hash, bulk->values, n, 0,
								   &made)) == PMH_NEED)
	{
		result = pmh_wait_cancelled() ? pmh_fail_cancelled(t) : pmh_provide(t);
		if (result != PMH_OK)
			break;
	}
	if (result != PMH_OK && made.head != 0)
		pmh_list_unmake(t, entry->hash, made.head);
	*payload = made.head;
	return result;
}

/* Let every hash with LIST_MIN entries and more become one entry with a list. */
static PmhResult
make_lists(PmhBulk *bulk, PmhBulkRange *range)
{
	PmhEntry   *entry = range->entry;
	size_t		kept = 0;
	size_t		n;

	if (!pmh_sort_entries(entry, range->n, pmh_wait_cancelled))
		return pmh_fail_cancelled(bulk->table);
	for (size_t i = 0; i < range->n; i += n)
	{
		for (n = 1; i + n < range->n && entry[i + n].hash == entry[i].hash; n++)
			;
		if (n >= LIST_MIN)
		{
			uint64_t	payload = 0;
			PmhResult	result = make_list(bulk, &entry[i], n, &payload);

			if (result != PMH_OK)
				return result;
			entry[kept].hash = entry[i].hash;
			entry[kept++].value = payload | PMH_BULK_IS_LIST;
		}
		else
		{
			memmove(&entry[kept], &entry[i], n * sizeof(PmhEntry));
			kept += n;
		}
	}
	range->n = kept;
	range->listed = true;
	return PMH_OK;
}

/* ---- ranges ---- */

/*
 * Two neighbours: leave them together if they fit one segment, else write
 * what has not been written.
 */
static PmhResult
join(PmhBulk *bulk, PmhBulkRange *left, PmhBulkRange *right, PmhBulkRange *whole)
{
	PmhResult	result = PMH_OK;

	if (!left->written && !right->written && left->n + right->n <= bulk->most)
	{
		memmove(left->entry + left->n, right->entry, right->n * sizeof(PmhEntry));
		whole->entry = left->entry;
		whole->n = left->n + right->n;
		return PMH_OK;
	}
	whole->written = true;
	if (!left->written)
		result = pmh_bulk_write_range(bulk, left);
	if (result == PMH_OK && !right->written)
		result = pmh_bulk_write_range(bulk, right);
	return result;
}

/*
 * Build the parts [low, high) that deal() has made of a range: together they
 * are the range *part of depth 'depth'.
 */
static PmhResult
build_parts(PmhBulk *bulk, const PmhBulkRange *range, const size_t *start,
			uint32_t bits, uint32_t low, uint32_t high, uint32_t depth,
			PmhBulkRange *part)
{
	uint32_t	middle = low + (high - low) / 2;
	PmhBulkRange		left;
	PmhBulkRange		right;
	PmhResult	result;

	part->entry = range->entry + start[low];
	part->n = start[high] - start[low];
	part->depth = depth;
	part->prefix = (range->prefix << bits | low) >> (range->depth + bits - depth);
	part->written = false;
	part->listed = range->listed;
	if (high - low == 1)
		return pmh_bulk_build_range(bulk, part);

	result = build_parts(bulk, range, start, bits, low, middle, depth + 1, &left);
	if (result == PMH_OK)
		result = build_parts(bulk, range, start, bits, middle, high, depth + 1, &right);
	if (result == PMH_OK)
		result = join(bulk, &left, &right, part);
	return result;
}

/* Into how many bits to deal a range that is too large for a segment. */
static uint32_t
digit_bits(const PmhBulk *bulk, const PmhBulkRange *range)
{
	uint32_t	bits = 1;

	while (bits < PMH_DEAL_BITS && range->depth + bits < bulk->depth &&
		   range->n >> bits > bulk->most)
		bits++;
	return bits;
}

PmhResult
pmh_bulk_build_range(PmhBulk *bulk, PmhBulkRange *range)
{
	size_t		start[PMH_DEAL_DIGITS + 1];
	PmhBulkRange		whole;
	uint32_t	bits;
	PmhResult	result;

	if (pmh_wait_cancelled())
		return pmh_fail_cancelled(bulk->table);
	if (!range->listed &&
		(range->n <= bulk->most ? has_duplicates(bulk, range) :
		 range->depth >= bulk->depth))
	{
		result = make_lists(bulk, range);
		if (result != PMH_OK)
			return result;
	}
	if (range->n <= bulk->most)
		return PMH_OK;
	if (range->depth == PMH_MAX_DEPTH)
		return pmh_bulk_write_range(bulk, range);

	bits = digit_bits(bulk, range);
	if (!pmh_deal_entries(range->entry, range->n, 64 - range->depth - bits, bits, start,
						  pmh_wait_cancelled))
		return pmh_fail_cancelled(bulk->table);
	result = build_parts(bulk, range, start, bits, 0, UINT32_C(1) << bits,
						 range->depth, &whole);
	if (result == PMH_OK)
		*range = whole;
	return result;
}
