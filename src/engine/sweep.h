/*-------------------------------------------------------------------------
 *
 * sweep.h
 *	  What sweeps know of a step, which taking entries out needs as well.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_SWEEP_H
#define PMH_SWEEP_H

#include "cursor.h"
#include "layout.h"
#include "list_read.h"
#include "reclaim.h"
#include "segment.h"
#include "table.h"

/* Where an entry of the step stands. */
typedef struct PmhSweepOrigin
{
	uint64_t	payload;		/* value buffer, or 0: in the bucket itself */
	uint16_t	cell;			/* in the buffer; PMH_NO_CELL: not known */
	uint16_t	bucket;
	uint8_t		slot;			/* of the entry or of the pointer */
} PmhSweepOrigin;

/* A list to be streamed, and what its key has given already. */
typedef struct PmhSweepQueued
{
	uint64_t	hash;
	uint64_t	value;			/* meaningful if given */
	bool		given;			/* else: stream this hash */
} PmhSweepQueued;

struct PmhSweepPrivate
{
	PmhPosition segment;		/* where the next segment begins */
	bool		streaming;		/* entries[] come from the cursor */
	PmhSnapshot snap;			/* of the segment they come from, else */
	PmhBucket  *copy;
	PmhSweepOrigin *origin;
	size_t		capacity;		/* of entries[] and origin[] */
	PmhSweepQueued *queue;		/* lists first, then what they have given */
	size_t		queued;			/* all in it */
	size_t		queued_lists;
	size_t		queue_next;
	size_t		queue_capacity;
	bool		cursor_busy;
	PmhListPosition at;			/* the buffer of a streamed step ... */
	PmhListPosition before;		/* ... and the one that it came from */
	PmhCursor	cursor;
	uint16_t	cell[PMH_STEP_MAX];
	PmhReclaim	reclaim;
};

/* PMH_ERR_NO_MEMORY, for the entries of a step. */
extern PmhResult pmh_sweep_no_memory(PmhTable *t);

#endif							/* PMH_SWEEP_H */
