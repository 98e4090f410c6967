/*-------------------------------------------------------------------------
 *
 * requests.c
 *	  What processes ask the launcher for: databases to clean and to look at.
 *
 * A request raises no error and waits for nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/requests.h"
#include "cluster/shared.h"

static void
add_request(PmhashRequests *requests, Oid database)
{
	Latch	   *launcher;
	bool		known = false;

	SpinLockAcquire(&pmhash_shared->mutex);
	for (int i = 0; i < requests->n; i++)
		known |= requests->database[i] == database;
	if (!known && requests->n < PMHASH_MAX_REQUESTS)
		requests->database[requests->n++] = database;
	else if (!known)
		requests->all = true;
	launcher = pmhash_shared->launcher;
	SpinLockRelease(&pmhash_shared->mutex);
	if (launcher != NULL)
		SetLatch(launcher);
}

/*
 * Ask for the orphans of a database to be removed soon.  Raises no error.
 */
void
pmhash_request_cleaning(Oid database)
{
	if (pmhash_shared != NULL && pmhash_shared->usable)
		add_request(&pmhash_shared->clean, database);
}

/* Ask for a rebuilder of this kind in a database.  Raises no error. */
void
pmhash_request_rebuilder(Oid database, PmhashBuildKind kind)
{
	if (pmhash_shared != NULL && pmhash_shared->usable)
		add_request(&pmhash_shared->look[kind], database);
}

/*
 * Ask for a look at a database soon: it may have invalid indexes.  The rebuilder of
 * plain ones has that of the others started.  Raises no error.
 */
void
pmhash_request_look(Oid database)
{
	pmhash_request_rebuilder(database, PMHASH_BUILD_PLAIN);
}

/* Can a cleaner be expected to come soon when one is requested?  Raises no error. */
bool
pmhash_cleaners_run(void)
{
	bool		launcher;

	if (pmhash_shared == NULL || !pmhash_shared->usable)
		return false;
	SpinLockAcquire(&pmhash_shared->mutex);
	launcher = pmhash_shared->launcher != NULL;
	SpinLockRelease(&pmhash_shared->mutex);
	return launcher && pg_atomic_read_u64(&pmhash_shared->no_worker) == 0;
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

/* Are there any? */
bool
pmhash_has_requests(const PmhashRequests *requests)
{
	bool		found;

	SpinLockAcquire(&pmhash_shared->mutex);
	found = requests->n > 0 || requests->all;
	SpinLockRelease(&pmhash_shared->mutex);
	return found;
}

/* Take the requests, as a list of OIDs; *all: too many to be listed. */
List *
pmhash_take_requests(PmhashRequests *requests, bool *all)
{
	PmhashRequests taken;
	List	   *databases = NIL;

	SpinLockAcquire(&pmhash_shared->mutex);
	taken = *requests;
	requests->n = 0;
	requests->all = false;
	SpinLockRelease(&pmhash_shared->mutex);
	for (int i = 0; i < taken.n; i++)
		databases = lappend_oid(databases, taken.database[i]);
	*all = taken.all;
	return databases;
}

/* The launcher's latch, to be set for requests; NULL: there is no launcher. */
void
pmhash_set_launcher(Latch *latch)
{
	SpinLockAcquire(&pmhash_shared->mutex);
	pmhash_shared->launcher = latch;
	SpinLockRelease(&pmhash_shared->mutex);
}
