/*-------------------------------------------------------------------------
 *
 * syncfs.h
 *	  What syncfs() says of the pool, and where its word is worth something.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_SYNCFS_H
#define PMHASH_SYNCFS_H

extern uint64 pmhash_device_of_syncfs(void);
extern bool pmhash_pool_written_back(char *reason);
extern bool pmhash_pool_sync(void);
extern bool pmhash_pool_never_failed(bool *failed);

#endif							/* PMHASH_SYNCFS_H */
