/*-------------------------------------------------------------------------
 *
 * list_rewrite.h
 *	  Buffers of a value list replaced (list_rewrite.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_LIST_REWRITE_H
#define PMH_LIST_REWRITE_H

#include "error.h"
#include "list_read.h"
#include "place.h"
#include "segment.h"
#include "table.h"

/* How many values a buffer of a locked segment holds. */
extern uint32_t pmh_buffer_count(const PmhTable *t, uint64_t payload);

/*
 * The buffer after one in a locked segment, or 0.  Checked: PMH_OK, PMH_NEED,
 * PMH_ERR_CORRUPT.
 */
extern uint64_t pmh_buffer_next(const PmhTable *t, uint64_t payload);
extern PmhResult pmh_buffer_follow(PmhTable *t, uint64_t hash, uint64_t payload,
								   uint64_t *next);

/* Neighbours in a list, from 'first' up to, not including, 'after'. */
typedef struct PmhListStretch
{
	uint64_t	before;			/* what points to the first: a buffer, or 0 */
	uint64_t	first;
	uint64_t	after;			/* or 0: the end */
	uint64_t	values;			/* in them: no more than the largest buffer holds */
	uint64_t	bytes;			/* of their buffers */
} PmhListStretch;

/* A head that is rewritten has room for a share of its values more. */
#define PMH_HEAD_ROOM	4

/* Would one buffer for all of them save a quarter of their bytes? */
extern bool pmh_list_stretch_pays(const PmhListStretch *stretch);

/*
 * Writer (segment locked): put all values of the stretch into one new buffer that
 * fits, durably, and free theirs.  PMH_OK, PMH_NEED (nothing done).
 */
extern PmhResult pmh_list_rewrite(PmhTable *t, const PmhPlace *place,
								  const PmhListSlot *at, uint64_t hash,
								  const PmhListStretch *stretch, uint64_t *new_payload);

/*
 * Writer (segment locked): note in its first buffer how large a list is, which
 * tells how large the next buffer should be.  (A hint.)
 */
extern void pmh_list_note_bytes(PmhTable *t, uint64_t head, uint64_t bytes);

/*
 * A walk along a list that lets go of the segment now and then.  All buffers
 * up to 'before' have been seen; 0: none.  Zero-initialise.
 */
typedef struct PmhListWalk
{
	uint64_t	before;
	uint64_t	version;		/* of 'before', and ... */
	uint64_t	birth;			/* ... its birth, when the segment was let go */
} PmhListWalk;

/*
 * With the segment locked again: the buffer to go on with, 0 at the end.
 * PMH_OK, PMH_NEED, PMH_ERR_CORRUPT; PMH_RETRY: the last one seen has changed, the
 * caller lets go of the segment and calls pmh_list_search.  That takes no lock,
 * however long the list is: if the buffer has left the list walk->before is 0
 * then, and the walk begins anew; if the list does not stand still, the walk is as
 * it was, and pmh_list_resume says PMH_RETRY again.  And: before the segment is let
 * go.
 */
extern PmhResult pmh_list_resume(PmhTable *t, uint64_t hash, uint64_t head,
								 const PmhListWalk *walk, uint64_t *payload);
extern PmhResult pmh_list_search(PmhTable *t, uint64_t hash, PmhListWalk *walk);
extern void pmh_list_pause(const PmhTable *t, PmhListWalk *walk);

/*
 * Writer (segment locked): take the cells of mask[] (one for each line of the
 * largest buffer) out of a buffer that a walk has come to, durable after the
 * next pm_fence, and the buffer off its list if nothing is left of it.  *before
 * is what the walk has come from.  PMH_OK: both are as they are now, at->payload
 * 0 if the buffer is gone.  PMH_RETRY: the list is not as the walk has met it;
 * PMH_BUSY (if not 'wait'); PMH_NEED; PMH_ERR_CORRUPT; nothing is done then.
 */
extern PmhResult pmh_list_take_out(PmhTable *t, const PmhPlace *place,
								   uint64_t hash, bool wait, PmhListPosition *at,
								   PmhListPosition *before, const uint16_t *mask);

#endif							/* PMH_LIST_REWRITE_H */
