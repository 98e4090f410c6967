/*-------------------------------------------------------------------------
 *
 * standby_lose.c
 *	  Files of a server in recovery are given up; and what is left of them is a primary's.
 *
 * src/README, "Standbys", has the rules.
 *
 * A process that finds something wrong sends the file to NONE.  Then it must never be
 * used again, neither by scans now nor after a restart or a promotion: it is removed, or
 * emptied.  If not even that can be done, pmhash is given up for this run and the token of
 * trust goes (pmhash_refuse_trust).
 *
 * A standby becomes a primary at the first use of pmhash (pool_life.c).  A start after a
 * promotion that was killed before trusts none (trust.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/queue/queue.h"
#include "cluster/trust/trust.h"

/*
 * The file can't be taken away: a later start, or a promotion, would take it for up to
 * date.  So this server life does without pmhash, and the next one trusts no file.
 */
static void
give_files_up(const char *path)
{
	char		reason[PMHASH_REASON_SIZE];

	pmhash_fail(reason, "file \"%s\" can neither be used nor removed", path);
	if (pmhash_shared->usable)	/* else it was not the first one */
		pmhash_disable_locked(reason);
	pmhash_shared->standby->active = false;
	pmhash_refuse_trust();
}

/* A file becomes NONE, whatever it was. */
static void
remove_file(PmhashStandbyRow *row)
{
	char		path[MAXPGPATH];

	Assert(LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_STANDBY_LOCK), LW_EXCLUSIVE));
	Assert(row->status != PMHASH_STANDBY_NONE && OidIsValid(row->index));
	pmhash_standby_set_status(row, PMHASH_STANDBY_NONE);
	pmhash_removal_finished(row->file_id);
	pmhash_standby_delta_path(row->database, row->file_id, path);
	(void) unlink(path);
	pmhash_file_path(path, row->database, row->file_id);
	if (!pmhash_standby_remove(path))
		give_files_up(path);
}

/*
 * A file is lost, and to be built again.  sqlstate 0: there was no fault; that, too, may come
 * again and again, and others have their turn.  Under the lock, exclusively.  Raises no ERROR.
 *
 * Not past the promotion, which ends 'active' under the lock: the files are the
 * primary's then, whose stubs are to say what is wrong.
 */
void
pmhash_standby_lose(PmhashStandbyRow *row, int sqlstate, const char *why)
{
	remove_file(row);
	(void) pmhash_rebuild_note(row->database, row->index, sqlstate, why == NULL ? "" : why);
	pmhash_request(row->database, PMHASH_JOB_PLAIN);
}

/* The same for those of which that is so (NULL: all); how many. */
int
pmhash_standby_lose_all(bool (*which) (const PmhashStandbyRow *), int sqlstate,
						const char *why)
{
	PmhashStandby *standby = pmhash_shared->standby;
	int			n = 0;

	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &standby->row[i];

		if (row->status == PMHASH_STANDBY_NONE || (which != NULL && !which(row)))
			continue;
		pmhash_standby_lose(row, sqlstate, why);
		n++;
	}
	return n;
}

/* No index has that file any more: it goes, and the row is free. */
void
pmhash_standby_forget(PmhashStandbyRow *row)
{
	PmhashStandby *standby = pmhash_shared->standby;

	if (row->status != PMHASH_STANDBY_NONE)
		remove_file(row);
	pmhash_rebuild_forget(row->database, row->index, NIL);
	standby->id[row - standby->row] = row->file_id = 0;
}

/* What is in the files is not what was stored there, or is not known. */
bool
pmhash_standby_distrust(int sqlstate, const char *why)
{
	bool		ours;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	ours = pmhash_shared->standby->active;
	if (ours)
	{
		(void) pmhash_standby_lose_all(NULL, sqlstate, why);
		ereport(LOG,
				(errmsg("pmhash: index files in \"%s\" are not trusted: %s",
						pmhash_pool_path(), why)));
	}
	LWLockRelease(pmhash_standby_lock);
	return ours;
}

/*
 * A process has found that a file which had this life (0: has any) is not to be used: it is
 * damaged, or gone, or lacks something.  There may be a later life by now, of which that says
 * nothing.  Nor past a promotion, when processes that use the file mark the stub.  Raises no
 * ERROR.
 */
void
pmhash_standby_lost(uint64 file_id, uint64 life, int sqlstate, const char *why)
{
	PmhashStandbyRow *row;

	Assert(!LWLockHeldByMe(pmhash_standby_lock));
	if (!pmhash_standby_is_active())
		return;
	PMH_STOP_POINT("standby_before_lost");
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = pmhash_standby_find(file_id);
	if (pmhash_shared->standby->active && row != NULL &&
		row->status != PMHASH_STANDBY_NONE && (life == 0 || row->life == life))
	{
		ereport(LOG,
				(errmsg("pmhash: index file " PMHASH_ID_FORMAT " is given up on this server: %s",
						file_id, why),
				 errdetail("It is built again in the background.")));
		pmhash_standby_lose(row, sqlstate, why);
	}
	LWLockRelease(pmhash_standby_lock);
}

void
pmhash_standby_database_dropped(Oid database, XLogRecPtr upto)
{
	PmhashStandby *standby = pmhash_shared->standby;
	bool		kept = false;

	Assert(OidIsValid(database));
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	for (int i = 0; standby->active && i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &standby->row[i];

		if (standby->id[i] == 0 || row->database != database)
			continue;
		if (row->restored && upto < row->begun)
			kept = true;
		else
			pmhash_standby_forget(row);
	}
	/* (Promoted, it is the primary's worker that does it.) */
	if (standby->active && !kept)
		pmhash_remove_dropped(database);
	LWLockRelease(pmhash_standby_lock);
}

/* ---- promotion ---- */

/* Is it not complete, or does it have more than the tables (S3)? */
static bool
does_not_fit(const PmhashStandbyRow *row)
{
	return row->status == PMHASH_STANDBY_DELTA || (row->restored && !pmhash_standby_reached());
}

/*
 * The server has left recovery: what was LIVE is what its indexes have from now on.  What is
 * not LIVE has been removed, at the start (pmhash_standby_load) or when it was lost.
 *
 * The role is the caller's to write down, before the first entry; a start after a
 * promotion that was killed before trusts none (trust.c).  Under the pool lock; again, if
 * what the caller does next has failed.
 */
void
pmhash_standby_promote(void)
{
	PmhashStandby *standby = pmhash_shared->standby;

	Assert(!RecoveryInProgress());
	Assert(LWLockHeldByMeInMode(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE));
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	if (standby->active)
		(void) pmhash_standby_lose_all(does_not_fit, 0, NULL);
	standby->active = false;
	pmhash_stub_changed();
	LWLockRelease(pmhash_standby_lock);
	pmhash_rebuild_forget(InvalidOid, InvalidOid, NIL); /* how builds of a standby failed */
	PMH_STOP_POINT("promoted_before_role");
}
