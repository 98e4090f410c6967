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
 * next one.  Said once.
 */
void
pmhash_disable(const char *reason)
{
	bool		said;

	Assert(reason[0] != '\0');
	Assert(!LWLockHeldByMe(pmhash_lwlock(PMHASH_POOL_LOCK)));
	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	said = !pmhash_shared->usable;
	if (!said)
	{
		strlcpy(pmhash_shared->reason, reason, PMHASH_REASON_SIZE);
		pg_write_barrier();
		pmhash_shared->usable = false;
		pmhash_stub_changed();
	}
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
	if (!said)
		ereport(LOG,
				(errmsg("pmhash is disabled: %s", reason),
				 errdetail(PMHASH_DISABLED_DETAIL)));
}
