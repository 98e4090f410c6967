/*-------------------------------------------------------------------------
 *
 * index_file.c
 *	  Index files: making them, finding the one that belongs to an index,
 *	  keeping them mapped.
 *
 * A backend keeps the files it has used mapped, in a table by PmhashNode.
 * The stub of a PmhashNode can change only together with a relcache
 * invalidation of its index, or with a step of the stub generation in shared
 * memory (invalid.c).  Both make the entry suspect: the next open reads the
 * stub again.  An entry that stays suspect belongs to an index that
 * is gone or was rebuilt; it is unmapped at the end of the first transaction
 * that finds the file removed, so that its space is given back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "storage/sinval.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "cluster/internal.h"

/* A file in the table of this backend. */
typedef struct FileEntry
{
	PmhashNode	key;
	Oid			relid;
	bool		suspect;		/* invalidated since the stub was read */
	PmhashFile *file;
} FileEntry;

static HTAB *entries = NULL;
static int	n_suspect = 0;		/* entries that are suspect */
static List *replaced = NIL;	/* handles to close at end of transaction */

/* ---- messages ---- */

static int
sqlstate_of(const PmhError *error)
{
	switch (error->code)
	{
		case PMH_ERR_NO_SPACE:
			return ERRCODE_DISK_FULL;
		case PMH_ERR_NO_MEMORY:
			return ERRCODE_OUT_OF_MEMORY;
		case PMH_ERR_TOO_LARGE:
			return ERRCODE_PROGRAM_LIMIT_EXCEEDED;
		case PMH_ERR_FORMAT:
		case PMH_ERR_CORRUPT:
			return ERRCODE_INDEX_CORRUPTED;
		case PMH_ERR_NO_FILE:
			return ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		default:
			return ERRCODE_IO_ERROR;
	}
}

/* Is an invalid index rebuilt without anybody doing anything? */
static bool
rebuilds_itself(Relation index)
{
	return pmhash_rebuild && pmhash_shared->usable &&
		index->rd_rel->relpersistence != RELPERSISTENCE_TEMP;
}

/* What to do about an invalid index. */
const char *
pmhash_rebuild_hint(Relation index)
{
	return rebuilds_itself(index) ?
		"Try again when the index has been rebuilt in the background; REINDEX INDEX does so now." :
		"REINDEX INDEX makes a new file.";
}

static const char *
hint_for(Relation index, const PmhError *error)
{
	switch (error->code)
	{
		case PMH_ERR_FORMAT:
		case PMH_ERR_CORRUPT:
		case PMH_ERR_NO_FILE:
		case PMH_ERR_LOST:
			return pmhash_rebuild_hint(index);
		case PMH_ERR_NO_SPACE:
			return "Free space on the file system of the pmhash directory.";
		default:
			return NULL;
	}
}

pg_noreturn static void
report(Relation index, const char *path, const char *what, const PmhError *error)
{
	const char *hint = hint_for(index, error);

	ereport(ERROR,
			(errcode(sqlstate_of(error)),
			 errmsg("could not %s file \"%s\" of index \"%s\"%s%s",
					what, path, RelationGetRelationName(index),
					error->sys_errno != 0 ? ": " : "",
					error->sys_errno != 0 ? strerror(error->sys_errno) : ""),
			 error->detail[0] != '\0' ?
			 (error->offset != 0 ?
			  errdetail("%s (offset %llu)", error->detail,
						(unsigned long long) error->offset) :
			  errdetail("%s", error->detail)) : 0,
			 hint ? errhint("%s", hint) : 0));
}

void
pmhash_engine_error(Relation index, PmhashFile *file, PmhResult result)
{
	PmhError	error = *pmh_error(file->table);

	if (error.code != result)
	{
		memset(&error, 0, sizeof(error));
		error.code = result;
	}
	if (result == PMH_ERR_CORRUPT || result == PMH_ERR_FORMAT)
		pmhash_index_invalidate(index, file, PMHASH_REASON_DAMAGED);
	else if (result == PMH_ERR_LOST)
		pmhash_index_invalidate(index, file, PMHASH_REASON_UNREADABLE);
	report(index, file->path, "use", &error);
}

/* ---- trouble: why an index can't be opened ---- */

/*
 * Either its file is not to be used, now and in future (reason), or something
 * that may pass is in the way (reason NONE, error).
 */
typedef struct Trouble
{
	PmhashReason reason;
	PmhError	error;			/* of the engine, or code PMH_OK */
	char		path[MAXPGPATH];	/* of the file, or empty */
} Trouble;

/* Is a constraint to be checked with this index, so that no row may miss? */
static bool
enforces_constraint(Relation index)
{
	return index->rd_index->indisexclusion || index->rd_index->indisunique;
}

/*
 * ERROR for an invalid index.  Its SQLSTATE tells to try again if that will
 * help: a constraint can be checked when the index has been rebuilt, and a
 * plan that is older than the index's invalidity is made anew.
 */
pg_noreturn static void
raise_invalid(Relation index, const Trouble *trouble)
{
	int			sqlstate = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;

	if (rebuilds_itself(index))
		sqlstate = ERRCODE_T_R_SERIALIZATION_FAILURE;
	else if (trouble->reason == PMHASH_REASON_DAMAGED)
		sqlstate = ERRCODE_INDEX_CORRUPTED;
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("pmhash index \"%s\" has no usable file",
					RelationGetRelationName(index)),
			 trouble->path[0] == '\0' ?
			 errdetail("The index can't be used: %s.",
					   pmhash_reason_text(trouble->reason)) :
			 trouble->error.detail[0] == '\0' ?
			 errdetail("File \"%s\" can't be used: %s.", trouble->path,
					   pmhash_reason_text(trouble->reason)) :
			 errdetail("File \"%s\" can't be used: %s (%s).", trouble->path,
					   pmhash_reason_text(trouble->reason), trouble->error.detail),
			 errhint("%s", pmhash_rebuild_hint(index))));
}

pg_noreturn static void
raise_trouble(Relation index, const Trouble *trouble)
{
	if (trouble->reason == PMHASH_REASON_NONE)
		report(index, trouble->path, "open", &trouble->error);
	raise_invalid(index, trouble);
}

/* What an error of the engine at opening a file says about the file. */
static PmhashReason
reason_of(const PmhError *error)
{
	switch (error->code)
	{
		case PMH_ERR_NO_FILE:
			return PMHASH_REASON_MISSING;
		case PMH_ERR_FORMAT:
		case PMH_ERR_CORRUPT:
			return PMHASH_REASON_DAMAGED;
		case PMH_ERR_IO:
			if (error->sys_errno == EMFILE || error->sys_errno == ENFILE ||
				error->sys_errno == EINTR || error->sys_errno == EAGAIN)
				return PMHASH_REASON_NONE;
			return PMHASH_REASON_UNREADABLE;
		case PMH_ERR_LOST:
			return PMHASH_REASON_UNREADABLE;
		case PMH_ERR_OUTDATED:
			return PMHASH_REASON_OUTDATED;
		default:
			return PMHASH_REASON_NONE;
	}
}

/* ---- the table of open files ---- */

/*
 * A relcache invalidation: the entries of that index must look at their stub
 * again.  InvalidOid stands for every relation.
 */
static void
invalidate(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	FileEntry  *entry;

	if (entries == NULL)
		return;
	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if ((relid == InvalidOid || entry->relid == relid) && !entry->suspect)
		{
			entry->suspect = true;
			n_suspect++;
		}
	}
}

/*
 * A transaction has been aborted that has made files: entries may name files
 * that no stub ever will.  Raises no error.
 */
void
pmhash_files_aborted(void)
{
	invalidate((Datum) 0, InvalidOid);
}

/*
 * Has a stub been changed in place since we looked last, by somebody who has
 * marked an index as invalid or rebuilt one?  Then read all stubs again.
 */
static void
notice_changed_stubs(void)
{
	static uint64 seen = 0;
	uint64		generation = pg_atomic_read_u64(&pmhash_shared->stub_generation);

	if (likely(generation == seen))
		return;
	seen = generation;
	pg_read_barrier();
	invalidate((Datum) 0, InvalidOid);
}

static FileEntry *
find_entry(Relation index)
{
	static bool registered = false;

	if (entries == NULL)
	{
		HASHCTL		ctl;

		memset(&ctl, 0, sizeof(ctl));
		ctl.keysize = sizeof(PmhashNode);
		ctl.entrysize = sizeof(FileEntry);
		entries = hash_create("pmhash files", 64, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	if (!registered)
	{
		CacheRegisterRelcacheCallback(invalidate, (Datum) 0);
		registered = true;
	}
	return hash_search(entries, &pmhash_node(index), HASH_FIND, NULL);
}

static void
close_file(PmhashFile *file)
{
	pmh_close(file->table);
	pfree(file);
}

/* Close a handle once nothing in this transaction can still use it. */
static void
close_later(PmhashFile *file)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	replaced = lappend(replaced, file);
	MemoryContextSwitchTo(old);
}

/* A handle, in one piece of memory with its path. */
static PmhashFile *
make_handle(Relation index, PmhTable *table, const PmhashStub *stub,
			const char *path)
{
	Size		length = strlen(path) + 1;
	PmhashFile *file = MemoryContextAlloc(TopMemoryContext,
										  sizeof(PmhashFile) + length);

	file->table = table;
	file->file_id = stub->file_id;
	file->seed = stub->seed;
	file->journaled = RelationIsPermanent(index);
	file->path = (char *) (file + 1);
	memcpy(file->path, path, length);
	return file;
}

/*
 * Enter a handle for an index.  The one that was there is closed at the end of
 * the transaction.
 */
static void
enter_handle(Relation index, PmhashFile *file)
{
	FileEntry  *entry;
	bool		found;

	entry = hash_search(entries, &pmhash_node(index), HASH_ENTER, &found);
	if (found)
	{
		close_later(entry->file);
		n_suspect -= entry->suspect;
	}
	entry->relid = RelationGetRelid(index);
	entry->suspect = false;
	entry->file = file;
}

/*
 * Enter a file that has been opened for an index.  Want of memory is an ERROR
 * and closes it.
 */
static PmhashFile *
enter_file(Relation index, PmhTable *table, const PmhashStub *stub,
		   const char *path)
{
	PmhashFile *volatile file = NULL;

	PG_TRY();
	{
		file = make_handle(index, table, stub, path);
		enter_handle(index, file);
	}
	PG_CATCH();
	{
		if (file != NULL)
			pfree(file);
		pmh_close(table);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return file;
}

/* Has somebody removed this file? */
static bool
is_gone(const PmhashFile *file)
{
	struct stat st;

	return stat(file->path, &st) != 0 && errno == ENOENT;
}

/*
 * End of a top-level transaction: unmap what was replaced or removed.  Must
 * not raise an error.
 */
void
pmhash_files_at_end_of_transaction(void)
{
	HASH_SEQ_STATUS status;
	FileEntry  *entry;
	ListCell   *lc;

	foreach(lc, replaced)
		close_file(lfirst(lc));
	list_free(replaced);
	replaced = NIL;

	if (n_suspect == 0)
		return;
	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (!entry->suspect || !is_gone(entry->file))
			continue;
		close_file(entry->file);
		n_suspect--;
		hash_search(entries, &entry->key, HASH_REMOVE, NULL);
	}
}

/* ---- identity ---- */

/* The engine's environment in this run. */
PmhEnv
pmhash_engine_env(void)
{
	PmhEnv		env;

	memset(&env, 0, sizeof(env));
	env.locks = pmhash_shared->locks;
	env.instance = pmhash_shared->instance;
	env.shut = pmhash_shared->control.shut;
	env.shut_begun = pmhash_shared->control.shut_begun;
	env.all_shut = pmhash_shared->control.all_shut != 0;
	return env;
}

/*
 * Why a file with this identity must not be trusted, or NONE.  pmem tells
 * whether it is persistent memory, which does not help it if its journal was
 * not.
 */
PmhashReason
pmhash_identity_doubt(const PmhashIdentity *id, bool pmem)
{
	const PmhashControl *control = &pmhash_shared->control;

	if (id->version != PMHASH_IDENTITY_VERSION)
		return PMHASH_REASON_VERSION;
	if (id->system_identifier != control->system_identifier)
		return PMHASH_REASON_OTHER_CLUSTER;
	if (id->dax_era != control->dax_era)
		return id->dax_era == control->power_dax_era ?
			PMHASH_REASON_POWER : PMHASH_REASON_APART;
	if (!(pmem && control->pmem) && id->cache_era != control->cache_era)
		return PMHASH_REASON_POWER;
	return PMHASH_REASON_NONE;
}

/* Is the file at trouble->path the one that the stub names? */
static bool
check_identity(const PmhashStub *stub, Trouble *trouble)
{
	PmhashIdentity id;

	if (pmh_examine(trouble->path, &id, &trouble->error) != PMH_OK)
	{
		trouble->reason = reason_of(&trouble->error);
		return false;
	}
	trouble->reason = pmhash_identity_doubt(&id, true);
	if (trouble->reason != PMHASH_REASON_NONE)
		return false;
	if (id.database != MyDatabaseId)
		trouble->reason = PMHASH_REASON_OTHER_DATABASE;
	else if (id.file_id != stub->file_id || id.seed != stub->seed)
		trouble->reason = PMHASH_REASON_OTHER_INDEX;
	return trouble->reason == PMHASH_REASON_NONE;
}

static void
make_identity(Relation index, const PmhashStub *stub, bool transactional,
			  PmhashIdentity *id)
{
	const PmhashControl *control = &pmhash_shared->control;

	memset(id, 0, sizeof(*id));
	id->version = PMHASH_IDENTITY_VERSION;
	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		id->flags |= PMHASH_IDENTITY_TEMP;
	if (index->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		id->flags |= PMHASH_IDENTITY_UNLOGGED;
	id->system_identifier = control->system_identifier;
	id->file_id = stub->file_id;
	id->seed = stub->seed;
	id->dax_era = control->dax_era;
	id->cache_era = control->cache_era;
	id->instance = pmhash_shared->instance;
	if (transactional)
		id->creator_xid = U64FromFullTransactionId(GetTopFullTransactionId());
	id->created_at = GetCurrentTimestamp();
	id->created_lsn = GetXLogInsertRecPtr();
	id->database = MyDatabaseId;
	id->tablespace = pmhash_node_tablespace(&pmhash_node(index));
	id->index_oid = RelationGetRelid(index);
	id->relfilenode = pmhash_node_number(&pmhash_node(index));
	id->owner_pid = MyProcPid;
	id->timeline = control->timeline;
	id->owner_start = MyStartTimestamp;
}

/* ---- making files ---- */

static void
new_stub(PmhashStub *stub)
{
	memset(stub, 0, sizeof(*stub));
	stub->magic = PMHASH_STUB_MAGIC;
	stub->version = PMHASH_STUB_VERSION;
	while (stub->file_id == 0)
	{
		if (!pg_strong_random(&stub->file_id, sizeof(stub->file_id)) ||
			!pg_strong_random(&stub->seed, sizeof(stub->seed)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate a random file id")));
	}
}

/* The file's name must be as durable as its contents. */
static void
sync_name(Relation index, const char *directory)
{
	PmhError	error;
	int			fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	memset(&error, 0, sizeof(error));
	if (fd >= 0 && fsync(fd) == 0)
	{
		close(fd);
		return;
	}
	error.code = PMH_ERR_IO;
	error.sys_errno = errno;
	if (fd >= 0)
		close(fd);
	report(index, directory, "create", &error);
}

/*
 * Make the file of a stub and open it.  It is on the list of what an abort
 * removes from before it exists.
 */
static PmhashFile *
make_file(Relation index, const PmhashStub *stub, bool transactional)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH];
	PmhashIdentity id;
	PmhEnv		env = pmhash_engine_env();
	PmhTable   *table;
	PmhashFile *file;
	PmhError	error;
	PmhResult	result;

	pmhash_require_pool_in_place();
	if (pmhash_journal_map(path, &error) != PMH_OK)
		report(index, path, "open undo journal", &error);
	pmhash_database_path(directory, MyDatabaseId);
	pmhash_file_path(path, MyDatabaseId, stub->file_id);
	if (mkdir(directory, 0700) != 0 && errno != EEXIST)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", directory)));
	make_identity(index, stub, transactional, &id);
	pmhash_pending_create(path);
	result = pmh_create(path, NULL, &id, &env, &table, &error);
	if (result != PMH_OK)
		report(index, path, "create", &error);
	file = enter_file(index, table, stub, path);
	if (pmh_is_pmem(table))
		sync_name(index, directory);
	return file;
}

/*
 * Is the index's main fork new in this transaction, so that an abort removes
 * it?  If not, ambuild is emptying it in place (ON COMMIT DELETE ROWS), and
 * what it makes has to stay even if the transaction fails after that.
 */
static bool
storage_is_new(Relation index)
{
	return index->rd_createSubid != InvalidSubTransactionId ||
		pmhash_node_subid(index) != InvalidSubTransactionId;
}

/* The index whose file is being replaced behind its stub, and the new file. */
static Oid	replacing = InvalidOid;
static PmhashStub replacement;

/*
 * ambuild is about to run for an invalid index, whose main fork stays as it is
 * until pmhash_file_end_replacement.  The caller holds ShareLock on the table
 * and ShareUpdateExclusiveLock on the index.
 */
void
pmhash_file_begin_replacement(Relation index)
{
	replacing = RelationGetRelid(index);
	new_stub(&replacement);
}

/*
 * The new file is complete: let the stub name it.  From here on it stays, even
 * if this transaction should fail: everything that it depends on is in WAL
 * before the stub, and the lock on the table has kept writers out.
 */
void
pmhash_file_end_replacement(Relation index)
{
	char		path[MAXPGPATH];

	pmhash_file_path(path, MyDatabaseId, replacement.file_id);
	replacing = InvalidOid;
	HOLD_INTERRUPTS();
	pmhash_stub_fill(index, replacement.file_id, replacement.seed);
	pmhash_stub_changed();
	pmhash_pending_keep(path);
	RESUME_INTERRUPTS();
	pmhash_nudge_at_commit();
}

/* It has failed.  The table of this backend has the file; let it look again. */
void
pmhash_file_cancel_replacement(Oid relid)
{
	replacing = InvalidOid;
	invalidate((Datum) 0, relid);
}

PmhashFile *
pmhash_file_create(Relation index)
{
	PmhashFile *file;
	PmhashStub	stub;
	FileEntry  *old;
	bool		is_new = storage_is_new(index);
	bool		temporary = index->rd_rel->relpersistence == RELPERSISTENCE_TEMP;

	pmhash_require_service(index);
	if (replacing == RelationGetRelid(index))
	{
		(void) find_entry(index);
		return make_file(index, &replacement, true);
	}

	/*
	 * ambuild runs again on the same main fork when a table is truncated in
	 * the transaction that made it, and at ON COMMIT DELETE ROWS.  Neither can
	 * be rolled back, and nobody else has seen that file.  (Same OID, lest a
	 * file number that comes again by chance costs another index its file.)
	 */
	old = find_entry(index);
	if (old != NULL && old->relid == RelationGetRelid(index))
	{
		pmhash_unlink(old->file->path);
		invalidate((Datum) 0, old->relid);	/* closed also if we fail */
	}
	if (index->rd_createSubid == InvalidSubTransactionId)
		pmhash_nudge_at_commit();

	new_stub(&stub);
	file = make_file(index, &stub, is_new && !temporary);
	if (temporary)
		pmhash_temp_file_created(file->path);
	pmhash_stub_create(index, stub.file_id, stub.seed);
	if (!is_new)
		pmhash_pending_keep(file->path);
	return file;
}

void
pmhash_file_create_init(Relation index)
{
	pmhash_require_service(index);
	pmhash_stub_create_init(index);
}

/*
 * An unlogged index after a crash: reinit.c has copied the init fork over the
 * main fork, and the table is empty.  Make the file that the stub asks for,
 * unless someone else is quicker.  The create lock keeps the sweeper from
 * taking the file for an orphan before the stub names it.
 */
static PmhashFile *
make_missing_file(Relation index)
{
	PmhashFile *file = NULL;
	PmhashStub	stub;

	LockRelationForExtension(index, ExclusiveLock);
	if (pmhash_stub_read(index, false, &stub) &&
		(stub.flags & PMHASH_STUB_NEW_FILE) != 0)
	{
		new_stub(&stub);
		LWLockAcquire(pmhash_lwlock(PMHASH_CREATE_LOCK), LW_SHARED);
		file = make_file(index, &stub, false);
		pmhash_stub_fill(index, stub.file_id, stub.seed);
		pmhash_pending_keep(file->path);
		LWLockRelease(pmhash_lwlock(PMHASH_CREATE_LOCK));
	}
	UnlockRelationForExtension(index, ExclusiveLock);
	return file;
}

/* ---- opening ---- */

/* Map the file that the stub names and enter it.  NULL: trouble. */
static PmhashFile *
open_existing(Relation index, const PmhashStub *stub, Trouble *trouble)
{
	PmhEnv		env = pmhash_engine_env();
	char		journal[MAXPGPATH];
	PmhTable   *table;
	PmhashIdentity id;
	PmhResult	result;

	if (!check_identity(stub, trouble))
		return NULL;
	if (pmhash_journal_map(journal, &trouble->error) != PMH_OK)
	{
		strlcpy(trouble->path, journal, sizeof(trouble->path));
		trouble->reason = reason_of(&trouble->error);
		return NULL;
	}
	result = pmh_open(trouble->path, &env, &table, NULL, &trouble->error);
	if (result != PMH_OK)
	{
		trouble->reason = reason_of(&trouble->error);
		return NULL;
	}

	/* Once more: this file may be of another class than the pool. */
	memcpy(&id, pmh_identity(table), sizeof(id));
	trouble->reason = pmhash_identity_doubt(&id, pmh_is_pmem(table));
	if (trouble->reason != PMHASH_REASON_NONE)
	{
		pmh_close(table);
		return NULL;
	}
	return enter_file(index, table, stub, trouble->path);
}

/*
 * Read the stub and say what it is good for; false: trouble.  A stub page that
 * can't be read is one that does not name a file.
 */
static bool
read_stub(Relation index, PmhashStub *stub, Trouble *trouble)
{
	if (!pmhash_stub_read(index, true, stub))
	{
		trouble->reason = PMHASH_REASON_NO_STUB;
		return false;
	}
	if (stub->file_id != 0)
		pmhash_file_path(trouble->path, MyDatabaseId, stub->file_id);
	if (stub->flags & PMHASH_STUB_INVALID)
	{
		trouble->reason = (PmhashReason) stub->reason;
		return false;
	}
	return true;
}

static PmhashFile *
open_by_stub(Relation index, Trouble *trouble)
{
	PmhashStub	stub;
	PmhashFile *file;
	FileEntry  *entry;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (!read_stub(index, &stub, trouble))
			return NULL;
		if ((stub.flags & PMHASH_STUB_NEW_FILE) == 0)
			break;
		file = make_missing_file(index);
		if (file != NULL)
			return file;
	}

	/* Reading may have accepted invalidations, so look the entry up now. */
	entry = find_entry(index);
	if (entry != NULL && entry->file->file_id == stub.file_id)
	{
		n_suspect -= entry->suspect;
		entry->suspect = false;
		entry->relid = RelationGetRelid(index);
		return entry->file;
	}
	return open_existing(index, &stub, trouble);
}

/* The open file of an index, or NULL and the trouble that is in the way. */
static PmhashFile *
open_file(Relation index, Trouble *trouble)
{
	FileEntry  *entry;

	if (unlikely(pmhash_shared != NULL && !pmhash_shared->usable))
	{
		memset(trouble, 0, sizeof(*trouble));
		trouble->reason = PMHASH_REASON_DISABLED;
		return NULL;
	}
	pmhash_require_service(index);
	notice_changed_stubs();
	entry = find_entry(index);
	if (likely(entry != NULL && !entry->suspect))
		return entry->file;
	memset(trouble, 0, sizeof(*trouble));
	return open_by_stub(index, trouble);
}

/*
 * Plans that use an index of the table are to be made anew, in all sessions and
 * at once, as stub_generation works at once: what CacheInvalidateRelcache does
 * comes at the end of the transaction, and not at all if that aborts.
 */
static void
forget_plans(Oid table)
{
	SharedInvalidationMessage message;

	memset(&message, 0, sizeof(message));
	message.rc.id = SHAREDINVALRELCACHE_ID;
	message.rc.dbId = MyDatabaseId;
	message.rc.relId = table;
	SendSharedInvalidMessages(&message, 1);
}

/* Mark the stub, tell everybody, have the index rebuilt. */
static void
invalidate_index(Relation index, uint64 file_id, PmhashReason reason)
{
	if (pmhash_stub_invalidate(index, file_id, reason))
	{
		/*
		 * The reason may be gone after a crash (a bad page of the page cache
		 * is read from disk again, as it once was), so the mark has to stay
		 * even if this transaction does not.
		 */
		XLogFlush(pmhash_insert_end());
		pmhash_stub_changed();
		forget_plans(index->rd_index->indrelid);

		/* What has been read through it is now guarded by locks on the table. */
		TransferPredicateLocksToHeapRelation(index);
	}
	pmhash_rebuild_wanted(RelationGetRelid(index));
}

/*
 * Somebody who does not leave anything out has found an index to be invalid.
 * Mark it, so that all others learn of it as well, unless the reason may go
 * away again: then the file is still good.
 */
static void
notice_invalid(Relation index, const Trouble *trouble)
{
	PmhashStub	stub;

	if (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		trouble->reason == PMHASH_REASON_DISABLED)
		return;
	if (pmhash_pool_in_place() && pmhash_stub_read(index, true, &stub) &&
		(stub.flags & PMHASH_STUB_INVALID) == 0 && stub.file_id != 0)
		invalidate_index(index, stub.file_id, trouble->reason);
	else
		pmhash_rebuild_wanted(RelationGetRelid(index));
}

PmhashFile *
pmhash_file_open_for_scan(Relation index)
{
	Trouble		trouble;
	PmhashFile *file = open_file(index, &trouble);

	if (likely(file != NULL))
		return file;
	if (trouble.reason == PMHASH_REASON_NONE)
		raise_trouble(index, &trouble);
	notice_invalid(index, &trouble);
	return NULL;
}

void
pmhash_invalid_error(Relation index)
{
	Trouble		trouble;

	if (open_file(index, &trouble) == NULL)
	{
		if (trouble.reason == PMHASH_REASON_DISABLED)
			pmhash_require_service(index);
		raise_trouble(index, &trouble);
	}
	/* It has just been rebuilt. */
	memset(&trouble, 0, sizeof(trouble));
	trouble.reason = PMHASH_REASON_MISSING;
	raise_trouble(index, &trouble);
}

PmhashFile *
pmhash_file_open(Relation index)
{
	PmhashFile *file = pmhash_file_open_for_scan(index);

	if (unlikely(file == NULL))
		pmhash_invalid_error(index);
	return file;
}

void
pmhash_index_invalidate(Relation index, const PmhashFile *file,
						PmhashReason reason)
{
	if (index->rd_rel->relpersistence != RELPERSISTENCE_TEMP)
		invalidate_index(index, file->file_id, reason);
}

/*
 * For the sweeper, which comes by all the time: mark an index if its file is
 * not to be used any more, though nobody has tried, and have it rebuilt.
 * Nothing is mapped.  The caller holds a lock on the index and has just read
 * its stub.
 */
void
pmhash_index_examine(Relation index, const PmhashStub *stub)
{
	Trouble		trouble;

	if ((stub->flags & PMHASH_STUB_NEW_FILE) != 0 ||
		!index->rd_index->indisready || !index->rd_index->indislive)
		return;
	if ((stub->flags & PMHASH_STUB_INVALID) != 0)
	{
		/* Whoever has marked it may have asked while rebuilds were off. */
		pmhash_rebuild_wanted(RelationGetRelid(index));
		return;
	}
	memset(&trouble, 0, sizeof(trouble));
	pmhash_file_path(trouble.path, MyDatabaseId, stub->file_id);
	if (!check_identity(stub, &trouble) &&
		trouble.reason != PMHASH_REASON_NONE && pmhash_pool_in_place())
		invalidate_index(index, stub->file_id, trouble.reason);
}

PmhashFile *
pmhash_file_open_or_skip(Relation index, bool inserting)
{
	Trouble		trouble;
	PmhashFile *file = open_file(index, &trouble);

	if (likely(file != NULL))
		return file;
	if (trouble.reason == PMHASH_REASON_NONE)
		raise_trouble(index, &trouble);
	if (inserting && (index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
					  enforces_constraint(index)))
	{
		pmhash_rebuild_wanted(RelationGetRelid(index));
		if (trouble.reason == PMHASH_REASON_DISABLED)
			pmhash_require_service(index);
		raise_trouble(index, &trouble);
	}
	invalidate_index(index, 0, trouble.reason);
	return NULL;
}

/*
 * Why an index is invalid, or NONE.  ERROR for what may pass.  For the worker
 * and for those who want to know; the caller holds a lock on the index.  An
 * unlogged index that has no file yet is not invalid.
 */
PmhashReason
pmhash_index_doubt(Relation index)
{
	Trouble		trouble;
	PmhashStub	stub;
	PmhashFile *file;

	if (pmhash_stub_read(index, true, &stub) &&
		(stub.flags & PMHASH_STUB_NEW_FILE) != 0)
		return PMHASH_REASON_NONE;
	file = open_file(index, &trouble);
	if (file == NULL && trouble.reason == PMHASH_REASON_NONE)
		raise_trouble(index, &trouble);
	return file != NULL ? PMHASH_REASON_NONE : trouble.reason;
}

/*
 * May plans use this index?  Opens its file, as such a plan would; raises no
 * error for what it finds.  A file that an unlogged index does not have yet is
 * left to who uses it.
 */
bool
pmhash_index_plannable(Relation index)
{
	Trouble		trouble;
	PmhashStub	stub;
	FileEntry  *entry;

	if (!pmhash_service_available() ||
		pg_atomic_read_u32(&pmhash_shared->not_ready) != 0)
		return false;
	pmhash_pool_ready();
	notice_changed_stubs();
	entry = find_entry(index);
	if (likely(entry != NULL && !entry->suspect))
		return true;
	memset(&trouble, 0, sizeof(trouble));
	if (read_stub(index, &stub, &trouble) &&
		((stub.flags & PMHASH_STUB_NEW_FILE) != 0 ||
		 open_by_stub(index, &trouble) != NULL))
		return true;
	if (trouble.reason != PMHASH_REASON_NONE)
		pmhash_rebuild_wanted(RelationGetRelid(index));
	return false;
}

/*
 * Path of the file that an index's stub names, into path[MAXPGPATH]; whether
 * it is there or usable is not looked at.  False if there is no such stub.
 */
bool
pmhash_index_path(Relation index, bool zero_on_error, char *path)
{
	PmhashStub	stub;

	if (pmhash_shared == NULL || !pmhash_shared->usable ||
		!pmhash_stub_read(index, zero_on_error, &stub) || stub.file_id == 0)
		return false;
	pmhash_file_path(path, MyDatabaseId, stub.file_id);
	return true;
}

/*
 * Bytes that a file occupies.  One that has shrunk keeps its length until the
 * next start of the server, with nothing behind its end in use.
 */
int64
pmhash_stat_size(const struct stat *st)
{
	return Min((int64) st->st_size, (int64) st->st_blocks * 512);
}

int64
pmhash_file_size(Relation index)
{
	char		path[MAXPGPATH];
	struct stat st;

	if (!pmhash_index_path(index, false, path) || stat(path, &st) != 0)
		return 0;
	return pmhash_stat_size(&st);
}
