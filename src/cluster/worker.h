/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  The background workers: starting them, and their main functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_WORKER_H
#define PMHASH_WORKER_H

#include "postmaster/bgworker.h"

#include "cluster/shared.h"

#define PMHASH_WORKER_RESTART	10	/* seconds, if a launcher fails */

extern void pmhash_worker_init(void);
extern bool pmhash_has_launcher(void);
extern bool pmhash_has_standby_launcher(void);
extern bool pmhash_workers_can_be_had(void);
extern void pmhash_worker_begin(Oid database, const char *lock_timeout);
extern void pmhash_worker_takes_long(void);
extern void pmhash_worker_builds(PmhashBuildKind kind);
extern void pmhash_register_worker(const char *function, const char *type, int flags,
								   BgWorkerStartTime start, int restart);
extern bool pmhash_start_worker(Oid database, const char *function,
								const char *type,
								BackgroundWorkerHandle **handle);

#endif							/* PMHASH_WORKER_H */
