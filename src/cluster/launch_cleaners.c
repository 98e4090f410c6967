/*-------------------------------------------------------------------------
 *
 * launch_cleaners.c
 *	  The launcher's part in cleaning: which databases, and when.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "cluster/clock.h"
#include "cluster/cluster.h"
#include "cluster/database_probe.h"
#include "cluster/databases.h"
#include "cluster/launcher.h"
#include "cluster/orphans.h"
#include "cluster/pool.h"
#include "cluster/put_off.h"
#include "cluster/requests.h"
#include "cluster/shared.h"
#include "cluster/worker.h"

/*
 * Start a cleaner for a database and wait until it has finished.  False if it is to
 * be tried again: nothing can connect to the database or no worker slot is free now, it
 * has failed, or files could not be judged because an index was locked.
 */
static bool
run_cleaner(Oid database)
{
	BackgroundWorkerHandle *handle;

	if (!pmhash_database_is_free(database))
		return false;
	pg_atomic_write_u32(&pmhash_shared->files_kept, PMHASH_FILES_NOT_JUDGED);
	if (!pmhash_start_worker(database, "pmhash_cleaner_main", "pmhash cleaner", &handle))
		return false;
	pmhash_launcher_wait_for(handle);
	pfree(handle);
	return pg_atomic_read_u32(&pmhash_shared->files_kept) == 0;
}

/* The same, unless there is nothing of ours in it any more. */
static bool
clean_database(Oid database)
{
	if (pmhash_database_has_files(database) ||
		pmhash_database_may_have_indexes(database))
		return run_cleaner(database);
	pmhash_counters_forget_database(database);
	return true;
}

/*
 * Databases that have had a directory in the pool in this server life, so that one
 * that has gone with all its files is missed.  Lives in TopMemoryContext.
 */
static List *known_databases = NIL;

static void
remember_databases(List *databases)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	known_databases = list_concat_unique_oid(known_databases, databases);
	MemoryContextSwitchTo(old);
}

/*
 * Databases whose cleaning has to be done again, at first after
 * PMHASH_WORKER_PAUSE and then less and less often.
 */
static List *cleanings_put_off = NIL;

/* A cleaning has been tried. */
static void
note_cleaning(Oid database, bool done)
{
	if (done)
		pmhash_put_off_over(&cleanings_put_off, database);
	else
		pmhash_put_off(&cleanings_put_off, database, PMHASH_WORKER_PAUSE,
					   PMHASH_MAX_DOUBLINGS);
}

/*
 * Requests that come within so many ms of a round for others wait, and are taken
 * together.  Each COMMIT PREPARED makes one, whatever its transaction has done, and a
 * round takes longer than such commits are apart.
 */
#define REQUESTS_APART	1000

static int64 requests_dealt_with = 0;	/* pmhash_clock_ms */

/* When something is to be cleaned (pmhash_clock_ms); PG_INT64_MAX: not known yet. */
int64
pmhash_next_cleaning(void)
{
	int64		next = pmhash_put_off_next(cleanings_put_off);

	if (pmhash_has_requests(&pmhash_shared->clean))
		next = Min(next, requests_dealt_with + REQUESTS_APART);
	return next;
}

/*
 * One round: remove what databases that are gone have left, and have the
 * given databases cleaned, or all (if everything is set).  Not while something
 * else stands where the pool was.
 */
static void
do_round(bool everything, List *wanted)
{
	List	   *existing;
	List	   *connectable;
	ListCell   *lc;

	if (!pmhash_pool_is_present())
		return;
	remember_databases(pmhash_databases_in_pool());
	if (known_databases == NIL)
		return;
	connectable = pmhash_databases_in_catalog(&existing);
	foreach(lc, known_databases)
	{
		Oid			database = lfirst_oid(lc);

		pmhash_launcher_interrupts();
		if (!list_member_oid(existing, database))
		{
			bool		done;

			PMH_STOP_POINT("launcher_before_dropped");
			done = pmhash_if_database_is_dropped(database, pmhash_remove_dropped);
			if (done)
				known_databases = foreach_delete_current(known_databases, lc);
			note_cleaning(database, done);
		}
		else if (list_member_oid(connectable, database) &&
				 (everything || list_member_oid(wanted, database)))
			note_cleaning(database, clean_database(database));
	}
}

/*
 * Do a round if requests or the clock call for one.  Only what was requested before the
 * launcher has settled.
 */
void
pmhash_clean_if_due(bool settled, int64 *last_full)
{
	int64		now = pmhash_clock_ms();
	bool		everything = false;
	bool		requested = false;
	List	   *wanted = NIL;

	if (pmhash_clock_past(requests_dealt_with, REQUESTS_APART))
	{
		wanted = pmhash_take_requests(&pmhash_shared->clean, &everything);
		requested = everything || wanted != NIL;
	}
	wanted = list_concat_unique_oid(wanted, pmhash_put_off_due(cleanings_put_off));
	if (settled &&
		(*last_full == 0 ||
		 now - *last_full >= pmhash_cleaner_naptime * INT64CONST(1000)))
		everything = true;
	if (!everything && wanted == NIL)
		return;
	if (everything)
		*last_full = now;
	do_round(everything, wanted);
	pmhash_put_off_tried(&cleanings_put_off);
	if (requested)
		requests_dealt_with = pmhash_clock_ms();
}
