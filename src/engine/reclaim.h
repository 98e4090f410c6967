/*-------------------------------------------------------------------------
 *
 * reclaim.h
 *	  Find out which value buffers nothing points to (reclaim.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_RECLAIM_H
#define PMH_RECLAIM_H

#include "error.h"
#include "layout.h"
#include "table.h"

/*
 * Called by value_space.c under the space lock when run.reclaim_mark is not 0, for
 * what is allocated or is going to a free list: it is accounted for, the reclaim must
 * not free it.  False: its map is past the end of our mapping; nothing was done.  (That
 * cannot be after pmh_reclaim_account_check.)
 */
extern bool pmh_reclaim_account(PmhTable *t, uint64_t offset, uint64_t len);

/*
 * A buffer is freed, but not put into a free list: the reclaim is to find it
 * free.  If there is none, a later one will.  The space lock is held.
 */
extern void pmh_reclaim_discard(PmhTable *t, uint64_t offset, uint64_t len);

/*
 * There is space now that is neither in use nor in a free list: for a later reclaim.  The
 * space lock is held.
 */
extern void pmh_reclaim_lose(PmhTable *t);

/*
 * May it be called by a process that is about to allocate, i.e. is there no such
 * reclaim, or is its mark map where we have mapped the file?  PMH_OK, PMH_NEED (map further), or
 * PMH_ERR_CORRUPT: the map is said to be where it cannot be.  The space lock is held.
 * (A buffer that is to be freed where the map is not mapped is discarded instead.)
 */
extern PmhResult pmh_reclaim_account_check(PmhTable *t);

/*
 * A walk over all lists that finds out which value buffers are in use.
 * Zero-initialise but for the last three.
 */
typedef struct PmhReclaim
{
	uint64_t	mark;			/* where our map is, or 0: none goes on */
	uint64_t	serial;			/* run.mark_serial of ours */
	uint64_t	extent[PMH_MARK_EXTENTS];	/* the extents of blocks of our map */
	unsigned	nextents;
	uint64_t	covered;		/* bytes of the file that it covers */
	uint64_t	first_region;	/* newest region when it began */
	bool		shrinks;		/* begin even if all is known; what is marked is
								 * in a locked segment, so that marks can be taken
								 * back */
	uint64_t	limit;			/* for run.shrink_limit and ... */
	uint64_t	region_blocks;	/* ... run.region_blocks */
} PmhReclaim;

/*
 * Begin, if the free map of the value space is unknown or for a shrink, and
 * no process is just freeing what it has found; r->mark tells.  No lock may be held.
 * A walk then holds the stripe of each segment for a moment before it reads its
 * pointers: buffers from before the map are published by then.  (And pmh_reclaim_finish
 * holds each one once more: what was off its list by then is freed.)
 */
extern PmhResult pmh_reclaim_begin(PmhTable *t, PmhReclaim *r);

/* Is it still going on, i.e. has no other process begun one since? */
extern bool pmh_reclaim_is_ours(const PmhTable *t, const PmhReclaim *r);

/* This buffer is in use.  May be called under a stripe. */
extern void pmh_reclaim_mark(PmhTable *t, const PmhReclaim *r, uint64_t payload);

/*
 * The walk is complete: free what it has not found.  No lock may be held; waits for the
 * holder of each stripe of the file.  PMH_OK; PMH_CANCELLED: the wait was given up, and
 * nothing is freed (finish once more, or abandon); or a real error.
 */
extern PmhResult pmh_reclaim_finish(PmhTable *t, PmhReclaim *r);

/* Forget about it. */
extern void pmh_reclaim_abandon(PmhTable *t, PmhReclaim *r);

/*
 * Where an extent of the mark map of a reclaim is, beginning with extent 0;
 * false: there is none.  *nblocks is 0 if what tells of it is damaged.  All of
 * the file is mapped.
 */
extern bool pmh_reclaim_map_extent(PmhTable *t, unsigned extent, uint64_t *block,
							  uint64_t *nblocks);

#endif							/* PMH_RECLAIM_H */
