/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  What pmhash takes note of when objects are made, altered and dropped, and does
 *	  before and after utility statements.
 *
 * The server calls the hook for each object that a statement makes, alters or drops,
 * before the change can be seen.  What is noted is looked at when the statement or the
 * transaction is over; only a new database is looked at here and now, since its files
 * are copied next (new_database.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"

#include "am/am.h"
#include "am/insert_queue.h"
#include "am/row_types.h"
#include "am/statements.h"
#include "cluster/launcher.h"
#include "cluster/life_cycle.h"
#include "cluster/logged.h"
#include "cluster/new_database.h"
#include "cluster/older_snapshots.h"
#include "cluster/requests.h"

static object_access_hook_type previous_hook = NULL;

/* A column of a table, or an attribute of a composite type. */
static void
note_column(ObjectAccessType access, Oid relid, AttrNumber attno)
{
	if (access == OAT_POST_CREATE || access == OAT_DROP)
		pmhash_row_types_note(relid, 0);
	else if (access == OAT_POST_ALTER)
		pmhash_row_types_note(relid, attno);
}

static void
note_database(ObjectAccessType access, Oid database)
{
	if (access == OAT_DROP)
		pmhash_note_database_drop(database);
	else if (access == OAT_POST_CREATE)
		pmhash_note_database(database);
}

static void
object_hook(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	if (previous_hook)
		previous_hook(access, classId, objectId, subId, arg);
	if (classId == DatabaseRelationId)
		note_database(access, objectId);
	else if (classId == RelationRelationId && subId == 0)
	{
		if (access == OAT_DROP && get_rel_relkind(objectId) == RELKIND_INDEX)
			pmhash_note_drop(objectId);
	}
	else if (classId == RelationRelationId && subId > 0)
		note_column(access, objectId, (AttrNumber) subId);
}

/* Install the hook.  Called once, while the library is preloaded. */
void
pmhash_object_hook_init(void)
{
	previous_hook = object_access_hook;
	object_access_hook = object_hook;
}

/*
 * What pmhash does before and after utility statements.
 *
 * Statements may nest: this is called again within one that is being executed.
 */

static ProcessUtility_hook_type previous_utility = NULL;

/*
 * COMMIT PREPARED and ROLLBACK PREPARED finish another transaction, of which
 * no callback is called (twophase.c, FinishPreparedTransaction).
 */
static bool
finishes_prepared(const Node *utility)
{
	TransactionStmtKind kind;

	if (!IsA(utility, TransactionStmt))
		return false;
	kind = ((const TransactionStmt *) utility)->kind;
	return kind == TRANS_STMT_COMMIT_PREPARED || kind == TRANS_STMT_ROLLBACK_PREPARED;
}

/* Is it SET TRANSACTION SNAPSHOT? */
static bool
imports_snapshot(const Node *utility)
{
	const VariableSetStmt *set = (const VariableSetStmt *) utility;

	return IsA(utility, VariableSetStmt) && set->kind == VAR_SET_MULTI &&
		strcmp(set->name, "TRANSACTION SNAPSHOT") == 0;
}

/* It has changed the storage parameter "wal", perhaps of an index of ours. */
static void
tell_of_parameters(const AlterTableStmt *stmt)
{
	ListCell   *lc;
	ListCell   *option;

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

/* Execute the statement; while it lasts it is remembered (statements.c). */
static void
execute(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
		ProcessUtilityContext context, ParamListInfo params,
		QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	PmhashStatement statement;

	pmhash_utility_begins(pstmt->utilityStmt, &statement);
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
		pmhash_utility_ends(&statement);
	}
	PG_END_TRY();
}

/*
 * What has to be known of the statement is found out before it is executed: that of a
 * procedure which ends transactions may be freed (pg_stat_statements.c,
 * pgss_ProcessUtility).
 */
static void
utility_hook(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	const Node *utility = pstmt->utilityStmt;
	bool		finishes = finishes_prepared(utility);
	bool		checkpoint = IsA(utility, CheckPointStmt);
	bool		alters = IsA(utility, AlterTableStmt);

	if (pmhash_may_build_indexes(utility))
		pmhash_apply_inserts(NULL);
	if (imports_snapshot(utility))
		pmhash_snapshot_is_imported();
	pmhash_note_statement(utility);
	execute(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (finishes)
		pmhash_request(MyDatabaseId, PMHASH_JOB_CLEAN);
	if (checkpoint)
		pmhash_checkpoint_made();
	if (alters)
		tell_of_parameters((const AlterTableStmt *) utility);
	pmhash_row_types_check();
}

/* Install the hook.  Called once, while the library is preloaded. */
void
pmhash_utility_hook_init(void)
{
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}
