/*-------------------------------------------------------------------------
 *
 * explain.c
 *	  pmhash.explain: may the planner use an index now, for a condition, and why not?
 *	  EXPLAIN says so, too, of indexes that no plan may have.
 *
 * Whether it can is asked of the planner itself, to which the table has no other
 * index and a sequential scan is forbidden.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/index.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/extensible.h"
#include "nodes/nodeFuncs.h"
#include "nodes/makefuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/analyze.h"
#include "parser/parser.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

#include "am/am.h"
#include "cluster/base/relations.h"
#include "cluster/base/tools.h"
#include "cluster/base/versions.h"
#include "cluster/open/open.h"

PG_FUNCTION_INFO_V1(pmhash_explain);

/* The columns of an index that a list of clauses compares, and what it does instead. */
typedef struct ColumnSearch
{
	Relation	index;
	int			column;			/* from 0 */
	Node	   *key;			/* what the index has there */
	Oid			other_operator; /* one that its operator family lacks */
	bool		other_collation;
	bool		inside;			/* it is a part of something that is compared */
} ColumnSearch;

/* The column, whatever the parser has put around it that does not change the value. */
static bool
is_key(const ColumnSearch *search, Node *node)
{
	return equal(strip_implicit_coercions(node), search->key) ||
		(IsA(node, RelabelType) && is_key(search, (Node *) ((RelabelType *) node)->arg));
}

static bool
contains_key(Node *node, ColumnSearch *search)
{
	if (node == NULL)
		return false;
	return equal(node, search->key) || expression_tree_walker(node, contains_key, search);
}

/* Does the clause compare the column so that the index can serve it?  Else notes why not. */
static bool
serves_column(ColumnSearch *search, Node *clause)
{
	bool		any = IsA(clause, ScalarArrayOpExpr);
	List	   *args = any ? ((ScalarArrayOpExpr *) clause)->args :
		IsA(clause, OpExpr) ? ((OpExpr *) clause)->args : NIL;
	Oid			operator = any ? ((ScalarArrayOpExpr *) clause)->opno :
		IsA(clause, OpExpr) ? ((OpExpr *) clause)->opno : InvalidOid;
	Oid			collation = any ? ((ScalarArrayOpExpr *) clause)->inputcollid :
		IsA(clause, OpExpr) ? ((OpExpr *) clause)->inputcollid : InvalidOid;
	Oid			of_index = search->index->rd_indcollation[search->column];

	search->inside |= contains_key(clause, search);
	if (list_length(args) != 2)
		return false;
	if (!is_key(search, linitial(args)))
	{
		if (any || !is_key(search, lsecond(args)))
			return false;
		operator = get_commutator(operator);
	}
	if (!op_in_opfamily(operator, search->index->rd_opfamily[search->column]))
	{
		search->other_operator = OidIsValid(operator) ? operator : InvalidOid;
		return false;
	}
	if (OidIsValid(of_index) && of_index != collation)
	{
		search->other_collation = true;
		return false;
	}
	return true;
}

/* Why the index cannot serve a query, as far as its WHERE clause says. */
static char *
why_not_served(Relation index, const Query *query)
{
	Node	   *quals = eval_const_expressions(NULL, query->jointree->quals);
	List	   *clauses = make_ands_implicit((Expr *) canonicalize_qual((Expr *) quals, false));
	List	   *expressions = RelationGetIndexExpressions(index);
	int			nth = 0;
	ListCell   *lc;

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		AttrNumber	attno = index->rd_index->indkey.values[i];
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(index), i);
		Node	   *key = attno == 0 ? list_nth(expressions, nth++) :
			(Node *) makeVar(1, attno, att->atttypid, att->atttypmod, att->attcollation, 0);
		ColumnSearch search = {.index = index, .column = i, .key = key};
		char	   *name = NameStr(att->attname);
		bool		bound = false;

		foreach(lc, clauses)
			bound = bound || serves_column(&search, lfirst(lc));
		if (bound)
			continue;
		if (search.other_collation)
			return psprintf("column \"%s\" is compared under another collation than that of the index", name);
		if (OidIsValid(search.other_operator))
			return psprintf("column \"%s\" is compared by operator %s, which operator family \"%s\" does not have",
							name, format_operator(search.other_operator),
							pmhash_opfamily_name(index->rd_opfamily[i]));
		if (search.inside)
			return psprintf("column \"%s\" is not compared itself, but an expression of it, or not by \"=\", or only under OR", name);
		return psprintf("column \"%s\" is not compared", name);
	}
	return pstrdup(RelationGetIndexPredicate(index) != NIL ?
				   "the condition does not imply the predicate of the index" :
				   "the planner makes no plan of it for this condition");
}

/* Number of conditions on the index in the plan; -1: it does not have the index. */
static int
conditions_by(const Plan *plan, Oid index)
{
	List	   *plans;
	ListCell   *lc;
	int			inner;

	if (plan == NULL)
		return -1;
	if (IsA(plan, IndexScan) && ((IndexScan *) plan)->indexid == index)
		return list_length(((IndexScan *) plan)->indexqual);
	if (IsA(plan, IndexOnlyScan) && ((IndexOnlyScan *) plan)->indexid == index)
		return list_length(((IndexOnlyScan *) plan)->indexqual);
	if (IsA(plan, BitmapIndexScan) && ((BitmapIndexScan *) plan)->indexid == index)
		return list_length(((BitmapIndexScan *) plan)->indexqual);
	plans = IsA(plan, BitmapOr) ? ((BitmapOr *) plan)->bitmapplans :
		IsA(plan, BitmapAnd) ? ((BitmapAnd *) plan)->bitmapplans :
		IsA(plan, CustomScan) ? ((CustomScan *) plan)->custom_plans : NIL;
	/* Of src/join: the index, and the type of each key. */
	if (IsA(plan, CustomScan) &&
		strncmp(((CustomScan *) plan)->methods->CustomName, "pmhash ", 7) == 0 &&
		linitial_oid(linitial(((CustomScan *) plan)->custom_private)) == index)
		return list_length(linitial(((CustomScan *) plan)->custom_private)) - 1;
	foreach(lc, plans)
	{
		inner = conditions_by(lfirst(lc), index);
		if (inner >= 0)
			return inner;
	}
	inner = conditions_by(plan->lefttree, index);
	return inner >= 0 ? inner : conditions_by(plan->righttree, index);
}

/* Plan a query as if the table had no other index and it were the only way. */
static PlannedStmt *
plan_with_it_alone(Query *query, const char *text, Oid index)
{
	static const char *const setting[][2] = {
		{"enable_seqscan", "off"}, {"enable_tidscan", "off"},
		{"enable_indexscan", "on"}, {"enable_bitmapscan", "on"}};
	int			level = NewGUCNestLevel();
	PlannedStmt *plan;

	Assert(!OidIsValid(pmhash_only_index));
	for (int i = 0; i < (int) lengthof(setting); i++)
		set_config_option(setting[i][0], setting[i][1], PGC_USERSET, PGC_S_SESSION,
						  GUC_ACTION_SAVE, true, 0, false);
	pmhash_only_index = index;
	PG_TRY();
	{
		plan = pmhash_plan_query(copyObject(query), text);
	}
	PG_FINALLY();
	{
		pmhash_only_index = InvalidOid;
		ResetPlanCache();		/* functions in the condition may have made plans meanwhile */
	}
	PG_END_TRY();
	AtEOXact_GUC(true, level);
	return plan;
}

/*
 * Whether the index can serve the condition; *why: why not, or why it is not chosen.  ERROR
 * if it does not make one query.
 */
static bool
explain_condition(Relation heap, Relation index, const char *condition, char **why)
{
	char	   *schema = get_namespace_name(RelationGetNamespace(heap));
	char	   *table = quote_qualified_identifier(schema, RelationGetRelationName(heap));
	char	   *text = psprintf("SELECT FROM ONLY %s WHERE (%s\n)", table, condition);
	List	   *parsed = raw_parser(text, RAW_PARSE_DEFAULT);
	List	   *queries = NIL;
	Query	   *query;
	Oid		   *types = NULL;
	int			n = 0;
	PlannedStmt *alone;
	PlannedStmt *chosen;

	Assert(*why == NULL && index->rd_index->indrelid == RelationGetRelid(heap));
	if (list_length(parsed) == 1)
		queries = pg_rewrite_query(parse_analyze_varparams(linitial_node(RawStmt, parsed),
														   text, &types, &n, NULL));
	if (list_length(queries) != 1 || linitial_node(Query, queries)->commandType != CMD_SELECT)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the condition is not one expression")));
	query = linitial_node(Query, queries);
	alone = plan_with_it_alone(query, text, RelationGetRelid(index));
	if (conditions_by(alone->planTree, RelationGetRelid(index)) <
		IndexRelationGetNumberOfKeyAttributes(index))
	{
		*why = why_not_served(index, query);
		return false;
	}
	chosen = pmhash_plan_query(query, text);
	if (conditions_by(chosen->planTree, RelationGetRelid(index)) < 0)
		*why = !enable_indexscan && !enable_bitmapscan ?
			pstrdup("enable_indexscan and enable_bitmapscan are off") :
			psprintf("the planner takes another plan: its cost is %.2f, by the index %.2f",
					 chosen->planTree->total_cost, alone->planTree->total_cost);
	return true;
}

/* Why no plan of this transaction may have the index; NULL: one may. */
static char *
why_hidden(Relation index)
{
	char	   *state = pmhash_shown_state(RelationGetRelid(index));
	bool		later;

	if (state != NULL && strcmp(state, "valid") != 0)
		return psprintf("the state of the index is \"%s\"", state);
#if PG_VERSION_NUM < 170000
	if (old_snapshot_threshold >= 0)
		return pstrdup("old_snapshot_threshold is set");
#endif
	if (!pmhash_index_plannable(index, &later))
		return pstrdup("the snapshot of this transaction is older than the index or its last rebuild");
	if (index->rd_index->indcheckxmin &&
		!TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data),
							   TransactionXmin))
		return pstrdup("the index was made while this transaction may have seen rows that it lacks");
	return NULL;
}

/*
 * pmhash.explain(index regclass, condition text, OUT usable boolean, OUT reason text)
 *
 * reason: why the planner may not use it, or why it prefers another plan; NULL if it
 * chooses the index.  NULL condition: of the index alone.  Nothing is executed.  For those
 * that may SELECT from the table.
 */
Datum
pmhash_explain(PG_FUNCTION_ARGS)
{
	Oid			oid = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);
	Oid			heap_oid = IndexGetRelation(oid, true);
	Relation	heap;
	Relation	index;
	char	   *reason;
	bool		usable = false;
	TupleDesc	tupdesc;
	Datum		value[2];
	bool		isnull[2] = {false};

	if (!OidIsValid(heap_oid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("no pmhash index is named")));
	heap = table_open(heap_oid, AccessShareLock);
	index = index_open(oid, AccessShareLock);
	pmhash_require_index(index);
	if (pg_class_aclcheck(heap_oid, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, RelationGetRelationName(heap));
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "unexpected result type of pmhash.explain");
	reason = why_hidden(index);
	if (reason == NULL)
		usable = PG_ARGISNULL(1) ||
			explain_condition(heap, index, text_to_cstring(PG_GETARG_TEXT_PP(1)), &reason);
	value[0] = BoolGetDatum(usable);
	isnull[1] = reason == NULL;
	value[1] = isnull[1] ? (Datum) 0 : CStringGetTextDatum(reason);
	index_close(index, AccessShareLock);
	table_close(heap, AccessShareLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), value, isnull)));
}

#if PG_VERSION_NUM >= 180000

static explain_per_plan_hook_type previous_hook = NULL;

/*
 * A plan has been printed: say which indexes of its tables no plan may have, and why, to
 * those that may read them.  Not with COSTS OFF, by which core leaves out what differs from
 * server to server (ExplainPrintJITSummary).
 */
static void
per_plan(PlannedStmt *planned, IntoClause *into, ExplainState *es, const char *query,
		 ParamListInfo params, QueryEnvironment *environment)
{
	List	   *indexes = NIL;
	List	   *lines = NIL;
	ListCell   *lc;
	ListCell   *name;

	if (previous_hook)
		previous_hook(planned, into, es, query, params, environment);
	if (!es->costs || IsInParallelMode() || pmhash_transaction_is_ending)	/* see pmhash_try */
		return;
	/* tables in the plan have names (all, if none is); an INSERT's target is not searched */
	forboth(lc, planned->rtable, name, es->rtable_names)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		Relation	heap;

		if (lfirst(name) == NULL || rte->rtekind != RTE_RELATION ||
			(planned->commandType == CMD_INSERT &&
			 linitial_int(planned->resultRelations) == foreach_current_index(lc) + 1) ||
			pg_class_aclcheck(rte->relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
			continue;
		heap = table_open(rte->relid, NoLock);
		indexes = list_concat(indexes, RelationGetIndexList(heap));
		table_close(heap, NoLock);
	}
	list_sort(indexes, list_oid_cmp);
	list_deduplicate_oid(indexes);
	foreach(lc, indexes)
	{
		Relation	index;
		char	   *reason;

		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock))
			continue;			/* a plan from a cache has waited for no REINDEX */
		index = index_open(lfirst_oid(lc), NoLock);
		reason = pmhash_is_index(index) ? why_hidden(index) : NULL;
		if (reason != NULL)
			lines = lappend(lines, psprintf("%s (pmhash): %s",
											quote_identifier(RelationGetRelationName(index)),
											reason));
		index_close(index, AccessShareLock);
	}
	if (lines != NIL && es->format != EXPLAIN_FORMAT_TEXT)
		ExplainPropertyList("Indexes Not Usable", lines, es);
	else
		foreach(lc, lines)
			ExplainPropertyText("Index Not Usable", lfirst(lc), es);
}

#endif

/* Install the hook, in every process that has the library, as planner_hook.c does. */
void
pmhash_explain_init(void)
{
#if PG_VERSION_NUM >= 180000
	previous_hook = explain_per_plan_hook;
	explain_per_plan_hook = per_plan;
#endif
}
