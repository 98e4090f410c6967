/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  From a path to a plan node.
 *
 * join.h says how the node is laid out.  Its tuple, to the planner, consists of
 * the columns of the outer plan and those of the table that are used.  setrefs.c
 * turns all expressions into references to that tuple; the executor makes
 * references to its two slots of them, and never forms the tuple.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"

#include "join/join.h"

/* ---- the order of conditions ---- */

typedef struct Condition
{
	Expr	   *clause;
	Cost		cost;
	Index		level;
} Condition;

/* Is a to be evaluated before b? */
static bool
comes_before(const Condition *a, const Condition *b)
{
	return a->level < b->level || (a->level == b->level && a->cost < b->cost);
}

/*
 * The clauses of a list of RestrictInfos in the order in which they are to be
 * evaluated: those that guard rows first, then cheap ones first (createplan.c,
 * order_qual_clauses, has the same rules).
 */
static List *
ordered_clauses(PlannerInfo *root, List *restrictinfos)
{
	int			n = list_length(restrictinfos);
	Condition  *sorted = palloc(Max(n, 1) * sizeof(Condition));
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, restrictinfos)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
		int			at = foreach_current_index(lc);
		Condition	c;
		QualCost	cost;

		cost_qual_eval_node(&cost, (Node *) rinfo, root);
		c.clause = rinfo->clause;
		c.cost = cost.per_tuple;
		c.level = rinfo->leakproof && c.cost < 10 * cpu_operator_cost ?
			0 : rinfo->security_level;
		for (; at > 0 && comes_before(&c, &sorted[at - 1]); at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = c;
	}
	for (int i = 0; i < n; i++)
		result = lappend(result, sorted[i].clause);
	pfree(sorted);
	return result;
}

/* Conditions on keys, each with the side of the table first, as index scans have. */
static List *
table_first(PlannerInfo *root, Index table, List *clauses)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		OpExpr	   *clause = copyObject(lfirst_node(OpExpr, lc));

		if (!bms_is_member(table, pull_varnos(root, linitial(clause->args))))
			CommuteOpExpr(clause);
		result = lappend(result, clause);
	}
	return result;
}

/* Sort the conditions of a join out; keys and recheck come from the path. */
static List *
sort_conditions(PlannerInfo *root, Relids joinrelids, const CustomPath *path)
{
	IndexOptInfo *index = linitial(path->custom_private);
	List	   *keys = lsecond(path->custom_private);
	List	   *conditions = lfourth(path->custom_private);
	List	   *restrictlist = list_nth(path->custom_private, 4);
	JoinType	type = linitial_int(llast(path->custom_private));
	List	   *filter = NIL;
	List	   *other = NIL;
	ListCell   *lc;

	foreach(lc, index->indrestrictinfo)
	{
		if (!list_member_ptr(conditions, lfirst(lc)))
			filter = lappend(filter, lfirst(lc));
	}
	foreach(lc, restrictlist)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (IS_OUTER_JOIN(type) && RINFO_IS_PUSHED_DOWN(rinfo, joinrelids))
			other = lappend(other, rinfo);
		else if (!list_member_ptr(conditions, rinfo))
			filter = lappend(filter, rinfo);
	}
	return list_make4(keys,
					  table_first(root, index->rel->relid,
								  ordered_clauses(root, conditions)),
					  ordered_clauses(root, filter), ordered_clauses(root, other));
}

/* ---- the columns ---- */

/* custom_scan_tlist while it is being made. */
typedef struct Layout
{
	List	   *columns;		/* TargetEntry */
	int			nouter;
	Index		inner;			/* place of the table in the range table */
	List	   *attnos;			/* of the table, in the order of columns */
} Layout;

static void
add_column(Layout *layout, Expr *expr)
{
	layout->columns = lappend(layout->columns,
							  makeTargetEntry(expr, list_length(layout->columns) + 1,
											  NULL, false));
}

/* The column that stands for this Var or PlaceHolderVar, or NULL. */
static Expr *
find_column(const Layout *layout, const Node *node)
{
	ListCell   *lc;

	foreach(lc, layout->columns)
	{
		Expr	   *expr = lfirst_node(TargetEntry, lc)->expr;

		if (IsA(node, PlaceHolderVar) && IsA(expr, PlaceHolderVar) &&
			((PlaceHolderVar *) expr)->phid == ((const PlaceHolderVar *) node)->phid)
			return expr;
		if (IsA(node, Var) && IsA(expr, Var) &&
			((Var *) expr)->varno == ((const Var *) node)->varno &&
			((Var *) expr)->varattno == ((const Var *) node)->varattno)
			return expr;
	}
	return NULL;
}

/*
 * Let a column be said to be made null by the outer joins that 'node' names: from
 * PostgreSQL 16 on setrefs.c compares that.
 */
static void
take_nulling(Expr *column, const Node *node)
{
#if PG_VERSION_NUM >= 160000
	if (IsA(node, Var))
		((Var *) column)->varnullingrels = ((const Var *) node)->varnullingrels;
	else
		((PlaceHolderVar *) column)->phnullingrels =
			((const PlaceHolderVar *) node)->phnullingrels;
#endif
}

/* Add the columns of the table that an expression of the target list uses. */
static bool
collect_columns(Node *node, void *context)
{
	Layout	   *layout = context;

	if (node == NULL)
		return false;
	if (IsA(node, Var) || IsA(node, PlaceHolderVar))
	{
		Expr	   *column = find_column(layout, node);

		if (column != NULL)
		{
			take_nulling(column, node);
			return false;
		}
		if (IsA(node, Var))
		{
			if (((Var *) node)->varno != (int) layout->inner)
				elog(ERROR, "pmhash join: relation %d is not in the outer plan",
					 ((Var *) node)->varno);
			add_column(layout, copyObject((Expr *) node));
			layout->attnos = lappend_int(layout->attnos, ((Var *) node)->varattno);
			return false;
		}
	}
	return expression_tree_walker(node, collect_columns, layout);
}

/* The same, without what conditions say of nulling: they come before it. */
static bool
collect_condition_columns(Node *node, void *context)
{
	Layout	   *layout = context;

	if (node == NULL)
		return false;
	if ((IsA(node, Var) || IsA(node, PlaceHolderVar)) &&
		find_column(layout, node) != NULL)
		return false;
	if (IsA(node, Var))
		return collect_columns(node, context);
	return expression_tree_walker(node, collect_condition_columns, context);
}

/* Have conditions say the same of nulling as the columns do. */
static Node *
agree_about_nulling(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) || IsA(node, PlaceHolderVar))
	{
		Expr	   *column = find_column(context, node);

		if (column != NULL)
			return copyObject((Node *) column);
	}
	return expression_tree_mutator(node, agree_about_nulling, context);
}

/*
 * Lay the columns out, for lists of targets and of conditions.  The planner may put
 * another target list in the place of ours, or of none at all (createplan.c,
 * create_projection_plan); so there has to be what it can be made of.
 */
static void
lay_out(Layout *layout, const Plan *outer, List *targets, List *exprs)
{
	ListCell   *lc;

	foreach(lc, outer->targetlist)
		add_column(layout, copyObject(lfirst_node(TargetEntry, lc)->expr));
	layout->nouter = list_length(layout->columns);
	collect_columns((Node *) targets, layout);
	collect_condition_columns((Node *) exprs, layout);
	add_column(layout, (Expr *) makeVar(layout->inner, TableOidAttributeNumber,
										OIDOID, -1, InvalidOid, 0));
}

/*
 * pmhash_join_plan
 *		PlanCustomPath: see join.h for what goes where.
 */
Plan *
pmhash_join_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist,
				 List *clauses, List *custom_plans)
{
	IndexOptInfo *index = linitial(path->custom_private);
	CustomScan *scan = makeNode(CustomScan);
	Layout		layout = {NIL, 0, index->rel->relid, NIL};
	List	   *exprs = sort_conditions(root, rel->relids, path);
	List	   *ints = list_copy(llast(path->custom_private));

	lay_out(&layout, linitial(custom_plans),
			list_make3(rel->reltarget->exprs, path->path.pathtarget->exprs, tlist),
			exprs);
	scan->scan.plan.targetlist = tlist;
	scan->scan.plan.qual = NIL;
	scan->scan.scanrelid = 0;
	scan->flags = path->flags;
	scan->custom_plans = custom_plans;
	scan->custom_exprs = (List *) agree_about_nulling((Node *) exprs, &layout);
	scan->custom_scan_tlist = layout.columns;
	scan->custom_private =
		list_make2(lcons_oid(index->indexoid, list_copy(lthird(path->custom_private))),
				   list_concat(lappend_int(ints, layout.nouter), layout.attnos));
	scan->methods = &pmhash_join_scan_methods;
	return &scan->scan.plan;
}
