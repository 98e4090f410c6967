/*-------------------------------------------------------------------------
 *
 * startup.h
 *	  Start, first use and the state "disabled".
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_STARTUP_H
#define PMHASH_STARTUP_H

#include "cluster/cluster.h"

extern void pmhash_pool_ready(void);
extern void pmhash_require_pool_present(void);
extern void pmhash_disable(const char *reason);
extern bool pmhash_try_again(void);
extern void pmhash_distrust_all(const char *why);
extern void pmhash_renew_nonce(void);

/* what distinguishes our indexes from others; set by pmhash_cluster_init */
extern ambuild_function pmhash_am_build;
extern PmhashFillFunction pmhash_am_fill;

#endif							/* PMHASH_STARTUP_H */
