/*-------------------------------------------------------------------------
 *
 * exec.c
 *	  The executor's side of a join.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

#include "join/join.h"

/*
 * Looking up the keys of a join in groups.
 *
 * A group leads to at most PMHASH_JOIN_ROOM rows of the table, and none of its
 * keys has a long list: a key that would have it otherwise is the first of the
 * next group, or, if it was the first one already, a group by itself, which is
 * read by cursor.  So no call of the engine is long, and memory is bounded.
 *
 * What a scan does in front of each look-up (am/scan.c) is done here for each
 * group: serializable transactions lock the pseudo-pages of the keys, and make sure
 * that the index was valid after that; the removal epoch is noted for index-only joins.
 *
 * The outer rows are kept until their keys have been looked up.  The first batch is a
 * single row, each later one twice as large, so that LIMIT and EXISTS read hardly more of
 * the outer plan than a nested loop does.  A batch ends when it, with the join's other
 * arrays, takes work_mem.
 *
 * A page scan, of all rows of one key, is a join without an outer plan: its only outer
 * row is none, and its key is read by cursor.
 */

/* How many outer rows ahead their tuples are prefetched. */
#define OUTER_AHEAD		8

/* Values read by a cursor at first: twice as many each time. */
#define FIRST_WANT		32

/* What the engine has malloc'd goes with our memory, also after an error. */
static void
free_cursor(void *arg)
{
	pmh_cursor_free(&((PmhashJoinState *) arg)->cursor);
}

/*
 * Get ready to look keys up; what is dead in the file is seen to.  ERROR if the index has
 * become invalid since the plan was made, as there is no table to go to instead: its
 * SQLSTATE says to try again, which makes another plan.
 */
static void
open_index(PmhashJoinState *js)
{
	Snapshot	snapshot = js->css.ss.ps.state->es_snapshot;
	MemoryContext old;

	Assert(js->index != NULL && js->file == NULL);
	Assert(CheckRelationLockedByMe(js->index, AccessShareLock, true));
	if (snapshot->snapshot_type != SNAPSHOT_MVCC)
		elog(ERROR, "rows of a pmhash index are fetched by an MVCC snapshot only");
	js->file = pmhash_open_for_reading(js->index, snapshot);
	pmhash_dead_entries_settle(js->index, js->file);
	old = MemoryContextSwitchTo(js->context);
	js->cleanup.func = free_cursor;
	js->cleanup.arg = js;
	MemoryContextRegisterResetCallback(js->context, &js->cleanup);
	if (js->outer != NULL)
		js->value = palloc(PMHASH_JOIN_ROOM * sizeof(uint64));
	js->keys = pmhash_keys_make(js->index, js->file->seed);
	Assert(js->keys->ncolumns == js->nkeys);
	Assert(!js->index_only || js->keys->can_return);
	MemoryContextSwitchTo(old);
	if (js->keys->exact)
		js->condition = NULL;
}

/* How many rows row[] would have room for if it had to grow. */
static int
next_capacity(const PmhashJoinState *js)
{
	return Min(Max(js->capacity * 2, 16), PMHASH_JOIN_MAX_ROWS);
}

/* Does a row without a match count? */
static bool
keeps_unmatched(const PmhashJoinState *js)
{
	return js->type == JOIN_LEFT || js->type == JOIN_ANTI;
}

/*
 * Add an outer row to the batch, with the hash of its key; slot NULL: that of a page scan.
 * A row of whose key a part is NULL, or equal to no value of the column, matches nothing.
 */
static void
add_row(PmhashJoinState *js, TupleTableSlot *slot)
{
	ExprContext *context = js->key_context;
	MemoryContext old;
	uint64		words[INDEX_MAX_KEYS];
	bool		is_null = false;
	uint64		hash = 0;
	PmhashJoinRow *row;

	Assert((slot == NULL) == (js->outer == NULL) && js->nkeys > 0);
	ResetExprContext(context);
	context->ecxt_outertuple = slot;
	old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
	for (int i = 0; i < js->nkeys && !is_null; i++)
	{
		Datum		value = ExecEvalExpr(js->key[i], context, &is_null);

		if (unlikely(js->keys == NULL) && !is_null)
			open_index(js);
		is_null = is_null ||
			pmhash_keys_words(js->keys, i, value, js->key_type[i], &words[i]) == 0;
	}
	if (!is_null)
		hash = pmhash_keys_hash_words(js->keys, words);
	MemoryContextSwitchTo(old);
	if (is_null && !keeps_unmatched(js))
		return;
	if (js->nrows == js->capacity)
	{
		js->capacity = next_capacity(js);
		if (js->row == NULL)
			js->row = MemoryContextAlloc(js->context, js->capacity * sizeof(PmhashJoinRow));
		else
			js->row = repalloc(js->row, js->capacity * sizeof(PmhashJoinRow));
	}
	Assert(js->nrows < js->capacity);
	row = &js->row[js->nrows++];
	if (slot != NULL)
	{
		MemoryContextSwitchTo(js->batch_context);
		row->tuple = ExecCopySlotMinimalTuple(slot);
		MemoryContextSwitchTo(old);
	}
	row->hash = hash;
	row->matches = 0;
	row->is_null = is_null;
}

/* What is taken, with so many places in row[]. */
static size_t
memory_of_batch(const PmhashJoinState *js, int capacity)
{
	return MemoryContextMemAllocated(js->batch_context, false) +
		capacity * sizeof(PmhashJoinRow) + PMHASH_JOIN_ROOM * sizeof(uint64) +
		js->fetch.hints.memory;
}

/* Forget the batch. */
static void
reset_batch(PmhashJoinState *js)
{
	MemoryContextReset(js->batch_context);
	js->nrows = js->looked = js->current = 0;
	js->joining = js->streaming = false;
	js->left = 0;
	js->rows.n = js->rows.next = 0;
}

/* For EXPLAIN: what is taken now, a cursor on a key with very many rows included. */
static void
note_memory(PmhashJoinState *js)
{
	size_t		memory = memory_of_batch(js, js->capacity) +
		pmh_cursor_bytes(&js->cursor);

	js->most_memory = Max(js->most_memory, memory);
}

/*
 * Read the next batch of outer rows.  False if there are none left.
 *
 * The first row the batch may have in any case: row[] is kept from batch to batch, and
 * work_mem may be less by now than when it was made.
 */
static bool
fill(PmhashJoinState *js)
{
	Assert(js->want >= 1 && js->want <= PMHASH_JOIN_MAX_ROWS);
	reset_batch(js);
	/* the outer plan may take its time */
	ExecClearTuple(js->inner_slot);
	pmhash_fetch_release(&js->fetch);
	if (js->outer == NULL && !js->outer_done)
	{
		add_row(js, NULL);
		js->outer_done = true;
	}
	while (!js->outer_done && js->nrows < js->want)
	{
		int			capacity = js->nrows < js->capacity ? js->capacity : next_capacity(js);
		TupleTableSlot *slot;

		if (js->nrows > 0 && memory_of_batch(js, capacity) + js->largest_block >=
			(size_t) work_mem * 1024)
			break;
		slot = ExecProcNode(js->outer);
		CHECK_FOR_INTERRUPTS();
		if (TupIsNull(slot))
			js->outer_done = true;
		else
			add_row(js, slot);
	}
	if (js->nrows == 0)
		return false;
	js->want = Min(js->want * 2, PMHASH_JOIN_MAX_ROWS);
	js->nbatches++;
	note_memory(js);
	return true;
}

/* PmhFound for a group: note the value, unless the key is not for this group. */
static void
collect_value(void *arg, size_t key, uint64_t value)
{
	PmhashJoinState *js = arg;
	PmhashJoinRow *row;

	Assert((int) key < js->nhashes);
	if ((int) key >= js->stopped)
		return;
	row = &js->row[js->row_of[key]];
	if (likely(value != PMH_VALUE_MANY && js->nvalues < PMHASH_JOIN_ROOM))
	{
		js->value[js->nvalues++] = value;
		row->matches++;
		return;
	}
	Assert(js->nvalues >= row->matches);
	js->stopped = (int) key;
	js->nvalues -= row->matches;
	row->matches = 0;
}

/* Visit these values next. */
static void
set_pipe(PmhashJoinState *js, const uint64 *value, size_t n)
{
	pmhash_pipe_begin(&js->pipe, value, n, 0, PMHASH_FETCH_DISTANCE);
	/* Without values there may be no file yet: no row of the batch had a key. */
	js->fetch.dead_in = n > 0 && js->note_dead && pmhash_any_known_dead(js->file) ?
		js->file : NULL;
}

/*
 * Look up the keys of the next rows of the batch, of which there is one at least, as many
 * as make a group: advances js->looked, fills in their matches, and js->pipe.
 */
static void
look_up(PmhashJoinState *js)
{
	int			end = Min(js->nrows, js->looked + js->group_size);
	PmhResult	result = PMH_OK;

	CHECK_FOR_INTERRUPTS();
	Assert(js->looked < js->nrows && !js->streaming);
	Assert(js->group_size >= 1 && js->group_size <= PMHASH_JOIN_GROUP);
	js->group = js->looked;
	js->nhashes = 0;
	for (int i = js->group; i < end; i++)
	{
		PmhashJoinRow *row = &js->row[i];

		row->matches = 0;
		if (row->is_null)
			continue;
		js->hash[js->nhashes] = row->hash;
		js->row_of[js->nhashes++] = i;
	}
	js->looked = end;
	js->nvalues = 0;
	set_pipe(js, js->value, 0);
	if (js->nhashes == 0)
		return;
	pmhash_lock_keys(js->index, js->file, js->keys, js->hash, js->nhashes,
					 js->fetch.snapshot);
	js->epoch = pmhash_removal_epoch(js->file);
	js->stopped = js->outer != NULL ? js->nhashes : 0;
	if (js->outer != NULL)
		result = pmh_lookup_group(js->file->table, js->hash, js->nhashes,
										collect_value, js);
	pmhash_check_result(js->index, js->file, result);
	if (js->stopped < js->nhashes)
	{
		/*
		 * The group ends in front of a key that did not fit, or consists of it.  The next
		 * one is not made larger than what has fitted.
		 */
		js->looked = js->row_of[js->stopped];
		js->group_size = Max(js->stopped, 1);
		js->nhashes = js->stopped;
		if (js->looked == js->group)
		{
			pmh_cursor_open(js->file->table, &js->cursor, js->hash[0]);
			js->streaming = true;
			js->want_values = FIRST_WANT;
			js->looked++;
			js->nhashes = 1;
		}
	}
	else
		js->group_size = Min(js->group_size * 2, PMHASH_JOIN_GROUP);
	set_pipe(js, js->value, js->nvalues);
	js->nprobes += js->nhashes;
	pmhash_count(js->outer != NULL ? PMHASH_GROUP_LOOKUPS : PMHASH_LOOKUPS, 1);
	if (js->outer != NULL)
		pmhash_count(PMHASH_GROUP_KEYS, js->nhashes);
	for (int i = 0; i < js->nhashes; i++)
		pgstat_count_index_scan(js->index);
	PMH_STOP_POINT("join_before_rows");
}

/*
 * The next values of a key that is read by cursor, into js->pipe; there may be none in
 * it.  False at the end.
 */
static bool
next_values(PmhashJoinState *js)
{
	PmhResult	result;

	Assert(js->streaming && js->left == 0);
	CHECK_FOR_INTERRUPTS();
	PMH_STOP_POINT("pages_between_batches");
	js->epoch = pmhash_removal_epoch(js->file);
	pmhash_leave_out_dead(&js->cursor, js->file, js->note_dead);
	result = pmh_cursor_next(js->file->table, &js->cursor, js->want_values);
	if (result != PMH_OK && result != PMH_DONE)
		pmhash_engine_error(js->index, js->file, result);
	note_memory(js);
	if (result == PMH_DONE)
		return false;
	js->want_values = Min(js->want_values * 2, PMHASH_CURSOR_VALUES);
	set_pipe(js, js->cursor.batch.value, js->cursor.batch.n);
	js->left = js->cursor.batch.n;
	return true;
}

/*
 * The executor's side of a join: begin, next row, end.
 *
 * Rows come in the order of the outer plan.  For each one its values are visited (fetch.c
 * has prefetched the cache lines of those that come next), those that are on one page
 * together, under one lock; those that the snapshot sees and the conditions let through
 * are matches.  Between two rows handed out, no more is held than a pin on one page of
 * the table, and for index-only joins one on the visibility map.
 */

/* ---- expressions ---- */

/* How references to the tuple of the plan are taken apart. */
typedef struct Columns
{
	List	   *ints;			/* of the plan: see PmhashJoinInts */
	bool		no_inner;		/* columns of the table are NULL */
	List	   *subplans;		/* those met, and what they have become */
	List	   *became;
} Columns;

/* Columns of the plan's tuple become those of the two slots. */
static Node *
split_columns(Node *node, void *context)
{
	Columns    *columns = context;
	Node	   *result;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == INDEX_VAR)
	{
		int			nouter = list_nth_int(columns->ints, PMHASH_JOIN_NOUTER);
		Var		   *var = copyObject((Var *) node);
		bool		is_outer = var->varattno <= nouter;

		if (!is_outer && columns->no_inner)
			return (Node *) makeNullConst(var->vartype, var->vartypmod, var->varcollid);
		var->varno = is_outer ? OUTER_VAR : INNER_VAR;
		if (!is_outer)
			var->varattno = list_nth_int(columns->ints,
										 PMHASH_JOIN_INNER + var->varattno - nouter - 1);
		return (Node *) var;
	}
	result = expression_tree_mutator(node, split_columns, columns);
	if (IsA(node, SubPlan))
	{
		columns->subplans = lappend(columns->subplans, node);
		columns->became = lappend(columns->became, result);
	}
	return result;
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

/* All expressions, on the two slots; what core has made of them is not used. */
static void
make_expressions(PmhashJoinState *js, List *ints, List *oids)
{
	PlanState  *ps = &js->css.ss.ps;
	CustomScan *scan = (CustomScan *) ps->plan;
	Columns		columns = {ints, false, NIL, NIL};
	ListCell   *lc;
	ListCell   *from;
	ListCell   *to;

	Assert(list_length(scan->custom_exprs) == PMHASH_JOIN_NEXPRS);
	ps->ps_ProjInfo = NULL;
	ps->subPlan = NIL;
	ps->ps_ExprContext->ecxt_scantuple = ps->ps_ExprContext->ecxt_innertuple =
		js->inner_slot;
	ps->ps_ExprContext->ecxt_outertuple = js->outer_slot;
	js->key_context = CreateExprContext(ps->state);
	foreach(lc, (List *) list_nth(scan->custom_exprs, PMHASH_JOIN_KEYS))
	{
		Node	   *key = split_columns(lfirst(lc), &columns);

		Assert(js->nkeys < INDEX_MAX_KEYS);
		js->key[js->nkeys] = ExecInitExpr((Expr *) key, ps);
		js->key_type[js->nkeys] = list_nth_oid(oids, PMHASH_JOIN_TYPES + js->nkeys);
		js->nkeys++;
	}
	js->condition = make_qual(js, PMHASH_JOIN_RECHECK, &columns);
	if (js->outer == NULL)
	{
		js->filter = ExecInitQual(ps->plan->qual, ps);
		ExecAssignScanProjectionInfo(&js->css.ss);
		js->project = ps->ps_ProjInfo;
		return;
	}
	js->filter = make_qual(js, PMHASH_JOIN_FILTER, &columns);
	js->other = make_qual(js, PMHASH_JOIN_OTHER, &columns);
	js->project = make_projection(js, &columns);
	if (keeps_unmatched(js))
	{
		columns.no_inner = true;
		js->null_other = make_qual(js, PMHASH_JOIN_OTHER, &columns);
		js->null_project = make_projection(js, &columns);
	}

	/*
	 * EXPLAIN shows the arguments of sub-plans as they stand in the plan: our slots mean
	 * nothing to it.  (The executor has made of them what it needs by now.)
	 */
	foreach(lc, ps->subPlan)
	{
		SubPlanState *state = lfirst_node(SubPlanState, lc);

		forboth(from, columns.subplans, to, columns.became)
		{
			if (state->subplan == lfirst(to))
				state->subplan = lfirst(from);
		}
	}
}

/* The table's place in the range table: of a join the last column tells. */
static Index
place_of_table(const CustomScan *scan)
{
	if (scan->scan.scanrelid > 0)
		return scan->scan.scanrelid;
	return castNode(Var, llast_node(TargetEntry, scan->custom_scan_tlist)->expr)->varno;
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	PmhashJoinState *js = (PmhashJoinState *) node;
	CustomScan *scan = (CustomScan *) node->ss.ps.plan;
	Index		inner = place_of_table(scan);
	List	   *oids = linitial(scan->custom_private);
	List	   *ints = lsecond(scan->custom_private);

	Assert((eflags & EXEC_FLAG_MARK) == 0);
	js->context = AllocSetContextCreate(estate->es_query_cxt, "pmhash join",
										ALLOCSET_DEFAULT_SIZES);
	/* the last block of a batch may be hardly used: they are small against work_mem */
	js->largest_block = ALLOCSET_DEFAULT_MAXSIZE;
	while (js->largest_block > ALLOCSET_DEFAULT_INITSIZE &&
		   js->largest_block * 16 > (size_t) work_mem * 1024)
		js->largest_block /= 2;
	js->batch_context = AllocSetContextCreate(js->context, "pmhash join batch",
											  ALLOCSET_DEFAULT_MINSIZE,
											  ALLOCSET_DEFAULT_INITSIZE,
											  js->largest_block);
	js->type = list_nth_int(ints, PMHASH_JOIN_TYPE);
	js->single = list_nth_int(ints, PMHASH_JOIN_SINGLE) != 0;
	js->index_only = list_nth_int(ints, PMHASH_JOIN_INDEX_ONLY) != 0;
	js->want = 1;
	js->group_size = PMHASH_JOIN_GROUP;
	js->note_dead = !TransactionStartedDuringRecovery();
	if (scan->custom_plans != NIL)
	{
		js->outer = ExecInitNode(linitial(scan->custom_plans), estate,
								 eflags & ~(EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK));
		node->custom_ps = list_make1(js->outer);
	}

	/* of a materialized view it sees to it that there is something to be read */
	js->heap = ExecOpenScanRelation(estate, inner, eflags);
	if (js->outer != NULL)
	{
		js->outer_slot = ExecInitExtraTupleSlot(estate, ExecGetResultType(js->outer),
												&TTSOpsMinimalTuple);
		js->inner_slot = ExecInitExtraTupleSlot(estate, RelationGetDescr(js->heap),
												js->index_only ? &TTSOpsVirtual :
												&TTSOpsHeapTuple);
	}
	else
	{
#if PG_VERSION_NUM < 160000
		/* later versions know the kind of slot before (slotOps) */
		ExecInitScanTupleSlot(estate, &node->ss, RelationGetDescr(js->heap),
							  &TTSOpsHeapTuple);
#endif
		js->inner_slot = node->ss.ss_ScanTupleSlot;
	}
	make_expressions(js, ints, oids);
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	js->index = index_open(list_nth_oid(oids, PMHASH_JOIN_INDEX),
						   exec_rt_fetch(inner, estate)->rellockmode);
	pmhash_fetch_begin(&js->fetch, js->context, js->heap, js->index,
					   estate->es_snapshot);
}

/* ---- one outer row ---- */

/* Put the current outer row into its slot. */
static void
store_outer(PmhashJoinState *js)
{
	if (js->outer_stored)
		return;
	Assert(js->current < js->nrows);
	ExecStoreMinimalTuple(js->row[js->current].tuple, js->outer_slot, false);
	js->outer_stored = true;
}

/* Go on to the next outer row.  False if there is none. */
static bool
next_outer(PmhashJoinState *js)
{
	int			ahead;

	Assert(!js->joining && js->current <= js->nrows);
	do
	{
		js->current++;
		if (js->current >= js->nrows)
		{
			if (!fill(js))
				return false;
			js->current = 0;
		}
		if (js->current >= js->looked)
			look_up(js);
		js->left = js->row[js->current].matches;
	} while (js->left == 0 && !js->streaming && !keeps_unmatched(js));
	/* tuples of the batch were written long ago: prefetch one that comes soon */
	ahead = js->current + OUTER_AHEAD;
	if (ahead < js->nrows)
		__builtin_prefetch(js->row[ahead].tuple);
	js->joining = true;
	js->matched = false;
	js->outer_stored = js->outer == NULL;
	return true;
}

/* Are there more values of the current row in the pipe? */
static inline bool
has_values(PmhashJoinState *js)
{
	while (js->left == 0)
	{
		if (!js->streaming)
			return false;
		js->streaming = next_values(js);
	}
	Assert(js->pipe.next + js->left <= js->pipe.n);
	return true;
}

/*
 * Look at the next values, up to so many, that are on one page, for the rows that the
 * snapshot sees.  Entries whose rows are dead to all are noted, as by index scans.
 */
static void
look_at_page(PmhashJoinState *js, size_t most)
{
	size_t		from = js->pipe.next;

	Assert(most > 0 && most <= js->left);
	pmhash_fetch_page_rows(&js->fetch, &js->pipe, most, &js->rows);
	js->left -= js->pipe.next - from;
	js->visited += js->pipe.next - from;
	if (likely(js->rows.ndead == 0) || !js->note_dead)
		return;
	for (int i = 0; i < js->rows.ndead; i++)
	{
		PmhEntry	entry = {js->row[js->current].hash, js->rows.dead[i]};

		pmhash_note_dead(&js->dead, js->context, js->index, js->file, js->epoch, entry);
	}
}

/*
 * Index-only: does the next value lead to a row that the snapshot sees?  The reasons are
 * those of am/scan.c, may_return: the page was all-visible before the TID can have been
 * given to another row; else the row itself is looked at.
 */
static bool
is_visible(PmhashJoinState *js)
{
	BlockNumber block = pmhash_value_to_block(js->pipe.value[js->pipe.next]);

	Assert(js->index_only && js->left > 0);
	PMH_STOP_POINT("join_before_visibility");
	if (VM_ALL_VISIBLE(js->heap, block, &js->visibility_map) &&
		pmhash_removal_none_since(js->file, js->epoch) &&
		(likely(!IsolationIsSerializable()) ||
		 pmhash_lock_all_visible(js->heap, block, js->fetch.snapshot,
								 &js->visibility_map)))
	{
		pgstat_count_index_tuples(js->index, 1);
		js->pipe.next++;
		js->left--;
		return true;
	}
	js->heap_fetches++;
	look_at_page(js, 1);
	return js->rows.n > 0;
}

/*
 * The next row of the table that the current outer row leads to, into its slot.  How far
 * ahead a page scan prefetches grows with what it has visited.
 */
static bool
next_inner(PmhashJoinState *js)
{
	if (js->index_only)
	{
		ExprContext *context = js->css.ss.ps.ps_ExprContext;
		TupleTableSlot *slot = js->inner_slot;
		int			column = js->index->rd_index->indkey.values[0] - 1;
		MemoryContext old;

		Assert(column >= 0 && column < slot->tts_tupleDescriptor->natts);
		do
		{
			if (!has_values(js))
				return false;
			CHECK_FOR_INTERRUPTS();
		} while (!is_visible(js));

		/* the row has its key, and nothing else */
		old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
		ExecClearTuple(slot);
		memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
		slot->tts_values[column] = pmhash_keys_unhash(js->keys,
													  js->row[js->current].hash);
		slot->tts_isnull[column] = false;
		ExecStoreVirtualTuple(slot);
		MemoryContextSwitchTo(old);
		return true;
	}
	while (js->rows.next >= js->rows.n)
	{
		ExecClearTuple(js->inner_slot); /* its page may go */
		if (!has_values(js))
			return false;
		CHECK_FOR_INTERRUPTS();
		if (js->outer == NULL)
			js->pipe.distance = Min(js->visited, PMHASH_PAGE_DISTANCE);
		else if (unlikely(js->left > PMHASH_PAGE_ROWS))
			js->pipe.distance = PMHASH_PAGE_DISTANCE;
		pmhash_fetch_ahead(&js->fetch, &js->pipe);
		look_at_page(js, js->single ? 1 : js->left);
	}
	pmhash_fetch_found(&js->fetch, js->rows.offset[js->rows.next++]);
	ExecStoreHeapTuple(&js->fetch.tuple, js->inner_slot, false);
	return true;
}

/* The row that comes of it, or NULL if WHERE does not let it through. */
static TupleTableSlot *
result(PmhashJoinState *js, ExprState *where, ProjectionInfo *projection)
{
	if (where == NULL || ExecQual(where, js->css.ss.ps.ps_ExprContext))
		return projection != NULL ? ExecProject(projection) : js->inner_slot;
	InstrCountFiltered2(js, 1);
	return NULL;
}

/*
 * The next result of the current outer row, or NULL if there is none.  (Two keys that
 * differ may have the same hash; that is not counted as a row removed.)
 */
static TupleTableSlot *
next_result(PmhashJoinState *js)
{
	ExprContext *context = js->css.ss.ps.ps_ExprContext;
	TupleTableSlot *slot;

	Assert(js->joining);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(context);
		if (!next_inner(js))
			break;
		store_outer(js);
		if (js->condition != NULL && !ExecQual(js->condition, context))
			continue;
		if (js->filter != NULL && !ExecQual(js->filter, context))
		{
			InstrCountFiltered1(js, 1);
			continue;
		}
		js->matched = true;
		if (js->single)
		{
			/* no more values of this row are wanted */
			js->pipe.next += js->left;
			js->left = 0;
			js->streaming = false;
			js->rows.next = js->rows.n;
		}
		if (js->type == JOIN_ANTI)
			break;
		slot = result(js, js->other, js->project);
		if (slot != NULL)
			return slot;
	}
	js->joining = false;
	if (js->matched || !keeps_unmatched(js))
		return NULL;
	store_outer(js);
	return result(js, js->null_other, js->null_project);
}

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
	if (js->css.ss.ps.ps_ResultTupleSlot != NULL)
		ExecClearTuple(js->css.ss.ps.ps_ResultTupleSlot);
	ExecClearTuple(js->inner_slot);
	if (js->outer_slot != NULL)
		ExecClearTuple(js->outer_slot);
	pmhash_fetch_release(&js->fetch);
	if (BufferIsValid(js->visibility_map))
		ReleaseBuffer(js->visibility_map);
	js->visibility_map = InvalidBuffer;
}

/*
 * Begin again.  A scan that was read to its end will be again; if not, the first batch is
 * small again.
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
	js->visited = 0;
	reset_batch(js);
	if (js->outer == NULL)
		return;
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
	if (js->outer != NULL)
		ExecEndNode(js->outer);
	if (js->index != NULL)
		index_close(js->index, NoLock);
	MemoryContextDelete(js->context);
}

/* Conditions, as core shows them. */
static bool
explain_conditions(PmhashJoinState *js, List *ancestors, ExplainState *es,
				   const char *label, PmhashJoinExprs which)
{
	CustomScan *scan = (CustomScan *) js->css.ss.ps.plan;
	List	   *quals = list_nth(scan->custom_exprs, which);
	List	   *context;
	bool		prefix = list_length(es->rtable) > 1 || es->verbose;

	if (quals == NIL)
		return false;
	context = set_deparse_context_plan(es->deparse_cxt, js->css.ss.ps.plan, ancestors);
	ExplainPropertyText(label,
						deparse_expression((Node *) make_ands_explicit(quals), context,
										   prefix, false), es);
	return true;
}

/* Rows removed, per execution as core shows them. */
static void
explain_removed(const char *label, double removed,
				const NodeInstrumentation *instrument, ExplainState *es)
{
	if (instrument->nloops > 0 && (removed > 0 || es->format != EXPLAIN_FORMAT_TEXT))
		ExplainPropertyFloat(label, NULL, removed / instrument->nloops, 0, es);
}

/*
 * ExplainCustomScan: a join as core's joins are shown, a page scan as an index scan.
 *
 * Figures are of all executions in this process; those of parallel workers are not known
 * to the leader.
 */
static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	PmhashJoinState *js = (PmhashJoinState *) node;
	CustomScan *scan = (CustomScan *) node->ss.ps.plan;
	const NodeInstrumentation *instrument = es->analyze ? node->ss.ps.instrument : NULL;
	static const char *const type_name[] = {
		[JOIN_INNER] = "Inner",[JOIN_LEFT] = "Left",[JOIN_SEMI] = "Semi",[JOIN_ANTI] = "Anti"
	};

	if (js->outer != NULL)
	{
		const char *schema = get_namespace_name(RelationGetNamespace(js->heap));
		const char *table = RelationGetRelationName(js->heap);
		const char *alias = list_nth(es->rtable_names, place_of_table(scan) - 1);
		StringInfoData text;

		Assert(js->type < lengthof(type_name) && type_name[js->type] != NULL);
		ExplainPropertyText("Join Type", type_name[js->type], es);
		/* the table, and how it is named in the query */
		initStringInfo(&text);
		if (es->verbose)
			appendStringInfo(&text, "%s.", quote_identifier(schema));
		appendStringInfoString(&text, quote_identifier(table));
		if (alias != NULL && strcmp(alias, table) != 0)
			appendStringInfo(&text, " %s", quote_identifier(alias));
		ExplainPropertyText("Inner Table", text.data, es);
		pfree(text.data);
	}
	ExplainPropertyText("Index Name",
						get_rel_name(list_nth_oid(linitial(scan->custom_private),
												  PMHASH_JOIN_INDEX)), es);
	if (js->outer != NULL && (js->index_only || es->format != EXPLAIN_FORMAT_TEXT))
		ExplainPropertyBool("Index Only", js->index_only, es);
	if (js->outer != NULL && (js->single || es->verbose))
		ExplainPropertyBool("Inner Unique", js->single, es);
	explain_conditions(js, ancestors, es, "Index Cond", PMHASH_JOIN_RECHECK);
	if (explain_conditions(js, ancestors, es, "Join Filter", PMHASH_JOIN_FILTER) &&
		instrument != NULL)
		explain_removed("Rows Removed by Join Filter", instrument->nfiltered1,
						instrument, es);
	if (explain_conditions(js, ancestors, es, "Filter", PMHASH_JOIN_OTHER) &&
		instrument != NULL)
		explain_removed("Rows Removed by Filter", instrument->nfiltered2,
						instrument, es);
	if (!es->analyze)
		return;
	if (js->outer != NULL)
	{
		ExplainPropertyUInteger("Keys", NULL, js->nprobes, es);
		ExplainPropertyUInteger("Batches", NULL, js->nbatches, es);
		ExplainPropertyUInteger("Memory Usage", "kB", (js->most_memory + 1023) / 1024, es);
	}
	ExplainPropertyUInteger("Heap Blocks", NULL, js->fetch.blocks, es);
	ExplainPropertyUInteger("Heap Blocks by Hint", NULL, js->fetch.hinted, es);
	if (js->index_only)
		ExplainPropertyUInteger("Heap Fetches", NULL, js->heap_fetches, es);
}

#define EXEC_METHODS(name) { \
	.CustomName = name, \
	.BeginCustomScan = begin, \
	.ExecCustomScan = next, \
	.EndCustomScan = end, \
	.ReScanCustomScan = rescan, \
	.ExplainCustomScan = explain, \
}

static const CustomExecMethods join_methods = EXEC_METHODS(PMHASH_JOIN_NAME);
static const CustomExecMethods pages_methods = EXEC_METHODS(PMHASH_PAGES_NAME);

static Node *
create_state(CustomScan *scan)
{
	PmhashJoinState *js = (PmhashJoinState *) newNode(sizeof(PmhashJoinState),
													  T_CustomScanState);

	js->css.methods = &join_methods;
	return (Node *) js;
}

static Node *
create_pages_state(CustomScan *scan)
{
	PmhashJoinState *js = (PmhashJoinState *) create_state(scan);

	js->css.methods = &pages_methods;
#if PG_VERSION_NUM >= 160000
	js->css.slotOps = &TTSOpsHeapTuple;
#endif
	return (Node *) js;
}

const CustomScanMethods pmhash_join_scan_methods = {PMHASH_JOIN_NAME, create_state};
const CustomScanMethods pmhash_pages_scan_methods = {
	PMHASH_PAGES_NAME, create_pages_state
};
