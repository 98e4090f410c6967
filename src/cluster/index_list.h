/*-------------------------------------------------------------------------
 *
 * index_list.h
 *	  The pmhash indexes of a database, as its catalogs list them.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_INDEX_LIST_H
#define PMHASH_INDEX_LIST_H

#include "nodes/pg_list.h"
#include "utils/relcache.h"

extern List *pmhash_access_methods(void);
extern List *pmhash_list_indexes(bool temporary);
extern Relation pmhash_open_listed(Oid relid, bool *damaged);

#endif							/* PMHASH_INDEX_LIST_H */
