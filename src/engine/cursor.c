/*-------------------------------------------------------------------------
 *
 * cursor.c
 *	  Cursors: the values of one key in batches.
 *
 * See src/README, "Cursors and sweeps".  What was given is remembered as far as it could come
 * twice: plain entries, which may get into the list, and values of a slot of which only a part
 * was read, as a removal may put them into another buffer (PmhListPosition.again).  That is 72
 * values, and those of a buffer and a batch.
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

/* ---- reading ---- */

/*
 * Add the plain entries and the first values of the list to the batch, or the next ones,
 * about 'want' of one buffer, unsorted; without those given already, as far as the list may
 * have them again, and those that the caller does not want to see (that may be all).
 */
static PmhResult
read_more(PmhTable *t, PmhCursor *cursor, uint32_t want)
{
	PmhValues  *batch = &cursor->batch;
	const size_t room = want + PMH_VALUES_PER_LINE < PMH_SINGLE_MOST ? PMH_SINGLE_MOST :
		want + PMH_VALUES_PER_LINE;
	uint64_t   *value;
	size_t		ngiven;
	size_t		kept;
	PmhProbe	probe;
	uint32_t	n = 0;
	PmhResult	result = pmh_values_reserve(t, batch, PMH_PROBE_MAX + room);

	PMH_ASSERT(cursor->begun || batch->n == 0);
	PMH_ASSERT(want > 0 && want <= PMH_CHUNK_MOST);
	if (result != PMH_OK)
		return result;
	value = batch->value + batch->n;
	probe.n = 0;
	if (cursor->begun)
		result = pmh_list_next(t, cursor->hash, &cursor->at, want, value, &n);
	while (result == PMH_OK && !cursor->begun)
	{
		result = pmh_probe(t, cursor->hash, &probe);
		if (result != PMH_OK)
			break;
		cursor->at = probe.list == 0 ? PMH_LIST_END : PMH_LIST_START;
		cursor->at.start = cursor->start;
		if (probe.list != 0)
			result = pmh_list_step(t, cursor->hash, probe.list, probe.list_version,
								   &cursor->at, want, value + probe.n, &n);
		if (result == PMH_RETRY ||
			(result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK))
			result = PMH_OK;
		else if (result == PMH_OK)
		{
			memcpy(value, probe.value, probe.n * sizeof(uint64_t));
			/* What is twice in all of a batch drops out when that is sorted. */
			if (cursor->at.below != 0)
				result = remember(t, cursor, probe.value, probe.n);
			cursor->plain = cursor->given.n;
			cursor->begun = result == PMH_OK;
		}
	}
	if (result != PMH_OK)
		return result;
	ngiven = cursor->at.again ? cursor->given.n : cursor->plain;
	kept = probe.n;
	for (size_t i = probe.n; i < probe.n + n; i++)
	{
		if (!was_given(cursor->given.value, ngiven, value[i]))
			value[kept++] = value[i];
	}
	if (cursor->leave_out != NULL)
		kept = cursor->leave_out(cursor->leave_out_argument, value, kept);
	batch->n += kept;
	return PMH_OK;
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

	PMH_ASSERT(want > 0);
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

	/*
	 * If what is read has been given before or is left out, the batch may be short, or empty:
	 * so the caller gets to see whether it is still wanted.
	 */
	while (result == PMH_OK && cursor->batch.n < want && !at_end(cursor) &&
		   fruitless < FRUITLESS_STEPS)
	{
		size_t		before = cursor->batch.n;
		size_t		left = want - before;

		result = read_more(table, cursor,
						   left < PMH_CHUNK_MOST ? (uint32_t) left : PMH_CHUNK_MOST);
		/* (A step that wants little may not come to the end of its buffer.) */
		fruitless += cursor->batch.n == before && cursor->at.line == 0;
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
