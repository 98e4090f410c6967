/*-------------------------------------------------------------------------
 *
 * planner_hook.c
 *	  Hide from the planner what cannot be used.
 *
 * An index file exists only where it was written: a server in recovery (a
 * standby) has none, so its plans must not offer pmhash indexes.  Nor must any
 * plan an invalid index, or one of a pool that is not ours.  The hook is called
 * at the end of get_relation_info (plancat.c), which invites removing an index
 * from rel->indexlist.  Looking costs a search in a table of this backend when
 * it has the file open, and opening it if not.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/pathnodes.h"
#include "optimizer/plancat.h"
#include "utils/relcache.h"

#include "cluster/internal.h"

static get_relation_info_hook_type previous_hook = NULL;

/*
 * Is it one of ours that can't be used?  The planner holds a lock on every
 * index of the list.
 */
static bool
is_hidden(IndexOptInfo *info)
{
	Relation	index = RelationIdGetRelation(info->indexoid);
	bool		hidden;

	if (!RelationIsValid(index))
		return false;
	hidden = pmhash_is_index(index) && !pmhash_index_plannable(index);
	RelationClose(index);
	return hidden;
}

static void
hide_indexes(PlannerInfo *root, Oid relationObjectId, bool inhparent,
			 RelOptInfo *rel)
{
	ListCell   *lc;

	if (previous_hook)
		previous_hook(root, relationObjectId, inhparent, rel);

	foreach(lc, rel->indexlist)
	{
		if (is_hidden(lfirst_node(IndexOptInfo, lc)))
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
