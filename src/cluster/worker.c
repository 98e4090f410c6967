/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background workers: one launcher, and one sweeper at a time for the
 *	  database that needs it.
 *
 * The launcher starts when recovery is over and completes the undo of the
 * last run, so that usually no user has to.  It is connected to no database
 * (only to shared catalogs, like autovacuum's launcher), so it is in nobody's
 * way; a sweeper is connected for the few milliseconds that its work takes
 * and exits, so that DROP DATABASE and CREATE DATABASE TEMPLATE wait for it
 * at most (procarray.c, CountOtherDBBackends).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>

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

PGDLLEXPORT void pmhash_launcher_main(Datum arg);
PGDLLEXPORT void pmhash_sweeper_main(Datum arg);

/* ---- nudges ---- */

/*
 * Ask for a sweep of a database soon.  Raises no error.
 */
void
pmhash_nudge(Oid database)
{
	PmhashShared *shared = pmhash_shared;
	Latch	   *launcher;
	bool		known = false;

	if (shared == NULL || !shared->usable)
		return;
	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < shared->n_nudges; i++)
		known |= shared->nudge[i] == database;
	if (!known && shared->n_nudges < PMHASH_MAX_NUDGES)
		shared->nudge[shared->n_nudges++] = database;
	else if (!known)
		shared->nudge_all = true;
	launcher = shared->launcher;
	SpinLockRelease(&shared->mutex);
	if (launcher != NULL)
		SetLatch(launcher);
}

/* Take the nudges, as a list of OIDs; *all: too many to be listed. */
static List *
take_nudges(bool *all)
{
	PmhashShared *shared = pmhash_shared;
	Oid			nudge[PMHASH_MAX_NUDGES];
	int			n;
	List	   *databases = NIL;

	SpinLockAcquire(&shared->mutex);
	n = shared->n_nudges;
	memcpy(nudge, shared->nudge, sizeof(Oid) * n);
	*all = shared->nudge_all;
	shared->n_nudges = 0;
	shared->nudge_all = false;
	SpinLockRelease(&shared->mutex);
	for (int i = 0; i < n; i++)
		databases = lappend_oid(databases, nudge[i]);
	return databases;
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

/* Start a sweeper for a database and wait until it has finished. */
static void
run_sweeper(Oid database)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "pmhash", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "pmhash_sweeper_main", BGW_MAXLEN);
	snprintf(worker.bgw_name, BGW_MAXLEN, "pmhash sweeper for database %u", database);
	strlcpy(worker.bgw_type, "pmhash sweeper", BGW_MAXLEN);
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;

	/* No free slot: the next round tries again. */
	if (RegisterDynamicBackgroundWorker(&worker, &handle))
		(void) WaitForBackgroundWorkerShutdown(handle);
}

/*
 * One round: remove what databases that are gone have left, and have the
 * given databases swept, or all (if everything is set).
 */
static void
do_round(bool everything, List *wanted)
{
	List	   *in_pool = databases_in_pool();
	List	   *existing;
	List	   *connectable;
	ListCell   *lc;

	if (in_pool == NIL)
		return;
	connectable = databases_in_catalog(&existing);
	foreach(lc, in_pool)
	{
		Oid			database = lfirst_oid(lc);

		CHECK_FOR_INTERRUPTS();
		if (!list_member_oid(existing, database))
			pmhash_sweep_dropped(database);
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
	List	   *wanted = take_nudges(&everything);

	if (TimestampDifferenceExceeds(*last_full, now, pmhash_sweep_naptime * 1000))
		everything = true;
	if (!everything && wanted == NIL)
		return false;
	if (everything)
		*last_full = now;
	do_round(everything, wanted);
	return true;
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

/* ---- main functions ---- */

/*
 * The launcher.  Ends for good if the pool can't be used in this run.
 */
void
pmhash_launcher_main(Datum arg)
{
	MemoryContext round;
	TimestampTz last_full = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
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
		MemoryContextReset(round);
		MemoryContextSwitchTo(round);

		/* Waiting for a sweeper eats latch events: look for nudges again. */
		while (do_what_is_due(&last_full))
			CHECK_FOR_INTERRUPTS();
		note_flushed();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 pmhash_sweep_naptime * 1000L, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
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

/* Register the launcher.  Only while preloading. */
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
}
