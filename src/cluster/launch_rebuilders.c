/*-------------------------------------------------------------------------
 *
 * launch_rebuilders.c
 *	  The launcher's part in rebuilds: which databases, and when.
 *
 * There is one rebuilder of each kind at a time (shared.h, PmhashBuildKind).  That of
 * plain indexes looks for work for the other one, too.
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
#include "cluster/databases.h"
#include "cluster/launcher.h"
#include "cluster/put_off.h"
#include "cluster/rebuild_table.h"
#include "cluster/requests.h"
#include "cluster/shared.h"
#include "cluster/worker.h"
#define START_PAUSE			500 /* ms, before a rebuilder is started again */
#define LOCKED_PAUSE		2000	/* ms, before a database that was locked is tried */

/* A kind of rebuilder. */
typedef struct Rebuilder
{
	const char *function;
	BackgroundWorkerHandle *handle; /* at work, or just done; NULL: none */
	Oid			database;		/* where */
	List	   *to_look_at;		/* databases; lives in TopMemoryContext */
} Rebuilder;

/* Where a rebuilder was started a short time ago, or has ended early. */
typedef struct Pause
{
	const Rebuilder *rebuilder;
	Oid			database;
	int64		last_start;		/* pmhash_clock_ms */
	int			unfinished;		/* how many in a row have ended early */
} Pause;

static Rebuilder rebuilders[PMHASH_BUILD_KINDS] = {
	[PMHASH_BUILD_PLAIN] = {.function = "pmhash_rebuilder_main"},
	[PMHASH_BUILD_EXPRESSIONS] = {.function = "pmhash_expression_rebuilder_main"}
};

static List *pauses = NIL;		/* of Pause, in TopMemoryContext */
static List *locked = NIL;		/* databases nothing can connect to; to be looked at:
								 * put_off.c */
static int64 no_start_before = 0;	/* the same: there was no slot */

/* Those that are locked have their time. */
static void
look_at(PmhashBuildKind kind, List *databases)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	List	  **list = &rebuilders[kind].to_look_at;
	ListCell   *lc;

	foreach(lc, databases)
	{
		if (!pmhash_is_put_off(locked, lfirst_oid(lc)))
			*list = list_append_unique_oid(*list, lfirst_oid(lc));
	}
	MemoryContextSwitchTo(old);
}

/* Those that were locked, if they are to be tried again; *next: when the others are. */
static void
look_at_locked(int64 *next)
{
	List	   *databases = pmhash_put_off_due(locked);
	int64		until;

	pmhash_put_off_tried(&locked);
	look_at(PMHASH_BUILD_PLAIN, databases);
	list_free(databases);
	until = pmhash_put_off_next(locked);
	*next = Min(*next, until);
}

/*
 * Have a look at all databases that may have indexes of ours.  The others are not
 * to notice that we are here.
 */
static void
look_at_all(PmhashBuildKind kind)
{
	List	   *all;
	ListCell   *lc;

	foreach(lc, pmhash_databases_in_catalog(&all))
	{
		pmhash_launcher_interrupts();
		if (!list_member_oid(rebuilders[kind].to_look_at, lfirst_oid(lc)) &&
			pmhash_database_may_have_indexes(lfirst_oid(lc)))
			look_at(kind, list_make1_oid(lfirst_oid(lc)));
	}
}

/* Add the databases that were requested, or where a new try is due. */
static void
collect_databases(bool everything, int64 *next)
{
	look_at_locked(next);
	for (int kind = 0; kind < PMHASH_BUILD_KINDS; kind++)
	{
		bool		too_many;

		look_at(kind, pmhash_take_requests(&pmhash_shared->look[kind], &too_many));
		look_at(kind, pmhash_rebuilds_due(kind, pmhash_clock_ms(), next));
		if (too_many || (everything && kind == PMHASH_BUILD_PLAIN))
			look_at_all(kind);
	}
}

/* What is known of starts in a database, or NULL. */
static Pause *
find_pause(const Rebuilder *rebuilder, Oid database)
{
	ListCell   *lc;

	foreach(lc, pauses)
	{
		Pause	   *pause = lfirst(lc);

		if (pause->rebuilder == rebuilder && pause->database == database)
			return pause;
	}
	return NULL;
}

/* A rebuilder has been started. */
static void
note_start(const Rebuilder *rebuilder)
{
	Pause	   *pause = find_pause(rebuilder, rebuilder->database);

	if (pause == NULL)
	{
		pause = palloc0(sizeof(Pause));
		pause->rebuilder = rebuilder;
		pause->database = rebuilder->database;
		pauses = lappend(pauses, pause);
	}
	pause->last_start = pmhash_clock_ms();
}

/*
 * Is the last rebuilder of this kind still at work?  Its end wakes us.  If it has failed
 * before it could look at all indexes, its database is looked at again.
 */
static bool
is_at_work(PmhashBuildKind kind)
{
	Rebuilder  *rebuilder = &rebuilders[kind];
	Pause	   *pause = find_pause(rebuilder, rebuilder->database);
	pid_t		pid;

	if (rebuilder->handle == NULL)
		return false;
	if (GetBackgroundWorkerPid(rebuilder->handle, &pid) != BGWH_STOPPED)
		return true;
	pfree(rebuilder->handle);
	rebuilder->handle = NULL;
	if (pg_atomic_read_u32(&pmhash_shared->rebuilder_finished[kind]) != 0)
		pause->unfinished = 0;
	else
	{
		pause->unfinished = Min(pause->unfinished + 1, PMHASH_MAX_DOUBLINGS);
		look_at(kind, list_make1_oid(rebuilder->database));
	}
	return false;
}

/*
 * Not too often in the same database: a rebuilder may fail before it can report that.
 * Other databases have their turn meanwhile.
 */
static bool
has_its_pause(const Rebuilder *rebuilder, Oid database)
{
	Pause	   *pause = find_pause(rebuilder, database);

	return pause != NULL &&
		!pmhash_clock_past(pause->last_start, START_PAUSE << pause->unfinished);
}

/* Forget pauses that are over, but of databases where the last one has ended early. */
static void
forget_pauses(List *existing)
{
	ListCell   *lc;

	foreach(lc, pauses)
	{
		Pause	   *pause = lfirst(lc);

		if (pause->rebuilder->handle != NULL ||
			has_its_pause(pause->rebuilder, pause->database) ||
			(pause->unfinished > 0 && list_member_oid(existing, pause->database)))
			continue;
		pauses = foreach_delete_current(pauses, lc);
		pfree(pause);
	}
}

/* False if there is no slot for it. */
static bool
start_rebuilder_in(PmhashBuildKind kind, Oid database)
{
	Rebuilder  *rebuilder = &rebuilders[kind];
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	bool		started;

	pg_atomic_write_u32(&pmhash_shared->rebuilder_finished[kind], 0);
	started = pmhash_start_worker(database, rebuilder->function,
								  "pmhash rebuilder", &rebuilder->handle);
	if (started)
	{
		rebuilder->database = database;
		note_start(rebuilder);
	}
	else
	{
		rebuilder->handle = NULL;
		no_start_before = pmhash_clock_ms() + PMHASH_WORKER_PAUSE;
	}
	MemoryContextSwitchTo(old);
	return started;
}

/*
 * Start a rebuilder for the first database of its list that still exists, whose pause is
 * over, and where it need not wait.
 */
static void
start_rebuilder(PmhashBuildKind kind)
{
	Rebuilder  *rebuilder = &rebuilders[kind];
	List	   *all;
	List	   *connectable = pmhash_databases_in_catalog(&all);
	ListCell   *lc;

	forget_pauses(all);
	foreach(lc, rebuilder->to_look_at)
	{
		Oid			database = lfirst_oid(lc);
		bool		exists = list_member_oid(connectable, database);

		if (has_its_pause(rebuilder, database))
			continue;
		if (!exists)
			pmhash_rebuild_forget(database);
		else if (!pmhash_database_is_free(database))	/* a worker would wait */
			pmhash_put_off(&locked, database, LOCKED_PAUSE, 0);
		else if (!start_rebuilder_in(kind, database))
			return;
		rebuilder->to_look_at = foreach_delete_current(rebuilder->to_look_at, lc);
		if (rebuilder->handle != NULL)
			return;
	}
}

/*
 * See to invalid indexes: one rebuilder of each kind at a time, which the launcher does
 * not wait for.  Returns milliseconds until there may be something to do again.
 */
long
pmhash_see_to_rebuilds(bool everything)
{
	long		timeout = pmhash_cleaner_naptime * 1000L;
	int64		next = PG_INT64_MAX;
	int64		next_cleaning;
	int64		until;

	collect_databases(everything, &next);
	if (!pmhash_rebuild)
		return pmhash_clock_until(pmhash_next_cleaning(), timeout);
	for (int kind = 0; kind < PMHASH_BUILD_KINDS; kind++)
	{
		if (is_at_work(kind) || rebuilders[kind].to_look_at == NIL)
			continue;
		if (pmhash_clock_ms() >= no_start_before)
			start_rebuilder(kind);
		until = pmhash_put_off_next(locked);
		next = Min(next, until);
		if (rebuilders[kind].handle == NULL && rebuilders[kind].to_look_at != NIL)
			timeout = Min(timeout, START_PAUSE);
	}
	next_cleaning = pmhash_next_cleaning();
	next = Min(next, next_cleaning);
	return pmhash_clock_until(next, timeout);
}
