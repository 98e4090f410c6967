/*-------------------------------------------------------------------------
 *
 * standby_lose.c
 *	  A standby becomes a primary: what its files are at the first use of pmhash.  A start
 *	  after a promotion that was killed before trusts none (trust.c).
 *
 * src/README, "Standbys", has the rules.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog_internal.h"
#include "miscadmin.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/pool/pool.h"
#include "cluster/standby/standby_state.h"
#include "cluster/wal/stub.h"
#include "engine/stop_point.h"

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
		pmhash_renew_eras(control, PMHASH_ALL_FILES, PMHASH_REASON_APART);
	}
	standby->active = false;
	pmhash_stub_changed();
	LWLockRelease(pmhash_standby_lock);
	PMH_STOP_POINT("promoted_before_role");
	control->role = PMHASH_ROLE_PRIMARY;
}
