/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  The planner's side of a join: which joins can be done by looking keys up in
 *	  groups, what they cost, and their plan nodes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/heapam.h"
#include "access/sysattr.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

#include "cluster/base/relations.h"
#include "join/join.h"

/*
 * Which joins can be done by looking keys up in groups.
 *
 * The planner calls our hook for each pair of relations that it joins.  We offer
 * a path where a nested loop over an index scan of one of our indexes would do
 * the same: the inner relation is a plain table, and every column of the index
 * is bound by an equality of its operator family, to an expression of the outer
 * relation or of neither.  What the index does not cover is a filter.
 *
 * Not offered
 *	- for anything but a SELECT without row marks, or the source of INSERT and
 * CREATE TABLE AS; nor inside of such.  EvalPlanQual would have to be able to
 * put another row in the place of ours;
 *	- with volatile functions in conditions, since we evaluate them in another
 * order and not as often;
 *	- if a condition that is leaky would be evaluated before one that guards rows
 * (restriction_is_securely_promotable, as for every index scan);
 *	- with parameters from a relation that is joined later, or LATERAL;
 *	- where several values of a column may be equal to one key (am/keys.c, of dates);
 *	- above partial aggregates, which PostgreSQL 19 puts below a join: their results
 * are no columns of the outer relation;
 *	- with some outer relations (outer_is_unusual).
 */

/*
 * What a join by groups of keys costs.
 *
 * The planner weighs it against hash and merge joins, whose costs are right for
 * what is cached within a factor of two: a row of a hash join's inner side is
 * charged 0.03 and takes 60 to 160 ns.  So what we do is charged by the time it takes,
 * at 4 us for a cost of 1:
 *
 *	probe	45 to 75 ns, hit or miss; index-only hits are hardly more
 *	row		70 ns in a table of 10,000 rows to 260 ns in one of 10 million
 *	copy	0.1 ns a byte of an outer row, which waits in the batch
 *
 * A nested loop is charged too little for the same: a visit to a cached row is
 * cpu_tuple_cost to the planner, and takes ten times as long.  pmhash's own is charged
 * for that (src/am/cost.c); if one over another index has won all the same it is taken
 * at its word, and we do the same in less time, for a little less, but for the copies,
 * which a nested loop does not make.  Nor does core charge for such copies: how wide
 * they are is known from the statistics only (a value computed further down is a guess
 * of 32 bytes, one that is stored out of line is a pointer, and copied as such).
 *
 * Pages that have to be read cost what a bitmap scan is charged for them, as they are
 * read ahead, if memory holds table and index: then each is read once.  The less it holds
 * of them (effective_cache_size), the more of them are read again and again, in
 * no order, and pages of the index with them.  Pages that are in shared buffers already
 * cost little: am/cost.c has a look.  The planner itself takes all pages for unread,
 * and so would prefer to read the whole table for a tenth of its rows.
 */

/* See above; as multiples of what the planner's user may have set. */
#define PROBE_COST			(5 * cpu_operator_cost)
#define ROW_COST			(1.5 * cpu_tuple_cost)
#define KEY_COST			(0.5 * cpu_tuple_cost)
#define COPY_COST			(0.01 * cpu_operator_cost)	/* a byte */

/* Beginning and ending takes a microsecond longer than a nested loop's does. */
#define START_COST			(30 * cpu_tuple_cost)

/* How much less than a nested loop that has won, and for how many rows at least. */
#define LESS_THAN_LOOP		0.95
#define FEW_PROBES			10

/* So few pages are taken for unread without a look. */
#define FEW_PAGES			8

/* What is looked up in an index. */
typedef struct JoinClauses
{
	List	   *keys;			/* per index column the expression looked up, */
	List	   *types;			/* its type to the operator family (OIDs), */
	List	   *conditions;		/* and its RestrictInfo */
} JoinClauses;

/* What is the same for all paths of an index. */
typedef struct Candidate
{
	RelOptInfo *joinrel;
	RelOptInfo *outerrel;
	IndexOptInfo *index;
	JoinType	type;
	bool		index_only;
	JoinClauses clauses;
	JoinPathExtraData *extra;
} Candidate;

/* What is done for all outer rows of a path, by one process. */
typedef struct JoinWork
{
	double		probes;			/* keys looked up */
	double		loops;			/* the same by all processes together */
	double		found;			/* rows of the table per key */
	double		visited;		/* of these, visited in all */
	Cost		copies;			/* of outer rows */
} JoinWork;

/*
 * What the pages cost that are read for so many rows, all processes together: between a
 * page for each row and rows of a key that are neighbours, as cost_index has it.
 *
 * Pages that are read ahead cost the less, each, the more of
 * the table they are, as for bitmap scans (cost_bitmap_heap_scan).  A sequential scan
 * is charged for pages that are cached as well; the more of the table's rows we visit
 * the more we are, or the planner would have us visit all of them in no order.  Of
 * those pages each process is charged for all, as in a parallel sequential scan.
 */
static Cost
cost_of_pages(PlannerInfo *root, IndexOptInfo *index, bool index_only, const JoinWork *w)
{
	RelOptInfo *rel = index->rel;
	double		correlation = pmhash_index_correlation(root, index);
	double		per_key = w->visited / w->probes;
	double		most = index_pages_fetched(per_key * w->loops, rel->pages, 0, root);
	double		least = ceil(per_key * rel->pages / Max(rel->tuples, 1));
	double		pages;
	double		cached = 0;
	double		unread = pmhash_unread_part(root, index);
	Cost		of_index = w->probes * unread * random_page_cost;
	double		random_page;
	double		seq_page;

	Assert(w->probes >= 1 && w->loops >= 1);
	least = index_pages_fetched(least * w->loops, rel->pages, 0, root);
	pages = most + correlation * correlation * (Min(least, most) - most);
	if (index_only)
		pages *= 1 - rel->allvisfrac;
	if (pages <= 0)
		return of_index;
	if (pages > FEW_PAGES)
		cached = pages * pmhash_residence(root, rel);
	get_tablespace_page_costs(rel->reltablespace, &random_page, &seq_page);
	if (get_tablespace_io_concurrency(rel->reltablespace) > 0)
		random_page -= (random_page - seq_page) *
			sqrt(Min(pages / Max(rel->pages, 1), 1)) * (1 - unread);
	return of_index + (pages - cached) * random_page * w->probes / w->loops +
		cached * seq_page * Min(per_key * w->loops / Max(rel->tuples, 1), 1);
}

/*
 * Not more than a nested loop over some index of the table that has won so far: we
 * do the same in less time, but for the copies.
 */
static void
undercut_nested_loops(const RelOptInfo *joinrel, const RelOptInfo *inner,
					  const Path *outer, Cost copies, Path *path)
{
	ListCell   *lc;

	if (outer->rows < FEW_PROBES)
		return;
	foreach(lc, outer->parallel_workers > 0 ? joinrel->partial_pathlist
			: joinrel->pathlist)
	{
		Path	   *other = lfirst(lc);
		JoinPath   *loop = (JoinPath *) other;

		if (!IsA(other, NestPath) || other->param_info != NULL ||
			loop->outerjoinpath != outer || !IsA(loop->innerjoinpath, IndexPath) ||
			loop->innerjoinpath->parent != inner)
			continue;
		path->total_cost = Min(path->total_cost,
							   path->startup_cost + copies + LESS_THAN_LOOP *
							   (other->total_cost - other->startup_cost));
	}
}

/*
 * A join of ours is a nested loop over an index scan to its user, and as often disabled
 * as that is (costsize.c, initial_cost_nestloop; cost_index).
 *
 * Were index scans of the table disabled when its paths were made?  They say so
 * themselves, also where a hint has disabled them for this table alone and the settings
 * are others by now.  A bitmap scan that has won over an index scan is made of it.
 */
static void
charge_for_disabled(const RelOptInfo *inner, const JoinPathExtraData *extra,
					const Path *outer, Path *path)
{
#if PG_VERSION_NUM >= 190000
	bool		no_loop = (extra->pgs_mask & PGS_NESTLOOP_PLAIN) == 0;
#else
	bool		no_loop = !enable_nestloop;
#endif
	bool		no_scan = !enable_indexscan;
	ListCell   *lc;

	foreach(lc, inner->pathlist)
	{
		const Path *scan = lfirst(lc);

		if (IsA(scan, BitmapHeapPath))
			scan = ((const BitmapHeapPath *) scan)->bitmapqual;
		if (!IsA(scan, IndexPath))
			continue;
#if PG_VERSION_NUM >= 180000
		no_scan = scan->disabled_nodes > 0;
#else
		no_scan = scan->total_cost >= disable_cost;
#endif
		break;
	}
#if PG_VERSION_NUM >= 180000
	path->disabled_nodes = outer->disabled_nodes + no_loop + no_scan;
#else
	path->startup_cost += no_loop || no_scan ? disable_cost : 0;
	path->total_cost += no_loop ? disable_cost : 0;
	/* each rescan is charged for it */
	path->total_cost += no_scan ? disable_cost * Max(outer->rows, 1) : 0;
#endif
}

/* Fill in the costs and rows of a path with this outer one. */
static void
cost_join(PlannerInfo *root, const Candidate *c, Path *outer, Path *path)
{
	RelOptInfo *joinrel = c->joinrel;
	IndexOptInfo *index = c->index;
	JoinPathExtraData *extra = c->extra;
	const PathTarget *target = joinrel->reltarget;
	bool		has_filter = list_length(extra->restrictlist) +
		list_length(index->indrestrictinfo) > list_length(c->clauses.conditions);
	bool		parallel = outer->parallel_workers > 0;
	JoinWork	w;
	QualCost	of_join;
	QualCost	of_table;
	Cost		run_cost;

	Assert(list_length(c->clauses.keys) == index->nkeycolumns);
	w.probes = clamp_row_est(outer->rows);
	w.loops = parallel ? clamp_row_est(outer->parent->rows) : w.probes;
	w.found = index->rel->tuples *
		clauselist_selectivity(root,
							   add_predicate_to_index_quals(index, c->clauses.conditions),
							   index->rel->relid, JOIN_INNER, NULL);
	w.visited = w.probes * w.found;
	if (c->type == JOIN_SEMI || c->type == JOIN_ANTI || extra->inner_unique)
	{
		/*
		 * The first match is all there is; the factor of two is core's (costsize.c,
		 * final_cost_nestloop).
		 */
		double		matched = extra->semifactors.outer_match_frac;
		double		until = Min(2.0 / (extra->semifactors.match_count + 1), 1);

		w.visited *= matched * until + (has_filter ? 1 - matched : 0);
	}
	w.copies = w.probes * outer->pathtarget->width * COPY_COST;

	/* what one process has of the outer side, it has of the result */
	path->rows = !parallel ? joinrel->rows :
		clamp_row_est(joinrel->rows * outer->rows / Max(outer->parent->rows, 1));

	/* the conditions: what keys are computed from, and what rows are held against */
	cost_qual_eval(&of_join, extra->restrictlist, root);
	cost_qual_eval(&of_table, index->indrestrictinfo, root);
	path->startup_cost = outer->startup_cost + target->cost.startup + START_COST +
		of_join.startup + of_table.startup;
	run_cost = outer->total_cost - outer->startup_cost;
	run_cost += w.probes * PROBE_COST + w.copies;
	run_cost += w.visited * (c->index_only ? KEY_COST +
							 ROW_COST * (1 - index->rel->allvisfrac) : ROW_COST);
	run_cost += w.visited * (of_join.per_tuple + of_table.per_tuple);
	run_cost += cost_of_pages(root, index, c->index_only, &w);
	run_cost += path->rows * (cpu_tuple_cost + target->cost.per_tuple);
	path->total_cost = path->startup_cost + run_cost;
	charge_for_disabled(index->rel, extra, outer, path);
	undercut_nested_loops(joinrel, index->rel, outer, w.copies, path);
}

/*
 * From a path to a plan node.
 *
 * join.h says how the node is laid out.  Its tuple, to the planner, consists of
 * the columns of the outer plan and those of the table that are used.  setrefs.c
 * turns all expressions into references to that tuple; the executor makes
 * references to its two slots of them, and never forms the tuple.
 */

typedef struct Condition
{
	Expr	   *clause;
	Cost		cost;
	Index		level;
} Condition;

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
		for (; at > 0 && (c.level < sorted[at - 1].level ||
						  (c.level == sorted[at - 1].level && c.cost < sorted[at - 1].cost));
			 at--)
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

/* ---- the columns ---- */

/* custom_scan_tlist while it is being made. */
typedef struct Layout
{
	List	   *columns;		/* TargetEntry */
	int			nouter;
	Index		inner;			/* place of the table in the range table */
	List	   *attnos;			/* of the table, in the order of columns */
	bool		conditions;		/* now they are of conditions */
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
 * Add the columns of the table that an expression of the target list, or a condition, uses.
 *
 * Let a column be said to be made null by the outer joins that a target names: from
 * PostgreSQL 16 on setrefs.c compares that.  Not by those that conditions name: they come
 * before it.
 */
static bool
collect_columns(Node *node, void *context)
{
	Layout	   *layout = context;
	Expr	   *column;

	if (node == NULL)
		return false;
	if (!IsA(node, Var) && !IsA(node, PlaceHolderVar))
		return expression_tree_walker(node, collect_columns, layout);
	column = find_column(layout, node);
	if (column == NULL && IsA(node, PlaceHolderVar))
		return expression_tree_walker(node, collect_columns, layout);
	if (column == NULL)
	{
		if (((Var *) node)->varno != (int) layout->inner)
			elog(ERROR, "pmhash join: relation %d is not in the outer plan",
				 ((Var *) node)->varno);
		add_column(layout, copyObject((Expr *) node));
		layout->attnos = lappend_int(layout->attnos, ((Var *) node)->varattno);
	}
#if PG_VERSION_NUM >= 160000
	else if (!layout->conditions && IsA(node, Var))
		((Var *) column)->varnullingrels = ((const Var *) node)->varnullingrels;
	else if (!layout->conditions)
		((PlaceHolderVar *) column)->phnullingrels =
			((const PlaceHolderVar *) node)->phnullingrels;
#endif
	return false;
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
 * PlanCustomPath: see join.h for what goes where.  Conditions of the join are sorted out;
 * keys and recheck come from the path.
 *
 * The planner may put another target list in the place of ours, or of none at all
 * (createplan.c, create_projection_plan); so there has to be what it can be made of.
 */
static Plan *
make_join_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist,
				 List *clauses, List *custom_plans)
{
	IndexOptInfo *index = linitial(path->custom_private);
	List	   *conditions = lfourth(path->custom_private);
	List	   *ints = list_copy(llast(path->custom_private));
	CustomScan *scan = makeNode(CustomScan);
	Layout		layout = {.inner = index->rel->relid};
	List	   *filter = list_difference_ptr(index->indrestrictinfo, conditions);
	List	   *other = NIL;
	List	   *exprs;
	ListCell   *lc;

	Assert(list_length(custom_plans) == 1 && list_length(path->custom_private) == 6);
	foreach(lc, (List *) list_nth(path->custom_private, 4))
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (IS_OUTER_JOIN((JoinType) linitial_int(ints)) &&
			RINFO_IS_PUSHED_DOWN(rinfo, rel->relids))
			other = lappend(other, rinfo);
		else if (!list_member_ptr(conditions, rinfo))
			filter = lappend(filter, rinfo);
	}
	exprs = list_make4(lsecond(path->custom_private),
					   table_first(root, layout.inner, ordered_clauses(root, conditions)),
					   ordered_clauses(root, filter), ordered_clauses(root, other));
	foreach(lc, ((const Plan *) linitial(custom_plans))->targetlist)
		add_column(&layout, copyObject(lfirst_node(TargetEntry, lc)->expr));
	layout.nouter = list_length(layout.columns);
	collect_columns((Node *) list_make3(rel->reltarget->exprs,
										path->path.pathtarget->exprs, tlist), &layout);
	layout.conditions = true;
	collect_columns((Node *) exprs, &layout);
	add_column(&layout, (Expr *) makeVar(layout.inner, TableOidAttributeNumber,
										 OIDOID, -1, InvalidOid, 0));
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

static set_join_pathlist_hook_type previous_join_hook = NULL;
static set_rel_pathlist_hook_type previous_scan_hook = NULL;

static const CustomPathMethods join_path_methods = {
	PMHASH_JOIN_NAME,
	make_join_plan,
	NULL
};

/* ---- what is joined ---- */

/* Is there no EvalPlanQual here, nor in a query that this one is a part of? */
static bool
query_only_reads(const PlannerInfo *root)
{
	for (; root != NULL; root = root->parent_root)
	{
		CmdType		command = root->parse->commandType;

		if (command != CMD_SELECT && command != CMD_INSERT)
			return false;
		if (root->rowMarks != NIL || root->parse->rowMarks != NIL)
			return false;
	}
	return true;
}

/*
 * May a file not serve the snapshot of the statement, though a later one it does?
 *
 * So it is on a standby, and in a transaction that lives through its promotion or has
 * taken a snapshot over from one (SET TRANSACTION SNAPSHOT).  An index scan has the table
 * to go to then (am/scan.c), joins and page scans have not.
 */
static bool
needs_table(void)
{
	return RecoveryInProgress() || TransactionStartedDuringRecovery() ||
		(ActiveSnapshotSet() && GetActiveSnapshot()->takenDuringRecovery);
}

/* Is this table one of the server's own access method? */
static bool
is_heap(Oid relid)
{
	Relation	rel = RelationIdGetRelation(relid);
	bool		heap;

	if (!RelationIsValid(rel))
		return false;
	Assert(CheckRelationLockedByMe(rel, AccessShareLock, true));
	heap = pmhash_is_heap_table(rel);
	RelationClose(rel);
	return heap;
}

static bool
is_plain_table(PlannerInfo *root, RelOptInfo *rel)
{
	RangeTblEntry *rte;
	bool		indexed = false;
	ListCell   *lc;

	foreach(lc, rel->indexlist)
		indexed |= lfirst_node(IndexOptInfo, lc)->amcostestimate == pmhash_costestimate;
	if (!indexed || rel->reloptkind != RELOPT_BASEREL || rel->rtekind != RTE_RELATION)
		return false;
	/* from PostgreSQL 19 on one that is made unique or grouped is a copy of it */
	if (root->simple_rel_array[rel->relid] != rel)
		return false;
	/* only columns of it are wanted above it */
	foreach(lc, rel->reltarget->exprs)
	{
		if (!IsA(lfirst(lc), Var))
			return false;
	}
	rte = planner_rt_fetch(rel->relid, root);
	return !rte->inh && rte->tablesample == NULL &&
		(rte->relkind == RELKIND_RELATION || rte->relkind == RELKIND_MATVIEW) &&
		bms_is_empty(rel->lateral_relids) && is_heap(rte->relid);
}

/* Is there one that we can't evaluate when and as often as we like? */
static bool
has_unusual_clause(List *restrictinfos)
{
	ListCell   *lc;

	foreach(lc, restrictinfos)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (rinfo->pseudoconstant ||
			contain_volatile_functions((Node *) rinfo->clause))
			return true;
	}
	return false;
}

/* ---- the outer relation ---- */

/* Does a query, or a sub-query of it, lock the rows that it reads? */
static bool
locks_rows(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		const Query *query = (const Query *) node;

		/* what changes rows is read to its end in any case */
		return query->commandType == CMD_SELECT &&
			(query->rowMarks != NIL ||
			 query_tree_walker((Query *) query, locks_rows, context, 0));
	}
	return expression_tree_walker(node, locks_rows, context);
}

/*
 * Is there a sub-query in the relation that locks rows?  We read the outer relation
 * ahead (exec.c), and with LIMIT what is not needed would be locked as well, so that
 * others wait for it or pass over it.  Of sub-queries in expressions and of WITH
 * queries it is not looked up whose they are.
 */
static bool
has_locks(PlannerInfo *root, const RelOptInfo *rel)
{
	int			relid = -1;
	ListCell   *lc;

	while ((relid = bms_next_member(rel->relids, relid)) >= 0)
	{
		RangeTblEntry *rte = planner_rt_fetch(relid, root);

		if (rte->rtekind == RTE_SUBQUERY && locks_rows((Node *) rte->subquery, NULL))
			return true;
	}
	foreach(lc, root->glob->subroots)
	{
		if (locks_rows((Node *) lfirst_node(PlannerInfo, lc)->parse, NULL))
			return true;
	}
	return false;
}

/*
 * Is a column wanted whose type is RECORD, of a sub-query?  The names of its fields are
 * those of an expression in the plan of the sub-query; to find that one EXPLAIN goes down
 * to the left or right child of a join (ruleutils.c, get_name_for_var_field), which
 * ours does not have.
 */
static bool
has_record(PlannerInfo *root, const RelOptInfo *rel)
{
	List	   *vars = pull_var_clause((Node *) rel->reltarget->exprs,
									   PVC_RECURSE_PLACEHOLDERS);
	bool		found = false;
	ListCell   *lc;

	foreach(lc, vars)
	{
		const Var  *var = lfirst_node(Var, lc);
		const RangeTblEntry *rte = planner_rt_fetch(var->varno, root);

		found |= var->vartype == RECORDOID && var->varattno > 0 &&
			(rte->rtekind == RTE_SUBQUERY || rte->rtekind == RTE_CTE);
	}
	list_free(vars);
	return found;
}

/* ---- conditions and columns ---- */

/* An index column, and where its value is to come from. */
typedef struct Binding
{
	PlannerInfo *root;
	IndexOptInfo *index;
	int			column;
	Relids		from;			/* relations; NULL: from none */
	Node	   *key;			/* what is looked up, and */
	Oid			type;			/* its type to the operator family */
} Binding;

/*
 * A condition of the list that binds the column, or NULL: it is an operator of the family,
 * has the column at one side, and what may be looked up at the other.  Sets key and its
 * type.
 */
static RestrictInfo *
find_binding(Binding *b, List *restrictinfos, JoinType jointype, Relids joinrelids)
{
	Oid			family = b->index->opfamily[b->column];
	Oid			collation = b->index->indexcollations[b->column];
	ListCell   *lc;

	Assert(b->column >= 0 && b->column < b->index->nkeycolumns);
	foreach(lc, restrictinfos)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
		OpExpr	   *op = (OpExpr *) rinfo->clause;

		/* WHERE above an outer join comes after it */
		if (IS_OUTER_JOIN(jointype) && joinrelids != NULL &&
			RINFO_IS_PUSHED_DOWN(rinfo, joinrelids))
			continue;
		if (!restriction_is_securely_promotable(rinfo, b->index->rel) ||
			!IsA(op, OpExpr) || list_length(op->args) != 2)
			continue;
		for (int side = 0; side < 2; side++)
		{
			Node	   *key = list_nth(op->args, 1 - side);
			Oid			operator = side == 0 ? op->opno : get_commutator(op->opno);
			Oid			left;
			int			strategy;

			if (!match_index_to_operand(list_nth(op->args, side), b->column, b->index) ||
				!bms_is_subset(pull_varnos(b->root, key), b->from) || contain_subplans(key))
				continue;
			if (!OidIsValid(operator) || !op_in_opfamily(operator, family) ||
				(OidIsValid(collation) && collation != op->inputcollid))
				break;
			get_op_opfamily_properties(operator, family, false, &strategy, &left, &b->type);
			if (pmhash_keys_many_equal(left, b->type))
				break;			/* a row has one hash */
			b->key = key;
			return rinfo;
		}
	}
	return NULL;
}

/*
 * Bind all columns of the index; one at least to the outer relation, if there is one.
 * False if that can't be done.
 */
static bool
bind_columns(PlannerInfo *root, IndexOptInfo *index, RelOptInfo *joinrel,
			 RelOptInfo *outerrel, JoinType jointype, List *restrictlist,
			 JoinClauses *clauses)
{
	Binding		b = {root, index, 0, NULL, NULL, InvalidOid};
	bool		joins = outerrel == NULL;

	Assert(index->nkeycolumns >= 1 && (outerrel == NULL) == (joinrel == NULL));
	memset(clauses, 0, sizeof(*clauses));
	for (b.column = 0; b.column < index->nkeycolumns; b.column++)
	{
		RestrictInfo *rinfo = NULL;

		if (outerrel != NULL)
		{
			b.from = outerrel->relids;
			rinfo = find_binding(&b, restrictlist, jointype, joinrel->relids);
			joins |= rinfo != NULL;
		}
		if (rinfo == NULL)
		{
			b.from = NULL;
			rinfo = find_binding(&b, index->indrestrictinfo, jointype, NULL);
		}
		if (rinfo == NULL)
			return false;
		clauses->keys = lappend(clauses->keys, b.key);
		clauses->types = lappend_oid(clauses->types, b.type);
		clauses->conditions = lappend(clauses->conditions, rinfo);
	}
	return joins;
}

/*
 * Can all that is wanted of the table be computed from the hash?  That is the key
 * of an index on one column, if it is anything at all.
 */
static bool
key_is_enough(const IndexOptInfo *index)
{
	Bitmapset  *attnos = NULL;
	ListCell   *lc;
	int			attno = index->indexkeys[0] - FirstLowInvalidHeapAttributeNumber;

	/* a hint may have ruled it out when the paths of the table were made */
	foreach(lc, index->rel->pathlist)
	{
		const IndexPath *path = lfirst(lc);

		if (IsA(path, IndexPath) && path->indexinfo == index &&
			path->path.pathtype != T_IndexOnlyScan)
			return false;
	}
	if (!enable_indexonlyscan || index->nkeycolumns != 1 || index->indexkeys[0] <= 0 ||
		!index->canreturn[0])
		return false;
	pull_varattnos((Node *) index->rel->reltarget->exprs, index->rel->relid, &attnos);
	foreach(lc, index->indrestrictinfo)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, lc)->clause,
					   index->rel->relid, &attnos);
	attnos = bms_del_member(attnos, attno);
	return bms_is_empty(attnos);
}

/* ---- paths ---- */

/*
 * A path with this outer one.  Its rows are handed out in the order of the
 * outer ones.
 */
static Path *
make_path(PlannerInfo *root, const Candidate *c, Path *outer)
{
	CustomPath *path = makeNode(CustomPath);
	bool		single = c->type == JOIN_SEMI || c->type == JOIN_ANTI ||
		c->extra->inner_unique;

	Assert(c->type == JOIN_INNER || c->type == JOIN_LEFT || single);
	Assert(outer->param_info == NULL);
	path->path.pathtype = T_CustomScan;
	path->path.parent = c->joinrel;
	path->path.pathtarget = c->joinrel->reltarget;
	path->path.parallel_aware = false;
	path->path.parallel_safe = c->joinrel->consider_parallel && outer->parallel_safe;
	path->path.parallel_workers = outer->parallel_workers;
	path->path.pathkeys = build_join_pathkeys(root, c->joinrel, c->type, outer->pathkeys);
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->custom_paths = list_make1(outer);
	path->custom_private = list_make5(c->index, c->clauses.keys, c->clauses.types,
									  c->clauses.conditions, c->extra->restrictlist);
	path->custom_private = lappend(path->custom_private,
								   list_make3_int(c->type, single, c->index_only));
	path->methods = &join_path_methods;
	cost_join(root, c, outer, &path->path);
	return (Path *) path;
}

/*
 * Paths for all orders that the outer relation comes in; those of parallel plans, in
 * which each worker reads a part of the outer relation, and looks that up by itself; or
 * for IN (sub-query), whose rows, none twice, are the keys.
 */
static void
add_paths_for_index(PlannerInfo *root, Candidate *c, JoinType jointype)
{
	IndexOptInfo *index = c->index;
	ListCell   *lc;

	if (index->amcostestimate != pmhash_costestimate || index->hypothetical ||
		(index->indpred != NIL && !index->predOK))
		return;
	/* rows are kept as minimal tuples (exec.c), and read ahead; a nested loop does neither */
	if (!bind_columns(root, index, c->joinrel, c->outerrel, c->type,
					  c->extra->restrictlist, &c->clauses) ||
		list_length(c->outerrel->reltarget->exprs) > MaxTupleAttributeNumber ||
		has_record(root, c->outerrel) || has_locks(root, c->outerrel))
		return;
	c->index_only = key_is_enough(index);
	if (jointype == JOIN_UNIQUE_OUTER)
	{
		Path	   *outer = c->outerrel->cheapest_total_path;

		if (outer->param_info != NULL)
			return;
		/* from PostgreSQL 19 on the relation is that of its unique rows (joinrels.c) */
#if PG_VERSION_NUM < 190000
		outer = (Path *) create_unique_path(root, c->outerrel, outer, c->extra->sjinfo);
#endif
		if (outer != NULL)
			add_path(c->joinrel, make_path(root, c, outer));
		return;
	}
	foreach(lc, c->outerrel->pathlist)
	{
		Path	   *outer = lfirst(lc);

		if (outer->param_info == NULL &&
			(outer == c->outerrel->cheapest_total_path ||
			 outer == c->outerrel->cheapest_startup_path || outer->pathkeys != NIL))
			add_path(c->joinrel, make_path(root, c, outer));
	}
	if (!c->joinrel->consider_parallel)
		return;
	foreach(lc, c->outerrel->partial_pathlist)
	{
		Path	   *outer = lfirst(lc);

		if (foreach_current_index(lc) == 0 || outer->pathkeys != NIL)
			add_partial_path(c->joinrel, make_path(root, c, outer));
	}
}

static void
join_hook(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
		  RelOptInfo *innerrel, JoinType jointype, JoinPathExtraData *extra)
{
	Candidate	c;
	ListCell   *lc;

	if (previous_join_hook)
		previous_join_hook(root, joinrel, outerrel, innerrel, jointype, extra);
	if (needs_table())
		return;
#if PG_VERSION_NUM >= 190000
	if (IS_GROUPED_REL(joinrel) || IS_GROUPED_REL(outerrel))
		return;
#endif
	if (!pmhash_enable_join ||
		(jointype != JOIN_INNER && jointype != JOIN_LEFT && jointype != JOIN_SEMI &&
		 jointype != JOIN_ANTI && jointype != JOIN_UNIQUE_OUTER) ||
		!is_plain_table(root, innerrel) || !query_only_reads(root) ||
		!bms_is_empty(joinrel->lateral_relids) ||
		has_unusual_clause(extra->restrictlist) ||
		has_unusual_clause(innerrel->baserestrictinfo))
		return;
	memset(&c, 0, sizeof(c));
	c.joinrel = joinrel;
	c.outerrel = outerrel;
	c.extra = extra;
	c.type = jointype == JOIN_UNIQUE_OUTER ? JOIN_INNER : jointype;
	foreach(lc, innerrel->indexlist)
	{
		c.index = lfirst_node(IndexOptInfo, lc);
		add_paths_for_index(root, &c, jointype);
	}
}

/*
 * Page scans: which scans are done page by page, and what they cost.
 *
 * A plain index scan hands out one TID after the other, and the heap's access method
 * locks the page of each.  Where a key is expected to have many rows we offer to
 * do the scan ourselves: all rows of a page under one lock.
 *
 * It is offered beside each index scan of ours that is still a candidate, for that
 * scan's price less what is saved on each row.  So where the planner takes something else
 * for better, as a bitmap scan of what is not cached, it stays so.  It begins a little
 * later; so does the price, by which LIMIT decides.
 *
 * Not offered where EvalPlanQual could come, for scans that depend on a row of another
 * relation, for lists of keys, in recovery (as joins).
 */

/* Of a key with fewer rows than that a page has hardly two. */
#define LEAST_ROWS			64

/* At 4 us for a cost of 1 (am/cost.c): a row takes 30 ns less. */
#define SAVED_ROW_COST		(0.75 * cpu_tuple_cost)

/*
 * PlanCustomPath.  Conditions are in the order in which they are to be evaluated already;
 * what the index's predicate implies is left out, as for index scans.
 */
static Plan *
make_pages_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist,
				List *clauses, List *custom_plans)
{
	IndexOptInfo *index = linitial(path->custom_private);
	List	   *conditions = lfourth(path->custom_private);
	CustomScan *scan = makeNode(CustomScan);
	List	   *filter = NIL;
	ListCell   *lc;

	Assert(custom_plans == NIL && list_length(path->custom_private) == 4);
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
	scan->custom_exprs = list_make4(lsecond(path->custom_private),
									extract_actual_clauses(conditions, false), NIL, NIL);
	scan->custom_private = list_make2(lcons_oid(index->indexoid,
												list_copy(lthird(path->custom_private))),
									  list_make4_int(JOIN_INNER, false, false, 0));
	scan->methods = &pmhash_pages_scan_methods;
	return &scan->scan.plan;
}

static const CustomPathMethods pages_path_methods = {
	PMHASH_PAGES_NAME,
	make_pages_plan,
	NULL
};

/* Offer to do what index scans do, if each column is bound to one value. */
static void
scan_hook(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	List	   *scans = NIL;
	ListCell   *lc;

	if (previous_scan_hook)
		previous_scan_hook(root, rel, rti, rte);
	if (!pmhash_enable_pagescan || rte->rtekind != RTE_RELATION || rte->inh)
		return;
	/* add_path changes the list that they are in */
	foreach(lc, rel->pathlist)
	{
		IndexPath  *scan = lfirst(lc);

		if (IsA(scan, IndexPath) && scan->path.pathtype == T_IndexScan &&
			scan->path.param_info == NULL &&
			scan->indexinfo->amcostestimate == pmhash_costestimate &&
			!scan->indexinfo->hypothetical &&
			scan->indexselectivity * rel->tuples >= LEAST_ROWS)
			scans = lappend(scans, scan);
	}
	if (scans == NIL || needs_table() || !query_only_reads(root) || !is_heap(rte->relid))
		return;
	foreach(lc, scans)
	{
		const IndexPath *scan = lfirst(lc);
		double		fetched = scan->indexselectivity * rel->tuples;
		CustomPath *path = makeNode(CustomPath);
		JoinClauses keys;

		if (!bind_columns(root, scan->indexinfo, NULL, NULL, JOIN_INNER, NIL, &keys) ||
			contain_volatile_functions((Node *) keys.keys))
			continue;
		path->path = scan->path;
		NodeSetTag(path, T_CustomPath);
		path->path.pathtype = T_CustomScan;
		path->path.pathkeys = NIL;
		path->path.startup_cost += START_COST;
		path->path.total_cost = Max(path->path.startup_cost, path->path.total_cost +
									START_COST - fetched * SAVED_ROW_COST);
		path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
		path->custom_private = list_make4(scan->indexinfo, keys.keys, keys.types,
										  keys.conditions);
		path->methods = &pages_path_methods;
		add_path(rel, &path->path);
	}
}

/* Have the planner ask us, and executors know us. */
void
pmhash_join_init(void)
{
	Assert(set_rel_pathlist_hook != scan_hook);
	RegisterCustomScanMethods(&pmhash_join_scan_methods);
	RegisterCustomScanMethods(&pmhash_pages_scan_methods);
	previous_join_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = join_hook;
	previous_scan_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = scan_hook;
}
