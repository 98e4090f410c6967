/*-------------------------------------------------------------------------
 *
 * standby.c
 *	  The files of a server in recovery: the table of their states.
 *
 * standby_state.h says what the states mean, and src/README which rules hold:
 * "Standbys".  A row in the table belongs to one file id; ids stand in an array of
 * their own as well, which is what is searched (4,096 of them: 2 us, and what
 * searches often remembers until pmhash_standby.changes steps).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlogrecovery.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "storage/sinval.h"
#include "utils/snapmgr.h"
#include "utils/elog.h"

#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/standby/standby_state.h"
#include "engine/stop_point.h"

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
PmhashStandbyRow *
pmhash_standby_find_own(uint64 file_id)
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
				 errdetail("Queries on this standby do without the others, of any database. pmhash.indexes shows which these are."),
				 errhint("Indexes that are not needed here need not be logged (storage parameter wal).")));
}

/* Is there a row for one more file?  If not the log says so.  Under the lock. */
bool
pmhash_standby_has_room(void)
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
	row = pmhash_standby_find_own(file_id);
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
	row = pmhash_standby_find_own(file_id);
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
	row = pmhash_standby_find_own(file_id);
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
	row = pmhash_standby_find_own(file_id);
	has_place = row != NULL || free_row() < PMHASH_STANDBY_FILES;
	if (row != NULL)
		*copy = *row;
	LWLockRelease(pmhash_standby_lock);
	return has_place;
}
