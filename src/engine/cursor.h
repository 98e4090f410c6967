/*-------------------------------------------------------------------------
 *
 * cursor.h
 *	  Cursors read step by step (cursor.c), for the sweep.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CURSOR_H
#define PMH_CURSOR_H

#include "error.h"
#include "table.h"

/* Have the cursor, just opened, leave this value out. */
extern PmhResult pmh_cursor_leave_out(PmhTable *t, PmhCursor *cursor,
									  uint64_t value);

/*
 * One step of a cursor: the plain entries, and about 'want' values of one buffer, are put
 * after batch.n, unsorted, without those given already (that may be all).  cursor->at.met:
 * the buffers that were read.
 */
#define PMH_CURSOR_SWEEPS	UINT32_MAX	/* want: all of a buffer, and the batch is not sorted */
extern PmhResult pmh_cursor_step(PmhTable *t, PmhCursor *cursor, uint32_t want);

/* Has the cursor come to the end of its key's values? */
extern bool pmh_cursor_at_end(const PmhCursor *cursor);

#endif							/* PMH_CURSOR_H */
