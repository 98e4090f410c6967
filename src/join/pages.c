/*-------------------------------------------------------------------------
 *
 * pages.c
 *	  The executor's side of a page scan: all rows of one key, page by page.
 *
 * The values of the key come in batches by a cursor, each in heap order.  Those that
 * are on one page are looked at together, under one lock (fetch.c); then their
 * rows are handed out, with the page pinned, as a sequential scan does.
 *
 * The rules are those of scans and joins: src/README.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/xact.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "pgstat.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

#include "am/am.h"
#include "am/fetch.h"
#include "am/keys.h"
#include "am/scan.h"
#include "join/join.h"

/*
 * Which scans are done page by page, and what they cost.
 *
 * A plain index scan hands out one TID after the other, and the heap's access method
 * locks the page of each.  Where a key is expected to have many rows we offer to
 * do the scan ourselves: all rows of a page under one lock (pages.c).
 *
 * It is offered beside each index scan of ours that is still a candidate, for that
 * scan's price less what is saved on each row, and for its conditions.  So where the
 * planner takes something else for better, as a bitmap scan of what is not cached, it
 * stays so.  It begins a little later; so does the price, by which LIMIT decides.
 *
 * Not offered where EvalPlanQual could come (plan.c), for scans that depend on a row
 * of another relation, for lists of keys, in recovery (as joins).
 */

#define PMHASH_PAGES_NAME	"pmhash page scan"

/* custom_exprs: two lists */
typedef enum PmhashPagesExprs
{
	PMHASH_PAGES_KEYS,			/* per index column: what is looked up */
	PMHASH_PAGES_RECHECK,		/* what the keys were made from: the conditions */
	PMHASH_PAGES_NEXPRS
} PmhashPagesExprs;

/* custom_private: a list of OIDs */
typedef enum PmhashPagesOids
{
	PMHASH_PAGES_INDEX,			/* the index */
	PMHASH_PAGES_TYPES			/* from here on: the type of each key */
} PmhashPagesOids;

static const CustomScanMethods pmhash_pages_scan_methods;

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

/* Values read by the cursor at first: twice as many each time. */
#define FIRST_WANT		32

typedef struct PmhashPagesState
{
	CustomScanState css;		/* first */
	int			nkeys;
	Oid			key_type[INDEX_MAX_KEYS];
	ExprState  *key[INDEX_MAX_KEYS];
	ExprState  *recheck;		/* NULL: equal hashes are equal keys */

	Relation	index;			/* NULL if there is only EXPLAIN */
	MemoryContext context;		/* of all that follows */
	PmhashFile *file;			/* NULL until the first key is there */
	PmhashKeys *keys;
	MemoryContextCallback cleanup;

	/* the key being looked up */
	bool		begun;			/* since the last rescan */
	bool		streaming;		/* the cursor may have more */
	PmhEntry	entry;			/* its hash; the value of a dead row */
	PmhCursor	cursor;
	size_t		want;
	uint64		epoch;			/* removal epoch before the values were read */

	/* its rows */
	PmhashFetch fetch;
	PmhashPipe	pipe;			/* the cursor's batch */
	PmhashPageRows rows;		/* of the page that is pinned */
	uint64		visited;		/* values, since the last rescan */

	PmhashScanDead dead;		/* entries whose rows are dead to all */
	bool		note_dead;
} PmhashPagesState;

/* ---- begin ---- */

/* What the engine has malloc'd goes with our memory, also after an error. */
static void
free_cursor(void *arg)
{
	pmh_cursor_free(&((PmhashPagesState *) arg)->cursor);
}

#if PG_VERSION_NUM < 160000
/* Later versions know the kind of slot before (slotOps). */
static void
make_slot(ScanState *ss)
{
	ExecInitScanTupleSlot(ss->ps.state, ss, RelationGetDescr(ss->ss_currentRelation),
						  &TTSOpsHeapTuple);
	ss->ps.subPlan = NIL;
	ExecAssignScanProjectionInfo(ss);
	ss->ps.qual = ExecInitQual(ss->ps.plan->qual, &ss->ps);
}
#endif

static void
make_expressions(PmhashPagesState *ps, const CustomScan *plan)
{
	List	   *oids = linitial(plan->custom_private);
	ListCell   *lc;

	foreach(lc, (List *) list_nth(plan->custom_exprs, PMHASH_PAGES_KEYS))
	{
		ps->key[ps->nkeys] = ExecInitExpr(lfirst(lc), &ps->css.ss.ps);
		ps->key_type[ps->nkeys] = list_nth_oid(oids, PMHASH_PAGES_TYPES + ps->nkeys);
		ps->nkeys++;
	}
	ps->recheck = ExecInitQual(list_nth(plan->custom_exprs, PMHASH_PAGES_RECHECK),
							   &ps->css.ss.ps);
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	PmhashPagesState *ps = (PmhashPagesState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	Oid			index = list_nth_oid(linitial(plan->custom_private), PMHASH_PAGES_INDEX);

#if PG_VERSION_NUM < 160000
	make_slot(&node->ss);
#endif
	make_expressions(ps, plan);
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	ps->context = AllocSetContextCreate(estate->es_query_cxt, "pmhash page scan",
										ALLOCSET_SMALL_SIZES);
	ps->cleanup.func = free_cursor;
	ps->cleanup.arg = ps;
	MemoryContextRegisterResetCallback(ps->context, &ps->cleanup);
	ps->index = index_open(index,
						   exec_rt_fetch(plan->scan.scanrelid, estate)->rellockmode);
	ps->note_dead = !TransactionStartedDuringRecovery();
}

/* Open the file, when the first key is there.  Errors: as pmhash_fetch_open_file. */
static void
open_file(PmhashPagesState *ps)
{
	Snapshot	snapshot = ps->css.ss.ps.state->es_snapshot;
	MemoryContext old;

	ps->file = pmhash_fetch_open_file(ps->index, snapshot);
	old = MemoryContextSwitchTo(ps->context);
	ps->keys = pmhash_keys_make(ps->index, ps->file->seed);
	MemoryContextSwitchTo(old);
	if (ps->keys->exact)
		ps->recheck = NULL;
	pmhash_fetch_begin(&ps->fetch, ps->context, ps->css.ss.ss_currentRelation,
					   ps->index, snapshot);
}

/* ---- the key ---- */

/* Compute the hash of the key.  False if some part of it is NULL. */
static bool
hash_key(PmhashPagesState *ps)
{
	ExprContext *context = ps->css.ss.ps.ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
	Datum		value[INDEX_MAX_KEYS];
	bool		isnull = false;

	for (int i = 0; i < ps->nkeys && !isnull; i++)
		value[i] = ExecEvalExpr(ps->key[i], context, &isnull);
	if (!isnull)
	{
		if (ps->keys == NULL)
			open_file(ps);
		ps->entry.hash = pmhash_keys_hash_args(ps->keys, value, ps->key_type);
	}
	MemoryContextSwitchTo(old);
	return !isnull;
}

/* What a scan does in front of a look-up (am/scan.c); the cursor stands at its begin. */
static void
look_up(PmhashPagesState *ps)
{
	ps->begun = true;
	if (!hash_key(ps))
		return;
	pmhash_lock_keys(ps->index, ps->file, ps->keys, &ps->entry.hash, 1,
					 ps->fetch.snapshot);
	pmh_cursor_open(ps->file->table, &ps->cursor, ps->entry.hash);
	ps->cursor.memory = pmhash_cursor_memory();
	pgstat_count_index_scan(ps->index);
	pmhash_count(ps->file, PMHASH_LOOKUPS, 1);
	ps->want = FIRST_WANT;
	ps->streaming = true;
}

/* The key's next values, of which there may be none.  False at their end. */
static bool
next_values(PmhashPagesState *ps)
{
	PmhResult	result;

	CHECK_FOR_INTERRUPTS();
	PMH_STOP_POINT("pages_between_batches");
	ps->epoch = pmhash_removal_epoch(ps->file);
	pmhash_leave_out_dead(&ps->cursor, ps->file, ps->note_dead);
	result = pmh_cursor_next(ps->file->table, &ps->cursor, ps->want);
	if (result != PMH_OK && result != PMH_DONE)
		pmhash_engine_error(ps->index, ps->file, result);
	if (result == PMH_DONE)
		return false;
	ps->want = Min(ps->want * 2, PMHASH_CURSOR_VALUES);
	pmhash_pipe_begin(&ps->pipe, ps->cursor.batch.value, ps->cursor.batch.n, 0, 0);
	return true;
}

/* ---- rows ---- */

/* Entries that led to rows dead to all: as index scans note them. */
static void
note_dead_rows(PmhashPagesState *ps)
{
	for (int i = 0; i < ps->rows.ndead && ps->note_dead; i++)
	{
		ps->entry.value = ps->rows.dead[i];
		pmhash_note_dead(&ps->dead, ps->context, ps->index, ps->file, ps->epoch,
						 ps->entry, ps->rows.lsn);
	}
}

/*
 * The rows of the next page, of which the snapshot may see none.  False at the end.
 * How far ahead pages are prefetched grows with what has been visited.
 */
static bool
next_page(PmhashPagesState *ps)
{
	size_t		from;

	if (!ps->begun)
		look_up(ps);
	while (ps->pipe.next >= ps->pipe.n)
	{
		ps->streaming = ps->streaming && next_values(ps);
		if (!ps->streaming)
			return false;
	}
	CHECK_FOR_INTERRUPTS();
	from = ps->pipe.next;
	ps->pipe.distance = Min(ps->visited, PMHASH_PAGE_DISTANCE);
	pmhash_fetch_page_rows(&ps->fetch, &ps->pipe, &ps->rows);
	ps->visited += ps->pipe.next - from;
	if (unlikely(ps->rows.ndead > 0))
		note_dead_rows(ps);
	return true;
}

/* The next row that the snapshot sees, in the scan's slot, or NULL. */
static inline TupleTableSlot *
next_row(PmhashPagesState *ps)
{
	TupleTableSlot *slot = ps->css.ss.ss_ScanTupleSlot;

	while (ps->rows.next >= ps->rows.n)
	{
		ExecClearTuple(slot);	/* its page may go */
		if (!next_page(ps))
		{
			pmhash_fetch_release(&ps->fetch);
			return NULL;
		}
	}
	pmhash_fetch_found(&ps->fetch, ps->rows.offset[ps->rows.next++]);
	return ExecStoreHeapTuple(&ps->fetch.tuple, slot, false);
}

/* ---- methods ---- */

static TupleTableSlot *
next(CustomScanState *node)
{
	PmhashPagesState *ps = (PmhashPagesState *) node;
	ExprContext *context = node->ss.ps.ps_ExprContext;
	ExprState  *qual = node->ss.ps.qual;
	ProjectionInfo *projection = node->ss.ps.ps_ProjInfo;

	for (;;)
	{
		TupleTableSlot *slot;

		ResetExprContext(context);
		slot = next_row(ps);
		if (slot == NULL)
			return projection != NULL ? ExecClearTuple(projection->pi_state.resultslot) :
				node->ss.ss_ScanTupleSlot;
		context->ecxt_scantuple = slot;
		/* (Two keys that differ may have the same hash: not counted as removed.) */
		if (ps->recheck != NULL && !ExecQual(ps->recheck, context))
			continue;
		if (qual == NULL || ExecQual(qual, context))
			return projection != NULL ? ExecProject(projection) : slot;
		InstrCountFiltered1(node, 1);
	}
}

/* Nothing is pinned any more. */
static void
let_go(PmhashPagesState *ps)
{
	if (ps->css.ss.ps.ps_ResultTupleSlot != NULL)
		ExecClearTuple(ps->css.ss.ps.ps_ResultTupleSlot);
	ExecClearTuple(ps->css.ss.ss_ScanTupleSlot);
	pmhash_fetch_release(&ps->fetch);
}

static void
rescan(CustomScanState *node)
{
	PmhashPagesState *ps = (PmhashPagesState *) node;

	let_go(ps);
	ps->begun = ps->streaming = false;
	ps->pipe.next = ps->pipe.n = 0;
	ps->rows.next = ps->rows.n = 0;
	ps->visited = 0;
	ps->dead.enough = false;
	ExecScanReScan(&node->ss);
}

static void
end(CustomScanState *node)
{
	PmhashPagesState *ps = (PmhashPagesState *) node;

	let_go(ps);
	if (ps->index == NULL)
		return;
	if (ps->file != NULL)
		pmhash_hand_over_dead(&ps->dead, ps->index, ps->file);
	index_close(ps->index, NoLock);
	MemoryContextDelete(ps->context);
}

/* Index and conditions, as index scans show them; core shows the filter. */
static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	PmhashPagesState *ps = (PmhashPagesState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	Oid			index = list_nth_oid(linitial(plan->custom_private), PMHASH_PAGES_INDEX);
	List	   *conditions = list_nth(plan->custom_exprs, PMHASH_PAGES_RECHECK);
	List	   *context = set_deparse_context_plan(es->deparse_cxt, &plan->scan.plan,
												   ancestors);
	bool		prefix = es->verbose || list_length(es->rtable) > 1;

	ExplainPropertyText("Index Name", get_rel_name(index), es);
	ExplainPropertyText("Index Cond",
						deparse_expression((Node *) make_ands_explicit(conditions),
										   context, prefix, false), es);
	if (!es->analyze)
		return;
	ExplainPropertyUInteger("Heap Blocks", NULL, ps->fetch.blocks, es);
	ExplainPropertyUInteger("Heap Blocks by Hint", NULL, ps->fetch.hinted, es);
}

static const CustomExecMethods exec_methods = {
	.CustomName = PMHASH_PAGES_NAME,
	.BeginCustomScan = begin,
	.ExecCustomScan = next,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = explain,
};

static Node *
create_state(CustomScan *scan)
{
	PmhashPagesState *ps = (PmhashPagesState *) newNode(sizeof(PmhashPagesState),
														T_CustomScanState);

	ps->css.methods = &exec_methods;
#if PG_VERSION_NUM >= 160000
	ps->css.slotOps = &TTSOpsHeapTuple;
#endif
	return (Node *) ps;
}

static const CustomScanMethods pmhash_pages_scan_methods = {
	PMHASH_PAGES_NAME,
	create_state
};
