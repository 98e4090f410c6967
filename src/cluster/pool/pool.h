/*-------------------------------------------------------------------------
 *
 * pool.h
 *	  The pool: the directory that holds the index files; its start and its stop.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_POOL_H
#define PMHASH_POOL_H

#include "cluster/base/control_file.h"
#include "cluster/base/pool_names.h"
#include "cluster/pool/pool_lock.h"

extern bool pmhash_pool_start(PmhashControl *control, uint64 instance,
							  char *reason);
extern void pmhash_pool_stop(uint64 instance);

#endif							/* PMHASH_POOL_H */
