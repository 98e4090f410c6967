/*-------------------------------------------------------------------------
 *
 * standby_build.c
 *	  Building the files of logged indexes on a standby.
 *
 * src/README, "Standbys", has the steps and the rules B1 to B7.  Each step may find that the
 * build is over, as the index was dropped, the file replaced, or the server promoted.  No
 * snapshot and no lock is held while transactions before N0 are waited for, and from loading
 * on no relation is locked.
 *
 * A failure is noted for pmhash.indexes and the next try.  A conflict with replay is none,
 * and the build is tried again soon.  In both cases the worker ends, and another one goes
 * on: temporary files that outlive transactions go with it.  An index that can't even be
 * looked at is left out, until the next visit: the others are built all the same.
 *
 * What is in the delta file up to delta_ops is complete; the startup process appends to it
 * with the lock held shared (standby_redo.c), and the builder reads without a lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/relation.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/queue/queue.h"
#include "cluster/replay/replay.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/wal_record.h"

#define LONGEST_LOOK	100		/* ms, between looks for transactions before N0 */
#define BATCH			4096	/* operations of a delta that are applied at a time */
#define LITTLE			(PMHASH_PUBLISH_MAX / 4)	/* to be left to publish */

const PmhashFiller *pmhash_filler = NULL;

/* What this worker is at. */
typedef struct Builder
{
	PmhashJob	job;			/* which indexes it builds */
	bool		begun;
	char		name[NAMEDATALEN];	/* of the index */
	PmhashIdentity identity;	/* of the new file */
	TransactionId n0;			/* read when the state was DELTA already */
	uint64		scanned;		/* operations in the delta when the scan had ended */
	PmhashStandbyRow *row;		/* in the table; its own as long as it has this life */
	uint64		life;
	char		path[MAXPGPATH];	/* <id>.pmh */
	char		delta_path[MAXPGPATH];	/* <id>.delta */
} Builder;

static Builder builder;

/* Are some indexes to be looked at again soon: they were locked, or not complete? */
static bool some_left = false;

/* ---- builds in the table of files ---- */

/*
 * Should this index have a build now?  Not before replay has reached all that files of the
 * life before may have (S3).  Under the lock.
 */
static bool
is_due(void)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashStandbyRow *row = pmhash_standby_find(builder.identity.file_id);
	PmhashRebuild last;

	if (!RecoveryInProgress() || !standby->active || standby->newer ||
		!pmhash_standby_reached() ||
		(row != NULL && (row->status != PMHASH_STANDBY_NONE || row->database != MyDatabaseId)))
		return false;
	if (!pmhash_rebuild_state(builder.identity.index_oid, &last) ||
		last.next_try <= pmhash_clock_ms())
		return true;
	some_left = true;
	return false;
}

/* The files of the build: none yet, and an empty delta.  False with a reason. */
static bool
prepare_files(char *reason)
{
	char		directory[MAXPGPATH];
	int			fd = -1;

	pmhash_database_path(directory, MyDatabaseId);
	if ((mkdir(directory, 0700) == 0 || errno == EEXIST) &&
		(unlink(builder.path) == 0 || errno == ENOENT))
		fd = open(builder.delta_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
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
 * thrown away by the first VACUUM.
 */
static TimeLineID
primary_of_build(void)
{
	TimeLineID	replayed;

	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE));
	(void) GetXLogReplayRecPtr(&replayed);
	return Max(replayed, pmhash_shared->standby->replay_timeline);
}

/* The row of the build, if that is not over; else NULL.  Under the lock. */
static PmhashStandbyRow *
row_of_build(void)
{
	PmhashStandbyRow *row = builder.row;

	Assert(LWLockHeldByMe(pmhash_standby_lock));
	if (row->life != builder.life || row->file_id != builder.identity.file_id)
		return NULL;
	Assert(row->status == PMHASH_STANDBY_DELTA);
	return row;
}

bool
pmhash_standby_building(void)
{
	bool		building;

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	building = row_of_build() != NULL;
	LWLockRelease(pmhash_standby_lock);
	return building;
}

void
pmhash_standby_progress(uint64 done, uint64 total, TransactionId xid)
{
	PmhashStandbyRow *row = builder.row;

	row->done = done;
	row->total = total;
	row->xid = xid;
}

/* Operations in the delta so far, which are complete. */
static uint64
delta_length(void)
{
	uint64		n = pg_atomic_read_u64(&builder.row->delta_ops);

	pg_read_barrier();
	return n;
}

/*
 * Read operations of the delta from number *from on, and apply them in their order to a
 * table: those up to number 'to', or some of them; *from moves on.  What came before the scan
 * had ended it may have found: such an entry is taken out before it is inserted, so that it
 * comes out once; of the others it has found none.  What is not there need not be removed.
 * False with a reason.
 */
static bool
apply_ops(PmhTable *table, uint64 *from, uint64 to, char *reason)
{
	static PmhEntry ops[BATCH];
	size_t		n = Min(BATCH, to - *from);
	ssize_t		wanted = (ssize_t) (n * sizeof(PmhEntry));
	bool		removes_first = *from < builder.scanned;
	PmhResult	result = PMH_OK;
	size_t		done;
	size_t		group;
	int			fd = open(builder.delta_path, O_RDONLY | O_CLOEXEC);
	ssize_t		got = fd < 0 ? -1 :
		pread(fd, ops, wanted, (off_t) (*from * sizeof(PmhEntry)));

	if (got != wanted)
		pmhash_fail(reason, "could not read file \"%s\": %s", builder.delta_path,
					got < 0 ? strerror(errno) : "it is too short");
	if (fd >= 0)
		close(fd);
	if (got != wanted)
		return false;
	for (size_t i = 0; i < n && result == PMH_OK; i += group)
	{
		bool		delete = (ops[i].value & PMHASH_DELTA_DELETE) != 0;

		/* as many as are of one kind */
		for (group = 0; group < PMHASH_WAL_MAX_ENTRIES && i + group < n &&
			 ((ops[i + group].value & PMHASH_DELTA_DELETE) != 0) == delete; group++)
			ops[i + group].value &= ~PMHASH_DELTA_DELETE;
		if (delete || removes_first)
			result = pmh_delete_group(table, &ops[i], group, &done);
		if (!delete && result == PMH_OK)
			result = pmh_insert_group(table, &ops[i], group, false, &done);
	}
	*from += n;
	return result == PMH_OK ||
		pmhash_fail(reason, "could not use file \"%s\": %s", builder.path,
					pmh_error(table)->detail);
}

/*
 * Replay waits: apply what the delta has from number 'from' on; LIVE.  False with a reason.
 */
static bool
publish_locked(uint64 from, uint64 length, PmhTable *table, TransactionId usable_xmin,
			   char *reason)
{
	PmhashStandbyRow *row = builder.row;
	XLogRecPtr	begun;
	TimeLineID	timeline;

	Assert(LWLockHeldByMeInMode(pmhash_standby_lock, LW_EXCLUSIVE));
	Assert(row->status == PMHASH_STANDBY_DELTA && row->life == builder.life);
	Assert(from <= length && length - from <= PMHASH_PUBLISH_MAX);
	if (!apply_ops(table, &from, length, reason))
		return false;
	Assert(from == length);

	/* The record that is being replayed: the table may have some of it, the delta all. */
	begun = GetCurrentReplayRecPtr(&timeline);
	PMH_STOP_POINT("standby_publishing");
	pmhash_standby_raise_usable_xmin(row, pmhash_standby_widen(usable_xmin));
	if (!pmhash_standby_note(builder.path, row, begun, timeline))
		return pmhash_fail(reason, "could not write file \"%s\": %s", builder.path,
						   strerror(errno));
	pmhash_standby_set_status(row, PMHASH_STANDBY_LIVE);
	pmhash_rebuild_forget(row->database, row->index, NIL);
	(void) unlink(builder.delta_path);
	return true;
}

/*
 * The build has failed, or is not to go on: NONE if it is still ours, and what there is of it
 * is removed.  sqlstate 0: no fault (cancelled by a conflict, shutdown).  Takes the lock,
 * allocates nothing.
 */
static void
end_build(int sqlstate, const char *message)
{
	PmhashStandbyRow *row;

	Assert(builder.begun);
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = row_of_build();
	if (row != NULL)
		pmhash_standby_lose(row, sqlstate, message);
	LWLockRelease(pmhash_standby_lock);
	builder.begun = false;
}

/* ---- looking at an index ---- */

/*
 * Is this an index that is to have a file here?  Then *stub names it.  Not before
 * it is complete on the primary, for which it is looked at again and again.  CREATE INDEX
 * CONCURRENTLY logs entries of rows that are older than it at the end (index.c,
 * validate_index): a file that is LIVE by then has them from the table already, and
 * would get them twice.
 */
static bool
is_wanted(Relation index, Oid heap, PmhashStub *stub)
{
	Assert(IsTransactionState());
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (!pmhash_is_index(index) || index->rd_index->indrelid != heap ||
		!index->rd_index->indislive ||
		index->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT ||
		!pmhash_stub_read(index, stub) ||
		(stub->flags & PMHASH_STUB_LOGGED) == 0 ||
		(stub->flags & PMHASH_STUB_INVALID) != 0)
		return false;
	if ((stub->flags & PMHASH_STUB_FILLING) != 0)
		return false;			/* FILE_NEW is going to say when it is not any more */
	some_left |= !index->rd_index->indisvalid;
	return index->rd_index->indisvalid;
}

/* Lock a relation, if that is free.  If it is not, the database is looked at again. */
static bool
lock_if_free(Oid relid)
{
	if (ConditionalLockRelationOid(relid, AccessShareLock))
		return true;
	some_left = true;
	return false;
}

/*
 * Lock and open an index and its table.  False, and nothing is open, if one of them
 * has gone; or is locked, and the caller does not wait.  The locks go with the
 * transaction.
 */
static bool
open_both(Oid relid, bool wait, Relation *heap, Relation *index)
{
	Oid			heap_oid = IndexGetRelation(relid, true);

	Assert(IsTransactionState());
	*heap = *index = NULL;
	if (!OidIsValid(heap_oid))
		return false;
	if (!wait && (!lock_if_free(heap_oid) || !lock_if_free(relid)))
		return false;
	*heap = try_relation_open(heap_oid, AccessShareLock);
	if (*heap == NULL)
		return false;
	*index = try_relation_open(relid, AccessShareLock);
	if (*index != NULL && (*index)->rd_index != NULL)
		return true;
	if (*index != NULL)
		relation_close(*index, NoLock);
	relation_close(*heap, NoLock);
	return false;
}

static void
close_both(Relation heap, Relation index)
{
	relation_close(index, NoLock);
	relation_close(heap, NoLock);
}

/* ---- the steps ---- */

/* The build is over, though nothing has failed here. */
pg_noreturn static void
is_over(const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the build is over: %s", reason)));
}

static void
require_building(void)
{
	CHECK_FOR_INTERRUPTS();
	if (!RecoveryInProgress())
		is_over("the server has been promoted");
	if (!pmhash_standby_building())
		is_over("the file is not wanted any more");
}

/*
 * The file of an index begins to be built: NONE becomes DELTA.  False if it should have no
 * build now, or by the other worker, or a file can't be made.  Locked indexes are not waited
 * for: replay holds the locks of a transaction on the primary for as long as that likes, and
 * there are others.  ERROR if its stub can't be read, or the catalogs don't hold together.
 */
static bool
begin(Oid relid)
{
	PmhashStub	stub;
	PmhashStandbyRow *row;
	Relation	heap;
	Relation	index;
	char		reason[PMHASH_REASON_SIZE];

	Assert(!builder.begun && !IsTransactionState());
	StartTransactionCommand();
	if (!open_both(relid, false, &heap, &index))
	{
		CommitTransactionCommand();
		return false;
	}
	strlcpy(builder.name, RelationGetRelationName(index), NAMEDATALEN);
	if (is_wanted(index, RelationGetRelid(heap), &stub))
	{
		bool		ours = pmhash_build_job(index->rd_indextuple) == builder.job;
		bool		due;

		PMH_STOP_POINT("standby_begins");
		pmhash_identity_make(index, stub.file_id, stub.seed, &builder.identity);
		builder.identity.flags |= PMHASH_IDENTITY_LOGGED;
		pmhash_file_path(builder.path, MyDatabaseId, stub.file_id);
		pmhash_standby_delta_path(MyDatabaseId, stub.file_id, builder.delta_path);
		LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
		due = is_due();
		row = due && ours ? pmhash_standby_enter(stub.file_id, MyDatabaseId) : NULL;
		if (row != NULL)
			row->index = relid;
		if (row != NULL && !prepare_files(reason))
		{
			(void) pmhash_rebuild_note(MyDatabaseId, relid, ERRCODE_IO_ERROR, reason);
			some_left = true;
		}
		else if (row != NULL)
		{
			row->heap = RelationGetRelid(heap);
			row->timeline = primary_of_build();
			pg_atomic_write_u64(&row->delta_ops, 0);
			pmhash_standby_set_status(row, PMHASH_STANDBY_DELTA);
			builder.row = row;
			builder.life = row->life;
			pmhash_standby_progress(0, 0, InvalidTransactionId);
			builder.begun = true;
		}
		LWLockRelease(pmhash_standby_lock);

		/* Only now (B1): each transaction from N0 on has all its records in the delta. */
		builder.n0 = XidFromFullTransactionId(ReadNextFullTransactionId());
		if (due && ours && !builder.begun)
			ereport(DEBUG1, (errmsg_internal("no build of index \"%s\"", builder.name)));
		if (due && !ours && builder.job == PMHASH_JOB_PLAIN)
			pmhash_request(MyDatabaseId, PMHASH_JOB_EXPRESSIONS);
	}
	if (builder.begun)
		pmhash_report_index("building the file of", index);
	close_both(heap, index);
	CommitTransactionCommand();
	return builder.begun;
}

static void
wait_for_transactions(void)
{
	TransactionId xmin;
	long		pause = 1;

	Assert(!IsTransactionState());	/* our own snapshot would be waited for */
	for (;;)
	{
		StartTransactionCommand();
		xmin = GetLatestSnapshot()->xmin;
		CommitTransactionCommand();
		if (!TransactionIdPrecedes(xmin, builder.n0))
			break;
		pmhash_standby_progress(0, 0, xmin);
		pmhash_sleep(pause, pmhash_wait_event(PMHASH_WAIT_BUILD));
		require_building();
		pause = Min(2 * pause, LONGEST_LOOK);
	}
	PMH_STOP_POINT("standby_waited");
}

/* Scan for as long as locks may be held.  True when the table has been scanned. */
static bool
scan_slice(PmhashStandbyFill **fill)
{
	PmhashStub	stub;
	Relation	heap;
	Relation	index;
	bool		done;

	StartTransactionCommand();
	if (!open_both(builder.identity.index_oid, true, &heap, &index))
		is_over("the index has been dropped");
	if (!is_wanted(index, RelationGetRelid(heap), &stub) ||
		stub.file_id != builder.identity.file_id)
		is_over("the index has another file");
	done = pmhash_filler->scan(fill, builder.n0, stub.seed, heap, index);
	close_both(heap, index);
	CommitTransactionCommand();
	return done;
}

pg_noreturn static void
engine_failed(const char *path, const PmhError *error)
{
	CHECK_FOR_INTERRUPTS();
	ereport(ERROR,
			(errcode(error->code == PMH_ERR_NO_SPACE ? ERRCODE_DISK_FULL :
					 error->code == PMH_ERR_NO_MEMORY ? ERRCODE_OUT_OF_MEMORY
					 : ERRCODE_IO_ERROR),
			 errmsg("could not write file \"%s\"%s%s", path,
					error->sys_errno != 0 ? ": " : "",
					error->sys_errno != 0 ? strerror(error->sys_errno) : ""),
			 error->detail[0] != '\0' ? errdetail("%s", error->detail) : 0));
}

/* Something failed in the engine while the new file was written. */
void
pmhash_standby_engine_error(const PmhashFile *file, PmhResult result)
{
	const PmhError *error = pmh_error(file->table);

	engine_failed(file->path, error->code == result ? error : &(PmhError) {.code = result});
}

/*
 * Make the file, of what has been found.  In a transaction that has no locks and no
 * snapshot, for temporary files.
 */
static void
load(PmhashStandbyFill *fill, PmhashFile *file, TransactionId *usable_xmin)
{
	PmhEnv		env = pmhash_engine_env();
	PmhError	error = {0};
	PmhResult	result = PMH_OK;
	bool		building;

	memset(file, 0, sizeof(*file));
	file->file_id = builder.identity.file_id;
	file->seed = builder.identity.seed;
	file->path = builder.path;
	StartTransactionCommand();

	/* Under the lock: who ends the build removes the file, which must not come after that. */
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	building = row_of_build() != NULL;
	if (building)
		result = pmh_create(file->path, &builder.identity, &env, &file->table, &error);
	LWLockRelease(pmhash_standby_lock);
	if (result != PMH_OK)
		engine_failed(file->path, &error);
	if (!building)
		is_over("the file is not wanted any more");
	pmhash_filler->load(fill, file, usable_xmin);
	CommitTransactionCommand();
	PMH_STOP_POINT("standby_loaded");
}

/* The file is complete but for the delta: have it used. */
static void
publish(PmhashFile *file, TransactionId usable_xmin)
{
	uint64		from = 0;
	uint64		length;
	char		reason[PMHASH_REASON_SIZE] = "it is not wanted any more";
	bool		behind;
	bool		done = false;

	/* No ERROR is raised with the lock held: replay waits for it. */
	Assert(!IsTransactionState());
	do
	{
		PmhashStandbyRow *row;

		while (from + LITTLE < (length = delta_length()))
		{
			pmhash_give_way();
			require_building();
			if (apply_ops(file->table, &from, length, reason))
				continue;
			if (pmh_error(file->table)->code != PMH_OK)
				engine_failed(file->path, pmh_error(file->table));
			is_over(reason);
		}
		PMH_STOP_POINT("standby_caught_up");
		LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
		row = RecoveryInProgress() ? row_of_build() : NULL;
		length = delta_length();
		behind = row != NULL && length - from > PMHASH_PUBLISH_MAX;
		if (row != NULL && !behind)
		{
			done = publish_locked(from, length, file->table, usable_xmin, reason);
			if (!done)
				pmhash_standby_lose(row, ERRCODE_IO_ERROR, reason);
		}
		LWLockRelease(pmhash_standby_lock);
	} while (behind);
	if (!done)
		is_over(reason);
	builder.begun = false;
	pmh_close(file->table);
	PMH_STOP_POINT("standby_published");
}

/* ---- in one piece ---- */

static void
build_index(Oid relid, bool last)
{
	PmhashStandbyFill *fill = NULL;
	PmhashFile	file;
	TransactionId usable_xmin;

	if (!begin(relid))
		return;

	/* Another worker may come for the rest of this database. */
	if (!last && builder.job == PMHASH_JOB_PLAIN)
		pmhash_request(MyDatabaseId, PMHASH_JOB_PLAIN);
	PMH_STOP_POINT("standby_begun");
	wait_for_transactions();
	while (!scan_slice(&fill))
	{
		PMH_STOP_POINT("standby_scanning");
		require_building();
	}
	builder.scanned = delta_length();
	PMH_STOP_POINT("standby_scanned");
	load(fill, &file, &usable_xmin);
	publish(&file, usable_xmin);
	ereport(LOG,
			(errmsg("pmhash: index \"%s\" has been built on this standby", builder.name)));
}

/*
 * What is no fault: replay needed our lock or snapshot, or has held a lock that we
 * need for longer than others are to wait; or the build is not wanted any more.
 */
static bool
is_fault(int sqlstate)
{
	return sqlstate != ERRCODE_T_R_SERIALIZATION_FAILURE &&
		sqlstate != ERRCODE_T_R_DEADLOCK_DETECTED &&
		sqlstate != ERRCODE_LOCK_NOT_AVAILABLE &&
		sqlstate != ERRCODE_QUERY_CANCELED &&
		sqlstate != ERRCODE_ADMIN_SHUTDOWN;
}

/*
 * A build is over before its end, or has not begun: of that only the log tells, each time, if it
 * is a fault.
 */
static void
give_up(Oid relid, const ErrorData *error)
{
	bool		failed = is_fault(error->sqlerrcode) &&
		(!builder.begun || pmhash_standby_building());

	if (builder.begun)
		end_build(failed ? error->sqlerrcode : 0, error->message);
	else if (!failed)
		some_left = true;
	ereport(failed ? LOG : DEBUG1,
			(errmsg("pmhash: could not build %s on this standby: %s",
					pmhash_index_label(relid, builder.name), error->message)));
}

/* At exit in the middle of a build. */
static void
builder_exit(int code, Datum arg)
{
	Assert(!LWLockHeldByMe(pmhash_standby_lock));
	if (builder.begun)
		end_build(0, "the worker was terminated");
}

/* Build an index, if it should be built.  False if that has begun, and failed. */
static bool
try_index(Oid relid, bool last)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool failed = false;

	builder.name[0] = '\0';
	PG_TRY();
	{
		build_index(relid, last);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		AbortOutOfAnyTransaction();
		LWLockReleaseAll();		/* replay may wait for it, and so would give_up */
		FlushErrorState();
		failed = builder.begun;
		give_up(relid, error);
		FreeErrorData(error);
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return !failed;
}

/* Is this worker to go on with another index? */
static bool
goes_on(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	return pmhash_rebuild && RecoveryInProgress();
}

/* ---- a database ---- */

/*
 * Build the files that are missing in the database which this worker is connected
 * to, of indexes for this job.  Not in a transaction.  If there are several plain ones,
 * another worker may help: each takes those that no other one is at.  False if there are some
 * left, and another worker has not been requested.
 */
bool
pmhash_standby_build_database(PmhashJob job)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "pmhash builder",
												  ALLOCSET_DEFAULT_SIZES);
	List	   *indexes;
	ListCell   *lc;

	Assert(!IsTransactionState() && OidIsValid(MyDatabaseId));
	builder.job = job;
	before_shmem_exit(builder_exit, (Datum) 0);
	pgstat_report_activity(STATE_RUNNING, "looking for pmhash index files that this standby lacks");
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	MemoryContextSwitchTo(context);
	indexes = pmhash_list_indexes(false);
	CommitTransactionCommand();
	foreach(lc, indexes)
	{
		if (!goes_on())
			break;
		MemoryContextSwitchTo(context);
		if (!try_index(lfirst_oid(lc), lnext(indexes, lc) == NULL))
		{
			pmhash_request(MyDatabaseId, job);
			return true;
		}
	}
	MemoryContextSwitchTo(TopMemoryContext);
	return !some_left;
}
