/*-------------------------------------------------------------------------
 *
 * orphans.h
 *	  Removing index files that no index owns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_ORPHANS_H
#define PMHASH_ORPHANS_H

#include "cluster/base/shared.h"

extern PmhashWorkerResult pmhash_remove_orphans(void);
extern void pmhash_remove_distrusted(Oid database);

#endif							/* PMHASH_ORPHANS_H */
