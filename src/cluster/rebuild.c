/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  Rebuilding invalid indexes.
 *
 * Which indexes are rebuilt, when, and what is known of it; how one is rebuilt
 * is in refill.c.
 *
 * A rebuild waits for transactions that are open, each for lock_timeout.  Then it
 * fails, and is tried again later, as after any failure.  What is being
 * done and why it has failed stands in shared memory, for the view and for the
 * launcher.  When all slots are taken, failures are noted for the database as a
 * whole: one slot stands for all its indexes that have none, and is taken from
 * one of them.  So there is always a pause before the next try.
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

#include "cluster/clock.h"
#include "cluster/cluster.h"
#include "cluster/file_open.h"
#include "cluster/life_cycle.h"
#include "cluster/orphans.h"
#include "cluster/rebuild.h"
#include "cluster/refill.h"
#include "cluster/requests.h"
#include "cluster/shared.h"
#include "cluster/startup.h"
#define LONGEST_PAUSE	300		/* seconds between tries */
#define MANY_FAILURES	3		/* after these a person has to see to it */

/* ---- the table of rebuilds ---- */

/*
 * The pass of this worker over its database: those without a slot of their own
 * are all tried in it, or none.
 */
static bool rest_waits = false;	/* it is not their time yet */
static bool rest_failed = false;	/* one of them has failed in this pass */

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

/*
 * What is known of the rebuild of an index of this database; of those without a
 * slot of their own what they share, with index InvalidOid.
 */
bool
pmhash_rebuild_state(Oid index, PmhashRebuild *state)
{
	PmhashRebuild *r;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	r = find_rebuild(MyDatabaseId, index);
	if (r == NULL)
		r = find_rebuild(MyDatabaseId, InvalidOid);
	if (r != NULL)
		*state = *r;
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return r != NULL;
}

/* Take a free slot, if there is one. */
static PmhashRebuild *
new_rebuild(Oid index)
{
	PmhashRebuild *r = find_rebuild(InvalidOid, InvalidOid);

	if (r != NULL)
	{
		memset(r, 0, sizeof(*r));
		r->database = MyDatabaseId;
		r->index = index;
	}
	return r;
}

/* Note that a rebuild has begun. */
static void
note_begin(Oid index)
{
	PmhashRebuild *r;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	r = find_rebuild(MyDatabaseId, index);
	if (r == NULL)
		r = new_rebuild(index);
	if (r != NULL)
		r->running = true;
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/* A slot whose rebuild is not going on, of the database or (InvalidOid) of any. */
static PmhashRebuild *
idle_rebuild(Oid database)
{
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (!r->running && (database == InvalidOid || r->database == database))
			return r;
	}
	return NULL;
}

/*
 * The slot for failures of this database's indexes that have none.  If there is
 * none for it either, an index of this database gives up its own and is one of
 * these from now on; if it has no slot at all, an index of another database
 * does, which will be tried once too often.
 */
static PmhashRebuild *
rest_of_database(void)
{
	PmhashRebuild *r = find_rebuild(MyDatabaseId, InvalidOid);

	if (r == NULL)
		r = new_rebuild(InvalidOid);
	if (r == NULL)
		r = idle_rebuild(MyDatabaseId);
	if (r == NULL)
	{
		r = idle_rebuild(InvalidOid);
		if (r == NULL)
			return NULL;
		memset(r, 0, sizeof(*r));
		r->database = MyDatabaseId;
	}
	r->index = InvalidOid;
	return r;
}

/* Seconds to wait after so many failures. */
static int
pause_after(int failures)
{
	return failures < 8 ? Min(1 << failures, LONGEST_PAUSE) : LONGEST_PAUSE;
}

/*
 * Note a failure and when to try again; returns the pause in seconds.  Those that
 * share a slot fail together, in one pass over the database: that counts once.
 */
static int
note_failure(Oid index, int sqlstate, const char *message)
{
	PmhashRebuild *r;
	int64		now = pmhash_clock_ms();
	int			pause = LONGEST_PAUSE;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	r = find_rebuild(MyDatabaseId, index);
	if (r == NULL)
		r = rest_of_database();
	if (r != NULL)
	{
		if (r->next_try <= now)
			r->next_try = now + pause_after(r->failures++) * INT64CONST(1000);
		pause = (int) ((r->next_try - now + 999) / 1000);
		rest_failed |= !OidIsValid(r->index);
		r->running = false;
		r->sqlstate = sqlstate;
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

		if (r->database == MyDatabaseId && OidIsValid(r->index) &&
			!list_member_oid(indexes, r->index))
			memset(r, 0, sizeof(*r));
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/*
 * Databases with a failed rebuild that is to be tried again by now (pmhash_clock_ms).
 * *next is made earlier if another is due before it.
 */
List *
pmhash_rebuilds_due(int64 now, int64 *next)
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
 * or it has said so of this one within the last second, the launcher is woken.
 */
void
pmhash_rebuild_wanted(Oid index)
{
	static Oid	last_index = InvalidOid;
	static int64 last = 0;
	int64		now = pmhash_clock_ms();
	PmhashRebuild state;

	if ((index == last_index && now - last < 1000) ||
		pmhash_rebuild_state(index, &state))
		return;
	last_index = index;
	last = now;
	pmhash_request_look(MyDatabaseId);
}

static void
begin_pass(void)
{
	PmhashRebuild state;

	rest_waits = pmhash_rebuild_state(InvalidOid, &state) &&
		state.next_try > pmhash_clock_ms();
	rest_failed = false;
}

/* All that could be rebuilt has been: forget what was noted of the rest. */
static void
end_pass(void)
{
	if (!rest_waits && !rest_failed)
		note_end(InvalidOid);
}

/* Is a new try of a failed rebuild not due yet? */
static bool
has_to_wait(Oid index)
{
	PmhashRebuild state;

	if (!pmhash_rebuild_state(index, &state) || state.running)
		return false;
	return OidIsValid(state.index) ? state.next_try > pmhash_clock_ms() : rest_waits;
}

/* Has the rebuild of an index failed so often that waiting will not help? */
bool
pmhash_rebuild_keeps_failing(Oid index, PmhashRebuild *state)
{
	return pmhash_rebuild_state(index, state) && state->index == index &&
		state->failures >= MANY_FAILURES;
}

/* ---- one index ---- */

/*
 * Has it to be rebuilt?  Not if it takes no inserts (CREATE INDEX CONCURRENTLY
 * and DROP INDEX CONCURRENTLY at work, or what such a one has left).
 */
bool
pmhash_index_is_invalid(Relation index, PmhashReason *reason)
{
	*reason = PMHASH_REASON_NONE;
	if (pmhash_is_index(index) && index->rd_index->indisready &&
		index->rd_index->indislive)
		*reason = pmhash_index_doubt(index);
	return *reason != PMHASH_REASON_NONE;
}

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

/*
 * What to do about a rebuild that fails with this SQLSTATE, or NULL.  A worker has
 * the search_path of the database, not of the session that made the index (from
 * PostgreSQL 17 on, builds have a fixed one: usercontext.c, RestrictSearchPath), so
 * an expression that calls others by their bare names may not find them.
 */
const char *
pmhash_rebuild_failure_hint(int sqlstate)
{
	switch (sqlstate)
	{
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_UNDEFINED_TABLE:
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_UNDEFINED_SCHEMA:
		case ERRCODE_AMBIGUOUS_FUNCTION:
			return "A function that the index calls may depend on search_path: set it for the function with ALTER FUNCTION ... SET search_path.";
		default:
			return NULL;
	}
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
	note_begin(relid);
	pmhash_counters_add(relid, PMHASH_REBUILD_FAILURES, 1);
	pause = note_failure(relid, error->sqlerrcode, error->message);
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
			note_begin(relid);
			pmhash_refill(relid);
			pmhash_counters_add(relid, PMHASH_REBUILDS, 1);
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
		(void) note_failure(running, ERRCODE_ADMIN_SHUTDOWN, "the worker was terminated");
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
	forget_dropped(indexes);
	begin_pass();
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
	if (lc == NULL)
		end_pass();
	MemoryContextDelete(context);
}
