/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The launcher: one process that has the others started, which worker, where and when,
 *	  and does what comes round by round: notes in the journal how far WAL is flushed, renews
 *	  the nonce, flushes what scans wait for, asks whether the kernel has written back what it
 *	  should.
 *
 * It starts as soon as there can be queries: on a standby when that is consistent, and it
 * goes on when that is promoted.  On a primary it first completes the undo of the last
 * server life, so that usually no user has to.  It is connected to no database (only to
 * shared catalogs, like autovacuum's launcher), so it keeps no database from being
 * dropped or copied.
 *
 * There is a task for each database and job.  It becomes wanted by a request, by the
 * clock, or as its last worker has not done all; that is tried again after a pause
 * that grows, whoever wants it, and other databases have their turn meanwhile.  The launcher waits
 * for no worker: the end of each wakes it.
 *
 * At most PMHASH_WORKERS are at work, and one in each database; on a standby there may be
 * several.  Whoever was started last is the last to have another turn.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/undo_journal.h"
#include "cluster/workers/workers.h"

#define START_PAUSE		1000	/* ms, between two workers with the same task */
#define LONGEST_PAUSE	10		/* s, if the last ones have left something */

/*
 * ms from the launcher's start to the first look at all indexes, which takes as
 * long as opening them all: the first users of a server come then, and what they
 * meet that has to be looked at they request.
 */
#define SETTLE_TIME			2000

typedef struct Task
{
	Oid			database;
	PmhashJob	job;
	bool		wanted;
	bool		visited;		/* there has been a worker */
	bool		has_files;		/* its database has had a directory in the pool */
	int64		not_before;		/* pmhash_clock_ms, whoever wants it */
	int			tries;			/* in a row that have not done all */
} Task;

/* A worker that was started. */
typedef struct Worker
{
	BackgroundWorkerHandle *handle; /* NULL: none */
	Oid			database;
	PmhashJob	job;
} Worker;

static List *tasks = NIL;		/* in TopMemoryContext; the last to start is the last */
static Worker workers[PMHASH_WORKERS];

/* What the catalog has said in this round, if it has been read (is_read). */
static bool is_read;
static List *connectable;
static List *existing;

/* After requests have been taken: their databases exist by then. */
static void
read_catalog(void)
{
	Assert(!IsTransactionState());
	if (!is_read)
		connectable = pmhash_databases_in_catalog(&existing);
	is_read = true;
}

/* ---- its end ---- */

/*
 * To be called between the launcher's steps.  By an exit code of 1 the postmaster starts it again
 * after PMHASH_WORKER_RESTART, unless the server is being shut down.
 */
static void
launcher_interrupts(void)
{
	Assert(!IsTransactionState());
	CHECK_FOR_INTERRUPTS();
	if (ShutdownRequestPending)
		proc_exit(1);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

static void
launcher_exit(int code, Datum arg)
{
	pmhash_shared->launcher = NULL;
	pg_atomic_write_u64(&pmhash_shared->no_worker, pmhash_clock_ms());
}

/* ---- tasks ---- */

static Task *
find_task(Oid database, PmhashJob job)
{
	MemoryContext old;
	Task	   *task;
	ListCell   *lc;

	foreach(lc, tasks)
	{
		task = lfirst(lc);
		if (task->database == database && task->job == job)
			return task;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	task = palloc0(sizeof(Task));
	task->database = database;
	task->job = job;
	tasks = lappend(tasks, task);
	MemoryContextSwitchTo(old);
	return task;
}

static void
want(Oid database, PmhashJob job)
{
	find_task(database, job)->wanted = true;
}

/* It has not been done: again after 1, 2, 4, ... s. */
static void
try_again(Task *task)
{
	task->wanted = true;
	task->not_before = pmhash_clock_ms() + pmhash_pause(++task->tries, LONGEST_PAUSE);
}

/* ---- workers ---- */

static Worker *
find_unused(void)
{
	for (int i = 0; i < PMHASH_WORKERS; i++)
	{
		if (workers[i].handle == NULL)
			return &workers[i];
	}
	return NULL;
}

/* How many have this job or (PMHASH_JOBS) any, in this database or (InvalidOid) anywhere? */
static int
at_work(PmhashJob job, Oid database)
{
	int			n = 0;

	for (int i = 0; i < PMHASH_WORKERS; i++)
	{
		if (workers[i].handle != NULL &&
			(job == PMHASH_JOBS || workers[i].job == job) &&
			(!OidIsValid(database) || workers[i].database == database))
			n++;
	}
	return n;
}

/* Deal with those that have ended. */
static void
note_ends(void)
{
	for (int i = 0; i < PMHASH_WORKERS; i++)
	{
		Worker	   *worker = &workers[i];
		Task	   *task;
		pid_t		pid;

		if (worker->handle == NULL ||
			GetBackgroundWorkerPid(worker->handle, &pid) != BGWH_STOPPED)
			continue;
		pfree(worker->handle);
		worker->handle = NULL;
		task = find_task(worker->database, worker->job);
		if (pg_atomic_read_u32(&pmhash_shared->worker_done[i]) != 0)
			task->tries = 0;
		else
			try_again(task);
	}
}

/*
 * May it have a worker as soon as it is wanted?  Users' functions have one in all, so there is
 * a place for others.
 */
static bool
is_startable(const Task *task)
{
	bool		standby = RecoveryInProgress();

	if (!pmhash_rebuild && (standby || task->job != PMHASH_JOB_PLAIN))
		return false;
	return task->job != PMHASH_JOB_PLAIN ? at_work(task->job, InvalidOid) == 0 :
		standby || at_work(task->job, task->database) == 0;
}

/*
 * There is no such database any more: what it has left goes, and the task.  (If that fails
 * on a standby, its directory is found again.)
 */
static void
forget_database(Task *task)
{
	bool		gone = task->job != PMHASH_JOB_PLAIN;

	Assert(!list_member_oid(existing, task->database));
	PMH_STOP_POINT("launcher_before_dropped");
	/* no file of another cluster, whose pool may have replaced ours */
	if (!gone && pmhash_pool_is_present())
	{
		if (RecoveryInProgress())
			pmhash_standby_database_dropped(task->database, PG_UINT64_MAX);
		gone = RecoveryInProgress() ||
			pmhash_if_database_is_dropped(task->database, pmhash_remove_dropped);
	}
	if (!gone)
	{
		try_again(task);
		return;
	}
	pmhash_rebuild_forget(task->database, InvalidOid, NIL);
	tasks = list_delete_ptr(tasks, task);
	pfree(task);
}

/*
 * Do a task: start a worker, if need be.  False if there is no slot for it.  That is told
 * to users, unless it is one of ours that has the slot, and may end soon.
 */
static bool
start(Task *task, Worker *unused)
{
	MemoryContext old;
	bool		has_slot = true;
	bool		tell = at_work(PMHASH_JOBS, InvalidOid) == 0;

	Assert(unused->handle == NULL);
	read_catalog();
	old = MemoryContextSwitchTo(TopMemoryContext);
	task->wanted = false;
	if (!list_member_oid(existing, task->database))
		forget_database(task);
	else if (!list_member_oid(connectable, task->database))
		 /* nothing to be done */ ;
	else
	{
		unused->database = task->database;
		unused->job = task->job;
		has_slot = pmhash_start_worker(task->database, task->job, unused - workers,
									   &unused->handle, tell);
		if (has_slot)
		{
			task->visited = true;
			task->not_before = pmhash_clock_ms() + START_PAUSE;
			tasks = lappend(list_delete_ptr(tasks, task), task);
		}
		else					/* it keeps its turn */
		{
			unused->handle = NULL;
			task->wanted = true;
		}
	}
	MemoryContextSwitchTo(old);
	return has_slot;
}

/*
 * Start those whose turn it is.  Returns when the next one is due for which there is a place,
 * but not later than 'next'.
 */
static int64
start_all(int64 next)
{
	bool		has_slot = true;
	int64		pause_ends = pmhash_clock_ms() + START_PAUSE;
	ListCell   *lc;

	foreach(lc, list_copy(tasks))
	{
		Task	   *task = lfirst(lc);
		Worker	   *unused = find_unused();

		launcher_interrupts();
		if (has_slot && unused != NULL && is_startable(task) && task->wanted &&
			task->not_before <= pmhash_clock_ms())
			has_slot = start(task, unused);
	}
	if (!has_slot)
		return Min(next, pause_ends);
	foreach(lc, tasks)
	{
		Task	   *task = lfirst(lc);

		if (find_unused() != NULL && is_startable(task) && task->wanted)
			next = Min(next, task->not_before);
	}
	return next;
}

/* ---- when ---- */

/*
 * Databases are visited that have, or had, a directory in the pool or are new, or all.  Those
 * that have been dropped are forgotten then (start sees to that).  On a standby a build may be
 * due that nothing says: WAL has said that a file goes, and then the transaction failed; or
 * that there is one, and the transaction was prepared; or there was no place for another file.
 *
 * The directories are listed before the catalog is read: one is made when its database is
 * there.
 */
static void
want_visits(bool all)
{
	List	   *visited = pmhash_pool_is_present() ? pmhash_databases_in_pool() : NIL;
	ListCell   *lc;

	foreach(lc, visited)
		find_task(lfirst_oid(lc), PMHASH_JOB_PLAIN)->has_files = true;
	read_catalog();
	foreach(lc, connectable)
	{
		const Task *task = find_task(lfirst_oid(lc), PMHASH_JOB_PLAIN);

		if (all || !task->visited || task->has_files)
			visited = lappend_oid(visited, lfirst_oid(lc));
	}
	foreach(lc, visited)
	{
		if (at_work(PMHASH_JOB_PLAIN, lfirst_oid(lc)) == 0)
			want(lfirst_oid(lc), PMHASH_JOB_PLAIN);
	}
}

/*
 * See to all databases.  Returns when there may be something to do again (pmhash_clock_ms).
 *
 * On a standby none is looked at before its files are used; on a primary in the first seconds
 * only those requested.  All when pmhash.rebuild is switched on: nobody has requested rebuilds
 * of the indexes that became invalid meanwhile.
 */
static int64
see_to_databases(void)
{
	static int	role = -1;		/* a standby, or not */
	static bool rebuilds;
	static bool all;			/* with those that have no files */
	static int64 next_visits;
	bool		standby = RecoveryInProgress();
	int64		now = pmhash_clock_ms();

	is_read = false;
	note_ends();
	if (standby && !pmhash_standby_reached())
		return start_all(now + START_PAUSE);
	for (int i = 0; i < PMHASH_JOBS * PMHASH_MAX_REQUESTS; i++)
	{
		Oid			database = pg_atomic_exchange_u32(&pmhash_shared->request[i], InvalidOid);

		if (OidIsValid(database))
			want(database, i / PMHASH_MAX_REQUESTS);
	}
	if (role != standby)
	{
		role = standby;
		all = true;
		next_visits = now + (standby ? 0 : SETTLE_TIME);
	}
	else if (pmhash_rebuild && !rebuilds)
	{
		all = true;
		next_visits = now;
	}
	rebuilds = pmhash_rebuild;
	next_visits = Min(next_visits, now + pmhash_cleaner_naptime * INT64CONST(1000));
	if (next_visits <= now)
	{
		want_visits(all);
		all = false;
		next_visits = now + pmhash_cleaner_naptime * INT64CONST(1000);
	}
	return start_all(next_visits);
}

#define NOTE_FLUSHED_EVERY	1000	/* ms, while WAL is written */
#define NOTE_IDLE			5000	/* ms, while none is */
#define LOOK_AROUND			100 /* ms, while scans want WAL to be flushed */
#define LOOK_FOR_RECOVERY	5000	/* ms: its restartpoints, and its end */

PGDLLEXPORT void pmhash_launcher_main(Datum arg);

/* ---- its rounds ---- */

/*
 * Keep the note of flushed WAL fresh also while there are no inserts and no
 * vacuum.  Where WAL ends now is the end of a record; by the next round it is
 * flushed.  Returns milliseconds until there may be something to note again: a
 * server that writes nothing is seldom woken.
 */
static long
note_flushed(void)
{
	static XLogRecPtr seen = InvalidXLogRecPtr;
	static XLogRecPtr noted = InvalidXLogRecPtr;
	XLogRecPtr	end = pmhash_insert_end();

	Assert(!RecoveryInProgress());
	if (seen <= noted)
		seen = end;				/* else it is flushed some time, however often we look */
	if (seen > noted && seen <= GetFlushRecPtr(NULL))
	{
		pmhash_journal_note_flushed(seen);
		noted = seen;
	}
	return noted == end ? NOTE_IDLE : NOTE_FLUSHED_EVERY;
}

/*
 * Called again and again while index files are written back, which may take minutes: what
 * others wait for goes on.  All processes have to take note of each ProcSignalBarrier
 * (DROP DATABASE, DROP TABLESPACE, and their replay).  False if the launcher is to end.
 */
static bool
go_on_writing(void)
{
	static int64 last = 0;

	CHECK_FOR_INTERRUPTS();
	if (pg_atomic_read_u32(&pmhash_shared->ready) != 0 && pmhash_clock_past(last, LOOK_AROUND))
	{
		(void) note_flushed();
		(void) pmhash_flush_for_scans();
		last = pmhash_clock_ms();
	}
	return !ShutdownRequestPending;
}

/*
 * Renew the nonce if something has been written since it was renewed, but not
 * more often than orphans are looked for.
 */
static void
renew_nonce_now_and_then(void)
{
	static int64 last = 0;
	static XLogRecPtr last_end = InvalidXLogRecPtr;
	XLogRecPtr	end = pmhash_insert_end();

	if (end == last_end || !pmhash_pool_is_present() ||
		!pmhash_clock_past(last, pmhash_cleaner_naptime * INT64CONST(1000)))
		return;
	last = pmhash_clock_ms();
	last_end = end;
	pmhash_renew_nonce();
}

/*
 * Wait until there may be something to do, timeout milliseconds at most.
 * Meanwhile flush what scans ask for; while they do, which may be all the time,
 * what else there is to do is looked for every LOOK_AROUND milliseconds.
 */
static void
rest(long timeout)
{
	int64		begun = pmhash_clock_ms();
	long		flush_in;

	do
	{
		flush_in = pmhash_flush_for_scans();
		pmhash_sleep(flush_in < 0 ? timeout : Min(timeout, flush_in),
					 pmhash_wait_event(PMHASH_WAIT_LAUNCHER));
		launcher_interrupts();
	} while ((flush_in >= 0 ||
			  pg_atomic_read_u64(&pmhash_shared->flush_wanted) != InvalidXLogRecPtr) &&
			 !pmhash_clock_past(begun, LOOK_AROUND));
}

/*
 * The pool can't be used in this server life.  Not the end: a background worker that
 * exits in peace is not started again by this postmaster, and a crash of a backend begins
 * another life, in which the pool may be used.  Nothing is written to the pool or
 * its token meanwhile.
 */
pg_noreturn static void
wait_for_another_life(void)
{
	pmhash_shared->launcher = NULL;
	for (;;)
	{
		pmhash_sleep(-1, pmhash_wait_event(PMHASH_WAIT_POOL));
		launcher_interrupts();
	}
}

/* A round.  Returns milliseconds until the next one. */
static long
go_round(void)
{
	bool		standby = RecoveryInProgress();
	long		timeout = LOOK_FOR_RECOVERY;
	int64		left;

	if (standby && !pmhash_standby_is_active())
		return timeout;
	if (!standby)
	{
		timeout = note_flushed();
		renew_nonce_now_and_then();
	}
	pmhash_notice_failed_writes(go_on_writing);
	left = see_to_databases() - pmhash_clock_ms();
	return left < 1 ? 1 : (long) Min(left, timeout);	/* 0 would be no sleep, less no end */
}

/* What the launcher's process executes; arg is not used.  Ends by an exit of the process only. */
void
pmhash_launcher_main(Datum arg)
{
	MemoryContext round;
	bool		is_primary = false;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	if (pmhash_shared == NULL)
		proc_exit(0);
	if (!pmhash_shared->usable)
		wait_for_another_life();
	before_shmem_exit(launcher_exit, (Datum) 0);
	pmhash_shared->launcher = MyLatch;
	pg_memory_barrier();		/* pmhash_pool_ready */
	pg_atomic_write_u64(&pmhash_shared->no_worker, 0);
	pmhash_no_transaction_timeout();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);
	round = AllocSetContextCreate(TopMemoryContext, "pmhash launcher round",
								  ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(round);
	for (;;)
	{
		if (!pmhash_shared->usable)
			wait_for_another_life();	/* given up */
		MemoryContextReset(round);
		MemoryContextSwitchTo(round);
		if (!is_primary && !RecoveryInProgress())
		{
			pmhash_pool_ready();
			is_primary = true;
		}
		rest(go_round());
	}
}
