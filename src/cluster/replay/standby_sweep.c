/*-------------------------------------------------------------------------
 *
 * standby_sweep.c
 *	  A standby finds out again what is free in its files (src/README, "Space").
 *
 * On a primary the sweep is VACUUM's; a standby has none that removes entries, and would lose
 * what is free with each restart.  So a builder that has built what was missing in its database
 * sweeps the files that were LIVE before the restart (S7).  One that has not been swept to its
 * end is swept again, from its begin.  Two at a time do no harm.  Nothing is locked between the
 * steps; in a step it is the stripe of a segment, for a moment.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/queue/queue.h"
#include "cluster/replay/replay.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "engine/stop_point.h"

/*
 * Sweep a table to its end, unless the worker is to end, there is no space for the marks, or a
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
		while (result == PMH_OK && pmhash_standby_goes_on())
		{
			pmhash_give_way();
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
sweep_file(uint64 file_id, uint64 life)
{
	PmhEnv		env = pmhash_engine_env();
	char		path[MAXPGPATH];
	PmhTable   *table;
	PmhError	error;
	PmhResult	result = PMH_OK;
	bool		known;

	pmhash_file_path(path, MyDatabaseId, file_id);
	if (pmh_open(path, &env, &table, NULL, &error) != PMH_OK)
		return false;
	known = pmh_value_space_is_known(table);
	if (!known)
	{
		result = sweep_table(table);	/* (a mapping that is left goes with the worker) */
		known = pmh_value_space_is_known(table);
		ereport(DEBUG1,
				(errmsg_internal("%s what is free in pmhash file " PMHASH_ID_FORMAT,
								 known ? "found" : "did not find", file_id)));
	}
	if (result == PMH_ERR_CORRUPT || result == PMH_ERR_LOST)
		pmhash_standby_lost(file_id, life, ERRCODE_INDEX_CORRUPTED, pmh_error(table)->detail);
	pmh_close(table);
	return known;
}

/*
 * Sweep the files of the database that this worker is connected to, if what is free in
 * them is not known.  Not in a transaction.  False if some are left.
 */
bool
pmhash_standby_sweep_files(void)
{
	PmhashStandby *standby = pmhash_shared->standby;
	bool		all = true;
	int			i;

	Assert(!IsTransactionState() && OidIsValid(MyDatabaseId));
	pgstat_report_activity(STATE_RUNNING, "looking for free space in pmhash index files of this standby");
	for (i = 0; i < PMHASH_STANDBY_FILES && pmhash_standby_goes_on(); i++)
	{
		PmhashStandbyRow row;

		LWLockAcquire(pmhash_standby_lock, LW_SHARED);
		row = standby->row[i];
		LWLockRelease(pmhash_standby_lock);
		if (row.file_id == 0 || row.database != MyDatabaseId ||
			row.status != PMHASH_STANDBY_LIVE || !row.restored)
			continue;
		all &= sweep_file(row.file_id, row.life);
	}
	return all && i == PMHASH_STANDBY_FILES;
}
