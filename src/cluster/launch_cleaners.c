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
#include "cluster/launcher.h"
#include "cluster/orphans.h"
#include "cluster/pool.h"
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
 * PMHASH_WORKER_PAUSE and then less and less often.  Lives in TopMemoryContext.
 */
static List *cleanings_put_off = NIL;
static int64 put_off_until;		/* pmhash_clock_ms */
static int	put_off_in_a_row = 0;

static void
put_off(Oid database)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	int64		pause = (int64) PMHASH_WORKER_PAUSE << put_off_in_a_row;

	if (cleanings_put_off == NIL)
	{
		put_off_until = pmhash_clock_ms() + pause;
		put_off_in_a_row = Min(put_off_in_a_row + 1, PMHASH_MAX_DOUBLINGS);
	}
	cleanings_put_off = list_append_unique_oid(cleanings_put_off, database);
	MemoryContextSwitchTo(old);
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
	int64		next = cleanings_put_off != NIL ? put_off_until : PG_INT64_MAX;

	if (pmhash_has_requests(&pmhash_shared->clean))
		next = Min(next, requests_dealt_with + REQUESTS_APART);
	return next;
}

/* Those of them that are to be tried again by now. */
static List *
take_put_off(void)
{
	List	   *databases;

	if (cleanings_put_off == NIL || pmhash_clock_ms() < put_off_until)
		return NIL;
	databases = list_copy(cleanings_put_off);
	list_free(cleanings_put_off);
	cleanings_put_off = NIL;
	return databases;
}

/*
 * One round: remove what databases that are gone have left, and have the
 * given databases swept, or all (if everything is set).  Not while something
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
			PMH_STOP_POINT("launcher_before_dropped");
			if (pmhash_if_database_is_dropped(database, pmhash_remove_dropped))
				known_databases = foreach_delete_current(known_databases, lc);
			else
				put_off(database);
		}
		else if (list_member_oid(connectable, database) &&
				 (everything || list_member_oid(wanted, database)) &&
				 !clean_database(database))
			put_off(database);
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
	wanted = list_concat_unique_oid(wanted, take_put_off());
	if (settled &&
		(*last_full == 0 ||
		 now - *last_full >= pmhash_cleaner_naptime * INT64CONST(1000)))
		everything = true;
	if (!everything && wanted == NIL)
		return;
	if (everything)
		*last_full = now;
	do_round(everything, wanted);
	if (cleanings_put_off == NIL)
		put_off_in_a_row = 0;
	if (requested)
		requests_dealt_with = pmhash_clock_ms();
}
