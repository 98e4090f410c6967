/*-------------------------------------------------------------------------
 *
 * recover.h
 *	  Recovery (recover.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_RECOVER_H
#define PMH_RECOVER_H

#include "error.h"
#include "table.h"

/*
 * Make the volatile parts true again; the caller holds the grow lock and has
 * seen that run.instance is not the current one.  Idempotent.  Whatever was
 * flushed before is durable after it.
 */
extern PmhResult pmh_recover(PmhTable *t);

/* Is there a sound region header at this block?  PMH_OK or PMH_ERR_CORRUPT. */
extern PmhResult pmh_region_check(PmhTable *t, uint64_t block, uint64_t blocks);

#endif							/* PMH_RECOVER_H */
