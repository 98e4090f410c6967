/*-------------------------------------------------------------------------
 *
 * life_cycle.c
 *	  Files follow transactions, sessions and databases.
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
 *
 * The files of temporary indexes:
 * they go with their transactions as others do, which at the latest is the one
 * in which a session that ends drops its tables (namespace.c, RemoveTempRelationsCallback).
 * No other session can read the stubs of such indexes, so this list is what
 * is known of their files; and it has which of their main forks a transaction replaces,
 * which storage.c does not note for temporary relations.
 *
 *
 * A database is made: nothing in the pool has its OID.
 * The OID of a database that has been dropped may come back: CREATE DATABASE ... OID.
 * If the template is an older copy of that one, stubs of the new database name files of
 * the dropped one, and say that they are of this database; and so do these files.  All
 * agrees, but they have what the dropped database had in the end.  The server guards
 * its own files against that (dbcommands.c, check_db_file_conflict).  So what is left in
 * the pool goes before anything is copied.
 *
 * An OID that the server has drawn itself is no danger: the stubs of a template have the
 * template's OID, or one of a database that the template was copied from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "cluster/base/control_file.h"
#include "cluster/base/counters.h"
#include "cluster/base/relations.h"
#include "cluster/base/shared.h"
#include "cluster/cluster.h"
#include "cluster/file/files.h"
#include "cluster/pool/pool.h"
#include "cluster/queue/queue.h"
#include "cluster/wal/logged.h"
#include "cluster/wal/stub.h"
#include "cluster/wal/wal_record.h"

/* ==== files of this session ==== */

typedef struct SessionFile
{
	Oid			heap;			/* table of the index */
	PmhashFork	fork;			/* that it was made for */
	uint64		file_id;
	bool		doubtful;		/* the index, or another one on that table, has got
								 * another main fork in this transaction */
	char	   *path;
} SessionFile;

static List *files = NIL;		/* in TopMemoryContext */
static bool any_doubtful = false;

/*
 * Remove a file.  It may be gone already.  Never raises an error, since it is called after
 * commit and in aborts: what can't be removed is logged, and tried again by the cleaner.
 */
void
pmhash_unlink(const char *path)
{
	const char *name = last_dir_separator(path);
	uint64		file_id;
	bool		is_ours = name != NULL && pmhash_parse_file_name(name + 1, &file_id);
	ListCell   *lc;

	if (unlink(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not remove file \"%s\": %m", path)));
	foreach(lc, files)
	{
		SessionFile *file = lfirst(lc);

		if (strcmp(file->path, path) != 0)
			continue;
		pfree(file->path);
		pfree(file);
		files = foreach_delete_current(files, lc);
		break;
	}
	if (is_ours)
		pmhash_file_is_not_new(file_id);
}

/*
 * Remove a file that nobody uses any more, or will.  But idle sessions may keep it mapped for
 * days.  So it is cut off, as the server does with its own files (md.c, mdunlinkfork), for its
 * space to be free at once: when it has no name any more, so that none meets it cut off.
 */
void
pmhash_remove_file(const char *path)
{
	int			fd = BasicOpenFile(path, O_WRONLY | PG_BINARY);

	pmhash_unlink(path);
	if (fd < 0)
		return;
	if (ftruncate(fd, 0) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not truncate removed file: %m")));
	(void) close(fd);
}

/* The file of a temporary index has been made. */
void
pmhash_session_file_made(const PmhashFile *file, Relation index)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	SessionFile *made = palloc0(sizeof(SessionFile));

	Assert(index->rd_rel->relpersistence == RELPERSISTENCE_TEMP);
	made->heap = index->rd_index->indrelid;
	made->fork = pmhash_fork_of(index);
	made->file_id = file->file_id;
	made->path = pstrdup(file->path);
	files = lappend(files, made);
	MemoryContextSwitchTo(old);
}

/*
 * The file made for the main fork that a temporary index has, into path[MAXPGPATH];
 * false if there is none.
 */
bool
pmhash_session_file_of(Relation index, char *path)
{
	PmhashFork	fork = pmhash_fork_of(index);

	for (int i = list_length(files) - 1; i >= 0; i--)
	{
		const SessionFile *file = list_nth(files, i);

		if (memcmp(&file->fork, &fork, sizeof(fork)) != 0)
			continue;
		strlcpy(path, file->path, MAXPGPATH);
		return true;
	}
	return false;
}

/*
 * An index of a temporary table is getting another file, with a new main fork: look
 * which of that table's files are still wanted before commit.
 */
void
pmhash_session_file_replaced(Oid heap)
{
	ListCell   *lc;

	foreach(lc, files)
	{
		SessionFile *file = lfirst(lc);

		if (file->heap != heap)
			continue;
		file->doubtful = true;
		any_doubtful = true;
	}
}

/* Have a look taken at each file that may not be wanted any more. */
static void
session_files_look(void (*look) (const char *path, Oid heap, uint64 file_id))
{
	ListCell   *lc;

	if (!any_doubtful)
		return;
	any_doubtful = false;
	foreach(lc, files)
	{
		SessionFile *file = lfirst(lc);

		if (file->doubtful)
			look(file->path, file->heap, file->file_id);
		file->doubtful = false;
	}
}

/* ==== a new database ==== */

static bool oid_is_given = false;	/* by the statement at work */

/* Before a utility statement: does it make a database with a given OID? */
void
pmhash_note_statement(const Node *statement)
{
	ListCell   *lc;

	if (!IsA(statement, CreatedbStmt))
		return;
	oid_is_given = false;
	foreach(lc, ((const CreatedbStmt *) statement)->options)
		oid_is_given |= strcmp(lfirst_node(DefElem, lc)->defname, "oid") == 0;
}

/* Are there index files of that OID in the pool, or may there be? */
static bool
has_files(Oid database)
{
	char		path[MAXPGPATH];
	DIR		   *dir;
	struct dirent *de;
	uint64		file_id;
	bool		found = false;

	pmhash_database_path(path, database);
	dir = AllocateDir(path);
	if (dir == NULL)
		return errno != ENOENT;
	while (!found && (de = ReadDir(dir, path)) != NULL)
		found = pmhash_parse_file_name(de->d_name, &file_id);
	FreeDir(dir);
	return found;
}

/*
 * Remove the directory of a database that does not exist any more.  Since DROP
 * DATABASE commits synchronously (dbcommands.c, ForceSyncCommit) it won't come
 * back.  Another one with its OID may: the caller sees to it that there is none yet.
 */
void
pmhash_remove_dropped(Oid database)
{
	char		path[MAXPGPATH];
	uint64	   *files;
	int			n;

	Assert(database != MyDatabaseId);
	pmhash_counters_forget_dropped(database);
	files = pmhash_list_files(database, &n);
	for (int i = 0; i < n; i++)
	{
		pmhash_file_path(path, database, files[i]);
		pmhash_unlink(path);
	}
	pmhash_database_path(path, database);
	if (rmdir(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("pmhash: could not remove directory \"%s\": %m", path)));
}

static void
remove_files(Oid database)
{
	pmhash_rebuild_forget(database);
	pmhash_remove_dropped(database);
	if (has_files(database))
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not remove index files of a dropped database with OID %u",
						database),
				 errdetail("The server log says why."),
				 errhint("Give the new database another OID, or none.")));
}

/*
 * The pool is not used in this server life.  In the next one it may be trusted again,
 * for what this life leaves out of an index it marks in the stub (trust.c,
 * pmhash_refuse_trust); this would not be.
 */
static void
refuse_next_life(void)
{
	char		reason[PMHASH_REASON_SIZE];

	if (!pmhash_remove_token(reason))
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("pmhash is disabled, and files of a dropped database cannot be given up: %s",
						reason),
				 errhint("Give the new database another OID, or none.")));
}

/*
 * database_is_new
 *		A row of pg_database has been inserted, and no process can see it yet.
 *
 * The index of its OIDs has let it in, so there is no other one with this OID, and those
 * that were connected to one are gone (DROP DATABASE sees to that).  ERROR if files of
 * that may be left.
 */
static void
database_is_new(Oid database)
{
	Assert(OidIsValid(database) && IsTransactionState());
	if (pmhash_shared == NULL)
		return;
	if (pmhash_shared->usable && pmhash_pool_is_present())
		remove_files(database);
	else if (!oid_is_given)
		return;
	else if (pmhash_shared->usable)
		pmhash_require_pool_present();
	else
		refuse_next_life();
}

/* ==== files of transactions ==== */

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

	Assert(GetCurrentTransactionNestLevel() > 0);
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

	Assert(IsTransactionState());
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

	Assert(pmhash_node_subid(heap) != InvalidSubTransactionId);
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
	database_is_new(database);
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

	Assert(IsTransactionState());
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

/* A main fork whose stub names this file is about to be deleted. */
static void
note_replaced(uint64 file_id, bool logged)
{
	char		path[MAXPGPATH];
	PmhashIdentity id;
	PmhError	error;
	PmhResult	result;
	Pending    *p;
	Oid			heap;

	pmhash_file_path(path, MyDatabaseId, file_id);
	if (is_pending_drop(path))
		return;
	result = pmh_read_note(path, &id, NULL, &error);
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
				p = add_pending(path, id.index_oid, true);
				p->file_id = file_id;
				p->logged = logged;
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
			(void) pmhash_wal_log(&(PmhashWalRecord) {
				.type = PMHASH_WAL_FILE_GONE, .file_id = p->file_id, .database = MyDatabaseId
			}, NULL, InvalidBuffer);
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
	Assert(GetCurrentTransactionNestLevel() == 1);
	verify_drops();
	if (forks_replaced)
		note_replaced_forks();
	session_files_look(note_replaced_session_file);
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

	Assert(level > 1);
	foreach(lc, pending)
	{
		Pending    *p = lfirst(lc);

		p->level = Min(p->level, level - 1);
		if (p->subid == subid)
			p->subid = parent;
	}
}
