/*-------------------------------------------------------------------------
 *
 * utility_hook.c
 *	  What pmhash does before and after utility statements.
 *
 * Statements may nest: this is called again within one that is being executed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "am/insert_queue.h"
#include "am/row_types.h"
#include "am/statements.h"
#include "am/utility_hook.h"
#include "cluster/launcher.h"
#include "cluster/logged.h"
#include "cluster/new_database.h"
#include "cluster/older_snapshots.h"
#include "cluster/requests.h"

static ProcessUtility_hook_type previous_hook = NULL;

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
		if (previous_hook)
			previous_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv,
						  dest, qc);
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
		pmhash_request_cleaning(MyDatabaseId);
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
	previous_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}
