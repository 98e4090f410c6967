/*-------------------------------------------------------------------------
 *
 * shrink_lists.c
 *	  Shrinking: lists that have lost much are rewritten, in steps of some buffers.
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
#include "table.h"

/* Buffers of a list seen to under one hold of the stripe. */
#define STEP_BUFFERS		8

/* The smallest class for what a buffer of values, or an index, holds, as things are now. */
static uint32_t
class_needed(const PmhTable *t, const PmhListPath *path, uint32_t level)
{
	uint64_t	payload = path->payload[level];
	uint32_t	class = PMH_INDEX_CLASS;
	size_t		values;

	PMH_ASSERT(payload != 0);
	if (level > 0)
	{
		uint32_t	last = pmh_index_last(t, payload);

		while (last >= pmh_index_slots(pmh_make_pointer(0, class)))
			class++;
		return class;
	}
	values = pmh_buffer_count(t, payload);
	/* In the last slot values are added, as a rule. */
	if (path->payload[1] == 0 || path->slot[1] == pmh_index_last(t, path->payload[1]))
		class = pmh_buffer_class_for(values + values / PMH_HEAD_ROOM);
	else
		class = pmh_buffer_class_for(values);
	if (class > pmh_pointer_class(payload))
		class = pmh_pointer_class(payload);
	return class;
}

/*
 * See to a buffer of the list: if it is loose, or has to move, put what it holds into
 * another one.  PMH_OK, PMH_NEED.
 */
static PmhResult
tidy_buffer(PmhTable *t, struct PmhShrinkPrivate *p, PmhListPath *path, uint32_t level)
{
	uint64_t	payload = path->payload[level];
	uint32_t	class = class_needed(t, path, level);

	if (p->no_space ||
		(pmh_class_bytes(class) * 4 > pmh_class_bytes(pmh_pointer_class(payload)) * 3 &&
		 !(p->phase == PMH_SHRINK_EMPTYING &&
		   pmh_pointer_offset(payload) >> PMH_BLOCK_SHIFT >= p->limit)))
	{
		pmh_value_mark(t, &p->values, payload);
		return PMH_OK;
	}
	return pmh_list_rewrite(t, path, level, p->keys[p->key], class);
}

/* Some buffers of the list at hand, whose segment is locked. */
static PmhResult
tidy_list(PmhTable *t, struct PmhShrinkPrivate *p, const PmhPlace *place)
{
	uint64_t	hash = p->keys[p->key];
	PmhListSlot at;
	PmhListPath path = {.place = place};
	PmhResult	result = PMH_OK;

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock) && p->below > 0);
	if (!pmh_segment_find_list(t, place, hash, &at))
	{
		p->below = 0;
		return PMH_OK;
	}
	path.head = at.payload;
	path.bucket = at.bucket;
	path.bucket_slot = at.slot;
	for (unsigned i = 0; i < STEP_BUFFERS && result == PMH_OK && p->below > 0; i++)
	{
		uint64_t	below = p->below;

		result = pmh_list_find_below(t, hash, &path, &below);
		if (result != PMH_OK || path.payload[0] == 0)
			below = 0;
		for (uint32_t level = 0; level <= PMH_MAX_LEVEL && result == PMH_OK; level++)
		{
			if (path.payload[level] != 0)
				result = tidy_buffer(t, p, &path, level);
		}
		if (result != PMH_OK)
			break;
		p->list_bytes += pmh_class_bytes(pmh_pointer_class(path.payload[0]));
		p->bytes_seen += pmh_class_bytes(pmh_pointer_class(path.payload[0]));
		p->below = below;
	}
	return result;
}

PmhResult
pmh_shrink_list_step(PmhTable *t, struct PmhShrinkPrivate *p)
{
	PmhPlace	place;
	PmhResult	result = pmh_segment_lock(t, p->keys[p->key], &place);

	PMH_ASSERT(p->key < p->nkeys);
	if (result != PMH_OK)
		return result;
	p->bytes_seen += sizeof(PmhBucket);
	result = tidy_list(t, p, &place);
	pmh_segment_unlock(&place);
	if (result == PMH_NEED)
		return pmh_shrink_provide(t, p);
	if (result == PMH_OK && p->below == 0)
	{
		p->key++;
		p->below = UINT64_MAX;
	}
	return result;
}

PmhResult
pmh_shrink_segment_step(PmhTable *t, struct PmhShrinkPrivate *p)
{
	PmhSnapshot snap;
	PmhResult	result = pmh_segment_read(t, p->at.next, &snap, p->copy);

	PMH_ASSERT(p->key == p->nkeys);
	if (result != PMH_OK)
		return result;
	/* Which keys have lists in the copy; not those before p->at. */
	p->nkeys = p->key = 0;
	p->below = UINT64_MAX;
	for (uint32_t b = 0; b < snap.place.buckets; b++)
	{
		uint32_t	plain;
		uint32_t	pointers;

		pmh_bucket_kinds(&p->copy[b], &plain, &pointers);
		for (; pointers != 0; pointers &= pointers - 1)
		{
			unsigned	slot = (unsigned) __builtin_ctz(pointers);
			uint64_t	word = pmh_slot_load_word(&p->copy[b], slot);
			uint64_t	hash = pmh_slot_load_hash(&p->copy[b], slot, word);

			if (hash >= p->at.next)
				p->keys[p->nkeys++] = hash;
		}
	}
	PMH_ASSERT(p->nkeys <= PMH_MAX_SEGMENT_BYTES / PMH_BUCKET_SIZE * PMH_SLOTS);
	pmh_position_advance(&p->at, pmh_elem_depth(snap.place.elem));
	return PMH_OK;
}
