/*-------------------------------------------------------------------------
 *
 * requests.c
 *	  What processes ask the launcher for: workers in databases; whether there can be any;
 *	  and what is known of rebuilds: which go on, which have failed and why, and when they
 *	  are tried again.
 *
 * What is known of rebuilds is for the view and for workers.  When all rows are taken, one
 * index has the row of another, which is tried again sooner then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"

#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/queue/queue.h"

/* ms without a launcher, or a free slot (three tries), after which none is to be waited for */
#define NONE_FOR_LONG		15000

/*
 * Ask for this to be done in a database soon.  A worker for plain indexes asks for that of
 * the others, so whoever has met an index need not know its kind.  Raises no error, and waits
 * for nothing.  A request in whose place another database's comes is lost: it is made again
 * where the cause is met again, and the launcher looks at all databases from time to time.
 */
void
pmhash_request(Oid database, PmhashJob job)
{
	Assert(job < PMHASH_JOBS);
	if (pmhash_shared == NULL || !pmhash_shared->usable)
		return;
	pg_atomic_write_u32(&pmhash_shared->request[job * PMHASH_MAX_REQUESTS +
												database % PMHASH_MAX_REQUESTS], database);
	pmhash_wake_launcher();
}

/* Is there a launcher just now?  Raises no error. */
bool
pmhash_launcher_is_there(void)
{
	return pmhash_shared->launcher != NULL;
}

/* Have the launcher look for what there is to do.  Raises no error. */
void
pmhash_wake_launcher(void)
{
	Latch	   *launcher = pmhash_shared->launcher; /* read once: it may end */

	if (launcher != NULL)
		SetLatch(launcher);
}

/*
 * pmhash_workers_can_be_had
 *		Is what a worker of ours is to do done some time soon?
 *
 * A lack of a launcher or of slots may be that of a moment: it is being started, and parallel
 * queries take slots, too.
 */
bool
pmhash_workers_can_be_had(void)
{
	uint64		since = pg_atomic_read_u64(&pmhash_shared->no_worker);

	if (RecoveryInProgress() && !pmhash_launcher_is_there())
		return false;			/* nothing has noted since when (pmhash_pool_ready) */
	return since == 0 || !pmhash_clock_past((int64) since, NONE_FOR_LONG);
}

/* ==== rebuilds ==== */

/* The row of an index, or NULL. */
static PmhashRebuild *
find_rebuild(Oid database, Oid index)
{
	Assert(LWLockHeldByMe(pmhash_lwlock(PMHASH_REBUILD_LOCK)));
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

	Assert(OidIsValid(index));	/* a row without one is free */
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	r = find_rebuild(MyDatabaseId, index);
	if (r != NULL)
		*state = *r;
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return r != NULL;
}

/*
 * Note that the rebuild of an index begins (failure NULL), or has failed (sqlstate 0: it was
 * no fault), or its file on a standby is lost, and when to try again.  Returns the pause in
 * seconds.
 */
int
pmhash_rebuild_note(Oid database, Oid index, int sqlstate, const char *failure)
{
	PmhashRebuild *r;
	int			pause = 0;

	Assert(OidIsValid(database) && OidIsValid(index));
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	r = find_rebuild(database, index);
	if (r == NULL)
	{
		r = find_rebuild(InvalidOid, InvalidOid);
		if (r == NULL)
			r = &pmhash_shared->rebuild[index % PMHASH_MAX_REBUILDS];
		memset(r, 0, sizeof(*r));
		r->database = database;
		r->index = index;
	}
	r->running = failure == NULL;
	if (failure != NULL)
	{
		r->failures += sqlstate != 0;
		pause = (int) (pmhash_pause(sqlstate == 0 ? 1 : r->failures, PMHASH_LONGEST_PAUSE) / 1000);
		r->next_try = pmhash_clock_ms() + pause * INT64CONST(1000);
		r->sqlstate = sqlstate;
		pmhash_keep_message(r->failure, sizeof(r->failure), failure);
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return pause;
}

/*
 * Forget an index of a database, or (InvalidOid) all but those that may be invalid; or
 * (database InvalidOid) what is known of all.
 */
void
pmhash_rebuild_forget(Oid database, Oid index, const List *but)
{
	Assert(OidIsValid(database) || (!OidIsValid(index) && but == NIL));
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if ((r->database == database || !OidIsValid(database)) &&
			(OidIsValid(index) ? r->index == index : !list_member_oid(but, r->index)))
			memset(r, 0, sizeof(*r));
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/*
 * A backend has met an invalid index of this database.  Unless that is known, so that a
 * worker comes without a request, or it has said so of this one within the last second,
 * the launcher is woken.  If a stub has changed meanwhile that may have been another time
 * that it was invalid: it has been rebuilt since, and of this time no other may ever say so.
 */
void
pmhash_rebuild_wanted(Oid index)
{
	static Oid	last_index = InvalidOid;
	static int64 last = 0;
	static uint64 last_generation = 0;
	uint64		generation = pg_atomic_read_u64(&pmhash_shared->stub_generation);
	int64		now = pmhash_clock_ms();
	PmhashRebuild known;

	if (!pmhash_rebuild ||
		(index == last_index && generation == last_generation && now - last < 1000) ||
		pmhash_rebuild_state(index, &known))
		return;
	last_index = index;
	last_generation = generation;
	last = now;
	pmhash_request(MyDatabaseId, PMHASH_JOB_PLAIN);
}
