/*-------------------------------------------------------------------------
 *
 * workers.h
 *	  The background workers: starting them, and what they do.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_WORKERS_H
#define PMHASH_WORKERS_H

#include "postmaster/bgworker.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"

/* ---- worker.c ---- */
#define PMHASH_WORKER_RESTART	10	/* seconds, if a launcher fails */

extern void pmhash_worker_init(void);
extern bool pmhash_start_worker(Oid database, PmhashJob job, int place,
								BackgroundWorkerHandle **handle, bool tell);

/* ---- orphans.c ---- */
extern bool pmhash_remove_orphans(List **lacking);

/* ---- rebuild.c ---- */
extern bool pmhash_rebuild_indexes(PmhashJob job, const List *indexes);

#endif							/* PMHASH_WORKERS_H */
