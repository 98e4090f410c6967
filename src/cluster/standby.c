/*-------------------------------------------------------------------------
 *
 * standby.c
 *	  The files of a server in recovery: the table of their states, and which are to be
 *	  built.
 *
 * standby.h says what the states mean, and src/README which rules hold:
 * "Standbys".  A row in the table belongs to one file id; ids stand in an array of
 * their own as well, which is what is searched (4,096 of them: 2 us, and what
 * searches often remembers until pmhash_standby.changes steps).
 *
 * A process that finds something wrong sends the file to NONE.  Then it must never be
 * used again, neither by scans now nor after a restart or a promotion: it is removed, or
 * its header says so, or the control file, of all files.  If not even that can be done,
 * pmhash is given up for this run and the token of trust goes (pmhash_refuse_trust).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/snapmgr.h"

#include "cluster/clock.h"
#include "cluster/cluster.h"
#include "cluster/control_file.h"
#include "cluster/durable.h"
#include "cluster/invalid.h"
#include "cluster/older_snapshots.h"
#include "cluster/pool.h"
#include "cluster/pool_lock.h"
#include "cluster/requests.h"
#include "cluster/shared.h"
#include "cluster/trust.h"
#include "cluster/standby_state.h"
#include "cluster/stub.h"
#include "engine/stop_point.h"

/* Tries after which a file that WAL has announced belongs to no index. */
#define MAX_UNFOUND		12

/* As so many tries count those that have found it incomplete: 16 s to the next. */
#define FOUND_LOOKS		4

/* ---- shared memory ---- */

Size
pmhash_standby_shmem_size(void)
{
	return sizeof(PmhashStandby);
}

/* Forget all files.  For the postmaster, alone. */
void
pmhash_standby_reset(void)
{
	PmhashStandby *standby = pmhash_shared->standby;

	memset(standby->id, 0, sizeof(standby->id));
	memset(standby->row, 0, sizeof(standby->row));
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
		pg_atomic_init_u64(&standby->row[i].delta_ops, 0);
}

void
pmhash_standby_shmem_init(void)
{
	bool		found;
	PmhashStandby *standby = ShmemInitStruct("pmhash standby", sizeof(PmhashStandby),
											 &found);

	memset(standby, 0, sizeof(*standby));
	pg_atomic_init_u64(&standby->changes, 1);
	pg_atomic_init_u64(&standby->applied, InvalidXLogRecPtr);
	pg_atomic_init_u32(&standby->reached, 0);
	pg_atomic_init_u32(&standby->slot_wanted, 0);
	pg_atomic_init_u32(&standby->full, 0);
	pmhash_shared->standby = standby;
	pmhash_standby_reset();
}

/* Is this a server in recovery that keeps files? */
bool
pmhash_standby_is_active(void)
{
	return pmhash_shared != NULL && pmhash_shared->usable &&
		pmhash_shared->standby->active;
}

/* ---- rows ---- */

/* The row of a file, or NULL.  Under the lock, at least shared. */
PmhashStandbyRow *
pmhash_standby_find(uint64 file_id)
{
	PmhashStandby *standby = pmhash_shared->standby;

	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		if (standby->id[i] == file_id)
			return file_id != 0 ? &standby->row[i] : NULL;
	}
	return NULL;
}

/*
 * The row of a file of our database, or NULL.  A copied stub names one of another
 * database; so do those that ALTER INDEX has made of copies, in WAL of earlier versions.
 */
static PmhashStandbyRow *
find_own(uint64 file_id)
{
	PmhashStandbyRow *row = pmhash_standby_find(file_id);

	return row != NULL && row->database == MyDatabaseId ? row : NULL;
}

/* The number of a free row, or PMHASH_STANDBY_FILES.  Under the lock. */
static int
free_row(void)
{
	int			n = 0;

	while (n < PMHASH_STANDBY_FILES && pmhash_shared->standby->id[n] != 0)
		n++;
	return n;
}

/* A file has found no row.  The rows are those of all databases: say so, once. */
static void
note_full(void)
{
	if (pg_atomic_exchange_u32(&pmhash_shared->standby->full, 1) == 0)
		ereport(LOG,
				(errmsg("pmhash: no more than %d logged indexes can have files on a standby",
						PMHASH_STANDBY_FILES),
				 errdetail("Queries on this standby do without the others, of any database. pmhash_indexes shows which these are."),
				 errhint("Indexes that are not needed here need not be logged (storage parameter wal).")));
}

/* Is there a row for one more file?  If not the log says so.  Under the lock. */
static bool
has_room(void)
{
	bool		room = free_row() < PMHASH_STANDBY_FILES;

	if (!room)
		note_full();
	return room;
}

/*
 * The row of a file, made if there is none: then it is NONE.  NULL if the table is full.
 * Exclusively.
 */
PmhashStandbyRow *
pmhash_standby_enter(uint64 file_id, Oid database)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashStandbyRow *row = pmhash_standby_find(file_id);
	int			n;

	if (row != NULL || file_id == 0)
		return row;
	n = free_row();
	if (n == PMHASH_STANDBY_FILES)
	{
		note_full();
		return NULL;
	}
	row = &standby->row[n];
	memset(row, 0, sizeof(*row));
	pg_atomic_init_u64(&row->delta_ops, 0);
	row->file_id = standby->id[n] = file_id;
	row->database = database;
	pg_atomic_fetch_add_u64(&standby->changes, 1);
	return row;
}

/* No record will come for this file again, which is NONE.  Exclusively. */
void
pmhash_standby_forget(PmhashStandbyRow *row)
{
	PmhashStandby *standby = pmhash_shared->standby;

	Assert(row->status == PMHASH_STANDBY_NONE);
	standby->id[row - standby->row] = 0;
	row->file_id = 0;
	pg_atomic_fetch_add_u64(&standby->changes, 1);
}

/* A row has another status from now on; all backends learn of it.  Exclusively. */
void
pmhash_standby_set_status(PmhashStandbyRow *row, PmhashStandbyStatus status)
{
	PmhashStandby *standby = pmhash_shared->standby;

	row->status = status;
	row->life = ++standby->lives;
	row->restored = false;
	pg_atomic_fetch_add_u64(&standby->changes, 1);
	pmhash_stub_changed();
	pmhash_forget_plans(row->database, row->heap, true);
}

/* ---- to NONE ---- */

/* Note a failure, for views and for the next try.  sqlstate 0: no fault. */
void
pmhash_standby_note_failure(PmhashStandbyRow *row, int sqlstate, const char *why)
{
	row->sqlstate = sqlstate;
	pmhash_keep_message(row->message, sizeof(row->message), why == NULL ? "" : why);
	if (sqlstate == 0)
		row->next_try = 0;
	else
	{
		row->failures++;
		row->next_try = pmhash_clock_ms() + pmhash_pause(row->failures, PMHASH_LONGEST_PAUSE);
	}
}

static void
become_none(PmhashStandbyRow *row, bool wanted, int sqlstate, const char *why)
{
	pmhash_standby_set_status(row, PMHASH_STANDBY_NONE);
	pmhash_removal_replayed(row->file_id);
	row->wanted = wanted;
	pmhash_standby_note_failure(row, sqlstate, why);
	if (wanted)
		pmhash_request(row->database, PMHASH_JOB_PLAIN);
}

/*
 * Neither the file nor its note that it is LIVE can be taken away: a later start,
 * or a promotion, would take it for up to date.  So the control file says that none of
 * the files is to be trusted, and all are built again.  If that can't be said either, this
 * server life does without pmhash.
 */
static void
give_files_up(const char *path)
{
	PmhashStandby *standby = pmhash_shared->standby;
	LWLock	   *pool_lock = pmhash_lwlock(PMHASH_POOL_LOCK);
	char		reason[PMHASH_REASON_SIZE];
	bool		said = false;

	/* Who has that lock may wait for ours: a promotion. */
	if (LWLockConditionalAcquire(pool_lock, LW_EXCLUSIVE))
	{
		PmhashControl control = pmhash_shared->control;

		pmhash_renew_eras(&control, PMHASH_ALL_FILES, PMHASH_REASON_APART);
		said = pmhash_pool_is_present() && pmhash_pool_write_control(&control, reason);
		if (said)
			pmhash_shared->control = control;
		LWLockRelease(pool_lock);
	}
	ereport(LOG,
			(errmsg("pmhash can neither use nor remove file \"%s\"", path),
			 said ? errdetail("All index files are built again in the background.") :
			 errdetail("pmhash is disabled until the server is restarted.")));
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &standby->row[i];

		if (row->status != PMHASH_STANDBY_NONE)
			become_none(row, true, 0, NULL);
	}
	if (said)
		return;
	/* (That is looked at once pmhash is not active, or not usable, any more.) */
	pmhash_fail(pmhash_shared->reason, "file \"%s\" can neither be used nor removed",
				path);
	pg_write_barrier();
	standby->active = false;
	pmhash_shared->usable = false;
	pmhash_refuse_trust(pmhash_shared->control.journal_instance);
}

/*
 * A file becomes NONE, whatever it was; 'wanted' if a build would be welcome.  Under
 * the lock, exclusively.  Raises no ERROR.
 *
 * Not past the promotion, which ends 'active' under the lock: the files are the
 * primary's then, whose stubs are to say what is wrong, and processes that hold the
 * removal lock, which is taken here, may wait for ours (removal.c).
 */
void
pmhash_standby_lose(PmhashStandbyRow *row, bool wanted, int sqlstate, const char *why)
{
	bool		was_live = row->status == PMHASH_STANDBY_LIVE;
	char		path[MAXPGPATH];
	char		new_path[MAXPGPATH];
	char		delta_path[MAXPGPATH];

	become_none(row, wanted, sqlstate, why);
	pmhash_standby_paths(row->database, row->file_id, path, new_path, delta_path);

	/* What the builder is filling it removes itself, or the next one. */
	(void) unlink(delta_path);
	if (unlink(path) != 0 && errno != ENOENT && was_live && !pmhash_standby_note_lost(path))
		give_files_up(path);
}

/* The same for all files, or for those that were LIVE before this run. */
void
pmhash_standby_lose_all(bool restored_only, int sqlstate, const char *why)
{
	PmhashStandby *standby = pmhash_shared->standby;

	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &standby->row[i];

		if (row->status != PMHASH_STANDBY_NONE &&
			(!restored_only || row->restored))
			pmhash_standby_lose(row, true, sqlstate, why);
	}
}

/* Pages of the files may be older than what was stored there. */
bool
pmhash_standby_distrust(const char *why)
{
	bool		ours;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	ours = pmhash_shared->standby->active;
	if (ours)
	{
		pmhash_standby_lose_all(false, ERRCODE_IO_ERROR, why);
		ereport(LOG,
				(errmsg("pmhash: index files in \"%s\" are not trusted: %s",
						pmhash_pool_path(), why)));
	}
	LWLockRelease(pmhash_standby_lock);
	return ours;
}

/*
 * A process has found a file to be damaged, or gone, that was LIVE in this life.  There
 * may be a later one by now, of which that says nothing.  Nor past a promotion, when
 * processes that use the file mark the stub.  True if it is lost by that.  Raises no ERROR.
 */
bool
pmhash_standby_lost(uint64 file_id, uint64 life, const char *why)
{
	PmhashStandbyRow *row;
	bool		lost;

	if (!pmhash_standby_is_active())
		return false;
	PMH_STOP_POINT("standby_before_lost");
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = find_own(file_id);
	lost = pmhash_shared->standby->active && row != NULL &&
		row->status == PMHASH_STANDBY_LIVE && row->life == life;
	if (lost)
		pmhash_standby_lose(row, true, ERRCODE_INDEX_CORRUPTED, why);
	LWLockRelease(pmhash_standby_lock);
	return lost;
}

/* ---- databases that are dropped ---- */

List *
pmhash_standby_databases(bool to_sweep)
{
	PmhashStandby *standby = pmhash_shared->standby;
	List	   *databases = NIL;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		if (standby->id[i] != 0 &&
			(!to_sweep || pmhash_standby_is_to_be_swept(&standby->row[i])))
			databases = list_append_unique_oid(databases, standby->row[i].database);
	}
	LWLockRelease(pmhash_standby_lock);
	return databases;
}

void
pmhash_standby_database_dropped(Oid database)
{
	PmhashStandby *standby = pmhash_shared->standby;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	if (!standby->active)
	{
		LWLockRelease(pmhash_standby_lock); /* the primary's cleaner does it */
		return;
	}
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		PmhashStandbyRow *row = &standby->row[i];

		if (standby->id[i] == 0 || row->database != database)
			continue;
		if (row->status != PMHASH_STANDBY_NONE)
			pmhash_standby_lose(row, false, 0, NULL);
		pmhash_standby_forget(row);
	}
	if (!pmhash_standby_clear_database(database))
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not remove the directory of database %u, which has been dropped: %m",
						database)));
	LWLockRelease(pmhash_standby_lock);
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
		has_room();
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

/* ---- which scans may use a file ---- */

/*
 * Has replay come past all records of which files that were LIVE before this run may have
 * something (S3)?  On another timeline than that was on, the startup process gives these
 * files up (S4), at the record that switches to it.
 */
bool
pmhash_standby_reached(void)
{
	PmhashStandby *standby = pmhash_shared->standby;
	TimeLineID	timeline;

	if (pg_atomic_read_u32(&standby->reached) != 0)
		return true;
	if (GetXLogReplayRecPtr(&timeline) < standby->last_begun ||
		timeline != standby->last_timeline)
		return false;
	pg_atomic_write_u32(&standby->reached, 1);
	return true;
}

/*
 * Which of the files that have had this id here is LIVE?  0: none.  Takes the lock.
 * It stays so after a promotion, for backends that have mapped an earlier one.
 */
uint64
pmhash_standby_life(uint64 file_id)
{
	PmhashStandbyRow *row;
	uint64		life = 0;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = find_own(file_id);
	if (row != NULL && row->status == PMHASH_STANDBY_LIVE)
		life = row->life;
	LWLockRelease(pmhash_standby_lock);
	return life;
}

/* Is a file that was opened on a standby still LIVE?  Cheap, mostly. */
bool
pmhash_standby_still_live(PmhashFile *file)
{
	uint64		changes = pg_atomic_read_u64(&pmhash_shared->standby->changes);

	if (likely(file->standby_changes == changes))
		return true;
	pg_read_barrier();
	if (pmhash_standby_life(file->file_id) != file->standby_life)
		return false;
	file->standby_changes = changes;
	return true;
}

/* The 64-bit number of a transaction id that is not older than 2^31 ids. */
FullTransactionId
pmhash_standby_widen(TransactionId xid)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);

	if (!TransactionIdIsNormal(xid))
		return InvalidFullTransactionId;
	if (xid > XidFromFullTransactionId(next))
		epoch--;
	return FullTransactionIdFromEpochAndXid(epoch, xid);
}

/* Is a snapshot's xmin not before that? */
static bool
snapshot_fits(FullTransactionId usable_xmin, Snapshot snapshot)
{
	if (snapshot == NULL || U64FromFullTransactionId(usable_xmin) == 0)
		return true;
	return snapshot->snapshot_type == SNAPSHOT_MVCC &&
		FullTransactionIdFollowsOrEquals(pmhash_standby_widen(snapshot->xmin),
										 usable_xmin);
}

/*
 * Does a snapshot see only what the file has?  Who has taken it here had been waited for,
 * or was cancelled, before entries were removed that it needs.  But who has taken it over
 * meanwhile was not.
 */
static bool
file_fits(const PmhashStandbyRow *row, Snapshot snapshot)
{
	return snapshot_fits(row->usable_xmin, snapshot) &&
		(!pmhash_snapshot_may_be_older() ||
		 snapshot_fits(row->removed_xmin, snapshot));
}

bool
pmhash_standby_serves(uint64 file_id, uint64 life, Snapshot snapshot)
{
	PmhashStandbyRow *row;
	bool		serves;

	if (!pmhash_standby_is_active())
		return false;
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = find_own(file_id);
	serves = row != NULL && row->status == PMHASH_STANDBY_LIVE &&
		(life == 0 || row->life == life) &&
		(!row->restored || pmhash_standby_reached()) &&
		file_fits(row, snapshot);
	LWLockRelease(pmhash_standby_lock);
	return serves;
}

/*
 * May a snapshot that is from before the promotion of this server use a file?  One that
 * is not in the table was made afterwards, and its stub says which scans may use it.
 */
bool
pmhash_standby_fits_promoted(uint64 file_id, Snapshot snapshot)
{
	PmhashStandbyRow *row;
	bool		fits;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = find_own(file_id);
	fits = row == NULL || file_fits(row, snapshot);
	LWLockRelease(pmhash_standby_lock);
	return fits;
}

/*
 * For views: what is known of a file, all zeroes if it has no row.  False if it could not
 * have one, as none is free.
 */
bool
pmhash_standby_look(uint64 file_id, PmhashStandbyRow *copy)
{
	PmhashStandbyRow *row;
	bool		has_place;

	memset(copy, 0, sizeof(*copy));
	if (!pmhash_standby_is_active())
		return true;
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = find_own(file_id);
	has_place = row != NULL || free_row() < PMHASH_STANDBY_FILES;
	if (row != NULL)
		*copy = *row;
	LWLockRelease(pmhash_standby_lock);
	return has_place;
}
