/*-------------------------------------------------------------------------
 *
 * rebuild_table.c
 *	  What is known of rebuilds: which go on, which have failed and why, and when
 *	  they are tried again.
 *
 * It stands in shared memory, for the view and for the launcher.  When all rows
 * are taken, failures are noted for the database as a whole: one row stands for
 * all its indexes that have none, and is taken from one of them.  So there is
 * always a pause before the next try.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "cluster/clock.h"
#include "cluster/cluster.h"
#include "cluster/rebuild_table.h"
#include "cluster/requests.h"
#include "cluster/shared.h"

#define LONGEST_PAUSE	300		/* seconds between tries */
#define MANY_FAILURES	3		/* after these a person has to see to it */

/*
 * The pass of this worker over its database: those without a row of their own
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
 * row of their own what they share, with index InvalidOid.
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

/* Take a free row, if there is one. */
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
void
pmhash_rebuild_begins(Oid index)
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

/* A row whose rebuild is not going on, of the database or (InvalidOid) of any. */
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
 * The row for failures of this database's indexes that have none.  If there is
 * none for it either, an index of this database gives up its own and is one of
 * these from now on; if it has no row at all, an index of another database
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
 * share a row fail together, in one pass over the database: that counts once.
 */
int
pmhash_rebuild_failed(Oid index, int sqlstate, const char *message)
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
void
pmhash_rebuild_is_over(Oid index)
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
void
pmhash_rebuild_forget_dropped(List *indexes)
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

/* This worker begins to go through its database. */
void
pmhash_rebuild_pass_begins(void)
{
	PmhashRebuild state;

	rest_waits = pmhash_rebuild_state(InvalidOid, &state) &&
		state.next_try > pmhash_clock_ms();
	rest_failed = false;
}

/* All that could be rebuilt has been: forget what was noted of the rest. */
void
pmhash_rebuild_pass_ends(void)
{
	if (!rest_waits && !rest_failed)
		pmhash_rebuild_is_over(InvalidOid);
}

/* Is a new try of a failed rebuild not due yet? */
bool
pmhash_rebuild_has_to_wait(Oid index)
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

/* The index of this database that is being rebuilt, or InvalidOid. */
Oid
pmhash_rebuild_running(void)
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
	return running;
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
