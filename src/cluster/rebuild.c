/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  Rebuilding invalid indexes.
 *
 * An invalid index is rebuilt in place: a new file is filled from the table,
 * then the stub in the index's main fork is made to name it.  No catalog row
 * and no main fork is replaced, so the index needs no AccessExclusiveLock,
 * which would keep all queries on the table waiting (each locks every index of
 * its table when it is planned).  Locks, until the commit:
 *
 *	ShareLock on the table: waits for every transaction that has written to it,
 *		prepared ones too, since they keep their RowExclusiveLock until they
 *		end.  So whoever has skipped an insert is over, and the table has its
 *		row or never will.  Writers, VACUUM and DDL wait for us; readers don't.
 *	ShareUpdateExclusiveLock on the index: against REINDEX and others like us.
 *
 * Skipping ends for this reason: who inserts holds RowExclusiveLock on the
 * table, so he has it either before our ShareLock is granted or after it is
 * released, at which time the stub names the new file and its generation has
 * stepped; and at the beginning of each statement an inserter decides by
 * the stub, never by what it remembers of an invalid index.
 *
 * The scan is that of a REINDEX.  Constraints need no new check: no row has
 * been let in unchecked.  The entries need no journal, for the reasons that
 * src/README gives for builds; the stub's WAL record takes the part of the
 * commit record there.
 *
 * The wait for ShareLock makes others wait behind it, so it is given up after
 * lock_timeout and tried again later, as after any failure.  What is being
 * done and why it has failed stands in shared memory, for the view and for the
 * launcher; it is no more than a notice, and if all places are taken
 * nothing is noted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
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
#include "utils/timestamp.h"

#include "cluster/internal.h"

#define LONGEST_PAUSE	300		/* seconds between tries */

/* ---- the table of rebuilds ---- */

/* The entry of an index, or NULL.  The caller holds the rebuild lock. */
static PmhashRebuild *
find_rebuild(Oid database, Oid index)
{
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == database && r->index == index)
			return r;
	}
	return NULL;
}

/* What is known of the rebuild of an index of this database. */
bool
pmhash_rebuild_state(Oid index, PmhashRebuild *state)
{
	PmhashRebuild *r;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	r = find_rebuild(MyDatabaseId, index);
	if (r != NULL)
		*state = *r;
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return r != NULL;
}

/* Note that a rebuild has begun. */
static void
note_begin(Oid index)
{
	PmhashRebuild *r;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	r = find_rebuild(MyDatabaseId, index);
	if (r == NULL)
	{
		r = find_rebuild(InvalidOid, InvalidOid);
		if (r != NULL)
		{
			memset(r, 0, sizeof(*r));
			r->database = MyDatabaseId;
			r->index = index;
		}
	}
	if (r != NULL)
		r->running = true;
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/* Note a failure and when to try again; returns the pause in seconds. */
static int
note_failure(Oid index, const char *message)
{
	PmhashRebuild *r;
	int			pause = LONGEST_PAUSE;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	r = find_rebuild(MyDatabaseId, index);
	if (r != NULL)
	{
		pause = r->failures < 8 ? Min(1 << r->failures, LONGEST_PAUSE) : LONGEST_PAUSE;
		r->running = false;
		r->failures++;
		r->next_try = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), pause * 1000L);
		strlcpy(r->failure, message, PMHASH_FAILURE_SIZE);
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return pause;
}

/* Forget an index of this database. */
static void
note_end(Oid index)
{
	PmhashRebuild *r;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	r = find_rebuild(MyDatabaseId, index);
	if (r != NULL)
		memset(r, 0, sizeof(*r));
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/* Forget a database. */
void
pmhash_rebuild_forget(Oid database)
{
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		if (pmhash_shared->rebuild[i].database == database)
			memset(&pmhash_shared->rebuild[i], 0, sizeof(PmhashRebuild));
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/* Forget those indexes of this database that are not in the list any more. */
static void
forget_dropped(List *indexes)
{
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == MyDatabaseId && !list_member_oid(indexes, r->index))
			memset(r, 0, sizeof(*r));
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/*
 * Databases with a failed rebuild that is to be tried again by now.  *next is
 * made earlier if another is due before it.
 */
List *
pmhash_rebuilds_due(TimestampTz now, TimestampTz *next)
{
	Oid			due[PMHASH_MAX_REBUILDS];
	int			n = 0;
	List	   *databases = NIL;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		const PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == InvalidOid || r->running)
			continue;
		if (r->next_try <= now)
			due[n++] = r->database;
		else if (r->next_try < *next)
			*next = r->next_try;
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	for (int i = 0; i < n; i++)
		databases = list_append_unique_oid(databases, due[i]);
	return databases;
}

/*
 * A backend has met an invalid index of this database.  Unless that is known,
 * or it has said so of this one within the last second, the launcher is told.
 */
void
pmhash_rebuild_wanted(Oid index)
{
	static Oid	last_index = InvalidOid;
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();
	PmhashRebuild state;

	if ((index == last_index && !TimestampDifferenceExceeds(last, now, 1000)) ||
		pmhash_rebuild_state(index, &state))
		return;
	last_index = index;
	last = now;
	pmhash_nudge_look(MyDatabaseId);
}

/* Is a new try of a failed rebuild not due yet? */
static bool
has_to_wait(Oid index)
{
	PmhashRebuild state;

	return pmhash_rebuild_state(index, &state) && !state.running &&
		state.next_try > GetCurrentTimestamp();
}

/* ---- one index ---- */

/*
 * Has it to be rebuilt?  Not if it takes no inserts (CREATE INDEX CONCURRENTLY
 * and DROP INDEX CONCURRENTLY at work, or what such a one has left).
 */
static bool
is_invalid(Relation index, PmhashReason *reason)
{
	*reason = PMHASH_REASON_NONE;
	if (pmhash_is_index(index) && index->rd_index->indisready &&
		index->rd_index->indislive)
		*reason = pmhash_index_doubt(index);
	return *reason != PMHASH_REASON_NONE;
}

/*
 * Look at an index in a transaction of its own, and tell its name.  One that
 * is locked is not looked at: somebody drops or rebuilds it.  ERROR if it can't
 * be rebuilt as long as the pool is not in its place: if that comes back, so
 * may the index.
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
	needed = is_invalid(index, &reason);
	relation_close(index, NoLock);
	if (needed)
		pmhash_require_pool_in_place();
	return needed;
}

/* For pg_stat_progress_create_index; index_build tells the rest. */
static void
report_begin(Relation heap, Relation index)
{
	const int	column[] = {
		PROGRESS_CREATEIDX_COMMAND,
		PROGRESS_CREATEIDX_INDEX_OID,
		PROGRESS_CREATEIDX_ACCESS_METHOD_OID
	};
	const int64 value[] = {
		PROGRESS_CREATEIDX_COMMAND_REINDEX,
		RelationGetRelid(index),
		index->rd_rel->relam
	};

	pgstat_progress_start_command(PROGRESS_COMMAND_CREATE_INDEX, RelationGetRelid(heap));
	pgstat_progress_update_multi_param(lengthof(column), column, value);
}

/*
 * Fill a new file and make the stub name it.  As reindex_index (index.c), with
 * the table owner's rights for what expressions of the index call.
 */
static void
build_in_place(Relation heap, Relation index)
{
	IndexInfo  *info;
	Oid			user;
	int			context;
	int			nest_level;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(heap->rd_rel->relowner,
						   context | SECURITY_RESTRICTED_OPERATION);
	nest_level = NewGUCNestLevel();
	info = BuildIndexInfo(index);
	info->ii_Unique = false;
	info->ii_ExclusionOps = NULL;
	info->ii_ExclusionProcs = NULL;
	info->ii_ExclusionStrats = NULL;

	pmhash_file_begin_replacement(index);
	index_build(heap, index, info, true, false);
	PMH_STOP_POINT("rebuild_before_stub");
	pmhash_file_end_replacement(index);

	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(user, context);
}

/* Rebuild a locked index of a locked table. */
static void
rebuild_locked(Relation heap, Relation index, PmhashReason reason)
{
	char		path[MAXPGPATH];

	report_begin(heap, index);

	/* From here on nobody opens the old file; make room for the new one. */
	if (pmhash_stub_invalidate(index, 0, reason))
		pmhash_stub_changed();
	if (pmhash_index_path(index, true, path))
		pmhash_unlink(path);

	TransferPredicateLocksToHeapRelation(index);
	PMH_STOP_POINT("rebuild_before_build");
	build_in_place(heap, index);
	CacheInvalidateRelcache(heap);
	pgstat_progress_end_command();
	ereport(LOG,
			(errmsg("pmhash: index \"%s\" of table \"%s\" has been rebuilt",
					RelationGetRelationName(index), RelationGetRelationName(heap)),
			 errdetail("The file it had before could not be used: %s.",
					   pmhash_reason_text(reason))));
}

/* Lock table and index, look again, rebuild. */
static void
lock_and_rebuild(Oid relid)
{
	Oid			heap_oid = IndexGetRelation(relid, true);
	Relation	heap = NULL;
	Relation	index = NULL;
	PmhashReason reason;

	if (OidIsValid(heap_oid))
		heap = try_relation_open(heap_oid, ShareLock);
	if (heap != NULL)
		index = try_relation_open(relid, ShareUpdateExclusiveLock);
	if (index != NULL && index->rd_index != NULL &&
		index->rd_index->indrelid == heap_oid && is_invalid(index, &reason))
		rebuild_locked(heap, index, reason);
	if (index != NULL)
		relation_close(index, NoLock);
	if (heap != NULL)
		relation_close(heap, NoLock);
}

/* A failed try is over: note it and go on with the next index. */
static void
give_up(Oid relid, const char *name, MemoryContext context)
{
	ErrorData  *error;
	int			pause;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	AbortOutOfAnyTransaction();
	FlushErrorState();
	pmhash_file_cancel_replacement(relid);
	note_begin(relid);
	pause = note_failure(relid, error->message);
	ereport(LOG,
			(errmsg("pmhash: could not rebuild index \"%s\": %s",
					name, error->message),
			 errdetail("The next try is in %d seconds.", pause)));
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

	PG_TRY();
	{
		StartTransactionCommand();
		needed = needs_rebuild(relid, name);
		CommitTransactionCommand();
		if (needed)
		{
			note_begin(relid);
			StartTransactionCommand();
			PushActiveSnapshot(GetTransactionSnapshot());
			lock_and_rebuild(relid);
			PopActiveSnapshot();
			CommitTransactionCommand();
		}
		note_end(relid);
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
	Oid			running = InvalidOid;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == MyDatabaseId && r->running)
			running = r->index;
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	if (OidIsValid(running))
		(void) note_failure(running, "the worker was terminated");
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
	indexes = pmhash_list_indexes(false);
	MemoryContextSwitchTo(context);
	indexes = list_copy(indexes);
	CommitTransactionCommand();

	MemoryContextSwitchTo(context);
	forget_dropped(indexes);
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
		if (!has_to_wait(lfirst_oid(lc)))
			rebuild_index(lfirst_oid(lc));
	}
	MemoryContextDelete(context);
}
