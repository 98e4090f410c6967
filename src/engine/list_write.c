/*-------------------------------------------------------------------------
 *
 * list_write.c
 *	  Value lists: making them, adding a value, taking one out.
 *
 * The format is in layout.h, the protocol in src/README ("Value lists", "Locks").
 * Size-classed buffers for the values of one key are the idea of Pea Hash, section 3.3;
 * the bit per value, which makes adding and removing one a commit store in a single line,
 * and the index, in which a value of a long list keeps its slot, are ours.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "list.h"

/* A further buffer of a list has an eighth of its size. */
#define CHUNK_SHIFT		3

/* ---- writing buffers ---- */

/* Put values into the 'room' cells of a line, from the first on; returns how many. */
static uint32_t
fill_line(PmhValueLine *line, uint32_t room, const uint64_t *values, size_t n)
{
	uint32_t	k = n < room ? (uint32_t) n : room;

	PMH_ASSERT(room <= PMH_VALUES_PER_LINE);
	for (uint32_t i = 0; i < k; i++)
	{
		*pmh_cell_low(line, i) = (uint32_t) values[i];
		*pmh_cell_high(line, i) = (uint16_t) (values[i] >> 32);
	}
	line->state = (uint16_t) ((1u << k) - 1);
	return k;
}

static void
fill_header(PmhBufferHeader *header, uint64_t payload, uint64_t hash, uint32_t hint)
{
	header->hash = hash;
	header->fill_hint = pmh_make_hint(hint, payload);
}

/*
 * Write all of a new buffer: n values (not more than fit) and, if its class has one, the
 * header.  Durable after the next pm_fence.
 */
static void
write_values(PmhTable *t, uint64_t payload, uint64_t hash, const uint64_t *values, size_t n)
{
	PmhValueLine image[PMH_MAX_LINES];
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	lines = pmh_class_lines(class);

	PMH_ASSERT(n <= pmh_class_capacity(class));
	memset(image, 0, lines * sizeof(image[0]));
	if (pmh_class_has_header(class))
		fill_header((PmhBufferHeader *) (void *) &image[0], payload, hash,
					(uint32_t) (1 + n / PMH_VALUES_PER_LINE));
	for (uint32_t i = pmh_class_first_line(class); i < lines; i++)
	{
		uint32_t	stored = fill_line(&image[i], pmh_line_capacity(class, i), values, n);

		values += stored;
		n -= stored;
	}
	if (class == PMH_ODD_CLASS)
	{
		/* The short line may come first. */
		pm_copy(&t->file, pmh_buffer_line(t, payload, 0), &image[0], PMH_VALUE_LINE);
		pm_copy(&t->file, pmh_buffer_line(t, payload, 1), &image[1], PMH_GRAIN);
	}
	else
		pm_copy(&t->file, pmh_buffer_line(t, payload, 0), image, pmh_class_bytes(class));
}

uint32_t
pmh_buffer_class_for(size_t n)
{
	uint32_t	class = PMH_LEAST_CLASS;

	while (class < PMH_MAX_CLASS && pmh_class_capacity(class) < n)
		class++;
	return class;
}

PmhResult
pmh_buffer_make(PmhTable *t, uint64_t hash, uint32_t class, const uint64_t *values, size_t n,
				uint64_t *payload)
{
	uint64_t	offset;
	PmhResult	result = pmh_value_alloc(t, class, &offset);

	if (result != PMH_OK)
		return result;
	*payload = pmh_make_pointer(offset, class);
	write_values(t, *payload, hash, values, n);
	return PMH_OK;
}

/* Make an index with the words of n slots, and perhaps one more.  PMH_OK or PMH_NEED. */
static PmhResult
make_index(PmhTable *t, uint64_t hash, uint32_t level, uint32_t class,
		   const uint64_t *words, uint32_t n, uint64_t more, uint64_t *payload)
{
	struct
	{
		PmhBufferHeader header;
		uint64_t	slot[PMH_MAX_INDEX_SLOTS];
	}			image;
	uint64_t	offset;
	PmhResult	result = pmh_value_alloc(t, class, &offset);

	if (result != PMH_OK)
		return result;
	PMH_ASSERT(level > 0 && level <= PMH_MAX_LEVEL);
	*payload = pmh_make_index_pointer(offset, class, level);
	PMH_ASSERT(n + (more != 0) > 0 && n + (more != 0) <= pmh_index_slots(*payload));
	memset(&image, 0, pmh_class_bytes(class));
	for (uint32_t i = 0; i < n; i++)
		image.slot[i] = pm_load(&words[i]);
	if (more != 0)
		image.slot[n++] = more;
	fill_header(&image.header, *payload, hash, n - 1);
	pm_copy(&t->file, pmh_at(t, offset), &image, pmh_class_bytes(class));
	return PMH_OK;
}

static void
free_buffer(PmhTable *t, uint64_t payload)
{
	PMH_ASSERT(payload != 0);
	PMH_STOP_POINT("list_before_free");
	pmh_value_free(t, pmh_pointer_offset(payload), pmh_pointer_class(payload));
}

/* ---- the way to a buffer, and what names it ---- */

PmhResult
pmh_list_find_below(PmhTable *t, uint64_t hash, PmhListPath *path, uint64_t *below)
{
	PmhResult	result = pmh_buffer_check_span(t, path->head);

	while (result == PMH_OK && *below > 0)
	{
		result = pmh_list_descend(t, hash, path, *below, true);
		if (result == PMH_OK)
			*below = path->number;
		if (path->payload[0] != 0)
			break;
	}
	return result;
}

/*
 * Store a slot of an index; what it names is durable.  What it has named may be freed
 * then: the version tells readers that have seen it.
 */
static void
store_slot(PmhTable *t, uint64_t payload, uint32_t slot, uint64_t word)
{
	PMH_STOP_POINT("slot_before_store");
	pm_commit64(&t->file, pmh_index_slot(t, payload, slot), word);
	pm_fence(&t->file);
	PMH_STOP_POINT("slot_after_store");
	pmh_buffer_bump(t, pmh_pointer_offset(payload));
}

/* Let what names the buffer of a level of the path name another one. */
static void
publish(PmhTable *t, PmhListPath *path, uint32_t level, uint64_t payload)
{
	uint64_t	holder = path->head;
	uint64_t	word;

	PMH_ASSERT(payload != 0 && level <= pmh_pointer_level(holder));
	path->payload[level] = payload;
	if (level < pmh_pointer_level(holder))
	{
		holder = path->payload[level + 1];
		word = pm_load(pmh_index_slot(t, holder, path->slot[level + 1]));
		word = ((word >> PMH_SLOT_COUNT_SHIFT) + 1) << PMH_SLOT_COUNT_SHIFT | payload;
		store_slot(t, holder, path->slot[level + 1], word);
		return;
	}
	if (path->place != NULL)
		pmh_bucket_repoint(t, path->place, path->bucket, path->bucket_slot, payload);
	path->head = payload;
}

static void
set_fill_hint(PmhTable *t, uint64_t payload, uint32_t place)
{
	uint32_t	hint = pmh_make_hint(place, payload);
	PmhBufferHeader *header;

	if (!pmh_pointer_has_header(payload))
		return;
	header = pmh_buffer_header(t, payload);
	if (pm_load(&header->fill_hint) != hint)
		pm_store32(&header->fill_hint, hint);
}

/* Does an index name one buffer, and no more? */
static bool
has_one_slot(const PmhTable *t, uint64_t payload)
{
	unsigned	n = 0;

	for (uint32_t i = 0; n < 2 && i < pmh_index_slots(payload); i++)
		n += pm_load(pmh_index_slot(t, payload, i)) != 0;
	return n == 1;
}

/* What a buffer grows into: at least a third more, so that a value is copied three times or so. */
static uint32_t
class_after(uint32_t class, uint32_t most)
{
	uint32_t	after = class + 1;

	PMH_ASSERT(class < most);
	while (after < most && 3 * pmh_class_bytes(after) < 4 * pmh_class_bytes(class))
		after++;
	return after;
}

/*
 * Put a further buffer of values, durable with the next fence, into a slot of the list to
 * whose end the path leads: into the lowest index on the path that has one or can become
 * larger; else the whole list becomes slot 0 of a new one.  PMH_OK; PMH_NEED or
 * PMH_ERR_TOO_LARGE, nothing was done.
 */
static PmhResult
add_buffer(PmhTable *t, PmhListPath *path, uint64_t hash, uint64_t payload)
{
	uint32_t	top = pmh_pointer_level(path->head);
	uint64_t	made[PMH_MAX_LEVEL + 1];
	uint32_t	n = 0;
	uint32_t	level = 1;
	uint32_t	slot = 0;
	uint64_t	index = 0;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(payload != 0);
	for (; level <= top; level++)
	{
		index = path->payload[level];
		slot = 0;
		/* The first slot that names nothing, or how many there are. */
		while (index != 0 && slot < pmh_index_slots(index) &&
			   pm_load(pmh_index_slot(t, index, slot)) != 0)
			slot++;
		if (index != 0 && slot < PMH_MAX_INDEX_SLOTS)
			break;
	}
	if (level > PMH_MAX_LEVEL)
		return pmh_fail(t, PMH_ERR_TOO_LARGE, 0, 0, "A key has too many entries.");
	/* It may take indexes of its own, and a larger one or a new one above. */
	for (uint32_t l = 1; l < level && result == PMH_OK; l++)
	{
		result = make_index(t, hash, l, PMH_INDEX_CLASS, NULL, 0, payload, &made[n]);
		if (result == PMH_OK)
			payload = made[n++];
	}
	if (result == PMH_OK && level > top)
	{
		result = make_index(t, hash, level, PMH_INDEX_CLASS, &path->head, 1, payload, &made[n]);
		slot = 1;
	}
	else if (result == PMH_OK && slot == pmh_index_slots(index))
		result = make_index(t, hash, level,
							class_after(pmh_pointer_class(index), PMH_MAX_INDEX_CLASS),
							pmh_index_slot(t, index, 0), slot, payload, &made[n]);
	else
		made[n] = 0;
	pm_fence(&t->file);
	if (result != PMH_OK)
	{
		while (n > 0)
			free_buffer(t, made[--n]);
		return result;
	}
	PMH_STOP_POINT("list_before_publish");
	if (made[n] == 0)
	{
		store_slot(t, index, slot, payload);
		set_fill_hint(t, index, slot);
		return PMH_OK;
	}
	publish(t, path, level > top ? top : level, made[n]);
	if (level <= top)
		free_buffer(t, index);
	return PMH_OK;
}

/* ---- making lists ---- */

/* The way to where values are added.  payload[0] == 0: to a slot that names nothing. */
static PmhResult
find_end(PmhTable *t, uint64_t hash, PmhListPath *path)
{
	uint64_t	payload = path->head;
	PmhResult	result = pmh_buffer_check_span(t, payload);

	for (uint32_t level = pmh_pointer_level(payload); result == PMH_OK; level--)
	{
		uint64_t	holder = payload;
		uint32_t	last;

		if (pmh_pointer_has_header(payload) && !pmh_header_fits(t, payload, hash))
			return pmh_list_fail_foreign(t, payload);
		path->payload[level] = payload;
		if (level == 0)
			break;
		last = pmh_index_slots(holder) - 1;
		path->slot[level] = pmh_hint_place(pm_load(&pmh_buffer_header(t, holder)->fill_hint));
		if (path->slot[level] > last)
			path->slot[level] = last;
		payload = pm_load(pmh_index_slot(t, holder, path->slot[level])) & PMH_SLOT_POINTER;
		if (payload == 0)
		{
			memset(path->payload, 0, level * sizeof(path->payload[0]));
			break;
		}
		result = pmh_list_check_child(t, holder, payload);
	}
	PMH_ASSERT(result != PMH_OK || path->payload[0] == payload);
	return result;
}

PmhResult
pmh_list_make(PmhTable *t, const PmhEntry *entry, size_t n, uint64_t *head)
{
	uint64_t	hash = entry->hash;
	uint64_t	values[PMH_CHUNK_MOST];
	size_t		done = 0;
	PmhResult	result = PMH_OK;

	PMH_ASSERT(n > 0 && entry[n - 1].hash == hash);
	*head = 0;
	while (done < n && result == PMH_OK)
	{
		size_t		left = n - done;
		uint32_t	class = pmh_buffer_class_for(left);
		size_t		k;
		PmhListPath path = {.head = *head};
		uint64_t	payload;

		/* All but the last are full, and that is a small one. */
		if (class > PMH_CHUNK_CLASS && pmh_class_capacity(class) >= left)
			class--;
		k = pmh_class_capacity(class);
		if (k > left)
			k = left;
		PMH_ASSERT(k > 0 && k <= PMH_CHUNK_MOST);
		for (size_t i = 0; i < k; i++)
			values[i] = entry[done + i].value;
		result = pmh_buffer_make(t, hash, class, values, k, &payload);
		if (result == PMH_OK && *head == 0)
			path.head = payload;
		else if (result == PMH_OK)
		{
			result = find_end(t, hash, &path);
			if (result == PMH_OK)
				result = add_buffer(t, &path, hash, payload);
			if (result != PMH_OK)
				free_buffer(t, payload);
		}
		if (result == PMH_OK)
		{
			*head = path.head;
			done += k;
		}
		else if (result == PMH_NEED)
			result = pmh_wait_cancelled() ? pmh_fail_cancelled(t) : pmh_provide(t);
	}
	return result;
}

/* ---- adding a value ---- */

/* The cells of a line that hold nothing, as a mask. */
static uint32_t
free_cells(const PmhTable *t, uint64_t payload, uint32_t line)
{
	return ~(uint32_t) pm_load(&pmh_buffer_line(t, payload, line)->state) &
		pmh_line_cells(payload, line);
}

/*
 * The first line of the buffer that has room; the number of its lines if none
 * has.  The hint is believed only as far as it makes sense.
 */
static uint32_t
find_room(const PmhTable *t, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	lines = pmh_class_lines(class);
	uint32_t	line = pmh_class_first_line(class);

	if (pmh_class_has_header(class))
	{
		const PmhBufferHeader *header = pmh_buffer_header(t, payload);
		uint32_t	hint = pmh_hint_place(pm_load(&header->fill_hint));

		if (hint > line && hint <= lines)
			line = hint;
	}
	PMH_ASSERT(line <= lines);
	while (line < lines && free_cells(t, payload, line) == 0)
		line++;
	return line;
}

PmhResult
pmh_list_rewrite(PmhTable *t, PmhListPath *path, uint64_t hash, uint32_t class,
				 const uint64_t *more)
{
	uint64_t	values[PMH_STEP_MAX];
	uint64_t	old = path->payload[0];
	uint32_t	old_class = pmh_pointer_class(old);
	uint64_t	payload;
	size_t		n = 0;
	PmhResult	result;

	PMH_ASSERT(path->place != NULL && pmh_is_locked(&path->place->stripe->lock));
	PMH_ASSERT(old != 0 && class < PMH_CLASSES);
	for (uint32_t i = pmh_class_first_line(old_class); i < pmh_class_lines(old_class); i++)
		n += pmh_line_read(pmh_buffer_line(t, old, i), pmh_line_cells(old, i), values + n);
	if (more != NULL)
		values[n++] = *more;
	PMH_ASSERT(n > 0 || pm_is_lost(&t->file));
	result = pmh_buffer_make(t, hash, class, values, n, &payload);
	if (result != PMH_OK)
		return result;
	pm_fence(&t->file);
	PMH_STOP_POINT("rewrite_before_publish");
	publish(t, path, 0, payload);
	PMH_STOP_POINT("rewrite_before_retire");
	free_buffer(t, old);
	return PMH_OK;
}

PmhResult
pmh_list_move_index(PmhTable *t, PmhListPath *path, uint64_t hash)
{
	uint64_t	old = path->payload[1];
	uint64_t	payload;
	uint32_t	class = PMH_INDEX_CLASS;
	uint32_t	last;
	PmhResult	result;

	PMH_ASSERT(path->place != NULL && pmh_is_locked(&path->place->stripe->lock));
	PMH_ASSERT(pmh_pointer_level(old) == 1);
	(void) pmh_index_last(t, old, UINT32_MAX, &last);
	PMH_ASSERT(last < pmh_index_slots(old));
	while (last >= pmh_index_slots(pmh_make_pointer(0, class)))
		class++;
	result = make_index(t, hash, 1, class, pmh_index_slot(t, old, 0), last + 1, 0, &payload);
	if (result != PMH_OK)
		return result;
	if (pmh_pointer_offset(payload) > pmh_pointer_offset(old))
	{
		free_buffer(t, payload);
		return PMH_OK;
	}
	pm_fence(&t->file);
	publish(t, path, 1, payload);
	free_buffer(t, old);
	return PMH_OK;
}

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

/* How large a further buffer of a list should be. */
static uint32_t
class_for_more(const PmhTable *t, const PmhListPath *path)
{
	uint32_t	level = pmh_pointer_level(path->head);
	uint64_t	bytes = level == 0 ? pmh_class_bytes(pmh_pointer_class(path->head)) : 0;
	uint32_t	class = PMH_CHUNK_CLASS;

	if (level > 1)
		return PMH_MAX_CLASS;
	for (uint32_t i = 0; level == 1 && i < pmh_index_slots(path->head); i++)
		bytes += pmh_class_bytes(pmh_pointer_class(pm_load(pmh_index_slot(t, path->head, i))));
	while (class < PMH_MAX_CLASS && pmh_class_bytes(class) < bytes >> CHUNK_SHIFT)
		class++;
	return class;
}

PmhResult
pmh_list_append(PmhTable *t, PmhListPath *path, uint64_t hash, uint64_t value)
{
	uint64_t	payload;
	PmhResult	result = find_end(t, hash, path);

	PMH_ASSERT(value <= PMH_VALUE_MAX && pmh_is_locked(&path->place->stripe->lock));
	if (result != PMH_OK)
		return result;
	payload = path->payload[0];
	if (payload != 0)
	{
		uint32_t	class = pmh_pointer_class(payload);
		uint32_t	line = find_room(t, payload);

		set_fill_hint(t, payload, line);
		if (line < pmh_class_lines(class))
		{
			PmhValueLine *l = pmh_buffer_line(t, payload, line);
			uint32_t	state = pm_load(&l->state);
			unsigned	i = (unsigned) __builtin_ctz(free_cells(t, payload, line));

			/* Value, then line state, all in one line. */
			pm_store32(pmh_cell_low(l, i), (uint32_t) value);
			pm_store16(pmh_cell_high(l, i), (uint16_t) (value >> 32));
			PMH_STOP_POINT("append_before_state");
			pm_commit16(&t->file, &l->state, (uint16_t) (state | 1u << i));
			PMH_STOP_POINT("append_after_state");
			return PMH_OK;
		}
		if (class < PMH_CHUNK_CLASS)
			return pmh_list_rewrite(t, path, hash, class_after(class, PMH_CHUNK_CLASS), &value);
	}
	result = pmh_buffer_make(t, hash, class_for_more(t, path), &value, 1, &payload);
	if (result != PMH_OK)
		return result;
	result = add_buffer(t, path, hash, payload);
	if (result != PMH_OK)
		free_buffer(t, payload);
	return result;
}

/* ---- taking values out ---- */

/*
 * The buffer of values that the path leads to has nothing that is to stay.  Take it out of
 * its slot, durably, with the indexes that would be empty then, and free them.
 */
static void
drop_buffer(PmhTable *t, PmhListPath *path)
{
	uint32_t	top = pmh_pointer_level(path->head);
	uint32_t	level = 0;

	PMH_ASSERT(pmh_is_locked(&path->place->stripe->lock));
	while (level < top && has_one_slot(t, path->payload[level + 1]))
		level++;
	if (level < top)
		store_slot(t, path->payload[level + 1], path->slot[level + 1], 0);
	else
	{
		pmh_bucket_unpoint(t, path->place, path->bucket, path->bucket_slot);
		path->head = 0;
	}
	for (uint32_t l = 0; l <= level; l++)
		free_buffer(t, path->payload[l]);
}

void
pmh_list_take_out(PmhTable *t, PmhListPath *path, const uint16_t *mask)
{
	uint64_t	payload = path->payload[0];
	uint64_t	offset = pmh_pointer_offset(payload);
	uint32_t	class = pmh_pointer_class(payload);

	PMH_ASSERT(payload != 0 && pmh_is_locked(&path->place->stripe->lock));
	if (mask == NULL)
	{
		drop_buffer(t, path);
		return;
	}
	pmh_buffer_bump(t, offset);
	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		PmhValueLine *l = pmh_buffer_line(t, payload, i);

		if (mask[i] == 0)
			continue;
		PMH_STOP_POINT("line_clear_before_state");
		pm_commit16(&t->file, &l->state, (uint16_t) (pm_load(&l->state) & ~mask[i]));
		PMH_STOP_POINT("line_clear_after_state");
		if (pmh_class_has_header(class) &&
			pmh_hint_place(pm_load(&pmh_buffer_header(t, payload)->fill_hint)) > i)
			set_fill_hint(t, payload, i);
	}

	/*
	 * Once more: a process that has read the version in between may have found what was
	 * still there, and would return half of it and half of what gets the cell next, or
	 * take the latter out.
	 */
	pmh_buffer_bump(t, offset);
}
