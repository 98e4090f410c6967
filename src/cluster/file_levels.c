/*-------------------------------------------------------------------------
 *
 * file_levels.c
 *	  By which level of this transaction tables have got the files that they have.
 *
 * The server knows the last level that gave a table files, and forgets it when that is
 * rolled back (relcache.c, AtEOSubXact_cleanup): which one made those that come back then
 * it does not know.  So that is noted here, in time:
 *	- for TRUNCATE, CLUSTER and all that rewrites a table when it builds an index of ours
 *	  anew, which comes after it has given the table its files;
 *	- for SET TABLESPACE, which builds none, when it is about to: the object access hook
 *	  is called before the new files are known, so the note has none.  Of an ALTER TABLE
 *	  that moves nothing there is one, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "cluster/am_callbacks.h"
#include "cluster/cluster.h"
#include "cluster/file_levels.h"

typedef struct FileLevel
{
	SubTransactionId subid;		/* its abort takes them away */
	Oid			heap;
	bool		altered;		/* it may be this level that has made them: node is
								 * not set */
	PmhashNode	node;			/* the files */
} FileLevel;

static List *notes = NIL;		/* FileLevel; of this transaction, in its context */

/* ---- notes ---- */

static FileLevel *
find_files(Relation heap)
{
	ListCell   *lc;

	foreach(lc, notes)
	{
		FileLevel  *one = lfirst(lc);

		if (!one->altered && one->heap == RelationGetRelid(heap) &&
			memcmp(&one->node, &pmhash_node(heap), sizeof(PmhashNode)) == 0)
			return one;
	}
	return NULL;
}

/* The last level that may have made the files, or InvalidSubTransactionId. */
static SubTransactionId
last_alter(Oid heap)
{
	SubTransactionId last = InvalidSubTransactionId;
	ListCell   *lc;

	foreach(lc, notes)
	{
		const FileLevel *one = lfirst(lc);

		if (one->altered && one->heap == heap)
			last = Max(last, one->subid);
	}
	return last;
}

/* ERROR if memory is short. */
static FileLevel *
add(Oid heap, SubTransactionId subid)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	FileLevel  *one = palloc0(sizeof(FileLevel));

	one->subid = subid;
	one->heap = heap;
	notes = lappend(notes, one);
	MemoryContextSwitchTo(old);
	return one;
}

/*
 * pmhash_level_of_files
 *		The level whose abort takes away the files that a table has now, which it has
 *		not had before this transaction (pmhash_node_subid).
 *
 * Never one further out.  If neither the server nor a note knows it, one further in, the
 * present one at the most, which may cost a rebuild.  ERROR if memory is short.
 */
SubTransactionId
pmhash_level_of_files(Relation heap)
{
	SubTransactionId subid = pmhash_fork_subid(heap);
	const FileLevel *noted = find_files(heap);

	if (noted != NULL)
		return noted->subid;
	if (subid != InvalidSubTransactionId)
	{
		add(RelationGetRelid(heap), subid)->node = pmhash_node(heap);
		return subid;
	}
	subid = last_alter(RelationGetRelid(heap));
	return subid != InvalidSubTransactionId ? subid : GetCurrentSubTransactionId();
}

/*
 * An index of this table, which is open, is being built: note which level has given
 * the table its files, if it was one of this transaction.
 */
void
pmhash_note_level_of(Oid heap)
{
	Relation	relation = relation_open(heap, NoLock);

	if (pmhash_node_subid(relation) != InvalidSubTransactionId)
		(void) pmhash_level_of_files(relation);
	relation_close(relation, NoLock);
}

/* ---- SET TABLESPACE ---- */

/* One that is locked by others may be. */
static bool
may_be_ours(Oid relid)
{
	Relation	index;
	bool		ours;

	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return true;
	index = try_relation_open(relid, NoLock);
	if (index == NULL)
		return false;
	ours = pmhash_is_index(index);
	relation_close(index, NoLock);
	return ours;
}

static bool
may_have_index_of_ours(Relation heap)
{
	List	   *indexes = heap->rd_rel->relhasindex ? RelationGetIndexList(heap) : NIL;
	bool		found = false;
	ListCell   *lc;

	foreach(lc, indexes)
	{
		found = may_be_ours(lfirst_oid(lc));
		if (found)
			break;
	}
	list_free(indexes);
	return found;
}

/*
 * A table is being altered.  One that this level has altered already needs no other note.
 * (One that is not locked is not moved.)
 */
void
pmhash_note_table_alter(Oid relid)
{
	Relation	heap;

	if (last_alter(relid) == GetCurrentSubTransactionId())
		return;
	/* (CheckRelationOidLockedByMe is not in all minor versions of 15 and 16.) */
	heap = RelationIdGetRelation(relid);
	if (heap == NULL)
		return;
	if (CheckRelationLockedByMe(heap, AccessExclusiveLock, true) &&
		may_have_index_of_ours(heap))
		add(relid, GetCurrentSubTransactionId())->altered = true;
	RelationClose(heap);
}

/* ---- ends of transactions ---- */

static void
transaction_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
		notes = NIL;			/* the memory goes with TopTransactionContext */
}

static void
subtransaction_callback(SubXactEvent event, SubTransactionId mySubid,
						SubTransactionId parentSubid, void *arg)
{
	ListCell   *lc;

	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return;
	foreach(lc, notes)
	{
		FileLevel  *one = lfirst(lc);

		if (one->subid != mySubid)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			one->subid = parentSubid;
		else
			notes = foreach_delete_current(notes, lc);
	}
}

/* Install the callbacks; children of the postmaster inherit them. */
void
pmhash_file_levels_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
	RegisterSubXactCallback(subtransaction_callback, NULL);
}
