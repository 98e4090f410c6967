/*-------------------------------------------------------------------------
 *
 * path.h
 *	  Private to the join: between path.c and join_cost.c.
 *
 * Include postgres.h first.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PMHASH_JOIN_PATH_H
#define PMHASH_JOIN_PATH_H

#include "nodes/pathnodes.h"

#include "join/join.h"

/* ---- join_cost.c ---- */

extern void pmhash_join_cost(PlannerInfo *root, RelOptInfo *joinrel,
							 IndexOptInfo *index, const PmhashJoinClauses *clauses,
							 JoinType type, bool index_only,
							 JoinPathExtraData *extra, Path *outer, Path *path);

#endif							/* PMHASH_JOIN_PATH_H */
