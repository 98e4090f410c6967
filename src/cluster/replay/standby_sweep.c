/*-------------------------------------------------------------------------
 *
 * standby_sweep.c
 *	  A standby finds out again what is free in its files.
 *
 * When a file is opened first in a server life, all buffers of its value lists count
 * as used, until a complete sweep has found those that nothing points to (src/README,
 * "Space").  On a primary that is VACUUM's.  A standby has no sweep that removes
 * entries, so without this it would lose what is free with each restart, until it is
 * promoted.  Hence the files that were LIVE before the restart are swept (S7), by a
 * worker in their database, the sweeper.  There is one at a time, which the launcher
 * starts when it has a slot to spare, and it leaves as soon as a build waits for one:
 * what is free can wait, an index that is not there can't.  A file that has not been
 * swept to its end is swept again, from its begin.
 *
 * It changes no entry: that is the startup process's alone.  Nothing is locked between
 * the steps; in a step it is the stripe of a segment, for a moment.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "cluster/base/clock.h"
#include "cluster/base/identity.h"
#include "cluster/base/pool_names.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/replay/standby_build.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/standby_lose.h"
#include "engine/stop_point.h"

/* A file that is to be swept, in this life of its row. */
typedef struct SweptFile
{
	uint64		file_id;		/* 0: none */
	uint64		life;
} SweptFile;

/* What this worker is at; and has it failed with some? */
static SweptFile current;
static bool some_left = false;

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

/*
 * Take a file of this database that no other sweeper has taken (a launcher that was
 * ended may have left one), from row *next on.  False: there is none.
 */
static bool
take_target(int *next)
{
	PmhashStandby *standby = pmhash_shared->standby;
	bool		found = false;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	for (; *next < PMHASH_STANDBY_FILES && !found; (*next)++)
	{
		PmhashStandbyRow *row = &standby->row[*next];

		if (standby->id[*next] == 0 || row->database != MyDatabaseId ||
			!pmhash_standby_is_to_be_swept(row))
			continue;
		row->swept = found = true;
		current = (SweptFile) {row->file_id, row->life};
	}
	LWLockRelease(pmhash_standby_lock);
	return found;
}

/* It has not been swept to its end: there is another try. */
static void
give_back(void)
{
	PmhashStandbyRow *row;

	some_left = true;
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = pmhash_standby_find(current.file_id);
	if (row != NULL && row->life == current.life)
		row->swept = false;
	LWLockRelease(pmhash_standby_lock);
}

/* At exit in the middle.  The marks of the sweep the next one drops. */
static void
sweeper_exit(int code, Datum arg)
{
	if (current.file_id != 0)
		give_back();
	current.file_id = 0;
}

/* The file is damaged, or pages of it can't be read. */
static void
lose(const char *why)
{
	if (pmhash_standby_lost(current.file_id, current.life, why))
		ereport(LOG,
				(errmsg("pmhash: index file " PMHASH_ID_FORMAT " is given up on this server: %s",
						current.file_id, why),
				 errdetail("It is built again in the background.")));
}

/* ---- sweeping ---- */

/* PMH_DONE: to the end.  PMH_OK: it is to leave.  Any other result is the engine's. */
static PmhResult
sweep_steps(PmhTable *table, PmhSweep *sweep)
{
	PmhResult	result = PMH_OK;

	while (result == PMH_OK && !is_to_leave())
	{
		PMH_STOP_POINT("standby_sweeping");
		result = pmh_sweep_next(table, sweep);
	}
	return result;
}

/* Sweep a table to its end; as sweep_steps.  May raise an ERROR. */
static PmhResult
sweep_table(PmhTable *table)
{
	PmhSweep	sweep;
	volatile PmhResult result = pmh_sweep_begin(table, &sweep);

	if (result != PMH_OK)
		return result;
	PG_TRY();
	{
		result = sweep_steps(table, &sweep);
	}
	PG_FINALLY();
	{
		pmh_sweep_end(table, &sweep);
	}
	PG_END_TRY();
	return result;
}

/*
 * The same for the current file, if need be.  Not done is: there was no space for the
 * marks, a process could not mark, it is to leave.
 */
static void
sweep_file(PmhTable *table)
{
	PmhResult	result;

	if (pmh_value_space_is_known(table))
		return;
	result = sweep_table(table);
	if (result == PMH_ERR_CORRUPT || result == PMH_ERR_LOST)
		lose(pmh_error(table)->detail);
	else if (!pmh_value_space_is_known(table))
		give_back();
	else
		ereport(DEBUG1,
				(errmsg_internal("found what is free in pmhash file " PMHASH_ID_FORMAT,
								 current.file_id)));
}

/*
 * That a file can't be opened is not for us to judge: the startup process does, at the
 * next record.
 */
static void
open_and_sweep(void)
{
	PmhEnv		env = pmhash_engine_env();
	char		path[MAXPGPATH];
	PmhTable   *table;
	PmhError	error;

	pmhash_file_path(path, MyDatabaseId, current.file_id);
	if (pmh_open(path, &env, &table, NULL, &error) != PMH_OK)
	{
		give_back();
		return;
	}
	PG_TRY();
	{
		sweep_file(table);
	}
	PG_FINALLY();
	{
		pmh_close(table);
	}
	PG_END_TRY();
}

/*
 * Sweep the files of the database that this worker is connected to, if what is free in
 * them is not known.  Not in a transaction.
 */
PmhashWorkerResult
pmhash_standby_sweep_database(void)
{
	int			next = 0;

	before_shmem_exit(sweeper_exit, (Datum) 0);
	pgstat_report_activity(STATE_RUNNING, "looking for free space in pmhash index files of this standby");
	while (!is_to_leave() && take_target(&next))
	{
		open_and_sweep();
		current.file_id = 0;
	}
	/* To leave is no failure: what it has not swept is due at once. */
	return some_left && !is_to_leave() ? PMHASH_WORKER_LEFT_SOME : PMHASH_WORKER_DONE;
}
