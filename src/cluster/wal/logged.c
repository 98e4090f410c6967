/*-------------------------------------------------------------------------
 *
 * logged.c
 *	  Which files are logged, on a primary.
 *
 * The storage parameter "wal" says what is wanted, the GUC pmhash.wal what is
 * wanted where it says nothing.  That is settled when a file is made, for its life,
 * and stands in the stub, in two flags:
 *
 *	LOGGED	a process that changes entries of this file writes records of it;
 *	STANDBY	standbys have been told of the file, and may build one of their own.
 *
 * A standby builds from its own heap.  Rows of transactions that it has seen begun
 * before it came to STANDBY it waits for and finds there; of all others it takes
 * the entries from WAL, and does not look.  So the rule is: if a row's heap record
 * stands in WAL after STANDBY, its entry does too.  It does, as the file has been
 * logged from its beginning.  With wal_level = minimal nothing is, but no standby
 * replays such WAL (xlog.c, CheckRequiredParameterValues).
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

#include "cluster/base/relations.h"
#include "cluster/base/tools.h"
#include "cluster/cluster.h"
#include "cluster/wal/logged.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/wal_record.h"

/* A file made in this transaction; lives in TopTransactionContext. */
typedef struct NewFile
{
	int			level;			/* nesting level of the transaction (tools.h) */
	uint64		file_id;
	Oid			heap;
	Oid			index;
} NewFile;

static List *new_files = NIL;	/* NewFile */

/* ---- what is wanted ---- */

/* Are changes of a file that is made for this index to be logged?  Raises no error. */
bool
pmhash_wants_wal(Relation index)
{
	const PmhashOptions *options = (const PmhashOptions *) index->rd_options;

	if (!RelationIsPermanent(index))
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
 * The stub of an index names a file that is in use, and says LOGGED and not yet
 * STANDBY.
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

/*
 * For the cleaner: announce the file if that has not been done, and no other process is
 * at the index.  The caller holds AccessShareLock on it.
 */
void
pmhash_wal_examine(Relation index, const PmhashStub *stub)
{
	if ((stub->flags & PMHASH_STUB_WAL) != PMHASH_STUB_LOGGED ||
		!pmhash_flags_logged(stub->flags) ||
		!ConditionalLockRelation(index, ShareUpdateExclusiveLock))
		return;
	pmhash_file_announce(index, stub->file_id);
	UnlockRelation(index, ShareUpdateExclusiveLock);
}

/*
 * pmhash_tell_of_wal
 *		A storage parameter of an index has been changed: what it says of logging is done
 *		when the index gets another file.
 */
void
pmhash_tell_of_wal(Relation index)
{
	PmhashStub	stub;

	if (!pmhash_is_index(index) || RELATION_IS_OTHER_TEMP(index) ||
		!pmhash_stub_read(index, true, &stub) || stub.file_id == 0 ||
		(stub.flags & PMHASH_STUB_INVALID) != 0 ||
		pmhash_wants_wal(index) == ((stub.flags & PMHASH_STUB_LOGGED) != 0))
		return;
	ereport(NOTICE,
			(pmhash_wants_wal(index) ?
			 errmsg("index \"%s\" is not logged before it is rebuilt",
					RelationGetRelationName(index)) :
			 errmsg("index \"%s\" is logged until it is rebuilt",
					RelationGetRelationName(index)),
			 errhint("Use REINDEX INDEX CONCURRENTLY to have it rebuilt now.")));
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
}

void
pmhash_logged_level_ends(SubXactEvent event)
{
	new_files = pmhash_level_ends(new_files, event);
}
