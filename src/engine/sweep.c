/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  Sweeps: the whole table in hash order, and taking dead entries out.
 *
 * See src/README, "Sweeps".  A step is a segment with its small lists, or a
 * buffer of a long list, which a cursor streams after the segment it hangs on;
 * the plain entries of its key that the segment's step has given are left out
 * there.
 *
 * A sweep that begins while the free map of the value space is unknown also
 * finds out what is free (reclaim.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "buffer.h"
#include "cursor.h"
#include "directory.h"
#include "element.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "group.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "list_rewrite.h"
#include "overflow.h"
#include "place.h"
#include "pm.h"
#include "reclaim.h"
#include "segment.h"
#include "stop_point.h"
#include "table.h"

/*
 * Lists found in a segment after its step has this many entries are streamed,
 * so that a step stays a bounded piece of work under a lock.
 */
#define STEP_ENTRIES	8192

/* Steps that have no entries, until the caller has a word. */
#define EMPTY_STEPS		32

/* So often the buffer of a step is looked for when it has changed. */
#define MOST_LOSSES		8

/* Where an entry of the step stands. */
typedef struct Origin
{
	uint64_t	payload;		/* value buffer, or 0: in the bucket itself */
	uint16_t	cell;			/* in the buffer; PMH_NO_CELL: not known */
	uint16_t	bucket;
	uint8_t		slot;			/* of the entry or of the pointer */
} Origin;

/* A list to be streamed, and what its key has given already. */
typedef struct Queued
{
	uint64_t	hash;			/* in the table at hand */
	uint64_t	value;			/* meaningful if given */
	bool		given;			/* else: stream this hash */
} Queued;

struct PmhSweepPrivate
{
	PmhPosition segment;		/* where the next segment begins */
	PmhSide		side;			/* the table that entries[] come from */
	uint64_t	done_before;	/* segments done in the table before it */
	bool		streaming;		/* entries[] come from the cursor */
	PmhSnapshot snap;			/* of the segment they come from, else */
	PmhBucket  *copy;
	Origin	   *origin;
	size_t		capacity;		/* of entries[] and origin[] */
	Queued	   *queue;			/* lists first, then what they have given */
	size_t		queued;			/* all in it */
	size_t		queued_lists;
	size_t		queue_next;
	size_t		queue_capacity;
	bool		cursor_busy;
	PmhListPosition at;			/* the buffer of a streamed step ... */
	PmhListPosition before;		/* ... and the one that it came from */
	PmhCursor	cursor;
	uint16_t	cell[PMH_STEP_MAX];
	PmhReclaim	reclaim;
};

/* ---- collecting ---- */

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
	Origin	   *origin;

	if (sweep->n + n <= p->capacity)
		return PMH_OK;
	while (capacity < sweep->n + n)
		capacity *= 2;
	entries = realloc(sweep->entries, capacity * sizeof(PmhEntry));
	if (entries == NULL)
		return no_memory(t);
	sweep->entries = entries;
	origin = realloc(p->origin, capacity * sizeof(Origin));
	if (origin == NULL)
		return no_memory(t);
	p->origin = origin;
	p->capacity = capacity;
	return PMH_OK;
}

/* The hash is that in the table at hand; what is handed out is the key's. */
static void
add_entry(const PmhTable *t, PmhSweep *sweep, uint64_t hash, uint64_t value,
		  Origin origin)
{
	sweep->entries[sweep->n].hash = pmh_key_hash(t, sweep->priv->side, hash);
	sweep->entries[sweep->n].value = value;
	sweep->priv->origin[sweep->n] = origin;
	sweep->n++;
}

static PmhResult
enqueue(PmhTable *t, struct PmhSweepPrivate *p, Queued item)
{
	if (p->queued == p->queue_capacity)
	{
		size_t		capacity = p->queue_capacity ? 2 * p->queue_capacity : 64;
		Queued	   *queue = realloc(p->queue, capacity * sizeof(Queued));

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
take_list(PmhTable *t, PmhSweep *sweep, uint64_t hash, Origin origin)
{
	struct PmhSweepPrivate *p = sweep->priv;
	uint64_t	value[PMH_STEP_MAX];
	uint16_t	cell[PMH_STEP_MAX];
	PmhListPosition pos = {origin.payload, 0, 0, 0, 0};
	uint32_t	n = 0;
	PmhResult	result;

	do
		result = pmh_buffer_check_span(t, origin.payload);
	while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	if (result != PMH_OK && result != PMH_ERR_CORRUPT)
		return result;
	PMH_STOP_POINT("sweep_before_list");
	pos.version = pmh_buffer_version(t, pmh_pointer_offset(origin.payload));
	if (!pmh_snapshot_current(t, &p->snap, origin.bucket))
		return enqueue(t, p, (Queued) {.hash = hash});
	if (result != PMH_OK)
		return result;
	if (pmh_pointer_class(origin.payload) > PMH_CHAIN_CLASS ||
		sweep->n > STEP_ENTRIES)
		return enqueue(t, p, (Queued) {.hash = hash});
	result = pmh_list_step(t, hash, &pos,
						   pmh_class_capacity(PMH_CHAIN_CLASS) + 1, value, cell, &n);
	if (result == PMH_RETRY || result == PMH_NEED ||
		(result == PMH_OK && pos.payload != 0))
		return enqueue(t, p, (Queued) {.hash = hash});
	if (result == PMH_OK)
		result = reserve_entries(t, sweep, n);
	if (result != PMH_OK)
		return result;
	pmh_reclaim_mark(t, &p->reclaim, origin.payload);
	for (uint32_t i = 0; i < n; i++)
	{
		origin.cell = cell[i];
		add_entry(t, sweep, hash, value[i], origin);
	}
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
			add_entry(t, sweep, hash, pmh_word_payload(word),
					  (Origin) {0, PMH_NO_CELL, (uint16_t) bucket, (uint8_t) slot});
	}
	for (; result == PMH_OK && pointers != 0; pointers &= pointers - 1)
	{
		unsigned	slot = (unsigned) __builtin_ctz(pointers);
		uint64_t	word = pmh_slot_load_word(b, slot);
		uint64_t	hash = pmh_slot_load_hash(b, slot, word);

		if (hash >= sweep->priv->segment.next)
			result = take_list(t, sweep, hash,
							   (Origin) {pmh_word_payload(word), PMH_NO_CELL,
							   (uint16_t) bucket, (uint8_t) slot});
	}
	return result;
}

/* Note which plain entries of this step belong to keys that will be streamed. */
static PmhResult
note_given(PmhTable *t, const PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	PmhResult	result = PMH_OK;

	for (size_t i = 0; i < sweep->n && p->queued_lists > 0; i++)
	{
		uint64_t	hash = pmh_side_hash(t, p->side, sweep->entries[i].hash);

		for (size_t q = 0; q < p->queued_lists; q++)
		{
			if (p->queue[q].hash != hash)
				continue;
			result = enqueue(t, p, (Queued) {.hash = hash,
							 .value = sweep->entries[i].value, .given = true});
			if (result != PMH_OK)
				return result;
		}
	}
	return PMH_OK;
}

/*
 * The position past the segment just read.  The estimate of what is left knows
 * of an overflow table when it begins.
 */
static PmhResult
move_on(PmhTable *t, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	PmhResult	result =
		pmh_position_advance(t, &p->segment, pmh_elem_depth(p->snap.place.elem));

	sweep->segments_done++;
	if (p->side == PMH_PRIMARY)
		p->done_before = p->segment.side == PMH_PRIMARY ? 0 : sweep->segments_done;
	sweep->segments_total = sweep->segments_done;
	if (!p->segment.through && p->segment.next != 0)
		sweep->segments_total = p->done_before + (uint64_t)
			((double) (sweep->segments_done - p->done_before) /
			 ((double) p->segment.next / 18446744073709551616.0));
	return result;
}

static PmhResult
step_segment(PmhTable *t, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	PmhResult	result;

	p->streaming = false;
	p->side = p->segment.side;
	p->queued = p->queued_lists = p->queue_next = 0;
	if (p->reclaim.mark != 0)
	{
		/*
		 * A process that has allocated a buffer before our mark map was recorded has
		 * published it once we have had the lock.
		 */
		PmhPlace	place;

		result = pmh_segment_lock_in(t, p->side, p->segment.next, &place);
		if (result != PMH_OK)
			return result;
		PMH_STOP_POINT("sweep_next_locked");
		pmh_segment_unlock(&place);
	}
	result = pmh_segment_read_in(t, p->side, p->segment.next, &p->snap, p->copy);
	for (uint32_t b = 0; result == PMH_OK && b < p->snap.place.buckets; b++)
		result = take_bucket(t, sweep, b);
	if (result != PMH_OK)
		return result;
	p->queued_lists = p->queued;
	result = note_given(t, sweep);
	if (result == PMH_OK)
		result = move_on(t, sweep);
	return result;
}

/* Begin with the next list of the queue. */
static PmhResult
open_list(PmhTable *t, const PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	uint64_t	hash = p->queue[p->queue_next++].hash;
	PmhResult	result = PMH_OK;

	pmh_cursor_open_in(t, &p->cursor, p->side, hash);
	p->cursor.memory = sweep->memory;
	p->cursor.repeats = sweep->repeats;
	memset(&p->at, 0, sizeof(p->at));
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
	uint64_t	payload;
	PmhResult	result;

	p->streaming = true;
	p->cursor.batch.n = 0;
	if (p->at.payload != 0 && p->at.payload != p->cursor.chunk)
		p->before = p->at;
	p->at = (PmhListPosition) {p->cursor.chunk, p->cursor.chunk_version,
		p->cursor.chunk_birth, 0, 0};
	result = pmh_cursor_step(t, &p->cursor, PMH_MAX_LINES * PMH_VALUES_PER_LINE,
							 p->cell, &payload);
	if (result != PMH_OK)
		return result;
	if (payload != 0)
		pmh_reclaim_mark(t, &p->reclaim, payload);
	sweep->repeated |= sweep->repeats && p->cursor.lost;
	p->cursor_busy = !pmh_cursor_at_end(&p->cursor);
	result = reserve_entries(t, sweep, p->cursor.batch.n);
	for (size_t i = 0; result == PMH_OK && i < p->cursor.batch.n; i++)
		add_entry(t, sweep, p->cursor.side_hash, p->cursor.batch.value[i],
				  (Origin) {payload, p->cell[i], 0, 0});
	return result;
}

PmhResult
pmh_sweep_begin_reading(PmhTable *table, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = calloc(1, sizeof(*p));

	memset(sweep, 0, sizeof(*sweep));
	if (p != NULL)
		p->copy = malloc(pmh_max_segment_size(table));
	if (p == NULL || p->copy == NULL)
	{
		free(p);
		return no_memory(table);
	}
	sweep->priv = p;
	return PMH_OK;
}

/*
 * Without space for a mark map the sweep goes on without one: removing entries
 * is what makes space.
 */
static PmhResult
begin_reclaim(PmhTable *t, PmhReclaim *reclaim)
{
	PmhResult	result = pmh_reclaim_begin(t, reclaim);

	if (result == PMH_ERR_NO_SPACE || result == PMH_ERR_TOO_LARGE)
	{
		reclaim->mark = 0;
		return PMH_OK;
	}
	return result;
}

PmhResult
pmh_sweep_begin(PmhTable *table, PmhSweep *sweep)
{
	PmhResult	result = pmh_sweep_begin_reading(table, sweep);

	if (result != PMH_OK)
		return result;
	result = pmh_conclude(table, begin_reclaim(table, &sweep->priv->reclaim));
	if (result != PMH_OK)
		pmh_sweep_end(table, sweep);
	return result;
}

bool
pmh_sweep_reclaims(const PmhSweep *sweep)
{
	return sweep->priv->reclaim.mark != 0;
}

/* Steps until one has entries, some have had none, or the sweep is complete: PMH_DONE. */
static PmhResult
next_entries(PmhTable *table, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;
	PmhResult	result = PMH_OK;

	sweep->n = 0;
	for (unsigned i = 0; i < EMPTY_STEPS && result == PMH_OK && sweep->n == 0; i++)
	{
		if (p->cursor_busy)
			result = step_list(table, sweep);
		else if (p->queue_next < p->queued_lists)
			result = open_list(table, sweep);
		else if (p->segment.through)
		{
			result = pmh_reclaim_finish(table, &p->reclaim);
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
pmh_sweep_end(PmhTable *table, PmhSweep *sweep)
{
	struct PmhSweepPrivate *p = sweep->priv;

	if (p != NULL)
	{
		if (table != NULL)
			pmh_reclaim_abandon(table, &p->reclaim);
		pmh_cursor_free(&p->cursor);
		free(p->copy);
		free(p->origin);
		free(p->queue);
		free(p);
	}
	free(sweep->entries);
	memset(sweep, 0, sizeof(*sweep));
}

/* ---- taking out ---- */

/* The hash of an entry in the table that it comes from. */
static inline uint64_t
side_hash(const PmhTable *t, const PmhSweep *sweep, size_t i)
{
	return pmh_side_hash(t, sweep->priv->side, sweep->entries[i].hash);
}

/*
 * Where in a buffer are the dead among entries[from .. to), all of them from it?
 * mask[] tells of each line.  Those that are not where they were are marked in
 * moved[] (the list may have been rewritten, in the same buffer in the end).
 * Returns how many there are.
 */
static size_t
find_dead(const PmhTable *t, uint64_t payload, const PmhSweep *sweep,
		  const uint8_t *dead, size_t from, size_t to, uint8_t *moved,
		  uint16_t *mask)
{
	const Origin *origin = sweep->priv->origin;
	size_t		n = 0;

	memset(mask, 0, PMH_MAX_LINES * sizeof(*mask));
	for (size_t i = from; i < to; i++)
	{
		uint32_t	line = pmh_cell_line(origin[i].cell);
		uint32_t	bit = pmh_cell_mask(origin[i].cell);
		const PmhValueLine *l = pmh_buffer_line(t, payload, line);

		if (!dead[i])
			continue;
		if ((pm_load(&l->state) & bit) == 0 ||
			pmh_line_value(l, origin[i].cell % 16) != sweep->entries[i].value)
		{
			moved[i] = 1;
			continue;
		}
		mask[line] |= (uint16_t) bit;
		n++;
	}
	return n;
}

/*
 * Take the dead among entries[from .. to) out of the first buffer of a list, where
 * all of them come from.  Returns how many; the others are marked in moved[].
 */
static size_t
clear_in_head(PmhTable *t, const PmhPlace *place, uint64_t hash, uint64_t payload,
			  const PmhSweep *sweep, const uint8_t *dead, size_t from, size_t to,
			  uint8_t *moved)
{
	uint16_t	mask[PMH_MAX_LINES];
	PmhListPosition at =
		{payload, pmh_buffer_version(t, pmh_pointer_offset(payload)), 0, 0, 0};
	PmhListPosition before = {0, 0, 0, 0, 0};
	size_t		n = find_dead(t, payload, sweep, dead, from, to, moved, mask);

	if (n == 0 ||
		pmh_list_take_out(t, place, hash, true, &at, &before, mask) == PMH_OK)
		return n;
	memcpy(moved + from, dead + from, to - from);
	return 0;
}

/* Does a slot of a locked segment hold this hash and word? */
static bool
slot_holds(const PmhTable *t, const PmhPlace *place, uint32_t bucket,
		   unsigned slot, uint64_t hash, uint64_t word)
{
	const PmhBucket *b = pmh_bucket(t, place, bucket);

	return (pmh_bucket_state(b) & (UINT32_C(1) << slot)) != 0 &&
		pmh_slot_load_word(b, slot) == word &&
		pmh_slot_load_hash(b, slot, word) == hash;
}

/* Is the plain entry shadowed, i.e. has its key a pointer slot beside it? */
static bool
is_shadowed(const PmhBucket *b, uint64_t hash)
{
	uint32_t	state;
	int			pointer = -1;

	if ((pmh_bucket_state(b) & PMH_STATE_POINTERS) != 0)
		(void) pmh_bucket_find(b, hash, &state, &pointer);
	return pointer >= 0;
}

/*
 * Take the dead among the plain entries [from .. to) of one bucket out, with
 * one commit store.  Those that are not where they were are marked in moved[].
 */
static size_t
clear_in_bucket(PmhTable *t, const PmhPlace *place, const PmhSweep *sweep,
				const uint8_t *dead, size_t from, size_t to, uint8_t *moved)
{
	uint32_t	bucket = sweep->priv->origin[from].bucket;
	uint32_t	mask = 0;
	size_t		removed = 0;

	for (size_t i = from; i < to; i++)
	{
		unsigned	slot = sweep->priv->origin[i].slot;
		uint64_t	hash;

		if (!dead[i])
			continue;
		hash = side_hash(t, sweep, i);
		if (slot_holds(t, place, bucket, slot, hash,
					   pmh_make_word(hash, sweep->entries[i].value)) &&
			!is_shadowed(pmh_bucket(t, place, bucket), hash))
		{
			mask |= UINT32_C(1) << slot;
			removed++;
		}
		else
			moved[i] = 1;
	}
	if (mask != 0)
		pmh_bucket_clear(t, place, bucket, mask, false);
	return removed;
}

/* As far as entries from 'from' on come from the same bucket or buffer. */
static size_t
end_of_group(const PmhSweep *sweep, size_t from)
{
	const Origin *origin = sweep->priv->origin;
	size_t		to = from + 1;

	while (to < sweep->n && origin[to].payload == origin[from].payload &&
		   origin[to].bucket == origin[from].bucket &&
		   (origin[from].payload == 0 || origin[to].slot == origin[from].slot))
		to++;
	return to;
}

static bool
any_dead(const uint8_t *dead, size_t from, size_t to)
{
	while (from < to && !dead[from])
		from++;
	return from < to;
}

/* Take the dead of a segment's step out, unless the segment was replaced. */
static PmhResult
remove_from_segment(PmhTable *t, PmhSweep *sweep, const uint8_t *dead,
					uint8_t *moved, size_t *removed)
{
	const PmhPlace *old = &sweep->priv->snap.place;
	const Origin *origin = sweep->priv->origin;
	PmhPlace	place;
	PmhResult	result = pmh_segment_lock_in(t, sweep->priv->side,
											 side_hash(t, sweep, 0), &place);

	if (result != PMH_OK)
		return result;
	if (((place.elem ^ old->elem) &
		 ~(UINT64_C(3) << PMH_ELEM_STRATEGY_SHIFT)) != 0)
	{
		pmh_segment_unlock(&place);
		memcpy(moved, dead, sweep->n);
		return PMH_OK;
	}
	for (size_t from = 0, to; from < sweep->n; from = to)
	{
		uint64_t	payload = origin[from].payload;
		uint64_t	hash = side_hash(t, sweep, from);

		to = end_of_group(sweep, from);
		if (!any_dead(dead, from, to))
			continue;
		PMH_STOP_POINT("sweep_remove_group");
		if (payload == 0)
			*removed += clear_in_bucket(t, &place, sweep, dead, from, to, moved);
		else if (slot_holds(t, &place, origin[from].bucket, origin[from].slot, hash,
							pmh_make_word(hash, payload | PMH_WORD_POINTER)))
			*removed += clear_in_head(t, &place, hash, payload, sweep, dead, from, to,
									  moved);
		else
			memcpy(moved + from, dead + from, to - from);
	}
	pm_fence(&t->file);
	pmh_segment_unlock(&place);
	return PMH_OK;
}

/*
 * Take the dead of a step of a long list out of the locked segment.  PMH_OK; or
 * (nothing done) as pmh_list_take_out.
 */
static PmhResult
clear_in_list(PmhTable *t, const PmhPlace *place, PmhSweep *sweep,
			  const uint8_t *dead, uint8_t *moved, size_t *removed)
{
	struct PmhSweepPrivate *p = sweep->priv;
	uint16_t	mask[PMH_MAX_LINES];
	size_t		n;
	PmhResult	result = PMH_OK;

	if (!pmh_buffer_valid(t, pmh_pointer_offset(p->at.payload), p->at.version))
		return PMH_RETRY;
	memset(moved, 0, sweep->n);
	n = find_dead(t, p->at.payload, sweep, dead, 0, sweep->n, moved, mask);
	if (n > 0)
		result = pmh_list_take_out(t, place, side_hash(t, sweep, 0), true, &p->at,
								   &p->before, mask);
	if (result == PMH_OK)
		*removed += n;
	pm_fence(&t->file);
	return result;
}

/*
 * Take the dead of a step of a long list out, if its buffer is still there.  If
 * that has changed since it was read it is looked for, with nothing locked; after
 * several failures it is left to remove_moved.
 */
static PmhResult
remove_from_list(PmhTable *t, PmhSweep *sweep, const uint8_t *dead,
				 uint8_t *moved, size_t *removed)
{
	struct PmhSweepPrivate *p = sweep->priv;
	uint64_t	hash = side_hash(t, sweep, 0);
	PmhResult	result = PMH_RETRY;

	for (unsigned i = 0; i < MOST_LOSSES && p->origin[0].payload != 0; i++)
	{
		PmhPlace	place;

		result = pmh_segment_lock_in(t, p->side, hash, &place);
		if (result != PMH_OK)
			return result;
		result = clear_in_list(t, &place, sweep, dead, moved, removed);
		pmh_segment_unlock(&place);
		if (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK)
			continue;
		if (result != PMH_RETRY)
			return result;
		result = pmh_list_find_again(t, p->side, hash, &p->at, &p->before);
		if (result == PMH_NOT_FOUND || result == PMH_RETRY)
			break;
		if (result != PMH_OK)
			return result;
	}
	memcpy(moved, dead, sweep->n);
	return PMH_OK;
}

/*
 * Delete the entries marked in moved[], which is in the order of the step, by
 * what they are.
 */
static PmhResult
remove_moved(PmhTable *t, const PmhSweep *sweep, const uint8_t *moved,
			 size_t *removed)
{
	PmhEntry   *entries = malloc(sweep->n * sizeof(PmhEntry));
	size_t		n = 0;
	size_t		more;
	PmhResult	result;

	if (entries == NULL)
		return no_memory(t);
	for (size_t i = 0; i < sweep->n; i++)
	{
		if (moved[i])
			entries[n++] = sweep->entries[i];
	}
	result = pmh_delete_many(t, entries, n, &more);
	*removed += more;
	free(entries);
	return result;
}

PmhResult
pmh_sweep_remove(PmhTable *table, PmhSweep *sweep, const uint8_t *dead,
				 size_t *removed)
{
	uint8_t    *moved;
	PmhResult	result;

	*removed = 0;
	if (sweep->n == 0 || !any_dead(dead, 0, sweep->n))
		return PMH_OK;
	moved = calloc(sweep->n, 1);
	if (moved == NULL)
		return no_memory(table);
	if (sweep->priv->streaming)
		result = remove_from_list(table, sweep, dead, moved, removed);
	else
		result = remove_from_segment(table, sweep, dead, moved, removed);
	if (result == PMH_OK && any_dead(moved, 0, sweep->n))
		result = remove_moved(table, sweep, moved, removed);
	free(moved);
	return pmh_conclude(table, result);
}
