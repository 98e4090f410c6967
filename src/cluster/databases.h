/*-------------------------------------------------------------------------
 *
 * databases.h
 *	  Which databases there are: in the pool, and in the catalog.
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

#endif							/* PMHASH_DATABASES_H */
