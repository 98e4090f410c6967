/*-------------------------------------------------------------------------
 *
 * drain.c
 *	  Deleting many values of one key in one pass along its list.
 *
 * pmh_delete looks for its value from the head of the list on, so taking a
 * long list apart value by value takes time in proportion to the square of its
 * length.  Here each buffer is held against all values wanted at once.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "values.h"

/* Buffers seen to under one hold of the stripe. */
#define STEP_BUFFERS	16

/* What is to go: pairs of one hash, ascending by value, and those gone. */
typedef struct Drain
{
	const PmhEntry *entry;
	size_t		n;
	uint8_t    *gone;
	size_t		left;
	uint64_t	budget;			/* to notice a list that runs in a circle ... */
	bool		given_up;		/* ... or changes all the time */
} Drain;

/* If the value is (still) wanted, note that it is gone. */
static bool
claim(Drain *d, uint64_t value)
{
	size_t		low = 0;
	size_t		high = d->n;

	while (low < high)
	{
		size_t		middle = (low + high) / 2;

		if (d->entry[middle].value < value)
			low = middle + 1;
		else
			high = middle;
	}
	while (low < d->n && d->entry[low].value == value && d->gone[low])
		low++;
	if (low == d->n || d->entry[low].value != value)
		return false;
	d->gone[low] = 1;
	d->left--;
	return true;
}

/*
 * Take out what is wanted of a buffer of a locked list; if nothing is left of
 * it, the buffer as well.  'next' is what follows it, and has been checked: so
 * that cannot fail.
 */
static void
drain_buffer(PmhTable *t, const PmhPlace *place, PmhListSlot *at,
			 PmhListWalk *walk, uint64_t payload, uint64_t next, Drain *d)
{
	uint16_t	mask[PMH_MAX_LINES] = {0};
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	left = 0;
	bool		any = false;

	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		const PmhValueLine *line = pmh_buffer_line(t, payload, i);

		for (uint32_t m = pm_load(&line->state) & PMH_LINE_OCCUPIED; m != 0; m &= m - 1)
		{
			unsigned	k = (unsigned) __builtin_ctz(m);

			if (claim(d, pmh_line_value(line, k)))
				mask[i] |= (uint16_t) (1u << k);
			else
				left++;
		}
		any = any || mask[i] != 0;
	}
	if (any && left == 0)
	{
		(void) pmh_list_drop(t, place, at, walk->before, payload);
		if (walk->before == 0)
			at->payload = next;
		return;
	}
	walk->before = payload;
	if (!any)
		return;
	pmh_buffer_bump(t, pmh_pointer_offset(payload));
	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		if (mask[i] != 0)
			pmh_line_clear(t, payload, i, mask[i]);
	}
}

/*
 * Some buffers of the list; *done: there are no more, or nothing is wanted, or
 * more has been read than a list can have.
 */
static PmhResult
drain_list(PmhTable *t, const PmhPlace *place, PmhListWalk *walk, Drain *d,
		   bool *done)
{
	uint64_t	hash = d->entry[0].hash;
	PmhListSlot at;
	uint64_t	payload;
	PmhResult	result;

	*done = !pmh_segment_find_list(t, place, hash, &at);
	if (*done)
		return PMH_OK;
	result = pmh_list_resume(t, hash, at.payload, walk, &payload);
	if (result != PMH_OK)
		return result;
	for (unsigned i = 0; i < STEP_BUFFERS && result == PMH_OK && payload != 0 && d->left > 0; i++)
	{
		uint64_t	next;

		if (!pmh_list_pay(&d->budget, payload))
		{
			*done = d->given_up = true;
			return PMH_OK;
		}
		result = pmh_buffer_follow(t, hash, payload, &next);
		if (result == PMH_OK)
			drain_buffer(t, place, &at, walk, payload, next, d);
		if (result == PMH_OK)
			payload = next;
	}
	pmh_list_pause(t, walk);
	*done = result == PMH_OK && (payload == 0 || d->left == 0);
	return result;
}

/*
 * Take the plain entries that are wanted out of the buckets of a locked
 * segment.  To be done before the list is looked at: an entry may come from a
 * bucket into the list, but not the other way.
 */
static void
drain_buckets(PmhTable *t, const PmhPlace *place, Drain *d)
{
	uint32_t	bucket[4];
	unsigned	n = pmh_segment_buckets_of(t, place, d->entry[0].hash, bucket);

	for (unsigned i = 0; i < n; i++)
	{
		const PmhBucket *b = pmh_bucket(t, place, bucket[i]);
		uint32_t	state;
		int			pointer;
		uint32_t	mask = pmh_bucket_find(b, d->entry[0].hash, &state, &pointer);
		uint32_t	out = 0;

		for (; pointer < 0 && mask != 0; mask &= mask - 1)
		{
			unsigned	slot = (unsigned) __builtin_ctz(mask);

			if (claim(d, pmh_word_payload(pmh_slot_load_word(b, slot))))
				out |= UINT32_C(1) << slot;
		}
		if (out != 0)
			pmh_bucket_clear(t, place, bucket[i], out, false);
	}
}

/*
 * Delete what is left by what it is.  The list has changed all the time, or it
 * is damaged, which this will tell.
 */
static PmhResult
drain_rest(PmhTable *t, Drain *d)
{
	PmhResult	result = PMH_OK;

	for (size_t i = 0; i < d->n && (result == PMH_OK || result == PMH_NOT_FOUND); i++)
	{
		if (d->gone[i])
			continue;
		result = pmh_delete(t, d->entry[i].hash, d->entry[i].value);
		if (result == PMH_OK)
			d->left--;
	}
	return result == PMH_NOT_FOUND ? PMH_OK : result;
}

PmhResult
pmh_drain(PmhTable *t, const PmhEntry *entries, size_t n, size_t *removed)
{
	Drain		d = {entries, n, calloc(n, 1), n, 4 * pmh_list_budget(t), false};
	PmhListWalk walk = {0};
	bool		first = true;
	bool		done = false;
	PmhResult	result = PMH_OK;

	*removed = 0;
	if (d.gone == NULL)
		return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory to delete %zu values of one key.", n);
	while (result == PMH_OK && !done)
	{
		PmhPlace	place;

		result = pmh_segment_lock(t, entries[0].hash, &place);
		if (result != PMH_OK)
			break;
		if (first)
			drain_buckets(t, &place, &d);
		first = false;
		result = drain_list(t, &place, &walk, &d, &done);
		pmh_segment_unlock(&place);
		if (result == PMH_NEED)
			result = pmh_provide(t);
	}
	if (result == PMH_OK && d.given_up)
		result = drain_rest(t, &d);
	*removed = n - d.left;
	free(d.gone);
	return result;
}
