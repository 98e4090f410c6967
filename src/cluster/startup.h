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
extern bool pmhash_try_again(void);
extern void pmhash_distrust_all(const char *why);
extern bool pmhash_ask_for_failed_file(int fd, const char *path, char *failed);
extern bool pmhash_ask_for_failed_writes(const char *failed);
extern void pmhash_renew_nonce(void);
extern void pmhash_startup_init(void);

#endif							/* PMHASH_STARTUP_H */
