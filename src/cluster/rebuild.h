/*-------------------------------------------------------------------------
 *
 * rebuild.h
 *	  Rebuilding invalid indexes in the background.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_REBUILD_H
#define PMHASH_REBUILD_H

#include "nodes/pg_list.h"

#include "cluster/cluster.h"
#include "cluster/shared.h"

extern bool pmhash_index_is_invalid(Relation index, PmhashReason *reason);
extern void pmhash_rebuild_wanted(Oid index);
extern void pmhash_rebuild_database(void);
extern bool pmhash_rebuild_state(Oid index, PmhashRebuild *state);
extern const char *pmhash_rebuild_failure_hint(int sqlstate);
extern bool pmhash_rebuild_keeps_failing(Oid index, PmhashRebuild *state);
extern List *pmhash_rebuilds_due(int64 now, int64 *next);
extern void pmhash_rebuild_forget(Oid database);

#endif							/* PMHASH_REBUILD_H */
