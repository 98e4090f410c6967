/*-------------------------------------------------------------------------
 *
 * cursor.c
 *	  Cursors: the values of one key in batches.
 *
 * See src/README, "Cursors and sweeps".  The first batch has all plain entries, and the
 * list as well if it is one buffer of a size that is not chained.  A longer
 * list is streamed buffer by buffer: as long as the version of the buffer we
 * stand in is the same, no value has been taken out of it and it is still part
 * of the list, so that reading may go on.  If the version has changed, but the
 * buffer is still found in the list, and it is the same one, not a later one in
 * its offset (its birth tells), reading may go on as well: values never move
 * inside of a buffer.  Otherwise everything is read anew.
 *
 * What a long list has given is remembered, so that nothing is given twice: a
 * value may have been removed and added again, a copy of the segment may have moved a
 * plain entry into the list, and the list may have to be read anew.  What is in one
 * batch twice drops out when that is sorted.  So the first batch, which is all that
 * many callers want, is remembered when the next one is wanted.
 *
 * When there is no room to remember more (cursor->memory), the rest is given in ranges
 * of values, the highest first, each in two walks through the key.  The first one
 * collects what the range has that has not been given before; if that becomes too much
 * the range is cut to its upper half.  (Most lists have the highest values in front, so
 * that little is collected in vain.)  The second one gives what has been collected, as
 * it meets it, and takes it off the collection.  So nothing is given that was read in an
 * earlier call: callers take it to be as young as the call (the removal epoch).
 *
 * Callers that do not mind what comes twice have nothing remembered (cursor->repeats).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "cursor.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "list_rewrite.h"
#include "lookup.h"
#include "table.h"
#include "value_array.h"
#include "value_set.h"

enum
{
	CURSOR_FRESH = 0,
	CURSOR_STREAMING,
	CURSOR_AT_END
};

/* What a walk through the key does with a value. */
enum
{
	CURSOR_REMEMBERING = 0,		/* give it, and remember it */
	CURSOR_COLLECTING,			/* it is owed, if in the range and not given before */
	CURSOR_GIVING				/* give it if it is owed */
};

#define AHEAD			32		/* values that a line is prefetched ahead */

/* ---- the values given ---- */

/* Entries that a set may have. */
static size_t
most_groups(const PmhCursor *cursor)
{
	return pmh_set_most((cursor->memory != 0 ? cursor->memory : PMH_CURSOR_MEMORY) / 2);
}

/* All from 'high' on has been given: collect what there is in front of it. */
static void
begin_range(PmhCursor *cursor, uint64_t high)
{
	cursor->stage = CURSOR_COLLECTING;
	cursor->low = 0;
	cursor->high = high;
	cursor->nowed = 0;
	pmh_set_empty(&cursor->owed);
	cursor->state = CURSOR_FRESH;
}

/* The upper half of what has been collected is enough for a range. */
static void
cut_range(PmhCursor *cursor)
{
	uint64_t	middle = pmh_set_middle(&cursor->owed);

	cursor->nowed -= pmh_set_cut(&cursor->owed, middle);
	cursor->low = middle << PMH_GROUP_BITS;
}

static inline bool
in_range(const PmhCursor *cursor, uint64_t value)
{
	return value - cursor->low < cursor->high - cursor->low;
}

/* A walk for a range is over. */
static void
end_walk(PmhCursor *cursor)
{
	if (cursor->stage == CURSOR_COLLECTING && cursor->nowed > 0)
	{
		cursor->stage = CURSOR_GIVING;
		cursor->state = CURSOR_FRESH;
	}
	else if (cursor->low > 0)
		begin_range(cursor, cursor->low);
	else
		cursor->state = CURSOR_AT_END;
}

static inline void
keep(PmhCursor *cursor, size_t i)
{
	cursor->batch.value[cursor->batch.n++] = cursor->batch.value[i];
}

/*
 * Of batch[from ..] keep what has not been seen yet, and remember it, in a set of so many
 * entries; what it has no room for is left out, and comes in the ranges.
 */
static PmhResult
keep_unseen(PmhTable *t, PmhCursor *cursor, size_t from, size_t most)
{
	PmhValues  *batch = &cursor->batch;
	size_t		end = batch->n;
	uint64_t   *entry = NULL;
	uint64_t	ahead = UINT64_MAX;	/* the line prefetched last, in groups */

	batch->n = from;
	for (size_t i = from; i < end; i++)
	{
		bool		fresh;
		PmhResult	result;

		if (i + AHEAD < end && cursor->seen.capacity > 0)
			pmh_set_prefetch(&cursor->seen, batch->value[i + AHEAD], &ahead);
		result = pmh_set_add(t, &cursor->seen, most, batch->value[i], &entry, &fresh);
		if (result != PMH_OK)
			return result;
		if (entry == NULL)
		{
			begin_range(cursor, UINT64_MAX);
			return PMH_OK;
		}
		if (fresh)
			keep(cursor, i);
	}
	return PMH_OK;
}

/* Of batch[from ..] drop what has been seen. */
static void
drop_seen(PmhCursor *cursor, size_t from)
{
	size_t		end = cursor->batch.n;

	if (cursor->seen.n == 0)
		return;
	cursor->batch.n = from;
	for (size_t i = from; i < end; i++)
	{
		if (!pmh_set_has(&cursor->seen, cursor->batch.value[i]))
			keep(cursor, i);
	}
}

/* Collect what is to be given of batch[from ..] in this range, and take it all away. */
static PmhResult
collect(PmhTable *t, PmhCursor *cursor, size_t from)
{
	PmhValues  *batch = &cursor->batch;
	size_t		most = most_groups(cursor);
	uint64_t   *entry = NULL;

	for (size_t i = from; i < batch->n; i++)
	{
		uint64_t	value = batch->value[i];
		bool		fresh = false;

		while (in_range(cursor, value) && !pmh_set_has(&cursor->seen, value))
		{
			PmhResult	result = pmh_set_add(t, &cursor->owed, most, value, &entry,
											 &fresh);

			if (result != PMH_OK)
				return result;
			if (entry != NULL)
				break;
			cut_range(cursor);
		}
		cursor->nowed += fresh;
	}
	batch->n = from;
	return PMH_OK;
}

/* Of batch[from ..] keep what is still to be given. */
static void
keep_owed(PmhCursor *cursor, size_t from)
{
	PmhValues  *batch = &cursor->batch;
	size_t		end = batch->n;

	batch->n = from;
	for (size_t i = from; i < end; i++)
	{
		uint64_t	value = batch->value[i];

		if (in_range(cursor, value) && pmh_set_take(&cursor->owed, value))
		{
			cursor->nowed--;
			keep(cursor, i);
		}
	}
}

/*
 * Of batch[from ..] drop what the caller does not want to see.  That need not be
 * remembered: it has not been handed out.
 */
static void
leave_out(PmhCursor *cursor, size_t from)
{
	PmhValues  *batch = &cursor->batch;

	if (cursor->leave_out != NULL)
		batch->n = from + cursor->leave_out(cursor->leave_out_argument,
											batch->value + from, batch->n - from);
}

/* ---- reading ---- */

_Static_assert(sizeof(PmhListCircle) == sizeof(((PmhCursor *) NULL)->circle),
			   "a cursor has room for a PmhListCircle");

static PmhListPosition
position(const PmhCursor *cursor)
{
	return (PmhListPosition) {cursor->chunk, cursor->chunk_version,
		cursor->chunk_birth, cursor->line, cursor->start};
}

static void
set_position(PmhCursor *cursor, PmhListPosition pos)
{
	cursor->chunk = pos.payload;
	cursor->chunk_version = pos.version;
	cursor->chunk_birth = pos.birth;
	cursor->line = pos.line;
}

/* The cursor has come to another buffer: has it come by it before? */
static bool
runs_in_circle(const PmhTable *t, PmhCursor *cursor, const PmhListPosition *pos)
{
	PmhListCircle circle;
	bool		closed;

	memcpy(&circle, cursor->circle, sizeof(circle));
	closed = pmh_list_is_circle(t, &circle, pos);
	memcpy(cursor->circle, &circle, sizeof(circle));
	return closed;
}

/*
 * The plain entries after batch->n, and the cursor stands at the start of the
 * list, if there is one.
 */
static PmhResult
read_plain(PmhTable *t, PmhCursor *cursor)
{
	PmhProbe	probe;
	PmhResult	result;

	result = pmh_probe(t, cursor->hash, &probe);
	if (result == PMH_OK)
		result = pmh_values_reserve(t, &cursor->batch, probe.n);
	if (result != PMH_OK)
		return result;
	for (uint32_t i = 0; i < probe.n; i++)
		cursor->batch.value[cursor->batch.n++] = probe.value[i];
	set_position(cursor, pmh_list_at(t, probe.list, probe.list_version));
	memset(cursor->circle, 0, sizeof(cursor->circle));
	cursor->state = CURSOR_STREAMING;
	if (probe.list == 0)
		cursor->state = CURSOR_AT_END;
	return PMH_OK;
}

/*
 * Read about 'want' values from where the cursor stands in its list, after
 * batch->n, not beyond the end of the buffer.  Besides PMH_OK as
 * pmh_list_step, but maps further by itself.
 */
static PmhResult
read_on(PmhTable *t, PmhCursor *cursor, size_t want)
{
	PmhListPosition pos = position(cursor);
	uint32_t	capacity = pmh_class_capacity(pmh_pointer_class(cursor->chunk));
	uint32_t	most = want < capacity ? (uint32_t) want : capacity + 1;
	uint32_t	n;
	PmhResult	result;

	do
	{
		result = pmh_values_reserve(t, &cursor->batch, most + PMH_VALUES_PER_LINE);
		if (result == PMH_OK)
			result = pmh_list_step(t, cursor->hash, &pos, most,
								   cursor->batch.value + cursor->batch.n, &n);
	} while (result == PMH_NEED && (result = pmh_provide(t)) == PMH_OK);
	if (result != PMH_OK)
		return result;
	if (pos.line == 0 && runs_in_circle(t, cursor, &pos))
		return pmh_list_circle(t, cursor->chunk);
	cursor->batch.n += n;
	set_position(cursor, pos);
	if (pos.payload == 0)
		cursor->state = CURSOR_AT_END;
	return PMH_OK;
}

/*
 * The buffer we stand in has changed.  Go on there if it still is part of the
 * list, else from the start.  It must be the same buffer: what was freed may have
 * come back to the list at the same offset, with values in its first lines that we
 * have not read.
 */
static PmhResult
find_back(PmhTable *t, PmhCursor *cursor)
{
	PmhListPosition pos = position(cursor);
	PmhListPosition before;
	PmhResult	result = pmh_list_find_again(t, cursor->hash, &pos, &before);

	cursor->lost = true;
	if (result == PMH_OK)
		cursor->chunk_version = pos.version;
	else if (result == PMH_NOT_FOUND)
		cursor->state = CURSOR_FRESH;
	return result == PMH_NOT_FOUND || result == PMH_RETRY ? PMH_OK : result;
}

/* What has been read is in batch[from ..]: keep of it what is to be given. */
static PmhResult
take_values(PmhTable *t, PmhCursor *cursor, size_t from)
{
	PmhResult	result = PMH_OK;

	if (cursor->first_batch)
		return PMH_OK;
	if (cursor->repeats)
	{
		drop_seen(cursor, from);
		return PMH_OK;
	}
	if (cursor->stage == CURSOR_REMEMBERING)
		return keep_unseen(t, cursor, from, most_groups(cursor));
	if (cursor->stage == CURSOR_COLLECTING)
		result = collect(t, cursor, from);
	else
		keep_owed(cursor, from);
	if (result == PMH_OK &&
		(cursor->state == CURSOR_AT_END ||
		 (cursor->stage == CURSOR_GIVING && cursor->nowed == 0)))
		end_walk(cursor);
	return result;
}

PmhResult
pmh_cursor_step(PmhTable *t, PmhCursor *cursor, size_t want, uint64_t *payload)
{
	size_t		from = cursor->batch.n;
	uint64_t	chunk = cursor->chunk;
	PmhResult	result;

	*payload = 0;
	if (cursor->stage != CURSOR_REMEMBERING)
		want = PMH_STEP_MAX;	/* there may be little in it that is to be given */
	if (cursor->state == CURSOR_FRESH)
		result = read_plain(t, cursor);
	else
	{
		result = read_on(t, cursor, want);
		if (result == PMH_RETRY)
			return find_back(t, cursor);
		*payload = chunk;
	}
	if (result != PMH_OK)
		return result;
	leave_out(cursor, from);
	return take_values(t, cursor, from);
}

bool
pmh_cursor_at_end(const PmhCursor *cursor)
{
	return cursor->state == CURSOR_AT_END;
}

PmhResult
pmh_cursor_leave_out(PmhTable *t, PmhCursor *cursor, uint64_t value)
{
	uint64_t   *entry = NULL;
	bool		fresh;

	return pmh_set_add(t, &cursor->seen, SIZE_MAX, value, &entry, &fresh);
}

/*
 * Is this buffer, as it seems, a whole list, and of a size that is not chained?  The
 * head of a longer one may be as small; most of those that want a few values of it want
 * no more.
 */
static bool
is_small_list(const PmhTable *t, uint64_t payload)
{
	uint32_t	class = pmh_pointer_class(payload);

	return class <= PMH_CHAIN_CLASS &&
		(!pmh_class_has_header(class) || pmh_buffer_next(t, payload) == 0);
}

/*
 * The first batch: all plain entries, and all of a list that is small, but for
 * what is left out.
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
		if (result != PMH_OK)
			return result;
		if (cursor->state != CURSOR_STREAMING)
			break;				/* what it has so far is all of this table */
		first = want;
		if (is_small_list(t, cursor->chunk))
			first = pmh_class_capacity(PMH_CHAIN_CLASS) + 1;
		result = read_on(t, cursor, first);
	} while (result == PMH_RETRY);
	if (result == PMH_OK)
		leave_out(cursor, 0);
	return result;
}

/* The whole key at once. */
static PmhResult
read_everything(PmhTable *t, PmhCursor *cursor)
{
	PmhResult	result;

	do
	{
		cursor->batch.n = 0;
		result = read_plain(t, cursor);
		if (result == PMH_OK && cursor->state == CURSOR_STREAMING)
			result = pmh_list_read(t, cursor->hash, cursor->chunk,
								   cursor->chunk_version, &cursor->batch);
	} while (result == PMH_RETRY);
	if (result == PMH_OK)
		cursor->state = CURSOR_AT_END;
	if (result == PMH_OK)
		leave_out(cursor, 0);
	return result;
}

/*
 * A further batch of a long list.  If that does not stand still, or what is read has been
 * given before or is left out, the batch may be short, or empty: so the caller gets to
 * see whether it is still wanted.
 */
static PmhResult
stream(PmhTable *t, PmhCursor *cursor, size_t want)
{
	unsigned	fruitless = 0;
	PmhResult	result = PMH_OK;

	while (result == PMH_OK && cursor->state != CURSOR_AT_END && cursor->batch.n < want &&
		   (fruitless < PMH_FRUITLESS_STEPS || want == SIZE_MAX))
	{
		size_t		before = cursor->batch.n;
		uint64_t	payload;

		result = pmh_cursor_step(t, cursor, want - before, &payload);
		/* (A step that wants little may not come to the end of its buffer.) */
		fruitless += cursor->batch.n == before &&
			(payload == 0 || cursor->chunk != payload);
	}
	return result;
}

/* ---- the public face ---- */

void
pmh_cursor_open(PmhTable *table, PmhCursor *cursor, uint64_t hash)
{
	(void) table;
	cursor->hash = hash;
	cursor->begun = cursor->first_batch = cursor->lost = false;
	cursor->leave_out = NULL;
	cursor->start = 0;
	cursor->memory = 0;
	cursor->repeats = false;
	cursor->batch.n = 0;
	cursor->state = CURSOR_FRESH;
	cursor->stage = CURSOR_REMEMBERING;
	pmh_set_empty(&cursor->seen);
	if (cursor->owed.capacity > 0)
		pmh_set_free(&cursor->owed);
}

/* The first batch: as much as is wanted, unless the list changes all the while. */
static PmhResult
begin(PmhTable *t, PmhCursor *cursor, size_t want)
{
	PmhResult	result;

	cursor->begun = true;
	if (want == 0)
		return read_everything(t, cursor);
	cursor->first_batch = true;
	result = start(t, cursor, want);
	if (result == PMH_OK && cursor->state != CURSOR_AT_END &&
		cursor->leave_out != NULL)
		result = stream(t, cursor, want);
	return result;
}

/* A further one. */
static PmhResult
go_on(PmhTable *t, PmhCursor *cursor, size_t want)
{
	PmhResult	result = PMH_OK;

	/* (There has to be room for what the caller has had already.) */
	if (cursor->first_batch && !cursor->repeats)
		result = keep_unseen(t, cursor, 0, SIZE_MAX);
	if (result != PMH_OK)
		return result;
	cursor->first_batch = false;
	cursor->batch.n = 0;
	return stream(t, cursor, want == 0 ? SIZE_MAX : want);
}

PmhResult
pmh_cursor_next(PmhTable *table, PmhCursor *cursor, size_t want)
{
	PmhResult	result = PMH_DONE;

	if (cursor->state == CURSOR_AT_END)
		cursor->batch.n = 0;
	else if (cursor->begun)
		result = go_on(table, cursor, want);
	else
		result = begin(table, cursor, want);
	if (result == PMH_DONE)
		return result;
	result = pmh_conclude(table, result);
	if (result != PMH_OK)
		return result;
	if (cursor->batch.n == 0 && cursor->state == CURSOR_AT_END)
		return PMH_DONE;
	pmh_values_finish(&cursor->batch);
	return PMH_OK;
}

size_t
pmh_cursor_bytes(const PmhCursor *cursor)
{
	return cursor->batch.capacity * sizeof(uint64_t) +
		(cursor->seen.capacity + cursor->owed.capacity) * PMH_GROUP_SIZE;
}

void
pmh_cursor_free(PmhCursor *cursor)
{
	pmh_values_free(&cursor->batch);
	pmh_set_free(&cursor->seen);
	pmh_set_free(&cursor->owed);
	memset(cursor, 0, sizeof(*cursor));
}
