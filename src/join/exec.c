/*-------------------------------------------------------------------------
 *
 * exec.c
 *	  The executor's side of a join: begin, next row, end.
 *
 * Rows come in the order of the outer plan.  For each one its values are visited,
 * one after the other (fetch.c has prefetched the cache lines of those that come
 * next); those that the snapshot sees and the conditions let through are matches.
 * Between two rows handed out, no more is held than a pin on one page of the
 * table, and for index-only joins one on the visibility map.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/sysattr.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "join/join.h"

/* How many outer rows ahead their tuples are prefetched. */
#define OUTER_AHEAD		8

/* ---- expressions ---- */

/* How references to the tuple of the plan are taken apart. */
typedef struct Columns
{
	List	   *ints;			/* of the plan: see PmhashJoinInts */
	bool		no_inner;		/* columns of the table are NULL */
	List	   *subplans;		/* those met, and what they have become */
	List	   *became;
} Columns;

/* A column of the plan's tuple as one of the two slots. */
static Node *
split_column(const Var *column, const Columns *columns)
{
	int			nouter = list_nth_int(columns->ints, PMHASH_JOIN_NOUTER);
	Var		   *var = copyObject((Var *) column);

	if (column->varattno <= nouter)
	{
		var->varno = OUTER_VAR;
		return (Node *) var;
	}
	if (columns->no_inner)
		return (Node *) makeNullConst(var->vartype, var->vartypmod, var->varcollid);
	var->varno = INNER_VAR;
	var->varattno = list_nth_int(columns->ints,
								 PMHASH_JOIN_INNER + column->varattno - nouter - 1);
	return (Node *) var;
}

static Node *
split_columns(Node *node, void *context)
{
	Columns    *columns = context;
	Node	   *result;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == INDEX_VAR)
		return split_column((Var *) node, columns);
	result = expression_tree_mutator(node, split_columns, columns);
	if (IsA(node, SubPlan))
	{
		columns->subplans = lappend(columns->subplans, node);
		columns->became = lappend(columns->became, result);
	}
	return result;
}

/*
 * EXPLAIN shows the arguments of sub-plans as they stand in the plan: our slots mean
 * nothing to it.  (The executor has made of them what it needs by now.)
 */
static void
show_subplans(PmhashJoinState *js, const Columns *columns)
{
	ListCell   *lc;
	ListCell   *from;
	ListCell   *to;

	foreach(lc, js->css.ss.ps.subPlan)
	{
		SubPlanState *state = lfirst_node(SubPlanState, lc);

		forboth(from, columns->subplans, to, columns->became)
		{
			if (state->subplan == lfirst(to))
				state->subplan = lfirst(from);
		}
	}
}

static ExprState *
make_qual(PmhashJoinState *js, PmhashJoinExprs which, Columns *columns)
{
	CustomScan *scan = (CustomScan *) js->css.ss.ps.plan;
	Node	   *quals = list_nth(scan->custom_exprs, which);

	return ExecInitQual((List *) split_columns(quals, columns), &js->css.ss.ps);
}

static ProjectionInfo *
make_projection(PmhashJoinState *js, Columns *columns)
{
	PlanState  *ps = &js->css.ss.ps;

	return ExecBuildProjectionInfo((List *)
								   split_columns((Node *) ps->plan->targetlist, columns),
								   ps->ps_ExprContext, ps->ps_ResultTupleSlot, ps, NULL);
}

/* The lookups' keys, and their types. */
static void
make_keys(PmhashJoinState *js, Columns *columns, List *oids)
{
	CustomScan *scan = (CustomScan *) js->css.ss.ps.plan;
	ListCell   *lc;

	foreach(lc, (List *) list_nth(scan->custom_exprs, PMHASH_JOIN_KEYS))
	{
		Node	   *key = split_columns(lfirst(lc), columns);

		js->key[js->nkeys] = ExecInitExpr((Expr *) key, &js->css.ss.ps);
		js->key_type[js->nkeys] = list_nth_oid(oids, PMHASH_JOIN_TYPES + js->nkeys);
		js->nkeys++;
	}
}

/* All expressions, on the two slots; what core has made of them is not used. */
static void
make_expressions(PmhashJoinState *js, List *ints, List *oids)
{
	PlanState  *ps = &js->css.ss.ps;
	Columns		columns = {ints, false, NIL, NIL};

	ps->ps_ProjInfo = NULL;
	ps->subPlan = NIL;
	js->key_context = CreateExprContext(ps->state);
	make_keys(js, &columns, oids);
	js->condition = make_qual(js, PMHASH_JOIN_RECHECK, &columns);
	js->filter = make_qual(js, PMHASH_JOIN_FILTER, &columns);
	js->other = make_qual(js, PMHASH_JOIN_OTHER, &columns);
	js->project = make_projection(js, &columns);
	if (js->type == JOIN_LEFT || js->type == JOIN_ANTI)
	{
		columns.no_inner = true;
		js->null_other = make_qual(js, PMHASH_JOIN_OTHER, &columns);
		js->null_project = make_projection(js, &columns);
	}
	show_subplans(js, &columns);
}

/* ---- begin ---- */

/* Open the table and, if the plan is going to run, the index. */
static void
open_relations(PmhashJoinState *js, EState *estate, List *oids, int eflags)
{
	CustomScan *scan = (CustomScan *) js->css.ss.ps.plan;
	TargetEntry *last = llast_node(TargetEntry, scan->custom_scan_tlist);
	Index		inner = castNode(Var, last->expr)->varno;

	/* of a materialized view it sees to it that there is something to be read */
	js->heap = ExecOpenScanRelation(estate, inner, eflags);
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	js->index = index_open(list_nth_oid(oids, PMHASH_JOIN_INDEX),
						   exec_rt_fetch(inner, estate)->rellockmode);
	pmhash_fetch_begin(&js->fetch, js->context, js->heap, js->index,
					   estate->es_snapshot);
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	PmhashJoinState *js = (PmhashJoinState *) node;
	CustomScan *scan = (CustomScan *) node->ss.ps.plan;
	List	   *oids = linitial(scan->custom_private);
	List	   *ints = lsecond(scan->custom_private);

	js->context = AllocSetContextCreate(estate->es_query_cxt, "pmhash join",
										ALLOCSET_DEFAULT_SIZES);
	pmhash_join_make_batch(js);
	js->type = list_nth_int(ints, PMHASH_JOIN_TYPE);
	js->single = list_nth_int(ints, PMHASH_JOIN_SINGLE) != 0;
	js->index_only = list_nth_int(ints, PMHASH_JOIN_INDEX_ONLY) != 0;
	js->want = 1;
	js->group_size = PMHASH_JOIN_GROUP;
	js->note_dead = !TransactionStartedDuringRecovery();

	js->outer = ExecInitNode(linitial(scan->custom_plans), estate,
							 eflags & ~(EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK));
	node->custom_ps = list_make1(js->outer);
	open_relations(js, estate, oids, eflags);
	js->outer_slot = ExecInitExtraTupleSlot(estate, ExecGetResultType(js->outer),
											&TTSOpsMinimalTuple);
	js->inner_slot = ExecInitExtraTupleSlot(estate, RelationGetDescr(js->heap),
											js->index_only ? &TTSOpsVirtual :
											&TTSOpsHeapTuple);
	make_expressions(js, ints, oids);
}

/* ---- one outer row ---- */

/* Put the current outer row into its slot. */
static void
store_outer(PmhashJoinState *js)
{
	if (js->outer_stored)
		return;
	ExecStoreMinimalTuple(js->row[js->current].tuple, js->outer_slot, false);
	js->css.ss.ps.ps_ExprContext->ecxt_outertuple = js->outer_slot;
	js->outer_stored = true;
}

/* Tuples of the batch were written long ago: prefetch one that comes soon. */
static inline void
prefetch_outer(const PmhashJoinState *js)
{
	int			at = js->current + OUTER_AHEAD;

	if (at < js->nrows)
		__builtin_prefetch(js->row[at].tuple);
}

/* Go on to the next outer row.  False if there is none. */
static bool
next_outer(PmhashJoinState *js)
{
	do
	{
		js->current++;
		if (js->current >= js->nrows)
		{
			if (!pmhash_join_fill(js))
				return false;
			js->current = 0;
		}
		if (js->current >= js->looked)
			pmhash_join_look_up(js);
		js->left = js->row[js->current].matches;
	} while (js->left == 0 && !js->streaming &&
			 (js->type == JOIN_INNER || js->type == JOIN_SEMI));
	prefetch_outer(js);
	js->joining = true;
	js->matched = false;
	js->outer_stored = false;
	return true;
}

/* The next value of the current row.  False if there is none. */
static bool
next_value(PmhashJoinState *js, uint64 *value)
{
	while (js->left == 0)
	{
		if (!js->streaming)
			return false;
		js->streaming = pmhash_join_next_values(js);
	}
	if (!js->index_only)
		pmhash_fetch_ahead(&js->fetch, &js->pipe);
	*value = js->pipe.value[js->pipe.next++];
	js->left--;
	return true;
}

/* No more values of this row are wanted. */
static void
skip_values(PmhashJoinState *js)
{
	js->pipe.next += js->left;
	js->left = 0;
	js->streaming = false;
}

/* ---- one row of the table ---- */

/*
 * Is the row known to be dead to all?  Then it is as if it had been visited
 * (cluster/dead_list.c), as in index scans.
 */
static inline bool
is_known_dead(PmhashJoinState *js, uint64 value)
{
	return unlikely(js->any_known_dead) && pmhash_known_dead(js->file, value);
}

/* Find the row; note its entry if it is dead to all, as index scans do. */
static bool
fetch_row(PmhashJoinState *js, uint64 value)
{
	PmhEntry	entry;

	if (is_known_dead(js, value))
		return false;
	if (pmhash_fetch_row(&js->fetch, value))
		return true;
	if (js->fetch.dead && js->note_dead)
	{
		entry.hash = js->row[js->current].hash;
		entry.value = value;
		pmhash_note_dead(&js->dead, js->context, js->index, js->file, js->epoch, entry,
						 js->fetch.lsn);
	}
	return false;
}

/*
 * Index-only: does the value lead to a row that the snapshot sees?  The reasons are
 * those of visibility.c, pmhash_scan_may_return: the page was all-visible before the
 * TID can have been given to another row; else the row itself is looked at.
 */
static bool
is_visible(PmhashJoinState *js, uint64 value)
{
	BlockNumber block = pmhash_value_to_block(value);

	PMH_STOP_POINT("join_before_visibility");
	if (VM_ALL_VISIBLE(js->heap, block, &js->visibility_map) &&
		pmhash_removal_epoch(js->file) == js->epoch &&
		(likely(!IsolationIsSerializable()) ||
		 pmhash_lock_all_visible(js->heap, block, js->fetch.snapshot,
								 &js->visibility_map)))
	{
		pgstat_count_index_tuples(js->index, 1);
		return true;
	}
	js->heap_fetches++;
	return fetch_row(js, value);
}

/* Make the row of an index-only join: its key, and nothing else. */
static void
store_key(PmhashJoinState *js)
{
	TupleTableSlot *slot = js->inner_slot;
	ExprContext *context = js->css.ss.ps.ps_ExprContext;
	int			column = js->index->rd_index->indkey.values[0] - 1;
	MemoryContext old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);

	ExecClearTuple(slot);
	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
	slot->tts_values[column] = pmhash_keys_unhash(js->keys,
												  js->row[js->current].hash);
	slot->tts_isnull[column] = false;
	ExecStoreVirtualTuple(slot);
	MemoryContextSwitchTo(old);
}

/* Put the row of the table that a value leads to into its slot, if we see it. */
static bool
store_inner(PmhashJoinState *js, uint64 value)
{
	if (js->index_only)
	{
		if (!is_visible(js, value))
			return false;
		store_key(js);
	}
	else
	{
		ExecClearTuple(js->inner_slot);
		if (!fetch_row(js, value))
			return false;
		ExecStoreHeapTuple(&js->fetch.tuple, js->inner_slot, false);
	}
	js->css.ss.ps.ps_ExprContext->ecxt_innertuple = js->inner_slot;
	return true;
}

/*
 * Is it a match?  (Two keys that differ may have the same hash; that is not counted
 * as a row removed.)
 */
static bool
conditions_hold(PmhashJoinState *js)
{
	ExprContext *context = js->css.ss.ps.ps_ExprContext;

	if (js->condition != NULL && !ExecQual(js->condition, context))
		return false;
	if (js->filter == NULL || ExecQual(js->filter, context))
		return true;
	InstrCountFiltered1(js, 1);
	return false;
}

/* The row that comes of it, or NULL if WHERE does not let it through. */
static TupleTableSlot *
result(PmhashJoinState *js, ExprState *where, ProjectionInfo *projection)
{
	if (where == NULL || ExecQual(where, js->css.ss.ps.ps_ExprContext))
		return ExecProject(projection);
	InstrCountFiltered2(js, 1);
	return NULL;
}

/* The next result of the current outer row, or NULL if there is none. */
static TupleTableSlot *
next_result(PmhashJoinState *js)
{
	TupleTableSlot *slot;
	uint64		value;

	while (next_value(js, &value))
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(js->css.ss.ps.ps_ExprContext);
		if (!store_inner(js, value))
			continue;
		store_outer(js);
		if (!conditions_hold(js))
			continue;
		js->matched = true;
		if (js->single)
			skip_values(js);
		if (js->type == JOIN_ANTI)
			break;
		slot = result(js, js->other, js->project);
		if (slot != NULL)
			return slot;
	}
	js->joining = false;
	if (js->matched || (js->type != JOIN_LEFT && js->type != JOIN_ANTI))
		return NULL;
	store_outer(js);
	return result(js, js->null_other, js->null_project);
}

/* ---- methods ---- */

static TupleTableSlot *
next(CustomScanState *node)
{
	PmhashJoinState *js = (PmhashJoinState *) node;

	ResetExprContext(node->ss.ps.ps_ExprContext);
	while (js->joining || next_outer(js))
	{
		TupleTableSlot *slot = next_result(js);

		if (slot != NULL)
			return slot;
		/* a row that WHERE has not let through, perhaps after others like it */
		ResetExprContext(node->ss.ps.ps_ExprContext);
		CHECK_FOR_INTERRUPTS();
	}
	ExecClearTuple(js->inner_slot);
	pmhash_fetch_release(&js->fetch);
	return NULL;
}

/* Nothing is pinned, or refers to a batch, any more. */
static void
let_go(PmhashJoinState *js)
{
	ExecClearTuple(js->css.ss.ps.ps_ResultTupleSlot);
	ExecClearTuple(js->inner_slot);
	ExecClearTuple(js->outer_slot);
	pmhash_fetch_release(&js->fetch);
	if (BufferIsValid(js->visibility_map))
		ReleaseBuffer(js->visibility_map);
	js->visibility_map = InvalidBuffer;
}

/*
 * Begin again.  A scan that was read to its end will be again; if
 * not, the first batch is small again.
 */
static void
rescan(CustomScanState *node)
{
	PmhashJoinState *js = (PmhashJoinState *) node;

	let_go(js);
	if (!js->outer_done)
		js->want = 1;
	js->outer_done = false;
	js->dead.enough = false;
	pmhash_join_reset_batch(js);
	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(js->outer, node->ss.ps.chgParam);
	if (js->outer->chgParam == NULL)
		ExecReScan(js->outer);
}

static void
end(CustomScanState *node)
{
	PmhashJoinState *js = (PmhashJoinState *) node;

	let_go(js);
	pmhash_hand_over_dead(&js->dead, js->index, js->file);
	ExecEndNode(js->outer);
	if (js->index != NULL)
		index_close(js->index, NoLock);
	MemoryContextDelete(js->context);
}

static const CustomExecMethods exec_methods = {
	.CustomName = PMHASH_JOIN_NAME,
	.BeginCustomScan = begin,
	.ExecCustomScan = next,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = pmhash_join_explain,
};

static Node *
create_state(CustomScan *scan)
{
	PmhashJoinState *js = (PmhashJoinState *) newNode(sizeof(PmhashJoinState),
													  T_CustomScanState);

	js->css.methods = &exec_methods;
	return (Node *) js;
}

const CustomScanMethods pmhash_join_scan_methods = {
	PMHASH_JOIN_NAME,
	create_state
};
