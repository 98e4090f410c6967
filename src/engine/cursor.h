/*-------------------------------------------------------------------------
 *
 * cursor.h
 *	  Cursors read step by step (cursor.c), for the sweep.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_CURSOR_H
#define PMH_CURSOR_H

#include "buffer.h"
#include "error.h"
#include "layout.h"
#include "lookup.h"
#include "table.h"

/* Have the cursor, just opened, leave this value out. */
extern PmhResult pmh_cursor_leave_out(PmhTable *t, PmhCursor *cursor,
									  uint64_t value);

/*
 * One step of a streaming cursor: the plain entries, or about 'want' values of
 * one buffer, are put after batch.n, unsorted, without those seen already
 * (that may be all).  *payload: the buffer, 0 if none was read.
 */
#define PMH_STEP_MAX \
	(PMH_MAX_LINES * PMH_VALUES_PER_LINE + PMH_VALUES_PER_LINE + PMH_PROBE_MAX)
extern PmhResult pmh_cursor_step(PmhTable *t, PmhCursor *cursor, size_t want,
								 uint64_t *payload);

/*
 * Buffers that add nothing to a batch, and positions lost, until the caller has a
 * word.
 */
#define PMH_FRUITLESS_STEPS		32

/* Has the cursor come to the end of its key's values? */
extern bool pmh_cursor_at_end(const PmhCursor *cursor);

#endif							/* PMH_CURSOR_H */
