/*-------------------------------------------------------------------------
 *
 * path.c
 *	  Which joins can be done by looking keys up in groups.
 *
 * The planner calls our hook for each pair of relations that it joins.  We offer
 * a path where a nested loop over an index scan of one of our indexes would do
 * the same: the inner relation is a plain table, and every column of the index
 * is bound by an equality of its operator family, to an expression of the outer
 * relation or of neither.  What the index does not cover is a filter.
 *
 * Not offered
 *	- for anything but a SELECT without row marks, or the source of INSERT and
 *	  CREATE TABLE AS; nor inside of such.  EvalPlanQual would have to be able to
 *	  put another row in the place of ours;
 *	- with volatile functions in conditions, since we evaluate them in another
 *	  order and not as often;
 *	- if a condition that is leaky would be evaluated before one that guards rows
 *	  (restriction_is_securely_promotable, as for every index scan);
 *	- with parameters from a relation that is joined later, or LATERAL;
 *	- above partial aggregates, which PostgreSQL 19 puts below a join: their results
 *	  are no columns of the outer relation;
 *	- with some outer relations (outer_is_unusual).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/xact.h"
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
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cluster/heap_table.h"
#include "join/join.h"
#include "join/pages.h"
#include "join/path.h"

static set_join_pathlist_hook_type previous_hook = NULL;

static const CustomPathMethods path_methods = {
	PMHASH_JOIN_NAME,
	pmhash_join_plan,
	NULL
};

/* ---- what is joined ---- */

/*
 * pmhash_query_only_reads
 *		Is there no EvalPlanQual here, nor in a query that this one is a part of?
 */
bool
pmhash_query_only_reads(const PlannerInfo *root)
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
 * pmhash_needs_table
 *		May a file not serve the snapshot of the statement, though a later one it does?
 *
 * So it is on a standby, and in a transaction that lives through its promotion or has
 * taken a snapshot over from one (SET TRANSACTION SNAPSHOT).  An index scan has the table
 * to go to then (am/scan.c), joins and page scans have not.
 */
bool
pmhash_needs_table(void)
{
	return RecoveryInProgress() || TransactionStartedDuringRecovery() ||
		(ActiveSnapshotSet() && GetActiveSnapshot()->takenDuringRecovery);
}

/*
 * pmhash_is_heap
 *		Is this table one of the server's own access method?
 *
 * The planner holds a lock on it.
 */
bool
pmhash_is_heap(Oid relid)
{
	Relation	rel = RelationIdGetRelation(relid);
	bool		heap;

	if (!RelationIsValid(rel))
		return false;
	heap = pmhash_is_heap_table(rel);
	RelationClose(rel);
	return heap;
}

/* Are only columns of the table wanted above it? */
static bool
gives_columns_only(const RelOptInfo *rel)
{
	ListCell   *lc;

	foreach(lc, rel->reltarget->exprs)
	{
		if (!IsA(lfirst(lc), Var))
			return false;
	}
	return true;
}

static bool
is_plain_table(PlannerInfo *root, RelOptInfo *rel)
{
	RangeTblEntry *rte;

	if (rel->reloptkind != RELOPT_BASEREL || rel->rtekind != RTE_RELATION ||
		rel->indexlist == NIL)
		return false;
	/* from PostgreSQL 19 on one that is made unique or grouped is a copy of it */
	if (root->simple_rel_array[rel->relid] != rel)
		return false;
	rte = planner_rt_fetch(rel->relid, root);
	return !rte->inh && rte->tablesample == NULL &&
		(rte->relkind == RELKIND_RELATION || rte->relkind == RELKIND_MATVIEW) &&
		bms_is_empty(rel->lateral_relids) && gives_columns_only(rel) &&
		pmhash_is_heap(rte->relid);
}

static bool
has_index(const RelOptInfo *rel)
{
	ListCell   *lc;

	foreach(lc, rel->indexlist)
	{
		if (lfirst_node(IndexOptInfo, lc)->amcostestimate == pmhash_costestimate)
			return true;
	}
	return false;
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
 * ahead (batch.c), and with LIMIT what is not needed would be locked as well, so that
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

/* Are its rows ones that we can't keep, or must not read ahead? */
static bool
outer_is_unusual(PlannerInfo *root, const RelOptInfo *rel)
{
	/* as minimal tuples (batch.c); a nested loop makes none of them */
	return list_length(rel->reltarget->exprs) > MaxTupleAttributeNumber ||
		has_record(root, rel) || has_locks(root, rel);
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
 * Is this operator, with the index column at its left, one of the family?  Sets
 * the type of its other side.
 */
static bool
operator_fits(Binding *b, Oid operator, Oid collation)
{
	Oid			family = b->index->opfamily[b->column];
	Oid			index_collation = b->index->indexcollations[b->column];
	int			strategy;
	Oid			left;

	if (!OidIsValid(operator) || !op_in_opfamily(operator, family))
		return false;
	if (OidIsValid(index_collation) && index_collation != collation)
		return false;
	get_op_opfamily_properties(operator, family, false, &strategy, &left, &b->type);
	return true;
}

/* May this expression be looked up? */
static bool
is_key(const Binding *b, Node *expr)
{
	Relids		relids = pull_varnos(b->root, expr);
	bool		fits = bms_is_subset(relids, b->from);

	bms_free(relids);
	return fits && !contain_subplans(expr);
}

/* Does the condition bind the column?  Sets key and type. */
static bool
clause_binds(Binding *b, const RestrictInfo *rinfo)
{
	OpExpr	   *op = (OpExpr *) rinfo->clause;
	Node	   *left;
	Node	   *right;

	if (!IsA(op, OpExpr) || list_length(op->args) != 2)
		return false;
	left = linitial(op->args);
	right = lsecond(op->args);
	if (match_index_to_operand(left, b->column, b->index) && is_key(b, right))
	{
		b->key = right;
		return operator_fits(b, op->opno, op->inputcollid);
	}
	if (match_index_to_operand(right, b->column, b->index) && is_key(b, left))
	{
		b->key = left;
		return operator_fits(b, get_commutator(op->opno), op->inputcollid);
	}
	return false;
}

/* A condition of the list that binds the column, or NULL. */
static RestrictInfo *
find_binding(Binding *b, List *restrictinfos, JoinType jointype, Relids joinrelids)
{
	ListCell   *lc;

	foreach(lc, restrictinfos)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		/* WHERE above an outer join comes after it */
		if (IS_OUTER_JOIN(jointype) && joinrelids != NULL &&
			RINFO_IS_PUSHED_DOWN(rinfo, joinrelids))
			continue;
		if (restriction_is_securely_promotable(rinfo, b->index->rel) &&
			clause_binds(b, rinfo))
			return rinfo;
	}
	return NULL;
}

/*
 * Bind all columns of the index; one at least to the outer relation.  False if
 * that can't be done.
 */
static bool
bind_columns(PlannerInfo *root, IndexOptInfo *index, RelOptInfo *joinrel,
			 RelOptInfo *outerrel, JoinType jointype, List *restrictlist,
			 PmhashJoinClauses *clauses)
{
	Binding		b = {root, index, 0, NULL, NULL, InvalidOid};
	bool		joins = false;

	memset(clauses, 0, sizeof(*clauses));
	for (b.column = 0; b.column < index->nkeycolumns; b.column++)
	{
		RestrictInfo *rinfo;

		b.from = outerrel->relids;
		rinfo = find_binding(&b, restrictlist, jointype, joinrel->relids);
		joins |= rinfo != NULL;
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

/* What is the same for all paths of an index. */
typedef struct Candidate
{
	RelOptInfo *joinrel;
	RelOptInfo *outerrel;
	IndexOptInfo *index;
	JoinType	type;
	bool		index_only;
	PmhashJoinClauses clauses;
	JoinPathExtraData *extra;
} Candidate;

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
	path->methods = &path_methods;
	pmhash_join_cost(root, c->joinrel, c->index, &c->clauses, c->type, c->index_only,
					 c->extra, outer, &path->path);
	return (Path *) path;
}

/* Paths for all orders that the outer relation comes in. */
static void
add_serial_paths(PlannerInfo *root, const Candidate *c)
{
	ListCell   *lc;

	foreach(lc, c->outerrel->pathlist)
	{
		Path	   *outer = lfirst(lc);

		if (outer->param_info != NULL)
			continue;
		if (outer != c->outerrel->cheapest_total_path &&
			outer != c->outerrel->cheapest_startup_path && outer->pathkeys == NIL)
			continue;
		add_path(c->joinrel, make_path(root, c, outer));
	}
}

/* Each worker reads a part of the outer relation, and looks that up by itself. */
static void
add_parallel_paths(PlannerInfo *root, const Candidate *c)
{
	ListCell   *lc;

	if (!c->joinrel->consider_parallel)
		return;
	foreach(lc, c->outerrel->partial_pathlist)
	{
		Path	   *outer = lfirst(lc);

		if (foreach_current_index(lc) == 0 || outer->pathkeys != NIL)
			add_partial_path(c->joinrel, make_path(root, c, outer));
	}
}

/* IN (sub-query): its rows, none twice, are the keys. */
static void
add_unique_path(PlannerInfo *root, const Candidate *c)
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
}

static void
add_paths_for_index(PlannerInfo *root, Candidate *c, JoinType jointype)
{
	IndexOptInfo *index = c->index;

	if (index->amcostestimate != pmhash_costestimate || index->hypothetical ||
		(index->indpred != NIL && !index->predOK))
		return;
	if (!bind_columns(root, index, c->joinrel, c->outerrel, c->type,
					  c->extra->restrictlist, &c->clauses) ||
		outer_is_unusual(root, c->outerrel))
		return;
	c->index_only = key_is_enough(index);
	if (jointype == JOIN_UNIQUE_OUTER)
		add_unique_path(root, c);
	else
	{
		add_serial_paths(root, c);
		add_parallel_paths(root, c);
	}
}

/* Do we know how to do this kind of join? */
static bool
is_known_type(JoinType jointype)
{
	return jointype == JOIN_INNER || jointype == JOIN_LEFT || jointype == JOIN_SEMI ||
		jointype == JOIN_ANTI || jointype == JOIN_UNIQUE_OUTER;
}

static void
join_hook(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
		  RelOptInfo *innerrel, JoinType jointype, JoinPathExtraData *extra)
{
	Candidate	c;
	ListCell   *lc;

	if (previous_hook)
		previous_hook(root, joinrel, outerrel, innerrel, jointype, extra);
	if (pmhash_needs_table())
		return;
#if PG_VERSION_NUM >= 190000
	if (IS_GROUPED_REL(joinrel) || IS_GROUPED_REL(outerrel))
		return;
#endif
	if (!pmhash_enable_join || !is_known_type(jointype) ||
		!has_index(innerrel) || !pmhash_query_only_reads(root) ||
		!is_plain_table(root, innerrel) || !bms_is_empty(joinrel->lateral_relids) ||
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
 * pmhash_join_init
 *		Have the planner ask us, and executors know us.
 *
 * To be called once, while the library is preloaded.
 */
void
pmhash_join_init(void)
{
	RegisterCustomScanMethods(&pmhash_join_scan_methods);
	previous_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = join_hook;
	pmhash_pages_init();
}
