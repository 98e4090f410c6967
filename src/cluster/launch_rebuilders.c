/*-------------------------------------------------------------------------
 *
 * launch_rebuilders.c
 *	  The launcher's part in rebuilds: which databases, and when.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/memutils.h"

#include "cluster/clock.h"
#include "cluster/cluster.h"
#include "cluster/database_probe.h"
#include "cluster/launcher.h"
#include "cluster/rebuild_table.h"
#include "cluster/requests.h"
#include "cluster/shared.h"
#include "cluster/worker.h"
#define START_PAUSE			500 /* ms, before a rebuilder is started again */

static BackgroundWorkerHandle *rebuilder = NULL;	/* at work, or just done */
static List *to_look_at = NIL;	/* databases; lives in TopMemoryContext */
static Oid	last_database = InvalidOid; /* where the last one was started */
static int64 last_start = 0;	/* pmhash_clock_ms */
static int64 no_start_before = 0;	/* the same: there was no slot */
static int	unfinished = 0;		/* how many in a row have ended early */

static void
look_at(List *databases)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	to_look_at = list_concat_unique_oid(to_look_at, databases);
	MemoryContextSwitchTo(old);
}

/*
 * Have a look at all databases that may have indexes of ours.  The others are not
 * to notice that we are here.
 */
static void
look_at_all(void)
{
	List	   *all;
	ListCell   *lc;

	foreach(lc, pmhash_databases_in_catalog(&all))
	{
		pmhash_launcher_interrupts();
		if (!list_member_oid(to_look_at, lfirst_oid(lc)) &&
			pmhash_database_may_have_indexes(lfirst_oid(lc)))
			look_at(list_make1_oid(lfirst_oid(lc)));
	}
}

/* Add the databases that were requested, or where a new try is due. */
static void
collect_databases(bool everything, int64 *next)
{
	List	   *requested;
	bool		too_many;

	requested = pmhash_take_requests(&pmhash_shared->look, &too_many);
	look_at(requested);
	look_at(pmhash_rebuilds_due(pmhash_clock_ms(), next));
	if (everything || too_many)
		look_at_all();
}

/*
 * Is the last rebuilder still at work?  Its end wakes us.  If it has failed
 * before it could look at all indexes, its database is looked at again.
 */
static bool
rebuilder_at_work(void)
{
	pid_t		pid;

	if (rebuilder == NULL)
		return false;
	if (GetBackgroundWorkerPid(rebuilder, &pid) != BGWH_STOPPED)
		return true;
	pfree(rebuilder);
	rebuilder = NULL;
	if (pg_atomic_read_u32(&pmhash_shared->rebuilder_finished) != 0)
		unfinished = 0;
	else
	{
		unfinished = Min(unfinished + 1, PMHASH_MAX_DOUBLINGS);
		look_at(list_make1_oid(last_database));
	}
	return false;
}

/* Start a rebuilder for the first database of the list that still exists. */
static void
start_rebuilder(void)
{
	List	   *all;
	List	   *connectable = pmhash_databases_in_catalog(&all);
	ListCell   *lc;

	foreach(lc, to_look_at)
	{
		Oid			database = lfirst_oid(lc);
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		bool		exists = list_member_oid(connectable, database);
		bool		started;

		pg_atomic_write_u32(&pmhash_shared->rebuilder_finished, 0);
		started = exists &&
			pmhash_start_worker(database, "pmhash_rebuilder_main",
								"pmhash rebuilder", &rebuilder);

		MemoryContextSwitchTo(old);
		if (exists && !started)
		{
			no_start_before = pmhash_clock_ms() + PMHASH_WORKER_PAUSE;
			return;
		}
		if (!exists)
			pmhash_rebuild_forget(database);
		to_look_at = foreach_delete_current(to_look_at, lc);
		if (started)
		{
			last_database = database;
			last_start = pmhash_clock_ms();
			return;
		}
	}
}

/* Not too often in the same database: it may fail before it can report that. */
static bool
may_start_rebuilder(void)
{
	int64		now = pmhash_clock_ms();

	return now >= no_start_before &&
		(linitial_oid(to_look_at) != last_database ||
		 now - last_start >= START_PAUSE << unfinished);
}

/*
 * See to invalid indexes: one rebuilder at a time, which the launcher does not
 * wait for.  Returns milliseconds until there may be something to do again.
 */
long
pmhash_see_to_rebuilds(bool everything)
{
	long		timeout = pmhash_cleaner_naptime * 1000L;
	int64		next = PG_INT64_MAX;

	collect_databases(everything, &next);
	if (!pmhash_rebuild)
		return pmhash_next_cleaning() != PG_INT64_MAX ?
			Min(timeout, PMHASH_WORKER_PAUSE) : timeout;
	if (!rebuilder_at_work() && to_look_at != NIL)
	{
		if (may_start_rebuilder())
			start_rebuilder();
		if (rebuilder == NULL && to_look_at != NIL)
			return Min(timeout, START_PAUSE);
	}
	next = Min(next, pmhash_next_cleaning());
	return Min(timeout, Max(1, (long) Min(next - pmhash_clock_ms(), LONG_MAX)));
}
