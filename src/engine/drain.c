/*-------------------------------------------------------------------------
 *
 * drain.c
 *	  Deleting many values of one key in one walk along its list.
 *
 * pmh_delete looks for its value from the head of the list on, so taking a long list apart
 * value by value takes time in proportion to the square of its length.  Here each buffer is
 * compared with all wanted values at once.
 *
 * No process may have to wait for the length of a list.  So only the last buffers, where
 * most changes are, are worked on while the segment is locked; another one is read without a
 * lock, as a cursor reads it.  If there is a wanted value in it, the segment is locked, and
 * it is read once more.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "error.h"
#include "handle.h"
#include "layout.h"
#include "list.h"
#include "pm.h"
#include "segment.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"

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
	PmhListPosition at;
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

/* The first of the wanted pairs that is not seen to and has this value, or d->n. */
static inline size_t
find_wanted(const PmhDrain *d, uint64_t value)
{
	uint32_t	bit = filter_bit(value);
	size_t		low = 0;
	size_t		high = d->n;

	if ((d->filter[bit / 64] >> (bit % 64) & 1) == 0)
		return d->n;
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
	return low < d->n && d->entry[low].value == value ? low : d->n;
}

/* If the value is (still) wanted, it is claimed for the buffer at hand. */
static inline bool
claim(PmhDrain *d, uint64_t value)
{
	size_t		at = find_wanted(d, value);

	if (at == d->n)
		return false;
	d->state[at] = PMH_PAIR_REMOVED;
	d->left--;
	d->claimed[d->nclaimed++] = at;
	return true;
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

	PMH_ASSERT(!d->begun && pmh_is_locked(&place->stripe->lock));
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

/* Take what is wanted out of the buffer of values that a path leads to. */
static PmhResult
drain_buffer(PmhTable *t, PmhDrain *d, PmhListPath *path)
{
	uint64_t	payload = path->payload[0];
	uint32_t	class = pmh_pointer_class(payload);
	PmhResult	result = PMH_OK;

	PMH_ASSERT(payload != 0 && pmh_is_locked(&path->place->stripe->lock));
	d->nclaimed = 0;
	memset(d->mask, 0, sizeof(d->mask));
	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		const PmhValueLine *line = pmh_buffer_line(t, payload, i);

		for (uint32_t m = pm_load(&line->state) & pmh_line_cells(payload, i); m != 0; m &= m - 1)
		{
			unsigned	k = (unsigned) __builtin_ctz(m);

			if (claim(d, pmh_line_value(line, k)))
				d->mask[i] |= (uint16_t) (1u << k);
		}
	}
	if (d->nclaimed > 0)
		result = pmh_list_take_out(t, path, d->wait, d->mask);
	if (result != PMH_BUSY)
		return result;
	/* What was claimed stays for now. */
	for (uint32_t i = 0; i < d->nclaimed; i++)
		d->state[d->claimed[i]] = PMH_PAIR_LEFT;
	d->left += d->nclaimed;
	PMH_ASSERT(d->left <= d->n);
	d->passed_over = true;
	return PMH_OK;
}

/*
 * With the segment locked: if it begins, the plain entries and the last buffers of the list;
 * else the last one in a slot below 'below'.
 */
static PmhResult
drain_locked(PmhTable *t, PmhDrain *d, uint64_t *below)
{
	PmhPlace	place;
	PmhListSlot slot;
	uint32_t	lines = 0;
	PmhResult	result;

	PMH_ASSERT(*below > 0 && !t->space_held);
	PMH_STOP_POINT("drain_before_lock");
	result = pmh_segment_lock_or_leave(t, d->hash, d->wait, &place);
	if (result != PMH_OK)
		return result;
	if (!d->begun)
		drain_buckets(t, &place, d);
	do
	{
		PmhListPath path = {.place = &place};

		if (!pmh_segment_find_list(t, &place, d->hash, &slot))
		{
			*below = 0;
			break;
		}
		path.head = slot.payload;
		path.bucket = slot.bucket;
		path.bucket_slot = slot.slot;
		result = pmh_list_find_below(t, d->hash, &path, below);
		lines += pmh_class_lines(pmh_pointer_class(path.payload[0]));
		if (result == PMH_OK && path.payload[0] != 0)
			result = drain_buffer(t, d, &path);
		if (!d->wait)
			pmh_space_release(t);
	} while (result == PMH_OK && !d->begun && d->left > 0 && *below > 0 &&
			 lines + PMH_MAX_LINES <= PMH_LOCKED_LINES);
	pm_fence(&t->file);
	PMH_STOP_POINT("drain_before_unlock");
	pmh_segment_unlock(&place);
	d->begun |= result == PMH_OK;
	return result;
}

/*
 * See to the next buffer of the list.  It is read without a lock; has it anything that is
 * wanted?
 */
static PmhResult
drain_next(PmhTable *t, PmhDrain *d)
{
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition at = d->at;
	uint64_t	below = at.below;
	uint32_t	n;
	bool		found = false;
	PmhResult	result;

	PMH_ASSERT(d->begun && below > 0);
	result = pmh_list_next(t, d->hash, &at, UINT32_MAX, value, &n);
	for (uint32_t i = 0; d->n == 1 && i < n; i++)
		found |= value[i] == d->entry->value;
	for (uint32_t i = 0; d->n > 1 && i < n && !found; i++)
		found = find_wanted(d, value[i]) < d->n;
	/* A slot may have another buffer by now, but none that was there is in front of it. */
	if (result == PMH_OK && found)
	{
		below = at.below + 1;
		result = drain_locked(t, d, &below);
	}
	if (result == PMH_OK)
		d->at = at;
	/* The list does not stand still: who does not wait leaves the rest to others. */
	return result == PMH_RETRY && !d->wait ? PMH_BUSY : result;
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
	PMH_ASSERT(d->passed_over || d->left == 0);
	return PMH_DONE;
}

/* ---- for others ---- */

PmhDrain *
pmh_drain_begin(PmhTable *t, const PmhEntry *entries, size_t n, bool wait,
				uint8_t *state)
{
	PmhDrain   *d = malloc(sizeof(*d));

	PMH_ASSERT(n > 0 && entries[0].hash == entries[n - 1].hash);
	PMH_ASSERT(entries[0].value <= entries[n - 1].value);
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
	d->at = PMH_LIST_START;
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

	if (d->left == 0 || (d->begun && d->at.below == 0))
		return finish(d);
	result = d->begun ? drain_next(t, d) : drain_locked(t, d, &d->at.below);
	if (result == PMH_NEED)
		return pmh_provide(t);
	if (result == PMH_BUSY)
	{
		d->passed_over = true;
		return finish(d);
	}
	return result == PMH_RETRY ? PMH_OK : result;
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
	PMH_ASSERT(state != PMH_PAIR_LEFT);
	return state == PMH_PAIR_REMOVED ? PMH_OK : PMH_NOT_FOUND;
}
