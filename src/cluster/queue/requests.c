/*-------------------------------------------------------------------------
 *
 * requests.c
 *	  What processes ask the launcher for: workers in databases; and whether there can be any.
 *
 * A request raises no error and waits for nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/base/clock.h"
#include "cluster/base/shared.h"
#include "cluster/queue/requests.h"

/* ms without a free slot after which none is to be waited for: three tries */
#define NO_SLOT_FOR_LONG	15000

/*
 * Does the postmaster start a launcher as soon as there can be queries, and again if it fails?
 * Not with too few max_worker_processes, of which RegisterBackgroundWorker only says so
 * in the log, nor in single-user mode.  (Processes have it from the postmaster.)
 */
bool		pmhash_has_launcher = false;

/*
 * Ask for this to be done in a database soon.  A worker for plain indexes asks for that of
 * the others, so whoever has met an index need not know its kind.  Raises no error.
 */
void
pmhash_request(Oid database, PmhashJob job)
{
	PmhashRequests *requests;
	int			i = 0;

	if (pmhash_shared == NULL || !pmhash_shared->usable)
		return;
	requests = &pmhash_shared->requests;
	SpinLockAcquire(&pmhash_shared->mutex);
	while (i < requests->n && requests->database[i] != database)
		i++;
	if (i == PMHASH_MAX_REQUESTS)
		requests->all |= 1 << job;
	else
	{
		if (i == requests->n)
		{
			requests->n++;
			requests->database[i] = database;
			requests->jobs[i] = 0;
		}
		requests->jobs[i] |= 1 << job;
	}
	SpinLockRelease(&pmhash_shared->mutex);
	pmhash_wake_launcher();
}

/* Is there a launcher just now?  Raises no error. */
bool
pmhash_launcher_is_there(void)
{
	bool		there;

	SpinLockAcquire(&pmhash_shared->mutex);
	there = pmhash_shared->launcher != NULL;
	SpinLockRelease(&pmhash_shared->mutex);
	return there;
}

/*
 * Have the launcher look for what there is to do.  Raises no error.
 */
void
pmhash_wake_launcher(void)
{
	Latch	   *launcher;

	SpinLockAcquire(&pmhash_shared->mutex);
	launcher = pmhash_shared->launcher;
	SpinLockRelease(&pmhash_shared->mutex);
	if (launcher != NULL)
		SetLatch(launcher);
}

/* Take the requests. */
PmhashRequests
pmhash_take_requests(void)
{
	PmhashRequests taken;

	SpinLockAcquire(&pmhash_shared->mutex);
	taken = pmhash_shared->requests;
	pmhash_shared->requests.n = 0;
	pmhash_shared->requests.all = 0;
	SpinLockRelease(&pmhash_shared->mutex);
	return taken;
}

/* The launcher's latch, to be set for requests; NULL: there is no launcher. */
void
pmhash_set_launcher(Latch *latch)
{
	SpinLockAcquire(&pmhash_shared->mutex);
	pmhash_shared->launcher = latch;
	SpinLockRelease(&pmhash_shared->mutex);
}

/*
 * pmhash_workers_can_be_had
 *		Is what a worker of ours is to do done some time soon?
 *
 * A launcher that is just being started counts, and so does a lack of slots that may be
 * that of a moment: parallel queries take them, too.  What has been tried last some time
 * ago says nothing: there may be slots by now, and a rebuild that is wanted is tried
 * at once.
 */
bool
pmhash_workers_can_be_had(void)
{
	uint64		since = pg_atomic_read_u64(&pmhash_shared->no_worker);
	uint64		last = pg_atomic_read_u64(&pmhash_shared->no_worker_last);

	return pmhash_has_launcher &&
		(since == 0 || !pmhash_clock_past((int64) since, NO_SLOT_FOR_LONG) ||
		 pmhash_clock_past((int64) last, NO_SLOT_FOR_LONG));
}
