/*-------------------------------------------------------------------------
 *
 * standby_redo.c
 *	  Logged indexes follow the primary: our records, applied by the startup
 *	  process of a standby.
 *
 * The records are of RM_XLOG_ID (wal_record.c), whose redo function is wrapped here.
 * Core calls it for each record through RmgrTable (xlogrecovery.c, ApplyWalRecord).
 * It does nothing unless the run is that of a standby with a pool: crash recovery of a
 * primary ignores these records, since its files are current (P5).
 *
 * What it replays records into is files that are LIVE, mapped, and a delta of a file that
 * is built.  They stay mapped: there are far fewer than a process may have mappings.
 *
 * src/README, "Standbys", has the rules S1 to S7, which comments here name.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "commands/dbcommands_xlog.h"
#include "miscadmin.h"
#include "postmaster/startup.h"
#include "storage/ipc.h"
#include "storage/standby.h"

#include "cluster/base/control_file.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/replay/replay.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/dead_tids.h"
#include "cluster/wal/wal_record.h"

/* After so many operations of a delta it is looked whether there is space: 1 MB. */
#define DELTA_LOOK	65536

static void (*core_redo) (XLogReaderState *record) = NULL;
static void (*core_redo_database) (XLogReaderState *record) = NULL;

/* A record on its way, with its entries as the engine and the delta want them. */
typedef struct Work
{
	PmhashWalRecord record;
	XLogRecPtr	start;
	XLogRecPtr	end;
	TimeLineID	timeline;		/* that is being replayed */
	size_t		n;
	PmhEntry	entries[PMHASH_WAL_MAX_ENTRIES];
} Work;

static Work work;

/* ---- open files ---- */

/* Our mapping of the file in a row, or NULL. */
static PmhTable *tables[PMHASH_STANDBY_FILES];

/* The delta that was written to last. */
static const PmhashStandbyRow *delta_row = NULL;
static int	delta_fd = -1;

/* What is open was opened when the table had that. */
static uint64 opened_at = 0;

/* All that are mapped: none is in use just now. */
static void
unmap_all(void)
{
	for (int i = 0; i < PMHASH_STANDBY_FILES; i++)
	{
		if (tables[i] != NULL)
			pmh_close(tables[i]);
		tables[i] = NULL;
	}
}

/*
 * Close all, if the status of any file has changed: a row may have another file now.  One
 * that has been removed takes its space for as long as it is mapped or open, and the next one
 * may need that.  With the lock held it is certain, else at least soon.
 */
static void
close_if_changed(void)
{
	uint64		changes = pg_atomic_read_u64(&pmhash_shared->standby->changes);

	if (likely(changes == opened_at))
		return;
	unmap_all();
	if (delta_fd >= 0)
		close(delta_fd);
	delta_fd = -1;
	opened_at = changes;
}

/* The table in the file of a LIVE row.  NULL with a reason. */
static PmhTable *
open_table(const PmhashStandbyRow *row, char *reason)
{
	PmhTable  **table = &tables[row - pmhash_shared->standby->row];
	PmhEnv		env;
	char		path[MAXPGPATH];
	PmhError	error;
	PmhResult	result;

	Assert(LWLockHeldByMe(pmhash_standby_lock));
	Assert(row->status == PMHASH_STANDBY_LIVE && row->life != 0);
	close_if_changed();
	if (likely(*table != NULL))
		return *table;
	env = pmhash_engine_env();
	pmhash_file_path(path, row->database, row->file_id);
	result = pmh_open(path, &env, table, &error);
	if (result == PMH_ERR_NO_MEMORY)
	{
		/* address space is wanting: files take 16 times their size */
		unmap_all();
		result = pmh_open(path, &env, table, &error);
	}
	if (result != PMH_OK)
		pmhash_fail(reason, "could not open file \"%s\": %s", path,
					error.sys_errno != 0 ? strerror(error.sys_errno) : error.detail);
	return *table;
}

/* ---- the effects of a record on a file ---- */

/*
 * Would a delta, with what comes to it, be larger than what is left of its file system?  A build
 * waits for transactions of the primary, hours if they last for hours, and the delta
 * grows meanwhile.  The server needs the space itself, mostly: the pool is where the data
 * directory is, and replay that finds no space is over.
 */
static bool
takes_too_much(uint64 length, uint64 before)
{
	struct statvfs fs;

	if (length / DELTA_LOOK == before / DELTA_LOOK ||
		statvfs(pmhash_pool_path(), &fs) != 0)
		return false;
	return length * sizeof(PmhEntry) > (uint64) fs.f_bavail * fs.f_frsize;
}

/* Append to the delta.  False with a reason. */
static bool
append_delta(PmhashStandbyRow *row, char *reason)
{
	bool		delete = work.record.type == PMHASH_WAL_DELETE;
	uint64		before = pg_atomic_read_u64(&row->delta_ops);
	ssize_t		size = work.n * sizeof(PmhEntry);
	char		path[MAXPGPATH];

	Assert(AmStartupProcess() && LWLockHeldByMe(pmhash_standby_lock));
	Assert(row->status == PMHASH_STANDBY_DELTA && row->life != 0 && work.n > 0);
	close_if_changed();
	if (delta_fd < 0 || delta_row != row)
	{
		if (delta_fd >= 0)
			close(delta_fd);
		pmhash_standby_delta_path(row->database, row->file_id, path);
		delta_row = row;
		delta_fd = open(path, O_WRONLY | O_CLOEXEC);
	}
	if (delta_fd < 0)
		return pmhash_fail(reason, "could not open file \"%s\": %s", path, strerror(errno));
	if (takes_too_much(before + work.n, before))
		return pmhash_fail(reason, "a delta file has become larger than what is left of the file system");
	for (size_t i = 0; delete && i < work.n; i++)
		work.entries[i].value |= PMHASH_DELTA_DELETE;
	errno = ENOSPC;				/* what a short write means */
	if (pwrite(delta_fd, work.entries, size, (off_t) (before * sizeof(PmhEntry))) != size)
		return pmhash_fail(reason, "could not write a delta file: %s", strerror(errno));
	pg_write_barrier();
	pg_atomic_write_u64(&row->delta_ops, before + work.n);
	return true;
}

/* Has the file this record whole, or did it come after that, in the life before (S2)? */
static bool
is_past(const PmhashStandbyRow *row)
{
	return row->restored && work.end < row->begun;
}

/* Between the steps of a sweep, which the server need not wait for if it is to end. */
static void
between_steps(void)
{
	PMH_STOP_POINT("redo_sweeping");
#if PG_VERSION_NUM >= 180000
	ProcessStartupProcInterrupts();
#else
	HandleStartupProcInterrupts();
#endif
}

/* Apply to a LIVE file.  False with a reason. */
static bool
apply_live(PmhashStandbyRow *row, char *reason)
{
	PmhTable   *table = open_table(row, reason);
	bool		again = row->restored && work.end == row->begun;
	PmhResult	result = PMH_OK;
	size_t		done;

	Assert(!is_past(row));
	if (table == NULL)
		return false;
	if (!again)
		result = pmhash_standby_note_begun(table, row, work.end, work.timeline);
	if (result == PMH_OK && work.record.type == PMHASH_WAL_DEAD &&
		!pmhash_remove_dead(table, work.record.pieces, work.record.size, between_steps, reason))
		return false;

	/*
	 * The server was killed in the record that ends at `begun`, or right after it, or the file
	 * was published in it: what of it is there comes out before it is inserted.  No scan uses
	 * the file yet.
	 */
	if (result == PMH_OK && (work.record.type == PMHASH_WAL_DELETE ||
							 (work.record.type == PMHASH_WAL_INSERT && again)))
		result = pmh_delete_group(table, work.entries, work.n, &done);
	if (result == PMH_OK && work.record.type == PMHASH_WAL_INSERT)
		result = pmh_insert_group(table, work.entries, work.n, false, &done);
	PMH_STOP_POINT("redo_applied");
	return result == PMH_OK ||
		pmhash_fail(reason, "could not use the file: %s", pmh_error(table)->detail);
}

/*
 * Wait for queries whose snapshots need what the record removes, or cancel them, as btree
 * does (nbtxlog.c, btree_xlog_delete), whether the index has a file here or is being built.
 * Without the lock: that may take as long as max_standby_streaming_delay.  Logical slots need
 * none of it, as scans of decoding read no index of ours (scan_table.c).
 *
 * That lists once who has such a snapshot.  It may be handed on meanwhile
 * (pg_export_snapshot), or come with a logical slot, as of a place in WAL that is long past.
 * So the file says first that it does not serve any of these from now on.
 */
static void
resolve_conflicts(void)
{
	FullTransactionId needless = pmhash_standby_widen(work.record.horizon);
	PmhashStandbyRow *row;
	PmhashNode	node = {0};

	Assert(OidIsValid(work.record.database) && !LWLockHeldByMe(pmhash_standby_lock));
	FullTransactionIdAdvance(&needless);
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = pmhash_standby_find(work.record.file_id);
	if (row != NULL)
		pmhash_standby_raise_usable_xmin(row, needless);
	LWLockRelease(pmhash_standby_lock);
#if PG_VERSION_NUM >= 160000
	node.dbOid = work.record.database;
	ResolveRecoveryConflictWithSnapshot(work.record.horizon, false, node);
#else
	node.dbNode = work.record.database;
	ResolveRecoveryConflictWithSnapshot(work.record.horizon, node);
#endif
}

/* INSERT, DELETE and DEAD. */
static void
change_entries(void)
{
	PmhashStandbyRow *row;
	char		reason[PMHASH_REASON_SIZE];
	bool		done = true;
	int			fault = ERRCODE_IO_ERROR;

	if (TransactionIdIsValid(work.record.horizon) && InHotStandby)
		resolve_conflicts();
	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = pmhash_standby_find(work.record.file_id);
	if (row != NULL && OidIsValid(work.record.database) &&
		row->database != work.record.database)
		done = pmhash_fail(reason, "a file of another database has the same id");
	else if (row != NULL && row->status == PMHASH_STANDBY_DELTA &&
			 work.record.type == PMHASH_WAL_DEAD)
	{
		/*
		 * It says which rows, and not which entries.  While a build waits for old transactions
		 * VACUUM finds no more rows than were dead before them, so the next one is not lost.
		 */
		fault = 0;
		done = pmhash_fail(reason, "many rows of its table were vacuumed while it was built");
	}
	else if (row != NULL && row->status != PMHASH_STANDBY_NONE && !is_past(row))
	{
		PMH_STOP_POINT("redo_before_entries");
		work.n = work.record.count;
		for (size_t i = 0; i < work.n; i++)
			work.entries[i] = pmhash_wal_entry(&work.record, i);
		done = row->status == PMHASH_STANDBY_DELTA ?
			append_delta(row, reason) : apply_live(row, reason);
	}
	LWLockRelease(pmhash_standby_lock);
	if (!done)
		pmhash_standby_lost(work.record.file_id, 0, fault, reason);
	if (work.record.type != PMHASH_WAL_INSERT)
		pmhash_removal_finished(work.record.file_id);
}

/*
 * SWEPT: a bulk delete has logged the entries that the primary's file had of dead
 * rows, and their TIDs are given away from here on.  A file that was made under
 * another primary may have more such entries (S4).
 *
 * The first one after a restart has a file swept, to find what is free in it (src/README, "Space"),
 * if no record of dead rows has done so.  (Nothing else does, on a standby.)
 */
static void
end_sweep(void)
{
	PmhashStandbyRow *row;
	PmhTable   *table;
	bool		inherited = false;
	bool		damaged = false;
	char		reason[PMHASH_REASON_SIZE];

	LWLockAcquire(pmhash_standby_lock, LW_SHARED);
	row = pmhash_standby_find(work.record.file_id);
	if (row != NULL && !is_past(row))
	{
		inherited = row->timeline != work.timeline;

		/* Other failures leave it to the next one: no entry is changed here. */
		if (!inherited && row->status == PMHASH_STANDBY_LIVE && row->restored &&
			(table = open_table(row, reason)) != NULL && !pmh_value_space_is_known(table) &&
			!pmhash_remove_dead(table, NULL, 0, between_steps, reason))
			damaged = pmh_error(table)->code == PMH_ERR_CORRUPT ||
				pmh_error(table)->code == PMH_ERR_LOST;
	}
	LWLockRelease(pmhash_standby_lock);
	if (inherited)
		pmhash_standby_lost(work.record.file_id, 0, 0,
							"it was made under another primary, and this one has vacuumed the table");
	if (damaged)
		pmhash_standby_lost(work.record.file_id, 0, ERRCODE_INDEX_CORRUPTED, reason);
	pmhash_removal_finished(work.record.file_id);
}

static bool
is_lost_with_database(const PmhashStandbyRow *row)
{
	return row->database == work.record.database && !is_past(row);
}

/*
 * FILE_GONE.  Without an id: the primary has marked a page that it could not read (stub.c,
 * pmhash_stub_invalidate).  That may have named any file of the database: those that are
 * still named are built again.
 */
static void
file_gone(void)
{
	PmhashStandbyRow *row;
	int			n = 0;

	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	row = pmhash_standby_find(work.record.file_id);
	if (work.record.file_id == 0)
		n = pmhash_standby_lose_all(is_lost_with_database, 0, NULL);
	else if (row != NULL && is_lost_with_database(row))
		pmhash_standby_forget(row);
	LWLockRelease(pmhash_standby_lock);
	if (n > 0)					/* not if the record is replayed again */
		ereport(LOG,
				(errmsg("pmhash: all index files of database %u are given up on this server",
						work.record.database),
				 errdetail("The primary has marked an index whose page it could not read, and it is not known which file that had. They are built again in the background.")));
}

/*
 * FILE_NEW.  An index of a transaction that was prepared cannot be seen yet: the launcher
 * visits databases that have a directory (launcher.c, want_visits).
 */
static void
look_for_files(void)
{
	char		directory[MAXPGPATH];

	pmhash_database_path(directory, work.record.database);
	if (pmhash_pool_is_present())
		(void) mkdir(directory, 0700);
	pmhash_request(work.record.database, PMHASH_JOB_PLAIN);
}

static void
apply(void)
{
	switch ((PmhashWalType) work.record.type)
	{
		case PMHASH_WAL_INSERT:
		case PMHASH_WAL_DELETE:
		case PMHASH_WAL_DEAD:
			change_entries();
			break;
		case PMHASH_WAL_FILE_NEW:
			look_for_files();
			break;
		case PMHASH_WAL_FILE_GONE:
			file_gone();
			break;
		case PMHASH_WAL_SWEPT:
			end_sweep();
			break;
	}
}

/* ---- another primary: S4; restart: S2 ---- */

static bool
is_build(const PmhashStandbyRow *row)
{
	return row->status == PMHASH_STANDBY_DELTA;
}

/*
 * Before the first record of a later timeline than that of `applied`, or of another past it:
 * there is a new primary.  Do our files have what its timeline shares with ours, and no
 * more?  Then the record before was of the timeline of `applied`, and this one, which is
 * the first of its timeline (xlog.c, PerformRecoveryXLogAction), begins past `applied`.
 * Then LIVE files are good until it vacuums (end_sweep), and builds begin anew.  Else
 * we follow one that has forked off before: all are given up.
 */
static void
note_timeline(void)
{
	PmhashStandby *standby = pmhash_shared->standby;
	XLogRecPtr	applied = pg_atomic_read_u64(&standby->applied);
	bool		inherits = standby->replay_timeline == standby->applied_timeline &&
		work.start >= applied;

	standby->replay_timeline = work.timeline;
	if (work.timeline == standby->applied_timeline ||
		(work.end <= applied && work.timeline < standby->applied_timeline))
		return;					/* (timelines are older and older backwards) */
	ereport(LOG,
			(errmsg("pmhash: index files in \"%s\" are of timeline %u, and WAL is of timeline %u now",
					pmhash_pool_path(), standby->applied_timeline, work.timeline),
			 inherits ?
			 errdetail("They are used until the new primary vacuums their tables; then they are built again in the background.") :
			 errdetail("They are built again in the background.")));
	LWLockAcquire(pmhash_standby_lock, LW_EXCLUSIVE);
	(void) pmhash_standby_lose_all(inherits ? is_build : NULL, 0, NULL);
	/* Past what files have, or they are gone: builds need not wait until this one gets there. */
	pg_atomic_write_u32(&standby->reached, 1);
	LWLockRelease(pmhash_standby_lock);
	standby->applied_timeline = work.timeline;
	pg_atomic_write_u64(&standby->applied, work.start);
	PMH_STOP_POINT("redo_new_timeline");
}

/*
 * From now on pg_control's redo pointer may be that, and no later one.  A start that finds
 * it past what is noted has been preceded by one without the pool, and trusts no file
 * (trust.c, standby_doubt); so it does if this can't be written.
 */
static void
note_redo(XLogRecPtr redo)
{
	PmhashControl control;
	char		reason[PMHASH_REASON_SIZE];

	Assert(AmStartupProcess() && redo <= work.end);
	if (redo <= pmhash_shared->control.seen_redo)
		return;					/* replayed again */
	LWLockAcquire(pmhash_lwlock(PMHASH_POOL_LOCK), LW_EXCLUSIVE);
	control = pmhash_shared->control;
	control.seen_redo = redo;
	if (!pmhash_pool_is_present())
		;						/* do not write to another directory at this path */
	else if (pmhash_pool_write_control(&control, reason))
		pmhash_shared->control = control;
	else
		ereport(LOG, (errmsg("pmhash: %s", reason)));
	LWLockRelease(pmhash_lwlock(PMHASH_POOL_LOCK));
}

/* ---- databases that are made: nothing here has their OID ---- */

/*
 * As life_cycle.c, by WAL: no standby can see the files of the primary's pool, nor
 * whether that one has them.  Replay of DROP DATABASE would be too early: what moves a
 * database to another tablespace writes such a record, too (dbcommands.c, movedb).
 * What is left of a dropped database goes some time (launcher.c, remove_dropped),
 * and at the latest here, when the first record of one comes that is made with its OID.
 * No session is connected to either then.
 */

/* (What the life before has built past this record is of the database that is made.) */
static void
deal_with_database(XLogReaderState *record)
{
	const void *data = XLogRecGetData(record);
	const xl_dbase_create_file_copy_rec *copied = data;
	const xl_dbase_create_wal_log_rec *made = data;

	switch (XLogRecGetInfo(record) & ~XLR_INFO_MASK)
	{
		case XLOG_DBASE_CREATE_FILE_COPY:
			if (copied->db_id != copied->src_db_id) /* else it is moved */
				pmhash_standby_database_dropped(copied->db_id, record->EndRecPtr);
			break;
		case XLOG_DBASE_CREATE_WAL_LOG:
			pmhash_standby_database_dropped(made->db_id, record->EndRecPtr);
			break;
	}
}

/* ---- the wrappers ---- */

/* May raise an ERROR. */
static void
deal_with(XLogReaderState *record)
{
	PmhashStandby *standby = pmhash_shared->standby;
	PmhashWalVerdict verdict;
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;

	Assert(!LWLockHeldByMe(pmhash_standby_lock));
	Assert(record->ReadRecPtr < record->EndRecPtr);
	work.start = record->ReadRecPtr;
	work.end = record->EndRecPtr;
	work.n = 0;
	(void) GetCurrentReplayRecPtr(&work.timeline);
	PMH_STOP_POINT("redo_record");
	note_timeline();
	verdict = pmhash_wal_decode(record, &work.record);
	if (verdict == PMHASH_WAL_OURS)
	{
		apply();
		if (work.n > 0)
			PMH_STOP_POINT("redo_after_entries");
	}
	else if (verdict == PMHASH_WAL_UNKNOWN && !standby->newer)
	{
		standby->newer = true;	/* no file is built any more */
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("WAL has a record that this version does not know")));
	}
	else if (info == XLOG_CHECKPOINT_SHUTDOWN || info == XLOG_CHECKPOINT_ONLINE)
	{
		CheckPoint	checkpoint;

		/* A restartpoint may come of this checkpoint. */
		memcpy(&checkpoint, XLogRecGetData(record), sizeof(checkpoint));
		note_redo(checkpoint.redo);
	}
	if (work.end > pg_atomic_read_u64(&standby->applied))
	{
		standby->applied_timeline = work.timeline;
		pg_atomic_write_u64(&standby->applied, work.end);
	}
	close_if_changed();
}

/* The launcher is to learn at once that recovery is over. */
static void
startup_exit(int code, Datum arg)
{
	pmhash_wake_launcher();
}

/* Have a function do our part of a record, if there is any; no ERROR gets out of it. */
static void
deal_safely(void (*deal) (XLogReaderState *record),
			XLogReaderState *record)
{
	static bool exit_is_known = false;
	MemoryContext context = CurrentMemoryContext;

	if (!AmStartupProcess() || !ArchiveRecoveryRequested || !pmhash_standby_is_active())
		return;
	if (!exit_is_known)
		before_shmem_exit(startup_exit, (Datum) 0);
	exit_is_known = true;
	PG_TRY();
	{
		deal(record);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		/* Of want of memory, for one.  It is not known which file it has left half done. */
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		LWLockReleaseAll();		/* redo holds none but ours */
		(void) pmhash_standby_distrust(error->sqlerrcode, error->message);
		FreeErrorData(error);
	}
	PG_END_TRY();
}

/*
 * A file that goes with a change of its stub goes when the page is there: else a builder,
 * or a session, could read the old stub in between.
 */
static void
redo(XLogReaderState *record)
{
	bool		page_first = pmhash_wal_comes_with_page(record);

	if (page_first)
	{
		core_redo(record);
		PMH_STOP_POINT("redo_page_restored");
	}
	deal_safely(deal_with, record);
	if (!page_first)
		core_redo(record);
}

static void
redo_database(XLogReaderState *record)
{
	deal_safely(deal_with_database, record);
	core_redo_database(record);
}

/* Wrap the redo functions of RM_XLOG_ID and RM_DBASE_ID. */
void
pmhash_standby_redo_init(void)
{
	Assert(process_shared_preload_libraries_in_progress && core_redo == NULL);
	core_redo = RmgrTable[RM_XLOG_ID].rm_redo;
	RmgrTable[RM_XLOG_ID].rm_redo = redo;
	core_redo_database = RmgrTable[RM_DBASE_ID].rm_redo;
	RmgrTable[RM_DBASE_ID].rm_redo = redo_database;
}
