/*-------------------------------------------------------------------------
 *
 * put_off.c
 *	  Databases that the launcher comes back to later, each at its own time.
 *
 * One that can't be seen to for hours must not make others wait as long that were put off
 * for the first time, nor be tried with them.  The lists live in TopMemoryContext.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "cluster/clock.h"
#include "cluster/put_off.h"

#define BEING_TRIED		PG_INT64_MAX

typedef struct PutOff
{
	Oid			database;
	int64		until;			/* pmhash_clock_ms, or BEING_TRIED */
	int			in_a_row;		/* how often its pause has been doubled */
} PutOff;

static PutOff *
find(const List *list, Oid database)
{
	ListCell   *lc;

	foreach(lc, list)
	{
		PutOff	   *one = lfirst(lc);

		if (one->database == database)
			return one;
	}
	return NULL;
}

/*
 * Put a database off for so many ms; if it has been tried again in vain, for twice as
 * long as the last time, which may come so often.  One whose time has not come keeps it.
 * ERROR if memory is short.
 */
void
pmhash_put_off(List **list, Oid database, int64 pause, int doublings)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	PutOff	   *one = find(*list, database);

	if (one == NULL)
	{
		one = palloc0(sizeof(PutOff));
		one->database = database;
		one->until = pmhash_clock_ms() + pause;
		*list = lappend(*list, one);
	}
	else if (one->until == BEING_TRIED)
	{
		one->in_a_row = Min(one->in_a_row + 1, doublings);
		one->until = pmhash_clock_ms() + (pause << one->in_a_row);
	}
	MemoryContextSwitchTo(old);
}

/* Is the database on the list, due or not? */
bool
pmhash_is_put_off(const List *list, Oid database)
{
	return find(list, database) != NULL;
}

/* When the next one is due (pmhash_clock_ms); PG_INT64_MAX: none is. */
int64
pmhash_put_off_next(const List *list)
{
	int64		next = PG_INT64_MAX;
	ListCell   *lc;

	foreach(lc, list)
	{
		const PutOff *one = lfirst(lc);

		next = Min(next, one->until);
	}
	return next;
}

/*
 * The databases that are due now, in a list of the caller's.  They are being tried, until
 * they are put off again, or pmhash_put_off_tried.
 */
List *
pmhash_put_off_due(List *list)
{
	int64		now = pmhash_clock_ms();
	List	   *due = NIL;
	ListCell   *lc;

	foreach(lc, list)
	{
		PutOff	   *one = lfirst(lc);

		if (now < one->until)
			continue;
		one->until = BEING_TRIED;
		due = lappend_oid(due, one->database);
	}
	return due;
}

static void
forget(List **list, Oid database, bool only_tried)
{
	ListCell   *lc;

	foreach(lc, *list)
	{
		PutOff	   *one = lfirst(lc);

		if (only_tried ? one->until != BEING_TRIED : one->database != database)
			continue;
		*list = foreach_delete_current(*list, lc);
		pfree(one);
	}
}

/* It needs not be put off any more. */
void
pmhash_put_off_over(List **list, Oid database)
{
	forget(list, database, false);
}

/* Those that were due have been tried: forget those that were not put off again. */
void
pmhash_put_off_tried(List **list)
{
	forget(list, InvalidOid, true);
}
