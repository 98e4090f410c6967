/*-------------------------------------------------------------------------
 *
 * pool_names.h
 *	  Where the pool is, and what the files in it are called.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_POOL_NAMES_H
#define PMHASH_POOL_NAMES_H

#include <inttypes.h>

/* how 64-bit ids look in file names and messages */
#define PMHASH_ID_FORMAT	"%016" PRIx64

extern bool pmhash_pool_is_default(void);
extern void pmhash_set_pool_path(void);
extern const char *pmhash_pool_path(void);
extern void pmhash_database_path(char *path, Oid database);
extern void pmhash_file_path(char *path, Oid database, uint64 file_id);
extern void pmhash_journal_path(char *path);
extern bool pmhash_parse_file_name(const char *name, uint64 *file_id);
extern bool pmhash_parse_database_name(const char *name, Oid *database);

#endif							/* PMHASH_POOL_NAMES_H */
