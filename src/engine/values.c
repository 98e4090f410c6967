/*-------------------------------------------------------------------------
 *
 * values.c
 *	  Value lists: where keys with many duplicates keep their values.
 *
 * The format is in layout.h, the protocol in src/README ("Duplicates", "Value
 * lists", "Locks").  Size-classed buffers for the values of one key are the
 * idea of Pea Hash, section 3.3; the bit per value, which makes adding and
 * removing one a commit store in a single line, and chaining in front, which
 * bounds slack, are ours.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "sort.h"
#include "values.h"

/* Buffers are written in pieces of this size, put together on the stack. */
#define PIECE_LINES		64

/* A new buffer in front of a chain has an eighth of the list's size. */
#define CHAIN_SHIFT		3

/* A buffer is looked for so often, if its list changes all the while. */
#define MOST_SEARCHES	100

/* Moves that sorting a few values by insertion may take; and two a value. */
#define LEAST_MOVES		256

/*
 * Cutting a list into buffers, one that is larger than needed is taken if it
 * does not exceed 8 bytes a value, or is so small that a second buffer would
 * not pay.
 */
#define FIT_BYTES_PER_VALUE	8
#define FIT_SMALL_CLASS		4

/* ---- arrays of values ---- */

PmhResult
pmh_values_reserve(PmhTable *t, PmhValues *values, size_t n)
{
	size_t		wanted = values->n + n;
	size_t		capacity = values->capacity ? values->capacity : 64;
	uint64_t   *value;

	if (wanted <= values->capacity)
		return PMH_OK;
	while (capacity < wanted)
		capacity *= 2;
	value = realloc(values->value, capacity * sizeof(uint64_t));
	if (value == NULL)
		return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory for %zu values of one key.", wanted);
	values->value = value;
	values->capacity = capacity;
	return PMH_OK;
}

void
pmh_values_free(PmhValues *values)
{
	free(values->value);
	memset(values, 0, sizeof(*values));
}

void
pmh_values_finish(PmhValues *values)
{
	uint64_t   *value = values->value;
	size_t		last = 0;

	if (values->n < 2)
		return;
	/*
	 * Values of a key mostly come in ascending order but for a few, since they
	 * were put into its list one behind the other.
	 */
	if (!pmh_sort_by_insertion(value, values->n, LEAST_MOVES + 2 * values->n))
		pmh_sort_numbers(value, values->n);
	for (size_t i = 1; i < values->n; i++)
	{
		last += value[i] != value[last];
		value[last] = value[i];
	}
	values->n = last + 1;
}

/* ---- reading ---- */

PmhResult
pmh_buffer_check_span(PmhTable *t, uint64_t payload)
{
	uint64_t	offset = pmh_pointer_offset(payload);
	uint32_t	class = pmh_pointer_class(payload);

	if (class > PMH_MAX_CLASS || offset < pmh_block_size(t))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, offset,
						"The pointer to a value buffer (offset %llu, class %u) is impossible.",
						(unsigned long long) offset, class);
	return pmh_check_span(t, offset, pmh_class_bytes(class));
}

PmhResult
pmh_list_check_next(PmhTable *t, uint64_t holder, uint64_t next)
{
	if (next == 0)
		return PMH_OK;
	if (!pmh_class_has_header(pmh_pointer_class(next)))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, pmh_pointer_offset(holder),
						"The value buffer at offset %llu is followed by one that cannot be chained.",
						(unsigned long long) pmh_pointer_offset(holder));
	return pmh_buffer_check_span(t, next);
}

static PmhResult
fail_foreign(PmhTable *t, uint64_t payload)
{
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, pmh_pointer_offset(payload),
					"The value buffer at offset %llu belongs to another key.",
					(unsigned long long) pmh_pointer_offset(payload));
}

PmhResult
pmh_list_circle(PmhTable *t, uint64_t payload)
{
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, pmh_pointer_offset(payload),
					"The value list with a buffer at offset %llu runs in a circle.",
					(unsigned long long) pmh_pointer_offset(payload));
}

uint32_t
pmh_line_read(const PmhValueLine *line, uint64_t *value, uint32_t *mask)
{
	for (;;)
	{
		uint32_t	state = pm_load_acquire(&line->state);
		uint32_t	left = state & PMH_LINE_OCCUPIED;
		uint32_t	n = 0;

		*mask = left;
		if (left == PMH_LINE_OCCUPIED)
		{
			for (; n < PMH_VALUES_PER_LINE; n++)
				value[n] = pmh_line_value(line, n) & PMH_VALUE_MAX;
			left = 0;
		}
		for (; left != 0; left &= left - 1)
			value[n++] = pmh_line_value(line, (unsigned) __builtin_ctz(left)) &
				PMH_VALUE_MAX;
		pmh_read_fence();
		if (((pm_load(&line->state) ^ state) & ~PMH_LINE_OCCUPIED) == 0)
			return n;
	}
}

PmhListPosition
pmh_list_at(const PmhTable *t, uint64_t payload, uint64_t version)
{
	PmhListPosition pos = {payload, version, 0, 0};

	if (payload != 0 && pmh_class_has_header(pmh_pointer_class(payload)))
	{
		uint64_t	birth = pm_load(&pmh_buffer_header(t, payload)->birth);

		if (pmh_buffer_valid(t, pmh_pointer_offset(payload), version))
			pos.birth = birth;
	}
	return pos;
}

bool
pmh_list_is_circle(const PmhTable *t, PmhListCircle *circle,
				   const PmhListPosition *pos)
{
	if (pos->payload == 0)
		return false;
	if (pos->payload == circle->payload &&
		pmh_buffer_valid(t, pmh_pointer_offset(pos->payload), circle->version))
		return true;
	if (pos->payload != circle->payload && ++circle->steps < circle->most)
		return false;
	circle->payload = pos->payload;
	circle->version = pos->version;
	circle->steps = 0;
	circle->most = circle->most == 0 ? 2 : 2 * circle->most;
	return false;
}

/*
 * Reader, after everything it has read of a buffer: was it all right, and where
 * does the list go on?  The next buffer counts as alive at next->version, since
 * a writer that takes it out of the list counts our version up before it is freed.
 * For the same reason, if our version has not even changed after the file's end
 * was looked up, and the next one lies beyond that, this is damage.
 */
PmhResult
pmh_list_pass(PmhTable *t, uint64_t hash, const PmhListPosition *at,
			  PmhListPosition *next)
{
	uint64_t	payload = at->payload;
	bool		foreign = false;
	uint64_t	next_payload = 0;
	uint64_t	next_version = 0;
	PmhResult	result;

	PMH_STOP_POINT("list_before_validation");
	if (pmh_class_has_header(pmh_pointer_class(payload)))
	{
		const PmhBufferHeader *header = pmh_buffer_header(t, payload);

		foreign = pm_load(&header->hash) != hash;
		next_payload = pm_load(&header->next);
		if (next_payload != 0)
			next_version = pmh_buffer_version(t, pmh_pointer_offset(next_payload));
	}
	PMH_STOP_POINT("list_before_span");
	result = pmh_list_check_next(t, payload, next_payload);
	if (!pmh_buffer_valid(t, pmh_pointer_offset(payload), at->version))
		return PMH_RETRY;
	if (foreign)
		return fail_foreign(t, payload);
	if (result == PMH_OK)
		*next = pmh_list_at(t, next_payload, next_version);
	return result;
}

PmhResult
pmh_list_step(PmhTable *t, uint64_t hash, PmhListPosition *pos, uint32_t want,
			  uint64_t *value, uint16_t *place, uint32_t *n)
{
	uint32_t	class = pmh_pointer_class(pos->payload);
	uint32_t	lines = pmh_class_lines(class);
	uint32_t	line = pos->line;
	uint32_t	found = 0;
	PmhListPosition next;
	PmhResult	result;

	if (line < pmh_class_first_line(class))
		line = pmh_class_first_line(class);
	PMH_STOP_POINT("list_before_reading");
	for (; line < lines && found < want; line++)
	{
		uint32_t	mask;
		uint32_t	k = pmh_line_read(pmh_buffer_line(t, pos->payload, line),
									  value + found, &mask);

		for (; place != NULL && mask != 0; mask &= mask - 1)
			*place++ = pmh_make_place(line, (unsigned) __builtin_ctz(mask));
		found += k;
	}
	result = pmh_list_pass(t, hash, pos, &next);
	if (result != PMH_OK)
		return result;
	if (line < lines)
		pos->line = line;
	else
		*pos = next;
	*n = found;
	return PMH_OK;
}

/*
 * A walk has come to a buffer that has a header, and knows no birth.  If it has
 * changed meanwhile that is why; if it has not, the header tells of none: it is
 * damaged, or the zeroes of a page that is lost, and it will be the same next time.
 */
static PmhResult
no_birth(PmhTable *t, const PmhListPosition *pos)
{
	if (!pmh_buffer_valid(t, pmh_pointer_offset(pos->payload), pos->version))
		return PMH_RETRY;
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, pmh_pointer_offset(pos->payload),
					"The header of the value buffer at offset %llu is damaged.",
					(unsigned long long) pmh_pointer_offset(pos->payload));
}

/* Go on from pos to the buffer 'wanted'.  As pmh_list_find_again. */
static PmhResult
find_from(PmhTable *t, uint64_t hash, PmhListPosition *pos,
		  PmhListPosition *wanted, PmhListPosition *before)
{
	PmhListCircle circle = {0};

	while (pos->payload != 0 && pos->payload != wanted->payload)
	{
		PmhResult	result;

		if (pmh_list_is_circle(t, &circle, pos))
			return pmh_list_circle(t, pos->payload);
		*before = *pos;
		result = pmh_list_pass(t, hash, before, pos);
		if (result != PMH_OK)
			return result;
	}
	if (pos->payload == 0 || wanted->birth == 0)
		return PMH_NOT_FOUND;
	if (pos->birth == 0)
		return no_birth(t, pos);
	if (pos->birth != wanted->birth)
		return PMH_NOT_FOUND;
	wanted->version = pos->version;
	return PMH_OK;
}

PmhResult
pmh_list_find_again(PmhTable *t, PmhSide side, uint64_t hash,
					PmhListPosition *wanted, PmhListPosition *before)
{
	PmhResult	result = PMH_RETRY;

	/* One without a birth that is the only one is never found. */
	memset(before, 0, sizeof(*before));
	if (wanted->birth == 0)
		return PMH_NOT_FOUND;
	for (unsigned i = 0; i < MOST_SEARCHES && result == PMH_RETRY; i++)
	{
		PmhProbe	probe;
		PmhListPosition pos;

		result = pmh_probe_in(t, side, hash, &probe);
		if (result != PMH_OK)
			return result;
		memset(before, 0, sizeof(*before));
		pos = pmh_list_at(t, probe.list, probe.list_version);
		PMH_STOP_POINT("list_before_search");
		result = find_from(t, hash, &pos, wanted, before);
		if (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK)
			result = PMH_RETRY;
	}
	return result;
}

PmhResult
pmh_list_read(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t version,
			  PmhValues *values)
{
	PmhListPosition pos = {payload, version, 0, 0};
	PmhListCircle circle = {0};
	size_t		before = values->n;
	PmhResult	result = PMH_OK;

	while (result == PMH_OK && pos.payload != 0)
	{
		uint32_t	capacity = pmh_class_capacity(pmh_pointer_class(pos.payload));
		uint32_t	n = 0;

		if (pmh_list_is_circle(t, &circle, &pos))
			result = pmh_list_circle(t, payload);
		else
			result = pmh_values_reserve(t, values, capacity);
		if (result == PMH_OK)
			result = pmh_list_step(t, hash, &pos, capacity + 1,
								   values->value + values->n, NULL, &n);
		values->n += n;
	}
	if (result != PMH_OK)
		values->n = before;
	return result;
}

/* ---- writing buffers ---- */

/* Put values into the places of a line, from the first on; returns how many. */
static uint32_t
fill_line(PmhValueLine *line, const uint64_t *values, size_t n)
{
	uint32_t	k = n < PMH_VALUES_PER_LINE ? (uint32_t) n : PMH_VALUES_PER_LINE;

	for (uint32_t i = 0; i < k; i++)
	{
		line->low[i] = (uint32_t) values[i];
		line->high[i] = (uint16_t) (values[i] >> 32);
	}
	line->state = (UINT32_C(1) << k) - 1;
	return k;
}

static void
fill_header(PmhTable *t, PmhBufferHeader *header, uint64_t hash, uint64_t next,
			uint64_t list_bytes, size_t n)
{
	header->hash = hash;
	header->next = next;
	header->fill_hint = 1 + n / PMH_VALUES_PER_LINE;
	header->list_bytes = list_bytes;
	header->birth = __atomic_add_fetch(&pmh_run(t)->births, 1, __ATOMIC_RELAXED);
}

/*
 * Write all of a new buffer: n values (not more than fit) and, if its class
 * has one, the header.  Durable after the next pm_fence.
 */
static void
write_buffer(PmhTable *t, uint64_t payload, uint64_t hash, uint64_t next,
			 uint64_t list_bytes, const uint64_t *values, size_t n)
{
	PmhValueLine piece[PIECE_LINES];
	uint32_t	lines = pmh_class_lines(pmh_pointer_class(payload));
	uint32_t	line = 0;

	while (line < lines)
	{
		uint32_t	k = lines - line < PIECE_LINES ? lines - line : PIECE_LINES;

		memset(piece, 0, k * sizeof(PmhValueLine));
		for (uint32_t i = 0; i < k; i++)
		{
			uint32_t	stored;

			if (line + i == 0 && pmh_class_has_header(pmh_pointer_class(payload)))
			{
				fill_header(t, (PmhBufferHeader *) (void *) &piece[0], hash, next,
							list_bytes, n);
				continue;
			}
			stored = fill_line(&piece[i], values, n);
			values += stored;
			n -= stored;
		}
		pm_copy(&t->file, pmh_buffer_line(t, payload, line), piece,
				k * sizeof(PmhValueLine));
		line += k;
	}
}

static uint32_t
smallest_class_for(size_t n)
{
	uint32_t	class = 0;

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
	uint32_t	class = smallest_class_for(left);

	if (chained && class < PMH_HEADER_CLASS)
		class = PMH_HEADER_CLASS;
	if (class <= FIT_SMALL_CLASS || pmh_class_capacity(class) <= left ||
		pmh_class_bytes(class) <= left * FIT_BYTES_PER_VALUE)
		return class;
	return class - 1;
}

static uint64_t
list_bytes_from(const PmhTable *t, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);

	if (!pmh_class_has_header(class))
		return pmh_class_bytes(class);
	return pm_load(&pmh_buffer_header(t, payload)->list_bytes);
}

PmhResult
pmh_list_create(PmhTable *t, uint64_t hash, const uint64_t *values, size_t n,
				uint64_t *payload)
{
	uint64_t	head = 0;
	uint64_t	list_bytes = 0;

	while (n > 0)
	{
		uint32_t	class = choose_class(n, head != 0);
		size_t		k = pmh_class_capacity(class);
		uint64_t	offset;
		PmhResult	result = pmh_value_alloc(t, class, &offset);

		if (result != PMH_OK)
		{
			pm_fence(&t->file);
			pmh_list_retire(t, head, 0);
			return result;
		}
		if (k > n)
			k = n;
		list_bytes += pmh_class_bytes(class);
		write_buffer(t, pmh_make_pointer(offset, class), hash, head, list_bytes,
					 values, k);
		head = pmh_make_pointer(offset, class);
		values += k;
		n -= k;
	}
	pm_fence(&t->file);
	*payload = head;
	return PMH_OK;
}

/* ---- adding a value ---- */

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
		uint64_t	hint = pm_load(&pmh_buffer_header(t, payload)->fill_hint);

		if (hint > line && hint <= lines)
			line = (uint32_t) hint;
	}
	while (line < lines &&
		   (pm_load(&pmh_buffer_line(t, payload, line)->state) &
			PMH_LINE_OCCUPIED) == PMH_LINE_OCCUPIED)
		line++;
	return line;
}

static void
set_fill_hint(PmhTable *t, uint64_t payload, uint32_t line)
{
	PmhBufferHeader *header;

	if (!pmh_class_has_header(pmh_pointer_class(payload)))
		return;
	header = pmh_buffer_header(t, payload);
	if (pm_load(&header->fill_hint) != line)
		pm_store64(&header->fill_hint, line);
}

/* Value, then line state, all in one line. */
static void
append_in_place(PmhTable *t, uint64_t payload, uint32_t line, uint64_t value,
				bool fence_first, bool fence)
{
	PmhValueLine *l = pmh_buffer_line(t, payload, line);
	uint32_t	state = pm_load(&l->state);
	unsigned	i = (unsigned) __builtin_ctz(~state);

	pm_store32(&l->low[i], (uint32_t) value);
	pm_store16(&l->high[i], (uint16_t) (value >> 32));
	if (fence_first)
		pm_fence(&t->file);
	PMH_STOP_POINT("append_before_state");
	pm_store32(&l->state, state | UINT32_C(1) << i);
	PMH_STOP_POINT("append_after_state");
	pm_flush(&t->file, l, sizeof(*l));
	if (fence)
		pm_fence(&t->file);
}

/* The list with 'value' in a copy of its first buffer, a class larger. */
static PmhResult
append_by_copy(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t value,
			   uint64_t *new_payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint64_t	values[(UINT32_C(1) << (PMH_CHAIN_CLASS - 1)) * PMH_VALUES_PER_LINE + 1];
	uint64_t	next = 0;
	uint64_t	list_bytes;
	uint64_t	offset;
	size_t		n = 0;
	PmhResult	result = pmh_value_alloc(t, class + 1, &offset);

	if (result != PMH_OK)
		return result;
	for (uint32_t line = pmh_class_first_line(class); line < pmh_class_lines(class); line++)
	{
		uint32_t	mask;

		n += pmh_line_read(pmh_buffer_line(t, payload, line), values + n, &mask);
	}
	values[n++] = value;
	if (pmh_class_has_header(class))
		next = pm_load(&pmh_buffer_header(t, payload)->next);
	list_bytes = list_bytes_from(t, payload) + pmh_class_bytes(class);
	*new_payload = pmh_make_pointer(offset, class + 1);
	write_buffer(t, *new_payload, hash, next, list_bytes, values, n);
	pm_fence(&t->file);
	return PMH_OK;
}

/* The list with a further buffer in front, and 'value' in that. */
static PmhResult
append_by_chain(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t value,
				uint64_t *new_payload)
{
	uint64_t	list_bytes = list_bytes_from(t, payload);
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
	write_buffer(t, *new_payload, hash, payload,
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
		pm_load(&pmh_buffer_header(t, payload)->hash) != hash)
		return fail_foreign(t, payload);
	return PMH_OK;
}

PmhResult
pmh_list_append(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t value,
				bool fence_first, bool fence, uint64_t *new_payload)
{
	PmhResult	result = pmh_buffer_check(t, hash, payload);
	uint32_t	line;

	if (result != PMH_OK)
		return result;
	line = find_room(t, payload);
	if (line < pmh_class_lines(pmh_pointer_class(payload)))
	{
		append_in_place(t, payload, line, value, fence_first, fence);
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
	pm_store32(&l->state, pmh_line_state_without(pm_load(&l->state), mask));
	PMH_STOP_POINT("line_clear_after_state");
	pm_flush(&t->file, l, sizeof(l->state));
	if (pmh_class_has_header(pmh_pointer_class(payload)) &&
		pm_load(&pmh_buffer_header(t, payload)->fill_hint) > line)
		set_fill_hint(t, payload, line);
}

/* Let 'before' be followed by the buffer 'next', durably. */
static void
relink(PmhTable *t, uint64_t before, uint64_t next)
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
pmh_list_unlink(PmhTable *t, uint64_t before, uint64_t payload)
{
	relink(t, before, pm_load(&pmh_buffer_header(t, payload)->next));
	pmh_value_free(t, pmh_pointer_offset(payload), pmh_pointer_class(payload));
}

/* Find a value in a buffer: its line (and place), or false. */
static bool
find_value(const PmhTable *t, uint64_t payload, uint64_t value, uint32_t *line,
		   unsigned *place)
{
	uint32_t	class = pmh_pointer_class(payload);

	for (*line = pmh_class_first_line(class); *line < pmh_class_lines(class); (*line)++)
	{
		const PmhValueLine *l = pmh_buffer_line(t, payload, *line);
		uint32_t	left = pm_load(&l->state) & PMH_LINE_OCCUPIED;

		for (; left != 0; left &= left - 1)
		{
			*place = (unsigned) __builtin_ctz(left);
			if (pmh_line_value(l, *place) == value)
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
		if ((state & PMH_LINE_OCCUPIED) != 0)
			return true;
	}
	return false;
}

/*
 * Find a value in the first buffers of a list: the buffer, what points to it, and
 * the place.  PMH_OK, PMH_NOT_FOUND, PMH_FAR; PMH_NEED, PMH_ERR_CORRUPT.
 */
static PmhResult
find_in_list(PmhTable *t, uint64_t hash, uint64_t value, uint64_t *before,
			 uint64_t *payload, uint32_t *line, unsigned *place)
{
	uint32_t	lines = 0;
	PmhResult	result = pmh_buffer_check(t, hash, *payload);

	*before = 0;
	while (result == PMH_OK && !find_value(t, *payload, value, line, place))
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
	unsigned	place;
	PmhResult	result = find_in_list(t, hash, value, &before, &p, &line, &place);

	*new_payload = payload;
	if (result != PMH_OK)
		return result;

	if (has_others(t, p, line, UINT32_C(1) << place))
	{
		pmh_buffer_bump(t, pmh_pointer_offset(p));
		pmh_line_clear(t, p, line, UINT32_C(1) << place);
		pm_fence(&t->file);
	}
	else if (!wait && !pmh_space_trylock(t))
		return PMH_BUSY;
	else if (before != 0)
		pmh_list_unlink(t, before, p);
	else
	{
		*new_payload = 0;
		if (pmh_class_has_header(pmh_pointer_class(p)))
			*new_payload = pm_load(&pmh_buffer_header(t, p)->next);
		return pmh_list_check_next(t, p, *new_payload);
	}
	return PMH_OK;
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
		pmh_value_free(t, pmh_pointer_offset(old), pmh_pointer_class(old));
		old = next;
	}
}

/* ---- fewer buffers, or other ones ---- */

uint32_t
pmh_buffer_count(const PmhTable *t, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	n = 0;

	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
		n += pmh_mask_count(pm_load(&pmh_buffer_line(t, payload, i)->state) &
							PMH_LINE_OCCUPIED);
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

/* The smallest class that holds n values and may stand where the run stands. */
static uint32_t
class_for_run(size_t n, const PmhListRun *run)
{
	uint32_t	class;

	if (run->before == 0)
		n += n / PMH_HEAD_ROOM;	/* the head is where values are added */
	class = smallest_class_for(n);
	if (pmh_class_bytes(class) > run->bytes)
		class = smallest_class_for(run->values);
	if ((run->before != 0 || run->behind != 0) && class < PMH_HEADER_CLASS)
		class = PMH_HEADER_CLASS;
	return class;
}

bool
pmh_list_run_pays(const PmhListRun *run)
{
	uint64_t	bytes = pmh_class_bytes(class_for_run(run->values, run));

	return bytes * 4 <= run->bytes * 3;
}

PmhResult
pmh_list_rewrite(PmhTable *t, const PmhPlace *place, const PmhListSlot *at,
				 uint64_t hash, const PmhListRun *run, uint64_t *new_payload)
{
	uint64_t	values[PMH_MAX_LINES * PMH_VALUES_PER_LINE + PMH_VALUES_PER_LINE];
	uint32_t	class = class_for_run(run->values, run);
	uint64_t	list_bytes = pmh_class_bytes(class);
	uint64_t	offset;
	size_t		n = 0;
	PmhResult	result = pmh_value_alloc(t, class, &offset);

	if (result != PMH_OK)
		return result;
	/* Among zeroes, in the place of a lost page, the list ends early. */
	for (uint64_t p = run->first; p != 0 && p != run->behind; p = pmh_buffer_next(t, p))
	{
		uint32_t	old = pmh_pointer_class(p);
		uint32_t	mask;

		for (uint32_t i = pmh_class_first_line(old); i < pmh_class_lines(old); i++)
			n += pmh_line_read(pmh_buffer_line(t, p, i), values + n, &mask);
	}
	if (run->behind != 0)
		list_bytes += list_bytes_from(t, run->behind);
	*new_payload = pmh_make_pointer(offset, class);
	write_buffer(t, *new_payload, hash, run->behind, list_bytes, values, n);
	pm_fence(&t->file);

	PMH_STOP_POINT("rewrite_before_publish");
	if (run->before == 0)
		pmh_bucket_repoint(t, place, at->bucket, at->slot, *new_payload);
	else
		relink(t, run->before, *new_payload);
	pmh_count(&pmh_run(t)->list_rewrites, 1);
	PMH_STOP_POINT("rewrite_before_retire");
	pmh_list_retire(t, run->first, *new_payload);
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
pmh_list_search(PmhTable *t, PmhSide side, uint64_t hash, PmhListWalk *walk)
{
	PmhListPosition wanted = {walk->before, walk->version, walk->birth, 0};
	PmhListPosition before;
	PmhResult	result = pmh_list_find_again(t, side, hash, &wanted, &before);

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
	at = pmh_list_at(t, walk->before, pmh_buffer_version(t, pmh_pointer_offset(walk->before)));
	walk->version = at.version;
	walk->birth = at.birth;
}

PmhResult
pmh_list_drop(PmhTable *t, const PmhPlace *place, const PmhListSlot *at,
			  uint64_t before, uint64_t payload)
{
	uint64_t	next = pmh_buffer_next(t, payload);
	PmhResult	result;

	if (before != 0)
	{
		pmh_list_unlink(t, before, payload);
		return PMH_OK;
	}
	result = pmh_list_check_next(t, payload, next);
	if (result != PMH_OK)
		return result;
	if (next == 0)
		pmh_bucket_unpoint(t, place, at->bucket, at->slot);
	else
		pmh_bucket_repoint(t, place, at->bucket, at->slot, next);
	pmh_list_retire(t, payload, next);
	return PMH_OK;
}

/* Is anything left of a buffer without the places of mask[]? */
static bool
anything_left(const PmhTable *t, uint64_t payload, const uint16_t *mask)
{
	uint32_t	class = pmh_pointer_class(payload);

	for (uint32_t i = pmh_class_first_line(class); i < pmh_class_lines(class); i++)
	{
		if ((pm_load(&pmh_buffer_line(t, payload, i)->state) & PMH_LINE_OCCUPIED &
			 ~(uint32_t) mask[i]) != 0)
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
	}
	if (!wait && !pmh_space_trylock(t))
		return PMH_BUSY;
	result = pmh_list_drop(t, place, &slot, from, at->payload);
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
	at->version = pmh_buffer_version(t, offset);
	return PMH_OK;
}

void
pmh_list_note_bytes(PmhTable *t, uint64_t head, uint64_t bytes)
{
	PmhBufferHeader *header = pmh_buffer_header(t, head);

	if (!pmh_class_has_header(pmh_pointer_class(head)) ||
		pm_load(&header->list_bytes) == bytes)
		return;
	pm_store64(&header->list_bytes, bytes);
	pm_flush(&t->file, header, sizeof(*header));
	pm_fence(&t->file);
}
