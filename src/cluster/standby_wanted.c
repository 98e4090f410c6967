/*-------------------------------------------------------------------------
 *
 * standby_wanted.c
 *	  Which files a standby is to build, and when; nudges of the worker that sees to it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/latch.h"
#include "storage/spin.h"

#include "cluster/clock.h"
#include "cluster/cluster.h"
#include "cluster/shared.h"
#include "cluster/standby_state.h"

/* Tries after which a file that WAL has announced belongs to no index. */
#define MAX_UNFOUND		12

/* As so many tries count those that have found it incomplete: 16 s to the next. */
#define FOUND_LOOKS		4

/* ---- nudges ---- */

/* Have a database looked at, or (InvalidOid) all of them.  Raises no ERROR. */
void
pmhash_standby_nudge_for(PmhashNudge what, Oid database)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashRequests *nudge = &standby->nudge[what];
	Latch	   *latch;
	bool		known = false;

	SpinLockAcquire(&standby->mutex);
	for (int i = 0; i < nudge->n; i++)
		known |= nudge->database[i] == database;
	if (!OidIsValid(database) || (!known && nudge->n == PMHASH_MAX_REQUESTS))
		nudge->all = true;
	else if (!known)
		nudge->database[nudge->n++] = database;
	latch = standby->latch;
	SpinLockRelease(&standby->mutex);
	if (latch != NULL)
		SetLatch(latch);
}

void
pmhash_standby_nudge(Oid database)
{
	pmhash_standby_nudge_for(PMHASH_NUDGE_SOON, database);
}

/* Take those nudges, as a list of databases; *all: look at all. */
List *
pmhash_standby_take_nudges(PmhashNudge what, bool *all)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashRequests taken;
	List	   *databases = NIL;

	SpinLockAcquire(&standby->mutex);
	taken = standby->nudge[what];
	standby->nudge[what].n = 0;
	standby->nudge[what].all = false;
	SpinLockRelease(&standby->mutex);
	for (int i = 0; i < taken.n; i++)
		databases = lappend_oid(databases, taken.database[i]);
	*all = taken.all;
	return databases;
}

void
pmhash_standby_set_latch(Latch *latch)
{
	PmhashStandby *standby = pmhash_shared->standby;

	SpinLockAcquire(&standby->mutex);
	standby->latch = latch;
	SpinLockRelease(&standby->mutex);
}

/* ---- what is to be built ---- */

/* Was this server's own as a primary; and it is not known whether it is logged. */
bool
pmhash_standby_may_be_unlogged(const PmhashStandbyRow *row)
{
	return row->status == PMHASH_STANDBY_LIVE && row->timeline == 0 &&
		!OidIsValid(row->heap);
}

/*
 * The stub says that it is logged; the file has not been given up, so no FILE_NEW or
 * FILE_GONE has come, so it has been logged ever since.  Noted for the promotion,
 * durably: that may come before a builder has looked again.
 */
static void
note_logged(const PmhashStandbyIndex *of)
{
	PmhashStandbyRow *row;
	char		reason[PMHASH_REASON_SIZE];

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = pmhash_standby_find(of->file_id);
	if (row != NULL && pmhash_standby_may_be_unlogged(row) &&
		row->database == of->database)
	{
		row->heap = of->heap;
		if (!pmhash_standby_keep(row, reason))
		{
			row->heap = InvalidOid; /* look again */
			ereport(LOG, (errmsg("pmhash: %s", reason)));
		}
	}
	LWLockRelease(pmhash_standby_lock);
}

bool
pmhash_standby_wants(const PmhashStandbyIndex *of, int64 *next)
{
	PmhashStandbyRow *row;
	int64		soon;
	bool		adopted;
	bool		wants;

	if (!pmhash_standby_is_active() || pmhash_shared->standby->newer)
		return false;
	if (!pmhash_standby_reached())
	{
		soon = pmhash_clock_ms() + pmhash_standby_pause(1);
		*next = Min(*next, soon);
		return false;
	}
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = pmhash_standby_find(of->file_id);
	adopted = row != NULL && pmhash_standby_may_be_unlogged(row);
	wants = row != NULL ?
		row->status == PMHASH_STANDBY_NONE && row->database == of->database :
		pmhash_standby_has_room();
	if (wants && row != NULL && row->next_try > pmhash_clock_ms())
	{
		*next = Min(*next, row->next_try);
		wants = false;
	}
	LWLockRelease(pmhash_standby_lock);
	if (adopted)
		note_logged(of);
	return wants;
}

void
pmhash_standby_wanted_later(const PmhashStandbyIndex *of)
{
	PmhashStandbyRow *row;

	if (!pmhash_standby_is_active() || !pmhash_standby_reached())
		return;
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = pmhash_standby_enter(of->file_id, of->database);
	if (row != NULL && row->database == of->database &&
		row->status == PMHASH_STANDBY_NONE)
	{
		row->heap = of->heap;
		row->wanted = true;
		row->looks = Min(row->looks, FOUND_LOOKS);
	}
	LWLockRelease(pmhash_standby_lock);
}

/*
 * A file that is wanted, and due: its database.  It may be that its index is not to
 * be seen yet, or never will be (an abort that a crash has hidden): so there are
 * pauses, and after some looks, when the last one has had its time, it is forgotten.
 */
static Oid
due_database(PmhashStandbyRow *row, int64 now, int64 *next)
{
	Oid			database = row->database;

	if (row->file_id == 0 || row->status != PMHASH_STANDBY_NONE)
		return InvalidOid;
	if (row->wanted && (row->next_try > now || row->next_look > now))
	{
		*next = Min(*next, Max(row->next_try, row->next_look));
		return InvalidOid;
	}
	if (!row->wanted || row->looks >= MAX_UNFOUND)
	{
		pmhash_standby_forget(row);
		return InvalidOid;
	}
	row->looks++;
	row->next_look = now + pmhash_standby_pause(row->looks);
	*next = Min(*next, row->next_look);
	return database;
}

List *
pmhash_standby_take_databases(bool *all, int64 *next)
{
	PmhashStandby *standby = pmhash_shared->standby;
	int64		now = pmhash_clock_ms();
	List	   *databases;

	*all = false;
	if (!pmhash_standby_reached())
	{
		const int64 first = pmhash_standby_pause(1);

		*next = Min(*next, now + first);	/* nothing is wanted before that */
		return NIL;
	}
	databases = pmhash_standby_take_nudges(PMHASH_NUDGE_SOON, all);
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		Oid			database;

		if (standby->id[i] == 0)
			continue;
		LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
		database = due_database(&standby->row[i], now, next);
		LWLockRelease(pmhash_standby_lock);
		if (OidIsValid(database))
			databases = list_append_unique_oid(databases, database);
	}
	return databases;
}
