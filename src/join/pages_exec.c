/*-------------------------------------------------------------------------
 *
 * pages_exec.c
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
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "pgstat.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

#include "am/am.h"
#include "am/fetch.h"
#include "am/keys.h"
#include "am/scan.h"
#include "join/pages.h"

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

const CustomScanMethods pmhash_pages_scan_methods = {
	PMHASH_PAGES_NAME,
	create_state
};
