/*-------------------------------------------------------------------------
 *
 * standby_worker.c
 *	  The workers of a standby that build index files: a launcher, and up to
 *	  three builders, at most one of them for indexes with expressions (shared.h,
 *	  PmhashBuildKind); or two, and one that looks for what is free in files.
 *
 * The launcher starts when the standby can be read, and ends when it is promoted.  It
 * also asks the kernel for failed writes, as that of a primary does.
 * It is connected to no database.  A builder is connected to one for as long as there
 * is something to build in it, so that replay of DROP DATABASE terminates it, as it
 * does with any session (standby.c, ResolveRecoveryConflictWithDatabase).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "cluster/clock.h"
#include "cluster/database_probe.h"
#include "cluster/databases.h"
#include "cluster/failed_writes.h"
#include "cluster/pool.h"
#include "cluster/pool_lock.h"
#include "cluster/shared.h"
#include "cluster/standby_build.h"
#include "cluster/standby_state.h"
#include "cluster/undo_journal.h"
#include "cluster/versions.h"
#include "cluster/worker.h"
#include "cluster/wait_events.h"

#define MAX_WORKERS			3
#define START_PAUSE			500 /* ms, before a builder is started again */
#define SLOT_PAUSE			5000	/* ms, before a new try to get a slot */
#define FIRST_LATER			1000	/* ms, before a new look if one was in vain */
#define LAST_LATER			16000	/* the same, after some in vain */
#define LONGEST_SLEEP		60000	/* ms */
#define LOOK_FOR_RESTARTPOINT	5000	/* ms */

PGDLLEXPORT void pmhash_standby_launcher_main(Datum arg);
PGDLLEXPORT void pmhash_standby_builder_main(Datum arg);
PGDLLEXPORT void pmhash_standby_expression_builder_main(Datum arg);
PGDLLEXPORT void pmhash_standby_sweeper_main(Datum arg);

/* ---- the launcher ---- */

typedef enum Job
{
	BUILDER,
	EXPRESSION_BUILDER,
	SWEEPER,
	JOBS
} Job;

static const struct
{
	const char *function;
	const char *type;
}			jobs[JOBS] = {
	[BUILDER] = {"pmhash_standby_builder_main", "pmhash standby builder"},
	[EXPRESSION_BUILDER] = {"pmhash_standby_expression_builder_main",
	"pmhash standby builder"},
	[SWEEPER] = {"pmhash_standby_sweeper_main", "pmhash standby sweeper"}
};

/* A worker that was started. */
typedef struct Started
{
	BackgroundWorkerHandle *handle; /* NULL: none */
	Oid			database;
	Job			job;
} Started;

/* A database in which a builder could not look at all: it was locked, or it ended. */
typedef struct Later
{
	Oid			database;
	bool		waits;			/* for that time, below */
	int64		due;			/* pmhash_clock_ms */
	int64		pause;
} Later;

static Started started[MAX_WORKERS];
static List *to_look_at = NIL;	/* databases; these live in TopMemoryContext */
static List *to_express = NIL;	/* by EXPRESSION_BUILDERs */
static List *to_visit = NIL;	/* when there is nothing else to do */
static List *to_try_later = NIL;	/* of Later */
static int64 no_start_before = 0;	/* pmhash_clock_ms */

static void
launcher_exit(int code, Datum arg)
{
	pmhash_standby_set_latch(NULL);
}

static void
add_to(List **list, List *databases)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	*list = list_concat_unique_oid(*list, databases);
	MemoryContextSwitchTo(old);
}

/* Forget workers that have ended; one that is unused, or NULL. */
static Started *
find_unused(void)
{
	Started    *unused = NULL;

	for (int i = 0; i < MAX_WORKERS; i++)
	{
		pid_t		pid;

		if (started[i].handle != NULL &&
			GetBackgroundWorkerPid(started[i].handle, &pid) == BGWH_STOPPED)
		{
			pfree(started[i].handle);
			started[i].handle = NULL;
		}
		if (started[i].handle == NULL)
			unused = &started[i];
	}
	return unused;
}

/* False if there is no slot for it. */
static bool
start_worker(Started *unused, Oid database, Job job)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	bool		done = pmhash_start_worker(database, jobs[job].function, jobs[job].type,
										   &unused->handle);

	MemoryContextSwitchTo(old);
	unused->database = database;
	unused->job = job;
	if (!done)
	{
		unused->handle = NULL;
		no_start_before = pmhash_clock_ms() + SLOT_PAUSE;
	}
	return done;
}

/* Is there such a worker in this database, or (InvalidOid) in any? */
static bool
is_at_work(Job job, Oid database)
{
	for (int i = 0; i < MAX_WORKERS; i++)
	{
		if (started[i].handle != NULL && started[i].job == job &&
			(!OidIsValid(database) || started[i].database == database))
			return true;
	}
	return false;
}

/*
 * Start builders for databases of the list, those where one is at work, or where none
 * is.  False if one waits for a slot.
 */
static bool
start_builders(List *connectable, bool where_one_is)
{
	ListCell   *lc;

	foreach(lc, to_look_at)
	{
		Oid			database = lfirst_oid(lc);
		Started    *unused = find_unused();

		if (is_at_work(BUILDER, database) != where_one_is)
			continue;
		if (unused == NULL)
			return false;
		if (list_member_oid(connectable, database) &&
			!start_worker(unused, database, BUILDER))
			return false;
		to_look_at = foreach_delete_current(to_look_at, lc);
	}
	return true;
}

/* One for indexes with expressions, if there is none.  False if it waits for a slot. */
static bool
start_expression_builder(List *connectable)
{
	ListCell   *lc;

	foreach(lc, to_express)
	{
		Oid			database = lfirst_oid(lc);
		Started    *unused = find_unused();

		if (is_at_work(EXPRESSION_BUILDER, InvalidOid))
			return true;
		if (unused == NULL)
			return false;
		if (list_member_oid(connectable, database) &&
			!start_worker(unused, database, EXPRESSION_BUILDER))
			return false;
		to_express = foreach_delete_current(to_express, lc);
	}
	return true;
}

/*
 * All that can be started now, and one builder for each database first.  Sweepers are to
 * end if one waits for a slot.
 */
static void
start_all_builders(void)
{
	List	   *all;
	List	   *connectable = pmhash_databases_in_catalog(&all);
	bool		done;

	done = start_builders(connectable, false) && start_expression_builder(connectable) &&
		start_builders(connectable, true);
	if (done)
		no_start_before = pmhash_clock_ms() + START_PAUSE;
	pg_atomic_write_u32(&pmhash_shared->standby->slot_wanted, !done);
}

/* Does a database wait for a builder, and not for another one's end only? */
static bool
builders_wait(void)
{
	return to_look_at != NIL ||
		(to_express != NIL && !is_at_work(EXPRESSION_BUILDER, InvalidOid));
}

/* A look at a database was in vain: again after 1, 2, 4, ... 16 s. */
static void
put_off(Oid database)
{
	int64		now = pmhash_clock_ms();
	Later	   *later = NULL;
	ListCell   *lc;

	foreach(lc, to_try_later)
	{
		if (((Later *) lfirst(lc))->database == database)
			later = lfirst(lc);
	}
	if (later == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		later = palloc0(sizeof(Later));
		later->database = database;
		to_try_later = lappend(to_try_later, later);
		MemoryContextSwitchTo(old);
	}
	if (later->waits)
		return;
	later->pause = later->pause == 0 ? FIRST_LATER : Min(2 * later->pause, LAST_LATER);
	later->due = now + later->pause;
	later->waits = true;
}

/* Look again where that is due; *next is made earlier if it is not yet. */
static void
try_again(int64 *next)
{
	int64		now = pmhash_clock_ms();
	bool		all;
	ListCell   *lc;

	foreach(lc, pmhash_standby_take_nudges(PMHASH_NUDGE_LATER, &all))
		put_off(lfirst_oid(lc));
	if (all)
		pmhash_standby_nudge(InvalidOid);
	foreach(lc, to_try_later)
	{
		Later	   *later = lfirst(lc);

		if (later->waits && later->due <= now)
			add_to(&to_look_at, list_make1_oid(later->database));
		later->waits = later->waits && later->due > now;
		if (later->waits)
			*next = Min(*next, later->due);
		else if (now - later->due > 2 * LAST_LATER)
		{
			to_try_later = foreach_delete_current(to_try_later, lc);
			pfree(later);
		}
	}
}

/* Databases that may have indexes, every cleaner_naptime.  *next: when, by then. */
static void
collect_visits(List *connectable, int64 *next)
{
	static int64 last = 0;
	int64		now = pmhash_clock_ms();
	ListCell   *lc;

	if (last == 0)
		last = now;
	if (now - last >= pmhash_cleaner_naptime * INT64CONST(1000))
	{
		last = now;
		foreach(lc, connectable)
		{
			if (pmhash_database_may_have_indexes(lfirst_oid(lc)))
				add_to(&to_visit, list_make1_oid(lfirst_oid(lc)));
		}
	}
	*next = Min(*next, last + pmhash_cleaner_naptime * INT64CONST(1000));
}

/*
 * Have databases looked at from which no look was requested, in slots that are to spare.
 * A build may be due there that nothing says: WAL has said that a file goes, and then
 * the transaction failed; the primary crashed before it could say that there is a new
 * one; the database took no connections when it was its turn.
 */
static void
start_visits(int64 *next)
{
	List	   *all;
	List	   *connectable = pmhash_databases_in_catalog(&all);
	ListCell   *lc;

	collect_visits(connectable, next);
	foreach(lc, to_visit)
	{
		Started    *unused = find_unused();
		Oid			database = lfirst_oid(lc);

		if (unused == NULL)
			return;
		if (list_member_oid(connectable, database) && !is_at_work(BUILDER, database) &&
			!start_worker(unused, database, BUILDER))
			return;
		to_visit = foreach_delete_current(to_visit, lc);
	}
}

/* Start a sweeper if none is at work, and there is a slot to spare. */
static void
start_sweeper(int64 *next)
{
	Started    *unused = find_unused();
	List	   *all;
	Oid			database;

	if (is_at_work(SWEEPER, InvalidOid))
		return;
	database = unused != NULL ? pmhash_standby_take_sweep(next) : InvalidOid;
	if (OidIsValid(database) &&
		list_member_oid(pmhash_databases_in_catalog(&all), database))
		(void) start_worker(unused, database, SWEEPER);
}

/*
 * What databases have left that have been dropped goes.  The list of those that have
 * files is made before the catalog is read: a file is made when its database is there.
 * Returns when to look again (pmhash_clock_ms).
 */
static int64
see_to_dropped(void)
{
	static int64 last = 0;
	int64		now = pmhash_clock_ms();
	List	   *databases;
	List	   *existing;
	ListCell   *lc;

	if (last != 0 && now - last < pmhash_cleaner_naptime * INT64CONST(1000))
		return last + pmhash_cleaner_naptime * INT64CONST(1000);
	last = now;
	if (!pmhash_pool_is_present())
		return now + LONGEST_SLEEP;
	databases = list_concat_unique_oid(pmhash_standby_databases(),
									   pmhash_databases_in_pool());
	(void) pmhash_databases_in_catalog(&existing);
	foreach(lc, databases)
	{
		if (!list_member_oid(existing, lfirst_oid(lc)))
			pmhash_standby_database_dropped(lfirst_oid(lc));
	}
	return now + pmhash_cleaner_naptime * INT64CONST(1000);
}

/* Which databases are to be looked at?  *next: when there may be more, by then. */
static void
collect_databases(int64 *next)
{
	bool		everything;
	List	   *all;

	add_to(&to_look_at, pmhash_standby_take_databases(&everything, next));
	if (everything)
		add_to(&to_look_at, pmhash_databases_in_catalog(&all));
	add_to(&to_express,
		   pmhash_standby_take_nudges(PMHASH_NUDGE_EXPRESSIONS, &everything));
	if (everything)
		add_to(&to_express, pmhash_databases_in_catalog(&all));
	try_again(next);
}

/* See to what is to be built.  Returns when there may be more. */
static int64
see_to_builds(void)
{
	int64		next = see_to_dropped();
	int64		now = pmhash_clock_ms();

	collect_databases(&next);
	if (!pmhash_rebuild)
		return next;
	(void) find_unused();
	if (builders_wait() && now >= no_start_before)
		start_all_builders();
	if (!builders_wait())
	{
		start_visits(&next);
		start_sweeper(&next);
	}
	else if (find_unused() != NULL)
		next = Min(next, no_start_before);
	return next;
}

/*
 * The pool can't be used in this server life.  A worker that exits in peace would not be
 * there in the next one, which the crash of a backend begins (launcher.c).
 */
pg_noreturn static void
wait_for_end_of_recovery(void)
{
	while (RecoveryInProgress())
	{
		pmhash_sleep(LONGEST_SLEEP, pmhash_wait_event(PMHASH_WAIT_POOL));
		CHECK_FOR_INTERRUPTS();
	}
	proc_exit(0);
}

/*
 * Called again and again while index files are written back: DROP DATABASE and the like,
 * and their replay, wait for all processes (ProcSignalBarrier).  False if the launcher is
 * to end.
 */
static bool
goes_on(void)
{
	CHECK_FOR_INTERRUPTS();
	return !ShutdownRequestPending;
}

/*
 * The launcher of a standby.  Ends for good when there is nothing to build any more,
 * as the server is no standby.
 */
void
pmhash_standby_launcher_main(Datum arg)
{
	MemoryContext round;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (pmhash_shared == NULL || !RecoveryInProgress())
		proc_exit(0);
	if (!pmhash_shared->usable)
		wait_for_end_of_recovery();
	pmhash_no_transaction_timeout();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);
	before_shmem_exit(launcher_exit, (Datum) 0);
	pmhash_standby_set_latch(MyLatch);
	pmhash_standby_nudge(InvalidOid);
	round = AllocSetContextCreate(TopMemoryContext, "pmhash standby launcher round",
								  ALLOCSET_DEFAULT_SIZES);
	while (RecoveryInProgress())
	{
		int64		next;

		MemoryContextReset(round);
		MemoryContextSwitchTo(round);
		if (pmhash_standby_is_active())
			pmhash_notice_failed_writes(goes_on);
		next = see_to_builds();
		pmhash_sleep(pmhash_clock_until(next, LOOK_FOR_RESTARTPOINT),
					 pmhash_wait_event(PMHASH_WAIT_STANDBY));
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
	proc_exit(0);
}

/* ---- a builder ---- */

static bool connected = false;

/*
 * A builder ends that could not connect: its database was locked (worker.c,
 * pmhash_worker_begin).  Another one is to try it, after a pause.
 */
static void
look_again(int code, Datum database)
{
	if (!connected)
		pmhash_standby_nudge_for(PMHASH_NUDGE_LATER, DatumGetObjectId(database));
}

/*
 * Locks are waited for a while, since a build that is given up begins anew; but not for
 * ever, as a transaction on the primary may hold them so long, and others want the slot.
 * It is subject to the conflicts with replay that all sessions are.
 */
static void
build_in(Oid database, PmhashBuildKind kind)
{
	before_shmem_exit(look_again, ObjectIdGetDatum(database));
	pmhash_worker_begin(database, "5000");
	connected = true;
	pmhash_worker_builds(kind);
	pmhash_standby_build_database(kind);
	pgstat_report_activity(STATE_IDLE, NULL);
}

void
pmhash_standby_builder_main(Datum arg)
{
	build_in(DatumGetObjectId(arg), PMHASH_BUILD_PLAIN);
}

void
pmhash_standby_expression_builder_main(Datum arg)
{
	build_in(DatumGetObjectId(arg), PMHASH_BUILD_EXPRESSIONS);
}

/* ---- a sweeper ---- */

void
pmhash_standby_sweeper_main(Datum arg)
{
	pmhash_worker_begin(DatumGetObjectId(arg), "0");
	pmhash_worker_takes_long();
	pmhash_standby_sweep_database();
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* To be called on a standby while the library is being preloaded. */
void
pmhash_standby_worker_init(void)
{
	pmhash_register_worker("pmhash_standby_launcher_main", "pmhash standby launcher",
						   BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
						   BgWorkerStart_ConsistentState, PMHASH_WORKER_RESTART);
}
