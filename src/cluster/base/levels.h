/*-------------------------------------------------------------------------
 *
 * levels.h
 *	  Notes of what the levels of a transaction have done.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_LEVELS_H
#define PMHASH_LEVELS_H

#include "access/xact.h"
#include "nodes/pg_list.h"

/*
 * For a callback at the end of a subtransaction: the list without what an aborted level
 * has noted; what a committed one has is its parent's.  Each element begins with an int,
 * the nesting level of the transaction that it is of.
 */
static inline List *
pmhash_level_ends(List *notes, SubXactEvent event)
{
	int			ending = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return notes;
	foreach(lc, notes)
	{
		int		   *level = lfirst(lc);

		if (*level < ending)
			continue;
		if (event == SUBXACT_EVENT_ABORT_SUB)
			notes = foreach_delete_current(notes, lc);
		else
			*level = ending - 1;
	}
	return notes;
}

#endif							/* PMHASH_LEVELS_H */
