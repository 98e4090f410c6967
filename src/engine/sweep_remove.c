/*-------------------------------------------------------------------------
 *
 * sweep_remove.c
 *	  Taking the dead entries of a step of a sweep out.
 *
 * By where the step found them, if they are still there; else by what they are.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "buffer.h"
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
#include "place.h"
#include "pm.h"
#include "stop_point.h"
#include "sweep.h"
#include "table.h"

/* So often the buffer of a step is looked for when it has changed. */
#define MOST_LOSSES		8

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
	const PmhSweepOrigin *origin = sweep->priv->origin;
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
		hash = sweep->entries[i].hash;
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
	const PmhSweepOrigin *origin = sweep->priv->origin;
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
	const PmhSweepOrigin *origin = sweep->priv->origin;
	PmhPlace	place;
	PmhResult	result = pmh_segment_lock(t, sweep->entries[0].hash, &place);

	if (result != PMH_OK)
		return result;
	if (!pmh_elem_same_segment(place.elem, old->elem))
	{
		pmh_segment_unlock(&place);
		memcpy(moved, dead, sweep->n);
		return PMH_OK;
	}
	for (size_t from = 0, to; from < sweep->n; from = to)
	{
		uint64_t	payload = origin[from].payload;
		uint64_t	hash = sweep->entries[from].hash;

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
		result = pmh_list_take_out(t, place, sweep->entries[0].hash, true, &p->at,
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
	uint64_t	hash = sweep->entries[0].hash;
	PmhResult	result = PMH_RETRY;

	for (unsigned i = 0; i < MOST_LOSSES && p->origin[0].payload != 0; i++)
	{
		PmhPlace	place;

		result = pmh_segment_lock(t, hash, &place);
		if (result != PMH_OK)
			return result;
		result = clear_in_list(t, &place, sweep, dead, moved, removed);
		pmh_segment_unlock(&place);
		if (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK)
			continue;
		if (result != PMH_RETRY)
			return result;
		result = pmh_list_find_again(t, hash, &p->at, &p->before);
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
		return pmh_sweep_no_memory(t);
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
		return pmh_sweep_no_memory(table);
	if (sweep->priv->streaming)
		result = remove_from_list(table, sweep, dead, moved, removed);
	else
		result = remove_from_segment(table, sweep, dead, moved, removed);
	if (result == PMH_OK && any_dead(moved, 0, sweep->n))
		result = remove_moved(table, sweep, moved, removed);
	free(moved);
	return pmh_conclude(table, result);
}
