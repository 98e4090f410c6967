/*-------------------------------------------------------------------------
 *
 * init.c
 *	  Set everything up, once in a process that loads the library; what the engine has the
 *	  server know: waits for its locks, and descriptors.
 *
 * The engine's locks are held for microseconds, but their holder may be stopped
 * meanwhile.  A process that waits longer than a spin shows a wait event, and
 * where nothing is held yet it gives the wait up for a cancel, a timeout or a
 * termination.
 *
 * The engine holds at most one descriptor at a time, for moments (a build: while
 * it loads).  fd.c has to know, and closes one of its own files if it has as
 * many as it may.  So pmhash never takes a descriptor that something else in
 * the server has counted on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "utils/wait_event.h"

#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/open/open.h"
#include "cluster/replay/replay.h"
#include "cluster/workers/workers.h"
#include "engine/table.h"

static void
wait_begin(void)
{
	pgstat_report_wait_start(pmhash_wait_event(PMHASH_WAIT_FILE_LOCK));
	pmhash_count(PMHASH_LOCK_WAITS, 1);
	pmhash_counts_flush();		/* it is seen while the process waits */
}

static void
wait_end(void)
{
	pgstat_report_wait_end();
}

/*
 * pmhash_is_interrupted
 *		Would CHECK_FOR_INTERRUPTS raise something?
 *
 * For what may take long, where that must not raise it itself.  The conditions are
 * those of ProcessInterrupts (postgres.c), as far as other files know of them.
 * Statement and lock timeouts set QueryCancelPending too.  From 17 on a recovery
 * conflict is known to postgres.c alone (RecoveryConflictPending): it waits until the
 * operation is over.
 *
 * By the way this process does what all have to before DROP DATABASE, DROP TABLESPACE
 * and the like of any database go on (ProcSignalBarrier), as CHECK_FOR_INTERRUPTS does.
 * That closes the descriptors that md.c has of relations (smgrreleaseall), which it opens
 * again when it needs them (on 19 it may note, too, what WAL and pages are to have): nothing
 * that a caller has open, pinned or mapped goes, and no ERROR is raised.  No LWLock is held
 * here, which would hold interrupts off, and the closing waits for no lock of the engine.
 */
bool
pmhash_is_interrupted(void)
{
	if (InterruptHoldoffCount != 0 || CritSectionCount != 0)
		return false;
	if (ProcSignalBarrierPending)
		ProcessProcSignalBarrier();
#if PG_VERSION_NUM >= 170000
	if (TransactionTimeoutPending && TransactionTimeout > 0)
		return true;
#endif
	return ProcDiePending || ClientConnectionLost ||
		(QueryCancelPending && QueryCancelHoldoffCount == 0);
}

void
pmhash_cluster_init(ambuild_function build, PmhashFillFunction fill)
{
	Assert(build != NULL && fill != NULL);
	pmhash_am_build = build;
	pmhash_am_fill = fill;
	pmhash_planner_hook_init();
	if (!process_shared_preload_libraries_in_progress)
		return;
	pmhash_define_gucs();
	pmhash_startup_init();
	pmh_set_wait_hooks(&(PmhWaitHooks) {wait_begin, wait_end, pmhash_is_interrupted});
	pmhash_standby_redo_init();
	pmhash_worker_init();
}
