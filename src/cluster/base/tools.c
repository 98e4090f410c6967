/*-------------------------------------------------------------------------
 *
 * tools.c
 *	  Doing something that may fail, and going on if it does; what processes of pmhash
 *	  wait for, as pg_stat_activity shows it, and sleeping.
 *
 * From PostgreSQL 17 on extensions have wait events with names of their own; before,
 * all are "Extension".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/resowner.h"
#include "utils/wait_event.h"

#include "cluster/base/tools.h"

bool		pmhash_transaction_is_ending = false;

/*
 * pmhash_try
 *		Do something, and go on if it can't be done.
 *
 * Runs in a subtransaction, which gives back what an error leaves of the doing; what
 * is opened has to be closed in it.  Returns NULL if all went well; the error (in the
 * current memory context) if 'at_fault' says of its SQLSTATE that what is looked at is
 * at fault; any other is raised again.  Not to be called in a parallel operation, with
 * a lock of shared memory, or when the transaction has begun to end.
 */
ErrorData *
pmhash_try(PmhashTried tried, void *arg, bool (*at_fault) (int sqlstate))
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	Assert(IsTransactionState() && !pmhash_transaction_is_ending);
	Assert(!IsInParallelMode());
	Assert(InterruptHoldoffCount == 0 && CritSectionCount == 0);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		tried(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		if (!at_fault(error->sqlerrcode))
			ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}

/* ==== waits ==== */

#if PG_VERSION_NUM >= 170000
static const char *const names[PMHASH_NWAITS] = {
	[PMHASH_WAIT_FILE_LOCK] = "PmhashFileLock",
	[PMHASH_WAIT_LAUNCHER] = "PmhashLauncherMain",
	[PMHASH_WAIT_POOL] = "PmhashPoolUnavailable",
	[PMHASH_WAIT_BUILD] = "PmhashStandbyBuild",
	[PMHASH_WAIT_GIVE_WAY] = "PmhashGiveWay"
};
#endif

/* Of this process and its children; 0: not named. */
static uint32 events[PMHASH_NWAITS];

/* Once shared memory is there. */
void
pmhash_wait_events_name(void)
{
#if PG_VERSION_NUM >= 170000
	for (int i = 0; i < PMHASH_NWAITS; i++)
		events[i] = WaitEventExtensionNew(names[i]);
#endif
}

/* What to report to pgstat_report_wait_start and to WaitLatch. */
uint32
pmhash_wait_event(PmhashWait wait)
{
	return events[wait] != 0 ? events[wait] : PG_WAIT_EXTENSION;
}

/*
 * pmhash_sleep
 *		Wait until this process's latch is set, for milliseconds at the most (-1: without
 *		an end), and reset it.  event is what pg_stat_activity shows.
 *
 * Ends the process when the postmaster has died.  Interrupts are left to the caller.
 */
void
pmhash_sleep(long timeout, uint32 event)
{
	int			timed = timeout >= 0 ? WL_TIMEOUT : 0;

	Assert(CritSectionCount == 0);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | timed | WL_EXIT_ON_PM_DEATH, timeout, event);
	ResetLatch(MyLatch);
}
