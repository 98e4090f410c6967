/*-------------------------------------------------------------------------
 *
 * orphans.c
 *	  A worker's look at its database: index files that no index owns are removed, and indexes
 *	  are found that have no usable file.
 *
 * A file of a database is an orphan if no stub in that database names it and
 * none can come to name it any more.  In this order, which matters:
 *
 *	(1) list the files.  Only these are judged.  The create lock is taken once
 *		for it, so each has a header unless its creation was cut off.
 *	(2) leave out the files whose creating transaction is in progress, which
 *		includes prepared ones: their stubs are in main forks we can't see.
 *		Leave out temporary files of this server life whose backend is alive.
 *	(3) with a newer snapshot, read the stubs of all pmhash indexes, in the main forks that
 *		they have in pg_class.  None is locked, so one may have got another main fork by
 *		then, or have gone, and handed it to an index that this snapshot does not see
 *		(tablecmds.c, TryReuseIndex): such a one may name any file, and so may one that
 *		can't be read.
 *	(4) remove the rest, and cut it off, as nobody reads it; nothing if some stub could not be
 *		read: the next look may.
 *
 * A transaction that was over at (2) is visible at (3) or never will be.  An
 * index that another session is dropping or rebuilding is still visible with
 * its old main fork at (3), which has its stub until that transaction has committed, and
 * this is durable by then (see life_cycle.c).  A stub that is marked invalid owns its file
 * until the rebuild removes that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/procarray.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/wal/stub.h"
#include "cluster/workers/workers.h"

/* ---- (2) makers ---- */

/* Is the transaction that made a file still in progress, or prepared? */
static bool
creator_in_progress(uint64 xid)
{
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());

	/* A crash may have taken the number back; old ones are over anyway. */
	if (xid == 0 || xid >= next || next - xid > PG_INT32_MAX)
		return false;
	return TransactionIdIsInProgress((TransactionId) xid);
}

/* A file that may be an orphan; file_id comes first (compare_ids). */
typedef struct ListedFile
{
	uint64		file_id;
	Oid			made_for;		/* index, or InvalidOid: not known */
	bool		owned;			/* a stub names it */
} ListedFile;

/*
 * May a process at work need the file, without a stub that we can see?  A file
 * without a valid header is one whose creation was cut off: its maker holds
 * the create lock until it has its header (file_create.c, make_file), and it
 * was listed under that lock.  A temporary one that its session could not remove stays as
 * long as any has that one's number.
 */
static bool
maker_is_alive(ListedFile *file)
{
	char		path[MAXPGPATH];
	PmhashIdentity id;
	PmhHead		head;
	PmhError	error;
	PmhResult	result;

	pmhash_file_path(path, MyDatabaseId, file->file_id);
	result = pmh_examine(path, &head, &error);
	file->made_for = InvalidOid;
	if (result == PMH_ERR_FORMAT || result == PMH_ERR_VERSION || result == PMH_ERR_CORRUPT)
		return false;
	if (result != PMH_OK)
		return true;
	memcpy(&id, head.identity, sizeof(id));
	file->made_for = id.index_oid;
	if (id.flags & PMHASH_IDENTITY_TEMP)
		return id.instance == pmhash_shared->instance &&
			BackendPidGetProc((int) id.owner_pid) != NULL;
	return creator_in_progress(id.creator_xid);
}

static int
compare_ids(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* The files that processes at work do not need, sorted; *n says how many. */
static ListedFile *
find_candidates(int *n)
{
	int			room = 64;
	int			n_files = 0;
	ListedFile *files = palloc(room * sizeof(ListedFile));
	char		path[MAXPGPATH];
	DIR		   *dir;
	struct dirent *de;

	pmhash_database_path(path, MyDatabaseId);
	LWLockAcquire(pmhash_lwlock(PMHASH_CREATE_LOCK), LW_EXCLUSIVE);
	dir = AllocateDir(path);
	while ((de = ReadDirExtended(dir, path, DEBUG1)) != NULL)
	{
		if (n_files == room)
			files = repalloc(files, (room *= 2) * sizeof(ListedFile));
		files[n_files] = (ListedFile) {0};
		n_files += pmhash_parse_file_name(de->d_name, &files[n_files].file_id);
	}
	FreeDir(dir);
	LWLockRelease(pmhash_lwlock(PMHASH_CREATE_LOCK));
	PMH_STOP_POINT("worker_listed");
	*n = 0;
	for (int i = 0; i < n_files; i++)
	{
		CHECK_FOR_INTERRUPTS();
		files[*n] = files[i];
		if (!maker_is_alive(&files[*n]))
			(*n)++;
	}
	qsort(files, *n, sizeof(ListedFile), compare_ids);
	return files;
}

/* ---- (3) stubs ---- */

/* Which main fork has an index by now?  False: it has gone. */
static bool
fork_of(Oid relid, PmhashNode *node)
{
	HeapTuple	tuple;
	Form_pg_class index;

	AcceptInvalidationMessages();	/* sent before a main fork is deleted (xact.c) */
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return false;
	index = (Form_pg_class) GETSTRUCT(tuple);
	*node = pmhash_make_node(OidIsValid(index->reltablespace) ? index->reltablespace :
							 MyDatabaseTableSpace, MyDatabaseId, index->relfilenode);
	ReleaseSysCache(tuple);
	return true;
}

/* An index may have no usable file; those of constraints come first. */
static void
note_lacking(Oid relid, List **lacking)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);	/* to the worker's end */
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(relid));
	Form_pg_index form = HeapTupleIsValid(tuple) ? (Form_pg_index) GETSTRUCT(tuple) : NULL;

	if (form != NULL && (form->indisexclusion || form->indisunique))
		*lacking = lcons_oid(relid, *lacking);
	else
		*lacking = lappend_oid(*lacking, relid);
	if (form != NULL)
		ReleaseSysCache(tuple);
	MemoryContextSwitchTo(old);
}

/* Look which file an index has.  False: that is not known. */
static bool
look_at_index(Oid relid, ListedFile *files, int n, List **lacking)
{
	PmhashNode	node;
	PmhashNode	later;
	PmhashStub	stub;
	PmhashLook	look;
	ListedFile *file;

	if (!fork_of(relid, &node))
		return false;
	look = pmhash_stub_look_at(node, &stub);
	if (look != PMHASH_LOOK_STUB)
	{
		note_lacking(relid, lacking);
		return look == PMHASH_LOOK_EMPTY && fork_of(relid, &later) &&
			memcmp(&node, &later, sizeof(node)) == 0;
	}
	file = bsearch(&stub.file_id, files, n, sizeof(ListedFile), compare_ids);
	if (file != NULL)
		file->owned = true;
	if (!pmhash_stub_serves(stub.flags, PMHASH_READ) || pmhash_stub_wants_look(&stub))
		note_lacking(relid, lacking);
	return true;
}

/* ---- (4) ---- */

/*
 * Remove the orphans of the database this worker is connected to; *lacking: indexes whose
 * files are to be looked at.  In a transaction.  False if there may be some left.
 */
bool
pmhash_remove_orphans(List **lacking)
{
	ListedFile *files;
	int			n;
	int			n_orphans = 0;
	int			n_unknown = 0;
	ListCell   *lc;

	Assert(IsTransactionState() && !RecoveryInProgress());
	pmhash_require_service(NULL);
	files = find_candidates(&n);
	PMH_STOP_POINT("worker_before_stubs");
	InvalidateCatalogSnapshot();
	*lacking = NIL;
	foreach(lc, pmhash_list_indexes(false))
	{
		CHECK_FOR_INTERRUPTS();
		if (!look_at_index(lfirst_oid(lc), files, n, lacking))
			n_unknown++;
	}
	PMH_STOP_POINT("worker_before_removal");
	for (int i = 0; i < n; i++)
	{
		if (files[i].owned)
			continue;
		n_orphans++;
		/* no file of another cluster, whose pool may have replaced ours */
		if (n_unknown > 0 || !pmhash_pool_is_present())
			continue;
		pmhash_remove_file(MyDatabaseId, files[i].file_id, true);
		if (OidIsValid(files[i].made_for))	/* who has it mapped lets it go */
			pmhash_forget_plans(MyDatabaseId, files[i].made_for);
	}
	pmhash_rebuild_forget(MyDatabaseId, InvalidOid, *lacking);
	return n_orphans == 0 || n_unknown == 0;
}
