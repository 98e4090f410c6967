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
#include "utils/timestamp.h"

#include "cluster/internal.h"

#define RESTART_AFTER		10	/* seconds, if the launcher fails */
#define START_PAUSE			500 /* ms, before a rebuilder is started again */
#define MAX_DOUBLINGS		6	/* of that pause, if it did not finish */

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
 * Start a worker of ours in a database.  False if no place is free for it: the
 * next round tries again.
 */
static bool
start_worker(Oid database, const char *function, const char *type,
			 BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

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

	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/* Start a sweeper for a database and wait until it has finished. */
static void
run_sweeper(Oid database)
{
	BackgroundWorkerHandle *handle;

	if (start_worker(database, "pmhash_sweeper_main", "pmhash sweeper", &handle))
		(void) WaitForBackgroundWorkerShutdown(handle);
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
				 (everything || list_member_oid(wanted, database)))
			run_sweeper(database);
	}
}

/* Do a round if nudges or the clock ask for one; tell if they did. */
static bool
do_what_is_due(TimestampTz *last_full)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		everything;
	List	   *wanted = take_nudges(&pmhash_shared->sweep, &everything);

	if (TimestampDifferenceExceeds(*last_full, now, pmhash_sweep_naptime * 1000))
		everything = true;
	if (!everything && wanted == NIL)
		return false;
	if (everything)
		*last_full = now;
	do_round(everything, wanted);
	return true;
}

/* ---- rebuilds ---- */

static BackgroundWorkerHandle *rebuilder = NULL;	/* at work, or just done */
static List *to_look_at = NIL;	/* databases; lives in TopMemoryContext */
static Oid	last_database = InvalidOid; /* where the last one was started */
static TimestampTz last_start = 0;
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
collect_databases(bool everything, TimestampTz *next)
{
	List	   *asked;
	bool		too_many;

	asked = take_nudges(&pmhash_shared->look, &too_many);
	look_at(asked);
	look_at(pmhash_rebuilds_due(GetCurrentTimestamp(), next));
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
			return;
		if (!exists)
			pmhash_rebuild_forget(database);
		to_look_at = foreach_delete_current(to_look_at, lc);
		if (started)
		{
			last_database = database;
			last_start = GetCurrentTimestamp();
			return;
		}
	}
}

/* Not too often in the same database: it may fail before it can tell. */
static bool
may_start_rebuilder(void)
{
	return linitial_oid(to_look_at) != last_database ||
		TimestampDifferenceExceeds(last_start, GetCurrentTimestamp(),
								   START_PAUSE << unfinished);
}

/*
 * See to invalid indexes: one rebuilder at a time, which the launcher does not
 * wait for.  Returns milliseconds until there may be something to do again.
 */
static long
see_to_rebuilds(bool everything)
{
	long		timeout = pmhash_sweep_naptime * 1000L;
	TimestampTz next = DT_NOEND;

	collect_databases(everything, &next);
	if (!pmhash_rebuild)
		return timeout;
	if (!rebuilder_at_work() && to_look_at != NIL)
	{
		if (may_start_rebuilder())
			start_rebuilder();
		if (rebuilder == NULL && to_look_at != NIL)
			return Min(timeout, START_PAUSE);
	}
	if (next != DT_NOEND)
		timeout = Min(timeout, 1 + TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next));
	return timeout;
}

/*
 * Keep the note of flushed WAL fresh also while nobody inserts or vacuums.
 * Where WAL ends now is the end of a record; by the next round it is flushed.
 */
static void
note_flushed(void)
{
	static XLogRecPtr seen = InvalidXLogRecPtr;

	if (seen != InvalidXLogRecPtr && seen <= GetFlushRecPtr(NULL))
		pmhash_journal_note_flushed(seen);
	seen = pmhash_insert_end();
}

/*
 * Renew the nonce if something has been written since it was renewed, but not
 * more often than files are swept.
 */
static void
renew_nonce_now_and_then(void)
{
	static TimestampTz last = 0;
	static XLogRecPtr last_end = InvalidXLogRecPtr;
	TimestampTz now = GetCurrentTimestamp();
	XLogRecPtr	end = pmhash_insert_end();

	if (end == last_end || !pmhash_pool_in_place() ||
		!TimestampDifferenceExceeds(last, now, pmhash_sweep_naptime * 1000))
		return;
	last = now;
	last_end = end;
	pmhash_renew_nonce();
}

/* ---- main functions ---- */

/*
 * The launcher.  Ends for good if the pool can't be used in this run.
 */
void
pmhash_launcher_main(Datum arg)
{
	MemoryContext round;
	TimestampTz last_full = 0;
	bool		first = true;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	catch_termination();
	BackgroundWorkerUnblockSignals();
	if (pmhash_shared == NULL || !pmhash_shared->usable)
		proc_exit(0);
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
		note_flushed();
		renew_nonce_now_and_then();
		timeout = see_to_rebuilds(first);
		first = false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		launcher_interrupts();
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
