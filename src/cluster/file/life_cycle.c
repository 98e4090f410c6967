/*-------------------------------------------------------------------------
 *
 * life_cycle.c
 *	  Files follow transactions.
 *
 * Made		on a list with the nesting level of its (sub)transaction; an abort
 *			of that level removes the file.  COMMIT and PREPARE keep it.
 * Dropped	the file of every pmhash index that is deleted is noted
 *			(hooks.c); it is removed after the commit record.  That is
 *			flushed by then: a transaction that drops relation files never
 *			commits asynchronously (xact.c, RecordTransactionCommit, nrels).
 *			An abort forgets it.  PREPARE forgets it too: what COMMIT PREPARED
 *			leaves is found by the cleaner.
 * Rebuilt	REINDEX, TRUNCATE, VACUUM FULL, CLUSTER, ALTER TABLE give the index
 *			a new main fork with a new stub.  Before commit the stubs of the main
 *			forks that are about to be deleted are read (storage.c knows which
 *			these are, smgrGetPendingDeletes), and the files that they name go
 *			as those of dropped indexes do.
 *
 * Neither means that no index has the file any more: SET TABLESPACE copies the main fork
 * and deletes the old one; ALTER TABLE ... TYPE may drop an index and create another one on
 * the same main fork (tablecmds.c, TryReuseIndex); both may be done in one transaction; and
 * DROP INDEX CONCURRENTLY calls the hook, then commits twice before the index goes
 * (index.c, index_drop).  So the rule is: a file goes with a transaction only if no stub of
 * an index on the same table names it when the transaction is about to commit.  (All these
 * leave the file with an index of the same table.)  Where that can't be found out, because
 * an index of the table is locked by another session or the table is not known, nothing is
 * removed and the cleaner is woken.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "cluster/base/am_callbacks.h"
#include "cluster/base/identity.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/file_cache.h"
#include "cluster/file/life_cycle.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/requests.h"
#include "cluster/wal/logged.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/wal_record.h"

/* A file whose fate hangs on a transaction; lives in TopMemoryContext. */
typedef struct Pending
{
	int			level;			/* nesting level of the transaction */
	SubTransactionId subid;		/* ... and its number */
	bool		drop;			/* else: created */
	bool		not_yet;		/* drop: the index is still there */
	Oid			relid;			/* of the index */
	PmhashFork	fork;			/* created: for its main fork */
	PmhashNode	table_node;		/* created: the main fork that its table had */
	Oid			heap;			/* drop: its table, or InvalidOid if no other index
								 * can have the file */
	uint64		file_id;		/* drop, with a table */
	bool		logged;			/* drop: standbys may have one like it */
	char	   *path;
} Pending;

static List *pending = NIL;
static bool forks_replaced = false; /* has this transaction deleted some? */
static bool rebuild_at_end = false; /* something can be rebuilt when it is over */
static Oid	cleaning_wanted = InvalidOid;	/* database to clean after commit */
static Oid	look_wanted = InvalidOid;	/* database made in this transaction */

/* ---- the list ---- */

static Pending *
add_pending(const char *path, Oid relid, bool drop)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Pending    *p = palloc0(sizeof(Pending));

	p->level = GetCurrentTransactionNestLevel();
	p->subid = GetCurrentSubTransactionId();
	p->drop = drop;
	p->relid = relid;
	p->path = pstrdup(path);
	pending = lappend(pending, p);
	MemoryContextSwitchTo(old);
	return p;
}

static void
free_pending(Pending *p)
{
	pfree(p->path);
	pfree(p);
}

/* The file at path is about to be made: an abort from here on removes it. */
void
pmhash_pending_create(const char *path, Relation index)
{
	Pending    *p = add_pending(path, RelationGetRelid(index), false);
	Relation	heap = RelationIdGetRelation(index->rd_index->indrelid);

	p->fork = pmhash_fork_of(index);
	if (heap != NULL)
	{
		p->table_node = pmhash_node(heap);
		RelationClose(heap);
	}
}

/*
 * The file made in this transaction for the main fork that an index has, into
 * path[MAXPGPATH]; false if there is none.
 */
bool
pmhash_pending_created(Relation index, char *path)
{
	PmhashFork	fork = pmhash_fork_of(index);

	for (int i = list_length(pending) - 1; i >= 0; i--)
	{
		const Pending *p = list_nth(pending, i);

		if (p->drop || p->relid != RelationGetRelid(index) ||
			memcmp(&p->fork, &fork, sizeof(fork)) != 0)
			continue;
		strlcpy(path, p->path, MAXPGPATH);
		return true;
	}
	return false;
}

/* An index has a new main fork: look what becomes of the old one before commit. */
void
pmhash_fork_replaced(void)
{
	forks_replaced = true;
}

/* The file at path is to stay, whatever becomes of the transaction. */
void
pmhash_pending_keep(const char *path)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);

		if (p->drop || strcmp(p->path, path) != 0)
			continue;
		free_pending(p);
		pending = foreach_delete_current(pending, lc);
	}
}

/*
 * Does each abort that takes away the main fork which a table has now remove the file at
 * path as well?  It does if the file was made when the table had that main fork, or, by
 * levels, not further out than the main fork.  (Of open levels the inner one has the
 * greater number.)  The server does not know which level made it if a later change was
 * rolled back (relcache.c, AtEOSubXact_cleanup): then only the first counts.
 */
bool
pmhash_goes_with_table(const char *path, Relation heap)
{
	SubTransactionId made = pmhash_fork_subid(heap);
	ListCell   *lc;

	foreach(lc, pending)
	{
		const Pending *p = lfirst(lc);

		if (!p->drop && strcmp(p->path, path) == 0)
			return memcmp(&p->table_node, &pmhash_node(heap), sizeof(PmhashNode)) == 0 ||
				(made != InvalidSubTransactionId && p->subid >= made);
	}
	return false;
}

/* An index is to be rebuilt as soon as this transaction has let its locks go. */
void
pmhash_rebuild_at_end(void)
{
	rebuild_at_end = true;
}

/* Something may be left over when this transaction has committed. */
void
pmhash_request_cleaning_at_commit(void)
{
	cleaning_wanted = MyDatabaseId;
}

/* ---- DROP ---- */

/*
 * An index is being deleted.  dependency.c holds the lock on it already
 * (AcquireDeletionLock).  The stub of another session's temporary index is in
 * that session's memory; its file goes with that backend.
 */
void
pmhash_note_drop(Oid relid)
{
	Relation	index = relation_open(relid, NoLock);
	char		path[MAXPGPATH];
	PmhashStub	stub;

	Assert(IsTransactionState());
	if (pmhash_is_index(index) && !RELATION_IS_OTHER_TEMP(index) &&
		pmhash_shared != NULL && pmhash_shared->usable)
	{
		PmhashLook	look = pmhash_stub_look(index, &stub);

		pmhash_stub_may_go(pmhash_node(index), look);
		if (look == PMHASH_LOOK_UNREADABLE)
			pmhash_request_cleaning_at_commit();
		else if (look == PMHASH_LOOK_STUB && stub.file_id != 0)
		{
			Pending    *p;

			pmhash_file_path(path, MyDatabaseId, stub.file_id);
			p = add_pending(path, relid, true);
			p->heap = index->rd_index->indrelid;
			p->file_id = stub.file_id;
			p->logged = pmhash_flags_logged(stub.flags);
		}
	}
	relation_close(index, NoLock);
}

/* A database is being dropped. */
void
pmhash_note_database_drop(Oid database)
{
	cleaning_wanted = database;
}

/* A database has been made by this transaction. */
void
pmhash_note_database(Oid database)
{
	pmhash_database_is_new(database);
	look_wanted = database;
}

/* ---- before commit: which index has a file now? ---- */

typedef enum Owned
{
	OWNED_NO,
	OWNED_YES,
	OWNED_UNKNOWN				/* an index can't be looked at */
} Owned;

/* Does the stub of this index name the file? */
static Owned
named_by(Oid relid, uint64 file_id)
{
	Relation	index;
	Owned		result = OWNED_NO;
	PmhashStub	stub;

	/* Another session may be rebuilding it, and be about to look at ours. */
	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return OWNED_UNKNOWN;
	index = try_relation_open(relid, NoLock);
	if (index == NULL)
		return OWNED_NO;
	if (pmhash_is_index(index))
	{
		PmhashLook	look = pmhash_stub_look(index, &stub);

		if (look == PMHASH_LOOK_UNREADABLE)
			result = OWNED_UNKNOWN;
		else if (look == PMHASH_LOOK_STUB && stub.file_id == file_id)
			result = OWNED_YES;
	}
	relation_close(index, NoLock);
	return result;
}

/* Does the stub of an index on this table name the file?  We have a lock on it. */
static Owned
named_on_table(Oid heap_oid, uint64 file_id)
{
	Relation	heap = NULL;
	ListCell   *lc;
	Owned		result = OWNED_NO;

	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(heap_oid)))
		heap = try_relation_open(heap_oid, AccessShareLock);
	if (heap == NULL)
		return OWNED_NO;
	foreach(lc, RelationGetIndexList(heap))
	{
		Owned		one = named_by(lfirst_oid(lc), file_id);

		if (one == OWNED_NO)
			continue;
		result = one;
		if (one == OWNED_YES)
			break;
	}
	relation_close(heap, NoLock);
	return result;
}

/*
 * Before commit: which of the drops are real?  Drops that are noted after
 * this (ON COMMIT DROP) are.
 */
static void
verify_drops(void)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);
		Owned		owned;

		if (!p->drop || !OidIsValid(p->heap))
			continue;
		p->not_yet = SearchSysCacheExists1(RELOID, ObjectIdGetDatum(p->relid));
		if (p->not_yet)
			continue;
		owned = named_on_table(p->heap, p->file_id);
		if (owned == OWNED_NO)
			continue;
		if (owned == OWNED_UNKNOWN)
			pmhash_request_cleaning_at_commit();
		free_pending(p);
		pending = foreach_delete_current(pending, lc);
	}
}

/* Is the file at path on the list of those that go with this transaction? */
static bool
is_pending_drop(const char *path)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		const Pending *p = lfirst(lc);

		if (p->drop && strcmp(p->path, path) == 0)
			return true;
	}
	return false;
}

static void
note_gone(Pending *p, uint64 file_id, bool logged)
{
	p->file_id = file_id;
	p->logged = logged;
}

/* A main fork whose stub names this file is about to be deleted. */
static void
note_replaced(uint64 file_id, bool logged)
{
	char		path[MAXPGPATH];
	PmhashIdentity id;
	PmhError	error;
	PmhResult	result;
	Oid			heap;

	pmhash_file_path(path, MyDatabaseId, file_id);
	if (is_pending_drop(path))
		return;
	result = pmh_read_identity(path, &id, &error);
	if (result == PMH_ERR_NO_FILE ||
		(result == PMH_OK && (id.file_id != file_id || id.database != MyDatabaseId)))
		return;
	heap = result == PMH_OK ? IndexGetRelation(id.index_oid, true) : InvalidOid;
	if (!OidIsValid(heap))
		pmhash_request_cleaning_at_commit();
	else
		switch (named_on_table(heap, file_id))
		{
			case OWNED_NO:
				note_gone(add_pending(path, id.index_oid, true), file_id, logged);
				break;
			case OWNED_UNKNOWN:
				pmhash_request_cleaning_at_commit();
				break;
			case OWNED_YES:
				break;
		}
}

/* Before commit: which files go with the main forks that are replaced? */
static void
note_replaced_forks(void)
{
	PmhashNode *node;
	int			n = smgrGetPendingDeletes(true, &node);

	for (int i = 0; i < n; i++)
	{
		PmhashStub	stub;
		PmhashLook	look = pmhash_stub_look_at(node[i], &stub);

		pmhash_stub_may_go(node[i], look);
		if (look == PMHASH_LOOK_UNREADABLE)
			pmhash_request_cleaning_at_commit();
		else if (look == PMHASH_LOOK_STUB && stub.file_id != 0)
			note_replaced(stub.file_id, pmhash_flags_logged(stub.flags));
	}
	if (n > 0)
		pfree(node);
}

/* The same for a file of a temporary index. */
static void
note_replaced_session_file(const char *path, Oid heap, uint64 file_id)
{
	if (!is_pending_drop(path) && named_on_table(heap, file_id) == OWNED_NO)
		(void) add_pending(path, InvalidOid, true);
}

/*
 * Before commit: tell standbys of the files that go.  Should the commit fail after
 * that, they build theirs again.
 */
static void
log_drops(void)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		const Pending *p = lfirst(lc);

		if (p->drop && p->logged && !p->not_yet)
			(void) pmhash_wal_log_file_gone(p->file_id, MyDatabaseId);
	}
}

/* ---- end of transactions ---- */

/*
 * What is noted when the transaction has begun to end (ON COMMIT DROP) has not been
 * verified, and is real.  Raises no error, and allocates nothing.
 */
void
pmhash_files_committed(void)
{
	ListCell   *lc;
	int			kept = 0;

	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);

		if (p->not_yet)
		{
			lfirst(list_nth_cell(pending, kept++)) = p;
			continue;
		}
		if (p->drop)
			pmhash_remove_file(p->path);	/* nobody has a lock on its index, or will */
		free_pending(p);
	}
	if (kept > 0)
		pending = list_truncate(pending, kept);
	else
	{
		list_free(pending);
		pending = NIL;
	}
	forks_replaced = false;
	if (OidIsValid(cleaning_wanted))
		pmhash_request(cleaning_wanted, PMHASH_JOB_CLEAN);
	if (OidIsValid(look_wanted))
		pmhash_request(look_wanted, PMHASH_JOB_PLAIN);
	cleaning_wanted = InvalidOid;
	look_wanted = InvalidOid;
}

/* Abort of what is at this nesting level or below. */
void
pmhash_files_aborted(int level)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);

		if (p->level < level)
			continue;
		if (!p->drop)
			pmhash_unlink(p->path);
		free_pending(p);
		pending = foreach_delete_current(pending, lc);
	}
	if (level <= 1)
	{
		forks_replaced = false;
		cleaning_wanted = InvalidOid;
		look_wanted = InvalidOid;
	}
}

/* Now it is for the cleaner to follow the prepared transaction. */
void
pmhash_files_prepared(void)
{
	ListCell   *lc;

	foreach(lc, pending)
		free_pending(lfirst(lc));
	list_free(pending);
	pending = NIL;
	forks_replaced = false;
	cleaning_wanted = InvalidOid;
}

/* The transaction is about to commit: find out which files go. */
void
pmhash_files_before_commit(void)
{
	verify_drops();
	if (forks_replaced)
		note_replaced_forks();
	pmhash_session_files_look(note_replaced_session_file);
	log_drops();
}

/* The transaction has ended, in whatever way. */
void
pmhash_files_over(void)
{
	if (rebuild_at_end)
		pmhash_request(MyDatabaseId, PMHASH_JOB_PLAIN);
	rebuild_at_end = false;
}

/* A level has become part of its parent. */
void
pmhash_files_to_parent(int level, SubTransactionId subid, SubTransactionId parent)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);

		p->level = Min(p->level, level - 1);
		if (p->subid == subid)
			p->subid = parent;
	}
}
