/*-------------------------------------------------------------------------
 *
 * moved.c
 *	  Tables and indexes that this transaction has given other files: what is known
 *	  of them, in the memory of this backend.
 *
 * SET TABLESPACE copies a relation block by block into new files, and deletes the old
 * ones at commit (tablecmds.c, ATExecSetTableSpace).  TIDs stay as they are, so the
 * indexes of a table need not follow, and our files are elsewhere in any case.  All
 * else that gives a table new files gives its indexes new ones as well: TRUNCATE,
 * CLUSTER, VACUUM FULL, ALTER TABLE with a rewrite (SET LOGGED, SET ACCESS METHOD, a
 * new type), REFRESH MATERIALIZED VIEW.
 *
 * If that is rolled back the old files are there again.  Then
 *	- entries that were made in between lead to rows of which the table's old files
 *	  know nothing (held.c);
 *	- a stub that was written to in between is the one of before (stub.c).
 *
 * Level: a subtransaction that has been released counts as its parent.  Of open ones
 * the inner one has the greater number (xact.c, AssignSubTransactionId is called with
 * the start of each).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"

#include "cluster/am_callbacks.h"
#include "cluster/moved.h"

/* Of this transaction, in TopTransactionContext. */
static List *left_forks = NIL;	/* PmhashLeftFork */
static List *files = NIL;		/* PmhashMoved */

/*
 * The same of temporary indexes, in TopMemoryContext: one that has been taken back
 * stays as long as the session, whose file must not be read any more.
 */
static List *temporary_files = NIL;

/* ---- main forks ---- */

static bool
is_noted(PmhashNode node)
{
	ListCell   *lc;

	foreach(lc, left_forks)
	{
		if (memcmp(&((PmhashLeftFork *) lfirst(lc))->node, &node, sizeof(node)) == 0)
			return true;
	}
	return false;
}

/*
 * An index is being altered.  If it is moved, the change of its catalog row can't be
 * seen before the next command: it still has the main fork that it is about to leave
 * (all versions call the hook after SetRelationTableSpace and before they count the
 * command).
 */
void
pmhash_moved_note_fork(Oid relid)
{
	Relation	index;
	PmhashLeftFork *left;
	MemoryContext old;

	/* not available: it is not moved (ALTER TABLE SET SCHEMA does not lock them) */
	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return;
	index = try_relation_open(relid, NoLock);
	if (index == NULL)
		return;
	if (pmhash_is_index(index) && !is_noted(pmhash_node(index)) &&
		index->rd_rel->relpersistence != RELPERSISTENCE_TEMP)
	{
		old = MemoryContextSwitchTo(TopTransactionContext);
		left = palloc0(sizeof(PmhashLeftFork));
		left->subid = GetCurrentSubTransactionId();
		left->node = pmhash_node(index);
		left->heap = index->rd_index->indrelid;
		left->permanent = RelationIsPermanent(index);
		left_forks = lappend(left_forks, left);
		MemoryContextSwitchTo(old);
	}
	relation_close(index, NoLock);
}

/*
 * The main forks that indexes have had at some time in this transaction; some still
 * are what they have.  PmhashLeftFork.
 */
List *
pmhash_left_forks(void)
{
	return left_forks;
}

/* ---- files ---- */

/* Of indexes that are not temporary. */
List *
pmhash_moved_files(void)
{
	return files;
}

/* Note a file whose stub is held, or that is temporary.  ERROR if memory is short. */
PmhashMoved *
pmhash_moved_add(uint64 file_id, SubTransactionId subid, bool temporary)
{
	List	  **list = temporary ? &temporary_files : &files;
	MemoryContext old = MemoryContextSwitchTo(temporary ? TopMemoryContext :
											  TopTransactionContext);
	PmhashMoved *moved = palloc0(sizeof(PmhashMoved));

	moved->subid = subid;
	moved->file_id = file_id;
	moved->stub = InvalidBuffer;
	*list = lappend(*list, moved);
	MemoryContextSwitchTo(old);
	return moved;
}

static PmhashMoved *
find_in(List *list, uint64 file_id, SubTransactionId subid)
{
	ListCell   *lc;

	foreach(lc, list)
	{
		PmhashMoved *moved = lfirst(lc);

		if (moved->file_id == file_id &&
			(subid == InvalidSubTransactionId || moved->subid == subid))
			return moved;
	}
	return NULL;
}

/*
 * What is known of a file whose table has got the files it has at this level, or
 * (InvalidSubTransactionId) at any.  NULL: nothing.
 */
PmhashMoved *
pmhash_moved_find(uint64 file_id, SubTransactionId subid, bool temporary)
{
	return find_in(temporary ? temporary_files : files, file_id, subid);
}

/* Are the rows still there for all entries that have been made in this file? */
bool
pmhash_moved_stands(uint64 file_id)
{
	ListCell   *lc;

	foreach(lc, files)
	{
		const PmhashMoved *moved = lfirst(lc);

		if (moved->file_id == file_id && moved->taken_back)
			return false;
	}
	return true;
}

static bool
is_spoiled(uint64 file_id)
{
	ListCell   *lc;

	foreach(lc, temporary_files)
	{
		const PmhashMoved *moved = lfirst(lc);

		if (moved->file_id == file_id && moved->taken_back)
			return true;
	}
	return false;
}

/*
 * What a stub that was read says for this transaction.  One that says FILLING until
 * it has committed says to itself what it has said before, as long as nothing has been
 * taken back.  A temporary one can't say FILLING: that is added here.
 */
void
pmhash_moved_stub(Relation index, PmhashStub *stub)
{
	const PmhashMoved *moved;

	if (likely(files == NIL && temporary_files == NIL))
		return;
	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
	{
		if (is_spoiled(stub->file_id))
			stub->flags |= PMHASH_STUB_FILLING;
		return;
	}
	moved = find_in(files, stub->file_id, InvalidSubTransactionId);
	if (moved != NULL && (stub->flags & PMHASH_STUB_FILLING) != 0 &&
		pmhash_moved_stands(stub->file_id))
		stub->flags = (stub->flags & ~PMHASH_STUB_FILLING) | moved->flags;
}

/* ---- ends of transactions: these raise no error, and allocate nothing ---- */

/*
 * This level has been aborted (InvalidSubTransactionId: all of this transaction).  True
 * if a file of the list has to do with it.
 */
static bool
take_back(List *list, SubTransactionId subid)
{
	bool		found = false;
	ListCell   *lc;

	foreach(lc, list)
	{
		PmhashMoved *moved = lfirst(lc);

		if (moved->subid == InvalidSubTransactionId ||
			(subid != InvalidSubTransactionId && moved->subid != subid))
			continue;
		moved->taken_back = found = true;
		moved->subid = InvalidSubTransactionId;
	}
	return found;
}

/*
 * A level has been aborted.  True: stubs of some indexes say something else from
 * now on.
 */
bool
pmhash_moved_level_aborted(SubTransactionId subid)
{
	bool		found = take_back(files, subid);
	ListCell   *lc;

	found |= take_back(temporary_files, subid);
	foreach(lc, left_forks)
	{
		if (((PmhashLeftFork *) lfirst(lc))->subid == subid)
			left_forks = foreach_delete_current(left_forks, lc);
	}
	return found;
}

static void
give_to_parent(List *list, SubTransactionId subid, SubTransactionId parent)
{
	ListCell   *lc;

	foreach(lc, list)
	{
		PmhashMoved *moved = lfirst(lc);

		if (moved->subid == subid)
			moved->subid = parent;
	}
}

/* A subtransaction has committed: what is noted of it is its parent's. */
void
pmhash_moved_level_committed(SubTransactionId subid, SubTransactionId parent)
{
	ListCell   *lc;

	give_to_parent(files, subid, parent);
	give_to_parent(temporary_files, subid, parent);
	foreach(lc, left_forks)
	{
		PmhashLeftFork *left = lfirst(lc);

		if (left->subid == subid)
			left->subid = parent;
	}
}

/*
 * The end of the transaction.  True: stubs of some indexes say something else from
 * now on.
 */
bool
pmhash_moved_over(bool committed)
{
	bool		found = files != NIL;
	ListCell   *lc;

	if (!committed)
		found |= take_back(temporary_files, InvalidSubTransactionId);
	foreach(lc, temporary_files)
	{
		PmhashMoved *moved = lfirst(lc);

		if (moved->taken_back)
			continue;
		temporary_files = foreach_delete_current(temporary_files, lc);
		pfree(moved);
	}
	files = left_forks = NIL;	/* the memory goes with TopTransactionContext */
	return found;
}
