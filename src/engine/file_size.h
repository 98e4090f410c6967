/*-------------------------------------------------------------------------
 *
 * file_size.h
 *	  The length of the file and of its mapping (file_size.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_FILE_SIZE_H
#define PMH_FILE_SIZE_H

#include "error.h"
#include "table.h"

/*
 * For one that is going to store another length of the file, and holds the grow lock: is
 * the one that is there whole?  PMH_OK, PMH_ERR_CORRUPT.
 */
extern PmhResult pmh_check_live_words(PmhTable *t);

/*
 * Do what t->need says.  No lock may be held.  PMH_OK tells no more than that
 * another look is due: what was to be mapped may be gone.
 */
extern PmhResult pmh_provide(PmhTable *t);

/* See to it that all of the file, as it is now, can be touched.  No lock may be held. */
extern PmhResult pmh_map_all(PmhTable *t);

/*
 * End the file past its last block in use, though not before 'keep' blocks,
 * durably, and give what is past it back to the file system, if that can be done;
 * clears run.shrink_limit.  No lock may be held.
 */
extern PmhResult pmh_space_cut(PmhTable *t, uint64_t keep);

/*
 * From now on no space past 'limit' blocks is given out (0: no limit).  A process that
 * finds no other space lifts the limit.
 */
extern void pmh_space_set_limit(PmhTable *t, uint64_t limit);

/* An extent of blocks, for which the file grows if it has to.  No lock may be held. */
extern PmhResult pmh_provide_extent(PmhTable *t, uint64_t nblocks, uint64_t *offset);

#endif							/* PMH_FILE_SIZE_H */
