/*-------------------------------------------------------------------------
 *
 * list_read.c
 *	  Value lists: reading them without a lock.
 *
 * See src/README, "Value lists".
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "buffer.h"
#include "compiler.h"
#include "directory.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "list_read.h"
#include "lock.h"
#include "lookup.h"
#include "pm.h"
#include "read_ahead.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"
#include "value_array.h"

/* A buffer is looked for so often, if its list changes all the while. */
#define MOST_SEARCHES	100

PmhResult
pmh_buffer_check_span(PmhTable *t, uint64_t payload)
{
	uint64_t	offset = pmh_pointer_offset(payload);
	uint32_t	class = pmh_pointer_class(payload);

	if (class < PMH_LEAST_CLASS || class > PMH_MAX_CLASS ||
		!pmh_buffer_may_be_at(class, offset))
		return pmh_fail(t, PMH_ERR_CORRUPT, 0, offset,
						"The pointer to a value buffer (offset %llu, class %u) is "
						"impossible.",
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
						"The value buffer at offset %llu is followed by one that "
						"cannot be chained.",
						(unsigned long long) pmh_pointer_offset(holder));
	return pmh_buffer_check_span(t, next);
}

PmhResult
pmh_list_fail_foreign(PmhTable *t, uint64_t payload)
{
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, pmh_pointer_offset(payload),
					"The value buffer at offset %llu belongs to another key, or is of "
					"another size.",
					(unsigned long long) pmh_pointer_offset(payload));
}

PmhResult
pmh_list_circle(PmhTable *t, uint64_t payload)
{
	return pmh_fail(t, PMH_ERR_CORRUPT, 0, pmh_pointer_offset(payload),
					"The value list with a buffer at offset %llu runs in a circle.",
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

uint32_t
pmh_line_read(const PmhValueLine *line, uint32_t cells, uint64_t *value)
{
	uint64_t	word[4];
	uint64_t	all[PMH_VALUES_PER_LINE];
	uint32_t	mask;
	uint32_t	n = 0;

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

PmhListPosition
pmh_list_at(const PmhTable *t, uint64_t payload, uint64_t version)
{
	PmhListPosition pos = {payload, version, 0, 0, 0};

	if (payload != 0 && pmh_class_has_header(pmh_pointer_class(payload)))
	{
		uint64_t	birth = pm_load(&pmh_buffer_header(t, payload)->birth);

		PMH_STOP_POINT("list_after_birth");
		if (pmh_buffer_valid(t, pmh_pointer_offset(payload), version))
			pos.birth = birth;
	}
	return pos;
}

PmhListPosition
pmh_list_at_locked(const PmhTable *t, uint64_t payload)
{
	PmhListPosition pos = {payload, 0, 0, 0, 0};

	if (payload == 0)
		return pos;
	pos.version = pmh_buffer_version(t, pmh_pointer_offset(payload));
	if (pmh_class_has_header(pmh_pointer_class(payload)))
		pos.birth = pm_load(&pmh_buffer_header(t, payload)->birth);
	PMH_STOP_POINT("list_after_birth");
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
		foreign = !pmh_header_fits(t, payload, hash);
		next_payload = pm_load(&pmh_buffer_header(t, payload)->next);
		if (next_payload != 0)
			next_version = pmh_buffer_version(t, pmh_pointer_offset(next_payload));
	}
	PMH_STOP_POINT("list_before_span");
	result = pmh_list_check_next(t, payload, next_payload);
	if (!pmh_buffer_valid(t, pmh_pointer_offset(payload), at->version))
		return PMH_RETRY;
	if (foreign)
		return pmh_list_fail_foreign(t, payload);
	if (result != PMH_OK)
		return result;
	*next = pmh_list_at(t, next_payload, next_version);
	/* Where the next one changes at this moment, this is where it is found again. */
	if (next_payload != 0 && next->birth == 0 &&
		!pmh_buffer_valid(t, pmh_pointer_offset(next_payload), next_version))
		return PMH_RETRY;
	return PMH_OK;
}

PmhResult
pmh_list_step(PmhTable *t, uint64_t hash, PmhListPosition *pos, uint32_t want,
			  uint64_t *value, uint32_t *n)
{
	uint32_t	class = pmh_pointer_class(pos->payload);
	uint32_t	first = pmh_class_first_line(class);
	uint32_t	lines = pmh_class_lines(class);
	uint32_t	turn = (uint32_t) ((uint64_t) pos->start * (lines - first) >> 32);
	uint32_t	line = pos->line < first ? first : pos->line;
	uint32_t	found = 0;
	PmhListPosition next;
	PmhResult	result;

	/* A long list: the rest of this buffer, and the next one. */
	if (class >= PMH_CHAIN_CLASS && line == first)
	{
		uint64_t	next_payload = pm_load(&pmh_buffer_header(t, pos->payload)->next);

		pmh_ask_for_buffer(t, pos->payload);
		if (next_payload != 0)
			pmh_ask_for_buffer(t, next_payload);
	}
	PMH_STOP_POINT("list_before_reading");
	for (; line < lines && found < want; line++)
	{
		uint32_t	turned = line + turn;
		uint32_t	at = turned < lines ? turned : turned - (lines - first);

		found += pmh_line_read(pmh_buffer_line(t, pos->payload, at),
							   pmh_line_cells(pos->payload, at), value + found);
	}
	result = pmh_list_pass(t, hash, pos, &next);
	if (result != PMH_OK)
		return result;
	next.start = pos->start;
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
pmh_list_find_again(PmhTable *t, uint64_t hash,
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

		result = pmh_probe(t, hash, &probe);
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

/*
 * The buffer that a walk along all of a list has come to has changed, or only its
 * version word.  PMH_OK: it is still the same one.  Else as pmh_list_whole.
 */
static PmhResult
regain(PmhTable *t, uint64_t hash, PmhListPosition *pos)
{
	PmhListPosition before;
	PmhResult	result;

	do
	{
		if (pmh_wait_cancelled())
			return pmh_fail_cancelled(t);
		result = pmh_list_find_again(t, hash, pos, &before);
	} while (result == PMH_RETRY);
	return result == PMH_NOT_FOUND ? PMH_RETRY : result;
}

PmhResult
pmh_list_whole(PmhTable *t, uint64_t hash, PmhListPosition *pos,
			   uint64_t *value, uint32_t *n)
{
	uint32_t	capacity = pmh_class_capacity(pmh_pointer_class(pos->payload));
	PmhResult	result;

	do
	{
		result = pmh_list_step(t, hash, pos, capacity + 1, value, n);
		if (result == PMH_OK)
			break;
		if (result == PMH_RETRY)
			result = regain(t, hash, pos);
		else if (result == PMH_NEED)
			result = pmh_provide(t);
	} while (result == PMH_OK);
	/* There may be very many more; lists of one buffer need not wait for an answer. */
	if (result == PMH_OK && pos->payload != 0 && pmh_wait_cancelled())
		return pmh_fail_cancelled(t);
	return result;
}

PmhResult
pmh_list_read(PmhTable *t, uint64_t hash, uint64_t payload,
			  uint64_t version, PmhValues *values)
{
	PmhListPosition pos = pmh_list_at(t, payload, version);
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
			result = pmh_list_whole(t, hash, &pos, values->value + values->n, &n);
		values->n += n;
	}
	if (result != PMH_OK)
		values->n = before;
	return result;
}

PmhResult
pmh_list_visit(PmhTable *t, const PmhSnapshot *snap, uint32_t bucket, uint64_t hash,
			   uint64_t payload, unsigned most, PmhVisitList visit, void *arg)
{
	PmhProbe	probe;
	PmhResult	result = pmh_buffer_check_span(t, payload);

	if (result != PMH_NEED)
	{
		uint64_t	version = pmh_buffer_version(t, pmh_pointer_offset(payload));

		if (!pmh_snapshot_current(t, snap, bucket))
			result = PMH_RETRY;
		else if (result == PMH_OK)
			result = visit(t, hash, pmh_list_at(t, payload, version), arg);
	}
	while ((result == PMH_RETRY && --most > 0) || result == PMH_NEED)
	{
		if (result == PMH_NEED && (result = pmh_provide(t)) != PMH_OK)
			break;
		result = pmh_probe(t, hash, &probe);
		if (result != PMH_OK || probe.list == 0)
			break;
		result = visit(t, hash, pmh_list_at(t, probe.list, probe.list_version), arg);
	}
	return result;
}
