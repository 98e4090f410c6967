/*-------------------------------------------------------------------------
 *
 * statements.c
 *	  The statements that are being executed, as far as an access method has to know
 *	  of them.
 *
 * It is called without a word of which statement it is for.  But indexes are opened for
 * inserts, and scans are made, in the memory context of the execution that they belong
 * to (executor.h, es_query_cxt), or of COPY FROM; so the statement is found by that.
 * Remembered are those that may insert rows (insert_source.c), and those that pass over
 * locked ones (scan_queue.c), as long as their context is there.
 *
 * And utility statements that may build indexes, in parallel: no plan says so, as it does
 * of queries (insert_queue.c, before_run).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/execdesc.h"
#include "nodes/execnodes.h"
#include "nodes/plannodes.h"
#include "tcop/utility.h"

#include "statements.h"

static PmhashStatement *statements = NULL;	/* the last one first */
static void (*before_builds) (void) = NULL;
static ProcessUtility_hook_type previous_utility_hook = NULL;

static void
forget(void *arg)
{
	for (PmhashStatement **link = &statements; *link != NULL; link = &(*link)->next)
	{
		if (*link == arg)
		{
			*link = (*link)->next;
			return;
		}
	}
}

/* May a statement with this plan insert rows? */
static bool
may_insert(const PlannedStmt *planned)
{
	return planned->hasModifyingCTE ||
		(planned->commandType != CMD_SELECT && planned->commandType != CMD_DELETE);
}

/*
 * pmhash_skips_locked
 *		Does an entry of the range table (0: any) have a row mark that says SKIP LOCKED?
 */
bool
pmhash_skips_locked(const PlannedStmt *planned, Index rti)
{
	ListCell   *lc;

	foreach(lc, planned->rowMarks)
	{
		const PlanRowMark *mark = lfirst_node(PlanRowMark, lc);

		if (mark->waitPolicy == LockWaitSkip && (rti == 0 || mark->rti == rti))
			return true;
	}
	return false;
}

/*
 * pmhash_statement_started
 *		The executor has been started for a statement.
 *
 * ERROR if memory is short.
 */
void
pmhash_statement_started(QueryDesc *queryDesc)
{
	const PlannedStmt *planned = queryDesc->plannedstmt;
	MemoryContext context = queryDesc->estate->es_query_cxt;
	bool		inserts = may_insert(planned);
	bool		skips_locked = pmhash_skips_locked(planned, 0);
	PmhashStatement *statement;

	if (!inserts && !skips_locked)
		return;
	statement = MemoryContextAlloc(context, sizeof(PmhashStatement));
	statement->context = context;
	statement->planned = planned;
	statement->plan = queryDesc->planstate;
	statement->inserts = inserts;
	statement->skips_locked = skips_locked;
	statement->builds = false;
	statement->callback.func = forget;
	statement->callback.arg = statement;
	MemoryContextRegisterResetCallback(context, &statement->callback);
	statement->next = statements;
	statements = statement;
}

/*
 * pmhash_statement_in
 *		The statement that is executed in this memory context, if it is remembered;
 *		else NULL.
 */
const PmhashStatement *
pmhash_statement_in(MemoryContext context)
{
	const PmhashStatement *statement = statements;

	while (statement != NULL && statement->context != context)
		statement = statement->next;
	return statement;
}

static void
call_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	if (previous_utility_hook)
		previous_utility_hook(pstmt, queryString, readOnlyTree, context, params,
							  queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
}

/*
 * May a utility statement build indexes, with workers that compute expressions and
 * predicates?  A function in them that reads a table is to find what this
 * transaction has inserted, and workers have not the leader's queues.  (ALTER TYPE and
 * ATTACH PARTITION are ALTER TABLE here; so is ALTER INDEX, which builds none.  TRUNCATE
 * and CREATE TABLE have no rows to compute anything for.)
 */
static bool
may_build_indexes(const Node *utility)
{
	switch (nodeTag(utility))
	{
		case T_IndexStmt:
		case T_ReindexStmt:
		case T_ClusterStmt:
		case T_RefreshMatViewStmt:
			return true;
		case T_AlterTableStmt:
			return ((const AlterTableStmt *) utility)->objtype != OBJECT_INDEX;
		default:
			return false;
	}
}

/*
 * pmhash_index_builder_runs
 *		May workers be started at any moment, though there is no plan with some?
 */
bool
pmhash_index_builder_runs(void)
{
	for (const PmhashStatement *statement = statements; statement != NULL;
		 statement = statement->next)
	{
		if (statement->builds)
			return true;
	}
	return false;
}

/*
 * COPY FROM inserts rows for as long as it runs.  Builders find all that has been
 * inserted before them, and what they insert themselves does not wait: volatile
 * defaults of new columns and event triggers may insert rows in their middle.
 */
static void
utility_hook(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *utility = pstmt->utilityStmt;
	PmhashStatement statement = {.builds = may_build_indexes(utility)};

	if (IsA(utility, CopyStmt) && ((CopyStmt *) utility)->is_from)
	{
		statement.inserts = true;
		statement.context = CurrentMemoryContext;
	}
	if (!statement.inserts && !statement.builds)
	{
		call_utility(pstmt, queryString, readOnlyTree, context, params, queryEnv,
					 dest, qc);
		return;
	}
	if (statement.builds)
		before_builds();
	statement.next = statements;
	statements = &statement;
	PG_TRY();
	{
		call_utility(pstmt, queryString, readOnlyTree, context, params, queryEnv,
					 dest, qc);
	}
	PG_FINALLY();
	{
		forget(&statement);
	}
	PG_END_TRY();
}

/*
 * pmhash_statements_init
 *		Install the hook.  Called once, while the library is preloaded.
 *
 * before: to be called in front of each statement that may build indexes.
 */
void
pmhash_statements_init(void (*before) (void))
{
	before_builds = before;
	previous_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}
