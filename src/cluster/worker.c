/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background workers: one launcher, one sweeper at a time for the
 *	  database that needs it, one rebuilder at a time likewise; on a standby
 *	  one that sweeps its pool once.
 *
 * The launcher starts when recovery is over and completes the undo of the
 * last run, so that usually no user has to.  It is connected to no database
 * (only to shared catalogs, like autovacuum's launcher), so it is in nobody's
 * way; a sweeper is connected for the few milliseconds that its work takes
 * and exits, so that DROP DATABASE and CREATE DATABASE TEMPLATE wait for it
 * at most (procarray.c, CountOtherDBBackends).  A rebuilder may take long.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/fd.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cluster/clock.h"
#include "cluster/internal.h"

#define RESTART_AFTER		10	/* seconds, if the launcher fails */
#define RETRY_AFTER			2000	/* ms, if the pool could not be written */
#define NOTE_FLUSHED_EVERY	1000	/* ms, while WAL is written */
#define NOTE_IDLE			5000	/* ms, while none is */
#define NOTE_CHECKPOINT		100 /* ms, while one is under way */
#define START_PAUSE			500 /* ms, before a rebuilder is started again */
#define WORKER_PAUSE		5000	/* ms, before a worker is started that has found
								 * no slot */
#define MAX_DOUBLINGS		6	/* of that pause, if it did not finish */
#define LOOK_AROUND			100 /* ms, while scans want WAL to be flushed */

PGDLLEXPORT void pmhash_launcher_main(Datum arg);
PGDLLEXPORT void pmhash_sweeper_main(Datum arg);
PGDLLEXPORT void pmhash_rebuilder_main(Datum arg);
PGDLLEXPORT void pmhash_standby_sweeper_main(Datum arg);

/* ---- nudges ---- */

static void
add_nudge(PmhashNudges *nudges, Oid database)
{
	Latch	   *launcher;
	bool		known = false;

	SpinLockAcquire(&pmhash_shared->mutex);
	for (int i = 0; i < nudges->n; i++)
		known |= nudges->database[i] == database;
	if (!known && nudges->n < PMHASH_MAX_NUDGES)
		nudges->database[nudges->n++] = database;
	else if (!known)
		nudges->all = true;
	launcher = pmhash_shared->launcher;
	SpinLockRelease(&pmhash_shared->mutex);
	if (launcher != NULL)
		SetLatch(launcher);
}

/*
 * Ask for a sweep of a database soon.  Raises no error.
 */
void
pmhash_nudge(Oid database)
{
	if (pmhash_shared != NULL && pmhash_shared->usable)
		add_nudge(&pmhash_shared->sweep, database);
}

/*
 * Ask for a look at a database soon: it may have invalid indexes.  Raises no
 * error.
 */
void
pmhash_nudge_look(Oid database)
{
	if (pmhash_shared != NULL && pmhash_shared->usable)
		add_nudge(&pmhash_shared->look, database);
}

/*
 * Have the launcher look for what there is to do.  Raises no error.
 */
void
pmhash_wake_launcher(void)
{
	Latch	   *launcher;

	SpinLockAcquire(&pmhash_shared->mutex);
	launcher = pmhash_shared->launcher;
	SpinLockRelease(&pmhash_shared->mutex);
	if (launcher != NULL)
		SetLatch(launcher);
}

/* Take the nudges, as a list of OIDs; *all: too many to be listed. */
static List *
take_nudges(PmhashNudges *nudges, bool *all)
{
	PmhashNudges taken;
	List	   *databases = NIL;

	SpinLockAcquire(&pmhash_shared->mutex);
	taken = *nudges;
	nudges->n = 0;
	nudges->all = false;
	SpinLockRelease(&pmhash_shared->mutex);
	for (int i = 0; i < taken.n; i++)
		databases = lappend_oid(databases, taken.database[i]);
	*all = taken.all;
	return databases;
}

/* ---- the launcher's end ---- */

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
 * To be called between the launcher's steps, outside transactions.  Ends it
 * without a word if the server is being shut down; an exit code of 1 has the
 * postmaster start it again after RESTART_AFTER.
 */
static void
launcher_interrupts(void)
{
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
set_launcher(Latch *latch)
{
	SpinLockAcquire(&pmhash_shared->mutex);
	pmhash_shared->launcher = latch;
	SpinLockRelease(&pmhash_shared->mutex);
}

static void
launcher_exit(int code, Datum arg)
{
	set_launcher(NULL);
}

/* ---- what there is to do ---- */

/* Databases that have a directory in the pool. */
static List *
databases_in_pool(void)
{
	DIR		   *dir = AllocateDir(pmhash_pool_path());
	struct dirent *de;
	List	   *databases = NIL;
	Oid			database;

	while ((de = ReadDir(dir, pmhash_pool_path())) != NULL)
	{
		if (pmhash_parse_database_name(de->d_name, &database))
			databases = lappend_oid(databases, database);
	}
	FreeDir(dir);
	return databases;
}

/*
 * Databases that exist and can be connected to; *all those that exist.  A
 * database that CREATE DATABASE is still making is not among them, but nobody
 * can have made an index in it either.
 */
static List *
databases_in_catalog(List **all)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *connectable = NIL;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	*all = NIL;
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old = MemoryContextSwitchTo(context);

		*all = lappend_oid(*all, form->oid);
		if (form->datallowconn && !database_is_invalid_form(form))
			connectable = lappend_oid(connectable, form->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return connectable;
}

/*
 * Say that no slot is free for a worker of ours, once until there is one again;
 * pmhash_indexes shows it as well.
 */
static void
note_worker_slot(bool free)
{
	bool		known = pg_atomic_exchange_u32(&pmhash_shared->no_worker, !free) != 0;

	if (!free && !known)
		ereport(LOG,
				(errmsg("pmhash: no slot is free for a background worker"),
				 errdetail("Until there is one, invalid indexes are not rebuilt and files that no index owns are not removed."),
				 errhint("You might need to increase max_worker_processes.")));
	else if (free && known)
		ereport(LOG,
				(errmsg("pmhash: a slot for a background worker is free again")));
}

/*
 * Start a worker of ours in a database.  False if no place is free for it: the
 * next round tries again.
 */
static bool
start_worker(Oid database, const char *function, const char *type,
			 BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;
	bool		started;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "pmhash", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, function, BGW_MAXLEN);
	snprintf(worker.bgw_name, BGW_MAXLEN, "%s for database %u", type, database);
	strlcpy(worker.bgw_type, type, BGW_MAXLEN);
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;

	started = RegisterDynamicBackgroundWorker(&worker, handle);
	note_worker_slot(started);
	return started;
}

/*
 * Start a sweeper for a database and wait until it has finished.  False if it is to
 * be tried again: there is no place for one now, or files could not be judged
 * because somebody had an index locked.
 */
static bool
run_sweeper(Oid database)
{
	BackgroundWorkerHandle *handle;

	if (!start_worker(database, "pmhash_sweeper_main", "pmhash sweeper", &handle))
		return false;
	pg_atomic_write_u32(&pmhash_shared->sweep_kept, 0);
	(void) WaitForBackgroundWorkerShutdown(handle);
	return pg_atomic_read_u32(&pmhash_shared->sweep_kept) == 0;
}

/*
 * Databases that have had a directory in the pool in this run, so that one
 * that has gone with all its files is missed.  Lives in TopMemoryContext.
 */
static List *known_databases = NIL;

static void
remember_databases(List *databases)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	known_databases = list_concat_unique_oid(known_databases, databases);
	MemoryContextSwitchTo(old);
}

/*
 * Databases whose sweep has to be done again, at first after WORKER_PAUSE and then
 * less and less often.  Lives in TopMemoryContext.
 */
static List *sweeps_put_off = NIL;
static int64 put_off_until;		/* pmhash_clock_ms */
static int	put_off_in_a_row = 0;

static void
put_off(Oid database)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	int64		pause = (int64) WORKER_PAUSE << put_off_in_a_row;

	if (sweeps_put_off == NIL)
	{
		put_off_until = pmhash_clock_ms() + pause;
		put_off_in_a_row = Min(put_off_in_a_row + 1, MAX_DOUBLINGS);
	}
	sweeps_put_off = list_append_unique_oid(sweeps_put_off, database);
	MemoryContextSwitchTo(old);
}

/* Those of them that are to be tried again by now. */
static List *
take_put_off(void)
{
	List	   *databases;

	if (sweeps_put_off == NIL || pmhash_clock_ms() < put_off_until)
		return NIL;
	databases = list_copy(sweeps_put_off);
	list_free(sweeps_put_off);
	sweeps_put_off = NIL;
	return databases;
}

/*
 * One round: remove what databases that are gone have left, and have the
 * given databases swept, or all (if everything is set).  Not while something
 * else stands in the pool's place.
 */
static void
do_round(bool everything, List *wanted)
{
	List	   *existing;
	List	   *connectable;
	ListCell   *lc;

	if (!pmhash_pool_in_place())
		return;
	remember_databases(databases_in_pool());
	if (known_databases == NIL)
		return;
	connectable = databases_in_catalog(&existing);
	foreach(lc, known_databases)
	{
		Oid			database = lfirst_oid(lc);

		launcher_interrupts();
		if (!list_member_oid(existing, database))
		{
			pmhash_sweep_dropped(database);
			known_databases = foreach_delete_current(known_databases, lc);
		}
		else if (list_member_oid(connectable, database) &&
				 (everything || list_member_oid(wanted, database)) &&
				 !run_sweeper(database))
			put_off(database);
	}
}

/* Do a round if nudges or the clock ask for one; tell if they did. */
static bool
do_what_is_due(int64 *last_full)
{
	int64		now = pmhash_clock_ms();
	bool		everything;
	List	   *wanted = take_nudges(&pmhash_shared->sweep, &everything);

	wanted = list_concat_unique_oid(wanted, take_put_off());
	if (*last_full == 0 || now - *last_full >= pmhash_sweep_naptime * INT64CONST(1000))
		everything = true;
	if (!everything && wanted == NIL)
		return false;
	if (everything)
		*last_full = now;
	do_round(everything, wanted);
	if (sweeps_put_off == NIL)
		put_off_in_a_row = 0;
	return true;
}

/* ---- rebuilds ---- */

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

/* Add the databases that have been asked for, or where a new try is due. */
static void
collect_databases(bool everything, int64 *next)
{
	List	   *asked;
	bool		too_many;

	asked = take_nudges(&pmhash_shared->look, &too_many);
	look_at(asked);
	look_at(pmhash_rebuilds_due(pmhash_clock_ms(), next));
	if (everything || too_many)
	{
		List	   *all;

		look_at(databases_in_catalog(&all));
	}
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
		unfinished = Min(unfinished + 1, MAX_DOUBLINGS);
		look_at(list_make1_oid(last_database));
	}
	return false;
}

/* Start a rebuilder for the first database of the list that still exists. */
static void
start_rebuilder(void)
{
	List	   *all;
	List	   *connectable = databases_in_catalog(&all);
	ListCell   *lc;

	foreach(lc, to_look_at)
	{
		Oid			database = lfirst_oid(lc);
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		bool		exists = list_member_oid(connectable, database);
		bool		started;

		pg_atomic_write_u32(&pmhash_shared->rebuilder_finished, 0);
		started = exists &&
			start_worker(database, "pmhash_rebuilder_main", "pmhash rebuilder", &rebuilder);

		MemoryContextSwitchTo(old);
		if (exists && !started)
		{
			no_start_before = pmhash_clock_ms() + WORKER_PAUSE;
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

/* Not too often in the same database: it may fail before it can tell. */
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
static long
see_to_rebuilds(bool everything)
{
	long		timeout = pmhash_sweep_naptime * 1000L;
	int64		next = PG_INT64_MAX;

	collect_databases(everything, &next);
	if (!pmhash_rebuild)
		return sweeps_put_off != NIL ? Min(timeout, WORKER_PAUSE) : timeout;
	if (!rebuilder_at_work() && to_look_at != NIL)
	{
		if (may_start_rebuilder())
			start_rebuilder();
		if (rebuilder == NULL && to_look_at != NIL)
			return Min(timeout, START_PAUSE);
	}
	if (sweeps_put_off != NIL)
		next = Min(next, put_off_until);
	return Min(timeout, Max(1, (long) Min(next - pmhash_clock_ms(), LONG_MAX)));
}

/*
 * Keep the note of flushed WAL fresh also while nobody inserts or vacuums.
 * Where WAL ends now is the end of a record; by the next round it is flushed.
 * Returns milliseconds until there may be something to note again: a server that
 * writes nothing is seldom woken.
 */
static long
note_flushed(void)
{
	static XLogRecPtr seen = InvalidXLogRecPtr;
	static XLogRecPtr noted = InvalidXLogRecPtr;
	XLogRecPtr	end = pmhash_insert_end();

	if (seen > noted && seen <= GetFlushRecPtr(NULL))
	{
		pmhash_journal_note_flushed(seen);
		noted = seen;
	}
	seen = end;
	return noted == end ? NOTE_IDLE : NOTE_FLUSHED_EVERY;
}

/*
 * A crash within the first seconds after a checkpoint must not cost the indexes:
 * the journal has to say that WAL past its redo pointer was flushed by this run
 * (undo.c, undo_doubt).  Once pg_control has the checkpoint, its record is
 * flushed (xlog.c, CreateCheckPoint), and every replay reads it: so replay ends
 * past where that begins.  Looked for only from when a checkpoint begins, which
 * shared memory tells, until it is in pg_control, or WAL past its redo pointer
 * has been noted anyway, as it is in one that takes long.  Returns milliseconds
 * until the next look.
 */
static long
note_checkpoint(void)
{
	static XLogRecPtr last = InvalidXLogRecPtr;
	XLogRecPtr	redo = GetRedoRecPtr();
	ControlFileData server;
	char		reason[PMHASH_REASON_SIZE];

	if (redo == last)
		return NOTE_IDLE;
	if (pmhash_read_pg_control(&server, reason) && server.checkPointCopy.redo == redo)
		pmhash_journal_note_flushed(server.checkPoint + 1);
	else if (!pmhash_journal_is_past(redo))
		return NOTE_CHECKPOINT;
	last = redo;
	return NOTE_IDLE;
}

/*
 * Renew the nonce if something has been written since it was renewed, but not
 * more often than files are swept.
 */
static void
renew_nonce_now_and_then(void)
{
	static int64 last = 0;
	static XLogRecPtr last_end = InvalidXLogRecPtr;
	XLogRecPtr	end = pmhash_insert_end();

	if (end == last_end || !pmhash_pool_in_place() ||
		!pmhash_clock_past(last, pmhash_sweep_naptime * INT64CONST(1000)))
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
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 flush_in < 0 ? timeout : Min(timeout, flush_in),
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		launcher_interrupts();
	} while ((flush_in >= 0 ||
			  pg_atomic_read_u64(&pmhash_shared->flush_wanted) != InvalidXLogRecPtr) &&
			 !pmhash_clock_past(begun, LOOK_AROUND));
}

/*
 * Has the kernel written back what it should?  Asked when a checkpoint has come
 * by, whose cost that of writing back our files is part of, and once at the
 * beginning: the last run may not have had the time to ask.
 */
static void
notice_failed_writes(void)
{
	static XLogRecPtr last = InvalidXLogRecPtr;
	XLogRecPtr	redo = GetRedoRecPtr();
	char		reason[PMHASH_REASON_SIZE];

	if (redo == last || !pmhash_pool_in_place())
		return;
	last = redo;
	if (!pmhash_pool_written_back(reason))
		pmhash_distrust_all(reason);
}

/* The pool was refused at start.  Wait until it can be used, or end. */
static void
wait_for_pool(void)
{
	if (!pmhash_shared->usable && !pmhash_shared->retried)
		proc_exit(0);
	while (!pmhash_shared->usable && !pmhash_try_again())
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 RETRY_AFTER, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		launcher_interrupts();
	}
}

/* ---- main functions ---- */

/*
 * The launcher.  Ends for good if the pool can't be used in this run.
 */
void
pmhash_launcher_main(Datum arg)
{
	MemoryContext round;
	int64		last_full = 0;
	bool		first = true;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	catch_termination();
	BackgroundWorkerUnblockSignals();
	if (pmhash_shared == NULL)
		proc_exit(0);
	wait_for_pool();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	pmhash_pool_ready();
	before_shmem_exit(launcher_exit, (Datum) 0);
	set_launcher(MyLatch);
	round = AllocSetContextCreate(TopMemoryContext, "pmhash launcher round",
								  ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		long		timeout;

		MemoryContextReset(round);
		MemoryContextSwitchTo(round);

		/* Waiting for a sweeper eats latch events: look for nudges again. */
		while (do_what_is_due(&last_full))
			launcher_interrupts();
		timeout = Min(note_flushed(), note_checkpoint());
		renew_nonce_now_and_then();
		notice_failed_writes();
		timeout = Min(see_to_rebuilds(first), timeout);
		first = false;
		rest(timeout);
	}
}

/*
 * A sweeper: one sweep of one database.  Locks on catalogs are waited for a
 * second at most: DROP DATABASE waits five for us.
 */
void
pmhash_sweeper_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid, 0);
	SetConfigOption("lock_timeout", "1000", PGC_SUSET, PGC_S_OVERRIDE);

	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, "looking for pmhash files that no index owns");
	pmhash_sweep_database();
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);
}

/*
 * A rebuilder: looks at all indexes of one database and rebuilds those that
 * are invalid.  Waits a while for locks, since a try that is given up is a
 * longer wait for everybody; but not for ever, since writers queue behind it.
 */
void
pmhash_rebuilder_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid, 0);
	SetConfigOption("lock_timeout", "5000", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif

	/*
	 * As autovacuum.c, AutoVacWorkerMain.  A serializable scan of the whole table
	 * would let other serializable transactions fail because of it.
	 */
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("synchronous_commit", "local", PGC_SUSET, PGC_S_OVERRIDE);

	pmhash_rebuild_database();
	pg_atomic_write_u32(&pmhash_shared->rebuilder_finished, 1);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/*
 * The sweeper of a standby, once, as soon as that can be read.  It looks at no
 * catalog, so it is in no database.
 */
void
pmhash_standby_sweeper_main(Datum arg)
{
	List	   *databases;
	ListCell   *lc;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	if (pmhash_shared == NULL || !pmhash_shared->usable)
		proc_exit(0);
	databases = databases_in_pool();
	foreach(lc, databases)
		pmhash_sweep_distrusted(lfirst_oid(lc));
}

/* What a standby has left of its time as a primary is removed at once. */
static void
register_standby_sweeper(void)
{
	BackgroundWorker worker;
	struct stat st;

	if (stat(STANDBY_SIGNAL_FILE, &st) != 0)
		return;
	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "pmhash", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "pmhash_standby_sweeper_main", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "pmhash standby sweeper", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "pmhash standby sweeper", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}

/* Register the workers that start by themselves.  Only while preloading. */
void
pmhash_worker_init(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = RESTART_AFTER;
	strlcpy(worker.bgw_library_name, "pmhash", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "pmhash_launcher_main", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "pmhash launcher", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "pmhash launcher", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
	register_standby_sweeper();
}
