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
extern void pmhash_remove_dropped(Oid database);
extern void pmhash_remove_distrusted(Oid database);
extern bool pmhash_database_has_files(Oid database);
extern bool pmhash_first_complaint(Oid index);

#endif							/* PMHASH_ORPHANS_H */
