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

#include "access/htup.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "cluster/base/shared.h"

extern List *pmhash_access_methods(void);
extern List *pmhash_list_indexes(bool temporary);
extern Relation pmhash_open_listed(Oid relid, bool *damaged);
extern PmhashBuildKind pmhash_build_kind(HeapTuple index);
extern const char *pmhash_index_label(Oid index, const char *name);
extern bool pmhash_first_complaint(Oid index);
extern void pmhash_report_index(const char *doing, Relation index);

#endif							/* PMHASH_INDEX_LIST_H */
