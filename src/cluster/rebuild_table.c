/*-------------------------------------------------------------------------
 *
 * rebuild_table.c
 *	  What is known of rebuilds: which go on, which have failed and why, and when
 *	  they are tried again.
 *
 * It stands in shared memory, for the view and for the launcher.  When all rows
 * are taken, failures are noted for the database as a whole: one row for each kind of
 * rebuilder stands for all its indexes that have failed and have none, and is taken
 * from one of them.  So there is always a pause before the next try; but those that
 * have not failed yet do not wait for it, unless they share a bit with one that has.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"

#include "cluster/clock.h"
#include "cluster/cluster.h"
#include "cluster/rebuild_table.h"
#include "cluster/requests.h"
#include "cluster/shared.h"

#define LONGEST_PAUSE	300		/* seconds between tries */
#define REQUEST_PAUSE	10		/* seconds between requests past a shared row */
#define MANY_FAILURES	3		/* after these a person has to see to it */

/* Of this worker.  Others have no pass, and ask for all kinds. */
static PmhashBuildKind own_kind = PMHASH_BUILD_PLAIN;

/*
 * The pass of this worker over its database: those that have failed and have no row of
 * their own are all tried in it, or none.
 */
static bool rest_waits = false;	/* it is not their time yet */
static bool rest_failed = false;	/* one of them has failed in this pass */

/* The entry of an index, or NULL.  The caller holds the rebuild lock. */
static PmhashRebuild *
find_rebuild(Oid database, Oid index)
{
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == database && r->index == index)
			return r;
	}
	return NULL;
}

/* The row of those of a database and a kind that have none, or NULL.  As above. */
static PmhashRebuild *
find_rest(Oid database, PmhashBuildKind kind)
{
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == database && r->index == InvalidOid && r->kind == kind)
			return r;
	}
	return NULL;
}

/* The word and the bit of an index among those that share a row. */
static uint64
known_bit(Oid index, int *word)
{
	uint32		hash = murmurhash32(index) % (PMHASH_KNOWN_WORDS * 64);

	*word = hash / 64;
	return UINT64CONST(1) << (hash % 64);
}

/*
 * The row in which the failure of an index of this database and kind stands, or NULL.
 * What those of the other kind share says nothing of it: only their bits are the same.
 * As above.
 */
static PmhashRebuild *
find_of_kind(Oid index, PmhashBuildKind kind)
{
	PmhashRebuild *r = find_rebuild(MyDatabaseId, index);
	int			word;
	uint64		bit = known_bit(index, &word);

	if (r == NULL)
	{
		r = find_rest(MyDatabaseId, kind);
		if (r != NULL && (r->known[word] & bit) == 0)
			r = NULL;
	}
	return r;
}

/* The same of an index whose kind the caller does not know.  As above. */
static PmhashRebuild *
find_either(Oid index)
{
	PmhashRebuild *r = NULL;

	for (int kind = 0; kind < PMHASH_BUILD_KINDS && r == NULL; kind++)
		r = find_of_kind(index, kind);
	return r;
}

/*
 * What is known of the rebuild of an index of this database; of those that have failed
 * without a row of their own what they share, with index InvalidOid.
 */
bool
pmhash_rebuild_state(Oid index, PmhashRebuild *state)
{
	PmhashRebuild *r;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	r = find_either(index);
	if (r != NULL)
		*state = *r;
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return r != NULL;
}

/* Take a free row, if there is one. */
static PmhashRebuild *
new_rebuild(Oid index)
{
	PmhashRebuild *r = find_rebuild(InvalidOid, InvalidOid);

	if (r != NULL)
	{
		memset(r, 0, sizeof(*r));
		r->database = MyDatabaseId;
		r->index = index;
		r->kind = own_kind;
	}
	return r;
}

/* Seconds to wait after so many failures. */
static int
pause_after(int failures)
{
	return failures < 8 ? Min(1 << failures, LONGEST_PAUSE) : LONGEST_PAUSE;
}

/* The rebuild of another index of a table, by a worker of the other kind, or NULL. */
static PmhashRebuild *
at_same_table(Oid heap)
{
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == MyDatabaseId && r->running && r->heap == heap &&
			r->kind != own_kind)
			return r;
	}
	return NULL;
}

/*
 * pmhash_rebuild_begins
 *		Note that a rebuild begins, of an index of this table (InvalidOid: not known).
 *
 * False if the rebuilder of the other kind is at the same table: both would need a lock
 * that only one of them can have.  When it is done a rebuilder of ours is requested.
 */
bool
pmhash_rebuild_begins(Oid index, Oid heap)
{
	PmhashRebuild *other;
	PmhashRebuild *r;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	other = OidIsValid(heap) ? at_same_table(heap) : NULL;
	if (other != NULL)
		other->waited_for = true;
	r = find_rebuild(MyDatabaseId, index);
	if (other == NULL && r == NULL)
		r = new_rebuild(index);
	if (r != NULL)
	{
		r->running = other == NULL;
		r->heap = heap;
		if (other != NULL)
			r->next_try = pmhash_clock_ms() + pause_after(r->failures) * INT64CONST(1000);
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return other == NULL;
}

/* A rebuild by this worker is over, which that of the other kind may have waited for. */
static void
let_other_kind_begin(bool waited_for)
{
	if (waited_for)
		pmhash_request(MyDatabaseId, own_kind == PMHASH_BUILD_PLAIN ?
					   PMHASH_JOB_EXPRESSIONS : PMHASH_JOB_PLAIN);
}

/*
 * A row whose rebuild is not going on, of an index of our kind of the database, or
 * (InvalidOid) any.
 */
static PmhashRebuild *
idle_rebuild(Oid database)
{
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (!r->running && (database == InvalidOid ||
							(r->database == database && r->kind == own_kind)))
			return r;
	}
	return NULL;
}

/* An index that has failed shares this row. */
static void
note_known(PmhashRebuild *rest, Oid index)
{
	int			word;
	uint64		bit = known_bit(index, &word);

	rest->known[word] |= bit;
}

/*
 * The row for failures of this database's indexes of our kind that have none.  If there
 * is none for it either, an index of this database and kind gives up its own and is one
 * of these from now on; if it has no row at all, an index of another database
 * does, which will be tried once too often.
 */
static PmhashRebuild *
rest_of_database(void)
{
	PmhashRebuild *r = find_rest(MyDatabaseId, own_kind);

	if (r == NULL)
		r = new_rebuild(InvalidOid);
	if (r == NULL)
		r = idle_rebuild(MyDatabaseId);
	if (r == NULL)
	{
		r = idle_rebuild(InvalidOid);
		if (r == NULL)
			return NULL;
		memset(r, 0, sizeof(*r));
		r->database = MyDatabaseId;
	}
	if (OidIsValid(r->index))
		note_known(r, r->index);
	r->index = InvalidOid;
	r->kind = own_kind;
	return r;
}

/*
 * Note a failure and when to try again; returns the pause in seconds.  Those that
 * share a row fail together, in one pass over the database: that counts once.
 */
int
pmhash_rebuild_failed(Oid index, int sqlstate, const char *message)
{
	PmhashRebuild *r;
	int64		now = pmhash_clock_ms();
	int			pause = LONGEST_PAUSE;
	bool		waited_for = false;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	r = find_rebuild(MyDatabaseId, index);
	if (r == NULL)
		r = rest_of_database();
	if (r != NULL)
	{
		if (r->next_try <= now)
			r->next_try = now + pause_after(r->failures++) * INT64CONST(1000);
		pause = (int) ((r->next_try - now + 999) / 1000);
		rest_failed |= !OidIsValid(r->index);
		if (!OidIsValid(r->index))
			note_known(r, index);
		waited_for = r->waited_for;
		r->running = r->waited_for = false;
		r->sqlstate = sqlstate;
		pmhash_keep_message(r->failure, sizeof(r->failure), message);
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	let_other_kind_begin(waited_for);
	return pause;
}

/* Forget an index of this database. */
void
pmhash_rebuild_is_over(Oid index)
{
	PmhashRebuild *r;
	bool		waited_for = false;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	r = find_rebuild(MyDatabaseId, index);
	if (r != NULL)
	{
		waited_for = r->waited_for;
		memset(r, 0, sizeof(*r));
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	let_other_kind_begin(waited_for);
}

/* Forget a database. */
void
pmhash_rebuild_forget(Oid database)
{
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		if (pmhash_shared->rebuild[i].database == database)
			memset(&pmhash_shared->rebuild[i], 0, sizeof(PmhashRebuild));
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/* Forget those indexes of this database that are in neither list any more. */
void
pmhash_rebuild_forget_dropped(List *indexes, List *others)
{
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == MyDatabaseId && OidIsValid(r->index) &&
			!list_member_oid(indexes, r->index) && !list_member_oid(others, r->index))
			memset(r, 0, sizeof(*r));
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/*
 * Databases with a failed rebuild of this kind that is to be tried again by now
 * (pmhash_clock_ms).  *next is made earlier if another is due before it.
 */
List *
pmhash_rebuilds_due(PmhashBuildKind kind, int64 now, int64 *next)
{
	Oid			due[PMHASH_MAX_REBUILDS];
	int			n = 0;
	List	   *databases = NIL;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		const PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == InvalidOid || r->running || r->kind != kind)
			continue;
		if (r->next_try <= now)
			due[n++] = r->database;
		else if (r->next_try < *next)
			*next = r->next_try;
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	for (int i = 0; i < n; i++)
		databases = list_append_unique_oid(databases, due[i]);
	return databases;
}

/*
 * Is the failure of an index known, so that a rebuilder comes without a request?  Where
 * only a bit says so it may be that of another index, for which none comes, or one of the
 * other kind: every now and then a request is let through.
 */
static bool
holds_request_back(Oid index, int64 now)
{
	PmhashRebuild *r;
	bool		known;
	bool		holds;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	r = find_either(index);
	known = r != NULL;
	holds = known && (OidIsValid(r->index) || now < r->next_request);
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	if (!known || holds)
		return holds;
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	r = find_either(index);
	if (r != NULL && !OidIsValid(r->index))
		r->next_request = now + REQUEST_PAUSE * INT64CONST(1000);
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return false;
}

/*
 * A backend has met an invalid index of this database.  Unless that is known,
 * or it has said so of this one within the last second, the launcher is woken.  If a stub
 * has changed meanwhile that may have been another time that it was invalid: it has been
 * rebuilt since, and of this time no other may ever say so.
 */
void
pmhash_rebuild_wanted(Oid index)
{
	static Oid	last_index = InvalidOid;
	static int64 last = 0;
	static uint64 last_generation = 0;
	uint64		generation = pg_atomic_read_u64(&pmhash_shared->stub_generation);
	int64		now = pmhash_clock_ms();

	if ((index == last_index && generation == last_generation && now - last < 1000) ||
		holds_request_back(index, now))
		return;
	last_index = index;
	last_generation = generation;
	last = now;
	pmhash_request(MyDatabaseId, PMHASH_JOB_PLAIN);
}

/* This worker begins to go through the indexes of this kind of its database. */
void
pmhash_rebuild_pass_begins(PmhashBuildKind kind)
{
	PmhashRebuild *rest;

	own_kind = kind;
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	rest = find_rest(MyDatabaseId, kind);
	rest_waits = rest != NULL && rest->next_try > pmhash_clock_ms();
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	rest_failed = false;
}

/* All that could be rebuilt has been: forget what was noted of the rest. */
void
pmhash_rebuild_pass_ends(void)
{
	PmhashRebuild *rest;

	if (rest_waits || rest_failed)
		return;
	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_EXCLUSIVE);
	rest = find_rest(MyDatabaseId, own_kind);
	if (rest != NULL)
		memset(rest, 0, sizeof(*rest));
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
}

/*
 * pmhash_rebuild_has_to_wait
 *		Is a new try of a failed rebuild, of an index of this kind, not due yet?
 */
bool
pmhash_rebuild_has_to_wait(Oid index, PmhashBuildKind kind)
{
	const PmhashRebuild *r;
	bool		waits;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	r = find_of_kind(index, kind);
	if (r == NULL || r->running)
		waits = false;
	else if (OidIsValid(r->index) || kind != own_kind)
		waits = r->next_try > pmhash_clock_ms();
	else
		waits = rest_waits;		/* all of a pass, or none */
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return waits;
}

/* Has the rebuild of an index failed so often that waiting will not help? */
bool
pmhash_rebuild_keeps_failing(Oid index, PmhashRebuild *state)
{
	return pmhash_rebuild_state(index, state) && state->index == index &&
		state->failures >= MANY_FAILURES;
}

/* The index of this database that is being rebuilt by this worker, or InvalidOid. */
Oid
pmhash_rebuild_running(void)
{
	Oid			running = InvalidOid;

	LWLockAcquire(pmhash_lwlock(PMHASH_REBUILD_LOCK), LW_SHARED);
	for (int i = 0; i < PMHASH_MAX_REBUILDS; i++)
	{
		PmhashRebuild *r = &pmhash_shared->rebuild[i];

		if (r->database == MyDatabaseId && r->running && r->kind == own_kind)
			running = r->index;
	}
	LWLockRelease(pmhash_lwlock(PMHASH_REBUILD_LOCK));
	return running;
}

/*
 * What to do about a rebuild that fails with this SQLSTATE, or NULL.  A worker has
 * an empty search_path, not that of the session that made the index (worker.c,
 * pmhash_worker_begin; from PostgreSQL 17 on, all builds have a fixed one: usercontext.c,
 * RestrictSearchPath), so an expression that calls others by their bare names does not
 * find them.
 */
const char *
pmhash_rebuild_failure_hint(int sqlstate)
{
	switch (sqlstate)
	{
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_UNDEFINED_TABLE:
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_UNDEFINED_SCHEMA:
		case ERRCODE_AMBIGUOUS_FUNCTION:
			return "A function that the index calls may depend on search_path: set it for the function with ALTER FUNCTION ... SET search_path.";
		case ERRCODE_CONFIGURATION_LIMIT_EXCEEDED:
			return "ALTER DATABASE ... SET temp_file_limit gives it more; or REINDEX INDEX in a session that has more makes a new file.";
		default:
			return NULL;
	}
}
