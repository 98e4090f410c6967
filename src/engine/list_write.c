/*-------------------------------------------------------------------------
 *
 * list_write.c
 *	  Value lists: making them, adding a value, taking one out.
 *
 * The format is in layout.h, the protocol in src/README ("Value lists", "Locks").
 * Size-classed buffers for the values of one key are the idea of Pea Hash, section 3.3;
 * the bit per value, which makes adding and removing one a commit store in a single line,
 * and chaining in front, which bounds slack, are ours.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "error.h"
#include "fail.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "list_rewrite.h"
#include "list_write.h"
#include "pm.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"
#include "value_space.h"

/* Buffers are written in pieces of this size, put together on the stack. */
#define PIECE_LINES		64

/* A new buffer in front of a chain has an eighth of the list's size. */
#define CHAIN_SHIFT		3

/*
 * Cutting a list into buffers, one that is larger than needed is taken if it does
 * not exceed so many tenths of a byte a value, or is not of a class that is chained:
 * a list of one buffer is read in one go.
 */
#define FIT_TENTHS_PER_VALUE	66

/* ---- writing buffers ---- */

/* Put values into the 'room' cells of a line, from the first on; returns how many. */
static uint32_t
fill_line(PmhValueLine *line, uint32_t room, const uint64_t *values, size_t n)
{
	uint32_t	k = n < room ? (uint32_t) n : room;

	for (uint32_t i = 0; i < k; i++)
	{
		*pmh_cell_low(line, i) = (uint32_t) values[i];
		*pmh_cell_high(line, i) = (uint16_t) (values[i] >> 32);
	}
	line->state = (uint16_t) ((1u << k) - 1);
	return k;
}

/* As a header tells it. */
uint32_t
pmh_list_lines(uint64_t list_bytes)
{
	uint64_t	lines = list_bytes / PMH_VALUE_LINE;

	return lines < UINT32_MAX ? (uint32_t) lines : UINT32_MAX;
}

static void
fill_header(PmhTable *t, PmhBufferHeader *header, uint32_t class, uint64_t hash,
			uint64_t next, uint64_t list_bytes, size_t n)
{
	header->hash = hash;
	header->next = next;
	header->fill_hint = pmh_make_hint((uint32_t) (1 + n / PMH_VALUES_PER_LINE), class);
	header->list_lines = pmh_list_lines(list_bytes);
	header->birth = __atomic_add_fetch(&pmh_run(t)->births, 1, __ATOMIC_RELAXED);
}

/* All of a buffer of the odd class. */
static void
write_odd(PmhTable *t, uint64_t payload, const uint64_t *values, size_t n)
{
	PmhValueLine line[2];
	uint32_t	stored;

	memset(line, 0, sizeof(line));
	stored = fill_line(&line[0], PMH_VALUES_PER_LINE, values, n);
	(void) fill_line(&line[1], PMH_VALUES_SHORT_LINE, values + stored, n - stored);
	pm_copy(&t->file, pmh_buffer_line(t, payload, 0), &line[0], PMH_VALUE_LINE);
	pm_copy(&t->file, pmh_buffer_line(t, payload, 1), &line[1], PMH_GRAIN);
}

void
pmh_buffer_write(PmhTable *t, uint64_t payload, uint64_t hash, uint64_t next,
			 uint64_t list_bytes, const uint64_t *values, size_t n)
{
	PmhValueLine piece[PIECE_LINES];
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	lines = pmh_class_lines(class);
	uint32_t	line = 0;

	PMH_ASSERT(n <= pmh_class_capacity(class));
	PMH_ASSERT(next == 0 || pmh_class_has_header(class));
	if (class == PMH_ODD_CLASS)
	{
		write_odd(t, payload, values, n);
		return;
	}
	while (line < lines)
	{
		uint32_t	k = lines - line < PIECE_LINES ? lines - line : PIECE_LINES;

		memset(piece, 0, k * sizeof(PmhValueLine));
		for (uint32_t i = 0; i < k; i++)
		{
			uint32_t	stored;

			if (line + i == 0 && pmh_class_has_header(class))
			{
				fill_header(t, (PmhBufferHeader *) (void *) &piece[0], class, hash, next,
							list_bytes, n);
				continue;
			}
			stored = fill_line(&piece[i], PMH_VALUES_PER_LINE, values, n);
			values += stored;
			n -= stored;
		}
		pm_copy(&t->file, pmh_buffer_line(t, payload, line), piece,
				k * sizeof(PmhValueLine));
		line += k;
	}
}

uint32_t
pmh_buffer_class_for(size_t n)
{
	uint32_t	class = PMH_LEAST_CLASS;

	while (class < PMH_MAX_CLASS && pmh_class_capacity(class) < n)
		class++;
	return class;
}

/*
 * Of the list that is still to be written, how large a buffer next?  Buffers
 * are made from the oldest to the newest; all but the newest are full.
 */
static uint32_t
choose_class(size_t left, bool chained)
{
	uint32_t	class = pmh_buffer_class_for(left);

	if (chained && class < PMH_HEADER_CLASS)
		class = PMH_HEADER_CLASS;
	if (class < PMH_CHAIN_CLASS || pmh_class_capacity(class) <= left ||
		pmh_class_bytes(class) * 10 <= left * FIT_TENTHS_PER_VALUE)
		return class;
	return class - 1;
}

uint64_t
pmh_list_bytes_from(const PmhTable *t, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);

	if (!pmh_class_has_header(class))
		return pmh_class_bytes(class);
	return (uint64_t) pm_load(&pmh_buffer_header(t, payload)->list_lines) *
		PMH_VALUE_LINE;
}

PmhResult
pmh_list_make(PmhTable *t, uint64_t hash, const uint64_t *values, size_t n, size_t room,
			  PmhListMade *made)
{
	while (made->values < n)
	{
		size_t		left = n - made->values;
		uint32_t	class = choose_class(left + room, made->head != 0);
		size_t		k = pmh_class_capacity(class);
		uint64_t	offset;
		PmhResult	result = pmh_value_alloc(t, class, &offset);

		if (result != PMH_OK)
			return result;
		if (k > left)
			k = left;
		made->bytes += pmh_class_bytes(class);
		pmh_buffer_write(t, pmh_make_pointer(offset, class), hash, made->head,
						 made->bytes, values + made->values, k);
		made->head = pmh_make_pointer(offset, class);
		made->values += k;
	}
	pm_fence(&t->file);
	return PMH_OK;
}

void
pmh_list_unmake(PmhTable *t, const PmhListMade *made)
{
	pm_fence(&t->file);
	pmh_list_retire(t, made->head, 0);
}

PmhResult
pmh_list_create(PmhTable *t, uint64_t hash, const uint64_t *values, size_t n,
				size_t room, uint64_t *payload)
{
	PmhListMade made = {0};
	PmhResult	result = pmh_list_make(t, hash, values, n, room, &made);

	if (result != PMH_OK)
		pmh_list_unmake(t, &made);
	else
		*payload = made.head;
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
		uint32_t	hint = pmh_hint_line(pm_load(&header->fill_hint));

		if (hint > line && hint <= lines)
			line = hint;
	}
	while (line < lines && free_cells(t, payload, line) == 0)
		line++;
	return line;
}

static void
set_fill_hint(PmhTable *t, uint64_t payload, uint32_t line)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	hint = pmh_make_hint(line, class);
	PmhBufferHeader *header;

	if (!pmh_class_has_header(class))
		return;
	header = pmh_buffer_header(t, payload);
	if (pm_load(&header->fill_hint) != hint)
		pm_store32(&header->fill_hint, hint);
}

/* Value, then line state, all in one line. */
static void
append_to_line(PmhTable *t, uint64_t payload, uint32_t line, uint64_t value,
				unsigned how)
{
	PmhValueLine *l = pmh_buffer_line(t, payload, line);
	uint32_t	state = pm_load(&l->state);
	unsigned	i = (unsigned) __builtin_ctz(free_cells(t, payload, line));

	PMH_ASSERT(value <= PMH_VALUE_MAX);
	pm_store32(pmh_cell_low(l, i), (uint32_t) value);
	pm_store16(pmh_cell_high(l, i), (uint16_t) (value >> 32));
	if ((how & PMH_APPEND_FENCE_FIRST) != 0)
		pm_fence(&t->file);
	PMH_STOP_POINT("append_before_state");
	pm_commit16(&t->file, &l->state, (uint16_t) (state | 1u << i));
	PMH_STOP_POINT("append_after_state");
	if ((how & PMH_APPEND_FENCE) != 0)
		pm_fence(&t->file);
}

/* What a buffer grows into: at least a third more, so that a value is copied three times or so. */
static uint32_t
class_after(uint32_t class)
{
	uint32_t	after = class + 1;

	while (after < PMH_CHAIN_CLASS && 3 * pmh_class_bytes(after) < 4 * pmh_class_bytes(class))
		after++;
	return after;
}

/* The list with 'value' in a copy of its first buffer, of a larger class. */
static PmhResult
append_by_copy(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t value,
			   uint64_t *new_payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	larger = class_after(class);
	uint64_t	values[PMH_CHAIN_LINES * PMH_VALUES_PER_LINE + 1];
	uint64_t	next = 0;
	uint64_t	list_bytes;
	uint64_t	offset;
	size_t		n = 0;
	PmhResult	result = pmh_buffer_follow(t, hash, payload, &next);

	if (result == PMH_OK)
		result = pmh_value_alloc(t, larger, &offset);
	if (result != PMH_OK)
		return result;
	for (uint32_t line = pmh_class_first_line(class); line < pmh_class_lines(class);
		 line++)
		n += pmh_line_read(pmh_buffer_line(t, payload, line),
						   pmh_line_cells(payload, line), values + n);
	values[n++] = value;
	list_bytes = pmh_list_bytes_from(t, payload) + pmh_class_bytes(larger) -
		pmh_class_bytes(class);
	*new_payload = pmh_make_pointer(offset, larger);
	pmh_buffer_write(t, *new_payload, hash, next, list_bytes, values, n);
	pm_fence(&t->file);
	return PMH_OK;
}

/* The list with a further buffer in front, and 'value' in that. */
static PmhResult
append_by_chain(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t value,
				uint64_t *new_payload)
{
	uint64_t	list_bytes = pmh_list_bytes_from(t, payload);
	uint32_t	class = PMH_CHAIN_CLASS;
	uint64_t	offset;
	PmhResult	result;

	while (class < PMH_MAX_CLASS &&
		   pmh_class_bytes(class) < list_bytes >> CHAIN_SHIFT)
		class++;
	result = pmh_value_alloc(t, class, &offset);
	if (result != PMH_OK)
		return result;
	*new_payload = pmh_make_pointer(offset, class);
	pmh_buffer_write(t, *new_payload, hash, payload,
				 list_bytes + pmh_class_bytes(class), &value, 1);
	pm_fence(&t->file);
	return PMH_OK;
}

PmhResult
pmh_buffer_check(PmhTable *t, uint64_t hash, uint64_t payload)
{
	PmhResult	result = pmh_buffer_check_span(t, payload);

	if (result != PMH_OK)
		return result;
	if (pmh_class_has_header(pmh_pointer_class(payload)) &&
		!pmh_header_fits(t, payload, hash))
		return pmh_list_fail_foreign(t, payload);
	return PMH_OK;
}

PmhResult
pmh_list_append(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t value,
				unsigned how, uint64_t *new_payload)
{
	PmhResult	result = pmh_buffer_check(t, hash, payload);
	uint32_t	line;

	if (result != PMH_OK)
		return result;
	line = find_room(t, payload);
	if (line < pmh_class_lines(pmh_pointer_class(payload)))
	{
		append_to_line(t, payload, line, value, how);
		set_fill_hint(t, payload, line);
		*new_payload = payload;
		return PMH_OK;
	}
	set_fill_hint(t, payload, line);
	if (pmh_pointer_class(payload) < PMH_CHAIN_CLASS)
		return append_by_copy(t, hash, payload, value, new_payload);
	return append_by_chain(t, hash, payload, value, new_payload);
}

/* ---- taking values out ---- */

void
pmh_line_clear(PmhTable *t, uint64_t payload, uint32_t line, uint32_t mask)
{
	PmhValueLine *l = pmh_buffer_line(t, payload, line);

	PMH_STOP_POINT("line_clear_before_state");
	pm_commit16(&t->file, &l->state, (uint16_t) (pm_load(&l->state) & ~mask));
	PMH_STOP_POINT("line_clear_after_state");
	if (pmh_class_has_header(pmh_pointer_class(payload)) &&
		pmh_hint_line(pm_load(&pmh_buffer_header(t, payload)->fill_hint)) > line)
		set_fill_hint(t, payload, line);
}

void
pmh_list_relink(PmhTable *t, uint64_t before, uint64_t next)
{
	PmhBufferHeader *header = pmh_buffer_header(t, before);

	pmh_buffer_bump(t, pmh_pointer_offset(before));
	PMH_STOP_POINT("unlink_before_next");
	pm_store64(&header->next, next);
	pm_flush(&t->file, &header->next, sizeof(header->next));
	pm_fence(&t->file);
	PMH_STOP_POINT("unlink_after_next");
	pmh_buffer_bump(t, pmh_pointer_offset(before));
}

void
pmh_list_note_rest(PmhTable *t, uint64_t noted, uint64_t gone, uint64_t head)
{
	PmhBufferHeader *header = pmh_buffer_header(t, head);
	uint64_t	bytes = pmh_list_bytes_from(t, noted);
	uint64_t	least = pmh_class_bytes(pmh_pointer_class(head));

	gone = pmh_class_bytes(pmh_pointer_class(gone));
	pm_store32(&header->list_lines,
			   pmh_list_lines(bytes > gone + least ? bytes - gone : least));
	pm_flush(&t->file, header, sizeof(*header));
}

PmhResult
pmh_list_unlink(PmhTable *t, uint64_t hash, uint64_t head, uint64_t before,
				uint64_t payload)
{
	uint64_t	next;
	PmhResult	result = pmh_buffer_follow(t, hash, payload, &next);

	if (result != PMH_OK)
		return result;
	pmh_list_note_rest(t, head, payload, head);
	pmh_list_relink(t, before, next);
	pmh_value_free(t, pmh_pointer_offset(payload), pmh_pointer_class(payload));
	return PMH_OK;
}

/* Find a value in a buffer: its line and cell, or false. */
static bool
find_value(const PmhTable *t, uint64_t payload, uint64_t value, uint32_t *line,
		   unsigned *cell)
{
	uint32_t	class = pmh_pointer_class(payload);

	for (*line = pmh_class_first_line(class); *line < pmh_class_lines(class); (*line)++)
	{
		const PmhValueLine *l = pmh_buffer_line(t, payload, *line);
		uint32_t	left = pm_load(&l->state) & pmh_line_cells(payload, *line);

		for (; left != 0; left &= left - 1)
		{
			*cell = (unsigned) __builtin_ctz(left);
			if (pmh_line_value(l, *cell) == value)
				return true;
		}
	}
	return false;
}

/* Does the buffer hold anything but the values of 'mask' in 'line'? */
static bool
has_others(const PmhTable *t, uint64_t payload, uint32_t line, uint32_t mask)
{
	uint32_t	class = pmh_pointer_class(payload);

	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		uint32_t	state = pm_load(&pmh_buffer_line(t, payload, i)->state);

		if (i == line)
			state &= ~mask;
		if ((state & pmh_line_cells(payload, i)) != 0)
			return true;
	}
	return false;
}

/*
 * Find a value in the first buffers of a list: the buffer, what points to it, and
 * line and cell.  PMH_OK, PMH_NOT_FOUND, PMH_FAR; PMH_NEED, PMH_ERR_CORRUPT.
 */
static PmhResult
find_in_list(PmhTable *t, uint64_t hash, uint64_t value, uint64_t *before,
			 uint64_t *payload, uint32_t *line, unsigned *cell)
{
	uint32_t	lines = 0;
	PmhResult	result = pmh_buffer_check(t, hash, *payload);

	*before = 0;
	while (result == PMH_OK && !find_value(t, *payload, value, line, cell))
	{
		uint64_t	next;

		lines += pmh_class_lines(pmh_pointer_class(*payload));
		result = pmh_buffer_follow(t, hash, *payload, &next);
		if (result != PMH_OK)
			break;
		if (next == 0)
			return PMH_NOT_FOUND;
		if (lines + pmh_class_lines(pmh_pointer_class(next)) > PMH_LOCKED_LINES)
			return PMH_FAR;
		*before = *payload;
		*payload = next;
	}
	return result;
}

PmhResult
pmh_list_remove(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t value,
				bool wait, uint64_t *new_payload)
{
	uint64_t	before;
	uint64_t	p = payload;
	uint32_t	line;
	unsigned	cell;
	PmhResult	result = find_in_list(t, hash, value, &before, &p, &line, &cell);

	*new_payload = payload;
	if (result != PMH_OK)
		return result;

	if (has_others(t, p, line, UINT32_C(1) << cell))
	{
		pmh_buffer_bump(t, pmh_pointer_offset(p));
		pmh_line_clear(t, p, line, UINT32_C(1) << cell);
		/* Once more, before the cell can be another value's: as in pmh_list_take_out. */
		pmh_buffer_bump(t, pmh_pointer_offset(p));
		pm_fence(&t->file);
	}
	else if (!wait && !pmh_space_trylock(t))
		return PMH_BUSY;
	else if (before != 0)
		return pmh_list_unlink(t, hash, payload, before, p);
	else
	{
		result = pmh_buffer_follow(t, hash, p, new_payload);
		if (result == PMH_OK && *new_payload != 0)
		{
			pmh_list_note_rest(t, p, p, *new_payload);
			pm_fence(&t->file); /* before a bucket points to it */
		}
		return result;
	}
	return PMH_OK;
}

/* Is 'next', which follows 'holder', a buffer of the same list? */
static bool
is_of_list(PmhTable *t, uint64_t holder, uint64_t next)
{
	return pmh_list_check_next(t, holder, next) == PMH_OK &&
		pmh_header_fits(t, next, pm_load(&pmh_buffer_header(t, holder)->hash));
}

void
pmh_list_retire(PmhTable *t, uint64_t old, uint64_t new_payload)
{
	uint64_t	new_next = 0;

	if (new_payload != 0 && pmh_class_has_header(pmh_pointer_class(new_payload)))
		new_next = pm_load(&pmh_buffer_header(t, new_payload)->next);
	while (old != 0 && old != new_payload && old != new_next)
	{
		uint64_t	next = 0;

		PMH_STOP_POINT("list_before_free");
		if (pmh_class_has_header(pmh_pointer_class(old)))
			next = pm_load(&pmh_buffer_header(t, old)->next);
		/* What is damaged, or cannot be looked at here, is left to a walk. */
		if (next != 0 && next != new_payload && next != new_next &&
			!is_of_list(t, old, next))
		{
			next = 0;
			pmh_value_lose(t);
		}
		pmh_value_free(t, pmh_pointer_offset(old), pmh_pointer_class(old));
		old = next;
	}
}
