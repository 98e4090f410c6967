/*-------------------------------------------------------------------------
 *
 * planner_hook.c
 *	  Hide from the planner what cannot be used.
 *
 * An index file exists only where it was written: a server in recovery (a
 * standby) has none, so its plans must not offer pmhash indexes.  The hook is
 * called at the end of get_relation_info (plancat.c), which invites removing
 * an index from rel->indexlist.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "nodes/pathnodes.h"
#include "optimizer/plancat.h"
#include "utils/relcache.h"

#include "cluster/internal.h"

static get_relation_info_hook_type previous_hook = NULL;

/* Is it one of ours?  The planner holds a lock on every index of the list. */
static bool
is_ours(IndexOptInfo *info)
{
	Relation	index = RelationIdGetRelation(info->indexoid);
	bool		ours;

	if (!RelationIsValid(index))
		return false;
	ours = pmhash_is_index(index);
	RelationClose(index);
	return ours;
}

static void
hide_indexes(PlannerInfo *root, Oid relationObjectId, bool inhparent,
			 RelOptInfo *rel)
{
	ListCell   *lc;

	if (previous_hook)
		previous_hook(root, relationObjectId, inhparent, rel);

	if (!RecoveryInProgress())
		return;

	foreach(lc, rel->indexlist)
	{
		if (is_ours(lfirst_node(IndexOptInfo, lc)))
			rel->indexlist = foreach_delete_current(rel->indexlist, lc);
	}
}

/* Install the hook, in front of whoever has it. */
void
pmhash_planner_hook_init(void)
{
	previous_hook = get_relation_info_hook;
	get_relation_info_hook = hide_indexes;
}
