/*-------------------------------------------------------------------------
 *
 * cursor.c
 *	  Cursors: the values of one key in batches.
 *
 * See src/README, "Cursors and sweeps".  The first batch has all plain entries, and the
 * list as well if it is one buffer.  A longer list is read slot by slot, from the last to the
 * first: a value stays in its slot, so none that is there all the time is passed over,
 * whatever becomes of buffers and indexes between two batches.
 *
 * Three things could give a value twice, and what was given is remembered for two of them: a
 * plain entry may get into the list; and of a slot of which only a part was read, a
 * shrink may put the values into another buffer (PmhListPosition.again).  That is 72 values,
 * and those of a buffer and a batch.  The third is a value that is removed and inserted
 * again, in another slot.  Then it is that of another row, and the first one was dead to
 * everybody when it was removed: no snapshot sees both.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "segment.h"

/* So many steps may add nothing to a batch; then the caller may cancel. */
#define FRUITLESS_STEPS		32

/* ---- the values given ---- */

static PmhResult
remember(PmhTable *t, PmhCursor *cursor, const uint64_t *value, size_t n)
{
	PmhResult	result = pmh_values_reserve(t, &cursor->given, n);

	PMH_ASSERT(n == 0 || value != NULL);
	if (result != PMH_OK || n == 0)
		return result;
	memcpy(cursor->given.value + cursor->given.n, value, n * sizeof(uint64_t));
	cursor->given.n += n;
	return PMH_OK;
}

static bool
was_given(const uint64_t *given, size_t n, uint64_t value)
{
	bool		found = false;

	for (size_t i = 0; i < n; i++)
		found |= given[i] == value;
	return found;
}

/*
 * Of batch[from ..] drop what was given before, as far as the list may have it again, and
 * what the caller does not want to see.
 */
static void
keep_fresh(PmhCursor *cursor, size_t from)
{
	PmhValues  *batch = &cursor->batch;
	const uint64_t *given = cursor->given.value;
	size_t		ngiven = cursor->at.again ? cursor->given.n : cursor->plain;
	size_t		end = batch->n;

	PMH_ASSERT(from <= batch->n && cursor->plain <= cursor->given.n);
	if (ngiven > 0)
	{
		batch->n = from;
		for (size_t i = from; i < end; i++)
		{
			uint64_t	value = batch->value[i];

			if (!was_given(given, ngiven, value))
				batch->value[batch->n++] = value;
		}
	}
	if (cursor->leave_out != NULL)
		batch->n = from + cursor->leave_out(cursor->leave_out_argument, batch->value + from,
											batch->n - from);
}

/* ---- reading ---- */

/* The plain entries, and the first values of the list, after batch.n. */
static PmhResult
read_first(PmhTable *t, PmhCursor *cursor, uint32_t want, size_t room)
{
	PmhValues  *batch = &cursor->batch;
	size_t		from = batch->n;
	PmhProbe	probe;
	uint32_t	n;
	PmhResult	result = pmh_probe(t, cursor->hash, &probe);

	PMH_ASSERT(!cursor->begun && room >= PMH_SINGLE_MOST);
	if (result == PMH_OK)
		result = pmh_values_reserve(t, batch, room + probe.n);
	if (result != PMH_OK)
		return result;
	cursor->at.again = false;
	if (probe.n > 0)
	{
		memcpy(batch->value + from, probe.value, probe.n * sizeof(uint64_t));
		batch->n += probe.n;
		keep_fresh(cursor, from);
	}
	cursor->at.below = probe.list == 0 ? 0 : UINT64_MAX;
	cursor->at.line = 0;
	cursor->at.start = cursor->start;
	if (probe.list != 0)
	{
		result = pmh_list_step(t, cursor->hash, probe.list, probe.list_version, &cursor->at,
							   want, batch->value + batch->n, &n);
		/* What is twice in all of a batch drops out when that is sorted. */
		if (result == PMH_OK && cursor->at.below != 0)
			result = remember(t, cursor, probe.value, probe.n);
		if (result != PMH_OK)
		{
			batch->n = from;
			return result;
		}
		cursor->plain = cursor->given.n;
		batch->n += n;
		keep_fresh(cursor, batch->n - n);
	}
	cursor->begun = true;
	return PMH_OK;
}

/*
 * The plain entries, and about 'want' values of one buffer, are put after batch.n, unsorted,
 * without those given already (that may be all).
 */
static PmhResult
step(PmhTable *t, PmhCursor *cursor, uint32_t want)
{
	PmhValues  *batch = &cursor->batch;
	size_t		from = batch->n;
	size_t		room = want < PMH_CHUNK_MOST ? want + PMH_VALUES_PER_LINE : PMH_STEP_MAX;
	uint32_t	n;
	PmhResult	result;

	if (room < PMH_SINGLE_MOST)
		room = PMH_SINGLE_MOST;
	if (!cursor->begun)
	{
		while ((result = read_first(t, cursor, want, room)) == PMH_RETRY ||
			   (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK))
			;
		return result;
	}
	result = pmh_values_reserve(t, batch, room);
	if (result == PMH_OK)
		result = pmh_list_next(t, cursor->hash, &cursor->at, want, batch->value + from, &n);
	if (result == PMH_OK)
	{
		batch->n += n;
		keep_fresh(cursor, from);
	}
	/* If the list does not stand still, the caller may try again. */
	return result == PMH_RETRY ? PMH_OK : result;
}

static bool
at_end(const PmhCursor *cursor)
{
	return cursor->begun && cursor->at.below == 0;
}

/* ---- the public face ---- */

void
pmh_cursor_open(PmhTable *table, PmhCursor *cursor, uint64_t hash)
{
	(void) table;
	cursor->hash = hash;
	cursor->leave_out = NULL;
	cursor->start = 0;
	cursor->begun = false;
	cursor->batch.n = cursor->given.n = cursor->plain = 0;
	cursor->slot = 0;
}

PmhResult
pmh_cursor_next(PmhTable *table, PmhCursor *cursor, size_t want)
{
	unsigned	fruitless = 0;
	PmhResult	result = PMH_OK;

	if (cursor->begun)
	{
		/*
		 * The batch has been handed out.  If the cursor stands in the middle of a buffer,
		 * note what it has had of it; other values among them do no harm.
		 */
		if (cursor->at.line == 0 || cursor->slot != cursor->at.below)
			cursor->given.n = cursor->plain;
		cursor->slot = cursor->at.below;
		if (cursor->at.line != 0)
			result = remember(table, cursor, cursor->batch.value, cursor->batch.n);
	}
	cursor->batch.n = 0;
	if (at_end(cursor))
		return PMH_DONE;
	if (want == 0)
		want = SIZE_MAX;		/* then we are asked here whether to go on */

	/*
	 * If the list does not stand still, or what is read has been given before or is left
	 * out, the batch may be short, or empty: so the caller gets to see whether it is still
	 * wanted.
	 */
	while (result == PMH_OK && cursor->batch.n < want && !at_end(cursor) &&
		   (fruitless < FRUITLESS_STEPS || want == SIZE_MAX))
	{
		size_t		before = cursor->batch.n;
		size_t		left = want - before;

		result = step(table, cursor,
					  left < PMH_CHUNK_MOST ? (uint32_t) left : PMH_CHUNK_MOST);
		/* (A step that wants little may not come to the end of its buffer.) */
		fruitless += cursor->batch.n == before && cursor->at.line == 0;
		if (want == SIZE_MAX && !at_end(cursor) && result == PMH_OK &&
			pmh_wait_cancelled())
			result = pmh_fail_cancelled(table);
	}
	result = pmh_conclude(table, result);
	if (result != PMH_OK)
		return result;
	if (cursor->batch.n == 0 && at_end(cursor))
		return PMH_DONE;
	pmh_values_finish(&cursor->batch);
	return PMH_OK;
}

size_t
pmh_cursor_bytes(const PmhCursor *cursor)
{
	return (cursor->batch.capacity + cursor->given.capacity) * sizeof(uint64_t);
}

void
pmh_cursor_free(PmhCursor *cursor)
{
	pmh_values_free(&cursor->batch);
	pmh_values_free(&cursor->given);
	memset(cursor, 0, sizeof(*cursor));
}
