/*-------------------------------------------------------------------------
 *
 * cursor.c
 *	  Cursors: the values of one key in batches.
 *
 * See src/README, "Cursors".  The first batch has all plain entries, and the
 * list as well if it is one buffer of a size that is not chained.  A longer
 * list is streamed buffer by buffer: as long as the version of the buffer we
 * stand in is the same, no value has been taken out of it and it is still part
 * of the list, so that reading may go on.  If the version has changed, but the
 * buffer is still found in the list, and no list has been rewritten, reading may
 * go on as well: values never move inside of a buffer.  Otherwise everything is
 * read anew.
 *
 * What a long list has given is remembered, so that nothing is given twice: a
 * value may have been removed and added again, and a copy of the segment may
 * have moved a plain entry into the list.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "values.h"

enum
{
	CURSOR_FRESH = 0,
	CURSOR_STREAMING,
	CURSOR_AT_END
};

/* ---- the values seen ---- */

/*
 * Values are remembered as bits of groups of 64 neighbours: the values of one key
 * often are neighbours (rows of one page), and come one after the other.  Groups
 * are kept by open addressing, two words each: number + 1 (0 is free), and the
 * bits.  seen->n counts groups, seen->capacity places for them.
 */
#define SEEN_GROUP_BITS		6
#define SEEN_MIN_CAPACITY	1024

static uint64_t *
seen_group(const PmhValues *seen, uint64_t group)
{
	size_t		mask = seen->capacity - 1;
	size_t		i = (size_t) ((group * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & mask;

	while (seen->value[2 * i] != 0 && seen->value[2 * i] != group + 1)
		i = (i + 1) & mask;
	return &seen->value[2 * i];
}

static PmhResult
seen_grow(PmhTable *t, PmhValues *seen)
{
	PmhValues	larger = {NULL, seen->n, seen->capacity ? 4 * seen->capacity : SEEN_MIN_CAPACITY};

	larger.value = calloc(2 * larger.capacity, sizeof(uint64_t));
	if (larger.value == NULL)
		return pmh_fail(t, PMH_ERR_NO_MEMORY, 0, 0,
						"There is no memory to remember the values of one key in %zu groups.",
						seen->n);
	for (size_t i = 0; i < 2 * seen->capacity; i += 2)
	{
		if (seen->value[i] != 0)
		{
			uint64_t   *to = seen_group(&larger, seen->value[i] - 1);

			to[0] = seen->value[i];
			to[1] = seen->value[i + 1];
		}
	}
	free(seen->value);
	*seen = larger;
	return PMH_OK;
}

/* Remember a value; *fresh: it was not there yet. */
static PmhResult
remember(PmhTable *t, PmhValues *seen, uint64_t value, bool *fresh)
{
	uint64_t	number = (value >> SEEN_GROUP_BITS) + 1;
	uint64_t	bit = UINT64_C(1) << (value & ((1 << SEEN_GROUP_BITS) - 1));
	uint64_t   *group;

	if (seen->n * 2 >= seen->capacity)
	{
		PmhResult	result = seen_grow(t, seen);

		if (result != PMH_OK)
			return result;
	}
	group = seen_group(seen, number - 1);
	if (group[0] == 0)
	{
		group[0] = number;
		seen->n++;
	}
	*fresh = (group[1] & bit) == 0;
	group[1] |= bit;
	return PMH_OK;
}

/*
 * Of batch[from ..] (and of place[], if not NULL) keep what has not been seen
 * yet, and remember it.
 */
static PmhResult
keep_unseen(PmhTable *t, PmhCursor *cursor, size_t from, uint16_t *place)
{
	PmhValues  *batch = &cursor->batch;
	size_t		end = batch->n;

	batch->n = from;
	for (size_t i = from; i < end; i++)
	{
		bool		fresh;
		PmhResult	result = remember(t, &cursor->seen, batch->value[i], &fresh);

		if (result != PMH_OK)
			return result;
		if (!fresh)
			continue;
		batch->value[batch->n] = batch->value[i];
		if (place != NULL)
			place[batch->n] = place[i];
		batch->n++;
	}
	return PMH_OK;
}

/* ---- reading ---- */

/*
 * The plain entries behind batch->n, and the cursor stands at the start of the
 * list, if there is one.
 */
static PmhResult
read_plain(PmhTable *t, PmhCursor *cursor)
{
	PmhProbe	probe;
	PmhResult	result;

	cursor->rewrites = pm_load_acquire(&pmh_run(t)->list_rewrites);
	result = pmh_probe(t, cursor->hash, &probe);
	if (result == PMH_OK)
		result = pmh_values_reserve(t, &cursor->batch, probe.n);
	if (result != PMH_OK)
		return result;
	for (uint32_t i = 0; i < probe.n; i++)
		cursor->batch.value[cursor->batch.n++] = probe.value[i];
	cursor->chunk = probe.list;
	cursor->chunk_version = probe.list_version;
	cursor->line = 0;
	cursor->budget = pmh_list_budget(t);
	cursor->state = probe.list == 0 ? CURSOR_AT_END : CURSOR_STREAMING;
	return PMH_OK;
}

/*
 * Read about 'want' values from where the cursor stands in its list, behind
 * batch->n, not beyond the end of the buffer.  Besides PMH_OK as
 * pmh_list_step, but maps further by itself.
 */
static PmhResult
read_on(PmhTable *t, PmhCursor *cursor, size_t want, uint16_t *place)
{
	PmhListPosition pos = {cursor->chunk, cursor->chunk_version, cursor->line};
	uint32_t	capacity = pmh_class_capacity(pmh_pointer_class(cursor->chunk));
	uint32_t	most = want < capacity ? (uint32_t) want : capacity + 1;
	uint32_t	n;
	PmhResult	result;

	do
	{
		result = pmh_values_reserve(t, &cursor->batch, most + PMH_VALUES_PER_LINE);
		if (result == PMH_OK)
			result = pmh_list_step(t, cursor->hash, &pos, most,
								   cursor->batch.value + cursor->batch.n,
								   place, &n);
	} while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	if (result != PMH_OK)
		return result;
	/* At the start of a buffer: the one before it is done. */
	if (pos.line == 0 && !pmh_list_pay(&cursor->budget, cursor->chunk))
		return pmh_list_circle(t, cursor->chunk);
	cursor->batch.n += n;
	cursor->chunk = pos.payload;
	cursor->chunk_version = pos.version;
	cursor->line = pos.line;
	if (pos.payload == 0)
		cursor->state = CURSOR_AT_END;
	return PMH_OK;
}

/*
 * The buffer we stand in has changed.  Go on there if it still is part of the
 * list and no list was rewritten, else from the start.  (A list that is
 * rewritten may come back to a buffer that it had before, with values there that
 * we have not read.  The count is stepped before old buffers are freed, so who
 * finds one that was used again finds another count.)
 */
static PmhResult
find_back(PmhTable *t, PmhCursor *cursor)
{
	PmhProbe	probe;
	PmhListPosition pos;
	PmhResult	result = pmh_probe(t, cursor->hash, &probe);

	if (result != PMH_OK)
		return result;
	pos.payload = probe.list;
	pos.version = probe.list_version;
	pos.line = 0;
	result = pmh_list_find(t, cursor->hash, cursor->chunk, &pos);
	if (result == PMH_NEED)
		return pmh_provide(t);
	if (result == PMH_OK &&
		pm_load_acquire(&pmh_run(t)->list_rewrites) != cursor->rewrites)
		result = PMH_NOT_FOUND;
	if (result == PMH_OK)
		cursor->chunk_version = pos.version;
	else if (result == PMH_NOT_FOUND)
		cursor->state = CURSOR_FRESH;
	else if (result != PMH_RETRY)
		return result;
	return PMH_OK;
}

PmhResult
pmh_cursor_step(PmhTable *t, PmhCursor *cursor, size_t want, uint16_t *place,
				uint64_t *payload)
{
	size_t		from = cursor->batch.n;
	uint64_t	chunk = cursor->chunk;
	PmhResult	result;

	*payload = 0;
	if (cursor->state == CURSOR_FRESH)
	{
		result = read_plain(t, cursor);
		for (size_t i = from; place != NULL && i < cursor->batch.n; i++)
			place[i] = PMH_NO_PLACE;
	}
	else
	{
		result = read_on(t, cursor, want, place == NULL ? NULL : place + from);
		if (result == PMH_RETRY)
			return find_back(t, cursor);
		*payload = chunk;
	}
	if (result != PMH_OK)
		return result;
	return keep_unseen(t, cursor, from, place);
}

bool
pmh_cursor_at_end(const PmhCursor *cursor)
{
	return cursor->state == CURSOR_AT_END;
}

PmhResult
pmh_cursor_leave_out(PmhTable *t, PmhCursor *cursor, uint64_t value)
{
	bool		fresh;

	return remember(t, &cursor->seen, value, &fresh);
}

/*
 * The first batch: all plain entries, and all of a list that is small.  Keys
 * that end here need no memory of what was seen.
 */
static PmhResult
start(PmhTable *t, PmhCursor *cursor, size_t want)
{
	size_t		first;
	PmhResult	result;

	do
	{
		cursor->batch.n = 0;
		result = read_plain(t, cursor);
		if (result != PMH_OK || cursor->state == CURSOR_AT_END)
			return result;
		first = want;
		if (pmh_pointer_class(cursor->chunk) <= PMH_CHAIN_CLASS)
			first = pmh_class_capacity(PMH_CHAIN_CLASS) + 1;
		result = read_on(t, cursor, first, NULL);
	} while (result == PMH_RETRY);
	if (result != PMH_OK || cursor->state == CURSOR_AT_END)
		return result;
	return keep_unseen(t, cursor, 0, NULL);
}

/* The whole key at once. */
static PmhResult
read_everything(PmhTable *t, PmhCursor *cursor)
{
	for (;;)
	{
		PmhResult	result;

		cursor->batch.n = 0;
		result = read_plain(t, cursor);
		if (result != PMH_OK || cursor->state == CURSOR_AT_END)
			return result;
		result = pmh_list_read(t, cursor->hash, cursor->chunk,
							   cursor->chunk_version, &cursor->batch);
		if (result == PMH_OK)
			cursor->state = CURSOR_AT_END;
		else if (result == PMH_NEED)
			result = pmh_provide(t);
		if (cursor->state == CURSOR_AT_END ||
			(result != PMH_OK && result != PMH_RETRY))
			return result;
	}
}

/* A further batch of a long list. */
static PmhResult
stream(PmhTable *t, PmhCursor *cursor, size_t want)
{
	PmhResult	result = PMH_OK;

	while (result == PMH_OK && cursor->state != CURSOR_AT_END &&
		   cursor->batch.n < want)
	{
		uint64_t	payload;

		result = pmh_cursor_step(t, cursor, want - cursor->batch.n, NULL, &payload);
	}
	return result;
}

/* ---- the public face ---- */

void
pmh_cursor_open(PmhTable *table, PmhCursor *cursor, uint64_t hash)
{
	(void) table;
	cursor->hash = hash;
	cursor->batch.n = 0;
	cursor->state = CURSOR_FRESH;
	if (cursor->seen.n > 0)
	{
		memset(cursor->seen.value, 0, 2 * cursor->seen.capacity * sizeof(uint64_t));
		cursor->seen.n = 0;
	}
}

PmhResult
pmh_cursor_next(PmhTable *table, PmhCursor *cursor, size_t want)
{
	PmhResult	result;

	cursor->batch.n = 0;
	if (cursor->state == CURSOR_AT_END)
		return PMH_DONE;
	if (cursor->state == CURSOR_STREAMING || cursor->seen.n > 0)
		result = stream(table, cursor, want == 0 ? SIZE_MAX : want);
	else if (want == 0)
		result = read_everything(table, cursor);
	else
		result = start(table, cursor, want);
	result = pmh_conclude(table, result);
	if (result != PMH_OK)
		return result;
	if (cursor->batch.n == 0 && cursor->state == CURSOR_AT_END)
		return PMH_DONE;
	pmh_values_finish(&cursor->batch);
	return PMH_OK;
}

void
pmh_cursor_free(PmhCursor *cursor)
{
	pmh_values_free(&cursor->batch);
	pmh_values_free(&cursor->seen);
	memset(cursor, 0, sizeof(*cursor));
}
