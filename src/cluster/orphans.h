/*-------------------------------------------------------------------------
 *
 * orphans.h
 *	  Removing index files that no index owns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_ORPHANS_H
#define PMHASH_ORPHANS_H

#include "nodes/pg_list.h"
#include "utils/relcache.h"

extern void pmhash_remove_orphans(void);
extern void pmhash_remove_dropped(Oid database);
extern void pmhash_remove_distrusted(Oid database);
extern bool pmhash_database_has_files(Oid database);
extern bool pmhash_first_complaint(Oid index);
extern List *pmhash_access_methods(void);
extern List *pmhash_list_indexes(bool temporary);
extern Relation pmhash_open_listed(Oid relid, ErrorData **error);

#endif							/* PMHASH_ORPHANS_H */
