/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  What the server tells pmhash of statements and objects: its hooks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"

#include "am/am.h"
#include "cluster/base/shared.h"
#include "cluster/file/files.h"
#include "cluster/queue/queue.h"
#include "cluster/wal/logged.h"

/*
 * The statements that are being executed, as far as an access method has to know
 * of them.
 *
 * It is called without a word of which statement it is for.  But indexes are opened for
 * inserts, and scans are made, in the memory context of the execution that they belong
 * to (executor.h, es_query_cxt), or of COPY FROM; so the statement is found by that.
 * Remembered are those that may insert rows (insert.c), and those that pass over
 * locked ones (scan.c), as long as their context is there.
 *
 * And utility statements that may build indexes, in parallel: no plan says so, as it does
 * of queries (executor_run).
 */

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

/* Does an entry of the range table (0: any) have a row mark that says SKIP LOCKED? */
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
 * The statement that is executed in this memory context, if it is remembered;
 * else NULL.
 */
const PmhashStatement *
pmhash_statement_in(MemoryContext context)
{
	const PmhashStatement *statement = statements;

	Assert(context != NULL);
	while (statement != NULL && statement->context != context)
		statement = statement->next;
	return statement;
}

/*
 * May a utility statement build indexes, with workers that compute expressions and
 * predicates?
 *
 * A function in them that reads a table is to find what this transaction has inserted,
 * and workers have not the leader's queues.  (ALTER TYPE and ATTACH PARTITION are ALTER
 * TABLE here; so is ALTER INDEX, which builds none.  TRUNCATE and CREATE TABLE have no
 * rows to compute anything for.)
 */
static bool
may_build_indexes(const Node *utility)
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

/* May workers be started at any moment, though there is no plan with some? */
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
 * What pmhash takes note of when objects are made, altered and dropped.
 *
 * The server calls the hook for each object that a statement makes, alters or drops,
 * before the change can be seen.  What is noted is looked at when the statement or the
 * transaction is over; only a new database is looked at here and now, since its files
 * are copied next (life_cycle.c).
 */

static object_access_hook_type previous_hook = NULL;

static void
object_hook(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	if (previous_hook)
		previous_hook(access, classId, objectId, subId, arg);
	if (classId == DatabaseRelationId && access == OAT_DROP)
		pmhash_visit_at_commit(objectId);
	else if (classId == DatabaseRelationId && access == OAT_POST_CREATE)
		pmhash_note_database(objectId);
	else if (classId == RelationRelationId && subId == 0 && access == OAT_DROP &&
			 get_rel_relkind(objectId) == RELKIND_INDEX)
		pmhash_note_drop(objectId, (((ObjectAccessDrop *) arg)->dropflags &
									PERFORM_DELETION_CONCURRENTLY) != 0);
	/* a column of a table, or an attribute of a composite type */
	else if (classId == RelationRelationId && subId > 0 &&
			 (access == OAT_POST_CREATE || access == OAT_DROP))
		pmhash_row_types_note(objectId, 0);
	else if (classId == RelationRelationId && subId > 0 && access == OAT_POST_ALTER)
		pmhash_row_types_note(objectId, (AttrNumber) subId);
}

/*
 * What pmhash does before and after utility statements.
 *
 * Statements may nest: this is called again within one that is being executed.
 */

static ProcessUtility_hook_type previous_utility = NULL;

/* It has changed the storage parameter "wal", perhaps of an index of ours. */
static void
tell_of_parameters(const AlterTableStmt *stmt)
{
	ListCell   *lc;
	ListCell   *option;

	Assert(IsA(stmt, AlterTableStmt));
	foreach(lc, stmt->cmds)
	{
		const AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype != AT_SetRelOptions && cmd->subtype != AT_ResetRelOptions)
			continue;
		foreach(option, (List *) cmd->def)
		{
			Oid			relid;

			if (strcmp(lfirst_node(DefElem, option)->defname, "wal") != 0)
				continue;
			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
			if (OidIsValid(relid))
			{
				Relation	index = relation_open(relid, AccessShareLock);

				pmhash_tell_of_wal(index);
				relation_close(index, NoLock);
				return;
			}
		}
	}
}

/*
 * Remember a utility statement that is about to be executed, if need be.
 *
 * COPY FROM inserts rows for as long as it runs.  Builders find all that has been
 * inserted before them, and what they insert themselves does not wait: volatile
 * defaults of new columns and event triggers may insert rows in their middle.
 */
static pg_noinline void
utility_begins(const Node *utility, PmhashStatement *statement)
{
	memset(statement, 0, sizeof(*statement));
	statement->builds = may_build_indexes(utility);
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

/*
 * What has to be known of the statement is found out before it is executed: that of a
 * procedure which ends transactions may be freed (pg_stat_statements.c,
 * pgss_ProcessUtility).
 *
 * COMMIT PREPARED and ROLLBACK PREPARED finish another transaction, of which
 * no callback is called (twophase.c, FinishPreparedTransaction).
 */
static void
utility_hook(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	const Node *utility = pstmt->utilityStmt;
	const TransactionStmt *end = (const TransactionStmt *) utility;
	bool		finishes = IsA(utility, TransactionStmt) &&
		(end->kind == TRANS_STMT_COMMIT_PREPARED || end->kind == TRANS_STMT_ROLLBACK_PREPARED);
	bool		alters = IsA(utility, AlterTableStmt);
	PmhashStatement statement;

	if (may_build_indexes(utility))
		pmhash_apply_inserts(NULL);
	utility_begins(utility, &statement);
	PG_TRY();
	{
		if (previous_utility)
			previous_utility(pstmt, queryString, readOnlyTree, context, params,
							 queryEnv, dest, qc);
		else
			standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
									queryEnv, dest, qc);
	}
	PG_FINALLY();
	{
		forget(&statement);
	}
	PG_END_TRY();
	if (finishes)
		pmhash_request(MyDatabaseId, PMHASH_JOB_PLAIN);
	if (alters)
		tell_of_parameters((const AlterTableStmt *) utility);
	pmhash_row_types_check();
}

static ExecutorStart_hook_type previous_executor_start = NULL;
static ExecutorRun_hook_type previous_executor_run = NULL;

/*
 * What a plan's workers must find in tables is put there right before they are started:
 * they are by the plan's first run only, and nowhere else (execMain.c, ExecutePlan:
 * es_use_parallel_mode).
 */
#if PG_VERSION_NUM >= 180000
#define RUN_PARAMETERS	QueryDesc *queryDesc, ScanDirection direction, uint64 count
#define RUN_ARGUMENTS	queryDesc, direction, count
#else
#define RUN_PARAMETERS	QueryDesc *queryDesc, ScanDirection direction, uint64 count, bool once
#define RUN_ARGUMENTS	queryDesc, direction, count, once
#endif

static void
executor_run(RUN_PARAMETERS)
{
	if (unlikely(queryDesc->plannedstmt->parallelModeNeeded))
		pmhash_apply_inserts(NULL);
	if (previous_executor_run)
		previous_executor_run(RUN_ARGUMENTS);
	else
		standard_ExecutorRun(RUN_ARGUMENTS);
}

/* Remember a statement that the executor has been started for, if need be. */
static void
executor_start(QueryDesc *queryDesc, int eflags)
{
	const PlannedStmt *planned = queryDesc->plannedstmt;
	bool		inserts = planned->hasModifyingCTE ||
		(planned->commandType != CMD_SELECT && planned->commandType != CMD_DELETE);
	bool		skips_locked = pmhash_skips_locked(planned, 0);
	MemoryContext context;
	PmhashStatement *statement;

	if (previous_executor_start)
		previous_executor_start(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
	if (!inserts && !skips_locked)
		return;
	context = queryDesc->estate->es_query_cxt;
	Assert(pmhash_statement_in(context) == NULL);
	statement = MemoryContextAllocZero(context, sizeof(PmhashStatement));
	statement->context = context;
	statement->planned = planned;
	statement->plan = queryDesc->planstate;
	statement->inserts = inserts;
	statement->skips_locked = skips_locked;
	statement->callback.func = forget;
	statement->callback.arg = statement;
	MemoryContextRegisterResetCallback(context, &statement->callback);
	statement->next = statements;
	statements = statement;
}

/* Install the hooks. */
void
pmhash_hooks_init(void)
{
	Assert(process_shared_preload_libraries_in_progress && ExecutorRun_hook != executor_run);
	previous_hook = object_access_hook;
	object_access_hook = object_hook;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
	previous_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
	previous_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = executor_run;
}
