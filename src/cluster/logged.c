/*-------------------------------------------------------------------------
 *
 * logged.c
 *	  Which files are logged, on a primary.
 *
 * The storage parameter "wal" says what is wanted, the GUC pmhash.wal what is
 * wanted where it says nothing.  What is done stands in the stub, in two flags:
 *
 *	LOGGED	a process that changes entries of this file writes records of it;
 *	STANDBY	all do, so a standby may build a file of its own.
 *
 * A standby builds from its own heap.  Rows of transactions that it has seen begun
 * before it came to STANDBY it waits for and finds there; of all others it takes
 * the entries from WAL, and does not look.  So the rule is: if a row's heap record
 * stands in WAL after STANDBY, its entry does too.  A new file is LOGGED and STANDBY
 * from the beginning, since no process has it yet.  One that is in use is changed in
 * this order:
 *
 *	1	the stub says LOGGED;
 *	2	stub_generation is stepped, so that each process reads the stub again
 *		before its next entry (pmhash_file_must_log), after the heap record
 *		that the entry is made for;
 *	3	FILE_NEW is logged, and the stub says STANDBY.
 *
 * What makes an entry without a record has looked before 2, so its heap record is
 * before 3.  The same goes for removals: what was found dead before 2 was made so
 * by WAL before 3, and a standby that begins then leaves it out.
 *
 * The other way: the stub has no flags any more, and the record of that is FILE_GONE for
 * standbys; the generation is stepped.  What is still logged then is dropped by standbys.
 *
 * ALTER INDEX does this just before its commit.  If it aborts after that, or a
 * crash comes in between, or the configuration changes, stub and parameter differ:
 * the cleaner, which reads all stubs, puts that right.
 *
 * FILE_NEW of a new file is logged just after the commit record: until then standbys
 * do not see the index, and one that delays commits (recovery_min_apply_delay) would
 * look for it in vain for hours.  It is no more than a call to look; what is to be
 * built stands in stubs.  No callback comes with COMMIT PREPARED, so PREPARE leaves the
 * file LOGGED only, and the cleaner, which is called then, does the rest.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"

#include "cluster/am_callbacks.h"
#include "cluster/cluster.h"
#include "cluster/gucs.h"
#include "cluster/invalid.h"
#include "cluster/levels.h"
#include "cluster/logged.h"
#include "cluster/shared.h"
#include "cluster/stub.h"
#include "cluster/wal_record.h"

/* A file made in this transaction; lives in TopTransactionContext. */
typedef struct NewFile
{
	int			level;			/* nesting level of the transaction (levels.h) */
	uint64		file_id;
	Oid			heap;
	Oid			index;
} NewFile;

static List *new_files = NIL;	/* NewFile */
static List *altered = NIL;		/* Oid of indexes that ALTER has been at */

/* ---- what is wanted ---- */

/* Are changes of this index's entries to be logged?  Raises no error. */
bool
pmhash_wants_wal(Relation index)
{
	const PmhashOptions *options = (const PmhashOptions *) index->rd_options;

	if (!RelationIsPermanent(index) || !XLogIsNeeded())
		return false;
	if (options == NULL || options->wal == PMHASH_WAL_BY_DEFAULT)
		return pmhash_wal;
	return options->wal == PMHASH_WAL_ON;
}

/* The flags of a stub that names a file which no process has yet. */
uint16
pmhash_new_wal_flags(Relation index)
{
	return pmhash_wants_wal(index) ? PMHASH_STUB_LOGGED | PMHASH_STUB_STANDBY : 0;
}

/* ---- what is done ---- */

/*
 * Without a look at the index where no file in use has become logged in this server
 * life: to find and lock it may wait for, or fail because of, what is none of the
 * transaction's business.  logging_begun is set before the generation is stepped.
 */
bool
pmhash_file_knows_log(const PmhashFile *file, bool *log)
{
	*log = file->logged;
	return !file->journaled ||
		(!file->logged && pg_atomic_read_u32(&pmhash_shared->logging_begun) == 0) ||
		file->generation == pg_atomic_read_u64(&pmhash_shared->stub_generation);
}

/*
 * The heap record that the change is made for was inserted under locks that are
 * full barriers, so it is before the look at the generation for all processes.
 */
bool
pmhash_file_must_log(PmhashFile *file, Relation index)
{
	uint64		generation;
	PmhashStub	stub;
	bool		log;

	if (likely(pmhash_file_knows_log(file, &log)))
		return log;
	generation = pg_atomic_read_u64(&pmhash_shared->stub_generation);
	pg_read_barrier();
	if (pmhash_stub_read(index, true, &stub) && stub.file_id == file->file_id)
		file->logged = pmhash_flags_logged(stub.flags);
	file->generation = generation;
	return file->logged;
}

/* ---- beginning and ending ---- */

/*
 * The stub of an index names a file that is in use, says LOGGED and not yet
 * STANDBY, and all processes have seen it.
 *
 * FILE_NEW before STANDBY: whatever a standby has of this file, it has given that up
 * when it finds STANDBY in the stub.  A crash in between leaves a stub that the cleaner
 * sees to; the other way round it would not.
 */
void
pmhash_file_announce(Relation index, uint64 file_id)
{
	PMH_STOP_POINT("wal_before_standby");
	pmhash_wal_log_file_new(file_id, MyDatabaseId, index->rd_index->indrelid,
							RelationGetRelid(index));
	PMH_STOP_POINT("wal_announced");
	(void) pmhash_stub_set_wal(index, file_id, PMHASH_STUB_LOGGED | PMHASH_STUB_STANDBY);
}

static void
begin_logging(Relation index, const PmhashStub *stub)
{
	(void) pg_atomic_exchange_u32(&pmhash_shared->logging_begun, 1);
	if ((stub->flags & PMHASH_STUB_LOGGED) == 0 &&
		!pmhash_stub_set_wal(index, stub->file_id, PMHASH_STUB_LOGGED))
		return;
	pmhash_stub_changed();
	pmhash_file_announce(index, stub->file_id);
}

static void
end_logging(Relation index, const PmhashStub *stub)
{
	if (pmhash_stub_set_wal(index, stub->file_id, 0))
		pmhash_stub_changed();
}

/*
 * May flags be given to a stub?  A copy that CREATE DATABASE has made names a file of
 * the original: said to be logged, it would have standbys take that for its own.
 */
static bool
has_own_file(const PmhashStub *stub)
{
	return stub->file_id != 0 && stub->database == MyDatabaseId &&
		(stub->flags & PMHASH_STUB_INVALID) == 0;
}

/*
 * Let the stub say what is wanted.  The caller holds ShareUpdateExclusiveLock on
 * the index, so no other process does the same, and its parameters do not change.
 */
static void
settle(Relation index)
{
	PmhashStub	stub;
	uint16		flags;

	if (!RelationIsPermanent(index) || !pmhash_stub_read(index, true, &stub) ||
		!has_own_file(&stub))
		return;
	flags = stub.flags & PMHASH_STUB_WAL;
	if (!pmhash_wants_wal(index) && flags != 0)
		end_logging(index, &stub);
	else if (pmhash_wants_wal(index) && flags != PMHASH_STUB_WAL)
		begin_logging(index, &stub);
}

/*
 * For the cleaner: settle the index if need be and if no other process is at it.  The
 * caller holds AccessShareLock on it and has just read its stub.
 */
void
pmhash_wal_examine(Relation index, const PmhashStub *stub)
{
	uint16		wanted = pmhash_wants_wal(index) ? PMHASH_STUB_WAL : 0;

	if (!RelationIsPermanent(index) || !has_own_file(stub) ||
		(stub->flags & PMHASH_STUB_WAL) == wanted)
		return;
	if (!ConditionalLockRelation(index, ShareUpdateExclusiveLock))
		return;
	settle(index);
	UnlockRelation(index, ShareUpdateExclusiveLock);
}

/* ---- transactions ---- */

/* This transaction has made a file, whose stub says STANDBY. */
void
pmhash_file_is_new(Relation index, uint64 file_id)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	NewFile    *file = palloc(sizeof(NewFile));

	file->level = GetCurrentTransactionNestLevel();
	file->file_id = file_id;
	file->heap = index->rd_index->indrelid;
	file->index = RelationGetRelid(index);
	new_files = lappend(new_files, file);
	MemoryContextSwitchTo(old);
}

/* It has removed it again. */
void
pmhash_file_is_not_new(uint64 file_id)
{
	ListCell   *lc;

	foreach(lc, new_files)
	{
		if (((NewFile *) lfirst(lc))->file_id == file_id)
			new_files = foreach_delete_current(new_files, lc);
	}
}

/* An index of any kind is being altered: what it is then is looked at before commit. */
void
pmhash_logged_note_alter(Oid index)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	altered = list_append_unique_oid(altered, index);
	MemoryContextSwitchTo(old);
}

/* ALTER INDEX holds its lock to the end of the transaction. */
void
pmhash_logged_before_commit(void)
{
	ListCell   *lc;

	if (pmhash_shared == NULL || !pmhash_shared->usable)
		return;					/* the cleaner does it some day */
	foreach(lc, altered)
	{
		Relation	index = try_relation_open(lfirst_oid(lc), AccessShareLock);

		if (index == NULL)
			continue;
		if (pmhash_is_index(index) && !RELATION_IS_OTHER_TEMP(index) &&
			CheckRelationLockedByMe(index, ShareUpdateExclusiveLock, true))
			settle(index);
		relation_close(index, NoLock);
	}
}

/*
 * The transaction has committed.  Flushed, since no later commit may come for long.
 * The next transaction, which may write nothing, is not to take these records for its
 * own (undo_journal.c, entries_depend_on; xact.c, RecordTransactionCommit).  They
 * have the number of one that is over.  Standbys have seen that number before, so they
 * do not take it for running (procarray.c, RecordKnownAssignedTransactionIds); logical
 * decoding has an empty transaction until it reads the next RUNNING_XACTS
 * (reorderbuffer.c, ReorderBufferAbortOld).
 */
void
pmhash_logged_committed(void)
{
	XLogRecPtr	before = XactLastRecEnd;
	XLogRecPtr	end = InvalidXLogRecPtr;
	ListCell   *lc;

	foreach(lc, new_files)
	{
		const NewFile *file = lfirst(lc);

		end = pmhash_wal_log_file_new(file->file_id, MyDatabaseId, file->heap,
									  file->index);
	}
	if (end != InvalidXLogRecPtr)
		XLogFlush(end);
	XactLastRecEnd = before;
}

/* The transaction is about to be prepared: its files are announced by the cleaner. */
void
pmhash_logged_before_prepare(void)
{
	ListCell   *lc;

	foreach(lc, new_files)
	{
		const NewFile *file = lfirst(lc);
		Relation	index = try_relation_open(file->index, AccessShareLock);

		if (index == NULL)
			continue;
		(void) pmhash_stub_set_wal(index, file->file_id, PMHASH_STUB_LOGGED);
		relation_close(index, NoLock);
	}
}

/* The transaction has ended. */
void
pmhash_logged_forget(void)
{
	new_files = NIL;			/* the memory goes with TopTransactionContext */
	altered = NIL;
}

void
pmhash_logged_level_ends(SubXactEvent event)
{
	new_files = pmhash_level_ends(new_files, event);
}
