/*-------------------------------------------------------------------------
 *
 * file_size.h
 *	  The space of the file, its length and that of its mapping (file_size.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_FILE_SIZE_H
#define PMH_FILE_SIZE_H

#include "error.h"
#include "table.h"

/*
 * Do what t->need says.  No lock may be held.  PMH_OK tells no more than that
 * another look is due: others may have taken it.
 */
extern PmhResult pmh_provide(PmhTable *t);

/*
 * See to it that all of the file, as it is now, can be touched; PMH_ERR_CORRUPT if its length
 * is a damaged one.  No lock may be held but the grow lock.
 */
extern PmhResult pmh_map_all(PmhTable *t);

/*
 * Give the space of free blocks back to the file system, if that can be done: of the first
 * run of some from *block on, but for the first *spare ones; *block is where to go on.
 * PMH_OK; PMH_DONE: there are no more blocks.  No lock may be held.
 */
extern PmhResult pmh_space_punch(PmhTable *t, uint64_t *block, uint64_t *spare);

/* An extent of blocks, for which the file gets space if it has to.  No lock may be held. */
extern PmhResult pmh_provide_extent(PmhTable *t, uint64_t nblocks, uint64_t *offset);

#endif							/* PMH_FILE_SIZE_H */
