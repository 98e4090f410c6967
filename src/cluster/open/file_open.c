/*-------------------------------------------------------------------------
 *
 * file_open.c
 *	  Finding and opening the file that belongs to an index.
 *
 * What this backend knows already, and what it has mapped, is in file_cache.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/standby/standby_state.h"
#include "cluster/trust/trust.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/undo_journal.h"

/*
 * Is the file at trouble->path the one that the stub names?  *recovered, if not
 * NULL: has a backend opened it in this server life already, and found it
 * sound?  Nothing is mapped.
 */
static bool
check_identity(const PmhashStub *stub, bool *recovered, PmhashTrouble *trouble)
{
	PmhashIdentity id;
	PmhHead		head;
	PmhResult	result;

	Assert(trouble->path[0] != '\0');
	result = pmh_examine(trouble->path, &head, &trouble->error);
	if (recovered != NULL)
		*recovered = result == PMH_OK && head.instance == pmhash_shared->instance;
	if (result != PMH_OK)
	{
		trouble->reason = pmhash_reason_of(&trouble->error);
		return false;
	}
	memcpy(&id, head.identity, sizeof(id));
	trouble->reason = pmhash_identity_doubt(&id, true);
	if (trouble->reason == PMHASH_REASON_NONE && id.database != MyDatabaseId)
		trouble->reason = PMHASH_REASON_OTHER_DATABASE;
	if (trouble->reason == PMHASH_REASON_NONE &&
		(id.file_id != stub->file_id ||
		 memcmp(&id.seed, &stub->seed, sizeof(PmhashSeed)) != 0))
		trouble->reason = PMHASH_REASON_OTHER_INDEX;
	return trouble->reason == PMHASH_REASON_NONE;
}

/*
 * Map the file that the stub names, which check_identity has found to be the
 * right one, and enter it.  If the process has no room for another mapping, what it does not
 * need is unmapped.  NULL: trouble.
 */
static PmhashEntry *
open_existing(Relation index, const PmhashStub *stub, uint64 generation,
			  PmhashTrouble *trouble)
{
	PmhEnv		env = pmhash_engine_env();
	PmhTable   *table;
	PmhashEntry *entry;
	PmhResult	result;

	Assert(trouble->path[0] != '\0');
	PMH_STOP_POINT("open_before_map");
	/* A standby has no journal: nothing is written that is not in WAL. */
	if (!RecoveryInProgress())
		pmhash_journal_map();
	do
		result = pmh_open(trouble->path, &env, &table, &trouble->error);
	while (result == PMH_ERR_NO_MEMORY && pmhash_entries_unmap(0));
	if (result != PMH_OK)
	{
		trouble->reason = pmhash_reason_of(&trouble->error);
		return NULL;
	}

	/*
	 * A standby makes a file where it goes: this one may have been begun since there was one
	 * that serves, also if the server has been promoted meanwhile.
	 */
	if (pmhash_standby_life(stub->file_id) != trouble->standby_life)
		trouble->reason = PMHASH_REASON_NOT_BUILT;
	else						/* once more: it may be of another class than the pool */
		trouble->reason = pmhash_table_doubt(table);
	if (trouble->reason != PMHASH_REASON_NONE)
	{
		pmh_close(table);
		return NULL;
	}
	entry = pmhash_entry_enter(index, table, stub, generation);
	entry->file->standby_life = trouble->standby_life;
	return entry;
}

/*
 * Read the stub and say what it is good for; false: trouble.  A stub page that
 * can't be read is one that does not name a file.
 */
static bool
read_stub(Relation index, PmhashUse use, PmhashStub *stub, PmhashTrouble *trouble)
{
	if (!pmhash_stub_read(index, stub))
	{
		trouble->reason = PMHASH_REASON_NO_STUB;
		return false;
	}
	trouble->file_id = stub->file_id;
	if (stub->file_id != 0)
		pmhash_file_path(trouble->path, MyDatabaseId, stub->file_id);
	if (stub->flags & PMHASH_STUB_INVALID)
	{
		trouble->marked = true;
		trouble->reason = (PmhashReason) stub->reason;
		return false;
	}
	if (!pmhash_stub_serves(stub->flags, use))
	{
		trouble->reason = PMHASH_REASON_FILLING;
		return false;
	}
	return true;
}

/*
 * On a server in recovery: is the file that the stub names kept up to date here, and
 * fit for the snapshot?  NULL stands for one that is taken from now on.  life: of the file
 * that was LIVE when it was looked at; there may be none, or one that was built later.
 */
static bool
serves_in_recovery(const PmhashStub *stub, uint64 life, Snapshot snapshot,
				   PmhashTrouble *trouble)
{
	Assert(trouble->reason == PMHASH_REASON_NONE);
	if ((stub->flags & PMHASH_STUB_LOGGED) == 0)
		trouble->reason = PMHASH_REASON_NOT_LOGGED;
	else if (!pmhash_standby_serves(stub->file_id, life, snapshot))
		trouble->reason = PMHASH_REASON_NOT_BUILT;
	return trouble->reason == PMHASH_REASON_NONE;
}

/* Does a file that is mapped live on in here alone? */
static bool
has_been_removed(const PmhashFile *file)
{
	return access(file->path, F_OK) != 0 && errno == ENOENT && pmhash_pool_is_present();
}

/* The entry of an index by its stub as it is now.  NULL: trouble. */
static PmhashEntry *
entry_by_stub(Relation index, PmhashUse use, Snapshot snapshot, PmhashTrouble *trouble)
{
	uint64		generation = pg_atomic_read_u64(&pmhash_shared->stub_generation);
	PmhashEntry *entry;
	PmhashStub	stub;

	pg_read_barrier();			/* the stub is read after that */
	memset(trouble, 0, sizeof(*trouble));
	if (!read_stub(index, use, &stub, trouble))
		return NULL;

	/* If another file is built before this one is mapped, that does not count as this one. */
	trouble->standby_life = pmhash_standby_life(stub.file_id);
	if (unlikely(RecoveryInProgress()) &&
		!serves_in_recovery(&stub, trouble->standby_life, snapshot, trouble))
		return NULL;
	entry = pmhash_entry_mapped(index, &stub);
	if (entry == NULL)
		return check_identity(&stub, NULL, trouble) ?
			open_existing(index, &stub, generation, trouble) : NULL;
	trouble->reason = has_been_removed(entry->file) ? PMHASH_REASON_MISSING :
		pmhash_table_doubt(entry->file->table);
	if (trouble->reason != PMHASH_REASON_NONE)
		return NULL;
	pmhash_entry_confirm(entry, index, &stub, generation);
	return entry;
}

/*
 * The entry of an index that may be used so, and with this snapshot if the server is in
 * recovery.  NULL: trouble.
 */
static PmhashEntry *
find_entry(Relation index, PmhashUse use, Snapshot snapshot, PmhashTrouble *trouble)
{
	PmhashEntry *entry = pmhash_entry_find(index, use);

	if (unlikely(entry == NULL))
		return entry_by_stub(index, use, snapshot, trouble);
	if (likely(!RecoveryInProgress()))
		return entry;
	memset(trouble, 0, sizeof(*trouble));
	trouble->file_id = entry->stub.file_id;
	trouble->standby_life = pmhash_standby_life(entry->stub.file_id);
	return serves_in_recovery(&entry->stub, entry->file->standby_life, snapshot, trouble) ?
		entry : NULL;
}

/*
 * The pool is ready, and what is known to have been lost is known to us; or ERROR.  False
 * with the trouble: there is none to be used, as may have turned out just now.
 */
static bool
make_ready(Relation index, PmhashTrouble *trouble)
{
	PmhashReason reason = pmhash_service_doubt();

	if (likely(reason == PMHASH_REASON_NONE))
	{
		pmhash_require_service(index);
		pmhash_notice_for_launcher();
		reason = pmhash_service_doubt();
	}
	if (likely(reason == PMHASH_REASON_NONE))
		return true;
	memset(trouble, 0, sizeof(*trouble));
	trouble->reason = reason;
	return false;
}

/* The open file of an index, or NULL and the trouble that is in the way. */
static PmhashFile *
open_file(Relation index, PmhashUse use, Snapshot snapshot, PmhashTrouble *trouble)
{
	PmhashEntry *entry;

	Assert(IsTransactionState());
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (!make_ready(index, trouble))
		return NULL;
	entry = find_entry(index, use, snapshot, trouble);
	return likely(entry != NULL) ? pmhash_entry_use(entry) : NULL;
}

/* ---- opening, by purpose ---- */

/*
 * May rows be missing that the snapshot sees?  Those were deleted by transactions whose end
 * the snapshot of the fill has seen.  The fill has ended since, and a snapshot that sees its
 * end was taken after that.  An xmin tells less: it stays as old as the oldest transaction
 * that is open, in all snapshots.
 */
static bool
is_filled_later(uint64 filled_by, Snapshot snapshot)
{
	Assert(snapshot->snapshot_type == SNAPSHOT_MVCC);
	return filled_by != 0 &&
		XidInMVCCSnapshot((TransactionId) filled_by, snapshot) &&
		/* else the number has come round since */
		U64FromFullTransactionId(ReadNextFullTransactionId()) - filled_by < MaxTransactionId / 2;
}

/*
 * Did the index come to be valid (pg_index) after the snapshot was taken, elsewhere?  CREATE
 * INDEX CONCURRENTLY waits for snapshots that see rows which it has left out.  But it lists
 * once who has such a one, and a snapshot may be handed on meanwhile (pg_export_snapshot), or
 * come with a logical slot, as of a place in WAL that is long past (snapbuild.c,
 * SnapBuildExportSnapshot).  Nor does it wait for VACUUM and for other concurrent builds: these
 * may call functions that read the index, as ANALYZE for expressions, BRIN for ranges that
 * are not summarized yet, and event triggers.
 *
 * A transaction that has changed the row of pg_index itself, by REPLICA IDENTITY, does not know
 * any more of when it was; if it has made or rebuilt the index, that has all it sees.  (Parallel
 * workers are not told of that, and do as their leader.)
 *
 * An index that is not valid any more (DROP INDEX CONCURRENTLY) is read by who had planned
 * with it before; only transactions that keep a snapshot may have one of before it was valid.
 */
static bool
is_index_younger(Relation index, Snapshot snapshot)
{
	TransactionId xmin = HeapTupleHeaderGetXmin(index->rd_indextuple->t_data);

	if (!XidInMVCCSnapshot(xmin, snapshot))
		return false;
	if (TransactionIdIsCurrentTransactionId(xmin))
		return IsolationUsesXactSnapshot() && !IsParallelWorker() &&
			index->rd_createSubid == InvalidSubTransactionId &&
			pmhash_node_subid(index) == InvalidSubTransactionId;
	return (index->rd_index->indisvalid || IsolationUsesXactSnapshot()) &&
	/* else the number has come round since */
		TransactionIdPrecedes(xmin, ReadNextTransactionId());
}

/*
 * Has a file all rows that the snapshot sees?  Nearly always.  (In recovery that is found
 * out by serves_in_recovery.)  A snapshot may be of the time before this server was promoted:
 * a transaction keeps its own, and another may take it over.
 */
static bool
serves(Relation index, uint64 file_id, uint64 filled_by, Snapshot snapshot)
{
	if (snapshot == NULL || snapshot->snapshot_type != SNAPSHOT_MVCC ||
		RecoveryInProgress())
		return true;
	return !is_filled_later(filled_by, snapshot) && !is_index_younger(index, snapshot) &&
		pmhash_standby_fits_promoted(file_id, snapshot);
}

PmhashFile *
pmhash_file_open_for_scan(Relation index, Snapshot snapshot)
{
	PmhashTrouble		trouble;
	PmhashFile *file = open_file(index, PMHASH_READ, snapshot, &trouble);

	if (likely(file != NULL))
		return serves(index, file->file_id, file->filled_by, snapshot) ? file : NULL;
	if (trouble.reason == PMHASH_REASON_NONE)
		pmhash_raise_trouble(index, &trouble);
	pmhash_notice_invalid(index, &trouble);
	return NULL;
}

void
pmhash_invalid_error(Relation index)
{
	PmhashTrouble		trouble;

	if (open_file(index, PMHASH_READ, NULL, &trouble) == NULL)
	{
		if (trouble.reason == PMHASH_REASON_DISABLED)
			pmhash_require_service(index);
		pmhash_raise_trouble(index, &trouble);
	}
	pmhash_raise_younger(index);
}

PmhashFile *
pmhash_file_open(Relation index, Snapshot snapshot)
{
	PmhashFile *file = pmhash_file_open_for_scan(index, snapshot);

	if (unlikely(file == NULL))
		pmhash_invalid_error(index);
	return file;
}

PmhashFile *
pmhash_file_open_or_skip(Relation index, bool inserting)
{
	PmhashTrouble		trouble;
	PmhashUse	use = !inserting ? PMHASH_REMOVE :
		pmhash_enforces_constraint(index) ? PMHASH_READ : PMHASH_INSERT;
	PmhashFile *file = open_file(index, use, NULL, &trouble);

	Assert(!RecoveryInProgress());
	if (likely(file != NULL))
		return file;
	if (trouble.reason == PMHASH_REASON_NONE)
		pmhash_raise_trouble(index, &trouble);
	if (inserting && (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
					  pmhash_enforces_constraint(index)))
	{
		pmhash_rebuild_wanted(RelationGetRelid(index));
		if (trouble.reason == PMHASH_REASON_DISABLED)
			pmhash_require_service(index);
		pmhash_raise_trouble(index, &trouble);
	}

	/*
	 * Of the stub that we have read: if it names another file by now, that is
	 * one that is being filled, and its rebuild waits for our lock on the table.
	 */
	if (trouble.marked)
		pmhash_rebuild_wanted(RelationGetRelid(index));
	else
		pmhash_mark_invalid(index, trouble.file_id, 0, trouble.reason);
	return NULL;
}

/*
 * The file that the builder is to fill: the one that the stub names, unless the
 * stub has been marked since.  ERROR if it can't be had.
 */
PmhashFile *
pmhash_file_open_filling(Relation index, uint64 file_id)
{
	PmhashTrouble		trouble;
	PmhashFile *file = open_file(index, PMHASH_INSERT, NULL, &trouble);

	Assert(file_id != 0);
	Assert(CheckRelationLockedByMe(index, ShareUpdateExclusiveLock, true));
	if (file == NULL)
		pmhash_raise_trouble(index, &trouble);
	if (file->file_id != file_id)
		elog(ERROR, "index \"%s\" has another file than the one to be filled",
			 RelationGetRelationName(index));
	return file;
}

/* ---- questions ---- */

/*
 * For a worker: is the file that this stub names to be looked at, as it may be unusable though
 * no backend has met that, or has not been opened in this server life?  Nothing is mapped.
 */
bool
pmhash_stub_wants_look(const PmhashStub *stub)
{
	PmhashTrouble		trouble;
	bool		recovered;

	Assert(pmhash_stub_serves(stub->flags, PMHASH_READ));
	memset(&trouble, 0, sizeof(trouble));
	pmhash_file_path(trouble.path, MyDatabaseId, stub->file_id);
	return check_identity(stub, &recovered, &trouble) ? !recovered :
		trouble.reason != PMHASH_REASON_NONE && pmhash_pool_is_present();
}

/*
 * Why an index cannot be used, or NONE.  ERROR for what may pass.  The caller holds a lock
 * on the index.  pmem, if not NULL, is to say whether the file is persistent memory.
 */
PmhashReason
pmhash_index_doubt(Relation index, bool *pmem)
{
	PmhashTrouble trouble;
	PmhashEntry *entry = NULL;

	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (make_ready(index, &trouble))
		entry = entry_by_stub(index, PMHASH_READ, NULL, &trouble);
	if (entry == NULL && trouble.reason == PMHASH_REASON_NONE)
		pmhash_raise_trouble(index, &trouble);
	if (pmem != NULL)
		*pmem = entry != NULL && pmh_is_pmem(entry->file->table);
	return trouble.reason;
}

/*
 * May plans use this index?  Raises no error for what it finds.  Trouble that may
 * pass, as want of descriptors or memory, is no reason to take another plan in
 * silence: the plan that uses the index fails if it is still there.
 *
 * If not: may they *later, though nobody says so then?  They are made anew when the stub
 * says something else, or, on a standby, the state of the file.  Not when there is another
 * snapshot, the pool is ready, or mounted again, or replay has come to what the files have.
 *
 * With old_snapshot_threshold (PostgreSQL 15 and 16) VACUUM and pruning take rows from under
 * snapshots, and a query is to fail then and not to find fewer.  Core compares a snapshot
 * with the LSN of each index page that is read (bufmgr.h, TestForOldSnapshot), which a file
 * of ours has not; so all of them read the table.
 */
bool
pmhash_index_plannable(Relation index, bool *later)
{
	Snapshot	snapshot = ActiveSnapshotSet() ? GetActiveSnapshot() : NULL;
	bool		standby = RecoveryInProgress();
	PmhashTrouble trouble;
	PmhashEntry *entry;

	Assert(IsTransactionState());
	*later = false;
#if PG_VERSION_NUM < 170000
	if (old_snapshot_threshold >= 0)
		return false;
#endif
	if (!pmhash_service_available())
		return false;
	*later = true;
	if (pg_atomic_read_u32(&pmhash_shared->not_ready) != 0 ||	/* in spite of tries */
		pmhash_service_doubt() != PMHASH_REASON_NONE)
		return false;
	if (!standby)
	{
		pmhash_pool_ready();
		pmhash_notice_for_launcher();
	}
	entry = find_entry(index, PMHASH_READ, snapshot, &trouble);
	if (likely(entry != NULL))
		return serves(index, entry->stub.file_id, entry->stub.filled_by, snapshot);
	if (trouble.reason == PMHASH_REASON_NONE)
		return true;
	*later = standby ? trouble.standby_life != 0 :
		trouble.file_id != 0 && !trouble.marked && trouble.reason != PMHASH_REASON_FILLING;
	if (!standby)
		pmhash_rebuild_wanted(RelationGetRelid(index));
	else if (*later)
		pmhash_notice_invalid(index, &trouble);
	return false;
}

uint64
pmhash_index_file(Relation index)
{
	PmhashStub	stub;

	return pmhash_shared != NULL && pmhash_shared->usable &&
		pmhash_stub_read(index, &stub) ? stub.file_id : 0;
}

/*
 * Bytes that a file occupies.  One that has shrunk keeps its length until the
 * next start of the server, with nothing past its end in use.
 */
int64
pmhash_inode_bytes(const PmhInode *inode)
{
	return (int64) Min(inode->size, inode->allocated);
}

bool
pmhash_file_size(Relation index, int64 *bytes)
{
	uint64		file_id = pmhash_index_file(index);
	char		path[MAXPGPATH];
	PmhInode	inode;

	*bytes = 0;
	if (pmhash_shared == NULL || !pmhash_shared->usable)
		return false;
	if (file_id == 0)
		return true;
	pmhash_file_path(path, MyDatabaseId, file_id);
	if (!pmh_look(path, &inode))
		return errno == ENOENT;
	*bytes = pmhash_inode_bytes(&inode);
	return true;
}
