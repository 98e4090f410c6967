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

#include "access/htup_details.h"
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
#include "engine/stop_point.h"

/*
 * Why a file with this identity is not to be used for an index with this stub, or
 * NONE.  pmem: may it be persistent memory?
 */
static PmhashReason
doubt_about(const PmhashIdentity *id, const PmhashStub *stub, bool pmem)
{
	PmhashReason reason = pmhash_identity_doubt(id, pmem);

	if (reason != PMHASH_REASON_NONE)
		return reason;
	if (id->database != MyDatabaseId)
		return PMHASH_REASON_OTHER_DATABASE;
	if (id->file_id != stub->file_id ||
		memcmp(&id->seed, &stub->seed, sizeof(PmhashSeed)) != 0)
		return PMHASH_REASON_OTHER_INDEX;
	return PMHASH_REASON_NONE;
}

/*
 * Is the file at trouble->path the one that the stub names?  *recovered, if not
 * NULL: has a backend opened it in this server life already, and found it
 * sound?  Nothing is mapped.
 */
static bool
check_identity(const PmhashStub *stub, bool *recovered, PmhashTrouble *trouble)
{
	PmhashIdentity id;
	PmhInode	inode;
	uint64_t	instance;
	PmhResult	result;

	Assert(trouble->path[0] != '\0');
	result = pmh_examine(trouble->path, &id, &instance, &inode, &trouble->error);
	if (recovered != NULL)
		*recovered = result == PMH_OK && instance == pmhash_shared->instance;
	if (result != PMH_OK)
	{
		trouble->reason = pmhash_reason_of(&trouble->error);
		return false;
	}
	trouble->reason = doubt_about(&id, stub, true);
	return trouble->reason == PMHASH_REASON_NONE;
}

/*
 * Map a file.  If the process has no room for another mapping, what it does not
 * need is unmapped.
 */
static PmhResult
map_file(PmhashTrouble *trouble, PmhTable **table)
{
	PmhEnv		env = pmhash_engine_env();
	char		journal[MAXPGPATH];
	PmhResult	result = PMH_OK;

	Assert(trouble->path[0] != '\0');
	/* A standby has no journal: nothing is written that is not in WAL. */
	if (!RecoveryInProgress())
		result = pmhash_journal_map(journal, &trouble->error);
	if (result != PMH_OK)
	{
		strlcpy(trouble->path, journal, sizeof(trouble->path));
		return result;
	}
	do
		result = pmh_open(trouble->path, &env, table, NULL, &trouble->error);
	while (result == PMH_ERR_NO_MEMORY && pmhash_entries_make_room());
	return result;
}

/*
 * Map the file that the stub names, which check_identity has found to be the
 * right one, and enter it.  NULL: trouble.
 */
static PmhashEntry *
open_existing(Relation index, const PmhashStub *stub, uint64 generation,
			  PmhashTrouble *trouble)
{
	PmhTable   *table;
	PmhashEntry *entry;
	PmhashIdentity id;
	bool		recovery = RecoveryInProgress();	/* else none becomes LIVE any more */
	uint64		life;

	PMH_STOP_POINT("open_before_life");
	life = trouble->standby_life = pmhash_standby_life(stub->file_id);
	if (unlikely(recovery) && life == 0)
	{
		/* What is there by now may be a later one, which has no life in our eyes. */
		trouble->reason = PMHASH_REASON_NOT_BUILT;
		return NULL;
	}
	PMH_STOP_POINT("open_before_map");
	if (map_file(trouble, &table) != PMH_OK)
	{
		trouble->reason = pmhash_reason_of(&trouble->error);
		return NULL;
	}

	/* Once more: this file may be of another class than the pool. */
	memcpy(&id, pmh_identity(table), sizeof(id));
	trouble->reason = doubt_about(&id, stub, pmh_is_pmem(table));
	if (trouble->reason != PMHASH_REASON_NONE)
	{
		pmh_close(table);
		return NULL;
	}
	entry = pmhash_entry_enter(index, table, stub, generation);
	entry->file->standby_life = life;
	return entry;
}

/*
 * Read the stub and say what it is good for; false: trouble.  A stub page that
 * can't be read is one that does not name a file.
 */
static bool
read_stub(Relation index, PmhashUse use, PmhashStub *stub, PmhashTrouble *trouble)
{
	if (!pmhash_stub_read(index, true, stub))
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

/* Read the stub; if it asks for a file, make one.  False: trouble. */
static bool
read_stub_with_file(Relation index, PmhashUse use, PmhashStub *stub,
					PmhashTrouble *trouble)
{
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (!read_stub(index, use, stub, trouble))
			return false;
		if ((stub->flags & PMHASH_STUB_NEW_FILE) == 0)
			return true;
		pmhash_file_create_missing(index);
	}
}

/* stub_generation, before a stub is read. */
static uint64
generation_before_reading(void)
{
	uint64		generation = pg_atomic_read_u64(&pmhash_shared->stub_generation);

	pg_read_barrier();
	return generation;
}

/*
 * The entry of an index with this stub, which was read after stub_generation was
 * 'generation' and names a file.  With 'map' the file is mapped; without, only if no
 * backend has opened it in this server life, since opening it for the first time may
 * show more than looking at it from outside.  NULL: trouble.
 */
static PmhashEntry *
entry_of_stub(Relation index, const PmhashStub *stub, uint64 generation, bool map,
			  PmhashTrouble *trouble)
{
	const PmhashFile *mapped = pmhash_entry_mapped(RelationGetRelid(index),
												   stub->file_id);
	bool		recovered;

	Assert(stub->file_id != 0);
	if (mapped != NULL)
	{
		trouble->standby_life = mapped->standby_life;
		trouble->reason = pmhash_table_doubt(mapped->table);
		if (pmhash_file_is_gone(mapped) && pmhash_pool_is_present())
			trouble->reason = PMHASH_REASON_MISSING;	/* it lives on in here alone */
		return trouble->reason != PMHASH_REASON_NONE ? NULL :
			pmhash_entry_confirm(index, stub, generation);
	}
	if (unlikely(RecoveryInProgress()))
		trouble->standby_life = pmhash_standby_life(stub->file_id);
	if (!check_identity(stub, &recovered, trouble))
		return NULL;
	if (map || !recovered)
		return open_existing(index, stub, generation, trouble);
	return pmhash_entry_confirm(index, stub, generation);
}

/* The same by its stub as it is now, which gets a file if it asks for one. */
static PmhashEntry *
entry_by_stub(Relation index, PmhashUse use, bool map, PmhashTrouble *trouble)
{
	uint64		generation = generation_before_reading();
	PmhashStub	stub;

	if (!read_stub_with_file(index, use, &stub, trouble))
		return NULL;
	return entry_of_stub(index, &stub, generation, map, trouble);
}

/*
 * The open file of an index whose file is not mapped, or whose stub has to be
 * read again.  'known': its entry, if it counts.  Then stub and header have been
 * looked at, by the planner, and the file has been opened in this server life.
 */
static PmhashFile *
open_by_stub(Relation index, PmhashUse use, const PmhashEntry *known,
			 PmhashTrouble *trouble)
{
	PmhashEntry *entry;
	PmhashStub	stub;

	memset(trouble, 0, sizeof(*trouble));
	if (known != NULL && !RecoveryInProgress())
	{
		stub = known->stub;
		trouble->file_id = stub.file_id;
		pmhash_file_path(trouble->path, MyDatabaseId, stub.file_id);
		entry = open_existing(index, &stub, known->generation, trouble);
	}
	else
		entry = entry_by_stub(index, use, true, trouble);
	return entry != NULL ? pmhash_entry_use(entry) : NULL;
}

/* Is there no file to be had, whatever the stub says?  Then this is the trouble. */
static bool
is_out_of_service(PmhashTrouble *trouble)
{
	PmhashReason reason = pmhash_service_doubt();

	if (likely(reason == PMHASH_REASON_NONE))
		return false;
	memset(trouble, 0, sizeof(*trouble));
	trouble->reason = reason;
	return true;
}

/*
 * On a server in recovery: is the file that the stub names kept up to date here, and
 * fit for the snapshot?  NULL stands for one that is taken from now on.
 */
static bool
serves_in_recovery(Relation index, Snapshot snapshot, PmhashTrouble *trouble)
{
	PmhashEntry *entry = pmhash_entry_find(index, PMHASH_READ);
	PmhashStub	stub;

	memset(trouble, 0, sizeof(*trouble));
	if (entry != NULL)
		stub = entry->stub;
	else if (!read_stub(index, PMHASH_READ, &stub, trouble))
		return false;
	if ((stub.flags & PMHASH_STUB_LOGGED) == 0)
		trouble->reason = PMHASH_REASON_NOT_LOGGED;
	else if (!pmhash_standby_serves(stub.file_id, 0, snapshot))
		trouble->reason = PMHASH_REASON_NOT_BUILT;
	return trouble->reason == PMHASH_REASON_NONE;
}

/*
 * The same of the file that has been mapped since, which may be one that was built
 * later: that one is to be fit for the snapshot, and still kept up to date.
 */
static bool
mapped_serves(const PmhashFile *file, Snapshot snapshot, PmhashTrouble *trouble)
{
	if (pmhash_standby_serves(file->file_id, file->standby_life, snapshot))
		return true;
	memset(trouble, 0, sizeof(*trouble));
	trouble->file_id = file->file_id;
	trouble->reason = PMHASH_REASON_NOT_BUILT;
	return false;
}

/*
 * The pool is ready, and what is known to have been lost is known to us; or ERROR.  False
 * with the trouble: there is none to be used, as may have turned out just now.
 */
static bool
make_ready(Relation index, PmhashTrouble *trouble)
{
	if (is_out_of_service(trouble))
		return false;
	pmhash_require_service(index);
	pmhash_notice_for_launcher();
	return !is_out_of_service(trouble);
}

/* The open file of an index, or NULL and the trouble that is in the way. */
static PmhashFile *
open_file(Relation index, PmhashUse use, Snapshot snapshot, PmhashTrouble *trouble)
{
	PmhashEntry *entry;
	PmhashFile *file;

	Assert(IsTransactionState());
	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (!make_ready(index, trouble))
		return NULL;
	if (unlikely(RecoveryInProgress()) && !serves_in_recovery(index, snapshot, trouble))
		return NULL;
	entry = pmhash_entry_find(index, use);
	if (likely(entry != NULL && entry->file != NULL))
		return pmhash_entry_use(entry);
	file = open_by_stub(index, use, entry, trouble);
	if (unlikely(RecoveryInProgress()) && file != NULL &&
		!mapped_serves(file, snapshot, trouble))
		return NULL;
	return file;
}

/*
 * The entry of an index that has a usable file; else NULL and the trouble.  Without 'map'
 * as little is mapped as can be; what is not is looked at, whatever is known of it.
 */
static PmhashEntry *
usable_entry(Relation index, bool map, PmhashTrouble *trouble)
{
	if (!make_ready(index, trouble))
		return NULL;
	if (unlikely(RecoveryInProgress()) && !serves_in_recovery(index, NULL, trouble))
		return NULL;
	memset(trouble, 0, sizeof(*trouble));
	return entry_by_stub(index, PMHASH_READ, map, trouble);
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

/* Did the index come to be valid (pg_index) after the snapshot was taken, elsewhere? */
static bool
is_index_younger(Relation index, Snapshot snapshot)
{
	TransactionId xmin = HeapTupleHeaderGetXmin(index->rd_indextuple->t_data);

	return !TransactionIdIsCurrentTransactionId(xmin) &&
		XidInMVCCSnapshot(xmin, snapshot);
}

/*
 * Has a file all rows that the snapshot sees?  Nearly always.  (In recovery that is found
 * out with all else, serves_in_recovery.)
 *
 * A snapshot may be of the time before this server was promoted: a transaction keeps its
 * own, and another may take it over.  The one that comes with a logical slot does not say
 * that it was taken in recovery (snapbuild.c, SnapBuildBuildSnapshot).
 */
static bool
serves(Relation index, uint64 file_id, uint64 filled_by, Snapshot snapshot)
{
	bool		older;

	if (snapshot == NULL || snapshot->snapshot_type != SNAPSHOT_MVCC ||
		RecoveryInProgress())
		return true;
	if (is_filled_later(filled_by, snapshot))
		return false;
	older = pmhash_snapshot_may_be_older();
	if (likely(!older && !snapshot->takenDuringRecovery))
		return true;
	return pmhash_standby_fits_promoted(file_id, snapshot) &&
		(!older || !is_index_younger(index, snapshot));
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
pmhash_invalid_error(Relation index, Snapshot snapshot)
{
	PmhashTrouble		trouble;
	PmhashFile *file = open_file(index, PMHASH_READ, NULL, &trouble);

	if (file == NULL)
	{
		if (trouble.reason == PMHASH_REASON_DISABLED)
			pmhash_require_service(index);
		pmhash_raise_trouble(index, &trouble);
	}
	/* It does not serve the snapshot, or it has just been rebuilt. */
	pmhash_raise_younger(index, RecoveryInProgress() ?
						 pmhash_standby_serves(file->file_id, 0, snapshot) :
						 serves(index, file->file_id, file->filled_by, snapshot));
}

PmhashFile *
pmhash_file_open(Relation index, Snapshot snapshot)
{
	PmhashFile *file = pmhash_file_open_for_scan(index, snapshot);

	if (unlikely(file == NULL))
		pmhash_invalid_error(index, snapshot);
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
 * For the cleaner, which looks at each stub regularly: is there something for the rebuilder
 * to see to, though no backend may have met it?  Nothing is mapped.
 */
bool
pmhash_stub_lacks_file(const PmhashStub *stub)
{
	PmhashTrouble		trouble;

	if ((stub->flags & PMHASH_STUB_NEW_FILE) != 0)
		return false;
	if (!pmhash_stub_serves(stub->flags, PMHASH_READ))
		return true;			/* it may have been marked while rebuilds were off */
	memset(&trouble, 0, sizeof(trouble));
	pmhash_file_path(trouble.path, MyDatabaseId, stub->file_id);
	return !check_identity(stub, NULL, &trouble) &&
		trouble.reason != PMHASH_REASON_NONE && pmhash_pool_is_present();
}

/*
 * Why an index cannot be used whose stub does not ask for a new file, or NONE.  ERROR
 * for what may pass.  The caller holds a lock on the index.  pmem, if not NULL: is the file
 * persistent memory?  It has to be mapped for that, but not to stay so.
 */
PmhashReason
pmhash_named_file_doubt(Relation index, bool *pmem)
{
	PmhashTrouble		trouble;
	PmhashEntry *entry = usable_entry(index, pmem != NULL, &trouble);

	Assert(CheckRelationLockedByMe(index, AccessShareLock, true));
	if (entry == NULL && trouble.reason == PMHASH_REASON_NONE)
		pmhash_raise_trouble(index, &trouble);
	if (pmem != NULL)
		*pmem = entry != NULL && pmh_is_pmem(entry->file->table);
	return trouble.reason;
}

/* The same of any index, for the rebuilder: that one has no file yet is no reason. */
PmhashReason
pmhash_index_doubt(Relation index)
{
	PmhashStub	stub;

	if (pmhash_stub_read(index, true, &stub) &&
		(stub.flags & PMHASH_STUB_NEW_FILE) != 0)
		return PMHASH_REASON_NONE;
	return pmhash_named_file_doubt(index, NULL);
}

/* Has nobody made the pool ready, in spite of tries? */
static bool
is_not_ready(void)
{
	return pg_atomic_read_u32(&pmhash_shared->not_ready) != 0;
}

/*
 * May plans use this index?  Raises no error for what it finds.  Trouble that may
 * pass, as want of descriptors or memory, is no reason to take another plan in
 * silence: the plan that uses the index fails if it is still there.  A file
 * that an unlogged index does not have yet is left to the first use.
 *
 * With old_snapshot_threshold (PostgreSQL 15 and 16) VACUUM and pruning take rows from under
 * snapshots, and a query is to fail then and not to find fewer.  Core compares a snapshot
 * with the LSN of each index page that is read (bufmgr.h, TestForOldSnapshot), which a file
 * of ours has not; so all of them read the table.
 */
bool
pmhash_index_plannable(Relation index)
{
	Snapshot	snapshot = ActiveSnapshotSet() ? GetActiveSnapshot() : NULL;
	PmhashTrouble trouble;
	PmhashStub	stub;
	uint64		generation;
	PmhashEntry *entry;

	Assert(IsTransactionState());
#if PG_VERSION_NUM < 170000
	if (old_snapshot_threshold >= 0)
		return false;
#endif
	if (!pmhash_service_available() || is_not_ready() || is_out_of_service(&trouble))
		return false;
	if (RecoveryInProgress())
	{
		if (!serves_in_recovery(index, snapshot, &trouble))
			return false;
	}
	else
	{
		pmhash_pool_ready();
		pmhash_notice_for_launcher();
	}
	entry = pmhash_entry_find(index, PMHASH_READ);
	if (likely(entry != NULL))
		return serves(index, entry->stub.file_id, entry->stub.filled_by, snapshot);
	memset(&trouble, 0, sizeof(trouble));
	generation = generation_before_reading();
	if (read_stub(index, PMHASH_READ, &stub, &trouble))
	{
		if ((stub.flags & PMHASH_STUB_NEW_FILE) != 0)
			return true;
		entry = entry_of_stub(index, &stub, generation, false, &trouble);
		if (entry != NULL)
			return serves(index, entry->stub.file_id, entry->stub.filled_by, snapshot);
	}
	if (trouble.reason == PMHASH_REASON_NONE)
		return true;
	if (RecoveryInProgress())
		pmhash_notice_invalid(index, &trouble);
	else
		pmhash_rebuild_wanted(RelationGetRelid(index));
	return false;
}

/*
 * Of an index that plans may not use: may they later, though nobody says so then?  They
 * are made anew when the stub says something else, or, on a standby, the state of the
 * file.  Not when there is another snapshot, the pool is ready, or mounted again, or
 * replay has come to what the files have.
 */
bool
pmhash_plannable_later(Relation index)
{
	PmhashTrouble trouble;
	PmhashStub	stub;

	if (!pmhash_service_available())
		return false;
	if (is_not_ready())
		return true;
	memset(&trouble, 0, sizeof(trouble));
	return read_stub(index, PMHASH_READ, &stub, &trouble) &&
		(!RecoveryInProgress() ||
		 (pmhash_flags_logged(stub.flags) && pmhash_standby_life(stub.file_id) != 0));
}

/*
 * The file that an index's stub names: its id, if wanted, and its path into
 * path[MAXPGPATH]; whether it is there or usable is not looked at.  False if there
 * is no such stub.
 */
bool
pmhash_index_path(Relation index, bool zero_on_error, uint64 *file_id, char *path)
{
	PmhashStub	stub;

	if (pmhash_shared == NULL || !pmhash_shared->usable ||
		!pmhash_stub_read(index, zero_on_error, &stub) || stub.file_id == 0)
		return false;
	if (file_id != NULL)
		*file_id = stub.file_id;
	pmhash_file_path(path, MyDatabaseId, stub.file_id);
	return true;
}

bool
pmhash_may_have_file(Relation index, const PmhashFile *file)
{
	char		path[MAXPGPATH];

	return !pmhash_index_path(index, false, NULL, path) || strcmp(path, file->path) == 0;
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
	char		path[MAXPGPATH];
	PmhInode	inode;

	*bytes = 0;
	if (pmhash_shared == NULL || !pmhash_shared->usable)
		return false;
	if (!pmhash_index_path(index, false, NULL, path))
		return true;
	if (!pmh_look(path, &inode))
		return errno == ENOENT;
	*bytes = pmhash_inode_bytes(&inode);
	return true;
}
