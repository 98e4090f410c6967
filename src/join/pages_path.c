/*-------------------------------------------------------------------------
 *
 * pages_path.c
 *	  Which scans are done page by page, and what they cost.
 *
 * A plain index scan hands out one TID after the other, and the heap's access method
 * locks the page of each.  Where a key is expected to have many rows we offer to
 * do the scan ourselves: all rows of a page under one lock (pages_exec.c).
 *
 * It is offered beside each index scan of ours that is still a candidate, for that
 * scan's price less what is saved on each row, and for its conditions.  So where the
 * planner takes something else for better, as a bitmap scan of what is not cached, it
 * stays so.  It begins a little later; so does the price, by which LIMIT decides.
 *
 * Not offered where EvalPlanQual could come (path.c), for scans that depend on a row
 * of another relation, for lists of keys, in recovery (as joins).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/pathnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"

#include "am/am.h"
#include "join/pages.h"
#include "join/path.h"

/* Of a key with fewer rows than that a page has hardly two. */
#define LEAST_ROWS			64

/* At 4 us for a cost of 1 (cost.c): beginning takes 1 us longer, a row 30 ns less. */
#define START_COST			(30 * cpu_tuple_cost)
#define SAVED_ROW_COST		(0.75 * cpu_tuple_cost)

static set_rel_pathlist_hook_type previous_hook = NULL;

static Plan *make_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path,
					   List *tlist, List *clauses, List *custom_plans);

static const CustomPathMethods path_methods = {
	PMHASH_PAGES_NAME,
	make_plan,
	NULL
};

/* ---- the conditions ---- */

/* What is looked up, from the conditions of an index scan. */
typedef struct Keys
{
	List	   *exprs;			/* per column of the index the expression, */
	List	   *types;			/* its type to the operator family (OIDs), */
	List	   *conditions;		/* and its RestrictInfo */
} Keys;

/* Does the clause bind its column to one value?  Adds that. */
static bool
take_clause(const IndexOptInfo *index, const IndexClause *clause, Keys *keys)
{
	OpExpr	   *op;
	int			strategy;
	Oid			left;
	Oid			right;

	if (clause->lossy || list_length(clause->indexquals) != 1)
		return false;
	op = (OpExpr *) linitial_node(RestrictInfo, clause->indexquals)->clause;
	if (!IsA(op, OpExpr) || contain_subplans(lsecond(op->args)))
		return false;
	get_op_opfamily_properties(op->opno, index->opfamily[clause->indexcol], false,
							   &strategy, &left, &right);
	keys->exprs = lappend(keys->exprs, lsecond(op->args));
	keys->types = lappend_oid(keys->types, right);
	keys->conditions = lappend(keys->conditions, clause->rinfo);
	return true;
}

/*
 * One value for each column?  Of several conditions on a column the first is taken,
 * and the others are filters.
 */
static bool
take_clauses(const IndexPath *path, Keys *keys)
{
	const IndexOptInfo *index = path->indexinfo;
	ListCell   *lc;

	memset(keys, 0, sizeof(*keys));
	foreach(lc, path->indexclauses)
	{
		const IndexClause *clause = lfirst_node(IndexClause, lc);

		if (clause->indexcol == list_length(keys->exprs))
			take_clause(index, clause, keys);
	}
	return list_length(keys->exprs) == index->nkeycolumns;
}

/* ---- the path ---- */

static bool
is_candidate(const Path *path)
{
	const IndexPath *scan = (const IndexPath *) path;

	return IsA(path, IndexPath) && path->pathtype == T_IndexScan &&
		path->param_info == NULL &&
		scan->indexinfo->amcostestimate == pmhash_costestimate &&
		!scan->indexinfo->hypothetical &&
		scan->indexselectivity * scan->indexinfo->rel->tuples >= LEAST_ROWS;
}

/* A path that does what an index scan does, or NULL if we can't. */
static CustomPath *
make_path(IndexPath *scan)
{
	double		fetched = scan->indexselectivity * scan->indexinfo->rel->tuples;
	CustomPath *path;
	Keys		keys;

	if (!take_clauses(scan, &keys))
		return NULL;
	path = makeNode(CustomPath);
	path->path = scan->path;
	NodeSetTag(path, T_CustomPath);
	path->path.pathtype = T_CustomScan;
	path->path.pathkeys = NIL;
	path->path.startup_cost += START_COST;
	path->path.total_cost = Max(path->path.startup_cost, path->path.total_cost +
								START_COST - fetched * SAVED_ROW_COST);
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->custom_private = list_make4(scan->indexinfo, keys.exprs, keys.types,
									  keys.conditions);
	path->methods = &path_methods;
	return path;
}

/* The index scans that we could do; add_path changes the list that they are in. */
static List *
find_candidates(const RelOptInfo *rel)
{
	List	   *scans = NIL;
	ListCell   *lc;

	foreach(lc, rel->pathlist)
	{
		if (is_candidate(lfirst(lc)))
			scans = lappend(scans, lfirst(lc));
	}
	return scans;
}

static void
scan_hook(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	List	   *scans;
	ListCell   *lc;

	if (previous_hook)
		previous_hook(root, rel, rti, rte);
	if (!pmhash_enable_pagescan || rte->rtekind != RTE_RELATION || rte->inh)
		return;
	scans = find_candidates(rel);
	if (scans == NIL || pmhash_needs_table() || !pmhash_query_only_reads(root) ||
		!pmhash_is_heap(rte->relid))
		return;
	foreach(lc, scans)
	{
		CustomPath *path = make_path(lfirst(lc));

		if (path != NULL)
			add_path(rel, &path->path);
	}
}

/* ---- the plan ---- */

/*
 * PlanCustomPath: see pages.h for what goes where.  Conditions are in the order in
 * which they are to be evaluated already; what the index's predicate implies is left
 * out, as for index scans.
 */
static Plan *
make_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist,
		  List *clauses, List *custom_plans)
{
	IndexOptInfo *index = linitial(path->custom_private);
	List	   *keys = lsecond(path->custom_private);
	List	   *types = lthird(path->custom_private);
	List	   *conditions = lfourth(path->custom_private);
	CustomScan *scan = makeNode(CustomScan);
	List	   *filter = NIL;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		if (list_member_ptr(index->indrestrictinfo, lfirst(lc)) &&
			!list_member_ptr(conditions, lfirst(lc)))
			filter = lappend(filter, lfirst(lc));
	}
	scan->scan.plan.targetlist = tlist;
	scan->scan.plan.qual = extract_actual_clauses(filter, false);
	scan->scan.scanrelid = rel->relid;
	scan->flags = path->flags;
	scan->custom_exprs = list_make2(keys, extract_actual_clauses(conditions, false));
	scan->custom_private = list_make1(lcons_oid(index->indexoid, list_copy(types)));
	scan->methods = &pmhash_pages_scan_methods;
	return &scan->scan.plan;
}

/*
 * pmhash_pages_init
 *		Have the planner ask us, and executors know us.
 *
 * To be called once, while the library is preloaded.
 */
void
pmhash_pages_init(void)
{
	RegisterCustomScanMethods(&pmhash_pages_scan_methods);
	previous_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = scan_hook;
}
