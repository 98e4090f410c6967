/*-------------------------------------------------------------------------
 *
 * drain.h
 *	  Take many values out of a list (drain.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_DRAIN_H
#define PMH_DRAIN_H

#include "error.h"
#include "table.h"

/*
 * Take n pairs of one hash, ascending by value, out in one walk along the key's
 * list.  No lock may be held.  Its buffers are read without a
 * lock, but for the first ones, and the segment is locked for the commit stores of
 * one buffer at a time.  state[] (n bytes, zeroes) tells what has become of each
 * pair.  Unless 'wait', it waits for no lock.
 *
 * pmh_drain_begin returns NULL for want of memory (t->error set), and keeps entries and
 * state.  pmh_drain_step does a piece: begins, or sees to a buffer.  PMH_OK: there is
 * more; PMH_DONE; or a real error.  Durable on return.  Memory beyond the Drain is
 * freed by pmh_drain_end, always.  (drain.c)
 */
typedef enum PmhPairState
{
	PMH_PAIR_LEFT = 0,			/* not seen to, or only by waiting */
	PMH_PAIR_REMOVED,
	PMH_PAIR_ABSENT
} PmhPairState;

typedef struct PmhDrain PmhDrain;

extern PmhDrain *pmh_drain_begin(PmhTable *t, const PmhEntry *entries, size_t n,
								 bool wait, uint8_t *state);
extern PmhResult pmh_drain_step(PmhTable *t, PmhDrain *drain);
extern void pmh_drain_end(PmhDrain *drain);

/* All of it, waiting, for one pair.  PMH_OK, PMH_NOT_FOUND or a real error. */
extern PmhResult pmh_drain_one(PmhTable *t, uint64_t hash, uint64_t value);

#endif							/* PMH_DRAIN_H */
