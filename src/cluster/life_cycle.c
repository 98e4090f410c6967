/*-------------------------------------------------------------------------
 *
 * life_cycle.c
 *	  Files follow transactions.
 *
 * Made		on a list with the nesting level of its (sub)transaction; an abort
 *			of that level removes the file.  COMMIT and PREPARE keep it.
 * Dropped	the object access hook notes the file of every pmhash index that
 *			is deleted; it is removed behind the commit record.  That is
 *			flushed by then: a transaction that drops relation files never
 *			commits asynchronously (xact.c, RecordTransactionCommit, nrels).
 *			An abort forgets it.  PREPARE forgets it too: what COMMIT PREPARED
 *			leaves is found by the sweeper.
 * Rebuilt	REINDEX, TRUNCATE, VACUUM FULL, CLUSTER, ALTER TABLE give the index
 *			a new main fork with a new stub; the old file is found by the
 *			sweeper, which is woken at commit.  So it is by DROP DATABASE and
 *			by COMMIT PREPARED and ROLLBACK PREPARED.
 *
 * A DROP that is not one: ALTER TABLE ... TYPE may drop an index and create
 * another one on the same main fork (tablecmds.c, TryReuseIndex); and DROP
 * INDEX CONCURRENTLY calls the hook, then commits twice before the index goes
 * (index.c, index_drop).  So before commit pg_class is asked who has the main
 * fork now.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "cluster/internal.h"

/* A file whose fate hangs on a transaction; lives in TopMemoryContext. */
typedef struct Pending
{
	int			level;			/* nesting level of the transaction */
	bool		drop;			/* else: created */
	bool		not_yet;		/* drop: the index is still there */
	Oid			relid;			/* drop: of the index */
	PmhashNode	node;			/* drop: its main fork */
	char	   *path;
} Pending;

static List *pending = NIL;
static List *temp_files = NIL;	/* paths of this backend's temporary files */
static Oid	nudge_wanted = InvalidOid;	/* database to sweep after commit */
static Oid	look_wanted = InvalidOid;	/* database made in this transaction */

static object_access_hook_type previous_access_hook = NULL;
static ProcessUtility_hook_type previous_utility_hook = NULL;

/* ---- removal ---- */

static void
forget_temp_file(const char *path)
{
	ListCell   *lc;

	foreach(lc, temp_files)
	{
		if (strcmp(lfirst(lc), path) == 0)
		{
			pfree(lfirst(lc));
			temp_files = foreach_delete_current(temp_files, lc);
			return;
		}
	}
}

/*
 * Remove a file.  It may be gone already.  Never raises an error, since it is
 * called behind commit and in aborts: what can't be removed is logged, and
 * tried again by the sweeper.
 */
void
pmhash_unlink(const char *path)
{
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
	forget_temp_file(path);
}

/* ---- the list ---- */

static Pending *
add_pending(const char *path, bool drop)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Pending    *p = palloc0(sizeof(Pending));

	p->level = GetCurrentTransactionNestLevel();
	p->drop = drop;
	p->path = pstrdup(path);
	pending = lappend(pending, p);
	MemoryContextSwitchTo(old);
	return p;
}

static void
free_pending(Pending *p)
{
	pfree(p->path);
	pfree(p);
}

/* The file at path is about to be made: an abort from here on removes it. */
void
pmhash_pending_create(const char *path)
{
	(void) add_pending(path, false);
}

/* The file at path is to stay, whatever becomes of the transaction. */
void
pmhash_pending_keep(const char *path)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);

		if (p->drop || strcmp(p->path, path) != 0)
			continue;
		free_pending(p);
		pending = foreach_delete_current(pending, lc);
	}
}

/* Something may be left over when this transaction has committed. */
void
pmhash_nudge_at_commit(void)
{
	nudge_wanted = MyDatabaseId;
}

/* ---- DROP ---- */

bool
pmhash_is_index(Relation rel)
{
	return rel->rd_rel->relkind == RELKIND_INDEX &&
		rel->rd_indam != NULL && rel->rd_indam->ambuild == pmhash_am_build;
}

/*
 * An index is being deleted.  dependency.c holds the lock on it already
 * (AcquireDeletionLock).  The stub of another session's temporary index is in
 * that session's memory; its file goes with that backend.
 */
static void
note_drop(Oid relid)
{
	Relation	index = relation_open(relid, NoLock);
	char		path[MAXPGPATH];

	if (pmhash_is_index(index) && !RELATION_IS_OTHER_TEMP(index) &&
		pmhash_index_path(index, true, path))
	{
		Pending    *p = add_pending(path, true);

		p->relid = relid;
		p->node = pmhash_node(index);
	}
	relation_close(index, NoLock);
}

static void
access_hook(ObjectAccessType access, Oid classId, Oid objectId, int subId,
			void *arg)
{
	if (previous_access_hook)
		previous_access_hook(access, classId, objectId, subId, arg);
	if (access == OAT_DROP && classId == RelationRelationId && subId == 0 &&
		get_rel_relkind(objectId) == RELKIND_INDEX)
		note_drop(objectId);
	if (access == OAT_DROP && classId == DatabaseRelationId)
		nudge_wanted = objectId;
	if (access == OAT_POST_CREATE && classId == DatabaseRelationId)
		look_wanted = objectId;
}

/*
 * COMMIT PREPARED and ROLLBACK PREPARED finish another transaction, of which
 * no callback tells us (twophase.c, FinishPreparedTransaction).
 */
static void
utility_hook(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	Node	   *statement = pstmt->utilityStmt;
	bool		finishes = IsA(statement, TransactionStmt) &&
		(((TransactionStmt *) statement)->kind == TRANS_STMT_COMMIT_PREPARED ||
		 ((TransactionStmt *) statement)->kind == TRANS_STMT_ROLLBACK_PREPARED);

	if (previous_utility_hook)
		previous_utility_hook(pstmt, queryString, readOnlyTree, context, params,
							  queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
	if (finishes)
		pmhash_nudge(MyDatabaseId);
}

/* Which index has this main fork now?  As RelidByRelfilenode, temporary too. */
static Oid
owner_of_node(const PmhashNode *node)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			owner = InvalidOid;
	Oid			tablespace = pmhash_node_tablespace(node);

	if (tablespace == MyDatabaseTableSpace)
		tablespace = InvalidOid;
	ScanKeyInit(&key[0], Anum_pg_class_reltablespace, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(tablespace));
	ScanKeyInit(&key[1], Anum_pg_class_relfilenode, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(pmhash_node_number(node)));
	scan = systable_beginscan(pg_class, ClassTblspcRelfilenodeIndexId, true,
							  NULL, 2, key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		owner = ((Form_pg_class) GETSTRUCT(tuple))->oid;
	systable_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return owner;
}

/*
 * Before commit: which of the drops are real?  Drops that are noted after
 * this (ON COMMIT DROP) are.
 */
static void
verify_drops(void)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);
		Oid			owner;

		if (!p->drop)
			continue;
		owner = owner_of_node(&p->node);
		p->not_yet = owner == p->relid;
		if (owner == InvalidOid || p->not_yet)
			continue;
		free_pending(p);
		pending = foreach_delete_current(pending, lc);
	}
}

/* ---- end of transactions ---- */

static void
at_commit(void)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);

		if (p->not_yet)
			continue;
		if (p->drop)
			pmhash_unlink(p->path);
		free_pending(p);
		pending = foreach_delete_current(pending, lc);
	}
	if (OidIsValid(nudge_wanted))
		pmhash_nudge(nudge_wanted);
	if (OidIsValid(look_wanted))
		pmhash_nudge_look(look_wanted);
	nudge_wanted = InvalidOid;
	look_wanted = InvalidOid;
}

/* Abort of what is at this nesting level or below. */
static void
at_abort(int level)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);

		if (p->level < level)
			continue;
		if (!p->drop)
		{
			pmhash_unlink(p->path);
			pmhash_files_aborted();
		}
		free_pending(p);
		pending = foreach_delete_current(pending, lc);
	}
	if (level <= 1)
	{
		nudge_wanted = InvalidOid;
		look_wanted = InvalidOid;
	}
}

/* Now it is for the sweeper to follow the prepared transaction. */
static void
at_prepare(void)
{
	ListCell   *lc;

	foreach(lc, pending)
		free_pending(lfirst(lc));
	list_free(pending);
	pending = NIL;
	nudge_wanted = InvalidOid;
}

static void
transaction_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			verify_drops();
			return;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
			at_commit();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			at_abort(0);
			break;
		case XACT_EVENT_PREPARE:
			at_prepare();
			break;
		default:
			return;
	}
	pmhash_files_at_end_of_transaction();
}

static void
subtransaction_callback(SubXactEvent event, SubTransactionId mySubid,
						SubTransactionId parentSubid, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	if (event == SUBXACT_EVENT_ABORT_SUB)
		at_abort(level);
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		foreach(lc, pending)
		{
			Pending    *p = lfirst(lc);

			p->level = Min(p->level, level - 1);
		}
	}
}

/* ---- temporary files ---- */

static void
remove_temp_files(int code, Datum arg)
{
	while (temp_files != NIL)
		pmhash_unlink(linitial(temp_files));
}

/* A file of a temporary index: it goes with this backend at the latest. */
void
pmhash_temp_file_created(const char *path)
{
	static bool registered = false;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	temp_files = lappend(temp_files, pstrdup(path));
	MemoryContextSwitchTo(old);
	if (!registered)
		before_shmem_exit(remove_temp_files, (Datum) 0);
	registered = true;
}

/* Install the callbacks; children of the postmaster inherit them. */
void
pmhash_life_cycle_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
	RegisterSubXactCallback(subtransaction_callback, NULL);
	previous_access_hook = object_access_hook;
	object_access_hook = access_hook;
	previous_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = utility_hook;
}
