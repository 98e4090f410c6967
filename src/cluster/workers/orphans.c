/*-------------------------------------------------------------------------
 *
 * orphans.c
 *	  Removing index files that no index owns.
 *
 * A file of a database is an orphan if no stub in that database names it and
 * none can come to name it any more.  In this order, which matters:
 *
 *	(1) list the files.  Only these are judged.  The create lock is taken once
 *		for it, so each file that was made without a transaction (unlogged
 *		index after a crash) has its stub by now, and each has a header unless
 *		its creation was cut off.
 *	(2) leave out the files whose creating transaction is in progress, which
 *		includes prepared ones: their stubs are in main forks we can't see.
 *		Leave out temporary files of this server life whose backend is alive.
 *	(3) with a newer snapshot, read the stubs of all pmhash indexes, in the main forks that
 *		they have in pg_class.  None is locked, so one may have got another main fork by
 *		then, or have gone, and handed it to an index that this snapshot does not see
 *		(tablecmds.c, TryReuseIndex): such a one may name any file, and so may one that
 *		can't be read.  One that has none yet may be about to name a file made for it.
 *		A stub that is marked invalid does not count: its file will not be opened.
 *	(4) remove the rest, and cut off what no stub names: nobody reads it.  If
 *		some stub could not be read, only what belongs to other indexes: files made
 *		for an index that still is there and whose stub names another one.
 *
 * A transaction that was over at (2) is visible at (3) or never will be.  An
 * index that another session is dropping or rebuilding is still visible with
 * its old main fork at (3), which has its stub until that transaction has committed, and
 * this is durable by then (see life_cycle.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/base/versions.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/open/open.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/wal/logged.h"
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

/*
 * May a process at work need the file, without a stub that we can see?  A file
 * without a valid header is one whose creation was cut off: its maker holds
 * the create lock until it has its header (file_create.c, make_file), and it
 * was listed under that lock.  A temporary one that its session could not remove stays as
 * long as any has that one's number.
 */
static bool
maker_is_alive(const char *path)
{
	PmhashIdentity id;
	PmhError	error;
	PmhResult	result = pmh_read_note(path, &id, NULL, &error);

	if (result == PMH_ERR_FORMAT || result == PMH_ERR_VERSION ||
		result == PMH_ERR_CORRUPT)
		return false;
	if (result != PMH_OK)
		return true;
	if (id.flags & PMHASH_IDENTITY_TEMP)
		return id.instance == pmhash_shared->instance &&
			BackendPidGetProc((int) id.owner_pid) != NULL;
	return creator_in_progress(id.creator_xid);
}

/* Leave out the files that processes at work may need; returns how many are left. */
static int
drop_protected(uint64 *files, int n)
{
	char		path[MAXPGPATH];
	int			kept = 0;

	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		pmhash_file_path(path, MyDatabaseId, files[i]);
		if (!maker_is_alive(path))
			files[kept++] = files[i];
	}
	return kept;
}

/* ---- (3) stubs ---- */

/* A file that stubs name; its name is the key. */
typedef struct NamedFile
{
	uint64		file_id;
	bool		invalid;		/* they are all marked: it will not be opened */
} NamedFile;

/* An index whose main fork was looked at; its OID is the key. */
typedef struct KnownIndex
{
	Oid			oid;
	bool		empty;			/* it has no stub yet */
} KnownIndex;

/* What the stubs of a database say. */
typedef struct Owners
{
	HTAB	   *named;			/* NamedFile */
	HTAB	   *known;			/* KnownIndex */
	int			unknown;		/* stubs that can't be read */
} Owners;

/* A table in this transaction, with a key that each entry begins with. */
static HTAB *
make_table_of(const char *name, Size key, Size entry)
{
	HASHCTL		ctl = {.keysize = key, .entrysize = entry, .hcxt = TopTransactionContext};

	return hash_create(name, 256, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* A stub names a file. */
static void
note_named(Owners *owners, uint64 file_id, bool invalid)
{
	bool		found;
	NamedFile  *named = hash_search(owners->named, &file_id, HASH_ENTER, &found);

	named->invalid = invalid && (!found || named->invalid);
}

/* Say that the stub page of an index is damaged, once. */
static void
complain_once(Oid relid, const char *name, const char *why)
{
	if (!pmhash_first_complaint(relid))
		return;
	ereport(LOG,
			(errmsg("pmhash could not determine which file %s has: %s",
					pmhash_index_label(relid, name), why),
			 errdetail("Files that may belong to it are kept."),
			 errhint("REINDEX INDEX makes a new stub page.")));
}

/* Which main fork has an index by now, and what is its name?  False: it has gone. */
static bool
fork_of(Oid relid, PmhashNode *node, NameData *name)
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
	*name = index->relname;
	ReleaseSysCache(tuple);
	return true;
}

/*
 * The file that an index had when its stub was read is lacking, or cut off: mark the index,
 * unless it has another one by now, so that sessions that map the file learn of it, and have it
 * rebuilt.  Does not wait for a lock: it is looked at again.
 */
static void
mark_lacking(Oid relid, uint64 file_id, PmhashReason reason)
{
	Relation	index = NULL;

	PMH_STOP_POINT("cleaner_found_lacking");
	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return;
	if (SearchSysCacheExists1(INDEXRELID, ObjectIdGetDatum(relid)))
		index = try_relation_open(relid, NoLock);
	if (index != NULL && index->rd_index->indisready && index->rd_index->indislive)
		pmhash_mark_invalid(index, file_id, 0, reason);
	if (index != NULL)
		relation_close(index, NoLock);
	UnlockRelationOid(relid, AccessShareLock);
}

/* Note what the stub of an index says. */
static void
note_owner(Oid relid, Owners *owners)
{
	PmhashNode	node;
	PmhashNode	later;
	NameData	name;
	PmhashStub	stub;
	PmhashLook	look;
	PmhashReason reason;
	KnownIndex *known;

	if (!fork_of(relid, &node, &name))
	{
		owners->unknown++;
		return;
	}
	look = pmhash_stub_look_at(node, &stub);
	if (look == PMHASH_LOOK_STUB ||
		(look == PMHASH_LOOK_EMPTY && fork_of(relid, &later, &name) &&
		 memcmp(&node, &later, sizeof(node)) == 0))
	{
		known = hash_search(owners->known, &relid, HASH_ENTER, NULL);
		known->empty = look == PMHASH_LOOK_EMPTY;
		if (known->empty)
			return;
		note_named(owners, stub.file_id, (stub.flags & PMHASH_STUB_INVALID) != 0);
		if (!pmhash_stub_serves(stub.flags, PMHASH_READ))
			pmhash_rebuild_wanted(relid);	/* it may have been marked while that was off */
		else if ((stub.flags & PMHASH_STUB_NEW_FILE) == 0 &&
				 (reason = pmhash_stub_doubt(&stub)) != PMHASH_REASON_NONE)
			mark_lacking(relid, stub.file_id, reason);
		return;
	}
	owners->unknown++;
	if (look != PMHASH_LOOK_EMPTY)
		complain_once(relid, NameStr(name),
					  look == PMHASH_LOOK_OTHER ? "its page is no stub page" :
					  errno != 0 ? strerror(errno) : "its stub page is damaged");
}

/* ---- (4) ---- */

/*
 * May an index whose stub can't be read, or is not there yet, own this file, that no other
 * stub names?  Not if it was made for one that still is there and has a stub: a main fork,
 * and the stub in it, goes to an index with another OID only when the index that it was made
 * for is dropped (tablecmds.c, TryReuseIndex).
 */
static bool
may_be_owned(const Owners *owners, const char *path, Oid *made_for)
{
	PmhashIdentity id;
	PmhError	error;
	PmhResult	result = pmh_read_note(path, &id, NULL, &error);

	*made_for = InvalidOid;
	if (result == PMH_OK)
	{
		const KnownIndex *known = hash_search(owners->known, &id.index_oid, HASH_FIND, NULL);

		*made_for = id.index_oid;
		return known != NULL ? known->empty : owners->unknown > 0;
	}
	return owners->unknown > 0 && result != PMH_ERR_FORMAT &&
		result != PMH_ERR_VERSION && result != PMH_ERR_CORRUPT;
}

/* Returns how many cannot be judged. */
static int
remove_orphans(const uint64 *files, int n, const Owners *owners)
{
	char		path[MAXPGPATH];
	int			removed = 0;
	int			kept = 0;

	for (int i = 0; i < n; i++)
	{
		const NamedFile *named = hash_search(owners->named, &files[i], HASH_FIND, NULL);
		Oid			made_for;

		if (named != NULL && !named->invalid)
			continue;
		pmhash_file_path(path, MyDatabaseId, files[i]);
		if (may_be_owned(owners, path, &made_for))
		{
			kept++;
			continue;
		}
		if (named != NULL)
			pmhash_unlink(MyDatabaseId, files[i]);	/* scans from before the mark go on */
		else
			pmhash_remove_file(files[i]);
		if (OidIsValid(made_for))
			pmhash_forget_plans(MyDatabaseId, made_for);	/* who has it mapped lets it go */
		removed++;
	}
	if (removed > 0)
		ereport(DEBUG1,
				(errmsg("pmhash: removed %d files that no index owns", removed)));
	return kept;
}

/*
 * Remove the orphans of the database this worker is connected to, and look
 * after the files of its indexes.
 */
PmhashWorkerResult
pmhash_remove_orphans(void)
{
	uint64	   *files;
	int			n;
	Owners		owners = {0};
	ListCell   *lc;
	int			kept;

	Assert(IsTransactionState() && !RecoveryInProgress());
	pmhash_require_service(NULL);
	LWLockAcquire(pmhash_lwlock(PMHASH_CREATE_LOCK), LW_EXCLUSIVE);
	files = pmhash_list_files(MyDatabaseId, &n);
	LWLockRelease(pmhash_lwlock(PMHASH_CREATE_LOCK));

	PMH_STOP_POINT("cleaner_listed");
	n = drop_protected(files, n);
	PMH_STOP_POINT("cleaner_before_stubs");
	owners.named = make_table_of("pmhash named files", sizeof(uint64), sizeof(NamedFile));
	owners.known = make_table_of("pmhash known indexes", sizeof(Oid), sizeof(KnownIndex));
	InvalidateCatalogSnapshot();
	foreach(lc, pmhash_list_indexes(false))
	{
		CHECK_FOR_INTERRUPTS();
		note_owner(lfirst_oid(lc), &owners);
	}
	PMH_STOP_POINT("cleaner_before_removal");
	kept = remove_orphans(files, n, &owners);
	return kept > 0 ? PMHASH_WORKER_LEFT_SOME :
		hash_get_num_entries(owners.known) + owners.unknown == 0 ? PMHASH_WORKER_FOUND_NOTHING :
		PMHASH_WORKER_DONE;
}

/* Remove a file of past eras, or of a cluster whose pool this was. */
static bool
remove_if_past(const char *path, Oid database, uint64 file_id, void *arg)
{
	const PmhashControl *control = &pmhash_shared->control;
	PmhashIdentity id;
	PmhError	error;

	CHECK_FOR_INTERRUPTS();
	if (file_id == 0)
		return true;

	/* A build that is published comes under the same name, with this lock. */
	LWLockAcquire(pmhash_lwlock(PMHASH_STANDBY_LOCK), LW_SHARED);
	if (pmh_read_note(path, &id, NULL, &error) == PMH_OK &&
		id.version == PMHASH_IDENTITY_VERSION &&
		(id.dax_era != control->dax_era ||
		 id.system_identifier != control->system_identifier))
	{
		PMH_STOP_POINT("distrusted_before_unlink");
		pmhash_unlink(database, file_id);
	}
	LWLockRelease(pmhash_lwlock(PMHASH_STANDBY_LOCK));
	return true;
}

/*
 * On a standby: remove the files that were made before it became one.  The eras were renewed
 * when it started (trust.c, reason_for_doubt), so they will never be opened, and there is no
 * stub to look at.  What is made after a promotion has the new eras and is left alone.
 */
void
pmhash_remove_distrusted(void)
{
	Assert(!IsTransactionState());
	(void) pmhash_visit_files(InvalidOid, remove_if_past, NULL);
}
