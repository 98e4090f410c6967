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

#include "access/htup_details.h"
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
#include "storage/proc.h"
#include "utils/backend_progress.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "cluster/base/versions.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/index_list.h"
#include "cluster/queue/rebuild_table.h"
#include "cluster/queue/requests.h"
#include "cluster/workers/workers.h"

/* Of this worker: has it left some that it was to rebuild, or failed with one unnoted? */
static PmhashWorkerResult result_of_pass = PMHASH_WORKER_DONE;

/* ---- one index ---- */

/*
 * Look at an index in a transaction of its own, and return its name and table.  One that
 * is locked is not looked at: another session drops or rebuilds it.  So is one whose
 * table is locked: a transaction that has moved it, say, may stay open for hours, and
 * each rebuild would wait for it in vain.  ERROR if it can't be opened: want of memory,
 * and a catalog that can't be read just now, pass, and for how long an index has no row in
 * pg_index is not known.
 * ERROR, too, if it can't be rebuilt as long as the pool is not present: if that comes
 * back, so may the index.
 */
static bool
needs_rebuild(Oid relid, char *name, Oid *heap)
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
	needed = ConditionalLockRelationOid(index->rd_index->indrelid, AccessShareLock) &&
		pmhash_index_is_invalid(index, &reason);
	if (needed)
	{
		*heap = index->rd_index->indrelid;
		pmhash_report_index("rebuilding", index);
	}
	relation_close(index, NoLock);
	if (needed)
		pmhash_require_pool_present();
	return needed;
}

/* A process that has a lock on the table which a rebuild waits for; 0: there is none. */
static int
holder_of(Oid heap)
{
	VirtualTransactionId *holder;
	LOCKTAG		tag;
	int			n;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, heap);
	holder = GetLockConflicts(&tag, ShareUpdateExclusiveLock, &n);
	for (int i = 0; i < n; i++)
	{
		PGPROC	   *proc = pmhash_proc_of(holder[i]);

		if (proc != NULL && proc->pid != 0)
			return proc->pid;
	}
	return 0;
}

/* A failed try is over: note it and go on with the next index. */
static void
give_up(Oid relid, const char *name, Oid heap, MemoryContext context)
{
	ErrorData  *error;
	const char *hint;
	int			holder;
	int			pause;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	AbortOutOfAnyTransaction();
	FlushErrorState();
	pmhash_refill_failed();
	MemoryContextSwitchTo(context);
	(void) pmhash_rebuild_begins(relid, InvalidOid);
	holder = error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE || !OidIsValid(heap) ? 0 :
		holder_of(heap);
	if (holder != 0)
		error->message = psprintf("%s (process %d has a lock on its table)", error->message, holder);
	pmhash_counters_add(relid, PMHASH_REBUILD_FAILURES, 1);
	pause = pmhash_rebuild_failed(relid, error->sqlerrcode, error->message);
	if (pause == 0)
		result_of_pass = PMHASH_WORKER_UNFINISHED;
	hint = pmhash_rebuild_failure_hint(error->sqlerrcode);
	ereport(LOG,
			(errmsg("pmhash: could not rebuild %s: %s",
					pmhash_index_label(relid, name), error->message),
			 pause > 0 ? errdetail("The next try is in %d seconds.", pause) : 0,
			 hint ? errhint("%s", hint) : 0));
	FreeErrorData(error);
	MemoryContextSwitchTo(context);
	RESUME_INTERRUPTS();
}

/*
 * Rebuild an index if it is invalid; not while the worker of the other kind is at its
 * table, until another worker comes.  Its name goes into name[NAMEDATALEN],
 * its table into *heap.
 */
static void
rebuild_if_needed(Oid relid, char *name, volatile Oid *heap)
{
	Oid			table = InvalidOid;
	bool		needed;

	StartTransactionCommand();
	needed = needs_rebuild(relid, name, &table);
	CommitTransactionCommand();
	*heap = table;
	if (needed)
	{
		if (!pmhash_rebuild_begins(relid, table))
		{
			result_of_pass = Min(result_of_pass, PMHASH_WORKER_LEFT_SOME);
			return;
		}
		pmhash_refill(relid);
		pmhash_counters_add(relid, PMHASH_REBUILDS, 1);
	}
	pmhash_rebuild_is_over(relid);
}

/* The same; an error is noted. */
static void
rebuild_index(Oid relid)
{
	MemoryContext context = CurrentMemoryContext;
	char		name[NAMEDATALEN] = "";
	volatile Oid heap = InvalidOid;

	pmhash_refill_forget();
	PG_TRY();
	{
		rebuild_if_needed(relid, name, &heap);
	}
	PG_CATCH();
	{
		give_up(relid, name, heap, context);
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
 * The indexes of this database, not temporary ones, that are of this kind: first those of
 * constraints, without which their tables cannot be written to.  In a transaction; lists
 * are made in 'context'.  *rest: those of the other kind.
 */
static List *
list_in_order(PmhashBuildKind kind, MemoryContext context, List **rest)
{
	List	   *all = pmhash_list_indexes(false);
	MemoryContext old = MemoryContextSwitchTo(context);
	List	   *first = NIL;
	List	   *others = NIL;
	ListCell   *lc;

	*rest = NIL;

	foreach(lc, all)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID,
											ObjectIdGetDatum(lfirst_oid(lc)));
		bool		constraint = false;
		bool		ours = kind == PMHASH_BUILD_PLAIN;

		if (HeapTupleIsValid(tuple))
		{
			Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);

			constraint = form->indisexclusion || form->indisunique;
			ours = pmhash_build_kind(tuple) == kind;
			ReleaseSysCache(tuple);
		}
		if (!ours)
			*rest = lappend_oid(*rest, lfirst_oid(lc));
		else if (constraint)
			first = lappend_oid(first, lfirst_oid(lc));
		else
			others = lappend_oid(others, lfirst_oid(lc));
	}
	first = list_concat(first, others);
	MemoryContextSwitchTo(old);
	return first;
}

/*
 * Some of these, which a rebuilder of the other kind sees to, may be to be rebuilt.  Not
 * before the plain ones of the database have been: functions that take long hold up those
 * of the same table.
 */
static void
request_other_kind(const List *indexes)
{
	ListCell   *lc;

	foreach(lc, indexes)
	{
		if (!pmhash_rebuild_has_to_wait(lfirst_oid(lc)))
		{
			pmhash_request(MyDatabaseId, PMHASH_JOB_EXPRESSIONS);
			return;
		}
	}
}

/*
 * Rebuild the invalid indexes of this kind of the database this worker is connected to,
 * except temporary ones, which only their sessions can, and those that have
 * failed a short time ago.  Not in a transaction.
 */
PmhashWorkerResult
pmhash_rebuild_database(PmhashBuildKind kind)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext,
												  "pmhash rebuild",
												  ALLOCSET_DEFAULT_SIZES);
	List	   *indexes;
	List	   *rest;
	ListCell   *lc;

	pmhash_rebuild_pass_begins(kind);
	before_shmem_exit(rebuilder_exit, (Datum) 0);
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	pgstat_report_activity(STATE_RUNNING, "looking for invalid pmhash indexes");
	indexes = list_in_order(kind, context, &rest);
	CommitTransactionCommand();

	MemoryContextSwitchTo(context);
	pmhash_rebuild_forget_dropped(indexes, rest);
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
	if (kind == PMHASH_BUILD_PLAIN)
		request_other_kind(rest);
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(context);
	return result_of_pass;
}
