/*-------------------------------------------------------------------------
 *
 * rebuild_table.h
 *	  What is known of rebuilds: which go on, which have failed and why, and when
 *	  they are tried again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_REBUILD_TABLE_H
#define PMHASH_REBUILD_TABLE_H

#include "nodes/pg_list.h"

#include "cluster/base/shared.h"

extern void pmhash_rebuild_wanted(Oid index);
extern bool pmhash_rebuild_state(Oid index, PmhashRebuild *state);
extern const char *pmhash_rebuild_failure_hint(int sqlstate);
extern bool pmhash_rebuild_keeps_failing(Oid index, PmhashRebuild *state);
extern List *pmhash_rebuilds_due(PmhashBuildKind kind, int64 now, int64 *next);
extern void pmhash_rebuild_forget(Oid database);

/* for the rebuilder */
extern bool pmhash_rebuild_begins(Oid index, Oid heap);
extern int	pmhash_rebuild_failed(Oid index, int sqlstate, const char *message);
extern void pmhash_rebuild_is_over(Oid index);
extern Oid	pmhash_rebuild_running(void);
extern void pmhash_rebuild_forget_dropped(List *indexes, List *others);
extern void pmhash_rebuild_pass_begins(PmhashBuildKind kind);
extern bool pmhash_rebuild_has_to_wait(Oid index);

#endif							/* PMHASH_REBUILD_TABLE_H */
