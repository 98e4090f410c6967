/*-------------------------------------------------------------------------
 *
 * wait_events.c
 *	  What processes of pmhash wait for, as pg_stat_activity shows it; sleeping.
 *
 * From PostgreSQL 17 on extensions have wait events with names of their own; before,
 * all are "Extension".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"

#if PG_VERSION_NUM >= 170000
#include "utils/wait_event.h"
#endif

#include "cluster/base/wait_events.h"

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

	(void) WaitLatch(MyLatch, WL_LATCH_SET | timed | WL_EXIT_ON_PM_DEATH, timeout, event);
	ResetLatch(MyLatch);
}
