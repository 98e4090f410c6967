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
#include "buffer.h"
#include "directory.h"
#include "element.h"
#include "error.h"
#include "fail.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "list_rewrite.h"
#include "place.h"
#include "pm.h"
#include "segment.h"
#include "segment_resize.h"
#include "shrink.h"
#include "table.h"
#include "value_space.h"

/* Buffers of a list seen to, and put into one, under one hold of the stripe. */
#define STEP_BUFFERS		8
#define STRETCH_BUFFERS			16

/*
 * The stretch of buffers from 'first' on that one buffer could hold the values of,
 * and the same for that one alone.
 */
static PmhResult
collect_stretches(PmhTable *t, const struct PmhShrinkPrivate *p, uint64_t hash,
			 uint64_t first, PmhListStretch *alone, PmhListStretch *stretch)
{
	PmhResult	result;

	alone->before = p->walk.before;
	alone->first = first;
	alone->values = pmh_buffer_count(t, first);
	alone->bytes = pmh_class_bytes(pmh_pointer_class(first));
	result = pmh_buffer_follow(t, hash, first, &alone->after);
	*stretch = *alone;
	for (unsigned i = 1; i < STRETCH_BUFFERS && result == PMH_OK && stretch->after != 0;
		 i++)
	{
		uint64_t	buffer = stretch->after;
		uint64_t	values = stretch->values + pmh_buffer_count(t, buffer);

		if (values > pmh_class_capacity(PMH_MAX_CLASS))
			break;
		result = pmh_buffer_follow(t, hash, buffer, &stretch->after);
		stretch->values = values;
		stretch->bytes += pmh_class_bytes(pmh_pointer_class(buffer));
	}
	return result;
}

/* What of a list is to be rewritten, beginning with a buffer, or NULL. */
static const PmhListStretch *
choose_stretch(const struct PmhShrinkPrivate *p,
			   const PmhListStretch *alone, const PmhListStretch *stretch)
{
	if (p->no_space)
		return NULL;
	if (pmh_list_stretch_pays(stretch))
		return stretch;
	if (pmh_list_stretch_pays(alone))
		return alone;
	return p->phase == PMH_SHRINK_EMPTYING &&
		pmh_pointer_offset(alone->first) >> PMH_BLOCK_SHIFT >= p->limit ? alone : NULL;
}

/*
 * See to the buffer 'payload' of a list, and perhaps some after it; *payload is
 * the one to go on with, 0 at the end.  PMH_OK, PMH_NEED, PMH_ERR_CORRUPT.
 */
static PmhResult
tidy_buffer(PmhTable *t, struct PmhShrinkPrivate *p, const PmhPlace *place,
			PmhListSlot *at, uint64_t *payload)
{
	uint64_t	hash = p->keys[p->key];
	PmhListStretch	alone;
	PmhListStretch	all;
	const PmhListStretch *stretch;
	PmhResult	result = collect_stretches(t, p, hash, *payload, &alone, &all);

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock));
	if (result != PMH_OK)
		return result;
	stretch = choose_stretch(p, &alone, &all);
	if (stretch == NULL)
	{
		stretch = &alone;
		pmh_value_mark(t, &p->values, *payload);
		p->walk.before = *payload;
	}
	else
	{
		uint64_t	made;

		result = pmh_list_rewrite(t, place, at, hash, stretch, &made);
		if (result != PMH_OK)
			return result;
		if (stretch->before == 0)
			at->payload = p->walk_head = made;
		p->walk.before = made;
	}
	p->walk_bytes += pmh_class_bytes(pmh_pointer_class(p->walk.before));
	p->bytes_seen += pmh_class_bytes(pmh_pointer_class(p->walk.before));
	*payload = stretch->after;
	return PMH_OK;
}

/* A step begins with this buffer: has another one begun with it before? */
static bool
runs_in_circle(const PmhTable *t, struct PmhShrinkPrivate *p, uint64_t payload)
{
	PmhListPosition pos = {payload, 0, 0, 0, 0};

	if (payload != 0)
		pos.version = pmh_buffer_version(t, pmh_pointer_offset(payload));
	return pmh_list_is_circle(t, &p->circle, &pos);
}

/* Some buffers of the list at hand, whose segment is locked; *done: the last. */
static PmhResult
tidy_list(PmhTable *t, struct PmhShrinkPrivate *p, const PmhPlace *place,
		  bool *done)
{
	uint64_t	hash = p->keys[p->key];
	PmhListSlot at;
	uint64_t	payload;
	PmhResult	result;

	*done = !pmh_segment_find_list(t, place, hash, &at);
	if (*done)
		return PMH_OK;
	result = pmh_list_resume(t, hash, at.payload, &p->walk, &payload);
	if (result != PMH_OK)
		return result;
	if (p->walk.before == 0)
	{
		p->walk_head = at.payload;
		p->walk_bytes = 0;
		memset(&p->circle, 0, sizeof(p->circle));
	}
	else if (runs_in_circle(t, p, payload))
		return pmh_list_circle(t, payload);
	for (unsigned i = 0; i < STEP_BUFFERS && result == PMH_OK && payload != 0; i++)
		result = tidy_buffer(t, p, place, &at, &payload);
	/* What has to be done once more may begin with the same buffer. */
	if (result != PMH_OK)
		memset(&p->circle, 0, sizeof(p->circle));
	pmh_list_pause(t, &p->walk);
	*done = result == PMH_OK && payload == 0;
	if (*done && at.payload == p->walk_head)
		pmh_list_note_bytes(t, at.payload, p->walk_bytes);
	return result;
}

PmhResult
pmh_shrink_list_step(PmhTable *t, struct PmhShrinkPrivate *p)
{
	PmhPlace	place;
	bool		done;
	PmhResult	result = pmh_segment_lock(t, p->keys[p->key], &place);

	PMH_ASSERT(p->key < p->nkeys);
	if (result != PMH_OK)
		return result;
	p->bytes_seen += sizeof(PmhBucket);
	result = tidy_list(t, p, &place, &done);
	pmh_segment_unlock(&place);
	if (result == PMH_NEED)
		return pmh_shrink_provide(t, p);
	if (result == PMH_RETRY)
		return pmh_list_search(t, p->keys[p->key], &p->walk);
	if (done)
	{
		p->list_bytes += p->walk_bytes;
		p->key++;
		memset(&p->walk, 0, sizeof(p->walk));
		p->walk_bytes = 0;
	}
	return result;
}

/* Which keys have lists in the copy of a segment; not those before p->at. */
static void
collect_keys(struct PmhShrinkPrivate *p, const PmhSnapshot *snap)
{
	p->nkeys = p->key = 0;
	memset(&p->walk, 0, sizeof(p->walk));
	p->walk_bytes = 0;
	for (uint32_t b = 0; b < snap->place.buckets; b++)
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
}

PmhResult
pmh_shrink_segment_step(PmhTable *t, struct PmhShrinkPrivate *p)
{
	PmhSnapshot snap;
	PmhResult	result = pmh_segment_read(t, p->at.next, &snap, p->copy);

	PMH_ASSERT(p->key == p->nkeys);
	if (result != PMH_OK)
		return result;
	collect_keys(p, &snap);
	pmh_position_advance(&p->at, pmh_elem_depth(snap.place.elem));
	return PMH_OK;
}
