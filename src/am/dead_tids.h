/*-------------------------------------------------------------------------
 *
 * dead_tids.h
 *	  Which TIDs VACUUM has found dead.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DEAD_TIDS_H
#define PMHASH_DEAD_TIDS_H

#include "access/genam.h"

#include "cluster/cluster.h"

typedef struct PmhashDeadTids PmhashDeadTids;

extern bool pmhash_dead_tids_is_probe(IndexBulkDeleteCallback callback,
									  void *callback_state);
extern PmhashDeadTids *pmhash_dead_tids_of_vacuum(const IndexVacuumInfo *info,
												  IndexBulkDeleteCallback callback,
												  void *callback_state);
extern bool pmhash_tid_is_dead(const PmhashDeadTids *set, uint64 value);
extern void pmhash_dead_tids_free(PmhashDeadTids *set);

#endif							/* PMHASH_DEAD_TIDS_H */
