/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  What the processes of a server share: where it is, and what each may say in it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/base/shared.h"

PmhashShared *pmhash_shared = NULL;

/*
 * To count is an addition to memory of the process' own.  Look-ups count: what they stored to
 * the index's file would wait while its file system is frozen for a snapshot.
 */
PmhashCounts pmhash_counts;

/* Add what this process has counted to what all see.  Raises no error, takes no lock. */
void
pmhash_counts_flush(void)
{
	if (!pmhash_counts.any || pmhash_shared == NULL)
		return;
	for (int i = 0; i < PMHASH_NCOUNTERS; i++)
	{
		if (pmhash_counts.n[i] != 0)
			pg_atomic_fetch_add_u64(&pmhash_shared->counted[i], pmhash_counts.n[i]);
	}
	memset(&pmhash_counts, 0, sizeof(pmhash_counts));
}

/*
 * A stub has been changed in place.  To be called after the change, before
 * anything is done that relies on it.
 */
void
pmhash_stub_changed(void)
{
	pg_atomic_fetch_add_u64(&pmhash_shared->stub_generation, 1);
}

/*
 * Do without pmhash for the rest of this server life.  Index files are left
 * alone; indexes that miss rows because of it are marked and rebuilt in the
 * next one.  Raises no error.
 */
void
pmhash_disable_locked(const char *reason)
{
	Assert(reason[0] != '\0');
	strlcpy(pmhash_shared->reason, reason, PMHASH_REASON_SIZE);
	pg_write_barrier();			/* that is looked at once it is not usable */
	pmhash_shared->usable = false;
	pmhash_stub_changed();		/* scans that go on rely on no file any more */
	ereport(LOG,
			(errmsg("pmhash is disabled: %s", reason),
			 errdetail("Queries do without index files, rows are written without index entries, and constraints that need an index refuse them, until the server is restarted.")));
}

/* The same for any process.  Said once. */
void
pmhash_disable(const char *reason)
{
	Assert(!LWLockHeldByMe(pmhash_lwlock(PMHASH_POOL_LOCK)));
	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	if (pmhash_shared->usable)
		pmhash_disable_locked(reason);
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
}
