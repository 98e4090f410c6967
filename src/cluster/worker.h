/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  The background workers: starting them, and their main functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_WORKER_H
#define PMHASH_WORKER_H

#include "nodes/pg_list.h"
#include "postmaster/bgworker.h"

extern void pmhash_worker_init(void);
extern bool pmhash_start_worker(Oid database, const char *function,
								const char *type,
								BackgroundWorkerHandle **handle);
extern List *pmhash_databases_in_pool(void);
extern List *pmhash_databases_in_catalog(List **all);

#endif							/* PMHASH_WORKER_H */
