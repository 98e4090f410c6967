/*-------------------------------------------------------------------------
 *
 * pool.h
 *	  The pool: the directory that holds the index files, and its lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_POOL_H
#define PMHASH_POOL_H

#include <inttypes.h>

#include "cluster/control_file.h"

/* how 64-bit ids look in file names and messages */
#define PMHASH_ID_FORMAT	"%016" PRIx64

extern const char *pmhash_pool_path(void);
extern bool pmhash_pool_start(PmhashControl *control, uint64 instance,
							  char *reason);
extern bool pmhash_pool_start_late(PmhashControl *control, uint64 instance,
								   char *reason);
extern void pmhash_pool_stop(uint64 instance);
extern bool pmhash_pool_is_present(void);
extern bool pmhash_pool_is_locked(void);
extern bool pmhash_pool_forget(char *reason);
extern bool pmhash_pool_revoke(char *reason);
extern bool pmhash_pool_written_back(char *reason);
extern void pmhash_database_path(char *path, Oid database);
extern void pmhash_file_path(char *path, Oid database, uint64 file_id);
extern void pmhash_journal_path(char *path, uint64 instance);
extern bool pmhash_parse_file_name(const char *name, uint64 *file_id);
extern bool pmhash_parse_database_name(const char *name, Oid *database);

#endif							/* PMHASH_POOL_H */
