/*-------------------------------------------------------------------------
 *
 * entry.c
 *	  Insert and delete one entry: lock its segment, provide what is missing, and
 *	  the way to the overflow table.
 *
 *-------------------------------------------------------------------------
 */

#include "compiler.h"
#include "directory.h"
#include "drain.h"
#include "element.h"
#include "entry.h"
#include "error.h"
#include "fail.h"
#include "file_size.h"
#include "handle.h"
#include "layout.h"
#include "overflow.h"
#include "place.h"
#include "segment.h"
#include "segment_resize.h"
#include "space.h"
#include "stop_point.h"
#include "table.h"

PmhResult
pmh_insert_in(PmhTable *t, PmhSide side, uint64_t hash, uint64_t value,
			  bool fence_first)
{
	bool		begun = false;

	for (;;)
	{
		PmhPlace	place;
		PmhResult	result = pmh_segment_lock_in(t, side, hash, &place);

		if (unlikely(result == PMH_NOT_FOUND))
		{
			result = begun ? pmh_fail(t, PMH_ERR_CORRUPT, 0, PMH_LIVE_OFFSET,
									  "The overflow table lacks a directory element.") :
				pmh_overflow_begin(t);
			begun = true;
			if (result == PMH_OK)
				continue;
		}
		if (result != PMH_OK)
			return result;
		result = pmh_segment_insert(t, &place, hash, value, fence_first);
		pmh_segment_unlock(&place);
		if (result == PMH_NEED)
			result = pmh_provide(t);
		else if (result != PMH_RETRY)
			return result;
		if (result != PMH_OK && result != PMH_RETRY)
			return result;
	}
}

/* The home has been marked. */
static PmhResult __attribute__((noinline))
insert_overflow(PmhTable *t, uint64_t hash, uint64_t value, bool fence_first)
{
	PmhResult	result;

	PMH_STOP_POINT("overflow_before_insert");
	result = pmh_insert_in(t, PMH_OVERFLOW, pmh_side_hash(t, PMH_OVERFLOW, hash),
						   value, fence_first);
	if (result == PMH_OK)
		pmh_count(&pmh_run(t)->overflows, 1);
	return result;
}

PmhResult
pmh_insert_one(PmhTable *t, uint64_t hash, uint64_t value, bool fence_first)
{
	PmhResult	result = pmh_insert_in(t, PMH_PRIMARY, hash, value, fence_first);

	return likely(result != PMH_CROWDED) ? result :
		insert_overflow(t, hash, value, fence_first);
}

/* As pmh_segment_delete, but locks, and maps further, by itself. */
static PmhResult
delete_once(PmhTable *t, PmhSide side, uint64_t hash, uint64_t value,
			unsigned how)
{
	bool		wait = (how & PMH_DELETE_WAIT) != 0;

	for (;;)
	{
		PmhPlace	place;
		PmhResult	result = pmh_segment_lock_or_leave(t, side, hash, wait, &place);

		if (result != PMH_OK)
			return result;
		result = pmh_segment_delete(t, &place, hash, value, how);
		if (!wait)
			pmh_space_release(t);
		pmh_segment_unlock(&place);
		if (result != PMH_NEED)
			return result;
		result = pmh_provide(t);
		if (result != PMH_OK)
			return result;
	}
}

PmhResult
pmh_delete_overflow(PmhTable *t, uint64_t hash, uint64_t value, bool wait)
{
	/* Fenced before the segment is unlocked: others may take the slot then. */
	return delete_once(t, PMH_OVERFLOW, pmh_side_hash(t, PMH_OVERFLOW, hash), value,
					   PMH_DELETE_FENCE | (wait ? PMH_DELETE_WAIT : 0));
}

/* An entry never goes from one table to the other, so one after the other. */
PmhResult
pmh_delete_one(PmhTable *t, uint64_t hash, uint64_t value)
{
	const unsigned how = PMH_DELETE_WAIT | PMH_DELETE_FENCE;
	PmhSide		side = PMH_PRIMARY;
	PmhResult	result = delete_once(t, side, hash, value, how);

	if (unlikely(result == PMH_CROWDED))
	{
		side = PMH_OVERFLOW;
		hash = pmh_side_hash(t, side, hash);
		result = delete_once(t, side, hash, value, how);
	}
	return result == PMH_FAR ? pmh_drain_one(t, side, hash, value) : result;
}

PmhResult
pmh_insert(PmhTable *table, uint64_t hash, uint64_t value, bool fence_first)
{
	return pmh_conclude(table, pmh_insert_one(table, hash, value, fence_first));
}

PmhResult
pmh_delete(PmhTable *table, uint64_t hash, uint64_t value)
{
	return pmh_conclude(table, pmh_delete_one(table, hash, value));
}
