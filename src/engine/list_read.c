/*-------------------------------------------------------------------------
 *
 * list_read.c
 *	  Value lists: reading them without a lock; arrays of values.
 *
 * See src/README, "Value lists".
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "segment.h"
#include "sort.h"

/* Moves that sorting a few values by insertion may take; and two a value. */
#define LEAST_MOVES		1024

PmhResult
pmh_buffer_check_span(PmhTable *t, uint64_t payload)
{
	uint64_t	offset = pmh_pointer_offset(payload);
	uint32_t	class = pmh_pointer_class(payload);

	if (class < PMH_LEAST_CLASS || class > PMH_MAX_CLASS ||
		!pmh_buffer_may_be_at(class, offset) ||
		(pmh_pointer_level(payload) > 0 && class < PMH_INDEX_CLASS))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, offset,
						"The pointer to a value buffer (offset %llu, class %u) is "
						"impossible.",
						(unsigned long long) offset, class);
	return pmh_check_span(t, offset, pmh_class_bytes(class));
}

PmhResult
pmh_list_check_child(PmhTable *t, uint64_t holder, uint64_t child)
{
	PMH_ASSERT(pmh_pointer_level(holder) > 0);
	if (pmh_pointer_level(child) != pmh_pointer_level(holder) - 1)
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, pmh_pointer_offset(holder),
						"The index of a value list at offset %llu names a buffer of "
						"another level.",
						(unsigned long long) pmh_pointer_offset(holder));
	return pmh_buffer_check_span(t, child);
}

PmhResult
pmh_list_fail_foreign(PmhTable *t, uint64_t payload)
{
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, pmh_pointer_offset(payload),
					"The value buffer at offset %llu belongs to another key, or is of "
					"another kind.",
					(unsigned long long) pmh_pointer_offset(payload));
}

/*
 * The five values of a line, by its words: what is in the cells that are not
 * occupied, or not there in a short line, means nothing.
 */
static inline void
unpack_line(const uint64_t word[4], uint64_t value[PMH_VALUES_PER_LINE])
{
	value[0] = word[0] >> 32 | (word[0] >> 16 & 0xffff) << 32;
	value[1] = (uint32_t) word[1] | (word[1] >> 32 & 0xffff) << 32;
	value[2] = (uint32_t) word[2] | (word[1] >> 48) << 32;
	value[3] = word[2] >> 32 | (word[3] & 0xffff) << 32;
	value[4] = word[3] >> 32 | (word[3] >> 16 & 0xffff) << 32;
	for (unsigned i = 0; i < PMH_VALUES_PER_LINE; i++)
		value[i] &= PMH_VALUE_MAX;
}

static inline uint32_t __attribute__((always_inline))
read_line(const PmhValueLine *line, uint32_t cells, uint64_t *value)
{
	uint64_t	word[4];
	uint64_t	all[PMH_VALUES_PER_LINE];
	uint32_t	mask;
	uint32_t	n = 0;

	PMH_ASSERT((cells & ~PMH_LINE_OCCUPIED) == 0);
	/* The state is the low part of the first word. */
	word[0] = pm_load_acquire(&line->word[0]);
	for (unsigned i = 1; i < 4; i++)
	{
		PMH_STOP_POINT("value_between_halves");
		word[i] = pm_load(&line->word[i]);
	}
	mask = (uint32_t) word[0] & cells;
	if (likely(mask == PMH_LINE_OCCUPIED))
	{
		unpack_line(word, value);
		return PMH_VALUES_PER_LINE;
	}
	unpack_line(word, all);
	for (; mask != 0; mask &= mask - 1)
		value[n++] = all[__builtin_ctz(mask)];
	return n;
}

uint32_t
pmh_line_read(const PmhValueLine *line, uint32_t cells, uint64_t *value)
{
	return read_line(line, cells, value);
}

uint64_t
pmh_index_last(const PmhTable *t, uint64_t payload, uint64_t from, uint32_t *slot)
{
	uint32_t	i = pmh_index_slots(payload) - 1;
	uint64_t	word;

	if (from < i)
		i = (uint32_t) from;
	while ((word = pm_load_acquire(pmh_index_slot(t, payload, i))) == 0 && i > 0)
		i--;
	*slot = i;
	return word;
}

/*
 * What an index names is alive when its version is loaded here: a writer that takes it
 * out of the slot counts the version of the index up before it frees it.  For the same
 * reason, if that has not even changed after the file's end was looked up, and it
 * lies beyond that, this is damage.
 */
PmhResult
pmh_list_descend(PmhTable *t, uint64_t hash, PmhListPath *path, uint64_t below, bool locked)
{
	uint64_t	payload = path->head;
	uint64_t	span = 1;

	PMH_ASSERT(below > 0 && payload != 0);
	PMH_ASSERT(!locked || path->place == NULL || pmh_is_locked(&path->place->stripe->lock));
	memset(path->payload, 0, sizeof(path->payload));
	path->number = 0;
	path->word = payload;
	for (uint32_t level = pmh_pointer_level(payload); level > 1; level--)
		span *= PMH_MAX_INDEX_SLOTS;
	for (uint32_t level = pmh_pointer_level(payload); level > 0; level--)
	{
		bool		fits = pmh_header_fits(t, payload, hash);
		uint64_t	version = 0;
		uint64_t	child;
		PmhResult	result = PMH_OK;

		path->payload[level] = payload;
		path->word = pmh_index_last(t, payload, (below - 1 - path->number) / span,
							   &path->slot[level]);
		child = path->word & PMH_SLOT_POINTER;
		if (child != 0)
		{
			PMH_STOP_POINT("list_before_span");
			version = pmh_buffer_version(t, pmh_pointer_offset(child));
			result = pmh_list_check_child(t, payload, child);
		}
		if (!locked && !pmh_buffer_valid(t, pmh_pointer_offset(payload), path->version))
			return PMH_RETRY;
		if (!fits)
			return pmh_list_fail_foreign(t, payload);
		if (result != PMH_OK || child == 0)
			return result;
		path->number += path->slot[level] * span;
		if (below - path->number > span)
			below = path->number + span;
		span /= PMH_MAX_INDEX_SLOTS;
		payload = child;
		path->version = version;
	}
	path->payload[0] = payload;
	if (locked && pmh_pointer_has_header(payload) && !pmh_header_fits(t, payload, hash))
		return pmh_list_fail_foreign(t, payload);
	return PMH_OK;
}

/* Read the buffer in a slot, from the line pos->line on.  As pmh_list_step. */
static PmhResult
read_lines(PmhTable *t, uint64_t hash, uint64_t payload, uint64_t version, uint64_t number,
		   PmhListPosition *pos, uint32_t want, uint64_t *value, uint32_t *n)
{
	uint32_t	class = pmh_pointer_class(payload);
	uint32_t	first = pmh_class_first_line(class);
	uint32_t	lines = pmh_class_lines(class);
	uint32_t	turn = (uint32_t) ((uint64_t) pos->start * (lines - first) >> 32);
	uint32_t	line = pos->line < first ? first : pos->line;
	uint32_t	found = 0;
	bool		fits;

	PMH_ASSERT(first < lines && turn < lines - first);
	PMH_STOP_POINT("list_before_reading");
	for (; line < lines && found < want; line++)
	{
		uint32_t	turned = line + turn;
		uint32_t	at = turned < lines ? turned : turned - (lines - first);

		found += read_line(pmh_buffer_line(t, payload, at), pmh_line_cells(payload, at),
						   value + found);
	}
	fits = !pmh_class_has_header(class) || pmh_header_fits(t, payload, hash);
	PMH_STOP_POINT("list_before_validation");
	if (!pmh_buffer_valid(t, pmh_pointer_offset(payload), version))
		return PMH_RETRY;
	if (!fits)
		return pmh_list_fail_foreign(t, payload);
	pos->below = number + (line < lines);
	pos->line = line < lines ? line : 0;
	*n = found;
	return PMH_OK;
}

PmhResult
pmh_list_step(PmhTable *t, uint64_t hash, uint64_t head, uint64_t version,
			  PmhListPosition *pos, uint32_t want, uint64_t *value, uint32_t *n)
{
	PmhListPath path;
	PmhListPosition at;
	PmhResult	result;

	PMH_ASSERT(head != 0 && pos->below > 0);
	*n = 0;
	if (pmh_pointer_level(head) == 0)
	{
		if (pmh_pointer_class(head) > PMH_CHUNK_CLASS)
			return pmh_list_fail_foreign(t, head);
		/* All of it.  (Nothing of a list that has lost its index is wanted any more.) */
		pos->line = 0;
		memset(pos->met, 0, sizeof(pos->met));
		pos->met[0] = head;
		return read_lines(t, hash, head, version, 0, pos, PMH_SINGLE_MOST, value, n);
	}
	at = *pos;
	path.head = head;
	path.version = version;
	result = pmh_list_descend(t, hash, &path, pos->below, false);
	if (result != PMH_OK)
		return result;
	memcpy(at.met, path.payload, sizeof(at.met));
	if (path.payload[0] == 0)
	{
		at.below = path.number;
		at.line = 0;
	}
	else
	{
		if (path.number + 1 != pos->below)
			at.line = 0;
		at.again = at.line > 0 && (at.again || path.word != pos->word);
		if (path.word != pos->word)
			at.line = 0;
		at.word = path.word;
		if (at.line == 0)
		{
			/* Of a cold list: ask for the buffer that the walk has come to, and the next. */
			uint64_t	next = 0;
			uint32_t	slot;

			pmh_ask_for_buffer(t, path.payload[0]);
			if (path.slot[1] > 0)
				next = PMH_SLOT_POINTER &
					pmh_index_last(t, path.payload[1], path.slot[1] - 1, &slot);
			if (next != 0)
				pmh_ask_for_buffer(t, next);
		}
		result = read_lines(t, hash, path.payload[0], path.version, path.number, &at, want, value,
							n);
	}
	if (result == PMH_OK)
		*pos = at;
	return result;
}

PmhResult
pmh_list_next(PmhTable *t, uint64_t hash, PmhListPosition *pos, uint32_t want,
			  uint64_t *value, uint32_t *n)
{
	PmhProbe	probe;
	PmhResult	result;

	PMH_ASSERT(pos->below > 0);
	*n = 0;
	while ((result = pmh_probe(t, hash, &probe)) == PMH_OK)
	{
		PMH_STOP_POINT("list_before_step");
		if (probe.list == 0)
		{
			*pos = PMH_LIST_END;
			break;
		}
		result = pmh_list_step(t, hash, probe.list, probe.list_version, pos, want, value, n);
		if (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK)
			continue;
		if (result != PMH_RETRY)
			break;
		/* It has changed meanwhile. */
		if (pmh_wait_cancelled())
			return pmh_fail_cancelled(t);
	}
	return result;
}

PmhResult
pmh_list_whole(PmhTable *t, uint64_t hash, PmhListPosition *pos, uint64_t *value,
			   uint32_t *n)
{
	PmhResult	result = pmh_list_next(t, hash, pos, UINT32_MAX, value, n);

	/* There may be very many more; lists of one buffer need not wait for an answer. */
	if (result == PMH_OK && pos->below != 0 && pmh_wait_cancelled())
		return pmh_fail_cancelled(t);
	return result;
}

/* ---- arrays of values, as look-ups hand them out ---- */

bool
pmh_reserve(void **array, size_t used, size_t n, size_t *room, size_t size)
{
	size_t		want = *room != 0 ? *room : 64;
	void	   *larger;

	PMH_ASSERT(used <= *room);
	if (used + n <= *room)
		return true;
	while (want < used + n)
		want *= 2;
	larger = realloc(*array, want * size);
	if (larger == NULL)
		return false;
	*array = larger;
	*room = want;
	return true;
}

PmhResult
pmh_values_reserve(PmhTable *t, PmhValues *values, size_t n)
{
	if (pmh_reserve((void **) &values->value, values->n, n, &values->capacity, sizeof(uint64_t)))
		return PMH_OK;
	return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
					"There is no memory for %zu values of one key.", values->n + n);
}

void
pmh_values_free(PmhValues *values)
{
	free(values->value);
	memset(values, 0, sizeof(*values));
}

/*
 * Sort numbers by insertion.  False: it takes more than so many moves by one position, and
 * they are not sorted.
 */
static bool
sort_by_insertion(uint64_t *number, size_t n, size_t moves)
{
	for (size_t i = 1; i < n; i++)
	{
		uint64_t	v = number[i];
		size_t		j = i;

		for (; j > 0 && number[j - 1] > v; j--)
			number[j] = number[j - 1];
		number[j] = v;
		if (i - j > moves)
			return false;
		moves -= i - j;
	}
	return true;
}

static void
reverse(uint64_t *number, size_t n)
{
	for (size_t i = 0; i < n / 2; i++)
	{
		uint64_t	v = number[i];

		number[i] = number[n - 1 - i];
		number[n - 1 - i] = v;
	}
}

void
pmh_values_finish(PmhValues *values)
{
	uint64_t   *value = values->value;
	size_t		last = 0;

	if (values->n < 2)
		return;
	/*
	 * Values of a key mostly come in ascending order but for a few, since they were put into
	 * its list one after the other.  Of several buffers the newest is the first: let these
	 * come forward, each of them backward, and then that one forward again.
	 */
	if (value[values->n - 1] < value[0])
	{
		size_t		start = 0;

		reverse(value, values->n);
		for (size_t i = 1; i <= values->n; i++)
		{
			if (i < values->n && value[i - 1] >= value[i])
				continue;
			reverse(value + start, i - start);
			start = i;
		}
	}
	if (!sort_by_insertion(value, values->n, LEAST_MOVES + 2 * values->n))
		(void) pmh_sort_numbers(value, values->n, NULL);
	PMH_ASSERT(value[0] <= value[values->n - 1]);
	for (size_t i = 1; i < values->n; i++)
	{
		last += value[i] != value[last];
		value[last] = value[i];
	}
	values->n = last + 1;
}
