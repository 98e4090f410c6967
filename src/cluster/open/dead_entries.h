/*-------------------------------------------------------------------------
 *
 * dead_entries.h
 *	  Removal of entries that scans have found dead.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DEAD_ENTRIES_H
#define PMHASH_DEAD_ENTRIES_H

#include "cluster/cluster.h"

extern long pmhash_flush_for_scans(void);

#endif							/* PMHASH_DEAD_ENTRIES_H */
