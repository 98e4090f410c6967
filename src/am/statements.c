/*-------------------------------------------------------------------------
 *
 * statements.c
 *	  The statements that are being executed, as far as an access method has to know
 *	  of them.
 *
 * It is called without a word of which statement it is for.  But indexes are opened for
 * inserts, and scans are made, in the memory context of the execution that they belong
 * to (executor.h, es_query_cxt), or of COPY FROM; so the statement is found by that.
 * Remembered are those that may insert rows (insert_queue.c), and those that pass over
 * locked ones (scan.c), as long as their context is there.
 *
 * And utility statements that may build indexes, in parallel: no plan says so, as it does
 * of queries (insert_queue.c, before_run).  hooks.c calls us for these.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/execdesc.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

#include "statements.h"

static PmhashStatement *statements = NULL;	/* the last one first */

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

/*
 * pmhash_may_build_indexes
 *		May a utility statement build indexes, with workers that compute expressions and
 *		predicates?
 *
 * A function in them that reads a table is to find what this transaction has inserted,
 * and workers have not the leader's queues.  (ALTER TYPE and ATTACH PARTITION are ALTER
 * TABLE here; so is ALTER INDEX, which builds none.  TRUNCATE and CREATE TABLE have no
 * rows to compute anything for.)
 */
bool
pmhash_may_build_indexes(const Node *utility)
{
	switch (nodeTag(utility))
	{
		case T_IndexStmt:
		case T_ReindexStmt:
#if PG_VERSION_NUM >= 190000
		case T_RepackStmt:		/* CLUSTER as well */
#else
		case T_ClusterStmt:
#endif
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
 * pmhash_utility_begins
 *		A utility statement is about to be executed.  *statement stays with the caller,
 *		which calls pmhash_utility_ends in whatever way it is over.
 *
 * COPY FROM inserts rows for as long as it runs.  Builders find all that has been
 * inserted before them, and what they insert themselves does not wait: volatile
 * defaults of new columns and event triggers may insert rows in their middle.
 */
void
pmhash_utility_begins(const Node *utility, PmhashStatement *statement)
{
	memset(statement, 0, sizeof(*statement));
	statement->builds = pmhash_may_build_indexes(utility);
	if (IsA(utility, CopyStmt) && ((const CopyStmt *) utility)->is_from)
	{
		statement->inserts = true;
		statement->context = CurrentMemoryContext;
	}
	if (!statement->inserts && !statement->builds)
		return;
	statement->next = statements;
	statements = statement;
}

/* The end of what pmhash_utility_begins has been called for, also by an error. */
void
pmhash_utility_ends(PmhashStatement *statement)
{
	forget(statement);
}
