/*-------------------------------------------------------------------------
 *
 * function_worker.h
 *	  The worker that runs users' functions, and reads no index of ours.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_FUNCTION_WORKER_H
#define PMHASH_FUNCTION_WORKER_H

#include "storage/lock.h"

extern bool pmhash_function_worker_begins(void);
extern bool pmhash_in_function_worker(void);
extern bool pmhash_is_function_worker(VirtualTransactionId transaction);

#endif							/* PMHASH_FUNCTION_WORKER_H */
