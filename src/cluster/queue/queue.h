/*-------------------------------------------------------------------------
 *
 * queue.h
 *	  What workers are to do, and how.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_QUEUE_H
#define PMHASH_QUEUE_H

#include "access/htup.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "cluster/base/shared.h"

/* ---- requests.c ---- */

extern void pmhash_request(Oid database, PmhashJob job);
extern bool pmhash_launcher_is_there(void);
extern void pmhash_wake_launcher(void);
extern bool pmhash_workers_can_be_had(void);

/* ---- rebuilds ---- */

extern void pmhash_rebuild_wanted(Oid index);
extern bool pmhash_rebuild_state(Oid index, PmhashRebuild *state);
extern void pmhash_rebuild_forget(Oid database, Oid index, const List *but);

/* for workers */
extern int	pmhash_rebuild_note(Oid database, Oid index, int sqlstate, const char *failure);

/* ---- index_list.c ---- */

extern List *pmhash_access_methods(void);
extern List *pmhash_list_indexes(bool temporary);
extern PmhashJob pmhash_build_job(HeapTuple index);
extern const char *pmhash_index_label(Oid index, const char *name);
extern void pmhash_report_index(const char *doing, Relation index);

/* ---- give_way.c ---- */

extern bool pmhash_gives_way;

extern int	pmhash_give_way_workers(int wanted);
extern void pmhash_give_way(void);

#endif							/* PMHASH_QUEUE_H */
