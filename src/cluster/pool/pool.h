/*-------------------------------------------------------------------------
 *
 * pool.h
 *	  The pool: the directory that holds the index files.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_POOL_H
#define PMHASH_POOL_H

#include <dirent.h>

#include "nodes/pg_list.h"

#include "cluster/base/control_file.h"

/* ---- pool.c ---- */
extern bool pmhash_pool_lock(char *reason);
extern void pmhash_pool_unlock(void);
extern int	pmhash_pool_lock_fd(void);
extern bool pmhash_pool_is_locked(void);
extern bool pmhash_pool_is_present(void);
extern void pmhash_require_pool_present(void);

/* A walk through the files of the pool, one after the other.  Begins with zeroes. */
typedef struct PmhashFileWalk
{
	char		path[MAXPGPATH];
	Oid			database;		/* none: of the whole pool */
	uint64		file_id;		/* 0: it is no index file */
	int			error;			/* why a directory could not be read, or 0 */
	DIR		   *pool;
	DIR		   *inner;			/* of the database */
} PmhashFileWalk;

extern bool pmhash_next_file(PmhashFileWalk *walk);
extern void pmhash_end_walk(PmhashFileWalk *walk);

typedef bool (*PmhashGoOn) (void);
typedef bool (*PmhashAskFile) (int fd, const char *path);

extern bool pmhash_pool_write_back_or_ask(uint64 device, PmhashAskFile ask, PmhashGoOn go_on);
extern uint64 pmhash_device_of_syncfs(void);
extern bool pmhash_pool_sync(void);

/* ---- databases.c ---- */
extern List *pmhash_databases_in_pool(void);
extern List *pmhash_databases_in_catalog(List **all);
extern void pmhash_remove_dropped(Oid database);
extern bool pmhash_if_database_is_dropped(Oid database, void (*act) (Oid database));

#endif							/* PMHASH_POOL_H */
