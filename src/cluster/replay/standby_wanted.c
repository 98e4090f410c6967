/*-------------------------------------------------------------------------
 *
 * standby_wanted.c
 *	  Which files a standby is to build, and when.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/replay/standby_delta.h"
#include "cluster/standby/standby_state.h"

/* Tries after which a file that WAL has announced belongs to no index. */
#define MAX_UNFOUND		12

/* As so many tries count those that have found it incomplete: 16 s to the next. */
#define FOUND_LOOKS		4

/*
 * The stub says that it is logged; the file has not been given up, so no FILE_NEW or
 * FILE_GONE has come, so it has been logged ever since.  Noted for the promotion, which may
 * come after a restart, before a builder has looked again.
 */
static void
note_logged(const PmhashStandbyIndex *of)
{
	PmhashStandbyRow *row;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = pmhash_standby_find(of->file_id);
	if (row != NULL && pmhash_standby_may_be_unlogged(row) &&
		row->database == of->database)
	{
		row->heap = of->heap;
		if (!pmhash_standby_note_heap(row))
			row->heap = InvalidOid; /* look again */
	}
	LWLockRelease(pmhash_standby_lock);
}

bool
pmhash_standby_wants(const PmhashStandbyIndex *of)
{
	PmhashStandbyRow *row;
	bool		adopted;
	bool		wants;

	if (!pmhash_standby_is_active() || pmhash_shared->standby->newer ||
		!pmhash_standby_reached())
		return false;
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = pmhash_standby_find(of->file_id);
	adopted = row != NULL && pmhash_standby_may_be_unlogged(row);
	wants = row != NULL ?
		row->status == PMHASH_STANDBY_NONE && row->database == of->database :
		pmhash_standby_has_room();
	if (wants && row != NULL && row->next_try > pmhash_clock_ms())
		wants = false;
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
	row->next_look = now + pmhash_pause(row->looks, PMHASH_LONGEST_PAUSE);
	*next = Min(*next, row->next_look);
	return database;
}

List *
pmhash_standby_due_databases(int64 *next)
{
	PmhashStandby *standby = pmhash_shared->standby;
	int64		now = pmhash_clock_ms();
	List	   *databases = NIL;

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
