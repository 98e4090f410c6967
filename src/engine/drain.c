/*-------------------------------------------------------------------------
 *
 * drain.c
 *	  Deleting many values of one key in one walk along its list.
 *
 * pmh_delete looks for its value from the head of the list on, so taking a long list apart
 * value by value takes time in proportion to the square of its length.  Here each buffer is
 * compared with all wanted values at once.
 *
 * No process may have to wait for the length of a list.  So only the first buffers, where most
 * lists end and most changes are, are worked on while the segment is locked; the others are
 * read as a cursor reads them.  Where a wanted value is found the segment is locked; if the
 * buffer's version has not changed since, it is still in the list, and each value in its cell.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "buffer.h"
#include "cursor.h"
#include "directory.h"
#include "drain.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "list_rewrite.h"
#include "list_write.h"
#include "place.h"
#include "pm.h"
#include "segment.h"
#include "stop_point.h"
#include "table.h"

/* Positions lost in one walk until a reader leaves the rest to others. */
#define MOST_LOSSES		32

/* A bit for each of the values wanted, by a hash: most others are sorted out at once. */
#define FILTER_BITS		12

struct PmhDrain
{
	const PmhEntry *entry;		/* what is to go: of one hash, by value */
	size_t		n;
	uint8_t    *state;			/* PmhPairState of each */
	size_t		left;			/* not claimed */
	bool		wait;
	bool		begun;
	bool		passed_over;	/* something has stayed since a lock was held */
	uint64_t	hash;
	unsigned	losses;
	PmhListPosition at;			/* the buffer to go on with ... */
	PmhListPosition before;		/* ... and what points to it */
	PmhListCircle circle;
	uint64_t	filter[(1 << FILTER_BITS) / 64];

	/* the buffer at hand: */
	uint16_t	mask[PMH_MAX_LINES];	/* cells that are to be cleared */
	uint32_t	nclaimed;
	size_t		claimed[PMH_STEP_MAX];
};

static inline uint32_t
filter_bit(uint64_t value)
{
	return (uint32_t) (value * UINT64_C(0x9e3779b97f4a7c15) >> (64 - FILTER_BITS));
}

/* ---- what is wanted ---- */

/* If the value is (still) wanted, it is claimed for the buffer at hand. */
static inline bool
claim(PmhDrain *d, uint64_t value)
{
	uint32_t	bit = filter_bit(value);
	size_t		low = 0;
	size_t		high = d->n;

	if ((d->filter[bit / 64] >> (bit % 64) & 1) == 0)
		return false;
	while (low < high)
	{
		size_t		middle = (low + high) / 2;

		if (d->entry[middle].value < value)
			low = middle + 1;
		else
			high = middle;
	}
	while (low < d->n && d->entry[low].value == value && d->state[low] != PMH_PAIR_LEFT)
		low++;
	if (low == d->n || d->entry[low].value != value)
		return false;
	d->state[low] = PMH_PAIR_REMOVED;
	d->left--;
	d->claimed[d->nclaimed++] = low;
	return true;
}

/* What was claimed for the buffer at hand stays for now. */
static void
give_claims_back(PmhDrain *d)
{
	for (uint32_t i = 0; i < d->nclaimed; i++)
		d->state[d->claimed[i]] = PMH_PAIR_LEFT;
	d->left += d->nclaimed;
}

/*
 * Claim what is wanted of a buffer; mask[] tells where it is.  Without a lock this
 * is to be believed only if the buffer's version is the same afterwards: then no
 * cell has been given to another value.
 */
static void
claim_in_buffer(const PmhTable *t, PmhDrain *d, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);

	d->nclaimed = 0;
	memset(d->mask, 0, sizeof(d->mask));
	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		const PmhValueLine *line = pmh_buffer_line(t, payload, i);

		for (uint32_t m = pm_load_acquire(&line->state) & pmh_line_cells(payload, i);
			 m != 0; m &= m - 1)
		{
			unsigned	k = (unsigned) __builtin_ctz(m);

			if (claim(d, pmh_line_value(line, k)))
				d->mask[i] |= (uint16_t) (1u << k);
		}
	}
}

/* ---- while the segment is locked ---- */

/*
 * Take the plain entries that are wanted out of the buckets of a locked
 * segment.  To be done before the list is looked at: an entry may come from a
 * bucket into the list, but not the other way.
 */
static void
drain_buckets(PmhTable *t, const PmhPlace *place, PmhDrain *d)
{
	uint32_t	bucket[4];
	unsigned	n = pmh_segment_buckets_of(t, place, d->hash, bucket);

	d->nclaimed = 0;
	for (unsigned i = 0; i < n; i++)
	{
		const PmhBucket *b = pmh_bucket(t, place, bucket[i]);
		uint32_t	state;
		int			pointer;
		uint32_t	mask = pmh_bucket_find(b, d->hash, &state, &pointer);
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
 * See to the first buffers of the locked list, from d->at on, which is where it
 * goes on after them then.  As pmh_list_take_out.
 */
static PmhResult
drain_first(PmhTable *t, const PmhPlace *place, PmhDrain *d)
{
	uint32_t	lines = 0;

	while (d->at.payload != 0 && d->left > 0)
	{
		uint64_t	next;
		PmhResult	result;

		lines += pmh_class_lines(pmh_pointer_class(d->at.payload));
		if (lines > PMH_LOCKED_LINES)
			break;
		result = pmh_buffer_follow(t, d->hash, d->at.payload, &next);
		if (result != PMH_OK)
			return result;
		claim_in_buffer(t, d, d->at.payload);
		if (d->nclaimed > 0)
			result = pmh_list_take_out(t, place, d->hash, d->wait, &d->at,
									   &d->before, d->mask);
		if (result != PMH_OK)
			give_claims_back(d);
		if (result == PMH_BUSY)
			d->passed_over = true;
		else if (result != PMH_OK)
			return result;
		if (d->at.payload != 0)
			d->before = d->at;
		d->at = pmh_list_at_locked(t, next);
	}
	return PMH_OK;
}

/* Begin, or begin anew: plain entries, and the first buffers of the list. */
static PmhResult
start(PmhTable *t, PmhDrain *d)
{
	PmhPlace	place;
	PmhListSlot slot = {0};
	PmhResult	result = pmh_segment_lock_or_leave(t, d->hash, d->wait, &place);

	if (result != PMH_OK)
		return result;
	memset(&d->before, 0, sizeof(d->before));
	memset(&d->circle, 0, sizeof(d->circle));
	drain_buckets(t, &place, d);
	(void) pmh_segment_find_list(t, &place, d->hash, &slot);
	if (slot.payload != 0)
		result = pmh_buffer_check(t, d->hash, slot.payload);
	if (result == PMH_OK)
	{
		d->at = pmh_list_at_locked(t, slot.payload);
		result = drain_first(t, &place, d);
	}
	pm_fence(&t->file);
	PMH_STOP_POINT("drain_before_unlock");
	pmh_segment_unlock(&place);
	d->begun = result == PMH_OK;
	return result;
}

/* ---- without the lock ---- */

/*
 * The buffer to go on with has changed.  Find it again; if it has left the list,
 * begin anew.  (Of the values that were there all the time, those not seen yet
 * are in the buffer, in the same cells, or after it as long as it stays.)
 */
static PmhResult
find_again(PmhTable *t, PmhDrain *d)
{
	PmhResult	result;

	if (d->losses++ == MOST_LOSSES && !d->wait)
		return PMH_BUSY;
	result = pmh_list_find_again(t, d->hash, &d->at, &d->before);
	if (result == PMH_RETRY)
		return d->wait ? PMH_OK : PMH_BUSY;
	if (result != PMH_NOT_FOUND)
		return result;
	d->begun = false;
	return PMH_OK;
}

/* Take out what was claimed of the buffer at hand. */
static PmhResult
take_out(PmhTable *t, PmhDrain *d)
{
	PmhPlace	place;
	PmhResult	result;

	PMH_STOP_POINT("drain_before_lock");
	result = pmh_segment_lock_or_leave(t, d->hash, d->wait, &place);
	if (result != PMH_OK)
		return result;
	result = pmh_list_take_out(t, &place, d->hash, d->wait, &d->at,
							   &d->before, d->mask);
	pm_fence(&t->file);
	pmh_segment_unlock(&place);
	return result;
}

/* See to the buffer at hand. */
static PmhResult
drain_buffer(PmhTable *t, PmhDrain *d)
{
	PmhListPosition next;
	PmhResult	result;

	claim_in_buffer(t, d, d->at.payload);
	result = pmh_list_pass(t, d->hash, &d->at, &next);
	if (result == PMH_OK && d->nclaimed > 0)
		result = take_out(t, d);
	if (result != PMH_OK)
		give_claims_back(d);
	if (result == PMH_BUSY)
		d->passed_over = true;
	else if (result != PMH_OK)
		return result;
	if (d->at.payload != 0)
		d->before = d->at;
	d->at = next;
	if (pmh_list_is_circle(t, &d->circle, &d->at))
		return pmh_list_circle(t, d->at.payload);
	return PMH_OK;
}

/* The walk is over: what was not met is not there, unless it was passed over. */
static PmhResult
finish(PmhDrain *d)
{
	for (size_t i = 0; i < d->n && !d->passed_over && d->left > 0; i++)
	{
		if (d->state[i] == PMH_PAIR_LEFT)
		{
			d->state[i] = PMH_PAIR_ABSENT;
			d->left--;
		}
	}
	return PMH_DONE;
}

/* ---- for others ---- */

PmhDrain *
pmh_drain_begin(PmhTable *t, const PmhEntry *entries, size_t n, bool wait,
				uint8_t *state)
{
	PmhDrain   *d = malloc(sizeof(*d));

	if (d == NULL)
	{
		(void) pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory to delete %zu values of one key.", n);
		return NULL;
	}
	memset(d, 0, offsetof(PmhDrain, mask));
	d->entry = entries;
	d->n = d->left = n;
	d->state = state;
	d->wait = wait;
	d->hash = entries[0].hash;
	for (size_t i = 0; i < n; i++)
	{
		uint32_t	bit = filter_bit(entries[i].value);

		d->filter[bit / 64] |= UINT64_C(1) << (bit % 64);
	}
	return d;
}

PmhResult
pmh_drain_step(PmhTable *t, PmhDrain *d)
{
	PmhResult	result;

	if (d->left == 0 || (d->begun && d->at.payload == 0))
		return finish(d);
	result = d->begun ? drain_buffer(t, d) : start(t, d);
	if (result == PMH_NEED)
		return pmh_provide(t);
	if (result == PMH_RETRY)
		result = find_again(t, d);
	if (result == PMH_BUSY)
	{
		d->passed_over = true;
		result = PMH_NOT_FOUND;
	}
	return result == PMH_NOT_FOUND ? finish(d) : result;
}

void
pmh_drain_end(PmhDrain *d)
{
	free(d);
}

PmhResult
pmh_drain_one(PmhTable *t, uint64_t hash, uint64_t value)
{
	const PmhEntry entry = {hash, value};
	uint8_t		state = PMH_PAIR_LEFT;
	PmhDrain   *d = pmh_drain_begin(t, &entry, 1, true, &state);
	PmhResult	result = PMH_OK;

	if (d == NULL)
		return PMH_ERR_NO_MEMORY;
	while (result == PMH_OK)
		result = pmh_drain_step(t, d);
	pmh_drain_end(d);
	if (result != PMH_DONE)
		return result;
	return state == PMH_PAIR_REMOVED ? PMH_OK : PMH_NOT_FOUND;
}
