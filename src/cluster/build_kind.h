/*-------------------------------------------------------------------------
 *
 * build_kind.h
 *	  Which workers build an index, and what these say they are at.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_BUILD_KIND_H
#define PMHASH_BUILD_KIND_H

#include "access/htup.h"
#include "utils/relcache.h"

#include "cluster/shared.h"

extern PmhashBuildKind pmhash_build_kind(HeapTuple index);
extern const char *pmhash_index_label(Oid index, const char *name);
extern void pmhash_report_index(const char *doing, Relation index);

#endif							/* PMHASH_BUILD_KIND_H */
