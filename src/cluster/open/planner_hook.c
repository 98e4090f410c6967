/*-------------------------------------------------------------------------
 *
 * planner_hook.c
 *	  What the planner sees of our indexes, and what not.
 *
 * No plan may have an invalid index, one whose file does not serve the snapshot
 * (file_open.c; on a standby one that is not built, standby.c), one of a pool that is
 * not ours, or any index of ours if the library is not preloaded.  So the hook is installed
 * in every process that has the library, preloaded or not; the planner has opened the indexes,
 * and that has called our handler (relcache.c, InitIndexAmRoutine).  The hook is called at the
 * end of get_relation_info (plancat.c), which invites removing an index from rel->indexlist.
 * Looking costs a search in a table of this backend when it has the file open, and opening it
 * if not.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_operator.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "optimizer/plancat.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"

#include "cluster/base/relations.h"
#include "cluster/open/open.h"

/* It is called by build_simple_rel when get_relation_info is done, before 19 by that. */
#if PG_VERSION_NUM >= 190000
#include "optimizer/pathnode.h"
#define HOOK			build_simple_rel_hook
#define HOOK_PARAMETERS	PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte
#define HOOK_ARGUMENTS	root, rel, rte
static build_simple_rel_hook_type previous_hook = NULL;
#else
#define HOOK			get_relation_info_hook
#define HOOK_PARAMETERS	PlannerInfo *root, Oid relationObjectId, bool inhparent, RelOptInfo *rel
#define HOOK_ARGUMENTS	root, relationObjectId, inhparent, rel
static get_relation_info_hook_type previous_hook = NULL;
#endif

/*
 * WHERE b, WHERE NOT b, b = true: by the time that indexes are looked at, these
 * are no operators any more (clauses.c, simplify_boolean_equality).  The planner
 * makes b = true of them again for the boolean operator families of core, which
 * PostgreSQL 15 knows by their OIDs (pg_opfamily.h, IsBooleanOpfamily; indxpath.c,
 * match_clause_to_indexcol); by 17 it looks whether the family has the
 * operator.  So there a boolean column of ours is shown as one of core's hash
 * family: it has the same one operator.  This is the planner's own copy
 * (plancat.c, get_relation_info); the executor goes by the index's own family
 * (nodeIndexscan.c, ExecIndexBuildScanKeys).
 */
static void
show_boolean_columns(IndexOptInfo *info)
{
#if PG_VERSION_NUM < 170000
	for (int i = 0; i < info->nkeycolumns; i++)
	{
		if (info->opcintype[i] == BOOLOID &&
			op_in_opfamily(BooleanEqualOperator, info->opfamily[i]))
			info->opfamily[i] = BOOL_HASH_FAM_OID;
	}
#endif
}

/* ---- what is hidden ---- */

Oid			pmhash_only_index = InvalidOid;

/*
 * Is it one of ours that can't be used?  If it can, it is made ready for the
 * planner, which holds a lock on every index of the list.
 */
static bool
is_hidden(PlannerInfo *root, IndexOptInfo *info)
{
	Relation	index;
	bool		hidden;
	bool		later = false;

	if (OidIsValid(pmhash_only_index) && info->indexoid != pmhash_only_index)
		return true;
	index = RelationIdGetRelation(info->indexoid);
	if (!RelationIsValid(index))
		return false;
	hidden = pmhash_is_index(index) && !pmhash_index_plannable(index, &later);
	/*
	 * What is made without an index that is hidden just for now, for the sake of a snapshot
	 * for one, is not kept for the next one: a transient plan lasts for as long as snapshots
	 * have the same xmin (plancache.c, CheckCachedPlan).
	 */
	if (hidden && later)
		root->glob->transientPlan = true;
	else if (!hidden && pmhash_is_index(index))
		show_boolean_columns(info);
	RelationClose(index);
	return hidden;
}

static void
relation_hook(HOOK_PARAMETERS)
{
	ListCell   *lc;

	if (previous_hook)
		previous_hook(HOOK_ARGUMENTS);
	foreach(lc, rel->indexlist)
	{
		if (is_hidden(root, lfirst_node(IndexOptInfo, lc)))
			rel->indexlist = foreach_delete_current(rel->indexlist, lc);
	}
}

/* Install the hook; the one that is there already is called first. */
void
pmhash_planner_hook_init(void)
{
	previous_hook = HOOK;
	HOOK = relation_hook;
}
