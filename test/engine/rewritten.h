/*-------------------------------------------------------------------------
 *
 * rewritten.h
 *	  Buffers of a list by their slots: look at them, and put what is in one into another
 *	  buffer, as a removal does.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_REWRITTEN_H
#define PMH_REWRITTEN_H

#include "fixture.h"

/*
 * The way to the last buffer in a slot below 'below' of a key's list, which nobody else
 * changes.  payload[0] == 0: there is none.  If 'rewrite', what is in the buffer is put into
 * another one.
 */
static inline PmhListPath
slot_below(PmhTable *t, uint64_t hash, uint64_t below, bool rewrite)
{
	PmhListPath path = {0};
	PmhPlace	place;
	PmhResult	result;

	do
	{
		uint64_t	number = below;

		REQUIRE(pmh_segment_lock(t, hash, &place) == PMH_OK);
		memset(&path, 0, sizeof(path));
		result = PMH_OK;
		if (pmh_segment_find_list(t, &place, hash, &path))
		{
			result = pmh_list_find_below(t, hash, &path, &number);
			if (result == PMH_OK && rewrite && path.payload[0] != 0)
				result = pmh_list_rewrite(t, &path, hash, pmh_pointer_class(path.payload[0]), NULL);
		}
		pmh_segment_unlock(&place);
	} while (result == PMH_NEED && pmh_provide(t) == PMH_OK);
	REQUIRE(result == PMH_OK);
	path.place = NULL;
	return path;
}

/* Rewrite the last buffer in a slot below 'below'; returns where its values are now. */
static inline uint64_t
rewrite_slot(PmhTable *t, uint64_t hash, uint64_t below)
{
	return slot_below(t, hash, below, true).payload[0];
}

/* The same, without rewriting it. */
static inline uint64_t
buffer_below(PmhTable *t, uint64_t hash, uint64_t below)
{
	return slot_below(t, hash, below, false).payload[0];
}

/* Bytes of all buffers of a list, and of its index or indexes. */
static inline uint64_t
list_bytes(PmhTable *t, uint64_t head)
{
	uint64_t	bytes = pmh_class_bytes(pmh_pointer_class(head));

	for (uint32_t i = 0; pmh_pointer_level(head) > 0 && i < pmh_index_slots(head); i++)
	{
		uint64_t	word = *pmh_index_slot(t, head, i);

		if (word != 0)
			bytes += list_bytes(t, word & PMH_SLOT_POINTER);
	}
	return bytes;
}

#endif							/* PMH_REWRITTEN_H */
