/*-------------------------------------------------------------------------
 *
 * value_space.h
 *	  Space for value buffers (value_space.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_VALUE_SPACE_H
#define PMH_VALUE_SPACE_H

#include "error.h"
#include "table.h"

/*
 * Value buffers of pmh_class_bytes(class), where such may be (pmh_class_may_be_at).
 * Contents of a new one are undefined.  PMH_OK or PMH_NEED.  Freeing counts the version
 * of the buffer up first; whatever pointed to it must have been changed, durably, and its
 * version counted up after that change.
 */
extern PmhResult pmh_value_alloc(PmhTable *t, uint32_t class, uint64_t *offset);
extern void pmh_value_free(PmhTable *t, uint64_t offset, uint32_t class);

/* For a shrink: from now on buffers are taken near the start of the file. */
extern void pmh_value_search_anew(PmhTable *t);

/* Past the last one of the first value blocks that have so many bytes. */
extern uint64_t pmh_value_limit(PmhTable *t, uint64_t bytes);

/* Buffers are neither in a list nor free now: a walk is to find them. */
extern void pmh_value_lose(PmhTable *t);

/*
 * A walk along all lists, which finds out what is free in value blocks where that is not
 * known.  Zero-initialise.
 */
typedef struct PmhValueWalk
{
	bool		marks;			/* it does, and is not through */
	uint64_t	serial;			/* run.walk_serial when it began */
} PmhValueWalk;

/*
 * Begin, before any list is read.  Each buffer that is met in a list is marked (0: there is
 * none); that may be done under a stripe.  When all lists have been walked: free the rest;
 * this waits for the holder of each stripe of the file.  A walk may be given up at any point.
 * PMH_OK; PMH_CANCELLED: the wait was given up, nothing is freed, and it may be done once
 * more; or a real error.  For begin and finish no lock may be held.
 */
extern PmhResult pmh_value_walk_begin(PmhTable *t, PmhValueWalk *walk);
extern void pmh_value_mark(PmhTable *t, const PmhValueWalk *walk, uint64_t payload);
extern PmhResult pmh_value_walk_finish(PmhTable *t, PmhValueWalk *walk);

#endif							/* PMH_VALUE_SPACE_H */
