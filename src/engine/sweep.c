/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  Sweeps: the whole table in hash order.
 *
 * See src/README, "Cursors and sweeps".  A step is a segment with its small lists, or a
 * buffer of a long list, which a cursor streams after the segment it hangs on;
 * the plain entries of its key that the segment's step has given are left out
 * there.
 *
 * A sweep that begins while it is unknown what is free in value blocks also finds that
 * out (value_space.c).
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
#include "segment.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"

/*
 * Lists found in a segment after its step has this many entries are streamed,
 * so that a step stays a bounded piece of work under a lock.
 */
#define STEP_ENTRIES	8192

/* Steps that have no entries, until the caller has a word. */
#define EMPTY_STEPS		32

/* A list to be streamed, and what its key has given already. */
typedef struct PmhSweepQueued
{
	uint64_t	hash;
	uint64_t	value;			/* meaningful if given */
	bool		given;			/* else: stream this hash */
} PmhSweepQueued;

struct PmhSweepPrivate
{
	PmhPosition segment;		/* where the next segment begins */
	PmhSnapshot snap;			/* of the last one, and ... */
	PmhBucket  *copy;			/* ... its buckets */
	size_t		capacity;		/* of entries[] */
	PmhSweepQueued *queue;		/* lists first, then what they have given */
	size_t		queued;			/* all in it */
	size_t		queued_lists;
	size_t		queue_next;
	size_t		queue_capacity;
	bool		cursor_busy;
	PmhCursor	cursor;
	PmhValueWalk values;
};

static PmhResult
no_memory(PmhTable *t)
{
	return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
					"There is no memory for the entries of a segment.");
}

static PmhResult
reserve_entries(PmhTable *t, PmhSweep *sweep, size_t n)
{
	struct PmhSweepPrivate *p = sweep->priv;
	size_t		capacity = p->capacity ? p->capacity : 2048;
	PmhEntry   *entries;

	PMH_ASSERT(sweep->n <= p->capacity);
	if (sweep->n + n <= p->capacity)
		return PMH_OK;
	while (capacity < sweep->n + n)
		capacity *= 2;
	entries = realloc(sweep->entries, capacity * sizeof(PmhEntry));
	if (entries == NULL)
		return no_memory(t);
	sweep->entries = entries;
	p->capacity = capacity;
	return PMH_OK;
}

static void
add_entry(PmhSweep *sweep, uint64_t hash, uint64_t value)
{
	PMH_ASSERT(sweep->n < sweep->priv->capacity && value <= PMH_VALUE_MAX);
	sweep->entries[sweep->n++] = (PmhEntry) {hash, value};
}

static PmhResult
enqueue(PmhTable *t, struct PmhSweepPrivate *p, PmhSweepQueued item)
{
	PMH_ASSERT(p->queued <= p->queue_capacity);
	if (p->queued == p->queue_capacity)
	{
		size_t		capacity = p->queue_capacity ? 2 * p->queue_capacity : 64;
		PmhSweepQueued *queue = realloc(p->queue, capacity * sizeof(PmhSweepQueued));

		if (queue == NULL)
			return no_memory(t);
		p->queue = queue;
		p->queue_capacity = capacity;
	}
	p->queue[p->queued++] = item;
	return PMH_OK;
}

/*
 * The list at a pointer slot of the segment's copy: its values become entries
 * if it is small and still there, else it is put into the queue.
 */
static PmhResult
take_list(PmhTable *t, PmhSweep *sweep, uint32_t bucket, uint64_t hash, uint64_t payload)
{
	struct PmhSweepPrivate *p = sweep->priv;
	uint64_t	value[PMH_STEP_MAX];
	PmhListPosition pos = PMH_LIST_START;
	uint64_t	version;
	uint32_t	n = 0;
	PmhResult	result;

	PMH_ASSERT(bucket < p->snap.place.buckets);
	do
		result = pmh_buffer_check_span(t, payload);
	while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	if (result != PMH_OK && result != PMH_ERR_CORRUPT)
		return result;
	PMH_STOP_POINT("sweep_before_list");
	version = pmh_buffer_version(t, pmh_pointer_offset(payload));
	if (!pmh_snapshot_current(t, &p->snap, bucket))
		return enqueue(t, p, (PmhSweepQueued) {.hash = hash});
	if (result != PMH_OK)
		return result;
	if (pmh_pointer_level(payload) > 0 || sweep->n > STEP_ENTRIES)
		return enqueue(t, p, (PmhSweepQueued) {.hash = hash});
	result = pmh_list_step(t, hash, payload, version, &pos, UINT32_MAX, value, &n);
	if (result == PMH_RETRY || result == PMH_NEED)
		return enqueue(t, p, (PmhSweepQueued) {.hash = hash});
	if (result == PMH_OK)
		result = reserve_entries(t, sweep, n);
	if (result != PMH_OK)
		return result;
	pmh_value_mark(t, &p->values, payload);
	for (uint32_t i = 0; i < n; i++)
		add_entry(sweep, hash, value[i]);
	return PMH_OK;
}

/*
 * The entries of a bucket of the copy.  Those in front of the position have
 * been given: by the first half of a split whose second half the directory does
 * not name yet, or by a buddy that has been merged with the segment after it.
 */
static PmhResult
take_bucket(PmhTable *t, PmhSweep *sweep, uint32_t bucket)
{
	const PmhBucket *b = &sweep->priv->copy[bucket];
	uint32_t	plain;
	uint32_t	pointers;
	PmhResult	result = reserve_entries(t, sweep, PMH_SLOTS);

	pmh_bucket_kinds(b, &plain, &pointers);
	for (; result == PMH_OK && plain != 0; plain &= plain - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(plain);
		uint64_t	word = pmh_slot_load_word(b, slot);
		uint64_t	hash = pmh_slot_load_hash(b, slot, word);

		if (hash >= sweep->priv->segment.next)
			add_entry(sweep, hash, pmh_word_payload(word));
	}
	for (; result == PMH_OK && pointers != 0; pointers &= pointers - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(pointers);
		uint64_t	word = pmh_slot_load_word(b, slot);
		uint64_t	hash = pmh_slot_load_hash(b, slot, word);

		if (hash >= sweep->priv->segment.next)
			result = take_list(t, sweep, bucket, hash, pmh_word_payload(word));
	}
	return result;
}

static PmhResult
step_segment(PmhTable *t, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	PmhResult	result;

	PMH_ASSERT(!p->cursor_busy && !p->segment.through);
	p->queued = p->queued_lists = p->queue_next = 0;
	result = pmh_segment_read(t, p->segment.next, &p->snap, p->copy);
	for (uint32_t b = 0; result == PMH_OK && b < p->snap.place.buckets; b++)
		result = take_bucket(t, sweep, b);
	if (result != PMH_OK)
		return result;
	/* Note which plain entries of this step belong to keys that will be streamed. */
	p->queued_lists = p->queued;
	for (size_t i = 0; i < sweep->n && p->queued_lists > 0; i++)
	{
		const PmhEntry e = sweep->entries[i];

		for (size_t q = 0; q < p->queued_lists; q++)
		{
			if (p->queue[q].hash != e.hash)
				continue;
			result = enqueue(t, p, (PmhSweepQueued) {.hash = e.hash, .value = e.value,
							 .given = true});
			if (result != PMH_OK)
				return result;
		}
	}
	pmh_position_advance(&p->segment, pmh_elem_depth(p->snap.place.elem));
	sweep->segments_total = ++sweep->segments_done;
	if (!p->segment.through)
		sweep->segments_total = (uint64_t) ((double) sweep->segments_done /
			((double) p->segment.next / 18446744073709551616.0));
	return PMH_OK;
}

/* Begin with the next list of the queue. */
static PmhResult
open_list(PmhTable *t, const PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	uint64_t	hash = p->queue[p->queue_next++].hash;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(!p->cursor_busy && p->queue_next <= p->queued_lists);
	pmh_cursor_open(t, &p->cursor, hash);
	for (size_t i = p->queued_lists; result == PMH_OK && i < p->queued; i++)
	{
		if (p->queue[i].hash == hash)
			result = pmh_cursor_leave_out(t, &p->cursor, p->queue[i].value);
	}
	p->cursor_busy = true;
	return result;
}

/* A piece of a long list; may turn out to be empty. */
static PmhResult
step_list(PmhTable *t, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	PmhResult	result;

	PMH_ASSERT(p->cursor_busy);
	p->cursor.batch.n = 0;
	result = pmh_cursor_step(t, &p->cursor, PMH_CURSOR_SWEEPS);
	if (result != PMH_OK)
		return result;
	for (unsigned i = 0; i <= PMH_MAX_LEVEL; i++)
		pmh_value_mark(t, &p->values, p->cursor.at.met[i]);
	p->cursor_busy = !pmh_cursor_at_end(&p->cursor);
	result = reserve_entries(t, sweep, p->cursor.batch.n);
	for (size_t i = 0; result == PMH_OK && i < p->cursor.batch.n; i++)
		add_entry(sweep, p->cursor.hash, p->cursor.batch.value[i]);
	return result;
}

PmhResult
pmh_sweep_begin_reading(PmhTable *table, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = calloc(1, sizeof(*p));

	memset(sweep, 0, sizeof(*sweep));
	if (p != NULL)
		p->copy = malloc(PMH_MAX_SEGMENT_BYTES);
	if (p == NULL || p->copy == NULL)
	{
		free(p);
		return no_memory(table);
	}
	sweep->priv = p;
	return PMH_OK;
}

PmhResult
pmh_sweep_begin(PmhTable *table, PmhSweep *sweep)
{
	PmhResult	result = pmh_sweep_begin_reading(table, sweep);

	if (result != PMH_OK)
		return result;
	result = pmh_conclude(table, pmh_value_walk_begin(table, &sweep->priv->values));
	if (result != PMH_OK)
		pmh_sweep_end(sweep);
	return result;
}

bool
pmh_sweep_reclaims(const PmhSweep *sweep)
{
	return sweep->priv->values.marks;
}

/* Steps until one has entries, some have had none, or the sweep is complete: PMH_DONE. */
static PmhResult
next_entries(PmhTable *table, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(p->queue_next <= p->queued_lists && p->queued_lists <= p->queued);
	sweep->n = 0;
	for (unsigned i = 0; i < EMPTY_STEPS && result == PMH_OK && sweep->n == 0; i++)
	{
		if (p->cursor_busy)
			result = step_list(table, sweep);
		else if (p->queue_next < p->queued_lists)
			result = open_list(table, sweep);
		else if (p->segment.through)
		{
			result = pmh_value_walk_finish(table, &p->values);
			return result == PMH_OK ? PMH_DONE : result;
		}
		else
			result = step_segment(table, sweep);
	}
	return result;
}

PmhResult
pmh_sweep_next(PmhTable *table, PmhSweep *sweep)
{
	return pmh_conclude(table, next_entries(table, sweep));
}

void
pmh_sweep_end(PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;

	if (p != NULL)
	{
		pmh_cursor_free(&p->cursor);
		free(p->copy);
		free(p->queue);
		free(p);
	}
	free(sweep->entries);
	memset(sweep, 0, sizeof(*sweep));
}
