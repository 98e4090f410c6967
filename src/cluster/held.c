/*-------------------------------------------------------------------------
 *
 * held.c
 *	  Index files of tables that an abort gives their old files back.
 *
 * A table is given another tablespace, gets rows, and that is rolled back.  Its old
 * files know nothing of those rows, not even dead ones: VACUUM never meets their TIDs,
 * and other rows get them.  So the entries of rows that are inserted into a table
 * which this transaction has moved must go with it, or the file must not be used.  (A
 * btree keeps them, and answers wrongly then.)
 *
 * Before the first such entry the stub says FILLING, for good: an abort, a crash, a
 * promotion, PREPARE leave it so, and the file is made anew.  Just after the commit
 * record it says what it has said before.  Before that record would be too early: the
 * commit may fail yet (serializable transactions), or the server die.  Should it die
 * just past that record the index is rebuilt, which is not needed but right.  No
 * callback comes with COMMIT PREPARED, so it is rebuilt then, too.
 *
 * The transaction itself has all others locked out of the table (AccessExclusiveLock),
 * and goes on using the file: to itself the stub says what it said (moved.c), until a
 * level is rolled back that has moved the table.  In parallel workers it would not, so
 * plans have none from then on (insert_queue.c, executor_start).  Builds of other indexes
 * still do: their workers see an index that is not to be read.
 *
 * Nothing is to be done for a file that the same abort removes, or a temporary one
 * before there is an abort: only this session has it, and remembers it.
 *
 * Standbys give their files up when the stub begins to say FILLING, since an abort says
 * nothing to them, and build new ones when it does not any more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/syscache.h"

#include "cluster/am_callbacks.h"
#include "cluster/file_levels.h"
#include "cluster/held.h"
#include "cluster/invalid.h"
#include "cluster/life_cycle.h"
#include "cluster/moved.h"
#include "cluster/rebuild_table.h"
#include "cluster/stub.h"
#include "cluster/wal_record.h"
#include "engine/stop_point.h"

/* One in so many shared buffers may be pinned during a commit. */
#define PINNED_PART		8

/* ---- before entries are made ---- */

static PmhashMoved *
note(Relation index, uint64 file_id, SubTransactionId subid)
{
	bool		temporary = index->rd_rel->relpersistence == RELPERSISTENCE_TEMP;
	PmhashMoved *moved = pmhash_moved_add(file_id, subid, temporary);

	moved->permanent = RelationIsPermanent(index);
	moved->index = RelationGetRelid(index);
	moved->heap = index->rd_index->indrelid;
	return moved;
}

/*
 * Hold the stub.  All processes that have read it read it again, and plans that use
 * the index are made anew.  *flags as of pmhash_stub_hold.  False: the file is not to
 * be read in any case, and will have to be filled.
 */
static bool
hold(Relation index, uint64 file_id, uint16 *flags)
{
	PMH_STOP_POINT("moved_before_hold");
	if (!pmhash_stub_hold(index, file_id, flags))
		return false;
	pmhash_stub_changed();
	pmhash_forget_plans(index->rd_index->indrelid);
	PMH_STOP_POINT("moved_held");
	return true;
}

/*
 * The stub is held first, and noted then: what fails in between leaves an index that is
 * rebuilt.
 */
void
pmhash_table_moved(Relation heap, Relation index, const PmhashFile *file)
{
	bool		temporary = index->rd_rel->relpersistence == RELPERSISTENCE_TEMP;
	uint16		flags = 0;
	SubTransactionId subid;
	const PmhashMoved *before;
	PmhashMoved *moved;

	if (pmhash_node_subid(heap) == InvalidSubTransactionId)
		return;
	subid = pmhash_level_of_files(heap);
	if (pmhash_pending_subid(file->path) >= subid ||
		pmhash_moved_find(file->file_id, subid, temporary) != NULL)
		return;
	before = pmhash_moved_find(file->file_id, InvalidSubTransactionId, temporary);
	if (before != NULL)
		flags = before->flags;
	else if (!temporary && !hold(index, file->file_id, &flags))
		return;
	moved = note(index, file->file_id, subid);
	moved->flags = flags;
}

/*
 * Is there a file that this transaction may use, and its parallel workers would not?
 */
bool
pmhash_stubs_are_held(void)
{
	return pmhash_moved_files() != NIL;
}

/* ---- tables that are emptied in place ---- */

/*
 * An index that is about to be built on a main fork that it has had before: does an
 * abort bring rows back for it?
 */
bool
pmhash_table_comes_back(Relation index)
{
	Relation	heap = relation_open(index->rd_index->indrelid, NoLock);
	bool		comes_back = pmhash_node_subid(heap) != InvalidSubTransactionId;

	relation_close(heap, NoLock);
	return comes_back && index->rd_index->indisready;
}

/* It has got this file, and its stub says FILLING. */
void
pmhash_held_from_birth(Relation index, uint64 file_id)
{
	Relation	heap = relation_open(index->rd_index->indrelid, NoLock);

	(void) note(index, file_id, pmhash_level_of_files(heap));
	relation_close(heap, NoLock);
}

/* ---- commit ---- */

/* Pin the stub of this index if it names the file of *moved.  A page that can't be
 * read stays as it is. */
static bool
pin_stub(PmhashMoved *moved, Oid relid)
{
	ResourceOwner owner = CurrentResourceOwner;
	Relation	index = try_relation_open(relid, AccessShareLock);
	PmhashStub	stub;

	if (index == NULL)
		return false;
	if (pmhash_is_index(index) && pmhash_stub_look(index, &stub) == PMHASH_LOOK_STUB &&
		stub.file_id == moved->file_id)
	{
		CurrentResourceOwner = TopTransactionResourceOwner;
		moved->index = relid;
		moved->stub = ReadBuffer(index, 0);
		CurrentResourceOwner = owner;
	}
	relation_close(index, NoLock);
	return BufferIsValid(moved->stub);
}

/*
 * The transaction is about to commit: find and pin the stubs that it holds, so that
 * nothing can fail when it has.  The file may be another index's by now (ALTER TYPE).
 * As many as shared buffers bear: further indexes are rebuilt.
 */
static void
pin_stubs(void)
{
	int			pinned = 0;
	ListCell   *lc;

	foreach(lc, pmhash_moved_files())
	{
		PmhashMoved *moved = lfirst(lc);
		Relation	heap;
		ListCell   *cell;

		if (pinned >= NBuffers / PINNED_PART)
			return;
		if (!pmhash_moved_stands(moved->file_id) ||
			pmhash_moved_find(moved->file_id, InvalidSubTransactionId, false) != moved ||
			!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(moved->heap)))
			continue;
		heap = relation_open(moved->heap, AccessShareLock);
		foreach(cell, RelationGetIndexList(heap))
		{
			if (pin_stub(moved, lfirst_oid(cell)))
			{
				pinned++;
				break;
			}
		}
		relation_close(heap, NoLock);
	}
}

/* The stub says what it said before.  True: standbys are to build a file. */
static bool
let_go(PmhashMoved *moved)
{
	uint16		flags = pmhash_stub_let_go(moved->stub, moved->file_id, moved->flags,
										   moved->permanent);

	ReleaseBuffer(moved->stub);
	moved->stub = InvalidBuffer;
	if ((flags & PMHASH_STUB_FILLED) != 0)
		pmhash_rebuild_due_now(moved->index);	/* its rebuild may have passed by */
	return moved->permanent && pmhash_flags_logged(flags);
}

/*
 * The transaction has committed.  See log_new_files (logged.c) for what is said of
 * records at this time.  Raises no error, and allocates nothing.
 */
static void
let_stubs_go(void)
{
	ResourceOwner owner = CurrentResourceOwner;
	XLogRecPtr	before = XactLastRecEnd;
	ListCell   *lc;

	if (pmhash_moved_files() == NIL)
		return;
	PMH_STOP_POINT("moved_committed");
	CurrentResourceOwner = TopTransactionResourceOwner;
	foreach(lc, pmhash_moved_files())
	{
		PmhashMoved *moved = lfirst(lc);

		/* not pinned: too many, not readable, or it names another file by now */
		if (!pmhash_moved_stands(moved->file_id) || !BufferIsValid(moved->stub))
			pmhash_rebuild_due_now(moved->index);
		else if (let_go(moved))
			(void) pmhash_wal_log_file_new(moved->file_id, MyDatabaseId, moved->heap,
										   moved->index);
	}
	CurrentResourceOwner = owner;
	if (XactLastRecEnd != InvalidXLogRecPtr)
		XLogFlush(XactLastRecEnd);
	XactLastRecEnd = before;
}

/*
 * Those whose stubs have not been let go are to be rebuilt.  No try can have been made
 * while this transaction had the table locked, so no earlier failure is to delay it.
 */
static void
want_rebuilds(void)
{
	ListCell   *lc;

	foreach(lc, pmhash_moved_files())
		pmhash_rebuild_due_now(((PmhashMoved *) lfirst(lc))->index);
}

/* ---- callbacks ---- */

static void
transaction_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			pin_stubs();
			return;
		case XACT_EVENT_COMMIT:
			let_stubs_go();
			break;
		case XACT_EVENT_ABORT:
			want_rebuilds();
			break;
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
		case XACT_EVENT_PRE_PREPARE:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			return;
	}
	if (pmhash_moved_over(event == XACT_EVENT_COMMIT))
		pmhash_stub_changed();
}

static void
subtransaction_callback(SubXactEvent event, SubTransactionId mySubid,
						SubTransactionId parentSubid, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		pmhash_moved_level_committed(mySubid, parentSubid);
	else if (event == SUBXACT_EVENT_ABORT_SUB && pmhash_moved_level_aborted(mySubid))
		pmhash_stub_changed();
}

/* Install the callbacks; children of the postmaster inherit them. */
void
pmhash_held_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
	RegisterSubXactCallback(subtransaction_callback, NULL);
}
