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

#endif							/* PMH_RECOVER_H */
