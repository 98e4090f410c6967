/*-------------------------------------------------------------------------
 *
 * standby_promote.c
 *	  A standby becomes a primary: what its files are, from the end of replay to the
 *	  first use of pmhash.
 *
 * src/README, "Apply on a standby", has the rules and their failure stories.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "miscadmin.h"

#include "cluster/cluster.h"
#include "cluster/control_file.h"
#include "cluster/durable.h"
#include "cluster/invalid.h"
#include "cluster/pool.h"
#include "cluster/shared.h"
#include "cluster/standby_state.h"
#include "cluster/trust.h"
#include "engine/stop_point.h"

/* Say durably where replay has ended, in this start. */
static void
note_end(XLogRecPtr lsn, TimeLineID timeline)
{
	PmhashStandbyEnd end = {lsn, timeline, pmhash_postmaster_opts_mtime()};
	char		reason[PMHASH_REASON_SIZE];

	if (!pmhash_standby_note_end(&end, reason))
		ereport(LOG,
				(errmsg("pmhash: %s", reason),
				 errdetail("A server that is killed before it has used pmhash for the first time rebuilds its indexes.")));
}

/*
 * WAL does not end where it was noted, so the files are not those of these tables, and
 * this start goes on without them, on the same timeline.  If it is killed before it has
 * used pmhash, its own WAL may end just there: no later start is to believe the note.
 * Nor `applied`, if the next one is a standby's.
 */
static void
forget_end(void)
{
	PmhashStandbyEnd none = {0};
	char		reason[PMHASH_REASON_SIZE];

	if (pmhash_standby_note_end(&none, reason))
		return;
	ereport(LOG, (errmsg("pmhash: %s", reason)));
	pmhash_refuse_trust(pmhash_shared->control.journal_instance);
}

/*
 * The startup process is about to replay its first record.
 *
 * A start that goes on from a promotion which was killed (promotion_doubt) has come as
 * far as to replay, which may take long.  It is the last that has begun to run: so say
 * that with its postmaster.opts, or one that comes after it, if it dies before the end,
 * would take it for a start without the pool.
 */
void
pmhash_standby_begin_of_replay(void)
{
	PmhashStandby *standby = pmhash_shared->standby;

	if (!AmStartupProcess())
		return;
	standby->others_wrote = true;	/* nothing of ours comes after a shutdown */
	if (standby->promoted_end == InvalidXLogRecPtr)
		return;
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	note_end(standby->promoted_end, standby->promoted_timeline);
	LWLockRelease(pmhash_standby_lock);
	PMH_STOP_POINT("begin_of_replay");
}

/*
 * The startup process has replayed its last record; the signal file is still there,
 * and no timeline has been chosen (xlog.c, StartupXLOG).  From here on nothing is done
 * to the files until the first use, which writes down that this is a primary.  Until
 * then a start without the signal file goes on with the LIVE ones, if it replays the
 * same WAL (trust.c, promotion_doubt), and one with it as a standby.
 *
 * In such a start: has it replayed the same?  Where WAL has gone to another timeline
 * that was known beforehand (promotion_doubt); else it must end at the same place.
 */
void
pmhash_standby_end_of_replay(void)
{
	PmhashStandby *standby = pmhash_shared->standby;
	TimeLineID	timeline;
	XLogRecPtr	end = GetXLogReplayRecPtr(&timeline);

	if (!AmStartupProcess())
		return;
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	if (standby->promoted_end != InvalidXLogRecPtr)
	{
		standby->complete = timeline != standby->promoted_timeline ||
			end == standby->promoted_end;
		if (standby->complete)
			note_end(standby->promoted_end, standby->promoted_timeline);
		else
		{
			ereport(LOG,
					(errmsg("pmhash: index files in \"%s\" are not trusted: they have what WAL says up to %X/%X, and it ends at %X/%X",
							pmhash_pool_path(), LSN_FORMAT_ARGS(standby->promoted_end),
							LSN_FORMAT_ARGS(end))));
			forget_end();
		}
	}
	else if (ArchiveRecoveryRequested && standby->active && pmhash_standby_reached())
		note_end(end, timeline);
	LWLockRelease(pmhash_standby_lock);
	PMH_STOP_POINT("end_of_replay");
}

/*
 * Files from when this server was a primary itself, of indexes that may not be logged:
 * what others have written since is not in them.  Under the lock.
 */
static void
lose_unlogged(void)
{
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &pmhash_shared->standby->row[i];

		if (pmhash_standby_may_be_unlogged(row))
			pmhash_standby_lose(row, false, 0, NULL);
	}
}

/*
 * The server has left recovery: what was LIVE is what its indexes have from now on.
 * What is not must not be in the way: a file that has missed records would be taken
 * for a good one.  The role is the caller's to write down, before the first entry.
 * Leaves new eras in *control if a file can't be removed.  Under the pool lock; again,
 * if what the caller does next has failed.
 */
void
pmhash_standby_promote(PmhashControl *control)
{
	PmhashStandby *standby = pmhash_shared->standby;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	if (standby->active)
		standby->complete = pmhash_standby_reached();
	if (!standby->complete)
		pmhash_standby_lose_all(true, 0, NULL);
	if (standby->others_wrote)
		lose_unlogged();
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		if (standby->row[i].status == PMHASH_STANDBY_DELTA)
			pmhash_standby_lose(&standby->row[i], false, 0, NULL);
	}
	if (!pmhash_standby_clear_files())
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not remove a file in \"%s\": %m", pmhash_pool_path()),
				 errdetail("Index files there are not trusted any more.")));
		pmhash_renew_eras(control, PMHASH_ALL_FILES);
	}
	standby->active = false;
	pmhash_stub_changed();
	LWLockRelease(pmhash_standby_lock);
	PMH_STOP_POINT("promoted_before_role");
	control->role = PMHASH_ROLE_PRIMARY;
}
