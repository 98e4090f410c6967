/*-------------------------------------------------------------------------
 *
 * pool.h
 *	  The pool: the directory that holds the index files; who uses it, and is it there?
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_POOL_H
#define PMHASH_POOL_H

#include "cluster/base/control_file.h"
#include "cluster/base/pool_names.h"

extern bool pmhash_pool_lock(char *reason);
extern void pmhash_pool_unlock(void);
extern int	pmhash_pool_lock_fd(void);
extern int	pmhash_pool_ask_fd(void);
extern bool pmhash_pool_is_locked(void);
extern bool pmhash_pool_is_present(void);
extern void pmhash_require_pool_present(void);

#endif							/* PMHASH_POOL_H */
