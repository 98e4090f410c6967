/*-------------------------------------------------------------------------
 *
 * pool_files.h
 *	  The files that are in the pool, one after the other; writing them back, asking them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_POOL_FILES_H
#define PMHASH_POOL_FILES_H

typedef bool (*PmhashGoOn) (void);
typedef bool (*PmhashAskFile) (int fd, const char *path);

extern bool pmhash_pool_write_back(uint64 device, PmhashGoOn go_on);
extern bool pmhash_pool_ask_files(uint64 device, PmhashAskFile ask, PmhashGoOn go_on);

#endif							/* PMHASH_POOL_FILES_H */
