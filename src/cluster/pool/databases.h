/*-------------------------------------------------------------------------
 *
 * databases.h
 *	  Which databases there are: in the pool, and in the catalog; can a worker connect to
 *	  one, and is it there at all?
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_DATABASES_H
#define PMHASH_DATABASES_H

#include "nodes/pg_list.h"

extern List *pmhash_databases_in_pool(void);
extern List *pmhash_databases_in_catalog(List **all);
extern bool pmhash_database_is_free(Oid database);
extern uint64 *pmhash_list_files(Oid database, int *n);
extern bool pmhash_database_has_files(Oid database);
extern bool pmhash_if_database_is_dropped(Oid database, void (*act) (Oid database));

#endif							/* PMHASH_DATABASES_H */
