/*-------------------------------------------------------------------------
 *
 * pool_lock.h
 *	  The lock on the pool: which server uses it, and whether it is still there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_POOL_LOCK_H
#define PMHASH_POOL_LOCK_H

extern bool pmhash_pool_lock(char *reason);
extern void pmhash_pool_unlock(void);
extern int	pmhash_pool_lock_fd(void);
extern int	pmhash_pool_ask_fd(void);
extern bool pmhash_pool_is_locked(void);
extern bool pmhash_pool_is_present(void);
extern void pmhash_require_pool_present(void);

#endif							/* PMHASH_POOL_LOCK_H */
