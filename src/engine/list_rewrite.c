/*-------------------------------------------------------------------------
 *
 * list_rewrite.c
 *	  Value lists: fewer buffers, or other ones, for VACUUM and for shrinking.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "buffer.h"
#include "error.h"
#include "fail.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "list_rewrite.h"
#include "list_write.h"
#include "place.h"
#include "pm.h"
#include "segment.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"
#include "value_space.h"

uint32_t
pmh_buffer_count(const PmhTable *t, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	n = 0;

	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
		n += pmh_mask_count(pm_load(&pmh_buffer_line(t, payload, i)->state) &
							pmh_line_cells(payload, i));
	return n;
}

uint64_t
pmh_buffer_next(const PmhTable *t, uint64_t payload)
{
	if (!pmh_class_has_header(pmh_pointer_class(payload)))
		return 0;
	return pm_load(&pmh_buffer_header(t, payload)->next);
}

PmhResult
pmh_buffer_follow(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t *next)
{
	PmhResult	result;

	*next = pmh_buffer_next(t, payload);
	result = pmh_list_check_next(t, payload, *next);
	return result == PMH_OK && *next != 0 ? pmh_buffer_check(t, hash, *next) : result;
}

/* The smallest class that holds n values and may stand where the stretch stands. */
static uint32_t
class_for_stretch(size_t n, const PmhListStretch *stretch)
{
	uint32_t	class;

	if (stretch->before == 0)
		n += n / PMH_HEAD_ROOM;	/* the head is where values are added */
	class = pmh_buffer_class_for(n);
	if (pmh_class_bytes(class) > stretch->bytes)
		class = pmh_buffer_class_for(stretch->values);
	if ((stretch->before != 0 || stretch->after != 0) && class < PMH_HEADER_CLASS)
		class = PMH_HEADER_CLASS;
	return class;
}

bool
pmh_list_stretch_pays(const PmhListStretch *stretch)
{
	uint64_t	bytes = pmh_class_bytes(class_for_stretch(stretch->values, stretch));

	return bytes * 4 <= stretch->bytes * 3;
}

PmhResult
pmh_list_rewrite(PmhTable *t, const PmhPlace *place, const PmhListSlot *at,
				 uint64_t hash, const PmhListStretch *stretch, uint64_t *new_payload)
{
	uint64_t	values[PMH_MAX_LINES * PMH_VALUES_PER_LINE + PMH_VALUES_PER_LINE];
	uint32_t	class = class_for_stretch(stretch->values, stretch);
	uint64_t	list_bytes = pmh_class_bytes(class);
	uint64_t	offset;
	size_t		n = 0;
	PmhResult	result;

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock));
	PMH_ASSERT(stretch->values <= pmh_class_capacity(PMH_MAX_CLASS));
	result = pmh_value_alloc(t, class, &offset);
	if (result != PMH_OK)
		return result;
	/* Among zeroes, instead of a lost page, the list ends early. */
	for (uint64_t p = stretch->first; p != 0 && p != stretch->after;
		 p = pmh_buffer_next(t, p))
	{
		uint32_t	old = pmh_pointer_class(p);

		for (uint32_t i = pmh_class_first_line(old); i < pmh_class_lines(old); i++)
			n += pmh_line_read(pmh_buffer_line(t, p, i), pmh_line_cells(p, i), values + n);
	}
	if (stretch->after != 0)
		list_bytes += pmh_list_bytes_from(t, stretch->after);
	*new_payload = pmh_make_pointer(offset, class);
	pmh_buffer_write(t, *new_payload, hash, stretch->after, list_bytes, values, n);
	pm_fence(&t->file);

	PMH_STOP_POINT("rewrite_before_publish");
	if (stretch->before == 0)
		pmh_bucket_repoint(t, place, at->bucket, at->slot, *new_payload);
	else
		pmh_list_relink(t, stretch->before, *new_payload);
	pmh_count(&pmh_run(t)->list_rewrites, 1);
	PMH_STOP_POINT("rewrite_before_retire");
	pmh_list_retire(t, stretch->first, *new_payload);
	return PMH_OK;
}

PmhResult
pmh_list_resume(PmhTable *t, uint64_t hash, uint64_t head,
				const PmhListWalk *walk, uint64_t *payload)
{
	if (walk->before == 0)
	{
		*payload = head;
		return pmh_buffer_check(t, hash, head);
	}
	if (!pmh_buffer_valid(t, pmh_pointer_offset(walk->before), walk->version))
		return PMH_RETRY;
	return pmh_buffer_follow(t, hash, walk->before, payload);
}

PmhResult
pmh_list_search(PmhTable *t, uint64_t hash, PmhListWalk *walk)
{
	PmhListPosition wanted = {walk->before, walk->version, walk->birth, 0, 0};
	PmhListPosition before;
	PmhResult	result = pmh_list_find_again(t, hash, &wanted, &before);

	if (result == PMH_OK)
		walk->version = wanted.version;
	else if (result == PMH_NOT_FOUND)
		walk->before = 0;
	return result == PMH_NOT_FOUND || result == PMH_RETRY ? PMH_OK : result;
}

void
pmh_list_pause(const PmhTable *t, PmhListWalk *walk)
{
	PmhListPosition at;

	if (walk->before == 0)
		return;
	at = pmh_list_at_locked(t, walk->before);
	walk->version = at.version;
	walk->birth = at.birth;
}

/*
 * The buffer holds nothing that is to stay.  Take it off its list, durably, and free it;
 * before: the buffer in front, or 0.  PMH_OK, or (nothing done) PMH_NEED or
 * PMH_ERR_CORRUPT.
 */
static PmhResult
drop_buffer(PmhTable *t, const PmhPlace *place, const PmhListSlot *at,
			uint64_t hash, uint64_t before, uint64_t payload)
{
	uint64_t	next;
	PmhResult	result;

	if (before != 0)
		return pmh_list_unlink(t, hash, at->payload, before, payload);
	result = pmh_buffer_follow(t, hash, payload, &next);
	if (result != PMH_OK)
		return result;
	if (next == 0)
		pmh_bucket_unpoint(t, place, at->bucket, at->slot);
	else
	{
		pmh_list_note_rest(t, payload, payload, next);
		pm_fence(&t->file);		/* before the bucket points to it */
		pmh_bucket_repoint(t, place, at->bucket, at->slot, next);
	}
	pmh_list_retire(t, payload, next);
	return PMH_OK;
}

/* Is anything left of a buffer without the cells of mask[]? */
static bool
anything_left(const PmhTable *t, uint64_t payload, const uint16_t *mask)
{
	uint32_t	class = pmh_pointer_class(payload);

	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		uint32_t	state = pm_load(&pmh_buffer_line(t, payload, i)->state);

		if ((state & pmh_line_cells(payload, i) & ~(uint32_t) mask[i]) != 0)
			return true;
	}
	return false;
}

/*
 * Take a buffer of which nothing is to stay off its list.  That needs what points
 * to it: the bucket, or the buffer that the walk has come from, if it still does.
 */
static PmhResult
drop_walked(PmhTable *t, const PmhPlace *place, uint64_t hash, bool wait,
			PmhListPosition *at, PmhListPosition *before)
{
	PmhListSlot slot;
	uint64_t	from = 0;
	PmhResult	result;

	if (!pmh_segment_find_list(t, place, hash, &slot))
		return PMH_RETRY;
	if (slot.payload != at->payload)
	{
		from = before->payload;
		if (from == 0 ||
			!pmh_buffer_valid(t, pmh_pointer_offset(from), before->version) ||
			pmh_buffer_next(t, from) != at->payload)
			return PMH_RETRY;
		/* The walk has not come by what is the first buffer now. */
		result = pmh_buffer_check(t, hash, slot.payload);
		if (result != PMH_OK)
			return result;
	}
	if (!wait && !pmh_space_trylock(t))
		return PMH_BUSY;
	result = drop_buffer(t, place, &slot, hash, from, at->payload);
	if (!wait)
		pmh_space_release(t);
	if (result != PMH_OK)
		return result;
	at->payload = 0;
	if (from != 0)
		before->version = pmh_buffer_version(t, pmh_pointer_offset(from));
	return PMH_OK;
}

PmhResult
pmh_list_take_out(PmhTable *t, const PmhPlace *place, uint64_t hash, bool wait,
				  PmhListPosition *at, PmhListPosition *before,
				  const uint16_t *mask)
{
	uint64_t	offset = pmh_pointer_offset(at->payload);
	uint32_t	class = pmh_pointer_class(at->payload);

	PMH_ASSERT(pmh_is_locked(&place->stripe->lock));
	if (!pmh_buffer_valid(t, offset, at->version))
		return PMH_RETRY;
	if (!anything_left(t, at->payload, mask))
		return drop_walked(t, place, hash, wait, at, before);
	pmh_buffer_bump(t, offset);
	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		if (mask[i] != 0)
			pmh_line_clear(t, at->payload, i, mask[i]);
	}

	/*
	 * Once more: a process that has read the version in between may have found what was
	 * still there, and would return half of it and half of what gets the cell next, or
	 * take the latter out.
	 */
	pmh_buffer_bump(t, offset);
	at->version = pmh_buffer_version(t, offset);
	return PMH_OK;
}

void
pmh_list_note_bytes(PmhTable *t, uint64_t head, uint64_t bytes)
{
	PmhBufferHeader *header = pmh_buffer_header(t, head);
	uint32_t	lines = pmh_list_lines(bytes);

	if (!pmh_class_has_header(pmh_pointer_class(head)) ||
		pm_load(&header->list_lines) == lines)
		return;
	pm_store32(&header->list_lines, lines);
	pm_flush(&t->file, header, sizeof(*header));
	pm_fence(&t->file);
}
