/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  Rebuilding invalid indexes.
 *
 * Which of them, and in what order; when one is tried again is in rebuild_table.c,
 * how it is rebuilt in refill.c.  A rebuild waits for transactions that are open,
 * each for lock_timeout.  Then it fails, and is tried again later, as after any
 * failure.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_index.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "utils/backend_progress.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "cluster/cluster.h"
#include "cluster/file_open.h"
#include "cluster/life_cycle.h"
#include "cluster/orphans.h"
#include "cluster/rebuild.h"
#include "cluster/rebuild_table.h"
#include "cluster/refill.h"
#include "cluster/shared.h"
#include "cluster/startup.h"

/* ---- one index ---- */

/*
 * Look at an index in a transaction of its own, and return its name.  One that
 * is locked is not looked at: another session drops or rebuilds it.  ERROR if
 * it can't be rebuilt as long as the pool is not present: if that comes back,
 * so may the index.
 */
static bool
needs_rebuild(Oid relid, char *name)
{
	Relation	index;
	PmhashReason reason;
	bool		needed;

	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return false;
	index = try_relation_open(relid, NoLock);
	if (index == NULL)
		return false;
	strlcpy(name, RelationGetRelationName(index), NAMEDATALEN);
	needed = pmhash_index_is_invalid(index, &reason);
	relation_close(index, NoLock);
	if (needed)
		pmhash_require_pool_present();
	return needed;
}

/* A failed try is over: note it and go on with the next index. */
static void
give_up(Oid relid, const char *name, MemoryContext context)
{
	ErrorData  *error;
	const char *hint;
	int			pause;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	AbortOutOfAnyTransaction();
	FlushErrorState();
	pmhash_refill_failed();
	MemoryContextSwitchTo(context);
	pmhash_rebuild_begins(relid);
	pmhash_counters_add(relid, PMHASH_REBUILD_FAILURES, 1);
	pause = pmhash_rebuild_failed(relid, error->sqlerrcode, error->message);
	hint = pmhash_rebuild_failure_hint(error->sqlerrcode);
	ereport(LOG,
			(errmsg("pmhash: could not rebuild index \"%s\": %s",
					name, error->message),
			 errdetail("The next try is in %d seconds.", pause),
			 hint ? errhint("%s", hint) : 0));
	FreeErrorData(error);
	MemoryContextSwitchTo(context);
	RESUME_INTERRUPTS();
}

static void
rebuild_index(Oid relid)
{
	MemoryContext context = CurrentMemoryContext;
	char		name[NAMEDATALEN] = "";
	bool		needed;

	pmhash_refill_forget();
	PG_TRY();
	{
		StartTransactionCommand();
		needed = needs_rebuild(relid, name);
		CommitTransactionCommand();
		if (needed)
		{
			pmhash_rebuild_begins(relid);
			pmhash_refill(relid);
			pmhash_counters_add(relid, PMHASH_REBUILDS, 1);
		}
		pmhash_rebuild_is_over(relid);
	}
	PG_CATCH();
	{
		give_up(relid, name, context);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}

/* ---- a database ---- */

/* At exit: if it comes in the middle of a rebuild, that is a failure too. */
static void
rebuilder_exit(int code, Datum arg)
{
	Oid			running = pmhash_rebuild_running();

	if (OidIsValid(running))
		(void) pmhash_rebuild_failed(running, ERRCODE_ADMIN_SHUTDOWN, "the worker was terminated");
}

/*
 * The indexes of this database, not temporary ones: first those of constraints,
 * without which their tables cannot be written to.  In a transaction; the list
 * is made in 'context'.
 */
static List *
list_in_order(MemoryContext context)
{
	List	   *all = pmhash_list_indexes(false);
	MemoryContext old = MemoryContextSwitchTo(context);
	List	   *first = NIL;
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, all)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID,
											ObjectIdGetDatum(lfirst_oid(lc)));
		bool		constraint = false;

		if (HeapTupleIsValid(tuple))
		{
			Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);

			constraint = form->indisexclusion || form->indisunique;
			ReleaseSysCache(tuple);
		}
		if (constraint)
			first = lappend_oid(first, lfirst_oid(lc));
		else
			others = lappend_oid(others, lfirst_oid(lc));
	}
	first = list_concat(first, others);
	MemoryContextSwitchTo(old);
	return first;
}

/*
 * Rebuild the invalid indexes of the database this worker is connected to,
 * except temporary ones, which only their sessions can, and those that have
 * failed a short time ago.  Not in a transaction.
 */
void
pmhash_rebuild_database(void)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext,
												  "pmhash rebuild",
												  ALLOCSET_DEFAULT_SIZES);
	List	   *indexes;
	ListCell   *lc;

	before_shmem_exit(rebuilder_exit, (Datum) 0);
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	pgstat_report_activity(STATE_RUNNING, "rebuilding invalid pmhash indexes");
	indexes = list_in_order(context);
	CommitTransactionCommand();

	MemoryContextSwitchTo(context);
	pmhash_rebuild_forget_dropped(indexes);
	pmhash_rebuild_pass_begins();
	foreach(lc, indexes)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (!pmhash_rebuild)
			break;
		if (!pmhash_rebuild_has_to_wait(lfirst_oid(lc)))
			rebuild_index(lfirst_oid(lc));
	}
	if (lc == NULL)
		pmhash_rebuild_pass_ends();
	MemoryContextDelete(context);
}
