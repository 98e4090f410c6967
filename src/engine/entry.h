/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  Insert and delete one entry (entry.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMH_ENTRY_H
#define PMH_ENTRY_H

#include "error.h"
#include "table.h"

/* As pmh_insert, but for pmh_conclude.  No lock may be held. */
extern PmhResult pmh_insert_one(PmhTable *t, uint64_t hash, uint64_t value,
								bool fence_first);

#endif							/* PMH_ENTRY_H */
