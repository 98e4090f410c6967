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
 * clock, or as its last worker has not come to its end; then it is tried again after
 * a pause that grows, and other databases have their turn meanwhile.  The launcher waits
 * for no worker: the end of each wakes it.
 *
 * At most PMHASH_WORKERS are at work.  On a primary that is one for each job, on a standby
 * there may be several builders, also in one database.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/base/versions.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/replay/replay.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/undo_journal.h"
#include "cluster/workers/workers.h"

#define NEVER			PG_INT64_MAX
#define START_PAUSE		1000	/* ms, between two workers with the same task */
#define LONGEST_PAUSE	32		/* s, if the last ones have not come to their end */
#define SLOT_PAUSE		5000	/* ms, before a new try if there was no slot */
#define LONGEST_SLEEP	60000	/* ms */

typedef struct Task
{
	Oid			database;
	PmhashJob	job;
	int64		wanted_at;		/* pmhash_clock_ms, or NEVER */
	int64		not_before;		/* the same, whoever wants it */
	int			tries;			/* in a row that have not come to their end */
	bool		visit;			/* if wanted: only in case there is something to do */
	bool		empty;			/* the last worker has found nothing of ours */
} Task;

/* A worker that was started. */
typedef struct Worker
{
	BackgroundWorkerHandle *handle; /* NULL: none */
	Oid			database;
	PmhashJob	job;
} Worker;

/* In what order tasks have their turn, if not all can. */
typedef enum Rank
{
	FIRST_IN_DATABASE,
	EXPRESSIONS,
	ONE_MORE_IN_DATABASE,
	VISIT,
	NOT_NOW
} Rank;

static List *tasks = NIL;		/* in TopMemoryContext; the last to start is the last */
static Worker workers[PMHASH_WORKERS];
static int64 no_start_before = 0;	/* pmhash_clock_ms: there was no slot, and no end since */

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

static volatile sig_atomic_t server_stops = false;

/*
 * SIGTERM: the postmaster sends it when the server is shut down, others
 * (pg_terminate_backend) when they want the launcher started afresh.
 */
static void
note_termination(int signo, siginfo_t *info, void *context)
{
	int			saved_errno = errno;

	if (info->si_pid == PostmasterPid)
		server_stops = true;
	ShutdownRequestPending = true;
	SetLatch(MyLatch);
	errno = saved_errno;
}

static void
catch_termination(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = note_termination;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGTERM, &action, NULL) != 0)
		elog(ERROR, "could not set the handler of SIGTERM: %m");
}

/*
 * To be called between the launcher's steps.  Ends it without a word if the server is being
 * shut down; an exit code of 1 has the postmaster start it again after PMHASH_WORKER_RESTART.
 */
static void
launcher_interrupts(void)
{
	Assert(!IsTransactionState());
	CHECK_FOR_INTERRUPTS();
	if (ShutdownRequestPending)
		proc_exit(server_stops ? 0 : 1);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

static void
launcher_exit(int code, Datum arg)
{
	pmhash_set_launcher(NULL);
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
	task->wanted_at = NEVER;
	tasks = lappend(tasks, task);
	MemoryContextSwitchTo(old);
	return task;
}

static void
want(Oid database, PmhashJob job)
{
	Task	   *task = find_task(database, job);

	task->wanted_at = 0;
	task->visit = false;
}

static void
want_in(List *databases, PmhashJob job)
{
	ListCell   *lc;

	foreach(lc, databases)
		want(lfirst_oid(lc), job);
}

/*
 * Its worker has not done all: again after 1, 2, 4, ... 32 s.  If it has not even been
 * through its database, not before that, whoever wants it.
 */
static void
try_again(Task *task, bool not_before)
{
	int64		due = pmhash_clock_ms() + pmhash_pause(++task->tries, LONGEST_PAUSE);

	task->wanted_at = Min(task->wanted_at, due);
	task->visit = false;
	if (not_before)
		task->not_before = due;
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
		PmhashWorkerResult result;
		Task	   *task;
		pid_t		pid;

		if (worker->handle == NULL ||
			GetBackgroundWorkerPid(worker->handle, &pid) != BGWH_STOPPED)
			continue;
		pfree(worker->handle);
		worker->handle = NULL;
		no_start_before = 0;	/* it leaves its slot */
		result = (PmhashWorkerResult)
			pg_atomic_read_u32(&pmhash_shared->worker_result[i]);
		task = find_task(worker->database, worker->job);
		task->empty = result == PMHASH_WORKER_FOUND_NOTHING;
		if (result == PMHASH_WORKER_DONE || result == PMHASH_WORKER_FOUND_NOTHING)
			task->tries = 0;
		else
			try_again(task, result == PMHASH_WORKER_UNFINISHED);
	}
}

/* May it have a worker as soon as it is wanted? */
static bool
is_startable(const Task *task)
{
	bool		has_its_worker = (task->job != PMHASH_JOB_PLAIN || !RecoveryInProgress()) &&
		at_work(task->job, InvalidOid) > 0;

	return !has_its_worker && (pmhash_rebuild || task->job == PMHASH_JOB_CLEAN);
}

static Rank
rank_of(const Task *task)
{
	int64		now = pmhash_clock_ms();

	if (!is_startable(task) || task->wanted_at > now || task->not_before > now)
		return NOT_NOW;
	if (task->job == PMHASH_JOB_EXPRESSIONS)
		return EXPRESSIONS;
	if (task->visit)
		return VISIT;
	return at_work(task->job, task->database) == 0 ? FIRST_IN_DATABASE :
		ONE_MORE_IN_DATABASE;
}

/*
 * There is no such database any more: what it has left goes, and the task.  (If that fails
 * on a standby, its directory is found again.)
 */
static void
forget_database(Task *task)
{
	Assert(!list_member_oid(existing, task->database));
	if (task->job == PMHASH_JOB_CLEAN && RecoveryInProgress())
		pmhash_standby_database_dropped(task->database);
	else if (task->job == PMHASH_JOB_CLEAN)
	{
		PMH_STOP_POINT("launcher_before_dropped");
		if (!pmhash_if_database_is_dropped(task->database, pmhash_remove_dropped))
		{
			try_again(task, true);
			return;
		}
	}
	pmhash_rebuild_forget(task->database, InvalidOid, NIL);
	tasks = list_delete_ptr(tasks, task);
	pfree(task);
}

/*
 * Do a task: start a worker, if need be.  False if there is no slot for it.  That is told
 * to users, unless it is one of ours that has the slot, and may end within the pause.
 */
static bool
start(Task *task, Worker *unused)
{
	MemoryContext old;
	bool		has_slot = true;
	bool		tell = no_start_before != 0 || at_work(PMHASH_JOBS, InvalidOid) == 0;

	Assert(unused->handle == NULL);
	read_catalog();
	old = MemoryContextSwitchTo(TopMemoryContext);
	task->wanted_at = NEVER;
	if (!list_member_oid(existing, task->database))
		forget_database(task);
	else if (!list_member_oid(connectable, task->database) ||
			 (task->job == PMHASH_JOB_CLEAN && !pmhash_pool_is_present()))
		 /* nothing to be done */ ;
	else if (!pmhash_database_is_free(task->database))	/* a worker would wait */
		try_again(task, true);
	else
	{
		unused->database = task->database;
		unused->job = task->job;
		has_slot = pmhash_start_worker(task->database, task->job, unused - workers,
									   &unused->handle, tell);
		if (has_slot)
			task->not_before = pmhash_clock_ms() + START_PAUSE;
		else
		{
			unused->handle = NULL;
			want(task->database, task->job);
			no_start_before = pmhash_clock_ms() + SLOT_PAUSE;
		}
		tasks = lappend(list_delete_ptr(tasks, task), task);
	}
	MemoryContextSwitchTo(old);
	return has_slot;
}

/* Start those whose turn it is, as far as there are places and slots. */
static void
start_all(void)
{
	for (Rank rank = FIRST_IN_DATABASE; rank < NOT_NOW; rank++)
	{
		ListCell   *lc;

		foreach(lc, list_copy(tasks))
		{
			Worker	   *unused = find_unused();

			launcher_interrupts();
			if (rank_of(lfirst(lc)) != rank)
				continue;
			if (unused == NULL || !start(lfirst(lc), unused))
				return;
		}
	}
}

/* ---- when ---- */

/*
 * Databases that have, or have had in the life of this launcher, files or a directory in the
 * pool: those that have been dropped are forgotten (start sees to that), with what they have
 * left; on a primary the others are cleaned, unless there is nothing of ours.  Not while
 * something else stands where the pool was.  The directories are listed before the catalog
 * is read: one is made when its database is there.
 */
static void
want_cleaning(void)
{
	bool		present = pmhash_pool_is_present();
	ListCell   *lc;

	if (present)
	{
		foreach(lc, pmhash_databases_in_pool())
			(void) find_task(lfirst_oid(lc), PMHASH_JOB_CLEAN);
		is_read = false;
	}
	read_catalog();
	foreach(lc, tasks)
	{
		Task	   *task = lfirst(lc);
		bool		cleans = task->job == PMHASH_JOB_CLEAN;

		if (!list_member_oid(existing, task->database))
			task->wanted_at = !cleans || present ? 0 : NEVER;
		else if (cleans && present && !RecoveryInProgress() &&
				 (!task->empty || pmhash_database_has_files(task->database)))
			want(task->database, PMHASH_JOB_CLEAN);
	}
}

static void
take_requests(void)
{
	PmhashRequests requests = pmhash_take_requests();

	for (PmhashJob job = 0; job < PMHASH_JOBS; job++)
	{
		for (int i = 0; i < requests.n; i++)
		{
			if (requests.jobs[i] & (1 << job))
				want(requests.database[i], job);
		}
	}
}

/*
 * Databases of a standby that had indexes when they were looked at, or have a directory: a
 * build may be due there that nothing says.  WAL has said that a file goes, and then the
 * transaction failed; or that there is one, and the transaction was prepared; or there was
 * no place for another file.  The same where none has been able to look yet: the database took
 * no connections.
 */
static void
want_visits(void)
{
	List	   *with_files = pmhash_pool_is_present() ? pmhash_databases_in_pool() : NIL;
	ListCell   *lc;

	read_catalog();
	foreach(lc, connectable)
	{
		Task	   *task = find_task(lfirst_oid(lc), PMHASH_JOB_PLAIN);

		if ((task->empty && !list_member_oid(with_files, task->database)) ||
			task->wanted_at != NEVER ||
			at_work(PMHASH_JOB_PLAIN, task->database) > 0)
			continue;
		task->wanted_at = 0;
		task->visit = true;
	}
}

/* When the next task is due for which there is a place.  Others wait for a worker's end. */
static int64
next_due(void)
{
	int64		next = NEVER;
	ListCell   *lc;

	if (find_unused() == NULL)
		return next;
	foreach(lc, tasks)
	{
		Task	   *task = lfirst(lc);
		int64		due = Max(task->wanted_at, task->not_before);

		if (is_startable(task) && task->wanted_at != NEVER)
			next = Min(next, Max(due, no_start_before));
	}
	return next;
}

/*
 * Which databases are to be looked at?  Requests may come before all else; on a standby
 * nothing but what is dropped before its files are used.
 */
static void
collect(bool settled, int64 *next)
{
	static int64 last = 0;
	static int	looked = -1;	/* as a standby, or not */
	bool		standby = RecoveryInProgress();
	int64		now = pmhash_clock_ms();
	int64		naptime = pmhash_cleaner_naptime * INT64CONST(1000);
	bool		regular = settled && pmhash_clock_past(last, naptime);

	if (regular)
		last = now;
	if (settled)
		*next = Min(*next, last + naptime);
	if (standby && !pmhash_standby_reached())
		*next = Min(*next, now + START_PAUSE);
	else
	{
		take_requests();
		for (PmhashJob job = 0; !standby && job <= PMHASH_JOB_EXPRESSIONS; job++)
		{
			List	   *due = pmhash_rebuilds_due(job, now, next);

			if (at_work(job, InvalidOid) == 0)
				want_in(due, job);
		}
		if (settled && looked != standby)
		{
			read_catalog();
			want_in(connectable, PMHASH_JOB_PLAIN);
			looked = standby;
		}
		else if (regular && standby)
			want_visits();
	}
	if (regular)
		want_cleaning();
}

/*
 * See to all databases; settled: also to those where nothing has been requested.  Returns
 * when there may be something to do again (pmhash_clock_ms).
 */
static int64
see_to_databases(bool settled)
{
	int64		next = pmhash_clock_ms() + LONGEST_SLEEP;
	int64		due;

	is_read = false;
	note_ends();
	collect(settled, &next);
	if (pmhash_clock_ms() >= no_start_before)
		start_all();
	due = next_due();
	return Min(next, due);
}

#define NOTE_FLUSHED_EVERY	1000	/* ms, while WAL is written */
#define NOTE_IDLE			5000	/* ms, while none is */
#define LOOK_AROUND			100 /* ms, while scans want WAL to be flushed */
#define LOOK_FOR_RECOVERY	5000	/* ms: its restartpoints, and its end */

/*
 * ms from the launcher's start to the first look at all indexes, which takes as
 * long as opening them all: the first users of a server come then, and what they
 * meet that has to be looked at they request.
 */
#define SETTLE_TIME			2000

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
	if (pg_atomic_read_u32(&pmhash_shared->ready) != 0 &&
		pmhash_clock_past(last, LOOK_AROUND))
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
	pmhash_set_launcher(NULL);
	for (;;)
	{
		pmhash_sleep(-1, pmhash_wait_event(PMHASH_WAIT_POOL));
		launcher_interrupts();
	}
}

/*
 * A round; settled: the server has been a primary for some time.  Returns milliseconds until
 * the next one.
 */
static long
go_round(bool settled)
{
	bool		standby = RecoveryInProgress();
	long		timeout = LOOK_FOR_RECOVERY;
	int64		next;

	if (standby && !pmhash_standby_is_active())
		return timeout;
	if (!standby)
	{
		timeout = note_flushed();
		renew_nonce_now_and_then();
	}
	pmhash_notice_failed_writes(go_on_writing);
	next = see_to_databases(standby || settled);
	if (!standby && !settled)
		timeout = Min(timeout, SETTLE_TIME / 4);
	return pmhash_clock_until(next, timeout);
}

/*
 * The launcher.
 */
void
pmhash_launcher_main(Datum arg)
{
	MemoryContext round;
	int64		primary_since = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	catch_termination();
	BackgroundWorkerUnblockSignals();
	if (pmhash_shared == NULL)
		proc_exit(0);
	if (!pmhash_shared->usable)
		wait_for_another_life();
	pmhash_no_transaction_timeout();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);

	before_shmem_exit(launcher_exit, (Datum) 0);
	pmhash_set_launcher(MyLatch);
	round = AllocSetContextCreate(TopMemoryContext, "pmhash launcher round",
								  ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(round);
	if (RecoveryInProgress() && pmhash_standby_is_active())
		pmhash_remove_distrusted();
	for (;;)
	{
		if (!pmhash_shared->usable)
			wait_for_another_life();	/* given up */
		MemoryContextReset(round);
		MemoryContextSwitchTo(round);
		if (primary_since == 0 && !RecoveryInProgress())
		{
			pmhash_pool_ready();
			primary_since = pmhash_clock_ms();
		}
		rest(go_round(primary_since != 0 && pmhash_clock_past(primary_since, SETTLE_TIME)));
	}
}
