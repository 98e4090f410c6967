/*-------------------------------------------------------------------------
 *
 * explain.c
 *	  What EXPLAIN says of a join.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/explain.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif
#include "executor/instrument.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/builtins.h"
#include "utils/ruleutils.h"

#include "join/join.h"

static const char *
type_name(JoinType type)
{
	switch (type)
	{
		case JOIN_INNER:
			return "Inner";
		case JOIN_LEFT:
			return "Left";
		case JOIN_SEMI:
			return "Semi";
		case JOIN_ANTI:
			return "Anti";
		default:
			break;
	}
	elog(ERROR, "unexpected type of a pmhash join: %d", (int) type);
	return NULL;				/* keep compiler quiet */
}

/* The table and how it is named in the query, and the index. */
static void
explain_relations(PmhashJoinState *js, ExplainState *es)
{
	CustomScan *scan = (CustomScan *) js->css.ss.ps.plan;
	TargetEntry *last = llast_node(TargetEntry, scan->custom_scan_tlist);
	Index		inner = castNode(Var, last->expr)->varno;
	Oid			index = list_nth_oid(linitial(scan->custom_private), PMHASH_JOIN_INDEX);
	const char *schema = get_namespace_name(RelationGetNamespace(js->heap));
	const char *table = RelationGetRelationName(js->heap);
	const char *alias = list_nth(es->rtable_names, inner - 1);
	StringInfoData text;

	initStringInfo(&text);
	if (es->verbose)
		appendStringInfo(&text, "%s.", quote_identifier(schema));
	appendStringInfoString(&text, quote_identifier(table));
	if (alias != NULL && strcmp(alias, table) != 0)
		appendStringInfo(&text, " %s", quote_identifier(alias));
	ExplainPropertyText("Inner Table", text.data, es);
	ExplainPropertyText("Index Name", get_rel_name(index), es);
	pfree(text.data);
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
 * Figures of all executions in this process; those of parallel workers are not
 * known to the leader.
 */
static void
explain_figures(PmhashJoinState *js, ExplainState *es)
{
	ExplainPropertyUInteger("Keys", NULL, js->nprobes, es);
	ExplainPropertyUInteger("Batches", NULL, js->nbatches, es);
	ExplainPropertyUInteger("Memory Usage", "kB", (js->most_memory + 1023) / 1024, es);
	ExplainPropertyUInteger("Heap Blocks", NULL, js->fetch.blocks, es);
	ExplainPropertyUInteger("Heap Blocks by Hint", NULL, js->fetch.hinted, es);
	if (js->index_only)
		ExplainPropertyUInteger("Heap Fetches", NULL, js->heap_fetches, es);
}

/* ExplainCustomScan */
void
pmhash_join_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	PmhashJoinState *js = (PmhashJoinState *) node;
	const NodeInstrumentation *instrument = es->analyze ? node->ss.ps.instrument : NULL;

	ExplainPropertyText("Join Type", type_name(js->type), es);
	explain_relations(js, es);
	if (js->index_only || es->format != EXPLAIN_FORMAT_TEXT)
		ExplainPropertyBool("Index Only", js->index_only, es);
	if (js->single || es->verbose)
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
	if (instrument != NULL)
		explain_figures(js, es);
}
