/*-------------------------------------------------------------------------
 *
 * path.h
 *	  Private to the joins and page scans: what their planning shares.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_JOIN_PATH_H
#define PMHASH_JOIN_PATH_H

#include "nodes/pathnodes.h"

#include "join/join.h"

/* ---- path.c ---- */

extern bool pmhash_query_only_reads(const PlannerInfo *root);
extern bool pmhash_is_heap(Oid relid);
extern bool pmhash_needs_table(void);

/* ---- join_cost.c ---- */

extern void pmhash_join_cost(PlannerInfo *root, RelOptInfo *joinrel,
							 IndexOptInfo *index, const PmhashJoinClauses *clauses,
							 JoinType type, bool index_only,
							 JoinPathExtraData *extra, Path *outer, Path *path);

#endif							/* PMHASH_JOIN_PATH_H */
