/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  What a join by groups of keys costs.
 *
 * It reads the same pages as a nested loop over the same index, and evaluates
 * the same conditions; so it costs what the planner says that costs, less what
 * looking up and fetching many rows at once saves.  Measured, a row that is found
 * takes a third of the time of a nested loop.  The planner learns of less, since
 * what it charges for other ways to join has to stay comparable: see src/README,
 * "Joins".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "utils/memutils.h"

#include "join/join.h"
#include "join/path.h"

/* Saved per key that is looked up, and per row of the table that is fetched. */
#define SAVED_PER_PROBE		(0.25 * cpu_operator_cost)
#define SAVED_PER_ROW		(0.5 * cpu_tuple_cost)

/*
 * What the index path was charged for more rows than one of a key: many visits at
 * once take about the time that the planner thinks they do.
 */
static Cost
charged_for_more_rows(const IndexPath *inner, bool index_only, double loops)
{
	double		table_rows = inner->indexinfo->rel->tuples;

	if (index_only || loops <= 1)
		return 0;
	return pmhash_more_rows_cost(inner->indexselectivity * table_rows, table_rows);
}

/* The conditions on the index's columns, as an index path has them. */
static List *
index_clauses(const PmhashJoinClauses *clauses)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, clauses->conditions)
	{
		IndexClause *clause = makeNode(IndexClause);

		clause->rinfo = lfirst_node(RestrictInfo, lc);
		clause->indexquals = list_make1(clause->rinfo);
		clause->lossy = false;
		clause->indexcol = foreach_current_index(lc);
		clause->indexcols = NIL;
		result = lappend(result, clause);
	}
	return result;
}

/*
 * The path of the index scan that a nested loop would repeat.  The relation keeps a
 * part of it (ppilist), for longer than GEQO keeps what a try of its has made.
 * loops: by all workers together, who share what is cached (indxpath.c,
 * get_loop_count).
 */
static IndexPath *
make_inner_path(PlannerInfo *root, IndexOptInfo *index,
				const PmhashJoinClauses *clauses, bool index_only, double loops)
{
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(index->rel));
	IndexPath  *path = create_index_path(root, index, index_clauses(clauses), NIL, NIL,
										 NIL, ForwardScanDirection, index_only,
										 pull_varnos(root, (Node *) clauses->keys),
										 loops, false);

	MemoryContextSwitchTo(old);
	path->path.total_cost -= charged_for_more_rows(path, index_only, loops);
	return path;
}

/*
 * pmhash_join_cost
 *		Fill in the costs and rows of a path that joins 'outer' by 'index'.
 */
void
pmhash_join_cost(PlannerInfo *root, RelOptInfo *joinrel, IndexOptInfo *index,
				 const PmhashJoinClauses *clauses, JoinType type, bool index_only,
				 JoinPathExtraData *extra, Path *outer, Path *path)
{
	double		probes = clamp_row_est(outer->rows);
	double		loops = clamp_row_est(outer->parallel_workers > 0 ?
									  outer->parent->rows : outer->rows);
	JoinCostWorkspace workspace;
	IndexPath  *inner;
	Path	   *nested;
	double		saved;

	inner = make_inner_path(root, index, clauses, index_only, loops);
	initial_cost_nestloop(root, &workspace, type, outer, (Path *) inner, extra);
	nested = (Path *) create_nestloop_path(root, joinrel, type, &workspace, extra,
										   outer, (Path *) inner,
										   extra->restrictlist, NIL, NULL);

	path->rows = nested->rows;
	path->startup_cost = nested->startup_cost;
	path->total_cost = nested->total_cost;
#if PG_VERSION_NUM >= 180000
	path->disabled_nodes = nested->disabled_nodes - (enable_nestloop ? 0 : 1);
#else
	if (!enable_nestloop)
	{
		path->startup_cost -= disable_cost;
		path->total_cost -= disable_cost;
	}
#endif
	saved = probes * SAVED_PER_PROBE + path->rows * SAVED_PER_ROW;
	path->total_cost = Max(path->total_cost - saved, path->startup_cost);
}
