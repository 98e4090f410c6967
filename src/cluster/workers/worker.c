/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background workers: starting them, and their main functions.
 *
 * There is one launcher (launcher.c), and workers that it starts in databases.  Each has a
 * job (PmhashJob) and exits when it is done.  If there is nothing to build, that takes a few
 * milliseconds, and DROP DATABASE and CREATE DATABASE TEMPLATE wait for it (procarray.c,
 * CountOtherDBBackends).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"

#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/queue/queue.h"
#include "cluster/replay/replay.h"
#include "cluster/workers/workers.h"

PGDLLEXPORT void pmhash_worker_main(Datum arg);

/* ---- starting ---- */

/*
 * Say that no slot is free for a worker of ours, once until there is one again;
 * pmhash.indexes shows it as well.
 */
static void
note_worker_slot(bool free)
{
	bool		known = pg_atomic_read_u64(&pmhash_shared->no_worker) != 0;

	if (known != free)
		return;
	pg_atomic_write_u64(&pmhash_shared->no_worker, free ? 0 : (uint64) pmhash_clock_ms());
	if (!free)
		ereport(LOG,
				(errmsg("pmhash: no slot is free for a background worker"),
				 errdetail("Until there is one, invalid indexes are not rebuilt and files that no index owns are not removed."),
				 errhint("You might need to increase max_worker_processes.")));
}

/* What the server is to know of a worker. */
static BackgroundWorker
worker_of(const char *function, const char *type, int flags, int restart)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = flags;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = restart;
	strlcpy(worker.bgw_library_name, "pmhash", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, function, BGW_MAXLEN);
	strlcpy(worker.bgw_name, type, BGW_MAXLEN);
	strlcpy(worker.bgw_type, type, BGW_MAXLEN);
	return worker;
}

#define WITH_DATABASE	(BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION)

/*
 * Start a worker in a database, with a job and a place for its result.  False if no slot is
 * free for it; tell: and users are to know that.
 */
bool
pmhash_start_worker(Oid database, PmhashJob job, int place,
					BackgroundWorkerHandle **handle, bool tell)
{
	BackgroundWorker worker = worker_of("pmhash_worker_main", "pmhash worker", WITH_DATABASE,
										BGW_NEVER_RESTART);
	bool		started;

	Assert(OidIsValid(database));
	Assert(place >= 0 && place < PMHASH_WORKERS);
	Assert(job < PMHASH_JOBS);
	pg_atomic_write_u32(&pmhash_shared->worker_done[place], 0);
	snprintf(worker.bgw_name, BGW_MAXLEN, "pmhash worker for database %u", database);
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_extra[0] = (char) job;
	worker.bgw_extra[1] = (char) place;
	worker.bgw_notify_pid = MyProcPid;

	started = RegisterDynamicBackgroundWorker(&worker, handle);
	if (started || tell)
		note_worker_slot(started);
	return started;
}

/* ---- main functions ---- */

/*
 * How each worker begins.
 *
 * search_path is empty, as in autovacuum.c, AutoVacWorkerMain.  Else functions of index
 * expressions, which run in the rights of the table's owner, would call what whoever
 * may ALTER DATABASE ... SET search_path, or CREATE in a schema of it, has put there.
 *
 * Locks are waited for a while, since a try that is given up is a longer wait for all; but
 * never without an end, also while it connects: that takes a lock on the database, and some
 * on its catalogs (postinit.c, InitPostgres; relcache.c, load_critical_index).  ALTER
 * DATABASE, CREATE DATABASE TEMPLATE and VACUUM FULL of a catalog hold those for
 * as long as they like, and the other databases need the slot.  So may a transaction hold
 * those on a table, and writers queue after us.
 *
 * The rest is as in AutoVacWorkerMain, too, since a build may take long.  A serializable scan
 * of a whole table would let other serializable transactions fail because of it.
 */
static void
begin(Oid database)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	SetConfigOption("search_path", "", PGC_SUSET, PGC_S_OVERRIDE);
	pmhash_no_transaction_timeout();
	SetConfigOption("lock_timeout", "5000", PGC_SUSET, PGC_S_OVERRIDE);
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	SetConfigOption("statement_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);
	pmhash_gives_way = true;
}

static void
function_worker_exit(int code, Datum arg)
{
	pg_atomic_write_u32(&pmhash_shared->function_worker, 0);
}

/*
 * On a primary: orphans go, then the invalid indexes of its job are rebuilt.  False if there
 * are some left.
 */
static bool
look_after(PmhashJob job)
{
	bool		looked;
	List	   *lacking;

	SetConfigOption("default_transaction_read_only", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("synchronous_commit", "local", PGC_SUSET, PGC_S_OVERRIDE);
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, "looking at pmhash indexes and files");
	looked = pmhash_remove_orphans(&lacking);
	CommitTransactionCommand();
	return pmhash_rebuild_indexes(job, lacking) && looked;
}

/*
 * Each worker in a database.  Those of a standby are subject to the conflicts
 * with replay that all sessions are.
 *
 * temp_file_limit is to stop queries; a build needs what the index's entries take, and
 * with less it would fail at each try.  But it is for users' functions.  One
 * worker at a time runs those, which may take for ever, also if the launcher that started
 * it has ended and another one starts the next.
 */
void
pmhash_worker_main(Datum arg)
{
	PmhashJob	job = (PmhashJob) MyBgworkerEntry->bgw_extra[0];
	int			place = MyBgworkerEntry->bgw_extra[1];
	bool		done;

	if (job == PMHASH_JOB_EXPRESSIONS)
	{
		uint32		none = 0;

		if (!pg_atomic_compare_exchange_u32(&pmhash_shared->function_worker, &none, 1))
			return;
		before_shmem_exit(function_worker_exit, (Datum) 0);
	}
	begin(DatumGetObjectId(arg));
	if (job == PMHASH_JOB_PLAIN)
		SetConfigOption("temp_file_limit", "-1", PGC_SUSET, PGC_S_OVERRIDE);
	done = !RecoveryInProgress() ? look_after(job) : pmhash_standby_build_database(job);
	Assert(!IsTransactionState());
	/* (Its place may be that of a worker of another launcher by now, which is no harm.) */
	pg_atomic_write_u32(&pmhash_shared->worker_done[place], done);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/*
 * Register the workers that start by themselves.
 *
 * None under pg_upgrade, as autovacuum (postmaster.c): a rebuild there would change stubs
 * that are hard links of the old cluster's, be in the way of pg_restore's DROP DATABASE,
 * and in the old cluster write WAL that its logical slots have not consumed.
 */
void
pmhash_worker_init(void)
{
	BackgroundWorker launcher = worker_of("pmhash_launcher_main", "pmhash launcher",
										  WITH_DATABASE, PMHASH_WORKER_RESTART);
	BackgroundWorker warmer = worker_of("pmhash_warmer_main", "pmhash warmer",
										BGWORKER_SHMEM_ACCESS, BGW_NEVER_RESTART);

	Assert(process_shared_preload_libraries_in_progress);
	if (IsBinaryUpgrade)
		return;
	RegisterBackgroundWorker(&launcher);

	/* The last to get a slot, and the first to give it back. */
	if (pmhash_warm_up != 0)
		RegisterBackgroundWorker(&warmer);
}
