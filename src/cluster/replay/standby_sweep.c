/*-------------------------------------------------------------------------
 *
 * standby_sweep.c
 *	  A standby finds out again what is free in its files (src/README, "Space").
 *
 * On a primary the sweep is VACUUM's; a standby has none that removes entries, and would lose
 * what is free with each restart.  So the files that were LIVE before the restart are swept
 * (S7).  There is one sweeper at a time, which leaves as soon as a build waits for its slot:
 * what is free can wait, an index that is not there can't.  A file that has not been swept to
 * its end is swept again, from its begin.  Two sweepers at a time, as when a launcher was ended
 * and has left one, do no harm.  Nothing is locked between the steps; in a step it is the stripe
 * of a segment, for a moment.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "utils/guc.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/replay/replay.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "engine/stop_point.h"

/* ---- which, and when ---- */

/* Is this worker to end?  Builds come first; a promotion leaves it to VACUUM. */
static bool
is_to_leave(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	return !pmhash_rebuild || !RecoveryInProgress() || !pmhash_standby_is_active() ||
		pg_atomic_read_u32(&pmhash_shared->standby->slot_wanted) != 0;
}

/* A copy of the row of a file of this database to be swept, from row *next on; false: none. */
static bool
take_target(int *next, PmhashStandbyRow *target)
{
	PmhashStandby *standby = pmhash_shared->standby;
	bool		found = false;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	for (; *next < PMHASH_STANDBY_FILES && !found; (*next)++)
	{
		*target = standby->row[*next];
		found = target->file_id != 0 && target->database == MyDatabaseId &&
			pmhash_standby_is_to_be_swept(target);
	}
	LWLockRelease(pmhash_standby_lock);
	return found;
}

/* What is free in the file is known. */
static void
note_swept(const PmhashStandbyRow *target)
{
	PmhashStandbyRow *row;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = pmhash_standby_find(target->file_id);
	if (row != NULL && row->life == target->life)
		row->swept = true;
	LWLockRelease(pmhash_standby_lock);
	ereport(DEBUG1,
			(errmsg_internal("found what is free in pmhash file " PMHASH_ID_FORMAT,
							 target->file_id)));
}

/* ---- sweeping ---- */

/*
 * Sweep a table to its end, unless it is to leave, there is no space for the marks, or a
 * process could not mark.  May raise an ERROR.
 */
static PmhResult
sweep_table(PmhTable *table)
{
	PmhSweep	sweep;
	volatile PmhResult result = pmh_sweep_begin(table, &sweep);

	if (result != PMH_OK)
		return result;
	PG_TRY();
	{
		while (result == PMH_OK && !is_to_leave())
		{
			PMH_STOP_POINT("standby_sweeping");
			result = pmh_sweep_next(table, &sweep);
		}
	}
	PG_FINALLY();
	{
		pmh_sweep_end(&sweep);
	}
	PG_END_TRY();
	return result;
}

/*
 * A file that is damaged is given up.  That one can't be opened is not for us to judge: the
 * startup process does, at the next record.  False if it has to be swept again.
 */
static bool
sweep_file(const PmhashStandbyRow *target)
{
	PmhEnv		env = pmhash_engine_env();
	char		path[MAXPGPATH];
	PmhTable   *table;
	PmhError	error;
	PmhResult	result = PMH_OK;
	bool		known;

	pmhash_file_path(path, MyDatabaseId, target->file_id);
	if (pmh_open(path, &env, &table, NULL, &error) != PMH_OK)
		return false;
	if (!pmh_value_space_is_known(table))
		result = sweep_table(table);	/* (a mapping that is left goes with the worker) */
	known = pmh_value_space_is_known(table);
	if (result == PMH_ERR_CORRUPT || result == PMH_ERR_LOST)
		pmhash_standby_lost(target->file_id, target->life, ERRCODE_INDEX_CORRUPTED,
							pmh_error(table)->detail);
	pmh_close(table);
	if (known)
		note_swept(target);
	return known;
}

/*
 * Sweep the files of the database that this worker is connected to, if what is free in
 * them is not known.  Not in a transaction.
 */
PmhashWorkerResult
pmhash_standby_sweep_database(void)
{
	PmhashStandbyRow target;
	bool		some_left = false;
	int			next = 0;

	Assert(!IsTransactionState() && OidIsValid(MyDatabaseId));
	pgstat_report_activity(STATE_RUNNING, "looking for free space in pmhash index files of this standby");
	while (!is_to_leave() && take_target(&next, &target))
		some_left |= !sweep_file(&target);
	/* To leave is no failure: what it has not swept is due at once. */
	return some_left && !is_to_leave() ? PMHASH_WORKER_LEFT_SOME : PMHASH_WORKER_DONE;
}
