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

#include "cluster/base/shared.h"

#define PMHASH_WORKER_RESTART	10	/* seconds, if a launcher fails */

/* What a worker in a database is to do; it gets it in bgw_extra. */
typedef struct PmhashAssignment
{
	PmhashJob	job;
	bool		standby;		/* it was started in recovery */
	int			place;			/* of its result, in shared memory */
	uint64		number;			/* of this worker */
} PmhashAssignment;

extern void pmhash_worker_init(void);
extern void pmhash_register_worker(const char *function, const char *type, int flags,
								   BgWorkerStartTime start, int restart);
extern bool pmhash_start_worker(Oid database, PmhashAssignment *assignment,
								BackgroundWorkerHandle **handle, bool tell);
extern PmhashWorkerResult pmhash_worker_result(const PmhashAssignment *assignment);

#endif							/* PMHASH_WORKER_H */
