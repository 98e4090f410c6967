/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *	  Giving an invalid index a new file while the table is written to; which indexes of a
 *	  database are rebuilt, and in what order.
 *
 * When one is tried again is in requests.c.  A rebuild waits for transactions that are open,
 * each for lock_timeout.  Then it fails, and is tried again later, as after any failure.
 *
 * src/README, "Rebuild", says who uses the new file when, and who waits.
 *
 * 1 mark	ShareUpdateExclusiveLock on table and index, to the end of 4: keeps
 *			VACUUM out (no TID is freed, no entry deleted), DDL, and other
 *			rebuilds.  Make an empty file; the stub names it, as "filling".
 * 2 wait	for every transaction that holds a lock to write to the table, as
 *			CREATE INDEX CONCURRENTLY does (indexcmds.c, DefineIndex).  A writer
 *			that has decided before 1 to leave the index out took that lock
 *			before it decided, so it is over now, and prepared ones are too.
 *			New writers do not wait, and insert into the file.
 * 3 fill	Take a snapshot S, scan the table by it, insert the entry of each row
 *			but for those that are in the file: rows of writers that have
 *			committed since 1. Those are in for certain: entries are made before
 *			the commit.  A row that S does not see is of a writer that was at
 *			work after 2, hence has begun to insert after 1: its entry is in the
 *			file, or will be.  The transaction gets an id X, and ends.
 * 4		The stub says that the file is valid, and was filled by X.
 *
 * Rows that were deleted when S was taken have no entry.  Older snapshots may see them, and
 * nobody waits for these: reads are by snapshots only that see that X has ended
 * (file_open.c, is_filled_later).  All that are taken after 4 do; indexes that a snapshot
 * may not use are not in its plans.
 *
 * A crash before 4 leaves the stub as it was, and the next try begins anew.  A file that an
 * insert cannot enter, because the file system is full for instance, fails the rebuild and
 * not the insert: the insert marks the stub as invalid (pmhash_insert_failed).  VACUUM, which
 * can come between a failed try and the next one, does that too.
 *
 * The stub's WAL record of 4 comes after X's commit record, which comes after those of all
 * rows that S sees; that of 1 comes before that of any transaction that has inserted because
 * of it.  So no entry that 3 makes needs the undo journal: if WAL is lost with such a commit,
 * "valid" is lost as well.  And no transaction after a crash has X as its id again.
 *
 * Constraints: rows are not let in unchecked, and a check needs all rows; so such
 * inserts fail until 4 (SQLSTATE 40001).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "storage/proc.h"
#include "utils/backend_progress.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/wal/stub.h"
#include "cluster/workers/workers.h"

#define WRITER_PAUSE	10		/* milliseconds between looks at a writer */

/* What is known of a rebuild from step to step, each a transaction. */
typedef struct Refill
{
	Oid			index;
	Oid			heap;
	LockRelId	heap_lock;		/* held by the session */
	LockRelId	index_lock;
	uint64		file_id;		/* of the new file */
	FullTransactionId filled_by;	/* in step 3 */
	PmhashReason reason;		/* why the old file was not used */
} Refill;

/* Of the rebuild that this worker is at, or zeroes. */
static Refill refill;

/* ---- the steps ---- */

/*
 * No process opens the old file again; its room is free when the last process has let it
 * go.  Plans that use the index are made anew: we may be the first to have met it.
 */
static void
remove_old_file(Relation heap, Relation index)
{
	uint64		file_id;

	Assert(CheckRelationLockedByMe(heap, ShareUpdateExclusiveLock, true));
	Assert(CheckRelationLockedByMe(index, ShareUpdateExclusiveLock, true));
	(void) pmhash_stub_invalidate(index, 0, refill.reason);
	file_id = pmhash_index_file(index);
	if (file_id != 0)
		pmhash_remove_file(MyDatabaseId, file_id, false);
	else
		pmhash_visit_at_commit(MyDatabaseId);	/* it may have had one all the same */
	TransferPredicateLocksToHeapRelation(index);
	CacheInvalidateRelcache(heap);
	CacheInvalidateRelcache(index); /* who has the old file mapped lets it go */
}

/*
 * Has it to be rebuilt?  Not if it takes no inserts (CREATE INDEX CONCURRENTLY
 * and DROP INDEX CONCURRENTLY at work, or what such a one has left).
 */
static bool
needs_new_file(Relation index, PmhashReason *reason)
{
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	*reason = PMHASH_REASON_NONE;
	if (pmhash_is_index(index) && index->rd_index->indisready && index->rd_index->indislive)
		*reason = pmhash_index_doubt(index, NULL);
	return *reason != PMHASH_REASON_NONE;
}

/*
 * Step 1: lock table and index, look again, begin.  False if there is nothing to do any
 * more.  In a transaction of its own, as all of these.
 */
static bool
begin(Oid relid)
{
	Oid			heap_oid;
	Relation	heap = NULL;
	Relation	index = NULL;
	bool		needed;

	StartTransactionCommand();
	heap_oid = IndexGetRelation(relid, true);
	if (OidIsValid(heap_oid))
		heap = try_relation_open(heap_oid, ShareUpdateExclusiveLock);
	if (heap != NULL)
		index = try_relation_open(relid, ShareUpdateExclusiveLock);
	needed = index != NULL && index->rd_index != NULL &&
		index->rd_index->indrelid == heap_oid && needs_new_file(index, &refill.reason);
	if (needed)
	{
		Assert(refill.heap == heap_oid);
		refill.index = relid;
		(void) pmhash_rebuild_note(MyDatabaseId, relid, 0, NULL);
		pgstat_progress_start_command(PROGRESS_COMMAND_CREATE_INDEX, refill.heap);
		pgstat_progress_update_param(PROGRESS_CREATEIDX_COMMAND,
									 PROGRESS_CREATEIDX_COMMAND_REINDEX_CONCURRENTLY);
		pgstat_progress_update_param(PROGRESS_CREATEIDX_INDEX_OID, relid);
		pgstat_progress_update_param(PROGRESS_CREATEIDX_ACCESS_METHOD_OID, index->rd_rel->relam);
		pgstat_progress_update_param(PROGRESS_CREATEIDX_PHASE, PROGRESS_CREATEIDX_PHASE_WAIT_1);
		remove_old_file(heap, index);
		refill.file_id = pmhash_file_begin_filling(index);
		/* to the end of step 4, or to an abort (proc.c, ProcReleaseLocks) */
		refill.heap_lock = heap->rd_lockInfo.lockRelId;
		refill.index_lock = index->rd_lockInfo.lockRelId;
		LockRelationIdForSession(&refill.heap_lock, ShareUpdateExclusiveLock);
		LockRelationIdForSession(&refill.index_lock, ShareUpdateExclusiveLock);
		PMH_STOP_POINT("rebuild_marked");
	}
	if (index != NULL)
		relation_close(index, NoLock);
	if (heap != NULL)
		relation_close(heap, NoLock);
	CommitTransactionCommand();
	return needed;
}

/*
 * Step 2.  Each transaction is waited for as long as lock_timeout says, then
 * this is an ERROR: a new try has to wait for no more than are there then, and
 * meanwhile other indexes have their turn.  (Not all of them together: the next try begins
 * anew, and where many write at once none might ever come to its end.)
 *
 * We look again and again, and do not queue up for it: it may come to wait for our lock on
 * the table (TRUNCATE or ALTER TABLE after an INSERT), and the deadlock detector would take
 * it, whose turn it is to look (proc.c, ProcSleep), for the one to be cancelled.  As it is, it
 * waits until we give up.
 */
static void
wait_for_writers(void)
{
	VirtualTransactionId *writer;
	LOCKTAG		tag;
	int			n;

	Assert(OidIsValid(refill.heap));
	SET_LOCKTAG_RELATION(tag, MyDatabaseId, refill.heap);
	StartTransactionCommand();
	writer = GetLockConflicts(&tag, ShareLock, &n);
	pgstat_progress_update_param(PROGRESS_WAITFOR_TOTAL, n);
	for (int i = 0; i < n; i++)
	{
		int64		begun = pmhash_clock_ms();

		while (!VirtualXactLock(writer[i], false))
		{
			if (LockTimeout > 0 && pmhash_clock_past(begun, LockTimeout))
				ereport(ERROR,
						(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						 errmsg("lock timeout while waiting for a transaction that writes to table \"%s\"",
								get_rel_name(refill.heap))));
			pmhash_sleep(WRITER_PAUSE, PG_WAIT_LOCK | LOCKTAG_VIRTUALTRANSACTION);
			CHECK_FOR_INTERRUPTS();
		}
		pgstat_progress_update_param(PROGRESS_WAITFOR_DONE, i + 1);
	}
	CommitTransactionCommand();
}

/*
 * Step 3, in the rights of the table's owner, for what expressions of the index call; see
 * reindex_index (index.c).  The snapshot is one that the scan takes.
 */
static void
fill_file(void)
{
	Relation	heap;
	Relation	index;
	PmhashFile *file;
	IndexInfo  *info;
	PmhashCaller caller;

	Assert(refill.file_id != 0);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	heap = table_open(refill.heap, ShareUpdateExclusiveLock);
	index = relation_open(refill.index, ShareUpdateExclusiveLock);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_PHASE, PROGRESS_CREATEIDX_PHASE_BUILD);
	file = pmhash_file_open_filling(index, refill.file_id);
	pmhash_be_owner(heap, &caller);
	info = BuildIndexInfo(index);
	info->ii_Unique = false;
	info->ii_ExclusionOps = NULL;
	info->ii_ExclusionProcs = NULL;
	info->ii_ExclusionStrats = NULL;
	PMH_STOP_POINT("rebuild_before_build");
	pmhash_am_fill(heap, index, info, file);
	PMH_STOP_POINT("rebuild_before_stub");
	pmhash_be_caller(&caller);
	PopActiveSnapshot();
	refill.filled_by = GetTopFullTransactionId();
	relation_close(index, NoLock);
	table_close(heap, NoLock);
	CommitTransactionCommand();
}

/* Step 4.  ERROR if the stub was marked meanwhile: the file lacks something. */
static void
make_valid(void)
{
	Relation	index;

	Assert(FullTransactionIdIsValid(refill.filled_by));
	StartTransactionCommand();
	PMH_STOP_POINT("rebuild_before_valid");
	index = relation_open(refill.index, ShareUpdateExclusiveLock);
	if (!pmhash_stub_filled(index, refill.file_id, refill.filled_by))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the new file of index \"%s\" became unusable while it was being filled",
						RelationGetRelationName(index))));
	pmhash_stub_changed();
	CacheInvalidateRelcacheByRelid(refill.heap);
	ereport(LOG,
			(errmsg("pmhash: index \"%s\" of table \"%s\" has been rebuilt",
					RelationGetRelationName(index), get_rel_name(refill.heap)),
			 errdetail("The file it had before could not be used: %s.",
					   pmhash_reason_text(refill.reason))));
	relation_close(index, NoLock);
	pgstat_progress_end_command();
	ForceSyncCommit();			/* a crash would cost the rebuild once more */
	CommitTransactionCommand();
	UnlockRelationIdForSession(&refill.index_lock, ShareUpdateExclusiveLock);
	UnlockRelationIdForSession(&refill.heap_lock, ShareUpdateExclusiveLock);
}

/*
 * After the abort of a failed try: give back the space of the file that is not filled, into
 * which nothing more is to be put.  In no transaction.  ERROR if the stub can't
 * be marked; the file is then removed by the next try.
 */
static void
refill_failed(void)
{
	Relation	index;
	PmhashStub	stub;

	Assert(!IsTransactionState());
	if (refill.file_id == 0)
		return;
	StartTransactionCommand();
	if (ConditionalLockRelationOid(refill.index, ShareUpdateExclusiveLock) &&
		(index = try_relation_open(refill.index, NoLock)) != NULL)
	{
		if (pmhash_stub_read(index, &stub) && stub.file_id == refill.file_id &&
			(stub.flags & (PMHASH_STUB_FILLING | PMHASH_STUB_INVALID)) != 0)
		{
			(void) pmhash_stub_invalidate(index, refill.file_id, refill.reason);
			pmhash_remove_file(MyDatabaseId, refill.file_id, false);
		}
		relation_close(index, NoLock);
	}
	CommitTransactionCommand();
}

/* ==== which indexes ==== */

/* Which this worker rebuilds; has it left some; are there others, for the other kind of worker? */
static PmhashJob own_job;
static bool some_left = false;
static bool others_wanted = false;
static Oid	held_up = InvalidOid;	/* the last table for which it has waited in vain */

/*
 * Look at an index in a transaction of its own, and return its name.  One that
 * is locked is not looked at: another session drops or rebuilds it.  So is one whose
 * table is locked: a transaction that has moved it, say, may stay open for hours, and
 * each rebuild would wait for it in vain.  ERROR if it can't be opened: want of memory,
 * and a catalog that can't be read just now, pass, and for how long an index has no row in
 * pg_index is not known.
 * ERROR, too, if it can't be rebuilt as long as the pool is not present: if that comes
 * back, so may the index.
 */
static bool
needs_rebuild(Oid relid, char *name)
{
	Relation	index;
	PmhashReason reason;
	bool		needed;

	Assert(IsTransactionState());
	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return false;
	index = try_relation_open(relid, NoLock);
	if (index == NULL)
		return false;
	strlcpy(name, RelationGetRelationName(index), NAMEDATALEN);
	needed = ConditionalLockRelationOid(index->rd_index->indrelid, AccessShareLock) &&
		needs_new_file(index, &reason);
	if (needed && pmhash_build_job(index->rd_indextuple) != own_job)
	{
		others_wanted = true;
		needed = false;
	}
	else if (needed && index->rd_index->indrelid == held_up)
	{
		some_left = true;
		needed = false;
	}
	else if (needed)
	{
		refill.heap = index->rd_index->indrelid;
		pmhash_report_index("rebuilding", index);
	}
	relation_close(index, NoLock);
	if (needed)
		pmhash_require_pool_present();
	return needed;
}

/* A failed try is over: note it and go on with the next index. */
static void
give_up(Oid relid, const char *name, MemoryContext context)
{
	ErrorData  *error;
	int			pause;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	AbortOutOfAnyTransaction();
	FlushErrorState();
	refill_failed();
	MemoryContextSwitchTo(context);
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && OidIsValid(refill.heap))
		held_up = refill.heap;
	pmhash_count(PMHASH_REBUILD_FAILURES, 1);
	pmhash_counts_flush();
	pause = pmhash_rebuild_note(MyDatabaseId, relid, error->sqlerrcode, error->message);
	memset(&refill, 0, sizeof(refill));
	some_left = true;
	ereport(LOG,
			(errmsg("pmhash: could not rebuild %s: %s",
					pmhash_index_label(relid, name), error->message),
			 errdetail("The next try is in %d seconds.", pause)));
	FreeErrorData(error);
	MemoryContextSwitchTo(context);
	RESUME_INTERRUPTS();
}

/* Rebuild an index if it is invalid, and of this worker's job; an error is noted. */
static void
rebuild_index(Oid relid)
{
	MemoryContext context = CurrentMemoryContext;
	char		name[NAMEDATALEN] = "";
	bool		needed;

	PG_TRY();
	{
		StartTransactionCommand();
		needed = needs_rebuild(relid, name);
		CommitTransactionCommand();
		if (needed && begin(relid))
		{
			wait_for_writers();
			fill_file();
			make_valid();
			memset(&refill, 0, sizeof(refill));
			pmhash_count(PMHASH_REBUILDS, 1);
			pmhash_counts_flush();
			pmhash_rebuild_forget(MyDatabaseId, relid, NIL);
		}
	}
	PG_CATCH();
	{
		give_up(relid, name, context);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}

/* At exit: if it comes in the middle of a rebuild, that is a failure too. */
static void
rebuild_exit(int code, Datum arg)
{
	if (OidIsValid(refill.index))
		(void) pmhash_rebuild_note(MyDatabaseId, refill.index, ERRCODE_ADMIN_SHUTDOWN, "the worker was terminated");
}

/*
 * Rebuild those of these indexes that are invalid and of this job, except those that have
 * failed a short time ago.  Not in a transaction.  False if there are some left.
 *
 * When the plain ones have been rebuilt, and not before, the others are requested: functions
 * that take long hold up those of the same table.
 */
bool
pmhash_rebuild_indexes(PmhashJob job, const List *indexes)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext,
												  "pmhash rebuild",
												  ALLOCSET_DEFAULT_SIZES);
	PmhashRebuild state;
	ListCell   *lc;

	Assert(!IsTransactionState() && !RecoveryInProgress());
	own_job = job;
	before_shmem_exit(rebuild_exit, (Datum) 0);
	MemoryContextSwitchTo(context);
	foreach(lc, indexes)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (!pmhash_rebuild)
			break;
		if (pmhash_rebuild_state(lfirst_oid(lc), &state) && !state.running &&
			state.next_try > pmhash_clock_ms())
			some_left = true;
		else
			rebuild_index(lfirst_oid(lc));
	}
	if (others_wanted && job == PMHASH_JOB_PLAIN)
		pmhash_request(MyDatabaseId, PMHASH_JOB_EXPRESSIONS);
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(context);
	return !some_left;
}
