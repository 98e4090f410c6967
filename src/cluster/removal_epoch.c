/*-------------------------------------------------------------------------
 *
 * removal_epoch.c
 *	  Which TIDs can have been given to other rows since a scan read them.
 *
 * VACUUM gives a TID away only after bulk delete has returned for all
 * indexes.  So each bulk delete ends by advancing a counter in shared memory,
 * the removal epoch of its index.  As long as a scan finds the epoch that was
 * there before it read an entry, the entry's TID still belongs to the row
 * that the entry was made for.  src/README, part III, has the proof and what
 * it is used for.
 *
 * Counters are striped by file id; sharing one costs its users some wasted
 * caution, no more.
 *
 * Whoever wants to act on that knowledge, and not just to know it, holds the
 * removal lock shared meanwhile: an epoch does not advance under it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/internal.h"

static pg_atomic_uint64 *
epoch_of(const PmhashFile *file)
{
	return &pmhash_shared->removal_epoch[file->file_id % PMHASH_REMOVAL_EPOCHS];
}

/*
 * The removal epoch of a file.  A read barrier on both sides: what is read
 * before the call is read before the epoch, what comes after it after.
 */
uint64
pmhash_removal_epoch(const PmhashFile *file)
{
	uint64		epoch;

	pg_read_barrier();
	epoch = pg_atomic_read_u64(epoch_of(file));
	pg_read_barrier();
	return epoch;
}

/*
 * Advance the epoch.  To be called by every bulk delete before it returns,
 * also if it has removed nothing itself: an earlier one that failed half way
 * may have removed what this one would have.  Waits for those who hold the
 * removal lock; that is a bounded number of removals.
 */
void
pmhash_removal_finished(const PmhashFile *file)
{
	LWLockAcquire(pmhash_lwlock(PMHASH_REMOVAL_LOCK), LW_EXCLUSIVE);
	pg_atomic_fetch_add_u64(epoch_of(file), 1);
	LWLockRelease(pmhash_lwlock(PMHASH_REMOVAL_LOCK));
}

/*
 * Advance all of them: bulk delete has been asked to do something on an index
 * whose file is not to be used.  Scans that have it open are told this way.
 */
void
pmhash_removal_skipped(void)
{
	LWLockAcquire(pmhash_lwlock(PMHASH_REMOVAL_LOCK), LW_EXCLUSIVE);
	for (int i = 0; i < PMHASH_REMOVAL_EPOCHS; i++)
		pg_atomic_fetch_add_u64(&pmhash_shared->removal_epoch[i], 1);
	LWLockRelease(pmhash_lwlock(PMHASH_REMOVAL_LOCK));
}
