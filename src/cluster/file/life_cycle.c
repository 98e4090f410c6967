/*-------------------------------------------------------------------------
 *
 * life_cycle.c
 *	  Files follow transactions, sessions and databases.
 *
 * Made		on a list with the number of its (sub)transaction; an abort of that
 *			removes the file.  COMMIT and PREPARE keep it.
 * Gone		The stub in the main fork of an index names its file.  Where the server deletes a
 *			main fork at commit (storage.c knows which these are, smgrGetPendingDeletes),
 *			because the index is dropped or gets another one (REINDEX, TRUNCATE, VACUUM FULL,
 *			CLUSTER, ALTER TABLE), the stub is read before, and the file that it names is
 *			removed after the commit record.  That is flushed by then: a transaction that
 *			drops relation files never commits asynchronously (xact.c,
 *			RecordTransactionCommit, nrels).  What COMMIT PREPARED leaves is found by a
 *			worker.
 *
 * (ALTER TABLE ... TYPE may drop an index and create another one on the same main fork: that
 * is not deleted then, tablecmds.c, TryReuseIndex.)  Where a stub can't be read a worker is
 * requested.  SET TABLESPACE copies the main fork and deletes the old one, and the file stays:
 * no index is dropped or built, so no stub is looked at.  One that is moved by a transaction in
 * which another is loses its file, and is rebuilt.
 *
 * The files of temporary indexes go with their transactions as others do, which at the latest
 * is the one in which a session that ends drops its tables (namespace.c,
 * RemoveTempRelationsCallback).  But storage.c does not tell of their main forks.  So they
 * stay on the list when they are committed; and when a temporary index has been dropped or got
 * another main fork, the commit removes each file on the list that the stub of no index on its
 * table names then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "cluster/base/control_file.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/wal_record.h"

/* A file that was made in this session, as long as it may have to go; in TopMemoryContext. */
typedef struct Made
{
	SubTransactionId subid;		/* whose abort removes it, or InvalidSubTransactionId: it stays
								 * with a temporary index */
	bool		temporary;
	PmhashFork	fork;			/* that it was made for */
	PmhashNode	table_node;		/* the main fork that its table had */
	Oid			heap;			/* that table */
	uint64		file_id;
} Made;

static List *made = NIL;		/* the last one last */
static List *leaving = NIL;		/* ids of those that go if the transaction commits; likewise */
static int	forks_may_go = 0;	/* which have stubs, at so many commits: DROP INDEX CONCURRENTLY
								 * deletes them in its third transaction */
static bool temporary_may_go = false;	/* files of temporary indexes: at the next commit, as ON
										 * COMMIT comes when it has been looked which do */
static Oid	visit_wanted = InvalidOid;	/* database to be looked after when it has committed */

/* What was made with this id, or NULL. */
static Made *
find_made(uint64 file_id)
{
	ListCell   *lc;

	foreach(lc, made)
	{
		if (((Made *) lfirst(lc))->file_id == file_id)
			return lfirst(lc);
	}
	return NULL;
}

/* Take a file off the list, if it is there. */
static void
forget_made(Made *file)
{
	if (file == NULL)
		return;
	made = list_delete_ptr(made, file);
	pfree(file);
}

/*
 * Remove a file.  It may be gone already.  Never raises an error, since it is called after
 * commit and in aborts: what can't be removed is logged, and tried again by a worker.
 *
 * Idle sessions may keep it mapped for days.  So one that nobody uses any more, or will, is
 * cut off, as the server does with its own files (md.c, mdunlinkfork), for its space to be
 * free at once: when it has no name any more, so that none meets it cut off.
 */
void
pmhash_remove_file(Oid database, uint64 file_id, bool cut_off)
{
	char		path[MAXPGPATH];
	int			fd = -1;

	pmhash_file_path(path, database, file_id);
	if (cut_off)
		fd = BasicOpenFile(path, O_WRONLY | PG_BINARY);
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not remove file \"%s\": %m", path)));
	pmhash_entries_of_removed(file_id);
	forget_made(find_made(file_id));
	if (fd < 0)
		return;
	if (ftruncate(fd, 0) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not truncate removed file: %m")));
	(void) close(fd);
}

/* ==== databases ==== */

/*
 * A row of pg_database has been inserted, and no process can see it yet.
 *
 * The OID of a database that has been dropped may come back: CREATE DATABASE ... OID.
 * If the template is an older copy of that one, stubs of the new database name files of
 * the dropped one, and say that they are of this database; and so do these files.  All
 * agrees, but they have what the dropped database had in the end.  So what is left in the
 * pool goes before anything is copied, as the server guards its own files (dbcommands.c,
 * check_db_file_conflict).
 *
 * The index of its OIDs has let it in, so there is no other one with this OID, and those
 * that were connected to one are gone (DROP DATABASE sees to that).  ERROR if files of
 * that may be left.  (If the pool is not usable, no file that is there will be trusted again.)
 */
void
pmhash_note_database(Oid database)
{
	char		path[MAXPGPATH];

	Assert(OidIsValid(database) && IsTransactionState());
	if (pmhash_shared != NULL && pmhash_shared->usable)
	{
		pmhash_require_pool_present();
		pmhash_rebuild_forget(database, InvalidOid, NIL);
		pmhash_remove_dropped(database);
		pmhash_database_path(path, database);
		if (access(path, F_OK) == 0 || errno != ENOENT)
			ereport(ERROR,
					(errcode(ERRCODE_IO_ERROR),
					 errmsg("could not remove index files of a dropped database with OID %u",
							database),
					 errdetail("The server log says why."),
					 errhint("Give the new database another OID, or none.")));
	}
	visit_wanted = database;
}

/* ==== files of transactions ==== */

/* A file is about to be made: an abort from here on removes it. */
void
pmhash_pending_create(uint64 file_id, Relation index)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Made	   *file = palloc0(sizeof(Made));
	Relation	heap;

	Assert(IsTransactionState());
	file->subid = GetCurrentSubTransactionId();
	file->temporary = index->rd_rel->relpersistence == RELPERSISTENCE_TEMP;
	file->fork = pmhash_fork_of(index);
	file->heap = index->rd_index->indrelid;
	file->file_id = file_id;
	made = lappend(made, file);
	MemoryContextSwitchTo(old);
	heap = RelationIdGetRelation(file->heap);
	if (heap != NULL)
	{
		file->table_node = pmhash_node(heap);
		RelationClose(heap);
	}
}

/*
 * The file made for the main fork that an index has, in this transaction or, for a temporary
 * one, in this session; 0: there is none.
 */
uint64
pmhash_made_for(Relation index)
{
	PmhashFork	fork = pmhash_fork_of(index);

	Assert(IsTransactionState());
	for (int i = list_length(made) - 1; i >= 0; i--)
	{
		const Made *file = list_nth(made, i);

		if (memcmp(&file->fork, &fork, sizeof(fork)) == 0)
			return file->file_id;
	}
	return 0;
}

/* An index has a new main fork, or goes: look what becomes of the old one before commit. */
void
pmhash_fork_replaced(Relation index)
{
	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		temporary_may_go = true;
	else
		forks_may_go = Max(forks_may_go, 1);
}

/* A file is to stay, whatever becomes of the transaction. */
void
pmhash_pending_keep(uint64 file_id)
{
	Made	   *file = find_made(file_id);

	if (file == NULL)
		return;
	file->subid = InvalidSubTransactionId;
	if (!file->temporary)
		forget_made(file);
}

/*
 * Does each abort that takes away the main fork which a table has now remove the file as
 * well?  It does if the file was made when the table had that main fork already.
 */
bool
pmhash_goes_with_table(uint64 file_id, Relation heap)
{
	const Made *file = find_made(file_id);

	Assert(pmhash_node_subid(heap) != InvalidSubTransactionId);
	return file != NULL && file->subid != InvalidSubTransactionId &&
		memcmp(&file->table_node, &pmhash_node(heap), sizeof(PmhashNode)) == 0;
}

/* Something may be left over in a database when this transaction has committed. */
void
pmhash_visit_at_commit(Oid database)
{
	visit_wanted = database;
}

/* ---- DROP ---- */

/* A file goes if this transaction commits. */
static void
add_leaving(uint64 file_id)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	uint64	   *id = palloc(sizeof(uint64));

	Assert(file_id != 0);
	*id = file_id;
	leaving = lappend(leaving, id);
	MemoryContextSwitchTo(old);
}

/*
 * An index is being deleted.  dependency.c holds the lock on it already
 * (AcquireDeletionLock).  The stub of another session's temporary index is in
 * that session's memory; its file goes with that backend.  What ON COMMIT DROP
 * deletes is temporary, and goes when files have been looked at: its file goes at the next
 * commit.  concurrently: the fork is deleted at the third commit from now on, with nothing of
 * the user's in between (catalog/index.c, index_drop).
 */
void
pmhash_note_drop(Oid relid, bool concurrently)
{
	Relation	index = relation_open(relid, NoLock);

	Assert(IsTransactionState());
	if (pmhash_is_index(index) && !RELATION_IS_OTHER_TEMP(index) &&
		pmhash_shared != NULL && pmhash_shared->usable)
	{
		pmhash_fork_replaced(index);
		if (concurrently)
			forks_may_go = 3;
	}
	relation_close(index, NoLock);
}

/* ---- before commit: which files go? ---- */

/* Does the stub of an index on this temporary table of ours name the file? */
static bool
named_on_table(Oid heap_oid, uint64 file_id)
{
	Relation	heap = try_relation_open(heap_oid, AccessShareLock);
	ListCell   *lc;
	bool		named = false;

	if (heap == NULL)
		return false;
	foreach(lc, RelationGetIndexList(heap))
	{
		Relation	index = relation_open(lfirst_oid(lc), AccessShareLock);
		PmhashStub	stub;

		named |= pmhash_is_index(index) &&
			pmhash_stub_look(index, &stub) == PMHASH_LOOK_STUB && stub.file_id == file_id;
		relation_close(index, NoLock);
	}
	relation_close(heap, NoLock);
	return named;
}

/*
 * Which files go with the main forks that are about to be deleted?  Standbys are told of
 * them.  Should the commit fail after that, they build theirs again.
 */
static void
note_forks_that_go(void)
{
	PmhashNode *node;
	int			n = smgrGetPendingDeletes(true, &node);

	Assert(forks_may_go > 0 && !RecoveryInProgress());
	forks_may_go = n > 0 ? 0 : forks_may_go - 1;
	for (int i = 0; i < n; i++)
	{
		PmhashStub	stub;
		PmhashLook	look = pmhash_stub_look_at(node[i], &stub);

		if (look == PMHASH_LOOK_UNREADABLE)
			pmhash_visit_at_commit(MyDatabaseId);
		if (look != PMHASH_LOOK_STUB || stub.file_id == 0)
			continue;
		add_leaving(stub.file_id);
		if (pmhash_flags_logged(stub.flags))
			(void) pmhash_log_event(PMHASH_WAL_FILE_GONE, stub.file_id);
	}
}

/* The transaction is about to commit: find out which files go. */
void
pmhash_files_before_commit(void)
{
	ListCell   *lc;

	Assert(GetCurrentTransactionNestLevel() == 1);
	foreach(lc, temporary_may_go ? made : NIL)
	{
		const Made *file = lfirst(lc);

		if (file->temporary && !named_on_table(file->heap, file->file_id))
			add_leaving(file->file_id);
	}
	temporary_may_go = false;
	if (forks_may_go > 0)
		note_forks_that_go();
}

/* ---- end of transactions ---- */

/*
 * What was made in this subtransaction (InvalidSubTransactionId: in all) stays, or goes.
 * Raises no error, and allocates nothing.
 */
static void
made_at_end(SubTransactionId subid, bool committed)
{
	ListCell   *lc;

	foreach(lc, made)
	{
		Made	   *file = lfirst(lc);

		if (file->subid == InvalidSubTransactionId ||
			(subid != InvalidSubTransactionId && file->subid != subid))
			continue;
		if (committed && file->temporary)
		{
			file->subid = InvalidSubTransactionId;
			continue;
		}
		made = foreach_delete_current(made, lc);
		if (!committed)
			pmhash_remove_file(MyDatabaseId, file->file_id, false);
		pfree(file);
	}
}

/* What was noted for the end of the transaction is done, or not to be done. */
static void
forget_notes(void)
{
	list_free_deep(leaving);
	leaving = NIL;
	visit_wanted = InvalidOid;
	pmhash_log_new_files(false);
}

/* Raises no error, and allocates nothing. */
void
pmhash_files_committed(void)
{
	ListCell   *lc;

	made_at_end(InvalidSubTransactionId, true);
	foreach(lc, leaving)		/* nobody has a lock on its index, or will */
		pmhash_remove_file(MyDatabaseId, *(uint64 *) lfirst(lc), true);
	pmhash_log_new_files(true);
	if (OidIsValid(visit_wanted))
		pmhash_request(visit_wanted, PMHASH_JOB_PLAIN);
	forget_notes();
}

/* Abort of a subtransaction, or (InvalidSubTransactionId) of all. */
void
pmhash_files_aborted(SubTransactionId subid)
{
	made_at_end(subid, false);
	if (subid == InvalidSubTransactionId)
	{
		forget_notes();
		forks_may_go = 0;
	}
}

/* Now it is for workers to follow the prepared transaction. */
void
pmhash_files_prepared(void)
{
	made_at_end(InvalidSubTransactionId, true);
	pmhash_log_new_files(true);
	forget_notes();
	forks_may_go = 0;
}

/* A subtransaction has become part of its parent. */
void
pmhash_files_to_parent(SubTransactionId subid, SubTransactionId parent)
{
	ListCell   *lc;

	Assert(subid != InvalidSubTransactionId);
	foreach(lc, made)
	{
		Made	   *file = lfirst(lc);

		if (file->subid == subid)
			file->subid = parent;
	}
}
