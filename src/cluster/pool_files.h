/*-------------------------------------------------------------------------
 *
 * pool_files.h
 *	  The files that are in the pool, one after the other; writing them back, asking them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_POOL_FILES_H
#define PMHASH_POOL_FILES_H

typedef bool (*PmhashVisit) (const char *path, bool index_file, void *arg);

extern bool pmhash_is_passing(int error);
extern bool pmhash_each_pool_file(PmhashVisit visit, void *arg);

/* ---- write_back.c ---- */
typedef bool (*PmhashGoOn) (void);

extern bool pmhash_pool_write_back(uint64 device, PmhashGoOn go_on);

/* ---- ask_files.c ---- */
typedef bool (*PmhashAskFile) (int fd, const char *path);

extern bool pmhash_pool_ask_files(uint64 device, PmhashAskFile ask, PmhashGoOn go_on);

#endif							/* PMHASH_POOL_FILES_H */
