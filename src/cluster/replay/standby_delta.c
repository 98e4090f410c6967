/*-------------------------------------------------------------------------
 *
 * standby_delta.c
 *	  A build on a standby, seen from the table: from NONE to DELTA, and to LIVE.
 *
 * What is in the delta file up to delta_ops is complete; the startup process
 * appends to it with the lock held shared (standby_redo.c).  The builder reads
 * without a lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlogrecovery.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/replay/standby_delta.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/wal_record.h"
#include "engine/stop_point.h"

/* ---- begin and end ---- */

static bool
is_removed(const char *path)
{
	return unlink(path) == 0 || errno == ENOENT;
}

/* The files of a build: none, none, an empty delta.  False with a reason. */
static bool
prepare_files(const PmhashStandbyBuild *build, char *reason)
{
	char		directory[MAXPGPATH];
	int			fd = -1;

	pmhash_database_path(directory, build->of.database);
	if ((mkdir(directory, 0700) == 0 || errno == EEXIST) &&
		is_removed(build->path) && is_removed(build->new_path))
		fd = open(build->delta_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return pmhash_fail(reason, "could not write to directory \"%s\": %s", directory,
						   strerror(errno));
	close(fd);
	return true;
}

/*
 * The timeline of the primary whose records a build that begins now will have.  In the
 * first record of a new one that is not what replay has come to (xlogrecovery.c,
 * ApplyWalRecord): builds of the old one have just been lost (standby_redo.c,
 * note_timeline), and one that begins after that would count as of the old one, and be
 * thrown away by the first VACUUM.  Under the lock.
 */
static TimeLineID
primary_of_build(void)
{
	TimeLineID	replayed;

	(void) GetXLogReplayRecPtr(&replayed);
	return Max(replayed, pmhash_shared->standby->replay_timeline);
}

/* Under the lock, exclusively. */
static bool
begin_locked(PmhashStandbyBuild *build, char *reason)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashStandbyRow *row;

	if (!RecoveryInProgress() || !standby->active)
		return pmhash_fail(reason, "the server is not in recovery");
	if (standby->newer)
		return pmhash_fail(reason, "the primary has another version of pmhash");

	/*
	 * Not before: what is published is said to have all records up to applied,
	 * and records that come before that are not for the files that have them.
	 */
	if (!pmhash_standby_reached())
		return pmhash_fail(reason, "replay has not come as far as it had");
	row = pmhash_standby_enter(build->of.file_id, build->of.database);
	if (row == NULL)
		return pmhash_fail(reason, "this server has %d files already",
						   PMHASH_STANDBY_FILES);
	if (row->status != PMHASH_STANDBY_NONE)
		return pmhash_fail(reason, "the file is there, or being built");
	if (row->database != build->of.database)
		return pmhash_fail(reason, "it is the file of another database");
	row->looks = 0;			/* its index is there */
	if (!prepare_files(build, reason))
	{
		row->wanted = true;
		pmhash_standby_note_failure(row, ERRCODE_IO_ERROR, reason);
		return false;
	}
	row->heap = build->of.heap;
	row->timeline = primary_of_build();
	pg_atomic_write_u64(&row->delta_ops, 0);
	row->delta_horizon = InvalidTransactionId;
	row->phase = PMHASH_PHASE_WAITING;
	row->done = row->total = 0;
	row->xid = InvalidTransactionId;
	pmhash_standby_set_status(row, PMHASH_STANDBY_DELTA);
	row->build = build->number = row->life;
	build->row = row - standby->row;
	return true;
}

bool
pmhash_standby_begin(const PmhashStandbyIndex *of, PmhashStandbyBuild *build,
					 char *reason)
{
	bool		begun;

	memset(build, 0, sizeof(*build));
	build->of = *of;
	pmhash_standby_paths(of->database, of->file_id, build->path, build->new_path,
						 build->delta_path);
	if (!pmhash_standby_is_active())
		return pmhash_fail(reason, "pmhash is disabled");
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	begun = begin_locked(build, reason);
	LWLockRelease(pmhash_standby_lock);

	/* Only now: each transaction from N0 on has all its records in the delta. */
	build->n0 = ReadNextFullTransactionId();
	return begun;
}

/* The row of a build that is not over; NULL if it is.  Under the lock. */
static PmhashStandbyRow *
row_of(const PmhashStandbyBuild *build)
{
	PmhashStandbyRow *row = &pmhash_shared->standby->row[build->row];

	return row->file_id == build->of.file_id && row->build == build->number &&
		row->status == PMHASH_STANDBY_DELTA ? row : NULL;
}

bool
pmhash_standby_building(const PmhashStandbyBuild *build)
{
	bool		building;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	building = row_of(build) != NULL;
	LWLockRelease(pmhash_standby_lock);
	return building;
}

void
pmhash_standby_give_up(const PmhashStandbyBuild *build, int sqlstate,
					   const char *message)
{
	PmhashStandbyRow *row;
	int64		pause_ends;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = row_of(build);
	if (row != NULL)
	{
		pmhash_standby_lose(row, true, sqlstate, message);

		/* What is no fault may come again and again: others have their turn. */
		pause_ends = pmhash_clock_ms() + pmhash_pause(1, PMHASH_LONGEST_PAUSE);
		row->next_try = Max(row->next_try, pause_ends);
	}

	/* Unless another build of the same file has begun. */
	row = pmhash_standby_find(build->of.file_id);
	if (row == NULL || row->status != PMHASH_STANDBY_DELTA)
		(void) unlink(build->new_path);
	LWLockRelease(pmhash_standby_lock);
}

void
pmhash_standby_progress(const PmhashStandbyBuild *build, PmhashStandbyPhase phase,
						uint64 done, uint64 total, TransactionId xid)
{
	PmhashStandbyRow *row = &pmhash_shared->standby->row[build->row];

	row->phase = phase;
	row->done = done;
	row->total = total;
	row->xid = xid;
}

uint64
pmhash_standby_delta_length(const PmhashStandbyBuild *build)
{
	PmhashStandbyRow *row = &pmhash_shared->standby->row[build->row];
	uint64		n = pg_atomic_read_u64(&row->delta_ops);

	pg_read_barrier();
	return n;
}

/* ---- reading the delta, and the end of a build ---- */

/* Read n operations from number 'from' on.  False with a reason. */
static bool
read_ops(const PmhashStandbyBuild *build, uint64 from, PmhashDeltaOp *ops, size_t n,
		 char *reason)
{
	ssize_t		wanted = (ssize_t) (n * sizeof(PmhashDeltaOp));
	int			fd = open(build->delta_path, O_RDONLY | O_CLOEXEC);
	ssize_t		got = fd < 0 ? -1 :
		pread(fd, ops, wanted, (off_t) (from * sizeof(PmhashDeltaOp)));

	if (fd >= 0)
		close(fd);
	return got == wanted ||
		pmhash_fail(reason, "could not read file \"%s\": %s", build->delta_path,
					got < 0 ? strerror(errno) : "it is too short");
}

bool
pmhash_standby_read_delta(const PmhashStandbyBuild *build, uint64 from,
						  PmhashDeltaOp *ops, size_t max, size_t *n, char *reason)
{
	uint64		length = pmhash_standby_delta_length(build);

	*n = from < length ? Min(max, length - from) : 0;
	if (!pmhash_standby_building(build))
		return pmhash_fail(reason, "the build is over");
	return *n == 0 || read_ops(build, from, ops, *n, reason);
}

/* How many operations from ops on are of one kind. */
static size_t
alike(const PmhashDeltaOp *ops, size_t n)
{
	size_t		i;

	for (i = 1; i < n && PMHASH_DELTA_IS_DELETE(&ops[i]) == PMHASH_DELTA_IS_DELETE(ops);)
		i++;
	return Min(i, PMHASH_WAL_MAX_ENTRIES);
}

PmhResult
pmhash_standby_apply_ops(PmhTable *table, const PmhashDeltaOp *ops, size_t n)
{
	PmhEntry	entries[PMHASH_WAL_MAX_ENTRIES];
	PmhResult	result = PMH_OK;
	size_t		done;
	size_t		group;

	for (size_t i = 0; i < n && result == PMH_OK; i += group)
	{
		group = alike(&ops[i], n - i);
		for (size_t j = 0; j < group; j++)
		{
			entries[j].hash = ops[i + j].hash;
			entries[j].value = PMHASH_DELTA_VALUE(&ops[i + j]);
		}
		if (PMHASH_DELTA_IS_DELETE(&ops[i]))
			result = pmh_delete_group(table, entries, group, &done);
		else
			result = pmh_insert_group(table, entries, group, false, &done);
	}
	return result;
}

/* Apply what is left of the delta.  The lock is held. */
static PmhashPublishResult
apply_rest(const PmhashStandbyBuild *build, PmhashStandbyRow *row, uint64 from,
		   PmhTable *table, char *reason)
{
	static PmhashDeltaOp ops[PMHASH_PUBLISH_MAX];
	uint64		left = pg_atomic_read_u64(&row->delta_ops) - from;

	if (left > PMHASH_PUBLISH_MAX)
		return PMHASH_PUBLISH_BEHIND;
	if (left > 0 && !read_ops(build, from, ops, left, reason))
		return PMHASH_PUBLISH_OVER;
	if (pmhash_standby_apply_ops(table, ops, left) == PMH_OK)
		return PMHASH_PUBLISH_DONE;
	pmhash_fail(reason, "could not use file \"%s\": %s", build->new_path,
				pmh_error(table)->detail);
	return PMHASH_PUBLISH_OVER;
}

/* The horizon of what the delta has removed counts like usable_xmin. */
static FullTransactionId
usable_from(const PmhashStandbyRow *row, TransactionId usable_xmin)
{
	TransactionId horizon = row->delta_horizon;

	if (TransactionIdIsNormal(horizon))
		TransactionIdAdvance(horizon);
	if (!TransactionIdIsNormal(usable_xmin) ||
		(TransactionIdIsNormal(horizon) && TransactionIdFollows(horizon, usable_xmin)))
		usable_xmin = horizon;
	return pmhash_standby_widen(usable_xmin);
}

static PmhashPublishResult
publish_locked(const PmhashStandbyBuild *build, uint64 from, PmhTable *table,
			   TransactionId usable_xmin, char *reason)
{
	PmhashStandbyRow *row = row_of(build);
	PmhashPublishResult result;
	XLogRecPtr	applied;
	XLogRecPtr	begun;
	TimeLineID	timeline;

	if (row == NULL || !RecoveryInProgress())
	{
		pmhash_fail(reason, "the build is over");
		return PMHASH_PUBLISH_OVER;
	}
	result = apply_rest(build, row, from, table, reason);
	if (result != PMHASH_PUBLISH_DONE)
		return result;
	PMH_STOP_POINT("standby_publishing");

	/*
	 * The table may have something of the record that is being replayed, and the delta
	 * all of it.  That has the timeline which replay has come to, or is its first one.
	 */
	applied = GetXLogReplayRecPtr(&timeline);
	begun = GetCurrentReplayRecPtr(NULL);
	begun = Max(begun, applied);
	row->usable_xmin = usable_from(row, usable_xmin);
	if (!pmhash_standby_note(build->new_path, row, applied, begun, timeline) ||
		rename(build->new_path, build->path) != 0)
	{
		pmhash_fail(reason, "could not write or rename file \"%s\": %s", build->new_path,
					strerror(errno));
		return PMHASH_PUBLISH_OVER;
	}
	pmhash_standby_set_status(row, PMHASH_STANDBY_LIVE);
	row->failures = 0;
	row->wanted = false;
	(void) unlink(build->delta_path);
	return PMHASH_PUBLISH_DONE;
}

PmhashPublishResult
pmhash_standby_publish(const PmhashStandbyBuild *build, uint64 from, PmhTable *table,
					   TransactionId usable_xmin, char *reason)
{
	PmhashPublishResult result;
	PmhashStandbyRow *row;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	result = publish_locked(build, from, table, usable_xmin, reason);
	row = row_of(build);
	if (result == PMHASH_PUBLISH_OVER && row != NULL)
		pmhash_standby_lose(row, true, ERRCODE_IO_ERROR, reason);
	LWLockRelease(pmhash_standby_lock);
	return result;
}
